//! A bus of shared memory with one stranger on it, whose memory a fuzzer writes.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::event_fd::EventFd;
use punctual_machine::memory::Mapping;
use punctual_machine::process::ProcessIdentity;
use punctual_machine::ring::{RingMemory, RingWriter};
use punctual_proto::NodeId;

use super::segment::{BELL_SIZE, CONTROL_AT, Owner, RING_AT, Segment, State};
use super::venue::{Found, Scope, Sight, Venue};
use super::{OpenError, SharedOptions, WhenFull, assemble, new_life, system};
use crate::engine::{Bell, Engine};

/// Size of the stranger's ring, bytes: the smallest there is.
const CAPACITY: usize = 4096;

/// A peer that does what the fuzzer says.
#[derive(Debug)]
pub(crate) struct Stranger {
    memory: Arc<Mapping>,
    bell: Arc<Mapping>,
    is_there: Mutex<bool>,
}

impl Stranger {
    /// One that has done nothing wrong so far: ready, and never dead.
    pub(crate) fn new(node: NodeId, life: u64) -> Result<Arc<Self>, OpenError> {
        let process = ProcessIdentity { pid: 1, namespace: 1 };
        let owner = Owner { node, life, process, held_back: false };
        let memory = Mapping::anonymous(RING_AT + CAPACITY).map_err(system)?;
        let bell = Mapping::anonymous(BELL_SIZE).map_err(system)?;
        let (memory, bell) = (Arc::new(memory), Arc::new(bell));
        Segment::fill(&memory, &bell, owner, "stranger", CAPACITY).set_state(State::Ready);
        Ok(Arc::new(Self { memory, bell, is_there: Mutex::default() }))
    }

    /// Where its honest frames go.
    pub(crate) fn writer(&self) -> RingWriter {
        let memory = RingMemory::in_mapping(Arc::clone(&self.memory), CONTROL_AT, RING_AT, CAPACITY);
        RingWriter::new(memory.expect("made for this layout"))
    }

    /// All of its memory that others see, word by word.
    pub(crate) fn words(&self) -> &[Counter] {
        self.memory.objects(0, (RING_AT + CAPACITY) / 8).expect("the whole mapping")
    }

    pub(crate) fn bell_words(&self) -> &[Counter] {
        self.bell.objects(0, BELL_SIZE / 8).expect("the whole mapping")
    }

    /// The next look around finds it.
    pub(crate) fn enter(&self) {
        *self.is_there.lock().expect("nobody panicked") = true;
    }
}

/// Opens a node beside it.
pub(crate) fn open(
    stranger: &Arc<Stranger>,
    node: NodeId,
    held_back: bool,
) -> Result<(Engine, Arc<dyn Bell>, u16), OpenError> {
    let when_full = if held_back { WhenFull::HoldBack } else { WhenFull::Overrun };
    let options = SharedOptions { when_full, ring_size: CAPACITY, ..SharedOptions::new("fuzz") };
    let owner = new_life(node, &options);
    let event = Arc::new(EventFd::new().map_err(system)?);
    let segment = Segment::private(owner, "node", options.ring_size).map_err(system)?;
    let (engine, joined) = assemble(segment, event, Box::new(Alley(Arc::clone(stranger))))?;
    let bell = engine.receive.bell();
    Ok((engine, bell, joined.incarnation))
}

/// Where the two meet.
#[derive(Debug)]
struct Alley(Arc<Stranger>);

impl Venue for Alley {
    fn look(&self, _scope: Scope, is_known: &dyn Fn(NodeId, u64) -> bool) -> Sight {
        if !*self.0.is_there.lock().expect("nobody panicked") {
            return Sight { present: Some(Vec::new()), ..Sight::default() };
        }
        let segment = Segment::read(&self.0.memory, || Some(Arc::clone(&self.0.bell)));
        let present = segment.iter().map(|segment| segment.owner.life).collect();
        let segment = segment.filter(|segment| !is_known(segment.owner.node, segment.owner.life));
        let found =
            segment.map(|segment| Found { segment, event: None, has_died: false }).into_iter().collect();
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

    fn open_stream(&self, _owner: &Owner, _id: u64) -> Option<Arc<Mapping>> {
        None
    }

    fn remove_stream(&self, _id: u64) {}

    fn leave(&self) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
