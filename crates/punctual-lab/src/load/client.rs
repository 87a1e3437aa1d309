//! The measuring client: closed and open load over any link.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::cpu::ThreadUsage;
use punctual_machine::signal::interrupted;

use super::neighbour::Neighbours;
use super::ping::{self, Answer};
use super::recording::Recording;
use crate::link::{Link, Received};
use crate::sample::Load;

/// How long an answer is waited for. A message is lost when it has not come by then.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// What one trial sends.
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
    /// What goes before.
    pub warmup: Warmup,
    /// Processors on which somebody else computes meanwhile, from the end of the burst on.
    pub neighbours: [Option<usize>; 2],
}

/// Messages that a trial sends before those that count: all that it opened anew is warmed up anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Warmup {
    /// One after the other, without a gap: pages, caches, predictors.
    pub burst: usize,
    /// Then as many in the manner of the trial: what adapts itself to the gap.
    pub paced: usize,
}

impl Warmup {
    /// Messages of it.
    #[must_use]
    pub fn count(self) -> usize {
        self.burst + self.paced
    }
}

/// Where messages take milliseconds, the burst ends early: a warm-up is no measurement.
const BURST_MAX: Duration = Duration::from_millis(100);

/// What the client's own thread went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientFacts {
    /// Faults, switches, CPU time.
    pub usage: ThreadUsage,
    /// CPUs it was seen on, beyond the first.
    pub migrations: u64,
    /// Times the link had no room.
    pub full: u64,
    /// Messages that were warm-up.
    pub warmup: u64,
}

/// One trial in the making.
struct Run<'a> {
    link: &'a mut dyn Link,
    clock: &'static Clock,
    recording: &'a mut Recording,
    prepared: Vec<u8>,
    message: Vec<u8>,
    buffer: Vec<u8>,
    facts: ClientFacts,
}

/// Runs one trial over a link whose other end answers. Messages are noted in `recording`.
pub fn run(link: &mut dyn Link, trial: &Trial, recording: &mut Recording) -> ClientFacts {
    let clock = Clock::get();
    let mut prepared = vec![0; trial.size];
    ping::prepare(&mut prepared);
    let message = prepared.clone();
    let buffer = vec![0; trial.size];
    let mut run = Run { link, clock, recording, prepared, message, buffer, facts: ClientFacts::default() };
    let (before, cpu) = (ThreadUsage::now(), punctual_machine::cpu::current());
    run.burst(trial.warmup.burst);
    let cpus: Vec<usize> = trial.neighbours.into_iter().flatten().collect();
    let _neighbours = Neighbours::on(&cpus);
    run.facts.warmup = (run.recording.len() + trial.warmup.paced) as u64;
    match trial.load {
        Load::Closed => run.closed(trial),
        Load::Open => run.open(trial),
    }
    run.drain();
    run.facts.usage = ThreadUsage::now().since(before);
    run.facts.migrations = u64::from(punctual_machine::cpu::current() != cpu);
    run.recording.close(clock.now(), clock.ticks(PATIENCE));
    run.stop();
    run.facts
}

impl Run<'_> {
    /// One message after the other, as many as are asked for or as the time allows.
    fn burst(&mut self, messages: usize) {
        let end = self.clock.now().plus(self.clock.ticks(BURST_MAX));
        while self.recording.has_room() && self.recording.len() < messages && !interrupted() {
            let now = self.ask(self.clock.now());
            if now >= end {
                break;
            }
        }
    }

    fn closed(&mut self, trial: &Trial) {
        let gap = self.clock.ticks(trial.gap);
        let after = |now: Ticks| if gap.0 == 0 { now } else { now.plus(gap) };
        let count_max = self.recording.len() + trial.warmup.paced + trial.count_max;
        let steady_from = self.facts.warmup;
        let mut due = after(self.clock.now());
        let mut end = None;
        while self.recording.has_room() && self.recording.len() < count_max && !interrupted() {
            if end.is_none() && self.recording.len() as u64 >= steady_from {
                end = Some(self.clock.now().plus(self.clock.ticks(trial.duration)));
            }
            self.wait_until(due);
            let now = self.ask(due);
            if end.is_some_and(|end| now >= end) {
                break;
            }
            due = after(now);
        }
    }

    /// Sends one message and waits for its answer; says when that was there.
    #[inline]
    fn ask(&mut self, due: Ticks) -> Ticks {
        let sequence = self.recording.len() as u64;
        let sent = self.send(due);
        self.receive_answer_to(sequence, sent.plus(self.clock.ticks(PATIENCE)));
        self.clock.now()
    }

    fn open(&mut self, trial: &Trial) {
        let period = self.clock.ticks(trial.gap.max(Duration::from_micros(1)));
        let start = self.clock.now().plus(period);
        let paced = period.0.saturating_mul(trial.warmup.paced as u64);
        let end = start.plus(Ticks(paced)).plus(self.clock.ticks(trial.duration));
        let count_max = self.recording.len() + trial.warmup.paced + trial.count_max;
        let mut due = start;
        while self.recording.has_room() && self.recording.len() < count_max && !interrupted() {
            while self.clock.now() < due {
                self.receive_one(due);
            }
            self.send(due);
            due = due.plus(period);
            if due >= end {
                break;
            }
        }
    }

    /// Spins: a sleep would be late by a timer's slack, and the idle gap is the other side's, not ours.
    fn wait_until(&self, instant: Ticks) {
        while self.clock.now() < instant {
            std::hint::spin_loop();
        }
    }

    fn send(&mut self, due: Ticks) -> Ticks {
        let sequence = self.recording.len() as u64;
        let give_up = self.clock.now().plus(self.clock.ticks(PATIENCE));
        loop {
            let sent = self.clock.now();
            ping::write_request(&mut self.message, sequence, sent);
            if self.link.send(&self.message, due) {
                self.recording.note_sent(due, sent);
                return sent;
            }
            self.facts.full += 1;
            if sent >= give_up {
                // Never taken: it counts as sent and lost, for the load wanted it.
                self.recording.note_sent(due, sent);
                return sent;
            }
        }
    }

    #[inline]
    fn receive_answer_to(&mut self, sequence: u64, deadline: Ticks) {
        while let Some(answered) = self.receive_one(deadline) {
            if answered == Some(sequence) {
                return;
            }
        }
    }

    /// Takes one answer: `Some(Some(number))` if it was whole. `None` when the deadline passed.
    #[inline]
    fn receive_one(&mut self, deadline: Ticks) -> Option<Option<u64>> {
        let Received { size, stages } = self.link.receive(&mut self.buffer, deadline)?;
        let done = self.clock.now();
        let Some(answer) = self.buffer.get(..size).and_then(|bytes| ping::read_answer(bytes, &self.prepared))
        else {
            self.recording.note_mismatch(done);
            return Some(None);
        };
        let Answer { sequence, delivered, stages: request } = answer;
        if let Some(row) = self.recording.note_answer(sequence, done) {
            row.delivered = delivered;
            row.request = request;
            row.reply = stages;
        }
        Some(Some(sequence))
    }

    /// Waits for what is still to come.
    fn drain(&mut self) {
        let deadline = self.clock.now().plus(self.clock.ticks(PATIENCE));
        while self.recording.open() > 0 && self.receive_one(deadline).is_some() && !interrupted() {}
    }

    fn stop(&mut self) {
        ping::write_stop(&mut self.message);
        // Lost on the way, the responder's own patience ends the trial.
        let now = self.clock.now();
        self.link.send(&self.message, now);
    }
}
