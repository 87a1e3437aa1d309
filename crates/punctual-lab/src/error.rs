//! Why a command ends otherwise than well.

use std::fmt;
use std::process::ExitCode;

use punctual_machine::SystemError;

use crate::run::RunError;
use crate::store::StoreError;
use crate::terminal::{printable, say};

/// Why the command ended, as the contract's exit codes say it.
#[derive(Debug)]
pub enum Failure {
    /// Exit 1: done, but a promise did not hold.
    Promise(String),
    /// Exit 2: the call is off.
    Usage(String),
    /// Exit 3: the machine cannot; the text says what is missing and what to do.
    Machine(String),
}

impl Failure {
    /// Says it on standard error; the exit code tells scripts.
    pub fn report(&self) -> ExitCode {
        // Reasons cite files, which anybody may have written.
        say(format_args!("punctual: {}", printable(&self.to_string())));
        ExitCode::from(match self {
            Self::Promise(_) => 1,
            Self::Usage(_) => 2,
            Self::Machine(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Promise(text) | Self::Usage(text) | Self::Machine(text)) = self;
        f.write_str(text)
    }
}

impl From<StoreError> for Failure {
    /// A store that cannot be read is a wrong argument; one that cannot be written is the machine's.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Occupied { .. }
            | StoreError::NoPlace { .. }
            | StoreError::Absent { .. }
            | StoreError::NotARun { .. }
            | StoreError::UnknownVersion { .. } => Self::Usage(error.to_string()),
            _ => Self::Machine(error.to_string()),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Machine(text) => Self::Machine(text),
        }
    }
}

impl From<SystemError> for Failure {
    fn from(error: SystemError) -> Self {
        Self::Machine(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Machine(text)
    }
}
