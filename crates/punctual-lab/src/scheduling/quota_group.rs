//! A control group with a quota of CPU time, made for a measurement and removed with it.

use std::path::{Path, PathBuf};

/// A control group of our own. Whoever is in it ends before it is dropped, for it is removed then.
#[derive(Debug)]
pub struct QuotaGroup {
    directory: PathBuf,
    is_second: bool,
}

/// The quota is of so many microseconds.
const PERIOD_US: u64 = 100_000;

const ROOT: &str = "/sys/fs/cgroup";

impl QuotaGroup {
    /// The kernel takes no less.
    pub const LEAST_US: u64 = 1000;

    /// Of each period, what no two threads use up: a quota that is there and never runs out.
    pub const PLENTY_US: u64 = 64 * PERIOD_US;

    /// Makes one whose quota never runs out.
    ///
    /// # Errors
    /// No control group may be made here, or none with a quota.
    pub fn new(name: &str) -> Result<Self, String> {
        let is_second = Path::new(ROOT).join("cgroup.subtree_control").exists();
        let parent = if is_second { PathBuf::from(ROOT) } else { Path::new(ROOT).join("cpu") };
        let directory = parent.join(format!("punctual-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory)
            .map_err(|error| format!("no control group can be made in {}: {error}", parent.display()))?;
        let group = Self { directory, is_second };
        group.allow_us(Self::PLENTY_US)?;
        Ok(group)
    }

    /// From now on its members have so many microseconds of each 100 ms, together.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn allow_us(&self, quota_us: u64) -> Result<(), String> {
        let (file, text) = if self.is_second {
            ("cpu.max", format!("{quota_us} {PERIOD_US}"))
        } else {
            ("cpu.cfs_quota_us", quota_us.to_string())
        };
        let path = self.directory.join(file);
        std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Where a process writes its number to become a member.
    pub fn members(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        let _emptied = std::fs::remove_dir(&self.directory);
    }
}

/// Quotas that were lifted; put back when dropped.
#[derive(Debug)]
pub struct LiftedQuotas {
    before: Vec<(PathBuf, String)>,
}

/// Lifts the quotas of the calling thread's control groups, the outermost last.
///
/// # Errors
/// There is none, or it may not be changed. What was lifted until then is put back.
pub fn lift_quotas() -> Result<LiftedQuotas, String> {
    let mut lifted = LiftedQuotas { before: Vec::new() };
    let limits = punctual_machine::withheld::limits();
    if limits.is_empty() {
        return Err("no control group of this process has a CPU quota: start it in one that has".to_owned());
    }
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
                eprintln!("punctual: cannot put back {text} in {}: {error}", path.display());
            }
        }
    }
}
