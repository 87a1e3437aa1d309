//! `punctual sim`: models that go through every order of events, or through seeded worlds; one subcommand each.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use punctual_proto::Nanos;
use punctual_proto::sim::server::{Load, POLICIES, Server};
use punctual_proto::sim::{self, Exploration, Failure as Failed, MODELS, Plan, Record, explore};
use punctual_proto::user_interrupt::{Ending, Expected, VARIANTS, Variant, trace};
use serde_json::{Value, json};

use super::print;
use crate::error::Failure;
use crate::report::section::{Cell, Column, ColumnKind, Section, Table, Tone};
use crate::report::text::{self, Screen, wrapped};
use crate::terminal::say;
use crate::units::{dash, grouped, plural};

/// Choice of the model.
#[derive(Debug, Args)]
pub struct SimArguments {
    /// One of them.
    #[command(subcommand)]
    pub model: Model,
}

/// The models.
#[derive(Debug, Subcommand)]
pub enum Model {
    /// User interrupts: where a wake-up is lost, by the shortest way
    Wakeup(WakeupArguments),
    /// A server with classes of requests: the service that each scheduling policy gives to each class
    Server,
    /// Keyed groups: the holders of the newest key, despite loss, alteration and replay
    KeyedGroup(WorldArguments),
    /// Interests: the subscribers that are served, despite loss, stalls and restarts
    Interest(WorldArguments),
    /// Clocks: the true offset against the bound that is stated
    TimeSync(WorldArguments),
    /// Streams: each number delivered once or counted as lost
    Stream(WorldArguments),
    /// Seals: each frame taken once, and none that was altered or is of before
    Sealing(WorldArguments),
    /// Messages larger than a frame: each delivered once and whole, or its sender told
    Large(WorldArguments),
    /// Broadcast: the same deliveries in one order for all of a group, despite losses and crashes
    Broadcast(WorldArguments),
    /// Replicated state: equal copies, despite joins, crashes and snapshots meanwhile
    Replica(WorldArguments),
}

/// Options of a model in a seeded world.
#[derive(Debug, Args)]
pub struct WorldArguments {
    /// Range of seeds: the first, and the one after the last
    #[arg(long, value_name = "A..B", default_value = "0..1000", value_parser = seeds)]
    pub seeds: Range<u64>,
    /// Run this plan of faults, as a failure prints it, and show what happens
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub replay: Option<PathBuf>,
}

/// Largest plan that is read, bytes: some hundred thousand faults.
const PLAN_SIZE_MAX: u64 = 16 << 20;

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| "seeds are needed, such as 0..1000".to_owned())
}

/// Options of the model of user interrupts.
#[derive(Debug, Args)]
pub struct WakeupArguments {
    /// Only this protocol, with every step of what is found
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Only the names, with what each is
    #[arg(long, conflicts_with = "variant")]
    pub list: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Different states of one variant. The largest has some thousand; this many are a mistake in the model.
const STATES_MAX: usize = 1_000_000;

/// Goes through one model.
///
/// # Errors
/// See [`Failure`]; a variant that does not end as expected is a broken promise.
pub fn sim(arguments: &SimArguments) -> Result<(), Failure> {
    match &arguments.model {
        Model::Wakeup(wakeup) => simulate_wakeup(wakeup),
        Model::Server => print(&text::page(&[policies()], Screen::stdout())),
        Model::KeyedGroup(world) => simulate_world("keyed-group", world),
        Model::Interest(world) => simulate_world("interest", world),
        Model::TimeSync(world) => simulate_world("time-sync", world),
        Model::Stream(world) => simulate_world("stream", world),
        Model::Sealing(world) => simulate_world("sealing", world),
        Model::Large(world) => simulate_world("large", world),
        Model::Broadcast(world) => simulate_world("broadcast", world),
        Model::Replica(world) => simulate_world("replica", world),
    }
}

fn simulate_world(name: &str, arguments: &WorldArguments) -> Result<(), Failure> {
    let model = *MODELS.iter().find(|model| model.name() == name).expect("every subcommand has a model");
    let told = match &arguments.replay {
        Some(file) => {
            let plan = read_plan(file)?;
            sim::replay(model, &plan).map(|record| {
                let lines = lines_of(record.lines());
                format!("{plan}\nThe end of that run:\n\n{lines}\nEvery check held.\n")
            })
        }
        None => run_seeds(model, &arguments.seeds),
    };
    match told {
        Ok(text) => print(&text),
        Err(failed) => {
            print(&page_of(name, &failed))?;
            Err(Failure::Promise(format!("{name}, seed {}: {}", failed.plan.seed, failed.violation)))
        }
    }
}

/// The policies under the published load: their results for the most and the least important class.
fn policies() -> Section {
    let ms = |time: Nanos| format!("{:.1}", time.0 as f64 / 1e6);
    let heads = [
        ("class 0", "served"),
        ("class 0", "mean"),
        ("class 0", "max"),
        ("class 7", "served"),
        ("class 7", "mean"),
        ("class 7", "max"),
        ("overload, p99", "class 0"),
        ("overload, p99", "class 7"),
    ];
    let columns =
        heads.map(|(over, head)| Column { over: over.into(), head: head.into(), kind: ColumnKind::Number });
    let mut table = Table::new([vec![Column::name("policy")], columns.to_vec()].concat()).keyed(1);
    for (name, policy) in POLICIES {
        let closed = Server::of_the_experiment(Load::Closed { think: Nanos::from_millis(50) }).serve(policy);
        let open = Server::of_the_experiment(Load::Open { permille: 1_200 }).serve(policy);
        let mut row = vec![Cell::from(name)];
        for class in [0, 7] {
            let served = &closed.classes[class];
            let count = grouped(served.latencies.len() as i64);
            row.extend([count, ms(served.mean()), ms(served.quantile(1_000))].map(Cell::from));
        }
        row.extend([0, 7].map(|class: usize| Cell::from(ms(open.classes[class].quantile(990)))));
        table.row(row);
    }
    Section::new("A processor, eight classes of sixteen connections, 5 s")
        .about("times in ms; requests of 0.72 ms, 50 ms of thinking; overload: 1.2 times what it can do")
        .table(table)
        .note("All policies serve the same number of requests: compare classes.")
}

/// A seed that runs. If the protocol panics, which no model catches, it says which one that was.
struct Running<'m> {
    model: &'m dyn sim::Model,
    seed: u64,
    tell: fn(String),
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { model, seed, tell } = self;
            let name = model.name();
            let plan = model.plan(*seed);
            tell(format!("{name}, seed {seed}: its plan, for punctual sim {name} --replay FILE:\n\n{plan}"));
        }
    }
}

fn run_seeds(model: &dyn sim::Model, seeds: &Range<u64>) -> Result<String, Box<Failed>> {
    let mut all = Record::counts();
    for seed in seeds.clone() {
        let _running = Running { model, seed, tell: |text| say(text) };
        let record = sim::check(model, seed)?;
        (all.messages, all.checks) = (all.messages + record.messages, all.checks + record.checks);
    }
    let (messages, checks) = (grouped(all.messages as i64), grouped(all.checks as i64));
    let (name, seeds) = (model.name(), plural(seeds.end - seeds.start, "seed"));
    Ok(format!("{name}: {seeds}, {messages} messages, {checks} checks: all hold\n  {}\n", model.about()))
}

fn read_plan(file: &Path) -> Result<Plan, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--replay {}: {why}", file.display()));
    let text = crate::file::read_text(file, PLAN_SIZE_MAX).map_err(|error| wrong(error.to_string()))?;
    text.parse().map_err(|error: sim::PlanError| wrong(error.to_string()))
}

fn lines_of<'l>(lines: impl IntoIterator<Item = &'l sim::Line>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// A failure with the plan by which anybody can see it again.
fn page_of(name: &str, failed: &Failed) -> String {
    let Failed { violation, plan, lines } = failed;
    format!(
        "{violation}\n\nThe shortest plan that fails, for punctual sim {name} --replay FILE:\n\n{plan}\n\
         The end of that run:\n\n{}",
        lines_of(lines)
    )
}

fn simulate_wakeup(arguments: &WakeupArguments) -> Result<(), Failure> {
    if arguments.list {
        return print(&list(arguments.json));
    }
    let chosen: Vec<&Variant> = match &arguments.variant {
        Some(name) => vec![Variant::named(name).ok_or_else(|| unknown(name))?],
        None => VARIANTS.iter().collect(),
    };
    let mut outcomes = Vec::new();
    for variant in chosen {
        let explored = explore(variant, STATES_MAX)
            .map_err(|error| Failure::Promise(format!("{}: {error}", variant.name)))?;
        outcomes.push(SimOutcome { variant, explored });
    }
    print(&if arguments.json {
        let all: Vec<Value> = outcomes.iter().map(SimOutcome::json).collect();
        serde_json::to_string_pretty(&json!({ "schema": "punctual.sim.wakeup.v1", "variants": all }))
            .expect("every key is a string")
            + "\n"
    } else if arguments.variant.is_some() {
        outcomes.iter().map(|outcome| outcome.page(Screen::stdout())).collect()
    } else {
        table(&outcomes, Screen::stdout())
    })?;
    match outcomes.iter().find(|outcome| !outcome.is_expected()) {
        None => Ok(()),
        Some(outcome) => {
            let (name, found) = (outcome.variant.name, outcome.verdict());
            Err(Failure::Promise(format!("{name}: {found}, which is not what was expected")))
        }
    }
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
    Failure::Usage(format!("--variant {name}: no such protocol; known are {}", names.join(", ")))
}

fn list(as_json: bool) -> String {
    if as_json {
        let all: Vec<Value> = VARIANTS.iter().map(|v| json!({ "name": v.name, "about": v.about })).collect();
        return serde_json::to_string_pretty(&all).expect("every key is a string") + "\n";
    }
    let mut table = Table::new(vec![Column::name("protocol"), Column::prose("what it is")]);
    VARIANTS.iter().for_each(|variant| table.row([variant.name, variant.about].map(Cell::from)));
    text::page(&[Section::new("Protocols").table(table)], Screen::stdout())
}

/// Outcome of one protocol.
struct SimOutcome {
    variant: &'static Variant,
    explored: Exploration<Variant>,
}

impl SimOutcome {
    fn ending(&self) -> Option<Ending> {
        self.explored.found.as_ref().map(|found| found.fault)
    }

    fn is_expected(&self) -> bool {
        match self.variant.expected {
            Expected::Safe => self.ending().is_none(),
            Expected::Loses => matches!(self.ending(), Some(Ending::Lost | Ending::Stuck)),
            Expected::OnlyTheTimeout => self.ending() == Some(Ending::OnlyTheTimeout),
            Expected::Faults => self.ending() == Some(Ending::Faulted),
        }
    }

    fn verdict(&self) -> &'static str {
        match self.ending() {
            None => "nothing lost",
            Some(Ending::Lost) => "wake-up lost",
            Some(Ending::Stuck) => "both wait",
            Some(Ending::OnlyTheTimeout) => "late: timeout",
            Some(Ending::Faulted) => "sender faults",
        }
    }

    fn steps(&self) -> Option<usize> {
        self.explored.found.as_ref().map(|found| found.path.len())
    }

    /// Every step of what was found.
    fn page(&self, screen: Screen) -> String {
        let (variant, states) = (self.variant, grouped(self.explored.states as i64));
        let mut text = wrapped(&format!("{}: {}", variant.name, variant.about), "", "  ", screen);
        let Some(found) = &self.explored.found else {
            let depth = self.explored.depth;
            let words = format!(
                "Nothing is lost in any order: all {states} states up to {depth} steps deep were gone through."
            );
            return text + "\n" + &wrapped(&words, "", "", screen);
        };
        text += "\n";
        text += &wrapped(&format!("{}: {}.", self.verdict(), found.fault), "", "  ", screen);
        if let Some(repaired) = variant.repaired {
            let _ = writeln!(text, "Repaired: --variant {repaired}.");
        }
        let _ = writeln!(
            text,
            "The shortest way there, of {} steps ({states} states were gone through):\n",
            found.path.len()
        );
        for (place, line) in trace::lines(variant, found).iter().enumerate() {
            let first = format!("{:>3}  {:<9} ", place + 1, line.actor);
            text += &wrapped(&line.text, &first, &" ".repeat(15), screen);
            for state in wrapped(&line.state, &" ".repeat(15), &" ".repeat(15), screen).lines() {
                let _ = writeln!(text, "{}", screen.faint(state));
            }
        }
        text
    }

    fn json(&self) -> Value {
        let steps = self.explored.found.as_ref().map(|found| {
            let lines = trace::lines(self.variant, found);
            let line =
                |line: &trace::Line| json!({ "actor": line.actor, "does": line.text, "then": line.state });
            lines.iter().map(line).collect::<Vec<Value>>()
        });
        json!({
            "name": self.variant.name,
            "about": self.variant.about,
            "race": self.variant.race.map(|race| race.to_string()),
            "found": self.explored.found.as_ref().map(|found| found.fault.to_string()),
            "as_expected": self.is_expected(),
            "states": self.explored.states,
            "repaired": self.variant.repaired,
            "steps": steps,
        })
    }
}

fn table(outcomes: &[SimOutcome], screen: Screen) -> String {
    let mut columns = ["protocol", "race", "found"].map(Column::name).to_vec();
    columns.extend([Column::number("steps"), Column::number("states")]);
    columns.extend(["expected", "repaired"].map(Column::name));
    let mut table = Table::new(columns);
    for outcome in outcomes {
        let variant = outcome.variant;
        let race = variant.race.map_or(String::new(), |race| race.to_string());
        let steps = outcome.steps().map_or_else(dash, |steps| steps.to_string());
        let states = grouped(outcome.explored.states as i64);
        let expected = if outcome.is_expected() { Cell::from("yes") } else { Cell::toned("NO", Tone::Bad) };
        let repaired = variant.repaired.map_or_else(dash, str::to_owned);
        let found = outcome.verdict().into();
        let cells = [race.into(), found, steps.into(), states.into(), expected, repaired.into()];
        table.row([Cell::from(variant.name)].into_iter().chain(cells));
    }
    let note = "Steps: length of the shortest way there; --variant NAME shows it. --list says what each protocol is.";
    text::page(&[Section::new("Every order of events of each protocol").table(table).note(note)], screen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_proto::sim::Violation;

    #[test]
    fn seeds_are_a_range() {
        assert_eq!(seeds("3..17"), Ok(3..17));
        for wrong in ["", "3", "3..", "3..3", "4..3", "a..b", "3..=4"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }

    /// Fails in a way that no check sees.
    struct Broken;

    impl sim::Model for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }

        fn about(&self) -> &'static str {
            "nothing"
        }

        fn plan(&self, seed: u64) -> Plan {
            format!("seed {seed}\nmessage 7 0->1 lose\n").parse().expect("a plan")
        }

        fn run(&self, _: &Plan, _: Record) -> sim::Report {
            panic!("by the protocol")
        }
    }

    /// Goal: a protocol that panics leaves the seed and the plan by which anybody can see it again; a protocol that does not panic says
    /// nothing.
    #[test]
    fn a_panic_says_which_seed_it_was() {
        static TOLD: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
        let tell = |text: String| TOLD.lock().expect("nobody panics with it").push_str(&text);
        drop(Running { model: &Broken, seed: 4, tell });
        let panics = std::panic::catch_unwind(|| {
            let _running = Running { model: &Broken, seed: 5, tell };
            sim::check(&Broken, 5).is_ok()
        });
        assert!(panics.is_err());
        let told = TOLD.lock().expect("nobody panics with it").clone();
        assert!(told.starts_with("broken, seed 5"), "{told}");
        assert!(told.ends_with("seed 5\nmessage 7 0->1 lose\n"), "{told}");
    }

    #[test]
    fn a_failure_says_how_to_see_it_again() {
        let plan: Plan = "seed 3\nmessage 7 0->1 lose\n".parse().expect("a plan");
        let violation = Violation { check: "the sum", text: "1 is not 2".to_owned() };
        let page = page_of("stream", &Failed { violation, plan: plan.clone(), lines: Vec::new() });
        assert!(page.starts_with("the sum: 1 is not 2\n"), "{page}");
        assert!(
            page.contains("punctual sim stream --replay FILE") && page.contains(&plan.to_string()),
            "{page}"
        );
    }
}
