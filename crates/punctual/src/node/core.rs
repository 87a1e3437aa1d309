//! State that all communicators of a node on a kernel's medium share, and the choice of the one that drives its engine.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::Ticks;
use punctual_machine::clock::wall_clock::WallClock;
use punctual_machine::counter::Counter;
use punctual_machine::doorbell::Notification;
use punctual_proto::Port;

use super::ends::Ends;
use super::events::Watch;
use super::inbox::{self, Inbox};
use super::reader::HoldingThread;
use super::receiving::Receiving;
use super::registry::{Registry, Waiting};
use super::sending::Sending;
use super::waiting::CATCH_UP_EVERY;
use super::{About, BindError, CommunicatorOptions};
use crate::engine::{Bell, ring};
use crate::locks::{lock, try_lock};
use crate::pause::{Pauses, TimeLimit};
use crate::wake::{Gate, Manners};

/// State that all communicators of a node on a kernel's medium share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) about: About,
    pub(crate) registry: Registry,
    pub(crate) watch: Watch,
    pub(crate) bell: Arc<dyn Bell>,
    pub(super) manners: Manners,
    /// Bytes of frames for which the medium has room before they are read.
    pub(super) room: usize,
    /// Copies that the medium makes of a frame for everybody.
    pub(crate) copies: usize,
    /// The medium's descriptors, for epoll sets made while somebody drives the engine.
    pub(crate) descriptors: [Option<OwnedFd>; 2],
    /// Wakes users' event loops, while no component drives the engine.
    pub(crate) gate: Gate,
    /// As it was when the node opened: messages wait for communicators that are bound later.
    pub(crate) wall: WallClock,
    /// The thread that reads where messages lie, with the receiving half held.
    pub(crate) reading: HoldingThread,
    /// The thread that has a claim, with the sending half held.
    pub(crate) claiming: HoldingThread,
    /// Threads that want the receiving half for a moment while its driver may sleep.
    pub(super) visitors: Counter,
    /// For components that wait for the driver.
    pub(crate) ends: Ends,
    /// 1 while there are losses under no cause.
    pub(super) unsettled: Counter,
    /// 1 while the medium has no room yet for a frame that was sent. A waiter tries again soon.
    pub(super) behind: Arc<Counter>,
    // Sending before receiving: fields are dropped in this order, and goodbye is said first.
    pub(super) sending: Mutex<Sending>,
    pub(super) receiving: Mutex<Receiving>,
}

/// A thread that wants the receiving half for a moment, or has it. A driver makes way until it is done: it may need the processor on
/// which a driver in real time looks for the half.
struct Visit<'a>(&'a Counter);

impl<'a> Visit<'a> {
    fn of(core: &'a Core) -> Self {
        core.visitors.add(1);
        Self(&core.visitors)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.add(1_u64.wrapping_neg());
    }
}

impl Core {
    /// The sending half, for a component that sends.
    #[inline]
    pub(crate) fn sending(&self) -> MutexGuard<'_, Sending> {
        lock(&self.sending)
    }

    pub(crate) fn try_sending(&self) -> Option<MutexGuard<'_, Sending>> {
        try_lock(&self.sending)
    }

    /// Borrows the engine's receiving half for a moment; its driver, if there is one, makes way.
    ///
    /// # Panics
    /// If the driver is this thread.
    pub(crate) fn visit<T>(&self, work: impl FnOnce(&mut Receiving) -> T) -> T {
        self.reading.refuse_this();
        let done = {
            let _visit = Visit::of(self);
            ring(&*self.bell);
            work(&mut lock(&self.receiving))
        };
        // As in [`Self::settle`].
        self.hand_over_to_next();
        done
    }

    /// The same if nobody drives the engine just now; returns true if so.
    fn try_visit(&self, work: impl FnOnce(&mut Receiving)) -> bool {
        let _visit = Visit::of(self);
        self.try_receiving().is_some_and(|mut receiving| {
            work(&mut receiving);
            true
        })
    }

    /// True if the driver must make way: a visitor wants the receiving half, or has it.
    #[inline]
    pub(crate) fn has_visitors(&self) -> bool {
        self.visitors.get() != 0
    }

    /// A visitor that never takes the half, until it is dropped.
    #[cfg(test)]
    pub(crate) fn pretend_visitor(&self) -> impl Drop + '_ {
        Visit::of(self)
    }

    /// The engine's receiving half, if no other component of this node drives it. The thread that gives it back calls
    /// [`Self::hand_over`]: others may have gone to sleep because it was taken.
    #[inline]
    pub(crate) fn try_receiving(&self) -> Option<MutexGuard<'_, Receiving>> {
        try_lock(&self.receiving)
    }

    /// Puts losses under their causes, for a reader of the account. A thread that has the engine now does so with its next look.
    pub(crate) fn settle(&self) {
        if self.unsettled.get() == 1 && self.try_visit(|receiving| receiving.settle(self)) {
            // A thread that found the half taken meanwhile has gone to sleep, shared or not.
            self.hand_over_to_next();
        }
    }

    /// The leader has left: a follower takes over, or the engine's bell wakes the users' event loops.
    #[inline]
    pub(crate) fn hand_over(&self) {
        if self.registry.is_shared() {
            self.hand_over_to_next();
        }
    }

    fn hand_over_to_next(&self) {
        let mut waiting = self.registry.waiting();
        let is_to_look = !self.hand_over_locked(&mut waiting) && waiting.armed > 0;
        drop(waiting);
        if is_to_look {
            ring(&*self.bell);
            if self.gate.is_closed() {
                // It could not open, so that nothing of the medium or the bell comes through: event loops have bells of their own.
                self.registry.lock().iter().for_each(|inbox| ring(&inbox.bell));
            }
        }
    }

    /// `false` if nobody drives the engine and it has something already.
    fn hand_over_locked(&self, waiting: &mut Waiting) -> bool {
        // A thread that goes to sleep because the engine was taken has said so before, under the lock of `waiting`: either we find it,
        // or it finds the engine free. If it is taken again, its new holder hands it over.
        let Some(receiving) = self.try_receiving() else { return true };
        match waiting.followers.pop() {
            Some(next) => {
                next.set_listed(false);
                drop(receiving);
                ring(&next.bell);
                true
            }
            None if waiting.armed > 0 => {
                let open = || self.gate.open(self.bell.event().as_fd(), &self.descriptors);
                let is_ready = || !open() || receiving.is_ready();
                let arms = self.bell.doorbell().arm(Notification::Descriptor, is_ready);
                if arms {
                    // Of what stays behind from now on the bell tells.
                    self.gate.wake_at(self.next_look(receiving.next_due()));
                }
                arms
            }
            None => true,
        }
    }

    /// A communicator goes to wait in its user's event loop. `false` if the engine has something already.
    pub(crate) fn arm(&self) -> bool {
        if !self.registry.has_event_loops.is_raised() {
            self.registry.has_event_loops.raise();
            // A thread that took the engine before it was raised would not look for us.
            self.visit(|_| ());
        }
        let mut waiting = self.registry.waiting();
        waiting.armed += 1;
        self.hand_over_locked(&mut waiting)
    }

    /// It waits no more. Ends with [`Self::hand_over`], once it has looked for messages: others may still wait.
    pub(crate) fn disarm(&self) {
        self.registry.waiting().armed -= 1;
        if let Some(mut receiving) = self.try_receiving() {
            self.bell.doorbell().disarm();
            // A descriptor that is readable once more is news, also to an event loop that is told of changes only.
            self.gate.wake_at(None);
            receiving.handle_awake();
        }
    }

    /// Takes back what the bell left behind for event loops: a leader that sleeps by other means never would.
    #[inline]
    pub(crate) fn handle_lead(&self, receiving: &mut Receiving) {
        if self.registry.has_event_loops.is_raised() {
            self.close_gate(receiving);
        }
    }

    #[cold]
    fn close_gate(&self, receiving: &mut Receiving) {
        self.gate.close(self.bell.event().as_fd(), &self.descriptors);
        receiving.handle_awake();
    }

    /// Does the work that is due from time to time, in both halves.
    pub(crate) fn housekeep(&self, receiving: &mut Receiving, now: Ticks) {
        receiving.housekeep(self, now);
        if let Some(seals) = &self.about.seals {
            seals.keys().housekeep();
        }
        if let Some(mut sending) = self.try_sending() {
            sending.housekeep(self, now);
        }
    }

    /// The same, if nobody drives the engine just now: a driver keeps house itself.
    pub(crate) fn keep_house(&self) {
        if self.try_visit(|receiving| self.housekeep(receiving, self.about.clock.now())) {
            // As in [`Self::settle`].
            self.hand_over_to_next();
        }
    }

    /// True if the medium had no room yet for something that was sent.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.get() != 0
    }

    /// Time at which a sleeper must look although nothing rings: the medium may have room again, or a layer have something to show.
    fn next_look(&self, layer_due: Option<Ticks>) -> Option<Ticks> {
        let clock = self.about.clock;
        let catch_up = || clock.now().plus(clock.ticks(CATCH_UP_EVERY));
        self.is_behind().then(catch_up).into_iter().chain(layer_due).min()
    }

    /// Hands that to the medium, if it has room now.
    #[cold]
    pub(crate) fn catch_up(&self) {
        if let Some(mut sending) = self.try_sending() {
            sending.flush();
        }
    }

    /// Waits until the medium has every frame that was sent, or the time is over. Otherwise some stay behind while nobody sends or waits
    /// here. True if it has all.
    #[inline]
    pub(crate) fn see_off(&self, limit: &mut TimeLimit) -> bool {
        !self.is_behind() || self.wait_for_medium(limit)
    }

    #[cold]
    fn wait_for_medium(&self, limit: &mut TimeLimit) -> bool {
        let mut pauses = Pauses::from(Duration::from_micros(1));
        loop {
            self.catch_up();
            let has_all = !self.is_behind();
            if has_all || limit.is_over() {
                return has_all;
            }
            pauses.sleep();
            self.keep_house();
        }
    }

    /// Bytes of one sender's frames for which there is room before this communicator has read them: others may send meanwhile.
    pub(crate) fn room_for(&self, inbox: &Inbox) -> u32 {
        let room = if self.registry.is_shared() { self.room.min(inbox.size) } else { self.room };
        (room / 2).try_into().unwrap_or(u32::MAX)
    }

    /// Forgets a communicator that closes.
    pub(crate) fn close(&self, inbox: &Arc<Inbox>) {
        let mut inboxes = self.registry.lock();
        inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
        self.registry.note_change();
        self.registry.delist(inbox);
        inbox.close();
        self.about.page.close_row(inbox.row, inbox.discarded());
    }
}

impl Core {
    pub(super) fn new_inbox(
        &self,
        port: Port,
        options: &CommunicatorOptions,
    ) -> Result<Arc<Inbox>, BindError> {
        let size = options.inbox_size.unwrap_or_else(|| inbox::size_for(self.about.payload_size_max));
        if !size.is_power_of_two() || !(1 << 12..=1 << 30).contains(&size) {
            let text = format!("inbox of {size} bytes: a power of two from 4096 to 1073741824 is needed");
            return Err(BindError::Invalid(text));
        }
        self.list_inbox(port, |row| Inbox::new(port, row, size))
    }

    /// An inbox for every message that arrives.
    pub(super) fn new_monitor(&self) -> Result<Arc<Inbox>, BindError> {
        let size = inbox::size_for(self.about.payload_size_max);
        self.list_inbox(Port::from(u16::MAX), |row| Inbox::monitoring(row, size))
    }

    fn list_inbox(
        &self,
        port: Port,
        make: impl FnOnce(usize) -> Result<Arc<Inbox>, SystemError>,
    ) -> Result<Arc<Inbox>, BindError> {
        // Before anything is taken that would stay taken.
        self.reading.refuse_this();
        let mut inboxes = self.registry.lock();
        let row = self.about.page.take_row(port)?;
        let inbox = make(row).inspect_err(|_| self.about.page.close_row(row, 0));
        let inbox = inbox.map_err(BindError::System)?;
        inboxes.push(Arc::clone(&inbox));
        self.registry.reserve();
        self.registry.note_change();
        drop(inboxes);
        if self.registry.is_shared() {
            // A thread that took the engine while there was one communicator would not look for another.
            self.visit(|_| ());
        }
        Ok(inbox)
    }
}
