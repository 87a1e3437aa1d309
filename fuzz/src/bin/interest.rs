//! Any bytes parse as a message of interest and response or are refused. A message that parses writes back to itself, and does neither
//! a publisher nor a subscriber harm.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_proto::interest::{
    MESSAGE_SIZE, Message, Period, Publication, PublicationLimits, Repetition, Saying, Subscription, TopicKey,
};
use punctual_proto::unit::{Data, Metre, Quantity};
use punctual_proto::{Address, Nanos, NodeId, Port};

const KEY: TopicKey = TopicKey { topic: 0, data: Quantity::<Metre, f32>::TYPE };

fn address(number: u8) -> Address {
    let node = NodeId::new(u64::from(number >> 4) + 1).expect("neither zero nor all ones");
    Address { node, port: Port::from(u16::from(number & 15)) }
}

fuzz_target!(|bytes: &[u8]| {
    let limits = PublicationLimits { interests_max: 16, periods_max: 4, ..PublicationLimits::default() };
    let mut publication = Publication::new(KEY, address(0), 1, limits, Nanos(0));
    let mut subscription = Subscription::new(KEY, 1, 1_000, Repetition::default(), Nanos(0));
    let mut now = Nanos(0);
    // One byte says who and when, the others are the message.
    for part in bytes.chunks(1 + MESSAGE_SIZE + KEY.data.size()) {
        let Some((&first, rest)) = part.split_first() else { continue };
        now = now.plus(Nanos(u64::from(first) << (first & 31)));
        for bytes in [rest, &rest[..rest.len().min(MESSAGE_SIZE)]] {
            let Ok(message) = Message::parse(bytes) else { continue };
            check_written(&message, bytes);
            // Most of what is made up is of another topic: show it as ours too.
            for message in [message, Message { key: KEY, ..message }] {
                publication.handle_message(address(first), &message, now);
                subscription.handle_message(address(first), &message, now);
            }
        }
        publication.handle_timeout(now);
        while publication.poll_transmit().is_some() {}
        while publication.poll_due(now).is_some() {}
        while subscription.poll_transmit(now).is_some() {}
        let users: u32 = publication.schedule().periods().iter().map(Period::users).sum();
        assert_eq!(users as usize, publication.interests().count());
        assert!(publication.interests().count() <= 16 && publication.schedule().periods().len() <= 4);
    }
});

fn check_written(message: &Message<'_>, bytes: &[u8]) {
    let mut head = [0; MESSAGE_SIZE];
    message.write_head(&mut head);
    assert_eq!(head, bytes[..MESSAGE_SIZE]);
    assert_eq!(message.size(), bytes.len());
    if let Saying::Response { value, .. } = message.saying {
        assert_eq!(value, &bytes[MESSAGE_SIZE..]);
    }
}
