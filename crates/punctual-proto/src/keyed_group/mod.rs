//! Groups that nodes join and leave while they run, each with a key of its own that only members ever hold.
//!
//! A *leader*, who is configured, hands the group's key to each member under a secret that only the two of them share. Before that,
//! each has shown the other that it is there now. When somebody leaves, or is no longer heard, the others get a new key. No clock, no
//! socket, no source of randomness: time and random bytes are arguments. Time is any clock that never goes back, and need not be that
//! of others: only durations cross the wire.
//!
//! ```text
//! member                                leader
//!   Ask     (its challenge)       ->              1: anybody who has recorded it may send it again; nothing comes of that
//!           <-  Offer  (the other challenge)      2: the same one to this node until it is confirmed, whatever was asked
//!   Confirm (its challenge again) ->              3: the member is there now: it is a member
//!           <-  Grant  (key, its name, in)        4: and again whenever the key changes, until it is acknowledged
//!   Alive   (newest generation)   ->              5: acknowledges, and says now and then that it is still there
//!   Leave                         ->              6: the others get a new key
//! ```
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | kind: 1 Ask to 6 Leave |
//! | 1 | 1 | version, 2 |
//! | 2 | 4 | group |
//! | 6 | 8 | source (node) |
//! | 14 | 8 | target (node) |
//! | 22 | 32 | nonce, random |
//! | 54 | | contents, encrypted |
//! | … | 16 | tag |
//!
//! Encrypted with AEGIS-256 (RFC 10032) under the member's secret. The tag covers the fields in clear, and the challenges: the member's
//! in the Offer, the leader's in the Confirm, from then on both. A message of another session, however genuine, does not open.
//! `docs/groups.md` says what follows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use aegis::aegis256::Aegis256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::NodeId;
use crate::seal::{GroupKey, KEY_SIZE, Key, KeyId};

mod leader;
mod member;
#[cfg(test)]
mod tests;

pub use leader::{Leader, LeaderEvent};
pub use member::{Member, State};

/// Size of a secret, bytes.
pub const SECRET_SIZE: usize = 32;

const VERSION: u8 = 2;
const CLEAR_SIZE: usize = 22;
const NONCE_SIZE: usize = 32;
const TAG_SIZE: usize = 16;
const CHALLENGE_SIZE: usize = 16;
/// A number and a generation.
const SAID_SIZE: usize = 8 + 8;
const CONFIRM_SIZE: usize = SAID_SIZE + CHALLENGE_SIZE;
const GRANT_SIZE: usize = 8 + 8 + 4 + 8 + KEY_SIZE;
const _: () = assert!(CONFIRM_SIZE <= GRANT_SIZE);

/// Largest message of the exchange, bytes.
pub const MESSAGE_SIZE_MAX: usize = CLEAR_SIZE + NONCE_SIZE + GRANT_SIZE + TAG_SIZE;

/// Random bytes, from any source.
pub trait Entropy {
    /// Fills `bytes` with what nobody can guess.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8])> Entropy for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// The secret shared by a member and its leader. It stays in one place, however often it is moved; wiped when dropped; nothing prints
/// it.
#[derive(Clone)]
pub struct Secret(Box<[u8; SECRET_SIZE]>);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// The secret of these bytes, unless all are zero.
    pub fn new(mut bytes: [u8; SECRET_SIZE]) -> Option<Self> {
        let secret = (bytes != [0; SECRET_SIZE]).then(|| Self(Box::new(bytes)));
        bytes.zeroize();
        secret
    }

    /// The secret of one member, from the one that leaders hold: a leader needs no list, and a member knows nobody else's.
    ///
    /// It is the key stream of AEGIS-256 under the leaders' secret, with the member's id as nonce.
    #[must_use]
    pub fn of_member(&self, member: NodeId) -> Self {
        let mut nonce = [0; NONCE_SIZE];
        nonce[..24].copy_from_slice(b"punctual member secret 1");
        nonce[24..].copy_from_slice(&member.get().to_le_bytes());
        let mut secret = Self(Box::new([0; SECRET_SIZE]));
        Aegis256::<TAG_SIZE>::new(&self.0, &nonce).stream(&mut secret.0[..]);
        secret
    }

    /// The secret itself, for storing it.
    pub fn expose(&self) -> &[u8; SECRET_SIZE] {
        &self.0
    }
}

/// Times of the machines, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTiming {
    /// Until a message that was not answered is sent again.
    pub retry_ns: u64,
    /// A member that was not heard for this long is a member no more. It says that it is there three times as often.
    pub lease_ns: u64,
    /// From the first time a new key is handed out until it is used: several retries, so that all have it. There is one new key
    /// in that time at most: all who go meanwhile share the next.
    pub notice_ns: u64,
    /// The key is renewed this often, even if nobody leaves.
    pub renewal_ns: u64,
}

impl Default for GroupTiming {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000_000;
        Self { retry_ns: SECOND / 10, lease_ns: 3 * SECOND, notice_ns: SECOND, renewal_ns: 600 * SECOND }
    }
}

/// The group of a place on a map of square cells: vehicles in one cell share a group. Cells wrap around after 65,536 in each
/// direction. No place has group 0: a leader's group may not have the number of the fleet's key, so that key is of group 0.
pub fn group_of_cell(x_m: f64, y_m: f64, cell_m: f64) -> u32 {
    let cell = |at: f64| {
        let towards_zero = (at / cell_m) as i64;
        let is_below = at / cell_m < towards_zero as f64;
        towards_zero.wrapping_sub(is_below.into()) as u16
    };
    let group = u32::from(cell(x_m)) << 16 | u32::from(cell(y_m));
    // The cell at the origin has number 0, which is kept for the key with which all are enrolled.
    if group == 0 { 0xFFFF_0000 | 0x8000 } else { group }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ask = 1,
    Offer,
    Confirm,
    Grant,
    Alive,
    Leave,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Ask, Self::Offer, Self::Confirm, Self::Grant, Self::Alive, Self::Leave]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// The fields in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clear {
    kind: Kind,
    group: u32,
    source: NodeId,
    target: NodeId,
}

impl Clear {
    fn write(&self) -> [u8; CLEAR_SIZE] {
        let mut bytes = [0; CLEAR_SIZE];
        (bytes[0], bytes[1]) = (self.kind as u8, VERSION);
        bytes[2..6].copy_from_slice(&self.group.to_le_bytes());
        bytes[6..14].copy_from_slice(&self.source.get().to_le_bytes());
        bytes[14..22].copy_from_slice(&self.target.get().to_le_bytes());
        bytes
    }

    fn read(message: &[u8]) -> Option<Self> {
        let bytes = message.first_chunk::<CLEAR_SIZE>()?;
        let node = |at: usize| NodeId::new(u64::from_le_bytes(*bytes[at..].first_chunk()?));
        let kind = Kind::of(bytes[0]).filter(|_| bytes[1] == VERSION)?;
        let group = u32::from_le_bytes(*bytes[2..].first_chunk()?);
        Some(Self { kind, group, source: node(6)?, target: node(14)? })
    }
}

/// For whom a message of the exchange is, read without believing it: so that a carrier can pass it on.
pub fn target_of(message: &[u8]) -> Option<NodeId> {
    Clear::read(message).map(|clear| clear.target)
}

/// Both challenges of one session; zeros where there is none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Session {
    member: [u8; CHALLENGE_SIZE],
    leader: [u8; CHALLENGE_SIZE],
}

/// Data that the tag covers besides the contents.
fn covered(clear: &Clear, session: &Session) -> [u8; CLEAR_SIZE + 2 * CHALLENGE_SIZE] {
    let mut bytes = [0; CLEAR_SIZE + 2 * CHALLENGE_SIZE];
    bytes[..CLEAR_SIZE].copy_from_slice(&clear.write());
    bytes[CLEAR_SIZE..][..CHALLENGE_SIZE].copy_from_slice(&session.member);
    bytes[CLEAR_SIZE + CHALLENGE_SIZE..].copy_from_slice(&session.leader);
    bytes
}

fn lock(
    secret: &Secret,
    clear: &Clear,
    session: &Session,
    contents: &[u8],
    entropy: &mut dyn Entropy,
) -> Vec<u8> {
    let mut nonce = [0; NONCE_SIZE];
    entropy.fill(&mut nonce);
    let mut message = Vec::with_capacity(MESSAGE_SIZE_MAX);
    message.extend_from_slice(&clear.write());
    message.extend_from_slice(&nonce);
    let mut hidden = Zeroizing::new([0; GRANT_SIZE]);
    let hidden = &mut hidden[..contents.len()];
    hidden.copy_from_slice(contents);
    let cipher = Aegis256::<TAG_SIZE>::new(&secret.0, &nonce);
    let tag = cipher.encrypt_in_place(hidden, &covered(clear, session));
    message.extend_from_slice(hidden);
    message.extend_from_slice(&tag);
    message
}

/// The contents, if the message is genuine and of this session.
fn unlock(secret: &Secret, clear: &Clear, session: &Session, message: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, rest) = message.get(CLEAR_SIZE..)?.split_first_chunk::<NONCE_SIZE>()?;
    let (contents, tag) = rest.split_last_chunk::<TAG_SIZE>()?;
    if contents.len() > GRANT_SIZE {
        return None;
    }
    let mut contents = Zeroizing::new(contents.to_vec());
    let cipher = Aegis256::<TAG_SIZE>::new(&secret.0, nonce);
    cipher.decrypt_in_place(&mut contents, tag, &covered(clear, session)).ok()?;
    Some(contents)
}

/// Part of every message of a member but its first: the number of the message in its session, and the newest generation that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    number: u64,
    generation: u64,
}

impl Said {
    fn write(self) -> [u8; SAID_SIZE] {
        let mut bytes = [0; SAID_SIZE];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    fn read(contents: &[u8]) -> Option<Self> {
        let bytes: &[u8; SAID_SIZE] = contents.try_into().ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
        Some(Self { number: word(0)?, generation: word(8)? })
    }
}

/// A key as it is handed out at this time, with the number of the message in its session.
fn write_grant(number: u64, key: &GroupKey, now_ns: u64) -> Zeroizing<[u8; GRANT_SIZE]> {
    let mut bytes = Zeroizing::new([0; GRANT_SIZE]);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&key.id.life.to_le_bytes());
    bytes[16..20].copy_from_slice(&key.id.generation.to_le_bytes());
    bytes[20..28].copy_from_slice(&key.from_ns.saturating_sub(now_ns).to_le_bytes());
    bytes[28..].copy_from_slice(key.key.expose());
    bytes
}

fn read_grant(group: u32, contents: &[u8], now_ns: u64) -> Option<(u64, GroupKey)> {
    let bytes: &[u8; GRANT_SIZE] = contents.try_into().ok()?;
    let word = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
    let generation = u32::from_le_bytes(*bytes[16..].first_chunk()?);
    let key = Key::new(*bytes[28..].first_chunk()?)?;
    let (id, from_ns) = (KeyId { group, life: word(8)?, generation }, now_ns.saturating_add(word(20)?));
    Some((word(0)?, GroupKey { id, key, from_ns }))
}
