//! The command line.

use std::process::ExitCode;

/// Runs the command; the exit code is the contract of `docs/cli.md`.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
