//! Publications on sealed buses: a subscription delivers only messages that were sealed by a holder of a key, for it, once.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{Dice, PATIENCE, unique, watchdog};
use punctual::engine::faulty::Faults;
use punctual::memory::WhenFull;
use punctual::publication::{OfferError, StampChoice};
use punctual::seal::{Key, KeyId, RingKey};
use punctual::{
    Bus, Keys, Node, NodeOptions, Publication, PublicationOptions, Subscription, SubscriptionOptions, Target,
    Wake,
};
use punctual_machine::allocation::{Counting, count};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PORT: u16 = 7;

fn key(generation: u32) -> RingKey {
    let id = KeyId { group: 1, life: 0, generation };
    RingKey { id, key: Key::new([generation as u8 + 1; 16]).unwrap(), from_ns: 0 }
}

fn keys(generation: u32) -> Keys {
    let keys = Keys::new();
    keys.insert(key(generation)).unwrap();
    keys
}

fn subscribe(node: &Node) -> Subscription {
    node.subscription(PORT, &SubscriptionOptions { wake: Wake::Spin }).unwrap()
}

fn publish(node: &Node, when_full: WhenFull) -> Publication {
    let options =
        PublicationOptions { ring_size: 4096, when_full: Some(when_full), ..PublicationOptions::default() };
    node.publication(Target::everyone_at(PORT), &options).unwrap()
}

/// The file of the only ring that ends so.
fn file_of_ring(bus: &str) -> PathBuf {
    let folder = format!("/dev/shm/punctual.{}.{bus}", punctual_machine::process::user());
    let is_ring = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "stream");
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(is_ring).unwrap()
}

/// Everything that is there: number and content.
fn drain(subscription: &mut Subscription) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(received) = subscription.try_receive(&mut buffer) {
        all.push((received.sequence, buffer[..received.size].to_vec()));
    }
    // A message that is not believed ends a turn.
    for _ in 0..1000 {
        subscription.poll(1, |message| {
            let size = message.copy_to(&mut buffer).unwrap();
            all.push((message.sequence, buffer[..size].to_vec()));
        });
    }
    all
}

/// Goal: a node with another key is not believed, and counted. A node without a key is nobody's reader, holds nobody back, and is not
/// heard.
#[test]
fn only_holders_of_a_key_are_heard() {
    let _alive = watchdog(60);
    let name = unique("holders");
    let open = |keys: Option<Keys>, node: &str| {
        let bus = Bus::shared(&name);
        Node::open(&keys.map_or(bus.clone(), |keys| bus.sealed(&keys)), node).unwrap()
    };
    let here = open(Some(keys(1)), "here");
    let other = open(Some(keys(2)), "other");
    let bare = open(None, "bare");
    let (mut subscription, mut bare_reads) = (subscribe(&here), subscribe(&bare));
    let mut own = publish(&here, WhenFull::HoldBack);
    let mut foreign = publish(&other, WhenFull::HoldBack);
    let mut unsealed = publish(&bare, WhenFull::HoldBack);
    for round in 0..500_u64 {
        own.offer(&round.to_le_bytes()).unwrap();
        foreign.offer(b"sealed with another key").unwrap();
        unsealed.offer(b"not sealed").unwrap();
        assert_eq!(drain(&mut subscription), [(round, round.to_le_bytes().to_vec())]);
        assert_eq!(drain(&mut bare_reads), [(round, b"not sealed".to_vec())]);
    }
    let refused: Vec<_> = subscription.accounts().map(|account| account.refused).collect();
    assert_eq!(refused.iter().sum::<u64>(), 500, "{refused:?}");
    assert!(subscription.accounts().all(|account| {
        let is_foreign = account.source.node == other.id();
        (account.delivered, account.refused) == if is_foreign { (0, 500) } else { (500, 0) }
    }));
    assert_eq!(here.ledger().seal_unknown_key, 500);
    // The ring as a whole: none of its messages is looked at.
    assert!(here.ledger().seal_missing > 0 && bare.ledger().seal_unexpected > 0);
    drop(bare_reads);
    drop(subscription);
    assert_eq!((own.readers(), own.offer(b"nobody reads")), (0, Err(OfferError::NotConnected)));
}

/// Goal: despite scribbling over a sealed ring, only sealed messages are delivered, each in its place and once, and all is accounted.
#[test]
fn scribbled_messages_are_not_delivered() {
    let _alive = watchdog(120);
    let name = unique("sealed-scribbles");
    let bus = Bus::shared(&name).sealed(&keys(1));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut dice = Dice(0x5EA1);
    let payload =
        |number: u64| [number.wrapping_mul(0x9E37_79B9_7F4A_7C15); 4].map(u64::to_le_bytes).concat();
    let (mut refused, mut delivered) = (0, 0);
    for _ in 0..100 {
        let mut publication = publish(&here, WhenFull::Overrun);
        let mut subscription = subscribe(&there);
        let file = std::fs::OpenOptions::new().write(true).open(file_of_ring(&name)).unwrap();
        let (mut sent, mut next) = (0, 0);
        for _ in 0..30 {
            for _ in 0..dice.below(6) {
                publication.offer(&payload(sent)).unwrap();
                sent += 1;
            }
            // Records take two lines: anything but the commit words, which would end the ring.
            for _ in 0..dice.below(3) {
                let at = 4096 + 128 * dice.below(32) + 8 + dice.below(56);
                file.write_all_at(&[dice.below(256) as u8], at).unwrap();
            }
            for (number, content) in drain(&mut subscription) {
                assert!(number >= next, "{number} once more");
                assert_eq!(content, payload(number), "message {number} is not what was sent");
                next = number + 1;
                delivered += 1;
            }
        }
        let account = subscription.accounts().next().unwrap();
        assert_eq!(account.begin + account.delivered + account.lost + account.refused, sent, "{account:?}");
        assert!(!account.corrupt);
        refused += account.refused;
    }
    assert!(refused > 50 && delivered > 1000, "{refused} refused, {delivered} delivered");
    let ledger = there.ledger();
    // The mark of the key may be hit as well.
    assert_eq!(ledger.seal_bad_tag + ledger.seal_unknown_key, refused);
}

/// Goal: a bit that turns over in a sealed message, wherever in it, is found out by the seal, and nothing else is. Messages are
/// delivered as they were sent, and all is accounted. Whole messages and fragments. Method: half of all frames are hit, by a seed; the
/// same seed hits the same ones.
#[test]
fn a_bit_that_turns_over_is_found_out() {
    let _alive = watchdog(120);
    let run = |seed: u64, count: u32, size: usize| {
        let bus = Bus::shared(&unique("sealed-flips")).sealed(&keys(1));
        let here = NodeOptions::new("here").message_size_max(1 << 20).open(&bus).unwrap();
        let faults = Faults::seeded(seed).corruption(500);
        let there = NodeOptions::new("there").message_size_max(1 << 20).faults(faults).open(&bus).unwrap();
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let mut heard = Vec::new();
        for number in 0..count {
            let message: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(size).collect();
            sender.send_timeout(Target::port("there", 1), &message, PATIENCE).unwrap();
            // A look may end at fragments, or at what is not believed.
            let mut empty = 0;
            while empty < 16 {
                let Ok(received) = receiver.try_receive() else {
                    empty += 1;
                    continue;
                };
                let found = u32::from_le_bytes(*received.payload.first_chunk().unwrap());
                let sent: Vec<u8> = found.to_le_bytes().into_iter().cycle().take(size).collect();
                assert_eq!(received.payload, sent, "seed {seed}");
                heard.push(found);
            }
        }
        let ledger = there.ledger();
        // The mark of the key may be hit as well.
        assert_eq!(ledger.seal_bad_tag + ledger.seal_unknown_key, ledger.lost_refused, "{ledger}");
        assert!(
            u64::from(count) < 3 * ledger.lost_refused && ledger.bad_frames == 0,
            "seed {seed}: {ledger}"
        );
        heard
    };
    let heard = run(1, 400, 32);
    assert!(heard.len() > 100 && heard.len() < 300, "{}", heard.len());
    assert_eq!(heard, run(1, 400, 32));
    assert_ne!(heard, run(2, 400, 32));
    // Of a message in two fragments one is enough.
    let whole = run(3, 60, 500_000).len();
    assert!(whole < 28, "{whole} of 60");
}

/// Goal: the same message shown in another place, of the same ring or of another, is not delivered.
#[test]
fn a_message_belongs_into_its_place() {
    let _alive = watchdog(60);
    let name = unique("moved");
    let bus = Bus::shared(&name).sealed(&keys(1));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut subscription = subscribe(&there);
    let mut publication = publish(&here, WhenFull::Overrun);
    let path = file_of_ring(&name);
    publication.offer(b"number 0").unwrap();
    publication.offer(b"number 1").unwrap();
    let first = read_frame(&path, 0);
    write_frame(&path, 1, &first);
    assert_eq!(drain(&mut subscription), [(0, b"number 0".to_vec())]);
    drop(publication);
    let mut again = publish(&here, WhenFull::Overrun);
    let newer = file_of_ring(&name);
    assert_ne!(newer, path);
    again.offer(b"number 0").unwrap();
    write_frame(&newer, 0, &first);
    assert_eq!(drain(&mut subscription), []);
    assert_eq!(there.ledger().seal_bad_tag, 2);
}

/// The frame of a record of one line.
fn read_frame(path: &Path, record: u64) -> [u8; 56] {
    let mut frame = [0; 56];
    std::fs::File::open(path).unwrap().read_exact_at(&mut frame, 4096 + 64 * record + 8).unwrap();
    frame
}

/// Puts a frame into a record's place; its commit word stays.
fn write_frame(path: &Path, record: u64, frame: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(frame, 4096 + 64 * record + 8).unwrap();
}

/// Goal: a key is renewed without losing a message; without any, nothing is sent.
#[test]
fn keys_are_renewed_under_way() {
    let _alive = watchdog(60);
    let bus_keys = Keys::new();
    let bus = Bus::loopback(&unique("renewed")).sealed(&bus_keys);
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut subscription = subscribe(&there);
    let mut publication = publish(&here, WhenFull::HoldBack);
    assert_eq!(publication.offer(b"no key"), Err(OfferError::NoKey));
    assert!(OfferError::NoKey.to_string().contains("insert one"));
    for generation in 1..4 {
        bus_keys.insert(key(generation)).unwrap();
        for _ in 0..10 {
            publication.offer(b"sealed").unwrap();
        }
    }
    assert_eq!(drain(&mut subscription).len(), 30);
}

/// Goal: sealing and opening allocate nothing once the ring is followed, stamped or not, copied or in place.
#[test]
fn sealing_allocates_nothing() {
    let _alive = watchdog(60);
    for stamps in [StampChoice::Never, StampChoice::Ends, StampChoice::All] {
        let bus = Bus::loopback(&unique("allocation")).sealed(&keys(1));
        let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let mut subscription = subscribe(&there);
        let options = PublicationOptions { stamps, ..PublicationOptions::default() };
        let mut publication = here.publication(Target::everyone_at(PORT), &options).unwrap();
        let mut buffer = vec![0; publication.payload_size_max()];
        let mut round = |size: usize| {
            let payload = &buffer.clone()[..size];
            let before = count();
            publication.offer(payload).unwrap();
            let mut claim = publication.try_claim(size).unwrap();
            claim.payload().fill(7);
            claim.commit();
            for _ in 0..2 {
                let received = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
                assert_eq!(received.sealed_in, Some(1));
            }
            count() - before
        };
        // The publication learns where its reader is from what that says when it first reads.
        (0..2).for_each(|_| _ = round(1));
        let allocated: u64 = [0, 64, 1000, 10_000].into_iter().cycle().take(400).map(&mut round).sum();
        assert_eq!(allocated, 0, "{stamps:?}");
    }
}
