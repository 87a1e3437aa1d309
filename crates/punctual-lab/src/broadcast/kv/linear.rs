//! Checks whether the history of one key is linearizable. It is if its operations can stand in one order in which each lies between its
//! invocation and its answer. Each get must also answer the value of the put before it.
//!
//! The search is that of Wing and Gong (*Testing and Verifying Concurrent Objects*, 1993), with the memory of Lowe (*Testing for
//! Linearizability*, 2017): of two ways to the same operations and the same value one is followed. Knossos and porcupine search so,
//! too. A store is linearizable if each of its keys is (Herlihy and Wing, 1990), so each key is searched by itself.

use std::collections::{HashMap, HashSet};

/// Ways that one search remembers, some hundred MB. A history that needs more has hundreds of operations under way at once.
const WAYS_MAX: usize = 4_000_000;

/// Action of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Put(u64),
    /// Its answer: `None` where nobody had put anything.
    Get(Option<u64>),
}

/// One operation on the key. Instants are of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) action: Action,
    pub(super) invoked_ns: u64,
    /// `None` if nobody knows whether it happened: it may have, at any time since.
    pub(super) answered_ns: Option<u64>,
}

/// Verdict on a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Linearizable,
    /// There is no such order. The answer of the operation at this place is the first that leaves none.
    Broken(usize),
    /// The put at this place has a value that was put before. No answer tells then which of both it saw.
    PutTwice(usize),
    /// The search was given up.
    Undecided,
}

/// Searches for an order, if each value is put once.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    if let Some(place) = put_twice(operations) {
        return Verdict::PutTwice(place);
    }
    match has_order(operations) {
        Some(true) => Verdict::Linearizable,
        Some(false) => Verdict::Broken(first_wrong(operations)),
        None => Verdict::Undecided,
    }
}

/// The first put whose value was put before.
fn put_twice(operations: &[Operation]) -> Option<usize> {
    let mut values = HashSet::new();
    operations.iter().position(|one| matches!(one.action, Action::Put(value) if !values.insert(value)))
}

/// Returns true if there is an order, where each value is put once; `None` if the search was given up.
fn has_order(operations: &[Operation]) -> Option<bool> {
    let mut history = History::default();
    for operation in operations {
        if let Action::Put(value) = operation.action {
            history.numbers.insert(value, history.readers.len() + 1);
            history.readers.push(Vec::new());
        }
    }
    if !history.read(operations) {
        return Some(false);
    }
    Search::new(history.bounded(operations)).run()
}

/// The place of the operation whose answer could not be given: up to that instant there was an order, and with it there is none. The
/// operations that began before an instant of a linearizable history are linearizable, too (Herlihy and Wing, 1990), so the instant is
/// bisected.
fn first_wrong(operations: &[Operation]) -> usize {
    let mut answers: Vec<(u64, usize)> = operations
        .iter()
        .enumerate()
        .filter_map(|(place, one)| one.answered_ns.map(|ns| (ns.max(one.invoked_ns), place)))
        .collect();
    answers.sort_unstable();
    let (mut sound, mut broken) = (0, answers.len());
    while broken - sound > 1 {
        let middle = sound + (broken - sound) / 2;
        match has_order(&answered(operations, &answers[..middle])) {
            Some(false) => broken = middle,
            Some(true) | None => sound = middle,
        }
    }
    answers[sound].1
}

/// The history as it stood when the last of these answers had been given. The answer of a get is not known in advance.
fn answered(operations: &[Operation], answers: &[(u64, usize)]) -> Vec<Operation> {
    let now_ns = answers.last().map_or(0, |answer| answer.0);
    let known: HashSet<usize> = answers.iter().map(|answer| answer.1).collect();
    let as_known = |(place, one): (usize, &Operation)| Operation {
        answered_ns: one.answered_ns.filter(|_| known.contains(&place)),
        ..*one
    };
    let has_begun = |one: &Operation| match one.action {
        Action::Put(_) => one.invoked_ns <= now_ns,
        Action::Get(_) => one.answered_ns.is_some(),
    };
    operations.iter().enumerate().map(as_known).filter(has_begun).collect()
}

/// The list's head.
const HEAD: usize = 0;

/// The value before the first put.
const NOTHING: usize = 0;

/// Values as small numbers, from 1, and their readers.
#[derive(Default)]
struct History {
    numbers: HashMap<u64, usize>,
    /// Of each value the instants at which gets answered it.
    readers: Vec<Vec<u64>>,
}

/// An operation whose end is known.
#[derive(Clone, Copy, Debug)]
struct Bounded {
    is_put: bool,
    value: usize,
    invoked_ns: u64,
    answered_ns: u64,
}

impl History {
    /// Notes who read which value. False if nobody put one of them.
    fn read(&mut self, operations: &[Operation]) -> bool {
        for operation in operations {
            if let (Action::Get(Some(value)), Some(ns)) = (operation.action, operation.answered_ns) {
                let Some(number) = self.numbers.get(&value) else { return false };
                self.readers[number - 1].push(ns);
            }
        }
        true
    }

    /// All operations that matter, by their invocation. A put that nobody answered happened before the first answer that has its
    /// value; if there is none, it may as well have happened last. A get that nobody answered says nothing.
    fn bounded(&self, operations: &[Operation]) -> Vec<Bounded> {
        let bounded = operations.iter().filter_map(|operation| {
            let Operation { action, invoked_ns, answered_ns } = *operation;
            let (is_put, value) = match action {
                Action::Put(value) => (true, self.numbers[&value]),
                Action::Get(value) => (false, value.map_or(NOTHING, |value| self.numbers[&value])),
            };
            let seen_ns = || is_put.then(|| self.readers[value - 1].iter().copied().min()).flatten();
            let answered_ns = answered_ns.or_else(seen_ns)?.max(invoked_ns);
            Some(Bounded { is_put, value, invoked_ns, answered_ns })
        });
        let mut bounded: Vec<Bounded> = bounded.collect();
        bounded.sort_by_key(|operation| operation.invoked_ns);
        bounded
    }
}

/// An invocation or an answer.
#[derive(Clone, Copy, Debug)]
struct Event {
    operation: usize,
    is_answer: bool,
}

/// The search.
struct Search {
    operations: Vec<Bounded>,
    /// In the order of time, behind a head.
    events: Vec<Event>,
    /// Where the answer of each operation stands among them.
    answers: Vec<usize>,
    /// Those of operations that have no place in the order yet, as a list in both directions.
    next: Vec<usize>,
    before: Vec<usize>,
    linearized: Linearized,
    value: usize,
    /// Gets of each value that have no place in the order yet.
    unread: Vec<usize>,
}

impl Search {
    fn new(operations: Vec<Bounded>) -> Self {
        let timed = |(number, one): (usize, &Bounded)| {
            [(one.invoked_ns, false, number), (one.answered_ns, true, number)]
        };
        let mut timed: Vec<(u64, bool, usize)> = operations.iter().enumerate().flat_map(timed).collect();
        // Events in the same nanosecond are taken for concurrent: invocations stand before answers.
        timed.sort_unstable();
        let head = Event { operation: usize::MAX, is_answer: false };
        let of = |&(_, is_answer, operation): &(u64, bool, usize)| Event { operation, is_answer };
        let events: Vec<Event> = [head].into_iter().chain(timed.iter().map(of)).collect();
        let mut answers = vec![HEAD; operations.len()];
        for (at, event) in events.iter().enumerate().filter(|(_, event)| event.is_answer) {
            answers[event.operation] = at;
        }
        let values = operations.iter().map(|one| one.value).max().unwrap_or(NOTHING);
        let mut unread = vec![0; values + 1];
        operations.iter().filter(|one| !one.is_put).for_each(|one| unread[one.value] += 1);
        let count = events.len();
        Self {
            linearized: Linearized::new(operations.len()),
            operations,
            events,
            answers,
            next: (1..=count).map(|at| at % count).collect(),
            before: (0..count).map(|at| (at + count - 1) % count).collect(),
            value: NOTHING,
            unread,
        }
    }

    fn run(&mut self) -> Option<bool> {
        let mut seen: HashSet<Box<[u64]>> = HashSet::new();
        // Invocations that were taken out, each with the value before.
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        let mut at = self.next[HEAD];
        while seen.len() < WAYS_MAX {
            if at == HEAD {
                return Some(true);
            }
            let Event { operation, is_answer } = self.events[at];
            if is_answer {
                match self.go_back(&mut chosen) {
                    Some(put) => at = self.next[put],
                    None => return Some(false),
                }
            } else if self.may_happen(operation)
                && seen.insert(self.linearized.with(operation, self.operations[operation].value))
            {
                chosen.push((at, self.value));
                self.choose(at, operation);
                at = self.next[HEAD];
            } else {
                self.linearized.remove(operation);
                at = self.next[at];
            }
        }
        None
    }

    /// Returns true if an operation can stand next in the order: a get that answered the value; or a put, once nobody reads the value
    /// any more, for it does not come back.
    fn may_happen(&self, operation: usize) -> bool {
        let Bounded { is_put, value, .. } = self.operations[operation];
        if is_put { self.unread[self.value] == 0 } else { value == self.value }
    }

    fn choose(&mut self, invocation: usize, operation: usize) {
        let Bounded { is_put, value, .. } = self.operations[operation];
        self.lift(invocation, operation);
        self.unread[value] -= usize::from(!is_put);
        self.value = value;
    }

    /// Takes the last put back, and the gets behind it: where a get can stand, it never has to stand later. `None` if there is no
    /// put.
    fn go_back(&mut self, chosen: &mut Vec<(usize, usize)>) -> Option<usize> {
        while let Some((invocation, before)) = chosen.pop() {
            let operation = self.events[invocation].operation;
            let Bounded { is_put, value, .. } = self.operations[operation];
            self.linearized.remove(operation);
            self.unlift(invocation, operation);
            self.unread[value] += usize::from(!is_put);
            self.value = before;
            if is_put {
                return Some(invocation);
            }
        }
        None
    }

    /// Takes an operation out of the list.
    fn lift(&mut self, invocation: usize, operation: usize) {
        self.unlink(invocation);
        self.unlink(self.answers[operation]);
    }

    /// Puts it back where it was: the operation that was taken out last comes back first.
    fn unlift(&mut self, invocation: usize, operation: usize) {
        self.link(self.answers[operation]);
        self.link(invocation);
    }

    fn unlink(&mut self, at: usize) {
        let (before, next) = (self.before[at], self.next[at]);
        (self.next[before], self.before[next]) = (next, before);
    }

    fn link(&mut self, at: usize) {
        let (before, next) = (self.before[at], self.next[at]);
        (self.next[before], self.before[next]) = (at, at);
    }
}

/// The operations that have a place in the order: nearly all up to some number, and nearly none behind.
struct Linearized {
    bits: Vec<u64>,
    /// Words of bits before this one are full, and behind that one empty.
    first: usize,
    last: usize,
}

impl Linearized {
    fn new(count: usize) -> Self {
        Self { bits: vec![0; count.div_ceil(64)], first: 0, last: 0 }
    }

    /// Adds an operation. Says what tells this set, and the value then, from all others.
    fn with(&mut self, operation: usize, value: usize) -> Box<[u64]> {
        self.bits[operation / 64] |= 1 << (operation % 64);
        self.last = self.last.max(operation / 64);
        while self.bits.get(self.first) == Some(&u64::MAX) {
            self.first += 1;
        }
        while self.last > self.first && self.bits[self.last] == 0 {
            self.last -= 1;
        }
        let window = self.bits.get(self.first..=self.last).unwrap_or_default();
        let head = [self.first as u64, value as u64];
        head.iter().chain(window).copied().collect()
    }

    fn remove(&mut self, operation: usize) {
        self.bits[operation / 64] &= !(1 << (operation % 64));
        self.first = self.first.min(operation / 64);
    }
}

#[cfg(test)]
mod tests;
