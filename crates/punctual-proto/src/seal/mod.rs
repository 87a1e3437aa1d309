//! The seal: shows that a frame comes from who holds a key of the group, unaltered, and for the first time.
//!
//! It stands behind the payload of a frame whose header flags it, little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | mark of the key: which of a ring's keys to try ([`KeyId::mark`]) |
//! | 2 | 6 | when it was sealed: units of 65,536 ns since 1970, never falling within one life of a node |
//! | 8 | 16 | tag of everything before it, from the first byte of the header on |
//!
//! It is that small so that a message of 64 bytes and its seal take two cache lines of shared memory, not three. What makes a
//! frame another than every other stands in the header: source, incarnation, target and sequence number, all under the tag;
//! the time tells a number from the same number of an earlier lap or life ([`Window`]).
//!
//! The tag is that of AEGIS-128L used as a MAC (RFC 10032). Its nonce is constant for a key and a bus: as a MAC it needs no fresh
//! one, so nothing is lost when a sender restarts. It holds the key's whole name, and a tag of the bus's: what was sealed for one
//! bus is not genuine on another, though the key is the same. What the seal promises and what not: `docs/sealing.md`.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hint::black_box;

use aegis::aegis128l::Aegis128LMac;
use subtle::ConstantTimeEq;

use crate::NodeId;
use crate::frame::{Header, Kind};
use crate::limits::SEAL_SENDERS_MAX;

mod key;
mod window;

pub use key::{GroupKey, KEY_SIZE, Key, KeyError, KeyId, KeyRing, Moment, RingKey, parse_keys};
pub use window::{NotNew, WINDOW, Window};

/// Size of the tag, bytes.
pub const TAG_SIZE: usize = 16;

/// What stands between payload and tag, bytes.
const FIELD_SIZE: usize = 8;

/// Size of a seal, bytes.
pub const SEAL_SIZE: usize = FIELD_SIZE + TAG_SIZE;

/// The clock of seals counts these, nanoseconds: what is left of 64 bits beside the key's mark.
pub const TIME_UNIT_NS: u64 = 1 << MARK_BITS;
const MARK_BITS: u32 = u16::BITS;

/// Keeps our tags apart from those of whoever else might use the same key. The tag of a bus's name is made with it.
const NONCE: Context = *b"punctual";

/// What tags are made for: the first half of their nonce, before the key's name.
type Context = [u8; 8];

/// What a seal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Which keys may have sealed it.
    pub mark: u16,
    /// When it was sealed, in [`TIME_UNIT_NS`] since 1970.
    pub time: u64,
}

impl Seal {
    fn to_bytes(self) -> [u8; FIELD_SIZE] {
        (self.time << MARK_BITS | u64::from(self.mark)).to_le_bytes()
    }

    fn from_bytes(bytes: [u8; FIELD_SIZE]) -> Self {
        let word = u64::from_le_bytes(bytes);
        Self { mark: word as u16, time: word >> MARK_BITS }
    }

    /// Reads what a seal says, without asking whether it is true.
    pub fn read(bytes: &[u8; SEAL_SIZE]) -> Self {
        Self::from_bytes(*bytes.first_chunk().expect("a seal begins with its field"))
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
    /// For the frames of that bus, and no others.
    fn new(key: &RingKey, bus: &str) -> Self {
        let name = Self::within(NONCE, key).tag(bus.as_bytes());
        let mut mac = Self::within(*name.first_chunk().expect("a tag is longer"), key);
        // The first tag costs several times as much as a later one; nobody waits for this one.
        black_box(mac.tag(&[]));
        mac
    }

    fn within(context: Context, key: &RingKey) -> Self {
        let state = Aegis128LMac::new_with_nonce(key.key.expose(), &nonce(context, key.id));
        Self(Box::new(Lines(state)))
    }

    #[inline]
    fn tag(&mut self, bytes: &[u8]) -> [u8; TAG_SIZE] {
        self.0.0.update(bytes);
        self.0.0.finalize_and_reset()
    }
}

fn nonce(context: Context, id: KeyId) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&context);
    nonce[8..12].copy_from_slice(&id.group.to_le_bytes());
    nonce[12..].copy_from_slice(&id.generation.to_le_bytes());
    nonce
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
    /// Seals with this key, for a bus that everybody on it calls so.
    pub fn new(key: &RingKey, bus: &str) -> Self {
        Self { key: key.id, mac: Mac::new(key, bus) }
    }

    /// The key it seals with.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// Writes the seal into the last [`SEAL_SIZE`] bytes of a frame that is complete otherwise. `time` is in [`TIME_UNIT_NS`]
    /// since 1970, and never less than that of an earlier frame of this life of the node; that of an announcement is more.
    ///
    /// # Panics
    /// If the frame is shorter than a seal.
    #[inline]
    pub fn seal(&mut self, frame: &mut [u8], time: u64) {
        let tag_at = frame.len() - TAG_SIZE;
        let (covered, tag) = frame.split_at_mut(tag_at);
        let seal = Seal { mark: self.key.mark(), time };
        covered[tag_at - FIELD_SIZE..].copy_from_slice(&seal.to_bytes());
        tag.copy_from_slice(&self.mac.tag(covered));
    }
}

/// What is remembered of one life of a sender.
#[derive(Debug)]
struct Sender {
    node: NodeId,
    incarnation: u16,
    /// Its frames to this node alone, and to everybody: each a stream with numbers of its own.
    unicast: Window,
    broadcast: Window,
    /// Its last announcement: these have no numbers, and each is newer than the one before.
    announced: Option<u64>,
    /// What was sealed before may have been taken, and forgotten.
    floor: u64,
}

impl Sender {
    fn new(node: NodeId, incarnation: u16, floor: u64) -> Self {
        let window = Window::beginning_after(floor);
        Self { node, incarnation, unicast: window.clone(), broadcast: window, announced: None, floor }
    }

    #[inline]
    fn take(&mut self, header: &Header, time: u64) -> Result<(), NotNew> {
        if header.kind != Kind::Data {
            return self.take_announcement(time);
        }
        let window = if header.target.node.is_some() { &mut self.unicast } else { &mut self.broadcast };
        window.take(header.sequence, time)
    }

    fn take_announcement(&mut self, time: u64) -> Result<(), NotNew> {
        let is_new = self.announced.map_or(time >= self.floor, |last| time > last);
        self.announced = if is_new { Some(time) } else { self.announced };
        if is_new { Ok(()) } else { Err(NotNew::Taken) }
    }

    /// When the newest frame that was taken had been sealed.
    fn newest(&self) -> u64 {
        self.unicast.newest_time().max(self.broadcast.newest_time()).max(self.announced.unwrap_or(0))
    }
}

/// Looks behind seals: takes each genuine frame once.
#[derive(Debug)]
pub struct Opener {
    bus: String,
    keys: Vec<KnownKey>,
    /// Where the last frame's key and sender were found.
    last_key: usize,
    last_sender: usize,
    senders: Vec<Sender>,
    /// What was sealed before is not for us: it may be a recording.
    floor: u64,
    /// The same for senders that are not remembered: raised when one is forgotten, so that nothing of it comes again.
    newcomer_floor: u64,
    allowance_ns: u64,
}

impl Opener {
    /// An opener of what was sealed for that bus, that begins now. Frames sealed up to `allowance_ns` before are taken, because clocks differ.
    pub fn new(ring: &KeyRing, bus: &str, now_ns: u64, allowance_ns: u64) -> Self {
        let floor = now_ns.saturating_sub(allowance_ns) / TIME_UNIT_NS;
        let mut opener = Self {
            bus: bus.to_owned(),
            keys: Vec::new(),
            last_key: 0,
            last_sender: 0,
            senders: Vec::with_capacity(SEAL_SENDERS_MAX),
            floor,
            newcomer_floor: floor,
            allowance_ns,
        };
        opener.renew(ring);
        opener
    }

    /// Takes over what has changed in the ring.
    pub fn renew(&mut self, ring: &KeyRing) {
        self.keys.retain(|known| ring.accepted().any(|key| key.id == known.id));
        for key in ring.accepted() {
            if !self.keys.iter().any(|known| known.id == key.id) {
                self.keys.push(KnownKey { id: key.id, mark: key.id.mark(), mac: Mac::new(key, &self.bus) });
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
        let Some((_, field)) = covered.split_last_chunk::<FIELD_SIZE>() else {
            return Err(Refusal::Unsealed);
        };
        let seal = Seal::from_bytes(*field);
        let group = self.verify(seal.mark, covered, tag)?;
        if seal.time < self.floor {
            return Err(Refusal::Stale);
        }
        self.take(header, seal.time, now_ns)?;
        Ok(group)
    }

    /// The group whose key made this tag.
    #[inline]
    fn verify(&mut self, mark: u16, covered: &[u8], tag: &[u8; TAG_SIZE]) -> Result<u32, Refusal> {
        if let Some(key) = self.keys.get_mut(self.last_key)
            && key.made(mark, covered, tag)
        {
            return Ok(key.id.group);
        }
        self.verify_with_all(mark, covered, tag)
    }

    /// Two keys of a ring may have one mark: each of them is tried.
    #[cold]
    fn verify_with_all(&mut self, mark: u16, covered: &[u8], tag: &[u8; TAG_SIZE]) -> Result<u32, Refusal> {
        if !self.keys.iter().any(|key| key.mark == mark) {
            return Err(Refusal::UnknownKey);
        }
        let found = self.keys.iter_mut().position(|key| key.made(mark, covered, tag));
        self.last_key = found.ok_or(Refusal::BadTag)?;
        Ok(self.keys[self.last_key].id.group)
    }

    #[inline]
    fn take(&mut self, header: &Header, time: u64, now_ns: impl FnOnce() -> u64) -> Result<(), Refusal> {
        let (node, incarnation) = (header.source.node, header.incarnation);
        let is_it = |sender: &Sender| sender.node == node && sender.incarnation == incarnation;
        if !self.senders.get(self.last_sender).is_some_and(is_it) {
            self.last_sender = match self.senders.iter().position(is_it) {
                Some(index) => index,
                None => self.welcome(node, incarnation, time, now_ns())?,
            };
        }
        self.senders[self.last_sender].take(header, time).map_err(|_| Refusal::Replayed)
    }

    /// The first frame of a sender's life.
    #[cold]
    fn welcome(&mut self, node: NodeId, incarnation: u16, time: u64, now_ns: u64) -> Result<usize, Refusal> {
        let is_early = time > now_ns.saturating_add(self.allowance_ns) / TIME_UNIT_NS;
        if is_early || time < self.newcomer_floor {
            return Err(Refusal::Stale);
        }
        if self.senders.len() == SEAL_SENDERS_MAX {
            let ages = self.senders.iter().map(Sender::newest).enumerate();
            let oldest = ages.min_by_key(|&(_, newest)| newest).map_or(0, |(index, _)| index);
            let newest = self.senders[oldest].newest();
            if time <= newest {
                return Err(Refusal::Stale);
            }
            self.senders.swap_remove(oldest);
            self.newcomer_floor = self.newcomer_floor.max(newest + 1);
        }
        self.senders.push(Sender::new(node, incarnation, self.newcomer_floor));
        Ok(self.senders.len() - 1)
    }
}

/// A key that is accepted, made ready.
#[derive(Debug)]
struct KnownKey {
    id: KeyId,
    mark: u16,
    mac: Mac,
}

impl KnownKey {
    /// Whether this key made this tag; looked at only if the mark is its own.
    #[inline]
    fn made(&mut self, mark: u16, covered: &[u8], tag: &[u8; TAG_SIZE]) -> bool {
        self.mark == mark && is_same(&self.mac.tag(covered), tag)
    }
}

/// Compares in a time that does not depend on what differs: by words, as bytes take ten times as many steps.
#[inline]
fn is_same(ours: &[u8; TAG_SIZE], theirs: &[u8; TAG_SIZE]) -> bool {
    let words = |tag: &[u8; TAG_SIZE]| {
        let word = u128::from_le_bytes(*tag);
        (word as u64, (word >> 64) as u64)
    };
    let ((ours_low, ours_high), (theirs_low, theirs_high)) = (words(ours), words(theirs));
    (ours_low.ct_eq(&theirs_low) & ours_high.ct_eq(&theirs_high)).into()
}

#[cfg(test)]
mod tests;
