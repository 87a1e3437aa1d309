//! The model finds each mistake, by the check that is for it; no messages are too bad; slow members wait or are put out.

use alloc::vec::Vec;

use super::message::{
    ACCEPT, ACCEPTED, DATA, Draft, GAPS, Head, INSTALL, JOIN, ORDER, PREPARE, PROMISE, STATUS, VERSION,
};
use super::order::Range;
use super::view::Places;
use super::{BroadcastError, Event, GroupOptions, Guarantee, Member, Mutant, Mutants, OptionsError};
use crate::address::{Address, NodeId, Port};
use crate::protocol::Protocol;
use crate::sim::Rng;
use crate::sim::model::Broadcast;
use crate::sim::{Model, Record};
use crate::time::Nanos;

mod accounts;
mod company;
mod joining;
mod leaving;
mod pauses;

/// Seeds among which a mistake must be found.
const SEEDS: u64 = 200;

/// The same of those that show seldom. They need a frame between a promise and the end of its view, from somebody who is out of it; or
/// a whole majority that lacks a frame that somebody has delivered; or a member that has promised, says what it held, and is alone with
/// it; or a ballot of a few while others deliver.
const SEEDS_OF_RARE: u64 = 10_000;
const RARE: [Mutant; 5] = [
    Mutant::CutIgnored,
    Mutant::DeliveredBeforeMajority,
    Mutant::AcceptedUnheld,
    Mutant::FrozenMarksCounted,
    Mutant::MinorityProposes,
];

/// The first seed by which this check of a model fails.
fn found(model: &Broadcast, check: &str, seeds: u64) -> Option<u64> {
    (0..seeds).find(|&seed| {
        let outcome = model.run(&model.plan(seed), Record::counts()).outcome;
        outcome.is_err_and(|violation| violation.check == check)
    })
}

/// Goal: the checks of the model are no decoration. Agreement on a view is explored in `explored.rs`, too, where members are a copy:
/// here the mistakes are those of the members themselves.
#[test]
fn every_mistake_is_found() {
    for (mutant, check) in [
        (Mutant::OrderRecordSkipped, "total order"),
        (Mutant::DeliveredBeforeMajority, "total order"),
        (Mutant::OtherViewTaken, "no duplication"),
        (Mutant::LifeReused, "views follow each other"),
        (Mutant::CheckIgnored, "no creation"),
        (Mutant::DoubleOrdered, "no duplication"),
        (Mutant::NotFrozen, "validity"),
        (Mutant::GapsNotAsked, "liveness of views"),
        (Mutant::CreditIgnored, "liveness of views"),
        (Mutant::PackCut, "senders' order"),
        (Mutant::PlaceMistaken, "total order"),
        (Mutant::ReliableUnheld, "uniform agreement"),
        (Mutant::DeliveredAgain, "no duplication"),
        (Mutant::PassedUndelivered, "virtual synchrony"),
        (Mutant::CutIgnored, "virtual synchrony"),
        (Mutant::MinorityProposes, "uniform agreement"),
        (Mutant::AcceptedUnheld, "total order"),
        (Mutant::FrozenMarksCounted, "uniform agreement"),
        (Mutant::LeaverForgotten, "departure"),
    ] {
        let seeds = if RARE.contains(&mutant) { SEEDS_OF_RARE } else { SEEDS };
        let found = found(&Broadcast::with(mutant), check, seeds);
        assert!(found.is_some(), "{mutant:?}: \"{check}\" holds for {seeds} seeds");
    }
    for (mutant, check) in [
        (Mutant::BacklogDropped, "equal copies"),
        (Mutant::SnapshotEarly, "equal copies"),
        (Mutant::DonorForgotten, "liveness of copies"),
    ] {
        let found = found(&Broadcast::replicated_with(mutant), check, SEEDS);
        assert!(found.is_some(), "{mutant:?}: \"{check}\" holds for {SEEDS} seeds");
    }
}

/// Goal: the promises of the model are not empty: most groups live to the end, change their views, and deliver.
#[test]
fn groups_of_the_model_live() {
    let census: Vec<_> = (0..100).map(|seed| Broadcast::SOUND.census(seed)).collect();
    let viable = census.iter().filter(|(is_viable, ..)| *is_viable).count();
    let changed = census.iter().filter(|(_, view, ..)| *view > 3).count();
    let delivered: u64 = census.iter().map(|(_, _, delivered, _)| delivered).sum();
    let unordered: u64 = census.iter().map(|(.., unordered)| unordered).sum();
    assert!(viable > 80 && changed > 30 && delivered > 10_000, "{viable}, {changed}, {delivered}");
    assert!(unordered > 4_000, "{unordered} of {delivered}");
}

/// Members that hear each other at once, over messages that a test may lose or alter.
struct Room {
    members: Vec<Member>,
    now: Nanos,
    /// Those that are there no more.
    gone: Places,
}

fn options(own: u64) -> GroupOptions {
    options_of(3, own)
}

fn options_of(size: u64, own: u64) -> GroupOptions {
    let node = |number| NodeId::new(100 + number).unwrap();
    let roster = (0..size).map(node).collect();
    let group = GroupOptions::new(7, roster, node(own), Port::from(1));
    // Without a check value altered messages are read.
    GroupOptions { founds: own == 0, window: 8, frame_size: 64, check: None, ..group }
}

impl Room {
    fn new(change: impl Fn(GroupOptions) -> GroupOptions) -> Self {
        Self::with(Mutants::NONE, change)
    }

    fn with(mutants: Mutants, change: impl Fn(GroupOptions) -> GroupOptions) -> Self {
        Self::of(3, mutants, change)
    }

    fn of(size: u64, mutants: Mutants, change: impl Fn(GroupOptions) -> GroupOptions) -> Self {
        let options = |own| change(options_of(size, own));
        let member = |own| Member::with_mutants(options(own), 11 + own, Nanos(0), mutants).unwrap();
        Self { members: (0..size).map(member).collect(), now: Nanos(0), gone: Places::NONE }
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    /// Lets time pass, and everybody say and hear what there is. Each message goes through `alter` for each receiver.
    fn run(&mut self, time: Nanos, mut alter: impl FnMut(usize, &mut Vec<u8>)) {
        let until = self.now.plus(time);
        while self.now < until {
            self.now = self.now.plus(Nanos::from_micros(100));
            for source in (0..self.size()).filter(|&source| !self.gone.contains(source)).collect::<Vec<_>>() {
                self.members[source].handle_timeout(self.now);
                // A step has an end, regardless of the effects of altered messages.
                self.speak(source, 50, &mut alter);
            }
        }
    }

    /// A member says what it has to say, at most so many messages.
    fn speak(&mut self, source: usize, most: usize, alter: &mut impl FnMut(usize, &mut Vec<u8>)) {
        let mut buffer = alloc::vec![0; options(0).datagram_size().max(4_096)];
        for _ in 0..most {
            let Some(said) = self.members[source].poll_transmit(self.now, &mut buffer) else { break };
            let address = Address { node: self.members[source].node(source).unwrap(), port: Port::from(1) };
            let is_there = |target: &usize| *target != source && !self.gone.contains(*target);
            for target in (0..self.size()).filter(is_there).collect::<Vec<_>>() {
                if said.target.includes_node(self.members[target].node(target).unwrap()) {
                    let mut message = buffer[..said.size].to_vec();
                    alter(target, &mut message);
                    self.members[target].handle_message(address, &message, self.now);
                }
            }
        }
    }

    /// The same over a medium on which a run of more than so many frames of one sender overruns its readers: nothing of it arrives.
    fn run_narrow(&mut self, time: Nanos, frames_max: usize) {
        let until = self.now.plus(time);
        let mut buffer = alloc::vec![0; options(0).datagram_size().max(4_096)];
        while self.now < until {
            self.now = self.now.plus(Nanos::from_micros(100));
            for source in 0..3 {
                self.members[source].handle_timeout(self.now);
                let mut run = Vec::new();
                while let Some(said) = self.members[source].poll_transmit(self.now, &mut buffer) {
                    run.push((said.target, buffer[..said.size].to_vec()));
                }
                if run.iter().filter(|(_, message)| is_kind(message, DATA)).count() > frames_max {
                    continue;
                }
                let address =
                    Address { node: self.members[source].node(source).unwrap(), port: Port::from(1) };
                for (to, message) in &run {
                    for target in (0..3).filter(|&target| target != source) {
                        if to.includes_node(self.members[target].node(target).unwrap()) {
                            self.members[target].handle_message(address, message, self.now);
                        }
                    }
                }
            }
        }
    }

    /// Lets time pass in which one member stands still. Returns what waits for it then, with those who said it.
    fn run_and_keep(&mut self, time: Nanos, still: usize) -> Vec<(usize, Vec<u8>)> {
        let (until, mut waiting) = (self.now.plus(time), Vec::new());
        let mut buffer = alloc::vec![0; options(0).datagram_size().max(4_096)];
        self.gone.insert(still);
        while self.now < until {
            self.now = self.now.plus(Nanos::from_micros(100));
            for source in (0..self.size()).filter(|&source| !self.gone.contains(source)).collect::<Vec<_>>() {
                self.members[source].handle_timeout(self.now);
                while let Some(said) = self.members[source].poll_transmit(self.now, &mut buffer) {
                    let message = &buffer[..said.size];
                    for target in (0..self.size()).filter(|&target| target != source) {
                        let node = self.members[target].node(target).unwrap();
                        if !said.target.includes_node(node) {
                            continue;
                        }
                        if target == still {
                            waiting.push((source, message.to_vec()));
                        } else if !self.gone.contains(target) {
                            self.hear(target, source, message);
                        }
                    }
                }
                drop(self.events(source));
            }
        }
        self.gone.remove(still);
        waiting
    }

    fn events(&mut self, place: usize) -> Vec<Event> {
        core::iter::from_fn(|| self.members[place].poll_event()).collect()
    }

    /// Until all are in one view.
    fn gather(&mut self) {
        self.run_and_take(Nanos::from_millis(400));
        assert!(self.is_whole());
    }

    fn is_whole(&self) -> bool {
        self.members.iter().all(|member| member.view().size() == self.size() && !member.is_stopped())
    }

    /// Lets time pass, while all users take what there is.
    fn run_and_take(&mut self, time: Nanos) {
        let until = self.now.plus(time);
        while self.now < until {
            self.run(Nanos::from_millis(20), |_, _| {});
            (0..self.size()).for_each(|place| drop(self.events(place)));
        }
    }

    fn expelled(&self) -> u64 {
        self.members.iter().map(|member| member.account().expelled).sum()
    }

    /// Messages that a member sends now; nobody hears them.
    fn said_by(&mut self, place: usize) -> Vec<Vec<u8>> {
        let (now, mut buffer) = (self.now, alloc::vec![0; 4_096]);
        let member = &mut self.members[place];
        let mut next = || member.poll_transmit(now, &mut buffer).map(|said| buffer[..said.size].to_vec());
        core::iter::from_fn(&mut next).collect()
    }

    /// A member hears a message.
    fn hear(&mut self, place: usize, source: usize, message: &[u8]) {
        let node = self.members[place].node(source).unwrap();
        self.members[place].handle_message(Address { node, port: Port::from(1) }, message, self.now);
    }

    /// Broadcasts for 300 ms, while the user of the last member takes nothing. Says how many messages were taken.
    fn broadcast_while_one_sleeps(&mut self) -> usize {
        let mut taken = 0;
        for _ in 0..300 {
            taken += usize::from(self.broadcast(0).is_ok());
            self.run(Nanos::from_millis(1), |_, _| {});
            [0, 1].into_iter().for_each(|place| drop(self.events(place)));
        }
        taken
    }

    fn broadcast(&mut self, place: usize) -> Result<(), BroadcastError> {
        self.members[place].try_broadcast(b"a message", Guarantee::Uniform, self.now)
    }
}

/// Goal: no sequence of messages is too bad for a member: none panics, hangs or fills memory. Method: true messages of a group at
/// work, some bytes of which are altered, of most seeds so rarely that the group goes on.
#[test]
fn any_messages_are_survived() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut room = Room::new(|options| options);
        room.gather();
        for _ in 0..30 {
            let place = rng.below(3) as usize;
            // A message that is not taken was refused with an error.
            let _ = room.broadcast(place);
            room.run(Nanos::from_millis(3), |_, message| {
                if rng.happens(if seed % 3 == 0 { 500 } else { 20 }) {
                    for _ in 0..=rng.below(3) {
                        let at = 20 + rng.below(message.len() as u64 - 20) as usize;
                        message[at] = if rng.happens(300) { 0xFF } else { rng.number() as u8 };
                    }
                    message.truncate(if rng.happens(100) { 70 } else { message.len() });
                }
            });
            (0..3).for_each(|place| drop(room.events(place)));
        }
    }
}

/// Goal: a user that takes nothing holds the senders up after a window, for as long as it likes.
#[test]
fn a_slow_member_holds_the_others_up() {
    let mut room = Room::new(|options| options);
    room.gather();
    let taken = room.broadcast_while_one_sleeps();
    assert_eq!(taken, 8 + 5, "a window, and those that wait for credit in one frame");
    let delivered = room.events(2).len();
    assert_eq!(delivered, 8);
    room.run(Nanos::from_millis(20), |_, _| {});
    assert_eq!((room.broadcast(0), room.events(2).len()), (Ok(()), 5), "the credit is back");
}

/// Goal: a member that keeps a message from its order, or from its majority, holds the group up while nothing moves, and no longer.
#[test]
fn a_member_that_keeps_all_from_moving_is_named() {
    let mut room = Room::new(|options| options);
    room.gather();
    let deaf = |deaf: [usize; 2]| {
        move |target: usize, message: &mut Vec<u8>| {
            if deaf.contains(&target) {
                message.clear();
            }
        }
    };
    assert_eq!(room.members[1].account().slowest, None);
    // The sequencer hears nothing of the frame that it should order; then two of three hear nothing of the sequencer's.
    for (sender, who_is_deaf, named) in [(1, [0, 0], 0), (0, [1, 2], 1)] {
        room.broadcast(sender).unwrap();
        room.run(Nanos::from_millis(2), deaf(who_is_deaf));
        assert_eq!(room.members[sender].account().slowest, None, "it may be under way");
        room.run(Nanos::from_millis(30), deaf(who_is_deaf));
        assert_eq!(
            room.members[sender].account().slowest,
            Some(named),
            "{:?}",
            room.members[sender].account()
        );
        room.run(Nanos::from_millis(30), |_, _| {});
        let delivered = [0, 1, 2].map(|place| room.events(place).len());
        assert_eq!((room.members[sender].account().slowest, delivered), (None, [1; 3]));
    }
    room.broadcast(0).unwrap();
    room.run(Nanos::from_millis(5), deaf([2, 2]));
    let behind = |place| room.members[0].behind(place).unwrap();
    assert_eq!([behind(1).missing, behind(2).missing], [0, 1]);
    assert!(behind(2).lag >= 1, "as far as is known");
    assert_eq!(room.members[0].account().slowest, None, "a majority has it: nobody waits");
}

/// Goal: where slow members are expelled, the others go on without it, and it is told.
#[test]
fn a_slow_member_is_expelled_if_so_configured() {
    let after = Some(Nanos::from_millis(50));
    let mut room = Room::new(|options| GroupOptions { expel_slow_after: after, ..options });
    room.gather();
    let taken = room.broadcast_while_one_sleeps();
    assert!(taken > 150, "{taken}");
    assert!(room.events(2).contains(&Event::Expelled));
    assert_eq!([0, 2].map(|place| room.members[place].account().expelled), [0, 1]);
    assert!(room.members[0].view().size() == 2, "it does not join before its user knows");
    room.gather();
}

/// Goal: a minority takes nothing and says so; when it hears the others again it goes on.
#[test]
fn a_minority_stops_and_says_so() {
    let mut room = Room::new(|options| options);
    room.gather();
    // Nobody hears anybody.
    room.run(Nanos::from_millis(300), |_, message| message.clear());
    for place in 0..3 {
        assert!(room.members[place].is_stopped() && room.events(place).contains(&Event::Stopped));
        assert_eq!(room.broadcast(place), Err(BroadcastError::Stopped));
    }
    room.gather();
    assert_eq!(room.broadcast(1), Ok(()));
    room.run(Nanos::from_millis(20), |_, _| {});
    for place in 0..3 {
        let delivered =
            room.events(place).iter().filter(|event| matches!(event, Event::Delivered(_))).count();
        assert_eq!(delivered, 1);
    }
}

/// Goal: a frame that most members miss is repaired by one message to all.
#[test]
fn a_frame_that_all_miss_is_repaired_once() {
    let mut room = Room::new(|options| options);
    room.gather();
    assert_eq!(room.broadcast(2), Ok(()));
    let mut data = 0;
    room.run(Nanos::from_millis(30), |_, message| {
        if is_kind(message, DATA) {
            data += 1;
            // The first copy of either receiver is lost.
            if data <= 2 {
                message.clear();
            }
        }
    });
    assert_eq!(data, 4, "one message to two receivers, and once more");
}

/// Goal: all may leave at once: the member that decides about the last view says so, though it has left by then.
#[test]
fn all_leave_at_once() {
    let mut room = Room::new(|options| options);
    room.gather();
    let now = room.now;
    room.members.iter_mut().for_each(|member| member.leave(now));
    let mut has_left = [false; 3];
    for _ in 0..1_000 {
        room.run(Nanos::from_micros(100), |_, _| {});
        for (place, has_left) in has_left.iter_mut().enumerate() {
            *has_left |= room.events(place).contains(&Event::Left);
        }
    }
    assert_eq!(has_left, [true; 3]);
}

/// Goal: a view of too few takes no message from its first instant on.
#[test]
fn too_few_take_nothing_from_the_first_instant() {
    let mut room = Room::new(|options| options);
    assert_eq!((room.broadcast(0), room.members[0].view().number), (Err(BroadcastError::Stopped), 1));
    assert!(matches!(room.events(0)[..], [Event::View(_), Event::Stopped]));
}

/// Goal: where the medium carries only a few frames at once, and loses all of a longer run, repairs get through nevertheless.
#[test]
fn repairs_fit_a_narrow_medium() {
    let mut room = Room::new(|options| GroupOptions { window: 64, ..options });
    room.gather();
    assert_eq!(room.members[0].try_broadcast(&[7; 64 * 40], Guarantee::Uniform, room.now), Ok(()));
    let mut delivered = [0; 3];
    for _ in 0..200 {
        room.run_narrow(Nanos::from_millis(2), 4);
        for (place, delivered) in delivered.iter_mut().enumerate() {
            let is_message = |event: &Event| matches!(event, Event::Delivered(_));
            *delivered += room.events(place).iter().filter(|event| is_message(event)).count();
        }
    }
    assert_eq!(delivered, [1; 3]);
}

/// Messages that a member delivers now: sender's first byte and the guarantee of each.
fn told(room: &mut Room, place: usize) -> Vec<(u8, Guarantee)> {
    let mut told = Vec::new();
    while let Some(event) = room.members[place].poll_event() {
        if let Event::Delivered(delivery) = event {
            told.push((room.members[place].message()[0], delivery.guarantee));
        }
    }
    told
}

/// Broadcasts a message of these many bytes, all of which are `byte`.
fn say(room: &mut Room, place: usize, byte: u8, size: usize, guarantee: Guarantee) {
    let now = room.now;
    assert_eq!(room.members[place].try_broadcast(&alloc::vec![byte; size], guarantee, now), Ok(()));
}

/// The epoch that a message names; 0 of one that was lost.
fn epoch_of(message: &[u8]) -> u64 {
    message.get(32..40).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// Returns true if it is a message of this kind.
fn is_kind(message: &[u8], kind: u8) -> bool {
    message.get(1) == Some(&(VERSION << 4 | kind))
}

/// Goal: a message without order waits for nobody that it need not wait for. Method: the last member sends, and the sequencer hears
/// nothing of its frames, so nothing is ordered; then nobody hears what others hold, so nothing is known to be with a majority but what
/// its sender and its receiver have.
#[test]
fn a_message_without_order_waits_for_none() {
    let mut room = Room::new(|options| options);
    room.gather();
    let to_all_but_sequencer = |target: usize, message: &mut Vec<u8>| {
        if target == 0 && is_kind(message, DATA) {
            message.clear();
        }
    };
    for guarantee in [Guarantee::Uniform, Guarantee::Agreed, Guarantee::Reliable, Guarantee::BestEffort] {
        say(&mut room, 2, guarantee as u8, 100, guarantee);
        room.run(Nanos::from_micros(100), to_all_but_sequencer);
    }
    let early = [(2, Guarantee::Reliable), (3, Guarantee::BestEffort)];
    room.run(Nanos::from_millis(1), to_all_but_sequencer);
    assert_eq!(told(&mut room, 1), early, "two frames each, behind two messages that wait for their order");
    assert_eq!(told(&mut room, 2), early, "of itself, once the other has said that it holds it");
    assert_eq!(told(&mut room, 0), []);
    room.run(Nanos::from_millis(20), |_, _| {});
    let ordered = [(0, Guarantee::Uniform), (1, Guarantee::Uniform)];
    assert_eq!([told(&mut room, 1), told(&mut room, 2)], [ordered.to_vec(), ordered.to_vec()]);
    // By now it knows of a majority that holds what it need not wait for.
    let at_sequencer: Vec<u8> = told(&mut room, 0).into_iter().map(|(byte, _)| byte).collect();
    assert_eq!(at_sequencer, [2, 3, 0, 1]);

    let mut room = Room::new(|options| options);
    room.gather();
    let silent = |_: usize, message: &mut Vec<u8>| {
        if !is_kind(message, DATA) {
            message.clear();
        }
    };
    say(&mut room, 2, 7, 100, Guarantee::Reliable);
    room.run(Nanos::from_micros(100), silent);
    say(&mut room, 2, 8, 100, Guarantee::BestEffort);
    room.run(Nanos::from_micros(100), silent);
    let both = [(7, Guarantee::Reliable), (8, Guarantee::BestEffort)];
    assert_eq!([told(&mut room, 0), told(&mut room, 1)], [both; 2].map(Vec::from));
    assert_eq!(told(&mut room, 2), both[1..], "of the other it knows of no majority");
    room.run(Nanos::from_millis(20), |_, _| {});
    assert_eq!(told(&mut room, 2), both[..1]);
}

/// Goal: a member that passed places of the order that the others did not keep, and is put out, tells only the beginning of their
/// order. Method: the sequencer alone places a message without order; the others agree on a view without it and decide nothing; then it
/// leads, hears of that, and ends the view by it.
#[test]
fn a_member_put_out_behind_the_kept_order_tells_no_rest() {
    let mut room = Room::new(|options| options);
    room.gather();
    say(&mut room, 0, b'x', 10, Guarantee::BestEffort);
    say(&mut room, 1, b'u', 50, Guarantee::Uniform);
    say(&mut room, 1, b'v', 50, Guarantee::Uniform);
    // 0 is alone, and what 1 or 2 proposes stays undecided.
    let is_of = |message: &[u8], place: u8| message.get(2) == Some(&place);
    room.run(Nanos::from_millis(400), |target, message| {
        if target == 0 || is_of(message, 0) || is_kind(message, ACCEPTED) {
            message.clear();
        }
    });
    assert_eq!(told(&mut room, 0), [(b'x', Guarantee::BestEffort)]);
    let life = room.members[0].life();
    // 1 is alone, and 2 does not lead.
    let mut rest = Vec::new();
    for _ in 0..30 {
        room.run(Nanos::from_millis(100), |target, message| {
            if target == 1 || is_of(message, 1) || is_of(message, 2) && is_kind(message, PREPARE) {
                message.clear();
            }
        });
        rest.extend(told(&mut room, 0).into_iter().map(|(byte, _)| byte));
    }
    assert_ne!(room.members[0].life(), life, "it was put out");
    assert!(b"uv".starts_with(&rest), "{rest:?}");
}

/// Goal: a member that is alone has nobody to tell what it holds, and so does not wake up to do it.
#[test]
fn a_lone_member_rests() {
    let mut room = Room::of(1, Mutants::NONE, |options| options);
    room.gather();
    for _ in 0..5 {
        (0..4).for_each(|_| room.broadcast(0).unwrap());
        room.run(Nanos::from_micros(100), |_, _| {});
        assert_eq!(room.events(0).len(), 4);
        room.run(Nanos::from_millis(3), |_, _| {});
        assert!(room.members[0].poll_timeout() > room.now);
    }
}

/// Goal: nobody is slow where nobody is faster: users that all do something else for a while keep their group.
#[test]
fn all_may_be_slow_at_once() {
    let after = Some(Nanos::from_millis(50));
    let mut room = Room::new(|options| GroupOptions { expel_slow_after: after, ..options });
    room.gather();
    for _ in 0..3 {
        room.broadcast(1).unwrap();
    }
    room.run(Nanos::from_millis(500), |_, _| {});
    // Those who come back first do not accuse the last one at once.
    (0..2).for_each(|place| drop(room.events(place)));
    room.run(Nanos::from_millis(20), |_, _| {});
    room.run_and_take(Nanos::from_millis(200));
    assert_eq!(room.expelled(), 0);
    assert!(room.is_whole());
}

/// Goal: a member whose user does not take the end of a view is expelled from the next one. That holds though it is heard, and though
/// nothing can be ordered there without it.
#[test]
fn a_member_that_stays_in_the_view_before_is_expelled() {
    let after = Some(Nanos::from_millis(50));
    let mut room = Room::of(4, Mutants::NONE, |options| GroupOptions { expel_slow_after: after, ..options });
    room.gather();
    room.broadcast(0).unwrap();
    room.run(Nanos::from_millis(5), |_, _| {});
    let now = room.now;
    room.members[3].leave(now);
    let (mut is_sent, mut delivered) = (false, 0);
    for _ in 0..500 {
        room.run(Nanos::from_millis(2), |_, _| {});
        delivered += room.events(1).iter().filter(|event| matches!(event, Event::Delivered(_))).count();
        [2, 3].into_iter().for_each(|place| drop(room.events(place)));
        is_sent = is_sent || room.members[1].view().size() == 3 && room.broadcast(1).is_ok();
    }
    assert!(is_sent && delivered == 2, "{delivered}");
    drop(room.events(0));
    room.run_and_take(Nanos::from_millis(200));
    assert_eq!(room.members[0].account().expelled, 1);
}

/// Goal: a user that takes nothing of any view is slow, though no view lasts for so long. One that takes something of each is not.
/// Method: a caretaker takes for it what is left of a view that ends.
#[test]
fn a_new_view_frees_no_slow_member() {
    for takes in [false, true] {
        let after = Some(Nanos::from_millis(100));
        let mut room =
            Room::of(7, Mutants::NONE, |options| GroupOptions { expel_slow_after: after, ..options });
        room.gather();
        for step in 0..210 {
            // A message that is not taken was refused with an error.
            let _ = room.broadcast(0);
            let now = room.now;
            if step % 70 == 50 {
                room.members[6 - step / 70].leave(now);
            }
            room.run(Nanos::from_millis(1), |_, _| {});
            (0..7).filter(|place| *place != 1).for_each(|place| drop(room.events(place)));
            if takes && step % 10 == 0 {
                (0..8).for_each(|_| drop(room.members[1].poll_event()));
            }
            while room.members[1].is_finishing_view() && room.members[1].poll_event().is_some() {}
        }
        drop(room.events(1));
        room.run_and_take(Nanos::from_millis(100));
        assert_eq!(room.members[1].account().expelled, u64::from(!takes));
    }
}

/// Goal: a member that has not heard how a view ended asks as soon as it hears of the next one. So it is not left out when that
/// changes, too.
#[test]
fn a_member_that_missed_the_end_of_a_view_asks_for_it() {
    let (heartbeat, suspect_after) = (Nanos::from_millis(100), Nanos::from_millis(1_000));
    let mut room = Room::of(5, Mutants::NONE, |options| GroupOptions { heartbeat, suspect_after, ..options });
    room.gone = Places(0b11000);
    room.run_and_take(Nanos::from_millis(2_000));
    let (life, mut is_lost) = (room.members[2].life(), false);
    room.gone = Places(0b10000);
    while !is_lost {
        assert!(room.now < Nanos::from_millis(6_000));
        room.run(Nanos::from_micros(100), |target, message| {
            if target == 2 && is_kind(message, INSTALL) && !is_lost {
                is_lost = true;
                message.clear();
            }
        });
        (0..5).for_each(|place| drop(room.events(place)));
    }
    for _ in 0..50 {
        room.run(Nanos::from_micros(100), |_, _| {});
        (0..5).for_each(|place| drop(room.events(place)));
    }
    let views = [0, 2].map(|place| room.members[place].view().number);
    assert_eq!(views[0], views[1], "before its next heartbeat");
    room.gone = Places::NONE;
    room.run_and_take(Nanos::from_millis(3_000));
    assert!(room.is_whole() && room.members[2].life() == life && room.expelled() == 0);
}

/// Goal: an epoch that no view comes to is none: it neither freezes a view, nor makes later ballots older than those before.
#[test]
fn an_epoch_far_ahead_is_none() {
    let mut room = Room::new(|options| options);
    room.gather();
    let mut buffer = [0; 256];
    for epoch in [1 << 41, u64::MAX - 255] {
        let head = Head { epoch, ..head_of(&room, 0) };
        let size = Draft::bare(&mut buffer, &head, None, PREPARE).finish().unwrap();
        room.hear(1, 0, &buffer[..size]);
        assert_eq!(room.members[1].epoch(), 0);
    }
    room.run_and_take(Nanos::from_millis(300));
    assert!(room.is_whole() && room.expelled() == 0);
}

/// Goal: a member that suspected another and hears from it how the view came to be says at once that it was wrong.
#[test]
fn a_wrong_suspicion_is_taken_back_at_once() {
    let mut room = Room::new(|options| options);
    room.gather();
    let mut suspects = 0;
    room.run(Nanos::from_millis(150), |target, message| {
        if target == 0 && message.get(2) == Some(&2) {
            message.clear();
        } else if message.get(2) == Some(&0) && is_kind(message, STATUS) {
            suspects = message[72];
        }
    });
    assert_eq!(suspects, 1 << 2);
    let mut buffer = [0; 256];
    let join =
        Draft::terms(&mut buffer, &head_of(&room, 0), None, (options(0).terms(), false)).finish().unwrap();
    room.hear(2, 0, &buffer[..join]);
    let answers = room.said_by(2);
    let install = answers.iter().find(|message| is_kind(message, INSTALL)).expect("it says so");
    room.said_by(0);
    room.hear(0, 2, install);
    let said = room.said_by(0);
    let status = said.iter().find(|message| is_kind(message, STATUS)).expect("at once");
    assert_eq!(status[72], 0);
}

/// Goal: an account of a view's beginning by a life that is over is no sign of the life that came after it.
#[test]
fn a_former_life_is_no_sign_of_life() {
    let mut room = Room::new(|options| options);
    let mut install = Vec::new();
    while room.members[2].view().size() < 3 {
        room.run(Nanos::from_micros(100), |target, message| {
            if target == 1 && is_kind(message, INSTALL) {
                install = message.clone();
            }
        });
        (0..3).for_each(|place| drop(room.events(place)));
    }
    install[2] = 2;
    install[16] ^= 1;
    // 2 says nothing any more, but for what comes late of the life before.
    room.gone = Places::only(2);
    for _ in 0..100 {
        room.hear(0, 2, &install);
        room.hear(1, 2, &install);
        room.run(Nanos::from_millis(5), |_, _| {});
        [0, 1].into_iter().for_each(|place| drop(room.events(place)));
    }
    assert_eq!(room.members[0].view().size(), 2);
}

/// Goal: no user is slow in a view of which nothing can be taken.
#[test]
fn a_frozen_view_makes_nobody_slow() {
    let after = Some(Nanos::from_millis(50));
    let mut room = Room::new(|options| GroupOptions { expel_slow_after: after, ..options });
    room.gather();
    room.broadcast(1).unwrap();
    room.run(Nanos::from_millis(5), |_, _| {});
    // The last user has not taken it when somebody leaves, and for long nobody can agree on the next view.
    (0..2).for_each(|place| drop(room.events(place)));
    let now = room.now;
    room.members[0].leave(now);
    room.run(Nanos::from_millis(300), |_, message| {
        if is_kind(message, PROMISE) {
            message.clear();
        }
    });
    room.run_and_take(Nanos::from_millis(400));
    assert_eq!(room.expelled(), 0);
    assert_eq!([1, 2].map(|place| room.members[place].view().size()), [2, 2]);
}

/// Goal: nor is a user slow whose member alone is frozen, because nobody else heard of the ballot.
#[test]
fn a_member_frozen_alone_is_not_slow() {
    let after = Some(Nanos::from_millis(50));
    let mut room = Room::new(|options| GroupOptions { expel_slow_after: after, ..options });
    room.gather();
    let mut prepare = Vec::new();
    room.run(Nanos::from_millis(30), |_, message| {
        if message.get(2) == Some(&0) {
            prepare = message[..64].to_vec();
        }
    });
    prepare[1] = VERSION << 4 | PREPARE;
    prepare[32..40].copy_from_slice(&256_u64.to_le_bytes());
    room.hear(2, 0, &prepare);
    assert_eq!(room.members[2].epoch(), 256);
    for _ in 0..80 {
        // A message that is not taken was refused with an error.
        let _ = room.broadcast(0);
        room.run(Nanos::from_millis(1), |_, _| {});
        (0..3).for_each(|place| drop(room.events(place)));
    }
    room.run_and_take(Nanos::from_millis(600));
    assert_eq!(room.expelled(), 0);
    assert!(room.is_whole());
}

/// Goal: a member that accepts a proposal names the ballot that it accepted it in, regardless of its promises before it speaks.
#[test]
fn a_proposal_accepted_in_one_ballot_counts_in_no_other() {
    let mut room = Room::new(|options| options);
    room.gather();
    let now = room.now;
    room.members[2].leave(now);
    // 0 leads; its proposal and the beginning of its next ballot come to 1 together.
    let (mut accept, mut prepare) = (Vec::new(), Vec::new());
    room.run(Nanos::from_millis(20), |target, message| {
        if target == 1 && is_kind(message, PREPARE) {
            prepare = message.clone();
        }
        if target == 1 && is_kind(message, ACCEPT) {
            accept = core::mem::take(message);
        }
    });
    let epoch = epoch_of(&prepare);
    assert!(epoch > 0 && epoch == epoch_of(&accept));
    prepare[32..40].copy_from_slice(&(epoch + 256).to_le_bytes());
    room.said_by(1);
    room.hear(1, 0, &accept);
    room.hear(1, 0, &prepare);
    let said = room.said_by(1);
    assert!(said.iter().any(|message| is_kind(message, PROMISE)));
    assert!(said.iter().all(|message| !is_kind(message, ACCEPTED)), "it has accepted nothing in that ballot");
}

/// Goal: a view ends when most of those who go on hold what is left of it, however many others agree; so that the next view lives.
#[test]
fn a_leaving_member_does_not_decide_for_those_that_stay() {
    let mut room = Room::new(|options| options);
    room.gather();
    room.broadcast(0).unwrap();
    // 1 promises, and lacks a frame for long.
    let lacks = |target: usize, message: &mut Vec<u8>| {
        if target == 1 && is_kind(message, DATA) {
            message.clear();
        }
    };
    room.run(Nanos::from_millis(1), lacks);
    let now = room.now;
    room.members[2].leave(now);
    room.run(Nanos::from_millis(250), lacks);
    room.run_and_take(Nanos::from_millis(1_000));
    assert_eq!(room.expelled(), 0);
    let views = [0, 1].map(|place| room.members[place].view().clone());
    assert_eq!(views[0], views[1]);
    assert!(views[0].size() == 2 && !room.members[0].is_stopped());
}

/// Goal: a member that was to go on and is known to have begun anew is not waited for, though it is not suspected yet. Each member that
/// is left in the next view is told that it is stopped.
#[test]
fn a_member_that_has_begun_anew_is_not_waited_for() {
    let mut room = Room::new(|options| GroupOptions { suspect_after: Nanos::from_millis(10_000), ..options });
    room.run_and_take(Nanos::from_millis(8_000));
    assert!(room.is_whole());
    room.broadcast(0).unwrap();
    // 1 promises, and lacks a frame.
    let lacks = |target: usize, message: &mut Vec<u8>| {
        if target == 1 && is_kind(message, DATA) {
            message.clear();
        }
    };
    room.run(Nanos::from_millis(1), lacks);
    let now = room.now;
    room.members[2].leave(now);
    room.run(Nanos::from_millis(100), lacks);
    assert!(room.members[0].epoch() > 0);
    let anew = GroupOptions { suspect_after: Nanos::from_millis(10_000), ..options(1) };
    room.members[1] = Member::new(anew, 99, room.now).unwrap();
    room.run_and_take(Nanos::from_millis(4_000));
    assert_eq!(room.members[0].view().size(), 2);
    room.run_and_take(Nanos::from_millis(12_000));
    assert!(room.members[0].is_stopped());
}

/// Goal: a leader that its own decision puts out says it to those who go on, though its user takes the end of the view first.
#[test]
fn a_leader_put_out_by_its_own_ballot_says_so() {
    let mut room = Room::of(4, Mutants::NONE, |options| options);
    room.gather();
    // 3 proposes a view without 0, and nobody hears that others accept it. Then only 0 leads.
    let is_of = |message: &[u8], place: u8| message.get(2) == Some(&place);
    let mut is_proposed = false;
    while !is_proposed {
        assert!(room.now < Nanos::from_millis(10_000));
        room.run(Nanos::from_micros(100), |target, message| {
            is_proposed |= target == 1 && is_of(message, 3) && is_kind(message, ACCEPT);
            let leads = is_kind(message, PREPARE) && !is_of(message, 3);
            if target == 0 || is_of(message, 0) || leads || is_kind(message, ACCEPTED) {
                message.clear();
            }
        });
    }
    // Messages that it sends to all are lost, so that it is asked.
    let mut installs = 0;
    for _ in 0..30_000 {
        room.run(Nanos::from_micros(100), |target, message| {
            let leads = is_kind(message, PREPARE) && !is_of(message, 0);
            installs += u32::from(is_kind(message, INSTALL));
            let is_first = is_kind(message, INSTALL) && installs <= 3;
            if leads || is_first || target == 3 && is_kind(message, ACCEPTED) {
                message.clear();
            }
        });
        // As a driver does, before it sends what there is to say.
        (0..4).for_each(|place| drop(room.events(place)));
    }
    assert!(room.members[0].account().expelled > 0);
    let views = [1, 2, 3].map(|place| room.members[place].view().clone());
    assert!(views[0].number > 2 && views.iter().all(|view| *view == views[0]), "{views:?}");
    assert!(!room.members[1].is_stopped());
}

/// Goal: a member that leaves, and alone knows that the view has ended, says so until the others know it.
#[test]
fn a_member_that_has_left_answers() {
    let mut room = Room::of(2, Mutants::NONE, |options| options);
    room.gather();
    let now = room.now;
    room.members[1].leave(now);
    // 1 decides that itself, and what it says to all is lost.
    let (mut installs, mut has_left) = (0, false);
    for _ in 0..400 {
        room.run(Nanos::from_millis(5), |_, message| {
            installs += u32::from(is_kind(message, INSTALL));
            let leads = message.get(2) == Some(&0) && is_kind(message, PREPARE);
            if leads || is_kind(message, INSTALL) && installs == 1 {
                message.clear();
            }
        });
        has_left |= room.events(1).contains(&Event::Left);
        drop(room.events(0));
    }
    assert!(has_left && installs > 1);
    assert_eq!(room.members[0].view().size(), 1);
}

/// A group whose view ends, as 2 leaves. Something is left of it for all to take, so that they go on closing it.
fn with_a_view_that_ends() -> Room {
    let mut room = Room::new(|options| options);
    room.gather();
    (0..3).for_each(|_| room.broadcast(0).unwrap());
    room.run(Nanos::from_millis(5), |_, _| {});
    let now = room.now;
    room.members[2].leave(now);
    room
}

/// Goal: a member whose user has not taken the end of the view yet answers who leads on because it has not heard of that end.
#[test]
fn a_member_that_closes_the_view_answers_one_that_leads_on() {
    for kind in [PREPARE, ACCEPT] {
        let mut room = with_a_view_that_ends();
        let mut led = Vec::new();
        room.run(Nanos::from_millis(30), |target, message| {
            if target == 1 && is_kind(message, kind) {
                led = message.clone();
            }
        });
        assert!(room.members[1].is_finishing_view());
        room.said_by(1);
        room.hear(1, 0, &led);
        let answers = room.said_by(1).iter().filter(|message| is_kind(message, INSTALL)).count();
        assert_eq!(answers, 1, "kind {kind}");
    }
}

/// The head of a member's messages.
fn head_of(room: &Room, place: usize) -> Head {
    let member = &room.members[place];
    Head {
        place,
        group: 7,
        life: member.life(),
        view: member.view().number,
        epoch: 0,
        ordered: 0,
        held: 0,
        taken: 0,
    }
}

/// Goal: the member that closes the view tells nobody its order. That order goes on behind the end that counts, with places that others
/// never had. Method: it is asked for a part of the order, and hears of the end, before it says anything.
#[test]
fn a_member_that_closes_the_view_says_nothing_of_its_order() {
    let mut room = with_a_view_that_ends();
    let mut install = Vec::new();
    room.run(Nanos::from_millis(30), |target, message| {
        if target == 1 && is_kind(message, INSTALL) {
            install = core::mem::take(message);
        }
    });
    assert!(!install.is_empty() && !room.members[1].is_finishing_view());
    room.said_by(1);
    let (head, mut buffer) = (head_of(&room, 2), [0; 256]);
    let size = Draft::gaps(&mut buffer, &head, None, (0, 3)).finish().unwrap();
    room.hear(1, 2, &buffer[..size]);
    room.hear(1, 0, &install);
    assert!(room.members[1].is_finishing_view());
    let said = room.said_by(1);
    assert!(said.iter().all(|message| !is_kind(message, ORDER)), "{said:?}");
}

/// Where a message names a view.
const VIEW_AT: core::ops::Range<usize> = 24..32;

/// A group, and a request of a life that 2 had before: to join the view that has begun meanwhile.
fn with_an_old_request() -> (Room, Vec<u8>) {
    let mut room = Room::new(|options| options);
    let mut joins = Vec::new();
    room.run(Nanos::from_millis(400), |_, message| {
        if message.get(2) == Some(&2) && is_kind(message, JOIN) {
            joins.push(message.clone());
        }
    });
    room.gather();
    let mut old = joins.swap_remove(0);
    old[16] ^= 1;
    old[VIEW_AT].copy_from_slice(&room.members[0].view().number.to_le_bytes());
    (room, old)
}

/// Goal: a request of a life that is over does not put out the life after it, whichever member promises first.
#[test]
fn a_late_request_to_join_does_not_hurry_a_ballot() {
    let (mut room, old) = with_an_old_request();
    room.hear(0, 2, &old);
    // Messages of 2 come a little later than those of 1.
    let mut late = Vec::new();
    for _ in 0..20 {
        room.run(Nanos::from_micros(200), |target, message| {
            if target == 0 && message.get(2) == Some(&2) {
                late.push(core::mem::take(message));
            }
        });
        (0..3).for_each(|place| drop(room.events(place)));
    }
    late.iter().for_each(|message| room.hear(0, 2, message));
    room.run_and_take(Nanos::from_millis(300));
    assert_eq!(room.expelled(), 0);
}

/// Goal: a member that leaves while others let it in leaves no view behind that waits for it. Method: it does not hear that it is in.
#[test]
fn a_member_that_leaves_while_it_joins_is_waited_for_by_nobody() {
    let mut room = Room::of(2, Mutants::NONE, |options| options);
    let mut installs = 0;
    let mut lost = |target: usize, message: &mut Vec<u8>| {
        if target == 1 && is_kind(message, INSTALL) {
            installs += 1;
            if installs == 1 {
                message.clear();
            }
        }
    };
    while room.members[0].view().size() < 2 {
        room.run(Nanos::from_micros(100), &mut lost);
        (0..2).for_each(|place| drop(room.events(place)));
        assert!(room.now < Nanos::from_millis(1_000));
    }
    let now = room.now;
    room.members[1].leave(now);
    let mut has_left = false;
    for _ in 0..100 {
        room.run(Nanos::from_millis(10), &mut lost);
        has_left |= room.events(1).contains(&Event::Left);
        drop(room.events(0));
    }
    assert!(has_left);
    assert_eq!(room.members[0].view().size(), 1);
}

/// Goal: a member that leaves before it has asked to join has left at once, and one whom nobody hears a little later.
#[test]
fn a_member_heard_by_nobody_leaves_too() {
    for asks in [false, true] {
        let mut room = Room::new(|options| GroupOptions { founds: false, ..options });
        if asks {
            room.run(Nanos::from_millis(30), |_, message| message.clear());
        }
        let now = room.now;
        room.members[1].leave(now);
        assert_eq!(room.events(1).contains(&Event::Left), !asks);
        room.run(Nanos::from_millis(200), |_, message| message.clear());
        assert_eq!(room.events(1).contains(&Event::Left), asks);
    }
}

/// Goal: a member that left, and let another one in as it went, says so until that one has heard it. Method: it leaves once it has
/// heard a request for its view, and the first that it says of the next view is lost.
#[test]
fn a_member_that_has_left_answers_one_that_joined_then() {
    let mut room = Room::of(2, Mutants::NONE, |options| options);
    let mut joins = 0;
    while joins == 0 {
        room.run(Nanos::from_micros(100), |target, message| {
            let names_a_view = message.get(VIEW_AT).is_some_and(|view| view != [0; 8]);
            joins += u32::from(target == 0 && is_kind(message, JOIN) && names_a_view);
        });
        drop(room.events(0));
    }
    let now = room.now;
    room.members[0].leave(now);
    let mut installs = 0;
    for _ in 0..100 {
        room.run(Nanos::from_millis(5), |_, message| {
            if is_kind(message, INSTALL) {
                installs += 1;
                if installs == 1 {
                    message.clear();
                }
            }
        });
        (0..2).for_each(|place| drop(room.events(place)));
    }
    assert!(installs > 0 && room.members[0].has_left());
    assert_eq!(room.members[1].view().size(), 1);
}

/// Goal: an error names the option that makes no group, its value and its bounds.
#[test]
fn options_that_make_no_group_are_named() {
    let text = |change: fn(&mut GroupOptions)| {
        let mut options = options(0);
        change(&mut options);
        Member::new(options, 11, Nanos(0)).unwrap_err().to_string()
    };
    for (change, expected) in [
        (|options| options.roster.clear(), "the roster has 0 places, where 1 to 32 are possible"),
        (
            |options| options.roster[1] = options.roster[0],
            "the roster names 0000000000000064 twice: name each node once",
        ),
        (|options| options.own = NodeId::new(7).unwrap(), "this node is not in the roster"),
        (|options| options.window = 4_097, "window is 4097, where 1 to 4096 is possible"),
        (|options| options.frame_size = 0, "frame_size is 0, where 1 to 16777135 is possible"),
        (|options| options.message_size_max = 0, "message_size_max is 0, where 1 to 67108864 is possible"),
        (|options| options.heartbeat = Nanos(0), "heartbeat is 0ns, where 1ns to 3600s is possible"),
        (
            |options| options.round_trip = Nanos::NEVER,
            "round_trip is 18446744073.709551615s, where 1ns to 3600s is possible",
        ),
        (
            |options| options.suspect_after = options.heartbeat,
            "suspect_after is 10ms, where 10.000001ms to 3600s is possible",
        ),
        (
            |options| (options.window, options.frame_size) = (4_096, 100_000),
            "the windows of all members take 1228800000 bytes",
        ),
    ] as [(fn(&mut GroupOptions), &str); 10]
    {
        let told = text(change);
        assert!(told.starts_with(expected), "{told}");
    }
}

/// Goal: nobody is expelled for what the others could not have heard yet.
#[test]
fn a_slow_member_has_two_heartbeats() {
    let of = |millis| GroupOptions { expel_slow_after: Some(Nanos::from_millis(millis)), ..options(0) };
    let made = |millis| Member::new(of(millis), 11, Nanos(0)).map(drop);
    let refusal = made(19).unwrap_err();
    assert_eq!(refusal.to_string(), "expel_slow_after is 19ms, where 20ms is the least");
    assert!(matches!(made(0), Err(OptionsError::Time { value: Nanos(0), .. })));
    assert_eq!(made(20), Ok(()));
}

/// Goal: a leader that nobody's promise reaches lets another one lead.
#[test]
fn a_leader_that_hears_no_promise_lets_others_lead() {
    let mut room = Room::new(|options| options);
    room.gather();
    let now = room.now;
    room.members[2].leave(now);
    let mut has_left = false;
    for _ in 0..400 {
        room.run(Nanos::from_millis(20), |target, message| {
            if target == 0 && is_kind(message, PROMISE) {
                message.clear();
            }
        });
        has_left |= room.events(2).contains(&Event::Left);
        (0..2).for_each(|place| drop(room.events(place)));
    }
    assert!(has_left);
    assert_eq!([0, 1].map(|place| room.members[place].view().size()), [2, 2]);
}

/// Goal: a request of a life that is over, which comes late, changes nothing for the life that came after it.
#[test]
fn a_late_request_to_join_is_none() {
    let (mut room, old) = with_an_old_request();
    room.run(Nanos::from_millis(1), |_, _| {});
    [0, 1].into_iter().for_each(|place| room.hear(place, 2, &old));
    // It speaks before anybody leads a ballot.
    let own = room.said_by(2);
    room.broadcast(2).unwrap();
    let said = room.said_by(2);
    for message in own.iter().chain(&said) {
        [0, 1].into_iter().for_each(|place| room.hear(place, 2, message));
    }
    room.run_and_take(Nanos::from_millis(300));
    assert_eq!(room.expelled(), 0);
}

/// Goal: a message that waits for a majority does not hold up one that does not. Messages of each kind come once, in their sender's
/// order, in any size. The credit comes back. Method: two receivers lose every third frame of the first copy.
#[test]
fn each_kind_keeps_its_senders_order() {
    let mut room = Room::new(|options| options);
    room.gather();
    let kinds = [Guarantee::Reliable, Guarantee::BestEffort, Guarantee::Agreed, Guarantee::Uniform];
    let (mut next, mut all) = (0, alloc::vec![Vec::new(); 3]);
    let mut frames = 0_u32;
    while next < 80 || all.iter().any(|told| told.len() < 80) {
        let (kind, now) = (kinds[next % 4], room.now);
        let message = alloc::vec![next as u8; if next.is_multiple_of(7) { 700 } else { 30 }];
        if next < 80 && room.members[1].try_broadcast(&message, kind, now).is_ok() {
            next += 1;
        }
        room.run(Nanos::from_micros(100), |_, message| {
            if is_kind(message, DATA) {
                frames += 1;
                if frames.is_multiple_of(3) {
                    message.clear();
                }
            }
        });
        for (place, log) in all.iter_mut().enumerate() {
            log.extend(told(&mut room, place).into_iter().map(|(byte, _)| byte));
        }
        assert!(room.now < Nanos::from_millis(20_000), "{next}: {all:?}");
    }
    for told in &all {
        for streams in [&[0][..], &[1], &[2, 3]] {
            let of = |byte: &&u8| streams.contains(&(**byte % 4));
            let sent = (0..80).filter(|byte| of(&byte));
            assert!(told.iter().filter(of).copied().eq(sent), "{streams:?}: {told:?}");
        }
    }
}

/// Goal: nobody answers for what nobody waits for: a message of best effort costs its frames and its place in the order, and
/// what is known of it comes with the next heartbeat.
#[test]
fn best_effort_is_not_acknowledged() {
    let mut costs = [Guarantee::BestEffort, Guarantee::Reliable, Guarantee::Uniform].map(|guarantee| {
        let mut room = Room::new(|options| GroupOptions { window: 64, ..options });
        room.gather();
        let mut said = [0; 10];
        for _ in 0..8 {
            say(&mut room, 1, 1, 10, guarantee);
            room.run(Nanos::from_micros(300), |_, message| said[usize::from(message[1] & 15)] += 1);
            let delivered: Vec<usize> = (0..3).map(|place| told(&mut room, place).len()).collect();
            assert_eq!(delivered, [1; 3]);
        }
        assert_eq!((said[0], said[1], said[3]), (16, 16, 0), "frames, order, questions: {said:?}");
        said[2]
    });
    let [best_effort, reliable, uniform] = &mut costs;
    assert!(*best_effort <= 12 && *reliable >= 16 && *reliable <= *uniform, "{costs:?}");
}

/// Goal: a place in the order for frames that nobody can have is none. Method: the numbers that a fuzz target found to overflow.
#[test]
fn no_order_goes_beyond_the_last_number() {
    let mut room = Room::new(|options| options);
    room.gather();
    let (sequencer, ordered) = (&room.members[0], room.members[1].account().ordered);
    let head = Head {
        place: 0,
        group: 7,
        life: sequencer.life(),
        view: sequencer.view().number,
        epoch: 0,
        ordered,
        held: 0,
        taken: 0,
    };
    let address = Address { node: sequencer.node(0).unwrap(), port: Port::from(1) };
    let mut buffer = [0; 200];
    for (first, count) in [(u64::MAX, 1), (u64::MAX - 1, 2), (u64::MAX, u32::MAX)] {
        let mut draft = Draft::order(&mut buffer, &head, None, ordered);
        assert!(draft.range(Range { origin: 2, first, count }));
        let size = draft.finish().unwrap();
        room.members[1].handle_message(address, &buffer[..size], room.now);
        assert_eq!(room.members[1].account().ordered, ordered);
    }
    assert_eq!(room.broadcast(2), Ok(()));
    room.run(Nanos::from_millis(20), |_, _| {});
    let delivered = [0, 1, 2].map(|place| room.events(place).len());
    assert_eq!(delivered, [1; 3]);
}

/// Runs the room for a time, and shows each message at each receiver to `counts`.
fn said(room: &mut Room, time: Nanos, mut counts: impl FnMut(usize, &[u8])) {
    room.run(time, |target, message| counts(target, message));
}

/// Goal: no record of the order goes with what the sequencer broadcasts itself: its frames say their places.
#[test]
fn frames_of_the_sequencer_say_their_places() {
    let mut room = Room::new(|options| options);
    room.gather();
    for (sender, has_records) in [(0, false), (1, true)] {
        assert_eq!(room.broadcast(sender), Ok(()));
        let mut records = 0;
        said(&mut room, Nanos::from_millis(20), |_, message| records += usize::from(is_kind(message, ORDER)));
        assert_eq!(records > 0, has_records, "{records} records of the order of what {sender} broadcast");
        assert_eq!([0, 1, 2].map(|place| room.events(place).len()), [1; 3]);
    }
}

/// Goal: while a stream of the sequencer's own is under way, the others tell only the sequencer which frames they hold. It tells all
/// members which frames a majority holds.
#[test]
fn frames_held_of_a_stream_are_told_to_the_sequencer() {
    let mut room = Room::new(|options| options);
    room.gather();
    let (mut alone, mut elsewhere, mut to_all, mut delivered) = (0, 0, 0, [0; 3]);
    let message = [7; 64 * 4];
    for _ in 0..300 {
        // A message that is not taken was refused with an error.
        let _ = room.members[0].try_broadcast(&message, Guarantee::Uniform, room.now);
        said(&mut room, Nanos::from_millis(1), |target, message| {
            let is_status = is_kind(message, STATUS);
            let is_alone = is_status && message[76] & 2 != 0;
            alone += usize::from(is_alone);
            elsewhere += usize::from(is_alone && target != 0);
            to_all += usize::from(is_status && !is_alone);
        });
        for (place, delivered) in delivered.iter_mut().enumerate() {
            let events = room.events(place);
            *delivered += events.iter().filter(|event| matches!(event, Event::Delivered(_))).count();
        }
    }
    assert!(delivered[0] > 200 && delivered.iter().all(|&count| count + 2 >= delivered[0]), "{delivered:?}");
    assert!(
        alone > 300 && elsewhere == 0,
        "{alone} to the sequencer alone, {elsewhere} elsewhere, {to_all} to all"
    );
}

/// Contents of a question: order, and frames of the first origin that it names.
fn asked_in(message: &[u8]) -> Option<(bool, Option<(u8, u64)>)> {
    let long = |at: usize| message.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let is_question = is_kind(message, GAPS);
    let frames = long(96).map(|bits| (message[80], bits));
    is_question.then_some((long(64) < long(72), frames))
}

/// Goal: lost frames of the sequencer are asked of it alone while it answers, and their places with them. If it does not answer,
/// another member is asked, for the order too.
#[test]
fn frames_of_the_sequencer_are_asked_for_without_their_order() {
    for answers in [true, false] {
        let mut room = Room::new(|options| options);
        room.gather();
        let (mut questions, mut lost) = (Vec::new(), 0);
        assert_eq!(room.members[0].try_broadcast(&[7; 64 * 4], Guarantee::Uniform, room.now), Ok(()));
        room.run(Nanos::from_millis(40), |target, message| {
            let is_repair = is_kind(message, DATA) && message[65] & 8 != 0;
            let number =
                u64::from_le_bytes(*message.get(72..).and_then(|rest| rest.first_chunk()).unwrap_or(&[0; 8]));
            let is_first_of_one = is_kind(message, DATA) && !is_repair && target == 2 && number == 1;
            let is_refused = is_repair && message[2] == 0 && !answers;
            if is_first_of_one || is_refused {
                message.truncate(1);
                lost += 1;
            } else if let Some(asked) = asked_in(message) {
                questions.push((target, asked));
            }
        });
        assert!(lost > 0 && room.events(2).len() == 1, "{lost} lost");
        let first = Some((0, (false, Some((0, 1)))));
        assert_eq!(questions.first().copied(), first, "answers: {answers}");
        let of_others = questions.iter().filter(|(target, _)| *target == 1);
        let of_others: Vec<bool> = of_others.map(|(_, (wants_order, _))| *wants_order).collect();
        assert_eq!(of_others.first().copied(), (!answers).then_some(true), "answers: {answers}");
    }
}

/// Goal: while a stream of the sequencer's is under way, a question to it stands for a status: it says what is held, and the sequencer
/// passes on what a majority holds.
#[test]
fn a_question_to_the_sequencer_is_a_status() {
    let mut room = Room::new(|options| options);
    room.gather();
    let message = [7; 64 * 4];
    for _ in 0..45 {
        // A message that is not taken was refused with an error.
        let _ = room.members[0].try_broadcast(&message, Guarantee::Uniform, room.now);
        room.run(Nanos::from_millis(1), |_, _| {});
        (0..3).for_each(|place| drop(room.events(place)));
    }
    let before = room.members[0].account();
    assert_eq!(
        (before.uniform, room.members[0].try_broadcast(&message, Guarantee::Uniform, room.now)),
        (before.ordered, Ok(()))
    );
    let frames = room.said_by(0);
    assert!(frames.len() == 4 && room.members[1].is_streaming());
    [0, 1, 3].into_iter().for_each(|frame| room.hear(1, 0, &frames[frame]));
    // The gap shows, and is asked for a little later.
    for _ in 0..2 {
        let now = room.now;
        room.members[1].handle_timeout(now);
        room.now = now.plus(Nanos::from_micros(100));
    }
    let said = room.said_by(1);
    assert_eq!(said.iter().map(|message| message[1] & 15).collect::<Vec<_>>(), [3], "a question alone");
    room.hear(0, 1, &said[0]);
    let passed_on: Vec<_> =
        room.said_by(0).iter().map(|message| (message[1] & 15, message[65] & 8)).collect();
    assert_eq!(room.members[0].account().uniform, before.uniform + 2);
    assert_eq!(passed_on, [(0, 8), (2, 0)], "a repair, and a status");
}

/// Goal: small messages that come faster than they are held share frames, and are delivered one by one in their order; one that
/// comes alone waits for nothing.
#[test]
fn small_messages_share_frames() {
    let mut room = Room::new(|options| GroupOptions { frame_size: 640, ..options });
    room.gather();
    let count = 120_u32;
    for number in 0..count {
        let message = number.to_le_bytes();
        assert_eq!(room.members[1].try_broadcast(&message, Guarantee::Agreed, room.now), Ok(()), "{number}");
    }
    let mut frames = 0;
    said(&mut room, Nanos::from_millis(20), |target, message| {
        frames += usize::from(is_kind(message, DATA) && target == 0);
    });
    assert!(frames < 10, "{frames} frames");
    for member in &mut room.members {
        let mut places = Vec::new();
        while let Some(event) = member.poll_event() {
            let Event::Delivered(told) = event else { continue };
            assert_eq!(member.message(), (places.len() as u32).to_le_bytes());
            places.push((told.index, told.part));
        }
        assert_eq!(places.len(), count as usize);
        assert!(places.is_sorted() && places.windows(2).all(|pair| pair[0] != pair[1]), "{places:?}");
    }
}

/// Goal: of a frame that nobody has heard yet the sequencer does not say that a majority holds it. In groups of three the model cannot
/// tell, as the sequencer and a member that believes it are a majority.
#[test]
fn only_what_a_majority_holds_is_said_to_be_held() {
    for (mutants, is_true) in [(Mutants::NONE, true), (Mutants::only(Mutant::OwnSpread), false)] {
        let mut room = Room::with(mutants, |options| options);
        room.gather();
        let (mut said, mut overstated) = (0, 0);
        for _ in 0..20 {
            assert_eq!(room.broadcast(0), Ok(()));
            room.run(Nanos::from_millis(5), |_, message| {
                if is_kind(message, DATA) && message[2] == 0 {
                    said += usize::from(message[65] & 64 != 0);
                    overstated += usize::from(message[66..68] == [0, 0]);
                }
            });
            (0..3).for_each(|place| drop(room.events(place)));
        }
        assert_eq!(
            (said >= 40, overstated == 0),
            (true, is_true),
            "{said} times, {overstated} times too much"
        );
    }
}

/// Goal: a member that was not run for a while looks at the messages that have come before it asks for anything.
#[test]
fn a_member_that_was_away_asks_for_nothing_that_has_come() {
    let mut room = Room::new(|options| options);
    room.gather();
    let (now, later) = (room.now, room.now.plus(Nanos::from_millis(5)));
    assert_eq!(room.members[0].try_broadcast(&[7; 128], Guarantee::Uniform, now), Ok(()));
    let (mut buffer, mut frames) = ([0; 4_096], Vec::new());
    while let Some(said) = room.members[0].poll_transmit(now, &mut buffer) {
        frames.extend(Some(buffer[..said.size].to_vec()).filter(|message| is_kind(message, DATA)));
    }
    assert_eq!(frames.len(), 2);
    let source = Address { node: room.members[0].node(0).unwrap(), port: Port::from(1) };
    let member = &mut room.members[2];
    let mut asks = |frame: &[u8], now: Nanos| {
        member.handle_message(source, frame, now);
        member.handle_timeout(now);
        let mut asks = 0;
        while let Some(said) = member.poll_transmit(now, &mut buffer) {
            let message = &buffer[..said.size];
            asks += usize::from(is_kind(message, GAPS) || is_kind(message, STATUS) && message[76] & 1 != 0);
        }
        asks
    };
    assert_eq!(asks(&frames[1], now), 0, "frames may overtake each other");
    assert_eq!(asks(&frames[0], later), 0, "it asks for what it has");
}
