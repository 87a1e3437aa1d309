//! Orders, promises and the published table, through the scheduler that ships.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::sim::server::{Load, Outcome, POLICIES, Served, Server};

const THINK: Load = Load::Closed { think: Nanos::from_millis(50) };

fn ready(task: u32, class: u8, deadline: u64) -> Ready {
    Ready { task, class, arrived: Nanos(task.into()), deadline: Nanos(deadline) }
}

fn order(policy: Policy, tasks: &[Ready]) -> Vec<u32> {
    let mut scheduler = Scheduler::new(&[ClassOptions::default(); 3], policy, tasks.len()).unwrap();
    tasks.iter().for_each(|&task| scheduler.push(task, Nanos(0)).unwrap());
    assert_eq!(scheduler.push(tasks[0], Nanos(0)), Err(Full));
    let mut order = Vec::new();
    while let Some(next) = scheduler.next(Nanos(0)) {
        assert!(!next.why.is_shed());
        scheduler.charge(&next, Nanos(10));
        order.push(next.ready.task);
    }
    order
}

#[test]
fn each_policy_has_its_order() {
    let tasks = [ready(1, 2, 10), ready(2, 1, 40), ready(3, 0, 30), ready(4, 0, 20)];
    assert_eq!(order(Policy::Fifo, &tasks), [1, 2, 3, 4]);
    assert_eq!(order(Policy::Strict, &tasks), [3, 4, 2, 1]);
    assert_eq!(order(Policy::Deadline, &tasks), [1, 4, 3, 2]);
    assert_eq!(order(Policy::Floors, &tasks), [4, 3, 2, 1]);
    // Class 0 has run once when the others, whose strides begin now, have their turn.
    assert_eq!(order(Policy::Stride, &tasks), [3, 2, 1, 4]);
    // Each class counts as so much later; among equals the more important one is first.
    assert_eq!(order(Policy::Aging(Nanos(2)), &tasks), [3, 4, 2, 1]);
    assert_eq!(order(Policy::Aging(Nanos(1)), &tasks), [3, 2, 1, 4]);
    assert_eq!(order(Policy::Aging(Nanos(0)), &tasks), [1, 2, 3, 4]);
}

/// Goal: stages of requests that came together take turns, as the first to become ready is first; a request that came much earlier
/// still goes first.
#[test]
fn deadlines_close_together_count_as_one() {
    let mut scheduler = Scheduler::new(&[ClassOptions::default()], Policy::Floors, 8).unwrap();
    let at_us = |task, us| {
        let arrived = Nanos::from_micros(us);
        Ready { task, class: 0, arrived, deadline: arrived.plus(Nanos::from_millis(5)) }
    };
    for ready in [at_us(1, 1_000), at_us(2, 100), at_us(3, 0), at_us(4, 50)] {
        scheduler.push(ready, Nanos::from_millis(1)).unwrap();
    }
    let order = core::iter::from_fn(|| scheduler.next(Nanos::from_millis(1)));
    assert_eq!(order.map(|next| next.ready.task).collect::<Vec<_>>(), [2, 3, 4, 1]);
}

/// Goal: a task without a deadline waits no longer than a second behind an endless row of tasks of its class that have one.
#[test]
fn a_task_without_a_deadline_is_not_starved() {
    let mut scheduler = Scheduler::new(&[ClassOptions::default(); 2], Policy::Floors, 8).unwrap();
    let with = |task, now: Nanos| ready(task, 1, now.plus(Nanos::from_millis(10)).0);
    scheduler.push(ready(1, 1, u64::MAX), Nanos(0)).unwrap();
    scheduler.push(with(2, Nanos(0)), Nanos(0)).unwrap();
    let mut now = Nanos(0);
    let waited = loop {
        let run = scheduler.next(now).expect("two tasks are there");
        if run.ready.task == 1 {
            break now;
        }
        now = now.plus(Nanos::from_millis(1));
        scheduler.charge(&run, Nanos::from_millis(1));
        scheduler.push(with(2, now), now).unwrap();
        assert!(now < Nanos::from_millis(2_000), "it waits for ever");
    };
    assert!(waited > Nanos::from_millis(900), "deadlines go first: {waited:?}");
}

#[test]
fn a_policy_is_changed_while_tasks_wait() {
    let mut scheduler = Scheduler::new(&[ClassOptions::default(); 3], Policy::Fifo, 8).unwrap();
    for task in [ready(1, 2, 10), ready(2, 0, 40), ready(3, 0, 30), ready(4, 1, 20)] {
        scheduler.push(task, Nanos(0)).unwrap();
    }
    let mut next = |policy| {
        scheduler.set_policy(policy);
        scheduler.next(Nanos(5)).expect("a task waits").ready.task
    };
    assert_eq!([Policy::Floors, Policy::Deadline, Policy::Fifo, Policy::Strict].map(&mut next), [3, 1, 2, 4]);
    assert_eq!((scheduler.next(Nanos(5)), scheduler.oldest(0), scheduler.waiting(0)), (None, None, 0));
}

/// Goal: the oldest request and the longest time in line are known, though they may be of two tasks.
#[test]
fn the_oldest_request_may_have_come_into_line_last() {
    let mut scheduler = Scheduler::new(&[ClassOptions::default()], Policy::Floors, 8).unwrap();
    for (task, now) in [(7, 10), (9, 20), (5, 30)] {
        scheduler.push(ready(task, 0, 100), Nanos(now)).unwrap();
    }
    assert_eq!(scheduler.oldest(0), Some(Oldest { arrived: Nanos(5), pushed: Nanos(10) }));
    assert_eq!(scheduler.oldest(1), None);
}

/// Goal: strides count on, however long the last of all classes ran: afterwards each of two neighbours gets twice the time of the next.
#[test]
fn strides_are_never_over() {
    let mut scheduler = Scheduler::new(&[ClassOptions::default(); CLASSES_MAX], Policy::Stride, 8).unwrap();
    let last = CLASSES_MAX as u8 - 1;
    let mut run = |classes: &[u8], ran: Nanos| {
        classes.iter().for_each(|&class| scheduler.push(ready(class.into(), class, 0), Nanos(0)).unwrap());
        let mut runs = [0_u64; 2];
        for _ in 0..3_000 {
            let next = scheduler.next(Nanos(0)).expect("tasks are there");
            scheduler.charge(&next, ran);
            runs[usize::from(next.ready.class == last)] += 1;
            scheduler.push(next.ready, Nanos(0)).unwrap();
        }
        classes.iter().for_each(|_| _ = scheduler.next(Nanos(0)));
        runs
    };
    assert_eq!(run(&[last], Nanos::from_millis(1_000)), [0, 3_000]);
    let runs = run(&[last - 1, last], Nanos::from_millis(1_000));
    assert!(runs[0].abs_diff(2_000) < 3, "{runs:?}");
}

#[test]
fn a_task_that_cannot_be_done_in_time_is_shed_where_that_is_wanted() {
    let classes = [ClassOptions { sheds: true, ..ClassOptions::default() }, ClassOptions::default()];
    let mut scheduler = Scheduler::new(&classes, Policy::Floors, 8).unwrap();
    let mut next = |ready: Ready, now| {
        scheduler.push(ready, now).unwrap();
        let next = scheduler.next(now).expect("a task waits");
        scheduler.charge(&next, if next.why.is_shed() { Nanos(1) } else { Nanos(10) });
        (next.ready.task, next.why)
    };
    assert_eq!(next(ready(1, 0, 100), Nanos(99)), (1, Why::First), "its time is not known yet");
    assert_eq!(next(ready(2, 0, 100), Nanos(90)), (2, Why::First));
    assert_eq!(next(ready(3, 0, 100), Nanos(91)), (3, Why::Shed));
    assert_eq!(next(ready(4, 1, 100), Nanos(900)), (4, Why::First), "its class does not shed");
    assert_eq!(next(ready(5, 0, 100), Nanos(91)), (5, Why::Shed), "the time of shedding is not the task's");
    let expected = ClassCounters { run: 2, shed: 2, by_floor: 0, ran: Nanos(22) };
    assert_eq!((scheduler.counters(0), scheduler.counters(9)), (expected, ClassCounters::default()));
}

/// Goal: a class that sheds serves again after a task that took longer than any may take, on a processor that is idle otherwise.
#[test]
fn one_long_poll_does_not_shed_for_ever() {
    let classes = [ClassOptions { sheds: true, ..ClassOptions::default() }];
    for took in [Nanos::from_millis(6), Nanos::from_millis(60_000)] {
        let mut scheduler = Scheduler::new(&classes, Policy::Floors, 8).unwrap();
        let mut sheds = 0;
        for number in 0..2_000 {
            let now = Nanos::from_millis(100_000 + 10 * number);
            let deadline = now.plus(Nanos::from_millis(5));
            scheduler.push(Ready { task: 1, class: 0, arrived: now, deadline }, now).unwrap();
            let next = scheduler.next(now).expect("a task waits");
            sheds += u32::from(next.why.is_shed());
            scheduler.charge(&next, if number == 0 { took } else { Nanos::from_micros(100) });
        }
        assert!((1..1_000).contains(&sheds), "{sheds} of 2,000 after one that took {took:?}");
    }
}

/// Goal: a task whose deadline has passed, and which always has more to do, keeps no other of its class waiting beyond that one's
/// deadline.
#[test]
fn a_late_task_keeps_nobody_waiting() {
    let mut scheduler = Scheduler::new(&[ClassOptions::default()], Policy::Floors, 8).unwrap();
    let within = Nanos::from_millis(40);
    let push = |scheduler: &mut Scheduler, task, arrived: Nanos, deadline, now| {
        scheduler.push(Ready { task, class: 0, arrived, deadline }, now).unwrap();
    };
    push(&mut scheduler, 1, Nanos(0), within, Nanos(0));
    let came = Nanos::from_millis(1_000);
    push(&mut scheduler, 2, came, came.plus(within), came);
    push(&mut scheduler, 3, came, Nanos::NEVER, came);
    let (mut now, mut served) = (came, vec![]);
    while served.len() < 2 && now < Nanos::from_millis(3_000) {
        let next = scheduler.next(now).expect("tasks wait");
        now = now.plus(Nanos::from_micros(200));
        scheduler.charge(&next, Nanos::from_micros(200));
        match next.ready.task {
            1 => scheduler.push_again(next.ready, now).unwrap(),
            task => served.push((task, now.since(came).0 / 1_000_000)),
        }
    }
    assert!(matches!(served[..], [(2, ..=41), (3, ..=1_000)]), "task and milliseconds: {served:?}");
}

/// Goal: a task that goes on long after its deadline is due when it comes into line, however late it is. Another with a deadline is done
/// by that.
#[test]
fn a_very_late_task_goes_on() {
    let mut scheduler = Scheduler::new(&[ClassOptions::default()], Policy::Floors, 8).unwrap();
    let (mut now, within) = (Nanos::from_millis(60_000), Nanos::from_millis(40));
    let ready =
        |task, arrived: Nanos, within| Ready { task, class: 0, arrived, deadline: arrived.plus(within) };
    scheduler.push_again(ready(0, Nanos(0), Nanos::from_millis(10)), now).unwrap();
    scheduler.push(ready(1, now, within), now).unwrap();
    let mut runs = [0; 2];
    for _ in 0..10_000 {
        let next = scheduler.next(now).expect("tasks wait");
        runs[next.ready.task as usize] += 1;
        now = now.plus(Nanos::from_micros(200));
        scheduler.charge(&next, Nanos::from_micros(200));
        match next.ready.task {
            0 => scheduler.push_again(next.ready, now).unwrap(),
            task => scheduler.push(ready(task, now, within), now).unwrap(),
        }
    }
    assert!(runs[0] > 9_000 && runs[1] > 40, "{runs:?}");
}

/// Goal: a class that sheds all it has gets its floor and no more beside one that always has work. Sheds while nobody else wanted
/// anything make no debt.
#[test]
fn a_class_that_sheds_gets_no_more_than_its_floor() {
    const FLOOR_PERMILLE: u32 = 20;
    let mut classes = [ClassOptions::default(); 2];
    classes[1] = ClassOptions { floor_permille: FLOOR_PERMILLE, sheds: true };
    for alone in [0, 300] {
        let mut scheduler = Scheduler::new(&classes, Policy::Floors, 2_000).unwrap();
        let (mut now, poll) = (Nanos::from_millis(1), Nanos::from_micros(20));
        (0..1_000 + alone).for_each(|task| scheduler.push(ready(task, 1, 0), now).unwrap());
        let mut serve = |scheduler: &mut Scheduler| {
            let next = scheduler.next(now).expect("tasks are there");
            assert_eq!(next.ready.class == 1, next.why.is_shed());
            now = now.plus(poll);
            scheduler.charge(&next, poll);
            if next.ready.class == 0 {
                scheduler.push(next.ready, now).unwrap();
            }
            usize::from(next.ready.class)
        };
        (0..alone).for_each(|_| assert_eq!(serve(&mut scheduler), 1));
        scheduler.push(ready(1, 0, u64::MAX), Nanos::from_millis(1)).unwrap();
        // In half a second the floor is time for 500 of the 1,000.
        let mut polls = [0; 2];
        (0..25_000).for_each(|_| polls[serve(&mut scheduler)] += 1);
        assert!((495..=505).contains(&polls[1]), "{polls:?} after {alone} alone");
    }
}

/// Goal: in the simulated server shedding takes time of the one processor, and each request is answered or shed once.
#[test]
fn a_server_takes_time_to_shed() {
    let mut server = Server::of_the_experiment(Load::Open { permille: 1_500 });
    let sum = |of: fn(&Served) -> u64, outcome: &Outcome| outcome.classes.iter().map(of).sum::<u64>();
    let answers = |served: &Served| served.latencies.len() as u64;
    let asked = sum(answers, &server.serve(Policy::Floors));
    server.classes.iter_mut().for_each(|class| class.sheds = true);
    let outcome = server.serve(Policy::Floors);
    let (answered, shed) = (sum(answers, &outcome), sum(|served| served.shed, &outcome));
    assert!(shed > 0 && answered + shed == asked, "{answered} + {shed} of {asked}");
    let turns = &outcome.turns;
    assert!(turns.is_sorted_by(|before, after| before.0.plus(before.1) <= after.0), "two turns at a time");
    assert!(turns.len() as u64 >= 3 * answered + shed, "{} turns", turns.len());
}

/// Goal: a processor that serves the first classes alone gets nothing of the others, not even for a floor; tasks that it leaves stay in
/// line.
#[test]
fn a_processor_that_serves_some_classes_gets_no_others() {
    for policy in POLICIES.map(|(_, policy)| policy) {
        let classes = [ClassOptions { floor_permille: 300, sheds: false }; 3];
        let mut scheduler = Scheduler::new(&classes, policy, 8).unwrap();
        for class in [2, 1, 2, 0] {
            scheduler.push(ready(class.into(), class, 0), Nanos(0)).unwrap();
        }
        assert_eq!(scheduler.first_waiting(), Some(0));
        let now = Nanos::from_millis(500);
        let served: Vec<_> = core::iter::from_fn(|| scheduler.next_up_to(1, now)).collect();
        let is_early = |next: &Next| !next.why.is_shed() && next.ready.class <= 1;
        assert!(served.len() == 2 && served.iter().all(is_early), "{policy:?}: {served:?}");
        assert_eq!((scheduler.waiting(2), scheduler.first_waiting()), (2, Some(2)));
    }
}

#[test]
fn impossible_classes_are_refused() {
    let floor = |floor_permille| ClassOptions { floor_permille, sheds: false };
    for (options, error) in [
        (vec![], ClassesError::Count(0)),
        (vec![floor(0); CLASSES_MAX + 1], ClassesError::Count(CLASSES_MAX + 1)),
        (vec![floor(600), floor(401)], ClassesError::Floors { permille: 1_001 }),
        (vec![floor(u32::MAX), floor(1)], ClassesError::Floors { permille: u32::MAX }),
    ] {
        assert_eq!(Scheduler::new(&options, Policy::Floors, 1).err(), Some(error));
    }
    assert!(Scheduler::new(&[floor(600), floor(400)], Policy::Floors, 1).is_ok());
    for tasks in [TASKS_MAX + 1, usize::MAX] {
        let refused = Scheduler::new(&[floor(0)], Policy::Floors, tasks).err();
        assert_eq!(refused, Some(ClassesError::Tasks(tasks)));
    }
}

/// Goal: a class that always has one task gets its floor before others, and no more. Method: its task is in line again before it is
/// charged, as a poll's that yields, and behind that.
#[test]
fn a_class_with_one_task_at_a_time_gets_its_floor() {
    for is_in_line_first in [false, true] {
        let mut classes = [ClassOptions::default(); 2];
        classes[1].floor_permille = 100;
        let mut scheduler = Scheduler::new(&classes, Policy::Floors, 8).unwrap();
        let (mut now, mut ran) = (Nanos(0), [0; 2]);
        for class in [0, 0, 1] {
            scheduler.push(ready(1, class, 0), now).unwrap();
        }
        let turn = Nanos::from_micros(400);
        while now < Nanos::from_millis(4_000) {
            let run = scheduler.next(now).expect("three tasks are there");
            now = now.plus(turn);
            if is_in_line_first {
                scheduler.push(run.ready, now).unwrap();
            }
            scheduler.charge(&run, turn);
            ran[usize::from(run.ready.class)] += 1;
            if !is_in_line_first {
                scheduler.push(run.ready, now).unwrap();
            }
        }
        assert!((999..=1_001).contains(&ran[1]), "{is_in_line_first}: {ran:?}");
    }
}

/// Goal: tasks that another processor took leave no claim here: a class without tasks is owed nothing.
#[test]
fn a_task_handed_over_is_no_longer_running() {
    let classes = [ClassOptions::default(), ClassOptions { floor_permille: 500, sheds: false }];
    let mut scheduler = Scheduler::new(&classes, Policy::Floors, 8).unwrap();
    scheduler.push(ready(1, 1, 0), Nanos(0)).unwrap();
    let run = scheduler.next(Nanos(0)).expect("a task is there");
    scheduler.hand_over(&run);
    let later = Nanos::from_millis(900);
    for class in [0, 1] {
        scheduler.push(ready(2, class, 0), later).unwrap();
    }
    let run = scheduler.next(later).expect("two tasks are there");
    assert_eq!(run.ready.class, 0);
}

/// A scheduler without a floor for class 0 and with 20 thousandths for the others, of which each has had a task of a millisecond.
fn of_milliseconds(classes: u8) -> Scheduler {
    let floor = |floor_permille| ClassOptions { floor_permille, sheds: false };
    let options: Vec<_> = (0..classes).map(|class| floor(if class == 0 { 0 } else { 20 })).collect();
    let mut scheduler = Scheduler::new(&options, Policy::Floors, 8).unwrap();
    for class in 0..classes {
        scheduler.push(ready(0, class, 0), Nanos(0)).unwrap();
        let next = scheduler.next(Nanos(0)).expect("a task is there");
        scheduler.charge(&next, Nanos::from_millis(1));
    }
    scheduler
}

/// Goal: a debt to a class is paid once, however many processors take tasks. Method: two choose at one instant, when half a task is owed.
#[test]
fn two_processors_pay_no_debt_twice() {
    let (mut scheduler, ms) = (of_milliseconds(2), Nanos::from_millis);
    for class in [0, 0, 1, 1] {
        scheduler.push(ready(class.into(), class, 0), ms(100)).unwrap();
    }
    let next = [(); 2].map(|()| scheduler.next(ms(125)).expect("four tasks are there"));
    assert_eq!(next.map(|next| (next.ready.class, next.why)), [(1, Why::Floor), (0, Why::First)]);
    scheduler.hand_over(&next[0]);
    scheduler.charge_handed_over(&next[0], ms(1));
    scheduler.charge(&next[1], ms(1));
    let next = scheduler.next(ms(149)).expect("two tasks are there");
    assert_eq!((next.ready.class, next.why), (0, Why::First), "its floor owes it nothing for 50 ms");
    scheduler.push(ready(0, 0, 0), ms(151)).unwrap();
    let next = scheduler.next(ms(151)).expect("two tasks are there");
    assert_eq!((next.ready.class, next.why), (1, Why::Floor));
}

/// Goal: a class is owed nothing while a task of it has a processor, however long that takes. Method: another processor chooses meanwhile,
/// or has the task.
#[test]
fn a_task_that_runs_counts_meanwhile() {
    for is_handed_over in [false, true] {
        let (mut scheduler, ms) = (of_milliseconds(2), Nanos::from_millis);
        for _ in 0..2 {
            scheduler.push(ready(1, 1, 0), ms(1_000)).unwrap();
        }
        let long = scheduler.next(ms(1_000)).expect("two tasks are there");
        if is_handed_over {
            scheduler.hand_over(&long);
        }
        let end = ms(10_000);
        scheduler.push(ready(0, 0, 0), end).unwrap();
        let next = scheduler.next(end).expect("two tasks are there");
        assert_eq!((long.ready.class, next.ready.class, next.why), (1, 0, Why::First), "{is_handed_over}");
    }
}

/// Goal: a task is charged as of its own choice, though another processor has chosen one meanwhile. Method: of two classes the one is
/// owed more as its first task was chosen earlier.
#[test]
fn a_later_choice_changes_no_charge() {
    let (mut scheduler, ms) = (of_milliseconds(3), Nanos::from_millis);
    scheduler.push(ready(1, 1, 0), ms(10)).unwrap();
    let early = scheduler.next(ms(10)).expect("a task is there");
    for class in [0, 0, 2] {
        scheduler.push(ready(class.into(), class, 0), ms(30)).unwrap();
    }
    let late = scheduler.next(ms(30)).expect("three tasks are there");
    assert_eq!(late.ready.class, 0);
    scheduler.push(ready(1, 1, 0), ms(50)).unwrap();
    scheduler.charge(&late, ms(1));
    scheduler.charge(&early, ms(40));
    let next = scheduler.next(ms(50)).expect("three tasks are there");
    assert_eq!((next.ready.class, next.why), (1, Why::Floor));
}

/// Goal: in any second in which a class has a request all the time, it gets its floor, less the turn that is being served.
#[test]
fn the_floor_is_met_over_any_second() {
    let server = Server::of_the_experiment(Load::Open { permille: 1_500 });
    let outcome = server.serve(Policy::Floors);
    let end = server.duration;
    let (second, longest) = (Nanos::from_millis(1_000), Nanos::from_micros(520));
    for class in 1..8 {
        // Above saturation the less important ones wait from early on until the load ends.
        for begin in (1_000..4_000).step_by(10).map(Nanos::from_millis) {
            let within = |&&(at, _, whose): &&(Nanos, Nanos, u8)| {
                whose == class && at >= begin && at.plus(longest) < begin.plus(second)
            };
            let got: u64 = outcome.turns.iter().filter(within).map(|turn| turn.1.0).sum();
            let floor = second.0 / 50 - 2 * longest.0;
            assert!(
                begin.plus(second) > end || got >= floor,
                "class {class} from {begin:?}: {got} of {floor}"
            );
        }
    }
}

/// Goal: no policy makes or loses work, and nobody waits for ever: every request is answered.
#[test]
fn totals_are_equal_across_policies_and_all_is_answered() {
    let total = |outcome: &Outcome| outcome.classes.iter().map(|class| class.latencies.len()).sum::<usize>();
    for load in [THINK, Load::Open { permille: 800 }, Load::Open { permille: 1_200 }] {
        let server = Server::of_the_experiment(load);
        let totals = POLICIES.map(|(_, policy)| total(&server.serve(policy)));
        let (least, most) = (totals.iter().min().unwrap(), totals.iter().max().unwrap());
        assert!(most - least <= most / 100, "{load:?}: {totals:?}");
        if let Load::Open { .. } = load {
            assert_eq!(least, most, "each request of an open load is answered once");
        }
    }
}

/// Goal: the published table by the same load. Requests and mean and longest wait of classes 0 and 7, milliseconds.
#[test]
fn the_table_of_policies_is_reproduced() {
    let mut lines = vec![];
    for (name, policy) in POLICIES {
        let served = Server::of_the_experiment(THINK).serve(policy);
        let open = Server::of_the_experiment(Load::Open { permille: 1_200 }).serve(policy);
        let of = |outcome: &Outcome, class: usize| {
            let class = &outcome.classes[class];
            let ms = |time: Nanos| time.0 as f64 / 1e6;
            let [mean, max, p99] = [class.mean(), class.quantile(1_000), class.quantile(990)].map(ms);
            (class.latencies.len(), mean, max, p99)
        };
        let ((n0, mean0, max0, _), (n7, mean7, max7, _)) = (of(&served, 0), of(&served, 7));
        let (p0, p7) = (of(&open, 0).3, of(&open, 7).3);
        lines.push(alloc::format!(
            "{name}: {n0} ({mean0:.1}/{max0:.0}) {n7} ({mean7:.0}/{max7:.0}) open {p0:.1}/{p7:.0}"
        ));
    }
    let expected: Vec<&str> = include_str!("policies.txt").lines().collect();
    assert_eq!(lines, expected);
}
