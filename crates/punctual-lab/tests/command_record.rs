//! `punctual record` and `punctual replay`: every message is in the file or counted, nobody is disturbed, and what is said again is
//! what was said, in its order.

mod common;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Ended, Place, Started, count, punctual, text};
use punctual::memory::WhenFull;
use punctual::publication::OfferError;
use punctual::{
    Address, Bus, Keys, Node, NodeOptions, PublicationOptions, SubscriptionOptions, Target, Wake,
};
use punctual_lab::recording::reading::{Contents, Recording};
use punctual_machine::process::random;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::pcapng::{Block, Packet, block_size, read_block, write_packet, write_start};
use punctual_proto::{Frame, Header, Kind, NodeId};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// The endings of both formats.
const FORMATS: [&str; 2] = ["pcapng", "mcap"];

fn unique(name: &str) -> String {
    format!("{name}-{:x}", random() & 0xFFFF_FFFF)
}

fn held_back() -> PublicationOptions {
    PublicationOptions {
        source: 3,
        when_full: Some(WhenFull::HoldBack),
        stamps: punctual::publication::StampChoice::Ends,
        ..PublicationOptions::default()
    }
}

/// As urgent as the stream's own threads, which leave it no processor otherwise.
const AS_OTHERS: &str = "--sched other --every 100us";

/// A recorder that has begun.
fn recorder(place: &Place, bus: &str, file: &str, more: &str) -> Started {
    let arguments = format!("record {bus} --out {file} --json record.json {AS_OTHERS} {more}");
    let mut started = place.start(punctual(&arguments));
    let err = started.err_path();
    started.has("a recorder", || text(&err).contains("recording"));
    started
}

fn said(place: &Place) -> Value {
    serde_json::from_str(&text(&place.path("record.json"))).expect("JSON")
}

/// Ends a recorder that has seen all there is to see.
fn end(place: &Place, started: Started) -> (Ended, Value) {
    std::thread::sleep(Duration::from_millis(300));
    started.signal("-INT");
    let ended = started.end();
    (ended, said(place))
}

/// The message of this number: its size and its bytes follow from it.
fn message(number: u64, largest: u64) -> Vec<u8> {
    let mut message = vec![number as u8; 8 + (number % largest) as usize];
    message[..8].copy_from_slice(&number.to_le_bytes());
    message
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a number"))
}

/// A sender and a reader of another process than the recorder's, at full rate.
struct Stream {
    name: String,
    here: Node,
    there: Node,
}

impl Stream {
    fn new() -> Self {
        let name = unique("record");
        let bus = Bus::shared(&name);
        Self { here: Node::open(&bus, "here").unwrap(), there: Node::open(&bus, "there").unwrap(), name }
    }

    fn bus(&self) -> String {
        format!("shared:{}", self.name)
    }

    /// Sends as fast as the reader reads, all of which arrive. Calls `meanwhile` after each thousand.
    fn run(&self, messages: u64, largest: u64, mut meanwhile: impl FnMut(u64)) {
        let mut subscription = self.there.subscription(7, &SubscriptionOptions::default()).unwrap();
        let mut publication = self.here.publication(Target::port("there", 7), &held_back()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                for next in 0..messages {
                    let received = subscription.receive_timeout(PATIENCE, &mut buffer).unwrap();
                    assert_eq!((received.sequence, received.lost_before), (next, 0));
                }
            });
            for number in 0..messages {
                let message = message(number, largest);
                let start = Instant::now();
                while publication.offer(&message) == Err(OfferError::Full) {
                    assert!(start.elapsed() < PATIENCE, "held back at {number}");
                    std::thread::yield_now();
                }
                if number % 1000 == 999 {
                    meanwhile(number);
                }
            }
        });
    }
}

/// Reads a recording of one stream: each message is whole, in order, once. Returns the number of messages, and of the numbers that are
/// missing before the last one that is there.
#[track_caller]
fn check(file: &Path, largest: u64) -> (u64, u64) {
    let mut recording = Recording::open(file).expect("a recording");
    let (mut bytes, mut messages, mut next) = (Vec::new(), 0, 0);
    let mut instant = 0;
    while let Some(entry) = recording.next(&mut bytes).expect("whole") {
        let found = number(&bytes);
        assert!(found >= next, "{found} after {next}");
        assert_eq!(bytes, message(found, largest), "{found}");
        assert_eq!(entry.sequence, found);
        let source = Address { node: NodeId::named("here"), port: 3.into() };
        assert_eq!((entry.source, entry.target), (source, Target::port("there", 7)));
        assert!(entry.instant_ns() >= instant, "one sender's instants do not go back");
        instant = entry.instant_ns();
        (messages, next) = (messages + 1, found + 1);
    }
    // A name stands beside the first message; a recorder that stood still may have missed all of them.
    let expected = (messages > 0).then_some("here");
    assert_eq!(recording.told.names.get(&NodeId::named("here")).map(String::as_str), expected);
    (messages, next - messages)
}

/// Goal: beside a stream at full rate every message is in the file or counted, whole and in order, and all arrive at their reader.
#[test]
fn beside_a_stream_at_full_rate_everything_is_in_the_file_or_counted() {
    const MESSAGES: u64 = 400_000;
    for format in FORMATS {
        let (place, stream) = (Place::new(), Stream::new());
        let file = format!("stream.{format}");
        let started = recorder(&place, &stream.bus(), &file, "");
        stream.run(MESSAGES, 200, |_| ());
        let (ended, said) = end(&place, started);
        let (messages, _) = check(&place.path(&file), 200);
        assert_eq!(count(&said, "messages"), messages, "{said:#}");
        assert_eq!(messages + count(&said, "missed"), MESSAGES, "{said:#}");
        let is_whole = count(&said, "missed") == 0;
        assert_eq!(ended.code, Some(if is_whole { 0 } else { 1 }), "{}", ended.err);
        assert_eq!(count(&said, "sources"), 1);
        eprintln!("{format}: {messages} of {MESSAGES} recorded");
        if format == "pcapng" {
            let contents = Contents::of(&place.path(&file)).unwrap();
            // Messages missing behind the last one stand in the statistics only.
            assert!(contents.missed <= count(&said, "missed"), "{said:#}");
        }
    }
}

/// Goal: a recorder that stands still holds nobody back, and counts what it missed.
#[test]
fn a_recorder_that_is_stopped_holds_nobody_back() {
    const MESSAGES: u64 = 100_000;
    let (place, stream) = (Place::new(), Stream::new());
    let started = recorder(&place, &stream.bus(), "stopped.pcapng", "");
    stream.run(MESSAGES, 100, |number| match number {
        19_999 => started.signal("-STOP"),
        89_999 => started.signal("-CONT"),
        _ => {}
    });
    let (ended, said) = end(&place, started);
    let (messages, _) = check(&place.path("stopped.pcapng"), 100);
    assert_eq!(messages + count(&said, "missed"), MESSAGES, "{said:#}");
    assert!(count(&said["missed_by"], "lost_overrun") > 10_000, "{said:#}");
    let ended = ended.with(1);
    assert!(ended.err.contains("missing"), "{}", ended.err);
}

/// Goal: of a recorder that is killed, the file can be read and played up to its last bytes.
#[test]
fn a_killed_recorder_leaves_a_file_that_can_be_read() {
    const MESSAGES: u64 = 400_000;
    for format in FORMATS {
        let (place, stream) = (Place::new(), Stream::new());
        let file = format!("killed.{format}");
        let mut started = recorder(&place, &stream.bus(), &file, "");
        let size = || fs::metadata(place.path(&file)).expect("it is there").len();
        let begun = size();
        stream.run(MESSAGES, 500, |number| {
            if number == MESSAGES / 2 - 1 {
                // It writes what it has every half a second, which may be longer than the stream takes up to here.
                started.has("messages in the file", || size() > begun + 8192);
                started.signal("-KILL");
            }
        });
        assert_eq!(started.end().code, None);
        let (messages, _) = check(&place.path(&file), 500);
        assert!(messages > 0 && messages < MESSAGES, "{messages}");
        let cut = fs::read(place.path(&file)).unwrap();
        // Wherever it is cut, what stands before can be read.
        for size in [cut.len() - 1, cut.len() - 7, cut.len() / 2, 100] {
            fs::write(place.path("cut"), &cut[..size]).unwrap();
            let mut recording = Recording::open(&place.path("cut")).expect("it begins as one");
            let mut bytes = Vec::new();
            while recording.next(&mut bytes).expect("whole up to there").is_some() {}
        }
        let bus = format!("shared:{}", unique("replay"));
        let ended = place.punctual(&format!("replay {file} --bus {bus} --speed max")).with(1);
        assert!(ended.err.contains("unreachable"), "nobody is there: {}", ended.err);
        assert!(ended.err.contains("(nobody reads there: start the readers first)"), "{}", ended.err);
    }
}

/// Receives what is played: the numbers of all messages, in their order.
fn listen(bus: &Bus, node: &str, messages: u64) -> std::thread::JoinHandle<Vec<u64>> {
    let node = Node::open(bus, node).unwrap();
    let mut subscription = node.subscription(7, &SubscriptionOptions { wake: Wake::Futex }).unwrap();
    std::thread::spawn(move || {
        let _open = node;
        let (mut numbers, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while (numbers.len() as u64) < messages {
            let received = subscription.receive_timeout(PATIENCE, &mut buffer).expect("it comes");
            assert_eq!(received.source, Address { node: NodeId::named("here"), port: 3.into() });
            numbers.push(number(&buffer[..received.size]));
        }
        numbers
    })
}

/// Goal: the messages that are played are those that were recorded, in their order, by a node of the same name; the lateness is said.
/// At full speed and at the instants of then.
#[test]
fn played_messages_are_the_recorded_ones_in_their_order() {
    const MESSAGES: u64 = 5_000;
    for format in FORMATS {
        let (place, stream) = (Place::new(), Stream::new());
        let file = format!("play.{format}");
        let started = recorder(&place, &stream.bus(), &file, "");
        let begin = Instant::now();
        stream.run(MESSAGES, 300, |_| std::thread::sleep(Duration::from_millis(60)));
        let took = begin.elapsed();
        let (_, said) = end(&place, started);
        let messages = count(&said, "messages");
        let expected: Vec<u64> = {
            let mut recording = Recording::open(&place.path(&file)).unwrap();
            let mut bytes = Vec::new();
            std::iter::from_fn(|| recording.next(&mut bytes).unwrap().map(|_| number(&bytes))).collect()
        };
        assert_eq!(expected.len() as u64, messages);
        for speed in ["max", "1", "4"] {
            let name = unique("replay");
            let listener = listen(&Bus::shared(&name), "there", messages);
            let bus = format!("shared:{name}");
            let call = format!("replay {file} --bus {bus} --speed {speed} --hold-back --json -");
            let ended = place.punctual(&call).with(0);
            let played: Value = serde_json::from_str(&ended.out).expect("JSON");
            assert_eq!(count(&played, "sent"), messages, "{played:#}");
            assert_eq!(listener.join().unwrap(), expected, "{format} {speed}: another order");
            if speed == "max" {
                assert!(played["lateness_ns"]["p50"].is_null(), "{played:#}");
                continue;
            }
            let late: Vec<u64> =
                ["p50", "p99", "max"].map(|name| count(&played["lateness_ns"], name)).to_vec();
            assert!(late.is_sorted(), "{played:#}");
            let times: u64 = speed.parse().unwrap();
            let recorded = count(&played, "recorded_ns");
            assert!(recorded <= took.as_nanos() as u64, "{played:#}");
            // Of a stream that overtook the recorder the beginning may be missing.
            let pauses = expected[expected.len() - 1] / 1_000 - expected[0] / 1_000;
            assert!(pauses > 0 && recorded >= pauses * 60_000_000, "the pauses were recorded: {played:#}");
            // The last one is due then, and never sent before.
            assert!(count(&played, "played_ns") + late[2] >= recorded / times, "{played:#}");
        }
    }
}

/// Goal: on a table for people stand the quantiles, in the recording's own words what it lacks.
#[test]
fn a_replay_prints_its_lateness() {
    let (place, stream) = (Place::new(), Stream::new());
    let started = recorder(&place, &stream.bus(), "table.mcap", "--count 100");
    stream.run(1_000, 10, |_| ());
    let ended = started.end();
    assert!(matches!(ended.code, Some(0 | 1)), "{}", ended.err);
    assert_eq!(count(&said(&place), "messages"), 100);
    let name = unique("replay");
    let listener = listen(&Bus::shared(&name), "there", 100);
    let bus = format!("shared:{name}");
    let ended = place.punctual(&format!("replay table.mcap --bus {bus}")).with(0);
    for word in ["late p50", "p99", "max", "100", &bus] {
        assert!(ended.out.contains(word), "{word}: {}", ended.out);
    }
    assert_eq!(listener.join().unwrap().len(), 100);
}

/// Goal: a recording that looks seldom ends as soon as it has what was asked for, or is interrupted. Method: it has seen nothing for so
/// long that it would not look again for an hour.
#[test]
fn a_recording_that_looks_seldom_ends_at_once() {
    for asked in ["--count 100", ""] {
        let (place, stream) = (Place::new(), Stream::new());
        let call = format!(
            "record {} --out seldom.mcap --json record.json --sched other --every 1h {asked}",
            stream.bus()
        );
        let mut started = place.start(punctual(&call));
        let err = started.err_path();
        started.has("a recorder", || text(&err).contains("recording"));
        std::thread::sleep(Duration::from_secs(1));
        stream.run(1_000, 10, |_| ());
        std::thread::sleep(Duration::from_millis(300));
        if asked.is_empty() {
            started.signal("-INT");
        }
        let ended = started.end();
        assert!(matches!(ended.code, Some(0 | 1)), "{}", ended.err);
        let messages = count(&said(&place), "messages");
        assert!(messages == 100 || asked.is_empty() && messages > 0, "{asked:?}: {messages}");
    }
}

/// Goal: a result is never written over its recording, by whatever name; what stands there stays.
#[test]
fn a_result_is_refused_the_place_of_its_recording() {
    let (place, stream) = (Place::new(), Stream::new());
    let refused = |call: &str| {
        let ended = place.punctual(call).with(2);
        assert!(ended.err.contains("this is the recording"), "{}", ended.err);
    };
    let record = |json: &str| format!("record {} --out new.mcap --duration 1ms --json {json}", stream.bus());
    std::os::unix::fs::symlink("new.mcap", place.path("link")).unwrap();
    for json in ["new.mcap", "./new.mcap", "link"] {
        refused(&record(json));
        assert!(!place.path("new.mcap").exists(), "{json}");
    }
    let started = recorder(&place, &stream.bus(), "table.mcap", "--count 10");
    stream.run(100, 10, |_| ());
    started.end();
    let recorded = fs::read(place.path("table.mcap")).unwrap();
    refused("replay table.mcap --json table.mcap");
    assert_eq!(fs::read(place.path("table.mcap")).unwrap(), recorded);
}

/// Goal: where the file can grow no further, it ends with a clear error, and what is in it is whole and counted.
/// Method: the shell's limit of files, above what a node's ring needs.
#[test]
fn a_full_disk_ends_it_with_a_valid_file() {
    const MESSAGES: u64 = 200_000;
    for format in FORMATS {
        let (place, stream) = (Place::new(), Stream::new());
        let file = format!("full.{format}");
        let program = env!("CARGO_BIN_EXE_punctual");
        let asked = format!("record {} --out {file} --json record.json {AS_OTHERS}", stream.bus());
        let call = format!("ulimit -f 4096; exec {program} {asked}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &call]);
        let mut started = place.start(shell);
        let err = started.err_path();
        started.has("a recorder", || text(&err).contains("recording"));
        // A fast stream overtakes the recorder, which then sees too little to fill its file.
        stream.run(MESSAGES, 200, |_| std::thread::sleep(Duration::from_millis(1)));
        let ended = started.end().with(3);
        assert!(ended.err.contains(&file) && ended.err.contains("ulimit -f"), "{}", ended.err);
        let said = said(&place);
        let (messages, _) = check(&place.path(&file), 200);
        assert_eq!(count(&said, "messages"), messages, "{said:#}");
        assert!(messages > 1_000 && messages < MESSAGES, "{said:#}");
        assert!(count(&said["missed_by"], "not_written") > 0, "{said:#}");
        let contents = Contents::of(&place.path(&file)).unwrap();
        assert!(!contents.told.is_cut, "{format}: its end is an end");
        assert_eq!(count(&said, "missed"), contents.missed, "{format}: a reader of it is told the same");
        let size = fs::metadata(place.path(&file)).unwrap().len();
        assert_eq!(count(&said, "file_bytes"), size, "{said:#}");
    }
}

/// Goal: on a disk that is full to its last byte, too, who reads the file is told what the recorder said.
/// Method: a small file system in a namespace of mounts of its own.
#[test]
fn a_disk_without_any_room_tells_what_is_missing() {
    const MESSAGES: u64 = 100_000;
    for format in FORMATS {
        let (place, stream) = (Place::new(), Stream::new());
        fs::create_dir(place.path("disk")).unwrap();
        let program = env!("CARGO_BIN_EXE_punctual");
        let bus = stream.bus();
        let file = format!("disk/full.{format}");
        // A bus belongs to a user: the recorder has to be the one who sends, though another one had to mount.
        let user = rustix::process::geteuid().as_raw();
        let call = format!(
            "mount -t tmpfs -o size=1m none disk || exit 99; \
             unshare --user --map-user={user} {program} record {bus} --out {file} --json record.json {AS_OTHERS}; \
             code=$?; cp {file} out.{format}; exit $code"
        );
        let mut shell = std::process::Command::new("unshare");
        shell.args(["--map-root-user", "--mount", "sh", "-c", &call]);
        let mut started = place.start(shell);
        let err = started.err_path();
        if started.ends_before(|| text(&err).contains("recording")) {
            punctual_machine::skipped!("no namespace of mounts: {}", text(&err));
            return;
        }
        // A fast stream overtakes the recorder, which then sees too little to fill its disk.
        stream.run(MESSAGES, 200, |_| std::thread::sleep(Duration::from_millis(1)));
        let ended = started.end().with(3);
        assert!(ended.err.contains(&file) && ended.err.contains("free some room"), "{}", ended.err);
        let (said, copy) = (said(&place), place.path(&format!("out.{format}")));
        let (messages, _) = check(&copy, 200);
        let contents = Contents::of(&copy).unwrap();
        assert_eq!((count(&said, "messages"), contents.messages), (messages, messages), "{said:#}");
        assert!(!contents.told.is_cut && contents.missed > 0, "{format}: {:?}", contents.told);
        assert_eq!(count(&said, "missed"), contents.missed, "{format}: {said:#}");
    }
}

/// The message of this number, larger than a frame.
fn large(number: u64, size: usize) -> Vec<u8> {
    let mut message: Vec<u8> = (0..size).map(|at| (at as u64 * 31 + number) as u8).collect();
    message[..8].copy_from_slice(&number.to_le_bytes());
    message
}

/// A node that has messages of up to 64 MiB.
fn large_node(bus: &Bus, name: &str) -> Node {
    NodeOptions::new(name).message_size_max(64 << 20).open(bus).unwrap()
}

/// The numbers of large messages of one size in a file, all of them whole.
fn large_numbers(file: &Path, size: usize) -> Vec<u64> {
    let (mut recording, mut bytes) = (Recording::open(file).unwrap(), Vec::new());
    let mut next = || {
        recording.next(&mut bytes).unwrap()?;
        let number = number(&bytes);
        assert!(bytes == large(number, size), "{number} is another one");
        Some(number)
    };
    std::iter::from_fn(&mut next).collect()
}

/// Goal: messages larger than a frame are in the file, whole, or counted; and are said again whole.
#[test]
fn large_messages_are_in_the_file_or_counted() {
    const MESSAGES: u64 = 20;
    const SIZE: usize = 400_000;
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let group = |port: u16| SocketAddr::new([239, 255, 80, 88].into(), port);
    let multicast = |port| Bus::multicast(group(port), [127, 0, 0, 1].into());
    let shown = |port| format!("multicast:{}@127.0.0.1", group(port));
    let [first, second] = [unique("large"), unique("replay")];
    let memory = [Bus::shared(&first), Bus::shared(&second)];
    let cases = [
        (memory, [format!("shared:{first}"), format!("shared:{second}")], Target::port("there", 7)),
        ([multicast(port), multicast(port ^ 1)], [shown(port), shown(port ^ 1)], Target::everyone_at(7)),
    ];
    for ((buses, shown, target), format) in cases.iter().flat_map(|case| FORMATS.map(|format| (case, format)))
    {
        let place = Place::new();
        let file = format!("large.{format}");
        let started = recorder(&place, &shown[0], &file, "");
        let (here, there) = (large_node(&buses[0], "here"), large_node(&buses[0], "there"));
        let (mut sender, mut receiver) = (here.bind(3).unwrap(), there.bind(7).unwrap());
        for number in 0..MESSAGES {
            let message = large(number, SIZE);
            std::thread::scope(|scope| {
                let reads = scope.spawn(|| receiver.receive_timeout(Duration::from_secs(1)).is_ok());
                sender.send(*target, &message).unwrap();
                reads.join().unwrap();
            });
            // Time for the recorder, which nobody waits for.
            std::thread::sleep(Duration::from_millis(20));
        }
        drop((sender, receiver, here, there));
        let (ended, said) = end(&place, started);
        let (messages, missed) = (count(&said, "messages"), count(&said, "missed"));
        assert!(messages > 0 && messages + missed >= MESSAGES, "{format}: {said:#}");
        assert_eq!(ended.code, Some(i32::from(missed > 0)), "{}", ended.err);
        let numbers = large_numbers(&place.path(&file), SIZE);
        assert!(numbers.is_sorted() && numbers.len() as u64 == messages, "{format}: {numbers:?}: {said:#}");

        let listener = large_node(&buses[1], "there");
        let mut receiver = listener.bind(7).unwrap();
        let call = format!("replay {file} --bus {} --json - --hold-back", shown[1]);
        let mut started = place.start(punctual(&call));
        let mut heard = Vec::new();
        let mut listen = |receiver: &mut punctual::Communicator| {
            if let Ok(message) = receiver.receive_timeout(Duration::from_millis(100)) {
                assert!(message.payload == large(number(message.payload), SIZE));
                heard.push(number(message.payload));
            }
        };
        while !started.has_ended() {
            listen(&mut receiver);
        }
        listen(&mut receiver);
        let played: Value = serde_json::from_str(&started.end().with(0).out).expect("JSON");
        assert_eq!(count(&played, "sent"), messages, "{played:#}");
        let lost = listener.ledger().lost();
        assert!(heard == numbers || lost > 0, "{format}: {heard:?} of {numbers:?}: {}", listener.ledger());
    }
}

/// Goal: a message that is larger than any that is recorded is counted.
#[test]
fn a_message_that_is_too_large_to_record_is_counted() {
    let (place, stream) = (Place::new(), unique("huge"));
    let bus = Bus::shared(&stream);
    let started = recorder(&place, &format!("shared:{stream}"), "huge.pcapng", "");
    let (here, there) = (large_node(&bus, "here"), large_node(&bus, "there"));
    let (mut sender, mut receiver) = (here.bind(3).unwrap(), there.bind(7).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| receiver.receive_timeout(PATIENCE).unwrap().payload.len());
        sender.send_timeout(Target::port("there", 7), &large(7, 17 << 20), PATIENCE).unwrap();
    });
    let (ended, said) = end(&place, started);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(count(&said, "messages"), 0, "{said:#}");
    let missed_by = |cause: &str| said["missed_by"][cause].as_u64().unwrap_or(0);
    assert!(missed_by("fragments_refused") + missed_by("lost_overrun") > 0, "{said:#}");
}

/// Goal: on a multicast group messages for everybody are recorded, and played again to all listeners, by nodes of the same ids.
#[test]
fn a_multicast_group_is_recorded_and_played() {
    const MESSAGES: u64 = 2_000;
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let group = SocketAddr::new([239, 255, 80, 86].into(), port);
    let (bus, shown) = (Bus::multicast(group, [127, 0, 0, 1].into()), format!("multicast:{group}@127.0.0.1"));
    let (here, there) = (Node::open(&bus, "here").unwrap(), Node::open(&bus, "there").unwrap());
    for format in FORMATS {
        let place = Place::new();
        let file = format!("group.{format}");
        let started = recorder(&place, &shown, &file, "");
        let (mut sender, mut receiver) = (here.bind(3).unwrap(), there.bind(7).unwrap());
        for number in 0..MESSAGES {
            sender.send(Target::everyone_at(7), &message(number, 50)).unwrap();
            assert_eq!(number, self::number(receiver.receive_timeout(PATIENCE).unwrap().payload));
        }
        let (_, said) = end(&place, started);
        assert_eq!(count(&said, "messages") + count(&said, "missed"), MESSAGES, "{said:#}");
        let messages = count(&said, "messages");
        drop(sender);
        // The node that was recorded has to be away: two of one id are not told apart.
        let play = |speed: &str| {
            let bus = Bus::multicast(SocketAddr::new(group.ip(), group.port() ^ 1), [127, 0, 0, 1].into());
            let listener = Node::open(&bus, "listener").unwrap();
            let mut receiver = listener.bind(7).unwrap();
            let shown = format!("multicast:{}:{}@127.0.0.1", group.ip(), group.port() ^ 1);
            let call = format!("replay {file} --bus {shown} --speed {speed} --json -");
            let started = place.start(punctual(&call));
            let (mut received, mut last) = (0, None);
            let start = Instant::now();
            while received + listener.ledger().lost() < messages && start.elapsed() < PATIENCE {
                let Ok(message) = receiver.receive_timeout(Duration::from_millis(100)) else { continue };
                let number = number(message.payload);
                assert!(last < Some(number), "{number} after {last:?}");
                assert_eq!(message.source, Address { node: here.id(), port: 3.into() });
                (received, last) = (received + 1, Some(number));
            }
            let ended = started.end().with(0);
            let played: Value = serde_json::from_str(&ended.out).expect("JSON");
            assert_eq!(count(&played, "sent"), messages, "{played:#}");
            assert_eq!(received + listener.ledger().lost(), messages, "{}", listener.ledger());
        };
        play("1");
        play("20");
    }
}

/// Runs `work` with both ends of an Ethernet segment in a namespace of its own, or says why not.
fn on_ethernet(work: impl FnOnce() + Send) {
    use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};
    std::thread::scope(|scope| {
        let prepared = scope.spawn(move || {
            unshare_network()?;
            create_veth("pta", "ptb", thread_id())?;
            ["lo", "pta", "ptb"].into_iter().try_for_each(bring_up)?;
            // Anything that this thread starts is in the namespace, too.
            work();
            Ok::<(), punctual_machine::SystemError>(())
        });
        match prepared.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => punctual_machine::skipped!("raw Ethernet: {error}"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
}

/// Goal: on raw Ethernet every message for everybody is in the file or counted, sealed or not, and is played again onto Ethernet, in its
/// order.
#[test]
fn raw_ethernet_is_recorded_and_played() {
    const MESSAGES: u64 = 2_000;
    on_ethernet(|| {
        for (format, more) in [("pcapng", ""), ("mcap", ""), ("pcapng", "--keys keys --sealed-as segment")] {
            let place = Place::new();
            let keys = keys(&place);
            let bus = |interface| match more {
                "" => Bus::ethernet(interface),
                _ => Bus::ethernet(interface).sealed_as(&keys, "segment"),
            };
            let file = format!("segment.{format}");
            let here = Node::open(&bus("pta"), "here").unwrap();
            let there = Node::open(&bus("ptb"), "there").unwrap();
            let started = recorder(&place, "ethernet:ptb", &file, more);
            let (mut sender, mut receiver) = (here.bind(3).unwrap(), there.bind(7).unwrap());
            for number in 0..MESSAGES {
                sender.send(Target::everyone_at(7), &message(number, 1_000)).unwrap();
                assert_eq!(number, self::number(receiver.receive_timeout(PATIENCE).unwrap().payload));
            }
            let (ended, said) = end(&place, started);
            let (messages, missed) = (count(&said, "messages"), count(&said, "missed"));
            assert_eq!(messages + missed, MESSAGES, "{said:#}");
            assert!(messages > 0, "{said:#}");
            assert_eq!(ended.code, Some(i32::from(missed > 0)), "{}", ended.err);
            let mut recording = Recording::open(&place.path(&file)).unwrap();
            let (mut bytes, mut last, mut in_file) = (Vec::new(), None, 0);
            while let Some(entry) = recording.next(&mut bytes).unwrap() {
                let found = number(&bytes);
                assert!(last < Some(found), "{found} after {last:?}");
                assert_eq!(bytes[..entry.message_size()], message(found, 1_000));
                assert_eq!(entry.source, Address { node: here.id(), port: 3.into() });
                (last, in_file) = (Some(found), in_file + 1);
            }
            assert_eq!(in_file, messages);
            drop((sender, here));
            let call = format!("replay {file} --bus ethernet:pta --speed 4 --json - {more}");
            let started = place.start(punctual(&call));
            let (mut last, mut received, start) = (None, 0, Instant::now());
            let before = there.ledger().lost();
            while received + there.ledger().lost() - before < messages && start.elapsed() < PATIENCE {
                let Ok(message) = receiver.receive_timeout(Duration::from_millis(100)) else { continue };
                let number = number(message.payload);
                assert!(last < Some(number), "{number} after {last:?}");
                (last, received) = (Some(number), received + 1);
            }
            let played: Value = serde_json::from_str(&started.end().with(0).out).expect("JSON");
            assert_eq!(count(&played, "sent"), messages, "{played:#}");
            assert!(played["lateness_ns"]["p50"].as_u64().is_some(), "{played:#}");
            assert_eq!(received + there.ledger().lost() - before, messages, "{}", there.ledger());
        }
    });
}

/// Goal: on a sealed bus over UDP and on raw Ethernet, who has no keys records nothing, as nothing there shows what is genuine; all of it is
/// counted, and a replay of the file says that nothing is in it.
#[test]
fn without_keys_a_sealed_wire_is_counted() {
    let place = Place::new();
    let keys = keys(&place);
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let group = SocketAddr::new([239, 255, 80, 87].into(), port);
    let multicast = Bus::multicast(group, [127, 0, 0, 1].into()).sealed(&keys);
    count_sealed(&place, "udp", [&multicast, &multicast], &format!("multicast:{group}@127.0.0.1"));
    on_ethernet(|| {
        let ends = ["pta", "ptb"].map(|interface| Bus::ethernet(interface).sealed_as(&keys, "segment"));
        count_sealed(&place, "ethernet", [&ends[0], &ends[1]], "ethernet:ptb");
    });
}

fn count_sealed(place: &Place, name: &str, [first, second]: [&Bus; 2], shown: &str) {
    const MESSAGES: u64 = 500;
    let (here, there) = (Node::open(first, "here").unwrap(), Node::open(second, "there").unwrap());
    let (mut sender, mut receiver) = (here.bind(3).unwrap(), there.bind(7).unwrap());
    for format in FORMATS {
        let file = format!("{name}.{format}");
        let started = recorder(place, shown, &file, "");
        for number in 0..MESSAGES {
            sender.send(Target::everyone_at(7), &message(number, 50)).unwrap();
            assert_eq!(number, self::number(receiver.receive_timeout(PATIENCE).unwrap().payload));
        }
        let (ended, said) = end(place, started);
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        assert_eq!((count(&said, "messages"), count(&said, "missed")), (0, MESSAGES), "{said:#}");
        assert_eq!(count(&said["missed_by"], "lost_refused"), MESSAGES, "{said:#}");
        let mut recording = Recording::open(&place.path(&file)).unwrap();
        assert!(recording.next(&mut Vec::new()).unwrap().is_none());
        let played = place.punctual(&format!("replay {file} --json -")).with(0);
        let played: Value = serde_json::from_str(&played.out).expect("JSON");
        assert_eq!((count(&played, "messages"), count(&played, "missed")), (0, MESSAGES), "{played:#}");
        fs::remove_file(place.path("record.json")).unwrap();
    }
}

/// A file of keys of its owner alone.
fn keys(place: &Place) -> Keys {
    use std::os::unix::fs::PermissionsExt;
    let file = place.path("keys");
    fs::write(&file, "1 1 000102030405060708090a0b0c0d0e0f\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    Keys::from_file(&file).unwrap()
}

/// Goal: without keys what is recorded of a sealed bus is what stands there, and is played without the seals; with keys it is the
/// message, and played onto a sealed bus it is sealed anew.
#[test]
fn a_sealed_bus_is_recorded_with_keys_and_without() {
    const MESSAGES: u64 = 200;
    let place = Place::new();
    let keys = keys(&place);
    let name = unique("sealed");
    let sealed = Bus::shared(&name).sealed(&keys);
    let shown = format!("shared:{name}");
    for (file, more) in [("bare.pcapng", ""), ("bare.mcap", ""), ("open.mcap", "--keys keys")] {
        let started = recorder(&place, &shown, file, more);
        let (here, there) = (Node::open(&sealed, "here").unwrap(), Node::open(&sealed, "there").unwrap());
        let mut receiver = there.bind(7).unwrap();
        let mut publication = here.publication(Target::port("there", 7), &held_back()).unwrap();
        for number in 0..MESSAGES {
            publication.offer(&message(number, 9)).unwrap();
            assert_eq!(self::number(receiver.receive_timeout(PATIENCE).unwrap().payload), number);
        }
        drop((publication, here, receiver, there));
        let (ended, said) = end(&place, started);
        assert_eq!(ended.code, Some(0), "{file}: {}", ended.err);
        assert_eq!(count(&said, "messages"), MESSAGES, "{file}: {said:#}");
        let mut recording = Recording::open(&place.path(file)).unwrap();
        let mut bytes = Vec::new();
        while let Some(entry) = recording.next(&mut bytes).unwrap() {
            assert_eq!(entry.is_unopened, more.is_empty(), "{file}");
            let expected = message(number(&bytes), 9);
            assert_eq!(bytes[..entry.message_size()], expected, "{file}");
        }
        let name = unique("replay");
        let bus = if more.is_empty() { Bus::shared(&name) } else { Bus::shared(&name).sealed(&keys) };
        let listener = listen(&bus, "there", MESSAGES);
        let shown = format!("shared:{name}");
        place.punctual(&format!("replay {file} --bus {shown} --speed max {more}")).with(0);
        assert_eq!(listener.join().unwrap(), (0..MESSAGES).collect::<Vec<_>>(), "{file}");
    }
}

/// Goal: the capture of a node is a recording as well.
#[test]
fn a_capture_of_a_node_is_played() {
    let (place, name) = (Place::new(), unique("capture"));
    let bus = Bus::shared(&name);
    let options = NodeOptions::new("here").capture(place.path("capture.pcapng"));
    let (here, there) = (options.open(&bus).unwrap(), Node::open(&bus, "there").unwrap());
    let mut subscription = there.subscription(7, &SubscriptionOptions::default()).unwrap();
    let mut publication = here.publication(Target::port("there", 7), &held_back()).unwrap();
    for number in 0..50 {
        publication.offer(&message(number, 9)).unwrap();
    }
    assert_eq!(subscription.poll(64, |_| ()), 50);
    drop((publication, here));
    drop(subscription);
    let refused = place.punctual("replay capture.pcapng").with(2);
    assert!(refused.err.contains("--bus"), "it does not say of which bus: {}", refused.err);
    let name = unique("replay");
    let listener = listen(&Bus::shared(&name), "there", 50);
    place.punctual(&format!("replay capture.pcapng --bus shared:{name}")).with(0);
    assert_eq!(listener.join().unwrap(), (0..50).collect::<Vec<_>>());
}

/// Writes a copy of a recording in which one frame is missing that is a fragment.
fn without_a_fragment(file: &Path, copy: &Path) {
    let file = fs::read(file).unwrap();
    let (mut at, mut fragments) = (0, Vec::new());
    while at < file.len() {
        let size = block_size(file[at..].first_chunk().unwrap()).unwrap();
        if let Block::Packet(packet) = read_block(&file[at..at + size]).unwrap()
            && Frame::parse(packet.frame).unwrap().header.kind == Kind::Fragment
        {
            fragments.push(at..at + size);
        }
        at += size;
    }
    assert!(!fragments.is_empty(), "no fragments");
    let missing = fragments[fragments.len() / 2].clone();
    fs::write(copy, [&file[..missing.start], &file[missing.end..]].concat()).unwrap();
}

/// Plays a file of large messages of one size to a receiver that hears all of them whole. Returns the number that were played, and the
/// number that were not because a part is missing.
fn play_large(place: &Place, file: &str, size: usize) -> (u64, u64) {
    let name = unique("replay");
    let listener = Node::open(&Bus::shared(&name), "there").unwrap();
    let mut subscription = listener.subscription(7, &SubscriptionOptions::default()).unwrap();
    let call = format!("replay {file} --bus shared:{name} --hold-back --json -");
    let mut started = place.start(punctual(&call));
    let (mut numbers, mut buffer) = (Vec::new(), vec![0; size + 1]);
    let mut listen = || {
        while let Ok(received) = subscription.receive_timeout(Duration::from_millis(100), &mut buffer) {
            let found = number(&buffer);
            assert!(buffer[..received.size] == large(found, size), "{file}: {} bytes", received.size);
            numbers.push(found);
        }
    };
    while !started.has_ended() {
        listen();
    }
    listen();
    let ended = started.end();
    let played: Value = serde_json::from_str(&ended.out).expect("JSON");
    let (sent, incomplete) = (count(&played, "sent"), count(&played, "incomplete"));
    assert_eq!(ended.code, Some(i32::from(incomplete > 0)), "{played:#}: {}", ended.err);
    assert_eq!(ended.err.contains(&format!("incomplete {incomplete}")), incomplete > 0, "{}", ended.err);
    assert!(numbers.is_sorted() && numbers.len() as u64 == sent, "{numbers:?}: {played:#}");
    (sent, incomplete)
}

/// Goal: large messages of a capture are played whole; one of which a fragment is missing is counted, and no part of it is played.
#[test]
fn large_messages_of_a_capture_are_played_whole_or_counted() {
    const MESSAGES: u64 = 5;
    const SIZE: usize = 200_000;
    let place = Place::new();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bus = Bus::multicast(SocketAddr::new([239, 255, 80, 89].into(), port), [127, 0, 0, 1].into());
    let options = NodeOptions::new("here").message_size_max(SIZE).capture(place.path("large.pcapng"));
    let here = options.open(&bus).unwrap();
    let mut sender = here.bind(3).unwrap();
    for number in 0..MESSAGES {
        sender.send(Target::everyone_at(7), &large(number, SIZE)).unwrap();
    }
    drop((sender, here));
    assert_eq!(play_large(&place, "large.pcapng", SIZE), (MESSAGES, 0));
    without_a_fragment(&place.path("large.pcapng"), &place.path("cut.pcapng"));
    assert_eq!(play_large(&place, "cut.pcapng", SIZE), (MESSAGES - 1, 1));
}

/// Goal: a recording of a sealed bus without keys has fragments, and says so. They are played as whole messages, or counted.
#[test]
fn fragments_that_nobody_opened_are_no_messages() {
    const MESSAGES: u64 = 8;
    const SIZE: usize = 400_000;
    let place = Place::new();
    let keys = keys(&place);
    for format in FORMATS {
        let (name, file) = (unique("sealed"), format!("fragments.{format}"));
        let bus = Bus::shared(&name).sealed(&keys);
        let started = recorder(&place, &format!("shared:{name}"), &file, "");
        let (here, there) = (large_node(&bus, "here"), large_node(&bus, "there"));
        let (mut sender, mut receiver) = (here.bind(3).unwrap(), there.bind(7).unwrap());
        for number in 0..MESSAGES {
            let message = large(number, SIZE);
            std::thread::scope(|scope| {
                scope.spawn(|| receiver.receive_timeout(PATIENCE).unwrap().payload.len());
                sender.send(Target::port("there", 7), &message).unwrap();
            });
            // Time for the recorder, which nobody waits for.
            std::thread::sleep(Duration::from_millis(20));
        }
        drop((sender, receiver, here, there));
        let (ended, said) = end(&place, started);
        let missed = count(&said, "missed");
        assert_eq!(ended.code, Some(i32::from(missed > 0)), "{}", ended.err);
        assert!(count(&said, "messages") + missed >= 2 * MESSAGES, "each has several fragments: {said:#}");
        let (sent, incomplete) = play_large(&place, &file, SIZE);
        assert!(sent > 0 && sent + incomplete <= MESSAGES, "{sent}, {incomplete}");
        assert!(sent == MESSAGES || missed > 0, "{sent}: {said:#}");
        if format == "pcapng" {
            without_a_fragment(&place.path(&file), &place.path("cut.pcapng"));
            let cut = play_large(&place, "cut.pcapng", SIZE);
            assert!(cut == (sent - 1, incomplete + 1) || missed > 0, "{cut:?}");
        }
    }
}

/// Writes a recording of messages that one node sent at these instants, before which the clock was set by so much.
fn write_recording(path: &Path, instants: &[(u64, i64)]) {
    let mut file = Vec::new();
    write_start(&mut file, 0, None);
    for (&(ns, set_ns), number) in instants.iter().zip(0..) {
        let payload = message(number, 1);
        let header = Header {
            kind: Kind::Data,
            incarnation: 0,
            source: Address { node: NodeId::named("here"), port: 3.into() },
            target: Target::port("there", 7),
            sequence: number as u32,
            payload_size: payload.len() as u32,
            stamped: false,
            sealed: false,
        };
        let mut head = [0; HEADER_SIZE];
        header.write(&mut head);
        let set = format!("the clock was set by {set_ns} ns");
        let comment = (set_ns != 0).then_some(&set[..]);
        let packet = Packet { ns, direction: None, missed: 0, comment, frame: &[], size: 0 };
        write_packet(&mut file, &packet, &[&head, &payload], 0);
    }
    fs::write(path, file).unwrap();
}

const HOUR_NS: u64 = 3_600_000_000_000;

/// Goal: an hour by which the clock was set while it was recorded is not waited for, and the pauses behind an hour back are made.
#[test]
fn a_clock_that_was_set_while_it_was_recorded_is_left_out() {
    const PAUSE_NS: u64 = 50_000_000;
    let place = Place::new();
    let begin = 10 * HOUR_NS;
    let (ahead, back) = (begin + HOUR_NS + PAUSE_NS, begin - HOUR_NS + 2 * PAUSE_NS);
    let hour = HOUR_NS as i64;
    let instants = [(begin, 0), (ahead, hour), (back, -2 * hour), (back + PAUSE_NS, 0)];
    write_recording(&place.path("set.pcapng"), &instants);
    let name = unique("replay");
    let listener = listen(&Bus::shared(&name), "there", 4);
    let played = place.json(&format!("replay set.pcapng --bus shared:{name} --json -"));
    assert_eq!(listener.join().unwrap(), [0, 1, 2, 3]);
    assert_eq!(count(&played, "recorded_ns"), 3 * PAUSE_NS, "{played:#}");
    assert_eq!(played["clock_set_ns"], -hour, "{played:#}");
    let late = count(&played["lateness_ns"], "max");
    assert!(count(&played, "played_ns") + late >= 3 * PAUSE_NS, "{played:#}");
}

/// Goal: a replay that is interrupted says so, and counts the messages that it did not send; the messages that it sent decide how it
/// ends.
#[test]
fn an_interrupted_replay_counts_the_rest() {
    const MESSAGES: u64 = 60;
    let place = Place::new();
    // An hour from each to the next, but for the first two.
    let hours = |number: u64| (number.saturating_sub(1) * HOUR_NS, 0);
    let instants: Vec<(u64, i64)> = (0..MESSAGES).map(hours).collect();
    write_recording(&place.path("slow.pcapng"), &instants);
    for to_stdout in [true, false] {
        let name = unique("replay");
        let listener = listen(&Bus::shared(&name), "there", 2);
        let bus = format!("shared:{name}");
        let json = if to_stdout { "--json -" } else { "" };
        let started = place.start(punctual(&format!("replay slow.pcapng --bus {bus} {json}")));
        assert_eq!(listener.join().unwrap(), [0, 1]);
        started.signal("-INT");
        let ended = started.end().with(0);
        assert!(ended.err.contains("nothing was said for 3,600 s"), "{}", ended.err);
        if to_stdout {
            let played: Value = serde_json::from_str(&ended.out).expect("JSON");
            assert_eq!((count(&played, "messages"), count(&played, "sent")), (MESSAGES, 2), "{played:#}");
            assert_eq!(count(&played["unsent"], "interrupted"), MESSAGES - 2, "{played:#}");
            assert_eq!(played["is_cut_short"], true);
        } else {
            assert!(ended.out.contains("Cut short: of 60 messages 58 were not sent"), "{}", ended.out);
        }
    }
}

/// Goal: an error is reported in one line, and no file is made or written over.
#[test]
fn a_wrong_call_is_refused() {
    let place = Place::new();
    fs::write(place.path("there.pcapng"), "dear").unwrap();
    let bus = format!("shared:{}", unique("refused"));
    for (call, word) in [
        ("record loopback:x --out a.pcapng", "capture"),
        ("record nowhere --out a.pcapng", "shared:NAME"),
        (&format!("record {bus} --out a.txt"), "--format"),
        (&format!("record {bus} --out there.pcapng"), "another name"),
        (&format!("record {bus} --out a.pcapng --keys no-keys"), "no-keys"),
        (&format!("replay there.pcapng --bus {bus}"), "not a recording"),
        (&format!("replay absent.mcap --bus {bus}"), "absent.mcap"),
        (&format!("replay there.pcapng --bus {bus} --speed fast"), "--speed"),
    ] {
        let ended = place.punctual(call).with(2);
        assert!(ended.err.contains(word) && ended.err.lines().count() == 1, "{call:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{call:?}");
    }
    let ended = place.punctual(&format!("record {bus} --out no/folder.mcap")).with(3);
    assert!(ended.err.contains("no/folder.mcap"), "{}", ended.err);
    let mut unnamed = punctual("record --out bad.mcap");
    unnamed.arg("shared:no name");
    let ended = place.start(unnamed).end().with(3);
    assert!(ended.err.contains("no name"), "{}", ended.err);
    let left: Vec<_> =
        fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["there.pcapng"]);
    assert_eq!(text(&place.path("there.pcapng")), "dear");
}
