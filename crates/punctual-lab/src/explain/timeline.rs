//! States of a thread, and occupants of a CPU, as far as one stretch of a whole trace tells.

use super::moves::note_moves;
use super::trace::{CpuEvents, Event, Leaving, Trace, What};

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch<T> {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) what: T,
}

impl<T> Stretch<T> {
    /// As something else.
    pub(super) fn map<U>(self, into: impl FnOnce(T) -> U) -> Stretch<U> {
        Stretch { from_ns: self.from_ns, to_ns: self.to_ns, what: into(self.what) }
    }
}

/// The waker of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waker {
    pub(super) thread: u32,
    pub(super) is_interrupt: bool,
}

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs on this CPU.
    Running(u32),
    /// It is ready, and will run on this CPU next, or ran there last.
    Ready { cpu: Option<u32>, was_woken: bool },
    /// It was taken off its CPU to run on another, and does not run there yet. `by` is the thread that asked for that, as far as it was
    /// seen.
    Moving { by: Option<u32> },
    /// It waits for something; `waker` is the thread or interrupt that ends the wait. If the trace has its beginning, it is known
    /// whether a signal would end the wait, too.
    Blocked { waker: Option<Waker>, is_uninterruptible: Option<bool> },
    /// It is stopped: by a debugger, or by a signal.
    Stopped { is_traced: bool },
    /// The trace does not tell.
    Unknown,
}

/// Event of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Runs(u32),
    Leaves(u32, Leaving),
    Woken(Waker),
    Born,
}

impl Turn {
    /// Where it began to run, or had run until then.
    fn cpu(self) -> Option<u32> {
        match self {
            Self::Runs(cpu) | Self::Leaves(cpu, _) => Some(cpu),
            Self::Woken(_) | Self::Born => None,
        }
    }
}

/// A thread's states over a stretch in which no event is missing: they tile it.
pub(super) fn states(trace: &Trace, thread: u32, (from, to): (u64, u64)) -> Vec<Stretch<State>> {
    let turns = turns(trace, thread, (from, to));
    let mut states = Vec::with_capacity(turns.len() + 1);
    let (mut begin, mut state) = (from, before_first(&turns));
    for (place, &(at, turn)) in turns.iter().enumerate() {
        let next = if is_woken_already(&turns, place) {
            let cpu = turns[place + 1..].iter().find_map(|(_, turn)| turn.cpu());
            State::Ready { cpu, was_woken: true }
        } else {
            next_state(state, turn, &turns[place + 1..])
        };
        // A thread that does not run cannot leave: the switch to it is missing.
        let is_missing = matches!(turn, Turn::Leaves(..)) && !matches!(state, State::Running(_));
        if next == state && !is_missing {
            continue;
        }
        let what = match (state, turn) {
            (State::Blocked { is_uninterruptible, .. }, Turn::Woken(waker)) => {
                State::Blocked { waker: Some(waker), is_uninterruptible }
            }
            // A sleeping thread runs without a wake-up: an event is missing.
            (State::Blocked { .. }, Turn::Runs(_)) => State::Unknown,
            _ if is_missing => State::Unknown,
            (state, _) => state,
        };
        // Until another left that CPU, this thread was what it was before: only then may it have begun to run.
        if is_missing && matches!(state, State::Ready { .. }) {
            let since = turn.cpu().and_then(|cpu| last_switch(trace, cpu, (begin, at)));
            if let Some(since) = since {
                states.push(Stretch { from_ns: begin, to_ns: since, what: state });
                begin = since;
            }
        }
        states.push(Stretch { from_ns: begin, to_ns: at, what });
        (begin, state) = (at, next);
    }
    states.push(Stretch { from_ns: begin, to_ns: to, what: state });
    note_moves(trace, (from, to), &mut states);
    states
}

/// Tracers of a thread: the threads that let it go on while it was held.
pub(super) fn tracers(trace: &Trace, thread: u32, known: (u64, u64)) -> Vec<u32> {
    let mut held = false;
    let mut tracers = Vec::new();
    for (_, turn) in turns(trace, thread, known) {
        match turn {
            Turn::Leaves(_, why) => held = why == Leaving::Traced,
            Turn::Runs(_) => held = false,
            // A signal that kills it may come in an interrupt.
            Turn::Woken(Waker { thread, is_interrupt: false }) if held => tracers.push(thread),
            Turn::Woken(_) | Turn::Born => {}
        }
    }
    tracers.sort_unstable();
    tracers.dedup();
    tracers
}

/// When a CPU last changed hands in a stretch, before its end.
fn last_switch(trace: &Trace, cpu: u32, (from, to): (u64, u64)) -> Option<u64> {
    let cpu = trace.cpus.iter().find(|one| one.cpu == cpu)?;
    let events = cpu.within((from, to)).iter().rev();
    let mut switches = events.filter(|event| event.0 < to && matches!(event.1, What::Switch { .. }));
    switches.next().map(|event| event.0)
}

/// All that happened to a thread, in the order of time.
fn turns(trace: &Trace, thread: u32, known: (u64, u64)) -> Vec<(u64, Turn)> {
    let of = |cpu: &CpuEvents| -> Vec<(u64, Turn)> {
        cpu.within(known).iter().filter_map(|event| turn(cpu.cpu, thread, event)).collect()
    };
    let mut turns: Vec<(u64, Turn)> = trace.cpus.iter().flat_map(of).collect();
    turns.sort_by_key(|&(at, _)| at);
    turns
}

fn turn(cpu: u32, thread: u32, &Event(at, what): &Event) -> Option<(u64, Turn)> {
    let turn = match what {
        What::Switch { runs, .. } if runs == thread => Turn::Runs(cpu),
        What::Switch { left, why, .. } if left == thread => Turn::Leaves(cpu, why),
        What::Wake { woken, waker, by_interrupt } if woken == thread => {
            Turn::Woken(Waker { thread: waker, is_interrupt: by_interrupt })
        }
        What::Birth { born, .. } if born == thread => Turn::Born,
        _ => return None,
    };
    Some((at, turn))
}

/// It waits, and its waker is not known yet.
fn asleep(is_uninterruptible: Option<bool>) -> State {
    State::Blocked { waker: None, is_uninterruptible }
}

/// The first thing that happens to a thread tells what it did before.
fn before_first(turns: &[(u64, Turn)]) -> State {
    match turns {
        // Before its birth there was no thread.
        [] | [(_, Turn::Born), ..] => State::Unknown,
        [(_, Turn::Leaves(cpu, _)), ..] => State::Running(*cpu),
        [(_, Turn::Runs(cpu)), ..] => State::Ready { cpu: Some(*cpu), was_woken: false },
        [(_, Turn::Woken(_)), rest @ ..] => {
            match rest.iter().find(|(_, turn)| !matches!(turn, Turn::Woken(_))) {
                // It was woken while it still ran, on its way to sleep.
                Some((_, Turn::Leaves(cpu, _))) => State::Running(*cpu),
                // It waited, or was stopped. The beginning is not in the trace.
                Some((_, Turn::Runs(_))) => asleep(None),
                _ => State::Unknown,
            }
        }
    }
}

/// A wake-up may be noted when a thread has decided to sleep, before its switch is: then it comes so shortly before that.
const WOKEN_BEFORE_NS: u64 = 20_000;

/// A thread that leaves its CPU to sleep was woken just before, and not again until it runs: it never slept.
fn is_woken_already(turns: &[(u64, Turn)], place: usize) -> bool {
    let (at, Turn::Leaves(_, Leaving::Asleep | Leaving::Uninterruptible)) = turns[place] else {
        return false;
    };
    let before = place.checked_sub(1).map(|before| turns[before]);
    let is_woken = matches!(before, Some((woken, Turn::Woken(_))) if at - woken <= WOKEN_BEFORE_NS);
    is_woken && matches!(turns.get(place + 1), Some((_, Turn::Runs(_))))
}

fn next_state(state: State, turn: Turn, later: &[(u64, Turn)]) -> State {
    let next_cpu = || later.iter().find_map(|(_, turn)| turn.cpu());
    match turn {
        Turn::Runs(cpu) => State::Running(cpu),
        Turn::Leaves(cpu, Leaving::Ready) => State::Ready { cpu: next_cpu().or(Some(cpu)), was_woken: false },
        Turn::Leaves(_, Leaving::Asleep) => asleep(Some(false)),
        Turn::Leaves(_, Leaving::Uninterruptible) => asleep(Some(true)),
        Turn::Leaves(_, Leaving::Stopped) => State::Stopped { is_traced: false },
        Turn::Leaves(_, Leaving::Traced) => State::Stopped { is_traced: true },
        Turn::Leaves(_, Leaving::Ended) => State::Unknown,
        Turn::Born => State::Ready { cpu: next_cpu(), was_woken: true },
        Turn::Woken(_) if matches!(state, State::Blocked { .. } | State::Stopped { .. }) => {
            State::Ready { cpu: next_cpu(), was_woken: true }
        }
        Turn::Woken(_) => state,
    }
}

/// Occupants of a CPU over a stretch in which no event is missing. `None` where no switch tells.
pub(super) fn occupants(cpu: &CpuEvents, (from, to): (u64, u64)) -> Vec<Stretch<Option<u32>>> {
    let mut stretches = Vec::new();
    let (mut begin, mut thread) = (from, None);
    for &Event(at, what) in cpu.within((from, to)) {
        let What::Switch { left, runs, .. } = what else { continue };
        // If the thread that leaves is not the one that was there, a switch in between is missing, at an unknown instant.
        let what = thread.or(Some(left)).filter(|&thread| thread == left);
        stretches.push(Stretch { from_ns: begin, to_ns: at, what });
        (begin, thread) = (at, Some(runs));
    }
    stretches.push(Stretch { from_ns: begin, to_ns: to, what: thread });
    stretches
}

/// Source of an interruption of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interruption {
    /// A device, by the number of its interrupt.
    Device(u32),
    /// The kernel's deferred work, by its kind.
    Deferred(u32),
}

/// When a CPU was in interrupts, over a stretch in which no event is missing; of several the innermost counts.
///
/// On a kernel with PREEMPT_RT threads do the deferred work, and others may run in between: it rests until its thread runs again. Of
/// short work the kernel's filter tells a sum alone, which is spread evenly: a piece of that goes on over switches.
pub(super) fn interruptions(cpu: &CpuEvents, (from, to): (u64, u64)) -> Vec<Stretch<Interruption>> {
    let mut stretches: Vec<Stretch<Interruption>> = Vec::new();
    let mut open: Vec<Interruption> = Vec::new();
    let mut resting: Vec<Rest> = Vec::new();
    let mut begin = from;
    for &Event(at, what) in cpu.within((from, to)) {
        let (one, begins) = match what {
            What::Switch { left, runs, .. } => {
                if let Some(&what) = open.last() {
                    stretches.push(Stretch { from_ns: begin, to_ns: at, what });
                    let open = std::mem::take(&mut open);
                    resting.push(Rest { thread: left, since_ns: at, open });
                }
                // Mostly nothing rests: there are far more switches than that.
                if let Some(place) = resting.iter().position(|rest| rest.thread == runs) {
                    open = resting.swap_remove(place).open;
                }
                begin = at;
                continue;
            }
            What::Interrupt(number) => (Interruption::Device(number), true),
            What::SoftInterrupt(kind) => (Interruption::Deferred(kind), true),
            What::InterruptEnd(number) => (Interruption::Device(number), false),
            What::SoftInterruptEnd(kind) => (Interruption::Deferred(kind), false),
            _ => continue,
        };
        let goes_on = !begins && !open.contains(&one);
        let rested_ns = if goes_on { end_rest(&mut resting, one) } else { None };
        if let Some(since_ns) = rested_ns {
            begin = stretches.last().map_or(since_ns, |last| last.to_ns.max(since_ns));
        }
        // An end without a beginning began before the stretch, unless something else was open.
        let is_inner = rested_ns.is_some() || !begins && stretches.is_empty();
        let inner = open.last().copied().or(is_inner.then_some(one));
        if let Some(what) = inner {
            stretches.push(Stretch { from_ns: begin, to_ns: at, what });
        }
        begin = at;
        if begins {
            open.push(one);
        } else if let Some(place) = open.iter().rposition(|other| *other == one) {
            open.truncate(place);
        }
    }
    if let Some(&what) = open.last() {
        stretches.push(Stretch { from_ns: begin, to_ns: to, what });
    }
    stretches
}

/// Interrupts that were open when a thread left its CPU.
#[derive(Debug)]
struct Rest {
    thread: u32,
    since_ns: u64,
    open: Vec<Interruption>,
}

/// Deferred work ends, and none such is open: since when it rested, for whichever thread. It rests no longer.
fn end_rest(resting: &mut Vec<Rest>, ended: Interruption) -> Option<u64> {
    let is_of = |rest: &Rest| rest.open.contains(&ended);
    let at = resting.iter().position(is_of)?;
    let Rest { since_ns, open, .. } = &mut resting[at];
    open.truncate(open.iter().rposition(|other| *other == ended).unwrap_or(0));
    let (since_ns, is_over) = (*since_ns, open.is_empty());
    if is_over {
        resting.swap_remove(at);
    }
    Some(since_ns)
}

/// Signals at most so long apart leave a thread time for little else: to be interrupted, to handle one and to come back takes a few
/// microseconds, and more on a guest.
const SIGNALS_APART_NS: u64 = 20_000;

/// Two may be chance.
const SIGNALS_MIN: usize = 3;

/// The events of every CPU that say something of a kind, in the order of time.
fn in_order<T>(trace: &Trace, span: (u64, u64), of: impl Fn(What) -> Option<T>) -> Vec<(u64, T)> {
    let of_cpu = |cpu: &CpuEvents| {
        let events = cpu.within(span).iter();
        events.filter_map(|&Event(at, what)| Some((at, of(what)?))).collect::<Vec<(u64, T)>>()
    };
    let mut all: Vec<(u64, T)> = trace.cpus.iter().flat_map(of_cpu).collect();
    all.sort_by_key(|&(at, _)| at);
    all
}

/// Placements of a thread on another CPU, with instant, old and new CPU, over a stretch in which no event is missing.
pub(super) fn placings(trace: &Trace, thread: u32, span: (u64, u64)) -> Vec<(u64, (u32, u32))> {
    in_order(trace, span, |what| match what {
        What::Placed { thread: of, from, to } if of == thread => Some((from, to)),
        _ => None,
    })
}

/// When a thread left which CPU, over a stretch in which no event is missing.
pub(super) fn leavings(trace: &Trace, thread: u32, known: (u64, u64)) -> Vec<(u64, u32)> {
    let leaving = |(at, turn)| if let Turn::Leaves(cpu, _) = turn { Some((at, cpu)) } else { None };
    turns(trace, thread, known).into_iter().filter_map(leaving).collect()
}

/// When signals of one number came so close upon one another, over a stretch in which no event is missing.
pub(super) fn signals(trace: &Trace, thread: u32, span: (u64, u64)) -> Vec<Stretch<u32>> {
    let all = in_order(trace, span, |what| match what {
        What::Signal { thread: of, number } if of == thread => Some(number),
        _ => None,
    });
    let storms = all.chunk_by(|one, next| one.1 == next.1 && next.0 - one.0 <= SIGNALS_APART_NS);
    let long = storms.filter(|storm| storm.len() >= SIGNALS_MIN);
    long.map(|storm| Stretch { from_ns: storm[0].0, to_ns: storm[storm.len() - 1].0, what: storm[0].1 })
        .collect()
}

/// When a thread took memory back, and whether because its group may have no more, over a stretch in which no event is missing. Of two
/// within each other the outer counts.
pub(super) fn reclaims(trace: &Trace, thread: u32, (from, to): (u64, u64)) -> Vec<Stretch<bool>> {
    let all = in_order(trace, (from, to), |what| match what {
        What::Reclaim { thread: of, is_limited } if of == thread => Some(Some(is_limited)),
        What::ReclaimEnd(of) if of == thread => Some(None),
        _ => None,
    });
    let (mut stretches, mut open) = (Vec::new(), Vec::new());
    for (at, begins) in all {
        match (begins, open.pop()) {
            (Some(is_limited), None) => open.push((at, is_limited)),
            (Some(is_limited), Some(outer)) => open.extend([outer, (at, is_limited)]),
            (None, Some((from_ns, what))) if open.is_empty() => {
                stretches.push(Stretch { from_ns, to_ns: at, what });
            }
            // It began before the stretch, and nobody knows why: only the beginning says.
            (None, _) => {}
        }
    }
    stretches.extend(open.first().map(|&(from_ns, what)| Stretch { from_ns, to_ns: to, what }));
    stretches
}
