//! An interface that was removed, and made again under its name or with its address, is used again.

mod common;

use std::time::{Duration, Instant};

use common::{Host, PATIENCE, is_here, on_ethernet, open_both, watchdog};
use punctual::{Bus, Communicator, Node, Target};
use punctual_machine::SystemError;
use punctual_machine::namespace::{add_address, bring_up, create_veth, remove, thread_id, unshare_network};

/// Sends until a message arrives.
fn meet(sender: &mut Communicator, target: Target, receiver: &mut Communicator, nodes: [&Node; 2]) {
    let began = Instant::now();
    while receiver.receive_timeout(Duration::from_millis(10)).is_err() {
        let [here, there] = nodes.map(Node::ledger);
        assert!(began.elapsed() < PATIENCE, "here: {here}; there: {there}");
        // Frames that the medium refuses are in the ledger.
        let _no_room = sender.try_send(target, b"hello");
        // The other one sends nothing but announcements.
        nodes.iter().for_each(|node| node.housekeep());
    }
    while receiver.try_receive().is_ok() {}
}

fn make_pair() -> Result<(), SystemError> {
    create_veth("pta", "ptb", thread_id())?;
    bring_up("pta")?;
    bring_up("ptb")
}

/// Goal: nodes on Ethernet meet again once their interfaces are there again, which have other addresses then.
#[test]
fn an_interface_is_found_again_by_its_name() {
    let _alive = watchdog(60);
    on_ethernet(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let target = Target::port("there", 1);
        for _ in 0..3 {
            meet(&mut sender, target, &mut receiver, [&here, &there]);
            remove("pta").unwrap();
            sender.try_send(Target::EVERYONE, b"lost").unwrap();
            here.housekeep();
            assert!(here.ledger().refused > 0, "{}", here.ledger());
            make_pair().unwrap();
        }
        meet(&mut sender, target, &mut receiver, [&here, &there]);
    });
}

/// Goal: the same of members of a multicast group, whose interface is found by its address. They keep no membership of those before.
/// Method: a socket may have one membership.
#[test]
fn the_interface_of_a_group_is_found_again_by_its_address() {
    let _alive = watchdog(60);
    if !is_here("multicast") {
        return;
    }
    let host = Host::start();
    let make = || {
        make_pair()?;
        add_address("pta", "10.77.62.1/24")
    };
    let begin = move || {
        unshare_network()?;
        let limit = "/proc/sys/net/ipv4/igmp_max_memberships";
        std::fs::write(limit, "1").map_err(|error| SystemError::new("set", limit, error))?;
        make()
    };
    if let Err(reason) = host.run(begin) {
        return punctual_machine::skipped!("an interface of our own: {reason}");
    }
    host.run(move || {
        let bus = Bus::multicast(([239, 255, 77, 62], 9_932).into(), [10, 77, 62, 1].into());
        let [here, there] = ["here", "there"].map(|name| Node::open(&bus, name).unwrap());
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let target = Target::everyone_at(1);
        for _ in 0..3 {
            meet(&mut sender, target, &mut receiver, [&here, &there]);
            remove("pta").unwrap();
            make().unwrap();
        }
        meet(&mut sender, target, &mut receiver, [&here, &there]);
    });
}
