//! Copies of a state, while members join, crash and go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use punctual::broadcast::{
    BroadcastError, Change, Command, DeliverError, Group, GroupOptions, Guarantee, JoinError, Replica,
    ReplicaError, State,
};
use punctual::{Bus, Node};

use crate::common::{Dice, media, unique, watchdog};

const PAGE_SIZE: usize = 16 << 10;

/// Pages of bytes. A command adds to each byte of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pages(Vec<Arc<Vec<u8>>>);

impl Pages {
    fn new(count: u8) -> Self {
        Self((0..count).map(|number| Arc::new(vec![number; PAGE_SIZE])).collect())
    }
}

struct Snapshot(Vec<Arc<Vec<u8>>>, usize);

impl State for Pages {
    type Output = u8;
    type Snapshot = Snapshot;

    fn apply(&mut self, command: Command<'_>) -> u8 {
        let [page, by] = *command.payload else { panic!("{command:?} is no command") };
        let page = Arc::make_mut(&mut self.0[usize::from(page)]);
        page.iter_mut().for_each(|byte| *byte = byte.wrapping_add(by));
        page[0]
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.clone(), 0)
    }

    fn read(Snapshot(pages, at): &mut Snapshot, buffer: &mut [u8]) -> usize {
        let Some(page) = pages.get(*at / PAGE_SIZE) else { return 0 };
        let rest = &page[*at % PAGE_SIZE..];
        let size = rest.len().min(buffer.len());
        buffer[..size].copy_from_slice(&rest[..size]);
        *at += size;
        size
    }

    fn reset(&mut self) {
        self.0.clear();
    }

    fn restore(&mut self, part: &[u8]) {
        for byte in part {
            if self.0.last().is_none_or(|page| page.len() == PAGE_SIZE) {
                self.0.push(Arc::default());
            }
            Arc::make_mut(self.0.last_mut().expect("pushed above")).push(*byte);
        }
    }
}

fn join(node: &Node, options: &GroupOptions, founds: bool, pages: u8) -> Replica<Pages> {
    Replica::join(node, &GroupOptions { founds, ..options.clone() }, Pages::new(pages)).unwrap()
}

/// Everybody delivers what is there, by turns, until something holds. Each replica that can broadcasts a command meanwhile.
fn run(
    replicas: &mut [Replica<Pages>],
    dice: &mut Dice,
    mut holds: impl FnMut(&mut [Replica<Pages>]) -> bool,
) {
    while !holds(replicas) {
        for replica in &mut *replicas {
            let (page, by) = (dice.below(3) as u8, 1 + dice.below(200) as u8);
            let _full = replica.try_broadcast(&[page, by]);
            loop {
                match replica.deliver(Duration::from_micros(200)) {
                    Ok(Change::Expelled) => panic!("{replica:?} is expelled"),
                    Ok(Change::Applied { message, .. }) => {
                        let [page, by] = *message.payload else { panic!("{message:?} is no command") };
                        assert!(page < 3 && by > 0, "{message:?}");
                    }
                    Ok(_) => {}
                    Err(ReplicaError::Empty) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

fn have_all_the_state(replicas: &mut [Replica<Pages>]) -> bool {
    replicas.iter().all(|replica| replica.state().is_some())
}

/// All commands are applied: nobody gives any, and all are the same.
fn settle(replicas: &mut [Replica<Pages>]) {
    loop {
        let mut is_quiet = true;
        for replica in &mut *replicas {
            is_quiet &= matches!(replica.deliver(Duration::from_millis(20)), Err(ReplicaError::Empty));
        }
        let first = replicas[0].state().expect("it has the state");
        if is_quiet && replicas.iter().all(|replica| replica.state() == Some(first)) {
            return;
        }
    }
}

/// Goal: a member that joins a group that goes on gets the state and what came after it, on every medium. The watchdog ends a test that
/// never ends.
#[test]
fn a_joining_member_gets_the_state() {
    let _alive = watchdog(120);
    // Of peers there are two.
    for medium in media().into_iter().filter(|medium| medium.name != "udp") {
        let names = ["anne", "bob", "carl"];
        let nodes = names.map(|name| Node::open(&medium.here, name).unwrap());
        let options =
            GroupOptions { suspect_after: Duration::from_secs(3), ..GroupOptions::new("pages", &names) };
        let mut dice = Dice(7);
        let mut replicas = vec![join(&nodes[0], &options, true, 20), join(&nodes[1], &options, false, 20)];
        assert!(replicas[1].state().is_none(), "{}: bob is told it", medium.name);
        run(&mut replicas, &mut dice, have_all_the_state);
        // Its own beginning is nobody's: the state comes from the others.
        replicas.push(join(&nodes[2], &options, false, 3));
        run(&mut replicas, &mut dice, have_all_the_state);
        let delivered = replicas[2].account().delivered;
        run(&mut replicas, &mut dice, |all| all[2].account().delivered > delivered + 30);
        settle(&mut replicas);
        assert_ne!(replicas[2].state(), Some(&Pages::new(20)), "{}: nothing was applied", medium.name);
    }
}

/// A sum, whose next command panics once that is wanted.
struct Fuse(u8, bool);

impl State for Fuse {
    type Output = u8;
    type Snapshot = Option<u8>;

    fn apply(&mut self, command: Command<'_>) -> u8 {
        assert!(!std::mem::take(&mut self.1), "on purpose");
        self.0 += command.payload[0];
        self.0
    }

    fn snapshot(&self) -> Option<u8> {
        Some(self.0)
    }

    fn read(snapshot: &mut Option<u8>, buffer: &mut [u8]) -> usize {
        snapshot.take().map_or(0, |sum| {
            buffer[0] = sum;
            1
        })
    }

    fn reset(&mut self) {
        self.0 = 0;
    }

    fn restore(&mut self, part: &[u8]) {
        self.0 = part[0];
    }
}

/// Goal: a copy whose command panicked, which its user caught, has no state and leaves; it comes back and is given it.
#[test]
fn a_broken_copy_leaves() {
    let _alive = watchdog(60);
    let names = ["anne", "bob"];
    let bus = Bus::loopback(&unique("broken"));
    let nodes = names.map(|name| Node::open(&bus, name).unwrap());
    let options = GroupOptions { suspect_after: Duration::from_secs(3), ..GroupOptions::new("sum", &names) };
    let mut anne = Replica::join(&nodes[0], &options.clone().founding(), Fuse(0, false)).unwrap();
    let mut bob = Replica::join(&nodes[1], &options, Fuse(0, true)).unwrap();
    let soon = Duration::from_millis(1);
    while bob.state().is_none() {
        anne.deliver(soon).ok();
        bob.deliver(soon).ok();
    }
    while anne.try_broadcast(&[7]).is_err() {
        anne.deliver(soon).ok();
    }
    while catch_unwind(AssertUnwindSafe(|| bob.deliver(soon).is_ok())).is_ok() {
        anne.deliver(soon).ok();
    }
    assert!(bob.state().is_none(), "it may have been applied in part");
    assert!(!bob.arm(), "there is something to be told");
    assert!(matches!(bob.deliver(soon), Err(ReplicaError::Broken)));
    while !matches!(bob.deliver(soon), Err(ReplicaError::Left)) {
        anne.deliver(soon).ok();
    }
    drop(bob);
    let mut bob = Replica::join(&nodes[1], &options, Fuse(0, false)).unwrap();
    while bob.state().is_none_or(|fuse| fuse.0 != 7) {
        anne.deliver(soon).ok();
        bob.deliver(soon).ok();
    }
}

/// Goal: when the member that gives its state crashes in the middle, the next one gives it.
#[test]
fn another_one_gives_the_state() {
    let _alive = watchdog(120);
    let bus = Bus::shared(&unique("donors"));
    let names = ["anne", "bob", "carl", "dave"];
    let nodes: Vec<Node> = names.iter().map(|name| Node::open(&bus, name).unwrap()).collect();
    let options =
        GroupOptions { suspect_after: Duration::from_secs(1), ..GroupOptions::new("pages", &names) };
    let mut dice = Dice(8);
    let join = |place: usize| join(&nodes[place], &options, place == 0, 250);
    let mut replicas: Vec<Replica<Pages>> = (0..3).map(join).collect();
    run(&mut replicas, &mut dice, have_all_the_state);
    replicas.push(join(3));
    let mut is_half_given = false;
    run(&mut replicas, &mut dice, |all| {
        is_half_given = all[3].state().is_none() && all[3].account().delivered > 10;
        is_half_given || all[3].state().is_some()
    });
    assert!(is_half_given, "the snapshot is too small to be cut off");
    // The last that has the state gives it.
    drop(replicas.remove(2));
    run(&mut replicas, &mut dice, have_all_the_state);
    settle(&mut replicas);
}

/// The number of commands, and of those that its snapshot had; a snapshot has many bytes more, so that it has many parts.
#[derive(Default)]
struct Tally {
    count: u64,
    restored: Option<u64>,
}

impl State for Tally {
    type Output = ();
    type Snapshot = (u64, usize);

    fn apply(&mut self, _: Command<'_>) {
        self.count += 1;
    }

    fn snapshot(&self) -> (u64, usize) {
        (self.count, 1 << 20)
    }

    fn read((count, rest): &mut (u64, usize), buffer: &mut [u8]) -> usize {
        let size = buffer.len().min(*rest);
        *rest -= size;
        buffer.iter_mut().zip(count.to_le_bytes()).for_each(|(byte, value)| *byte = value);
        size
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn restore(&mut self, part: &[u8]) {
        let count = part.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        self.restored = self.restored.or(count);
        self.count = self.restored.unwrap_or_default();
    }
}

/// Goal: a user that gives commands as fast as they are taken does not starve the transfer of its state, nor a transfer the user.
/// Method: a window is less than the largest part. The watchdog ends a transfer that never ends.
#[test]
fn commands_and_parts_of_a_state_both_go_on() {
    for waits in [false, true] {
        let _alive = watchdog(60);
        let bus = Bus::loopback(&unique("greedy"));
        let names = ["anne", "bob"];
        let nodes = names.map(|name| Node::open(&bus, name).unwrap());
        let options = GroupOptions {
            suspect_after: Duration::from_secs(3),
            window: Some(16),
            frame_size: Some(1_024),
            ..GroupOptions::new("tally", &names)
        };
        let mut anne = Replica::join(&nodes[0], &options.clone().founding(), Tally::default()).unwrap();
        let mut bob = Replica::join(&nodes[1], &options, Tally::default()).unwrap();
        // A command alone in its frame.
        let (command, soon) = ([7; 600], Duration::from_millis(1));
        while bob.state().is_none() {
            if waits {
                while anne.broadcast(&command, Duration::ZERO).is_ok() {}
            } else {
                while anne.try_broadcast(&command).is_ok() {}
            }
            anne.deliver(soon).ok();
            bob.deliver(soon).ok();
        }
        let tally = bob.state().unwrap();
        let meanwhile = tally.count - tally.restored.unwrap();
        assert!(meanwhile >= 100, "{meanwhile} commands among some hundred parts");
    }
}

/// Goal: a copy that lacks the state takes no command, and each command that is taken later is told with its result. Method: the member
/// that has the state gives it only in its user's calls. There is none before the other one is in the view.
#[test]
fn a_copy_without_the_state_takes_no_command() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("stateless"));
    let names = ["anne", "bob"];
    let nodes = names.map(|name| Node::open(&bus, name).unwrap());
    let options =
        GroupOptions { suspect_after: Duration::from_secs(3), ..GroupOptions::new("pages", &names) };
    let mut replicas = [0, 1].map(|place| join(&nodes[place], &options, place == 0, 3));
    let soon = Duration::from_millis(1);
    let mut is_in = false;
    while !is_in {
        is_in = matches!(replicas[1].deliver(soon), Ok(Change::View(view)) if view.members.len() == 2);
    }
    assert_eq!(replicas[1].try_broadcast(&[0, 1]), Err(BroadcastError::Stateless));
    let waited = replicas[1].broadcast(&[0, 1], Duration::MAX).unwrap_err();
    assert_eq!(
        (waited, waited.to_string().contains("deliver until it has it")),
        (BroadcastError::Stateless, true)
    );
    while !have_all_the_state(&mut replicas) {
        replicas.iter_mut().for_each(|replica| _ = replica.deliver(soon).is_ok());
    }
    let bob = replicas[1].node();
    let (mut given, mut told) = (0_u8, 0_u8);
    while told < 20 {
        given += u8::from(given < 20 && replicas[1].try_broadcast(&[0, 1]).is_ok());
        replicas[0].deliver(soon).ok();
        if let Ok(Change::Applied { message, output }) = replicas[1].deliver(soon) {
            told += 1;
            assert_eq!((message.sender, output), (bob, told));
        }
    }
}

/// Goal: commands have an order. A guarantee without one is refused, and what is broadcast without one reaches no copy.
#[test]
fn a_message_without_order_is_no_command() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("ordered"));
    let names = ["anne", "bob", "carl"];
    let nodes = names.map(|name| Node::open(&bus, name).unwrap());
    let options =
        GroupOptions { suspect_after: Duration::from_secs(3), ..GroupOptions::new("pages", &names) };
    for guarantee in [Guarantee::Reliable, Guarantee::BestEffort] {
        let options = GroupOptions { guarantee, ..options.clone() };
        let refused = Replica::join(&nodes[0], &options, Pages::new(1)).unwrap_err();
        assert!(matches!(refused, JoinError::Unordered), "{refused:?}");
        assert!(refused.to_string().contains("one order"), "{refused}");
    }
    let mut replicas = [0, 1].map(|place| join(&nodes[place], &options, place == 0, 3));
    let mut carl = Group::join(&nodes[2], &options).unwrap();
    while !have_all_the_state(&mut replicas) || carl.view().members.len() < 3 {
        while carl.deliver(Duration::from_millis(1)).is_ok() {}
        for replica in &mut replicas {
            replica.deliver(Duration::from_millis(1)).ok();
        }
    }
    let delivered = replicas.each_mut().map(|replica| replica.account().delivered);
    // As a command would be written, which adds to the first page.
    for guarantee in [Guarantee::Reliable, Guarantee::BestEffort] {
        while carl.try_broadcast_as(&[0, 0, 1], guarantee).is_err() {
            while carl.try_deliver().is_ok() {}
            for replica in &mut replicas {
                replica.deliver(Duration::from_millis(1)).ok();
            }
        }
    }
    while replicas.iter_mut().zip(delivered).any(|(replica, before)| replica.account().delivered < before + 2)
    {
        while carl.try_deliver().is_ok() {}
        for replica in &mut replicas {
            let change = replica.deliver(Duration::from_millis(1));
            assert!(!matches!(change, Ok(Change::Applied { .. })), "{change:?}");
        }
    }
    settle(&mut replicas);
    assert_eq!(replicas[0].state(), Some(&Pages::new(3)));
}

/// Goal: where messages are too small for a transfer, that is said at once; the smallest that are said to do carry one.
#[test]
fn messages_too_small_for_a_transfer_are_refused() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("small"));
    let names = ["anne", "bob", "carl"];
    let nodes = names.map(|name| Node::open(&bus, name).unwrap());
    let of = |message_size_max| GroupOptions {
        suspect_after: Duration::from_secs(3),
        message_size_max,
        ..GroupOptions::new("pages", &names)
    };
    let refused = Replica::join(&nodes[0], &of(24), Pages::new(1)).unwrap_err();
    assert!(matches!(refused, JoinError::MessageSize { size_max: 24, least: 25 }), "{refused:?}");
    assert!(refused.to_string().contains("takes 25"), "{refused}");
    let mut replicas = [0, 1, 2].map(|place| join(&nodes[place], &of(25), place == 0, 1));
    while !have_all_the_state(&mut replicas) {
        for replica in &mut replicas {
            replica.deliver(Duration::from_millis(1)).ok();
        }
    }
    settle(&mut replicas);
}

/// Goal: a founder that comes back while the others go on never shows another state than theirs.
#[test]
fn a_founder_that_comes_back_shows_no_empty_state() {
    let _alive = watchdog(120);
    let bus = Bus::loopback(&unique("founder"));
    let names = ["anne", "bob", "carl"];
    let options =
        GroupOptions { suspect_after: Duration::from_secs(1), ..GroupOptions::new("pages", &names) };
    let nodes = names.map(|name| Node::open(&bus, name).unwrap());
    let mut replicas = [0, 1, 2].map(|place| join(&nodes[place], &options, place == 0, 3));
    // Only a copy that has the state takes commands.
    let is_changed = |all: &[Replica<Pages>]| all[0].state() != Some(&Pages::new(3));
    run(&mut replicas, &mut Dice(5), |all| have_all_the_state(all) && is_changed(all));
    settle(&mut replicas);
    assert!(is_changed(&replicas), "commands were applied");
    let [anne, bob, carl] = replicas;
    drop(anne);
    let mut replicas = [join(&nodes[0], &options, true, 3), bob, carl];
    let (mut views, mut is_expelled) = (0, false);
    while !have_all_the_state(&mut replicas) {
        for replica in &mut replicas[1..] {
            replica.deliver(Duration::from_micros(200)).ok();
        }
        match replicas[0].deliver(Duration::from_micros(200)) {
            Ok(Change::View(_)) => views += 1,
            Ok(Change::Expelled) => is_expelled = true,
            _ => {}
        }
        let shown = replicas[0].state();
        assert!(shown.is_none() || shown == replicas[1].state(), "after {views} views");
    }
    assert!(is_expelled && views > 1, "it came back to a group that went on");
}

/// Goal: commands that are not for this copy, however many there are, keep nobody beyond its deadline; and none is left unseen.
/// Method: a member without a copy gives all of them before the first is taken, and never the state.
#[test]
fn commands_that_are_not_applied_keep_nobody() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("late"));
    let names = ["anne", "bob"];
    let nodes = names.map(|name| Node::open(&bus, name).unwrap());
    let options = GroupOptions {
        suspect_after: Duration::from_secs(3),
        window: Some(512),
        ..GroupOptions::new("pages", &names)
    };
    let mut giver = Group::join(&nodes[0], &options.clone().founding()).unwrap();
    let mut replica = join(&nodes[1], &options, false, 1);
    let mut has_joined = false;
    while giver.view().members.len() < 2 || !has_joined {
        while giver.deliver(Duration::from_millis(1)).is_ok() {}
        // The view is another one before its change is taken.
        while let Ok(change) = replica.deliver(Duration::from_millis(1)) {
            has_joined |= matches!(change, Change::View(view) if view.members.len() == 2);
        }
    }
    let (given, mut delivered) = (400, 0);
    for _ in 0..given {
        giver.broadcast(&[0, 0, 1], Duration::from_secs(10)).unwrap();
        while giver.try_deliver() != Err(DeliverError::Empty) {}
    }
    while delivered < given {
        let change = replica.deliver(Duration::ZERO);
        assert!(matches!(change, Err(ReplicaError::Empty)), "{change:?}");
        let before = std::mem::replace(&mut delivered, replica.account().delivered);
        assert!(delivered - before <= 64, "{delivered} after {before} in a call that never waits");
        giver.deliver(Duration::from_millis(1)).ok();
    }
}
