//! The other end: answers every message at once, and says where the request's time went.

use std::time::Duration;

use punctual::{Clock, Stages, Ticks};
use punctual_machine::cpu::ThreadUsage;
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::ping;
use crate::endpoint::{Endpoint, EndpointPlan, Received};
use crate::explain::kept::{ThreadWindows, WindowLog};

/// The responder's statistics for one trial.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ResponderFacts {
    /// Messages answered.
    pub answered: u64,
    /// Answers that found no room.
    pub refused: u64,
    /// CPU time for `cpu_messages`, nanoseconds; 0 if the client did not say that the trial was over.
    pub cpu_ns: u64,
    /// Messages behind the warm-up and the first that counts: a pause may lie before that one.
    pub cpu_messages: u64,
    /// Page faults behind the warm-up.
    pub faults: u64,
    /// Times taken off the CPU.
    pub preempted: u64,
    /// CPUs it was seen on, beyond the first.
    pub migrations: u64,
}

/// A client that says nothing for so long is gone. One that lives is silent for seconds where a host takes the CPUs away, or
/// where it starts among a crowd.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// The same of a client that was interrupted as this responder was: it says no more, or its last message was lost.
const SILENCE_AFTER_INTERRUPT_MAX: Duration = Duration::from_secs(1);

/// Between two looks whether this process was interrupted. A client that goes on asks more often.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A request that took longer is asked about at once.
const SLOW: Duration = Duration::from_micros(200);

/// The windows of its thread. It asks the kernel behind an answer that says so, when no request is there.
struct Watch {
    log: WindowLog,
    slow: Ticks,
    wants_look: bool,
    was_slow: bool,
}

impl Watch {
    fn new(windows: usize) -> Self {
        let (log, slow) = (WindowLog::of_this_thread(windows), Clock::get().ticks(SLOW));
        Self { log, slow, wants_look: false, was_slow: false }
    }

    /// Notes that a request was delivered. Returns true if the responder is to look behind the answer.
    #[inline]
    fn note(&mut self, stages: Option<&Stages>, delivered: Ticks) -> bool {
        if let Some(stages) = stages {
            let slept = stages.slept_before(self.log.since());
            if slept.0 > 0 {
                self.log.note_idle(slept);
            }
            self.was_slow |= stages.total_at_least().is_some_and(|total| total > self.slow);
        }
        self.wants_look |= self.was_slow || self.log.is_due(delivered);
        self.wants_look
    }

    fn look(&mut self) {
        self.log.close(0, self.was_slow);
        (self.wants_look, self.was_slow) = (false, false);
    }
}

/// Waits for the next request, until nothing has come for too long. A look, if one is wanted, comes first, unless a request is here.
/// The thread's usage at the first silence is noted: behind the last request that is the end of its work.
#[inline]
fn next(
    endpoint: &mut dyn Endpoint,
    buffer: &mut [u8],
    last: Ticks,
    watch: Option<&mut Watch>,
    silent: &mut Option<ThreadUsage>,
) -> Option<Received> {
    if let Some(watch) = watch.filter(|watch| watch.wants_look) {
        let here = endpoint.try_receive(buffer);
        if here.is_some() {
            return here;
        }
        watch.look();
    }
    let clock = Clock::get();
    loop {
        let now = clock.now();
        let silence_max = if interrupted() { SILENCE_AFTER_INTERRUPT_MAX } else { SILENCE_MAX };
        let end = last.plus(clock.ticks(silence_max));
        let received = endpoint.receive(buffer, end.min(now.plus(clock.ticks(BETWEEN_LOOKS))));
        if received.is_some() || now >= end {
            return received;
        }
        silent.get_or_insert_with(ThreadUsage::now);
    }
}

/// Answers until the trial ends, or the client is silent for too long. With its windows, if the plan wants them.
pub fn respond(endpoint: &mut dyn Endpoint, plan: &EndpointPlan) -> (ResponderFacts, Option<ThreadWindows>) {
    let clock = Clock::get();
    let mut facts = ResponderFacts::default();
    let (before, cpu) = (ThreadUsage::now(), punctual_machine::cpu::current());
    let mut watch = (plan.windows > 0).then(|| Watch::new(plan.windows));
    let mut buffer = vec![0; plan.size];
    let (mut last, mut is_stopped) = (clock.now(), false);
    let mut warm = (plan.warmup == 0).then_some(before);
    let (mut working, mut silent) = (None, None);
    while let Some(Received { size, stages }) = next(endpoint, &mut buffer, last, watch.as_mut(), &mut silent)
    {
        let delivered = stages.map_or_else(|| clock.now_after_loads(), |stages| stages.receiver.delivered);
        let Some(message) = buffer.get_mut(..size).filter(|message| message.len() >= ping::SIZE_MIN) else {
            continue;
        };
        is_stopped = ping::is_stop(message);
        if is_stopped {
            break;
        }
        ping::write_answer(message, delivered, stages.as_ref());
        if let Some(watch) = &mut watch {
            ping::write_look(message, watch.note(stages.as_ref(), delivered));
        }
        if endpoint.send(message, delivered) {
            facts.answered += 1;
        } else {
            facts.refused += 1;
        }
        let count = facts.answered + facts.refused;
        if warm.is_none() && count >= plan.warmup {
            warm = Some(ThreadUsage::now());
        } else if working.is_none() && count > plan.warmup {
            working = Some(ThreadUsage::now());
        }
        (last, silent) = (delivered, None);
    }
    let now = ThreadUsage::now();
    let usage = now.since(before);
    let steady = warm.map(|warm| now.since(warm)).unwrap_or_default();
    // A responder that polled through a silence of seconds used that CPU time for no request.
    if let Some(working) = working.filter(|_| is_stopped) {
        facts.cpu_ns = silent.unwrap_or(now).since(working).cpu_ns;
        facts.cpu_messages = facts.answered + facts.refused - plan.warmup - 1;
    }
    facts.faults = steady.faults_minor + steady.faults_major;
    facts.preempted = usage.switches_involuntary;
    facts.migrations = u64::from(punctual_machine::cpu::current() != cpu);
    let windows = watch.map(|mut watch| {
        watch.look();
        watch.log.finish()
    });
    (facts, windows)
}

#[cfg(test)]
mod tests {
    use punctual_machine::memory::Mapping;

    use super::*;
    use crate::endpoint::Stack;
    use punctual::Wake;

    const RING_SIZE: usize = 1 << 20;

    /// Asks so often, then stops; makes a ring for the answer of one number.
    struct Asks {
        left: u64,
        answered: u64,
        makes_ring_at: u64,
    }

    impl Endpoint for Asks {
        fn send(&mut self, _message: &[u8], _due: Ticks) -> bool {
            if self.answered == self.makes_ring_at {
                drop(Mapping::anonymous(RING_SIZE).expect("room"));
            }
            self.answered += 1;
            true
        }

        fn receive(&mut self, buffer: &mut [u8], _deadline: Ticks) -> Option<Received> {
            ping::prepare(buffer);
            if self.left == 0 {
                ping::write_stop(buffer);
            }
            self.left = self.left.saturating_sub(1);
            Some(Received { size: buffer.len(), stages: None })
        }
    }

    /// Answers that wait for nothing, and one wait each before the first request and before the end in which CPU time is used.
    struct Burns {
        asked: u64,
        burnt_ns: u64,
    }

    impl Burns {
        /// Requests, of which half are the warm-up.
        const COUNT: u64 = 40;
        const BURNT_NS: u64 = 50_000_000;

        fn burn(&mut self) {
            let start = ThreadUsage::now();
            while ThreadUsage::now().since(start).cpu_ns < Self::BURNT_NS {}
            self.burnt_ns += ThreadUsage::now().since(start).cpu_ns;
        }
    }

    impl Endpoint for Burns {
        fn send(&mut self, _message: &[u8], _due: Ticks) -> bool {
            true
        }

        fn receive(&mut self, buffer: &mut [u8], _deadline: Ticks) -> Option<Received> {
            ping::prepare(buffer);
            self.asked += 1;
            match self.asked {
                1 => self.burn(),
                // Behind the last request nothing comes for a while.
                at if at == Self::COUNT + 1 => return None,
                at if at > Self::COUNT => {
                    self.burn();
                    ping::write_stop(buffer);
                }
                _ => {}
            }
            Some(Received { size: buffer.len(), stages: None })
        }
    }

    /// Goal: CPU time is that of the requests that count: not of the warm-up, nor of the silence before the end. Method: all of the work is
    /// far less than the time that is burnt in either.
    #[test]
    fn cpu_time_is_that_of_the_requests_that_count() {
        let warmup = Burns::COUNT / 2;
        let plan =
            EndpointPlan { warmup, ..EndpointPlan::new(None, Stack::Bare, Wake::Spin, ping::SIZE_MIN) };
        let mut burns = Burns { asked: 0, burnt_ns: 0 };
        let before = ThreadUsage::now();
        let (facts, _) = respond(&mut burns, &plan);
        let all_ns = ThreadUsage::now().since(before).cpu_ns;
        assert_eq!((facts.answered, facts.cpu_messages), (Burns::COUNT, warmup - 1));
        assert!(
            facts.cpu_ns > 0 && facts.cpu_ns <= all_ns - burns.burnt_ns,
            "{} ns of {all_ns}",
            facts.cpu_ns
        );
    }

    /// Goal: page faults of the warm-up are none of the trial's; those of a message that counts are.
    #[test]
    fn page_faults_are_counted_behind_the_warm_up() {
        let plan =
            EndpointPlan { warmup: 20, ..EndpointPlan::new(None, Stack::Bare, Wake::Spin, ping::SIZE_MIN) };
        let faults = |makes_ring_at| {
            let mut asks = Asks { left: 40, answered: 0, makes_ring_at };
            let (facts, _) = respond(&mut asks, &plan);
            assert_eq!(facts.answered, 40);
            facts.faults
        };
        let pages = (RING_SIZE / 4096) as u64;
        assert!(faults(0) < pages && faults(19) < pages);
        assert!(faults(20) >= pages && faults(39) >= pages);
    }
}
