//! What all processes wrote, as one history of operations, and whether it is linearizable, key by key.

use std::collections::{BTreeMap, HashMap};

use super::linear::{self, Action, Operation, Verdict};
use super::local::{self, Answer, Get, Put};
use super::log::{Entry, Invoked};
use crate::broadcast::lives::log::Entry as GroupEntry;

/// Violations that are kept in words.
const SHOWN_MAX: usize = 10;

/// What a process wrote, and how it ended.
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
    /// What was put or read; 0 for nothing.
    pub(super) value: u64,
    pub(super) invoked_ns: u64,
    pub(super) answered_ns: Option<u64>,
    /// When the client was told that nobody knows whether it happened.
    pub(super) given_up_ns: Option<u64>,
}

/// What was checked, and what does not hold.
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

/// Checks all of it. Sentences count time from `started_ns`. Copies are equal only at the end of a whole trial: in one that was cut
/// short a member may be behind.
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
    checked.keys = keys.len() as u64;
    for (key, asked) in &keys {
        check_order(&mut checked, *key, asked, started_ns);
        check_local(&mut checked, *key, asked, started_ns);
    }
    if is_whole {
        check_copies(&mut checked, logs);
    }
    checked
}

/// Who asked for what, and what the answer was.
fn named(key: u64, asked: &Asked, started_ns: u64) -> String {
    let (what, place) = (if asked.is_put { "put" } else { "get" }, asked.place);
    let since_ms = |ns: u64| ns.saturating_sub(started_ns) as f64 / 1e6;
    let end = asked.answered_ns.map_or_else(|| "no answer".to_owned(), |ns| format!("{:.3}", since_ms(ns)));
    format!("the {what} of key {key} at member {place}, from {:.3} to {end} ms", since_ms(asked.invoked_ns))
}

/// Operations that stand in the one order.
fn check_order(checked: &mut Checked, key: u64, asked: &[&Asked], started_ns: u64) {
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
    let history: Vec<Operation> = ordered.iter().map(operation).collect();
    checked.operations += history.len() as u64;
    match linear::check(&history) {
        Verdict::Linearizable => {}
        Verdict::Undecided => checked.undecided += 1,
        Verdict::PutTwice(at) => {
            let named = named(key, ordered[at], started_ns);
            checked.add(format!("{named}, has a value that was put before: answers do not tell which put"));
        }
        Verdict::Broken(at) => {
            let named = named(key, ordered[at], started_ns);
            checked.add(format!("{named}, fits no order of the operations on its key"));
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
}

/// Whether a process has a copy in the end: one that was expelled has none until it has come back.
fn has_copy(log: &ProcessLog<'_>) -> bool {
    let newest = log.entries.iter().rev().find_map(|entry| match entry {
        Entry::Working | Entry::Ended { .. } => Some(true),
        Entry::Group(told) if matches!(**told, GroupEntry::Expelled { .. }) => Some(false),
        _ => None,
    });
    newest.unwrap_or(true)
}

/// Whoever survived ended with values, and with the same ones.
fn check_copies(checked: &mut Checked, logs: &[ProcessLog<'_>]) {
    let mut ends: Vec<(usize, u64)> = Vec::new();
    for log in logs.iter().filter(|log| !log.was_killed) {
        let mut states = log.entries.iter().filter_map(|entry| match entry {
            Entry::State { digest } => Some(*digest),
            _ => None,
        });
        match states.next_back() {
            Some(digest) => ends.push((log.place, digest)),
            None if has_copy(log) => {
                checked.add(format!("member {} ended and does not say with which values", log.place));
            }
            None => {}
        }
    }
    let Some((&(first, expected), others)) = ends.split_first() else { return };
    for (place, _) in others.iter().filter(|(_, digest)| *digest != expected) {
        checked.add(format!("members {first} and {place} ended with different values"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invoked(operation: u64, is_put: bool, value: u64, at_ns: u64) -> Entry {
        Entry::Invoked(Invoked { operation, is_put, key: 5, value, at_ns })
    }

    fn answered(operation: u64, value: u64, at_ns: u64) -> Entry {
        Entry::Answered { operation, value, at_ns }
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

    /// Goal: what a client asked for before the others went on without its member has no answer, whatever the same number means later.
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
        let state = [Entry::Ended { place: 0, incarnation: 0 }, Entry::State { digest: 1 }];
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

    /// Goal: gets of a member's own copy are counted as stale and not called broken; copies that differ in the end are.
    #[test]
    fn local_gets_and_copies_are_judged() {
        let puts = [
            invoked(1, true, 7, 10),
            answered(1, 7, 20),
            invoked(2, true, 8, 30),
            answered(2, 8, 40),
            Entry::State { digest: 1 },
        ];
        let judged = |value, digest, is_whole| {
            let read = Entry::Read { key: 5, value, invoked_ns: 50, at_ns: 51 };
            checked([(false, &puts), (false, &[read, Entry::State { digest }])], is_whole)
        };
        let read = |value, digest| judged(value, digest, true);
        let of = |value, digest| {
            let Checked { stale, stale_ns_max, violation_count, .. } = read(value, digest);
            (stale, stale_ns_max, violation_count)
        };
        assert_eq!([of(8, 1), of(7, 1), of(9, 1), of(8, 2)], [(0, 0, 0), (1, 10, 0), (0, 0, 1), (0, 0, 1)]);
        let cut_short = [(8, 2), (9, 2)].map(|(value, digest)| judged(value, digest, false).violation_count);
        assert_eq!(
            cut_short,
            [0, 1],
            "copies may differ until the end, and answers may be wrong at any time"
        );
    }
}
