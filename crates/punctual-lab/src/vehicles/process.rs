//! A vehicle's process: does as it is told until its input ends.

use std::time::{Duration, Instant};

use punctual::{Node, NodeOptions};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::{monotonic_ns, process_cpu_ns};
use punctual_machine::cpu::process_faults;
use punctual_machine::scheduling::SchedStat;
use punctual_machine::signal::{continuations, interrupted};

use super::alone::Alone;
use super::components::Components;
use super::first::Look;
use super::option::Mode;
use super::protocol::{Account, Assignment, Facts, Opening, Part, VehicleRequest, WorkloadResult};
use crate::endpoint::BusPlan;
use crate::run::rows::bytes_of;
use crate::run::{Requests, add};
use punctual_machine::withheld::Quotas;

/// Longest wait for the others on the bus before the barrier.
const JOINING_MAX: Duration = Duration::from_secs(20);

/// The work of a process while values travel.
pub(super) trait Workload {
    /// Sends and receives from this instant of `CLOCK_MONOTONIC` on; ends when there is nothing more to come.
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadResult, String>;

    /// Accounts for everything until now. May be asked more than once.
    fn account(&mut self) -> Account;
}

/// Does as told.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let Some(()) = requests.prepare() else { return Ok(()) };
    let mut running: Option<Box<dyn Workload>> = None;
    while let Some(request) = requests.recv() {
        match request {
            VehicleRequest::Open(assignment) => match open(&assignment) {
                Ok((opened, opening)) => {
                    let opened = running.insert(opened);
                    requests.answer(&Ok(opening))?;
                    if assignment.settings.asked.no_barrier {
                        send_travelled(&mut requests, opened.travel(monotonic_ns()))?;
                    }
                }
                Err(text) => requests.answer::<Opening>(&Err(text))?,
            },
            VehicleRequest::Go { at_ns } => {
                let nothing = || Err("nothing is open".to_owned());
                let travelled = running.as_mut().map_or_else(nothing, |running| running.travel(at_ns));
                send_travelled(&mut requests, travelled)?;
            }
            VehicleRequest::Account => {
                requests
                    .answer(&Ok(running.as_mut().map(|running| running.account()).unwrap_or_default()))?;
            }
        }
    }
    Ok(())
}

fn send_travelled(requests: &mut Requests, travelled: Result<WorkloadResult, String>) -> Result<(), String> {
    let bytes = bytes_of(travelled.iter().flat_map(|travelled| &travelled.records));
    requests.answer(&travelled.map(|travelled| (travelled, bytes.len())))?;
    requests.send_bytes(&bytes)
}

fn open(assignment: &Assignment) -> Result<(Box<dyn Workload>, Opening), String> {
    // Threads that are started from now on are as urgent.
    let asked = &assignment.settings.asked;
    asked
        .sched
        .apply()
        .map_err(|error| format!("--sched {}: {}", asked.sched, asked.sched.advise(&error)))?;
    let schedstat = SchedStat::of_this_thread();
    let mut looks = [Look::now(&schedstat); 4];
    let is_mutual = asked.mode.is_mutual();
    let is_plain = matches!(assignment.bus, BusPlan::Ethernet { .. });
    let is_observed = asked.mode == Mode::Async && assignment.part == Part::Listener && !is_plain;
    if !is_mutual && !is_observed {
        let opened = Box::new(Alone::open(assignment)?);
        looks[1..].fill(Look::now(&schedstat));
        return Ok((opened, looks));
    }
    // A process without a node stamps nothing, so stamps of the kernel would be of no use to a listener that observes it.
    let mut bus = if is_mutual { assignment.bus.stamped_bus() } else { assignment.bus.bus() };
    if let Some(keys) = &assignment.keys {
        bus = keys.seal(bus)?;
    }
    let node = NodeOptions::new(&assignment.part.name()).open(&bus).map_err(|error| error.to_string())?;
    looks[1] = Look::now(&schedstat);
    let components = Components::start(&node, assignment)?;
    looks[2] = Look::now(&schedstat);
    let began = Instant::now();
    while !asked.no_barrier
        && is_mutual
        && (node.ledger().joined as usize) < assignment.others
        && began.elapsed() < JOINING_MAX
        && !interrupted()
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    looks[3] = Look::now(&schedstat);
    Ok((Box::new(components), looks))
}

pub(super) fn account_of(node: &Node) -> Account {
    let (ledger, peers) = (node.ledger(), node.peers());
    Account {
        broadcast: node.sent_to(None),
        unicast: peers.iter().map(|peer| node.sent_to(Some(peer.node))).sum(),
        counters: ledger.entries().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        arrived: peers.iter().map(|peer| peer.arrived).sum(),
        lost: peers.iter().map(|peer| peer.lost + peer.missing).sum(),
    }
}

impl Facts {
    /// Resources that the caller's process has used so far, as far as `/proc` and the kernel say.
    pub(super) fn now() -> Self {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let times = tasks.filter_map(|task| SchedStat::of_task(&task.path()).read());
        Self {
            queued_ns: times.map(|times| times.queued_ns).sum(),
            cpu_ns: process_cpu_ns(),
            resident_kib: [resident_kib().unwrap_or(0); 2],
            signals: signals_delivered(),
            continued: continuations().0,
            throttled: Quotas::of_this_thread().now().times,
            faults: process_faults(),
            ..Self::default()
        }
    }

    /// Resources used since then.
    pub(super) fn since(before: &Self) -> Self {
        let now = Self::now();
        Self {
            // A thread that ended meanwhile takes its wait with it.
            queued_ns: now.queued_ns.saturating_sub(before.queued_ns),
            cpu_ns: now.cpu_ns - before.cpu_ns,
            resident_kib: [before.resident_kib[1], now.resident_kib[1]],
            signals: now.signals - before.signals,
            continued: now.continued - before.continued,
            throttled: now.throttled.saturating_sub(before.throttled),
            faults: now.faults - before.faults,
            ..Self::default()
        }
    }

    /// Adds those of another process.
    pub(super) fn add(&mut self, other: &Self) {
        add!(self, other, sent refused mismatched beacons queued_ns cpu_ns signals continued faults unheard);
        // Processes may share a group.
        self.throttled = self.throttled.max(other.throttled);
        self.resident_kib = [0, 1].map(|at| self.resident_kib[at] + other.resident_kib[at]);
    }
}

fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}
