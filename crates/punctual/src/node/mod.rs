//! A node: one process's presence on a bus.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::biased::{Biased, BiasedGuard, Pass};
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::doorbell::Notification;
use punctual_machine::process::{ProcessIdentity, random};
use punctual_proto::limits::COMMUNICATORS_MAX;
use punctual_proto::seal::SEAL_SIZE;
use punctual_proto::{NodeId, Port, Target};

use crate::communicator::Communicator;
use crate::engine::shared::Joined;
use crate::engine::shared::stream::Streams;
use crate::engine::{Bell, Engine, Receive, SLEEP_MAX, ring};
use crate::ledger::{Ledger, Page, PageOwner, RowCount};
use crate::publication::{Publication, PublicationOptions, StreamError, Subscription, SubscriptionOptions};
use crate::seal::Seals;
use crate::wake::{Gate, Manners, Wake, waiter};

pub use accounts::PeerAccount;
pub use events::{NodeChange, NodeEvent, NodeEvents, NodeLife};
pub use options::{Bus, CommunicatorOptions, NodeOptions, OpenError};

mod accounts;
mod events;
pub(crate) mod inbox;
pub(crate) mod opening;
mod options;
pub(crate) mod receiving;
mod registry;
pub(crate) mod sending;
pub(crate) mod waiting;

use events::Watch;
use inbox::Inbox;
use receiving::Receiving;
use registry::{Registry, Waiting};
use sending::Sending;

/// How often housekeeping is done while somebody waits.
pub(crate) const HOUSEKEEPING_EVERY: Duration = SLEEP_MAX;

/// Why a communicator could not be bound.
#[derive(Debug)]
pub enum BindError {
    /// The port number is the reserved one (65535).
    Reserved,
    /// Another communicator of this node has the port.
    PortTaken(Port),
    /// The node has as many communicators as it can have.
    TooMany,
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
            Self::TooMany => write!(f, "a node has at most {COMMUNICATORS_MAX} communicators"),
            Self::CannotWait(Wake::Signal) => f.write_str(
                "signal cannot wait for this bus, whose messages come from memory: take any other way",
            ),
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

/// What all communicators of a node share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u16,
    pub(crate) clock: &'static Clock,
    pub(crate) page: Page,
    pub(crate) registry: Registry,
    pub(crate) watch: Watch,
    pub(crate) bell: Arc<dyn Bell>,
    pub(crate) manners: Manners,
    pub(crate) payload_size_max: usize,
    /// On a sealed bus.
    pub(crate) seals: Option<Seals>,
    /// Of a bus of memory.
    streams: Option<Arc<Streams>>,
    /// The medium's descriptors, for epoll sets made while somebody drives the engine.
    pub(crate) descriptors: [Option<OwnedFd>; 2],
    /// Wakes users' event loops, while no component drives the engine.
    pub(crate) gate: Gate,
    /// Threads that want the receiving half for a moment while its driver may sleep.
    visitors: Counter,
    // Sending before receiving: fields are dropped in this order, and goodbye is said first.
    sending: Biased<Sending>,
    receiving: Biased<Receiving>,
}

impl Core {
    /// The sending half, for a component that sends.
    #[inline]
    pub(crate) fn sending(&self, pass: &mut Pass) -> BiasedGuard<'_, Sending> {
        self.sending.lock(Some(pass))
    }

    pub(crate) fn try_sending(&self) -> Option<BiasedGuard<'_, Sending>> {
        self.sending.try_lock(None)
    }

    /// Borrows the engine's receiving half for a moment; its driver, if there is one, makes way.
    pub(crate) fn visit<T>(&self, work: impl FnOnce(&mut Receiving) -> T) -> T {
        self.visitors.add(1);
        ring(&*self.bell);
        let mut receiving = self.receiving.lock(None);
        self.visitors.add(1_u64.wrapping_neg());
        let done = work(&mut receiving);
        drop(receiving);
        self.hand_over();
        done
    }

    /// Whether the driver must make way.
    #[inline]
    pub(crate) fn has_visitors(&self) -> bool {
        self.visitors.get() != 0
    }

    /// The engine's receiving half, if no other component of this node drives it. Who gives it back calls
    /// [`Self::hand_over`]: others may have gone to sleep because it was taken.
    #[inline]
    pub(crate) fn try_receiving(&self, pass: Option<&mut Pass>) -> Option<BiasedGuard<'_, Receiving>> {
        self.receiving.try_lock(pass)
    }

    /// The leader has left: a follower takes over, or the engine's bell wakes the users' event loops.
    #[inline]
    pub(crate) fn hand_over(&self) {
        if self.registry.is_shared() {
            self.hand_over_to_next();
        }
    }

    fn hand_over_to_next(&self) {
        let mut waiting = self.registry.waiting();
        if !self.hand_over_locked(&mut waiting) && waiting.armed > 0 {
            ring(&*self.bell);
        }
    }

    /// `false` if nobody drives the engine and it has something already.
    fn hand_over_locked(&self, waiting: &mut Waiting) -> bool {
        // Whoever goes to sleep because the engine was taken has said so before, under the lock of `waiting`: either we
        // find him, or he finds the engine free. If it is taken again, who has it hands it over.
        let Some(receiving) = self.try_receiving(None) else { return true };
        match waiting.followers.pop() {
            Some(next) => {
                next.set_listed(false);
                drop(receiving);
                ring(&next.bell);
                true
            }
            None if waiting.armed > 0 => {
                let open = || self.gate.open(self.bell.event().as_fd(), &self.descriptors);
                let is_ready = || !open() || receiving.is_ready();
                self.bell.doorbell().arm(Notification::Descriptor, is_ready)
            }
            None => true,
        }
    }

    /// A communicator goes to wait in its user's event loop. `false` if the engine has something already.
    pub(crate) fn arm(&self) -> bool {
        if !self.registry.has_event_loops.is_raised() {
            self.registry.has_event_loops.raise();
            // Who took the engine before it was raised would not look for us.
            self.visit(|_| ());
        }
        let mut waiting = self.registry.waiting();
        waiting.armed += 1;
        self.hand_over_locked(&mut waiting)
    }

    /// It waits no more. Ends with [`Self::hand_over`], once it has looked for messages: others may still wait.
    pub(crate) fn disarm(&self) {
        self.registry.waiting().armed -= 1;
        if let Some(mut receiving) = self.try_receiving(None) {
            self.bell.doorbell().disarm();
            receiving.handle_awake();
        }
    }

    /// Takes back what the bell left behind for event loops: a leader that sleeps by other means never would.
    #[inline]
    pub(crate) fn handle_lead(&self, receiving: &mut Receiving) {
        if self.registry.has_event_loops.is_raised() {
            self.close_gate(receiving);
        }
    }

    #[cold]
    fn close_gate(&self, receiving: &mut Receiving) {
        self.gate.close(self.bell.event().as_fd(), &self.descriptors);
        receiving.handle_awake();
    }

    /// What has to be done from time to time, in both halves.
    pub(crate) fn housekeep(&self, receiving: &mut Receiving, now: Ticks) {
        receiving.housekeep(&self.page, now);
        if let Some(seals) = &self.seals {
            seals.keys().housekeep();
        }
        if let Some(mut sending) = self.try_sending() {
            sending.housekeep(self, now);
        }
    }

    /// Forgets a communicator that closes.
    pub(crate) fn close(&self, inbox: &Arc<Inbox>) {
        let mut inboxes = self.registry.lock();
        inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
        self.registry.note_change();
        self.registry.delist(inbox);
        inbox.close();
        self.page.close_row(inbox.row, inbox.refused());
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

/// One process's presence on a bus. Cheap to clone; the last clone or communicator that goes leaves the bus.
#[derive(Clone)]
pub struct Node {
    core: Arc<Core>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its rings and buffers are megabytes.
        f.debug_struct("Node")
            .field("id", &self.core.node)
            .field("ledger", &self.ledger())
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Joins a bus under a name that no other live node on it has.
    ///
    /// When this returns, all memory is mapped and touched, the clock is calibrated, and every message that a node of a
    /// shared-memory bus sends from now on will arrive or be counted.
    ///
    /// # Errors
    /// See [`OpenError`]: a name that cannot be or is taken, or what the machine refused and what to do.
    pub fn open(bus: &Bus, name: &str) -> Result<Self, OpenError> {
        NodeOptions::new(name).open(bus)
    }

    pub(crate) fn assemble(bus: &Bus, options: &NodeOptions) -> Result<Self, OpenError> {
        Clock::prepare();
        let node = options.id.unwrap_or_else(|| NodeId::named(&options.name));
        let (engine, joined, seals) = options::open_engine(bus, options, node)?;
        Self::over(engine, joined, (node, &options.name, &bus.to_string()), seals.as_ref())
    }

    /// A node over an engine that is open.
    pub(crate) fn over(
        engine: Engine,
        joined: Joined,
        (node, name, bus): (NodeId, &str, &str),
        seals: Option<&Seals>,
    ) -> Result<Self, OpenError> {
        let clock = Clock::get();
        let owner = PageOwner {
            node,
            name: name.to_owned(),
            bus: bus.to_owned(),
            process: ProcessIdentity::of_self(),
        };
        let page = Page::create(&owner, random())
            .map_err(|error| OpenError::System { error, advice: "counters need a little memory" })?;
        let seal_size = if seals.is_some() { SEAL_SIZE } else { 0 };
        let payload_size_max = engine.transmit.payload_size_max().saturating_sub(seal_size);
        let descriptors = own_descriptors(&*engine.receive, name)?;
        let bell = engine.receive.bell();
        let gate = Gate::new(bell.event()).map_err(|error| OpenError::System {
            error,
            advice: "most likely for want of descriptors: see `ulimit -n`",
        })?;
        let core = Core {
            node,
            incarnation: joined.incarnation,
            clock,
            page,
            registry: Registry::default(),
            watch: Watch::default(),
            bell,
            manners: Manners {
                rings_doorbell: engine.receive.rings_doorbell(),
                looks_suffice: engine.receive.looks_suffice(),
            },
            payload_size_max,
            seals: seals.cloned(),
            streams: engine.streams,
            descriptors,
            gate,
            visitors: Counter::default(),
            sending: Biased::new(Sending::new(engine.transmit.into(), seals)),
            receiving: Biased::new(Receiving::new(engine.receive.into(), payload_size_max, seals)),
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.core.node
    }

    /// Largest message of this bus, bytes.
    pub fn payload_size_max(&self) -> usize {
        self.core.payload_size_max
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
        let lead = waiter(options.wake, self.core.manners).map_err(BindError::CannotWait)?;
        let inbox = self.new_inbox(port, options)?;
        Communicator::new(Arc::clone(&self.core), &inbox, lead, options)
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
        let core = &self.core;
        self.streams()?.publish(target, options, core.seals.as_ref(), Arc::clone(core) as _)
    }

    /// A subscription: the reader of all publications that are for a port of this node. Communicators at that port are not
    /// concerned.
    ///
    /// # Errors
    /// See [`StreamError`].
    pub fn subscription(
        &self,
        port: u16,
        options: &SubscriptionOptions,
    ) -> Result<Subscription, StreamError> {
        let streams = self.streams()?;
        Subscription::new(options, &self.core, |event| {
            streams.subscribe(Port::from(port), self.core.seals.as_ref(), event)
        })
    }

    fn streams(&self) -> Result<&Arc<Streams>, StreamError> {
        let reason = "they are for memory without capture or faults; communicators are for every bus";
        self.core.streams.as_ref().ok_or(StreamError::NoStreams(reason))
    }

    fn new_inbox(&self, port: Port, options: &CommunicatorOptions) -> Result<Arc<Inbox>, BindError> {
        let size = options.inbox_size.unwrap_or_else(|| inbox::size_for(self.core.payload_size_max));
        if !size.is_power_of_two() || !(1 << 12..=1 << 30).contains(&size) {
            let text = format!("inbox of {size} bytes: a power of two from 4096 to 1073741824 is needed");
            return Err(BindError::Invalid(text));
        }
        let mut inboxes = self.core.registry.lock();
        if inboxes.iter().any(|inbox| inbox.port == port) {
            return Err(BindError::PortTaken(port));
        }
        let row = self.core.page.free_row().ok_or(BindError::TooMany)?;
        let inbox = Inbox::new(port, row, size).map_err(BindError::System)?;
        self.core.page.row(row)[RowCount::Port as usize].set(u64::from(port.get()) + 1);
        inboxes.push(Arc::clone(&inbox));
        self.core.registry.reserve();
        self.core.registry.note_change();
        drop(inboxes);
        if self.core.registry.is_shared() {
            // Who took the engine while there was one communicator would not look for another.
            self.core.visit(|_| ());
        }
        Ok(inbox)
    }

    /// The medium's descriptors, as another reference to what the engine has open: for measuring what flags on them cost.
    /// None for memory.
    pub fn medium_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.core.descriptors.iter().flatten().map(AsFd::as_fd)
    }

    /// What became of every message, as of now.
    pub fn ledger(&self) -> Ledger {
        self.core.page.ledger()
    }

    /// The accounts of all peers: what they sent to this node, and what of it arrived.
    pub fn peers(&self) -> Vec<PeerAccount> {
        self.core.visit(|receiving| receiving.accounts())
    }

    /// Who joins the bus, leaves it, or dies; those who are there come first, as joined. Waits as `wake` says. Nodes of which
    /// nobody asks this spend nothing on it.
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
    /// See [`BindError`]: who watches counts as one of the node's communicators.
    pub fn events(&self, wake: Wake) -> Result<NodeEvents, BindError> {
        NodeEvents::new(&self.core, wake)
    }

    /// Frames sent so far to one node, or to everybody: what the receivers' accounts must sum to.
    pub fn sent_to(&self, target: Option<NodeId>) -> u64 {
        self.core.sending.lock(None).sent_to(target)
    }

    /// Does what has to be done from time to time. Needed only if no communicator of this node ever waits.
    pub fn housekeep(&self) {
        let now = self.core.clock.now();
        if let Some(mut receiving) = self.core.try_receiving(None) {
            self.core.housekeep(&mut receiving, now);
            drop(receiving);
            self.core.hand_over();
        }
    }
}
