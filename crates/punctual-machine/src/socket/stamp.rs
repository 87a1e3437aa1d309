//! When the kernel handed a datagram to the device: software stamps from the error queue.
use std::io;
use std::os::fd::AsFd;

use super::control::{CONTROL_SIZE, ControlMessages, software_stamp};
use super::{UdpSocket, set_option};

/// Stamp what arrives.
pub(super) const RECEIVE: u32 = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
/// Stamp what leaves; number the stamps; do not send the payload back with them.
const TRANSMIT: u32 = libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;
/// `ee_origin` of a stamp, in the extended error that comes with it.
const ORIGIN_TIMESTAMPING: u8 = libc::SO_EE_ORIGIN_TIMESTAMPING;

impl UdpSocket {
    pub(super) fn set_timestamping(&self, flags: u32) -> io::Result<()> {
        set_option(self.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)
    }

    /// Has the kernel stamp every datagram as it goes to the device. The stamps are numbered from 0 by datagram sent on this socket
    /// since this call. They wait in the error queue, where they count against the receive buffer and make epoll report an error. Read
    /// them, or they crowd out messages.
    ///
    /// `InvalidInput` on a socket with `UdpOptions::segmentation`.
    pub fn enable_transmit_timestamps(&self) -> io::Result<()> {
        if self.segmentation {
            let text = "stamps number whole sends: open the socket without segmentation";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let receive = if self.timestamps { RECEIVE } else { 0 };
        self.set_timestamping(TRANSMIT | receive)
    }

    /// Visits every stamp in the error queue as (number, ns of CLOCK_REALTIME); returns how many.
    pub fn read_transmit_timestamps(&self, visit: &mut dyn FnMut(u32, u64)) -> io::Result<usize> {
        let mut control = [0; CONTROL_SIZE];
        let mut count = 0;
        loop {
            let size = match self.read_error_queue(&mut control) {
                Ok(size) => size,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if let Some((number, stamp)) = transmit_stamp(&control[..size]) {
                visit(number, stamp);
                count += 1;
            }
        }
    }

    /// Takes one entry of the error queue; returns how much of `control` it filled.
    fn read_error_queue(&self, control: &mut [u8; CONTROL_SIZE]) -> io::Result<usize> {
        // SAFETY: a msghdr is integers and raw pointers, for which all zero is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_SIZE;
        // SAFETY: `header` names no address and no data; its control pointer and length describe
        // `control`, borrowed for the whole call.
        let answer =
            unsafe { libc::recvmsg(self.raw(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(header.msg_controllen.min(CONTROL_SIZE)) }
    }
}

/// The number and the stamp in one entry; `None` for an entry that is not a stamp (an ICMP error).
fn transmit_stamp(control: &[u8]) -> Option<(u32, u64)> {
    let (mut number, mut stamp) = (None, None);
    for (level, kind, data) in ControlMessages::new(control) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => stamp = software_stamp(data),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                number = stamp_number(data);
            }
            _ => {}
        }
    }
    Some((number?, stamp?))
}

/// `ee_data` of a `sock_extended_err`: errno u32, origin u8, type u8, code u8, pad u8, info u32, data u32.
fn stamp_number(data: &[u8]) -> Option<u32> {
    let is_stamp = *data.get(4)? == ORIGIN_TIMESTAMPING;
    let number = u32::from_ne_bytes(*data.get(12..)?.first_chunk()?);
    is_stamp.then_some(number)
}
