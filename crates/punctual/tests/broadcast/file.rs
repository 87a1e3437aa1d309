//! Groups that stand in files.

use std::fmt::Write;
use std::sync::Barrier;
use std::time::Duration;

use punctual::broadcast::{DeliverError, Delivery, Group, GroupFile};

use crate::common::{free_ports, unique, watchdog};

const NAMES: [&str; 3] = ["anne", "bob", "carl"];
const EACH: u64 = 60;

/// A file with these lines for the group, and for each member.
fn file(group: &str, members: [String; 3], faults: &str) -> (tempfile::TempDir, GroupFile) {
    let mut text = format!("name = \"team\"\nfounder = \"bob\"\nsuspect_after = \"3s\"\n{group}\n");
    for (name, member) in NAMES.iter().zip(members) {
        writeln!(text, "[[member]]\nname = \"{name}\"\n{member}").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("team.toml");
    std::fs::write(&path, text + faults).unwrap();
    let file = GroupFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
    (folder, file)
}

/// Takes part as one member of the file. Returns what it was told, from the view of all on.
fn take_part(file: &GroupFile, name: &str, all_done: &Barrier) -> (u64, Vec<Vec<u8>>) {
    let member = file.member(name).unwrap();
    let node = member.open_node().unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut group = Group::join(&node, &member.group).unwrap();
    let (mut log, mut sent, mut are_there) = (Vec::new(), 0, false);
    while log.len() < NAMES.len() * EACH as usize {
        if are_there && sent < EACH {
            sent += u64::from(group.try_broadcast(format!("{name} {sent}").as_bytes()).is_ok());
        }
        match group.deliver(Duration::from_millis(1)) {
            Ok(Delivery::View(view)) => are_there |= view.members.len() == NAMES.len(),
            Ok(Delivery::Message(message)) => log.push(message.payload.to_vec()),
            Ok(Delivery::Stopped | Delivery::Resumed) | Err(DeliverError::Empty) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
    // Others may still need what it holds: its caretaker sees to that.
    all_done.wait();
    // A medium with numbers takes a gap for a loss only when enough has come behind it.
    (node.ledger().lost() + group.account().repaired, log)
}

/// Goal: members who read one file meet, and deliver one order of all that they say, despite the file's faults.
#[test]
fn members_of_a_file_meet() {
    let _alive = watchdog(120);
    let ((a, b), (c, _)) = (free_ports(), free_ports());
    let addresses = [a, b, c].map(|address| format!("address = \"{address}\""));
    let group = free_ports().0.port();
    let multicast = format!("medium = \"multicast\"\nmulticast = \"239.255.80.86:{group}\"");
    let interface = || "interface = \"127.0.0.1\"".to_owned();
    let faults = "[faults]\nseed = 3\nloss_permille = 200\n";
    for (group, members, faults) in [
        ("medium = \"peers\"".to_owned(), addresses, faults),
        (multicast, [(); 3].map(|()| interface()), ""),
        (format!("medium = \"shared\"\nbus = \"{}\"", unique("file")), [const { String::new() }; 3], faults),
    ] {
        let (_folder, file) = file(&group, members, faults);
        let all_done = Barrier::new(NAMES.len());
        let logs: Vec<(u64, Vec<Vec<u8>>)> = std::thread::scope(|scope| {
            let (file, all_done) = (&file, &all_done);
            let start = |name| scope.spawn(move || take_part(file, name, all_done));
            NAMES.map(start).map(|member| member.join().unwrap()).into_iter().collect()
        });
        let mut all = logs[0].1.clone();
        assert!(logs.iter().all(|(_, log)| *log == all), "{group}: one order");
        all.sort();
        all.dedup();
        assert_eq!(all.len() as u64, EACH * NAMES.len() as u64, "{group}: each once");
        // A fifth of what arrives is some 40 frames; without faults a buffer may lose a few.
        let lost: u64 = logs.iter().map(|(lost, _)| lost).sum();
        assert!(lost > 10 || faults.is_empty(), "{group}: of the file's faults {lost} were made");
    }
}

#[test]
fn a_name_that_is_not_in_the_file_is_refused() {
    let (_folder, file) = file("medium = \"shared\"", [const { String::new() }; 3], "");
    let error = file.member("dora").unwrap_err().to_string();
    assert!(
        error.ends_with(
            "team.toml: \"dora\" is no member: use one of anne, bob, carl, or add it at all members"
        ),
        "{error}"
    );
    assert!(file.member("bob").unwrap().group.founds && !file.member("anne").unwrap().group.founds);
}
