//! `punctual stat`: the live counters, read from shared memory without disturbing anyone.

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use punctual::Ledger;
use punctual::ledger::{PageOwner, read_all};
use punctual_machine::signal::{catch_interrupts, interrupted};
use serde_json::{Value, json};

use super::print;
use crate::error::Failure;
use crate::report::section::{Block, Cell, Column, Item, Section, Table, Tone, numbers};
use crate::report::text::{self, Screen};
use crate::units::{count, dash, duration, grouped};

/// Options of the live counters.
#[derive(Debug, Args)]
pub struct StatArguments {
    /// Show once and end
    #[arg(long)]
    pub once: bool,
    /// As JSON, an object for each look
    #[arg(long)]
    pub json: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub every: Duration,
}

/// What was seen at the look before, by node.
type Earlier = HashMap<u64, Ledger>;

/// Shows every node of this user on this host: once, or again and again until Ctrl-C, or until none is open.
///
/// # Errors
/// When standard output cannot be written.
pub fn stat(arguments: &StatArguments) -> Result<(), Failure> {
    catch_interrupts().map_err(|error| Failure::Machine(error.to_string()))?;
    watch(arguments, read_all)
}

fn watch(
    arguments: &StatArguments,
    mut read: impl FnMut() -> Vec<(PageOwner, Ledger)>,
) -> Result<(), Failure> {
    let mut earlier: Earlier = HashMap::new();
    let mut last = Instant::now();
    let clears = std::io::stdout().is_terminal() && !arguments.once && !arguments.json;
    // By hand: console clears by a write of its own, and a screen that is empty between two writes flickers.
    let clear = if clears { "\x1b[H\x1b[2J" } else { "" };
    loop {
        let nodes = read();
        let shown = if arguments.json {
            format!("{}\n", object(&nodes, &earlier, last.elapsed()))
        } else {
            format!("{clear}{}", page(&nodes, &earlier, last.elapsed(), Screen::stdout()))
        };
        print(&shown)?;
        if arguments.once || nodes.is_empty() {
            return Ok(());
        }
        last = Instant::now();
        earlier = nodes.into_iter().map(|(owner, ledger)| (owner.node.get(), ledger)).collect();
        while last.elapsed() < arguments.every {
            if interrupted() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20).min(arguments.every));
        }
    }
}

/// Messages of a node in a second, sent and delivered; `None` at the first look.
fn rate(owner: &PageOwner, ledger: &Ledger, earlier: &Earlier, passed: Duration) -> Option<f64> {
    let before = earlier.get(&owner.node.get())?;
    let new = ledger.delivered.saturating_sub(before.delivered) + ledger.sent.saturating_sub(before.sent);
    Some(new as f64 / passed.as_secs_f64().max(1e-3))
}

/// What was sent to a node, or by it, and reached nobody.
fn undelivered(ledger: &Ledger) -> u64 {
    ledger.lost() + ledger.no_such_port + ledger.inbox_full + ledger.unread
}

fn page(nodes: &[(PageOwner, Ledger)], earlier: &Earlier, passed: Duration, screen: Screen) -> String {
    if nodes.is_empty() {
        return "no node of this user is open on this host\n".to_owned();
    }
    let mut columns = vec![Column::name("bus"), Column::name("node"), Column::number("pid")];
    columns.extend(numbers(["sent", "delivered", "msg/s", "waiting", "lost"]));
    let mut table = Table::new(columns).keyed(3);
    let mut lost = Vec::new();
    for (owner, ledger) in nodes {
        let rate = rate(owner, ledger, earlier, passed).map_or_else(dash, |rate| grouped(rate as i64));
        let pid = owner.process.pid_here().map_or_else(dash, |pid| pid.to_string());
        let numbers = [count(ledger.sent), count(ledger.delivered), rate, count(ledger.waiting)];
        let mut cells: Vec<Cell> = vec![owner.bus.as_str().into(), owner.name.as_str().into(), pid.into()];
        cells.extend(numbers.map(Cell::from));
        let undelivered = undelivered(ledger);
        let tone = if undelivered > 0 { Tone::Bad } else { Tone::Faint };
        cells.push(Cell::toned(count(undelivered), tone));
        table.row(cells);
        let causes: Vec<String> =
            causes(ledger).map(|(name, number)| format!("{name} {}", count(number))).collect();
        if !causes.is_empty() {
            lost.push(Item::new(format!("{} on {}: {}", owner.name, owner.bus, causes.join(", "))));
        }
    }
    let nodes = Section::new("Nodes of this user on this host").table(table);
    let besides = Section::new("Besides, of each node").items(lost);
    let besides = Some(besides).filter(|section| section.blocks != [Block::Items(Vec::new())]);
    text::page(&[nodes].into_iter().chain(besides).collect::<Vec<_>>(), screen)
}

/// The value of `schema` in what `--json` writes.
const SCHEMA: &str = "punctual.stat.v1";

/// One look, for scripts: every counter of every node.
fn object(nodes: &[(PageOwner, Ledger)], earlier: &Earlier, passed: Duration) -> Value {
    let nodes: Vec<Value> = nodes
        .iter()
        .map(|(owner, ledger)| {
            let counters: BTreeMap<&str, u64> = ledger.entries().into_iter().collect();
            json!({
                "bus": owner.bus,
                "node": owner.name,
                "pid": owner.process.pid_here(),
                "messages_per_second": rate(owner, ledger, earlier, passed),
                "undelivered": undelivered(ledger),
                "counters": counters,
            })
        })
        .collect();
    json!({ "schema": SCHEMA, "nodes": nodes })
}

/// Everything besides the columns that is not zero.
fn causes(ledger: &Ledger) -> impl Iterator<Item = (&'static str, u64)> {
    const COLUMNS: [&str; 7] = ["sent", "arrived", "copies", "delivered", "waiting", "joined", "left"];
    ledger.entries().into_iter().filter(|(name, count)| *count > 0 && !COLUMNS.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual::NodeId;
    use punctual_machine::process::ProcessIdentity;

    /// Goal: it ends when there is nobody whose counters could change.
    #[test]
    fn without_a_node_it_ends() {
        let arguments = StatArguments { once: false, json: false, every: Duration::from_millis(1) };
        let owner = PageOwner {
            node: NodeId::named("radar"),
            name: "radar".to_owned(),
            bus: "shared:car".to_owned(),
            process: ProcessIdentity::of_self(),
        };
        let mut looks = vec![vec![], vec![(owner, Ledger::default())]];
        watch(&arguments, || looks.pop().expect("it ends with the first look that finds nobody"))
            .expect("output");
        assert!(looks.is_empty(), "it ended although a node was there");
    }

    #[test]
    fn losses_stand_below_their_node_by_cause() {
        let owner = PageOwner {
            node: NodeId::named("radar"),
            name: "radar".to_owned(),
            bus: "shared:car".to_owned(),
            process: ProcessIdentity::of_self(),
        };
        let ledger = Ledger { sent: 12_345, lost_overrun: 7, inbox_full: 2, ..Ledger::default() };
        let nodes = [(owner, ledger)];
        let page = page(&nodes, &HashMap::new(), Duration::from_secs(1), Screen::default());
        assert!(page.contains("12,345") && page.contains("inbox_full 2, lost_overrun 7"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        let object = object(&nodes, &HashMap::new(), Duration::from_secs(1));
        assert_eq!((&object["schema"], &object["nodes"][0]["undelivered"]), (&json!(SCHEMA), &json!(9)));
        assert_eq!(object["nodes"][0]["counters"]["lost_overrun"], 7);
        assert!(object["nodes"][0]["messages_per_second"].is_null(), "{object}");
    }
}
