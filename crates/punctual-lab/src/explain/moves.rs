//! Moves: a thread was taken off its CPU, by the kernel's own thread for that, to run on another.

use super::timeline::{State, Stretch};
use super::trace::{Event, TaskInfo, Trace, What};

/// Turns the time that a thread was ready after a move into the move's. Its waits on the other CPU would not have occurred on the one
/// that it had.
///
/// A thread that is moved while it runs is taken off its CPU by that CPU's migration thread. A thread that asks to be moved itself may
/// have to wait for that thread. A waiting thread that another CPU takes over is not moved in this sense: it did not run.
pub(super) fn note_moves(trace: &Trace, known: (u64, u64), states: &mut [Stretch<State>]) {
    for ready in 1..states.len() {
        let State::Ready { cpu: Some(next), was_woken } = states[ready].what else { continue };
        let first = ready - usize::from(was_woken);
        let ran = first.checked_sub(1).map(|place| states[place].what);
        let Some(State::Running(ran)) = ran else { continue };
        let mover = match states[first].what {
            State::Ready { .. } => runs_from(trace, ran, states[first].from_ns),
            State::Blocked { waker, is_uninterruptible: Some(true) } => waker.map(|waker| waker.thread),
            _ => None,
        };
        let Some(mover) = mover.filter(|&thread| ran != next && is_mover(trace, thread)) else { continue };
        let told = trace.last_wake_up(mover, (known.0, states[ready].from_ns));
        let by = told.filter(|told| !told.by_interrupt).map(|told| told.waker);
        for state in &mut states[first..=ready] {
            state.what = State::Moving { by };
        }
    }
}

/// The kernel's thread that moves others is the most urgent of its CPU.
fn is_mover(trace: &Trace, thread: u32) -> bool {
    let is_one = |task: &TaskInfo| task.name.starts_with("migration/") && task.is_kernel != Some(false);
    trace.tasks.get(&thread).is_some_and(is_one)
}

/// The thread that has a CPU from an instant on at which that changed hands.
fn runs_from(trace: &Trace, cpu: u32, at_ns: u64) -> Option<u32> {
    let cpu = trace.cpus.iter().find(|one| one.cpu == cpu)?;
    let next = |event: &Event| if let What::Switch { runs, .. } = event.1 { Some(runs) } else { None };
    cpu.within((at_ns, at_ns)).iter().find_map(next)
}

#[cfg(test)]
mod tests {
    use super::super::account::tests::{switch, wake};
    use super::super::account::{Account, Part, account};
    use super::super::trace::{CpuEvents, IDLE, Leaving};
    use super::*;

    const LATE: u32 = 7;
    const HOG: u32 = 9;
    const MOVER: u32 = 18;
    const ASKED: u32 = 30;

    /// Account of the events on two CPUs until 1000, on which the mover has this name.
    fn account_of(mover: &str, cpus: [Vec<Event>; 2]) -> Account {
        let cpus = (0..).zip(cpus).map(|(cpu, events)| CpuEvents {
            cpu,
            since_ns: 0,
            until_ns: 1000,
            events,
            ..CpuEvents::default()
        });
        let mover = TaskInfo { name: mover.to_owned(), priority: -1, is_kernel: Some(true) };
        let trace = Trace { cpus: cpus.collect(), tasks: [(MOVER, mover)].into(), ..Trace::default() };
        account(&trace, LATE, (0, 1000))
    }

    fn pushed() -> [Vec<Event>; 2] {
        let there = vec![
            wake(290, MOVER, 5, true),
            switch(300, LATE, Leaving::Ready, MOVER),
            switch(340, MOVER, Leaving::Asleep, IDLE),
        ];
        let here = vec![
            wake(250, MOVER, ASKED, false),
            switch(320, IDLE, Leaving::Ready, HOG),
            switch(700, HOG, Leaving::Ready, LATE),
        ];
        [there, here]
    }

    /// Goal: a thread that is taken off its CPU by the thread that moves others was moved until it runs again. The last waker of the
    /// moving thread asked for it. A thread that any other takes off its CPU is ready.
    #[test]
    fn a_thread_pushed_to_another_cpu_was_moved() {
        let moved = account_of("migration/0", pushed());
        assert_eq!(moved.time_of(Part::Moving { by: None }), 400, "an interrupt asked");
        let mut asked = pushed();
        asked[0].remove(0);
        let moved = account_of("migration/0", asked);
        assert_eq!(moved.time_of(Part::Moving { by: Some(ASKED) }), 400);
        let taken = account_of("kworker/0:1", pushed());
        assert_eq!(taken.time_of(Part::Ready { instead: HOG }), 380);
    }

    /// Goal: a thread that is taken off its CPU by that thread and runs there again was not moved.
    #[test]
    fn a_thread_that_stays_is_not_moved() {
        let there = vec![switch(300, LATE, Leaving::Ready, MOVER), switch(340, MOVER, Leaving::Asleep, LATE)];
        let stayed = account_of("migration/0", [there, Vec::new()]);
        assert_eq!(stayed.time_of(Part::Ready { instead: MOVER }), 40);
    }

    /// Goal: a thread that asks to be moved may wait for it where no signal wakes, and is ready on the other CPU then: both are the
    /// move's. A thread that waits for that thread and comes back to its CPU had another thread moved.
    #[test]
    fn a_thread_that_asks_to_be_moved_waits() {
        let waits = |runs_on: usize| {
            let mut cpus = [
                vec![
                    wake(290, MOVER, LATE, false),
                    switch(300, LATE, Leaving::Uninterruptible, MOVER),
                    wake(330, LATE, MOVER, false),
                    switch(340, MOVER, Leaving::Asleep, HOG),
                ],
                vec![switch(100, IDLE, Leaving::Ready, HOG)],
            ];
            cpus[runs_on].push(switch(400, HOG, Leaving::Ready, LATE));
            account_of("migration/0", cpus)
        };
        assert_eq!(waits(1).time_of(Part::Moving { by: Some(LATE) }), 100);
        let blocked =
            Part::Blocked { woken_by: Some(MOVER), is_interrupt: false, is_uninterruptible: Some(true) };
        assert_eq!(waits(0).time_of(blocked), 30);
    }
}
