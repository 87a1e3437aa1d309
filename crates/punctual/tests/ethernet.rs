//! Raw Ethernet between two interfaces whose MTU is not the usual one, or changes.

mod common;

use common::{PATIENCE, on_ethernet, open_both, watchdog};
use punctual::Target;
use punctual_machine::namespace::set_mtu;

/// Goal: a message that is refused costs itself alone: what was queued behind it arrives, though its sender does nothing more. Method:
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
