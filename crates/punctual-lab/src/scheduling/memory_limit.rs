//! The limit of the memory of a control group that was made for a measurement.

use std::path::{Path, PathBuf};

use super::control_group::{NAME_PREFIX, ROOT};

/// Where the memory of a group is told and limited.
#[derive(Debug)]
pub struct MemoryLimit {
    used: PathBuf,
    limit: PathBuf,
    /// The value for no limit.
    none: &'static str,
}

impl MemoryLimit {
    /// Of the group that this process is in, if that was made for a measurement: nobody else's is touched.
    pub fn of_this_process() -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::among(&groups).filter(|limit| limit.limit.exists())
    }

    /// By the text of `/proc/self/cgroup`: the hierarchy of version 1 is told from that of version 2 by its name.
    fn among(groups: &str) -> Option<Self> {
        let of = |controller: &str, group: &str| {
            let is_made = group.rsplit('/').next()?.starts_with(NAME_PREFIX);
            let directory = match controller {
                "memory" => Path::new(ROOT).join("memory"),
                "" => PathBuf::from(ROOT),
                _ => return None,
            };
            is_made.then(|| Self::in_directory(&directory.join(group.trim_start_matches('/')), controller))
        };
        let mut found = groups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            of(fields.next()?, fields.next()?)
        });
        // Version 1 has the memory where both are mounted, and is listed first.
        found.next()
    }

    fn in_directory(directory: &Path, controller: &str) -> Self {
        let [used, limit, none] = if controller == "memory" {
            ["memory.usage_in_bytes", "memory.limit_in_bytes", "-1"]
        } else {
            ["memory.current", "memory.max", "max"]
        };
        Self { used: directory.join(used), limit: directory.join(limit), none }
    }

    /// From now on its members may have so many bytes more than they have.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn leave(&self, bytes: u64) -> std::io::Result<()> {
        let used: u64 = std::fs::read_to_string(&self.used)?.trim().parse().map_err(std::io::Error::other)?;
        std::fs::write(&self.limit, (used + bytes).to_string())
    }

    /// From now on they may have all.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn lift(&self) -> std::io::Result<()> {
        std::fs::write(&self.limit, self.none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only a group that was made for a measurement is limited, in the hierarchy that has the memory.
    #[test]
    fn a_group_of_ours_is_found() {
        let first = "9:name=systemd:/\n4:memory:/punctual-causes-7\n1:cpu:/punctual-causes-7\n0::/\n";
        let limit = MemoryLimit::among(first).expect("a group of ours");
        assert_eq!(limit.limit, Path::new("/sys/fs/cgroup/memory/punctual-causes-7/memory.limit_in_bytes"));
        let limit = MemoryLimit::among("0::/punctual-causes-7\n").expect("a group of ours");
        assert_eq!(limit.used, Path::new("/sys/fs/cgroup/punctual-causes-7/memory.current"));
        for others in ["0::/user.slice/session-3.scope\n", "4:memory:/docker/1ea5\n0::/\n", "", "x\n"] {
            assert!(MemoryLimit::among(others).is_none(), "{others}");
        }
    }
}
