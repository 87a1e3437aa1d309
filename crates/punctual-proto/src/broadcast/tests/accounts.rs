//! Account of a member, whatever others say and wherever it is.

use super::*;
use crate::broadcast::message::{Status, Words};
use crate::broadcast::view::View;

/// A status of a member that holds, and knows the order of, as much as there are numbers for.
fn boast(room: &Room, place: usize) -> Vec<u8> {
    let (head, mut buffer) = (Head { ordered: u64::MAX, ..head_of(room, place) }, [0; 256]);
    let status = Status {
        sent: 0,
        suspects: Places::NONE,
        asks: false,
        is_alone: false,
        unheld: Some(0),
        marks: Words::NONE,
    };
    let marks = core::iter::repeat_n(u64::MAX, room.size());
    let size = Draft::status(&mut buffer, &head, None, &status, marks).finish().unwrap();
    buffer[..size].to_vec()
}

/// Goal: a member that others tell the largest numbers has an account, and goes on. Method: messages that wait for a majority come after
/// two of three have said that they hold all there can be.
#[test]
fn the_largest_numbers_overflow_no_account() {
    let mut room = Room::new(|options| options);
    room.gather();
    for place in [0, 2] {
        let boast = boast(&room, place);
        room.hear(1, place, &boast);
    }
    let account = room.members[1].account();
    assert_eq!((account.uniform, account.slowest.is_some()), (u64::MAX, true), "it believes the sequencer");
    for place in [0, 2] {
        say(&mut room, place, 7, 10, Guarantee::Reliable);
        for message in room.said_by(place) {
            room.hear(1, place, &message);
        }
        let now = room.now;
        room.members[1].handle_timeout(now);
    }
    for place in 0..3 {
        assert!(room.members[1].behind(place).is_some());
    }
    assert_eq!(told(&mut room, 1).len(), 2);
}

/// Goal: a member that has left is in no view, lags behind nobody, and names nobody who holds it up. Others that ask it still hear how
/// its last view ended. Method: half a window is under way as it goes, which the last user does not take.
#[test]
fn a_member_that_has_left_is_nowhere() {
    let mut room = Room::new(|options| options);
    room.gather();
    for _ in 0..6 {
        room.broadcast(0).unwrap();
        room.run(Nanos::from_millis(1), |_, _| {});
        [0, 1].into_iter().for_each(|place| drop(room.events(place)));
    }
    // By now the last member cannot have told the sequencer alone what its user took.
    room.run(Nanos::from_millis(40), |_, _| {});
    assert_eq!(room.members[1].account().slowest, Some(2));
    let (now, view) = (room.now, room.members[1].view().number);
    let mut old = [0; 256];
    let size = Draft::bare(&mut old, &head_of(&room, 2), None, PREPARE).finish().unwrap();
    room.members[1].leave(now);
    let mut is_told = false;
    for _ in 0..2_000 {
        room.run(Nanos::from_micros(100), |_, _| {});
        is_told |= room.events(1).contains(&Event::Left);
        drop(room.events(0));
    }
    assert!(is_told && room.members[1].has_left() && view > 0);
    let member = &room.members[1];
    assert_eq!((member.view(), member.epoch()), (&View::nobody(3), 0));
    let account = member.account();
    assert_eq!((account.ordered, account.uniform, account.taken), (0, 0, 0));
    assert_eq!((account.lag, account.slowest), (0, None));
    assert_eq!([0, 1, 2].map(|place| member.behind(place)), [None; 3]);
    room.said_by(1);
    room.hear(1, 2, &old[..size]);
    assert!(room.said_by(1).iter().any(|message| is_kind(message, INSTALL)), "it answers");
}
