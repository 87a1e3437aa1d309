//! The components of a vehicle, or of a roadside process, as threads over one node.
//!
//! ```text
//! application   publisher thread: sleeps until due, sends          subscriber thread: receives, then probe
//! callback      one thread: receives until due, each message to the callback (probe); when due sends, its own message
//!               to the callback first
//! ```

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual::{Clock, Communicator, CommunicatorOptions, Message, Node, Port, Target, Ticks, Wake};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_machine::signal::interrupted;

use super::option::{Mode, VALUE_SIZE};
use super::process::{Needed, Travelling, account_of};
use super::protocol::{Account, Assignment, Facts, Part};
use super::publication::{Publication, Schedule};
use super::value::{Origin, Record, STAGES_KEPT, UNKNOWN, Value};

/// Ports of components 0, 1, …: where they receive, and from where publisher threads send.
const SUBSCRIBERS_AT: u16 = 1_000;
const PUBLISHERS_AT: u16 = 2_000;
/// Where vehicles hear the roadside.
const BEACONS_AT: u16 = 3_000;
/// Between two beacons of a roadside process.
const BEACON_EVERY: Duration = Duration::from_secs(1);
/// How often a receiver looks whether it is over: not more often than the node does its housekeeping anyway.
const LOOK: Duration = Duration::from_millis(100);
/// How long after the last message was due others are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// Own messages and those of others that one call of the callback loop gets past.
const OWN_TRIES: usize = 64;

/// What the threads of a process share.
#[derive(Debug, Default)]
struct Shared {
    start: Mutex<Option<u64>>,
    started: Condvar,
    /// Values that were received whole.
    received: Counter,
    /// Components that have sent all.
    finished: Counter,
    sent: Counter,
    refused: Counter,
    mismatched: Counter,
    beacons: Counter,
    /// Records are to be handed over.
    hand_over: Flag,
    /// Threads are to end.
    stop: Flag,
}

impl Shared {
    /// Waits at the barrier; `None` if there is to be no start.
    fn wait_for_start(&self) -> Option<u64> {
        let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if start.is_some() || self.stop.is_raised() {
                return *start;
            }
            start = self.started.wait(start).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn start(&self, at_ns: u64) {
        *self.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(at_ns);
        self.started.notify_all();
    }

    fn end(&self) {
        self.stop.raise();
        let _start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        self.started.notify_all();
    }
}

/// What a receiving thread notes.
struct Notes {
    shared: Arc<Shared>,
    component: u16,
    records: Vec<Record>,
    keeps: bool,
}

impl Notes {
    fn new(shared: &Arc<Shared>, component: u16, capacity: usize) -> Self {
        // Touched now: what grows afterwards is not the notes.
        let blank = Record {
            value: Value { sent: Ticks(1), ..Value::default() },
            component,
            received: Ticks(1),
            stages: [UNKNOWN; STAGES_KEPT.len()],
        };
        let mut records = vec![blank; capacity];
        records.clear();
        Self { shared: Arc::clone(shared), component, records, keeps: capacity > 0 }
    }

    /// A message whose probe was reached at `received`; the value's origin, if it is one.
    #[inline]
    fn note(&mut self, message: &Message<'_>, received: Ticks) -> Option<Origin> {
        let Some(value) = Value::parse(message.payload) else {
            self.shared.mismatched.add(1);
            return None;
        };
        if self.keeps && self.records.len() < self.records.capacity() {
            self.records.push(Record::new(value, self.component, received, message.stages.as_ref()));
        }
        self.shared.received.add(1);
        Some(value.origin)
    }

    /// Once it is asked for.
    fn hand_over(&mut self, to: &Sender<Vec<Record>>) {
        if self.shared.hand_over.is_raised() && self.keeps {
            self.keeps = false;
            let _gone = to.send(std::mem::take(&mut self.records));
        }
    }
}

/// All threads of a process.
pub(super) struct Components {
    node: Node,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    records: Receiver<Vec<Record>>,
    /// Values that must come before it is over, and threads that hand over records.
    expected: u64,
    keepers: usize,
    publishers: u64,
    lasts: Duration,
}

/// What every thread is made of.
struct Workshop<'a> {
    node: &'a Node,
    assignment: &'a Assignment,
    wake: Wake,
    shared: &'a Arc<Shared>,
    records: Sender<Vec<Record>>,
    threads: Vec<JoinHandle<()>>,
}

impl Components {
    /// Binds every communicator and starts every thread; publishers wait at the barrier.
    pub(super) fn start(node: &Node, assignment: &Assignment) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let (sender, records) = channel();
        let wake = assignment.wake.parse()?;
        let mut workshop =
            Workshop { node, assignment, wake, shared: &shared, records: sender, threads: Vec::new() };
        let made = workshop.make_all();
        let components = Self {
            node: node.clone(),
            threads: workshop.threads,
            records,
            expected: (assignment.vehicles * assignment.components * assignment.count) as u64,
            keepers: if matches!(assignment.part, Part::Vehicle(_)) { assignment.components } else { 0 },
            publishers: match assignment.part {
                Part::Vehicle(_) => assignment.components as u64,
                Part::Roadside(_) | Part::Listener => 0,
            },
            lasts: Duration::from_nanos(
                assignment.period_ns.saturating_mul(assignment.count as u64) + assignment.phase_ns,
            ),
            shared,
        };
        made.map(|()| components)
    }

    fn is_complete(&self) -> bool {
        self.shared.finished.get() == self.publishers && self.shared.received.get() >= self.expected
    }
}

impl Travelling for Components {
    fn travel(&mut self, start_ns: u64) -> Result<(Facts, Vec<Record>), String> {
        let needed = Needed::now();
        self.shared.start(start_ns);
        let end_ns = start_ns + self.lasts.as_nanos() as u64;
        while monotonic_ns() < end_ns && !interrupted() {
            sleep_until(end_ns.min(monotonic_ns() + LOOK.as_nanos() as u64 * 10));
        }
        // Who is interrupted hears the others out too: they were at the same terminal.
        let patience_ns = monotonic_ns() + GRACE.as_nanos() as u64;
        while !self.is_complete() && monotonic_ns() < patience_ns {
            sleep_until(monotonic_ns() + 5_000_000);
        }
        let shared = &self.shared;
        let mut facts = Facts {
            sent: shared.sent.get(),
            refused: shared.refused.get(),
            mismatched: shared.mismatched.get(),
            beacons: shared.beacons.get(),
            ..Facts::default()
        };
        needed.note(&mut facts);
        shared.hand_over.raise();
        let mut records = Vec::new();
        for _ in 0..self.keepers {
            let part = self.records.recv_timeout(GRACE * 5);
            records.extend(part.map_err(|_| "a component's thread failed".to_owned())?);
        }
        Ok((facts, records))
    }

    fn account(&mut self) -> Account {
        self.shared.end();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
        account_of(&self.node)
    }
}

impl Drop for Components {
    fn drop(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

impl Workshop<'_> {
    fn make_all(&mut self) -> Result<(), String> {
        for component in 0..self.assignment.components as u16 {
            match (self.assignment.part, self.assignment.mode) {
                (Part::Vehicle(vehicle), Mode::Application) => {
                    self.subscriber(component, self.assignment.capacity())?;
                    self.publisher(self.schedule(vehicle, component))?;
                }
                (Part::Vehicle(vehicle), _) => self.event_loop(self.schedule(vehicle, component))?,
                _ => self.subscriber(component, 0)?,
            }
        }
        match self.assignment.part {
            Part::Roadside(_) => self.beacon(),
            _ if self.assignment.others + 1 > self.assignment.vehicles => self.beacon_listener(),
            _ => Ok(()),
        }
    }

    fn schedule(&self, vehicle: u16, component: u16) -> Schedule {
        let assignment = self.assignment;
        let share = assignment.phase_ns / assignment.components as u64;
        Schedule {
            origin: Origin { vehicle, component, number: 0 },
            count: u32::try_from(assignment.count).unwrap_or(u32::MAX),
            period_ns: assignment.period_ns,
            phase_ns: u64::from(vehicle) * assignment.phase_ns + u64::from(component) * share,
        }
    }

    fn bind(&self, port: u16) -> Result<Communicator, String> {
        let options = CommunicatorOptions {
            inbox_size: Some(self.assignment.inbox_size),
            ..CommunicatorOptions::waiting(self.wake).stamped()
        };
        self.node.bind_with(port, &options).map_err(|error| error.to_string())
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            sleep_precisely();
            work();
        });
        self.threads.push(thread.map_err(|error| format!("cannot start a thread: {error}"))?);
        Ok(())
    }

    fn subscriber(&mut self, component: u16, capacity: usize) -> Result<(), String> {
        let mut communicator = self.bind(SUBSCRIBERS_AT + component)?;
        let (shared, records) = (Arc::clone(self.shared), self.records.clone());
        self.spawn("subscriber", move || {
            let mut notes = Notes::new(&shared, component, capacity);
            let clock = Clock::get();
            while !shared.stop.is_raised() {
                if let Ok(message) = communicator.receive_timeout(LOOK) {
                    let received = clock.now();
                    notes.note(&message, received);
                } else {
                    notes.hand_over(&records);
                }
            }
        })
    }

    fn publisher(&mut self, schedule: Schedule) -> Result<(), String> {
        let mut communicator = self.bind(PUBLISHERS_AT + schedule.origin.component)?;
        let shared = Arc::clone(self.shared);
        let port = port(SUBSCRIBERS_AT + schedule.origin.component);
        self.spawn("publisher", move || {
            let mut publication = Publication::new(schedule, port);
            let Some(start_ns) = shared.wait_for_start() else { return };
            while !publication.is_over() && !interrupted() && !shared.stop.is_raised() {
                let due_ns = publication.schedule.due_ns(start_ns);
                sleep_until(due_ns);
                if monotonic_ns() < due_ns {
                    // A signal ended the sleep.
                    continue;
                }
                let due = publication.stamp(due_ns);
                let taken = communicator.try_send_due(publication.target, &publication.bytes, Some(due));
                if taken.is_ok() { &shared.sent } else { &shared.refused }.add(1);
                publication.next();
            }
            shared.finished.add(1);
        })
    }

    /// Publisher and subscriber in one thread, which calls back with whatever arrives.
    fn event_loop(&mut self, schedule: Schedule) -> Result<(), String> {
        let component = schedule.origin.component;
        let communicator = self.bind(SUBSCRIBERS_AT + component)?;
        let (shared, records) = (Arc::clone(self.shared), self.records.clone());
        let (capacity, early_ns) = (self.assignment.capacity(), self.assignment.early_ns);
        self.spawn("component", move || {
            let notes = Notes::new(&shared, component, capacity);
            let publication = Publication::new(schedule, port(SUBSCRIBERS_AT + component));
            EventLoop { communicator, publication, notes, clock: Clock::get(), early_ns }.run(&records);
        })
    }

    fn beacon(&mut self) -> Result<(), String> {
        let mut communicator = self.bind(PUBLISHERS_AT)?;
        let shared = Arc::clone(self.shared);
        self.spawn("beacon", move || {
            let Some(mut due_ns) = shared.wait_for_start() else { return };
            while !shared.stop.is_raised() && !shared.hand_over.is_raised() {
                if monotonic_ns() < due_ns {
                    sleep_until(due_ns.min(monotonic_ns() + LOOK.as_nanos() as u64));
                    continue;
                }
                // One that finds no room is followed by another.
                let _taken = communicator.try_send(Target::everyone_at(port(BEACONS_AT)), &[0; VALUE_SIZE]);
                due_ns += BEACON_EVERY.as_nanos() as u64;
            }
        })?;
        self.beacon_listener()
    }

    fn beacon_listener(&mut self) -> Result<(), String> {
        let mut communicator = self.bind(BEACONS_AT)?;
        let shared = Arc::clone(self.shared);
        self.spawn("beacons", move || {
            while !shared.stop.is_raised() {
                let heard = communicator.receive_timeout(LOOK).is_ok();
                shared.beacons.add(u64::from(heard));
            }
        })
    }
}

impl Assignment {
    /// Values that one component will receive.
    fn capacity(&self) -> usize {
        self.vehicles * self.count
    }
}

fn port(number: u16) -> Port {
    Port::new(number).expect("no port here is the reserved one")
}

/// One component's loop in callback mode.
struct EventLoop {
    communicator: Communicator,
    publication: Publication,
    notes: Notes,
    clock: &'static Clock,
    /// How long before a message is due the loop is awake for it.
    early_ns: u64,
}

/// The subscriber's callback: the probe is its entry.
#[inline]
fn callback(clock: &Clock, notes: &mut Notes, message: &Message<'_>) -> Option<Origin> {
    let received = clock.now();
    notes.note(message, received)
}

impl EventLoop {
    fn run(mut self, records: &Sender<Vec<Record>>) {
        let shared = Arc::clone(&self.notes.shared);
        let mut start_ns = None;
        let mut publishes = true;
        while !shared.stop.is_raised() {
            start_ns = start_ns.or_else(|| *shared.start.lock().unwrap_or_else(PoisonError::into_inner));
            if publishes && (self.publication.is_over() || interrupted()) {
                publishes = false;
                shared.finished.add(1);
            }
            let due_ns = start_ns.filter(|_| publishes).map(|start| self.publication.schedule.due_ns(start));
            let ready_ns = due_ns.map(|due_ns| due_ns - self.early_ns);
            if let Some(due_ns) =
                due_ns.filter(|_| ready_ns.is_some_and(|ready_ns| monotonic_ns() >= ready_ns))
            {
                self.warm_until(due_ns);
                self.publish(due_ns);
                continue;
            }
            self.receive(ready_ns, records);
        }
    }

    /// Calls back with the next message, or returns when something is due.
    fn receive(&mut self, due_ns: Option<u64>, records: &Sender<Vec<Record>>) {
        let left = due_ns.map_or(LOOK, |due_ns| Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
        let deadline = self.clock.now().plus(self.clock.ticks(left.min(LOOK)));
        match self.communicator.receive_until(Some(deadline)) {
            Ok(message) => drop(callback(self.clock, &mut self.notes, &message)),
            Err(_) => self.notes.hand_over(records),
        }
    }

    /// Spins until it is due, on the way that the message will take: what slept for a period is not in the cache any more. A
    /// claim that is not committed sends nothing.
    fn warm_until(&mut self, due_ns: u64) {
        while monotonic_ns() < due_ns {
            drop(self.communicator.claim(self.publication.target, VALUE_SIZE));
            std::hint::spin_loop();
        }
    }

    /// Sends a value to everybody; its own subscriber is called back in this thread, before the medium is.
    fn publish(&mut self, due_ns: u64) {
        let origin = self.publication.schedule.origin;
        let _due = self.publication.stamp(due_ns);
        let taken = self.communicator.queue(self.publication.target, &self.publication.bytes);
        for _ in 0..OWN_TRIES {
            let Ok(message) = self.communicator.try_receive() else { break };
            // Older messages, which another component of the node put here, come first.
            if callback(self.clock, &mut self.notes, &message) == Some(origin) {
                break;
            }
        }
        self.communicator.flush();
        let shared = &self.notes.shared;
        if taken.is_ok() { &shared.sent } else { &shared.refused }.add(1);
        self.publication.next();
    }
}
