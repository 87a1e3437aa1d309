//! The table of steps, and how they are run one after the other.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use crate::command::Run;
use crate::step::{Outcome, Step};
use crate::{
    apart, arm64, bench, c_library, deny, fuzz, http, kill, loom, miri, package, python_package, rejoin,
    release, smoke, soak, tidy, tutorial, vehicles, zenoh,
};

/// The steps to run, and how long.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Per target.
    pub(crate) fuzz_time: Duration,
    /// Number of times that the model checker may take the CPU away.
    pub(crate) preemptions: &'static str,
    /// Number of processes to kill.
    pub(crate) kills: kill::Extent,
    /// Messages with delays at every step of the handshake.
    pub(crate) soak: u64,
    /// The tests to run under emulation.
    pub(crate) arm64: &'static arm64::Wanted,
    /// Empty: all targets.
    pub(crate) fuzz_only: Vec<String>,
}

/// In the order in which they run: steps that every change needs come first; of the rest as many as there is time for.
const STEPS: &[Step] = &[
    Step { name: "fmt", run: fmt },
    Step { name: "tidy", run: |_| tidy::run() },
    Step { name: "clippy", run: clippy },
    Step { name: "docs", run: docs },
    Step { name: "deny", run: |_| deny::run() },
    Step { name: "smoke", run: |_| smoke::run() },
    Step { name: "loom", run: |plan| loom::run(plan.preemptions) },
    Step { name: "package", run: |_| package::run() },
    Step { name: "kill", run: |plan| kill::run(plan.kills) },
    Step { name: "soak", run: |plan| soak::run(plan.soak) },
    Step { name: "tutorial", run: |_| tutorial::run() },
    Step { name: "c", run: |_| c_library::run() },
    Step { name: "arm64", run: |plan| arm64::run(plan.arm64) },
    Step { name: "fuzz", run: |plan| fuzz::run(plan.fuzz_time, &plan.fuzz_only) },
    Step { name: "python", run: |_| python_package::run() },
    Step { name: "apart", run: |_| apart::run() },
    Step { name: "vehicles", run: |_| vehicles::run() },
    Step { name: "rejoin", run: |_| rejoin::run() },
    Step { name: "bench", run: |_| bench::quick() },
    Step { name: "http", run: |_| http::run() },
    Step { name: "zenoh", run: |_| zenoh::run() },
    Step { name: "miri", run: |_| miri::run() },
];

/// Steps that are left to the night where they would not end in time, and the minutes that they take on two slow processors.
const IF_TIME_ALLOWS: &[(&str, u64)] = &[
    ("package", 3),
    ("kill", 3),
    ("soak", 1),
    ("tutorial", 4),
    ("c", 3),
    ("arm64", 5),
    ("fuzz", 5),
    ("python", 5),
];

/// Of those the ones that take turns: each day another one comes first, so that each runs on some day.
const IN_TURN: &[&str] = &["tutorial", "c", "arm64", "fuzz", "python"];

/// When all steps should have ended, in seconds since 1970: `.ci/run` says so.
const ENDS: &str = "PUNCTUAL_CI_ENDS";

/// Seconds that `cargo test` took, with all that it had to build: `.ci/run` says so.
const TESTS_TOOK: &str = "PUNCTUAL_CI_TESTS_TOOK";
/// Seconds that it takes on the processors on which the steps take as long as their table says.
const TESTS_TAKE: u64 = 15 * 60;

/// Steps that only a night has time for.
const NIGHTLY: &[&str] = &["apart", "vehicles", "rejoin", "bench", "http", "zenoh", "miri"];

pub(crate) fn all() -> Vec<Step> {
    STEPS.to_vec()
}

pub(crate) fn usual() -> Vec<Step> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    usual_on(now.as_secs() / (24 * 60 * 60))
}

/// The same on a day since 1970.
fn usual_on(day: u64) -> Vec<Step> {
    let usual = STEPS.iter().filter(|step| !NIGHTLY.contains(&step.name)).copied();
    let (mut in_turn, mut steps): (Vec<Step>, Vec<Step>) =
        usual.partition(|step| IN_TURN.contains(&step.name));
    in_turn.rotate_left((day % IN_TURN.len() as u64) as usize);
    steps.append(&mut in_turn);
    steps
}

pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// The step with this name.
pub(crate) fn named(name: &str) -> Result<Step, String> {
    STEPS.iter().find(|step| step.name == name).copied().ok_or_else(|| format!("no step {name}"))
}

/// A task that is one step.
pub(crate) fn one(name: &str) -> Vec<Step> {
    STEPS.iter().filter(|step| step.name == name).copied().collect()
}

/// Runs every step, regardless of the outcome of those before it.
pub(crate) fn run(plan: &Plan) -> ExitCode {
    std::thread::scope(|scope| {
        scope.spawn(|| release::build_ahead(plan.steps.iter().map(|step| step.name)));
        run_all(plan)
    })
}

fn run_all(plan: &Plan) -> ExitCode {
    let mut done = Vec::new();
    for step in &plan.steps {
        say!("=== {} ===", step.name);
        let started = Instant::now();
        let outcome = match lacking_time(step.name, minutes_left(), said(TESTS_TOOK)) {
            Some(reason) => Outcome::Skipped(reason),
            None => (step.run)(plan),
        };
        let duration = started.elapsed();
        say!("=== {}: {outcome} ({:.1} s) ===\n", step.name, duration.as_secs_f64());
        done.push((step.name, duration, outcome));
    }
    for (name, duration, outcome) in &done {
        say!("{name:<8} {:>7.1} s  {outcome}", duration.as_secs_f64());
    }
    let outcomes: Vec<&Outcome> = done.iter().map(|(_, _, outcome)| outcome).collect();
    if is_success(&outcomes) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// True if something was checked, and nothing failed.
fn is_success(outcomes: &[&Outcome]) -> bool {
    let has_failed = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_)));
    outcomes.iter().any(|outcome| matches!(outcome, Outcome::Passed | Outcome::Partly(_))) && !has_failed
}

/// A number of seconds from `.ci/run`.
fn said(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Minutes until all should have ended; `None` where nobody waits.
fn minutes_left() -> Option<u64> {
    let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(said(ENDS)?);
    Some(ends.duration_since(SystemTime::now()).unwrap_or_default().as_secs() / 60)
}

/// Why a step is not begun. A machine on which the tests took longer than usual takes longer for every step.
fn lacking_time(step: &str, left: Option<u64>, tests_took: Option<u64>) -> Option<String> {
    let (_, usual) = IF_TIME_ALLOWS.iter().find(|(name, _)| *name == step)?;
    let takes = (usual * tests_took.unwrap_or(0).max(TESTS_TAKE)).div_ceil(TESTS_TAKE);
    let left = left.filter(|left| *left < takes)?;
    Some(format!("it may take {takes} minutes, and {left} are left: `cargo xtask ci --only {step}`"))
}

fn fmt(_: &Plan) -> Outcome {
    let main = Run::cargo(&["fmt", "--all", "--", "--check"]).status();
    let apart = ["fuzz", "examples/late", "examples/http", "peers", "bindings/python", "bridges/zenoh"].map(
        |folder| {
            let manifest = format!("{folder}/Cargo.toml");
            Run::cargo(&["fmt", "--manifest-path", &manifest, "--", "--check"]).status()
        },
    );
    Outcome::of(apart.into_iter().fold(main, Result::and))
}

fn clippy(_: &Plan) -> Outcome {
    let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    Outcome::of(Run::cargo(&arguments).status())
}

fn docs(_: &Plan) -> Outcome {
    // Parts that the command leaves out are documented too.
    let doc =
        Run::cargo(&["doc", "--no-deps", "--workspace", "--quiet", "--features", "punctual/group-file"]);
    Outcome::of(doc.env("RUSTDOCFLAGS", "-D warnings").status())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: on each day all steps have their turn, and on each another one of those comes first for which time may lack.
    #[test]
    fn steps_take_turns() {
        let days: Vec<Vec<&str>> =
            (0..5).map(|day| usual_on(day).iter().map(|step| step.name).collect()).collect();
        for steps in &days {
            assert_eq!(steps.len(), STEPS.len() - NIGHTLY.len());
            assert_eq!(steps[..4], days[0][..4], "the steps that every change needs come first");
        }
        let first = days.iter().map(|steps| steps[steps.len() - IN_TURN.len()]);
        assert_eq!(first.collect::<std::collections::BTreeSet<_>>().len(), IN_TURN.len());
    }

    /// Goal: where no step ran nothing was checked, which is no success; beside one that ran, some may be skipped.
    #[test]
    fn nothing_checked_is_no_success() {
        let skipped = || Outcome::Skipped("no such tool here".to_owned());
        let failed = || Outcome::Failed("wrong".to_owned());
        assert!(is_success(&[&Outcome::Passed, &skipped()]));
        assert!(is_success(&[&Outcome::Partly("some".to_owned())]));
        assert!(!is_success(&[&Outcome::Passed, &failed()]));
        assert!(!is_success(&[&skipped(), &skipped()]), "nothing was checked");
    }

    /// Goal: no step runs into the ceiling, none is left out where nobody waits, and what every change needs always runs.
    #[test]
    fn steps_are_left_out_for_want_of_time() {
        assert_eq!(lacking_time("fuzz", None, None), None);
        assert_eq!(lacking_time("fuzz", Some(5), None), None);
        assert!(lacking_time("fuzz", Some(4), None).unwrap().contains("4 are left"));
        assert_eq!(lacking_time("clippy", Some(0), None), None);
        // Half as fast as usual, and twice: code that was built before is built in no time, and the steps are not.
        assert!(lacking_time("fuzz", Some(9), Some(2 * TESTS_TAKE)).unwrap().contains("take 10 minutes"));
        assert_eq!(lacking_time("fuzz", Some(10), Some(2 * TESTS_TAKE)), None);
        assert!(lacking_time("fuzz", Some(4), Some(TESTS_TAKE / 2)).is_some());
        for (name, _) in IF_TIME_ALLOWS {
            assert!(STEPS.iter().any(|step| step.name == *name) && !NIGHTLY.contains(name), "{name}");
        }
    }
}
