//! The causes together: each is told from every other, and where one is not known its time is nobody else's.
use super::*;
use crate::explain::account::{Absence, Interruption, Part, account};
use crate::explain::clue::{Excess, HeldBy, Kind};
use crate::explain::injection::How;
use crate::explain::naming::mark_held;
use crate::explain::seen::{PART_MIN, Seen, over};
use crate::explain::stage::Side;
use crate::explain::trace::{CpuEvents, Event, IDLE, Leaving, TaskInfo, Trace, What};
use crate::explain::wait_end::WaitEnd;
use crate::explain::waker::Chain;
use crate::scheduling::Urgency;
use punctual_machine::window::{Evidence, Window};

const ORDINARY: u32 = 1;
const URGENT: u32 = 2;
const DEFERRED: u32 = 3;
const KERNEL: u32 = 4;
const LATE: u32 = 7;
const TRACER: u32 = 5;

fn trace() -> Trace {
    let task = |name: &str, priority, is_kernel| TaskInfo {
        name: name.to_owned(),
        priority,
        is_kernel: Some(is_kernel),
    };
    let tasks = [
        (ORDINARY, task("hog", 120, false)),
        (URGENT, task("urgent", 49, false)),
        (DEFERRED, task("ksoftirqd/0", 120, true)),
        (KERNEL, task("jbd2/vda-8", 120, true)),
        (TRACER, task("strace", 120, false)),
    ];
    Trace { tasks: tasks.into(), ..Trace::default() }
}

/// A wait for a thread that had no CPU meanwhile.
fn preempted() -> Chain {
    let switch = |at, left, why, runs| Event(at, What::Switch { left, why, runs });
    let events = vec![
        switch(0, LATE, Leaving::Asleep, ORDINARY),
        switch(10, ORDINARY, Leaving::Ready, URGENT),
        switch(90, URGENT, Leaving::Asleep, ORDINARY),
        Event(95, What::Wake { woken: LATE, waker: ORDINARY, by_interrupt: false }),
        switch(99, ORDINARY, Leaving::Asleep, IDLE),
    ];
    let cpu = CpuEvents { since_ns: 0, until_ns: 100, events, ..CpuEvents::default() };
    let trace = Trace { cpus: vec![cpu], ..trace() };
    let late = account(&trace, LATE, (0, 95));
    let chain = Chain::behind(&trace, &late, late.sums()[0].0);
    assert_eq!(chain.is_preempted_by(), Some(URGENT));
    chain
}

fn kinds() -> Vec<Kind> {
    let mut parts = vec![Part::Running, Part::Unexplained];
    let absences = [Absence::Stopped, Absence::Traced, Absence::CpuAsleep, Absence::Withheld];
    parts.extend(absences.map(Part::NotThere));
    parts.extend([ORDINARY, URGENT, DEFERRED, TRACER].map(|instead| Part::Ready { instead }));
    parts.extend([Interruption::Device(4), Interruption::Deferred(3)].map(Part::Interrupted));
    parts.push(Part::Signalled(29));
    parts.extend([None, Some(ORDINARY)].map(|by| Part::Moving { by }));
    parts.extend([true, false].map(|is_limited| Part::Reclaiming { is_limited }));
    for woken_by in [None, Some(ORDINARY), Some(KERNEL), Some(TRACER)] {
        let kinds = [None, Some(false), Some(true)];
        let ways = kinds.into_iter().flat_map(|kind| [false, true].map(|is_interrupt| (is_interrupt, kind)));
        for (is_interrupt, is_uninterruptible) in ways {
            parts.push(Part::Blocked { woken_by, is_interrupt, is_uninterruptible });
        }
    }
    parts.into_iter().map(Kind::Part).chain([Kind::Faulting, Kind::Stolen]).collect()
}

/// A trace says what the thread did meanwhile, or there is no time to tell of.
fn is_of_user_space(name: &str) -> bool {
    let others =
        ["calibration", "construction", "first_use", "handler_blocked", "lost_fragment", "receive_buffer"];
    others.contains(&name)
}

/// Goal: each step of a start is one cause's.
#[test]
fn no_step_is_two_causes() {
    use StartStep::{Clock, Keys, KeysOnPath, Node, NodeOnPath, Queued, Signals};
    for step in [Clock, Keys, Node, Queued, NodeOnPath, KeysOnPath, Signals] {
        let of = KNOWN.iter().filter(|known| known.in_start.contains(&step));
        assert_eq!(of.count(), 1, "{step:?}");
        assert!(Cause::of_step(step).definition().is_some());
    }
    for name in ["sigio-at-start", "pools-in-constructor", "cold-crypto", "crowd-at-start"] {
        let made = Cause::made_by(name).definition().expect("a cause");
        assert!(!made.in_start.is_empty(), "{name}");
    }
    assert_eq!(Cause::made_by("gremlins"), Cause::UNEXPLAINED);
}

/// Goal: no time is two causes', so that without one of them it is unexplained. Method: every kind of time, of each side, ordinary
/// and urgent, short and long, with a quota, a freezer and faults and without.
#[test]
fn no_time_is_two_causes() {
    let trace = trace();
    let chains = [Chain::default(), preempted()];
    let mut met = std::collections::BTreeSet::new();
    for (side, stage) in
        [(Side::Responder, "responder"), (Side::Client, "reply.woken"), (Side::Wire, "request.rx")]
    {
        for urgency in [Urgency::Other, Urgency::Fifo(50)] {
            let excess = Excess { urgency, ..Excess::in_one_stage(50_000_000, stage, side) };
            for (throttled_us_most, frozen_us_most, faults_major, is_certain) in [
                (0, 0, 0, true),
                (50_000, 0, 0, true),
                (0, 50_000, 0, true),
                (0, 0, 9, true),
                (50_000, 50_000, 9, true),
                (50_000, 50_000, 9, false),
            ] {
                let least_us = |most_us| if is_certain { most_us } else { 0 };
                let seen = Seen {
                    throttled_us: least_us(throttled_us_most),
                    throttled_us_most,
                    frozen_us: least_us(frozen_us_most),
                    frozen_us_most,
                    faults_major,
                    ..Seen::default()
                };
                for (((kind, ns), end), chain) in kinds().into_iter().flat_map(|kind| {
                    let times = [1_000_000, 50_000_000].map(|ns| (kind, ns));
                    let ends = [WaitEnd::Unknown, WaitEnd::Lock, WaitEnd::Child, WaitEnd::Storage];
                    let times = times.into_iter().flat_map(move |one| ends.map(|end| (one, end)));
                    times.flat_map(|one| chains.iter().map(move |chain| (one, chain)))
                }) {
                    let mut clue = Clue {
                        kind,
                        ns,
                        waits: 4,
                        end,
                        passed_over_ns: ns,
                        held_by: None,
                        perhaps_by: None,
                        chain,
                        tracers: &[TRACER],
                        trace: &trace,
                        excess: &excess,
                        seen: Some(&seen),
                    };
                    for holder in HeldBy::ALL {
                        mark_held(std::slice::from_mut(&mut clue), holder, &seen);
                    }
                    let names: Vec<&str> = KNOWN
                        .iter()
                        .filter(|one| (one.in_trace)(&clue).is_some())
                        .map(|one| one.name)
                        .collect();
                    assert!(names.len() <= 1, "{clue:?}: {names:?}");
                    met.extend(names);
                }
            }
        }
    }
    let all: std::collections::BTreeSet<&str> =
        KNOWN.iter().map(|one| one.name).filter(|&name| !is_of_user_space(name)).collect();
    assert_eq!(met, all, "every cause is met in a trace");
}

/// Goal: the same of what user space sees: no two causes are sure of half each.
#[test]
fn no_half_is_two_causes() {
    let tracers = [None, Some("strace (5)")];
    let urgencies = [Urgency::Other, Urgency::Fifo(50)];
    for (urgency, tracer) in urgencies.into_iter().flat_map(|one| tracers.map(|tracer| (one, tracer))) {
        let late = Excess::in_one_stage(50_000_000, "responder", Side::Responder);
        let excess = Excess { urgency, tracer, ..late };
        for bits in 0..256_u32 {
            let us = |bit: u32| if bits & (1 << bit) == 0 { 0 } else { 50_000 };
            let evidence = Evidence {
                wall_us: 50_000,
                cpu_us: us(0),
                wait_us: us(1),
                throttled_us: us(2),
                stolen_us: us(3),
                continued_age_us: (us(4) > 0).then_some(0),
                faults_minor: us(5),
                frozen_us: us(6),
                switches_voluntary: u16::from(us(7) > 0),
                ..Evidence::default()
            };
            let windows = [Window { evidence, span: (0, 50_000_000) }];
            let seen = over(&windows, (0, 50_000_000), 500).expect("a window");
            let half_us = (PART_MIN * 50_000.0) as u32;
            let names: Vec<&str> = Cause::at(&Glance { seen: &seen, excess: &excess })
                .filter(|&(_, us)| us > half_us)
                .map(|(cause, _)| cause.name())
                .collect();
            assert!(names.len() <= 1, "{evidence:?}: {names:?}");
        }
    }
}

/// Goal: names and injections are unlike each other, every cause says what to do, and names read back.
#[test]
fn all_are_told_apart() {
    let mut names: Vec<&str> = KNOWN.iter().map(|one| one.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    names.dedup();
    assert_eq!(names.len(), KNOWN.len());
    for one in KNOWN {
        assert!([one.words, one.fix, one.verify].iter().all(|text| !text.is_empty()), "{one:?}");
        let json = serde_json::to_string(&Cause::named(one.name)).expect("a name");
        assert_eq!(serde_json::from_str::<Cause>(&json).expect("a name"), Cause::named(one.name));
        if let Some(name) = one.without_trace {
            assert!(name == UNEXPLAINED || Cause::named(name) != Cause::UNEXPLAINED, "{name}");
        }
    }
    let mut injections: Vec<&str> = Injection::all().map(|(_, injection)| injection.name).collect();
    let count = injections.len();
    injections.sort_unstable();
    injections.dedup();
    assert_eq!(injections.len(), count);
    assert!(Injection::all().any(|(_, injection)| matches!(injection.how, How::Inside(_))));
    assert_eq!(serde_json::from_str::<Cause>("\"wake_up\"").expect("a name"), Cause::UNEXPLAINED);
}
