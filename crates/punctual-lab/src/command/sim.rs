//! `punctual sim`: models that go through every order of events, one subcommand each.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use punctual_proto::user_interrupt::{Ending, Expected, Exploration, VARIANTS, Variant, explore, trace};
use serde_json::{Value, json};

use super::print;
use crate::cli::Failure;
use crate::report::section::{Cell, Column, Section, Table, Tone};
use crate::report::text::{self, Screen, wrapped};
use crate::units::{dash, grouped};

/// Which model.
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
    }
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
        outcomes.push(Outcome { variant, explored });
    }
    print(&if arguments.json {
        let all: Vec<Value> = outcomes.iter().map(Outcome::json).collect();
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

/// What came of one protocol.
struct Outcome {
    variant: &'static Variant,
    explored: Exploration<Variant>,
}

impl Outcome {
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

fn table(outcomes: &[Outcome], screen: Screen) -> String {
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
