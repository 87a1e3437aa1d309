//! The kernel's deferred work (softirqs), filtered in the kernel. Every datagram over loopback does some: two records for each were
//! a fifth of a round trip, and reading the clock for each a twentieth.
//!
//! A thread that sends over loopback receives for its peer within its own call: that is its own work, and passes unseen. Programs at
//! the tracepoints of interrupts mark their CPU. Receiving is timed on a marked CPU alone, until a short piece of it has passed. Every
//! other kind of deferred work is rare, and timed always.
//!
//! Two programs stand at the tracepoints of its beginning and its end. Work that took [`LONG_NS`] is recorded by itself, when it ends.
//! Shorter work is recorded as a sum, whenever that is [`SUM_NS`] within [`WINDOW_NS`]. Work that never reaches this sum takes less
//! than a tenth of the time.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::bpf::*;

/// Deferred work that is recorded by itself.
const LONG_NS: u32 = 20_000;
/// Short work is recorded when it sums up to this,
const SUM_NS: u32 = 200_000;
/// within this.
const WINDOW_NS: u32 = 2_000_000;

/// No sum is of a longer time: a window, and the last piece of it.
const SUM_NS_MAX: u64 = WINDOW_NS as u64 + LONG_NS as u64;

/// The number that a record has in place of a tracepoint's. No tracepoint has it.
const ID: u16 = 0;
/// Bytes of a record: the number, padding, the kind of the work, how long it took, and of a sum in how long a time.
const RECORD_SIZE: usize = 24;

/// A CPU's state, in words: start of its work, or 0; start of its window; time of the work in this window; mark of an interrupt.
const WORDS: usize = 4;
const BEGAN_AT: i16 = 0;
const WINDOW_AT: i16 = 8;
const SUM_AT: i16 = 16;
const INTERRUPTED_AT: i16 = 24;

/// Receiving, as `/proc/softirqs` orders the kinds: the one that a thread's own sending does.
const RECEIVING: i32 = 3;

/// Tracepoints of the interrupts that deferred work follows: devices', and those by which CPUs steer packets to each other.
#[cfg(target_arch = "x86_64")]
const INTERRUPTS: [&CStr; 4] =
    [c"irq_handler_entry", c"local_timer_entry", c"call_function_entry", c"call_function_single_entry"];
#[cfg(not(target_arch = "x86_64"))]
const INTERRUPTS: [&CStr; 2] = [c"irq_handler_entry", c"ipi_entry"];

const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const PROGRAM_TYPE_RAW_TRACEPOINT: u32 = 17;
const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const HELPER_TIME: i32 = 5;
const HELPER_PERF_OUTPUT: i32 = 25;
/// `BPF_F_CURRENT_CPU`.
const CURRENT_CPU: u64 = 0xffff_ffff;

/// Keeps the programs at their tracepoints until it is dropped.
#[derive(Debug)]
pub(super) struct DeferredWork {
    /// The event that a CPU's records go to, by the CPU's number.
    events: OwnedFd,
    /// The state of each CPU.
    state: OwnedFd,
    links: Vec<OwnedFd>,
}

/// The kernel's `raw_tracepoint` part of `bpf_attr`.
#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    padding: u32,
}

impl DeferredWork {
    /// For CPUs by their numbers, all below `cpus`. Nothing is recorded yet.
    pub(super) fn new(cpus: u32) -> io::Result<Self> {
        let events = map(MAP_TYPE_PERF_EVENT_ARRAY, 4, cpus)?;
        let state = map(MAP_TYPE_PERCPU_ARRAY, size_of::<[u64; WORDS]>() as u32, 1)?;
        Ok(Self { events, state, links: Vec::new() })
    }

    /// Records of a CPU go to this event from now on.
    pub(super) fn record_to(&self, cpu: u32, event: RawFd) -> io::Result<()> {
        let mut event = event.cast_unsigned();
        access(MAP_UPDATE, &self.events, cpu, &mut event)
    }

    /// Begins to record.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        let (state, events) = (self.state.as_raw_fd(), self.events.as_raw_fd());
        for name in INTERRUPTS {
            self.attach(name, &interrupted(state))?;
        }
        self.attach(c"softirq_exit", &ending(state, events))?;
        self.attach(c"softirq_entry", &beginning(state))
    }

    fn attach(&mut self, name: &CStr, program: &[Instruction]) -> io::Result<()> {
        let program = load(PROGRAM_TYPE_RAW_TRACEPOINT, 0, program)?;
        let attributes = RawTracepoint {
            name: name.as_ptr() as u64,
            program: program.as_raw_fd().cast_unsigned(),
            padding: 0,
        };
        self.links.push(bpf(RAW_TRACEPOINT_OPEN, &attributes).map(owned)?);
        Ok(())
    }
}

/// Where programs end.
const END: i16 = label(0);
const WITHIN: i16 = label(1);
const RECORD: i16 = label(2);
const TIMED: i16 = label(3);
const SHORT: i16 = label(4);

/// An interrupt begins: marks its CPU.
fn interrupted(state: RawFd) -> Vec<Instruction> {
    let mut program = Assembler::default();
    program.look_up_first(state, END);
    program.put(&[op(STORE_IMMEDIATE64, 0, 0, INTERRUPTED_AT, 1)]);
    end(program)
}

/// Deferred work begins: notes when, unless it is a thread's own. Registers: 6 context, then the CPU's state; 7 the kind of the work.
fn beginning(state: RawFd) -> Vec<Instruction> {
    let mut program = Assembler::default();
    program.put(&[op(MOVE, 6, 1, 0, 0)]);
    program.look_up_first(state, END);
    program.put(&[
        // The tracepoint's only argument.
        op(LOAD64, 7, 6, 0, 0),
        op(MOVE, 6, 0, 0, 0),
        op(JUMP_NOT_EQUAL, 7, 0, TIMED, RECEIVING),
        op(LOAD64, 1, 6, INTERRUPTED_AT, 0),
        op(JUMP_EQUAL, 1, 0, END, 0),
    ]);
    program.place(TIMED);
    program.put(&[op(CALL, 0, 0, 0, HELPER_TIME), op(STORE64, 6, 0, BEGAN_AT, 0)]);
    end(program)
}

/// Deferred work ends. Registers: 6 context; 7 the CPU's state; 8 when the work began; 9 now; 1 how long it took, or the sum; 3 of a sum
/// the time since its window began, else 0.
fn ending(state: RawFd, events: RawFd) -> Vec<Instruction> {
    let mut program = Assembler::default();
    program.put(&[op(MOVE, 6, 1, 0, 0)]);
    program.look_up_first(state, END);
    program.put(&[
        op(MOVE, 7, 0, 0, 0),
        op(LOAD64, 8, 7, BEGAN_AT, 0),
        // It is a thread's own, or began before the programs were there.
        op(JUMP_EQUAL, 8, 0, END, 0),
        op(STORE_IMMEDIATE64, 7, 0, BEGAN_AT, 0),
        op(CALL, 0, 0, 0, HELPER_TIME),
        op(MOVE, 9, 0, 0, 0),
        op(MOVE, 1, 9, 0, 0),
        op(SUBTRACT, 1, 8, 0, 0),
        op(MOVE_IMMEDIATE, 3, 0, 0, 0),
        op(JUMP_NOT_LESS_IMMEDIATE, 1, 0, RECORD, LONG_NS as i32),
        // Receiving that is short has no more to come behind it: the next is a thread's own.
        op(LOAD64, 2, 6, 0, 0),
        op(JUMP_NOT_EQUAL, 2, 0, SHORT, RECEIVING),
        op(STORE_IMMEDIATE64, 7, 0, INTERRUPTED_AT, 0),
    ]);
    program.place(SHORT);
    program.put(&[
        op(MOVE, 3, 9, 0, 0),
        op(LOAD64, 2, 7, WINDOW_AT, 0),
        op(SUBTRACT, 3, 2, 0, 0),
        op(JUMP_LESS_IMMEDIATE, 3, 0, WITHIN, WINDOW_NS as i32),
        // A new window begins with this work.
        op(STORE64, 7, 8, WINDOW_AT, 0),
        op(STORE64, 7, 1, SUM_AT, 0),
        op(JUMP, 0, 0, END, 0),
    ]);
    program.place(WITHIN);
    program.put(&[
        op(LOAD64, 2, 7, SUM_AT, 0),
        op(ADD, 1, 2, 0, 0),
        op(STORE64, 7, 1, SUM_AT, 0),
        op(JUMP_LESS_IMMEDIATE, 1, 0, END, SUM_NS as i32),
    ]);
    program.place(RECORD);
    program.put(&[
        // Else the next sum would reach back into this record.
        op(STORE64, 7, 9, WINDOW_AT, 0),
        op(STORE_IMMEDIATE64, 7, 0, SUM_AT, 0),
        op(STORE_IMMEDIATE64, 10, 0, -24, ID.into()),
        // The tracepoint's only argument is the kind of the work.
        op(LOAD64, 2, 6, 0, 0),
        op(STORE32, 10, 2, -20, 0),
        op(STORE64, 10, 1, -16, 0),
        op(STORE64, 10, 3, -8, 0),
        op(MOVE, 1, 6, 0, 0),
        op(LOAD_IMMEDIATE64, 2, PSEUDO_MAP_FD, 0, events),
        op(0, 0, 0, 0, 0),
    ]);
    program.constant(3, CURRENT_CPU);
    program.put(&[
        op(MOVE, 4, 10, 0, 0),
        op(ADD_IMMEDIATE, 4, 0, 0, -(RECORD_SIZE as i32)),
        op(MOVE_IMMEDIATE, 5, 0, 0, RECORD_SIZE as i32),
        op(CALL, 0, 0, 0, HELPER_PERF_OUTPUT),
    ]);
    end(program)
}

fn end(mut program: Assembler) -> Vec<Instruction> {
    program.place(END);
    program.put(&[op(MOVE_IMMEDIATE, 0, 0, 0, 0), op(EXIT, 0, 0, 0, 0)]);
    program.finish()
}

/// Work that has ended, as a record of these programs tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// Its kind; of a sum that of the last.
    pub(super) vector: u32,
    /// Its duration.
    pub(super) lasted_ns: u64,
    /// Of a sum the time before, in which its pieces came: where in that nobody knows. Else 0.
    pub(super) within_ns: u64,
}

impl Done {
    /// From the bytes of a record, if it is one of these.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        if u16::from_le_bytes(*data.first_chunk()?) != ID {
            return None;
        }
        let vector = u32::from_le_bytes(*data.get(4..)?.first_chunk()?);
        let word = |at: usize| Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?));
        let (lasted_ns, within_ns) = (word(8)?, word(16)?);
        Some(Self { vector, lasted_ns, within_ns })
    }

    /// When it was, if it ended then. A sum's pieces are spread evenly over their time: each part of that has its share of the work.
    pub(super) fn spans(self, ended_ns: u64) -> Vec<(u64, u64)> {
        let sum_ns = self.lasted_ns.min(SUM_NS_MAX);
        if self.within_ns <= sum_ns || sum_ns == 0 {
            return vec![(ended_ns.saturating_sub(self.lasted_ns), ended_ns)];
        }
        let within_ns = self.within_ns.min(SUM_NS_MAX);
        let begin_ns = ended_ns.saturating_sub(within_ns);
        let pieces = sum_ns.div_ceil(LONG_NS.into());
        let piece = |number: u64| {
            let end_ns = begin_ns + within_ns * (number + 1) / pieces;
            (end_ns.saturating_sub(sum_ns / pieces).max(begin_ns), end_ns)
        };
        (0..pieces).map(piece).collect()
    }
}
