//! Members whose options are not those of the group.

use super::*;
use crate::broadcast::Mismatch;
use crate::broadcast::message::{REFUSAL, VERSION};
use crate::broadcast::options::Terms;

/// Changes one of a member's options.
type Change = fn(&mut GroupOptions);

/// A group of two, and a third member whose options are changed.
fn room_with_third(change: impl Fn(&mut GroupOptions)) -> Room {
    let mut room = Room::new(|options| options);
    let mut options = options(2);
    change(&mut options);
    room.members[2] = Member::new(options, 13, Nanos(0)).unwrap();
    room
}

/// Lets time pass, while all users take what there is. Returns what they are told of options.
fn told(room: &mut Room, time: Nanos) -> Vec<(usize, Mismatch)> {
    let until = room.now.plus(time);
    let mut told = Vec::new();
    while room.now < until {
        room.run(Nanos::from_millis(10), |_, _| {});
        for place in 0..room.size() {
            told.extend(room.events(place).into_iter().filter_map(|event| match event {
                Event::Mismatch(mismatch) => Some((place, mismatch)),
                _ => None,
            }));
        }
    }
    told
}

fn sizes(room: &Room) -> Vec<usize> {
    room.members.iter().map(|member| member.view().size()).collect()
}

/// Goal: a member whose options would make it deliver otherwise is not taken, and knows why; the others go on without it.
#[test]
fn a_member_with_other_options_is_told() {
    let changes: [(Change, Mismatch, &str); 4] = [
        (|options| options.roster.swap(0, 1), Mismatch::Roster, "the group has another roster: "),
        (
            |options| options.frame_size = 65,
            Mismatch::FrameSize { here: 65, there: 64 },
            "frame_size is 65 bytes ",
        ),
        (
            |options| options.window = 7,
            Mismatch::Window { here: 7, there: 8 },
            "window is 7 frames at this member and 8 in",
        ),
        (
            |options| options.message_size_max = 9,
            Mismatch::MessageSize { here: 9, there: 1 << 20 },
            "message_size_max is 9 bytes ",
        ),
    ];
    for (change, mismatch, words) in changes {
        let mut room = room_with_third(change);
        assert_eq!(told(&mut room, Nanos::from_millis(90)), [], "not before the time of suspicion");
        assert_eq!(told(&mut room, Nanos::from_millis(400)), [(2, mismatch)], "once, and nobody else");
        assert_eq!(room.members[2].mismatch(), Some(mismatch));
        assert!(mismatch.to_string().starts_with(words), "{mismatch}");
        assert_eq!(sizes(&room), [2, 2, 0], "{mismatch}");
        assert!(!room.members[0].is_stopped(), "{mismatch}");
    }
}

/// Goal: members may differ in their times, and a member that is taken knows of no difference.
#[test]
fn times_may_differ() {
    let mut room = room_with_third(|options| options.heartbeat = Nanos::from_millis(20));
    assert_eq!(told(&mut room, Nanos::from_millis(400)), []);
    assert!(room.is_whole() && room.members[2].mismatch().is_none());
}

/// Goal: a member that was refused joins once the group has its options, even if its user has not taken the refusal; then there is none.
#[test]
fn a_refused_member_joins_another_group() {
    let run = |room: &mut Room| {
        for _ in 0..40 {
            room.run(Nanos::from_millis(10), |_, _| {});
            [0, 1].into_iter().for_each(|place| drop(room.events(place)));
        }
    };
    let mut room = room_with_third(|options| options.window = 7);
    run(&mut room);
    assert!(room.members[2].mismatch().is_some());
    for place in [0, 1] {
        let (options, life) = (options(place), 21 + place);
        let options = GroupOptions { window: 7, ..options };
        room.members[place as usize] = Member::new(options, life, room.now).unwrap();
    }
    run(&mut room);
    assert!(room.is_whole() && room.members[2].mismatch().is_none());
    assert!(!room.events(2).iter().any(|event| matches!(event, Event::Mismatch(_))), "it is in a view");
}

/// Goal: a member that leaves is told of no refusal.
#[test]
fn a_member_that_leaves_is_not_refused() {
    let mut room = room_with_third(|options| options.window = 7);
    room.run(Nanos::from_millis(50), |_, _| {});
    let now = room.now;
    room.members[2].leave(now);
    assert_eq!(told(&mut room, Nanos::from_millis(400)), []);
}

/// Goal: the sequencer alone answers, the one that asked alone, and only for its own group. A node outside the roster refuses nobody.
#[test]
fn others_neither_answer_nor_refuse() {
    let mut room = Room::new(|options| options);
    room.gather();
    let own = options(0).terms();
    let other = Terms { window: own.window + 1, ..own };
    let mut buffer = [0; 256];
    let join = |buffer: &mut [u8], group: u64, terms: Terms, room: &Room| {
        let head = Head { group, life: 99, view: 0, ..head_of(room, 2) };
        let size = Draft::terms(buffer, &head, None, (terms, false)).finish().unwrap();
        buffer[..size].to_vec()
    };
    let answers = |room: &mut Room, place: usize| {
        room.said_by(place).iter().filter(|message| is_kind(message, REFUSAL)).count()
    };
    for (group, place, expected) in [(7, 0, 1), (7, 1, 0), (8, 0, 0)] {
        let asked = join(&mut buffer, group, other, &room);
        room.hear(place, 2, &asked);
        room.hear(place, 2, &asked);
        assert_eq!(answers(&mut room, place), expected, "group {group}, member {place}");
    }
    assert!(room.is_whole() && room.expelled() == 0);

    let mut alone = Member::new(options(2), 13, Nanos(0)).unwrap();
    let head = Head { life: 5, ..head_of(&room, 0) };
    let size = Draft::terms(&mut buffer, &head, None, (other, true)).finish().unwrap();
    let node = |number: u64| Address { node: NodeId::new(number).unwrap(), port: Port::from(1) };
    alone.handle_message(node(777), &buffer[..size], Nanos(0));
    assert!(alone.mismatch().is_none(), "a stranger");
    alone.handle_message(node(100), &buffer[..size], Nanos(0));
    assert!(alone.mismatch().is_some());
    // In a view it is not refused.
    let mut member = room.members.remove(2);
    member.handle_message(node(100), &buffer[..size], room.now);
    assert!(member.mismatch().is_none());
    assert_eq!(buffer[1], VERSION << 4 | REFUSAL);
}

/// Goal: a node that can be heard and hears nothing is in no view, and disturbs none.
#[test]
fn a_deaf_node_is_not_let_in() {
    let mut room = Room::new(|options| options);
    for _ in 0..100 {
        room.run(Nanos::from_millis(20), |target, message| {
            if target == 2 {
                message.clear();
            }
        });
        (0..3).for_each(|place| drop(room.events(place)));
    }
    assert_eq!(sizes(&room), [2, 2, 0]);
    assert_eq!(room.members[0].view().number, 2);
}

/// A group of which one member was in views and left, and one never was; the requests of another that has left come to the first now.
fn assert_requests_are_late(room: &mut Room, requests: &[Vec<u8>]) {
    assert!(room.members[2].has_left() && room.members[0].view().size() == 1);
    [1, 2].into_iter().for_each(|place| room.gone.insert(place));
    assert!(requests.iter().any(|message| is_kind(message, JOIN)));
    requests.iter().for_each(|request| room.hear(0, 2, request));
    room.run_and_take(Nanos::from_millis(500));
    assert_eq!(room.members[0].view().size(), 1, "nobody else is there");
    room.members[1] = Member::new(options(1), 31, room.now).unwrap();
    room.gone.remove(1);
    room.run_and_take(Nanos::from_millis(500));
    assert_eq!(room.members[0].view().size(), 2);
}

/// Goal: a request to join that was under way for long lets no life in that was in a view and has left. A group of one would wait for it
/// for ever.
#[test]
fn a_late_request_lets_nobody_in() {
    let mut room = Room::new(|options| options);
    let mut requests = Vec::new();
    room.run(Nanos::from_millis(400), |target, message| {
        let is_of_last = target == 0 && message.get(2) == Some(&2) && is_kind(message, JOIN);
        requests.extend(is_of_last.then(|| message.clone()));
    });
    let now = room.now;
    [1, 2].into_iter().for_each(|place| room.members[place].leave(now));
    room.run_and_take(Nanos::from_millis(500));
    assert_requests_are_late(&mut room, &requests);
}

/// Goal: the same where the member that is asked stands still until the one that asked has given up.
#[test]
fn a_request_that_is_read_late_lets_nobody_in() {
    let mut room = Room::new(|options| options);
    room.gone.insert(1);
    room.run(Nanos::from_millis(15), |target, message| {
        if target == 0 {
            message.clear();
        }
    });
    let mut waiting = room.run_and_keep(Nanos::from_millis(30), 0);
    let now = room.now;
    room.members[2].leave(now);
    waiting.extend(room.run_and_keep(Nanos::from_millis(300), 0));
    let requests: Vec<Vec<u8>> = waiting.into_iter().map(|(_, message)| message).collect();
    assert_requests_are_late(&mut room, &requests);
}
