//! Real-time limit: a real-time thread for the time that the kernel keeps for others, 50 ms of each second.
//!
//! Not made among others: it needs a run whose threads spin in a real-time class, and lasts as long as the kernel says.

use super::{Definition, Traits};

pub(super) static DEFINITION: Definition = Definition {
    name: "real_time_limit",
    words: "ready to run, but at the kernel's limit for real-time threads",
    evidence: "a real-time thread was ready for 40 ms and more while ordinary ones ran (sched_rt_runtime_us)",
    fix: "do not spin in a real-time class on a shared CPU; isolate the CPU, or --sched nice:-20",
    verify: "punctual verify RUN --fix nice",
    in_trace: |clue| clue.is_at_limit().then(|| clue.who_ran()),
    in_windows: |glance| if glance.is_at_limit() { glance.ready_us() } else { 0 },
    without_trace: None,
    traits: Traits { is_work: false, is_of_class: true },
    injections: &[],
};
