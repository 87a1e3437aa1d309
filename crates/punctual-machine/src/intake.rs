//! How tasks come to a worker, and how it and others see without a lock that there are some.
//!
//! What comes is pushed into an inbox. Whoever chooses from the worker's line first moves it from there into the line: the worker,
//! or a thief that has nothing else to do. The line stands elsewhere, behind a lock; the first class in it is noted here.
//!
//! Rules:
//! 1. Whoever changes the line has its lock, and notes the line's first class before it gives the lock back: [`Intake::choose`] and
//!    [`Intake::change`] do both.
//! 2. Who sleeps looks between the fences of its own bell. Who pushes rings the worker's bell behind its push.
//! 3. Between the move and the note a look finds neither: the inbox is empty, and the line is said to be. So whoever leaves
//!    something in line rings behind its note, a thief by [`Intake::hand_back`]. It may itself serve none of what it leaves.

use crate::counter::Counter;
use crate::doorbell::{Doorbell, Notification};
use crate::inbox::{Entries, Entry, Inbox};
use crate::mutant::without;

/// In place of a class where nothing is in line.
const NOBODY: u64 = u64::MAX;

/// What others see of a worker's tasks, and how it is woken.
#[derive(Debug)]
pub struct Intake<T> {
    inbox: Inbox<T>,
    /// The most important class in line, or [`NOBODY`].
    first_class: Counter,
    /// The worker's.
    pub bell: Doorbell,
}

impl<T> Default for Intake<T> {
    fn default() -> Self {
        let intake =
            Self { inbox: Inbox::default(), first_class: Counter::default(), bell: Doorbell::default() };
        intake.first_class.set(NOBODY);
        intake
    }
}

impl<T> Intake<T> {
    /// Puts a value into the inbox. The bell is the caller's to ring.
    pub fn push(&self, entry: Box<Entry<T>>, value: T) {
        self.inbox.push(entry, value);
    }

    /// Takes out what came, oldest first, for an end: nothing is noted of a line.
    pub fn take_new(&self) -> Entries<T> {
        // An exchange only where there is something.
        if self.has_no_news() { Entries::default() } else { self.inbox.take_all() }
    }

    /// Changes the line, whose lock the caller has. `change` says what it came to, and what the line's first class is then: that is
    /// noted, and given back with the rest.
    pub fn change<L, R>(
        &self,
        line: &mut L,
        change: impl FnOnce(&mut L) -> (R, Option<u8>),
    ) -> (R, Option<u8>) {
        let (outcome, first) = change(line);
        self.first_class.set(first.map_or(NOBODY, u64::from));
        (outcome, first)
    }

    /// The same, for who moves into the line what came, oldest first, and takes from it.
    pub fn choose<L, R>(
        &self,
        line: &mut L,
        choose: impl FnOnce(&mut L, Entries<T>) -> (R, Option<u8>),
    ) -> (R, Option<u8>) {
        self.change(line, |line| choose(line, self.take_new()))
    }

    /// Whether nothing is in the inbox, as far as this thread sees.
    pub fn has_no_news(&self) -> bool {
        self.inbox.is_empty()
    }

    /// The most important class in line, as far as this thread sees. Of what came since it does not tell.
    pub fn first_class(&self) -> Option<u8> {
        u8::try_from(self.first_class.get()).ok()
    }

    /// Whether there may be something of these classes, as far as this thread sees. A hint: who acts on it takes the line.
    pub fn has_up_to(&self, last_class: u8) -> bool {
        !self.inbox.is_empty() || self.first_class().is_some_and(|first| first <= last_class)
    }

    /// A thief, when it has noted what it leaves in line: rings the worker, which may have looked meanwhile. Returns the notification
    /// that must now be sent; if none, one for another worker that may have looked is due, whose bell needs no other fence.
    pub fn hand_back(&self) -> Option<Notification> {
        if without!("intake_hand_back") {
            return None;
        }
        self.bell.ring()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_came_or_waits_is_seen() {
        let intake = Intake::default();
        assert!(intake.has_no_news() && !intake.has_up_to(u8::MAX));
        intake.push(Entry::new(), 'a');
        assert!(!intake.has_no_news() && intake.has_up_to(0), "its class is not known yet");
        let mut line = Vec::new();
        let chosen = intake.choose(&mut line, |line, new| {
            line.extend(new.filter_map(|mut entry| entry.take()));
            (line.len(), Some(5))
        });
        assert_eq!((chosen, &line[..]), ((1, Some(5)), &['a'][..]));
        assert!(intake.has_no_news() && intake.has_up_to(5) && !intake.has_up_to(4));
        intake.change(&mut line, |line| (line.clear(), None));
        assert!(!intake.has_up_to(u8::MAX) && intake.first_class().is_none());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::doorbell::sender_fence;
    use loom::sync::{Arc, Mutex, Notify};
    use loom::thread;

    /// A worker, its line, and what wakes it. Values are classes.
    struct Worker {
        intake: Intake<u8>,
        line: Mutex<Vec<u8>>,
        notify: Notify,
    }

    impl Worker {
        fn new() -> Self {
            Self { intake: Intake::default(), line: Mutex::new(Vec::new()), notify: Notify::new() }
        }

        fn notify(&self, notification: Option<Notification>) -> bool {
            let is_due = notification.is_some();
            if is_due {
                self.notify.notify();
            }
            is_due
        }

        /// The next of these classes, and whether any is left.
        fn next(&self, last_class: u8) -> (Option<u8>, bool) {
            let mut line = self.line.lock().unwrap();
            let (next, left) = self.intake.choose(&mut *line, |line, new| {
                line.extend(new.filter_map(|mut entry| entry.take()));
                line.sort_unstable();
                let next = line.first().copied().filter(|&class| class <= last_class);
                if next.is_some() {
                    line.remove(0);
                }
                (next, line.first().copied())
            });
            (next, left.is_some())
        }

        /// For one that serves only these classes; if it leaves some, it wakes the worker, or `idle`.
        fn steal(&self, last_class: u8, idle: Option<&Self>) {
            if !self.intake.has_up_to(last_class) {
                return;
            }
            let (_next, leaves) = self.next(last_class);
            if leaves && !self.notify(self.intake.hand_back()) {
                let _woken = idle.map(|idle| idle.notify(idle.intake.bell.ring_fenced()));
            }
        }

        /// Sleeps by its bell until there may be something in `of`.
        fn sleep(&self, of: &Self) {
            let looks = |_: &mut ()| of.intake.has_up_to(u8::MAX);
            self.intake.bell.sleep(Notification::Futex, &mut (), looks, |()| self.notify.wait());
        }
    }

    /// Goal: nobody is left asleep over a task that a thief finds and does not serve. loom reports a sleeper that nobody wakes.
    #[test]
    fn a_thief_leaves_nobody_asleep() {
        loom::model(|| {
            let worker = Arc::new(Worker::new());
            let theirs = Arc::clone(&worker);
            let pusher = thread::spawn(move || {
                theirs.intake.push(Entry::new(), 5);
                theirs.notify(theirs.intake.bell.ring());
            });
            let theirs = Arc::clone(&worker);
            let thief = thread::spawn(move || theirs.steal(1, None));
            while worker.next(u8::MAX).0.is_none() {
                worker.sleep(&worker);
            }
            pusher.join().unwrap();
            thief.join().unwrap();
        });
    }

    /// Goal: where the worker itself is busy, one without work comes for what the thief leaves.
    #[test]
    fn a_thief_leaves_no_other_asleep() {
        loom::model(|| {
            let workers = Arc::new((Worker::new(), Worker::new()));
            workers.0.intake.push(Entry::new(), 5);
            let theirs = Arc::clone(&workers);
            let without_work = thread::spawn(move || {
                let (busy, idle) = &*theirs;
                // Where it sees nothing it does not take the lock: that would hide a look between move and note.
                while !busy.intake.has_up_to(u8::MAX) || busy.next(u8::MAX).0.is_none() {
                    idle.sleep(busy);
                }
            });
            workers.0.steal(1, Some(&workers.1));
            without_work.join().unwrap();
        });
    }

    /// Goal: where all processors had a worker when a task came into a busy one's line, who goes to sleep then wakes another for it.
    #[test]
    fn who_goes_to_sleep_leaves_no_other_asleep() {
        const PROCESSORS: u64 = 2;

        /// The busy worker, the one that sleeps, and how many are awake.
        type Workers = (Worker, Worker, Counter);

        fn wake_idle((_, idle, awake): &Workers) {
            if awake.get() < PROCESSORS {
                idle.notify(idle.intake.bell.ring_fenced());
            }
        }

        loom::model(|| {
            let workers: Arc<Workers> = Arc::new((Worker::new(), Worker::new(), Counter::default()));
            workers.2.set(PROCESSORS);
            let theirs = Arc::clone(&workers);
            let busy = thread::spawn(move || {
                theirs.0.intake.change(&mut *theirs.0.line.lock().unwrap(), |line| (line.push(5), Some(5)));
                sender_fence();
                wake_idle(&theirs);
            });
            let theirs = Arc::clone(&workers);
            let leaver = thread::spawn(move || {
                theirs.2.add(u64::MAX);
                sender_fence();
                if theirs.0.intake.first_class().is_some() {
                    wake_idle(&theirs);
                }
            });
            let (busy_one, idle, awake) = &*workers;
            let comes = || awake.get() < PROCESSORS && busy_one.intake.has_up_to(u8::MAX);
            while !comes() {
                let looks = |_: &mut ()| comes();
                idle.intake.bell.sleep(Notification::Futex, &mut (), looks, |()| idle.notify.wait());
            }
            busy.join().unwrap();
            leaver.join().unwrap();
        });
    }
}
