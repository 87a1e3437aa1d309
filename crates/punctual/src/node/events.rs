//! Nodes that come to a bus and go: events for anybody who asks.
//!
//! The thread that drives the engine notes changes while somebody watches, and puts an event for each into the watcher's inbox. It is
//! as if the node had sent the watcher a message: so watchers wait, follow and are counted as communicators are.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::clock::Clock;
use punctual_proto::frame::{HEADER_SIZE, Kind};
use punctual_proto::limits::NAME_SIZE_MAX;
use punctual_proto::{Address, Header, NodeId, Port, Target};

use super::accounts::Change;
use super::inbox::{Circumstances, Inbox};
use super::{BindError, CommunicatorOptions, Core};
use crate::communicator::{Communicator, ReceiveError};
use crate::ledger::{Count, RowCount};
use crate::memory::stream::{Presence, Streams};
use crate::publication::Wait;
use crate::publication::{Subscription, SubscriptionOptions};
use crate::wake::Wake;

/// Size of a watcher's inbox, bytes: room for more events than a bus has nodes.
const INBOX_SIZE: usize = 1 << 16;

/// Size of an event as it lies there, bytes: what, bits, size of the name, padding; node; life; name.
const EVENT_SIZE: usize = 24 + NAME_SIZE_MAX;

/// Change in a node's presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// It is there.
    Joined,
    /// It said goodbye.
    Left,
    /// It went without: its process died, or another life of it is there.
    Died,
}

impl fmt::Display for NodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joined => "joined",
            Self::Left => "left",
            Self::Died => "died",
        })
    }
}

/// A life of a node: a number drawn at random when the node opens. As much of it as the medium tells.
///
/// Memory tells all 64 bits: no two lives are alike. UDP and Ethernet carry 16 in every frame: of 65,536 lives of a node two
/// have one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeLife {
    /// The bits that are known, the lowest first.
    pub value: u64,
    /// Number of these bits: 64 or 16.
    pub bits: u32,
}

impl fmt::Display for NodeLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$x}", self.value, width = self.bits as usize / 4)
    }
}

/// A node came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// The change in its presence.
    pub change: NodeChange,
    /// The node.
    pub node: NodeId,
    /// The life of that node.
    pub life: NodeLife,
    /// Its name, where the medium tells: in memory.
    pub name: Option<String>,
}

impl fmt::Display for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({}) {}, life {}", self.node, self.change, self.life),
            None => write!(f, "{} {}, life {}", self.node, self.change, self.life),
        }
    }
}

impl NodeEvent {
    fn write(&self) -> [u8; EVENT_SIZE] {
        let name = self.name.as_deref().unwrap_or_default().as_bytes();
        let mut bytes = [0; EVENT_SIZE];
        bytes[..3].copy_from_slice(&[self.change as u8, self.life.bits as u8, name.len() as u8]);
        bytes[8..16].copy_from_slice(&self.node.get().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.life.value.to_le_bytes());
        bytes[24..24 + name.len()].copy_from_slice(name);
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        let bytes: &[u8; EVENT_SIZE] = bytes.try_into().expect("this process wrote it");
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("of eight bytes"));
        let name = &bytes[24..24 + usize::from(bytes[2])];
        Self {
            change: match bytes[0] {
                0 => NodeChange::Joined,
                1 => NodeChange::Left,
                _ => NodeChange::Died,
            },
            node: NodeId::new(word(8)).expect("a node wrote its own"),
            life: NodeLife { value: word(16), bits: bytes[1].into() },
            name: (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned()),
        }
    }
}

/// The events of a bus's nodes, oldest first: [`super::Node::events`].
///
/// Nodes that were there already come first, as joined. Of one life of a node *joined* comes first and once, then *left* or
/// *died* once. The node itself is not among them. In memory a node that joins and goes between two looks gives no event.
///
/// On UDP and Ethernet a late frame of a life that is over makes the living one *died*, until it is heard again: then it has joined in
/// the same life once more. On an adapter's medium that reports which nodes can be reached, *died* means that a node is out of reach. It joins again, in the
/// same life, when it can be reached.
///
/// A change is seen by the thread that drives the node: a component that receives, or a thread that waits here. Messages for components
/// then wait in their inboxes. In memory a waiter asks eight others each tenth of a second whether they live, and tells all of a
/// death. On UDP and Ethernet nobody notices a death before another life of the node is there.
///
/// On UDP and Ethernet some three hundred events wait at most; of more the newest are lost. Those are counted by [`Self::missed`] and
/// as *inbox full* in the node's ledger, where each event is a message from the node to itself. In memory all wait.
#[derive(Debug)]
pub struct NodeEvents(Watcher);

#[derive(Debug)]
enum Watcher {
    Wire(WireWatcher),
    Memory(Box<MemoryWatcher>),
}

/// On a kernel's medium: events come as messages do.
#[derive(Debug)]
struct WireWatcher {
    communicator: Communicator,
    inbox: Arc<Inbox>,
    core: Arc<Core>,
}

/// In memory: the list of nodes is compared with what it was.
#[derive(Debug)]
struct MemoryWatcher {
    subscription: Subscription,
    /// The version of the list that was looked at.
    version_seen: Option<u64>,
    present: Vec<NodeEvent>,
    waiting: VecDeque<NodeEvent>,
}

impl MemoryWatcher {
    /// The oldest event.
    fn next(&mut self) -> Option<NodeEvent> {
        if self.waiting.is_empty() {
            self.look();
        }
        self.waiting.pop_front()
    }

    /// Compares the list with what it was.
    fn look(&mut self) {
        let streams = Arc::clone(self.subscription.streams());
        streams.look_for_nodes();
        let version = streams.nodes_version();
        if self.version_seen.replace(version) == Some(version) {
            return;
        }
        let now: Vec<NodeEvent> = streams.present().into_iter().map(joined).collect();
        let has = |list: &[NodeEvent], life: NodeLife| list.iter().any(|event| event.life == life);
        for gone in self.present.iter().filter(|event| !has(&now, event.life)) {
            let died = streams.has_died(gone.life.value);
            let change = if died { NodeChange::Died } else { NodeChange::Left };
            self.waiting.push_back(NodeEvent { change, ..gone.clone() });
        }
        self.waiting.extend(now.iter().filter(|event| !has(&self.present, event.life)).cloned());
        self.present = now;
    }
}

fn joined(presence: Presence) -> NodeEvent {
    let Presence { node, life, name } = presence;
    NodeEvent { change: NodeChange::Joined, node, life: NodeLife { value: life, bits: u64::BITS }, name }
}

impl NodeEvents {
    pub(super) fn wire(core: &Arc<Core>, wake: Wake) -> Result<Self, BindError> {
        let lead = crate::wake::waiter(wake, core.manners).map_err(BindError::CannotWait)?;
        let inbox = new_inbox(core)?;
        let options = CommunicatorOptions::waiting(wake);
        let communicator = Communicator::wire(Arc::clone(core), &inbox, lead, &options)?;
        core.visit(|receiving| receiving.watch(core, &inbox));
        Ok(Self(Watcher::Wire(WireWatcher { communicator, inbox, core: Arc::clone(core) })))
    }

    pub(super) fn memory(streams: &Arc<Streams>, wake: Wake) -> Result<Self, BindError> {
        let options = SubscriptionOptions { wake };
        let subscription = Subscription::new(&options, |event| streams.watch(event))?;
        Ok(Self(Watcher::Memory(Box::new(MemoryWatcher {
            subscription,
            version_seen: None,
            present: Vec::new(),
            waiting: VecDeque::new(),
        }))))
    }

    /// The oldest event, if there is one; never waits.
    pub fn try_next(&mut self) -> Option<NodeEvent> {
        match &mut self.0 {
            Watcher::Wire(watcher) => read(watcher.communicator.try_receive()),
            Watcher::Memory(watcher) => {
                let nothing = watcher.subscription.try_receive(&mut []);
                debug_assert!(nothing.is_err(), "no message is for a watcher");
                watcher.next()
            }
        }
    }

    /// The oldest event; waits for one for at most `timeout`.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<NodeEvent> {
        match &mut self.0 {
            Watcher::Wire(watcher) => read(watcher.communicator.receive_timeout(timeout)),
            Watcher::Memory(watcher) => {
                let clock = Clock::get();
                let deadline = clock.now().plus(clock.ticks(timeout));
                loop {
                    if let Some(event) = watcher.next() {
                        return Some(event);
                    }
                    let MemoryWatcher { subscription, version_seen, .. } = &mut **watcher;
                    let waited = subscription.wait_for(
                        || Some(deadline),
                        |subscription| {
                            // This takes note of the changes that ended the wait: the next wait would end at once for the same ones.
                            let _no_message = subscription.poll(1, |_| {});
                            let streams = subscription.streams();
                            streams.look_for_nodes();
                            (Some(streams.nodes_version()) != *version_seen).then_some(())
                        },
                    );
                    // Changes that undo each other are no event.
                    if let Wait::Late = waited {
                        return watcher.next();
                    }
                }
            }
        }
    }

    /// Events for which there was no room: none in memory.
    pub fn missed(&self) -> u64 {
        match &self.0 {
            Watcher::Wire(WireWatcher { core, inbox, .. }) => {
                core.about.page.row(inbox.row)[RowCount::InboxFull as usize].get()
            }
            Watcher::Memory(_) => 0,
        }
    }

    /// For an event loop of one's own, as [`Communicator::arm`]: take events until there is none, arm, wait until
    /// [`Self::as_fd`] is readable.
    pub fn arm(&mut self) -> bool {
        match &mut self.0 {
            Watcher::Wire(watcher) => watcher.communicator.arm(),
            Watcher::Memory(watcher) => {
                // Arming may itself have taken note of a change, and other components of the node do: then nobody rings for it.
                watcher.subscription.arm()
                    && watcher.version_seen == Some(watcher.subscription.streams().nodes_version())
            }
        }
    }
}

/// An inbox that stands in no list of ports: no message is for it.
fn new_inbox(core: &Core) -> Result<Arc<Inbox>, BindError> {
    let port = Port::from(u16::MAX);
    let page = &core.about.page;
    let row = page.take_row(port)?;
    let inbox = Inbox::new(port, row, INBOX_SIZE).inspect_err(|_| page.close_row(row, 0));
    core.registry.reserve();
    core.registry.note_watcher();
    inbox.map_err(BindError::System)
}

fn read(received: Result<crate::communicator::Message<'_>, ReceiveError>) -> Option<NodeEvent> {
    received.ok().map(|message| NodeEvent::read(message.payload))
}

impl AsFd for NodeEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Watcher::Wire(watcher) => watcher.communicator.as_fd(),
            Watcher::Memory(watcher) => watcher.subscription.as_fd(),
        }
    }
}

impl Drop for WireWatcher {
    fn drop(&mut self) {
        // A thread that held the lock when this process was forked is not here to let go of it.
        if !self.core.about.maker.is_this_process() {
            return;
        }
        self.core.watch.lock().inboxes.retain(|other| !Arc::ptr_eq(other, &self.inbox));
    }
}

/// The watchers, and what they were told.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<Watched>);

#[derive(Debug, Default)]
pub(super) struct Watched {
    inboxes: Vec<Arc<Inbox>>,
    /// Nodes that are there, as far as watchers were told: the medium has forgotten nodes that have gone.
    present: Vec<(u16, NodeEvent)>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more watches: tells it of the nodes that are there.
    pub(super) fn enter(&self, core: &Core, inbox: &Arc<Inbox>, present: &[Change]) {
        let mut watched = self.lock();
        watched.inboxes.push(Arc::clone(inbox));
        watched.present = present.iter().map(|change| (change.incarnation, event(change))).collect();
        for (_, event) in &watched.present {
            tell(core, inbox, event);
        }
    }

    /// Tells all who watch. `false` if there is nobody.
    pub(super) fn publish(&self, core: &Core, changes: &[Change]) -> bool {
        let mut watched = self.lock();
        let Watched { inboxes, present } = &mut *watched;
        for change in changes {
            let found = event(change);
            let known = present.iter().position(|(incarnation, event)| {
                *incarnation == change.incarnation && event.node == change.node
            });
            let event = match known {
                Some(index) if change.kind != NodeChange::Joined => {
                    NodeEvent { change: found.change, ..present.swap_remove(index).1 }
                }
                _ => found,
            };
            inboxes.iter().for_each(|inbox| tell(core, inbox, &event));
            if change.kind == NodeChange::Joined {
                present.push((change.incarnation, event));
            }
        }
        if inboxes.is_empty() {
            present.clear();
        }
        !inboxes.is_empty()
    }
}

/// A change as users see it.
fn event(change: &Change) -> NodeEvent {
    let life = NodeLife { value: change.incarnation.into(), bits: u16::BITS };
    NodeEvent { change: change.kind, node: change.node, life, name: None }
}

fn tell(core: &Core, inbox: &Inbox, event: &NodeEvent) {
    let payload = event.write();
    let header = Header {
        kind: Kind::Data,
        incarnation: core.about.incarnation,
        source: Address { node: core.about.node, port: Port::from(0) },
        target: Target::node(core.about.node),
        sequence: 0,
        payload_size: EVENT_SIZE as u32,
        stamped: false,
        sealed: false,
    };
    let mut prefix = [0; HEADER_SIZE];
    header.write(&mut prefix);
    core.about.page.count(Count::Copies).add_alone(1);
    if inbox.push(&Circumstances::default(), &prefix, &payload, &core.about.page) {
        inbox.ring(&*core.bell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let name = "n".repeat(NAME_SIZE_MAX);
        for (change, name) in
            [(NodeChange::Joined, Some(name)), (NodeChange::Left, Some("a".into())), (NodeChange::Died, None)]
        {
            let life = NodeLife { value: u64::MAX - 7, bits: 64 };
            let event = NodeEvent { change, node: NodeId::named("it"), life, name };
            assert_eq!(NodeEvent::read(&event.write()), event);
        }
    }

    #[test]
    fn a_life_is_shown_with_as_many_digits_as_are_known() {
        assert_eq!(NodeLife { value: 0xAB, bits: 16 }.to_string(), "00ab");
        assert_eq!(NodeLife { value: 0xAB, bits: 64 }.to_string(), "00000000000000ab");
    }
}
