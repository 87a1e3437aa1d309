//! Origins of the sealed frames that were taken, so that nothing is taken twice.

use alloc::vec::Vec;

use super::window::{NotNew, Window};
use crate::NodeId;
use crate::frame::Header;
use crate::limits::SEAL_SENDERS_MAX;

/// Where sealed frames come from. Its times never fall.
pub(super) trait Origin {
    /// Name that tells it from others.
    type Name: PartialEq;

    /// One of which nothing was taken. Frames that were sealed before `floor` may have been taken, and forgotten.
    fn new(name: Self::Name, floor: u64) -> Self;

    fn name(&self) -> Self::Name;

    /// When the newest of its frames that were taken had been sealed.
    fn newest(&self) -> u64;
}

/// The origins that were heard, as many as there is room for.
#[derive(Debug)]
pub(super) struct Origins<O> {
    known: Vec<O>,
    /// Where the last frame's was found.
    last: usize,
    /// Frames of unknown origins that were sealed before this are not taken. It is raised when an origin is forgotten, so that nothing
    /// of that origin comes again.
    newcomer_floor: u64,
}

impl<O: Origin> Origins<O> {
    pub(super) fn new(floor: u64) -> Self {
        Self { known: Vec::with_capacity(SEAL_SENDERS_MAX), last: 0, newcomer_floor: floor }
    }

    pub(super) fn known(&self) -> impl Iterator<Item = &O> {
        self.known.iter()
    }

    /// Adds these while there is room; each name must be new.
    pub(super) fn learn(&mut self, origins: impl Iterator<Item = O>) {
        let room = SEAL_SENDERS_MAX - self.known.len();
        self.known.extend(origins.take(room));
    }

    /// The origin of a frame that was sealed at `time`. `latest` is asked for the latest time that can be, only when an origin
    /// is heard for the first time. `None` if the frame may be a recording, or is of the future.
    #[inline]
    pub(super) fn of(&mut self, name: &O::Name, time: u64, latest: impl FnOnce() -> u64) -> Option<&mut O>
    where
        O::Name: Clone,
    {
        let is_it = |origin: &O| origin.name() == *name;
        if !self.known.get(self.last).is_some_and(is_it) {
            self.last = match self.known.iter().position(is_it) {
                Some(index) => index,
                None => self.welcome(name.clone(), time, latest())?,
            };
        }
        self.known.get_mut(self.last)
    }

    #[cold]
    fn welcome(&mut self, name: O::Name, time: u64, latest: u64) -> Option<usize> {
        if time > latest || time < self.newcomer_floor {
            return None;
        }
        if self.known.len() == SEAL_SENDERS_MAX {
            let ages = self.known.iter().map(O::newest).enumerate();
            let (oldest, newest) = ages.min_by_key(|&(_, newest)| newest)?;
            if time <= newest {
                return None;
            }
            self.known.swap_remove(oldest);
            self.newcomer_floor = self.newcomer_floor.max(newest + 1);
        }
        self.known.push(O::new(name, self.newcomer_floor));
        Some(self.known.len() - 1)
    }
}

/// One life of a node, of whose frames some are lost and some come late.
#[derive(Debug)]
pub(super) struct Sender {
    node: NodeId,
    incarnation: u16,
    /// Its frames to this node alone, and to everybody: each a stream with numbers of its own.
    unicast: Window,
    broadcast: Window,
    /// Its last announcement of each kind: these have no numbers, and each is newer than the one before. One to this node may come
    /// by another way than one to everybody, and overtake it.
    announced_here: Option<u64>,
    announced: Option<u64>,
    floor: u64,
}

impl Origin for Sender {
    type Name = (NodeId, u16);

    fn new((node, incarnation): Self::Name, floor: u64) -> Self {
        let window = Window::beginning_after(floor);
        let (unicast, broadcast) = (window.clone(), window);
        Self { node, incarnation, unicast, broadcast, announced_here: None, announced: None, floor }
    }

    #[inline]
    fn name(&self) -> Self::Name {
        (self.node, self.incarnation)
    }

    fn newest(&self) -> u64 {
        let announced = self.announced_here.max(self.announced).unwrap_or(0);
        self.unicast.newest_time().max(self.broadcast.newest_time()).max(announced)
    }
}

impl Sender {
    #[inline]
    pub(super) fn take(&mut self, header: &Header, time: u64) -> Result<(), NotNew> {
        if !header.kind.is_numbered() {
            return self.take_announcement(header, time);
        }
        let window = if header.target.node.is_some() { &mut self.unicast } else { &mut self.broadcast };
        window.take(header.sequence, time)
    }

    fn take_announcement(&mut self, header: &Header, time: u64) -> Result<(), NotNew> {
        let announced =
            if header.target.node.is_some() { &mut self.announced_here } else { &mut self.announced };
        if announced.map_or(time < self.floor, |last| time <= last) {
            return Err(NotNew::Taken);
        }
        *announced = Some(time);
        Ok(())
    }
}

/// The ring of a publication: its messages come in order, and each has a number that none of it had before.
#[derive(Clone, Copy, Debug)]
pub struct TakenStream {
    name: StreamName,
    /// The least number that can come.
    next: u64,
    newest: u64,
}

/// Name that tells one publication's ring from all others: the life of its node, and its own id, both drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamName {
    /// The node's.
    pub life: u64,
    /// The ring's.
    pub id: u64,
}

impl Origin for TakenStream {
    type Name = StreamName;

    fn new(name: Self::Name, floor: u64) -> Self {
        Self { name, next: 0, newest: floor }
    }

    #[inline]
    fn name(&self) -> Self::Name {
        self.name
    }

    fn newest(&self) -> u64 {
        self.newest
    }
}

impl TakenStream {
    /// The name of the ring.
    pub fn stream_name(&self) -> StreamName {
        self.name
    }

    pub(super) fn was_taken(&self) -> bool {
        self.next > 0
    }

    #[inline]
    pub(super) fn is_new(&self, number: u64, time: u64) -> bool {
        number >= self.next && time >= self.newest
    }

    #[inline]
    pub(super) fn take(&mut self, number: u64, time: u64) {
        (self.next, self.newest) = (number.saturating_add(1), time);
    }
}
