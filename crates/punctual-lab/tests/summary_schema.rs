//! Written summaries match `docs/summary.schema.json`, and a broken summary does not.

mod plausible;
#[path = "common/schema.rs"]
mod schema;

use std::collections::BTreeMap;

use punctual_lab::report::{
    parts,
    text::{self, Screen},
};
use punctual_lab::sample::{CellId, Outcome, Samples};
use punctual_lab::store::Header;
use punctual_lab::summary::{Ledger, Summary};
use serde_json::{Value, json};

/// A summary with every optional part.
fn full() -> Summary {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = plausible::run(&directory.path().join("run"), &[0, 1000], 2, 700);
    let mut summary = run.summary.expect("finished");
    let counters = BTreeMap::from([("full".to_owned(), 3), ("bad_tag".to_owned(), 1)]);
    summary.results[0].ledger = Some(Ledger { taken: 1400, delivered: 1396, counters });
    summary.more.insert("matrix".to_owned(), json!([[1, 2], [3, 4]]));
    summary
}

fn faults(value: &Value) -> Vec<String> {
    let schema = include_str!("../../../docs/summary.schema.json");
    schema::faults(&serde_json::from_str(schema).expect("the schema is JSON"), value)
}

#[test]
fn a_produced_summary_is_valid() {
    let summary = full();
    let value: Value = serde_json::from_str(&summary.to_json()).expect("JSON");
    assert_eq!(faults(&value), Vec::<String>::new());
    let lossy = value["results"]
        .as_array()
        .expect("results")
        .iter()
        .find(|r| r["name"] == "packet/signal")
        .expect("measured");
    assert!(
        lossy["lost"].as_u64() > Some(0) && lossy["max"].is_null() && lossy["infinite_from"] == "max",
        "{lossy}"
    );
    assert!(value["results"][0]["p999"].is_null(), "1,198 steady messages support no p999");
    assert!(
        value["results"][0]["warmup"]["p50"].is_u64() && value["results"][0]["first_ns"].as_array().is_some()
    );
    if let Some(file) = std::env::var_os("PUNCTUAL_SUMMARY") {
        std::fs::write(file, summary.to_json()).expect("room");
    }
}

#[test]
fn a_summary_is_read_back_as_it_was_written() {
    let summary = full();
    assert_eq!(serde_json::from_str::<Summary>(&summary.to_json()).expect("our own"), summary);
}

#[test]
fn an_empty_sample_is_valid_too() {
    let mut summary = Summary::new(&Header::new("response"));
    summary.add(&CellId::new("datagram", "epoll"), &[Samples::default()], 10);
    let mut lost = Samples::default();
    lost.push(0, 0, 0, 5, Outcome::Lost);
    summary.add(&CellId::new("datagram", "spin"), &[lost], 0);
    let value: Value = serde_json::from_str(&summary.to_json()).expect("JSON");
    assert_eq!(faults(&value), Vec::<String>::new());
    assert!(!summary.kept_promises(), "a message was lost");
}

/// Goal: a target that a bare mechanism misses is a doubt, and no promise of ours.
#[test]
fn a_floor_promises_nothing() {
    let mut summary = Summary::new(&Header::new("survey"));
    let mut lost = Samples::default();
    lost.push(0, 0, 0, 5, Outcome::Lost);
    for engine in ["floor", "floor-line", "floor-epoll+processes"] {
        summary.add(&CellId::new(engine, "udp-spin"), std::slice::from_ref(&lost), 0);
    }
    assert!(summary.kept_promises());
    let doubted = summary.doubts.iter().any(|doubt| doubt.what.contains("1 message was lost"));
    assert!(doubted, "{:?}", summary.doubts);
}

#[test]
fn a_broken_summary_is_not_valid() {
    let sound: Value = serde_json::from_str(&full().to_json()).expect("JSON");
    let breaks: [(&str, Value); 9] = [
        ("/schema", json!("punctual.summary.v2")),
        ("/started", json!("yesterday")),
        ("/host/cpus", json!("2")),
        ("/results/0/p50", json!(12.5)),
        ("/results/0/max", json!(-1)),
        ("/results/0/kind", json!("half_trip")),
        ("/results/0/stalls", Value::Null),
        ("/results/0/ledger/counters/full", json!("three")),
        ("/doubts/0/do", json!("")),
    ];
    for (place, broken) in breaks {
        let mut value = sound.clone();
        *value.pointer_mut(place).expect("a summary has this") = broken;
        assert!(!faults(&value).is_empty(), "{place}");
    }
    for (object, field) in
        [("", "doubts"), ("/clock", "step_ns"), ("/results/0", "p999"), ("/results/0", "engine")]
    {
        let mut value = sound.clone();
        let object = value.pointer_mut(object).expect("a summary has this");
        object.as_object_mut().expect("an object").remove(field);
        assert!(!faults(&value).is_empty(), "without {field}");
    }
}

#[test]
fn a_ledger_that_does_not_sum_breaks_a_promise() {
    let mut summary = full();
    summary.results.retain(|result| result.lost == 0);
    assert!(summary.kept_promises());
    summary.results[0].ledger.as_mut().expect("set").delivered += 1;
    assert!(!summary.kept_promises());
}

#[test]
fn host_clock_and_start_raise_their_doubts() {
    let mut header = Header { warmup: 10, ..Header::new("survey") };
    header.host.cpus = 2;
    header.clock.more.insert("skew_ns".to_owned(), serde_json::json!([140, 400]));
    header.host.more.insert("governor".to_owned(), "powersave".into());
    header.clock.step_ns = 1000;
    let mut summary = Summary::new(&header);
    let mut samples = Samples::default();
    for index in 0..2000 {
        samples.push(index, index, index, if index < 300 { 9_000 } else { 4_000 }, Outcome::Answered);
    }
    summary.add(&CellId::new("shared", "epoll"), &[samples.clone(), samples], 10);
    let doubts: Vec<&str> = summary.doubts.iter().map(|d| d.what.as_str()).collect();
    for doubt in [
        "steps by 1000 ns",
        "two processors are +140 ns apart at least",
        "governor is powersave",
        "398 messages of all trials still take 9.00 µs, the rest 4.00 µs",
        "less than ten clock steps",
    ] {
        assert!(doubts.iter().any(|what| what.contains(doubt)), "{doubt}: {doubts:?}");
    }
}

#[test]
fn tables_fit_the_screen() {
    let summary = full();
    let text_of = |width, colour| text::page(&parts::summary(&summary), Screen { width, colour });
    for width in [72, 80, 132] {
        for line in text_of(width, false).lines() {
            assert!(line.chars().count() <= width, "{width}: {} columns: {line}", line.chars().count());
        }
    }
    let text = text_of(80, false);
    assert!(!text.contains('\x1b') && text_of(80, true).contains('\x1b'));
    assert!(text.contains('–') && text.contains('∞'), "{text}");
    assert_eq!(text.matches("support no p99").count(), 0, "1,200 messages support a p99");
}
