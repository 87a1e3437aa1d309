//! Memory of Python's objects, looked at without a copy. The only unsafe code of this package.
//!
//! Rules:
//! 1. A buffer is held for as long as its bytes are looked at: Python neither moves nor frees them then.
//! 2. The interpreter's lock is held meanwhile, so that no other Python code writes to them.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::error::invalid;

/// Shows the bytes of an object, with the interpreter's lock held.
pub(crate) fn with_bytes<R>(
    _py: Python<'_>,
    buffer: &PyBuffer<u8>,
    visit: impl FnOnce(&[u8]) -> R,
) -> PyResult<R> {
    if !buffer.is_c_contiguous() {
        return Err(invalid("a buffer with gaps: make it contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(visit(&[]));
    }
    // SAFETY: so many bytes are there, one after the other; the buffer is held (rule 1), and the lock (rule 2).
    Ok(visit(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }))
}

/// Shows the bytes of an object that may be written, with the interpreter's lock held.
pub(crate) fn with_bytes_mut<R>(
    _py: Python<'_>,
    buffer: &PyBuffer<u8>,
    visit: impl FnOnce(&mut [u8]) -> R,
) -> PyResult<R> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(invalid("a buffer that cannot be written, or has gaps: take a bytearray"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(visit(&mut []));
    }
    // SAFETY: as above; they may be written, and `visit` runs no Python code that could look at them (rule 2).
    Ok(visit(unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), buffer.len_bytes()) }))
}
