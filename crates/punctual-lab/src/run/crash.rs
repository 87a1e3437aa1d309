//! Crashes of a run: panics of this program's threads, also where somebody catches them, and workers that ended by a fault of their own
//! or not at all.
//! None may happen. A run that saw one broke its promise, regardless of the figures that it has.

use std::os::unix::process::ExitStatusExt;
use std::panic::PanicHookInfo;
use std::process::ExitStatus;
use std::sync::Mutex;

use super::lock;

/// In the order in which they were seen.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Exit code of a process whose main thread panicked, and of a worker in which another thread did.
pub(crate) const PANICKED: u8 = 101;

/// Signals by which the kernel, or the program itself, ends a process for a fault: ILL, TRAP, ABRT, BUS, FPE, SEGV and SYS of signal(7).
/// Others come from outside: a user, or the kernel for want of memory.
const FAULTS: [i32; 7] = [4, 5, 6, 7, 8, 11, 31];

/// From now on every panic of this process counts.
pub(crate) fn watch_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        note(of_panic(panic));
        usual(panic);
    }));
}

fn of_panic(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
    let words = panic.payload_as_str().map(|words| format!(": {words}"));
    let name = thread.name().unwrap_or("without a name");
    format!("the thread {name} panicked{}{}", place.unwrap_or_default(), words.unwrap_or_default())
}

/// Adds a crash.
fn note(crash: String) {
    lock(&SEEN).push(crash);
}

/// A worker has ended, or was killed since it hung when it was to leave.
pub(super) fn note_end(status: ExitStatus, hung: bool) {
    if hung {
        note("a process of this run did not end when it was told to, and was killed".to_owned());
    } else if let Some(how) = fault(status) {
        note(format!("a process of this run ended {how}"));
    }
}

/// The end of a process, in words, if it was a fault of its own.
pub(crate) fn fault(status: ExitStatus) -> Option<String> {
    match (status.signal(), status.code()) {
        (Some(signal), _) if FAULTS.contains(&signal) => Some(format!("by signal {signal}")),
        (_, Some(code)) if code == i32::from(PANICKED) => Some("by a panic".to_owned()),
        _ => None,
    }
}

/// The crashes until now.
pub(crate) fn seen() -> Vec<String> {
    lock(&SEEN).clone()
}

/// The same as one sentence; `None` if there were none.
pub(crate) fn told() -> Option<String> {
    let seen = seen();
    let (first, others) = seen.split_first()?;
    let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
    Some(format!("{first}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a panic counts also where its thread is joined and its error thrown away.
    #[test]
    fn a_panic_that_nobody_looks_at_is_seen() {
        watch_panics();
        let thread = std::thread::Builder::new().name("planted".to_owned());
        let _ended = thread.spawn(|| panic!("on purpose")).expect("a thread").join();
        // Other tests may have panicked meanwhile.
        let is_told = |crash: &String| crash.contains("planted") && crash.ends_with(": on purpose");
        let seen = seen();
        assert!(seen.iter().any(is_told), "{seen:?}");
    }

    /// Goal: a process that was ended from outside, or that the machine could not serve, did not crash.
    #[test]
    fn faults_are_told_from_other_ends() {
        let status = |raw: i32| fault(ExitStatus::from_raw(raw));
        assert_eq!(status(11).as_deref(), Some("by signal 11"));
        assert_eq!(status(i32::from(PANICKED) << 8).as_deref(), Some("by a panic"));
        for (of_others, raw) in [("none", 0), ("3", 3 << 8), ("KILL", 9), ("TERM", 15), ("INT", 2)] {
            assert_eq!(status(raw), None, "{of_others}");
        }
    }
}
