//! The command's output, as another program reads it.

use std::process::{Command, Stdio};

/// Goal: a reader that has what it wants, as `head` does, ends the command quietly. Method: nobody reads from the first line on.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let started = command.arg("tidy").stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn();
    let ended = started.and_then(std::process::Child::wait_with_output).expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), &*said), (Some(141), ""), "{said}");
}
