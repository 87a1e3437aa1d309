//! Our groups beside those of other systems that were measured in the same run.

use super::option::Senders;
use super::overview::{Trials, speed_of};
use super::trial::BroadcastTrial;
use crate::report::section::{Cell, Column, Section, Table, Tone, numbers};
use crate::sample::Kind;
use crate::summary::{CellResult, Summary};
use crate::units::{OptionName, dash, fixed};

/// When the last member had each message of a trial.
pub(super) fn latency<'a>(summary: &'a Summary, trial: &BroadcastTrial) -> Option<&'a CellResult> {
    let name = format!("{}/{}", trial.engine.name(), trial.wake());
    summary.results.iter().find(|row| row.cell.kind == Kind::OneWay && row.cell.name == name)
}

/// Our quantile as a fraction of the other's.
fn part([ours, other]: [Option<&CellResult>; 2], of: fn(&CellResult) -> Option<u64>) -> Cell {
    let both = ours.and_then(of).zip(other.and_then(of)).filter(|(_, other)| *other > 0);
    both.map_or_else(dash, |(ours, other)| fixed(ours as f64 / other as f64, 3)).into()
}

/// A row for each of our groups and each other system that had as many members and the same faults. `None` if there is none.
pub(super) fn section(groups: &[Trials<'_>], senders: Senders, summary: &Summary) -> Option<Section> {
    let mut columns = ["engine", "kind", "beside"].map(Column::name).to_vec();
    columns.extend(numbers(["members", "loss/flips %", "× as fast"]));
    columns.extend(numbers(["p50", "p99"]).into_iter().map(|column| column.over("of its latency")));
    let mut table = Table::new(columns).keyed(5);
    let mut is_any = false;
    for ours in groups.iter().filter(|group| !group[0].engine.is_other()) {
        let key = |group: &Trials<'_>| (group[0].members, group[0].faults);
        let others = groups.iter().filter(|group| group[0].engine.is_other() && key(group) == key(ours));
        for other in others {
            is_any = true;
            let latencies = [ours, other].map(|group| latency(summary, group[0]));
            table.row([
                ours[0].engine.name().into(),
                ours[0].kind.name().into(),
                other[0].engine.name().into(),
                ours[0].members.to_string().into(),
                ours[0].faults.to_string().into(),
                Cell::toned(fixed(speed_of(ours) / speed_of(other), 2), Tone::Strong),
                part(latencies, |row| row.figures.p50),
                part(latencies, |row| row.figures.p99),
            ]);
        }
    }
    let about = "the same namespaces, faults and messages, in turn";
    let who = match senders {
        Senders::One => {
            "One member broadcasts: our sequencer, and JGroups' coordinator. Corosync has neither: the holder of its token sends 17 \
             frames at most (max_messages) before it goes round. --senders all lets all members broadcast."
        }
        Senders::All => "All members broadcast, of theirs as of ours.",
    };
    let note = format!(
        "{who} Their messages are delivered when their order is known: neither waits until a majority holds them, as ours of the kind \
         ab do. Checksums are computed in software for all, so that a flipped bit is found by the kernel."
    );
    is_any.then(|| Section::new("Beside other systems").about(about).table(table).note(note))
}
