//! Any bytes parse as a message about time or are refused. A message that parses writes back to itself and does a node no harm.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_proto::time_sync::{STATUS_SIZE, StampClock, SyncOptions, Synchroniser, TimeMessage};
use punctual_proto::{Nanos, NodeId};

fuzz_target!(|bytes: &[u8]| {
    let own = NodeId::new(8).expect("neither zero nor all ones");
    let clock = StampClock { domain: 1, scale: 1 << 32, is_slewed: false };
    let mut node = Synchroniser::new(own, 1, clock, SyncOptions::default(), Nanos(0));
    let mut now = Nanos(0);
    // Two bytes say who and when, the others are the message.
    for part in bytes.chunks(2 + STATUS_SIZE) {
        let [who, when, rest @ ..] = part else { continue };
        let source = NodeId::new(u64::from(who & 15) + 1).expect("neither zero nor all ones");
        now = now.plus(Nanos(u64::from(*when) << (when & 31)));
        for bytes in [rest, &rest[..rest.len().min(24)]] {
            let Ok(message) = TimeMessage::parse(bytes) else { continue };
            let mut again = [0; STATUS_SIZE];
            let size = message.write(&mut again);
            assert_eq!(&again[..size], bytes);
            // Most of what is made up is of another life: show it as of one that we know, too.
            for life in [message.life, 1] {
                node.handle_message(source, &TimeMessage { life, ..message }, now);
            }
        }
        node.handle_timeout(now);
        let sent = std::iter::from_fn(|| node.poll_transmit(now)).take(1_000).count();
        assert!(sent < 1_000, "it never ends");
        let _any_answer = (node.offset(now), node.one_way(source, now, now));
    }
});
