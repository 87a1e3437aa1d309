//! io_uring on UDP sockets: receives wait in the ring, sends are entries of it.
//!
//! Rules of access: a receive's or a send's buffers belong to the kernel from the submission of its entry until its completion was
//! taken. They stand in boxes that neither move nor go before every entry was cancelled and completed.
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use punctual_machine::SystemError;
use punctual_machine::socket::address::RawAddress;
use punctual_machine::socket::control::{CONTROL_SIZE, ControlMessages, software_stamp};
use punctual_machine::socket::{Single, UdpSocket};

/// Sends that may be on their way at once: UDP completes them at submission, unless the socket is full.
const SENDS: usize = 64;
/// Entries of the ring: sends, and a receive per socket.
const ENTRIES: u32 = 256;
/// Sockets of one ring.
const SOCKETS_MAX: usize = 128;
const _: () = assert!(SENDS + SOCKETS_MAX <= ENTRIES as usize);

/// Number in an entry's user data that marks it as a send.
const SEND: u64 = 1 << 32;

/// `IORING_REGISTER_NAPI` of the kernel's interface (6.9).
const REGISTER_NAPI: libc::c_uint = 27;

/// The kernel's `io_uring_napi`.
#[repr(C)]
struct Napi {
    busy_poll_to: u32,
    prefer_busy_poll: u8,
    opcode: u8,
    padding: [u8; 2],
    parameter: u32,
    reserved: u32,
}

/// Memory into which the kernel writes a datagram.
#[derive(Debug)]
struct Slot {
    header: libc::msghdr,
    vector: libc::iovec,
    address: RawAddress,
    control: [u64; CONTROL_SIZE / 8],
    bytes: Box<[u8]>,
    /// The kernel has it.
    is_out: bool,
    /// The kernel's result of the last send from here.
    result: i32,
}

impl Slot {
    fn new(size: usize) -> Self {
        // SAFETY: a msghdr is integers and raw pointers, for which all zero is a valid value.
        let header: libc::msghdr = unsafe { mem::zeroed() };
        Self {
            header,
            vector: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
            address: RawAddress::NONE,
            control: [0; CONTROL_SIZE / 8],
            bytes: vec![0; size].into_boxed_slice(),
            is_out: false,
            result: 0,
        }
    }

    /// Points the header at the slot's own fields: the slot stands in a box and does not move.
    fn point(&mut self, size: usize, with_control: bool) {
        self.vector = libc::iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: size };
        self.header.msg_iov = &raw mut self.vector;
        self.header.msg_iovlen = 1;
        self.header.msg_name = self.address.bytes.as_mut_ptr().cast();
        self.header.msg_namelen = RawAddress::SIZE_MAX;
        self.header.msg_control =
            if with_control { self.control.as_mut_ptr().cast() } else { std::ptr::null_mut() };
        self.header.msg_controllen = if with_control { CONTROL_SIZE } else { 0 };
    }
}

/// A ring, its sockets and its buffers.
pub struct UringSockets {
    ring: Option<IoUring>,
    sockets: Vec<UdpSocket>,
    receives: Box<[Slot]>,
    sends: Box<[Slot]>,
}

// SAFETY: the pointers in the slots' headers are to the slots' own boxes; the ring is bound to no thread.
unsafe impl Send for UringSockets {}

impl std::fmt::Debug for UringSockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringSockets").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

impl UringSockets {
    /// A ring for these sockets and datagrams of up to `size_max` bytes. With `napi`, waiting polls the sockets' devices
    /// for so long first.
    ///
    /// # Panics
    /// If there is no socket, or more than 128.
    pub fn new(
        sockets: Vec<UdpSocket>,
        size_max: usize,
        napi: Option<Duration>,
    ) -> Result<Self, SystemError> {
        assert!((1..=SOCKETS_MAX).contains(&sockets.len()), "from one socket to {SOCKETS_MAX}");
        let ring = IoUring::new(ENTRIES).map_err(|error| {
            let text = format!("{error} (see /proc/sys/kernel/io_uring_disabled)");
            SystemError::new("make", "io_uring", io::Error::new(error.kind(), text))
        })?;
        if let Some(time) = napi {
            register_napi(&ring, time)
                .map_err(|error| SystemError::new("register napi with", "io_uring", error))?;
        }
        let slots = |count: usize| (0..count).map(|_| Slot::new(size_max)).collect();
        let (receives, sends) = (slots(sockets.len()), slots(SENDS));
        Ok(Self { ring: Some(ring), sockets, receives, sends })
    }

    /// The sockets, in their order.
    pub fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    /// Sends a datagram on socket `index`: to `target`, or to the connected peer. `false` if there is no room, or the kernel refused it.
    pub fn send(&mut self, index: usize, bytes: &[u8], target: Option<SocketAddr>) -> bool {
        self.take_completions();
        let Some(place) = self.sends.iter().position(|slot| !slot.is_out) else { return false };
        let slot = &mut self.sends[place];
        let Some(room) = slot.bytes.get_mut(..bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        slot.point(bytes.len(), false);
        match target {
            Some(target) => {
                slot.address = RawAddress::encode(target);
                slot.header.msg_namelen = slot.address.size;
            }
            None => {
                slot.header.msg_name = std::ptr::null_mut();
                slot.header.msg_namelen = 0;
            }
        }
        // News of an earlier datagram (ICMP) fail this one, which is sent once more.
        (0..2).any(|_| self.submit_send(index, place))
    }

    /// Hands a slot's datagram to the kernel. UDP completes it at once; one that it keeps goes later.
    fn submit_send(&mut self, index: usize, place: usize) -> bool {
        let (Some(ring), slot) = (&mut self.ring, &mut self.sends[place]) else { return false };
        let entry = opcode::SendMsg::new(Fd(self.sockets[index].as_fd().as_raw_fd()), &raw const slot.header)
            .flags(libc::MSG_DONTWAIT.cast_unsigned())
            .build()
            .user_data(SEND | place as u64);
        slot.is_out = push(ring, &entry);
        if !slot.is_out {
            return false;
        }
        // An entry that is not taken now goes with the next submission: the slot is the kernel's until then.
        let _submitted = ring.submit();
        self.take_completions();
        let slot = &self.sends[place];
        slot.is_out || slot.result >= 0
    }

    /// Takes the oldest datagram that arrived, waiting for at most `timeout`: the socket's index, and what it is.
    pub fn receive(&mut self, bytes: &mut [u8], timeout: Duration) -> io::Result<Option<(usize, Single)>> {
        if let Some(found) = self.take_received(bytes)? {
            return Ok(Some(found));
        }
        self.arm();
        let Some(ring) = &mut self.ring else { return Ok(None) };
        let time = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        let arguments = SubmitArgs::new().timespec(&time);
        match ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
            Err(error) => return Err(error),
        }
        self.take_received(bytes)
    }

    /// Gives the kernel a slot to receive into for each socket that has none.
    fn arm(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        for (index, slot) in self.receives.iter_mut().enumerate().filter(|(_, slot)| !slot.is_out) {
            let socket = &self.sockets[index];
            let size = slot.bytes.len();
            slot.point(size, socket.is_stamping());
            let entry = opcode::RecvMsg::new(Fd(socket.as_fd().as_raw_fd()), &raw mut slot.header)
                .build()
                .user_data(index as u64);
            slot.is_out = push(ring, &entry);
        }
    }

    fn take_received(&mut self, bytes: &mut [u8]) -> io::Result<Option<(usize, Single)>> {
        self.take_completions();
        let is_done = |slot: &Slot| slot.is_out && slot.header.msg_flags & COMPLETED != 0;
        let Some(index) = self.receives.iter().position(is_done) else { return Ok(None) };
        let slot = &mut self.receives[index];
        slot.is_out = false;
        slot.header.msg_flags &= !COMPLETED;
        let size = slot.vector.iov_len;
        if size == FAILED {
            // News of an earlier datagram, or a cancelled wait: the slot is armed again.
            return Ok(None);
        }
        let taken = size.min(bytes.len());
        bytes[..taken].copy_from_slice(&slot.bytes[..taken]);
        let words = &slot.control[..slot.header.msg_controllen.min(CONTROL_SIZE) / 8];
        let mut said = [0; CONTROL_SIZE];
        for (place, word) in said.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let stamp = |(level, kind, data): (i32, i32, &[u8])| {
            (level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPING).then(|| software_stamp(data))?
        };
        let single = Single {
            size: taken,
            source: RawAddress::decode(&slot.address.bytes),
            truncated: size > taken || slot.header.msg_flags & libc::MSG_TRUNC != 0,
            kernel_receive_ns: ControlMessages::new(&said[..words.len() * 8]).find_map(stamp),
        };
        Ok(Some((index, single)))
    }

    /// Notes what the kernel is done with; a receive's result stays in its slot until it is asked for.
    fn take_completions(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        for entry in &mut ring.completion() {
            let place = (entry.user_data() & !SEND) as usize;
            if entry.user_data() & SEND != 0 {
                let slot = &mut self.sends[place];
                (slot.is_out, slot.result) = (false, entry.result());
            } else {
                let slot = &mut self.receives[place];
                slot.header.msg_flags |= COMPLETED;
                slot.vector.iov_len = usize::try_from(entry.result()).unwrap_or(FAILED);
            }
        }
    }
}

/// Our mark in a slot's flags: the kernel uses none of the highest bits there.
const COMPLETED: libc::c_int = 1 << 30;
/// The length of a receive that failed.
const FAILED: usize = usize::MAX;

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: the entry's pointers are to a slot of the ring's owner. The owner keeps the slot in place and untouched until the
    // completion was taken. It completes or leaks every entry before it lets go of the slots.
    unsafe { ring.submission().push(entry) }.is_ok()
}

fn register_napi(ring: &IoUring, time: Duration) -> io::Result<()> {
    let mut napi = Napi {
        busy_poll_to: u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
        prefer_busy_poll: 1,
        opcode: 0,
        padding: [0; 2],
        parameter: 0,
        reserved: 0,
    };
    // SAFETY: the pointer is to a structure of the kernel's layout, borrowed mutably for the whole call; the kernel may
    // write to it what was registered before.
    let answer = unsafe {
        libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), REGISTER_NAPI, &raw mut napi, 1)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Drop for UringSockets {
    fn drop(&mut self) {
        let cancelled = match &self.ring {
            Some(ring) => ring.submitter().register_sync_cancel(None, CancelBuilder::any()),
            None => Ok(()),
        };
        let nothing_there = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        if cancelled.as_ref().is_err_and(|error| !nothing_there(error)) {
            // The kernel may still write: better to lose the memory than to lend it to others.
            mem::forget(mem::take(&mut self.receives));
            mem::forget(mem::take(&mut self.sends));
        }
        // The ring goes before the slots.
        self.ring = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    use punctual_machine::socket::UdpOptions;

    /// Goal: a datagram that was refused because of an earlier one is no loss of the wire. Method: nobody is at the port of the first,
    /// of which the kernel tells when the second is sent.
    #[test]
    fn news_of_an_earlier_datagram_cost_none() {
        let (here, there) = (bind(false), bind(false));
        let target = there.local_address().unwrap();
        here.connect(target).unwrap();
        drop(there);
        let here = UringSockets::new(vec![here], 64, None);
        let Ok(mut here) = here else {
            punctual_machine::skipped!("{}", here.unwrap_err());
            return;
        };
        assert!(here.send(0, b"first", None));
        sleep(Duration::from_millis(20));
        let there = UdpSocket::bind(target, &UdpOptions::default()).unwrap();
        assert!(here.send(0, b"second", None));
        let mut there = UringSockets::new(vec![there], 64, None).unwrap();
        let mut buffer = [0; 64];
        let (_, got) = there.receive(&mut buffer, Duration::from_secs(10)).unwrap().expect("it comes");
        assert_eq!(&buffer[..got.size], b"second");
    }

    fn bind(timestamps: bool) -> UdpSocket {
        let options = UdpOptions { timestamps, ..UdpOptions::default() };
        UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()
    }

    #[test]
    fn datagrams_go_there_and_back() {
        let (here, there) = (bind(false), [bind(true), bind(false)]);
        let (source, targets) =
            (here.local_address().unwrap(), there.each_ref().map(|s| s.local_address().unwrap()));
        let rings = UringSockets::new(vec![here], 64, None)
            .and_then(|here| Ok((here, UringSockets::new(there.into(), 64, None)?)));
        let Ok((mut here, mut there)) = rings else {
            punctual_machine::skipped!("{}", rings.unwrap_err());
            return;
        };
        let mut buffer = [0; 64];
        assert!(there.receive(&mut buffer, Duration::from_millis(1)).unwrap().is_none());
        for round in 0..300_usize {
            let which = round % 2;
            assert!(here.send(0, &[round as u8; 40], Some(targets[which])));
            let got = there.receive(&mut buffer, Duration::from_secs(10)).unwrap().expect("it comes");
            assert_eq!((got.0, got.1.size, got.1.source), (which, 40, source));
            assert_eq!(buffer[..40], [round as u8; 40]);
            assert!(there.send(which, b"back", Some(source)));
            let (_, back) = here.receive(&mut buffer, Duration::from_secs(10)).unwrap().expect("it comes");
            assert_eq!((back.size, back.source, &buffer[..4]), (4, targets[which], &b"back"[..]));
        }
    }
}
