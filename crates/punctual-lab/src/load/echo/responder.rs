//! The other end: answers at once, and says what it knows of the request.

use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::cpu::ThreadUsage;
use serde::{Deserialize, Serialize};

use super::delay::{Delay, DelayPoint};
use super::protocol::{Protocol, SockperfRequest, answer_sockperf};
use super::wire::{self, PacketHeader, PacketKind, Past, Record};
use crate::endpoint::port::{self, Arrival, Port, PortPlan, Way};
use crate::explain::injection::Mishaps;
use crate::scheduling::{Control, Urgency};
use punctual_machine::window::{Evidence, SchedSampler};

/// A wake-up or a reply that took longer is asked about at once.
const SLOW: Duration = Duration::from_micros(200);

/// Interval between a responder's checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Rules by which a responder answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRules {
    /// The protocol that it understands.
    pub protocol: Protocol,
    /// Says that its clock is nobody else's, as another host's is.
    pub clock_apart: bool,
    /// A packet that says so ends it.
    pub ends_when_told: bool,
    /// Its port sleeps until a packet comes.
    pub sleeps: bool,
    /// Made on purpose.
    pub delay: Option<Delay>,
    /// It keeps windows of what its thread went through.
    pub keeps_windows: bool,
}

impl AnswerRules {
    /// Those of a way, until it is interrupted.
    pub fn of(protocol: Protocol, way: Way) -> Self {
        Self {
            protocol,
            clock_apart: false,
            ends_when_told: false,
            sleeps: !way.spins(),
            delay: None,
            keeps_windows: true,
        }
    }
}

/// Facts about a responder's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoFacts {
    /// Packets that arrived.
    pub arrived: u64,
    /// Replies sent.
    pub answered: u64,
    /// Packets that were none of its protocol's, or damaged.
    pub refused: u64,
    /// Requests to which no reply was wanted.
    #[serde(default)]
    pub silent: u64,
    /// Packets that told it to end.
    #[serde(default)]
    pub ends: u64,
    /// Replies that found no room.
    pub unsent: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// Times taken off the CPU.
    pub preempted: u64,
    /// Times that its control thread was late, and the latest, µs.
    pub control_late: (u64, u64),
    /// Times that a CPU quota ran out.
    #[serde(default)]
    pub throttled: u64,
    /// Requests that found no room where they are received, if that is known.
    #[serde(default)]
    pub dropped: Option<u64>,
    /// Requests of which fragments are missing, if that is known.
    #[serde(default)]
    pub incomplete: Option<u64>,
}

/// Time that the kernel is given to switch on the features that a port asked for, before its thread becomes urgent: time stamps begin
/// by a work queue of the kernel's, which a spinning real-time thread on its CPU keeps waiting for ever.
const SETTLING: Duration = Duration::from_millis(20);

/// Opens a port in the calling thread, which is bound to its CPU before and as urgent as chosen afterwards.
pub fn open_port(
    cpu: Option<usize>,
    urgency: Urgency,
    plan: &PortPlan,
) -> Result<Box<dyn Port + Send>, String> {
    if let Some(cpu) = cpu.filter(|_| urgency.can_be_pinned()) {
        punctual_machine::cpu::pin_to(cpu).map_err(|error| error.to_string())?;
    }
    let port = port::open(plan)?;
    if urgency.is_real_time() {
        std::thread::sleep(SETTLING);
    }
    urgency.apply().map_err(|error| urgency.advise(&error))?;
    Ok(port)
}

struct Responder<'a> {
    port: &'a mut dyn Port,
    clock: &'static Clock,
    tick_fs: u32,
    rules: AnswerRules,
    /// Made on purpose, each once.
    mishaps: Mishaps,
    control: &'a Control,
    sampler: SchedSampler,
    slow: Ticks,
    /// The last window, and when it ended.
    window: Option<(Evidence, Ticks)>,
    /// The reply whose way to the device is not known yet, and when it was handed over.
    replied: Option<(u64, Ticks)>,
    previous: Option<(u32, u32)>,
    facts: EchoFacts,
}

/// Answers until `is_over`, or until a packet says so.
pub fn respond(
    port: &mut dyn Port,
    rules: AnswerRules,
    mishaps: Mishaps,
    control: &Control,
    size_max: usize,
    is_over: &dyn Fn() -> bool,
) -> EchoFacts {
    let clock = Clock::get();
    let mut run = Responder {
        port,
        clock,
        // A million of them in nanoseconds.
        tick_fs: short(clock.nanos(Ticks(1_000_000))),
        rules,
        mishaps,
        control,
        sampler: SchedSampler::of_this_thread(),
        slow: clock.ticks(SLOW),
        window: None,
        replied: None,
        previous: None,
        facts: EchoFacts::default(),
    };
    // One byte more, so that a packet that is too large is not taken for one that is not.
    let mut buffer = vec![1; size_max + 1];
    let before = ThreadUsage::now();
    let look = clock.ticks(LOOK);
    while !is_over() {
        let deadline = clock.now().plus(look);
        while let Some(arrival) = run.port.receive(&mut buffer, deadline) {
            if arrival.size > size_max {
                run.refuse();
            } else if run.take(&mut buffer[..arrival.size], &arrival) {
                return run.finish(before);
            }
            if arrival.read >= deadline {
                break;
            }
        }
    }
    run.finish(before)
}

impl Responder<'_> {
    fn finish(mut self, before: ThreadUsage) -> EchoFacts {
        let usage = ThreadUsage::now().since(before);
        let (_, late, latest_us) = self.control.totals();
        self.facts.cpu_ns = usage.cpu_ns;
        self.facts.faults = usage.faults_minor + usage.faults_major;
        self.facts.preempted = usage.switches_involuntary;
        self.facts.control_late = (late, latest_us);
        self.facts.dropped = self.port.dropped();
        self.facts.incomplete = self.port.incomplete();
        self.facts.throttled = self.sampler.throttled_times();
        self.facts
    }

    /// A packet is larger than what is answered: its end was cut off.
    fn refuse(&mut self) {
        self.facts.arrived += 1;
        self.facts.refused += 1;
    }

    /// Answers one packet; `true` if it was the last.
    #[inline]
    fn take(&mut self, bytes: &mut [u8], arrival: &Arrival) -> bool {
        self.facts.arrived += 1;
        match self.rules.protocol {
            Protocol::Punctual => return self.take_own(bytes, arrival),
            Protocol::Udp => self.send(bytes, arrival, self.facts.arrived),
            Protocol::Sockperf => match answer_sockperf(bytes) {
                SockperfRequest::Answered => self.send(bytes, arrival, self.facts.arrived),
                SockperfRequest::Silent => self.facts.silent += 1,
                SockperfRequest::NotUnderstood => self.facts.refused += 1,
            },
        }
        false
    }

    #[inline]
    fn take_own(&mut self, bytes: &mut [u8], arrival: &Arrival) -> bool {
        let Some(PacketHeader { kind, trip, .. }) = wire::read_header(bytes) else {
            self.facts.refused += 1;
            return false;
        };
        match kind {
            PacketKind::End => {
                self.facts.ends += 1;
                return self.rules.ends_when_told;
            }
            PacketKind::Reply => {
                // An echo of an echo would go on for ever.
                self.facts.refused += 1;
                return false;
            }
            PacketKind::Request => {}
        }
        let mut record = self.record(arrival);
        Delay::make(self.rules.delay, DelayPoint::Responder);
        self.mishaps.make();
        let replied = self.clock.now();
        record.application_ns = short(self.clock.nanos(replied.since(arrival.read)));
        wire::write_header(bytes, &PacketHeader { kind: PacketKind::Reply, trip, record });
        self.send(bytes, arrival, trip.sequence);
        self.look_back(trip.sequence, replied, arrival);
        Delay::make(self.rules.delay, DelayPoint::Elsewhere);
        false
    }

    #[inline]
    fn record(&self, arrival: &Arrival) -> Record {
        let ns = |from: Ticks, to: Ticks| short(self.clock.nanos(to.since(from)));
        Record {
            domain: if self.rules.clock_apart { 0 } else { self.clock.domain() },
            stack_ns: (arrival.kernel.0 != 0).then(|| ns(arrival.kernel, arrival.woken)),
            woken: arrival.woken.0,
            listened_ns: ns(arrival.listened, arrival.woken),
            read_ns: ns(arrival.woken, arrival.read),
            application_ns: 0,
            previous: self.previous,
            evidence: self.window.map(|(evidence, end)| {
                let age_ns = self.clock.nanos(arrival.woken.since(end));
                Past { evidence, age_us: u32::try_from(age_ns / 1000).unwrap_or(u32::MAX) }
            }),
            tick_fs: self.tick_fs,
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8], arrival: &Arrival, tag: u64) {
        if self.port.send(arrival.flow, bytes, &arrival.peer, tag) {
            self.facts.answered += 1;
        } else {
            self.facts.unsent += 1;
        }
    }

    /// After the reply, notes how it went out, and what this thread went through if that was slow.
    fn look_back(&mut self, sequence: u64, replied: Ticks, arrival: &Arrival) {
        if self.rules.sleeps && arrival.kernel > arrival.listened {
            self.sampler.note_idle(arrival.kernel.since(arrival.listened.max(self.sampler.since())));
        }
        self.replied = Some((sequence, replied));
        let (clock, sent, previous) = (self.clock, &self.replied, &mut self.previous);
        self.port.transmitted(&mut |tag, at| {
            if let Some((_, from)) = sent.filter(|(of, _)| *of == tag) {
                *previous = Some((tag as u32, short(clock.nanos(at.since(from)))));
            }
        });
        let now = self.clock.now();
        let begin = if arrival.kernel.0 == 0 { arrival.woken } else { arrival.kernel };
        let was_slow = replied.since(begin) > self.slow;
        if self.rules.keeps_windows && (was_slow || self.sampler.is_due(now)) {
            let late_us = self.control.late_us_since(self.sampler.since());
            let evidence = self.sampler.close(late_us, was_slow);
            self.window = Some((evidence, self.sampler.since()));
        }
    }
}

fn short(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}
