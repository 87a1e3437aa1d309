//! Throttled: the CPU quota of the thread's control group had run out.

use super::{BLANK, Definition};
use crate::explain::injection::{How, Injection, Needs, Scene};

pub(super) static DEFINITION: Definition = Definition {
    name: "throttled",
    words: "throttled: the CPU quota of its control group had run out",
    fix: "raise the quota of the control group (cpu.max, cpu.cfs_quota_us), or sleep where it spins",
    fixes: &["quota"],
    in_trace: |clue| clue.is_throttled().then(String::new),
    // The counter is of all CPUs: the hypervisor may have had this one meanwhile, and a frozen thread wants none. A thread held by it
    // was ready, or was taken off its CPU and never left it by itself; a thread that slept while it held others was not held.
    in_windows: |glance| {
        let seen = glance.seen;
        let is_taken_off = seen.switches_involuntary > 0 && seen.switches_voluntary == 0;
        let is_held = is_taken_off || seen.wait_us_most >= seen.throttled_us / 2;
        if !is_held {
            return 0;
        }
        let throttled_us = seen.throttled_us.saturating_sub(seen.stolen_us);
        glance.beyond_usual(throttled_us.saturating_sub(seen.frozen_us_most))
    },
    injections: &[Injection { name: "quota", how: How::OutsideBoth(Scene::throttle), needs: Needs::Quota }],
    ..BLANK
};
