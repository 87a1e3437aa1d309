//! The ways from a writer to a reader that are measured, each with its two ends.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

use punctual::wake::{Bed, Condition, Manners, Waiter, epoll_set, waiter};
use punctual::{Clock, Ticks, Wake};
use punctual_lab_machine::wake::page::WakeWords;
use punctual_lab_machine::wake::{self, BareSleeper, BareWaker, Floor, Mechanism, Notify, Park, Reach};
use punctual_machine::SystemError;
use punctual_machine::epoll::EpollSet;
use punctual_machine::event_fd::EventFd;
use serde::{Deserialize, Serialize};

use crate::endpoint::poll_until;

/// A sleep that nobody ended for so long was slept over a message, if there is one: it is lost, and this rescues it.
const RESCUE_AFTER: Duration = Duration::from_secs(1);
/// A notification that was complete only so shortly before a limit may still have been on its way: it is not lost yet.
pub(super) const LIMIT_SLACK: Duration = Duration::from_millis(10);

/// Number of a message that ends the reader.
pub(super) const END: u64 = u64::MAX;

/// The way in which a reader waits and a writer wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// One line that the reader polls. The floor of an awake reader: the writer stores, and that is all.
    Line,
    /// A mechanism without the doorbell. The floor of a sleeping reader.
    Bare(Floor),
    /// The doorbell, polled by the library's waiter: the cost of the protocol for an awake reader.
    Spin,
    /// The doorbell and the library's waiter, which spins as long as the last waits suggest, then sleeps on a futex.
    Adaptive,
    /// The doorbell, asleep at once.
    Park(Mechanism),
}

impl Route {
    /// All of them, floors first.
    pub fn all() -> Vec<Self> {
        let floors = Floor::ALL.map(Self::Bare);
        let doorbells = Mechanism::ALL.map(Self::Park);
        [&[Self::Line][..], &floors, &[Self::Spin, Self::Adaptive], &doorbells].concat()
    }

    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Line => "floor-line",
            Self::Bare(floor) => floor.name(),
            Self::Spin => Wake::Spin.name(),
            Self::Adaptive => Wake::Adaptive.name(),
            Self::Park(mechanism) => mechanism.name(),
        }
    }

    /// True for a route without the doorbell.
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Line | Self::Bare(_))
    }

    /// True if the reader and the writer may be in different processes.
    pub fn reaches_processes(self) -> bool {
        !matches!(self, Self::Park(mechanism) if mechanism.reach() == Reach::Process)
    }

    /// True if the reader never sleeps.
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
pub(super) enum WritingEnd {
    /// The store is all.
    Stores,
    /// A call for every message.
    Bare(BareWaker),
    /// A notification, if the doorbell asks for one.
    Rings(Box<dyn Notify>),
}

impl WritingEnd {
    /// In another process than the reader's, with the descriptors of the reader's own.
    pub(super) fn open_elsewhere(route: Route, mut descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        let end = match route {
            Route::Line => Some(Self::Stores),
            Route::Bare(floor) => floor.waker_elsewhere(descriptors).map(Self::Bare),
            _ => notifier(route).notify_elsewhere(descriptors.pop()).map(Self::Rings),
        };
        end.ok_or_else(|| format!("{route}: the reader posted something else"))
    }

    /// The message's number is stored: wakes the reader if it must be. Returns the system calls that were made for it.
    #[inline]
    pub(super) fn wake(&self, words: &WakeWords) -> u32 {
        match self {
            Self::Stores => 0,
            Self::Bare(waker) => waker.wake(words),
            Self::Rings(_) if words.bell.ring().is_none() => 0,
            Self::Rings(notify) => {
                notify.notify(&words.bell);
                notify.calls()
            }
        }
    }

    /// Descriptors that another process needs to be the writer.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Stores => Vec::new(),
            Self::Bare(waker) => waker.descriptors(),
            Self::Rings(notify) => notify.descriptor().into_iter().collect(),
        }
    }
}

/// By which mechanism a reader is notified who sleeps by the doorbell.
fn notifier(route: Route) -> Mechanism {
    match route {
        Route::Park(mechanism) => mechanism,
        _ => Mechanism::Futex,
    }
}

/// Opens both ends, in the thread that will read.
pub(super) fn open(route: Route) -> Result<(ReadingEnd, WritingEnd), SystemError> {
    let wake = match route {
        Route::Line => return Ok((ReadingEnd::Polls, WritingEnd::Stores)),
        Route::Bare(floor) => {
            let (sleeper, waker) = floor.open()?;
            return Ok((ReadingEnd::Bare(sleeper), WritingEnd::Bare(waker)));
        }
        Route::Spin => Some(Wake::Spin),
        Route::Adaptive => Some(Wake::Adaptive),
        Route::Park(_) => None,
    };
    let ends = notifier(route).open()?;
    let reading = match wake {
        Some(wake) => ReadingEnd::Waits(Box::new(Waiting::open(wake)?)),
        None => ReadingEnd::Parks(ends.park),
    };
    Ok((reading, WritingEnd::Rings(ends.notify)))
}

/// The reader's end.
#[derive(Debug)]
pub(super) enum ReadingEnd {
    /// Polls.
    Polls,
    /// Sleeps at once, without the doorbell.
    Bare(BareSleeper),
    /// Sleeps at once, by the doorbell's handshake.
    Parks(Box<dyn Park>),
    /// Waits as a component does that has a communicator.
    Waits(Box<Waiting>),
}

/// A waiter of the library's, and what it can sleep on: the doorbell of a page, of whose messages a look sees everything.
#[derive(Debug)]
pub(super) struct Waiting {
    waiter: Box<dyn Waiter>,
    event: EventFd,
    set: EpollSet,
}

impl Waiting {
    fn open(wake: Wake) -> Result<Self, SystemError> {
        let event = EventFd::new()?;
        let set = epoll_set(&event, [None, None])?;
        let waiter = waiter(wake, Manners::IN_PROCESS).expect("senders ring the doorbell");
        Ok(Self { waiter, event, set })
    }
}

/// The condition that a message is sent, as the library's waiters see it.
struct Sent<'a> {
    words: &'a WakeWords,
    message: u64,
}

impl Condition for Sent<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        self.words.sent.0.get_published() >= self.message
    }

    /// Asked when the bell is armed and the last look found nothing: from here on the reader is on its way into a sleep.
    fn timeout(&mut self) -> Option<Duration> {
        self.words.parking.0.publish(1);
        Some(RESCUE_AFTER)
    }

    fn is_overslept(&self) -> bool {
        self.words.sent.0.get_published() >= self.message
    }
}

/// Result of one wait.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Wait {
    /// When the reader knew: not before the load that told it.
    pub awake: Ticks,
    /// Sleeps, or tries to.
    pub parks: u32,
    /// If only the limit of a sleep ended it, over a message: when that was. Lost, unless the writer was not done yet.
    pub limit_at: Option<Ticks>,
    /// It was given up: nothing came for longer than any plan lasts.
    pub over: bool,
}

impl ReadingEnd {
    /// Waits until the message is sent, and not beyond `until`.
    #[inline]
    pub(super) fn wait(&mut self, words: &WakeWords, message: u64, until: Ticks) -> Wait {
        let mut sent = Sent { words, message };
        let may_look = !matches!(self, Self::Bare(sleeper) if !sleeper.may_look());
        if may_look && sent.is_ready() {
            return Wait { awake: Clock::get().now_after_loads(), ..Wait::default() };
        }
        let wait = match self {
            Self::Polls => {
                poll_until(&mut sent, until, |sent| sent.is_ready().then_some(()), |_, _| ());
                let awake = Clock::get().now_after_loads();
                return Wait { awake, over: !sent.is_ready(), ..Wait::default() };
            }
            Self::Bare(sleeper) => {
                words.parking.0.publish(1);
                in_turns(&mut sent, until, |sent| {
                    let waited = sleeper.sleep(words, RESCUE_AFTER, || sent.is_ready());
                    (waited.parked, waited.to_the_limit)
                })
            }
            Self::Parks(park) => {
                words.parking.0.publish(1);
                in_turns(&mut sent, until, |sent| {
                    let waited = wake::wait(&mut **park, &words.bell, RESCUE_AFTER, &mut || sent.is_ready());
                    (waited.parked, waited.to_the_limit)
                })
            }
            Self::Waits(waiting) => {
                let Waiting { waiter, event, set } = &mut **waiting;
                let mut bed = Bed { bell: &words.bell, event, descriptors: [None, None], set };
                let wait = in_turns(&mut sent, until, |sent| {
                    let waited = waiter.wait(&mut bed, sent);
                    (waited.slept, waited.missed)
                });
                waiter.handle_found();
                wait
            }
        };
        words.parking.0.publish(0);
        wait
    }

    /// System calls of one sleep.
    pub(super) fn calls(&self) -> u32 {
        match self {
            Self::Polls => 0,
            Self::Bare(sleeper) => sleeper.calls(),
            Self::Parks(park) => park.calls(),
            // A futex wait.
            Self::Waits(_) => 1,
        }
    }
}

/// Turn after turn, as each may end early. A turn says whether it slept, and whether only its limit ended the sleep.
#[inline]
fn in_turns(sent: &mut Sent<'_>, until: Ticks, mut turn: impl FnMut(&mut Sent<'_>) -> (bool, bool)) -> Wait {
    let clock = Clock::get();
    let mut wait = Wait { awake: clock.now(), ..Wait::default() };
    loop {
        let began = wait.awake;
        let (slept, to_the_limit) = turn(sent);
        wait.parks += u32::from(slept);
        let is_ready = sent.is_ready();
        wait.awake = clock.now_after_loads();
        wait.limit_at = (is_ready && to_the_limit).then(|| began.plus(clock.ticks(RESCUE_AFTER)));
        wait.over = !is_ready && wait.awake >= until;
        if is_ready || wait.over {
            return wait;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_ten_seconds() -> Ticks {
        Clock::get().now().plus(Clock::get().ticks(Duration::from_secs(10)))
    }

    #[test]
    fn names_are_read_back() {
        for route in Route::all() {
            assert_eq!(route.name().parse(), Ok(route));
        }
        assert!("smoke".parse::<Route>().unwrap_err().contains("floor-line"));
    }

    /// Goal: the floors call the kernel for each message, regardless of what the reader does, and wake it by every descriptor.
    #[test]
    fn a_floor_calls_for_every_message() {
        for floor in Floor::ALL {
            let words = WakeWords::default();
            let (mut reader, waker) = open(Route::Bare(floor)).unwrap();
            let looks = u32::from(floor != Floor::Futex);
            for message in 1..=100 {
                words.sent.0.publish(message);
                assert_eq!(waker.wake(&words), 1, "{floor:?}");
                let wait = reader.wait(&words, message, in_ten_seconds());
                assert!(wait.parks == looks && !wait.over && wait.limit_at.is_none(), "{floor:?}: {wait:?}");
            }
        }
    }

    #[test]
    fn an_awake_reader_costs_no_call() {
        for route in [Route::Line, Route::Spin, Route::Adaptive, Route::Park(Mechanism::Futex)] {
            let words = WakeWords::default();
            let (mut reader, waker) = open(route).unwrap();
            words.sent.0.publish(1);
            assert_eq!(waker.wake(&words), 0, "{route}");
            let wait = reader.wait(&words, 1, in_ten_seconds());
            assert!(wait.parks == 0 && !wait.over && wait.limit_at.is_none(), "{route}: {wait:?}");
        }
    }
}
