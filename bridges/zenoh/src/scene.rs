//! Two sites on one bus: nodes by two routers, what they say to each other, and what must sum.

use std::time::{Duration, Instant};

use punctual::{Communicator, Keys, Node, OpenError, SendError, Target};

use crate::ZenohBus;

/// The port of every component.
const PORT: u16 = 1;

/// A node of a site, with its component.
#[derive(Debug)]
pub struct Member {
    /// The node.
    pub node: Node,
    /// Its component.
    pub component: Communicator,
    name: String,
}

/// What was said between members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Messages that were taken, times those they are for.
    pub meant: u64,
    /// Messages that were delivered.
    pub delivered: u64,
    /// Messages that were refused, because nobody was there.
    pub refused: u64,
}

/// Opens `count` members of a site, once its router answers.
///
/// # Errors
/// What [`punctual::Bus`] says after `patience`.
pub fn open_site(
    bus: &ZenohBus,
    keys: &Keys,
    (site, count): (&str, usize),
    patience: Duration,
) -> Result<Vec<Member>, OpenError> {
    let give_up = Instant::now() + patience;
    (0..count)
        .map(|number| {
            let name = format!("{site}{number}");
            let bus = bus.clone().bus().sealed(keys);
            loop {
                match Node::open(&bus, &name) {
                    Ok(node) => {
                        let component = node.bind(PORT).expect("the port is free");
                        return Ok(Member { node, component, name });
                    }
                    Err(OpenError::Medium(_)) if Instant::now() < give_up => {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    Err(error) => return Err(error),
                }
            }
        })
        .collect()
}

/// Everybody sends to everybody else by name, and once to all, `rounds` times, and takes what has come.
///
/// # Panics
/// If a message is refused for any other reason than that nobody is there, or no room.
pub fn talk(members: &mut [Member], rounds: u32) -> Said {
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let mut said = Said::default();
    for round in 0..rounds {
        for member in members.iter_mut() {
            let targets =
                names.iter().filter(|name| **name != member.name).map(|name| Target::port(&**name, PORT));
            for target in targets.chain([Target::EVERYONE]) {
                let others = if target.node.is_some() { 1 } else { names.len() as u64 - 1 };
                match member.component.try_send(target, &round.to_le_bytes()) {
                    Ok(()) => said.meant += others,
                    Err(SendError::Unreachable | SendError::Full) => said.refused += 1,
                    Err(error) => panic!("{}: {error}", member.name),
                }
            }
        }
        said.delivered += take(members);
        std::thread::sleep(Duration::from_millis(1));
    }
    said
}

/// Takes what has come.
pub fn take(members: &mut [Member]) -> u64 {
    let mut taken = 0;
    for member in members {
        while member.component.try_receive().is_ok() {
            taken += 1;
        }
    }
    taken
}

/// Whether everybody reaches everybody else by name and hears of it, within `patience`.
pub fn all_reach_all(members: &mut [Member], patience: Duration) -> bool {
    let give_up = Instant::now() + patience;
    while Instant::now() < give_up {
        let said = talk(members, 1);
        keep_house(members);
        if said.refused == 0 && members.iter().all(|member| present(member) == members.len() - 1) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

fn present(member: &Member) -> usize {
    member.node.peers().iter().filter(|peer| peer.present).count()
}

fn keep_house(members: &[Member]) {
    members.iter().for_each(|member| member.node.housekeep());
}

/// What one member sent another, as far as the other may know it: arrived, lost, missing still, and what there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Frames that arrived.
    pub arrived: u64,
    /// Frames that never will.
    pub lost: u64,
    /// Frames that may still.
    pub missing: u64,
    /// Frames that were sent.
    pub sent: u64,
}

impl Sum {
    /// Whether every frame is in one place.
    pub fn is_whole(&self) -> bool {
        self.arrived + self.lost + self.missing == self.sent
    }
}

/// Lets everybody say how far it is, twice, and takes what comes: a sum is exact from then on.
pub fn quiet(members: &mut [Member]) {
    let end = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < end {
        keep_house(members);
        take(members);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The sum over all pairs.
pub fn sum(members: &[Member]) -> Sum {
    let mut sum = Sum::default();
    for receiver in members {
        for sender in members.iter().filter(|sender| sender.name != receiver.name) {
            sum.sent += sender.node.sent_to(Some(receiver.node.id())) + sender.node.sent_to(None);
            for peer in receiver.node.peers().iter().filter(|peer| peer.node == sender.node.id()) {
                sum.arrived += peer.arrived;
                sum.lost += peer.lost;
                sum.missing += peer.missing;
            }
        }
    }
    sum
}

/// The growth of the sum since `before`, once nothing moves any more and every frame is in one place; or as it is after
/// `patience`.
pub fn settled(members: &mut [Member], before: Sum, patience: Duration) -> (Sum, u64) {
    let give_up = Instant::now() + patience;
    let mut taken = 0;
    loop {
        keep_house(members);
        std::thread::sleep(Duration::from_millis(50));
        taken += take(members);
        let now = sum(members);
        let since = Sum {
            arrived: now.arrived - before.arrived,
            // What was missing then is lost by now, or has arrived.
            lost: now.lost + now.missing - before.lost - before.missing,
            missing: 0,
            sent: now.sent - before.sent,
        };
        let balanced = members.iter().all(|member| member.node.ledger().is_balanced());
        if since.is_whole() && balanced || Instant::now() >= give_up {
            return (since, taken);
        }
    }
}
