//! The account: an interval of a thread divided into what it went through. The parts tile the interval.

use serde::Serialize;

pub use super::timeline::Interruption;
use super::timeline::{
    State, Stretch, interruptions, leavings, occupants, placings, reclaims, signals, states, tracers,
};
use super::trace::{IDLE, Trace};

/// State of a thread in a part of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// It ran, interrupts taken off.
    Running,
    /// Its CPU was in an interrupt while it ran, or while it was ready.
    Interrupted(Interruption),
    /// It ran, and signals of this number came so close upon one another that it did little else.
    Signalled(u32),
    /// It took memory back from others before it got its own, be it that it ran or waited.
    Reclaiming {
        /// Its control group may have no more; else the machine has none.
        is_limited: bool,
    },
    /// It was ready, and this thread had the CPU where it was queued.
    Ready {
        /// The thread that ran instead.
        instead: u32,
    },
    /// It was taken off its CPU to run on another, and did not run there yet.
    Moving {
        /// The thread that asked for that, as far as that was seen: it may have been itself.
        by: Option<u32>,
    },
    /// It waited for something until it was woken.
    Blocked {
        /// The thread that woke it, as far as that was seen.
        woken_by: Option<u32>,
        /// An interrupt did, while that thread ran.
        is_interrupt: bool,
        /// No signal would have woken it. Nothing where the trace does not tell how the wait began: it may as well be a stop.
        is_uninterruptible: Option<bool>,
    },
    /// The trace shows nothing that kept it from running.
    NotThere(Absence),
    /// Events are missing, or say nothing of it.
    Unexplained,
}

/// Kind of absence of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Absence {
    /// A signal had stopped it.
    Stopped,
    /// A debugger held it.
    Traced,
    /// It was woken, and its CPU idled on: on its way out of a sleep of the processor, or not given time by a hypervisor.
    CpuAsleep,
    /// It was taken off its CPU, which then idled: a quota withholds it, for instance.
    Withheld,
}

/// A part of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When it begins.
    pub from_ns: u64,
    /// When the next begins.
    pub to_ns: u64,
    /// The thread's state.
    pub part: Part,
}

impl Piece {
    /// Its length.
    pub(super) fn ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// An interval, divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The thread whose interval it is.
    pub thread: u32,
    /// They tile the interval, in the order of time.
    pub pieces: Vec<Piece>,
    /// Threads that held this one as a debugger does and let it go on, in all that is known around the interval.
    pub tracers: Vec<u32>,
}

impl Account {
    /// Time of each part, the longest first.
    pub fn sums(&self) -> Vec<(Part, u64)> {
        let mut sums: Vec<(Part, u64)> = Vec::new();
        for piece in &self.pieces {
            let ns = piece.ns();
            match sums.iter_mut().find(|(part, _)| *part == piece.part) {
                Some((_, sum)) => *sum += ns,
                None => sums.push((piece.part, ns)),
            }
        }
        sums.sort_by_key(|&(part, ns)| (std::cmp::Reverse(ns), part));
        sums
    }

    /// When the thread was in this part.
    pub fn spans(&self, part: Part) -> impl Iterator<Item = (u64, u64)> {
        let of = self.pieces.iter().filter(move |piece| piece.part == part);
        of.map(|piece| (piece.from_ns, piece.to_ns))
    }

    /// Time of one part.
    pub fn time_of(&self, part: Part) -> u64 {
        self.spans(part).map(|(from, to)| to - from).sum()
    }

    /// Number of its waits that no signal would have ended.
    pub fn uninterruptible_waits(&self) -> usize {
        let is_one =
            |piece: &&Piece| matches!(piece.part, Part::Blocked { is_uninterruptible: Some(true), .. });
        self.pieces.iter().filter(is_one).count()
    }

    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.pieces.iter().map(Piece::ns).sum()
    }
}

/// Puts pieces beside each other that come in the order of time; time that none covers is unexplained.
struct Tiling {
    pieces: Vec<Piece>,
    at_ns: u64,
    to_ns: u64,
}

impl Tiling {
    fn put(&mut self, from_ns: u64, to_ns: u64, part: Part) {
        let (from_ns, to_ns) = (from_ns.max(self.at_ns), to_ns.min(self.to_ns));
        if from_ns >= to_ns {
            return;
        }
        if from_ns > self.at_ns {
            self.join(from_ns, Part::Unexplained);
        }
        self.join(to_ns, part);
    }

    /// Puts parts as far as they lie in a span, and something else between them.
    fn over(
        &mut self,
        parts: impl Iterator<Item = Stretch<Part>>,
        (from_ns, to_ns): (u64, u64),
        between: Put<'_>,
    ) {
        let mut at_ns = from_ns;
        for one in parts {
            let (begin, end) = (one.from_ns.clamp(from_ns, to_ns), one.to_ns.clamp(from_ns, to_ns));
            if begin < end {
                between(at_ns, begin, self);
                self.put(begin, end, one.what);
                at_ns = end;
            }
        }
        between(at_ns, to_ns, self);
    }

    fn join(&mut self, to_ns: u64, part: Part) {
        match self.pieces.last_mut().filter(|last| last.part == part) {
            Some(last) => last.to_ns = to_ns,
            None => self.pieces.push(Piece { from_ns: self.at_ns, to_ns, part }),
        }
        self.at_ns = to_ns;
    }

    fn finish(mut self) -> Account {
        if self.at_ns < self.to_ns {
            self.join(self.to_ns, Part::Unexplained);
        }
        Account { pieces: self.pieces, ..Account::default() }
    }
}

/// Divides an interval of a thread by what a trace tells.
pub fn account(trace: &Trace, thread: u32, (from_ns, to_ns): (u64, u64)) -> Account {
    let mut tiling = Tiling { pieces: Vec::new(), at_ns: from_ns, to_ns: to_ns.max(from_ns) };
    let mut of_it = Vec::new();
    for known in trace.known() {
        if known.1 <= from_ns || known.0 >= to_ns {
            continue;
        }
        of_it.extend(tracers(trace, thread, known));
        let own = Own::within(trace, thread, known);
        for state in states(trace, thread, known) {
            if state.to_ns > from_ns && state.from_ns < to_ns {
                divide(trace, &own, known, state, &mut tiling);
            }
        }
    }
    Account { thread, tracers: of_it, ..tiling.finish() }
}

/// The part that a wait is, if it is one.
fn wait(state: State) -> Option<Part> {
    let State::Blocked { waker, is_uninterruptible } = state else { return None };
    let woken_by = waker.map(|waker| waker.thread);
    let is_interrupt = waker.is_some_and(|waker| waker.is_interrupt);
    Some(Part::Blocked { woken_by, is_interrupt, is_uninterruptible })
}

/// Activities of a thread besides its work.
struct Own {
    /// While it ran.
    running: Vec<Stretch<Part>>,
    /// While it waited.
    blocked: Vec<Stretch<Part>>,
    /// When it was placed on another CPU: from which, and on which.
    placings: Vec<(u64, (u32, u32))>,
    /// When it left which CPU.
    leavings: Vec<(u64, u32)>,
}

/// Where a thread was queued that was ready.
#[derive(Clone, Copy, Debug)]
struct Queue {
    cpu: u32,
    /// It ran on another CPU before, and nothing tells when it was placed on this one.
    is_guessed: bool,
}

impl Own {
    fn within(trace: &Trace, thread: u32, known: (u64, u64)) -> Self {
        let reclaiming = |one: Stretch<bool>| one.map(|is_limited| Part::Reclaiming { is_limited });
        let blocked: Vec<Stretch<Part>> =
            reclaims(trace, thread, known).into_iter().map(reclaiming).collect();
        let storms = signals(trace, thread, known).into_iter().map(|one| one.map(Part::Signalled));
        let mut running: Vec<Stretch<Part>> = storms.chain(blocked.iter().copied()).collect();
        running.sort_by_key(|one| one.from_ns);
        let (placings, leavings) = (placings(trace, thread, known), leavings(trace, thread, known));
        Self { running, blocked, placings, leavings }
    }

    /// Where it was queued between two instants, when it was ready, and ran on a CPU then: another CPU may have pulled it there.
    fn queues(&self, (from_ns, to_ns): (u64, u64), next: u32) -> Vec<Stretch<Queue>> {
        let first = self.placings.partition_point(|&(at, _)| at < from_ns);
        let last = self.placings.partition_point(|&(at, _)| at <= to_ns);
        let placings = &self.placings[first..last.max(first)];
        let left = self.leavings[..self.leavings.partition_point(|&(at, _)| at <= from_ns)].last();
        let is_guessed = placings.is_empty() && left.is_some_and(|&(_, cpu)| cpu != next);
        let queue = |cpu: u32| Queue { cpu, is_guessed };
        let mut queues = Vec::with_capacity(placings.len() + 1);
        let (mut begin, mut cpu) = (from_ns, placings.first().map_or(next, |&(_, (cpu, _))| cpu));
        for &(at, (_, to)) in placings {
            queues.push(Stretch { from_ns: begin, to_ns: at, what: queue(cpu) });
            (begin, cpu) = (at, to);
        }
        queues.push(Stretch { from_ns: begin, to_ns, what: queue(cpu) });
        queues
    }
}

/// One state of the thread, divided further by the threads that had its CPU.
fn divide(trace: &Trace, own: &Own, known: (u64, u64), state: Stretch<State>, tiling: &mut Tiling) {
    let (from_ns, to_ns) = (state.from_ns, state.to_ns);
    match state.what {
        State::Running(cpu) => {
            let mut rest = |from_ns, to_ns, tiling: &mut Tiling| {
                tiling.over(own.running.iter().copied(), (from_ns, to_ns), &mut |from, to, tiling| {
                    tiling.put(from, to, Part::Running);
                });
            };
            interrupted(trace, known, cpu, (from_ns, to_ns), &mut rest, tiling);
        }
        State::Ready { cpu: Some(next), was_woken } => {
            for queue in own.queues((from_ns, to_ns), next) {
                ready(trace, known, queue, was_woken, tiling);
            }
        }
        State::Moving { by } => tiling.put(from_ns, to_ns, Part::Moving { by }),
        State::Blocked { .. } => {
            tiling.over(own.blocked.iter().copied(), (from_ns, to_ns), &mut |from, to, tiling| {
                wait(state.what).into_iter().for_each(|part| tiling.put(from, to, part));
            });
        }
        State::Stopped { is_traced } => {
            let absence = if is_traced { Absence::Traced } else { Absence::Stopped };
            tiling.put(from_ns, to_ns, Part::NotThere(absence));
        }
        State::Ready { cpu: None, .. } | State::Unknown => {}
    }
}

/// Function that puts pieces between two instants.
type Put<'a> = &'a mut dyn FnMut(u64, u64, &mut Tiling);

/// A stretch of time on a CPU: the interrupts there, and what is put between them.
fn interrupted(
    trace: &Trace,
    known: (u64, u64),
    cpu: u32,
    span: (u64, u64),
    between: Put<'_>,
    tiling: &mut Tiling,
) {
    let there = trace.cpus.iter().filter(|one| one.cpu == cpu).flat_map(|cpu| interruptions(cpu, known));
    tiling.over(there.map(|one| one.map(Part::Interrupted)), span, between);
}

/// A stretch in which the thread was ready, divided by the threads that had the CPU where it was queued.
fn ready(trace: &Trace, known: (u64, u64), queue: Stretch<Queue>, was_woken: bool, tiling: &mut Tiling) {
    let Stretch { from_ns, to_ns, what: Queue { cpu, is_guessed } } = queue;
    let Some(cpu) = trace.cpus.iter().find(|one| one.cpu == cpu) else { return };
    let absence = if was_woken { Absence::CpuAsleep } else { Absence::Withheld };
    for one in occupants(cpu, known) {
        let (begin, end) = (one.from_ns.clamp(from_ns, to_ns), one.to_ns.clamp(from_ns, to_ns));
        let part = match one.what {
            // It may have been queued elsewhere: that this one idled kept nobody waiting.
            Some(IDLE) if is_guessed => continue,
            Some(IDLE) => Part::NotThere(absence),
            Some(instead) => Part::Ready { instead },
            None => continue,
        };
        // An interrupt of another thread keeps this one from its CPU as well, and is not that thread's doing.
        let mut rest = |from, to, tiling: &mut Tiling| tiling.put(from, to, part);
        interrupted(trace, known, cpu.cpu, (begin, end), &mut rest, tiling);
    }
}

#[cfg(test)]
pub(super) mod tests;
