//! Very many messages with random delays at every step of the sleep/wake handshake: no wake-up may be lost.
//!
//! The library is built with its labels (`--cfg labelled_stores`): there the delays are made, and faults planted, in the very
//! handshake that ships.

use std::time::Duration;

use serde_json::Value;

use crate::command::{Run, how, tail};
use crate::kill;
use crate::step::Outcome;
use crate::workspace;

/// In CI the suite alone: the laboratory, built once more for its processes, takes longer than everything that they do.
pub(crate) const SHORT: u64 = 0;
pub(crate) const LONG: u64 = 50_000_000;

/// Every message of the long one may take as long as a wake-up does on a busy machine.
const DEADLINE: Duration = Duration::from_secs(4 * 3600);

/// The ways of waiting that sleep over shared memory.
const MECHANISMS: [&str; 5] = ["futex", "eventfd", "epoll", "backoff", "adaptive"];

/// Test programs, and the test of each that loses no wake-up.
const SUITES: [(&str, &str); 2] = [("wakes", "no_wake_up_is_lost"), ("runtime", "no_wake_is_lost")];

/// Crowds that a night has time for: the test program, its test, the variable that says how much, and that amount. A group goes on for
/// an hour.
const CROWDS: [(&str, &str, &str, &str); 4] = [
    ("runtime", "many_tasks_live_at_once", "PUNCTUAL_TASKS", "1000000"),
    ("runtime_net", "many_timers_go_off_once", "PUNCTUAL_TIMERS", "100000"),
    ("runtime_net", "many_connections_are_idle", "PUNCTUAL_CONNECTIONS", "10000"),
    ("broadcast", "a_group_goes_on_and_its_memory_stays", "PUNCTUAL_GROUP_SOAK", "3600"),
];

/// Messages of soaks that are spoilt on purpose: each lost wake-up costs a time limit. With the look too early one sleep in a hundred
/// is lost, and a waiter that spins first seldom sleeps.
const WITHOUT_LOOK: u64 = 40_000;
const WITHOUT_NOTIFY: u64 = 100;
/// Of so many some twelve halts meet one who spins first, and fifty the others.
const HALTED: u64 = 2_000;

/// Counts that `punctual run wakeup --soak` prints.
#[derive(Debug)]
struct Tally {
    /// Wake-ups that were missed although their send was complete.
    lost: u64,
    /// Those of a sender that was stopped in the middle of its notification.
    unfinished: u64,
}

impl Tally {
    fn of(output: &str) -> Option<Self> {
        let said: Value = serde_json::from_str(output).ok()?;
        let count = |name: &str| said.get(name)?.as_u64();
        Some(Self { lost: count("lost")?, unfinished: count("unfinished")? })
    }
}

/// A soak: its deliberate fault, and the outcome that must follow.
struct Soak {
    spoil: Option<&'static str>,
    messages: u64,
    /// The exit code.
    ends: i32,
    /// True if its counts show that.
    shows: fn(&Tally) -> bool,
}

impl Soak {
    /// The count must be able to rise, and must not rise for a sender that was stopped: some must have been.
    fn all(messages: u64) -> [Self; 4] {
        let spoilt = |spoil, messages, ends, shows| Self { spoil: Some(spoil), messages, ends, shows };
        [
            spoilt("look", WITHOUT_LOOK, 1, |tally| tally.lost > 0),
            spoilt("notify", WITHOUT_NOTIFY, 1, |tally| tally.lost > 0),
            spoilt("halt", HALTED, 0, |tally| tally.unfinished > 0 && tally.lost == 0),
            Self { spoil: None, messages, ends: 0, shows: |tally| tally.lost == 0 },
        ]
    }

    /// Says what is wrong with how it ended, and with what it said.
    fn judge(&self, ended: Option<i32>, output: &str) -> Result<(), String> {
        if ended != Some(self.ends) {
            return Err(format!("it {}, where {} was due", how(ended, DEADLINE), self.ends));
        }
        let tally = Tally::of(output).ok_or("it says neither what was lost nor what was unfinished")?;
        if (self.shows)(&tally) { Ok(()) } else { Err(format!("the fault met nobody: {tally:?}")) }
    }

    fn run(&self, mechanism: &str) -> Result<(), String> {
        let mut soak = Run::cargo(&["run", "--package", "punctual-lab", "--quiet", "--target-dir"])
            .arg(workspace::target("kill"))
            .args(&["--", "run", "wakeup", "--quiet", "--mechanism", mechanism, "--soak"])
            .arg(self.messages.to_string())
            .env("RUSTFLAGS", "--cfg labelled_stores")
            .within(DEADLINE);
        if let Some(step) = self.spoil {
            soak = soak.args(&["--spoil", step]);
        }
        let name =
            format!("{mechanism}{}", self.spoil.map_or(String::new(), |step| format!(" spoilt by {step}")));
        let (ended, output) =
            soak.output_to(&workspace::target("xtask").join(format!("soak-{mechanism}.json")))?;
        say!("{name}: {output}");
        self.judge(ended, &output)
            .map_err(|wrong| format!("{name}: {wrong}; its output ends:\n{}", tail(&output, 20)))
    }
}

pub(crate) fn run(messages: u64) -> Outcome {
    // With their last look taken too early waiters and workers must fail.
    let suite = || {
        SUITES.iter().try_for_each(|(program, name)| {
            suite(program, name, None)?;
            suite(program, name, Some("look"))
        })
    };
    let soaks = Soak::all(messages / MECHANISMS.len() as u64);
    let each = |mechanism: &&str| soaks.iter().try_for_each(|soak| soak.run(mechanism));
    let mechanisms = if messages > 0 { &MECHANISMS[..] } else { &[] };
    let crowds = if messages > 0 { &CROWDS[..] } else { &[] };
    let all = || {
        suite()?;
        let cut = crowds.iter().map(crowd).collect::<Result<Vec<_>, _>>()?;
        mechanisms.iter().try_for_each(each)?;
        Ok(cut.concat())
    };
    outcome(all())
}

/// A crowd that was cut down is not the one that was to be tried, even if everything else has passed.
fn outcome(cut: Result<Vec<String>, String>) -> Outcome {
    match cut {
        Ok(cut) if cut.is_empty() => Outcome::Passed,
        Ok(cut) => Outcome::Skipped(cut.join("; ")),
        Err(error) => Outcome::Failed(error),
    }
}

/// Very many at once, or for very long, without delays: the test's lines on them are shown. Returns what the machine had no room for.
fn crowd(&(program, test, variable, count): &(&str, &str, &str, &str)) -> Result<Vec<String>, String> {
    let log = workspace::target("xtask").join(format!("soak-{test}.txt"));
    let run = kill::test(program).args(&["--", test, "--nocapture"]).env(variable, count).within(DEADLINE);
    let (ended, output) = run.all_output_to(&log)?;
    say!("{test} with {count}: {}", how(ended, DEADLINE));
    output.lines().filter(|line| line.contains("each")).for_each(|line| say!("{line}"));
    let has_run = ended == Some(0) && output.contains("test result: ok. 1 passed");
    if has_run { Ok(cut_down(&output)) } else { Err(format!("{test} with {count}:\n{}", tail(&output, 20))) }
}

/// Parts that a test says it left out.
fn cut_down(output: &str) -> Vec<String> {
    // Without capture it may stand behind the test's name in one line.
    let skips = output.lines().filter_map(|line| line.split_once("SKIPPED "));
    skips.map(|(_, reason)| reason.to_owned()).collect()
}

/// Chance decides whether a wake-up falls into the fault: beside other work a short test may pass with it. Each run is twice as long as
/// the one before, with sixty times as many messages in all.
const FAULTY_RUNS_MAX: u32 = 6;

/// A suite's own test; with a fault it must fail, in some run of a few.
fn suite(program: &str, test: &str, fault: Option<&str>) -> Result<(), String> {
    let name = fault.map_or(test.to_owned(), |fault| format!("{test} with {fault}"));
    let log = workspace::target("xtask").join(format!("soak-{program}-{}.txt", fault.unwrap_or("none")));
    let (runs, expected) = if fault.is_some() { (FAULTY_RUNS_MAX, 101) } else { (1, 0) };
    let mut last = String::new();
    for number in 0..runs {
        let mut run = kill::test(program).args(&["--", test]).env("PUNCTUAL_DELAYS", "1").within(DEADLINE);
        run = run.env("PUNCTUAL_ROUNDS_FACTOR", (1_u64 << number).to_string());
        if let Some(fault) = fault {
            run = run.env("PUNCTUAL_FAULT", fault);
        }
        let (ended, output) = run.all_output_to(&log)?;
        say!("{name}: {}", how(ended, DEADLINE));
        if ended == Some(expected) {
            return Ok(());
        }
        last = tail(&output, 20);
    }
    Err(format!("{name}: it ends, {runs} times:\n{last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a fault that met nobody proves nothing, however well the soak ended.
    #[test]
    fn a_fault_must_show() {
        let [look, _, halt, none] = Soak::all(1);
        let said = |lost, unfinished| {
            format!(
                "{{\n  \"mechanism\": \"futex\",\n  \"lost\": {lost},\n  \"unfinished\": {unfinished}\n}}\n"
            )
        };
        assert_eq!(look.judge(Some(1), &said(3, 0)), Ok(()));
        assert!(look.judge(Some(1), &said(0, 3)).unwrap_err().contains("met nobody"));
        assert!(look.judge(Some(1), "error: no such option").unwrap_err().contains("neither"));
        assert!(look.judge(Some(0), &said(3, 0)).unwrap_err().contains("where 1 was due"));
        assert_eq!(halt.judge(Some(0), &said(0, 2)), Ok(()));
        assert!(halt.judge(Some(0), &said(0, 0)).unwrap_err().contains("met nobody"));
        assert_eq!(none.judge(Some(0), &said(0, 0)), Ok(()));
    }

    /// Goal: a crowd that was cut down is no crowd that passed.
    #[test]
    fn a_crowd_that_was_cut_down_has_not_passed() {
        let output = "test many ... SKIPPED many: 8102 of 10000 connections: the limit\nok\n1898 connections, 3 KiB each\n";
        let cut = cut_down(output);
        assert_eq!(cut, ["many: 8102 of 10000 connections: the limit"]);
        assert!(matches!(outcome(Ok(cut)), Outcome::Skipped(reason) if reason.contains("8102")));
        assert_eq!(outcome(Ok(cut_down("test many ... ok\n"))), Outcome::Passed);
    }
}
