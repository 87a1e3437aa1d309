//! What is paid once: by a fresh process, from its start to its second message, with and without the known mistakes.
//!
//! ```text
//! start ─▶ main ─▶ clock ─▶ keys* ─▶ node and communicator* ─▶ ready │ first message: (node*) (keys*) ping ─▶ more
//! ```
//! What is starred moves behind *ready*, onto the way of the first message, by its mistake. Every step is the library's own,
//! and so are the messages: sealed, stamped, answered by the responder of the layers.

use std::time::{Duration, Instant};

use punctual::{Clock, Keys, Node, Stage, Ticks};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::monotonic_ns;
use punctual_proto::seal::parse_keys;
use serde::{Deserialize, Serialize};

use super::key_file::KeyFile;
use super::layer::InjectedFault;
use super::start_fix::StartFix;
use crate::endpoint::{Addresses, CommunicatorEndpoint, Endpoint, EndpointPlan, VALUE_SIZE};
use crate::load::ping;
use crate::run::Requests;

/// Pings after the first.
const MORE: usize = 200;
const PATIENCE: Duration = Duration::from_secs(2);

/// What a fresh process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StartOrder {
    pub(super) addresses: Addresses,
    /// The responder's endpoint.
    pub(super) plan: EndpointPlan,
    /// `CLOCK_MONOTONIC` right before it was started.
    pub(super) started_ns: u64,
    /// The mistake it is to make.
    pub(super) culprit: Option<InjectedFault>,
    /// What is done about it.
    pub(super) fix: Option<StartFix>,
    /// It is one of the crowd: starts, opens its own bus, and ends.
    pub(super) bystander: bool,
}

/// What it was paid for, nanoseconds.
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
    let paid = if order.bystander { stand_by(&order) } else { start_up(&order, main_ns) };
    requests.answer(&paid)
}

/// One of the crowd: pays what a start costs, and speaks to nobody.
fn stand_by(order: &StartOrder) -> Result<StartUp, String> {
    Clock::get();
    let file = KeyFile::write(&order.addresses.keys)?;
    let keys = Keys::from_file(file.path()).map_err(|error| error.to_string())?;
    let name = format!("crowd-{:08x}", punctual_machine::process::random() as u32);
    let bus = punctual::Bus::shared(&name).sealed(&keys);
    let node = Node::open(&bus, "bystander").map_err(|error| error.to_string())?;
    drop(node);
    debug_assert!(order.bystander, "told so");
    Ok(StartUp::default())
}

fn timed<T>(ns: &mut u64, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    *ns += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    done
}

fn start_up(order: &StartOrder, main_ns: u64) -> Result<StartUp, String> {
    let mut paid = StartUp { process_ns: main_ns.saturating_sub(order.started_ns), ..StartUp::default() };
    // What an operator does, not the process.
    let file = KeyFile::write(&order.addresses.keys)?;
    timed(&mut paid.clock_ns, Clock::get);
    let has = |culprit| order.culprit == Some(culprit);
    let (is_primed, is_quiet) = (order.fix == Some(StartFix::Prime), order.fix == Some(StartFix::SigioOff));
    let keys = Keys::new();
    if is_primed || !has(InjectedFault::ColdCrypto) {
        timed(&mut paid.keys_ns, || read_keys(&keys, &file))?;
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
    paid.queued_ns = queued_ns();
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
    for _ in 0..MORE {
        pings.send(&mut endpoint, Instant::now());
    }
    paid.signals_per_mille = (signals_delivered() - before) * 1000 / (MORE as u64 + 1);
    pings.note(&mut paid);
    ping::write_stop(&mut pings.message);
    endpoint.send(&pings.message, Clock::get().now());
    Ok(paid)
}

/// As a process that finds out late that it needs them.
fn read_keys(keys: &Keys, file: &KeyFile) -> Result<(), String> {
    let text = std::fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
    let found = parse_keys(&text).map_err(|error| error.to_string())?;
    found.into_iter().try_for_each(|key| keys.insert(key).map_err(|error| error.to_string()))
}

/// There and back, and the request's stages if it was answered.
type Took = (u64, Option<[u64; Stage::ALL.len()]>);

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
    fn send(&mut self, endpoint: &mut CommunicatorEndpoint, began: Instant) {
        let clock = Clock::get();
        let number = self.took.len() as u64;
        ping::write_request(&mut self.message, number, clock.now());
        self.prepared[..].copy_from_slice(&self.message);
        let deadline = clock.now().plus(clock.ticks(PATIENCE));
        let sent = endpoint.send(&self.message, clock.now());
        let answered = sent && endpoint.receive(&mut self.buffer, deadline).is_some();
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let answer = ping::read_answer(&self.buffer, &self.prepared).filter(|_| answered);
        let stages = answer.filter(|answer| answer.sequence == number).map(|answer| {
            answer.stages.map(|ticks| if ticks == u32::MAX { 0 } else { clock.nanos(Ticks(ticks.into())) })
        });
        self.took.push((ns, stages));
    }

    /// Uses the whole way once before anything waits for it. The message is none of those that count.
    fn prime(&mut self, endpoint: &mut CommunicatorEndpoint) {
        self.send(endpoint, Instant::now());
        self.took.clear();
    }

    fn note(&mut self, paid: &mut StartUp) {
        paid.lost = self.took.iter().filter(|(_, stages)| stages.is_none()).count() as u64;
        let Some(((first_ns, first), later)) = self.took.split_first() else { return };
        paid.first_ns = *first_ns;
        paid.first_stages_ns = first.map_or_else(Vec::new, Vec::from);
        let median = |of: &dyn Fn(&Took) -> u64| {
            let mut all: Vec<u64> = later.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        paid.later_ns = median(&|&(ns, _)| ns);
        paid.later_stages_ns =
            (0..Stage::ALL.len()).map(|place| median(&|(_, s)| s.map_or(0, |s| s[place]))).collect();
    }
}

/// Time that this thread waited for a processor so far.
fn queued_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
