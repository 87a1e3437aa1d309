//! Runs a scenario: a leader and a post that publishes in each cell, and vehicles that come and go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual::interest::{Participant, Publisher, Response, Running, Topic};
use punctual::keyed_group::{GroupChange, GroupLeader, GroupMember, GroupTiming, LeaderEvent, Secret};
use punctual::unit::{Metre, Quantity};
use punctual::{Bus, Keys, Node, NodeId, NodeOptions};
use punctual_machine::process::{fill_with_secrets, random};
use punctual_machine::signal::interrupted;

use super::clear::Secrets;
use super::outcome::{GroupsOutcome, Passage, VehicleEnd};
use super::scenario::{MapCell, Move, Scenario};
use crate::endpoint::{BusPlan, loopback};
use crate::run::{OwnFolder, lock};

/// Value that a post publishes: the number of its cell's group.
type Value = Quantity<Metre, i64>;
const GROUP: Topic<Value> = Topic::named("group");
const EXCHANGE: u16 = 9;
const TURN_EVERY: Duration = Duration::from_micros(500);
/// Leaders and posts have this long to find each other before anybody drives.
const START_MAX: Duration = Duration::from_secs(20);
/// A message of a group that was left longer ago is wrong; until then it may have been under way.
const UNDER_WAY_MAX: Duration = Duration::from_secs(1);

/// The time between two looks at a vehicle counts as so much at most.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// Medium that carries the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GroupsMedium {
    /// Shared memory
    #[default]
    Shared,
    /// UDP over the loopback interface
    Datagram,
}

fn timing() -> GroupTiming {
    const MS: u64 = 1_000_000;
    GroupTiming { retry_ns: 20 * MS, lease_ns: 3_000 * MS, notice_ns: 500 * MS, renewal_ns: 600_000 * MS }
}

/// Where each node is, on whichever medium.
struct Places {
    buses: std::vec::IntoIter<Bus>,
    fleet: Keys,
    master: Secret,
}

impl Places {
    fn new(medium: GroupsMedium, count: usize) -> Result<Self, String> {
        let name = format!("groups-{:x}", random() & 0xFFFF_FFFF);
        let buses: Vec<Bus> = match medium {
            GroupsMedium::Shared => vec![Bus::shared(&name); count],
            GroupsMedium::Datagram => loopback(count)?.iter().map(BusPlan::bus).collect(),
        };
        let mut secret = [0; 32];
        fill_with_secrets(&mut secret);
        let master = Secret::new(secret).ok_or("the kernel gave a secret of zeros")?;
        let fleet = Keys::random(0).overlap(UNDER_WAY_MAX);
        Ok(Self { buses: buses.into_iter(), fleet, master })
    }

    fn open(&mut self, options: &NodeOptions) -> Result<(Node, Keys), String> {
        let keys = self.fleet.copied();
        let bus = self.buses.next().ok_or("more nodes than were counted")?.sealed(&keys);
        Ok((options.open(&bus).map_err(|error| error.to_string())?, keys))
    }

    fn member(&mut self, name: &str) -> Result<(Node, GroupMember), String> {
        let (node, keys) = self.open(&NodeOptions::new(name))?;
        let secret = self.master.of_member(node.id());
        let carrier = node.bind(EXCHANGE).map_err(|error| error.to_string())?;
        let member = GroupMember::new(carrier, &keys, secret, timing()).map_err(|error| error.to_string())?;
        Ok((node, member))
    }
}

/// A cell's leader, and the post that publishes in its group.
struct Station {
    cell: MapCell,
    leader: GroupLeader,
    post: GroupMember,
    capture: PathBuf,
    /// The leader's and the post's.
    nodes: [Node; 2],
    publisher: Running<Publisher<Value>>,
}

fn leader_of(cell: MapCell) -> String {
    format!("lead_{}_{}", cell.x, cell.y)
}

fn post_of(cell: MapCell) -> String {
    format!("post_{}_{}", cell.x, cell.y)
}

impl Station {
    fn open(places: &mut Places, cell: MapCell, group: u32, captures: &OwnFolder) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let capture = captures.path().join(format!("{cell}.pcapng"));
        let (node, keys) = places.open(&NodeOptions::new(&leader_of(cell)).capture(&capture))?;
        let carrier = node.bind(EXCHANGE).map_err(|error| text(&error))?;
        let leader = GroupLeader::new(carrier, &keys, group, places.master.clone(), timing())
            .map_err(|error| text(&error))?;
        let (own, mut post) = places.member(&post_of(cell))?;
        let communicator = own.bind(1).map_err(|error| text(&error))?;
        let mut publisher = Publisher::new(communicator, GROUP).map_err(|error| text(&error))?;
        publisher.follow(&post.membership());
        post.join(NodeId::named(&leader_of(cell)), group).map_err(|error| text(&error))?;
        let value = Quantity::new(i64::from(group));
        let publisher = publisher.spawn(move |_| value).map_err(|error| text(&error))?;
        Ok(Self { cell, leader, post, capture, nodes: [node, own], publisher })
    }
}

/// State and notes of a vehicle's callback.
#[derive(Default)]
struct Note {
    group: u32,
    changed: Option<Instant>,
    first: Option<Instant>,
    /// Values of this group.
    own: u64,
    taken: u64,
    wrong: u64,
}

impl Note {
    /// From now on values of another group are its own; what was counted stays.
    fn change(&mut self, group: u32, now: Instant) {
        let Self { taken, wrong, .. } = *self;
        *self = Self { group, changed: Some(now), taken, wrong, ..Self::default() };
    }

    fn take(&mut self, group: i64, now: Instant) {
        self.taken += 1;
        if group == i64::from(self.group) {
            self.first.get_or_insert(now);
            self.own += 1;
        } else if self.changed.is_none_or(|changed| now - changed > UNDER_WAY_MAX) {
            self.wrong += 1;
        }
    }
}

struct Vehicle {
    name: String,
    node: Node,
    member: GroupMember,
    moves: std::vec::IntoIter<Move>,
    next: Option<Move>,
    note: Arc<Mutex<Note>>,
    running: Running<Participant>,
    current: Option<(Instant, Passage)>,
    /// When it was last looked at, its values of the group until then, and for how long there was none.
    looked: (Instant, u64),
    silent: Duration,
    keys_fetched: u64,
}

impl Vehicle {
    fn open(places: &mut Places, name: &str, moves: Vec<Move>, period: Duration) -> Result<Self, String> {
        let (node, member) = places.member(name)?;
        let communicator = node.bind(1).map_err(|error| error.to_string())?;
        let mut participant = Participant::new(communicator);
        participant.follow(&member.membership());
        let note: Arc<Mutex<Note>> = Arc::default();
        let noted = Arc::clone(&note);
        let sink = move |response: Response<Value>| {
            lock(&noted).take(response.value.number(), Instant::now());
        };
        participant.subscribe(GROUP, period, sink).map_err(|error| error.to_string())?;
        let running = participant.spawn().map_err(|error| error.to_string())?;
        let mut moves = moves.into_iter();
        let (next, name) = (moves.next(), name.to_owned());
        let looked = (Instant::now(), 0);
        let silent = Duration::ZERO;
        Ok(Self {
            name,
            node,
            member,
            moves,
            next,
            note,
            running,
            current: None,
            looked,
            silent,
            keys_fetched: 0,
        })
    }

    /// Does the work that is due at this time of the scenario.
    fn turn(
        &mut self,
        begin: Instant,
        scenario: &Scenario,
        outcome: &mut GroupsOutcome,
    ) -> Result<(), String> {
        self.look();
        if let Some(step) = self.next.filter(|step| begin.elapsed() >= step.at) {
            self.end_passage(outcome);
            let group = scenario.group_of(step.cell);
            let now = Instant::now();
            lock(&self.note).change(group, now);
            let joins = self.member.join(NodeId::named(&leader_of(step.cell)), group);
            joins.map_err(|error| format!("{}: {error}", self.name))?;
            self.current = Some((now, Passage::new(&self.name, step, group)));
            (self.looked, self.silent) = ((now, 0), Duration::ZERO);
            self.next = self.moves.next();
        }
        let (current, keys_fetched) = (&mut self.current, &mut self.keys_fetched);
        let turned = self.member.turn(|change| {
            *keys_fetched += 1;
            if let (GroupChange::Joined(_), Some((since, passage))) = (change, current.as_mut()) {
                passage.joined = Some(since.elapsed());
            }
        });
        turned.map_err(|error| format!("{}: {error}", self.name))
    }

    /// Notes for how long no value has come. A standstill of this process, whose threads they all are, is hardly a part of that.
    fn look(&mut self) {
        let (now, own) = (Instant::now(), lock(&self.note).own);
        let (before, seen) = self.looked;
        let lasted = (now - before).min(LOOK_MAX);
        self.silent = if own == seen { self.silent + lasted } else { Duration::ZERO };
        self.looked = (now, own);
    }

    fn end_passage(&mut self, outcome: &mut GroupsOutcome) {
        if let Some((since, mut passage)) = self.current.take() {
            passage.first = lock(&self.note).first.map(|first| first - since);
            passage.silent = self.silent;
            passage.step.until =
                outcome.cut_short.map_or(passage.step.until, |end| end.min(passage.step.until));
            outcome.passages.push(passage);
        }
    }

    fn end(mut self, outcome: &mut GroupsOutcome) {
        self.end_passage(outcome);
        let participant = self.running.stop();
        let note = lock(&self.note);
        let counts = participant.subscriptions()[0].counts();
        outcome.vehicles.push(VehicleEnd {
            name: self.name,
            taken: note.taken,
            wrong: note.wrong,
            missed: counts.missed,
            away: counts.away,
            keys_fetched: self.keys_fetched,
            ledger: self.node.ledger(),
        });
    }
}

/// Runs a scenario from beginning to end.
pub fn run(scenario: &Scenario, medium: GroupsMedium, bar: &ProgressBar) -> Result<GroupsOutcome, String> {
    drive(scenario, medium, bar, |_, _| ())
}

/// The same, with something that happens to the stations meanwhile.
fn drive(
    scenario: &Scenario,
    medium: GroupsMedium,
    bar: &ProgressBar,
    mut happens: impl FnMut(Duration, &mut [Station]),
) -> Result<GroupsOutcome, String> {
    let cells = scenario.cells();
    let mut places = Places::new(medium, 2 * cells.len() + scenario.vehicles.len())?;
    let captures = OwnFolder::create(&std::env::temp_dir(), "groups")?;
    let mut secrets = Secrets::default();
    secrets.add(places.master.expose());
    let mut stations = Vec::new();
    for cell in cells {
        stations.push(Station::open(&mut places, cell, scenario.group_of(cell), &captures)?);
    }
    let mut vehicles = Vec::new();
    for (name, moves) in &scenario.vehicles {
        vehicles.push(Vehicle::open(&mut places, name, moves.clone(), scenario.period)?);
    }
    let mut outcome = GroupsOutcome { period: scenario.period, ..GroupsOutcome::default() };
    let start = Instant::now();
    while stations.iter().any(|station| station.post.group().is_none()) {
        if interrupted() {
            return Err("interrupted before anybody drove: nothing was measured".to_owned());
        }
        if start.elapsed() > START_MAX {
            return Err(
                "a post has not found its leader: the machine is too busy, or its medium is".to_owned()
            );
        }
        turn_stations(&mut stations, &mut secrets)?;
    }
    let begin = Instant::now();
    while begin.elapsed() < scenario.length && !interrupted() {
        for vehicle in &mut vehicles {
            vehicle.turn(begin, scenario, &mut outcome)?;
        }
        happens(begin.elapsed(), &mut stations);
        turn_stations(&mut stations, &mut secrets)?;
        bar.set_position((100 * begin.elapsed().as_millis() / scenario.length.as_millis().max(1)) as u64);
    }
    outcome.cut_short = interrupted().then(|| begin.elapsed());
    vehicles.into_iter().for_each(|vehicle| vehicle.end(&mut outcome));
    outcome.secrets = secrets.count();
    look_for_secrets(stations, &secrets, &mut outcome)?;
    Ok(outcome)
}

fn turn_stations(stations: &mut [Station], secrets: &mut Secrets) -> Result<(), String> {
    for Station { cell, leader, post, .. } in stations {
        let mut note = |event: &LeaderEvent| {
            if let LeaderEvent::Renewed(key) = event {
                secrets.add(key.key.expose());
            }
        };
        leader
            .turn(&mut note)
            .and_then(|()| post.turn(|_| ()))
            .map_err(|error| format!("cell {cell}: {error}"))?;
    }
    std::thread::sleep(TURN_EVERY);
    Ok(())
}

/// Ends them: their ledgers are read when nobody publishes any more.
fn end_stations(stations: Vec<Station>, outcome: &mut GroupsOutcome) {
    let stop = |Station { cell, leader, post, nodes, publisher, .. }| {
        (cell, nodes, (leader, post, publisher.stop()))
    };
    let stopped: Vec<_> = stations.into_iter().map(stop).collect();
    for (cell, nodes, _) in &stopped {
        let ledgers = nodes.iter().map(Node::ledger);
        outcome.stations.extend([leader_of(*cell), post_of(*cell)].into_iter().zip(ledgers));
    }
}

/// Ends the leaders, and reads what each of them sent and heard.
fn look_for_secrets(
    stations: Vec<Station>,
    secrets: &Secrets,
    outcome: &mut GroupsOutcome,
) -> Result<(), String> {
    let paths: BTreeMap<MapCell, PathBuf> =
        stations.iter().map(|station| (station.cell, station.capture.clone())).collect();
    end_stations(stations, outcome);
    for path in paths.values() {
        let looked = secrets.look_into(path);
        let (size, found) = looked.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        outcome.captured_bytes += size;
        outcome.secrets_found += found;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a vehicle that loses its group's key in the midst of a stay is told, and one that keeps it is not. Method: the leader
    /// puts the first of two out, after which the post goes on with another key.
    #[test]
    fn a_vehicle_that_loses_its_key_is_told() {
        let text = "cell 100\nperiod 10ms\nat 0s ann 10 10\nat 0s ben 20 20\nend 6s\n";
        let scenario = Scenario::parse(text).expect("it is one");
        for medium in [GroupsMedium::Shared, GroupsMedium::Datagram] {
            let mut is_out = false;
            let bars = |passed: Duration, stations: &mut [Station]| {
                if passed > Duration::from_millis(1_500) && !std::mem::replace(&mut is_out, true) {
                    stations[0].leader.bar(NodeId::named("ann"));
                }
            };
            let outcome = drive(&scenario, medium, &ProgressBar::hidden(), bars).expect("it runs");
            let broken = outcome.broken().expect("it is told");
            assert!(broken.starts_with("ann was in cell 0,0") && broken.contains("last"), "{broken}");
            let others = outcome.passages.into_iter().filter(|passage| passage.vehicle == "ben").collect();
            // The other's stay alone: the account of a datagram bus may count a refused frame of a node that leaves as lost.
            let period = scenario.period;
            let kept = GroupsOutcome { passages: others, period, ..GroupsOutcome::default() };
            assert_eq!(kept.broken(), None);
        }
    }
}
