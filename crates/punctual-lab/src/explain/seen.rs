//! Tier 0: the time that a thread's own evidence is sure of, and the name of any cause that took half of it.
//!
//! A window of evidence is wider than the trip, so a counter bounds what happened in the trip: at most all of it did, at least what
//! finds no room beside the trip. A cause is named by its least. Time that no evidence is sure of is unexplained.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::clue::{Excess, Glance};
use crate::units::count;
use punctual_machine::window::{Evidence, Window};

/// The states of a thread in a span of time, in bounds: its windows are wider. The least of all that excludes one another fits into the
/// span together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Length of the span, as far as windows cover it.
    pub wall_us: u32,
    /// CPU time of the thread, at least.
    pub cpu_us: u32,
    /// At most.
    pub cpu_us_most: u32,
    /// Time that it was ready to run and did not, at least.
    pub wait_us: u32,
    /// At most.
    pub wait_us_most: u32,
    /// Time until its process was continued in which it neither ran nor was ready, at least.
    pub stopped_us: u32,
    /// Time that a quota took, at least.
    pub throttled_us: u32,
    /// At most.
    pub throttled_us_most: u32,
    /// Time that the control group was frozen, at least.
    pub frozen_us: u32,
    /// At most.
    pub frozen_us_most: u32,
    /// Time that the hypervisor took, at least.
    pub stolen_us: u32,
    /// Lateness of the control thread on its CPU, at most.
    pub control_late_us: u32,
    /// Time that page faults without the disk took, at least.
    pub faults_us: u32,
    /// At most.
    pub faults_us_most: u32,
    /// Page faults without the disk, at most.
    pub faults_minor: u32,
    /// Page faults with it, at most.
    pub faults_major: u16,
    /// Times that it waited for something, at most.
    pub switches_voluntary: u16,
    /// Times taken off the CPU, at most.
    pub switches_involuntary: u16,
    /// Times found on another CPU, at most.
    pub migrations: u16,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wall_us, cpu_us, cpu_us_most, wait_us, wait_us_most, .. } = self;
        write!(f, "of {} µs ran {}", count((*wall_us).into()), Between(*cpu_us, *cpu_us_most))?;
        write!(f, ", ready {}", Between(*wait_us, *wait_us_most))?;
        for (name, us) in [
            ("stopped", self.stopped_us),
            ("throttled", self.throttled_us),
            ("frozen", self.frozen_us),
            ("stolen", self.stolen_us),
        ] {
            if us > 0 {
                write!(f, ", {name} at least {}", count(us.into()))?;
            }
        }
        let Self { control_late_us, faults_minor, faults_major, .. } = self;
        let late = count((*control_late_us).into());
        write!(f, ", control thread late {late}, faults {faults_minor}+{faults_major}")
    }
}

/// "120 to 340".
struct Between(u32, u32);

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(least, most) if least == most => f.write_str(&count(most.into())),
            Self(least, most) => write!(f, "{} to {}", count(least.into()), count(most.into())),
        }
    }
}

/// Longest time from the end of a span until the end of a stop in it is noticed: another thread may take the signal.
const NOTICED_NS: u64 = 2_000_000;

/// Evidence of this span from windows in the order of time, on a host where a page fault takes so long.
pub fn over(windows: &[Window], span: (u64, u64), fault_ns: u64) -> Option<Seen> {
    let (from, to) = span;
    let mut sum: Option<Seen> = None;
    let first = windows.partition_point(|window| window.span.1 <= from);
    let last = windows.partition_point(|window| window.span.0 < to);
    for window in windows.get(first..last).unwrap_or_default() {
        let overlap_us = window.span.1.min(to).saturating_sub(window.span.0.max(from)) / 1000;
        if let Some(overlap_us) = u32::try_from(overlap_us).ok().filter(|&us| us > 0) {
            sum.get_or_insert_default().add(&window.evidence, overlap_us, fault_ns);
        }
    }
    let mut sum = sum?;
    // A signal may be noticed after the window that it ended in.
    let noticed = windows.get(first..(last + 1).min(windows.len())).unwrap_or_default();
    let continued = noticed.iter().filter_map(|window| {
        let age_ns = u64::from(window.evidence.continued_age_us?) * 1000;
        let at = window.span.1.saturating_sub(age_ns);
        (at >= from && at <= to.saturating_add(NOTICED_NS)).then_some(at.min(to))
    });
    if let Some(at) = continued.max() {
        sum.stopped_us = sum.absent_us_until(u32::try_from((at - from) / 1000).unwrap_or(u32::MAX));
    }
    Some(sum)
}

impl Seen {
    /// One more window, of which so much lies in the span.
    fn add(&mut self, evidence: &Evidence, overlap_us: u32, fault_ns: u64) {
        let outside_us = evidence.wall_us.saturating_sub(overlap_us);
        // Asleep on purpose is beside every trip, and neither running nor ready.
        let busy_outside_us = outside_us.saturating_sub(evidence.idle_us);
        let least = |us: u32, elsewhere_us: u32| us.saturating_sub(elsewhere_us).min(overlap_us);
        let cpu_us = least(evidence.cpu_us, busy_outside_us);
        let wait_us = least(evidence.wait_us, busy_outside_us).min(overlap_us - cpu_us);
        let off_us = overlap_us - cpu_us;
        let grow = |sum: &mut u32, us: u32| *sum = sum.saturating_add(us);
        grow(&mut self.wall_us, overlap_us);
        grow(&mut self.cpu_us, cpu_us);
        grow(&mut self.cpu_us_most, evidence.cpu_us.min(overlap_us).max(cpu_us));
        grow(&mut self.wait_us, wait_us);
        grow(&mut self.wait_us_most, evidence.wait_us.min(off_us).max(wait_us));
        // A quota may run out, and the hypervisor may take the CPU, while a thread sleeps on purpose.
        grow(&mut self.throttled_us, least(evidence.throttled_us, outside_us).min(off_us));
        // Nested quotas may have run out together, or one after the other.
        let throttled_us_most = evidence.throttled_us.saturating_add(evidence.throttled_also_us);
        grow(&mut self.throttled_us_most, throttled_us_most.min(overlap_us));
        grow(&mut self.frozen_us, least(evidence.frozen_us, outside_us).min(off_us));
        grow(&mut self.frozen_us_most, evidence.frozen_us.min(overlap_us));
        grow(&mut self.stolen_us, least(evidence.stolen_us, outside_us).min(off_us));
        grow(&mut self.control_late_us, evidence.control_late_us.min(overlap_us));
        let faults_us = u64::from(evidence.faults_minor).saturating_mul(fault_ns) / 1000;
        let faults_us = u32::try_from(faults_us).unwrap_or(u32::MAX);
        grow(&mut self.faults_us, least(faults_us, busy_outside_us));
        grow(&mut self.faults_us_most, faults_us.min(overlap_us));
        self.faults_minor = self.faults_minor.saturating_add(evidence.faults_minor);
        self.faults_major = self.faults_major.saturating_add(evidence.faults_major);
        self.switches_voluntary = self.switches_voluntary.saturating_add(evidence.switches_voluntary);
        self.switches_involuntary = self.switches_involuntary.saturating_add(evidence.switches_involuntary);
        self.migrations = self.migrations.saturating_add(evidence.migrations);
    }

    /// Neither running nor ready nor throttled nor frozen, for certain, in the first so many microseconds.
    fn absent_us_until(&self, us: u32) -> u32 {
        let present = [self.cpu_us_most, self.wait_us_most, self.throttled_us_most, self.frozen_us_most];
        present.into_iter().fold(us.min(self.wall_us), u32::saturating_sub)
    }
}

/// A cause is named when so much of the excess is surely its: no two causes can both have half.
pub const PART_MIN: f64 = 0.5;

/// The cause, and how much of the excess its evidence is sure of.
pub fn cause_of(seen: Option<&Seen>, excess: &Excess<'_>) -> (Cause, f64) {
    let Some(seen) = seen else { return (Cause::UNEXPLAINED, 0.0) };
    let excess_us = (excess.message_ns / 1000).max(1) as f64;
    let part = |us: u32| (f64::from(us) / excess_us).min(1.0);
    let most = Cause::at(&Glance { seen, excess }).max_by_key(|&(_, us)| us);
    most.map(|(cause, us)| (cause, part(us)))
        .filter(|&(_, part)| part >= PART_MIN)
        .unwrap_or((Cause::UNEXPLAINED, 0.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::explain::stage::Side;
    use crate::sample::RESPONDER;
    use crate::scheduling::Urgency;

    const FAULT_NS: u64 = 250;

    fn excess(message_ns: u64, stage: &str, urgency: Urgency) -> Excess<'_> {
        Excess { urgency, ..Excess::in_one_stage(message_ns, stage, Side::Responder) }
    }

    fn window(from_us: u64, evidence: Evidence) -> Window {
        Window { evidence, span: (from_us * 1000, (from_us + u64::from(evidence.wall_us)) * 1000) }
    }

    /// A trip of 4 ms in a window of 5 ms.
    fn named(evidence: Evidence, stage: &str, urgency: Urgency) -> Cause {
        let windows = [window(0, Evidence { wall_us: 5000, ..evidence })];
        let seen = over(&windows, (500_000, 4_500_000), FAULT_NS);
        cause_of(seen.as_ref(), &excess(3_900_000, stage, urgency)).0
    }

    fn in_a_trip(evidence: Evidence, stage: &str) -> Cause {
        named(evidence, stage, Urgency::Other)
    }

    #[test]
    fn evidence_names_the_cause() {
        let ran = |cpu_us, wait_us| Evidence { cpu_us, wait_us, ..Evidence::default() };
        assert_eq!(in_a_trip(ran(100, 3900), "reply.woken"), Cause::named("run_queue"));
        assert_eq!(in_a_trip(ran(3900, 0), RESPONDER), Cause::named("busy"));
        let faults = Evidence { faults_minor: 14_000, ..ran(3900, 0) };
        assert_eq!(in_a_trip(faults, RESPONDER), Cause::named("faults_minor"));
        let frozen = Evidence { frozen_us: 3900, switches_voluntary: 1, ..ran(100, 0) };
        for stage in ["reply.woken", RESPONDER] {
            assert_eq!(in_a_trip(frozen, stage), Cause::named("frozen"), "{stage}");
        }
        let stolen = Evidence { stolen_us: 3900, ..ran(100, 0) };
        assert_eq!(in_a_trip(stolen, "reply.woken"), Cause::named("steal"));
        // Continued 0.6 ms before the window's end, which is right before the trip's.
        let stopped = Evidence { continued_age_us: Some(600), ..ran(100, 0) };
        assert_eq!(in_a_trip(stopped, "reply.woken"), Cause::named("stopped"));
        assert_eq!(cause_of(None, &excess(4_000_000, RESPONDER, Urgency::Other)), (Cause::UNEXPLAINED, 0.0));
        assert_eq!(named(ran(0, 4900), "request.woken", Urgency::Fifo(50)), Cause::named("run_queue"));
        let long = [window(0, Evidence { wall_us: 51_000, wait_us: 50_000, ..Evidence::default() })];
        let seen = over(&long, (500_000, 50_600_000), FAULT_NS);
        // That is as long as the limit of real-time threads lasts, and may be chance: nobody saw who ran.
        let ready = cause_of(seen.as_ref(), &excess(50_000_000, "request.woken", Urgency::Fifo(50)));
        assert_eq!(ready.0, Cause::named("run_queue"));
    }

    /// Goal: a thread that waited in code of its own is told from one that waited for a message. It is also told from one that lost its
    /// CPU unseen.
    #[test]
    fn a_handler_that_waits_is_no_idle_thread() {
        let waited = Evidence { cpu_us: 100, switches_voluntary: 1, ..Evidence::default() };
        for stage in [RESPONDER, "reply.elsewhere"] {
            assert_eq!(in_a_trip(waited, stage), Cause::named("handler_blocked"), "{stage}");
        }
        assert_eq!(in_a_trip(waited, "request.woken"), Cause::UNEXPLAINED);
        let others = [
            Evidence { control_late_us: 3900, ..waited },
            Evidence { switches_voluntary: 0, ..waited },
            Evidence { stolen_us: 2500, cpu_us: 1500, ..waited },
        ];
        for evidence in others {
            assert_ne!(in_a_trip(evidence, RESPONDER), Cause::named("handler_blocked"), "{evidence:?}");
        }
    }

    /// Goal: a traced thread that is absent was held by its tracer, as far as it should have worked. For one that waits for a message
    /// the cause is unknown.
    #[test]
    fn an_absent_traced_thread_was_held() {
        let away = Evidence { cpu_us: 100, switches_voluntary: 40, ..Evidence::default() };
        let windows = [window(0, Evidence { wall_us: 5000, ..away })];
        let seen = over(&windows, (500_000, 4_500_000), FAULT_NS);
        let cause = |stage, tracer| {
            let excess = Excess { tracer, ..excess(3_900_000, stage, Urgency::Other) };
            cause_of(seen.as_ref(), &excess).0.name()
        };
        for (stage, with, without) in [
            (RESPONDER, "traced", "handler_blocked"),
            ("elsewhere", "traced", "handler_blocked"),
            ("sent", "traced", "unexplained"),
            ("woken", "unexplained", "unexplained"),
        ] {
            assert_eq!((cause(stage, Some("strace (8)")), cause(stage, None)), (with, without), "{stage}");
        }
    }

    /// Goal: a thread's usual time is not charged to a cause, regardless of its other activity. Time beyond the usual is.
    #[test]
    fn the_usual_time_is_no_cause() {
        let cause = |wall_us: u32, evidence: Evidence| {
            let windows = [window(0, Evidence { wall_us, ..evidence })];
            let span = (0, u64::from(wall_us) * 1000);
            let (seen, usual_ns) = (over(&windows, span, FAULT_NS), 4_000_000);
            let excess = Excess { usual_ns, ..excess(span.1 - usual_ns, RESPONDER, Urgency::Other) };
            cause_of(seen.as_ref(), &excess).0.name()
        };
        let ran = |cpu_us| Evidence { cpu_us, switches_voluntary: 1, ..Evidence::default() };
        // A thread that computed as ever, and slept: perhaps it always sleeps, and computed more.
        assert_eq!(cause(8_000, ran(4_000)), "unexplained");
        assert_eq!(cause(8_000, Evidence { faults_minor: 14_000, ..ran(4_000) }), "unexplained");
        assert_eq!(cause(8_000, ran(8_000)), "busy");
        assert_eq!(cause(20_000, ran(4_000)), "handler_blocked");
        // Time that others take from a thread is not part of its usual time.
        assert_eq!(cause(8_000, Evidence { wait_us: 4_000, ..ran(4_000) }), "run_queue");
        assert_eq!(cause(8_000, Evidence { stolen_us: 4_000, ..ran(4_000) }), "steal");
        assert_eq!(cause(8_000, Evidence { wait_us: 4_000, ..ran(0) }), "run_queue");
        assert_eq!(cause(8_000, Evidence { wait_us: 5_000, ..ran(3_000) }), "run_queue");
        assert_eq!(cause(40_000, Evidence { wait_us: 40_000, ..ran(0) }), "run_queue");
    }

    /// Goal: a thread that spins while its packet is on the wire, or on its way to a sleeper, is not the cause of that delay.
    #[test]
    fn a_thread_that_looks_for_a_message_does_not_delay_it() {
        let windows = [window(0, Evidence { wall_us: 5000, cpu_us: 5000, ..Evidence::default() })];
        let seen = over(&windows, (500_000, 4_500_000), FAULT_NS);
        let cause = |stage, side| {
            let excess = Excess { side, ..excess(3_900_000, stage, Urgency::Other) };
            cause_of(seen.as_ref(), &excess).0.name()
        };
        for (stage, side, expected) in [
            ("request.rx", Side::Wire, "unexplained"),
            ("reply.rx", Side::Wire, "unexplained"),
            ("wire+responder", Side::WireOrResponder, "unexplained"),
            ("medium", Side::Medium, "unexplained"),
            ("request.woken", Side::Responder, "unexplained"),
            (RESPONDER, Side::Responder, "busy"),
            ("reply.tx", Side::Responder, "busy"),
        ] {
            assert_eq!(cause(stage, side), expected, "{stage}");
        }
    }

    /// Goal: faults that may all lie beside the message are not charged to it, and their time is nobody's work either. Of very many
    /// each counts.
    #[test]
    fn faults_beside_the_message_are_not_its_cause() {
        // Ten milliseconds, of which the last four are the trip.
        let seen = |faults_minor, idle_us| {
            let evidence = Evidence {
                wall_us: 10_000,
                cpu_us: 10_000 - idle_us,
                idle_us,
                faults_minor,
                ..Evidence::default()
            };
            over(&[window(0, evidence)], (6_000_000, 10_000_000), FAULT_NS).expect("a window")
        };
        let cause = |seen: Seen| cause_of(Some(&seen), &excess(4_000_000, RESPONDER, Urgency::Other)).0;
        // They take 5 ms, and there are 6 ms beside the trip.
        let beside = seen(20_000, 0);
        assert_eq!((beside.faults_us, beside.faults_us_most), (0, 4_000));
        assert_eq!(cause(beside), Cause::UNEXPLAINED);
        // It slept for all of that time.
        let within = seen(15_000, 6_000);
        assert_eq!((within.faults_us, within.faults_us_most), (3_750, 3_750));
        assert_eq!(cause(within), Cause::named("faults_minor"));
        assert_eq!(cause(seen(10, 0)), Cause::named("busy"));
        let long =
            Evidence { wall_us: 100_000, cpu_us: 100_000, faults_minor: 380_000, ..Evidence::default() };
        let seen = over(&[window(0, long)], (0, 100_000_000), FAULT_NS).expect("a window");
        assert_eq!((seen.faults_minor, seen.faults_us), (380_000, 95_000));
    }

    /// Goal: a handler that slept by itself was not robbed of its CPU, whoever else was: nothing names that time. A handler that was ready,
    /// never slept, or slept for its message was.
    #[test]
    fn a_sleeping_handler_is_not_robbed() {
        let stolen = Evidence { stolen_us: 3900, switches_voluntary: 1, cpu_us: 100, ..Evidence::default() };
        for (stage, evidence, expected) in [
            ("reply.elsewhere", stolen, "unexplained"),
            ("reply.elsewhere", Evidence { switches_voluntary: 0, ..stolen }, "steal"),
            ("reply.elsewhere", Evidence { wait_us: 3800, ..stolen }, "steal"),
            ("reply.woken", stolen, "steal"),
        ] {
            let windows = [window(0, Evidence { wall_us: 5000, ..evidence })];
            let seen = over(&windows, (500_000, 4_500_000), FAULT_NS);
            let excess = Excess {
                runs_handlers: true,
                has_control: false,
                ..excess(3_900_000, stage, Urgency::Other)
            };
            assert_eq!(cause_of(seen.as_ref(), &excess).0.name(), expected, "{stage} {evidence:?}");
        }
    }

    /// Goal: a quota is not the neighbour, whether the kernel counts a throttled thread as ready or as away.
    #[test]
    fn a_quota_is_no_neighbour() {
        for wait_us in [0, 3900] {
            let throttled = Evidence {
                throttled_us: 3900,
                wait_us,
                cpu_us: 100,
                switches_involuntary: u16::from(wait_us == 0),
                ..Evidence::default()
            };
            assert_eq!(in_a_trip(throttled, "request.woken"), Cause::named("throttled"), "{wait_us}");
        }
        // It held others of the group: this one slept meanwhile.
        let asleep =
            Evidence { throttled_us: 3900, switches_voluntary: 1, cpu_us: 100, ..Evidence::default() };
        assert_eq!(in_a_trip(asleep, RESPONDER), Cause::UNEXPLAINED);
        // It was once taken off its CPU, and slept then, too.
        let preempted = Evidence {
            wall_us: 60_000,
            cpu_us: 500,
            wait_us: 100,
            switches_voluntary: 1,
            switches_involuntary: 1,
            throttled_us: 150_000,
            ..Evidence::default()
        };
        let seen = over(&[window(0, preempted)], (10_000_000, 50_000_000), FAULT_NS);
        let slept = cause_of(seen.as_ref(), &excess(39_900_000, "elsewhere", Urgency::Other));
        assert_eq!(slept.0, Cause::UNEXPLAINED);
    }

    /// Goal: of nested quotas the least is that of one, and the most that of all.
    #[test]
    fn nested_quotas_bound_the_time_that_they_took() {
        let evidence = Evidence {
            wall_us: 10_000,
            throttled_us: 3_000,
            throttled_also_us: 2_500,
            wait_us: 3_000,
            ..Evidence::default()
        };
        let seen = over(&[window(0, evidence)], (0, 10_000_000), FAULT_NS).expect("a window");
        assert_eq!((seen.throttled_us, seen.throttled_us_most), (3_000, 5_500));
    }

    /// Goal: a thread that neither ran nor was ready is not said to have been woken late, stopped or robbed without evidence of it.
    #[test]
    fn without_evidence_it_is_unexplained() {
        let asleep = Evidence { control_late_us: 3900, cpu_us: 50, wait_us: 20, ..Evidence::default() };
        for stage in ["request.woken", "reply.read", "request.sent"] {
            assert_eq!(in_a_trip(asleep, stage), Cause::UNEXPLAINED);
        }
        let for_having_been_there = Evidence { faults_major: 1, faults_minor: 40, migrations: 1, ..asleep };
        assert_eq!(in_a_trip(for_having_been_there, RESPONDER), Cause::UNEXPLAINED);
        // A process that was continued long before, or after, was not stopped in this trip.
        for age_us in [4800, 0] {
            let continued = Evidence { continued_age_us: Some(age_us), ..asleep };
            let windows = [window(0, Evidence { wall_us: 9000, ..continued })];
            let seen = over(&windows, (4_500_000, 6_500_000), FAULT_NS).expect("a window");
            assert_eq!(seen.stopped_us, 0, "{age_us}: {seen:?}");
        }
    }

    /// Goal: a thread that slept in code of its own and was then continued is not said to have been stopped all the while. The control
    /// thread tells for how long, or in a program's own log that it left its CPU once.
    #[test]
    fn a_continuation_is_no_long_stop() {
        let cause = |stage, has_control: bool, evidence: Evidence| {
            let windows = [window(0, Evidence { wall_us: 40_000, continued_age_us: Some(500), ..evidence })];
            let seen = over(&windows, (0, 40_000_000), FAULT_NS);
            let runs_handlers = !has_control;
            let excess = Excess { runs_handlers, has_control, ..excess(39_000_000, stage, Urgency::Other) };
            cause_of(seen.as_ref(), &excess).0.name()
        };
        let away = |switches_voluntary, control_late_us| Evidence {
            cpu_us: 100,
            switches_voluntary,
            control_late_us,
            ..Evidence::default()
        };
        for (stage, control, switches, late_us, expected) in [
            (RESPONDER, true, 2, 1_000, "unexplained"),
            (RESPONDER, true, 1, 0, "unexplained"),
            ("reply.elsewhere", true, 2, 1_000, "unexplained"),
            (RESPONDER, true, 2, 31_000, "stopped"),
            // A control thread may have slept until just before its next look.
            (RESPONDER, true, 1, 12_000, "stopped"),
            (RESPONDER, true, 2, 12_000, "unexplained"),
            // It left its CPU once: had it slept before, it would have left it once more to be stopped.
            (RESPONDER, false, 1, 0, "stopped"),
            (RESPONDER, false, 2, 0, "unexplained"),
            // A thread that is due to send, or waits for a message that is there, had nothing else to sleep for.
            ("sent", false, 2, 0, "stopped"),
            ("request.woken", true, 2, 0, "stopped"),
            ("request.woken", false, 2, 0, "stopped"),
        ] {
            assert_eq!(
                cause(stage, control, away(switches, late_us)),
                expected,
                "{stage} {control} {late_us}"
            );
        }
    }

    /// Goal: the windows of one long trip are added up, each bounded by what finds no room beside the trip.
    #[test]
    fn a_trip_is_charged_with_every_window_it_waited_in() {
        let at = |from_us: u64, cpu_us: u32, wait_us: u32| {
            window(
                from_us,
                Evidence { wall_us: 1000, cpu_us, wait_us, faults_minor: 3, ..Evidence::default() },
            )
        };
        let windows = [at(0, 500, 0), at(1000, 10, 990), at(2000, 900, 0)];
        let seen = over(&windows, (1_200_000, 2_100_000), FAULT_NS).expect("two windows");
        assert_eq!((seen.wall_us, seen.faults_minor), (900, 6));
        assert_eq!((seen.cpu_us, seen.cpu_us_most), (0, 10 + 100));
        assert_eq!((seen.wait_us, seen.wait_us_most), (790, 800));
        assert_eq!(over(&windows, (5_000_000, 6_000_000), FAULT_NS), None);
        // A rest before the trip is no room for anything.
        let rested =
            [window(0, Evidence { wall_us: 2000, wait_us: 400, idle_us: 1500, ..Evidence::default() })];
        assert_eq!(over(&rested, (1_500_000, 2_000_000), FAULT_NS).map(|seen| seen.wait_us), Some(400));
    }

    proptest! {
        /// Goal: the times reported never exceed the span, regardless of the counters.
        #[test]
        fn ran_and_ready_never_exceed_the_span(
            counters in proptest::collection::vec((1..20_000_u32, any::<[u16; 7]>()), 1..6),
            from in 0..50_000_u64, lasts in 1..100_000_u64,
        ) {
            let mut start = 0;
            let windows: Vec<Window> = counters.iter().map(|&(wall_us, [cpu, wait, idle, late, throttled, age, frozen])| {
                let evidence = Evidence {
                    wall_us, cpu_us: cpu.into(), wait_us: wait.into(), idle_us: idle.into(),
                    frozen_us: frozen.into(), control_late_us: late.into(), throttled_us: throttled.into(), stolen_us: age.into(),
                    continued_age_us: Some(age.into()), ..Evidence::default()
                };
                let window = window(start, evidence);
                start += u64::from(wall_us);
                window
            }).collect();
            if let Some(seen) = over(&windows, (from * 1000, (from + lasts) * 1000), FAULT_NS) {
                prop_assert!(seen.cpu_us + seen.wait_us <= seen.wall_us, "{seen:?}");
                prop_assert!(u64::from(seen.wall_us) <= lasts);
                for us in [seen.stopped_us, seen.throttled_us, seen.frozen_us, seen.stolen_us] {
                    prop_assert!(seen.cpu_us + us <= seen.wall_us, "{seen:?}");
                }
                prop_assert!(seen.cpu_us <= seen.cpu_us_most && seen.wait_us <= seen.wait_us_most);
            }
        }
    }
}
