//! `setsockopt` for the options that rustix does not name.
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem};

/// Sets one option to the bytes of `value`.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let size = libc::socklen_t::try_from(mem::size_of::<T>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the pointer and the size describe `value`, which is borrowed for the whole call; the kernel
    // copies it and keeps no reference.
    let answer =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
