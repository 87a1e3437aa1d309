//! Processes that are killed: at every labelled store of the shared-memory protocol, and at random instants.
//!
//! The labels need a build with `--cfg labelled_stores`: `cargo xtask kill` makes it and runs this suite. Without them only
//! the random kills run, and few of them.

#[path = "../common/mod.rs"]
mod common;
mod victim;
mod world;

use std::os::unix::process::ExitStatusExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{Dice, PATIENCE, Role, watchdog};
use punctual_machine::counter::Counter;
use victim::{SCENES, Scene};
use world::World;

/// Cases that run at once: they mostly wait until a death is noticed.
const AT_ONCE: usize = 6;

/// Not a test of its own: the work of the victim.
#[test]
fn role() {
    if let Some((role, bus)) = common::own_role() {
        victim::play(&role, &bus);
    }
}

/// End of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    /// It came to its own end first.
    Finished,
}

/// One victim: its actions, and the stops or the kill done to it.
fn check(scene: &Scene, stop_at: &[(&str, String)], kill_after: Option<Duration>) -> End {
    let mut world = World::new(scene);
    let more = [stop_at, &world.variables()].concat();
    let mut victim = Role::start_with(scene.role, &world.bus_text(), &more);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = victim.ended() {
            break status;
        }
        world.exchange();
        if kill_after.is_some_and(|after| started.elapsed() >= after) {
            victim.kill();
            world.recover();
            return End::Killed;
        }
        assert!(started.elapsed() < PATIENCE, "the victim hangs");
    };
    world.recover();
    match (status.signal(), status.success()) {
        (Some(9), _) => End::Killed,
        (None, true) => End::Finished,
        other => panic!("the victim ended with {other:?}"),
    }
}

/// Runs `cases` on several threads; panics with all that failed. With a planted fault the first failure is enough.
fn run_all<T: Sync + std::fmt::Debug>(cases: &[T], run: impl Fn(&T) + Sync) {
    let (waiting, failed) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    let is_spoilt = std::env::var_os("PUNCTUAL_FAULT").is_some();
    let is_shown = || is_spoilt && !failed.lock().unwrap().is_empty();
    let next = || if is_shown() { None } else { waiting.lock().unwrap().next() };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = next() {
                    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(case)));
                    if outcome.is_err() {
                        eprintln!("FAILED: {case:?}");
                        failed.lock().unwrap().push(format!("{case:?}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

/// Only one of the two suites at a time: they would sweep each other's dead.
static TURN: Mutex<()> = Mutex::new(());

/// Number of kills that the environment asks for.
fn wished(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().map_or(usual, |count| count.parse().expect("a number"))
}

/// Goal: whenever a process is killed, the others go on, believe nothing that was not sent, tidy up after it, and a next node
/// joins.
/// Method: `kill -9` of a writer, a reader, a joining and leaving node at instants from its start to its usual end.
#[test]
fn others_outlive_random_kills() {
    let kills = wished("PUNCTUAL_KILLS", 12);
    let seed = wished("PUNCTUAL_SEED", 1);
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _alive = watchdog(60 + 2 * kills);
    let mut dice = Dice(0x9E37_79B9 + seed);
    let cases: Vec<(usize, Duration)> = (0..kills)
        .map(|_| {
            let scene = dice.below(SCENES.len() as u64) as usize;
            // A process takes some milliseconds to start; most scenes end within fifty.
            let latest = if dice.below(3) == 0 { 60_000 } else { 15_000 };
            (scene, Duration::from_micros(dice.below(latest)))
        })
        .collect();
    let killed = Counter::default();
    let run = |&(scene, after): &(usize, Duration)| {
        let end = check(&SCENES[scene], &[], Some(after));
        killed.add((end == End::Killed).into());
    };
    run_all(&cases, run);
    world::check_counter_pages();
    assert!(kills == 0 || killed.get() > 0, "all of {kills} victims ended before they were killed");
    println!("{kills} victims, {} of them killed before their end, seed {seed}", killed.get());
}

#[cfg(labelled_stores)]
mod labels {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    /// A kill at the n-th passing of a label.
    #[derive(Debug)]
    struct Case {
        scene: &'static Scene,
        label: String,
        /// Later ones than the first may depend on who was faster.
        passing: u64,
    }

    /// Tries until the victim passes there: a wake-up that was not needed this time may be the next.
    const TRIES: usize = 8;

    /// Number of times that a scene passes each label.
    fn passed(scene: &Scene) -> BTreeMap<String, u64> {
        let list = tempfile::NamedTempFile::new().unwrap();
        let wish = ("PUNCTUAL_LABELS", list.path().to_str().unwrap().to_owned());
        assert_eq!(check(scene, &[wish], None), End::Finished, "{scene:?}");
        let mut times = BTreeMap::new();
        for label in std::fs::read_to_string(list.path()).unwrap().lines() {
            *times.entry(label.to_owned()).or_insert(0) += 1;
        }
        times
    }

    /// Passed in a planted fault only.
    const IN_FAULTS: [&str; 1] = ["bell.arm.late"];

    /// All labels of the two crates' sources.
    fn in_source() -> BTreeSet<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut folders = vec![crates.join("punctual/src"), crates.join("punctual-machine/src")];
        let mut labels = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                    continue;
                }
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let names = text.split("label!(\"").skip(1).filter_map(|rest| rest.split('"').next());
                labels.extend(names.filter(|name| !IN_FAULTS.contains(name)).map(str::to_owned));
            }
        }
        labels
    }

    /// The passings of a label that are deadly: the first, the last, and in a long run more.
    fn passings(times: u64, more: u64) -> BTreeSet<u64> {
        let between = (1..=more).map(|part| 1 + times * part / (more + 1));
        between.chain([1, times]).filter(|&passing| passing <= times).collect()
    }

    /// Goal: wherever a process dies, the others go on, believe nothing that was not sent, tidy up after it, and a next node
    /// joins. Method: first every scene to its end, which finds the labels; then a kill at every label of every scene.
    #[test]
    fn others_outlive_a_kill_at_every_label() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let _alive = watchdog(3_000);
        let more = wished("PUNCTUAL_PASSINGS", 0);
        let mut unpassed = in_source();
        assert!(unpassed.len() > 60, "the labels are not found in the source: {unpassed:?}");
        let mut cases = Vec::new();
        for scene in SCENES {
            for (label, times) in passed(scene) {
                unpassed.remove(&label);
                let case = |passing| Case { scene, label: label.clone(), passing };
                cases.extend(passings(times, more).into_iter().map(case));
            }
        }
        // Somebody else may have swept first what was laid out for the sweeper.
        for scene in SCENES.iter().cycle().take(SCENES.len() * TRIES) {
            if unpassed.is_empty() {
                break;
            }
            let found = passed(scene);
            let news = unpassed.iter().filter(|label| found.contains_key(*label));
            cases.extend(news.map(|label| Case { scene, label: label.clone(), passing: 1 }));
            unpassed.retain(|label| !found.contains_key(label));
        }
        assert!(unpassed.is_empty(), "labels that no scene passes: {unpassed:?}");
        let (killed, unreached) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        run_all(&cases, |case| {
            let stop_at = ("PUNCTUAL_STOP_AT", format!("{}:{}", case.label, case.passing));
            let tries = if case.passing == 1 { TRIES } else { 1 };
            let died =
                (0..tries).any(|_| check(case.scene, std::slice::from_ref(&stop_at), None) == End::Killed);
            let list = if died { &killed } else { &unreached };
            list.lock().unwrap().push(case.label.clone());
        });
        let (killed, unreached) = (killed.into_inner().unwrap(), unreached.into_inner().unwrap());
        let mut spared = in_source();
        spared.retain(|label| !killed.contains(label));
        assert!(spared.is_empty(), "labels at which nobody could be killed: {spared:?}");
        println!(
            "{} labels in {} scenes: killed {} times, {} passings not reached again",
            in_source().len(),
            SCENES.len(),
            killed.len(),
            unreached.len(),
        );
        world::check_counter_pages();
    }
}
