//! Identity of a process, for people; and numbers that nobody can guess.
//!
//! A pid is not used to ask if a process lives, as it means nothing in another namespace and is used again: see [`crate::life`].

use crate::handles::{forks, watch_forks};

/// The process that made something. A child that it forks later is another one: it has a copy of the value, and what that
/// shares with others stays its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    forks: u32,
}

impl Maker {
    /// The calling process.
    pub fn this_process() -> Self {
        watch_forks();
        Self { forks: forks() }
    }

    /// Returns true if the calling process is the one.
    #[inline]
    pub fn is_this_process(self) -> bool {
        self.forks == forks()
    }
}

/// A process, as people name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// The pid, in the namespace of `namespace`.
    pub pid: u32,
    /// Inode of the pid namespace in which `pid` counts; 0 where it is not known.
    pub namespace: u64,
}

impl ProcessIdentity {
    /// The calling process.
    pub fn of_self() -> Self {
        Self { pid: std::process::id(), namespace: namespace() }
    }

    /// Its pid, if that means the same here as there.
    pub fn pid_here(self) -> Option<u32> {
        (self.namespace != 0 && self.namespace == namespace()).then_some(self.pid)
    }
}

/// The number of the tracer of a thread, in its status in `/proc`: a debugger, or a program that traces its system calls.
pub fn tracer_in(status: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(status);
    let number = text.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()?;
    Some(number).filter(|&number| number != 0)
}

/// A process by its name and number: `strace (812)`.
pub fn name_of(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let name = name.trim();
    format!("{} ({process})", if name.is_empty() { "process" } else { name })
}

/// Name of the process that traces the calling thread now.
pub fn tracer_of_this_thread() -> Option<String> {
    tracer_in(&std::fs::read("/proc/thread-self/status").ok()?).map(name_of)
}

/// Descriptors that this process may have open: as many as it may allow itself (`ulimit -Hn`), from now on.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let granted = if raised.is_ok() { maximum } else { current };
    granted.unwrap_or(u64::MAX)
}

/// The effective user of the calling process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sixty-four bits that nobody can guess or repeat, from the kernel.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    // Eight bytes are given whole or, before the kernel has gathered any, not at all.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => crate::clock::realtime_ns() ^ u64::from(std::process::id()) << 48,
    }
}

/// Fills `bytes` with what nobody can guess, for keys: waits until the kernel has gathered enough, and takes nothing instead.
///
/// # Panics
/// If the kernel has no `getrandom`, which every Linux since 3.17 has.
pub fn fill_with_secrets(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("getrandom: {error}: no key is made of anything else"),
        }
    }
}

fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_of_another_namespace_names_nobody_here() {
        let me = ProcessIdentity::of_self();
        assert_eq!(me.pid_here(), (me.namespace != 0).then_some(me.pid));
        assert_eq!(ProcessIdentity { namespace: 1, ..me }.pid_here(), None);
        assert_eq!(ProcessIdentity { namespace: 0, ..me }.pid_here(), None);
    }
}
