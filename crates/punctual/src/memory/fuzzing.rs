//! A bus of shared memory with one stranger on it, whose memory a fuzzer writes.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::memory::Mapping;
use punctual_machine::process::ProcessIdentity;
use punctual_machine::ring::RingWriter;
use punctual_proto::{NodeId, Port, Target};

use super::segment::{BELL_SIZE, Owner, SEGMENT_SIZE, Segment, State};
use super::stream::ring_file::{ENTERS, RingFile, RingIdentity, target_word};
use super::venue::{Found, Scope, Sight, Venue};
use super::{Entered, SharedOptions, WhenFull, join, new_life, system};
use crate::engine::OpenError;

/// Size of the stranger's ring, bytes: the smallest there is.
const CAPACITY: usize = 4096;

/// The id of its ring.
const RING: u64 = 9;

/// A peer that does what the fuzzer says.
#[derive(Debug)]
pub(crate) struct Stranger {
    memory: Arc<Mapping>,
    bell: Arc<Mapping>,
    ring: Arc<Mapping>,
    is_there: Mutex<bool>,
}

impl Stranger {
    /// One that has done nothing wrong so far: ready, never dead, with a publication for everybody.
    pub(crate) fn new(node: NodeId, life: u64) -> Result<(Arc<Self>, RingWriter), OpenError> {
        let process = ProcessIdentity { pid: 1, namespace: 1 };
        let owner = Owner { node, life, process, held_back: false };
        let [memory, bell, ring] = [SEGMENT_SIZE, BELL_SIZE, RingFile::size(CAPACITY)]
            .map(|size| Mapping::anonymous(size).map(Arc::new).map_err(system));
        let (memory, bell, ring) = (memory?, bell?, ring?);
        let segment = Segment::fill(&memory, &bell, owner, "stranger");
        segment.set_state(State::Ready);
        let target = Target::EVERYONE;
        let about = RingIdentity {
            id: RING,
            node,
            life,
            source: Port::from(1),
            target,
            capacity: CAPACITY,
            began: u64::MAX >> 1,
            entered: ENTERS,
            sealed: false,
        };
        let file = RingFile::fill(&ring, about);
        let entry = segment.free_stream().expect("the first");
        entry[1].set(target_word(target));
        entry[0].publish(RING);
        let writer = RingWriter::new(file.ring);
        Ok((Arc::new(Self { memory, bell, ring, is_there: Mutex::default() }), writer))
    }

    /// All of its memory that others see, word by word: its tables, and its ring.
    pub(crate) fn words(&self) -> &[Counter] {
        self.memory.objects(0, SEGMENT_SIZE / 8).expect("the whole mapping")
    }

    pub(crate) fn ring_words(&self) -> &[Counter] {
        self.ring.objects(0, RingFile::size(CAPACITY) / 8).expect("the whole mapping")
    }

    pub(crate) fn bell_words(&self) -> &[Counter] {
        self.bell.objects(0, BELL_SIZE / 8).expect("the whole mapping")
    }

    /// The next look around finds it.
    pub(crate) fn enter(&self) {
        *self.is_there.lock().expect("nobody panicked") = true;
    }
}

/// Where the stranger announces itself at the node.
#[derive(Debug)]
pub(crate) struct Door(Segment);

impl Door {
    pub(crate) fn visit(&self) {
        self.0.doorbell().announce_visit(true);
    }
}

/// Enters beside it.
pub(crate) fn open(
    stranger: &Arc<Stranger>,
    node: NodeId,
    held_back: bool,
) -> Result<(Entered, Door), OpenError> {
    let when_full = if held_back { WhenFull::HoldBack } else { WhenFull::Overrun };
    let options = SharedOptions { when_full, ring_size: CAPACITY, ..SharedOptions::new("fuzz") };
    let segment = Segment::private(new_life(node, &options), "node").map_err(system)?;
    let door = Door(segment.clone());
    let entered = join(segment, Box::new(Alley(Arc::clone(stranger))), options.ring_size)?;
    Ok((entered, door))
}

/// Where the two meet.
#[derive(Debug)]
struct Alley(Arc<Stranger>);

impl Venue for Alley {
    fn look(&self, _scope: Scope, is_known: &dyn Fn(NodeId, u64) -> bool) -> Sight {
        if !*self.0.is_there.lock().expect("nobody panicked") {
            return Sight { present: Some(Vec::new()), ..Sight::default() };
        }
        let segment = Segment::read(&self.0.memory, &self.0.bell);
        let present = segment.iter().map(|segment| segment.owner.life).collect();
        let segment = segment.filter(|segment| !is_known(segment.owner.node, segment.owner.life));
        let found = segment.map(|segment| Found { segment, has_died: false }).into_iter().collect();
        Sight { found, present: Some(present), ..Sight::default() }
    }

    fn has_died(&self, _owner: &Owner) -> bool {
        false
    }

    fn introduce(&self, _to: &Owner) -> bool {
        true
    }

    fn report(&self, _to: &Owner, _dead: &Owner) -> bool {
        true
    }

    fn wake(&self, _owner: &Owner) {}

    fn forget(&self, _owner: &Owner, _died: bool) {
        *self.0.is_there.lock().expect("nobody panicked") = false;
    }

    fn create_stream(&self, _id: u64, size: usize) -> Result<Arc<Mapping>, SystemError> {
        Mapping::anonymous(size).map(Arc::new)
    }

    fn open_stream(&self, _owner: &Owner, id: u64) -> Result<Option<Arc<Mapping>>, SystemError> {
        Ok((id == RING).then(|| Arc::clone(&self.0.ring)))
    }

    fn remove_stream(&self, _id: u64) {}

    fn leave(&self) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
