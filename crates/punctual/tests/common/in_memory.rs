//! The smallest adapter: a medium of this process, made by somebody else than the library.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual::engine::adapter::{
    Adapter, AdapterEnds, AdapterReceive, AdapterTransmit, Heard, Inlet, Outlet, Presence, Ringer, queue,
};
use punctual::engine::{Drops, Flow};
use punctual::{NodeId, OpenError};

/// Largest frame, bytes: a message of 2,000 and what is around it.
const FRAME_SIZE_MAX: usize = 2_100;

/// Frames that wait for one node.
const FRAMES_MAX: usize = 1_024;

/// Where its nodes meet.
#[derive(Clone, Debug, Default)]
pub(crate) struct InMemory(Arc<Mutex<Hub>>);

#[derive(Debug, Default)]
struct Hub {
    nodes: BTreeMap<NodeId, (Presence, Inlet<Vec<u8>>)>,
    /// Those to which the way is cut.
    cut: BTreeMap<NodeId, (Presence, Inlet<Vec<u8>>)>,
    /// Buffers that are not in use: nothing is allocated on the way of a frame.
    spare: Vec<Vec<u8>>,
}

impl InMemory {
    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the way to a node, or restores it: the others are told. It loses what is sent to it and by it meanwhile.
    pub(crate) fn cut(&self, node: NodeId, is_cut: bool) {
        let Hub { nodes, cut, .. } = &mut *self.hub();
        let (from, to) = if is_cut { (nodes, cut) } else { (cut, nodes) };
        let (presence, inlet) = from.remove(&node).expect("it is there");
        to.insert(node, (presence, inlet));
        let others = if is_cut { from } else { to };
        for (_, inlet) in others.values().filter(|(other, _)| *other != presence) {
            inlet.note(presence, !is_cut);
        }
    }
}

impl Adapter for InMemory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn name(&self) -> &'static str {
        "test"
    }

    fn open(&self, presence: Presence, ringer: Ringer) -> Result<AdapterEnds, OpenError> {
        let (inlet, outlet) = queue(&ringer, FRAMES_MAX);
        let mut hub = self.hub();
        if hub.nodes.contains_key(&presence.node) {
            return Err(OpenError::NodeTaken { node: presence.node, pid: std::process::id() });
        }
        hub.nodes.insert(presence.node, (presence, inlet));
        hub.spare.extend((0..2 * FRAMES_MAX).map(|_| Vec::with_capacity(FRAME_SIZE_MAX)));
        drop(hub);
        Ok(AdapterEnds {
            transmit: Box::new(End { hub: self.clone(), presence }),
            receive: Box::new(Receiving { hub: self.clone(), outlet }),
        })
    }
}

#[derive(Debug)]
struct End {
    hub: InMemory,
    presence: Presence,
}

impl AdapterTransmit for End {
    fn frame_size_max(&self) -> usize {
        FRAME_SIZE_MAX
    }

    fn is_there(&self, node: NodeId) -> bool {
        self.hub.hub().nodes.contains_key(&node)
    }

    fn has_room(&mut self, _target: Option<NodeId>, _size: usize) -> bool {
        let hub = self.hub.hub();
        hub.spare.len() >= hub.nodes.len()
    }

    fn send(&mut self, target: Option<NodeId>, frame: &[u8]) -> bool {
        let Hub { nodes, spare, .. } = &mut *self.hub.hub();
        if !nodes.contains_key(&self.presence.node) {
            return true;
        }
        for (node, (_, inlet)) in nodes {
            if *node != self.presence.node && target.is_none_or(|target| target == *node) {
                let Some(mut copy) = spare.pop() else { return false };
                copy.clear();
                copy.extend_from_slice(frame);
                if let Some(copy) = inlet.put_or_return(copy) {
                    inlet.count_drop();
                    spare.push(copy);
                }
            }
        }
        true
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.hub.hub().nodes.remove(&self.presence.node);
    }
}

#[derive(Debug)]
struct Receiving {
    hub: InMemory,
    outlet: Outlet<Vec<u8>>,
}

impl AdapterReceive for Receiving {
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Heard<'_>) -> Flow) -> usize {
        self.outlet.poll(limit, visit, |frame, visit| {
            let flow = visit(&frame);
            self.hub.hub().spare.push(frame);
            flow
        })
    }

    fn is_ready(&self) -> bool {
        self.outlet.is_ready()
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        Some(self.outlet.drops())
    }
}
