//! Every order of everything, breadth-first: every fault is found by the shortest way.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Something whose behaviour is a set of steps from state to state.
pub trait System {
    /// All there is to know at one moment.
    type State: Clone + Ord + fmt::Debug;
    /// Something indivisible that may happen.
    type Step: Clone + fmt::Debug;
    /// A fault of a state.
    type Fault: Clone + fmt::Debug;

    /// Where it begins.
    fn initial(&self) -> Self::State;

    /// Everything that may happen next.
    fn steps(&self, state: &Self::State) -> Vec<Self::Step>;

    /// State to which a step leads.
    fn apply(&self, state: &Self::State, step: &Self::Step) -> Self::State;

    /// Fault of a state in which nothing can happen any more.
    fn judge(&self, state: &Self::State) -> Option<Self::Fault>;

    /// Fault of a state, wherever it stands on a way.
    fn violates(&self, _: &Self::State) -> Option<Self::Fault> {
        None
    }

    /// Fault of a state from which no order leads to an end, because the steps go round for ever.
    fn endless(&self, _: &Self::State) -> Option<Self::Fault> {
        None
    }
}

/// A way to a state that must not be.
#[derive(Clone, Debug)]
pub struct Counterexample<S: System> {
    /// The steps, each with the state after it.
    pub path: Vec<(S::Step, S::State)>,
    /// The fault at its end.
    pub fault: S::Fault,
}

/// Result of going through all orders.
#[derive(Clone, Debug)]
pub struct Exploration<S: System> {
    /// Different states seen.
    pub states: usize,
    /// Steps from the beginning to the farthest of them.
    pub depth: usize,
    /// The shortest way to a wrong end, if there is any.
    pub found: Option<Counterexample<S>>,
}

/// Not everything was gone through: nothing is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExploreError {
    /// The limit of different states.
    pub states_max: usize,
}

impl fmt::Display for ExploreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} states: not all were gone through", self.states_max)
    }
}

impl core::error::Error for ExploreError {}

/// One state with the way back to the beginning.
struct Seen<S: System> {
    state: S::State,
    from: Option<(usize, S::Step)>,
    depth: usize,
}

/// Goes through everything that can happen until something wrong is found or nothing is left.
///
/// # Errors
/// There are more than `states_max` different states.
pub fn explore<S: System>(system: &S, states_max: usize) -> Result<Exploration<S>, ExploreError> {
    let initial = system.initial();
    let mut known = BTreeMap::from([(initial.clone(), 0)]);
    let mut seen: Vec<Seen<S>> = Vec::new();
    seen.push(Seen { state: initial, from: None, depth: 0 });
    let (mut ends, mut before) = (Vec::new(), Vec::from([Vec::new()]));
    let mut next = 0;
    while next < seen.len() {
        let (state, depth) = (seen[next].state.clone(), seen[next].depth);
        let steps = system.steps(&state);
        let at_end = if steps.is_empty() { system.judge(&state) } else { None };
        if let Some(fault) = system.violates(&state).or(at_end) {
            let found = Some(Counterexample { path: way_to(&seen, next), fault });
            return Ok(Exploration { states: seen.len(), depth, found });
        }
        if steps.is_empty() {
            ends.push(next);
        }
        for step in steps {
            let after = system.apply(&state, &step);
            if let Some(&place) = known.get(&after) {
                before[place].push(next);
                continue;
            }
            if seen.len() == states_max {
                return Err(ExploreError { states_max });
            }
            known.insert(after.clone(), seen.len());
            before.push(Vec::from([next]));
            seen.push(Seen { state: after, from: Some((next, step)), depth: depth + 1 });
        }
        next += 1;
    }
    let depth = seen.last().map_or(0, |last| last.depth);
    let endless =
        without_end(&before, ends).find_map(|place| Some((place, system.endless(&seen[place].state)?)));
    let found = endless.map(|(place, fault)| Counterexample { path: way_to(&seen, place), fault });
    Ok(Exploration { states: seen.len(), depth, found })
}

/// States from which no way leads to any of these ends, by what may stand before each: those found first.
fn without_end(before: &[Vec<usize>], mut ends: Vec<usize>) -> impl Iterator<Item = usize> {
    let mut leads_to_end = alloc::vec![false; before.len()];
    while let Some(place) = ends.pop() {
        if !core::mem::replace(&mut leads_to_end[place], true) {
            ends.extend_from_slice(&before[place]);
        }
    }
    leads_to_end.into_iter().enumerate().filter(|(_, leads)| !leads).map(|(place, _)| place)
}

fn way_to<S: System>(seen: &[Seen<S>], end: usize) -> Vec<(S::Step, S::State)> {
    let mut path = Vec::new();
    let mut place = end;
    while let Some((from, step)) = &seen[place].from {
        path.push((step.clone(), seen[place].state.clone()));
        place = *from;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hands of a clock that must not both stop at 3, nor ever stand like this.
    struct Clock {
        last: u8,
        forbidden: (u8, u8),
    }

    fn clock(last: u8) -> Clock {
        Clock { last, forbidden: (9, 9) }
    }

    impl System for Clock {
        type State = (u8, u8);
        type Step = usize;
        type Fault = &'static str;

        fn initial(&self) -> (u8, u8) {
            (0, 0)
        }

        fn steps(&self, state: &(u8, u8)) -> Vec<usize> {
            let can = |hand: u8| hand < self.last;
            [can(state.0), can(state.1)]
                .iter()
                .enumerate()
                .filter(|(_, can)| **can)
                .map(|(hand, _)| hand)
                .collect()
        }

        fn apply(&self, state: &(u8, u8), hand: &usize) -> (u8, u8) {
            if *hand == 0 { (state.0 + 1, state.1) } else { (state.0, state.1 + 1) }
        }

        fn judge(&self, state: &(u8, u8)) -> Option<&'static str> {
            (*state == (3, 3)).then_some("both at three")
        }

        fn violates(&self, state: &(u8, u8)) -> Option<&'static str> {
            (*state == self.forbidden).then_some("forbidden")
        }
    }

    #[test]
    fn the_shortest_way_is_found() {
        let found = explore(&clock(3), 100).unwrap().found.unwrap();
        assert_eq!((found.path.len(), found.fault), (6, "both at three"));
        assert_eq!(found.path.last().unwrap().1, (3, 3));
    }

    #[test]
    fn all_states_are_gone_through_once() {
        let all = explore(&clock(4), 100).unwrap();
        assert!(all.found.is_none());
        assert_eq!((all.states, all.depth), (25, 8));
    }

    #[test]
    fn a_forbidden_state_is_found_on_the_way() {
        let system = Clock { last: 4, forbidden: (2, 1) };
        let found = explore(&system, 100).unwrap().found.unwrap();
        assert_eq!((found.path.len(), found.fault), (3, "forbidden"));
    }

    /// A door that is opened and closed for ever, once it was not locked.
    struct Door;

    impl System for Door {
        type State = &'static str;
        type Step = &'static str;
        type Fault = &'static str;

        fn initial(&self) -> &'static str {
            "new"
        }

        fn steps(&self, state: &&'static str) -> Vec<&'static str> {
            match *state {
                "new" => Vec::from(["lock", "open"]),
                "open" => Vec::from(["close"]),
                "closed" => Vec::from(["open"]),
                _ => Vec::new(),
            }
        }

        fn apply(&self, _: &&'static str, step: &&'static str) -> &'static str {
            match *step {
                "lock" => "locked",
                "open" => "open",
                _ => "closed",
            }
        }

        fn judge(&self, _: &&'static str) -> Option<&'static str> {
            None
        }

        fn endless(&self, _: &&'static str) -> Option<&'static str> {
            Some("it is never locked")
        }
    }

    /// Goal: a path that goes round for ever is no safe end.
    #[test]
    fn a_path_that_never_ends_is_found() {
        let found = explore(&Door, 100).unwrap().found.unwrap();
        assert_eq!((found.path.as_slice(), found.fault), (&[("open", "open")][..], "it is never locked"));
        assert!(explore(&clock(4), 100).unwrap().found.is_none());
    }

    #[test]
    fn giving_up_is_no_proof() {
        let Err(error) = explore(&clock(4), 24) else { panic!("25 states fit into 24") };
        assert_eq!(error, ExploreError { states_max: 24 });
    }
}
