//! The ways from a writer to a reader that are measured, each with its two ends.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use punctual::wake::{AdaptiveSpin, Spun};
use punctual::{Clock, Ticks};
use punctual_lab_machine::wake::bare_event::{BareEpoll, BareEvent, Counting};
use punctual_lab_machine::wake::page::WakeWords;
use punctual_lab_machine::wake::{self, Mechanism, Notify, Park, Reach};
use punctual_machine::SystemError;
use punctual_machine::sleep_cost::SleepCost;
use punctual_machine::slept::Slept;

use crate::endpoint::poll_until;

/// A sleep that nobody ended for so long was slept over a message, if there is one: it is lost, and this rescues it.
pub(super) const RESCUE_AFTER: Duration = Duration::from_secs(1);
/// A notification that was complete only so shortly before a limit may still have been on its way: it is not lost yet.
pub(super) const LIMIT_SLACK: Duration = Duration::from_millis(10);

/// Number of a message that ends the reader.
pub(super) const END: u64 = u64::MAX;

/// Descriptors in one epoll set, of which the writer writes to one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetSize {
    /// One.
    One,
    /// Eight.
    Eight,
    /// Sixty-four.
    SixtyFour,
}

impl SetSize {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::One, Self::Eight, Self::SixtyFour];

    /// As a number.
    pub const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Eight => 8,
            Self::SixtyFour => 64,
        }
    }
}

/// How a reader waits and a writer wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// One line that the reader polls. The floor of an awake reader: the writer stores, and that is all.
    Line,
    /// A futex without a protocol: the writer calls the kernel every time. The floor of a sleeping reader.
    BareFutex,
    /// An eventfd without a protocol: a write and a blocking read for every message.
    BareEvent,
    /// The same under epoll: a write, `epoll_wait` and a read for every message.
    BareEpoll(SetSize),
    /// The doorbell, polled: what the protocol costs an awake reader.
    Spin,
    /// The doorbell, spinning as long as the last waits suggest, then asleep on a futex.
    Adaptive,
    /// The doorbell, asleep at once.
    Park(Mechanism),
}

impl Route {
    /// All of them, floors first.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Line, Self::BareFutex, Self::BareEvent];
        all.extend(SetSize::ALL.map(Self::BareEpoll));
        all.extend([Self::Spin, Self::Adaptive]);
        all.extend(Mechanism::ALL.map(Self::Park));
        all
    }

    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Line => "floor-line",
            Self::BareFutex => "floor-futex",
            Self::BareEvent => "floor-eventfd",
            Self::BareEpoll(SetSize::One) => "floor-epoll",
            Self::BareEpoll(SetSize::Eight) => "floor-epoll-8",
            Self::BareEpoll(SetSize::SixtyFour) => "floor-epoll-64",
            Self::Spin => "spin",
            Self::Adaptive => "adaptive",
            Self::Park(mechanism) => mechanism.name(),
        }
    }

    /// Whether it is without the doorbell.
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Line | Self::BareFutex | Self::BareEvent | Self::BareEpoll(_))
    }

    /// Whether the writer may be another process than the reader.
    pub fn reaches_processes(self) -> bool {
        !matches!(self, Self::Park(mechanism) if mechanism.reach() == Reach::Process)
    }

    /// Whether the reader never sleeps.
    pub const fn spins(self) -> bool {
        matches!(self, Self::Line | Self::Spin)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Route {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Self::all();
        let known = all.iter().find(|route| route.name() == name).copied();
        known.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|route| route.name()).collect();
            format!("unknown way of waking {name:?}; known are {}", names.join(", "))
        })
    }
}

/// The writer's end.
#[derive(Debug)]
pub(super) enum Waker {
    /// Nothing but the store.
    Line,
    /// A call every time.
    BareFutex,
    /// A write every time, to one after the other.
    BareEvents(Vec<Arc<BareEvent>>),
    /// The doorbell; a notification only if it asks for one.
    Bell(Option<Box<dyn Notify>>),
}

impl Waker {
    /// The writer's end in another process than the reader's, with the descriptors of the reader's own. `None` if they do not fit.
    pub(super) fn elsewhere(route: Route, mut descriptors: Vec<OwnedFd>) -> Option<Self> {
        Some(match route {
            Route::Line => Self::Line,
            Route::BareFutex => Self::BareFutex,
            Route::BareEvent | Route::BareEpoll(_) => {
                let events = descriptors.into_iter().map(BareEvent::from_descriptor).map(Arc::new);
                let events: Vec<_> = events.collect();
                (!events.is_empty()).then_some(Self::BareEvents(events))?
            }
            Route::Spin => Self::Bell(None),
            Route::Adaptive => Self::Bell(Some(Mechanism::Futex.notify_elsewhere(None)?)),
            Route::Park(mechanism) => Self::Bell(Some(mechanism.notify_elsewhere(descriptors.pop())?)),
        })
    }

    /// What another process needs to be the writer.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Line | Self::BareFutex => Vec::new(),
            Self::BareEvents(events) => events.iter().map(|event| event.as_fd()).collect(),
            Self::Bell(notify) => notify.iter().filter_map(|notify| notify.descriptor()).collect(),
        }
    }

    /// The message's number is stored: wakes the reader if it must be. Returns the system calls that were made for it.
    #[inline]
    pub(super) fn wake(&self, shared: &WakeWords) -> u32 {
        match self {
            Self::Line => 0,
            Self::BareFutex => {
                shared.bare.wake();
                1
            }
            Self::BareEvents(events) => {
                let place = shared.sent.0.get() % events.len() as u64;
                events[place as usize].write(1);
                1
            }
            Self::Bell(notify) => match (shared.bell.ring(), notify) {
                (Some(_), Some(notify)) => {
                    notify.notify(&shared.bell);
                    notify.calls()
                }
                _ => 0,
            },
        }
    }
}

/// The reader's end.
#[derive(Debug)]
pub(super) enum Sleeper {
    /// Polls.
    Polls,
    /// Sleeps on a word without a protocol.
    BareFutex,
    /// Reads.
    BareEvent(Arc<BareEvent>),
    /// Waits in epoll, and reads.
    BareEpoll(BareEpoll),
    /// Sleeps by a mechanism.
    Parks(Box<dyn Park>),
    /// Spins first.
    Adaptive(Box<dyn Park>, Spinning),
}

/// How long to spin, in the clock's own unit: converted when it changes, not at every wait.
#[derive(Debug)]
pub(super) struct Spinning {
    policy: AdaptiveSpin,
    spin_ns: u32,
    spin: Ticks,
}

impl Spinning {
    fn new() -> Self {
        Self { policy: AdaptiveSpin::new(SleepCost::of_this_machine()), spin_ns: 0, spin: Ticks(0) }
    }

    fn ticks(&mut self) -> Ticks {
        let spin_ns = self.policy.spin_ns();
        if spin_ns != self.spin_ns {
            (self.spin_ns, self.spin) = (spin_ns, Clock::get().ticks(Duration::from_nanos(spin_ns.into())));
        }
        self.spin
    }
}

/// What one wait came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    /// When the reader knew.
    pub(super) awake: Ticks,
    /// Sleeps, or tries to.
    pub(super) parks: u32,
    /// If only the limit of a sleep ended it, over a message: when that was. Lost, unless the writer was not done yet.
    pub(super) limit_at: Option<Ticks>,
    /// It was given up: nothing came for longer than any plan lasts.
    pub(super) over: bool,
}

/// Opens both ends, in the thread that will read.
pub(super) fn open(route: Route) -> Result<(Sleeper, Waker), SystemError> {
    Ok(match route {
        Route::Line => (Sleeper::Polls, Waker::Line),
        Route::BareFutex => (Sleeper::BareFutex, Waker::BareFutex),
        Route::BareEvent => {
            let event = Arc::new(BareEvent::new(Counting::Sum)?);
            (Sleeper::BareEvent(Arc::clone(&event)), Waker::BareEvents(vec![event]))
        }
        Route::BareEpoll(size) => {
            let set = BareEpoll::new(size.count(), Counting::Sum)?;
            let events = set.events().to_vec();
            (Sleeper::BareEpoll(set), Waker::BareEvents(events))
        }
        Route::Spin => (Sleeper::Polls, Waker::Bell(None)),
        Route::Adaptive => {
            let ends = Mechanism::Futex.open()?;
            (Sleeper::Adaptive(ends.park, Spinning::new()), Waker::Bell(Some(ends.notify)))
        }
        Route::Park(mechanism) => {
            let ends = mechanism.open()?;
            (Sleeper::Parks(ends.park), Waker::Bell(Some(ends.notify)))
        }
    })
}

impl Sleeper {
    /// Waits until the message is sent, from `began` on, and not beyond `until`.
    #[inline]
    pub(super) fn wait(&mut self, shared: &WakeWords, message: u64, began: Ticks, until: Ticks) -> Wait {
        let mut is_ready = || shared.sent.0.get_published() >= message;
        let clock = Clock::get();
        let mut wait = match self {
            Self::Polls => poll(&mut is_ready, until),
            Self::BareFutex => sleep_bare(shared, &mut is_ready, until),
            // The floors call the kernel for every message: to look at the number first would be a protocol already, and leave a
            // token behind.
            Self::BareEvent(event) => sleep_again(shared, &mut is_ready, until, |_| {
                event.read();
                (true, false)
            }),
            Self::BareEpoll(set) => sleep_again(shared, &mut is_ready, until, |_| {
                (true, set.wait(RESCUE_AFTER).1 == Slept::ToTheLimit)
            }),
            Self::Parks(park) => sleep(&mut **park, shared, &mut is_ready, until),
            Self::Adaptive(park, spinning) => {
                let spin = spinning.ticks();
                // Who does not spin does not poll either: a batch of polls takes a tenth of what a sleep does.
                let (mut wait, mut spun) = match spin {
                    Ticks(0) => (Wait { over: true, ..Wait::default() }, Spun::Not),
                    spin => (poll(&mut is_ready, began.plus(spin)), Spun::Found),
                };
                if wait.over {
                    spun = if spun == Spun::Found { Spun::InVain } else { spun };
                    wait = sleep(&mut **park, shared, &mut is_ready, until);
                }
                spinning.policy.note(clock.nanos(wait.awake.since(began)), spun);
                wait
            }
        };
        if wait.over && is_ready() {
            wait.over = false;
        }
        wait
    }

    /// System calls of one sleep.
    pub(super) fn calls(&self) -> u32 {
        match self {
            Self::Polls => 0,
            Self::BareFutex | Self::BareEvent(_) => 1,
            Self::BareEpoll(_) => 2,
            Self::Parks(park) | Self::Adaptive(park, _) => park.calls(),
        }
    }
}

/// Polls until there is something or the instant has come.
#[inline]
fn poll(is_ready: &mut impl FnMut() -> bool, until: Ticks) -> Wait {
    let found = poll_until(is_ready, until, |is_ready| is_ready().then_some(()), |_, _| ());
    Wait { awake: Clock::get().now(), over: found.is_none(), ..Wait::default() }
}

/// Sleeps until there is something, with the doorbell's handshake.
#[inline]
fn sleep(park: &mut dyn Park, shared: &WakeWords, is_ready: &mut impl FnMut() -> bool, until: Ticks) -> Wait {
    sleep_in_turns(shared, is_ready, until, |is_ready| {
        let waited = wake::wait(park, &shared.bell, RESCUE_AFTER, is_ready);
        (waited.parked, waited.to_the_limit)
    })
}

#[inline]
fn sleep_bare(shared: &WakeWords, is_ready: &mut impl FnMut() -> bool, until: Ticks) -> Wait {
    sleep_in_turns(shared, is_ready, until, |is_ready| {
        let seen = shared.bare.seen();
        let sleeps = !is_ready();
        (sleeps, sleeps && shared.bare.sleep(seen, RESCUE_AFTER) == Slept::ToTheLimit)
    })
}

/// Looks first, and then sleeps as [`sleep_again`] does.
#[inline]
fn sleep_in_turns(
    shared: &WakeWords,
    is_ready: &mut impl FnMut() -> bool,
    until: Ticks,
    sleep: impl FnMut(&mut dyn FnMut() -> bool) -> (bool, bool),
) -> Wait {
    if is_ready() {
        return Wait { awake: Clock::get().now(), ..Wait::default() };
    }
    sleep_again(shared, is_ready, until, sleep)
}

/// Sleep after sleep, as each may end early. A sleep says whether it parked, and whether its limit ended it.
#[inline]
fn sleep_again(
    shared: &WakeWords,
    is_ready: &mut impl FnMut() -> bool,
    until: Ticks,
    mut sleep: impl FnMut(&mut dyn FnMut() -> bool) -> (bool, bool),
) -> Wait {
    let (clock, mut wait) = (Clock::get(), Wait::default());
    shared.parking.0.publish(1);
    let mut asleep_since = clock.now();
    loop {
        let (parked, to_the_limit) = sleep(&mut *is_ready);
        wait.parks += u32::from(parked);
        let ready = is_ready();
        wait.awake = clock.now();
        wait.limit_at = (ready && to_the_limit).then(|| asleep_since.plus(clock.ticks(RESCUE_AFTER)));
        wait.over = !ready && wait.awake >= until;
        if ready || wait.over {
            break;
        }
        asleep_since = wait.awake;
    }
    shared.parking.0.publish(0);
    wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for route in Route::all() {
            assert_eq!(route.name().parse(), Ok(route));
        }
        assert!("smoke".parse::<Route>().unwrap_err().contains("floor-line"));
    }

    /// Goal: the floors call the kernel for each message, whatever the reader does, and wake it by every descriptor.
    #[test]
    fn a_floor_calls_for_every_message() {
        let mut routes = vec![Route::BareEvent];
        routes.extend(SetSize::ALL.map(Route::BareEpoll));
        for route in routes {
            let shared = WakeWords::default();
            let (mut sleeper, waker) = open(route).unwrap();
            assert!(route.is_floor() && sleeper.calls() > 0);
            for message in 1..=100 {
                shared.sent.0.publish(message);
                assert_eq!(waker.wake(&shared), 1, "{route}");
                let now = Clock::get().now();
                let until = now.plus(Clock::get().ticks(Duration::from_secs(10)));
                let wait = sleeper.wait(&shared, message, now, until);
                assert!(wait.parks == 1 && !wait.over && wait.limit_at.is_none(), "{route}: {wait:?}");
            }
        }
    }

    #[test]
    fn an_awake_reader_costs_no_call() {
        for route in [Route::Line, Route::Spin, Route::Adaptive, Route::Park(Mechanism::Futex)] {
            let shared = WakeWords::default();
            let (mut sleeper, waker) = open(route).unwrap();
            shared.sent.0.publish(1);
            assert_eq!(waker.wake(&shared), 0, "{route}");
            let now = Clock::get().now();
            let wait = sleeper.wait(&shared, 1, now, now.plus(Clock::get().ticks(Duration::from_secs(10))));
            assert!(wait.parks == 0 && !wait.over && wait.limit_at.is_none(), "{route}: {wait:?}");
        }
    }
}
