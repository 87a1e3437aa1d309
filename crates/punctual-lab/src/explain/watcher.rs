//! Holds the kernel's trace for programs that may not, and leaves of it what their late messages need.
//!
//! Program and watcher meet in the page of the program's log alone: it tells when a message was late, and nobody answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual::late::{LateSpan, WatchedLog, watched_logs};
use punctual_lab_machine::as_user::as_user;
use punctual_lab_machine::trace_point::TraceRecorder;
use punctual_machine::clock::monotonic_ns;

use super::recorder::{BEFORE_NS, trace_here};
use super::trace::Trace;
use super::trace_file::{ENDING, LogIdentity, TraceFile, beside};
use crate::store::write_new;
use crate::terminal;
use crate::units::{count, micros};

/// Time between two looks for new logs: each look opens every page of the host.
const LOGS_EVERY: Duration = Duration::from_millis(100);

/// Time between two dumps: each stops the rings for a moment, and what comes meanwhile goes into the next.
const DUMPS_EVERY: Duration = Duration::from_millis(20);

/// After a trace that could not be written, the next is tried so much later.
const TRIES_EVERY: Duration = Duration::from_secs(1);

/// A page may claim any span: no dump is longer.
const SPAN_NS_MAX: u64 = 5_000_000_000;

/// Bytes of all traces for one log.
const FOLDER_SIZE_MAX: u64 = 256 << 20;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    recorder: TraceRecorder,
    since_ns: u64,
    /// Where traces go; beside each log if not given.
    out: Option<PathBuf>,
    logs: Vec<Watched>,
    looked_at: Option<Instant>,
    dumped_at: Option<Instant>,
    account: WatchAccount,
}

/// Counts of late messages and of their dumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchAccount {
    /// Logs that were watched.
    pub logs: u64,
    /// Late messages whose time is in a trace.
    pub covered: u64,
    /// Late messages of whose time a trace lacks a part: a ring was full, or a dump stopped it.
    pub partly: u64,
    /// Traces that were written.
    pub traces: u64,
    /// Late messages that came faster than was looked.
    pub missed: u64,
    /// Late messages whose trace could not be taken or written.
    pub failed: u64,
}

/// A log, and what was late since the last dump.
#[derive(Debug)]
struct Watched {
    log: WatchedLog,
    program: String,
    late: Vec<LateSpan>,
    /// When its last trace could not be written.
    failed_at: Option<Instant>,
    number: u64,
}

impl Watched {
    fn of(log: WatchedLog) -> Self {
        let name = fs::read_to_string(format!("/proc/{}/comm", log.process.pid)).unwrap_or_default();
        let program = format!("{} ({})", printable(name.trim_end()), log.process.pid);
        Self { log, program, late: Vec::new(), failed_at: None, number: 0 }
    }

    /// When the first of them began and the last was delivered; no longer than the rings hold for certain.
    fn span(&self) -> Option<(u64, u64)> {
        let from = self.late.iter().map(|span| span.from_ns).min()?;
        let to = self.late.iter().map(|span| span.to_ns).max()?;
        Some((from.max(to.saturating_sub(SPAN_NS_MAX)), to))
    }
}

/// The part of a message's time that a trace is to have.
fn demanded(late: &LateSpan) -> (u64, u64) {
    (late.from_ns.max(late.to_ns.saturating_sub(SPAN_NS_MAX)), late.to_ns)
}

/// Text from a program goes to a terminal: nothing in it may move the cursor, nor begin a line.
fn printable(text: &str) -> String {
    terminal::printable(&text.replace('\n', " "))
}

impl Watcher {
    /// Starts to record, and to look for logs. Traces go to `out`, which is there; else to folders beside the logs.
    ///
    /// # Errors
    /// Says what is missing here, and what to do.
    pub fn start(out: Option<&Path>) -> Result<Self, String> {
        let recorder = TraceRecorder::start().map_err(|error| error.to_string())?;
        Ok(Self {
            recorder,
            since_ns: monotonic_ns(),
            out: out.map(Path::to_owned),
            logs: Vec::new(),
            looked_at: None,
            dumped_at: None,
            account: WatchAccount::default(),
        })
    }

    /// Counts of late messages and of their dumps until now.
    pub fn account(&self) -> WatchAccount {
        self.account
    }

    /// Looks once, dumps if a message was late, and returns lines of text about that.
    pub fn turn(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        if self.looked_at.is_none_or(|at| at.elapsed() >= LOGS_EVERY) {
            self.look_for_logs(&mut said);
        }
        self.poll(&mut said);
        if self.dumped_at.is_none_or(|at| at.elapsed() >= DUMPS_EVERY) {
            self.dump(&mut said);
        }
        said
    }

    /// Dumps the late messages that are not dumped yet.
    pub fn finish(&mut self) -> Vec<String> {
        (self.looked_at, self.dumped_at) = (Some(Instant::now()), None);
        self.turn()
    }

    fn poll(&mut self, said: &mut Vec<String>) {
        for watched in &mut self.logs {
            let (mut spans, missed) = watched.log.poll();
            // A lateness that was over before the recorder began is nobody's failure.
            spans.retain(|span| span.to_ns >= self.since_ns);
            watched.late.append(&mut spans);
            self.account.missed += missed;
            if missed > 0 {
                said.push(format!("{}: {} late messages came too fast", watched.program, count(missed)));
            }
            if watched.failed_at.is_some_and(|at| at.elapsed() < TRIES_EVERY) {
                self.account.failed += watched.late.len() as u64;
                watched.late.clear();
            }
        }
    }

    fn look_for_logs(&mut self, said: &mut Vec<String>) {
        // A program that ends reports nothing more once its page is gone. Its earlier reports are polled after that.
        let ended: Vec<PathBuf> =
            self.logs.iter().map(|watched| watched.log.page.clone()).filter(|page| !page.exists()).collect();
        self.poll(said);
        self.logs.retain(|watched| !watched.late.is_empty() || !ended.contains(&watched.log.page));
        let logs = &self.logs;
        let known = |page: &Path| logs.iter().any(|watched| watched.log.page == page);
        for mut log in watched_logs(known) {
            if self.looked_at.is_none() {
                log.skip();
            }
            let watched = Watched::of(log);
            let path =
                watched.log.path.as_deref().map_or("a log of an unknown path".into(), Path::to_string_lossy);
            said.push(format!("watching {}: {}", watched.program, printable(&path)));
            self.account.logs += 1;
            self.logs.push(watched);
        }
        self.looked_at = Some(Instant::now());
    }

    fn dump(&mut self, said: &mut Vec<String>) {
        let spans = self.logs.iter().filter_map(Watched::span);
        let Some(from_ns) = spans.map(|(from, _)| from).min() else { return };
        let taken = self.recorder.dump(from_ns.saturating_sub(BEFORE_NS));
        self.dumped_at = Some(Instant::now());
        let taken = taken.map(|dump| trace_here(&self.recorder.read(&dump), &|at_ns| at_ns));
        let taken = taken.map_err(|error| error.to_string());
        self.account.settle(&mut self.logs, taken, self.out.as_deref(), said);
    }
}

impl WatchAccount {
    /// Leaves to each log what it needs of a trace, if that could be taken.
    fn settle(
        &mut self,
        logs: &mut [Watched],
        taken: Result<Trace, String>,
        out: Option<&Path>,
        said: &mut Vec<String>,
    ) {
        let trace = match taken {
            Ok(trace) => trace,
            Err(reason) => {
                said.push(reason);
                self.failed +=
                    logs.iter_mut().map(|watched| watched.late.drain(..).len() as u64).sum::<u64>();
                return;
            }
        };
        for watched in logs {
            let Some(span) = watched.span() else { continue };
            let late = std::mem::take(&mut watched.late);
            match leave(watched, span, &trace, out) {
                Ok((path, size)) => {
                    watched.failed_at = None;
                    self.traces += 1;
                    let partly = late.iter().filter(|late| !trace.knows(demanded(late))).count() as u64;
                    self.partly += partly;
                    self.covered += late.len() as u64 - partly;
                    let in_part = match partly {
                        0 => String::new(),
                        _ => format!(", {} of them only in part", count(partly)),
                    };
                    let longest = late.iter().map(|late| late.to_ns - late.from_ns).max().unwrap_or(0);
                    said.push(format!(
                        "{}: {} late, the longest {} µs{in_part}: {} KiB in {}",
                        watched.program,
                        count(late.len() as u64),
                        micros(longest as f64),
                        size >> 10,
                        printable(&path.to_string_lossy()),
                    ));
                }
                Err(reason) => {
                    self.failed += late.len() as u64;
                    if watched.failed_at.replace(Instant::now()).is_none() {
                        said.push(format!("{}: {}", watched.program, printable(&reason)));
                    }
                }
            }
        }
    }
}

/// Writes the part of a trace that a log needs; where, and how many bytes.
fn leave(
    watched: &mut Watched,
    span: (u64, u64),
    trace: &Trace,
    out: Option<&Path>,
) -> Result<(PathBuf, usize), String> {
    let log = &watched.log;
    if log.process.pid_here().is_none() {
        return Err("its threads have other numbers here: it is in another namespace of processes".to_owned());
    }
    let identity = LogIdentity { pid: log.process.pid, made_ns: log.made_ns };
    let trace = trace.within((span.0.saturating_sub(BEFORE_NS), u64::MAX));
    let text = TraceFile { program: watched.program.clone(), log: Some(identity), span, trace }.text();
    let (made_ns, pid) = (log.made_ns, log.process.pid);
    let numbered = |number: u64| format!("{made_ns:020}-{pid}-{number}.{ENDING}");
    let number = &mut watched.number;
    match (out, &log.path) {
        (Some(out), _) => put(out, (numbered, number), &text),
        // The path is what the program says: its user's rights decide what may be written there.
        (None, Some(path)) => {
            let put = || {
                let found =
                    fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
                if !found.is_file() {
                    return Err(format!("{} is no file: choose a folder with --out", path.display()));
                }
                put(&beside(path), (numbered, number), &text)
            };
            as_user(log.user, log.group, put)
                .map_err(|error| format!("{error}: choose a folder with --out"))?
        }
        (None, None) => Err("the path of its log is too long: choose a folder with --out".to_owned()),
    }
}

/// Puts a file into a folder that has room for it, under the next free number. Nothing that stands there is touched: a watcher of before,
/// or another one now, may have left it.
fn put(
    folder: &Path,
    (numbered, number): (impl Fn(u64) -> String, &mut u64),
    text: &str,
) -> Result<(PathBuf, usize), String> {
    let off = |error: std::io::Error| format!("{}: {error}", folder.display());
    if text.len() as u64 > FOLDER_SIZE_MAX {
        return Err(format!(
            "a trace of {} MiB is more than a folder may have: it is left out",
            text.len() >> 20
        ));
    }
    fs::create_dir_all(folder).map_err(off)?;
    let sizes =
        fs::read_dir(folder).map_err(off)?.flatten().filter_map(|entry| Some(entry.metadata().ok()?.len()));
    if sizes.sum::<u64>() + text.len() as u64 > FOLDER_SIZE_MAX {
        let most = FOLDER_SIZE_MAX >> 20;
        return Err(format!(
            "{} has {most} MiB of traces, which are the most: move some away",
            folder.display()
        ));
    }
    let mut next = || {
        *number += 1;
        numbered(*number - 1)
    };
    let path = write_new(folder, &mut next, text.as_bytes()).map_err(off)?;
    Ok((path, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::trace::CpuEvents;
    use punctual::LateLog;

    /// Goal: events that the recorder could not copy are in no trace. Late messages of that time are counted as failed, and nothing is
    /// written.
    #[test]
    fn a_dump_that_fails_covers_nothing() {
        let place = tempfile::tempdir().expect("room");
        let path = place.path().join("late.jsonl");
        let _log = LateLog::create(&path, Duration::from_secs(1)).expect("a log");
        let is_ours = |log: &WatchedLog| log.path.as_deref() == Some(&path);
        let watched = Watched::of(watched_logs(|_| false).into_iter().find(is_ours).expect("its page"));
        let late = vec![LateSpan { from_ns: 1, to_ns: 2, thread: 3 }; 2];
        let mut logs = [Watched { late: late.clone(), ..watched }];
        let (mut account, mut said) = (WatchAccount::default(), Vec::new());
        account.settle(&mut logs, Err("no memory for a dump".to_owned()), None, &mut said);
        assert_eq!(account, WatchAccount { failed: 2, ..WatchAccount::default() }, "{said:?}");
        assert!(logs[0].late.is_empty() && !beside(&path).exists() && said == ["no memory for a dump"]);
        logs[0].late = late;
        account.settle(&mut logs, Ok(known(0)), None, &mut said);
        assert_eq!((account.covered, account.traces, account.failed), (2, 1, 2), "{said:?}");
    }

    /// A trace of one CPU from an instant on.
    fn known(since_ns: u64) -> Trace {
        let cpu = CpuEvents { since_ns, until_ns: 20_000_000_000, ..CpuEvents::default() };
        Trace { cpus: vec![cpu], ..Trace::default() }
    }

    /// Goal: a late message that began before a busy CPU's ring did counts as covered in part, and that is said. Of a message beyond the
    /// most of a trace its end is demanded.
    #[test]
    fn a_trace_that_does_not_reach_back_covers_a_part() {
        let place = tempfile::tempdir().expect("room");
        let path = place.path().join("late.jsonl");
        let _log = LateLog::create(&path, Duration::from_secs(1)).expect("a log");
        let is_ours = |log: &WatchedLog| log.path.as_deref() == Some(&path);
        let watched = Watched::of(watched_logs(|_| false).into_iter().find(is_ours).expect("its page"));
        let span = |from_ns, to_ns| LateSpan { from_ns, to_ns, thread: 3 };
        let late = vec![span(5_000, 9_000), span(4_999, 9_000), span(0, 5_000 + SPAN_NS_MAX)];
        let mut logs = [Watched { late, ..watched }];
        let (mut account, mut said) = (WatchAccount::default(), Vec::new());
        account.settle(&mut logs, Ok(known(5_000)), None, &mut said);
        assert_eq!((account.covered, account.partly, account.failed), (2, 1, 0), "{said:?}");
        assert!(said[0].contains("1 of them only in part"), "{said:?}");
    }

    /// Goal: a folder that is full takes no more, says so and what to do, and keeps what it has.
    #[test]
    fn a_full_folder_keeps_what_it_has() {
        let place = tempfile::tempdir().expect("room");
        let folder = place.path().join("late.jsonl.traces");
        let put =
            |folder: &Path, from: u64| put(folder, (|number| number.to_string(), &mut { from }), "four");
        let (path, size) = put(&folder, 1).expect("room");
        assert_eq!((fs::read(&path).expect("a file"), size), (b"four".to_vec(), 4));
        // Another watcher begins with the same number.
        assert_eq!(put(&folder, 1).expect("room").0, folder.join("2"));
        // A file may claim its size without taking the room.
        fs::File::create(folder.join("7")).expect("room").set_len(FOLDER_SIZE_MAX - 10).expect("a hole");
        let reason = put(&folder, 3).expect_err("no room");
        assert!(reason.contains("move some away"), "{reason}");
        assert!(path.exists() && !folder.join("3").exists());
        fs::write(place.path().join("file"), "").expect("room");
        assert!(put(&place.path().join("file"), 1).is_err());
    }
}
