//! All rounds of a peel: every layer in turn, then starts of fresh processes with and without each mistake in turn.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual::{Clock, Ticks, Wake};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::signal::interrupted;
use serde_json::json;

use super::analysis::{first_message, look_for, peel, until_ready};
use super::layer::{InjectedFault, Layer, cell, is_floor};
use super::overall::{Interrupted, Overall};
use super::start_fix::{FixTried, StartFix, judge};
use super::startup::{StartOrder, StartUp};
use crate::doubt::Cause;
use crate::endpoint::{Addresses, EndpointPlan, Medium, VALUE_SIZE};
use crate::load::client::Trial;
use crate::load::testbed::{Place, Testbed};
use crate::run::{Experiment, RunError, RunPlan, Turns, Worker, cut_short, in_a_thread};
use crate::sample::Phase;
use crate::scheduling::Urgency;
use crate::stats::{Distribution, Interval};
use crate::store::{Store, StoreError};
use crate::summary::{Skipped, Summary};
use crate::units::OptionName;

/// Other processes that start at the same time: with ours the original's fifteen.
const CROWD: usize = 14;
/// Messages of each trial that count as warm-up: the cost of a fresh endpoint and a cold cache is no layer's.
pub const WARMUP: u64 = 50;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct PeelSettings {
    /// Between the two ends.
    pub medium: Medium,
    /// Sleep mechanism of the asynchronous layer.
    pub wake: Wake,
    /// Rounds of the layers.
    pub rounds: u32,
    /// Starts of each kind.
    pub starts: u32,
    /// For all trials of the layers together.
    pub duration: Duration,
    /// Most messages of a trial.
    pub count: usize,
    /// Mistakes to make.
    pub with: Vec<InjectedFault>,
    /// The fix that is tried against each.
    pub fix: Option<StartFix>,
    /// Repeats all random choices.
    pub seed: u64,
    /// CPUs of both ends.
    pub cpus: [Option<usize>; 2],
}

/// Results of a run besides the store.
#[derive(Debug)]
pub struct PeelMade {
    /// For the summary.
    pub overall: Overall,
    /// Skipped measurements, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Trials of layers that are stored.
    pub trials: usize,
    /// Rounds with a median of every layer.
    pub rounds: usize,
    /// Of each cell, rounds in which none of its messages was answered that counts.
    pub unanswered: Vec<(String, usize)>,
}

impl PeelMade {
    /// Groups with too few values for an interval, and their sizes.
    fn few(&self) -> Vec<(&'static str, usize)> {
        let mut all = vec![("layers", self.rounds), ("starts", self.overall.starts.len())];
        let with = self.overall.starts_with.iter().chain(&self.overall.starts_fixed);
        let fewest = with.map(|(_, starts)| starts.len()).filter(|&count| count > 0).min();
        all.extend(fewest.map(|fewest| ("starts with a mistake", fewest)));
        all.retain(|&(_, count)| (1..Interval::VALUES_MIN).contains(&count));
        all
    }
}

/// A kind of trial: a layer, or one with a mistake.
type TrialKind = (Layer, Option<InjectedFault>);

/// A kind of start: with a mistake, and with a fix.
type StartKind = (Option<InjectedFault>, Option<StartFix>);

struct PeelSession<'a> {
    settings: &'a PeelSettings,
    testbed: Testbed,
    store: &'a mut Store,
    began: Ticks,
    /// Mistakes that are made.
    culprits: Vec<InjectedFault>,
    /// Trials of a round, in their order.
    kinds: Vec<TrialKind>,
    /// Median of each round, by kind; `None` where no message was answered that counts.
    medians: HashMap<TrialKind, Vec<Option<f64>>>,
    /// Interruptions and frames, by kind.
    signals: HashMap<TrialKind, [u64; 2]>,
    /// Trials stored.
    trials: usize,
}

/// Makes all rounds, in a thread that may leave for a network namespace of its own.
pub fn run(settings: &PeelSettings, store: &mut Store, bar: &ProgressBar) -> Result<PeelMade, RunError> {
    let place = if settings.medium == Medium::Packet { Place::Segment } else { Place::Host };
    let testbed = Testbed::start(Addresses::new("peel")?, place, settings.cpus)?;
    let began = Clock::get().now();
    let mut skipped = Vec::new();
    let culprits = possible(settings, &mut skipped);
    let kinds = kinds(&culprits);
    let (medians, signals) = (HashMap::new(), HashMap::new());
    let mut session =
        PeelSession { settings, testbed, store, began, culprits, kinds, medians, signals, trials: 0 };
    for (round, place) in Turns::new(settings.rounds, session.kinds.len(), bar) {
        let (layer, culprit) = session.kinds[place];
        bar.set_message(cell(settings.medium, layer, culprit).name);
        match session.one_trial((layer, culprit), round) {
            Ok(()) => {}
            // An interrupted run may have no responder any more.
            Err(RunError::Machine(_)) if interrupted() => break,
            Err(RunError::Machine(reason)) if !session.whole_rounds().is_empty() => {
                skipped.push(Skipped { what: format!("layers, from round {} on", round + 1), reason });
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let rounds = session.whole_rounds().len();
    let unanswered = session.unanswered();
    if let Some((name, _)) = unanswered.first().filter(|_| rounds == 0 && !interrupted()) {
        return Err(format!("{name}: no answers; raise --duration").into());
    }
    let mut overall = session.overall();
    bar.set_message("starts");
    session.starts(&mut overall, &mut skipped, bar);
    Ok(PeelMade { overall, skipped, trials: session.trials, rounds, unanswered })
}

/// The mistakes that can be made over this medium.
fn possible(settings: &PeelSettings, skipped: &mut Vec<Skipped>) -> Vec<InjectedFault> {
    let mut culprits = settings.with.clone();
    if settings.medium == Medium::Shared {
        let reason = "shared memory has no descriptor that could raise SIGIO: --engine packet or datagram";
        let raises = culprits.extract_if(.., |culprit| *culprit == InjectedFault::SigioAtStart);
        skipped.extend(raises.map(|culprit| Skipped { what: culprit.name(), reason: reason.to_owned() }));
    }
    culprits
}

fn kinds(culprits: &[InjectedFault]) -> Vec<TrialKind> {
    let mut kinds: Vec<TrialKind> = Layer::value_variants().iter().map(|&layer| (layer, None)).collect();
    if culprits.contains(&InjectedFault::SigioAtStart) {
        // Beside the layer that it belongs to.
        kinds.insert(kinds.len() - 1, (Layer::Asynchronous, Some(InjectedFault::SigioAtStart)));
    }
    kinds
}

impl PeelSession<'_> {
    /// Rounds with a median of every layer: one that Ctrl-C cut short has not all of them, nor has one without answers.
    fn whole_rounds(&self) -> Vec<usize> {
        let has = |kind, round: usize| self.rounds_of(kind).get(round).is_some_and(Option::is_some);
        let has_all = |round: &usize| self.kinds.iter().all(|&kind| has(kind, *round));
        (0..self.settings.rounds as usize).filter(has_all).collect()
    }

    /// Medians of this kind, round by round.
    fn rounds_of(&self, kind: TrialKind) -> &[Option<f64>] {
        self.medians.get(&kind).map_or(&[], Vec::as_slice)
    }

    fn unanswered(&self) -> Vec<(String, usize)> {
        let of = |&kind: &TrialKind| {
            let rounds = self.rounds_of(kind).iter().filter(|median| median.is_none()).count();
            (cell(self.settings.medium, kind.0, kind.1).name, rounds)
        };
        self.kinds.iter().map(of).filter(|(_, rounds)| *rounds > 0).collect()
    }

    fn one_trial(&mut self, kind: TrialKind, round: u32) -> Result<(), RunError> {
        let (layer, culprit) = kind;
        let PeelSettings { medium, wake, duration, rounds, count, .. } = *self.settings;
        let plan = EndpointPlan {
            interrupted: culprit == Some(InjectedFault::SigioAtStart),
            ..layer.endpoint(medium, wake)
        };
        let duration = duration / (rounds * self.kinds.len() as u32);
        // The first messages of every trial are its warm-up by their index.
        let trial = Trial { size: VALUE_SIZE, duration, count_max: count, ..Trial::CLOSED };
        let made = self.testbed.make(&plan, &trial).map_err(|text| format!("{}: {text}", layer.name()))?;
        // Every trial opens everything anew, so every index begins at 0.
        let mut samples = made.recording.round_trips(Clock::get(), self.began, 0, false);
        samples.stages.clear();
        let cell = cell(medium, layer, culprit);
        made.note(&mut samples.facts, &cell.to_string());
        // The warm-up is the run's, as no part of the trial was made for it alone.
        samples.facts.warmup = None;
        let ns = Distribution::of(std::slice::from_ref(&samples), Phase::Steady, WARMUP);
        let median = ns.median_ns();
        if median.is_none() && interrupted() {
            return Ok(());
        }
        self.medians.entry(kind).or_default().push(median.map(|ns| ns as f64));
        let [signals, frames] = self.signals.entry(kind).or_default();
        *signals += made.signals;
        *frames += 2 * made.responder.answered;
        self.store.append(&cell, round, &samples)?;
        self.trials += 1;
        Ok(())
    }

    /// Of the whole rounds.
    fn medians_of(&self, kind: TrialKind) -> Vec<f64> {
        let medians = self.rounds_of(kind);
        self.whole_rounds().into_iter().filter_map(|round| medians.get(round).copied().flatten()).collect()
    }

    fn overall(&self) -> Overall {
        let of = |&layer: &Layer| (layer, self.medians_of((layer, None)));
        let parts = Layer::value_variants().iter().filter(|&&layer| layer != Layer::Whole);
        let layers: Vec<(Layer, Vec<f64>)> = parts.map(of).collect();
        let whole_ns = self.medians_of((Layer::Whole, None));
        Overall {
            medium: self.settings.medium,
            wake: self.settings.wake.to_string(),
            peeled: peel(&layers, &whole_ns, self.settings.seed),
            interrupted: self.interrupted(),
            ..Overall::default()
        }
    }

    fn interrupted(&self) -> Option<Interrupted> {
        let without = (Layer::Asynchronous, None);
        let with = (Layer::Asynchronous, Some(InjectedFault::SigioAtStart));
        let rate = |kind| {
            let &[signals, frames] = self.signals.get(&kind)?;
            Some(signals as f64 / frames.max(1) as f64)
        };
        let pairs = self.medians_of(with).into_iter().zip(self.medians_of(without));
        let differences: Vec<f64> = pairs.map(|(with, without)| with - without).collect();
        if differences.is_empty() {
            return None;
        }
        Some(Interrupted {
            without_per_frame: rate(without)?,
            with_per_frame: rate(with)?,
            adds: Interval::of(&differences, self.settings.seed),
        })
    }

    fn starts(&mut self, overall: &mut Overall, skipped: &mut Vec<Skipped>, bar: &ProgressBar) {
        let culprits = self.culprits.clone();
        let fixed: Vec<StartKind> = match self.settings.fix {
            Some(fix) => culprits.iter().map(|&culprit| (Some(culprit), Some(fix))).collect(),
            None => Vec::new(),
        };
        let with = culprits.iter().map(|&culprit| (Some(culprit), None));
        let kinds: Vec<StartKind> = [(None, None)].into_iter().chain(with).chain(fixed).collect();
        let mut made = self.starts_of(&kinds, skipped, bar).into_iter();
        overall.starts = made.next().unwrap_or_default();
        overall.starts_with = culprits.iter().copied().zip(made.by_ref()).collect();
        // Nothing is left without a fix.
        overall.starts_fixed = culprits.iter().copied().zip(made).collect();
        if overall.starts.is_empty() && interrupted() {
            let reason = "the run was interrupted before".to_owned();
            skipped.push(Skipped { what: "starts of fresh processes".to_owned(), reason });
        }
        overall.until_ready = until_ready(&overall.starts, self.settings.seed);
        overall.first_message = first_message(&overall.starts, self.settings.seed);
        overall.found = overall
            .starts_with
            .iter()
            .filter_map(|(culprit, starts)| look_for(*culprit, &overall.starts, starts, self.settings.seed))
            .collect();
        overall.fixes = self.fixes(overall);
    }

    /// Starts of each kind, in turn. A kind that fails is left out from then on, with its reason: the layers and the others stand.
    fn starts_of(
        &mut self,
        kinds: &[StartKind],
        skipped: &mut Vec<Skipped>,
        bar: &ProgressBar,
    ) -> Vec<Vec<StartUp>> {
        let mut made: Vec<Vec<StartUp>> = vec![Vec::new(); kinds.len()];
        let mut failed = vec![false; kinds.len()];
        for (turn, _) in Turns::new(self.settings.starts, 1, bar) {
            for place in 0..kinds.len() {
                // A process that Ctrl-C ended, too, is no failure.
                if failed[place] || interrupted() {
                    continue;
                }
                match self.one_start(kinds[place]) {
                    Ok(start) => made[place].push(start),
                    Err(_) if interrupted() => {}
                    Err(reason) => {
                        failed[place] = true;
                        skipped.push(Skipped { what: start_words(kinds[place], turn), reason });
                    }
                }
            }
        }
        made
    }

    /// Effect of the fix on each mistake.
    fn fixes(&self, overall: &Overall) -> Vec<FixTried> {
        let Some(fix) = self.settings.fix else { return Vec::new() };
        let pairs = overall.starts_with.iter().zip(&overall.starts_fixed);
        let judged = pairs.filter_map(|((culprit, with), (_, fixed))| {
            let found = overall.found.iter().find(|found| found.culprit == *culprit)?;
            judge(fix, found, with, fixed, self.settings.seed)
        });
        judged.collect()
    }

    /// A fresh process that pings the responder; with a crowd, if that is the mistake.
    fn one_start(&mut self, kind: StartKind) -> Result<StartUp, String> {
        let plan = self.testbed.begin(&Layer::Whole.endpoint(self.settings.medium, self.settings.wake))?;
        let paid = started(kind, self.testbed.addresses(), plan);
        // Also where no process could be started: then the responder gives up by itself.
        self.testbed.ended()?;
        paid
    }
}

/// The process that is looked at, amid its crowd.
fn started((culprit, fix): StartKind, addresses: &Addresses, plan: EndpointPlan) -> Result<StartUp, String> {
    let order = |bystander: bool| StartOrder {
        addresses: addresses.clone(),
        plan,
        started_ns: monotonic_ns(),
        culprit,
        fix: fix.filter(|_| !bystander),
        bystander,
    };
    let mut crowd = Vec::new();
    let crowded = if culprit == Some(InjectedFault::CrowdAtStart) { CROWD } else { 0 };
    // Ours in the middle: some have begun to start, and some begin after it.
    for _ in 0..crowded / 2 {
        crowd.push(start_with(&order(true))?);
    }
    let urgency = fix.map_or(Urgency::Other, StartFix::urgency);
    let (tell, started) = std::sync::mpsc::channel::<()>();
    let (ours, order) = (order(false), &order);
    let paid = std::thread::scope(|scope| {
        let ours = scope.spawn(move || watched_start(ours, urgency, tell));
        // It is told by the end of the channel, so that it is also where no process could be started.
        let _is_started = started.recv();
        for _ in crowded / 2..crowded {
            crowd.push(start_with(&order(true))?);
        }
        ours.join().map_err(|_| "the thread that started a process failed".to_owned())?
    });
    for bystander in &mut crowd {
        bystander.recv::<StartUp>()?;
    }
    paid
}

/// A kind of start, for people; from this one on, if some were made before.
fn start_words((culprit, fix): StartKind, turn: u32) -> String {
    let what = culprit.map_or("of fresh processes".to_owned(), |culprit| format!("with {}", culprit.name()));
    let fix = fix.map_or(String::new(), |fix| format!(" and {}", fix.name()));
    let since = if turn > 0 { format!(", from the {}. on", turn + 1) } else { String::new() };
    format!("starts {what}{fix}{since}")
}

fn start_with(order: &StartOrder) -> Result<Worker, String> {
    let mut worker = Worker::start("start")?;
    worker.send(order)?;
    Ok(worker)
}

/// A process that is as urgent as the thread that starts it, which stays until the process has ended: that dies with it.
fn watched_start(order: StartOrder, urgency: Urgency, tell: Sender<()>) -> Result<StartUp, String> {
    urgency.apply().map_err(|error| urgency.advise(&error))?;
    let mut worker = start_with(&StartOrder { started_ns: monotonic_ns(), ..order })?;
    // A thread that waited has been told, or learns now that nobody will tell it.
    drop(tell);
    worker.recv()
}

impl Experiment for PeelSettings {
    type Made = PeelMade;

    const BROKEN: &'static str =
        "a promise did not hold: messages were lost, doubled or out of order; see the doubts";

    fn plan(&self) -> RunPlan {
        let described = json!({
            "engine": self.medium,
            "wake": self.wake.name(),
            "rounds": self.rounds,
            "starts": self.starts,
            "duration_s": self.duration.as_secs_f64(),
            "messages_per_trial_max": self.count,
            "size": VALUE_SIZE,
            "with": self.with,
            "fix": self.fix,
            "order": "all layers in turn, round by round",
        });
        RunPlan { name: "peel", warmup: WARMUP, cpus: self.cpus.into_iter().flatten().collect(), described }
    }

    fn schedulers(&self) -> Vec<String> {
        let of_fix = self.fix.map(StartFix::urgency).filter(|&urgency| urgency != Urgency::Other);
        [Some(Urgency::Other), of_fix].into_iter().flatten().map(|urgency| urgency.to_string()).collect()
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<PeelMade, RunError> {
        if let Some(urgency) = self.fix.map(StartFix::urgency) {
            // Else it would be known once all layers are measured.
            in_a_thread("urgency", || urgency.apply())?.map_err(|error| urgency.advise(&error))?;
        }
        run(self, store, bar).map_err(|error| match error {
            RunError::Machine(text) if self.medium == Medium::Packet => {
                RunError::Machine(format!("{text}. Without root: --engine datagram, --engine shared"))
            }
            other => other,
        })
    }

    fn summarise(&self, made: &PeelMade, store: &Store) -> Result<Summary, StoreError> {
        let mut summary = store.summary()?;
        for result in &mut summary.results {
            // A fresh link in every trial: as many first messages as rounds, which the starts measure better.
            result.first_ns.clear();
        }
        summary.skipped.extend(made.skipped.iter().cloned());
        // Also where only starts are missing.
        cut_short(&mut summary, made.trials);
        for (subject, rounds) in made.unanswered.iter().cloned() {
            summary.doubt(Cause::Unanswered { subject, rounds });
        }
        for (subject, count) in made.few() {
            summary.doubt(Cause::FewValues {
                subject: subject.to_owned(),
                count,
                count_min: Interval::VALUES_MIN,
            });
        }
        made.overall.broken().into_iter().for_each(|cause| summary.doubt(cause));
        summary.more.insert("peel".to_owned(), json!(made.overall));
        Ok(summary)
    }

    fn promise(&self, summary: &Summary, made: &PeelMade) -> Result<(), String> {
        let is_kept = summary.kept_promises_of(|cell| !is_floor(cell)) && made.overall.broken().is_empty();
        if is_kept { Ok(()) } else { Err(Self::BROKEN.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::startup::StartUp;
    use super::*;
    use crate::sample::{Outcome, Samples};

    fn settings() -> PeelSettings {
        PeelSettings {
            medium: Medium::Datagram,
            wake: Wake::Epoll,
            rounds: 1,
            starts: 1,
            duration: Duration::from_secs(1),
            count: 1,
            with: Vec::new(),
            fix: None,
            seed: 0,
            cpus: [None; 2],
        }
    }

    fn made(start: StartUp) -> PeelMade {
        let overall = Overall { starts: vec![start], ..Overall::default() };
        PeelMade { overall, skipped: Vec::new(), trials: 0, rounds: 0, unanswered: Vec::new() }
    }

    /// Goal: the bare mechanism promises nothing, as floors do elsewhere: its loss is a doubt. A loss of any other layer is ours.
    #[test]
    fn a_loss_of_the_bare_mechanism_is_a_doubt() {
        for &layer in Layer::value_variants() {
            let (mut summary, mut lost) = (Summary::default(), Samples::default());
            lost.push(0, 0, 0, 1, Outcome::Lost);
            summary.add(&cell(Medium::Datagram, layer, None), &[lost], 0);
            let kept = settings().promise(&summary, &made(StartUp::default()));
            assert_eq!(kept.is_ok(), layer == Layer::Bare, "{layer:?}");
            assert_eq!(summary.doubts.len(), 1, "{layer:?}");
        }
    }

    /// Goal: an answer that came twice in a start breaks the promise, as it does in a layer.
    #[test]
    fn a_doubled_answer_of_a_start_breaks_the_promise() {
        let kept = |start| settings().promise(&Summary::default(), &made(start)).is_ok();
        assert!(kept(StartUp::default()));
        assert!(!kept(StartUp { duplicated: 1, ..StartUp::default() }));
        assert!(!kept(StartUp { reordered: 1, ..StartUp::default() }));
    }
}
