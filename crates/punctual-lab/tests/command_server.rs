//! `punctual run server`, as scripts and people call it. Nothing here asserts how long something takes.

mod common;
mod glossary;

use common::{Place, alone, result};
use serde_json::Value;

/// Goal: every model serves both kinds of load, and what it did is in the summary, in the store and in words.
#[test]
fn every_model_serves() {
    let _turn = alone();
    for (load, of_load) in [("--think 5ms", "closed"), ("--poisson --rho 0.2", "open")] {
        let place = Place::new();
        let asked = "--quick --duration 700ms --connections 8 --matrix 4 --classes 2";
        let ended =
            place.punctual(&format!("run server {asked} {load} --json summary.json --out run")).with(0);
        for words in ["Who serves how many", "Class by class", "As published", "1,538"] {
            assert!(ended.out.contains(words), "{words}: {}", ended.out);
        }
        let summary = place.summary("summary.json");
        for model in [
            "threads-blocking",
            "threads-yield",
            "classes",
            "classes-on-tokio",
            "tokio",
            "two-tokios",
            "pollers",
        ] {
            for class in 0..2 {
                let rho = if of_load == "open" { "/rho0.2/poisson" } else { "" };
                let result = result(&summary, &format!("{model}/c8/m4{rho}/class{class}"));
                assert_eq!(
                    (&result["load"], &result["mismatched"]),
                    (&of_load.into(), &0.into()),
                    "{result:#}"
                );
            }
            let trials = summary["server"]["trials"].as_array().expect("trials");
            let trial = trials.iter().find(|trial| trial["model"] == model).expect("a trial");
            assert!(trial["requests"][0].as_u64() > Some(0), "{trial:#}");
            assert_eq!(
                trial["served"]["wakes"].as_u64() > Some(0),
                model.starts_with("classes") || model == "pollers",
                "{trial:#}"
            );
        }
        explains(&place, of_load);
        glossary::explains(&place.path("run"));
        // The capacity of the server is measured where the load is a part of that.
        let capacities = summary["server"]["capacities"].as_array().expect("a list");
        assert_eq!(capacities.len(), if of_load == "open" { 7 } else { 0 });
        assert!(capacities.iter().all(|of| of["per_second"].as_f64() > Some(0.0)), "{capacities:?}");
        let again = place.punctual("report run --text").with(0).out;
        assert!(again.contains("Who serves how many"), "{again}");
    }
}

/// Goal: above saturation what cannot be served in time is refused, which breaks no promise; a task that keeps its worker is named,
/// and so is each trial with it.
#[test]
fn overload_and_hogs_are_named() {
    let _turn = alone();
    // A neighbour that was there only while it was measured what can be served makes that too little.
    let is_refused = (0..5).any(|_| is_overload_refused());
    assert!(is_refused, "of five times what can be served nothing was refused");
}

/// Returns true if something was refused in every trial.
fn is_overload_refused() -> bool {
    let place = Place::new();
    let load = "--duration 500ms --connections 8 --matrix 20 --classes 2 --rho 5 --hog 20ms --lanes 0,1";
    place.punctual(&format!("run server --model classes --json summary.json --shed {load}")).with(0);
    let summary = place.summary("summary.json");
    let trials = summary["server"]["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 4, "with a lane and without, with a hog and without");
    for trial in trials {
        let is_hogged = trial["hog_ns"] == 20_000_000;
        let verdicts = trial["served"]["verdicts"].to_string();
        let is_named = verdicts.contains("long polls") && verdicts.contains("hog");
        assert_eq!(is_named, is_hogged, "{trial:#}");
    }
    let last = result(&summary, "classes/c8/m20/rho5/lanes1/hog/class1");
    assert_eq!(last["mismatched"], 0, "{last:#}");
    let refused = |trial: &Value| (0..2).filter_map(|class| trial["refused"][class].as_u64()).sum::<u64>();
    let is_refused = trials.iter().all(|trial| refused(trial) > 0) && last["refused"].as_u64() > Some(0);
    if !is_refused {
        eprintln!("once more: {summary:#}");
    }
    is_refused
}

/// Each finding has its stage, and the side that has it.
fn explains(place: &Place, load: &str) {
    let evidence = std::fs::read_dir(place.path("run/evidence")).expect("a folder").count();
    assert_eq!(evidence, 14, "of each model and class");
    let said = place.json("explain run --json");
    for finding in said["findings"].as_array().expect("a list") {
        let (name, side) = (&finding["name"], &finding["side"]);
        assert!(finding["would_help"].as_str().is_none_or(|text| !text.contains("evidence")), "{finding:#}");
        // Of what a trial left unanswered no stage may be known.
        let Some(stage) = finding["stage"].as_str() else { continue };
        let of_client = ["request.sent", "request.posted", "reply.medium"].contains(&stage);
        assert_eq!(side, if of_client { "client" } else { "server" }, "{load}: {name}: {finding:#}");
    }
}

#[test]
fn a_load_is_of_one_kind() {
    let place = Place::new();
    for (arguments, words) in [
        ("--poisson --load closed", "--poisson"),
        ("--rho 0.5 --load closed", "--rho"),
        ("--original --load open", "--original"),
        ("--think 5ms --load open", "--think"),
        ("--think 5ms --rho 0.5", "--think"),
        ("--rho 80", "0.01 to 5"),
        ("--lane-sched fifo:1", "--lane-sched"),
        ("--gap 1ms", "--gap"),
        ("--classes 9", "--classes"),
        ("--floor 8=20", "no class 8"),
        ("--floor 120,7=300", "1000 are the most"),
        ("--floor 7=", "--floor"),
        ("--connections 0", "--connections"),
    ] {
        let said = place.punctual(&format!("run server {arguments}")).with(2).err;
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

/// Goal: a trial that the machine cannot make takes nothing away from those that it can, nor does a capacity that it cannot measure. Method:
/// a hundred connections do not fit into 64 descriptors.
#[test]
fn a_trial_that_cannot_be_made_is_skipped() {
    let place = Place::alone();
    let way = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
    let arguments = "run server --model threads-blocking --connections 100,2 --matrix 1 --native";
    for (load, rho, omitted) in [("--think 1ms", "", 1), ("--rho 0.5", "/rho0.5", 2)] {
        let out = format!("run{omitted}");
        let arguments = format!("{arguments} {load} --duration 500ms --quiet --out {out}");
        place.start(common::punctual_by(&way, &arguments)).end().with(0);
        let summary = place.summary(&format!("{out}/summary.json"));
        let cell = format!("threads-blocking/c2/m1{rho}");
        assert!(result(&summary, &cell)["count"].as_u64() > Some(0), "{summary:#}");
        let skipped = summary["skipped"].as_array().expect("a list");
        // Under an open load the capacity, and the load that is a part of it.
        assert_eq!(skipped.len(), omitted, "{skipped:?}");
        let is_of_many = |of: &Value| of["what"].as_str().is_some_and(|what| what.contains("c 100"));
        assert!(skipped.iter().all(is_of_many), "{skipped:?}");
    }
}
