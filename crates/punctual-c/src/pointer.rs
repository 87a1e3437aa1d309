//! Data behind a foreign program's pointers, looked at once and never kept.
//!
//! Rules: see the crate's.

use std::ffi::{CStr, c_char, c_void};

use crate::outcome::{Code, fail};

fn null(what: &str) -> Code {
    fail(Code::Null, format_args!("{what}: a null pointer"))
}

/// A text of the caller.
///
/// # Safety
/// Rule 1, for as long as the result lives.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Code> {
    // SAFETY: as this function's caller says.
    unsafe { text_if_any(pointer, what) }?.ok_or_else(|| null(what))
}

/// A text of the caller, if there is one.
///
/// # Safety
/// Rule 1, for as long as the result lives.
pub(crate) unsafe fn text_if_any<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>, Code> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null, and a zero byte ends it (rule 1).
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| fail(Code::Invalid, format_args!("{what}: not UTF-8")))
}

/// A message of the caller. Nothing may be null.
///
/// # Safety
/// Rule 1, for as long as the result lives.
#[inline]
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, size: usize) -> Result<&'a [u8], Code> {
    if size == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null("data"));
    }
    check_size(size)?;
    // SAFETY: it is not null, and so many bytes are there that nobody writes meanwhile (rule 1); no object is larger (rule 2).
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), size) })
}

#[inline]
fn check_size(size: usize) -> Result<(), Code> {
    if isize::try_from(size).is_err() {
        return Err(fail(Code::Invalid, format_args!("{size} bytes: no object is so large")));
    }
    Ok(())
}

/// Where the caller wants a message.
#[derive(Debug)]
pub(crate) struct Buffer {
    pointer: *mut u8,
    capacity: usize,
}

impl Buffer {
    /// Room for `capacity` bytes; none may be null.
    ///
    /// # Safety
    /// Rule 1, for as long as the result lives.
    #[inline]
    pub(crate) unsafe fn new(pointer: *mut c_void, capacity: usize) -> Result<Self, Code> {
        if pointer.is_null() && capacity > 0 {
            return Err(null("buffer"));
        }
        check_size(capacity)?;
        Ok(Self { pointer: pointer.cast(), capacity })
    }

    /// All of it, for a caller that writes messages in place.
    #[inline]
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        if self.capacity == 0 {
            return &mut [];
        }
        // SAFETY: so many bytes are there, which nobody else touches meanwhile (rule 1); any content left by a foreign program is some
        // value.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.capacity) }
    }
}

/// Where the caller wants a result.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// One that is not null.
    ///
    /// # Safety
    /// Rule 1, for as long as the result lives.
    #[inline]
    pub(crate) unsafe fn new(pointer: *mut T, what: &str) -> Result<Self, Code> {
        check_aligned(pointer, what)?;
        Ok(Self(pointer))
    }

    #[inline]
    pub(crate) fn write(&mut self, value: T) {
        // SAFETY: it leads to a value's place (rule 1), is neither null nor between two (rule 2).
        unsafe { self.0.write(value) };
    }
}

#[inline]
fn check_aligned<T>(pointer: *const T, what: &str) -> Result<(), Code> {
    if pointer.is_null() {
        return Err(null(what));
    }
    if !pointer.is_aligned() {
        return Err(fail(Code::Invalid, format_args!("{what}: a pointer that is not aligned")));
    }
    Ok(())
}

/// A struct of the caller that begins with its size, if there is one.
///
/// # Safety
/// Rule 1. The size stands at the beginning, and as many bytes are there as it says.
pub(crate) unsafe fn sized<T: Copy>(pointer: *const T, what: &str) -> Result<Option<T>, Code> {
    if pointer.is_null() {
        return Ok(None);
    }
    check_aligned(pointer, what)?;
    // SAFETY: the first bytes are the size (rule 1), regardless of what follows.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size != size_of::<T>() {
        let expected = size_of::<T>();
        return Err(fail(
            Code::Invalid,
            format_args!(
                "{what}: its struct_size is {size}, where this library has {expected}: use its macro _INIT"
            ),
        ));
    }
    // SAFETY: as many bytes are there as it says, and each value of a field is one (rule 1).
    Ok(Some(unsafe { pointer.read() }))
}

/// The texts of a list.
///
/// # Safety
/// Rule 1, for as long as the result lives, for the list and for each of its texts.
pub(crate) unsafe fn texts<'a>(
    pointer: *const *const c_char,
    count: usize,
    what: &str,
) -> Result<Vec<&'a str>, Code> {
    if count == 0 {
        return Ok(Vec::new());
    }
    check_aligned(pointer, what)?;
    check_size(count.saturating_mul(size_of::<*const c_char>()))?;
    // SAFETY: so many pointers are there (rules 1 and 2).
    let list = unsafe { std::slice::from_raw_parts(pointer, count) };
    // SAFETY: each leads to a text (rule 1), or is null, which is refused.
    list.iter().map(|&one| unsafe { text(one, what) }).collect()
}

/// Where the caller wants several results.
#[derive(Debug)]
pub(crate) struct OutList<T> {
    pointer: *mut T,
    capacity: usize,
}

impl<T> OutList<T> {
    /// Room for so many; of none it may be null.
    ///
    /// # Safety
    /// Rule 1, for as long as the result lives.
    pub(crate) unsafe fn new(pointer: *mut T, capacity: usize, what: &str) -> Result<Self, Code> {
        if capacity > 0 {
            check_aligned(pointer, what)?;
            check_size(capacity.saturating_mul(size_of::<T>()))?;
        }
        Ok(Self { pointer, capacity })
    }

    /// As many of them as there is room for.
    pub(crate) fn write(&mut self, values: impl Iterator<Item = T>) {
        for (index, value) in values.take(self.capacity).enumerate() {
            // SAFETY: there is room for so many (rule 1).
            unsafe { self.pointer.add(index).write(value) };
        }
    }
}
