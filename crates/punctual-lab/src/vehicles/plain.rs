//! Async mode: plain Ethernet sockets, and one receiver that sleeps until a signal tells it of frames.
//!
//! As the original, but for its lost wake-ups: the signal stays queued until it is taken, and the socket is emptied after
//! each.

use std::os::fd::AsFd;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::news_signal::NewsSignal;
use punctual_machine::packet::{BROADCAST, ETHERTYPE_EXPERIMENTAL, PacketOptions, PacketSocket};
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_machine::signal::interrupted;

use super::option::VALUE_SIZE;
use super::process::{Needed, Travelling};
use super::protocol::{Account, Assignment, BusPlan, Facts, Heard, Part};
use super::value::{Origin, Record, Value};

/// How long after the last message was due others are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// How often a receiver without news looks at the clock.
const LOOK: Duration = Duration::from_millis(100);

/// A plain socket and what it is for.
pub(super) struct Plain {
    socket: PacketSocket,
    assignment: Assignment,
    sent: u64,
    heard: Vec<Heard>,
    strange: u64,
}

impl Plain {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let BusPlan::Packet { interface, .. } = &assignment.bus else {
            return Err("plain sockets are of Ethernet".to_owned());
        };
        let socket = PacketSocket::open(interface, ETHERTYPE_EXPERIMENTAL, &PacketOptions::default());
        let socket = socket.map_err(|error| error.to_string())?;
        Ok(Self { socket, assignment: assignment.clone(), sent: 0, heard: Vec::new(), strange: 0 })
    }

    fn send_all(&mut self, vehicle: u16, start_ns: u64) -> Facts {
        let count = u32::try_from(self.assignment.count).unwrap_or(u32::MAX);
        let (clock, mut facts, mut number) = (Clock::get(), Facts::default(), 0);
        while number < count && !interrupted() {
            let mut bytes =
                Value { origin: Origin { vehicle, component: 0, number }, ..Value::default() }.bytes();
            let phase_ns = u64::from(vehicle) * self.assignment.phase_ns;
            let due_ns = start_ns + phase_ns + u64::from(number) * self.assignment.period_ns;
            sleep_until(due_ns);
            if monotonic_ns() < due_ns {
                // A signal ended the sleep.
                continue;
            }
            let late = clock.ticks(Duration::from_nanos(monotonic_ns().saturating_sub(due_ns)));
            let sent = clock.now();
            Value::stamp(&mut bytes, Ticks(sent.0.saturating_sub(late.0)), sent);
            let taken = self.send(&bytes);
            *if taken { &mut facts.sent } else { &mut facts.refused } += 1;
            number += 1;
        }
        self.sent = facts.sent;
        facts
    }

    fn send(&mut self, bytes: &[u8; VALUE_SIZE]) -> bool {
        let Some(slot) = self.socket.claim(VALUE_SIZE) else { return false };
        slot[..VALUE_SIZE].copy_from_slice(bytes);
        self.socket.commit(BROADCAST);
        self.socket.flush().is_ok()
    }

    fn receive_all(&mut self, start_ns: u64, facts: &mut Facts) -> Result<Vec<Record>, String> {
        let clock = Clock::get();
        let expected = self.assignment.vehicles * self.assignment.count;
        let lasts_ns = self.assignment.count as u64 * self.assignment.period_ns;
        let phases_ns = self.assignment.vehicles as u64 * self.assignment.phase_ns;
        let patience_ns = start_ns + lasts_ns + phases_ns + GRACE.as_nanos() as u64;
        let mut records = Vec::with_capacity(expected);
        let mut news = NewsSignal::of(self.socket.as_fd()).map_err(|error| error.to_string())?;
        // What came before the signal was asked for raised none.
        self.empty(clock, &mut records);
        while records.len() < expected && monotonic_ns() < patience_ns && !interrupted() {
            news.wait(LOOK);
            self.empty(clock, &mut records);
        }
        facts.signals = news.taken();
        Ok(records)
    }

    fn empty(&mut self, clock: &Clock, records: &mut Vec<Record>) {
        while let Some(frame) = self.socket.recv() {
            let received = clock.now();
            let value = frame.bytes.get(..VALUE_SIZE).and_then(Value::parse);
            self.socket.release();
            match value.filter(|_| records.len() < records.capacity()) {
                Some(value) => {
                    self.note_heard(value.origin.vehicle);
                    records.push(Record::new(value, 0, received, None));
                }
                None => self.strange += 1,
            }
        }
    }

    fn note_heard(&mut self, vehicle: u16) {
        let node = u64::from(vehicle) + 1;
        match self.heard.iter_mut().find(|heard| heard.node == node) {
            Some(heard) => heard.arrived += 1,
            None => self.heard.push(Heard { node, arrived: 1, lost: 0 }),
        }
    }
}

impl Travelling for Plain {
    fn travel(&mut self, start_ns: u64) -> Result<(Facts, Vec<Record>), String> {
        sleep_precisely();
        let needed = Needed::now();
        let (mut facts, mut records) = (Facts::default(), Vec::new());
        match self.assignment.part {
            Part::Vehicle(vehicle) => facts = self.send_all(vehicle, start_ns),
            Part::Roadside(_) | Part::Listener => records = self.receive_all(start_ns, &mut facts)?,
        }
        facts.mismatched = self.strange;
        needed.note(&mut facts);
        Ok((facts, records))
    }

    fn account(&mut self) -> Account {
        let arrived = self.heard.iter().map(|heard| heard.arrived).sum();
        let dropped = self.socket.drops().unwrap_or(0);
        let counters =
            [("sent", self.sent), ("copies", arrived), ("delivered", arrived), ("buffer_drops", dropped)];
        let node = match self.assignment.part {
            Part::Vehicle(number) | Part::Roadside(number) => u64::from(number) + 1,
            Part::Listener => 0,
        };
        Account {
            node,
            broadcast: self.sent,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).to_vec(),
            heard: self.heard.clone(),
        }
    }
}
