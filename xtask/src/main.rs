//! The checks that CI runs: `cargo xtask ci`. One file per check; `ci.rs` has the table.

#[macro_use]
mod output;

mod apart;
mod arm64;
mod bench;
mod c_library;
mod ci;
mod command;
mod deny;
mod fuzz;
mod http;
mod kill;
mod loom;
mod miri;
mod package;
mod python_package;
mod rejoin;
mod release;
mod smoke;
mod soak;
mod step;
mod tidy;
mod tutorial;
mod vehicles;
mod workspace;
mod zenoh;

use std::process::ExitCode;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};

use ci::Plan;
use step::{Outcome, Step};

/// Fuzzing time per target: for CI, and for a night.
const FUZZ_SHORT: Duration = Duration::from_secs(5);
const FUZZ_LONG: Duration = Duration::from_secs(600);

/// The checks of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = format!("Steps: {}", ci::names().join(", ")))]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// The steps that CI runs
    Ci(Chosen),
    /// The same, ten minutes of fuzzing per target, a thousand kills, 50 million wake-ups, and what else only a night has time for
    /// (CONTRIBUTING.md)
    Nightly(Chosen),
    /// The rules no compiler checks
    Tidy,
    /// The model checker, and the proof that it can fail
    Loom,
    /// A kill at every labelled store, and some at random instants
    Kill {
        /// Number of kills at random instants
        #[arg(long, value_name = "N", value_parser = count())]
        random: Option<u32>,
    },
    /// Wake-ups with delays at every step of the handshake
    Soak {
        /// Number of wake-ups
        #[arg(long, value_name = "N", value_parser = count())]
        messages: Option<u32>,
    },
    /// All library tests for 64-bit ARM, under emulation
    Arm64,
    /// Builds and runs the fuzz targets
    Fuzz {
        /// Seconds for each target
        #[arg(long, value_name = "N", value_parser = seconds())]
        seconds: Option<u64>,
        /// These targets only
        #[arg(long, value_name = "TARGET", value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Every promise about speed: floors and peers in one run
    Bench(bench::Options),
    /// Builds the library for C and C++ and installs it: header, libraries, pkg-config file
    InstallC(c_library::Options),
}

/// The steps to run, and how long.
#[derive(Args, Debug)]
struct Chosen {
    /// These steps only
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = ci::named)]
    only: Vec<Step>,
    /// Seconds of fuzzing for each target
    #[arg(long, value_name = "N", value_parser = seconds())]
    fuzz_seconds: Option<u64>,
}

fn seconds() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=86_400)
}

fn count() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=100_000)
}

fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Bench(options) => bench::run(&options),
        Task::InstallC(options) => match c_library::install(&options) {
            Outcome::Passed => ExitCode::SUCCESS,
            other => {
                eprintln!("{other}");
                ExitCode::FAILURE
            }
        },
        task => ci::run(&plan(task)),
    }
}

/// Plan of a task.
fn plan(task: Task) -> Plan {
    let mut plan = Plan {
        steps: ci::usual(),
        fuzz_time: FUZZ_SHORT,
        preemptions: loom::SHORT,
        kills: kill::SHORT,
        soak: soak::SHORT,
        arm64: arm64::SHORT,
        fuzz_only: Vec::new(),
    };
    match task {
        Task::Ci(chosen) => choose(&mut plan, chosen),
        Task::Nightly(chosen) => {
            plan.steps = ci::all();
            plan.fuzz_time = FUZZ_LONG;
            (plan.preemptions, plan.kills) = (loom::LONG, kill::LONG);
            (plan.soak, plan.arm64) = (soak::LONG, arm64::LONG);
            choose(&mut plan, chosen);
        }
        Task::Tidy => plan.steps = ci::one("tidy"),
        Task::Loom => plan.steps = ci::one("loom"),
        Task::Kill { random } => {
            plan.steps = ci::one("kill");
            plan.kills.random = random.unwrap_or(plan.kills.random);
        }
        Task::Soak { messages } => {
            plan.steps = ci::one("soak");
            plan.soak = messages.map_or(plan.soak, u64::from);
        }
        Task::Arm64 => (plan.steps, plan.arm64) = (ci::one("arm64"), arm64::LONG),
        Task::Fuzz { seconds, only } => {
            plan.steps = ci::one("fuzz");
            plan.fuzz_time = seconds.map_or(plan.fuzz_time, Duration::from_secs);
            plan.fuzz_only = only;
        }
        Task::Bench(_) => plan.steps = ci::one("bench"),
        Task::InstallC(_) => plan.steps = ci::one("c"),
    }
    plan
}

fn choose(plan: &mut Plan, chosen: Chosen) {
    if !chosen.only.is_empty() {
        plan.steps = chosen.only;
    }
    plan.fuzz_time = chosen.fuzz_seconds.map_or(plan.fuzz_time, Duration::from_secs);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(arguments: &str) -> Result<Plan, String> {
        let words = std::iter::once("cargo xtask").chain(arguments.split_whitespace());
        Arguments::try_parse_from(words)
            .map(|arguments| plan(arguments.task))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_arguments_are_well_formed() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn arguments_choose_the_steps() {
        let names = |plan: Plan| plan.steps.iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(names(planned("ci --only tidy,loom").unwrap()), ["tidy", "loom"]);
        for task in ["tidy", "loom", "kill", "soak", "arm64", "fuzz"] {
            assert_eq!(names(planned(task).unwrap()), [task]);
        }
        assert_eq!(planned("nightly").unwrap().fuzz_time, FUZZ_LONG);
        assert_eq!(planned("nightly").unwrap().kills, kill::LONG);
        assert_eq!(planned("kill --random 7").unwrap().kills.random, 7);
        assert_eq!(planned("fuzz --seconds 3").unwrap().fuzz_time, Duration::from_secs(3));
        assert_eq!(planned("fuzz --only frame,ring").unwrap().fuzz_only, ["frame", "ring"]);
    }

    #[test]
    fn bad_arguments_are_named() {
        assert!(planned("").unwrap_err().contains("Usage"));
        assert!(planned("ci --only tidy,nonsense").unwrap_err().contains("nonsense"));
        assert!(planned("fuzz --seconds 0").unwrap_err().contains("not in 1..=86400"));
        assert!(planned("fuzz --seconds").unwrap_err().contains("value is required"));
        assert!(planned("tidy --fast yes").unwrap_err().contains("--fast"));
    }
}
