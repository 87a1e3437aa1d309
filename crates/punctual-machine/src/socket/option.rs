//! Socket options that rustix does not name.
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem};

/// Sets one option to the bytes of `value`.
pub fn set_option<T: Copy>(
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

/// Where the count of dropped datagrams stands in [`memory_info`].
pub(super) const MEMORY_DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// The kernel's account of a socket's memory (`SO_MEMINFO`), as far as the count of dropped datagrams.
pub(super) fn memory_info(fd: BorrowedFd<'_>) -> io::Result<[u32; MEMORY_DROPS + 1]> {
    let mut info = [0; MEMORY_DROPS + 1];
    let whole = mem::size_of_val(&info) as libc::socklen_t;
    let mut size = whole;
    // SAFETY: the pointers describe `info` and its true size, both borrowed for the whole call.
    let answer = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    match answer {
        0 if size == whole => Ok(info),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
