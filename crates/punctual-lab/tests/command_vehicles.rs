//! `punctual run vehicles`, as scripts and people call it. Short runs with few vehicles: the tests look at the fate of every message,
//! never at its latency.

mod common;
mod glossary;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    Ended, Place, Stop, all_ready, alone, children, count, is_sent, punctual, result, summary_of, text, words,
};
use punctual_lab::sample::Outcome;
use punctual_lab::store::Run;
use serde_json::Value;

/// Returns true if this process may make network namespaces and bridges; says so if not.
fn has_roads() -> bool {
    let made = std::thread::spawn(|| {
        punctual_machine::namespace::unshare_network()?;
        punctual_machine::namespace::create_bridge("road")
    });
    let made = made.join().expect("the thread ends");
    if let Err(error) = &made {
        punctual_machine::skipped!("{error}");
    }
    made.is_ok()
}

fn vehicles(runs: u64, more: &str) -> String {
    format!("{FOUR} --runs {runs} --json - --messages 12 {more}")
}

/// Without a place for the summary, and without a count of messages.
const FOUR: &str = "run vehicles --out run --vehicles 4 --period 20ms";

/// Runs of one kind: two of the first, which are to be added up, and one of each other, as most of a run is waiting.
fn runs_of(kind: usize) -> u64 {
    if kind == 0 { 2 } else { 1 }
}

/// Every frame is in one place, and nobody died.
fn assert_account(summary: &Value) {
    let account = &summary["vehicles"]["account"];
    assert_eq!(
        count(account, "to_arrive"),
        count(account, "before") + count(account, "arrived") + count(account, "lost"),
        "{account:#}"
    );
    let elsewhere = account["undelivered"].as_object().expect("an object");
    let undelivered: u64 = elsewhere.values().filter_map(Value::as_u64).sum();
    assert_eq!(count(account, "copies"), count(account, "delivered") + undelivered, "{account:#}");
    assert_eq!(account["incomplete"], false, "{account:#}");
    for run in summary["vehicles"]["runs"].as_array().expect("runs") {
        assert_eq!(run["died"], Value::Array(Vec::new()), "{run:#}");
    }
}

/// Goal: every message that is sent arrives once at everybody, its sender too, in both modes and over every medium.
#[test]
fn every_vehicle_hears_every_vehicle() {
    let _turn = alone();
    let road = has_roads();
    for (kind, engine) in ["shared", "datagram", "packet"].into_iter().enumerate() {
        if engine == "packet" && !road {
            continue;
        }
        let (row, runs) = (if engine == "shared" { "shared" } else { "socket" }, runs_of(kind));
        for (mode, seal) in [("application", "on"), ("callback", "off")] {
            let place = Place::new();
            // With a seal one interface each, without it the one of all; elsewhere there is no choice.
            let interfaces = if seal == "on" && engine == "packet" { "each" } else { "one" };
            let more = format!("--mode {mode} --engine {engine} --seal {seal} --interfaces {interfaces}");
            let more = vehicles(runs, &format!("--roadside 1 --components 2 {more}"));
            let summary = summary_of(&place.punctual(&more).with(0).out);
            assert_eq!(summary["vehicles"]["seal"], seal == "on", "{summary:#}");
            assert_account(&summary);
            // Of each run four receivers, two components, twelve messages: of three others, and one's own.
            for (name, senders) in [(row, 3), ("sharedmem", 1)] {
                let result = result(&summary, &format!("{name}/{mode}"));
                assert_eq!(count(&result["ledger"], "taken"), runs * 4 * 2 * 12 * senders, "{result:#}");
                assert_eq!(count(result, "lost") + count(result, "duplicated"), 0, "{result:#}");
                assert_eq!((&result["kind"], &result["load"]), (&"one_way".into(), &"open".into()));
            }
            glossary::explains(&place.path("run"));
            let run = Run::open(&place.path("run")).expect("a run");
            for trial in &run.trials {
                let samples = trial.load().expect("samples");
                // A machine that stands still for a period lets a value be skipped, which is told, and loses none.
                assert!(
                    samples.outcome.iter().all(|&o| matches!(o, Outcome::Answered | Outcome::Unfinished))
                );
                assert!(samples.outcome.contains(&Outcome::Answered));
                assert!((0..samples.len()).all(|row| samples.sent_ns[row] >= samples.due_ns[row]));
            }
            assert!(text(&place.path("run/report.html")).contains("published, last"));
        }
    }
}

/// Goal: without a barrier each begins when it is open, and every first message is explained: the steps of its receiver sum
/// to its time, and its sender is named, in the table, on the page and in the store.
#[test]
fn first_messages_without_a_barrier_are_explained() {
    let _turn = alone();
    let road = has_roads();
    let kinds = [
        ("engine", "shared"),
        ("callback", "shared"),
        ("application", "datagram"),
        ("async", "packet"),
        ("engine", "packet"),
    ];
    for (mode, engine) in kinds {
        if engine == "packet" && !road {
            continue;
        }
        let place = Place::new();
        let kind = format!("--no-barrier --mode {mode} --engine {engine} --json summary.json");
        // Two seconds: the last one to begin hears others, too.
        let ended = place.punctual(&format!("{FOUR} --runs 1 {kind} --messages 100")).with(0);
        let summary = place.summary("summary.json");
        assert_account(&summary);
        let runs = summary["vehicles"]["runs"].as_array().expect("runs");
        for run in runs {
            let firsts = run["firsts"]["slowest"].as_array().expect("first messages");
            assert!(count(&run["firsts"], "count") >= 4 && !firsts.is_empty(), "{run:#}");
            for first in firsts {
                let steps = first["steps"].as_array().expect("steps");
                let sum: u64 = steps.iter().map(|step| count(step, "ns")).sum();
                // Each step is rounded by itself.
                assert!(sum.abs_diff(count(first, "ns")) <= 10, "{first:#}");
                assert!(count(first, "sender") < 4, "{first:#}");
                let [least, most] = [0, 1].map(|end| first["queued_ns"][end].as_u64().expect("ns"));
                assert!(least <= most && most <= count(first, "ns"), "{first:#}");
            }
            let senders = run["senders"].as_array().expect("senders");
            assert_eq!(senders.iter().map(|row| count(row, "sender")).collect::<Vec<_>>(), [0, 1, 2, 3]);
            if mode == "engine" {
                let each = run["arrival_senders"].as_array().expect("senders");
                assert_eq!(Some(each.len()), run["arrivals_ns"].as_array().map(Vec::len), "{run:#}");
            }
        }
        let page = text(&place.path("run/report.html"));
        for shown in [&ended.out, &page] {
            assert!(shown.contains("First messages") && shown.contains("By sender"), "{shown}");
            assert!(words(shown).contains("ready and waited for a processor"), "{shown}");
        }
        for trial in &Run::open(&place.path("run")).expect("a run").trials {
            let samples = trial.load().expect("samples");
            assert_eq!(samples.sender.len(), samples.len());
            assert!(samples.sender.iter().all(|&sender| sender < 4), "{:?}", samples.sender);
        }
    }
}

/// Goal: engines alone: one receiver has every message of every sender.
#[test]
fn an_engine_alone_receives_from_all() {
    let _turn = alone();
    let road = has_roads();
    for (kind, (engine, row)) in [("shared", "shared"), ("packet", "socket")].into_iter().enumerate() {
        if engine == "packet" && !road {
            continue;
        }
        let place = Place::new();
        let arguments = vehicles(runs_of(kind), &format!("--mode engine --engine {engine}"));
        let summary = summary_of(&place.punctual(&arguments).with(0).out);
        assert_account(&summary);
        let result = result(&summary, &format!("{row}/engine"));
        assert_eq!(count(&result["ledger"], "delivered"), runs_of(kind) * 4 * 12, "{result:#}");
        let runs = summary["vehicles"]["runs"].as_array().expect("runs");
        assert!(runs.iter().all(|run| run["arrivals_ns"].as_array().is_some_and(|all| all.len() == 4 * 12)));
    }
}

/// Goal: one receiver is told of every frame, on every way of being told. Over Ethernet this does not depend on the others at its
/// interface.
#[test]
fn a_receiver_that_sleeps_is_told_of_every_frame() {
    let _turn = alone();
    let road = has_roads();
    let kinds = [
        ("shared", "futex", ""),
        ("shared", "eventfd", ""),
        ("datagram", "signal", ""),
        ("datagram", "epoll", ""),
        ("packet", "signal", "--interfaces each"),
        ("packet", "signal", ""),
        ("packet", "epoll", "--pin"),
    ];
    for (engine, wake, more) in kinds {
        if engine == "packet" && !road {
            continue;
        }
        let place = Place::new();
        let more = format!("--mode async --engine {engine} --wake {wake} {more}");
        let summary = summary_of(&place.punctual(&vehicles(1, &more)).with(0).out);
        assert_account(&summary);
        let row = if engine == "shared" { "shared" } else { "socket" };
        let result = result(&summary, &format!("{row}/async"));
        assert_eq!(count(&result["ledger"], "delivered"), 4 * 12, "{engine}, {wake}: {result:#}");
        let signals = count(&summary["vehicles"]["runs"][0]["facts"], "signals");
        assert_eq!(signals > 0, wake == "signal", "{engine}, {wake}: {signals} signals");
    }
}

/// Goal: vehicles that signals tell of messages say how many came.
#[test]
fn signals_of_components_are_counted() {
    let place = Place::alone();
    let more = "--mode callback --engine datagram --wake signal";
    let summary = summary_of(&place.punctual(&vehicles(1, more)).with(0).out);
    assert!(
        count(&summary["vehicles"]["runs"][0]["facts"], "signals") > 0,
        "{:#}",
        summary["vehicles"]["runs"][0]
    );
}

/// Goal: the losses of one listener stand in the account once, regardless of whether its node counts them or only the numbers tell.
/// Method: it is stopped while three vehicles send more than its ring or its buffer holds.
#[test]
fn losses_of_a_listener_stand_in_one_place() {
    let _turn = alone();
    for (mode, engine) in [("async", "shared"), ("async", "datagram"), ("engine", "shared")] {
        let place = Place::new();
        let arguments = format!(
            "run vehicles --mode {mode} --engine {engine} --vehicles 3 --runs 1 --period 200us --messages 10000 --out run"
        );
        let mut started = place.start(punctual(&arguments));
        let parent = started.id();
        started.has("a listener that is ready", || all_ready(parent));
        // Values travel from 0.84 s on, for two seconds.
        std::thread::sleep(Duration::from_millis(1_300));
        // It was started first.
        let listener = children(parent).into_iter().next().unwrap_or_default();
        let _stop = Stop::make(&listener, Duration::from_millis(1_000));
        let ended = started.end();
        // A machine that came too late to stop it loses nothing.
        assert!(matches!(ended.code, Some(0 | 1)) && !ended.err.contains("bug"), "{}", ended.err);
        let summary = place.summary("run/summary.json");
        assert_account(&summary);
        let lost = summary["results"][0]["lost"].as_u64();
        // One that was stopped before it had anything is told as one that was not there yet.
        if summary["results"][0]["skipped"].as_u64() > Some(0) {
            punctual_machine::skipped!("{mode}, {engine}: the listener was stopped too early");
            continue;
        }
        // A value without room at its sender, or not read by its receiver, is lost to the application, and was not on its way.
        let vehicles = &summary["vehicles"];
        let unread = vehicles["account"]["undelivered"].as_object().into_iter().flatten();
        let unread: u64 = unread.filter_map(|(_, count)| count.as_u64()).sum();
        let elsewhere = unread + count(&vehicles["runs"][0]["facts"], "refused");
        let on_the_way = count(&vehicles["account"], "lost");
        assert_eq!(lost, Some(on_the_way + elsewhere), "{mode}, {engine}: {elsewhere} elsewhere");
        eprintln!("{mode}, {engine}: {lost:?} lost");
    }
}

/// Goal: the ten-minute run of a night, for one second: 22 vehicles with 220 components.
#[test]
fn many_components_hear_each_other() {
    let place = Place::alone();
    let engine = if has_roads() { "packet" } else { "shared" };
    let arguments = format!(
        "run vehicles --json - --engine {engine} --vehicles 22 --runs 1 --components 10 --roadside 2 --messages 3 --period 400ms"
    );
    let summary = summary_of(&place.punctual(&arguments).with(0).out);
    assert_account(&summary);
    let run = &summary["vehicles"]["runs"][0];
    assert!(run["growth_kib_max"].is_number() && run["drift_ppm"].is_number(), "{run:#}");
    // A component that is kept from running for longer than a period skips what was due meanwhile, and says so.
    let own = result(&summary, "sharedmem/application");
    let (sent, skipped) = (count(&run["facts"], "sent"), own["skipped"].as_u64().unwrap_or(0));
    assert_eq!(sent + skipped, 220 * 3, "{run:#}");
    assert_eq!(count(&own["ledger"], "delivered"), sent, "{own:#}");
}

/// Goal: a vehicle that is killed is said to have died; the others go on, each with the number of its own trial, and nothing hangs.
#[test]
fn a_vehicle_that_dies_is_told() {
    let place = Place::alone();
    let arguments = "run vehicles --engine shared --out run --vehicles 4 --runs 1 --messages 60 --period 50ms --roadside 0";
    let mut started = place.start(punctual(arguments));
    let parent = started.id();
    started.has("four vehicles", || children(parent).len() == 4);
    // Behind the barrier; if a slow machine has not come so far, death before it is told too.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let victim = children(parent).into_iter().nth(1).expect("one of four");
    assert!(is_sent("-KILL", &victim));
    let ended = started.end();
    assert!(matches!(ended.code, Some(1 | 3)), "{}", ended.err);
    assert!(ended.err.contains("vehicle-") && ended.err.contains("died"), "{}", ended.err);
    if ended.code == Some(1) {
        let summary = place.summary("run/summary.json");
        let died = summary["vehicles"]["runs"][0]["died"][0].as_str().expect("one died");
        let died =
            died.strip_prefix("vehicle-").and_then(|number| number.parse::<u32>().ok()).expect("its number");
        let trials: BTreeSet<u32> =
            Run::open(&place.path("run")).expect("a run").trials.iter().map(|trial| trial.trial).collect();
        assert_eq!(trials, (0..4).filter(|&number| number != died).collect::<BTreeSet<u32>>(), "{died} died");
    }
}

/// Goal: a listener that is killed is said to have died, though nothing was measured without it.
#[test]
fn a_listener_that_dies_is_told() {
    let place = Place::alone();
    let arguments = "run vehicles --mode async --engine shared --out run --vehicles 3 --runs 1 --messages 60 --period 50ms --roadside 0";
    let mut started = place.start(punctual(arguments));
    let parent = started.id();
    started.has("a listener that is ready", || all_ready(parent));
    // It was started first.
    let listener = children(parent).into_iter().next().expect("a listener");
    assert!(is_sent("-KILL", &listener));
    let ended = started.end().with(1);
    assert!(ended.err.contains("listener") && ended.err.contains("died"), "{}", ended.err);
}

/// Goal: a vehicle that was stopped is named, its values were never sent, and stalls have one name and one count.
#[test]
fn a_vehicle_that_stands_still_is_called_so() {
    let place = Place::alone();
    let arguments = "run vehicles --engine shared --vehicles 3 --runs 1 --out run --period 20ms --messages 120 --roadside 0 --json summary.json";
    let ended = with_one_stopped(&place, arguments).with(0);
    let summary = place.summary("summary.json");
    let absences = summary["vehicles"]["runs"][0]["absences"].as_array().expect("absences").clone();
    let stopped: Vec<&Value> = absences.iter().filter(|absence| count(absence, "continued") > 0).collect();
    assert!(stopped.len() == 1 && count(stopped[0], "skipped") >= 10, "{absences:#?}");
    assert!(words(&ended.out).contains("stopped: a signal continued it 1 times"), "{}", ended.out);
    let doubts = summary["doubts"].to_string();
    assert!(doubts.contains("never sent") && !doubts.contains("no answer yet"), "{doubts}");
    // One word, one count: on the terminal, in the summary and on its page.
    let results = summary["results"].as_array().expect("results");
    let stalls: u64 = results.iter().map(|result| count(result, "stalls")).sum();
    assert!(stalls > 0 && count(&summary["vehicles"], "stall_count") == stalls, "{results:#?}");
    assert!(
        words(&ended.out).contains(&format!("Stalls of receivers: due → received: {stalls} in all runs")),
        "{}",
        ended.out
    );
    assert!(!ended.out.to_lowercase().contains("standstill"), "{}", ended.out);
    let page = text(&place.path("run/report.html"));
    for shown in [&ended.out, &page] {
        assert!(["medium", "elsewhere", "woken"].iter().all(|stage| shown.contains(stage)), "{shown}");
    }
    assert_stages_sum(&place.path("run"));
}

/// The stages of no message take longer than it did.
fn assert_stages_sum(run: &std::path::Path) {
    for trial in &Run::open(run).expect("a run").trials {
        let samples = trial.load().expect("samples");
        for row in 0..samples.len() {
            let rest = samples.unexplained_ns(row).unwrap_or(0);
            assert!(rest >= -20, "{}, row {row}: {rest} ns of {}", trial.cell, samples.total_ns[row]);
        }
    }
}

/// Stops one vehicle for half a second, while values travel; returns how the run ended. A test that was itself held up for so
/// long that the run may have been over tries again.
fn with_one_stopped(place: &Place, arguments: &str) -> Ended {
    /// From the barrier on values travel for 2.4 s.
    const STOPPED_BY: Duration = Duration::from_millis(2_600);
    loop {
        let mut started = place.start(punctual(arguments));
        let parent = started.id();
        started.has("three vehicles that are ready", || all_ready(parent));
        let ready = Instant::now();
        std::thread::sleep(Duration::from_millis(1_200));
        let stopped = children(parent).into_iter().nth(1).unwrap_or_default();
        let stop = Stop::make(&stopped, Duration::from_millis(500));
        let by = ready.elapsed();
        let ended = started.end();
        if stop.is_some() && by < STOPPED_BY {
            return ended;
        }
        eprintln!("once more: continued {by:?} after all were ready");
        std::fs::remove_dir_all(place.path("run")).expect("it was made");
    }
}

/// Goal: Ctrl-C keeps what was measured, and leaves no process and no interface behind.
#[test]
fn an_interrupted_run_keeps_what_it_measured() {
    let place = Place::alone();
    let engine = if has_roads() { "packet" } else { "shared" };
    let arguments = format!(
        "run vehicles --engine {engine} --vehicles 3 --runs 3 --out run --roadside 0 --duration 60s --period 10ms"
    );
    let mut started = place.start(punctual(&arguments));
    let parent = started.id();
    started.has("three vehicles", || all_ready(parent));
    // Values travel from 0.8 s on.
    std::thread::sleep(Duration::from_secs(3));
    let vehicles = children(parent);
    started.signal_group("-INT");
    let ended = started.end();
    assert!(matches!(ended.code, Some(0 | 1)), "{}\n{}", ended.out, ended.err);
    let summary = place.summary("run/summary.json");
    assert_account(&summary);
    assert!(summary.to_string().contains("cut short"));
    assert_eq!(summary["vehicles"]["runs"][0]["is_cut"], true);
    assert!(
        ended.out.contains("ours, run 1, cut short") && !ended.out.contains("below the last table"),
        "{}",
        ended.out
    );
    assert!(vehicles.iter().all(|pid| !std::fs::exists(format!("/proc/{pid}")).unwrap_or(false)));
    let links =
        Command::new("ip").args(["-o", "link"]).output().map(|output| output.stdout).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&links).contains("road:"), "the bridge is still there");
}

/// Goal: a run that was interrupted before its barrier opened is none.
#[test]
fn a_run_that_only_began_is_none() {
    let place = Place::alone();
    // Of 240 components the barrier opens after almost four seconds.
    let arguments = "run vehicles --engine shared --vehicles 4 --components 60";
    let mut started = place.start(punctual(&format!("{arguments} --roadside 0 --out run")));
    let parent = started.id();
    started.has("vehicles that are ready", || all_ready(parent));
    started.signal_group("-INT");
    let ended = started.end();
    assert_eq!(ended.code, Some(3), "{}\n{}", ended.out, ended.err);
    assert!(ended.err.contains("interrupted before anything was measured"), "{}", ended.err);
}

/// Goal: a run that could not begin leaves no folder that looks like a run.
#[test]
fn a_run_that_cannot_begin_leaves_nothing() {
    let place = Place::new();
    place.punctual("run vehicles --engine packet --interface nowhere0").with(3);
    let left = std::fs::read_dir(place.path("runs")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "folders in runs/");
}

/// Goal: one line that names the option, the value and the range.
#[test]
fn misuse_is_told_in_a_line() {
    let place = Place::new();
    for (arguments, word) in [
        ("--vehicles 1", "--vehicles 1: from 2 to 200"),
        ("--vehicles 201", "from 2 to 200"),
        ("--components 0", "--components 0"),
        ("--period 1us", "--period"),
        ("--mode telepathy", "telepathy"),
        ("--wake futex", "--wake futex"),
        ("--wake sleepwalk", "sleepwalk"),
        ("--mode engine --roadside 2", "--mode engine"),
        ("--mode engine --seal on", "--seal on"),
        ("--messages 9000000", "MiB"),
        ("--gap 1ms", "--gap"),
        ("--period 1500ns", "--period"),
        ("--mode engine --wake eventfd", "--wake eventfd"),
        ("--mode async --wake futex", "signal, epoll or spin"),
        ("--mode async --wake eventfd", "signal, epoll or spin"),
        ("--mode async --engine shared --wake signal", "--wake signal"),
        ("--mode async --wake adaptive", "--wake adaptive"),
        ("--sched fifo:0", "fifo:0"),
        ("--sched deadline:10/100", "--sched deadline"),
        ("--sched fifo:1 --wake spin", "--sched fifo:1"),
        ("--interfaces two", "two"),
        ("--interfaces each --engine shared", "--interfaces each"),
        ("--interfaces each --interface br0", "--interface"),
        ("--messages 5 --duration 5s", "--duration"),
        ("--runs 0", "--rounds"),
    ] {
        let ended = place.punctual(&format!("run vehicles {arguments}")).with(2);
        assert!(ended.err.contains(word) && ended.err.trim().lines().count() == 1, "{}", ended.err);
    }
    let ended = place.punctual("run vehicles --interface nowhere0").with(3);
    assert!(ended.err.contains("nowhere0") && ended.err.trim().lines().count() == 1, "{}", ended.err);
}
