//! Three threads for each connection: they sleep while they wait, or yield again and again as the original's did.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use punctual::{Clock, Ticks};
use punctual_machine::counter::Flag;
use std::sync::Arc;

use super::journal::{Journal, Requests, STAGE_ROLES, StageThread, Staged};
use super::work::{Splitter, serve};

/// Memory of a thread: there are three for each connection.
const STACK_SIZE: usize = 128 << 10;

/// Behaviour of a server's threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Number of times that the work is done.
    pub(super) repeats: u32,
    /// True if they yield while they wait; false if they sleep.
    pub(super) yields: bool,
}

/// Accepts until the flag is raised, and one more connection shows it.
pub(super) fn accept(listener: &TcpListener, stop: &Arc<Flag>, manner: Manner, journal: &Journal) {
    let mut threads = Vec::new();
    for stream in listener.incoming() {
        if stop.is_raised() {
            break;
        }
        match stream.and_then(|stream| start(stream, manner, journal)) {
            Ok(started) => threads.extend(started),
            Err(error) => journal.failed(error),
        }
    }
    // They end with their connections.
    for thread in threads {
        let _panicked = thread.join();
    }
}

fn start(
    mut stream: TcpStream,
    manner: Manner,
    journal: &Journal,
) -> std::io::Result<Vec<thread::JoinHandle<()>>> {
    let Manner { repeats, yields } = manner;
    // The class of the connection, which threads have no use for.
    stream.read_exact(&mut [0])?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(yields)?;
    let writer = stream.try_clone()?;
    let (requests, requested) = channel::<Staged>();
    let (replies, replied) = channel::<Staged>();
    let port = stream.peer_addr()?.port();
    let named = |name: &str| thread::Builder::new().name(name.to_owned()).stack_size(STACK_SIZE);
    let [receives, serves, sends] = STAGE_ROLES;
    let watched = |role: &'static str| {
        let journal = journal.clone();
        move || journal.thread(role, Some(port))
    };
    let (receiving, serving, sending) = (watched(receives), watched(serves), watched(sends));
    let noted = journal.connection(port);
    Ok(vec![
        named(receives).spawn(move || receive(stream, &requests, &receiving()))?,
        named(serves).spawn(move || {
            let thread = serving();
            while let Some(request) = take(&requested, yields) {
                let reply = request.served(|request| serve(request, repeats));
                let [waited, _] = reply.passed.waited();
                if replies.send(reply).is_err() {
                    return;
                }
                thread.look(waited);
            }
        })?,
        named(sends).spawn(move || send(&writer, &replied, yields, (&noted, &sending())))?,
    ])
}

fn receive(mut stream: TcpStream, requests: &Sender<Staged>, thread: &StageThread) {
    let (mut splitter, mut buffer) = (Splitter::default(), [0; 4_096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                splitter.push(&buffer[..count], |request| {
                    let _server_ended = requests.send(Staged::received(request));
                });
                // The kernel does not say since when it had the request.
                thread.look(Ticks(0));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn send(
    stream: &TcpStream,
    replied: &Receiver<Staged>,
    yields: bool,
    (noted, thread): (&Requests, &StageThread),
) {
    while let Some(Staged { message, mut passed, .. }) = take(replied, yields) {
        passed.replying = Clock::get().now();
        if write(stream, &message).is_err() {
            return;
        }
        noted.note(passed);
        let [_, waited] = passed.waited();
        thread.look(waited);
    }
}

fn take(queue: &Receiver<Staged>, yields: bool) -> Option<Staged> {
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
