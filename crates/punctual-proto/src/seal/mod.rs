//! The seal: shows that a frame comes from a holder of a key of the group, unaltered, and for the first time.
//!
//! It stands behind the payload of a frame whose header flags it, little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | mark of the key: which of a ring's keys to try ([`KeyId::mark`]) |
//! | 2 | 6 | when it was sealed: units of 65,536 ns since 1970, never falling within one life of a node |
//! | 8 | 16 | tag of everything before it, from the first byte of the header on |
//!
//! It is that small so that a message of 64 bytes and its seal take two cache lines of shared memory, not three. The fields that
//! distinguish a frame from every other are in the header: source, incarnation, target and sequence number, all under the tag. The time
//! distinguishes a number from the same number of an earlier lap or life ([`Window`]).
//!
//! The tag is that of AEGIS-128L used as a MAC (RFC 10032). Its nonce is constant for a key and a bus: as a MAC it needs no fresh one,
//! so nothing is lost when a sender restarts. It holds the key's whole name, and a tag of the bus's: a frame that was sealed for one
//! bus is not genuine on another, though the key is the same. Promises of the seal, and their limits: `docs/sealing.md`.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::hint::black_box;

use aegis::aegis128l::Aegis128LMac;
use subtle::ConstantTimeEq;

use crate::frame::Header;
use origin::{Origin, Origins, Sender};

mod key;
mod origin;
mod window;

pub use key::{GroupKey, KEY_SIZE, Key, KeyError, KeyId, KeyRing, Moment, RingKey, parse_keys};
pub use origin::{StreamName, TakenStream};
pub use window::{NotNew, WINDOW, Window};

/// Size of the tag, bytes.
pub const TAG_SIZE: usize = 16;

/// Size of the field between payload and tag, bytes.
const FIELD_SIZE: usize = 8;

/// Size of a seal, bytes.
pub const SEAL_SIZE: usize = FIELD_SIZE + TAG_SIZE;

/// The clock of seals counts these, nanoseconds: the rest of 64 bits beside the key's mark.
pub const TIME_UNIT_NS: u64 = 1 << MARK_BITS;
const MARK_BITS: u32 = u16::BITS;

/// Keeps our tags apart from those of others that might use the same key. The tag of a bus's name is made with it.
const NONCE: Context = *b"punctual";

/// Purpose of tags: the first half of their nonce, before the key's name.
type Context = [u8; 8];

/// Mark and time of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Mark of the keys that may have sealed it.
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

/// Looks behind seals: takes each genuine frame once.
#[derive(Debug)]
pub struct Opener {
    bus: String,
    keys: Vec<KnownKey>,
    /// Where the last frame's key was found.
    last_key: usize,
    senders: Origins<Sender>,
    streams: Origins<TakenStream>,
    /// Frames that were sealed before this are not for us: they may be recordings.
    floor: u64,
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
            senders: Origins::new(floor),
            streams: Origins::new(floor),
            floor,
            allowance_ns,
        };
        opener.renew(ring);
        opener
    }

    /// Takes over what has changed in the ring, which is the one that it was made with.
    pub fn renew(&mut self, ring: &KeyRing) {
        self.keys.retain(|known| ring.serial(known.id) == Some(known.serial));
        for key in ring.accepted() {
            if !self.keys.iter().any(|known| known.id == key.id) {
                let serial = ring.serial(key.id).expect("accepted");
                let mac = Mac::new(key, &self.bus);
                self.keys.push(KnownKey { id: key.id, serial, mark: key.id.mark(), mac });
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
        let (group, time) = self.look_behind(frame)?;
        let latest = latest(now_ns, self.allowance_ns);
        let sender = self.senders.of(&(header.source.node, header.incarnation), time, latest);
        sender.ok_or(Refusal::Stale)?.take(header, time).map_err(|_| Refusal::Replayed)?;
        Ok(group)
    }

    /// The same of a message of a publication: `record` is a private copy of all that the seal covers, and the seal. It may be
    /// opened again until it is taken, by [`Self::take_numbered`].
    ///
    /// # Errors
    /// As [`Self::open`].
    #[inline]
    pub fn open_numbered(
        &mut self,
        stream: StreamName,
        number: u64,
        record: &[u8],
        now_ns: impl FnOnce() -> u64,
    ) -> Result<Opened, Refusal> {
        let (group, time) = self.look_behind(record)?;
        let known =
            self.streams.of(&stream, time, latest(now_ns, self.allowance_ns)).ok_or(Refusal::Stale)?;
        if known.is_new(number, time) {
            Ok(Opened { group, stream, number, time })
        } else {
            Err(Refusal::Replayed)
        }
    }

    /// The user has what was opened: it is never opened again.
    #[inline]
    pub fn take_numbered(&mut self, opened: &Opened) {
        if let Some(known) = self.streams.of(&opened.stream, opened.time, || u64::MAX) {
            known.take(opened.number, opened.time);
        }
    }

    /// The rings of publications of which it has taken something, each up to a number, for an opener that comes in its place.
    pub fn taken(&self) -> impl Iterator<Item = TakenStream> {
        self.streams.known().filter(|stream| stream.was_taken()).copied()
    }

    /// Goes on with what it knows of rings from an opener in whose place it comes, the most important first: nothing that was taken is
    /// taken once more. To be called before anything is opened.
    pub fn go_on_after(&mut self, taken: impl IntoIterator<Item = TakenStream>) {
        // Of the others nothing is opened that was taken: it is from before our time.
        let floor = self.floor;
        self.streams.learn(taken.into_iter().filter(|stream| stream.newest() >= floor));
    }

    /// In which group this was sealed, and when, if it is genuine and not from before our time.
    #[inline]
    fn look_behind(&mut self, sealed: &[u8]) -> Result<(u32, u64), Refusal> {
        let (covered, tag) = sealed.split_last_chunk::<TAG_SIZE>().ok_or(Refusal::Unsealed)?;
        let (_, field) = covered.split_last_chunk::<FIELD_SIZE>().ok_or(Refusal::Unsealed)?;
        let seal = Seal::from_bytes(*field);
        let group = self.verify(seal.mark, covered, tag)?;
        if seal.time < self.floor { Err(Refusal::Stale) } else { Ok((group, seal.time)) }
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
}

/// The latest time that a seal can say, for a clock that is ahead of ours by the allowance.
fn latest(now_ns: impl FnOnce() -> u64, allowance_ns: u64) -> impl FnOnce() -> u64 {
    move || now_ns().saturating_add(allowance_ns) / TIME_UNIT_NS
}

/// A message of a publication that is genuine and new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The group in which it was sealed.
    pub group: u32,
    stream: StreamName,
    number: u64,
    time: u64,
}

/// A key that is accepted, made ready.
#[derive(Debug)]
struct KnownKey {
    id: KeyId,
    /// Number that tells apart keys of one name: see [`KeyRing::serial`].
    serial: u64,
    mark: u16,
    mac: Mac,
}

impl KnownKey {
    /// True if this key made this tag; the tag is looked at only if the mark is the key's own.
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
