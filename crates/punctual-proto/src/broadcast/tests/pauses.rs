//! Members that are not run for a while, and users that are away.

use super::*;

/// Goal: a member that was not run for long accuses nobody, as it has read nothing meanwhile. One that runs and hears nothing does.
#[test]
fn a_member_that_did_not_run_suspects_nobody() {
    let mut room = Room::new(|options| options);
    room.gather();
    let member = &mut room.members[2];
    let mut accuses = |now: Nanos| {
        let (mut buffer, mut suspects) = ([0; 4_096], 0);
        member.handle_timeout(now);
        while let Some(said) = member.poll_transmit(now, &mut buffer) {
            suspects |= if is_kind(&buffer[..said.size], STATUS) { buffer[72] } else { 0 };
        }
        (suspects, member.is_stopped())
    };
    let away = Nanos::from_millis(500);
    assert_eq!(accuses(room.now.plus(away)), (0, false));
    let later = |heartbeats: u32| room.now.plus(away).plus(Nanos::from_millis(10 * heartbeats));
    assert_eq!((1..=8).map(|beat| accuses(later(beat)).0).max(), Some(0), "too soon");
    assert_eq!((9..=12).map(|beat| accuses(later(beat))).max(), Some((3, true)));
}

/// Goal: a user that is away finds, of all the times that its member stopped and went on, at most the last.
#[test]
fn stops_that_are_over_are_told_to_nobody() {
    let mut room = Room::new(|options| options);
    room.gather();
    let is_of_a_stop = |event: &Event| matches!(event, Event::Stopped | Event::Resumed);
    let mut stops = 0;
    for _ in 0..10 {
        room.run(Nanos::from_millis(1_000), |_, message| message.clear());
        stops += u32::from(room.members[2].is_stopped());
        room.run(Nanos::from_millis(200), |_, _| {});
        assert!(!room.members[2].is_stopped());
    }
    assert_eq!((stops, room.events(2).iter().filter(|event| is_of_a_stop(event)).count()), (10, 0));
}

/// Goal: a member that stands still again and again, each time for longer than it may, is given more time, and is put out no more.
#[test]
fn pauses_that_recur_are_borne_in_the_end() {
    let mut room = Room::new(|options| options);
    room.gather();
    let mut expelled = Vec::new();
    for _ in 0..6 {
        let before = room.expelled();
        room.gone.insert(2);
        room.run_and_take(Nanos::from_millis(160));
        room.gone.remove(2);
        room.gather();
        expelled.push(room.expelled() - before);
    }
    assert_eq!((expelled[0], &expelled[3..]), (1, &[0, 0, 0][..]), "{expelled:?}");
}

/// Goal: the same of a member that finds the end of its view behind all else that waits for it. Its old life says nothing more.
#[test]
fn pauses_that_recur_are_borne_by_those_who_hear_the_next_life() {
    let mut room = Room::new(|options| options);
    room.gather();
    let mut expelled = Vec::new();
    for _ in 0..6 {
        let before = room.expelled();
        let waiting = room.run_and_keep(Nanos::from_millis(160), 2);
        for (source, message) in waiting {
            room.hear(2, source, &message);
        }
        room.gather();
        expelled.push(room.expelled() - before);
    }
    assert_eq!((expelled[0], &expelled[3..]), (1, &[0, 0, 0][..]), "{expelled:?}");
}
