//! Subscribers: they want a value of a topic every so often.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use punctual::interest::{Subscriber, SubscriptionCounts, Traffic};

use crate::communicator::duration_of;
use crate::entry::entry;
use crate::handle::{SUBSCRIBERS, punctual_node, punctual_subscriber};
use crate::interest::{
    check_size, endpoint, nanos_of, not_interested, punctual_interest_options, punctual_topic, topic_of,
};
use crate::message::punctual_address;
use crate::outcome::{Code, fail, punctual_error};
use crate::pointer::{Buffer, Out, sized};

/// Metadata of a received value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct punctual_response {
    /// Its publisher.
    pub source: punctual_address,
    /// For which instant, µs since its publisher's schedule began.
    pub offset_us: u64,
    /// Instants before it for which no value came from this publisher.
    pub missed_before: u64,
    /// Delay of its arrival after its instant, nanoseconds; 0 = not known.
    pub late_ns: u64,
    /// Its size, bytes.
    pub size: usize,
    /// 1: it was sent at once to a newcomer.
    pub at_once: u32,
    /// 0.
    pub reserved: u32,
}

/// Counters of responses, and of a subscriber's messages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_subscribed {
    /// Values that were taken.
    pub taken: u64,
    /// Values for instants that others wanted.
    pub for_others: u64,
    /// Values that were doubled or overtaken.
    pub stale: u64,
    /// Instants for which no value came.
    pub missed: u64,
    /// Values of publishers beyond those of which it keeps an account.
    pub too_many_publishers: u64,
    /// Accounts that made room for others.
    pub displaced: u64,
    /// Refusals by publishers.
    pub refused: u64,
    /// Announcements of the interest.
    pub announced: u64,
    /// Messages that the node took.
    pub sent: u64,
    /// Messages that were not sent for want of room.
    pub full: u64,
    /// Messages that were not sent because nobody is there.
    pub unreachable: u64,
    /// Messages that were not sent for want of a key, of memory, or of room for one more node.
    pub unsendable: u64,
    /// Messages that came and are none of this protocol.
    pub foreign: u64,
}

/// A subscriber to a topic at a port of a node.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscriber_open(
    node: punctual_node,
    port: u32,
    topic: *const punctual_topic,
    period_ns: u64,
    options: *const punctual_interest_options,
    subscriber: *mut punctual_subscriber,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (key, options, mut out) =
            unsafe { (topic_of(topic)?, sized(options, "options")?, Out::new(subscriber, "subscriber")?) };
        let (communicator, options) = endpoint(node, port, options)?;
        let period = Duration::from_nanos(period_ns);
        let subscriber = Subscriber::untyped(communicator, key, period, &options).map_err(not_interested)?;
        out.write(punctual_subscriber { value: SUBSCRIBERS.insert(subscriber)? });
        Ok(())
    })
}

/// The next value, copied into the caller's buffer.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscriber_receive(
    subscriber: punctual_subscriber,
    buffer: *mut c_void,
    capacity: usize,
    timeout_ns: u64,
    response: *mut punctual_response,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (mut buffer, mut out) =
            unsafe { (Buffer::new(buffer, capacity)?, Out::new(response, "response")?) };
        let mut subscriber = SUBSCRIBERS.enter(subscriber.value)?;
        let size = subscriber.value_size();
        if capacity < size {
            out.write(punctual_response { size, ..punctual_response::default() });
            return Err(fail(
                Code::BufferTooSmall,
                format_args!("values of {size} bytes, and a buffer of {capacity}: none was taken"),
            ));
        }
        let received = subscriber.receive_bytes(duration_of(timeout_ns)).map_err(|_| Code::Empty)?;
        let known = punctual_response {
            source: received.source.into(),
            offset_us: received.offset_us,
            missed_before: received.missed_before,
            late_ns: received.late_by().map_or(0, |late| late.0),
            size,
            at_once: received.at_once.into(),
            reserved: 0,
        };
        buffer.as_mut()[..size].copy_from_slice(received.value);
        out.write(known);
        Ok(())
    })
}

/// Its address.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscriber_address(
    subscriber: punctual_subscriber,
    address: *mut punctual_address,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(address, "address") }?;
        out.write(SUBSCRIBERS.enter(subscriber.value)?.address().into());
        Ok(())
    })
}

/// Counters of responses, and of the subscriber's messages.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscriber_counts(
    subscriber: punctual_subscriber,
    counts: *mut punctual_subscribed,
    struct_size: usize,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(counts, "counts") }?;
        check_size::<punctual_subscribed>(struct_size)?;
        let subscriber = SUBSCRIBERS.enter(subscriber.value)?;
        out.write(subscribed(subscriber.counts(), subscriber.traffic()));
        Ok(())
    })
}

fn subscribed(counts: SubscriptionCounts, traffic: Traffic) -> punctual_subscribed {
    punctual_subscribed {
        taken: counts.taken,
        for_others: counts.for_others,
        stale: counts.stale,
        missed: counts.missed,
        too_many_publishers: counts.too_many_publishers,
        displaced: counts.displaced,
        refused: counts.refused.iter().sum(),
        announced: counts.announced,
        sent: traffic.sent,
        full: traffic.full,
        unreachable: traffic.unreachable,
        unsendable: traffic.unsendable,
        foreign: traffic.foreign,
    }
}

/// Descriptor that an event loop of the caller waits for.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscriber_descriptor(
    subscriber: punctual_subscriber,
    descriptor: *mut c_int,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(descriptor, "descriptor") }?;
        out.write(SUBSCRIBERS.enter(subscriber.value)?.as_fd().as_raw_fd());
        Ok(())
    })
}

/// From now on its descriptor becomes readable when there may be something to do.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscriber_arm(
    subscriber: punctual_subscriber,
    armed: *mut c_int,
    time_left_ns: *mut u64,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (mut armed, mut left) =
            unsafe { (Out::new(armed, "armed")?, Out::new(time_left_ns, "time_left_ns")?) };
        let mut subscriber = SUBSCRIBERS.enter(subscriber.value)?;
        armed.write(subscriber.arm().into());
        left.write(nanos_of(subscriber.time_left()));
        Ok(())
    })
}

/// Gives it up: it belongs to whichever thread uses it next.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_subscriber_detach(subscriber: punctual_subscriber) -> punctual_error {
    entry(|| SUBSCRIBERS.detach(subscriber.value))
}

/// Withdraws its interest, and closes it.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_subscriber_close(subscriber: punctual_subscriber) -> punctual_error {
    entry(|| SUBSCRIBERS.remove(subscriber.value).map(drop))
}
