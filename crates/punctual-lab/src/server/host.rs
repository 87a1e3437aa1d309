//! The server's process: one server after the other, each for one trial.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use punctual::Clock;
use punctual::runtime::Metrics;
use punctual_machine::clock::process_cpu_ns;
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{pin_to, pin_to_any};
use punctual_machine::sync::spin_hint;
use serde::{Deserialize, Serialize};

use super::journal::{Journal, JournalEnd};
use super::model::ServerModel;
use super::peer;
use super::pollers::Pollers;
use super::setup::Setup;
use super::tasks::Server;
use super::threads::{Manner, accept};
use super::work::{ORIGINAL_MATRIX, dilation, time_of};
use crate::run::{Answer, Requests};
use crate::scheduling::Urgency;

/// Request to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ServerRequest {
    /// To go to this processor, and find out how long the work takes: [`WorkTimes`].
    Calibrate {
        cpu: Option<usize>,
        /// True if the work is to take as long as the original's.
        dilates: bool,
        matrices: Vec<usize>,
    },
    /// To serve: its address.
    Serve(Serving),
    /// To end, as all connections are closed: [`ServedEnd`], and the bytes of its journal.
    End,
}

/// Settings of the server for a trial.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Serving {
    pub(super) setup: Setup,
    /// Where its threads may run; wherever its process may, if there is none.
    pub(super) cpus: Vec<usize>,
    /// Settings for tasks.
    pub(super) tasks: TaskSettings,
    /// Windows that each of its threads keeps.
    pub(super) windows: usize,
    /// The program of models that are none of this one's.
    pub(super) peer_server: PathBuf,
    /// Number of times that the work is done; the server knows.
    #[serde(skip)]
    pub(super) repeats: u32,
}

/// Settings for the tasks of models with classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSettings {
    /// Urgency of workers of all classes.
    pub worker_urgency: Urgency,
    /// Urgency of the workers of lanes.
    pub lane_urgency: Urgency,
    /// True if requests whose deadlines cannot be met are refused.
    pub sheds: bool,
    /// Minimum share of each class, thousandths of each worker's time; as the runtime has it, where none is given.
    pub floors_permille: Vec<u32>,
}

/// Duration of the work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkTimes {
    /// A request of 20 × 20, once.
    pub native_ns: u64,
    /// Number of times that it is done.
    pub repeats: u32,
    /// By matrix: the whole work of a request.
    pub service_ns: Vec<(usize, u64)>,
}

impl WorkTimes {
    /// Duration of the whole work of a request.
    pub fn service_ns(&self, matrix: usize) -> u64 {
        self.service_ns.iter().find(|(of, _)| *of == matrix).map_or(1, |(_, ns)| (*ns).max(1))
    }
}

/// Keeps the calling thread for so long.
pub(super) fn spin(ns: u64) {
    let clock = Clock::get();
    let until = clock.now().plus(clock.ticks(Duration::from_nanos(ns)));
    while clock.now() < until {
        spin_hint();
    }
}

/// Activity of the server in a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Processor time of its process.
    pub cpu_ns: u64,
    /// Wakes of tasks; 0 where there are none.
    pub wakes: u64,
    /// Polls because of a class's floor.
    pub by_floor: u64,
    /// Faults that it reports.
    pub verdicts: Vec<String>,
    /// The oldest waiters, again and again, where there are classes.
    #[serde(default)]
    pub oldest: Vec<OldestWaiters>,
    /// Activity of each thread that polled one line, and last of those that woke its tasks from outside.
    #[serde(default)]
    pub pollers: Vec<PollerCounts>,
    /// Why it ended before its trial did, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// The age of the oldest request in line at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldestWaiters {
    /// Since the server started.
    pub at_ns: u64,
    /// By class; 0 where nobody waits.
    pub oldest_ns: Vec<u64>,
}

/// Activity of a thread that polls one line with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollerCounts {
    /// Its processor time, ns.
    pub ran_ns: u64,
    /// Tasks that it polled.
    pub polls: u64,
    /// Looks at an empty line.
    pub empty_looks: u64,
    /// Tasks that it put into the line.
    pub wakes: u64,
    /// Total time of putting them there, ns.
    pub wake_ns: u64,
    /// Total time that it waited for the line, ns.
    pub lock_wait_ns: u64,
    /// Times the kernel took it off its processor.
    pub switches_involuntary: u64,
}

/// Results of a trial.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ServedEnd {
    pub(super) served: Served,
    pub(super) journal: JournalEnd,
}

/// Serves until nothing is asked for any more.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let mut repeats = 1;
    while let Some(request) = requests.recv::<ServerRequest>() {
        match request {
            ServerRequest::Calibrate { cpu, dilates, matrices } => {
                // Unpinned is slower, not wrong.
                let _unpinned = cpu.map(pin_to);
                repeats = if dilates { dilation() } else { 1 };
                let times = matrices.iter().map(|&matrix| (matrix, time_of(matrix, repeats)));
                let calibration = WorkTimes {
                    native_ns: time_of(ORIGINAL_MATRIX, 1),
                    repeats,
                    service_ns: times.collect(),
                };
                requests.answer(&Ok(calibration))?;
            }
            ServerRequest::Serve(serving) => {
                let serving = Serving { repeats, ..serving };
                // Unpinned is slower, not wrong.
                let _unpinned = (!serving.cpus.is_empty()).then(|| pin_to_any(&serving.cpus));
                let journal = Journal::new(serving.windows);
                let ended = one_trial(&serving, &journal, |address| {
                    requests.answer(&Ok(address))?;
                    match requests.recv::<ServerRequest>() {
                        Some(ServerRequest::End) | None => Ok(()),
                        Some(other) => Err(format!("asked for {other:?} while it serves")),
                    }
                });
                let (journal, bytes) = journal.end();
                let has_ended = ended.is_ok();
                requests.answer(&ended.map(|served| ServedEnd { served, journal }))?;
                if has_ended {
                    requests.send_bytes(&bytes)?;
                }
            }
            ServerRequest::End => {
                requests.answer(&Answer::<ServedEnd>::Err("nothing is served".to_owned()))?;
            }
        }
    }
    Ok(())
}

fn one_trial(
    serving: &Serving,
    journal: &Journal,
    during: impl FnOnce(SocketAddr) -> Result<(), String>,
) -> Result<Served, String> {
    let before = process_cpu_ns();
    let mut served = match serving.setup.model {
        ServerModel::Classes | ServerModel::ClassesOnTokio | ServerModel::Tokio | ServerModel::TwoTokios => {
            let server = match serving.setup.model {
                ServerModel::Classes => Server::on_own_threads(serving, journal),
                _ => Server::on_tokio(serving, journal),
            }?;
            let (watched, ended) = watch_oldest(server.watch(), || during(server.address));
            ended?;
            let served = server.metrics().as_ref().map_or_else(Served::default, told);
            Served { oldest: watched, ..served }
        }
        ServerModel::Clockworker | ServerModel::Glommio => peer::serve(serving, during)?,
        ServerModel::Pollers => {
            let server = Pollers::start(serving, journal)?;
            during(server.address)?;
            server.served()
        }
        ServerModel::ThreadsBlocking | ServerModel::ThreadsYield => {
            with_threads(serving, journal, during)?;
            Served::default()
        }
    };
    // A program of its own has said what it took.
    served.cpu_ns += process_cpu_ns() - before;
    Ok(served)
}

/// Between two looks at who waits longest, and how many are kept.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: usize = 600;

/// Does something, and looks meanwhile at who waits longest, where there are counters.
fn watch_oldest<T>(
    metrics: Option<impl Fn() -> Metrics + Send + Sync>,
    during: impl FnOnce() -> T,
) -> (Vec<OldestWaiters>, T) {
    let Some(metrics) = metrics else { return (Vec::new(), during()) };
    let stop = Flag::default();
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut seen = Vec::new();
            while !stop.is_raised() && seen.len() < LOOKS_MAX {
                thread::sleep(LOOK_EVERY);
                let now = metrics();
                let oldest_ns = now.classes.iter().map(|class| class.oldest.map_or(0, |oldest| oldest.0));
                seen.push(OldestWaiters { at_ns: now.time.0, oldest_ns: oldest_ns.collect() });
            }
            seen
        });
        let done = during();
        stop.raise();
        (looks.join().unwrap_or_default(), done)
    })
}

/// Counts of the classes.
fn told(metrics: &Metrics) -> Served {
    let wakes = metrics.workers.iter().map(|worker| worker.woken_here + worker.woken_from_elsewhere);
    Served {
        wakes: wakes.sum(),
        by_floor: metrics.classes.iter().map(|class| class.by_floor).sum(),
        verdicts: metrics.verdicts().iter().map(ToString::to_string).collect(),
        ..Served::default()
    }
}

fn with_threads(
    serving: &Serving,
    journal: &Journal,
    during: impl FnOnce(SocketAddr) -> Result<(), String>,
) -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let stop = Arc::new(Flag::default());
    let manner =
        Manner { repeats: serving.repeats, yields: serving.setup.model == ServerModel::ThreadsYield };
    let hog_ns = serving.setup.hog_ns;
    let hog = (hog_ns > 0).then(|| {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            while !stop.is_raised() {
                spin(hog_ns);
            }
        })
    });
    let (theirs, journal) = (Arc::clone(&stop), journal.clone());
    let thread = thread::spawn(move || accept(&listener, &theirs, manner, &journal));
    let ended = during(address);
    stop.raise();
    // Shows the flag to the thread that waits for a connection.
    let _shown = TcpStream::connect(address);
    for thread in [Some(thread), hog].into_iter().flatten() {
        let _panicked = thread.join();
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::*;
    use crate::run::crash;

    /// Goal: a stage that panics is seen in each model, whoever contains it. Method: a product that has no room in a number, which only a
    /// build that checks for that finds.
    #[cfg(debug_assertions)]
    #[test]
    fn a_stage_that_panics_is_seen() {
        crash::watch_panics();
        // Of other tests too: those say other words.
        let seen = || crash::seen().iter().filter(|crash| crash.contains("overflow")).count();
        for model in ServerModel::ALL {
            let before = seen();
            let setup = Setup { model, workers: 1, ..Setup::default() };
            let (serving, journal) = (Serving { setup, repeats: 1, ..Serving::default() }, Journal::new(0));
            let served = one_trial(&serving, &journal, |address| {
                let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
                stream.write_all(b"\x0018446744073709551615\n\n").map_err(|error| error.to_string())?;
                let start = Instant::now();
                while seen() == before && start.elapsed() < Duration::from_secs(20) {
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            });
            assert!(served.is_ok() && seen() > before, "{model:?}: {served:?}");
        }
    }
}
