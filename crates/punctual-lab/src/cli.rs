//! The command line: `docs/cli.md` is its contract.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::command;
use crate::report::text::Screen;
use crate::sample::Load;

/// Measures how long messages take on this machine, says where the time goes and what to use.
#[derive(Debug, Parser)]
#[command(name = "punctual", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Without a verb it is punctual survey, with its options. Alone it first lists what else there is to ask."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    survey: SurveyArguments,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure every route and way of waiting of this machine, recommend, report (a minute)
    Survey(SurveyArguments),
    /// Run one experiment
    Run(command::RunArguments),
    /// Go through every order of events in a model
    Sim(command::SimArguments),
    /// Answer measuring packets until Ctrl-C, for a client elsewhere
    Echo(command::EchoArguments),
    /// Keep time on a bus and answer until Ctrl-C, for run oneway elsewhere
    Node(command::NodeArguments),
    /// Take what another tool measured into a run of ours
    Import(command::ImportArguments),
    /// Compare runs: ratios with intervals, per quantile, max and stalls per minute
    Compare(CompareArguments),
    /// Compare identical runs with each other: how often does compare err here?
    #[command(hide = true)]
    CompareCalibrate {
        /// At least four runs of the same thing, or a folder of them
        runs: String,
    },
    /// Write the page of a run again, from its store
    Report(ReportArguments),
    /// Show the live counters of this user's nodes on this host, while there are any
    Stat(StatArguments),
    /// Show the facts that make numbers comparable, and what this process can use here
    Host(HostArguments),
    /// Print what a shell needs to complete this command
    Completions(command::CompletionsArguments),
    /// Write the pages of the manual
    Man(command::ManArguments),
    /// The other end of a measurement; started by the command itself
    #[command(hide = true)]
    Respond,
    /// The other end of run peel; started by the command itself
    #[command(hide = true)]
    PeelRespond,
    /// A fresh process of run peel; started by the command itself
    #[command(hide = true)]
    PeelStart,
    /// The reader of run wakeup in a process of its own; started by the command itself
    #[command(hide = true)]
    WakeupReader,
    /// An end of run wakeup --soak; started by the command itself
    #[command(hide = true)]
    SoakEnd,
    /// A process of run vehicles; started by the command itself
    #[command(hide = true)]
    Vehicle,
}

/// Options of everything that measures.
#[derive(Debug, Default, Args)]
pub struct Common {
    /// Directory of the run, new or empty [default: runs/TIME-EXPERIMENT/]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the summary as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Time for all trials together, such as 30s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Most messages of one trial
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub count: Option<u64>,
    /// Only this idle gap (closed load) or period (open load), such as 0, 100us, 1ms
    #[arg(long, value_name = "TIME", value_parser = gap)]
    pub gap: Option<Duration>,
    /// Only this load
    #[arg(long, value_enum)]
    pub load: Option<LoadArgument>,
    /// Repeats whatever is random
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Leave nothing out: print every figure of every cell too
    #[arg(long)]
    pub all: bool,
    /// No progress, no table
    #[arg(long)]
    pub quiet: bool,
}

/// [`Load`] as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LoadArgument {
    /// The next message waits for the reply
    Closed,
    /// Message k is due at its time, whatever is outstanding
    Open,
}

impl From<LoadArgument> for Load {
    fn from(load: LoadArgument) -> Self {
        match load {
            LoadArgument::Closed => Self::Closed,
            LoadArgument::Open => Self::Open,
        }
    }
}

/// Options of the survey.
#[derive(Debug, Default, Args)]
pub struct SurveyArguments {
    /// What all that measure have in common
    #[command(flatten)]
    pub common: Common,
    /// Messages of 64 B only, in about 15 s
    #[arg(long)]
    pub quick: bool,
    /// Only routes whose name contains this, such as shared/ or /spin
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
}

/// Options of the comparison.
#[derive(Debug, Args)]
pub struct CompareArguments {
    /// What to compare with: a run, several between commas, or a folder of runs
    pub a: String,
    /// What is compared: the same
    pub b: String,
    /// Make the runs first: A and B are commands that measure, run in turn
    #[arg(long)]
    pub interleave: bool,
    /// Pairs of runs to be made, 5 to 1000 [default: as many as find 10 % more of the median, at most 40]
    #[arg(long, value_name = "N", requires = "interleave", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(5..=1_000))]
    pub pairs: Option<usize>,
    /// Directory of the runs that are made [default: runs/TIME-compare/]
    #[arg(long, value_name = "DIR", requires = "interleave")]
    pub out: Option<PathBuf>,
    /// Other runs of this host, for how far runs lie apart [default: beside A and B]
    #[arg(long, value_name = "DIR", conflicts_with = "interleave")]
    pub history: Vec<PathBuf>,
    /// Write the comparison as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Options of the report.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The run
    pub run: PathBuf,
    /// Where to write the page [default: report.html in the run]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Instead: print what the run printed
    #[arg(long, conflicts_with = "out")]
    pub text: bool,
}

/// Options of the live counters.
#[derive(Debug, Args)]
pub struct StatArguments {
    /// Show once and end
    #[arg(long)]
    pub once: bool,
    /// As JSON, an object for each look
    #[arg(long)]
    pub json: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub every: Duration,
}

/// Options of the host's facts.
#[derive(Debug, Args)]
pub struct HostArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Longest duration that an option takes.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// A time with its unit; zero needs none.
fn time(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text)
        .map_err(|_| "a number with its unit (ns, us, ms, s, m, h) is needed, such as 500ms".to_owned())
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = time(text)?;
    if duration.is_zero() || duration > DURATION_MAX {
        return Err("from 1ns to 24h".to_owned());
    }
    Ok(duration)
}

pub(crate) fn gap(text: &str) -> Result<Duration, String> {
    let gap = time(text)?;
    if gap > Duration::from_secs(10) {
        return Err("from 0 to 10s".to_owned());
    }
    Ok(gap)
}

/// Why the command ended, as the contract's exit codes say it.
#[derive(Debug)]
pub enum Failure {
    /// Exit 1: done, but a promise did not hold.
    Promise(String),
    /// Exit 2: the call is off.
    Usage(String),
    /// Exit 3: the machine cannot; the text says what is missing and what to do.
    Machine(String),
}

impl Failure {
    fn report(&self) -> ExitCode {
        let (text, code) = match self {
            Self::Promise(text) => (text, 1),
            Self::Usage(text) => (text, 2),
            Self::Machine(text) => (text, 3),
        };
        eprintln!("punctual: {text}");
        ExitCode::from(code)
    }
}

/// Columns of help on a wide terminal.
const HELP_WIDTH_MAX: usize = 100;

/// The command without what it starts itself: what people complete, and read about.
fn public() -> Command {
    let whole = Arguments::command();
    let version = env!("CARGO_PKG_VERSION");
    let about = whole.get_about().cloned().unwrap_or_default();
    let command = Command::new("punctual").version(version).about(about).args(whole.get_arguments().cloned());
    command.subcommands(whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned())
}

/// The verb that was called, and the verbs below it: what its help is asked for by, and what it may be followed by.
fn called() -> (String, Vec<String>) {
    let (mut command, mut words) = (public(), vec!["punctual".to_owned()]);
    for word in std::env::args_os().skip(1) {
        let Some(verb) = word.to_str().and_then(|word| command.find_subcommand(word)) else { break };
        command = verb.clone();
        words.push(command.get_name().to_owned());
    }
    (words.join(" "), command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect())
}

/// One line that names the option, the value and the range, and whose help says more.
fn misused(error: &clap::Error) -> Failure {
    let (verb, below) = called();
    let text = error.to_string();
    let said = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = said.flat_map(str::split_whitespace).collect();
    let line = words.join(" ");
    let line = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("{verb} needs one of: {}", below.join(", "))
        }
        ErrorKind::InvalidSubcommand => {
            let line = line.trim_start_matches("error: unrecognized subcommand");
            format!("{verb} knows no{line}, only: {}", below.join(", "))
        }
        _ => line.trim_start_matches("error: ").to_owned(),
    };
    Failure::Usage(format!("{line} (see {verb} --help)"))
}

/// Runs the command; the exit code is the contract of `docs/cli.md`.
pub fn main() -> ExitCode {
    punctual_machine::signal::ignore_file_size_limit();
    let alone = std::env::args_os().len() <= 1;
    if alone && let Err(failure) = command::tasks() {
        return failure.report();
    }
    let width = Screen::stdout().width.min(HELP_WIDTH_MAX);
    let command = Arguments::command().term_width(width);
    let parsed = command.try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return misused(&error).report(),
        Err(help) => {
            return finish(command::print(&help.to_string()));
        }
    };
    let done = match arguments.verb.unwrap_or(Verb::Survey(arguments.survey)) {
        Verb::Survey(survey) => enough_descriptors().and_then(|()| command::survey(&survey)),
        Verb::Run(run) => enough_descriptors().and_then(|()| command::run(&run)),
        Verb::Sim(sim) => command::sim(&sim),
        Verb::Echo(echo) => command::echo(&echo),
        Verb::Node(node) => command::node(&node),
        Verb::Import(import) => command::import(&import),
        Verb::Compare(compare) => command::compare(&compare),
        Verb::CompareCalibrate { runs } => command::calibrate(&runs),
        Verb::Report(report) => command::report(&report),
        Verb::Stat(stat) => command::stat(&stat),
        Verb::Host(host) => command::host(&host),
        Verb::Completions(wanted) => command::completions(&wanted, public()),
        Verb::Man(wanted) => command::man(&wanted, public()),
        Verb::Respond => command::respond(),
        Verb::PeelRespond => command::peel_respond(),
        Verb::PeelStart => command::peel_start(),
        Verb::WakeupReader => command::wakeup_reader(),
        Verb::SoakEnd => command::soak_end(),
        Verb::Vehicle => command::vehicle(),
    };
    finish(done)
}

/// Descriptors of one process of a measurement, with room to spare: nodes, ways of waiting, pipes to other processes.
const DESCRIPTORS_MIN: u64 = 64;

/// A node that may open nothing more never sees who joins its bus, and what is sent to it would be called lost.
fn enough_descriptors() -> Result<(), Failure> {
    let most = punctual_machine::process::raise_descriptor_limit();
    if most >= DESCRIPTORS_MIN {
        return Ok(());
    }
    Err(Failure::Machine(format!(
        "this process may have {most} files open, and needs {DESCRIPTORS_MIN} to measure: ulimit -n {DESCRIPTORS_MIN}"
    )))
}

fn finish(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(time("0"), Ok(Duration::ZERO));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("1.5µs"), Ok(Duration::from_nanos(1500)));
        for wrong in ["", "5", "ms", "-1s", "1e9s", "..s", "99999999999999999999s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert!(duration("0s").is_err());
        assert!(gap("11s").is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
