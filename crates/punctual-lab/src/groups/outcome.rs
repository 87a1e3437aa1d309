//! Outcome of a scenario: each passage of a border, and whether the promises held.

use std::fmt::Write as _;
use std::time::Duration;

use punctual::Ledger;
use serde_json::{Value, json};

use super::scenario::Move;
use crate::report::section::{Cell, Column, Item, Section, Table, numbers};
use crate::stats::Quantile;
use crate::units::{count, dash};

/// A vehicle that stays in a cell for less is not promised to be served there.
const STAY_MIN: Duration = Duration::from_secs(1);

/// A vehicle came into a cell.
#[derive(Clone, Debug)]
pub struct Passage {
    /// Name of the vehicle.
    pub vehicle: String,
    /// When, where, and for how long.
    pub step: Move,
    /// The cell's group.
    pub group: u32,
    /// From the border to the group's key.
    pub joined: Option<Duration>,
    /// From the border to the first message of the group.
    pub first: Option<Duration>,
}

impl Passage {
    pub(super) fn new(vehicle: &str, step: Move, group: u32) -> Self {
        Self { vehicle: vehicle.to_owned(), step, group, joined: None, first: None }
    }

    fn is_promised(&self) -> bool {
        self.step.until - self.step.at >= STAY_MIN
    }

    fn is_missed(&self) -> bool {
        self.is_promised() && self.first.is_none()
    }
}

/// A vehicle at the end.
#[derive(Debug)]
pub(super) struct VehicleEnd {
    pub(super) name: String,
    pub(super) taken: u64,
    /// Values of a group in which it no longer was.
    pub(super) wrong: u64,
    /// Instants of a publisher between two values, for which none came.
    pub(super) missed: u64,
    /// Such instants while it was in another cell.
    pub(super) away: u64,
    pub(super) keys_fetched: u64,
    pub(super) ledger: Ledger,
}

impl VehicleEnd {
    /// Messages for it that were lost, but for those whose key it did not have: these were not for its group.
    fn lost(&self) -> u64 {
        self.ledger.lost() - self.ledger.lost_refused
    }

    /// Refusals for which nothing honest is a cause here.
    fn suspicious(&self) -> u64 {
        self.ledger.disbelieved() - self.ledger.seal_unknown_key
    }
}

/// All of it.
#[derive(Debug, Default)]
pub struct GroupsOutcome {
    /// In the order in which they ended.
    pub passages: Vec<Passage>,
    pub(super) vehicles: Vec<VehicleEnd>,
    /// Secrets that were in use.
    pub(super) secrets: usize,
    /// Bytes that all leaders sent and heard.
    pub(super) captured_bytes: usize,
    pub(super) secrets_found: usize,
    /// When Ctrl-C ended it.
    pub(super) cut_short: Option<Duration>,
}

impl GroupsOutcome {
    /// The promise that did not hold, in words; none if all did.
    pub fn broken(&self) -> Option<String> {
        if let Some(passage) = self.passages.iter().find(|passage| passage.is_missed()) {
            let (vehicle, cell, stay) =
                (&passage.vehicle, passage.step.cell, passage.step.until - passage.step.at);
            return Some(format!("{vehicle} was in cell {cell} for {stay:?}, and was not served there"));
        }
        for end in &self.vehicles {
            let name = &end.name;
            let cases = [
                (end.wrong, "values of a group that it had left"),
                (end.lost(), "messages that were lost to it"),
                (end.suspicious(), "frames that no honest node sends"),
            ];
            if let Some((count, what)) = cases.into_iter().find(|(count, _)| *count > 0) {
                return Some(format!("{name}: {what}: {count} ({})", end.ledger));
            }
            if !end.ledger.is_balanced() {
                return Some(format!("{name}: messages that stand in no counter ({})", end.ledger));
            }
        }
        let found = self.secrets_found;
        (found > 0).then(|| format!("{found} secrets were sent in clear"))
    }

    /// Place of each vehicle over time, and the duration of each change.
    pub fn sections(&self, period: Duration) -> Vec<Section> {
        let mut end = vec![format!(
            "Searched {} bytes of all that leaders sent and heard for {} secrets: {} found in clear.",
            count(self.captured_bytes as u64),
            self.secrets,
            self.secrets_found
        )];
        end.extend(self.cut_short.map(|end| format!("Cut short after {:.3} s.", end.as_secs_f64())));
        let end = end.into_iter().map(Item::new).collect();
        vec![self.changes(period), self.vehicles(), Section::new("Secrets").items(end)]
    }

    fn changes(&self, period: Duration) -> Section {
        let mut passages: Vec<&Passage> = self.passages.iter().collect();
        passages.sort_by(|a, b| a.step.at.cmp(&b.step.at).then_with(|| a.vehicle.cmp(&b.vehicle)));
        let mut columns = vec![Column::number("s"), Column::name("vehicle")];
        columns.extend(numbers(["at, m", "cell", "group", "key, ms", "first, ms", "instants"]));
        columns.push(Column::name(""));
        let mut table = Table::new(columns).keyed(2);
        let ms = |time: Option<Duration>| {
            time.map_or_else(dash, |time| format!("{:.1}", time.as_secs_f64() * 1e3))
        };
        for passage in passages {
            let Passage { vehicle, step, group, joined, first } = passage;
            let short = if passage.is_promised() { "" } else { "passed through" };
            let silent =
                first.map_or_else(dash, |first| (first.as_nanos() / period.as_nanos().max(1)).to_string());
            table.row([
                format!("{:.3}", step.at.as_secs_f64()).into(),
                Cell::from(vehicle.to_string()),
                format!("{:.0} {:.0}", step.place_m.0, step.place_m.1).into(),
                step.cell.to_string().into(),
                format!("{group:x}").into(),
                ms(*joined).into(),
                ms(*first).into(),
                silent.into(),
                short.into(),
            ]);
        }
        let rows =
            [("to the key", self.times(|p| p.joined)), ("to the first message", self.times(|p| p.first))];
        let times =
            rows.map(|(name, times)| Item::new(format!("From the border {name}: {}", spread(&times).trim())));
        Section::new("From cell to cell")
            .table(table)
            .note("Instants: how many of its period passed without a value at the change.")
            .items(times.into())
    }

    fn times(&self, of: impl Fn(&Passage) -> Option<Duration>) -> Vec<Duration> {
        let mut times: Vec<Duration> = self.passages.iter().filter_map(of).collect();
        times.sort_unstable();
        times
    }

    fn vehicles(&self) -> Section {
        let mut columns = vec![Column::name("vehicle")];
        columns.extend(numbers(["taken", "missed", "away", "keys"]));
        columns.push(Column::prose("refused and lost, by cause"));
        let mut table = Table::new(columns);
        for end in &self.vehicles {
            let is_loss = |name: &str| name.starts_with("seal_") || name.starts_with("lost_");
            let causes: Vec<String> = end
                .ledger
                .entries()
                .iter()
                .filter(|(name, copies)| is_loss(name) && *copies > 0)
                .map(|(name, copies)| format!("{name} {}", count(*copies)))
                .collect();
            let causes = if causes.is_empty() { "none".to_owned() } else { causes.join(", ") };
            let counts =
                [end.taken, end.missed, end.away, end.keys_fetched].map(|one| Cell::from(count(one)));
            table.row([Cell::from(end.name.to_string())].into_iter().chain(counts).chain([causes.into()]));
        }
        Section::new("Vehicle by vehicle").table(table).note(
            "Missed: instants for which no value came. Away: instants of a cell's post while the vehicle was elsewhere, and came \
             back. seal_unknown_key: what other groups said; lost_refused: the same, as the accounts of senders see it.",
        )
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        let passage = |passage: &Passage| {
            let Passage { vehicle, step, group, joined, first } = passage;
            json!({ "vehicle": vehicle, "at_s": step.at.as_secs_f64(), "x_m": step.place_m.0, "y_m": step.place_m.1,
                    "cell": step.cell.to_string(), "group": group, "key_ms": ms(*joined), "first_ms": ms(*first),
                    "promised": passage.is_promised() })
        };
        let vehicle = |end: &VehicleEnd| {
            let ledger: serde_json::Map<String, Value> =
                end.ledger.entries().iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
            json!({ "name": end.name, "taken": end.taken, "wrong": end.wrong, "missed": end.missed, "away": end.away, "keys": end.keys_fetched, "ledger": ledger })
        };
        json!({ "schema": "punctual.groups.v1", "passages": self.passages.iter().map(passage).collect::<Vec<_>>(),
                "vehicles": self.vehicles.iter().map(vehicle).collect::<Vec<_>>(), "captured_bytes": self.captured_bytes,
                "secrets": self.secrets, "secrets_found": self.secrets_found, "broken": self.broken(),
                "cut_short_s": self.cut_short.map(|end| end.as_secs_f64()) })
    }
}

/// Least, quantiles that the sample supports, most.
fn spread(sorted: &[Duration]) -> String {
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return "never".to_owned() };
    let ms = |time: &Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mut text = format!("min {}", ms(least));
    let changes = sorted.len() as u64;
    for (name, quantile) in Quantile::PRINTED.into_iter().filter(|(_, one)| one.is_supported(changes)) {
        let _ = write!(text, ", {name} {}", ms(&sorted[quantile.rank(changes) as usize - 1]));
    }
    let _ = write!(text, ", max {}, {} changes", ms(most), sorted.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_need_ten_beyond() {
        let times = |count: u64| (1..=count).map(Duration::from_millis).collect::<Vec<_>>();
        assert_eq!(spread(&[]), "never");
        assert_eq!(spread(&times(10)), "min 1.0 ms, max 10.0 ms, 10 changes");
        assert_eq!(spread(&times(20)), "min 1.0 ms, p50 10.0 ms, max 20.0 ms, 20 changes");
        assert_eq!(spread(&times(100)), "min 1.0 ms, p50 50.0 ms, p90 90.0 ms, max 100.0 ms, 100 changes");
    }
}
