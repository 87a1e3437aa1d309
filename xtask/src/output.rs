//! Standard output of all steps.

use std::fmt;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// Exit code that shells show of a program that SIGPIPE ended: 128, and 13 for the signal.
const UNREAD: i32 = 141;

/// As `println!`, but a reader that went away ends this program without a panic, as it does others: `cargo xtask tidy | head -1`.
macro_rules! say {
    ($($words:tt)*) => { crate::output::say(format_args!($($words)*)) };
}

/// Behind [`say!`].
pub(crate) fn say(line: fmt::Arguments<'_>) {
    match writeln!(stdout().lock(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(UNREAD),
        written => written.expect("standard output takes a line"),
    }
}
