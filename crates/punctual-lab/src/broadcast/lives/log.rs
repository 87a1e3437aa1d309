//! Log records of a process that broadcasts.

use punctual::NodeId;
use punctual::broadcast::View;
use punctual_machine::clock::monotonic_ns;

use super::history::{END, process_of};
use crate::broadcast::log::{Record, Seen, Told};

/// A message as it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::broadcast) struct Delivered {
    /// Place of its sender in the roster, and that sender's life in the group.
    pub(in crate::broadcast) sender: usize,
    pub(in crate::broadcast) life: u64,
    /// Where it stands in the order.
    pub(in crate::broadcast) view: u64,
    pub(in crate::broadcast) index: u64,
    /// Its number at its sender.
    pub(in crate::broadcast) number: u64,
    /// Of its bytes.
    pub(in crate::broadcast) hash: u64,
    /// True if a majority held it.
    pub(in crate::broadcast) is_uniform: bool,
    pub(in crate::broadcast) sent_ns: u64,
    pub(in crate::broadcast) at_ns: u64,
}

/// One thing that a process was told, or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::broadcast) enum Entry {
    Delivered(Delivered),
    /// A view began: its number, and the life at each place of the roster, 0 for nobody.
    View {
        number: u64,
        lives: Vec<u64>,
        at_ns: u64,
    },
    /// The group took a message of this process.
    Sent {
        number: u64,
        hash: u64,
    },
    /// The others went on without this life.
    Expelled {
        at_ns: u64,
    },
}

/// Kinds of entries, in the lowest byte of the first word.
const DELIVERED: u64 = 1;
const VIEW: u64 = 2;
const SENT: u64 = 3;
const EXPELLED: u64 = 4;

/// Words of an entry but the first; a view has a word more for each place.
const DELIVERED_WORDS: usize = 7;
const VIEW_WORDS: usize = 2;
const SENT_WORDS: usize = 2;
const EXPELLED_WORDS: usize = 1;

impl Entry {
    /// Of a view that begins now.
    pub(in crate::broadcast) fn of_view(view: &View, roster: &[NodeId]) -> Self {
        let life = |node: &NodeId| view.members.iter().find(|(member, _)| member == node);
        let lives = roster.iter().map(|node| life(node).map_or(0, |(_, life)| *life)).collect();
        Self::View { number: view.number, lives, at_ns: monotonic_ns() }
    }
}

impl Record for Entry {
    /// The kind, a byte and a flag that go with it, then the rest.
    fn write(&self, words: &mut Vec<u64>) {
        match self {
            Self::Delivered(it) => words.extend([
                DELIVERED | (it.sender as u64) << 8 | u64::from(it.is_uniform) << 16,
                it.life,
                it.view,
                it.index,
                it.number,
                it.hash,
                it.sent_ns,
                it.at_ns,
            ]),
            Self::View { number, lives, at_ns } => {
                words.extend([VIEW | (lives.len() as u64) << 8, *number, *at_ns]);
                words.extend(lives);
            }
            Self::Sent { number, hash } => words.extend([SENT, *number, *hash]),
            Self::Expelled { at_ns } => words.extend([EXPELLED, *at_ns]),
        }
    }

    fn read(words: &[u64]) -> Option<(Self, usize)> {
        let (&head, rest) = words.split_first()?;
        let small = head >> 8 & 0xff;
        let size = match head & 0xff {
            DELIVERED => DELIVERED_WORDS,
            VIEW => VIEW_WORDS + small as usize,
            SENT => SENT_WORDS,
            EXPELLED => EXPELLED_WORDS,
            _ => return None,
        };
        let rest = rest.get(..size)?;
        let entry = match head & 0xff {
            DELIVERED => Self::Delivered(Delivered {
                sender: small as usize,
                life: rest[0],
                view: rest[1],
                index: rest[2],
                number: rest[3],
                hash: rest[4],
                is_uniform: head >> 16 & 1 == 1,
                sent_ns: rest[5],
                at_ns: rest[6],
            }),
            VIEW => Self::View { number: rest[0], at_ns: rest[1], lives: rest[VIEW_WORDS..].to_vec() },
            SENT => Self::Sent { number: rest[0], hash: rest[1] },
            _ => Self::Expelled { at_ns: rest[0] },
        };
        Some((entry, size + 1))
    }
}

impl Told for Entry {
    fn note(&self, seen: &mut Seen) {
        match self {
            Self::View { number, lives, .. } => seen.enter(*number, lives),
            Self::Delivered(message) => {
                seen.delivered += 1;
                if message.number & END != 0 {
                    seen.note_end(message.sender, process_of(message.number));
                }
            }
            Self::Expelled { .. } => seen.enter(0, &[]),
            Self::Sent { .. } => {}
        }
    }
}
