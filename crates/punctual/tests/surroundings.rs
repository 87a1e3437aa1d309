//! Events of a host while nodes are open: an interface that goes down and comes back.

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, on_ethernet, open_both, watchdog};
use punctual::{Communicator, CommunicatorOptions, Target, Wake};
use punctual_machine::clock::thread_cpu_ns;
use punctual_machine::namespace::{bring_down, bring_up};

/// Sends until one of the messages arrives.
fn talk(sender: &mut Communicator, receiver: &mut Communicator) {
    let give_up = Instant::now() + PATIENCE;
    let target = Target::port(receiver.address().node, 1);
    loop {
        sender.send_timeout(target, b"again", PATIENCE).unwrap();
        if receiver.receive_timeout(Duration::from_millis(50)).is_ok() {
            while receiver.try_receive().is_ok() {}
            return;
        }
        assert!(Instant::now() < give_up, "nothing arrives");
    }
}

/// Goal: while an Ethernet interface is down, who waits sleeps and what is sent is counted as lost on its way; when it is up
/// again, all goes on.
/// Method: the CPU time of a thread that waits on the interface that is down, against how long it waited.
#[test]
fn an_interface_goes_down_and_up() {
    let _alive = watchdog(90);
    on_ethernet(|medium| {
        for wake in [Wake::Epoll, Wake::Backoff, Wake::Adaptive] {
            let (here, there) = open_both(medium);
            let options = CommunicatorOptions::waiting(wake);
            let mut sender = here.bind_with(1, &options).unwrap();
            let mut receiver = there.bind_with(1, &options).unwrap();
            talk(&mut sender, &mut receiver);
            bring_down("ptb").unwrap();
            let (cpu_before, started) = (thread_cpu_ns(), Instant::now());
            while started.elapsed() < Duration::from_millis(400) {
                let waited = receiver.receive_timeout(Duration::from_millis(100));
                assert!(waited.is_err(), "{wake}: out of nowhere");
            }
            let (cpu, waited) = (thread_cpu_ns() - cpu_before, started.elapsed().as_nanos() as u64);
            assert!(cpu < waited / 4, "{wake}: {cpu} ns of CPU time in {waited} ns of waiting");
            // The end that is down refuses; messages to it from the other end are lost.
            for _ in 0..20 {
                receiver.send_timeout(Target::EVERYONE, b"into the void", PATIENCE).unwrap();
                sender.send_timeout(Target::EVERYONE, b"into the void", PATIENCE).unwrap();
            }
            let ledger = there.ledger();
            assert!(ledger.is_balanced() && ledger.refused >= 20, "{wake}: {ledger}");
            bring_up("ptb").unwrap();
            talk(&mut sender, &mut receiver);
            talk(&mut receiver, &mut sender);
            let (ours, theirs) = (here.ledger(), there.ledger());
            assert!(ours.is_balanced() && theirs.is_balanced(), "{wake}: {ours}, {theirs}");
            assert_eq!((ours.bad_frames, theirs.bad_frames), (0, 0), "{wake}");
        }
    });
}
