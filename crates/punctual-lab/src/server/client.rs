//! The load: many connections from one thread, each asking again after its reply, or requests at their instants whatever is
//! outstanding. It notes how late it was itself.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use punctual_machine::clock::monotonic_ns;
use punctual_machine::epoll::{EpollSet, Reports};
use punctual_machine::scheduling::sleep_precisely;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::work::{Splitter, reply, request};
use crate::sample::{Outcome, Samples};

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Each connection thinks so long between reply and request.
    Closed {
        /// So long.
        think_ns: u64,
    },
    /// One each period, whatever is outstanding.
    Open {
        /// The period.
        period_ns: u64,
    },
    /// At random instants (Poisson), so far apart in the mean.
    Random {
        /// The mean.
        period_ns: u64,
    },
}

/// One trial's load.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerLoad {
    pub(super) connections: usize,
    pub(super) classes: usize,
    pub(super) matrix: usize,
    pub(super) arrivals: Arrivals,
    pub(super) duration: Duration,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// By class.
    pub(super) samples: Vec<Samples>,
    /// How late requests left after their instants, nanoseconds, sorted.
    pub(super) lags_ns: Vec<u64>,
}

struct Connection {
    stream: TcpStream,
    class: usize,
    /// When those were due and sent that are not answered.
    outstanding: VecDeque<(u64, u64)>,
    /// Bytes that did not fit yet.
    unsent: Vec<u8>,
    replies: Splitter,
}

struct LoadClient<'l> {
    load: &'l ServerLoad,
    request: Vec<u8>,
    reply: Vec<u8>,
    connections: Vec<Connection>,
    /// Instants to come, and whose.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    random: u64,
    began_ns: u64,
    end_ns: u64,
    loaded: Loaded,
}

/// Loads the server for so long.
pub(super) fn run(load: &ServerLoad, server: SocketAddr) -> io::Result<Loaded> {
    sleep_precisely();
    let set = EpollSet::new().map_err(io::Error::other)?;
    let connections = (0..load.connections).map(|number| connect(server, number % load.classes));
    let connections: Vec<Connection> = connections.collect::<io::Result<_>>()?;
    for (number, connection) in connections.iter().enumerate() {
        set.add_numbered(connection.stream.as_fd(), number as u64).map_err(io::Error::other)?;
    }
    let request = request(load.matrix);
    let began_ns = monotonic_ns();
    let mut client = LoadClient {
        load,
        reply: reply(&request),
        request,
        connections,
        due: BinaryHeap::new(),
        random: load.seed | 1,
        began_ns,
        end_ns: began_ns + load.duration.as_nanos() as u64,
        loaded: Loaded { samples: vec![Samples::default(); load.classes], lags_ns: Vec::new() },
    };
    client.begin();
    client.play(&set)?;
    Ok(client.finish())
}

fn connect(server: SocketAddr, class: usize) -> io::Result<Connection> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.write_all(&[class as u8])?;
    stream.set_nonblocking(true)?;
    let (outstanding, unsent, replies) = (VecDeque::new(), Vec::new(), Splitter::default());
    Ok(Connection { stream, class, outstanding, unsent, replies })
}

impl LoadClient<'_> {
    /// Between 0 and 1 (xorshift64*, Vigna 2016).
    fn chance(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn begin(&mut self) {
        match self.load.arrivals {
            Arrivals::Closed { think_ns } => {
                for number in 0..self.connections.len() {
                    // All at once would be one long queue, and then another.
                    let first = self.began_ns + (self.chance() * think_ns as f64) as u64;
                    self.due.push(Reverse((first, number)));
                }
            }
            Arrivals::Open { .. } | Arrivals::Random { .. } => self.due.push(Reverse((self.began_ns, 0))),
        }
    }

    /// The instant of the next request of an open load, after this one.
    fn next_instant(&mut self, after: u64) -> Option<u64> {
        match self.load.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Open { period_ns } => Some(after + period_ns),
            Arrivals::Random { period_ns } => {
                let chance = (1.0 - self.chance()).max(f64::MIN_POSITIVE);
                Some(after + (-chance.ln() * period_ns as f64) as u64)
            }
        }
    }

    fn play(&mut self, set: &EpollSet) -> io::Result<()> {
        let mut reports = Reports::default();
        loop {
            let now = monotonic_ns();
            if now >= self.end_ns || interrupted() {
                return Ok(());
            }
            self.send_due(now)?;
            let next = self.due.peek().map_or(self.end_ns, |Reverse((due, _))| (*due).min(self.end_ns));
            set.wait_for(&mut reports, Some(Duration::from_nanos(next.saturating_sub(monotonic_ns()))));
            for readiness in reports.iter() {
                let number = readiness.number as usize;
                if readiness.is_writable {
                    self.flush(number)?;
                }
                if readiness.is_readable {
                    self.receive(number)?;
                }
            }
        }
    }

    fn send_due(&mut self, now: u64) -> io::Result<()> {
        while let Some(&Reverse((due, number))) = self.due.peek().filter(|next| next.0.0 <= now) {
            self.due.pop();
            let next = self.next_instant(due);
            let whose = (number + 1) % self.connections.len();
            self.due.extend(next.map(|next| Reverse((next, whose))));
            let sent = monotonic_ns();
            self.loaded.lags_ns.push(sent.saturating_sub(due));
            let connection = &mut self.connections[number];
            connection.outstanding.push_back((due, sent));
            connection.unsent.extend_from_slice(&self.request);
            self.flush(number)?;
        }
        Ok(())
    }

    fn flush(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        while !connection.unsent.is_empty() {
            match connection.stream.write(&connection.unsent) {
                Ok(count) => drop(connection.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, number: usize) -> io::Result<()> {
        let mut buffer = [0; 16_384];
        loop {
            let connection = &mut self.connections[number];
            match connection.stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::other("the server closed a connection")),
                Ok(count) => {
                    let (mut right, expected) = (Vec::new(), &self.reply);
                    connection.replies.push(&buffer[..count], |reply| right.push(reply == expected));
                    right.into_iter().for_each(|is_right| self.answered(number, is_right));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn answered(&mut self, number: usize, is_right: bool) {
        let now = monotonic_ns();
        let Some((due, sent)) = self.connections[number].outstanding.pop_front() else { return };
        self.note(number, due, sent, now, if is_right { Outcome::Answered } else { Outcome::Mismatched });
        if let Arrivals::Closed { think_ns } = self.load.arrivals {
            self.due.push(Reverse((now + think_ns, number)));
        }
    }

    fn note(&mut self, number: usize, due: u64, sent: u64, until: u64, outcome: Outcome) {
        let from = if matches!(self.load.arrivals, Arrivals::Closed { .. }) { sent } else { due };
        let samples = &mut self.loaded.samples[self.connections[number].class];
        let index = samples.len() as u64;
        let since = |instant: u64| instant.saturating_sub(self.began_ns);
        samples.push(index, since(due), since(sent), until.saturating_sub(from), outcome);
        samples.sender.push(number as u64);
    }

    /// What is not answered is at least as late as it is old.
    fn finish(mut self) -> Loaded {
        for number in 0..self.connections.len() {
            while let Some((due, sent)) = self.connections[number].outstanding.pop_front() {
                self.note(number, due, sent, self.end_ns, Outcome::Unfinished);
            }
        }
        self.loaded.lags_ns.sort_unstable();
        self.loaded
    }
}
