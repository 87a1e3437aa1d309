//! Two commands in turn: each makes a run, A B B A A B …, so that a drift of the machine meets both alike.

use std::any::Any;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::ProgressBar;
use punctual_machine::signal::{
    PostponedEnd, catch_interrupts, insisted, interrupt_group, interrupted, kill_group,
};

use super::progress::progress;
use crate::compare::PAIRS_MIN;
use crate::doubt::{Cause, Doubt};
use crate::error::Failure;
use crate::run::make_inner;
use crate::store::vacant_folder;
use crate::terminal::say;

/// The runs of both sides.
pub(super) type MadeRuns = [Vec<PathBuf>; 2];

/// Pairs of runs that were made.
pub(super) struct Played {
    pub(super) made: MadeRuns,
    /// The comparison that they are for says so, if a Ctrl-C ended it before all were made.
    cut_short: Option<Cause>,
    broken: Broken,
}

impl Played {
    /// The doubts about the comparison that the ends of the runs raise.
    pub(super) fn doubts(&self) -> impl Iterator<Item = Doubt> {
        self.cut_short.clone().into_iter().chain(self.broken.doubt()).map(Doubt::from)
    }

    /// The end of the command, once all is shown.
    ///
    /// # Errors
    /// A run broke a promise.
    pub(super) fn end(&self) -> Result<(), Failure> {
        self.broken.end()
    }
}

/// Runs that ended with 1, by name. A panic stands in none of their figures: the exit code alone tells of it.
#[derive(Default)]
pub(super) struct Broken(Vec<String>);

impl Broken {
    fn note(&mut self, place: &Path, end: RunEnd) {
        if end == RunEnd::Broken {
            self.0.push(place.display().to_string());
        }
    }

    fn doubt(&self) -> Option<Cause> {
        (!self.0.is_empty()).then(|| Cause::PromisesBroken { runs: self.0.clone() })
    }

    /// The end of the command, once all is shown.
    pub(super) fn end(&self) -> Result<(), Failure> {
        self.doubt().map_or(Ok(()), |broken| Err(Failure::Promise(broken.to_string())))
    }
}

/// The end of a command that made its run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    Well,
    /// A promise did not hold, or a thread or process of it crashed.
    Broken,
}

/// Runs to be made in turn.
pub(super) struct Turns<'a> {
    /// Of both sides.
    pub(super) commands: [&'a str; 2],
    /// So many, or as many as `wanted` says of those that were made.
    pub(super) pairs: Option<usize>,
    /// Where runs go; else `runs/TIME-NAME`.
    pub(super) out: Option<&'a Path>,
    pub(super) name: &'a str,
    pub(super) wanted: &'a dyn Fn(&MadeRuns) -> Result<usize, Failure>,
    /// Checks that the first pair can be compared: no other pair brings what it lacks.
    pub(super) check: &'a dyn Fn(&MadeRuns) -> Result<(), Failure>,
    /// Changes the host for a run of a side, until what it returns is dropped.
    pub(super) held: &'a dyn Fn(usize) -> Result<Option<Box<dyn Any>>, Failure>,
}

/// Makes the pairs; returns where the runs are. A Ctrl-C ends it after the run that is being made; whole pairs count. The second ends
/// that run, too.
pub(super) fn play(turns: &Turns<'_>) -> Result<Played, Failure> {
    catch_interrupts()?;
    let Turns { out, name, .. } = *turns;
    let folder = folder(out, name)?;
    let made = play_into(turns, &folder);
    if made.is_err() {
        // A folder that holds something stays.
        let _empty = ["a", "b"].map(|side| std::fs::remove_dir(folder.join(side)));
        let _empty = std::fs::remove_dir(&folder);
    }
    made
}

fn play_into(turns: &Turns<'_>, folder: &Path) -> Result<Played, Failure> {
    let Turns { commands, pairs, wanted, check, held, .. } = *turns;
    let bar = progress(false);
    let mut made = [Vec::new(), Vec::new()];
    let mut broken = Broken::default();
    let (mut pair, mut count) = (0, pairs.unwrap_or(PAIRS_MIN));
    while pair < count && !interrupted() {
        bar.set_length(2 * count as u64);
        let places = ["a", "b"].map(|side| folder.join(side).join(format!("{:03}", pair + 1)));
        // Every other pair goes backwards, so that nobody is always the second.
        let first = usize::from(pair % 2 == 1);
        for side in [first, 1 - first] {
            if interrupted() {
                break;
            }
            let held = held(side)?;
            let end = run(commands[side], &places[side], &bar).inspect_err(|_| {
                let _empty = std::fs::remove_dir(&places[side]);
            })?;
            broken.note(&places[side], end);
            drop(held);
        }
        if !interrupted() {
            made.iter_mut().zip(places).for_each(|(made, place)| made.push(place));
        }
        pair += 1;
        if pair == 1 && !interrupted() {
            check(&made).inspect_err(|_| {
                bar.finish_and_clear();
                say(format_args!("runs in {}", folder.display()));
            })?;
        }
        if pair == count && pairs.is_none() && !interrupted() {
            count = wanted(&made)?;
        }
    }
    bar.finish_and_clear();
    if made[0].is_empty() {
        return Err(Failure::Machine("interrupted before the first pair of runs was made".to_owned()));
    }
    say(format_args!("runs in {}", folder.display()));
    let pairs = made[0].len();
    let cut_short = (pairs < count).then_some(Cause::PairsCutShort { pairs });
    Ok(Played { made, cut_short, broken })
}

/// Runs one command, which takes its own turns; returns where its run is, and whether it broke a promise.
pub(super) fn once(command: &str, out: Option<&Path>, name: &str) -> Result<(PathBuf, Broken), Failure> {
    catch_interrupts()?;
    let (bar, place) = (progress(false), vacant_folder(out, name)?);
    bar.set_length(1);
    let end = run(command, &place, &bar).inspect_err(|_| {
        // A folder that holds something stays.
        let _empty = std::fs::remove_dir(&place);
    })?;
    bar.finish_and_clear();
    say(format_args!("run in {}", place.display()));
    let mut broken = Broken::default();
    broken.note(&place, end);
    Ok((place, broken))
}

fn folder(out: Option<&Path>, name: &str) -> Result<PathBuf, Failure> {
    let folder = vacant_folder(out, name)?;
    for side in ["a", "b"] {
        let side = folder.join(side);
        std::fs::create_dir(&side).map_err(|error| {
            Failure::Machine(format!("{}: {error}: choose another directory with --out", side.display()))
        })?;
    }
    Ok(folder)
}

/// Runs one command, with the place of its run added. The word `punctual` is this program.
fn run(command: &str, place: &Path, bar: &ProgressBar) -> Result<RunEnd, Failure> {
    bar.set_message(place.display().to_string());
    let own = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).unwrap_or(path.clone());
    let mut command_line = Command::new("sh");
    make_inner(&mut command_line)
        .args(["-c", &format!("{command} --quiet --out \"$1\""), "sh"])
        .arg(place)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Its own, so that a Ctrl-C comes to all of it once, from here, regardless of its target.
        .process_group(0);
    let failed = |error| Failure::Machine(format!("cannot run sh: {error}"));
    // The terminal tells that group nothing, and it would go on without us.
    let _end = PostponedEnd::new()?;
    let status = command_line.spawn().and_then(wait_for).map_err(failed)?;
    bar.inc(1);
    match status.code() {
        // A run in which nobody answered is one, too.
        Some(3) if place.join("summary.json").is_file() => Ok(RunEnd::Well),
        Some(0) if place.join("run.json").is_file() => Ok(RunEnd::Well),
        Some(1) if place.join("run.json").is_file() => Ok(RunEnd::Broken),
        // Its own words stand above: this program measured, and what broke left nothing to compare.
        Some(1) if is_ours(command) => {
            Err(Failure::Promise(format!("`{command}` ended with 1, and made no run")))
        }
        Some(0 | 1) => Err(Failure::Usage(format!(
            "`{command}` made no run in {}: it must be one that takes --out",
            place.display()
        ))),
        Some(2 | 127) => Err(Failure::Usage(format!("`{command}` is no command that measures"))),
        _ if interrupted() => Ok(RunEnd::Well),
        _ => Err(Failure::Machine(format!("`{command}` failed: {status}"))),
    }
}

/// Returns true if a word of the last command of a line is this program, wherever it lies: that one gets our options.
fn is_ours(command: &str) -> bool {
    let mut words = last_command(command).split_ascii_whitespace();
    words.any(|word| Path::new(word).file_name() == Some(OsStr::new("punctual")))
}

/// The last command of a line of the shell: behind the last separator that stands in no quotes and belongs to no redirection.
fn last_command(line: &str) -> &str {
    let (mut begin, mut quote, mut before) = (0, None, ' ');
    for (at, one) in line.char_indices() {
        let next = line[at + one.len_utf8()..].chars().next();
        match (quote, one) {
            (Some(open), _) if open == one => quote = None,
            (None, '\'' | '"') => quote = Some(one),
            (None, ';' | '\n') => begin = at + 1,
            (None, '|') if before != '>' => begin = at + 1,
            (None, '&') if !matches!(before, '>' | '<') && next != Some('>') => begin = at + 1,
            _ => {}
        }
        before = one;
    }
    &line[begin..]
}

/// Interval between checks for a Ctrl-C: a check is work on the machine that is measured.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Until the command has ended; a Ctrl-C is passed on to all of its processes, once. The second ends them.
fn wait_for(mut child: Child) -> std::io::Result<ExitStatus> {
    let group = child.id();
    let (running, ended) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || pass_interrupts_on(group, &ended));
        let status = child.wait();
        drop(running);
        status
    })
}

fn pass_interrupts_on(group: u32, ended: &Receiver<()>) {
    let mut is_told = false;
    while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        if insisted() {
            return kill_group(group);
        }
        if interrupted() && !is_told {
            interrupt_group(group);
            is_told = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;
    use crate::scheduling::lift;

    /// Goal: the content of a run's plan is no command, regardless of its author.
    #[test]
    fn a_plan_commands_nothing() {
        let place = tempfile::tempdir().expect("room");
        let made = place.path().join("made");
        let evil = format!("lo; touch {} #'\"", made.display());
        let plan = serde_json::json!({
            "mode": "callback", "engine": evil, "interfaces": "each", "wake": evil, "sched": "other",
            "vehicles": 3, "roadside": 0, "components": 1, "period_us": 1e5, "awake_us": 0.0,
            "interface": evil, "sealed": false, "spread": false, "barrier": true, "pinned": false,
            "with": [evil],
        });
        let again =
            crate::verify::again::tests::again("vehicles", plan.clone(), 1).expect("its plan is whole");
        let fix = "prime".parse().expect("a fix");
        let start = crate::verify::again::tests::planned("peel", plan, 1, |run| {
            crate::verify::start::command(run, &fix, 8)
        });
        for (number, command) in [again.command(), start.expect("its plan is whole")].iter().enumerate() {
            // It is refused, or there is no such program here.
            let _failed = once(command, Some(&place.path().join(number.to_string())), "test");
            assert!(!made.exists(), "{command}");
        }
    }

    /// Goal: a run that ended with 1 is named by a doubt, and by the end of the command, although it has figures like any other.
    #[test]
    fn a_run_that_broke_a_promise_is_named() {
        let place = tempfile::tempdir().expect("room");
        let making = |code: u8| format!("mkdir -p \"$1\"; : > \"$1/run.json\"; exit {code};");
        let [well, broken] = [0, 1].map(making);
        let commands = [well.as_str(), broken.as_str()];
        let out = place.path().join("runs");
        let played = play(&Turns {
            commands,
            pairs: Some(1),
            out: Some(&out),
            name: "test",
            wanted: &|_| Ok(1),
            check: &|_| Ok(()),
            held: &|_| Ok(None),
        })
        .expect("a shell");
        assert_eq!(played.made.each_ref().map(Vec::len), [1, 1]);
        let doubts: Vec<String> = played.doubts().map(|doubt| doubt.what).collect();
        let is_named = |words: &str| words.contains("b/001") && !words.contains("a/001");
        assert!(matches!(&doubts[..], [only] if is_named(only)), "{doubts:?}");
        assert!(matches!(played.end(), Err(Failure::Promise(words)) if is_named(&words)));
        for (number, command) in commands.iter().enumerate() {
            let made = once(command, Some(&place.path().join(number.to_string())), "test");
            let (_, broken) = made.expect("a shell");
            assert_eq!(broken.end().is_err(), number == 1, "{command}");
        }
    }

    /// Goal: a run of this program that broke a promise, and stored nothing, is no wrong call; a command that never measures is.
    #[test]
    fn a_broken_promise_without_a_run_is_told() {
        let place = tempfile::tempdir().expect("room");
        let made = |command: &str| once(command, Some(&place.path().join("run")), "test").map(drop);
        for ours in ["exit 1; target/punctual survey", "exit 1; punctual run oneway --to 'a;b' 2>&1 &> x >|y"]
        {
            let broken = made(ours);
            let is_told = matches!(&broken, Err(Failure::Promise(words)) if words.contains("made no run"));
            assert!(is_told, "{broken:?}");
        }
        // The folder is called as the program is.
        for foreign in ["false", "true src/punctual && false"] {
            let wrong = made(foreign);
            assert!(matches!(&wrong, Err(Failure::Usage(words)) if words.contains("--out")), "{wrong:?}");
        }
        assert!(!place.path().join("run").exists());
    }

    const CHILD: &str = "PUNCTUAL_TEST_INTERLEAVE";
    const QUOTA: &str = "5000 100000";

    /// Makes runs that hear no Ctrl-C, with a quota lifted meanwhile.
    fn make_runs(place: &Path) {
        let command = format!("trap '' INT; echo $$ > {}; exec sleep 60;", place.join("run").display());
        let held = |_| {
            let lifted = lift(vec![(place.join("cpu.max"), QUOTA.to_owned())]).map_err(Failure::Machine)?;
            Ok(Some(Box::new(lifted) as Box<dyn Any>))
        };
        let _made = play(&Turns {
            commands: [&command; 2],
            pairs: Some(5),
            out: Some(&place.join("runs")),
            name: "test",
            wanted: &|_| Ok(5),
            check: &|_| Ok(()),
            held: &held,
        });
    }

    /// Goal: the second Ctrl-C ends a run that does not hear the first, and what was held of the host is put back.
    #[test]
    fn a_second_interrupt_leaves_nothing_behind() {
        if let Some(place) = std::env::var_os(CHILD) {
            return make_runs(Path::new(&place));
        }
        let place = tempfile::tempdir().expect("room");
        let text = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap_or_default();
        std::fs::write(place.path().join("cpu.max"), QUOTA).expect("room");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "command::interleave::tests::a_second_interrupt_leaves_nothing_behind"]);
        command.env(CHILD, place.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("this program again");
        let begun = Instant::now();
        while !text("run").ends_with('\n') {
            assert!(begun.elapsed() < Duration::from_secs(60) && matches!(child.try_wait(), Ok(None)));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(text("cpu.max"), QUOTA, "it is lifted");
        while matches!(child.try_wait(), Ok(None)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "a test hangs");
            punctual_machine::signal::interrupt(&child);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(text("cpu.max"), QUOTA);
        let run = Path::new("/proc").join(text("run").trim());
        assert!(!run.exists(), "{} goes on", run.display());
    }
}
