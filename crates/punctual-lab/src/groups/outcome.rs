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

/// A vehicle whose values have ended for longer, and two periods, is not served any more: until then they may be late.
const SILENT_MAX: Duration = Duration::from_secs(1);

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
    /// From the last message of the group to the end of the stay, standstills of this process apart.
    pub silent: Duration,
}

impl Passage {
    pub(super) fn new(vehicle: &str, step: Move, group: u32) -> Self {
        Self { vehicle: vehicle.to_owned(), step, group, joined: None, first: None, silent: Duration::ZERO }
    }

    fn is_promised(&self) -> bool {
        self.step.until - self.step.at >= STAY_MIN
    }

    fn is_missed(&self) -> bool {
        self.is_promised() && self.first.is_none()
    }

    /// The values of a post that publishes every period ended before the stay did: the vehicle has no key of the group any more.
    fn is_deserted(&self, period: Duration) -> bool {
        self.first.is_some() && self.silent > SILENT_MAX + 2 * period
    }

    fn broken(&self, period: Duration) -> Option<String> {
        let (vehicle, cell, stay) = (&self.vehicle, self.step.cell, self.step.until - self.step.at);
        if self.is_missed() {
            return Some(format!("{vehicle} was in cell {cell} for {stay:?}, and was not served there"));
        }
        let silent = self.silent.as_secs_f64();
        self.is_deserted(period).then(|| {
            format!(
                "{vehicle} was in cell {cell} for {stay:?}, and was not served for the last {silent:.3} s"
            )
        })
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

/// The promise of a node that its ledger shows as broken, in words. Frames of other groups are refused for their key, and lost to nobody.
fn broken_by(name: &str, ledger: &Ledger) -> Option<String> {
    let cases = [
        (ledger.lost() - ledger.lost_refused, "messages that were lost to it"),
        (ledger.disbelieved() - ledger.seal_unknown_key, "frames that no honest node sends"),
    ];
    if let Some((count, what)) = cases.into_iter().find(|(count, _)| *count > 0) {
        return Some(format!("{name}: {what}: {count} ({ledger})"));
    }
    (!ledger.is_balanced()).then(|| format!("{name}: messages that stand in no counter ({ledger})"))
}

/// All of it.
#[derive(Debug, Default)]
pub struct GroupsOutcome {
    /// In the order in which they ended.
    pub passages: Vec<Passage>,
    pub(super) vehicles: Vec<VehicleEnd>,
    /// Leaders and posts at the end, by name.
    pub(super) stations: Vec<(String, Ledger)>,
    /// With which posts publish.
    pub(super) period: Duration,
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
        let of_passage = self.passages.iter().find_map(|passage| passage.broken(self.period));
        let of_vehicle = |end: &VehicleEnd| {
            let wrong = (end.wrong > 0).then(|| {
                format!("{}: values of a group that it had left: {} ({})", end.name, end.wrong, end.ledger)
            });
            wrong.or_else(|| broken_by(&end.name, &end.ledger))
        };
        let of_station = |(name, ledger): &(String, Ledger)| broken_by(name, ledger);
        let broken = of_passage
            .or_else(|| self.vehicles.iter().find_map(of_vehicle))
            .or_else(|| self.stations.iter().find_map(of_station));
        let found = self.secrets_found;
        broken.or_else(|| (found > 0).then(|| format!("{found} secrets were sent in clear")))
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
            let Passage { vehicle, step, group, joined, first, .. } = passage;
            let short = match passage {
                _ if passage.is_deserted(self.period) => "deserted",
                _ if passage.is_promised() => "",
                _ => "passed through",
            };
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
            let Passage { vehicle, step, group, joined, first, silent } = passage;
            json!({ "vehicle": vehicle, "at_s": step.at.as_secs_f64(), "x_m": step.place_m.0, "y_m": step.place_m.1,
                    "cell": step.cell.to_string(), "group": group, "key_ms": ms(*joined), "first_ms": ms(*first),
                    "silent_ms": ms(Some(*silent)), "promised": passage.is_promised() })
        };
        let ledger_of = |ledger: &Ledger| -> serde_json::Map<String, Value> {
            ledger.entries().iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect()
        };
        let station =
            |(name, ledger): &(String, Ledger)| json!({ "name": name, "ledger": ledger_of(ledger) });
        let vehicle = |end: &VehicleEnd| {
            let ledger = ledger_of(&end.ledger);
            json!({ "name": end.name, "taken": end.taken, "wrong": end.wrong, "missed": end.missed, "away": end.away, "keys": end.keys_fetched, "ledger": ledger })
        };
        json!({ "schema": "punctual.groups.v1", "passages": self.passages.iter().map(passage).collect::<Vec<_>>(),
                "vehicles": self.vehicles.iter().map(vehicle).collect::<Vec<_>>(),
                "stations": self.stations.iter().map(station).collect::<Vec<_>>(), "captured_bytes": self.captured_bytes,
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

    /// Goal: values that end long before a stay does break a promise, as do losses of a leader or a post.
    #[test]
    fn a_vehicle_that_is_served_no_more_breaks_a_promise() {
        let cell = super::super::scenario::MapCell { x: 0, y: 1 };
        let step =
            |until| Move { at: Duration::ZERO, place_m: (0.0, 0.0), cell, until: Duration::from_secs(until) };
        let of = |first: Option<u64>, silent_ms, until, stations| {
            let first = first.map(Duration::from_millis);
            let silent = Duration::from_millis(silent_ms);
            let passage = Passage { first, silent, ..Passage::new("ann", step(until), 7) };
            let period = Duration::from_millis(100);
            GroupsOutcome { passages: vec![passage], stations, period, ..GroupsOutcome::default() }.broken()
        };
        assert_eq!(of(Some(5), 1_200, 9, Vec::new()), None);
        let broken = of(Some(5), 1_201, 9, Vec::new()).expect("it is told");
        assert!(
            broken.contains("ann was in cell 0,1 for 9s, and was not served for the last 1.201 s"),
            "{broken}"
        );
        assert!(of(None, 0, 1, Vec::new()).is_some_and(|broken| broken.contains("was not served there")));
        let station = |ledger| vec![("post_0_1".to_owned(), ledger)];
        let foreign = Ledger { lost_refused: 4, seal_unknown_key: 9, ..Ledger::default() };
        assert_eq!(of(Some(5), 0, 9, station(foreign)), None);
        for ledger in [
            Ledger { lost_overrun: 1, ..foreign },
            Ledger { seal_bad_tag: 1, ..foreign },
            Ledger { copies: 1, ..foreign },
        ] {
            let broken = of(Some(5), 0, 9, station(ledger)).expect("it is told");
            assert!(broken.starts_with("post_0_1: "), "{broken}");
        }
    }

    #[test]
    fn quantiles_need_ten_beyond() {
        let times = |count: u64| (1..=count).map(Duration::from_millis).collect::<Vec<_>>();
        assert_eq!(spread(&[]), "never");
        assert_eq!(spread(&times(10)), "min 1.0 ms, max 10.0 ms, 10 changes");
        assert_eq!(spread(&times(20)), "min 1.0 ms, p50 10.0 ms, max 20.0 ms, 20 changes");
        assert_eq!(spread(&times(100)), "min 1.0 ms, p50 50.0 ms, p90 90.0 ms, max 100.0 ms, 100 changes");
    }
}
