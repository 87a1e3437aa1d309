//! Two containers on one `/dev/shm`: namespaces of their own for pids, time, mounts, network and users, with and without `/proc`.
//!
//! The test binary starts itself anew with a role in its environment, by way of `unshare`.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, Reachable, Role, own_role, unique, watchdog};
use punctual::memory::{SharedOptions, WhenFull};
use punctual::{Bus, Communicator, Node, Target, ledger};
use punctual_machine::process::user;

const HOST: &[&str] = &[];
const PIDS: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
const TIME: &[&str] =
    &["unshare", "--time", "--fork", "--kill-child", "--monotonic", "7777", "--boottime", "7777"];
/// As in an image without one; `/dev/shm` stays the host's.
const NO_PROC: &[&str] =
    &["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" \"$@\""];
/// Docker's defaults, with the host's `/dev/shm`.
const ALL: &[&str] = &[
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--time",
    "--boottime",
    "5555",
    "--net",
    "--ipc",
    "--uts",
    "--cgroup",
];
/// The same for an ordinary user, who keeps its number inside.
const ROOTLESS: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--",
    "unshare",
    "--user",
    "--map-current-user",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--time",
    "--boottime",
    "3333",
    "--net",
    "--ipc",
];

/// A bus on which readers hold writers back.
fn held(name: &str) -> Bus {
    Bus::Shared(SharedOptions {
        ring_size: 1 << 12,
        when_full: WhenFull::HoldBack,
        ..SharedOptions::new(name)
    })
}

/// Not a test of its own: the work of another process.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    match role.as_str() {
        "pong" => answer(&bus),
        "witness" => witness(&bus),
        "idler" => idle(&bus),
        "reuser" => use_again(&bus),
        "refused" => be_refused(&bus),
        "crowded" => be_crowded(&bus),
        "sharer" => share(&bus),
        _ => panic!("{role}: no role"),
    }
}

/// Sends every message back until killed.
fn answer(bus: &str) {
    let node = Node::open(&held(bus), "pong").unwrap();
    let mut communicator = node.bind(1).unwrap();
    loop {
        let message = communicator.receive().unwrap();
        let (back, payload) = (Target::from(message.source), message.payload.to_vec());
        communicator.send_timeout(back, &payload, PATIENCE).unwrap();
    }
}

/// The file that says that the two have talked.
fn talked(bus: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/{bus}.talked"))
}

/// Talks to the other, who is killed then; notices that, and goes on.
fn witness(bus: &str) {
    let node = Node::open(&held(bus), "witness").unwrap();
    let mut communicator = node.bind(1).unwrap();
    for round in 0..200_u64 {
        let question = round.to_le_bytes();
        communicator.send_timeout(Target::port("pong", 1), &question, PATIENCE).expect("nobody there");
        let answer = communicator.receive_timeout(PATIENCE).expect("no answer");
        assert_eq!(answer.payload, question);
    }
    // The living were not taken for dead, nor were their files removed.
    // Three of each node, and a ring of each one's messages to the other.
    assert_eq!((node.ledger().died, files_of(bus)), (0, 8));
    // A process that opens a node anywhere sweeps first: the counters of both are still there, where containers can have any.
    let pages = ledger::read_all().into_iter().filter(|(page, _)| page.bus == format!("shared:{bus}"));
    assert_eq!(pages.count(), 2);
    std::fs::write(talked(bus), b"").unwrap();
    await_death(bus, &node, &mut communicator);
}

/// Goes on writing, which the dead must not stop, until it is noticed.
fn await_death(bus: &str, node: &Node, communicator: &mut Communicator) {
    let give_up = Instant::now() + PATIENCE;
    // Our own three, and our rings for one and for all.
    while node.ledger().died == 0 || files_of(bus) > 5 {
        assert!(Instant::now() < give_up, "its death went unnoticed: {} files", files_of(bus));
        communicator.send_timeout(Target::EVERYONE, &[7; 100], PATIENCE).expect("the dead hold back");
        let _nothing = communicator.receive_timeout(Duration::from_millis(1));
    }
    for _ in 0..500 {
        communicator.send_timeout(Target::EVERYONE, &[7; 100], PATIENCE).expect("the dead hold back");
    }
}

fn idle(bus: &str) {
    let node = Node::open(&held(bus), "idler").unwrap();
    let mut communicator = node.bind(1).unwrap();
    while communicator.receive().is_ok() {}
}

/// Files in the bus's folder: three for each node.
fn files_of(bus: &str) -> usize {
    let folder = format!("/dev/shm/punctual.{}.{bus}", user());
    std::fs::read_dir(folder).into_iter().flatten().filter(Result::is_ok).count()
}

/// True if this machine lets us go that way; says so if not.
fn may(way: &[&str]) -> bool {
    let Some((first, rest)) = way.split_first() else { return true };
    let tried = Command::new(first).args(rest).arg("true").stderr(Stdio::null()).status();
    let may = tried.is_ok_and(|status| status.success());
    if !may {
        punctual_machine::skipped!(
            "not possible here (needs root, or namespaces for users): {}",
            way.join(" ")
        );
    }
    may
}

/// Goal: a node here and one there talk, in either order of arrival. When one is killed, the other notices and is not held back.
fn check(program: &Path, here: &[&str], there: &[&str]) {
    if !may(here) || !may(there) {
        return;
    }
    for pong_first in [true, false] {
        let bus = unique("containers");
        let start = |role| Role::start_by(if role == "pong" { there } else { here }, program, role, &bus);
        let (first, second) = if pong_first { ("pong", "witness") } else { ("witness", "pong") };
        let first = start(first);
        std::thread::sleep(Duration::from_millis(30));
        let second = start(second);
        let (pong, mut witness) = if pong_first { (first, second) } else { (second, first) };
        let give_up = Instant::now() + 3 * PATIENCE;
        while !talked(&bus).exists() {
            assert!(witness.ended().is_none(), "the two cannot talk: {here:?}, {there:?}");
            assert!(Instant::now() < give_up, "the two do not talk: {here:?}, {there:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        pong.kill();
        witness.end();
        std::fs::remove_file(talked(&bus)).unwrap();
    }
}

/// Goal: containers of every kind share a bus with the host and with each other.
#[test]
fn containers_share_a_bus() {
    let _alive = watchdog(120);
    let program = Reachable::new();
    for (here, there) in [(HOST, PIDS), (PIDS, HOST), (HOST, TIME), (TIME, HOST), (PIDS, TIME), (ALL, ALL)] {
        check(program.path(), here, there);
    }
}

/// Goal: without `/proc` nodes hear each other all the same.
#[test]
fn nodes_without_proc_hear_each_other() {
    let _alive = watchdog(90);
    let program = Reachable::new();
    for (here, there) in [(NO_PROC, NO_PROC), (HOST, NO_PROC), (NO_PROC, PIDS)] {
        check(program.path(), here, there);
    }
}

/// Goal: without `/proc` a bus that is shared with a group can be entered, or it is said what that takes.
#[test]
fn a_bus_of_a_group_needs_no_proc() {
    let _alive = watchdog(30);
    if may(NO_PROC) {
        Role::start_by(NO_PROC, &std::env::current_exe().unwrap(), "sharer", &unique("sharer")).end();
    }
}

fn share(bus: &str) {
    let entered = Node::open(&Bus::shared_with_group(bus, 0), "node");
    if let Err(error) = entered.map(drop) {
        let error = error.to_string();
        assert!(error.contains("take Linux 6.6"), "{error}");
        let kernel = rustix::system::uname();
        let release = kernel.release().to_string_lossy();
        let version: Vec<u32> = release.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
        assert!(version[..2] < [6, 6][..], "Linux {release}: {error}");
        punctual_machine::skipped!("{error}");
    }
}

/// Goal: an ordinary user's containers share that user's bus.
#[test]
fn containers_of_an_ordinary_user_share_a_bus() {
    let _alive = watchdog(60);
    let way = if user() == 0 { ROOTLESS } else { &ROOTLESS[5..] };
    check(Reachable::new().path(), way, way);
}

/// Goal: a file system that shows nobody who lives is refused in words when the node opens.
/// Method: an overlay, as a container's own folders lie on: it maps another file than the one that was locked.
#[test]
fn a_file_system_that_shows_nobody_who_lives_is_refused() {
    let _alive = watchdog(120);
    let layers = tempfile::tempdir_in("/dev/shm").unwrap();
    for layer in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(layers.path().join(layer)).unwrap();
    }
    let at = layers.path().display();
    let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work");
    let script = format!("mount -t overlay none -o {options} {at}/merged && exec \"$0\" \"$@\"");
    let way = ["unshare", "--mount", "sh", "-c", &script];
    if may(&way) {
        let bus = format!("{at}/merged");
        Role::start_by(&way, &std::env::current_exe().unwrap(), "refused", &bus).end();
    }
}

fn be_refused(directory: &str) {
    let directory = PathBuf::from(directory);
    let bus = Bus::Shared(SharedOptions { directory: directory.clone(), ..SharedOptions::new("overlaid") });
    let error = Node::open(&bus, "node").expect_err("nobody could tell that it lives").to_string();
    assert!(error.contains("shows no locks") && error.contains("tmpfs"), "{error}");
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "nothing is left");
}

/// Goal: a reader that begins where the memory file system is full is told so, and reads once there is room.
#[test]
fn a_reader_that_begins_on_a_full_file_system_is_told() {
    let _alive = watchdog(120);
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = place.path().to_str().unwrap();
    let script = format!("mount -t tmpfs -o size=512k none {at} && exec \"$0\" \"$@\"");
    let way = ["unshare", "--mount", "sh", "-c", &script];
    if may(&way) {
        Role::start_by(&way, &std::env::current_exe().unwrap(), "crowded", at).end();
    }
}

fn be_crowded(directory: &str) {
    let directory = PathBuf::from(directory);
    let options = SharedOptions { ring_size: 4096, ..SharedOptions::new("full") };
    let bus = Bus::Shared(SharedOptions { directory: directory.clone(), ..options });
    let node = Node::open(&bus, "node").unwrap();
    let filler = directory.join("filler");
    assert!(std::fs::write(&filler, vec![1; 1 << 20]).is_err(), "it has 512 KiB");
    for _ in 0..2 {
        let error = node.bind(1).expect_err("nothing could be read").to_string();
        assert!(error.contains("reserve shared memory") && error.contains(".ring"), "{error}");
    }
    std::fs::remove_file(filler).unwrap();
    let mut communicator = node.bind(1).unwrap();
    communicator.send_timeout(Target::port("node", 1), b"to myself", PATIENCE).unwrap();
    assert_eq!(communicator.receive_timeout(PATIENCE).unwrap().payload, b"to myself");
}

/// Goal: a process with the pid of a dead peer is not taken for it.
/// Method: in a pid namespace of its own a node's process is killed, and the next process gets its pid.
#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let _alive = watchdog(60);
    if may(PIDS) {
        let program = Reachable::new();
        Role::start_by(PIDS, program.path(), "reuser", &unique("reused")).end();
    }
}

/// Kills a peer, gives its pid to somebody else, and must notice.
fn use_again(bus: &str) {
    const NEXT: &str = "/proc/sys/kernel/ns_last_pid";
    let node = Node::open(&held(bus), "reuser").unwrap();
    let mut communicator = node.bind(1).unwrap();
    for _ in 0..5 {
        let died_before = node.ledger().died;
        let mut peer = Command::new(std::env::current_exe().unwrap());
        peer.args(["role", "--exact", "--quiet", "--test-threads=1"]).stdout(Stdio::null());
        let mut peer = peer.env("PUNCTUAL_TEST_ROLE", "idler").spawn().unwrap();
        communicator.send_timeout(Target::port("idler", 1), b"there?", PATIENCE).expect("nobody there");
        peer.kill().unwrap();
        peer.wait().unwrap();
        if let Err(error) = std::fs::write(NEXT, (peer.id() - 1).to_string()) {
            punctual_machine::skipped!("pids that are used again: {NEXT}: {error}");
            return;
        }
        let mut next = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(next.id(), peer.id(), "nobody else is in this namespace");
        let give_up = Instant::now() + PATIENCE;
        while node.ledger().died == died_before {
            assert!(Instant::now() < give_up, "its death went unnoticed");
            let _nothing = communicator.receive_timeout(Duration::from_millis(1));
        }
        assert_eq!(files_of(bus), 4, "our own three, and our ring");
        next.kill().unwrap();
        next.wait().unwrap();
    }
}
