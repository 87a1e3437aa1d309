//! Promises about speed, and whether a run keeps them.

use std::fmt;

use super::turns::{FLOOR, Placement, Quantity, Turns};

/// A promise: one figure of ours, against one of a floor or a peer in the same round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) text: &'static str,
    ours: &'static str,
    other: &'static str,
    size: u32,
    quantity: Quantity,
    pub(super) asked: Asked,
}

/// Requirement on both figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    /// Ours divided by the other's.
    RatioAtMost(f64),
    RatioBelow(f64),
    RatioAtLeast(f64),
    /// Half of what ours is above the other's, ns: of a round trip, what one way costs more.
    OneWayAtMost(f64),
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RatioAtMost(limit) => write!(f, "≤ {limit:.2}"),
            Self::RatioBelow(limit) => write!(f, "< {limit:.2}"),
            Self::RatioAtLeast(limit) => write!(f, "≥ {limit:.2}"),
            Self::OneWayAtMost(limit) => write!(f, "≤ {limit:.0} ns"),
        }
    }
}

impl Asked {
    fn measure(self, ours: f64, other: f64) -> f64 {
        match self {
            Self::OneWayAtMost(_) => (ours - other) / 2.0,
            _ => ours / other,
        }
    }

    fn holds(self, measured: f64) -> bool {
        match self {
            Self::RatioAtMost(limit) | Self::OneWayAtMost(limit) => measured <= limit,
            Self::RatioBelow(limit) => measured < limit,
            Self::RatioAtLeast(limit) => measured >= limit,
        }
    }
}

const OURS: &str = "punctual shared/spin";
const STAMPED: &str = "punctual shared/spin stamped";
const AERON: &str = "aeron ipc";
const STREAM: &str = "punctual publication/spin";
const STREAM_STAMPED: &str = "punctual publication/spin stamped";
const STREAM_STAGES: &str = "punctual publication/spin stages";
const STREAM_SEALED: &str = "punctual publication/spin sealed";
const OF_15: &str = "punctual publication/spin of 15";
const OF_64: &str = "punctual publication/spin of 64";
const OF_200: &str = "punctual publication/spin of 200";
const STREAM_RUNS: &str = "punctual publication/spin runs";

const fn ratio(
    text: &'static str,
    (ours, other): (&'static str, &'static str),
    size: u32,
    quantity: Quantity,
    asked: Asked,
) -> Promise {
    Promise { text, ours, other, size, quantity, asked }
}

use Asked::{OneWayAtMost, RatioAtLeast, RatioAtMost, RatioBelow};
use Quantity::{P50, P99, Rate};

/// All of them.
pub(super) const PROMISES: [Promise; 37] = [
    ratio("shared memory, spinning / bare slot, 64 B, p50", (OURS, FLOOR), 64, P50, RatioAtMost(1.2)),
    ratio("shared memory, spinning / bare slot, 64 B, p99", (OURS, FLOOR), 64, P99, RatioAtMost(2.0)),
    ratio("the same, all stages recorded, p50", (STAMPED, FLOOR), 64, P50, RatioAtMost(1.2)),
    ratio("the same, all stages recorded, p99", (STAMPED, FLOOR), 64, P99, RatioAtMost(2.0)),
    ratio(
        "shared memory, asleep / bare futex, 64 B, p50",
        ("punctual shared/futex", "floor/futex"),
        64,
        P50,
        RatioAtMost(1.1),
    ),
    ratio("shared memory / Aeron IPC, 64 B, p50", (OURS, AERON), 64, P50, RatioAtMost(1.0)),
    ratio("shared memory / Aeron IPC, 64 B, p99", (OURS, AERON), 64, P99, RatioBelow(1.0)),
    ratio("shared memory / Aeron IPC, 1 KiB, p50", (OURS, AERON), 1024, P50, RatioAtMost(1.0)),
    ratio("shared memory / Aeron IPC, 1 KiB, p99", (OURS, AERON), 1024, P99, RatioBelow(1.0)),
    ratio("shared memory / Aeron IPC, 8 KiB, p50", (OURS, AERON), 8192, P50, RatioAtMost(1.0)),
    ratio("shared memory / Aeron IPC, 8 KiB, p99", (OURS, AERON), 8192, P99, RatioBelow(1.0)),
    ratio("shared memory / iceoryx2, 64 B, p50", (OURS, "iceoryx2"), 64, P50, RatioAtMost(0.5)),
    ratio("stream / Aeron IPC, 64 B, messages per second", (OURS, AERON), 64, Rate, RatioAtLeast(1.0)),
    ratio("stream / Aeron IPC, 1 KiB, bytes per second", (OURS, AERON), 1024, Rate, RatioAtLeast(1.0)),
    ratio(
        "UDP, spinning / bare socket, 64 B, p50",
        ("punctual datagram/spin", "floor/udp-spin"),
        64,
        P50,
        RatioAtMost(1.05),
    ),
    ratio(
        "UDP, asleep / bare socket, 64 B, p50",
        ("punctual datagram/eventfd", "floor/udp-block"),
        64,
        P50,
        RatioAtMost(1.05),
    ),
    ratio(
        "Ethernet, spinning / bare TPACKET_V2 rings, 64 B, p50",
        ("punctual packet/spin", "floor/packet-spin"),
        64,
        P50,
        RatioAtMost(1.08),
    ),
    ratio(
        "what recording all stages costs, 64 B, one way, p50",
        (STAMPED, OURS),
        64,
        P50,
        OneWayAtMost(60.0),
    ),
    ratio("publication / bare slot, 64 B, p50", (STREAM, FLOOR), 64, P50, RatioAtMost(1.2)),
    ratio("publication / bare slot, 64 B, p99", (STREAM, FLOOR), 64, P99, RatioAtMost(1.7)),
    ratio(
        "publication, asleep / bare futex, 64 B, p50",
        ("punctual publication/futex", "floor/futex"),
        64,
        P50,
        RatioAtMost(1.05),
    ),
    ratio("publication / Aeron IPC, 64 B, p50", (STREAM, AERON), 64, P50, RatioAtMost(0.85)),
    ratio("publication / Aeron IPC, 64 B, p99", (STREAM, AERON), 64, P99, RatioAtMost(0.9)),
    ratio("publication / Aeron IPC, 1 KiB, p50", (STREAM, AERON), 1024, P50, RatioAtMost(0.75)),
    ratio("publication / Aeron IPC, 1 KiB, p99", (STREAM, AERON), 1024, P99, RatioAtMost(0.9)),
    ratio("publication / Aeron IPC, 8 KiB, p50", (STREAM, AERON), 8192, P50, RatioAtMost(0.9)),
    ratio("publication / Aeron IPC, 8 KiB, p99", (STREAM, AERON), 8192, P99, RatioAtMost(0.9)),
    ratio("publication / iceoryx2, 64 B, p50", (STREAM, "iceoryx2"), 64, P50, RatioAtMost(0.25)),
    ratio(
        "publication, stream / Aeron IPC, 64 B, messages per second",
        (STREAM, AERON),
        64,
        Rate,
        RatioAtLeast(1.3),
    ),
    ratio(
        "publication, runs / Aeron IPC, 64 B, messages per second",
        (STREAM_RUNS, AERON),
        64,
        Rate,
        RatioAtLeast(2.5),
    ),
    ratio(
        "publication, runs / Aeron IPC, 1 KiB, bytes per second",
        (STREAM_RUNS, AERON),
        1024,
        Rate,
        RatioAtLeast(1.9),
    ),
    ratio(
        "what a stamp in each message of a publication costs, 64 B, one way, p50",
        (STREAM_STAMPED, STREAM),
        64,
        P50,
        OneWayAtMost(40.0),
    ),
    ratio(
        "what all stages of each message of a publication cost, 64 B, one way, p50",
        (STREAM_STAGES, STREAM),
        64,
        P50,
        OneWayAtMost(50.0),
    ),
    ratio("publication, sealed / not sealed, 64 B, p50", (STREAM_SEALED, STREAM), 64, P50, RatioAtMost(1.6)),
    ratio("15 publications followed / one, 64 B, p50", (OF_15, STREAM), 64, P50, RatioAtMost(1.15)),
    ratio("64 publications followed / one, 64 B, p50", (OF_64, STREAM), 64, P50, RatioAtMost(1.3)),
    ratio("200 publications followed / one, 64 B, p50", (OF_200, STREAM), 64, P50, RatioAtMost(1.3)),
];

/// Outcome of a promise.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) text: &'static str,
    pub(super) asked: Asked,
    pub(super) finding: Option<Finding>,
    /// Median and number of the rounds in which both processors were of one core, and of two; at 64 B.
    pub(super) placements: [Option<(f64, usize)>; 2],
    /// Why there is no finding.
    pub(super) reason: Option<String>,
}

/// The measured result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finding {
    /// Mean of the openings, of ratios the geometric one.
    pub(super) mean: f64,
    /// 95 % interval of that mean, over openings; of one opening nothing is known of the others.
    pub(super) interval: Option<[f64; 2]>,
    /// Least and most of the openings.
    pub(super) range: [f64; 2],
    pub(super) openings: usize,
    pub(super) rounds: usize,
}

impl Promise {
    /// Ratios are made within a round, where the machine was the same; their median is the opening's, and the interval is
    /// over openings.
    pub(super) fn judge(&self, turns: &Turns) -> Verdict {
        let others = turns.of(self.other, self.size, self.quantity);
        let ours = turns.of(self.ours, self.size, self.quantity);
        let measured: Vec<(u32, f64)> = ours
            .iter()
            .filter_map(|(round, value)| {
                let (_, other) = others.iter().find(|(other, _)| other == round)?;
                Some((*round, self.asked.measure(*value, *other)))
            })
            .collect();
        let reason = turns.reason(self.ours).or(turns.reason(self.other)).map(str::to_owned);
        let placements = if self.size == 64 && self.quantity != Rate {
            [Placement::OneCore, Placement::TwoCores].map(|placement| placed(&measured, turns, placement))
        } else {
            [None; 2]
        };
        let finding = Finding::of(self.asked, &measured, turns);
        Verdict { text: self.text, asked: self.asked, finding, placements, reason }
    }
}

/// Median and number of the rounds in which the processors were there.
fn placed(measured: &[(u32, f64)], turns: &Turns, placement: Placement) -> Option<(f64, usize)> {
    let there = turns.placements();
    let rounds = measured.iter().filter(|(round, _)| there.contains(&(*round, placement)));
    let values: Vec<f64> = rounds.map(|(_, value)| *value).collect();
    Some((median(&values)?, values.len()))
}

impl Verdict {
    /// In words: a promise that the interval neither keeps nor breaks is open.
    pub(super) fn word(&self) -> &'static str {
        let Some(finding) = self.finding else { return "not measured" };
        match finding.interval.map(|ends| ends.map(|end| self.asked.holds(end))) {
            Some([true, true]) => "holds",
            Some([false, false]) => "does not hold",
            _ => "open",
        }
    }
}

impl Finding {
    fn of(asked: Asked, measured: &[(u32, f64)], turns: &Turns) -> Option<Self> {
        let mut openings: Vec<(u32, Vec<f64>)> = Vec::new();
        for (round, value) in measured {
            let opening = turns.opening_of(*round);
            match openings.iter_mut().find(|(found, _)| *found == opening) {
                Some((_, values)) => values.push(*value),
                None => openings.push((opening, vec![*value])),
            }
        }
        let mut values: Vec<f64> = openings.iter().filter_map(|(_, values)| median(values)).collect();
        values.sort_by(f64::total_cmp);
        let range = [*values.first()?, *values.last()?];
        // Ratios are compared as logarithms, distances as they are.
        let (mean, interval) = match asked {
            Asked::OneWayAtMost(_) => student(&values),
            _ => {
                let (mean, interval) = student(&values.iter().map(|value| value.ln()).collect::<Vec<_>>());
                (mean.exp(), interval.map(|ends| ends.map(f64::exp)))
            }
        };
        let exact = |value: f64| (value * EXACT).round() / EXACT;
        let interval = interval.map(|ends| ends.map(exact));
        Some(Self { mean: exact(mean), interval, range, openings: values.len(), rounds: measured.len() })
    }
}

/// A change by taking a logarithm and back is no difference.
const EXACT: f64 = 1e9;

/// The middle of the values, in any order.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + upper) / 2.0 } else { upper })
}

/// Student's t by degrees of freedom from 1, two-sided 5 %, and the normal limit.
const STUDENT: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086,
];
const NORMAL: f64 = 1.960;

/// The mean and its 95 % interval; none of a single value.
fn student(values: &[f64]) -> (f64, Option<[f64; 2]>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let Some(freedom) = values.len().checked_sub(1).filter(|&freedom| freedom > 0) else {
        return (mean, None);
    };
    let t = STUDENT.get(freedom - 1).copied().unwrap_or(if freedom > 100 { NORMAL } else { STUDENT[19] });
    let half = t * (squares / freedom as f64 / count).sqrt();
    (mean, Some([mean - half, mean + half]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value is a round of its own; so many follow each other in one opening.
    fn turns_of(rounds_per_opening: usize, kinds: [(&str, &[u32]); 2]) -> Turns {
        let lines: Vec<String> = kinds
            .iter()
            .flat_map(|(kind, values)| {
                values.iter().enumerate().map(move |(round, p50)| {
                    let opening = round / rounds_per_opening;
                    format!(
                        r#"{{"opening":{opening},"round":{round},"game":"pingpong","kind":"{kind}","size":64,"count":1,"p50":{p50},"p99":1,"p999":1,"max":1}}"#
                    )
                })
            })
            .collect();
        Turns::parse(&lines.join("\n")).unwrap()
    }

    fn turns(kinds: [(&str, &[u32]); 2]) -> Turns {
        turns_of(1, kinds)
    }

    /// Goal: a machine that changes between rounds changes no ratio.
    #[test]
    fn ratios_are_made_within_rounds() {
        let verdict =
            PROMISES[0].judge(&turns([(OURS, &[110, 550, 112, 540]), (FLOOR, &[100, 500, 100, 500])]));
        let finding = verdict.finding.unwrap();
        assert!((finding.mean - 1.0999).abs() < 1e-4, "{finding:?}");
        assert_eq!((finding.openings, finding.rounds, finding.range), (4, 4, [1.08, 1.12]));
        assert_eq!(verdict.word(), "holds");
        assert_eq!(verdict.placements, [Some((1.11, 2)), Some((1.09, 2))]);
    }

    #[test]
    fn verdicts_follow_the_interval() {
        let word = |ours: &[u32]| PROMISES[0].judge(&turns([(OURS, ours), (FLOOR, &[100; 6])])).word();
        assert_eq!(word(&[120; 6]), "holds");
        assert_eq!(word(&[121; 6]), "does not hold");
        assert_eq!(word(&[100, 100, 100, 140, 140, 140]), "open");
        let missing = PROMISES[0].judge(&turns([(AERON, &[1]), (FLOOR, &[1])]));
        assert_eq!((missing.word(), missing.reason), ("not measured", None));
    }

    /// Goal: the interval is over openings. Method: five openings whose rounds agree with each other and which themselves lie
    /// from 1.11 to 1.57 apart; six rounds of each say no more than one, and one opening says nothing.
    #[test]
    fn many_rounds_of_an_opening_are_one_sample() {
        let openings = [111_u32, 157, 120, 143, 130];
        let ours: Vec<u32> = openings.iter().flat_map(|&p50| [p50; 6]).collect();
        let many = PROMISES[0].judge(&turns_of(6, [(OURS, &ours), (FLOOR, &[100; 30])])).finding.unwrap();
        let one = PROMISES[0].judge(&turns([(OURS, &openings), (FLOOR, &[100; 5])])).finding.unwrap();
        assert_eq!((many.interval, many.openings, many.rounds), (one.interval, 5, 30));
        let [low, high] = many.interval.unwrap();
        assert!(low < 1.17 && high > 1.45, "{many:?}");
        let single = PROMISES[0].judge(&turns_of(30, [(OURS, &[110; 30]), (FLOOR, &[100; 30])]));
        assert_eq!((single.word(), single.finding.unwrap().interval), ("open", None));
    }

    #[test]
    fn a_missing_measurement_says_why() {
        let text = r#"{"round":0,"game":"stream","kind":"pipe","size":64,"count":9,"per_second":1}
{"skipped":"aeron ipc","reason":"no java"}"#;
        let verdict = PROMISES[5].judge(&Turns::parse(text).unwrap());
        assert_eq!((verdict.word(), verdict.reason.as_deref()), ("not measured", Some("no java")));
    }

    #[test]
    fn bounds_are_judged_as_they_are_written() {
        assert!(RatioAtMost(1.0).holds(1.0) && !RatioBelow(1.0).holds(1.0));
        assert!(RatioAtLeast(1.0).holds(1.0) && !RatioAtLeast(1.0).holds(0.99));
        assert_eq!(OneWayAtMost(60.0).measure(300.0, 200.0), 50.0);
        assert_eq!(OneWayAtMost(60.0).to_string(), "≤ 60 ns");
    }

    #[test]
    fn a_mean_of_few_has_students_interval() {
        let (mean, interval) = student(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let [low, high] = interval.unwrap();
        assert!(mean == 3.0 && (low - 1.0369).abs() < 1e-3 && (high - 4.9631).abs() < 1e-3, "{low} {high}");
        assert_eq!(student(&[2.0]), (2.0, None));
    }
}
