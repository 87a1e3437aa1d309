//! `punctual run server`, as scripts and people call it. Nothing here asserts how long something takes.

mod common;

use common::{Place, alone, summary_of};

/// Goal: every model serves both kinds of load, and what it did is in the summary, in the store and in words.
#[test]
fn every_model_serves() {
    let _turn = alone();
    for (load, of_load) in [(&["--think", "5ms"][..], "closed"), (&["--poisson", "--rho", "20"], "open")] {
        let place = Place::new();
        let mut arguments = vec!["run", "server", "--quick", "--json", "summary.json", "--out", "run"];
        arguments.extend(["--duration", "300ms", "--connections", "8", "--matrix", "4", "--classes", "2"]);
        arguments.extend(load);
        let ended = place.punctual(&arguments).with(0);
        for words in ["Who serves how many", "Class by class", "As published", "1,538"] {
            assert!(ended.out.contains(words), "{words}: {}", ended.out);
        }
        let summary = summary_of(&std::fs::read_to_string(place.path("summary.json")).expect("a file"));
        for model in ["threads-blocking", "threads-yield", "classes", "classes-on-tokio", "tokio"] {
            for class in 0..2 {
                let name = format!("{model}/c8/m4/class{class}");
                let results = summary["results"].as_array().expect("results");
                let result = results.iter().find(|result| result["name"] == name.as_str()).expect("a result");
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
                model.starts_with("classes"),
                "{trial:#}"
            );
        }
        explains(&place, of_load);
        let again = place.punctual(&["report", "run", "--text"]).with(0).out;
        assert!(again.contains("Who serves how many"), "{again}");
    }
}

/// Each finding has its stage, and the side that has it.
fn explains(place: &Place, load: &str) {
    let evidence = std::fs::read_dir(place.path("run/evidence")).expect("a folder").count();
    assert_eq!(evidence, 10, "of each model and class");
    let said = place.punctual(&["explain", "run", "--json"]).with(0).out;
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
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
        (&["--poisson", "--load", "closed"][..], "--poisson"),
        (&["--gap", "1ms"], "--gap"),
        (&["--classes", "9"], "--classes"),
        (&["--connections", "0"], "--connections"),
    ] {
        let said = place.punctual(&[&["run", "server"], arguments].concat()).with(2).err;
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
