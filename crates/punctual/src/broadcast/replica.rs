//! A state that every member has a copy of.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use punctual_proto::NodeId;
use punctual_proto::broadcast::{Event, Outcome, Replication, State};
use punctual_proto::limits::REPLICA_PARTS_MAX;

use super::{
    BroadcastError, DeliverError, Group, GroupAccount, GroupOptions, Guarantee, JoinError, Message, Mismatch,
    Next, View,
};
use crate::node::Node;

/// The largest part of a snapshot, bytes: some tens of frames.
const PART_SIZE: usize = 64 << 10;

/// All parts that are under way take at most such a part of a window: behind them there is room for commands.
const WINDOW_PARTS: usize = 2;

/// Events that tell the user nothing and are still taken once its time is over. With them a user that never waits gets ahead with a
/// transfer.
const SILENT_LATE_MAX: u32 = 64;

/// The time that is left.
fn rest_until(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
}

/// A member of a group with its copy of a state. All copies apply the same commands in the same order. A member that joins, or comes
/// back, gets a snapshot from a member that has the state, and then what came after. All others go on meanwhile.
///
/// Commands take one byte more than messages of the group do.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use punctual::broadcast::{Change, Command, GroupOptions, Replica, State};
/// use punctual::{Bus, Node};
///
/// /// A sum of bytes.
/// struct Sum(u64);
///
/// impl State for Sum {
///     type Output = u64;
///     type Snapshot = Option<u64>;
///
///     fn apply(&mut self, command: Command<'_>) -> u64 {
///         self.0 += command.payload.iter().map(|&byte| u64::from(byte)).sum::<u64>();
///         self.0
///     }
///     fn snapshot(&self) -> Option<u64> {
///         Some(self.0)
///     }
///     fn read(snapshot: &mut Option<u64>, buffer: &mut [u8]) -> usize {
///         snapshot.take().map_or(0, |sum| {
///             buffer[..8].copy_from_slice(&sum.to_le_bytes());
///             8
///         })
///     }
///     fn reset(&mut self) {
///         self.0 = 0;
///     }
///     fn restore(&mut self, part: &[u8]) {
///         self.0 = u64::from_le_bytes(part.try_into().expect("one part of eight bytes"));
///     }
/// }
///
/// let bus = Bus::loopback("shop");
/// let names = ["anne", "bob"];
/// let nodes = names.map(|name| Node::open(&bus, name).expect("a free name"));
/// let options = GroupOptions::new("till", &names);
/// let mut anne = Replica::join(&nodes[0], &options.clone().founding(), Sum(0))?;
/// let mut bob = Replica::join(&nodes[1], &options, Sum(0))?;
///
/// let deadline = Instant::now() + Duration::from_secs(60);
/// let mut is_given = false;
/// while bob.state().is_none_or(|sum| sum.0 != 12) {
///     is_given = is_given || anne.try_broadcast(&[5, 7]).is_ok();
///     anne.deliver(Duration::ZERO).ok();
///     if let Ok(Change::Applied { output, .. }) = bob.deliver(Duration::from_millis(1)) {
///         assert_eq!(output, 12);
///     }
///     assert!(Instant::now() < deadline, "they do not meet");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replica<S: State> {
    group: Group,
    copy: Replication<S>,
    /// A command, as a message of the group.
    buffer: Vec<u8>,
}

/// The next change in the order of the group.
#[derive(Debug)]
pub enum Change<'a, O> {
    /// A command was applied here.
    Applied {
        /// The command, and its sender.
        message: Message<'a>,
        /// Its result.
        output: O,
    },
    /// This copy has the state from here on. It has applied the commands before, without telling any: none is this member's.
    Restored,
    /// From here on another view.
    View(View),
    /// As [`Delivery::Stopped`](super::Delivery::Stopped).
    Stopped,
    /// As [`Delivery::Resumed`](super::Delivery::Resumed).
    Resumed,
    /// The others went on without this member, which has lost the state: it joins again by itself, and is given it. One that leaves only
    /// leaves.
    Expelled,
}

/// Why nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaError {
    /// Nothing that changes this copy came until the deadline. Parts of a transfer may be left: [`Replica::arm`] says so.
    Empty,
    /// This member has left.
    Left,
    /// As [`DeliverError::Mismatch`].
    Mismatch(Mismatch),
    /// More commands came than can be kept while the state was restored. The member leaves: deliver until [`Self::Left`], then
    /// join again.
    Overrun,
    /// A function of the [`State`] panicked in an earlier call, and somebody caught that: this copy lacks the state. The member
    /// leaves: deliver until [`Self::Left`], then join again.
    Broken,
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => DeliverError::Empty.fmt(f),
            Self::Left => DeliverError::Left.fmt(f),
            Self::Mismatch(mismatch) => DeliverError::Mismatch(*mismatch).fmt(f),
            Self::Overrun => f.write_str(
                "more commands came during the transfer of the state than can be kept: it leaves; join again while less is sent",
            ),
            Self::Broken => f.write_str("a function of the state panicked: it leaves; join again"),
        }
    }
}

impl std::error::Error for ReplicaError {}

impl From<DeliverError> for ReplicaError {
    fn from(error: DeliverError) -> Self {
        match error {
            DeliverError::Empty => Self::Empty,
            DeliverError::Left => Self::Left,
            DeliverError::Mismatch(mismatch) => Self::Mismatch(mismatch),
        }
    }
}

impl<S: State> Replica<S> {
    /// Asks to join, or founds the group. The state is that of a group that begins, and equal at all members. Commands have an order:
    /// messages without one, which a [`Group`] of the same name can broadcast, are no commands, and reach nobody.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(node: &Node, options: &GroupOptions, state: S) -> Result<Self, JoinError> {
        if !options.guarantee.is_ordered() {
            return Err(JoinError::Unordered);
        }
        let (size_max, least) =
            (options.message_size_max, Replication::<S>::message_size_min(options.roster.len()));
        if size_max < least {
            return Err(JoinError::MessageSize { size_max, least });
        }
        let mut group = Group::join(node, options)?;
        let (place, window_size) =
            group.drive(|driver| (driver.member().place(), driver.member().window_size()));
        // A byte of each message says that it is a part.
        let message_size = PART_SIZE.min(size_max).min(window_size / WINDOW_PARTS / REPLICA_PARTS_MAX);
        let part_size = message_size.max(2) - 1;
        let copy = Replication::new(state, place, part_size);
        Ok(Self { group, copy, buffer: Vec::new() })
    }

    /// The state, where this copy has it, from its first view of more than half of the roster on. Commands that were applied with less
    /// than [`Guarantee::Uniform`] are lost with an expulsion.
    pub fn state(&self) -> Option<&S> {
        self.copy.state()
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.group.node()
    }

    /// As [`Group::view`].
    pub fn view(&mut self) -> View {
        self.group.view()
    }

    /// As [`Group::account`].
    pub fn account(&mut self) -> GroupAccount {
        self.group.account()
    }

    /// Takes a command to be applied by all copies, this one included, or says why not; never waits. A command that was taken is told as
    /// [`Change::Applied`], unless [`Change::Expelled`], or the end of this member, comes before. So a copy that lacks the state takes
    /// none ([`BroadcastError::Stateless`]), and never will where the last copy that had it went. A member that gives its state to
    /// another goes on with that first, as far as it may.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn try_broadcast(&mut self, command: &[u8]) -> Result<(), BroadcastError> {
        self.check_state()?;
        self.transfer()?;
        Replication::<S>::put_command(command, &mut self.buffer);
        self.group.try_broadcast(&self.buffer)
    }

    /// The same, and waits as [`Group::broadcast`] does, but not for the state.
    ///
    /// # Errors
    /// See [`BroadcastError`].
    pub fn broadcast(&mut self, command: &[u8], timeout: Duration) -> Result<(), BroadcastError> {
        self.check_state()?;
        let deadline = Instant::now().checked_add(timeout);
        while let Some(message) = self.copy.poll_broadcast() {
            self.group.broadcast_as(message, Guarantee::Uniform, rest_until(deadline))?;
            self.copy.note_taken();
        }
        Replication::<S>::put_command(command, &mut self.buffer);
        self.group.broadcast(&self.buffer, rest_until(deadline))
    }

    /// The result of a command that is taken must be told, in this life of the member: a copy that has the state keeps it until then.
    fn check_state(&mut self) -> Result<(), BroadcastError> {
        match self.copy.takes_commands() {
            true => Ok(()),
            false if self.group.has_left() => Err(BroadcastError::NoMember),
            false => Err(BroadcastError::Stateless),
        }
    }

    /// Applies what comes next in the order of the group; waits for it for at most `timeout`. A member that gives its state to
    /// another goes on with that in these calls, and before each command that it broadcasts.
    ///
    /// # Errors
    /// See [`ReplicaError`].
    pub fn deliver(&mut self, timeout: Duration) -> Result<Change<'_, S::Output>, ReplicaError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut silent_late = 0;
        let (event, view, outcome) = loop {
            if self.copy.is_broken() {
                self.copy.forget();
                return Err(self.leave_for(ReplicaError::Broken));
            }
            // The part that is not taken is offered again behind the next event.
            let _not_taken = self.transfer();
            let rest = rest_until(deadline);
            let Next { event, view } = self.group.next_within(rest)?;
            match (&event, self.copy.handle(&event, &self.group.message)) {
                (Event::Delivered(_), Outcome::Nothing) => {
                    silent_late += u32::from(rest == Duration::ZERO);
                    if silent_late == SILENT_LATE_MAX {
                        return Err(ReplicaError::Empty);
                    }
                }
                (_, Outcome::Overrun) => return Err(self.leave_for(ReplicaError::Overrun)),
                (_, Outcome::Broken) => return Err(self.leave_for(ReplicaError::Broken)),
                (_, outcome) => break (event, view, outcome),
            }
        };
        Ok(match (event, outcome) {
            (Event::Delivered(told), Outcome::Applied(output)) => {
                let command = self.group.message.get(1..).unwrap_or_default();
                Change::Applied { message: Message::new(&told, command), output }
            }
            (Event::Delivered(_), _) => Change::Restored,
            (Event::View(_), _) => Change::View(view),
            (Event::Stopped, _) => Change::Stopped,
            (Event::Resumed, _) => Change::Resumed,
            (Event::Expelled, _) => Change::Expelled,
            (Event::Left, _) => return Err(ReplicaError::Left),
            (Event::Mismatch(mismatch), _) => return Err(ReplicaError::Mismatch(mismatch)),
        })
    }

    /// Others must not believe for longer than need be that this copy has, or can be given, the state.
    fn leave_for(&mut self, reason: ReplicaError) -> ReplicaError {
        self.group.leave();
        reason
    }

    /// Broadcasts what a transfer asks for, as far as that is taken. The rest is taken after the next event: this member's message
    /// before it is delivered then, or a view begins. Commands wait for it: a user that gives them as fast as they are taken would
    /// leave no room for a part, ever. Only so many parts are under way at once, and behind them commands go.
    fn transfer(&mut self) -> Result<(), BroadcastError> {
        while let Some(message) = self.copy.poll_broadcast() {
            self.group.try_broadcast_as(message, Guarantee::Uniform)?;
            self.copy.note_taken();
        }
        Ok(())
    }

    /// Asks the others to go on without this member, as [`Group::leave`].
    pub fn leave(&mut self) {
        self.group.leave();
    }

    /// For an event loop of one's own, as [`Group::arm`]: deliver until [`ReplicaError::Empty`], arm, wait.
    pub fn arm(&mut self) -> bool {
        // That is to be told, and no event of the group's.
        !self.copy.is_broken() && self.group.arm()
    }
}

impl<S: State> AsFd for Replica<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

impl<S: State> fmt::Debug for Replica<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("group", &self.group).finish_non_exhaustive()
    }
}
