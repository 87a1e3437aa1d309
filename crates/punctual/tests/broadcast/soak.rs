//! A group that goes on for long, while frames are lost and a member comes and goes: nothing is doubled or missing, and memory stays.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use punctual::broadcast::{BroadcastError, DeliverError, Delivery, Group, GroupOptions, Guarantee};
use punctual::engine::faulty::Faults;
use punctual::node::NodeOptions;
use punctual::{Bus, Node, NodeId};
use punctual_machine::counter::{Counter, Flag};

use crate::common::{Role, unique, watchdog};

/// The last one comes and goes.
const NAMES: [&str; 4] = ["anne", "bob", "carl", "dave"];
const STAYING: usize = 3;
const KINDS: [Guarantee; 3] = [Guarantee::Uniform, Guarantee::Reliable, Guarantee::BestEffort];

/// Seconds where nothing else is asked for.
const SHORT: u64 = 6;

/// Largest growth of buffers, pages and the allocator's leftovers after the first third. A frame that is forgotten in every message
/// exceeds it within a minute.
const GROWTH_MAX: u64 = 16 << 20;

/// Data that the members that stay compare while it goes on.
#[derive(Default)]
struct Agreement {
    /// Ordered messages that not all have delivered, by their place: the sender, its number, and how many had it there.
    places: Mutex<BTreeMap<u64, (usize, u64, usize)>>,
    is_over: Flag,
    delivered: Counter,
}

impl Agreement {
    fn check(&self, place: u64, message: (usize, u64)) {
        let mut places = self.places.lock().unwrap();
        let (sender, number, count) = places.entry(place).or_insert((message.0, message.1, 0));
        assert_eq!((*sender, *number), message, "place {place} of the order");
        *count += 1;
        if *count == STAYING {
            places.remove(&place);
        }
    }
}

/// Sender, number, and bytes up to several frames that follow from both.
fn message(sender: usize, number: u64) -> Vec<u8> {
    let size = if number.is_multiple_of(50) { 9_000 } else { 16 + (number % 700) as usize };
    let mut bytes = vec![(number % 251) as u8; size];
    bytes[..8].copy_from_slice(&(sender as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Broadcasts and delivers until it is over. Ordered messages are the same everywhere; others come as their sender sent them.
fn stay(mut group: Group, own: usize, agreement: &Agreement) {
    let staying = NAMES[..STAYING].iter().map(|name| NodeId::named(name)).collect::<Vec<_>>();
    let (mut sent, mut place, mut all_stay) = (0, 0, false);
    let mut next = BTreeMap::new();
    while !agreement.is_over.is_raised() {
        if all_stay {
            match group.try_broadcast_as(&message(own, sent), KINDS[(sent % 3) as usize]) {
                Ok(()) => sent += 1,
                Err(error @ BroadcastError::Size { .. }) => panic!("{group:?}: {error}"),
                Err(_later) => {}
            }
        }
        match group.deliver(Duration::from_micros(50)) {
            Ok(Delivery::Message(told)) => {
                let word = |at: usize| u64::from_le_bytes(told.payload[at..at + 8].try_into().unwrap());
                let (sender, number) = (word(0) as usize, word(8));
                assert!(told.payload == message(sender, number), "{number} of {sender} as it was sent");
                let due = next.entry((sender, number % 3)).or_insert(number % 3);
                assert_eq!(number, *due, "of {sender}, of its kind");
                *due += 3;
                if number.is_multiple_of(3) {
                    agreement.check(place, (sender, number));
                    place += 1;
                }
                agreement.delivered.add(1);
            }
            Ok(Delivery::View(view)) => all_stay = staying.iter().all(|&node| view.has(node)),
            Ok(Delivery::Expelled) => panic!("{group:?} is expelled"),
            Ok(Delivery::Stopped | Delivery::Resumed) | Err(DeliverError::Empty) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Joins, delivers for a while, and leaves, again and again. Returns the number of times that it was in the group.
fn come_and_go(node: &Node, options: &GroupOptions, agreement: &Agreement) -> u64 {
    let mut stays = 0;
    while !agreement.is_over.is_raised() {
        let mut group = Group::join(node, options).unwrap();
        let mut until = None;
        while !agreement.is_over.is_raised() {
            if until.is_some_and(|until| Instant::now() >= until) {
                group.leave();
            }
            match group.deliver(Duration::from_millis(1)) {
                Ok(Delivery::View(view)) if until.is_none() && view.has(node.id()) => {
                    until = Some(Instant::now() + Duration::from_millis(500));
                }
                Err(DeliverError::Left) => {
                    stays += 1;
                    break;
                }
                Err(error @ DeliverError::Mismatch(_)) => panic!("{error}"),
                Ok(_) | Err(DeliverError::Empty) => {}
            }
        }
    }
    stays
}

/// Memory of this process that is resident, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Duration of the soak, seconds.
fn asked_for() -> u64 {
    std::env::var("PUNCTUAL_GROUP_SOAK").map_or(SHORT, |text| text.parse().unwrap())
}

/// Goal: `PUNCTUAL_GROUP_SOAK=3600` goes on for an hour. Method: memory after the first third, when every buffer has been used, is
/// compared with that at the end, in a process of its own: other tests use memory, too.
#[test]
fn a_group_goes_on_and_its_memory_stays() {
    let _alive = watchdog(asked_for() + 120);
    Role::start("soak", &unique("soak")).end();
}

/// The part of that process.
pub(crate) fn play(bus: &str) {
    let (seconds, bus) = (asked_for(), Bus::shared(bus));
    let nodes = NAMES.map(|name| {
        let faults = Faults::seeded(5).loss(10).corruption(10).reordering(5);
        NodeOptions::new(name).faults(faults).open(&bus).unwrap()
    });
    let options = GroupOptions { suspect_after: Duration::from_secs(3), ..GroupOptions::new("soak", &NAMES) };
    let agreement = Agreement::default();
    let (warm, end, stays) = std::thread::scope(|scope| {
        let agreement = &agreement;
        for (place, node) in nodes[..STAYING].iter().enumerate() {
            let options = GroupOptions { founds: place == 0, ..options.clone() };
            let group = Group::join(node, &options).unwrap();
            scope.spawn(move || {
                // A failure must end the others' loops too.
                let _over = Over(agreement);
                stay(group, place, agreement);
            });
        }
        let guest = scope.spawn(|| {
            let _over = Over(agreement);
            come_and_go(&nodes[STAYING], &options, agreement)
        });
        let pause = |part: u64| {
            let until = Instant::now() + Duration::from_millis(1_000 * seconds * part / 3);
            while Instant::now() < until && !agreement.is_over.is_raised() {
                std::thread::sleep(Duration::from_millis(50));
            }
            resident()
        };
        let (warm, end) = (pause(1), pause(2));
        agreement.is_over.raise();
        (warm, end, guest.join().unwrap())
    });
    let (mib, delivered) = (|bytes: u64| bytes as f64 / 1_048_576.0, agreement.delivered.get());
    eprintln!(
        "each {delivered} messages delivered by three, {stays} stays of a fourth: {:.1} MiB after a third, {:.1} at the end",
        mib(warm),
        mib(end)
    );
    assert!(delivered > 0 && stays > 0);
    assert!(end <= warm + GROWTH_MAX, "memory grew from {warm} to {end} bytes");
}

/// Ends the run for all when it is dropped.
struct Over<'a>(&'a Agreement);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.raise();
    }
}
