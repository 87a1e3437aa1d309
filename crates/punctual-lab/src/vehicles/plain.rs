//! Async mode over Ethernet: plain sockets, and one receiver that sleeps until a signal, or epoll, tells it of frames.
//!
//! As the original, but for its lost wake-ups: a signal that comes between the last look and the sleep ends the sleep.

use std::os::fd::AsFd;
use std::time::Duration;

use punctual::{Clock, Wake};
use punctual_machine::async_io::{AsyncIo, signals_delivered};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use punctual_machine::packet::{BROADCAST, ETHERTYPE_EXPERIMENTAL, PacketOptions, PacketSocket};
use punctual_machine::scheduling::sleep_precisely;
use punctual_machine::signal::interrupted;

use super::first::Watch;
use super::process::{Needed, Workload, WorkloadEnd};
use super::protocol::{Account, Assignment, BusPlan, Facts, Heard, Part};
use super::publication::Schedule;
use super::value::{Record, Value};
use crate::link::VALUE_SIZE;

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

    fn send(&mut self, bytes: &[u8; VALUE_SIZE]) -> bool {
        let Some(slot) = self.socket.claim(VALUE_SIZE) else { return false };
        slot[..VALUE_SIZE].copy_from_slice(bytes);
        self.socket.commit(BROADCAST);
        self.socket.flush().is_ok()
    }

    fn receive_all(
        &mut self,
        start_ns: u64,
        facts: &mut Facts,
        watch: &mut Watch,
    ) -> Result<Vec<Record>, String> {
        let clock = Clock::get();
        let expected = self.assignment.vehicles * self.assignment.count;
        let last = Schedule::new(&self.assignment, self.assignment.vehicles as u16, 0);
        let patience_ns = last.end_ns(start_ns) + GRACE.as_nanos() as u64;
        let mut records = Vec::with_capacity(expected);
        let mut sleep = Sleep::of(&self.socket, self.assignment.wake.parse()?)?;
        let before = signals_delivered();
        watch.begin();
        // What came before the signal was asked for raised none.
        self.empty(clock, &mut records, watch);
        while records.len() < expected && monotonic_ns() < patience_ns && !interrupted() {
            sleep.until_news()?;
            self.empty(clock, &mut records, watch);
        }
        facts.signals = signals_delivered() - before;
        Ok(records)
    }

    fn empty(&mut self, clock: &Clock, records: &mut Vec<Record>, watch: &mut Watch) {
        while let Some(frame) = self.socket.recv() {
            let received = clock.now();
            let value = frame.bytes.get(..VALUE_SIZE).and_then(Value::parse);
            self.socket.release();
            match value.filter(|_| records.len() < records.capacity()) {
                Some(value) => {
                    self.note_heard(value.origin.vehicle);
                    records.push(Record::new(value, 0, received, None));
                    watch.note(value.origin.vehicle);
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

impl Workload for Plain {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadEnd, String> {
        sleep_precisely();
        let needed = Needed::now();
        let (mut facts, mut records) = (Facts::default(), Vec::new());
        let mut watch = Watch::new(0, false);
        match self.assignment.part {
            Part::Vehicle(vehicle) => {
                let schedule = Schedule::new(&self.assignment, vehicle, 0);
                facts = schedule.send_all(start_ns, |value| self.send(value));
                self.sent = facts.sent;
            }
            Part::Roadside(_) | Part::Listener => {
                records = self.receive_all(start_ns, &mut facts, &mut watch)?;
            }
        }
        facts.mismatched = self.strange;
        needed.note(&mut facts);
        Ok(WorkloadEnd { facts, records, skipped: Vec::new(), beginnings: vec![watch.finish()] })
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
            unicast: 0,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).to_vec(),
            heard: self.heard.clone(),
        }
    }
}

/// How the receiver passes the time without frames.
enum Sleep {
    Signal(AsyncIo, EventFd),
    Epoll(EpollSet),
    Never,
}

impl Sleep {
    fn of(socket: &PacketSocket, wake: Wake) -> Result<Self, String> {
        let made = match wake {
            Wake::Signal => EventFd::new().and_then(|nobody_rings| {
                let mut signals = AsyncIo::default();
                signals.claim(&[socket.as_fd()])?;
                Ok(Self::Signal(signals, nobody_rings))
            }),
            Wake::Spin => Ok(Self::Never),
            _ => EpollSet::new().and_then(|set| {
                set.add(socket.as_fd())?;
                Ok(Self::Epoll(set))
            }),
        };
        made.map_err(|error| error.to_string())
    }

    fn until_news(&mut self) -> Result<(), String> {
        match self {
            Self::Signal(signals, event) => {
                signals.sleep(event.as_fd(), Some(LOOK)).map_err(|error| error.to_string())?;
            }
            Self::Epoll(set) => {
                set.wait(Some(LOOK));
            }
            Self::Never => std::hint::spin_loop(),
        }
        Ok(())
    }
}
