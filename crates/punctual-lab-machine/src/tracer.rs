//! Holds a process as a debugger does: every thread of it stands still until it is let go.
//!
//! # Rules of access
//! `ptrace` is asked only to seize, to interrupt and to let go: no memory and no register of the process is read or written.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ptr;

use punctual_machine::SystemError;

/// A process whose threads stand still. They go on when it is dropped, or when the thread that holds them ends.
#[derive(Debug)]
pub struct HeldProcess {
    /// Each with the signal that it goes on with: one that was on its way, or 0.
    threads: BTreeMap<i32, i32>,
    /// They run, and have to stand still to be let go.
    is_running: bool,
    /// Only the thread that seized them may let them go.
    stays_here: PhantomData<*const ()>,
}

impl HeldProcess {
    /// Seizes every thread, and waits until each stands still.
    ///
    /// # Errors
    /// The process is gone, is traced by another, or may not be traced by this one.
    pub fn hold(process: u32) -> Result<Self, SystemError> {
        let mut held = Self { threads: BTreeMap::new(), is_running: false, stays_here: PhantomData };
        // A thread may have started another before it was seized.
        loop {
            let mut is_new = false;
            for thread in threads(process).filter_map(|thread| i32::try_from(thread).ok()) {
                if !held.threads.contains_key(&thread) {
                    is_new |= held.seize(process, thread)?;
                }
            }
            if !is_new {
                break;
            }
        }
        if held.threads.is_empty() {
            let gone = std::io::Error::from_raw_os_error(libc::ESRCH);
            return Err(SystemError::new("trace", format!("process {process}"), gone));
        }
        Ok(held)
    }

    /// Lets the threads run on until it is dropped, traced as before. None may end meanwhile: its end would wait for the tracer.
    pub fn let_run(&mut self) {
        self.is_running = true;
        for (&thread, signal) in &mut self.threads {
            let _gone = ask_with(libc::PTRACE_CONT, thread, std::mem::take(signal));
        }
    }

    /// Returns true if the thread was there to be seized.
    fn seize(&mut self, process: u32, thread: i32) -> Result<bool, SystemError> {
        match ask(libc::PTRACE_SEIZE, thread) {
            Err(libc::ESRCH) => return Ok(false),
            Err(number) => {
                let error = std::io::Error::from_raw_os_error(number);
                return Err(SystemError::new(
                    "trace",
                    format!("thread {thread} of process {process}"),
                    error,
                ));
            }
            Ok(()) => self.threads.insert(thread, 0),
        };
        self.interrupt(thread);
        Ok(true)
    }

    fn interrupt(&mut self, thread: i32) {
        // It may end meanwhile: then the wait says so.
        let _ended = ask(libc::PTRACE_INTERRUPT, thread);
        match stopped(thread) {
            Some(status) if status >> 16 == libc::PTRACE_EVENT_STOP => {}
            Some(status) => drop(self.threads.insert(thread, libc::WSTOPSIG(status))),
            None => drop(self.threads.remove(&thread)),
        }
    }
}

impl Drop for HeldProcess {
    fn drop(&mut self) {
        if self.is_running {
            let threads: Vec<i32> = self.threads.keys().copied().collect();
            threads.into_iter().for_each(|thread| self.interrupt(thread));
        }
        for (&thread, &signal) in &self.threads {
            // One that was killed meanwhile has gone.
            let _gone = ask_with(libc::PTRACE_DETACH, thread, signal);
        }
    }
}

/// The status with which a thread stopped; `None` if it ended.
fn stopped(thread: i32) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: the status is live and ours; the kernel keeps no pointer to it.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        let is_interrupted =
            waited == -1 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if !is_interrupted {
            return (waited != -1 && libc::WIFSTOPPED(status)).then_some(status);
        }
    }
}

/// A request without data; the number of the error.
fn ask(request: libc::c_uint, thread: i32) -> Result<(), i32> {
    ask_with(request, thread, 0)
}

/// The same, with the number of a signal.
fn ask_with(request: libc::c_uint, thread: i32, signal: i32) -> Result<(), i32> {
    let data = ptr::without_provenance_mut::<u8>(usize::try_from(signal).unwrap_or(0));
    // SAFETY: of these requests the kernel reads the thread's number, and the signal to go on with as a number: no memory.
    let answered = unsafe { libc::ptrace(request, thread, ptr::null_mut::<u8>(), data) };
    match answered {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        _ => Ok(()),
    }
}

fn threads(process: u32) -> impl Iterator<Item = u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    tasks.into_iter().flatten().flatten().filter_map(|task| task.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn state(process: u32) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Goal: a held process stands still, goes on afterwards, and the dead cannot be held.
    #[test]
    fn a_held_process_stands_still_and_goes_on() {
        let sleep = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn();
        let mut sleep = sleep.expect("sleep is there");
        match HeldProcess::hold(sleep.id()) {
            Ok(held) => {
                assert_eq!(state(sleep.id()), Some('t'));
                drop(held);
                assert_ne!(state(sleep.id()), Some('t'));
            }
            Err(error) => punctual_machine::skipped!("{error}"),
        }
        sleep.kill().expect("it is ours");
        sleep.wait().expect("it is ours");
        let error = HeldProcess::hold(sleep.id()).expect_err("it is gone");
        assert!(error.to_string().contains(&sleep.id().to_string()), "{error}");
    }
}
