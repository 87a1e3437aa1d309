//! Nodes that do nothing are told of nothing, and miss nothing once they begin.

mod common;

use std::sync::Barrier;
use std::time::Duration;

use common::{PATIENCE, Role, be_a_node_that_idles, drain, unique, watchdog};
use punctual::node::NodeChange;
use punctual::{Bus, Node, PublicationOptions, SubscriptionOptions, Target, Wake};
use punctual_machine::process::user;

/// More than are looked at in one step.
const OTHERS: usize = 20;

/// Not a test of its own: a node of another process, that does nothing until it is killed.
#[test]
fn role() {
    be_a_node_that_idles();
}

fn others(bus: &Bus) -> Vec<Node> {
    (0..OTHERS).map(|number| Node::open(bus, &format!("other-{number}")).unwrap()).collect()
}

/// Goal: a node that begins to read when it has long been there has everything that is sent from then on by all who came meanwhile.
#[test]
fn a_node_that_begins_to_read_hears_all_that_came() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("reads")), Bus::shared(&unique("reads"))] {
        let idle = Node::open(&bus, "idle").unwrap();
        let others = others(&bus);
        let publish =
            |node: &Node| node.publication(Target::EVERYONE, &PublicationOptions::default()).unwrap();
        let mut publications: Vec<_> = others.iter().map(publish).collect();
        let mut subscription = idle.subscription(7, &SubscriptionOptions::default()).unwrap();
        for (number, publication) in publications.iter_mut().enumerate() {
            publication.offer(&[number as u8]).unwrap_or_else(|error| panic!("{bus}, {number}: {error}"));
        }
        let mut heard: Vec<u8> = Vec::new();
        let mut buffer = [0; 8];
        while subscription.try_receive(&mut buffer).is_ok() {
            heard.push(buffer[0]);
        }
        heard.sort_unstable();
        assert_eq!(heard, (0..OTHERS as u8).collect::<Vec<_>>(), "{bus}");
    }
}

/// Goal: the same in a folder with many names, which takes many steps to list.
#[test]
fn a_node_that_begins_to_read_in_a_full_folder_hears_all() {
    let _alive = watchdog(60);
    let name = unique("junk");
    let bus = Bus::shared(&name);
    let idle = Node::open(&bus, "idle").unwrap();
    let folder = std::path::Path::new("/dev/shm").join(format!("punctual.{}.{name}", user()));
    let junk = |part: u32| {
        for number in 0..9_000 {
            std::fs::write(folder.join(format!("junk-{part}-{number}")), b"").unwrap();
        }
    };
    junk(0);
    let others = others(&bus);
    junk(1);
    let mut publications: Vec<_> = others
        .iter()
        .map(|node| node.publication(Target::EVERYONE, &PublicationOptions::default()).unwrap())
        .collect();
    let mut subscription = idle.subscription(7, &SubscriptionOptions::default()).unwrap();
    let sent: Vec<_> = publications.iter_mut().map(|publication| publication.offer(b"one")).collect();
    let heard = drain(&mut subscription);
    std::fs::remove_dir_all(folder).unwrap();
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    assert_eq!(OTHERS, heard);
}

/// Goal: a node that begins to send when it has long been there knows at once all who began to read meanwhile.
#[test]
fn a_node_that_begins_to_send_is_read_by_all_that_came() {
    let _alive = watchdog(60);
    for bus in [Bus::loopback(&unique("sends")), Bus::shared(&unique("sends"))] {
        let idle = Node::open(&bus, "idle").unwrap();
        let others = others(&bus);
        let read = |node: &Node| node.subscription(7, &SubscriptionOptions::default()).unwrap();
        let mut subscriptions: Vec<_> = others.iter().map(read).collect();
        let mut publication = idle.publication(Target::EVERYONE, &PublicationOptions::default()).unwrap();
        publication.offer(b"hello").unwrap();
        assert_eq!(publication.readers(), OTHERS, "{bus}");
        let mut buffer = [0; 8];
        for subscription in &mut subscriptions {
            assert_eq!(subscription.try_receive(&mut buffer).unwrap().size, 5, "{bus}");
        }
    }
}

/// Goal: of two that begin at the same instant, each finds the other without looking around once more. One of them has just come or has
/// long been there.
#[test]
fn of_two_that_begin_at_once_each_finds_the_other() {
    let _alive = watchdog(120);
    let bus = Bus::shared(&unique("begin"));
    for round in 0..300 {
        let idle = Node::open(&bus, "idle").unwrap();
        let known = Node::open(&bus, "known").unwrap();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                barrier.wait();
                let comes = (round % 2 == 0).then(|| Node::open(&bus, "comes").unwrap());
                let node = comes.as_ref().unwrap_or(&known);
                let publication = node.publication(Target::EVERYONE, &PublicationOptions::default()).unwrap();
                (publication, comes)
            });
            barrier.wait();
            if round % 3 == 0 {
                std::thread::sleep(Duration::from_micros(20 * (round % 50)));
            }
            let mut subscription = idle.subscription(7, &SubscriptionOptions::default()).unwrap();
            let (mut publication, _comes) = sender.join().unwrap();
            assert!(subscription.try_receive(&mut [0; 8]).is_err(), "nothing was sent");
            assert_eq!(publication.readers(), 1, "round {round}");
            publication.offer(b"hello").unwrap();
            assert!(subscription.try_receive(&mut [0; 8]).is_ok(), "round {round}");
        });
    }
}

/// Goal: a node that begins to watch for others hears of those who are there, not of those who came and went, or died, before.
#[test]
fn a_node_that_begins_to_watch_hears_of_those_that_are_there() {
    let _alive = watchdog(60);
    let bus = unique("watch");
    let idle = Node::open(&Bus::shared(&bus), "idle").unwrap();
    let others = others(&Bus::shared(&bus));
    let folder = format!("/dev/shm/punctual.{}.{bus}", punctual_machine::process::user());
    let files = || std::fs::read_dir(&folder).unwrap().count();
    let before = files();
    let dies = Role::start("dies", &bus);
    while files() < before + 3 {
        std::thread::yield_now();
    }
    dies.kill();
    drop(others);
    let stays = Node::open(&Bus::shared(&bus), "stays").unwrap();
    let mut events = idle.events(Wake::Futex).unwrap();
    let first = events.next_timeout(PATIENCE).unwrap();
    assert_eq!((first.change, first.node), (NodeChange::Joined, stays.id()));
    assert_eq!(events.next_timeout(Duration::from_millis(300)), None);
}
