//! What is promised about speed, and whether a run keeps it.

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

/// What is asked of both.
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
pub(super) const PROMISES: [Promise; 18] = [
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
        RatioAtMost(1.1),
    ),
    ratio(
        "UDP, asleep / bare socket, 64 B, p50",
        ("punctual datagram/eventfd", "floor/udp-block"),
        64,
        P50,
        RatioAtMost(1.1),
    ),
    ratio(
        "Ethernet, spinning / bare TPACKET_V2 rings, 64 B, p50",
        ("punctual packet/spin", "floor/packet-spin"),
        64,
        P50,
        RatioAtMost(1.1),
    ),
    ratio(
        "what recording all stages costs, 64 B, one way, p50",
        (STAMPED, OURS),
        64,
        P50,
        OneWayAtMost(60.0),
    ),
];

/// What became of a promise.
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

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finding {
    /// Of the rounds' own ratios.
    pub(super) median: f64,
    /// 95 % interval of that median.
    pub(super) interval: [f64; 2],
    /// Least and most of the rounds.
    pub(super) range: [f64; 2],
    pub(super) rounds: usize,
}

impl Promise {
    /// Ratios are made within a round, where the machine was the same, and only then pooled.
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
        let finding = Finding::of(measured.into_iter().map(|(_, value)| value).collect());
        Verdict { text: self.text, asked: self.asked, finding, placements, reason }
    }
}

/// Median and number of the rounds in which the processors were there.
fn placed(measured: &[(u32, f64)], turns: &Turns, placement: Placement) -> Option<(f64, usize)> {
    let there = turns.placements();
    let rounds = measured.iter().filter(|(round, _)| there.contains(&(*round, placement)));
    let finding = Finding::of(rounds.map(|(_, value)| *value).collect())?;
    Some((finding.median, finding.rounds))
}

impl Verdict {
    /// In words: a promise that the interval neither keeps nor breaks is open.
    pub(super) fn word(&self) -> &'static str {
        let Some(finding) = self.finding else { return "not measured" };
        match finding.interval.map(|end| self.asked.holds(end)) {
            [true, true] => "holds",
            [false, false] => "does not hold",
            _ => "open",
        }
    }
}

impl Finding {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let range = [*values.first()?, *values.last()?];
        let interval = bootstrap(&values);
        Some(Self { median: median(&values), interval, range, rounds: values.len() })
    }
}

/// Of sorted values.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

/// How often the sample is drawn again; always from the same seed, so that a table can be made again.
const RESAMPLES: usize = 2_000;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// The percentile bootstrap's 95 % interval of the median (Efron, 1979).
fn bootstrap(values: &[f64]) -> [f64; 2] {
    let mut state = SEED;
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut sample: Vec<f64> =
                values.iter().map(|_| values[draw(&mut state, values.len())]).collect();
            sample.sort_by(f64::total_cmp);
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    [medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40]]
}

/// Marsaglia's xorshift64 (2003): for resampling, not for secrets.
fn draw(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    ((*state >> 11) % below as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(kinds: [(&str, &[u32]); 2]) -> Turns {
        let lines: Vec<String> = kinds
            .iter()
            .flat_map(|(kind, values)| {
                values.iter().enumerate().map(move |(round, p50)| {
                    format!(
                        r#"{{"round":{round},"game":"pingpong","kind":"{kind}","size":64,"count":1,"p50":{p50},"p99":1,"p999":1,"max":1}}"#
                    )
                })
            })
            .collect();
        Turns::parse(&lines.join("\n")).unwrap()
    }

    /// Goal: a machine that changes between rounds changes no ratio.
    #[test]
    fn ratios_are_made_within_rounds() {
        let verdict =
            PROMISES[0].judge(&turns([(OURS, &[110, 550, 112, 540]), (FLOOR, &[100, 500, 100, 500])]));
        let finding = verdict.finding.unwrap();
        assert_eq!((finding.median, finding.rounds), (1.1, 4));
        assert_eq!(finding.range, [1.08, 1.12]);
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

    #[test]
    fn what_is_missing_says_why() {
        let text = r#"{"round":0,"game":"stream","kind":"pipe","size":64,"count":9,"per_second":1}
{"skipped":"aeron ipc","reason":"no java"}"#;
        let verdict = PROMISES[5].judge(&Turns::parse(text).unwrap());
        assert_eq!((verdict.word(), verdict.reason.as_deref()), ("not measured", Some("no java")));
    }

    #[test]
    fn what_is_asked_is_what_is_judged() {
        assert!(RatioAtMost(1.0).holds(1.0) && !RatioBelow(1.0).holds(1.0));
        assert!(RatioAtLeast(1.0).holds(1.0) && !RatioAtLeast(1.0).holds(0.99));
        assert_eq!(OneWayAtMost(60.0).measure(300.0, 200.0), 50.0);
        assert_eq!(OneWayAtMost(60.0).to_string(), "≤ 60 ns");
    }

    #[test]
    fn a_bootstrap_encloses_the_median() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let [low, high] = bootstrap(&values);
        assert!((30.0..49.0).contains(&low) && (50.0..70.0).contains(&high), "{low} {high}");
        assert_eq!(bootstrap(&[2.0]), [2.0, 2.0]);
    }
}
