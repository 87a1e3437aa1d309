//! Aeron IPC, played by a small Java program (`aeron/`): built by Maven, run as two processes like everybody.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use punctual_machine::clock::Clock;

use crate::Outcome;
use crate::meeting::Meeting;
use crate::play::Plan;
use crate::rounds::{Game, Outcomes};

/// Of both rings: small enough for the processor's cache in ping-pong, large enough that a stream does not wait for the media driver.
/// The driver moves the writer's limit once in a millisecond.
const PINGPONG_TERM: &str = "16m";
const STREAM_TERM: &str = "64m";

/// Messages before anything counts, in how many turns: the Java machine compiles what it sees often.
const WARMUP: usize = 400_000;
const WARMUP_TURNS: usize = 20;

/// Options that Aeron needs of the Java machine, and options that its own low-latency scripts ask for.
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
pub(crate) struct Aeron {
    folder: PathBuf,
}

/// Why it is not there.
#[derive(Debug)]
pub(crate) struct Unbuilt {
    pub(crate) reason: String,
    /// True if Java and Maven are there, and the build failed all the same.
    pub(crate) broken: bool,
}

impl Unbuilt {
    fn lacking(what: &str, error: impl fmt::Display) -> Self {
        Self { reason: format!("{what}: {error}: install Java 17 and Maven"), broken: false }
    }
}

impl Aeron {
    /// Builds it beside this program.
    pub(crate) fn build() -> Result<Self, Unbuilt> {
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        java.map_err(|error| Unbuilt::lacking("cannot run java", error))?;
        let program = std::env::current_exe().map_err(|error| Unbuilt::lacking("no path here", error))?;
        let folder = program.with_file_name("aeron");
        let built = Command::new("mvn")
            .args(["--quiet", "--batch-mode", "-f"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("aeron/pom.xml"))
            .arg(format!("-Dbuild.folder={}", folder.display()))
            .arg("compile")
            .stdout(Stdio::null())
            .status()
            .map_err(|error| Unbuilt::lacking("cannot run mvn", error))?;
        if !built.success() {
            let reason = "Maven cannot build peers/aeron: `mvn -f peers/aeron/pom.xml compile` says why";
            return Err(Unbuilt { reason: reason.to_owned(), broken: true });
        }
        Ok(Self { folder })
    }

    /// Starts two processes, and has them play until the Java machine has compiled what it sees often.
    pub(crate) fn open(&self, game: Game, size: usize, cpus: [usize; 2]) -> Outcome<AeronPair> {
        let meeting = Meeting::new()?;
        let [result, log] =
            ["result", "aeron"].map(|end| Scratch(PathBuf::from(format!("/dev/shm/{}.{end}", meeting.name))));
        let start = |role: &str, cpu: usize| -> Outcome<Running> {
            let term = if game == Game::PingPong { PINGPONG_TERM } else { STREAM_TERM };
            let mut child = Command::new("java")
                .args(JAVA_OPTIONS)
                .arg(format!("-Dterm={term}"))
                .arg("-cp")
                .arg(format!("{0}/classes:{0}/lib/*", self.folder.display()))
                .args(["Peer", role, game.name(), &size.to_string(), &cpu.to_string()])
                .args([&log.0, &result.0])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| format!("cannot run java: {error}"))?;
            let input = child.stdin.take().ok_or("java has no input")?;
            let output = BufReader::new(child.stdout.take().ok_or("java has no output")?);
            Ok(Running { child, input, output })
        };
        let (here, there) = (start("here", cpus[0])?, start("there", cpus[1])?);
        let mut pair = AeronPair { here, there, game, result, _log: log };
        pair.here.hear("ready")?;
        pair.there.hear("ready")?;
        // As many as all turns of the others warm up for, and more: code is interpreted at first.
        for _ in 0..WARMUP_TURNS {
            pair.turn(Plan { size, warmup: 0, messages: WARMUP / WARMUP_TURNS })?;
        }
        Ok(pair)
    }
}

/// Aeron between two Java processes.
pub(crate) struct AeronPair {
    here: Running,
    there: Running,
    game: Game,
    result: Scratch,
    _log: Scratch,
}

impl AeronPair {
    pub(crate) fn turn(&mut self, plan: Plan) -> Outcome<Outcomes> {
        let line = format!("{} {}", plan.warmup, plan.messages);
        for process in [&mut self.there, &mut self.here] {
            writeln!(process.input, "{line}")?;
            process.input.flush()?;
        }
        self.here.hear("done")?;
        self.there.hear("done")?;
        Outcomes::of_java(&std::fs::read(&self.result.0)?, self.game, plan)
    }
}

/// A process that ends with this value, regardless of the end of the other.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn hear(&mut self, expected: &str) -> Outcome<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim() {
            said if said == expected => Ok(()),
            said => Err(format!("java said {said:?} where {expected:?} was due").into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _nothing_left = self.child.wait();
    }
}

/// Files that a session leaves in the memory file system.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
        let _gone_too = std::fs::remove_dir_all(&self.0);
    }
}

impl Outcomes {
    /// Java's look at the clock costs more than ours: the difference is not Aeron's, and is taken off.
    fn of_java(bytes: &[u8], game: Game, plan: Plan) -> Outcome<Self> {
        let mut numbers =
            bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight")));
        let clock = numbers.next().ok_or("aeron: an empty result")?;
        let excess = clock.saturating_sub(clock_cost());
        let values: Vec<u64> = numbers.map(|value| value.saturating_sub(excess)).collect();
        match game {
            Game::PingPong if values.len() == plan.messages => Ok(Self::Latencies(values)),
            Game::Stream if values.len() == 1 => Ok(Self::Duration(values[0])),
            _ => Err(format!("aeron: {} results", values.len()).into()),
        }
    }
}

/// Time that is in every latency, ns: from one look at the clock to the next.
pub(crate) fn clock_cost() -> u64 {
    let clock = Clock::get();
    let mut steps: Vec<u64> = (0..10_001)
        .map(|_| {
            let start = clock.now_after_loads();
            clock.nanos(clock.now_after_loads().since(start))
        })
        .collect();
    steps.sort_unstable();
    steps[steps.len() / 2]
}
