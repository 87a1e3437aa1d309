//! A peer that truncates a file that we map does not end us.
//!
//! Touching a page of a mapping that no longer lies in its file raises SIGBUS. Files of a tmpfs, unlike memfds, cannot be sealed
//! against shrinking. So the signal is caught: if the address lies in one of our mappings, all of that mapping is replaced by private
//! zeroes, and the access goes on. Readers find a ring in which nothing more appears, and their peer's memory no longer changes.
//! libwayland does the same with its clients' buffers (`wl_shm_buffer_begin_access`). Any other SIGBUS goes to its earlier handler. A
//! thread that has closed the signal would be killed all the same. So a thread that maps a file opens the signal for itself.
//!
//! Rules, cited by the SAFETY comments:
//! 1. A range stands in the table only while it is mapped: it is entered after `mmap` and taken out before `munmap`.
//! 2. The handler only loads atomics, calls `mmap`, `sigaction` and `raise`: nothing that is not safe in a signal handler.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::SystemError;
use crate::guarded_range::GuardedRange;

/// Ranges of one part of the table: as many as a node of a large bus maps.
const RANGES: usize = 512;

/// A part of the table, and the next. Parts are never freed: the handler may read them at any instant.
#[derive(Debug)]
struct Table {
    ranges: [GuardedRange; RANGES],
    next: OnceLock<Box<Table>>,
}

impl Table {
    const fn new() -> Self {
        Self { ranges: [const { GuardedRange::free() }; RANGES], next: OnceLock::new() }
    }

    fn ranges(&self) -> impl Iterator<Item = &GuardedRange> {
        std::iter::successors(Some(self), |table| table.next.get().map(|next| &**next))
            .flat_map(|table| &table.ranges)
    }
}

static TABLE: Table = Table::new();
/// Lock for changes to the table, and entries that a change need not search for: a process with many nodes maps tens of thousands of
/// files.
static CHANGES: Mutex<Entries> = Mutex::new(Entries { used: BTreeMap::new(), free: Vec::new(), last: None });

#[derive(Debug)]
struct Entries {
    /// By their starts.
    used: BTreeMap<u64, &'static GuardedRange>,
    free: Vec<&'static GuardedRange>,
    /// The last part of the table; none before the first range.
    last: Option<&'static Table>,
}

impl Entries {
    fn take_free(&mut self) -> &'static GuardedRange {
        if self.free.is_empty() {
            let next = match self.last {
                None => &TABLE,
                Some(last) => &**last.next.get_or_init(|| Box::new(Table::new())),
            };
            self.free.extend(next.ranges.iter().rev());
            self.last = Some(next);
        }
        self.free.pop().expect("a part has ranges")
    }
}

/// The previous handler of the signal.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// From now on a truncation of what is mapped there does no harm to the calling thread, nor to others that have not closed SIGBUS.
pub(crate) fn guard(start: *const u8, size: usize) -> Result<(), SystemError> {
    open_signal()?;
    let mut entries = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if BEFORE.get().is_none() {
        install()?;
    }
    let free = entries.take_free();
    free.enter(start as u64, size as u64);
    entries.used.insert(start as u64, free);
    Ok(())
}

/// It is about to be unmapped.
pub(crate) fn forget(start: *const u8) {
    let mut entries = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(range) = entries.used.remove(&(start as u64)) {
        range.leave();
        entries.free.push(range);
    }
}

/// Opens SIGBUS for the calling thread. A program's workers often close all signals, and the kernel kills a thread that touches what is
/// gone while the signal is closed.
fn open_signal() -> Result<(), SystemError> {
    let mut bus = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set, `sigaddset` changes it, and `pthread_sigmask` reads it.
    let refused = unsafe {
        libc::sigemptyset(bus.as_mut_ptr());
        libc::sigaddset(bus.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, bus.as_ptr(), core::ptr::null_mut())
    };
    match refused {
        0 => Ok(()),
        error => Err(SystemError::new("open signal", "SIGBUS", std::io::Error::from_raw_os_error(error))),
    }
}

fn install() -> Result<(), SystemError> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a value.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
    // The stack that the runtime has for overflows, where it has one. Other signals may come meanwhile.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the handler keeps rule 2; both structures are live.
    if unsafe { libc::sigaction(libc::SIGBUS, core::ptr::null(), &raw mut before) } == -1 {
        return Err(SystemError::last("look up the handler of", "SIGBUS"));
    }
    let _first = BEFORE.set(before);
    // SAFETY: as above.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, core::ptr::null_mut()) } == -1 {
        return Err(SystemError::last("catch", "SIGBUS"));
    }
    Ok(())
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut core::ffi::c_void) {
    if !is_of_access(info) {
        return hand_on(signal, info, context);
    }
    // SAFETY: with SA_SIGINFO the kernel passes a live structure, and of an access `si_addr` is valid.
    let address = unsafe { (*info).si_addr() } as u64;
    // The range of the mapping that was touched stays as long as it is touched. Others come and go meanwhile.
    let mut ranges = TABLE.ranges().filter_map(GuardedRange::read);
    let found = ranges.find(|&(start, size)| address.wrapping_sub(start) < size);
    match found {
        Some((start, size)) if replace(start, size) => {}
        _ => hand_on(signal, info, context),
    }
}

/// True if the thread touched memory, and does so once more. Somebody may have sent the signal (`kill`, `sigqueue`), or the kernel tells
/// of memory that failed elsewhere (`BUS_MCEERR_AO`, sigaction(2)).
fn is_of_access(info: *const libc::siginfo_t) -> bool {
    // SAFETY: with SA_SIGINFO the kernel passes a live structure, in which a code is valid.
    let code = unsafe { (*info).si_code };
    code > 0 && code != libc::BUS_MCEERR_AO
}

/// Puts zeroes where the file was.
fn replace(start: u64, size: u64) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (protection, start) = (libc::PROT_READ | libc::PROT_WRITE, start as *mut core::ffi::c_void);
    // SAFETY: the range is one of our own mappings (rule 1). Nothing is assumed of it but that it is mapped, and that anybody may
    // change it at any instant (rules 1 and 2 of `memory`). Zeroes are as good as any bytes of a peer.
    let mapped = unsafe { libc::mmap(start, size as usize, protection, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

/// Does what would have happened without us.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut core::ffi::c_void) {
    let Some(before) = BEFORE.get() else { return };
    let is_of_access = is_of_access(info);
    if before.sa_sigaction == libc::SIG_IGN && !is_of_access {
        return;
    }
    if before.sa_sigaction == libc::SIG_DFL || before.sa_sigaction == libc::SIG_IGN {
        // SAFETY: the default action is in force when this returns, and the access happens once more. The kernel ignores no signal of
        // an access either.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        if !is_of_access {
            // SAFETY: ends the process, as the signal would have.
            unsafe { libc::raise(signal) };
        }
    } else if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the address was given to the kernel as a handler of this type, by the code that set SA_SIGINFO with it.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut core::ffi::c_void) =
            unsafe { core::mem::transmute(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: as above, without SA_SIGINFO.
        let handler: extern "C" fn(libc::c_int) = unsafe { core::mem::transmute(before.sa_sigaction) };
        handler(signal);
    }
}
