//! `punctual run server`: threads against tasks in classes.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::ArgPredicate;
use punctual::runtime::RuntimeOptions;
use punctual_machine::cpu::allowed;
use punctual_machine::signal::count_continuations;
use punctual_proto::classes::{Policy, Scheduler};

use super::measure;
use super::progress::progress;
use crate::error::Failure;
use crate::run::{Common, LoadArgument, choose_cpus, hidden};
use crate::scheduling::Urgency;
use crate::server::experiment::{ServerSettings, Wanted};
use crate::server::host::TaskSettings;
use crate::server::model::{LineLock, Peer, ServerModel};
use crate::server::peer;
use crate::units::duration;

/// Options of the server.
#[derive(Debug, Args)]
#[command(mut_args(hidden(&["count", "gap"])))]
#[command(mut_arg("duration", |arg| arg.help("Time of one trial, such as 5s, 500ms [default: 5s, with --quick 1s]")))]
pub struct ServerArguments {
    #[command(flatten)]
    common: Common,
    /// Models of the server [default: all, in turn]
    #[arg(long, value_enum, value_name = "MODEL", value_delimiter = ',')]
    model: Vec<ServerModel>,
    /// Beside these, in turn
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    against: Vec<Peer>,
    /// The program that serves on clockworker and glommio
    #[arg(long, value_name = "PROGRAM", default_value = peer::PROGRAM)]
    peer_server: PathBuf,
    /// Connections, one trial for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,16,64,128", default_value_if("quick", ArgPredicate::IsPresent, "4,32"), value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: Vec<u16>,
    /// Sides of the matrix that a request holds
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,20", default_value_if("quick", ArgPredicate::IsPresent, "20"), value_parser = clap::value_parser!(u8).range(1..=64))]
    matrix: Vec<u8>,
    /// Classes of requests; connections belong to one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    classes: u8,
    /// Workers of models with tasks, one trial for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u8).range(1..=32))]
    workers: Vec<u8>,
    /// Processors that the server may use, one trial for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u8).range(1..=64))]
    processors: Vec<u8>,
    /// Additional workers that serve class 0 alone, one trial of each model with classes for each number
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u8).range(0..=16))]
    lanes: Vec<u8>,
    /// Urgency of the threads of lanes: other, nice:N, rr:N
    #[arg(long, value_name = "CLASS", default_value = "other")]
    lane_sched: Urgency,
    /// Urgency of the other workers of the model "classes": other, nice:N, rr:N
    #[arg(long, value_name = "CLASS", default_value = "other")]
    worker_sched: Urgency,
    /// Least share of each class but the first, in thousandths of the time; 7=150: that of class 7 [default: 20]
    #[arg(long, value_name = "[CLASS=]PERMILLE", value_delimiter = ',')]
    floor: Vec<Floor>,
    /// Lock that the model "pollers" takes before it touches its line, one trial for each
    #[arg(long, value_enum, value_name = "LOCK", value_delimiter = ',', default_value = "mutex")]
    lock: Vec<LineLock>,
    /// Each trial once more, beside a task of the last class whose polls last so long, one after the other
    #[arg(long, value_name = "TIME", value_parser = duration)]
    hog: Option<Duration>,
    /// Classes refuse what they cannot serve in time
    #[arg(long)]
    shed: bool,
    /// Time between reply and next request (closed load) [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    think: Option<Duration>,
    /// Closed load as the original's: all connections begin at once; a latency ends with the first bytes of the reply; requests open at
    /// the end are waited for and count
    #[arg(long, conflicts_with_all = ["rho", "poisson"])]
    original: bool,
    /// Open load, as a part of the server's capacity, one trial for each; the capacity is measured first [default: 0.8]
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = percent)]
    rho: Vec<u32>,
    /// Open load at random instants (Poisson)
    #[arg(long)]
    poisson: bool,
    /// The work as fast as this processor does it, not as slow as the original's
    #[arg(long)]
    native: bool,
    /// Rounds of all trials, in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Two numbers of connections, one matrix, a second for each trial
    #[arg(long)]
    quick: bool,
    /// Record which thread each processor ran, for punctual explain (root)
    #[arg(long)]
    trace: bool,
}

/// A part of the whole, in hundredths.
fn percent(text: &str) -> Result<u32, String> {
    let part: Option<f64> = text.parse().ok().filter(|part| (0.01..=5.0).contains(part));
    part.map(|part| (part * 100.0).round() as u32).ok_or_else(|| "0.01 to 5: 0.8 is four fifths".to_owned())
}

/// All of the time, in thousandths.
const WHOLE: u32 = 1000;

/// Share promised to one class, or to each but the first.
#[derive(Clone, Copy, Debug)]
struct Floor {
    class: Option<usize>,
    permille: u32,
}

impl FromStr for Floor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let told = || "20 for each class but the first, 7=150 for class 7; 0 to 1000 thousandths".to_owned();
        let (class, permille) = match text.split_once('=') {
            Some((class, permille)) => (Some(class.parse().map_err(|_| told())?), permille),
            None => (None, text),
        };
        let permille = permille.parse().ok().filter(|permille| *permille <= WHOLE);
        Ok(Self { class, permille: permille.ok_or_else(told)? })
    }
}

/// The floor of each class: the runtime's own, if nothing is asked for. A class's own floor replaces the common one.
fn floors(asked: &[Floor]) -> Result<Vec<u32>, Failure> {
    let mut classes = RuntimeOptions::default().classes;
    // The most important class comes first anyway: a share promised to it would be lacking to the others.
    for Floor { permille, .. } in asked.iter().filter(|floor| floor.class.is_none()) {
        classes[1..].iter_mut().for_each(|class| class.floor_permille = *permille);
    }
    let last = classes.len() - 1;
    for (class, permille) in asked.iter().filter_map(|floor| Some((floor.class?, floor.permille))) {
        let options = classes.get_mut(class);
        let no_class = || Failure::Usage(format!("--floor: no class {class}, the last is {last}"));
        options.ok_or_else(no_class)?.floor_permille = permille;
    }
    let sum: u32 = classes.iter().map(|class| class.floor_permille).sum();
    if sum > WHOLE {
        let text = format!("--floor: the floors of all {} classes come to {sum} thousandths", classes.len());
        return Err(Failure::Usage(format!("{text}, and {WHOLE} are the most")));
    }
    // Nothing is served by this one: it knows which floors can be.
    let possible = Scheduler::new(&classes, Policy::Floors, 0);
    possible.map_err(|error| Failure::Usage(format!("--floor: {error}")))?;
    Ok(classes.iter().map(|class| class.floor_permille).collect())
}

/// Hundredths of what the server can do, if nothing else was asked for.
const RHO: u32 = 80;

/// Between reply and next request, if nothing else was asked for.
const THINK: Duration = Duration::from_millis(100);

/// Of one trial, if nothing else was asked for.
const DURATION: Duration = Duration::from_secs(5);
const DURATION_QUICK: Duration = Duration::from_secs(1);

/// Measures, stores, shows.
pub fn server(arguments: &ServerArguments) -> Result<(), Failure> {
    count_continuations()?;
    measure::make(&settings(arguments)?, &arguments.common, &progress(arguments.common.quiet))
}

/// The models that were asked for, and the models of the peers that they are compared with.
fn models(arguments: &ServerArguments) -> Result<Vec<ServerModel>, Failure> {
    let mut models =
        if arguments.model.is_empty() { ServerModel::ALL.to_vec() } else { arguments.model.clone() };
    for peer in arguments.against.iter().map(|peer| peer.model()) {
        if !models.contains(&peer) {
            models.push(peer);
        }
    }
    if models.iter().any(|model| model.is_apart()) {
        peer::look_for(&arguments.peer_server).map_err(Failure::Machine)?;
    }
    Ok(models)
}

fn settings(arguments: &ServerArguments) -> Result<ServerSettings, Failure> {
    let common = &arguments.common;
    if common.gap.is_some() || common.count.is_some() {
        let text = "--gap, --count: a trial lasts --duration, and its load is said by --think or --rho";
        return Err(Failure::Usage(text.to_owned()));
    }
    let says_open = arguments.poisson || !arguments.rho.is_empty();
    if says_open && matches!(common.load, Some(LoadArgument::Closed)) {
        return Err(Failure::Usage("--poisson, --rho: an open load, not --load closed".to_owned()));
    }
    let is_open = says_open || matches!(common.load, Some(LoadArgument::Open));
    if is_open && (arguments.original || arguments.think.is_some()) {
        let text = "--original, --think: a closed load, not --load open, --rho or --poisson";
        return Err(Failure::Usage(text.to_owned()));
    }
    for (option, urgency) in
        [("--lane-sched", arguments.lane_sched), ("--worker-sched", arguments.worker_sched)]
    {
        if !matches!(urgency, Urgency::Other | Urgency::Nice(_) | Urgency::RoundRobin(_)) {
            return Err(Failure::Usage(format!("{option} {urgency}: other, nice:N or rr:N")));
        }
    }
    if let Some(most) = arguments.processors.iter().max().filter(|&&most| usize::from(most) > allowed().len())
    {
        let text = format!("--processors {most}: this process may use {}", allowed().len());
        return Err(Failure::Usage(text));
    }
    let think = arguments.think.unwrap_or(THINK);
    let think_ns = u64::try_from(think.as_nanos()).unwrap_or(u64::MAX / 4);
    let percents = if arguments.rho.is_empty() { vec![RHO] } else { arguments.rho.clone() };
    let open = Wanted::Open { percents, is_random: arguments.poisson };
    let models = models(arguments)?;
    if arguments.lanes.iter().any(|&lanes| lanes > 0) && !models.iter().any(|model| model.has_classes()) {
        let text = "--lanes: of models with classes alone, such as --model classes";
        return Err(Failure::Usage(text.to_owned()));
    }
    let usual = if arguments.quick { DURATION_QUICK } else { DURATION };
    Ok(ServerSettings {
        models,
        connections: arguments.connections.iter().map(|&count| count.into()).collect(),
        matrices: arguments.matrix.iter().map(|&matrix| matrix.into()).collect(),
        classes: arguments.classes.into(),
        workers: arguments.workers.iter().map(|&count| count.into()).collect(),
        processors: arguments.processors.iter().map(|&count| count.into()).collect(),
        lanes: arguments.lanes.iter().map(|&count| count.into()).collect(),
        locks: arguments.lock.clone(),
        tasks: TaskSettings {
            worker_urgency: arguments.worker_sched,
            lane_urgency: arguments.lane_sched,
            sheds: arguments.shed,
            floors_permille: floors(&arguments.floor)?,
        },
        peer_server: arguments.peer_server.clone(),
        hog_ns: arguments.hog.map_or(0, |hog| hog.as_nanos() as u64),
        wanted: if is_open { open } else { Wanted::Closed { think_ns, is_original: arguments.original } },
        duration: common.duration.unwrap_or(usual),
        rounds: arguments.rounds,
        dilates: !arguments.native,
        seed: common.seed,
        cpus: choose_cpus(),
        available: allowed(),
        trace: arguments.trace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Result<Vec<u32>, Failure> {
        let asked: Vec<Floor> = texts.iter().map(|text| text.parse().unwrap()).collect();
        floors(&asked)
    }

    /// Goal: a floor for all leaves the first class alone; one by name counts, wherever it stands.
    #[test]
    fn one_class_is_promised_more_than_the_others() {
        assert_eq!(of(&[]).unwrap(), [20; 8]);
        assert_eq!(of(&["140"]).unwrap(), [20, 140, 140, 140, 140, 140, 140, 140]);
        assert_eq!(of(&["7=150", "100", "0=0"]).unwrap(), [0, 100, 100, 100, 100, 100, 100, 150]);
    }

    #[test]
    fn floors_that_cannot_be_are_refused() {
        for text in ["", "x", "=20", "7=", "-1", "-1=20", "7=1=2", "4294967296", "1001", "7=2000"] {
            assert!(text.parse::<Floor>().is_err(), "{text}");
        }
        let refused = |texts: &[&str], why: &str| {
            let refused = matches!(of(texts), Err(Failure::Usage(text)) if text.contains(why));
            assert!(refused, "{texts:?}");
        };
        refused(&["8=20"], "no class 8, the last is 7");
        refused(&["141"], "1007 thousandths");
        refused(&["7=1000", "1=1"], "1000 are the most");
        of(&["140", "0=20"]).expect("a thousand can be");
    }
}
