//! Raw Ethernet between two interfaces whose MTU is not the usual one, or changes.

mod common;

use common::{PATIENCE, itself, on_ethernet, open_both, watchdog};
use punctual::Target;
use punctual_machine::namespace::set_mtu;

/// Goal: a message that is refused costs itself alone: messages queued behind it arrive, though their sender does nothing more. Method:
/// the MTU shrinks below the first of ten.
#[test]
fn a_refused_message_holds_up_no_other() {
    let _alive = watchdog(60);
    on_ethernet(|medium| {
        let (here, there) = open_both(medium);
        let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
        let target = Target::port("there", 1);
        set_mtu("pta", 1_000).unwrap();
        sender.queue(target, &[0; 1_400]).unwrap();
        for number in 1..10 {
            sender.queue(target, &[number; 20]).unwrap();
        }
        sender.flush();
        for number in 1..10 {
            assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, [number; 20]);
        }
        here.housekeep();
        assert_eq!(here.ledger().refused, 1, "{}", here.ledger());
    });
}

/// Goal: a message is as large as the interface carries, and arrives whole. Method: jumbo frames, and the most that a pair can carry.
#[test]
fn a_message_fills_the_largest_frame() {
    let _alive = watchdog(60);
    on_ethernet(|medium| {
        for mtu in [9_000, 65_535] {
            for interface in ["pta", "ptb"] {
                set_mtu(interface, mtu).unwrap();
            }
            let (here, there) = open_both(medium);
            let (mut sender, mut receiver) = (here.bind(1).unwrap(), there.bind(1).unwrap());
            let size_max = sender.payload_size_max();
            assert!(size_max > mtu - 100 && size_max < mtu, "{size_max}");
            let payload: Vec<u8> = (0..size_max).map(|at| (at % 251) as u8).collect();
            sender.send_timeout(Target::port("there", 1), &payload, PATIENCE).unwrap();
            assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().payload, payload);
        }
    });
}

/// Goal: why a test is skipped is seen, though it passes. Method: this program runs one of its tests where the medium is left out.
#[test]
fn the_reason_of_a_skip_is_seen() {
    let test = "a_message_fills_the_largest_frame";
    let ran = itself().args([test, "--exact"]).env("PUNCTUAL_TEST_WITHOUT", "ethernet").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let reasons: Vec<&str> = said.lines().filter(|line| line.starts_with("SKIPPED")).collect();
    assert_eq!(reasons, [format!("SKIPPED {test}: ethernet: PUNCTUAL_TEST_WITHOUT names it")]);
}
