//! What CI runs: `cargo xtask ci`. One file per check; `ci.rs` has the table.

mod arm64;
mod bench;
mod ci;
mod command;
mod deny;
mod fuzz;
mod kill;
mod loom;
mod miri;
mod package;
mod release;
mod smoke;
mod soak;
mod step;
mod tidy;
mod tutorial;
mod vehicles;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use ci::Plan;

const USAGE: &str = "\
cargo xtask ci [--only STEP,STEP] [--fuzz-seconds N]   what CI runs
cargo xtask nightly                                    the same, ten minutes of fuzzing per target, a thousand kills,
                                                       10⁸ wake-ups, 220 components, bench --quick, Miri
cargo xtask tidy                                       the rules no compiler checks
cargo xtask loom                                       the model checker, and the proof that it can fail
cargo xtask kill [--random N]                          a kill at every labelled store, and N at random instants
cargo xtask soak [--messages N]                        N wake-ups with delays at every step of the handshake
cargo xtask arm64                                      all library tests for 64-bit ARM, under emulation
cargo xtask fuzz [--seconds N] [--only TARGET,TARGET]  builds and runs the fuzz targets
cargo xtask bench [--quick] [--again] [--out FOLDER]   every promise about speed: floors and peers in one run";

/// Fuzzing time per target: what CI can spare, and what a night can.
const FUZZ_SHORT: Duration = Duration::from_secs(5);
const FUZZ_LONG: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.split_first() {
        Some((command, options)) if command == "bench" => bench::run(options),
        _ => plan(&arguments).map(|plan| ci::run(&plan)),
    };
    match ran {
        Ok(code) => code,
        Err(message) => {
            eprintln!("{message}\n\n{USAGE}\n\nsteps: {}", ci::names().join(", "));
            ExitCode::from(2)
        }
    }
}

/// What the arguments ask for.
fn plan(arguments: &[String]) -> Result<Plan, String> {
    let Some((command, options)) = arguments.split_first() else { return Err("which task?".into()) };
    let mut plan = Plan {
        steps: ci::usual(),
        fuzz_time: FUZZ_SHORT,
        preemptions: loom::SHORT,
        kills: kill::SHORT,
        soak: soak::SHORT,
        arm64: arm64::SHORT,
        fuzz_only: Vec::new(),
    };
    match command.as_str() {
        "ci" => {}
        "nightly" => {
            plan.steps = ci::all();
            plan.fuzz_time = FUZZ_LONG;
            (plan.preemptions, plan.kills) = (loom::LONG, kill::LONG);
            (plan.soak, plan.arm64) = (soak::LONG, arm64::LONG);
        }
        "tidy" | "loom" | "fuzz" | "kill" | "soak" => plan.steps = ci::named(command)?,
        "arm64" => (plan.steps, plan.arm64) = (ci::named(command)?, arm64::LONG),
        other => return Err(format!("no task {other}")),
    }
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or_else(|| format!("{option} needs a value"))?;
        match (command.as_str(), option.as_str()) {
            ("ci" | "nightly", "--only") => plan.steps = ci::named(value)?,
            ("fuzz", "--only") => plan.fuzz_only = value.split(',').map(str::to_owned).collect(),
            ("kill", "--random") => plan.kills.random = count(option, value)?,
            ("soak", "--messages") => plan.soak = count(option, value)?.into(),
            ("ci" | "nightly", "--fuzz-seconds") | ("fuzz", "--seconds") => {
                plan.fuzz_time = seconds(option, value)?;
            }
            _ => return Err(format!("{command} has no option {option}")),
        }
    }
    Ok(plan)
}

fn seconds(option: &str, value: &str) -> Result<Duration, String> {
    match value.parse() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{option}: {value} is not a number of seconds from 1 to 86400")),
    }
}

fn count(option: &str, value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(count @ 1..=100_000) => Ok(count),
        _ => Err(format!("{option}: {value} is not a number from 1 to 100000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(arguments: &str) -> Result<Plan, String> {
        plan(&arguments.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_choose_the_steps() {
        let names = |plan: Plan| plan.steps.iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(names(planned("ci --only tidy,loom").unwrap()), ["tidy", "loom"]);
        assert_eq!(names(planned("fuzz").unwrap()), ["fuzz"]);
        assert_eq!(planned("nightly").unwrap().fuzz_time, FUZZ_LONG);
        assert_eq!(planned("nightly").unwrap().kills, kill::LONG);
        assert_eq!(planned("kill --random 7").unwrap().kills.random, 7);
        assert_eq!(planned("fuzz --seconds 3").unwrap().fuzz_time, Duration::from_secs(3));
    }

    #[test]
    fn bad_arguments_are_named() {
        assert!(planned("").unwrap_err().contains("which"));
        assert!(planned("ci --only tidy,nonsense").unwrap_err().contains("nonsense"));
        assert!(planned("fuzz --seconds 0").unwrap_err().contains("from 1 to"));
        assert!(planned("fuzz --seconds").unwrap_err().contains("needs a value"));
        assert!(planned("tidy --fast yes").unwrap_err().contains("--fast"));
    }
}
