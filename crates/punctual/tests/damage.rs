//! Messages that the kernel loses and damages below every check: they are counted, and nothing of them is believed.

mod common;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Instant;

use common::{Dice, Host, PATIENCE, watchdog};
use punctual::{Bus, Communicator, Node, PeerAccount, SendError, Target};
use punctual_lab_machine::xdp::{Damage, DamagePlan, Damaged, Traffic};
use punctual_machine::SystemError;
use punctual_machine::namespace::{
    Offload, add_address, bring_up, create_veth, set_offload, thread_id, unshare_network,
};
use punctual_machine::packet::ETHERTYPE_EXPERIMENTAL;

const MESSAGES: u64 = 3_000;
const PORT: u16 = 9_930;

/// Two hosts on one segment.
fn hosts() -> Result<[Host; 2], SystemError> {
    let hosts = [Host::start(), Host::start()];
    let there = hosts[1].run(|| unshare_network().map(|()| thread_id()))?;
    hosts[0].run(move || {
        unshare_network()?;
        create_veth("pta", "ptb", there)?;
        settle_in("pta", "10.77.40.1/24")
    })?;
    hosts[1].run(|| settle_in("ptb", "10.77.40.2/24"))?;
    Ok(hosts)
}

fn settle_in(interface: &str, address: &str) -> Result<(), SystemError> {
    bring_up(interface)?;
    add_address(interface, address)
}

/// The case that is tried.
#[derive(Clone, Copy, Debug)]
struct Case {
    ethernet: bool,
    /// True if the sender's kernel leaves checksums to the interface: then nobody but us looks.
    checksum_offload: bool,
    segmentation_offload: bool,
    /// Messages of each flush.
    run: u64,
    seed: u64,
}

impl Case {
    fn buses(self) -> [Bus; 2] {
        if self.ethernet {
            return ["pta", "ptb"].map(Bus::ethernet);
        }
        let [a, b] = [1, 2].map(|host| SocketAddr::from(([10, 77, 40, host], PORT)));
        [Bus::peers(a, &[b]), Bus::peers(b, &[a])]
    }

    fn plan(self) -> DamagePlan {
        let traffic =
            if self.ethernet { Traffic::Ethernet(ETHERTYPE_EXPERIMENTAL) } else { Traffic::Udp(PORT) };
        // The kind of a frame stands in the low half of its second byte; 0 is a message.
        DamagePlan { traffic, seed: self.seed, loss_ppm: 40_000, corruption_ppm: 60_000, class: (1, 0x0F) }
    }
}

/// A message says its number, and all of it follows from that.
fn message(number: u64, case: Case) -> Vec<u8> {
    let mut dice = Dice((number + 1) * 0x9E37 + case.seed);
    // A run is of one size.
    let size = if case.run > 1 { 300 } else { 8 + dice.below(600) as usize };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize_with(size, || dice.below(256) as u8);
    bytes
}

/// Takes what is there; each must be whole, and new.
fn drain(receiver: &mut Communicator, seen: &mut HashSet<u64>, case: Case) {
    while let Ok(received) = receiver.try_receive() {
        let number = received.payload.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        assert_eq!(received.payload, message(number, case), "{case:?}: {number}");
        assert!(seen.insert(number), "{case:?}: {number} twice");
    }
}

fn check(case: Case) -> Result<(), SystemError> {
    let hosts = hosts()?;
    let offloads =
        [(Offload::Checksum, case.checksum_offload), (Offload::Segmentation, case.segmentation_offload)];
    hosts[0]
        .run(move || offloads.into_iter().try_for_each(|(offload, on)| set_offload("pta", offload, on)))?;
    let [here, there] = case.buses();
    let here = hosts[0].run(move || Node::open(&here, "here").unwrap());
    let there = hosts[1].run(move || Node::open(&there, "there").unwrap());
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    let mut seen = HashSet::new();
    let patience = || Instant::now() + PATIENCE;
    let exchange = |receiver: &mut Communicator, seen: &mut HashSet<u64>, give_up: Instant| {
        here.housekeep();
        there.housekeep();
        drain(receiver, seen, case);
        assert!(Instant::now() < give_up, "{case:?}: {}; {:?}", there.ledger(), there.peers());
    };
    // Both know each other from the beginning on, so that everything is accounted for.
    let give_up = patience();
    while there.peers().is_empty() || here.peers().is_empty() {
        exchange(&mut receiver, &mut seen, give_up);
        let _nothing = sender.try_receive();
    }
    let damage = hosts[1].run(move || Damage::attach("ptb", &case.plan()))?;
    let mut dice = Dice(case.seed);
    for number in 0..MESSAGES {
        let target = if dice.below(3) == 0 { Target::EVERYONE } else { Target::port("there", 1) };
        while sender.queue(target, &message(number, case)) == Err(SendError::Full) {
            std::thread::yield_now();
        }
        if case.ethernet && number % 50 == 0 {
            // Its hello and its goodbye are frames of other kinds.
            hosts[0].run(|| drop(Node::open(&Bus::ethernet("pta"), "guest").unwrap()));
        }
        if number % case.run == case.run - 1 {
            sender.flush();
            drain(&mut receiver, &mut seen, case);
        }
    }
    sender.flush();
    let whole_runs = case.run > 1 && case.segmentation_offload;
    let (mut counts, give_up) = (damage.counts()?, patience());
    while !whole_runs && counts[0].seen < MESSAGES {
        exchange(&mut receiver, &mut seen, give_up);
        counts = damage.counts()?;
    }
    drop(damage);
    let is_settled = || {
        let account = account(&there, &here);
        account.arrived + account.lost + account.missing == MESSAGES
    };
    let give_up = patience();
    while !is_settled() {
        exchange(&mut receiver, &mut seen, give_up);
    }
    judge(case, counts, [&here, &there], &seen);
    Ok(())
}

fn account(there: &Node, here: &Node) -> PeerAccount {
    there.peers().into_iter().find(|account| account.node == here.id()).unwrap()
}

fn judge(case: Case, counts: [Damaged; 2], [here, there]: [&Node; 2], seen: &HashSet<u64>) {
    let (account, ledger) = (account(there, here), there.ledger());
    eprintln!("{case:?}: {counts:?}; {ledger}");
    assert!(ledger.is_balanced(), "{case:?}: {ledger}");
    assert_eq!((ledger.delivered, ledger.duplicates), (seen.len() as u64, 0), "{case:?}: {ledger}");
    assert_eq!(ledger.lost(), account.lost, "{case:?}: {ledger}");
    let [messages, others] = counts;
    assert!(messages.lost > 0 && messages.flipped > 0, "{case:?}: {counts:?}");
    assert!(!case.ethernet || others.lost > 0 && others.flipped > 0, "{case:?}: {counts:?}");
    if case.run > 1 && case.segmentation_offload {
        return assert!(
            account.lost + account.missing >= messages.lost + messages.flipped,
            "{case:?}: {ledger}"
        );
    }
    assert_eq!(messages.seen, MESSAGES, "{case:?}");
    assert_eq!(
        account.lost + account.missing,
        messages.lost + messages.flipped,
        "{case:?}: {counts:?}; {ledger}"
    );
    let shown = if case.checksum_offload || case.ethernet { messages.flipped + others.flipped } else { 0 };
    assert_eq!(ledger.bad_frames, shown, "{case:?}: {counts:?}; {ledger}");
}

/// Goal: every loss by a seeded program in the kernel, and every bit that it flips in frames of any kind, is counted, to the frame.
/// Nothing damaged is delivered, whether the kernel's checksum is in the way or ours is the only one. Method: two hosts on a veth pair;
/// the program's own counts against the receiver's ledger.
#[test]
fn damage_by_the_kernel_is_counted_and_not_believed() {
    let _alive = watchdog(120);
    let cases = [
        (true, true, true, 1),
        (false, true, true, 1),
        (false, false, true, 1),
        (false, true, false, 16),
        (false, true, true, 16),
    ];
    // Each waits for announcements most of the time.
    std::thread::scope(|scope| {
        for (seed, (ethernet, checksum_offload, segmentation_offload, run)) in (1..).zip(cases) {
            scope.spawn(move || {
                let case = Case { ethernet, checksum_offload, segmentation_offload, run, seed };
                if let Err(error) = check(case) {
                    punctual_machine::skipped!("{case:?}: {error}");
                }
            });
        }
    });
}
