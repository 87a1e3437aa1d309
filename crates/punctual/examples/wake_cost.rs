//! From a wake to the first poll, beside a thread that sleeps on a bare futex. Run:
//! `cargo run --release -p punctual --example wake_cost`
//!
//! One thread wakes from a CPU of its own; on another CPU a thread sleeps on a futex, or a worker of the runtime has one task. Every
//! opening has new threads, and measures both in turn. Prints the median of each, and its ratio to the futex: the median of the
//! openings, and the least and largest; and how many of a hundred wakes ended a sleep of the worker.
use std::future::poll_fn;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use punctual::runtime::{Runtime, RuntimeOptions, TaskOptions};
use punctual::{Clock, Ticks};
use punctual_machine::bare_futex::BareFutex;
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::{allowed, pin_to};

const WAKES: u64 = 2_000;
const OPENINGS: usize = 11;
/// From when one is awake until it is woken again: long enough to sleep, and too short for a worker, which spins first.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_micros(2)];
/// A sleep on the bare futex, after which it looks again.
const SLEEP: Duration = Duration::from_secs(1);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// State shared by the waking and the woken thread.
#[derive(Default)]
struct Shared {
    /// Wakes so far.
    woken: Counter,
    /// Wakes that were seen, and the instant of the last.
    seen: Counter,
    at: Counter,
    futex: BareFutex,
    end: Flag,
}

impl Shared {
    /// The woken thread looks. Returns true if there was a wake.
    fn look(&self, clock: &Clock) -> bool {
        let now = clock.now();
        let woken = self.woken.get_published();
        let is_new = woken > self.seen.get();
        if is_new {
            self.at.set(now.0);
            self.seen.publish(woken);
        }
        is_new
    }

    /// Wakes again and again. The median, nanoseconds.
    fn measure(&self, pause: Duration, wake: impl Fn()) -> f64 {
        let clock = Clock::get();
        let mut all = Vec::new();
        for number in 1..=WAKES {
            let due = clock.now().plus(clock.ticks(pause));
            while clock.now() < due {}
            let began = clock.now();
            self.woken.publish(number);
            wake();
            while self.seen.get_published() < number {
                std::hint::spin_loop();
            }
            if number > WAKES / 10 {
                all.push(clock.nanos(Ticks(self.at.get()).since(began)) as f64);
            }
        }
        median(&mut all)
    }
}

fn of_futex(pause: Duration, cpu: usize) -> f64 {
    let shared = Arc::new(Shared::default());
    let theirs = Arc::clone(&shared);
    let sleeper = std::thread::spawn(move || {
        let (_unpinned_is_slower, clock) = (pin_to(cpu), Clock::get());
        while !theirs.end.is_raised() {
            let seen = theirs.futex.seen();
            if !theirs.look(clock) {
                theirs.futex.sleep(seen, SLEEP);
            }
        }
    });
    let ns = shared.measure(pause, || shared.futex.wake());
    shared.end.raise();
    shared.futex.wake();
    sleeper.join().expect("no panic");
    ns
}

/// And how many of a hundred wakes ended a sleep.
fn of_runtime(pause: Duration, cpu: usize, own: usize) -> Outcome<(f64, f64)> {
    // A runtime's threads may run where the thread that starts it may.
    let _unpinned_is_slower = pin_to(cpu);
    let runtime = Runtime::start(&RuntimeOptions::default())?;
    let _unpinned_is_slower = pin_to(own);
    let shared = Arc::new(Shared::default());
    let (theirs, (said, heard)) = (Arc::clone(&shared), mpsc::channel::<Waker>());
    let mut said = Some(said);
    let waits = poll_fn(move |cx| {
        theirs.look(Clock::get());
        said.take().into_iter().for_each(|said| said.send(cx.waker().clone()).unwrap_or_default());
        if theirs.end.is_raised() { Poll::Ready(()) } else { Poll::Pending }
    });
    let waits = runtime.spawn(TaskOptions::of_class(0), waits)?;
    let waker = heard.recv()?;
    let parks = || runtime.handle().metrics().workers[0].parks;
    let before = parks();
    let ns = shared.measure(pause, || waker.wake_by_ref());
    let slept = (parks() - before) as f64 * 100.0 / WAKES as f64;
    shared.end.raise();
    waker.wake();
    runtime.block_on(waits)?;
    Ok((ns, slept))
}

fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn main() -> Outcome<()> {
    let cpus = allowed();
    let (&own, &other) = cpus.first().zip(cpus.get(1)).ok_or("two CPUs are needed")?;
    for pause in PAUSES {
        let (mut futex, mut runtime, mut ratios, mut slept) = (vec![], vec![], vec![], vec![]);
        for _ in 0..OPENINGS {
            let _unpinned_is_slower = pin_to(own);
            let bare = of_futex(pause, other);
            let (polled, parked) = of_runtime(pause, other, own)?;
            futex.push(bare);
            runtime.push(polled);
            ratios.push(polled / bare.max(1.0));
            slept.push(parked);
        }
        let (bare, polled) = (median(&mut futex), median(&mut runtime));
        let (ratio, slept) = (median(&mut ratios), median(&mut slept));
        println!("woken {} µs after the last time:", pause.as_micros());
        println!("bare futex        {bare:6.0} ns");
        println!(
            "first poll        {polled:6.0} ns; {ratio:.2} ({:.2} to {:.2}) × bare futex; {slept:.0} % of wakes ended a sleep",
            ratios[0],
            ratios[OPENINGS - 1]
        );
    }
    println!("{OPENINGS} openings of {WAKES} wakes");
    Ok(())
}
