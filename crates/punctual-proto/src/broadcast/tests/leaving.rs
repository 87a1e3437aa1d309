//! A member that leaves is told so, and leaves nobody behind that cannot go on.

use super::*;

impl Room {
    /// A member that was told that it has left is there no more, once it has said what it had to say.
    fn run_until_left(&mut self, leavers: Places, time: Nanos, mut alter: impl FnMut(usize, &mut Vec<u8>)) {
        let until = self.now.plus(time);
        while self.now < until && !leavers.without(self.gone).is_empty() {
            self.run(Nanos::from_micros(100), &mut alter);
            for place in 0..self.size() {
                if !self.gone.contains(place) && self.events(place).contains(&Event::Left) {
                    self.speak(place, 50, &mut alter);
                    self.gone.insert(place);
                }
            }
        }
    }

    fn leave(&mut self, leavers: &[usize]) {
        let now = self.now;
        leavers.iter().for_each(|&place| self.members[place].leave(now));
    }
}

/// Loses the first that a place hears of how a view ended.
fn first_install_to(deaf: usize) -> impl FnMut(usize, &mut Vec<u8>) {
    let mut is_lost = false;
    move |target, message| {
        if target == deaf && is_kind(message, INSTALL) && !is_lost {
            is_lost = true;
            message.clear();
        }
    }
}

/// Before that nobody who leaves is cut off.
const SOON: Nanos = Nanos::from_millis(60);
/// Longer than it takes until somebody else leads.
const PATIENCE: Nanos = Nanos::from_millis(800);

/// Goal: where all leave at once, all are told so, though one does not hear the first that is said of it.
#[test]
fn all_leave_though_one_hears_of_it_late() {
    for deaf in 0..3 {
        let mut room = Room::new(|options| options);
        room.gather();
        room.leave(&[0, 1, 2]);
        room.run_until_left(Places(0b111), SOON, first_install_to(deaf));
        assert_eq!(room.gone, Places(0b111), "deaf: {deaf}");
    }
}

/// Goal: where most members leave for a restart, a member that stays goes on and lets them in. It does so though it misses the first
/// message about that.
#[test]
fn most_leave_and_come_back() {
    for stays in 0..3 {
        let mut room = Room::new(|options| options);
        room.gather();
        let leavers = [(stays + 1) % 3, (stays + 2) % 3];
        room.leave(&leavers);
        let gone = Places(0b111).without(Places::only(stays));
        let mut loses_install = first_install_to(stays);
        room.run_until_left(gone, PATIENCE, |target, message| {
            // One of those who leave leads.
            if is_kind(message, PREPARE) && message[2] == stays as u8 {
                message.clear();
            }
            loses_install(target, message);
        });
        assert_eq!(room.gone, gone, "{stays} stays");
        for place in leavers {
            let anew = GroupOptions { founds: false, ..options(place as u64) };
            room.members[place] = Member::new(anew, 90 + place as u64, room.now).unwrap();
        }
        let life = room.members[stays].life();
        room.gone = Places::NONE;
        room.gather();
        assert!(room.members[0].view().includes(stays, life), "{stays} stays");
    }
}

/// Goal: where nothing is lost, who leaves goes as soon as the others are in the next view, and says nothing for that.
#[test]
fn one_leaves_without_a_word() {
    for leaver in 0..3 {
        let mut room = Room::new(|options| options);
        room.gather();
        room.leave(&[leaver]);
        let mut words = 0;
        room.run_until_left(Places::only(leaver), SOON, |_, message| {
            let is_said_by_it = message.get(2) == Some(&(leaver as u8));
            words += u32::from(is_said_by_it && (is_kind(message, INSTALL) || is_kind(message, ACCEPTED)));
        });
        // Its promise to the ballot that puts it out was accepted, at both others or at the leader.
        assert!(room.gone.contains(leaver) && words <= 1, "{leaver}: {words}");
        assert!(room.now < Nanos::from_millis(410), "{leaver}: {:?}", room.now);
    }
}

/// Goal: a member that leaves does not wait for a life that was put out with it, once another one speaks at its place.
#[test]
fn a_leaving_member_waits_for_no_life_that_is_over() {
    let mut room = Room::new(|options| options);
    room.gather();
    let life = room.members[1].life();
    room.leave(&[2]);
    room.run_until_left(Places::only(2), SOON, |_, message| {
        if is_kind(message, PROMISE) && message[2] == 1 {
            message.clear();
        }
    });
    assert_ne!(room.members[1].life(), life, "the others go on without it");
    assert!(room.gone.contains(2));
}

/// Goal: a user that has not taken the end of the view does not keep who leaves: its member says that it knows.
#[test]
fn a_leaving_member_waits_for_no_user() {
    let mut room = with_a_view_that_ends();
    let until = room.now.plus(SOON);
    let mut has_left = false;
    while room.now < until && !has_left {
        room.run(Nanos::from_micros(100), |_, _| {});
        has_left = [0, 2].into_iter().any(|place| room.events(place).contains(&Event::Left));
    }
    assert!(has_left && room.members[1].is_finishing_view());
}

/// Goal: a member that leaves and hears too few goes in the end.
#[test]
fn a_member_that_is_cut_off_leaves() {
    let mut room = Room::new(|options| options);
    room.gather();
    room.leave(&[1]);
    room.run_until_left(Places::only(1), Nanos::from_millis(800), |_, message| message.clear());
    assert!(room.gone.is_empty(), "the others may come back");
    while !room.members[1].has_left() {
        room.run(Nanos::from_millis(1), |_, message| message.clear());
        assert!(room.now < Nanos::from_millis(12_000));
    }
    let events = room.events(1);
    assert!(events.ends_with(&[Event::Expelled, Event::Left]), "the others may have gone on: {events:?}");
}

/// Goal: a message that a leaving member has accepted from its user is delivered, though there is no credit yet for most of it.
#[test]
fn a_leaving_member_says_all_before() {
    let mut room = Room::new(|options| options);
    room.gather();
    say(&mut room, 1, 7, 19 * 64, Guarantee::Uniform);
    room.leave(&[1]);
    let mut delivered = [0; 3];
    for _ in 0..500 {
        room.run(Nanos::from_micros(100), |_, _| {});
        (0..3).for_each(|place| delivered[place] += told(&mut room, place).len());
    }
    assert_eq!((delivered, room.members[1].has_left()), ([1; 3], true));
}

/// Goal: but not for ever: a user that takes nothing does not keep it.
#[test]
fn a_leaving_member_does_not_wait_long_for_credit() {
    let mut room = Room::new(|options| options);
    room.gather();
    say(&mut room, 1, 7, 19 * 64, Guarantee::Uniform);
    room.leave(&[1]);
    for _ in 0..1_000 {
        room.run(Nanos::from_micros(400), |_, _| {});
        [0, 1].into_iter().for_each(|place| drop(room.events(place)));
    }
    assert!(room.members[1].has_left());
}

/// A group of three in which 2 leaves, and misses the only frame of a message that 0 and 1 hold. `alter` sees all messages behind that.
/// Returns what 2 is told besides views: messages, and an expulsion as 0.
fn told_to_a_leaver_that_lacks_a_frame(mut alter: impl FnMut(usize, &mut Vec<u8>)) -> Vec<u8> {
    let mut room = Room::new(|options| options);
    room.gather();
    say(&mut room, 0, 7, 10, Guarantee::Uniform);
    for message in room.said_by(0) {
        room.hear(1, 0, &message);
    }
    room.leave(&[2]);
    let mut all = Vec::new();
    let until = room.now.plus(PATIENCE);
    while room.now < until && !room.members[2].has_left() {
        room.run(Nanos::from_micros(100), &mut alter);
        [0, 1].into_iter().for_each(|place| drop(room.events(place)));
        while let Some(event) = room.members[2].poll_event() {
            match event {
                Event::Delivered(_) => all.push(room.members[2].message()[0]),
                Event::Expelled => all.push(0),
                _ => {}
            }
        }
    }
    assert!(room.members[2].has_left());
    all
}

/// Goal: a leaving member that lacks a frame when the others agree on the next view gets it, and its user the message. Method: repairs
/// come to it once the others could have gone on.
#[test]
fn a_leaving_member_gets_what_it_lacks() {
    let (mut is_proposed, mut late) = (false, 4);
    let told = told_to_a_leaver_that_lacks_a_frame(|target, message| {
        is_proposed |= is_kind(message, ACCEPT);
        if target == 2 && is_kind(message, DATA) {
            late -= u32::from(is_proposed && late > 0);
            if late > 0 {
                message.clear();
            }
        }
    });
    assert_eq!(told, [7]);
}

/// Goal: a leaving member that did not get a message before the others went on is told that it may lack something. Then it is told that
/// it has left. Nobody waits for it for ever.
#[test]
fn a_leaving_member_that_lacks_a_message_is_told() {
    let told = told_to_a_leaver_that_lacks_a_frame(|target, message| {
        if target == 2 && is_kind(message, DATA) {
            message.clear();
        }
    });
    assert_eq!(told, [0]);
}

/// Goal: a leaver tells nodes that were let in how the view came to be, also if they have heard a member name it. That member is gone,
/// and nobody else knows.
#[test]
fn a_leaver_tells_those_who_heard_of_the_view() {
    let mut room = Room::of(4, Mutants::NONE, |options| options);
    [2, 3].into_iter().for_each(|place| room.gone.insert(place));
    room.run_and_take(Nanos::from_millis(100));
    assert_eq!(room.members[0].view().size(), 2);
    [2, 3].into_iter().for_each(|place| room.gone.remove(place));
    room.leave(&[0]);
    let is_of_three = |room: &Room| room.members[1].view().size() == 3;
    for _ in 0..100 {
        if is_of_three(&room) {
            break;
        }
        room.run(Nanos::from_micros(100), |target, message| {
            if target >= 2 && is_kind(message, INSTALL) {
                message.clear();
            }
        });
        (0..2).for_each(|place| drop(room.events(place)));
    }
    assert!(is_of_three(&room) && room.members[0].view().size() == 2);
    // They hear that it is in a view, and nothing of how that came to be.
    room.run(Nanos::from_millis(2), |target, message| {
        if is_kind(message, INSTALL) || target == 0 {
            message.clear();
        }
    });
    room.gone.insert(1);
    room.run(Nanos::from_millis(20), |_, message| {
        if is_kind(message, INSTALL) {
            message.clear();
        }
    });
    room.run_and_take(PATIENCE);
    let sizes = [2, 3].map(|place| room.members[place].view().size());
    assert_eq!(sizes, [2, 2]);
}
