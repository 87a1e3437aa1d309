//! Judgement of gets that a member answers from its own copy: they may be stale. Counted are those that are stale for certain. Found
//! are those that no copy can have answered, and those by which a copy went back.

use std::collections::{HashMap, HashSet};

/// A put: its value, when it began, and when it was answered, if it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    pub(super) value: u64,
    pub(super) invoked_ns: u64,
    pub(super) answered_ns: Option<u64>,
}

/// A get: its answer, 0 for nothing, and its instants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Get {
    pub(super) value: u64,
    pub(super) invoked_ns: u64,
    pub(super) answered_ns: u64,
}

/// Judgement of a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It may have been the newest value.
    Possible,
    /// For so long at least another value had been there, and the client that put it knew.
    Stale(u64),
    /// Nobody had put that value yet.
    Impossible,
}

/// Judgement of each get of one key.
pub(super) fn judge(puts: &[Put], gets: &[Get]) -> Vec<Answer> {
    let by_value: HashMap<u64, &Put> = puts.iter().map(|put| (put.value, put)).collect();
    let mut begun: Vec<(u64, u64)> =
        puts.iter().filter_map(|put| Some((put.invoked_ns, put.answered_ns?))).collect();
    begun.sort_unstable();
    // When the first of all puts was answered that began there or later.
    for at in (1..begun.len()).rev() {
        begun[at - 1].1 = begun[at - 1].1.min(begun[at].1);
    }
    let overwritten_since = |known_ns: u64| {
        let later = begun.partition_point(|&(invoked_ns, _)| invoked_ns <= known_ns);
        begun.get(later).map(|&(_, answered_ns)| answered_ns)
    };
    let one = |get: &Get| {
        let overwritten_ns = if get.value == 0 {
            begun.first().map(|&(_, answered_ns)| answered_ns)
        } else {
            match by_value.get(&get.value) {
                Some(put) if put.invoked_ns <= get.answered_ns => put.answered_ns.and_then(overwritten_since),
                _ => return Answer::Impossible,
            }
        };
        match overwritten_ns.filter(|&ns| ns < get.invoked_ns) {
            Some(ns) => Answer::Stale(get.invoked_ns - ns),
            None => Answer::Possible,
        }
    };
    gets.iter().map(one).collect()
}

/// Marks, among the values that one copy of a key showed in this order, those older than one before: a copy only goes forwards. The
/// value of a put does not come back, nor does one whose put was answered before a put began that the copy has had.
pub(super) fn went_back(puts: &[Put], shown: &[u64]) -> Vec<bool> {
    let by_value: HashMap<u64, &Put> = puts.iter().map(|put| (put.value, put)).collect();
    let (mut newest, mut newest_began_ns) = (None, None);
    let mut overwritten = HashSet::new();
    let one = |&value: &u64| {
        let put = by_value.get(&value);
        let known_ns = if value == 0 { Some(0) } else { put.and_then(|put| put.answered_ns) };
        let is_older = |began_ns: u64| known_ns.is_some_and(|ns| ns < began_ns);
        if overwritten.contains(&value) || newest_began_ns.is_some_and(is_older) {
            return true;
        }
        if let Some(before) = newest.replace(value).filter(|&before| before != value) {
            overwritten.insert(before);
        }
        newest_began_ns = newest_began_ns.max(put.map(|put| put.invoked_ns));
        false
    };
    shown.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: u64, invoked_ns: u64, answered_ns: u64) -> Put {
        Put { value, invoked_ns, answered_ns: Some(answered_ns) }
    }

    /// Goal: a get is stale if a later put overwrote its value. That put began after the value's own put was answered, and was answered
    /// before the get began. A get is impossible if nobody had begun to put its value.
    #[test]
    fn stale_gets_are_told_from_possible_ones() {
        let puts = [
            put(1, 0, 10),
            put(2, 20, 30),
            put(3, 25, 90),
            put(4, 40, 60),
            Put { value: 5, invoked_ns: 50, answered_ns: None },
        ];
        let of =
            |value, invoked_ns| judge(&puts, &[Get { value, invoked_ns, answered_ns: invoked_ns + 5 }])[0];
        assert_eq!([of(0, 5), of(0, 11)], [Answer::Possible, Answer::Stale(1)]);
        assert_eq!([of(1, 25), of(1, 30), of(1, 35)], [Answer::Possible, Answer::Possible, Answer::Stale(5)]);
        assert_eq!([of(2, 60), of(2, 70)], [Answer::Possible, Answer::Stale(10)]);
        assert_eq!([of(3, 1_000), of(4, 1_000), of(5, 1_000)], [Answer::Possible; 3]);
        assert_eq!(
            [of(5, 44), of(5, 45), of(7, 1_000)],
            [Answer::Impossible, Answer::Possible, Answer::Impossible]
        );
    }
    /// Goal: a copy has gone back if it shows a value again that it had overwritten, or one that is older for certain. It stays so
    /// until it shows its former value again. Concurrent values may come in any order, but each once.
    #[test]
    fn a_copy_only_goes_forwards() {
        let unanswered = Put { value: 4, invoked_ns: 50, answered_ns: None };
        let puts = [put(1, 10, 20), put(2, 30, 60), put(3, 30, 60), unanswered];
        let of =
            |shown: &[u64]| went_back(&puts, shown).iter().map(|&back| u8::from(back)).collect::<Vec<_>>();
        assert_eq!(of(&[0, 0, 1, 1, 2, 2, 3, 4, 4]), [0; 9]);
        assert_eq!([of(&[2, 3]), of(&[3, 2]), of(&[4, 3]), of(&[4, 2, 3])].concat(), [0; 9]);
        assert_eq!(of(&[2, 1, 2]), [0, 1, 0], "restored from before, and caught up");
        assert_eq!(of(&[4, 1, 0]), [0, 1, 1], "an unanswered put had been seen");
        assert_eq!(of(&[1, 0]), [0, 1]);
        assert_eq!(of(&[2, 3, 2, 3]), [0, 0, 1, 0], "a put does not happen twice");
    }
}
