//! Errors, as exceptions.

use std::fmt::Display;

use punctual::publication::{OfferError, StreamError, TakeError};
use punctual::{BindError, OpenError, SendError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(punctual, Error, PyException, "Whatever this library has to say.");
create_exception!(punctual, Empty, Error, "No message is there, or none came in time.");
create_exception!(punctual, Full, Error, "No room now: try again after the receivers have read.");
create_exception!(punctual, Unreachable, Error, "Nobody there by that address.");
create_exception!(punctual, TooLong, Error, "The message is longer than this bus carries.");
create_exception!(
    punctual,
    BufferTooSmall,
    Error,
    "The message is larger than the buffer, and is received next."
);
create_exception!(punctual, Closed, Error, "It is closed, or was opened by the process that forked.");
create_exception!(punctual, Busy, Error, "Another thread is using it.");

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("Empty", py.get_type::<Empty>())?;
    module.add("Full", py.get_type::<Full>())?;
    module.add("Unreachable", py.get_type::<Unreachable>())?;
    module.add("TooLong", py.get_type::<TooLong>())?;
    module.add("BufferTooSmall", py.get_type::<BufferTooSmall>())?;
    module.add("Closed", py.get_type::<Closed>())?;
    module.add("Busy", py.get_type::<Busy>())
}

pub(crate) fn invalid(text: impl Display) -> PyErr {
    PyValueError::new_err(text.to_string())
}

pub(crate) fn not_opened(error: OpenError) -> PyErr {
    match error {
        OpenError::Invalid(text) => PyValueError::new_err(text),
        other => Error::new_err(other.to_string()),
    }
}

pub(crate) fn not_bound(error: BindError) -> PyErr {
    match error {
        BindError::Reserved | BindError::Invalid(_) | BindError::CannotWait(_) => invalid(error),
        other => Error::new_err(other.to_string()),
    }
}

pub(crate) fn no_stream(error: StreamError) -> PyErr {
    match error {
        StreamError::Invalid(_) | StreamError::CannotWait(_) => invalid(error),
        other => Error::new_err(other.to_string()),
    }
}

#[cold]
pub(crate) fn not_sent(error: SendError) -> PyErr {
    let text = error.to_string();
    match error {
        SendError::Full => Full::new_err(text),
        SendError::Unreachable => Unreachable::new_err(text),
        SendError::TooLong { .. } => TooLong::new_err(text),
        _ => Error::new_err(text),
    }
}

#[cold]
pub(crate) fn not_offered(error: OfferError) -> PyErr {
    let text = error.to_string();
    match error {
        OfferError::Full => Full::new_err(text),
        OfferError::NotConnected => Unreachable::new_err(text),
        OfferError::TooLong { .. } => TooLong::new_err(text),
        OfferError::NoKey => Error::new_err(text),
    }
}

#[cold]
pub(crate) fn not_taken(error: TakeError) -> PyErr {
    let text = error.to_string();
    match error {
        TakeError::Empty => Empty::new_err(text),
        TakeError::BufferTooSmall { .. } => BufferTooSmall::new_err(text),
    }
}
