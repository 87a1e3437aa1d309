//! Publications and subscriptions: in memory, a ring for one target, and its readers.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use punctual::publication::{OfferError, Received, TakeError};
use punctual::{Publication as Ring, Subscription as Reader, Target as Meant};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::buffer::{with_bytes, with_bytes_mut};
use crate::error::{not_offered, not_taken};
use crate::held::{Deadline, Held, timeout_of, wait};
use crate::message::{Known, Message};

/// Pauses between two offers of a message, the shortest and the longest.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// A connected sender. Any thread may use it, one at a time.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Publication(Held<Ring>);

/// The reader of all publications for a port. Any thread may use it, one at a time.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Subscription(Held<Reader>);

impl Publication {
    pub(crate) fn new(ring: Ring) -> Self {
        Self(Held::new(ring, "publication"))
    }
}

impl Subscription {
    pub(crate) fn new(reader: Reader) -> Self {
        Self(Held::new(reader, "subscription"))
    }
}

fn offer(py: Python<'_>, ring: &mut Ring, data: &Bound<'_, PyAny>) -> PyResult<Result<(), OfferError>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(ring.offer(bytes.as_bytes()));
    }
    let buffer = PyBuffer::<u8>::get(data)?;
    with_bytes(py, &buffer, |bytes| ring.offer(bytes))
}

/// Offers it again and again, for at most so long: a reader has no way to ring for room.
fn offer_within(ring: &mut Ring, data: &[u8], timeout: Duration) -> Result<(), OfferError> {
    let begun = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        std::thread::sleep(pause.min(left));
        match ring.offer(data) {
            Err(OfferError::Full | OfferError::NotConnected) if pause < left => {
                pause = (pause * 2).min(PAUSE_MAX);
            }
            offered => return offered,
        }
    }
}

#[pymethods]
impl Publication {
    /// Sends a copy of the message; waits for room, and for somebody who reads, for `timeout` seconds. Raises Full, Unreachable, TooLong.
    #[pyo3(signature = (data, timeout=Some(0.0)))]
    fn offer(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout_of(timeout)?;
        self.0.with(|ring| {
            let mut last = match offer(py, ring, data)? {
                Err(refusal @ (OfferError::Full | OfferError::NotConnected)) => refusal,
                offered => return offered.map_err(not_offered),
            };
            if timeout == Some(Duration::ZERO) {
                return Err(not_offered(last));
            }
            let copied = match data.cast::<PyBytes>() {
                Ok(bytes) => bytes.as_bytes().to_vec(),
                Err(_) => PyBuffer::<u8>::get(data)?.to_vec(py)?,
            };
            let offered = wait(py, timeout, |slice| match offer_within(ring, &copied, slice) {
                Err(refusal @ (OfferError::Full | OfferError::NotConnected)) => {
                    last = refusal;
                    None
                }
                offered => Some(offered),
            })?;
            offered.unwrap_or(Err(last)).map_err(not_offered)
        })
    }

    /// Closes it. Subscriptions read it to its end.
    fn close(&self) -> PyResult<()> {
        self.0.close()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.0.close()
    }
}

fn known(reader: &Reader, received: &Received) -> Known {
    Known::received(received, Meant::from(reader.address()))
}

fn try_receive(py: Python<'_>, reader: &mut Reader) -> PyResult<Option<Message>> {
    Message::take(py, |bytes| {
        let received = reader.try_receive(bytes).copied();
        received.map(|received| known(reader, &received))
    })
}

fn await_message(
    py: Python<'_>,
    reader: &mut Reader,
    timeout: Option<Duration>,
) -> PyResult<Option<Option<Received>>> {
    wait(py, timeout, |slice| match reader.receive_timeout(slice, &mut []) {
        Err(TakeError::Empty) => None,
        Err(TakeError::BufferTooSmall { .. }) => Some(None),
        Ok(received) => Some(Some(*received)),
    })
}

#[pymethods]
impl Subscription {
    /// The oldest message of one of its publications, or `None`; never waits.
    fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        self.0.with(|reader| try_receive(py, reader))
    }

    /// The oldest message; waits for one for `timeout` seconds, or for as long as it takes, without the interpreter's lock. Raises Empty.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let deadline = Deadline::after(timeout_of(timeout)?);
        self.0.with(|reader| {
            loop {
                if let Some(message) = try_receive(py, reader)? {
                    return Ok(message);
                }
                match await_message(py, reader, deadline.left())? {
                    Some(Some(received)) => {
                        let payload = Some(PyBytes::new(py, &[]).unbind());
                        return Ok(Message::new(known(reader, &received), payload));
                    }
                    // It is there, unless it is written over before it is taken.
                    Some(None) => {}
                    None => return Err(not_taken(TakeError::Empty)),
                }
            }
        })
    }

    /// The oldest message, copied into a writable buffer. Raises Empty, or BufferTooSmall: then it is what is received next.
    #[pyo3(signature = (buffer, timeout=None))]
    fn receive_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Message> {
        let (buffer, deadline) = (PyBuffer::<u8>::get(buffer)?, Deadline::after(timeout_of(timeout)?));
        self.0.with(|reader| {
            let take =
                |reader: &mut Reader| with_bytes_mut(py, &buffer, |bytes| reader.try_receive(bytes).copied());
            loop {
                match take(reader)? {
                    Err(TakeError::Empty) => {}
                    found => {
                        let told = |received| Message::new(known(reader, &received), None);
                        return found.map(told).map_err(not_taken);
                    }
                }
                match await_message(py, reader, deadline.left())? {
                    Some(Some(received)) => return Ok(Message::new(known(reader, &received), None)),
                    Some(None) => {}
                    None => return Err(not_taken(TakeError::Empty)),
                }
            }
        })
    }

    /// As Communicator.fileno.
    fn fileno(&self) -> PyResult<i32> {
        self.0.with(|reader| Ok(reader.as_fd().as_raw_fd()))
    }

    /// As Communicator.arm.
    fn arm(&self) -> PyResult<bool> {
        self.0.with(|reader| Ok(reader.arm()))
    }

    /// Closes it.
    fn close(&self) -> PyResult<()> {
        self.0.close()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.0.close()
    }
}
