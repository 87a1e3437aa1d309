//! `punctual verify RUN --fix FIX`: a verdict on pairs in turn, what it changes of the host is put back, and what cannot be is said.

mod common;
mod glossary;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::{Place, alone, way_into, with_quota};
use punctual_lab::scheduling::ControlGroup;
use serde_json::Value;

/// A short run to be verified.
fn run(place: &Place) {
    let ended = place.punctual("run response --quiet --rounds 1 --duration 300ms --out run");
    // On a busy machine a trip may be lost, which ends it with 1.
    assert!(place.path("run/summary.json").is_file(), "{}", ended.err);
}

/// Goal: five pairs are made, each with the same cell with and without the fix, and the verdict says what of.
#[test]
fn a_fix_is_judged_by_pairs_in_turn() {
    let place = Place::alone();
    run(&place);
    let arguments = "verify run --fix wake=epoll --duration 200ms --json verdict";
    let text = place.punctual(&format!("{arguments} --out pairs")).with(0).out;
    assert!(text.contains("--wake epoll") && text.contains("New with the fix"), "{text}");
    let said = fs::read_to_string(place.path("verdict")).expect("written");
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["schema"], "punctual.verify.v1");
    assert_eq!(said["comparison"]["runs"], serde_json::json!([5, 5, 0]));
    assert_eq!(said["comparison"]["order"], "interleaved");
    assert_eq!(said["comparison"]["cells"].as_array().expect("cells").len(), 1);
    assert!(said["new_outliers"].is_array() && said["late"].is_array());
    assert_eq!(said["notes"], serde_json::json!([]));
    let option = |side: &str| {
        let header = fs::read_to_string(place.path(&format!("pairs/{side}/001/run.json"))).expect("a run");
        serde_json::from_str::<Value>(&header).expect("JSON")["plan"]["options"].clone()
    };
    assert_eq!([option("a"), option("b")], [serde_json::json!(["blocking"]), serde_json::json!(["epoll"])]);
}

/// Goal: a run of vehicles that is told of frames by signals is made again without them, with the same vehicles.
#[test]
fn vehicles_are_made_again_without_signals() {
    let place = Place::alone();
    let arguments = "run vehicles --engine datagram --mode async --vehicles 3";
    let more = "--rounds 1 --period 20ms --duration 400ms --quiet --out run";
    let ended = place.punctual(&format!("{arguments} {more}"));
    assert!(place.path("run/summary.json").is_file(), "{}", ended.err);
    let text = place.punctual("verify run --fix sigio-off --duration 300ms --out pairs").with(0).out;
    assert!(text.contains("--wake epoll") && text.contains("New with the fix"), "{text}");
    let plan = |path: &str| {
        let header = fs::read_to_string(place.path(path).join("run.json")).expect("a run");
        serde_json::from_str::<Value>(&header).expect("JSON")["plan"].clone()
    };
    let (before, [a, b]) = (plan("run"), ["pairs/a/001", "pairs/b/001"].map(plan));
    assert_eq!([&a["wake"], &b["wake"]], ["signal", "epoll"]);
    for key in ["mode", "engine", "vehicles", "components", "period_us", "sealed", "sched"] {
        assert!(a[key] == before[key] && b[key] == before[key], "{key}: {before:#} {a:#} {b:#}");
    }
    let error = place.punctual("verify run --fix prefault").with(2).err;
    assert!(error.contains("--lock-memory"), "{error}");
}

/// Goal: a run of starts is verified by starts: each mistake is found without being told, and the fix takes its own figure away.
/// Method: work that a mistake adds to the first message's way counts as nothing where the fix is, regardless of the machine's other
/// activity.
#[test]
fn starts_are_primed() {
    let place = Place::alone();
    let mistakes = "pools-in-constructor,cold-crypto,sigio-at-start";
    let arguments = format!("run peel --engine datagram --with {mistakes} --rounds 2 --starts 2");
    let ended = place.punctual(&format!("{arguments} --count 200 --quiet --out run"));
    if ended.code == Some(3) && ended.err.contains("two processors") {
        punctual_machine::skipped!("{}", ended.err);
        return;
    }
    for (fix, own) in [
        ("prime", &[("pools-in-constructor", "node_on_path_ns"), ("cold-crypto", "keys_on_path_ns")][..]),
        ("sigio-off", &[("sigio-at-start", "signals_per_mille")][..]),
    ] {
        let verify = format!("verify run --fix {fix} --json verdict --out {fix}");
        let text = place.punctual(&verify).with(0).out;
        assert!(text.contains("The fix that was tried") && text.contains("improved"), "{text}");
        let json = |path: &str| -> Value {
            serde_json::from_str(&fs::read_to_string(place.path(path)).expect("written")).expect("JSON")
        };
        let (said, summary) = (json("verdict"), json(&format!("{fix}/summary.json")));
        assert_eq!(
            (&said["schema"], &said["fixes"]),
            (&"punctual.verify.v1".into(), &summary["peel"]["fixes"])
        );
        let starts = |kind: &str, culprit: &str| -> Vec<Value> {
            let all = summary["peel"][kind].as_array().expect("a list");
            let of = all.iter().find(|pair| pair[0] == culprit).expect("its starts");
            of[1].as_array().expect("starts").clone()
        };
        for &(culprit, figure) in own {
            let (with, fixed) = (starts("starts_with", culprit), starts("starts_fixed", culprit));
            assert_eq!((with.len(), fixed.len()), (8, 8), "{culprit}");
            assert!(with.iter().all(|start| start[figure].as_u64() > Some(0)), "{culprit}: {with:#?}");
            assert!(fixed.iter().all(|start| start[figure] == 0), "{culprit}: {fixed:#?}");
            assert!(fixed.iter().all(|start| start["first_ns"].as_u64() > Some(0)), "{culprit}: {fixed:#?}");
            let fixes = said["fixes"].as_array().expect("a list");
            let one = fixes.iter().find(|one| one["culprit"] == culprit).expect("its fix");
            let found = summary["peel"]["found"].as_array().expect("a list");
            let found = found.iter().find(|found| found["culprit"] == culprit).expect("its finding");
            // On a machine that is busy elsewhere another figure may have grown by more.
            if found["found"] == true {
                assert_eq!((&one["is_improved"], &one["with"]), (&true.into(), &0.0.into()), "{one:#}");
            } else {
                eprintln!("{culprit} was hidden by {}", found["figure"]);
                assert_eq!(one["is_improved"], false, "{one:#}");
            }
        }
        glossary::explains(&place.path(fix));
    }
    for fix in ["awake", "pin", "untrace"] {
        let error = place.punctual(&format!("verify run --fix {fix}")).with(2).err;
        assert!(error.contains("prime, sigio-off"), "{fix}: {error}");
    }
    for option in ["--trace", "--duration 9s"] {
        let error = place.punctual(&format!("verify run --fix prime {option}")).with(2).err;
        assert!(error.contains("not of a run of peel"), "{option}: {error}");
    }
}

/// Goal: vehicles that strace followed are made again, under it and not, and the verdict is of both.
#[test]
fn vehicles_are_made_again_without_their_tracer() {
    let place = Place::alone();
    if Command::new("strace").arg("-V").output().is_err() {
        punctual_machine::skipped!("there is no strace here");
        return;
    }
    let arguments = "run vehicles --engine shared --mode callback --vehicles 3";
    let more = "--rounds 1 --period 20ms --duration 800ms --quiet --out run";
    let way = ["strace", "-f", "-qq", "-o", "/dev/null"];
    let ended = place.start(common::punctual_by(&way, &format!("{arguments} {more}"))).end();
    assert!(place.path("run/summary.json").is_file(), "{}", ended.err);
    let arguments = "verify run --fix untrace --duration 500ms --out pairs";
    let text = place.punctual(&format!("{arguments} --json verdict")).with(0).out;
    assert!(text.contains("strace -f") && text.contains("New with the fix"), "{text}");
    let is_traced = |run: &str| {
        let folder = fs::read_dir(place.path(run).join("evidence")).expect("evidence");
        let mut files = folder.map(|file| fs::read_to_string(file.expect("a file").path()).expect("text"));
        files.any(|text| text.contains("\"attached\""))
    };
    let sides = ["a", "b"].map(|side| (1..=5).filter(|n| is_traced(&format!("pairs/{side}/{n:03}"))).count());
    assert_eq!(sides, [5, 0], "{text}");
    fs::rename(place.path("pairs/b/001"), place.path("clean")).expect("it is there");
    let error = place.punctual("verify clean --fix untrace").with(2).err;
    assert!(error.contains("names no tracer"), "{error}");
}

/// Goal: a survey of one route is made again with another way to wait, and rows are compared only with those that are alike: one way has
/// a row beside its floor that the other has not.
#[test]
fn a_survey_is_made_again_with_another_way() {
    let place = Place::alone();
    let arguments = "survey --only shared/futex --gap 1ms --load closed";
    let ended = place.punctual(&format!("{arguments} --duration 600ms --quiet --out run"));
    // On a busy machine a message may be lost, which ends it with 1.
    assert!(place.path("run/summary.json").is_file(), "{}", ended.err);
    let arguments = "verify run --fix wake=eventfd --duration 600ms --out pairs";
    let text = place.punctual(&format!("{arguments} --json verdict")).with(0).out;
    assert!(text.contains("--wake eventfd") && text.contains("New with the fix"), "{text}");
    let json = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(place.path(path)).expect("written")).expect("JSON")
    };
    let cells = json("verdict")["comparison"]["cells"].as_array().expect("cells").clone();
    let mut sizes: Vec<u64> = cells.iter().filter_map(|cell| cell["cell"]["size"].as_u64()).collect();
    sizes.sort_unstable();
    // There and back, and one way.
    assert_eq!(sizes, [64, 64, 1024, 1024], "{cells:#?}");
    assert!(cells.iter().all(|cell| cell["cell"]["name"] == "shared/futex"), "{cells:#?}");
    let names = |side: &str| {
        let summary = json(&format!("pairs/{side}/001/summary.json"));
        let results = summary["results"].as_array().expect("results").clone();
        results.iter().map(|result| result["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert!(names("a").iter().any(|name| name == "shared/futex+plain"), "{:?}", names("a"));
    assert!(names("b").iter().all(|name| name == "shared/eventfd"), "{:?}", names("b"));
    let error = place.punctual("verify run --fix class").with(2).err;
    assert!(error.contains("survey has no option"), "{error}");
}

/// Goal: a case that cannot be tried is reported before anything is measured.
#[test]
fn a_case_that_cannot_be_tried_is_said() {
    let place = Place::alone();
    run(&place);
    for (fix, said) in [("luck", "pin, class, nice"), ("pin", "already"), ("wake=blocking", "already")] {
        let error = place.punctual(&format!("verify run --fix {fix}")).with(2).err;
        assert!(error.contains(said), "{fix}: {error}");
    }
    let error = place.punctual("verify run --fix prime").with(2).err;
    assert!(error.contains("before any counts"), "{error}");
    let error = place.punctual("verify run --fix untrace").with(2).err;
    assert!(error.contains("names no tracer"), "{error}");
    let ended = place.punctual("verify run --fix bind-now --duration 100ms");
    // A program that binds later is started so that it does not.
    let is_bound =
        ended.code == Some(2) && ["-z now", "statically"].iter().any(|why| ended.err.contains(why));
    assert!(is_bound || ended.out.contains("LD_BIND_NOW=1"), "{}", ended.err);
    let error = place.punctual("verify nowhere --fix nice").with(2).err;
    assert!(error.contains("nowhere"), "{error}");
}

/// Quota of a control group.
fn quota_of(group: &ControlGroup) -> String {
    let files = ["cpu.max", "cpu.cfs_quota_us"].map(|file| group.members()[0].with_file_name(file));
    files.iter().find_map(|file| fs::read_to_string(file).ok()).expect("a quota")
}

/// Goal: a quota that is lifted for the runs with the fix stands again as it was, also after Ctrl-C in the midst of them.
#[test]
fn a_quota_is_put_back() {
    let _turn = alone();
    let Some(group) = with_quota("verify-test", Duration::from_millis(900)) else { return };
    let place = Place::new();
    run(&place);
    let (before, way) = (quota_of(&group), way_into(&group));
    let arguments = "verify run --fix quota --duration 300ms --json -";
    let mut started = place.start(common::punctual_by(&["sh", "-c", &way], arguments));
    started.has("a lifted quota", || quota_of(&group) != before);
    started.signal_group("-INT");
    started.end();
    assert_eq!(quota_of(&group), before);
}
