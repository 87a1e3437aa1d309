//! Why a command ends otherwise than well.

use std::process::ExitCode;

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
    #[must_use]
    pub fn report(&self) -> ExitCode {
        let (text, code) = match self {
            Self::Promise(text) => (text, 1),
            Self::Usage(text) => (text, 2),
            Self::Machine(text) => (text, 3),
        };
        eprintln!("punctual: {text}");
        ExitCode::from(code)
    }
}
