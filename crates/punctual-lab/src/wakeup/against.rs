//! What the doorbell's protocol costs and saves: a way with it beside the same without, in the same turns.

use punctual_machine::wake::Mechanism;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::{Cell, Conditions, GAPS_US, Measurement};
use super::route::{Route, SetSize};
use crate::summary::CellResult;
use crate::table::micros;

/// Ways with the doorbell, the same without it, and by which figure they are compared. A floor that calls for every message has
/// no messages that find its reader awake, so the eventfds are compared over all.
const PAIRS: [(Route, Route, Measurement); 4] = [
    (Route::Park(Mechanism::Epoll), Route::BareEpoll(SetSize::One), Measurement::Any),
    (Route::Park(Mechanism::EventFd), Route::BareEvent, Measurement::Any),
    (Route::Park(Mechanism::Futex), Route::BareFutex, Measurement::Blocked),
    (Route::Spin, Route::Line, Measurement::Any),
];

/// The median of each trial of a cell.
fn trial_medians(result: &CellResult) -> Vec<Option<u64>> {
    let kept = result.more.get("trial_p50_ns").cloned().unwrap_or_default();
    serde_json::from_value(kept).unwrap_or_default()
}

/// The medians of two cells' trials, turn by turn, the one by the other; the least first.
fn ratios(own: &[Option<u64>], other: &[Option<u64>]) -> Vec<f64> {
    let ratio = |(own, other): (&Option<u64>, &Option<u64>)| Some((*own)? as f64 / (*other)?.max(1) as f64);
    let mut ratios: Vec<f64> = own.iter().zip(other).filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.iter().map(|ratio| (ratio * 1000.0).round() / 1000.0).collect()
}

/// The quartiles of these ratios.
fn quartiles(own: &CellResult, other: &CellResult) -> Option<[f64; 3]> {
    let ratios = ratios(&trial_medians(own), &trial_medians(other));
    let quartile = |share: usize| ratios.get(ratios.len() * share / 4).copied();
    Some([quartile(1)?, quartile(2)?, quartile(3)?])
}

/// What one message costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// System calls of the writer, for the notification.
    pub notify_calls: f64,
    /// System calls of the reader, for the wait.
    pub wait_calls: f64,
    /// Processor time: the reader's, and the writer's in the notification; nanoseconds.
    pub cpu_ns: f64,
}

impl Price {
    fn of(any: &CellResult) -> Option<Self> {
        let more = |name: &str| any.more.get(name).and_then(Value::as_f64);
        Some(Self {
            notify_calls: more("notify_calls_per_message")?,
            wait_calls: more("wait_calls_per_message")?,
            cpu_ns: (any.cpu_ns_per_message? + more("notify_ns_per_message")?).round(),
        })
    }

    /// System calls of both ends.
    pub fn calls(self) -> f64 {
        self.notify_calls + self.wait_calls
    }
}

/// A way with the doorbell beside the same without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgainstBare {
    /// `<way>/<figure>` with the doorbell.
    pub name: String,
    /// The way without it.
    pub bare_name: String,
    /// Idle time before each message.
    pub gap_us: u64,
    /// Its p50, nanoseconds.
    pub p50_ns: u64,
    /// The bare mechanism's, nanoseconds.
    pub bare_ns: u64,
    /// The one by the other: the median of the ratios of trials made one after the other, so that what the machine does for
    /// longer than a turn is in both.
    pub ratio: f64,
    /// The quartiles of these ratios: half of them lie between.
    pub ratio_quartiles: [f64; 2],
    /// What a message costs with the doorbell.
    pub price: Price,
    /// What it costs without.
    pub bare_price: Price,
}

impl AgainstBare {
    /// Every pair at every gap where both were measured.
    pub fn of(results: &[CellResult]) -> Vec<Self> {
        let at = |route, gap_us, measurement| {
            let id = Cell { route, conditions: Conditions::default(), gap_us }.id(measurement);
            results.iter().find(|result| result.cell == id)
        };
        let compare = |(route, bare, measurement), gap_us| {
            let (result, other): (&CellResult, &CellResult) =
                (at(route, gap_us, measurement)?, at(bare, gap_us, measurement)?);
            let [low, ratio, high] = quartiles(result, other)?;
            Some(Self {
                name: result.cell.name.clone(),
                bare_name: bare.name().to_owned(),
                gap_us,
                p50_ns: result.figures.p50?,
                bare_ns: other.figures.p50?,
                ratio,
                ratio_quartiles: [low, high],
                price: Price::of(at(route, gap_us, Measurement::Any)?)?,
                bare_price: Price::of(at(bare, gap_us, Measurement::Any)?)?,
            })
        };
        let gaps = |pair| GAPS_US.into_iter().filter_map(move |gap_us| compare(pair, gap_us));
        PAIRS.into_iter().flat_map(gaps).collect()
    }
}

/// The work log's question in a sentence: what does the doorbell save against eventfd under epoll?
pub fn epoll_answer(rows: &[AgainstBare]) -> Option<String> {
    let floor = Route::BareEpoll(SetSize::One).name();
    let part = |row: &AgainstBare| {
        let gap = Cell { route: Route::Spin, conditions: Conditions::default(), gap_us: row.gap_us };
        format!(
            "gap {}: {:.1} calls, not {:.1}; {} µs, not {} ({:.2} ×)",
            gap.id(Measurement::Any).gap(),
            row.price.calls(),
            row.bare_price.calls(),
            micros(row.p50_ns as f64),
            micros(row.bare_ns as f64),
            row.ratio
        )
    };
    let parts: Vec<String> = rows.iter().filter(|row| row.bare_name == floor).map(part).collect();
    (!parts.is_empty())
        .then(|| format!("What the doorbell saves against eventfd under epoll: {}.", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that is three times as slow in the second turn changes no ratio; a trial without a message is in none.
    #[test]
    fn trials_are_compared_turn_by_turn() {
        let (own, bare) =
            ([Some(110), Some(360), None, Some(90)], [Some(100), Some(300), Some(7), Some(100)]);
        assert_eq!(ratios(&own, &bare), [0.9, 1.1, 1.2]);
        assert_eq!(ratios(&own, &[]), [0.0; 0]);
    }
}
