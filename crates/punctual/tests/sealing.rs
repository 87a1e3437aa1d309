//! Sealed buses: a sender without a key is not heard, regardless of what it sends, and a node with a key loses nothing by it.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use common::{
    Dice, Medium, PATIENCE, Role, free_ports, on_every_medium, open_both, own_role, reopen, unique, watchdog,
};
use punctual::seal::{Key, KeyId, RingKey};
use punctual::{
    Bus, Clock, Communicator, CommunicatorOptions, Keys, Ledger, Node, NodeId, NodeOptions, SendError, Target,
};
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::limits::CHECK_SIZE;
use punctual_proto::seal::{SEAL_SIZE, Seal};
use punctual_proto::{Frame, Header, Kind};

/// Frames of a live attacker; a million with `PUNCTUAL_ATTACKS=1000000`.
const ATTACKS: u64 = 100_000;

fn keys() -> Keys {
    Keys::parse("7 1 000102030405060708090a0b0c0d0e0f").unwrap()
}

fn key(group: u32, generation: u32, from_ns: u64) -> RingKey {
    let bytes = [generation as u8 + 1; 16];
    RingKey { id: KeyId { group, life: 0, generation }, key: Key::new(bytes).unwrap(), from_ns }
}

/// Receives what is there; returns how many messages that were.
fn drain(communicator: &mut Communicator) -> u64 {
    std::iter::from_fn(|| communicator.try_receive().ok().map(|_| ())).count() as u64
}

/// Waits until the ledger says so.
fn wait_for(node: &Node, communicator: &mut Communicator, enough: impl Fn(&Ledger) -> bool) -> Ledger {
    let end = Instant::now() + PATIENCE;
    loop {
        assert_eq!(drain(communicator), 0, "nothing may be delivered: {}", node.ledger());
        let ledger = node.ledger();
        if enough(&ledger) || Instant::now() > end {
            return ledger;
        }
    }
}

/// Goal: on every medium, sealed messages arrive as they were sent, claimed or copied, stamped or not, to one or to all.
#[test]
fn sealed_messages_arrive_on_every_medium() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let keys = keys();
        let medium = medium.sealed(&keys);
        let (here, there) = open_both(&medium);
        let stamped = CommunicatorOptions::default().stamped();
        let options = [CommunicatorOptions::default(), stamped];
        for (port, options) in options.iter().enumerate() {
            let port = port as u16 + 1;
            let mut sender = here.bind_with(port, options).unwrap();
            let mut receiver = there.bind_with(port, options).unwrap();
            let targets = [Target::port("there", port), Target::everyone_at(port)];
            for size in [0, 1, 64, 1000] {
                for target in targets {
                    let payload: Vec<u8> = (0..size).map(|at| at as u8 ^ port as u8).collect();
                    sender.send_timeout(target, &payload, PATIENCE).unwrap();
                    let message = receiver.receive_timeout(PATIENCE).unwrap();
                    assert_eq!((message.payload, message.source), (&payload[..], sender.address()));
                    assert_eq!(message.stages.is_some(), options.stamps);
                    let mut claim = sender.claim(target, size).unwrap();
                    claim.payload().copy_from_slice(&payload);
                    claim.commit();
                    assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, &payload[..]);
                }
            }
            let most = vec![5; sender.payload_size_max().min(60_000)];
            sender.send_timeout(targets[0], &most, PATIENCE).unwrap();
            assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, &most[..]);
            let error = sender.try_send(targets[0], &vec![0; sender.payload_size_max() + 1]).unwrap_err();
            assert!(matches!(error, SendError::TooLong { .. }), "{error}");
        }
        let ledger = there.ledger();
        assert!(ledger.is_balanced() && ledger.disbelieved() == 0 && ledger.lost() == 0, "{ledger}");
    });
}

/// Goal: a message through an inbox, because another component drives the engine, is opened just as well.
#[test]
fn several_components_share_a_sealed_node() {
    let _alive = watchdog(60);
    let bus = Bus::shared(&unique("sealed")).sealed(&keys());
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let mut sender = here.bind(1).unwrap();
    let mut receivers: Vec<Communicator> = (1..=3).map(|port| there.bind(port).unwrap()).collect();
    for round in 0..100_u32 {
        sender.send_timeout(Target::node("there"), &round.to_le_bytes(), PATIENCE).unwrap();
        for receiver in &mut receivers {
            assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, round.to_le_bytes());
        }
    }
    let ledger = there.ledger();
    assert!(ledger.is_balanced() && ledger.delivered == 300 && ledger.disbelieved() == 0, "{ledger}");
}

/// Goal: without a key, with another, or with another secret under the key's name nobody is heard, and the cause is counted.
#[test]
fn strangers_are_refused_and_counted_by_cause() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let ours = keys();
        let other = Keys::parse("8 1 000102030405060708090a0b0c0d0e0f").unwrap();
        let liar = Keys::parse("7 1 ff0102030405060708090a0b0c0d0e0f").unwrap();
        type Cause = fn(&Ledger) -> u64;
        let cases: [(Option<&Keys>, Option<&Keys>, Cause); 4] = [
            (None, Some(&ours), |ledger| ledger.seal_missing),
            (Some(&ours), None, |ledger| ledger.seal_unexpected),
            (Some(&other), Some(&ours), |ledger| ledger.seal_unknown_key),
            (Some(&liar), Some(&ours), |ledger| ledger.seal_bad_tag),
        ];
        for (case, (theirs, ours, cause)) in cases.into_iter().enumerate() {
            let bus =
                |bus: &Bus, keys: Option<&Keys>| keys.map_or(bus.clone(), |keys| bus.clone().sealed(keys));
            let here = reopen(&NodeOptions::new("here"), &bus(&medium.here, theirs));
            let there = reopen(&NodeOptions::new("there"), &bus(&medium.there, ours));
            let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
            for _ in 0..10 {
                sender.send_timeout(Target::everyone_at(1), b"believe me", PATIENCE).unwrap();
            }
            // Memory says of a whole ring whether it is sealed.
            let enough = if medium.in_memory && case < 2 { 1 } else { 10 };
            let ledger = wait_for(&there, &mut receiver, |ledger| cause(ledger) >= enough);
            assert!(cause(&ledger) >= enough, "case {case}: {ledger}");
            assert_eq!(
                (ledger.disbelieved(), ledger.delivered),
                (cause(&ledger), 0),
                "case {case}: {ledger}"
            );
        }
    });
}

/// Goal: a renewal under traffic loses nothing, though the two ends learn of the new key at different times.
#[test]
fn a_renewal_under_traffic_loses_nothing() {
    let _alive = watchdog(120);
    on_every_medium(|medium| {
        let (here_keys, there_keys) = (keys(), keys().overlap(Duration::from_millis(50)));
        let (here, there) = open_both(&Medium {
            here: medium.here.clone().sealed(&here_keys),
            there: medium.there.clone().sealed(&there_keys),
            ..*medium
        });
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let now_ns = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        // On a busy host, too, the other end has it by then.
        let from_ns = now_ns + 5_000_000_000;
        let mut number = 0_u64;
        let mut exchange = |rounds_ms: u64| {
            let end = Instant::now() + Duration::from_millis(rounds_ms);
            while Instant::now() < end {
                sender.send_timeout(Target::port("there", 1), &number.to_le_bytes(), PATIENCE).unwrap();
                assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, number.to_le_bytes());
                number += 1;
            }
        };
        here_keys.insert(key(7, 2, from_ns)).unwrap();
        exchange(20);
        assert_eq!(here_keys.sealing().unwrap().generation, 1);
        there_keys.insert(key(7, 2, from_ns)).unwrap();
        let end = Instant::now() + PATIENCE;
        while there_keys.ids().len() > 1 && Instant::now() < end {
            exchange(50);
        }
        assert_eq!(here_keys.sealing().unwrap().generation, 2);
        assert_eq!(there_keys.ids().len(), 1, "the old key is forgotten after its overlap");
        let ledger = there.ledger();
        assert!(ledger.lost() == 0 && ledger.disbelieved() == 0, "{ledger}");
    });
}

#[test]
fn without_a_key_nothing_is_sent() {
    let keys = Keys::new();
    let bus = Bus::loopback(&unique("keyless")).sealed(&keys);
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    assert_eq!(sender.try_send(Target::port("there", 1), b"?"), Err(SendError::NoKey));
    keys.insert(key(1, 1, 0)).unwrap();
    sender.try_send(Target::port("there", 1), b"!").unwrap();
    assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"!");
}

/// Goal: a node that has no key when it opens says its opening hello before its first message, so that others count from there.
#[test]
fn the_first_key_is_followed_by_a_hello() {
    let _alive = watchdog(60);
    let (wire, keys) = (new_wire(), Keys::new());
    let (node, mut sender, _) = node_behind(&wire, "here", &keys);
    node.housekeep();
    assert_eq!(sender.try_send(Target::everyone_at(1), b"?"), Err(SendError::NoKey));
    keys.insert(key(1, 1, 0)).unwrap();
    sender.try_send(Target::everyone_at(1), b"!").unwrap();
    let recorded = record(&wire);
    let kinds: Vec<Kind> = recorded.iter().map(|frame| header_of(frame).unwrap().kind).collect();
    assert_eq!(kinds, [Kind::Hello, Kind::Data]);
    // The flag by which it asks for answers, and says that its streams begin.
    let prefix_size = header_of(&recorded[0]).unwrap().prefix_size();
    assert_eq!(recorded[0][prefix_size + 16] & 2, 2);
}

/// Goal: messages between components of one node are sealed on demand, and arrive all the same.
#[test]
fn local_messages_are_sealed_on_demand() {
    for keys in [keys(), keys().also_local()] {
        let bus = Bus::shared(&unique("local")).sealed(&keys);
        let (node, other) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
        let (mut a, mut b, mut c) = (node.bind(1).unwrap(), node.bind(2).unwrap(), other.bind(2).unwrap());
        for round in 0..50_u8 {
            a.send_timeout(Target::port("here", 2), &[round], PATIENCE).unwrap();
            assert_eq!(b.receive_timeout(PATIENCE).unwrap().payload, [round]);
            a.send_timeout(Target::everyone_at(2), &[round; 3], PATIENCE).unwrap();
            assert_eq!(b.receive_timeout(PATIENCE).unwrap().payload, [round; 3]);
            assert_eq!(c.receive_timeout(PATIENCE).unwrap().payload, [round; 3]);
        }
        assert!(node.ledger().is_balanced() && other.ledger().disbelieved() == 0, "{}", other.ledger());
    }
}

/// Goal: a message between components of one node that is not believed is refused, by its cause, and never unread. Method: its key is
/// forgotten while it waits in the inbox.
#[test]
fn a_local_message_that_is_not_believed_is_refused() {
    let keys = keys().also_local();
    let bus = Bus::peers(free_ports().0, &[]).sealed_as(&keys, "local");
    let node = Node::open(&bus, "here").unwrap();
    let (mut a, mut b) = (node.bind(1).unwrap(), node.bind(2).unwrap());
    a.try_send(Target::port("here", 2), b"believed").unwrap();
    assert_eq!(b.try_receive().unwrap().payload, b"believed");
    a.try_send(Target::port("here", 2), b"not believed").unwrap();
    keys.ids().into_iter().for_each(|id| keys.remove(id));
    assert_eq!(b.try_receive().unwrap_err(), punctual::ReceiveError::Empty);
    let check = || {
        let ledger = node.ledger();
        assert_eq!((ledger.delivered, ledger.copies_refused, ledger.unread), (1, 1, 0), "{ledger}");
        assert_eq!((ledger.waiting, ledger.seal_unknown_key, ledger.is_balanced()), (0, 1, true), "{ledger}");
    };
    check();
    // The same once its row has closed.
    drop(b);
    check();
}

/// A node on UDP whose only peer is a socket of ours. It and others like it know each other by no address: their bus has a
/// name.
fn node_behind(wire: &UdpSocket, name: &str, keys: &Keys) -> (Node, Communicator, SocketAddr) {
    node_on(wire, name, |bus| bus.sealed_as(keys, "behind"))
}

fn node_on(wire: &UdpSocket, name: &str, seal: impl Fn(Bus) -> Bus) -> (Node, Communicator, SocketAddr) {
    let local = free_ports().0;
    let bus = seal(Bus::peers(local, &[wire.local_addr().unwrap()]));
    let node = Node::open(&bus, name).unwrap();
    let communicator = node.bind(1).unwrap();
    (node, communicator, local)
}

fn new_wire() -> UdpSocket {
    let wire = UdpSocket::bind("127.0.0.1:0").unwrap();
    wire.set_read_timeout(Some(PATIENCE)).unwrap();
    wire
}

/// Frames that come over the wire, up to the first message.
fn record(wire: &UdpSocket) -> Vec<Vec<u8>> {
    let mut recorded: Vec<Vec<u8>> = Vec::new();
    let mut buffer = [0; 2048];
    while !recorded.iter().any(|frame| header_of(frame).is_some_and(|header| header.kind == Kind::Data)) {
        let size = wire.recv(&mut buffer).unwrap();
        recorded.push(buffer[..size].to_vec());
    }
    recorded
}

fn header_of(frame: &[u8]) -> Option<Header> {
    Header::read(frame.first_chunk::<HEADER_SIZE>()?).ok()
}

fn with_right_check(frame: &mut [u8]) -> &[u8] {
    let (covered, check) = frame.split_last_chunk_mut::<CHECK_SIZE>().unwrap();
    *check = punctual_proto::broadcast::crc32c(0, covered).to_le_bytes();
    frame
}

/// Goal: of a frame in which any one bit is altered nothing is delivered, and exactly one counter says so. This holds though the check
/// value was made right again. A frame that is for somebody else by then is passed over.
#[test]
fn no_altered_bit_is_believed() {
    let _alive = watchdog(120);
    let wire = new_wire();
    let keys = keys();
    let (_here, mut sender, _) = node_behind(&wire, "here", &keys);
    let (there, mut receiver, address) = node_behind(&wire, "there", &keys);
    sender.send_timeout(Target::everyone_at(1), b"pay 100", PATIENCE).unwrap();
    let genuine = record(&wire).pop().unwrap();
    let mut dice = Dice(17);
    for at in 0..genuine.len() - CHECK_SIZE {
        let mut altered = genuine.clone();
        altered[at] ^= 1_u8 << dice.below(8);
        let before = there.ledger();
        wire.send_to(with_right_check(&mut altered), address).unwrap();
        let noticed = |ledger: &Ledger| ledger.disbelieved() + ledger.bad_frames;
        let is_for_another = (16..24).contains(&at);
        if is_for_another {
            continue;
        }
        let after = wait_for(&there, &mut receiver, |ledger| noticed(ledger) > noticed(&before));
        assert_eq!(noticed(&after), noticed(&before) + 1, "byte {at}: {after}");
    }
    wire.send_to(&genuine, address).unwrap();
    assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"pay 100");
    wire.send_to(&genuine, address).unwrap();
    let ledger = wait_for(&there, &mut receiver, |ledger| ledger.seal_replayed > 0);
    assert_eq!((ledger.seal_replayed, ledger.delivered), (1, 1), "{ledger}");
}

/// Goal: a node that opens later does not take a recording of what was said before.
#[test]
fn a_recording_is_not_believed_by_who_opens_later() {
    let _alive = watchdog(60);
    let wire = new_wire();
    let keys = keys().allowance(Duration::from_millis(20));
    let (_here, mut sender, _) = node_behind(&wire, "here", &keys);
    sender.send_timeout(Target::everyone_at(1), b"yesterday", PATIENCE).unwrap();
    let recorded = record(&wire);
    std::thread::sleep(Duration::from_millis(60));
    let (there, mut receiver, address) = node_behind(&wire, "there", &keys);
    for frame in &recorded {
        wire.send_to(frame, address).unwrap();
    }
    let count = recorded.len() as u64;
    let ledger = wait_for(&there, &mut receiver, |ledger| ledger.seal_stale >= count);
    assert_eq!((ledger.seal_stale, ledger.delivered), (count, 0), "{ledger}");
}

/// Goal: a message sealed with the same key for another bus is refused and counted, whichever way it is carried. That holds if the
/// buses have other addresses, or other names.
#[test]
fn a_message_sealed_for_another_bus_is_not_believed() {
    let _alive = watchdog(60);
    let keys = keys();
    let one_name = |bus: Bus| bus.sealed_as(&keys, "one");
    let other_name = |bus: Bus| bus.sealed_as(&keys, "other");
    let addresses = |bus: Bus| bus.sealed(&keys);
    let pairs: [[&dyn Fn(Bus) -> Bus; 2]; 3] =
        [[&addresses, &addresses], [&one_name, &other_name], [&addresses, &one_name]];
    for (case, pair) in pairs.into_iter().enumerate() {
        let wires = [new_wire(), new_wire()];
        let [mut here, mut there] =
            [0, 1].map(|side| node_on(&wires[side], ["here", "there"][side], pair[side]));
        for node in [&mut here, &mut there] {
            node.1.send_timeout(Target::EVERYONE, b"not for them", PATIENCE).unwrap();
        }
        for (from, to) in [(0, &mut there), (1, &mut here)] {
            let recorded = record(&wires[from]);
            let count = recorded.len() as u64;
            for frame in recorded {
                wires[1 - from].send_to(&frame, to.2).unwrap();
            }
            let ledger = wait_for(&to.0, &mut to.1, |ledger| ledger.disbelieved() >= count);
            let told = (ledger.seal_bad_tag, ledger.disbelieved(), ledger.delivered);
            assert_eq!(told, (count, count, 0), "case {case}, from {from}: {ledger}");
        }
    }
}

/// Goal: a message read out of a sealed ring in shared memory is not believed on UDP. The bus has the same name there, the node too,
/// and the key.
#[test]
fn a_message_sealed_for_shared_memory_is_not_believed_on_udp() {
    use punctual_machine::counter::Counter;
    use punctual_machine::memory::{Access, Mapping};
    let _alive = watchdog(60);
    let (keys, name) = (keys(), unique("carried"));
    let memory = Node::open(&Bus::shared(&name).sealed_as(&keys, "one"), "here").unwrap();
    let mut speaker = memory.bind(1).unwrap();
    speaker.send_timeout(Target::everyone_at(1), b"in memory", PATIENCE).unwrap();
    let folder = format!("/dev/shm/punctual.{}.{name}", punctual_machine::process::user());
    let ring = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let ring = ring.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "stream"));
    let ring = Mapping::open(&ring.unwrap(), Access::Read).unwrap();
    // The first record: a word with its size in 28 bits, then eight bytes of zero, the message, and its seal.
    let words: &[Counter] = ring.objects(4_096, 64).unwrap();
    let size = (words[0].get() & ((1 << 28) - 1)) as usize;
    let bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.get().to_le_bytes()).collect();
    let header = Header {
        kind: Kind::Data,
        incarnation: 3,
        source: speaker.address(),
        target: Target::everyone_at(1),
        sequence: 0,
        payload_size: 9,
        stamped: false,
        sealed: true,
    };
    assert_eq!((size, &bytes[8..17]), (8 + 9 + SEAL_SIZE, &b"in memory"[..]));
    let mut frame = vec![0; HEADER_SIZE];
    header.write(frame.first_chunk_mut().unwrap());
    frame.extend(&bytes[8..size]);
    frame.extend([0; CHECK_SIZE]);
    let wire = new_wire();
    let (there, mut receiver, address) = node_on(&wire, "there", |bus| bus.sealed_as(&keys, "one"));
    wire.send_to(with_right_check(&mut frame), address).unwrap();
    let ledger = wait_for(&there, &mut receiver, |ledger| ledger.disbelieved() > 0);
    assert_eq!((ledger.seal_bad_tag, ledger.delivered), (1, 0), "{ledger}");
}

/// Goal: a sealed bus of peers that cannot be told alike by all is refused when it is opened, with what to do.
#[test]
fn a_sealed_bus_without_a_common_name_is_refused() {
    let keys = keys();
    for local in ["0.0.0.0:7007", "[::]:7007", "127.0.0.1:0"] {
        let local: SocketAddr = local.parse().unwrap();
        let peer = SocketAddr::new(local.ip(), 7008);
        let error = Node::open(&Bus::peers(local, &[peer]).sealed(&keys), "here").unwrap_err().to_string();
        assert!(error.contains("sealed_as"), "{error}");
    }
    let bus = Bus::peers("127.0.0.1:0".parse().unwrap(), &[free_ports().0]);
    assert!(Node::open(&bus.clone().sealed_as(&keys, "a b"), "here").is_err());
    Node::open(&bus.sealed_as(&keys, "ab"), "here").unwrap();
}

/// Not a test of its own: the work of the other process.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    match role.as_str() {
        "attacker" => attack(&bus),
        "sealed_sender" => send_for_ever(&bus),
        _ => panic!("{role}: no role"),
    }
}

/// Counts of what the attacker did, as it tells them at the end.
#[derive(Debug, Default)]
struct Deeds {
    /// Everything that it sent to the victim.
    sent: u64,
    /// Announcements of the genuine sender among it.
    announcements: u64,
    /// Frames among it that only their tag gives away: whole, under the mark of a key that is known, and not what its holder sealed.
    forged: u64,
    /// Those of them that are random behind their header.
    random: u64,
}

/// Mark of the key that all nodes of these tests have.
fn known_mark() -> u16 {
    KeyId { group: 7, life: 0, generation: 1 }.mark()
}

/// Sits between two nodes. Passes on what it hears, and adds to it altered, replayed, and forged frames, and random ones.
/// `addresses`: of the victim, and where to tell at the end.
fn attack(addresses: &str) {
    let [victim, report] =
        addresses.split(' ').map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>()[..]
    else {
        panic!("two addresses")
    };
    let attacks: u64 = std::env::var("PUNCTUAL_ATTACKS").ok().and_then(|n| n.parse().ok()).unwrap_or(ATTACKS);
    let wire = UdpSocket::bind("127.0.0.1:0").unwrap();
    wire.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    wire.send_to(b"ready", report).unwrap();
    let mut dice = Dice(0xA77A_C4E5);
    let mut deeds = Deeds::default();
    let mut tape: Vec<Vec<u8>> = Vec::new();
    let mut buffer = [0; 2048];
    let mut told = Instant::now();
    loop {
        if let Ok((size, source)) = wire.recv_from(&mut buffer)
            && source != victim
        {
            let frame = buffer[..size].to_vec();
            deeds.sent += 1;
            deeds.announcements +=
                u64::from(header_of(&frame).is_none_or(|header| header.kind != Kind::Data));
            wire.send_to(&frame, victim).unwrap();
            if tape.len() < 64 {
                tape.push(frame);
            }
        }
        for _ in 0..if tape.is_empty() { 0 } else { 64 } {
            if deeds.sent - deeds.announcements >= attacks {
                break;
            }
            let genuine = &tape[dice.below(tape.len() as u64) as usize];
            let (evil, is_random) = evil_frame(&mut dice, genuine);
            if wire.send_to(&evil, victim).is_ok() {
                let is_forged = evil != *genuine && is_under_known_mark(&evil);
                deeds.sent += 1;
                deeds.forged += u64::from(is_forged);
                deeds.random += u64::from(is_forged && is_random);
            }
        }
        if deeds.sent >= attacks && told.elapsed() > Duration::from_millis(50) {
            told = Instant::now();
            let Deeds { sent, announcements, forged, random } = deeds;
            wire.send_to(format!("{sent} {announcements} {forged} {random}").as_bytes(), report).unwrap();
        }
    }
}

/// True if nothing but the tag can be wrong with a frame: what is looked at before it is as it must be.
fn is_under_known_mark(bytes: &[u8]) -> bool {
    Frame::parse(bytes).is_ok_and(|frame| {
        let is_whole = frame.header.frame_size() + CHECK_SIZE == bytes.len();
        is_whole && frame.seal.is_some_and(|seal| Seal::read(seal).mark == known_mark())
    })
}

/// One frame that no key holder sent, or not now; true if it is random behind its header. It is for the victim, and not in its own name.
fn evil_frame(dice: &mut Dice, genuine: &[u8]) -> (Vec<u8>, bool) {
    let mut frame = genuine.to_vec();
    let way = dice.below(4);
    match way {
        0 => {}
        1 => {
            // Anything but the target, by which it would be for somebody else.
            let at = dice.below((frame.len() - CHECK_SIZE - 8) as u64) as usize;
            let at = if at < 16 { at } else { at + 8 };
            frame[at] ^= 1_u8 << dice.below(8);
        }
        2 => frame[8..16].copy_from_slice(&NodeId::named("trusted").get().to_le_bytes()),
        _ => {
            let payload = dice.below(200) as usize;
            frame.resize(HEADER_SIZE + payload + SEAL_SIZE + CHECK_SIZE, 0);
            frame[28] = payload as u8;
            (frame[29], frame[30], frame[31]) = (0, 0, 2);
            frame[2] = dice.below(256) as u8;
            frame[HEADER_SIZE..].iter_mut().for_each(|byte| *byte = dice.below(256) as u8);
            if dice.below(2) == 0 {
                // Under the mark of a key that is known, at a random time.
                frame[HEADER_SIZE + payload..][..2].copy_from_slice(&known_mark().to_le_bytes());
            }
        }
    }
    with_right_check(&mut frame);
    (frame, way == 3)
}

/// Goal: a live attacker between two nodes, who alters, replays, forges and floods, gets nothing delivered that was not sent,
/// and nothing twice; nobody crashes; and every frame that it sent stands in a counter. Frames that only a wrong tag gives away stand in
/// the counter of wrong tags.
#[test]
fn a_live_attacker_gets_nothing_delivered() {
    let _alive = watchdog(300);
    let control = UdpSocket::bind("127.0.0.1:0").unwrap();
    control.set_read_timeout(Some(PATIENCE)).unwrap();
    let keys = keys();
    let victim = free_ports().0;
    let report = control.local_addr().unwrap();
    let _attacker = Role::start("attacker", &format!("{victim} {report}"));
    let mut buffer = [0; 64];
    let (_, wire) = control.recv_from(&mut buffer).unwrap();
    let open = |name: &str, local| {
        let node = Node::open(&Bus::peers(local, &[wire]).sealed_as(&keys, "attacked"), name).unwrap();
        let communicator = node.bind(1).unwrap();
        (node, communicator)
    };
    let (there, mut receiver) = open("there", victim);
    let (_here, mut sender) = open("here", free_ports().0);
    control.set_nonblocking(true).unwrap();
    let (mut number, mut last, mut deeds) = (0_u64, None, None);
    let mut next = Instant::now();
    while deeds.is_none() || last != Some(number) {
        if deeds.is_none() && Instant::now() >= next {
            next = Instant::now() + Duration::from_millis(2);
            number += 1;
            sender.send_timeout(Target::everyone_at(1), &number.to_le_bytes(), PATIENCE).unwrap();
        } else if deeds.is_some() && Instant::now() >= next {
            // Until the last one has come through, and with it what the kernel says it dropped.
            next = Instant::now() + Duration::from_millis(50);
            number += 1;
            sender.send_timeout(Target::everyone_at(1), &number.to_le_bytes(), PATIENCE).unwrap();
        }
        while let Ok(message) = receiver.try_receive() {
            assert_eq!((message.source.node, message.payload.len()), (NodeId::named("here"), 8));
            let value = u64::from_le_bytes(message.payload.try_into().unwrap());
            assert!(value <= number && last.is_none_or(|last| value > last), "{value} after {last:?}");
            last = Some(value);
        }
        if let Ok(size) = control.recv(&mut buffer)
            && deeds.is_none()
        {
            deeds = Some(String::from_utf8_lossy(&buffer[..size]).into_owned());
        }
    }
    let told: Vec<u64> = deeds.unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
    let [sent, announcements, forged, random] = told[..] else { panic!("four counts, not {told:?}") };
    let ledger = there.ledger();
    let accounted =
        ledger.arrived + ledger.duplicates + ledger.disbelieved() + ledger.bad_frames + ledger.buffer_drops;
    eprintln!(
        "attacker: {sent} frames, {announcements} announcements, {forged} forged, {random} random; victim: {ledger}"
    );
    // Frames that the attacker passed on after it told are accounted for and not told.
    assert!(accounted + announcements >= sent, "{accounted} of {sent} accounted for: {ledger}");
    assert!(accounted <= sent + 2 * number + announcements, "{accounted} of {sent}");
    // The kernel drops some of a flood.
    assert!(ledger.seal_bad_tag + ledger.buffer_drops >= forged, "{forged} forged: {ledger}");
    assert!(random >= sent / 16, "an eighth of {sent}, and not {random}");
    assert!(ledger.seal_bad_tag > 0 && ledger.seal_replayed > 0 && ledger.seal_unknown_key > 0, "{ledger}");
    assert!(ledger.is_balanced(), "{ledger}");
}

/// Sends numbered messages, each filled with its number, through shared memory.
fn send_for_ever(bus: &str) {
    let keys = keys();
    let node = Node::open(&Bus::shared(bus).sealed(&keys), "sender").unwrap();
    let mut communicator = node.bind(1).unwrap();
    for number in 1_u64.. {
        let payload = [number.to_le_bytes(); 32].concat();
        match communicator.try_send(Target::everyone_at(1), &payload) {
            Ok(()) => {}
            Err(_) => std::thread::yield_now(),
        }
        if number.is_multiple_of(64) {
            std::thread::yield_now();
        }
    }
}

/// Goal: a port that is bound again has nothing once more that the communicator before it had, whatever a process writes into a peer's
/// shared memory. Messages that are sent then come. Method: the ring's tail says that an old message is the next, or its page that it is newer
/// than its reader.
#[test]
fn a_port_that_is_bound_again_has_nothing_once_more() {
    use punctual_machine::counter::Counter;
    use punctual_machine::memory::{Access, Mapping};
    const ENTERED: usize = 12;
    const TAIL: usize = (1_024 + 64) / 8;
    let clock = Clock::get();
    let _alive = watchdog(60);
    for attack in ["tail", "entered"] {
        let bus = unique(attack);
        let open = |name: &str| Node::open(&Bus::shared(&bus).sealed(&keys()), name).unwrap();
        let (reader, sender) = (open("reader"), open("sender"));
        let (mut receiver, mut speaker) = (reader.bind(1).unwrap(), sender.bind(1).unwrap());
        let mut other = reader.bind(2).unwrap();
        let mut say = |number: u64| {
            speaker.send_timeout(Target::port("reader", 1), &number.to_le_bytes(), PATIENCE).unwrap();
        };
        let receive = |receiver: &mut Communicator| {
            let message = receiver.receive_timeout(PATIENCE).unwrap();
            u64::from_le_bytes(message.payload.try_into().unwrap())
        };
        say(0);
        assert_eq!(receive(&mut receiver), 0);
        let folder = format!("/dev/shm/punctual.{}.{bus}", punctual_machine::process::user());
        let of_sender = sender.id().to_string();
        let ring = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(&of_sender) && name.ends_with(".stream")
        });
        let ring = Mapping::open(&ring.unwrap(), Access::ReadWrite).unwrap();
        let words: &[Counter] = ring.objects(0, ring.size() / 8).unwrap();
        let mut tail = [0, 0];
        for number in 1..10 {
            if number == 3 {
                tail = [words[TAIL].get(), words[TAIL + 1].get()];
            }
            say(number);
            assert_eq!(receive(&mut receiver), number);
        }
        assert_eq!(tail[1], 3);
        drop(receiver);
        if attack == "tail" {
            words[TAIL].set(tail[0]);
            words[TAIL + 1].set(tail[1]);
        } else {
            // As far ahead as the counters of two processors may be apart.
            words[ENTERED].set(clock.now().plus(clock.ticks(Duration::from_millis(900))).0);
        }
        let mut receiver = reader.bind(1).unwrap();
        let shown = if attack == "tail" { 7 } else { 10 };
        let ledger = wait_for(&reader, &mut receiver, |ledger| ledger.seal_replayed >= shown);
        assert_eq!((ledger.seal_replayed, ledger.disbelieved(), ledger.delivered), (shown, shown, 10));
        say(10);
        assert_eq!(receive(&mut receiver), 10, "{attack}");
        assert!(reader.ledger().is_balanced(), "{}", reader.ledger());
        assert_eq!(drain(&mut other), 0);
    }
}

/// Goal: a process may write over messages in a peer's shared memory while they are read. It gets nothing delivered that the peer did
/// not send, and nothing twice.
#[test]
fn a_message_altered_in_shared_memory_is_not_believed() {
    use punctual_machine::counter::Counter;
    use punctual_machine::memory::{Access, Mapping};
    let _alive = watchdog(120);
    let bus = unique("altered");
    let node = Node::open(&Bus::shared(&bus).sealed(&keys()), "reader").unwrap();
    let mut receiver = node.bind(1).unwrap();
    let _sender = Role::start("sealed_sender", &bus);
    receiver.receive_timeout(PATIENCE).unwrap();
    let folder = format!("/dev/shm/punctual.{}.{bus}", punctual_machine::process::user());
    let sender = NodeId::named("sender").to_string();
    let ring = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(&sender) && name.ends_with(".stream")
    });
    let ring = Mapping::open(&ring.unwrap(), Access::ReadWrite).unwrap();
    let words: &[Counter] = ring.objects(0, ring.size() / 8).unwrap();
    let (mut dice, mut last) = (Dice(23), 0);
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end || node.ledger().seal_bad_tag == 0 {
        // The records begin at 4 KiB; identity and control words before them are not what this is about.
        let word = &words[512 + dice.below((words.len() - 512) as u64) as usize];
        word.set(word.get() ^ (1_u64 << dice.below(64)));
        for _ in 0..dice.below(4) {
            let Ok(message) = receiver.try_receive() else { break };
            let number = u64::from_le_bytes(*message.payload.first_chunk().unwrap());
            assert_eq!(message.payload, [number.to_le_bytes(); 32].concat(), "altered");
            assert!(number > last, "{number} after {last}");
            last = number;
        }
        let ledger = node.ledger();
        if ledger.corrupt_peers > 0 {
            // A commit word was hit: the ring is not read any more.
            eprintln!("ended by a corrupt ring: {ledger}");
            return;
        }
    }
    eprintln!("{}", node.ledger());
}
