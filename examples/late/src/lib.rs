//! Says of what a communicator received how late it was, and in which stage.

use punctual::{Clock, Communicator, Stage};

/// More is late.
const LATE_US: u64 = 1_000;

/// Prints the median, the maximum, and in which stage the late ones spent most of their time.
pub fn report(receiver: &mut Communicator) {
    let clock = Clock::get();
    let mut totals = Vec::new();
    let mut late = [0; Stage::ALL.len()];
    // The first message found a receiver that was still starting.
    for record in receiver.recorded().skip(1) {
        let in_stage = |stage: &Stage| record.stages.time_in(*stage).unwrap_or_default();
        let total_us = record.stages.total_at_least().map_or(0, |total| clock.nanos(total) / 1_000);
        totals.push(total_us);
        if total_us > LATE_US {
            let longest = (0..late.len()).max_by_key(|&stage| in_stage(&Stage::ALL[stage]));
            late[longest.expect("there are stages")] += 1;
        }
    }
    totals.sort_unstable();
    let Some(max) = totals.last() else { return println!("no message came") };
    println!("{} messages, median {} µs, max {max} µs", totals.len(), totals[totals.len() / 2]);
    for (stage, count) in Stage::ALL.iter().zip(late).filter(|(_, count)| *count > 0) {
        println!("late by more than {LATE_US} µs: {count}, most of it {}", stage.name());
    }
}
