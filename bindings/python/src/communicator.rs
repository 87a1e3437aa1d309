//! Communicators: bound to a port, they send and receive.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use punctual::publication::TakeError;
use punctual::{Communicator as Endpoint, SendError, Target as Meant};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::buffer::{with_bytes, with_bytes_mut};
use crate::error::{not_sent, not_taken};
use crate::held::{Deadline, Held, timeout_of, wait};
use crate::message::{Known, Message, Target};

/// Longest time that a frame of a message without a timeout waits for room. After that, signals are checked and the whole message is
/// sent again.
const FRAME_WAIT: Duration = Duration::from_secs(5);

/// Interval between checks whether something may be sent.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// An endpoint at a port of a node. Any thread may use it, one at a time.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Communicator(Held<Endpoint>);

impl Communicator {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self(Held::new(endpoint, "communicator"))
    }
}

/// Sends what an object holds, without a copy of ours but into the medium. Bytes never change; any other object's cannot while the
/// interpreter's lock is held.
fn try_send(
    py: Python<'_>,
    endpoint: &mut Endpoint,
    target: Meant,
    data: &Bound<'_, PyAny>,
) -> PyResult<Result<(), SendError>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(endpoint.try_send(target, bytes.as_bytes()));
    }
    let buffer = PyBuffer::<u8>::get(data)?;
    with_bytes(py, &buffer, |bytes| endpoint.try_send(target, bytes))
}

/// Bytes that an object holds.
fn size_of(data: &Bound<'_, PyAny>) -> PyResult<usize> {
    match data.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().len()),
        Err(_) => Ok(PyBuffer::<u8>::get(data)?.len_bytes()),
    }
}

/// Copy of the bytes that an object holds now: others could change them while nobody holds the interpreter's lock.
fn copied(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match data.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => PyBuffer::<u8>::get(data)?.to_vec(py),
    }
}

/// Sends what is cut into frames. Its target is waited for before, in slices: nothing is sent then. Tried in slices itself, a part of it
/// would be sent again and again.
fn send_cut(
    py: Python<'_>,
    endpoint: &mut Endpoint,
    target: Meant,
    data: &[u8],
    timeout: Option<Duration>,
) -> PyResult<()> {
    loop {
        let mut refusal = SendError::Unreachable;
        let found = wait(py, timeout, |slice| match await_target(endpoint, target, slice) {
            Err(last @ (SendError::Full | SendError::Unreachable)) => {
                refusal = last;
                None
            }
            found => Some(found),
        })?;
        found.unwrap_or(Err(refusal)).map_err(not_sent)?;
        let sent = py.detach(|| endpoint.send_timeout(target, data, timeout.unwrap_or(FRAME_WAIT)));
        match sent {
            // Nobody has all of it: it begins anew, unless a signal ends the wait.
            Err(SendError::Full | SendError::Unreachable) if timeout.is_none() => py.check_signals()?,
            sent => return sent.map_err(not_sent),
        }
    }
}

/// Waits until the medium has all that was sent, or for the deadline: then the rest goes later. Keeps the interpreter's lock if nothing
/// is behind.
fn see_off(py: Python<'_>, endpoint: &mut Endpoint, deadline: Deadline) -> PyResult<()> {
    if !endpoint.see_off(Duration::ZERO) {
        wait(py, deadline.left(), |slice| endpoint.see_off(slice).then_some(()))?;
    }
    Ok(())
}

/// Waits for at most so long until something may be sent there.
fn await_target(endpoint: &mut Endpoint, target: Meant, timeout: Duration) -> Result<(), SendError> {
    let begun = Instant::now();
    loop {
        // A claim that is dropped sends nothing.
        match endpoint.claim(target, 1).map(drop) {
            Err(SendError::Full | SendError::Unreachable) if begun.elapsed() < timeout => {
                std::thread::sleep(LOOK_EVERY.min(timeout));
            }
            found => return found,
        }
    }
}

fn try_receive(py: Python<'_>, endpoint: &mut Endpoint) -> PyResult<Option<Message>> {
    Message::take(py, |bytes| endpoint.try_receive_into(bytes).map(Known::from))
}

/// Waits until there is a message. `None` if there is none.
fn await_message(
    py: Python<'_>,
    endpoint: &mut Endpoint,
    timeout: Option<Duration>,
) -> PyResult<Option<Option<Known>>> {
    wait(py, timeout, |slice| match endpoint.receive_into_timeout(slice, &mut []) {
        Err(TakeError::Empty) => None,
        Err(TakeError::BufferTooSmall { .. }) => Some(None),
        // Of no bytes, it has been received.
        Ok(delivery) => Some(Some(Known::from(delivery))),
    })
}

#[pymethods]
impl Communicator {
    /// Its own address: the target of those who answer.
    #[getter]
    fn address(&self) -> PyResult<Target> {
        self.0.with(|endpoint| Ok(Target(endpoint.address().into())))
    }

    /// Takes the message, or raises Full, Unreachable or TooLong; never waits.
    fn try_send(&self, py: Python<'_>, target: Target, data: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.with(|endpoint| try_send(py, endpoint, target.0, data)?.map_err(not_sent))
    }

    /// Sends; waits for room, and for a target that is not there yet, for `timeout` seconds, or for as long as it takes; with a message
    /// that is cut, at each frame.
    #[pyo3(signature = (target, data, timeout=Some(1.0)))]
    fn send(
        &self,
        py: Python<'_>,
        target: Target,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        self.0.with(|endpoint| {
            let timeout = timeout_of(timeout)?;
            let (size, size_max) = (size_of(data)?, endpoint.message_size_max());
            if size > size_max {
                return Err(not_sent(SendError::TooLong { size, size_max }));
            }
            if size > endpoint.payload_size_max() {
                return send_cut(py, endpoint, target.0, &copied(py, data)?, timeout);
            }
            let deadline = Deadline::after(timeout);
            let first = match try_send(py, endpoint, target.0, data)? {
                Ok(()) => return see_off(py, endpoint, deadline),
                Err(refusal @ (SendError::Full | SendError::Unreachable)) => refusal,
                Err(refusal) => return Err(not_sent(refusal)),
            };
            let copied = copied(py, data)?;
            let mut last = first;
            let sent =
                wait(py, deadline.left(), |slice| match endpoint.send_timeout(target.0, &copied, slice) {
                    Err(refusal @ (SendError::Full | SendError::Unreachable)) => {
                        last = refusal;
                        None
                    }
                    sent => Some(sent),
                })?;
            sent.unwrap_or(Err(last)).map_err(not_sent)?;
            see_off(py, endpoint, deadline)
        })
    }

    /// The oldest message, or `None`; never waits.
    fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        self.0.with(|endpoint| try_receive(py, endpoint))
    }

    /// The oldest message; waits for one for `timeout` seconds, or for as long as it takes, without the interpreter's lock. Raises Empty.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let deadline = Deadline::after(timeout_of(timeout)?);
        self.0.with(|endpoint| {
            loop {
                if let Some(message) = try_receive(py, endpoint)? {
                    return Ok(message);
                }
                match await_message(py, endpoint, deadline.left())? {
                    Some(Some(known)) => {
                        return Ok(Message::new(known, Some(PyBytes::new(py, &[]).unbind())));
                    }
                    // It is there, unless it is written over before it is taken.
                    Some(None) => {}
                    None => return Err(not_taken(TakeError::Empty)),
                }
            }
        })
    }

    /// The oldest message, copied into a writable buffer (bytearray, memoryview, an array of bytes), and nowhere else before. Raises Empty,
    /// or BufferTooSmall: then it is what is received next.
    #[pyo3(signature = (buffer, timeout=None))]
    fn receive_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Message> {
        let (buffer, deadline) = (PyBuffer::<u8>::get(buffer)?, Deadline::after(timeout_of(timeout)?));
        self.0.with(|endpoint| {
            let take = |endpoint: &mut Endpoint| {
                with_bytes_mut(py, &buffer, |bytes| endpoint.try_receive_into(bytes))
            };
            loop {
                match take(endpoint)? {
                    Err(TakeError::Empty) => {}
                    found => {
                        return found.map(|found| Message::new(Known::from(found), None)).map_err(not_taken);
                    }
                }
                match await_message(py, endpoint, deadline.left())? {
                    Some(Some(known)) => return Ok(Message::new(known, None)),
                    Some(None) => {}
                    None => return Err(not_taken(TakeError::Empty)),
                }
            }
        })
    }

    /// For select, selectors and asyncio: the descriptor that becomes readable when a message comes, once `arm` has said True.
    fn fileno(&self) -> PyResult<i32> {
        self.0.with(|endpoint| Ok(endpoint.as_fd().as_raw_fd()))
    }

    /// From now on the descriptor becomes readable when a message comes. False, and nothing is armed, if there may already be one.
    /// Receive and arm again every few seconds: in memory a sender that is killed just as it wakes wakes nobody.
    fn arm(&self) -> PyResult<bool> {
        self.0.with(|endpoint| Ok(endpoint.arm()))
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
