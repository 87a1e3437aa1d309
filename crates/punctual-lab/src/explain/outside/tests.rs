//! Threads of traces made by hand: late times, idle times, and times that cannot be told apart.
use proptest::prelude::*;

use super::*;
use crate::explain::account::tests::{switch, wake};
use crate::explain::trace::{CpuEvents, Event, Leaving, TaskInfo, What};

const MS: u64 = 1_000_000;
const OURS: u32 = 7;
const HOG: u32 = 9;
const HOLDER: u32 = 11;

fn trace(cpus: Vec<Vec<Event>>) -> Trace {
    let task = |name: &str, priority| TaskInfo { name: name.to_owned(), priority, is_kernel: Some(false) };
    let cpus = cpus.into_iter().zip(0..).map(|(mut events, cpu)| {
        events.sort_by_key(|event| event.0);
        CpuEvents { cpu, since_ns: 0, until_ns: 1000 * MS, events, ..CpuEvents::default() }
    });
    Trace {
        tasks: [(OURS, task("ours", 120)), (HOG, task("hog", 120)), (HOLDER, task("holder", 120))].into(),
        cpus: cpus.collect(),
        calls: [(1, "futex"), (2, "epoll_wait"), (3, "fsync"), (4, "system call 4")]
            .map(|(number, name)| (number, name.to_owned()))
            .into(),
        processes: [(OURS, 70)].into(),
        ..Trace::default()
    }
}

fn answer_with(trace: &Trace, withheld: &dyn Fn(u32, (u64, u64)) -> Option<Seen>) -> Answer {
    explain(trace, &Question { threads: &[OURS], threshold_ns: MS, withheld })
}

fn answer(trace: &Trace) -> Answer {
    answer_with(trace, &|_, _| None)
}

/// Stage, length in milliseconds, cause, and whether it may be idle.
fn said(answer: &Answer) -> Vec<(&str, u64, &str, bool)> {
    let one = |late: &Lateness| {
        (late.explained.stall.longest_ns / MS, late.explained.cause().name(), late.may_be_idle)
    };
    let with_stage = answer.late.iter().map(|late| {
        let (ms, cause, may_be_idle) = one(late);
        (
            late.explained.stage.as_deref().map_or("", |stage| match stage {
                WAKE_UP => WAKE_UP,
                OFF_CPU => OFF_CPU,
                _ => WAITING,
            }),
            ms,
            cause,
            may_be_idle,
        )
    });
    with_stage.collect()
}

/// It runs, and waits in a call from 100 ms on. The holder or an interrupt wakes it at 200 ms, and it runs `late` later.
fn waits(call: Option<u32>, why: Leaving, by_interrupt: bool, late: u64) -> Trace {
    let mut ours = vec![
        switch(50 * MS, HOG, Leaving::Ready, OURS),
        switch(100 * MS, OURS, why, HOG),
        switch((200 + late) * MS + MS / 100, HOG, Leaving::Ready, OURS),
        switch(300 * MS, OURS, Leaving::Asleep, HOG),
        switch(900 * MS, HOG, Leaving::Ready, 0),
    ];
    if let Some(number) = call {
        ours.push(Event(99 * MS, What::Call { thread: OURS, number }));
        ours.push(Event(250 * MS, What::CallEnd(OURS)));
    }
    let theirs = vec![
        switch(MS, 0, Leaving::Ready, HOLDER),
        wake(200 * MS, OURS, HOLDER, by_interrupt),
        switch(950 * MS, HOLDER, Leaving::Asleep, 0),
    ];
    trace(vec![ours, theirs])
}

/// Goal: a thread that waits for events or for a time is idle. A lock and an empty queue look the same from outside. Other calls are
/// late. A wake-up that another thread delays is late, regardless of the reason for the wait.
#[test]
fn idle_waits_are_told_from_others_as_far_as_can_be() {
    let asleep = Leaving::Asleep;
    let wake_up = (WAKE_UP, 4, "run_queue", false);
    for (call, by_interrupt) in [(Some(2), false), (Some(2), true), (Some(1), true), (None, true)] {
        assert_eq!(
            said(&answer(&waits(call, asleep, by_interrupt, 4))),
            [wake_up],
            "{call:?} {by_interrupt}"
        );
    }
    for (call, name) in [(Some(1), Some("futex")), (Some(4), Some("system call 4")), (None, None)] {
        let found = answer(&waits(call, asleep, false, 4));
        assert_eq!(said(&found), [(WAITING, 100, "waited", true), wake_up], "{call:?}");
        assert_eq!((found.threads[0].late, found.threads[0].perhaps_idle_ns), (1, 100 * MS));
        assert_eq!(found.late[0].call.as_deref(), name);
        assert!(found.late[0].explained.causes[0].evidence.contains("holder (11)"), "{found:?}");
    }
    // One that this version does not know is as unknown as none.
    assert_eq!(said(&answer(&waits(Some(4), asleep, true, 4))), [wake_up]);
    let mut disk = waits(Some(3), Leaving::Uninterruptible, true, 0);
    assert_eq!(said(&answer(&disk)), [(WAITING, 100, "unexplained", false)], "of which device nobody knows");
    disk.cpus[1].events.insert(1, Event(200 * MS - 10_000, What::Interrupt(24)));
    assert_eq!(said(&answer(&disk)), [(WAITING, 100, "storage", false)]);
    assert_eq!(said(&answer(&waits(Some(1), Leaving::Uninterruptible, false, 0)))[0].2, "kernel_lock");
    assert_eq!(said(&answer(&waits(Some(3), asleep, false, 0))), [(WAITING, 100, "waited", false)]);
}

/// Goal: a thread that slept while its group was throttled was not held by that: its wait stays unexplained.
#[test]
fn sleep_beside_a_throttled_group_is_unexplained() {
    let disk = waits(Some(3), Leaving::Uninterruptible, true, 0);
    let counters = live::tests::withheld(&[(90 * MS, 0, 0), (210 * MS, 100 * MS, 0)]);
    let found = answer_with(&disk, &|_, span| counters.over(span));
    assert!(counters.over((100 * MS, 200 * MS)).is_some_and(|seen| seen.throttled_us > 50_000));
    assert_eq!(said(&found), [(WAITING, 100, "unexplained", false)], "{found:?}");
}

/// Goal: in which call a thread waits is not taken from before events were lost: it may have returned since.
#[test]
fn a_call_is_not_known_across_lost_events() {
    let mut trace = waits(None, Leaving::Asleep, false, 0);
    trace.cpus[0].events.insert(1, Event(60 * MS, What::Call { thread: OURS, number: 3 }));
    assert_eq!(said(&answer(&trace)), [(WAITING, 100, "waited", false)], "fsync");
    trace.cpus[1].gaps = vec![(70 * MS, 80 * MS)];
    let found = answer(&trace);
    assert_eq!(said(&found), [(WAITING, 100, "waited", true)]);
    assert_eq!((found.late[0].call.as_deref(), found.threads[0].perhaps_idle_ns), (None, 100 * MS));
}

/// Goal: a thread that waits for one that is kept from running is late, even in a futex.
#[test]
fn a_thread_that_waits_for_a_kept_one_is_late() {
    let mut trace = waits(Some(1), Leaving::Asleep, false, 0);
    trace.cpus[1].events = vec![
        switch(MS, 0, Leaving::Ready, HOLDER),
        switch(101 * MS, HOLDER, Leaving::Ready, 13),
        switch(199 * MS, 13, Leaving::Ready, HOLDER),
        wake(200 * MS, OURS, HOLDER, false),
        switch(950 * MS, HOLDER, Leaving::Asleep, 0),
    ];
    assert_eq!(said(&answer(&trace)), [(WAITING, 100, "holder_preempted", false)]);
}

/// Goal: a stop with the wait for the CPU behind it is one lateness; a quota is named where the group's counter says so.
#[test]
fn stops_and_quotas_are_named() {
    let stopped = vec![
        switch(50 * MS, 0, Leaving::Ready, OURS),
        switch(100 * MS, OURS, Leaving::Stopped, HOG),
        switch(203 * MS, HOG, Leaving::Ready, OURS),
        switch(900 * MS, OURS, Leaving::Asleep, 0),
    ];
    let continued = vec![wake(200 * MS, OURS, 3, false), switch(950 * MS, 3, Leaving::Asleep, 0)];
    assert_eq!(said(&answer(&trace(vec![stopped, continued]))), [(OFF_CPU, 103, "stopped", false)]);
    let withheld = vec![
        switch(50 * MS, 0, Leaving::Ready, OURS),
        switch(100 * MS, OURS, Leaving::Ready, 0),
        switch(180 * MS, 0, Leaving::Ready, OURS),
        switch(900 * MS, OURS, Leaving::Asleep, 0),
    ];
    let trace = trace(vec![withheld]);
    assert_eq!(said(&answer(&trace)), [(OFF_CPU, 80, "unexplained", false)]);
    let counted = |thread, (from, to)| {
        assert_eq!((thread, from, to), (OURS, 100 * MS, 180 * MS));
        let bounds = Seen { throttled_us: 70_000, throttled_us_most: 75_000, ..Seen::default() };
        Some(Seen { wall_us: 80_000, cpu_us_most: 80_000, ..bounds })
    };
    assert_eq!(said(&answer_with(&trace, &counted)), [(OFF_CPU, 80, "throttled", false)]);
}

/// Goal: an increase of a quota's counter that may be another interval's names none, and hides no neighbour that it cannot be.
#[test]
fn a_quota_that_may_be_elsewhere_is_not_named() {
    let us = MS / 1000;
    let events = vec![
        switch(1, 0, Leaving::Ready, OURS),
        switch(500 * us, OURS, Leaving::Ready, 0),
        switch(4_500 * us, 0, Leaving::Ready, OURS),
        switch(5_000 * us, OURS, Leaving::Ready, HOG),
        switch(8_000 * us, HOG, Leaving::Ready, OURS),
        switch(900 * MS, OURS, Leaving::Asleep, 0),
    ];
    let trace = trace(vec![events]);
    let counted = |most_us: u32| {
        move |_, (from, to): (u64, u64)| {
            let wall_us = u32::try_from((to - from) / us).expect("short");
            Some(Seen { wall_us, throttled_us_most: most_us.min(wall_us), ..Seen::default() })
        }
    };
    let found = answer_with(&trace, &counted(4_000));
    assert_eq!(said(&found), [(OFF_CPU, 4, "unexplained", false), (OFF_CPU, 3, "unexplained", false)]);
    let found = answer_with(&trace, &counted(1_000));
    assert_eq!(said(&found), [(OFF_CPU, 4, "unexplained", false), (OFF_CPU, 3, "run_queue", false)]);
}

/// Goal: of what began before the trace, or did not end in it, nobody knows how long it took: it is not late. Nor is who began late.
#[test]
fn a_wait_without_a_beginning_or_an_end_is_not_late() {
    let began =
        vec![switch(400 * MS, HOG, Leaving::Ready, OURS), switch(500 * MS, OURS, Leaving::Asleep, HOG)];
    let found = answer(&trace(vec![began]));
    assert_eq!(said(&found), []);
    assert_eq!(found.threads[0].ran_ns, 100 * MS);
    let never = vec![switch(400 * MS, HOG, Leaving::Ready, 13)];
    assert_eq!(answer(&trace(vec![never])).threads, []);
}

/// Goal: a thread that slept or was stopped for the whole recording is listed with its state, and nothing says that it did not wait.
#[test]
fn threads_without_an_event_are_listed() {
    let never = vec![switch(400 * MS, HOG, Leaving::Ready, 13)];
    let page = |states: &[(u32, char)]| {
        let found = answer(&Trace { states: states.iter().copied().collect(), ..trace(vec![never.clone()]) });
        let screen = crate::report::text::Screen::default();
        (crate::report::text::page(&text::sections(&found, &text::Notes::default(), 10), screen), found)
    };
    let (stopped, found) = page(&[(OURS, 'T')]);
    assert_eq!(found.threads[0].all_the_time.as_deref(), Some("stopped"));
    assert_eq!((found.threads[0].unknown_ns, found.threads[0].waited_ns), (1000 * MS, 0));
    assert!(stopped.contains("ours (7)") && stopped.contains("may have waited"), "{stopped}");
    let (gone, found) = page(&[]);
    assert!(found.threads.is_empty() && gone.contains("No thread was kept"), "{gone}");
    let busy = Trace { states: [(OURS, 'S')].into(), ..waits(Some(1), Leaving::Asleep, false, 4) };
    assert_eq!(answer(&busy).threads[0].all_the_time, None);
}

/// Goal: sums are those of what is listed, idle waits left out, and lost events are said and claimed nothing of.
#[test]
fn sums_are_of_what_is_listed() {
    let mut trace = waits(Some(1), Leaving::Asleep, false, 4);
    let whole = answer(&trace);
    let sum: u64 = whole.threads[0].causes.iter().map(|cause| cause.ns).sum();
    assert_eq!(sum, 4 * MS + MS / 100);
    assert_eq!((whole.known_ns, whole.lost), (1000 * MS, 0));
    trace.cpus[1].gaps = vec![(201 * MS, 203 * MS)];
    trace.cpus[1].lost = 5;
    let lossy = answer(&trace);
    assert_eq!((lossy.known_ns, lossy.lost), (998 * MS, 5));
    assert!(said(&lossy).iter().all(|late| late.2 != "run_queue"), "{lossy:?}");
    let page = crate::report::text::page(
        &text::sections(&whole, &text::Notes { short: None, others: vec!["a note".to_owned()] }, 10),
        crate::report::text::Screen::default(),
    );
    for words in ["ours (7)", "run_queue 4.0", "in futex", "a note", "Waits for other threads"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

proptest! {
    /// Goal: in any trace, nothing is longer than the trace, and causes never take more time than there was.
    #[test]
    fn causes_never_exceed_what_was_late(
        events in proptest::collection::vec((0..1000_u64, 0..8_u8, 0..4_u32, 0..4_u32), 0..60), threshold in 0..5_u64,
    ) {
        let event = |(at, kind, one, other): (u64, u8, u32, u32)| Event(at * MS, match kind {
            0 => What::Wake { woken: one, waker: other, by_interrupt: false },
            1 => What::Wake { woken: one, waker: other, by_interrupt: true },
            2 => What::Call { thread: one, number: other },
            3 => What::CallEnd(one),
            4 => What::Switch { left: one, why: Leaving::Stopped, runs: other },
            5 => What::Switch { left: one, why: Leaving::Uninterruptible, runs: other },
            6 => What::Switch { left: one, why: Leaving::Ready, runs: other },
            _ => What::Switch { left: one, why: Leaving::Asleep, runs: other },
        });
        let half = events.len() / 2;
        let [one, other] = [&events[..half], &events[half..]].map(|all| all.iter().copied().map(event).collect());
        let found = explain(&trace(vec![one, other]), &Question {
            threads: &[1, 2, 3], threshold_ns: threshold * MS, withheld: &|_, _| None,
        });
        for late in &found.late {
            let one = &late.explained;
            let named: u64 = one.causes.iter().map(|cause| cause.ns).sum();
            prop_assert_eq!(named + one.unexplained_ns, one.excess_ns);
            prop_assert!(one.excess_ns <= 1000 * MS && one.excess_ns >= threshold * MS);
        }
        for time in &found.threads {
            let sum = time.ran_ns + time.kept_ns + time.idle_ns + time.perhaps_idle_ns + time.waited_ns + time.unknown_ns;
            prop_assert!(sum <= 1000 * MS, "{:?}", time);
        }
    }
}
