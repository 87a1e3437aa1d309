//! Delays that are made in one stage of a message, and the stage in which they show: the right one, and no other's.

mod common;

use std::os::fd::AsFd;
use std::time::Duration;

use common::{PATIENCE, media, open_both, unique, watchdog};
use punctual::engine::faulty::Faults;
use punctual::{Bus, Clock, Communicator, CommunicatorOptions, NodeOptions, Stage, Stages, Target, Wake};
use punctual_machine::epoll::EpollSet;

const MESSAGES: usize = 101;
const DELAY: Duration = Duration::from_micros(20);

fn compute(time: Duration) {
    let clock = Clock::get();
    let end = clock.now().plus(clock.ticks(time));
    while clock.now() < end {
        std::hint::spin_loop();
    }
}

fn options() -> CommunicatorOptions {
    CommunicatorOptions::waiting(Wake::Spin).stamped().recording(MESSAGES)
}

/// Medians of all stages, nanoseconds, in order. The first message, which knows least, is left out.
fn medians(receiver: &mut Communicator) -> [u64; Stage::ALL.len()] {
    let records: Vec<Stages> = receiver.recorded().skip(1).map(|record| record.stages).collect();
    assert!(records.len() > MESSAGES / 2);
    for stages in &records {
        assert_eq!(stages.unexplained(), Some(0), "{stages:?}");
    }
    Stage::ALL.map(|stage| {
        let of = |stages: &Stages| Clock::get().nanos(stages.time_in(stage).expect("one clock"));
        let mut all: Vec<u64> = records.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    })
}

/// The delay is in this stage, and this stage is the longest.
fn assert_longest(what: &str, receiver: &mut Communicator, stage: Stage) {
    let medians = medians(receiver);
    let place = Stage::ALL.iter().position(|&one| one == stage).expect("one of all");
    assert!(u128::from(medians[place]) + 1 >= DELAY.as_nanos(), "{what}: {stage:?} in {medians:?}");
    assert_eq!(medians.iter().max(), Some(&medians[place]), "{what}: {stage:?} in {medians:?}");
}

/// Goal: a sender that is late is late, and a receiver that does something else is elsewhere: it is not woken, and the medium
/// is not slow.
#[test]
fn a_delay_shows_at_the_side_that_made_it() {
    let _alive = watchdog(60);
    for medium in media() {
        let (here, there) = open_both(&medium);
        let bind = || (here.bind_with(1, &options()).unwrap(), there.bind_with(1, &options()).unwrap());
        let target = Target::port("there", 1);
        let (mut sender, mut receiver) = bind();
        sender.send_timeout(target, b"found", PATIENCE).unwrap();
        receiver.receive_timeout(PATIENCE).unwrap();
        for _ in 1..MESSAGES {
            let due = Clock::get().now();
            compute(DELAY);
            sender.try_send_due(target, b"late", Some(due)).unwrap();
            receiver.receive_timeout(PATIENCE).unwrap();
        }
        // A socket's own call may take as long; on memory nothing does.
        if medium.in_memory {
            assert_longest(medium.name, &mut receiver, Stage::Sent);
        }
        drop((sender, receiver));
        let (mut sender, mut receiver) = bind();
        for _ in 0..MESSAGES {
            sender.send_timeout(target, b"waits", PATIENCE).unwrap();
            // A socket's own call, which is the medium's time, may take as long as that.
            compute(if medium.in_memory { DELAY } else { DELAY * 10 });
            receiver.receive_timeout(PATIENCE).unwrap();
        }
        assert_longest(medium.name, &mut receiver, Stage::Elsewhere);
    }
}

/// Goal: a receiver that is armed in an event loop is woken by what came since. It was not elsewhere, however late its sender flushes. A
/// loop that did something else, and finds a message as it arms, was.
#[test]
fn an_armed_receiver_is_not_elsewhere() {
    let _alive = watchdog(120);
    for medium in media() {
        // A socket's own call, which is the medium's time, may take as long as that.
        let delay = if medium.in_memory { DELAY } else { DELAY * 10 };
        let (here, there) = open_both(&medium);
        let bind = || (here.bind_with(1, &options()).unwrap(), there.bind_with(1, &options()).unwrap());
        let target = Target::port("there", 1);
        let (mut sender, mut receiver) = bind();
        let set = EpollSet::new().unwrap();
        set.add(receiver.as_fd()).unwrap();
        for _ in 0..MESSAGES {
            while !receiver.arm() {
                assert!(receiver.try_receive().is_err(), "nothing was sent");
            }
            sender.queue(target, b"held").unwrap();
            compute(delay);
            sender.flush();
            set.wait(Some(PATIENCE));
            receiver.receive_timeout(PATIENCE).unwrap();
        }
        assert_longest(medium.name, &mut receiver, Stage::Woken);
        let place = Stage::ALL.iter().position(|&one| one == Stage::Elsewhere).expect("one of all");
        assert_eq!(medians(&mut receiver)[place], 0, "{}", medium.name);
        drop((sender, receiver));
        let (mut sender, mut receiver) = bind();
        for _ in 0..MESSAGES {
            sender.send_timeout(target, b"waits", PATIENCE).unwrap();
            compute(delay);
            let is_armed = receiver.arm();
            assert!(!is_armed || !medium.in_memory, "it is there already");
            receiver.receive_timeout(PATIENCE).unwrap();
        }
        assert_longest(medium.name, &mut receiver, Stage::Elsewhere);
    }
}

/// Goal: the time for which the medium holds a message back is the medium's, even if the receiver waits for it awake.
#[test]
fn a_delay_of_the_medium_shows_in_the_medium() {
    let _alive = watchdog(60);
    let bus = Bus::loopback(&unique("medium"));
    let here = NodeOptions::new("here").open(&bus).unwrap();
    let slow = Faults { delay: DELAY * 5, ..Faults::seeded(1) };
    let there = NodeOptions::new("there").faults(slow).open(&bus).unwrap();
    let mut sender = here.bind_with(1, &options()).unwrap();
    let mut receiver = there.bind_with(1, &options()).unwrap();
    for _ in 0..MESSAGES {
        sender.send_timeout(Target::port("there", 1), b"held", PATIENCE).unwrap();
        receiver.receive_timeout(PATIENCE).unwrap();
    }
    assert_longest("loopback", &mut receiver, Stage::Medium);
}

/// Goal: a thread that spins is never woken, and a thread that sleeps is; and no stage of any message is charged with another's time.
#[test]
fn only_sleepers_are_woken() {
    let _alive = watchdog(120);
    for wake in Wake::ALL.into_iter().filter(|&wake| wake != Wake::Signal) {
        for medium in media().into_iter().filter(|medium| wake.can_wait_for(medium.rings)) {
            let (here, there) = open_both(&medium);
            let mut sender = here.bind_with(1, &options()).unwrap();
            let waiting = CommunicatorOptions::waiting(wake).stamped().recording(MESSAGES);
            let mut receiver = there.bind_with(1, &waiting).unwrap();
            let listening = std::thread::spawn(move || {
                for _ in 0..MESSAGES {
                    receiver.receive_timeout(PATIENCE).unwrap();
                }
                receiver
            });
            for _ in 0..MESSAGES {
                // Long enough for any of them to fall asleep.
                std::thread::sleep(Duration::from_millis(1));
                sender.send_timeout(Target::port("there", 1), b"wake", PATIENCE).unwrap();
            }
            let mut receiver = listening.join().expect("all came");
            medians(&mut receiver);
            let is_woken = |stages: &Stages| stages.time_in(Stage::Woken).is_some_and(|time| time.0 > 0);
            let woken = receiver.recorded().skip(1).filter(|record| is_woken(&record.stages)).count();
            match wake {
                Wake::Spin => assert_eq!(woken, 0, "{} {wake}", medium.name),
                // On a busy machine it may be late so often that most messages are there before it sleeps.
                Wake::Futex | Wake::EventFd | Wake::Epoll => assert!(woken > 0, "{} {wake}", medium.name),
                // They may or may not have slept.
                _ => {}
            }
        }
    }
}
