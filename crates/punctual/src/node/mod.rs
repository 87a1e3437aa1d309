//! A node: one process's presence on a bus.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::Clock;
use punctual_machine::clock::wall_clock::WallClock;
use punctual_machine::counter::Counter;
use punctual_proto::limits::COMMUNICATORS_MAX;
use punctual_proto::{NodeId, Port, Target};

use crate::communicator::Communicator;
use crate::engine::{Engine, Joined, Receive, SLEEP_MAX};
use crate::ledger::{Ledger, PageOwner, RowError};
use crate::memory::stream::{Layers, READ_RINGS, Streams};
use crate::memory::{Entered, SUBSCRIPTIONS_MAX};
use crate::monitor::Monitor;
use crate::publication::{Publication, PublicationOptions, StreamError, Subscription, SubscriptionOptions};
use crate::seal::Seals;
use crate::wake::{Gate, Manners, Wake, waiter};

pub(crate) use self::core::Core;
pub(crate) use about::{About, Who};
pub use accounts::PeerAccount;
pub use events::{NodeChange, NodeEvent, NodeEvents, NodeLife};
pub use options::{Bus, CommunicatorOptions, NodeOptions, OpenError};

mod about;
mod accounts;
mod core;
mod credit;
mod ends;
mod events;
pub(crate) mod inbox;
mod opening;
mod options;
pub(crate) mod reader;
pub(crate) mod receiving;
mod registry;
pub(crate) mod sending;
pub(crate) mod waiting;

use ends::Ends;
use events::Watch;
pub(crate) use opening::count_of;
use options::Opened;
use reader::HoldingThread;
use receiving::Receiving;
use registry::Registry;
use sending::Sending;

/// Interval of housekeeping while somebody waits.
pub(crate) const HOUSEKEEPING_EVERY: Duration = SLEEP_MAX;

/// Why a communicator could not be bound.
#[derive(Debug)]
pub enum BindError {
    /// The port number is the reserved one (65535).
    Reserved,
    /// Another communicator of this node has the port.
    PortTaken(Port),
    /// The node has as many communicators as it can have, or in memory as many communicators and subscriptions together.
    TooMany,
    /// The node's communicators read as many rings in memory as they can, counted for each: bind it at another node.
    TooManyRings {
        /// The maximum number.
        most: usize,
    },
    /// This way of waiting cannot wait for this bus: the kernel's media ring no doorbell, and memory raises no signal. Take
    /// spin, backoff or epoll.
    CannotWait(Wake),
    /// A size that cannot be: the text says which and what can.
    Invalid(String),
    /// The machine refused, most likely for want of descriptors (`ulimit -n`).
    System(SystemError),
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reserved => f.write_str("port 65535 stands for all ports: take another"),
            Self::PortTaken(port) => write!(f, "port {port} of this node is taken"),
            Self::TooMany => write!(
                f,
                "a node has at most {COMMUNICATORS_MAX} communicators, and in memory {SUBSCRIPTIONS_MAX} together with its \
                 subscriptions"
            ),
            Self::TooManyRings { most } => {
                write!(f, "a node has at most {most} {READ_RINGS}: bind it at another node")
            }
            Self::CannotWait(Wake::Signal) => {
                f.write_str("signal cannot wait for this bus, whose messages raise none: take any other way")
            }
            Self::CannotWait(wake) => {
                write!(
                    f,
                    "{wake} cannot wait for this bus, whose messages come from the kernel: take spin, backoff or epoll"
                )
            }
            Self::Invalid(text) => f.write_str(text),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for BindError {}

impl From<StreamError> for BindError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::CannotWait(wake) => Self::CannotWait(wake),
            StreamError::TooMany { what: READ_RINGS, most } => Self::TooManyRings { most },
            StreamError::TooMany { .. } => Self::TooMany,
            StreamError::System(error) => Self::System(error),
            StreamError::NoStreams(text) => Self::Invalid(text.into()),
            StreamError::Invalid(text) => Self::Invalid(text),
        }
    }
}

impl From<RowError> for BindError {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Taken(port) => Self::PortTaken(port),
            RowError::TooMany => Self::TooMany,
        }
    }
}

/// The medium's descriptors once more, so that they can be watched without the engine.
fn own_descriptors(receive: &dyn Receive, name: &str) -> Result<[Option<OwnedFd>; 2], OpenError> {
    let mut owned = [None, None];
    for (owned, descriptor) in owned.iter_mut().zip(receive.descriptors()) {
        let again = descriptor.map(|descriptor| descriptor.try_clone_to_owned()).transpose();
        *owned = again.map_err(|error| OpenError::System {
            error: SystemError::new("watch the medium of", name, error),
            advice: "most likely for want of descriptors: see `ulimit -n`",
        })?;
    }
    Ok(owned)
}

/// One process's presence on a bus. Cheap to clone; it leaves the bus with the last of its clones and of all that was made with it.
#[derive(Clone)]
pub struct Node(Presence);

/// Presence of a node on its medium.
#[derive(Clone, Debug)]
enum Presence {
    /// On a kernel's.
    Wire(Arc<Core>),
    /// In memory.
    Memory(Arc<Streams>),
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its rings and buffers are megabytes.
        f.debug_struct("Node").field("id", &self.id()).field("ledger", &self.ledger()).finish_non_exhaustive()
    }
}

impl Node {
    /// Joins a bus under a name that no other live node on it has.
    ///
    /// When this returns, the clock is calibrated, and all memory of the node is mapped and touched, but for what first messages need. In
    /// memory those are the ring to each target and the rows of a reader. Every message that a node of a shared-memory bus sends from now
    /// on will arrive or be counted.
    ///
    /// # Errors
    /// See [`OpenError`]: a name that cannot be or is taken, or what the machine refused and what to do.
    pub fn open(bus: &Bus, name: &str) -> Result<Self, OpenError> {
        NodeOptions::new(name).open(bus)
    }

    pub(crate) fn assemble(bus: &Bus, options: &NodeOptions) -> Result<Self, OpenError> {
        Clock::prepare();
        let node = options.id.unwrap_or_else(|| NodeId::named(&options.name));
        let who = Who {
            node,
            name: &options.name,
            bus: &bus.to_string(),
            message_size_max: options.message_size_max.unwrap_or(0),
        };
        match options::open_medium(bus, options, node)? {
            (Opened::Engine(engine, joined), seals) => Self::over(engine, joined, who, seals),
            (Opened::Memory(entered, layers), seals) => Self::in_memory(*entered, layers, who, seals),
        }
    }

    /// A node over an engine that is open.
    pub(crate) fn over(
        engine: Engine,
        joined: Joined,
        who: Who<'_>,
        seals: Option<Seals>,
    ) -> Result<Self, OpenError> {
        let (incarnation, size_max) = (joined.incarnation, engine.transmit.payload_size_max());
        let about = About::new(who, incarnation, size_max, seals)?;
        let descriptors = own_descriptors(&*engine.receive, who.name)?;
        let bell = engine.receive.bell();
        let gate = Gate::new(bell.event()).map_err(|error| OpenError::System {
            error,
            advice: "most likely for want of descriptors: see `ulimit -n`",
        })?;
        let (size_max, seals) = (about.payload_size_max, about.seals.clone());
        let behind = Arc::default();
        let copies = engine.transmit.copies();
        let sending = Sending::new(engine.transmit, seals.as_ref(), &behind, &bell);
        let core = Core {
            about,
            registry: Registry::default(),
            watch: Watch::default(),
            bell,
            manners: Manners {
                looks_suffice: engine.receive.looks_suffice(),
                rings_doorbell: engine.receive.rings_doorbell(),
            },
            room: engine.receive.room(),
            copies,
            descriptors,
            gate,
            wall: WallClock::new(Clock::get()),
            reading: HoldingThread::default(),
            claiming: HoldingThread::default(),
            visitors: Counter::default(),
            ends: Ends::default(),
            unsettled: Counter::default(),
            sending: Mutex::new(sending),
            behind,
            receiving: Mutex::new(Receiving::new(engine.receive, size_max, seals.as_ref())),
        };
        Ok(Self(Presence::Wire(Arc::new(core))))
    }

    /// A node that has entered a bus of memory.
    pub(crate) fn in_memory(
        entered: Entered,
        layers: Layers,
        who: Who<'_>,
        seals: Option<Seals>,
    ) -> Result<Self, OpenError> {
        let about = About::new(who, entered.incarnation, entered.payload_size_max, seals)?;
        Ok(Self(Presence::Memory(Streams::new(entered, about, layers))))
    }

    fn about(&self) -> &About {
        match &self.0 {
            Presence::Wire(core) => &core.about,
            Presence::Memory(streams) => &streams.about,
        }
    }

    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.about().node
    }

    /// The owner that its pages name.
    pub(crate) fn page_owner(&self) -> &PageOwner {
        &self.about().owner
    }

    /// Largest message that goes over this bus in one frame, bytes.
    pub fn payload_size_max(&self) -> usize {
        self.about().payload_size_max
    }

    /// Largest message that its communicators send, bytes: the size asked for by [`NodeOptions::message_size_max`], or the size that
    /// goes in one frame.
    pub fn message_size_max(&self) -> usize {
        self.about().large.message_size_max(self.about().payload_size_max)
    }

    /// True if its medium is memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.0, Presence::Memory(_))
    }

    /// True if an alteration on the way is found out: by the check value of a kernel's medium, or by a seal.
    pub(crate) fn has_check(&self) -> bool {
        !self.is_in_memory() || self.about().seals.is_some()
    }

    /// A communicator at a port, that waits as [`Wake::default`] does.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(&self, port: u16) -> Result<Communicator, BindError> {
        self.bind_with(port, &CommunicatorOptions::default())
    }

    /// A communicator at a port.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind_with(&self, port: u16, options: &CommunicatorOptions) -> Result<Communicator, BindError> {
        let port = Port::from(port);
        if port.is_reserved() {
            return Err(BindError::Reserved);
        }
        match &self.0 {
            Presence::Wire(core) => {
                let lead = waiter(options.wake, core.manners).map_err(BindError::CannotWait)?;
                let inbox = core.new_inbox(port, options)?;
                Communicator::wire(Arc::clone(core), &inbox, lead, options)
            }
            Presence::Memory(streams) => {
                let row = streams.about.page.take_row(port)?;
                let wake = SubscriptionOptions { wake: options.wake };
                let subscription = Subscription::new(&wake, |event| streams.bind(port, event));
                let subscription = subscription.map_err(|error| {
                    streams.about.page.close_row(row, 0);
                    BindError::from(error)
                })?;
                Ok(Communicator::memory(subscription, row, options))
            }
        }
    }

    /// A publication: a ring of its own for one target, on a bus of memory.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn publication(
        &self,
        target: Target,
        options: &PublicationOptions,
    ) -> Result<Publication, StreamError> {
        self.streams()?.publish(target, options)
    }

    /// A subscription: the reader of all publications that are for a port of this node, and of what communicators send there. A
    /// communicator at that port has all of it, too.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn subscription(
        &self,
        port: u16,
        options: &SubscriptionOptions,
    ) -> Result<Subscription, StreamError> {
        let streams = self.streams()?;
        Subscription::new(options, |event| streams.subscribe(Port::from(port), event))
    }

    /// Everything that is said on the bus, as far as this node can see it, for one who only listens: see [`Monitor`].
    ///
    /// # Errors
    /// See [`BindError`]: a monitor counts as one of the node's communicators.
    pub fn monitor(&self, wake: Wake) -> Result<Monitor, BindError> {
        match &self.0 {
            Presence::Wire(core) => {
                let lead = waiter(wake, core.manners).map_err(BindError::CannotWait)?;
                let inbox = core.new_monitor()?;
                let options = CommunicatorOptions::waiting(wake);
                Ok(Monitor::wire(Communicator::wire(Arc::clone(core), &inbox, lead, &options)?))
            }
            Presence::Memory(streams) => {
                let row = streams.about.page.take_row(Port::from(u16::MAX))?;
                let options = SubscriptionOptions { wake };
                let subscription = Subscription::new(&options, |event| streams.observe(event));
                let subscription = subscription.map_err(|error| {
                    streams.about.page.close_row(row, 0);
                    BindError::from(error)
                })?;
                Ok(Monitor::memory(subscription, row))
            }
        }
    }

    fn streams(&self) -> Result<&Arc<Streams>, StreamError> {
        match &self.0 {
            Presence::Wire(_) => {
                Err(StreamError::NoStreams("they are for memory; communicators are for every bus"))
            }
            Presence::Memory(streams) => Ok(streams),
        }
    }

    /// The medium's descriptors, as another reference to what the engine has open: for measuring what flags on them cost.
    /// None for memory.
    pub fn medium_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let descriptors = match &self.0 {
            Presence::Wire(core) => &core.descriptors[..],
            Presence::Memory(_) => &[],
        };
        descriptors.iter().flatten().map(AsFd::as_fd)
    }

    /// Outcome of every message, as of now.
    pub fn ledger(&self) -> Ledger {
        match &self.0 {
            Presence::Memory(streams) => streams.count_nodes(),
            Presence::Wire(core) => {
                core.settle();
                // Somebody who is sending, or holds a claim, has not been refused yet: the next look counts that.
                if let Some(sending) = core.try_sending() {
                    sending.count_refused(core);
                }
            }
        }
        self.about().page.ledger()
    }

    /// The accounts of all peers: their frames to this node, and the number that arrived. If several subscriptions of this node
    /// read one ring in memory, the account counts the subscription that had most of it.
    pub fn peers(&self) -> Vec<PeerAccount> {
        match &self.0 {
            Presence::Wire(core) => core.visit(|receiving| receiving.accounts()),
            Presence::Memory(streams) => streams.peers(),
        }
    }

    /// Events of nodes that join the bus, leave it, or die; nodes that are there already come first, as joined. Waits as `wake` says.
    /// Nodes of which nobody asks this spend nothing on it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use punctual::node::NodeChange;
    /// use punctual::{Bus, Node, Wake};
    ///
    /// let bus = Bus::loopback("events");
    /// let here = Node::open(&bus, "here")?;
    /// let mut events = here.events(Wake::default())?;
    /// let there = Node::open(&bus, "there")?;
    /// let joined = events.next_timeout(Duration::from_secs(10)).expect("it has joined");
    /// assert_eq!((joined.change, joined.node), (NodeChange::Joined, there.id()));
    /// assert_eq!((joined.name.as_deref(), joined.life.bits), (Some("there"), 64));
    ///
    /// drop(there);
    /// let left = events.next_timeout(Duration::from_secs(10)).expect("it has left");
    /// assert_eq!((left.change, left.life), (NodeChange::Left, joined.life));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`BindError`]: a watcher counts as one of the node's communicators.
    pub fn events(&self, wake: Wake) -> Result<NodeEvents, BindError> {
        match &self.0 {
            Presence::Wire(core) => NodeEvents::wire(core, wake),
            Presence::Memory(streams) => NodeEvents::memory(streams, wake),
        }
    }

    /// Frames sent so far to one node, or to everybody: the number to which the receivers' accounts must sum. In memory the numbers of
    /// 1,024 nodes are kept: beyond that the oldest of a node that has gone is forgotten. On the kernel's media it waits while a
    /// [`Claim`](crate::Claim) of the node lives.
    pub fn sent_to(&self, target: Option<NodeId>) -> u64 {
        match &self.0 {
            Presence::Wire(core) => core.sending().sent_to(target),
            Presence::Memory(streams) => streams.sent_to(target),
        }
    }

    /// Does what has to be done from time to time. Needed only if no communicator of this node ever waits.
    pub fn housekeep(&self) {
        match &self.0 {
            Presence::Wire(core) => core.keep_house(),
            Presence::Memory(streams) => streams.keep_house(),
        }
    }
}
