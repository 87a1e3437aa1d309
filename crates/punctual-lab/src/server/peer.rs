//! Servers on executors of other projects: `punctual-peer-server`, a program of its own, so that their dependencies reach no build
//! of this one.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::host::{Served, Serving};
use crate::run::{self, Program};

/// Where it is looked for unless a path is given.
pub const PROGRAM: &str = "punctual-peer-server";

/// Advice for getting it.
const ADVICE: &str = "build it: cargo build --release --manifest-path peers/Cargo.toml --features server --bin \
                      punctual-peer-server, and say where it is: --peer-server peers/target/release/punctual-peer-server";

/// Checks that there is such a program.
///
/// # Errors
/// There is none, or it does not run; the error says what to do.
pub fn look_for(program: &Path) -> Result<(), String> {
    run::look_for(program, ADVICE)
}

/// Serves by that program, which runs where the calling thread may: it says its address, and when its input ends its processor time.
pub(super) fn serve(
    serving: &Serving,
    during: impl FnOnce(SocketAddr) -> Result<(), String>,
) -> Result<Served, String> {
    let program = &serving.peer_server;
    let words = |error: std::io::Error| format!("{}: {error}", program.display());
    let child = Command::new(program)
        .args([serving.setup.model.name(), "--repeats", &serving.repeats.to_string()])
        .args(["--hog-ns", &serving.setup.hog_ns.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Its own: a Ctrl-C in a terminal would end it in the midst of a trial, which ends by its input.
        .process_group(0)
        .spawn()
        .map_err(words)?;
    let mut running = Program(child);
    let mut lines = BufReader::new(running.0.stdout.take().expect("its output is a pipe")).lines();
    let mut line = || lines.next().unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()));
    let address = line().map_err(words)?;
    let address = address.parse().map_err(|_| format!("{}: {address:?} is no address", program.display()))?;
    during(address)?;
    drop(running.0.stdin.take());
    let cpu_ns = line().map_err(words)?;
    let cpu_ns = cpu_ns.parse().map_err(|_| format!("{}: {cpu_ns:?} is no time", program.display()))?;
    Ok(Served { cpu_ns, ..Served::default() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Goal: a Ctrl-C in a terminal, which all processes of its group are told, does not come to the program of a trial.
    #[test]
    fn a_terminal_tells_it_nothing() {
        let place = tempfile::tempdir().expect("room");
        let path = place.path().join("server");
        let script =
            "#!/bin/sh\necho 127.0.0.1:$(cut -d ' ' -f 5 /proc/$$/stat | tail -c 5)\nread end\necho $$\n";
        std::fs::write(&path, script).expect("room");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let serving = Serving { peer_server: path, ..Serving::default() };
        let mut group = 0;
        // Another thread that starts a program may hold the script open for writing for an instant.
        let served = loop {
            let served = serve(&serving, |address| {
                group = u64::from(address.port());
                Ok(())
            });
            if !served.as_ref().is_err_and(|reason| reason.contains("busy")) {
                break served;
            }
        };
        let process = served.expect("it says its process in the end").cpu_ns;
        assert_eq!(group, process % 10_000, "it leads a group of its own");
    }
}
