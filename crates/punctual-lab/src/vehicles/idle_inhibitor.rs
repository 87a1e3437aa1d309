//! Processors that are awake when values are due. One that sleeps comes back late: a virtual one, which its host has taken
//! away meanwhile, by a millisecond. A thread on each that anybody else displaces spins around the instants.

use punctual::Clock;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::{SchedulingClass, allowed, pin_to, set_scheduling_class};
use punctual_machine::scheduling::{sleep_precisely, sleep_until};

use super::option::VehiclesSettings;
use crate::scheduling::Job;

/// Keeps processors awake from the barrier's opening on, if that was asked for, until the job is dropped.
pub(super) fn keep_all_awake(settings: &VehiclesSettings, start_ns: u64) -> Job<()> {
    let instants = start_ns..=start_ns + settings.lasts().as_nanos() as u64;
    let instants = instants.step_by(settings.spacing_ns() as usize);
    let half_ns = settings.asked.awake.as_nanos() as u64;
    let cpus = if half_ns > 0 { allowed() } else { Vec::new() };
    // Where there is no room for a thread its processor sleeps as usual.
    Job::on_each("awake", &cpus, move |cpu, stop| {
        // One that took time from others would be worse than none.
        if pin_to(cpu).is_err() || set_scheduling_class(SchedulingClass::Idle).is_err() {
            return;
        }
        sleep_precisely();
        let clock = Clock::get();
        for due_ns in instants.clone().take_while(|_| !stop.is_raised()) {
            sleep_until(due_ns - half_ns);
            while monotonic_ns() < due_ns + half_ns && !stop.is_raised() {
                // No pause instruction: hosts take the processor away from a thread that gives too many.
                (0..64).for_each(|_| {
                    std::hint::black_box(clock.now());
                });
            }
        }
    })
}
