//! Descriptors and timers: a ready one wakes its task. Nothing is read here, so bytes are read in their class.
//!
//! One worker at a time leads: it sleeps on the descriptors or until the next timer, and the others on their doorbells. Wakes do
//! not touch the lock by which it leads.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::Clock;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::epoll::{EpollSet, Readiness, Reports};
use punctual_machine::event_fd::EventFd;
use punctual_proto::Nanos;

use super::page::{Page, Word};
use super::task::wake_all;
use super::timers::Timers;
use super::watch::{Watch, Watched};
use crate::locks::{lock, try_lock};

/// The event's number in the set. The number of a source has its place and 1 in the lower half, and above it the number of sources at
/// that place before. So a report of a source that is gone reaches nobody who has come after it.
const EVENT: u64 = 0;

/// The number of the source at a place that so many had before.
fn number_of(place: usize, before: u32) -> u64 {
    u64::from(before) << u32::BITS | (place as u64 + EVENT + 1)
}

/// Where the source of this number is, if it still is. `None` for the event, which has no place.
fn place_of(number: u64) -> Option<usize> {
    u64::from(number as u32).checked_sub(EVENT + 1).map(|place| place as usize)
}

/// The receiver of reports on a descriptor.
pub(super) trait Reported: Send + Sync + fmt::Debug {
    /// The kernel has reported it. Adds the wakers to call.
    fn handle(&self, readiness: Readiness, wakers: &mut Vec<Waker>);

    /// Nothing is reported any more. Adds the wakers of those that wait.
    fn forget(&self, wakers: &mut Vec<Waker>);
}

/// Where one source after the other may be.
#[derive(Debug, Default)]
struct Slot {
    reported: Option<Arc<dyn Reported>>,
    /// Number of sources that were here before.
    before: u32,
}

#[derive(Debug, Default)]
struct Sources {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Sources {
    /// A number for a new one.
    fn put(&mut self, reported: Arc<dyn Reported>) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[place];
        slot.reported = Some(reported);
        number_of(place, slot.before)
    }

    fn get(&self, number: u64) -> Option<&Arc<dyn Reported>> {
        let place = place_of(number)?;
        let slot = self.slots.get(place)?;
        slot.reported.as_ref().filter(|_| number_of(place, slot.before) == number)
    }

    fn all(&self) -> Vec<Arc<dyn Reported>> {
        self.slots.iter().filter_map(|slot| slot.reported.clone()).collect()
    }

    fn take(&mut self, number: u64) -> Option<Arc<dyn Reported>> {
        self.get(number)?;
        let place = place_of(number)?;
        let slot = &mut self.slots[place];
        slot.before = slot.before.wrapping_add(1);
        self.free.push(place);
        slot.reported.take()
    }
}

/// State of the worker that leads.
#[derive(Debug, Default)]
pub(super) struct Lead {
    reports: Reports,
}

/// The tasks that a worker wakes when it has given the lead back.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    wakers: Vec<Waker>,
    /// Descriptors were reported.
    has_events: bool,
}

/// A worker that wants to lead yields so often to one that only looks. Then it naps: the other one may be less urgent to the kernel,
/// and without a processor, which no yield gives to it.
const YIELDS_MAX: u32 = 4;
const NAP: Duration = Duration::from_micros(20);

/// The reactor: one worker leads it, and all may use it.
#[derive(Debug)]
pub(super) struct Reactor {
    set: EpollSet,
    /// Wakes the leader out of its sleep on descriptors.
    event: EventFd,
    sources: Mutex<Sources>,
    /// Number of sources.
    pub(super) count: Counter,
    lead: Mutex<Lead>,
    /// The worker that led last.
    pub(super) leader: Counter,
    /// It sleeps, or is about to: 1. A worker that holds the lock of the lead without this only looks.
    pub(super) is_led: Counter,
    pub(super) timers: Timers,
    /// Objects that wait and can be looked at without a system call.
    pub(super) watch: Watch,
    /// Nobody is woken any more.
    is_over: Flag,
    page: Arc<Page>,
}

impl Reactor {
    pub(super) fn new(page: &Arc<Page>) -> Result<Self, SystemError> {
        let (set, event) = (EpollSet::new()?, EventFd::new()?);
        set.add(event.as_fd())?;
        Ok(Self {
            set,
            event,
            sources: Mutex::default(),
            count: Counter::default(),
            lead: Mutex::default(),
            leader: Counter::default(),
            is_led: Counter::default(),
            timers: Timers::default(),
            watch: Watch::default(),
            is_over: Flag::default(),
            page: Arc::clone(page),
        })
    }

    /// A descriptor from now on, under a number. Returns that number, and true if it is the first: said under the lock, as another may
    /// follow at once.
    pub(super) fn add(
        &self,
        descriptor: BorrowedFd<'_>,
        reported: Arc<dyn Reported>,
    ) -> Result<(u64, bool), SystemError> {
        let mut sources = lock(&self.sources);
        let number = sources.put(reported);
        // With the lock held: a report that the kernel makes at once must find it.
        if let Err(error) = self.set.add_numbered(descriptor, number) {
            sources.take(number);
            return Err(error);
        }
        let before = self.count.get();
        self.note_count(before + 1);
        Ok((number, before == 0))
    }

    /// So many there are; the list of them is locked.
    fn note_count(&self, count: u64) {
        self.count.set(count);
        self.page.count(Word::Sources).set(count);
    }

    pub(super) fn remove(&self, descriptor: BorrowedFd<'_>, number: u64) {
        self.set.remove(descriptor);
        let mut sources = lock(&self.sources);
        let gone = sources.take(number);
        self.note_count(self.count.get() - 1);
        drop(sources);
        drop(gone);
    }

    /// Leads, unless another does. A worker that only looks is waited for: it may be one that is not to lead, and when all others sleep
    /// nobody would. It may have lost its processor, so the wait ends once there `is_work`.
    pub(super) fn lead_unless_led(&self, is_work: impl Fn() -> bool) -> Option<MutexGuard<'_, Lead>> {
        let mut yields = 0;
        loop {
            if let Some(lead) = self.lead() {
                self.is_led.publish(1);
                return Some(lead);
            }
            if self.is_led.get_published() != 0 || is_work() {
                return None;
            }
            if yields < YIELDS_MAX {
                yields += 1;
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
        }
    }

    /// True if there are descriptors or timers to wait for.
    pub(super) fn has_any(&self) -> bool {
        self.count.get() > 0 || self.timers.next() != Nanos::NEVER
    }

    /// Has it looked at until something comes. Returns the waker to be called at once, because something is there.
    pub(super) fn watch(&self, watched: Arc<dyn Watched>) -> Option<Waker> {
        self.watch.add(watched, || self.is_led.get_published() != 0)
    }

    pub(super) fn lead(&self) -> Option<MutexGuard<'_, Lead>> {
        try_lock(&self.lead)
    }

    pub(super) fn ring(&self) {
        self.event.ring();
    }

    /// Sleeps on the descriptors, for so long at most.
    pub(super) fn wait(&self, lead: &mut Lead, timeout: Option<Duration>) {
        self.set.wait_for(&mut lead.reports, timeout);
    }

    /// Finds those whose descriptors were reported, and whose time has come. [`Self::wake`] wakes them when the lead is free again:
    /// nobody waits for it meanwhile.
    pub(super) fn dispatch(&self, lead: &mut Lead, now: Nanos, wakes: &mut Wakes) {
        let Lead { reports } = lead;
        let mut events = 0;
        let sources = lock(&self.sources);
        for readiness in reports.iter() {
            if readiness.number == EVENT {
                self.event.drain();
                continue;
            }
            events += 1;
            if let Some(source) = sources.get(readiness.number) {
                source.handle(readiness, &mut wakes.wakers);
            }
        }
        drop(sources);
        *reports = Reports::default();
        self.timers.take_due(now, &mut wakes.wakers);
        if events > 0 {
            wakes.has_events = true;
            self.page.count(Word::Activations).add_alone(1);
            self.page.count(Word::Events).add_alone(events);
        }
    }

    /// Wakes them. Returns true if there were any.
    pub(super) fn wake(&self, wakes: &mut Wakes) -> bool {
        if !std::mem::take(&mut wakes.has_events) {
            return wake_all(wakes.wakers.drain(..)) > 0;
        }
        let clock = Clock::get();
        let began = clock.now();
        let woken = wake_all(wakes.wakers.drain(..));
        self.page.count(Word::ReactorNs).add(clock.nanos(clock.now().since(began)));
        woken > 0
    }

    /// Looks without sleeping, if there is something to look at. Returns true if anybody was woken.
    pub(super) fn look(&self, now: Nanos, wakes: &mut Wakes) -> bool {
        let woken = self.watch.look();
        let has_sources = self.count.get() > 0;
        if !has_sources && self.timers.next() > now {
            return woken;
        }
        let Some(mut lead) = self.lead() else { return woken };
        if has_sources {
            self.wait(&mut lead, Some(Duration::ZERO));
        }
        // Also if somebody was woken: messages without end keep no descriptor waiting.
        self.dispatch(&mut lead, now, wakes);
        drop(lead);
        self.wake(wakes) || woken
    }

    /// True if nobody is woken any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.is_raised()
    }

    /// Nobody is woken any more, but once those that wait now.
    pub(super) fn forget(&self) -> Vec<Waker> {
        // First: wakers are taken with their locks held, so a thread that leaves one there afterwards sees this.
        self.is_over.raise();
        let sources = lock(&self.sources).all();
        let mut wakers = self.timers.forget();
        sources.iter().for_each(|source| source.forget(&mut wakers));
        wakers
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::ThreadMetrics;
    use super::super::options::RuntimeOptions;
    use super::super::source::{Side, Source};
    use super::*;
    use punctual_machine::clock::Ticks;
    use punctual_machine::cpu::{SchedulingClass, allowed, pin_to, set_scheduling_class};
    use std::sync::{Barrier, mpsc};
    use std::task::{Context, Poll, Wake};

    /// Has something at every look.
    #[derive(Debug)]
    struct Endless;

    impl Watched for Endless {
        fn look(&self) -> Option<Option<Waker>> {
            Some(Some(Waker::noop().clone()))
        }

        fn arm(&self) -> Option<Waker> {
            None
        }
    }

    #[derive(Debug, Default)]
    struct Woken(Counter);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.add(1);
        }
    }

    #[derive(Debug, Default)]
    struct CountsReports(Counter);

    impl Reported for CountsReports {
        fn handle(&self, _readiness: Readiness, _wakers: &mut Vec<Waker>) {
            self.0.add(1);
        }

        fn forget(&self, _wakers: &mut Vec<Waker>) {}
    }

    /// Goal: an object that has messages without end keeps no descriptor waiting.
    #[test]
    fn a_watched_object_delays_no_descriptor() {
        let page = Page::create(&RuntimeOptions::default(), 1, Ticks::default()).unwrap();
        let (reactor, event) = (Reactor::new(&page).unwrap(), EventFd::new().unwrap());
        let (source, woken) = (Arc::new(Source::default()), Arc::new(Woken::default()));
        reactor.add(event.as_fd(), Arc::clone(&source) as _).unwrap();
        // The first report, that it can be written to, is past.
        let mut wakes = Wakes::default();
        let _nobody_waits = reactor.look(Nanos(0), &mut wakes);
        let waker = Waker::from(Arc::clone(&woken));
        let mut waiter = source.waiter(Side::Read);
        let Poll::Ready(reports) = waiter.poll_ready(&Context::from_waker(&waker)) else { unreachable!() };
        source.spend(Side::Read, reports);
        assert!(waiter.poll_ready(&Context::from_waker(&waker)).is_pending());
        event.ring();
        assert!(reactor.watch(Arc::new(Endless)).is_none());
        assert!(reactor.look(Nanos(0), &mut wakes));
        assert_eq!(woken.0.get(), 1);
    }

    /// Goal: a worker that wants to lead lets another one look that is less urgent to the kernel and shares its processor.
    /// Method: the lock is held until the kernel has counted a sleep of the real-time thread. Without a sleep that keeps the processor.
    #[test]
    fn a_worker_that_wants_to_lead_naps() {
        let (alive, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("nothing for 120 s: the lock is waited for without a sleep");
                std::process::exit(101);
            }
        });
        let page = Page::create(&RuntimeOptions::default(), 1, Ticks::default()).unwrap();
        let (reactor, cpu) = (&Reactor::new(&page).unwrap(), allowed()[0]);
        let (says, said) = mpsc::channel();
        let (looks, is_looking) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                pin_to(cpu).unwrap();
                let _lead = reactor.lead().unwrap();
                looks.send(()).unwrap();
                let thread = said.recv().unwrap();
                let sleeps = || ThreadMetrics::of_this_process(thread).switches_voluntary;
                let before = sleeps();
                while sleeps() == before {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            scope.spawn(move || {
                is_looking.recv().unwrap();
                pin_to(cpu).unwrap();
                if let Err(error) = set_scheduling_class(SchedulingClass::RoundRobin(1)) {
                    punctual_machine::skipped!("the urgency: {error}");
                }
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                says.send(u64::from(thread.cast_unsigned())).unwrap();
                assert!(reactor.lead_unless_led(|| false).is_some());
            });
        });
        drop(alive);
    }

    /// Goal: of descriptors that come at once exactly one is the first, in any order of looks: it wakes the leader.
    #[test]
    fn one_of_many_is_the_first() {
        const THREADS: usize = 8;
        let page = Page::create(&RuntimeOptions::default(), 1, Ticks::default()).unwrap();
        let (reactor, together) = (Reactor::new(&page).unwrap(), Barrier::new(THREADS));
        for round in 0..1_000 {
            let add = || {
                let event = EventFd::new().unwrap();
                together.wait();
                let (number, is_first) = reactor.add(event.as_fd(), Arc::new(Source::default())).unwrap();
                together.wait();
                reactor.remove(event.as_fd(), number);
                usize::from(is_first)
            };
            let firsts: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(add)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(firsts, 1, "round {round}");
        }
    }

    /// Goal: a report of a descriptor that is gone does not reach the one that has its place.
    #[test]
    fn a_late_report_reaches_nobody_else() {
        let page = Page::create(&RuntimeOptions::default(), 1, Ticks::default()).unwrap();
        let reactor = Reactor::new(&page).unwrap();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let (number, _) = reactor.add(here.as_fd(), Arc::new(Source::default())).unwrap();
        drop(there);
        let mut lead = reactor.lead_unless_led(|| false).unwrap();
        reactor.wait(&mut lead, None);
        reactor.remove(here.as_fd(), number);
        let (event, reports) = (EventFd::new().unwrap(), Arc::new(CountsReports::default()));
        let (newer, _) = reactor.add(event.as_fd(), Arc::clone(&reports) as _).unwrap();
        reactor.dispatch(&mut lead, Nanos(0), &mut Wakes::default());
        assert_eq!(reports.0.get(), 0);
        assert_ne!(newer, number);
    }
}
