//! One run of another experiment, in a process of its own, and what is done to it while it goes on.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::{SchedulingClass, pin_to, set_scheduling_class};
use punctual_machine::scheduling::sleep_until;
use punctual_machine::signal::{PostponedEnd, insisted, interrupt, interrupted};

use super::TWO_CPUS;
use super::plan::{Planned, Row, Timed, timed};
use super::victim::{Condition, InjectedExperiment, Victim};
use crate::explain::injection::{How, Mishap, Scene, Tools};
use crate::run::{crash, make_inner};
use crate::scheduling::Job;
use crate::store::Run;
use crate::units::written;

/// Where runs are made.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) folder: PathBuf,
    pub(super) trace: bool,
    pub(super) tools: Tools,
}

/// One injection that was made, or two at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeInjection {
    pub(super) row: Row,
    /// With it, for a third of its time.
    pub(super) with: Option<Row>,
    /// From when to when, instants of `CLOCK_MONOTONIC`.
    pub(super) span: (u64, u64),
}

/// A run, and what was done to it.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) run: Run,
    pub(super) made: Vec<MadeInjection>,
}

/// A run opens its ends within this; a plan begins then.
const OPENING_NS: u64 = 1_500_000_000;

/// The first trips are the slowest in any case.
const WARMING_NS: u64 = 200_000_000;

/// Longest time for a run to open its ends, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A run that is being made. It is ended when dropped, before a user who insists ends this process.
struct Running {
    child: Child,
    _end: PostponedEnd,
}

impl Running {
    /// In a group of its own: the terminal tells it nothing, so that it is told from here alone.
    fn begin(command: &mut Command) -> Result<Self, String> {
        let end = PostponedEnd::new().map_err(|error| error.to_string())?;
        let started = make_inner(command).process_group(0).spawn();
        started.map(|child| Self { child, _end: end }).map_err(|error| format!("cannot start a run: {error}"))
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Its exit status, if it has ended.
    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until something is so. Returns `None` if the run ended first, the patience ran out, or the user interrupts.
    fn waits_until<T>(&mut self, mut is_so: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE && !interrupted() {
            if let Some(found) = is_so(self.child.id()) {
                return Some(found);
            }
            if self.has_ended() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Waits for its end; a Ctrl-C is passed on, once.
    fn ends(&mut self) -> Option<ExitStatus> {
        let start = Instant::now();
        let mut is_told = false;
        while start.elapsed() < PATIENCE && !insisted() {
            if self.has_ended() {
                return self.status();
            }
            if interrupted() && !is_told {
                interrupt(&self.child);
                is_told = true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}

/// Threads that compute on both CPUs when nobody else wants them. An idle CPU sleeps, and under some kernels its idle task is in no
/// trace: the thread that ran next is then unknown.
fn soakers(cpus: [usize; 2]) -> Job<()> {
    let end = Instant::now() + PATIENCE;
    // Without it CPUs sleep, and less is known.
    Job::on_each("soaker", &cpus, move |cpu, stop| {
        // In any other class, or elsewhere, it would be a neighbour.
        if pin_to(cpu).is_err() || set_scheduling_class(SchedulingClass::Idle).is_err() {
            return;
        }
        while !stop.is_raised() && Instant::now() < end {
            // A thread that never enters the kernel keeps the CPU until the next tick, where preemption is lazy.
            std::thread::yield_now();
        }
    })
}

impl Stage {
    /// Makes a run, and all of a part of the plan while it goes on. A promise that it broke is told, also of a run that cannot be read: an
    /// injection makes messages late, and loses none.
    pub(super) fn play(
        &mut self,
        number: usize,
        part: &[Planned],
        broken: &mut Vec<String>,
    ) -> Result<Played, String> {
        let victim = part.first().ok_or("there is nothing to inject")?.row.victim();
        let cpus = victim.experiment.cpus().ok_or(TWO_CPUS)?;
        let out = self.folder.join(format!("{number:03}"));
        let begin_ns = monotonic_ns() + OPENING_NS;
        let (timed, end_ns) = timed(part, begin_ns);
        let lasts = Duration::from_nanos(end_ns - begin_ns + OPENING_NS);
        let mut running = self.start((number, &out), &timed, lasts, victim)?;
        let processes = running.waits_until(|run| victim.processes(run));
        let has_begun = processes.is_some();
        let made = processes.ok_or_else(|| {
            format!("punctual {} did not begin: {}", victim.arguments(number).join(" "), said(&out))
        });
        let made = made.and_then(|processes| self.inject(victim, (processes, cpus), &timed));
        // One that did not begin has ended, or hangs.
        let ended = if has_begun { running.ends() } else { running.status() };
        let made = outcome(made, ended, (number, &said(&out)), broken)?;
        if fs::metadata(errors_of(&out)).is_ok_and(|file| file.len() == 0) {
            let _stays_if_it_cannot_be_removed = fs::remove_file(errors_of(&out));
        }
        let run = Run::open(&out).map_err(|error| error.to_string())?;
        Ok(Played { run, made })
    }

    /// Makes the injections into a run that has just begun.
    fn inject(
        &mut self,
        victim: Victim,
        (processes, cpus): ([u32; 2], [usize; 2]),
        timed: &[Timed],
    ) -> Result<Vec<MadeInjection>, String> {
        let ready_ns = monotonic_ns() + WARMING_NS;
        // A group shares the CPU otherwise with threads outside; beside a real-time thread the limit would let a soaker in all the time.
        let _awake = (victim.condition == Condition::Ordinary).then(|| soakers(cpus));
        let mut scene = Scene { processes, cpus, tools: std::mem::take(&mut self.tools) };
        let made = inject(&scene, timed, ready_ns);
        self.tools = std::mem::take(&mut scene.tools);
        made
    }

    fn start(
        &self,
        (number, out): (usize, &Path),
        timed: &[Timed],
        lasts: Duration,
        victim: Victim,
    ) -> Result<Running, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = if victim.condition == Condition::Member {
            let mut shell = Command::new("sh");
            let enter = |file: PathBuf| format!("echo $$ > {} && ", file.display());
            let enter: String = self.tools.group.members().into_iter().map(enter).collect();
            shell.args(["-c", &format!("{enter}exec \"$0\" \"$@\"")]).arg(own);
            shell
        } else {
            Command::new(own)
        };
        let duration = written(lasts);
        command
            .args(victim.arguments(number))
            .args(["--quiet", "--duration", &duration])
            .arg("--out")
            .arg(out);
        if victim.experiment == InjectedExperiment::Response {
            command.arg("--mishaps").arg(write_plan(out, timed)?);
        }
        if self.trace {
            command.arg("--trace");
        }
        let (path, nothing) = (errors_of(out), Stdio::null);
        let errors =
            File::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Running::begin(command.stdin(nothing()).stdout(nothing()).stderr(errors))
    }
}

/// The injections of a run that ended as it should. A broken promise is told whatever else failed: a run that crashes takes the targets of
/// later injections with it.
fn outcome(
    made: Result<Vec<MadeInjection>, String>,
    ended: Option<ExitStatus>,
    (number, said): (usize, &str),
    broken: &mut Vec<String>,
) -> Result<Vec<MadeInjection>, String> {
    if ended.is_some_and(broke_promise) {
        broken.push(format!("run {number:03}: {said}"));
    }
    let made = made?;
    let status = ended.ok_or_else(|| format!("the run did not end: {said}"))?;
    if !matches!(status.code(), Some(0 | 1)) {
        return Err(format!("the run ended with {status}: {said}"));
    }
    Ok(made)
}

/// A run did not keep its promise: by what it says itself, or by a fault that ended it.
fn broke_promise(status: ExitStatus) -> bool {
    status.code() == Some(1) || crash::fault(status).is_some()
}

/// Where the error output of a run is kept, beside it.
fn errors_of(out: &Path) -> PathBuf {
    out.with_extension("errors.txt")
}

/// The last that a run said on its error output: why it failed.
fn said(out: &Path) -> String {
    let text = fs::read_to_string(errors_of(out)).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}

/// Writes what the threads make themselves beside the run; where.
fn write_plan(out: &Path, timed: &[Timed]) -> Result<PathBuf, String> {
    let path = out.with_extension("plan.json");
    let mishaps: Vec<&Mishap> = timed.iter().flat_map(|timed| &timed.mishaps).collect();
    let text = serde_json::to_string(&mishaps).map_err(|error| error.to_string())?;
    fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

/// Makes the injections from outside, and waits until the threads have made their own. Injections due before the run was ready are left
/// out.
fn inject(scene: &Scene, timed: &[Timed], ready_ns: u64) -> Result<Vec<MadeInjection>, String> {
    let mut made = Vec::new();
    for Timed { planned, mishaps, until_ns } in timed {
        if interrupted() {
            break;
        }
        let from_ns = mishaps.iter().map(|mishap| mishap.at_ns).min().unwrap_or(*until_ns);
        let mut span = (from_ns, *until_ns);
        for (row, mishap) in std::iter::once(&planned.row).chain(&planned.with).zip(mishaps) {
            let lasts_ns = mishap.until_ns - mishap.at_ns;
            let from_outside = match row.injection.how {
                How::Inside(_) | How::AtStart => continue,
                How::Outside(make) => {
                    sleep_until(mishap.at_ns);
                    make(scene, mishap.side, lasts_ns)?
                }
                How::OutsideBoth(make) | How::OutsideUrgent(make) => {
                    sleep_until(mishap.at_ns);
                    make(scene, lasts_ns)?
                }
            };
            span = if planned.with.is_none() { from_outside } else { (span.0, span.1.max(from_outside.1)) };
        }
        sleep_until(*until_ns);
        if span.0 >= ready_ns {
            made.push(MadeInjection { row: planned.row, with: planned.with, span });
        }
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use punctual_machine::signal::catch_interrupts;

    use super::*;

    const CHILD: &str = "PUNCTUAL_TEST_SCENE";

    /// Goal: a run that says so, panics or dies of a fault broke its promise. One that the machine does not let run, or that somebody
    /// ends, did not.
    #[test]
    fn broken_promises_are_told_from_other_ends() {
        for (raw, is_broken) in
            [(0, false), (1 << 8, true), (3 << 8, false), (101 << 8, true), (11, true), (9, false)]
        {
            assert_eq!(broke_promise(ExitStatus::from_raw(raw)), is_broken, "{raw}");
        }
    }

    /// Goal: a run that broke its promise is told also where no injection could be made, before its threads were there or when they were
    /// gone. Another failure is not called so.
    #[test]
    fn a_broken_promise_is_told_beside_a_failed_injection() {
        for (made, raw, is_broken) in [
            (Err("stop process 7: no such process"), 11, true),
            (Err("punctual did not begin"), 1 << 8, true),
            (Err("punctual did not begin"), 3 << 8, false),
            (Ok(Vec::new()), 1 << 8, true),
        ] {
            let (mut broken, is_made) = (Vec::new(), made.is_ok());
            let ended = Some(ExitStatus::from_raw(raw));
            let told = outcome(made.map_err(str::to_owned), ended, (7, "a message was lost"), &mut broken);
            assert_eq!((told.is_ok(), !broken.is_empty()), (is_made, is_broken), "{raw}: {told:?}");
            assert!(broken.iter().all(|said| said == "run 007: a message was lost"), "{broken:?}");
        }
        assert!(outcome(Ok(Vec::new()), None, (7, "nothing"), &mut Vec::new()).is_err());
    }

    /// Goal: a user reads why a run failed, in the last line of what it said.
    #[test]
    fn the_last_line_says_why() {
        let place = tempfile::tempdir().expect("room");
        let out = place.path().join("000");
        assert_eq!(said(&out), "it said nothing");
        fs::write(errors_of(&out), "a doubt\npunctual: a message was lost\n\n").expect("room");
        assert_eq!(said(&out), "punctual: a message was lost");
    }

    /// Waits for a run that notes each Ctrl-C and ends a while after the first.
    fn wait_for_a_run(place: &Path) {
        catch_interrupts().expect("a handler");
        let [notes, ready] = ["notes", "ready"].map(|name| place.join(name));
        let script = "trap 'echo told >> \"$1\"' INT; : > \"$2\"; while [ ! -s \"$1\" ]; do sleep 0.01; done; sleep 0.3";
        let mut command = Command::new("sh");
        let mut running =
            Running::begin(command.args(["-c", script, "sh"]).args([&notes, &ready])).expect("a shell");
        assert!(running.waits_until(|_| ready.exists().then_some(())).is_some());
        let own = std::process::id().to_string();
        assert!(
            Command::new("sh")
                .args(["-c", "kill \"$@\"", "kill", "-INT", &own])
                .status()
                .is_ok_and(|status| status.success())
        );
        while !interrupted() {
            std::thread::yield_now();
        }
        assert!(running.ends().is_some());
        assert_eq!(std::fs::read_to_string(&notes).expect("notes"), "told\n");
    }

    /// Goal: a run is told of Ctrl-C once, and has the time to end. Method: a process of its own, for the flag that is raised stays.
    #[test]
    fn a_run_is_interrupted_once() {
        if let Some(place) = std::env::var_os(CHILD) {
            return wait_for_a_run(Path::new(&place));
        }
        let place = tempfile::tempdir().expect("room");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "causes::scene::tests::a_run_is_interrupted_once"]);
        let ended = command.env(CHILD, place.path()).output().expect("this program again");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        assert!(place.path().join("notes").exists(), "it ran");
    }
}
