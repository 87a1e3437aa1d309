//! A medium whose frames a fuzzer makes, in place of a socket.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_proto::NodeId;
use punctual_proto::limits::CHECK_SIZE;

use super::{MediumReceive, MediumTransmit, Own, RawFrame};
use crate::engine::{Descriptors, Drops, Engine, Flow};
use crate::seal::Seals;

/// As Ethernet's MTU.
const FRAME_SIZE_MAX: usize = 1500;

/// A frame in the queue.
#[derive(Debug)]
pub(crate) struct Fed<A> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: A,
    pub(crate) truncated: bool,
    pub(crate) drops_before: u64,
}

/// Frames that the node has not taken yet.
pub(crate) type Feed<A> = Arc<Mutex<VecDeque<Fed<A>>>>;

/// The engine, and what feeds it.
pub(crate) fn open<A>(
    node: NodeId,
    incarnation: u16,
    seals: Option<&Seals>,
) -> Result<(Engine, Feed<A>), SystemError>
where
    A: Copy + PartialEq + Send + Sync + std::fmt::Debug + 'static,
{
    let feed = Feed::default();
    let receive = FedReceive { feed: Arc::clone(&feed), dropped: Arc::default() };
    let nowhere = Nowhere(vec![0; FRAME_SIZE_MAX], std::marker::PhantomData);
    let engine = super::open(Own { node, incarnation, life: 1 }, nowhere, receive, seals)?;
    Ok((engine, feed))
}

/// The frame with a check value that is right: a hostile sender can compute one.
pub(crate) fn checked(mut bytes: Vec<u8>) -> Vec<u8> {
    let size = bytes.len();
    bytes.resize(size + CHECK_SIZE, 0);
    super::put_check(&mut bytes, size);
    bytes
}

#[derive(Debug)]
struct Nowhere<A>(Vec<u8>, std::marker::PhantomData<A>);

impl<A: Copy + PartialEq + Send + std::fmt::Debug + 'static> MediumTransmit for Nowhere<A> {
    type Address = A;

    fn frame_size_max(&self) -> usize {
        FRAME_SIZE_MAX
    }

    fn claim(&mut self, size: usize, _to: Option<A>) -> bool {
        size <= self.0.len()
    }

    fn claimed(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn commit(&mut self) {}

    fn flush(&mut self) -> bool {
        false
    }

    fn refused(&self) -> u64 {
        0
    }
}

#[derive(Debug)]
struct FedReceive<A> {
    feed: Feed<A>,
    dropped: Arc<Counter>,
}

#[derive(Debug)]
struct FedDrops {
    dropped: Arc<Counter>,
    seen: u64,
}

impl Drops for FedDrops {
    fn take(&mut self) -> u64 {
        let dropped = self.dropped.get();
        dropped - std::mem::replace(&mut self.seen, dropped)
    }
}

impl<A: Copy + PartialEq + Send + std::fmt::Debug + 'static> MediumReceive for FedReceive<A> {
    type Address = A;

    fn poll(&mut self, limit: usize, visit: &mut impl FnMut(RawFrame<'_, A>) -> Flow) -> usize {
        let mut shown = 0;
        while shown < limit {
            let Some(fed) = self.feed.lock().expect("nobody panicked").pop_front() else { break };
            let Fed { source, truncated, .. } = fed;
            self.dropped.add_alone(fed.drops_before);
            shown += 1;
            let raw = RawFrame { bytes: &fed.bytes, source: &source, truncated, kernel_ns: None };
            if visit(raw) == Flow::Stop {
                break;
            }
        }
        shown
    }

    fn is_ready(&self) -> bool {
        !self.feed.lock().expect("nobody panicked").is_empty()
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        Some(Box::new(FedDrops { dropped: Arc::clone(&self.dropped), seen: 0 }))
    }

    fn handle_woken(&mut self) {}

    fn descriptors(&self) -> Descriptors<'_> {
        [None, None]
    }
}
