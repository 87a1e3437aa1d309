//! Help, facts, live counters, and standard output that nobody reads.

mod common;

use std::io;
use std::process::Stdio;

use common::{Place, punctual, text};
use punctual::{Bus, Node, Target};

#[test]
fn help_fits_a_hundred_columns() {
    let place = Place::new();
    for verb in ["", "survey", "compare", "report", "stat", "host"] {
        let help = place.punctual(&format!("{verb} --help")).with(0).out;
        assert!(help.contains("Usage: punctual"), "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{verb}: {} columns: {line}", line.chars().count());
        }
    }
}

#[test]
fn facts_for_people_and_for_scripts() {
    let place = Place::new();
    let page = place.punctual("host").with(0).out;
    assert!(
        page.contains("kernel") && page.contains("clock step") && page.contains("packet sockets"),
        "{page}"
    );
    let facts = place.json("host --json");
    assert!(facts["host"]["cpus"].as_u64() > Some(0), "{facts}");
    assert!(facts["host"]["cpus_online"].as_u64() >= facts["host"]["cpus"].as_u64(), "{facts}");
    assert_eq!(facts["host"]["load_average"].as_array().map(Vec::len), Some(3), "{facts}");
    for limit in ["memlock_bytes", "realtime_priority"] {
        // Without a limit it is null, and there.
        assert!(facts["host"].get(limit).is_some_and(|value| value.is_u64() || value.is_null()), "{facts}");
    }
    assert!(facts["clock"]["stamp_ns"].as_f64() > Some(0.0), "{facts}");
    assert!(facts["facilities"]["packet sockets"]["available"].is_boolean(), "{facts}");
}

/// Goal: another process's counters are seen while it lives. Method: this process is the other one.
#[test]
fn live_counters_are_those_of_other_processes() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::new();
    let name = format!("stat-{}", std::process::id());
    let bus = Bus::loopback(&name);
    let (left, right) = (Node::open(&bus, "left")?, Node::open(&bus, "right")?);
    let (mut sender, mut receiver) = (left.bind(1)?, right.bind(2)?);
    for _ in 0..1234 {
        sender.send(Target::port("right", 2), b"x")?;
        receiver.receive()?;
    }
    let page = place.punctual("stat --once").with(0).out;
    let line = |node: &str| {
        let is_it = |line: &&str| line.contains(&name) && line.contains(&format!(" {node} "));
        page.lines().find(is_it).unwrap_or_else(|| panic!("no {node}: {page}")).to_owned()
    };
    let pid = std::process::id().to_string();
    assert!(line("left").contains("1,234") && line("left").contains(&pid), "{page}");
    assert!(line("right").contains("1,234"), "{page}");
    drop((sender, receiver, left, right));
    let page = place.punctual("stat --once").with(0).out;
    assert!(!page.contains(&name), "{page}");
    Ok(())
}

/// Goal: Ctrl-C ends it, however soon the next look is due.
#[test]
fn live_counters_without_a_pause_end_by_ctrl_c() {
    let place = Place::new();
    let _node =
        Node::open(&Bus::loopback(&format!("pauseless-{}", std::process::id())), "there").expect("a node");
    let mut started = place.start(punctual("stat --every 1ns"));
    let out = started.out_path();
    started.has("it showed something", || text(&out).contains("there"));
    started.signal("-INT");
    started.end().with(0);
}

/// Method: a pipe whose reading end is closed before the command starts.
#[test]
fn a_reader_that_left_is_no_error() {
    // Else it would look until its node closes.
    let _node = punctual::Node::open(&punctual::Bus::loopback("facts"), "facts").expect("a node");
    for arguments in ["host", "host --json", "stat --once", "stat --every 1ms"] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let ended = punctual(arguments).stdout(writer).stderr(Stdio::piped()).output().expect("a program");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), said.as_ref()), (Some(0), ""), "{arguments:?}");
    }
}
