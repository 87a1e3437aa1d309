//! Number of workers that are awake, and the worker that comes for a task which one of them leaves in its line.
//!
//! So many awake workers as there are processors are enough: one more would take a processor in the middle of another's poll. Beyond
//! that nobody is woken for a task and nobody steals, so a task may wait behind a long poll until a processor is free.
//!
//! Rules:
//! 1. A thread that leaves a task in a line notes it there ([`Intake`]), then counts the awake workers: fence (A) stands between both.
//! 2. A worker that goes to sleep leaves first, and then looks for tasks in lines and inboxes. For tasks it serves, the fence of its
//!    own bell stands between both, for the rest fence (B): it wakes another one for that ([`Awake::hand_on`]). So a task is seen, or
//!    the free processor. A worker whose thread blocks serves none, and does likewise for all ([`Awake::hand_all_on`]).
//! 3. A worker that has left counts itself when it looks whether it would have something to do ([`Awake::would_have_work`]).
//!
//! Nobody is notified here: the worker to notify, and the way to do it, are given back.

use crate::counter::Counter;
use crate::doorbell::Notification;
use crate::intake::Intake;
use crate::mutant::{fence, without};

/// A worker by its number, and the notification that must now be sent to it.
pub type Rung = (usize, Notification);

/// Number of workers of a runtime that are awake.
#[derive(Debug)]
pub struct Awake {
    /// Those that the workers may use.
    processors: u64,
    count: Counter,
}

impl Awake {
    /// Nobody is, yet.
    #[must_use]
    pub fn new(processors: u64) -> Self {
        Self { processors, count: Counter::default() }
    }

    /// One more worker is awake.
    #[inline]
    pub fn enter(&self) {
        self.count.add(1);
    }

    /// One worker fewer is. If it is about to sleep, it hands on: [`Self::hand_on`].
    #[inline]
    pub fn leave(&self) {
        self.count.add(u64::MAX);
    }

    /// A task of this class was left in a worker's line, and noted: another one that serves it, if one sleeps and a processor may be
    /// free.
    pub fn wake_for<T>(&self, class: u8, worker: usize, workers: &[impl AsRef<Intake<T>>]) -> Option<Rung> {
        if workers.len() == 1 {
            return None;
        }
        fence!("awake_wake_fence", SeqCst); // (A) pairs with (B) in `hand_on`, and with that of a sleeper's bell.
        self.wake_for_fenced(class, worker, workers)
    }

    /// A task of this class was pushed into a worker's inbox: that worker, or another one where it does not sleep. In either case there
    /// is a fence behind the push.
    pub fn wake_home<T>(&self, class: u8, home: usize, workers: &[impl AsRef<Intake<T>>]) -> Option<Rung> {
        match workers[home].as_ref().bell.ring() {
            Some(notification) => Some((home, notification)),
            None if without!("awake_wake_home") => None,
            None => self.wake_for_fenced(class, home, workers),
        }
    }

    /// Behind a fence.
    fn wake_for_fenced<T>(
        &self,
        class: u8,
        except: usize,
        workers: &[impl AsRef<Intake<T>>],
    ) -> Option<Rung> {
        if self.count.get() >= self.processors {
            return None;
        }
        let others = workers.iter().map(AsRef::as_ref).enumerate().filter(|(other, _)| *other != except);
        others
            .filter(|(_, intake)| class <= intake.last_class)
            .find_map(|(other, intake)| Some((other, intake.bell.ring_fenced()?)))
    }

    /// A worker has left to sleep. While all processors had a worker, tasks that it does not serve may have come behind another one's
    /// long poll. A worker that sleeps and serves them has a processor now. Tasks that this one serves are its own to take.
    pub fn hand_on<T>(&self, worker: usize, workers: &[impl AsRef<Intake<T>>]) -> Option<Rung> {
        let last_class = workers[worker].as_ref().last_class;
        if last_class == u8::MAX || without!("awake_hand_on") {
            return None;
        }
        self.hand_on_behind(Some(last_class), worker, workers)
    }

    /// A worker has left because its thread blocks in a poll. Its tasks wait for another one from now on, too.
    pub fn hand_all_on<T>(&self, worker: usize, workers: &[impl AsRef<Intake<T>>]) -> Option<Rung> {
        if without!("awake_hand_all_on") {
            return None;
        }
        self.hand_on_behind(None, worker, workers)
    }

    /// Wakes one for what waits of the classes behind this one, or of all.
    fn hand_on_behind<T>(
        &self,
        served: Option<u8>,
        worker: usize,
        workers: &[impl AsRef<Intake<T>>],
    ) -> Option<Rung> {
        fence!("awake_hand_on_fence", SeqCst); // (B) pairs with (A) in `wake_for`: a worker that leaves a task sees that we have left, or we see it.
        let waiting = workers.iter().filter_map(|other| other.as_ref().waiting_class());
        let first = waiting.filter(|&class| served.is_none_or(|served| class > served)).min()?;
        self.wake_for_fenced(first, worker, workers)
    }

    /// Takes a task of another worker's line, for one that has none. `choose` takes one out of the line of a worker, if the line has
    /// one for this one. It also says the first class left in that line. The worker that is to come for the rest goes to `notify`.
    pub fn steal<T, R>(
        &self,
        worker: usize,
        workers: &[impl AsRef<Intake<T>>],
        mut choose: impl FnMut(usize) -> (Option<R>, Option<u8>),
        mut notify: impl FnMut(Rung),
    ) -> Option<R> {
        // One processor for two workers would be given from the one to the other in the middle of polls.
        if self.count.get() > self.processors {
            return None;
        }
        let last_class = workers[worker].as_ref().last_class;
        let others = (1..workers.len()).map(|distance| (worker + distance) % workers.len());
        for other in others {
            if !workers[other].as_ref().has_up_to(last_class) {
                continue;
            }
            let (chosen, left) = choose(other);
            if let Some(rung) = left.and_then(|first| self.hand_back(other, first, worker, workers)) {
                notify(rung);
            }
            if chosen.is_some() {
                return chosen;
            }
        }
        None
    }

    /// A thief leaves tasks in another worker's line, the most important of this class. A worker that looked while it moved them there
    /// saw none of them: that worker on its way to sleep, or one without work.
    fn hand_back<T>(
        &self,
        other: usize,
        first: u8,
        thief: usize,
        workers: &[impl AsRef<Intake<T>>],
    ) -> Option<Rung> {
        // This does not depend on how many are awake: all but that worker may serve other classes alone.
        match workers[other].as_ref().hand_back() {
            Some(notification) => Some((other, notification)),
            None if without!("awake_hand_back") => None,
            None => self.wake_for_fenced(first, thief, workers),
        }
    }

    /// Returns true if a worker that is awake has anything to do.
    pub fn has_work<T>(&self, worker: usize, workers: &[impl AsRef<Intake<T>>]) -> bool {
        self.has_work_among(worker, workers, self.count.get())
    }

    /// Returns true if a worker that has left, because it is about to sleep, would have anything to do.
    pub fn would_have_work<T>(&self, worker: usize, workers: &[impl AsRef<Intake<T>>]) -> bool {
        self.has_work_among(worker, workers, self.count.get() + 1)
    }

    /// The same, with so many awake, this one included.
    fn has_work_among<T>(&self, worker: usize, workers: &[impl AsRef<Intake<T>>], awake: u64) -> bool {
        let own = workers[worker].as_ref();
        let mut others = workers.iter().map(AsRef::as_ref).enumerate().filter(|(other, _)| *other != worker);
        own.has_up_to(own.last_class)
            // As `steal` says.
            || awake <= self.processors && others.any(|(_, intake)| intake.has_up_to(own.last_class))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::inbox::Entry;
    use loom::sync::{Arc, Mutex, Notify};
    use loom::thread;

    /// Serves all classes.
    const ALL: u8 = u8::MAX;

    /// A worker, its line, and what wakes it. Values are classes.
    struct Worker {
        intake: Intake<u8>,
        line: Mutex<Vec<u8>>,
        notify: Notify,
    }

    impl AsRef<Intake<u8>> for Worker {
        fn as_ref(&self) -> &Intake<u8> {
            &self.intake
        }
    }

    /// The work of the runtime around the code above: locks, and notifications.
    struct Workers {
        awake: Awake,
        each: Vec<Worker>,
    }

    impl Workers {
        /// Workers that serve so many classes, of which so many are awake.
        fn new(processors: u64, last_classes: &[u8], awake: usize) -> Arc<Self> {
            let worker = |&last_class| Worker {
                intake: Intake::new(last_class),
                line: Mutex::new(Vec::new()),
                notify: Notify::new(),
            };
            let each = last_classes.iter().map(worker).collect();
            let workers = Self { awake: Awake::new(processors), each };
            (0..awake).for_each(|_| workers.awake.enter());
            Arc::new(workers)
        }

        fn notify(&self, rung: Option<Rung>) {
            if let Some((worker, _)) = rung {
                self.each[worker].notify.notify();
            }
        }

        fn push_there(&self, home: usize, class: u8) {
            self.each[home].intake.push(Entry::new(), class);
            self.notify(self.awake.wake_home(class, home, &self.each));
        }

        fn push_here(&self, worker: usize, class: u8) {
            let Worker { intake, line, .. } = &self.each[worker];
            intake.change(&mut *line.lock().unwrap(), |line| (line.push(class), Some(class)));
            self.notify(self.awake.wake_for(class, worker, &self.each));
        }

        /// Takes one of these classes out of a worker's line, and says what is first then.
        fn choose(&self, of: usize, last_class: u8) -> (Option<u8>, Option<u8>) {
            let Worker { intake, line, .. } = &self.each[of];
            intake.choose(&mut *line.lock().unwrap(), |line, new| {
                line.extend(new.filter_map(|mut entry| entry.take()));
                line.sort_unstable();
                let has_one = line.first().is_some_and(|&class| class <= last_class);
                (has_one.then(|| line.remove(0)), line.first().copied())
            })
        }

        fn next(&self, worker: usize) -> Option<u8> {
            let (next, left) = self.choose(worker, self.each[worker].intake.last_class);
            let rung = left.and_then(|first| self.awake.wake_for(first, worker, &self.each));
            self.notify(rung);
            next
        }

        fn steal(&self, worker: usize) -> Option<u8> {
            let last_class = self.each[worker].intake.last_class;
            let choose = |other| self.choose(other, last_class);
            self.awake.steal(worker, &self.each, choose, |rung| self.notify(Some(rung)))
        }

        /// Leaves, sleeps by its bell until there may be something, and enters.
        fn park(&self, worker: usize, is_over: impl Fn() -> bool) {
            self.awake.leave();
            self.notify(self.awake.hand_on(worker, &self.each));
            let Worker { intake, notify, .. } = &self.each[worker];
            let is_ready = |_: &mut ()| self.awake.would_have_work(worker, &self.each) || is_over();
            intake.bell.sleep(Notification::Futex, &mut (), is_ready, |()| notify.wait());
            self.awake.enter();
        }
    }

    /// Goal: nobody is left asleep over a task that a thief finds and does not serve. loom reports a sleeper that nobody wakes.
    #[test]
    fn a_thief_leaves_nobody_asleep() {
        loom::model(|| {
            let workers = Workers::new(3, &[ALL, 1], 2);
            let theirs = Arc::clone(&workers);
            let pusher = thread::spawn(move || theirs.push_there(0, 5));
            let theirs = Arc::clone(&workers);
            let thief = thread::spawn(move || assert_eq!(theirs.steal(1), None));
            while workers.next(0).is_none() {
                workers.park(0, || false);
            }
            pusher.join().unwrap();
            thief.join().unwrap();
        });
    }

    /// Goal: where the worker itself is busy, one without work comes for what a thief leaves.
    #[test]
    fn a_thief_leaves_no_other_asleep() {
        loom::model(|| {
            let workers = Workers::new(3, &[ALL, 1, ALL], 3);
            workers.each[0].intake.push(Entry::new(), 5);
            let theirs = Arc::clone(&workers);
            let without_work = thread::spawn(move || {
                while theirs.steal(2).is_none() {
                    theirs.park(2, || false);
                }
            });
            // On the first thread: loom tries few orders where that one would take the task at once.
            assert_eq!(workers.steal(1), None);
            without_work.join().unwrap();
        });
    }

    /// Goal: where the worker itself is busy, one without work comes for what is pushed to it.
    #[test]
    fn a_task_for_a_busy_worker_leaves_no_other_asleep() {
        loom::model(|| {
            let workers = Workers::new(2, &[ALL, ALL], 2);
            let theirs = Arc::clone(&workers);
            let pusher = thread::spawn(move || theirs.push_there(0, 5));
            while workers.steal(1).is_none() {
                workers.park(1, || false);
            }
            pusher.join().unwrap();
        });
    }

    /// Goal: one without work comes for what a busy worker leaves in its own line.
    #[test]
    fn a_task_behind_a_poll_leaves_no_other_asleep() {
        loom::model(|| {
            let workers = Workers::new(2, &[ALL, ALL], 2);
            let theirs = Arc::clone(&workers);
            let busy = thread::spawn(move || theirs.push_here(0, 5));
            while workers.steal(1).is_none() {
                workers.park(1, || false);
            }
            busy.join().unwrap();
        });
    }

    /// All processors have a worker when a task comes to a busy one; then a worker that does not serve it goes to sleep.
    fn a_leaver_wakes_another(push: fn(&Workers)) {
        loom::model(move || {
            let workers = Workers::new(2, &[1, ALL, ALL], 3);
            let theirs = Arc::clone(&workers);
            let pusher = thread::spawn(move || push(&theirs));
            let theirs = Arc::clone(&workers);
            let leaver = thread::spawn(move || {
                theirs.awake.leave();
                theirs.notify(theirs.awake.hand_on(0, &theirs.each));
            });
            while workers.steal(2).is_none() {
                workers.park(2, || false);
            }
            pusher.join().unwrap();
            leaver.join().unwrap();
        });
    }

    /// Goal: where all processors had a worker when a task came into a busy one's line, who goes to sleep then wakes another for it.
    #[test]
    fn a_worker_that_goes_to_sleep_wakes_another_for_a_waiting_task() {
        a_leaver_wakes_another(|workers| workers.push_here(1, 5));
    }

    /// Goal: the same where the task came into the inbox of the busy one.
    #[test]
    fn a_worker_that_goes_to_sleep_wakes_another_for_a_task_in_an_inbox() {
        a_leaver_wakes_another(|workers| workers.push_there(1, 5));
    }

    /// Goal: where a worker blocks in a poll, another one comes for the tasks in its line.
    #[test]
    fn a_worker_that_blocks_wakes_another_for_its_own_task() {
        loom::model(|| {
            let workers = Workers::new(1, &[ALL, ALL], 2);
            let theirs = Arc::clone(&workers);
            let blocks = thread::spawn(move || {
                theirs.push_here(0, 5);
                theirs.awake.leave();
                theirs.notify(theirs.awake.hand_all_on(0, &theirs.each));
            });
            while workers.steal(1).is_none() {
                workers.park(1, || false);
            }
            blocks.join().unwrap();
        });
    }

    /// Goal: of two that go to sleep while more are awake than there are processors, one comes for a third one's task.
    #[test]
    fn of_two_that_go_to_sleep_one_comes() {
        loom::model(|| {
            let workers = Workers::new(2, &[ALL, ALL, ALL], 3);
            workers.push_here(0, 5);
            let has_come = Arc::new(Counter::default());
            let comes = |workers: &Workers, has_come: &Counter, worker: usize, other: usize| {
                while has_come.get() == 0 {
                    if workers.steal(worker).is_some() {
                        has_come.set(1);
                        let bell = &workers.each[other].intake.bell;
                        workers.notify(bell.ring().map(|notification| (other, notification)));
                        return;
                    }
                    workers.park(worker, || has_come.get() == 1);
                }
            };
            let (theirs, seen) = (Arc::clone(&workers), Arc::clone(&has_come));
            let other = thread::spawn(move || comes(&theirs, &seen, 1, 2));
            comes(&workers, &has_come, 2, 1);
            other.join().unwrap();
        });
    }
}
