//! Broadcast to a group: all members deliver the same messages, each once, in the same order, despite any crashes
//! (`docs/broadcast.md`). Messages may go without order, and without waiting ([`Guarantee`]).
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use punctual::broadcast::{Delivery, Group, GroupOptions};
//! use punctual::{Bus, Node};
//!
//! // Usually each in a process of its own, on Bus::shared, Bus::multicast, Bus::peers or Bus::ethernet.
//! let bus = Bus::loopback("bank");
//! let names = ["anne", "bob", "carl"];
//! let nodes = names.map(|name| Node::open(&bus, name).expect("a free name"));
//! let options = GroupOptions::new("accounts", &names);
//! let mut anne = Group::join(&nodes[0], &options.clone().founding())?;
//! let mut bob = Group::join(&nodes[1], &options)?;
//! let mut carl = Group::join(&nodes[2], &options)?;
//!
//! let deadline = Instant::now() + Duration::from_secs(60);
//! let (mut all_are_there, mut paid) = (false, None);
//! while paid.is_none() {
//!     if all_are_there && bob.try_broadcast(b"pay 7 to carl").is_ok() {
//!         all_are_there = false; // once
//!     }
//!     if let Ok(Delivery::View(view)) = bob.try_deliver() {
//!         all_are_there = view.members.len() == 3;
//!     }
//!     anne.try_deliver().ok(); // what a member does not take holds the others up
//!     if let Ok(Delivery::Message(message)) = carl.deliver(Duration::from_millis(1)) {
//!         paid = Some((message.sender, message.payload.to_vec()));
//!     }
//!     assert!(Instant::now() < deadline, "they do not meet");
//! }
//! assert_eq!(paid, Some((nodes[1].id(), b"pay 7 to carl".to_vec())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Driving.** A member does the group's work in its user's calls, above all in [`Group::deliver`]: no thread lies between the medium
//! and it. Calls that wait for nothing do it at least once in an eighth of a heartbeat. Its own *caretaker* thread drives a member
//! whose user does something else for a quarter of a heartbeat, until the user comes back. So it answers, repairs, and is suspected by
//! nobody. But its user takes nothing: after a window the senders have no credit ([`BroadcastError::Full`]), until it does, or is
//! expelled ([`GroupOptions::expel_slow_after`]). A new view begins for a member without its user, who is told of it later, in order;
//! it waits for the user only where there is no room left for messages that the user has not taken.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::event_fd::EventFd;
use punctual_proto::broadcast::{Event, Member};
use punctual_proto::{Nanos, NodeId};

use crate::communicator::Sender;
use crate::node::{CommunicatorOptions, Node};
use crate::wake::Wake;

pub use account::{GroupAccount, GroupOwner, GroupState, MemberAccount, read_all};
pub use broadcaster::Broadcaster;
pub use delivery::{BroadcastError, DeliverError, Delivery, Message, View};
#[cfg(feature = "group-file")]
pub use group_file::{GroupFile, GroupFileError, GroupMember};
pub use options::{GROUP_PORT, GroupOptions, JoinError};
pub use punctual_proto::broadcast::{Command, Guarantee, Mismatch, OptionsError, State};
pub use replica::{Change, Replica, ReplicaError};

use driver::Driver;
use options::nanos;
use page::Page;
use shared::Shared;

mod account;
mod broadcaster;
mod delivery;
mod driver;
#[cfg(feature = "group-file")]
mod group_file;
mod options;
mod page;
mod replica;
mod shared;
mod steady;
mod yielding;

/// A member of a group. Dropped without [`Group::leave`] it crashes, for the others.
pub struct Group {
    name: String,
    node: NodeId,
    shared: Arc<Shared>,
    sender: Sender,
    guarantee: Guarantee,
    message_size_max: usize,
    /// The message that was delivered last.
    message: Vec<u8>,
    /// The medium is memory.
    shows_all: bool,
    caretaker: Option<JoinHandle<()>>,
}

/// The next event in the order of a group.
#[derive(Debug)]
pub(crate) struct Next {
    event: Event,
    /// Empty unless that is one.
    view: View,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its windows are megabytes.
        f.debug_struct("Group").field("name", &self.name).field("node", &self.node).finish_non_exhaustive()
    }
}

impl Group {
    /// Asks to join, or founds the group. The first view tells when it has.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(node: &Node, options: &GroupOptions) -> Result<Self, JoinError> {
        let member = options.of_member(node)?;
        let communicator = CommunicatorOptions::waiting(options.wake);
        let communicator = node.bind_with(options.port, &communicator).map_err(JoinError::Bind)?;
        let sender = communicator.sender();
        let shows_all = communicator.is_ready().is_some();
        let page = |member: &Member, frame_size| {
            Page::create(&options.name, node.page_owner(), (member, frame_size)).map_err(JoinError::System)
        };
        let refused = |error| JoinError::Options { group: options.name.clone(), error };
        let driver = Driver::new(member, communicator, page, refused)?.yielding(options.wake != Wake::Spin);
        let event = EventFd::new().map_err(JoinError::System)?;
        let shared = Arc::new(Shared::new(driver, event, options.heartbeat / 4));
        let theirs = Arc::clone(&shared);
        let caretaker = std::thread::Builder::new().name("caretaker".to_owned());
        let caretaker = caretaker.spawn(move || theirs.take_care()).map_err(|error| {
            JoinError::System(SystemError::new("start", "caretaker of a group's member", error))
        })?;
        let mut group = Self {
            name: options.name.clone(),
            node: node.id(),
            shared,
            sender,
            guarantee: options.guarantee,
            message_size_max: options.message_size_max,
            message: Vec::new(),
            shows_all,
            caretaker: Some(caretaker),
        };
        group.drive(Driver::turn);
        Ok(group)
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The view that this member is in, of which its user may not have been told yet; empty before the first, between two
    /// lives, and once it has left. Does what there is to do for the group, without waiting.
    pub fn view(&mut self) -> View {
        self.drive(|driver| {
            driver.turn();
            let member = driver.member();
            View::new(member.view(), |place| member.node(place))
        })
    }

    /// The option because of which a group refused this member last. The member goes on asking; nothing once it is in a view. Does what
    /// there is to do for the group, without waiting.
    pub fn mismatch(&mut self) -> Option<Mismatch> {
        self.drive(|driver| {
            driver.turn();
            driver.member().mismatch()
        })
    }

    /// Account of this member. Other processes read the same by [`read_all`].
    pub fn account(&mut self) -> GroupAccount {
        self.drive(|driver| {
            driver.turn();
            driver.account()
        })
    }

    /// Takes a message to be delivered to all members, this one included, or says why not; never waits.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn try_broadcast(&mut self, message: &[u8]) -> Result<(), BroadcastError> {
        self.try_broadcast_as(message, self.guarantee)
    }

    /// The same with another guarantee than the group's usual one.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn try_broadcast_as(&mut self, message: &[u8], guarantee: Guarantee) -> Result<(), BroadcastError> {
        let size_max = self.message_size_max;
        self.drive(|driver| try_broadcast(driver, message, guarantee, size_max))
    }

    /// The same, and waits for credit, a view or a majority for at most `timeout`.
    ///
    /// # Errors
    /// See [`BroadcastError`]. Two come at once: [`BroadcastError::Undelivered`] where waiting might never end, because messages that
    /// this member has not taken may hold it up; and [`BroadcastError::NoMember`] where it has left.
    pub fn broadcast(&mut self, message: &[u8], timeout: Duration) -> Result<(), BroadcastError> {
        self.broadcast_as(message, self.guarantee, timeout)
    }

    /// The same with another guarantee than the group's usual one.
    pub(crate) fn broadcast_as(
        &mut self,
        message: &[u8],
        guarantee: Guarantee,
        timeout: Duration,
    ) -> Result<(), BroadcastError> {
        let size_max = self.message_size_max;
        self.drive_until(timeout, |driver, is_late| {
            let taken = driver.try_broadcast(message, guarantee);
            let error = match taken.map_err(|error| BroadcastError::new(error, message.len(), size_max)) {
                Err(error) if error.may_pass() && !driver.member().has_left() => error,
                result => return Some(result),
            };
            // To take a view may be all that was missing.
            if driver.has_event() {
                let taken = driver.try_broadcast(message, guarantee);
                return Some(taken.map_err(|_| BroadcastError::Undelivered));
            }
            is_late.then_some(Err(error))
        })
    }

    /// Returns the next delivery in the order of the group, if it is here; never waits.
    ///
    /// # Errors
    /// See [`DeliverError`].
    pub fn try_deliver(&mut self) -> Result<Delivery<'_>, DeliverError> {
        self.deliver(Duration::ZERO)
    }

    /// Returns the next delivery in the order of the group; waits for it for at most `timeout`.
    ///
    /// # Errors
    /// See [`DeliverError`].
    pub fn deliver(&mut self, timeout: Duration) -> Result<Delivery<'_>, DeliverError> {
        let next = self.next_within(timeout)?;
        self.told(next)
    }

    /// Returns the next event, with its view if it is one; the bytes of a message are in the buffer then.
    pub(crate) fn next_within(&mut self, timeout: Duration) -> Result<Next, DeliverError> {
        let mut buffer = std::mem::take(&mut self.message);
        let next = self.drive_until(timeout, |driver, is_late| {
            let Some(event) = driver.next_event() else {
                let error = if driver.member().has_left() { DeliverError::Left } else { DeliverError::Empty };
                return (is_late || error == DeliverError::Left).then_some(Err(error));
            };
            if let Event::Delivered(_) = event {
                driver.take_message(&mut buffer);
            }
            let view = match &event {
                Event::View(view) => View::new(view, |place| driver.member().node(place)),
                _ => View::default(),
            };
            Some(Ok(Next { event, view }))
        });
        self.message = buffer;
        next
    }

    /// The event that came last, as the user is told it.
    pub(crate) fn told(&self, next: Next) -> Result<Delivery<'_>, DeliverError> {
        Ok(match next.event {
            Event::Delivered(told) => Delivery::Message(Message::new(&told, &self.message)),
            Event::View(_) => Delivery::View(next.view),
            Event::Stopped => Delivery::Stopped,
            Event::Resumed => Delivery::Resumed,
            Event::Expelled => Delivery::Expelled,
            Event::Left => return Err(DeliverError::Left),
            Event::Mismatch(mismatch) => return Err(DeliverError::Mismatch(mismatch)),
        })
    }

    /// True if a turn of the user's own finds all that comes, without a call of the kernel where nothing does.
    pub(crate) fn shows_all(&self) -> bool {
        self.shows_all
    }

    /// Drives, and says whether there is something to deliver, or never will be. It stays armed if it was.
    pub(crate) fn is_ready(&mut self) -> bool {
        let mut driver = self.shared.visit(&mut self.sender);
        driver.turn();
        driver.driven_at = driver.now();
        let (is_armed, is_ready) = (driver.is_armed, driver.has_event() || driver.member().has_left());
        drop(driver);
        if is_armed {
            // The caretaker rests if it found this thread driving.
            self.shared.call();
        }
        is_ready
    }

    /// A handle that broadcasts from this member on another thread, while this one delivers.
    pub fn broadcaster(&self) -> Broadcaster {
        Broadcaster {
            shared: Arc::clone(&self.shared),
            sender: self.sender.clone(),
            guarantee: self.guarantee,
            message_size_max: self.message_size_max,
        }
    }

    /// Asks the others to go on without this member. Deliver until [`DeliverError::Left`]: messages that the others deliver before they
    /// go on, it delivers too. The exception is told as [`Delivery::Expelled`] before that. Such a member lacked something and did not
    /// get it while the others waited. Or it was cut off from them and had gone on in another order. A member that hears too few is told
    /// the same, and leaves after eight times [`GroupOptions::suspect_after`]; it may be dropped before.
    pub fn leave(&mut self) {
        self.drive(Driver::leave);
    }

    /// For an event loop of one's own: from now on [`Self::as_fd`] becomes readable when there is something to deliver. Returns
    /// `false`, and arms nothing, if there is already. Deliver until [`DeliverError::Empty`], arm, wait; any other call of this
    /// member's disarms. Meanwhile the caretaker drives.
    pub fn arm(&mut self) -> bool {
        let has_event = self.drive(|driver| {
            driver.turn();
            let has_event = driver.has_event();
            driver.is_armed = !has_event;
            has_event
        });
        if !has_event {
            self.shared.call();
        }
        !has_event
    }

    /// True if it has left, or was left out for good.
    fn has_left(&mut self) -> bool {
        self.drive(|driver| driver.member().has_left())
    }

    /// A call that waits for nothing.
    fn drive<R>(&mut self, work: impl FnOnce(&mut Driver) -> R) -> R {
        let mut driver = self.shared.visit(&mut self.sender);
        disarm(&mut driver, &self.shared);
        let now = driver.now();
        driver.drive_if_due(now);
        work(&mut driver)
    }

    /// Drives until `work` has a result, which it must have when it is late.
    fn drive_until<R>(
        &mut self,
        timeout: Duration,
        mut work: impl FnMut(&mut Driver, bool) -> Option<R>,
    ) -> R {
        let mut driver = self.shared.visit(&mut self.sender);
        disarm(&mut driver, &self.shared);
        let began = driver.now();
        let deadline = began.plus(nanos(timeout));
        let mut has_waited = false;
        loop {
            if self.shared.has_visitors() {
                drop(driver);
                self.shared.let_visitors_in();
                driver = self.shared.visit(&mut self.sender);
            }
            if let Some(result) = work(&mut driver, false) {
                // A result that was here already waits only for a turn that is due.
                match has_waited {
                    true => driver.driven_at = driver.now(),
                    false => driver.drive_if_due(began),
                }
                return result;
            }
            driver.turn();
            // For the caretaker, too, which may have the lock before this call returns: the user is here.
            driver.driven_at = driver.now();
            let is_late = driver.driven_at >= deadline && deadline != Nanos::NEVER;
            if let Some(result) = work(&mut driver, is_late) {
                return result;
            }
            has_waited = true;
            // A visitor that came since the look above has nudged, and the turn may have taken that: nothing else would end the wait.
            if !self.shared.has_visitors() {
                driver.wait(deadline);
            }
        }
    }
}

/// Takes it, if need be after a turn: messages that are here already may make room.
fn try_broadcast(
    driver: &mut Driver,
    message: &[u8],
    guarantee: Guarantee,
    size_max: usize,
) -> Result<(), BroadcastError> {
    let refused = |error| BroadcastError::new(error, message.len(), size_max);
    match driver.try_broadcast(message, guarantee).map_err(refused) {
        Err(error) if error.may_pass() => {
            driver.turn();
            driver.try_broadcast(message, guarantee).map_err(refused)
        }
        result => result,
    }
}

/// The user is back.
fn disarm(driver: &mut Driver, shared: &Shared) {
    driver.is_armed = false;
    if std::mem::take(&mut driver.has_rung) {
        shared.event.drain();
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A forked child has not got the thread, and the node is its parent's.
        if !self.sender.is_of_this_process() {
            std::mem::forget(self.caretaker.take());
            return;
        }
        self.shared.stop();
        self.sender.nudge();
        if let Some(caretaker) = self.caretaker.take() {
            let _panicked_or_done = caretaker.join();
        }
        self.shared.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use punctual_machine::event_fd::wait_readable;

    use super::*;
    use crate::node::Bus;

    /// Ends the process if a test hangs.
    fn watchdog() -> mpsc::Sender<()> {
        let (alive, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("nothing for 60 s: hangs");
                std::process::exit(101);
            }
        });
        alive
    }

    /// A heartbeat so long that nothing waits for it and is in time.
    fn options(names: &[&str]) -> GroupOptions {
        let (heartbeat, suspect_after) = (Duration::from_secs(600), Duration::from_secs(2_400));
        let options = GroupOptions::new("team", names);
        GroupOptions { heartbeat, suspect_after, expel_slow_after: None, ..options }
    }

    /// Goal: a visitor that comes when a driver has looked for visitors, and before it waits, is let in. Method: it comes between that
    /// look and the turn, which takes its nudge.
    #[test]
    fn a_nudge_that_a_turn_takes_is_no_loss() {
        let _alive = watchdog();
        let node = Node::open(&Bus::loopback("nudged"), "anne").unwrap();
        let mut group = Group::join(&node, &options(&["anne"]).founding()).unwrap();
        while group.try_deliver().is_ok() {}
        let (broadcaster, shared) = (group.broadcaster(), Arc::clone(&group.shared));
        let mut visitor = None;
        group.drive_until(Duration::from_secs(600), |driver, _| {
            if visitor.is_none() {
                let mut broadcaster = broadcaster.clone();
                visitor = Some(std::thread::spawn(move || broadcaster.try_broadcast(b"here")));
                while !shared.has_visitors() {
                    std::thread::yield_now();
                }
                // It nudges when it has said so.
                std::thread::sleep(Duration::from_millis(50));
            }
            driver.has_event().then_some(())
        });
        visitor.unwrap().join().unwrap().unwrap();
        assert!(matches!(group.try_deliver(), Ok(Delivery::Message(message)) if message.payload == b"here"));
    }

    /// Goal: looks at a group that is armed leave its caretaker at work: the descriptor tells of what comes afterwards. Method: the
    /// caretaker finds the lock taken. The heartbeat is so long that a caretaker that rests for a part of it is not there in time.
    #[test]
    fn looks_leave_the_caretaker_at_work() {
        let _alive = watchdog();
        let names = ["anne", "bob"];
        let bus = Bus::loopback("looked-at");
        let nodes = names.map(|name| Node::open(&bus, name).unwrap());
        let options = options(&names);
        let mut anne = Group::join(&nodes[0], &options.clone().founding()).unwrap();
        let mut bob = Group::join(&nodes[1], &options).unwrap();
        while anne.view().members.len() != 2 || bob.view().members.len() != 2 {
            for group in [&mut anne, &mut bob] {
                while group.deliver(Duration::from_millis(1)).is_ok() {}
            }
        }
        for number in 0..20_u8 {
            while bob.try_deliver().is_ok() {}
            // As `arm` does, but for the lock.
            let mut busy = bob.shared.visit(&mut bob.sender);
            busy.is_armed = true;
            bob.shared.call();
            std::thread::sleep(Duration::from_millis(10));
            drop(busy);
            assert!((0..100).all(|_| !bob.is_ready()));
            anne.broadcast(&[number], Duration::from_secs(10)).unwrap();
            let is_told = wait_readable(bob.as_fd(), Some(Duration::from_secs(10))).unwrap();
            assert!(is_told, "nobody tells of message {number}");
            assert!(
                matches!(bob.try_deliver(), Ok(Delivery::Message(message)) if message.payload == [number])
            );
            while anne.deliver(Duration::from_millis(1)).is_ok() {}
        }
    }
}
