//! `punctual run broadcast`, as scripts and people call it. Short runs: the members' deliveries are looked at, never the speed.

mod common;

use common::{Place, alone, is_root, result, result_where};
use serde_json::Value;

/// Three members and few messages on these engines.
fn short(engines: &str, more: &str) -> String {
    let asked = "--members 3 --bytes 600k --message 5000 --json summary.json --out run";
    format!("run broadcast {asked} --engine {engines} {more}")
}

fn trials(summary: &Value) -> Vec<Value> {
    summary["broadcast"]["trials"].as_array().expect("trials").clone()
}

/// All 120 messages were delivered unaltered and in order, and what receivers lost was repaired.
fn has_all(trial: &Value) {
    let count = |field: &str| trial[field].as_u64().expect("a count");
    assert_eq!([count("altered"), count("misordered")], [0; 2], "{trial:#}");
    assert_eq!((count("messages"), count("bytes")), (120, 600_000), "{trial:#}");
    let has_faults = trial["faults"]["loss_permille"] != 0;
    assert!(!has_faults || count("frames_lost") > 0 && count("repaired") > 0, "{trial:#}");
}

/// Goal: every member delivers all that was sent, in one order, also where receivers lose and alter much of it; and that is in
/// the summary, in the store and in words.
#[test]
fn all_members_deliver_the_same() {
    let place = Place::alone();
    let ended = place.punctual(&short("shared,multicast", "--senders all --faults 0/0,5/5")).with(0);
    for words in ["How fast a group delivers", "What it took", "altered"] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let summary = place.summary("summary.json");
    if is_root() && summary["skipped"].is_null() {
        assert!(ended.out.contains("Multicast without a group"), "{}", ended.out);
        has_floors(&summary);
    } else {
        punctual_machine::skipped!("{}", summary["skipped"]);
    }
    let trials = trials(&summary);
    assert!([2, 4].contains(&trials.len()), "{trials:#?}");
    trials.iter().for_each(has_all);
    for (kind, unit) in [("one_way", "ns"), ("throughput", "B/s")] {
        let row = result_where(&summary, "shared/ab/n3/5-5", |row| row["kind"] == kind);
        assert_eq!((&row["unit"], &row["mismatched"]), (&unit.into(), &0.into()), "{row:#}");
        assert!(row["p50"].as_u64() > Some(0), "{row:#}");
    }
    let again = place.punctual("report run --text").with(0).out;
    assert!(again.contains("How fast a group delivers"), "{again}");
}

/// Bare datagrams and messages of the library arrived without a group, and each kind has a speed.
fn has_floors(summary: &Value) {
    let floors = summary["broadcast"]["floors"].as_array().expect("floors");
    for (datagrams, name) in [("bare", "floor/multicast/n3"), ("library", "multicast/messages/n3")] {
        let floor = floors.iter().find(|floor| floor["datagrams"] == datagrams).expect("a floor");
        let count = |field: &str| floor[field].as_u64().expect("a count");
        assert!((1..=count("sent")).contains(&count("received")), "{floor:#}");
        let row = result(summary, name);
        assert!(row["unit"] == "B/s" && row["p50"].as_u64() > Some(0), "{row:#}");
    }
}

/// Goal: lost packets and flipped bits change nothing of the delivered messages, on any medium of a network. A program in the kernel
/// causes them, below every check. Memory, which has no packets, is refused.
#[test]
fn the_kernel_alters_nothing_that_is_delivered() {
    let place = Place::alone();
    let arguments = |engines| short(engines, "--senders all --faults 5/5 --faults-in kernel");
    let refused = place.punctual(&arguments("shared,multicast")).with(2).err;
    assert!(refused.contains("--faults-in kernel: shared memory has no packets"), "{refused}");
    if !is_root() {
        return punctual_machine::skipped!("programs in the kernel need root");
    }
    place.punctual(&arguments("multicast,udp,ethernet")).with(0);
    let summary = place.summary("summary.json");
    let trials = trials(&summary);
    if !summary["skipped"].is_null() {
        return punctual_machine::skipped!("{}", summary["skipped"]);
    }
    assert_eq!(trials.len(), 3, "{trials:#?}");
    for trial in &trials {
        let count = |field: &str| trial[field].as_u64().expect("a count");
        assert_eq!((count("messages"), count("altered"), count("misordered")), (120, 0, 0), "{trial:#}");
        let packets = |place: usize| trial["packets_damaged"][place].as_u64().expect("a count");
        assert!(packets(1) > 0 && packets(2) > 0 && packets(0) > packets(1) + packets(2), "{trial:#}");
        assert!(count("frames_lost") > 0 && count("repaired") > 0, "{trial:#}");
    }
    result(&summary, "multicast/ab/n3/5-5-kernel");
}

/// Goal: frames of several sizes are cells of their own, a whole message in one of them, and all is delivered with each.
#[test]
fn frames_are_an_axis() {
    let place = Place::alone();
    place.punctual(&short("shared,multicast", "--faults 1/1 --frame 512,max")).with(0);
    let summary = place.summary("summary.json");
    let trials = trials(&summary);
    assert!([2, 4].contains(&trials.len()), "{trials:#?}");
    for (trial, frame) in trials.iter().zip([512, 5_000].into_iter().cycle()) {
        assert_eq!((&trial["frame"], &trial["messages"]), (&frame.into(), &120.into()), "{trial:#}");
        assert_eq!((&trial["altered"], &trial["misordered"]), (&0.into(), &0.into()), "{trial:#}");
    }
    for name in ["shared/ab/n3/1-1/frame-512", "shared/ab/n3/1-1/frame-max"] {
        result(&summary, name);
    }
}

/// Goal: kinds are cells of their own, and each keeps what it promises while all members send and receivers lose and alter much:
/// the same content at all, and of what has no order each sender's.
#[test]
fn kinds_are_an_axis() {
    let place = Place::alone();
    let arguments = short("shared,multicast", "--kind ab,urb,beb --senders all --faults 0/0,5/5");
    let ended = place.punctual(&arguments).with(0);
    let summary = place.summary("summary.json");
    let trials = trials(&summary);
    assert!([6, 12].contains(&trials.len()), "{trials:#?}");
    trials.iter().for_each(has_all);
    for kind in ["ab", "urb", "beb"] {
        assert!(trials.iter().any(|trial| trial["kind"] == kind), "{trials:#?}");
        assert!(ended.out.contains(&format!(" {kind} ")), "{kind}: {}", ended.out);
        let name = format!("shared/{kind}/n3/5-5");
        let row = result_where(&summary, &name, |row| row["kind"] == "one_way");
        assert_eq!(row["mismatched"], 0, "{row:#}");
    }
}

/// Goal: messages that are due at instants are stored of each member with their stages and threads, and what was late is told of a
/// member; all is delivered as otherwise.
#[test]
fn paced_messages_have_stages() {
    let place = Place::alone();
    let arguments = "run broadcast --members 3 --engine shared --faults 0/0 --senders";
    let more = "all --message 200 --period 3ms --duration 300ms --json summary.json";
    let kinds = "--kind ab,urb --out run";
    place.punctual(&format!("{arguments} {more} {kinds}")).with(0);
    let summary = place.summary("summary.json");
    let messages: Vec<Value> = trials(&summary).iter().map(|trial| trial["messages"].clone()).collect();
    assert_eq!(messages, [300, 300], "{summary:#}");
    let members = ["", "/member-0", "/member-1", "/member-2"];
    for (kind, member) in members.iter().flat_map(|member| [("ab", member), ("urb", member)]) {
        let name = format!("shared/{kind}/n3/0-0{member}");
        let row = result_where(&summary, &name, |row| row["kind"] == "one_way");
        let stages = row["stages"].as_array().into_iter().flatten();
        let stages: Vec<&str> = stages.filter_map(|stage| stage["name"].as_str()).collect();
        let expected = if member.is_empty() { &[][..] } else { &["sent", "medium", "woken"] };
        assert!(expected.iter().all(|stage| stages.contains(stage)), "{row:#}");
        assert_eq!((&row["load"], &row["gap_us"]), (&"open".into(), &3_000.into()), "{row:#}");
    }
    let said = place.json("explain run --json");
    for finding in said["findings"].as_array().expect("a list") {
        assert!(finding["name"].as_str().is_some_and(|name| name.contains("/member-")), "{finding:#}");
        let is_named = finding["owner"].as_str().is_some_and(|owner| owner.starts_with("member-"));
        assert!(is_named || finding["side"] == "medium", "{finding:#}");
    }
}

/// Goal: a member that has another message, or another order, is found, and told by the exit code.
#[test]
fn a_member_that_differs_is_reported() {
    let _turn = alone();
    for (kind, planted, altered, misordered, counter) in [
        ("ab", "content", 1, Some(0), "mismatched"),
        ("ab", "order", 0, Some(2), "reordered"),
        ("urb", "content", 1, Some(0), "mismatched"),
        ("beb", "order", 0, Some(2), "reordered"),
        // Behind the missing message every place has another one.
        ("ab", "lost", 1, None, "lost"),
    ] {
        let place = Place::new();
        let arguments = format!("--faults 0/0 --kind {kind} --plant {planted}");
        let said = place.punctual(&short("shared", &arguments)).with(1).err;
        assert!(said.contains("in one order"), "{said}");
        let summary = place.summary("summary.json");
        let trial = &trials(&summary)[0];
        assert_eq!(trial["altered"], altered, "{trial:#}");
        assert!(misordered.is_none_or(|misordered| trial["misordered"] == misordered), "{trial:#}");
        let results = summary["results"].as_array().expect("results");
        assert!(results.iter().any(|row| row[counter].as_u64() > Some(0)), "{results:#?}");
    }
}

/// Goal: experiments that the machine cannot do are named, and the rest is measured.
#[test]
fn without_privileges_the_network_is_skipped() {
    let _turn = alone();
    let place = Place::world_writable();
    let Some(command) = common::unprivileged(&short("shared,multicast", "--faults 0/0")) else {
        return;
    };
    let ended = place.start(command).end().with(0);
    // Behind the kernel's words, after any of which the line may break.
    let words: Vec<&str> = ended.out.split_whitespace().collect();
    assert!(words.join(" ").contains("--engine shared"), "{}", ended.out);
    assert_eq!(trials(&place.summary("summary.json")).len(), 1);
}

#[test]
fn bad_options_are_named() {
    let place = Place::new();
    for (arguments, words) in [
        ("--faults 60/0", "--faults"),
        ("--members 1", "--members"),
        ("--bytes 1T", "--bytes"),
        ("--message 15", "--message"),
        ("--kind rb", "--kind"),
        ("--kind urb --kills 1", "--kind"),
        ("--kind ab,agreed --stops 1", "--kind"),
        ("--kind agreed --app kv", "--app kv needs ab"),
        ("--app kv --plant lost", "--plant"),
        ("--frame 1024,63", "--frame"),
        ("--frame 1024,max --kills 1", "--frame"),
        ("--duration 1s", "--duration"),
        ("--trace", "--trace"),
        ("--period 1ms --bytes 1M", "--bytes"),
        ("--period 2s --duration 1s", "--period"),
        ("--period 1ms --duration 51s", "from 1 to 50000"),
        ("--period 1ms --duration 6s --senders all", "all senders have 60000"),
    ] {
        let said = place.punctual(&format!("run broadcast {arguments}")).with(2).err;
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
