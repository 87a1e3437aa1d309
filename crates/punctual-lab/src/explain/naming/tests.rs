//! Each part of an account, and the cause that it is called, for the time that it took.
use super::*;
use crate::explain::account::{Piece, account};
use crate::explain::stage::Side;
use crate::explain::trace::{CpuEvents, Event, IDLE, Leaving, TaskInfo, What};
use crate::scheduling::Urgency;

const LATE: u32 = 7;
const OTHER: u32 = 9;
const JOURNAL: u32 = 11;
const MS: u64 = 1_000_000;

fn excess(stage: &str, side: Side) -> Excess<'_> {
    Excess { usual_ns: MS, ..Excess::in_one_stage(99 * MS, stage, side) }
}

fn trace(priority: i32) -> Trace {
    let task =
        |name: &str, is_kernel| TaskInfo { name: name.to_owned(), priority, is_kernel: Some(is_kernel) };
    let tasks =
        [(OTHER, task("hog", false)), (JOURNAL, task("jbd2/vda-8", true)), (IDLE, task("swapper", true))];
    Trace { tasks: tasks.into(), ..Trace::default() }
}

fn causes(account: &Account, trace: &Trace, excess: &Excess<'_>, seen: Option<&Seen>) -> Vec<NamedCause> {
    from_account(account, trace, excess, seen).0
}

/// A hundred milliseconds of one part, of which one is usual.
fn of_part(part: Part) -> Account {
    Account { pieces: vec![Piece { from_ns: 0, to_ns: 100 * MS, part }], ..Account::default() }
}

#[track_caller]
fn is_named(part: Part, excess: &Excess<'_>, seen: Option<&Seen>, expected: &[(Cause, u64)]) {
    let found = causes(&of_part(part), &trace(120), excess, seen);
    let found: Vec<(Cause, u64)> = found.iter().map(|cause| (cause.name, cause.ns / MS)).collect();
    assert_eq!(found, expected, "{part:?} {excess:?} {seen:?}");
}

/// Goal: each part has its cause, and of what is usual nothing is charged.
#[test]
fn parts_have_their_causes() {
    let here = excess("responder", Side::Responder);
    let waited =
        Part::Blocked { woken_by: Some(OTHER), is_interrupt: false, is_uninterruptible: Some(false) };
    for (part, cause) in [
        (Part::Running, Cause::named("busy")),
        (Part::Ready { instead: OTHER }, Cause::named("run_queue")),
        (Part::Interrupted(Interruption::Deferred(3)), Cause::named("interrupts")),
        (Part::NotThere(Absence::Stopped), Cause::named("stopped")),
        (Part::NotThere(Absence::Traced), Cause::named("traced")),
        (Part::NotThere(Absence::CpuAsleep), Cause::named("cpu_asleep")),
        (waited, Cause::named("waited")),
    ] {
        is_named(part, &here, None, &[(cause, 99)]);
    }
    let unseen = Part::Blocked { woken_by: None, is_interrupt: false, is_uninterruptible: Some(false) };
    for part in [Part::Unexplained, Part::NotThere(Absence::Withheld), unseen] {
        is_named(part, &here, None, &[]);
    }
}

/// Goal: a counter explains no more than twice what it counted, however many parts there are of which each might be that.
#[test]
fn a_counter_is_used_once() {
    let here = excess("responder", Side::Responder);
    let waited =
        |waker| Part::Blocked { woken_by: Some(waker), is_interrupt: false, is_uninterruptible: Some(false) };
    let throttled = Seen { throttled_us: 3_000, throttled_us_most: 3_000, ..Seen::default() };
    let frozen = Seen { frozen_us: 3_000, frozen_us_most: 3_000, ..Seen::default() };
    let [may_be_throttled, may_be_frozen] =
        [Seen { throttled_us: 0, ..throttled }, Seen { frozen_us: 0, ..frozen }];
    let stopped = Seen { stopped_us: 3_000, ..Seen::default() };
    let untold =
        |waker| Part::Blocked { woken_by: Some(waker), is_interrupt: false, is_uninterruptible: None };
    let ready = |instead| Part::Ready { instead };
    type PartOf<'a> = &'a dyn Fn(u32) -> Part;
    let cases: [(PartOf<'_>, Seen, &str, &str); 5] = [
        (&ready, throttled, "throttled", "run_queue"),
        (&waited, frozen, "frozen", "waited"),
        (&untold, stopped, "stopped", ""),
        (&ready, may_be_throttled, "unexplained", "run_queue"),
        (&waited, may_be_frozen, "unexplained", "waited"),
    ];
    for (part, seen, counted, other) in cases {
        let pieces = (0..20).map(|number| {
            let from_ns = number * 5 * MS;
            Piece { from_ns, to_ns: from_ns + 5 * MS, part: part(20 + number as u32) }
        });
        let pieces: Vec<Piece> = pieces.collect();
        let account = Account { pieces, ..Account::default() };
        let (found, unnamed_ns) = from_account(&account, &trace(120), &here, Some(&seen));
        let ms = |name: &str| match name {
            "unexplained" => unnamed_ns / MS,
            _ => found.iter().filter(|one| one.name == Cause::named(name)).map(|one| one.ns / MS).sum(),
        };
        // Of a wait whose beginning nobody saw the rest is unexplained.
        let all_ms = if other.is_empty() { ms(counted) } else { 99 };
        assert!((3..=6).contains(&ms(counted)) && ms(counted) + ms(other) == all_ms, "{counted}: {found:#?}");
    }
}

/// Goal: a wait that began under the trace's eyes is no stop, however the process was continued then; one that began before may be.
#[test]
fn a_wait_that_was_seen_to_begin_is_no_stop() {
    let switch = |at, left, why, runs| Event(at, What::Switch { left, why, runs });
    let woken = [
        Event(90 * MS, What::Wake { woken: LATE, waker: OTHER, by_interrupt: false }),
        switch(90 * MS, OTHER, Leaving::Ready, LATE),
    ];
    let stopped = Seen { stopped_us: 89_000, cpu_us_most: 20_000, ..Seen::default() };
    let name = |fell_asleep: bool| {
        let asleep = fell_asleep.then(|| switch(MS, LATE, Leaving::Asleep, OTHER));
        let cpu = CpuEvents {
            until_ns: 100 * MS,
            events: asleep.into_iter().chain(woken).collect(),
            ..CpuEvents::default()
        };
        let trace = Trace { cpus: vec![cpu], ..trace(120) };
        let account = account(&trace, LATE, (0, 100 * MS));
        let found = causes(&account, &trace, &excess("responder", Side::Responder), Some(&stopped));
        found[0].name.name()
    };
    assert_eq!((name(true), name(false)), ("waited", "stopped"));
}

/// Goal: a thread that each system call stops for a moment was held by its tracer for the sum: while it stood still, while the tracer
/// ended its wait, and while the tracer had its CPU. Another who runs there is a neighbour still.
#[test]
fn short_stops_are_summed() {
    let tracer = 12;
    let task = TaskInfo { name: "strace".to_owned(), priority: 120, is_kernel: Some(false) };
    let mut events = vec![Event(0, What::Switch { left: OTHER, why: Leaving::Ready, runs: LATE })];
    for stop in 0..20 {
        let at = MS + stop * 4 * MS;
        events.extend([
            Event(at, What::Switch { left: LATE, why: Leaving::Traced, runs: tracer }),
            Event(at + MS, What::Wake { woken: LATE, waker: tracer, by_interrupt: false }),
            Event(at + 3 * MS, What::Switch { left: tracer, why: Leaving::Asleep, runs: LATE }),
        ]);
    }
    events.extend([
        Event(90 * MS, What::Switch { left: LATE, why: Leaving::Ready, runs: OTHER }),
        Event(95 * MS, What::Switch { left: OTHER, why: Leaving::Ready, runs: LATE }),
    ]);
    let cpu = CpuEvents { until_ns: 100 * MS, events, ..CpuEvents::default() };
    let mut trace = Trace { cpus: vec![cpu], ..trace(120) };
    trace.tasks.insert(tracer, task);
    let account = account(&trace, LATE, (0, 100 * MS));
    assert_eq!(account.tracers, [tracer]);
    let found = causes(&account, &trace, &excess("responder", Side::Responder), None);
    let named: Vec<(Cause, u64)> = found.iter().map(|cause| (cause.name, cause.ns / MS)).collect();
    let expected = [("traced", 60), ("busy", 34), ("run_queue", 5)];
    assert_eq!(named, expected.map(|(name, ms)| (Cause::named(name), ms)), "{found:#?}");
    assert!(found[0].evidence.contains("strace (12)"), "{found:#?}");
    // A thread that lets nobody go on is no tracer.
    let nobody = Account { tracers: Vec::new(), ..account };
    let found = causes(&nobody, &trace, &excess("responder", Side::Responder), None);
    assert_eq!(found[0].name, Cause::named("run_queue"), "{found:#?}");
}

/// Goal: a thread that waits, or spins, while its packet is on the wire is not called the cause.
#[test]
fn the_sender_is_not_the_wire() {
    let wire = excess("request.rx", Side::Wire);
    is_named(Part::Running, &wire, None, &[]);
    is_named(
        Part::Blocked { woken_by: Some(OTHER), is_interrupt: true, is_uninterruptible: Some(false) },
        &wire,
        None,
        &[],
    );
    is_named(Part::Ready { instead: OTHER }, &wire, None, &[(Cause::named("run_queue"), 99)]);
    is_named(Part::Running, &excess("reply.woken", Side::Client), None, &[]);
}

/// Goal: a receiver that slept for its message is not said to have slept or waited elsewhere, as without a trace. A tracer, a freezer
/// and a waker without a CPU delayed it still.
#[test]
fn a_receiver_that_slept_for_its_message_has_no_cause() {
    let wait = |is_interrupt, is_uninterruptible| Part::Blocked {
        woken_by: Some(OTHER),
        is_interrupt,
        is_uninterruptible: Some(is_uninterruptible),
    };
    let frozen = Seen { frozen_us: 99_000, frozen_us_most: 99_000, ..Seen::default() };
    for stage in ["woken", "request.woken", "medium"] {
        let listener = excess(stage, Side::Receiver);
        is_named(wait(true, false), &listener, None, &[]);
        is_named(wait(false, false), &listener, None, &[]);
        is_named(wait(false, false), &listener, Some(&frozen), &[(Cause::named("frozen"), 99)]);
        is_named(wait(false, true), &listener, None, &[(Cause::named("kernel_lock"), 99)]);
        let traced = Account { tracers: vec![OTHER], ..of_part(wait(false, false)) };
        assert_eq!(causes(&traced, &trace(120), &listener, None)[0].name, Cause::named("traced"));
    }
    // A handler that slept did not listen.
    for stage in ["elsewhere", "responder"] {
        is_named(wait(true, false), &excess(stage, Side::Receiver), None, &[(Cause::named("slept"), 99)]);
        is_named(wait(false, false), &excess(stage, Side::Receiver), None, &[(Cause::named("waited"), 99)]);
    }
}

/// Goal: a quota is named where its own counter says so, and nowhere else.
#[test]
fn a_quota_needs_its_counter() {
    let here = excess("responder", Side::Responder);
    let withheld = Part::NotThere(Absence::Withheld);
    let throttled =
        |throttled_us, throttled_us_most| Seen { throttled_us, throttled_us_most, ..Seen::default() };
    is_named(withheld, &here, Some(&throttled(90_000, 90_000)), &[(Cause::named("throttled"), 99)]);
    is_named(withheld, &here, Some(&throttled(9_000, 9_000)), &[]);
    // It may have run out beside the stage: then nobody knows whose the time is.
    let ready = Part::Ready { instead: OTHER };
    for part in [withheld, ready, Part::NotThere(Absence::CpuAsleep)] {
        is_named(part, &here, Some(&throttled(9_000, 90_000)), &[]);
    }
    is_named(ready, &here, Some(&throttled(9_000, 40_000)), &[(Cause::named("run_queue"), 99)]);
    let stolen = Seen { stolen_us: 60_000, ..throttled(0, 90_000) };
    is_named(ready, &here, Some(&stolen), &[(Cause::named("steal"), 60)]);
}

/// Goal: page faults are charged with their certain time in the stage; the time that they may have taken beyond is nobody's work.
#[test]
fn faults_are_charged_by_their_least() {
    let seen = |faults_us, faults_us_most| Seen {
        cpu_us_most: 200_000,
        faults_us,
        faults_us_most,
        ..Seen::default()
    };
    let (busy, faults) = (Cause::named("busy"), Cause::named("faults_minor"));
    let here = excess("responder", Side::Responder);
    is_named(Part::Running, &here, Some(&seen(10_000, 30_000)), &[(busy, 69), (faults, 10)]);
    is_named(Part::Running, &here, Some(&seen(0, 60_000)), &[(busy, 39)]);
}

/// Goal: time that the thread's own clock did not count is not its work; the hypervisor gets what it is known to have taken.
#[test]
fn stolen_time_is_not_work() {
    let here = excess("responder", Side::Responder);
    let seen = |cpu_us_most, stolen_us| Seen { cpu_us_most, stolen_us, ..Seen::default() };
    is_named(Part::Running, &here, Some(&seen(200_000, 0)), &[(Cause::named("busy"), 99)]);
    is_named(
        Part::Running,
        &here,
        Some(&seen(9_000, 60_000)),
        &[(Cause::named("steal"), 60), (Cause::named("busy"), 9)],
    );
    is_named(
        Part::NotThere(Absence::CpuAsleep),
        &here,
        Some(&seen(0, 99_000)),
        &[(Cause::named("steal"), 99)],
    );
    // A ready thread waits for the hypervisor, not for the thread that was on its CPU when that was taken.
    is_named(
        Part::Ready { instead: OTHER },
        &here,
        Some(&seen(0, 60_000)),
        &[(Cause::named("steal"), 60), (Cause::named("run_queue"), 39)],
    );
    for untold in [Part::Unexplained, Part::NotThere(Absence::Withheld)] {
        is_named(untold, &here, Some(&seen(0, 60_000)), &[(Cause::named("steal"), 60)]);
    }
}

/// Goal: the limit of real-time threads is theirs alone, and a more urgent thread is no limit.
#[test]
fn a_limit_needs_a_real_time_thread() {
    let urgent = Excess { urgency: Urgency::Fifo(50), ..excess("responder", Side::Responder) };
    let ready = Part::Ready { instead: OTHER };
    is_named(ready, &urgent, None, &[(Cause::named("real_time_limit"), 99)]);
    let found = causes(&of_part(ready), &trace(49), &urgent, None);
    assert_eq!(found[0].name, Cause::named("urgent_neighbour"));
    // A processor that the hypervisor has looks like one that runs the ordinary thread which was on it.
    let stolen = Seen { stolen_us: 95_000, ..Seen::default() };
    let found = causes(&of_part(ready), &trace(120), &urgent, Some(&stolen));
    assert_eq!(found[0].name, Cause::named("steal"), "{found:?}");
    // Several ordinary threads may share what the kernel keeps for them; for less than that none is let in by the limit.
    let shared = |each_ns: u64| {
        let piece = |place: u64| Piece {
            from_ns: each_ns * place,
            to_ns: each_ns * (place + 1),
            part: Part::Ready { instead: 20 + place as u32 },
        };
        Account { pieces: (0..3).map(piece).collect(), ..Account::default() }
    };
    let names = |each_ns| {
        let found = causes(&shared(each_ns), &trace(120), &urgent, None);
        found.iter().map(|cause| (cause.name, cause.ns / MS)).collect::<Vec<(Cause, u64)>>()
    };
    assert_eq!(names(16 * MS), [(Cause::named("real_time_limit"), 47)]);
    assert_eq!(names(3 * MS), [(Cause::named("run_queue"), 8)]);
    // Waits of which each is shorter are no limit together; an interrupt does not part them.
    let apart = |between: Part, ns: u64| {
        let pieces = (0..8).map(|place| {
            let (from_ns, part) = (5 * MS * (place / 2), if place % 2 == 0 { ready } else { between });
            if place % 2 == 0 {
                Piece { from_ns, to_ns: from_ns + 5 * MS - ns, part }
            } else {
                Piece { from_ns: from_ns + 5 * MS - ns, to_ns: from_ns + 5 * MS, part }
            }
        });
        let account = Account { pieces: pieces.collect(), ..Account::default() };
        causes(&account, &trace(120), &urgent, None)[0].name.name()
    };
    assert_eq!(apart(Part::Running, MS), "run_queue");
    assert_eq!(apart(Part::Interrupted(Interruption::Device(4)), MS / 10), "real_time_limit");
}

/// Goal: of two causes both are named, the larger first, with the culprits.
#[test]
fn two_causes_are_both_named() {
    let ms = |at: u64| at * MS;
    let events = vec![
        Event(ms(0), What::Switch { left: LATE, why: Leaving::Ready, runs: OTHER }),
        Event(ms(60), What::Switch { left: OTHER, why: Leaving::Ready, runs: LATE }),
        Event(ms(70), What::SoftInterrupt(3)),
        Event(ms(100), What::SoftInterruptEnd(3)),
    ];
    let cpu = CpuEvents { until_ns: ms(200), events, ..CpuEvents::default() };
    let trace = Trace { cpus: vec![cpu], ..trace(120) };
    let account = account(&trace, LATE, (0, ms(100)));
    let found = causes(&account, &trace, &excess("responder", Side::Responder), None);
    let named: Vec<(Cause, u64)> = found.iter().map(|cause| (cause.name, cause.ns / MS)).collect();
    assert_eq!(
        named,
        [(Cause::named("run_queue"), 60), (Cause::named("interrupts"), 30), (Cause::named("busy"), 9)]
    );
    assert_eq!(found[0].evidence, "hog (9) 60,000 µs");
    assert_eq!(found[1].evidence, "softirq NET_RX 30,000 µs");
    assert!(found.iter().map(|cause| cause.share).sum::<f64>() <= 1.0);
}

/// Goal: a wait that no signal ends is told by its waker, and by page faults as often as waits; a frozen group by its counter.
#[test]
fn waits_are_told_apart() {
    let here = excess("responder", Side::Responder);
    let wait = |woken_by, is_interrupt, is_uninterruptible| Part::Blocked {
        woken_by: Some(woken_by),
        is_interrupt,
        is_uninterruptible: Some(is_uninterruptible),
    };
    let frozen_for = |frozen_us, frozen_us_most| Seen { frozen_us, frozen_us_most, ..Seen::default() };
    let frozen = frozen_for(60_000, 60_000);
    let faulted = Seen { faults_major: 1, ..Seen::default() };
    for (part, seen, cause) in [
        (wait(OTHER, false, true), None, "kernel_lock"),
        (wait(OTHER, false, true), Some(&faulted), "kernel_lock"),
        (wait(JOURNAL, false, true), None, "storage"),
        (wait(IDLE, true, false), Some(&faulted), "slept"),
        (wait(OTHER, false, false), Some(&faulted), "waited"),
        (wait(OTHER, false, false), Some(&frozen), "frozen"),
        (wait(OTHER, true, false), Some(&frozen), "slept"),
    ] {
        is_named(part, &here, seen, &[(Cause::named(cause), 99)]);
    }
    // Regardless of the waker, nobody knows how a wait began that is older than the trace.
    for is_interrupt in [false, true] {
        let untold = Part::Blocked { woken_by: Some(OTHER), is_interrupt, is_uninterruptible: None };
        is_named(untold, &here, None, &[]);
    }
    is_named(wait(OTHER, true, true), &here, None, &[]);
    // A page fault in the same window does not say what a wait was for whose end is unknown.
    is_named(wait(IDLE, true, true), &here, Some(&faulted), &[]);
    // The kind of the thread is not known of a run that an older version stored.
    let mut old = trace(120);
    old.tasks.values_mut().for_each(|task| task.is_kernel = None);
    assert_eq!(causes(&of_part(wait(OTHER, false, true)), &old, &here, None), []);
    // A disk's interrupts.
    let events = [25, 50, 75, 100].map(|at| Event(at * MS, What::Interrupt(24))).into();
    let cpu = CpuEvents { until_ns: 200 * MS, events, ..CpuEvents::default() };
    let disk = Trace { cpus: vec![cpu], ..trace(120) };
    let found = causes(&of_part(wait(IDLE, true, true)), &disk, &here, Some(&faulted));
    assert_eq!((found[0].name.name(), found[0].share), ("faults_major", 1.0), "{found:#?}");
    // One fault among waits that several threads ended is not the reason for all of them.
    let mut several = of_part(wait(IDLE, true, true));
    several.pieces = (0..4)
        .map(|place| Piece {
            from_ns: 25 * MS * place,
            to_ns: 25 * MS * (place + 1),
            part: wait(20 + place as u32, true, true),
        })
        .collect();
    let found = causes(&several, &disk, &here, Some(&faulted));
    assert_eq!(found[0].name, Cause::named("storage"));
    // A page fault among many waits is not what they were for, and a group frozen for less than half is not the cause.
    let mut often = of_part(wait(IDLE, true, true));
    let between = Piece { from_ns: 100 * MS, to_ns: 100 * MS + 1, part: Part::Running };
    often.pieces = std::iter::repeat_n([often.pieces[0], between], 3).flatten().collect();
    let found = causes(&often, &disk, &here, Some(&faulted));
    assert_eq!(found[0].name, Cause::named("storage"));
    let little = frozen_for(40_000, 40_000);
    is_named(wait(OTHER, false, false), &here, Some(&little), &[(Cause::named("waited"), 99)]);
    // A group that may have been frozen beside the stage may have been frozen in it.
    is_named(wait(OTHER, false, false), &here, Some(&frozen_for(10_000, 60_000)), &[]);
}
