//! Types that may stand in memory that processes share.

use crate::sync::{AtomicU32, AtomicU64};

/// A type that may stand in shared memory.
///
/// # Safety
/// Every bit pattern is a value, all fields are atomics or arrays of them, and the layout is `repr(C)`.
pub unsafe trait SharedObject {}

// SAFETY: every bit pattern is a value.
unsafe impl SharedObject for AtomicU64 {}
// SAFETY: every bit pattern is a value.
unsafe impl SharedObject for AtomicU32 {}
// SAFETY: an array of such a type is one: same layout rules, same patterns.
unsafe impl<T: SharedObject, const N: usize> SharedObject for [T; N] {}
