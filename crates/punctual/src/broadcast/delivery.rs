//! Deliveries to a member, and reasons why a message was not taken.

use std::fmt;

use punctual_proto::NodeId;
use punctual_proto::broadcast::{self, Guarantee, Mismatch};

/// The next delivery: in the order of the group, or without order ahead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery<'a> {
    /// A message.
    Message(Message<'a>),
    /// From here on another view. All who were in the last one and are in this have delivered the same before it.
    View(View),
    /// Too few members can be heard, or are in the view: no message is taken until [`Delivery::Resumed`] or another view.
    Stopped,
    /// Enough can be heard again.
    Resumed,
    /// The others went on without this member. It is not known whether its last messages were delivered. It joins again by itself, as a
    /// new life: the next view says when. A member that leaves is told so if it may lack messages that the others delivered before they
    /// went on; [`DeliverError::Left`] comes next.
    Expelled,
}

/// A message of the group, in the buffer of this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The member that broadcast it.
    pub sender: NodeId,
    /// In which life: one that comes back has another.
    pub life: u64,
    /// The view in which it was broadcast and is delivered.
    pub view: u64,
    /// Where its last frame stands in the order of the view, from 0; of a message without order, among all frames of its sender in
    /// that view.
    pub number: u64,
    /// Small messages of one sender may share a frame: the place of this one in it, from 0.
    pub part: u32,
    /// Guarantee that is known to hold: uniform, or reliable, if a majority is known to hold the message, regardless of the guarantee
    /// asked for.
    pub guarantee: Guarantee,
    /// Its bytes.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn new(told: &broadcast::Delivery, payload: &'a [u8]) -> Self {
        Self {
            sender: told.sender,
            life: told.life,
            view: told.view,
            number: told.index,
            part: told.part,
            guarantee: told.guarantee,
            payload,
        }
    }
}

/// Members of the group, from one change to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Counts the views of the group from 1; 0 before the first.
    pub number: u64,
    /// The members in the order of the roster, each with its life. The first orders the messages.
    pub members: Vec<(NodeId, u64)>,
}

impl View {
    pub(super) fn new(view: &broadcast::View, node: impl Fn(usize) -> Option<NodeId>) -> Self {
        let member = |place: usize| Some((node(place)?, view.life(place)?));
        Self { number: view.number, members: (0..view.lives.len()).filter_map(member).collect() }
    }

    /// True if a node is a member.
    pub fn has(&self, node: NodeId) -> bool {
        self.members.iter().any(|(member, _)| *member == node)
    }
}

/// Why nothing was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverError {
    /// Nothing is there now, or nothing came until the deadline.
    Empty,
    /// This member has left, as it asked for: nothing comes any more.
    Left,
    /// The group does not take this member, because an option differs that must be equal at all members. This is told once, after
    /// [`GroupOptions::suspect_after`](super::GroupOptions::suspect_after), and again only if another option is refused or the refusals
    /// pause for as long. The member goes on asking, and joins once the group has its
    /// options. [`Group::mismatch`](super::Group::mismatch) says why again.
    Mismatch(Mismatch),
}

impl fmt::Display for DeliverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing to deliver"),
            Self::Left => f.write_str("this member has left the group: join again to take part"),
            Self::Mismatch(mismatch) => write!(f, "the group does not take this member: {mismatch}"),
        }
    }
}

impl std::error::Error for DeliverError {}

/// Why a message was not taken; nothing of it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BroadcastError {
    /// The message before it waits for the slowest member, which has not taken enough. Try later.
    Full,
    /// The user of this member has something to take, which may be what holds it up: deliver first, then try again.
    Undelivered,
    /// The view changes. Try after the next view.
    Changing,
    /// This member is in no view yet, or no more. Try after the next view, unless it leaves.
    NoMember,
    /// Too few members can be heard, or are in the view. Try after [`Delivery::Resumed`] or the next view.
    Stopped,
    /// This copy of a state lacks it, and could not say what a command results in. Deliver until [`Replica::state`] is there, then try
    /// again. Only a [`Replica`](super::Replica) says so.
    ///
    /// [`Replica::state`]: super::Replica::state
    Stateless,
    /// A message of the group has at least one byte, and at most so many as its options say.
    Size {
        /// Size of the message, bytes.
        size: usize,
        /// Largest possible size, bytes.
        size_max: usize,
    },
}

impl fmt::Display for BroadcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the slowest member has not taken enough yet: try later"),
            Self::Undelivered => f.write_str("this member has something to take: deliver first"),
            Self::Changing => f.write_str("the view changes: try after the next view"),
            Self::NoMember => {
                f.write_str("this member is in no view, or leaves: unless it leaves, try after the next view")
            }
            Self::Stopped => {
                f.write_str("too few members can be heard: try when it resumes, or after the next view")
            }
            Self::Stateless => f.write_str("this copy lacks the state: deliver until it has it"),
            Self::Size { size, size_max } => {
                write!(f, "message of {size} bytes: from 1 to {size_max} are possible in this group")
            }
        }
    }
}

impl std::error::Error for BroadcastError {}

impl BroadcastError {
    pub(super) fn new(error: broadcast::BroadcastError, size: usize, size_max: usize) -> Self {
        match error {
            broadcast::BroadcastError::Full => Self::Full,
            broadcast::BroadcastError::Changing => Self::Changing,
            broadcast::BroadcastError::NoMember => Self::NoMember,
            broadcast::BroadcastError::Stopped => Self::Stopped,
            broadcast::BroadcastError::Size => Self::Size { size, size_max },
        }
    }

    /// True if waiting may help.
    pub(super) fn may_pass(self) -> bool {
        !matches!(self, Self::Size { .. } | Self::Undelivered | Self::Stateless)
    }
}
