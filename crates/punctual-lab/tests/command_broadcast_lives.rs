//! `punctual run broadcast --kills --stops`, as scripts and people call it: the deliveries of all lives are looked at.

mod common;

use common::{Place, alone, children, count, is_root, punctual, result_where};
use serde_json::Value;

/// Four members, so that one may be away while another one is suspected wrongly. Such machines may be busy with other work: a
/// second without a turn is no crash.
fn short(engines: &str, more: &str) -> String {
    let asked = "--members 4 --suspect 1s --message 20000 --json summary.json --out run";
    format!("run broadcast {asked} --engine {engines} {more}")
}

fn trials(summary: &Value) -> &[Value] {
    summary["broadcast"]["disrupted"].as_array().expect("trials")
}

/// Checks the values that every trial with this many disruptions reports.
fn check(trial: &Value, disruption: &str, times: usize) {
    assert_eq!(trial["disruption"], disruption, "{trial:#}");
    assert_eq!(
        (count(trial, "violation_count"), &trial["violations"]),
        (0, &Value::Array(Vec::new())),
        "{trial:#}"
    );
    let events = trial["events"].as_array().expect("events");
    assert_eq!(events.len(), times, "{trial:#}");
    for event in events {
        assert!(count(event, "rejoin_ns") > 0, "{event:#}");
        for gaps in ["gaps_ns", "return_gaps_ns"] {
            let gaps = event[gaps].as_array().expect("gaps");
            assert!(gaps.len() == 3 && gaps.iter().all(|gap| gap.as_u64() > Some(0)), "{event:#}");
        }
    }
    // One view without the member, one with its new life, each time.
    assert!(count(trial, "views") >= 2 * times as u64, "{trial:#}");
    assert!(count(trial, "lives") >= 4 + times as u64, "{trial:#}");
    assert!(count(trial, "messages") > 0 && count(&trial["gaps"], "count") == 3 * times as u64, "{trial:#}");
}

/// Returns true if a process may run on one processor only.
fn is_bound(pid: &String) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.is_some_and(|list| list.trim().parse::<usize>().is_ok())
}

/// Goal: the successor of a member that was killed has its processor. On a machine with one processor everybody has.
#[test]
fn a_member_comes_back_to_its_processor() {
    let place = Place::alone();
    let mut started = place.start(punctual(&short("shared", "--kills 2 --pin")));
    let parent = started.id();
    let all_bound = || children(parent).iter().filter(|pid| is_bound(pid)).count() == 4;
    started.has("four members with a processor each", all_bound);
    let first = children(parent);
    let is_back = || children(parent).iter().any(|pid| !first.contains(pid) && is_bound(pid));
    started.has("a new member with a processor", is_back);
    started.end().with(0);
}

/// Goal: members that are killed under load come back, in memory and on a network, with losses too; all lives were told one
/// sequence; and that is in the summary, in the store and in words.
#[test]
fn killed_members_come_back() {
    let place = Place::alone();
    let ended = place.punctual(&short("shared,multicast", "--kills 3 --faults 1/0")).with(0);
    for words in ["when a member goes and comes", "kills", "What was delivered meanwhile"] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let summary = place.summary("summary.json");
    if !is_root() || !summary["skipped"].is_null() {
        punctual_machine::skipped!("{}", summary["skipped"]);
    }
    assert!([1, 2].contains(&trials(&summary).len()), "{summary:#}");
    trials(&summary).iter().for_each(|trial| check(trial, "kill", 3));
    for kind in ["one_way", "throughput"] {
        let row = result_where(&summary, "shared/ab/n4/1-0/kills", |row| row["kind"] == kind);
        assert!(row["p50"].as_u64() > Some(0) && row["lost"] == 0, "{row:#}");
    }
    let again = place.punctual("report run --text").with(0).out;
    assert!(again.contains("when a member goes and comes"), "{again}");
}

/// Goal: members that stand still are left out, find that out, and come back as new lives; in a trial of its own, beside kills.
#[test]
fn stopped_members_come_back() {
    let place = Place::alone();
    place.punctual(&short("shared", "--stops 2 --kills 1 --kind agreed")).with(0);
    let summary = place.summary("summary.json");
    let [kills, stops] = trials(&summary) else { panic!("{summary:#}") };
    check(kills, "kill", 1);
    check(stops, "stop", 2);
    assert!(count(stops, "expelled") >= 2, "{stops:#}");
}

/// Goal: a life that was told another message, or another order, is found: exit 1, and a sentence that names it.
#[test]
fn a_life_that_differs_is_reported() {
    let _turn = alone();
    for planted in ["content", "order", "lost"] {
        let place = Place::new();
        let said = place.punctual(&short("shared", &format!("--kills 1 --plant {planted}"))).with(1).err;
        assert!(said.contains("a promise did not hold: m"), "{said}");
        assert!(count(&trials(&place.summary("summary.json"))[0], "violation_count") > 0);
    }
}

/// Goal: a machine that has no memory left for members breaks no promise of the group: the trial is skipped, and the reason says what
/// to do. Method: a small file system in place of `/dev/shm`, in a namespace of mounts of its own, that is filled amid the kills.
#[test]
fn a_full_memory_is_no_broken_promise() {
    let place = Place::alone();
    let (program, asked) = (env!("CARGO_BIN_EXE_punctual"), short("shared", "--kills 1000"));
    let call = format!(
        "mount -t tmpfs -o size=256m none /dev/shm || exit 99; {program} {asked} & run=$!; \
         until [ -s /dev/shm/punctual-broadcast-*/3.0 ]; do kill -0 $run || break; sleep 0.1; done; \
         cat /dev/zero > /dev/shm/rest 2> /dev/null; wait $run"
    );
    let mut shell = std::process::Command::new("unshare");
    shell.args(["--map-root-user", "--mount", "sh", "-c", &call]);
    let ended = place.start(shell).end();
    if ended.code == Some(99) || !ended.err.contains("punctual") {
        punctual_machine::skipped!("no namespace of mounts: {}", ended.err);
        return;
    }
    let said = ended.with(3).err;
    for words in ["nothing could be measured", "No space left on device", "/dev/shm"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // The remedy is of the file that found no room first: a log, or a ring.
    assert!(said.contains("free some room") || said.contains("remove files"), "{said}");
}

/// Waits until the member of another process came, so many times.
fn see_returns(started: &mut common::Started, times: usize) {
    let parent = started.id();
    for _ in 0..times {
        let before = children(parent);
        let is_back = || children(parent).iter().any(|pid| !before.contains(pid));
        started.has("a new member", is_back);
    }
}

/// Goal: members that somebody else ends, as the kernel does for want of memory, break no promise of the group; the reason is said.
#[test]
fn an_end_from_outside_is_no_broken_promise() {
    let place = Place::alone();
    let mut started = place.start(punctual(&short("shared", "--kills 1000")));
    let parent = started.id();
    started.has("four members", || children(parent).len() == 4);
    // The trial is under way once one of them has come back.
    see_returns(&mut started, 1);
    let mut kill = std::process::Command::new("sh");
    kill.args(["-c", "kill \"$@\"", "kill", "-KILL"]).args(children(parent)).status().expect("a shell");
    let ended = started.end();
    assert!(matches!(ended.code, Some(0 | 3)), "{:?}\n{}\n{}", ended.code, ended.out, ended.err);
    // A successor may be ended before it is a member.
    let said = common::words(&format!("{} {}", ended.out, ended.err));
    assert!(said.contains("by signal 9"), "{said}");
}

/// Goal: kills of a trial that is interrupted are kept, and say that more were asked for. The command reads a log for each member that is
/// there, not for each that was.
#[test]
fn finished_kills_are_kept() {
    let place = Place::alone();
    let mut started = place.start(punctual(&short("shared", "--kills 1000")));
    let parent = started.id();
    started.has("four members", || children(parent).len() == 4);
    see_returns(&mut started, 4);
    let is_log = |link: std::path::PathBuf| link.to_string_lossy().contains("punctual-broadcast-");
    let open = std::fs::read_dir(format!("/proc/{parent}/fd")).expect("procfs").flatten();
    let logs = open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_log)).count();
    assert!(logs <= 4, "{logs} logs are open");
    started.signal("-INT");
    let ended = started.end().with(0);
    let summary = place.summary("summary.json");
    let events = trials(&summary)[0]["events"].as_array().expect("events").len();
    assert!((3..1000).contains(&events), "{events}");
    assert!(summary.to_string().contains("cut short"), "{}", ended.err);
}

/// Goal: a trial that is interrupted before its first kill, or before its clients ask, has no speed. Method: all members are there, and
/// none has been killed yet.
#[test]
fn an_interrupt_before_any_load_leaves_no_speed() {
    for more in ["--kills 1000 --members 4 --suspect 5s", "--app kv --members 3"] {
        let place = Place::alone();
        let mut started = place
            .start(punctual(&format!("run broadcast --engine shared --json summary.json --out run {more}")));
        let parent = started.id();
        started.has("three members", || children(parent).len() >= 3);
        started.signal("-INT");
        let ended = started.end();
        assert_eq!(ended.code, Some(3), "{}\n{}", ended.out, ended.err);
        assert!(ended.err.contains("interrupted"), "{}", ended.err);
        if place.path("summary.json").exists() {
            assert_eq!(place.summary("summary.json")["results"], Value::Array(Vec::new()));
        }
    }
}

#[test]
fn options_that_do_not_go_together_are_named() {
    let place = Place::new();
    for (arguments, words) in [
        ("--kills 3 --bytes 1M", "--bytes"),
        ("--stops 3 --senders 1", "--senders 1"),
        ("--kills 1 --members 4,2", "--members 2"),
        ("--kills 0", "--kills"),
        ("--suspect 1s", "--suspect"),
        ("--kills 1 --suspect 1ms", "--suspect"),
        ("--kills 1 --duration 1s", "--duration"),
    ] {
        let said = place.punctual(&format!("run broadcast {arguments}")).with(2).err;
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
