//! Keys: what they are called, which one seals now, and which are still accepted.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::limits::SEAL_KEYS_MAX;

/// Size of a key, bytes.
pub const KEY_SIZE: usize = 16;

/// What a key is called. All of it is under the tag of every frame that it seals; a mark of it stands there in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// Who shares it.
    pub group: u32,
    /// Which of the group's keys it is: a later one has a higher number.
    pub generation: u32,
}

impl KeyId {
    /// What of the name stands in every seal: enough to find the key in a ring. Generations of a group that are less than
    /// 65,536 apart differ in it; keys of two groups may share one.
    #[inline]
    pub const fn mark(self) -> u16 {
        // Fibonacci hashing: Knuth, The Art of Computer Programming 3, 6.4.
        let group = self.group.wrapping_mul(0x9E37_79B1) >> 16;
        (group as u16).wrapping_add(self.generation as u16)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.group, self.generation)
    }
}

/// A secret of 128 bits. It is wiped when dropped, and nothing prints it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; KEY_SIZE]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// The key of these bytes, unless all are zero: that is what memory nobody has written looks like.
    pub fn new(mut bytes: [u8; KEY_SIZE]) -> Option<Self> {
        let key = (bytes != [0; KEY_SIZE]).then_some(Self(bytes));
        bytes.zeroize();
        key
    }

    /// The key written as 32 hexadecimal digits.
    ///
    /// # Errors
    /// [`KeyError::Malformed`], [`KeyError::Zero`]; neither repeats the text.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_SIZE {
            return Err(KeyError::Malformed { line: 0, wanted: "32 hexadecimal digits as the key" });
        }
        let mut bytes = [0; KEY_SIZE];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            let wrong = KeyError::Malformed { line: 0, wanted: "hexadecimal digits only in the key" };
            let (Some(high), Some(low)) = (high, low) else { return Err(wrong) };
            *byte = (high << 4 | low) as u8;
        }
        Self::new(bytes).ok_or(KeyError::Zero { line: 0 })
    }

    /// The secret itself, for whoever computes with it.
    pub fn expose(&self) -> &[u8; KEY_SIZE] {
        &self.0
    }
}

/// Why a key is not taken. No variant holds any of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Not as the format wants it.
    Malformed {
        /// Which line of the text, from 1; 0 where there is only one.
        line: usize,
        /// What should stand there.
        wanted: &'static str,
    },
    /// A key of zeros is none.
    Zero {
        /// Which line of the text, from 1; 0 where there is only one.
        line: usize,
    },
    /// Another key of that name is here: a new key needs a new generation.
    Taken(KeyId),
    /// More keys than a ring holds.
    TooMany,
    /// A text without any key.
    None,
}

impl KeyError {
    fn in_line(self, line: usize) -> Self {
        match self {
            Self::Malformed { wanted, .. } => Self::Malformed { line, wanted },
            Self::Zero { .. } => Self::Zero { line },
            other => other,
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |line: &usize| {
            if *line == 0 { String::new() } else { "line ".to_string() + &line.to_string() + ": " }
        };
        match self {
            Self::Malformed { line, wanted } => write!(f, "{}{wanted} expected", place(line)),
            Self::Zero { line } => write!(f, "{}a key of zeros is no key", place(line)),
            Self::Taken(id) => write!(f, "key {id} is there already, and is another: raise the generation"),
            Self::TooMany => write!(f, "more than {SEAL_KEYS_MAX} keys"),
            Self::None => f.write_str("no key: a line is GROUP GENERATION KEY"),
        }
    }
}

impl core::error::Error for KeyError {}

/// A key, what it is called, and from when on it seals.
#[derive(Clone, Debug)]
pub struct RingKey {
    /// What it is called.
    pub id: KeyId,
    /// The secret.
    pub key: Key,
    /// From when on it seals, nanoseconds since 1970; it is accepted at once.
    pub from_ns: u64,
}

/// Reads keys from text: a line for each, `GROUP GENERATION KEY [FROM]`. The key is 32 hexadecimal digits; `FROM` is the
/// second since 1970 from which on it seals, by default at once. `#` begins a comment.
///
/// # Errors
/// See [`KeyError`].
pub fn parse_keys(text: &str) -> Result<Vec<RingKey>, KeyError> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        if !line.trim().is_empty() {
            keys.push(parse_key(line).map_err(|error| error.in_line(index + 1))?);
        }
    }
    if keys.is_empty() { Err(KeyError::None) } else { Ok(keys) }
}

fn parse_key(line: &str) -> Result<RingKey, KeyError> {
    let malformed = |wanted| KeyError::Malformed { line: 0, wanted };
    let mut words = line.split_whitespace();
    let mut number = |wanted| words.next().and_then(|word| word.parse().ok()).ok_or(malformed(wanted));
    let group = number("a group's number (0 to 4294967295)")?;
    let generation = number("a generation (0 to 4294967295)")?;
    let key = Key::from_hex(words.next().ok_or(malformed("32 hexadecimal digits as the key"))?)?;
    let from_s = match words.next() {
        Some(word) => word.parse::<u64>().ok().filter(|second| *second < u64::MAX / 1_000_000_000),
        None => Some(0),
    };
    let from_ns = from_s.ok_or(malformed("a second since 1970"))? * 1_000_000_000;
    if words.next().is_some() {
        return Err(malformed("nothing more in the line"));
    }
    Ok(RingKey { id: KeyId { group, generation }, key, from_ns })
}

/// A key in a ring.
#[derive(Clone, Debug)]
struct Held {
    key: RingKey,
    /// When it came, nanoseconds since 1970.
    since_ns: u64,
}

/// The keys of one node. The newest whose time has come seals; all are accepted until their successor has sealed for as long
/// as the overlap.
#[derive(Clone, Debug)]
pub struct KeyRing {
    keys: Vec<Held>,
    /// The group whose keys seal.
    home: Option<u32>,
    overlap_ns: u64,
}

impl KeyRing {
    /// An empty ring.
    pub fn new(overlap_ns: u64) -> Self {
        Self { keys: Vec::with_capacity(SEAL_KEYS_MAX), home: None, overlap_ns }
    }

    /// For how long a key is accepted after its successor began to seal.
    pub fn set_overlap(&mut self, overlap_ns: u64) {
        self.overlap_ns = overlap_ns;
    }

    /// Adds a key. The group of the first one seals, until [`Self::set_home`] says otherwise.
    ///
    /// # Errors
    /// [`KeyError::Taken`], [`KeyError::TooMany`].
    pub fn insert(&mut self, new: RingKey, now_ns: u64) -> Result<(), KeyError> {
        if let Some(known) = self.accepted().find(|known| known.id == new.id) {
            let is_same = known.key.expose() == new.key.expose();
            return if is_same { Ok(()) } else { Err(KeyError::Taken(new.id)) };
        }
        if self.keys.len() == SEAL_KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        self.home.get_or_insert(new.id.group);
        self.keys.push(Held { key: new, since_ns: now_ns });
        Ok(())
    }

    /// From now on this group's keys seal. `false` if there is none.
    pub fn set_home(&mut self, group: u32) -> bool {
        let is_known = self.accepted().any(|key| key.id.group == group);
        if is_known {
            self.home = Some(group);
        }
        is_known
    }

    /// The group whose keys seal.
    pub fn home(&self) -> Option<u32> {
        self.home
    }

    /// Forgets a key.
    pub fn remove(&mut self, id: KeyId) {
        self.keys.retain(|held| held.key.id != id);
    }

    /// Forgets all keys of a group.
    pub fn remove_group(&mut self, group: u32) {
        self.keys.retain(|held| held.key.id.group != group);
    }

    /// The key that seals now, and when that may change, nanoseconds since 1970.
    pub fn sealing(&self, now_ns: u64) -> (Option<&RingKey>, u64) {
        self.home.map_or((None, u64::MAX), |home| self.sealing_in(home, now_ns))
    }

    /// The same of any group, whether it is the home or not.
    pub fn sealing_in(&self, group: u32, now_ns: u64) -> (Option<&RingKey>, u64) {
        let ours = || self.accepted().filter(|key| key.id.group == group);
        let newest = ours().filter(|key| key.from_ns <= now_ns).max_by_key(|key| key.id.generation);
        let later = ours().filter(|key| key.from_ns > now_ns).map(|key| key.from_ns).min();
        (newest, later.unwrap_or(u64::MAX))
    }

    /// The keys with which frames are opened.
    pub fn accepted(&self) -> impl Iterator<Item = &RingKey> {
        self.keys.iter().map(|held| &held.key)
    }

    /// When the next key's overlap ends, nanoseconds since 1970.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.accepted().filter_map(|key| self.end_of(key.id)).min()
    }

    /// Forgets the keys whose overlap has passed; whether there were any.
    pub fn handle_timeout(&mut self, now_ns: u64) -> bool {
        let is_over = |id: &KeyId| self.end_of(*id).is_some_and(|end| end <= now_ns);
        let over: Vec<KeyId> = self.accepted().map(|key| key.id).filter(is_over).collect();
        self.keys.retain(|held| !over.contains(&held.key.id));
        !over.is_empty()
    }

    /// When a key is no longer accepted, where that is known.
    fn end_of(&self, id: KeyId) -> Option<u64> {
        let is_successor =
            |held: &&Held| held.key.id.group == id.group && held.key.id.generation > id.generation;
        let begin = |held: &Held| held.key.from_ns.max(held.since_ns);
        let successors = self.keys.iter().filter(is_successor);
        Some(successors.map(begin).min()?.saturating_add(self.overlap_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f";

    fn key(group: u32, generation: u32, from_ns: u64) -> RingKey {
        let id = KeyId { group, generation };
        RingKey { id, key: Key::new([generation as u8 + 1; KEY_SIZE]).unwrap(), from_ns }
    }

    #[test]
    fn the_newest_whose_time_has_come_seals_and_the_older_end_after_the_overlap() {
        let mut ring = KeyRing::new(100);
        for key in [key(1, 0, 0), key(1, 1, 1_000), key(2, 9, 0)] {
            ring.insert(key, 500).unwrap();
        }
        let sealing = |ring: &KeyRing, now| ring.sealing(now).0.map(|key| (key.id.group, key.id.generation));
        assert_eq!((sealing(&ring, 999), ring.sealing(999).1), (Some((1, 0)), 1_000));
        assert_eq!((sealing(&ring, 1_000), ring.sealing(1_000).1), (Some((1, 1)), u64::MAX));
        assert_eq!(ring.poll_timeout(), Some(1_100));
        assert!(!ring.handle_timeout(1_099) && ring.accepted().count() == 3);
        assert!(ring.handle_timeout(1_100) && ring.accepted().count() == 2);
        assert!(ring.set_home(2) && !ring.set_home(3));
        assert_eq!(sealing(&ring, 0), Some((2, 9)));
    }

    #[test]
    fn a_name_has_one_key_and_a_ring_has_a_limit() {
        let mut ring = KeyRing::new(0);
        ring.insert(key(1, 1, 0), 0).unwrap();
        ring.insert(key(1, 1, 0), 0).unwrap();
        let other = RingKey { key: Key::new([99; KEY_SIZE]).unwrap(), ..key(1, 1, 0) };
        assert_eq!(ring.insert(other, 0), Err(KeyError::Taken(KeyId { group: 1, generation: 1 })));
        for generation in 2..=SEAL_KEYS_MAX as u32 {
            ring.insert(key(1, generation, 0), 0).unwrap();
        }
        assert_eq!(ring.insert(key(1, 200, 0), 0), Err(KeyError::TooMany));
    }

    #[test]
    fn text_becomes_keys_or_says_which_line() {
        let text = format!("# cars\n1 2 {HEX}\n\n3 4 {HEX} 1700000000 # later\n");
        let keys = parse_keys(&text).unwrap();
        assert_eq!(
            keys.iter().map(|key| (key.id.group, key.from_ns)).collect::<Vec<_>>(),
            [(1, 0), (3, 1_700_000_000_000_000_000)]
        );
        assert_eq!(keys[0].key.expose()[15], 15);
        assert_eq!(parse_keys("# nothing\n").unwrap_err(), KeyError::None);
        assert_eq!(parse_keys(&format!("1 1 {}", "0".repeat(32))).unwrap_err(), KeyError::Zero { line: 1 });
        for bad in [
            "1",
            "1 1",
            "1 x 00",
            &format!("1 1 {HEX}0"),
            &format!("1 1 {HEX} soon"),
            &format!("1 1 {HEX} 1 2"),
            &format!("1 1 {}é", &HEX[2..]),
        ] {
            let text = format!("\n{bad}");
            assert!(matches!(parse_keys(&text), Err(KeyError::Malformed { line: 2, .. })), "{bad}");
        }
    }

    #[test]
    fn nothing_prints_a_key() {
        let key = parse_keys(&format!("1 1 {HEX}")).unwrap().remove(0);
        let mut ring = KeyRing::new(0);
        ring.insert(key.clone(), 0).unwrap();
        for text in [format!("{key:?}"), format!("{ring:#?}"), format!("{:?}", Key::from_hex("zz"))] {
            assert!(!text.contains("0102") && !text.contains("1, 2, 3") && !text.contains("zz"), "{text}");
        }
    }
}
