//! Bytes from an attacker: no panic, nothing believed that was not sent, nobody else disturbed.

mod common;

use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Dice, PATIENCE, Role, free_ports, on_ethernet, own_role, unique, watchdog};
use punctual::memory::{SharedOptions, Sharing};
use punctual::publication::OfferError;
use punctual::{Address, Bus, Communicator, Node, NodeId, PublicationOptions, SubscriptionOptions, Target};
use punctual_machine::counter::Counter;
use punctual_machine::memory::{Access, Mapping};
use punctual_machine::packet::{BROADCAST, ETHERTYPE_EXPERIMENTAL, PacketOptions, PacketSocket};
use punctual_machine::process::user;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::{Header, Kind, Port};

/// Where a node's file has its table of publications, and the file of one of them the number of its tail (docs/shared-memory.md).
const STREAMS_AT: usize = 12_288;
const TAIL_NUMBER_AT: usize = 1_096;

fn folder_of(bus: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/punctual.{}.{bus}", user()))
}

/// Puts a folder with these permissions under the name of a bus's; returns whether it has the owner that was asked for. It is never
/// empty there: other tests, which open nodes meanwhile, sweep away what is.
fn put_folder(bus: &str, mode: u32, owner: Option<u32>) -> std::io::Result<()> {
    let aside = PathBuf::from(format!("/dev/shm/{bus}.aside"));
    std::fs::create_dir(&aside).unwrap();
    std::fs::write(aside.join("keep.it"), b"").unwrap();
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(mode)).unwrap();
    let given = owner.map_or(Ok(()), |owner| std::os::unix::fs::chown(&aside, Some(owner), None));
    std::fs::rename(&aside, folder_of(bus)).unwrap();
    given
}

/// Other tests, which open nodes meanwhile, may sweep it away as soon as it is empty.
fn remove_folder(bus: &str) {
    let removed = std::fs::remove_dir_all(folder_of(bus));
    assert!(removed.is_ok() || !folder_of(bus).exists(), "{removed:?}");
}

/// A node's file with such an ending.
fn file_of(bus: &str, node: &Node, ending: &str) -> PathBuf {
    let files = std::fs::read_dir(folder_of(bus)).unwrap().map(|entry| entry.unwrap().path());
    let is_its = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&node.id().to_string()) && name.ends_with(ending)
    };
    files.into_iter().find(is_its).unwrap()
}

/// Not a test of its own: the work of the other process.
#[test]
fn role() {
    let Some((role, bus)) = own_role() else { return };
    match role.as_str() {
        "scribbler" => scribble(&bus),
        "truncator" => truncate(&bus),
        _ => panic!("{role}: no role"),
    }
}

/// Until the honest one has read what came. Messages that others send to everyone may come first.
fn await_reading(communicator: &mut Communicator) {
    while communicator.receive_timeout(PATIENCE).expect("nobody read it").payload != b"read" {}
}

/// Joins, sends a little, then writes random words over all files of its own and over everybody's bells.
fn scribble(bus: &str) {
    let node = Node::open(&Bus::shared(bus), "scribbler").unwrap();
    let mut communicator = node.bind(1).unwrap();
    for _ in 0..10 {
        communicator.send_timeout(Target::port("honest", 1), b"still honest", PATIENCE).unwrap();
    }
    await_reading(&mut communicator);
    let own = node.id().to_string();
    let files = std::fs::read_dir(folder_of(bus)).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<Mapping> = files
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.ends_with(".bell") || name.ends_with(".ring") && name.starts_with(&own)
        })
        .map(|path| Mapping::open(&path, Access::ReadWrite).unwrap())
        .collect();
    assert!(files.len() >= 4);
    let mut dice = Dice(u64::from(std::process::id()));
    loop {
        let file = &files[dice.below(files.len() as u64) as usize];
        let words: &[Counter] = file.objects(0, file.size() / 8).unwrap();
        // Mostly where something stands: the tables, the control words, the first records.
        let range = if dice.below(2) == 0 { words.len().min(4096) } else { words.len() };
        let word = &words[dice.below(range as u64) as usize];
        match dice.below(4) {
            0 => word.set(dice.below(u64::MAX)),
            1 => word.set(dice.below(256)),
            2 => word.set(word.get() ^ 1 << dice.below(64)),
            _ => word.set(word.get().wrapping_add(dice.below(64) << 32)),
        }
    }
}

/// Joins, sends a little, then cuts short every file of the bus, also those of others.
fn truncate(bus: &str) {
    let node = Node::open(&Bus::shared(bus), "scribbler").unwrap();
    let mut communicator = node.bind(1).unwrap();
    communicator.send_timeout(Target::port("honest", 1), b"still honest", PATIENCE).unwrap();
    await_reading(&mut communicator);
    let own = node.id().to_string();
    for entry in std::fs::read_dir(folder_of(bus)).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with(&own) && !name.ends_with(".post") {
            std::fs::OpenOptions::new().write(true).open(entry.path()).unwrap().set_len(0).unwrap();
        }
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Opens a node on a bus of our own group, gives its file's name to something else, and subscribes.
fn subscribe_while_the_name_is_taken(take: impl FnOnce(&Path)) {
    let group = rustix::process::getegid().as_raw();
    let bus = unique("taken");
    let options = SharedOptions { sharing: Sharing::Group(group), ..SharedOptions::new(&bus) };
    let node = Node::open(&Bus::Shared(options), "node").unwrap();
    let folder = PathBuf::from(format!("/dev/shm/punctual.g{group}.{bus}"));
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let ring = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "ring")).unwrap();
    std::fs::remove_file(&ring).unwrap();
    take(&ring);
    let _may_be_refused = node.subscription(7, &SubscriptionOptions::default());
    drop(node);
    let _all_tidied = std::fs::remove_dir_all(folder);
}

/// Goal: an attacker that may write to the folder of a group's bus makes nobody else write to files of his own, nor wait for ever.
#[test]
fn an_attacker_that_takes_a_name_makes_nobody_write_elsewhere() {
    let _alive = watchdog(60);
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    let (file, content) = (elsewhere.path().join("file"), vec![7; 200_000]);
    std::fs::write(&file, &content).unwrap();
    subscribe_while_the_name_is_taken(|ring| symlink(&file, ring).unwrap());
    assert!(std::fs::read(&file).unwrap() == content, "the link was followed");
    subscribe_while_the_name_is_taken(|ring| {
        rustix::fs::mkfifoat(rustix::fs::CWD, ring, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    });
}

/// Puts another's ring into a node's own table, and something of that name beside it.
fn claim(bus: &str, thief: &Node, id: &str) {
    let file = file_of(bus, thief, ".ring");
    std::fs::write(file.with_extension(format!("{id}.stream")), [0; 8192]).unwrap();
    let table = Mapping::open(&file, Access::ReadWrite).unwrap();
    let words: &[Counter] = table.objects(STREAMS_AT, 2).unwrap();
    words[1].set(u64::MAX << 48);
    words[0].publish(u64::from_str_radix(id, 16).unwrap());
}

/// Goal: a node that puts another's ring into its own table, and something of that name beside it, keeps nobody from reading the true
/// one. Method: there are two such, so that one of them is looked at before the honest one in whichever order a folder lists them.
#[test]
fn a_node_that_claims_anothers_ring_keeps_nobody_from_it() {
    let _alive = watchdog(60);
    let bus = unique("claimed");
    let [earlier, honest, later, reader] =
        ["earlier", "honest", "later", "reader"].map(|name| Node::open(&Bus::shared(&bus), name).unwrap());
    let options = PublicationOptions::default();
    // So that each has a table.
    let _own =
        [&earlier, &later].map(|thief| thief.publication(Target::port("reader", 9), &options).unwrap());
    let mut publication = honest.publication(Target::port("reader", 7), &options).unwrap();
    let stream = file_of(&bus, &honest, ".stream");
    let id = stream.file_stem().unwrap().to_str().unwrap().rsplit_once('.').unwrap().1;
    [&earlier, &later].into_iter().for_each(|thief| claim(&bus, thief, id));
    let mut subscription = reader.subscription(7, &SubscriptionOptions::default()).unwrap();
    publication.offer(b"the true one").unwrap();
    assert_eq!(subscription.poll(1, |_| ()), 1, "it was never followed");
    drop((subscription, publication, earlier, honest, later, reader));
    let _all_tidied = std::fs::remove_dir_all(folder_of(&bus));
}

/// Goal: statements of a ring that no honest writer could make are not counted as unread by a closing receiver, also if several rings
/// make them.
#[test]
fn messages_that_nobody_can_have_sent_are_not_unread() {
    let _alive = watchdog(60);
    let bus = unique("unread");
    let [one, other, honest, reader] =
        ["one", "other", "honest", "reader"].map(|name| Node::open(&Bus::shared(&bus), name).unwrap());
    let receiver = reader.bind(7).unwrap();
    let mut publications = [&one, &other, &honest]
        .map(|node| node.publication(Target::port("reader", 7), &PublicationOptions::default()).unwrap());
    publications.iter_mut().for_each(|publication| publication.offer(b"never read").unwrap());
    for node in [&one, &other] {
        let ring = Mapping::open(&file_of(&bus, node, ".stream"), Access::ReadWrite).unwrap();
        let number: &Counter = ring.object(TAIL_NUMBER_AT).unwrap();
        assert_eq!(number.get(), 1, "the number of the tail");
        number.set(u64::MAX);
    }
    drop(receiver);
    let ledger = reader.ledger();
    assert_eq!(ledger.unread, 1, "{ledger}");
    drop((publications, one, other, honest, reader));
    let _all_tidied = std::fs::remove_dir_all(folder_of(&bus));
}

/// Goal: a process that cuts its files short under those who read them ends nobody.
#[test]
fn a_truncator_ends_nobody() {
    let _alive = watchdog(60);
    let bus = unique("truncate");
    let here = Node::open(&Bus::shared(&bus), "here").unwrap();
    let honest = Node::open(&Bus::shared(&bus), "honest").unwrap();
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), honest.bind(1).unwrap());
    let mut truncator = Role::start("truncator", &bus);
    assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, b"still honest");
    receiver.send_timeout(Target::port("scribbler", 1), b"read", PATIENCE).unwrap();
    let end = Instant::now() + Duration::from_millis(250);
    while Instant::now() < end {
        exchange((&mut sender, &mut receiver), honest.id(), 50, || {});
        // Also its doorbell is gone.
        sender.send_timeout(Target::EVERYONE, &0_u64.to_le_bytes(), PATIENCE).unwrap();
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, 0_u64.to_le_bytes());
    }
    assert_eq!(truncator.ended(), None, "it ended before its harm was done");
    truncator.kill();
    exchange((&mut sender, &mut receiver), honest.id(), 50, || {});
    let account = honest.peers().into_iter().find(|account| account.node == here.id()).unwrap();
    assert_eq!((account.lost, account.missing), (0, 0), "{}", honest.ledger());
    drop((sender, receiver, here, honest));
    let _all_tidied = std::fs::remove_dir_all(folder_of(&bus));
}

/// Sends numbers from one to the other and checks that each arrives, while `disturb` is at work.
fn exchange(
    (sender, receiver): (&mut Communicator, &mut Communicator),
    to: NodeId,
    rounds: u64,
    mut disturb: impl FnMut(),
) {
    let genuine: [NodeId; 2] = [sender.address().node, NodeId::named("scribbler")];
    for number in 0..rounds {
        disturb();
        sender.send_timeout(Target::port(to, 1), &number.to_le_bytes(), PATIENCE).unwrap();
        loop {
            let message = receiver.receive_timeout(PATIENCE).expect("an honest message was lost");
            assert!(genuine.contains(&message.source.node), "from {}", message.source);
            if message.source.node == genuine[0] {
                assert_eq!(message.payload, number.to_le_bytes());
                break;
            }
        }
    }
}

/// Goal: a process that scribbles over its own ring, tables and header, and over all doorbells, harms nobody.
#[test]
fn a_scribbler_harms_nobody_else() {
    let _alive = watchdog(90);
    for _ in 0..6 {
        let bus = unique("scribble");
        let here = Node::open(&Bus::shared(&bus), "here").unwrap();
        let honest = Node::open(&Bus::shared(&bus), "honest").unwrap();
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), honest.bind(1).unwrap());
        let mut scribbler = Role::start("scribbler", &bus);
        let message = receiver.receive_timeout(PATIENCE).unwrap();
        assert_eq!(message.payload, b"still honest");
        receiver.send_timeout(Target::port("scribbler", 1), b"read", PATIENCE).unwrap();
        let end = Instant::now() + Duration::from_millis(250);
        while Instant::now() < end {
            exchange((&mut sender, &mut receiver), honest.id(), 50, || {});
        }
        assert_eq!(scribbler.ended(), None, "it ended before its harm was done");
        scribbler.kill();
        exchange((&mut sender, &mut receiver), honest.id(), 50, || {});
        let account = honest.peers().into_iter().find(|account| account.node == here.id()).unwrap();
        assert_eq!((account.lost, account.missing), (0, 0), "{}", honest.ledger());
        assert!(honest.ledger().is_balanced());
        drop((sender, receiver, here, honest));
        // Memory that it scribbled over may say that it left of its own accord: then nobody tidies up after it.
        let _all_tidied = std::fs::remove_dir_all(folder_of(&bus));
    }
}

/// Goal: a publication finds a reader, and it the publication, though somebody has cut short the file by which visits are told.
#[test]
fn a_reader_is_found_without_its_visit() {
    let _alive = watchdog(60);
    let bus = unique("unannounced");
    let here = Node::open(&Bus::shared(&bus), "here").unwrap();
    let there = Node::open(&Bus::shared(&bus), "there").unwrap();
    let mut publication = here.publication(Target::EVERYONE, &PublicationOptions::default()).unwrap();
    let own = here.id().to_string();
    let files = std::fs::read_dir(folder_of(&bus)).unwrap().map(|entry| entry.unwrap().path());
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with(&own) && name.ends_with(".bell") {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        }
    }
    // From now on it sees no visit any more.
    assert_eq!(publication.offer(b"nobody"), Err(OfferError::NotConnected));
    let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
    let end = Instant::now() + PATIENCE;
    while publication.offer(b"hello") == Err(OfferError::NotConnected) {
        assert!(Instant::now() < end, "nobody was found");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut buffer = [0; 16];
    let size = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap().size;
    assert_eq!(&buffer[..size], b"hello");
    drop((publication, subscription, here, there));
    let _all_tidied = std::fs::remove_dir_all(folder_of(&bus));
}

/// Random bytes, bytes that begin like a frame, and genuine frames with one byte altered.
fn garbage(dice: &mut Dice, to: NodeId) -> Vec<u8> {
    let size = [0, 1, 31, 32, 60, 100, 1400][dice.below(7) as usize];
    let mut bytes: Vec<u8> = (0..size).map(|_| dice.below(256) as u8).collect();
    if let (true, Some(head)) = (dice.below(2) == 0, bytes.first_chunk_mut::<HEADER_SIZE>()) {
        let header = Header {
            kind: [Kind::Data, Kind::Hello, Kind::Goodbye][dice.below(3) as usize],
            incarnation: dice.below(65_536) as u16,
            source: Address { node: NodeId::named("here"), port: Port::from(1) },
            target: Target::node(to),
            sequence: dice.below(1 << 32) as u32,
            payload_size: dice.below(2_000) as u32,
            stamped: dice.below(2) == 0,
            sealed: false,
        };
        header.write(head);
    }
    bytes
}

/// Goal: garbage on the wire, also in the name of a peer, is counted and believed by nobody.
#[test]
fn garbage_on_the_wire_is_counted_and_not_believed() {
    let _alive = watchdog(90);
    let (a, b) = free_ports();
    let here = Node::open(&Bus::peers(a, &[b]), "here").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // With one peer the kernel would refuse what a stranger sends: with two it comes through.
    let there = Node::open(&Bus::peers(b, &[a, free_ports().0]), "there").unwrap();
    let mut dice = Dice(23);
    check_garbage(&here, &there, &mut || {
        socket.send_to(&garbage(&mut dice, NodeId::named("there")), b).unwrap();
    });
    let (mut sender, mut receiver) = (here.bind(2).unwrap(), there.bind(1).unwrap());
    socket.send_to(&vec![0xB5; 65_507], b).unwrap();
    exchange((&mut sender, &mut receiver), there.id(), 1, || {});
    on_ethernet(|medium| {
        let (here, there) = common::open_both(medium);
        let options = PacketOptions::default();
        let mut socket = PacketSocket::open("pta", ETHERTYPE_EXPERIMENTAL, &options).unwrap();
        let mut dice = Dice(29);
        check_garbage(&here, &there, &mut || {
            let bytes = garbage(&mut dice, NodeId::named("there"));
            let slot = socket.sender.claim(bytes.len()).unwrap();
            slot[..bytes.len()].copy_from_slice(&bytes);
            socket.sender.commit(BROADCAST);
            socket.sender.flush().unwrap();
        });
    });
}

/// Goal: of two that know each other, neither hears a stranger.
#[test]
fn a_lone_peer_is_the_only_one_heard() {
    let _alive = watchdog(60);
    let (a, b) = free_ports();
    let here = Node::open(&Bus::peers(a, &[b]), "here").unwrap();
    let there = Node::open(&Bus::peers(b, &[a]), "there").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    exchange((&mut sender, &mut receiver), there.id(), 200, || {
        // Refused by the kernel, which may say so in answer to a later call.
        let _refused = socket.send_to(&[0xB5; 64], b);
    });
    let ledger = there.ledger();
    assert!(ledger.bad_frames == 0 && ledger.is_balanced(), "{ledger}");
}

fn check_garbage(here: &Node, there: &Node, throw: &mut dyn FnMut()) {
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    exchange((&mut sender, &mut receiver), there.id(), 2_000, throw);
    let (account, ledger) = (there.peers().remove(0), there.ledger());
    assert_eq!((account.arrived, account.lost, account.missing), (2_000, 0, 0), "{ledger}");
    assert_eq!(there.peers().len(), 1, "nobody was made up");
    assert!(ledger.bad_frames > 1_900 && ledger.is_balanced(), "{ledger}");
}

/// Goal: folders that others could write to, or that are none, are refused in words, and so are names that lead elsewhere.
#[test]
fn others_folders_and_strange_names_are_refused() {
    let _alive = watchdog(120);
    for name in ["", ".", "..", "a/b", "a\0b", "ä", &"x".repeat(33), "a b", "a\nb"] {
        assert!(Node::open(&Bus::shared(name), "node").is_err(), "{name:?}");
        assert!(Node::open(&Bus::loopback(&unique("names")), name).is_err(), "{name:?}");
    }
    let refused = |bus: &str, why: &str| {
        let error = Node::open(&Bus::shared(bus), "node").expect_err(why).to_string();
        assert!(error.contains("somebody else"), "{why}: {error}");
    };
    let open = unique("open");
    put_folder(&open, 0o777, None).unwrap();
    refused(&open, "a folder that everybody may write to");
    remove_folder(&open);
    let link = unique("link");
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), folder_of(&link)).unwrap();
    refused(&link, "a link to somewhere else");
    std::fs::remove_file(folder_of(&link)).unwrap();
    let file = unique("file");
    std::fs::write(folder_of(&file), b"").unwrap();
    refused(&file, "a file");
    std::fs::remove_file(folder_of(&file)).unwrap();
    let theirs = unique("theirs");
    let given_away = put_folder(&theirs, 0o700, Some(65_534));
    let is_theirs = given_away.is_ok() && punctual_machine::process::user() != 65_534;
    if is_theirs {
        refused(&theirs, "another user's folder");
    } else {
        punctual_machine::skipped!("another user's folder: only root can give one away ({given_away:?})");
    }
    remove_folder(&theirs);
}

/// Goal: files in a bus's folder that are no segments are passed over: pipes, links, huge and empty files.
#[test]
fn a_file_that_is_no_segment_is_passed_over() {
    let _alive = watchdog(120);
    let bus = unique("strange");
    let here = Node::open(&Bus::shared(&bus), "here").unwrap();
    let ring = |node: &str| folder_of(&bus).join(format!("{node}.00000000000000ff.ring"));
    let pipe = ring("00000000000000a1");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    std::fs::File::create(ring("00000000000000a2")).unwrap().set_len(1 << 40).unwrap();
    std::fs::File::create(ring("00000000000000a3")).unwrap();
    symlink("/dev/zero", ring("00000000000000a4")).unwrap();
    let there = Node::open(&Bus::shared(&bus), "there").unwrap();
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    exchange((&mut sender, &mut receiver), there.id(), 10, || {});
    drop((sender, receiver, here, there));
    remove_folder(&bus);
}

/// Goal: the content of a bus's folder does not keep nodes that are there from their messages, regardless of arrivals and departures.
/// Method: the kernel tells who opens a file of the folder. A node that joins looks at each once; a node that is there, at none.
#[test]
fn nodes_that_are_there_do_not_read_the_folder() {
    use rustix::fs::inotify;
    const JUNK: usize = 500;
    const GUESTS: usize = 5;
    let _alive = watchdog(60);
    let bus = unique("junk");
    let here = Node::open(&Bus::shared(&bus), "here").unwrap();
    let there = Node::open(&Bus::shared(&bus), "there").unwrap();
    let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
    for number in 1..=JUNK {
        std::fs::write(folder_of(&bus).join(format!("{:016x}.{number:016x}.ring", 7)), [0; 4096]).unwrap();
        std::fs::write(folder_of(&bus).join(format!("{number}.junk")), b"").unwrap();
    }
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, folder_of(&bus), inotify::WatchFlags::OPEN).unwrap();
    let (mut rings, mut others) = (0, 0);
    for _ in 0..GUESTS {
        let guest = Node::open(&Bus::shared(&bus), "guest").unwrap();
        let mut communicator = guest.bind(1).unwrap();
        exchange((&mut communicator, &mut receiver), there.id(), 1, || {});
        drop((communicator, guest));
        exchange((&mut sender, &mut receiver), there.id(), 10, || {});
        exchange((&mut receiver, &mut sender), here.id(), 10, || {});
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut space);
        while let Ok(event) = events.next() {
            let name = event.file_name().map_or("", |name| name.to_str().unwrap()).to_owned();
            rings += usize::from(name.starts_with("0000000000000007."));
            others += usize::from(name.ends_with(".junk"));
        }
    }
    assert_eq!((rings, others), (GUESTS * JUNK, 0));
    drop((sender, receiver, here, there));
    remove_folder(&bus);
}
