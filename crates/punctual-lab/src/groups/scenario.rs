//! A scenario: the places of vehicles over time, read from a text with a line for each place.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use punctual::keyed_group::group_of_cell;

/// Vehicles of one scenario. Each is a node with two threads at most.
const VEHICLES_MAX: usize = 32;

/// Cells that vehicles come to. Each has two nodes, and with the vehicles they must find room on one bus.
const CELLS_MAX: usize = 32;

/// Lines of a scenario with something in them.
const LINES_MAX: usize = 10_000;

/// Longest scenario.
const LENGTH_MAX: Duration = Duration::from_mins(10);

/// Where borders are looked for.
const STEP: Duration = Duration::from_millis(1);

/// Time for which a scenario goes on after its last place, unless it says when it ends.
const REST: Duration = Duration::from_secs(2);

/// An error in a scenario. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Number of the line, from 1; 0 = the whole.
    pub line: usize,
    what: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

/// A square of the map, counted from the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapCell {
    /// To the east.
    pub x: i32,
    /// To the north.
    pub y: i32,
}

impl fmt::Display for MapCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.x, self.y)
    }
}

/// A vehicle comes into a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// When, since the scenario began.
    pub at: Duration,
    /// Where it is then, metres.
    pub place_m: (f64, f64),
    /// Into which cell.
    pub cell: MapCell,
    /// Until when it stays there.
    pub until: Duration,
}

/// A scenario that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Side of a cell, metres.
    pub cell_m: f64,
    /// Period with which each vehicle wants values.
    pub period: Duration,
    /// Its duration.
    pub length: Duration,
    /// Where each vehicle goes; the first cell is that where it begins.
    pub vehicles: BTreeMap<String, Vec<Move>>,
}

type Waypoint = (Duration, f64, f64);

#[derive(Default)]
struct Parsed {
    cell_m: Option<f64>,
    period: Option<Duration>,
    end: Option<Duration>,
    waypoints: BTreeMap<String, Vec<Waypoint>>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The line, and what should stand there.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let mut parsed = Parsed::default();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let lines = lines.enumerate().filter(|(_, line)| !line.is_empty());
        for (count, (index, line)) in lines.enumerate() {
            let within = if count < LINES_MAX { Ok(()) } else { Err(format!("more than {LINES_MAX} lines")) };
            let read = within.and_then(|()| parsed.read(line));
            read.map_err(|what| ScenarioError { line: index + 1, what })?;
        }
        parsed.finish().map_err(|what| ScenarioError { line: 0, what })
    }

    /// The group of a cell.
    pub fn group_of(&self, cell: MapCell) -> u32 {
        let middle = |at: i32| (f64::from(at) + 0.5) * self.cell_m;
        group_of_cell(middle(cell.x), middle(cell.y), self.cell_m)
    }

    /// All cells that vehicles come to.
    pub fn cells(&self) -> Vec<MapCell> {
        let mut cells: Vec<MapCell> = self.vehicles.values().flatten().map(|step| step.cell).collect();
        cells.sort_unstable();
        cells.dedup();
        cells
    }
}

impl Parsed {
    fn read(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["cell", side] => {
                let side = number(side).filter(|side| (1.0..=100_000.0).contains(side));
                put(&mut self.cell_m, side.ok_or("a cell's side is from 1 to 100000 metres")?, "cell")
            }
            ["period", period] => {
                let period = crate::units::duration(period)?;
                if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&period) {
                    return Err("a period is from 1ms to 1s".to_owned());
                }
                put(&mut self.period, period, "period")
            }
            ["end", end] => put(&mut self.end, instant(end)?, "end"),
            ["at", at, name, x, y] => self.read_place(at, name, x, y),
            [word, ..] => Err(format!(
                "{word:?} with {} words behind it: a line is `cell METRES`, `period TIME`, `at TIME VEHICLE X Y` or `end TIME`",
                words.len() - 1
            )),
            [] => Ok(()),
        }
    }

    fn read_place(&mut self, at: &str, name: &str, x: &str, y: &str) -> Result<(), String> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.len() > 24 || is_station(name) || !name.chars().all(is_plain) {
            return Err(format!(
                "{name:?}: a vehicle's name is up to 24 letters a to z, digits and _, and does not begin with lead_ or post_"
            ));
        }
        let at = instant(at)?;
        let metres = |text: &str| {
            let number = number(text).filter(|number| number.abs() <= 1e6);
            number.ok_or(format!("{text:?}: a place is two numbers of metres from -1000000 to 1000000"))
        };
        let (x, y) = (metres(x)?, metres(y)?);
        if self.waypoints.len() == VEHICLES_MAX && !self.waypoints.contains_key(name) {
            return Err(format!("{name} is one vehicle more than {VEHICLES_MAX}"));
        }
        let places = self.waypoints.entry(name.to_owned()).or_default();
        match places.last() {
            Some((last, ..)) if *last >= at => {
                Err(format!("{name} was at another place at {last:?}: put its places in the order of time"))
            }
            _ => {
                places.push((at, x, y));
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<Scenario, String> {
        let cell_m = self.cell_m.ok_or("no cells: a line `cell METRES` says how large they are")?;
        let last = self.waypoints.values().flatten().map(|(at, ..)| *at).max();
        let last = last.ok_or("no vehicle: a line `at TIME VEHICLE X Y` says where one is")?;
        let length = self.end.unwrap_or(last + REST);
        if length < last || length > LENGTH_MAX {
            return Err(format!("it ends after {length:?}: an end is after the last place, and within 10m"));
        }
        let moves = |places: &Vec<Waypoint>| moves_of(places, cell_m, length);
        let vehicles = self.waypoints.iter().map(|(name, places)| (name.clone(), moves(places))).collect();
        let period = self.period.unwrap_or(Duration::from_millis(10));
        let scenario = Scenario { cell_m, period, length, vehicles };
        match scenario.cells().len() {
            count if count > CELLS_MAX => {
                Err(format!("vehicles come to {count} cells, and {CELLS_MAX} is the most: make cells larger"))
            }
            _ => Ok(scenario),
        }
    }
}

/// Leaders and posts have such names.
fn is_station(name: &str) -> bool {
    name.starts_with("lead_") || name.starts_with("post_")
}

fn put<T>(place: &mut Option<T>, value: T, name: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{name} was said before: leave one")),
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A time of a scenario, which may be 0.
fn instant(text: &str) -> Result<Duration, String> {
    let at = if text == "0" || text == "0s" { Duration::ZERO } else { crate::units::duration(text)? };
    if at <= LENGTH_MAX { Ok(at) } else { Err(format!("{text} is after 10m, the longest scenario")) }
}

/// Where a vehicle is: on the straight line between two places, and before the first and behind the last at these.
fn place_at(places: &[Waypoint], at: Duration) -> (f64, f64) {
    let next = places.partition_point(|(then, ..)| *then <= at);
    match (next.checked_sub(1).map(|last| places[last]), places.get(next)) {
        (Some((from, x, y)), Some(&(to, next_x, next_y))) => {
            let share = (at - from).as_secs_f64() / (to - from).as_secs_f64();
            (x + (next_x - x) * share, y + (next_y - y) * share)
        }
        (Some((_, x, y)), None) | (None, Some(&(_, x, y))) => (x, y),
        (None, None) => (0.0, 0.0),
    }
}

fn moves_of(places: &[Waypoint], cell_m: f64, length: Duration) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    let steps = (length.as_micros() / STEP.as_micros()) as u32;
    for at in (0..=steps).map(|step| STEP * step) {
        let place_m = place_at(places, at);
        let cell = MapCell { x: (place_m.0 / cell_m).floor() as i32, y: (place_m.1 / cell_m).floor() as i32 };
        if moves.last().is_none_or(|last| last.cell != cell) {
            if let Some(last) = moves.last_mut() {
                last.until = at;
            }
            moves.push(Move { at, place_m, cell, until: length });
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROAD: &str =
        "cell 100 # metres\nperiod 5ms\n\nat 0s ann 50 50\nat 2s ann 250 50\nat 1s ben -10 0\nend 4s\n";

    #[test]
    fn places_become_moves() {
        let scenario = Scenario::parse(ROAD).unwrap();
        assert_eq!((scenario.period, scenario.length), (Duration::from_millis(5), Duration::from_secs(4)));
        let ann: Vec<(u128, MapCell)> =
            scenario.vehicles["ann"].iter().map(|step| (step.at.as_millis(), step.cell)).collect();
        assert_eq!(
            ann,
            [(0, MapCell { x: 0, y: 0 }), (500, MapCell { x: 1, y: 0 }), (1_500, MapCell { x: 2, y: 0 })]
        );
        assert_eq!(scenario.vehicles["ann"][0].until, Duration::from_millis(500));
        assert_eq!(scenario.vehicles["ben"][0].cell, MapCell { x: -1, y: 0 });
        assert_eq!(scenario.cells().len(), 4);
        let groups: std::collections::BTreeSet<u32> =
            scenario.cells().into_iter().map(|cell| scenario.group_of(cell)).collect();
        assert_eq!(groups.len(), 4, "each cell has a group of its own");
    }

    #[test]
    fn a_mistake_is_said_with_its_line() {
        for (text, line, hint) in [
            ("", 0, "no cells"),
            ("cell 5", 0, "no vehicle"),
            ("cell 0", 1, "from 1 to 100000"),
            ("cell nan", 1, "from 1 to 100000"),
            ("cell 5\ncell 6", 2, "before"),
            ("cell 5\n\nat soon ann 1 2", 3, "unit"),
            ("cell 5\nat 1s Ann 1 2", 2, "a to z"),
            ("cell 5\nat 1s ann 1", 2, "`at TIME VEHICLE X Y`"),
            ("cell 5\nat 1s ann 1 inf", 2, "metres"),
            ("cell 5\nat 1s ann 1 2\nat 1s ann 2 2", 3, "order"),
            ("cell 5\nat 601s ann 1 2", 2, "10m"),
            ("cell 5\nat 2s ann 1 2\nend 1s", 0, "after the last place"),
            ("cell 1\nat 0s ann 0 0\nat 1s ann 100 0", 0, "larger"),
            ("period 2s", 1, "1ms to 1s"),
        ] {
            let error = Scenario::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(
                error.to_string().contains(hint) && !error.to_string().contains('\n'),
                "{text:?}: {error}"
            );
        }
    }

    fn lines() -> impl Strategy<Value = String> {
        let time = prop_oneof![Just("0s".to_owned()), (0_u32..9_000).prop_map(|ms| format!("{ms}ms"))];
        let place = (time, "[a-c]", -2_000_i32..2_000, -2_000_i32..2_000)
            .prop_map(|(time, name, x, y)| format!("at {time} {name} {x} {y}"));
        prop_oneof![6 => place, 1 => Just("cell 500".to_owned()), 1 => "[a-z0-9 .#-]{0,20}", 1 => any::<String>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Goal: any text is a scenario or is refused in a line; of a scenario each vehicle is in one cell at a time, from
        /// beginning to end.
        #[test]
        fn any_text_is_a_scenario_or_is_refused(lines in proptest::collection::vec(lines(), 0..12)) {
            match Scenario::parse(&lines.join("\n")) {
                Err(error) => prop_assert!(!error.to_string().contains('\n') && error.line <= lines.join("\n").lines().count()),
                Ok(scenario) => for moves in scenario.vehicles.values() {
                    prop_assert_eq!(moves[0].at, Duration::ZERO);
                    prop_assert_eq!(moves.last().unwrap().until, scenario.length);
                    for pair in moves.windows(2) {
                        prop_assert!(pair[0].until == pair[1].at && pair[0].at < pair[1].at && pair[0].cell != pair[1].cell);
                    }
                }
            }
        }
    }
}
