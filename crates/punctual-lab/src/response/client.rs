//! The measuring client: closed loop as in the original, and open loop by absolute instants.
//!
//! Under closed load a trip lasts from before the send until its bytes are in the buffer. The next leaves after it, and after the idle
//! gap. Under open load trip *k* is due at *t₀ + k·T* regardless of outstanding trips, and lasts from then. The whole buffer is
//! compared, after the trip's last instant was taken.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::ThreadUsage;
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_machine::signal::interrupted;

use super::option::Variant;
use super::settings::ResponseSettings;
use super::trips::{RoundTrips, Seen};
use crate::endpoint::port::{Arrival, Peer, Port};
use crate::explain::injection::Mishaps;
use crate::explain::kept::WINDOWS_MAX;
use crate::load::echo::wire::{self, PacketHeader, PacketKind, Past, Record, TripId};
use crate::load::echo::{Delay, DelayPoint, Protocol, Verdict};
use crate::load::pace::{Client, spin_until};
use crate::load::watch::ClientWatch;
use crate::run::room_for;
use crate::sample::Load;
use punctual_machine::window::{Evidence, Window};

/// Plan of the messages of one trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialPlan<'a> {
    /// Settings that are the same in all trials.
    pub settings: &'a ResponseSettings,
    /// The way, and how urgent both threads are.
    pub choice: Variant,
    /// The trial ends after so long …
    pub duration: Duration,
    /// … or after so many trips.
    pub count: usize,
    /// Random number of the trial.
    pub run: u32,
}

impl TrialPlan<'_> {
    /// Room for all trips of a trial, however fast the way: none takes less than a microsecond there and back.
    pub fn capacity(&self) -> usize {
        let fastest = self.settings.gap.max(Duration::from_micros(1));
        let trips = self.duration.as_nanos() / fastest.as_nanos() + 16;
        self.count.min(usize::try_from(trips).unwrap_or(usize::MAX))
    }
}

/// Results of a trial besides its trips.
#[derive(Debug, Default)]
pub struct ClientTrace {
    /// The responder's, as far as replies brought them.
    pub responder: Vec<Window>,
    /// The client's thread over the trial.
    pub usage: ThreadUsage,
    /// Sends that found no room, or no way.
    pub refused: u64,
    /// Replies that found no room where they are received, if that is known.
    pub dropped: Option<u64>,
    /// Replies of which fragments are missing, if that is known.
    pub incomplete: Option<u64>,
}

impl ClientTrace {
    /// Nothing yet, with room for the responder's windows.
    pub fn with_room() -> Self {
        let blank = Window { evidence: Evidence { number: 1, ..Evidence::default() }, span: (1, 1) };
        Self { responder: room_for(WINDOWS_MAX, blank), ..Self::default() }
    }
}

struct ResponseClient<'a> {
    port: &'a mut dyn Port,
    clock: &'static Clock,
    plan: &'a TrialPlan<'a>,
    settings: &'a ResponseSettings,
    target: Peer,
    trips: &'a mut RoundTrips,
    watch: Option<&'a mut ClientWatch>,
    trace: ClientTrace,
    request: Vec<u8>,
    buffer: Vec<u8>,
    mishaps: Mishaps,
}

/// Runs one trial. The trips are noted in `trips`, the rest in the trace, and the events of this thread meanwhile in `watch`.
pub fn run(
    port: &mut dyn Port,
    target: Peer,
    plan: &TrialPlan<'_>,
    (trips, trace): (&mut RoundTrips, ClientTrace),
    watch: Option<&mut ClientWatch>,
) -> ClientTrace {
    let (clock, settings) = (Clock::get(), plan.settings);
    let size = settings.asked.size;
    sleep_precisely();
    let mut run = ResponseClient {
        port,
        clock,
        plan,
        settings,
        target,
        trips,
        watch,
        trace,
        request: vec![1; size],
        // One byte more, so that a packet that grew is not taken for one that did not.
        buffer: vec![1; size + 1],
        mishaps: Mishaps::of(&settings.mishaps, 0),
    };
    let (usage, start) = (ThreadUsage::now(), clock.now());
    let end = start.plus(clock.ticks(plan.duration));
    let (gap, timeout) = (clock.ticks(settings.gap), clock.ticks(settings.asked.timeout));
    match settings.load {
        Load::Closed => run.closed(start, gap, timeout, end),
        Load::Open => run.open(start.plus(gap), settings.gap, end),
    }
    run.drain();
    run.trace.usage = ThreadUsage::now().since(usage);
    run.trace.dropped = run.port.dropped();
    run.trace.incomplete = run.port.incomplete();
    run.trips.close(clock.now(), timeout);
    run.end();
    // Replies that overtook one another brought a window late, or twice.
    run.trace.responder.sort_by_key(|window| window.evidence.number);
    run.trace.responder.dedup_by_key(|window| window.evidence.number);
    run.trace
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

    /// Waits for what is still to come.
    fn drain(&mut self) {
        let deadline = self.clock.now().plus(self.clock.ticks(self.settings.asked.timeout));
        while self.trips.open() > 0 && !interrupted() && self.receive_one(deadline).is_some() {}
        // A duplicate may come last.
        let grace = self.clock.now().plus(self.clock.ticks(GRACE));
        while self.receive_one(grace).is_some() {}
        let trips = &mut *self.trips;
        self.port.transmitted(&mut |tag, at| trips.note_transmitted(tag, at));
        if let Some(watch) = &mut self.watch {
            watch.finish();
        }
    }

    /// Tells a responder of ours that the trial is over. Lost on the way, the responder is told otherwise.
    fn end(&mut self) {
        if self.settings.asked.protocol != Protocol::Punctual {
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
        if self.plan.choice.way.spins() {
            spin_until(instant);
        } else {
            let left = instant.since(now);
            sleep_until(monotonic_ns() + self.clock.nanos(left));
            if let Some(watch) = &mut self.watch {
                watch.note_idle(left);
            }
        }
    }

    #[inline]
    fn send(&mut self, due: Ticks) -> (u64, Ticks) {
        let sequence = self.trips.len() as u64;
        let flow = (sequence % self.settings.asked.flows as u64) as usize;
        let trip = TripId { run: self.plan.run, flow: flow as u32, sequence };
        if self.settings.load == Load::Open {
            Delay::make(self.settings.asked.delay, DelayPoint::Sent);
        }
        self.settings.asked.protocol.write_request(&mut self.request, trip);
        let sent = self.clock.now();
        self.trips.note_sent(due, sent);
        if !self.port.send(flow, &self.request, &self.target, sequence) {
            // Never taken: it counts as sent, for the load wanted it.
            self.trace.refused += 1;
        }
        if self.settings.load == Load::Closed {
            Delay::make(self.settings.asked.delay, DelayPoint::ReplyElsewhere);
            self.mishaps.make();
        }
        (sequence, sent)
    }

    #[inline]
    fn receive_one(&mut self, deadline: Ticks) -> Option<Option<u64>> {
        let arrival = self.port.receive(&mut self.buffer, deadline)?;
        let bytes = &self.buffer[..arrival.size];
        let verdict = self.settings.asked.protocol.read_reply(bytes, self.plan.run, self.settings.asked.size);
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
        let Some(watch) = &mut self.watch else { return };
        let row = trips.rows().get(sequence as usize);
        let span = row.map(|row| (row.start(self.settings.load), row.done));
        let lost_after = self.clock.ticks(self.settings.asked.timeout);
        watch.look_back(span, next, |now| trips.under_way(now, lost_after));
    }
}

/// Longest wait for a second answer when all first ones are there.
const GRACE: Duration = Duration::from_millis(2);
