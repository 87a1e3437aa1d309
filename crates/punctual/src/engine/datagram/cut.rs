//! Cuts what the kernel handed over as one datagram into the frames that were sent.
//!
//! A run of equal-sized datagrams may come as one (`UDP_GRO`); only its last may be shorter. The kernel would say their size, in
//! control data, for 90 ns of a receive that takes 340. The first frame's header says it too.

use punctual_proto::Header;
use punctual_proto::frame::claimed_size;
use punctual_proto::limits::CHECK_SIZE;

use crate::engine::wire::is_whole;

/// Progress of cutting a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cut {
    /// Where the next frame begins; 0 before the first.
    at: usize,
    /// Size of each with its check value.
    size: usize,
    /// Frames so far.
    frames: u64,
}

/// A frame of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    /// Frames of the datagram, if this is the last.
    pub(super) ended: Option<u64>,
}

impl Cut {
    /// The next frame. After the last one the next datagram is begun.
    #[inline]
    pub(super) fn next<'a>(&mut self, datagram: &'a [u8]) -> Piece<'a> {
        if self.at == 0 {
            self.size = first_size(datagram);
        }
        let rest = datagram.get(self.at..).unwrap_or_default();
        if rest.len() <= self.size {
            let frames = self.frames + 1;
            *self = Self::default();
            return Piece { bytes: rest, ended: Some(frames) };
        }
        self.at += self.size;
        self.frames += 1;
        Piece { bytes: &rest[..self.size], ended: None }
    }
}

/// Size of a datagram's first frame with its check value; of all of it where it is no run.
#[inline]
fn first_size(datagram: &[u8]) -> usize {
    // Nearly always it is one frame; others find out whether it is a good one.
    let is_alone = |head| claimed_size(head) + CHECK_SIZE == datagram.len();
    if datagram.first_chunk().is_some_and(is_alone) { datagram.len() } else { run_size(datagram) }
}

#[cold]
fn run_size(datagram: &[u8]) -> usize {
    let size = header_at(datagram, 0).map_or(usize::MAX, |header| header.frame_size() + CHECK_SIZE);
    if size >= datagram.len() || is_run(datagram, size) { size } else { datagram.len() }
}

fn header_at(datagram: &[u8], at: usize) -> Option<Header> {
    Header::read(datagram.get(at..)?.first_chunk()?).ok()
}

/// True if that size is to be believed, and is not damage to the header of a lone frame: another frame begins where one must, or the
/// first is whole.
fn is_run(datagram: &[u8], size: usize) -> bool {
    let mut others = (size..datagram.len()).step_by(size);
    others.any(|at| header_at(datagram, at).is_some()) || is_whole(&datagram[..size])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::wire::put_check;
    use punctual_proto::{Address, Kind, NodeId, Port, Target};

    fn frame(payload_size: usize) -> Vec<u8> {
        let header = Header {
            kind: Kind::Data,
            incarnation: 1,
            source: Address { node: NodeId::named("sender"), port: Port::from(1) },
            target: Target::EVERYONE,
            sequence: 0,
            payload_size: payload_size as u32,
            stamped: false,
            sealed: false,
        };
        let mut bytes = vec![7; header.frame_size() + CHECK_SIZE];
        header.write(bytes.first_chunk_mut().unwrap());
        put_check(&mut bytes, header.frame_size());
        bytes
    }

    fn pieces<'a>(cut: &mut Cut, datagram: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        loop {
            let Piece { bytes, ended } = cut.next(datagram);
            pieces.push(bytes);
            if let Some(frames) = ended {
                assert_eq!(frames as usize, pieces.len());
                return pieces;
            }
        }
    }

    #[test]
    fn a_run_is_cut_as_it_was_sent() {
        let mut cut = Cut::default();
        for (runs, last) in [(1, 30), (1, 0), (2, 30), (7, 1), (44, 29)] {
            let mut sent = vec![frame(30); runs];
            sent.push(frame(last));
            assert_eq!(pieces(&mut cut, &sent.concat()), sent);
            assert_eq!(pieces(&mut cut, &sent[0]), [&sent[0][..]], "the next datagram begins anew");
        }
    }

    /// Goal: damage inside a run costs the frame that it hit; a datagram that begins with no frame is one piece.
    #[test]
    fn damage_costs_one_frame() {
        let mut cut = Cut::default();
        let mut run = frame(30).repeat(5);
        let size = run.len() / 5;
        run[2 * size..2 * size + 32].fill(0xFF);
        assert_eq!(pieces(&mut cut, &run).len(), 5);
        run[0] ^= 1;
        assert_eq!(pieces(&mut cut, &run), [&run[..]]);
        let mut pair = frame(30).repeat(2);
        pair[size] ^= 1;
        assert_eq!(pieces(&mut cut, &pair).len(), 2, "the first is whole, so its size is right");
        let mut lone = frame(30);
        lone[28] -= 1;
        assert_eq!(pieces(&mut cut, &lone), [&lone[..]], "its size is damaged");
    }

    proptest::proptest! {
        /// Goal: any datagram that arrives is shown once, in order, in pieces none of which is empty unless all is.
        #[test]
        fn every_byte_is_in_one_piece(mut datagram: Vec<u8>, likely: bool, size in 0_u8..40) {
            if likely && datagram.len() >= 32 {
                datagram[..32].copy_from_slice(&frame(usize::from(size))[..32]);
            }
            let pieces = pieces(&mut Cut::default(), &datagram);
            proptest::prop_assert!(datagram.is_empty() || pieces.iter().all(|piece| !piece.is_empty()));
            proptest::prop_assert_eq!(pieces.concat(), datagram);
        }
    }
}
