//! Target of a message, and metadata of a received one.

use punctual::communicator::Delivery;
use punctual::publication::{Received, TakeError};
use punctual::{Clock, NodeId, Target as Meant};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::invalid;

/// A port of a node, or several: `Target("pong", 7400)`, a node's name or id; `None` is every node, or every port.
#[pyclass(frozen, eq, hash, from_py_object, module = "punctual")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Target(pub(crate) Meant);

/// A port that is one of a node's: the highest number stands for all.
pub(crate) fn port_of(port: u16) -> PyResult<u16> {
    if port == u16::MAX {
        return Err(invalid(format_args!("port {port} stands for all ports: 0 to 65534 is needed")));
    }
    Ok(port)
}

#[derive(FromPyObject)]
enum NameOrId {
    Name(String),
    Id(u64),
}

#[pymethods]
impl Target {
    #[new]
    #[pyo3(signature = (node=None, port=None))]
    fn new(node: Option<NameOrId>, port: Option<u16>) -> PyResult<Self> {
        let node = match node {
            None => None,
            Some(NameOrId::Name(name)) => Some(NodeId::named(&name)),
            Some(NameOrId::Id(number)) => {
                let id = NodeId::new(number);
                Some(id.ok_or_else(|| invalid(format_args!("node {number}: no node has this id")))?)
            }
        };
        let port = port.map(port_of).transpose()?;
        Ok(Self(Meant { node, port: port.map(Into::into) }))
    }

    /// The node's id; `None` = every node.
    #[getter]
    fn node(&self) -> Option<u64> {
        self.0.node.map(NodeId::get)
    }

    /// The port; `None` = every port.
    #[getter]
    fn port(&self) -> Option<u16> {
        self.0.port.map(|port| port.get())
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Target {}>", self.0)
    }
}

/// A message that was received, or what is known of one that was copied into the caller's buffer.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Message {
    payload: Option<Py<PyBytes>>,
    known: Known,
}

/// Metadata of a message from a communicator or a subscription.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    source: Meant,
    target: Meant,
    sequence: u64,
    lost_before: u64,
    latency_ns: Option<u64>,
    kernel_ns: Option<u64>,
    sealed_in: Option<u32>,
    size: usize,
}

impl From<Delivery> for Known {
    fn from(delivery: Delivery) -> Self {
        Self {
            source: delivery.source.into(),
            target: delivery.target,
            sequence: delivery.sequence.into(),
            lost_before: delivery.lost_before,
            latency_ns: delivery.latency.map(|latency| Clock::get().nanos(latency)),
            kernel_ns: delivery.kernel_ns,
            sealed_in: delivery.sealed_in,
            size: delivery.size,
        }
    }
}

impl Known {
    /// Of what a subscription at this address received.
    pub(crate) fn received(received: &Received, own: Meant) -> Self {
        let latency = received.sent.zip(received.delivered).map(|(sent, delivered)| delivered.since(sent));
        Self {
            source: received.source.into(),
            target: own,
            sequence: received.sequence,
            lost_before: received.lost_before,
            latency_ns: latency.map(|latency| Clock::get().nanos(latency)),
            kernel_ns: None,
            sealed_in: received.sealed_in,
            size: received.size,
        }
    }
}

impl Message {
    pub(crate) fn new(known: Known, payload: Option<Py<PyBytes>>) -> Self {
        Self { payload, known }
    }

    /// The oldest message as an object of Python's, into which it is copied once. `None` if there is none.
    ///
    /// `take` copies it into a buffer, or says how large it is. A message that a writer overwrites meanwhile is lost, and counted: then
    /// the next one is asked for its size.
    pub(crate) fn take(
        py: Python<'_>,
        mut take: impl FnMut(&mut [u8]) -> Result<Known, TakeError>,
    ) -> PyResult<Option<Self>> {
        let mut size = 0;
        loop {
            let mut taken = Err(TakeError::Empty);
            let payload = PyBytes::new_with(py, size, |bytes| {
                taken = take(bytes);
                Ok(())
            })?;
            match taken {
                Ok(known) if known.size == size => return Ok(Some(Self::new(known, Some(payload.unbind())))),
                Ok(known) => {
                    let shorter = PyBytes::new(py, &payload.as_bytes()[..known.size]);
                    return Ok(Some(Self::new(known, Some(shorter.unbind()))));
                }
                Err(TakeError::BufferTooSmall { size: needed }) => size = needed,
                Err(TakeError::Empty) => return Ok(None),
            }
        }
    }
}

#[pymethods]
impl Message {
    /// The message; `None` if it is in the caller's buffer.
    #[getter]
    fn payload(&self, py: Python<'_>) -> Option<Py<PyBytes>> {
        self.payload.as_ref().map(|payload| payload.clone_ref(py))
    }

    /// Its size, bytes.
    #[getter]
    fn size(&self) -> usize {
        self.known.size
    }

    /// The sender: the target of an answer.
    #[getter]
    fn source(&self) -> Target {
        Target(self.known.source)
    }

    /// Its target.
    #[getter]
    fn target(&self) -> Target {
        Target(self.known.target)
    }

    /// Its number in its stream. Of a communicator's messages the lower 32 bits: 0 comes again after 4294967295.
    #[getter]
    fn sequence(&self) -> u64 {
        self.known.sequence
    }

    /// Messages of the same stream that were lost just before it.
    #[getter]
    fn lost_before(&self) -> u64 {
        self.known.lost_before
    }

    /// From the instant at which it was due until it was delivered, nanoseconds, if it carried stamps.
    #[getter]
    fn latency_ns(&self) -> Option<u64> {
        self.known.latency_ns
    }

    /// When the kernel received it, CLOCK_REALTIME nanoseconds, where the medium says.
    #[getter]
    fn kernel_ns(&self) -> Option<u64> {
        self.known.kernel_ns
    }

    /// The group whose key sealed it.
    #[getter]
    fn sealed_in(&self) -> Option<u32> {
        self.known.sealed_in
    }

    fn __bytes__(&self, py: Python<'_>) -> Option<Py<PyBytes>> {
        self.payload(py)
    }

    fn __len__(&self) -> usize {
        self.known.size
    }

    /// A message without bytes is one, too: only `None` is none.
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Message {} bytes from {}>", self.known.size, self.known.source)
    }
}
