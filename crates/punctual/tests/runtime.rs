//! Tasks in classes: order, ends of every kind, and no wake that is lost.

mod common;

use std::future::{Future, pending, poll_fn};
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::{Dice, Role, own_role, rounds_factor, unique, watchdog};
use punctual::Nanos;
use punctual::runtime::{
    BLOCKING_MAX, Handle, Join, JoinError, Lane, Policy, Request, Runtime, RuntimeOptions, SpawnError,
    StartError, TaskOptions, Urgency, Verdict, blocking, is_shed, read_all, request, take_over, yield_if_due,
    yield_now,
};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::parker;

/// Longer than any test takes on a busy machine.
const LIMIT_S: u64 = 120;

fn workers(workers: usize) -> RuntimeOptions {
    RuntimeOptions { workers, ..RuntimeOptions::default() }
}

fn class(class: u8) -> TaskOptions {
    TaskOptions::of_class(class)
}

/// An instant that any thread may bring about, and one task waits for.
#[derive(Default)]
struct Event(Mutex<(bool, Option<Waker>)>);

impl Event {
    fn bring_about(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits for it, and begins anew.
    async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if std::mem::take(&mut state.0) {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Number of tasks that have not dropped their share of this.
fn alive(all: &Arc<()>) -> usize {
    Arc::strong_count(all) - 1
}

/// Occupies the only worker until the sender is dropped.
fn occupy(runtime: &Runtime) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let work = async move {
        begun.send(()).unwrap();
        let _gone = wait.recv();
    };
    drop(runtime.spawn(class(0).named("occupied"), work).unwrap());
    begins.recv().unwrap();
    go
}

#[test]
fn impossible_runtimes_are_refused() {
    let start = |options: &RuntimeOptions| Runtime::start(options).err().map(|error| error.to_string());
    assert!(matches!(Runtime::start(&workers(0)), Err(StartError::Workers(0))));
    assert!(start(&workers(65)).unwrap().starts_with("65 workers: 1 to 64"));
    let none = RuntimeOptions { classes: vec![], ..workers(1) };
    assert!(start(&none).unwrap().starts_with("0 classes"));
    let endless = RuntimeOptions { tasks_max: usize::MAX, ..workers(1) };
    assert!(start(&endless).unwrap().ends_with("tasks at a time: 4194304 are the most"));
    let lane = Lane { workers: 1, last_class: 0, urgency: Urgency::Nice(99) };
    assert!(
        start(&RuntimeOptions { lanes: vec![lane], ..workers(1) }).unwrap().starts_with("set nice value 99")
    );
}

/// Goal: waiting tasks are done class by class, in each policy's order. Method: the only worker is busy while they come.
#[test]
fn the_important_come_first() {
    let _alive = watchdog(LIMIT_S);
    for (policy, expected) in [(Policy::Strict, [0, 1, 2, 3]), (Policy::Fifo, [3, 1, 0, 2])] {
        let runtime = Runtime::start(&workers(1)).unwrap();
        runtime.handle().set_policy(policy);
        let busy = occupy(&runtime);
        let (said, order) = mpsc::channel();
        for number in [3, 1, 0, 2] {
            let said = said.clone();
            drop(runtime.spawn(class(number), async move { said.send(number).unwrap() }).unwrap());
        }
        drop((busy, said));
        assert_eq!(order.iter().collect::<Vec<_>>(), expected, "{policy:?}");
    }
}

/// Goal: within a class the nearest deadline is first, and a task that is woken by a request's task takes its deadline over.
#[test]
fn deadlines_order_a_class_and_travel() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let busy = occupy(&runtime);
    let (said, order) = mpsc::channel();
    for ms in [3_000, 1_000, 2_000] {
        let said = said.clone();
        let options = class(2).within(Duration::from_millis(ms));
        drop(runtime.spawn(options, async move { said.send(ms).unwrap() }).unwrap());
    }
    drop((busy, said));
    assert_eq!(order.iter().collect::<Vec<_>>(), [1_000, 2_000, 3_000]);

    let event = Arc::new(Event::default());
    let theirs = Arc::clone(&event);
    let (waits, is_waiting) = mpsc::channel();
    let second = async move {
        waits.send(()).unwrap();
        theirs.wait().await;
        request().unwrap()
    };
    let second = runtime.spawn(class(5).within(Duration::from_secs(1)), second).unwrap();
    is_waiting.recv().unwrap();
    let first = async move {
        event.bring_about();
        request().unwrap()
    };
    let first = runtime.spawn(class(1).within(Duration::from_secs(5)), first).unwrap();
    let (first, second) = (runtime.block_on(first).unwrap(), runtime.block_on(second).unwrap());
    assert_eq!(first, second);
    assert_eq!(first.deadline - first.arrived, 5_000_000_000);
    assert_eq!(request(), None, "outside of tasks");
}

/// Goal: a deadline stays in its runtime, whose start its instants count from, also where the waking task has blocked before.
/// Method: a task of a younger runtime spawns one of each.
#[test]
fn a_deadline_stays_in_its_runtime() {
    let _alive = watchdog(LIMIT_S);
    let older = Runtime::start(&workers(1)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let younger = Runtime::start(&workers(1)).unwrap();
    let handles = [older.handle().clone(), younger.handle().clone()];
    let spawns = async move {
        blocking(|| ());
        let before = handles[0].now();
        let spawn = |handle: &Handle| handle.spawn(class(1), async { request().unwrap() }).unwrap();
        (request().unwrap(), before, handles.each_ref().map(spawn))
    };
    let spawns = younger.spawn(class(0).within(Duration::from_millis(10)), spawns).unwrap();
    let (own, before, [elsewhere, here]) = younger.block_on(spawns).unwrap();
    let elsewhere = older.block_on(elsewhere).unwrap();
    assert!(elsewhere.arrived >= before, "{elsewhere:?} came after {before:?}");
    assert_eq!(elsewhere.deadline, Nanos::NEVER);
    assert_eq!(younger.block_on(here).unwrap(), own);
}

#[test]
fn a_panic_ends_its_task_alone() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let fails = runtime.spawn(class(0), async { panic!("on {}", String::from("purpose")) }).unwrap();
    let lives = runtime.spawn(class(0), async { 1 }).unwrap();
    let Err(JoinError::Panicked { panic, .. }) = runtime.block_on(fails) else { panic!("it panicked") };
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "on purpose");
    assert_eq!(runtime.block_on(lives).unwrap(), 1);
    assert_eq!(runtime.handle().tasks(), 0);
    let shows = runtime.spawn(class(0), async { panic!("&str") }).unwrap();
    assert_eq!(runtime.block_on(shows).unwrap_err().to_string(), "the task panicked: &str");
}

/// Goal: who waits for several tasks is told which of them has no result.
#[test]
fn a_task_without_a_result_is_named() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let fails = runtime.spawn(class(0).named("brakes"), async { panic!("on purpose") }).unwrap();
    assert_eq!(runtime.block_on(fails).unwrap_err().to_string(), "the task brakes panicked: on purpose");
    let spawn = |options: TaskOptions| runtime.spawn(options, pending::<()>()).unwrap();
    let told = runtime.block_on(spawn(class(1).named("radar")).cancel()).unwrap_err();
    assert!(matches!(told, JoinError::Cancelled { task: "radar" }), "{told:?}");
    assert_eq!(told.to_string(), "the task radar was cancelled");
    let nameless = runtime.block_on(spawn(class(1)).cancel()).unwrap_err();
    assert_eq!(nameless.to_string(), "the task was cancelled");
    let waits = spawn(class(0).named("lamps"));
    drop(runtime);
    let other = Runtime::start(&workers(1)).unwrap();
    assert_eq!(other.block_on(waits).unwrap_err().to_string(), "the task lamps was cancelled");
}

/// A future with three points at which it waits: before, between, behind two yields and an event that never comes.
async fn three_waits(steps: mpsc::Sender<u32>, share: Arc<()>) {
    for step in 0..3 {
        steps.send(step).unwrap();
        yield_now().await;
    }
    steps.send(3).unwrap();
    pending::<()>().await;
    drop(share);
}

/// Goal: a task that is cancelled drops all that it has, wherever it waits. Method: at each point, polled by hand first, then by
/// a runtime whose only worker is stopped there.
#[test]
fn cancellation_at_every_await_point_leaves_nothing() {
    let _alive = watchdog(LIMIT_S);
    let all = Arc::new(());
    let runtime = Runtime::start(&workers(1)).unwrap();
    for stop_at in 0..=3 {
        let (said, steps) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (reached, is_reached) = mpsc::channel();
        let share = Arc::clone(&all);
        let mut gate = Some((gate, reached));
        let mut inner = Box::pin(three_waits(said, share));
        let task = poll_fn(move |cx: &mut Context<'_>| {
            let polled = inner.as_mut().poll(cx);
            if steps.try_iter().any(|step| step == stop_at)
                && let Some((gate, reached)) = gate.take()
            {
                reached.send(()).unwrap();
                let _cancelled = gate.recv();
            }
            polled
        });
        let task = runtime.spawn(class(1), task).unwrap();
        is_reached.recv().unwrap();
        assert_eq!(alive(&all), 1);
        // Cancelled while it is polled; the worker goes on when that has been said.
        let mut cancels = Box::pin(task.cancel());
        let waker = Waker::noop();
        assert!(cancels.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        drop(go);
        assert!(matches!(runtime.block_on(cancels), Err(JoinError::Cancelled { .. })));
        assert_eq!(alive(&all), 0, "stopped at {stop_at}");
    }
    assert_eq!(runtime.handle().tasks(), 0);
}

/// Goal: a task that was never polled, one that is done and one that waits can be cancelled; the done one keeps its result.
#[test]
fn a_task_can_be_cancelled_in_any_state() {
    let _alive = watchdog(LIMIT_S);
    let all = Arc::new(());
    let runtime = Runtime::start(&workers(1)).unwrap();
    let busy = occupy(&runtime);
    let share = Arc::clone(&all);
    let never = runtime.spawn(class(1), async move { drop(share) }).unwrap();
    let mut cancels = Box::pin(never.cancel());
    assert!(cancels.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(busy);
    assert!(runtime.block_on(cancels).is_err());
    assert_eq!(alive(&all), 0);
    let mut done = runtime.spawn(class(1), async { 5 }).unwrap();
    runtime.block_on(poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if done.is_finished() { Poll::Ready(()) } else { Poll::Pending }
    }));
    assert_eq!(runtime.block_on(Pin::new(&mut done)).unwrap(), 5);
    let done = runtime.spawn(class(1), async { 6 }).unwrap();
    while !done.is_finished() {
        std::thread::yield_now();
    }
    assert_eq!(runtime.block_on(done.cancel()).unwrap(), 6);
}

/// Goal: a runtime that ends takes all tasks with it: those that wait, those in line, those that hold each other.
#[test]
fn the_end_of_a_runtime_is_the_end_of_its_tasks() {
    let _alive = watchdog(LIMIT_S);
    let all = Arc::new(());
    let runtime = Runtime::start(&workers(2)).unwrap();
    let handle = runtime.handle().clone();
    for number in 0..100 {
        let (share, handle) = (Arc::clone(&all), handle.clone());
        let waits = async move {
            let child = handle.spawn(class(7), pending::<()>()).unwrap();
            if number % 2 == 0 {
                yield_now().await;
            }
            let _never = child.await;
            drop(share);
        };
        drop(runtime.spawn(class(number % 8), waits).unwrap());
    }
    drop(runtime);
    assert_eq!((alive(&all), handle.tasks()), (0, 0));
    let refused = handle.spawn(class(0), async {}).err();
    assert_eq!(refused, Some(SpawnError::Closed));
}

/// Goal: a task that is spawned, or woken, while its runtime ends is ended, and every task that waits for it is told.
#[test]
fn the_end_misses_no_task_that_comes_meanwhile() {
    let _alive = watchdog(LIMIT_S);
    for seed in 0..200_u64 {
        let runtime = Runtime::start(&workers(1)).unwrap();
        let handle = runtime.handle().clone();
        let event = Arc::new(Event::default());
        let theirs = Arc::clone(&event);
        let waits = async move {
            loop {
                theirs.wait().await;
            }
        };
        let waits: Join<()> = runtime.spawn(class(0), waits).unwrap();
        let (begun, begins) = mpsc::channel();
        let spawns = std::thread::spawn(move || {
            let mut joins = Vec::new();
            begun.send(()).unwrap();
            while let Ok(join) = handle.spawn(class(7), pending::<()>()) {
                joins.push(join);
            }
            joins
        });
        let wakes = std::thread::spawn(move || (0..2_000).for_each(|_| event.bring_about()));
        begins.recv().unwrap();
        Dice(seed + 1).pause();
        drop(runtime);
        wakes.join().unwrap();
        let joins = spawns.join().unwrap();
        let left = joins.iter().chain([&waits]).filter(|join| !join.is_finished()).count();
        assert_eq!(left, 0, "seed {seed}");
    }
}

#[test]
fn no_more_tasks_than_may_live() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&RuntimeOptions { tasks_max: 2, ..workers(1) }).unwrap();
    let waits = || runtime.spawn(class(0), pending::<()>());
    let (one, _two) = (waits().unwrap(), waits().unwrap());
    assert_eq!(waits().err(), Some(SpawnError::Full));
    assert!(runtime.block_on(one.cancel()).is_err());
    drop(waits().unwrap());
}

/// Goal: a task that blocks keeps nobody from being served, may borrow, and passes its panic on.
#[test]
fn blocking_work_lets_others_go_on() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let (said, heard) = mpsc::channel();
    let blocks = async move {
        let words = String::from("borrowed");
        // Waits for a task that only this runtime's only worker can serve.
        let length = blocking(|| heard.recv().map(|()| words.len()).unwrap());
        yield_now().await;
        length
    };
    let blocks = runtime.spawn(class(0), blocks).unwrap();
    let serves = runtime.spawn(class(7), async move { said.send(()).unwrap() }).unwrap();
    runtime.block_on(serves).unwrap();
    assert_eq!(runtime.block_on(blocks).unwrap(), 8);
    let fails = runtime.spawn(class(0), async { blocking(|| panic!("blocked")) }).unwrap();
    assert_eq!(runtime.block_on(fails).unwrap_err().to_string(), "the task panicked: blocked");
    assert_eq!(blocking(|| 1), 1, "outside of tasks it is a call");
}

/// Goal: work that blocks serves its task's request, knows it, and gives it to tasks that it wakes. A request that it takes over stays.
#[test]
fn blocking_work_serves_its_request() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let handle = runtime.handle().clone();
    // A task each: a poll that has blocked is no worker's any more, and what it does then is just done.
    let within = || class(0).within(Duration::from_secs(9));
    let knows = runtime.spawn(within(), async { (request(), blocking(request)) }).unwrap();
    let (own, inside) = runtime.block_on(knows).unwrap();
    assert!(own.is_some() && own == inside);
    let wakes = async move {
        let woken = blocking(|| handle.spawn(class(1), async { request() }).unwrap());
        (request(), woken)
    };
    let (own, woken) = runtime.block_on(runtime.spawn(within(), wakes).unwrap()).unwrap();
    assert_eq!(runtime.block_on(woken).unwrap(), own);
    let takes_over = async {
        let own = request().unwrap();
        let other = Request { deadline: Nanos(own.deadline.0 + 1), ..own };
        blocking(|| take_over(other));
        (other, request())
    };
    let (other, after) = runtime.block_on(runtime.spawn(within(), takes_over).unwrap()).unwrap();
    assert_eq!(Some(other), after);
}

/// Goal: blocked time is not the worker's: its class is not charged for it, and it makes no long poll.
#[test]
fn blocked_time_is_not_the_workers() {
    let _alive = watchdog(LIMIT_S);
    let limit = Duration::from_millis(2);
    let runtime = Runtime::start(&RuntimeOptions { long_poll: limit, ..workers(1) }).unwrap();
    let began = Instant::now();
    let sleeps = || {
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        began.elapsed()
    };
    let slept = runtime.block_on(runtime.spawn(class(5), async move { blocking(sleeps) }).unwrap()).unwrap();
    let all = began.elapsed();
    // The thread that blocked counts its poll after its task has ended.
    let metrics = loop {
        let metrics = runtime.handle().metrics();
        if metrics.classes[5].polls == 1 {
            break metrics;
        }
        std::thread::yield_now();
    };
    let ran = Duration::from_nanos(metrics.classes[5].ran.0);
    assert!(ran + slept <= all, "{ran:?} besides {slept:?} of {all:?}");
    // The machine may have stopped it before it blocked.
    assert_eq!(metrics.workers[0].long_polls, u64::from(ran >= limit));
}

/// Goal: a task that blocked goes on as soon as its own work is done. The thread in its place may poll anything: work that blocks, too,
/// or that keeps it. Method: the only worker's first task ends before the gate of the second opens.
#[test]
fn a_task_that_blocked_waits_for_no_other() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    for blocks in [true, false] {
        let [(go_first, first_gate), (go, gate)] = [mpsc::channel::<()>(), mpsc::channel::<()>()];
        let (begun, begins) = mpsc::channel();
        let begins_first = begun.clone();
        let first = async move {
            begins_first.send(()).unwrap();
            blocking(|| first_gate.recv().is_err())
        };
        let first = runtime.spawn(class(0), first).unwrap();
        begins.recv().unwrap();
        let second = async move {
            begun.send(()).unwrap();
            let _gone = if blocks { blocking(|| gate.recv()) } else { gate.recv() };
        };
        let second = runtime.spawn(class(7), second).unwrap();
        begins.recv().unwrap();
        drop(go_first);
        assert!(runtime.block_on(first).unwrap());
        assert!(!second.is_finished());
        drop(go);
        runtime.block_on(second).unwrap();
    }
}

/// Goal: a runtime ends after the polls that have blocked, too. Method: one blocks while the end waits, and goes on thereafter.
#[test]
fn the_end_waits_for_who_blocks() {
    let _alive = watchdog(LIMIT_S);
    for _ in 0..20 {
        let (runtime, ended) = (Runtime::start(&workers(1)).unwrap(), Arc::new(Counter::default()));
        let (begun, begins) = mpsc::channel();
        let gates: Vec<_> = (0..3)
            .map(|_| {
                let ((go, gate), begun) = (mpsc::channel::<()>(), begun.clone());
                let theirs = Arc::clone(&ended);
                let blocks = async move {
                    blocking(|| {
                        begun.send(()).unwrap();
                        let _gone = gate.recv();
                    });
                    std::thread::yield_now();
                    theirs.add(1);
                };
                drop(runtime.spawn(class(0), blocks).unwrap());
                begins.recv().unwrap();
                go
            })
            .collect();
        let opens = std::thread::spawn(move || drop(gates));
        drop(runtime);
        assert_eq!(ended.get(), 3);
        opens.join().unwrap();
    }
}

/// Goal: a task that drops the last of its own runtime is dropped when its poll ends, though it was woken meanwhile.
#[test]
fn a_task_that_ends_its_runtime_is_dropped() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Arc::new(Runtime::start(&workers(1)).unwrap());
    let (last, (go, gate)) = (Arc::clone(&runtime), mpsc::channel::<()>());
    let ends = async move {
        let _gone = gate.recv();
        drop(last);
        poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
    };
    let task = runtime.spawn(class(0), ends).unwrap();
    drop(runtime);
    drop(go);
    assert!(parker::block_on(task).is_err());
}

/// Goal: however many tasks block, threads are bounded, and all tasks are served.
#[test]
fn threads_that_block_are_bounded() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    // Those that block, and the most that did at a time.
    let counts = Arc::new(Mutex::new((0, 0)));
    let tasks: Vec<_> = (0..BLOCKING_MAX + 50)
        .map(|_| {
            let counts = Arc::clone(&counts);
            let block = move || {
                let mut now = counts.lock().unwrap();
                *now = (now.0 + 1, now.1.max(now.0 + 1));
                drop(now);
                // Longer than it takes to start as many threads.
                std::thread::sleep(Duration::from_millis(100));
                counts.lock().unwrap().0 -= 1;
            };
            runtime.spawn(class(7), async { blocking(block) }).unwrap()
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    let (left, most) = *counts.lock().unwrap();
    assert!(left == 0 && most <= BLOCKING_MAX + 1, "{left}, {most}");
}

/// Goal: workers that were replaced once leave as much room for tasks that block. Method: each of them is, by tasks that block at the
/// same time; then as many tasks block as may.
#[test]
fn replaced_workers_leave_room_for_tasks_that_block() {
    const WORKERS: usize = 8;
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(WORKERS)).unwrap();
    for count in [WORKERS, BLOCKING_MAX] {
        let gate = Arc::new(Barrier::new(count + 1));
        let blocks = |_| {
            let gate = Arc::clone(&gate);
            runtime.spawn(class(7), async move { blocking(|| gate.wait()).is_leader() }).unwrap()
        };
        let tasks: Vec<_> = (0..count).map(blocks).collect();
        runtime.block_on(runtime.spawn(class(7), async {}).unwrap()).unwrap();
        gate.wait();
        for task in tasks {
            let _leads = runtime.block_on(task).unwrap();
        }
    }
}

/// Goal: long work that yields when it is due lets a more important task in, in the middle.
#[test]
fn long_work_yields_when_it_is_due() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&RuntimeOptions { turn: Duration::from_micros(1), ..workers(1) }).unwrap();
    let stop = Arc::new(Flag::default());
    let theirs = Arc::clone(&stop);
    let long = async move {
        while !theirs.is_raised() {
            yield_if_due().await;
        }
    };
    let long = runtime.spawn(class(7), long).unwrap();
    let urgent = runtime.spawn(class(0), async move { stop.raise() }).unwrap();
    runtime.block_on(urgent).unwrap();
    runtime.block_on(long).unwrap();
}

/// Goal: an important task is served by its lane while another class holds the other worker.
#[test]
fn a_lane_serves_while_others_are_held() {
    let _alive = watchdog(LIMIT_S);
    let lane = Lane { workers: 1, last_class: 1, urgency: Urgency::Inherited };
    let runtime = Runtime::start(&RuntimeOptions { lanes: vec![lane], ..workers(1) }).unwrap();
    let (go, gate) = mpsc::channel::<()>();
    let (held, is_held) = mpsc::channel();
    let holds = async move {
        held.send(()).unwrap();
        let _gone = gate.recv();
    };
    let holds = runtime.spawn(class(7), holds).unwrap();
    is_held.recv().unwrap();
    for important in [0, 1] {
        let served =
            runtime.spawn(class(important), async { std::thread::current().name().map(str::to_owned) });
        assert_eq!(runtime.block_on(served.unwrap()).unwrap().as_deref(), Some("worker-0"));
    }
    let waits = runtime.spawn(class(2), async {}).unwrap();
    assert!(!waits.is_finished(), "the lane serves no other class");
    drop(go);
    runtime.block_on(holds).unwrap();
    runtime.block_on(waits).unwrap();
}

/// Goal: no wake is lost and none makes a task run twice at once, however many come at once and from wherever.
/// Method: each round is one wake of each task, from threads and from tasks; the next round waits for all.
#[test]
fn storms_of_wakes_reach_every_task() {
    let _alive = watchdog(LIMIT_S);
    const TASKS: usize = 64;
    const ROUNDS: u64 = 300;
    for count in [1, 2, 4] {
        let runtime = Runtime::start(&workers(count)).unwrap();
        let events: Arc<Vec<Event>> = Arc::new((0..TASKS).map(|_| Event::default()).collect());
        let rounds: Arc<Vec<Counter>> = Arc::new((0..TASKS).map(|_| Counter::default()).collect());
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let (events, rounds) = (Arc::clone(&events), Arc::clone(&rounds));
                let follows = async move {
                    for _ in 0..ROUNDS {
                        events[number].wait().await;
                        rounds[number].add_alone(1);
                        // Each of the second half is woken by one of the first.
                        if number < TASKS / 2 {
                            events[number + TASKS / 2].bring_about();
                        }
                    }
                };
                runtime.spawn(class((number % 8) as u8), follows).unwrap()
            })
            .collect();
        let mut dice = Dice(count as u64);
        for round in 1..=ROUNDS {
            events[..TASKS / 2].iter().for_each(Event::bring_about);
            while rounds.iter().any(|done| done.get() < round) {
                dice.pause();
            }
        }
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    }
}

/// Goal: a worker that sleeps is woken by every message. Method: tasks of two runtimes answer each other, with delays.
#[test]
fn no_wake_is_lost() {
    let times = rounds_factor();
    let _alive = watchdog(LIMIT_S * times);
    let rounds = 3_000 * times;
    let runtimes = [Runtime::start(&workers(1)).unwrap(), Runtime::start(&workers(2)).unwrap()];
    let events = Arc::new([Event::default(), Event::default()]);
    let players: Vec<_> = (0..2)
        .map(|side| {
            let events = Arc::clone(&events);
            let plays = async move {
                let mut dice = Dice(side as u64 + 7);
                for _ in 0..rounds {
                    events[side].wait().await;
                    dice.pause();
                    events[1 - side].bring_about();
                }
            };
            runtimes[side].spawn(class(0), plays).unwrap()
        })
        .collect();
    events[0].bring_about();
    for (runtime, player) in runtimes.iter().zip(players) {
        runtime.block_on(player).unwrap();
    }
}

/// Goal: work is counted where it was done, and a poll that lasts is named.
#[test]
fn metrics_say_what_was_done() {
    let _alive = watchdog(LIMIT_S);
    let runtime =
        Runtime::start(&RuntimeOptions { long_poll: Duration::from_millis(2), ..workers(1) }).unwrap();
    let before = runtime.handle().metrics();
    let long = async { std::thread::sleep(Duration::from_millis(50)) };
    let long = runtime.spawn(class(6).named("sleeper"), long).unwrap();
    runtime.block_on(long).unwrap();
    let late = runtime.spawn(class(1).within(Duration::ZERO), yield_now()).unwrap();
    runtime.block_on(late).unwrap();
    // Before the panic: to print it may take longer than the sleeper slept.
    let slept = runtime.handle().metrics().since(&before);
    let fails = runtime.spawn(class(0), async { panic!("on purpose") }).unwrap();
    assert!(runtime.block_on(fails).is_err());
    let busy = occupy(&runtime);
    drop(runtime.spawn(class(3), async {}).unwrap());
    let spent = runtime.handle().metrics().since(&before);
    drop(busy);
    assert_eq!(spent.panics, 1);
    // The last two are still being polled, or in line.
    assert_eq!([1, 3, 6].map(|class| spent.classes[class].polls), [2, 0, 1]);
    assert!(spent.classes[1].late >= 1 && spent.classes[6].ran.0 >= 50_000_000);
    assert_eq!(spent.classes[6].delays.count(), 1);
    assert_eq!(spent.workers[0].yields, 1);
    assert!(spent.workers[0].woken_from_elsewhere >= 4, "{spent:?}");
    let mut long = slept.workers[0].long_polls_by_task.iter();
    let sleeper = long.find(|kind| (kind.name.as_str(), kind.class) == ("sleeper", 6)).unwrap();
    assert_eq!((sleeper.count, sleeper.ran), (1, spent.classes[6].ran));
    assert!(slept.verdicts().iter().any(|verdict| verdict.to_string().contains("by \"sleeper\" of class 6")));
}

/// Another process: a runtime of that name with a task that has ended and one that lives, or one in which something
/// panics that nobody catches.
#[test]
fn role() {
    let Some((role, name)) = own_role() else { return };
    match role.as_str() {
        "drops" => return panic_in_a_drop(),
        "ends" => return panic_in_a_drop_at_the_end(),
        "wakes" => return panic_in_a_waker(),
        _ => {}
    }
    assert_eq!(role, "counts");
    let runtime = Runtime::start(&RuntimeOptions { name, ..workers(2) }).unwrap();
    let ended = runtime.spawn(class(5).named("ended"), async {}).unwrap();
    runtime.block_on(ended).unwrap();
    runtime.block_on(runtime.spawn(class(2), pending::<()>()).unwrap()).unwrap();
}

/// Panics when it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

fn panic_in_a_drop() {
    let _alive = watchdog(LIMIT_S / 2);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let panics = Panics;
    // Done at its first poll: dropped by the worker.
    let done = poll_fn(move |_| {
        let _own = &panics;
        Poll::Ready(())
    });
    drop(runtime.spawn(class(0), done).unwrap());
    runtime.block_on(runtime.spawn(class(1), async {}).unwrap()).unwrap();
}

fn panic_in_a_drop_at_the_end() {
    let _alive = watchdog(LIMIT_S / 2);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let panics = Panics;
    let waits = poll_fn(move |_| {
        let _own = &panics;
        Poll::<()>::Pending
    });
    drop(runtime.spawn(class(0), waits).unwrap());
    drop(runtime);
}

/// Panics when it is woken.
struct PanicsWoken;

impl Wake for PanicsWoken {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

fn panic_in_a_waker() {
    let _alive = watchdog(LIMIT_S / 2);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let waker = Waker::from(Arc::new(PanicsWoken));
    let mut sleep = std::pin::pin!(runtime.handle().sleep(Duration::from_millis(1)));
    while sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
        sleep.set(runtime.handle().sleep(Duration::from_millis(100)));
    }
    loop {
        std::thread::park();
    }
}

/// Goal: a panic ends the process in a future's drop, by a worker or by the runtime's end, and in a waker of other code. It must not
/// end a worker that others wait for.
#[test]
fn a_panic_that_nobody_catches_ends_the_process() {
    let _alive = watchdog(LIMIT_S);
    for role in ["drops", "ends", "wakes"] {
        let mut other = Role::start(role, "");
        let ended = loop {
            match other.ended() {
                Some(ended) => break ended,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        assert_eq!(ended.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{role}: {ended}");
    }
}

/// Goal: a future that waits for something else within its poll loses no wake by that: the thread has one token for both.
#[test]
fn a_future_that_is_blocked_on_may_park() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let mut is_second = false;
    runtime.block_on(poll_fn(|cx| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::thread::park();
        Poll::Pending
    }));
}

/// Goal: others read what a runtime counts while it lives, and it is gone with its process, however that ends.
#[test]
fn others_read_what_a_runtime_counts() {
    let _alive = watchdog(LIMIT_S);
    let name = unique("runtime");
    let found = || read_all().into_iter().find(|(owner, _)| owner.name == name);
    assert!(found().is_none());
    let other = Role::start("counts", &name);
    let polls = || found().map_or(0, |(_, metrics)| metrics.classes[2].polls);
    while polls() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A look reads number by number while the other goes on: the next one sees all that was there before this one ended.
    let (owner, metrics) = found().unwrap();
    assert_ne!(owner.process.pid_here(), Some(std::process::id()));
    assert_eq!((metrics.tasks, metrics.workers.len(), metrics.classes.len()), (1, 2, 8));
    assert_eq!(metrics.classes[5].delays.count(), 1);
    assert_eq!(metrics.classes[5].floor_permille, 20);
    let text = punctual::prometheus(&[], &read_all(), &[]);
    assert!(text.contains(&format!("punctual_runtime_tasks{{runtime=\"{name}\"")), "{text}");
    other.kill();
    assert!(found().is_none(), "its process is no more");
    let own = Runtime::start(&RuntimeOptions { name: name.clone(), ..workers(1) }).unwrap();
    assert_eq!(found().unwrap().0.process.pid_here(), Some(std::process::id()));
    drop(own);
    assert!(found().is_none());
}

/// Goal: the wait of the oldest task of a class is known while another task keeps the worker.
#[test]
fn waiting_tasks_are_counted() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let again = runtime.handle().clone();
    // Spawned by a task, they stand in its worker's line at once.
    let first = runtime.spawn(class(1), async move {
        let waiting: Vec<_> = (0..3).map(|_| again.spawn(class(4), async {}).unwrap()).collect();
        std::thread::sleep(Duration::from_millis(2));
        (again.metrics(), waiting)
    });
    let (metrics, waiting) = runtime.block_on(first.unwrap()).unwrap();
    assert_eq!(metrics.classes[4].waiting, 3);
    assert!(
        metrics.classes[4].oldest.is_some_and(|oldest| oldest.0 >= 1_000_000),
        "{:?}",
        metrics.classes[4]
    );
    for task in waiting {
        runtime.block_on(task).unwrap();
    }
    let metrics = runtime.handle().metrics();
    assert_eq!((metrics.classes[4].waiting, metrics.classes[4].oldest), (0, None));
}

/// Goal: tasks that other threads woke while a poll keeps the worker are counted, and once.
#[test]
fn tasks_behind_a_kept_worker_are_counted() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let waiting = || [4, 5].map(|class| runtime.handle().metrics().classes[class].waiting);
    let busy = occupy(&runtime);
    let tasks = [4, 5, 4].map(|of| runtime.spawn(class(of), async {}).unwrap());
    assert_eq!(waiting(), [2, 1]);
    drop(busy);
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(waiting(), [0, 0]);
}

/// Goal: of two tasks that compute and yield neither is starved, however long they take, nor does the age of a request matter.
/// Method: each compares the other's wait with the time since its own last turn, after whose begin the other came into line.
#[test]
fn tasks_that_yield_are_not_starved() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let before = runtime.handle().metrics();
    let computes = |arrived| {
        let handle = runtime.handle().clone();
        let computes = async move {
            take_over(Request { arrived, deadline: Nanos::NEVER });
            let (until, mut longest) = (handle.now().plus(Nanos::from_millis(1_200)), Nanos(0));
            while handle.now() < until {
                let began = handle.now();
                while handle.now().since(began) < Nanos::from_micros(200) {}
                yield_now().await;
                let waits = handle.metrics().classes[7].longest_wait.unwrap_or_default();
                let since_last = handle.now().since(began);
                assert!(waits <= since_last, "{waits:?} in {since_last:?}");
                longest = longest.max(since_last);
            }
            (longest, handle.metrics())
        };
        runtime.spawn(class(7), computes).unwrap()
    };
    let tasks = [computes(Nanos(0)), computes(Nanos::NEVER)];
    let [(first, metrics), (second, _)] = tasks.map(|task| runtime.block_on(task).unwrap());
    let is_starved =
        |verdict: &Verdict| matches!(verdict, Verdict::PriorityStarvation { .. } | Verdict::LongLine { .. });
    // Unless the machine stood still for a second.
    if first.max(second) < Nanos::from_millis(1_000) {
        let verdicts = metrics.since(&before).verdicts();
        assert!(!verdicts.iter().any(is_starved), "{verdicts:?}");
    }
}

/// Goal: a task whose deadline has passed, and which always has more to do, keeps no other of its class waiting for ever: neither one
/// with a deadline nor one without.
#[test]
fn a_late_task_keeps_nobody_waiting() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&workers(1)).unwrap();
    let served = Arc::new(Counter::default());
    let (all, handle) = (Arc::clone(&served), runtime.handle().clone());
    let endless = async move {
        let until = handle.now().plus(Nanos::from_millis(60_000));
        while all.get() < 2 && handle.now() < until {
            yield_now().await;
        }
        all.get()
    };
    let endless = runtime.spawn(class(3).within(Duration::from_millis(1)), endless).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    for options in [class(3).within(Duration::from_millis(100)), class(3)] {
        let served = Arc::clone(&served);
        drop(runtime.spawn(options, async move { served.add(1) }).unwrap());
    }
    assert_eq!(runtime.block_on(endless).unwrap(), 2);
}

/// Goal: a task whose request was shed serves the next one. So it does after a poll that lasted longer than any request may take.
#[test]
fn a_class_that_shed_serves_again() {
    let _alive = watchdog(LIMIT_S);
    let mut options = workers(1);
    options.classes[2].sheds = true;
    let runtime = Runtime::start(&options).unwrap();
    let within = Duration::from_millis(50);
    let serves = async move {
        std::thread::sleep(2 * within);
        let mut polls = vec![];
        while polls.last() != Some(&false) && polls.len() < 10_000 {
            yield_now().await;
            polls.push(is_shed());
        }
        polls
    };
    let polls = runtime.spawn(class(2).within(within), serves).unwrap();
    let polls = runtime.block_on(polls).unwrap();
    assert!(polls[0] && !polls[polls.len() - 1], "{} polls, the last shed: {:?}", polls.len(), polls.last());
}

/// Goal: many tasks live at once, all are woken, all end. `PUNCTUAL_TASKS=1000000` has a million of them.
#[test]
fn many_tasks_live_at_once() {
    let _alive = watchdog(600);
    let count = std::env::var("PUNCTUAL_TASKS").map_or(20_000, |tasks| tasks.parse().unwrap());
    let runtime = Runtime::start(&RuntimeOptions { tasks_max: count, ..workers(2) }).unwrap();
    let (gate, ended) = (Arc::new(Mutex::new(Some(Vec::<Waker>::new()))), Arc::new(Counter::default()));
    for number in 0..count {
        let (gate, ended) = (Arc::clone(&gate), Arc::clone(&ended));
        let waits = async move {
            poll_fn(|cx| match &mut *gate.lock().unwrap() {
                Some(wakers) => {
                    wakers.push(cx.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            })
            .await;
            ended.add(1);
        };
        drop(runtime.spawn(class((number % 8) as u8), waits).unwrap());
    }
    assert_eq!(runtime.handle().tasks(), count);
    let wakers = gate.lock().unwrap().take().unwrap();
    wakers.into_iter().for_each(Waker::wake);
    while runtime.handle().tasks() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ended.get(), count as u64);
}
