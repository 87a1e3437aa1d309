//! The examples of docs/python.md and docs/c.md run as they stand there.

mod common;
mod plausible;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Place, own_address};
use punctual::{Bus, Node, Target};

const PYTHON: &str = include_str!("../../../docs/python.md");
const C: &str = include_str!("../../../docs/c.md");
/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The example of a page in a language that holds these words.
#[track_caller]
fn example(page: &str, language: &str, words: &str) -> String {
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let mut found = blocks.filter(|(of, text)| *of == language && text.contains(words));
    let (_, text) = found.next().expect("an example");
    assert!(found.next().is_none(), "two examples with {words}");
    text.to_owned()
}

fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        punctual_machine::skipped!("no {tool} here");
    }
    there
}

/// A Python program, which finds `punctual` by its name.
fn python(place: &Place, text: &str) -> Command {
    let file = place.path("example.py");
    fs::write(&file, text).expect("room");
    let folder = Path::new(env!("CARGO_BIN_EXE_punctual")).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("python3");
    command.arg(file).env("PATH", path);
    command
}

/// Compiles a program and says where it is.
fn compiled(place: &Place, compiler: &[&str], text: &str) -> Command {
    fs::write(place.path("example.c"), text).expect("room");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-o", "example", "example.c"]);
    place.start(command).end().with(0);
    Command::new(place.path("example"))
}

/// Both compilers that are there.
fn compilers() -> impl Iterator<Item = &'static [&'static str]> {
    let all: [&[&str]; 2] = [&["cc", "-std=gnu11"], &["c++", "-std=gnu++17", "-xc++"]];
    all.into_iter().filter(|compiler| has(compiler[0]))
}

/// Runs a program that asks a node at port 7, made from a text in which the addresses of the page stand; says what it printed.
fn asked(place: &Place, text: &str, started: impl FnOnce(&Place, &str) -> Command) -> String {
    let free = || UdpSocket::bind((own_address(), 0)).expect("a port");
    let [own, peer] = [free(), free()].map(|socket| socket.local_addr().expect("bound"));
    // One of the new numbers may hold the other old one.
    let text = text.replace("7400", "{own}").replace("7401", "{peer}");
    let text = text.replace("{own}", &own.port().to_string()).replace("{peer}", &peer.port().to_string());
    let text = text.replace("127.0.0.1", &own_address().to_string());
    let text = text.replace("INADDR_LOOPBACK", &format!("{:#x}", own_address().to_bits()));
    let program = started(place, &text);
    let node = Node::open(&Bus::peers(own, &[peer]), "pong").expect("a free port");
    let mut pong = node.bind(7).expect("a free port of the node");
    let running = place.start(program);
    let message = pong.receive_timeout(PATIENCE).expect("a question");
    let back = Target::from(message.source);
    let answer = [message.payload, b", and back"].concat();
    pong.send(back, &answer).expect("somebody to answer");
    let said = running.end().with(0).out;
    // Until its goodbye nothing of the stranger's is missing.
    let _nothing_more = pong.receive_timeout(Duration::from_millis(1));
    let ledger = node.ledger();
    assert_eq!((ledger.delivered, ledger.lost(), ledger.bad_frames), (1, 0, 0), "{ledger}");
    said
}

#[test]
fn python_speaks_on_udp() {
    if !has("python3") {
        return;
    }
    let text = example(PYTHON, "python", "crc32c");
    let said = asked(&Place::new(), &text, python);
    assert_eq!(said, "hello from afar, and back\n");
}

#[test]
fn python_watches_counters() {
    if !has("python3") {
        return;
    }
    let (place, name) = (Place::new(), format!("python-{}", std::process::id()));
    let node = Node::open(&Bus::loopback("docs-python"), &name).expect("opens");
    let _bound = node.bind(1).expect("a free port");
    let command = python(&place, &example(PYTHON, "python", "subprocess"));
    let said = place.start(command).end().with(0).out;
    assert!(said.contains(&format!("loopback:docs-python {name} delivered 0 not delivered 0")), "{said}");
}

#[test]
fn c_speaks_on_udp() {
    for compiler in compilers() {
        let text = example(C, "c", "crc32c");
        let said = asked(&Place::new(), &text, |place, text| compiled(place, compiler, text));
        assert_eq!(said, "hello from afar, and back\n", "{compiler:?}");
    }
}

/// Goal: the program reads of each counter what the ledger says.
#[test]
fn c_reads_counters() {
    let name = format!("c-{}", std::process::id());
    let bus = Bus::shared(&name);
    let nodes = ["here", "there"].map(|node| Node::open(&bus, node).expect("opens"));
    let [mut here, mut there] = nodes.each_ref().map(|node| node.bind(1).expect("a free port"));
    for _ in 0..3 {
        here.send(Target::port("there", 1), b"counted").expect("there");
        there.receive_timeout(PATIENCE).expect("a message");
    }
    for compiler in compilers() {
        let place = Place::new();
        let said = place.start(compiled(&place, compiler, &example(C, "c", "PUNCOUNT"))).end().with(0).out;
        for (node, of) in nodes.iter().zip(["here", "there"]) {
            let ledger = node.ledger();
            let line = format!("shared:{name} {of} sent {} delivered {}", ledger.sent, ledger.delivered);
            assert!(said.lines().any(|one| one == line), "{compiler:?}: {line}: {said}");
        }
        assert!(said.contains(&format!("shared:{name} here sent 3 delivered 0")), "{said}");
    }
}

#[test]
fn python_reads_a_summary() {
    if !has("python3") {
        return;
    }
    let place = Place::new();
    let run = plausible::run(&place.path("RUN"), &[0, 1000], 3, 700);
    let summary = run.summary.expect("finished");
    let said = place.start(python(&place, &example(PYTHON, "python", "summary.json"))).end().with(0).out;
    for result in &summary.results {
        let cell = &result.cell;
        let key = [cell.name.as_str(), cell.kind.as_str(), cell.load.as_str()].join("|");
        let p50 = result.figures.p50.expect("2,000 messages support it");
        let line = format!("{key}|{}|{}|{p50}", cell.gap_us, cell.size);
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
    assert_eq!(said.lines().filter(|line| line.starts_with("doubt: ")).count(), summary.doubts.len());
}
