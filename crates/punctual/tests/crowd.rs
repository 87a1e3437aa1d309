//! As many nodes as a bus can have, one too many, and nodes of several users.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, Role, unique, watchdog};
use punctual::engine::shared::SharedOptions;
use punctual::{Bus, Communicator, CommunicatorOptions, Node, Target, Wake};
use punctual_machine::signal;
use punctual_proto::limits::NODES_MAX;

/// Nodes of the crowd: every one sends to every other.
const NODES: usize = 200;
/// Of which each process has as many: a process may map some 65,000 files, and each node maps two of each other's.
const NODES_OF_PROCESS: usize = 25;

fn crowded(name: &str) -> Bus {
    Bus::Shared(SharedOptions { ring_size: 1 << 16, ..SharedOptions::new(name) })
}

/// Not a test of its own: what another process does.
#[test]
fn role() {
    let (Ok(role), Ok(bus)) = (std::env::var("PUNCTUAL_TEST_ROLE"), std::env::var("PUNCTUAL_TEST_BUS"))
    else {
        return;
    };
    signal::end_with_parent();
    match role.split_once(' ') {
        Some(("part", first)) => take_part(&crowded(&bus), first.parse().unwrap()),
        Some(("guest", group)) => visit(&bus, group),
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
    let give_up = Instant::now() + 12 * PATIENCE;
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
        if !sent && nodes.iter().all(|node| node.peers().len() == NODES - 1) {
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
    check_idle_reads(&nodes);
    // Who leaves now might take from the others what they have not read: all leave when all are done.
    std::fs::write(format!("/dev/shm/{}.done-{first}", bus_name(bus)), b"").unwrap();
    while (0..NODES).step_by(NODES_OF_PROCESS).any(|first| !is_done(bus, first)) {
        assert!(Instant::now() < give_up);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Goal: nodes that wait for nothing look up their peers' processes in turn, not all of them all the time.
/// Method: the kernel's count of this process's reads (`/proc/self/io`) while all its nodes wait.
fn check_idle_reads(nodes: &[Node]) {
    let reads = || {
        let counts = std::fs::read_to_string("/proc/self/io").ok()?;
        counts.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse::<u64>().ok())
    };
    let (Some(before), started) = (reads(), Instant::now()) else {
        eprintln!("SKIPPED the reads of idle nodes: this kernel does not count them");
        return;
    };
    std::thread::scope(|scope| {
        for node in nodes {
            let options = CommunicatorOptions::waiting(Wake::Futex);
            let mut communicator = node.bind_with(1, &options).unwrap();
            scope.spawn(move || assert!(communicator.receive_timeout(Duration::from_secs(3)).is_err()));
        }
    });
    let (reads, seconds) = (reads().unwrap() - before, started.elapsed().as_secs_f64());
    eprintln!("{} idle nodes of {NODES}: {:.0} reads/s", nodes.len(), reads as f64 / seconds);
    // Eight lookups every quarter of a second; each is a file's one read. Twice that for what else there is.
    let allowed = 2.0 * 8.0 * (4.0 * seconds + 1.0) * nodes.len() as f64;
    assert!((reads as f64) < allowed, "{reads} reads in {seconds} s");
}

fn bus_name(bus: &Bus) -> String {
    bus.to_string().replace("shared:", "")
}

fn is_done(bus: &Bus, first: usize) -> bool {
    Path::new(&format!("/dev/shm/{}.done-{first}", bus_name(bus))).exists()
}

/// Goal: two hundred nodes on one bus hear each other, and nothing is lost.
#[test]
fn two_hundred_nodes_hear_each_other() {
    let _alive = watchdog(150);
    let name = unique("crowd");
    let parts: Vec<_> = (0..NODES)
        .step_by(NODES_OF_PROCESS)
        .map(|first| Role::start(&format!("part {first}"), &name))
        .collect();
    for part in parts {
        part.end();
    }
    for first in (0..NODES).step_by(NODES_OF_PROCESS) {
        std::fs::remove_file(format!("/dev/shm/{name}.done-{first}")).unwrap();
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
    last.send_timeout(Target::port(nodes[0].id(), 1_u8), b"here", PATIENCE).unwrap();
    assert_eq!(first.receive_timeout(PATIENCE).unwrap().payload, b"here");
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

/// What a guest with this user and these groups says; nothing if this program may not become another user.
fn guest(user: &str, groups: &str, bus: &str, group: &str) -> std::thread::JoinHandle<String> {
    let mut command = Command::new("setpriv");
    let (user, own) = (format!("--reuid={user}"), format!("--regid={user}"));
    command.args([&user, &own, groups, "--"]).arg(reachable_program()).args([
        "role",
        "--exact",
        "--nocapture",
    ]);
    command.env("PUNCTUAL_TEST_ROLE", format!("guest {group}")).env("PUNCTUAL_TEST_BUS", bus);
    std::thread::spawn(move || {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    })
}

/// A copy of this program that every user may run: the build's folder may be closed to them.
fn reachable_program() -> std::path::PathBuf {
    let copy = std::env::temp_dir().join(format!("punctual-crowd-{}", std::process::id()));
    if !copy.exists() {
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

/// Goal: a private bus is its user's own; a shared one is its group's, and nobody else's, who is told so.
#[test]
fn a_bus_is_private_or_its_groups() {
    const GROUP: u32 = 54_321;
    let _alive = watchdog(90);
    if punctual_machine::process::user() != 0 || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("SKIPPED buses of several users: only root can become others (and needs setpriv)");
        return;
    }
    let private = unique("private");
    let host = Node::open(&Bus::shared(&private), "host").unwrap();
    let said = guest("65534", "--clear-groups", &private, "private").join().unwrap();
    assert!(said.contains("nobody there"), "another user's bus of that name is another: {said}");
    drop(host);

    let shared = unique("shared");
    let host = Node::open(&Bus::shared_with_group(&shared, GROUP), "host").unwrap();
    let folder = format!("/dev/shm/punctual.g{GROUP}.{shared}");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, 0o2770);
    let said = guest("65534", "--clear-groups", &shared, &GROUP.to_string()).join().unwrap();
    assert!(said.contains("refused:") && said.contains("for its group"), "{said}");
    let mut communicator = host.bind(1).unwrap();
    let member = guest("65534", &format!("--groups={GROUP}"), &shared, &GROUP.to_string());
    let message = communicator.receive_timeout(PATIENCE).unwrap();
    assert_eq!(message.payload, b"from another user");
    let back = message.source.into();
    communicator.send_timeout(back, b"to another user", PATIENCE).unwrap();
    assert!(member.join().unwrap().contains("talked"));
    drop((communicator, host));
    assert!(!Path::new(&folder).exists(), "the last one out removes it");
    std::fs::remove_file(reachable_program()).unwrap();
}
