//! Configuration of a member.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::check::{Check, crc32c};
use super::message::{DATA_PREFIX_SIZE, control_size_max};
use crate::address::{NodeId, Port};
use crate::limits::{
    BROADCAST_MEMORY_MAX, BROADCAST_MESSAGE_SIZE_MAX, BROADCAST_TIME_NS_MAX, BROADCAST_WINDOW_MAX,
    GROUP_MEMBERS_MAX, PAYLOAD_SIZE_MAX,
};
use crate::time::Nanos;

const TIME_MAX: Nanos = Nanos(BROADCAST_TIME_NS_MAX);

/// A group, and how this member takes part. All but `own` and `founds` must be equal at all members. Of these the group compares roster,
/// frame size, window and largest message, and refuses a member in which one differs ([`Mismatch`]).
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
pub enum Mismatch {
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

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (option, unit, here, there) = match self {
            Self::Roster => {
                return f.write_str(
                    "the group has another roster: give all members the same nodes in the same order",
                );
            }
            Self::FrameSize { here, there } => ("frame_size", "bytes", here, there),
            Self::Window { here, there } => ("window", "frames", here, there),
            Self::MessageSize { here, there } => ("message_size_max", "bytes", here, there),
        };
        write!(
            f,
            "{option} is {here} {unit} at this member and {there} in the group: make it equal at all members"
        )
    }
}

impl Terms {
    /// The first option that differs from those of a group.
    pub(super) fn mismatch(self, there: Self) -> Option<Mismatch> {
        let here = self;
        if here.roster != there.roster {
            Some(Mismatch::Roster)
        } else if here.frame_size != there.frame_size {
            Some(Mismatch::FrameSize { here: here.frame_size, there: there.frame_size })
        } else if here.window != there.window {
            Some(Mismatch::Window { here: here.window, there: there.window })
        } else if here.message_size_max != there.message_size_max {
            Some(Mismatch::MessageSize { here: here.message_size_max, there: there.message_size_max })
        } else {
            None
        }
    }
}

/// Why options make no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// The roster has no place, or too many.
    Roster {
        /// Places in the roster.
        places: usize,
    },
    /// The roster names this node twice.
    Double(NodeId),
    /// This node is not in the roster.
    Stranger,
    /// A number is 0 or too large.
    Number {
        /// Name of the option.
        option: &'static str,
        /// Its value: bytes, or frames of a window.
        value: usize,
        /// The largest possible one.
        value_max: usize,
    },
    /// A time is too short or too long.
    Time {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: Nanos,
        /// The shortest possible one.
        value_min: Nanos,
        /// The longest possible one; [`Nanos::NEVER`] if there is none.
        value_max: Nanos,
    },
    /// All windows together need more memory than a group may have.
    Memory {
        /// Size of all windows, bytes.
        size: usize,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Roster { places } => {
                write!(f, "the roster has {places} places, where 1 to {GROUP_MEMBERS_MAX} are possible")
            }
            Self::Double(node) => write!(f, "the roster names {node} twice: name each node once"),
            Self::Stranger => f.write_str("this node is not in the roster"),
            Self::Number { option, value, value_max } => {
                write!(f, "{option} is {value}, where 1 to {value_max} is possible")
            }
            Self::Time { option, value, value_min, value_max } => {
                let [value, value_min, longest] =
                    [value, value_min, value_max].map(|time| Duration::from_nanos(time.0));
                write!(f, "{option} is {value:?}, where {value_min:?}")?;
                match value_max {
                    Nanos::NEVER => f.write_str(" is the least"),
                    _ => write!(f, " to {longest:?} is possible"),
                }
            }
            Self::Memory { size } => write!(
                f,
                "the windows of all members take {size} bytes, where {BROADCAST_MEMORY_MAX} is the most: choose smaller \
                 windows or frames"
            ),
        }
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
        if places == 0 || places > GROUP_MEMBERS_MAX {
            return Err(OptionsError::Roster { places });
        }
        let is_double = |place: &usize| self.roster[..*place].contains(&self.roster[*place]);
        if let Some(place) = (0..places).find(is_double) {
            return Err(OptionsError::Double(self.roster[place]));
        }
        for (option, value, value_max) in [
            ("window", self.window, BROADCAST_WINDOW_MAX),
            ("frame_size", self.frame_size, PAYLOAD_SIZE_MAX - DATA_PREFIX_SIZE),
            ("message_size_max", self.message_size_max, BROADCAST_MESSAGE_SIZE_MAX),
        ] {
            if !(1..=value_max).contains(&value) {
                return Err(OptionsError::Number { option, value, value_max });
            }
        }
        let size = places * self.window.next_power_of_two() * self.frame_size;
        if size > BROADCAST_MEMORY_MAX {
            return Err(OptionsError::Memory { size });
        }
        self.check_times()?;
        self.roster.iter().position(|&node| node == self.own).ok_or(OptionsError::Stranger)
    }

    fn check_times(&self) -> Result<(), OptionsError> {
        let after_heartbeat = |count: u64| Nanos(self.heartbeat.0.saturating_mul(count));
        // The amount that a user has taken is said once in a heartbeat, and heard a little later.
        let expel = self.expel_slow_after.map(|after| (after, after_heartbeat(2), Nanos::NEVER));
        for (option, (value, value_min, value_max)) in [
            ("heartbeat", (self.heartbeat, Nanos(1), TIME_MAX)),
            ("round_trip", (self.round_trip, Nanos(1), TIME_MAX)),
            ("suspect_after", (self.suspect_after, after_heartbeat(1).plus(Nanos(1)), TIME_MAX)),
        ]
        .into_iter()
        .chain(expel.map(|times| ("expel_slow_after", times)))
        {
            if !(value_min..=value_max).contains(&value) {
                return Err(OptionsError::Time { option, value, value_min, value_max });
            }
        }
        Ok(())
    }
}
