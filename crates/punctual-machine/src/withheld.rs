//! CPU time that was withheld from a thread although it wanted it: by the quota of a control group, by its freezer, by the
//! hypervisor.
//!
//! All are the kernel's own counters, read through descriptors that stay open. A quota is read at the end of every window,
//! where there is one; limits are looked for anew after something slow. The freezer's counter is read after a long window only,
//! for nobody ends a short one while it is frozen. The hypervisor's share is read seldom: its file is that of the whole machine.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Quotas that a thread's control groups have, its own and those above.
#[derive(Debug, Default)]
pub struct Quotas {
    stats: Vec<File>,
    /// Groups that have none yet.
    unlimited: Vec<PathBuf>,
}

/// Quotas whose times are told apart: few of nested groups have one. Those beyond share the last place.
const TOLD_APART: usize = 8;

/// Throttling by quotas so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods in which a quota ran out.
    pub times: u64,
    /// Time until the next period, over all CPUs of the group, of each quota.
    by_quota_ns: [u64; TOLD_APART],
}

/// Time that quotas took, in bounds, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottledTime {
    /// That of the quota that took most: those of nested groups may have run out together.
    pub least_ns: u64,
    /// That of all.
    pub most_ns: u64,
}

impl Throttled {
    /// Time since an earlier look at the same quotas.
    pub fn since(&self, before: &Self) -> ThrottledTime {
        let pairs = self.by_quota_ns.iter().zip(before.by_quota_ns);
        pairs.fold(ThrottledTime::default(), |time, (now, before)| {
            let ns = now.saturating_sub(before);
            ThrottledTime { least_ns: time.least_ns.max(ns), most_ns: time.most_ns.saturating_add(ns) }
        })
    }
}

impl Quotas {
    /// Those of the calling thread now.
    pub fn of_this_thread() -> Self {
        Self::of(&own_groups())
    }

    fn of(groups: &[Group]) -> Self {
        let unlimited = groups.iter().flat_map(Group::levels).map(Path::to_owned).collect();
        let mut quotas = Self { stats: Vec::new(), unlimited };
        quotas.look_anew();
        quotas
    }

    /// Looks for limits that were set since, above the thread's group too; true if there are more.
    pub fn look_anew(&mut self) -> bool {
        let (mut found, before) = (Vec::new(), self.stats.len());
        self.unlimited.retain(|level| {
            // One that cannot be opened now is looked for again.
            let opened = limit(level).and_then(|_| File::open(level.join("cpu.stat")).ok());
            let stays = opened.is_none();
            found.extend(opened);
            stays
        });
        self.stats.append(&mut found);
        self.stats.len() > before
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.stats.is_empty()
    }

    /// Throttling by all of them until now.
    pub fn now(&self) -> Throttled {
        let mut all = Throttled::default();
        for (place, file) in self.stats.iter().enumerate() {
            let mut text = [0; 1024];
            let size = file.read_at(&mut text, 0).unwrap_or(0);
            let (times, ns) = parse_throttled(std::str::from_utf8(&text[..size]).unwrap_or_default());
            all.times += times;
            all.by_quota_ns[place.min(TOLD_APART - 1)] += ns;
        }
        all
    }
}

/// Times, and nanoseconds. Version 2 counts microseconds, version 1 nanoseconds under another name.
fn parse_throttled(text: &str) -> (u64, u64) {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let ns = value("throttled_usec").map(|us| us.saturating_mul(1000)).or_else(|| value("throttled_time"));
    (value("nr_throttled").unwrap_or(0), ns.unwrap_or(0))
}

/// Time for which a thread's control group was frozen, of version 2, with all above it. Linux tells it from 6.18 on.
#[derive(Debug, Default)]
pub struct Freezer {
    stat: Option<File>,
}

impl Freezer {
    /// The freezer of the calling thread now.
    pub fn of_this_thread() -> Self {
        Self::of(&own_groups())
    }

    fn of(groups: &[Group]) -> Self {
        let own = groups.iter().find(|group| group.is_second);
        Self { stat: own.and_then(|group| File::open(group.path.join("cgroup.stat.local")).ok()) }
    }

    /// Time until now, nanoseconds; `None` where the kernel does not tell.
    pub fn frozen_ns(&self) -> Option<u64> {
        let mut text = [0; 256];
        let size = self.stat.as_ref()?.read_at(&mut text, 0).ok()?;
        parse_frozen(std::str::from_utf8(&text[..size]).ok()?)
    }
}

fn parse_frozen(text: &str) -> Option<u64> {
    let us: u64 = text.lines().find_map(|line| line.strip_prefix("frozen_usec "))?.trim().parse().ok()?;
    Some(us.saturating_mul(1000))
}

/// Longest part of `/proc/PID/cgroup` that is compared: a line for each hierarchy, of which version 1 has a dozen.
const NAMES_SIZE_MAX: usize = 4096;

/// All that withholds CPU time from a thread or a process by its control groups, also from the groups that it is moved to.
#[derive(Debug)]
pub struct GroupLimits {
    /// Its name in `/proc`.
    process: String,
    /// The file with the names of its groups, and what they were. It stays closed: a look at it is rare, a descriptor may be, too.
    names: PathBuf,
    known: Vec<u8>,
    /// Their quotas.
    pub quotas: Quotas,
    /// Their freezer.
    pub freezer: Freezer,
}

impl GroupLimits {
    /// Those of the calling thread, which alone may follow them.
    pub fn of_this_thread() -> Self {
        Self::of("thread-self".to_owned())
    }

    /// Those of another process.
    pub fn of_process(process: u32) -> Self {
        Self::of(process.to_string())
    }

    fn of(process: String) -> Self {
        let names = format!("/proc/{process}/cgroup").into();
        let mut limits = Self {
            process,
            names,
            known: Vec::new(),
            quotas: Quotas::default(),
            freezer: Freezer::default(),
        };
        limits.follow();
        limits
    }

    /// Looks whether it was moved, and follows it; true if it was. The counters are others then, and tell nothing of the time before.
    pub fn follow(&mut self) -> bool {
        let mut now = [0; NAMES_SIZE_MAX];
        let names = File::open(&self.names);
        let size = names.and_then(|names| names.read_at(&mut now, 0)).unwrap_or(0);
        // A process that has ended has none.
        if size == 0 || self.known == now[..size] {
            return false;
        }
        self.known = now[..size].to_vec();
        let groups = groups_of(&self.process);
        (self.quotas, self.freezer) = (Quotas::of(&groups), Freezer::of(&groups));
        true
    }

    /// As if it had been moved.
    #[cfg(test)]
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

/// A control group that distributes CPU time: where its hierarchy is mounted, and its directory there.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    mount: PathBuf,
    path: PathBuf,
    /// Of version 2.
    is_second: bool,
}

impl Group {
    /// It and all above it, up to the mount.
    fn levels(&self) -> impl Iterator<Item = &Path> {
        self.path.ancestors().take_while(|level| level.starts_with(&self.mount))
    }
}

/// The groups that count CPU time, of `/proc/PID/cgroup` and `/proc/PID/mountinfo`.
fn groups(cgroup: &str, mounts: &str) -> Vec<Group> {
    let found = cgroup.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, inside) = (fields.next()?, fields.next()?, fields.next()?);
        let is_second = controllers.is_empty();
        if !is_second && !controllers.split(',').any(|one| one == "cpu") {
            return None;
        }
        let (root, mount) = mounts.lines().find_map(|line| mount_of(line, is_second))?;
        // Seen from inside of a namespace, the mount's own root is left out of the path.
        let below = Path::new(inside).strip_prefix(&root).unwrap_or(Path::new(inside));
        let path = mount.join(below.strip_prefix("/").unwrap_or(below));
        Some(Group { mount, path, is_second })
    });
    found.collect()
}

/// Root and place of a mount of the hierarchy with the CPU's controller: of version 2, or of version 1.
fn mount_of(line: &str, is_second: bool) -> Option<(PathBuf, PathBuf)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split_ascii_whitespace();
    let (name, options) = (kind.next()?, kind.nth(1).unwrap_or(""));
    let fits = match is_second {
        true => name == "cgroup2",
        false => name == "cgroup" && options.split(',').any(|option| option == "cpu"),
    };
    let mut place = place.split_ascii_whitespace();
    let (root, mount) = (place.nth(3)?, place.next()?);
    fits.then(|| (root.into(), mount.into()))
}

/// The files of the quotas that the calling thread's control groups have, its own and those above, and what they say.
pub fn limits() -> Vec<(PathBuf, String)> {
    own_groups().iter().flat_map(Group::levels).filter_map(limit).collect()
}

/// Those of the calling thread.
fn own_groups() -> Vec<Group> {
    groups_of("thread-self")
}

/// Those of a process, by its name in `/proc`, as they are mounted here.
fn groups_of(process: &str) -> Vec<Group> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    groups(&read(&format!("/proc/{process}/cgroup")), &read("/proc/self/mountinfo"))
}

/// The file of a group's quota, if it has one, and what it says.
fn limit(level: &Path) -> Option<(PathBuf, String)> {
    let read = |(name, none): (&str, &str)| {
        let path = level.join(name);
        let text = std::fs::read_to_string(&path).ok()?.trim().to_owned();
        (!text.starts_with(none)).then_some((path, text))
    };
    [("cpu.max", "max"), ("cpu.cfs_quota_us", "-")].into_iter().find_map(read)
}

/// A kernel tick of user space, nanoseconds: the step in which the hypervisor's share is told.
const TICK_NS: u64 = 10_000_000;

/// The lines of all CPUs of a machine with as many as Linux can have, 8,192, take less.
const STAT_SIZE_MAX: usize = 2 << 20;

/// Time that the hypervisor took away.
#[derive(Debug)]
pub struct Steal {
    stat: Option<File>,
    text: Vec<u8>,
}

impl Default for Steal {
    fn default() -> Self {
        Self { stat: File::open("/proc/stat").ok(), text: vec![0; 4096] }
    }
}

impl Steal {
    /// From one CPU since it started, nanoseconds; `None` where the kernel does not say.
    pub fn from_cpu(&mut self, cpu: usize) -> Option<u64> {
        let size = self.read()?;
        parse_steal(std::str::from_utf8(&self.text[..size]).ok()?, cpu).map(|ticks| ticks * TICK_NS)
    }

    /// The lines of all CPUs, in one reading; returns their length. The room for them grows once, to what they take here.
    fn read(&mut self) -> Option<usize> {
        let stat = self.stat.as_ref()?;
        loop {
            let size = stat.read_at(&mut self.text, 0).ok()?;
            let is_whole = size < self.text.len() || has_all_cpus(&self.text[..size]);
            if is_whole || size >= STAT_SIZE_MAX {
                return Some(size);
            }
            self.text.resize(2 * self.text.len(), 0);
        }
    }
}

/// Something else begins a line: those of the CPUs come first.
fn has_all_cpus(text: &[u8]) -> bool {
    text.split_inclusive(|&byte| byte == b'\n').any(|line| line.ends_with(b"\n") && !line.starts_with(b"cpu"))
}

/// `cpuN user nice system idle iowait irq softirq steal`.
fn parse_steal(text: &str, cpu: usize) -> Option<u64> {
    let mut words = text
        .lines()
        .map(str::split_ascii_whitespace)
        .find_map(|mut words| (words.next()?.strip_prefix("cpu")?.parse() == Ok(cpu)).then_some(words))?;
    words.nth(7)?.parse().ok()
}

/// The certain part of a share that is told in ticks: the counted time may have been taken a tick earlier.
pub fn certain_steal_ns(before_ns: u64, after_ns: u64) -> u64 {
    after_ns.saturating_sub(before_ns).saturating_sub(TICK_NS)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const FIRST: &str = "9:name=systemd:/\n5:cpuacct:/\n2:cpu,cpuset:/box/in\n0::/other\n";
    const MOUNTS: &str = "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        40 30 0:36 /other /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    /// Goal: the group of either version is found where it is mounted, with all above it.
    #[test]
    fn groups_are_found_where_they_are_mounted() {
        let found = groups(FIRST, MOUNTS);
        let paths: Vec<&Path> = found.iter().map(|group| group.path.as_path()).collect();
        assert_eq!(paths, [Path::new("/sys/fs/cgroup/cpu/box/in"), Path::new("/sys/fs/cgroup/unified/")]);
        let levels: Vec<&str> = found[0].levels().filter_map(Path::to_str).collect();
        assert_eq!(levels, ["/sys/fs/cgroup/cpu/box/in", "/sys/fs/cgroup/cpu/box", "/sys/fs/cgroup/cpu"]);
        assert_eq!(found.iter().map(|group| group.is_second).collect::<Vec<bool>>(), [false, true]);
        assert_eq!(groups("", MOUNTS), []);
        assert_eq!(groups(FIRST, ""), []);
    }

    #[test]
    fn both_versions_are_read() {
        let second = "usage_usec 5\nnr_periods 9\nnr_throttled 7\nthrottled_usec 3209000\nnr_bursts 0\n";
        let first = "nr_periods 9\nnr_throttled 7\nthrottled_time 3209000000\n";
        for text in [second, first] {
            assert_eq!(parse_throttled(text), (7, 3_209_000_000));
        }
        assert_eq!(parse_throttled("usage_usec 5\n"), (0, 0));
    }

    pub(crate) fn throttled(times: u64, each_ns: &[u64]) -> Throttled {
        let mut all = Throttled { times, ..Throttled::default() };
        all.by_quota_ns[..each_ns.len()].copy_from_slice(each_ns);
        all
    }

    /// Goal: quotas of nested groups that ran out together took that time once at least, and their sum at most.
    #[test]
    fn nested_quotas_are_not_counted_twice() {
        let (before, after) = (throttled(2, &[70_000, 5_000]), throttled(4, &[100_000, 45_000]));
        assert_eq!(after.since(&before), ThrottledTime { least_ns: 40_000, most_ns: 70_000 });
        assert_eq!(before.since(&after), ThrottledTime::default());
    }

    #[test]
    fn the_freezer_counts_microseconds() {
        assert_eq!(parse_frozen("frozen_usec 20345\n"), Some(20_345_000));
        assert_eq!(parse_frozen("other 1\nfrozen_usec 7\n"), Some(7000));
        for unknown in ["", "frozen_usec\n", "frozen_usec x\n"] {
            assert_eq!(parse_frozen(unknown), None);
        }
    }

    #[test]
    fn steal_is_that_of_the_cpu() {
        let text =
            "cpu  9 0 1 2 3 4 5 33 0 0\ncpu0 1 2 3 4 5 6 7 11 0 0\ncpu1 1 2 3 4 5 6 7 22 0 0\nintr 1\n";
        assert_eq!([0, 1, 2].map(|cpu| parse_steal(text, cpu)), [Some(11), Some(22), None]);
        // One tick may be of the time before the first reading.
        assert_eq!(certain_steal_ns(TICK_NS, 2 * TICK_NS), 0);
        assert_eq!(certain_steal_ns(TICK_NS, 6 * TICK_NS), 4 * TICK_NS);
    }

    /// Goal: a thread that is moved to other groups is followed, once, and one that is not moved, or has ended, is not. Method: a file as
    /// the kernel's says where it is.
    #[test]
    fn a_thread_that_is_moved_is_followed() {
        let path = std::env::temp_dir().join(format!("punctual-cgroup-{}", std::process::id()));
        let say = |names: &str| std::fs::write(&path, names).expect("room for a small file");
        say("0::/old\n");
        let names = path.clone();
        let mut own = GroupLimits { names, known: b"0::/old\n".to_vec(), ..GroupLimits::of_this_thread() };
        assert!(!own.follow());
        say("0::/new\n");
        assert!(own.follow() && !own.follow());
        say("");
        assert!(!own.follow());
        std::fs::remove_file(&path).expect("it is ours");
        let mut of_this_process = GroupLimits::of_process(std::process::id());
        assert!(!of_this_process.follow() && !of_this_process.known.is_empty());
    }

    /// Goal: a quota that is set later is found, at any level, and only the time that it takes from then on counts.
    #[test]
    fn a_quota_that_is_set_later_is_found() {
        let mount = std::env::temp_dir().join(format!("punctual-quota-{}", std::process::id()));
        let path = mount.join("box");
        std::fs::create_dir_all(&path).expect("room");
        let write = |folder: &Path, name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("room for a small file");
        };
        write(&path, "cpu.max", "max 100000\n");
        write(&path, "cpu.stat", "nr_throttled 3\nthrottled_usec 70\n");
        let mut quotas = Quotas::of(&[Group { mount: mount.clone(), path: path.clone(), is_second: true }]);
        assert!(quotas.is_empty() && !quotas.look_anew());
        write(&path, "cpu.max", "50000 100000\n");
        assert!(quotas.look_anew() && !quotas.look_anew() && !quotas.is_empty());
        assert_eq!(quotas.now(), throttled(3, &[70_000]));
        write(&mount, "cpu.max", "50000 100000\n");
        write(&mount, "cpu.stat", "nr_throttled 2\nthrottled_usec 5\n");
        assert!(quotas.look_anew());
        assert_eq!(quotas.now(), throttled(5, &[70_000, 5_000]));
        std::fs::remove_dir_all(&mount).expect("it is ours");
    }

    /// Goal: the last CPU of a large machine is seen. Method: a file as the kernel's, with more lines than a page holds.
    #[test]
    fn steal_is_seen_on_a_machine_of_many_cpus() {
        use std::fmt::Write as _;
        let mut text = "cpu  9 0 1 2 3 4 5 33 0 0\n".to_owned();
        for cpu in 0..512 {
            writeln!(text, "cpu{cpu} 123456789 0 12345678 2 3 4 5 {} 0 0", 1000 + cpu).expect("into memory");
        }
        text += "intr 1 2 3\nctxt 9\n";
        let path = std::env::temp_dir().join(format!("punctual-stat-{}", std::process::id()));
        std::fs::write(&path, &text).expect("room for a small file");
        let mut steal = Steal { stat: File::open(&path).ok(), ..Steal::default() };
        std::fs::remove_file(&path).expect("it is ours");
        for cpu in [0, 60, 511] {
            assert_eq!(steal.from_cpu(cpu), Some((1000 + cpu as u64) * TICK_NS), "CPU {cpu}");
        }
        assert_eq!(steal.from_cpu(512), None);
    }

    #[test]
    fn this_machine_can_be_asked() {
        let quotas = Quotas::of_this_thread();
        let before = quotas.now().times;
        assert!(quotas.now().times >= before);
        let cpu = crate::cpu::current();
        let mut steal = Steal::default();
        assert!(steal.from_cpu(cpu) <= steal.from_cpu(cpu));
        assert_eq!(steal.from_cpu(usize::MAX), None);
    }
}
