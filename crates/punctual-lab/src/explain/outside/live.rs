//! Records what processes do for a while, that know nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_lab_machine::host::cpus_online;
use punctual_lab_machine::trace_point::TraceRecorder;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::SchedStat;
use punctual_machine::withheld::{GroupLimits, Throttled, ThrottledTime};

use crate::explain::recorder::trace_here;
use crate::explain::seen::Seen;
use crate::explain::trace::{TaskInfo, Trace, What};

/// Time between two looks for new threads and at the counters of control groups.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// Bytes of the rings of all CPUs together, and of one at most: ten seconds of a busy CPU.
const RINGS_SIZE_MAX: usize = 512 << 20;
const RING_SIZE_MAX: usize = 32 << 20;
const RING_SIZE_MIN: usize = 1 << 20;

/// A recording of the system.
#[derive(Debug)]
pub struct Recorded {
    /// Trace of the kernel, with the threads of the processes.
    pub trace: Trace,
    /// Time that control groups withheld from each process.
    pub withheld: BTreeMap<u32, Withheld>,
    /// True if system calls were recorded.
    pub has_calls: bool,
    /// Threads that theirs began, and that no look found. The trace does not tell a thread from a process that began.
    pub unseen: u64,
    /// When it began, of `CLOCK_MONOTONIC`.
    pub began_ns: u64,
}

/// Counters of a process's control groups, read again and again.
#[derive(Debug)]
pub struct Withheld {
    groups: GroupLimits,
    /// The last reading of quotas and freezer.
    last: (Throttled, u64),
    looks: Vec<Look>,
}

/// Time that quotas and a freezer had taken until an instant, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Look {
    /// Instant of `CLOCK_MONOTONIC`.
    at_ns: u64,
    /// By quotas. Those of nested groups may run out together.
    throttled: ThrottledTime,
    frozen_ns: u64,
}

/// A reading of the quotas and the freezer of these groups.
fn said(groups: &GroupLimits) -> (Throttled, u64) {
    (groups.quotas.now(), groups.freezer.frozen_ns().unwrap_or(0))
}

impl Look {
    /// With what they took between two readings.
    fn with(self, last: (Throttled, u64), said: (Throttled, u64)) -> Self {
        let since = said.0.since(&last.0);
        let throttled = ThrottledTime {
            least_ns: self.throttled.least_ns + since.least_ns,
            most_ns: self.throttled.most_ns + since.most_ns,
        };
        Self { throttled, frozen_ns: self.frozen_ns + said.1.saturating_sub(last.1), ..self }
    }

    /// After a move to other groups: their counters tell nothing of the time until now, and a quota of either may have taken all of it.
    fn moved(mut self, now_ns: u64) -> Self {
        self.throttled.most_ns += now_ns.saturating_sub(self.at_ns);
        self
    }

    fn taken(&self) -> (ThrottledTime, u64) {
        (self.throttled, self.frozen_ns)
    }
}

impl Withheld {
    fn of(process: u32) -> Self {
        let groups = GroupLimits::of_process(process);
        let mut withheld = Self { last: said(&groups), groups, looks: Vec::new() };
        withheld.look();
        withheld
    }

    fn look(&mut self) {
        let is_moved = self.groups.follow();
        let (now_ns, said) = (monotonic_ns(), said(&self.groups));
        let last = std::mem::replace(&mut self.last, said);
        let before = self.looks.last().copied().unwrap_or(Look { at_ns: now_ns, ..Look::default() });
        let look = if is_moved { before.moved(now_ns) } else { before.with(last, said) };
        let look = Look { at_ns: now_ns, ..look };
        // Of a time in which nothing was withheld its ends say all.
        let count = self.looks.len();
        let was_as_before = count >= 2 && self.looks[count - 2].taken() == look.taken();
        match self.looks.last_mut().filter(|last| was_as_before && last.taken() == look.taken()) {
            Some(last) => last.at_ns = look.at_ns,
            None => self.looks.push(look),
        }
    }

    /// Counters of an interval, in bounds, because they are read seldom: what was counted between the looks around it, and what of that
    /// finds no room between them beside the interval.
    pub fn over(&self, (from, to): (u64, u64)) -> Option<Seen> {
        let first = self.looks.partition_point(|look| look.at_ns <= from).saturating_sub(1);
        let last = self.looks.partition_point(|look| look.at_ns < to).min(self.looks.len().checked_sub(1)?);
        let (before, after) = (self.looks.get(first)?, self.looks.get(last)?);
        let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX);
        let wall_us = us(to - from);
        let apart_us = us(after.at_ns.saturating_sub(before.at_ns));
        let taken = |before: u64, after: u64| {
            // A quota may have run out before the first look, and is counted when it is there again, on all processors: so what is taken
            // for the least may be too much.
            let most_us = us(after.saturating_sub(before)).min(apart_us.max(wall_us));
            (most_us.saturating_sub(apart_us.saturating_sub(wall_us)), most_us.min(wall_us))
        };
        let (throttled_us, _) = taken(before.throttled.least_ns, after.throttled.least_ns);
        let (_, throttled_us_most) = taken(before.throttled.most_ns, after.throttled.most_ns);
        let (frozen_us, frozen_us_most) = taken(before.frozen_ns, after.frozen_ns);
        // The trace tells when it was ready: that its group was throttled meanwhile says nothing of a thread that slept.
        Some(Seen {
            wall_us,
            cpu_us_most: wall_us,
            throttled_us,
            throttled_us_most,
            frozen_us,
            frozen_us_most,
            ..Seen::default()
        })
    }
}

/// Records these processes for so long, or until all have ended or it `is_over`.
///
/// # Errors
/// Says which process is not there, or what is missing here and what to do.
pub fn record(processes: &[u32], duration: Duration, is_over: impl Fn() -> bool) -> Result<Recorded, String> {
    let cpus = cpus_online().map_or(1, |cpus| cpus.len());
    let ring_size = (RINGS_SIZE_MAX / cpus.max(1)).clamp(RING_SIZE_MIN, RING_SIZE_MAX);
    let first: Vec<u32> = threads_of(processes).into_keys().collect();
    let mut recorder =
        TraceRecorder::start_with_calls(ring_size, &first).map_err(|error| error.to_string())?;
    let (begin, began_ns) = (Instant::now(), monotonic_ns());
    let mut withheld: BTreeMap<u32, Withheld> =
        processes.iter().map(|&process| (process, Withheld::of(process))).collect();
    let mut all = BTreeMap::new();
    while begin.elapsed() < duration && !is_over() {
        let now = threads_of(processes);
        if now.is_empty() {
            break;
        }
        all.extend(now);
        withheld.values_mut().for_each(Withheld::look);
        std::thread::sleep(LOOKS_EVERY.min(duration.saturating_sub(begin.elapsed())));
    }
    withheld.values_mut().for_each(Withheld::look);
    all.extend(threads_of(processes));
    let states: BTreeMap<u32, (String, char)> =
        all.iter().filter_map(|(&thread, &process)| Some((thread, state(process, thread)?))).collect();
    let dump = recorder.dump(0).map_err(|error| error.to_string())?;
    let mut trace = trace_here(&recorder.read(&dump), &|at_ns| at_ns);
    trace.processes = all;
    for (thread, (name, letter)) in states {
        trace.states.insert(thread, letter);
        // A thread without an event is not in the trace.
        trace.tasks.entry(thread).or_insert_with(|| TaskInfo { name, ..TaskInfo::default() });
    }
    let unseen = unseen(&trace, |born| fs::exists(format!("/proc/{born}")).unwrap_or(false));
    Ok(Recorded { trace, withheld, has_calls: recorder.has_calls(), unseen, began_ns })
}

/// Threads that threads of the processes began and that belong to none of them as far as anybody saw. Those that are there still are
/// processes of their own.
fn unseen(trace: &Trace, is_there: impl Fn(u32) -> bool) -> u64 {
    let births = trace.cpus.iter().flat_map(|cpu| &cpu.events).filter_map(|event| match event.1 {
        What::Birth { born, parent } if trace.processes.contains_key(&parent) => Some(born),
        _ => None,
    });
    let is_unseen = |born: &u32| !trace.processes.contains_key(born) && !is_there(*born);
    births.filter(is_unseen).collect::<BTreeSet<u32>>().len() as u64
}

/// The threads of processes, with the process of each.
pub fn threads_of(processes: &[u32]) -> BTreeMap<u32, u32> {
    let of_one = |&process: &u32| {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        tasks.filter_map(move |task| Some((task.file_name().to_str()?.parse().ok()?, process)))
    };
    processes.iter().flat_map(of_one).collect()
}

/// Name of a thread, and the letter that `/proc` has for its state now.
fn state(process: u32, thread: u32) -> Option<(String, char)> {
    let stat = fs::read(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (head, rest) = stat.rsplit_once(')')?;
    Some((head.split_once('(')?.1.to_owned(), rest.trim_start().chars().next()?))
}

/// Facts about a thread, known without the trace: its name, and the times that it ran and was ready, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Name of the thread.
    pub name: String,
    /// CPU time.
    pub ran_ns: u64,
    /// Time that it was ready and did not run.
    pub ready_ns: u64,
}

/// The counters of all threads of these processes now.
pub fn counted(processes: &[u32]) -> BTreeMap<u32, (u32, Counted)> {
    let of_one = |(thread, process): (u32, u32)| {
        let task = PathBuf::from(format!("/proc/{process}/task/{thread}"));
        let times = SchedStat::of_task(&task).read()?;
        let name = fs::read_to_string(task.join("comm")).ok()?.trim_end().to_owned();
        Some((thread, (process, Counted { name, ran_ns: times.ran_ns, ready_ns: times.queued_ns })))
    };
    threads_of(processes).into_iter().filter_map(of_one).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::explain::trace::{CpuEvents, Event};

    pub(in crate::explain::outside) fn withheld(looks: &[(u64, u64, u64)]) -> Withheld {
        let look = |&(at_ns, throttled_ns, frozen_ns): &(u64, u64, u64)| Look {
            at_ns,
            throttled: ThrottledTime { least_ns: throttled_ns, most_ns: throttled_ns },
            frozen_ns,
        };
        let groups = GroupLimits::of_process(std::process::id());
        Withheld { last: said(&groups), groups, looks: looks.iter().map(look).collect() }
    }

    /// Goal: a thread that ended before a look found it is counted, once. One that was found, a process that goes on, and threads that
    /// others began are not.
    #[test]
    fn threads_that_no_look_found_are_counted() {
        let births = [(10, 7), (10, 7), (11, 7), (12, 7), (13, 99)];
        let events = births.map(|(born, parent)| Event(1, What::Birth { born, parent })).to_vec();
        let cpu = CpuEvents { events, ..CpuEvents::default() };
        let processes = BTreeMap::from([(7, 7), (11, 7)]);
        let trace = Trace { processes, cpus: vec![cpu], ..Trace::default() };
        assert_eq!(unseen(&trace, |born| born == 12), 1);
    }

    /// Goal: the state of a thread is read from its file, and one that has gone has none.
    #[test]
    fn a_thread_has_a_name_and_a_state() {
        let process = std::process::id();
        let (name, letter) = state(process, process).expect("it is there");
        assert!(!name.is_empty() && letter.is_ascii_alphabetic(), "{name}: {letter}");
        assert_eq!(state(process, u32::MAX), None);
    }

    /// Goal: of an interval at most what was counted between the looks around it is said, and never more than its length.
    #[test]
    fn counters_bound_an_interval() {
        let counters = withheld(&[(1_000_000, 0, 0), (2_000_000, 900_000, 0), (3_000_000, 900_000, 50_000)]);
        let over =
            |from, to| counters.over((from, to)).map(|seen| (seen.throttled_us_most, seen.frozen_us_most));
        assert_eq!(over(1_500_000, 1_900_000), Some((400, 0)));
        assert_eq!(over(2_100_000, 2_900_000), Some((0, 50)));
        assert_eq!(over(500_000, 9_000_000), Some((900, 50)));
        assert_eq!(withheld(&[]).over((1, 2)), None);
    }

    /// Goal: a process that was moved between two looks was throttled for all of that time at most. None of it is certain, by whichever
    /// counters.
    #[test]
    fn a_move_to_other_groups_is_no_increase() {
        let mut counters = withheld(&[(1_000_000, 5_000_000, 7_000_000)]);
        let moved = Look { at_ns: 3_000_000, ..counters.looks[0].moved(3_000_000) };
        counters.looks.push(moved);
        let seen = counters.over((1_000_000, 3_000_000)).expect("looks");
        assert_eq!((seen.throttled_us, seen.throttled_us_most, seen.frozen_us_most), (0, 2_000, 0));
    }

    /// Goal: one increase is no two intervals': the leasts of both together are no more than it.
    #[test]
    fn one_increase_is_not_counted_twice() {
        let ms = |ms: u64| ms * 1_000_000;
        let over = |counters: &Withheld, from_us: u64, to_us: u64| {
            let seen = counters.over((from_us * 1000, to_us * 1000)).expect("looks");
            [(seen.throttled_us, seen.throttled_us_most), (seen.frozen_us, seen.frozen_us_most)]
        };
        let short = withheld(&[(0, 0, 0), (ms(10), ms(4), ms(4))]);
        assert_eq!(over(&short, 500, 4_500), [(0, 4_000); 2]);
        assert_eq!(over(&short, 5_000, 8_000), [(0, 3_000); 2]);
        let long = withheld(&[(0, 0, 0), (ms(90), 0, 0), (ms(100), ms(80), ms(80))]);
        assert_eq!(over(&long, 5_000, 95_000), [(70_000, 80_000); 2]);
    }
}
