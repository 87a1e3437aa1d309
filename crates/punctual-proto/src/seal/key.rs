//! Keys: their names, the one that seals now, and those that are still accepted.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::limits::SEAL_KEYS_MAX;

/// Size of a key, bytes.
pub const KEY_SIZE: usize = 16;

/// Name of a key. All of it is under the tag of every frame that it seals; a mark of it stands there in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// The group that shares it.
    pub group: u32,
    /// The life of the group's leader that made it, drawn at random; 0 for keys that have no leader. Of two lives, the one whose first
    /// key came later is the later one.
    pub life: u64,
    /// Number of the key in its group: within a life, a later key has a higher number.
    pub generation: u32,
}

impl KeyId {
    /// The part of the name that stands in every seal: enough to find the key in a ring. Generations of a group and life that are less
    /// than 65,536 apart differ in it; others may share one.
    #[inline]
    pub const fn mark(self) -> u16 {
        // Fibonacci hashing: Knuth, The Art of Computer Programming 3, 6.4.
        let group = self.group.wrapping_mul(0x9E37_79B1) >> 16;
        (group as u16).wrapping_add(self.life as u16).wrapping_add(self.generation as u16)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.life {
            0 => write!(f, "{}.{}", self.group, self.generation),
            life => write!(f, "{}.{life:x}.{}", self.group, self.generation),
        }
    }
}

/// A secret of 128 bits. It stays in one place, however often it is moved; it is wiped when dropped, and nothing prints it.
#[derive(Clone)]
pub struct Key(Box<[u8; KEY_SIZE]>);

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// The key of these bytes, unless all are zero: that is what memory nobody has written looks like.
    pub fn new(mut bytes: [u8; KEY_SIZE]) -> Option<Self> {
        let key = (bytes != [0; KEY_SIZE]).then(|| Self(Box::new(bytes)));
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
        let mut bytes = Zeroizing::new([0; KEY_SIZE]);
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            let wrong = KeyError::Malformed { line: 0, wanted: "hexadecimal digits only in the key" };
            let (Some(high), Some(low)) = (high, low) else { return Err(wrong) };
            *byte = (high << 4 | low) as u8;
        }
        Self::new(*bytes).ok_or(KeyError::Zero { line: 0 })
    }

    /// The secret itself, for code that computes with it.
    pub fn expose(&self) -> &[u8; KEY_SIZE] {
        &self.0
    }
}

/// Why a key is not taken. No variant holds any of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Not as the format wants it.
    Malformed {
        /// Line of the text, from 1; 0 where there is only one.
        line: usize,
        /// The item that should stand there.
        wanted: &'static str,
    },
    /// A key of zeros is none.
    Zero {
        /// Line of the text, from 1; 0 where there is only one.
        line: usize,
    },
    /// Another key of that name is here: a new key needs a new generation.
    Taken(KeyId),
    /// More keys than a ring holds.
    TooMany,
    /// A text without any key.
    None,
    /// A leader's group may not have the number of a key of the fleet's: the leader's keys would take the place of that key.
    Fleet(u32),
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
            Self::Fleet(group) => {
                write!(f, "group {group} has a key of the fleet's: give the leader's group another number")
            }
        }
    }
}

impl core::error::Error for KeyError {}

/// A key, its name, and the time from which it seals.
#[derive(Clone, Debug)]
pub struct RingKey {
    /// Its name.
    pub id: KeyId,
    /// The secret.
    pub key: Key,
    /// From when on it seals, nanoseconds since 1970; it is accepted at once.
    pub from_ns: u64,
}

/// A key that a group's leader made: no calendar has a part in when it seals.
#[derive(Clone, Debug)]
pub struct GroupKey {
    /// Its name.
    pub id: KeyId,
    /// The secret.
    pub key: Key,
    /// From when on it seals, nanoseconds on the monotonic clock of this process; it is accepted at once.
    pub from_ns: u64,
}

/// One instant on two clocks: of the calendar, by which keys of a file begin, and of one that nobody sets, by which all else is
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
    /// Nanoseconds on a clock that never goes back.
    pub monotonic_ns: u64,
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
    Ok(RingKey { id: KeyId { group, life: 0, generation }, key, from_ns })
}

/// From when on a key seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// Nanoseconds since 1970.
    Wall(u64),
    /// On the monotonic clock.
    Monotonic(u64),
    /// It does: since when, on the monotonic clock. A calendar that is set back changes nothing about that.
    Begun(u64),
}

/// A key in a ring.
#[derive(Clone, Debug)]
struct Held {
    key: RingKey,
    begin: Begin,
    /// Orders the lives of a group's leader by when their first key came.
    life_place: u64,
    /// See [`KeyRing::serial`].
    serial: u64,
}

impl Held {
    fn has_begun(&self, now: Moment) -> bool {
        match self.begin {
            Begin::Wall(from_ns) => from_ns <= now.wall_ns,
            Begin::Monotonic(from_ns) => from_ns <= now.monotonic_ns,
            Begin::Begun(_) => true,
        }
    }

    /// When it begins to seal by the calendar as it is now.
    fn begin_wall_ns(&self, now: Moment) -> u64 {
        match self.begin {
            Begin::Wall(from_ns) => from_ns,
            Begin::Monotonic(from_ns) => now.wall_ns.saturating_add(from_ns.saturating_sub(now.monotonic_ns)),
            Begin::Begun(_) => 0,
        }
    }

    fn note_begin(&mut self, now: Moment) -> bool {
        let begins = self.has_begun(now) && !matches!(self.begin, Begin::Begun(_));
        if begins {
            // A node that was not run then looks late: the key before is accepted no longer for it.
            let since_ns = match self.begin {
                Begin::Monotonic(from_ns) => from_ns,
                Begin::Wall(_) | Begin::Begun(_) => now.monotonic_ns,
            };
            self.begin = Begin::Begun(since_ns);
        }
        begins
    }

    /// Among the keys of a group, a later one is more.
    fn age(&self) -> (u64, u32) {
        (self.life_place, self.key.id.generation)
    }
}

/// The keys of one node. The newest whose time has come seals; all are accepted until their successor has sealed for as long
/// as the overlap.
#[derive(Clone, Debug)]
pub struct KeyRing {
    keys: Vec<Held>,
    /// The group whose keys seal.
    home: Option<u32>,
    overlap_ns: u64,
    /// Keys that made room before their overlap had passed.
    cut_short: u64,
    /// Keys that ever came.
    added: u64,
}

impl KeyRing {
    /// An empty ring.
    pub fn new(overlap_ns: u64) -> Self {
        Self { keys: Vec::with_capacity(SEAL_KEYS_MAX), home: None, overlap_ns, cut_short: 0, added: 0 }
    }

    /// For how long a key is accepted after its successor began to seal.
    pub fn set_overlap(&mut self, overlap_ns: u64) {
        self.overlap_ns = overlap_ns;
    }

    /// Adds a key. The group of the first one seals, until [`Self::set_home`] says otherwise.
    ///
    /// # Errors
    /// [`KeyError::Taken`], [`KeyError::TooMany`].
    pub fn insert(&mut self, new: RingKey, now: Moment) -> Result<(), KeyError> {
        let begin = Begin::Wall(new.from_ns);
        self.add(new, begin, now)
    }

    /// Adds a key that a leader made. In a full ring, one that does not seal any more makes room: of the group that has most,
    /// and of these the oldest.
    ///
    /// # Errors
    /// [`KeyError::Taken`]; [`KeyError::TooMany`] if the ring is full of keys that seal, or will.
    pub fn insert_of_group(&mut self, new: GroupKey, now: Moment) -> Result<(), KeyError> {
        let is_held = self.accepted().any(|known| known.id == new.id);
        if !is_held && self.keys.len() == SEAL_KEYS_MAX {
            self.make_room();
        }
        let begin = Begin::Monotonic(new.from_ns);
        self.add(RingKey { id: new.id, key: new.key, from_ns: 0 }, begin, now)
    }

    fn add(&mut self, new: RingKey, begin: Begin, now: Moment) -> Result<(), KeyError> {
        if let Some(known) = self.accepted().find(|known| known.id == new.id) {
            let is_same = known.key.expose() == new.key.expose();
            return if is_same { Ok(()) } else { Err(KeyError::Taken(new.id)) };
        }
        if self.keys.len() == SEAL_KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        self.home.get_or_insert(new.id.group);
        let of_group = || self.keys.iter().filter(|held| held.key.id.group == new.id.group);
        let of_life = of_group().find(|held| held.key.id.life == new.id.life).map(|held| held.life_place);
        let next = of_group().map(|held| held.life_place + 1).max().unwrap_or(0);
        let mut held = Held { key: new, begin, life_place: of_life.unwrap_or(next), serial: self.added };
        held.note_begin(now);
        self.added += 1;
        self.keys.push(held);
        Ok(())
    }

    fn make_room(&mut self) {
        let in_group = |group| self.keys.iter().filter(|held| held.key.id.group == group).count();
        let over = self.keys.iter().filter(|held| self.successor_begun(held).is_some());
        let worst = over.max_by_key(|held| (in_group(held.key.id.group), core::cmp::Reverse(held.age())));
        if let Some(id) = worst.map(|held| held.key.id) {
            self.remove(id);
            self.cut_short += 1;
        }
    }

    /// Keys that made room for others before their overlap had passed.
    pub fn cut_short(&self) -> u64 {
        self.cut_short
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
        self.retain(|held| held.key.id != id);
    }

    /// Forgets all keys of a group.
    pub fn remove_group(&mut self, group: u32) {
        self.retain(|held| held.key.id.group != group);
    }

    /// An empty ring has no home: the next key is a first one again.
    fn retain(&mut self, stays: impl FnMut(&Held) -> bool) {
        self.keys.retain(stays);
        self.home = self.home.filter(|_| !self.keys.is_empty());
    }

    /// The key that seals now, and when that may change, nanoseconds since 1970.
    pub fn sealing(&self, now: Moment) -> (Option<&RingKey>, u64) {
        self.home.map_or((None, u64::MAX), |home| self.sealing_in(home, now))
    }

    /// The same of any group, whether it is the home or not.
    pub fn sealing_in(&self, group: u32, now: Moment) -> (Option<&RingKey>, u64) {
        let ours = || self.keys.iter().filter(|held| held.key.id.group == group);
        let newest = ours().filter(|held| held.has_begun(now)).max_by_key(|held| held.age());
        let later = ours().filter(|held| !held.has_begun(now)).map(|held| held.begin_wall_ns(now)).min();
        (newest.map(|held| &held.key), later.unwrap_or(u64::MAX))
    }

    /// The keys with which frames are opened.
    pub fn accepted(&self) -> impl Iterator<Item = &RingKey> {
        self.keys.iter().map(|held| &held.key)
    }

    /// Returns true if the key with this serial number is still here.
    pub fn has_serial(&self, serial: u64) -> bool {
        self.keys.iter().any(|held| held.serial == serial)
    }

    /// Serial number, among all keys that ever came into this ring, of the key that has that name now. A name that was freed can pass
    /// to another secret. Its number is then another, so code that derived something from a key sees that it is not the same any more.
    pub fn serial(&self, id: KeyId) -> Option<u64> {
        self.keys.iter().find(|held| held.key.id == id).map(|held| held.serial)
    }

    /// Notes which keys have begun to seal, and forgets those whose overlap has passed; true if there were any.
    pub fn handle_timeout(&mut self, now: Moment) -> bool {
        let begun = self.keys.iter_mut().map(|held| held.note_begin(now)).filter(|begins| *begins).count();
        let end = |held: &Held| Some(self.successor_begun(held)?.saturating_add(self.overlap_ns));
        let is_over = |held: &&Held| end(held).is_some_and(|end| end <= now.monotonic_ns);
        let over: Vec<KeyId> = self.keys.iter().filter(is_over).map(|held| held.key.id).collect();
        self.keys.retain(|held| !over.contains(&held.key.id));
        begun > 0 || !over.is_empty()
    }

    /// Since when a later key of its group has sealed, on the monotonic clock.
    fn successor_begun(&self, held: &Held) -> Option<u64> {
        let is_later = |other: &&Held| other.key.id.group == held.key.id.group && other.age() > held.age();
        let since = |other: &Held| match other.begin {
            Begin::Begun(since_ns) => Some(since_ns),
            Begin::Wall(_) | Begin::Monotonic(_) => None,
        };
        self.keys.iter().filter(is_later).filter_map(since).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f";

    fn key(group: u32, generation: u32, from_ns: u64) -> RingKey {
        let id = KeyId { group, life: 0, generation };
        RingKey { id, key: Key::new([generation as u8 + 1; KEY_SIZE]).unwrap(), from_ns }
    }

    fn of_group((group, life, generation): (u32, u64, u32), from_ns: u64) -> GroupKey {
        let bytes = [(life as u8).wrapping_mul(100).wrapping_add(generation as u8) | 1; KEY_SIZE];
        GroupKey { id: KeyId { group, life, generation }, key: Key::new(bytes).unwrap(), from_ns }
    }

    /// Both clocks agree.
    fn at(ns: u64) -> Moment {
        Moment { wall_ns: ns, monotonic_ns: ns }
    }

    fn sealing(ring: &KeyRing, now: Moment) -> Option<(u32, u64, u32)> {
        ring.sealing(now).0.map(|key| (key.id.group, key.id.life, key.id.generation))
    }

    #[test]
    fn the_newest_whose_time_has_come_seals_and_the_older_end_after_the_overlap() {
        let mut ring = KeyRing::new(100);
        for key in [key(1, 0, 0), key(1, 1, 1_000), key(2, 9, 0)] {
            ring.insert(key, at(500)).unwrap();
        }
        assert_eq!((sealing(&ring, at(999)), ring.sealing(at(999)).1), (Some((1, 0, 0)), 1_000));
        assert_eq!((sealing(&ring, at(1_000)), ring.sealing(at(1_000)).1), (Some((1, 0, 1)), u64::MAX));
        assert!(ring.handle_timeout(at(1_000)), "one has begun");
        assert!(!ring.handle_timeout(at(1_099)) && ring.accepted().count() == 3);
        assert!(ring.handle_timeout(at(1_100)) && ring.accepted().count() == 2);
        assert!(ring.set_home(2) && !ring.set_home(3));
        assert_eq!(sealing(&ring, at(0)), Some((2, 0, 9)));
    }

    /// Goal: the first key that comes into a ring that was emptied seals, of whichever group it is. While another key is there, the home
    /// stays where it was: nothing is sealed for a group that nobody chose.
    #[test]
    fn an_emptied_ring_has_no_home() {
        let mut ring = KeyRing::new(100);
        [key(1, 1, 0), key(2, 1, 0)].into_iter().for_each(|key| ring.insert(key, at(0)).unwrap());
        ring.remove_group(1);
        assert_eq!((ring.home(), sealing(&ring, at(1))), (Some(1), None));
        ring.remove(key(2, 1, 0).id);
        assert_eq!((ring.home(), sealing(&ring, at(1))), (None, None));
        ring.insert(key(3, 1, 0), at(1)).unwrap();
        assert_eq!(sealing(&ring, at(1)), Some((3, 0, 1)));
        ring.remove_group(3);
        ring.insert_of_group(of_group((4, 7, 1), 0), at(1)).unwrap();
        assert_eq!(sealing(&ring, at(1)), Some((4, 7, 1)));
    }

    /// Goal: a calendar that is set by an hour, either way, neither ends nor lengthens an overlap, and takes back no key that seals
    /// already. It has no part at all in the keys of groups.
    #[test]
    fn a_calendar_that_is_set_ends_no_key_and_keeps_none() {
        const HOUR: u64 = 3_600_000;
        let begin = 10 * HOUR;
        for wall_ns in [begin - HOUR, begin + HOUR] {
            let stepped =
                |monotonic_ns: u64| Moment { wall_ns: wall_ns + monotonic_ns - begin, monotonic_ns };
            let mut files = KeyRing::new(100);
            let mut groups = KeyRing::new(100);
            for generation in 0..2_u32 {
                let from_ns = begin + 100 * u64::from(generation);
                files.insert(key(1, generation, from_ns), at(begin)).unwrap();
                groups.insert_of_group(of_group((1, 7, generation), from_ns), at(begin)).unwrap();
            }
            assert_eq!(groups.sealing(stepped(begin + 40)).1, stepped(begin + 100).wall_ns);
            assert_eq!(sealing(&groups, stepped(begin + 99)), Some((1, 7, 0)));
            assert_eq!(sealing(&groups, stepped(begin + 100)), Some((1, 7, 1)));
            for ring in [&mut files, &mut groups] {
                ring.handle_timeout(at(begin + 100));
                assert!(!ring.handle_timeout(stepped(begin + 199)), "the overlap goes on");
                assert_eq!(ring.sealing(stepped(begin + 199)).0.map(|key| key.id.generation), Some(1));
                assert!(ring.handle_timeout(stepped(begin + 200)) && ring.accepted().count() == 1);
            }
        }
    }

    /// Goal: a node that looks long after a group's key began keeps the one before no longer than another node.
    #[test]
    fn a_late_look_lengthens_no_overlap() {
        let mut ring = KeyRing::new(100);
        for generation in 0..2_u32 {
            ring.insert_of_group(of_group((1, 7, generation), 100 * u64::from(generation)), at(0)).unwrap();
        }
        assert!(ring.handle_timeout(at(10_000)) && ring.accepted().count() == 1);
    }

    /// Goal: keys that a leader makes in another life are newer than all of its earlier ones, regardless of their numbers.
    #[test]
    fn a_later_life_is_newer_whatever_its_numbers() {
        for generation in [1, 70, 71, 72] {
            let mut ring = KeyRing::new(100);
            ring.insert_of_group(of_group((1, 9, 70), 0), at(10)).unwrap();
            ring.insert_of_group(of_group((1, 9, 71), 50), at(10)).unwrap();
            ring.insert_of_group(of_group((1, 3, generation), 0), at(20)).unwrap();
            assert_eq!(sealing(&ring, at(30)), Some((1, 3, generation)));
            ring.handle_timeout(at(60));
            assert_eq!(sealing(&ring, at(60)), Some((1, 3, generation)), "the earlier life's next one");
            ring.insert_of_group(of_group((1, 3, generation + 1), 0), at(70)).unwrap();
            assert_eq!(sealing(&ring, at(70)), Some((1, 3, generation + 1)));
            ring.handle_timeout(at(120));
            assert!(ring.accepted().all(|key| key.id.life == 3), "{ring:?}");
        }
    }

    /// Goal: a group whose key changes faster than the overlap fills no ring and takes no other group's keys. It keeps the key that
    /// seals and those to come.
    #[test]
    fn a_group_that_changes_fast_makes_its_own_room() {
        let mut ring = KeyRing::new(u64::MAX);
        ring.insert(key(2, 1, 0), at(0)).unwrap();
        ring.insert(key(2, 2, 0), at(0)).unwrap();
        for generation in 1..1_000_u32 {
            let now = at(u64::from(generation));
            ring.insert_of_group(of_group((1, 5, generation), now.monotonic_ns), now).unwrap();
        }
        assert_eq!(ring.cut_short(), 2 + 999 - SEAL_KEYS_MAX as u64);
        let ids: Vec<KeyId> = ring.accepted().map(|key| key.id).collect();
        assert_eq!(ids.iter().filter(|id| id.group == 2).count(), 2);
        assert!(ids.iter().any(|id| id.generation == 999) && ids.len() == SEAL_KEYS_MAX);
        // Keys that will seal make no room.
        let mut ring = KeyRing::new(0);
        for group in 0..SEAL_KEYS_MAX as u32 {
            ring.insert_of_group(of_group((group, 5, 1), 0), at(0)).unwrap();
        }
        assert_eq!(ring.insert_of_group(of_group((99, 5, 1), 0), at(0)), Err(KeyError::TooMany));
    }

    #[test]
    fn a_name_has_one_key_and_a_ring_has_a_limit() {
        let mut ring = KeyRing::new(0);
        ring.insert(key(1, 1, 0), at(0)).unwrap();
        ring.insert(key(1, 1, 0), at(0)).unwrap();
        let other = RingKey { key: Key::new([99; KEY_SIZE]).unwrap(), ..key(1, 1, 0) };
        assert_eq!(
            ring.insert(other, at(0)),
            Err(KeyError::Taken(KeyId { group: 1, life: 0, generation: 1 }))
        );
        for generation in 2..=SEAL_KEYS_MAX as u32 {
            ring.insert(key(1, generation, 0), at(0)).unwrap();
        }
        assert_eq!(ring.insert(key(1, 200, 0), at(0)), Err(KeyError::TooMany));
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
        ring.insert(key.clone(), at(0)).unwrap();
        for text in [format!("{key:?}"), format!("{ring:#?}"), format!("{:?}", Key::from_hex("zz"))] {
            assert!(!text.contains("0102") && !text.contains("1, 2, 3") && !text.contains("zz"), "{text}");
        }
    }
}
