//! The memory shared with the kernel: a ring of frames.
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

use super::Layout;
use crate::socket::set_option;
use crate::sync::{AtomicU32, Ordering};

/// The status word is the first of the header.
const _: () = assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_status) == 0);

/// The ring's memory, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    memory: NonNull<u8>,
    frames: usize,
    frame_size: usize,
}

impl Mapping {
    /// Has the kernel allocate the receiving ring of the socket, and maps it.
    fn new(fd: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        let Layout { frames, frame_size } = layout;
        let request = ring_request(layout)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // POPULATE touches every page now instead of in the hot path.
        // SAFETY: the address is the kernel's choice, so that no existing mapping is replaced.
        let memory = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                frames * frame_size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { memory, frames, frame_size })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one `new` mapped; the ring that points into it is going with it (rule 3).
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.frames * self.frame_size) };
    }
}

/// The kernel takes whole blocks of whole pages. With powers of two, frames tile blocks without a gap and
/// the ring is one array.
fn ring_request(layout: Layout) -> io::Result<libc::tpacket_req> {
    let Layout { frames, frame_size } = layout;
    let block_size = frame_size.max(rustix::param::page_size());
    let blocks = frames * frame_size / block_size;
    if blocks == 0 {
        let text = format!("{frames} frames of {frame_size} bytes do not fill a page: pass more");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let word = |value: usize| u32::try_from(value).map_err(|_| io::ErrorKind::InvalidInput);
    Ok(libc::tpacket_req {
        tp_block_size: word(block_size)?,
        tp_block_nr: word(blocks)?,
        tp_frame_size: word(frame_size)?,
        tp_frame_nr: word(frames)?,
    })
}

/// One ring: an array of frames, addressed by a position that only grows.
#[derive(Debug)]
pub(super) struct Frames {
    /// Rule 4: never read, held so that the memory outlives the ring.
    _mapping: Mapping,
    memory: *mut u8,
    mask: usize,
    size: usize,
}

// SAFETY: `memory` points into a mapping that the ring owns (rule 3) and that is not bound to a thread.
unsafe impl Send for Frames {}

impl Frames {
    /// The receiving ring of the socket.
    pub(super) fn map(fd: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        let mapping = Mapping::new(fd, layout)?;
        let (memory, mask, size) = (mapping.memory.as_ptr(), mapping.frames - 1, mapping.frame_size);
        Ok(Self { _mapping: mapping, memory, mask, size })
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn count(&self) -> usize {
        self.mask + 1
    }

    #[inline]
    fn start(&self, position: usize) -> *mut u8 {
        self.memory.wrapping_add((position & self.mask) * self.size)
    }

    #[inline]
    fn status_word(&self, position: usize) -> &AtomicU32 {
        // SAFETY: by rule 3 the frame lies in the mapping, at a multiple of a power of two of at least 256,
        // so it is aligned; the kernel touches the word only as a whole.
        unsafe { &*self.start(position).cast::<AtomicU32>() }
    }

    /// Rule 2: acquire, before anything else of the frame is read.
    #[inline]
    pub(super) fn status(&self, position: usize) -> u32 {
        self.status_word(position).load(Ordering::Acquire)
    }

    /// Rule 2: release, after everything else of the frame was written or read.
    #[inline]
    pub(super) fn hand_over(&mut self, position: usize, status: u32) {
        self.status_word(position).store(status, Ordering::Release);
    }

    /// The header but for its status. The caller owns the frame (rule 1).
    #[inline]
    pub(super) fn header(&self, position: usize) -> libc::tpacket2_hdr {
        // SAFETY: by rule 3 the header lies in the mapping and is aligned; the kernel does not write a frame
        // that rule 1 gives to us.
        unsafe { ptr::read(self.start(position).cast::<libc::tpacket2_hdr>()) }
    }

    /// Bytes of a frame that the caller owns (rule 1); `None` if the range leaves the frame.
    #[inline]
    pub(super) fn bytes(&self, position: usize, offset: usize, size: usize) -> Option<&[u8]> {
        if offset < STATUS_SIZE || offset.checked_add(size)? > self.size {
            return None;
        }
        // SAFETY: the range lies in the frame, the frame in the mapping (rule 3), past the status word; the
        // kernel does not write a frame that rule 1 gives to us, and `&self` keeps the ring from being
        // handed over meanwhile.
        Some(unsafe { std::slice::from_raw_parts(self.start(position).wrapping_add(offset), size) })
    }
}

/// The status word is never part of a slice: it is shared even in a frame that is ours.
const STATUS_SIZE: usize = size_of::<u32>();
