//! A classic BPF program that drops what is not meant for this station.
use std::io;
use std::os::fd::BorrowedFd;

use crate::socket::set_option;

/// `SKF_AD_OFF + SKF_AD_PKTTYPE`: where a filter finds how the kernel classed a packet.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const LOAD_ABSOLUTE: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const PROGRAM: [libc::sock_filter; 5] = [
    op(LOAD_ABSOLUTE, 0, 0, PACKET_TYPE),
    op(JUMP_EQUAL, 2, 0, libc::PACKET_OTHERHOST as u32),
    op(JUMP_EQUAL, 1, 0, libc::PACKET_OUTGOING as u32),
    op(RETURN, 0, 0, u32::MAX), // keep all of it
    op(RETURN, 0, 0, 0),
];

const fn op(code: u16, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: jump_true, jf: jump_false, k }
}

/// Attaches the program; the kernel copies it.
pub(super) fn attach(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut program = PROGRAM;
    let filter = libc::sock_fprog { len: PROGRAM.len() as u16, filter: program.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}
