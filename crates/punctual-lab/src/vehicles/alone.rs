//! Engine mode: an engine with nothing around it sends, or polls and receives.

use std::time::Duration;

use punctual::engine::shared::Joined;
use punctual::engine::{Engine, Event, Flow};
use punctual::{Clock, NodeId, NodeOptions};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::sleep_precisely;
use punctual_machine::signal::interrupted;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::{Address, Header, Kind, Port, Target};

use super::first::Watch;
use super::process::{Needed, Workload, WorkloadEnd};
use super::protocol::{Account, Assignment, Facts, Heard, Part};
use super::publication::Schedule;
use super::value::{Record, Value};
use crate::link::VALUE_SIZE;

/// How long after the last message was due others are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// Events of one poll.
const BATCH: usize = 64;
/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;

/// An engine and what it is to do.
pub(super) struct Alone {
    engine: Engine,
    joined: Joined,
    node: NodeId,
    assignment: Assignment,
    heard: Vec<Heard>,
    counters: Counters,
}

/// What becomes of frames where nobody else counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    sent: u64,
    arrived: u64,
    delivered: u64,
    mismatched: u64,
    troubles: u64,
}

impl Alone {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let name = assignment.part.name();
        let opened = NodeOptions::new(&name).open_engine(&assignment.bus.bus());
        let (engine, joined) = opened.map_err(|error| error.to_string())?;
        Ok(Self {
            engine,
            joined,
            node: NodeId::named(&name),
            assignment: assignment.clone(),
            heard: Vec::new(),
            counters: Counters::default(),
        })
    }

    fn send(&mut self, value: &[u8; VALUE_SIZE]) -> bool {
        let transmit = &mut *self.engine.transmit;
        let Ok(sequence) = transmit.claim(None, HEADER_SIZE + VALUE_SIZE) else { return false };
        let header = Header {
            kind: Kind::Data,
            incarnation: self.joined.incarnation,
            source: Address { node: self.node, port: Port::from(1) },
            target: Target::everyone_at(Port::from(1)),
            sequence,
            payload_size: VALUE_SIZE as u32,
            stamped: false,
            sealed: false,
        };
        let (head, rest) = transmit.claimed().split_first_chunk_mut().expect("room was claimed for it");
        header.write(head);
        rest[..VALUE_SIZE].copy_from_slice(value);
        transmit.commit();
        transmit.flush();
        self.counters.sent += 1;
        true
    }

    /// Polls until everything came, or will not.
    fn receive_all(&mut self, start_ns: u64, watch: &mut Watch) -> Vec<Record> {
        let clock = Clock::get();
        let expected = self.assignment.vehicles * self.assignment.count;
        let mut records = Vec::with_capacity(expected);
        let last = Schedule::new(&self.assignment, self.assignment.vehicles as u16, 0);
        let patience_ns = last.end_ns(start_ns) + GRACE.as_nanos() as u64;
        let mut polls = 0_u32;
        watch.begin();
        while records.len() < expected {
            self.poll(clock, &mut records, watch);
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_LOOK) {
                self.engine.receive.housekeep(clock.now());
                if monotonic_ns() > patience_ns || interrupted() {
                    break;
                }
            }
        }
        records
    }

    fn poll(&mut self, clock: &Clock, records: &mut Vec<Record>, watch: &mut Watch) {
        let (counters, heard) = (&mut self.counters, &mut self.heard);
        self.engine.receive.poll(BATCH, &mut |event| {
            match event {
                Event::Frame(arrival) => {
                    let received = clock.now();
                    let mut bytes = [0; VALUE_SIZE];
                    let size = arrival.payload.copy_to(&mut bytes);
                    if arrival.header.kind != Kind::Data {
                        return Flow::Continue;
                    }
                    counters.arrived += 1;
                    note_heard(heard, arrival.header.source.node);
                    let value = Value::parse(&bytes[..size]).filter(|_| arrival.payload.is_intact());
                    match value.filter(|_| records.len() < records.capacity()) {
                        Some(value) => {
                            counters.delivered += 1;
                            records.push(Record::new(value, 0, received, None));
                            watch.note(value.origin.vehicle);
                        }
                        None => counters.mismatched += 1,
                    }
                }
                Event::Trouble(_) => counters.troubles += 1,
                Event::Joined { .. } | Event::Progressed { .. } | Event::Left { .. } => {}
            }
            Flow::Continue
        });
    }
}

fn note_heard(heard: &mut Vec<Heard>, node: NodeId) {
    match heard.iter_mut().find(|heard| heard.node == node.get()) {
        Some(heard) => heard.arrived += 1,
        None => heard.push(Heard { node: node.get(), arrived: 1, lost: 0 }),
    }
}

impl Workload for Alone {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadEnd, String> {
        sleep_precisely();
        let (needed, mut facts) = (Needed::now(), Facts::default());
        let mut watch = Watch::new(0, false);
        let records = match self.assignment.part {
            Part::Vehicle(vehicle) => {
                let schedule = Schedule::new(&self.assignment, vehicle, 0);
                facts = schedule.send_all(start_ns, |value| self.send(value));
                Vec::new()
            }
            Part::Roadside(_) | Part::Listener => self.receive_all(start_ns, &mut watch),
        };
        facts.mismatched = self.counters.mismatched;
        needed.note(&mut facts);
        Ok(WorkloadEnd { facts, records, skipped: Vec::new(), beginnings: vec![watch.finish()] })
    }

    fn account(&mut self) -> Account {
        let Counters { sent, arrived, delivered, mismatched, troubles } = self.counters;
        let counters = [
            ("sent", sent),
            ("arrived", arrived),
            ("copies", arrived),
            ("delivered", delivered),
            ("bad_frames", mismatched),
            ("overruns", troubles),
        ];
        Account {
            node: self.node.get(),
            broadcast: self.engine.transmit.sent_to(None),
            unicast: 0,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).to_vec(),
            heard: self.heard.clone(),
        }
    }
}
