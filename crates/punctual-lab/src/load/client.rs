//! The measuring client: closed and open load over any endpoint.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::cpu::ThreadUsage;
use punctual_machine::signal::interrupted;

use super::neighbour::neighbours;
use super::pace::{Client, spin_until};
use super::ping::{self, Answer, PingDetail};
use super::recording::Recording;
use super::watch::ClientWatch;
use crate::endpoint::{Endpoint, Received};
use crate::sample::Load;

/// Longest wait for an answer before the next message leaves.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// Longest wait for the last answers. A message is lost when its answer has not come by then: an answer that a host without CPUs to
/// spare keeps back for a second is late, not lost. A message that is on its way at a Ctrl-C is unfinished.
const LAST_ANSWERS_MAX: Duration = Duration::from_secs(3);

/// Messages that one trial sends.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// When the next message leaves.
    pub load: Load,
    /// Closed load: idle time between an answer and the next message. Open load: time between due instants.
    pub gap: Duration,
    /// Payload, bytes.
    pub size: usize,
    /// The trial ends when this has passed …
    pub duration: Duration,
    /// … or after so many messages; those of the warm-up are not among them.
    pub count_max: usize,
    /// The warm-up that goes before.
    pub warmup: Warmup,
    /// Processors on which somebody else computes meanwhile, from the end of the burst on.
    pub neighbours: [Option<usize>; 2],
    /// Records the kernel too, where windows are kept.
    pub is_traced: bool,
}

impl Trial {
    /// Closed load without a gap, a warm-up, and anything beside it. It says nothing yet of its messages' size, its duration and its
    /// count.
    pub const CLOSED: Self = Self {
        load: Load::Closed,
        gap: Duration::ZERO,
        size: ping::SIZE_MIN,
        duration: Duration::ZERO,
        count_max: 0,
        warmup: Warmup { burst: 0, paced: 0 },
        neighbours: [None; 2],
        is_traced: false,
    };
}

/// Messages that a trial sends before those that count: all that it opened anew is warmed up anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Warmup {
    /// One after the other, without a gap: pages, caches, predictors.
    pub burst: usize,
    /// Then as many in the manner of the trial: for everything that adapts itself to the gap.
    pub paced: usize,
}

impl Warmup {
    /// Messages of it.
    pub fn count(self) -> usize {
        self.burst + self.paced
    }
}

/// Where messages take milliseconds, the burst ends early: a warm-up is no measurement.
const BURST_MAX: Duration = Duration::from_millis(100);

/// Facts about the client's own thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientFacts {
    /// Faults, switches, CPU time, without the warm-up; of open load, without its burst.
    pub usage: ThreadUsage,
    /// CPUs it was seen on, beyond the first.
    pub migrations: u64,
    /// Times the endpoint had no room.
    pub full: u64,
    /// Messages that were warm-up.
    pub warmup: u64,
}

/// One trial in the making.
struct ClientTrial<'a> {
    endpoint: &'a mut dyn Endpoint,
    clock: &'static Clock,
    recording: &'a mut Recording<PingDetail>,
    /// Messages after which it ends.
    count_max: usize,
    prepared: Vec<u8>,
    message: Vec<u8>,
    buffer: Vec<u8>,
    facts: ClientFacts,
    load: Load,
    watch: Option<&'a mut ClientWatch>,
}

/// Runs one trial over an endpoint whose other end answers. Messages are noted in `recording`, and the events of this thread meanwhile
/// in `watch`.
pub fn run(
    endpoint: &mut dyn Endpoint,
    trial: &Trial,
    recording: &mut Recording<PingDetail>,
    watch: Option<&mut ClientWatch>,
) -> ClientFacts {
    let clock = Clock::get();
    let mut prepared = vec![0; trial.size];
    ping::prepare(&mut prepared);
    let message = prepared.clone();
    let buffer = vec![0; trial.size];
    let (count_max, facts) = (trial.warmup.burst, ClientFacts::default());
    // The burst is closed load.
    let load = Load::Closed;
    let mut run =
        ClientTrial { endpoint, clock, recording, count_max, prepared, message, buffer, facts, load, watch };
    let cpu = punctual_machine::cpu::current();
    let start = clock.now();
    run.closed(start, Ticks(0), clock.ticks(PATIENCE), start.plus(clock.ticks(BURST_MAX)));
    let cpus: Vec<usize> = trial.neighbours.into_iter().flatten().collect();
    let _neighbours = neighbours(&cpus);
    let before = run.paced(trial);
    run.drain();
    if let Some(watch) = &mut run.watch {
        watch.finish();
    }
    run.facts.usage = ThreadUsage::now().since(before);
    run.facts.migrations = u64::from(punctual_machine::cpu::current() != cpu);
    run.recording.close(clock.now(), clock.ticks(LAST_ANSWERS_MAX));
    run.stop();
    run.facts
}

impl ClientTrial<'_> {
    /// The warm-up in the manner of the trial, and the trial. Returns what this thread had used before: the first message makes what
    /// a mechanism needs, and faults in its pages.
    fn paced(&mut self, trial: &Trial) -> ThreadUsage {
        let (clock, gap, paced) = (self.clock, self.clock.ticks(trial.gap), trial.warmup.paced);
        let warmup = self.recording.len() + paced;
        self.facts.warmup = warmup as u64;
        self.load = trial.load;
        match trial.load {
            Load::Closed => {
                let after = || clock.now().plus(gap);
                self.count_max = warmup;
                self.closed(after(), gap, clock.ticks(PATIENCE), Ticks(u64::MAX));
                let before = ThreadUsage::now();
                self.count_max = warmup + trial.count_max;
                let end = clock.now().plus(clock.ticks(trial.duration));
                self.closed(after(), gap, clock.ticks(PATIENCE), end);
                before
            }
            Load::Open => {
                let period = clock.ticks(trial.gap.max(Duration::from_micros(1)));
                let start = clock.now().plus(period);
                let warm = start.plus(Ticks(period.0.saturating_mul(paced as u64)));
                let before = ThreadUsage::now();
                self.count_max = warmup + trial.count_max;
                self.open(start, trial.gap, warm.plus(clock.ticks(trial.duration)));
                before
            }
        }
    }

    /// Waits for what is still to come.
    fn drain(&mut self) {
        let deadline = self.clock.now().plus(self.clock.ticks(LAST_ANSWERS_MAX));
        while self.recording.open() > 0 && self.receive_one(deadline).is_some() && !interrupted() {}
    }

    fn stop(&mut self) {
        ping::write_stop(&mut self.message);
        // Lost on the way, the responder's own patience ends the trial.
        let begun = self.clock.now();
        let give_up = begun.plus(self.clock.ticks(PATIENCE));
        while !self.endpoint.send(&self.message, begun) && self.clock.now() < give_up {}
    }
}

impl Client for ClientTrial<'_> {
    #[inline]
    fn goes_on(&mut self) -> bool {
        self.recording.has_room() && self.recording.len() < self.count_max && !interrupted()
    }

    /// Spins: the idle gap is the other side's, not ours.
    #[inline]
    fn rest_until(&mut self, instant: Ticks) {
        spin_until(instant);
    }

    fn send(&mut self, due: Ticks) -> (u64, Ticks) {
        let sequence = self.recording.len() as u64;
        let give_up = self.clock.now().plus(self.clock.ticks(PATIENCE));
        loop {
            let sent = self.clock.now();
            ping::write_request(&mut self.message, sequence, sent);
            let is_taken = self.endpoint.send(&self.message, due);
            self.facts.full += u64::from(!is_taken);
            if is_taken || sent >= give_up {
                // Never taken, it counts as sent and lost, for the load wanted it.
                self.recording.note_sent(due, sent);
                return (sequence, sent);
            }
        }
    }

    #[inline]
    fn receive_one(&mut self, deadline: Ticks) -> Option<Option<u64>> {
        let Received { size, stages } = self.endpoint.receive(&mut self.buffer, deadline)?;
        // Not before the answer's last line is here.
        let done = self.clock.now_after_loads();
        let Some(answer) = self.buffer.get(..size).and_then(|bytes| ping::read_answer(bytes, &self.prepared))
        else {
            self.recording.note_damage(None, done);
            return Some(None);
        };
        let Answer { sequence, delivered, stages: request, looks } = answer;
        if looks && let Some(watch) = &mut self.watch {
            watch.note_other_looks();
        }
        if let Some(row) = self.recording.note_answer(sequence, done) {
            row.detail = PingDetail { delivered, request, reply: stages };
        }
        Some(Some(sequence))
    }

    #[inline]
    fn look_back(&mut self, sequence: u64, next: Option<Ticks>) {
        let Some(watch) = &mut self.watch else { return };
        let row = usize::try_from(sequence).ok().and_then(|place| self.recording.rows().get(place));
        let span = row.map(|row| (row.start(self.load), row.done));
        let (recording, lost_after) = (&mut *self.recording, self.clock.ticks(PATIENCE));
        watch.look_back(span, next, |now| recording.under_way(now, lost_after));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::VecDeque;

    use punctual_machine::memory::Mapping;

    use super::*;

    const RING_SIZE: usize = 1 << 20;

    /// Answers at once, and makes a ring for the message of one number, as the first message to a target does.
    struct Echo {
        sent: u64,
        makes_ring_at: u64,
        waiting: Option<Vec<u8>>,
    }

    impl Endpoint for Echo {
        fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
            if self.sent == self.makes_ring_at {
                drop(Mapping::anonymous(RING_SIZE).expect("room"));
            }
            self.sent += 1;
            self.waiting = Some(message.to_vec());
            true
        }

        fn receive(&mut self, buffer: &mut [u8], _deadline: Ticks) -> Option<Received> {
            let mut answer = self.waiting.take()?;
            ping::write_answer(&mut answer, Clock::get().now(), None);
            buffer[..answer.len()].copy_from_slice(&answer);
            Some(Received { size: answer.len(), stages: None })
        }
    }

    /// Goal: page faults of the first message are none of the trial's; those of a message that counts are.
    #[test]
    fn page_faults_are_counted_behind_the_warm_up() {
        let faults = |load, makes_ring_at| {
            let trial = Trial {
                load,
                gap: Duration::from_micros(100),
                duration: Duration::from_secs(60),
                count_max: 20,
                warmup: Warmup { burst: 10, paced: 10 },
                ..Trial::CLOSED
            };
            let mut recording = Recording::new(40, 1);
            let mut echo = Echo { sent: 0, makes_ring_at, waiting: None };
            let facts = run(&mut echo, &trial, &mut recording, None);
            assert_eq!((recording.len(), facts.warmup), (40, 20));
            facts.usage.faults_minor
        };
        let pages = (RING_SIZE / 4096) as u64;
        for load in [Load::Closed, Load::Open] {
            assert!(faults(load, 0) < pages, "{load:?}");
            assert!(faults(load, 30) >= pages, "{load:?}");
        }
    }

    /// Answers what it is asked, but for some numbers; the answers to others come a message later.
    pub(crate) struct Slow {
        silent: fn(u64) -> bool,
        late: fn(u64) -> bool,
        sent: u64,
        here: VecDeque<Vec<u8>>,
        later: Vec<Vec<u8>>,
    }

    impl Slow {
        /// It is silent on these messages and late with those, by their place in the order in which they are sent.
        pub(crate) fn new(silent: fn(u64) -> bool, late: fn(u64) -> bool) -> Self {
            Self { silent, late, sent: 0, here: VecDeque::new(), later: Vec::new() }
        }

        /// Answers that come with the next message.
        pub(crate) fn under_way(&self) -> usize {
            self.later.len()
        }
    }

    impl Endpoint for Slow {
        fn send(&mut self, message: &[u8], _due: Ticks) -> bool {
            let mut answer = message.to_vec();
            ping::write_answer(&mut answer, Clock::get().now(), None);
            self.here.extend(self.later.drain(..));
            match self.sent {
                number if (self.silent)(number) => {}
                number if (self.late)(number) => self.later.push(answer),
                _ => self.here.push_back(answer),
            }
            self.sent += 1;
            true
        }

        fn receive(&mut self, buffer: &mut [u8], _deadline: Ticks) -> Option<Received> {
            let answer = self.here.pop_front()?;
            buffer.copy_from_slice(&answer);
            Some(Received { size: answer.len(), stages: None })
        }
    }

    /// Goal: one answer that never comes is one message without an answer, and a late one is none.
    #[test]
    fn a_missed_answer_is_one_message() {
        let unanswered = |silent, late| {
            let trial = Trial { duration: Duration::from_secs(60), count_max: 20, ..Trial::CLOSED };
            let mut endpoint = Slow::new(silent, late);
            let mut recording = Recording::new(20, 1);
            run(&mut endpoint, &trial, &mut recording, None);
            let ends = recording.ends();
            assert_eq!(ends.sent, 20);
            ends.sent - ends.answered
        };
        assert_eq!(unanswered(|_| false, |_| false), 0);
        assert_eq!(unanswered(|number| number == 5, |_| false), 1);
        assert_eq!(unanswered(|_| false, |number| number == 5), 0);
        assert_eq!(unanswered(|number| number == 0, |number| number == 7), 1);
        assert_eq!(unanswered(|_| true, |_| false), 20);
    }
}
