//! Processors that are awake when values are due. One that sleeps comes back late: a virtual one, which its host has taken
//! away meanwhile, by a millisecond. A thread on each that anybody else displaces spins around the instants.

use std::sync::Arc;
use std::thread::JoinHandle;

use punctual::Clock;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::Flag;
use punctual_machine::cpu::{SchedulingClass, allowed, pin_to, set_scheduling_class};
use punctual_machine::scheduling::{sleep_precisely, sleep_until};

use super::option::Settings;

/// The threads, until this is dropped.
#[derive(Debug)]
pub(super) struct IdleInhibitor {
    stop: Arc<Flag>,
    threads: Vec<JoinHandle<()>>,
}

/// When to be awake.
#[derive(Clone, Copy, Debug)]
struct Windows {
    first_ns: u64,
    /// From one instant to the next.
    step_ns: u64,
    /// Before and after each.
    half_ns: u64,
    last_ns: u64,
}

impl IdleInhibitor {
    /// From the barrier's opening on, if it was asked for.
    pub(super) fn start(settings: &Settings, start_ns: u64) -> Self {
        let step_ns = match settings.phase_ns() {
            0 => settings.period.as_nanos() as u64,
            phase_ns => phase_ns,
        };
        let windows = Windows {
            first_ns: start_ns,
            step_ns,
            half_ns: settings.awake.as_nanos() as u64,
            last_ns: start_ns + settings.lasts().as_nanos() as u64,
        };
        let stop = Arc::new(Flag::default());
        let cpus = if windows.half_ns > 0 { allowed() } else { Vec::new() };
        let start_one = |cpu| {
            let stop = Arc::clone(&stop);
            let thread = std::thread::Builder::new().name("awake".to_owned());
            // Without it the processor sleeps as usual.
            thread.spawn(move || keep_awake(cpu, windows, &stop)).ok()
        };
        let threads = cpus.into_iter().filter_map(start_one).collect();
        Self { stop, threads }
    }
}

impl Drop for IdleInhibitor {
    fn drop(&mut self) {
        self.stop.raise();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

fn keep_awake(cpu: usize, windows: Windows, stop: &Flag) {
    // One that took time from others would be worse than none.
    if pin_to(cpu).is_err() || set_scheduling_class(SchedulingClass::Idle).is_err() {
        return;
    }
    sleep_precisely();
    let clock = Clock::get();
    let mut due_ns = windows.first_ns;
    while due_ns <= windows.last_ns && !stop.is_raised() {
        sleep_until(due_ns - windows.half_ns);
        while monotonic_ns() < due_ns + windows.half_ns && !stop.is_raised() {
            // No pause instruction: hosts take the processor away from who gives too many.
            (0..64).for_each(|_| {
                std::hint::black_box(clock.now());
            });
        }
        due_ns += windows.step_ns;
    }
}
