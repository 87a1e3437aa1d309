//! Small messages that wait for company in a frame.

use super::*;

/// Own frames under way with which the next small message waits.
const UNDER_WAY: usize = 16;

/// Goal: a message that waits goes with the message that shows that a majority holds a frame before it; nothing more need come.
/// Method: all that is said to its sender is kept until it waits.
#[test]
fn a_message_goes_once_its_place_is_free() {
    let mut room = Room::new(|options| GroupOptions { window: 64, ..options });
    room.gather();
    let send = |room: &mut Room| {
        let now = room.now;
        room.members[1].try_broadcast(b"small", Guarantee::Agreed, now).unwrap();
    };
    let mut kept = Vec::new();
    for _ in 0..UNDER_WAY {
        send(&mut room);
        room.run(Nanos::from_micros(100), |target, message| {
            if target == 1 {
                kept.push((usize::from(message[2]), core::mem::take(message)));
            }
        });
    }
    (0..3).for_each(|place| drop(room.events(place)));
    send(&mut room);
    let has_data = |room: &mut Room| room.said_by(1).iter().any(|message| is_kind(message, DATA));
    assert!(room.members[1].is_gathering() && !has_data(&mut room));
    for (source, message) in kept {
        room.hear(1, source, &message);
    }
    drop(room.events(1));
    assert!(has_data(&mut room));
}
