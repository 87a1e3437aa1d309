//! One member and its communicator: carries messages between them. The holder of the lock around it drives the group.

use std::collections::VecDeque;
use std::time::Duration;

use punctual_machine::process::random;
use punctual_proto::broadcast::{self, Event, Guarantee, Member};
use punctual_proto::{Nanos, Protocol, Target};

use super::page::{Exchanged, Page};
use super::steady::SteadyClock;
use super::yielding::Yielding;
use super::{GroupAccount, JoinError};
use crate::communicator::Communicator;
use crate::engine::SendError;

/// Messages that are taken before what they make due is done: together they are answered by less.
const TAKEN_FIRST: usize = 64;

/// The same, while more of them lie at hand: a window. Ten members by multicast deliver a sixth more bytes a second so. Where 4 % of the
/// frames are lost or altered it is a ninth (release build, Intel Xeon). Where a sender makes a copy for each peer it is the slowest, and
/// waits for answers that come that much later: four members by UDP delivered 15 % fewer.
const TAKEN_MAX: usize = 512;

/// Events that the user takes before the others are heard and told of it.
const EVENTS_FIRST_MAX: u32 = 16;

/// Time that it waits for room at a medium that is full, and rings for nobody.
const ROOM_WAIT: Nanos = Nanos::from_micros(50);

/// Age of the figures that others read of a member while it is busy; a member that has nothing to do writes them with each heartbeat.
/// Readers look by eye, or once in seconds. To write takes 26 ns for a roster of three and 155 ns for one of 32 (release build, Intel
/// Xeon). That is less than two hundredths of a per cent of the time, under any load. Otherwise a turn costs one comparison.
const PAGE_INTERVAL: Nanos = Nanos::from_millis(1);

/// A user that calls drives so often in a heartbeat, with any call. The caretaker comes after twice as long.
const DRIVES_PER_HEARTBEAT: u64 = 8;

/// A message for which the medium had no room.
#[derive(Clone, Copy, Debug)]
struct Held {
    target: Target,
    size: usize,
    since: Nanos,
}

#[derive(Debug)]
pub(super) struct Driver {
    member: Member,
    communicator: Communicator,
    clock: SteadyClock,
    /// Messages that a turn takes at most.
    taken_max: usize,
    /// Where others read how the member fares.
    page: Page,
    /// When that is written again.
    page_due: Nanos,
    exchanged: Exchanged,
    buffer: Vec<u8>,
    held: Option<Held>,
    /// A message that waits for room longer than this is lost: a reader that stands still must not stop the group.
    held_max: Nanos,
    /// Events that were taken from the member and not by the user yet, each with the bytes of its message.
    kept: VecDeque<(Event, Vec<u8>)>,
    /// All their bytes, and what it takes to keep each: a view has none of its own.
    kept_size: usize,
    /// With so many of them, the next view waits for the user.
    kept_size_max: usize,
    /// The bytes of the message that the user took last, if it had been kept; else room for the next to be kept.
    bytes: Vec<u8>,
    is_from_kept: bool,
    /// Events since the others were heard.
    taken: u32,
    /// Yields before a sleep; none if it never sleeps.
    yielding: Option<Yielding>,
    /// The user waits for the group's descriptor.
    pub(super) is_armed: bool,
    /// It was made readable, and not taken back yet.
    pub(super) has_rung: bool,
    /// When the user drove last. A call that only gives or takes something does not count.
    pub(super) driven_at: Nanos,
    /// After so long the user's next call drives.
    drive_after: Nanos,
}

/// Memory that an event with these bytes takes when it is kept.
fn room_of(bytes: &[u8]) -> usize {
    size_of::<(Event, Vec<u8>)>() + bytes.len()
}

impl Driver {
    /// `page` makes the page of a member whose frames have so many bytes.
    pub(super) fn new(
        options: broadcast::GroupOptions,
        mut communicator: Communicator,
        page: impl FnOnce(&Member, usize) -> Result<Page, JoinError>,
        refused: impl FnOnce(broadcast::OptionsError) -> JoinError,
    ) -> Result<Self, JoinError> {
        let clock = SteadyClock::get();
        let now = clock.now();
        communicator.ignore_own();
        let (buffer, held_max) = (vec![0; options.datagram_size()], options.heartbeat);
        let frame_size = options.frame_size;
        let drive_after = Nanos(options.heartbeat.0 / DRIVES_PER_HEARTBEAT);
        let kept_size_max = options.roster.len() * options.window * options.frame_size;
        let member = Member::new(options, random(), now).map_err(refused)?;
        Ok(Self {
            page: page(&member, frame_size)?,
            page_due: now,
            exchanged: Exchanged::default(),
            member,
            taken_max: if communicator.copies() > 1 { TAKEN_FIRST } else { TAKEN_MAX },
            communicator,
            clock,
            buffer,
            held: None,
            held_max,
            kept: VecDeque::new(),
            kept_size: 0,
            kept_size_max,
            bytes: Vec::new(),
            is_from_kept: false,
            taken: 0,
            yielding: None,
            is_armed: false,
            has_rung: false,
            driven_at: now,
            drive_after,
        })
    }

    /// Sets whether it yields amid a stream: one that never sleeps has a processor of its own.
    pub(super) fn yielding(mut self, sleeps: bool) -> Self {
        self.yielding = sleeps.then(Yielding::new);
        self
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// The next event for the user, if there is one now.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        let event = self.take_event();
        if event.is_some() {
            self.renew_yields();
        }
        self.exchanged.delivered += u64::from(matches!(event, Some(Event::Delivered(_))));
        event
    }

    fn take_event(&mut self) -> Option<Event> {
        self.taken += 1;
        if self.taken > EVENTS_FIRST_MAX {
            self.turn();
        }
        self.is_from_kept = !self.kept.is_empty();
        if let Some((event, bytes)) = self.kept.pop_front() {
            self.kept_size -= room_of(&bytes);
            self.bytes = bytes;
            if event == Event::Expelled {
                self.member.keep_out(false);
            }
            return Some(event);
        }
        let event = self.member.poll_event();
        if event.as_ref().is_some_and(|event| !matches!(event, Event::Delivered(_))) {
            // The others must hear why the view has ended, even if the user ends now.
            self.settle();
        }
        event
    }

    /// Account of the member, as its page shows it to all.
    pub(super) fn account(&mut self) -> GroupAccount {
        self.write_page(self.now());
        self.page.view().account()
    }

    /// Puts the bytes of the message that the user took last into a buffer, once.
    pub(super) fn take_message(&mut self, buffer: &mut Vec<u8>) {
        if self.is_from_kept {
            std::mem::swap(&mut self.bytes, buffer);
        } else {
            self.member.take_message(buffer);
        }
    }

    /// True if there is an event for the user.
    pub(super) fn has_event(&mut self) -> bool {
        !self.kept.is_empty() || self.keep()
    }

    /// Takes an event from the member for the user to take later: later actions of the member do not change its bytes.
    fn keep(&mut self) -> bool {
        let Some(event) = self.member.poll_event() else { return false };
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        if let Event::Delivered(_) = event {
            self.member.take_message(&mut bytes);
        }
        if event == Event::Expelled {
            self.member.keep_out(true);
        }
        self.kept_size += room_of(&bytes);
        self.kept.push_back((event, bytes));
        true
    }

    /// The next view begins without the user: the rest of this one is kept for it, as far as there is room.
    fn finish_view(&mut self) {
        while self.member.is_finishing_view() && self.kept_size < self.kept_size_max && self.keep() {}
    }

    pub(super) fn try_broadcast(
        &mut self,
        message: &[u8],
        guarantee: Guarantee,
    ) -> Result<(), broadcast::BroadcastError> {
        let now = self.now();
        self.member.try_broadcast(message, guarantee, now)?;
        self.exchanged.broadcast += 1;
        if !self.member.is_gathering() {
            self.settle();
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        let now = self.now();
        self.member.leave(now);
        self.settle();
    }

    /// The user calls: a user that keeps the caretaker away does the caretaker's work.
    pub(super) fn drive_if_due(&mut self, now: Nanos) {
        if now.since(self.driven_at) >= self.drive_after {
            self.turn();
            self.driven_at = now;
        }
    }

    /// Does what there is to do now, without waiting.
    pub(super) fn turn(&mut self) {
        self.taken = 0;
        let now = self.now();
        let Self { member, communicator, .. } = self;
        let mut taken = 0;
        while taken < self.taken_max {
            let count =
                communicator.poll(TAKEN_FIRST, |source, payload| member.handle_message(source, payload, now));
            taken += count;
            if count < TAKEN_FIRST || !communicator.has_at_hand() {
                break;
            }
        }
        self.settle();
    }

    /// Waits for a message, or until something is due; amid a stream others run first, and it returns for the next turn.
    pub(super) fn wait(&mut self, deadline: Nanos) {
        let now = self.now();
        if self.member.is_streaming() && self.yielding.as_ref().is_some_and(|yielding| yielding.is_due(now)) {
            return self.yield_now(now);
        }
        self.renew_yields();
        // Until there is room nothing else can be said, however long it has been due.
        let due = if self.held.is_some() { now.plus(ROOM_WAIT) } else { self.member.poll_timeout() };
        let due = due.min(deadline);
        let clock = self.clock.clock;
        let until = clock.now().plus(clock.ticks(Duration::from_nanos(due.since(now).0)));
        if let Ok(message) = self.communicator.receive_until(Some(until)) {
            let now = self.clock.now();
            self.member.handle_message(message.source, message.payload, now);
        }
    }

    fn yield_now(&mut self, began: Nanos) {
        std::thread::yield_now();
        let now = self.now();
        if let Some(yielding) = &mut self.yielding {
            yielding.note(began, now);
        }
    }

    fn renew_yields(&mut self) {
        if let Some(yielding) = &mut self.yielding {
            yielding.renew();
        }
    }

    /// Lets time pass, and says what there is to say.
    fn settle(&mut self) {
        let now = self.now();
        self.finish_view();
        if now >= self.member.poll_timeout() {
            self.member.handle_timeout(now);
        }
        self.transmit(now);
        if now >= self.page_due {
            self.write_page(now);
        }
    }

    fn write_page(&mut self, now: Nanos) {
        self.page.write(&self.member, self.exchanged);
        self.page_due = now.plus(PAGE_INTERVAL);
    }

    fn transmit(&mut self, now: Nanos) {
        if let Some(held) = self.held.take()
            && now.since(held.since) < self.held_max
            && !self.send(held)
        {
            return self.communicator.flush();
        }
        while let Some(message) = self.member.poll_transmit(now, &mut self.buffer) {
            if !self.send(Held { target: message.target, size: message.size, since: now }) {
                break;
            }
        }
        self.communicator.flush();
    }

    /// Returns true if there was room. A message that nobody hears is lost as any message may be.
    fn send(&mut self, message: Held) -> bool {
        match self.communicator.queue(message.target, &self.buffer[..message.size]) {
            Err(SendError::Full) => {
                self.held = Some(message);
                false
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::broadcast::{Delivery, Group, GroupOptions};
    use crate::node::{Bus, Node};

    /// Goal: events without bytes count among what is kept for a user that is away, and no longer once it took them.
    #[test]
    fn views_are_not_kept_for_nothing() {
        let node = Node::open(&Bus::loopback("kept"), "anne").unwrap();
        let mut group = Group::join(&node, &GroupOptions::new("alone", &["anne"]).founding()).unwrap();
        let mut size = || {
            let mut driver = group.shared.visit(&mut group.sender);
            (driver.has_event(), driver.kept_size > 0)
        };
        assert_eq!(size(), (true, true));
        assert!(matches!(group.try_deliver(), Ok(Delivery::View(_))));
        let mut driver = group.shared.visit(&mut group.sender);
        assert_eq!((driver.has_event(), driver.kept_size), (false, 0));
    }
}
