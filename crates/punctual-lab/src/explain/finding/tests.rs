//! Stalls of a trial made by hand, with every kind of evidence and with none.
use super::*;
use crate::explain::evidence::EvidenceDump;
use crate::explain::stage::StageOwner;
use crate::explain::trace::{CpuEvents, Event, Leaving, Trace, What};
use crate::sample::{Outcome, StageColumn};
use punctual_machine::window::{Evidence, Window};

const LATE: u32 = 7;
const MS: u64 = 1_000_000;

/// Twenty trips of 20 µs, a millisecond apart; the responder held one of them for so long.
pub(crate) fn samples(held_ns: u64) -> Samples {
    let mut samples = Samples::default();
    let mut held = Vec::new();
    for index in 0..20 {
        let ns = if index == 10 { held_ns } else { 10_000 };
        held.push(ns);
        samples.push(index, index * MS, index * MS, ns + 10_000, Outcome::Answered);
    }
    let way = vec![5_000; 20];
    let names = [("request.woken", way.clone()), ("responder", held), ("reply.woken", way)];
    samples.stages = names.map(|(name, ns)| StageColumn { name: name.to_owned(), ns }).into();
    samples
}

pub(crate) fn evidence() -> TrialEvidence {
    let thread = |role: &str, thread| EvidenceThread {
        role: role.to_owned(),
        thread,
        cpu: Some(0),
        has_control: true,
        ..EvidenceThread::default()
    };
    TrialEvidence {
        threads: vec![thread("client", Some(6)), thread("responder", Some(LATE))],
        stages: vec![
            StageOwner::of("request.woken", Side::Responder, "responder"),
            StageOwner::of("responder", Side::Responder, "responder"),
            StageOwner::of("reply.woken", Side::Client, "client"),
        ],
        recording: Recording::On { skipped: 0 },
        fault_ns: FAULT_NS_MIN,
        ..TrialEvidence::default()
    }
}

/// From just before the late trip: another thread has the CPU for 3 ms of it.
pub(crate) fn dump() -> EvidenceDump {
    let begin = 10 * MS + 5_000;
    let switch = |at, left, runs| Event(at, What::Switch { left, why: Leaving::Ready, runs });
    let events = vec![switch(begin + MS, LATE, 9), switch(begin + 4 * MS, 9, LATE)];
    let cpu = CpuEvents { since_ns: 9 * MS, until_ns: 20 * MS, events, ..CpuEvents::default() };
    EvidenceDump { span: (10 * MS, 14 * MS), trace: Trace { cpus: vec![cpu], ..Trace::default() } }
}

/// Goal: the stall is found once, in its stage, with the parts of its thread and the time that each cause took.
#[test]
fn a_trace_accounts_for_a_stall() {
    let samples = samples(4 * MS + 10_000);
    let kept = TrialEvidence { dumps: vec![dump()], ..evidence() };
    let found = explain(&samples, Load::Closed, Some(&kept));
    let [one] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((one.stall.first_index, one.instant_ns, one.excess_ns), (10, 10 * MS, 4 * MS));
    assert_eq!((one.stage.as_deref(), one.side), (Some("responder"), Some(Side::Responder)));
    let parts: Vec<(&str, u64)> = one.parts.iter().map(|part| (part.part.as_str(), part.ns)).collect();
    assert_eq!(parts, [("ready while thread 9 ran", 3 * MS), ("ran", MS + 10_000)]);
    assert_eq!((one.cause(), one.causes[0].ns, one.causes[1].ns), (Cause::named("run_queue"), 3 * MS, MS));
    assert_eq!((one.unexplained_ns, one.would_help.as_ref()), (0, None));
    let json = serde_json::to_string(&kept).expect("keys are strings");
    let again: TrialEvidence = serde_json::from_str(&json).expect("as it was written");
    assert_eq!(explain(&samples, Load::Closed, Some(&again)), found, "the same from the store");
}

/// Goal: where the recorder lost events nothing is claimed of that time, and it is said.
#[test]
fn lost_events_lower_the_verdict() {
    let mut dump = dump();
    dump.trace.cpus[0].gaps = vec![(10 * MS, 14 * MS)];
    dump.trace.cpus[0].lost = 12;
    let kept = TrialEvidence { dumps: vec![dump], ..evidence() };
    let found = explain(&samples(4 * MS + 10_000), Load::Closed, Some(&kept));
    assert_eq!((found[0].cause(), found[0].unexplained_ns), (Cause::UNEXPLAINED, 4 * MS - 5_000));
    assert!(found[0].would_help.as_ref().is_some_and(|text| text.contains("lost 12 events")), "{found:?}");
}

/// Goal: a trace that begins amid the stage says so: a busy CPU had overwritten what was before.
#[test]
fn a_trace_that_does_not_reach_back_is_said() {
    let mut dump = dump();
    dump.trace.cpus[0].since_ns = 12 * MS + 5_000;
    let kept = TrialEvidence { dumps: vec![dump], ..evidence() };
    let one = explain(&samples(4 * MS + 10_000), Load::Closed, Some(&kept)).remove(0);
    assert!(one.would_help.as_ref().is_some_and(|text| text.contains("begins 2,000 µs after")), "{one:#?}");
}

/// Goal: of time that the trace does not tell the thread's windows do, also where a counter claims a little more than there is; but not
/// where most of that time is told otherwise.
#[test]
fn windows_tell_what_the_trace_does_not() {
    let mut dump = dump();
    dump.trace.cpus[0].gaps = vec![(10 * MS, 14 * MS)];
    let mut kept = TrialEvidence { dumps: vec![dump], ..evidence() };
    let frozen = Evidence { wall_us: 4_010, frozen_us: 4_010, ..Evidence::default() };
    kept.threads[1].windows = vec![Window { evidence: frozen, span: (10 * MS, 14 * MS + 10_000) }];
    let untold = explain(&samples(4 * MS + 10_000), Load::Closed, Some(&kept)).remove(0);
    assert_eq!((untold.cause(), untold.causes[0].ns), (Cause::named("frozen"), 4 * MS - 5_000));
    kept.dumps[0].trace.cpus[0].gaps = vec![(10 * MS, 11 * MS)];
    let told = explain(&samples(4 * MS + 10_000), Load::Closed, Some(&kept)).remove(0);
    assert_eq!(told.cause(), Cause::named("run_queue"), "{told:#?}");
}

/// Goal: the knowledge of windows is added to that of the trace, and replaces none of it; the same time is not told twice.
#[test]
fn windows_complete_what_the_trace_tells() {
    let mut dump = dump();
    dump.trace.cpus[0].gaps = vec![(10 * MS, 13 * MS)];
    let mut kept = TrialEvidence { dumps: vec![dump], ..evidence() };
    let found = |kept: &TrialEvidence| {
        let one = explain(&samples(4 * MS + 10_000), Load::Closed, Some(kept)).remove(0);
        let causes: Vec<(&str, u64)> = one.causes.iter().map(|cause| (cause.name.name(), cause.ns)).collect();
        (causes.iter().map(|(name, ns)| format!("{name} {}", ns / 1000)).collect::<Vec<_>>(), one)
    };
    let frozen = Evidence { wall_us: 4_010, frozen_us: 3_000, ..Evidence::default() };
    let span = (10 * MS, 14 * MS + 10_000);
    kept.threads[1].windows = vec![Window { evidence: frozen, span }];
    let (causes, one) = found(&kept);
    assert_eq!(causes, ["frozen 2995", "run_queue 1005"], "{one:#?}");
    assert_eq!((one.causes[1].evidence.as_str(), one.unexplained_ns), ("thread 9 1,005 µs", 0), "{one:#?}");
    let ready = Evidence { wall_us: 4_010, wait_us: 4_000, ..Evidence::default() };
    kept.threads[1].windows = vec![Window { evidence: ready, span }];
    let (causes, one) = found(&kept);
    assert!(one.causes.len() == 1 && causes[0].starts_with("run_queue 39"), "{one:#?}");
    assert!(one.causes[0].share > 0.99 && one.causes[0].evidence == "thread 9 1,005 µs", "{one:#?}");
}

/// Goal: windows name the time that the trace leaves without a cause: all of that, and none that has one.
#[test]
fn windows_name_what_the_trace_leaves_unnamed() {
    let begin = 10 * MS + 5_000;
    let switch = |at, left, why, runs| Event(at, What::Switch { left, why, runs });
    let wake = |at, by_interrupt| Event(at, What::Wake { woken: LATE, waker: 9, by_interrupt });
    let found = |events: Vec<Event>| {
        let cpu = CpuEvents { since_ns: 9 * MS, until_ns: 20 * MS, events, ..CpuEvents::default() };
        let dump =
            EvidenceDump { span: (10 * MS, 14 * MS), trace: Trace { cpus: vec![cpu], ..Trace::default() } };
        let mut kept = TrialEvidence { dumps: vec![dump], ..evidence() };
        let slept = Evidence { wall_us: 4_010, switches_voluntary: 1, ..Evidence::default() };
        kept.threads[1].windows = vec![Window { evidence: slept, span: (10 * MS, 14 * MS + 10_000) }];
        explain(&samples(4 * MS + 10_000), Load::Closed, Some(&kept)).remove(0)
    };
    let names = |one: &Explained| one.causes.iter().map(|cause| cause.name.name()).collect::<Vec<_>>();
    let deaf = vec![
        switch(begin, LATE, Leaving::Uninterruptible, 9),
        wake(begin + 4 * MS, true),
        switch(begin + 4 * MS, 9, Leaving::Ready, LATE),
    ];
    let one = found(deaf);
    assert_eq!(names(&one), ["handler_blocked"], "a wait of unknown end: {one:#?}");
    assert!(one.unexplained_ns < MS, "{one:#?}");
    let traced = vec![
        wake(begin + 4 * MS, false),
        switch(begin + 4 * MS, 9, Leaving::Ready, LATE),
        switch(begin + 4 * MS + 2_000, LATE, Leaving::Traced, 9),
        wake(begin + 4 * MS + 3_000, false),
        switch(begin + 4 * MS + 4_000, 9, Leaving::Ready, LATE),
    ];
    let one = found(traced);
    assert_eq!(names(&one), ["traced"], "since before the trace, ended by its tracer: {one:#?}");
    assert!(one.causes.iter().map(|cause| cause.share).sum::<f64>() <= 1.0, "{one:#?}");
}

/// Goal: less evidence says less, and what would help; it never says something else.
#[test]
fn less_evidence_says_less() {
    let samples = samples(4 * MS + 10_000);
    let found = |evidence: Option<&TrialEvidence>| explain(&samples, Load::Closed, evidence).remove(0);
    let nothing = found(None);
    assert_eq!((nothing.cause(), nothing.side, nothing.unexplained_ns), (Cause::UNEXPLAINED, None, 4 * MS));
    assert_eq!(nothing.stage.as_deref(), Some("responder"));
    assert!(nothing.would_help.is_some_and(|text| text.contains("no evidence")));
    let mut kept = TrialEvidence { recording: Recording::Off, ..evidence() };
    let off = found(Some(&kept));
    assert_eq!((off.cause(), off.side), (Cause::UNEXPLAINED, Some(Side::Responder)));
    assert!(off.would_help.is_some_and(|text| text.contains("--trace")));
    let ready = Evidence { wall_us: 4_500, wait_us: 4_000, ..Evidence::default() };
    kept.threads[1].windows = vec![Window { evidence: ready, span: (10 * MS, 14 * MS + 500_000) }];
    let seen = found(Some(&kept));
    assert_eq!((seen.cause(), seen.parts.len()), (Cause::named("run_queue"), 0));
    assert!(seen.would_help.is_some(), "a trace would say who ran");
    kept.threads[1].thread = None;
    kept.threads[1].windows.clear();
    let elsewhere = found(Some(&kept));
    assert_eq!(elsewhere.cause(), Cause::UNEXPLAINED);
    assert!(elsewhere.would_help.is_some_and(|text| text.contains("another host")));
}

/// Goal: of what was late after a thread had no more room for windows that is said; where there are windows it is not.
#[test]
fn windows_that_were_not_kept_are_said() {
    let samples = samples(4 * MS + 10_000);
    let mut kept = TrialEvidence { recording: Recording::Off, ..evidence() };
    let helps = |kept: &TrialEvidence| {
        explain(&samples, Load::Closed, Some(kept)).remove(0).would_help.expect("a trace would help")
    };
    assert!(!helps(&kept).contains("windows"));
    kept.threads[1].windows_left_out = 1_234;
    assert!(
        helps(&kept).contains("a shorter run: 1,234 windows of its thread were not kept"),
        "{}",
        helps(&kept)
    );
    let window = Evidence { wall_us: 9_000, ..Evidence::default() };
    kept.threads[1].windows = vec![Window { evidence: window, span: (9 * MS, 18 * MS) }];
    assert!(!helps(&kept).contains("windows"));
}

/// Goal: of a message that two threads of one side had one after the other, neither for half of its time, both are heard; one whose
/// evidence is missing names nothing, and a stage of the other side is no part of it.
#[test]
fn threads_of_one_side_are_charged_together() {
    let mut samples = samples(4 * MS + 10_000);
    samples.stages[0].ns[10] += 3 * MS + 900_000;
    samples.stages[2].ns[10] += 2 * MS;
    samples.total_ns[10] += 5 * MS + 900_000;
    let mut kept = TrialEvidence { recording: Recording::Off, ..evidence() };
    let ready = |wait_us: u32, span: (u64, u64)| {
        let evidence = Evidence { wall_us: 5_000, wait_us, ..Evidence::default() };
        vec![Window { evidence, span }]
    };
    let begin = 10 * MS;
    kept.threads[1].windows = ready(4_000, (begin + 3 * MS + 500_000, begin + 8 * MS + 500_000));
    let alone = explain(&samples, Load::Closed, Some(&kept)).remove(0);
    assert_eq!((alone.cause(), &alone.also[..]), (Cause::UNEXPLAINED, &[][..]), "it held less than half");
    kept.stages[0] = StageOwner::of("request.woken", Side::Responder, "other");
    kept.threads.push(EvidenceThread {
        role: "other".to_owned(),
        thread: Some(8),
        ..kept.threads[1].clone()
    });
    kept.threads[2].windows = ready(4_500, (begin - MS, begin + 4 * MS));
    let both = explain(&samples, Load::Closed, Some(&kept)).remove(0);
    assert_eq!((both.stage.as_deref(), both.cause()), (Some("responder"), Cause::named("run_queue")));
    assert_eq!(both.also, [PartTime { part: "request.woken".to_owned(), ns: 3 * MS + 900_000 }]);
    let [cause] = &both.causes[..] else { panic!("{both:#?}") };
    assert!(cause.ns > 6 * MS && cause.ns < 8 * MS && cause.share < 0.8, "{both:#?}");
    kept.threads[2].windows.clear();
    let missing = explain(&samples, Load::Closed, Some(&kept)).remove(0);
    assert_eq!(missing.cause(), Cause::UNEXPLAINED, "{missing:#?}");
    assert!(missing.unexplained_ns > 5 * MS, "{missing:#?}");
}

/// Goal: the backlog of a short stall is that stall's; a long one that begins behind it, and of which nothing is known, is not hidden.
#[test]
fn a_long_stall_is_not_hidden_behind_a_short_one() {
    let begin = 10 * MS + 5_000;
    let switch = |at, left, runs| Event(at, What::Switch { left, why: Leaving::Ready, runs });
    let events = vec![switch(begin, LATE, 9), switch(begin + 1_500_000, 9, LATE)];
    let gaps = vec![(begin + 1_500_001, 20 * MS)];
    let cpu = CpuEvents { since_ns: 9 * MS, until_ns: 21 * MS, events, gaps, ..CpuEvents::default() };
    let trace = Trace { cpus: vec![cpu], ..Trace::default() };
    let kept = TrialEvidence { dumps: vec![EvidenceDump { span: (10 * MS, 20 * MS), trace }], ..evidence() };
    let behind = |next_ns: u64| {
        // The second message is sent half a millisecond before the first is released.
        let mut samples = samples(1_510_000);
        samples.total_ns[11] = next_ns;
        samples.stages[1].ns[11] = next_ns - 10_000;
        let found = explain(&samples, Load::Open, Some(&kept));
        let one = |index| found.iter().find(|one| one.stall.first_index == index).expect("a stall");
        assert_eq!(one(10).cause(), Cause::named("run_queue"), "{found:#?}");
        (one(11).behind, one(11).cause() == Cause::UNEXPLAINED)
    };
    assert_eq!(behind(900_000).0, Some(10));
    assert_eq!(behind(5 * MS), (None, true));
}

/// Goal: a long stall that began before a short one is not hidden behind it, though it ends right after.
#[test]
fn a_long_stall_is_not_hidden_behind_one_within_it() {
    let mut samples = samples(10_000);
    let mut late = |row: usize, ns: u64| {
        samples.total_ns[row] = ns;
        samples.stages[1].ns[row] = ns - 10_000;
    };
    // The first of them is released at 15.5 ms, the other at 15.3 ms.
    late(10, 5_500_000);
    late(14, 1_300_000);
    let begin = 14 * MS + 5_000;
    let switch = |at, left, runs| Event(at, What::Switch { left, why: Leaving::Ready, runs });
    let events = vec![switch(begin, LATE, 9), switch(begin + MS, 9, LATE)];
    let cpu = CpuEvents { since_ns: 14 * MS, until_ns: 21 * MS, events, ..CpuEvents::default() };
    let trace = Trace { cpus: vec![cpu], ..Trace::default() };
    let kept = TrialEvidence { dumps: vec![EvidenceDump { span: (14 * MS, 20 * MS), trace }], ..evidence() };
    let found = explain(&samples, Load::Open, Some(&kept));
    let one = |index| found.iter().find(|one| one.stall.first_index == index).expect("a stall");
    assert_eq!(one(14).cause(), Cause::named("run_queue"), "{found:#?}");
    assert_eq!((one(10).cause(), one(10).behind), (Cause::UNEXPLAINED, None), "{found:#?}");
}

/// Goal: the causes of two stages are no more than the excess of the message: another stage of it was faster than usual.
#[test]
fn stages_share_no_more_than_the_message() {
    let mut samples = samples(4 * MS + 10_000);
    samples.stages[0].ns[10] += 4 * MS;
    samples.total_ns[10] += MS;
    let mut kept = TrialEvidence { recording: Recording::Off, ..evidence() };
    kept.stages[0] = StageOwner::of("request.woken", Side::Responder, "other");
    let window = |evidence: Evidence, from: u64| {
        let evidence = Evidence { wall_us: 4_000, ..evidence };
        vec![Window { evidence, span: (from, from + 4 * MS) }]
    };
    let ready = Evidence { wait_us: 4_000, ..Evidence::default() };
    let frozen = Evidence { frozen_us: 4_000, ..Evidence::default() };
    kept.threads.push(EvidenceThread {
        role: "other".to_owned(),
        thread: Some(8),
        ..kept.threads[1].clone()
    });
    kept.threads[1].windows = window(ready, 14 * MS + 10_000);
    kept.threads[2].windows = window(frozen, 10 * MS);
    let one = explain(&samples, Load::Closed, Some(&kept)).remove(0);
    assert_eq!((one.excess_ns, one.causes.len()), (5 * MS, 2), "{one:#?}");
    let (sum_ns, share) = one.causes.iter().fold((0, 0.0), |(ns, share), cause| {
        assert!(cause.ns > 2 * MS && cause.share > 0.4, "{one:#?}");
        (ns + cause.ns, share + cause.share)
    });
    assert!(sum_ns <= one.excess_ns && share <= 1.0, "{one:#?}");
}

/// Goal: the usual time is that of messages that were answered: refusals are fast, and lost messages have only an age.
#[test]
fn the_usual_time_is_of_answers() {
    let first = |samples: &Samples| explain(samples, Load::Closed, Some(&evidence())).remove(0);
    let usual = first(&samples(4 * MS + 10_000));
    for outcome in [Outcome::Refused, Outcome::Lost, Outcome::Mismatched] {
        let mut samples = samples(4 * MS + 10_000);
        for row in 0..3 {
            (samples.outcome[row], samples.total_ns[row]) = (outcome, 300);
            samples.stages.iter_mut().for_each(|stage| stage.ns[row] = 100);
        }
        let one = first(&samples);
        let found = (one.excess_ns, one.stage_excess_ns);
        assert_eq!(found, (usual.excess_ns, usual.stage_excess_ns), "{outcome:?}");
    }
}
