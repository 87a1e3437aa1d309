//! CPU asleep: the thread was woken, and its CPU idled on. Not made on purpose: the cost of deep sleep is the processor's business.

use super::{BLANK, Definition};
use crate::explain::account::Absence;

pub(super) static DEFINITION: Definition = Definition {
    name: "cpu_asleep",
    words: "woken, but its CPU idled on: asleep itself, or not run by a hypervisor",
    fix: "keep the CPU awake (hold /dev/cpu_dma_latency at 0, or spin); under a hypervisor, a dedicated host",
    fixes: &["awake", "wake=spin"],
    in_trace: |clue| (clue.absence_without_quota() == Some(Absence::CpuAsleep)).then(String::new),
    ..BLANK
};
