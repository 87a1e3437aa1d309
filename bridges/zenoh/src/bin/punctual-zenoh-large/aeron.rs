//! Aeron, whose two ends are programs in Java (`peers/aeron`), built by Maven.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Outcome;

/// Options of the Java machine that Aeron needs.
const JAVA_OPTIONS: [&str; 6] = [
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dagrona.disable.bounds.checks=true",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xms512m",
];

/// The built program.
#[derive(Debug)]
pub(super) struct Aeron {
    folder: PathBuf,
}

impl Aeron {
    /// Builds it beside this program.
    pub(super) fn build() -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let folder = program.parent().ok_or("a program without a folder")?.join("aeron");
        let built = Command::new("mvn")
            .args(["--quiet", "--batch-mode", "-f"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/aeron/pom.xml"))
            .arg(format!("-Dbuild.folder={}", folder.display()))
            .arg("compile")
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("cannot run mvn: {error}: install Java 17 and Maven"))?;
        if !built.success() {
            return Err(
                "Maven cannot build peers/aeron: `mvn -f peers/aeron/pom.xml compile` says why".into()
            );
        }
        Ok(Self { folder })
    }

    /// Commands for the receiver and for the sender, over `ipc` or a UDP port.
    pub(super) fn ends(&self, link: &str) -> [Command; 2] {
        let log = format!("/dev/shm/punctual-large-{:08x}", punctual_machine::process::random() as u32);
        ["there", "here"].map(|role| {
            let mut java = Command::new("java");
            java.args(JAVA_OPTIONS).arg("-cp").arg(format!("{0}/classes:{0}/lib/*", self.folder.display()));
            java.args(["Large", role, link, &log]);
            java
        })
    }
}
