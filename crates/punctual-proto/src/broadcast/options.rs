//! Configuration of a member.

use alloc::vec::Vec;
use core::fmt;

use super::check::{Check, crc32c};
use super::message::{DATA_PREFIX_SIZE, control_size_max};
use crate::address::{NodeId, Port};
use crate::limits::{
    BROADCAST_MEMORY_MAX, BROADCAST_MESSAGE_SIZE_MAX, BROADCAST_WINDOW_MAX, GROUP_MEMBERS_MAX,
    PAYLOAD_SIZE_MAX,
};
use crate::time::Nanos;

/// Longest heartbeat, suspicion and round trip: their multiples are far from the ends of numbers.
const TIME_MAX: Nanos = Nanos(3_600_000_000_000);

/// A group, and how this member takes part. All but `own` and `founds` must be equal at all members. A member is refused whose roster,
/// frames, window or largest message differ from the group's ([`Unequal`]).
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The group: messages of others are ignored.
    pub group: u64,
    /// All who may be members, in the order of their places.
    pub roster: Vec<NodeId>,
    /// The node of this member.
    pub own: NodeId,
    /// The port of the group at every node.
    pub port: Port,
    /// Makes the first view, alone. Exactly one node does, once in the life of a group: a second founder makes a second group.
    pub founds: bool,
    /// Largest payload of a frame, bytes.
    pub frame_size: usize,
    /// Frames of one origin that not all have taken. It takes the memory of the next power of two.
    pub window: usize,
    /// Largest message, bytes.
    pub message_size_max: usize,
    /// A member that has nothing to say says so this often.
    pub heartbeat: Nanos,
    /// Silence after which a member is suspected; twice as long, up to eight times, for each time that was wrong.
    pub suspect_after: Nanos,
    /// The round trip until one was measured.
    pub round_trip: Nanos,
    /// A member whose user takes nothing for so long, while those of a majority do, is expelled; without it the others wait. Two
    /// heartbeats at least.
    pub expel_slow_after: Option<Nanos>,
    /// For media without a check value of their own.
    pub check: Option<Check>,
}

/// Options without which members cannot deliver the same: the ones that ask to join say theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) frame_size: u32,
    pub(super) window: u32,
    pub(super) message_size_max: u32,
    /// CRC-32C of the nodes, in their order.
    pub(super) roster: u32,
}

/// An option that is not equal at a member and at the group that it asks to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unequal {
    /// The rosters name other nodes, or the same in another order.
    Roster,
    /// Payload of a frame, bytes.
    FrameSize {
        /// Of this member.
        here: u32,
        /// Of the group.
        there: u32,
    },
    /// Frames of one origin that not all have taken.
    Window {
        /// Of this member.
        here: u32,
        /// Of the group.
        there: u32,
    },
    /// Largest message, bytes.
    MessageSize {
        /// Of this member.
        here: u32,
        /// Of the group.
        there: u32,
    },
}

impl fmt::Display for Unequal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, here, there) = match self {
            Self::Roster => {
                return f.write_str(
                    "the group's roster differs: give all members the same nodes in the same order",
                );
            }
            Self::FrameSize { here, there } => ("frames", here, there),
            Self::Window { here, there } => ("windows in frames", here, there),
            Self::MessageSize { here, there } => ("largest messages", here, there),
        };
        write!(f, "{name}: {here} at this member, {there} in the group; make them equal at all members")
    }
}

impl Terms {
    /// The first option that differs from those of a group.
    pub(super) fn unequal(self, there: Self) -> Option<Unequal> {
        let here = self;
        if here.roster != there.roster {
            Some(Unequal::Roster)
        } else if here.frame_size != there.frame_size {
            Some(Unequal::FrameSize { here: here.frame_size, there: there.frame_size })
        } else if here.window != there.window {
            Some(Unequal::Window { here: here.window, there: there.window })
        } else if here.message_size_max != there.message_size_max {
            Some(Unequal::MessageSize { here: here.message_size_max, there: there.message_size_max })
        } else {
            None
        }
    }
}

/// Why options make no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// The roster is empty, too long, or names somebody twice.
    Roster,
    /// This node is not in the roster.
    Stranger,
    /// Frames or messages are empty or too large.
    Size,
    /// No window, or one that is too large.
    Window,
    /// A heartbeat, a suspicion or a round trip takes no time, or more than an hour. Or suspicion is faster than heartbeats, or slow
    /// members are expelled sooner than after two of them.
    Times,
    /// All windows together need more memory than a group may have.
    Memory,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Roster => "the roster is empty, too long, or names somebody twice",
            Self::Stranger => "this node is not in the roster",
            Self::Size => "frames or messages are empty or too large",
            Self::Window => "there is no window, or it is too large",
            Self::Times => {
                "heartbeat, suspicion or round trip take no time or over an hour, or suspicion or expulsion is too \
                 fast"
            }
            Self::Memory => "the windows of all members need too much memory",
        })
    }
}

impl core::error::Error for OptionsError {}

impl GroupOptions {
    /// Options for a local network with Ethernet's frames.
    pub fn new(group: u64, roster: Vec<NodeId>, own: NodeId, port: Port) -> Self {
        Self {
            group,
            roster,
            own,
            port,
            founds: false,
            frame_size: 1_328,
            window: 512,
            message_size_max: 1 << 20,
            heartbeat: Nanos::from_millis(10),
            suspect_after: Nanos::from_millis(100),
            round_trip: Nanos::from_micros(200),
            expel_slow_after: None,
            check: Some(crc32c),
        }
    }

    /// Largest message that a member sends or takes, bytes: the room that [`Protocol::poll_transmit`] needs.
    ///
    /// [`Protocol::poll_transmit`]: crate::Protocol::poll_transmit
    pub fn datagram_size(&self) -> usize {
        control_size_max(self.roster.len(), self.window).max(DATA_PREFIX_SIZE + self.frame_size)
    }

    /// Once they were checked: then all sizes fit.
    pub(super) fn terms(&self) -> Terms {
        let roster = self.roster.iter().fold(0, |value, node| crc32c(value, &node.get().to_le_bytes()));
        Terms {
            frame_size: self.frame_size as u32,
            window: self.window as u32,
            message_size_max: self.message_size_max as u32,
            roster,
        }
    }

    pub(super) fn check(&self) -> Result<usize, OptionsError> {
        let places = self.roster.len();
        let is_double = |place: usize| self.roster[..place].contains(&self.roster[place]);
        if places == 0 || places > GROUP_MEMBERS_MAX || (0..places).any(is_double) {
            return Err(OptionsError::Roster);
        }
        if self.window == 0 || self.window > BROADCAST_WINDOW_MAX {
            return Err(OptionsError::Window);
        }
        let size_max = self.message_size_max;
        if self.frame_size == 0 || size_max == 0 || size_max > BROADCAST_MESSAGE_SIZE_MAX {
            return Err(OptionsError::Size);
        }
        if self.frame_size > PAYLOAD_SIZE_MAX - DATA_PREFIX_SIZE {
            return Err(OptionsError::Size);
        }
        if places * self.window.next_power_of_two() * self.frame_size > BROADCAST_MEMORY_MAX {
            return Err(OptionsError::Memory);
        }
        let times = [self.heartbeat, self.suspect_after, self.round_trip];
        // The amount that a user has taken is said once in a heartbeat, and heard a little later.
        let is_hasty = |after: Nanos| after.0 < self.heartbeat.0.saturating_mul(2);
        let expels_hastily = self.expel_slow_after.is_some_and(is_hasty);
        let is_time = |time: Nanos| (Nanos(1)..=TIME_MAX).contains(&time);
        if !times.into_iter().all(is_time) || self.suspect_after <= self.heartbeat || expels_hastily {
            return Err(OptionsError::Times);
        }
        self.roster.iter().position(|&node| node == self.own).ok_or(OptionsError::Stranger)
    }
}
