//! Records of all processes, as one history of operations, and the check whether it is linearizable, key by key.

use std::collections::{BTreeMap, HashMap};

use super::linear::{self, Action, Operation, Verdict};
use super::local::{self, Answer, Get, Put};
use super::log::{Entry, Invoked};
use crate::broadcast::lives::log::Entry as GroupEntry;

/// Violations that are kept in words.
const SHOWN_MAX: usize = 10;

/// Records of a process, and the way it ended.
#[derive(Clone, Copy)]
pub(super) struct ProcessLog<'a> {
    pub(super) place: usize,
    pub(super) was_killed: bool,
    pub(super) entries: &'a [Entry],
}

/// One operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) place: usize,
    pub(super) is_put: bool,
    /// It was answered from the member's own copy.
    pub(super) is_local: bool,
    pub(super) key: u64,
    /// The value that was put or read; 0 for nothing.
    pub(super) value: u64,
    pub(super) invoked_ns: u64,
    pub(super) answered_ns: Option<u64>,
    /// When the client was told that nobody knows whether it happened.
    pub(super) given_up_ns: Option<u64>,
}

/// Result of a check: its counts, and everything that does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) keys: u64,
    pub(super) operations: u64,
    /// Puts of which nobody was told whether they happened.
    pub(super) maybe: u64,
    /// Keys whose history no search decided.
    pub(super) undecided: u64,
    /// Local gets that were stale for certain, and for how long at most.
    pub(super) stale: u64,
    pub(super) stale_ns_max: u64,
    pub(super) violation_count: u64,
    pub(super) violations: Vec<String>,
}

impl Checked {
    fn add(&mut self, sentence: String) {
        self.violation_count += 1;
        if self.violations.len() < SHOWN_MAX {
            self.violations.push(sentence);
        }
    }
}

/// All operations, by their invocation.
pub(super) fn operations(logs: &[ProcessLog<'_>]) -> Vec<Asked> {
    let mut all = Vec::new();
    for log in logs {
        let mut pending: HashMap<u64, usize> = HashMap::new();
        for entry in log.entries {
            match *entry {
                Entry::Invoked(Invoked { operation, is_put, key, value, at_ns }) => {
                    pending.insert(operation, all.len());
                    let (place, answered_ns) = (log.place, None);
                    let asked = Asked {
                        place,
                        is_put,
                        is_local: false,
                        key,
                        value,
                        invoked_ns: at_ns,
                        answered_ns,
                        given_up_ns: None,
                    };
                    all.push(asked);
                }
                Entry::Answered { operation, value, at_ns } => {
                    if let Some(at) = pending.remove(&operation) {
                        (all[at].value, all[at].answered_ns) = (value, Some(at_ns));
                    }
                }
                Entry::Read { key, value, invoked_ns, at_ns } => all.push(Asked {
                    place: log.place,
                    is_put: false,
                    is_local: true,
                    key,
                    value,
                    invoked_ns,
                    answered_ns: Some(at_ns),
                    given_up_ns: None,
                }),
                Entry::Group(ref entry) => {
                    if let GroupEntry::Expelled { at_ns } = **entry {
                        pending.drain().for_each(|(_, at)| all[at].given_up_ns = Some(at_ns));
                    }
                }
                Entry::Working | Entry::Ended { .. } | Entry::State { .. } => {}
            }
        }
    }
    all.sort_by_key(|asked| asked.invoked_ns);
    all
}

/// A member's copy when all was over: each key's value.
struct Copied {
    place: usize,
    at_ns: u64,
    values: HashMap<u64, u64>,
}

impl Copied {
    /// As if somebody had read it then.
    fn read(&self, key: u64) -> Operation {
        let value = self.values.get(&key).copied();
        Operation { action: Action::Get(value), invoked_ns: self.at_ns, answered_ns: Some(self.at_ns) }
    }
}

/// Checks all of it. Sentences count time from `started_ns`. Copies have everything only at the end of a whole trial: in one that was
/// cut short a member may be behind.
pub(super) fn check(
    logs: &[ProcessLog<'_>],
    operations: &[Asked],
    started_ns: u64,
    is_whole: bool,
) -> Checked {
    let mut checked = Checked::default();
    let mut keys: BTreeMap<u64, Vec<&Asked>> = BTreeMap::new();
    for asked in operations {
        checked.maybe += u64::from(asked.is_put && asked.answered_ns.is_none());
        keys.entry(asked.key).or_default().push(asked);
    }
    let copies = if is_whole { copies(&mut checked, logs) } else { Vec::new() };
    for key in copies.iter().flat_map(|copy| copy.values.keys()) {
        keys.entry(*key).or_default();
    }
    checked.keys = keys.len() as u64;
    for (key, asked) in &keys {
        check_order(&mut checked, *key, (asked, &copies), started_ns);
        check_local(&mut checked, *key, asked, started_ns);
    }
    checked
}

/// An operation in words: the asking member, the request, and its answer.
fn named(key: u64, asked: &Asked, started_ns: u64) -> String {
    let (what, place) = (if asked.is_put { "put" } else { "get" }, asked.place);
    let since_ms = |ns: u64| ns.saturating_sub(started_ns) as f64 / 1e6;
    let end = asked.answered_ns.map_or_else(|| "no answer".to_owned(), |ns| format!("{:.3}", since_ms(ns)));
    format!("the {what} of key {key} at member {place}, from {:.3} to {end} ms", since_ms(asked.invoked_ns))
}

/// Operations that stand in the one order, and what all of them came to: a put that no copy has, though nothing overwrote it, is lost.
fn check_order(checked: &mut Checked, key: u64, (asked, copies): (&[&Asked], &[Copied]), started_ns: u64) {
    let ordered: Vec<&Asked> = asked.iter().copied().filter(|asked| !asked.is_local).collect();
    let operation = |asked: &&Asked| Operation {
        action: if asked.is_put {
            Action::Put(asked.value)
        } else {
            Action::Get((asked.value != 0).then_some(asked.value))
        },
        invoked_ns: asked.invoked_ns,
        answered_ns: asked.answered_ns,
    };
    let ends = copies.iter().map(|copy| copy.read(key));
    let history: Vec<Operation> = ordered.iter().map(operation).chain(ends).collect();
    checked.operations += ordered.len() as u64;
    let named = |at: usize| match ordered.get(at) {
        Some(asked) => named(key, asked, started_ns),
        None => {
            format!("the value that key {key} has in the end at member {}", copies[at - ordered.len()].place)
        }
    };
    match linear::check(&history) {
        Verdict::Linearizable => {}
        Verdict::Undecided => checked.undecided += 1,
        Verdict::PutTwice(at) => {
            let named = named(at);
            checked.add(format!("{named}, has a value that was put before: answers do not tell which put"));
        }
        Verdict::Broken(at) => {
            checked.add(format!("{}, fits no order of the operations on its key", named(at)));
        }
    }
}

/// Gets that a member answered from its own copy.
fn check_local(checked: &mut Checked, key: u64, asked: &[&Asked], started_ns: u64) {
    let locals: Vec<&Asked> = asked.iter().copied().filter(|asked| asked.is_local).collect();
    let puts = asked.iter().filter(|asked| asked.is_put);
    let puts: Vec<Put> = puts
        .map(|put| Put { value: put.value, invoked_ns: put.invoked_ns, answered_ns: put.answered_ns })
        .collect();
    let get = |asked: &&Asked| Get {
        value: asked.value,
        invoked_ns: asked.invoked_ns,
        answered_ns: asked.answered_ns.unwrap_or(asked.invoked_ns),
    };
    let gets: Vec<Get> = locals.iter().map(get).collect();
    checked.operations += gets.len() as u64;
    for (asked, answer) in locals.iter().zip(local::judge(&puts, &gets)) {
        match answer {
            Answer::Possible => {}
            Answer::Stale(ns) => {
                checked.stale += 1;
                checked.stale_ns_max = checked.stale_ns_max.max(ns);
            }
            Answer::Impossible => {
                let named = named(key, asked, started_ns);
                checked.add(format!("{named}, answered what nobody had put"));
            }
        }
    }
    check_forwards(checked, key, (asked, &puts), started_ns);
}

/// Checks the values that each member's copy showed: it has its member's own puts from their answers on, and the values that were read
/// from it.
fn check_forwards(checked: &mut Checked, key: u64, (asked, puts): (&[&Asked], &[Put]), started_ns: u64) {
    let mut shown: BTreeMap<usize, Vec<&Asked>> = BTreeMap::new();
    for asked in asked.iter().filter(|asked| asked.is_local || asked.is_put && asked.answered_ns.is_some()) {
        shown.entry(asked.place).or_default().push(asked);
    }
    for shown in shown.values_mut() {
        shown.sort_by_key(|asked| asked.answered_ns);
        let values: Vec<u64> = shown.iter().map(|asked| asked.value).collect();
        let went_back = local::went_back(puts, &values);
        for (asked, _) in shown.iter().zip(went_back).filter(|(_, went_back)| *went_back) {
            let named = named(key, asked, started_ns);
            checked.add(format!("{named}, answered an older value than the member had had"));
        }
    }
}

/// Returns true if a process has a copy in the end: one that was expelled has none until it has come back.
fn has_copy(log: &ProcessLog<'_>) -> bool {
    let newest = log.entries.iter().rev().find_map(|entry| match entry {
        Entry::Working | Entry::Ended { .. } => Some(true),
        Entry::Group(told) if matches!(**told, GroupEntry::Expelled { .. }) => Some(false),
        _ => None,
    });
    newest.unwrap_or(true)
}

/// With which values those ended who survived: each must say so, and all must have the same. As gets they may differ, where a put that
/// nobody answered stands between their instants.
fn copies(checked: &mut Checked, logs: &[ProcessLog<'_>]) -> Vec<Copied> {
    let mut ends: Vec<Copied> = Vec::new();
    for log in logs.iter().filter(|log| !log.was_killed) {
        let mut states = log.entries.iter().filter_map(|entry| match entry {
            Entry::State { at_ns, values } => Some((*at_ns, values.iter().copied().collect())),
            _ => None,
        });
        match states.next_back() {
            Some((at_ns, values)) => ends.push(Copied { place: log.place, at_ns, values }),
            None if has_copy(log) => {
                checked.add(format!("member {} ended and does not say with which values", log.place));
            }
            None => {}
        }
    }
    if let Some((first, others)) = ends.split_first() {
        for other in others.iter().filter(|other| other.values != first.values) {
            checked.add(format!("members {} and {} ended with different values", first.place, other.place));
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use punctual::broadcast::{Command, State};

    use super::super::store::{Op, Request, Store, digest_of};
    use super::*;

    fn invoked(operation: u64, is_put: bool, value: u64, at_ns: u64) -> Entry {
        Entry::Invoked(Invoked { operation, is_put, key: 5, value, at_ns })
    }

    fn answered(operation: u64, value: u64, at_ns: u64) -> Entry {
        Entry::Answered { operation, value, at_ns }
    }

    fn state(value: u64) -> Entry {
        Entry::State { at_ns: 60, values: vec![(5, value)] }
    }

    fn checked(logs: [(bool, &[Entry]); 2], is_whole: bool) -> Checked {
        let log = |(place, (was_killed, entries))| ProcessLog { place, was_killed, entries };
        let logs: Vec<ProcessLog<'_>> = logs.into_iter().enumerate().map(log).collect();
        check(&logs, &operations(&logs), 0, is_whole)
    }

    /// Goal: a put that its process did not live to hear of may have happened or not; one that was heard of must be seen.
    #[test]
    fn a_killed_process_may_have_put() {
        let heard = [invoked(1, true, 7, 10), answered(1, 7, 20)];
        let get = |value| [invoked(1, false, 0, 30), answered(1, value, 40)];
        assert_eq!(checked([(true, &heard), (false, &get(7))], false).violation_count, 0);
        let lost = checked([(true, &heard), (false, &get(0))], false);
        assert_eq!((lost.violation_count, lost.maybe, lost.operations, lost.keys), (1, 0, 2, 1));
        assert!(lost.violations[0].starts_with("the get of key 5 at member 1,"), "{lost:?}");
        for value in [0, 7] {
            let maybe = checked([(true, &heard[..1]), (false, &get(value))], false);
            assert_eq!((maybe.violation_count, maybe.maybe), (0, 1), "{value}");
        }
    }

    /// Goal: a client's request from before the others went on without its member has no answer, regardless of the later meaning of its
    /// number.
    #[test]
    fn an_expelled_member_forgets() {
        let expelled = Entry::Group(Box::new(GroupEntry::Expelled { at_ns: 25 }));
        let log = [invoked(1, true, 7, 10), expelled, answered(1, 7, 30)];
        let logs = [ProcessLog { place: 0, was_killed: false, entries: &log }];
        let asked = operations(&logs)[0];
        assert_eq!((asked.answered_ns, asked.given_up_ns), (None, Some(25)));
    }

    /// Goal: a survivor that does not say what its copy is has not passed. One that was expelled has none until it is back.
    #[test]
    fn a_survivor_says_what_its_copy_is() {
        let state =
            [Entry::Ended { place: 0, incarnation: 0 }, Entry::State { at_ns: 30, values: Vec::new() }];
        let expelled = || Entry::Group(Box::new(GroupEntry::Expelled { at_ns: 25 }));
        let found = |was_killed, other: &[Entry]| {
            checked([(false, &state), (was_killed, other)], true).violations.join(", ")
        };
        let missing = "member 1 ended and does not say with which values";
        assert_eq!(found(false, &[]), missing);
        assert_eq!(found(false, &state[..1]), missing);
        assert_eq!(found(false, &[expelled(), Entry::Working]), missing);
        assert_eq!(found(false, &[Entry::Working, expelled()]), "");
        assert_eq!(found(true, &state[..1]), "");
        assert_eq!(found(false, &state), "");
    }

    /// Goal: gets of a member's own copy are counted as stale and not called broken; copies that have the wrong value in the end are.
    #[test]
    fn local_gets_and_copies_are_judged() {
        let puts = [
            invoked(1, true, 7, 10),
            answered(1, 7, 20),
            invoked(2, true, 8, 30),
            answered(2, 8, 40),
            state(8),
        ];
        let judged = |value, end, is_whole| {
            let read = Entry::Read { key: 5, value, invoked_ns: 50, at_ns: 51 };
            checked([(false, &puts), (false, &[read, state(end)])], is_whole)
        };
        let read = |value, end| judged(value, end, true);
        let of = |value, end| {
            let Checked { stale, stale_ns_max, violation_count, .. } = read(value, end);
            (stale, stale_ns_max, violation_count)
        };
        assert_eq!([of(8, 8), of(7, 8), of(9, 8), of(8, 7)], [(0, 0, 0), (1, 10, 0), (0, 0, 1), (0, 0, 2)]);
        let cut_short = [(8, 7), (9, 7)].map(|(value, end)| judged(value, end, false).violation_count);
        assert_eq!(
            cut_short,
            [0, 1],
            "copies may differ until the end, and answers may be wrong at any time"
        );
    }

    /// Goal: copies that differ in the end are found where a put that nobody answered explains each of them: its process was killed, and
    /// one survivor alone applied it.
    #[test]
    fn copies_that_a_put_without_an_answer_explains_are_equal() {
        let killed = [invoked(1, true, 7, 10), answered(1, 7, 20), invoked(2, true, 8, 30)];
        let ended = |values: [u64; 2]| {
            let [one, other] = [(60, values[0]), (70, values[1])]
                .map(|(at_ns, value)| [Entry::State { at_ns, values: vec![(5, value)] }]);
            let entries = [&killed[..], &one[..], &other[..]];
            let log = |(place, entries)| ProcessLog { place, was_killed: place == 0, entries };
            let logs: Vec<ProcessLog<'_>> = entries.into_iter().enumerate().map(log).collect();
            check(&logs, &operations(&logs), 0, true).violations.join("; ")
        };
        assert_eq!([ended([7, 7]), ended([8, 8])], ["", ""]);
        assert_eq!(ended([7, 8]), "members 1 and 2 ended with different values");
    }

    /// Two members with a store each, and what they write down. Each operation takes ten instants.
    #[derive(Default)]
    struct Pair {
        stores: [Store; 2],
        entries: [Vec<Entry>; 2],
        now_ns: u64,
        operations: u64,
    }

    impl Pair {
        fn tick(&mut self) -> u64 {
            self.now_ns += 10;
            self.now_ns
        }

        fn apply(&mut self, place: usize, bytes: &[u8]) {
            let request = Request { op: Op::Put, incarnation: 0, operation: 0, key: 5, value: bytes };
            let (sender, bytes) = (punctual::NodeId::named("anne"), request.to_bytes());
            self.stores[place].apply(Command { sender, life: 1, payload: &bytes });
        }

        /// A put at a member that is answered, and is applied at these.
        fn put(&mut self, place: usize, bytes: &[u8], applied_at: &[usize]) {
            let (at_ns, value) = (self.tick(), digest_of(bytes));
            self.operations += 1;
            self.entries[place].push(invoked(self.operations, true, value, at_ns));
            applied_at.iter().for_each(|&place| self.apply(place, bytes));
            let at_ns = self.tick();
            self.entries[place].push(answered(self.operations, value, at_ns));
        }

        fn read(&mut self, place: usize) {
            let (invoked_ns, value, at_ns) = (self.tick(), self.stores[place].get(5), self.tick());
            self.entries[place].push(Entry::Read { key: 5, value, invoked_ns, at_ns });
        }

        fn end(mut self) -> Checked {
            for place in [0, 1] {
                let (at_ns, values) = (self.tick(), self.stores[place].all());
                self.entries[place].push(Entry::State { at_ns, values });
            }
            let [one, other] = &self.entries;
            checked([(false, one), (false, other)], true)
        }
    }

    /// Goal: a put that was answered and that all members drop is found, also where nobody gets its key: by the copies in the end; and
    /// by the gets of its own member, where a later put hides it from them.
    #[test]
    fn a_put_that_all_members_drop_is_found() {
        let both = [0, 1];
        for applied_at in [&both[..], &[]] {
            let mut pair = Pair::default();
            pair.put(0, b"one", &both);
            pair.put(1, b"two", applied_at);
            let violations = pair.end().violations.join("; ");
            let lost =
                "the value that key 5 has in the end at member 0, fits no order of the operations on its key";
            assert_eq!(violations, if applied_at.is_empty() { lost } else { "" });

            let mut pair = Pair::default();
            pair.put(0, b"one", &both);
            pair.put(1, b"two", applied_at);
            pair.read(0);
            pair.read(1);
            pair.put(0, b"three", &both);
            let found = pair.end();
            let lost = "the get of key 5 at member 1, from 0.000 to 0.000 ms, answered an older value than the member had had";
            assert_eq!(found.violations.join("; "), if applied_at.is_empty() { lost } else { "" });
        }
    }

    /// Goal: a member to which an old value is restored is found: by its own gets, though each of them is stale at most, and in the end.
    #[test]
    fn a_copy_that_goes_back_is_found() {
        let both = [0, 1];
        let found = |restores: bool, reads: bool, is_overwritten: bool| {
            let mut pair = Pair::default();
            pair.put(0, b"one", &both);
            pair.put(0, b"two", &both);
            if reads {
                pair.read(1);
            }
            if restores {
                pair.apply(1, b"one");
            }
            if reads {
                pair.read(1);
            }
            if is_overwritten {
                pair.put(0, b"three", &both);
            }
            let Checked { violation_count, violations, .. } = pair.end();
            assert_eq!(violation_count, violations.len() as u64);
            violations
                .iter()
                .map(|sentence| sentence.split(", ").last().unwrap_or("").to_owned())
                .collect::<Vec<_>>()
        };
        let (by_gets, in_the_end) =
            ("answered an older value than the member had had", "fits no order of the operations on its key");
        let differ = "members 0 and 1 ended with different values";
        assert_eq!(found(true, true, true), [by_gets]);
        assert_eq!(found(true, false, false), [differ, in_the_end]);
        assert_eq!(found(true, true, false), [differ, in_the_end, by_gets]);
        assert!(found(false, true, true).is_empty() && found(false, true, false).is_empty());
    }
}
