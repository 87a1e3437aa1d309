//! What a measuring thread went through, in windows of time: tier 0, user space alone.
//!
//! A thread asks the kernel about itself between two trips, never inside one: at least every [`WINDOW_MAX`], and at once
//! after a slow one. A window so lies close around what was slow, and costs nothing that is measured.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::cpu::ThreadUsage;
use serde::{Deserialize, Serialize};

/// A window ends after so long, if nothing slow ended it before.
pub const WINDOW_MAX: Duration = Duration::from_millis(10);

/// What happened to one thread in one window. Times that do not fit stop at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Counts windows, from 1.
    pub number: u32,
    /// How long it was.
    pub wall_us: u32,
    /// CPU time of the thread.
    pub cpu_us: u32,
    /// Time that the thread was ready to run and did not (`schedstat`).
    pub wait_us: u32,
    /// How long the control thread on the same CPU was late in it.
    pub control_late_us: u32,
    /// Page faults without the disk.
    pub faults_minor: u16,
    /// Page faults with it.
    pub faults_major: u16,
    /// Times taken off the CPU.
    pub switches_involuntary: u16,
    /// Times found on another CPU.
    pub migrations: u16,
}

/// Watches the thread that made it.
#[derive(Debug)]
pub struct Witness {
    /// `/proc/thread-self/schedstat`; absent where /proc is.
    schedstat: Option<File>,
    since: Ticks,
    usage: ThreadUsage,
    wait_ns: u64,
    cpu: usize,
    number: u32,
    window: Ticks,
}

impl Witness {
    /// Begins to watch the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        let clock = Clock::get();
        let mut witness = Self {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            since: clock.now(),
            usage: ThreadUsage::now(),
            wait_ns: 0,
            cpu: punctual_machine::cpu::current(),
            number: 0,
            window: clock.ticks(WINDOW_MAX),
        };
        witness.wait_ns = witness.read_wait_ns();
        witness
    }

    /// Whether run-queue time is known here.
    #[must_use]
    pub fn sees_waits(&self) -> bool {
        self.schedstat.is_some()
    }

    /// When the window in the making began.
    #[must_use]
    pub fn since(&self) -> Ticks {
        self.since
    }

    /// Whether the window has lasted long enough.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Ticks) -> bool {
        now.since(self.since) >= self.window
    }

    /// Ends the window, and begins the next.
    pub fn close(&mut self, control_late_us: u32) -> Evidence {
        let clock = Clock::get();
        let (now, usage, wait_ns) = (clock.now(), ThreadUsage::now(), self.read_wait_ns());
        let cpu = punctual_machine::cpu::current();
        let passed = usage.since(self.usage);
        self.number = self.number.wrapping_add(1);
        let evidence = Evidence {
            number: self.number,
            wall_us: micros(clock.nanos(now.since(self.since))),
            cpu_us: micros(passed.cpu_ns),
            wait_us: micros(wait_ns.saturating_sub(self.wait_ns)),
            control_late_us,
            faults_minor: short(passed.faults_minor),
            faults_major: short(passed.faults_major),
            switches_involuntary: short(passed.switches_involuntary),
            migrations: u16::from(cpu != self.cpu),
        };
        (self.since, self.usage, self.wait_ns, self.cpu) = (now, usage, wait_ns, cpu);
        evidence
    }

    /// Second number of `schedstat`: time on the run queue.
    fn read_wait_ns(&self) -> u64 {
        let mut text = [0; 96];
        let size = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        parse_wait_ns(&text[..size]).unwrap_or(self.wait_ns)
    }
}

fn parse_wait_ns(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1000).unwrap_or(u32::MAX)
}

fn short(count: u64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_the_thread_did() {
        let mut witness = Witness::of_this_thread();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_millis(20));
        let now = Clock::get().now();
        assert!(witness.is_due(now));
        let evidence = witness.close(3);
        assert_eq!((evidence.number, evidence.control_late_us), (1, 3));
        assert!(evidence.wall_us >= 40_000, "{evidence:?}");
        assert!(evidence.cpu_us > 0 && evidence.cpu_us < evidence.wall_us, "{evidence:?}");
        assert_eq!(witness.close(0).number, 2);
    }

    #[test]
    fn schedstat_is_read_by_its_second_number() {
        assert_eq!(parse_wait_ns(b"123 456 789\n"), Some(456));
        for wrong in [&b""[..], b"1", b"1 x", b"\xff \xff"] {
            assert_eq!(parse_wait_ns(wrong), None);
        }
    }
}
