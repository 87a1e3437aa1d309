//! Measurements of `punctual-peers`: one line of JSON for each turn of each mechanism.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::step::Outcome;

/// One turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) opening: u32,
    pub(super) round: u32,
    pub(super) game: String,
    pub(super) kind: String,
    pub(super) size: u32,
    count: u64,
    figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figures {
    /// Round trips, ns.
    Latency { p50: f64, p99: f64, p999: f64, max: f64 },
    /// Messages per second.
    Rate(f64),
}

/// Figure of a turn that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    P50,
    P99,
    Rate,
}

/// Where a hypervisor had put the two processors. It may change its mind between two rounds, and a message between
/// hardware threads of one core costs a quarter of one between cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    OneCore,
    TwoCores,
}

/// The mechanism that tells the placement: the bare slot, of which nothing is slow but the way from cache to cache.
pub(super) const FLOOR: &str = "floor/slot";

/// Its round trip between two cores takes 500 ns and more, between two threads of one core some 140: measured on an EPYC.
const ONE_CORE_NS: f64 = 300.0;

/// A run.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) turns: Vec<Turn>,
    /// Mechanisms that did not play, and why.
    pub(super) skipped: Vec<(String, String)>,
    /// Those of them whose tools are here, and fail.
    pub(super) broken: Vec<String>,
}

impl Turns {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (number, line) in text.lines().enumerate() {
            let wrong = |error| format!("line {} of what was measured: {error}", number + 1);
            let json: Value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            match json.get("skipped").and_then(Value::as_str) {
                Some(kind) => {
                    let reason = text_of(&json, "reason").map_err(wrong)?;
                    if json.get("broken") == Some(&Value::Bool(true)) {
                        parsed.broken.push(kind.to_owned());
                    }
                    parsed.skipped.push((kind.to_owned(), reason));
                }
                None => parsed.turns.push(Turn::of(&json).map_err(wrong)?),
            }
        }
        if parsed.turns.is_empty() { Err("nothing was measured".into()) } else { Ok(parsed) }
    }

    /// A quantity of one mechanism, by round.
    pub(super) fn of(&self, kind: &str, size: u32, quantity: Quantity) -> Vec<(u32, f64)> {
        let wanted = self.turns.iter().filter(|turn| turn.kind == kind && turn.size == size);
        wanted.filter_map(|turn| Some((turn.round, turn.get(quantity)?))).collect()
    }

    /// In which opening a round was played.
    pub(super) fn opening_of(&self, round: u32) -> u32 {
        self.turns.iter().find(|turn| turn.round == round).map_or(0, |turn| turn.opening)
    }

    /// Number of openings.
    pub(super) fn openings(&self) -> u32 {
        self.turns.iter().map(|turn| turn.opening + 1).max().unwrap_or_default()
    }

    /// Number of rounds.
    pub(super) fn rounds(&self) -> u32 {
        self.turns.iter().map(|turn| turn.round + 1).max().unwrap_or_default()
    }

    /// Why a mechanism did not play.
    pub(super) fn reason(&self, kind: &str) -> Option<&str> {
        self.skipped.iter().find(|(skipped, _)| skipped == kind).map(|(_, reason)| reason.as_str())
    }

    /// Passed if all mechanisms played. A mechanism that lacks its tools was not measured; a mechanism that fails with them is broken.
    pub(super) fn completeness(&self) -> Outcome {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (kind, reason) in &self.skipped {
            by_reason.entry(reason).or_default().push(kind);
        }
        let lines = by_reason.iter().map(|(reason, kinds)| format!("{}: {reason}", kinds.join(", ")));
        let lines = lines.collect::<Vec<_>>().join("; ");
        match (self.skipped.is_empty(), self.broken.is_empty()) {
            (true, _) => Outcome::Passed,
            (false, true) => Outcome::Skipped(lines),
            (false, false) => {
                Outcome::Failed(format!("with its tools here {}: {lines}", self.broken.join(", ")))
            }
        }
    }

    /// By how near the two processors were in each round of 64 B.
    pub(super) fn placements(&self) -> Vec<(u32, Placement)> {
        let floor = self.of(FLOOR, 64, Quantity::P50).into_iter();
        floor
            .map(|(round, p50)| {
                (round, if p50 < ONE_CORE_NS { Placement::OneCore } else { Placement::TwoCores })
            })
            .collect()
    }

    /// For who wants to look himself.
    pub(super) fn to_csv(&self) -> String {
        let mut csv =
            "opening,round,game,kind,size,count,p50_ns,p99_ns,p999_ns,max_ns,per_second\n".to_owned();
        for Turn { opening, round, game, kind, size, count, figures } in &self.turns {
            let _fits = write!(csv, "{opening},{round},{game},{kind},{size},{count},");
            let _fits = match figures {
                Figures::Latency { p50, p99, p999, max } => writeln!(csv, "{p50},{p99},{p999},{max},"),
                Figures::Rate(rate) => writeln!(csv, ",,,,{rate}"),
            };
        }
        csv
    }
}

impl Turn {
    fn of(json: &Value) -> Result<Self, String> {
        let number = |name: &str| number_of(json, name);
        let figures = match json.get("per_second") {
            Some(_) => Figures::Rate(number("per_second")?),
            None => Figures::Latency {
                p50: number("p50")?,
                p99: number("p99")?,
                p999: number("p999")?,
                max: number("max")?,
            },
        };
        Ok(Self {
            // Turns that were stored before openings were counted are of one opening.
            opening: json.get("opening").map_or(Ok(0.0), |_| number("opening"))? as u32,
            round: number("round")? as u32,
            game: text_of(json, "game")?,
            kind: text_of(json, "kind")?,
            size: number("size")? as u32,
            count: number("count")? as u64,
            figures,
        })
    }

    fn get(&self, quantity: Quantity) -> Option<f64> {
        match (self.figures, quantity) {
            (Figures::Latency { p50, .. }, Quantity::P50) => Some(p50),
            (Figures::Latency { p99, .. }, Quantity::P99) => Some(p99),
            (Figures::Rate(rate), Quantity::Rate) => Some(rate),
            _ => None,
        }
    }
}

fn text_of(json: &Value, name: &str) -> Result<String, String> {
    json.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| format!("no text {name:?}"))
}

fn number_of(json: &Value, name: &str) -> Result<f64, String> {
    json.get(name).and_then(Value::as_f64).ok_or_else(|| format!("no number {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"round":0,"game":"pingpong","kind":"floor/slot","size":64,"count":9,"p50":140,"p99":280,"p999":290,"max":1000}
{"opening":2,"round":1,"game":"stream","kind":"pipe","size":64,"count":9,"per_second":1000000}
{"skipped":"zmq ipc","reason":"no cmake"}"#;

    #[test]
    fn lines_become_turns() {
        let turns = Turns::parse(LINES).unwrap();
        assert_eq!(turns.of("floor/slot", 64, Quantity::P99), [(0, 280.0)]);
        assert_eq!(turns.of("pipe", 64, Quantity::Rate), [(1, 1e6)]);
        assert_eq!((turns.opening_of(0), turns.opening_of(1), turns.openings()), (0, 2, 3));
        assert_eq!(turns.of("pipe", 64, Quantity::P50), []);
        assert_eq!(turns.of("floor/slot", 1024, Quantity::P50), []);
        assert_eq!((turns.reason("zmq ipc"), turns.reason("pipe")), (Some("no cmake"), None));
        let csv = turns.to_csv();
        assert!(csv.contains("\n0,0,pingpong,floor/slot,64,9,140,280,290,1000,\n"), "{csv}");
        assert!(csv.ends_with("\n2,1,stream,pipe,64,9,,,,,1000000\n"), "{csv}");
    }

    /// Goal: a skipped measurement has not passed, and one that fails although its tools are here has failed.
    #[test]
    fn a_skipped_measurement_has_not_passed() {
        let parsed =
            |skips: &str| Turns::parse(&format!("{}\n{skips}", LINES.lines().next().unwrap())).unwrap();
        assert_eq!(parsed("").completeness(), Outcome::Passed);
        let one = r#"{"skipped":"a","reason":"no root"}"#;
        let two = r#"{"skipped":"b","reason":"no root","broken":false}"#;
        let skipped = parsed(&format!("{one}\n{two}\n")).completeness();
        assert_eq!(skipped, Outcome::Skipped("a, b: no root".into()));
        let broken = r#"{"skipped":"c","reason":"no build","broken":true}"#;
        let failed = parsed(&format!("{one}\n{broken}\n")).completeness();
        assert_eq!(failed, Outcome::Failed("with its tools here c: c: no build; a: no root".into()));
    }

    #[test]
    fn the_floor_tells_where_the_processors_were() {
        let turn = |round: u32, p50: u32| {
            format!(
                r#"{{"round":{round},"game":"pingpong","kind":"floor/slot","size":64,"count":9,"p50":{p50},"p99":1,"p999":1,"max":1}}"#
            )
        };
        let turns = Turns::parse(&[turn(0, 140), turn(1, 541)].join("\n")).unwrap();
        assert_eq!(turns.placements(), [(0, Placement::OneCore), (1, Placement::TwoCores)]);
    }

    #[test]
    fn a_line_that_is_no_measurement_is_refused() {
        for (text, complaint) in [
            ("", "nothing"),
            ("{", "line 1"),
            (r#"{"round":0,"game":"stream","kind":"pipe","size":64,"count":9}"#, "p50"),
            (r#"{"round":0,"game":"stream","size":64,"count":9,"per_second":1}"#, "kind"),
        ] {
            let error = Turns::parse(text).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
