//! A node: one process's presence on a bus.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::process::{ProcessIdentity, random};
use punctual_proto::limits::COMMUNICATORS_MAX;
use punctual_proto::{NodeId, Port};

use crate::communicator::Communicator;
use crate::engine::{Bell, ring};
use crate::ledger::{Count, Ledger, Page, PageOwner, RowCount};
use crate::wake::{Wake, waiter};

pub use accounts::PeerAccount;
pub use options::{Bus, CommunicatorOptions, NodeOptions, OpenError};

mod accounts;
pub(crate) mod inbox;
mod options;
pub(crate) mod receiving;
pub(crate) mod sending;

use inbox::Inbox;
use receiving::Receiving;
use sending::Sending;

/// How often housekeeping is done while somebody waits.
pub(crate) const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);

/// Why a communicator could not be bound.
#[derive(Debug)]
pub enum BindError {
    /// The port number is the reserved one (65535).
    Reserved,
    /// Another communicator of this node has the port.
    PortTaken(Port),
    /// The node has as many communicators as it can have.
    TooMany,
    /// This way of waiting cannot wait for this bus: the kernel's media ring no doorbell. Take spin, backoff or epoll.
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

/// The communicators of a node.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    inboxes: Mutex<Vec<Arc<Inbox>>>,
    /// Changes whenever the list does.
    version: Counter,
    /// Followers that wait for the leader to leave.
    followers: Mutex<Vec<Arc<Inbox>>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Inbox>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn followers(&self) -> MutexGuard<'_, Vec<Arc<Inbox>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more than one communicator exists, so that somebody may wait for the leader to leave.
    pub(crate) fn is_shared(&self) -> bool {
        // The version counts binds and closes: one bind and no close is one communicator.
        self.version.get_published() > 1
    }
}

/// A copy of the registry's list, renewed when it has changed.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    version_seen: u64,
}

impl Ports {
    #[inline]
    pub(crate) fn renew(&mut self, registry: &Registry) {
        let version = registry.version.get_published();
        if version != self.version_seen {
            self.inboxes.clone_from(&registry.lock());
            self.version_seen = version;
        }
    }
}

/// What all communicators of a node share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u16,
    pub(crate) clock: &'static Clock,
    pub(crate) page: Page,
    pub(crate) registry: Registry,
    pub(crate) bell: Arc<dyn Bell>,
    pub(crate) rings_doorbell: bool,
    pub(crate) payload_size_max: usize,
    // Sending before receiving: fields are dropped in this order, and goodbye is said first.
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
}

impl Core {
    pub(crate) fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_sending(&self) -> Option<MutexGuard<'_, Sending>> {
        ignore_poison(self.sending.try_lock())
    }

    pub(crate) fn receiving(&self) -> MutexGuard<'_, Receiving> {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's receiving half, if no other component of this node drives it.
    pub(crate) fn try_receiving(&self) -> Option<MutexGuard<'_, Receiving>> {
        ignore_poison(self.receiving.try_lock())
    }

    /// The leader leaves: somebody who waits for that takes over.
    pub(crate) fn hand_over(&self) {
        if self.registry.is_shared()
            && let Some(next) = self.registry.followers().pop()
        {
            ring(&next.bell);
        }
    }

    /// What has to be done from time to time, in both halves.
    pub(crate) fn housekeep(&self, receiving: &mut Receiving, now: Ticks) {
        receiving.housekeep(now);
        if let Some(mut sending) = self.try_sending() {
            sending.housekeep(self, now);
        }
    }

    /// Forgets a communicator that closes.
    pub(crate) fn close(&self, inbox: &Arc<Inbox>) {
        let mut inboxes = self.registry.lock();
        inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
        self.registry.version.publish(self.registry.version.get() + 1);
        self.registry.followers().retain(|other| !Arc::ptr_eq(other, inbox));
        inbox.close();
        self.page.close_row(inbox.row);
    }
}

fn ignore_poison<'a, T>(
    locked: Result<MutexGuard<'a, T>, TryLockError<MutexGuard<'a, T>>>,
) -> Option<MutexGuard<'a, T>> {
    match locked {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// One process's presence on a bus. Cheap to clone; the last clone or communicator that goes leaves the bus.
#[derive(Clone, Debug)]
pub struct Node {
    core: Arc<Core>,
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
        let clock = Clock::get();
        let node = options.id.unwrap_or_else(|| NodeId::named(&options.name));
        let (engine, joined) = options::open_engine(bus, options, node)?;
        let owner = PageOwner {
            node,
            name: options.name.clone(),
            bus: bus.to_string(),
            process: ProcessIdentity::of_self(),
        };
        let page = Page::create(&owner, random())
            .map_err(|error| OpenError::System { error, advice: "counters need a little memory" })?;
        let payload_size_max = engine.transmit.payload_size_max();
        let core = Core {
            node,
            incarnation: joined.incarnation,
            clock,
            page,
            registry: Registry::default(),
            bell: engine.receive.bell(),
            rings_doorbell: engine.receive.rings_doorbell(),
            payload_size_max,
            sending: Mutex::new(Sending::new(engine.transmit)),
            receiving: Mutex::new(Receiving::new(engine.receive, payload_size_max)),
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
        let port = Port::new(port).ok_or(BindError::Reserved)?;
        let lead = waiter(options.wake, self.core.rings_doorbell).map_err(BindError::CannotWait)?;
        let inbox = self.new_inbox(port, options)?;
        Communicator::new(Arc::clone(&self.core), inbox, lead, options)
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
        self.core.page.row(row, RowCount::Port).set(u64::from(port.get()) + 1);
        inboxes.push(Arc::clone(&inbox));
        self.core.registry.version.publish(self.core.registry.version.get() + 1);
        Ok(inbox)
    }

    /// What became of every message, as of now.
    pub fn ledger(&self) -> Ledger {
        self.core.page.ledger()
    }

    /// The accounts of all peers: what they sent to this node, and what of it arrived.
    pub fn peers(&self) -> Vec<PeerAccount> {
        self.core.receiving().accounts()
    }

    /// Frames sent so far to one node, or to everybody: what the receivers' accounts must sum to.
    pub fn sent_to(&self, target: Option<NodeId>) -> u64 {
        self.core.sending().sent_to(target)
    }

    /// Does what has to be done from time to time. Needed only if no communicator of this node ever waits.
    pub fn housekeep(&self) {
        let now = self.core.clock.now();
        if let Some(mut receiving) = self.core.try_receiving() {
            self.core.housekeep(&mut receiving, now);
        }
    }

    /// Times a message was not taken for want of room.
    pub fn full_count(&self) -> u64 {
        self.core.page.count(Count::SendFull).get()
    }
}
