//! Account of a member, whatever others say and wherever it is.

use super::*;
use crate::broadcast::message::{Status, Words};

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
