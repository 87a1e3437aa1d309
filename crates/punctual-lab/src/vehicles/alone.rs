//! What has no node around it, an engine or a plain socket: sends, or receives what all others send, and counts for itself.

use std::time::Duration;

use punctual::engine::{Engine, Event, Flow, Joined};
use punctual::publication::OfferError;
use punctual::{Clock, Node, NodeId, NodeOptions, Publication, Subscription, Ticks};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::sleep_precisely;
use punctual_machine::signal::interrupted;
use punctual_proto::{Kind, Port, Target};

use super::first::Watch;
use super::process::{Needed, Workload, WorkloadEnd};
use super::protocol::{Account, Assignment, Facts, Heard, Part};
use super::publication::Schedule;
use super::value::{Record, Value};
use crate::endpoint::{VALUE_SIZE, open_streams, send_frame};

/// How long after the last message was due others are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// Events of one poll.
const BATCH: usize = 64;
/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;

/// A message as it came: its sender's node, the value if it is one, and when.
pub(super) struct Taken {
    pub(super) node: u64,
    pub(super) value: Option<Value>,
    pub(super) received: Ticks,
}

/// What values are sent and received by, without a node.
pub(super) trait Mechanism {
    /// Its own node's id.
    fn node(&self) -> u64;

    /// Sends to everybody, or says that there is no room.
    fn send(&mut self, value: &[u8; VALUE_SIZE]) -> bool;

    /// Takes what there is; between two calls somebody looks at the clock.
    fn take(&mut self, taken: &mut dyn FnMut(Taken));

    /// Waits for more.
    fn rest(&mut self) -> Result<(), String>;

    /// Frames sent to everybody, of so many values; and counters beside those that everything has.
    fn counters(&mut self, totals: &Totals) -> (u64, Vec<(&'static str, u64)>);
}

/// What becomes of frames where nobody else counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) sent: u64,
    pub(super) delivered: u64,
    pub(super) mismatched: u64,
}

/// A mechanism and what it is to do.
pub(super) struct Alone<M> {
    mechanism: M,
    assignment: Assignment,
    heard: Vec<Heard>,
    totals: Totals,
}

impl<M: Mechanism> Alone<M> {
    pub(super) fn new(mechanism: M, assignment: &Assignment) -> Self {
        Self { mechanism, assignment: assignment.clone(), heard: Vec::new(), totals: Totals::default() }
    }

    /// Receives until everything came, or will not.
    fn receive_all(&mut self, start_ns: u64, watch: &mut Watch) -> Result<Vec<Record>, String> {
        let expected = self.assignment.vehicles * self.assignment.count;
        let last = Schedule::new(&self.assignment, self.assignment.vehicles as u16, 0);
        let patience_ns = last.end_ns(start_ns) + GRACE.as_nanos() as u64;
        let mut records = Vec::with_capacity(expected);
        watch.begin();
        // What came before news were asked for raised none.
        self.take(&mut records, watch);
        while records.len() < expected && monotonic_ns() < patience_ns && !interrupted() {
            self.mechanism.rest()?;
            self.take(&mut records, watch);
        }
        Ok(records)
    }

    fn take(&mut self, records: &mut Vec<Record>, watch: &mut Watch) {
        let (heard, totals) = (&mut self.heard, &mut self.totals);
        self.mechanism.take(&mut |Taken { node, value, received }| match value
            .filter(|_| records.len() < records.capacity())
        {
            Some(value) => {
                totals.delivered += 1;
                match heard.iter_mut().find(|heard| heard.node == node) {
                    Some(heard) => heard.arrived += 1,
                    None => heard.push(Heard { node, arrived: 1, lost: 0 }),
                }
                watch.note(value.origin.vehicle);
                records.push(Record::new(value, 0, received, None));
            }
            None => totals.mismatched += 1,
        });
    }
}

impl<M: Mechanism> Workload for Alone<M> {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadEnd, String> {
        sleep_precisely();
        let (needed, signals) = (Needed::now(), signals_delivered());
        let (mut facts, mut records) = (Facts::default(), Vec::new());
        let mut watch = Watch::new(0, false);
        if let Part::Vehicle(vehicle) = self.assignment.part {
            let schedule = Schedule::new(&self.assignment, vehicle, 0);
            facts = schedule.send_all(start_ns, |value| self.mechanism.send(value));
            self.totals.sent = facts.sent;
        } else {
            records = self.receive_all(start_ns, &mut watch)?;
            facts.signals = signals_delivered() - signals;
        }
        facts.mismatched = self.totals.mismatched;
        needed.note(&mut facts);
        let (skipped, beginnings) = (Vec::new(), vec![watch.finish()]);
        // Its messages carry no stamps, so no stage is known that windows could explain.
        Ok(WorkloadEnd { facts, records, skipped, beginnings, windows: Vec::new() })
    }

    fn account(&mut self) -> Account {
        let Totals { sent, delivered, .. } = self.totals;
        let (broadcast, more) = self.mechanism.counters(&self.totals);
        let counters = [("sent", sent), ("delivered", delivered)].into_iter().chain(more);
        Account {
            node: self.mechanism.node(),
            broadcast,
            unicast: 0,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
            heard: self.heard.clone(),
        }
    }
}

/// An engine with nothing around it, polled.
pub(super) struct AloneEngine {
    engine: Engine,
    joined: Joined,
    node: NodeId,
    troubles: u64,
}

impl AloneEngine {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let name = assignment.part.name();
        let opened = NodeOptions::new(&name).open_engine(&assignment.bus.stamped_bus());
        let (engine, joined) = opened.map_err(|error| error.to_string())?;
        Ok(Self { engine, joined, node: NodeId::named(&name), troubles: 0 })
    }
}

impl Mechanism for AloneEngine {
    fn node(&self) -> u64 {
        self.node.get()
    }

    fn send(&mut self, value: &[u8; VALUE_SIZE]) -> bool {
        let everybody = Target::everyone_at(Port::from(1));
        send_frame(&mut self.engine, &self.joined, self.node, everybody, value)
    }

    fn take(&mut self, taken: &mut dyn FnMut(Taken)) {
        let (clock, troubles) = (Clock::get(), &mut self.troubles);
        for _ in 0..POLLS_PER_LOOK {
            self.engine.receive.poll(BATCH, &mut |event| {
                match event {
                    Event::Frame(arrival) => {
                        let received = clock.now();
                        if arrival.header.kind == Kind::Data {
                            let value =
                                Value::parse(&arrival.payload[..arrival.payload.len().min(VALUE_SIZE)]);
                            taken(Taken { node: arrival.header.source.node.get(), value, received });
                        }
                    }
                    Event::Trouble(_) => *troubles += 1,
                    Event::Joined { .. }
                    | Event::Progressed { .. }
                    | Event::Left { .. }
                    | Event::Noticed { .. } => {}
                }
                Flow::Continue
            });
        }
    }

    fn rest(&mut self) -> Result<(), String> {
        self.engine.receive.housekeep(Clock::get().now());
        Ok(())
    }

    fn counters(&mut self, totals: &Totals) -> (u64, Vec<(&'static str, u64)>) {
        let arrived = totals.delivered + totals.mismatched;
        let counters = vec![
            ("arrived", arrived),
            ("copies", arrived),
            ("bad_frames", totals.mismatched),
            ("overruns", self.troubles),
        ];
        (self.engine.transmit.sent_to(None), counters)
    }
}

/// In memory, which has no engine: a publication and a subscription, polled.
pub(super) struct AloneStreams {
    node: Node,
    publication: Publication,
    subscription: Subscription,
}

impl AloneStreams {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let (bus, everybody) = (assignment.bus.stamped_bus(), Target::everyone_at(Port::from(1)));
        let (node, publication, subscription) = open_streams(&bus, &assignment.part.name(), everybody)?;
        Ok(Self { node, publication, subscription })
    }
}

impl Mechanism for AloneStreams {
    fn node(&self) -> u64 {
        self.node.id().get()
    }

    fn send(&mut self, value: &[u8; VALUE_SIZE]) -> bool {
        // Where nobody is, nobody misses it.
        matches!(self.publication.offer(value), Ok(()) | Err(OfferError::NotConnected))
    }

    fn take(&mut self, taken: &mut dyn FnMut(Taken)) {
        let clock = Clock::get();
        for _ in 0..POLLS_PER_LOOK {
            self.subscription.poll(BATCH, |message| {
                let received = clock.now();
                let mut bytes = [0; VALUE_SIZE];
                if let Ok(size) = message.copy_to(&mut bytes) {
                    let value = Value::parse(&bytes[..size]);
                    taken(Taken { node: message.source.node.get(), value, received });
                }
            });
        }
    }

    fn rest(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn counters(&mut self, totals: &Totals) -> (u64, Vec<(&'static str, u64)>) {
        let arrived = totals.delivered + totals.mismatched;
        let lost = self.subscription.accounts().map(|account| account.lost).sum();
        let counters = vec![
            ("arrived", arrived),
            ("copies", arrived),
            ("bad_frames", totals.mismatched),
            ("lost_overrun", lost),
        ];
        (self.node.sent_to(None), counters)
    }
}
