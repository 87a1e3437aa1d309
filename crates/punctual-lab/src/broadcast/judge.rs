//! Whether all members delivered the same, in one order, as it was sent; and when the last of them had each message.

use super::protocol::{MemberEnd, Row};
use crate::explain::kept::ThreadWindows;
use crate::sample::{Outcome, Samples};

/// What a member says of its first messages, and of those that it broadcast.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivered {
    pub(super) rows: Vec<Row>,
    pub(super) hashes: Vec<u64>,
    /// What its thread went through, where messages are due at instants.
    pub(super) windows: Option<ThreadWindows>,
}

/// What became of a trial's messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Judgement {
    /// A row per message of the first so many: from its broadcast to its delivery at the last member.
    pub(super) samples: Samples,
    /// Messages that are not at each member what was sent.
    pub(super) altered: u64,
    /// Places of the order at which some member delivered another message than the first member.
    pub(super) misordered: u64,
}

/// Judges a trial by all digests, and by the rows message by message.
pub(super) fn judge(members: &[(MemberEnd, Delivered)], started_ns: u64) -> Judgement {
    let mut judgement = Judgement::default();
    let Some(((first, of_first), others)) = members.split_first() else { return judgement };
    let rows = members.iter().map(|(_, delivered)| delivered.rows.len()).max().unwrap_or(0);
    for place in 0..rows {
        let row = of_first.rows.get(place);
        let at = |(_, delivered): &(MemberEnd, Delivered)| delivered.rows.get(place).copied();
        let is_other = |other: &(MemberEnd, Delivered)| id(at(other).as_ref()) != id(row);
        judgement.misordered += u64::from(others.iter().any(is_other));
        let (outcome, last_ns) = fate(members, place);
        let sent_ns = row.map_or(started_ns, |row| row.sent_ns);
        let since = |ns: u64| ns.saturating_sub(started_ns);
        let samples = &mut judgement.samples;
        let total = last_ns.saturating_sub(sent_ns);
        samples.push(place as u64, since(sent_ns), since(sent_ns), total, outcome);
        samples.sender.push(row.map_or(0, |row| row.sender));
    }
    let Judgement { samples, .. } = &judgement;
    judgement.altered = samples.count_of(Outcome::Mismatched) + samples.count_of(Outcome::Lost);
    // Behind the last row the digests tell.
    let sent = members.iter().map(|(end, _)| wide(end.sent)).fold(0, u128::wrapping_add);
    let is_sent = members.iter().all(|(end, _)| wide(end.content) == sent);
    if !is_sent && judgement.altered == 0 {
        judgement.altered = 1;
        judgement.samples.push(rows as u64, 0, 0, 0, Outcome::Mismatched);
        judgement.samples.sender.push(0);
    }
    let is_ordered = others.iter().all(|(end, _)| end.order == first.order);
    if is_sent && !is_ordered && judgement.misordered == 0 {
        judgement.misordered = 1;
    }
    judgement.samples.facts.reordered = judgement.misordered;
    judgement.samples.facts.cpu_ns = members.iter().map(|(end, _)| end.cpu_ns).sum();
    judgement
}

fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

fn id(row: Option<&Row>) -> Option<(u64, u64)> {
    row.map(|row| (row.sender, row.number))
}

/// Whether what all members delivered at this place was sent so, and when the last did.
fn fate(members: &[(MemberEnd, Delivered)], place: usize) -> (Outcome, u64) {
    let mut last_ns = 0;
    for (_, delivered) in members {
        let Some(row) = delivered.rows.get(place) else { return (Outcome::Lost, last_ns) };
        let hashes = members.get(row.sender as usize).map(|(_, sender)| &sender.hashes);
        let sent = hashes.and_then(|hashes| hashes.get(row.number as usize));
        last_ns = last_ns.max(row.at_ns);
        if sent != Some(&row.hash) {
            return (Outcome::Mismatched, last_ns);
        }
    }
    (Outcome::Answered, last_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64, at_ns: u64) -> Row {
        Row { sender: 0, number, hash: 100 + number, sent_ns: 1_000, at_ns }
    }

    /// Two members that delivered three messages of the first; digests of what their rows say.
    fn members() -> Vec<(MemberEnd, Delivered)> {
        let rows: Vec<Row> = (0..3).map(|number| row(number, 2_000 + number)).collect();
        let mut members =
            vec![(MemberEnd::default(), Delivered { rows, hashes: vec![100, 101, 102], windows: None })];
        members.push((MemberEnd::default(), Delivered { hashes: Vec::new(), ..members[0].1.clone() }));
        members[1].1.rows[2].at_ns = 5_000;
        members
    }

    #[test]
    fn the_last_member_counts() {
        let judged = judge(&members(), 500);
        assert_eq!((judged.altered, judged.misordered), (0, 0));
        assert_eq!(judged.samples.total_ns, [1_000, 1_001, 4_000]);
        assert_eq!(judged.samples.sent_ns, [500; 3]);
    }

    #[test]
    fn what_differs_is_found() {
        let judged = |change: fn(&mut Vec<(MemberEnd, Delivered)>)| {
            let mut members = members();
            change(&mut members);
            let judged = judge(&members, 0);
            (judged.altered, judged.misordered)
        };
        assert_eq!(judged(|members| members[1].1.rows[1].hash ^= 1), (1, 0), "content");
        assert_eq!(judged(|members| members[1].1.rows.swap(0, 1)), (0, 2), "order");
        assert_eq!(judged(|members| members[1].1.rows.truncate(2)), (1, 1), "missing");
        assert_eq!(judged(|members| members[1].0.content = [1, 0]), (1, 0), "behind the rows");
        assert_eq!(judged(|members| members[1].0.order = [1, 0]), (0, 1), "order behind the rows");
    }
}
