//! The seal: shows that a frame comes from who holds a key of the group, unaltered, and for the first time.
//!
//! It stands behind the payload of a frame whose header flags it:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | group of the key |
//! | 4 | 4 | generation of the key |
//! | 8 | 8 | number: counts the frames that this life of the source node sealed, from the nanosecond of 1970 at which it opened |
//! | 16 | 8 | when it was sealed, nanoseconds since 1970, to a few milliseconds |
//! | 24 | 16 | tag of everything before it, from the first byte of the header on |
//!
//! Little-endian. The tag is that of AEGIS-128L used as a MAC (RFC 10032), with a nonce that is constant: as a MAC it needs no
//! fresh one, so nothing is lost when a sender restarts. What the seal promises and what not: `docs/sealing.md`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::hint::black_box;

use aegis::aegis128l::Aegis128LMac;
use subtle::ConstantTimeEq;

use crate::NodeId;
use crate::frame::{Header, read_words, write_words};
use crate::limits::SEAL_SENDERS_MAX;

mod key;
mod window;

pub use key::{KEY_SIZE, Key, KeyError, KeyId, KeyRing, RingKey, parse_keys};
pub use window::{NotNew, WINDOW, Window};

/// Size of the tag, bytes.
pub const TAG_SIZE: usize = 16;

/// What stands between payload and tag, words of eight bytes.
const FIELD_WORDS: usize = 3;

/// Size of a seal, bytes.
pub const SEAL_SIZE: usize = FIELD_WORDS * 8 + TAG_SIZE;

/// Keeps our tags apart from those of whoever else might use the same key.
const NONCE: [u8; 16] = *b"punctual seal v1";

/// What a seal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Which key.
    pub key: KeyId,
    /// Place among the frames that this life of the source sealed.
    pub number: u64,
    /// When it was sealed, nanoseconds since 1970.
    pub sealed_ns: u64,
}

impl Seal {
    fn to_words(self) -> [u64; FIELD_WORDS] {
        let key = u64::from(self.key.group) | u64::from(self.key.generation) << 32;
        [key, self.number, self.sealed_ns]
    }

    fn from_words([key, number, sealed_ns]: [u64; FIELD_WORDS]) -> Self {
        let key = KeyId { group: key as u32, generation: (key >> 32) as u32 };
        Self { key, number, sealed_ns }
    }

    /// Reads what a seal says, without asking whether it is true.
    pub fn read(bytes: &[u8; SEAL_SIZE]) -> Self {
        Self::from_words(read_words(&bytes[..SEAL_SIZE - TAG_SIZE]))
    }
}

/// Why a frame is not believed. Every cause has a counter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It has no seal, and must have one.
    Unsealed,
    /// It has a seal, and this node has no keys.
    Unexpected,
    /// Sealed with a key that is not in the ring: not yet, not any more, or never.
    UnknownKey,
    /// Not what the holder of the key sealed.
    BadTag,
    /// Genuine, but taken before, or too far behind to know.
    Replayed,
    /// Genuine, but sealed before this node opened, or in the future.
    Stale,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsealed => "unsealed frame on a sealed bus",
            Self::Unexpected => "sealed frame on a bus without keys",
            Self::UnknownKey => "sealed with an unknown key",
            Self::BadTag => "tag does not fit the frame",
            Self::Replayed => "taken before",
            Self::Stale => "sealed before this node opened, or in the future",
        })
    }
}

/// A key made ready to compute tags. Overwritten when dropped.
struct Mac(Box<Lines>);

/// The state in cache lines of its own: every tag writes it, and another thread's may be next to it.
#[repr(align(128))]
struct Lines(Aegis128LMac<TAG_SIZE>);

impl Mac {
    fn new(key: &Key) -> Self {
        let mut mac = Self(Box::new(Lines(Aegis128LMac::new_with_nonce(key.expose(), &NONCE))));
        // The first tag costs several times as much as a later one; nobody waits for this one.
        black_box(mac.tag(&[]));
        mac
    }

    #[inline]
    fn tag(&mut self, bytes: &[u8]) -> [u8; TAG_SIZE] {
        self.0.0.update(bytes);
        self.0.0.finalize_and_reset()
    }
}

impl Drop for Mac {
    fn drop(&mut self) {
        self.0.0 = Aegis128LMac::new(&[0; KEY_SIZE]);
        black_box(&self.0.0);
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mac(…)")
    }
}

/// Puts seals on frames, with one key.
#[derive(Debug)]
pub struct Sealer {
    key: KeyId,
    mac: Mac,
}

impl Sealer {
    /// Seals with this key.
    pub fn new(key: &RingKey) -> Self {
        Self { key: key.id, mac: Mac::new(&key.key) }
    }

    /// The key it seals with.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// Writes the seal into the last [`SEAL_SIZE`] bytes of a frame that is complete otherwise.
    ///
    /// # Panics
    /// If the frame is shorter than a seal.
    #[inline]
    pub fn seal(&mut self, frame: &mut [u8], number: u64, sealed_ns: u64) {
        let tag_at = frame.len() - TAG_SIZE;
        let (covered, tag) = frame.split_at_mut(tag_at);
        let fields_at = tag_at - FIELD_WORDS * 8;
        let seal = Seal { key: self.key, number, sealed_ns };
        write_words(seal.to_words(), &mut covered[fields_at..]);
        tag.copy_from_slice(&self.mac.tag(covered));
    }
}

/// What is remembered of one life of a sender.
#[derive(Debug)]
struct Sender {
    node: NodeId,
    incarnation: u16,
    newest_ns: u64,
    window: Window,
}

/// Looks behind seals: takes each genuine frame once.
#[derive(Debug)]
pub struct Opener {
    keys: Vec<(KeyId, Mac)>,
    /// Where the last frame's key and sender were found.
    last_key: usize,
    last_sender: usize,
    senders: Vec<Sender>,
    /// What was sealed before is not for us: it may be a recording.
    floor_ns: u64,
    /// The same for senders that are not remembered: raised when one is forgotten, so that nothing of it comes again.
    newcomer_floor_ns: u64,
    allowance_ns: u64,
}

impl Opener {
    /// An opener that begins now. Frames sealed up to `allowance_ns` before are taken, because clocks differ.
    pub fn new(ring: &KeyRing, now_ns: u64, allowance_ns: u64) -> Self {
        let floor_ns = now_ns.saturating_sub(allowance_ns);
        let mut opener = Self {
            keys: Vec::new(),
            last_key: 0,
            last_sender: 0,
            senders: Vec::with_capacity(SEAL_SENDERS_MAX),
            floor_ns,
            newcomer_floor_ns: floor_ns,
            allowance_ns,
        };
        opener.renew(ring);
        opener
    }

    /// Takes over what has changed in the ring.
    pub fn renew(&mut self, ring: &KeyRing) {
        self.keys.retain(|(id, _)| ring.accepted().any(|key| key.id == *id));
        for key in ring.accepted() {
            if !self.keys.iter().any(|(id, _)| *id == key.id) {
                self.keys.push((key.id, Mac::new(&key.key)));
            }
        }
        self.last_key = 0;
    }

    /// In which group a frame was sealed, if it is genuine and new. `frame` is a private copy, from header to seal; `now_ns` is asked for the time,
    /// nanoseconds since 1970, only when a sender is heard for the first time.
    ///
    /// # Errors
    /// The [`Refusal`], which is to be counted.
    #[inline]
    pub fn open(
        &mut self,
        header: &Header,
        frame: &[u8],
        now_ns: impl FnOnce() -> u64,
    ) -> Result<u32, Refusal> {
        if !header.sealed {
            return Err(Refusal::Unsealed);
        }
        let Some((covered, tag)) = frame.split_last_chunk::<TAG_SIZE>() else {
            return Err(Refusal::Unsealed);
        };
        let Some((_, fields)) = covered.split_last_chunk::<{ FIELD_WORDS * 8 }>() else {
            return Err(Refusal::Unsealed);
        };
        let seal = Seal::from_words(read_words(fields));
        let mac = self.mac_of(seal.key).ok_or(Refusal::UnknownKey)?;
        if !bool::from(mac.tag(covered).ct_eq(tag)) {
            return Err(Refusal::BadTag);
        }
        if seal.sealed_ns < self.floor_ns {
            return Err(Refusal::Stale);
        }
        self.take(header, &seal, now_ns)?;
        Ok(seal.key.group)
    }

    #[inline]
    fn mac_of(&mut self, id: KeyId) -> Option<&mut Mac> {
        if self.keys.get(self.last_key).is_none_or(|(known, _)| *known != id) {
            self.last_key = self.keys.iter().position(|(known, _)| *known == id)?;
        }
        self.keys.get_mut(self.last_key).map(|(_, mac)| mac)
    }

    #[inline]
    fn take(&mut self, header: &Header, seal: &Seal, now_ns: impl FnOnce() -> u64) -> Result<(), Refusal> {
        let (node, incarnation) = (header.source.node, header.incarnation);
        let is_it = |sender: &Sender| sender.node == node && sender.incarnation == incarnation;
        if !self.senders.get(self.last_sender).is_some_and(is_it) {
            let Some(index) = self.senders.iter().position(is_it) else {
                return self.welcome(node, incarnation, seal, now_ns());
            };
            self.last_sender = index;
        }
        let sender = &mut self.senders[self.last_sender];
        sender.window.take(seal.number).map_err(|_| Refusal::Replayed)?;
        sender.newest_ns = sender.newest_ns.max(seal.sealed_ns);
        Ok(())
    }

    /// The first frame of a sender's life.
    #[cold]
    fn welcome(&mut self, node: NodeId, incarnation: u16, seal: &Seal, now_ns: u64) -> Result<(), Refusal> {
        let is_early = seal.sealed_ns > now_ns.saturating_add(self.allowance_ns);
        if is_early || seal.sealed_ns < self.newcomer_floor_ns {
            return Err(Refusal::Stale);
        }
        if self.senders.len() == SEAL_SENDERS_MAX {
            let oldest =
                (0..self.senders.len()).min_by_key(|&index| self.senders[index].newest_ns).unwrap_or(0);
            let forgotten = self.senders.swap_remove(oldest);
            self.newcomer_floor_ns = self.newcomer_floor_ns.max(forgotten.newest_ns.saturating_add(1));
            if seal.sealed_ns < self.newcomer_floor_ns {
                return Err(Refusal::Stale);
            }
        }
        self.last_sender = self.senders.len();
        let window = Window::beginning_at(seal.number);
        self.senders.push(Sender { node, incarnation, newest_ns: seal.sealed_ns, window });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
