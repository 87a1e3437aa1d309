//! The kernel's BPF machine: its maps, its programs, and the call that makes both.
mod instruction;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(crate) use instruction::*;

pub(crate) const MAP_CREATE: libc::c_int = 0;
pub(crate) const MAP_UPDATE: libc::c_int = 2;
pub(crate) const PROGRAM_LOAD: libc::c_int = 5;
pub(crate) const LINK_CREATE: libc::c_int = 28;
/// The program type that loads without any right to attach it.
const PROGRAM_TYPE_SOCKET_FILTER: u32 = 1;
pub(crate) const MAP_TYPE_XSKMAP: u32 = 17;
pub(crate) const MAP_LOOKUP: libc::c_int = 1;
pub(crate) const MAP_TYPE_ARRAY: u32 = 2;

/// One call of `bpf`. The attributes must be as the command reads them.
pub(crate) fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the pointer and the size describe `attributes`, borrowed for the whole call; pointers inside it are to
    // memory that its maker keeps alive meanwhile, which each caller below does.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), std::mem::size_of::<T>())
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as libc::c_int) }
}

pub(crate) fn owned(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just made the descriptor for us and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries_max: u32,
}

#[repr(C)]
struct EntryAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// A map from the kernel.
pub(crate) fn map(kind: u32, value_size: u32, entries_max: u32) -> io::Result<OwnedFd> {
    let make = || bpf(MAP_CREATE, &MapAttributes { kind, key_size: 4, value_size, entries_max }).map(owned);
    or_with_more_memory(make, raise_lock_limit)
}

/// Before Linux 5.11 maps count as memory that their maker locks. Beyond its limit they are refused as for a process that has no right
/// to them.
fn or_with_more_memory<T>(make: impl Fn() -> io::Result<T>, raise: impl FnOnce() -> bool) -> io::Result<T> {
    match make() {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && raise() => make(),
        made => made,
    }
}

/// Lets this process lock as much memory as it may allow itself. Returns true if that is more than before.
fn raise_lock_limit() -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Memlock);
    let limits = [None, before.maximum].map(|most| Rlimit { current: most, maximum: most });
    before.current.is_some() && limits.into_iter().any(|limit| setrlimit(Resource::Memlock, limit).is_ok())
}

/// Returns true if a program may add, and learn the previous value, in one instruction.
pub(crate) fn can_fetch() -> bool {
    let program = [
        op(MOVE_IMMEDIATE, 1, 0, 0, 1),
        op(STORE_IMMEDIATE64, 10, 0, -8, 0),
        op(ATOMIC_ADD64, 10, 1, -8, ATOMIC_FETCH),
        op(MOVE_IMMEDIATE, 0, 0, 0, 0),
        op(EXIT, 0, 0, 0, 0),
    ];
    let loaded = load(PROGRAM_TYPE_SOCKET_FILTER, 0, &program);
    !loaded.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Has the kernel verify a program of a kind, to be attached in a certain way where its kind has several.
pub(crate) fn load(kind: u32, attach_type: u32, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    // Some of the kernel's helpers are for programs under its own licence.
    let licence = c"Dual MIT/GPL";
    let load = LoadAttributes {
        kind,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        licence: licence.as_ptr() as u64,
        name: *b"punctual\0\0\0\0\0\0\0\0",
        attach_type,
        ..LoadAttributes::default()
    };
    bpf(PROGRAM_LOAD, &load).map(owned)
}

/// Reads or writes one entry. `T` has the size of the map's values.
pub(crate) fn access<T>(command: libc::c_int, map: &OwnedFd, key: u32, value: &mut T) -> io::Result<()> {
    let attributes = EntryAttributes {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: std::ptr::from_ref(&key) as u64,
        value: std::ptr::from_mut(value) as u64,
        flags: 0,
    };
    bpf(command, &attributes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Goal: a map that is refused for want of memory to lock is asked for once more, with more of it, and no other one.
    #[test]
    fn a_map_is_asked_for_again_with_more_memory() {
        let refusals = |code, raised| {
            let made = Cell::new(0);
            let make = || {
                made.set(made.get() + 1);
                if made.get() == 1 { Err(io::Error::from_raw_os_error(code)) } else { Ok(()) }
            };
            (or_with_more_memory(make, || raised).is_ok(), made.get())
        };
        assert_eq!(refusals(libc::EPERM, true), (true, 2));
        assert_eq!(refusals(libc::EPERM, false), (false, 1));
        assert_eq!(refusals(libc::EINVAL, true), (false, 1));
    }

    #[test]
    fn this_kernel_can_be_asked_what_programs_can() {
        match map(MAP_TYPE_ARRAY, 8, 1) {
            Ok(_) => assert!(can_fetch(), "every kernel that this is tried on is younger than 5.12"),
            Err(error) => punctual_machine::skipped!("no map: {error}"),
        }
    }
}
