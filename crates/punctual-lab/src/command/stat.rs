//! `punctual stat`: the live counters, read from shared memory without disturbing anyone.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use punctual::broadcast::{GroupAccount, GroupOwner};
use punctual::ledger::PageOwner;
use punctual::runtime::{Metrics, RuntimeOwner, WorkerMetrics};
use punctual::{Ledger, Nanos};
use punctual_machine::signal::{catch_interrupts, interrupted};
use serde_json::{Value, json};

use super::print_if_read;
use super::serve::serve;
use crate::error::Failure;
use crate::report::section::{Block, Cell, Column, Item, Section, Table, Tone, numbers};
use crate::report::text::{self, Screen};
use crate::units::{address, count, dash, duration, grouped, micros_or_dash};

mod groups;

/// Options of the live counters.
#[derive(Debug, Args)]
pub struct StatArguments {
    /// Show once and end
    #[arg(long)]
    pub once: bool,
    /// As JSON, an object for each look
    #[arg(long)]
    pub json: bool,
    /// Answer a Prometheus server at this address instead (`--serve` alone: 127.0.0.1:9464)
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9464")]
    #[arg(conflicts_with_all = ["once", "json", "every"], value_parser = address)]
    pub serve: Option<SocketAddr>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub every: Duration,
}

/// State that is seen at one look.
#[derive(Default)]
struct Look {
    nodes: Vec<(PageOwner, Ledger)>,
    runtimes: Vec<(RuntimeOwner, Metrics)>,
    groups: Vec<(GroupOwner, GroupAccount)>,
}

impl Look {
    fn now() -> Self {
        Self {
            nodes: punctual::ledger::read_all(),
            runtimes: punctual::runtime::read_all(),
            groups: punctual::broadcast::read_all(),
        }
    }

    /// Returns true if there is nobody whose counters could change. A member of a group has a node.
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.runtimes.is_empty()
    }

    /// The same node at this look.
    fn node(&self, owner: &PageOwner) -> Option<&Ledger> {
        self.nodes.iter().find(|(other, _)| other == owner).map(|(_, ledger)| ledger)
    }

    /// The same runtime at this look.
    fn runtime(&self, owner: &RuntimeOwner) -> Option<&Metrics> {
        self.runtimes.iter().find(|(other, _)| other == owner).map(|(_, metrics)| metrics)
    }
}

/// Shows every node of this user on this host: once, or again and again until Ctrl-C, or until none is open.
pub fn stat(arguments: &StatArguments) -> Result<(), Failure> {
    catch_interrupts()?;
    match arguments.serve {
        Some(address) => serve(address, || {
            let look = Look::now();
            punctual::prometheus(&look.nodes, &look.runtimes, &look.groups)
        }),
        None => watch(arguments, Look::now),
    }
}

fn watch(arguments: &StatArguments, mut read: impl FnMut() -> Look) -> Result<(), Failure> {
    let (mut earlier, mut last) = (Look::default(), Instant::now());
    let clears = std::io::stdout().is_terminal() && !arguments.once && !arguments.json;
    // By hand: console clears by a write of its own, and a screen that is empty between two writes flickers.
    let clear = if clears { "\x1b[H\x1b[2J" } else { "" };
    loop {
        let (look, now) = (read(), Instant::now());
        let passed = now - last;
        let shown = if arguments.json {
            format!("{}\n", object(&look, &earlier, passed))
        } else {
            format!("{clear}{}", page(&look, &earlier, passed, Screen::stdout()))
        };
        let is_read = print_if_read(&shown)?;
        if arguments.once || look.is_empty() || !is_read {
            return Ok(());
        }
        // A terminal may hold the print up for long: rates are of the time between two looks.
        (earlier, last) = (look, now);
        let shown_at = Instant::now();
        loop {
            // Also where the next look is due at once.
            if interrupted() {
                return Ok(());
            }
            if shown_at.elapsed() >= arguments.every {
                break;
            }
            std::thread::sleep(Duration::from_millis(20).min(arguments.every));
        }
    }
}

/// Messages of a node in a second, sent and delivered; `None` at the first look.
fn rate(owner: &PageOwner, ledger: &Ledger, earlier: &Look, passed: Duration) -> Option<f64> {
    let before = earlier.node(owner)?;
    let delivered = ledger.delivered.saturating_sub(before.delivered);
    let new = delivered.saturating_add(ledger.sent.saturating_sub(before.sent));
    Some(new as f64 / passed.as_secs_f64().max(1e-3))
}

/// Messages that were sent to a node, or by it, and reached nobody.
fn undelivered(ledger: &Ledger) -> u64 {
    // A page belongs to its writer, which may have written anything.
    [ledger.lost(), ledger.no_such_port, ledger.inbox_full, ledger.unread, ledger.copies_refused]
        .into_iter()
        .fold(0, u64::saturating_add)
}

fn page(look: &Look, earlier: &Look, passed: Duration, screen: Screen) -> String {
    let mut sections = Vec::new();
    if !look.nodes.is_empty() {
        sections.extend(node_sections(&look.nodes, earlier, passed));
    }
    if !look.runtimes.is_empty() {
        sections.extend(runtime_sections(look, earlier));
    }
    if !look.groups.is_empty() {
        sections.extend(groups::sections(&look.groups));
    }
    if sections.is_empty() {
        return "no node of this user is open on this host, and no runtime\n".to_owned();
    }
    text::page(&sections, screen)
}

fn node_sections(nodes: &[(PageOwner, Ledger)], earlier: &Look, passed: Duration) -> Vec<Section> {
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
    [nodes].into_iter().chain(besides).collect()
}

/// Work of a runtime since the look before, or since its start.
fn since(owner: &RuntimeOwner, metrics: &Metrics, earlier: &Look) -> Metrics {
    earlier.runtime(owner).map_or_else(|| metrics.clone(), |before| metrics.since(before))
}

/// Runtimes, and of each the classes that had anything to do. Since the look before, or since their start.
fn runtime_sections(look: &Look, earlier: &Look) -> Vec<Section> {
    let mut columns = vec![Column::name("runtime"), Column::number("pid")];
    columns.extend(numbers(["workers", "tasks", "polls/s", "stolen", "sleeps", "in vain", "long"]));
    let mut runtimes = Table::new(columns).keyed(2);
    let mut columns = vec![Column::name("runtime"), Column::number("class")];
    columns.extend(numbers(["waiting", "oldest, ms", "wait p50, µs", "p99, µs", "share, ‰", "floor, ‰"]));
    columns.extend(numbers(["by floor", "late", "shed"]));
    let mut classes = Table::new(columns).keyed(2);
    let mut verdicts = Vec::new();
    for (owner, metrics) in &look.runtimes {
        let spent = since(owner, metrics, earlier);
        let sum =
            |of: fn(&WorkerMetrics) -> u64| count(spent.workers.iter().map(of).fold(0, u64::saturating_add));
        let polls = spent.workers.iter().map(|worker| worker.polls).fold(0, u64::saturating_add);
        // By another clock than ours nobody knows in what time that was.
        let rate = match spent.time {
            Nanos(0) => dash(),
            Nanos(time) => grouped((polls as f64 / (time as f64 / 1e9).max(1e-3)) as i64),
        };
        let pid = owner.process.pid_here().map_or_else(dash, |pid| pid.to_string());
        let numbers = [count(metrics.workers.len() as u64), count(metrics.tasks as u64), rate];
        let mut cells: Vec<Cell> = vec![owner.name.as_str().into(), pid.into()];
        cells.extend(numbers.map(Cell::from));
        let of_workers: [fn(&WorkerMetrics) -> u64; 4] = [
            |worker| worker.stolen,
            |worker| worker.parks,
            |worker| worker.wakes_in_vain,
            |worker| worker.long_polls,
        ];
        cells.extend(of_workers.map(|of| Cell::from(sum(of))));
        runtimes.row(cells);
        for (index, class) in spent.classes.iter().enumerate() {
            if class.polls > 0 || class.waiting > 0 {
                classes.row(class_cells(owner, &spent, index));
            }
        }
        let words =
            spent.verdicts().into_iter().map(|verdict| Item::new(format!("{}: {verdict}", owner.name)));
        verdicts.extend(words);
    }
    let mut sections = vec![
        Section::new("Runtimes of this user on this host").table(runtimes),
        Section::new("Their classes").table(classes),
    ];
    if !verdicts.is_empty() {
        sections.push(Section::new("What is wrong").items(verdicts));
    }
    sections
}

fn class_cells(owner: &RuntimeOwner, spent: &Metrics, index: usize) -> Vec<Cell> {
    let class = &spent.classes[index];
    let delay = |permille| micros_or_dash(class.delays.quantile(permille).map(|delay| delay.0));
    let oldest = class.oldest.map_or_else(dash, |oldest| count(oldest.0 / 1_000_000));
    let mut cells: Vec<Cell> = vec![owner.name.as_str().into(), index.to_string().into()];
    cells.extend([count(class.waiting as u64), oldest, delay(500), delay(990)].map(Cell::from));
    cells.extend(
        [spent.share_permille(index), class.floor_permille.into()].map(|share| Cell::from(count(share))),
    );
    cells.extend([class.by_floor, class.late, class.shed].map(|number| Cell::from(count(number))));
    cells
}

/// The value of `schema` in what `--json` writes.
const SCHEMA: &str = "punctual.stat.v1";

/// One look, for scripts: every counter of every node, runtime and member of a group.
fn object(look: &Look, earlier: &Look, passed: Duration) -> Value {
    let nodes: Vec<Value> = look
        .nodes
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
    let runtimes: Vec<Value> =
        look.runtimes.iter().map(|(owner, metrics)| runtime(owner, metrics, earlier)).collect();
    let groups: Vec<Value> =
        look.groups.iter().map(|(owner, account)| groups::object(owner, account)).collect();
    json!({ "schema": SCHEMA, "nodes": nodes, "runtimes": runtimes, "groups": groups })
}

/// A runtime since its start, and what is wrong since the look before. Times are nanoseconds.
fn runtime(owner: &RuntimeOwner, metrics: &Metrics, earlier: &Look) -> Value {
    let counters = |worker: &WorkerMetrics| -> BTreeMap<&str, u64> {
        worker.entries().into_iter().map(|(name, _, value)| (name, value)).collect()
    };
    let workers: Vec<_> = metrics.workers.iter().map(counters).collect();
    let classes: Vec<Value> = metrics
        .classes
        .iter()
        .enumerate()
        .map(|(index, class)| {
            json!({
                "waiting": class.waiting,
                "oldest_ns": class.oldest.map(|oldest| oldest.0),
                "longest_wait_ns": class.longest_wait.map(|wait| wait.0),
                "delay_p50_ns": class.delays.quantile(500).map(|delay| delay.0),
                "delay_p99_ns": class.delays.quantile(990).map(|delay| delay.0),
                "polls": class.polls,
                "ran_ns": class.ran.0,
                "share_permille": metrics.share_permille(index),
                "floor_permille": class.floor_permille,
                "by_floor": class.by_floor,
                "late": class.late,
                "shed": class.shed,
            })
        })
        .collect();
    json!({
        "name": owner.name,
        "pid": owner.process.pid_here(),
        "started": owner.started.0,
        "time_ns": metrics.time.0,
        "tasks": metrics.tasks,
        "panics": metrics.panics,
        "workers": workers,
        "classes": classes,
        "verdicts": since(owner, metrics, earlier).verdicts().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Everything besides the columns that is not zero.
fn causes(ledger: &Ledger) -> impl Iterator<Item = (&'static str, u64)> {
    const COLUMNS: [&str; 7] = ["sent", "arrived", "copies", "delivered", "waiting", "joined", "left"];
    ledger.entries().into_iter().filter(|(name, count)| *count > 0 && !COLUMNS.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual::runtime::{ClassMetrics, ThreadMetrics};
    use punctual::{NodeId, Ticks};
    use punctual_machine::process::ProcessIdentity;

    /// Goal: it ends when there is nobody whose counters could change.
    #[test]
    fn without_a_node_it_ends() {
        let arguments =
            StatArguments { once: false, json: false, serve: None, every: Duration::from_millis(1) };
        let owner = PageOwner {
            node: NodeId::named("radar"),
            name: "radar".to_owned(),
            bus: "shared:car".to_owned(),
            process: ProcessIdentity::of_self(),
            life: 0,
        };
        let there = Look { nodes: vec![(owner, Ledger::default())], ..Look::default() };
        let mut looks = vec![Look::default(), there];
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
            life: 0,
        };
        let ledger = Ledger { sent: 12_345, lost_overrun: 7, inbox_full: 2, ..Ledger::default() };
        let look = Look { nodes: vec![(owner, ledger)], ..Look::default() };
        let page = page(&look, &Look::default(), Duration::from_secs(1), Screen::default());
        assert!(page.contains("12,345") && page.contains("inbox_full 2, lost_overrun 7"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        let object = object(&look, &Look::default(), Duration::from_secs(1));
        assert_eq!((&object["schema"], &object["nodes"][0]["undelivered"]), (&json!(SCHEMA), &json!(9)));
        assert_eq!(object["nodes"][0]["counters"]["lost_overrun"], 7);
        assert!(object["nodes"][0]["messages_per_second"].is_null(), "{object}");
    }
    /// Goal: a runtime shows the classes that had something to do, since the look before, and what is wrong.
    #[test]
    fn a_runtime_shows_its_classes() {
        // Its pid has no digits of a figure that is looked for.
        let process = ProcessIdentity { pid: 1, namespace: 0 };
        let owner = RuntimeOwner { name: "server".to_owned(), process, started: Ticks(1) };
        let mut metrics = Metrics { time: Nanos(1_000_000_000), tasks: 12, ..Metrics::default() };
        metrics.workers = vec![WorkerMetrics { polls: 4_321, ..WorkerMetrics::default() }];
        metrics.classes = vec![ClassMetrics::default(); 8];
        (metrics.classes[3].polls, metrics.classes[3].late) = (80, 77);
        let waits = Some(Nanos(2_500_000_000));
        let seventh = &mut metrics.classes[7];
        (seventh.waiting, seventh.oldest, seventh.longest_wait) = (2, waits, waits);
        let mut later = metrics.clone();
        later.time = Nanos(3_000_000_000);
        later.workers[0].polls += 2_468;
        later.classes[0].ran = Nanos(1_500_000_000);
        let look = |metrics: Metrics| Look { runtimes: vec![(owner.clone(), metrics)], ..Look::default() };
        let first = page(&look(metrics.clone()), &Look::default(), Duration::from_secs(1), Screen::default());
        assert!(first.contains("4,321") && first.contains("77") && !first.contains("1,234"), "{first}");
        let second = page(&look(later), &look(metrics), Duration::from_secs(2), Screen::default());
        assert!(second.contains("1,234") && !second.contains("77"), "{second}");
        assert!(
            second.contains("2,500") && second.contains("server: priority starvation: class 7"),
            "{second}"
        );
    }

    /// Goal: a fault from before the last look is not named again, for scripts either.
    #[test]
    fn verdicts_are_of_the_time_between_two_looks() {
        let process = ProcessIdentity { pid: 1, namespace: 0 };
        let look = |seconds: u64, long_polls| {
            let owner = RuntimeOwner { name: "server".to_owned(), process, started: Ticks(1) };
            let workers = vec![WorkerMetrics { long_polls, ..WorkerMetrics::default() }];
            let metrics = Metrics { time: Nanos(seconds * 1_000_000_000), workers, ..Metrics::default() };
            Look { runtimes: vec![(owner, metrics)], ..Look::default() }
        };
        let said = |later: &Look, earlier: &Look| {
            let object = object(later, earlier, Duration::from_secs(1));
            object["runtimes"][0]["verdicts"].as_array().map_or(0, Vec::len)
        };
        assert_eq!(said(&look(1, 3), &Look::default()), 1, "since its start");
        assert_eq!(said(&look(2, 3), &look(1, 3)), 0);
        assert_eq!(said(&look(3, 4), &look(2, 3)), 1);
    }

    /// Goal: of a runtime by another clock no rate is said, nor parts of a time that is not known.
    #[test]
    fn without_a_common_clock_there_is_no_rate() {
        let process = ProcessIdentity { pid: 1, namespace: 0 };
        let owner = RuntimeOwner { name: "server".to_owned(), process, started: Ticks(1) };
        let thread = ThreadMetrics { queued: Nanos(5), switches_involuntary: 1, ..ThreadMetrics::default() };
        let worker = WorkerMetrics { lock_wait: Nanos(5), thread, ..WorkerMetrics::default() };
        let look = |polls| {
            let workers = vec![WorkerMetrics { polls, ..worker.clone() }];
            Look {
                runtimes: vec![(owner.clone(), Metrics { workers, ..Metrics::default() })],
                ..Look::default()
            }
        };
        for earlier in [Look::default(), look(21)] {
            let page = page(&look(4_321), &earlier, Duration::from_secs(1), Screen::default());
            let line = page.lines().find(|line| line.contains("server")).expect("it is there");
            assert_eq!(line.split_whitespace().nth(4), Some(dash().as_str()), "{page}");
            assert!(!page.contains("What is wrong"), "{page}");
        }
    }

    /// Goal: owners that differ in one part alone are told apart: two runtimes of a process, a node of one name on two buses.
    #[test]
    fn owners_of_one_name_are_told_apart() {
        let process = ProcessIdentity { pid: 1, namespace: 0 };
        let runtime = |started, seconds: u64, polls| {
            let owner = RuntimeOwner { name: "server".to_owned(), process, started: Ticks(started) };
            let workers = vec![WorkerMetrics { polls, ..WorkerMetrics::default() }];
            (owner, Metrics { time: Nanos(seconds * 1_000_000_000), workers, ..Metrics::default() })
        };
        let node = |bus: &str, sent| {
            let (node, name, bus) = (NodeId::named("radar"), "radar".to_owned(), bus.to_owned());
            (PageOwner { node, name, bus, process, life: 0 }, Ledger { sent, ..Ledger::default() })
        };
        let earlier = Look {
            nodes: vec![node("shared:car", 100), node("shared:plant", 50_000)],
            runtimes: vec![runtime(1, 10, 700), runtime(2, 20, 90_000)],
            ..Look::default()
        };
        let look = Look {
            nodes: vec![node("shared:car", 177), node("shared:plant", 50_333)],
            runtimes: vec![runtime(1, 11, 755), runtime(2, 21, 90_444)],
            ..Look::default()
        };
        let page = page(&look, &earlier, Duration::from_secs(1), Screen::default());
        let has = |line: &str, words: [&str; 2]| {
            words.iter().all(|word| line.split_whitespace().any(|of| of == *word))
        };
        for words in [["shared:car", "77"], ["shared:plant", "333"], ["server", "55"], ["server", "444"]] {
            assert!(page.lines().any(|line| has(line, words)), "{words:?}: {page}");
        }
    }
}
