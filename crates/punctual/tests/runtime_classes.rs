//! Promises to classes, on real threads: floors over any second, shedding, lanes, stealing; and wakes that allocate nothing.

mod common;

use std::future::poll_fn;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use common::watchdog;
use punctual::Nanos;
use punctual::runtime::{
    ClassOptions, Join, Lane, Request, Runtime, RuntimeOptions, TaskOptions, Urgency, blocking, is_shed,
    request, take_over, yield_now,
};
use punctual_machine::allocation::{Counting, count};
use punctual_machine::calls;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::allowed;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Longer than any test takes on a busy machine.
const LIMIT_S: u64 = 120;

fn class(class: u8) -> TaskOptions {
    TaskOptions::of_class(class)
}

/// A task that keeps its worker until the sender is dropped.
struct Held {
    go: mpsc::Sender<()>,
    task: Join<()>,
    /// The thread of its worker.
    thread: String,
}

fn thread_name() -> String {
    std::thread::current().name().unwrap().to_owned()
}

fn hold(runtime: &Runtime, of: u8) -> Held {
    let (go, gate) = mpsc::channel::<()>();
    let (held, is_held) = mpsc::channel();
    let holds = async move {
        held.send(thread_name()).unwrap();
        let _gone = gate.recv();
    };
    let task = runtime.spawn(class(of), holds).unwrap();
    Held { go, task, thread: is_held.recv().unwrap() }
}

impl Held {
    fn end(self, runtime: &Runtime) {
        drop(self.go);
        runtime.block_on(self.task).unwrap();
    }
}

/// True if two threads can run at a time, without which no worker takes another's tasks.
fn has_two_processors() -> bool {
    let has = allowed().len() > 1;
    if !has {
        punctual_machine::skipped!("one processor, so no worker takes another's tasks");
    }
    has
}

/// Goal: a task that can no longer be served in time is told so where its class sheds, and nowhere else.
#[test]
fn a_task_that_comes_too_late_is_shed() {
    let _alive = watchdog(LIMIT_S);
    let mut options = RuntimeOptions::default();
    options.classes[1].sheds = true;
    let runtime = Runtime::start(&options).unwrap();
    let held = hold(&runtime, 0);
    let ask = |class: u8, within| {
        let request = TaskOptions::of_class(class).within(within);
        runtime.spawn(request, async { is_shed() }).unwrap()
    };
    let (late, early) = (Duration::ZERO, Duration::from_secs(3_600));
    let asked = [ask(1, late), ask(1, early), ask(2, late)];
    held.end(&runtime);
    assert_eq!(asked.map(|task| runtime.block_on(task).unwrap()), [true, false, false]);
    assert!(!is_shed(), "outside of tasks");
    let classes = runtime.handle().metrics().classes;
    assert_eq!([0, 1, 2].map(|class| classes[class].shed), [0, 1, 0]);
}

/// Goal: a task that is handed several requests is judged by the one that it serves.
#[test]
fn a_task_takes_over_one_request_after_the_other() {
    let _alive = watchdog(LIMIT_S);
    let mut options = RuntimeOptions::default();
    options.classes[1].sheds = true;
    let runtime = Runtime::start(&options).unwrap();
    let [now, never] = [Nanos(0), Nanos::NEVER];
    let requests = [never, now, never].map(|deadline| Request { arrived: Nanos(0), deadline });
    let serves = async move {
        let mut shed = Vec::new();
        for next in requests {
            take_over(next);
            yield_now().await;
            assert_eq!(request(), Some(next));
            shed.push(is_shed());
        }
        shed
    };
    let serves = runtime.spawn(class(1), serves).unwrap();
    assert_eq!(runtime.block_on(serves).unwrap(), [false, true, false]);
    take_over(requests[0]);
    assert_eq!(request(), None, "outside of tasks");
}

/// A turn: when it ended, and how long it was.
type Turn = (Duration, Duration);

/// Turns of tasks that always have work: two of the important class, one of the last. Where that blocks at first, another one of its
/// class comes when a half of that time is over.
fn turns_of(runtime: &Runtime, last: u8, blocked: Duration, during: Duration) -> [Vec<Turn>; 2] {
    let began = Instant::now();
    let worker = |of: u8, blocked: Duration| {
        let works = async move {
            let mut turns = Vec::new();
            if !blocked.is_zero() {
                blocking(|| std::thread::sleep(blocked));
                yield_now().await;
            }
            while began.elapsed() < during {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(400) {}
                turns.push((began.elapsed(), begin.elapsed()));
                yield_now().await;
            }
            turns
        };
        runtime.spawn(class(of), works).unwrap()
    };
    let held = hold(runtime, 0);
    let mut tasks = vec![worker(0, Duration::ZERO), worker(0, Duration::ZERO), worker(last, blocked)];
    held.end(runtime);
    if !blocked.is_zero() {
        std::thread::sleep(blocked / 2);
        tasks.push(worker(last, Duration::ZERO));
    }
    let turns: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    [turns[..2].concat(), turns[2..].concat()]
}

/// Goal: in every second a class that always has work gets its floor and hardly more, while class 0 could use all of it.
#[test]
fn the_floor_is_met_in_any_second() {
    check_floor(Duration::ZERO);
}

/// Goal: the same while and after a task of the class blocks: blocked time is neither charged nor owed.
#[test]
fn blocked_time_changes_no_floor() {
    check_floor(Duration::from_millis(600));
}

/// Method: two things are not exact. One is a turn that is cut by the window, or was longer before it than was due; the other is time
/// outside of turns.
fn check_floor(blocked: Duration) {
    let _alive = watchdog(LIMIT_S);
    const FLOOR: u32 = 10;
    let mut classes = vec![ClassOptions::default(); 3];
    classes[2].floor_permille = 1_000 / FLOOR;
    let runtime = Runtime::start(&RuntimeOptions { classes, ..RuntimeOptions::default() }).unwrap();
    let second = Duration::from_secs(1);
    let comes = blocked / 2;
    let [first, last] = turns_of(&runtime, 2, blocked, comes + 2 * second);
    let mut checked = 0;
    for begin in (0..900).step_by(10).map(|ms| comes + Duration::from_millis(ms)) {
        let within = |turns: &[Turn]| {
            let until = turns.iter().filter(|turn| turn.0 < begin + second);
            let ran = until.clone().filter(|turn| turn.0 >= begin).map(|turn| turn.1).sum::<Duration>();
            (ran, until.map(|turn| turn.1).max().unwrap_or_default())
        };
        let ((others, others_longest), (got, longest)) = (within(&first), within(&last));
        let outside = second.saturating_sub(others + got);
        let inexact = longest + others_longest / FLOOR + outside;
        let floor = second / FLOOR;
        if inexact > floor / 2 {
            continue;
        }
        checked += 1;
        // It may have come a little later.
        let is_early = begin < comes + second / 10;
        let is_met = is_early || got + inexact >= floor;
        assert!(is_met && got <= floor + inexact, "from {begin:?}: {got:?} ± {inexact:?}");
    }
    if checked == 0 {
        punctual_machine::skipped!("others took much of every second");
    }
}

/// Goal: while a worker is held, another one serves all that stands in its line, and counts what it took.
#[test]
fn a_worker_without_work_takes_from_others() {
    let _alive = watchdog(LIMIT_S);
    if !has_two_processors() {
        return;
    }
    const TASKS: u64 = 10;
    let runtime = Runtime::start(&RuntimeOptions { workers: 2, ..RuntimeOptions::default() }).unwrap();
    let (again, before) = (runtime.handle().clone(), runtime.handle().metrics());
    // Spawned by a task, they stand in its worker's line.
    let holds = async move {
        let (said, heard) = mpsc::channel();
        for number in 0..TASKS {
            let said = said.clone();
            let says = async move { said.send(thread_name()).unwrap() };
            drop(again.spawn(class((number % 8) as u8), says).unwrap());
        }
        drop(said);
        (thread_name(), heard.iter().collect::<Vec<_>>())
    };
    let (own, others) = runtime.block_on(runtime.spawn(class(0), holds).unwrap()).unwrap();
    assert_eq!(others.len() as u64, TASKS);
    assert!(others.iter().all(|other| *other != own), "{own:?} was held: {others:?}");
    let spent = runtime.handle().metrics().since(&before);
    let stolen: u64 = spent.workers.iter().map(|worker| worker.stolen).sum();
    assert!(stolen >= TASKS, "{spent:?}");
}

/// Goal: a lane that is held holds nobody: the worker of all classes takes its tasks, and those of others never go to the lane.
#[test]
fn a_held_lane_holds_nobody() {
    let _alive = watchdog(LIMIT_S);
    if !has_two_processors() {
        return;
    }
    let lane = Lane { workers: 1, last_class: 0, urgency: Urgency::Inherited };
    let runtime = Runtime::start(&RuntimeOptions { lanes: vec![lane], ..RuntimeOptions::default() }).unwrap();
    let thread = |of| runtime.block_on(runtime.spawn(class(of), async { thread_name() }).unwrap()).unwrap();
    // The other worker may take the task that is to hold the lane.
    let held = loop {
        let held = hold(&runtime, 0);
        if held.thread == "worker-0" {
            break held;
        }
        held.end(&runtime);
    };
    assert_eq!([0, 1, 7].map(thread), ["worker-1"; 3]);
    held.end(&runtime);
    // The lane finds the other's task again and again, and must not take it.
    let held = hold(&runtime, 1);
    let waits = runtime.spawn(class(1), async { thread_name() }).unwrap();
    assert!((0..100).all(|_| thread(0) == "worker-0"));
    assert!(!waits.is_finished(), "the lane serves class 0 alone");
    held.end(&runtime);
    assert_eq!(runtime.block_on(waits).unwrap(), "worker-1");
}

/// The nice value of the calling thread, as the kernel says it.
fn own_nice() -> i32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // Behind the name, which may have spaces: field 3 comes first, field 19 is the nice value.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(16).unwrap().parse().unwrap()
}

/// Goal: workers are as urgent as was asked, and a lane beside nicer ones stays as urgent as the thread that started it.
#[test]
fn workers_are_as_urgent_as_asked() {
    let _alive = watchdog(LIMIT_S);
    let own = own_nice();
    let lane = Lane { workers: 1, last_class: 0, urgency: Urgency::Inherited };
    let asked = (own + 7).min(19);
    let options =
        RuntimeOptions { urgency: Urgency::Nice(asked), lanes: vec![lane], ..RuntimeOptions::default() };
    let runtime = Runtime::start(&options).unwrap();
    let seen = |of| {
        let looks = async { (thread_name(), own_nice()) };
        runtime.block_on(runtime.spawn(class(of), looks).unwrap()).unwrap()
    };
    assert_eq!(seen(7), ("worker-1".to_owned(), asked));
    // Either may serve class 0.
    let expected = |thread: &str| if thread == "worker-0" { own } else { asked };
    let (thread, nice) = seen(0);
    assert_eq!(nice, expected(&thread), "{thread}");
}

/// Goal: a thread that wakes a task of a worker that is awake makes no call of the kernel, and one call where it sleeps. Method:
/// another task keeps the worker awake, from poll to poll, until it is told to end.
#[test]
fn a_wake_of_an_awake_worker_is_no_call() {
    const WAKES: u64 = 2_000;
    let _alive = watchdog(LIMIT_S);
    if calls::of_this_thread().is_none() {
        return punctual_machine::skipped!("calls are counted in debug builds only");
    }
    let runtime = Runtime::start(&RuntimeOptions::default()).unwrap();
    let (ends, polled) = (Arc::new(Flag::default()), Arc::new(Counter::default()));
    let (said, heard) = mpsc::channel();
    let theirs = Arc::clone(&polled);
    let mut said = Some(said);
    let waits = poll_fn(move |cx| {
        theirs.add_alone(1);
        said.take().into_iter().for_each(|said| said.send(cx.waker().clone()).unwrap());
        Poll::<()>::Pending
    });
    drop(runtime.spawn(class(0), waits).unwrap());
    let waker = heard.recv().unwrap();
    let theirs = Arc::clone(&ends);
    let stays_awake = async move {
        while !theirs.is_raised() {
            yield_now().await;
        }
    };
    let stays_awake = runtime.spawn(class(7), stays_awake).unwrap();
    let wake = |count: u64| {
        let before = calls::of_this_thread().unwrap();
        for _ in 0..count {
            let seen = polled.get();
            waker.wake_by_ref();
            while polled.get() == seen {
                std::thread::yield_now();
            }
        }
        calls::of_this_thread().unwrap() - before
    };
    // The worker may still sleep when the first comes.
    wake(1);
    assert_eq!(wake(WAKES), 0, "an awake worker was rung for");
    ends.raise();
    runtime.block_on(stays_awake).unwrap();
    let parks = || runtime.handle().metrics().workers[0].parks;
    let mut rung = 0;
    while rung == 0 {
        // It spins first, for as long as it pays.
        let before = parks();
        while parks() == before {
            std::thread::sleep(Duration::from_millis(1));
            waker.wake_by_ref();
        }
        std::thread::sleep(Duration::from_millis(5));
        rung = wake(1);
    }
    assert_eq!(rung, 1, "one call wakes");
}

/// Goal: the worker allocates nothing for wakes, however many tasks they put into its line at once.
#[test]
fn many_wakes_at_once_allocate_nothing() {
    const TASKS: u64 = 500;
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&RuntimeOptions::default()).unwrap();
    let polled = Arc::new(Counter::default());
    let ((said, heard), mut wakers) = (mpsc::channel(), Vec::new());
    for _ in 0..TASKS {
        let (polled, said) = (Arc::clone(&polled), said.clone());
        let waits = poll_fn(move |cx| {
            polled.add_alone(1);
            if polled.get() <= TASKS {
                said.send(cx.waker().clone()).unwrap();
            }
            Poll::<()>::Pending
        });
        drop(runtime.spawn(class(3), waits).unwrap());
        // One after the other: few are in line at a time.
        while heard.try_recv().map(|waker| wakers.push(waker)).is_err() {
            std::thread::yield_now();
        }
    }
    let on_worker = || runtime.block_on(runtime.spawn(class(0), async { count() }).unwrap()).unwrap();
    on_worker();
    let before = on_worker();
    let [is_held, go] = [(); 2].map(|()| Arc::new(Flag::default()));
    let (held, goes) = (Arc::clone(&is_held), Arc::clone(&go));
    let hold = async move {
        held.raise();
        while !goes.is_raised() {
            std::thread::yield_now();
        }
    };
    let hold = runtime.spawn(class(0), hold).unwrap();
    while !is_held.is_raised() {
        std::thread::yield_now();
    }
    wakers.iter().for_each(Waker::wake_by_ref);
    go.raise();
    runtime.block_on(hold).unwrap();
    while polled.get() < 2 * TASKS {
        std::thread::yield_now();
    }
    assert_eq!(on_worker() - before, 0);
}

/// Goal: no wake allocates, neither at who wakes nor at the worker: by its own thread, by another, awake or asleep.
#[test]
fn a_wake_allocates_nothing() {
    let _alive = watchdog(LIMIT_S);
    let runtime = Runtime::start(&RuntimeOptions::default()).unwrap();
    let (said, heard) = mpsc::channel();
    let polled = Arc::new(Counter::default());
    let theirs = Arc::clone(&polled);
    // Woken by another thread it wakes itself once more.
    let waits = async move {
        loop {
            let mut is_woken = false;
            poll_fn(|cx| {
                theirs.add_alone(1);
                said.send(cx.waker().clone()).unwrap_or_default();
                if std::mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            yield_now().await;
        }
    };
    let waits = runtime.spawn(class(3), waits).unwrap();
    let waker = heard.recv().unwrap();
    drop(heard);
    let on_worker = || runtime.block_on(runtime.spawn(class(0), async { count() }).unwrap()).unwrap();
    let wake = |rounds: u32| {
        for round in 0..rounds {
            let seen = polled.get();
            waker.wake_by_ref();
            // Now and then the worker has polled, and sleeps, before the next one.
            if round % 8 == 0 {
                while polled.get() == seen {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    };
    // The first use of each line makes room.
    wake(64);
    on_worker();
    let worker = on_worker();
    let waking = count();
    wake(800);
    assert_eq!(count() - waking, 0, "the waking thread");
    assert_eq!(on_worker() - worker, 0, "the worker");
    drop(runtime);
    assert!(waits.is_finished());
}
