//! Prefix of a message's payload in its frame: when it was sent, or how its sender's time went.

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::ring::SharedBytes;
use punctual_proto::stamps::{STAMPS_SIZE, interval};
use punctual_proto::{Kind, Stamps};

use crate::node::sending::Timing;

/// Time stamps that the messages of a publication carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampChoice {
    /// Nothing.
    #[default]
    Never,
    /// When each was sent: its receiver knows how long it took. A look at the clock when it is sent, and one when it is delivered.
    Ends,
    /// All stages of each. Two looks at the clock when it is received. One when it is sent whole and in one step, else two.
    All,
}

/// Size of a prefix without stages, bytes.
const WORD_SIZE: usize = 8;

/// Flag of a frame whose prefix says when it was sent.
const SENT: u8 = 1;
/// Flag of a frame whose prefix has the sender's stages.
const STAGES: u8 = 2;
/// Flags of a frame that carries a fragment; its prefix has the sender's stages, or zeroes.
const FRAGMENT: u8 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) enum Prefix {
    Plain,
    Sent(Ticks),
    Stages(Stamps),
    Fragment(Stamps),
}

impl Prefix {
    /// The largest that messages of a publication may have, bytes.
    pub(super) const fn size_max(stamps: StampChoice) -> usize {
        match stamps {
            StampChoice::Never | StampChoice::Ends => WORD_SIZE,
            StampChoice::All => STAMPS_SIZE,
        }
    }

    /// Of a message that was sent then. The part about its being posted is not known yet.
    #[inline]
    pub(super) fn of(stamps: StampChoice, sent: Ticks, due: Option<Ticks>, clock: &Clock) -> Self {
        match stamps {
            StampChoice::Never => Self::Plain,
            StampChoice::Ends => Self::Sent(sent),
            StampChoice::All => Self::Stages(Stamps {
                sent: sent.0,
                due_to_sent: due.map_or(0, |due| interval(due.0, sent.0)),
                domain: clock.domain(),
                ..Stamps::default()
            }),
        }
    }

    /// Of a fragment of a message that was sent then, if that is to be said.
    pub(super) fn of_fragment(timing: Option<Timing>, clock: &Clock) -> Self {
        let stages = timing.map(|Timing { due, sent }| Self::of(StampChoice::All, sent, due, clock));
        if let Some(Self::Stages(stamps)) = stages {
            Self::Fragment(stamps)
        } else {
            Self::Fragment(Stamps::default())
        }
    }

    /// The sender's stages, where it says them.
    pub(super) fn stamps(&self) -> Option<Stamps> {
        match self {
            Self::Stages(stamps) => Some(*stamps),
            Self::Fragment(stamps) => Some(*stamps).filter(|stamps| stamps.sent != 0),
            Self::Plain | Self::Sent(_) => None,
        }
    }

    pub(super) fn kind(flags: u8) -> Kind {
        if Self::is_fragment(flags) { Kind::Fragment } else { Kind::Data }
    }

    /// The ring has room for it, and it is about to be written.
    #[inline]
    pub(super) fn note_posted(&mut self, clock: &Clock) {
        if let Self::Stages(stamps) | Self::Fragment(stamps) = self
            && stamps.sent != 0
        {
            stamps.sealed_to_posted = interval(stamps.sent, clock.now().0);
        }
    }

    #[inline]
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Plain | Self::Sent(_) => WORD_SIZE,
            Self::Stages(_) | Self::Fragment(_) => STAMPS_SIZE,
        }
    }

    #[inline]
    pub(super) fn flags(&self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Sent(_) => SENT,
            Self::Stages(_) => STAGES,
            Self::Fragment(_) => FRAGMENT,
        }
    }

    /// True if frames with these flags say where their sender's time went.
    #[inline]
    pub(super) fn has_stages(flags: u8) -> bool {
        flags >= STAGES
    }

    /// True if frames with these flags carry fragments.
    #[inline]
    pub(super) fn is_fragment(flags: u8) -> bool {
        flags == FRAGMENT
    }

    /// All of it, if that is one word.
    #[inline]
    pub(super) fn word(&self) -> Option<u64> {
        match self {
            Self::Plain => Some(0),
            Self::Sent(sent) => Some(sent.0.to_le()),
            Self::Stages(_) | Self::Fragment(_) => None,
        }
    }

    /// Hands its bytes to `write`.
    #[inline]
    pub(super) fn write(&self, write: impl FnOnce(&[u8])) {
        match self {
            Self::Plain | Self::Sent(_) => write(&self.word().unwrap_or_default().to_ne_bytes()),
            Self::Stages(stamps) | Self::Fragment(stamps) => {
                let mut bytes = [0; STAMPS_SIZE];
                stamps.write(&mut bytes);
                write(&bytes);
            }
        }
    }

    /// Reads the prefix of a frame with these flags, and finds its payload behind it. `None` if no honest writer leaves such a one.
    #[inline]
    pub(super) fn read(flags: u8, frame: SharedBytes<'_>) -> Option<(Self, SharedBytes<'_>)> {
        let (prefix, size) = match flags {
            0 => (Self::Plain, WORD_SIZE),
            SENT => {
                let [sent] = frame.first_words()?;
                (Self::Sent(Ticks(sent)), WORD_SIZE)
            }
            STAGES => (Self::Stages(Stamps::from_words(frame.first_words()?)), STAMPS_SIZE),
            FRAGMENT => (Self::Fragment(Stamps::from_words(frame.first_words()?)), STAMPS_SIZE),
            _ => return None,
        };
        Some((prefix, frame.skip(size)?))
    }

    /// As [`Self::read`], from memory of this process.
    #[inline]
    pub(super) fn read_private(flags: u8, frame: &[u8]) -> Option<(Self, &[u8])> {
        Some(match flags {
            0 => (Self::Plain, frame.get(WORD_SIZE..)?),
            SENT => {
                let (word, payload) = frame.split_first_chunk()?;
                (Self::Sent(Ticks(u64::from_le_bytes(*word))), payload)
            }
            STAGES => {
                let (stamps, payload) = frame.split_first_chunk()?;
                (Self::Stages(Stamps::read(stamps)), payload)
            }
            FRAGMENT => {
                let (stamps, payload) = frame.split_first_chunk()?;
                (Self::Fragment(Stamps::read(stamps)), payload)
            }
            _ => return None,
        })
    }
}
