//! Behind the end of a load: requests that are open then are waited for, so that a lost one is told from one that is worked off late.

use std::time::Duration;

use punctual_machine::epoll::{EpollSet, Reports};
use punctual_machine::signal::interrupted;

use super::{LoadClient, now_ns};
use crate::sample::Outcome;

/// Limits of the wait for open requests behind the end of a load.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Patience {
    /// A server that said and took nothing for so long has nothing left to work off.
    pub(in crate::server) silence: Duration,
    /// One that still works is not waited for any longer.
    pub(in crate::server) total: Duration,
}

/// Longest wait for one report. A standstill of this process counts as twice that: the server may have stood still with it.
const LOOK: Duration = Duration::from_millis(50);

/// A reply that comes once more follows the last one, for which nothing waits.
const SURPLUS: Duration = Duration::from_millis(20);

impl Default for Patience {
    fn default() -> Self {
        Self { silence: Duration::from_secs(3), total: Duration::from_secs(10) }
    }
}

impl LoadClient<'_> {
    /// Takes late replies until nothing is open, or patience ends. Returns the outcome of what is open then: lost if the server was
    /// silent, else unfinished, as its queue may hold it.
    pub(super) fn wait_for_rest(&mut self, set: &EpollSet) -> Outcome {
        let over_ns = now_ns(self.clock);
        self.over_ns = Some(over_ns);
        let Patience { silence, total } = self.load.patience;
        let mut reports = Reports::default();
        let (mut silent, mut waited) = (Duration::ZERO, Duration::ZERO);
        while self.open > 0 && silent < silence && waited < total.max(silence) && !interrupted() {
            let (began_ns, moved) = (now_ns(self.clock), self.moved);
            self.hear(set, &mut reports, LOOK);
            let lasted = Duration::from_nanos(now_ns(self.clock) - began_ns).min(2 * LOOK);
            waited += lasted;
            silent = if self.moved == moved { silent + lasted } else { Duration::ZERO };
        }
        if self.open == 0 && !interrupted() {
            self.hear(set, &mut reports, SURPLUS);
        }
        self.waited = Duration::from_nanos(now_ns(self.clock) - over_ns);
        if silent >= silence && !interrupted() { Outcome::Lost } else { Outcome::Unfinished }
    }
}
