//! The runs that causes are made in: their experiment, their arguments, and their sides.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use punctual_machine::cpu::allowed;

use crate::explain::finding::Explained;

/// An experiment that causes are made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InjectedExperiment {
    /// Round trips over UDP (run response); the only one in which causes are made from inside, too
    Response,
    /// The survey, over shared memory and over UDP in turn
    Survey,
    /// Two vehicles that publish to each other (run vehicles)
    Vehicles,
    /// A TCP server whose stages are threads, and its load (run server)
    Server,
    /// A group of two members, the first of which broadcasts (run broadcast)
    Broadcast,
}

/// Condition of the threads of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// They sleep, of the ordinary class.
    Ordinary,
    /// The same, in a control group: a member of one shares the CPU otherwise than one of none.
    Member,
    /// They spin, the responder in a real-time class.
    Urgent,
}

/// A run to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) experiment: InjectedExperiment,
    pub(super) condition: Condition,
}

/// Messages of a run: as many as there is time for.
const COUNT: &str = "10000000";

/// A responder that would never leave its CPU by itself.
const URGENT: [&str; 8] = ["--wake", "spin", "--sched", "fifo:50", "--urgent", "responder", "--gap", "200us"];

/// Requests that are short beside what is injected, on connections that mostly have one under way.
const SERVER: [&str; 11] = [
    "run",
    "server",
    "--model",
    "threads-blocking",
    "--connections",
    "4",
    "--matrix",
    "8",
    "--native",
    "--think",
    "300us",
];

/// Messages that the second member waits for, and the first for nobody: no majority is needed.
const BROADCAST: [&str; 17] = [
    "run",
    "broadcast",
    "--members",
    "2",
    "--senders",
    "1",
    "--kind",
    "agreed",
    "--engine",
    "shared",
    "--faults",
    "0/0",
    "--message",
    "1000",
    "--period",
    "2ms",
    "--pin",
];

/// Routes of the survey, one after the other: a thread that sleeps in memory, and one that sleeps in the kernel's network.
const ROUTES: [&str; 2] = ["shared/futex", "datagram/epoll"];

impl InjectedExperiment {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Response, Self::Survey, Self::Vehicles, Self::Server, Self::Broadcast];

    /// The names of both sides.
    pub fn sides(self) -> [&'static str; 2] {
        match self {
            Self::Response | Self::Survey => ["client", "responder"],
            Self::Vehicles => ["vehicle-0", "vehicle-1"],
            Self::Server => ["client", "server"],
            Self::Broadcast => ["member-0", "member-1"],
        }
    }

    /// The CPUs of both sides, if they differ.
    pub(super) fn cpus(self) -> Option<[usize; 2]> {
        match (self, &allowed()[..]) {
            (Self::Response | Self::Survey, [first, .., last]) => Some([*first, *last]),
            (Self::Vehicles | Self::Broadcast, [first, second, ..]) => Some([*first, *second]),
            // It is the server that has the first.
            (Self::Server, [first, .., last]) => Some([*last, *first]),
            _ => None,
        }
    }

    /// True if a stall was of a side.
    pub(super) fn is_of(self, side: usize, explained: &Explained) -> bool {
        let whose = match self {
            Self::Response | Self::Survey => explained.role.clone(),
            Self::Vehicles | Self::Broadcast => explained.owner.clone(),
            Self::Server => explained.side.map(|side| side.to_string()),
        };
        whose.as_deref() == Some(self.sides()[side])
    }
}

impl Victim {
    /// Arguments of the `number`th run, without its time and its folder.
    pub(super) fn arguments(self, number: usize) -> Vec<&'static str> {
        let mut arguments = match self.experiment {
            InjectedExperiment::Response => {
                vec!["run", "response", "--rounds", "1", "--timeout", "2s", "--count", COUNT]
            }
            InjectedExperiment::Survey => {
                let route = ROUTES[number % ROUTES.len()];
                vec!["survey", "--quick", "--only", route, "--gap", "0", "--load", "closed", "--count", COUNT]
            }
            InjectedExperiment::Vehicles => {
                vec![
                    "run",
                    "vehicles",
                    "--vehicles",
                    "2",
                    "--mode",
                    "callback",
                    "--period",
                    "2ms",
                    "--rounds",
                    "1",
                    "--pin",
                ]
            }
            InjectedExperiment::Server => SERVER.to_vec(),
            InjectedExperiment::Broadcast => BROADCAST.to_vec(),
        };
        if self.condition == Condition::Urgent {
            arguments.extend(URGENT);
        }
        arguments
    }

    /// The processes of both sides of a run, once they are there.
    pub(super) fn processes(self, run: u32) -> Option<[u32; 2]> {
        let [client, responder] = InjectedExperiment::Response.sides();
        match self.experiment {
            InjectedExperiment::Response => {
                let child = children(run).find(|&child| has_thread(child, |name| name == responder))?;
                has_thread(run, |name| name == client).then_some([run, child])
            }
            InjectedExperiment::Survey => {
                let child = children(run).next()?;
                has_thread(run, |name| name.starts_with(client)).then_some([run, child])
            }
            InjectedExperiment::Vehicles => both(run, "component"),
            InjectedExperiment::Broadcast => both(run, "caretaker"),
            InjectedExperiment::Server => {
                let child = children(run).find(|&child| has_thread(child, |name| name == "serve"))?;
                Some([run, child])
            }
        }
    }
}

/// Both processes of a run that have such a thread.
fn both(run: u32, thread: &str) -> Option<[u32; 2]> {
    let those: Vec<u32> = children(run).filter(|&child| has_thread(child, |name| name == thread)).collect();
    those.try_into().ok()
}

fn tasks(process: u32) -> impl Iterator<Item = PathBuf> {
    let tasks = std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"));
    tasks.into_iter().flatten().flatten().map(|task| task.path())
}

/// In the order in which they were started.
fn children(process: u32) -> impl Iterator<Item = u32> {
    let children = tasks(process).filter_map(|task| std::fs::read_to_string(task.join("children")).ok());
    let numbers: Vec<u32> = children
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect();
    numbers.into_iter()
}

fn has_thread(process: u32, is_it: impl Fn(&str) -> bool) -> bool {
    tasks(process).any(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| is_it(name.trim())))
}
