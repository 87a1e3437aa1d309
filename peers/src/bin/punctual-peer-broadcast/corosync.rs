//! Corosync: a daemon for each member, which shares no folder and no process with another one, and a client of its closed process
//! group (CPG). As Debian ships it, with the smallest timer that it takes for a token that was lost.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use punctual_machine::scheduling::sleep_precisely;

use super::{Options, Outcome, folder, run, sources};

/// Folders that the daemon writes to: a member has these to itself.
const FOLDERS: [&str; 3] = ["/run", "/var/lib/corosync", "/dev/shm"];
const CONFIGURATION: &str = "/run/corosync.conf";
const LOG: &str = "/run/corosync.log";

/// Where its daemons meet.
const GROUP: &str = "239.79.5.17";
const PORT: u16 = 5_405;

/// Payload of a message on the wire, bytes: the result of both transports for an MTU of 1,500, less their headers.
const FRAME: &str = "1400";

/// Nothing here is compiled while it runs.
const WARMUP_MS: &str = "200";

/// Between two looks whether one of both has ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

const ADVICE: &str = "install corosync and libcpg-dev, and a C compiler";

fn program() -> Outcome<std::path::PathBuf> {
    Ok(folder("corosync")?.join("peer"))
}

pub(super) fn build() -> Outcome<()> {
    run(Command::new("corosync").arg("-v"), ADVICE)?;
    fs::create_dir_all(folder("corosync")?)?;
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-Wall", "-o"])
        .arg(program()?)
        .arg(sources("corosync").join("peer.c"))
        .arg("-lcpg");
    run(compiler.arg("-lcorosync_common"), ADVICE)
}

/// A member in a mount namespace and a process namespace of its own: its daemon ends with it, in every case.
pub(super) fn member(transport: &str, options: Options<'_>) -> Outcome<()> {
    if !program()?.exists() {
        return Err(
            format!("Corosync's member is not there: {ADVICE}, then punctual-peer-broadcast build").into()
        );
    }
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg(std::env::current_exe()?);
    Err(format!("cannot run unshare: {}", apart.args(["within", transport]).args(options.0).exec()).into())
}

/// The same within these namespaces.
pub(super) fn member_within(transport: &str, options: Options<'_>) -> Outcome<()> {
    for folder in FOLDERS.into_iter().filter(|folder| Path::new(folder).is_dir()) {
        run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", folder]), "a member of Corosync needs root")?;
    }
    fs::create_dir_all("/run/corosync")?;
    fs::write(CONFIGURATION, configuration(transport, &options.addresses()?.0)?)?;
    // Waits end when they should, as those of our own members do; it passes on to the daemon and the program.
    sleep_precisely();
    let mut daemon = Command::new("corosync")
        .args(["-f", "-c", CONFIGURATION])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot run corosync: {error}: {ADVICE}"))?;
    let member = Command::new(program()?)
        .args(["--daemon", &daemon.id().to_string(), "--frame", FRAME, "--warmup-ms", WARMUP_MS])
        .args(options.0)
        .spawn();
    let ended = member.map_err(Into::into).and_then(|mut member| wait(&mut member, &mut daemon));
    // Gone already, where it failed.
    let _ended = daemon.kill();
    let _reaped = daemon.wait();
    ended
}

/// Until the member ends; its daemon must not end before.
fn wait(member: &mut Child, daemon: &mut Child) -> Outcome<()> {
    loop {
        if member.try_wait()?.is_some() {
            return Ok(());
        }
        if let Some(ended) = daemon.try_wait()? {
            member.kill()?;
            member.wait()?;
            let log = fs::read_to_string(LOG).unwrap_or_default();
            return Err(format!("corosync: {ended}: {}", log.lines().last().unwrap_or("no log")).into());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

fn configuration(transport: &str, addresses: &[&str]) -> Outcome<String> {
    let mut text = format!(
        "totem {{\n version: 2\n cluster_name: punctual\n transport: {transport}\n crypto_cipher: none\n crypto_hash: none\n \
         token_retransmit: 30\n interface {{\n  linknumber: 0\n  bindnetaddr: {}\n  mcastaddr: {GROUP}\n  mcastport: {PORT}\n }}\n}}\n\
         logging {{\n to_stderr: no\n to_syslog: no\n to_logfile: yes\n logfile: {LOG}\n}}\nnodelist {{\n",
        addresses.first().ok_or("no address")?
    );
    for (place, address) in addresses.iter().enumerate() {
        let id = place + 1;
        writeln!(text, " node {{\n  ring0_addr: {address}\n  name: member-{place}\n  nodeid: {id}\n }}")?;
    }
    Ok(text + "}\n")
}
