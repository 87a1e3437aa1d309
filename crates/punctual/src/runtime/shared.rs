//! State that the threads of a runtime share, and the way of a wake: into the waking worker's own line, or by the inbox of the worker
//! that the task belongs to. Neither takes a lock that an idle worker holds, as an idle worker holds none.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use punctual_machine::awake::{Awake, Rung};
use punctual_machine::clock::Clock;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::doorbell::{Notification, sender_fence};
use punctual_machine::process::Maker;
use punctual_proto::Nanos;
use punctual_proto::classes::{Policy, Scheduler};

use super::line::{Charge, Choice, Line};
use super::options::{RuntimeOptions, StartError};
use super::page::{OfWorker, Page, WorkerPage};
use super::reactor::{Reactor, Reported};
use super::registry::Registry;
use super::seat::Seat;
use super::steady_time::SteadyTime;
use super::task::{Task, wake_all};
use super::worker::Substitutes;
use super::{context, nanos};
use crate::locks::{lock, try_lock};

#[derive(Debug)]
pub(super) struct Shared {
    time: SteadyTime,
    pub(super) seats: Vec<Seat>,
    /// By class: the workers to which its tasks belong.
    homes: Vec<Range<usize>>,
    pub(super) page: Arc<Page>,
    pub(super) awake: Awake,
    pub(super) stop: Flag,
    /// No worker polls any more: woken tasks are dropped.
    has_ended: Flag,
    /// Held by the thread that drops tasks. The thread that ends the runtime takes it before it raises `has_ended`.
    dropping: Mutex<()>,
    /// Threads that took a worker's place while a task blocked.
    pub(super) substitutes: Mutex<Substitutes>,
    /// The workers are tasks of another runtime, which has descriptors and timers of its own.
    pub(super) is_hosted: bool,
    maker: Maker,
    pub(super) reactor: Reactor,
    /// Workers that wait for descriptors and timers: of lanes, where there are any.
    leaders: usize,
    pub(super) registry: Mutex<Registry>,
    spawned: Counter,
    pub(super) turn: Nanos,
    pub(super) long_poll: Nanos,
}

impl Shared {
    /// State shared by workers that are threads, or tasks of another runtime.
    pub(super) fn new(options: &RuntimeOptions, is_hosted: bool) -> Result<Self, StartError> {
        let mut last_classes = Vec::new();
        let mut homes = vec![0..0; options.classes.len()];
        let lanes = options.lanes.iter().map(|lane| (lane.workers, lane.last_class));
        for (workers, last_class) in lanes.chain([(options.workers, u8::MAX)]) {
            let range = last_classes.len()..last_classes.len() + workers;
            last_classes.extend(std::iter::repeat_n(last_class, workers));
            for home in
                homes.iter_mut().take(usize::from(last_class) + 1).filter(|home| home.start == home.end)
            {
                *home = range.clone();
            }
        }
        let reserved = last_classes.len() - options.workers;
        let clock = Clock::get();
        let started = clock.now();
        let page = Page::create(options, last_classes.len(), started)?;
        let seat = |(index, last_class)| Seat::new(options, WorkerPage::new(&page, index), last_class);
        let seats: Vec<Seat> = last_classes.into_iter().enumerate().map(seat).collect::<Result<_, _>>()?;
        let leaders = if reserved > 0 { reserved } else { seats.len() };
        Ok(Self {
            time: SteadyTime::from(clock, started),
            homes,
            seats,
            awake: Awake::new(punctual_machine::cpu::allowed().len() as u64),
            stop: Flag::default(),
            has_ended: Flag::default(),
            dropping: Mutex::default(),
            substitutes: Mutex::default(),
            is_hosted,
            maker: Maker::this_process(),
            reactor: Reactor::new(&page)?,
            leaders,
            registry: Mutex::new(Registry::new(options.tasks_max, &page)),
            spawned: Counter::default(),
            turn: nanos(options.turn),
            long_poll: nanos(options.long_poll),
            page,
        })
    }

    /// False in a child that was forked since: it has a copy, and none of the workers.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.maker.is_this_process()
    }

    /// The time since the start.
    #[inline]
    pub(super) fn now(&self) -> Nanos {
        self.time.now()
    }

    /// Classes from 0.
    pub(super) fn classes(&self) -> usize {
        self.homes.len()
    }

    fn homes(&self, class: u8) -> &Range<usize> {
        &self.homes[usize::from(class).min(self.homes.len() - 1)]
    }

    /// The worker of a new task: this one if it serves the class, else one after the other.
    pub(super) fn home_of_new(&self, class: u8) -> usize {
        let homes = self.homes(class);
        match context::worker_of(self).filter(|worker| homes.contains(worker)) {
            Some(worker) => worker,
            None => {
                self.spawned.add(1);
                homes.start + self.spawned.get() as usize % homes.len()
            }
        }
    }

    /// A task was woken.
    pub(super) fn schedule(&self, task: Task, is_running: bool) {
        let now = self.now();
        let meta = task.metadata();
        meta.handle_wake(now, is_running, context::waking_request(self));
        let class = meta.class;
        match context::worker_of(self).filter(|worker| self.homes(class).contains(worker)) {
            // The task that a worker polls may have ended the runtime. A thread that drops tasks looks at inboxes last, and at no line.
            Some(worker) if !self.has_ended.is_raised() => self.push_here(worker, task, now),
            _ => self.push_there(task),
        }
    }

    /// Onto the line of the worker whose thread this is.
    fn push_here(&self, worker: usize, task: Task, now: Nanos) {
        let seat = &self.seats[worker];
        let class = task.metadata().class;
        task.metadata().home.set(worker as u64);
        seat.page.count(OfWorker::WokenHere).add_alone(1);
        seat.push_here(&mut seat.lock(self, &seat.page), task, now);
        self.notify(self.awake.wake_for(class, worker, &self.seats));
    }

    /// Into the inbox of the worker to which the task belongs.
    fn push_there(&self, task: Task) {
        let meta = task.metadata();
        let (class, home) = (meta.class, meta.home.get() as usize);
        self.seats[home].push(task);
        self.notify(self.awake.wake_home(class, home, &self.seats));
        // Behind the bell's fence: the thread that ends sees the task, or we see the end.
        if self.has_ended.is_raised() {
            self.drop_ready_unless_another_does();
        }
    }

    /// Wakes a worker if it sleeps.
    fn wake_worker(&self, worker: usize) {
        let notification = self.seats[worker].intake.bell.ring();
        self.notify(notification.map(|notification| (worker, notification)));
    }

    /// True if a worker may lead.
    pub(super) fn may_lead(&self, worker: usize) -> bool {
        worker < self.leaders
    }

    /// A descriptor from now on, under a number.
    pub(super) fn add_descriptor(
        &self,
        descriptor: BorrowedFd<'_>,
        reported: Arc<dyn Reported>,
    ) -> io::Result<u64> {
        let (number, is_first) = self.reactor.add(descriptor, reported).map_err(io::Error::other)?;
        // The leader may sleep as where there are no descriptors.
        if is_first {
            self.wake_leader();
        }
        Ok(number)
    }

    /// Nobody waits for it any more. In a forked child nothing happens: what the kernel reports is its parent's.
    pub(super) fn remove_descriptor(&self, descriptor: BorrowedFd<'_>, number: u64) {
        if self.is_of_this_process() {
            self.reactor.remove(descriptor, number);
        }
    }

    /// There is a first descriptor, or an earlier timer: a worker that sleeps over both begins anew.
    pub(super) fn wake_leader(&self) {
        sender_fence(); // A worker that sleeps sees what there is to wait for, or we see that it leads, or sleeps.
        if self.reactor.is_led.get_published() != 0 {
            self.wake_worker(self.reactor.leader.get() as usize);
        } else {
            self.wake_to_lead(None);
        }
    }

    /// A worker that has slept is about to poll a task, for however long. If it led, and there is something to wait for, another one
    /// that sleeps leads from now on.
    pub(super) fn hand_lead_on(&self, worker: usize) {
        if self.reactor.is_led.get_published() != 0 {
            return;
        }
        sender_fence(); // A worker that goes to sleep sees that nobody leads, or we see that it sleeps.
        if self.reactor.has_any() {
            self.wake_to_lead(Some(worker));
        }
    }

    /// Behind a fence: wakes one that may lead, if one sleeps.
    fn wake_to_lead(&self, except: Option<usize>) {
        let may_lead = self.seats.iter().enumerate().take(self.leaders);
        let _woken = may_lead.filter(|(worker, _)| Some(*worker) != except).any(|(worker, seat)| {
            let notification = seat.intake.bell.ring_fenced();
            self.notify(notification.map(|notification| (worker, notification)));
            notification.is_some()
        });
    }

    /// True if a worker that is about to sleep is to lead: it may, nobody does, and there is something to wait for.
    pub(super) fn is_to_lead(&self, worker: usize) -> bool {
        self.may_lead(worker) && self.reactor.is_led.get_published() == 0 && self.reactor.has_any()
    }

    /// Sends the notification that a bell asks for.
    fn notify(&self, rung: Option<Rung>) {
        match rung {
            None => {}
            Some((worker, Notification::Futex)) => self.seats[worker].intake.bell.wake_futex(),
            Some((worker, Notification::Descriptor)) if self.is_hosted => self.seats[worker].wake_sleeper(),
            Some((_, Notification::Descriptor)) => self.reactor.ring(),
        }
    }

    /// Charges a class for a poll of this worker, in the line that chose it. The poll is counted elsewhere.
    pub(super) fn charge(&self, worker: usize, choice: &Choice, ran: Nanos) {
        let own = &self.seats[worker];
        let mut line = self.seats[choice.line].lock(self, &own.page);
        let is_stolen = choice.line != worker;
        let charge = if is_stolen { Scheduler::charge_handed_over } else { Scheduler::charge };
        charge(&mut line.scheduler, &choice.next, ran);
    }

    /// Counts a worker's last poll, and charges its class.
    pub(super) fn settle(&self, worker: usize, charge: &Charge) {
        drop(self.lock_settled(worker, charge));
    }

    /// The line of a worker whose last poll was counted and charged.
    fn lock_settled(&self, worker: usize, charge: &Charge) -> MutexGuard<'_, Line> {
        let seat = &self.seats[worker];
        let Charge { choice, ran, is_charged, .. } = charge;
        let is_stolen = choice.line != worker;
        // One lock after the other: two workers that took from each other's lines would wait for ever.
        if is_stolen && !is_charged {
            self.charge(worker, choice, *ran);
        }
        let mut line = seat.lock(self, &seat.page);
        line.count(charge);
        if !is_stolen && !is_charged {
            line.scheduler.charge(&choice.next, *ran);
        }
        line
    }

    /// The next task of this worker; the last poll is counted and charged first.
    pub(super) fn next(&self, worker: usize, charge: Option<Charge>, now: Nanos) -> Option<(Task, Choice)> {
        let seat = &self.seats[worker];
        let mut line = match charge {
            Some(charge) => self.lock_settled(worker, &charge),
            None => seat.lock(self, &seat.page),
        };
        let (next, first) = seat.choose(&mut line, seat.intake.last_class, now);
        drop(line);
        // A worker that takes one and leaves others sees to it that a worker without work comes for them.
        if let Some(first) = first {
            self.notify(self.awake.wake_for(first, worker, &self.seats));
        }
        next.map(|(task, next)| (task, Choice { next, line: worker }))
    }

    /// A task of another worker's line, for one that has none.
    pub(super) fn steal(&self, worker: usize, now: Nanos) -> Option<(Task, Choice)> {
        let own = &self.seats[worker];
        let choose = |other: usize| {
            let seat = &self.seats[other];
            let mut line = seat.lock(self, &own.page);
            let (next, left) = seat.choose(&mut line, own.intake.last_class, now);
            if let Some((_, chosen)) = &next {
                line.scheduler.hand_over(chosen);
            }
            (next.map(|(task, next)| (task, Choice { next, line: other })), left)
        };
        let stolen = self.awake.steal(worker, &self.seats, choose, |rung| self.notify(Some(rung)))?;
        let meta = stolen.0.metadata();
        if self.homes(meta.class).contains(&worker) {
            meta.home.set(worker as u64);
        }
        own.page.count(OfWorker::Stolen).add_alone(1);
        Some(stolen)
    }

    /// True if a worker that is awake has anything to do.
    pub(super) fn has_work(&self, worker: usize) -> bool {
        self.awake.has_work(worker, &self.seats) || self.stop.is_raised()
    }

    /// True if a worker that has left, because it is about to sleep, would have anything to do.
    pub(super) fn would_have_work(&self, worker: usize) -> bool {
        self.awake.would_have_work(worker, &self.seats) || self.stop.is_raised()
    }

    /// A worker goes to sleep: others get its processor, where tasks wait that it does not serve.
    pub(super) fn leave(&self, worker: usize) {
        self.awake.leave();
        self.notify(self.awake.hand_on(worker, &self.seats));
    }

    /// A worker has left, as its thread blocks and no other thread is it: others have its processor for what waits.
    pub(super) fn hand_all_on(&self, worker: usize) {
        self.notify(self.awake.hand_all_on(worker, &self.seats));
    }

    /// All workers end as soon as their polls do.
    pub(super) fn stop_workers(&self) {
        self.stop.raise();
        for worker in 0..self.seats.len() {
            self.wake_worker(worker);
        }
    }

    /// Drops every task, when no worker polls any more, and refuses those that come.
    pub(super) fn end_tasks(&self) {
        // Woken, each task that waits comes into some inbox, from where it is dropped. That may wake others.
        let wakers = lock(&self.registry).close();
        wake_all(wakers.into_iter().chain(self.reactor.forget()));
        // Before others see the end: one of them would drop all tasks, and this would return meanwhile.
        let dropping = lock(&self.dropping);
        // One that another thread has just woken is not here yet: that thread drops it.
        self.has_ended.raise();
        sender_fence();
        self.drop_ready(dropping);
    }

    /// Drops every task that is ready, unless another thread does, or this one further out: that one does it.
    fn drop_ready_unless_another_does(&self) {
        if let Some(dropping) = try_lock(&self.dropping) {
            self.drop_ready(dropping);
        }
    }

    /// Drops every task that is ready, and those that this wakes.
    fn drop_ready<'s>(&'s self, mut dropping: MutexGuard<'s, ()>) {
        loop {
            loop {
                let tasks: Vec<Task> = self.seats.iter().flat_map(Seat::empty).collect();
                if tasks.is_empty() {
                    break;
                }
                drop(tasks);
            }
            drop(dropping);
            // A thread that found the lock taken has put its task where we see it now.
            sender_fence();
            if self.seats.iter().all(|seat| seat.intake.has_no_news()) {
                return;
            }
            let Some(again) = try_lock(&self.dropping) else { return };
            dropping = again;
        }
    }

    /// From now on every worker chooses so.
    pub(super) fn set_policy(&self, policy: Policy) {
        for seat in &self.seats {
            seat.set_policy(policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use punctual_machine::parker;
    use punctual_proto::classes::{Next, Why};

    use super::super::options::BLOCKING_MAX;
    use super::super::worker::Worker;
    use super::super::{Handle, Lane, TaskOptions, Urgency, blocking};
    use super::*;

    /// Goal: a worker that is awake sees what it then may take from another one. One that is about to sleep sees what it could take
    /// if it were awake.
    #[test]
    fn an_awake_worker_sees_what_it_may_take() {
        for (awake, sees) in [(1, true), (2, true), (3, false)] {
            let mut shared =
                Shared::new(&RuntimeOptions { workers: 3, ..RuntimeOptions::default() }, false).unwrap();
            shared.awake = Awake::new(2);
            let shared = Arc::new(shared);
            (0..awake).for_each(|_| shared.awake.enter());
            let place = context::take_place(&shared, 0);
            drop(Handle { shared: Arc::clone(&shared) }.spawn(TaskOptions::of_class(3), async {}).unwrap());
            drop(place);
            let would_see = |of: &Shared| {
                of.awake.leave();
                let would = of.would_have_work(1);
                of.awake.enter();
                would
            };
            assert_eq!((shared.has_work(1), would_see(&shared)), (sees, sees), "{awake} awake");
            assert_eq!(shared.steal(1, shared.now()).is_some(), sees, "{awake} awake");
            shared.end_tasks();
        }
    }

    /// Goal: a worker that goes to sleep while a thief empties its inbox is woken for what the thief leaves, however many are awake.
    /// Method: its last look finds nothing, as one between the thief's two stores does.
    #[test]
    fn a_thief_wakes_for_what_it_leaves() {
        let lanes = vec![Lane { workers: 1, last_class: 1, urgency: Urgency::Inherited }];
        let options = RuntimeOptions { workers: 1, lanes, ..RuntimeOptions::default() };
        let mut shared = Shared::new(&options, false).unwrap();
        shared.awake = Awake::new(1);
        let shared = Arc::new(shared);
        shared.awake.enter();
        drop(Handle { shared: Arc::clone(&shared) }.spawn(TaskOptions::of_class(5), async {}).unwrap());
        let bell = &shared.seats[1].intake.bell;
        assert!(bell.arm(Notification::Futex, || false));
        assert!(shared.steal(0, shared.now()).is_none());
        assert!(!bell.is_armed(), "nobody is awake for the task");
        assert!(shared.would_have_work(1));
        shared.end_tasks();
    }

    impl Shared {
        /// Two processors, a lane that is worker 0, and two workers. Worker 1 is in a poll; a task for it came while worker 0 was awake, too.
        pub(in crate::runtime) fn with_a_task_behind_a_poll(is_hosted: bool, how: Notification) -> Arc<Self> {
            let lanes = vec![Lane { workers: 1, last_class: 1, urgency: Urgency::Inherited }];
            let options = RuntimeOptions { workers: 2, lanes, ..RuntimeOptions::default() };
            let mut shared = Self::new(&options, is_hosted).unwrap();
            shared.awake = Awake::new(2);
            let shared = Arc::new(shared);
            (0..2).for_each(|_| shared.awake.enter());
            let bell = &shared.seats[2].intake.bell;
            assert!(bell.arm(how, || false));
            let place = context::take_place(&shared, 1);
            drop(Handle { shared: Arc::clone(&shared) }.spawn(TaskOptions::of_class(5), async {}).unwrap());
            drop(place);
            assert!(bell.is_armed(), "no processor is free");
            shared.awake.leave();
            shared
        }
    }

    /// Two workers, of which all tasks belong to the first, so that the second is a thief.
    fn with_a_thief() -> Arc<Shared> {
        let lanes = vec![Lane { workers: 1, last_class: u8::MAX, urgency: Urgency::Inherited }];
        Arc::new(Shared::new(&RuntimeOptions { lanes, ..RuntimeOptions::default() }, false).unwrap())
    }

    /// Tasks that wait for ever, of these classes.
    fn spawn_pending(shared: &Arc<Shared>, classes: &[u8]) {
        let handle = Handle { shared: Arc::clone(shared) };
        let spawn = |&class| handle.spawn(TaskOptions::of_class(class), std::future::pending::<()>());
        classes.iter().for_each(|class| drop(spawn(class).unwrap()));
    }

    /// The end of a poll that took so long.
    fn charge_of(choice: Choice, ran: Nanos) -> Charge {
        let (is_charged, is_late, is_long, has_yielded) = (false, false, false, false);
        Charge { choice, ran, is_charged, name: "", delay: Nanos(0), is_late, is_long, has_yielded }
    }

    /// Goal: a thief takes the important tasks first, as the worker itself would: each class has its floor, and no more.
    #[test]
    fn a_thief_keeps_the_order_of_classes() {
        let shared = with_a_thief();
        spawn_pending(&shared, &[0, 0, 0, 7, 7, 7]);
        let (mut now, mut classes) = (Nanos::from_millis(1_000), Vec::new());
        while let Some((task, choice)) = shared.steal(1, now) {
            drop(task);
            let poll = Nanos::from_millis(1);
            now = now.plus(poll);
            shared.settle(1, &charge_of(choice, poll));
            classes.push(choice.next.ready.class);
        }
        assert_eq!(classes, [0, 7, 0, 0, 7, 7]);
        shared.end_tasks();
    }

    /// Goal: the floors of a thief's own tasks are kept, however much it did for others' before.
    #[test]
    fn a_theft_makes_no_debt_at_the_thief() {
        let (shared, ms) = (with_a_thief(), Nanos::from_millis);
        spawn_pending(&shared, &[0, 7]);
        let mut tasks = Vec::new();
        for now in [ms(1_000), ms(1_200)] {
            let (task, choice) = shared.steal(1, now).expect("a task is there");
            shared.settle(1, &charge_of(choice, ms(50)));
            tasks.push((task, choice));
        }
        assert_eq!(tasks.iter().map(|(_, choice)| choice.next.ready.class).collect::<Vec<_>>(), [0, 7]);
        // One more, for a floor.
        let choice = tasks[1].1;
        let by_floor = Choice { next: Next { why: Why::Floor, ..choice.next }, ..choice };
        shared.settle(1, &charge_of(by_floor, ms(50)));
        let (begin, mut ran) = (ms(1_300), [0; 2]);
        tasks.into_iter().for_each(|(task, _)| shared.seats[1].push(task));
        let (mut now, mut charge) = (begin, None);
        while now < begin.plus(ms(1_000)) {
            let (task, choice) = shared.next(1, charge, now).expect("two tasks are there");
            shared.seats[1].push(task);
            now = now.plus(ms(1));
            charge = Some(charge_of(choice, ms(1)));
            ran[usize::from(choice.next.ready.class > 0)] += 1;
        }
        assert!((19..=21).contains(&ran[1]), "{ran:?} of 1,000, of which 20 are the floor");
        shared.end_tasks();
    }

    /// Goal: no task lives when the end returns. Another thread that drops tasks is waited for, and none sees the end before. Method:
    /// that thread has taken them all.
    #[test]
    fn the_end_waits_for_a_thread_that_drops_tasks() {
        let (shared, (says, said)) = (with_a_thief(), mpsc::channel());
        spawn_pending(&shared, &[0]);
        let theirs = Arc::clone(&shared);
        let drops = thread::spawn(move || {
            let dropping = lock(&theirs.dropping);
            let tasks: Vec<Task> = theirs.seats.iter().flat_map(Seat::empty).collect();
            says.send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            assert!(!theirs.has_ended.is_raised());
            drop((tasks, dropping));
        });
        said.recv().unwrap();
        shared.end_tasks();
        assert_eq!(lock(&shared.registry).len(), 0);
        drops.join().unwrap();
    }

    /// Goal: a task that ended its own runtime is dropped, though another thread is about to have dropped all. Method: that thread has
    /// emptied every line, and looks at inboxes alone from then on.
    #[test]
    fn a_task_that_ended_its_runtime_is_not_left() {
        let shared = with_a_thief();
        shared.has_ended.raise();
        let dropping = lock(&shared.dropping);
        let place = context::take_place(&shared, 0);
        spawn_pending(&shared, &[0]);
        assert!(!shared.seats[0].intake.has_no_news(), "it stands in a line");
        drop(place);
        shared.drop_ready(dropping);
        assert_eq!(lock(&shared.registry).len(), 0);
    }

    /// Goal: a worker of a lane that goes to sleep gives its processor to one that sleeps, for a task behind a long poll.
    #[test]
    fn a_worker_that_goes_to_sleep_hands_its_processor_on() {
        const WATCHDOG: Duration = Duration::from_secs(60);
        let shared = Shared::with_a_task_behind_a_poll(false, Notification::Futex);
        let theirs = Arc::clone(&shared);
        let lane = thread::spawn(move || Worker::new(&theirs, 0).run());
        let began = Instant::now();
        while shared.seats[2].intake.bell.is_armed() {
            assert!(began.elapsed() < WATCHDOG, "nobody comes for the task");
            thread::yield_now();
        }
        shared.stop_workers();
        lane.join().unwrap();
        shared.end_tasks();
    }

    /// Goal: a worker that is to lead serves its tasks while another one looks, which may have lost its processor.
    #[test]
    fn a_worker_that_waits_for_the_lead_serves_its_tasks() {
        const WATCHDOG: Duration = Duration::from_secs(60);
        let options = RuntimeOptions { workers: 1, ..RuntimeOptions::default() };
        let shared = Arc::new(Shared::new(&options, false).unwrap());
        let looks = shared.reactor.lead().unwrap();
        let theirs = Arc::clone(&shared);
        let worker = thread::spawn(move || Worker::new(&theirs, 0).run());
        // It has spun in vain then, and waits.
        thread::sleep(Duration::from_millis(50));
        let (handle, is_served) = (Handle { shared: Arc::clone(&shared) }, Arc::new(Flag::default()));
        let served = Arc::clone(&is_served);
        drop(handle.spawn(TaskOptions::of_class(0), async move { served.raise() }).unwrap());
        let began = Instant::now();
        while !is_served.is_raised() {
            assert!(began.elapsed() < WATCHDOG, "it waits for the lead alone");
            thread::yield_now();
        }
        drop(looks);
        shared.stop_workers();
        worker.join().unwrap();
        shared.end_tasks();
    }

    /// Goal: a worker whose thread blocks gives its processor to one that sleeps, where no other thread can be had.
    #[test]
    fn a_worker_that_blocks_hands_its_processor_on() {
        const WATCHDOG: Duration = Duration::from_secs(60);
        let options = RuntimeOptions { workers: 2, ..RuntimeOptions::default() };
        let mut shared = Shared::new(&options, false).unwrap();
        shared.awake = Awake::new(1);
        let shared = Arc::new(shared);
        lock(&shared.substitutes).replaced = BLOCKING_MAX;
        let handle = Handle { shared: Arc::clone(&shared) };
        let [is_blocked, is_over] = [(); 2].map(|()| Arc::new(Flag::default()));
        let (theirs, blocks_now, over) = (handle.clone(), Arc::clone(&is_blocked), Arc::clone(&is_over));
        let blocks = async move {
            let bell = &theirs.shared.seats[1].intake.bell;
            assert!(bell.arm(Notification::Futex, || false));
            drop(theirs.spawn(TaskOptions::of_class(5), async {}).unwrap());
            assert!(bell.is_armed(), "the processor is not free yet");
            blocks_now.raise();
            blocking(|| {
                while !over.is_raised() {
                    thread::yield_now();
                }
            });
        };
        let join = handle.spawn(TaskOptions::of_class(0), blocks).unwrap();
        let theirs = Arc::clone(&shared);
        let worker = thread::spawn(move || Worker::new(&theirs, 0).run());
        let began = Instant::now();
        while !is_blocked.is_raised() || shared.seats[1].intake.bell.is_armed() {
            assert!(began.elapsed() < WATCHDOG, "nobody comes for the task");
            thread::yield_now();
        }
        is_over.raise();
        parker::block_on(join).unwrap();
        shared.stop_workers();
        worker.join().unwrap();
        shared.end_tasks();
    }

    /// Goal: a lane without workers takes no class from the lanes and workers behind it, wherever it stands.
    #[test]
    fn a_lane_without_workers_is_none() {
        let lane = |workers, last_class| Lane { workers, last_class, urgency: Urgency::Inherited };
        let (one, none) = (lane(1, 1), lane(0, 3));
        for lanes in [vec![one], vec![none, one], vec![one, none], vec![none, one, none]] {
            let options = RuntimeOptions { workers: 2, lanes: lanes.clone(), ..RuntimeOptions::default() };
            let shared = Shared::new(&options, false).unwrap();
            let homes: Vec<_> = (0..5).map(|class| shared.homes(class).clone()).collect();
            assert_eq!(homes, [0..1, 0..1, 1..3, 1..3, 1..3], "{lanes:?}");
            assert!(
                (0..5).all(|class| shared.homes(class).contains(&shared.home_of_new(class))),
                "{lanes:?}"
            );
        }
    }
}
