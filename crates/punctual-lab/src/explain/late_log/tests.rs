//! Logs as the library writes them, and as nobody writes them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::explain::cause::Cause;
use crate::explain::finding::Explained;
use crate::explain::stage::Side;
use crate::explain::trace::{CpuEvents, Trace};
use crate::explain::trace_file::TraceFile;
use crate::report::text::{Screen, page};

const HEAD: &str = r#"{"schema":"punctual.late.v1","program":"radar","pid":7,"cpus":2,"kernel":"6.18","clock":1,
"monotonic_ns":1000000,"realtime_ns":5,"threshold_ns":1000000,"fault_ns":250,"counts_continuations":true}"#;

const THREAD: u32 = 70;

const MS: u64 = 1_000_000;

/// A message of 40 ms from 10 ms on, all of it in one stage, and one window around it.
fn record(number: u64, stage: &str, evidence: &Value) -> Value {
    let mut window = json!({ "from_ns": 10 * MS, "to_ns": 51 * MS, "wall_us": 41_000 });
    window.as_object_mut().expect("an object").extend(evidence.as_object().cloned().expect("an object"));
    json!({
        "number": number, "receiver": "radar:1", "source": "camera:2", "sequence": 9, "total_ns": 40 * MS,
        "usual_ns": 20_000, "kernel_stamp": false, "thread": THREAD, "urgency": "other", "skipped": 0, "unwritten": 0,
        "stages": [{ "stage": stage, "from_ns": 10 * MS, "to_ns": 50 * MS, "usual_ns": 1000 }],
        "windows": [window],
    })
}

fn log_of(records: &[Value]) -> String {
    let lines = records.iter().map(|record| format!("{record}\n"));
    format!("{}\n{}", HEAD.replace('\n', ""), lines.collect::<String>())
}

fn read(text: &str) -> Log {
    parse(text.as_bytes()).expect("a log").expect("a head")
}

/// The cause of the one stall in a log, and whose it is.
fn named(stage: &str, evidence: &Value) -> (Cause, Option<Side>) {
    let found = explain(&read(&log_of(&[record(0, stage, evidence)])), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    (found[0].cause(), found[0].side)
}

/// Goal: the windows of the receiver's thread name the cause, in the stage that waited for it.
#[test]
fn windows_name_the_cause() {
    let receiver = Some(Side::Receiver);
    let ready = json!({ "wait_us": 40_000, "cpu_us": 500 });
    assert_eq!(named("medium", &ready), (Cause::named("run_queue"), receiver));
    let computed = json!({ "cpu_us": 40_900 });
    assert_eq!(named("elsewhere", &computed), (Cause::named("busy"), receiver));
    let slept = json!({ "cpu_us": 100, "switches_voluntary": 1 });
    assert_eq!(named("elsewhere", &slept), (Cause::named("handler_blocked"), receiver));
    let stopped = json!({ "cpu_us": 100, "continued_age_us": 1_050 });
    assert_eq!(named("woken", &stopped), (Cause::named("stopped"), receiver));
    // A thread that looked for messages all the time computed, and is not why none came; a thread that slept for one did not block
    // elsewhere.
    assert_eq!(named("medium", &computed), (Cause::UNEXPLAINED, Some(Side::Medium)));
    assert_eq!(named("woken", &slept), (Cause::UNEXPLAINED, receiver));
    // Taken off its CPU, and nobody says why: a quota that it cannot see, for instance.
    let taken = json!({ "cpu_us": 100, "switches_voluntary": 1, "switches_involuntary": 1 });
    assert_eq!(named("elsewhere", &taken), (Cause::UNEXPLAINED, receiver));
    // The receiver's thread says nothing of the sender's.
    assert_eq!(named("posted", &computed), (Cause::UNEXPLAINED, Some(Side::Sender)));
}

/// Goal: nobody noticed ends of stops, so none of sleep and stop is named.
#[test]
fn a_stop_that_nobody_could_notice_is_no_sleep() {
    let slept = json!({ "cpu_us": 100, "switches_voluntary": 1 });
    let text =
        log_of(&[record(0, "elsewhere", &slept)]).replace("continuations\":true", "continuations\":false");
    assert_eq!(explain(&read(&text), &[])[0].cause(), Cause::UNEXPLAINED);
    // The program may have taken the signal later: then records say so.
    let mut since = record(1, "elsewhere", &slept);
    since["counts_continuations"] = json!(false);
    (since["stages"][0]["from_ns"], since["stages"][0]["to_ns"]) = (json!(12 * MS), json!(52 * MS));
    let found = explain(&read(&log_of(&[record(0, "elsewhere", &slept), since])), &[]);
    let causes: Vec<Cause> = found.iter().map(Explained::cause).collect();
    assert_eq!(causes, [Cause::named("handler_blocked"), Cause::UNEXPLAINED]);
    // A trace that lost what happened then tells nothing of it either.
    let cpu =
        CpuEvents { until_ns: 60 * MS, lost: 9, gaps: vec![(11 * MS, 49 * MS)], ..CpuEvents::default() };
    let trace = Trace { cpus: vec![cpu], ..Trace::default() };
    let found = explain(&read(&text), &[TraceFile { trace, ..TraceFile::default() }]);
    assert_eq!(found[0].cause(), Cause::UNEXPLAINED, "{found:#?}");
}

/// Goal: a trace that begins amid the late stage says so, and one that reaches back says nothing.
#[test]
fn a_trace_that_does_not_reach_back_is_said() {
    let log = read(&log_of(&[record(0, "elsewhere", &json!({}))]));
    let helps = |since_ns| {
        let cpu = CpuEvents { since_ns, until_ns: 60 * MS, ..CpuEvents::default() };
        let trace = Trace { cpus: vec![cpu], ..Trace::default() };
        explain(&log, &[TraceFile { trace, ..TraceFile::default() }]).remove(0).would_help
    };
    assert_eq!(helps(10 * MS), None);
    assert!(helps(40 * MS).is_some_and(|text| text.contains("begins 30,000 µs after")));
}

/// Goal: a thread that slept in its own code while a tracer was attached is not said to have blocked. Where nobody counts how long a
/// group was frozen, that is said.
#[test]
fn tracers_and_freezers_that_are_not_counted_are_said() {
    let slept = json!({ "cpu_us": 100, "switches_voluntary": 1 });
    let found = |tracer: Option<&str>, counts_frozen: Option<bool>| {
        let mut record = record(0, "elsewhere", &slept);
        if let Some(tracer) = tracer {
            record["tracer"] = json!(tracer);
        }
        let head = counts_frozen.map_or_else(String::new, |counts| format!("\"counts_frozen\":{counts},"));
        let text = log_of(&[record]).replacen("{\"schema\"", &format!("{{{head}\"schema\""), 1);
        explain(&read(&text), &[]).remove(0)
    };
    let traced = found(Some("strace (8)"), Some(true));
    assert_eq!((traced.cause(), traced.causes.len()), (Cause::named("traced"), 1), "{traced:#?}");
    assert!(traced.causes[0].evidence.starts_with("strace (8)"), "{traced:#?}");
    let counted = found(None, Some(true));
    assert_eq!((counted.cause(), counted.would_help), (Cause::named("handler_blocked"), None));
    for counts in [None, Some(false)] {
        let not_counted = found(None, counts);
        assert_eq!(not_counted.cause(), Cause::named("handler_blocked"));
        assert!(not_counted.would_help.is_some_and(|text| text.contains("frozen")), "{counts:?}");
    }
    let computed = log_of(&[record(0, "elsewhere", &json!({ "cpu_us": 40_900 }))]);
    assert_eq!(explain(&read(&computed), &[])[0].would_help, None, "a thread that computes is not frozen");
}

/// Goal: messages released together are one stall, and its longest is the one that is explained.
#[test]
fn together_is_one_stall() {
    let evidence = json!({ "wait_us": 40_000 });
    let (first, mut second, mut later) =
        (record(0, "medium", &evidence), record(1, "medium", &evidence), record(2, "medium", &evidence));
    (second["total_ns"], second["stages"][0]["from_ns"]) = (json!(30 * MS), json!(20 * MS));
    second["stages"][0]["to_ns"] = json!(50 * MS + MS / 2);
    (later["stages"][0]["from_ns"], later["stages"][0]["to_ns"]) = (json!(60 * MS), json!(90 * MS));
    let found = explain(&read(&log_of(&[first, second, later])), &[]);
    let stalls: Vec<_> = found.iter().map(|one| (one.stall.first_index, one.stall.messages)).collect();
    assert_eq!(stalls, [(0, 2), (2, 1)]);
    assert_eq!(found[0].instant_ns, 9 * MS);
}

/// Goal: a program that was killed while it wrote leaves what it had written, and that is said.
#[test]
fn a_cut_log_is_read_as_far_as_it_goes() {
    let text = log_of(&[record(0, "medium", &json!({})), record(1, "medium", &json!({}))]);
    let log = read(&text[..text.len() - 20]);
    assert_eq!((log.records.len(), log.is_cut), (1, true));
    let said = page(&text::sections(&log, &explain(&log, &[]), 10, &text::left_out(&log)), Screen::default());
    assert!(said.contains("Its last line has no end"), "{said}");
    assert!(said.contains("radar:1, message 0"), "{said}");
    assert_eq!(parse(b""), Ok(None));
}

/// Goal: messages left out behind the last record stand nowhere, so it is said where some may have been.
#[test]
fn possible_omissions_at_the_end_are_said() {
    let at = |number: u64, ms: u64| {
        let mut record = record(number, "medium", &json!({}));
        (record["stages"][0]["from_ns"], record["stages"][0]["to_ns"]) =
            (json!(ms * MS), json!((ms + 40) * MS));
        record
    };
    let notes = |count: u64, every_ms: u64| {
        let records: Vec<Value> = (0..count).map(|number| at(number, number * every_ms)).collect();
        text::left_out(&read(&log_of(&records)))
    };
    assert_eq!([notes(99, 1), notes(300, 11)], [Vec::<String>::new(), Vec::new()]);
    let said = notes(100, 9);
    assert!(said.len() == 1 && said[0].contains("More may have been left out"), "{said:?}");
    let full = Log { is_full: true, ..read(&log_of(&[at(0, 1)])) };
    let said = text::left_out(&full);
    assert!(said.len() == 1 && said[0].contains("as large as it may be"), "{said:?}");
    let mut large = log_of(&[at(0, 1)]).into_bytes();
    assert!(!parse(&large).expect("a log").expect("a head").is_full);
    let end = large.len() - 2;
    large.splice(end..end, std::iter::repeat_n(b' ', 16 << 20));
    assert!(parse(&large).expect("a log").expect("a head").is_full);
}

/// Goal: messages whose time nobody knows are said, with what to do, and the numbers of records behind that line hold.
#[test]
fn messages_whose_time_nobody_knows_are_said() {
    let line = r#"{"untimed":{"receiver":"radar:1","source":"camera:2"}}"#;
    let only = read(&log_of(&[serde_json::from_str(line).expect("JSON")]));
    assert_eq!(only.records.len(), 0);
    let notes = text::left_out(&only);
    let said = page(&text::sections(&only, &explain(&only, &[]), 10, &notes), Screen::default());
    for words in ["radar:1 had one of camera:2", "DatagramOptions::timestamps"] {
        assert!(notes.len() == 1 && notes[0].contains(words), "{notes:?}");
    }
    assert!(said.contains("No message whose time is known.") && said.contains("radar:1"), "{said}");
    let (one, mut other) = (record(0, "medium", &json!({})), record(1, "medium", &json!({})));
    other["untimed"] = json!(1200);
    let among = read(&log_of(&[one, serde_json::from_str(line).expect("JSON"), other]));
    assert_eq!(among.records.len(), 2);
    let notes = text::left_out(&among);
    assert!(notes.len() == 1 && notes[0].contains("1,200 at least"), "{notes:?}");
}

#[test]
fn a_file_that_is_no_log_is_refused_by_its_line() {
    let reason = |text: &str| parse(text.as_bytes()).expect_err("no log").to_string();
    assert!(reason("hello").starts_with("line 1: no log of late messages"), "{}", reason("hello"));
    assert!(reason("hello\n").starts_with("line 1: no log of late messages"));
    let other = log_of(&[]).replace("late.v1", "late.v9");
    assert!(reason(&other).contains("punctual.late.v9"), "{}", reason(&other));
    assert!(reason(&log_of(&[record(1, "medium", &json!({}))])).starts_with("line 2: its number"));
    let mut backwards = record(1, "medium", &json!({}));
    backwards["stages"][0]["to_ns"] = json!(3);
    let text = log_of(&[record(0, "medium", &json!({})), backwards]);
    assert_eq!(reason(&text), "line 3: its stages are not in the order of time");
}

/// Goal: a message is drawn with its stages and the windows of its receiver's thread.
#[test]
fn a_message_is_drawn() {
    let evidence = json!({ "wait_us": 40_000, "continued_age_us": 7, "frozen_us": 1_234 });
    let text = log_of(&[record(0, "woken", &evidence)]);
    let said = page(&text::message(&read(&text).records[0], &[]), Screen::default());
    for words in [
        "Message 0 of radar:1",
        "message 9 of camera:2",
        "woken",
        "40,000",
        "7 µs before its end",
        "frozen, µs",
        "1,234",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("stolen"), "{said}");
}

/// Goal: a time that is known from below only is said to be that, of the message and of the log.
#[test]
fn a_time_that_is_longer_is_said_to_be() {
    let mut longer = record(0, "sent", &json!({}));
    longer["at_least"] = json!(true);
    let log = read(&log_of(&[longer, record(1, "sent", &json!({}))]));
    let said = |number: usize| page(&text::message(&log.records[number], &[]), Screen::default());
    assert!(said(0).contains("It took at least") && !said(1).contains("at least"), "{}", said(0));
    let notes = text::left_out(&log).join(" ");
    assert!(notes.contains("1 messages took as long as shown at least (0)"), "{notes}");
}

proptest! {
    /// Goal: bytes from outside are refused, or read; nothing of them makes it panic.
    #[test]
    fn no_bytes_make_it_panic(
        place in 0..3000_usize, with in any::<u8>(), end in 0..3000_usize, numbers in any::<[u64; 8]>(),
    ) {
        let [a, b, c, d, total, usual, wall, age] = numbers;
        let mut wild = record(1, "medium", &json!({ "cpu_us": wall >> 32, "continued_age_us": age >> 32 }));
        (wild["stages"][0]["from_ns"], wild["stages"][0]["to_ns"]) = (json!(a.min(b)), json!(a.max(b)));
        (wild["windows"][0]["from_ns"], wild["windows"][0]["to_ns"]) = (json!(c.min(d)), json!(c.max(d)));
        (wild["total_ns"], wild["usual_ns"]) = (json!(total), json!(usual));
        let mut bytes = log_of(&[record(0, "elsewhere", &json!({ "cpu_us": 9 })), wild]).into_bytes();
        let whole = parse(&bytes).expect("a log").expect("a head");
        let found = explain(&whole, &[]);
        let _said = page(&text::sections(&whole, &found, 10, &[]), Screen::default());
        for record in &whole.records {
            let _drawn = page(&text::message(record, &[]), Screen::default());
        }
        for one in &found {
            let named: u64 = one.causes.iter().map(|cause| cause.ns).sum();
            prop_assert!(named <= one.excess_ns);
        }
        let place = place % bytes.len();
        bytes[place] = with;
        bytes.truncate(end.max(1));
        if let Ok(Some(log)) = parse(&bytes) {
            let _found = explain(&log, &[]);
        }
    }
}
