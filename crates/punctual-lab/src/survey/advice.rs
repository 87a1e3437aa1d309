//! Recommendation for this machine, in words, from the figures alone.

use super::cost::LibraryCost;
use super::plan::{BUSY_GAP_US, Manner};
use crate::sample::{CellId, Kind, Load};
use crate::summary::{CellResult, Choice, Recommendation};
use crate::units::micros;

/// Figures nearer than this are called equal: less than what one run can tell apart.
const EQUAL: f64 = 1.10;

/// The same of means beside busy neighbours: few time slices are in them.
const EQUAL_BUSY: f64 = 1.5;

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
    /// A route that keeps its CPU all the time is an answer.
    spins: bool,
    /// Decided from what was measured beside busy neighbours.
    neighbour: bool,
    by: By,
}

/// Quantity that is to be small.
#[derive(Clone, Copy)]
enum By {
    Latency,
    /// Of all messages: where now and then one waits for a time slice, the median hides what it costs.
    Mean,
    Cpu,
}

const NEEDS: [Need; 6] = [
    Need {
        need: "between processes, frequent messages, a CPU to spare for each receiver",
        short: Some("between processes"),
        engines: &["shared"],
        gap_us: 0,
        spins: true,
        neighbour: false,
        by: By::Latency,
    },
    Need {
        need: "between processes, no CPU to spare (a message each 100 µs, beside a busy neighbour on each CPU)",
        short: None,
        engines: &["shared"],
        gap_us: BUSY_GAP_US,
        spins: false,
        neighbour: true,
        by: By::Mean,
    },
    Need {
        need: "between processes, rare messages (one a millisecond), asleep in between",
        short: Some("between processes, asleep until a rare message"),
        engines: &["shared", "datagram"],
        gap_us: RARE_GAP_US,
        spins: false,
        neighbour: false,
        by: By::Latency,
    },
    Need {
        need: "between processes, rare messages, least CPU time",
        short: None,
        engines: &["shared", "datagram"],
        gap_us: RARE_GAP_US,
        spins: false,
        neighbour: false,
        by: By::Cpu,
    },
    Need {
        need: "between hosts, a CPU to spare (of two ends on this host, without a network card: veth and loopback)",
        // Never in the headline: nothing between hosts was measured.
        short: None,
        engines: &["packet", "datagram"],
        gap_us: 0,
        spins: true,
        neighbour: false,
        by: By::Latency,
    },
    Need {
        need: "between hosts, rare messages, asleep in between (of two ends on this host, without a network card: veth and loopback)",
        short: None,
        engines: &["packet", "datagram"],
        gap_us: RARE_GAP_US,
        spins: false,
        neighbour: false,
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
            && cell.neighbour == self.neighbour
            && !cell.wake.ends_with(Manner::Plain.suffix())
            && self.engines.contains(&cell.engine.as_str())
            && (self.spins || route_of(cell).1 != Some("spin"))
    }

    fn cost(&self, result: &CellResult) -> Option<f64> {
        match self.by {
            By::Latency => result.figures.p50.map(|ns| ns as f64),
            By::Mean => result.figures.p50.and(result.figures.mean),
            By::Cpu => result.cpu_ns_per_message,
        }
    }

    /// Routes that broke a promise anywhere in the run, in whatever manner, are not recommended for anything.
    fn is_trusted(result: &CellResult, results: &[CellResult]) -> bool {
        let route = route_of(&result.cell);
        let of_route = |other: &&CellResult| route_of(&other.cell) == route;
        results.iter().filter(of_route).all(CellResult::kept_promises)
    }

    /// The best result, and those that one run cannot tell from it.
    fn choose<'a>(&self, results: &'a [CellResult]) -> Option<(&'a CellResult, Vec<&'a CellResult>)> {
        let mut met: Vec<(&CellResult, f64)> = results
            .iter()
            .filter(|result| self.is_met_by(result) && Self::is_trusted(result, results))
            .filter_map(|result| Some((result, self.cost(result)?)))
            .collect();
        met.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let (best, least) = *met.first()?;
        let equal = if self.neighbour { EQUAL_BUSY } else { EQUAL };
        let equals = met
            .iter()
            .skip(1)
            .filter(|(_, cost)| *cost <= least * equal)
            .map(|(result, _)| *result)
            .collect();
        Some((best, equals))
    }

    fn because(&self, best: &CellResult, equals: &[&CellResult]) -> String {
        let mut text = format!("round trip {}", figures(best));
        if let (By::Mean, Some(mean)) = (self.by, best.figures.mean) {
            text.push_str(&format!(", mean {} µs", micros(mean)));
        }
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

/// Engine and way of waiting, without the suffix of a manner.
fn route_of(cell: &CellId) -> (&str, Option<&str>) {
    (&cell.engine, cell.wake.split('+').next())
}

/// "p50 6.04 µs, p99 12.1 µs": as many quantiles as the sample supports.
fn figures(result: &CellResult) -> String {
    let all =
        [("p50", result.figures.p50), ("p99", result.figures.p99), ("max", result.figures.max_answered)];
    let known = all.into_iter().filter_map(|(name, ns)| Some(format!("{name} {} µs", micros(ns? as f64))));
    known.collect::<Vec<_>>().join(", ")
}

/// In place of the headlines. A survey that was narrowed has perhaps measured neither, and a route that broke a promise is none.
const NOTHING_HEADS: &str = "No route heads the choices below. None was measured without a gap, or asleep at a gap of 1 ms, with \
    enough messages and no broken promise.";

/// The survey's advice; `None` if nothing was measured that could answer any need.
pub fn advise(results: &[CellResult], costs: &[LibraryCost]) -> Option<Recommendation> {
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
    if let Some(first) = costs.first() {
        let need = "what the library costs: its p50 against the bare mechanism's, without stamps".to_owned();
        let ratios: Vec<String> = costs.iter().map(LibraryCost::to_string).collect();
        choices.push(Choice { need, name: first.name.clone(), because: ratios.join("; ") });
    }
    let text = if headlines.is_empty() {
        NOTHING_HEADS.to_owned()
    } else {
        format!("Use {}.", headlines.join(", "))
    };
    (!choices.is_empty()).then_some(Recommendation { text, choices })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Outcome, Samples};

    fn result(engine: &str, wake: &str, gap_us: u64, ns: u64) -> CellResult {
        let mut samples = Samples::default();
        for index in 0..300 {
            samples.push(index, index * 1000, index * 1000, ns, Outcome::Answered);
        }
        CellResult::of(&CellId { gap_us, ..CellId::new(engine, wake) }, &[samples], 0)
    }

    /// The same beside busy neighbours.
    fn busy(wake: &str, ns: u64) -> CellResult {
        let mut result = result("shared", &format!("{wake}+busy"), BUSY_GAP_US, ns);
        result.cell.neighbour = true;
        result
    }

    fn choice<'a>(advice: &'a Recommendation, need: &str) -> Option<&'a Choice> {
        advice.choices.iter().find(|choice| choice.need.contains(need))
    }

    #[test]
    fn the_fastest_is_chosen_and_its_equals_are_named() {
        let results = [
            result("shared", "spin", 0, 600),
            busy("futex", 10_000),
            busy("epoll", 10_500),
            result("floor", "slot", 0, 500),
        ];
        let cost = LibraryCost::of(("shared/spin", "floor/slot", 0), &[1.2; 5]).unwrap();
        let advice = advise(&results, &[cost]).unwrap();
        assert_eq!(advice.choices[0].name, "shared/spin");
        let spare = choice(&advice, "no CPU to spare").unwrap();
        assert_eq!(spare.name, "shared/futex+busy");
        assert!(spare.because.contains("shared/epoll+busy"), "{}", spare.because);
        let library = choice(&advice, "what the library costs").unwrap();
        assert!(library.because.contains("1.20 × floor/slot"), "{}", library.because);
        assert_eq!(library.name, "shared/spin", "the name of a result");
        assert_eq!(advice.text, "Use shared/spin between processes (0.60 µs there and back).");
    }

    /// Goal: a user who has no CPU to spare is not told the fastest choice of an idle machine. Method: backoff is the fastest on the
    /// idle one, and 660 times slower than the futex beside a neighbour.
    #[test]
    fn advice_without_a_spare_cpu_comes_from_a_busy_machine() {
        let idle = [result("shared", "backoff", 0, 700), result("shared", "futex", 0, 10_000)];
        assert!(choice(&advise(&idle, &[]).unwrap(), "no CPU to spare").is_none(), "it was not measured");
        let all = [&idle[..], &[busy("backoff", 8_000_000), busy("futex", 12_000)]].concat();
        assert_eq!(choice(&advise(&all, &[]).unwrap(), "no CPU to spare").unwrap().name, "shared/futex+busy");
        let spinning = [&all[..], &[busy("spin", 9_000)]].concat();
        let advice = advise(&spinning, &[]).unwrap();
        assert_eq!(choice(&advice, "no CPU to spare").unwrap().name, "shared/futex+busy", "it takes the CPU");
    }

    /// Goal: a median that hides the time slices of every fifth message is not the fastest.
    #[test]
    fn a_busy_route_is_judged_by_all_its_messages() {
        let mut sliced = Samples::default();
        for index in 0..300 {
            let ns = if index % 5 == 0 { 4_000_000 } else { 2_000 };
            sliced.push(index, index * 1000, index * 1000, ns, Outcome::Answered);
        }
        let cell = CellId { neighbour: true, gap_us: BUSY_GAP_US, ..CellId::new("shared", "backoff+busy") };
        let results = [CellResult::of(&cell, &[sliced], 0), busy("futex", 12_000)];
        assert_eq!(
            choice(&advise(&results, &[]).unwrap(), "no CPU to spare").unwrap().name,
            "shared/futex+busy"
        );
    }

    /// Goal: a figure of a veth or of the loopback interface never heads the page as one between hosts.
    #[test]
    fn nothing_between_hosts_stands_in_the_headline() {
        let results = [result("shared", "spin", 0, 600), result("packet", "spin", 0, 5_000)];
        let advice = advise(&results, &[]).unwrap();
        assert!(!advice.text.contains("hosts"), "{}", advice.text);
        assert!(choice(&advice, "between hosts").unwrap().need.contains("without a network card"));
        let advice = advise(&results[1..], &[]).unwrap();
        assert!(!advice.text.contains("packet"), "{}", advice.text);
    }

    #[test]
    fn a_route_that_lost_messages_is_not_recommended() {
        let mut lossy = result("shared", "spin", 0, 100);
        lossy.lost = 1;
        let advice = advise(&[lossy, result("shared", "backoff", 0, 700)], &[]).unwrap();
        assert_eq!(advice.choices[0].name, "shared/backoff");
        assert!(advise(&[], &[]).is_none());
    }

    /// Goal: a promise that a route broke in one manner, of whatever kind, is held against all of its results; one of another engine or
    /// way is not.
    #[test]
    fn a_broken_promise_counts_in_every_manner() {
        let breaks: [fn(&mut CellResult); 4] = [
            |result| result.lost = 1,
            |result| result.mismatched = 1,
            |result| result.duplicated = 1,
            |result| result.reordered = 1,
        ];
        for breaks in breaks {
            for manner in ["", "+busy", "+plain"] {
                let broken = |engine: &str, wake: &str| {
                    let mut result = result(engine, &format!("{wake}{manner}"), 7, 100);
                    breaks(&mut result);
                    result
                };
                let chosen = |broken: CellResult| {
                    let results =
                        [result("shared", "spin", 0, 100), result("shared", "backoff", 0, 700), broken];
                    advise(&results, &[]).expect("one of them").choices.remove(0).name
                };
                assert_eq!(chosen(broken("shared", "spin")), "shared/backoff", "{manner}");
                assert_eq!(chosen(broken("datagram", "spin")), "shared/spin", "{manner}");
                assert_eq!(chosen(broken("shared", "futex")), "shared/spin", "{manner}");
            }
        }
    }

    /// Goal: the sentence above the choices is true of a survey that measured routes between processes under other conditions only.
    #[test]
    fn a_narrow_survey_is_not_called_empty() {
        let advice = advise(&[busy("futex", 12_000)], &[]).expect("it answers a need");
        assert_eq!(advice.choices.len(), 1);
        assert!(advice.text.starts_with("No route heads the choices below."), "{}", advice.text);
    }
}
