//! The clock of all intervals: the processor's counter where it is invariant, `CLOCK_MONOTONIC` elsewhere.
//!
//! Ticks and nanoseconds are different types, because a calibration lies between them. Readings of
//! two processes of one host compare as ticks; each process calibrates for itself, so readings are
//! never exchanged as nanoseconds.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::arch::{self, read_counter};

/// Tries to read two clocks at one instant. Eight in a row are hardly all interrupted.
const PAIR_TRIES: usize = 8;

/// The same for the rate, which lasts as long as the process.
const RATE_PAIR_TRIES: usize = 16;

mod last_look;
mod pace;
mod skew;
pub mod wall_clock;

pub use last_look::LastLook;
pub use pace::Pace;
pub use skew::{Skew, skew_between};

/// A reading of the clock, or a distance between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ticks(pub u64);

impl Ticks {
    /// An instant that does not come.
    pub const NEVER: Self = Self(u64::MAX);

    /// The distance from `earlier` to this reading; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This reading, `distance` later.
    pub const fn plus(self, distance: Self) -> Self {
        Self(self.0.saturating_add(distance.0))
    }
}

/// Source of the ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The processor's invariant time-stamp counter (x86).
    TimeStampCounter,
    /// The virtual counter of the generic timer, `CNTVCT_EL0` (ARM).
    VirtualCounter,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    Monotonic,
}

/// Duration of a calibration against `CLOCK_MONOTONIC_RAW`. Two readings err by some 50 ns in all: 5 in a million. Nobody slews that
/// clock. Daemons slew `CLOCK_MONOTONIC` by up to a twelfth (`maxslewrate` of chrony), which would stay for the life of the process.
const CALIBRATION: Duration = Duration::from_millis(10);

/// Duration of the check of the rate that the kernel states.
const CHECK: Duration = Duration::from_micros(300);

/// The stated rate is believed if the check differs by less than one in so many. Readings err by 50 ns in the 300 µs. The kernel finds
/// its rate by another clock to one in 2,000 at first (`quick_pit_calibrate`), and states that rate.
const CHECK_DIVISOR: u64 = 1_000;

/// Largest deviation of a calibrated clock's rate from true time, parts in 10⁹. A stated rate deviates by the part that the check
/// accepts, and the check by 50 ns in 300 µs. The kernel's own calibration adds 500 in a million, and the oscillator 100.
pub const RATE_ERROR_MAX_PPB: u64 = 1_000_000_000 / CHECK_DIVISOR + 167_000 + 500_000 + 100_000;

/// Fraction bits of the scale from ticks to nanoseconds.
const SCALE_BITS: u32 = 32;

/// The process's clock.
#[derive(Debug)]
pub struct Clock {
    source: ClockSource,
    /// Nanoseconds per tick, with [`SCALE_BITS`] of fraction.
    scale: u64,
    domain: u32,
}

impl Clock {
    /// The clock. The first call finds its rate, which takes 0.4 ms where the kernel states it, and 10 ms elsewhere.
    pub fn get() -> &'static Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(Self::calibrate)
    }

    /// Begins to find the rate, so that a caller that goes on with something else meanwhile waits for less at the first [`Self::get`].
    pub fn prepare() {
        if arch::counter_is_invariant() {
            START.get_or_init(paired_reading);
        }
    }

    /// A reading as [`Self::now`] gives it, for callers that do not need the rate, and so need not wait for it.
    pub fn reading() -> Ticks {
        if counter_is_usable() { Ticks(read_counter()) } else { Ticks(monotonic_ns()) }
    }

    fn calibrate() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        if !counter_is_usable() {
            let domain = domain(&boot, &time_namespace());
            return Self { source: ClockSource::Monotonic, scale: 1 << SCALE_BITS, domain };
        }
        let start = *START.get_or_init(paired_reading);
        let stated = stated_scale().filter(|&stated| {
            sleep_until(start, CHECK);
            is_confirmed(stated, scale_between(start, paired_reading()))
        });
        let scale = stated.unwrap_or_else(|| {
            // Begun anew: one of the two clocks may have stood still since `prepare`.
            let start = paired_reading();
            std::thread::sleep(CALIBRATION);
            scale_between(start, paired_reading())
        });
        Self { source: arch::COUNTER, scale, domain: domain(&boot, &[arch::COUNTER as u8]) }
    }

    /// The reading now.
    #[inline]
    pub fn now(&self) -> Ticks {
        match self.source {
            ClockSource::Monotonic => Ticks(monotonic_ns()),
            _ => Ticks(read_counter()),
        }
    }

    /// The reading once every load before it has its value. A plain reading may overtake the load that is waited for, by as long as
    /// the other processor's cache line takes to come: 61 ns on an idle machine, and more beside others who use the memory.
    #[inline]
    pub fn now_after_loads(&self) -> Ticks {
        crate::arch::await_loads();
        self.now()
    }

    /// The reading once every store before it can be seen by all. A fence alone does not order it.
    pub fn now_after_stores(&self) -> Ticks {
        crate::arch::await_stores();
        self.now()
    }

    /// Its reading and another clock's at one instant, as nearly as a few tries allow.
    pub fn beside(&self, other_ns: impl Fn() -> u64) -> (Ticks, u64) {
        let (ticks, other) = paired(PAIR_TRIES, || self.now().0, other_ns);
        (Ticks(ticks), other)
    }

    /// A distance in nanoseconds.
    #[inline]
    pub fn nanos(&self, distance: Ticks) -> u64 {
        let scaled = (u128::from(distance.0) * u128::from(self.scale)) >> SCALE_BITS;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// The distance that lasts this long.
    pub fn ticks(&self, duration: Duration) -> Ticks {
        let ticks = (duration.as_nanos() << SCALE_BITS) / u128::from(self.scale.max(1));
        Ticks(u64::try_from(ticks).unwrap_or(u64::MAX))
    }

    /// The duration of a distance.
    pub fn duration(&self, distance: Ticks) -> Duration {
        Duration::from_nanos(self.nanos(distance))
    }

    /// Source of the ticks.
    pub fn source(&self) -> ClockSource {
        self.source
    }

    /// Identity of this clock: two processes with the same value read the same clock. Never 0 where the boot is known.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Nanoseconds per tick, with 32 fraction bits: another node needs them to read this one's stamps.
    pub fn scale(&self) -> u64 {
        self.scale
    }

    /// Ticks per microsecond, for people.
    pub fn ticks_per_us(&self) -> f64 {
        1000.0 * (1_u64 << SCALE_BITS) as f64 / self.scale as f64
    }

    /// The step by which readings grow, and the mean cost of one reading, nanoseconds.
    ///
    /// Some processors' counters do not count every tick: AMD's since Zen grow by what passes in 10 ns. Such a step
    /// shows in the distances between readings that follow each other at once: all are multiples of it.
    pub fn measure_itself(&self) -> (u64, f64) {
        const READINGS: usize = 20_000;
        let mut readings = vec![Ticks(0); READINGS];
        for reading in &mut readings {
            *reading = self.now();
        }
        let distances: Vec<u64> =
            readings.windows(2).map(|pair| pair[1].since(pair[0]).0).filter(|&d| d > 0).collect();
        let total = readings[READINGS - 1].since(readings[0]);
        let cost_ns = self.nanos(total) as f64 / READINGS as f64;
        let step = Ticks(step_of(&distances).round() as u64);
        (self.nanos(step).max(1), cost_ns)
    }
}

/// The step of which nearly all distances are multiples, ticks; 1 if there is none.
fn step_of(distances: &[u64]) -> f64 {
    let Some(&shortest) = distances.iter().min() else { return 1.0 };
    // Steps need not be whole ticks: the mean of the shortest distances is nearer to the truth than any of them.
    let short: Vec<u64> = distances.iter().copied().filter(|&d| d <= shortest + 1).collect();
    let step = short.iter().sum::<u64>() as f64 / short.len() as f64;
    if step < 4.0 {
        return 1.0;
    }
    // Few steps away, an error of the step itself does not yet matter.
    let near: Vec<f64> = distances.iter().map(|&d| d as f64).filter(|&d| d < 6.0 * step).collect();
    let multiples = near.iter().filter(|&&d| (d - (d / step).round() * step).abs() <= 1.5).count();
    let distinct = near.iter().any(|&d| d > 1.5 * step);
    if distinct && multiples * 100 >= near.len() * 97 { step } else { 1.0 }
}

/// The time namespace: `CLOCK_MONOTONIC` of two may differ, the processor's counter does not.
fn time_namespace() -> [u8; 8] {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/time").map_or(1, |found| found.ino()).to_le_bytes()
}

/// FNV-1a over the boot's identity and the kind of clock (a program for another processor, emulated on this host, reads
/// another counter); 0 (unknown) where there is no identity.
fn domain(boot: &str, kind: &[u8]) -> u32 {
    if boot.is_empty() {
        return 0;
    }
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    boot.bytes().chain(kind.iter().copied()).fold(0x811c_9dc5, hash).max(1)
}

/// Both clocks when the search for the rate began.
static START: OnceLock<(u64, u64)> = OnceLock::new();

/// Sleeps until so long has passed since a paired reading.
fn sleep_until((_, start_ns): (u64, u64), distance: Duration) {
    let passed = Duration::from_nanos(raw_ns().saturating_sub(start_ns));
    if let Some(rest) = distance.checked_sub(passed) {
        std::thread::sleep(rest);
    }
}

/// The counter and the kernel's clock, as near to one instant as a few tries allow.
fn paired_reading() -> (u64, u64) {
    paired(RATE_PAIR_TRIES, read_counter, raw_ns)
}

/// The own clock and another as near to one instant as so many tries allow: a thread that is interrupted between them reads two
/// instants.
fn paired(tries: usize, own: impl Fn() -> u64, other: impl Fn() -> u64) -> (u64, u64) {
    let attempt = |_| {
        let (before, other, after) = (own(), other(), own());
        let width = after.saturating_sub(before);
        (width, (before + width / 2, other))
    };
    let first = attempt(0);
    (1..tries).map(attempt).fold(first, |found, next| if next.0 < found.0 { next } else { found }).1
}

/// `CLOCK_MONOTONIC_RAW`, nanoseconds.
fn raw_ns() -> u64 {
    nanos_of(clock_gettime(ClockId::MonotonicRaw))
}

/// `CLOCK_MONOTONIC`, nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanos_of(clock_gettime(ClockId::Monotonic))
}

/// `CLOCK_BOOTTIME`, nanoseconds: as [`monotonic_ns`], but it goes on while the machine sleeps.
pub fn boottime_ns() -> u64 {
    nanos_of(clock_gettime(ClockId::Boottime))
}

/// `CLOCK_REALTIME`, nanoseconds since 1970. For dates and for the kernel's time stamps, never for intervals.
pub fn realtime_ns() -> u64 {
    nanos_of(clock_gettime(ClockId::Realtime))
}

/// A kernel's stamp older than this is not believed: the wall clock was set meanwhile.
const STAMP_AGE_MAX: Duration = Duration::from_secs(60);

/// Age of a kernel's stamp (`CLOCK_REALTIME`, nanoseconds), by a reading of that clock. None if the clock was set in between, forwards
/// by more than a minute or backwards: a stamp of the future says nothing of its age.
pub fn stamp_age(kernel_ns: u64, realtime_ns: u64) -> Option<Duration> {
    let age = Duration::from_nanos(realtime_ns.checked_sub(kernel_ns)?);
    (age <= STAMP_AGE_MAX).then_some(age)
}

/// `CLOCK_REALTIME_COARSE`: as [`realtime_ns`] at the kernel's last tick, which is at most a few milliseconds ago. A quarter of
/// its price, because no clock is read.
#[inline]
pub fn realtime_coarse_ns() -> u64 {
    nanos_of(clock_gettime(ClockId::RealtimeCoarse))
}

/// CPU time that all threads of this process have used, nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanos_of(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time that the calling thread has used, nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanos_of(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanos_of(time: rustix::time::Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Nanoseconds per tick between two paired readings.
fn scale_between(start: (u64, u64), end: (u64, u64)) -> u64 {
    let ns = u128::from(end.1.saturating_sub(start.1)) << SCALE_BITS;
    u64::try_from(ns / u128::from(end.0.saturating_sub(start.0).max(1))).unwrap_or(1 << SCALE_BITS)
}

/// The scale by the rate that kernel or firmware state.
fn stated_scale() -> Option<u64> {
    let scale = (1_000_000_000_u128 << SCALE_BITS) / u128::from(arch::counter_rate()?);
    u64::try_from(scale).ok()
}

/// Returns true if a check of the stated scale confirms it.
fn is_confirmed(stated: u64, measured: u64) -> bool {
    stated.abs_diff(measured) < stated / CHECK_DIVISOR
}

/// Returns true if the counter is constant and never stops, as the processor says, and the kernel had not given it up when first asked:
/// all readings of a process are of one clock.
fn counter_is_usable() -> bool {
    static IS_USABLE: OnceLock<bool> = OnceLock::new();
    *IS_USABLE.get_or_init(|| {
        let current =
            std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        // Under a hypervisor's clock the counter is as good if the processor says so; without /sys nothing speaks against it.
        let given_up = current.is_ok_and(|name| matches!(name.trim(), "hpet" | "acpi_pm"));
        arch::counter_is_invariant() && !given_up
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: 50 ms are as long by both clocks. Method: each reading of ours stands between two of the kernel's. A thread that loses its
    /// processor in between, however long, makes the bounds wider and not the outcome wrong.
    #[test]
    fn the_clock_agrees_with_the_kernels() {
        let clock = Clock::get();
        let reading = || [monotonic_ns(), clock.now().0, monotonic_ns()];
        let [start_low, start, start_high] = reading();
        std::thread::sleep(Duration::from_millis(50));
        let [end_low, end, end_high] = reading();
        let ours = clock.nanos(Ticks(end).since(Ticks(start)));
        let (least, most) = (end_low - start_high, end_high - start_low);
        // Permitted error of the calibration: `CHECK_DIVISOR`, and as much again where the kernel's clock is being set.
        let slack = most * 2 / CHECK_DIVISOR;
        let range = least.saturating_sub(slack)..=most + slack;
        assert!(range.contains(&ours), "{ours} ns where the kernel says {least} to {most}");
    }

    /// Goal: a stated rate that is not the counter's is not believed, so that a wrong statement costs 10 ms and no figure.
    #[test]
    fn a_wrong_statement_is_not_believed() {
        let start = paired_reading();
        std::thread::sleep(CALIBRATION);
        let measured = scale_between(start, paired_reading());
        assert!(is_confirmed(measured, measured));
        for wrong in [measured / 2, measured * 2, measured + measured / 500, measured - measured / 500] {
            assert!(!is_confirmed(wrong, measured), "{wrong} against {measured}");
        }
        if let Some(stated) = stated_scale() {
            println!("stated {stated}, measured {measured}");
        }
    }

    #[test]
    fn a_counter_that_does_not_count_every_tick_is_found_out() {
        let coarse = [24, 49, 25, 73, 24, 98, 74, 49, 24, 122, 25, 49];
        assert!((24.0..=25.0).contains(&step_of(&coarse)), "{}", step_of(&coarse));
        let fine = [24, 26, 31, 29, 27, 40, 24, 33, 36, 28, 44, 51];
        assert!((step_of(&fine) - 1.0).abs() < 1e-9);
        assert!((step_of(&[]) - 1.0).abs() < 1e-9);
        assert!((step_of(&[1, 2, 1, 3]) - 1.0).abs() < 1e-9);
    }

    /// Goal: a stamp is not believed if the wall clock was stepped by an hour since, either way.
    #[test]
    fn a_stamp_has_no_age_across_a_step() {
        const HOUR: u64 = 3_600_000_000_000;
        let (stamp, now) = (10 * HOUR, 10 * HOUR + 5_000);
        assert_eq!(stamp_age(stamp, now), Some(Duration::from_micros(5)));
        assert_eq!(stamp_age(stamp, stamp), Some(Duration::ZERO));
        assert_eq!(stamp_age(stamp, now + HOUR), None);
        assert_eq!(stamp_age(stamp, now - HOUR), None);
    }

    #[test]
    fn ticks_and_durations_convert_both_ways() {
        let clock = Clock::get();
        for ms in [0, 1, 1_000, 86_400_000] {
            let duration = Duration::from_millis(ms);
            let back = clock.duration(clock.ticks(duration));
            assert!(duration.abs_diff(back) <= Duration::from_micros(1 + ms / 1000), "{duration:?} {back:?}");
        }
        assert_eq!(Ticks(5).since(Ticks(9)), Ticks(0));
    }
}
