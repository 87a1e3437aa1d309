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
    use std::fs::{read_dir, read_to_string};
    use std::time::{Duration, Instant};

    use super::*;
    use punctual_machine::cpu::allowed;

    /// User time of the threads of this process that are named so, hundredths of a second.
    fn used_by(name: &str) -> u64 {
        let threads = read_dir("/proc/self/task").unwrap().flatten();
        let of_name = threads.filter(|thread| {
            read_to_string(thread.path().join("comm")).is_ok_and(|own| own.trim_end().starts_with(name))
        });
        // The twelfth field behind the name in brackets (proc(5)) may be missing of one that has just ended.
        let user = |stat: String| stat.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse::<u64>().ok();
        of_name.filter_map(|thread| user(read_to_string(thread.path().join("stat")).ok()?)).sum()
    }

    /// Goal: they compute while they are there. A test of its own shows that a job has ended when it is dropped.
    #[test]
    fn neighbours_compute() {
        let (neighbours, begun) = (neighbours(&allowed()[..1]), Instant::now());
        while used_by("neighbour") < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody computes");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(neighbours);
    }
}
