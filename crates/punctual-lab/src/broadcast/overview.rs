//! Output of `punctual run broadcast`: speed beside bare multicast and the published table, and its costs.

use super::beside::{self, latency};
use super::option::{BroadcastKind, Datagrams, FaultProfile, Senders};
use super::trial::{BroadcastOverall, BroadcastTrial, FloorTrial};
use super::turn::FLOOR_SIZE;
use super::{kv, lives, published};
use crate::distinct::distinct;
use crate::report::draw::{Series, numbers as line_numbers};
use crate::report::parts::{self, three_cells};
use crate::report::section::{Cell, Column, Output, Section, Table, Tone, numbers};
use crate::stats::middle;
use crate::summary::Summary;
use crate::units::{OptionName, count, dash, fixed};

/// The summary's part about it.
fn overall(summary: &Summary) -> Option<BroadcastOverall> {
    summary.added("broadcast")
}

/// The whole answer.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(all) = overall(summary) {
        let groups = groups(&all);
        if !groups.is_empty() {
            sections.push(speeds(&all, &groups, summary));
            sections.extend(beside::section(&groups, all.senders, summary));
            sections.push(costs(&groups));
            sections.extend(drawn(&groups));
        }
        sections.extend(floors(&all));
        sections.extend(lives::sections(&all.disrupted));
        sections.extend(broken(&all));
        sections.extend(kv::sections(&all.kv, summary));
    }
    sections.extend(parts::rest(summary));
    sections
}

/// Promises that did not hold, in words.
fn broken(all: &BroadcastOverall) -> Option<Section> {
    let of_lives = all.disrupted.iter().flat_map(|trial| &trial.violations);
    let mut sentences = of_lives.chain(&all.violations).peekable();
    sentences.peek()?;
    Some(sentences.fold(Section::new("Promises that did not hold"), Section::words))
}

/// Trials of one thing, all runs.
pub(super) type Trials<'a> = Vec<&'a BroadcastTrial>;

fn is_same(one: &BroadcastTrial, other: &BroadcastTrial) -> bool {
    let key = |trial: &BroadcastTrial| (trial.engine, trial.kind, trial.members, trial.faults, trial.frame);
    key(one) == key(other)
}

/// By group and engine, the fewest faults first.
fn groups(all: &BroadcastOverall) -> Vec<Trials<'_>> {
    let mut groups: Vec<Trials<'_>> = Vec::new();
    for trial in &all.trials {
        match groups.iter_mut().find(|group| is_same(group[0], trial)) {
            Some(group) => group.push(trial),
            None => groups.push(vec![trial]),
        }
    }
    let place = |trial: &BroadcastTrial| all.trials.iter().position(|other| other.engine == trial.engine);
    groups.sort_by_key(|group| (place(group[0]), group[0].kind as u8, group[0].members));
    groups
}

pub(super) fn speed_of(group: &[&BroadcastTrial]) -> f64 {
    middle(group.iter().map(|trial| trial.speed()).collect()).unwrap_or(0.0)
}

/// MB/s, thousands of thousands of bytes.
pub(super) fn mega(speed: f64) -> String {
    fixed(speed / 1e6, if speed < 100e6 { 1 } else { 0 })
}

/// The speed of bare datagrams with as much payload as a trial's frames. Another system's datagrams are its own: beside it stand usual
/// ones.
fn floor_of(all: &BroadcastOverall, trial: &BroadcastTrial) -> Option<f64> {
    let size = if trial.engine.is_other() { FLOOR_SIZE } else { trial.frame };
    let is_it = |floor: &&FloorTrial| (floor.members, floor.size) == (trial.members, size);
    let of = all.floors.iter().filter(|floor| floor.datagrams == Datagrams::Bare).filter(is_it);
    middle(of.map(FloorTrial::speed).collect())
}

/// The speed of bare multicast of the same size in the round of a trial of messages: as many were made before it.
fn bare_beside(all: &BroadcastOverall, trial: &FloorTrial) -> Option<f64> {
    let of = |datagrams: Datagrams| {
        let key = |floor: &FloorTrial| (floor.members, floor.size);
        let same = move |floor: &&FloorTrial| key(floor) == key(trial) && floor.datagrams == datagrams;
        all.floors.iter().filter(same)
    };
    let before = of(trial.datagrams).position(|floor| std::ptr::eq(floor, trial))?;
    of(Datagrams::Bare).nth(before).map(FloorTrial::speed)
}

fn key(trial: &BroadcastTrial) -> [Cell; KEYS] {
    [
        trial.engine.name().into(),
        trial.kind.name().into(),
        trial.members.to_string().into(),
        trial.faults.to_string().into(),
        count(trial.frame as u64).into(),
    ]
}

/// Columns that say what a row is of.
const KEYS: usize = 5;

fn keys() -> Vec<Column> {
    [vec![Column::name("engine"), Column::name("kind")], numbers(["members", "loss/flips %", "frame"])]
        .concat()
}

fn speeds(all: &BroadcastOverall, groups: &[Trials<'_>], summary: &Summary) -> Section {
    let mut columns = keys();
    columns.extend(numbers(["MB/s", "of floor", "of 0/0", "printed", "× printed", "messages/s"]));
    columns.extend(["p50", "p99", "max"].map(|head| Column::number(head).over("latency")));
    let mut table = Table::new(columns).keyed(KEYS);
    for group in groups {
        let (first, speed) = (group[0], speed_of(group));
        let printed = published::speed(first.kind, first.members, first.faults);
        let mut row: Vec<Cell> = key(first).into();
        row.push(Cell::toned(mega(speed), Tone::Strong));
        row.extend(shares(all, groups, (first, speed)));
        row.push(printed.map_or_else(dash, |printed| fixed(printed, 2)).into());
        row.push(printed.map_or_else(dash, |printed| fixed(speed / 1e6 / printed, 1)).into());
        row.push(count((speed / all.message as f64).round() as u64).into());
        row.extend(three_cells(latency(summary, first)));
        table.row(row);
    }
    let who = match all.senders {
        Senders::One => "the member that orders broadcasts",
        Senders::All => "all members broadcast",
    };
    let about = format!(
        "payload at the slowest member; messages of {} B, {who}; MTU {}, not in memory",
        count(all.message as u64),
        count(all.mtu as u64)
    );
    let note = "Content was compared at all members, and order: one of all messages; of urb and beb each sender's. Latency: from broadcast to delivery at the last member, under this \
                load, of the first 50,000 messages of a trial, µs; runs pooled. Of floor: beside bare datagrams as large as a group's, in which the payload \
                of a frame counts; of other systems beside those of frames of 1,328 B. The floor runs without faults, also beside rows with them. \
                Larger frames have no floor. Printed: MB/s of the published table, whose generator counted 33.3 times what it sent. \
                Printed only of one order: of others nothing was published. Faults: at each receiver, on every datagram of every kind; a damaged one counts as one whose check failed. In the kernel: on \
                every packet, one bit of which is flipped, below every check.";
    Section::new("How fast a group delivers").about(about).table(table.without_empty()).note(note)
}

/// Speed against faults, a line for each engine, kind, group and frame; thin: as published.
fn drawn(groups: &[Trials<'_>]) -> Option<Section> {
    let mut steps = distinct(groups.iter().map(|group| group[0].faults));
    steps.sort_by_key(|faults| (faults.loss_permille, faults.flips_permille));
    if steps.len() < 2 {
        return None;
    }
    let step_of = |faults: FaultProfile| steps.iter().position(|&step| step == faults);
    let mut series: Vec<Series> = Vec::new();
    for group in groups {
        let &BroadcastTrial { engine, kind, members, frame, faults, .. } = group[0];
        let name = format!("{}, {}, {members}, {frame} B", engine.name(), kind.name());
        let look = series.len();
        let point = step_of(faults).map(|step| (step, speed_of(group)));
        match series.iter_mut().find(|one| one.name == name) {
            Some(one) => one.points.extend(point),
            None => {
                let points = point.into_iter().collect();
                series.push(Series { name, look: look % 8, is_thin: false, points });
            }
        }
    }
    series.iter_mut().for_each(|one| one.points.sort_by_key(|(step, _)| *step));
    let mut sizes: Vec<usize> = groups.iter().map(|group| group[0].members).collect();
    sizes.sort_unstable();
    sizes.dedup();
    series.extend(sizes.iter().enumerate().filter_map(|(place, &members)| {
        let speeds = steps.iter().enumerate();
        let points = speeds.filter_map(|(step, &faults)| {
            Some((step, published::speed(BroadcastKind::Ab, members, faults)? * 1e6))
        });
        let points: Vec<(usize, f64)> = points.collect();
        let name = format!("published, {members}");
        (!points.is_empty()).then(|| Series { name, look: 8 + place % 2, is_thin: true, points })
    }));
    let names: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let about = "payload at the slowest member, B/s, by loss and flips in hundredths; thin: as published";
    let section = Section::new("Speed against faults").about(about).only_on(Output::Page);
    Some(section.with(line_numbers("speed against faults", &names, &series)))
}

/// Its share of the floor, and of the same without faults.
fn shares(
    all: &BroadcastOverall,
    groups: &[Trials<'_>],
    (trial, speed): (&BroadcastTrial, f64),
) -> [Cell; 2] {
    let share = |of: Option<f64>| Cell::from(of.map_or_else(dash, |of| fixed(speed / of, 2)));
    let clean = groups.iter().find(|group| {
        let is_clean = group[0].faults.loss_permille + group[0].faults.flips_permille == 0;
        let key = |trial: &BroadcastTrial| (trial.engine, trial.kind, trial.members, trial.frame);
        is_clean && key(group[0]) == key(trial)
    });
    let floor = floor_of(all, trial).filter(|_| trial.engine.is_of_a_network());
    [share(floor), share(clean.map(|group| speed_of(group)))]
}

/// Costs, for each message.
fn costs(groups: &[Trials<'_>]) -> Section {
    let mut columns = keys();
    columns
        .extend(numbers(["sent", "repairs", "questions"]).into_iter().map(|column| column.over("a message")));
    columns.push(Column::number("lost %"));
    columns
        .extend(numbers(["lost", "altered"]).into_iter().map(|column| column.over("packets, in the kernel")));
    columns.extend(numbers(["CPU s/GB", "views", "altered", "misordered", "runs"]));
    let mut table = Table::new(columns).keyed(KEYS);
    for group in groups {
        let sum = |of: fn(&BroadcastTrial) -> u64| group.iter().map(|trial| of(trial)).sum::<u64>();
        let messages = sum(|trial| trial.messages).max(1) as f64;
        let each = |of: u64| Cell::from(fixed(of as f64 / messages, 2));
        let came = sum(|trial| trial.frames_arrived) + sum(|trial| trial.frames_lost);
        let mut row: Vec<Cell> = key(group[0]).into();
        row.extend([each(sum(|trial| trial.frames_sent)), each(sum(|trial| trial.repaired))]);
        row.push(each(sum(|trial| trial.questions)));
        row.push(fixed(100.0 * sum(|trial| trial.frames_lost) as f64 / came.max(1) as f64, 2).into());
        let packets = [sum(|trial| trial.packets_damaged[1]), sum(|trial| trial.packets_damaged[2])];
        row.extend(packets.map(|of| Cell::from(if of > 0 { count(of) } else { String::new() })));
        row.push(fixed(sum(|trial| trial.cpu_ns) as f64 / sum(|trial| trial.bytes).max(1) as f64, 1).into());
        row.push(Cell::broken(sum(|trial| trial.views)));
        row.extend([Cell::broken(sum(|trial| trial.altered)), Cell::broken(sum(|trial| trial.misordered))]);
        row.push(group.len().to_string().into());
        table.row(row);
    }
    let about = "all members together";
    let note = "Sent: messages on the bus, of any kind. Repairs: frames that a member lacked and got. Lost: of what was to arrive, \
                by faults and by full buffers. CPU: of all members, for each GB delivered at each of them.";
    Section::new("What it took").about(about).table(table.without_empty()).note(note)
}

fn floors(all: &BroadcastOverall) -> Option<Section> {
    let mut columns = vec![Column::name("cell"), Column::number("members")];
    columns.extend(numbers(["frame", "datagram", "MB/s", "of floor", "lost %", "merged"]));
    let mut table = Table::new(columns);
    for floor in &all.floors {
        let lost = floor.sent.saturating_sub(floor.received);
        let is_bare = floor.datagrams == Datagrams::Bare;
        let merged = match floor.merged {
            _ if !is_bare => dash(),
            [true, true] => "both ways".to_owned(),
            [true, false] => "sent".to_owned(),
            [false, _] => "no".to_owned(),
        };
        let bare = if is_bare { None } else { bare_beside(all, floor) };
        table.row([
            floor.datagrams.name().into(),
            floor.members.to_string().into(),
            count(floor.size as u64).into(),
            count(floor.datagram_size() as u64).into(),
            Cell::toned(mega(floor.speed()), Tone::Strong),
            bare.map_or_else(dash, |bare| fixed(floor.speed() / bare, 2)).into(),
            fixed(100.0 * lost as f64 / floor.sent.max(1) as f64, 1).into(),
            merged.into(),
        ]);
    }
    let note = "Nobody waits for a receiver here: messages that it has no room for are lost, and do not count. No fault is made. \
                Datagrams are as large as a group's, and the payload of its frame counts. Messages are the library's, in datagrams \
                as large, queued in runs, beside the floor of their round.";
    let section = Section::new("Multicast without a group").about("payload at the slowest receiver");
    section.table(table).note(note).with_rows()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::messages::datagram_size;
    use crate::broadcast::option::{BroadcastEngine, OtherSystem};

    fn trial(engine: BroadcastEngine, frame: usize) -> BroadcastTrial {
        BroadcastTrial {
            engine,
            members: 3,
            frame,
            messages: 1,
            bytes: 1,
            duration_ns: 1,
            ..BroadcastTrial::default()
        }
    }

    fn floor(datagrams: Datagrams, size: usize, received: u64) -> FloorTrial {
        let (members, merged) = (3, [true; 2]);
        let (sent, datagram) = (received, datagram_size(size));
        FloorTrial { members, size, datagram, datagrams, sent, received, duration_ns: 1_000_000_000, merged }
    }

    /// Goal: a group is set beside datagrams with as much payload as its frames, or beside none; another system beside the usual ones.
    #[test]
    fn unlike_sizes_are_not_compared() {
        let all = BroadcastOverall {
            senders: Senders::One,
            message: 30_000,
            mtu: 1_500,
            floors: vec![
                floor(Datagrams::Bare, 512, 10),
                floor(Datagrams::Library, 512, 4),
                floor(Datagrams::Bare, FLOOR_SIZE, 10),
                floor(Datagrams::Library, FLOOR_SIZE, 5),
            ],
            ..BroadcastOverall::default()
        };
        let of = |engine, frame| floor_of(&all, &trial(engine, frame));
        let ours = |frame| of(BroadcastEngine::Multicast, frame);
        assert_eq!([512, FLOOR_SIZE, 8_192].map(ours), [Some(5_120.0), Some(13_280.0), None]);
        assert_eq!(of(BroadcastEngine::Other(OtherSystem::Corosync), 1_400), Some(13_280.0));
        let beside = |place: usize| bare_beside(&all, &all.floors[place]);
        assert_eq!([1, 3].map(beside), [Some(5_120.0), Some(13_280.0)]);
        let speeds = |floors: &[FloorTrial]| floors.iter().map(FloorTrial::speed).collect::<Vec<_>>();
        assert_eq!(speeds(&all.floors), [5_120.0, 2_048.0, 13_280.0, 6_640.0], "the same payload in each");
        let before = all.floors.iter().map(|floor| FloorTrial { datagram: 0, ..floor.clone() });
        let before: Vec<FloorTrial> = before.collect();
        assert_eq!(speeds(&before), [5_120.0, 1_904.0, 13_280.0, 6_460.0], "heads and all in each");
    }
}
