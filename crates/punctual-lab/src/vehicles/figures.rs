//! What the records of a run come to: samples for the store, the rows of the published tables, latency by place in the
//! wake-up order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use punctual::{Clock, Ticks};
use serde::{Deserialize, Serialize};

use super::drift::drift_ppm;
use super::option::{OWN_ROW, VehiclesSettings, row_of_others};
use super::protocol::{Part, Skipped, WorkloadResult};
use super::value::{Origin, Record, STAGES_KEPT, UNKNOWN};
use crate::sample::{ABSENT_NS, Outcome, Phase, Samples, StageColumn};
use crate::stats::{Distribution, Quantile, upper_median};

/// One row of a published table, by its own rule, and the same sample by ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `socket` or `sharedmem`.
    pub name: String,
    /// Messages received.
    pub count: u64,
    /// Messages that never came.
    pub lost: u64,
    /// Values that were never sent, because their publisher slept through their instant: as late as the value that superseded
    /// them. Per receiver, as all counts here.
    #[serde(default)]
    pub skipped: u64,
    /// The least, whole µs.
    pub min_us: u64,
    /// Mean over the receivers of each one's mean truncated to whole µs.
    pub mean_us: f64,
    /// The most, whole µs.
    pub max_us: u64,
    /// Mean of all messages, ns.
    pub pooled_mean_ns: f64,
    /// Quantiles of all messages, ns, where the sample supports them.
    pub p50_ns: Option<u64>,
    /// One in ten is later.
    pub p90_ns: Option<u64>,
    /// One in a hundred is later.
    pub p99_ns: Option<u64>,
    /// One in a thousand is later.
    pub p999_ns: Option<u64>,
    /// The most, ns.
    pub max_ns: u64,
    /// Mean of the distance from due to sent, ns: the senders' own lateness, which the published tables leave out.
    pub late_mean_ns: f64,
}

/// The messages of one vehicle at all others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SenderRow {
    /// Its number.
    pub sender: u16,
    /// Messages received.
    pub count: u64,
    /// From sent to received, ns: the least.
    pub min_ns: u64,
    /// Half are later.
    pub p50_ns: u64,
    /// The most.
    pub max_ns: u64,
}

/// Messages that a receiver was to get, and those it got.
struct Reception<'a> {
    /// Number of the receiver.
    receiver: u16,
    own: Vec<&'a Record>,
    others: Vec<&'a Record>,
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// The published rows and ours.
    pub rows: Vec<Row>,
    /// Median latency of the first receiver that is reached by a message, of the second, …, ns.
    pub fan_out_ns: Vec<u64>,
    /// Latency of each in order of arrival, ns: where one process receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals_ns: Vec<u64>,
    /// Who sent each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrival_senders: Vec<u16>,
    /// Latencies by sender.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<SenderRow>,
    /// Deviation of the mean period of a component from what was asked for, parts per million; the largest.
    pub drift_ppm: f64,
}

/// Per receiver, in order: the row's name and its sample.
pub type RunSamples = Vec<Vec<(String, Samples)>>;

/// Everything of one run that the figures need.
#[derive(Debug)]
pub struct RunEvidence<'a> {
    /// What was asked for.
    pub settings: &'a VehiclesSettings,
    /// What each process brought.
    pub brought: &'a [(Part, WorkloadResult)],
    /// When the experiment began.
    pub began: Ticks,
    /// When the barrier opened.
    pub opened: Ticks,
    /// It was interrupted: what was on its way then is not part of it.
    pub is_cut: bool,
}

impl RunEvidence<'_> {
    /// Makes the figures, and the samples of which they are.
    pub fn figures(&self) -> (RunFigures, RunSamples) {
        let receptions = self.receptions();
        let (offers, is_mutual) = (self.offers(&receptions), self.settings.asked.mode.is_mutual());
        let row_of_others = row_of_others(self.settings.asked.engine);
        let mut samples = Vec::new();
        for Reception { receiver, own, others } in &receptions {
            let of_others = self.samples(others, false, &offers, |vehicle| vehicle != *receiver);
            let mut rows = vec![(row_of_others.to_owned(), of_others)];
            if is_mutual {
                let of_own = self.samples(own, true, &offers, |vehicle| vehicle == *receiver);
                rows.push((OWN_ROW.to_owned(), of_own));
            }
            samples.push(rows);
        }
        let mut rows = vec![row(row_of_others, &receptions, &samples, |reception| &reception.others)];
        if is_mutual {
            rows.push(row(OWN_ROW, &receptions, &samples, |reception| &reception.own));
        }
        let arrivals = if is_mutual { Vec::new() } else { arrivals(&receptions) };
        let drift_ppm = drift_ppm(all(&receptions), self.settings.asked.period, self.settings.count);
        let figures = RunFigures {
            rows,
            fan_out_ns: fan_out(&receptions),
            arrivals_ns: arrivals.iter().map(|record| latency_ns(record)).collect(),
            arrival_senders: arrivals.iter().map(|record| record.value.origin.vehicle).collect(),
            senders: senders(&receptions),
            drift_ppm: (drift_ppm * 10.0).round() / 10.0,
        };
        (figures, samples)
    }

    fn receptions(&self) -> Vec<Reception<'_>> {
        let receivers = self.brought.iter().filter_map(|(part, brought)| match part {
            Part::Vehicle(number) if self.settings.asked.mode.is_mutual() => Some((*number, brought)),
            // It is no vehicle, so no message is its own.
            Part::Listener => Some((u16::MAX, brought)),
            _ => None,
        });
        let sorted = receivers.map(|(receiver, brought)| {
            let (own, others) =
                brought.records.iter().partition(|record| record.value.origin.vehicle == receiver);
            Reception { receiver, own, others }
        });
        sorted.collect()
    }

    /// What each component sent and did not send: as it says itself, or, if it did not finish, as others saw.
    fn offers(&self, receptions: &[Reception<'_>]) -> Offers {
        let (settings, clock) = (self.settings, Clock::get());
        let mut offers = Offers::new();
        for record in all(receptions) {
            let Origin { vehicle, component, number } = record.value.origin;
            let offer = offers.entry((vehicle, component)).or_default();
            offer.count = offer.count.max(number + 1);
            // Without a barrier, each begins when it is open.
            if settings.asked.no_barrier && offer.first_due_ns.is_none() {
                let due_ns = clock.nanos(record.value.due.since(self.began));
                let before_ns = u64::from(number) * settings.period_ns();
                offer.first_due_ns = Some(due_ns.saturating_sub(before_ns));
            }
        }
        for (part, brought) in self.brought {
            let Part::Vehicle(vehicle) = *part else { continue };
            for &Skipped { component, first, count } in &brought.skipped {
                let offer = offers.entry((vehicle, component)).or_default();
                offer.skipped.extend(first..first.saturating_add(count));
            }
            let asked = (settings.asked.components * settings.count) as u64;
            let skipped: u64 = brought.skipped.iter().map(|skipped| u64::from(skipped.count)).sum();
            if brought.facts.sent + skipped == asked {
                for component in 0..settings.asked.components as u16 {
                    offers.entry((vehicle, component)).or_default().count = settings.count as u32;
                }
            }
        }
        offers
    }

    /// A row per message that was sent to this receiver by those that `from` chooses: itself, or the others.
    fn samples(
        &self,
        records: &[&Record],
        is_own: bool,
        offers: &Offers,
        from: impl Fn(u16) -> bool,
    ) -> Samples {
        let clock = Clock::get();
        let at = |instant: Ticks| clock.nanos(instant.since(self.began));
        let mut samples = Samples::with_capacity(records.len());
        samples.stages = stage_columns(records.len());
        let mut seen: HashMap<(u16, u16), BTreeSet<u32>> = HashMap::new();
        for record in records {
            let Record { value, received, .. } = record;
            let origin = value.origin;
            let seen = seen.entry((origin.vehicle, origin.component)).or_default();
            let is_late = seen.last().is_some_and(|&newest| origin.number < newest);
            if !seen.insert(origin.number) {
                samples.facts.duplicated += 1;
                continue;
            }
            samples.facts.reordered += u64::from(is_late);
            let total = clock.nanos(received.since(value.due));
            samples.push(origin.number.into(), at(value.due), at(value.sent), total, Outcome::Answered);
            samples.sender.push(origin.vehicle.into());
            push_stages(clock, &mut samples, record, is_own);
        }
        self.push_absent(&mut samples, offers, records, &seen, from);
        samples
    }

    /// What did not come: lost, or never sent, which ends when a younger value comes.
    fn push_absent(
        &self,
        samples: &mut Samples,
        offers: &Offers,
        records: &[&Record],
        seen: &HashMap<(u16, u16), BTreeSet<u32>>,
        from: impl Fn(u16) -> bool,
    ) {
        let (settings, clock) = (self.settings, Clock::get());
        let opened_ns = clock.nanos(self.opened.since(self.began));
        let end = opened_ns + settings.lasts().as_nanos() as u64;
        let nobody = BTreeSet::new();
        for (&(vehicle, component), offer) in offers.iter().filter(|((vehicle, _), _)| from(*vehicle)) {
            let seen = seen.get(&(vehicle, component)).unwrap_or(&nobody);
            // Its interest was not known before: what was published until then was not for it.
            let first_heard = seen.first().copied().filter(|&number| number < offer.count).unwrap_or(0);
            let cut = seen.last().map_or(0, |&newest| newest.saturating_add(1).min(offer.count));
            let count = if self.is_cut { cut } else { offer.count };
            for number in (0..count).filter(|number| !seen.contains(number)) {
                let is_skipped = offer.skipped.contains(&number);
                let phase = || opened_ns + u64::from(vehicle) * settings.phase_ns();
                let due = offer.first_due_ns.unwrap_or_else(phase) + u64::from(number) * settings.period_ns();
                let (outcome, known) = if is_skipped || number < first_heard {
                    let younger = |record: &&&Record| {
                        let origin = record.value.origin;
                        (origin.vehicle, origin.component) == (vehicle, component) && origin.number > number
                    };
                    samples.facts.skipped += 1;
                    let next = records.iter().filter(younger).map(|record| record.received).min();
                    (Outcome::Unfinished, next.map(|next| clock.nanos(next.since(self.began))))
                } else {
                    (Outcome::Lost, None)
                };
                let age = known.unwrap_or(end).saturating_sub(due);
                samples.push(number.into(), due, due, age, outcome);
                samples.sender.push(vehicle.into());
                samples.stages.iter_mut().for_each(|column| column.ns.push(ABSENT_NS));
                // Its sender was not there to send it, until it sent a younger one.
                if let Some(sent) = samples.stages.first_mut().filter(|_| is_skipped) {
                    sent.ns.pop();
                    sent.ns.push(age);
                }
            }
        }
    }
}

/// Every record.
fn all<'a>(receptions: &'a [Reception<'_>]) -> impl Iterator<Item = &'a Record> {
    receptions.iter().flat_map(|reception| reception.own.iter().chain(&reception.others)).copied()
}

/// What a component was to send.
#[derive(Default)]
struct Offer {
    /// How many values: all up to that number were sent, or skipped.
    count: u32,
    skipped: BTreeSet<u32>,
    /// When the first was due, where there was no barrier: as what came of it says.
    first_due_ns: Option<u64>,
}

/// By vehicle and component.
type Offers = HashMap<(u16, u16), Offer>;

fn stage_columns(count: usize) -> Vec<StageColumn> {
    let sent = std::iter::once("sent");
    let names = sent.chain(STAGES_KEPT.iter().map(|stage| stage.name()));
    names.map(|name| StageColumn { name: name.to_owned(), ns: Vec::with_capacity(count) }).collect()
}

/// Of its own message a receiver knows when it was due, stamps or not: what calls back before the medium has it carries none.
fn push_stages(clock: &Clock, samples: &mut Samples, record: &Record, is_own: bool) {
    let stamped = is_own || record.stages.iter().any(|&ticks| ticks != UNKNOWN);
    let late = clock.nanos(record.value.sent.since(record.value.due));
    samples.stages[0].ns.push(if stamped { late } else { ABSENT_NS });
    for (column, &ticks) in samples.stages[1..].iter_mut().zip(&record.stages) {
        column.ns.push(if ticks == UNKNOWN { ABSENT_NS } else { clock.nanos(Ticks(ticks.into())) });
    }
}

/// From sent to received, as the published tables count.
fn latency_ns(record: &Record) -> u64 {
    Clock::get().nanos(record.received.since(record.value.sent))
}

fn row<'a>(
    name: &str,
    receptions: &'a [Reception<'a>],
    samples: &RunSamples,
    choose: impl Fn(&'a Reception<'a>) -> &'a Vec<&'a Record>,
) -> Row {
    let clock = Clock::get();
    let mut pooled = Samples::default();
    let (mut means, mut late_ns) = (Vec::new(), 0_u128);
    for reception in receptions {
        let records = choose(reception);
        let latencies = records.iter().map(|record| latency_ns(record));
        let mut sum = 0_u128;
        for (record, latency) in records.iter().zip(latencies) {
            sum += u128::from(latency);
            late_ns += u128::from(clock.nanos(record.value.sent.since(record.value.due)));
            pooled.push(1, 0, 0, latency, Outcome::Answered);
        }
        if !records.is_empty() {
            means.push(sum as u64 / records.len() as u64 / 1000);
        }
    }
    let ended = |outcome| {
        let of_row = samples.iter().flatten().filter(|(row, _)| row == name);
        of_row.map(|(_, samples)| samples.count_of(outcome)).sum()
    };
    let count = pooled.len();
    let all = Distribution::of(&[pooled], Phase::Steady, 0);
    let quantile = |quantile| all.quantile(quantile).ns();
    Row {
        name: name.to_owned(),
        count: count as u64,
        lost: ended(Outcome::Lost),
        skipped: ended(Outcome::Unfinished),
        min_us: all.min_ns().unwrap_or(0) / 1000,
        mean_us: if means.is_empty() { 0.0 } else { means.iter().sum::<u64>() as f64 / means.len() as f64 },
        max_us: all.answered_max_ns().unwrap_or(0) / 1000,
        pooled_mean_ns: all.mean_ns().unwrap_or(0.0).round(),
        p50_ns: quantile(Quantile::P50),
        p90_ns: quantile(Quantile::P90),
        p99_ns: quantile(Quantile::P99),
        p999_ns: quantile(Quantile::P999),
        max_ns: all.answered_max_ns().unwrap_or(0),
        late_mean_ns: if count == 0 { 0.0 } else { (late_ns as f64 / count as f64).round() },
    }
}

/// Median latency by place: of all that one message reaches, who had it first, second, ….
fn fan_out(receptions: &[Reception<'_>]) -> Vec<u64> {
    let mut by_message: HashMap<(Origin, u16), Vec<u64>> = HashMap::new();
    for record in receptions.iter().flat_map(|reception| &reception.others) {
        by_message.entry((record.value.origin, record.component)).or_default().push(latency_ns(record));
    }
    let mut by_place: Vec<Vec<u64>> = Vec::new();
    for mut latencies in by_message.into_values() {
        latencies.sort_unstable();
        by_place.resize(by_place.len().max(latencies.len()), Vec::new());
        by_place.iter_mut().zip(latencies).for_each(|(place, latency)| place.push(latency));
    }
    by_place.iter_mut().filter_map(|place| upper_median(place)).collect()
}

fn arrivals<'a>(receptions: &[Reception<'a>]) -> Vec<&'a Record> {
    let mut all: Vec<&Record> = receptions.iter().flat_map(|reception| reception.others.clone()).collect();
    all.sort_by_key(|record| record.received);
    all
}

fn senders(receptions: &[Reception<'_>]) -> Vec<SenderRow> {
    let mut by_sender: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for record in receptions.iter().flat_map(|reception| &reception.others) {
        by_sender.entry(record.value.origin.vehicle).or_default().push(latency_ns(record));
    }
    let row = |(sender, mut all): (u16, Vec<u64>)| {
        all.sort_unstable();
        let (count, p50_ns) = (all.len() as u64, all[all.len() / 2]);
        SenderRow { sender, count, min_ns: all[0], p50_ns, max_ns: all[all.len() - 1] }
    };
    by_sender.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vehicles::option::VehiclesArguments;
    use crate::vehicles::protocol::Facts;
    use crate::vehicles::value::Value;
    use clap::Parser;
    use std::time::Duration;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: VehiclesArguments,
    }

    /// Four messages of so many vehicles.
    fn settings(vehicles: usize) -> VehiclesSettings {
        let line =
            format!("vehicles --mode callback --period 1ms --messages 4 --rounds 1 --vehicles {vehicles}");
        let line = Line::parse_from(line.split(' '));
        VehiclesSettings::of(&line.options).expect("options that go together")
    }

    fn record(vehicle: u16, number: u32, latency_us: u64) -> Record {
        let clock = Clock::get();
        let at = |us: u64| Ticks(1 << 40).plus(clock.ticks(Duration::from_nanos(us * 1000 + 500)));
        let sent = at(1000 * u64::from(number));
        let value = Value { origin: Origin { vehicle, component: 0, number }, due: sent, sent };
        Record {
            value,
            component: 0,
            received: at(1000 * u64::from(number) + latency_us),
            stages: [UNKNOWN; STAGES_KEPT.len()],
        }
    }

    fn evidence(brought: &[(Part, WorkloadResult)], settings: &VehiclesSettings) -> (RunFigures, RunSamples) {
        RunEvidence { settings, brought, began: Ticks(1 << 40), opened: Ticks(1 << 40), is_cut: false }
            .figures()
    }

    /// Goal: the rule of the tables: a truncated mean per vehicle, then the mean of those; and all samples beside.
    #[test]
    fn rows_follow_the_rule_of_the_tables() {
        let settings = settings(2);
        let facts = Facts { sent: 4, ..Facts::default() };
        let records = |own: u16, others: u16, us: [u64; 4]| {
            let from_others = (0..4).map(|number| record(others, number, us[number as usize]));
            from_others.chain((0..4).map(|number| record(own, number, 1))).collect()
        };
        let brought = [
            (
                Part::Vehicle(0),
                WorkloadResult {
                    facts,
                    records: records(0, 1, [10, 10, 10, 13]),
                    ..WorkloadResult::default()
                },
            ),
            (
                Part::Vehicle(1),
                WorkloadResult {
                    facts,
                    records: records(1, 0, [20, 20, 20, 99]),
                    ..WorkloadResult::default()
                },
            ),
        ];
        let (figures, samples) = evidence(&brought, &settings);
        let socket = &figures.rows[0];
        // 43 / 4 and 159 / 4, each truncated.
        assert_eq!((socket.name.as_str(), socket.mean_us), ("socket", f64::midpoint(10.0, 39.0)));
        assert_eq!((socket.count, socket.lost), (8, 0));
        assert!((9..=10).contains(&socket.min_us) && (98..=99).contains(&socket.max_us), "{socket:?}");
        assert!((socket.pooled_mean_ns - 25_250.0).abs() < 10.0, "{socket:?}");
        assert_eq!((figures.rows[1].name.as_str(), figures.rows[1].count), ("sharedmem", 8));
        assert_eq!(samples.len(), 2);
    }

    /// Goal: what did not come is lost, what came twice is doubled, what came late is out of order; none vanishes.
    #[test]
    fn every_message_has_its_row() {
        let settings = settings(3);
        let facts = Facts { sent: 4, ..Facts::default() };
        let quiet = WorkloadResult { facts, ..WorkloadResult::default() };
        let records = vec![record(1, 0, 5), record(1, 2, 5), record(1, 1, 5), record(1, 1, 9)];
        let brought = [
            (Part::Vehicle(0), WorkloadResult { facts, records, ..WorkloadResult::default() }),
            (Part::Vehicle(1), quiet.clone()),
            (Part::Vehicle(2), quiet),
        ];
        let samples = &evidence(&brought, &settings).1[0][0].1;
        samples.assert_aligned();
        // Of eight that two others sent three came.
        assert_eq!((samples.len(), samples.count_of(Outcome::Lost)), (8, 5));
        assert_eq!((samples.facts.duplicated, samples.facts.reordered), (1, 1));
    }

    /// Goal: of a run that was interrupted, what was on its way then is not lost; what younger values overtook is.
    #[test]
    fn what_was_cut_off_is_not_lost() {
        let settings = settings(3);
        let records = |numbers: &[u32]| numbers.iter().map(|&number| record(1, number, 5)).collect();
        let brought =
            |numbers: &[u32]| WorkloadResult { records: records(numbers), ..WorkloadResult::default() };
        let all = [
            (Part::Vehicle(0), brought(&[0, 2])),
            (Part::Vehicle(1), WorkloadResult::default()),
            (Part::Vehicle(2), brought(&[0, 1, 2, 3])),
        ];
        let (began, opened) = (Ticks(1 << 40), Ticks(1 << 40));
        let lost = |is_cut: bool| {
            let evidence = RunEvidence { settings: &settings, brought: &all, began, opened, is_cut };
            let row = &evidence.figures().0.rows[0];
            (row.count, row.lost)
        };
        assert_eq!((lost(false), lost(true)), ((6, 2), (6, 1)));
    }

    /// Goal: what was published before a receiver's interest was known was not for it; what is missing later is lost.
    #[test]
    fn what_nobody_asked_for_yet_is_not_lost() {
        let settings = settings(2);
        let facts = Facts { sent: 4, ..Facts::default() };
        let records = vec![record(1, 1, 5), record(1, 3, 5)];
        let brought = [
            (Part::Vehicle(0), WorkloadResult { records, facts, ..WorkloadResult::default() }),
            (Part::Vehicle(1), WorkloadResult { facts, ..WorkloadResult::default() }),
        ];
        let row = &evidence(&brought, &settings).0.rows[0];
        // Vehicle 1 heard nothing of vehicle 0, which sent four.
        assert_eq!((row.count, row.skipped, row.lost), (2, 1, 1 + 4));
    }

    /// Goal: a value that was never sent is not lost: it is as late as the value that superseded it.
    #[test]
    fn what_was_skipped_is_as_late_as_what_came_instead() {
        let settings = settings(2);
        let facts = Facts { sent: 2, ..Facts::default() };
        let skipped = vec![Skipped { component: 0, first: 1, count: 2 }];
        let brought = [
            (
                Part::Vehicle(0),
                WorkloadResult {
                    records: vec![record(1, 0, 5), record(1, 3, 5)],
                    ..WorkloadResult::default()
                },
            ),
            (Part::Vehicle(1), WorkloadResult { facts, skipped, ..WorkloadResult::default() }),
        ];
        let (figures, samples) = evidence(&brought, &settings);
        let (row, samples) = (&figures.rows[0], &samples[0][0].1);
        assert_eq!((row.count, row.skipped, row.lost), (2, 2, 0));
        assert_eq!(samples.facts.skipped, 2);
        let late = |number: u64| {
            let row = (0..samples.len()).find(|&row| samples.index[row] == number).unwrap();
            (samples.outcome[row], samples.total_ns[row] / 1000)
        };
        assert_eq!((late(1), late(2)), ((Outcome::Unfinished, 2_005), (Outcome::Unfinished, 1_005)));
    }

    #[test]
    fn places_are_those_of_each_message() {
        let settings = settings(3);
        let facts = Facts { sent: 4, ..Facts::default() };
        let from = |us: u64| (0..4).map(|number| record(0, number, us)).collect();
        let brought = [
            (Part::Vehicle(1), WorkloadResult { facts, records: from(30), ..WorkloadResult::default() }),
            (Part::Vehicle(2), WorkloadResult { facts, records: from(10), ..WorkloadResult::default() }),
        ];
        let places = evidence(&brought, &settings).0.fan_out_ns;
        assert_eq!(places.iter().map(|ns| (ns + 500) / 1000).collect::<Vec<_>>(), [10, 30]);
    }
}
