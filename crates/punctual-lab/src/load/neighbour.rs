//! Busy neighbours: threads that compute beside a measurement, as other programs would. Always ended.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_machine::counter::Flag;
use punctual_machine::cpu::pin_to;

/// Longer than any trial that has neighbours: whatever becomes of their owner, they end.
const LASTING_MAX: Duration = Duration::from_secs(60);

/// Numbers that a neighbour works on: more than the first cache holds, less than the second.
const NUMBERS: usize = 1 << 15;

/// A computing thread of the ordinary class on each of these processors, for as long as this value lives.
#[derive(Debug)]
pub struct Neighbours {
    over: Arc<Flag>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    /// Starts them.
    #[must_use]
    pub fn on(cpus: &[usize]) -> Self {
        let over = Arc::new(Flag::default());
        let start = |&cpu: &usize| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                // Unpinned it is in the way too.
                let _unpinned = pin_to(cpu);
                compute_until(&over);
            })
        };
        Self { threads: cpus.iter().map(start).collect(), over }
    }
}

fn compute_until(over: &Flag) {
    let start = Instant::now();
    let mut numbers = vec![1_u64; NUMBERS];
    while !over.is_raised() && start.elapsed() < LASTING_MAX {
        for place in 1..numbers.len() {
            numbers[place] = numbers[place].wrapping_mul(numbers[place - 1] | 1);
        }
        std::hint::black_box(&numbers);
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.over.raise();
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::cpu::allowed;

    /// Goal: they compute while they are there, and are gone afterwards.
    #[test]
    fn neighbours_compute_and_end() {
        let used = || punctual_machine::clock::process_cpu_ns();
        let neighbours = Neighbours::on(&allowed()[..1]);
        let before = used();
        while used() < before + 20_000_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let flag = Arc::downgrade(&neighbours.over);
        drop(neighbours);
        assert!(flag.upgrade().is_none(), "a thread is left");
    }
}
