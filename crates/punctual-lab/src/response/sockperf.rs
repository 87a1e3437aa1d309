//! sockperf as a peer: its unmodified client and server in our namespaces, in turn with us.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::settings::ResponseSettings;
use super::testbed::{EchoRequest, ResponseTestbed};
use crate::sample::Samples;
use crate::sample::sockperf::read_log;

/// The name of its program, and of its cell.
pub const NAME: &str = "sockperf";

/// The port of its server.
const PORT: u16 = 11_111;

/// Time that its client leaves out at the start and at the end of a run; we add it to the time that it is given.
const LEFT_OUT: Duration = Duration::from_millis(450);

/// Runs its ping-pong between the two ends of our testbed, blocking, pinned as we are: its round trips, in the order of its
/// log.
pub fn measure(
    testbed: &mut ResponseTestbed,
    settings: &ResponseSettings,
    share: Duration,
) -> Result<Samples, String> {
    let [_, there] = testbed.addresses();
    let pinned = |cpu: Option<usize>, call: String| -> Vec<String> {
        let call = cpu.map_or(call.clone(), |cpu| format!("taskset -c {cpu} {call}"));
        call.split(' ').map(str::to_owned).collect()
    };
    let server = format!("sockperf server -i {there} -p {PORT}");
    testbed.tell::<()>(&EchoRequest::Spawn(pinned(settings.cpus[1], server)))?;
    // It has no way to say that it listens.
    std::thread::sleep(Duration::from_millis(300));
    let log = std::env::temp_dir().join(format!("punctual-sockperf-{}.csv", std::process::id()));
    let seconds = (share + LEFT_OUT).as_secs_f64().max(1.0).ceil();
    let size = settings.asked.size;
    let client = format!("sockperf ping-pong -i {there} -p {PORT} -m {size} -t {seconds} --full-log");
    let words = pinned(settings.cpus[0], client);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(&log);
    let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let ended = testbed.tell::<()>(&EchoRequest::EndProgram);
    let ran = ran.map_err(|error| format!("cannot run {}: {error}; install sockperf", words[0]))?;
    ended?;
    let text = std::fs::read_to_string(&log);
    let _only_ours = std::fs::remove_file(&log);
    if !ran.success() {
        return Err(format!("sockperf ended with {ran}: is it installed?"));
    }
    let text = text.map_err(|error| format!("sockperf wrote no log: {error}"))?;
    let mut samples = read_log(&text).map_err(|error| format!("its log: {error}"))?;
    // Its client leaves its own warm-up out of the log.
    samples.facts.warmup = Some(0);
    Ok(samples)
}

/// True if there is a sockperf to run.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|directory: std::path::PathBuf| Path::new(&directory).join(NAME).exists())
}
