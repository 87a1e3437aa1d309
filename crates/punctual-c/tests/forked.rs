//! A Rust program that forks: objects of its parent that a child drops stay its parent's. The test stands beside unsafe code, which
//! forking is; the crate `punctual` has none.

use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use punctual::interest::Participant;
use punctual::runtime::{Runtime, RuntimeOptions, TaskOptions};
use punctual::{Bus, Node, PublicationOptions, SubscriptionOptions, Target};

const PATIENCE: Duration = Duration::from_secs(30);

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(code: i32) -> !;
}

/// Runs `work` in a child, whose threads are this one alone, and waits for its end.
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child does `work` and ends; the alarm ends one that hangs.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: takes a number.
        unsafe { alarm(60) };
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: ends the child, and runs nothing of its parent's.
        unsafe { _exit(done.is_err().into()) };
    }
    let mut status = -1;
    // SAFETY: reaps the child from above; the status is live.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
}

fn unique(name: &str) -> String {
    format!("forked-{name}-{}", std::process::id())
}

/// The files of a bus, and of the pages of counters.
fn files(bus: &str) -> Vec<PathBuf> {
    let folders = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| path.to_string_lossy().ends_with(&format!(".{bus}"));
    let mut found: Vec<PathBuf> = folders
        .filter(is_ours)
        .flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .collect();
    found.sort();
    found
}

/// Goal: a child that drops all that its parent has on a bus harms neither the parent nor its peers. The parent is there, peers that
/// come later find it, and everything that it had opened goes on.
#[test]
fn objects_dropped_by_a_child_go_on_in_its_parent() {
    let shared = unique("memory");
    for bus in [Bus::shared(&shared), Bus::loopback(&unique("inside"))] {
        let near = Node::open(&bus, "near").unwrap();
        let far = Node::open(&bus, "far").unwrap();
        let (mut here, mut there) = (near.bind(1).unwrap(), far.bind(2).unwrap());
        let mut subscription = far.subscription(3, &SubscriptionOptions::default()).unwrap();
        let mut publication =
            near.publication(Target::port("far", 3), &PublicationOptions::default()).unwrap();
        here.send(Target::port("far", 2), b"before").unwrap();
        assert_eq!(there.receive_timeout(PATIENCE).unwrap().payload, b"before");
        publication.offer(b"before").unwrap();
        let mut buffer = [0; 64];
        assert_eq!(subscription.receive_timeout(PATIENCE, &mut buffer).unwrap().size, 6);
        assert!(subscription.arm());
        let before = files(&shared);

        let mut parents = Some((here, publication, subscription, near));
        in_child(|| drop(parents.take()));
        let (mut here, mut publication, mut subscription, near) = parents.unwrap();

        assert_eq!(files(&shared), before);
        let late = Node::open(&bus, "late").unwrap();
        let known: Vec<_> = late.peers().into_iter().map(|peer| peer.node).collect();
        assert!(known.contains(&near.id()), "a node that comes later finds it");
        here.send(Target::port("far", 2), b"after").unwrap();
        assert_eq!(there.receive_timeout(PATIENCE).unwrap().payload, b"after");
        there.send(Target::port("near", 1), b"back").unwrap();
        assert_eq!(here.receive_timeout(PATIENCE).unwrap().payload, b"back");
        publication.offer(b"after").unwrap();
        assert_eq!(subscription.receive_timeout(PATIENCE, &mut buffer).unwrap().size, 5);
        assert_eq!(publication.readers(), 1);
    }
}

/// Goal: a child that drops a node on a kernel's medium does not say goodbye in its parent's name.
#[test]
fn a_child_says_no_goodbye_for_its_parent() {
    // Ports that were free a moment ago.
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let [one, two] = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    drop(sockets);
    let near = Node::open(&Bus::peers(one, &[two]), "near").unwrap();
    let far = Node::open(&Bus::peers(two, &[one]), "far").unwrap();
    let (mut here, mut there) = (near.bind(1).unwrap(), far.bind(2).unwrap());
    here.send(Target::port("far", 2), b"before").unwrap();
    assert_eq!(there.receive_timeout(PATIENCE).unwrap().payload, b"before");
    let mut parents = Some((here, near));
    in_child(|| drop(parents.take()));
    // Time to read what the child may have said.
    assert!(there.receive_timeout(Duration::from_millis(200)).is_err());
    let (_here, near) = parents.unwrap();
    let known = far.peers().into_iter().find(|peer| peer.node == near.id());
    assert!(known.as_ref().is_some_and(|peer| peer.present), "{known:?}");
}

/// Goal: a child waits for no thread that it has not got, and does not stop its parent's.
#[test]
fn a_child_stops_no_thread_of_its_parent() {
    let node = Node::open(&Bus::loopback(&unique("observed")), "observed").unwrap();
    let mut asking = node.bind(1).unwrap();
    let (say, said) = std::sync::mpsc::channel();
    let observer = node.bind(7).unwrap().on_message(move |message| {
        say.send(message.payload.to_vec()).unwrap();
    });
    let mut observer = Some(observer.unwrap());
    in_child(|| drop(observer.take()));
    asking.send(Target::port("observed", 7), b"still").unwrap();
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), b"still");
}

/// Goal: a child that drops its parent's runtime waits for no worker, and the parent's goes on.
#[test]
fn a_child_ends_no_runtime_of_its_parent() {
    let mut runtime = Some(Runtime::start(&RuntimeOptions::default()).unwrap());
    in_child(|| drop(runtime.take()));
    let runtime = runtime.unwrap();
    let (say, said) = std::sync::mpsc::channel();
    let task = runtime.spawn(TaskOptions::of_class(0), async move { say.send(7).unwrap() });
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), 7);
    drop((task, runtime));
}

/// Goal: the same of a publisher, a subscriber or a participant on a thread of its own.
#[test]
fn a_child_stops_no_participant_of_its_parent() {
    let node = Node::open(&Bus::loopback(&unique("running")), "running").unwrap();
    let participant = Participant::new(node.bind(1).unwrap());
    let mut running = Some(participant.spawn().unwrap());
    in_child(|| drop(running.take()));
    let running = running.unwrap();
    assert!(!running.is_finished());
    drop(running.stop());
}
