//! A server's notes on a trial: the times at which each request passed its stages, and the windows of the threads that did it.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use punctual::runtime::{self, Request};
use punctual::{Clock, Ticks};
use punctual_machine::namespace::thread_id;
use serde::{Deserialize, Serialize};

use crate::explain::kept::{ThreadWindows, WindowLog};
use crate::load::watch::SLOW;
use crate::run::lock;
use crate::run::rows::{Row, bytes_of, rows_of};

/// When a request passed the stages of its server. All processes of a host read one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// The whole request had been read.
    pub(super) received: Ticks,
    /// The work began.
    pub(super) begun: Ticks,
    /// The work was done.
    pub(super) done: Ticks,
    /// The reply was about to be written.
    pub(super) replying: Ticks,
    /// It was written.
    pub(super) replied: Ticks,
}

impl Passed {
    /// Time that it waited for the work, and its reply for the writer.
    pub(super) fn waited(&self) -> [Ticks; 2] {
        [self.begun.since(self.received), self.replying.since(self.done)]
    }
}

impl Row<5> for Passed {
    fn words(&self) -> [u64; 5] {
        [self.received, self.begun, self.done, self.replying, self.replied].map(|instant| instant.0)
    }

    fn of_words(words: [u64; 5]) -> Self {
        let [received, begun, done, replying, replied] = words.map(Ticks);
        Self { received, begun, done, replying, replied }
    }
}

/// A request or a reply on its way through the stages.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) message: Vec<u8>,
    pub(super) passed: Passed,
    /// Information about it for a task in classes: its deadline.
    pub(super) request: Option<Request>,
}

impl Staged {
    /// A request that has been read.
    pub(super) fn received(message: &[u8]) -> Self {
        let passed = Passed { received: Clock::get().now(), ..Passed::default() };
        Self { message: message.to_vec(), passed, request: runtime::request() }
    }

    /// The request, served.
    pub(super) fn served(mut self, serve: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        let clock = Clock::get();
        self.passed.begun = clock.now();
        self.message = serve(&self.message);
        self.passed.done = clock.now();
        self
    }
}

/// The requests of one connection, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(Arc<Mutex<Vec<Passed>>>);

impl Requests {
    /// A reply has been written.
    pub(super) fn note(&self, passed: Passed) {
        lock(&self.0).push(Passed { replied: Clock::get().now(), ..passed });
    }
}

/// The windows of one thread, until the trial ends; none where it keeps none.
#[derive(Clone, Debug, Default)]
pub(super) struct StageThread(Arc<Mutex<Option<WindowLog>>>);

impl StageThread {
    /// Looks at the calling thread, which made it, if it has not for long: closer if what it did last had waited for it so long.
    pub(super) fn look(&self, waited: Ticks) {
        let clock = Clock::get();
        if let Some(log) = lock(&self.0).as_mut().filter(|log| log.is_due(clock.now())) {
            log.close(0, clock.duration(waited) > SLOW);
        }
    }
}

/// A thread with windows.
#[derive(Debug)]
struct Watched {
    role: &'static str,
    port: Option<u16>,
    /// The kernel's number of it.
    number: u32,
    thread: StageThread,
}

#[derive(Debug, Default)]
struct Entries {
    connections: Vec<(u16, Requests)>,
    threads: Vec<Watched>,
    failed: Option<String>,
}

/// A server's notes on one trial.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    entries: Arc<Mutex<Entries>>,
    /// Of one thread.
    windows_max: usize,
}

thread_local! {
    /// Of a thread whose tasks are those of many connections; each trial has threads of its own.
    static WORKER: RefCell<Option<StageThread>> = const { RefCell::new(None) };
}

impl Journal {
    pub(super) fn new(windows_max: usize) -> Self {
        Self { entries: Arc::default(), windows_max }
    }

    /// The requests of a connection, which has this port at the client.
    pub(super) fn connection(&self, port: u16) -> Requests {
        let requests = Requests::default();
        lock(&self.entries).connections.push((port, requests.clone()));
        requests
    }

    /// A connection could not be served at all. The first reason stands for those that follow from it.
    pub(super) fn failed(&self, reason: impl std::fmt::Display) {
        lock(&self.entries).failed.get_or_insert_with(|| reason.to_string());
    }

    /// The calling thread, which does this for a connection or for all.
    pub(super) fn thread(&self, role: &'static str, port: Option<u16>) -> StageThread {
        let log = (self.windows_max > 0).then(|| WindowLog::of_this_thread(self.windows_max));
        let thread = StageThread(Arc::new(Mutex::new(log)));
        lock(&self.entries).threads.push(Watched { role, port, number: thread_id(), thread: thread.clone() });
        thread
    }

    /// Looks at the calling thread, which polls tasks.
    pub(super) fn look_at_worker(&self, waited: Ticks) {
        WORKER.with_borrow_mut(|worker| {
            worker.get_or_insert_with(|| self.thread(WORKER_ROLE, None)).look(waited);
        });
    }

    /// All that was noted, and the requests as bytes. Later notes are lost.
    pub(super) fn end(&self) -> (JournalEnd, Vec<u8>) {
        let Entries { connections, threads, failed } = std::mem::take(&mut *lock(&self.entries));
        let ended = |watched: Watched| {
            let without = || ThreadWindows { thread: watched.number, ..ThreadWindows::default() };
            let windows = lock(&watched.thread.0).take().map_or_else(without, WindowLog::finish);
            ServerThread { role: watched.role.to_owned(), port: watched.port, windows }
        };
        let threads = threads.into_iter().map(ended).collect();
        let mut bytes = Vec::new();
        let mut write = |(port, requests): (u16, Requests)| {
            let requests = std::mem::take(&mut *lock(&requests.0));
            bytes.extend(bytes_of(&requests));
            (port, requests.len())
        };
        let connections = connections.into_iter().map(&mut write).collect();
        (JournalEnd { threads, connections, failed }, bytes)
    }
}

/// Roles of the threads of a connection.
pub(super) const STAGE_ROLES: [&str; 3] = ["receive", "serve", "send"];

/// Role of a thread that has all stages of all connections.
pub(super) const WORKER_ROLE: &str = "worker";

/// A thread of the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ServerThread {
    pub(super) role: String,
    /// The client's port of the connection that it serves, if it serves one.
    pub(super) port: Option<u16>,
    pub(super) windows: ThreadWindows,
}

/// Contents of a journal. Its requests follow as bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct JournalEnd {
    pub(super) threads: Vec<ServerThread>,
    /// The client's port of each, and how many requests it served.
    pub(super) connections: Vec<(u16, usize)>,
    /// Why the server could not serve a connection: a limit of the machine, which is no promise.
    pub(super) failed: Option<String>,
}

impl JournalEnd {
    /// Bytes that follow.
    pub(super) fn size_behind(&self) -> usize {
        self.connections.iter().map(|(_, count)| count * Passed::SIZE).sum()
    }

    /// The requests of each connection, by the client's port.
    pub(super) fn requests(&self, bytes: &[u8]) -> Vec<(u16, Vec<Passed>)> {
        let mut all = rows_of(bytes).into_iter();
        self.connections.iter().map(|&(port, count)| (port, all.by_ref().take(count).collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: requests come back as they were noted, of each connection its own, and a thread's windows with its role.
    #[test]
    fn a_journal_reads_back() {
        let journal = Journal::new(4);
        let [one, other] = [7, 9].map(|port| journal.connection(port));
        let thread = journal.thread(STAGE_ROLES[1], Some(9));
        let passed = |number: u64| Passed {
            received: Ticks(number),
            begun: Ticks(number + 1),
            done: Ticks(number + 2),
            replying: Ticks(number + 3),
            replied: Ticks(0),
        };
        (0..3).for_each(|number| other.note(passed(10 * number)));
        one.note(passed(100));
        let (end, bytes) = journal.end();
        assert_eq!(bytes.len(), end.size_behind());
        let read = end.requests(&bytes);
        let begun = |place: usize| read[place].1.iter().map(|passed| passed.begun.0).collect::<Vec<_>>();
        assert_eq!((read[0].0, begun(0)), (7, vec![101]));
        assert_eq!((read[1].0, begun(1)), (9, vec![1, 11, 21]));
        assert!(read[1].1.iter().all(|passed| passed.replied > Ticks(0)), "it is stamped when it is noted");
        let [of] = &end.threads[..] else { panic!("{end:?}") };
        assert_eq!((of.role.as_str(), of.port), ("serve", Some(9)));
        // A thread that still works when the trial has ended harms nobody.
        thread.look(Ticks(0));
        one.note(passed(200));
        assert!(journal.end().1.is_empty());
    }
}
