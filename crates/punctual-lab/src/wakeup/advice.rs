//! Advice on the choice of a way of waiting, in words, from the measurements.

use punctual_lab_machine::wake::Mechanism;

use super::plan::{Measurement, WakeupCell};
use crate::load::wake::Route;
use crate::summary::{CellResult, Choice, Recommendation};
use crate::units::micros;

/// Latencies within a tenth of each other are alike: the simpler way is named.
const ALIKE: f64 = 1.1;

/// The advice, if enough was measured for any.
pub(super) fn advise(results: &[CellResult]) -> Option<Recommendation> {
    let at = |route: Route, gap_us: u64| {
        let result = WakeupCell::plain(route, gap_us).result(results, Measurement::Any);
        result.filter(|result| result.lost == 0 && result.figures.p50.is_some())
    };
    let parks = Mechanism::ALL.map(Route::Park);
    let in_a_loop = [Mechanism::Epoll, Mechanism::EpollEdge, Mechanism::UringPoll].map(Route::Park);
    let mut choices = Vec::new();
    for (need, gap_us, offered) in [
        ("a core to spare", 100, &[Route::Spin][..]),
        ("gaps that vary, mostly short", 10, &[Route::Adaptive]),
        ("no core to spare, gap 100 µs", 100, &parks),
        ("no core to spare, gap 1 ms", 1_000, &parks),
        ("no core to spare, gap 10 ms", 10_000, &parks),
        ("beside sockets, gap 1 ms", 1_000, &in_a_loop),
    ] {
        choices.extend(choose(need, offered.iter().filter_map(|&route| at(route, gap_us))));
    }
    let spin = at(Route::Spin, 100)?.figures.p50? as f64;
    let asleep: Vec<f64> =
        parks.iter().filter_map(|&route| at(route, 100)?.figures.p50.map(|ns| ns as f64)).collect();
    let (fastest, slowest) =
        asleep.iter().fold((f64::MAX, 0_f64), |(low, high), &ns| (low.min(ns), high.max(ns)));
    let text = if asleep.is_empty() {
        format!("An awake reader learns of a message in {} µs.", micros(spin))
    } else {
        format!(
            "Not sleeping is what pays: an awake reader learns of a message in {} µs, a sleeping one in {} to {} µs, with any mechanism.",
            micros(spin),
            micros(fastest),
            micros(slowest)
        )
    };
    Some(Recommendation { text, choices })
}

fn choose<'a>(need: &str, mut offered: impl Iterator<Item = &'a CellResult> + Clone) -> Option<Choice> {
    let p50 = |result: &CellResult| result.figures.p50.unwrap_or(u64::MAX) as f64;
    let fastest = offered.clone().map(p50).fold(f64::MAX, f64::min);
    // The first in their order: the simplest that is as good as any.
    let result = offered.find(|result| p50(result) <= fastest * ALIKE)?;
    let cpu = result.cpu_ns_per_message.map_or(String::new(), |ns| format!(", {} µs CPU", micros(ns)));
    let tail = result.figures.p99.map_or(String::new(), |ns| format!(", p99 {} µs", micros(ns as f64)));
    Some(Choice {
        need: need.to_owned(),
        name: result.cell.name.clone(),
        because: format!("p50 {} µs{tail}{cpu} per message", micros(p50(result))),
    })
}
