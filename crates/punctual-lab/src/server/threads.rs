//! Three threads for each connection: they sleep while they wait, or yield again and again as the original's did.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use punctual_machine::counter::Flag;
use std::sync::Arc;

use super::work::{Splitter, serve};

/// Memory of a thread: there are three for each connection.
const STACK_SIZE: usize = 128 << 10;

/// Accepts until the flag is raised, and one more connection shows it.
pub(super) fn accept(listener: &TcpListener, stop: &Arc<Flag>, repeats: u32, yields: bool) {
    let mut threads = Vec::new();
    for stream in listener.incoming() {
        if stop.is_raised() {
            break;
        }
        // One that could not be accepted is missed by the load.
        let Ok(stream) = stream else { continue };
        threads.extend(start(stream, repeats, yields).unwrap_or_default());
    }
    // They end with their connections.
    for thread in threads {
        let _panicked = thread.join();
    }
}

fn start(mut stream: TcpStream, repeats: u32, yields: bool) -> std::io::Result<Vec<thread::JoinHandle<()>>> {
    // The class of the connection, which threads have no use for.
    stream.read_exact(&mut [0])?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(yields)?;
    let writer = stream.try_clone()?;
    let (requests, requested) = channel::<Vec<u8>>();
    let (replies, replied) = channel::<Vec<u8>>();
    let named = |name: &str| thread::Builder::new().name(name.to_owned()).stack_size(STACK_SIZE);
    Ok(vec![
        named("receive").spawn(move || receive(stream, &requests))?,
        named("serve").spawn(move || {
            while let Some(request) = take(&requested, yields) {
                if replies.send(serve(&request, repeats)).is_err() {
                    return;
                }
            }
        })?,
        named("send").spawn(move || {
            while let Some(reply) = take(&replied, yields) {
                if write(&writer, &reply).is_err() {
                    return;
                }
            }
        })?,
    ])
}

fn receive(mut stream: TcpStream, requests: &Sender<Vec<u8>>) {
    let (mut splitter, mut buffer) = (Splitter::default(), [0; 4_096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => splitter.push(&buffer[..count], |request| {
                let _server_ended = requests.send(request.to_vec());
            }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn take(queue: &Receiver<Vec<u8>>, yields: bool) -> Option<Vec<u8>> {
    if !yields {
        return queue.recv().ok();
    }
    loop {
        match queue.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Empty) => thread::yield_now(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

fn write(mut stream: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
