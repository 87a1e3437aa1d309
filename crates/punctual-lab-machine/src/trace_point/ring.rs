//! One CPU's ring: the events that write it, and its mapping.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

use punctual_machine::sync::{AtomicU64, Ordering};

/// Bytes next to the oldest record that may be written while the ring is paused (rule 2): more than records of all four levels
/// of interrupts that can be under way together.
pub(super) const MARGIN: usize = 4096;

/// Where the first page of the mapping, `perf_event_mmap_page`, has the position of the newest record.
const HEAD_OFFSET: usize = 1024;

/// Bytes of a record's header: kind, flags, size.
pub(super) const HEADER_SIZE: usize = 8;

/// The kernel's `perf_event_attr`, fifth version, with the fields that are not used here as space.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    _unused: [u64; 5],
    _sample_stack_user: u32,
    clock: i32,
    _rest: [u64; 2],
}

const _: () = assert!(size_of::<Attributes>() == 112, "PERF_ATTR_SIZE_VER5");

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_BPF_OUTPUT`.
const BPF_OUTPUT: u64 = 10;
/// `PERF_SAMPLE_TIME | PERF_SAMPLE_RAW`.
const SAMPLE_TIME_AND_RAW: u64 = 1 << 2 | 1 << 10;
/// `disabled`, `sample_id_all`, `use_clockid`, `write_backward`.
const FLAGS: u64 = 1 | 1 << 18 | 1 << 25 | 1 << 27;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: libc::c_ulong = 0x2400;
/// `PERF_EVENT_IOC_SET_OUTPUT`.
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// `PERF_EVENT_IOC_PAUSE_OUTPUT`.
const PAUSE: libc::c_ulong = 0x4004_2409;

/// `PERF_EVENT_IOC_SET_FILTER`.
const SET_FILTER: libc::c_ulong = 0x4008_2406;

/// A resource that a ring could not get.
#[derive(Debug)]
pub(super) enum RingError {
    /// An event.
    Event(io::Error),
    /// Its memory, which the kernel locks.
    Memory(io::Error),
}

impl From<io::Error> for RingError {
    fn from(error: io::Error) -> Self {
        Self::Event(error)
    }
}

/// Events of one CPU that write one ring.
#[derive(Debug)]
pub(super) struct Ring {
    /// The first owns the ring.
    events: Vec<OwnedFd>,
    /// So many of the last have a filter.
    filtered: usize,
    /// Descriptor by which programs of ours write the ring.
    output: Option<OwnedFd>,
    start: NonNull<u8>,
    page_size: usize,
    size: usize,
}

// SAFETY: it owns its mapping, which is bound to no thread.
unsafe impl Send for Ring {}

/// Copy of a ring's records, the newest first.
#[derive(Debug, Default)]
pub(super) struct RingCopy {
    /// The bytes.
    pub(super) bytes: Vec<u8>,
    /// There were older records, or may have been.
    pub(super) is_cut: bool,
}

impl Ring {
    /// The ring of one CPU, of `size` bytes, for tracepoints by their numbers. They are not enabled yet. So many of the
    /// last are `filtered` by [`Self::filter`].
    pub(super) fn open(cpu: u32, ids: &[u16], filtered: usize, size: usize) -> Result<Self, RingError> {
        let open = |&id: &u16| open_event(cpu, TRACEPOINT, id.into());
        let events = ids.iter().map(open).collect::<io::Result<Vec<_>>>()?;
        let first = events.first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let page_size = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice replaces none. Mapped without the right to write, the
        // ring overwrites its oldest records.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), page_size + size, ProtFlags::READ, MapFlags::SHARED, first, 0)
        };
        let start = start.map_err(|error| RingError::Memory(error.into()))?;
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        let ring = Self { events, filtered, output: None, start, page_size, size };
        for event in &ring.events[1..] {
            control(event, SET_OUTPUT, ring.events[0].as_raw_fd().cast_unsigned().into())?;
        }
        Ok(ring)
    }

    /// Only what this filter lets pass is recorded of the events that have one. The kernel takes one filter for each event, once.
    pub(super) fn filter(&self, filter: &CStr) -> io::Result<()> {
        let first = self.events.len().saturating_sub(self.filtered);
        self.events[first..].iter().try_for_each(|event| set_filter(event, filter))
    }

    /// An event that a program in the kernel writes this ring by.
    pub(super) fn open_output(&mut self, cpu: u32) -> io::Result<RawFd> {
        let output = self.output.insert(open_event(cpu, SOFTWARE, BPF_OUTPUT)?);
        control(output, SET_OUTPUT, self.events[0].as_raw_fd().cast_unsigned().into())?;
        Ok(output.as_raw_fd())
    }

    pub(super) fn enable(&self) -> io::Result<()> {
        self.events.iter().chain(&self.output).try_for_each(|event| control(event, ENABLE, 0))
    }

    pub(super) fn set_paused(&mut self, paused: bool) -> io::Result<()> {
        control(&self.events[0], PAUSE, paused.into())
    }

    /// Copies records, from the newest on, up to and including the first that is not `wanted`. The ring is paused.
    pub(super) fn copy(&mut self, wanted: impl Fn(&[u8]) -> bool) -> RingCopy {
        // SAFETY: the word lies in the first page of the mapping and is aligned; the kernel writes it as a whole.
        let head = unsafe { &*self.start.as_ptr().wrapping_add(HEAD_OFFSET).cast::<AtomicU64>() };
        // Positions count down from zero; acquire ordering: the records behind the position are written.
        let head = head.load(Ordering::Acquire);
        let written = usize::try_from(head.wrapping_neg()).unwrap_or(usize::MAX);
        let readable = written.min(self.size - MARGIN);
        let from = usize::try_from(head % self.size as u64).unwrap_or(0);
        let mut copy = RingCopy { bytes: Vec::new(), is_cut: written > readable };
        let mut done = 0;
        while let Some(size) = self.record_size(from + done).filter(|size| done + size <= readable) {
            let begin = copy.bytes.len();
            self.extend(&mut copy.bytes, from + done, size);
            done += size;
            if !wanted(&copy.bytes[begin..]) {
                copy.is_cut = true;
                break;
            }
        }
        copy.is_cut |= done < readable;
        copy
    }

    /// Size in the header at a place; `None` if it is not valid.
    fn record_size(&self, place: usize) -> Option<usize> {
        let mut header = Vec::with_capacity(HEADER_SIZE);
        self.extend(&mut header, place, HEADER_SIZE);
        let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
        (size >= HEADER_SIZE && size.is_multiple_of(8)).then_some(size)
    }

    /// Bytes of the ring from a place on, round its end.
    fn extend(&self, bytes: &mut Vec<u8>, place: usize, size: usize) {
        let place = place % self.size;
        let first = size.min(self.size - place);
        for (place, size) in [(place, first), (0, size - first)] {
            let start = self.start.as_ptr().wrapping_add(self.page_size + place);
            // SAFETY: the range lies in the mapping; by rule 2 the kernel does not write it while the ring is paused.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, size) });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `open` mapped, and nothing points into it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.page_size + self.size) };
    }
}

fn open_event(cpu: u32, kind: u32, config: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        sample_period: 1,
        sample_type: SAMPLE_TIME_AND_RAW,
        read_format: 0,
        flags: FLAGS,
        _unused: [0; 5],
        _sample_stack_user: 0,
        clock: libc::CLOCK_MONOTONIC,
        _rest: [0; 2],
    };
    // SAFETY: the kernel reads `attributes`, whose true size it is told, and which is borrowed for the whole call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1_i32, cpu, -1_i32, CLOSE_ON_EXEC)
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_filter(event: &OwnedFd, filter: &CStr) -> io::Result<()> {
    // SAFETY: the kernel reads the text, which ends with a zero and is borrowed for the whole call.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER as _, filter.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests take a number, and touch no memory of this process.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
