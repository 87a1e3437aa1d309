//! Members whose options are not those of the group.

use super::*;
use crate::broadcast::Unequal;

/// A group of two and a third member, whose options are changed, and what that one's user is told of it.
fn room_with_third(change: impl Fn(&mut GroupOptions)) -> (Room, Vec<Unequal>) {
    let mut room = Room::new(|options| options);
    let mut options = options(2);
    change(&mut options);
    room.members[2] = Member::new(options, 13, Nanos(0)).unwrap();
    let mut told = Vec::new();
    for _ in 0..20 {
        room.run(Nanos::from_millis(20), |_, _| {});
        for place in 0..3 {
            told.extend(room.events(place).into_iter().filter_map(|event| match event {
                Event::Unequal(unequal) => Some(unequal),
                _ => None,
            }));
        }
    }
    (room, told)
}

/// Goal: a member whose options would make it deliver otherwise is not taken, and knows why; the others go on without it.
#[test]
fn a_member_with_other_options_is_told() {
    let changes: [(fn(&mut GroupOptions), Unequal); 4] = [
        (|options| options.roster.swap(0, 1), Unequal::Roster),
        (|options| options.frame_size = 65, Unequal::FrameSize { here: 65, there: 64 }),
        (|options| options.window = 7, Unequal::Window { here: 7, there: 8 }),
        (|options| options.message_size_max = 9, Unequal::MessageSize { here: 9, there: 1 << 20 }),
    ];
    for (change, unequal) in changes {
        let (room, told) = room_with_third(change);
        assert_eq!(told, [unequal], "once, and nobody else");
        let sizes: Vec<usize> = room.members.iter().map(|member| member.view().size()).collect();
        assert_eq!(sizes, [2, 2, 0], "{unequal}");
        assert!(!room.members[0].is_stopped(), "{unequal}");
    }
}

/// Goal: members may differ in their times, and a member that is taken knows of no difference.
#[test]
fn times_may_differ() {
    let (room, told) = room_with_third(|options| options.heartbeat = Nanos::from_millis(20));
    assert!(room.is_whole() && told.is_empty());
}

/// Goal: a member that was refused joins once the group has its options.
#[test]
fn a_refused_member_joins_another_group() {
    let (mut room, _) = room_with_third(|options| options.window = 7);
    for place in [0, 1] {
        let (options, life) = (options(place), 21 + place);
        room.members[place as usize] =
            Member::new(GroupOptions { window: 7, ..options }, life, room.now).unwrap();
    }
    room.run_and_take(Nanos::from_millis(400));
    assert!(room.is_whole());
}
