//! Parts that the tests of the command share: the real program as a child, under a watchdog.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use punctual_lab::scheduling::ControlGroup;
use punctual_machine::clock::monotonic_ns;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) mod schema;

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

// Every suite uses a part of this file.
const _: () = {
    let _ = (schema::faults, summary_of, text, alone, survey, short_survey, punctual_by, interleaved);
    let _ = (
        Started::id,
        Started::out_path,
        Started::err_path,
        Started::signal,
        Started::signal_group,
        Place::alone,
        Place::json,
        Place::path,
        Place::summary,
        Place::world_writable,
    );
    let _ =
        |started: &mut Started| (started.has("", || true), started.ends_before(|| true), started.has_ended());
    let _ = (findings, assert_findings_sum, words, way_into, with_quota);
    let _ = (children, is_root, unprivileged, has_namespaces, result, count);
    let _ = |process: u32| (has_thread(process, ""), all_ready(process));
    let _ = (Stop::make, Stop::leaves, is_stop_named, assert_no_other_cause, own_address, STOPPED_RUNS_MAX);
};

/// A directory of one test, where its command runs.
pub(crate) struct Place {
    directory: TempDir,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory"), _turn: None }
    }

    /// One whose test is [`alone`] meanwhile.
    pub(crate) fn alone() -> Self {
        Self { _turn: Some(alone()), ..Self::new() }
    }

    /// One that another user may write to.
    pub(crate) fn world_writable() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let place = Self::new();
        fs::set_permissions(place.directory.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `punctual` here to its end.
    pub(crate) fn punctual(&self, line: &str) -> Ended {
        self.start(punctual(line)).end()
    }

    /// JSON that the command prints when it ends well.
    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.punctual(line).with(0).out).expect("JSON")
    }

    /// A summary in a file here, once it is known to keep the contract.
    pub(crate) fn summary(&self, file: &str) -> Value {
        summary_of(&text(&self.path(file)))
    }

    /// Starts a command here, in a process group of its own, as a shell does.
    pub(crate) fn start(&self, mut command: Command) -> Started {
        // Files, not pipes: nobody has to read them for the command to go on.
        let out = tempfile::NamedTempFile::new().expect("room");
        let err = tempfile::NamedTempFile::new().expect("room");
        let to = |file: &File| Stdio::from(file.try_clone().expect("a descriptor"));
        command.stdin(Stdio::null()).stdout(to(out.as_file())).stderr(to(err.as_file()));
        let child = command.current_dir(self.directory.path()).process_group(0).spawn().expect("a program");
        Started { shown: format!("{command:?}"), child, out, err, started: Instant::now() }
    }
}

/// `punctual` with arguments that have no blanks, as people type them.
pub(crate) fn punctual(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.args(line.split_whitespace());
    command
}

/// The comparison of two commands in turn, each of which is one argument.
pub(crate) fn interleaved(one: &str, other: &str, more: &str) -> Command {
    let mut command = punctual("compare --interleave");
    command.args([one, other]).args(more.split_whitespace());
    command
}

/// `punctual` by way of another program, such as `taskset -c 0`.
pub(crate) fn punctual_by(way: &[&str], line: &str) -> Command {
    let mut command = Command::new(way[0]);
    command.args(&way[1..]).arg(env!("CARGO_BIN_EXE_punctual")).args(line.split_whitespace());
    command
}

pub(crate) fn is_root() -> bool {
    let status = text("/proc/self/status".as_ref());
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// `punctual` as the user that owns nothing, without any capability; as that user already, as we are. Its place is
/// [`Place::world_writable`]. None, and a word, where that cannot be.
pub(crate) fn unprivileged(line: &str) -> Option<Command> {
    if !is_root() {
        return Some(punctual(line));
    }
    let way = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let way = [&way[..], &["--inh-caps=-all", "--bounding-set=-all", "--"]].concat();
    let mut probe = Command::new(way[0]);
    let probe = probe.args(&way[1..]).args(["test", "-x", env!("CARGO_BIN_EXE_punctual")]);
    if !probe.status().is_ok_and(|status| status.success()) {
        punctual_machine::skipped!(
            "no setpriv here, or nobody may not run {}",
            env!("CARGO_BIN_EXE_punctual")
        );
        return None;
    }
    Some(punctual_by(&way, line))
}

/// Returns true if this process may make network namespaces; says so if not.
pub(crate) fn has_namespaces() -> bool {
    let probe =
        std::thread::spawn(punctual_machine::namespace::unshare_network).join().expect("the thread ends");
    if let Err(error) = &probe {
        punctual_machine::skipped!("{error}");
    }
    probe.is_ok()
}

/// The first result of that name.
#[track_caller]
pub(crate) fn result<'a>(summary: &'a Value, name: &str) -> &'a Value {
    result_where(summary, name, |_| true)
}

/// Of results of one name the first that is so.
#[track_caller]
pub(crate) fn result_where<'a>(summary: &'a Value, name: &str, is_so: impl Fn(&Value) -> bool) -> &'a Value {
    let results = summary["results"].as_array().expect("results");
    let found = results.iter().find(|result| result["name"] == name && is_so(result));
    found.unwrap_or_else(|| panic!("no result {name} in {results:#?}"))
}

/// Findings of that cause in what `explain` says.
pub(crate) fn findings<'a>(said: &'a Value, cause: &str) -> Vec<&'a Value> {
    let all = said["findings"].as_array().expect("a list");
    all.iter().filter(|finding| finding["cause"] == cause).collect()
}

/// Each finding accounts for its whole excess.
#[track_caller]
pub(crate) fn assert_findings_sum(said: &Value) {
    for finding in said["findings"].as_array().expect("a list") {
        let causes = finding["causes"].as_array().expect("a list");
        let named: u64 = causes.iter().map(|cause| count(cause, "ns")).sum();
        assert_eq!(named + count(finding, "unexplained_ns"), count(finding, "excess_ns"), "{finding:#}");
    }
}

/// The text, wherever its lines break.
pub(crate) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A shell's way into a control group with a quota, for [`punctual_by`].
pub(crate) fn way_into(group: &ControlGroup) -> String {
    format!("echo $$ > {} && exec \"$0\" \"$@\"", group.members()[0].display())
}

/// A control group whose members have so much of each 100 ms. None, and a word, where there can be none.
pub(crate) fn with_quota(name: &str, quota: Duration) -> Option<ControlGroup> {
    let group = ControlGroup::new(name);
    let allowed = group.allow_us(quota.as_micros() as u64);
    allowed.inspect_err(|reason| punctual_machine::skipped!("{reason}")).ok().map(|()| group)
}

pub(crate) fn count(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} is no count in {value:#}"))
}

/// The pids of a process's children.
pub(crate) fn children(parent: u32) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("proc is mounted").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_child = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        behind_name.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    };
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(is_child).collect()
}

/// Returns true if a process has a thread of that name.
pub(crate) fn has_thread(process: impl std::fmt::Display, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let mut tasks = tasks.into_iter().flatten().flatten();
    tasks.any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|found| found.trim() == name))
}

/// Returns true if all vehicles of this run are ready: a second later, behind the barrier, values travel. Then its controls begin.
pub(crate) fn all_ready(run: u32) -> bool {
    has_thread(run, "control")
}

/// A command that runs.
pub(crate) struct Started {
    shown: String,
    child: Child,
    out: tempfile::NamedTempFile,
    err: tempfile::NamedTempFile,
    started: Instant,
}

impl Started {
    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Path of the file with its output so far.
    pub(crate) fn out_path(&self) -> PathBuf {
        self.out.path().to_owned()
    }

    /// Path of the file with its output so far on standard error.
    pub(crate) fn err_path(&self) -> PathBuf {
        self.err.path().to_owned()
    }

    /// Signals as Ctrl-C does on a terminal: everybody in the foreground gets it.
    pub(crate) fn signal_group(&self, name: &str) {
        send(name, &format!("-{}", self.child.id()));
    }

    /// Signals as `kill` does: nobody else gets it.
    pub(crate) fn signal(&self, name: &str) {
        send(name, &self.child.id().to_string());
    }

    /// Waits until something is so, and fails if the command ends or hangs before.
    pub(crate) fn has(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let ends = self.ends_before(is_so);
        assert!(!ends, "{} ended before {what}: {}", self.shown, text(self.err.path()));
    }

    /// Waits until something is so; true if the command ended before. Fails if it hangs.
    pub(crate) fn ends_before(&mut self, is_so: impl Fn() -> bool) -> bool {
        while !is_so() {
            if self.child.try_wait().expect("our child").is_some() {
                return true;
            }
            self.look_at_the_clock();
        }
        false
    }

    /// Returns true if it has ended. Fails if it hangs.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.look_at_the_clock();
        self.child.try_wait().expect("our child").is_some()
    }

    fn look_at_the_clock(&mut self) {
        if self.started.elapsed() > PATIENCE {
            let _gone = self.child.kill();
            let (out, err) = (text(self.out.path()), text(self.err.path()));
            panic!("{} hangs\n{out}\n{err}", self.shown);
        }
        std::thread::sleep(Duration::from_millis(10));
    }

    pub(crate) fn end(mut self) -> Ended {
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                let (out, err) = (text(self.out.path()), text(self.err.path()));
                let shown = std::mem::take(&mut self.shown);
                return Ended { shown, code: status.code(), out, err };
            }
            self.look_at_the_clock();
        }
    }
}

impl Drop for Started {
    /// A test that fails leaves nothing running: it would disturb those behind it.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone_meanwhile = is_sent("-KILL", &format!("-{}", self.child.id()));
            let _reaped = self.child.wait();
        }
    }
}

fn send(signal: &str, to: &str) {
    assert!(is_sent(signal, to));
}

/// Returns true if there was a process to send it to. The shell has `kill`, which a bare container lacks as a program.
pub(crate) fn is_sent(signal: &str, to: &str) -> bool {
    Command::new("sh").args(["-c", "kill \"$@\"", "kill", signal, to]).status().expect("a shell").success()
}

/// Runs of which one at least shows a stop as what it is. Without the kernel's trace another thread of the process may notice its
/// end late, which makes it unexplained.
pub(crate) const STOPPED_RUNS_MAX: usize = 5;

/// A process was stopped: until when, by `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    to_ns: u64,
}

impl Stop {
    /// Stops a process for so long. None where it is gone: the test was held up for longer than its run lasts.
    pub(crate) fn make(process: &str, lasts: Duration) -> Option<Self> {
        let is_stopped = is_sent("-STOP", process);
        std::thread::sleep(lasts);
        let to_ns = monotonic_ns();
        (is_sent("-CONT", process) && is_stopped).then_some(Self { to_ns })
    }

    /// Returns true if a `run response` that takes `lasts` still had `room` to go when the stop was over.
    pub(crate) fn leaves(self, room: Duration, summary: &Value, lasts: Duration) -> bool {
        let began_ns = count(&summary["response"], "began_ns");
        u128::from(self.to_ns) + room.as_nanos() <= u128::from(began_ns) + lasts.as_nanos()
    }
}

/// Returns true if the longest lateness is named as the stop of this side, which lasted so long. A stop may be unexplained, and a busy
/// machine may keep somebody from running for longer. Any other cause is wrong, and so is a stop of anybody else.
#[track_caller]
pub(crate) fn is_stop_named(result: &Value, side: &str, stop: Duration) -> bool {
    let late = result["late"].as_array().expect("a list");
    assert!(late.iter().all(|share| share["cause"] != "stopped" || share["side"] == side), "{result:#}");
    // A stop before the trial has begun makes nothing late, and any lateness then is no stop.
    let Some(first) =
        late.first().filter(|first| u128::from(count(first, "excess_ns")) * 2 > stop.as_nanos())
    else {
        eprintln!("once more: nothing was late for as long as it was stopped");
        return false;
    };
    match first["cause"].as_str().expect("a word") {
        "run_queue" | "steal" => false,
        cause => {
            assert!(["stopped", "unexplained"].contains(&cause) && first["side"] == side, "{result:#}");
            cause == "stopped"
        }
    }
}

/// Where no stop is named in what `explain` says, nothing that lasted about as long has a cause that it cannot have.
#[track_caller]
pub(crate) fn assert_no_other_cause(said: &Value, stop: Duration) {
    let findings = said["findings"].as_array().expect("a list");
    let is_long = |one: &&Value| u128::from(count(one, "excess_ns")) * 4 >= stop.as_nanos() * 3;
    for one in findings.iter().filter(is_long) {
        let cause = one["cause"].as_str().expect("a word");
        assert!(["unexplained", "run_queue", "steal"].contains(&cause), "{one:#}");
    }
}

/// An address of this host that no other process's test uses: a free port of it stays free until it is bound.
pub(crate) fn own_address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + high % 64, middle, low)
}

/// The end of a command, and its output.
pub(crate) struct Ended {
    shown: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Fails unless the command ended so; shows what it said.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}\n{}", self.shown, self.out, self.err);
        self
    }
}

pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A summary, once it is known to keep the contract.
pub(crate) fn summary_of(json: &str) -> Value {
    let contract = serde_json::from_str(include_str!("../../../../docs/summary.schema.json"));
    let value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(schema::faults(&contract.expect("the schema is JSON"), &value), Vec::<String>::new());
    value
}

/// One survey at a time: they would measure each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A survey of shared memory in about two seconds.
pub(crate) fn short_survey(more: &str) -> String {
    format!("survey --quick --only shared/ --duration 2s {more}")
}

pub(crate) fn survey(place: &Place, more: &str) -> Ended {
    place.punctual(&short_survey(more)).with(0)
}
