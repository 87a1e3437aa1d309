//! Interest and response: topics, publishers, subscribers.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use punctual::Communicator;
use punctual::interest::{
    Due as Instant, InterestError, ParticipantOptions, Publisher as Publishes, Response as Received,
    Subscriber as Subscribes, TopicKey, Traffic, Untyped, topic_number,
};
use punctual::unit::{DataType, Format, UnitCode};
use pyo3::IntoPyObjectExt;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::error::{Empty, Error, TooLong, invalid};
use crate::held::{Held, timeout_of, wait};
use crate::message::{Target, port_of};

/// A topic: a name or number, and the composition of its values.
#[pyclass(frozen, eq, hash, from_py_object, module = "punctual")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Topic(TopicKey);

#[derive(FromPyObject)]
enum NameOrNumber {
    Name(String),
    Number(u32),
}

fn format_of(name: &str) -> PyResult<Format> {
    Ok(match name {
        "bytes" => Format::Bytes,
        "i32" => Format::I32,
        "i64" => Format::I64,
        "f32" => Format::F32,
        "f64" => Format::F64,
        _ => return Err(invalid(format_args!("format {name:?}: bytes, i32, i64, f32 or f64 is needed"))),
    })
}

#[pymethods]
impl Topic {
    /// `unit` is of SI, without prefixes: "m/s", "kg m^2 s^-3", "N", "1". `count` is how many numbers a value has; of bytes, their number.
    #[new]
    #[pyo3(signature = (name, *, unit=None, format="f64", count=1))]
    fn new(name: NameOrNumber, unit: Option<&str>, format: &str, count: u16) -> PyResult<Self> {
        let format = format_of(format)?;
        let unit = match unit {
            Some(text) => text.parse().map_err(|error| invalid(format_args!("unit {text:?}: {error}")))?,
            None if format == Format::Bytes => UnitCode::DIGITAL,
            None => UnitCode::ONE,
        };
        let topic = match name {
            NameOrNumber::Name(name) => topic_number(&name),
            NameOrNumber::Number(number) => number,
        };
        let data = DataType { unit, format, count };
        if data.is_sound() {
            return Ok(Self(TopicKey { topic, data }));
        }
        Err(invalid(InterestError::BadType(data)))
    }

    /// Its number.
    #[getter]
    fn number(&self) -> u32 {
        self.0.topic
    }

    /// Bytes of each value.
    #[getter]
    fn size(&self) -> usize {
        self.0.data.size()
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Topic {}>", self.0)
    }
}

/// A value as it travels. Of one number that number, of several any sequence, of bytes any object that has them.
fn packed(topic: TopicKey, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let DataType { format, count, .. } = topic.data;
    if format == Format::Bytes {
        return PyBuffer::<u8>::get(value)?.to_vec(value.py());
    }
    let mut bytes = Vec::with_capacity(topic.data.size());
    let mut pack = |number: &Bound<'_, PyAny>| -> PyResult<()> {
        match format {
            Format::I32 => bytes.extend(number.extract::<i32>()?.to_le_bytes()),
            Format::I64 => bytes.extend(number.extract::<i64>()?.to_le_bytes()),
            Format::F32 => {
                let wide = number.extract::<f64>()?;
                let narrow = wide as f32;
                if wide.is_finite() && !narrow.is_finite() {
                    return Err(invalid(format_args!("{wide}: larger than a number of format f32")));
                }
                bytes.extend(narrow.to_le_bytes());
            }
            Format::F64 | Format::Bytes => bytes.extend(number.extract::<f64>()?.to_le_bytes()),
        }
        Ok(())
    };
    if count == 1 {
        pack(value)?;
    } else {
        // No more than one too many: a sequence may have no end.
        for number in value.try_iter()?.take(usize::from(count) + 1) {
            pack(&number?)?;
        }
    }
    Ok(bytes)
}

/// A value as Python has it.
fn unpacked<'py>(py: Python<'py>, topic: TopicKey, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let DataType { format, count, .. } = topic.data;
    if format == Format::Bytes {
        return Ok(PyBytes::new(py, bytes).into_any());
    }
    let number = |bytes: &[u8]| match format {
        Format::I32 => i32::from_le_bytes(sized(bytes)).into_bound_py_any(py),
        Format::I64 => i64::from_le_bytes(sized(bytes)).into_bound_py_any(py),
        Format::F32 => f32::from_le_bytes(sized(bytes)).into_bound_py_any(py),
        Format::F64 | Format::Bytes => f64::from_le_bytes(sized(bytes)).into_bound_py_any(py),
    };
    if count == 1 {
        return number(bytes);
    }
    let numbers: Vec<Bound<'py, PyAny>> =
        bytes.chunks_exact(format.size()).map(number).collect::<PyResult<_>>()?;
    Ok(PyList::new(py, numbers)?.into_any())
}

fn sized<const SIZE: usize>(bytes: &[u8]) -> [u8; SIZE] {
    bytes.try_into().expect("a value has the size that its type says")
}

pub(crate) fn not_interested(error: InterestError) -> PyErr {
    match error {
        InterestError::TooLong { .. } => TooLong::new_err(error.to_string()),
        InterestError::TooMany(_) => Error::new_err(error.to_string()),
        InterestError::Published(_) | InterestError::BadPeriod(_) | InterestError::BadType(_) => {
            invalid(error)
        }
    }
}

/// To whom interests and advertisements go: to one port of every node, or to all.
fn options_of(reach: Option<u16>) -> PyResult<ParticipantOptions> {
    let options = ParticipantOptions::default();
    Ok(match reach {
        Some(port) => options.at_port(port_of(port)?),
        None => options,
    })
}

/// An instant for which a value is wanted.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Due(Instant);

#[pymethods]
impl Due {
    /// The instant, microseconds since the publisher's schedule began.
    #[getter]
    fn offset_us(&self) -> u64 {
        self.0.instant.offset_us
    }

    /// The same on time.monotonic_ns().
    #[getter]
    fn due_ns(&self) -> u64 {
        self.0.instant.due.0
    }

    /// It is for a newcomer, between the instants of the schedule.
    #[getter]
    fn at_once(&self) -> bool {
        self.0.at_once
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Due {} us>", self.0.instant.offset_us)
    }
}

#[derive(Debug)]
struct Publishing {
    publisher: Publishes<Untyped>,
    /// The instant for which its program owes a value.
    due: Option<Instant>,
}

/// Has values of a topic, and sends them when they are due. Any thread may use it, one at a time.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Publisher {
    held: Held<Publishing>,
    topic: TopicKey,
}

impl Publisher {
    pub(crate) fn new(communicator: Communicator, topic: Topic, reach: Option<u16>) -> PyResult<Self> {
        let publisher =
            Publishes::untyped(communicator, topic.0, &options_of(reach)?).map_err(not_interested)?;
        Ok(Self { held: Held::new(Publishing { publisher, due: None }, "publisher"), topic: topic.0 })
    }
}

fn add_traffic(counts: &Bound<'_, PyDict>, traffic: Traffic) -> PyResult<()> {
    counts.set_item("sent", traffic.sent)?;
    counts.set_item("full", traffic.full)?;
    counts.set_item("unreachable", traffic.unreachable)?;
    counts.set_item("unsendable", traffic.unsendable)?;
    counts.set_item("foreign", traffic.foreign)
}

#[pymethods]
impl Publisher {
    /// Its own address.
    #[getter]
    fn address(&self) -> PyResult<Target> {
        self.held.with(|publishing| Ok(Target(publishing.publisher.address().into())))
    }

    /// When the next value is wanted; waits for `timeout` seconds, or for as long as it takes, without the interpreter's lock, and
    /// takes care of interests meanwhile. `None` if nothing is due. An earlier value that was due and was not published is passed over.
    #[pyo3(signature = (timeout=None))]
    fn next_due(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Due>> {
        let timeout = timeout_of(timeout)?;
        self.held.with(|publishing| {
            publishing.due = None;
            let publisher = &mut publishing.publisher;
            publishing.due = wait(py, timeout, |slice| publisher.next_due(slice))?;
            Ok(publishing.due.map(Due))
        })
    }

    /// Sends the value for the instant that `next_due` gave last, to all who want it: a number, several, or bytes, as the topic says.
    fn publish(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // Before anything is used: Python code may run while it is taken apart.
        let bytes = packed(self.topic, value)?;
        self.held.with(|publishing| {
            let due = publishing
                .due
                .ok_or_else(|| invalid("nothing is due: ask next_due first, and once for each value"))?;
            publishing.publisher.publish_bytes(&due, &bytes).map_err(invalid)?;
            publishing.due = None;
            Ok(())
        })
    }

    /// Outcomes of interests, and of its messages: a dictionary of counters.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (interests, counts, traffic) = self.held.with(|publishing| {
            let publisher = &publishing.publisher;
            Ok((publisher.interests().count(), publisher.counts(), publisher.traffic()))
        })?;
        let all = PyDict::new(py);
        all.set_item("interests", interests)?;
        all.set_item("accepted", counts.accepted)?;
        all.set_item("renewed", counts.renewed)?;
        all.set_item("withdrawn", counts.withdrawn)?;
        all.set_item("expired", counts.expired)?;
        all.set_item("refused", counts.refused.iter().sum::<u64>())?;
        all.set_item("unanswered", counts.unanswered)?;
        add_traffic(&all, traffic)?;
        Ok(all)
    }

    /// For select, selectors and asyncio: the descriptor that becomes readable when there may be something to do, once `arm` has said
    /// True.
    fn fileno(&self) -> PyResult<i32> {
        self.held.with(|publishing| Ok(publishing.publisher.as_fd().as_raw_fd()))
    }

    /// From now on the descriptor becomes readable when there may be something to do. False, and nothing is armed, if there already may be.
    fn arm(&self) -> PyResult<bool> {
        self.held.with(|publishing| Ok(publishing.publisher.arm()))
    }

    /// For how many seconds nothing has to be done unless the descriptor becomes readable; `None` = for ever.
    fn time_left(&self) -> PyResult<Option<f64>> {
        self.held.with(|publishing| Ok(publishing.publisher.time_left().as_ref().map(Duration::as_secs_f64)))
    }

    /// Closes it, and its communicator.
    fn close(&self) -> PyResult<()> {
        self.held.close()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.held.close()
    }
}

/// A value that was received.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Response {
    value: Py<PyAny>,
    source: Target,
    offset_us: u64,
    missed_before: u64,
    late_ns: Option<u64>,
    at_once: bool,
}

#[pymethods]
impl Response {
    /// The value: a number, a list of numbers, or bytes, as the topic says.
    #[getter]
    fn value(&self, py: Python<'_>) -> Py<PyAny> {
        self.value.clone_ref(py)
    }

    /// Its publisher.
    #[getter]
    fn source(&self) -> Target {
        self.source
    }

    /// For which instant, microseconds since its publisher's schedule began.
    #[getter]
    fn offset_us(&self) -> u64 {
        self.offset_us
    }

    /// Instants before it for which no value came from this publisher.
    #[getter]
    fn missed_before(&self) -> u64 {
        self.missed_before
    }

    /// Delay of its arrival after its instant, nanoseconds; `None` where that is not known: its publisher has no stamps, or another
    /// clock.
    #[getter]
    fn late_ns(&self) -> Option<u64> {
        self.late_ns
    }

    /// It was sent at once to a newcomer, between the instants.
    #[getter]
    fn at_once(&self) -> bool {
        self.at_once
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Response of {} us>", self.offset_us)
    }
}

/// Wants a value of a topic every so often. Any thread may use it, one at a time.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Subscriber {
    held: Held<Subscribes<Untyped>>,
    topic: TopicKey,
}

impl Subscriber {
    pub(crate) fn new(
        communicator: Communicator,
        topic: Topic,
        period: f64,
        reach: Option<u16>,
    ) -> PyResult<Self> {
        let period = Duration::try_from_secs_f64(period)
            .map_err(|error| invalid(format_args!("a period of {period} seconds: {error}")))?;
        let subscriber = Subscribes::untyped(communicator, topic.0, period, &options_of(reach)?)
            .map_err(not_interested)?;
        Ok(Self { held: Held::new(subscriber, "subscriber"), topic: topic.0 })
    }
}

/// Metadata of a value, without its bytes.
type Known = Received<()>;

fn told(received: Received<&[u8]>, bytes: &mut Vec<u8>) -> (Known, Option<u64>) {
    let late_ns = received.late_by().map(|late| late.0);
    bytes.clear();
    bytes.extend_from_slice(received.value);
    let known = Received {
        value: (),
        source: received.source,
        offset_us: received.offset_us,
        at_once: received.at_once,
        missed_before: received.missed_before,
        due: received.due,
        sent: received.sent,
        stages: received.stages,
    };
    (known, late_ns)
}

#[pymethods]
impl Subscriber {
    /// Its own address.
    #[getter]
    fn address(&self) -> PyResult<Target> {
        self.held.with(|subscribing| Ok(Target(subscribing.address().into())))
    }

    /// The next value. Waits for it for `timeout` seconds, or for as long as it takes, without the interpreter's lock, and repeats the
    /// interest meanwhile. A subscriber that does not call for 3.5 seconds is forgotten until the next call. Raises Empty.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Response> {
        let timeout = timeout_of(timeout)?;
        let mut bytes = Vec::with_capacity(self.topic.data.size());
        let received = self.held.with(|subscribing| {
            wait(py, timeout, |slice| {
                let received = subscribing.receive_bytes(slice).ok()?;
                Some(told(received, &mut bytes))
            })
        })?;
        let (known, late_ns) = received.ok_or_else(|| Empty::new_err("no value came in time"))?;
        Ok(Response {
            value: unpacked(py, self.topic, &bytes)?.unbind(),
            source: Target(known.source.into()),
            offset_us: known.offset_us,
            missed_before: known.missed_before,
            late_ns,
            at_once: known.at_once,
        })
    }

    /// Outcomes of responses, and of its messages: a dictionary of counters.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (counts, traffic) =
            self.held.with(|subscribing| Ok((subscribing.counts(), subscribing.traffic())))?;
        let all = PyDict::new(py);
        all.set_item("taken", counts.taken)?;
        all.set_item("for_others", counts.for_others)?;
        all.set_item("stale", counts.stale)?;
        all.set_item("missed", counts.missed)?;
        all.set_item("too_many_publishers", counts.too_many_publishers)?;
        all.set_item("displaced", counts.displaced)?;
        all.set_item("refused", counts.refused.iter().sum::<u64>())?;
        all.set_item("announced", counts.announced)?;
        add_traffic(&all, traffic)?;
        Ok(all)
    }

    /// As Publisher.fileno.
    fn fileno(&self) -> PyResult<i32> {
        self.held.with(|subscribing| Ok(subscribing.as_fd().as_raw_fd()))
    }

    /// As Publisher.arm.
    fn arm(&self) -> PyResult<bool> {
        self.held.with(|subscribing| Ok(subscribing.arm()))
    }

    /// As Publisher.time_left.
    fn time_left(&self) -> PyResult<Option<f64>> {
        self.held.with(|subscribing| Ok(subscribing.time_left().as_ref().map(Duration::as_secs_f64)))
    }

    /// Withdraws its interest, and closes it and its communicator.
    fn close(&self) -> PyResult<()> {
        self.held.close()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.held.close()
    }
}
