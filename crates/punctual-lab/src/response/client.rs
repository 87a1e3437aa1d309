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

use super::delay::{Delay, DelayPoint};
use super::protocol::{Protocol, Verdict};
use super::trips::{RoundTrips, Seen, Trip};
use super::wire::{self, PacketHeader, PacketKind, Past, Record, TripId};
use crate::endpoint::port::{Arrival, Peer, Port};
use crate::explain::injection::{Mishap, Mishaps};
use crate::explain::kept::{ClockPair, WINDOWS_MAX, WindowLog};
use crate::explain::recorder::LateRecorder;
use crate::load::pace::Client;
use crate::sample::Load;
use crate::scheduling::Control;
use punctual_machine::window::{Evidence, Window};

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
    /// The same, of single trips.
    pub mishaps: Vec<Mishap>,
    /// Never sleeps between trips: for ways that have a CPU to themselves.
    pub spins: bool,
    /// Keeps windows of what its thread went through.
    pub keeps_windows: bool,
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
    /// Replies that found no room where they are received, if that is known.
    pub dropped: Option<u64>,
    /// Replies of which fragments are missing, if that is known.
    pub incomplete: Option<u64>,
    /// Wall time of the trial.
    pub lasted: Duration,
}

impl ClientTrace {
    /// Takes the memory of so many windows of the responder now, so that noting one faults no page.
    fn touch(&mut self, windows: usize) {
        let blank = Window { evidence: Evidence { number: 1, ..Evidence::default() }, span: (1, 1) };
        self.responder = vec![blank; windows];
        self.responder.clear();
    }
}

struct ResponseClient<'a> {
    port: &'a mut dyn Port,
    clock: &'static Clock,
    plan: &'a TrialPlan,
    target: Peer,
    trips: &'a mut RoundTrips,
    control: &'a Control,
    /// Dumps the kernel's trace when a trip was late.
    recorder: Option<&'a mut LateRecorder>,
    log: WindowLog,
    trace: ClientTrace,
    request: Vec<u8>,
    buffer: Vec<u8>,
    slow: Ticks,
    mishaps: Mishaps,
}

/// Runs one trial; the trips are noted in `trips`.
pub fn run(
    port: &mut dyn Port,
    target: Peer,
    plan: &TrialPlan,
    control: &Control,
    trips: &mut RoundTrips,
    recorder: Option<&mut LateRecorder>,
) -> ClientTrace {
    let clock = Clock::get();
    sleep_precisely();
    let mut trace = ClientTrace::default();
    trace.touch(WINDOWS_MAX);
    let mut run = ResponseClient {
        port,
        clock,
        plan,
        target,
        trips,
        control,
        recorder,
        log: WindowLog::of_this_thread(WINDOWS_MAX),
        trace,
        request: vec![1; plan.size],
        // One byte more, so that a packet that grew is not taken for one that did not.
        buffer: vec![1; plan.size + 1],
        slow: clock.ticks(plan.slow),
        mishaps: Mishaps::of(&plan.mishaps, 0),
    };
    let (usage, start) = (ThreadUsage::now(), clock.now());
    let end = start.plus(clock.ticks(plan.duration));
    match plan.load {
        Load::Closed => run.closed(start, clock.ticks(plan.gap), clock.ticks(plan.timeout), end),
        Load::Open => {
            let period = plan.gap.max(Duration::from_micros(1));
            run.open(start.plus(clock.ticks(period)), period, end);
        }
    }
    run.trace.lasted = clock.duration(clock.now().since(start));
    run.drain();
    run.trace.usage = ThreadUsage::now().since(usage);
    run.trace.throttled = run.log.throttled_times();
    run.trace.dropped = run.port.dropped();
    run.trace.incomplete = run.port.incomplete();
    run.trips.close(clock.now(), clock.ticks(plan.timeout));
    run.end();
    // Replies that overtook one another brought a window late, or twice.
    run.trace.responder.sort_by_key(|window| window.evidence.number);
    run.trace.responder.dedup_by_key(|window| window.evidence.number);
    ClientTrace { client: run.log.finish().nanos(), ..run.trace }
}

impl ResponseClient<'_> {
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

    /// Under open load: if no trip is under way, and the next is not due too soon.
    fn dump_before(&mut self, due: Ticks) {
        if self.recorder.is_some() && self.trips.open() == 0 {
            self.dump_within(Some(self.clock.duration(due.since(self.clock.now()))));
        }
    }

    /// Dumps what was noted, if there is so much time. What this thread went through meanwhile is in no window.
    fn dump_within(&mut self, free: Option<Duration>) {
        if let Some(recorder) = &mut self.recorder
            && recorder.dump_within(free)
        {
            self.log.pass_over(self.control.late_us_since(self.log.since()));
        }
    }

    fn close_window(&mut self, was_slow: bool) {
        self.log.close(self.control.late_us_since(self.log.since()), was_slow);
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
        if self.plan.keeps_windows {
            self.close_window(true);
        }
        self.dump_within(None);
    }

    /// Tells a responder of ours that the trial is over. Lost on the way, the responder is told otherwise.
    fn end(&mut self) {
        if self.plan.protocol != Protocol::Punctual {
            return;
        }
        let trip = TripId { run: self.plan.run, flow: 0, sequence: u64::MAX };
        wire::write_header(
            &mut self.request,
            &PacketHeader { kind: PacketKind::End, trip, record: Record::default() },
        );
        self.port.send(0, &self.request, &self.target, u64::MAX);
    }
}

impl Client for ResponseClient<'_> {
    fn goes_on(&mut self) -> bool {
        self.trips.has_room() && self.trips.len() < self.plan.count && !interrupted()
    }

    /// Until an absolute instant: lateness of one rest is not added to the next.
    fn rest_until(&mut self, instant: Ticks) {
        let now = self.clock.now();
        if instant <= now {
            return;
        }
        if self.plan.spins {
            while self.clock.now() < instant {
                std::hint::spin_loop();
            }
        } else {
            let left = instant.since(now);
            sleep_until(monotonic_ns() + self.clock.nanos(left));
            self.log.note_idle(left);
        }
    }

    #[inline]
    fn send(&mut self, due: Ticks) -> (u64, Ticks) {
        let sequence = self.trips.len() as u64;
        let flow = (sequence % self.plan.flows as u64) as usize;
        let trip = TripId { run: self.plan.run, flow: flow as u32, sequence };
        if self.plan.load == Load::Open {
            Delay::make(self.plan.delay, DelayPoint::Sent);
        }
        self.plan.protocol.write_request(&mut self.request, trip);
        let sent = self.clock.now();
        self.trips.note_sent(due, sent);
        if !self.port.send(flow, &self.request, &self.target, sequence) {
            // Never taken: it counts as sent, for the load wanted it.
            self.trace.refused += 1;
        }
        if self.plan.load == Load::Closed {
            Delay::make(self.plan.delay, DelayPoint::ReplyElsewhere);
            self.mishaps.make();
        }
        (sequence, sent)
    }

    #[inline]
    fn receive_one(&mut self, deadline: Ticks) -> Option<Option<u64>> {
        let arrival = self.port.receive(&mut self.buffer, deadline)?;
        let bytes = &self.buffer[..arrival.size];
        let verdict = self.plan.protocol.read_reply(bytes, self.plan.run, self.plan.size);
        let Arrival { kernel, listened, woken, read, .. } = arrival;
        if let Verdict::Answer { record: Some(record), .. } = verdict {
            self.note_evidence(&record);
        }
        Some(self.trips.note_arrival(&verdict, Seen { kernel, listened, woken }, read))
    }

    /// The stamps of what was sent, and what this thread went through if the trip was slow.
    fn look_back(&mut self, sequence: u64, next: Option<Ticks>) {
        let trips = &mut *self.trips;
        self.port.transmitted(&mut |tag, at| trips.note_transmitted(tag, at));
        let (slow, load) = (self.slow, self.plan.load);
        let span = trips.rows().get(sequence as usize).map(|row: &Trip| (row.start(load), row.done));
        let span = span.filter(|(begin, end)| end.since(*begin) > slow);
        if self.plan.keeps_windows && (span.is_some() || self.log.is_due(self.clock.now())) {
            self.close_window(span.is_some());
        }
        if let Some((recorder, (begin, end))) = self.recorder.as_mut().zip(span) {
            let now = ClockPair::now();
            recorder.note(now.monotonic_ns(begin), now.monotonic_ns(end));
        }
        match next {
            Some(due) => self.dump_before(due),
            None => self.dump_within(None),
        }
    }
}

/// How long a second answer is waited for when all first ones are there.
const GRACE: Duration = Duration::from_millis(2);
