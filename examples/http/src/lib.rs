//! Parts that a server on hyper needs to answer by class: an executor for its connections, and a class for each request.
//!
//! tonic serves over hyper: the same executor serves gRPC.

use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use punctual::runtime::TaskOptions;
use punctual::runtime::tokio::Spawner;
use tokio::net::{TcpListener, TcpStream};

/// Tasks that read and write connections: short work, without which nobody is answered.
pub const CONNECTION: TaskOptions = TaskOptions::of_class(1).named("connection");

/// The host that runs the tasks of a server.
#[derive(Clone, Debug)]
pub enum Host {
    /// tokio alone: each task is as important as any other.
    Tokio,
    /// Tasks have classes.
    Classes(Spawner),
}

impl Host {
    /// Starts a task that nobody waits for.
    pub fn start<F>(&self, options: TaskOptions, future: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Tokio => drop(tokio::spawn(future)),
            // Once the classes have ended nobody waits for this either.
            Self::Classes(classes) => drop(classes.spawn(options, future)),
        }
    }

    /// Runs a task to its end; `None` if it did not come to it.
    pub async fn run<F>(&self, options: TaskOptions, future: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Tokio => tokio::spawn(future).await.ok(),
            Self::Classes(classes) => classes.spawn(options, future).ok()?.await.ok(),
        }
    }
}

/// Tasks that hyper spawns, such as the streams of HTTP/2, read and write connections.
impl<F> Executor<F> for Host
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.start(CONNECTION, future);
    }
}

/// Time in which nobody is accepted where there is no descriptor left: others must close theirs first.
const FULL_WAIT: Duration = Duration::from_millis(10);

/// Accepts connections, and serves each in a task of its own, for ever. No fault of one connection, and no shortage until others end,
/// ends the server.
pub async fn serve(listener: TcpListener, host: Host) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, _from)) => {
                // Without it answers may wait for more to send; one whose client went on is served to its end.
                let _gone = stream.set_nodelay(true);
                host.start(CONNECTION, connection(host.clone(), stream));
            }
            // Its client was gone before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(FULL_WAIT).await,
        }
    }
}

async fn connection(host: Host, stream: TcpStream) {
    let answering = host.clone();
    let service = service_fn(move |request| answer(answering.clone(), request));
    // A client that goes away ends its connection.
    let _gone = Builder::new(host).serve_connection(TokioIo::new(stream), service).await;
}

/// A request by its path: its importance, and its computing time.
fn request_of(path: &str) -> Option<(TaskOptions, Duration)> {
    match path {
        "/urgent" => Some((TaskOptions::of_class(0).named("urgent"), Duration::from_micros(20))),
        "/report" => Some((TaskOptions::of_class(7).named("report"), Duration::from_millis(3))),
        _ => None,
    }
}

async fn answer(host: Host, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let answered = match request_of(request.uri().path()) {
        Some((options, work)) => host.run(options, async move { compute(work) }).await.ok_or_else(stopping),
        None => Err(unknown()),
    };
    Ok(answered.map_or_else(|refusal| refusal, |rounds| Response::new(Full::from(format!("{rounds}\n")))))
}

fn unknown() -> Response<Full<Bytes>> {
    refusal(StatusCode::NOT_FOUND, "ask for /urgent or /report\n")
}

fn stopping() -> Response<Full<Bytes>> {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "the server ends\n")
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// Computes for so long; returns the number of rounds.
fn compute(work: Duration) -> u64 {
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < work {
        rounds = std::hint::black_box(rounds + 1);
    }
    rounds
}
