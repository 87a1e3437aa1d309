//! The load: many connections from one thread, each asking again after its reply, or requests at their instants regardless of
//! outstanding ones. It notes how late it was itself.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use punctual::Clock;
use punctual_machine::epoll::{EpollSet, Reports};
use punctual_machine::scheduling::sleep_precisely;
use punctual_machine::signal::interrupted;
use punctual_proto::sim::Rng;

use super::work::{REFUSAL, Splitter, reply, request};
use crate::explain::kept::{ClockPair, ThreadWindows, WINDOWS_MAX};
use crate::explain::recorder::LateRecorder;
use crate::load::watch::ClientWatch;
use crate::sample::{Load, Outcome};
use crate::stats::Floats;

mod arrivals;
mod rest;

pub use arrivals::Arrivals;
pub(super) use rest::Patience;

/// One trial's load.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerLoad {
    pub(super) connections: usize,
    pub(super) classes: usize,
    pub(super) matrix: usize,
    pub(super) arrivals: Arrivals,
    pub(super) duration: Duration,
    pub(super) seed: u64,
    /// A request that took longer is late.
    pub(super) slow: Duration,
    /// For what is open at the end.
    pub(super) patience: Patience,
    /// Record the kernel's trace.
    pub(super) trace: bool,
}

/// One request: instants of this process's clock, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRow {
    pub(super) connection: usize,
    /// Among those of its connection.
    pub(super) number: usize,
    pub(super) due: u64,
    pub(super) sent: u64,
    /// The kernel had all of it; `None` if that never came.
    pub(super) posted: Option<u64>,
    /// It was answered, or the trial ended.
    pub(super) until: u64,
    pub(super) outcome: Outcome,
}

/// Result of the load.
#[derive(Debug)]
pub(super) struct Loaded {
    /// As they were answered.
    pub(super) rows: Vec<RequestRow>,
    /// Of each connection, here.
    pub(super) ports: Vec<u16>,
    /// Replies for which nobody had asked, by class.
    pub(super) duplicated: Vec<u64>,
    /// Windows of this thread.
    pub(super) windows: ThreadWindows,
    /// Records the kernel, if that was asked for, or why not.
    pub(super) recorder: Option<Result<LateRecorder, String>>,
    /// Before the first request, and after the last.
    pub(super) clocks: [ClockPair; 2],
    /// Times by which requests left after their instants, nanoseconds, sorted.
    pub(super) lags_ns: Vec<u64>,
    /// Time for which requests were sent: less than was asked for where somebody interrupted it.
    pub(super) passed: Duration,
    /// Time for which what was open then was waited for, and how many of these requests were answered meanwhile.
    pub(super) waited: Duration,
    pub(super) worked_off: u64,
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    due: u64,
    sent: u64,
    posted: Option<u64>,
}

struct Connection {
    stream: TcpStream,
    /// Its port, here.
    port: u16,
    /// The server closed it, or it broke: no answer comes any more.
    is_closed: bool,
    outstanding: VecDeque<Outstanding>,
    answered: usize,
    /// Bytes that did not fit yet.
    unsent: Vec<u8>,
    replies: Splitter,
    /// When the first bytes of the reply came that is not whole yet.
    first_bytes: Option<u64>,
}

struct LoadClient<'l> {
    load: &'l ServerLoad,
    clock: &'static Clock,
    request: Vec<u8>,
    reply: Vec<u8>,
    connections: Vec<Connection>,
    /// Instants to come, and whose.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    random: Rng,
    began_ns: u64,
    end_ns: u64,
    /// When it was over, and what is open was waited for.
    over_ns: Option<u64>,
    waited: Duration,
    worked_off: u64,
    /// Bytes that came or left.
    moved: u64,
    rows: Vec<RequestRow>,
    duplicated: Vec<u64>,
    lags_ns: Vec<u64>,
    watch: ClientWatch,
    /// Requests that are not answered.
    open: usize,
    /// From when to when the late ones were under way that were answered since the last look.
    late: Option<(u64, u64)>,
    looked_ns: u64,
}

/// Windows beside one each millisecond: after late requests.
const WINDOWS_MORE: usize = 4096;

/// While requests are outstanding this thread does not look at itself, unless it has not for so long.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// The original's load waits for what is open at its end; so long at most.
const WAIT_AFTER_NS: u64 = 60_000_000_000;

/// Windows of a thread in a trial that lasts so long.
pub(super) fn windows(duration: Duration) -> usize {
    let each_ms = usize::try_from(duration.as_millis()).unwrap_or(usize::MAX);
    each_ms.saturating_add(WINDOWS_MORE).min(WINDOWS_MAX)
}

/// Loads the server for so long.
pub(super) fn run(load: &ServerLoad, server: SocketAddr) -> io::Result<Loaded> {
    sleep_precisely();
    let (mut client, set) = open(load, server)?;
    let before = ClockPair::now();
    client.begin();
    client.play(&set);
    let rest = client.wait_for_rest(&set);
    Ok(client.finish(before, rest))
}

/// All connections. The load begins now.
fn open(load: &ServerLoad, server: SocketAddr) -> io::Result<(LoadClient<'_>, EpollSet)> {
    let set = EpollSet::new().map_err(io::Error::other)?;
    let connections = (0..load.connections).map(|number| connect(server, number % load.classes));
    let connections: Vec<Connection> = connections.collect::<io::Result<_>>()?;
    for (number, connection) in connections.iter().enumerate() {
        set.add_numbered(connection.stream.as_fd(), number as u64).map_err(io::Error::other)?;
    }
    let request = request(load.matrix);
    let watch = ClientWatch::of_this_thread(windows(load.duration), load.trace).slow_after(load.slow);
    let clock = Clock::get();
    let began_ns = now_ns(clock);
    let client = LoadClient {
        load,
        clock,
        reply: reply(&request),
        request,
        connections,
        due: BinaryHeap::new(),
        random: Rng::new(load.seed),
        began_ns,
        end_ns: began_ns + load.duration.as_nanos() as u64,
        over_ns: None,
        waited: Duration::ZERO,
        worked_off: 0,
        moved: 0,
        rows: Vec::new(),
        duplicated: vec![0; load.classes],
        lags_ns: Vec::new(),
        watch,
        open: 0,
        late: None,
        looked_ns: began_ns,
    };
    Ok((client, set))
}

/// Outcome of a request on a connection that the other end closed. An interrupt may have ended the server, which loses nothing.
fn unanswered() -> Outcome {
    if interrupted() { Outcome::Unfinished } else { Outcome::Lost }
}

fn now_ns(clock: &Clock) -> u64 {
    clock.nanos(clock.now())
}

fn connect(server: SocketAddr, class: usize) -> io::Result<Connection> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.write_all(&[class as u8])?;
    stream.set_nonblocking(true)?;
    Ok(Connection {
        port: stream.local_addr()?.port(),
        stream,
        is_closed: false,
        outstanding: VecDeque::new(),
        answered: 0,
        unsent: Vec::new(),
        replies: Splitter::default(),
        first_bytes: None,
    })
}

impl LoadClient<'_> {
    fn begin(&mut self) {
        match self.load.arrivals {
            Arrivals::Closed { think_ns } => {
                for number in 0..self.connections.len() {
                    // All at once would be one long queue, and then another.
                    let first = self.began_ns + (self.random.unit() * think_ns as f64) as u64;
                    self.due.push(Reverse((first, number)));
                }
            }
            Arrivals::Original { .. } => {
                self.due.extend((0..self.connections.len()).map(|number| Reverse((self.began_ns, number))));
            }
            Arrivals::Open { .. } | Arrivals::Random { .. } => self.due.push(Reverse((self.began_ns, 0))),
        }
    }

    /// The instant of the next request of an open load, after this one.
    fn next_instant(&mut self, after: u64) -> Option<u64> {
        match self.load.arrivals {
            Arrivals::Closed { .. } | Arrivals::Original { .. } => None,
            Arrivals::Open { period_ns } => Some(after + period_ns),
            Arrivals::Random { period_ns } => {
                Some(after + (-self.random.unit().ln() * period_ns as f64) as u64)
            }
        }
    }

    fn play(&mut self, set: &EpollSet) {
        let mut reports = Reports::default();
        loop {
            let now = now_ns(self.clock);
            if interrupted() {
                return;
            }
            self.send_due(self.sends_until(now));
            if self.is_over(now) {
                return;
            }
            let next = self.next_due();
            let wait = Duration::from_nanos(next.saturating_sub(now_ns(self.clock)));
            self.hear(set, &mut reports, wait);
            self.look_back();
        }
    }

    /// Waits for so long at most, and takes what came.
    fn hear(&mut self, set: &EpollSet, reports: &mut Reports, wait: Duration) {
        set.wait_for(reports, Some(wait));
        for readiness in reports.iter() {
            let number = readiness.number as usize;
            if readiness.is_writable {
                self.flush(number);
            }
            if readiness.is_readable {
                self.receive(number);
            }
        }
    }

    /// Instant until which due requests are sent. Of an open load all requests due before the end are sent, also if this thread was
    /// late itself: else its own last standstill would hide requests. A load that waits for replies sends nothing after the end.
    fn sends_until(&self, now: u64) -> u64 {
        match self.load.arrivals.load() {
            Load::Open => now.min(self.end_ns - 1),
            Load::Closed if now < self.end_ns => now,
            Load::Closed => 0,
        }
    }

    /// Nothing is sent any more, and nothing waited for.
    fn is_over(&mut self, now: u64) -> bool {
        if now < self.end_ns {
            return false;
        }
        self.due.clear();
        let waits = matches!(self.load.arrivals, Arrivals::Original { .. }) && self.open > 0;
        !waits || now >= self.end_ns + WAIT_AFTER_NS
    }

    /// When the next request is due, or the trial ends.
    fn next_due(&self) -> u64 {
        let waits = matches!(self.load.arrivals, Arrivals::Original { .. }) && self.due.is_empty();
        let last = self.end_ns + if waits { WAIT_AFTER_NS } else { 0 };
        self.due.peek().map_or(last, |Reverse((due, _))| (*due).min(last))
    }

    /// Looks at this thread while no request is outstanding. Under closed load the next one may wait for that.
    fn look_back(&mut self) {
        let now = now_ns(self.clock);
        if self.open > 0 && now < self.looked_ns + LOOK_EVERY_NS {
            return;
        }
        self.looked_ns = now;
        let ticks = |ns: u64| self.clock.ticks(Duration::from_nanos(ns));
        let late = self.late.take().map(|(from, to)| (ticks(from), ticks(to)));
        let next = (self.load.arrivals.load() == Load::Open).then(|| ticks(self.next_due()));
        self.watch.look_back(late, next, |_| 0);
    }

    fn send_due(&mut self, until: u64) {
        while let Some(&Reverse((due, number))) = self.due.peek().filter(|next| next.0.0 <= until) {
            self.due.pop();
            let next = self.next_instant(due);
            let whose = (number + 1) % self.connections.len();
            self.due.extend(next.map(|next| Reverse((next, whose))));
            let sent = now_ns(self.clock);
            self.lags_ns.push(sent.saturating_sub(due));
            let (connection, request) =
                (&mut self.connections[number], Outstanding { due, sent, posted: None });
            if connection.is_closed {
                // A request there gets no answer: without a row the load would hide it.
                self.note(number, request, sent, unanswered());
                continue;
            }
            connection.outstanding.push_back(request);
            connection.unsent.extend_from_slice(&self.request);
            self.open += 1;
            self.flush(number);
        }
    }

    fn flush(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        while !connection.unsent.is_empty() {
            match connection.stream.write(&connection.unsent) {
                Ok(count) => {
                    connection.unsent.drain(..count);
                    self.moved += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    // Replies may have come before the end.
                    self.receive(number);
                    return self.lose(number);
                }
            }
        }
        let posted = now_ns(self.clock);
        let newest = connection.outstanding.iter_mut().rev();
        newest
            .take_while(|request| request.posted.is_none())
            .for_each(|request| request.posted = Some(posted));
    }

    /// A connection ended before its load did: what is outstanding on it is lost, and the others go on.
    fn lose(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        if std::mem::replace(&mut connection.is_closed, true) {
            return;
        }
        connection.unsent.clear();
        // One that is closed at both ends needs no shutdown.
        let _is_shut = connection.stream.shutdown(Shutdown::Both);
        let (now, outcome) = (now_ns(self.clock), unanswered());
        while let Some(request) = self.connections[number].outstanding.pop_front() {
            self.open -= 1;
            self.note(number, request, self.over_ns.unwrap_or(now), outcome);
        }
    }

    fn receive(&mut self, number: usize) {
        let mut buffer = [0; 16_384];
        while !self.connections[number].is_closed {
            let connection = &mut self.connections[number];
            match connection.stream.read(&mut buffer) {
                Ok(0) => self.lose(number),
                Ok(count) => {
                    self.moved += count as u64;
                    let (mut outcomes, expected) = (Vec::new(), &self.reply);
                    let outcome = |reply: &[u8]| match reply {
                        right if right == expected => Outcome::Answered,
                        REFUSAL => Outcome::Refused,
                        _ => Outcome::Mismatched,
                    };
                    connection.first_bytes.get_or_insert_with(|| now_ns(self.clock));
                    connection.replies.push(&buffer[..count], |reply| outcomes.push(outcome(reply)));
                    outcomes.into_iter().for_each(|outcome| self.answered(number, outcome));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.lose(number),
            }
        }
    }

    fn answered(&mut self, number: usize, outcome: Outcome) {
        let now = now_ns(self.clock);
        // The rest of the same bytes is another reply, whose first bytes came now, too.
        let first_bytes = self.connections[number].first_bytes.take().unwrap_or(now);
        let Some(request) = self.connections[number].outstanding.pop_front() else {
            self.duplicated[number % self.load.classes] += 1;
            return;
        };
        self.open -= 1;
        if let (Some(over_ns), Outcome::Answered) = (self.over_ns, outcome) {
            // It counts as it stood at the end: what a server does in its time is what is measured.
            self.worked_off += 1;
            return self.note(number, request, over_ns, Outcome::Unfinished);
        }
        let is_original = matches!(self.load.arrivals, Arrivals::Original { .. });
        self.note(number, request, if is_original { first_bytes } else { now }, outcome);
        if let Some(think_ns) = self.load.arrivals.think_ns().filter(|_| now < self.end_ns) {
            self.due.push(Reverse((now + think_ns, number)));
        }
    }

    fn note(&mut self, connection: usize, request: Outstanding, until: u64, outcome: Outcome) {
        let of = &mut self.connections[connection];
        let number = of.answered;
        of.answered += 1;
        let Outstanding { due, sent, posted } = request;
        let row = RequestRow { connection, number, due, sent, posted, until, outcome };
        let from = row.from(self.load.arrivals.load());
        if Duration::from_nanos(until.saturating_sub(from)) > self.load.slow {
            let (begin, end) = self.late.unwrap_or((from, until));
            self.late = Some((begin.min(from), end.max(until)));
        }
        self.rows.push(row);
    }

    /// An unanswered request is at least as late as it was old at the end.
    fn finish(mut self, before: ClockPair, rest: Outcome) -> Loaded {
        // Of an open load the last may have left after the end.
        let now = self.over_ns.unwrap_or_else(|| now_ns(self.clock));
        let passed = Duration::from_nanos(now.min(self.end_ns).saturating_sub(self.began_ns));
        for number in 0..self.connections.len() {
            while let Some(request) = self.connections[number].outstanding.pop_front() {
                self.note(number, request, now, rest);
            }
        }
        self.open = 0;
        self.look_back();
        self.watch.finish();
        let clocks = [before, ClockPair::now()];
        self.lags_ns.sort_unstable();
        let ports = self.connections.iter().map(|connection| connection.port).collect();
        let (windows, recorder) = self.watch.end();
        let Self { rows, duplicated, lags_ns, waited, worked_off, .. } = self;
        Loaded { rows, ports, duplicated, windows, recorder, clocks, lags_ns, passed, waited, worked_off }
    }
}

impl Loaded {
    /// True if a request was lost.
    pub(super) fn lost(&self) -> bool {
        self.rows.iter().any(|row| row.outcome == Outcome::Lost)
    }
}

impl RequestRow {
    /// Instant from which its latency counts.
    pub(super) fn from(&self, load: Load) -> u64 {
        match load {
            Load::Closed => self.sent,
            Load::Open => self.due,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn load_of(connections: usize, arrivals: Arrivals, duration: Duration) -> ServerLoad {
        let (slow, patience) = (Duration::from_secs(1), Patience::default());
        ServerLoad {
            connections,
            classes: 1,
            matrix: 2,
            arrivals,
            duration,
            seed: 1,
            slow,
            patience,
            trace: false,
        }
    }

    /// Answers each request that comes, and does so `times` for each of them.
    fn answer(stream: &mut TcpStream, times: usize) {
        let (mut splitter, mut buffer) = (Splitter::default(), [0; 4_096]);
        stream.set_nodelay(true).expect("it is open");
        stream.read_exact(&mut [0]).expect("its class");
        while let Ok(count) = stream.read(&mut buffer)
            && count > 0
        {
            splitter.push(&buffer[..count], |request| {
                // The client may have gone.
                let _gone = (0..times).try_for_each(|_| stream.write_all(&reply(request)));
            });
        }
    }

    /// Goal: a connection that the server closes loses its requests, those that are due on it later as well, and no other one's.
    /// Method: of two connections the server closes the second, at its end or by a reset, when it has its first request.
    #[test]
    fn a_connection_that_the_server_closes_loses_its_requests() {
        for (arrivals, is_reset) in [
            (Arrivals::Open { period_ns: 5_000_000 }, false),
            (Arrivals::Open { period_ns: 5_000_000 }, true),
            (Arrivals::Closed { think_ns: 5_000_000 }, false),
            (Arrivals::Closed { think_ns: 5_000_000 }, true),
        ] {
            let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = server.local_addr().expect("it is bound");
            let serves = thread::spawn(move || {
                let (mut kept, _) = server.accept().expect("a connection");
                let (mut closed, _) = server.accept().expect("another");
                let answers = thread::spawn(move || answer(&mut kept, 1));
                closed.read_exact(&mut [0; 2]).expect("its class, and the begin of its request");
                // Bytes that have not been read when it is closed make the end a reset.
                let rest = if is_reset { 0 } else { request(2).len() - 1 };
                closed.read_exact(&mut vec![0; rest]).expect("the rest");
                drop(closed);
                answers.join().expect("it answers until the load ends");
            });
            let loaded = run(&load_of(2, arrivals, Duration::from_millis(300)), address).expect("it loads");
            serves.join().expect("it served");
            let of = |connection: usize| loaded.rows.iter().filter(move |row| row.connection == connection);
            assert!(of(1).all(|row| row.outcome == Outcome::Lost), "{arrivals:?}: {:?}", loaded.rows);
            assert!(of(0).all(|row| row.outcome != Outcome::Lost), "{arrivals:?}: {:?}", loaded.rows);
            assert!(of(0).filter(|row| row.outcome == Outcome::Answered).count() > 5, "{:?}", loaded.rows);
            let is_open = arrivals.load() == Load::Open;
            assert_eq!(of(1).count(), if is_open { 30 } else { 1 }, "{arrivals:?}: {:?}", loaded.rows);
        }
    }

    /// Serves one connection: each request takes so long, and the first ones are never answered.
    fn serve_slowly(server: TcpListener, each: Duration, skipped: usize) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a connection");
            let (mut splitter, mut buffer, mut count) = (Splitter::default(), [0; 4_096], 0);
            stream.read_exact(&mut [0]).expect("its class");
            while let Ok(size) = stream.read(&mut buffer)
                && size > 0
            {
                splitter.push(&buffer[..size], |request| {
                    count += 1;
                    if count > skipped {
                        thread::sleep(each);
                        // The client may have gone.
                        let _gone = stream.write_all(&reply(request));
                    }
                });
            }
        })
    }

    fn ends(each: Duration, skipped: usize, patience: Patience) -> (Loaded, [usize; 3]) {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = server.local_addr().expect("it is bound");
        let serves = serve_slowly(server, each, skipped);
        let arrivals = Arrivals::Open { period_ns: 5_000_000 };
        let load = ServerLoad { patience, ..load_of(1, arrivals, Duration::from_millis(200)) };
        let loaded = run(&load, address).expect("it loads");
        serves.join().expect("it served");
        let of = |outcome| loaded.rows.iter().filter(|row| row.outcome == outcome).count();
        let counts = [Outcome::Answered, Outcome::Unfinished, Outcome::Lost].map(of);
        assert_eq!(counts.iter().sum::<usize>(), 40, "{:?}", loaded.rows);
        (loaded, counts)
    }

    /// Goal: what the server still works off when the load ends is unfinished, with its age at that end, and what it never answers is
    /// lost. Method: a server that needs four times as long as it has, one that forgets three requests, and one for which nobody has
    /// the patience.
    #[test]
    fn a_request_that_is_worked_off_late_is_not_lost() {
        let patience = Patience { silence: Duration::from_millis(400), total: Duration::from_secs(10) };
        let (loaded, [_, unfinished, lost]) = ends(Duration::from_millis(20), 0, patience);
        assert!(unfinished > 20 && lost == 0, "{:?}", loaded.rows);
        assert_eq!(loaded.worked_off, unfinished as u64);
        let late = loaded.rows.iter().filter(|row| row.outcome == Outcome::Unfinished);
        let instants: std::collections::BTreeSet<u64> = late.map(|row| row.until).collect();
        assert_eq!(instants.len(), 1, "all end where the load did: {:?}", loaded.rows);
        let (loaded, [_, _, lost]) = ends(Duration::from_micros(10), 3, patience);
        assert_eq!(lost, 3, "{:?}", loaded.rows);
        let hasty = Patience { silence: Duration::from_millis(400), total: Duration::from_millis(500) };
        let (loaded, [_, unfinished, lost]) = ends(Duration::from_millis(50), 0, hasty);
        assert!(unfinished > 20 && lost == 0, "{:?}", loaded.rows);
        assert!(loaded.worked_off < unfinished as u64, "{} were worked off", loaded.worked_off);
    }

    /// Goal: a reply that comes once more is counted, also where it comes in the same bytes, and answers nothing.
    #[test]
    fn a_reply_that_comes_twice_is_counted() {
        for think_ns in [20_000_000, 1_000_000_000] {
            let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = server.local_addr().expect("it is bound");
            let serves = thread::spawn(move || answer(&mut server.accept().expect("a connection").0, 2));
            let arrivals = Arrivals::Closed { think_ns };
            let loaded = run(&load_of(1, arrivals, Duration::from_millis(1_200)), address).expect("it loads");
            serves.join().expect("it served");
            let count = loaded.rows.len() as u64;
            assert!(!loaded.lost(), "{:?}", loaded.rows);
            assert_eq!(loaded.duplicated, [count], "{:?}", loaded.rows);
            assert!(count >= 1, "nothing was asked");
        }
    }

    /// Goal: requests that are due while the client itself stands still until the end stand in the samples. Method: a load whose time
    /// is over before it begins, at a server that never answers.
    #[test]
    fn a_standstill_at_the_end_hides_no_request() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let load = |arrivals| load_of(2, arrivals, Duration::from_millis(10));
        let rows = |load: &ServerLoad| {
            let (mut client, set) =
                open(load, server.local_addr().expect("it is bound")).expect("two connections");
            client.began_ns -= 50_000_000;
            client.end_ns -= 50_000_000;
            let (before, end_ns) = (ClockPair::now(), client.end_ns);
            client.begin();
            client.play(&set);
            (client.finish(before, Outcome::Unfinished).rows, end_ns)
        };
        let (asked, end_ns) = rows(&load(Arrivals::Open { period_ns: 1_000_000 }));
        assert_eq!(asked.len(), 10);
        for row in asked {
            assert_eq!(row.outcome, Outcome::Unfinished);
            assert!(row.due < end_ns && row.sent <= row.until, "{row:?}");
        }
        // A client that thinks after each reply asks no more when the time is over.
        assert_eq!(rows(&load(Arrivals::Closed { think_ns: 0 })).0.len(), 0);
    }
}
