//! Costs that are paid once: by a fresh process, from its start to its second message, with and without the known mistakes.
//!
//! ```text
//! start ─▶ main ─▶ clock ─▶ keys* ─▶ node and communicator* ─▶ ready │ first message: (node*) (keys*) ping ─▶ more
//! ```
//! Each starred step moves behind *ready* by its mistake, onto the way of the first message. Every step is the library's own, and so
//! are the messages: sealed, stamped, answered by the responder of the layers.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual::{Clock, Keys, Node, Ticks};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::SchedStat;
use punctual_machine::signal::interrupted;
use punctual_proto::seal::parse_keys;
use serde::{Deserialize, Serialize};

use super::layer::InjectedFault;
use super::start_fix::StartFix;
use crate::endpoint::{Addresses, Endpoint, EndpointPlan, VALUE_SIZE};
use crate::load::client::{self, PATIENCE, Trial};
use crate::load::ping::{self, PingDetail};
use crate::load::recording::Recording;
use crate::run::{OwnFolder, Requests};
use crate::sample::{ABSENT_NS, Load, Outcome};
use crate::stats::upper_median;

/// The first ping, and 200 after it.
const PINGS: usize = 201;
/// The pings of a start. They take milliseconds; the duration is for a responder that does not answer.
const TRIAL: Trial =
    Trial { size: VALUE_SIZE, duration: Duration::from_secs(6), count_max: PINGS, ..Trial::CLOSED };

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
    /// The first request's stages, as the responder saw them, in the order of [`punctual::Stage::ALL`]; empty if it was not answered.
    pub first_stages_ns: Vec<u64>,
    /// The medians of the later ones'.
    pub later_stages_ns: Vec<u64>,
    /// Interruptions by SIGIO, per thousand frames received.
    pub signals_per_mille: u64,
    /// Messages without an answer.
    pub lost: u64,
    /// Answers that came once more.
    pub duplicated: u64,
    /// Answers that came after that to a younger message.
    pub reordered: u64,
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
    *ns += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    done
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
    let plan = EndpointPlan { interrupted: has(InjectedFault::SigioAtStart) && !is_quiet, ..order.plan };
    let open = || order.addresses.communicator(0, &plan, &keys);
    let mut endpoint = None;
    if is_primed || !has(InjectedFault::PoolsInConstructor) {
        endpoint = Some(timed(&mut paid.node_ns, open)?);
    }
    if let Some(endpoint) = endpoint.as_mut().filter(|_| is_primed) {
        prime(endpoint);
    }
    paid.ready_ns = monotonic_ns().saturating_sub(order.started_ns);
    // No part of the start: its memory is the laboratory's.
    let mut pings = Recording::new(PINGS, 1);
    paid.queued_ns = SchedStat::of_this_thread().read().unwrap_or_default().queued_ns;
    let before = signals_delivered();
    let mut endpoint = match endpoint {
        Some(endpoint) => endpoint,
        None => timed(&mut paid.node_on_path_ns, open)?,
    };
    if has(InjectedFault::ColdCrypto) && !is_primed {
        timed(&mut paid.keys_on_path_ns, || read_keys(&keys, &file))?;
    }
    client::run(&mut endpoint, &TRIAL, &mut pings, None);
    if interrupted() {
        return Err("it was interrupted among its pings".to_owned());
    }
    paid.signals_per_mille = (signals_delivered() - before) * 1000 / pings.len().max(1) as u64;
    note(&pings, &mut paid);
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

/// Uses the whole way once before anything waits for it. The message is none of those that count, and has no number of theirs: an
/// answer that comes too late is no answer to the first of them.
fn prime(endpoint: &mut dyn Endpoint) {
    let clock = Clock::get();
    let mut message = vec![0; VALUE_SIZE];
    ping::prepare(&mut message);
    ping::write_request(&mut message, u64::MAX, clock.now());
    if endpoint.send(&message, clock.now()) {
        let _too_late = endpoint.receive(&mut message, clock.now().plus(clock.ticks(PATIENCE)));
    }
}

/// Notes the time of the first ping, and the usual one of the others.
fn note(pings: &Recording<PingDetail>, paid: &mut StartUp) {
    let (clock, ends) = (Clock::get(), pings.ends());
    paid.lost = ends.sent - ends.answered;
    let trips = pings.samples(clock, Ticks(0), 0, Load::Closed);
    (paid.duplicated, paid.reordered) = (trips.facts.duplicated, trips.facts.reordered);
    let Some(first_ns) = trips.total_ns.first() else { return };
    paid.first_ns = paid.node_on_path_ns + paid.keys_on_path_ns + first_ns;
    let usual = |column: &[u64]| upper_median(&mut column[1..].to_vec()).unwrap_or(0);
    paid.later_ns = usual(&trips.total_ns);
    let known = |ns: u64| if ns == ABSENT_NS { 0 } else { ns };
    let columns =
        pings.request_stages(clock).map(|column| column.ns.into_iter().map(known).collect::<Vec<u64>>());
    if trips.outcome[0] == Outcome::Answered {
        paid.first_stages_ns = columns.iter().map(|column| column[0]).collect();
    }
    paid.later_stages_ns = columns.iter().map(|column| usual(column)).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::client::tests::Slow;

    /// Goal: the answer to the message that primes is no answer to a ping, also where it comes among those of the pings.
    #[test]
    fn a_late_answer_to_the_primer_is_no_ping() {
        let (mut endpoint, mut pings) =
            (Slow::new(|_| false, |number| number == 0), Recording::new(PINGS, 1));
        prime(&mut endpoint);
        assert_eq!(endpoint.under_way(), 1);
        client::run(&mut endpoint, &TRIAL, &mut pings, None);
        assert_eq!((pings.arrivals().strays, pings.ends().answered), (1, PINGS as u64));
    }

    /// Goal: answers that come twice, or after younger ones, are kept: else a start would hide a broken promise.
    #[test]
    fn doubled_and_reordered_answers_are_noted() {
        let mut pings = Recording::<PingDetail>::new(4, 1);
        for number in 0..3 {
            pings.note_sent(Ticks(1_000 * number), Ticks(1_000 * number));
        }
        for (place, number) in (0..).zip([0, 2, 1, 2, 0]) {
            pings.note_answer(number, Ticks(3_000 + place));
        }
        pings.close(Ticks(4_000), Ticks(500));
        let mut paid = StartUp::default();
        note(&pings, &mut paid);
        assert_eq!((paid.lost, paid.duplicated, paid.reordered), (0, 2, 1));
    }

    /// Goal: a start counts what was not answered, and times of the first message hold what was left for its way.
    #[test]
    fn a_start_is_noted() {
        let (clock, mut pings) = (Clock::get(), Recording::<PingDetail>::new(4, 1));
        for number in 0..4 {
            pings.note_sent(Ticks(1_000 * number), Ticks(1_000 * number));
        }
        // In coarse units: a request that waited for long.
        let long = Ticks(3_000_000 << 10);
        let took = [9_000, 500, 700];
        for (number, ticks) in (0..).zip(took) {
            let row = pings.note_answer(number, Ticks(1_000 * number + ticks)).expect("it is open");
            row.detail.request[1] = if number == 0 { ping::packed(Some(long)) } else { 5 };
        }
        pings.close(Ticks(4_000), Ticks(500));
        let mut paid = StartUp { keys_on_path_ns: 70, ..StartUp::default() };
        note(&pings, &mut paid);
        let ns = |ticks: u64| clock.nanos(Ticks(ticks));
        assert_eq!((paid.lost, paid.first_ns, paid.later_ns), (1, 70 + ns(9_000), ns(700)));
        assert_eq!(paid.first_stages_ns[..3], [0, clock.nanos(long), 0]);
        assert_eq!(paid.later_stages_ns[..3], [0, ns(5), 0]);
    }
}
