//! One part after another on traces made by hand, and any trace: the parts tile the interval.
use proptest::prelude::*;

use super::*;
use crate::explain::timeline::Stretch;
use crate::explain::trace::{CpuEvents, Event, Leaving, What};

const LATE: u32 = 7;
const HOG: u32 = 9;

pub(in crate::explain) fn switch(at: u64, left: u32, why: Leaving, runs: u32) -> Event {
    Event(at, What::Switch { left, why, runs })
}

pub(in crate::explain) fn wake(at: u64, woken: u32, waker: u32, by_interrupt: bool) -> Event {
    Event(at, What::Wake { woken, waker, by_interrupt })
}

fn cpu(number: u32, events: Vec<Event>) -> CpuEvents {
    CpuEvents { cpu: number, since_ns: 0, until_ns: 1000, events, ..CpuEvents::default() }
}

fn trace(cpus: Vec<CpuEvents>) -> Trace {
    Trace { cpus, ..Trace::default() }
}

/// The parts between 100 and 900, in the order of time.
#[track_caller]
fn divided(trace: &Trace, expected: &[(u64, Part)]) {
    let account = account(trace, LATE, (100, 900));
    let found: Vec<(u64, Part)> = account.pieces.iter().map(|piece| (piece.ns(), piece.part)).collect();
    assert_eq!(found, expected);
    assert_eq!(account.total_ns(), 800);
}

/// Goal: a sleeping thread was woken by somebody, waited for the threads that ran instead, and ran.
#[test]
fn a_neighbour_ran_instead() {
    let ours = vec![
        switch(50, LATE, Leaving::Asleep, HOG),
        switch(600, HOG, Leaving::Ready, 3),
        switch(700, 3, Leaving::Ready, LATE),
    ];
    let trace = trace(vec![cpu(0, ours), cpu(1, vec![wake(200, LATE, 4, false)])]);
    divided(
        &trace,
        &[
            (100, Part::Blocked { woken_by: Some(4), is_interrupt: false, is_uninterruptible: Some(false) }),
            (400, Part::Ready { instead: HOG }),
            (100, Part::Ready { instead: 3 }),
            (200, Part::Running),
        ],
    );
}

/// Goal: interrupts are taken off the time that a thread ran; of two within each other the inner one counts.
#[test]
fn interrupts_are_taken_off() {
    let events = vec![
        switch(50, IDLE, Leaving::Ready, LATE),
        Event(200, What::SoftInterrupt(3)),
        Event(300, What::Interrupt(24)),
        Event(400, What::InterruptEnd(24)),
        Event(500, What::SoftInterruptEnd(3)),
    ];
    let (soft, hard) = (Interruption::Deferred(3), Interruption::Device(24));
    divided(
        &trace(vec![cpu(0, events)]),
        &[
            (100, Part::Running),
            (100, Part::Interrupted(soft)),
            (100, Part::Interrupted(hard)),
            (100, Part::Interrupted(soft)),
            (400, Part::Running),
        ],
    );
}

/// Goal: deferred work that a thread does, as under PREEMPT_RT, lasts while that thread runs: what preempts it is no interrupt.
#[test]
fn deferred_work_rests_while_its_thread_does() {
    let events = vec![
        switch(50, IDLE, Leaving::Ready, HOG),
        Event(200, What::SoftInterrupt(3)),
        switch(300, HOG, Leaving::Ready, LATE),
        switch(700, LATE, Leaving::Asleep, HOG),
        Event(900, What::SoftInterruptEnd(3)),
    ];
    let at = |from_ns, to_ns| Stretch { from_ns, to_ns, what: Interruption::Deferred(3) };
    assert_eq!(interruptions(&cpu(0, events), (0, 1_000)), [at(200, 300), at(700, 900)]);
}

/// Goal: a piece of a sum, which the filter spreads over switches, lasts until its end, and no longer. Method: the thread that left in it
/// comes back, and so do more pieces.
#[test]
fn a_piece_of_a_sum_goes_on_over_a_switch() {
    let events = vec![
        switch(100, HOG, Leaving::Ready, LATE),
        Event(490, What::SoftInterrupt(3)),
        switch(500, LATE, Leaving::Ready, HOG),
        switch(505, HOG, Leaving::Ready, IDLE),
        Event(509, What::SoftInterruptEnd(3)),
        switch(600, IDLE, Leaving::Ready, LATE),
        Event(700, What::SoftInterrupt(3)),
        Event(710, What::SoftInterruptEnd(3)),
        switch(800, LATE, Leaving::Ready, HOG),
        switch(900, HOG, Leaving::Ready, LATE),
    ];
    let at = |from_ns, to_ns| Stretch { from_ns, to_ns, what: Interruption::Deferred(3) };
    let found = interruptions(&cpu(0, events), (0, 1_000));
    assert_eq!(found, [at(490, 500), at(500, 509), at(700, 710)]);
}

/// Goal: an interrupt of the thread that ran instead is an interrupt, and not that thread's time.
#[test]
fn interrupts_of_a_neighbour_are_not_its_own() {
    let events = vec![
        switch(100, LATE, Leaving::Ready, HOG),
        Event(200, What::SoftInterrupt(3)),
        Event(600, What::SoftInterruptEnd(3)),
        switch(700, HOG, Leaving::Ready, LATE),
    ];
    divided(
        &trace(vec![cpu(0, events)]),
        &[
            (100, Part::Ready { instead: HOG }),
            (400, Part::Interrupted(Interruption::Deferred(3))),
            (100, Part::Ready { instead: HOG }),
            (200, Part::Running),
        ],
    );
}

/// Goal: an interrupt that began before anything is known is one until its end.
#[test]
fn an_interrupt_under_way_counts_from_the_beginning() {
    let events = vec![Event(300, What::SoftInterruptEnd(3)), switch(950, LATE, Leaving::Asleep, IDLE)];
    let soft = Part::Interrupted(Interruption::Deferred(3));
    divided(&trace(vec![cpu(0, events)]), &[(200, soft), (600, Part::Running)]);
}

/// Goal: a stop, a quota and a CPU that idles on are three things.
#[test]
fn absences_differ() {
    let stopped = vec![
        switch(100, LATE, Leaving::Stopped, IDLE),
        wake(700, LATE, 4, false),
        switch(800, IDLE, Leaving::Ready, LATE),
    ];
    divided(
        &trace(vec![cpu(0, stopped)]),
        &[
            (600, Part::NotThere(Absence::Stopped)),
            (100, Part::NotThere(Absence::CpuAsleep)),
            (100, Part::Running),
        ],
    );
    let traced = vec![switch(100, LATE, Leaving::Traced, IDLE), switch(900, IDLE, Leaving::Ready, LATE)];
    divided(&trace(vec![cpu(0, traced)]), &[(800, Part::NotThere(Absence::Traced))]);
    let withheld = vec![switch(200, LATE, Leaving::Ready, IDLE), switch(900, IDLE, Leaving::Ready, LATE)];
    divided(
        &trace(vec![cpu(0, withheld)]),
        &[(100, Part::Running), (700, Part::NotThere(Absence::Withheld))],
    );
}

/// Goal: where the switch from the idle task is missing, nobody knows when the CPU woke, nor who ran since: neither a sleeping CPU
/// nor a neighbour is made up. Some kernels record nothing of a CPU's idle task.
#[test]
fn a_switch_that_is_missing_is_not_made_up() {
    let neighbour = vec![
        switch(150, LATE, Leaving::Asleep, IDLE),
        switch(600, HOG, Leaving::Asleep, LATE),
        switch(950, LATE, Leaving::Asleep, IDLE),
    ];
    let other = || cpu(1, vec![wake(200, LATE, 4, false)]);
    let blocked = Part::Blocked { woken_by: Some(4), is_interrupt: false, is_uninterruptible: Some(false) };
    divided(
        &trace(vec![cpu(0, neighbour), other()]),
        &[(50, Part::Running), (50, blocked), (400, Part::Unexplained), (300, Part::Running)],
    );
    let itself = vec![switch(150, LATE, Leaving::Asleep, IDLE), switch(700, LATE, Leaving::Asleep, IDLE)];
    let both = trace(vec![cpu(0, itself.clone()), other()]);
    let account = account(&both, LATE, (100, 700));
    assert_eq!(account.time_of(Part::Unexplained), 500, "{account:?}");
    let alone = super::account(&trace(vec![cpu(0, itself)]), LATE, (100, 700));
    assert_eq!(alone.time_of(Part::Unexplained), 550, "{alone:?}");
}

/// Goal: where the switch to a thread is missing, it was ready until its CPU last changed hands: only from then on nobody knows.
#[test]
fn a_missing_switch_hides_no_more_than_it_must() {
    let ours = vec![
        switch(50, LATE, Leaving::Asleep, HOG),
        switch(300, HOG, Leaving::Asleep, IDLE),
        switch(700, LATE, Leaving::Asleep, IDLE),
    ];
    let asleep = |woken_by| Part::Blocked { woken_by, is_interrupt: false, is_uninterruptible: Some(false) };
    divided(
        &trace(vec![cpu(0, ours), cpu(1, vec![wake(200, LATE, 4, false)])]),
        &[
            (100, asleep(Some(4))),
            (100, Part::Ready { instead: HOG }),
            (400, Part::Unexplained),
            (200, asleep(None)),
        ],
    );
}

/// Goal: a thread that changes its CPU waited for the one that it ran on next.
#[test]
fn a_thread_waits_for_its_next_cpu() {
    let there = vec![switch(50, IDLE, Leaving::Ready, HOG), switch(800, HOG, Leaving::Asleep, LATE)];
    let here = vec![switch(300, LATE, Leaving::Ready, IDLE)];
    divided(
        &trace(vec![cpu(0, here), cpu(1, there)]),
        &[(200, Part::Running), (500, Part::Ready { instead: HOG }), (100, Part::Running)],
    );
}

/// Goal: a thread that an idle CPU pulled waited for the CPU where it was queued, not for the idle one. Without word of the pull nobody
/// knows where it was queued.
#[test]
fn a_thread_that_was_pulled_waited_where_it_was() {
    let here = vec![
        switch(50, LATE, Leaving::Asleep, HOG),
        wake(200, LATE, 4, false),
        switch(950, HOG, Leaving::Asleep, IDLE),
    ];
    let placed = Event(690, What::Placed { thread: LATE, from: 0, to: 1 });
    let there = vec![switch(60, 4, Leaving::Asleep, IDLE), placed, switch(700, IDLE, Leaving::Ready, LATE)];
    let asleep = Part::Blocked { woken_by: Some(4), is_interrupt: false, is_uninterruptible: Some(false) };
    divided(
        &trace(vec![cpu(0, here.clone()), cpu(1, there.clone())]),
        &[
            (100, asleep),
            (490, Part::Ready { instead: HOG }),
            (10, Part::NotThere(Absence::CpuAsleep)),
            (200, Part::Running),
        ],
    );
    let unplaced = vec![there[0], there[2]];
    divided(
        &trace(vec![cpu(0, here), cpu(1, unplaced)]),
        &[(100, asleep), (500, Part::Unexplained), (200, Part::Running)],
    );
}

/// Goal: the first event of a thread says what it did before, where nothing is missing.
#[test]
fn the_first_event_tells_of_the_time_before() {
    let left = vec![switch(800, LATE, Leaving::Asleep, IDLE)];
    divided(
        &trace(vec![cpu(0, left)]),
        &[
            (700, Part::Running),
            (100, Part::Blocked { woken_by: None, is_interrupt: false, is_uninterruptible: Some(false) }),
        ],
    );
    let runs = vec![switch(800, HOG, Leaving::Ready, LATE)];
    divided(&trace(vec![cpu(0, runs)]), &[(700, Part::Ready { instead: HOG }), (100, Part::Running)]);
    divided(&trace(vec![cpu(0, Vec::new())]), &[(800, Part::Unexplained)]);
}

/// Goal: before its birth there was no thread: that time is nobody's. From its birth on it is ready.
#[test]
fn a_life_begins_with_a_birth() {
    let events = vec![
        switch(50, 4, Leaving::Ready, HOG),
        Event(300, What::Birth { born: LATE, parent: HOG }),
        switch(500, HOG, Leaving::Ready, LATE),
        switch(700, LATE, Leaving::Ended, HOG),
        Event(800, What::Birth { born: LATE, parent: HOG }),
    ];
    let ready = Part::Ready { instead: HOG };
    divided(
        &trace(vec![cpu(0, events)]),
        &[(200, Part::Unexplained), (200, ready), (200, Part::Running), (200, Part::Unexplained)],
    );
}

/// Goal: of a wait that began before the trace nobody knows whether a signal would have ended it.
#[test]
fn a_wait_that_was_not_seen_to_begin_is_of_no_kind() {
    let events = vec![wake(500, LATE, 4, false), switch(500, HOG, Leaving::Ready, LATE)];
    let untold = Part::Blocked { woken_by: Some(4), is_interrupt: false, is_uninterruptible: None };
    let whole = trace(vec![cpu(0, events)]);
    divided(&whole, &[(400, untold), (400, Part::Running)]);
}

/// Goal: a thread that is woken just before its switch to sleep is ready. A wake-up long before was of something else.
#[test]
fn a_wake_up_just_before_the_switch_counts() {
    let us = |us: u64| us * 1000;
    let at = |woken: u64| {
        let events = vec![
            switch(us(10), HOG, Leaving::Ready, LATE),
            switch(us(200), LATE, Leaving::Asleep, HOG),
            switch(us(500), HOG, Leaving::Ready, LATE),
        ];
        let ours = CpuEvents { until_ns: us(1000), ..cpu(0, events) };
        let other = CpuEvents { until_ns: us(1000), ..cpu(1, vec![wake(us(woken), LATE, 4, false)]) };
        account(&trace(vec![ours, other]), LATE, (us(100), us(900)))
    };
    let (just, long) = (at(199), at(100));
    assert_eq!(just.time_of(Part::Ready { instead: HOG }), us(300), "{just:?}");
    assert_eq!(long.time_of(Part::Unexplained), us(300), "{long:?}");
}

/// Goal: signals that come close upon one another are told from work, and those of others, and single ones, are not.
#[test]
fn a_storm_of_signals_is_no_work() {
    let us = |us: u64| us * 1000;
    let signal = |at, thread, number| Event(us(at), What::Signal { thread, number });
    let events = vec![
        signal(100, LATE, 29),
        signal(300, LATE, 29),
        signal(310, LATE, 29),
        Event(us(312), What::Interrupt(4)),
        Event(us(316), What::InterruptEnd(4)),
        signal(325, LATE, 29),
        signal(340, LATE, 29),
        signal(345, HOG, 29),
        signal(350, HOG, 29),
        signal(355, HOG, 29),
        signal(500, LATE, 29),
        switch(us(1000), LATE, Leaving::Asleep, IDLE),
    ];
    let events = vec![CpuEvents { until_ns: us(1000), ..cpu(0, events) }];
    let account = account(&trace(events), LATE, (0, us(1000)));
    let storm: Vec<(u64, u64)> = account.spans(Part::Signalled(29)).collect();
    assert_eq!(storm, [(us(300), us(312)), (us(316), us(340))]);
    assert_eq!(account.time_of(Part::Interrupted(Interruption::Device(4))), us(4));
    assert_eq!(account.time_of(Part::Running), us(960));
}

/// Goal: taking memory back is told from work and from waiting, and is a part of its own regardless of the waker. Method: one reclaim
/// within another; a wait for the disk in the middle; an end whose beginning is unknown, and a beginning whose end is; another thread's
/// reclaim.
#[test]
fn a_reclaim_is_no_work() {
    let reclaim = |at, thread, is_limited| Event(at, What::Reclaim { thread, is_limited });
    let end = |at, thread| Event(at, What::ReclaimEnd(thread));
    let ours = vec![
        end(50, LATE),
        reclaim(200, LATE, true),
        reclaim(220, LATE, false),
        end(240, LATE),
        switch(250, LATE, Leaving::Uninterruptible, IDLE),
        reclaim(260, HOG, true),
        wake(300, LATE, HOG, true),
        switch(320, IDLE, Leaving::Ready, LATE),
        end(400, LATE),
        switch(600, LATE, Leaving::Uninterruptible, IDLE),
        wake(700, LATE, HOG, true),
        switch(700, IDLE, Leaving::Ready, LATE),
        reclaim(800, LATE, false),
    ];
    let whole = account(&trace(vec![cpu(0, ours)]), LATE, (100, 900));
    let limited: Vec<(u64, u64)> = whole.spans(Part::Reclaiming { is_limited: true }).collect();
    assert_eq!(limited, [(200, 300), (320, 400)], "but a ready thread waits for a CPU");
    let full: Vec<(u64, u64)> = whole.spans(Part::Reclaiming { is_limited: false }).collect();
    assert_eq!(full, [(800, 900)]);
    assert_eq!(whole.time_of(Part::Running), 100 + 200 + 100);
}

/// Goal: where events were lost, on any CPU, nothing is claimed.
#[test]
fn lost_events_are_unexplained() {
    let ours = vec![
        switch(50, LATE, Leaving::Ready, HOG),
        switch(500, HOG, Leaving::Ready, LATE),
        switch(950, LATE, Leaving::Asleep, IDLE),
    ];
    let mut lossy = cpu(1, Vec::new());
    lossy.gaps = vec![(300, 400)];
    lossy.lost = 5;
    let complete = trace(vec![cpu(0, ours.clone()), cpu(1, Vec::new())]);
    divided(&complete, &[(400, Part::Ready { instead: HOG }), (400, Part::Running)]);
    let ready = Part::Ready { instead: HOG };
    divided(
        &trace(vec![cpu(0, ours.clone()), lossy]),
        &[(200, ready), (100, Part::Unexplained), (100, ready), (400, Part::Running)],
    );
    let mut young = cpu(1, Vec::new());
    young.since_ns = 450;
    divided(
        &trace(vec![cpu(0, ours), young]),
        &[(350, Part::Unexplained), (50, ready), (400, Part::Running)],
    );
    divided(&Trace::default(), &[(800, Part::Unexplained)]);
}

/// Goal: a thread that sleeps and runs without having been woken was woken unseen: that is not called anything.
#[test]
fn a_wake_up_that_is_missing_is_unexplained() {
    let events = vec![switch(50, LATE, Leaving::Asleep, HOG), switch(500, HOG, Leaving::Ready, LATE)];
    divided(&trace(vec![cpu(0, events)]), &[(400, Part::Unexplained), (400, Part::Running)]);
}

fn any_event() -> impl Strategy<Value = What> {
    let thread = 0..4_u32;
    let leaving = prop_oneof![
        Just(Leaving::Ready),
        Just(Leaving::Asleep),
        Just(Leaving::Uninterruptible),
        Just(Leaving::Stopped),
        Just(Leaving::Traced),
        Just(Leaving::Ended)
    ];
    prop_oneof![
        (thread.clone(), leaving, thread.clone()).prop_map(|(left, why, runs)| What::Switch {
            left,
            why,
            runs
        }),
        (thread.clone(), thread, any::<bool>()).prop_map(|(woken, waker, by_interrupt)| What::Wake {
            woken,
            waker,
            by_interrupt
        }),
        (0..4_u32, 0..4_u32).prop_map(|(born, parent)| What::Birth { born, parent }),
        (0..4_u32, 0..3_u32, 0..3_u32).prop_map(|(thread, from, to)| What::Placed { thread, from, to }),
        (0..3_u32).prop_map(What::Interrupt),
        (0..3_u32).prop_map(What::InterruptEnd),
        (0..3_u32).prop_map(What::SoftInterrupt),
        (0..3_u32).prop_map(What::SoftInterruptEnd),
        (0..3_u32, 0..2_u32).prop_map(|(thread, number)| What::Signal { thread, number }),
        (0..3_u32, any::<bool>()).prop_map(|(thread, is_limited)| What::Reclaim { thread, is_limited }),
        (0..3_u32).prop_map(What::ReclaimEnd),
    ]
}

fn any_cpu(number: u32) -> impl Strategy<Value = CpuEvents> {
    let events = proptest::collection::vec((0..1000_u64, any_event()), 0..30);
    let gaps = proptest::collection::vec((0..1000_u64, 0..200_u64), 0..3);
    (events, gaps, 0..300_u64, 500..1200_u64).prop_map(move |(events, gaps, since_ns, until_ns)| {
        let mut events: Vec<Event> = events.into_iter().map(|(at, what)| Event(at, what)).collect();
        events.sort_by_key(|event| event.0);
        let gaps = gaps.into_iter().map(|(from, lasts)| (from, from + lasts)).collect();
        CpuEvents { cpu: number, since_ns, until_ns, lost: 0, gaps, events }
    })
}

proptest! {
    /// Goal: the parts tile the interval with any trace: they sum to it, and none overlaps another.
    #[test]
    fn parts_tile_the_interval(
        one in any_cpu(0), other in any_cpu(1), from in 0..1200_u64, lasts in 0..1200_u64,
    ) {
        let to = from + lasts;
        let gaps: Vec<(u64, u64)> = one.gaps.iter().chain(&other.gaps).copied().collect();
        let account = account(&trace(vec![one, other]), 1, (from, to));
        let mut at = from;
        for piece in &account.pieces {
            prop_assert_eq!(piece.from_ns, at);
            prop_assert!(piece.to_ns > piece.from_ns);
            at = piece.to_ns;
            let in_gap = gaps.iter().any(|gap| gap.0 < piece.to_ns && gap.1 > piece.from_ns);
            prop_assert!(!in_gap || piece.part == Part::Unexplained, "{:?} {:?}", piece, gaps);
        }
        prop_assert_eq!(at, to);
        prop_assert_eq!(account.sums().iter().map(|(_, ns)| ns).sum::<u64>(), lasts);
    }
}
