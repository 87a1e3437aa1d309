//! Why a trial with members that write down their lives ends early, or such a life: only the group's own failure breaks a promise.

use std::io::ErrorKind;

use punctual::broadcast::JoinError;
use punctual::memory::SharedOptions;
use punctual::{BindError, OpenError};
use punctual_machine::SystemError;
use punctual_machine::memory::look_for_room;
use serde::{Deserialize, Serialize};

use crate::file::advice_to_write;
use crate::run::{Worker, memory_folder};

/// Why a trial or a life ends early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Halt {
    /// The machine cannot.
    Machine(String),
    /// The group did not do what it must.
    Stuck(String),
}

impl From<String> for Halt {
    fn from(text: String) -> Self {
        Self::Machine(text)
    }
}

impl From<OpenError> for Halt {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::System { error: system, .. } if is_want(system) => Self::Machine(error.to_string()),
            _ => Self::Stuck(error.to_string()),
        }
    }
}

impl From<JoinError> for Halt {
    fn from(error: JoinError) -> Self {
        match &error {
            JoinError::System(system) | JoinError::Bind(BindError::System(system)) if is_want(system) => {
                Self::Machine(format!("{error}{}", advice(system)))
            }
            _ => Self::Stuck(error.to_string()),
        }
    }
}

impl Halt {
    pub(super) fn text(self) -> String {
        match self {
            Self::Machine(text) | Self::Stuck(text) => text,
        }
    }

    /// A process that said nothing. One that somebody ended, as the kernel does for want of memory, is no failure of the group.
    pub(super) fn of_end(worker: &mut Worker, why: String) -> Self {
        if worker.was_ended() {
            Self::Machine(format!("{why}, as the kernel ends one for want of memory, or as somebody did"))
        } else {
            Self::Stuck(why)
        }
    }

    /// The same of a member.
    pub(super) fn of_member(self, place: usize) -> Self {
        let of = |text: String| format!("member {place}: {text}");
        match self {
            Self::Machine(text) => Self::Machine(of(text)),
            Self::Stuck(text) => Self::Stuck(of(text)),
        }
    }

    /// A group in memory does not go on. Without memory for a ring its members cannot speak to each other, so that it need not.
    pub(super) fn of_group_in_memory(sentence: String) -> Self {
        let folder = memory_folder();
        match look_for_room(&folder, SharedOptions::new("").ring_size) {
            Err(error) if is_want(&error) => Self::Machine(format!("{sentence}: {error}{}", advice(&error))),
            _ => Self::Stuck(sentence),
        }
    }
}

/// Returns true if the machine, or a limit of this process, has no more of something.
fn is_want(error: &SystemError) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WouldBlock};
    // A thread that cannot be started would have to wait for others to end.
    error.is_exhaustion() || matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull | WouldBlock)
}

/// Remedy for it.
fn advice(error: &SystemError) -> String {
    let usual = advice_to_write(&error.kind().into());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("{usual} in {}, or take fewer --members", memory_folder().display())
        }
        ErrorKind::FileTooLarge => usual.to_owned(),
        ErrorKind::WouldBlock => "; raise the limit (ulimit -u), or take fewer --members".to_owned(),
        _ => "; raise the limit (ulimit -n, -v), or take fewer --members".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use rustix::io::Errno;

    use super::*;

    /// Goal: a process that was ended from outside is told from one that ended by a fault of its own, or without an answer.
    #[test]
    fn an_end_from_outside_is_no_failure() {
        for (script, is_ours) in
            [("kill -KILL $$", false), ("kill -SEGV $$", true), ("exit 0", true), ("exit 3", true)]
        {
            let mut command = std::process::Command::new("sh");
            let mut worker = Worker::run(command.args(["-c", script])).expect("a shell");
            let why = worker.recv::<()>().expect_err("it says nothing");
            let halt = Halt::of_end(&mut worker, why);
            assert_eq!(matches!(&halt, Halt::Stuck(_)), is_ours, "{script}: {halt:?}");
        }
    }

    /// Goal: a machine that is full is told from a library that errs, with the thing and what to do.
    #[test]
    fn want_is_told_from_failure() {
        let error = |kind: ErrorKind| SystemError::new("reserve shared memory", "a ring", kind);
        let open = |kind| Halt::from(OpenError::System { error: error(kind), advice: "" });
        let join = |kind| Halt::from(JoinError::System(error(kind)));
        // No room, no limit left, no thread: std says EAGAIN for the last.
        for want in [ErrorKind::StorageFull, ErrorKind::FileTooLarge, ErrorKind::WouldBlock] {
            for halt in [open(want), join(want)] {
                assert!(matches!(&halt, Halt::Machine(text) if text.contains("a ring")), "{halt:?}");
            }
        }
        for code in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let full = SystemError::new("open", "a bell", Error::from_raw_os_error(code.raw_os_error()));
            let halt = Halt::from(JoinError::System(full));
            assert!(matches!(&halt, Halt::Machine(text) if text.contains("raise the limit")), "{halt:?}");
        }
        let told = join(ErrorKind::StorageFull).of_member(3).text();
        assert!(told.starts_with("member 3: ") && told.contains("free some room"), "{told}");
        for halt in [open(ErrorKind::InvalidInput), join(ErrorKind::AlreadyExists)] {
            assert!(matches!(halt, Halt::Stuck(_)), "{halt:?}");
        }
        let full = OpenError::BusFull { nodes_max: 7 };
        assert!(matches!(Halt::from(full), Halt::Stuck(_)), "it ends no group of ours");
    }
}
