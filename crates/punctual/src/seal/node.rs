//! Seals and opens with the user's keys, for one node and each of its publications.

use std::sync::Arc;

use punctual_machine::clock::{realtime_coarse_ns, realtime_ns};
use punctual_machine::counter::Counter;
use punctual_proto::Header;
use punctual_proto::seal::{
    KeyRing, Opened, Opener, Refusal, RingKey, Sealer, StreamName, TIME_UNIT_NS, TakenStream,
};

use super::{Keys, moment};
use crate::engine::SendError;

/// When a node last sealed a frame, in units of seals, in cache lines of its own: another node of the process may have its own
/// next to it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LastSealed(Counter);

/// State that a node needs to seal and to open: it has one clock, which never goes back.
#[derive(Clone, Debug)]
pub(crate) struct Seals {
    keys: Keys,
    /// Name of the bus for everybody on it: a frame sealed for another bus is not genuine here.
    bus: Arc<str>,
    last_sealed: Arc<LastSealed>,
    /// The medium looks behind the seals itself, because it learns from frames.
    pub(crate) opened_by_medium: bool,
}

impl Seals {
    pub(crate) fn new(keys: &Keys, bus: &str, opened_by_medium: bool) -> Self {
        Self { keys: keys.clone(), bus: bus.into(), last_sealed: Arc::default(), opened_by_medium }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn sealer(&self) -> NodeSealer {
        self.sealer_after(Arc::clone(&self.last_sealed))
    }

    /// For a publication: its messages have numbers and times of their own, so it needs no lock of the node's.
    pub(crate) fn sealer_of_stream(&self) -> NodeSealer {
        self.sealer_after(Arc::default())
    }

    fn sealer_after(&self, last_sealed: Arc<LastSealed>) -> NodeSealer {
        let mut sealer = NodeSealer {
            keys: self.keys.clone(),
            bus: Arc::clone(&self.bus),
            version_seen: u64::MAX,
            sealer: None,
            renew_at_ns: 0,
            elsewhere: None,
            is_elsewhere: false,
            now_ns: 0,
            last_sealed,
        };
        // Its answer is left for the first message to give again.
        let _no_key_yet = sealer.prepare(None);
        sealer
    }

    pub(crate) fn opener(&self) -> NodeOpener {
        NodeOpener::new(&self.keys, &self.bus)
    }
}

/// Seals what a node sends, or one of its publications. A node's work under its lock for senders, because they have one clock.
#[derive(Debug)]
pub(crate) struct NodeSealer {
    keys: Keys,
    bus: Arc<str>,
    version_seen: u64,
    sealer: Option<KeyInUse>,
    /// When another key's time comes, unless the ring changes.
    renew_at_ns: u64,
    /// For what is sealed in a group of its own, whichever the node's is.
    elsewhere: Option<KeyInUse>,
    /// The message that was prepared is such a one.
    is_elsewhere: bool,
    now_ns: u64,
    last_sealed: Arc<LastSealed>,
}

impl NodeSealer {
    /// Before a frame is sealed, in this group or in the node's: looks at the time, and for a newer key.
    #[inline]
    pub(crate) fn prepare(&mut self, group: Option<u32>) -> Result<(), SendError> {
        self.now_ns = realtime_coarse_ns();
        self.is_elsewhere = group.is_some();
        if self.keys.version() != self.version_seen || self.now_ns >= self.renew_at_ns {
            self.renew();
        }
        if let Some(group) = group {
            return self.prepare_elsewhere(group);
        }
        if self.sealer.is_some() { Ok(()) } else { Err(SendError::NoKey) }
    }

    #[cold]
    fn prepare_elsewhere(&mut self, group: u32) -> Result<(), SendError> {
        let ring = self.keys.ring();
        let key = ring.sealing_in(group, moment(self.now_ns)).0;
        follow(&mut self.elsewhere, key, &ring, &self.bus);
        if self.elsewhere.is_some() { Ok(()) } else { Err(SendError::NoKey) }
    }

    #[cold]
    fn renew(&mut self) {
        self.version_seen = self.keys.version();
        let ring = self.keys.ring();
        let (key, renew_at_ns) = ring.sealing(moment(self.now_ns));
        self.renew_at_ns = renew_at_ns;
        follow(&mut self.sealer, key, &ring, &self.bus);
        // Nothing that follows from a key outlives it.
        self.elsewhere.take_if(|in_use| !ring.has_serial(in_use.serial));
    }

    /// Seals a message that is complete but for its seal, which takes its last bytes.
    ///
    /// # Panics
    /// If it was not prepared.
    #[inline]
    pub(crate) fn seal(&mut self, frame: &mut [u8]) {
        let time = (self.now_ns / TIME_UNIT_NS).max(self.last_sealed.0.get());
        self.seal_at(frame, time);
    }

    /// The same for an announcement: it has no number, and is known by being newer than all that was sealed before.
    pub(crate) fn seal_announcement(&mut self, frame: &mut [u8]) {
        let time = (realtime_ns() / TIME_UNIT_NS).max(self.last_sealed.0.get() + 1);
        self.seal_at(frame, time);
    }

    #[inline]
    fn seal_at(&mut self, frame: &mut [u8], time: u64) {
        self.last_sealed.0.set(time);
        let sealer = if self.is_elsewhere { &mut self.elsewhere } else { &mut self.sealer };
        sealer.as_mut().expect("prepared before").sealer.seal(frame, time);
    }
}

/// The sealer made from a key, and which of its ring's keys that is: the key's name alone can have passed to another secret.
#[derive(Debug)]
struct KeyInUse {
    serial: u64,
    sealer: Sealer,
}

/// Makes the ring's key ready, unless it is the one in use.
fn follow(in_use: &mut Option<KeyInUse>, key: Option<&RingKey>, ring: &KeyRing, bus: &str) {
    let serial = key.and_then(|key| ring.serial(key.id));
    if serial != in_use.as_ref().map(|in_use| in_use.serial) {
        *in_use = key.zip(serial).map(|(key, serial)| KeyInUse { serial, sealer: Sealer::new(key, bus) });
    }
}

/// Opens what a node receives.
#[derive(Debug)]
pub(crate) struct NodeOpener {
    keys: Keys,
    version_seen: u64,
    opener: Opener,
}

impl NodeOpener {
    fn new(keys: &Keys, bus: &str) -> Self {
        let version_seen = keys.version();
        let opener = Opener::new(&keys.ring(), bus, realtime_coarse_ns(), keys.allowance_ns);
        Self { keys: keys.clone(), version_seen, opener }
    }

    /// In which group a frame, from header to seal in memory of this process, was sealed, if it is genuine and new.
    #[inline]
    pub(crate) fn open(&mut self, header: &Header, frame: &[u8]) -> Result<u32, Refusal> {
        self.renew_if_changed();
        self.opener.open(header, frame, realtime_ns)
    }

    /// The same of a message of a publication, with all that its seal covers.
    #[inline]
    pub(crate) fn open_numbered(
        &mut self,
        stream: StreamName,
        number: u64,
        record: &[u8],
    ) -> Result<Opened, Refusal> {
        self.renew_if_changed();
        self.opener.open_numbered(stream, number, record, realtime_ns)
    }

    #[inline]
    pub(crate) fn take_numbered(&mut self, opened: &Opened) {
        self.opener.take_numbered(opened);
    }

    /// The rings of which it has taken something, each up to a number.
    pub(crate) fn taken(&self) -> impl Iterator<Item = TakenStream> {
        self.opener.taken()
    }

    /// Takes nothing of these rings that another opener had taken.
    pub(crate) fn go_on_after(&mut self, taken: Vec<TakenStream>) {
        self.opener.go_on_after(taken);
    }

    #[inline]
    fn renew_if_changed(&mut self) {
        if self.keys.version() != self.version_seen {
            self.renew();
        }
    }

    #[cold]
    fn renew(&mut self) {
        self.version_seen = self.keys.version();
        self.opener.renew(&self.keys.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{Key, KeyId};
    use punctual_proto::seal::SEAL_SIZE;

    /// Goal: a key that is replaced under its own name seals and opens from then on, at home and elsewhere, and the one before does
    /// neither. Method: nothing is sealed or opened between the removal and what comes in its place.
    #[test]
    fn a_key_that_is_replaced_under_its_name_is_not_used_any_more() {
        let ids = [1, 2].map(|group| KeyId { group, life: 0, generation: 1 });
        let stream = StreamName { life: 1, id: 1 };
        let keys = Keys::new();
        let fill = |keys: &Keys, secret: u8| {
            for id in ids {
                keys.insert(RingKey { id, key: Key::new([secret; 16]).unwrap(), from_ns: 0 }).unwrap();
            }
        };
        fill(&keys, 1);
        let before = keys.copied();
        let ours = Seals::new(&keys, "bus", false);
        let (mut sealer, mut opener) = (ours.sealer(), ours.opener());
        let mut number = 0;
        let mut say = |sealer: &mut NodeSealer, opener: &mut NodeOpener, group| {
            let mut record = [5; 64 + SEAL_SIZE];
            number += 1;
            sealer.prepare(group).unwrap();
            sealer.seal(&mut record);
            opener.open_numbered(stream, number, &record).map(|opened| opened.group)
        };
        for group in [None, Some(2)] {
            assert_eq!(say(&mut sealer, &mut opener, group), Ok(group.unwrap_or(1)));
        }
        assert!(sealer.elsewhere.is_some());
        keys.remove_group(2);
        sealer.prepare(None).unwrap();
        assert!(sealer.elsewhere.is_none(), "nothing that follows from a key outlives it");
        keys.remove(ids[0]);
        fill(&keys, 2);
        let others = Seals::new(&before, "bus", false);
        let (mut old_sealer, mut old_opener) = (others.sealer(), others.opener());
        for group in [None, Some(2)] {
            assert_eq!(say(&mut sealer, &mut old_opener, group), Err(Refusal::BadTag));
            assert_eq!(say(&mut old_sealer, &mut opener, group), Err(Refusal::BadTag));
            assert_eq!(say(&mut sealer, &mut opener, group), Ok(group.unwrap_or(1)));
        }
    }
}
