//! Keys and secrets that were removed or replaced are nowhere in memory. One test: it searches all of this process.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use punctual::keyed_group::{GroupLeader, GroupMember, GroupTiming, LeaderEvent, Secret};
use punctual::seal::{Key, KeyId, RingKey};
use punctual::{Bus, Keys, Node, NodeId, Target};

mod common;
use common::{PATIENCE, unique, watchdog};

/// The sought bytes must not stand in memory because they are looked for.
const MASK: u8 = 0xA5;
const PAGE: usize = 4_096;

/// The first 16 bytes of a secret, masked.
#[derive(Clone, Copy)]
struct Sought([u8; 16]);

impl Sought {
    fn of(bytes: &[u8]) -> Self {
        Self(std::array::from_fn(|index| bytes[index] ^ MASK))
    }

    fn key(self) -> Key {
        Key::new(self.0.map(|byte| byte ^ MASK)).unwrap()
    }

    /// Number of times that it stands in memory that was allocated, freed or not; stacks apart.
    fn count(self) -> usize {
        let memory = File::open("/proc/self/mem").unwrap();
        let mut found = 0;
        for (begin, end) in heaps() {
            // On the stack, which is not searched, and with the end of the page before in front.
            let mut window = [0_u8; 16 + PAGE];
            for page in (begin..end).step_by(PAGE) {
                window.copy_within(PAGE.., 0);
                if memory.read_exact_at(&mut window[16..], page).is_err() {
                    continue;
                }
                let is_it =
                    |place: &&[u8]| place.iter().zip(&self.0).all(|(byte, sought)| byte ^ MASK == *sought);
                found += window[1..].windows(16).filter(is_it).count();
            }
            window.fill(0);
            std::hint::black_box(&window);
        }
        found
    }
}

/// Memory of no file that may be written, but for stacks.
fn heaps() -> Vec<(u64, u64)> {
    let here = 0_u8;
    let stack = std::ptr::from_ref(&here).addr() as u64;
    let maps = BufReader::new(File::open("/proc/self/maps").unwrap());
    let parse = |line: String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (begin, end) = words[0].split_once('-')?;
        let [begin, end] = [begin, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let is_heap = words[1].starts_with("rw") && words.get(5).is_none_or(|name| *name == "[heap]");
        (is_heap && !(begin..end).contains(&stack)).then_some((begin, end))
    };
    maps.lines().filter_map(|line| parse(line.unwrap())).collect()
}

fn sought(seed: u8) -> Sought {
    Sought(std::array::from_fn(|index| seed.wrapping_mul(31).wrapping_add(index as u8).wrapping_mul(167)))
}

fn ring_key(generation: u32, from_ns: u64) -> RingKey {
    let id = KeyId { group: 1, life: 0, generation };
    RingKey { id, key: sought(generation as u8).key(), from_ns }
}

/// Keys that are removed, in any order, or whose overlap has passed, and copies of rings.
fn search_rings() {
    let keys = Keys::new().overlap(Duration::ZERO);
    for generation in 1..=9 {
        keys.insert(ring_key(generation, u64::MAX)).unwrap();
    }
    let copy = keys.copied();
    assert!(sought(5).count() >= 2, "a search that finds nothing shows nothing");
    for generation in [5, 1, 9, 4] {
        keys.remove(KeyId { group: 1, life: 0, generation });
        copy.remove(KeyId { group: 1, life: 0, generation });
        assert_eq!(sought(generation as u8).count(), 0, "generation {generation}");
    }
    drop((keys, copy));
    for generation in 1..=9 {
        assert_eq!(sought(generation).count(), 0, "generation {generation}");
    }
}

/// Keys with which a node has sealed and opened.
fn search_nodes() {
    let keys = Keys::new().also_local();
    keys.insert(ring_key(20, 0)).unwrap();
    let bus = Bus::shared(&unique("wiped")).sealed(&keys);
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let (mut here, mut there) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    let mut say = || {
        here.send_timeout(Target::port("there", 1), b"it", PATIENCE).unwrap();
        there.receive_timeout(PATIENCE).unwrap();
        there.send_timeout(Target::port("here", 1), b"it", PATIENCE).unwrap();
        here.receive_timeout(PATIENCE).unwrap();
    };
    say();
    assert!(sought(20).count() > 0);
    keys.insert(ring_key(21, 0)).unwrap();
    keys.remove(KeyId { group: 1, life: 0, generation: 20 });
    say();
    assert_eq!(sought(20).count(), 0, "replaced");
    keys.remove_group(1);
    let _nobody =
        (here.receive_timeout(Duration::from_millis(300)), there.receive_timeout(Duration::from_millis(300)));
    assert_eq!(sought(21).count(), 0, "removed");
}

/// The keys of a group, at the leader and at a member, and the secrets of both.
fn search_groups() {
    const MS: u64 = 1_000_000;
    let timing =
        GroupTiming { retry_ns: 5 * MS, lease_ns: 2_000 * MS, notice_ns: 20 * MS, renewal_ns: 60_000 * MS };
    let bus = Bus::loopback(&unique("wiped"));
    let master = sought(50);
    let secret = || {
        let half = master.0.map(|byte| byte ^ MASK);
        let bytes: [u8; 32] = std::array::from_fn(|index| half[index % 16]);
        Secret::new(bytes).unwrap()
    };
    let fleet = Keys::random(0).overlap(Duration::from_millis(20));
    let own = fleet.copied();
    let leads = Node::open(&bus.clone().sealed(&fleet), "leads").unwrap();
    let goes = Node::open(&bus.sealed(&own), "goes").unwrap();
    let of_member = Sought::of(secret().of_member(goes.id()).expose());
    let mut leader = GroupLeader::new(leads.bind(9).unwrap(), &fleet, 5, secret(), timing).unwrap();
    let mut member =
        GroupMember::new(goes.bind(9).unwrap(), &own, secret().of_member(goes.id()), timing).unwrap();
    member.join(NodeId::named("leads"), 5).unwrap();
    let mut made = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut renewed = 0;
    let has_one = |keys: &Keys| keys.ids().iter().filter(|id| id.group == 5).count() == 1;
    while renewed < 4 || !has_one(&own) || !has_one(&fleet) {
        assert!(Instant::now() < end, "{own:?}, {fleet:?}");
        leader
            .turn(|event| {
                if let LeaderEvent::Renewed(key) = event {
                    made.push(Sought::of(key.key.expose()));
                }
            })
            .unwrap();
        member.turn(|_| ()).unwrap();
        if own.sealing().is_some_and(|id| id.group == 5 && id.generation as usize == made.len())
            && renewed < 4
        {
            leader.renew();
            renewed += 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let (newest, replaced) = made.split_last().unwrap();
    assert!(newest.count() > 0 && master.count() > 0 && of_member.count() > 0 && replaced.len() >= 3);
    for key in replaced {
        assert_eq!(key.count(), 0, "a key that was replaced");
    }
    drop((leader, member, fleet, own, leads, goes));
    for secret in made.iter().chain([&master, &of_member]) {
        assert_eq!(secret.count(), 0, "all are gone");
    }
}

/// Goal: a key that was removed, replaced or dropped stands nowhere in memory any more, moved copies included. Method: all of this
/// process is read through the kernel; before, that what is searched is found.
#[test]
fn keys_that_are_gone_are_nowhere_in_memory() {
    let _alive = watchdog(120);
    search_rings();
    search_nodes();
    search_groups();
}
