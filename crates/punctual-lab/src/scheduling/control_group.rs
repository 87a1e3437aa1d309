//! A control group with a quota of CPU time, a freezer and a limit of memory, made for a measurement and removed with it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_machine::signal::PostponedEnd;

use crate::terminal::say;

/// A control group of our own, of each hierarchy that has what is asked of it. Its members end before it is dropped, for it is removed
/// then, also if this process is interrupted twice meanwhile.
#[derive(Debug)]
pub struct ControlGroup {
    /// Or why there is none.
    quota: Result<Quota, String>,
    /// The directory of the group in the hierarchy of version 2, or why there is none.
    freezer: Result<PathBuf, String>,
    /// The directory of the group in the hierarchy that has the memory, or why there is none.
    memory: Result<PathBuf, String>,
    /// Dropped when the group is gone; there is none where no group was made.
    _end: Option<PostponedEnd>,
}

impl Default for ControlGroup {
    fn default() -> Self {
        Self::none("no control group was made".to_owned())
    }
}

/// Where a quota is set.
#[derive(Debug)]
struct Quota {
    directory: PathBuf,
    is_second: bool,
}

/// The quota is of so many microseconds.
const PERIOD_US: u64 = 100_000;

/// Time that killed members may take to end.
const LEAVING_MAX: Duration = Duration::from_secs(2);

/// Where control groups are mounted.
pub(super) const ROOT: &str = "/sys/fs/cgroup";

/// Prefix of the name of every group of ours.
pub(super) const NAME_PREFIX: &str = "punctual-";

impl ControlGroup {
    /// The kernel takes no less.
    pub const LEAST_US: u64 = 1000;

    /// Of each period, what no two threads use up: a quota that is there and never runs out.
    pub const PLENTY_US: u64 = 64 * PERIOD_US;

    /// Makes one whose quota never runs out, and that is not frozen, as far as that is possible here.
    pub fn new(name: &str) -> Self {
        let name = format!("{NAME_PREFIX}{name}-{}", std::process::id());
        match PostponedEnd::new() {
            Ok(end) => {
                let (quota, freezer, memory) = (Quota::make(&name), make_freezer(&name), make_memory(&name));
                Self { quota, freezer, memory, _end: Some(end) }
            }
            Err(error) => Self::none(error.to_string()),
        }
    }

    fn none(reason: String) -> Self {
        Self { quota: Err(reason.clone()), freezer: Err(reason.clone()), memory: Err(reason), _end: None }
    }

    /// Checks that its quota can be set.
    ///
    /// # Errors
    /// Why not.
    pub fn has_quota(&self) -> Result<(), String> {
        self.quota.as_ref().map(|_| ()).map_err(String::clone)
    }

    /// Checks that it can be frozen, and that it tells for how long it was.
    ///
    /// # Errors
    /// Why not.
    pub fn has_freezer(&self) -> Result<(), String> {
        self.freezer.as_ref().map(|_| ()).map_err(String::clone)
    }

    /// Checks that its memory can be limited.
    ///
    /// # Errors
    /// Why not.
    pub fn has_memory(&self) -> Result<(), String> {
        self.memory.as_ref().map(|_| ()).map_err(String::clone)
    }

    /// From now on its members have so many microseconds of each 100 ms, together.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn allow_us(&self, quota_us: u64) -> Result<(), String> {
        self.quota.as_ref().map_err(String::clone)?.allow_us(quota_us)
    }

    /// Freezes its members, or lets them go on.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn set_frozen(&self, is_frozen: bool) -> Result<(), String> {
        let directory = self.freezer.as_ref().map_err(String::clone)?;
        write(&directory.join("cgroup.freeze"), if is_frozen { "1" } else { "0" })
    }

    /// Where a process writes its number to become a member.
    pub fn members(&self) -> Vec<PathBuf> {
        self.directories().into_iter().map(|directory| directory.join("cgroup.procs")).collect()
    }

    /// Each once.
    fn directories(&self) -> Vec<&PathBuf> {
        let quota = self.quota.iter().map(|quota| &quota.directory);
        let mut directories: Vec<&PathBuf> = quota.chain(&self.freezer).chain(&self.memory).collect();
        directories.dedup();
        directories
    }
}

impl Quota {
    fn make(name: &str) -> Result<Self, String> {
        let is_second = Path::new(ROOT).join("cgroup.subtree_control").exists();
        let parent = if is_second { PathBuf::from(ROOT) } else { Path::new(ROOT).join("cpu") };
        let quota = Self { directory: parent.join(name), is_second };
        make_directory(&quota.directory)?;
        let allowed = quota.allow_us(ControlGroup::PLENTY_US);
        allowed.inspect_err(|_| drop(std::fs::remove_dir(&quota.directory)))?;
        Ok(quota)
    }

    fn allow_us(&self, quota_us: u64) -> Result<(), String> {
        let (file, text) = if self.is_second {
            ("cpu.max", format!("{quota_us} {PERIOD_US}"))
        } else {
            ("cpu.cfs_quota_us", quota_us.to_string())
        };
        write(&self.directory.join(file), &text)
    }
}

/// The hierarchy of version 2 has a freezer; it stands beside those of version 1 where both are in use.
fn make_freezer(name: &str) -> Result<PathBuf, String> {
    let mounts = [PathBuf::from(ROOT), Path::new(ROOT).join("unified")];
    let mount = mounts.iter().find(|mount| mount.join("cgroup.subtree_control").exists());
    let mount = mount.ok_or_else(|| format!("no control groups of version 2 are mounted in {ROOT}"))?;
    let directory = mount.join(name);
    let is_new = make_directory(&directory)?;
    // One that an earlier process of this number left may be frozen.
    let _thawed = std::fs::write(directory.join("cgroup.freeze"), "0");
    let stat = std::fs::read_to_string(directory.join("cgroup.stat.local")).unwrap_or_default();
    let is_told = stat.lines().any(|line| line.starts_with("frozen_usec "));
    let reason =
        || "the kernel does not tell how long a control group was frozen: Linux 6.18 does".to_owned();
    let made = is_told.then_some(()).ok_or_else(reason);
    made.inspect_err(|_| drop(is_new.then(|| std::fs::remove_dir(&directory))))?;
    Ok(directory)
}

/// Version 1 has a hierarchy of its own for memory; in that of version 2 the groups share one.
fn make_memory(name: &str) -> Result<PathBuf, String> {
    let is_second = Path::new(ROOT).join("cgroup.subtree_control").exists();
    let parent = if is_second { PathBuf::from(ROOT) } else { Path::new(ROOT).join("memory") };
    let directory = parent.join(name);
    let is_new = make_directory(&directory)?;
    let files = ["memory.max", "memory.limit_in_bytes"];
    let has_limit = files.iter().any(|file| directory.join(file).exists());
    let reason = || format!("control groups in {} have no limit of memory", parent.display());
    let made = has_limit.then_some(()).ok_or_else(reason);
    made.inspect_err(|_| drop(is_new.then(|| std::fs::remove_dir(&directory))))?;
    Ok(directory)
}

/// Returns true if it is new: the same directory may be of quota and freezer.
fn make_directory(directory: &Path) -> Result<bool, String> {
    match std::fs::create_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(format!("no control group can be made: {}: {error}", directory.display())),
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A frozen member cannot end.
        let _thawed = self.set_frozen(false);
        for directory in self.directories() {
            // A killed process is a member until it has ended.
            let start = Instant::now();
            while std::fs::remove_dir(directory).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
                && start.elapsed() < LEAVING_MAX
            {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Quotas that were lifted; put back when dropped, also if it is interrupted twice meanwhile.
#[derive(Debug)]
pub struct LiftedQuotas {
    before: Vec<(PathBuf, String)>,
    /// Dropped when they are back.
    _end: PostponedEnd,
}

/// Lifts the quotas of the calling thread's control groups, the outermost last.
///
/// # Errors
/// There is none, or it may not be changed. Quotas that were lifted until then are put back.
pub fn lift_quotas() -> Result<LiftedQuotas, String> {
    let limits = punctual_machine::withheld::limits();
    if limits.is_empty() {
        return Err("no control group of this process has a CPU quota: start it in one that has".to_owned());
    }
    lift(limits)
}

/// Lifts quotas, each in its file with its text.
pub(crate) fn lift(limits: Vec<(PathBuf, String)>) -> Result<LiftedQuotas, String> {
    let end = PostponedEnd::new().map_err(|error| error.to_string())?;
    let mut lifted = LiftedQuotas { before: Vec::new(), _end: end };
    for (path, text) in limits {
        let none = if text.contains(' ') { format!("max {PERIOD_US}") } else { "-1".to_owned() };
        std::fs::write(&path, none).map_err(|error| format!("cannot lift {}: {error}", path.display()))?;
        lifted.before.push((path, text));
    }
    Ok(lifted)
}

impl Drop for LiftedQuotas {
    fn drop(&mut self) {
        // A group has no more than those above it: the outermost is put back first.
        for (path, text) in self.before.iter().rev() {
            if let Err(error) = std::fs::write(path, text) {
                say(format_args!("punctual: cannot put back {text} in {}: {error}", path.display()));
            }
        }
    }
}
