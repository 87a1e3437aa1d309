//! The command that measures the cells of a run again, from what the run says that it planned.

use std::time::Duration;

use serde_json::Value;

use crate::sample::Load;
use crate::scheduling::Urgency;
use crate::store::Run;

/// What is measured again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// How threads wait.
    pub ways: Vec<String>,
    /// How urgent they are.
    pub urgencies: Vec<Urgency>,
    /// Only one end is: the responder's.
    pub is_one_urgent: bool,
    /// Bound to processors.
    pub is_pinned: bool,
    /// Memory is locked before.
    pub locks_memory: bool,
    /// When the next message leaves.
    pub load: Load,
    /// Idle gap or period, microseconds.
    pub gap_us: u64,
    /// Other options, as they are written.
    pub more: Vec<String>,
    /// Of one run.
    pub lasts: Duration,
    /// With the kernel's trace.
    pub trace: bool,
}

impl Default for Again {
    fn default() -> Self {
        Self {
            ways: vec!["blocking".to_owned()],
            urgencies: vec![Urgency::Other],
            is_one_urgent: false,
            is_pinned: true,
            locks_memory: false,
            load: Load::Closed,
            gap_us: 0,
            more: Vec::new(),
            lasts: Duration::from_secs(4),
            trace: false,
        }
    }
}

impl Again {
    /// Of a run of `response`.
    ///
    /// # Errors
    /// It is another experiment's, or of something that is not made again.
    pub fn of(run: &Run, lasts: Duration, trace: bool) -> Result<Self, String> {
        let (experiment, plan) = (&run.header.experiment, &run.header.plan);
        if experiment != "response" {
            return Err(format!("a run of {experiment}: only runs of response can be verified"));
        }
        if plan["against_sockperf"] == true || !plan["faults"].is_null() {
            return Err("made against sockperf, or with faults on the way: verify a run without".to_owned());
        }
        let cell = run.trials.first().map(|trial| &trial.cell).ok_or("it measured nothing")?;
        let mut again = Self { ways: Vec::new(), urgencies: Vec::new(), lasts, trace, ..Self::default() };
        for option in plan["options"].as_array().into_iter().flatten().filter_map(Value::as_str) {
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
        again.is_pinned = !plan["client_cpu"].is_null();
        again.locks_memory = plan["lock_memory"] == true;
        (again.load, again.gap_us) = (cell.load, cell.gap_us);
        let mut option = |name: &str, value: String| again.more.extend([name.to_owned(), value]);
        option("--size", cell.size.to_string());
        let names = [("--protocol", "protocol"), ("--stamps", "stamps"), ("--to", "to")];
        for (name, key) in names {
            if let Some(value) = plan[key].as_str() {
                option(name, value.to_owned());
            }
        }
        option("--flows", plan["flows"].as_u64().unwrap_or(1).to_string());
        Ok(again)
    }

    /// Whether a thread never sleeps.
    pub fn spins(&self) -> bool {
        self.ways
            .iter()
            .any(|way| ["spin", "packet", "xdp-skb", "xdp-native", "xdp-tx"].contains(&way.as_str()))
    }

    /// Cells that it measures.
    pub fn choices(&self) -> usize {
        self.ways.len() * self.urgencies.len()
    }

    /// As a shell takes it.
    pub fn command(&self) -> String {
        let joined = |words: Vec<String>| words.join(",");
        let mut words = vec!["punctual run response --rounds 1 --count 10000000".to_owned()];
        words.push(format!("--wake {}", self.ways.join(",")));
        let urgencies = self.urgencies.iter().map(ToString::to_string).collect();
        words.push(format!("--sched {}", joined(urgencies)));
        if self.is_one_urgent {
            words.push("--urgent responder".to_owned());
        }
        let load = if self.load == Load::Open { "open" } else { "closed" };
        words.push(format!("--load {load} --gap {}us --duration {}ms", self.gap_us, self.lasts.as_millis()));
        for (is_so, word) in
            [(!self.is_pinned, "--unpinned"), (self.locks_memory, "--lock-memory"), (self.trace, "--trace")]
        {
            words.extend(is_so.then(|| word.to_owned()));
        }
        words.extend(self.more.iter().cloned());
        words.join(" ")
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, one: T) {
    if !list.contains(&one) {
        list.push(one);
    }
}
