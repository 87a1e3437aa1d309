//! The store gives back what it was given, and says what it cannot give back.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use punctual_lab::doubt::Cause;
use punctual_lab::sample::{ABSENT_NS, CellId, Kind, Load, Outcome, Samples, StageColumn};
use punctual_lab::store::{Header, Run, Store, StoreError};

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        8 => Just(Outcome::Answered),
        1 => Just(Outcome::Lost),
        1 => Just(Outcome::Unfinished),
        1 => Just(Outcome::Mismatched)
    ]
}

prop_compose! {
    fn samples()(
        rows in prop::collection::vec((any::<[u64; 4]>(), outcome(), any::<u64>(), any::<u64>()), 0..300),
        duplicated in 0u64..5,
        senders in any::<bool>(),
    ) -> Samples {
        let mut samples = Samples::with_capacity(rows.len());
        let mut stages = [Vec::new(), Vec::new()];
        for ([index, due, sent, total], outcome, first, second) in rows {
            samples.push(index, due, sent, total, outcome);
            stages[0].push(first);
            stages[1].push(if second % 3 == 0 { ABSENT_NS } else { second });
        }
        if senders {
            samples.sender = samples.index.iter().map(|index| index % 15).collect();
        }
        let [first, second] = stages;
        samples.stages.push(StageColumn { name: "request.sealed".to_owned(), ns: first });
        samples.stages.push(StageColumn { name: "sent".to_owned(), ns: vec![ABSENT_NS; samples.len()] });
        samples.stages.push(StageColumn { name: "of its own".to_owned(), ns: vec![7; samples.len()] });
        samples.stages.push(StageColumn { name: "responder".to_owned(), ns: second });
        samples.facts.duplicated = duplicated;
        samples.facts.doubts.push(Cause::Migrated { subject: "trial 0".to_owned(), times: 2 }.into());
        samples
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn stored_samples_are_read_back(trials in prop::collection::vec(samples(), 1..4), gap_us in any::<u64>()) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let out = directory.path().join("run");
        let header = Header::new("survey");
        let cell = CellId { gap_us, kind: Kind::OneWay, load: Load::Open, ..CellId::new("shared", "futex") };
        let mut store = Store::create(Some(&out), &header).expect("an empty directory");
        for (trial, samples) in (0u32..).zip(&trials) {
            store.append(&cell, trial, samples).expect("room");
        }
        let run = Run::open(&out).expect("a run");
        prop_assert_eq!(&run.header, &header);
        prop_assert_eq!(run.cells(), vec![cell.clone()]);
        prop_assert_eq!(run.load(&cell).expect("readable"), trials);
    }
}

/// A run of three small trials, without summary.
fn small_run(out: &Path) -> Vec<std::path::PathBuf> {
    let mut store = Store::create(Some(out), &Header::new("survey")).expect("an empty directory");
    let mut files = Vec::new();
    for trial in 0..3 {
        let mut samples = Samples::default();
        for i in 0..100 {
            samples.push(i, i * 1000, i * 1000, 500 + i, Outcome::Answered);
        }
        files.push(store.append(&CellId::new("datagram", "epoll"), trial, &samples).expect("room"));
    }
    files
}

fn shorten(file: &Path, by: usize) {
    let bytes = fs::read(file).expect("a file of samples");
    fs::write(file, &bytes[..bytes.len() - by]).expect("room");
}

#[test]
fn a_truncated_file_is_a_doubt() {
    for by in [1, 9, 200] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let files = small_run(directory.path());
        shorten(&files[2], by);
        let run = Run::open(directory.path()).expect("the rest is a run");
        assert_eq!(run.trials.len(), 2, "shortened by {by}");
        assert!(run.doubts.iter().any(|d| d.what.contains("-t2.parquet cannot be read")), "{:?}", run.doubts);
        let summary = run.summarise().expect("the rest can be summarised");
        assert!(summary.doubts.iter().any(|d| d.what.contains("cut short")), "{:?}", summary.doubts);
        assert!(run.doubts.iter().all(|doubt| summary.doubts.contains(doubt)), "{:?}", summary.doubts);
        assert_eq!(summary.results[0].trials, 2);
    }
}

#[test]
fn a_flipped_byte_never_changes_a_sample() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = small_run(directory.path());
    let whole = fs::read(&files[0]).expect("a file of samples");
    let sound = Run::open(directory.path()).expect("a run").trials[0].load().expect("sound");
    for place in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[place] ^= 0xff;
        fs::write(&files[0], &bytes).expect("room");
        let run = Run::open(directory.path()).expect("the rest is a run");
        match run.trials.len() {
            2 => {}
            3 => assert_eq!(run.trials[0].load().expect("listed"), sound, "byte {place}"),
            other => panic!("{other} trials after damage to byte {place} of one"),
        }
    }
}

#[test]
fn a_file_being_written_is_a_doubt() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = small_run(directory.path());
    fs::rename(&files[2], files[2].with_extension("parquet.partial")).expect("same directory");
    let run = Run::open(directory.path()).expect("the rest is a run");
    assert_eq!(run.trials.len(), 2);
    assert!(run.doubts.iter().any(|d| d.what.contains("being written")), "{:?}", run.doubts);
}

#[test]
fn an_unknown_version_is_refused_by_name() {
    for (file, schema) in [("run.json", "punctual.run.v9"), ("summary.json", "punctual.summary.v9")] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        small_run(directory.path());
        fs::write(directory.path().join(file), format!("{{\"schema\": \"{schema}\"}}")).expect("room");
        let error = Run::open(directory.path()).expect_err("unknown");
        assert!(matches!(&error, StoreError::UnknownVersion { found, .. } if found == schema), "{error}");
        assert!(error.to_string().contains(file), "{error}");
    }
}

/// Goal: regardless of the state of the summary, the samples are read, and the figures are made of them.
#[test]
fn a_damaged_summary_is_a_doubt() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("a");
    small_run(&out);
    let whole = Run::open(&out).expect("a run").conclude().expect("sound").to_json();
    let half = &whole[..whole.len() / 2];
    let stripped = whole.replace("\"results\"", "\"outcomes\"");
    let damaged: [&[u8]; 5] = [b"", b"null", half.as_bytes(), stripped.as_bytes(), b"\xff\xfe"];
    for bytes in damaged {
        fs::write(out.join("summary.json"), bytes).expect("room");
        let run = Run::open(&out).expect("the samples are sound");
        assert!(run.summary.is_none() && !run.is_cut_short && run.trials.len() == 3, "{run:?}");
        let summary = run.summarise().expect("the samples are sound");
        let says = |words: &str| summary.doubts.iter().any(|doubt| doubt.what.contains(words));
        assert!(says("summary.json cannot be read") && !says("cut short"), "{:?}", summary.doubts);
        assert_eq!(summary.results[0].trials, 3);
    }
}

/// Goal: however many trials a summary that somebody edited claims, the run is read.
#[test]
fn absurd_numbers_of_trials_are_missing_trials() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("a");
    small_run(&out);
    let mut summary = Run::open(&out).expect("a run").conclude().expect("sound");
    summary.results.extend(summary.results.clone());
    summary.results.iter_mut().for_each(|result| result.trials = u64::MAX);
    fs::write(out.join("summary.json"), summary.to_json()).expect("room");
    let run = Run::open(&out).expect("a run");
    let missing = format!("{} of {} files", u64::MAX - 3, u64::MAX);
    assert!(run.doubts.iter().any(|doubt| doubt.what.contains(&missing)), "{:?}", run.doubts);
}

#[test]
fn a_path_that_is_no_run_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let error = Run::open(directory.path()).expect_err("not a run");
    assert!(matches!(error, StoreError::NotARun { .. }), "{error}");
    let error = Run::open(&directory.path().join("nothing here")).expect_err("nothing");
    assert!(matches!(error, StoreError::Absent { .. }), "{error}");
    fs::write(directory.path().join("run.json"), "{").expect("room");
    let error = Run::open(directory.path()).expect_err("damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn runs_are_never_mixed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    small_run(directory.path());
    let error = Store::create(Some(directory.path()), &Header::new("survey")).expect_err("occupied");
    assert!(matches!(error, StoreError::Occupied { .. }), "{error}");
    let file = directory.path().join("run.json");
    let error = Store::create(Some(&file), &Header::new("survey")).expect_err("a file");
    assert!(matches!(error, StoreError::NoPlace { .. }), "{error}");
    // A path that was misspelled is not made.
    let nowhere = directory.path().join("no").join("where");
    let error = Store::create(Some(&nowhere), &Header::new("survey")).expect_err("no parent");
    assert!(matches!(error, StoreError::NoPlace { .. }), "{error}");
    assert!(!directory.path().join("no").exists());
}

#[test]
fn a_finished_run_has_its_summary() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("a");
    let store = Store::create(Some(&out), &Header::new("wakeup")).expect("a new directory");
    let summary = store.summary().expect("nothing to read");
    assert_eq!(store.finish(&summary).expect("room"), out);
    let run = Run::open(&out).expect("a run");
    assert_eq!(run.summary.as_ref().map(|s| s.experiment.as_str()), Some("wakeup"));
    assert_eq!(run.summarise().expect("stored").doubts, Vec::new());
}
