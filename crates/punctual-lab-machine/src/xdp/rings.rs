//! The four rings and the memory of frames that the kernel shares with an AF_XDP socket.
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

use punctual_machine::socket::set_option;
use punctual_machine::sync::{AtomicU32, Ordering};

/// Bytes of one frame: half a page, which holds an MTU of 1,500 and the headroom that the kernel leaves before a packet.
pub(super) const FRAME_SIZE: usize = 2048;
/// Frames of each direction. Receiving and sending never share one.
pub(super) const FRAMES: u32 = 1024;
/// All frames: those that are received into, then those that are sent from.
pub(super) const MEMORY_SIZE: usize = 2 * FRAMES as usize * FRAME_SIZE;

const _: () = assert!(FRAMES.is_power_of_two(), "positions are masked");

/// A mapping of the kernel's or our own, as long as it lives.
#[derive(Debug)]
pub(super) struct Mapped {
    start: NonNull<u8>,
    size: usize,
}

impl Mapped {
    fn of(socket: BorrowedFd<'_>, size: usize, offset: u64) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces none.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags, socket, offset)
        }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?, size })
    }

    fn anonymous(size: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: as above.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?, size })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.size, "inside of the mapping");
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is the one that was mapped; everything that points into it goes with it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// The memory of frames (rule 1 of the module).
#[derive(Debug)]
pub(super) struct Memory(Mapped);

// SAFETY: memory that is reached through `&self` and `&mut self` alone, and bound to no thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory of [`MEMORY_SIZE`] bytes, known to the socket.
    pub(super) fn register(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let memory = Self(Mapped::anonymous(MEMORY_SIZE)?);
        let registration = Registration {
            address: memory.0.start.as_ptr() as u64,
            size: MEMORY_SIZE as u64,
            frame_size: FRAME_SIZE as u32,
            headroom: 0,
        };
        set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)?;
        Ok(memory)
    }

    /// Bytes of a frame that is ours; `None` if the range leaves the memory.
    pub(super) fn bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let start = checked(address, size)?;
        // SAFETY: the range lies in the mapping (checked); by rule 1 the kernel leaves the frame alone while it is ours.
        Some(unsafe { std::slice::from_raw_parts(self.0.at(start), size) })
    }

    /// The same, to write to.
    pub(super) fn bytes_mut(&mut self, address: u64, size: usize) -> Option<&mut [u8]> {
        let start = checked(address, size)?;
        // SAFETY: as above, and `&mut self` keeps others from reading it meanwhile.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.at(start), size) })
    }
}

fn checked(address: u64, size: usize) -> Option<usize> {
    let start = usize::try_from(address).ok()?;
    (size > 0 && start.checked_add(size)? <= MEMORY_SIZE).then_some(start)
}

/// The kernel's `xdp_umem_reg`, first version.
#[repr(C)]
#[derive(Clone, Copy)]
struct Registration {
    address: u64,
    size: u64,
    frame_size: u32,
    headroom: u32,
}

/// Kind of a ring.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Frames for the kernel to receive into.
    Fill,
    /// Frames that were received.
    Receive,
    /// Frames to be sent.
    Transmit,
    /// Frames that were sent.
    Completion,
}

/// A ring with one producer and one consumer, of which we are one (rule 2).
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapped: Mapped,
    producer: usize,
    consumer: usize,
    entries: usize,
    /// Our own position: the other side only reads it.
    position: u32,
    _of: std::marker::PhantomData<T>,
}

// SAFETY: it owns its mapping, which is bound to no thread.
unsafe impl<T> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Asks the kernel for the ring and maps it.
    pub(super) fn map(socket: BorrowedFd<'_>, kind: Kind) -> io::Result<Self> {
        let (option, page_offset) = match kind {
            Kind::Fill => (libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING),
            Kind::Receive => (libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING as u64),
            Kind::Transmit => (libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING as u64),
            Kind::Completion => (libc::XDP_UMEM_COMPLETION_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING),
        };
        set_option(socket, libc::SOL_XDP, option, &FRAMES)?;
        let all = offsets(socket)?;
        let of = match kind {
            Kind::Fill => all.fr,
            Kind::Receive => all.rx,
            Kind::Transmit => all.tx,
            Kind::Completion => all.cr,
        };
        let place = |offset: u64| usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidData);
        let entries = place(of.desc)?;
        let size = entries + FRAMES as usize * size_of::<T>();
        let mapped = Mapped::of(socket, size, page_offset)?;
        let (producer, consumer) = (place(of.producer)?, place(of.consumer)?);
        let aligned = producer.is_multiple_of(4) && consumer.is_multiple_of(4);
        if !aligned || producer.max(consumer) + 4 > size || !entries.is_multiple_of(align_of::<T>()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a ring laid out in an unknown way"));
        }
        Ok(Self { mapped, producer, consumer, entries, position: 0, _of: std::marker::PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the word lies in the mapping and is aligned; both sides touch it as a whole.
        unsafe { &*self.mapped.at(offset).cast::<AtomicU32>() }
    }

    fn entry(&self, position: u32) -> *mut T {
        let place = (position & (FRAMES - 1)) as usize;
        self.mapped.at(self.entries + place * size_of::<T>()).cast()
    }

    /// As consumer: the next entry, if there is one.
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.word(self.producer).load(Ordering::Acquire) == self.position {
            return None;
        }
        // SAFETY: the entry lies in the mapping (the position is masked) and is aligned; by rule 2 the kernel has written
        // it before the producer's position, which was read with acquire ordering, and leaves it until we have passed.
        let value = unsafe { self.entry(self.position).read() };
        self.position = self.position.wrapping_add(1);
        self.word(self.consumer).store(self.position, Ordering::Release);
        Some(value)
    }

    /// As producer: adds an entry, if there is room.
    #[inline]
    pub(super) fn put(&mut self, value: T) -> bool {
        let taken = self.word(self.consumer).load(Ordering::Acquire);
        if self.position.wrapping_sub(taken) >= FRAMES {
            return false;
        }
        // SAFETY: as above; by rule 2 the kernel reads the entry only after the position that is stored below.
        unsafe { self.entry(self.position).write(value) };
        self.position = self.position.wrapping_add(1);
        self.word(self.producer).store(self.position, Ordering::Release);
        true
    }
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: the structure is integers, for which all zero is a valid value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the pointers describe `offsets` and its true size, both borrowed for the whole call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut size,
        )
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(offsets) }
}

/// An AF_XDP socket that is bound to nothing yet.
pub(super) fn open() -> io::Result<OwnedFd> {
    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
    let family = rustix::net::AddressFamily::from_raw(libc::AF_XDP as rustix::net::RawAddressFamily);
    Ok(rustix::net::socket_with(family, rustix::net::SocketType::RAW, flags, None)?)
}

/// Binds it to a queue of an interface. Frames are copied: no driver is asked for more.
pub(super) fn bind(socket: &OwnedFd, interface: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let size = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the pointer and the size describe `address`, borrowed for the whole call.
    let answer = unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const address).cast(), size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
