//! Ctrl-C as a flag that loops look at, and the end of a stop as an instant.

use crate::SystemError;
use crate::clock::monotonic_ns;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Number of signals that came, and the last one.
static CAME: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU32 = AtomicU32::new(0);
/// Number of [`PostponedEnd`]s.
static POSTPONED: AtomicU32 = AtomicU32::new(0);

/// A terminal that goes away ends what runs there, too.
const INTERRUPTS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

extern "C" fn note_interrupt(signal: libc::c_int) {
    LAST.store(signal.cast_unsigned(), Ordering::Relaxed);
    CAME.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn note_first_interrupt(signal: libc::c_int) {
    note_interrupt(signal);
    if POSTPONED.load(Ordering::Relaxed) == 0 {
        end_at_next();
    }
}

fn end_at_next() {
    for signal in INTERRUPTS {
        if is_ignored_hangup(signal) {
            continue;
        }
        // SAFETY: to restore the usual action installs no handler, and `signal` is async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Returns true if it is a hangup that the process ignores: the user who started it wants it to outlive its terminal (`nohup`).
fn is_ignored_hangup(signal: libc::c_int) -> bool {
    if signal != libc::SIGHUP {
        return false;
    }
    // SAFETY: `sigaction` is plain data for which all zeroes is a value.
    let mut present: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: no handler is given, the structure that is filled is live, and `sigaction` is async-signal-safe.
    let answer = unsafe { libc::sigaction(signal, core::ptr::null(), &raw mut present) };
    answer == 0 && present.sa_sigaction == libc::SIG_IGN
}

/// From now on SIGINT, SIGTERM and SIGHUP set a flag. The second of them, whichever it is, ends the process as usual. A SIGHUP that is
/// ignored stays so.
pub fn catch_interrupts() -> Result<(), SystemError> {
    // A user who asks twice means it.
    catch(note_first_interrupt)
}

/// As [`catch_interrupts`], for a process that its parent ends: the terminal and the parent may both send one.
pub fn catch_all_interrupts() -> Result<(), SystemError> {
    catch(note_interrupt)
}

fn catch(handler: extern "C" fn(libc::c_int)) -> Result<(), SystemError> {
    for signal in INTERRUPTS.into_iter().filter(|&signal| !is_ignored_hangup(signal)) {
        // SAFETY: `sigaction` is plain data for which all zeroes is a value.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        // No RESTART: waits end, so that loops look.
        action.sa_sigaction = handler as usize;
        // SAFETY: the handlers change atomics and restore actions, which is async-signal-safe; the structure is live.
        if unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) } == -1 {
            return Err(SystemError::last("catch signal", signal.to_string()));
        }
    }
    Ok(())
}

/// Returns true if one of them came since [`catch_interrupts`].
pub fn interrupted() -> bool {
    CAME.load(Ordering::Relaxed) > 0
}

/// Returns true if a second one came, and ends the process once no [`PostponedEnd`] is left: a holder of one hurries.
pub fn insisted() -> bool {
    CAME.load(Ordering::Relaxed) > 1
}

/// The second interrupt does not end the process while one of these is there; the drop of the last one does. A value that must undo
/// something before that has it as its last field.
#[derive(Debug)]
pub struct PostponedEnd(());

impl PostponedEnd {
    /// From now on.
    pub fn new() -> Result<Self, SystemError> {
        POSTPONED.fetch_add(1, Ordering::Relaxed);
        let postponed = Self(());
        // After the first one, the next would still end the process.
        catch_interrupts().map(|()| postponed)
    }
}

impl Drop for PostponedEnd {
    fn drop(&mut self) {
        if POSTPONED.fetch_sub(1, Ordering::Relaxed) > 1 || !interrupted() {
            return;
        }
        end_at_next();
        if insisted() {
            // SAFETY: it takes a number of a signal that came, and no pointer.
            unsafe { libc::raise(LAST.load(Ordering::Relaxed).cast_signed()) };
        }
    }
}

/// From now on a write beyond a limit of file sizes (`ulimit -f`) fails with EFBIG, where SIGXFSZ would end the process.
pub fn ignore_file_size_limit() {
    // SAFETY: ignoring a signal installs no handler, and cannot fail for a signal that may be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Sends a child of this process SIGINT.
pub fn interrupt(child: &std::process::Child) {
    let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) else { return };
    // Gone already is as good: its pid is its own until it is reaped, which takes the child by `&mut`.
    let _gone = rustix::process::kill_process(pid, rustix::process::Signal::INT);
}

/// Sends SIGINT to all processes of a group, by the child of this process that leads it.
pub fn interrupt_group(leader: u32) {
    tell_group(leader, rustix::process::Signal::INT);
}

/// Ends all processes of a group, by the child of this process that leads it.
pub fn kill_group(leader: u32) {
    tell_group(leader, rustix::process::Signal::KILL);
}

fn tell_group(leader: u32, signal: rustix::process::Signal) {
    let Some(group) = rustix::process::Pid::from_raw(leader.cast_signed()) else { return };
    let _gone = rustix::process::kill_process_group(group, signal);
}

/// Stops a process of this user until [`resume`].
pub fn stop(process: u32) -> Result<(), SystemError> {
    send(process, rustix::process::Signal::STOP, "stop")
}

/// Continues a process that was stopped.
pub fn resume(process: u32) -> Result<(), SystemError> {
    send(process, rustix::process::Signal::CONT, "continue")
}

fn send(process: u32, signal: rustix::process::Signal, what: &'static str) -> Result<(), SystemError> {
    let object = || format!("process {process}");
    let none = || SystemError::new(what, object(), rustix::io::Errno::SRCH);
    let pid = rustix::process::Pid::from_raw(process.cast_signed()).ok_or_else(none)?;
    rustix::process::kill_process(pid, signal).map_err(|error| SystemError::new(what, object(), error))
}

static CONTINUATIONS: AtomicU64 = AtomicU64::new(0);
static CONTINUED_NS: AtomicU64 = AtomicU64::new(0);

extern "C" fn note_continuation(_signal: libc::c_int) {
    CONTINUED_NS.store(monotonic_ns(), Ordering::Relaxed);
    CONTINUATIONS.fetch_add(1, Ordering::Relaxed);
}

/// The action that counts.
fn own_action() -> libc::sighandler_t {
    note_continuation as extern "C" fn(libc::c_int) as usize
}

/// From now on every SIGCONT is counted, and with it the ends of stops: the program that stops a process must continue it.
pub fn count_continuations() -> Result<(), SystemError> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = own_action();
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler reads a clock and changes two atomics, all of it async-signal-safe; the structure is live.
    if unsafe { libc::sigaction(libc::SIGCONT, &raw const action, core::ptr::null_mut()) } == -1 {
        return Err(SystemError::last("catch signal", "SIGCONT"));
    }
    Ok(())
}

/// As [`count_continuations`], unless the program has a handler of its own. Returns true if they are counted.
pub fn count_continuations_unless_handled() -> bool {
    match continuation_action() {
        Some(action) if action == own_action() => true,
        Some(libc::SIG_DFL) => count_continuations().is_ok(),
        _ => false,
    }
}

/// The program's action for SIGCONT.
fn continuation_action() -> Option<libc::sighandler_t> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a value.
    let mut present: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: no handler is given, and the structure that is filled is live.
    let answer = unsafe { libc::sigaction(libc::SIGCONT, core::ptr::null(), &raw mut present) };
    (answer == 0).then_some(present.sa_sigaction)
}

/// Returns true if the end of a stop would be counted just now: the program has not taken SIGCONT since [`count_continuations`], and
/// this thread does not block it. A thread that waits for it (`sigwait`, `signalfd`) gets it in place of the handler. For that all
/// threads block it.
pub fn counts_continuations() -> bool {
    // SAFETY: a set of signals is plain data for which all zeroes is a value.
    let mut blocked: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: no set is given, so none is changed; the set that is filled is live.
    let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &raw mut blocked) };
    // SAFETY: the set is live and was filled, and the signal has a valid number.
    let is_blocked = answer != 0 || unsafe { libc::sigismember(&raw const blocked, libc::SIGCONT) } != 0;
    !is_blocked && continuation_action() == Some(own_action())
}

/// Number of times that the process was continued since [`count_continuations`], and the time of the last one, nanoseconds of
/// `CLOCK_MONOTONIC`.
pub fn continuations() -> (u64, u64) {
    (CONTINUATIONS.load(Ordering::Relaxed), CONTINUED_NS.load(Ordering::Relaxed))
}

/// Asks the kernel to send the calling process SIGKILL when its parent ends, so that no role is left behind.
pub fn end_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no pointer; it cannot fail for a valid signal.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    const CHILD: &str = "PUNCTUAL_TEST_INTERRUPTED";

    /// Says what it has come to, where libtest shows it.
    fn say(what: &str) {
        writeln!(std::io::stderr(), "{what}").expect("standard error");
    }

    fn be_interrupted() {
        let begun = Instant::now();
        catch_interrupts().expect("a handler");
        say("ready");
        while !interrupted() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        say("interrupted");
        std::thread::sleep(Duration::from_secs(60));
    }

    /// Goal: a process that is interrupted by a terminal and then by a service manager ends. So does one that is told the same twice,
    /// or whose terminal goes away.
    #[test]
    fn the_second_interrupt_ends_whichever_it_is() {
        if std::env::var_os(CHILD).is_some() {
            // SAFETY: to restore the usual action installs no handler. The user who runs the tests may ignore it.
            unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
            return be_interrupted();
        }
        let own = ["--exact", "signal::tests::the_second_interrupt_ends_whichever_it_is"];
        let pairs = [
            (libc::SIGINT, libc::SIGTERM),
            (libc::SIGTERM, libc::SIGTERM),
            (libc::SIGHUP, libc::SIGINT),
            (libc::SIGINT, libc::SIGHUP),
        ];
        for (first, second) in pairs {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(own);
            assert_eq!(ended_by(command, &[first], second), Some(second));
        }
    }

    /// Goal: a process that is to outlive its terminal (`nohup`) is not interrupted by a hangup, neither before nor after another
    /// signal.
    #[test]
    fn a_hangup_that_is_ignored_stays_so() {
        if std::env::var_os(CHILD).is_some() {
            return be_interrupted();
        }
        let own = ["--exact", "signal::tests::a_hangup_that_is_ignored_stays_so"];
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
        command.arg(std::env::current_exe().expect("this program")).args(own);
        let told = [libc::SIGHUP, libc::SIGHUP, libc::SIGTERM, libc::SIGHUP];
        assert_eq!(ended_by(command, &told, libc::SIGINT), Some(libc::SIGINT));
    }

    /// Goal: a continuation is not taken for counted once this thread blocks it, or the program has taken the signal. A log that is made
    /// then does not take it away again.
    #[test]
    fn a_continuation_that_another_takes_is_not_counted() {
        if std::env::var_os(CHILD).is_none() {
            let own = ["--exact", "signal::tests::a_continuation_that_another_takes_is_not_counted"];
            let mut itself = Command::new(std::env::current_exe().expect("this program"));
            // Its action is the whole process's, which other tests need.
            let ended = itself.args(own).env(CHILD, "1").stdout(Stdio::null()).status();
            return assert!(ended.expect("this program again").success());
        }
        assert!(!counts_continuations(), "nobody has asked for it");
        assert!(count_continuations_unless_handled() && counts_continuations());
        let change = |how| {
            // SAFETY: a set of signals is plain data for which all zeroes is a value.
            let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
            // SAFETY: the set is live, and the signal has a valid number.
            let added = unsafe { libc::sigaddset(&raw mut set, libc::SIGCONT) };
            // SAFETY: the set is live, and it is this thread alone whose signals are blocked.
            let changed = unsafe { libc::pthread_sigmask(how, &raw const set, core::ptr::null_mut()) };
            assert_eq!((added, changed), (0, 0));
        };
        change(libc::SIG_BLOCK);
        assert!(!counts_continuations());
        change(libc::SIG_UNBLOCK);
        assert!(counts_continuations() && count_continuations_unless_handled());
        // SAFETY: to ignore a signal installs no handler.
        unsafe { libc::signal(libc::SIGCONT, libc::SIG_IGN) };
        assert!(!counts_continuations() && !count_continuations_unless_handled());
        assert!(!counts_continuations());
    }

    /// By which signal a process ended that got these, and another once it was interrupted.
    fn ended_by(mut command: Command, first: &[libc::c_int], second: libc::c_int) -> Option<libc::c_int> {
        let started = command.env(CHILD, "1").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = started.spawn().expect("this program again");
        let said = child.stderr.take().expect("a pipe");
        let mut said = BufReader::new(said).lines().map_while(Result::ok);
        let pid = rustix::process::Pid::from_child(&child);
        let tell = |signal| {
            let signal = rustix::process::Signal::from_named_raw(signal).expect("it has a name");
            rustix::process::kill_process(pid, signal).expect("our child");
        };
        assert!(said.any(|line| line == "ready"));
        first.iter().copied().for_each(tell);
        assert!(said.any(|line| line == "interrupted"));
        tell(second);
        child.wait().expect("our child").signal()
    }

    /// Goal: a continuation is counted, with an instant that lies between two readings around it.
    #[test]
    fn a_continuation_is_counted() {
        count_continuations().expect("a handler");
        let (before, from) = (continuations().0, monotonic_ns());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
            .expect("oneself");
        while continuations().0 == before {
            std::thread::yield_now();
        }
        let (count, at) = continuations();
        assert!(count > before && at >= from && at <= monotonic_ns(), "{count} at {at}, from {from}");
    }
}
