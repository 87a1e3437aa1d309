//! Classic BPF programs that drop in the kernel what a socket is not meant to hear.
use std::io;
use std::os::fd::BorrowedFd;

use crate::socket::set_option;

/// A payload that is not wanted: one that has these bytes there. Shorter ones are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unwanted {
    /// Where, from the beginning of the payload.
    pub at: u16,
    /// Value of the unwanted bytes.
    pub bytes: [u8; 8],
}

/// `SKF_AD_OFF + SKF_AD_PKTTYPE`: where a filter finds how the kernel classed a packet.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
/// `SKF_AD_OFF + SKF_AD_IFINDEX`: and whose it is.
const INTERFACE: u32 = 0xffff_f000 + 8;
const LOAD_ABSOLUTE: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_SIZE: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const KEEP: libc::sock_filter = op(RETURN, 0, 0, u32::MAX);
const DROP: libc::sock_filter = op(RETURN, 0, 0, 0);

/// Steps of [`unless`], after which the packet is kept, and one more, after which it is dropped.
const UNLESS_STEPS: usize = 6;

const fn op(code: u16, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: jump_true, jf: jump_false, k }
}

/// Goes on behind the next step, which keeps, if the payload that begins at `payload_at` is unwanted.
fn unless(unwanted: &Unwanted, payload_at: u32) -> [libc::sock_filter; UNLESS_STEPS] {
    let at = payload_at + u32::from(unwanted.at);
    // A load is of a number in the network's order.
    let word =
        |from: usize| unwanted.bytes[from..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    [
        op(LOAD_SIZE, 0, 0, 0),
        op(JUMP_AT_LEAST, 0, 4, at + 8),
        op(LOAD_ABSOLUTE, 0, 0, at),
        op(JUMP_EQUAL, 0, 2, word(0)),
        op(LOAD_ABSOLUTE, 0, 0, at + 4),
        op(JUMP_EQUAL, 1, 0, word(4)),
    ]
}

/// Drops frames that are not meant for this station, its own, and those of other interfaces than these. The kernel shows frames of an
/// interface upon another to listeners on that one, too: those of a VLAN `eth0.5` to listeners on `eth0`.
pub(crate) fn attach_to_packets(fd: BorrowedFd<'_>, interfaces: [u32; 2]) -> io::Result<()> {
    let mut program = [
        op(LOAD_ABSOLUTE, 0, 0, INTERFACE),
        op(JUMP_EQUAL, 1, 0, interfaces[0]),
        op(JUMP_EQUAL, 0, 4, interfaces[1]),
        op(LOAD_ABSOLUTE, 0, 0, PACKET_TYPE),
        op(JUMP_EQUAL, 2, 0, u32::from(libc::PACKET_OTHERHOST)),
        op(JUMP_EQUAL, 1, 0, u32::from(libc::PACKET_OUTGOING)),
        KEEP,
        DROP,
    ];
    attach(fd, &mut program)
}

/// Drops datagrams with an unwanted payload. The kernel counts them among those for which there was no room.
pub(crate) fn attach_to_datagrams(fd: BorrowedFd<'_>, unwanted: &Unwanted) -> io::Result<()> {
    /// A filter on a UDP socket sees the UDP header first.
    const UDP_HEADER_SIZE: u32 = 8;
    let mut program = unless(unwanted, UDP_HEADER_SIZE).to_vec();
    program.extend([KEEP, DROP]);
    attach(fd, &mut program)
}

/// Attaches the program; the kernel copies it.
fn attach(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}
