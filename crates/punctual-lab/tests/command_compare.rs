//! `punctual compare`: no difference where there is none, and a real one found.

mod common;

use common::{Place, interleaved, survey};
use punctual_lab::store::{Run, Store, StoredTrial};

/// A copy of a run in which each trial of a cell is its first one, every message so many times as long. Trials lie apart by a fiftieth
/// each: the spread of those of a busy host is not the subject here.
fn stretched(run: &Run, place: &Place, name: &str, times: f64) {
    let mut store = Store::create(Some(&place.path(name)), &run.header).expect("a new directory");
    for trial in &run.trials {
        let is_first = |first: &&StoredTrial| first.cell == trial.cell;
        let first = run.trials.iter().find(is_first).expect("the cell has a trial");
        let mut samples = first.load().expect("readable");
        let times = times * (1.0 + f64::from(trial.trial) / 50.0);
        samples.total_ns.iter_mut().for_each(|ns| *ns = (*ns as f64 * times) as u64);
        store.append(&trial.cell, trial.trial, &samples).expect("room");
    }
    let summary = store.summary().expect("readable");
    store.finish(&summary).expect("room");
}

/// Goal: a run does not differ from itself, and one whose messages took three times as long is slower in the median of each cell.
#[test]
fn only_what_differs_differs() {
    let place = Place::alone();
    survey(&place, "--gap 0 --quiet --out measured");
    let run = Run::open(&place.path("measured")).expect("a run");
    let cells = run.cells().len();
    // In a folder of their own: runs beside them would say how far runs lie apart.
    std::fs::create_dir(place.path("made")).expect("room");
    stretched(&run, &place, "made/a", 1.0);
    stretched(&run, &place, "made/b", 3.0);
    for name in ["measured", "made/a"] {
        let same = place.punctual(&format!("compare {name} {name}")).with(0).out;
        assert!(same.contains(&format!("0 of {cells} cells differ")), "{same}");
    }
    let mistyped = place.punctual("compare made/a made/b --history nowhere").with(2).err;
    assert!(mistyped.contains("--history nowhere"), "{mistyped}");
    for (pair, verdict) in [("made/a made/b", "slower"), ("made/b made/a", "faster")] {
        let said = place.punctual(&format!("compare {pair}")).with(0).out;
        let medians: Vec<&str> = said.lines().filter(|line| line.trim().starts_with("p50 ")).collect();
        // A cell of few messages has no quantile that can be compared.
        assert!(medians.len() * 2 > cells, "{said}");
        assert!(medians.iter().all(|line| line.contains(verdict)), "{said}");
    }
}

/// Goal: two commands are played in turn, and each run is kept.
#[test]
fn two_commands_are_played_in_turn() {
    let place = Place::alone();
    let command =
        "punctual survey --quick --only shared/spin --gap 0 --load closed --duration 200ms --count 2000";
    let other = format!("{command} --seed '2'");
    let compared = place.start(interleaved(command, &other, "--pairs 5 --out turns --json -")).end().with(0);
    let said: serde_json::Value = serde_json::from_str(&compared.out).expect("JSON");
    assert_eq!(said["schema"], "punctual.comparison.v1");
    assert_eq!(said["comparison"]["runs"], serde_json::json!([5, 5, 0]));
    assert_eq!(said["comparison"]["order"], "interleaved");
    let basis = &said["comparison"]["cells"][0]["comparison"]["basis"];
    assert_eq!(basis, &serde_json::json!({ "pairs": 5 }));
    let needed = said["comparison"]["cells"][0]["comparison"]["pairs_needed"].as_u64();
    assert!(needed.is_some_and(|pairs| pairs >= 5), "{said:#}");
    let started = |side: &str, number: u32| {
        let run = Run::open(&place.path(&format!("turns/{side}/{number:03}"))).expect("a run");
        assert_eq!(run.header.seed, if side == "a" { 1 } else { 2 });
        run.header.started
    };
    for pair in 1..=5 {
        let [first, second] = if pair % 2 == 1 { ["a", "b"] } else { ["b", "a"] };
        assert!(started(first, pair) <= started(second, pair), "pair {pair}");
    }
    let again = place.punctual("compare turns/a turns/b").with(0).out;
    let cells = said["comparison"]["cells"].as_array().expect("a list").len();
    assert!(again.contains(&format!("of {cells} cells differ")), "{again}");
    let list = "turns/a/001,turns/a/002,turns/a/003";
    place.punctual(&format!("compare {list} turns/b/001,turns/b/002")).with(0);
    let table = place.punctual("compare-calibrate turns/a").with(0).out;
    // As short as the column's head, so that no width of the figures breaks it into two lines.
    assert!(table.contains("two runs alone"), "{table}");
}

/// Goal: a run that ended with 1, as after a panic that no figure shows, is compared and named, and so ends the comparison.
#[test]
fn a_run_that_broke_its_promise_is_said() {
    let place = Place::alone();
    let sound =
        "punctual survey --quick --only shared/spin --gap 0 --load closed --duration 200ms --count 500";
    let broken = format!("{sound} --quiet --out \"$1\"; exit 1; true");
    let compared = place.start(interleaved(sound, &broken, "--pairs 5 --out turns --json -")).end().with(1);
    let said: serde_json::Value = serde_json::from_str(&compared.out).expect("JSON");
    let doubts = said["comparison"]["doubts"].to_string();
    assert!(doubts.contains("turns/b/005") && !doubts.contains("turns/a"), "{doubts}");
    assert!(compared.err.contains("a promise did not hold in turns/b/001"), "{}", compared.err);
}

/// Goal: a comparison with nothing in common is told after one pair, and no other is made.
#[test]
fn a_comparison_with_nothing_in_common_is_made_once() {
    let place = Place::alone();
    let of = |gap: &str| {
        format!(
            "punctual survey --quick --only shared/spin --gap {gap} --load closed --duration 200ms --count 100"
        )
    };
    let (a, b) = (of("0"), of("1ms"));
    let ended = place.start(interleaved(&a, &b, "--pairs 5 --out turns")).end().with(2);
    assert!(ended.err.contains("nothing in common"), "{}", ended.err);
    let made = |side: &str| std::fs::read_dir(place.path(side)).expect("a side").count();
    assert_eq!(["turns/a", "turns/b"].map(made), [1, 1]);
}

#[test]
fn a_command_that_makes_no_run_is_refused() {
    let place = Place::new();
    for (command, words) in [("true", "takes --out"), ("punctual survey --gap x", "no command that measures")]
    {
        let ended = place.start(interleaved(command, command, "")).end().with(2);
        assert!(ended.err.contains(words), "{}", ended.err);
        std::fs::remove_dir_all(place.path("runs")).expect("it was made");
    }
    place.punctual("compare none none").with(2);
    place.punctual("compare none none --pairs 7").with(2);
}
