//! Facts about this host and about what it lets us do. They stand beside every measurement.
//!
//! Reading never fails: a fact that cannot be had is `None`, a facility that is missing says why. Nothing
//! here identifies the host or its owner except [`HostFacts::boot_id`], which a reboot changes.
mod capability;
mod cpuid;
mod facility;
mod interrupts;
mod network;
mod parse;

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_getres};

pub use capability::Capabilities;
pub use facility::{Facility, FacilityState};
pub use interrupts::{DeviceKind, device_interrupts};
pub use network::{datagrams_incomplete, datagrams_without_room};

/// Returns true if the processor offers user interrupts: CPUID.(7,0):EDX bit 5.
pub(crate) fn has_user_interrupts() -> bool {
    cpuid::waiting().is_some_and(|(user_interrupts, _)| user_interrupts)
}

const CPU: &str = "/sys/devices/system/cpu";

/// Facts about the host and about the calling thread's rights on it.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFacts {
    /// The processor's name for itself.
    pub cpu_model: Option<String>,
    /// The CPUs that are running.
    pub cpus_online: Option<Vec<usize>>,
    /// The CPUs that the calling thread may run on.
    pub cpus_allowed: Option<Vec<usize>>,
    /// The kernel's release, for example `6.18.44`.
    pub kernel_release: Option<String>,
    /// True if the host is a virtual machine.
    pub is_virtual: Option<bool>,
    /// Its hypervisor, for example `KVM`.
    pub hypervisor: Option<String>,
    /// True if two CPUs share a core.
    pub smt_active: Option<bool>,
    /// Each frequency policy with its governor. Empty where the guest or kernel scales no frequency.
    pub governors: Vec<Governor>,
    /// CPUs kept from the scheduler (`isolcpus`); empty if none.
    pub isolated_cpus: Option<Vec<usize>>,
    /// CPUs without a periodic tick (`nohz_full`); `None` also on a kernel built without it.
    pub nohz_full: Option<Vec<usize>>,
    /// The kernel's clock source, for example `tsc`.
    pub clocksource: Option<String>,
    /// True if the TSC runs at one rate, in every sleep state.
    pub tsc_invariant: Option<bool>,
    /// Runnable and waiting threads, averaged over 1, 5 and 15 minutes.
    pub load_average: Option<[f64; 3]>,
    /// Memory of the host in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Memory that can still be had without swapping, in bytes.
    pub memory_available_bytes: Option<u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Number of bytes that the process may lock.
    pub memlock_bytes: Limit,
    /// The highest real-time priority a thread may take without CAP_SYS_NICE.
    pub realtime_priority: Limit,
    /// Time per period that all real-time threads of a CPU may run, in µs; -1 is without limit.
    pub realtime_runtime_us: Option<i64>,
    /// The period, in µs.
    pub realtime_period_us: Option<i64>,
    /// The driver that puts an idle CPU to sleep; `None` if nothing does (it polls or leaves it to the hypervisor).
    pub cpuidle_driver: Option<String>,
    /// The scheduler's tick per second.
    pub timer_hz: Option<u32>,
    /// A number the kernel draws at boot: equal for two runs exactly if no reboot lies between.
    pub boot_id: Option<String>,
    /// The rights of the calling thread.
    pub capabilities: Capabilities,
    /// Facilities that Punctual can use, each tried.
    pub facilities: Vec<Facility>,
}

/// A frequency policy and who decides in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Governor {
    /// The policy, for example `policy0`.
    pub policy: String,
    /// The governor, for example `performance`.
    pub governor: String,
}

/// A resource limit; `u64::MAX` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The limit in force.
    pub soft: u64,
    /// The limit to which the process may raise it itself.
    pub hard: u64,
}

impl HostFacts {
    /// Reads everything. Takes a few milliseconds: not for the hot path.
    pub fn read() -> Self {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let meminfo = read("/proc/meminfo").unwrap_or_default();
        let status = read("/proc/thread-self/status").unwrap_or_default();
        let flags = parse::field(&cpuinfo, "flags").or_else(|| parse::field(&cpuinfo, "Features"));
        Self {
            cpu_model: parse::field(&cpuinfo, "model name").map(str::to_owned),
            cpus_online: cpus_online(),
            cpus_allowed: parse::field(&status, "Cpus_allowed_list").and_then(parse::cpu_list),
            kernel_release: read("/proc/sys/kernel/osrelease"),
            is_virtual: flags.and_then(parse::is_virtual),
            hypervisor: cpuid::hypervisor(),
            smt_active: read("/sys/devices/system/cpu/smt/active").map(|text| text == "1"),
            governors: read_governors(Path::new("/sys/devices/system/cpu/cpufreq")),
            isolated_cpus: read_cpus("isolated"),
            nohz_full: read_cpus("nohz_full"),
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            tsc_invariant: flags.and_then(parse::tsc_invariant),
            load_average: read("/proc/loadavg").as_deref().and_then(parse::load_average),
            memory_total_bytes: parse::kibibytes(&meminfo, "MemTotal"),
            memory_available_bytes: parse::kibibytes(&meminfo, "MemAvailable"),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .as_deref()
                .and_then(parse::chosen)
                .map(str::to_owned),
            memlock_bytes: limit(Resource::Memlock),
            realtime_priority: limit(Resource::Rtprio),
            realtime_runtime_us: read_number("/proc/sys/kernel/sched_rt_runtime_us"),
            realtime_period_us: read_number("/proc/sys/kernel/sched_rt_period_us"),
            cpuidle_driver: read(&format!("{CPU}/cpuidle/current_driver")).filter(|name| name != "none"),
            timer_hz: timer_hz(),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            capabilities: capability::effective(&status),
            facilities: facility::probe(),
        }
    }

    /// The facility called `name`, one of the constants of [`Facility`].
    pub fn facility(&self, name: &str) -> Option<&Facility> {
        self.facilities.iter().find(|facility| facility.name == name)
    }
}

/// Number of ticks, summed over all CPUs since boot, for which the hypervisor ran somebody else instead of us. The difference over a
/// run is the host's own share in its latency. `None` where the kernel does not say.
pub fn steal_ticks() -> Option<u64> {
    read("/proc/stat").as_deref().and_then(parse::steal_ticks)
}

/// CPU time that processes, this one included, have used on these CPUs since boot, ticks of 10 ms.
pub fn busy_ticks(cpus: &[usize]) -> Option<u64> {
    parse::busy_ticks(&read("/proc/stat")?, cpus)
}

/// CPU time that this process, its children and theirs have used, ticks of 10 ms.
pub fn own_ticks() -> Option<u64> {
    let (_, own) = parse::process_ticks(&read("/proc/self/stat")?)?;
    let living: u64 = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| parse::process_ticks(&fs::read_to_string(entry.path().join("stat")).ok()?))
        .filter(|(parent, _)| *parent == std::process::id())
        .map(|(_, ticks)| ticks)
        .sum();
    Some(own + living)
}

/// A file's text without the newline at its end; `None` if there is none or nothing in it can be read.
fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

fn read_number(path: &str) -> Option<i64> {
    read(path)?.parse().ok()
}

/// The CPUs that run. `None` where `/sys` does not tell.
pub fn cpus_online() -> Option<Vec<usize>> {
    read_cpus("online")
}

fn read_cpus(name: &str) -> Option<Vec<usize>> {
    parse::cpu_list(&read(&format!("{CPU}/{name}"))?)
}

fn read_governors(directory: &Path) -> Vec<Governor> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut governors: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let policy = entry.file_name().into_string().ok()?;
            let governor = fs::read_to_string(entry.path().join("scaling_governor")).ok()?;
            Some(Governor { policy, governor: governor.trim_end().to_owned() })
        })
        .collect();
    governors.sort_by(|a, b| a.policy.cmp(&b.policy));
    governors
}

fn limit(resource: Resource) -> Limit {
    let limit = getrlimit(resource);
    Limit { soft: limit.current.unwrap_or(u64::MAX), hard: limit.maximum.unwrap_or(u64::MAX) }
}

/// The coarse clock advances once per tick, so its step tells the tick on every kernel.
fn timer_hz() -> Option<u32> {
    let step = clock_getres(ClockId::MonotonicCoarse);
    let ns = u64::try_from(step.tv_nsec).ok().filter(|ns| *ns > 0 && step.tv_sec == 0)?;
    u32::try_from((1_000_000_000 + ns / 2) / ns).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_read() {
        let facts = HostFacts::read();
        assert!(facts.kernel_release.is_some_and(|release| !release.is_empty()));
        assert!(facts.cpus_allowed.is_some_and(|cpus| !cpus.is_empty()));
        assert!(facts.timer_hz.is_some_and(|hz| (24..=10_000).contains(&hz)), "{:?}", facts.timer_hz);
        assert!(facts.facilities.len() >= 7);
    }

    #[test]
    fn governors_are_read_from_any_tree() {
        let directory = tempfile::tempdir().expect("temporary directory");
        for (policy, governor) in [("policy1", "powersave\n"), ("policy0", "performance\n")] {
            fs::create_dir(directory.path().join(policy)).expect("create");
            fs::write(directory.path().join(policy).join("scaling_governor"), governor).expect("write");
        }
        let governors = read_governors(directory.path());
        let names: Vec<_> = governors.iter().map(|g| (g.policy.as_str(), g.governor.as_str())).collect();
        assert_eq!(names, [("policy0", "performance"), ("policy1", "powersave")]);
        assert_eq!(read_governors(&directory.path().join("absent")), []);
    }
}
