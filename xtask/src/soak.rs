//! Very many messages with random delays at every step of the sleep/wake handshake: no wake-up may be lost.
//!
//! The library is built with its labels (`--cfg labelled_stores`): there the delays are made, and faults planted, in the very
//! handshake that ships.

use std::time::Duration;

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

/// What a night has much of: the test program, its test, the variable that says how much, and that. A group goes on for an hour.
const CROWDS: [(&str, &str, &str, &str); 4] = [
    ("runtime", "many_tasks_live_at_once", "PUNCTUAL_TASKS", "1000000"),
    ("runtime_net", "many_timers_go_off_once", "PUNCTUAL_TIMERS", "100000"),
    ("runtime_net", "many_connections_are_idle", "PUNCTUAL_CONNECTIONS", "10000"),
    ("broadcast", "a_group_goes_on_and_its_memory_stays", "PUNCTUAL_GROUP_SOAK", "3600"),
];

/// Messages of soaks that are spoilt on purpose: each lost wake-up costs a time limit. With the look too early one sleep in a
/// hundred is lost, and who spins first seldom sleeps.
const WITHOUT_LOOK: u64 = 40_000;
const WITHOUT_NOTIFY: u64 = 100;
const HALTED: u64 = 1_000;

pub(crate) fn run(messages: u64) -> Outcome {
    // With their last look taken too early waiters and workers must fail.
    let suite = || {
        SUITES.iter().try_for_each(|(program, name)| {
            suite(program, name, None)?;
            suite(program, name, Some("look"))
        })
    };
    let each = |mechanism: &&str| {
        // The count must be able to rise, and must not rise for a sender that was stopped.
        soak(mechanism, WITHOUT_LOOK, Some("look"), 1)?;
        soak(mechanism, WITHOUT_NOTIFY, Some("notify"), 1)?;
        soak(mechanism, HALTED, Some("halt"), 0)?;
        soak(mechanism, messages / MECHANISMS.len() as u64, None, 0)
    };
    let mechanisms = if messages > 0 { &MECHANISMS[..] } else { &[] };
    let crowds = if messages > 0 { &CROWDS[..] } else { &[] };
    let all = || suite().and_then(|()| crowds.iter().try_for_each(crowd));
    Outcome::of(all().and_then(|()| mechanisms.iter().try_for_each(each)))
}

/// Very many at once, or for very long, without delays: what the test prints of them is shown.
fn crowd(&(program, test, variable, count): &(&str, &str, &str, &str)) -> Result<(), String> {
    let log = workspace::target("xtask").join(format!("soak-{test}.txt"));
    let run = kill::test(program).args(&["--", test, "--nocapture"]).env(variable, count).within(DEADLINE);
    let (ended, output) = run.all_output_to(&log)?;
    println!("{test} with {count}: {}", how(ended, DEADLINE));
    output
        .lines()
        .filter(|line| line.contains("each") || line.contains("SKIPPED"))
        .for_each(|line| println!("{line}"));
    let has_run = ended == Some(0) && output.contains("test result: ok. 1 passed");
    if has_run { Ok(()) } else { Err(format!("{test} with {count}:\n{}", tail(&output, 20))) }
}

/// Whether a wake-up falls into the fault is chance: beside other work a short test may pass with it, but hardly each time.
const FAULTY_RUNS_MAX: usize = 10;

/// A suite's own test; with a fault it must fail, in some run of a few.
fn suite(program: &str, test: &str, fault: Option<&str>) -> Result<(), String> {
    let name = fault.map_or(test.to_owned(), |fault| format!("{test} with {fault}"));
    let log = workspace::target("xtask").join(format!("soak-{program}-{}.txt", fault.unwrap_or("none")));
    let (runs, expected) = if fault.is_some() { (FAULTY_RUNS_MAX, 101) } else { (1, 0) };
    let mut last = String::new();
    for _ in 0..runs {
        let mut run = kill::test(program).args(&["--", test]).env("PUNCTUAL_DELAYS", "1").within(DEADLINE);
        if let Some(fault) = fault {
            run = run.env("PUNCTUAL_FAULT", fault);
        }
        let (ended, output) = run.all_output_to(&log)?;
        println!("{name}: {}", how(ended, DEADLINE));
        if ended == Some(expected) {
            return Ok(());
        }
        last = tail(&output, 20);
    }
    Err(format!("{name}: it ends, {runs} times:\n{last}"))
}

fn soak(mechanism: &str, messages: u64, spoil: Option<&str>, expected: i32) -> Result<(), String> {
    let mut soak = Run::cargo(&["run", "--package", "punctual-lab", "--quiet", "--target-dir"])
        .arg(workspace::target("kill"))
        .args(&["--", "run", "wakeup", "--quiet", "--mechanism", mechanism, "--soak"])
        .arg(messages.to_string())
        .env("RUSTFLAGS", "--cfg labelled_stores")
        .within(DEADLINE);
    if let Some(step) = spoil {
        soak = soak.args(&["--spoil", step]);
    }
    let name = format!("{mechanism}{}", spoil.map_or(String::new(), |step| format!(" spoilt by {step}")));
    let (ended, output) =
        soak.output_to(&workspace::target("xtask").join(format!("soak-{mechanism}.json")))?;
    println!("{name}: {output}");
    if ended == Some(expected) {
        return Ok(());
    }
    Err(format!(
        "{name}: {}, where {expected} was due; its output ends:\n{}",
        how(ended, DEADLINE),
        tail(&output, 20)
    ))
}
