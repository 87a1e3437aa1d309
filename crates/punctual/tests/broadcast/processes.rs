//! Real processes. Each writes down what it is told. Regardless of kills and stops, these records must be one history.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual::broadcast::{Delivery, Group, GroupOptions, Guarantee};
use punctual::{Bus, Node, NodeId};
use punctual_machine::process::random;

use crate::common::{Dice, Role, free_ports, unique, watchdog};

/// With four, one may be killed while another one is suspected wrongly.
const NAMES: [&str; 4] = ["anne", "bob", "carl", "dora"];

/// From this number on one says: its sender sends nothing else any more.
const END: u64 = 1 << 63;

fn bus_of(text: &str) -> Bus {
    match text.split_once(' ') {
        Some(("shared", name)) => Bus::shared(name),
        Some(("multicast", group)) => Bus::multicast(group.parse().unwrap(), [127, 0, 0, 1].into()),
        _ => panic!("{text}: no bus"),
    }
}

/// Sender, its process, and the number; then bytes that follow from these.
fn message(place: u64, process: u64, number: u64) -> Vec<u8> {
    let mut dice = Dice(process ^ number | 1);
    let size = dice.below(if number.is_multiple_of(16) { 20_000 } else { 600 });
    let mut bytes: Vec<u8> = [place, process, number].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend((0..size).map(|_| dice.below(256) as u8));
    bytes
}

/// Returns what a message says of itself, if it is as it was sent.
fn read(payload: &[u8]) -> [u64; 3] {
    let word = |at: usize| u64::from_le_bytes(payload[8 * at..8 * at + 8].try_into().unwrap());
    let [place, process, number] = [word(0), word(1), word(2)];
    assert!(payload == message(place, process, number), "what was sent");
    [place, process, number]
}

/// A member that broadcasts until a file says stop, and writes down what it is told. `role` is its place, how many processes
/// were there before, and the folder of these files.
pub(crate) fn play(role: &str, bus: &str) {
    let words: Vec<&str> = role.splitn(3, ' ').collect();
    let (place, turn, folder) = (words[0].parse::<u64>().unwrap(), words[1], Path::new(words[2]));
    let process = random() >> 1;
    let node = Node::open(&bus_of(bus), NAMES[place as usize]).unwrap();
    let log = format!("{}.{turn}.{process:x}", NAMES[place as usize]);
    let mut log = File::create(folder.join(log)).unwrap();
    let options = GroupOptions {
        suspect_after: Duration::from_millis(400),
        founds: place == 0,
        ..GroupOptions::new("team", &NAMES)
    };
    let mut group = Group::join(&node, &options).unwrap();
    let (mut number, mut ends, mut has_ended, mut next_at) = (0, 0, false, Instant::now());
    loop {
        let stops = folder.join("stop").exists();
        if stops && !has_ended {
            has_ended = group.try_broadcast(&message(place, process, END + ends)).is_ok();
            ends += u64::from(has_ended);
        } else if !stops && Instant::now() >= next_at {
            let guarantee = if number % 4 == 0 { Guarantee::Agreed } else { Guarantee::Uniform };
            number += u64::from(group.try_broadcast_as(&message(place, process, number), guarantee).is_ok());
            next_at = Instant::now() + Duration::from_millis(1);
        }
        let line = match group.deliver(Duration::from_millis(1)) {
            Ok(Delivery::Message(told)) => {
                let [place, process, number] = read(told.payload);
                let certainty = if told.guarantee == Guarantee::Uniform { "u" } else { "a" };
                format!(
                    "m {} {} {place} {process} {number} {} {certainty}\n",
                    told.view,
                    told.number << 16 | u64::from(told.part),
                    told.life
                )
            }
            Ok(Delivery::View(view)) => {
                // A member that comes in with this view, or came back, was not told of it before.
                has_ended = false;
                let lives = |name: &str| {
                    let member = view.members.iter().find(|(node, _)| *node == NodeId::named(name));
                    member.map_or(0, |(_, life)| *life)
                };
                let lives = NAMES.map(|name| lives(name).to_string());
                format!("v {} {}\n", view.number, lives.join(" "))
            }
            Ok(Delivery::Expelled) => "x\n".to_owned(),
            _ => continue,
        };
        log.write_all(line.as_bytes()).unwrap();
    }
}

/// A message as a member wrote it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    view: u64,
    index: u64,
    place: u64,
    process: u64,
    number: u64,
    life: u64,
}

/// Deliveries to one process in one of its lives: views, each with its messages; and which of these were uniform.
#[derive(Clone, Debug, Default)]
struct Story {
    views: Vec<(u64, Vec<u64>, Vec<Line>)>,
    uniform: BTreeSet<Line>,
}

/// The stories of one process. A line that is not whole was being written when it was killed.
fn stories(path: &Path) -> Vec<Story> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut stories = vec![Story::default()];
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let story = stories.last_mut().unwrap();
        match words[0] {
            "x" => stories.push(Story::default()),
            "v" => story.views.push((number(1), (2..6).map(number).collect(), Vec::new())),
            _ => {
                let told = Line {
                    view: number(1),
                    index: number(2),
                    place: number(3),
                    process: number(4),
                    number: number(5),
                    life: number(6),
                };
                let (view, lives, lines) = story.views.last_mut().expect("a view comes first");
                assert_eq!(*view, told.view, "a message is of the view in which it is delivered");
                assert_eq!(lives[told.place as usize], told.life, "its sender is a member");
                assert!(lines.last().is_none_or(|before| before.index < told.index), "in order, each once");
                lines.push(told);
                if words[7] == "u" {
                    story.uniform.insert(told);
                }
            }
        }
    }
    stories
}

/// Checks the promises for any histories, however their processes ended. A founder that comes back is alone in a view of its own,
/// before it hears the others: a view of so few takes no messages.
fn check(all: &[Story]) {
    let mut order: BTreeMap<(u64, u64), Line> = BTreeMap::new();
    let mut members: BTreeMap<u64, &Vec<u64>> = BTreeMap::new();
    let mut ended: BTreeMap<u64, &Vec<Line>> = BTreeMap::new();
    for story in all {
        let mut seen = BTreeSet::new();
        let mut last: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (at, (view, lives, lines)) in story.views.iter().enumerate() {
            if lives.iter().filter(|&&life| life != 0).count() <= NAMES.len() / 2 {
                assert!(lines.is_empty(), "{view} is too small for messages");
                continue;
            }
            assert_eq!(*members.entry(*view).or_insert(lives), lives, "view {view} is the same everywhere");
            let goes_on = at + 1 < story.views.len();
            if goes_on {
                assert_eq!(story.views[at + 1].0, view + 1, "views follow each other");
                assert!(
                    *ended.entry(*view).or_insert(lines) == lines,
                    "members that go on delivered the same in {view}"
                );
            }
            for line in lines {
                assert!(seen.insert((line.process, line.number)), "{line:?} twice");
                // An agreed message that a member that ends in this view delivered may be nobody else's.
                if goes_on || story.uniform.contains(line) {
                    assert_eq!(order.entry((line.view, line.index)).or_insert(*line), line, "one order");
                }
                if let Some(before) = last.insert((line.process, line.life), line.number)
                    && line.number < END
                {
                    assert_eq!(line.number, before + 1, "nothing of {line:?}'s sender is missing");
                }
            }
        }
    }
    for story in all {
        for line in &story.uniform {
            let lost = ended.get(&line.view).is_some_and(|lines| lines.binary_search(line).is_err());
            assert!(!lost, "{line:?} was uniform, and a member that went on has not delivered it");
        }
    }
}

/// The processes of a group, and what they write.
struct World {
    bus: String,
    folder: tempfile::TempDir,
    roles: Vec<Option<Role>>,
}

impl World {
    fn new(bus: String) -> Self {
        let mut world = Self { bus, folder: tempfile::tempdir().unwrap(), roles: NAMES.map(|_| None).into() };
        (0..NAMES.len()).for_each(|place| world.start(place));
        world
    }

    fn start(&mut self, place: usize) {
        let turn = self.files(place).len();
        let role = format!("{place} {turn} {}", self.folder.path().display());
        self.roles[place] = Some(Role::start(&role, &self.bus));
    }

    fn kill(&mut self, place: usize) {
        self.roles[place].take().unwrap().kill();
    }

    /// The files of all processes that ever were at a place, the newest last.
    fn files(&self, place: usize) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_its = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(NAMES[place]);
        let mut files: Vec<PathBuf> = files.filter(is_its).collect();
        files.sort();
        files
    }

    /// The newest story at a place.
    fn story(&self, place: usize) -> Story {
        self.files(place).last().and_then(|path| stories(path).pop()).unwrap_or_default()
    }

    /// Waits until all at these places were told a view with just these members, and this many messages in it.
    fn await_view(&self, places: &[usize], messages: usize) {
        let is_there = |place: usize| {
            let story = self.story(place);
            story.views.last().is_some_and(|(_, lives, lines)| {
                lines.len() >= messages && (0..lives.len()).all(|at| (lives[at] != 0) == places.contains(&at))
            })
        };
        while !places.iter().all(|&place| is_there(place)) {
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Lets all say that they send no more, waits until all were told by all, and checks what was written.
    fn end(mut self) {
        File::create(self.folder.path().join("stop")).unwrap();
        let newest = |place: usize| {
            let path = self.files(place).pop().unwrap();
            u64::from_str_radix(path.extension().unwrap().to_str().unwrap(), 16).unwrap()
        };
        let processes: BTreeSet<u64> = (0..NAMES.len()).map(newest).collect();
        let knows_all = |place: usize| {
            let views = self.story(place).views;
            let ends = views.iter().flat_map(|(.., lines)| lines).filter(|line| line.number >= END);
            ends.map(|line| line.process).collect::<BTreeSet<u64>>().is_superset(&processes)
        };
        while !(0..NAMES.len()).all(knows_all) {
            std::thread::sleep(Duration::from_millis(30));
        }
        (0..NAMES.len()).for_each(|place| self.kill(place));
        let all: Vec<Story> =
            (0..NAMES.len()).flat_map(|place| self.files(place)).flat_map(|path| stories(&path)).collect();
        check(&all);
    }
}

/// A group of processes under load; one after the other is killed and comes back, the sequencer first.
fn kill_and_come_back(bus: String) {
    let mut world = World::new(bus);
    for victim in [0, 2] {
        let all = [0, 1, 2, 3];
        world.await_view(&all, 100);
        world.kill(victim);
        let survivors: Vec<usize> = all.into_iter().filter(|&place| place != victim).collect();
        world.await_view(&survivors, 100);
        world.start(victim);
    }
    world.await_view(&[0, 1, 2, 3], 100);
    world.end();
}

/// Goal: any member may be killed under load, the sequencer too: survivors agree, and nothing is doubled or lost. A member that comes
/// back, though it says that it founds, is with the others.
#[test]
fn killed_in_shared_memory() {
    let _alive = watchdog(120);
    kill_and_come_back(format!("shared {}", unique("kills")));
}

/// Goal: the same over UDP.
#[test]
fn killed_on_udp() {
    let _alive = watchdog(120);
    if std::env::var("PUNCTUAL_TEST_WITHOUT").is_ok_and(|without| without.contains("multicast")) {
        return punctual_machine::skipped!("PUNCTUAL_TEST_WITHOUT names multicast");
    }
    kill_and_come_back(format!("multicast 239.255.80.86:{}", free_ports().0.port()));
}

/// Goal: a member that stands still is put out, the others go on, and it is with them again when it goes on.
#[test]
fn one_that_is_stopped_comes_back() {
    let _alive = watchdog(120);
    let world = World::new(format!("shared {}", unique("stopped")));
    world.await_view(&[0, 1, 2, 3], 50);
    let stopped = world.roles[1].as_ref().unwrap();
    stopped.signal("-STOP");
    world.await_view(&[0, 2, 3], 300);
    stopped.signal("-CONT");
    world.await_view(&[0, 1, 2, 3], 50);
    world.end();
}
