//! `punctual run wakeup`: its output, the results that it stores, and its refusals.

mod common;
mod glossary;

use std::fs;

use common::{Place, result};
use serde_json::Value;

#[test]
fn every_figure_of_a_way_has_its_row() {
    // Beside other work reader and writer of a racy protocol seldom meet.
    let is_lost = (0..5).any(|_| is_a_wake_up_lost());
    assert!(is_lost, "no racy protocol lost a wake-up");
}

/// Returns true if a racy protocol lost one in this run; no other protocol did.
fn is_a_wake_up_lost() -> bool {
    let place = Place::new();
    let arguments = "run wakeup --only futex --gap 100us --duration 2s --out run";
    let ended = place.punctual(&format!("{arguments} --json -")).with(0);
    let summary: Value = serde_json::from_str(&ended.out).expect("JSON");
    if punctual_machine::cpu::allowed().len() < 2 {
        punctual_machine::skipped!("two processors are needed for a core each");
        return true;
    }
    for measurement in ["w2r_any", "w2r_blocked", "reader_bracket", "ipcbench_loop", "notify"] {
        let row = result(&summary, &format!("futex/{measurement}"));
        assert!(row["count"].as_u64() > Some(10) && row["lost"] == 0 && row["gap_us"] == 100, "{row}");
    }
    let any = result(&summary, "futex/w2r_any");
    // With a gap of 100 µs the reader sleeps nearly every time, and is notified then.
    assert!(any["parked_share"].as_f64() > Some(0.3), "{any}");
    assert!(any["notify_calls_per_message"].as_f64() > Some(0.3), "{any}");
    let schema: Value =
        serde_json::from_str(include_str!("../../../docs/summary.schema.json")).expect("JSON");
    assert_eq!(common::schema::faults(&schema, &summary), Vec::<String>::new());
    let page = fs::read_to_string(place.path("run/report.html")).expect("a page");
    assert!(page.contains("What a message costs") && page.contains("futex-waitv"));
    let handshakes = summary["handshakes"].as_array().expect("a list");
    let lost = |name: &str| {
        handshakes.iter().find(|row| row["name"] == name).and_then(|row| row["lost"].as_u64()).expect(name)
    };
    let repaired = ["wait", "epoll-event-recheck", "h1-repaired", "h4"];
    assert_eq!(repaired.map(lost), [0; 4], "the repairs need no delay and no time limit");
    let limits = summary["time_limits"].as_array().expect("a list");
    for limit_us in [100, 1_000, 2_500, 5_000, 10_000] {
        let row = |name: &str| {
            let is_it = |row: &&Value| row["limit_us"] == limit_us && row["name"] == name;
            limits.iter().find(is_it).unwrap_or_else(|| panic!("no {name} at {limit_us} µs"))
        };
        assert_eq!(row("wait")["lost"], 0, "{}", row("wait"));
        let racy = row("wait-unmasked");
        // A lost wake-up is hidden, not faster: it takes the limit at least.
        assert!(racy["lost"] == 0 || racy["max_ns"].as_u64() >= Some(limit_us * 1_000), "{racy}");
    }
    let racy = ["wait-unmasked", "epoll-event", "h1", "h1-recheck", "h2"];
    racy.map(lost).iter().sum::<u64>() > 0
}

/// Goal: the doorbell's saving against eventfd under epoll is in one row, and every set of descriptors has one.
#[test]
fn the_doorbell_stands_beside_the_bare_mechanism() {
    let place = Place::new();
    let arguments = "run wakeup --only epoll,eventfd --gap 0 --duration 2s --rounds 3";
    let ended = place.punctual(&format!("{arguments} --json - --out run"));
    if punctual_machine::cpu::allowed().len() < 2 {
        return punctual_machine::skipped!("two processors are needed for a core each");
    }
    let summary: Value = serde_json::from_str(&ended.with(0).out).expect("JSON");
    glossary::explains(&place.path("run"));
    let rows = summary["against_bare"].as_array().expect("a list");
    for (name, bare_name, calls) in
        [("epoll/w2r_any", "floor-epoll", 2.0), ("eventfd/w2r_any", "floor-eventfd", 1.0)]
    {
        let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        assert!(row["bare_name"] == bare_name && row["p50_ns"].as_u64() > Some(0), "{row}");
        let bare = &row["bare_price"];
        assert_eq!(bare["notify_calls"].as_f64(), Some(1.0), "a write for every message: {row}");
        assert!(bare["wait_calls"].as_f64() >= Some(calls), "{row}");
    }
    for name in ["floor-epoll", "floor-epoll-8", "floor-epoll-64"] {
        let row = result(&summary, &format!("{name}/w2r_any"));
        assert!(row["count"].as_u64() > Some(10) && row["lost"] == 0, "{row}");
    }
    let page = fs::read_to_string(place.path("run/report.html")).expect("a page");
    assert!(page.contains("A doorbell instead of a bare eventfd under epoll, a reader that sleeps at once"));
}

/// Goal: the reader may be a process of its own, as in the work log, and stands beside the one that is a thread. Its waking end is any
/// that the way needs: memory, a descriptor, or more descriptors than a post box holds.
#[test]
fn the_reader_may_be_a_process() {
    let place = Place::new();
    if punctual_machine::cpu::allowed().len() < 2 {
        return punctual_machine::skipped!("two processors are needed for a core each");
    }
    let run = |only: &str, more: &str, out: &str| -> Value {
        let arguments = format!("run wakeup --only {only} --gap 100us --duration 3s --rounds 3 --out {out}");
        let ended = place.punctual(&format!("{arguments} {more} --json -"));
        serde_json::from_str(&ended.with(0).out).expect("JSON")
    };
    let summary = run("epoll,futex", "", "run");
    for way in ["floor-futex", "floor-epoll", "futex", "epoll"] {
        let row = result(&summary, &format!("{way}+processes/w2r_any"));
        assert!(row["count"].as_u64() > Some(10) && row["lost"] == 0, "{row}");
        assert!(row["parked_share"].as_f64() > Some(0.3), "the kernel's word that it slept: {row}");
        let beside = summary["against_threads"].as_array().expect("a list");
        assert!(beside.iter().any(|row| row["name"] == way), "{way} stands beside no threads");
    }
    let published = summary["published"].as_array().expect("a list");
    assert!(
        published.iter().any(|row| row["name"] == "floor-epoll+processes/reader_bracket"),
        "{published:?}"
    );
    let summary = run("floor-epoll-64+processes,sigio+processes", "--all-conditions --count 50", "more");
    for name in ["floor-epoll-64+processes/w2r_any", "sigio+processes/w2r_any"] {
        let row = summary["results"].as_array().expect("a list").iter().find(|row| row["name"] == name);
        assert!(row.is_some_and(|row| row["lost"] == 0), "{name}: {:?}", summary["skipped"]);
    }
}

#[test]
fn an_awake_reader_is_not_notified() {
    let place = Place::new();
    let arguments = "run wakeup --only spin --gap 0 --count 200 --duration 1s";
    let ended = place.punctual(&format!("{arguments} --json - --out run"));
    if punctual_machine::cpu::allowed().len() < 2 {
        return punctual_machine::skipped!("two processors are needed to spin");
    }
    let summary: Value = serde_json::from_str(&ended.with(0).out).expect("JSON");
    let any = &summary["results"].as_array().expect("a list")[0];
    assert_eq!(
        (&any["name"], any["notify_calls_per_message"].as_f64()),
        (&Value::from("spin/w2r_any"), Some(0.0))
    );
}

#[test]
fn a_soak_counts_every_message() {
    let place = Place::new();
    if punctual_machine::cpu::allowed().len() < 2 {
        return punctual_machine::skipped!("two processors are needed");
    }
    let ended = place.punctual("run wakeup --soak 20000 --mechanism epoll --quiet").with(0);
    let result: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((&result["noticed"], &result["lost"]), (&Value::from(40_000), &Value::from(0)), "{result}");
    assert!(result["parks"].as_u64() > Some(0), "{result}");
}

#[test]
fn a_wrong_option_is_said_in_a_line() {
    let place = Place::new();
    for (arguments, word) in [
        ("--load open", "--load open"),
        ("--only telepathy", "--only"),
        ("--gap 7us", "10us"),
        ("--soak 0", "--soak"),
        ("--soak 9 --mechanism telepathy", "telepathy"),
        ("--soak 9 --wake spin", "--wake spin"),
        ("--soak 9 --mechanism spin", "--wake spin"),
        ("--soak 9 --spoil look", "labelled_stores"),
        ("--soak 9 --out run", "--out"),
        ("--soak 9 --duration 1s", "--duration"),
        ("--soak 9 --count 9", "--count"),
        ("--soak 9 --gap 1ms", "--gap"),
        ("--soak 9 --rounds 2", "--rounds"),
        ("--soak 9 --only futex", "--only"),
        ("--soak 9 --quick", "--quick"),
        ("--soak 9 --all-conditions", "--all-conditions"),
    ] {
        let ended = place.punctual(&format!("run wakeup {arguments}")).with(2);
        assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1), "{}", ended.err);
        assert!(ended.err.contains(word), "{}", ended.err);
    }
}
