//! Ping-pong between two processes, each pinned to a CPU of its own: Punctual, the floor and its peers in turns.
//!
//! `cargo run --release --manifest-path peers/Cargo.toml [ROUNDS]`. Every payload is copied in and out at both ends.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::{Child, Command};

use punctual_machine::clock::Clock;

mod pair;

use pair::{KINDS, SIZES, open};

/// Messages before counting begins: both processes map, fault and warm what they need.
const WARMUP: usize = 2_000;

/// Messages of one round. Ten thousand support p99 and p99.9.
const MESSAGES: usize = 20_000;

/// The first byte of the message that ends a round.
const STOP: u8 = 0xFF;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["answer", kind, size, meeting, cpu] => answer(kind, size.parse()?, meeting, cpu.parse()?),
        [] => compare(5),
        [rounds] => compare(rounds.parse()?),
        _ => Err("usage: punctual-peers [ROUNDS]".into()),
    }
}

fn cpus() -> Outcome<(usize, usize)> {
    let allowed = punctual_machine::cpu::allowed();
    match (allowed.first(), allowed.last()) {
        (Some(first), Some(last)) if first != last => Ok((*first, *last)),
        _ => Err("two processors are needed".into()),
    }
}

/// The other process: sends back what it gets.
fn answer(kind: &str, size: usize, meeting: &str, cpu: usize) -> Outcome<()> {
    punctual_machine::signal::end_with_parent();
    punctual_machine::cpu::pin_to(cpu)?;
    let mut pair = open(kind, size, meeting, false)?;
    let mut message = vec![0; size];
    loop {
        pair.receive(&mut message)?;
        if message[0] == STOP {
            return Ok(());
        }
        pair.send(&message)?;
    }
}

/// One round: latencies in nanoseconds, as they came.
fn round(kind: &str, size: usize, cpu: usize) -> Outcome<Vec<u64>> {
    let meeting = format!("peers-{:08x}", punctual_machine::process::random() as u32);
    let mut pair = open(kind, size, &meeting, true)?;
    let other = Command::new(std::env::current_exe()?)
        .args(["answer", kind, &size.to_string(), &meeting, &cpu.to_string()])
        .spawn()?;
    let watched = std::thread::spawn(move || watch(other));
    pair.wait_for_peer()?;
    let clock = Clock::get();
    let mut message = vec![0; size];
    let mut latencies = vec![0; WARMUP + MESSAGES];
    for (number, latency) in latencies.iter_mut().enumerate() {
        message.fill((number % 200) as u8);
        let start = clock.now();
        pair.send(&message)?;
        pair.receive(&mut message)?;
        *latency = clock.nanos(clock.now().since(start));
        if message[size - 1] != (number % 200) as u8 {
            return Err(format!("{kind}: the wrong answer").into());
        }
    }
    message.fill(STOP);
    pair.send(&message)?;
    watched.join().map_err(|_| "the watcher of the other process died")?;
    Ok(latencies.split_off(WARMUP))
}

/// Ends everything if the other process fails: whoever polls for its answer would poll for ever.
fn watch(mut other: Child) {
    match other.wait() {
        Ok(status) if status.success() => {}
        failed => {
            eprintln!("the other process failed: {failed:?}");
            std::process::exit(1);
        }
    }
}

/// All kinds and sizes in turns; quantiles of the pooled rounds, and the ratio to the floor.
fn compare(rounds: usize) -> Outcome<()> {
    let (here, there) = cpus()?;
    punctual_machine::cpu::pin_to(here)?;
    for size in SIZES {
        let mut samples: Vec<Vec<u64>> = vec![Vec::new(); KINDS.len()];
        for _ in 0..rounds {
            for (kind, pool) in KINDS.iter().zip(&mut samples) {
                pool.extend(round(kind, size, there)?);
            }
        }
        println!("\nround trip of {size} B, {rounds} rounds of {MESSAGES} in turns, µs");
        println!("{:<28}{:>9}{:>9}{:>9}{:>10}{:>14}", "", "p50", "p99", "p99.9", "max", "p50 / floor");
        let floor = quantile(&mut samples[0], 0.5);
        for (kind, pool) in KINDS.iter().zip(&mut samples) {
            let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|at| quantile(pool, at));
            let ratio = p50 / floor;
            println!("{kind:<28}{p50:>9.2}{p99:>9.2}{p999:>9.2}{max:>10.1}{ratio:>14.2}");
        }
    }
    Ok(())
}

fn quantile(samples: &mut [u64], at: f64) -> f64 {
    samples.sort_unstable();
    let last = samples.len() - 1;
    samples[((last as f64) * at).round() as usize] as f64 / 1000.0
}
