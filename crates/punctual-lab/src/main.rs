//! The command `punctual`.

use std::process::ExitCode;

fn main() -> ExitCode {
    punctual_lab::cli::main()
}
