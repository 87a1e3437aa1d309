//! `punctual survey`, as scripts and people call it.

mod common;
mod glossary;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::{
    Ended, Place, alone, children, is_root, punctual, punctual_by, result, short_survey, summary_of, survey,
    text, unprivileged,
};
use punctual_lab::sample::Phase;
use punctual_lab::store::Run;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn names(summary: &Value) -> Vec<&str> {
    let results = summary["results"].as_array().expect("results");
    results.iter().map(|result| result["name"].as_str().expect("a name")).collect()
}

/// The reason why something was not measured.
fn skipped(summary: &Value, what: &str) -> Option<String> {
    let list = summary["skipped"].as_array()?;
    let entry = list.iter().find(|entry| entry["what"].as_str().is_some_and(|text| text.contains(what)))?;
    entry["reason"].as_str().map(str::to_owned)
}

/// Method: one survey, which takes seconds; each goal has its function.
#[test]
fn a_survey_leaves_what_it_should() {
    let place = Place::alone();
    let ended = survey(&place, "--json - --out run");
    the_summary_on_standard_output_keeps_the_contract(&place, &ended);
    every_trial_begins_with_a_warm_up_of_its_own(&place);
    the_page_needs_no_network(&place);
}

/// Goal: a far end that dies breaks the promise, its trial is kept, and all later trials are measured with a new one.
#[test]
fn a_responder_that_dies_costs_one_trial() {
    let place = Place::alone();
    let mut started = place.start(punctual("survey --quick --only shared/futex --duration 20s --out run"));
    let (parent, samples) = (started.id(), place.path("run/samples"));
    let stored = || fs::read_dir(&samples).map_or(0, Iterator::count);
    // Each message lets it sleep once.
    let sleeps_of = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    started.has("the midst of a trial between processes", || {
        let Some(pid) = children(parent).pop() else { return false };
        let (trials, sleeps) = (stored(), sleeps_of(&pid));
        std::thread::sleep(Duration::from_millis(20));
        let is_amid = trials > 2 && stored() == trials && sleeps_of(&pid) > sleeps + 5;
        // By the call itself: a program for it may need longer to start than the trial lasts.
        let kill = |pid: i32| kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).is_ok();
        is_amid && pid.parse().is_ok_and(kill)
    });
    let before = stored();
    let ended = started.end().with(1);
    let summary = place.summary("run/summary.json");
    let doubts = summary["doubts"].to_string();
    assert!(doubts.contains("the responder ended by signal 9"), "{doubts}\n{}", ended.err);
    assert!(stored() > before + 1, "{before} trials, then {}", stored());
}

fn the_summary_on_standard_output_keeps_the_contract(place: &Place, ended: &Ended) {
    let summary = summary_of(&ended.out);
    let names = names(&summary);
    assert!(names.contains(&"shared/spin") && names.contains(&"shared/futex"), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("shared/")), "{names:?}");
    assert_eq!(ended.out.trim(), text(&place.path("run/summary.json")).trim());
    let samples = fs::read_dir(place.path("run/samples")).expect("samples").count();
    glossary::explains(&place.path("run"));
    let run = Run::open(&place.path("run")).expect("a run");
    assert!(
        run.doubts.is_empty() && run.trials.len() == samples && samples > 0,
        "{samples}: {:?}",
        run.doubts
    );
}

/// Goal: everything that a trial binds anew, it warms up anew: no first message of any trial is a steady one.
fn every_trial_begins_with_a_warm_up_of_its_own(place: &Place) {
    let run = Run::open(&place.path("run")).expect("a run");
    let warmup = run.header.warmup;
    assert!(warmup > 1);
    for trial in &run.trials {
        let samples = trial.load().expect("readable");
        let (name, of) = (trial.cell.to_string(), trial.trial);
        assert_eq!(samples.index.first(), Some(&0), "{name}, trial {of}");
        let apart = samples.rows(Phase::First, warmup).chain(samples.rows(Phase::WarmUp, warmup));
        assert_eq!(apart.count() as u64, samples.facts.warmup.unwrap_or(warmup), "{name}, trial {of}");
    }
    let summary = run.summary.expect("it ended");
    let firsts = summary.results.iter().filter(|result| result.first_ns.len() as u64 != result.trials);
    assert_eq!(firsts.map(|result| &result.cell.name).collect::<Vec<_>>(), Vec::<&String>::new());
}

fn the_page_needs_no_network(place: &Place) {
    let page = text(&place.path("run/report.html"));
    for outside in ["http:", "https:", "src=", "@import", "<link", "<script"] {
        assert!(!page.contains(outside), "the page holds {outside:?}");
    }
    for opening in ["href=\"", "url("] {
        let targets = page.match_indices(opening).map(|(at, found)| &page[at + found.len()..]);
        assert!(targets.into_iter().all(|target| target.starts_with('#')), "{opening} leaves the page");
    }
}

/// Goal: advice for users without a spare CPU rests on rows beside busy neighbours, and on the library's cost on several openings.
/// Neither stands among the idle rows.
#[test]
fn neighbours_and_openings_have_their_rows() {
    let place = Place::alone();
    let out = place.punctual("survey --quick --load closed --duration 20s --out run --json j").with(0).out;
    let summary = place.summary("j");
    glossary::explains(&place.path("run"));
    let row = |name: &str| result(&summary, name);
    for way in ["spin", "backoff", "adaptive", "futex", "eventfd", "epoll"] {
        assert_eq!(row(&format!("shared/{way}")).get("neighbour"), None);
        assert_eq!(row(&format!("shared/{way}+busy"))["neighbour"], true);
    }
    let choices = summary["recommendation"]["choices"].as_array().expect("choices");
    let spare =
        choices.iter().find(|choice| choice["need"].as_str().is_some_and(|n| n.contains("no CPU to spare")));
    let name = spare.and_then(|choice| choice["name"].as_str()).expect("a choice");
    assert!(name.ends_with("+busy") && name != "shared/spin+busy", "{name}");
    let cost = &summary["library_cost"][0];
    assert_eq!((&cost["name"], &cost["floor"]), (&"shared/spin+plain".into(), &"floor/slot".into()));
    assert!(cost["openings"].as_u64() >= Some(5) && cost["interval"][0].is_number(), "{cost}");
    assert!(row("shared/spin+plain").get("stages").is_none(), "stamps beside a floor that has none");
    let words: Vec<&str> = out.split_whitespace().collect();
    assert!(words.join(" ").contains("beside a busy neighbour on each CPU"), "{out}");
    assert_eq!(out.lines().filter(|line| line.starts_with("shared/futex ")).count(), 1, "{out}");
}

/// Goal: a neighbour that starts when the run has begun is doubted. Method: a process that computes is started then.
#[test]
fn a_neighbour_that_starts_meanwhile_is_doubted() {
    let place = Place::alone();
    let started = place.start(punctual(&short_survey("--quiet --json summary.json --out run")));
    // Not its child: a process that the survey starts itself is not a neighbour.
    let mut hog = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
    let ended = started.end();
    hog.kill().expect("ours");
    hog.wait().expect("ours");
    ended.with(0);
    let summary = place.summary("summary.json");
    let doubts = summary["doubts"].as_array().expect("doubts");
    let about =
        |doubt: &&Value| doubt["what"].as_str().is_some_and(|what| what.contains("other programs used"));
    assert!(doubts.iter().any(|doubt| about(&doubt)), "{doubts:?}");
    assert!(
        summary["clock"]["skew_ns"].as_array().is_none_or(|ends| ends.len() == 2),
        "{}",
        summary["clock"]
    );
}

#[test]
fn a_summary_in_a_file_leaves_the_table_to_people() {
    let place = Place::alone();
    let ended = survey(&place, "--json summary.json");
    place.summary("summary.json");
    assert!(ended.out.contains("shared/backoff") && ended.out.contains("What to use"), "{}", ended.out);
    let (answer, _doubts_and_places) = ended.out.split_once("\nDoubts\n").expect("so short a run has doubts");
    assert!(answer.contains("let bus = Bus::shared("), "no code to write: {answer}");
    for line in ended.out.lines().filter(|line| !line.starts_with("page ") && !line.starts_with("samples ")) {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    assert!(!ended.out.contains('\x1b'), "colours in a file");
    let runs: Vec<_> = fs::read_dir(place.path("runs")).expect("the default place").collect();
    assert_eq!(runs.len(), 1);
}

#[test]
fn quiet_says_nothing() {
    let place = Place::alone();
    let arguments = "survey --quick --only shared/futex --gap 0 --duration 200ms --out run";
    let ended = place.punctual(&format!("{arguments} --quiet")).with(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
}

/// Method: Ctrl-C reaches the whole group as soon as a few trials are stored, long before the survey is over.
#[test]
fn an_interrupted_survey_keeps_what_it_measured() {
    let place = Place::alone();
    let mut started = place.start(punctual("survey --quick --only shared/ --duration 60s --out run"));
    let samples = place.path("run/samples");
    let stored = || fs::read_dir(&samples).map_or(0, |entries| entries.flatten().count());
    started.has("a few trials", || stored() >= 4);
    started.signal_group("-INT");
    let ended = started.end().with(0);
    let summary = place.summary("run/summary.json");
    let doubts = summary["doubts"].as_array().expect("doubts");
    let cut_short = |doubt: &Value| doubt["what"].as_str().is_some_and(|what| what.contains("cut short"));
    assert!(doubts.iter().any(cut_short), "{}", ended.out);
    assert!(!names(&summary).is_empty());
    fs::remove_file(place.path("run/report.html")).expect("it was made");
    place.punctual("report run").with(0);
    assert!(text(&place.path("run/report.html")).contains("cut short"));
    let files = fs::read_dir(&samples).expect("samples").flatten();
    assert!(files.into_iter().all(|file| file.path().extension().is_some_and(|kind| kind == "parquet")));
}

/// Method: the user that owns nothing, without any capability; as that user already, as we are.
#[test]
fn without_privilege_raw_ethernet_is_left_out_and_said() {
    let _turn = alone();
    let place = Place::world_writable();
    let arguments = "survey --quick --gap 0 --only /spin --duration 2s --json -";
    let Some(command) = unprivileged(arguments) else { return };
    let summary = summary_of(&place.start(command).end().with(0).out);
    let measured = names(&summary);
    assert!(measured.contains(&"shared/spin") && measured.contains(&"datagram/spin"), "{measured:?}");
    if !is_root() && measured.contains(&"packet/spin") {
        punctual_machine::skipped!("this user may open packet sockets");
        return;
    }
    let reason = skipped(&summary, "raw Ethernet");
    assert!(reason.as_ref().is_some_and(|reason| reason.contains("CAP_NET_RAW")), "{reason:?}");
}

#[test]
fn on_one_processor_it_says_what_it_left_out() {
    let place = Place::alone();
    let status = text("/proc/self/status".as_ref());
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
    let first = list.trim().split(['-', ',']).next().expect("one processor");
    if Command::new("taskset").arg("--version").output().is_err() {
        punctual_machine::skipped!("no taskset here (util-linux)");
        return;
    }
    let arguments = short_survey("--json -");
    let summary =
        summary_of(&place.start(punctual_by(&["taskset", "-c", first], &arguments)).end().with(0).out);
    let measured = names(&summary);
    assert!(measured.contains(&"shared/futex") && !measured.contains(&"shared/spin"), "{measured:?}");
    assert!(skipped(&summary, "polling").is_some_and(|reason| reason.contains("two processors")));
}
