//! Seals of a publication's messages: the data that they cover, and their making and opening in memory of our own.

use punctual_machine::ring::RingFrame;
use punctual_proto::seal::{Opened, Refusal, SEAL_SIZE, StreamName, TakenStream};
use punctual_proto::sim::Rng;
use punctual_proto::{NodeId, Port};

use super::ring_file::RingIdentity;
use crate::engine::faulty::Faults;
use crate::seal::{NodeOpener, NodeSealer};

/// Data that a seal covers before the frame: the ring's identity, and the place in it.
///
/// | word | content |
/// |---|---|
/// | 0, 1, 2 | node, life, ring |
/// | 3 | source port, target port (65535 = all) × 2^16, flags of the commit word × 2^32 |
/// | 4 | target node, 0 = all |
/// | 5 | capacity |
/// | 6 | when the ring was made |
/// | 7 | number of the message |
const HEAD_WORDS: usize = 8;
const HEAD_SIZE: usize = 8 * HEAD_WORDS;

fn write_head(record: &mut [u8], about: &RingIdentity, number: u64, flags: u8) {
    let port = |port: Option<Port>| u64::from(port.map_or(u16::MAX, Port::get));
    let head: [u64; HEAD_WORDS] = [
        about.node.get(),
        about.life,
        about.id,
        u64::from(about.source.get()) | port(about.target.port) << 16 | u64::from(flags) << 32,
        about.target.node.map_or(0, NodeId::get),
        about.capacity as u64,
        about.began,
        number,
    ];
    for (bytes, word) in record.as_chunks_mut::<8>().0.iter_mut().zip(head) {
        *bytes = word.to_le_bytes();
    }
}

/// A frame that is made in memory of our own: within reach of others it is sealed already.
#[derive(Debug)]
pub(super) struct Sealing {
    pub(super) sealer: NodeSealer,
    /// Head, frame and seal.
    record: Vec<u8>,
    frame_size: usize,
}

impl Sealing {
    pub(super) fn new(sealer: NodeSealer, frame_size_max: usize) -> Self {
        Self { sealer, record: vec![0; HEAD_SIZE + frame_size_max], frame_size: 0 }
    }

    /// Room for a frame of this size, its seal included; the part before the seal is to be written.
    #[inline]
    pub(super) fn begin(&mut self, size: usize) -> &mut [u8] {
        self.frame_size = size;
        self.frame()
    }

    /// The same room again.
    #[inline]
    pub(super) fn frame(&mut self) -> &mut [u8] {
        &mut self.record[HEAD_SIZE..HEAD_SIZE + self.frame_size - SEAL_SIZE]
    }

    /// Seals the frame that was written last.
    #[inline]
    pub(super) fn seal(&mut self, about: &RingIdentity, number: u64, flags: u8) -> &[u8] {
        write_head(&mut self.record, about, number, flags);
        let record = &mut self.record[..HEAD_SIZE + self.frame_size];
        self.sealer.seal(record);
        &record[HEAD_SIZE..]
    }
}

/// Looks behind the seals of what one subscription reads.
#[derive(Debug)]
pub(crate) struct Opening {
    opener: NodeOpener,
    record: Vec<u8>,
    /// The frame that was opened last, and not taken yet.
    opened: Option<Opened>,
    flips: Option<Box<Flips>>,
}

/// Bits that are turned over on purpose, below the seal: a reader knows of a message only what its memory says.
#[derive(Debug)]
struct Flips {
    permille: u32,
    rng: Rng,
    /// The message that was drawn for last, and which of its bits: it may be looked at again.
    drawn: Option<(StreamName, u64, Option<u64>)>,
}

impl Flips {
    fn flip(&mut self, stream: StreamName, number: u64, frame: &mut [u8]) {
        let bit = match self.drawn {
            Some((last, at, bit)) if (last, at) == (stream, number) => bit,
            _ => self.rng.happens(self.permille).then(|| self.rng.below(8 * frame.len() as u64)),
        };
        self.drawn = Some((stream, number, bit));
        if let Some(bit) = bit {
            frame[bit as usize / 8] ^= 1 << (bit % 8);
        }
    }
}

/// State by which a subscription decides what to believe.
#[derive(Debug)]
pub(super) struct Belief {
    /// On a sealed bus.
    pub(super) opening: Option<Box<Opening>>,
    /// A look ended at something that is no message: there may be one behind it.
    pub(super) was_delayed: bool,
    /// A look ended at a message that its reader does not want yet.
    pub(super) was_refused: bool,
}

impl Opening {
    pub(crate) fn new(opener: NodeOpener) -> Self {
        Self { opener, record: Vec::new(), opened: None, flips: None }
    }

    /// The rings of which it has taken something, each up to a number.
    pub(super) fn taken(&self) -> impl Iterator<Item = TakenStream> {
        self.opener.taken()
    }

    /// Takes nothing of these rings that was taken.
    pub(super) fn go_on_after(&mut self, taken: Vec<TakenStream>) {
        self.opener.go_on_after(taken);
    }

    /// From now on bits turn over as these faults say.
    pub(super) fn corrupt_by(&mut self, faults: &Faults) {
        let (permille, rng) = (faults.corruption_permille, Rng::new(faults.seed));
        self.flips = (permille > 0).then(|| Box::new(Flips { permille, rng, drawn: None }));
    }

    /// Makes room for the frames of a ring of which they are at most so large. Pages that no frame needs are not touched.
    pub(super) fn make_room(&mut self, frame_size_max: usize) {
        if self.record.len() < HEAD_SIZE + frame_size_max {
            self.record = vec![0; HEAD_SIZE + frame_size_max];
        }
    }

    /// The user has what was opened last.
    #[inline]
    pub(super) fn take(&mut self) {
        if let Some(opened) = self.opened.take() {
            self.opener.take_numbered(&opened);
        }
    }

    /// Copies the frame out of its writer's reach, and looks behind its seal there. Returns it without its seal, and the group in
    /// which it was sealed.
    ///
    /// # Errors
    /// Why it is not believed; nothing, if its writer wrote over it meanwhile.
    #[inline]
    pub(super) fn open(
        &mut self,
        about: &RingIdentity,
        frame: &RingFrame<'_>,
    ) -> Result<(&[u8], u32), Option<Refusal>> {
        let bytes = frame.bytes();
        let record = &mut self.record[..HEAD_SIZE + bytes.len()];
        bytes.copy_to(&mut record[HEAD_SIZE..]);
        if !frame.is_intact() {
            return Err(None);
        }
        let number = frame.sequence();
        write_head(record, about, number, frame.flags());
        let stream = StreamName { life: about.life, id: about.id };
        if let Some(flips) = &mut self.flips {
            flips.flip(stream, number, &mut record[HEAD_SIZE..]);
        }
        let unsealed = bytes.len().checked_sub(SEAL_SIZE).ok_or(Some(Refusal::Unsealed))?;
        let opened = self.opener.open_numbered(stream, number, record).map_err(Some)?;
        self.opened = Some(opened);
        Ok((&record[HEAD_SIZE..HEAD_SIZE + unsealed], opened.group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_proto::Target;

    /// Goal: two messages have one head only if they are the same message of the same ring.
    #[test]
    fn every_part_of_a_place_stands_in_its_head() {
        let (a, b) = (NodeId::named("a"), NodeId::named("b"));
        let target = Target { node: Some(b), port: Some(Port::from(4)) };
        let ring = RingIdentity {
            entered: 7,
            id: 1,
            node: a,
            life: 2,
            source: Port::from(3),
            target,
            capacity: 4096,
            began: 5,
            sealed: true,
        };
        let others = [
            RingIdentity { id: 9, ..ring },
            RingIdentity { node: b, ..ring },
            RingIdentity { life: 9, ..ring },
            RingIdentity { source: Port::from(9), ..ring },
            RingIdentity { target: Target { node: None, ..target }, ..ring },
            RingIdentity { target: Target { port: None, ..target }, ..ring },
            RingIdentity { capacity: 8192, ..ring },
            RingIdentity { began: 9, ..ring },
        ];
        let head = |about: &RingIdentity, number, flags| {
            let mut record = [0xFF; HEAD_SIZE];
            write_head(&mut record, about, number, flags);
            record
        };
        let mut heads = vec![head(&ring, 7, 0), head(&ring, 8, 0), head(&ring, 7, 1)];
        heads.extend(others.iter().map(|other| head(other, 7, 0)));
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), 3 + others.len());
    }
}
