//! What to use on this machine, in words, from the figures alone.

use crate::sample::{Kind, Load};
use crate::summary::{CellResult, Choice, Recommendation};
use crate::table::micros;

/// Figures nearer than this are called equal: less than what one run can tell apart.
const EQUAL: f64 = 1.10;

/// The idle gap at which *rare* messages are judged, µs.
const RARE_GAP_US: u64 = 1000;

/// A question that a user has, and which results may answer it.
struct Need {
    need: &'static str,
    /// The same in a headline.
    short: Option<&'static str>,
    /// Engines, in order of preference where figures are equal.
    engines: &'static [&'static str],
    gap_us: u64,
    polls: bool,
    by: By,
}

/// What is to be small.
#[derive(Clone, Copy)]
enum By {
    Latency,
    Cpu,
}

const NEEDS: [Need; 6] = [
    Need {
        need: "between processes, frequent messages, a CPU to spare for each receiver",
        short: Some("between processes"),
        engines: &["shared"],
        gap_us: 0,
        polls: true,
        by: By::Latency,
    },
    Need {
        need: "between processes, frequent messages, no CPU to spare",
        short: None,
        engines: &["shared"],
        gap_us: 0,
        polls: false,
        by: By::Latency,
    },
    Need {
        need: "between processes, rare messages (one a millisecond), asleep in between",
        short: Some("between processes, asleep until a rare message"),
        engines: &["shared", "datagram"],
        gap_us: RARE_GAP_US,
        polls: false,
        by: By::Latency,
    },
    Need {
        need: "between processes, rare messages, least CPU time",
        short: None,
        engines: &["shared", "datagram"],
        gap_us: RARE_GAP_US,
        polls: false,
        by: By::Cpu,
    },
    Need {
        need: "between hosts, a CPU to spare (measured on this host: veth and loopback)",
        short: Some("between hosts"),
        engines: &["packet", "datagram"],
        gap_us: 0,
        polls: true,
        by: By::Latency,
    },
    Need {
        need: "between hosts, rare messages, asleep in between (measured on this host: veth and loopback)",
        short: None,
        engines: &["packet", "datagram"],
        gap_us: RARE_GAP_US,
        polls: false,
        by: By::Latency,
    },
];

impl Need {
    fn is_met_by(&self, result: &CellResult) -> bool {
        let cell = &result.cell;
        cell.kind == Kind::RoundTrip
            && cell.load == Load::Closed
            && cell.size == 64
            && cell.gap_us == self.gap_us
            && self.engines.contains(&cell.engine.as_str())
            && (self.polls || cell.wake != "spin")
    }

    fn cost(&self, result: &CellResult) -> Option<f64> {
        match self.by {
            By::Latency => result.figures.p50.map(|ns| ns as f64),
            By::Cpu => result.cpu_ns_per_message,
        }
    }

    /// The best result, and those that one run cannot tell from it.
    /// Routes that lost or garbled a message anywhere in the run are not recommended for anything.
    fn is_trusted(result: &CellResult, results: &[CellResult]) -> bool {
        let of_route = results.iter().filter(|other| other.cell.name == result.cell.name);
        of_route.map(|other| other.lost + other.mismatched).sum::<u64>() == 0
    }

    fn choose<'a>(&self, results: &'a [CellResult]) -> Option<(&'a CellResult, Vec<&'a CellResult>)> {
        let mut met: Vec<(&CellResult, f64)> = results
            .iter()
            .filter(|result| self.is_met_by(result) && Self::is_trusted(result, results))
            .filter_map(|result| Some((result, self.cost(result)?)))
            .collect();
        met.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let (best, least) = *met.first()?;
        let equals = met
            .iter()
            .skip(1)
            .filter(|(_, cost)| *cost <= least * EQUAL)
            .map(|(result, _)| *result)
            .collect();
        Some((best, equals))
    }

    fn because(&self, best: &CellResult, equals: &[&CellResult]) -> String {
        let mut text = format!("round trip {}", figures(best));
        if let Some(cpu_ns) = best.cpu_ns_per_message {
            text.push_str(&format!(", {} µs of the receiver's CPU a message", micros(cpu_ns)));
        }
        if !equals.is_empty() {
            let names: Vec<&str> = equals.iter().map(|result| result.cell.name.as_str()).collect();
            text.push_str(&format!("; not told apart from it by this run: {}", names.join(", ")));
        }
        text
    }
}

/// "p50 6.04 µs, p99 12.1 µs": as many quantiles as the sample supports.
fn figures(result: &CellResult) -> String {
    let all =
        [("p50", result.figures.p50), ("p99", result.figures.p99), ("max", result.figures.max_answered)];
    let known = all.into_iter().filter_map(|(name, ns)| Some(format!("{name} {} µs", micros(ns? as f64))));
    known.collect::<Vec<_>>().join(", ")
}

/// How a route compares with the bare mechanism below it, where both were measured.
fn against_floor(results: &[CellResult]) -> Vec<String> {
    const PAIRS: [(&str, &str, u64); 5] = [
        ("shared/spin", "floor/slot", 0),
        ("shared/futex", "floor/futex", RARE_GAP_US),
        ("datagram/spin", "floor/udp-spin", 0),
        ("datagram/eventfd", "floor/udp-block", RARE_GAP_US),
        ("packet/spin", "floor/packet-spin", 0),
    ];
    let find = |name: &str, gap_us: u64| {
        let result = results.iter().find(|result| {
            let cell = &result.cell;
            cell.name == name
                && cell.gap_us == gap_us
                && cell.size == 64
                && cell.kind == Kind::RoundTrip
                && cell.load == Load::Closed
        })?;
        result.figures.p50.filter(|&ns| ns > 0)
    };
    let ratio = |(route, floor, gap_us)| {
        let (ours, bare) = (find(route, gap_us)?, find(floor, gap_us)?);
        Some(format!("{route} {:.2} × {floor}", ours as f64 / bare as f64))
    };
    PAIRS.into_iter().filter_map(ratio).collect()
}

/// The survey's advice; `None` if nothing was measured that could answer any need.
pub fn advise(results: &[CellResult]) -> Option<Recommendation> {
    let mut choices = Vec::new();
    let mut headlines = Vec::new();
    for need in NEEDS {
        let Some((best, equals)) = need.choose(results) else { continue };
        if let (Some(short), Some(p50)) = (need.short, best.figures.p50) {
            headlines.push(format!("{} {short} ({} µs there and back)", best.cell.name, micros(p50 as f64)));
        }
        let because = need.because(best, &equals);
        choices.push(Choice { need: need.need.to_owned(), name: best.cell.name.clone(), because });
    }
    let ratios = against_floor(results);
    if !ratios.is_empty() {
        let need = "what the library costs: its p50 against the bare mechanism's".to_owned();
        choices.push(Choice {
            need,
            name: "shared, datagram, packet".to_owned(),
            because: ratios.join(", "),
        });
    }
    (!headlines.is_empty())
        .then(|| Recommendation { text: format!("Use {}.", headlines.join(", ")), choices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CellId, Outcome, Samples};

    fn result(engine: &str, wake: &str, gap_us: u64, ns: u64) -> CellResult {
        let mut samples = Samples::default();
        for index in 0..300 {
            samples.push(index, index * 1000, index * 1000, ns, Outcome::Answered);
        }
        CellResult::of(&CellId { gap_us, ..CellId::new(engine, wake) }, &[samples], 0)
    }

    #[test]
    fn the_fastest_is_chosen_and_its_equals_are_named() {
        let results = [
            result("shared", "spin", 0, 600),
            result("shared", "futex", 0, 10_000),
            result("shared", "epoll", 0, 10_500),
            result("floor", "slot", 0, 500),
        ];
        let advice = advise(&results).unwrap();
        assert_eq!(advice.choices[0].name, "shared/spin");
        assert_eq!(advice.choices[1].name, "shared/futex");
        assert!(advice.choices[1].because.contains("shared/epoll"), "{}", advice.choices[1].because);
        assert!(advice.choices.iter().any(|choice| choice.because.contains("1.20 × floor/slot")));
        assert_eq!(advice.text, "Use shared/spin between processes (0.60 µs there and back).");
    }

    #[test]
    fn a_route_that_lost_messages_is_not_recommended() {
        let mut lossy = result("shared", "spin", 0, 100);
        lossy.lost = 1;
        let advice = advise(&[lossy, result("shared", "backoff", 0, 700)]).unwrap();
        assert_eq!(advice.choices[0].name, "shared/backoff");
        assert!(advise(&[]).is_none());
    }
}
