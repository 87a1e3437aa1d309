//! Evaluation of the records of a run: samples for the store, the rows of the published tables, latency by place in the wake-up order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use punctual::{Clock, Ticks};
use serde::{Deserialize, Serialize};

use super::drift::drift_ppm;
use super::option::{OWN_ROW, VehiclesSettings, row_of_others};
use super::protocol::{Brought, Facts, Part, Skipped};
use super::value::{Origin, Record, STAGES_KEPT, UNKNOWN};
use crate::endpoint::Medium;
use crate::explain::run_trace::RunTrace;
use crate::sample::{ABSENT_NS, Outcome, Phase, Samples, StageColumn};
use crate::stats::{Distribution, Quantile, mean, upper_median};

/// One row of a published table, by its own rule, and the same sample by ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) lost: u64,
    /// Values that were never sent, because their publisher slept through their instant: as late as the value that superseded
    /// them. Per receiver, as all counts here.
    #[serde(default)]
    pub(super) skipped: u64,
    pub(super) min_us: u64,
    /// Mean over the receivers of each one's mean truncated to whole µs.
    pub(super) mean_us: f64,
    pub(super) max_us: u64,
    pub(super) pooled_mean_ns: f64,
    /// Quantiles of all messages, ns, where the sample supports them; a lost one is infinitely late.
    pub(super) p50_ns: Option<u64>,
    pub(super) p90_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
    pub(super) p999_ns: Option<u64>,
    pub(super) max_ns: u64,
    /// Mean of the distance from due to sent, ns: the senders' own lateness, which the published tables leave out.
    pub(super) late_mean_ns: f64,
}

/// The messages of one vehicle at all others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SenderRow {
    pub(super) sender: u16,
    pub(super) count: u64,
    /// From sent to received, ns: the least.
    pub(super) min_ns: u64,
    pub(super) p50_ns: u64,
    pub(super) max_ns: u64,
}

/// Messages that one receiver got.
struct Reception<'a> {
    receiver: u16,
    /// Messages of others, and its own.
    records: [Vec<&'a Record>; 2],
}

impl<'a> Reception<'a> {
    fn of(&self, is_own: bool) -> &[&'a Record] {
        &self.records[usize::from(is_own)]
    }
}

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RunFigures {
    pub(super) rows: Vec<Row>,
    /// Median latency of the first receiver that is reached by a message, of the second, …, ns.
    pub(super) fan_out_ns: Vec<u64>,
    /// Latency of each in order of arrival, ns: where one process receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) arrivals_ns: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) arrival_senders: Vec<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) senders: Vec<SenderRow>,
    /// Deviation of the mean period of a component from what was asked for, parts per million; the largest.
    pub(super) drift_ppm: f64,
}

/// Per receiver, in order: the row's name and its sample.
pub(super) type RunSamples = Vec<Vec<(String, Samples)>>;

/// Results of one run.
#[derive(Debug)]
pub(super) struct MadeRun<'a> {
    pub(super) settings: &'a VehiclesSettings,
    pub(super) brought: Vec<Brought>,
    pub(super) began: Ticks,
    pub(super) opened: Ticks,
    /// It was interrupted: messages that were on their way then are not part of it.
    pub(super) is_cut: bool,
    pub(super) trace: RunTrace,
}

impl MadeRun<'_> {
    /// Makes the figures, and the samples of which they are.
    pub(super) fn figures(&self) -> (RunFigures, RunSamples) {
        let receptions = self.receptions();
        let (offers, is_mutual) = (self.offers(&receptions), self.settings.asked.mode.is_mutual());
        let names = [(row_of_others(self.settings.asked.engine), false), (OWN_ROW, true)];
        let names = &names[..if is_mutual { 2 } else { 1 }];
        let of_one = |reception: &Reception<'_>| {
            let samples =
                |&(name, is_own): &(&str, bool)| (name.to_owned(), self.samples(reception, is_own, &offers));
            names.iter().map(samples).collect()
        };
        let samples: RunSamples = receptions.iter().map(of_one).collect();
        let arrivals = if is_mutual { Vec::new() } else { arrivals(&receptions) };
        let drift_ppm = drift_ppm(all(&receptions), self.settings.asked.period, self.settings.count);
        let figures = RunFigures {
            rows: names.iter().map(|&(name, is_own)| row(name, is_own, &receptions, &samples)).collect(),
            fan_out_ns: fan_out(&receptions),
            arrivals_ns: arrivals.iter().map(|record| latency_ns(record)).collect(),
            arrival_senders: arrivals.iter().map(|record| record.value.origin.vehicle).collect(),
            senders: senders(&receptions),
            drift_ppm: (drift_ppm * 10.0).round() / 10.0,
        };
        (figures, samples)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.brought.iter().all(|(_, brought)| brought.records.is_empty())
    }

    /// The parts that receive, in the order of the trials, and what they brought.
    pub(super) fn receivers(&self) -> impl Iterator<Item = &Brought> {
        let is_mutual = self.settings.asked.mode.is_mutual();
        self.brought.iter().filter(move |(part, _)| match part {
            Part::Vehicle(_) => is_mutual,
            Part::Listener => true,
            Part::Roadside(_) => false,
        })
    }

    fn receptions(&self) -> Vec<Reception<'_>> {
        let sorted = self.receivers().map(|(part, brought)| {
            // A listener is no vehicle, so no message is its own.
            let receiver = part.vehicle().unwrap_or(u16::MAX);
            let (own, others) =
                brought.records.iter().partition(|record| record.value.origin.vehicle == receiver);
            Reception { receiver, records: [others, own] }
        });
        sorted.collect()
    }

    /// Since the run began, nanoseconds.
    fn at(&self, instant: Ticks) -> u64 {
        Clock::get().nanos(instant.since(self.began))
    }

    /// Values that each component sent and did not send: as it says itself, or, if it did not finish, as others saw.
    fn offers(&self, receptions: &[Reception<'_>]) -> Offers {
        let settings = self.settings;
        let mut offers = Offers::new();
        for record in all(receptions) {
            let Origin { vehicle, component, number } = record.value.origin;
            let offer = offers.entry((vehicle, component)).or_default();
            offer.count = offer.count.max(number + 1);
            // Without a barrier, each begins when it is open.
            if settings.asked.no_barrier && offer.first_due_ns.is_none() {
                let before_ns = u64::from(number) * settings.period_ns();
                offer.first_due_ns = Some(self.at(record.value.due).saturating_sub(before_ns));
            }
        }
        for (part, brought) in &self.brought {
            let Some(vehicle) = part.vehicle() else { continue };
            for &Skipped { component, first, count } in &brought.skipped {
                let offer = offers.entry((vehicle, component)).or_default();
                offer.skipped.extend(first..first.saturating_add(count));
            }
            let asked = (settings.asked.components * settings.count) as u64;
            let skipped: u64 = brought.skipped.iter().map(|skipped| u64::from(skipped.count)).sum();
            let Facts { sent, refused, .. } = brought.facts;
            // A component counts a value as sent before its node may refuse it.
            let refused = if settings.asked.mode.is_mutual() { 0 } else { refused };
            if sent + refused + skipped == asked {
                for component in 0..settings.asked.components as u16 {
                    offers.entry((vehicle, component)).or_default().count = settings.count as u32;
                }
            }
        }
        offers
    }

    /// A row per message that was sent to this receiver by itself, or by others.
    fn samples(&self, reception: &Reception<'_>, is_own: bool, offers: &Offers) -> Samples {
        let (clock, records) = (Clock::get(), reception.of(is_own));
        let mut samples = Samples::with_capacity(records.len());
        samples.stages = stage_columns(records.len());
        let mut seen = Seen::new();
        for record in records {
            let Record { value, received, .. } = record;
            let Origin { vehicle, component, number } = value.origin;
            let seen = seen.entry((vehicle, component)).or_default();
            if seen.contains_key(&number) {
                samples.facts.duplicated += 1;
                continue;
            }
            let is_late = seen.last_key_value().is_some_and(|(&newest, _)| number < newest);
            samples.facts.reordered += u64::from(is_late);
            seen.insert(number, *received);
            let total = clock.nanos(received.since(value.due));
            let [due, sent] = [value.due, value.sent].map(|instant| self.at(instant));
            samples.push(number.into(), due, sent, total, Outcome::Answered);
            samples.sender.push(vehicle.into());
            push_stages(clock, &mut samples, record, is_own);
        }
        let nothing = BTreeMap::new();
        for (of, offer) in
            offers.iter().filter(|((vehicle, _), _)| (*vehicle == reception.receiver) == is_own)
        {
            self.push_absent(&mut samples, *of, offer, seen.get(of).unwrap_or(&nothing));
        }
        samples
    }

    /// Adds the values of a vehicle's component that did not come: lost, or never sent, which ends when a younger value comes.
    fn push_absent(&self, samples: &mut Samples, of: (u16, u16), offer: &Offer, seen: &BTreeMap<u32, Ticks>) {
        let (settings, opened_ns) = (self.settings, self.at(self.opened));
        let end = opened_ns + settings.lasts().as_nanos() as u64;
        let first_due_ns = offer.first_due_ns.unwrap_or(opened_ns + settings.behind_ns(of));
        // Its interest was not known before, or it was not there: values that were published until then were not for it. Plain ends
        // that are open before anybody sends have no such time.
        let asked = &settings.asked;
        let begins_later = asked.mode.is_mutual() || asked.no_barrier || asked.engine == Medium::Shared;
        let first_heard = seen.keys().next().copied().filter(|&number| begins_later && number < offer.count);
        let first_heard = first_heard.unwrap_or(0);
        let cut = seen.keys().next_back().map_or(0, |&newest| newest.saturating_add(1).min(offer.count));
        let count = if self.is_cut { cut } else { offer.count };
        for number in (0..count).filter(|number| !seen.contains_key(number)) {
            let is_skipped = offer.skipped.contains(&number);
            let due = first_due_ns + u64::from(number) * settings.period_ns();
            let (outcome, until) = if is_skipped || number < first_heard {
                samples.facts.skipped += 1;
                let younger = seen.range(number..).map(|(_, &received)| received).min();
                (Outcome::Unfinished, younger.map_or(end, |received| self.at(received)))
            } else {
                (Outcome::Lost, end)
            };
            let age = until.saturating_sub(due);
            samples.push(number.into(), due, due, age, outcome);
            samples.sender.push(of.0.into());
            samples.stages.iter_mut().for_each(|column| column.ns.push(ABSENT_NS));
            // Its sender was not there to send it, until it sent a younger one.
            if is_skipped && let Some(sent) = samples.stages[0].ns.last_mut() {
                *sent = age;
            }
        }
    }
}

/// When a receiver first had each number, by vehicle and component.
type Seen = HashMap<(u16, u16), BTreeMap<u32, Ticks>>;

fn all<'a>(receptions: &'a [Reception<'_>]) -> impl Iterator<Item = &'a Record> {
    receptions.iter().flat_map(|reception| reception.of(true).iter().chain(reception.of(false))).copied()
}

fn all_of_others<'a>(receptions: &[Reception<'a>]) -> impl Iterator<Item = &'a Record> {
    receptions.iter().flat_map(|reception| reception.of(false)).copied()
}

/// Values that a component was to send.
#[derive(Default)]
struct Offer {
    /// Number of values: all up to that number were sent, or skipped.
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

/// Of its own message a receiver knows when it was due, stamps or not: a message that calls back before the medium has it carries none.
fn push_stages(clock: &Clock, samples: &mut Samples, record: &Record, is_own: bool) {
    let stamped = is_own || record.stages.iter().any(|&ticks| ticks != UNKNOWN);
    samples.stages[0].ns.push(if stamped { late_ns_of(record) } else { ABSENT_NS });
    for (column, &ticks) in samples.stages[1..].iter_mut().zip(&record.stages) {
        column.ns.push(if ticks == UNKNOWN { ABSENT_NS } else { clock.nanos(Ticks(ticks.into())) });
    }
}

/// From due to sent.
fn late_ns_of(record: &Record) -> u64 {
    Clock::get().nanos(record.value.sent.since(record.value.due))
}

/// From sent to received, as the published tables count.
fn latency_ns(record: &Record) -> u64 {
    Clock::get().nanos(record.received.since(record.value.sent))
}

fn row(name: &str, is_own: bool, receptions: &[Reception<'_>], samples: &RunSamples) -> Row {
    let mut pooled = Samples::default();
    let (mut means, mut late_ns) = (Vec::new(), 0);
    let of_each = receptions.iter().map(|reception| reception.of(is_own));
    for records in of_each.filter(|records| !records.is_empty()) {
        let latencies: Vec<u64> = records.iter().map(|record| latency_ns(record)).collect();
        means.push((latencies.iter().sum::<u64>() / latencies.len() as u64 / 1000) as f64);
        latencies.into_iter().for_each(|ns| pooled.push(1, 0, 0, ns, Outcome::Answered));
        late_ns += records.iter().map(|record| late_ns_of(record)).sum::<u64>();
    }
    let ended = |outcome| {
        let of_row = samples.iter().flatten().filter(|(row, _)| row == name);
        of_row.map(|(_, samples)| samples.count_of(outcome)).sum()
    };
    let (count, lost) = (pooled.len(), ended(Outcome::Lost));
    (0..lost).for_each(|_| pooled.push(1, 0, 0, 0, Outcome::Lost));
    let all = Distribution::of(&[pooled], Phase::Steady, 0);
    let quantile = |quantile| all.quantile(quantile).ns();
    Row {
        name: name.to_owned(),
        count: count as u64,
        lost,
        skipped: ended(Outcome::Unfinished),
        min_us: all.min_ns().unwrap_or(0) / 1000,
        mean_us: mean(&means),
        max_us: all.answered_max_ns().unwrap_or(0) / 1000,
        pooled_mean_ns: all.mean_ns().unwrap_or(0.0).round(),
        p50_ns: quantile(Quantile::P50),
        p90_ns: quantile(Quantile::P90),
        p99_ns: quantile(Quantile::P99),
        p999_ns: quantile(Quantile::P999),
        max_ns: all.answered_max_ns().unwrap_or(0),
        late_mean_ns: (late_ns as f64 / count.max(1) as f64).round(),
    }
}

/// Latencies of others' messages by what they have in common.
fn latencies_by<K: Ord>(receptions: &[Reception<'_>], key: impl Fn(&Record) -> K) -> BTreeMap<K, Vec<u64>> {
    let mut all: BTreeMap<K, Vec<u64>> = BTreeMap::new();
    for record in all_of_others(receptions) {
        all.entry(key(record)).or_default().push(latency_ns(record));
    }
    all.values_mut().for_each(|latencies| latencies.sort_unstable());
    all
}

/// Median latency by place: of all that one message reaches, who had it first, second, ….
fn fan_out(receptions: &[Reception<'_>]) -> Vec<u64> {
    let mut by_place: Vec<Vec<u64>> = Vec::new();
    for latencies in latencies_by(receptions, |record| (record.value.origin, record.component)).into_values()
    {
        by_place.resize(by_place.len().max(latencies.len()), Vec::new());
        by_place.iter_mut().zip(latencies).for_each(|(place, latency)| place.push(latency));
    }
    by_place.iter_mut().filter_map(|place| upper_median(place)).collect()
}

fn arrivals<'a>(receptions: &[Reception<'a>]) -> Vec<&'a Record> {
    let mut all: Vec<&Record> = all_of_others(receptions).collect();
    all.sort_by_key(|record| record.received);
    all
}

fn senders(receptions: &[Reception<'_>]) -> Vec<SenderRow> {
    let row = |(sender, all): (u16, Vec<u64>)| {
        let (count, p50_ns) = (all.len() as u64, all[all.len() / 2]);
        SenderRow { sender, count, min_ns: all[0], p50_ns, max_ns: all[all.len() - 1] }
    };
    latencies_by(receptions, |record| record.value.origin.vehicle).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use punctual_machine::window::{Evidence, Window};

    use super::*;
    use crate::explain::kept::ThreadWindows;
    use crate::vehicles::option::tests::settings_of;
    use crate::vehicles::protocol::{ComponentWindows, WorkloadResult};
    use crate::vehicles::value::Value;
    use std::time::Duration;

    /// Four messages of so many vehicles.
    fn settings(vehicles: usize) -> VehiclesSettings {
        settings_with(&format!("--mode callback --vehicles {vehicles}"))
    }

    fn settings_with(options: &str) -> VehiclesSettings {
        let options = format!("--period 1ms --messages 4 --rounds 1 {options}");
        settings_of(&options).expect("options that go together")
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

    /// Result of a vehicle that sent so much.
    fn that_sent(sent: u64, records: Vec<Record>) -> WorkloadResult {
        WorkloadResult { facts: Facts { sent, ..Facts::default() }, records, ..WorkloadResult::default() }
    }

    fn made_run<'a>(brought: &[Brought], settings: &'a VehiclesSettings, is_cut: bool) -> MadeRun<'a> {
        let (began, opened) = (Ticks(1 << 40), Ticks(1 << 40));
        MadeRun { settings, brought: brought.to_vec(), began, opened, is_cut, trace: RunTrace::default() }
    }

    fn figures(brought: &[Brought], settings: &VehiclesSettings) -> (RunFigures, RunSamples) {
        made_run(brought, settings, false).figures()
    }

    /// Goal: of each receiver the evidence has its own thread, and those of its senders. Each has the time in which it had nothing to do,
    /// which is found out once a run. Method: a window of a millisecond each, in which a value was on its way for 10 µs.
    #[test]
    fn evidence_is_of_the_threads_of_a_run() {
        let settings = settings_with("--mode callback --engine shared --vehicles 2 --wake futex");
        let clock = Clock::get();
        let window = |number: u32| {
            let begin = Ticks(1 << 40).plus(clock.ticks(Duration::from_micros(1000 * u64::from(number))));
            let end = begin.plus(clock.ticks(Duration::from_millis(1)));
            Window {
                evidence: Evidence { number: number + 1, ..Evidence::default() },
                span: (begin.0, end.0),
            }
        };
        let of =
            ThreadWindows { thread: 7, windows: (0..4).map(window).collect(), ..ThreadWindows::default() };
        let brought = [0, 1].map(|own| {
            let records = (0..4).map(|number| record(1 - own, number, if number == 2 { 900 } else { 10 }));
            let windows = vec![ComponentWindows { sends: true, receives: true, of: of.clone() }];
            (Part::Vehicle(own), WorkloadResult { windows, ..that_sent(4, records.collect()) })
        });
        let run = made_run(&brought, &settings, false);
        let (_, samples) = run.figures();
        let threads = run.threads();
        for (receiver, of_receiver) in samples.iter().enumerate() {
            let kept = run.evidence(0, Part::Vehicle(receiver as u16), &of_receiver[0].1, &threads);
            let who: Vec<(&str, Option<&str>)> =
                kept.threads.iter().map(|thread| (thread.role.as_str(), thread.owner.as_deref())).collect();
            let [own, other] = [receiver, 1 - receiver].map(|number| format!("vehicle-{number}"));
            assert!(who.contains(&("receiver", Some(own.as_str()))), "{who:?}");
            assert!(who.contains(&("sender", Some(other.as_str()))) && who.len() == 2, "{who:?}");
            let receiving =
                kept.threads.iter().find(|thread| thread.role == "receiver").expect("it is there");
            let late =
                receiving.windows.iter().find(|window| window.evidence.number == 3).expect("it was late");
            assert!((90..=110).contains(&late.evidence.idle_us), "{late:?}");
        }
    }

    /// Goal: the rule of the tables: a truncated mean per vehicle, then the mean of those; and all samples beside.
    #[test]
    fn rows_follow_the_rule_of_the_tables() {
        let settings = settings(2);
        let records = |own: u16, others: u16, us: [u64; 4]| {
            let from_others = (0..4).map(|number| record(others, number, us[number as usize]));
            from_others.chain((0..4).map(|number| record(own, number, 1))).collect()
        };
        let brought = [
            (Part::Vehicle(0), that_sent(4, records(0, 1, [10, 10, 10, 13]))),
            (Part::Vehicle(1), that_sent(4, records(1, 0, [20, 20, 20, 99]))),
        ];
        let (figures, samples) = figures(&brought, &settings);
        let socket = &figures.rows[0];
        // 43 / 4 and 159 / 4, each truncated.
        assert_eq!((socket.name.as_str(), socket.mean_us), ("socket", f64::midpoint(10.0, 39.0)));
        assert_eq!((socket.count, socket.lost), (8, 0));
        assert!((9..=10).contains(&socket.min_us) && (98..=99).contains(&socket.max_us), "{socket:?}");
        assert!((socket.pooled_mean_ns - 25_250.0).abs() < 10.0, "{socket:?}");
        assert_eq!((figures.rows[1].name.as_str(), figures.rows[1].count), ("sharedmem", 8));
        assert_eq!(samples.len(), 2);
    }

    /// Goal: lost messages are in the quantiles, later than everything that came.
    #[test]
    fn lost_messages_are_the_latest() {
        let records: Vec<Record> = (1..=30).map(|us| record(1, us, us.into())).collect();
        let receptions = [Reception { receiver: 0, records: [records.iter().collect(), Vec::new()] }];
        let quantiles = |lost: u64| {
            let mut samples = Samples::default();
            (0..lost).for_each(|index| samples.push(index, 0, 0, 0, Outcome::Lost));
            let row = row("socket", false, &receptions, &vec![vec![("socket".to_owned(), samples)]]);
            (row.count, row.lost, row.p50_ns.map(|ns| (ns + 500) / 1000))
        };
        assert_eq!((quantiles(0), quantiles(10)), ((30, 0, Some(15)), (30, 10, Some(20))));
        assert_eq!(quantiles(40), (30, 40, None));
    }

    /// Goal: missing messages are lost, repeated ones are doubled, late ones are out of order; none vanishes.
    #[test]
    fn every_message_has_its_row() {
        let settings = settings(3);
        let records = vec![record(1, 0, 5), record(1, 2, 5), record(1, 1, 5), record(1, 1, 9)];
        let brought = [
            (Part::Vehicle(0), that_sent(4, records)),
            (Part::Vehicle(1), that_sent(4, Vec::new())),
            (Part::Vehicle(2), that_sent(4, Vec::new())),
        ];
        let samples = &figures(&brought, &settings).1[0][0].1;
        samples.assert_aligned();
        // Of eight that two others sent three came.
        assert_eq!((samples.len(), samples.count_of(Outcome::Lost)), (8, 5));
        assert_eq!((samples.facts.duplicated, samples.facts.reordered), (1, 1));
    }

    /// Goal: messages on their way when a run was interrupted are not lost; messages that younger values overtook are.
    #[test]
    fn messages_on_their_way_at_an_interrupt_are_not_lost() {
        let settings = settings(3);
        let records = |numbers: &[u32]| numbers.iter().map(|&number| record(1, number, 5)).collect();
        let brought =
            |numbers: &[u32]| WorkloadResult { records: records(numbers), ..WorkloadResult::default() };
        let all = [
            (Part::Vehicle(0), brought(&[0, 2])),
            (Part::Vehicle(1), WorkloadResult::default()),
            (Part::Vehicle(2), brought(&[0, 1, 2, 3])),
        ];
        let lost = |is_cut: bool| {
            let row = &made_run(&all, &settings, is_cut).figures().0.rows[0];
            (row.count, row.lost)
        };
        assert_eq!((lost(false), lost(true)), ((6, 2), (6, 1)));
    }

    /// Goal: values published before a receiver's interest was known were not for it; values that are missing later are lost.
    #[test]
    fn a_value_that_nobody_asked_for_yet_is_not_lost() {
        let settings = settings(2);
        let brought = [
            (Part::Vehicle(0), that_sent(4, vec![record(1, 1, 5), record(1, 3, 5)])),
            (Part::Vehicle(1), that_sent(4, Vec::new())),
        ];
        let row = &figures(&brought, &settings).0.rows[0];
        // Vehicle 1 heard nothing of vehicle 0, which sent four.
        assert_eq!((row.count, row.skipped, row.lost), (2, 1, 1 + 4));
    }

    /// Goal: where there are no interests, a listener that is there before anybody sends loses what does not come, the first too; in
    /// memory, where a ring begins with its reader, and without a barrier it may not have been there.
    #[test]
    fn a_listener_that_is_there_loses_the_first_too() {
        let brought = [
            (Part::Listener, that_sent(0, vec![record(0, 2, 5)])),
            (Part::Vehicle(0), that_sent(4, Vec::new())),
        ];
        let lost = |options: &str| {
            let row = &figures(&brought, &settings_with(options)).0.rows[0];
            (row.count, row.skipped, row.lost)
        };
        assert_eq!(lost("--mode engine --vehicles 1"), (1, 0, 3));
        assert_eq!(lost("--mode async --vehicles 1 --engine datagram"), (1, 0, 3));
        assert_eq!(lost("--mode engine --vehicles 1 --engine shared"), (1, 2, 1));
        assert_eq!(lost("--mode engine --vehicles 1 --no-barrier"), (1, 2, 1));
    }

    /// Goal: values that their senders had no room for are missing, also the last ones, also where a sender had room for none.
    #[test]
    fn a_refused_value_does_not_vanish() {
        let facts = |sent: u64| Facts { sent, refused: 4 - sent, ..Facts::default() };
        let quiet = |sent: u64| WorkloadResult { facts: facts(sent), ..WorkloadResult::default() };
        let records = vec![record(0, 0, 5), record(0, 1, 5)];
        let brought = [
            (Part::Listener, WorkloadResult { records, ..WorkloadResult::default() }),
            (Part::Vehicle(0), quiet(2)),
            (Part::Vehicle(1), quiet(0)),
        ];
        let row = &figures(&brought, &settings_with("--mode engine --vehicles 2")).0.rows[0];
        assert_eq!((row.count, row.lost), (2, 2 + 4));
    }

    /// Goal: a value that did not come was due when its component's schedule says, where vehicles and their components come one after
    /// the other.
    #[test]
    fn a_missing_value_was_due_at_its_own_instant() {
        let settings = settings_with("--mode callback --vehicles 2 --components 2 --spread");
        let brought = [0, 1].map(|number| (Part::Vehicle(number), that_sent(8, Vec::new())));
        let samples = &figures(&brought, &settings).1[0][0].1;
        let due_us: BTreeSet<u64> = samples.due_ns.iter().map(|ns| (ns + 500) / 1000).collect();
        // Half a period behind vehicle 0, and component 1 half of that behind component 0.
        assert_eq!(due_us, [0, 1, 2, 3].iter().flat_map(|ms| [ms * 1000 + 500, ms * 1000 + 750]).collect());
    }

    /// Goal: a value that was never sent is not lost: it is as late as the value that superseded it.
    #[test]
    fn a_skipped_value_is_as_late_as_the_one_that_superseded_it() {
        let settings = settings(2);
        let skipped = vec![Skipped { component: 0, first: 1, count: 2 }];
        let brought = [
            (Part::Vehicle(0), that_sent(0, vec![record(1, 0, 5), record(1, 3, 5)])),
            (Part::Vehicle(1), WorkloadResult { skipped, ..that_sent(2, Vec::new()) }),
        ];
        let (figures, samples) = figures(&brought, &settings);
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
        let from = |us: u64| (0..4).map(|number| record(0, number, us)).collect();
        let brought =
            [(Part::Vehicle(1), that_sent(4, from(30))), (Part::Vehicle(2), that_sent(4, from(10)))];
        let places = figures(&brought, &settings).0.fan_out_ns;
        assert_eq!(places.iter().map(|ns| (ns + 500) / 1000).collect::<Vec<_>>(), [10, 30]);
    }
}
