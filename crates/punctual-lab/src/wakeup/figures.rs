//! Figures besides time: system calls, sleeps, processor time; and the results of the adaptive policy.

use punctual::Ticks;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::plan::{GAPS_US, Measurement, WakeupCell};
use super::{WARMUP, samples};
use crate::load::wake::{Record, Route, Sent};
use crate::sample::Phase;
use crate::stats::{Distribution, TrialMedian, upper_median};
use crate::summary::CellResult;

/// Counters of one cell, over all its trials.
#[derive(Clone, Debug, Default)]
pub struct CallFigures {
    messages: u64,
    notify_calls: u64,
    notified: u64,
    park_calls: u64,
    parked: u64,
    awake: u64,
    wall_ns: u64,
    /// Time that the writer took for each message: without a notification, and with one.
    notify_ns: [Vec<u64>; 2],
    /// Loops of the steady state, sum and sum of squares of their durations, nanoseconds.
    loops: u64,
    loop_sums: [f64; 2],
    /// Median of `w2r_any` and of `w2r_blocked` in each trial.
    medians: [Vec<TrialMedian>; 2],
}

/// The steady state of one trial.
fn steady(record: &Record, measurement: Measurement) -> Distribution {
    Distribution::of(&[samples(record, measurement, Ticks(0))], Phase::Steady, WARMUP)
}

/// Measurements for which medians of single trials are kept.
const PAIRED: [Measurement; 2] = [Measurement::Any, Measurement::Blocked];

impl CallFigures {
    /// One more trial.
    pub(super) fn add(&mut self, record: &Record) {
        self.messages += record.rows.len() as u64;
        let clock = punctual::Clock::get();
        self.wall_ns += clock.nanos(record.lasted);
        for (medians, measurement) in self.medians.iter_mut().zip(PAIRED) {
            medians.push(TrialMedian::of(&steady(record, measurement)));
        }
        // As the figures that stand beside the deviation: without what was lost.
        for ns in steady(record, Measurement::Loop).finite_ns() {
            let around = *ns as f64;
            self.loops += 1;
            self.loop_sums[0] += around;
            self.loop_sums[1] += around * around;
        }
        for row in &record.rows {
            let Sent { before, after, calls, .. } = row.sent;
            self.notify_calls += u64::from(calls);
            self.notified += u64::from(calls > 0);
            self.notify_ns[usize::from(calls > 0)].push(clock.nanos(after.since(before)));
            self.park_calls += u64::from(row.seen.wait.parks) * u64::from(record.calls_per_park);
            self.parked += u64::from(row.is_parked());
            self.awake += u64::from(row.is_awake());
        }
    }

    /// Time that notifying takes the writer, by the medians: an instant at which it is kept from running costs time, but no processor
    /// time.
    fn notify_ns_per_message(&self) -> f64 {
        let median = |durations: &Vec<u64>| upper_median(&mut durations.clone()).unwrap_or(0);
        let cost = |durations: &Vec<u64>| median(durations) as f64 * durations.len() as f64;
        self.notify_ns.iter().map(cost).sum::<f64>() / self.messages.max(1) as f64
    }

    /// Adds them to the cell's results.
    pub(super) fn enrich(&self, cell: WakeupCell, results: &mut [CellResult]) {
        let mut add = |measurement: Measurement, more: Value| {
            let id = cell.id(measurement);
            let result = results.iter_mut().find(|result| result.cell == id);
            result.into_iter().for_each(|result| result.extend(more.clone()));
        };
        let messages = self.messages.max(1) as f64;
        let share = |count: u64| (count as f64 / messages * 1000.0).round() / 1000.0;
        for (medians, measurement) in self.medians.iter().zip(PAIRED) {
            add(measurement, json!({ "trial_p50_ns": medians }));
        }
        let any = json!({
            "notify_ns_per_message": self.notify_ns_per_message().round(),
            "notify_calls_per_message": share(self.notify_calls),
            "wait_calls_per_message": share(self.park_calls),
            "elided_share": share(self.messages - self.notified),
            "parked_share": share(self.parked),
            "awake_share": share(self.awake),
        });
        add(Measurement::Any, any);
        let [mean, square] = self.loop_sums.map(|sum| sum / self.loops.max(1) as f64);
        let deviation_ns = (square - mean * mean).max(0.0).sqrt().round();
        let around =
            json!({ "wall_ns": self.wall_ns, "messages": self.messages, "deviation_ns": deviation_ns });
        add(Measurement::Loop, around);
    }
}

/// Processor time of a message: the reader's, and the writer's in the notification; nanoseconds.
pub(super) fn cpu_ns(any: &CellResult) -> Option<f64> {
    Some(any.cpu_ns_per_message? + any.number("notify_ns_per_message")?)
}

/// The adaptive policy at one gap, beside the two that it chooses between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Policy {
    /// Idle time before each message.
    pub gap_us: u64,
    /// p50 of `w2r_any`, and processor time per message (the reader's, and the writer's in the notification), nanoseconds: of
    /// `spin`, …
    pub spin: [f64; 2],
    /// … of `futex`, …
    pub park: [f64; 2],
    /// … and of `adaptive`.
    pub adaptive: [f64; 2],
    /// Choice of the policy for most messages: `park` if they needed a notification, `spin` if not.
    pub chose: String,
    /// Latency against the lower of the two.
    pub latency_ratio: f64,
    /// Processor time against the lower of the two.
    pub cpu_ratio: f64,
    /// Latency against the chosen one's.
    pub latency_ratio_to_chosen: f64,
}

impl Policy {
    /// At every gap where all three were measured.
    pub(super) fn of(results: &[CellResult]) -> Vec<Self> {
        GAPS_US.into_iter().filter_map(|gap_us| Self::at(results, gap_us)).collect()
    }

    fn at(results: &[CellResult], gap_us: u64) -> Option<Self> {
        let find = |route: Route| {
            let result = WakeupCell::plain(route, gap_us).result(results, Measurement::Any)?;
            let times = [result.figures.p50? as f64, cpu_ns(result)?];
            Some((times, result.number("notify_calls_per_message")?))
        };
        let (spin, _) = find(Route::Spin)?;
        let (park, _) = find(Route::Park(punctual_lab_machine::wake::Mechanism::Futex))?;
        let (adaptive, calls) = find(Route::Adaptive)?;
        let spins = calls < 0.5;
        let (chose, chosen) = if spins { ("spin", spin) } else { ("park", park) };
        let ratio = |own: f64, other: f64| (own / other.max(1.0) * 1000.0).round() / 1000.0;
        Some(Self {
            gap_us,
            spin,
            park,
            adaptive,
            chose: chose.to_owned(),
            latency_ratio: ratio(adaptive[0], spin[0].min(park[0])),
            cpu_ratio: ratio(adaptive[1], spin[1].min(park[1])),
            latency_ratio_to_chosen: ratio(adaptive[0], chosen[0]),
        })
    }
}

#[cfg(test)]
mod tests {
    use punctual::Clock;

    use super::*;
    use crate::load::wake::{Conditions, Row, Seen};

    /// Goal: the deviation is of the messages whose mean, least and most stand beside it: without the warm-up and what was lost.
    #[test]
    fn a_deviation_is_of_the_steady_state() {
        let tick = |us: u64| Clock::get().ticks(std::time::Duration::from_micros(us));
        let row = |us: u64| {
            let mut row = Row { sent: Sent::default(), seen: Seen::default() };
            row.sent.acknowledged = tick(us);
            row
        };
        let mut rows: Vec<Row> = (0..WARMUP).map(|_| row(20_000)).collect();
        rows.extend((0..50).flat_map(|_| [row(100), row(104)]));
        let mut lost = row(300_000);
        lost.seen.wait.limit_at = Some(tick(600_000));
        rows.push(lost);
        let record = Record { rows, stuck: false, lasted: Ticks(1), reader_cpu_ns: 0, calls_per_park: 1 };
        let cell = WakeupCell { route: Route::Spin, conditions: Conditions::default(), gap_us: 0 };
        let mut figures = CallFigures::default();
        figures.add(&record);
        let mut results = vec![CellResult::of(&cell.id(Measurement::Loop), &[], 0)];
        figures.enrich(cell, &mut results);
        let deviation_ns = results[0].number("deviation_ns").expect("it has one");
        assert!((deviation_ns - 2_000.0).abs() < 50.0, "{deviation_ns}");
        assert_eq!(results[0].number("messages"), Some(105.0));
    }

    /// Goal: the median of a trial in which most wake-ups were lost is infinite, not that of the few that were not.
    #[test]
    fn a_median_falls_among_the_lost() {
        let tick = |us: u64| Clock::get().ticks(std::time::Duration::from_micros(us));
        let medians = |lost: usize| {
            let mut rows: Vec<Row> = Vec::new();
            for number in 0..WARMUP as usize + 100 {
                let mut row = Row { sent: Sent::default(), seen: Seen::default() };
                (row.sent.before, row.sent.after) = (tick(10), tick(11));
                row.seen.wait.awake = tick(100);
                if number >= WARMUP as usize && number < WARMUP as usize + lost {
                    row.seen.wait.limit_at = Some(tick(600_000));
                }
                rows.push(row);
            }
            let record = Record { rows, stuck: false, lasted: Ticks(1), reader_cpu_ns: 0, calls_per_park: 1 };
            let mut figures = CallFigures::default();
            figures.add(&record);
            figures.medians[0].clone()
        };
        assert!(matches!(medians(0)[..], [TrialMedian::Ns(_)]), "{:?}", medians(0));
        assert!(matches!(medians(40)[..], [TrialMedian::Ns(_)]), "{:?}", medians(40));
        assert!(matches!(medians(60)[..], [TrialMedian::Infinite(_)]), "{:?}", medians(60));
    }
}
