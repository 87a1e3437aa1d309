//! Other work that ran on our processors during a run. A load average tells of the minute before, and of us.

use std::time::{Duration, Instant};

use punctual_lab_machine::host::{busy_ticks, own_ticks};

use crate::doubt::Cause;

/// Less of one processor is the kernel's own housekeeping, and what ticks of 10 ms cannot resolve.
const PROCESSORS_MIN: f64 = 0.1;

/// In a shorter time a few ticks say nothing.
const WATCHED_MIN: Duration = Duration::from_millis(200);

/// Duration of a tick: user space sees hundredths of a second on every kernel.
const TICK: Duration = Duration::from_millis(10);

/// A look at who has used the processors so far.
#[derive(Debug)]
pub(crate) struct Surroundings {
    cpus: Vec<usize>,
    since: Instant,
    /// All processes, and this one with its children; `None` where the kernel does not say.
    ticks: Option<[u64; 2]>,
}

impl Surroundings {
    /// From now on, on the processors that the calling thread may use.
    pub(crate) fn watch() -> Self {
        let cpus = punctual_machine::cpu::allowed();
        Self { ticks: look(&cpus), since: Instant::now(), cpus }
    }

    /// Others have used the same processors since.
    pub(crate) fn doubt(&self) -> Option<Cause> {
        doubt_of(self.ticks?, look(&self.cpus)?, self.since.elapsed())
    }
}

fn look(cpus: &[usize]) -> Option<[u64; 2]> {
    // Ours first: time that we use between the two is then charged to nobody else.
    let own = own_ticks()?;
    Some([busy_ticks(cpus)?, own])
}

fn doubt_of(before: [u64; 2], after: [u64; 2], watched: Duration) -> Option<Cause> {
    let [all, own] = [0, 1].map(|which| after[which].saturating_sub(before[which]));
    let used = TICK.as_secs_f64() * all.saturating_sub(own) as f64;
    let processors = used / watched.as_secs_f64().max(TICK.as_secs_f64());
    (watched >= WATCHED_MIN && processors >= PROCESSORS_MIN).then_some(Cause::OthersRan { processors })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: our own work raises no doubt, however much it is; somebody else's does.
    #[test]
    fn only_others_are_doubted() {
        let second = Duration::from_secs(1);
        assert_eq!(doubt_of([500, 100], [700, 300], second), None, "ours alone");
        assert_eq!(doubt_of([500, 100], [705, 300], second), None, "the kernel's housekeeping");
        assert_eq!(doubt_of([500, 100], [700, 200], second), Some(Cause::OthersRan { processors: 1.0 }));
        assert_eq!(doubt_of([500, 100], [520, 100], Duration::from_millis(150)), None, "too short to tell");
        assert_eq!(doubt_of([500, 100], [600, 700], second), None, "ours is rounded up");
    }
}
