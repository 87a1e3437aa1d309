//! Files that are read, and what is said of files that are not.
use std::time::Duration;

use proptest::prelude::*;
use punctual_proto::NodeId;
use punctual_proto::broadcast::Guarantee;

use super::*;
use crate::engine::datagram::{DatagramOptions, Reach};

/// A file that says everything that can be said.
const FULL: &str = r#"# The cell.
name = "cell"           # of the group
medium = "peers"
founder = "robot"
port = 7000
guarantee = 'agreed'
frame_size = 1_024
window = 64
message_size_max = 65536
heartbeat = "5 ms"
suspect_after = "1s"
round_trip = "90us"
expel_slow_after = "never"

[[member]]
name = "plc"
address = "10.0.0.1:7700"

[[member]] # the arm
name = "robot"
address = "[fe80::1]:7700"

[faults]
seed = 7
loss_permille = 20
delay = "300us"
"#;

fn parse(text: &str) -> Result<GroupFile, GroupFileError> {
    GroupFile::parse(text, "cell.toml")
}

/// The line and the text of an error.
fn fault(text: &str) -> (usize, String) {
    match parse(text) {
        Err(GroupFileError::Line { line, what, .. }) => (line, what),
        other => panic!("{other:?} of\n{text}"),
    }
}

fn reach(bus: &Bus) -> &Reach {
    match bus {
        Bus::Datagram(DatagramOptions { reach, .. }) => reach,
        other => panic!("{other}"),
    }
}

#[test]
fn all_that_can_be_said_is_read() {
    let file = parse(FULL).unwrap();
    assert!(file.members().eq(["plc", "robot"]));
    let [plc, robot] = ["plc", "robot"].map(|name| file.member(name).unwrap());
    let [a, b] = ["10.0.0.1:7700", "[fe80::1]:7700"].map(|text| text.parse().unwrap());
    assert_eq!(*reach(&plc.bus), Reach::Peers { local: a, peers: vec![b] });
    assert_eq!(*reach(&robot.bus), Reach::Peers { local: b, peers: vec![a] });
    assert_eq!((plc.group.founds, robot.group.founds), (false, true));
    let GroupOptions { name, roster, port, guarantee, frame_size, window, message_size_max, .. } = plc.group;
    assert_eq!((&*name, roster), ("cell", vec![NodeId::named("plc"), NodeId::named("robot")]));
    assert_eq!((port, guarantee, frame_size), (7_000, Guarantee::Agreed, Some(1_024)));
    assert_eq!((window, message_size_max), (Some(64), 65_536));
    let GroupOptions { heartbeat, suspect_after, round_trip, expel_slow_after, .. } = robot.group;
    assert_eq!((heartbeat, suspect_after), (Duration::from_millis(5), Duration::from_secs(1)));
    assert_eq!((round_trip, expel_slow_after), (Duration::from_micros(90), None));
    for (name, guarantee) in [("reliable", Guarantee::Reliable), ("best_effort", Guarantee::BestEffort)] {
        let other = parse(&FULL.replace("'agreed'", &format!("{name:?}"))).unwrap();
        assert_eq!(other.member("plc").unwrap().group.guarantee, guarantee);
    }
    let faults = file.faults.unwrap();
    assert_eq!(faults, Faults::seeded(7).loss(20).delay(Duration::from_micros(300)));
    let stranger = file.member("camera").unwrap_err().to_string();
    assert_eq!(
        stranger,
        "cell.toml: \"camera\" is no member: use one of plc, robot, or add it at all members"
    );
}

/// Goal: of each medium the bus is the one that the library makes, and what is not said is as in [`GroupOptions::new`].
#[test]
fn every_medium_has_its_bus() {
    let of = |medium: &str, member: &str| {
        let text = format!("name = \"g\"\nfounder = \"a\"\n{medium}\n[[member]]\nname = \"a\"\n{member}\n");
        let member = parse(&text).unwrap_or_else(|error| panic!("{error} of\n{text}")).member("a").unwrap();
        assert_eq!(format!("{:?}", member.group), format!("{:?}", GroupOptions::new("g", &["a"]).founding()));
        member.bus
    };
    assert_eq!(of("medium = \"loopback\"", "").to_string(), Bus::loopback("g").to_string());
    assert_eq!(of("medium = \"shared\"\nbus = \"car\"", "").to_string(), Bus::shared("car").to_string());
    assert_eq!(
        of("medium = \"ethernet\"", "interface = \"eth0\"").to_string(),
        Bus::ethernet("eth0").to_string()
    );
    let multicast = of("medium = \"multicast\"\nmulticast = \"239.1.1.1:7\"", "interface = \"10.0.0.1\"");
    let expected = Bus::multicast("239.1.1.1:7".parse().unwrap(), [10, 0, 0, 1].into());
    assert_eq!(reach(&multicast), reach(&expected));
}

/// A line of [`FULL`], what is written there instead, and what is said of it; nothing where another line is to blame.
const OFF: &[(usize, &str, &str)] = &[
    (
        2,
        "name = \"a cell\"",
        "name: name \"a cell\": 1 to 32 letters, digits, hyphens and underscores are needed",
    ),
    (3, "medium = \"air\"", "medium: \"air\" is no medium: write \"loopback\""),
    (3, "medium = \"multicast\"", "medium: multicast needs an address for all: add multicast = "),
    (3, "medium = 7", "medium: 7 is no text: write one in quotes"),
    (4, "founder = \"camera\"", "founder: \"camera\" is none of the members: write the name"),
    (5, "port = 65535", "port: 65535 cannot be: write a number from 0 to 65534"),
    (5, "port = \"7\"", "port: \"7\" is no whole number: write one from 0 to 65534, without quotes"),
    (
        5,
        "port = 07",
        "this is no TOML (unexpected leading zero): write key = 7, key = \"text\" or a heading, or # in front",
    ),
    (5, "port = 1_", "this is no TOML (`_` may only go between digits)"),
    (5, "port = -1", "port: -1 cannot be: write a number from 0 to 65534"),
    (5, "port = 0x1_0000", "port: 0x10000 cannot be"),
    (5, "port = 9223372036854775808", "port: 9223372036854775808 cannot be"),
    (5, "port = 7.5", "port: 7.5 is no whole number: write one from 0 to 65534, without quotes"),
    (5, "port = 2026-11-25", "port: 2026-11-25 is no whole number"),
    (5, "port = [7,\n8]", "port: a list is no whole number"),
    (5, "port.of.it = 7", "port: a table is no whole number"),
    (5, "port = true", "port: true is no whole number"),
    (
        6,
        "guarantee = \"hope\"",
        "guarantee: \"hope\" is none: write one of \"uniform\", \"agreed\", \"reliable\", \"best_effort\"",
    ),
    (7, "frame_size = 0", "frame_size: 0 cannot be: write a number from 1 to 16777215"),
    (8, "window =", "this is no TOML (string values must be quoted"),
    (8, "window = # 7", "this is no TOML (string values must be quoted"),
    (8, "window = 7 8", "this is no TOML (string values must be quoted"),
    (8, "windows = 7", "windows means nothing here: write one of name, medium"),
    (8, "name = \"cell\"", "name stands above already: remove one"),
    (8, "window 7", "this is no TOML (key with no value, expected `=`)"),
    (8, "= 7", "this is no TOML (unquoted keys cannot be empty"),
    (8, "bus = \"car\"", "bus means nothing with this medium: remove the line"),
    (8, "multicast = \"239.1.1.1:7\"", "multicast means nothing with this medium"),
    (
        8,
        "multicast = \"10.0.0.1:7\"",
        "multicast: \"10.0.0.1:7\" is no multicast address: write one of 224.0.0.0/4",
    ),
    (8, "window = 7\u{7}", "this is no TOML (string values must be quoted"),
    (
        10,
        "heartbeat = 5",
        "heartbeat: 5 is no time: write one with its unit (ns, us, ms, s), such as \"10ms\"",
    ),
    (10, "heartbeat = \"5m\"", "heartbeat: \"5m\" is no time"),
    (10, "heartbeat = \"ms\"", "heartbeat: \"ms\" is no time"),
    (
        10,
        "heartbeat = \"90000s\"",
        "heartbeat: \"90000s\" is no time: write one with its unit (ns, us, ms, s), such as \
         \"10ms\", of an hour at most",
    ),
    (10, "heartbeat = \"3601s\"", "heartbeat: \"3601s\" is no time"),
    (11, "suspect_after = \"3601s\"", "suspect_after: \"3601s\" is no time"),
    (12, "round_trip = \"3601s\"", "round_trip: \"3601s\" is no time"),
    (10, "heartbeat = \"99999999999999999999ns\"", "heartbeat: \"99999999999999999999ns\" is no time"),
    (10, "heartbeat = \"0ms\"", "heartbeat: nothing happens that often: write a time longer than 0"),
    (10, "heartbeat = \"5 ms", "this is no TOML (invalid basic string, expected `\"`)"),
    (10, "heartbeat = \"5\\tms\"", "heartbeat: \"5\\tms\" is no time"),
    (
        11,
        "suspect_after = \"5ms\"",
        "silence of 5ms is suspected, and heartbeats come every 5ms: write a suspect_after",
    ),
    (
        13,
        "expel_slow_after = \"0s\"",
        "expel_slow_after: nothing happens that often: write a time longer than 0, or \
         \"never\"",
    ),
    (
        13,
        "expel_slow_after = \"9999us\"",
        "a user that takes nothing for 9.999ms is expelled, and heartbeats that say what it took come every 5ms: write",
    ),
    (
        13,
        "expel_slow_after = \"90000s\"",
        "expel_slow_after: \"90000s\" is no time: write one with its unit (ns, us, ms, s), such as \"10ms\", of a day",
    ),
    (15, "[member]", ""),
    (15, "[[member", "this is no TOML (unclosed array table, expected `]]`)"),
    (16, "name = \"robot\"", ""),
    (16, "", ""),
    (
        17,
        "address = \"10.0.0.1\"",
        "address: \"10.0.0.1\" is no address: write host and port, such as \"10.0.0.1:7700\"",
    ),
    (
        17,
        "address = \"0.0.0.0:7\"",
        "address: nobody reaches a member at 0.0.0.0:7: write the address by which",
    ),
    (17, "interface = \"eth0\"", ""),
    (20, "name = \"plc\"", "name is that of line 16 too: give each member its own"),
    (21, "address = \"10.0.0.1:7700\"", "address is that of line 17 too: give each member its own"),
    (22, "interface = \"eth0\"", "interface means nothing with this medium: remove the line"),
    (15, "[cell]", "cell means nothing here: write one of name, medium"),
    (18, "robot = 1", "robot means nothing here: write one of name, address, interface, or remove it"),
    (23, "[[faults]]", "faults is one table: write [faults] above its lines"),
    (23, "[faults.of]", "of means nothing here: write one of seed"),
    (24, "", ""),
    (24, "seed = 1\nseed = 2", ""),
    (25, "loss_permille = 1001", "loss_permille: 1001 cannot be: write a number from 0 to 1000"),
    (26, "delay = \"x\"", "delay: \"x\" is no time"),
    (26, "delay = \"86401s\"", "delay: \"86401s\" is no time"),
    (26, "[faults]", "faults stands above already: remove one"),
];

/// Goal: an error is refused with the line that is to be changed, and with the text to write. Method: a line of a file that is read is
/// replaced by another.
#[test]
fn an_error_is_named_by_line_with_its_remedy() {
    for &(line, with, expected) in OFF {
        let mut lines: Vec<&str> = FULL.lines().collect();
        lines[line - 1] = with;
        let (at, what) = fault(&lines.join("\n"));
        let (expected_at, expected) = match (line, with) {
            // Only the second one shows that the first is none of several.
            (15, "[member]") => (19, "member stands above already: write [[member]] each time"),
            (16, "") => (15, "name is missing: add a line below this heading, such as name = \"plc\""),
            (16, _) => (20, "name is that of line 16 too: give each member its own"),
            (17, "interface = \"eth0\"") => {
                (15, "address is missing: add a line below this heading, such as address = \"10.0.0.1:7700\"")
            }
            (24, "") => (23, "seed is missing: add a line below this heading, such as seed = 1"),
            (24, _) => (25, "seed stands above already: remove one"),
            _ => (line, expected),
        };
        assert!(what.starts_with(expected), "{with}: {what}");
        assert_eq!(at, expected_at, "{with}: {what}");
    }
}

#[test]
fn entries_missing_altogether_are_named() {
    assert_eq!(fault("").1, "name is missing: add a line above the first heading, such as name = \"cell\"");
    assert_eq!(
        fault("name = \"g\"\n").1,
        "medium is missing: add a line above the first heading, such as medium = \"peers\""
    );
    let start = "name = \"g\"\nmedium = \"shared\"\n";
    assert_eq!(
        fault(start).1,
        "no member is there: add [[member]], and below it a line such as name = \"plc\""
    );
    let member = |number: usize| format!("[[member]]\nname = \"m{number}\"\n");
    let founder = fault(&format!("{start}{}", member(0))).1;
    assert_eq!(founder, "founder is missing: add a line above the first heading, such as founder = \"m0\"");
    let many: String = (0..33).map(member).collect();
    let (line, what) = fault(&format!("{start}founder = \"m0\"\n{many}"));
    assert_eq!((line, what.starts_with("a group has 32 members at most")), (3 + 65, true), "{what}");
    let addressed = format!("{start}founder = \"m0\"\n{}address = \"10.0.0.1:7\"\n", member(0));
    assert_eq!(fault(&addressed), (6, "address means nothing with this medium: remove the line".to_owned()));
}

/// Goal: a group is the same however TOML writes it, and the page and the example have files that are read.
#[test]
fn all_of_toml_is_legal() {
    let plain = "name = \"g\"\nmedium = \"shared\"\nfounder = \"a\"\nwindow = 32\nport = 7000\n\
        [[member]]\nname = \"a\"\n[[member]]\nname = \"b\"\n[faults]\nseed = 1\ndelay = \"1us\"\n";
    let other = "\u{feff}\"name\" = \"\\u0067\"\nmember = [{ name = 'a' }, # two\n  { 'name' = \"b\" },\n]\n\
        port = +7_000\nwindow = 0x20\nmedium = \"\"\"\nshared\"\"\"\nfounder = 'a'\nfaults = { seed = 1, delay = '1us' }\n";
    assert_eq!(format!("{:?}", parse(plain).unwrap()), format!("{:?}", parse(other).unwrap()));
    let page = include_str!("../../../../../docs/broadcast.md");
    let of_page = page.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    assert!(parse(of_page).unwrap().members().eq(["plc", "robot"]));
    let example = parse(include_str!("../../../examples/group.toml")).unwrap();
    assert!(example.members().eq(["plc", "robot", "camera"]));
    for (list, line) in [("[member]\nname = \"a\"\n", 4), ("member = [7]", 4), ("member = \"a\"", 4)] {
        let (at, what) = fault(&format!("name = \"g\"\nmedium = \"shared\"\nfounder = \"a\"\n{list}"));
        assert_eq!(
            (at, &*what),
            (line, "there may be several: write [[member]] above the lines of each"),
            "{list}"
        );
    }
}

/// Goal: no file is nested so deeply that its reader runs out of stack.
#[test]
fn the_deepest_file_is_refused() {
    let key = ["a"; 79].join(".");
    for deep in [
        format!("{key} = {{").repeat(300),
        "[".repeat(60_000),
        "a.".repeat(30_000),
        format!("{key} = [").repeat(79),
    ] {
        for text in [format!("{deep}7"), format!("x = {{{deep}7{}", "}".repeat(79))] {
            assert!(parse(&text).is_err());
        }
    }
    let legal = format!("{key} = {{ ").repeat(78) + &format!("{key} = 7") + &" }".repeat(78);
    assert!(fault(&legal).1.starts_with("a means nothing here"), "{}", fault(&legal).1);
}

/// Goal: a file that cannot be read is named with its path, and nothing is read without a limit.
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cell.toml");
    let refused = |path: &Path| match GroupFile::read(path) {
        Err(error @ GroupFileError::Unreadable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(&path).contains("cell.toml: No such file"), "{}", refused(&path));
    assert!(refused(folder.path()).contains("it is no file: name the group's file"));
    let pipe = folder.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    assert!(refused(&pipe).contains("it is no file"));
    std::fs::write(&path, [b'#'; 70_000]).unwrap();
    assert!(refused(&path).contains("where a group needs less: shorten it"));
    // The largest size cuts a character.
    std::fs::write(&path, format!("#{}", "é".repeat(40_000))).unwrap();
    assert!(refused(&path).contains("shorten it"), "{}", refused(&path));
    std::fs::write(&path, b"name = \"\xff\"").unwrap();
    assert!(refused(&path).ends_with(": save it as UTF-8"), "{}", refused(&path));
    std::fs::write(&path, FULL.replace("5 ms", "5 m")).unwrap();
    let off = GroupFile::read(&path).unwrap_err().to_string();
    assert!(off.starts_with(&format!("{}:10: heartbeat: \"5 m\" is no time", path.display())), "{off}");
    std::fs::write(&path, FULL.replace('\n', "\r\n")).unwrap();
    assert_eq!(
        format!("{:?}", GroupFile::read(&path).unwrap().options),
        format!("{:?}", parse(FULL).unwrap().options)
    );
}

/// Goal: members draw faults of their own, the same each time.
#[test]
fn faults_differ_from_member_to_member() {
    let node = |name: &str| format!("{:?}", parse(FULL).unwrap().member(name).unwrap().node);
    assert_eq!(node("plc"), node("plc"));
    assert_ne!(node("plc").replace("plc", "robot"), node("robot"));
}

proptest! {
    /// Goal: every file makes a group or an error with one of its lines; every member of a group has a bus. Method: any text; a good
    /// file with pieces of it, and of others, put anywhere.
    #[test]
    fn any_text_is_refused_or_read(
        text in "\\PC{0,200}",
        pieces in proptest::collection::vec((0..FULL.len(), 0..FULL.len(), 0..30_usize, 0..24_usize), 0..6),
    ) {
        const PIECES: [&str; 24] = [
            "\"", "'", "\n", "[", "]", "#", "=", " = 7", "[[member]]\n", "[faults]", "\"never\"", "\u{feff}é\r\n",
            "{", "}", ".", ",", "\"\"\"", "'''", "-1", "0x", "1e9", "2026-11-25", "[member.a]\n", "member = [{",
        ];
        let mut spoilt = FULL.to_owned();
        for (at, from, size, piece) in pieces {
            let at = at.min(spoilt.len());
            let at = (0..=at).rev().find(|&at| spoilt.is_char_boundary(at)).unwrap_or(0);
            let copied = FULL.get(from..(from + size).min(FULL.len())).unwrap_or("");
            let end = (at + size).min(spoilt.len());
            let end = (at..=end).rev().find(|&end| spoilt.is_char_boundary(end)).unwrap_or(at);
            spoilt.replace_range(at..end, if size % 2 == 0 { PIECES[piece] } else { copied });
        }
        for text in [text, spoilt] {
            match parse(&text) {
                Ok(file) => {
                    for name in file.members() {
                        let member = file.member(name).unwrap();
                        let _any_will_do = (member.bus.to_string(), member.group.founds);
                    }
                }
                Err(GroupFileError::Line { line, what, .. }) => {
                    prop_assert!((1..=text.split('\n').count()).contains(&line), "{line}: {what}");
                    prop_assert!(!what.is_empty());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
