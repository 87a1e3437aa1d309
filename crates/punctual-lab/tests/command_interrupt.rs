//! Ctrl-C, however it comes: the command ends, with all that it started, and keeps what was measured.

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Ended, Place, Started, all_ready, children, interleaved, punctual, text};

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, |entries| entries.flatten().count())
}

/// Ended as what was measured says, which a summary with a doubt holds.
#[track_caller]
fn kept(place: &Place, ended: &Ended) {
    assert!(matches!(ended.code, Some(0 | 1)), "{:?}\n{}\n{}", ended.code, ended.out, ended.err);
    assert!(place.summary("run/summary.json").to_string().contains("cut short"));
}

/// Goal: one process is told, as by `kill` or a service manager, and those that it started end too.
/// Method: else they would go on for ten minutes, which the watchdog does not wait for.
#[test]
fn a_signal_for_the_command_alone_ends_its_vehicles() {
    let place = Place::alone();
    let arguments = "run vehicles --engine shared --vehicles 3 --roadside 0 --runs 1 --components 2 --duration 600s --period 10ms --out run";
    let mut started = place.start(punctual(arguments));
    let parent = started.id();
    started.has("three vehicles", || all_ready(parent));
    // Long enough for values to travel; without any the end is as good.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    let vehicles = children(parent);
    started.signal("-INT");
    let ended = started.end();
    kept(&place, &ended);
    // A message that was on its way is no broken promise.
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.out, ended.err);
    assert!(vehicles.iter().all(|pid| !fs::exists(format!("/proc/{pid}")).unwrap_or(false)));
}

/// A peel that is interrupted once so many trials are stored. None where it cannot run here.
fn interrupted_peel(place: &Place, more: &str, trials: usize, wait: Duration) -> Option<Ended> {
    let arguments = "run peel --engine shared --out run";
    let mut started = place.start(punctual(&format!("{arguments} {more}")));
    let samples = place.path("run/samples");
    if started.ends_before(|| files(&samples) >= trials) {
        let ended = started.end().with(3);
        assert!(ended.err.contains("two processors"), "{}", ended.err);
        punctual_machine::skipped!("{}", ended.err);
        return None;
    }
    std::thread::sleep(wait);
    started.signal("-INT");
    Some(started.end())
}

/// Goal: in the midst of the first round no layer has a cost, and none is printed; the trials that are stored are counted.
#[test]
fn a_peel_that_is_interrupted_at_once_makes_up_no_figures() {
    let place = Place::alone();
    let more = "--duration 300s --rounds 24 --count 10000000";
    let Some(ended) = interrupted_peel(&place, more, 2, Duration::ZERO) else { return };
    kept(&place, &ended);
    assert!(!ended.out.contains("Layer by layer") && !ended.out.contains("What a start"), "{}", ended.out);
    let summary = place.summary("run/summary.json");
    assert!(!summary.to_string().contains("after 0 trials"), "{summary:#}");
    assert_eq!(summary["peel"]["peeled"]["costs"].as_array().map(Vec::len), Some(0), "{summary:#}");
}

/// Goal: a reader of a peel whose starts were cut short is told so.
#[test]
fn a_peel_that_is_interrupted_in_its_starts_says_so() {
    let place = Place::alone();
    let more = "--duration 10m --rounds 2 --count 200 --starts 1000";
    let Some(ended) = interrupted_peel(&place, more, 2 * 7, Duration::from_millis(500)) else { return };
    kept(&place, &ended);
    assert!(ended.out.contains("Layer by layer") && ended.out.contains("after 14 trials"), "{}", ended.out);
}

/// Goal: a trial of a group ends when the command alone is told, and what it had until then counts as no trial.
/// Method: else it would go on for ten minutes, which the watchdog does not wait for.
#[test]
fn an_interrupted_group_has_no_half_trial() {
    let place = Place::alone();
    let arguments = "run broadcast --engine shared --members 3 --faults 0/0 --message 100 --period 20ms --duration 600s --out run --json came.json";
    let mut started = place.start(punctual(arguments));
    let parent = started.id();
    started.has("three members", || children(parent).len() == 3);
    // Long enough for messages to travel; without any the end is as good.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    started.signal("-INT");
    let ended = started.end().with(3);
    assert!(ended.err.contains("interrupted after"), "{}", ended.err);
    assert!(!place.path("run").exists(), "nothing was measured");
    let summary = place.summary("came.json");
    assert_eq!(summary["broadcast"]["trials"].as_array().map(Vec::len), Some(0), "{summary:#}");
    assert!(summary.to_string().contains("cut short"), "{summary:#}");
}

/// Goal: an interrupt ends the step of a store, whose rate is that of the time it had.
#[test]
fn an_interrupted_store_keeps_its_step() {
    let place = Place::alone();
    let arguments = "run broadcast --app kv --clients 4 --duration 60s --engine shared --members 2 --out run";
    let mut started = place.start(punctual(arguments));
    let parent = started.id();
    started.has("two members", || children(parent).len() == 2);
    // Long enough for a step to begin; without any the end is as good.
    std::thread::sleep(Duration::from_millis(2500));
    started.signal("-INT");
    let ended = started.end();
    kept(&place, &ended);
    let summary = place.summary("run/summary.json");
    for step in summary["broadcast"]["kv"][0]["steps"].as_array().expect("steps") {
        let lasted_ns = step["duration_ns"].as_u64().expect("a number");
        assert!((1..50_000_000_000).contains(&lasted_ns), "{lasted_ns} ns");
    }
}

/// Goal: an interrupted scenario says what came of it, and leaves no file behind.
#[test]
fn an_interrupted_scenario_leaves_nothing_behind() {
    let place = Place::alone();
    fs::write(place.path("scenario"), "cell 100\nat 0s car 10 10\nat 1s car 20 10\nend 300s\n")
        .expect("room");
    fs::create_dir(place.path("scratch")).expect("room");
    let scratch = place.path("scratch");
    let interrupted = |started: Started| {
        started.signal("-INT");
        let ended = started.end();
        assert_eq!(files(&scratch), 0, "{}", ended.err);
        ended
    };
    let mut command = punctual("run groups --scenario scenario --json came.json");
    command.env("TMPDIR", &scratch);
    let mut started = place.start(command);
    started.has("a file", || files(&scratch) > 0);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let ended = interrupted(started);
    // A machine that is busy may have ended it before a vehicle was on its way.
    assert!(matches!(ended.code, Some(0 | 1 | 3)), "{:?}\n{}\n{}", ended.code, ended.out, ended.err);
    if ended.code == Some(0) {
        assert!(ended.out.contains("Cut short after"), "{}", ended.out);
        assert!(text(&place.path("came.json")).contains("cut_short_s"));
    }
}

/// Goal: a comparison that alone is told ends the programs that run for it, with all that they have started, and starts nothing more.
#[test]
fn a_signal_for_a_comparison_ends_its_command() {
    // Of this test alone, even if another process runs it at the same time.
    let sleeper = format!("598.{}", std::process::id());
    let line = format!("sleep\0{sleeper}\0");
    let runs = || {
        let processes = fs::read_dir("/proc").expect("procfs").flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.filter(|found| *found == line.as_bytes()).count()
    };
    let place = Place::new();
    let sleeping = format!("sleep {sleeper}; true");
    let other = "touch begun; true";
    let mut started = place.start(interleaved(&sleeping, other, "--out both"));
    started.has("a command", || runs() == 1);
    started.signal("-INT");
    let ended = started.end().with(3);
    assert!(ended.err.contains("interrupted before the first pair"), "{}", ended.err);
    assert_eq!(runs(), 0);
    assert!(!place.path("begun").exists(), "the other of the pair was started");
}

/// Goal: a comparison that was cut short says so, though none of its cells differs.
#[test]
fn a_comparison_that_is_cut_short_says_so() {
    let place = Place::alone();
    let run =
        "punctual survey --quick --only shared/futex --gap 1ms --load closed --duration 200ms --count 100";
    let mut started = place.start(interleaved(run, run, "--pairs 40 --out cut"));
    // Every other pair begins with B.
    started.has("a pair of runs, and one more", || place.path("cut/b/002/run.json").exists());
    started.signal("-INT");
    let ended = started.end().with(0);
    let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the comparison was cut short after"), "{}", ended.out);
}

/// Goal: a server trial that is cut short keeps its true length, so that its rates are true. The summary says so.
#[test]
fn an_interrupted_server_is_as_long_as_it_was() {
    let place = Place::alone();
    let arguments = "run server --model threads-blocking --connections 4 --matrix 4 --think 1ms --duration 600s --out run";
    let mut started = place.start(punctual(arguments));
    let parent = started.id();
    let threads = |process: String| files(Path::new(&format!("/proc/{process}/task")));
    started.has("three threads of each connection", || {
        children(parent).into_iter().any(|child| threads(child) > 12)
    });
    // Long enough for requests to be answered; without any the end is as good.
    std::thread::sleep(std::time::Duration::from_millis(500));
    started.signal_group("-INT");
    let ended = started.end();
    kept(&place, &ended);
    let summary = place.summary("run/summary.json");
    let trials = summary["server"]["trials"].as_array().expect("a list");
    let lasted_ns = trials[0]["duration_ns"].as_u64().expect("a number");
    assert!(trials.len() == 1 && (1..300_000_000_000).contains(&lasted_ns), "{lasted_ns} ns of {trials:?}");
}

/// Goal: a run that a comparison makes keeps its measurements although it is told to end twice. First all processes are told, as by a
/// service manager. Then the comparison tells the run once more. Method: the run is told again and again while it ends.
#[test]
fn a_run_of_a_comparison_that_is_told_twice_keeps_what_it_measured() {
    let place = Place::alone();
    let run = "punctual run response --rounds 1 --duration 600s --count 10000000";
    let mut started = place.start(interleaved(run, run, "--out told-twice"));
    let runs = || {
        let named = fs::read_dir("/proc").expect("procfs").flatten().filter_map(|process| {
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            let is_ours = words[0].ends_with(b"punctual") && words.contains(&&b"told-twice/a/001"[..]);
            is_ours.then(|| process.file_name().into_string().ok())?
        });
        named.filter_map(|pid| pid.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    started.has("a run with both ends", || runs().iter().any(|&run| !children(run).is_empty()));
    let run = runs()[0];
    // Long enough for trips to be made.
    std::thread::sleep(Duration::from_secs(3));
    started.signal("-TERM");
    for _ in 0..5 {
        // It may have ended by now.
        let _told = std::process::Command::new("sh")
            .args(["-c", "kill \"$@\"", "kill", "-TERM", &run.to_string()])
            .output();
    }
    let ended = started.end().with(3);
    assert!(ended.err.contains("interrupted before the first pair"), "{}", ended.err);
    let summary = place.summary("told-twice/a/001/summary.json");
    assert!(summary.to_string().contains("cut short"), "{summary:#}");
    assert_eq!(summary["results"].as_array().map(Vec::len), Some(1), "{summary:#}");
}
