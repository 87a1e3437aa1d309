//! The command that measures the cells of a run again, from what the run says that it planned.

use std::time::Duration;

use serde_json::Value;

use crate::explain::cause::Cause;
use crate::explain::evidence::TrialEvidence;
use crate::explain::of_run::explain_run;
use crate::sample::Load;
use crate::scheduling::Urgency;
use crate::store::Run;
use crate::units::{quoted, written};

/// The experiments that can be made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remade {
    /// `run response`.
    #[default]
    Response,
    /// `run vehicles`.
    Vehicles,
    /// `survey`.
    Survey,
}

impl Remade {
    /// The command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Response => "run response",
            Self::Vehicles => "run vehicles",
            Self::Survey => "survey",
        }
    }

    /// Returns true if the experiment takes `--lock-memory`.
    pub fn can_lock_memory(self) -> bool {
        self == Self::Response
    }
}

/// A measurement to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// By which experiment.
    pub experiment: Remade,
    /// The engine that carries messages, for a survey of one route.
    pub engine: Option<String>,
    /// The ways in which threads wait; none for a survey of several routes.
    pub ways: Vec<String>,
    /// Urgencies of the threads.
    pub urgencies: Vec<Urgency>,
    /// Only one end is: the responder's.
    pub is_one_urgent: bool,
    /// Bound to processors.
    pub is_pinned: bool,
    /// Memory is locked before.
    pub locks_memory: bool,
    /// Room at sockets, where it was chosen.
    pub receive_buffer: Option<u64>,
    /// When the next message leaves.
    pub load: Load,
    /// Idle gap or period.
    pub gap: Duration,
    /// Other options, as they are written.
    pub more: Vec<String>,
    /// Most trips of a trial, of `run response`: the room for them is touched before.
    pub count: u64,
    /// Of one run.
    pub lasts: Duration,
    /// With the kernel's trace.
    pub trace: bool,
    /// The program that starts the command, with its options.
    pub launcher: Option<&'static str>,
    /// The tracer of its threads, as the run's evidence says.
    pub tracer: Option<String>,
}

impl Default for Again {
    fn default() -> Self {
        Self {
            experiment: Remade::Response,
            engine: None,
            ways: vec!["blocking".to_owned()],
            urgencies: vec![Urgency::Other],
            is_one_urgent: false,
            is_pinned: true,
            locks_memory: false,
            receive_buffer: None,
            load: Load::Closed,
            gap: Duration::ZERO,
            more: Vec::new(),
            count: COUNT_MAX,
            lasts: Duration::from_secs(4),
            trace: false,
            launcher: None,
            tracer: None,
        }
    }
}

/// The plan as the run states it.
#[derive(Clone, Copy)]
struct Planned<'a>(&'a Value);

impl<'a> Planned<'a> {
    fn get(self, key: &str) -> Result<&'a Value, String> {
        self.0.get(key).ok_or_else(|| Self::lacks(key))
    }

    fn text(self, key: &str) -> Result<&'a str, String> {
        self.get(key)?.as_str().ok_or_else(|| Self::lacks(key))
    }

    fn number(self, key: &str) -> Result<f64, String> {
        self.get(key)?.as_f64().ok_or_else(|| Self::lacks(key))
    }

    fn is_so(self, key: &str) -> Result<bool, String> {
        self.get(key)?.as_bool().ok_or_else(|| Self::lacks(key))
    }

    /// The options of a run decide what is measured.
    fn lacks(key: &str) -> String {
        format!("its plan does not say {key}, as those of older versions do not: make the run anew")
    }
}

impl Again {
    /// Of a run of `response` or `vehicles`, or of a survey.
    ///
    /// # Errors
    /// It is another experiment's, or of something that is not made again.
    pub fn of(run: &Run, lasts: Duration, trace: bool) -> Result<Self, String> {
        let mut again = Self::planned(run, lasts, trace)?;
        if again.experiment == Remade::Response {
            again.count = count_of(run, lasts)?;
        }
        again.more.extend(["--seed".to_owned(), run.header.seed.to_string()]);
        Ok(Self { tracer: tracer_of(run), ..again })
    }

    /// The same by the plan alone, without a look at the samples.
    ///
    /// # Errors
    /// As [`Again::of`].
    pub fn planned(run: &Run, lasts: Duration, trace: bool) -> Result<Self, String> {
        match run.header.experiment.as_str() {
            "response" => Self::of_response(run, lasts, trace),
            "vehicles" => Self::of_vehicles(run, lasts, trace),
            "survey" => Self::of_survey(run, lasts, trace),
            other => Err(format!(
                "a run of {other}: surveys, and runs of response, vehicles and peel can be verified"
            )),
        }
    }

    fn of_vehicles(run: &Run, lasts: Duration, trace: bool) -> Result<Self, String> {
        let plan = Planned(&run.header.plan);
        let mut more = Vec::new();
        let mut option = |name: &str, value: String| more.extend([name.to_owned(), value]);
        for name in ["mode", "engine"] {
            option(&format!("--{name}"), plan.text(name)?.to_owned());
        }
        // Only where there is a choice, regardless of what older plans say.
        let has_choice = plan.text("engine")? == "packet";
        for (name, is_given) in [("interfaces", has_choice), ("interface", true)] {
            if let Some(value) = plan.get(name)?.as_str().filter(|_| is_given) {
                option(&format!("--{name}"), value.to_owned());
            }
        }
        for name in ["vehicles", "roadside", "components"] {
            option(&format!("--{name}"), plan.number(name)?.to_string());
        }
        option("--period", format!("{}us", plan.number("period_us")?));
        let awake_us = plan.number("awake_us")?;
        if awake_us > 0.0 {
            option("--awake", format!("{awake_us}us"));
        }
        option("--seal", if plan.is_so("sealed")? { "on" } else { "off" }.to_owned());
        let flags = [("--spread", plan.is_so("spread")?), ("--no-barrier", !plan.is_so("barrier")?)];
        more.extend(flags.iter().filter(|(_, is_so)| *is_so).map(|(name, _)| (*name).to_owned()));
        // Plans of old name a way for this mode too, by which nobody waited.
        let wake = if plan.text("mode")? == "engine" { "spin" } else { plan.text("wake")? };
        Ok(Self {
            experiment: Remade::Vehicles,
            ways: vec![wake.to_owned()],
            urgencies: vec![plan.text("sched")?.parse()?],
            is_pinned: plan.is_so("pinned")?,
            more,
            lasts,
            trace,
            ..Self::default()
        })
    }

    fn of_survey(run: &Run, lasts: Duration, trace: bool) -> Result<Self, String> {
        let plan = &run.header.plan;
        let quick = plan["quick"].as_bool().ok_or("its plan does not say what was asked for")?;
        let mut more: Vec<String> = quick.then(|| "--quick".to_owned()).into_iter().collect();
        let mut option = |name: &str, value: Option<String>| {
            more.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        option("--gap", plan["gap_us"].as_u64().map(|us| format!("{us}us")));
        option("--load", plan["load"].as_str().map(str::to_owned));
        option("--count", plan["messages_per_trial_max"].as_u64().map(|count| count.to_string()));
        let mut routes: Vec<(String, String)> = Vec::new();
        for cell in run.cells() {
            let way = cell.wake.split('+').next().unwrap_or_default().to_owned();
            add(&mut routes, (cell.engine, way));
        }
        let one = routes.pop().filter(|_| routes.is_empty());
        if one.is_none() {
            option("--only", plan["only"].as_str().map(str::to_owned));
        }
        let (engine, ways) = one.map_or((None, Vec::new()), |(engine, way)| (Some(engine), vec![way]));
        Ok(Self { experiment: Remade::Survey, engine, ways, more, lasts, trace, ..Self::default() })
    }

    fn of_response(run: &Run, lasts: Duration, trace: bool) -> Result<Self, String> {
        let plan = Planned(&run.header.plan);
        if plan.is_so("against_sockperf")? || !plan.get("faults")?.is_null() {
            return Err("made against sockperf, or with faults on the way: verify a run without".to_owned());
        }
        if plan.number("mishaps")? > 0.0 {
            return Err("made with mishaps by a plan: verify a run without".to_owned());
        }
        let mut again = Self { ways: Vec::new(), urgencies: Vec::new(), lasts, trace, ..Self::default() };
        for option in plan.get("options")?.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if option.contains('~') {
                return Err("several levels of recording side by side: verify a run of one".to_owned());
            }
            let (option, end) = option.split_once('@').unwrap_or((option, ""));
            let (way, urgency) = option.split_once('+').unwrap_or((option, "other"));
            again.is_one_urgent |= end == "responder";
            if end == "client" {
                return Err("the client alone is urgent: verify a run with both ends alike".to_owned());
            }
            let urgency = urgency.parse()?;
            add(&mut again.ways, way.to_owned());
            add(&mut again.urgencies, urgency);
        }
        again.is_pinned = !plan.get("client_cpu")?.is_null();
        again.locks_memory = plan.is_so("lock_memory")?;
        again.receive_buffer = plan.get("receive_buffer")?.as_u64();
        let load = plan.get("load")?.clone();
        again.load = serde_json::from_value(load).map_err(|_| Planned::lacks("load"))?;
        again.gap = Duration::from_nanos(plan.number("gap_ns")? as u64);
        again.more = more_of_response(plan)?;
        Ok(again)
    }

    /// Returns true if a thread never sleeps.
    pub fn spins(&self) -> bool {
        self.ways
            .iter()
            .any(|way| ["spin", "packet", "xdp-skb", "xdp-native", "xdp-tx"].contains(&way.as_str()))
    }

    /// Cells that it measures.
    pub fn choices(&self) -> usize {
        self.ways.len() * self.urgencies.len()
    }

    /// As a shell takes it. Text from a plan is quoted: it may be anybody's, and is no command.
    pub fn command(&self) -> String {
        let mut words: Vec<String> = self.launcher.map(str::to_owned).into_iter().collect();
        words.push(format!("punctual {}", self.experiment.name()));
        if self.experiment != Remade::Survey {
            let urgencies: Vec<String> = self.urgencies.iter().map(ToString::to_string).collect();
            let (ways, urgencies) = (quoted(&self.ways.join(",")), urgencies.join(","));
            words.push(format!("--rounds 1 --wake {ways} --sched {urgencies}"));
        }
        words.push(format!("--duration {}", written(self.lasts)));
        words.extend(self.trace.then(|| "--trace".to_owned()));
        match self.experiment {
            Remade::Response => words.extend(self.of_response_alone()),
            Remade::Vehicles => words.extend(self.is_pinned.then(|| "--pin".to_owned())),
            Remade::Survey => words.extend(
                self.engine
                    .iter()
                    .zip(&self.ways)
                    .map(|(engine, way)| format!("--only {}", quoted(&format!("{engine}/{way}")))),
            ),
        }
        words.extend(self.more.iter().map(|word| quoted(word)));
        words.join(" ")
    }

    /// Options that `run response` alone has.
    fn of_response_alone(&self) -> Vec<String> {
        let load = if self.load == Load::Open { "open" } else { "closed" };
        let mut words = vec![format!("--count {} --load {load} --gap {}", self.count, written(self.gap))];
        let flags = [
            (self.is_one_urgent, "--urgent responder"),
            (!self.is_pinned, "--unpinned"),
            (self.locks_memory, "--lock-memory"),
        ];
        words.extend(flags.iter().filter(|(is_so, _)| *is_so).map(|(_, word)| (*word).to_owned()));
        words.extend(self.receive_buffer.map(|bytes| format!("--receive-buffer {bytes}")));
        words
    }
}

/// The most trips of a trial that `run response` takes, and the least that it is given room for.
const COUNT_MAX: u64 = 10_000_000;
const COUNT_MIN: u64 = 10_000;

/// A fix may make a trial so much faster than the fastest of the run before its trips end it: one that spins where the run slept over loopback
/// makes it five times as fast.
const FASTER_MAX: f64 = 8.0;

/// Room for all trips that a trial of this length may make, by what the run's trials did.
fn count_of(run: &Run, lasts: Duration) -> Result<u64, String> {
    let mut fastest: Option<f64> = None;
    for trial in &run.trials {
        let samples = trial.load().map_err(|error| error.to_string())?;
        let sent = || samples.sent_ns.iter();
        let Some((first, last)) = sent().min().zip(sent().max()).filter(|(first, last)| first < last) else {
            continue;
        };
        let per_second = samples.len() as f64 * 1e9 / (last - first) as f64;
        fastest = Some(fastest.map_or(per_second, |fastest| fastest.max(per_second)));
    }
    let count = fastest.map(|per_second| (per_second * FASTER_MAX * lasts.as_secs_f64()) as u64);
    Ok(count.map_or(COUNT_MAX, |count| count.clamp(COUNT_MIN, COUNT_MAX)))
}

/// Options that stand in a plan as they are written.
fn more_of_response(plan: Planned<'_>) -> Result<Vec<String>, String> {
    let mut more = Vec::new();
    let mut option = |name: &str, value: String| more.extend([name.to_owned(), value]);
    for (name, key) in [
        ("--size", "size"),
        ("--flows", "flows"),
        ("--dscp", "dscp"),
        ("--priority", "priority"),
        ("--busy-poll", "busy_poll_us"),
    ] {
        option(name, plan.number(key)?.to_string());
    }
    for (name, key) in [("--protocol", "protocol"), ("--stamps", "stamps")] {
        option(name, plan.text(key)?.to_owned());
    }
    for (name, key, unit) in [("--timeout", "timeout_ms", "ms"), ("--limit", "limit_us", "us")] {
        option(name, format!("{}{unit}", plan.number(key)?));
    }
    for (name, key) in [("--client-cpu", "client_cpu"), ("--responder-cpu", "responder_cpu")] {
        plan.get(key)?.as_u64().into_iter().for_each(|cpu| option(name, cpu.to_string()));
    }
    for (name, key) in [("--to", "to"), ("--interface", "interface"), ("--delay", "delay")] {
        plan.get(key)?.as_str().into_iter().for_each(|text| option(name, text.to_owned()));
    }
    for (name, key) in [("--ipv6", "ipv6"), ("--clocks-apart", "clocks_apart")] {
        more.extend(plan.is_so(key)?.then(|| name.to_owned()));
    }
    Ok(more)
}

/// The tracer of one of its threads, as that thread saw it; otherwise as the kernel's trace says. Evidence that cannot be read says
/// nothing.
fn tracer_of(run: &Run) -> Option<String> {
    let mut evidence = run.trials.iter().filter_map(|trial| trial.evidence::<TrialEvidence>().ok().flatten());
    let attached = evidence.find_map(|of| of.threads.iter().find_map(|one| one.attached.first().cloned()));
    let told = || {
        let trials = explain_run(run, 1, &mut Vec::new()).ok()?;
        let causes = trials.into_iter().flat_map(|trial| trial.told.found).flat_map(|found| found.causes);
        causes.into_iter().find(|one| one.name == Cause::named("traced")).map(|one| one.evidence)
    };
    attached.map(|one| one.tracer).or_else(told)
}

fn add<T: PartialEq>(list: &mut Vec<T>, one: T) {
    if !list.contains(&one) {
        list.push(one);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::store::{Header, Store};

    /// The measurement that repeats a run of this experiment and plan.
    pub(crate) fn again(experiment: &str, plan: Value, seed: u64) -> Result<Again, String> {
        planned(experiment, plan, seed, |run| Again::of(run, Duration::from_secs(1), false))
    }

    /// Result of `of` for a run of this experiment and plan that measured nothing.
    pub(crate) fn planned<T>(experiment: &str, plan: Value, seed: u64, of: impl FnOnce(&Run) -> T) -> T {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("run");
        let header = Header { plan, seed, ..Header::new(experiment) };
        Store::import(Some(&path), &header).expect("a new run");
        of(&Run::open(&path).expect("a run"))
    }

    /// Goal: a plan that does not say all is refused with what it lacks.
    #[test]
    fn a_plan_of_old_is_refused_with_a_reason() {
        let refused = again("vehicles", serde_json::json!({ "mode": "async" }), 1);
        assert!(refused.is_err_and(|reason| reason.contains("engine") && reason.contains("make the run")));
    }

    /// Goal: a run is made again for as long as was asked, be it less than a millisecond.
    #[test]
    fn a_short_time_stays_what_it_is() {
        let command = |lasts| Again { lasts, ..Again::default() }.command();
        assert!(command(Duration::from_micros(500)).contains("--duration 500000ns "));
        assert!(command(Duration::from_secs(4)).contains("--duration 4000ms "));
    }

    /// Goal: a trial has room for what it may do and not for what no way could: all of it is touched before. Method: runs of a trip each
    /// 100 µs, and each µs.
    #[test]
    fn room_is_for_what_the_run_did() {
        use crate::sample::{CellId, Outcome, Samples};
        let place = tempfile::tempdir().expect("a temporary folder");
        let count = |name: &str, period_ns: u64| {
            let path = place.path().join(name);
            let plan = serde_json::json!({
                "against_sockperf": false, "faults": null, "mishaps": 0, "options": ["blocking"],
                "client_cpu": 0, "responder_cpu": 1, "lock_memory": false, "receive_buffer": null,
                "load": "closed", "gap_ns": 0, "size": 64, "flows": 1, "dscp": 0, "priority": 0,
                "busy_poll_us": 0, "protocol": "punctual", "stamps": "software", "timeout_ms": 300,
                "limit_us": 900, "to": null, "interface": null, "delay": null, "ipv6": false,
                "clocks_apart": false,
            });
            let header = Header { plan, ..Header::new("response") };
            let mut store = Store::import(Some(&path), &header).expect("a new run");
            let mut samples = Samples::default();
            for row in 0..101 {
                samples.push(row, row * period_ns, row * period_ns, 9, Outcome::Answered);
            }
            store.append(&CellId::new("udp", "blocking"), 0, &samples).expect("room");
            let run = Run::open(&path).expect("a run");
            Again::of(&run, Duration::from_secs(4), false).expect("its plan is whole").command()
        };
        let usual = count("usual", 100_000);
        assert!(usual.contains("--count 323200 "), "{usual}");
        let fast = count("fast", 1_000);
        assert!(fast.contains("--count 10000000 "), "{fast}");
    }

    /// Goal: an engine that polls is made again as one that polls. Interfaces are asked for where there is a choice, regardless of the
    /// names in an old plan.
    #[test]
    fn only_what_vehicles_had_a_choice_of_is_asked_for_again() {
        let plan = |mode: &str, engine: &str| {
            serde_json::json!({
                "mode": mode, "engine": engine, "interfaces": "each", "wake": "eventfd", "sched": "other",
                "vehicles": 15, "roadside": 0, "components": 1, "period_us": 1e5, "awake_us": 0.0,
                "interface": null, "sealed": false, "spread": false, "barrier": true, "pinned": false,
            })
        };
        let vehicles =
            |mode, engine| again("vehicles", plan(mode, engine), 1).expect("its plan is whole").command();
        let polls = vehicles("engine", "datagram");
        assert!(polls.contains("--wake spin ") && !polls.contains("--interfaces"), "{polls}");
        let waits = vehicles("callback", "packet");
        assert!(waits.contains("--wake eventfd ") && waits.contains("--interfaces each"), "{waits}");
    }
}
