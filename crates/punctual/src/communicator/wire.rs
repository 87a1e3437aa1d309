//! A communicator's end on the kernel's media: its inbox, and its part in driving the node's engine.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::wall_clock::WallClock;
use punctual_machine::clock::{LastLook, Ticks};
use punctual_machine::doorbell::Notification;
use punctual_machine::epoll::EpollSet;
use punctual_proto::limits::ASSEMBLY_AGE;
use punctual_proto::{Address, Kind, Nanos, Target};

use super::Message;
use super::large::{Held, Taken};
use super::reception::{self, Reception};
use super::sender::WireSender;
use crate::engine::{Bell, FAREWELL_MAX, SendError};
use crate::large::{CATCHING_UP, FRAGMENTS_PER_LOOK, Gatherer, now};
use crate::ledger::{Count, RowCount};
use crate::node::inbox::Inbox;
use crate::node::reader::Reader;
use crate::node::receiving::Found;
use crate::node::sending::{Sending, Timing};
use crate::node::{BindError, CommunicatorOptions, Core};
use crate::pause::TimeLimit;
use crate::trace::{ReceiverStamps, Stages};
use crate::wake::{Manners, Waiter, epoll_set, waiter};

/// Room for a message, written in place.
#[derive(Debug)]
pub(super) struct WireClaim<'a> {
    sending: MutexGuard<'a, Sending>,
    core: &'a Core,
    inbox: &'a Inbox,
}

impl WireClaim<'_> {
    pub(super) fn payload(&mut self) -> &mut [u8] {
        self.sending.payload()
    }

    pub(super) fn commit(mut self) {
        self.sending.commit(self.core, self.inbox);
        self.sending.flush();
    }
}

impl Drop for WireClaim<'_> {
    fn drop(&mut self) {
        self.core.claiming.end();
    }
}

#[derive(Debug)]
pub(super) struct WireEnd {
    pub(super) core: Arc<Core>,
    pub(super) reception: Reception,
    /// The engine's descriptors and the inbox's together, for the user's own event loop.
    own_set: EpollSet,
    /// Since when it waits there.
    armed: Option<Ticks>,
    pub(super) stamps: bool,
    /// The clock of the kernel's stamps.
    wall: WallClock,
    pub(super) gatherer: Gatherer,
    /// The question whether the driver has looked at all that there was, and when it was asked.
    asked: Option<(u64, Nanos)>,
    /// While messages are in the making, at the clock.
    last_look: LastLook,
    pub(super) held: Held,
    /// Of the inbox's nudges, how many have landed, and how many of the next ones are for an owner that it had before.
    nudges_taken: u64,
    nudges_left: u64,
    /// Of the message that was delivered last.
    stages: Option<Stages>,
}

impl WireEnd {
    pub(super) fn new(
        core: Arc<Core>,
        inbox: &Arc<Inbox>,
        lead: Box<dyn Waiter>,
        options: &CommunicatorOptions,
    ) -> Result<Self, BindError> {
        let follow = waiter(options.wake.inside(), Manners::IN_PROCESS).map_err(BindError::CannotWait)?;
        let (reception, own_set) = Self::open_sets(&core, inbox, lead, follow)
            .inspect_err(|_| core.close(inbox))
            .map_err(BindError::System)?;
        let gatherer = Gatherer::new(&core.about.large);
        let (stamps, held) = (options.stamps, Held::default());
        let (nudges_taken, nudges_left) = (0, 0);
        let (wall, last_look) = (core.wall, LastLook::none());
        Ok(Self {
            core,
            reception,
            own_set,
            armed: None,
            stamps,
            wall,
            gatherer,
            asked: None,
            last_look,
            held,
            nudges_taken,
            nudges_left,
            stages: None,
        })
    }

    fn open_sets(
        core: &Core,
        inbox: &Arc<Inbox>,
        lead: Box<dyn Waiter>,
        follow: Box<dyn Waiter>,
    ) -> Result<(Reception, EpollSet), SystemError> {
        let reception = Reception::new(core, Arc::clone(inbox), lead, follow)?;
        let own_set = epoll_set(inbox.bell.event(), [Some(core.gate.as_fd()), None])?;
        Ok((reception, own_set))
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    pub(super) fn address(&self) -> Address {
        Address { node: self.core.about.node, port: self.reception.inbox.port }
    }

    pub(super) fn sender(&self) -> WireSender {
        WireSender::new(&self.core, &self.reception.inbox, self.stamps)
    }

    pub(super) fn seal_in(&self, group: u32) {
        self.reception.inbox.seal_in(group);
    }

    #[inline]
    pub(super) fn try_send(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<(), SendError> {
        self.queue_locked(target, payload, due)?.flush();
        Ok(())
    }

    pub(super) fn queue(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.queue_locked(target, payload, None).map(drop)
    }

    #[inline]
    fn queue_locked(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<MutexGuard<'_, Sending>, SendError> {
        let timing = self.stamps.then(|| Timing { due, sent: self.core.about.clock.now() });
        let mut sending = self.core.sending();
        sending.take(&self.core, &self.reception.inbox, target, payload, timing)?;
        Ok(sending)
    }

    pub(super) fn flush(&mut self) {
        self.core.sending().flush();
    }

    pub(super) fn claim(&mut self, target: Target, size: usize) -> Result<WireClaim<'_>, SendError> {
        let timing = self.stamps.then(|| Timing { due: None, sent: self.core.about.clock.now() });
        let mut sending = self.core.sending();
        sending.claim(&self.core, &self.reception.inbox, target, (Kind::Data, size), timing)?;
        self.core.claiming.begin();
        Ok(WireClaim { sending, core: &self.core, inbox: &self.reception.inbox })
    }

    /// Waits end at this instant too, or a little later.
    pub(super) fn pause_at(&mut self, instant: Ticks) {
        self.reception.pause_at = instant;
    }

    /// Lets the oldest message land, if there is one.
    #[inline]
    pub(super) fn try_receive(&mut self) -> bool {
        self.receive(Some(Ticks::default()), |reception, core, _| reception.try_receive(core, None))
    }

    /// Shows messages that are here to the reader, and lets the first one land that cannot be read where it lies.
    pub(super) fn try_read(&mut self, reader: &mut Reader<'_>) -> bool {
        self.receive(Some(Ticks::default()), |reception, core, _| {
            reception.try_receive(core, Some(&mut *reader))
        })
    }

    /// True if the last try left frames that were taken from the kernel.
    pub(super) fn has_at_hand(&self) -> bool {
        self.reception.has_left()
    }

    #[inline]
    pub(super) fn receive_until(&mut self, deadline: Option<Ticks>) -> bool {
        self.receive(deadline, Reception::receive_until)
    }

    /// The last message is not looked at any more.
    #[inline]
    pub(super) fn forget(&mut self) {
        if let Some(bytes) = self.reception.landing_mut().forget() {
            self.gatherer.give_back(&self.core.about, bytes);
        }
    }

    #[inline]
    fn receive(
        &mut self,
        deadline: Option<Ticks>,
        mut land: impl FnMut(&mut Reception, &Core, Option<Ticks>) -> bool,
    ) -> bool {
        let armed = self.disarm();
        self.reception.armed = armed.unwrap_or_default();
        if armed.is_some() {
            self.reception.disarmed = self.core.about.clock.now();
        }
        self.forget();
        let found = loop {
            self.gatherer.begin_look(&self.core.about);
            let mut found = self.land_whole(deadline, &mut land);
            while found && self.landed_size() == 0 && self.is_left_behind() {
                found = self.land_whole(deadline, &mut land);
            }
            let gathers = self.gatherer.is_gathering();
            if !found && gathers {
                self.give_up_late();
            }
            if found || !gathers || self.is_late(deadline) {
                break found;
            }
        };
        if armed.is_some() {
            self.core.hand_over();
        }
        found
    }

    /// Gives up what is late. A part of a large message is not late while the rest may lie in the socket: of another component that
    /// drives the engine that is known only once it says so, as it may do something else for long.
    #[cold]
    pub(super) fn give_up_late(&mut self) {
        let about = &self.core.about;
        if !self.reception.follows() {
            self.asked = None;
            if self.reception.has_seen_all() {
                self.gatherer.handle_nothing(about, now(about));
            }
            return;
        }
        match self.asked {
            None => self.asked = Some((self.core.ends.ask(), now(about))),
            Some((number, asked_at)) if self.core.ends.has_found(number) && !self.reception.has_news() => {
                self.asked = None;
                self.gatherer.handle_nothing(about, asked_at);
            }
            Some(_) => {}
        }
    }

    /// True if a wait that ended has ended for good, and not only for a look at messages in the making.
    #[cold]
    fn is_late(&mut self, deadline: Option<Ticks>) -> bool {
        let end = deadline.unwrap_or(Ticks::NEVER).min(self.reception.pause_at);
        self.last_look.finds_past(self.core.about.clock.now(), end)
    }

    /// The end of a wait. While a large message is in the making a wait ends in time to give it up.
    #[inline]
    fn end_of_wait(&mut self, deadline: Option<Ticks>) -> Option<Ticks> {
        if self.gatherer.is_gathering() { Some(self.end_of_gathering(deadline)) } else { deadline }
    }

    #[cold]
    fn end_of_gathering(&mut self, deadline: Option<Ticks>) -> Ticks {
        let clock = self.core.about.clock;
        let age = if self.asked.is_some() { CATCHING_UP } else { ASSEMBLY_AGE };
        let (now, age) = (clock.now(), clock.ticks(Duration::from_nanos(age.0)));
        self.last_look.note(now);
        deadline.unwrap_or(Ticks::NEVER).min(now.plus(age))
    }

    /// Lets a message land that is whole.
    #[inline]
    fn land_whole(
        &mut self,
        deadline: Option<Ticks>,
        land: &mut impl FnMut(&mut Reception, &Core, Option<Ticks>) -> bool,
    ) -> bool {
        let until = self.end_of_wait(deadline);
        let found = land(&mut self.reception, &self.core, until);
        if found && self.reception.landing().is_fragment() { self.gather(deadline, land) } else { found }
    }

    /// Takes the fragment that landed, and others, until a message is whole or one lands that was not cut.
    #[cold]
    fn gather(
        &mut self,
        deadline: Option<Ticks>,
        land: &mut impl FnMut(&mut Reception, &Core, Option<Ticks>) -> bool,
    ) -> bool {
        let mut until = deadline;
        for taken in 1_usize.. {
            if matches!(self.take_part(), Taken::Message) {
                return true;
            }
            if taken % FRAGMENTS_PER_LOOK == 1 {
                until = self.end_of_wait(deadline);
            }
            let is_late = || deadline.is_some_and(|deadline| self.core.about.clock.now() >= deadline);
            if taken.is_multiple_of(FRAGMENTS_PER_LOOK) && is_late()
                || !land(&mut self.reception, &self.core, until)
            {
                return false;
            }
            if !self.reception.landing().is_fragment() {
                break;
            }
        }
        true
    }

    /// The message that has landed; it is delivered now.
    #[inline(always)]
    pub(super) fn message(&mut self) -> Message<'_> {
        let landed = self.reception.landing().last();
        let (Found { header, stamps, circumstances, payload_at, direct, waits, is_large }, buffer) =
            landed.expect("asked for only when something has landed");
        let about = &self.core.about;
        let row = about.page.row(self.reception.inbox.row);
        row[RowCount::Delivered as usize].add_alone(1);
        row[RowCount::Direct as usize].add_alone((*direct && !*waits).into());
        if *is_large {
            about.page.count(Count::LargeDelivered).add(1);
        }
        self.stages = stamps.map(|sender| {
            let delivered = about.clock.now();
            // A message that was handed on was read when another thread woke.
            let disarmed = if *direct { self.reception.disarmed } else { Ticks::default() };
            Stages {
                sender,
                receiver: ReceiverStamps {
                    kernel: self.wall.instant(about.clock, circumstances.kernel_ns),
                    listened: self.reception.listened(),
                    armed: self.reception.armed,
                    woken: circumstances.woken.max(disarmed),
                    read: circumstances.read,
                    opened: circumstances.read,
                    delivered,
                    handed_on: !*direct,
                },
                one_clock: sender.same_clock(about.clock.domain()),
            }
        });
        let size = header.payload_size as usize;
        Message {
            source: header.source,
            target: header.target,
            sequence: header.sequence,
            lost_before: circumstances.lost_before,
            stages: self.stages.as_ref(),
            kernel_ns: Some(circumstances.kernel_ns).filter(|&ns| ns != 0),
            sealed_in: circumstances.sealed_in,
            payload: &buffer[*payload_at..payload_at + size],
        }
    }

    /// Nudges that were to end waits of an earlier owner are obsolete: they are not shown any more.
    pub(super) fn forget_nudges(&mut self) {
        self.nudges_left = self.reception.inbox.nudges.get().saturating_sub(self.nudges_taken);
    }

    /// True if the empty message that landed was to end a wait of the communicator's earlier owner.
    #[cold]
    pub(super) fn is_left_behind(&mut self) -> bool {
        let own = self.address();
        let is_own = self.reception.landing().last().is_some_and(|(found, _)| found.header.source == own);
        if !is_own || self.nudges_taken >= self.reception.inbox.nudges.get() {
            return false;
        }
        self.nudges_taken += 1;
        let is_left_behind = self.nudges_left > 0;
        if is_left_behind {
            self.nudges_left -= 1;
            // It counts as delivered, as those that did end a wait.
            let _nobody_reads_it = self.message();
        }
        is_left_behind
    }

    /// The size of the message that landed, bytes.
    pub(super) fn landed_size(&self) -> usize {
        self.reception.landing().last().map_or(0, |(found, _)| found.header.payload_size as usize)
    }

    pub(super) fn arm(&mut self) -> bool {
        self.disarm();
        let now = self.core.about.clock.now();
        if let Some(mut receiving) = self.core.try_receiving() {
            reception::housekeep_if_due(&self.core, &mut receiving);
        }
        if self.core.is_behind() {
            // An event loop that was woken for that does nothing else for it.
            self.core.catch_up();
        }
        let (core, reception) = (&self.core, &self.reception);
        let is_ready = || !core.arm() || reception.has_news();
        if reception.inbox.bell.doorbell().arm(Notification::Descriptor, is_ready) {
            self.armed = Some(now);
            return true;
        }
        self.stand_down();
        self.core.hand_over();
        false
    }

    /// Returns since when it was armed, if it was. If so, others may wait for the engine: [`Core::hand_over`] when done with it.
    #[inline]
    pub(super) fn disarm(&mut self) -> Option<Ticks> {
        let armed = self.armed.take();
        if armed.is_some() {
            self.stand_down();
        }
        armed
    }

    #[cold]
    fn stand_down(&mut self) {
        self.reception.inbox.bell.doorbell().disarm();
        self.reception.inbox.bell.event().drain();
        self.core.disarm();
    }
}

impl AsFd for WireEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own_set.as_fd()
    }
}

impl Drop for WireEnd {
    fn drop(&mut self) {
        if !self.core.about.maker.is_this_process() {
            return;
        }
        self.disarm();
        // Queued messages go before their sender does, as far as the medium has room in time.
        self.core.sending().flush();
        self.core.see_off(&mut TimeLimit::new(FAREWELL_MAX));
        self.gatherer.close(&self.core.about);
        self.held.close(&self.core.about);
        self.core.close(&self.reception.inbox);
        self.core.hand_over();
    }
}
