//! Checks whether all members delivered messages as they were sent, in the promised order; and finds when the last member had each one.

use std::collections::BTreeSet;

use super::halt::Halt;
use super::option::BroadcastKind;
use super::protocol::{MemberEnd, ROWS_MAX, Row};
use crate::explain::kept::ThreadWindows;
use crate::sample::{Outcome, Samples};

/// A member's report of its first messages, and of those that it broadcast.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivered {
    pub(super) rows: Vec<Row>,
    pub(super) hashes: Vec<u64>,
    /// History of its thread, where messages are due at instants.
    pub(super) windows: Option<ThreadWindows>,
}

/// Outcome of a trial's messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Judgement {
    /// A row per message of the first so many: from its broadcast to its delivery at the last member.
    pub(super) samples: Samples,
    /// Messages that are not at each member what was sent.
    pub(super) altered: u64,
    /// Places of a promised order at which some member delivered another message than the first member; or messages behind a later one
    /// of their sender, if those are more.
    pub(super) misordered: u64,
}

impl Judgement {
    /// Adds a row for messages that have none of their own.
    fn add(&mut self, row: u64, outcome: Outcome) {
        self.samples.push(row, 0, 0, 0, outcome);
        self.samples.sender.push(0);
    }
}

/// A sequence of messages that is promised to be equal at all members: the rows of each member, in the order of delivery.
type Stream<'a> = Vec<Vec<&'a Row>>;

/// Judges a trial by all digests, and by the rows message by message.
pub(super) fn judge(members: &[(MemberEnd, Delivered)], kind: BroadcastKind, started_ns: u64) -> Judgement {
    let mut judgement = Judgement::default();
    let Some(((first, _), others)) = members.split_first() else { return judgement };
    let mut fates = Vec::new();
    for stream in streams(members, kind) {
        for place in 0..stream.iter().map(Vec::len).max().unwrap_or(0) {
            let row = stream[0].get(place).copied();
            let is_other = |rows: &Vec<&Row>| id(rows.get(place).copied()) != id(row);
            judgement.misordered += u64::from(stream.iter().any(is_other));
            let (outcome, last_ns) = fate(members, &stream, place);
            fates.push((row.map_or(started_ns, |row| row.sent_ns), last_ns, outcome, row));
        }
    }
    if !kind.is_ordered() {
        // One sender's messages keep their order among themselves.
        fates.sort_by_key(|(sent_ns, ..)| *sent_ns);
    }
    for (index, (sent_ns, last_ns, outcome, row)) in (0..).zip(fates) {
        let since_ns = sent_ns.saturating_sub(started_ns);
        let samples = &mut judgement.samples;
        samples.push(index, since_ns, since_ns, last_ns.saturating_sub(sent_ns), outcome);
        samples.sender.push(row.map_or(0, |row| row.sender));
    }
    let Judgement { samples, .. } = &judgement;
    let rows = samples.len() as u64;
    judgement.altered = samples.count_of(Outcome::Mismatched) + samples.count_of(Outcome::Lost);
    // Messages that no member delivered have no row, nor has any behind the last one.
    let missing = members.iter().map(|(end, _)| end.missing).max().unwrap_or(0);
    if missing > judgement.altered {
        if judgement.altered == 0 {
            judgement.add(rows, Outcome::Lost);
        }
        judgement.altered = missing;
    }
    // Behind the last row the digests tell.
    let sent = members.iter().map(|(end, _)| wide(end.sent)).fold(0, u128::wrapping_add);
    let is_sent = members.iter().all(|(end, _)| wide(end.content) == sent);
    if !is_sent && judgement.altered == 0 {
        judgement.altered = 1;
        judgement.add(rows, Outcome::Mismatched);
    }
    let is_ordered = others.iter().all(|(end, _)| end.order == first.order);
    if is_sent && !is_ordered && judgement.misordered == 0 {
        judgement.misordered = 1;
    }
    let out_of_turn = members.iter().map(|(end, _)| end.out_of_turn).max().unwrap_or(0);
    judgement.misordered = judgement.misordered.max(out_of_turn);
    judgement.samples.facts.reordered = judgement.misordered;
    judgement
}

/// Results of all members, or the reason for the lack of one. The others must agree all the same.
pub(super) fn all_ended(
    ends: Vec<Result<(MemberEnd, Delivered), Halt>>,
    kind: BroadcastKind,
) -> Result<Vec<(MemberEnd, Delivered)>, Halt> {
    let mut reason = None;
    let mut ended = Vec::new();
    for (place, end) in ends.into_iter().enumerate() {
        match end {
            Ok(end) => ended.push((place, end)),
            Err(halt @ Halt::Stuck(_)) => return Err(halt),
            Err(halt) => reason = reason.or(Some(halt)),
        }
    }
    match reason {
        None => Ok(ended.into_iter().map(|(_, end)| end).collect()),
        Some(reason) => Err(difference(&ended, kind).map_or(reason, Halt::Stuck)),
    }
}

/// The first thing that these members, each with its place, were told otherwise than was sent or than others were, in words. One may
/// have been told more than another.
fn difference(ended: &[(usize, (MemberEnd, Delivered))], kind: BroadcastKind) -> Option<String> {
    for (place, (end, delivered)) in ended {
        if end.out_of_turn > 0 {
            let count = end.out_of_turn;
            return Some(format!(
                "member {place} delivered messages behind later ones of their senders: {count}"
            ));
        }
        for Row { sender, number, hash, .. } in &delivered.rows {
            let of_sender = ended.iter().find(|(place, _)| *place as u64 == *sender);
            let sent = of_sender.and_then(|(_, (_, its))| its.hashes.get(*number as usize));
            if sent.is_some_and(|sent| sent != hash) {
                return Some(format!(
                    "member {place} delivered message {sender}.{number}, which is not what was sent"
                ));
            }
        }
    }
    let (first, (_, one)) = ended.first().filter(|_| kind.is_ordered())?;
    ended.iter().find_map(|(place, (_, other))| {
        let mut pairs = one.rows.iter().zip(&other.rows);
        let at = pairs.position(|(one, other)| id(Some(one)) != id(Some(other)))?;
        Some(format!("members {first} and {place} delivered different messages at place {at} of the order"))
    })
}

/// All that is promised to be equal: one sequence, or one for each sender. Of what each member kept of a sender only as much counts
/// as all kept where one of them kept not all.
fn streams<'a>(members: &'a [(MemberEnd, Delivered)], kind: BroadcastKind) -> Vec<Stream<'a>> {
    let of = |sender: Option<u64>| -> Stream<'a> {
        let is_of = |row: &&Row| sender.is_none_or(|sender| row.sender == sender);
        members.iter().map(|(_, delivered)| delivered.rows.iter().filter(is_of).collect()).collect()
    };
    if kind.is_ordered() {
        return vec![of(None)];
    }
    let senders = members.iter().flat_map(|(_, delivered)| &delivered.rows).map(|row| row.sender);
    let senders: BTreeSet<u64> = senders.collect();
    let is_cut = members.iter().any(|(_, delivered)| delivered.rows.len() == ROWS_MAX);
    let mut streams: Vec<Stream<'a>> = senders.into_iter().map(|sender| of(Some(sender))).collect();
    for stream in streams.iter_mut().filter(|_| is_cut) {
        let least = stream.iter().map(Vec::len).min().unwrap_or(0);
        stream.iter_mut().for_each(|rows| rows.truncate(least));
    }
    streams
}

fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

fn id(row: Option<&Row>) -> Option<(u64, u64)> {
    row.map(|row| (row.sender, row.number))
}

/// Outcome at this place, by whether all members delivered the message as it was sent, and the instant when the last did.
fn fate(members: &[(MemberEnd, Delivered)], stream: &Stream<'_>, place: usize) -> (Outcome, u64) {
    let mut last_ns = 0;
    for rows in stream {
        let Some(row) = rows.get(place) else { return (Outcome::Lost, last_ns) };
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
        let judged = judge(&members(), BroadcastKind::Ab, 500);
        assert_eq!((judged.altered, judged.misordered), (0, 0));
        assert_eq!(judged.samples.total_ns, [1_000, 1_001, 4_000]);
        assert_eq!(judged.samples.sent_ns, [500; 3]);
    }

    #[test]
    fn a_member_that_differs_is_found() {
        let judged = |change: fn(&mut Vec<(MemberEnd, Delivered)>)| {
            let mut members = members();
            change(&mut members);
            let judged = [BroadcastKind::Ab, BroadcastKind::Beb].map(|kind| judge(&members, kind, 0));
            let [one, other] = judged.map(|judged| (judged.altered, judged.misordered));
            assert_eq!(one, other, "of one sender all is promised");
            one
        };
        assert_eq!(judged(|members| members[1].1.rows[1].hash ^= 1), (1, 0), "content");
        assert_eq!(judged(|members| members[1].1.rows.swap(0, 1)), (0, 2), "order");
        assert_eq!(judged(|members| members[1].1.rows.truncate(2)), (1, 1), "missing");
        assert_eq!(judged(|members| members[1].0.content = [1, 0]), (1, 0), "behind the rows");
        assert_eq!(judged(|members| members[1].0.order = [1, 0]), (0, 1), "order behind the rows");
        let at_all = |members: &mut Vec<(MemberEnd, Delivered)>| {
            members.iter_mut().for_each(|member| member.0.out_of_turn = 2);
        };
        assert_eq!(judged(at_all), (0, 2), "the same wrong order at all");
        assert_eq!(
            judged(|members| members.iter_mut().for_each(|member| member.0.missing = 7)),
            (7, 0),
            "at all"
        );
    }

    /// Goal: a member that has no result hides nothing that the others were told wrongly, and is no broken promise by itself.
    #[test]
    fn a_member_without_a_result_hides_nothing() {
        let reason = || Halt::Machine("member 2: it was expelled".to_owned());
        let judged = |change: fn(&mut [(MemberEnd, Delivered)]), last: Halt| {
            let mut members = members();
            change(&mut members);
            let ends = members.into_iter().map(Ok).chain([Err(last)]).collect();
            all_ended(ends, BroadcastKind::Ab).expect_err("one has none")
        };
        assert_eq!(judged(|_| {}, reason()), reason());
        assert_eq!(judged(|members| members[1].1.rows.truncate(1), reason()), reason(), "less than another");
        let stuck = Halt::Stuck("a message of nobody".to_owned());
        assert_eq!(judged(|_| {}, stuck.clone()), stuck);
        let is_broken =
            |change: fn(&mut [(MemberEnd, Delivered)])| matches!(judged(change, reason()), Halt::Stuck(_));
        assert!(is_broken(|members| members[1].1.rows.swap(0, 1)), "order");
        assert!(is_broken(|members| members[1].1.rows[2].hash ^= 1), "content");
        assert!(is_broken(|members| members[0].0.out_of_turn = 1), "its sender's order");
        let all = members().into_iter().map(Ok).collect();
        assert_eq!(all_ended(all, BroadcastKind::Ab).map(|ended| ended.len()), Ok(2));
    }

    /// Goal: messages that no member has are a broken promise, also in the row of the summary.
    #[test]
    fn messages_that_never_came_are_lost() {
        let mut members = members();
        members[0].0.missing = 2;
        let samples = judge(&members, BroadcastKind::Ab, 500).samples;
        assert_eq!(samples.count_of(Outcome::Lost), 1);
    }

    /// Goal: without order it does not matter how senders' messages come among each other, and everything else does.
    #[test]
    fn without_order_each_sender_is_judged_by_itself() {
        let of_other = |number: u64, at_ns: u64| Row { sender: 1, sent_ns: 1_500, ..row(number, at_ns) };
        let mut members = members();
        members[1].1.hashes = vec![100, 101];
        for ((_, delivered), places) in members.iter_mut().zip([[0, 3], [1, 1]]) {
            for (number, place) in (0..).zip(places) {
                delivered.rows.insert(place, of_other(number, 6_000 + number));
            }
        }
        let judged = |members: &[(MemberEnd, Delivered)], kind| {
            let judged = judge(members, kind, 500);
            (judged.altered, judged.misordered > 0)
        };
        assert_eq!(judged(&members, BroadcastKind::Ab), (0, true));
        assert_eq!(judged(&members, BroadcastKind::Urb), (0, true), "its second came first at the other");
        members[1].1.rows.swap(1, 2);
        assert_eq!(judged(&members, BroadcastKind::Agreed), (0, true));
        assert_eq!(judged(&members, BroadcastKind::Urb), (0, false));
        let samples = judge(&members, BroadcastKind::Beb, 500).samples;
        assert_eq!(samples.sender, [0, 0, 0, 1, 1], "by when they were sent");
        assert_eq!(samples.total_ns, [1_000, 1_001, 4_000, 4_500, 4_501]);
        members[0].1.rows.remove(0);
        assert_eq!(judged(&members, BroadcastKind::Beb), (1, true), "a message of one of them is missing");
    }
}
