//! `punctual stat --serve`: the live counters for a Prometheus server, by HTTP, for reading only.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Request, Status};
use punctual_machine::signal::interrupted;

use super::print;
use crate::error::Failure;

/// A request's head is no larger, bytes.
const HEAD_SIZE_MAX: usize = 8 << 10;

/// Headers of one request.
const HEADERS_MAX: usize = 64;

/// Time that a client has to send its request, and as much to take the answer: one is answered at a time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time that a client has to begin: a connection that is opened in advance keeps nobody else waiting for longer.
const SILENCE_MAX: Duration = Duration::from_millis(250);

/// Answers who asks, until Ctrl-C.
pub(super) fn serve(address: SocketAddr, page: impl Fn() -> String) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::Machine(format!("--serve {address}: {error}; choose another port or address"))
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    print(&format!("http://{local}/metrics\n"))?;
    while !interrupted() {
        match listener.accept() {
            // A client that goes away has no answer.
            Ok((stream, _)) => drop(answer(&stream, &page)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(20));
            }
            // The client is gone, or there is no descriptor just now.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    Ok(())
}

fn answer(mut stream: &TcpStream, page: impl Fn() -> String) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let began = Instant::now();
    let mut head = Vec::new();
    let answer = loop {
        let mut part = [0; 1 << 10];
        let patience = if head.is_empty() { SILENCE_MAX } else { PATIENCE };
        stream.set_read_timeout(left_of(began, patience)?)?;
        let size = stream.read(&mut part)?;
        head.extend_from_slice(&part[..size]);
        match respond(&head, &page) {
            Some(answer) => break answer,
            None if size == 0 => return Ok(()),
            None => {}
        }
    };
    // To make a page is not the client's time.
    let (mut rest, began) = (answer.as_bytes(), Instant::now());
    while !rest.is_empty() {
        stream.set_write_timeout(left_of(began, PATIENCE)?)?;
        match stream.write(rest)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            size => rest = &rest[size..],
        }
    }
    Ok(())
}

/// Rest of the patience with a client.
fn left_of(began: Instant, patience: Duration) -> std::io::Result<Option<Duration>> {
    let left = patience.saturating_sub(began.elapsed());
    // No time at all would be no limit.
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

/// The whole answer, once the head of the request is there.
fn respond(head: &[u8], page: impl Fn() -> String) -> Option<String> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let (status, body) = match request.parse(head) {
        Ok(Status::Partial) if head.len() < HEAD_SIZE_MAX => return None,
        Ok(Status::Complete(_)) => match (request.method, request.path) {
            (Some("GET" | "HEAD"), Some("/" | "/metrics")) => ("200 OK", page()),
            (Some("GET" | "HEAD"), _) => ("404 Not Found", "see /metrics\n".to_owned()),
            _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
        },
        _ => ("400 Bad Request", "GET /metrics\n".to_owned()),
    };
    let shown = if request.method == Some("HEAD") { "" } else { &body };
    Some(format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{shown}",
        body.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first_line(head: &str) -> Option<String> {
        let answer = respond(head.as_bytes(), || "punctual_x 1\n".to_owned())?;
        Some(answer.lines().next().unwrap_or_default().to_owned())
    }

    #[test]
    fn each_request_has_its_answer() {
        assert_eq!(first_line("GET /metrics HTTP/1.1\r\nHost: a\r\n"), None, "not whole yet");
        assert_eq!(first_line("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), "HTTP/1.1 200 OK");
        assert_eq!(first_line("GET /x HTTP/1.0\r\n\r\n").unwrap(), "HTTP/1.1 404 Not Found");
        assert_eq!(first_line("POST /metrics HTTP/1.1\r\n\r\n").unwrap(), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(first_line("\0\0\r\n\r\n").unwrap(), "HTTP/1.1 400 Bad Request");
        assert_eq!(first_line(&"a".repeat(HEAD_SIZE_MAX)).unwrap(), "HTTP/1.1 400 Bad Request");
        let whole = respond(b"GET / HTTP/1.1\r\n\r\n", || "punctual_x 1\n".to_owned()).unwrap();
        assert!(
            whole.contains("Content-Length: 13\r\n") && whole.ends_with("\r\n\r\npunctual_x 1\n"),
            "{whole}"
        );
        let head = respond(b"HEAD / HTTP/1.1\r\n\r\n", || "punctual_x 1\n".to_owned()).unwrap();
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 13"), "{head}");
    }

    proptest! {
        /// Goal: bytes from outside are waited for, refused or answered.
        #[test]
        fn any_bytes_have_an_answer_or_are_waited_for(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(answer) = respond(&bytes, String::new) {
                prop_assert!(answer.starts_with("HTTP/1.1 "));
            }
        }
    }
}
