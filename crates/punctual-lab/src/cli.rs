//! The command line: `docs/cli.md` is its contract.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::command;
use crate::error::Failure;
use crate::report::text::Screen;
use crate::survey::SurveyOptions;

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
    survey: SurveyOptions,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure every route and way of waiting of this machine, recommend, report (a minute)
    Survey(SurveyOptions),
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
    Compare(command::CompareArguments),
    /// Compare identical runs with each other: how often does compare err here?
    #[command(hide = true)]
    CompareCalibrate {
        /// At least four runs of the same thing, or a folder of them
        runs: String,
    },
    /// Write the page of a run again, from its store
    Report(command::ReportArguments),
    /// Say what was late in a run, where, why, and what to try
    Explain(command::ExplainArguments),
    /// Record the kernel's trace around late messages of programs that may not (root)
    Watch(command::WatchArguments),
    /// Measure a run again with a fix and without, in turn, and say whether it helped
    Verify(command::VerifyArguments),
    /// Write down everything that is said on a bus, without disturbing anybody
    Record(command::RecordArguments),
    /// Say again what was recorded, at the instants of then
    Replay(command::ReplayArguments),
    /// Show the live counters of this user's nodes on this host, while there are any
    Stat(command::StatArguments),
    /// Show the facts that make numbers comparable, and what this process can use here
    Host(command::HostArguments),
    /// Print what a shell needs to complete this command
    Completions(command::CompletionsArguments),
    /// Write the pages of the manual
    Man(command::ManArguments),
    /// Another process of a measurement; started by the command itself
    #[command(hide = true)]
    Worker {
        /// Its role
        role: command::Role,
    },
}

/// Columns of help on a wide terminal.
const HELP_WIDTH_MAX: usize = 100;

/// The command without the verbs that it starts itself: the part that people complete, and read about.
fn public() -> Command {
    let whole = Arguments::command();
    let version = env!("CARGO_PKG_VERSION");
    let about = whole.get_about().cloned().unwrap_or_default();
    let command = Command::new("punctual").version(version).about(about).args(whole.get_arguments().cloned());
    command.subcommands(whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned())
}

/// The verb that was called, for the request of its help, and the verbs below it, which may follow it.
fn called() -> (String, Vec<String>) {
    let (mut command, mut words) = (public(), vec!["punctual".to_owned()]);
    for word in std::env::args_os().skip(1) {
        let Some(verb) = word.to_str().and_then(|word| command.find_subcommand(word)) else { break };
        command = verb.clone();
        words.push(command.get_name().to_owned());
    }
    (words.join(" "), command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect())
}

/// A word that looks like an option and is a negative number, or a negative time.
fn is_negative(word: &OsStr) -> bool {
    let first = word.as_encoded_bytes().strip_prefix(b"-").and_then(|rest| rest.first());
    first.is_some_and(|first| first.is_ascii_digit() || *first == b'.')
}

/// The command, whose options take the negative values that stand behind them: they are refused as values, with what is allowed.
fn taking_negatives(command: Command, words: &[OsString]) -> Command {
    let before = words.windows(2).filter(|two| is_negative(&two[1]));
    let options: Vec<&str> = before.filter_map(|two| two[0].to_str()?.strip_prefix("--")).collect();
    if options.is_empty() { command } else { with_negatives(command, &options) }
}

fn with_negatives(command: Command, options: &[&str]) -> Command {
    let is_one = |arg: &Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let mut names = arg.get_long().into_iter().chain(aliases);
        names.any(|name| options.contains(&name))
    };
    let taking = |arg: Arg| match is_one(&arg) && arg.get_action().takes_values() {
        true => arg.allow_hyphen_values(true),
        false => arg,
    };
    command.mut_args(taking).mut_subcommands(|verb| with_negatives(verb, options))
}

const TOO_LARGE: &str = "number too large to fit in target type";

/// The standard library's errors for text that is no number of its type, which name no range.
const NO_NUMBER: [&str; 4] = [
    "invalid digit found in string",
    "cannot parse integer from empty string",
    TOO_LARGE,
    "number too small to fit in target type",
];

/// A number that hardly any option takes.
const FAR_TOO_LARGE: &str = "9223372036854775807";

/// Range of an option of which a value was refused: its parser states it for a number that is far too large.
fn range_of(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let value = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let option = value(ContextKind::InvalidArg)?.split(' ').next()?;
    let refused = value(ContextKind::InvalidValue)?;
    let (alone, joined) = ([OsStr::new(option), OsStr::new(refused)], format!("{option}={refused}"));
    let mut words = words.to_vec();
    if let Some(place) = words.windows(2).position(|two| two == alone) {
        words[place + 1] = FAR_TOO_LARGE.into();
    } else {
        let place = words.iter().position(|word| *word == *joined)?;
        words[place] = format!("{option}={FAR_TOO_LARGE}").into();
    }
    let error = taking_negatives(Arguments::command(), &words).try_get_matches_from(words).err()?;
    let text = error.source()?.to_string();
    text.split_once(" is not in ").map(|(_, range)| format!("{refused} is not in {range}"))
}

/// A verb that is not there, one that looks like it, and all that are.
fn unknown_verb(error: &clap::Error, verb: &str, below: &[String]) -> String {
    let words = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let unknown = words(ContextKind::InvalidSubcommand).concat();
    let meant: Vec<String> =
        words(ContextKind::SuggestedSubcommand).iter().map(|verb| format!("'{verb}'")).collect();
    let meant = match meant.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", meant.join(" or ")),
    };
    let stop = if meant.is_empty() { "." } else { "" };
    format!("{verb} knows no '{unknown}'{meant}{stop} It knows {}", below.join(", "))
}

/// One line that names the option, the value and the range, and whose help says more.
fn misused(error: &clap::Error, words: &[OsString]) -> Failure {
    let (verb, below) = called();
    let text = error.to_string();
    let said = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let line = said.flat_map(str::split_whitespace).collect::<Vec<&str>>().join(" ");
    let line = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("{verb} needs one of: {}", below.join(", "))
        }
        ErrorKind::InvalidSubcommand => unknown_verb(error, &verb, &below),
        _ => line.trim_start_matches("error: ").to_owned(),
    };
    let no_number = NO_NUMBER.iter().find_map(|text| line.strip_suffix(text));
    let line = match no_number {
        Some(start) => {
            let otherwise = match line.ends_with(TOO_LARGE) {
                true => "the number is too large",
                false => "a whole number is needed, 0 or more",
            };
            let range = range_of(error, words);
            format!("{start}{}", range.as_deref().unwrap_or(otherwise))
        }
        None => line,
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
    let words: Vec<OsString> = std::env::args_os().collect();
    let command = taking_negatives(Arguments::command(), &words).term_width(width);
    let parsed =
        command.try_get_matches_from(&words).and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return misused(&error, &words).report(),
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
        Verb::Explain(explain) => command::explain(&explain),
        Verb::Watch(watch) => command::watch(&watch),
        Verb::Verify(verify) => command::verify(&verify),
        Verb::Record(record) => command::record(&record),
        Verb::Replay(replay) => command::replay(&replay),
        Verb::Stat(stat) => command::stat(&stat),
        Verb::Host(host) => command::host(&host),
        Verb::Completions(wanted) => command::completions(&wanted, public()),
        Verb::Man(wanted) => command::man(&wanted, public()),
        Verb::Worker { role } => command::worker(role),
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
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
