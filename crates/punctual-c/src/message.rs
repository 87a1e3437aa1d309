//! Addresses, targets, and what is known of a message.

use punctual::communicator::Delivery;
use punctual::publication::Received;
use punctual::{Address, Clock, NodeId, Target, Ticks};

use crate::number::{PUNCTUAL_EVERY_NODE, PUNCTUAL_EVERY_PORT};
use crate::outcome::{Code, fail};

/// An endpoint: a port of a node.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct punctual_address {
    /// The node's id.
    pub node: u64,
    /// The port, 0 to 65534; `PUNCTUAL_EVERY_PORT` in a target.
    pub port: u32,
    /// 0.
    pub reserved: u32,
}

/// Metadata of a received message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct punctual_message {
    /// Its sender.
    pub source: punctual_address,
    /// Its target: a port, all ports, everybody.
    pub target: punctual_address,
    /// Its number in its stream.
    pub sequence: u64,
    /// Messages of the same stream that were lost just before it.
    pub lost_before: u64,
    /// From the instant at which it was due until it was delivered, nanoseconds; 0 = not known.
    pub latency_ns: u64,
    /// When the kernel received it, `CLOCK_REALTIME` nanoseconds; 0 = not known.
    pub kernel_ns: u64,
    /// Its size, bytes.
    pub size: usize,
    /// The group whose key sealed it, if it was sealed.
    pub sealed_in: u32,
    /// 1 if it was sealed, 0 if not.
    pub is_sealed: u32,
}

/// Target of a message, by the numbers of an address.
#[inline]
pub(crate) fn target_of(target: punctual_address) -> Result<Target, Code> {
    let node = match target.node {
        PUNCTUAL_EVERY_NODE => None,
        number => Some(NodeId::new(number).ok_or_else(nobody)?),
    };
    let port = match target.port {
        PUNCTUAL_EVERY_PORT => None,
        number => Some(u16::try_from(number).map_err(|_| no_port(number))?.into()),
    };
    Ok(Target { node, port })
}

#[cold]
fn nobody() -> Code {
    fail(Code::Invalid, "target: node 0 is nobody; everybody is PUNCTUAL_EVERY_NODE")
}

#[cold]
pub(crate) fn no_port(number: u32) -> Code {
    fail(
        Code::Invalid,
        format_args!("port {number}: ports are 0 to 65534; all of them are PUNCTUAL_EVERY_PORT"),
    )
}

impl From<Address> for punctual_address {
    #[inline]
    fn from(address: Address) -> Self {
        Self { node: address.node.get(), port: address.port.get().into(), reserved: 0 }
    }
}

impl From<Target> for punctual_address {
    #[inline]
    fn from(target: Target) -> Self {
        Self {
            node: target.node.map_or(PUNCTUAL_EVERY_NODE, NodeId::get),
            port: target.port.map_or(PUNCTUAL_EVERY_PORT, |port| port.get().into()),
            reserved: 0,
        }
    }
}

fn nanos_of(latency: Option<Ticks>) -> u64 {
    latency.map_or(0, |latency| Clock::get().nanos(latency))
}

impl From<Delivery> for punctual_message {
    #[inline(always)]
    fn from(delivery: Delivery) -> Self {
        Self {
            source: delivery.source.into(),
            target: delivery.target.into(),
            sequence: delivery.sequence.into(),
            lost_before: delivery.lost_before,
            latency_ns: nanos_of(delivery.latency),
            kernel_ns: delivery.kernel_ns.unwrap_or(0),
            size: delivery.size,
            sealed_in: delivery.sealed_in.unwrap_or(0),
            is_sealed: delivery.sealed_in.is_some().into(),
        }
    }
}

/// Metadata of a message that a subscription at `target` received.
#[inline]
pub(crate) fn of_received(received: &Received, target: punctual_address) -> punctual_message {
    let latency = received.sent.zip(received.delivered).map(|(sent, delivered)| delivered.since(sent));
    punctual_message {
        source: received.source.into(),
        target,
        sequence: received.sequence,
        lost_before: received.lost_before,
        latency_ns: nanos_of(latency),
        kernel_ns: 0,
        size: received.size,
        sealed_in: received.sealed_in.unwrap_or(0),
        is_sealed: received.sealed_in.is_some().into(),
    }
}
