//! Evidence that a trial keeps to be explained: its threads' windows, closed between messages, and the kernel's trace.

use punctual::{Clock, Ticks};
use punctual_machine::fault_cost::fault_ns;
use punctual_machine::window::{Evidence, SchedSampler, Window};
use serde::{Deserialize, Serialize};

use super::attached::{Attached, TracerLook};
use super::evidence::{EvidenceThread, Recording, TrialEvidence};
use super::recorder::LateRecorder;
use super::stage::{StageOwner, rule_for};
use crate::run::room_for;
use crate::sample::{Load, Samples};

/// Windows kept of a thread: at a millisecond each, two minutes.
pub const WINDOWS_MAX: usize = 1 << 17;

/// The kernel's clock and ours at one instant.
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    monotonic_ns: u64,
    ticks: Ticks,
}

impl ClockPair {
    /// Both now.
    pub fn now() -> Self {
        let (ticks, monotonic_ns) = Clock::get().beside(punctual_machine::clock::monotonic_ns);
        Self { monotonic_ns, ticks }
    }

    /// An instant of ours as one of `CLOCK_MONOTONIC`.
    pub fn monotonic_ns(self, instant: Ticks) -> u64 {
        self.monotonic_ns.saturating_sub(Clock::get().nanos(self.ticks.since(instant)))
    }
}

/// Notes what the thread that made it goes through. It asks the kernel, so it is asked between two messages only.
#[derive(Debug)]
pub struct WindowLog {
    sampler: SchedSampler,
    /// In the order of time; spans are ticks.
    windows: Vec<Window>,
    windows_max: usize,
    /// Windows for which there was no room any more.
    left_out: u64,
    tracer: TracerLook,
}

impl WindowLog {
    /// With room for so many windows.
    pub fn of_this_thread(windows_max: usize) -> Self {
        let windows_max = windows_max.min(WINDOWS_MAX);
        let blank = Window { evidence: Evidence { number: 1, ..Evidence::default() }, span: (1, 1) };
        let windows = room_for(windows_max, blank);
        let (sampler, tracer) = (SchedSampler::of_this_thread(), TracerLook::of_this_thread());
        Self { sampler, windows, windows_max, left_out: 0, tracer }
    }

    /// When the window in the making began.
    pub fn since(&self) -> Ticks {
        self.sampler.since()
    }

    /// Returns true if the window has lasted long enough.
    #[inline]
    pub fn is_due(&self, now: Ticks) -> bool {
        self.sampler.is_due(now)
    }

    /// The thread slept on purpose, without a message.
    #[inline]
    pub fn note_idle(&mut self, slept: Ticks) {
        self.sampler.note_idle(slept);
    }

    /// Ends the window, and begins the next. After something slow more is asked for.
    pub fn close(&mut self, control_late_us: u32, was_slow: bool) {
        let begin = self.since();
        let evidence = self.sampler.close(control_late_us, was_slow);
        if was_slow {
            self.tracer.look((begin.0, self.since().0));
        }
        if self.windows.len() < self.windows_max {
            self.windows.push(Window { evidence, span: (begin.0, self.since().0) });
        } else {
            self.left_out += 1;
        }
    }

    /// Begins the next window; the thread's time until now is in none.
    pub fn pass_over(&mut self, control_late_us: u32) {
        self.sampler.close(control_late_us, false);
    }

    /// All of them.
    pub fn finish(self) -> ThreadWindows {
        let thread = self.sampler.thread();
        let Self { windows, left_out, tracer, .. } = self;
        ThreadWindows { thread, windows, left_out, attached: tracer.finish() }
    }
}

/// The windows of a thread, as they go from process to process: on one host all read one counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadWindows {
    /// The kernel's number of it.
    pub thread: u32,
    /// In the order of time; spans are ticks.
    pub windows: Vec<Window>,
    /// Windows for which there was no room any more.
    #[serde(default)]
    pub left_out: u64,
    /// Its tracers, with spans in ticks too.
    #[serde(default)]
    pub attached: Vec<Attached>,
}

impl ThreadWindows {
    /// Evidence of the thread, which has that role and is bound to that CPU: an ordinary one.
    pub fn evidence(&self, role: &str, cpu: Option<usize>) -> EvidenceThread {
        EvidenceThread {
            role: role.to_owned(),
            thread: Some(self.thread),
            cpu,
            windows: self.nanos(),
            windows_left_out: self.left_out,
            attached: self.attached_nanos(),
            ..EvidenceThread::default()
        }
    }

    /// Its tracers, with spans in nanoseconds of this process's clock.
    pub fn attached_nanos(&self) -> Vec<Attached> {
        let clock = Clock::get();
        Attached::at(&self.attached, |ticks| clock.nanos(Ticks(ticks)))
    }

    /// With spans in nanoseconds of this process's clock.
    pub fn nanos(&self) -> Vec<Window> {
        let clock = Clock::get();
        let ns = |ticks: u64| clock.nanos(Ticks(ticks));
        self.windows
            .iter()
            .map(|window| Window { span: (ns(window.span.0), ns(window.span.1)), ..*window })
            .collect()
    }
}

/// Evidence that a trial brings to be kept.
#[derive(Debug)]
pub struct Kept {
    /// Its threads, with all their windows, which are spans of this process's clock, nanoseconds.
    pub threads: Vec<EvidenceThread>,
    /// Records the kernel, if that was asked for, or why not.
    pub recorder: Option<Result<LateRecorder, String>>,
    /// Before the first message, and after the last.
    pub clocks: [ClockPair; 2],
}

impl Kept {
    /// The evidence of a trial, at instants of the run, which began at `start`.
    pub fn evidence(
        self,
        samples: &Samples,
        load: Load,
        stages: Vec<StageOwner>,
        start: Ticks,
    ) -> TrialEvidence {
        let threads = self.threads.into_iter().map(|thread| {
            let late = late_spans(samples, load, thread.sender);
            let attached = Attached::at(&thread.attached, |ns| since_start(ns, start));
            EvidenceThread { windows: around(thread.windows, &late, start), attached, ..thread }
        });
        let threads = threads.collect();
        let began = self.clocks[0];
        let (recording, dumps) = match self.recorder {
            None => (Recording::Off, Vec::new()),
            Some(Err(reason)) => (Recording::Missing { reason }, Vec::new()),
            Some(Ok(recorder)) => recorder.finish(self.clocks, start),
        };
        TrialEvidence {
            threads,
            stages,
            recording,
            dumps,
            fault_ns: fault_ns(),
            began_ns: began.monotonic_ns(start),
            place: None,
            is_part: false,
        }
    }
}

/// When the late messages were under way, of one sender or of all.
pub fn late_spans(samples: &Samples, load: Load, sender: Option<u64>) -> Vec<(u64, u64)> {
    let threshold_ns = rule_for(samples).threshold_ns;
    let is_of = |row: usize| sender.is_none() || samples.sender.get(row).copied() == sender;
    let late = (0..samples.len()).filter(|&row| samples.total_ns[row] > threshold_ns && is_of(row));
    late.map(|row| {
        let begin = samples.start_ns(row, load);
        (begin, begin.saturating_add(samples.total_ns[row]))
    })
    .collect()
}

/// Spans put together where they overlap, in the order of time.
pub fn joined(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Windows of a thread that sleeps unless it has something to do, which it had in these spans: in the rest it slept on purpose.
pub fn with_idle(windows: &[Window], busy: Vec<(u64, u64)>) -> Vec<Window> {
    let busy = joined(busy);
    let idle = |window: &Window| {
        let (from, to) = window.span;
        let first = busy.partition_point(|span| span.1 <= from);
        let held = busy[first..].iter().take_while(|span| span.0 < to);
        let busy_ns: u64 = held.map(|span| span.1.min(to) - span.0.max(from)).sum();
        let mut window = *window;
        let idle_us = (to - from).saturating_sub(busy_ns) / 1000;
        window.evidence.idle_us = u32::try_from(idle_us).unwrap_or(u32::MAX);
        window
    };
    windows.iter().map(idle).collect()
}

/// An instant of this process's clock as one of the run.
fn since_start(ns: u64, start: Ticks) -> u64 {
    ns.saturating_sub(Clock::get().nanos(start))
}

/// Windows that overlap a late message, and the one behind each, which may notice what ended in it.
fn around(windows: Vec<Window>, late: &[(u64, u64)], start: Ticks) -> Vec<Window> {
    let of_run = |ns: u64| since_start(ns, start);
    let windows: Vec<Window> = windows
        .into_iter()
        .map(|window| Window { span: (of_run(window.span.0), of_run(window.span.1)), ..window })
        .collect();
    let mut is_kept = vec![false; windows.len()];
    for &(begin, end) in late {
        let first = windows.partition_point(|window| window.span.1 <= begin);
        let last = windows.partition_point(|window| window.span.0 < end);
        let last = (last + 1).min(windows.len());
        is_kept.get_mut(first..last).unwrap_or_default().fill(true);
    }
    windows.into_iter().zip(is_kept).filter_map(|(window, kept)| kept.then_some(window)).collect()
}

/// Between two pairs that are used: closer ones would tell their own errors for a difference of rates.
const PAIRS_APART_NS: u64 = 100_000_000;

/// Both clocks at several instants. The kernel's is slewed, so no straight line holds for long.
#[derive(Debug)]
pub struct ClockLine {
    /// In the order of time, two at least.
    pairs: Vec<ClockPair>,
    start: Ticks,
}

impl ClockLine {
    /// By readings at the ends, and others as far as they are apart; for a run that began at `start`.
    pub fn new(
        [first, last]: [ClockPair; 2],
        others: impl IntoIterator<Item = ClockPair>,
        start: Ticks,
    ) -> Self {
        let mut others: Vec<ClockPair> = others.into_iter().collect();
        others.sort_by_key(|pair| pair.monotonic_ns);
        let mut pairs = vec![first];
        for pair in others {
            let before_ns = pairs.last().map_or(0, |before| before.monotonic_ns);
            let is_apart = pair.monotonic_ns.saturating_sub(before_ns) >= PAIRS_APART_NS;
            if is_apart && last.monotonic_ns.saturating_sub(pair.monotonic_ns) >= PAIRS_APART_NS {
                pairs.push(pair);
            }
        }
        pairs.push(last);
        Self { pairs, start }
    }

    /// An instant of `CLOCK_MONOTONIC` as one of the run, by the readings around it.
    pub fn run_ns(&self, monotonic_ns: u64) -> u64 {
        let behind = self.pairs.partition_point(|pair| pair.monotonic_ns <= monotonic_ns);
        let behind = behind.clamp(1, self.pairs.len() - 1);
        run_ns([self.pairs[behind - 1], self.pairs[behind]], self.start, monotonic_ns)
    }
}

/// An instant of `CLOCK_MONOTONIC` as one of the run, by both clocks at two instants: their rates differ by millionths.
pub fn run_ns([first, last]: [ClockPair; 2], start: Ticks, monotonic_ns: u64) -> u64 {
    let clock = Clock::get();
    let at = |pair: ClockPair| i128::from(clock.nanos(pair.ticks.since(start)));
    let (from, passed) = (at(first), at(last) - at(first));
    let kernel_passed = i128::from(last.monotonic_ns) - i128::from(first.monotonic_ns);
    let since = i128::from(monotonic_ns) - i128::from(first.monotonic_ns);
    let ns = from + since * passed / kernel_passed.max(1);
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: instants of the kernel's clock become instants of the run, between both readings and beyond them.
    #[test]
    fn instants_are_of_the_run() {
        let clock = Clock::get();
        let ticks = |us: u64| clock.ticks(std::time::Duration::from_micros(us));
        let start = Ticks(1_000_000);
        let pair = |us: u64, monotonic_ns: u64| ClockPair { monotonic_ns, ticks: start.plus(ticks(us)) };
        let pairs = [pair(1_000, 5_000_000), pair(3_000, 7_000_000)];
        for (monotonic_ns, expected) in
            [(5_000_000, 1_000_000), (6_000_000, 2_000_000), (8_000_000, 4_000_000)]
        {
            let found = run_ns(pairs, start, monotonic_ns);
            assert!(found.abs_diff(expected) < 10, "{monotonic_ns}: {found}");
        }
        assert_eq!(run_ns(pairs, start, 0), 0, "before the run");
    }

    /// Goal: where the kernel's clock is slewed amid a run, instants around a reading are told by it. Readings that are close to another
    /// are left out, as are their errors.
    #[test]
    fn a_slewed_clock_is_followed() {
        let clock = Clock::get();
        let ticks = |us: u64| clock.ticks(std::time::Duration::from_micros(us));
        let start = Ticks(1_000_000);
        let pair = |us: u64, monotonic_us: u64| ClockPair {
            monotonic_ns: monotonic_us * 1_000,
            ticks: start.plus(ticks(us)),
        };
        // In the second half it gains 500 µs a second.
        let ends = [pair(0, 0), pair(2_000_000, 2_000_500)];
        let (amid, close) = (pair(1_000_000, 1_000_000), pair(1_000_100, 1_000_200));
        let line = ClockLine::new(ends, [close, amid], start);
        for (monotonic_us, expected_us) in
            [(500_000, 500_000), (1_000_000, 1_000_000), (1_500_250, 1_500_000)]
        {
            let found = line.run_ns(monotonic_us * 1_000);
            assert!(found.abs_diff(expected_us * 1_000) < 2_000, "{monotonic_us}: {found}");
        }
        assert!(ClockLine::new(ends, [], start).run_ns(1_000_000_000).abs_diff(1_000_000_000) > 200_000);
    }

    #[test]
    fn spans_are_joined_and_the_rest_is_idle() {
        let spans = vec![(30_000, 40_000), (0, 10_000), (5_000, 20_000), (20_000, 25_000)];
        assert_eq!(joined(spans.clone()), [(0, 25_000), (30_000, 40_000)]);
        let window = |span| Window { evidence: Evidence::default(), span };
        let windows = [window((0, 20_000)), window((20_000, 50_000)), window((50_000, 60_000))];
        let idle: Vec<u32> =
            with_idle(&windows, spans).iter().map(|window| window.evidence.idle_us).collect();
        assert_eq!(idle, [0, 15, 10]);
    }

    /// Goal: windows for which there is no room are counted, from thread to evidence.
    #[test]
    fn windows_without_room_are_counted() {
        let mut log = WindowLog::of_this_thread(2);
        (0..5).for_each(|_| log.close(0, false));
        let kept = log.finish();
        assert_eq!((kept.windows.len(), kept.left_out), (2, 3));
        assert_eq!(kept.evidence("client", None).windows_left_out, 3);
    }

    #[test]
    fn windows_are_kept_around_what_was_late() {
        let start = Ticks(0);
        let window = |from: u64| Window { evidence: Evidence::default(), span: (from, from + 100) };
        let windows: Vec<Window> = (0..8).map(|place| window(place * 100)).collect();
        let kept = around(windows, &[(250, 390)], start);
        let spans: Vec<u64> = kept.iter().map(|window| window.span.0).collect();
        assert_eq!(spans, [200, 300, 400]);
    }
}
