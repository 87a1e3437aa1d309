//! Messages that never came: numbers of those that found no room at their receiver and of those that came in part, with the receivers.

use serde::Serialize;

use super::cause::Cause;
use super::evidence::{EvidenceThread, TrialEvidence};
use super::of_run::TrialExplained;
use crate::report::section::{Cell, Column, Section, Table, numbers};
use crate::sample::{Outcome, Samples};
use crate::units::count;

/// Losses of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Messages sent.
    pub sent: u64,
    /// Of these, those without an answer.
    pub lost: u64,
    /// Of these, those that found no room, by the role of the thread that was to receive them.
    pub without_room: Vec<(String, u64)>,
    /// And those of which fragments were missing, by the same.
    pub incomplete: Vec<(String, u64)>,
    /// And those of which nothing is known.
    pub unexplained: u64,
}

impl Loss {
    /// Of a trial; `None` if it lost nothing.
    ///
    /// A request and its answer are never both without room, so no message is counted twice. A message that a buffer refuses may be
    /// none of the trial's: at most as many count as are missing.
    pub fn of(samples: &Samples, evidence: Option<&TrialEvidence>) -> Option<Self> {
        let lost = samples.count_of(Outcome::Lost);
        let mut unexplained = lost;
        let mut by_role = |counted: fn(&EvidenceThread) -> Option<u64>| {
            let mut parts = Vec::new();
            for thread in evidence.iter().flat_map(|evidence| &evidence.threads) {
                let some = counted(thread).unwrap_or(0).min(unexplained);
                if some > 0 {
                    unexplained -= some;
                    parts.push((thread.role.clone(), some));
                }
            }
            parts
        };
        let without_room = by_role(|thread| thread.dropped);
        let incomplete = by_role(|thread| thread.incomplete);
        let sent = samples.len() as u64;
        (lost > 0).then_some(Self { sent, lost, without_room, incomplete, unexplained })
    }

    /// Causes of lost messages, with the roles concerned and how many each time.
    pub fn causes(&self) -> [(Cause, &[(String, u64)]); 2] {
        [
            (Cause::named("receive_buffer"), &self.without_room[..]),
            (Cause::named("lost_fragment"), &self.incomplete[..]),
        ]
    }
}

/// Losses, trial by trial; `None` if there were none.
pub fn section(trials: &[TrialExplained], verify: &dyn Fn(Cause) -> Option<String>) -> Option<Section> {
    let mut columns = vec![Column::name("where")];
    columns.extend(numbers(["sent", "lost"]));
    columns.extend(["no room at", "in part at"].map(Column::prose));
    columns.push(Column::number("unexplained"));
    let mut table = Table::new(columns);
    let mut met = [false; 2];
    for (place, loss) in trials.iter().filter_map(|one| Some((&one.told.place, one.lost.as_ref()?))) {
        let of = |(role, some): &(String, u64)| format!("{role} {}", count(*some));
        let parts = loss.causes().map(|(_, parts)| parts.iter().map(of).collect::<Vec<String>>().join(", "));
        met.iter_mut().zip(&parts).for_each(|(met, part)| *met |= !part.is_empty());
        let mut row = vec![Cell::from(place), count(loss.sent).into(), count(loss.lost).into()];
        row.extend(parts.map(Cell::from));
        row.push(count(loss.unexplained).into());
        table.row(row);
    }
    if table.rows.is_empty() {
        return None;
    }
    let causes = Loss::default().causes().map(|(cause, _)| cause);
    let met = ["No room", "In part"].into_iter().zip(causes).zip(met).filter(|(_, met)| *met);
    let notes = met.map(|((name, cause), _)| match verify(cause) {
        Some(verify) => format!("{name}: try {}; then {verify}.", cause.fix()),
        None => format!("{name}: try {}.", cause.fix()),
    });
    Some(notes.fold(Section::new("What was lost").table(table), Section::note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::finding::tests::evidence;

    fn samples(lost: u64) -> Samples {
        let mut samples = Samples::default();
        for number in 0..100 {
            let outcome = if number < lost { Outcome::Lost } else { Outcome::Answered };
            samples.push(number, number, number, 1, outcome);
        }
        samples
    }

    /// Goal: each lost message is in one place, and more than were lost are in none.
    #[test]
    fn a_lost_message_is_counted_once() {
        let with = |dropped: [Option<u64>; 2]| {
            let mut evidence = evidence();
            evidence.threads.iter_mut().zip(dropped).for_each(|(thread, some)| thread.dropped = some);
            let loss = Loss::of(&samples(10), Some(&evidence)).expect("ten were lost");
            let of =
                |role: &str| loss.without_room.iter().find(|(of, _)| of == role).map_or(0, |(_, some)| *some);
            assert_eq!(of("client") + of("responder") + loss.unexplained, loss.lost);
            (of("client"), of("responder"), loss.unexplained)
        };
        assert_eq!(with([Some(0), Some(7)]), (0, 7, 3));
        assert_eq!(with([Some(4), Some(6)]), (4, 6, 0));
        assert_eq!(with([None, Some(900)]), (0, 10, 0), "others sent to that buffer, too");
        assert_eq!(with([None, None]), (0, 0, 10));
        let mut both = evidence();
        both.threads[1].dropped = Some(4);
        both.threads[1].incomplete = Some(9);
        let loss = Loss::of(&samples(10), Some(&both)).expect("ten were lost");
        let shown = loss.causes().map(|(cause, parts)| (cause.name(), parts.to_vec()));
        let of = |some| vec![("responder".to_owned(), some)];
        assert_eq!(shown, [("receive_buffer", of(4)), ("lost_fragment", of(6))]);
        assert_eq!(loss.unexplained, 0);
        assert_eq!(Loss::of(&samples(0), Some(&evidence())), None);
        assert_eq!(Loss::of(&samples(3), None).map(|loss| loss.unexplained), Some(3));
    }
}
