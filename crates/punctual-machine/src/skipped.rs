//! For tests: cases that could not be tried here are reported where the log of CI has them.

use std::fmt;
use std::io::Write;

/// Says that the test that runs is skipped, or a part of it, and why: `skipped!("no valgrind here")`.
///
/// The test harness shows the output of `eprintln!` only for tests that fail.
#[macro_export]
macro_rules! skipped {
    ($($reason:tt)+) => {
        $crate::skipped::say(format_args!($($reason)+))
    };
}

/// See [`skipped!`](crate::skipped!).
pub fn say(reason: fmt::Arguments<'_>) {
    let line = line(std::thread::current().name(), &reason.to_string());
    // In one piece, so that nothing comes between; where nobody listens, nobody is told.
    let _told = std::io::stderr().write_all(line.as_bytes());
}

/// The harness names a thread as the test that it runs.
fn line(test: Option<&str>, reason: &str) -> String {
    let reason: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("SKIPPED {}: {}\n", test.unwrap_or("a part of a test"), reason.join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a reason of several lines stays one line of a log.
    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(line(Some("a::b"), "one:\n  two\n\n"), "SKIPPED a::b: one: / two\n");
        assert_eq!(line(None, "one"), "SKIPPED a part of a test: one\n");
    }
}
