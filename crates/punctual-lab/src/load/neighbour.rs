//! Busy neighbours: threads that compute beside a measurement, as other programs would. They end with their job, at the latest with the process.

use punctual_machine::counter::Flag;
use punctual_machine::cpu::pin_to;

use crate::scheduling::Job;

/// Numbers that a neighbour works on: more than the first cache holds, less than the second.
const NUMBERS: usize = 1 << 15;

/// A computing thread of the ordinary class on each of these processors, for as long as the job lives.
pub fn neighbours(cpus: &[usize]) -> Job<()> {
    Job::on_each("neighbour", cpus, |cpu, over| {
        // Unpinned it is in the way too.
        let _unpinned = pin_to(cpu);
        compute_until(over);
    })
}

fn compute_until(over: &Flag) {
    let mut numbers = vec![1_u64; NUMBERS];
    while !over.is_raised() {
        for place in 1..numbers.len() {
            numbers[place] = numbers[place].wrapping_mul(numbers[place - 1] | 1);
        }
        std::hint::black_box(&numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::cpu::allowed;
    use std::time::Duration;

    /// Goal: they compute while they are there. That a job has ended when it is dropped is its own test.
    #[test]
    fn neighbours_compute() {
        let used = || punctual_machine::clock::process_cpu_ns();
        let neighbours = neighbours(&allowed()[..1]);
        let before = used();
        while used() < before + 20_000_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(neighbours);
    }
}
