//! `punctual stat`: the live counters, read from shared memory without disturbing anyone.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use punctual::Ledger;
use punctual::ledger::{PageOwner, read_all};
use punctual_machine::signal::{catch_interrupts, interrupted};

use super::print;
use crate::cli::{Failure, StatArguments};
use crate::table::grouped;

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
    let mut earlier: HashMap<u64, Ledger> = HashMap::new();
    let mut last = Instant::now();
    let clear = if std::io::stdout().is_terminal() && !arguments.once { "\x1b[H\x1b[2J" } else { "" };
    loop {
        let nodes = read();
        print(&format!("{clear}{}", page(&nodes, &earlier, last.elapsed())))?;
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

fn page(nodes: &[(PageOwner, Ledger)], earlier: &HashMap<u64, Ledger>, passed: Duration) -> String {
    if nodes.is_empty() {
        return "no node of this user is open on this host\n".to_owned();
    }
    let mut page = format!(
        "{:<24} {:<14} {:>7} {:>13} {:>13} {:>10} {:>10} {:>8}\n",
        "bus", "node", "pid", "sent", "delivered", "msg/s", "waiting", "lost"
    );
    for (owner, ledger) in nodes {
        let before = earlier.get(&owner.node.get());
        let rate = before.map_or_else(
            || "–".to_owned(),
            |before| {
                let new = ledger.delivered.saturating_sub(before.delivered)
                    + ledger.sent.saturating_sub(before.sent);
                grouped((new as f64 / passed.as_secs_f64().max(1e-3)) as i64)
            },
        );
        let number = |count: u64| grouped(count.cast_signed());
        let undelivered = ledger.lost() + ledger.no_such_port + ledger.inbox_full + ledger.unread;
        let _infallible = writeln!(
            page,
            "{:<24} {:<14} {:>7} {:>13} {:>13} {rate:>10} {:>10} {:>8}",
            owner.bus,
            owner.name,
            owner.process.pid_here().map_or_else(|| "–".to_owned(), |pid| pid.to_string()),
            number(ledger.sent),
            number(ledger.delivered),
            number(ledger.waiting),
            number(undelivered),
        );
        let causes: Vec<String> =
            causes(ledger).map(|(name, count)| format!("{name} {}", number(count))).collect();
        if !causes.is_empty() {
            let _infallible = writeln!(page, "    {}", causes.join(", "));
        }
    }
    page
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
        let arguments = StatArguments { once: false, every: Duration::from_millis(1) };
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
        let page = page(&[(owner, ledger)], &HashMap::new(), Duration::from_secs(1));
        assert!(page.contains("12,345") && page.contains("inbox_full 2, lost_overrun 7"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 110), "{page}");
    }
}
