//! `punctual run broadcast --against …`: groups of other systems beside ours. They are looked at where root runs these tests and
//! `punctual-peer-broadcast` is built: in `peers/target`, or where `PUNCTUAL_PEER_BROADCAST` says.

mod common;

use std::path::{Path, PathBuf};

use common::{Place, alone, is_root};
use serde_json::Value;

const SYSTEMS: [&str; 4] = ["corosync", "corosync-udp", "jgroups", "jgroups-mtu"];

/// The program, if there is one.
fn program() -> Option<PathBuf> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/target");
    let built = ["release", "debug"].map(|profile| peers.join(profile).join("punctual-peer-broadcast"));
    let said = std::env::var_os("PUNCTUAL_PEER_BROADCAST").map(PathBuf::from);
    said.into_iter().chain(built).find(|program| program.exists())
}

fn short(systems: &str, program: &str, more: &str) -> String {
    let asked = "--members 3 --json summary.json --out run";
    format!("run broadcast {asked} --against {systems} --peer-broadcast {program} {more}")
}

/// True if this host has none of the systems, of which the program then has no members.
fn are_all_absent(summary: &Value) -> bool {
    let skipped = summary["skipped"].as_array().expect("a list");
    let is_absent = |entry: &Value| {
        entry["reason"].as_str().is_some_and(|reason| reason.contains("is not there: install"))
    };
    !skipped.is_empty() && skipped.iter().all(is_absent)
}

/// Goal: members of other systems deliver the messages that were sent, in one order, in the same namespaces as ours. They do so also
/// where a program in the kernel loses packets. They are cells beside ours, and of the kind that they have.
#[test]
fn other_systems_deliver_the_same() {
    let _turn = alone();
    let Some(program) = program().filter(|_| is_root()) else {
        return punctual_machine::skipped!("needs root, and punctual-peer-broadcast (peers/README.md)");
    };
    let program = program.display().to_string();
    let place = Place::new();
    let more = "--faults 0/0,1/0 --bytes 400k --message 5000";
    // JGroups as shipped may stand still for longer than is waited for, where packets are lost.
    let ended = place.punctual(&short("corosync,corosync-udp,jgroups-mtu", &program, more)).with(0);
    let summary = place.summary("summary.json");
    if are_all_absent(&summary) {
        return punctual_machine::skipped!("{}", summary["skipped"]);
    }
    for words in ["How fast a group delivers", "Beside other systems"] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let trials = summary["broadcast"]["trials"].as_array().expect("trials");
    let mut missing = 0;
    for engine in ["multicast", "corosync", "corosync-udp", "jgroups-mtu"] {
        let of = |trial: &&Value| trial["engine"] == engine;
        let of: Vec<&Value> = trials.iter().filter(of).collect();
        if of.is_empty() && engine != "multicast" {
            punctual_machine::skipped!("{engine}: {}", summary["skipped"]);
            missing += 1;
            continue;
        }
        assert_eq!(of.len(), 2, "{engine}: {trials:#?}");
        for trial in of {
            let count = |field: &str| trial[field].as_u64().expect("a count");
            assert_eq!((count("messages"), count("altered"), count("misordered")), (80, 0, 0), "{trial:#}");
            let is_lossy = trial["faults"]["loss_permille"] != 0;
            let packets = |place: usize| trial["packets_damaged"][place].as_u64().expect("a count");
            assert!(packets(0) > 80 && (packets(1) > 0) == is_lossy, "{trial:#}");
            assert_eq!(trial["kind"], if engine == "multicast" { "ab" } else { "agreed" }, "{trial:#}");
        }
    }
    assert!(missing < 3, "the program is there, and makes none: {}", summary["skipped"]);
}

/// Goal: all members broadcast where that is asked for, of theirs as of ours. Method: three members broadcast
/// 27 messages each, where one would broadcast 80.
#[test]
fn all_members_of_other_systems_broadcast() {
    let _turn = alone();
    let Some(program) = program().filter(|_| is_root()) else {
        return punctual_machine::skipped!("needs root, and punctual-peer-broadcast (peers/README.md)");
    };
    let program = program.display().to_string();
    let place = Place::new();
    let more = "--faults 0/0 --bytes 400k --message 5000 --senders all";
    let ended = place.punctual(&short(&SYSTEMS.join(","), &program, more)).with(0);
    let summary = place.summary("summary.json");
    if are_all_absent(&summary) {
        return punctual_machine::skipped!("{}", summary["skipped"]);
    }
    assert!(ended.out.contains("All members broadcast, of theirs as of ours."), "{}", ended.out);
    let trials = summary["broadcast"]["trials"].as_array().expect("trials");
    for trial in trials {
        let count = |field: &str| trial[field].as_u64().expect("a count");
        assert_eq!((count("messages"), count("altered"), count("misordered")), (81, 0, 0), "{trial:#}");
    }
    let others = trials.iter().filter(|trial| trial["engine"] != "multicast").count();
    assert!(
        trials.len() > others && others > 0,
        "the program is there, and makes none: {}",
        summary["skipped"]
    );
}

/// Goal: messages of theirs are due at instants like ours, and count from then.
#[test]
fn other_systems_are_paced() {
    let _turn = alone();
    let Some(program) = program().filter(|_| is_root()) else {
        return punctual_machine::skipped!("needs root, and punctual-peer-broadcast (peers/README.md)");
    };
    let program = program.display().to_string();
    let place = Place::new();
    let more = "--faults 0/0 --period 5ms --duration 500ms --message 200 --senders all";
    place.punctual(&short(&SYSTEMS.join(","), &program, more)).with(0);
    let summary = place.summary("summary.json");
    if are_all_absent(&summary) {
        return punctual_machine::skipped!("{}", summary["skipped"]);
    }
    let results = summary["results"].as_array().expect("results");
    let mut found = 0;
    for system in SYSTEMS {
        let name = format!("{system}/agreed/n3/0-0-kernel");
        let row = |row: &&Value| row["name"] == name.as_str() && row["kind"] == "one_way";
        match results.iter().find(row) {
            None => punctual_machine::skipped!("{system}: {}", summary["skipped"]),
            Some(row) => {
                found += 1;
                assert_eq!((&row["load"], &row["gap_us"]), (&"open".into(), &5_000.into()), "{row:#}");
                assert_eq!((&row["mismatched"], &row["reordered"]), (&0.into(), &0.into()), "{row:#}");
            }
        }
    }
    assert!(found > 0, "the program is there, and makes none: {}", summary["skipped"]);
}

/// Goal: options that do not go together, and a program that is not there, are reported.
#[test]
fn bad_options_are_named() {
    let place = Place::new();
    let refused = |more: &str, code: i32| {
        place.punctual(&format!("run broadcast --against corosync {more}")).with(code).err
    };
    for (more, words) in [
        ("--kills 1", "--against"),
        ("--app kv", "--against"),
        ("--faults-in receiver", "--faults-in receiver"),
        ("--engine corosync", "--engine"),
    ] {
        let said = refused(more, 2);
        assert!(said.contains(words), "{more:?}: {said}");
    }
    let said = refused("--peer-broadcast /nowhere/at/all", 3);
    assert!(said.contains("/nowhere/at/all") && said.contains("build it"), "{said}");
    let said = place.punctual("run broadcast --against derecho").with(2).err;
    assert!(said.contains("corosync-udp"), "{said}");
}
