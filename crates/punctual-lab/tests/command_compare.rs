//! `punctual compare`: no difference where there is none, and a real one found.

mod common;

use common::{Place, alone, survey};
use punctual_lab::store::{Run, Store};

/// A copy of a run in which every message took three times as long.
fn slowed_down(run: &Run, place: &Place, name: &str) {
    let mut store = Store::create(Some(&place.path(name)), &run.header).expect("a new directory");
    for trial in &run.trials {
        let mut samples = trial.load().expect("readable");
        samples.total_ns.iter_mut().for_each(|ns| *ns *= 3);
        store.append(&trial.cell, trial.trial, &samples).expect("room");
    }
    let summary = store.summary().expect("readable");
    store.finish(&summary).expect("room");
}

#[test]
fn only_what_differs_differs() {
    let _turn = alone();
    let place = Place::new();
    survey(&place, &["--gap", "0", "--quiet", "--out", "a"]);
    let run = Run::open(&place.path("a")).expect("a run");
    let cells = run.cells().len();
    slowed_down(&run, &place, "b");
    let same = place.punctual(&["compare", "a", "a"]).with(0).out;
    assert!(same.contains(&format!("0 of {cells} cells differ")), "{same}");
    for (pair, verdict, other) in [(["a", "b"], "slower", "faster"), (["b", "a"], "faster", "slower")] {
        let said = place.punctual(&["compare", pair[0], pair[1]]).with(0).out;
        let medians: Vec<&str> = said.lines().filter(|line| line.trim().starts_with("p50 ")).collect();
        let agree = medians.iter().all(|line| !line.contains(other));
        assert!(agree && medians.iter().any(|line| line.contains(verdict)), "{said}");
    }
}
