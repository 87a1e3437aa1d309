//! What is kept of a trial as evidence: its two threads, whose each stage is, and what was seen around late trips.

use punctual::{Clock, Ticks};

use super::explain::{Side, side_of};
use super::option::Variant;
use super::settings::ResponseSettings;
use super::trips::{BEYOND, NAMES, WIRE};
use crate::explain::evidence::{EvidenceThread, Recording, TrialEvidence};
use crate::explain::recorder::LateRecorder;
use crate::explain::stage::{StageOwner, rule_for};
use crate::sample::{Load, Samples};
use punctual_machine::fault_cost::fault_ns;
use punctual_machine::window::Window;

/// The kernel's clock and ours at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockPair {
    monotonic_ns: u64,
    ticks: Ticks,
}

impl ClockPair {
    pub(super) fn now() -> Self {
        Self { monotonic_ns: punctual_machine::clock::monotonic_ns(), ticks: Clock::get().now() }
    }
}

/// What a trial brings to be kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// The client's thread, and the responder's if it is on this host.
    pub(super) threads: [Option<u32>; 2],
    /// What each saw of itself, by the process's clock.
    pub(super) windows: [Vec<Window>; 2],
    /// Records the kernel, if that was asked for, or why not.
    pub(super) recorder: Option<Result<LateRecorder, String>>,
    /// Before the first trip, and after the last.
    pub(super) clocks: [ClockPair; 2],
}

impl Kept {
    /// The evidence of a trial, at instants of the run, which began at `start`.
    pub(super) fn evidence(
        self,
        settings: &ResponseSettings,
        choice: Variant,
        samples: &Samples,
        start: Ticks,
    ) -> TrialEvidence {
        let late = late_spans(samples, settings.load);
        let urgencies = [choice.at_client().urgency, choice.at_responder().urgency];
        let mut windows = self.windows.into_iter();
        let threads = ROLES.iter().enumerate().map(|(side, &role)| EvidenceThread {
            role: role.to_owned(),
            thread: self.threads[side],
            cpu: settings.cpus[side],
            urgency: urgencies[side],
            windows: around(windows.next().unwrap_or_default(), &late, start),
        });
        let threads = threads.collect();
        let (recording, dumps) = match self.recorder {
            None => (Recording::Off, Vec::new()),
            Some(Err(reason)) => (Recording::Missing { reason }, Vec::new()),
            Some(Ok(recorder)) => recorder.finish(|ns| run_ns(self.clocks, start, ns)),
        };
        TrialEvidence { threads, stages: owners(samples), recording, dumps, fault_ns: fault_ns() }
    }
}

const ROLES: [&str; 2] = ["client", "responder"];

/// Whose each stage is. On a veth the wire runs in its sender's own call.
fn owners(samples: &Samples) -> Vec<StageOwner> {
    let owner = |stage: &str| {
        let side = side_of(stage, samples);
        let role = match side {
            Side::Client => Some(ROLES[0]),
            Side::Responder => Some(ROLES[1]),
            _ if [WIRE, BEYOND].contains(&stage) => None,
            Side::WireOrResponder => Some(ROLES[1]),
            Side::Sender | Side::Medium | Side::Receiver | Side::Thread => None,
            Side::Wire => Some(ROLES[usize::from(stage.starts_with("reply"))]),
        };
        StageOwner { stage: stage.to_owned(), side, role: role.map(str::to_owned) }
    };
    let has = |name: &&&str| samples.stages.iter().any(|stage| stage.name == **name);
    NAMES.iter().filter(has).map(|name| owner(name)).collect()
}

/// When the late trips were under way.
fn late_spans(samples: &Samples, load: Load) -> Vec<(u64, u64)> {
    let threshold_ns = rule_for(samples).threshold_ns;
    let late = (0..samples.len()).filter(|&row| samples.total_ns[row] > threshold_ns);
    late.map(|row| {
        let begin = samples.start_ns(row, load);
        (begin, begin.saturating_add(samples.total_ns[row]))
    })
    .collect()
}

/// Windows that overlap a late trip, and the one behind each, which may notice what ended in it.
fn around(windows: Vec<Window>, late: &[(u64, u64)], start: Ticks) -> Vec<Window> {
    let began_ns = Clock::get().nanos(start);
    let of_run = |ns: u64| ns.saturating_sub(began_ns);
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

/// An instant of `CLOCK_MONOTONIC` as one of the run, by both clocks at two instants: their rates differ by millionths.
fn run_ns([first, last]: [ClockPair; 2], start: Ticks, monotonic_ns: u64) -> u64 {
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
    use punctual_machine::window::Evidence;

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
