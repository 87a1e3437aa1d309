//! The change of a view of three members, in every order of events: acceptors and ballots are those of `change.rs`.
//!
//! Member 0 is the sequencer and holds one frame from the beginning, with its order record if it has one. The others fetch it, say that
//! they hold it, and deliver it once a majority says so, or at once where that was asked for. Members 1 and 2 each lead a ballot
//! whenever they like. A message arrives at any later time or never, so a member that does nothing more is one that crashed.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::change::{Acceptor, Ballot, Promise, Proposal, epoch_after, leader_of};
use super::guarantee::Guarantee;
use super::mutant::{Mutant, Mutants};
use super::view::{Places, View};
use crate::sim::{System, explore};

/// More states are a mistake in this file.
const STATES_MAX: usize = 400_000;
const LEADERS: [usize; 2] = [1, 2];

struct Change {
    mutants: Mutants,
    /// Guarantee of the frame.
    guarantee: Guarantee,
}

/// Messages that a ballot's leader and acceptors have exchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Led {
    ballot: Ballot,
    /// Members that were asked to promise, regardless of the result.
    asked: Places,
    accepted: Places,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// Members that hold the frame and its order.
    holders: Places,
    /// Members that have said so in the undisturbed view.
    said: Places,
    /// Members that have delivered it.
    delivered: Places,
    acceptors: Vec<Acceptor>,
    led: Vec<Led>,
    decided: BTreeSet<Proposal>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Fetch(usize),
    Say(usize),
    Deliver(usize),
    Lead(usize),
    /// A member promises, and its leader hears of it or never does. To hear of it later is to propose later.
    Promise(usize, usize, bool),
    Propose(usize),
    Accept(usize, usize),
    Decide(usize),
}

fn view() -> View {
    View { number: 1, lives: vec![11, 12, 13] }
}

impl Change {
    fn is_frozen(&self, state: &State, place: usize) -> bool {
        state.acceptors[place].promised() > 0 && !self.mutants.has(Mutant::NotFrozen)
    }

    fn may_say(&self, state: &State, place: usize) -> bool {
        !self.is_frozen(state, place) || self.mutants.has(Mutant::FrozenMarksCounted)
    }

    fn promise_of(&self, state: &State, place: usize) -> Promise {
        let held = u64::from(state.holders.contains(place));
        let ordered = if self.guarantee.is_ordered() { held } else { 0 };
        let accepted = state.acceptors[place].accepted().cloned();
        Promise { accepted, ordered, marks: vec![held, 0, 0] }
    }

    fn may_propose(&self, state: &State, led: &Led) -> bool {
        let leader = leader_of(led.ballot.epoch).expect("somebody leads");
        let is_majority = view().is_majority(led.ballot.promised());
        let is_held = led.ballot.goal().marks[0] == 0 || state.holders.contains(leader);
        let is_open = state.acceptors[leader].promised() == led.ballot.epoch;
        led.ballot.proposal.is_none()
            && is_held
            && is_open
            && (is_majority || self.mutants.has(Mutant::MinorityProposes))
    }

    fn may_accept(&self, state: &State, place: usize, led: &Led) -> bool {
        let Some(proposal) = &led.ballot.proposal else { return false };
        let is_held = proposal.cut[0] == 0 || state.holders.contains(place);
        !led.accepted.contains(place) && (is_held || self.mutants.has(Mutant::AcceptedUnheld))
    }

    fn steps_of(&self, state: &State, place: usize, steps: &mut Vec<Step>) {
        let holds = state.holders.contains(place);
        if !holds {
            steps.push(Step::Fetch(place));
        }
        if holds && !state.said.contains(place) && self.may_say(state, place) {
            steps.push(Step::Say(place));
        }
        let mut known = state.said;
        known.insert(place);
        let early = if self.guarantee.is_ordered() {
            Mutant::DeliveredBeforeMajority
        } else {
            Mutant::ReliableUnheld
        };
        let waits = self.guarantee.is_uniform() && !self.mutants.has(early);
        let may = holds && !self.is_frozen(state, place) && (!waits || view().is_majority(known));
        if may && !state.delivered.contains(place) {
            steps.push(Step::Deliver(place));
        }
        let leads = |led: &Led| leader_of(led.ballot.epoch) == Some(place);
        if LEADERS.contains(&place) && !state.led.iter().any(leads) {
            steps.push(Step::Lead(place));
        }
    }
}

impl System for Change {
    type State = State;
    type Step = Step;
    type Fault = &'static str;

    fn initial(&self) -> State {
        State {
            holders: Places::only(0),
            // To say it early is to be heard at any time: no order of events is left out.
            said: Places::only(0),
            delivered: Places::NONE,
            acceptors: vec![Acceptor::default(); 3],
            led: Vec::new(),
            decided: BTreeSet::new(),
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        (0..3).for_each(|place| self.steps_of(state, place, &mut steps));
        for (at, led) in state.led.iter().enumerate() {
            let is_led = |place: usize| leader_of(led.ballot.epoch) == Some(place);
            for place in (0..3).filter(|&place| !is_led(place)) {
                if !led.asked.contains(place) {
                    steps.push(Step::Promise(place, at, true));
                    steps.push(Step::Promise(place, at, false));
                }
                if self.may_accept(state, place, led) {
                    steps.push(Step::Accept(place, at));
                }
            }
            if self.may_propose(state, led) {
                steps.push(Step::Propose(at));
            }
            let is_known = led.ballot.proposal.as_ref().is_some_and(|known| state.decided.contains(known));
            let mut ballot = led.ballot.clone();
            ballot.accepted = led.accepted;
            if !is_known && (ballot.is_decided(&view())) {
                steps.push(Step::Decide(at));
            }
        }
        steps
    }

    fn apply(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Fetch(place) => state.holders.insert(place),
            Step::Say(place) => state.said.insert(place),
            Step::Deliver(place) => state.delivered.insert(place),
            Step::Lead(place) => {
                let seen = state.led.iter().map(|led| led.ballot.epoch).max().unwrap_or(0);
                let mut ballot = Ballot::new(epoch_after(seen, place), 3);
                state.acceptors[place].promise(ballot.epoch, self.mutants);
                ballot.add_promise(place, self.promise_of(&state, place));
                state.led.push(Led { ballot, asked: Places::NONE, accepted: Places::NONE });
            }
            Step::Promise(place, at, is_heard) => {
                let promise = self.promise_of(&state, place);
                let led = &mut state.led[at];
                led.asked.insert(place);
                if state.acceptors[place].promise(led.ballot.epoch, self.mutants) && is_heard {
                    led.ballot.add_promise(place, promise);
                }
            }
            Step::Propose(at) => {
                let led = &mut state.led[at];
                let end = led.ballot.goal().ordered;
                let leader = leader_of(led.ballot.epoch).expect("somebody leads");
                let proposal =
                    led.ballot.propose(&view(), (Places::NONE, &[0; 3]), end, self.mutants).cloned();
                if let Some(proposal) = proposal
                    && state.acceptors[leader].accept(led.ballot.epoch, &proposal, self.mutants)
                {
                    led.accepted.insert(leader);
                }
            }
            Step::Accept(place, at) => {
                let led = &mut state.led[at];
                let proposal = led.ballot.proposal.clone().expect("it is proposed");
                if state.acceptors[place].accept(led.ballot.epoch, &proposal, self.mutants) {
                    led.accepted.insert(place);
                }
            }
            Step::Decide(at) => {
                let proposal = state.led[at].ballot.proposal.clone();
                state.decided.extend(proposal);
            }
        }
        state
    }

    fn judge(&self, _: &State) -> Option<&'static str> {
        None
    }

    fn violates(&self, state: &State) -> Option<&'static str> {
        let view = view();
        if state.decided.len() > 1 {
            return Some("one next view");
        }
        let next = state.decided.first()?;
        let holds_end = |place: usize| next.cut[0] == 0 || state.holders.contains(place);
        let stays = |place: &usize| next.next.lives[*place] == view.lives[*place];
        let is_lost = next.cut[0] == 0;
        if self.guarantee.is_uniform() && !state.delivered.is_empty() && is_lost {
            return Some("uniform agreement");
        }
        if state.delivered.iter().any(|place| stays(&place)) && is_lost {
            return Some("virtual synchrony");
        }
        let accepted = state.led.iter().filter(|led| led.ballot.proposal.as_ref() == Some(next));
        let mut accepted = accepted.flat_map(|led| led.accepted.iter()).filter(stays);
        (!accepted.all(holds_end)).then_some("the end is held")
    }
}

fn fault(mutants: Mutants, guarantee: Guarantee) -> Option<&'static str> {
    let explored = explore(&Change { mutants, guarantee }, STATES_MAX).expect("all states are gone through");
    explored.found.map(|found| found.fault)
}

/// Goal: in any order of events, there is one next view. It has all that was uniform and all that the members that go on delivered, and
/// a member that accepted it holds it.
#[test]
fn a_view_of_three_changes_in_every_order() {
    for guarantee in [Guarantee::Uniform, Guarantee::Reliable, Guarantee::BestEffort] {
        let change = Change { mutants: Mutants::NONE, guarantee };
        let explored = explore(&change, STATES_MAX).expect("all are gone through");
        let fault = explored.found.map(|found| (found.fault, found.path));
        assert!(fault.is_none(), "{guarantee:?}: {fault:#?}");
        assert!(explored.states > 10_000, "{guarantee:?}: {} states", explored.states);
    }
}

#[test]
fn each_mistake_has_a_way_to_its_fault() {
    for (mutant, check) in [
        (Mutant::OldEpochTaken, "one next view"),
        (Mutant::DecidedForgotten, "one next view"),
        (Mutant::MinorityProposes, "uniform agreement"),
        (Mutant::AcceptedUnheld, "the end is held"),
        (Mutant::NotFrozen, "uniform agreement"),
        (Mutant::FrozenMarksCounted, "uniform agreement"),
        (Mutant::DeliveredBeforeMajority, "uniform agreement"),
    ] {
        assert_eq!(fault(Mutants::only(mutant), Guarantee::Uniform), Some(check), "{mutant:?}");
    }
    for (mutant, guarantee, check) in [
        (Mutant::NotFrozen, Guarantee::Reliable, "uniform agreement"),
        (Mutant::FrozenMarksCounted, Guarantee::Reliable, "uniform agreement"),
        (Mutant::ReliableUnheld, Guarantee::Reliable, "uniform agreement"),
        (Mutant::NotFrozen, Guarantee::BestEffort, "virtual synchrony"),
        (Mutant::MinorityProposes, Guarantee::BestEffort, "one next view"),
    ] {
        assert_eq!(fault(Mutants::only(mutant), guarantee), Some(check), "{mutant:?}, {guarantee:?}");
    }
}
