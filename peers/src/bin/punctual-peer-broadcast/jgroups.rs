//! JGroups: a Java process for each member, with the stack that it ships for total order (`sequencer.xml`).

use std::os::unix::process::CommandExt;
use std::process::Command;

use punctual_machine::scheduling::sleep_precisely;

use super::{Options, Outcome, folder, run, sources};

/// Differences from the stack that is shipped, as options of the member.
type Stack = &'static [&'static str];

/// Nothing: datagrams of up to 64,000 B, which the kernel cuts into packets.
pub(super) const AS_SHIPPED: Stack = &[];

/// A datagram is a packet, and what is missing is asked for five times as often.
pub(super) const IN_PACKETS: Stack = &["--datagram", "1400", "--fragment", "1200", "--retransmit-ms", "100"];

/// The Java machine compiles what it sees often.
const WARMUP_MS: &str = "3000";

/// Several machines on few processors: the collector that needs no thread of its own, and memory that none waits for.
const JAVA_OPTIONS: [&str; 4] =
    ["-XX:+UseSerialGC", "-Xms384m", "-Xmx384m", "-Djava.net.preferIPv4Stack=true"];

const ADVICE: &str = "install Java 17 and Maven";

pub(super) fn build() -> Outcome<()> {
    run(Command::new("java").arg("--version"), ADVICE)?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "-f"]).arg(sources("jgroups").join("pom.xml"));
    run(maven.arg(format!("-Dbuild.folder={}", folder("jgroups")?.display())).arg("compile"), ADVICE)
}

/// This process becomes the member.
pub(super) fn member(stack: Stack, options: Options<'_>) -> Outcome<()> {
    let folder = folder("jgroups")?;
    if !folder.join("classes/Member.class").exists() {
        return Err(
            format!("JGroups' member is not there: {ADVICE}, then punctual-peer-broadcast build").into()
        );
    }
    let (addresses, place) = options.addresses()?;
    // Its waits end when they should, as those of our own members do; it passes on to the program.
    sleep_precisely();
    let mut java = Command::new("java");
    java.args(JAVA_OPTIONS)
        .arg("-cp")
        .arg(format!("{0}/classes:{0}/lib/*", folder.display()))
        .args(["Member", "--address", addresses[place], "--warmup-ms", WARMUP_MS])
        .args(stack)
        .args(options.0);
    Err(format!("cannot run java: {}: {ADVICE}", java.exec()).into())
}
