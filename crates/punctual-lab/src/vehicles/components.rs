//! The components of a vehicle, or of a roadside process, as threads over one node, by the library's interest and response.
//!
//! ```text
//! application   a Publisher's thread                  a Subscriber's thread: blocking receive, then probe
//! callback      a Participant's thread: sends what is due, and calls back with what comes; probe at the callback's entry
//! ```
//! A component that has sent and received all goes on to listen, so that every frame of the others ends in a counter.
//!
//! In async mode there are no plain sockets to listen at. There a listener is a node whose observer (`Communicator::on_message`) is
//! called back with every value. It sleeps until the doorbell, epoll or a signal wakes it.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual::interest::{
    InterestError, Participant, ParticipantOptions, PublicationLimits, Publisher, Subscriber, Topic,
};
use punctual::{Clock, Communicator, CommunicatorOptions, Nanos, Node, Observer, Target};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_machine::signal::interrupted;

use super::alone::GRACE;
use super::notes::Notes;
use super::option::{Mode, VehiclesSettings};
use super::process::{Workload, account_of};
use super::protocol::{Account, Assignment, ComponentWindows, Facts, Part, WorkloadResult};
use super::publication::{Bytes, Schedule, Source, quiet};
use crate::endpoint::{PORT, VALUE_SIZE};
use crate::explain::quiet::QuietLog;
use crate::run::lock;

/// Ports of components 0, 1, …: where they receive, and from where publishers send that have a thread of their own.
const SUBSCRIBERS_AT: u16 = 1_000;
const PUBLISHERS_AT: u16 = 2_000;
/// Where the roadside is heard, and from where it speaks.
const BEACONS_AT: u16 = 3_000;
const BEACON_PUBLISHERS_AT: u16 = 3_001;
/// Between two beacons of a roadside process.
const BEACON_EVERY: Duration = Duration::from_secs(1);
/// Interval at which a thread checks for the end: not more often than the node does its housekeeping anyway.
const LOOK: Duration = Duration::from_millis(100);
/// After an interrupt: the silence after which nothing more will come, for others look as often as we do; and the longest wait.
const INTERRUPTED_QUIET: Duration = Duration::from_millis(150);
const INTERRUPTED_MAX: Duration = Duration::from_millis(400);
/// Longest time by which a value that was overtaken comes later than the last one, where periods are shorter.
const OVERTAKEN_MAX: Duration = Duration::from_millis(300);
/// Time until a thread notices that the barrier's opening was announced.
const NOTICE: Duration = Duration::from_millis(20);

/// Topic that the roadside publishes; values of component n have the topic n.
const BEACONS: Topic<Bytes> = Topic::named("beacons");

fn topic(component: u16) -> Topic<Bytes> {
    Topic::new(component.into())
}

/// Every period down to the shortest that can be asked for, and as many values as that makes.
const LIMITS: PublicationLimits = PublicationLimits {
    interests_max: 1_024,
    interests_of_node_max: 64,
    periods_max: 8,
    periods_of_node_max: 8,
    period_min_us: 10,
    rate_max: 200_000,
    rate_of_node_max: 200_000,
    lifetime_max_ms: 60_000,
};

/// State that the threads of a process share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    start: Mutex<Option<u64>>,
    failed: Mutex<Option<String>>,
    /// Results that threads hand over when they are done.
    pub(super) noted: Mutex<WorkloadResult>,
    /// Values that were received whole.
    pub(super) received: Counter,
    /// Senders whose last value was received, over all components.
    pub(super) ended: Counter,
    /// Components that have sent all.
    pub(super) finished: Counter,
    pub(super) sent: Counter,
    pub(super) refused: Counter,
    pub(super) mismatched: Counter,
    beacons: Counter,
    /// Subscribers are to give up their interest and hand over records.
    hand_over: Flag,
    pub(super) stop: Flag,
}

impl Shared {
    /// Waits at the barrier, and sees to the node meanwhile; `None` if there is to be no start. Messages that come before are not for
    /// us: interests are told again to a publisher that begins.
    fn wait_for_start(&self, communicator: &mut Communicator) -> Option<u64> {
        while !self.stop.is_raised() {
            let start = *lock(&self.start);
            if start.is_some() {
                return start;
            }
            let _heard = communicator.receive_timeout(NOTICE);
        }
        None
    }

    /// Opens the barrier, unless it is open; says at which instant it is.
    fn start(&self, at_ns: u64) -> u64 {
        *lock(&self.start).get_or_insert(at_ns)
    }

    /// Records are not asked for yet, and nothing is over.
    fn goes_on(&self) -> bool {
        !self.hand_over.is_raised() && !self.stop.is_raised()
    }

    /// The rest of a thread's life: messages that still come are delivered, and no more.
    fn hear_out(&self, communicator: &mut Communicator) {
        while !self.stop.is_raised() {
            let _heard = communicator.receive_timeout(LOOK);
        }
        while communicator.try_receive().is_ok() {}
    }

    fn note_windows(&self, (sends, receives): (bool, bool), log: QuietLog) {
        let windows = log.finish().map(|of| ComponentWindows { sends, receives, of });
        lock(&self.noted).windows.extend(windows);
    }

    /// The counts of its threads, and the resources used since then.
    pub(super) fn facts(&self, before: &Facts) -> Facts {
        Facts {
            sent: self.sent.get(),
            refused: self.refused.get(),
            mismatched: self.mismatched.get(),
            beacons: self.beacons.get(),
            ..Facts::since(before)
        }
    }
}

/// Means of a thread when the barrier is open.
struct Begun<'a> {
    shared: &'a Shared,
    communicator: Communicator,
    start_ns: u64,
    log: QuietLog,
}

/// All threads of a process.
pub(super) struct Components {
    node: Node,
    assignment: Assignment,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Of a listener.
    observer: Option<Observer>,
}

impl Components {
    /// Binds every communicator and starts every thread, which waits at the barrier.
    pub(super) fn start(node: &Node, assignment: &Assignment) -> Result<Self, String> {
        let mut components = Self {
            node: node.clone(),
            assignment: assignment.clone(),
            shared: Arc::default(),
            threads: Vec::new(),
            observer: None,
        };
        if assignment.settings.asked.no_barrier {
            // Before there are threads: each goes on at once.
            components.shared.start(monotonic_ns());
        }
        components.make_all()?;
        Ok(components)
    }

    fn publishers(&self) -> usize {
        if matches!(self.assignment.part, Part::Vehicle(_)) {
            self.assignment.settings.asked.components
        } else {
            0
        }
    }

    /// Components that hand over records.
    fn receivers(&self) -> usize {
        self.publishers() + usize::from(self.observer.is_some())
    }

    fn is_complete(&self) -> bool {
        let (shared, settings) = (&self.shared, &self.assignment.settings);
        let expected = settings.asked.components * settings.capacity();
        shared.finished.get() == self.publishers() as u64 && shared.received.get() >= expected as u64
            || lock(&shared.failed).is_some()
    }

    /// The kind of a component that has not ended its work, once all were told to.
    fn still_open(&self) -> Option<&'static str> {
        if lock(&self.shared.noted).beginnings.len() < self.receivers() {
            return Some("a receiver");
        }
        (self.shared.finished.get() < self.publishers() as u64).then_some("a publisher")
    }

    /// Waits for what is still on its way. After an interrupt that is little: the others were at the same terminal.
    fn await_rest(&self) {
        let began_ns = monotonic_ns();
        let (mut received, mut changed_ns) = (self.shared.received.get(), began_ns);
        while !self.is_complete() {
            let (now_ns, now_received) = (monotonic_ns(), self.shared.received.get());
            if now_received != received {
                (received, changed_ns) = (now_received, now_ns);
            }
            let (most, quiet) = if interrupted() {
                (Some(INTERRUPTED_MAX), INTERRUPTED_QUIET)
            } else {
                patience(&self.assignment.settings, self.shared.ended.get())
            };
            let passed = |since_ns: u64, most: Duration| now_ns - since_ns > most.as_nanos() as u64;
            if most.is_some_and(|most| passed(began_ns, most)) || passed(changed_ns, quiet) {
                return;
            }
            sleep_until(now_ns + 5_000_000);
        }
    }
}

impl Workload for Components {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadResult, String> {
        let before = Facts::now();
        let is_all = self.assignment.settings.asked.no_barrier || self.observer.is_some() || interrupted();
        let others = if is_all { 0 } else { self.assignment.others as u64 };
        let unheard = others.saturating_sub(self.node.ledger().joined);
        let start_ns = self.shared.start(start_ns);
        let settings = &self.assignment.settings;
        let end_ns = over_ns(settings, start_ns);
        while monotonic_ns() < end_ns && !interrupted() {
            sleep_until(end_ns.min(monotonic_ns() + LOOK.as_nanos() as u64 * 10));
        }
        self.await_rest();
        let shared = &self.shared;
        let facts = Facts { unheard, ..shared.facts(&before) };
        shared.hand_over.raise();
        if let Some(text) = lock(&shared.failed).take() {
            return Err(text);
        }
        drop(self.observer.take());
        let began = Instant::now();
        while let Some(open) = self.still_open() {
            if began.elapsed() > GRACE * 5 {
                return Err(format!("{open} did not end when all was over: a thread of it hangs"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let shared = &self.shared;
        // Threads say last what found no room.
        let facts = Facts { refused: shared.refused.get(), ..facts };
        Ok(WorkloadResult { facts, ..std::mem::take(&mut *lock(&shared.noted)) })
    }

    fn account(&mut self) -> Account {
        account_of(&self.node)
    }
}

impl Drop for Components {
    fn drop(&mut self) {
        self.shared.stop.raise();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

impl Components {
    fn make_all(&mut self) -> Result<(), String> {
        if self.assignment.part == Part::Listener {
            return self.observe();
        }
        for component in 0..self.assignment.settings.asked.components as u16 {
            match (self.assignment.part, self.assignment.settings.asked.mode) {
                (Part::Vehicle(vehicle), Mode::Application) => {
                    self.subscriber(component, true)?;
                    self.publisher(Schedule::new(&self.assignment.settings, vehicle, component))?;
                }
                (Part::Vehicle(vehicle), _) => {
                    self.participant(Schedule::new(&self.assignment.settings, vehicle, component))?;
                }
                _ => self.subscriber(component, false)?,
            }
        }
        match self.assignment.part {
            Part::Roadside(_) => self.beacon().and_then(|()| self.beacon_listener()),
            _ if self.assignment.settings.roadside > 0 => self.beacon_listener(),
            _ => Ok(()),
        }
    }

    fn bind(&self, port: u16) -> Result<Communicator, String> {
        let options = CommunicatorOptions {
            inbox_size: Some(self.assignment.settings.inbox_size()),
            ..CommunicatorOptions::waiting(self.assignment.settings.wake).stamped()
        };
        self.node.bind_with(port, &options).map_err(|error| error.to_string())
    }

    /// Calls back with every value, in a thread of the library's.
    fn observe(&mut self) -> Result<(), String> {
        let communicator = self.bind(PORT)?;
        let (mut notes, clock) = (self.notes(0, true), Clock::get());
        notes.begin_elsewhere();
        let observer = communicator.on_message(move |message| {
            let received = clock.now_after_loads();
            notes.note_bytes(message.payload, message.stages, received);
        });
        self.observer = Some(observer.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn notes(&self, component: u16, keeps: bool) -> Notes {
        Notes::new(Arc::clone(&self.shared), component, &self.assignment.settings, keeps)
    }

    /// A thread that does its work from the barrier's opening, at which instant it will be told, on; then it hears the others
    /// out, when all that its work needed is given up. Its windows are kept if it is watched.
    fn spawn(
        &mut self,
        (name, port): (&str, u16),
        is_watched: bool,
        work: impl FnOnce(Begun<'_>) -> Result<Communicator, InterestError> + Send + 'static,
    ) -> Result<(), String> {
        let (mut communicator, shared) = (self.bind(port)?, Arc::clone(&self.shared));
        let assignment = self.assignment.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            sleep_precisely();
            let Some(start_ns) = shared.wait_for_start(&mut communicator) else { return };
            let quiet = quiet(&assignment, start_ns).filter(|_| is_watched);
            let log = QuietLog::of_this_thread(quiet, assignment.settings.count);
            match work(Begun { shared: &shared, communicator, start_ns, log }) {
                Ok(mut communicator) => shared.hear_out(&mut communicator),
                Err(error) => *lock(&shared.failed) = Some(error.to_string()),
            }
        });
        self.threads.push(thread.map_err(|error| format!("cannot start a thread: {error}"))?);
        Ok(())
    }

    /// A subscriber to a component's values, which it keeps or not.
    fn subscriber(&mut self, component: u16, keeps: bool) -> Result<(), String> {
        let options = reaching(PUBLISHERS_AT + component, None);
        let mut notes = self.notes(component, keeps);
        let period = self.assignment.settings.asked.period;
        let at = ("subscriber", SUBSCRIBERS_AT + component);
        self.spawn(at, keeps, move |Begun { shared, communicator, mut log, .. }| {
            let mut subscriber = Subscriber::with(communicator, topic(component), period, &options)?;
            let clock = Clock::get();
            notes.begin(true);
            while shared.goes_on() {
                match subscriber.receive_timeout(log.until_look(LOOK)) {
                    Ok(response) => {
                        let received = clock.now_after_loads();
                        notes.note(&response, received);
                    }
                    Err(_) => log.look(),
                }
            }
            shared.note_windows((false, true), log);
            shared.refused.add(subscriber.traffic().full);
            Ok(subscriber.into_communicator())
        })
    }

    fn publisher(&mut self, schedule: Schedule) -> Result<(), String> {
        let component = schedule.component;
        let mut source = Source::new(schedule, &self.shared);
        let at = ("publisher", PUBLISHERS_AT + component);
        self.spawn(at, true, move |Begun { shared, communicator, start_ns, mut log }| {
            let options = reaching(SUBSCRIBERS_AT + component, Some(schedule.begins(start_ns)));
            let mut publisher = Publisher::with(communicator, topic(component), &options)?;
            while let Some(left) = left_until(schedule.end_ns(start_ns), shared) {
                publisher.serve_for(log.until_look(left), |due| source.value(due));
                log.look();
            }
            shared.note_windows((true, false), log);
            shared.refused.add(publisher.traffic().full);
            Ok(publisher.into_communicator())
        })
    }

    /// Publisher and subscriber in one thread, which calls back with everything that is published here or arrives.
    fn participant(&mut self, schedule: Schedule) -> Result<(), String> {
        let component = schedule.component;
        let mut notes = self.notes(component, true);
        let mut source = Source::new(schedule, &self.shared);
        let period = self.assignment.settings.asked.period;
        let at = ("component", SUBSCRIBERS_AT + component);
        self.spawn(at, true, move |Begun { shared, communicator, start_ns, mut log }| {
            let clock = Clock::get();
            notes.begin(true);
            let options = reaching(SUBSCRIBERS_AT + component, Some(schedule.begins(start_ns)));
            let mut participant = Participant::with(communicator, &options);
            participant.publish(topic(component), move |due| source.value(due))?;
            participant.subscribe(topic(component), period, move |response| {
                let received = clock.now_after_loads();
                notes.note(&response, received);
            })?;
            while let Some(left) = left_until(schedule.end_ns(start_ns), shared) {
                participant.serve_for(log.until_look(left));
                log.look();
            }
            participant.stop_publishing();
            while shared.goes_on() {
                participant.serve_for(log.until_look(LOOK));
                log.look();
            }
            shared.note_windows((true, true), log);
            shared.refused.add(participant.traffic().full);
            Ok(participant.into_communicator())
        })
    }

    fn beacon(&mut self) -> Result<(), String> {
        let at = ("beacon", BEACON_PUBLISHERS_AT);
        self.spawn(at, false, |Begun { shared, communicator, start_ns, .. }| {
            let options = reaching(BEACONS_AT, Some(Nanos(start_ns)));
            let mut publisher = Publisher::with(communicator, BEACONS, &options)?;
            while shared.goes_on() {
                publisher.serve_for(LOOK, |_| [0; VALUE_SIZE]);
            }
            Ok(publisher.into_communicator())
        })
    }

    fn beacon_listener(&mut self) -> Result<(), String> {
        self.spawn(("beacons", BEACONS_AT), false, |Begun { shared, communicator, .. }| {
            let options = reaching(BEACON_PUBLISHERS_AT, None);
            let mut subscriber = Subscriber::with(communicator, BEACONS, BEACON_EVERY, &options)?;
            while shared.goes_on() {
                let heard = subscriber.receive_timeout(LOOK).is_ok();
                shared.beacons.add(u64::from(heard));
            }
            Ok(subscriber.into_communicator())
        })
    }
}

/// Interests and advertisements go to this port of every node; periods count since `begins`.
fn reaching(port: u16, begins: Option<Nanos>) -> ParticipantOptions {
    ParticipantOptions {
        reach: Target::everyone_at(port),
        limits: LIMITS,
        begins,
        ..ParticipantOptions::default()
    }
}

/// Longest wait behind the end of all schedules, and the silence after which nothing more will come. Without a barrier each process counts
/// from its own opening, so others may go on for any time: silence alone ends the wait, and a sender's is as long as its period.
pub(super) fn patience(settings: &VehiclesSettings, ended: u64) -> (Option<Duration>, Duration) {
    let senders = settings.asked.components * settings.asked.vehicles;
    // Behind the last value of every sender only a value that another one overtook may come: one that is missing was skipped or is lost. A
    // sender whose last value is not here may only be late.
    let after_last = settings.asked.period.saturating_mul(10).max(OVERTAKEN_MAX).min(GRACE);
    match (settings.asked.no_barrier, ended >= senders as u64) {
        (false, true) => (Some(GRACE), after_last),
        (false, false) => (Some(GRACE), GRACE),
        (true, true) => (None, after_last),
        (true, false) => (None, GRACE + settings.asked.period),
    }
}

/// Instant by which every component has published all. With long periods the last one ends so much later than the others that a thread
/// of it would be taken for one that hangs.
fn over_ns(settings: &VehiclesSettings, start_ns: u64) -> u64 {
    let [vehicle, component] =
        [settings.asked.vehicles, settings.asked.components].map(|count| count as u16 - 1);
    let last = Schedule::new(settings, vehicle, component).end_ns(start_ns);
    last.max(start_ns + settings.lasts().as_nanos() as u64 + settings.phase_ns())
}

/// Time to go on before the next look; `None` when it is over.
fn left_until(end_ns: u64, shared: &Shared) -> Option<Duration> {
    let left = Duration::from_nanos(end_ns.saturating_sub(monotonic_ns()));
    let is_over = left.is_zero() || interrupted() || shared.stop.is_raised();
    (!is_over).then(|| left.min(LOOK))
}

#[cfg(test)]
mod tests {
    use punctual::{Bus, NodeOptions};

    use super::*;
    use crate::endpoint::BusPlan;
    use crate::vehicles::first::Beginning;
    use crate::vehicles::option::tests::settings_of;
    use crate::vehicles::value::{Origin, Value};

    /// Goal: nothing is over before every component has published all, however long a period is.
    #[test]
    fn all_is_over_behind_every_schedule() {
        for more in ["--spread", "--spread --components 3", ""] {
            let options =
                format!("--mode callback --engine shared --vehicles 15 --period 60s --messages 2 {more}");
            let settings = settings_of(options.trim()).expect("options that go together");
            for vehicle in 0..15 {
                for component in 0..settings.asked.components as u16 {
                    let end_ns = Schedule::new(&settings, vehicle, component).end_ns(7);
                    assert!(over_ns(&settings, 7) >= end_ns, "{options}: {vehicle}, {component}");
                }
            }
        }
    }

    /// A vehicle of two with a thread in place of its component, which has sent all at once.
    fn with_component(name: &str, options: &str, work: impl FnOnce(&Shared) + Send + 'static) -> Components {
        let settings = settings_of(&format!("--mode callback --engine shared --vehicles 2 {options}"));
        let settings = settings.expect("options that go together");
        let node = NodeOptions::new("alone").open(&Bus::loopback(name)).expect("a node");
        let bus = BusPlan::Shared(name.to_owned());
        let assignment = Assignment { part: Part::Vehicle(0), bus, keys: None, others: 0, settings };
        let shared = Arc::<Shared>::default();
        shared.finished.add(1);
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            work(&of_thread);
            lock(&of_thread.noted).beginnings.push(Beginning::default());
        });
        Components { node, assignment, shared, threads: vec![thread], observer: None }
    }

    /// Goal: values that a thread could not send are counted, though it says so only at its end.
    #[test]
    fn refused_values_are_counted_at_the_end() {
        let mut components = with_component("refused", "--period 1ms --messages 1", |shared| {
            shared.received.add(2);
            while shared.goes_on() {
                std::thread::yield_now();
            }
            shared.refused.add(3);
        });
        let travelled = components.travel(monotonic_ns()).expect("it ends");
        assert_eq!(travelled.facts.refused, 3);
    }

    /// Goal: without a barrier, values of a process that opened later than the longest patience are waited for. Method: they come one by
    /// one, for longer than that.
    #[test]
    fn a_process_that_opened_later_is_waited_for() {
        const COUNT: u32 = 40;
        let options = format!("--no-barrier --period 1ms --messages {}", COUNT / 2);
        let mut components = with_component("later", &options, |shared| {
            let between = GRACE * 3 / 2 / COUNT;
            while shared.goes_on() {
                std::thread::sleep(between);
                shared.received.add(u64::from(shared.received.get() < u64::from(COUNT)));
            }
        });
        components.travel(monotonic_ns()).expect("it ends");
        assert_eq!(components.shared.received.get(), u64::from(COUNT));
    }

    /// Goal: a value that was skipped or is lost in the middle costs no more than a short silence; a sender whose last value is not here
    /// is waited for. Method: two senders of three values, one of which comes twice.
    #[test]
    fn a_silence_behind_all_last_values_is_short() {
        let settings = |period: &str| {
            settings_of(&format!("--mode async --engine shared --vehicles 2 --messages 3 --period {period}"))
                .expect("options that go together")
        };
        let shared = Arc::<Shared>::default();
        let short = settings("1ms");
        let mut notes = Notes::new(Arc::clone(&shared), 0, &short, true);
        let now = Clock::get().now();
        for (vehicle, number, expected) in
            [(0, 0, GRACE), (0, 2, GRACE), (0, 2, GRACE), (1, 1, GRACE), (1, 2, OVERTAKEN_MAX)]
        {
            let value = Value { origin: Origin { vehicle, component: 0, number }, due: now, sent: now };
            notes.note_bytes(&value.bytes(), None, now);
            assert_eq!(patience(&short, shared.ended.get()), (Some(GRACE), expected), "{vehicle} {number}");
        }
        assert_eq!(shared.received.get(), 5);
        assert_eq!(patience(&settings("50ms"), 2).1, Duration::from_millis(500));
        assert_eq!(patience(&settings("1s"), 2).1, GRACE);
        let alone = settings("1s --no-barrier");
        assert_eq!(
            (patience(&alone, 1), patience(&alone, 2)),
            ((None, Duration::from_secs(3)), (None, GRACE))
        );
    }
}
