//! Waits of threads for each other, on traces made by hand.
use super::*;
use crate::explain::account::tests::{switch, wake};
use crate::explain::trace::{CpuEvents, Event, Leaving, TaskInfo};

const LATE: u32 = 7;
const HOLDER: u32 = 8;
const THIRD: u32 = 9;
const FOURTH: u32 = 10;

fn trace(events: Vec<Event>) -> Trace {
    let task = |name: &str| TaskInfo { name: name.to_owned(), priority: 120, is_kernel: Some(false) };
    let tasks = [(HOLDER, "holder"), (THIRD, "third"), (FOURTH, "fourth")];
    let cpu = CpuEvents { cpu: 0, since_ns: 0, until_ns: 1000, events, ..CpuEvents::default() };
    Trace {
        tasks: tasks.into_iter().map(|(thread, name)| (thread, task(name))).collect(),
        cpus: vec![cpu],
        ..Trace::default()
    }
}

/// The chain behind the wait of the late thread between 100 and 900.
fn behind(trace: &Trace) -> Chain {
    let late = account(trace, LATE, (100, 900));
    let part = late.sums()[0].0;
    assert!(matches!(part, Part::Blocked { .. }), "{late:?}");
    Chain::behind(trace, &late, part)
}

/// Goal: of a thread woken by one without a CPU, the chain names that waker, and the thread that had its CPU.
#[test]
fn a_holder_without_a_cpu_is_preempted() {
    let trace = trace(vec![
        switch(50, LATE, Leaving::Asleep, HOLDER),
        switch(150, HOLDER, Leaving::Ready, THIRD),
        switch(800, THIRD, Leaving::Asleep, HOLDER),
        wake(890, LATE, HOLDER, false),
        switch(895, HOLDER, Leaving::Asleep, LATE),
    ]);
    let chain = behind(&trace);
    assert_eq!(chain.is_preempted_by(), Some(THIRD));
    assert_eq!(chain.words(&trace), "woken by holder (8), mostly ready while third (9) ran");
}

/// Goal: a holder that computes, or is ready for less than half of the wait, is not preempted.
#[test]
fn a_holder_that_runs_is_not_preempted() {
    let trace = trace(vec![
        switch(50, LATE, Leaving::Asleep, HOLDER),
        switch(550, HOLDER, Leaving::Ready, THIRD),
        switch(800, THIRD, Leaving::Asleep, HOLDER),
        wake(890, LATE, HOLDER, false),
        switch(895, HOLDER, Leaving::Asleep, LATE),
    ]);
    let chain = behind(&trace);
    assert_eq!(chain.is_preempted_by(), None);
    assert_eq!(chain.words(&trace), "woken by holder (8), mostly running");
}

/// Goal: a waker that waited itself is followed to its own waker; a circle and an interrupt end the chain.
#[test]
fn wakers_are_followed() {
    let through = |last: bool| {
        trace(vec![
            switch(40, HOLDER, Leaving::Asleep, LATE),
            switch(50, LATE, Leaving::Asleep, THIRD),
            switch(60, THIRD, Leaving::Ready, FOURTH),
            switch(780, FOURTH, Leaving::Asleep, THIRD),
            wake(860, HOLDER, THIRD, last),
            switch(870, THIRD, Leaving::Asleep, HOLDER),
            wake(890, LATE, HOLDER, false),
            switch(895, HOLDER, Leaving::Asleep, LATE),
        ])
    };
    let trace = through(false);
    let chain = behind(&trace);
    assert_eq!(
        chain.0.iter().map(|link| (link.thread, link.ns)).collect::<Vec<_>>(),
        [(HOLDER, 760), (THIRD, 680)]
    );
    assert_eq!(chain.is_preempted_by(), Some(FOURTH));
    let woken = chain.words(&trace);
    assert!(
        woken.starts_with("woken by holder (8), itself woken by third (9), mostly ready while"),
        "{woken}"
    );
    let trace = through(true);
    let chain = behind(&trace);
    assert_eq!((chain.0.len(), chain.is_preempted_by()), (1, None), "an interrupt waits for nobody");
}

/// Goal: a holder that was ready behind several in turn had no CPU all the same; one whose waker had none for less than half of the
/// wait did not wait for that.
#[test]
fn all_who_ran_instead_count_and_every_link() {
    let turns = trace(vec![
        switch(50, LATE, Leaving::Asleep, HOLDER),
        switch(110, HOLDER, Leaving::Ready, THIRD),
        switch(350, THIRD, Leaving::Ready, FOURTH),
        switch(600, FOURTH, Leaving::Ready, 11),
        switch(850, 11, Leaving::Asleep, HOLDER),
        wake(890, LATE, HOLDER, false),
        switch(895, HOLDER, Leaving::Asleep, LATE),
    ]);
    let chain = behind(&turns);
    assert_eq!((chain.0[0].ns, chain.0[0].of_ns), (740, 790));
    assert!(chain.is_preempted_by().is_some(), "{chain:?}");
    let partly = trace(vec![
        switch(50, LATE, Leaving::Asleep, HOLDER),
        // The holder waits for the third for 330 of 790, and runs for 250.
        switch(350, HOLDER, Leaving::Asleep, FOURTH),
        switch(660, FOURTH, Leaving::Ready, THIRD),
        wake(680, HOLDER, THIRD, false),
        switch(685, THIRD, Leaving::Asleep, 11),
        switch(800, 11, Leaving::Asleep, HOLDER),
        wake(890, LATE, HOLDER, false),
        switch(895, HOLDER, Leaving::Asleep, LATE),
    ]);
    assert_eq!(behind(&partly).is_preempted_by(), None);
}
