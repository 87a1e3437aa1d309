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
        let again = place.punctual(&["report", "run", "--text"]).with(0).out;
        assert!(again.contains("Who serves how many"), "{again}");
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
