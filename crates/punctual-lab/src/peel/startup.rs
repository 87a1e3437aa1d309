//! Costs that are paid once: by a fresh process, from its start to its second message, with and without the known mistakes.
//!
//! ```text
//! start ─▶ main ─▶ clock ─▶ keys* ─▶ node and communicator* ─▶ ready │ first message: (node*) (keys*) ping ─▶ more
//! ```
//! Each starred step moves behind *ready* by its mistake, onto the way of the first message. Every step is the library's own, and so
//! are the messages: sealed, stamped, answered by the responder of the layers.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual::{Clock, Keys, Node, Stage, Ticks};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::SchedStat;
use punctual_proto::seal::parse_keys;
use serde::{Deserialize, Serialize};

use super::layer::InjectedFault;
use super::start_fix::StartFix;
use crate::endpoint::{Addresses, Endpoint, EndpointPlan, VALUE_SIZE};
use crate::load::ping;
use crate::run::{OwnFolder, Requests};
use crate::stats::upper_median;

/// Pings after the first.
const MORE: usize = 200;
/// Longest wait for an answer before the next ping leaves, and for all that are still late in the end.
const PATIENCE: Duration = Duration::from_secs(2);
/// As many pings without an answer, one after the other: nobody is there.
const UNANSWERED_MAX: usize = 3;

/// Order to a fresh process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StartOrder {
    pub(super) addresses: Addresses,
    /// The responder's endpoint.
    pub(super) plan: EndpointPlan,
    /// `CLOCK_MONOTONIC` right before it was started.
    pub(super) started_ns: u64,
    /// The mistake it is to make.
    pub(super) culprit: Option<InjectedFault>,
    /// The fix for it.
    pub(super) fix: Option<StartFix>,
    /// It is one of the crowd: starts, opens its own bus, and ends.
    pub(super) bystander: bool,
}

/// Costs of a start by purpose, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartUp {
    /// From its start to its first instruction of ours.
    pub process_ns: u64,
    /// The clock's calibration.
    pub clock_ns: u64,
    /// Keys read, checked and made ready before it was ready.
    pub keys_ns: u64,
    /// The node opened, with all memory that messages need, and the communicator bound.
    pub node_ns: u64,
    /// From its start until it was ready.
    pub ready_ns: u64,
    /// Of that, time it waited for a processor.
    pub queued_ns: u64,
    /// The first message, there and back.
    pub first_ns: u64,
    /// Of that: the node opened on its way.
    pub node_on_path_ns: u64,
    /// Of that: keys read and made ready on its way.
    pub keys_on_path_ns: u64,
    /// The median of the messages after it.
    pub later_ns: u64,
    /// The first request's stages, as the responder saw them, in the order of [`Stage::ALL`]; empty if it was not answered.
    pub first_stages_ns: Vec<u64>,
    /// The medians of the later ones'.
    pub later_stages_ns: Vec<u64>,
    /// Interruptions by SIGIO, per thousand frames received.
    pub signals_per_mille: u64,
    /// Messages without an answer.
    pub lost: u64,
}

/// The fresh process: does what it is told once, and says what that cost.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let main_ns = monotonic_ns();
    let Some(order) = requests.recv::<StartOrder>() else { return Ok(()) };
    requests.answer(&start_up(&order, main_ns))
}

fn timed<T>(ns: &mut u64, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    *ns += ns_since(began);
    done
}

fn ns_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn start_up(order: &StartOrder, main_ns: u64) -> Result<StartUp, String> {
    let mut paid = StartUp { process_ns: main_ns.saturating_sub(order.started_ns), ..StartUp::default() };
    // An operator does this, not the process.
    let folder = OwnFolder::create(&std::env::temp_dir(), "peel")?;
    let file = folder.path().join("keys");
    std::fs::write(&file, order.addresses.keys.text())
        .map_err(|error| format!("{}: {error}", file.display()))?;
    timed(&mut paid.clock_ns, Clock::get);
    let has = |culprit| order.culprit == Some(culprit);
    let (is_primed, is_quiet) = (order.fix == Some(StartFix::Prime), order.fix == Some(StartFix::SigioOff));
    let keys = Keys::new();
    if is_primed || !has(InjectedFault::ColdCrypto) {
        timed(&mut paid.keys_ns, || read_keys(&keys, &file))?;
    }
    if order.bystander {
        return stand_by(&keys).map(|()| paid);
    }
    let interrupted = has(InjectedFault::SigioAtStart) && !is_quiet;
    let plan = EndpointPlan { interrupted, ..order.plan };
    let open = || order.addresses.communicator(0, &plan, &keys);
    let mut endpoint = None;
    if is_primed || !has(InjectedFault::PoolsInConstructor) {
        endpoint = Some(timed(&mut paid.node_ns, open)?);
    }
    let mut pings = Pings::new();
    if let Some(endpoint) = endpoint.as_mut().filter(|_| is_primed) {
        pings.prime(endpoint);
    }
    paid.ready_ns = monotonic_ns().saturating_sub(order.started_ns);
    paid.queued_ns = SchedStat::of_this_thread().read().unwrap_or_default().queued_ns;
    let before = signals_delivered();
    let began = Instant::now();
    let mut endpoint = match endpoint {
        Some(endpoint) => endpoint,
        None => timed(&mut paid.node_on_path_ns, open)?,
    };
    if has(InjectedFault::ColdCrypto) && !is_primed {
        timed(&mut paid.keys_on_path_ns, || read_keys(&keys, &file))?;
    }
    pings.send(&mut endpoint, began);
    while pings.took.len() <= MORE && !pings.is_alone() {
        pings.send(&mut endpoint, Instant::now());
    }
    pings.await_late(&mut endpoint);
    paid.signals_per_mille = (signals_delivered() - before) * 1000 / (MORE as u64 + 1);
    pings.note(&mut paid);
    ping::write_stop(&mut pings.message);
    endpoint.send(&pings.message, Clock::get().now());
    Ok(paid)
}

/// One of the crowd pays what a start costs, and speaks to nobody.
fn stand_by(keys: &Keys) -> Result<(), String> {
    let name = format!("crowd-{:08x}", punctual_machine::process::random() as u32);
    let bus = punctual::Bus::shared(&name).sealed(keys);
    Node::open(&bus, "bystander").map(drop).map_err(|error| error.to_string())
}

/// As a process that finds out late that it needs them.
fn read_keys(keys: &Keys, file: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let found = parse_keys(&text).map_err(|error| error.to_string())?;
    found.into_iter().try_for_each(|key| keys.insert(key).map_err(|error| error.to_string()))
}

/// One ping of a start.
struct Took {
    began: Instant,
    /// There and back; until it was given up where it was not answered.
    ns: u64,
    /// The request's stages if it was answered.
    stages: Option<[u64; Stage::ALL.len()]>,
}

/// Pings of this start, one after the other.
struct Pings {
    prepared: Vec<u8>,
    message: Vec<u8>,
    buffer: Vec<u8>,
    took: Vec<Took>,
}

impl Pings {
    fn new() -> Self {
        let mut prepared = vec![0; VALUE_SIZE];
        ping::prepare(&mut prepared);
        let took = Vec::with_capacity(MORE + 1);
        Self { message: prepared.clone(), buffer: prepared.clone(), prepared, took }
    }

    /// Sends the next, and waits for its answer. It counts from `began`.
    fn send(&mut self, endpoint: &mut dyn Endpoint, began: Instant) {
        let clock = Clock::get();
        let number = self.took.len();
        self.took.push(Took { began, ns: 0, stages: None });
        ping::write_request(&mut self.message, number as u64, clock.now());
        self.prepared[..].copy_from_slice(&self.message);
        let deadline = clock.now().plus(clock.ticks(PATIENCE));
        if endpoint.send(&self.message, clock.now()) {
            while self.took[number].stages.is_none() && self.receive(endpoint, deadline) {}
        }
        if self.took[number].stages.is_none() {
            self.took[number].ns = ns_since(began);
        }
    }

    /// Takes the next answer, of whichever ping it is: a late one is no answer to the next. `false` if none came.
    fn receive(&mut self, endpoint: &mut dyn Endpoint, deadline: Ticks) -> bool {
        if endpoint.receive(&mut self.buffer, deadline).is_none() {
            return false;
        }
        let clock = Clock::get();
        let Some(answer) = ping::read_answer(&self.buffer, &self.prepared) else { return true };
        let number = usize::try_from(answer.sequence).unwrap_or(usize::MAX);
        if let Some(took) = self.took.get_mut(number).filter(|took| took.stages.is_none()) {
            took.ns = ns_since(took.began);
            let ns = |ticks: u32| if ticks == u32::MAX { 0 } else { clock.nanos(Ticks(ticks.into())) };
            took.stages = Some(answer.stages.map(ns));
        }
        true
    }

    /// True if nobody answers any more.
    fn is_alone(&self) -> bool {
        let latest = self.took.iter().rev().take(UNANSWERED_MAX);
        latest.filter(|took| took.stages.is_none()).count() == UNANSWERED_MAX
    }

    /// Answers that are late are no lost ones.
    fn await_late(&mut self, endpoint: &mut dyn Endpoint) {
        let deadline = Clock::get().now().plus(Clock::get().ticks(PATIENCE));
        while self.took.iter().any(|took| took.stages.is_none()) && self.receive(endpoint, deadline) {}
    }

    /// Uses the whole way once before anything waits for it. The message is none of those that count.
    fn prime(&mut self, endpoint: &mut dyn Endpoint) {
        self.send(endpoint, Instant::now());
        self.took.clear();
    }

    fn note(&mut self, paid: &mut StartUp) {
        paid.lost = self.took.iter().filter(|took| took.stages.is_none()).count() as u64;
        let Some((first, later)) = self.took.split_first() else { return };
        paid.first_ns = first.ns;
        paid.first_stages_ns = first.stages.map_or_else(Vec::new, Vec::from);
        let median = |of: &dyn Fn(&Took) -> u64| {
            let mut all: Vec<u64> = later.iter().map(of).collect();
            upper_median(&mut all).unwrap_or(0)
        };
        paid.later_ns = median(&|took| took.ns);
        paid.later_stages_ns = (0..Stage::ALL.len())
            .map(|place| median(&|took| took.stages.map_or(0, |stages| stages[place])))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::endpoint::Received;

    /// Answers what it is asked, but for some numbers; the answers to others come a ping later.
    struct Slow {
        silent: fn(usize) -> bool,
        late: fn(usize) -> bool,
        sent: usize,
        here: VecDeque<Vec<u8>>,
        later: Vec<Vec<u8>>,
    }

    impl Endpoint for Slow {
        fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
            let mut answer = message.to_vec();
            ping::write_answer(&mut answer, Clock::get().now(), None);
            self.here.extend(self.later.drain(..));
            match self.sent {
                number if (self.silent)(number) => {}
                number if (self.late)(number) => self.later.push(answer),
                _ => self.here.push_back(answer),
            }
            self.sent += 1;
            true
        }

        fn receive(&mut self, buffer: &mut [u8], _deadline: Ticks) -> Option<Received> {
            let answer = self.here.pop_front()?;
            buffer.copy_from_slice(&answer);
            Some(Received { size: answer.len(), stages: None })
        }
    }

    fn lost(pings: usize, silent: fn(usize) -> bool, late: fn(usize) -> bool) -> u64 {
        let mut endpoint = Slow { silent, late, sent: 0, here: VecDeque::new(), later: Vec::new() };
        let mut taken = Pings::new();
        while taken.took.len() < pings && !taken.is_alone() {
            taken.send(&mut endpoint, Instant::now());
        }
        taken.await_late(&mut endpoint);
        let mut paid = StartUp::default();
        taken.note(&mut paid);
        paid.lost
    }

    /// Goal: one answer that never comes is one lost message, a late one is none, and where nobody answers the start ends soon.
    #[test]
    fn a_missed_answer_is_one_message() {
        assert_eq!(lost(20, |_| false, |_| false), 0);
        assert_eq!(lost(20, |number| number == 5, |_| false), 1);
        assert_eq!(lost(20, |_| false, |number| number == 5), 0);
        assert_eq!(lost(20, |number| number == 0, |number| number == 7), 1);
        assert_eq!(lost(20, |_| true, |_| false), UNANSWERED_MAX as u64);
    }
}
