//! A run that another command of this program makes, and ends.

use std::process::Command;

use punctual_machine::SystemError;
use punctual_machine::signal::{catch_all_interrupts, catch_interrupts, end_with_parent};

/// Holds the number of the process that makes the run.
const MAKER: &str = "PUNCTUAL_MAKER";

/// The run of this command ends when this process does; else this process tells it to end, and kills it where it does not.
pub(crate) fn make_inner(command: &mut Command) -> &mut Command {
    command.env(MAKER, std::process::id().to_string())
}

/// From now on a signal that ends commands sets a flag, and the second ends the process. A run that another command makes may get one
/// from a sender to all processes and one from that command. Both mean the same: it ends only as it is told.
pub(crate) fn catch_interrupts_of_run() -> Result<(), SystemError> {
    let Some(maker) = std::env::var_os(MAKER) else { return catch_interrupts() };
    // A program in between, such as a tracer, may end one of its threads, which would count as its end.
    if maker.to_str().and_then(|number| number.parse().ok()) == Some(std::os::unix::process::parent_id()) {
        end_with_parent();
    }
    catch_all_interrupts()
}
