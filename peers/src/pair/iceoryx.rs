//! iceoryx2: publish-subscribe each way, copied in and out as everybody does.

use iceoryx2::port::backpressure_strategy::BackpressureStrategy;
use iceoryx2::port::{publisher::Publisher, subscriber::Subscriber};
use iceoryx2::prelude::{LogLevel, NodeBuilder, ipc, set_log_level};
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use punctual_machine::block;

use super::{Pair, patiently};
use crate::Outcome;
use crate::meeting::Meeting;

/// Samples that may be on their way in a stream: as many bytes of 1 KiB as the others' rings hold.
const HELD_SAMPLES: usize = 1024;

pub(super) struct Iceoryx<const N: usize> {
    publisher: Publisher<ipc::Service, [u8; N], ()>,
    subscriber: Subscriber<ipc::Service, [u8; N], ()>,
    out: PortFactory<ipc::Service, [u8; N], ()>,
    back: PortFactory<ipc::Service, [u8; N], ()>,
    _node: iceoryx2::node::Node<ipc::Service>,
}

impl<const N: usize> Iceoryx<N> {
    pub(super) fn open(meeting: &Meeting, held: bool) -> Outcome<Self> {
        // It warns that it has no configuration file, which is as it should be.
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let (out, back) = if meeting.here { ("ping", "pong") } else { ("pong", "ping") };
        let service = |way: &str| -> Outcome<_> {
            let name = format!("{}/{way}", meeting.name);
            let mut builder = node.service_builder(&name.as_str().try_into()?).publish_subscribe::<[u8; N]>();
            if held {
                builder = builder.enable_safe_overflow(false).subscriber_max_buffer_size(HELD_SAMPLES);
            }
            Ok(builder.open_or_create()?)
        };
        let (out, back) = (service(out)?, service(back)?);
        let mut publisher = out.publisher_builder();
        if held {
            publisher = publisher.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered);
        }
        let publisher = publisher.create()?;
        let subscriber = back.subscriber_builder().create()?;
        Ok(Self { publisher, subscriber, out, back, _node: node })
    }
}

impl<const N: usize> Pair for Iceoryx<N> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        let bytes: &[u8; N] = message.try_into()?;
        self.publisher.loan_uninit()?.write_payload(*bytes).send()?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                block::copy(&sample[..], message);
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        // The answer's publisher and the question's subscriber must be there before the first question.
        patiently(|| {
            let there = self.out.dynamic_config().number_of_subscribers() > 0
                && self.back.dynamic_config().number_of_publishers() > 0;
            there.then_some(()).ok_or("no peer")
        })
    }
}
