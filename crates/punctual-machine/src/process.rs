//! Which process it is, so that a dead one's remains are told from a live one's.
//!
//! A pid alone is reused; with its start time it is not.

use std::fs;
use std::io::{Read, Write};

/// One life of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// The pid, in the namespace of `namespace`.
    pub pid: u32,
    /// Start of the process since boot, clock ticks (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
    /// Inode of the pid namespace in which `pid` counts.
    pub namespace: u64,
}

impl ProcessIdentity {
    /// The calling process.
    pub fn of_self() -> Self {
        let pid = std::process::id();
        Self { pid, start_time: started_and_running(pid).unwrap_or(0), namespace: namespace() }
    }

    /// Whether that process still runs. A process of another pid namespace, or one that `/proc` hides from this user (mount
    /// option `hidepid`), cannot be judged and counts as alive.
    pub fn is_alive(self) -> bool {
        if self.namespace != namespace() {
            return true;
        }
        match state_and_start(self.pid) {
            Some((state, start_time)) => is_running(state) && start_time == self.start_time,
            None => is_hidden(self.pid),
        }
    }
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

/// Whether a process of which `/proc` says nothing is another user's: one that is not there could not be forbidden.
fn is_hidden(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::PERM))
}

fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// The start time of a process that exists and is no zombie.
fn started_and_running(pid: u32) -> Option<u64> {
    state_and_start(pid).filter(|&(state, _)| is_running(state)).map(|(_, start)| start)
}

fn is_running(state: char) -> bool {
    !matches!(state, 'Z' | 'X' | 'x')
}

fn state_and_start(pid: u32) -> Option<(char, u64)> {
    // Asked from time to time while messages move: nothing here allocates.
    let mut path = [0; 32];
    let mut rest = &mut path[..];
    write!(rest, "/proc/{pid}/stat").ok()?;
    let unused = rest.len();
    let path = std::str::from_utf8(&path[..path.len() - unused]).ok()?;
    let mut bytes = [0; 1024];
    let size = fs::File::open(path).ok()?.read(&mut bytes).ok()?;
    // A command name may be any bytes, and only what follows it is looked at.
    let name_end = bytes[..size].iter().rposition(|&byte| byte == b')')?;
    parse_stat(std::str::from_utf8(&bytes[name_end..size]).ok()?)
}

/// State and start time. The command name may hold blanks and brackets, so counting begins behind its last bracket.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start_time = fields.nth(18)?.parse().ok()?;
    Some((state, start_time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_life_of_its_pid_is_not() {
        let me = ProcessIdentity::of_self();
        assert!(me.is_alive());
        assert!(!ProcessIdentity { start_time: me.start_time + 1, ..me }.is_alive());
        assert!(ProcessIdentity { namespace: 1, start_time: 0, ..me }.is_alive());
    }

    #[test]
    fn a_killed_child_is_dead_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let start_time = started_and_running(child.id()).unwrap();
        let identity = ProcessIdentity { pid: child.id(), start_time, namespace: namespace() };
        assert!(identity.is_alive());
        child.kill().unwrap();
        while identity.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_command_name_with_brackets_does_not_confuse() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        assert_eq!(parse_stat(stat), Some(('S', 4711)));
        assert_eq!(parse_stat("7 (x"), None);
        assert_eq!(parse_stat(""), None);
    }
}
