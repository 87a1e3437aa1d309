//! Metrics of a runtime, read at any time by anybody, and its faults in words.

use std::path::PathBuf;

use punctual_machine::clock::Ticks;
use punctual_machine::counter::Counter;
use punctual_machine::process::ProcessIdentity;
use punctual_machine::scheduling::SchedStat;
use punctual_proto::Nanos;

use super::counters::Histogram;
use super::page::{LongPolls, OfClass, OfWorker, View, Word};
use super::verdict::Verdict;
use crate::pages::{self, PageKind};

/// Counters of a runtime at an instant, or of the time between two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// The time since the runtime's start, or between the two; 0 where the runtime's clock is another than ours.
    pub time: Nanos,
    /// Tasks that live.
    pub tasks: usize,
    /// Tasks that ended by a panic.
    pub panics: u64,
    /// Figures of waiting for descriptors.
    pub reactor: ReactorMetrics,
    /// By worker, those of lanes first.
    pub workers: Vec<WorkerMetrics>,
    /// By class.
    pub classes: Vec<ClassMetrics>,
}

/// Figures of waiting for descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorMetrics {
    /// Descriptors that tasks wait for.
    pub sources: u64,
    /// Looks that found something.
    pub activations: u64,
    /// Descriptors that were reported.
    pub events: u64,
    /// Time that waking their tasks took.
    pub took: Nanos,
}

/// Activity of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerMetrics {
    /// The kernel's figures for its thread, which is another one after each [`super::blocking`].
    pub thread: ThreadMetrics,
    /// Tasks that it polled.
    pub polls: u64,
    /// Polls whose task was woken while it ran: by itself, to yield, or by others.
    pub yields: u64,
    /// Tasks that it took from others' lines.
    pub stolen: u64,
    /// Sleeps.
    pub parks: u64,
    /// Sleeps after which there was nothing to do.
    pub wakes_in_vain: u64,
    /// Waits that ended while it spun.
    pub spins_found: u64,
    /// Waits that it spun for and then slept through.
    pub spins_in_vain: u64,
    /// Wakes of its tasks by itself.
    pub woken_here: u64,
    /// Wakes of its tasks by other threads.
    pub woken_from_elsewhere: u64,
    /// Waits for a line that another thread had.
    pub lock_waits: u64,
    /// Total time of these waits.
    pub lock_wait: Nanos,
    /// Polls that lasted longer than [`super::RuntimeOptions::long_poll`].
    pub long_polls: u64,
    /// Those of the first four kinds of tasks that had any. The number of all may be larger.
    pub long_polls_by_task: Vec<LongPolls>,
}

/// The kernel's figures for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadMetrics {
    /// The kernel's number of it; 0 for none.
    pub number: u64,
    /// Processor time.
    pub ran: Nanos,
    /// Time in which it could have run and had no processor.
    pub queued: Nanos,
    /// Times it gave the processor up to wait.
    pub switches_voluntary: u64,
    /// Times it was taken off the processor.
    pub switches_involuntary: u64,
}

/// Figures of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassMetrics {
    /// Tasks that wait for a worker now. While a poll keeps that, some are not in its line yet: the next two leave these out.
    pub waiting: usize,
    /// Age of the oldest request in line, known to 10 ms. Its task may have had many turns since it came.
    pub oldest: Option<Nanos>,
    /// Longest time that a task has been in line, known to 10 ms.
    pub longest_wait: Option<Nanos>,
    /// From wake to poll.
    pub delays: Histogram,
    /// Polls.
    pub polls: u64,
    /// Time of its polls by the clock, until they ended or blocked: also that in which their worker had no processor.
    pub ran: Nanos,
    /// Polls that began after their request's deadline.
    pub late: u64,
    /// Polls that were to say that their request is not done.
    pub shed: u64,
    /// Polls because of its floor.
    pub by_floor: u64,
    /// Thousandths of each worker's time to which it is entitled.
    pub floor_permille: u32,
}

/// Owner of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeOwner {
    /// Name of the runtime ([`super::RuntimeOptions::name`]).
    pub name: String,
    /// Its process.
    pub process: ProcessIdentity,
    /// When it started, by its own clock: one process may have several of one name.
    pub started: Ticks,
}

/// The counters of all live runtimes of this user on this host, read without disturbing them.
#[must_use]
pub fn read_all() -> Vec<(RuntimeOwner, Metrics)> {
    let read = |words: &[Counter]| {
        let (view, process) = (View::of(words)?, pages::process_of(words)?);
        let owner = RuntimeOwner { name: view.name(), process, started: Ticks(view.get(Word::Started)) };
        Some((owner, Metrics::of(view, Some(&process))))
    };
    let mut all: Vec<_> = pages::read_all(PageKind::Runtime).iter().filter_map(|words| read(words)).collect();
    let key = |owner: &RuntimeOwner| (owner.name.clone(), owner.process.pid, owner.started.0);
    all.sort_by_cached_key(|(owner, _)| key(owner));
    all
}

impl Metrics {
    /// Of a process, or of this one.
    pub(super) fn of(view: View<'_>, process: Option<&ProcessIdentity>) -> Self {
        let now = view.time();
        // The kernel's figures for threads are known by the threads' numbers here.
        let process = match process {
            None => Some("self".to_owned()),
            Some(process) => process.pid_here().map(|pid| pid.to_string()),
        };
        Self {
            time: now,
            tasks: view.get(Word::Tasks) as usize,
            panics: view.get(Word::Panics),
            reactor: ReactorMetrics {
                sources: view.get(Word::Sources),
                activations: view.get(Word::Activations),
                events: view.get(Word::Events),
                took: Nanos(view.get(Word::ReactorNs)),
            },
            workers: (0..view.workers)
                .map(|worker| worker_metrics(view, worker, process.as_deref()))
                .collect(),
            classes: (0..view.classes).map(|class| class_metrics(view, class, now)).collect(),
        }
    }

    /// Work that was done since an earlier reading of the same runtime.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let workers = self.workers.iter().zip(&earlier.workers).map(|(now, before)| now.since(before));
        let classes = self.classes.iter().zip(&earlier.classes).map(|(now, before)| now.since(before));
        Self {
            time: self.time.since(earlier.time),
            tasks: self.tasks,
            panics: self.panics.saturating_sub(earlier.panics),
            reactor: self.reactor.since(earlier.reactor),
            workers: workers.collect(),
            classes: classes.collect(),
        }
    }

    /// Thousandths of all polls' time that a class received.
    #[must_use]
    pub fn share_permille(&self, class: usize) -> u64 {
        let all = self.classes.iter().fold(0, |sum: u64, class| sum.saturating_add(class.ran.0));
        let own = self.classes.get(class).map_or(0, |class| class.ran.0);
        (u128::from(own) * 1_000 / u128::from(all.max(1))) as u64
    }

    /// Faults, the cause of others first. Parts are of [`Self::time`], so a fault of now hardly shows in a reading since the start:
    /// take the difference of two. Where that time is not known, no part of it is named.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let share = |time: Nanos| {
            (u128::from(time.0) * 1_000).checked_div(self.time.0.into()).map_or(0, |permille| permille as u64)
        };
        let mut verdicts = Vec::new();
        for (worker, metrics) in self.workers.iter().enumerate() {
            let (locked, queued) = (share(metrics.lock_wait), share(metrics.thread.queued));
            let switched = metrics.thread.switches_involuntary;
            if locked >= LOCKED_PERMILLE && switched > 0 {
                verdicts.push(Verdict::Convoy { worker, permille: locked });
            } else if queued >= QUEUED_PERMILLE {
                verdicts.push(Verdict::CpuStarvation { worker, permille: queued });
            }
        }
        let count = self.workers.iter().fold(0, |sum: u64, worker| sum.saturating_add(worker.long_polls));
        if count > 0 {
            verdicts.push(Verdict::LongPolls { count, by: self.long_polls() });
        }
        // A class waits where workers do not get to it: no floor changes that.
        if !verdicts.is_empty() {
            return verdicts;
        }
        let waits = |class: &ClassMetrics| {
            let waits = class.longest_wait.into_iter().chain(class.delays.quantile(990)).max();
            waits.is_some_and(|longest| longest >= STARVED)
        };
        if let Some(class) = self.classes.iter().position(waits) {
            let ran = |classes: &[ClassMetrics]| {
                classes.iter().fold(0, |sum: u64, class| sum.saturating_add(class.ran.0))
            };
            let (before, own) = (ran(&self.classes[..class]), self.classes[class].ran.0);
            let of_a_worker = Nanos(before / self.workers.len().max(1) as u64);
            // A class that has most of the time waits for itself.
            verdicts.push(match share(of_a_worker) {
                STARVING_PERMILLE.. if before > own => Verdict::PriorityStarvation { class },
                _ => Verdict::LongLine { class },
            });
        }
        verdicts
    }

    /// The long polls of all workers by kind of task, those that took most time first.
    fn long_polls(&self) -> Vec<LongPolls> {
        let mut by: Vec<LongPolls> = Vec::new();
        for kind in
            self.workers.iter().flat_map(|worker| &worker.long_polls_by_task).filter(|kind| kind.count > 0)
        {
            match by.iter_mut().find(|known| (&known.name, known.class) == (&kind.name, kind.class)) {
                Some(known) => known.add(kind),
                None => by.push(kind.clone()),
            }
        }
        by.sort_by_key(|kind| std::cmp::Reverse(kind.ran));
        by
    }
}

impl LongPolls {
    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.ran = self.ran.plus(other.ran);
    }

    /// Of the same kind.
    fn since(&self, earlier: Option<&Self>) -> Self {
        let (count, ran) = earlier.map_or((0, Nanos(0)), |earlier| (earlier.count, earlier.ran));
        Self { count: self.count.saturating_sub(count), ran: self.ran.since(ran), ..self.clone() }
    }
}

/// A worker that waits for locks for so many thousandths of the time does little else.
const LOCKED_PERMILLE: u64 = 100;

/// A worker that had no processor for so many thousandths of the time shares it with others.
const QUEUED_PERMILLE: u64 = 200;

/// More important classes that had so many thousandths of the workers' time may be what a class waits for.
const STARVING_PERMILLE: u64 = 100;

/// A task that waits so long for its turn is starved, regardless of its class.
const STARVED: Nanos = Nanos::from_millis(1_000);

fn worker_metrics(view: View<'_>, worker: usize, process: Option<&str>) -> WorkerMetrics {
    let get = |count: OfWorker| view.worker(worker, count).get();
    WorkerMetrics {
        thread: process
            .map_or_else(ThreadMetrics::default, |pid| ThreadMetrics::of(pid, get(OfWorker::Thread))),
        polls: get(OfWorker::Polls),
        yields: get(OfWorker::Yields),
        stolen: get(OfWorker::Stolen),
        parks: get(OfWorker::Parks),
        wakes_in_vain: get(OfWorker::WakesInVain),
        spins_found: get(OfWorker::SpinsFound),
        spins_in_vain: get(OfWorker::SpinsInVain),
        woken_here: get(OfWorker::WokenHere),
        woken_from_elsewhere: get(OfWorker::WokenFromElsewhere),
        lock_waits: get(OfWorker::LockWaits),
        lock_wait: Nanos(get(OfWorker::LockWaitNs)),
        long_polls: get(OfWorker::LongPolls),
        long_polls_by_task: view.long_polls_by_task(worker),
    }
}

fn class_metrics(view: View<'_>, class: usize, now: Nanos) -> ClassMetrics {
    let mut metrics = ClassMetrics { floor_permille: view.floor_permille(class), ..ClassMetrics::default() };
    for worker in 0..view.workers {
        let page = view.class_of(worker, class);
        let get = |count: OfClass| page.count(count).get();
        for waiting in [OfClass::Waiting, OfClass::InInbox] {
            metrics.waiting = metrics.waiting.saturating_add(get(waiting) as usize);
        }
        // By another clock nobody knows how old anything is.
        let known = Some(now).filter(|&now| now != Nanos(0));
        let age = |since: OfClass| Some(known?.since(Nanos(get(since).checked_sub(1)?)));
        metrics.oldest = metrics.oldest.max(age(OfClass::Oldest));
        metrics.longest_wait = metrics.longest_wait.max(age(OfClass::InLineSince));
        metrics.delays.add(page.delays());
        for (sum, count) in [
            (&mut metrics.polls, OfClass::Polls),
            (&mut metrics.ran.0, OfClass::RanNs),
            (&mut metrics.late, OfClass::Late),
            (&mut metrics.shed, OfClass::Shed),
            (&mut metrics.by_floor, OfClass::ByFloor),
        ] {
            *sum = sum.saturating_add(get(count));
        }
    }
    metrics
}

impl ReactorMetrics {
    fn since(self, earlier: Self) -> Self {
        Self {
            sources: self.sources,
            activations: self.activations.saturating_sub(earlier.activations),
            events: self.events.saturating_sub(earlier.events),
            took: self.took.since(earlier.took),
        }
    }
}

impl WorkerMetrics {
    /// Every counter: its name, what it is, and its value; those that end in `_ns` are times.
    #[must_use]
    pub fn entries(&self) -> [(&'static str, &'static str, u64); 16] {
        let thread = &self.thread;
        [
            ("cpu_ns", "Processor time of its thread.", thread.ran.0),
            ("queued_ns", "Time in which its thread could have run and had no processor.", thread.queued.0),
            ("switches_voluntary", "Times it gave the processor up to wait.", thread.switches_voluntary),
            ("switches_involuntary", "Times it was taken off the processor.", thread.switches_involuntary),
            ("polls", "Tasks that it polled.", self.polls),
            ("yields", "Polls whose task was woken while it ran, by whomever.", self.yields),
            ("stolen", "Tasks that it took from others' lines.", self.stolen),
            ("parks", "Sleeps.", self.parks),
            ("wakes_in_vain", "Sleeps after which there was nothing to do.", self.wakes_in_vain),
            ("spins_found", "Waits that ended while it spun.", self.spins_found),
            ("spins_in_vain", "Waits that it spun for and then slept through.", self.spins_in_vain),
            ("woken_here", "Wakes of its tasks by itself.", self.woken_here),
            ("woken_from_elsewhere", "Wakes of its tasks by other threads.", self.woken_from_elsewhere),
            ("lock_waits", "Waits for a line that another thread had.", self.lock_waits),
            ("lock_wait_ns", "Time it waited for lines that other threads had.", self.lock_wait.0),
            ("long_polls", "Polls longer than the runtime's limit.", self.long_polls),
        ]
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            thread: self.thread.since(earlier.thread),
            polls: self.polls.saturating_sub(earlier.polls),
            yields: self.yields.saturating_sub(earlier.yields),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            parks: self.parks.saturating_sub(earlier.parks),
            wakes_in_vain: self.wakes_in_vain.saturating_sub(earlier.wakes_in_vain),
            spins_found: self.spins_found.saturating_sub(earlier.spins_found),
            spins_in_vain: self.spins_in_vain.saturating_sub(earlier.spins_in_vain),
            woken_here: self.woken_here.saturating_sub(earlier.woken_here),
            woken_from_elsewhere: self.woken_from_elsewhere.saturating_sub(earlier.woken_from_elsewhere),
            lock_waits: self.lock_waits.saturating_sub(earlier.lock_waits),
            lock_wait: self.lock_wait.since(earlier.lock_wait),
            long_polls: self.long_polls.saturating_sub(earlier.long_polls),
            long_polls_by_task: self
                .long_polls_by_task
                .iter()
                .enumerate()
                .map(|(at, kind)| kind.since(earlier.long_polls_by_task.get(at)))
                .collect(),
        }
    }
}

impl ClassMetrics {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            waiting: self.waiting,
            oldest: self.oldest,
            longest_wait: self.longest_wait,
            delays: self.delays.since(&earlier.delays),
            polls: self.polls.saturating_sub(earlier.polls),
            ran: self.ran.since(earlier.ran),
            late: self.late.saturating_sub(earlier.late),
            shed: self.shed.saturating_sub(earlier.shed),
            by_floor: self.by_floor.saturating_sub(earlier.by_floor),
            floor_permille: self.floor_permille,
        }
    }
}

impl ThreadMetrics {
    /// Of a thread of this process by the kernel's number of it; nothing where the kernel says nothing.
    #[must_use]
    pub fn of_this_process(thread: u64) -> Self {
        Self::of("self", thread)
    }

    /// Of a thread of a process, `self` for ours; nothing where the kernel says nothing.
    fn of(process: &str, thread: u64) -> Self {
        let task = PathBuf::from(format!("/proc/{process}/task/{thread}"));
        let times = SchedStat::of_task(&task).read().unwrap_or_default();
        let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Self {
            number: thread,
            ran: Nanos(times.ran_ns),
            queued: Nanos(times.queued_ns),
            switches_voluntary: field("voluntary_ctxt_switches"),
            switches_involuntary: field("nonvoluntary_ctxt_switches"),
        }
    }

    /// Another thread has begun since.
    fn since(self, earlier: Self) -> Self {
        let earlier = if self.number == earlier.number { earlier } else { Self::default() };
        Self {
            number: self.number,
            ran: self.ran.since(earlier.ran),
            queued: self.queued.since(earlier.queued),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self.switches_involuntary.saturating_sub(earlier.switches_involuntary),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(worker: WorkerMetrics) -> Metrics {
        let classes = vec![ClassMetrics::default(); 2];
        Metrics { time: Nanos(1_000_000_000), workers: vec![worker], classes, ..Metrics::default() }
    }

    fn words(metrics: &Metrics) -> Vec<String> {
        metrics
            .verdicts()
            .iter()
            .map(|verdict| verdict.to_string().split(':').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn each_fault_has_its_name() {
        let thread = ThreadMetrics { switches_involuntary: 9, ..ThreadMetrics::default() };
        let waits = WorkerMetrics { lock_wait: Nanos(100_000_000), thread, ..WorkerMetrics::default() };
        assert_eq!(words(&second(waits.clone())), ["convoy"]);
        let alone = WorkerMetrics { lock_wait: Nanos(99_999_999), ..waits.clone() };
        assert_eq!(words(&second(alone)), [""; 0]);
        let thread = ThreadMetrics { queued: Nanos(200_000_000), ..ThreadMetrics::default() };
        let starved = WorkerMetrics { thread, ..WorkerMetrics::default() };
        assert_eq!(words(&second(starved.clone())), ["CPU starvation"]);
        let held = WorkerMetrics {
            long_polls: 3,
            long_polls_by_task: vec![long("report", 2, 50)],
            ..WorkerMetrics::default()
        };
        let mut metrics = second(held);
        metrics.classes[1].longest_wait = Some(STARVED);
        // One that has had its turns all the time is as old.
        metrics.classes[0].oldest = Some(STARVED);
        let said = metrics.verdicts().pop().unwrap().to_string();
        assert!(
            said.starts_with("long polls: 3, 2 of them by \"report\" of class 7 in 50 ms; yield"),
            "{said}"
        );
        metrics.workers[0].long_polls = 0;
        assert_eq!(metrics.verdicts(), [Verdict::LongLine { class: 1 }], "nothing was before it");
        metrics.classes[0].ran = Nanos(100_000_000);
        assert_eq!(metrics.verdicts(), [Verdict::PriorityStarvation { class: 1 }]);
        metrics.classes[1].ran = Nanos(900_000_000);
        assert_eq!(metrics.verdicts(), [Verdict::LongLine { class: 1 }], "it waits for itself");
        let unknown = Metrics { time: Nanos(0), ..metrics.clone() };
        assert_eq!(unknown.verdicts(), [Verdict::LongLine { class: 1 }], "nobody knows of how long");
        metrics.classes[0].longest_wait = Some(STARVED);
        assert_eq!(metrics.verdicts(), [Verdict::LongLine { class: 0 }], "none is more important");
        // Where workers do not get to their work, no floor helps.
        for worker in [waits, starved] {
            let alone = words(&second(worker.clone()));
            metrics.workers[0] = worker;
            assert_eq!(words(&metrics), alone);
        }
    }

    fn long(name: &str, count: u64, ms: u64) -> LongPolls {
        LongPolls { name: name.to_owned(), class: 7, count, ran: Nanos(ms * 1_000_000) }
    }

    /// Goal: a long poll is named in the time in which it was, and in no later one. The kind of task that kept workers longest comes
    /// first: the longest poll may be that of a task whose worker had no processor meanwhile.
    #[test]
    fn long_polls_are_of_their_time() {
        let reading = |workers: [(u64, &[LongPolls]); 2]| {
            let workers = workers.map(|(long_polls, long)| WorkerMetrics {
                long_polls,
                long_polls_by_task: long.to_vec(),
                ..WorkerMetrics::default()
            });
            Metrics { workers: workers.into(), ..second(WorkerMetrics::default()) }
        };
        let none = reading([(0, &[]), (0, &[])]);
        let first = reading([(1, &[long("start", 1, 900)]), (0, &[])]);
        let later = reading([
            (4, &[long("start", 1, 900), long("serve", 1, 22), long("hog", 2, 40)]),
            (2, &[long("hog", 1, 20)]),
        ]);
        let verdicts = |now: &Metrics, earlier: &Metrics| now.since(earlier).verdicts();
        assert_eq!(
            verdicts(&first, &none),
            [Verdict::LongPolls { count: 1, by: vec![long("start", 1, 900)] }]
        );
        assert_eq!(verdicts(&later, &later), []);
        let said = verdicts(&later, &first);
        assert_eq!(
            said,
            [Verdict::LongPolls { count: 5, by: vec![long("hog", 3, 60), long("serve", 1, 22)] }]
        );
        let words = "long polls: 5, 3 of them by \"hog\" of class 7 in 60 ms, 1 of them by \"serve\" of class 7 in 22 ms; yield";
        assert!(said[0].to_string().starts_with(words), "{}", said[0]);
    }

    #[test]
    fn shares_are_of_what_was_received() {
        let mut metrics = second(WorkerMetrics::default());
        assert_eq!(metrics.share_permille(0), 0);
        (metrics.classes[0].ran, metrics.classes[1].ran) = (Nanos(3), Nanos(1));
        assert_eq!([0, 1, 2].map(|class| metrics.share_permille(class)), [750, 250, 0]);
    }

    #[test]
    fn the_kernel_knows_this_thread() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        // A thread that has just begun may not have been switched yet.
        std::thread::sleep(std::time::Duration::from_millis(1));
        let metrics = ThreadMetrics::of("self", u64::from(own.cast_unsigned()));
        assert!(metrics.switches_voluntary + metrics.switches_involuntary > 0 || metrics.ran > Nanos(0));
        let nobody = ThreadMetrics { number: u64::MAX, ..ThreadMetrics::default() };
        assert_eq!(ThreadMetrics::of("self", u64::MAX), nobody);
        // A thread that took its place has begun since.
        assert_eq!(metrics.since(ThreadMetrics { ran: Nanos::NEVER, ..nobody }), metrics);
    }
}
