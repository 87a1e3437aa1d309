//! The programs at an interface: one hands UDP for our ports to our socket, one answers it there; everything else goes to
//! the kernel.
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::Mode;
use crate::bpf::*;

pub(super) const PROGRAM_TYPE_XDP: u32 = 6;
pub(super) const ATTACH_TYPE_XDP: u32 = 37;
pub(super) const FLAG_SKB_MODE: u32 = 1 << 1;
pub(super) const FLAG_DRIVER_MODE: u32 = 1 << 2;
pub(super) const XDP_PASS: i32 = 2;
pub(super) const XDP_TX: i32 = 3;
pub(super) const HELPER_REDIRECT_MAP: i32 = 51;
pub(super) const XDP_DROP: i32 = 1;

#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
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
        let program = load(PROGRAM_TYPE_XDP, ATTACH_TYPE_XDP, instructions)?;
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
