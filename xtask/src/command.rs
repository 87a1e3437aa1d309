//! Running a program: always with a deadline, so that a hang is a failure with a name.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::workspace;

/// Longer than the slowest build on two cores by some margin.
const DEADLINE: Duration = Duration::from_secs(1_800);

/// A program about to run in the root of the repository.
#[derive(Debug)]
pub(crate) struct Run {
    command: Command,
    deadline: Duration,
}

impl Run {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(workspace::root()).stdin(Stdio::null());
        Self { command, deadline: DEADLINE }
    }

    /// The cargo that runs this program.
    pub(crate) fn cargo(arguments: &[&str]) -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(arguments)
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Elsewhere than in the root of the repository.
    pub(crate) fn within_folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it in plain sight.
    pub(crate) fn status(mut self) -> Result<(), String> {
        let name = self.name();
        let child = self.command.spawn().map_err(|error| format!("{name}: {error}"))?;
        match wait(child, self.deadline) {
            Some(0) => Ok(()),
            ended => Err(format!("{name} {}", how(ended, self.deadline))),
        }
    }

    /// Runs it with its standard output in a file, returned as text with the exit code (`None`: killed).
    pub(crate) fn output_to(mut self, file: &Path) -> Result<(Option<i32>, String), String> {
        let output = created(file)?;
        self.command.stdout(output);
        self.captured(file)
    }

    /// As [`Self::output_to`], with standard error in the same file.
    pub(crate) fn all_output_to(mut self, file: &Path) -> Result<(Option<i32>, String), String> {
        let output = created(file)?;
        let error = output.try_clone().map_err(|error| format!("{}: {error}", file.display()))?;
        self.command.stdout(output).stderr(error);
        self.captured(file)
    }

    fn captured(mut self, file: &Path) -> Result<(Option<i32>, String), String> {
        let name = self.name();
        let child = self.command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let ended = wait(child, self.deadline);
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok((ended, String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn name(&self) -> String {
        let first = self.command.get_args().next().unwrap_or_default();
        let program = Path::new(self.command.get_program()).file_name().unwrap_or_default();
        format!("{} {}", program.display(), first.display()).trim_end().to_owned()
    }
}

/// Describes how a program ended, for a message.
pub(crate) fn how(ended: Option<i32>, deadline: Duration) -> String {
    match ended {
        Some(code) => format!("ended with {code}"),
        None => format!("was killed by a signal, or had not ended after {} s", deadline.as_secs()),
    }
}

/// Does it for each, two at a time: so many processors CI has. The results stand in the order of the cases.
pub(crate) fn two_at_a_time<T: Sync, R: Send>(cases: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (waiting, ended) = (Mutex::new(cases.iter().enumerate()), Mutex::new(Vec::new()));
    let next = || waiting.lock().expect("nobody panics with it").next();
    let work = || {
        while let Some((number, case)) = next() {
            let became = run(case);
            ended.lock().expect("nobody panics with it").push((number, became));
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let mut ended = ended.into_inner().expect("nobody panicked with it");
    ended.sort_by_key(|(number, _)| *number);
    ended.into_iter().map(|(_, became)| became).collect()
}

/// The last lines of a long output.
pub(crate) fn tail(output: &str, lines: usize) -> String {
    let all: Vec<&str> = output.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A new file, and the folder for it.
fn created(file: &Path) -> Result<File, String> {
    let failed = |error| format!("{}: {error}", file.display());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    File::create(file).map_err(failed)
}

/// The exit code; `None` if a signal ended it, which is ours once the deadline has passed.
fn wait(mut child: Child, deadline: Duration) -> Option<i32> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) if started.elapsed() < deadline => thread::sleep(Duration::from_millis(20)),
            _ => {
                // It may have ended just now: then there is nothing to kill, and its status is collected below.
                kill_descendants(child.id());
                let _already_ended = child.kill();
                let _status = child.wait();
                return None;
            }
        }
    }
}

/// Processes that a program began do not end with it: cargo waits for the tests that it runs, and they would go on beside later steps.
fn kill_descendants(process: u32) {
    for child in children(process) {
        // Its own children are asked for before it goes, and end after it: else it would begin the next one.
        let grandchildren = children(child);
        kill(child);
        grandchildren.into_iter().for_each(|process| {
            kill_descendants(process);
            kill(process);
        });
    }
}

fn kill(process: u32) {
    let _ended_before = Command::new("sh")
        .args(["-c", "kill \"$@\"", "kill", "-KILL", &process.to_string()])
        .stderr(Stdio::null())
        .status();
}

fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    let lists: Vec<String> = threads.filter_map(|thread| of_thread(thread).ok()).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_is_a_failure() {
        let error = Run::new("sleep").arg("600").within(Duration::from_millis(50)).status().unwrap_err();
        assert!(error.starts_with("sleep 600 was killed"), "{error}");
    }

    #[test]
    fn processes_begun_by_a_hanging_program_end_with_it() {
        let file = workspace::target("xtask").join("began.txt");
        let shell = Run::new("sh").args(&["-c", "sh -c 'sleep 600 & echo $!; wait' & wait"]);
        let (ended, began) = shell.within(Duration::from_secs(5)).output_to(&file).unwrap();
        assert_eq!(ended, None);
        let path = Path::new("/proc").join(began.trim());
        assert!(!began.trim().is_empty());
        let started = Instant::now();
        while path.exists() {
            // It may wait for the first process to collect it; where that never does, it is dead all the same.
            let state = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
            if state.contains(") Z ") {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "it goes on: {state}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn an_exit_code_is_reported() {
        assert_eq!(Run::new("true").status(), Ok(()));
        assert_eq!(Run::new("false").status(), Err("false ended with 1".into()));
    }

    /// Goal: two run at once, each case once. Method: each of two waits for the other.
    #[test]
    fn two_run_at_a_time() {
        let together = std::sync::Barrier::new(2);
        let doubled = two_at_a_time(&[1, 2, 3, 4], |number| {
            together.wait();
            number * 2
        });
        assert_eq!(doubled, [2, 4, 6, 8]);
        assert_eq!(two_at_a_time(&[], |number: &u32| *number), [0; 0]);
    }

    #[test]
    fn a_tail_is_the_end() {
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
