//! As many nodes as a bus can have, one too many, and nodes of several users.

mod common;

use std::collections::HashSet;
use std::fs::DirEntry;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, Reachable, Role, own_role, unique, watchdog};
use punctual::memory::SharedOptions;
use punctual::{Bus, Communicator, Node, NodeId, Target};
use punctual_proto::limits::NODES_MAX;

/// Nodes of the crowd: every one sends to every other.
const NODES: usize = 200;
/// Of which each process has as many: a process may map some 65,000 files, and each node maps two of each other's.
const NODES_OF_PROCESS: usize = 25;

/// A part of the crowd waits no longer than that for the others, and the tests wait a little longer for each part.
const GIVE_UP_AFTER: Duration = Duration::from_secs(240);
const LIMIT_S: u64 = 300;

/// Interval at which each of hundreds of processes looks what the others have noted: that is a folder of as many names.
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn crowded(name: &str) -> Bus {
    Bus::Shared(SharedOptions { ring_size: 1 << 16, ..SharedOptions::new(name) })
}

/// Not a test of its own: the work of another process.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    match role.split_once(' ') {
        Some(("part", first)) => take_part(&crowded(&bus), first.parse().unwrap()),
        Some(("guest", group)) => visit(&bus, group),
        Some(("throng", number)) => throng(&crowded(&bus), number.parse().unwrap()),
        _ => panic!("{role}: no role"),
    }
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

/// Opens its nodes, waits for all others, sends to everybody, and hears everybody once.
fn take_part(bus: &Bus, first: usize) {
    let nodes: Vec<Node> =
        (first..first + NODES_OF_PROCESS).map(|number| Node::open(bus, &name(number)).unwrap()).collect();
    let mut communicators: Vec<Communicator> = nodes.iter().map(|node| node.bind(1).unwrap()).collect();
    // A process that is still joining may miss what is sent meanwhile: all send when all are in.
    mark(bus, "joined", first);
    let give_up = Instant::now() + GIVE_UP_AFTER;
    let mut heard = vec![[false; NODES]; nodes.len()];
    let (mut sent, mut count) = (false, 0);
    while !sent || count < nodes.len() * (NODES - 1) {
        for (index, communicator) in communicators.iter_mut().enumerate() {
            while let Ok(message) = communicator.try_receive() {
                let number = u16::from_le_bytes(message.payload.try_into().unwrap());
                let first_time = !std::mem::replace(&mut heard[index][usize::from(number)], true);
                assert!(first_time, "message of node {number} twice");
                count += 1;
            }
        }
        if !sent && all_marked(bus, "joined") && nodes.iter().all(|node| node.peers().len() == NODES - 1) {
            for (index, communicator) in communicators.iter_mut().enumerate() {
                let number = (first + index) as u16;
                communicator.send_timeout(Target::EVERYONE, &number.to_le_bytes(), PATIENCE).unwrap();
            }
            sent = true;
        }
        assert!(
            Instant::now() < give_up,
            "{count} messages, sent: {sent}, peers: {}",
            nodes[0].peers().len()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    for node in &nodes {
        let ledger = node.ledger();
        assert!(ledger.is_balanced() && ledger.lost() == 0, "{ledger}");
    }
    drop(communicators);
    // A process that leaves now might take from the others what they have not read: all leave when all are done.
    mark(bus, "done", first);
    while !all_marked(bus, "done") {
        assert!(Instant::now() < give_up);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn bus_name(bus: &Bus) -> String {
    bus.to_string().replace("shared:", "")
}

fn mark_of(bus: &str, what: &str, first: usize) -> String {
    format!("/dev/shm/{bus}.{what}-{first}")
}

fn mark(bus: &Bus, what: &str, first: usize) {
    std::fs::write(mark_of(&bus_name(bus), what, first), b"").unwrap();
}

fn all_marked(bus: &Bus, what: &str) -> bool {
    let is_marked = |first| Path::new(&mark_of(&bus_name(bus), what, first)).exists();
    (0..NODES).step_by(NODES_OF_PROCESS).all(is_marked)
}

/// Processes that join at once: more than a bus has room for.
const THRONG: usize = 300;
/// Exit code of a process that was refused.
const REFUSED: i32 = 44;

/// Waits for the word, joins, and hears everybody who came in; or is refused.
fn throng(bus: &Bus, number: usize) {
    let _word = std::io::stdin().read_to_end(&mut Vec::new());
    let node = match Node::open(bus, &name(number)) {
        Ok(node) => node,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("256 nodes") && text.contains("another bus"), "{text}");
            note(bus, "refused", number);
            std::process::exit(REFUSED);
        }
    };
    let mut communicator = node.bind(1).unwrap();
    let give_up = Instant::now() + GIVE_UP_AFTER;
    // A process that is still joining may miss what is sent meanwhile: all send when all are in.
    note(bus, "joined", number);
    let (mut heard, mut sent) = (HashSet::new(), false);
    while !sent || heard.len() < NODES_MAX - 1 {
        assert!(Instant::now() < give_up, "sent: {sent}; {}", known(bus, &node, number, &heard));
        let present = || node.peers().iter().filter(|peer| peer.present).count();
        if !sent && noted(bus, "joined").len() == NODES_MAX && present() == NODES_MAX - 1 {
            communicator.send_timeout(Target::EVERYONE, b"here", PATIENCE).unwrap();
            sent = true;
        }
        while let Ok(message) = communicator.receive_timeout(LOOK_EVERY) {
            assert!(heard.insert(message.source.node), "{} twice", message.source.node);
        }
    }
    let ledger = node.ledger();
    assert!(ledger.is_balanced() && ledger.lost() == 0, "{ledger}");
    drop(communicator);
    note(bus, "done", number);
    // A process that leaves now might take from the others what they have not read, and makes room for processes that have not come
    // yet. So all leave when all are done or refused.
    while noted(bus, "done").len() < NODES_MAX || noted(bus, "refused").len() < THRONG - NODES_MAX {
        let (done, refused) = (noted(bus, "done"), noted(bus, "refused"));
        assert!(Instant::now() < give_up, "{} done: {done:?}; refused: {refused:?}", done.len());
        std::thread::sleep(LOOK_EVERY);
        node.housekeep();
    }
}

/// Describes what a node of the throng knows of the others, and where it is wrong.
fn known(bus: &Bus, node: &Node, own: usize, heard: &HashSet<NodeId>) -> String {
    let (joined, peers) = (noted(bus, "joined"), node.peers());
    let id = |number: usize| NodeId::named(&name(number));
    let has_joined = |number: usize| joined.contains(&number);
    let has = |number, present| peers.iter().any(|peer| peer.node == id(number) && peer.present == present);
    let others = |is_it: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..THRONG).filter(|&number| number != own && is_it(number)).collect()
    };
    format!(
        "{} joined, {} peers present; joined, but not present: {:?}; present, but not joined: {:?}; gone: {:?}; \
         joined, but not heard: {:?}; {}",
        joined.len(),
        peers.iter().filter(|peer| peer.present).count(),
        others(&|number| has_joined(number) && !has(number, true)),
        others(&|number| !has_joined(number) && has(number, true)),
        others(&|number| has(number, false)),
        others(&|number| has_joined(number) && !heard.contains(&id(number))),
        node.ledger()
    )
}

fn note(bus: &Bus, what: &str, number: usize) {
    std::fs::write(format!("/dev/shm/{}.throng/{what}-{number}", bus_name(bus)), b"").unwrap();
}

/// Numbers of the processes that noted that.
fn noted(bus: &Bus, what: &str) -> Vec<usize> {
    let notes = std::fs::read_dir(format!("/dev/shm/{}.throng", bus_name(bus))).unwrap();
    let number =
        |note: DirEntry| note.file_name().to_str()?.strip_prefix(what)?.strip_prefix('-')?.parse().ok();
    notes.filter_map(|note| number(note.unwrap())).collect()
}

/// Goal: of 300 processes that join at once 256 come in and 44 are refused in words; those that are in all hear each other.
#[test]
fn of_three_hundred_at_once_256_come_in() {
    let _alive = watchdog(LIMIT_S);
    let bus = unique("throng");
    std::fs::create_dir(format!("/dev/shm/{bus}.throng")).unwrap();
    // Nobody writes into it: all wait until it is closed.
    let (theirs, ours) = std::io::pipe().unwrap();
    let mut processes: Vec<_> = (0..THRONG)
        .map(|number| {
            let mut command = common::itself();
            command.args(["role", "--exact", "--nocapture", "--quiet", "--test-threads=1"]);
            command.env("PUNCTUAL_TEST_ROLE", format!("throng {number}")).env("PUNCTUAL_TEST_BUS", &bus);
            command.stdin(theirs.try_clone().unwrap()).stdout(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    drop(ours);
    let ends: Vec<_> = processes.iter_mut().map(|process| process.wait().unwrap()).collect();
    let refused = ends.iter().filter(|end| end.code() == Some(REFUSED)).count();
    let came_in = ends.iter().filter(|end| end.success()).count();
    std::fs::remove_dir_all(format!("/dev/shm/{bus}.throng")).unwrap();
    assert_eq!((came_in, refused), (NODES_MAX, THRONG - NODES_MAX));
    assert!(!Path::new(&format!("/dev/shm/punctual.{}.{bus}", punctual_machine::process::user())).exists());
}

/// Goal: two hundred nodes on one bus hear each other, and nothing is lost.
#[test]
fn two_hundred_nodes_hear_each_other() {
    let _alive = watchdog(LIMIT_S);
    let name = unique("crowd");
    let parts: Vec<_> = (0..NODES)
        .step_by(NODES_OF_PROCESS)
        .map(|first| Role::start(&format!("part {first}"), &name))
        .collect();
    for part in parts {
        part.end();
    }
    for first in (0..NODES).step_by(NODES_OF_PROCESS) {
        for what in ["joined", "done"] {
            std::fs::remove_file(mark_of(&name, what, first)).unwrap();
        }
    }
    assert!(!Path::new(&format!("/dev/shm/punctual.{}.{name}", punctual_machine::process::user())).exists());
}

/// Goal: the node that is one too many is refused in words, and may come in when somebody has left.
#[test]
fn one_node_too_many_is_refused() {
    let _alive = watchdog(120);
    let bus = Bus::Loopback(SharedOptions { ring_size: 1 << 12, ..SharedOptions::new(&unique("full")) });
    let mut nodes: Vec<Node> =
        (0..NODES_MAX).map(|number| Node::open(&bus, &name(number)).unwrap()).collect();
    let error = Node::open(&bus, "one-too-many").expect_err("the bus is full").to_string();
    assert!(error.contains("256 nodes") && error.contains("another bus"), "{error}");
    nodes.pop();
    let late = Node::open(&bus, "one-too-many").expect("there is room again");
    let (mut first, mut last) = (nodes[0].bind(1).unwrap(), late.bind(1).unwrap());
    last.send_timeout(Target::port(nodes[0].id(), 1), b"here", PATIENCE).unwrap();
    assert_eq!(first.receive_timeout(PATIENCE).unwrap().payload, b"here");
}

/// Goal: a node that rarely speaks is heard beside one that has always more to say, though the last speaker is looked at again in
/// between.
#[test]
fn a_flood_starves_nobody() {
    const QUIET: usize = 20;
    const FLOOD: usize = 3_000;
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("flood"));
    let mut hears = Node::open(&bus, "hears").unwrap().bind(1).unwrap();
    let mut floods = Node::open(&bus, "floods").unwrap().bind(1).unwrap();
    let mut quiet: Vec<_> =
        (0..QUIET).map(|number| Node::open(&bus, &name(number)).unwrap().bind(1).unwrap()).collect();
    let target = Target::port("hears", 1);
    for number in 0..FLOOD {
        floods.send_timeout(target, b"flood", PATIENCE).unwrap();
        if number == 0 {
            assert_eq!(hears.receive_timeout(PATIENCE).unwrap().payload, b"flood", "it has spoken last");
            quiet.iter_mut().for_each(|node| node.send_timeout(target, b"quiet", PATIENCE).unwrap());
        }
    }
    let (mut before_last, mut heard) = (0, 0);
    while heard < QUIET {
        match hears.receive_timeout(PATIENCE).unwrap().payload {
            b"flood" => before_last += 1,
            _ => heard += 1,
        }
    }
    assert!(before_last < FLOOD / 2, "{before_last} messages of the flood before the last quiet one");
}

/// Joins as another user: answers, or says why it could not.
fn visit(bus: &str, group: &str) {
    let bus = match group {
        "private" => Bus::shared(bus),
        group => Bus::shared_with_group(bus, group.parse().unwrap()),
    };
    let node = match Node::open(&bus, "guest") {
        Ok(node) => node,
        Err(error) => {
            println!("refused: {error}");
            return;
        }
    };
    let mut communicator = node.bind(1).unwrap();
    if communicator.send_timeout(Target::port("host", 1), b"from another user", PATIENCE).is_err() {
        println!("nobody there");
        return;
    }
    assert_eq!(communicator.receive_timeout(PATIENCE).unwrap().payload, b"to another user");
    println!("talked");
}

/// Output of a guest with this user and these groups; nothing if this program may not become another user.
fn guest(
    program: &Reachable,
    user: &str,
    groups: &str,
    bus: &str,
    group: &str,
) -> std::thread::JoinHandle<String> {
    let mut command = Command::new("setpriv");
    let (user, own) = (format!("--reuid={user}"), format!("--regid={user}"));
    command.args([&user, &own, groups, "--"]).arg(program.path()).args(["role", "--exact", "--nocapture"]);
    command.env("PUNCTUAL_TEST_ROLE", format!("guest {group}")).env("PUNCTUAL_TEST_BUS", bus);
    std::thread::spawn(move || {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    })
}

/// Goal: a private bus is its user's own; a shared one is its group's, and nobody else's, who is told so.
#[test]
fn a_bus_is_private_or_its_groups() {
    const GROUP: u32 = 54_321;
    let _alive = watchdog(90);
    if punctual_machine::process::user() != 0 || Command::new("setpriv").arg("--version").output().is_err() {
        punctual_machine::skipped!("buses of several users: only root can become others (and needs setpriv)");
        return;
    }
    let program = Reachable::new();
    let private = unique("private");
    let host = Node::open(&Bus::shared(&private), "host").unwrap();
    let said = guest(&program, "65534", "--clear-groups", &private, "private").join().unwrap();
    assert!(said.contains("nobody there"), "another user's bus of that name is another: {said}");
    drop(host);

    let shared = unique("shared");
    let host = Node::open(&Bus::shared_with_group(&shared, GROUP), "host").unwrap();
    let folder = format!("/dev/shm/punctual.g{GROUP}.{shared}");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, 0o2770);
    let said = guest(&program, "65534", "--clear-groups", &shared, &GROUP.to_string()).join().unwrap();
    assert!(said.contains("refused:") && said.contains("for its group"), "{said}");
    let mut communicator = host.bind(1).unwrap();
    let member = guest(&program, "65534", &format!("--groups={GROUP}"), &shared, &GROUP.to_string());
    let message = communicator.receive_timeout(PATIENCE).unwrap();
    assert_eq!(message.payload, b"from another user");
    let back = message.source.into();
    communicator.send_timeout(back, b"to another user", PATIENCE).unwrap();
    assert!(member.join().unwrap().contains("talked"));
    drop((communicator, host));
    assert!(!Path::new(&folder).exists(), "the last one out removes it");
}
