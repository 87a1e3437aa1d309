//! Nodes: opened, asked, left.

use std::path::PathBuf;

use punctual::publication::StampChoice;
use punctual::{
    CommunicatorOptions, Ledger, Node as Presence, NodeId, NodeOptions, PublicationOptions,
    SubscriptionOptions, Wake, ledger,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bus::Bus;
use crate::communicator::Communicator;
use crate::error::{invalid, no_stream, not_bound, not_opened};
use crate::held::Held;
use crate::interest::{Publisher, Subscriber, Topic};
use crate::message::{Target, port_of};
use crate::publication::{Publication, Subscription};

/// One process's presence on a bus. It leaves when it and all that was made with it are closed.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Node(Held<Presence>);

fn dictionary<'py>(py: Python<'py>, ledger: &Ledger) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, value) in ledger.entries() {
        all.set_item(name, value)?;
    }
    Ok(all)
}

fn wake_of(name: &str) -> PyResult<Wake> {
    name.parse().map_err(|error: String| invalid(error))
}

#[pymethods]
impl Node {
    /// Joins a bus under a name that no other live node on it has. `message_size_max`, up to 64 MiB, is for messages larger than a frame.
    #[new]
    #[pyo3(signature = (bus, name, *, id=None, capture=None, message_size_max=None))]
    fn new(
        py: Python<'_>,
        bus: &Bus,
        name: &str,
        id: Option<u64>,
        capture: Option<PathBuf>,
        message_size_max: Option<usize>,
    ) -> PyResult<Self> {
        let mut options = NodeOptions::new(name);
        if let Some(number) = id {
            let id = NodeId::new(number);
            options =
                options.id(id.ok_or_else(|| invalid(format_args!("node {number}: no node has this id")))?);
        }
        if let Some(path) = capture {
            options = options.capture(path);
        }
        if let Some(size) = message_size_max {
            options = options.message_size_max(size);
        }
        let node = py.detach(|| options.open(&bus.0)).map_err(not_opened)?;
        Ok(Self(Held::new(node, "node")))
    }

    /// Its id.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        self.0.with(|node| Ok(node.id().get()))
    }

    /// Largest message that its communicators send, bytes: the size that was asked for, or the size that fits in one frame.
    #[getter]
    fn message_size_max(&self) -> PyResult<usize> {
        self.0.with(|node| Ok(node.message_size_max()))
    }

    /// A communicator at a port, 0 to 65534. `wake` is a way of waiting: adaptive, spin, backoff, futex, eventfd, epoll, signal.
    #[pyo3(signature = (port, *, wake="adaptive", stamps=false))]
    fn bind(&self, port: u16, wake: &str, stamps: bool) -> PyResult<Communicator> {
        let options = CommunicatorOptions { wake: wake_of(wake)?, stamps, ..CommunicatorOptions::default() };
        self.0.with(|node| Ok(Communicator::new(node.bind_with(port, &options).map_err(not_bound)?)))
    }

    /// In memory: a publication, a ring of its own for one target.
    #[pyo3(signature = (target, *, ring_size=None, source=0, stamps=false))]
    fn publication(
        &self,
        target: Target,
        ring_size: Option<usize>,
        source: u16,
        stamps: bool,
    ) -> PyResult<Publication> {
        let mut options = PublicationOptions { source: port_of(source)?, ..PublicationOptions::default() };
        options.ring_size = ring_size.unwrap_or(options.ring_size);
        options.stamps = if stamps { StampChoice::Ends } else { StampChoice::Never };
        self.0.with(|node| Ok(Publication::new(node.publication(target.0, &options).map_err(no_stream)?)))
    }

    /// In memory: the reader of all publications that are for a port of this node.
    #[pyo3(signature = (port, *, wake="adaptive"))]
    fn subscription(&self, port: u16, wake: &str) -> PyResult<Subscription> {
        let options = SubscriptionOptions { wake: wake_of(wake)? };
        self.0.with(|node| Ok(Subscription::new(node.subscription(port, &options).map_err(no_stream)?)))
    }

    /// A publisher of a topic, with a communicator of its own at a port. `reach` is the port of every node to which advertisements go; by
    /// default all.
    #[pyo3(signature = (port, topic, *, wake="adaptive", stamps=false, reach=None))]
    fn publisher(
        &self,
        port: u16,
        topic: Topic,
        wake: &str,
        stamps: bool,
        reach: Option<u16>,
    ) -> PyResult<Publisher> {
        let options = CommunicatorOptions { wake: wake_of(wake)?, stamps, ..CommunicatorOptions::default() };
        self.0.with(|node| Publisher::new(node.bind_with(port, &options).map_err(not_bound)?, topic, reach))
    }

    /// A subscriber that wants a value of a topic every `period` seconds, with a communicator of its own at a port. `reach` is the port of
    /// every node to which its interest goes; by default all.
    #[pyo3(signature = (port, topic, period, *, wake="adaptive", reach=None))]
    fn subscriber(
        &self,
        port: u16,
        topic: Topic,
        period: f64,
        wake: &str,
        reach: Option<u16>,
    ) -> PyResult<Subscriber> {
        let options = CommunicatorOptions { wake: wake_of(wake)?, ..CommunicatorOptions::default() };
        self.0.with(|node| {
            Subscriber::new(node.bind_with(port, &options).map_err(not_bound)?, topic, period, reach)
        })
    }

    /// Ledger of all messages, as of now: a dictionary of counters.
    fn ledger<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dictionary(py, &self.0.with(|node| Ok(node.ledger()))?)
    }

    /// The accounts of all peers, a dictionary each.
    fn peers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let accounts = self.0.with(|node| Ok(node.peers()))?;
        let dictionaries = accounts.iter().map(|account| {
            let one = PyDict::new(py);
            one.set_item("node", account.node.get())?;
            one.set_item("incarnation", account.incarnation)?;
            one.set_item("arrived", account.arrived)?;
            one.set_item("lost", account.lost)?;
            one.set_item("missing", account.missing)?;
            one.set_item("present", account.present)?;
            Ok(one)
        });
        dictionaries.collect()
    }

    /// Frames sent so far to one node, by its id, or to everybody.
    #[pyo3(signature = (target=None))]
    fn sent_to(&self, target: Option<u64>) -> PyResult<u64> {
        let target = target
            .map(|number| {
                NodeId::new(number).ok_or_else(|| invalid(format_args!("node {number}: no node has this id")))
            })
            .transpose()?;
        self.0.with(|node| Ok(node.sent_to(target)))
    }

    /// Does what has to be done from time to time. Needed only if no communicator of this node ever waits.
    fn housekeep(&self, py: Python<'_>) -> PyResult<()> {
        let node = self.0.with(|node| Ok(node.clone()))?;
        py.detach(|| node.housekeep());
        Ok(())
    }

    /// Closes it. Objects that were made with it remain open, and keep the node on the bus.
    fn close(&self) -> PyResult<()> {
        self.0.close()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.0.close()
    }
}

/// The ledgers of all live nodes of this user on this host, a dictionary each with `node`, `name`, `bus` and `counters`.
#[pyfunction]
pub(crate) fn read_all(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let pages = py.detach(ledger::read_all);
    let dictionaries = pages.iter().map(|(owner, ledger)| {
        let one = PyDict::new(py);
        one.set_item("node", owner.node.get())?;
        one.set_item("name", &owner.name)?;
        one.set_item("bus", &owner.bus)?;
        one.set_item("counters", dictionary(py, ledger)?)?;
        Ok(one)
    });
    dictionaries.collect()
}
