//! What is paid once: by a fresh process, from its start to its second message, with and without the known mistakes.
//!
//! ```text
//! start ─▶ main ─▶ clock ─▶ pools* ─▶ node ─▶ keys and first tag* ─▶ ready │ first message: (pools*) (tag*) ping ─▶ more
//! ```
//! What is starred moves behind *ready*, onto the way of the first message, by its mistake.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use punctual::{Clock, CommunicatorOptions, Node, Target};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::news_signal::interruptions;
use serde::{Deserialize, Serialize};

use super::field::{Field, LinkPlan, interrupt_by};
use super::layer::Culprit;
use super::tag::{FirstTag, KeyFile};
use crate::link::{CommunicatorLink, Link};
use crate::load::ping;
use crate::role::{hear, say};
use crate::vehicles::option::VALUE_SIZE;

/// Buffers of the pools, and the size of each, bytes: as many frames of Ethernet as the original's.
const BUFFERS: usize = 1_024;
const BUFFER_SIZE: usize = 1_536;
/// Pings after the first.
const MORE: usize = 200;
const PATIENCE: Duration = Duration::from_secs(2);

/// What a fresh process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) field: Field,
    /// The responder's link.
    pub(super) plan: LinkPlan,
    /// `CLOCK_MONOTONIC` right before it was started.
    pub(super) started_ns: u64,
    /// The mistake it is to make.
    pub(super) culprit: Option<Culprit>,
    /// It is one of the crowd: starts, opens its own bus, and ends.
    pub(super) bystander: bool,
}

/// What it was paid for, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartUp {
    /// From its start to its first instruction of ours.
    pub process_ns: u64,
    /// The clock's calibration.
    pub clock_ns: u64,
    /// Pools made before it was ready.
    pub pools_ns: u64,
    /// The node opened, the communicator bound.
    pub node_ns: u64,
    /// Keys read and the first tag computed before it was ready.
    pub tag_ns: u64,
    /// From its start until it was ready.
    pub ready_ns: u64,
    /// Of that, time it waited for a processor.
    pub queued_ns: u64,
    /// The first message, there and back.
    pub first_ns: u64,
    /// Of that: pools made on its way.
    pub pools_on_path_ns: u64,
    /// Of that: keys read and the tag computed on its way.
    pub tag_on_path_ns: u64,
    /// The median of the messages after it.
    pub later_ns: u64,
    /// A later tag.
    pub later_tag_ns: u64,
    /// Interruptions by SIGIO, per thousand frames received.
    pub signals_per_mille: u64,
    /// Messages without an answer.
    pub lost: u64,
}

/// Buffers that are handed out one at a time.
#[derive(Debug)]
struct Pool {
    free: Mutex<Vec<Box<[u8]>>>,
}

impl Pool {
    /// Every buffer, each touched: what a constructor of the original did.
    fn new() -> Self {
        let buffer = |number: usize| vec![number as u8; BUFFER_SIZE].into_boxed_slice();
        Self { free: Mutex::new((0..BUFFERS).map(buffer).collect()) }
    }

    /// A message through a buffer of the pool.
    fn carry<T>(&self, message: &[u8], work: impl FnOnce(&[u8]) -> T) -> T {
        let mut free = self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut buffer = free.pop().unwrap_or_else(|| vec![0; BUFFER_SIZE].into_boxed_slice());
        drop(free);
        buffer[..message.len()].copy_from_slice(message);
        let done = work(&buffer[..message.len()]);
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(buffer);
        done
    }
}

/// The fresh process: does what it is told once, and says what that cost.
///
/// # Errors
/// In words for people.
pub fn serve(input: &mut impl BufRead, output: &mut impl Write) -> Result<(), String> {
    let main_ns = monotonic_ns();
    let order: Order = hear(input)?;
    let paid = if order.bystander { stand_by(&order) } else { start_up(&order, main_ns) };
    say(output, &paid).map_err(|error| error.to_string())
}

/// One of the crowd: pays what a start costs, and speaks to nobody.
fn stand_by(order: &Order) -> Result<StartUp, String> {
    Clock::get();
    let pool = Pool::new();
    let file = KeyFile::write()?;
    FirstTag::prepare(&file)?.compute(&[0; VALUE_SIZE]);
    let name = format!("crowd-{:08x}", punctual_machine::process::random() as u32);
    let node = Node::open(&punctual::Bus::shared(&name), "bystander").map_err(|error| error.to_string())?;
    pool.carry(&[0; VALUE_SIZE], |bytes| std::hint::black_box(bytes.len()));
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

fn start_up(order: &Order, main_ns: u64) -> Result<StartUp, String> {
    let mut paid = StartUp { process_ns: main_ns.saturating_sub(order.started_ns), ..StartUp::default() };
    // What an operator does, not the process.
    let file = KeyFile::write()?;
    let clock = timed(&mut paid.clock_ns, Clock::get);
    let has = |culprit| order.culprit == Some(culprit);
    let mut pool = None;
    if !has(Culprit::PoolsInConstructor) {
        pool = Some(timed(&mut paid.pools_ns, Pool::new));
    }
    let mut link = timed(&mut paid.node_ns, || open(order, has(Culprit::SigioAtStart)))?;
    let mut tag = None;
    if !has(Culprit::ColdCrypto) {
        let mut made = timed(&mut paid.tag_ns, || FirstTag::prepare(&file))?;
        timed(&mut paid.tag_ns, || made.compute(&[0; VALUE_SIZE]));
        tag = Some(made);
    }
    paid.ready_ns = monotonic_ns().saturating_sub(order.started_ns);
    paid.queued_ns = queued_ns();
    let before = interruptions();
    let mut message = vec![0; VALUE_SIZE];
    ping::prepare(&mut message);
    let mut buffer = vec![0; VALUE_SIZE];
    let mut later = Vec::with_capacity(MORE);
    for number in 0..=MORE {
        ping::write_request(&mut message, number as u64, clock.now());
        let began = Instant::now();
        let pool = pool.get_or_insert_with(|| timed(&mut paid.pools_on_path_ns, Pool::new));
        let mut on_path = 0;
        if tag.is_none() {
            tag = Some(timed(&mut on_path, || FirstTag::prepare(&file))?);
        }
        timed(&mut on_path, || tag.iter_mut().for_each(|tag| tag.compute(&message)));
        let deadline = clock.now().plus(clock.ticks(PATIENCE));
        let answered = pool.carry(&message, |bytes| link.send(bytes, clock.now()))
            && link.receive(&mut buffer, deadline).is_some();
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        paid.lost += u64::from(!answered);
        if number == 0 {
            (paid.first_ns, paid.tag_on_path_ns) = (ns, on_path);
        } else {
            later.push((ns, on_path));
        }
    }
    paid.signals_per_mille = (interruptions() - before) * 1000 / (MORE as u64 + 1);
    later.sort_unstable();
    paid.later_ns = later[later.len() / 2].0;
    later.sort_unstable_by_key(|&(_, tag)| tag);
    paid.later_tag_ns = later[later.len() / 2].1;
    ping::write_stop(&mut message);
    link.send(&message, clock.now());
    Ok(paid)
}

fn open(order: &Order, interrupted: bool) -> Result<CommunicatorLink, String> {
    let bus = order.field.bus(0, order.plan)?;
    let node = Node::open(&bus, "here").map_err(|error| error.to_string())?;
    if interrupted {
        interrupt_by(&node)?;
    }
    let options = CommunicatorOptions::waiting(order.field.wake()).stamped();
    let communicator = node.bind_with(1, &options).map_err(|error| error.to_string())?;
    let target = Target::port("there", communicator.address().port);
    Ok(CommunicatorLink::to(communicator, target, false))
}

/// Time that this thread waited for a processor so far.
fn queued_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}
