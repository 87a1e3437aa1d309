//! The measuring client: closed loop as in the original, and open loop by absolute instants.
//!
//! Under closed load a trip lasts from before the send until its bytes are in the buffer, and the next leaves after it,
//! and after the idle gap. Under open load trip *k* is due at *t₀ + k·T* whatever is outstanding, and lasts from then.
//! The whole buffer is compared, after the trip's last instant was taken.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::ThreadUsage;
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_machine::signal::interrupted;

use super::delay::{Delay, Place};
use super::evidence::{Evidence, SchedSampler};
use super::port::{Arrival, Peer, Port};
use super::protocol::Protocol;
use super::trips::{RoundTrips, Seen};
use super::wire::{self, Header, Kind, Past, Record, TripId};
use crate::sample::Load;
use crate::scheduling::Control;

/// What one trial sends.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// Which packets.
    pub protocol: Protocol,
    /// When the next leaves.
    pub load: Load,
    /// Closed load: idle time before the next. Open load: the period.
    pub gap: Duration,
    /// Packet, bytes.
    pub size: usize,
    /// The trial ends after so long …
    pub duration: Duration,
    /// … or after so many trips.
    pub count: usize,
    /// Flows, in turn.
    pub flows: usize,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// Random number of the trial.
    pub run: u32,
    /// A trip later than this is slow enough to ask why at once.
    pub slow: Duration,
    /// Made on purpose.
    pub delay: Option<Delay>,
    /// Never sleeps between trips: for ways that have a CPU to themselves.
    pub spins: bool,
}

/// A window of one side's thread, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// What happened in it.
    pub evidence: Evidence,
    /// When it began and ended, nanoseconds of that side's own clock.
    pub span: (u64, u64),
}

/// What a trial brought beside its trips.
#[derive(Debug, Default)]
pub struct ClientTrace {
    /// The client's windows.
    pub client: Vec<Window>,
    /// The responder's, as far as replies brought them.
    pub responder: Vec<Window>,
    /// The client's thread over the trial.
    pub usage: ThreadUsage,
    /// Times that a CPU quota ran out.
    pub throttled: u64,
    /// Sends that found no room, or no way.
    pub refused: u64,
    /// Wall time of the trial.
    pub lasted: Duration,
}

/// Windows kept: at a millisecond each, two minutes.
const WINDOWS_MAX: usize = 1 << 17;

impl ClientTrace {
    /// Takes the memory of so many windows now, so that noting one faults no page.
    fn touch(&mut self, windows: usize) {
        let blank = Window { evidence: Evidence { number: 1, ..Evidence::default() }, span: (1, 1) };
        for side in [&mut self.client, &mut self.responder] {
            *side = vec![blank; windows];
            side.clear();
        }
    }
}

struct Run<'a> {
    port: &'a mut dyn Port,
    clock: &'static Clock,
    plan: &'a TrialPlan,
    target: Peer,
    trips: &'a mut RoundTrips,
    control: &'a Control,
    sampler: SchedSampler,
    trace: ClientTrace,
    request: Vec<u8>,
    buffer: Vec<u8>,
    slow: Ticks,
}

/// Runs one trial; the trips are noted in `trips`.
pub fn run(
    port: &mut dyn Port,
    target: Peer,
    plan: &TrialPlan,
    control: &Control,
    trips: &mut RoundTrips,
) -> ClientTrace {
    let clock = Clock::get();
    sleep_precisely();
    let mut trace = ClientTrace::default();
    trace.touch(WINDOWS_MAX);
    let mut run = Run {
        port,
        clock,
        plan,
        target,
        trips,
        control,
        sampler: SchedSampler::of_this_thread(),
        trace,
        request: vec![1; plan.size],
        // One byte more, so that a packet that grew is not taken for one that did not.
        buffer: vec![1; plan.size + 1],
        slow: clock.ticks(plan.slow),
    };
    let (usage, start) = (ThreadUsage::now(), clock.now());
    match plan.load {
        Load::Closed => run.closed(),
        Load::Open => run.open(),
    }
    run.trace.lasted = clock.duration(clock.now().since(start));
    run.drain();
    run.trace.usage = ThreadUsage::now().since(usage);
    run.trace.throttled = run.sampler.throttled_times();
    run.trips.close(clock.now());
    run.end();
    // Replies that overtook one another brought a window late, or twice.
    run.trace.responder.sort_by_key(|window| window.evidence.number);
    run.trace.responder.dedup_by_key(|window| window.evidence.number);
    run.trace
}

impl Run<'_> {
    fn goes_on(&self) -> bool {
        self.trips.has_room() && self.trips.len() < self.plan.count && !interrupted()
    }

    fn closed(&mut self) {
        let (gap, timeout) = (self.clock.ticks(self.plan.gap), self.clock.ticks(self.plan.timeout));
        let end = self.clock.now().plus(self.clock.ticks(self.plan.duration));
        let mut due = self.clock.now();
        while self.goes_on() {
            let from = self.clock.now();
            self.rest_until(due);
            if !self.plan.spins && due > from {
                self.sampler.note_idle(due.since(from));
            }
            let (sequence, sent) = self.send(due);
            Delay::make(self.plan.delay, Place::ReplyElsewhere);
            self.receive_answer_to(sequence, sent.plus(timeout));
            self.look_back(sequence);
            let now = self.clock.now();
            if now >= end {
                break;
            }
            due = now.plus(gap);
        }
    }

    fn open(&mut self) {
        let period = self.clock.ticks(self.plan.gap.max(Duration::from_micros(1)));
        let start = self.clock.now();
        let end = start.plus(self.clock.ticks(self.plan.duration));
        let mut due = start.plus(period);
        while self.goes_on() && due < end {
            while self.clock.now() < due && !interrupted() {
                if let Some(Some(sequence)) = self.receive_one(due) {
                    self.look_back(sequence);
                }
            }
            Delay::make(self.plan.delay, Place::Sent);
            self.send(due);
            due = due.plus(period);
        }
    }

    /// Until an absolute instant: lateness of one rest is not added to the next.
    fn rest_until(&self, instant: Ticks) {
        let now = self.clock.now();
        if instant <= now {
            return;
        }
        if self.plan.spins {
            while self.clock.now() < instant {
                std::hint::spin_loop();
            }
        } else {
            sleep_until(monotonic_ns() + self.clock.nanos(instant.since(now)));
        }
    }

    #[inline]
    fn send(&mut self, due: Ticks) -> (u64, Ticks) {
        let sequence = self.trips.len() as u64;
        let flow = (sequence % self.plan.flows as u64) as usize;
        let trip = TripId { run: self.plan.run, flow: flow as u32, sequence };
        self.plan.protocol.write_request(&mut self.request, trip);
        let sent = self.clock.now();
        self.trips.note_sent(due, sent);
        if !self.port.send(flow, &self.request, &self.target, sequence) {
            // Never taken: it counts as sent, for the load wanted it.
            self.trace.refused += 1;
        }
        (sequence, sent)
    }

    #[inline]
    fn receive_answer_to(&mut self, sequence: u64, deadline: Ticks) {
        while let Some(answered) = self.receive_one(deadline) {
            if answered == Some(sequence) {
                return;
            }
        }
    }

    /// Takes one packet: `Some(Some(number))` if it was the answer to a trip. `None` when the deadline passed.
    #[inline]
    fn receive_one(&mut self, deadline: Ticks) -> Option<Option<u64>> {
        let arrival = self.port.receive(&mut self.buffer, deadline)?;
        let bytes = &self.buffer[..arrival.size];
        let verdict = self.plan.protocol.read_reply(bytes, self.plan.run, self.plan.size);
        let Arrival { kernel, listened, woken, read, .. } = arrival;
        let seen = Seen { kernel, listened, woken, done: read };
        if let super::protocol::Verdict::Answer { record: Some(record), .. } = verdict {
            self.note_evidence(&record);
        }
        Some(self.trips.note_arrival(&verdict, seen))
    }

    fn note_evidence(&mut self, record: &Record) {
        let Some(Past { evidence, age_us }) = record.evidence else { return };
        let newest = self.trace.responder.last();
        let is_new = newest.is_none_or(|window| window.evidence.number != evidence.number);
        if is_new && self.trace.responder.len() < WINDOWS_MAX {
            let end = record.woken_ns().saturating_sub(u64::from(age_us) * 1000);
            let begin = end.saturating_sub(u64::from(evidence.wall_us) * 1000);
            self.trace.responder.push(Window { evidence, span: (begin, end) });
        }
    }

    /// Between two trips: the stamps of what was sent, and what this thread went through if that was slow.
    fn look_back(&mut self, sequence: u64) {
        let trips = &mut *self.trips;
        self.port.transmitted(&mut |tag, at| trips.note_transmitted(tag, at));
        let row = trips.rows().get(sequence as usize);
        let from = |row: &super::trips::Trip| match self.plan.load {
            Load::Open => row.due,
            Load::Closed => row.sent,
        };
        let was_slow = row.is_some_and(|row| row.seen.done.since(from(row)) > self.slow);
        if was_slow || self.sampler.is_due(self.clock.now()) {
            self.close_window(was_slow);
        }
    }

    fn close_window(&mut self, was_slow: bool) {
        let begin = self.sampler.since();
        let late_us = self.control.late_us_since(begin);
        let evidence = self.sampler.close(late_us, was_slow);
        if self.trace.client.len() < WINDOWS_MAX {
            let span = (self.clock.nanos(begin), self.clock.nanos(self.sampler.since()));
            self.trace.client.push(Window { evidence, span });
        }
    }

    /// Waits for what is still to come.
    fn drain(&mut self) {
        let deadline = self.clock.now().plus(self.clock.ticks(self.plan.timeout));
        while self.trips.open() > 0 && !interrupted() && self.receive_one(deadline).is_some() {}
        // What comes twice may come last.
        let grace = self.clock.now().plus(self.clock.ticks(GRACE));
        while self.receive_one(grace).is_some() {}
        let trips = &mut *self.trips;
        self.port.transmitted(&mut |tag, at| trips.note_transmitted(tag, at));
        self.close_window(true);
    }

    /// Tells a responder of ours that the trial is over. Lost on the way, the responder is told otherwise.
    fn end(&mut self) {
        if self.plan.protocol != Protocol::Punctual {
            return;
        }
        let trip = TripId { run: self.plan.run, flow: 0, sequence: u64::MAX };
        wire::write_header(&mut self.request, &Header { kind: Kind::End, trip, record: Record::default() });
        self.port.send(0, &self.request, &self.target, u64::MAX);
    }
}

/// How long a second answer is waited for when all first ones are there.
const GRACE: Duration = Duration::from_millis(2);
