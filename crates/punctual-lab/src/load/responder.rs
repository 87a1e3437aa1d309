//! The other end: answers every message at once, and says where the request's time went.

use std::time::Duration;

use punctual::Clock;
use punctual_machine::cpu::ThreadUsage;
use serde::{Deserialize, Serialize};

use super::ping;
use crate::endpoint::{Endpoint, Received};

/// What the responder went through in one trial.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ResponderFacts {
    /// Messages answered.
    pub answered: u64,
    /// Answers that found no room.
    pub refused: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// Times taken off the CPU.
    pub preempted: u64,
    /// CPUs it was seen on, beyond the first.
    pub migrations: u64,
}

/// A client that says nothing for so long is gone. One that lives is silent for seconds where a host takes the CPUs away, or
/// where it starts among a crowd.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Answers until the trial ends, or the client is silent for too long.
pub fn respond(endpoint: &mut dyn Endpoint, size_max: usize) -> ResponderFacts {
    let clock = Clock::get();
    let mut facts = ResponderFacts::default();
    let (before, cpu) = (ThreadUsage::now(), punctual_machine::cpu::current());
    let mut buffer = vec![0; size_max];
    let patience = clock.ticks(SILENCE_MAX);
    let mut deadline = clock.now().plus(patience);
    while let Some(Received { size, stages }) = endpoint.receive(&mut buffer, deadline) {
        let delivered = stages.map_or_else(|| clock.now(), |stages| stages.receiver.delivered);
        let Some(message) = buffer.get_mut(..size).filter(|message| message.len() >= ping::SIZE_MIN) else {
            continue;
        };
        if ping::is_stop(message) {
            break;
        }
        ping::write_answer(message, delivered, stages.as_ref());
        if endpoint.send(message, delivered) {
            facts.answered += 1;
        } else {
            facts.refused += 1;
        }
        deadline = delivered.plus(patience);
    }
    let usage = ThreadUsage::now().since(before);
    facts.cpu_ns = usage.cpu_ns;
    facts.faults = usage.faults_minor + usage.faults_major;
    facts.preempted = usage.switches_involuntary;
    facts.migrations = u64::from(punctual_machine::cpu::current() != cpu);
    facts
}
