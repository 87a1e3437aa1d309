//! The programs at an interface: one hands UDP for our ports to our socket, one answers it there; everything else goes to
//! the kernel.
//!
//! Written as instructions, because a compiler for them is not on every machine; checked by the kernel's verifier before
//! it runs. Instructions and calls are those of the kernel's `bpf_common.h`, `bpf.h` and its instruction-set document
//! (RFC 9669).
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::Mode;

/// One instruction.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Instruction {
    code: u8,
    /// Target in the low four bits, source in the high.
    registers: u8,
    pub(super) offset: i16,
    immediate: i32,
}

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const FLAG_SKB_MODE: u32 = 1 << 1;
const FLAG_DRIVER_MODE: u32 = 1 << 2;

pub(super) const MAP_LOOKUP: libc::c_int = 1;
pub(super) const MAP_TYPE_ARRAY: u32 = 2;

pub(super) const XDP_PASS: i32 = 2;
const XDP_TX: i32 = 3;
pub(super) const HELPER_LOOKUP: i32 = 1;
const HELPER_REDIRECT_MAP: i32 = 51;
pub(super) const PSEUDO_MAP_FD: u8 = 1;

/// Load through a register: half word, byte, word.
pub(super) const LOAD16: u8 = 0x69;
pub(super) const LOAD8: u8 = 0x71;
pub(super) const LOAD32: u8 = 0x61;
/// Store through a register: half word, word; a word of the instruction's own; 64 bits, added at once.
const STORE16: u8 = 0x6b;
const STORE32: u8 = 0x63;
pub(super) const STORE_IMMEDIATE32: u8 = 0x62;
pub(super) const ATOMIC_ADD64: u8 = 0xdb;
pub(super) const LOAD_IMMEDIATE64: u8 = 0x18;
pub(super) const MOVE: u8 = 0xbf;
pub(super) const MOVE_IMMEDIATE: u8 = 0xb7;
pub(super) const ADD_IMMEDIATE: u8 = 0x07;
pub(super) const AND_IMMEDIATE: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
pub(super) const JUMP_EQUAL: u8 = 0x15;
pub(super) const JUMP_NOT_EQUAL: u8 = 0x55;
pub(super) const JUMP_GREATER: u8 = 0x2d;
const JUMP_GREATER_IMMEDIATE: u8 = 0x25;
const JUMP_LESS_IMMEDIATE: u8 = 0xa5;
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;

/// For [`super::damage`] alone. An atomic addition that gives what was there before.
pub(super) const ATOMIC_FETCH: i32 = 1;
pub(super) const XDP_DROP: i32 = 1;
pub(super) const STORE8: u8 = 0x73;
pub(super) const MOVE32: u8 = 0xbc;
pub(super) const ADD: u8 = 0x0f;
pub(super) const SUBTRACT: u8 = 0x1f;
pub(super) const MULTIPLY: u8 = 0x2f;
pub(super) const MULTIPLY_IMMEDIATE: u8 = 0x27;
pub(super) const REMAINDER: u8 = 0x9f;
pub(super) const XOR: u8 = 0xaf;
pub(super) const SHIFT_LEFT: u8 = 0x6f;
pub(super) const SHIFT_LEFT_IMMEDIATE: u8 = 0x67;
pub(super) const SHIFT_RIGHT_IMMEDIATE: u8 = 0x77;
pub(super) const JUMP_NOT_LESS_IMMEDIATE: u8 = 0x35;

pub(super) const fn op(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: source << 4 | target, offset, immediate }
}

/// Places in the program that are jumped to.
const V6_AT: i16 = 15;
const PORT_AT: i16 = 22;
const PASS_AT: i16 = 31;
const LENGTH: usize = 33;

/// The program for UDP ports `first` to `last`. Registers: 1 context, then map; 2 data; 3 end of data; 5 what is looked
/// at; 6 context.
fn instructions(map: RawFd, first: u16, last: u16) -> [Instruction; LENGTH] {
    // A jump counts from the instruction behind it.
    let to = |place: i16, from: i16| place - from - 1;
    let ethertype = |value: u16| i32::from(value.to_be());
    [
        op(MOVE, 6, 1, 0, 0),
        op(LOAD32, 2, 1, 0, 0),
        op(LOAD32, 3, 1, 4, 0),
        // Ethernet 14, IPv4 20, UDP 8.
        op(MOVE, 4, 2, 0, 0),
        op(ADD_IMMEDIATE, 4, 0, 0, 42),
        op(JUMP_GREATER, 4, 3, to(PASS_AT, 5), 0),
        op(LOAD16, 5, 2, 12, 0),
        op(JUMP_EQUAL, 5, 0, to(V6_AT, 7), ethertype(0x86DD)),
        op(JUMP_NOT_EQUAL, 5, 0, to(PASS_AT, 8), ethertype(0x0800)),
        // Version 4 and a header without options.
        op(LOAD8, 5, 2, 14, 0),
        op(JUMP_NOT_EQUAL, 5, 0, to(PASS_AT, 10), 0x45),
        op(LOAD8, 5, 2, 23, 0),
        op(JUMP_NOT_EQUAL, 5, 0, to(PASS_AT, 12), libc::IPPROTO_UDP),
        op(LOAD16, 5, 2, 36, 0),
        op(JUMP, 0, 0, to(PORT_AT, 14), 0),
        // Ethernet 14, IPv6 40, UDP 8.
        op(MOVE, 4, 2, 0, 0),
        op(ADD_IMMEDIATE, 4, 0, 0, 62),
        op(JUMP_GREATER, 4, 3, to(PASS_AT, 17), 0),
        op(LOAD8, 5, 2, 20, 0),
        op(JUMP_NOT_EQUAL, 5, 0, to(PASS_AT, 19), libc::IPPROTO_UDP),
        op(LOAD16, 5, 2, 56, 0),
        op(JUMP, 0, 0, to(PORT_AT, 21), 0),
        op(TO_BIG_ENDIAN, 5, 0, 0, 16),
        op(JUMP_LESS_IMMEDIATE, 5, 0, to(PASS_AT, 23), i32::from(first)),
        op(JUMP_GREATER_IMMEDIATE, 5, 0, to(PASS_AT, 24), i32::from(last)),
        // redirect(map, the queue that it came by, pass if nobody reads that queue)
        op(LOAD_IMMEDIATE64, 1, PSEUDO_MAP_FD, 0, map),
        op(0, 0, 0, 0, 0),
        op(LOAD32, 2, 6, 16, 0),
        op(MOVE_IMMEDIATE, 3, 0, 0, XDP_PASS),
        op(CALL, 0, 0, 0, HELPER_REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
        op(MOVE_IMMEDIATE, 0, 0, 0, XDP_PASS),
        op(EXIT, 0, 0, 0, 0),
    ]
}

/// Where the echoing program gives a packet up, and where it ends.
const ECHO_PASS_AT: i16 = 43;
const ECHO_END_AT: i16 = 41;
const ECHO_LENGTH: usize = 45;

/// The program that answers IPv4 UDP for `port` where it arrives: addresses and ports change places, which leaves both
/// checksums as they are, and the packet goes out again. Registers as above; 0 the entry of the counter.
fn echo_instructions(counter: RawFd, port: u16) -> [Instruction; ECHO_LENGTH] {
    let to = |place: i16, from: i16| place - from - 1;
    let pass = |from: i16| to(ECHO_PASS_AT, from);
    [
        op(LOAD32, 2, 1, 0, 0),
        op(LOAD32, 3, 1, 4, 0),
        op(MOVE, 4, 2, 0, 0),
        op(ADD_IMMEDIATE, 4, 0, 0, 42),
        op(JUMP_GREATER, 4, 3, pass(4), 0),
        op(LOAD16, 5, 2, 12, 0),
        op(JUMP_NOT_EQUAL, 5, 0, pass(6), i32::from(0x0800_u16.to_be())),
        op(LOAD8, 5, 2, 14, 0),
        op(JUMP_NOT_EQUAL, 5, 0, pass(8), 0x45),
        op(LOAD8, 5, 2, 23, 0),
        op(JUMP_NOT_EQUAL, 5, 0, pass(10), libc::IPPROTO_UDP),
        // No fragment: neither "more" nor an offset.
        op(LOAD16, 5, 2, 20, 0),
        op(AND_IMMEDIATE, 5, 0, 0, i32::from(0x3fff_u16.to_be())),
        op(JUMP_NOT_EQUAL, 5, 0, pass(13), 0),
        op(LOAD16, 5, 2, 36, 0),
        op(JUMP_NOT_EQUAL, 5, 0, pass(15), i32::from(port.to_be())),
        // Stations: six bytes each.
        op(LOAD32, 4, 2, 0, 0),
        op(LOAD16, 5, 2, 4, 0),
        op(LOAD32, 0, 2, 6, 0),
        op(LOAD16, 1, 2, 10, 0),
        op(STORE32, 2, 0, 0, 0),
        op(STORE16, 2, 1, 4, 0),
        op(STORE32, 2, 4, 6, 0),
        op(STORE16, 2, 5, 10, 0),
        // Addresses.
        op(LOAD32, 4, 2, 26, 0),
        op(LOAD32, 5, 2, 30, 0),
        op(STORE32, 2, 5, 26, 0),
        op(STORE32, 2, 4, 30, 0),
        // Ports.
        op(LOAD16, 4, 2, 34, 0),
        op(LOAD16, 5, 2, 36, 0),
        op(STORE16, 2, 5, 34, 0),
        op(STORE16, 2, 4, 36, 0),
        // counter[0] += 1, if it is there
        op(MOVE, 2, 10, 0, 0),
        op(ADD_IMMEDIATE, 2, 0, 0, -4),
        op(STORE_IMMEDIATE32, 10, 0, -4, 0),
        op(LOAD_IMMEDIATE64, 1, PSEUDO_MAP_FD, 0, counter),
        op(0, 0, 0, 0, 0),
        op(CALL, 0, 0, 0, HELPER_LOOKUP),
        op(JUMP_EQUAL, 0, 0, to(ECHO_END_AT, 38), 0),
        op(MOVE_IMMEDIATE, 1, 0, 0, 1),
        op(ATOMIC_ADD64, 0, 1, 0, 0),
        op(MOVE_IMMEDIATE, 0, 0, 0, XDP_TX),
        op(EXIT, 0, 0, 0, 0),
        op(MOVE_IMMEDIATE, 0, 0, 0, XDP_PASS),
        op(EXIT, 0, 0, 0, 0),
    ]
}

/// One call of `bpf`. The attributes must be as the command reads them.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the pointer and the size describe `attributes`, borrowed for the whole call; pointers inside it are to
    // memory that its maker keeps alive meanwhile, which each caller below does.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), std::mem::size_of::<T>())
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as libc::c_int) }
}

fn owned(descriptor: libc::c_int) -> OwnedFd {
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

#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// A map from the kernel.
pub(super) fn map(kind: u32, value_size: u32, entries_max: u32) -> io::Result<OwnedFd> {
    bpf(MAP_CREATE, &MapAttributes { kind, key_size: 4, value_size, entries_max }).map(owned)
}

/// A program at an interface, until it is dropped.
#[derive(Debug)]
pub(super) struct Attached {
    _program: OwnedFd,
    /// Holds the program at the interface.
    _link: OwnedFd,
}

impl Attached {
    /// Has the kernel verify the instructions, and puts them at the interface.
    pub(super) fn load(instructions: &[Instruction], interface: u32, mode: Mode) -> io::Result<Self> {
        let licence = c"Dual MIT/GPL";
        let load = LoadAttributes {
            kind: PROGRAM_TYPE_XDP,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            licence: licence.as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: *b"punctual\0\0\0\0\0\0\0\0",
            interface: 0,
            attach_type: ATTACH_TYPE_XDP,
        };
        let program = owned(bpf(PROGRAM_LOAD, &load)?);
        let flags = match mode {
            Mode::Generic => FLAG_SKB_MODE,
            Mode::Driver => FLAG_DRIVER_MODE,
        };
        let link = LinkAttributes {
            program: program.as_raw_fd().cast_unsigned(),
            interface,
            attach_type: ATTACH_TYPE_XDP,
            flags,
        };
        let link = owned(bpf(LINK_CREATE, &link)?);
        Ok(Self { _program: program, _link: link })
    }
}

/// Hands packets to a socket.
#[derive(Debug)]
pub(super) struct Redirect {
    map: OwnedFd,
    _attached: Attached,
}

impl Redirect {
    /// For ports `first` to `last`, at the interface.
    pub(super) fn attach(interface: u32, mode: Mode, first: u16, last: u16) -> io::Result<Self> {
        let map = map(MAP_TYPE_XSKMAP, 4, 64)?;
        let attached = Attached::load(&instructions(map.as_raw_fd(), first, last), interface, mode)?;
        Ok(Self { map, _attached: attached })
    }

    /// From now on what comes by queue `queue` goes to `socket`.
    pub(super) fn redirect(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        let mut value = socket.cast_unsigned();
        access(MAP_UPDATE, &self.map, queue, &mut value)
    }
}

/// Answers packets where they arrive.
#[derive(Debug)]
pub(super) struct Echo {
    counter: OwnedFd,
    _attached: Attached,
}

impl Echo {
    /// For a port, at the interface.
    pub(super) fn attach(interface: u32, mode: Mode, port: u16) -> io::Result<Self> {
        let counter = map(MAP_TYPE_ARRAY, 8, 1)?;
        let attached = Attached::load(&echo_instructions(counter.as_raw_fd(), port), interface, mode)?;
        Ok(Self { counter, _attached: attached })
    }

    /// Packets answered so far.
    pub(super) fn answered(&self) -> io::Result<u64> {
        let mut count = 0_u64;
        access(MAP_LOOKUP, &self.counter, 0, &mut count)?;
        Ok(count)
    }
}

/// Reads or writes one entry. `T` has the size of the map's values.
pub(super) fn access<T>(command: libc::c_int, map: &OwnedFd, key: u32, value: &mut T) -> io::Result<()> {
    let attributes = EntryAttributes {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: std::ptr::from_ref(&key) as u64,
        value: std::ptr::from_mut(value) as u64,
        flags: 0,
    };
    bpf(command, &attributes).map(drop)
}
