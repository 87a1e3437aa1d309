//! An endpoint without a node around it, an engine or a plain socket: sends, or receives what all others send, and counts for itself.
//!
//! Async mode over Ethernet is plain sockets, and one receiver that sleeps until a signal, or epoll, tells it of frames: as the
//! original, but for its lost wake-ups. A signal that comes between the last look and the sleep ends the sleep.

use std::time::Duration;

use punctual::{Clock, Wake};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::packet::ETHERTYPE_EXPERIMENTAL;
use punctual_machine::scheduling::sleep_precisely;
use punctual_machine::signal::interrupted;
use punctual_proto::Target;

use super::first::Watch;
use super::option::Mode;
use super::process::Workload;
use super::protocol::{Account, Assignment, Facts, Part, WorkloadResult};
use super::publication::Schedule;
use super::value::{Record, Value};
use crate::endpoint::{BusPlan, Endpoint, PORT, PacketEndpoint, VALUE_SIZE, open_alone};

/// Time that others are waited for after the last message was due.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Interval at which a receiver without news checks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// Totals of values where nobody else counts.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    sent: u64,
    delivered: u64,
    mismatched: u64,
}

/// An end that values are sent and received by, and what it is to do.
pub(super) struct Alone {
    endpoint: Box<dyn Endpoint>,
    assignment: Assignment,
    totals: Totals,
    /// The values that were received.
    records: Vec<Record>,
}

impl Alone {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let endpoint: Box<dyn Endpoint> = match (&assignment.bus, assignment.mode) {
            (BusPlan::Ethernet { interface, .. }, Mode::Async) => {
                let receives = !matches!(assignment.part, Part::Vehicle(_));
                let wake = if receives { assignment.wake } else { Wake::Spin };
                let opened = PacketEndpoint::open(interface, ETHERTYPE_EXPERIMENTAL, VALUE_SIZE, wake);
                Box::new(opened.map_err(|error| error.to_string())?)
            }
            _ => {
                let (bus, name) = (assignment.bus.stamped_bus(), assignment.part.name());
                open_alone(&bus, &name, Target::everyone_at(PORT))?
            }
        };
        let expected = if assignment.part == Part::Listener { assignment.capacity() } else { 0 };
        let records = Record::room_for(expected, 0);
        Ok(Self { endpoint, assignment: assignment.clone(), totals: Totals::default(), records })
    }

    /// Receives until everything came, or will not.
    fn receive_all(&mut self, start_ns: u64, watch: &mut Watch) {
        let (expected, mut buffer) = (self.assignment.capacity(), [0; VALUE_SIZE]);
        let last = Schedule::new(&self.assignment, self.assignment.vehicles as u16, 0);
        let patience_ns = last.end_ns(start_ns) + GRACE.as_nanos() as u64;
        let clock = Clock::get();
        let look = clock.ticks(LOOK);
        watch.begin();
        while self.records.len() < expected && !interrupted() {
            let Some(got) = self.endpoint.receive(&mut buffer, clock.now().plus(look)) else {
                if monotonic_ns() < patience_ns { continue } else { break }
            };
            let received = clock.now_after_loads();
            if let Some(value) = Value::parse(&buffer[..got.size]) {
                self.totals.delivered += 1;
                watch.note(value.origin.vehicle);
                self.records.push(Record::new(value, 0, received, None));
            } else {
                self.totals.mismatched += 1;
            }
        }
    }
}

impl Workload for Alone {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadResult, String> {
        sleep_precisely();
        let (before, signals_before) = (Facts::now(), signals_delivered());
        let (mut sent, mut signals) = ((0, 0), 0);
        let mut watch = Watch::new(0, false);
        if let Part::Vehicle(vehicle) = self.assignment.part {
            let (clock, schedule) = (Clock::get(), Schedule::new(&self.assignment, vehicle, 0));
            sent = schedule.send_all(start_ns, |value| self.endpoint.send(value, clock.now()));
            self.totals.sent = sent.0;
        } else {
            self.receive_all(start_ns, &mut watch);
            signals = signals_delivered() - signals_before;
        }
        let mismatched = self.totals.mismatched;
        let facts = Facts { sent: sent.0, refused: sent.1, mismatched, signals, ..Facts::since(&before) };
        let (records, beginnings) = (std::mem::take(&mut self.records), vec![watch.finish()]);
        // Its messages carry no stamps, so no stage is known that windows could explain.
        Ok(WorkloadResult { facts, records, beginnings, ..WorkloadResult::default() })
    }

    fn account(&mut self) -> Account {
        let (Totals { sent, delivered, mismatched }, counts) = (self.totals, self.endpoint.counts());
        let counters = [("sent", sent), ("copies", delivered), ("delivered", delivered)];
        let counters = counters.into_iter().chain([("bad_frames", mismatched), counts.lost]);
        Account {
            broadcast: counts.broadcast.unwrap_or(sent),
            unicast: 0,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
            arrived: delivered,
            lost: 0,
        }
    }
}
