//! Publishers: they have values of a topic, and send them when they are due.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

use punctual::interest::{Due, PublicationCounts, Publisher, Traffic, Untyped};

use crate::communicator::duration_of;
use crate::entry::entry;
use crate::handle::{PUBLISHERS, punctual_node, punctual_publisher};
use crate::interest::{
    check_size, endpoint, nanos_of, not_interested, punctual_interest_options, punctual_topic, topic_of,
};
use crate::message::punctual_address;
use crate::outcome::{Code, fail, punctual_error};
use crate::pointer::{Out, bytes, sized};

/// An instant for which a value is wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_due {
    /// The instant, µs since the publisher's schedule began.
    pub offset_us: u64,
    /// The same on `CLOCK_MONOTONIC`, nanoseconds.
    pub due_ns: u64,
    /// 1: it is for a newcomer, between the instants of the schedule.
    pub at_once: u32,
    /// 0.
    pub reserved: u32,
}

/// Counters of interests, and of a publisher's messages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_published {
    /// Interests that are served now.
    pub interests: u64,
    /// Interests that were new.
    pub accepted: u64,
    /// Interests that were known.
    pub renewed: u64,
    /// Interests that were withdrawn.
    pub withdrawn: u64,
    /// Interests that were not repeated in time.
    pub expired: u64,
    /// Interests that were refused.
    pub refused: u64,
    /// Newcomers and refusals that found no place to wait, and newcomers beyond the values that are sent at once in a second.
    pub unanswered: u64,
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

/// A publisher, and the instant for which its program owes a value.
#[derive(Debug)]
pub(crate) struct Publishing {
    publisher: Publisher<Untyped>,
    due: Option<Due>,
}

/// A publisher of a topic at a port of a node.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publisher_open(
    node: punctual_node,
    port: u32,
    topic: *const punctual_topic,
    options: *const punctual_interest_options,
    publisher: *mut punctual_publisher,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (key, options, mut out) =
            unsafe { (topic_of(topic)?, sized(options, "options")?, Out::new(publisher, "publisher")?) };
        let (communicator, options) = endpoint(node, port, options)?;
        let publisher = Publisher::untyped(communicator, key, &options).map_err(not_interested)?;
        out.write(punctual_publisher { value: PUBLISHERS.insert(Publishing { publisher, due: None })? });
        Ok(())
    })
}

/// When the next value is wanted.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publisher_next_due(
    publisher: punctual_publisher,
    timeout_ns: u64,
    due: *mut punctual_due,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(due, "due") }?;
        let mut publishing = PUBLISHERS.enter(publisher.value)?;
        publishing.due = publishing.publisher.next_due(duration_of(timeout_ns));
        let due = publishing.due.ok_or(Code::Empty)?;
        out.write(punctual_due {
            offset_us: due.instant.offset_us,
            due_ns: due.instant.due.0,
            at_once: due.at_once.into(),
            reserved: 0,
        });
        Ok(())
    })
}

/// Sends the value for the instant that was given last.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publisher_publish(
    publisher: punctual_publisher,
    value: *const c_void,
    size: usize,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let value = unsafe { bytes(value, size) }?;
        let mut publishing = PUBLISHERS.enter(publisher.value)?;
        let due = publishing.due.ok_or_else(|| {
            fail(
                Code::Invalid,
                "nothing is due: ask punctual_publisher_next_due first, and once for each value",
            )
        })?;
        publishing.publisher.publish_bytes(&due, value).map_err(|error| fail(Code::Invalid, error))?;
        publishing.due = None;
        Ok(())
    })
}

/// Its address.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publisher_address(
    publisher: punctual_publisher,
    address: *mut punctual_address,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(address, "address") }?;
        out.write(PUBLISHERS.enter(publisher.value)?.publisher.address().into());
        Ok(())
    })
}

/// Counters of interests, and of the publisher's messages.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publisher_counts(
    publisher: punctual_publisher,
    counts: *mut punctual_published,
    struct_size: usize,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(counts, "counts") }?;
        check_size::<punctual_published>(struct_size)?;
        let publishing = PUBLISHERS.enter(publisher.value)?;
        let publisher = &publishing.publisher;
        out.write(published(publisher.interests().count(), publisher.counts(), publisher.traffic()));
        Ok(())
    })
}

fn published(interests: usize, counts: PublicationCounts, traffic: Traffic) -> punctual_published {
    punctual_published {
        interests: interests as u64,
        accepted: counts.accepted,
        renewed: counts.renewed,
        withdrawn: counts.withdrawn,
        expired: counts.expired,
        refused: counts.refused.iter().sum(),
        unanswered: counts.unanswered,
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
pub unsafe extern "C" fn punctual_publisher_descriptor(
    publisher: punctual_publisher,
    descriptor: *mut c_int,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(descriptor, "descriptor") }?;
        out.write(PUBLISHERS.enter(publisher.value)?.publisher.as_fd().as_raw_fd());
        Ok(())
    })
}

/// From now on its descriptor becomes readable when there may be something to do.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_publisher_arm(
    publisher: punctual_publisher,
    armed: *mut c_int,
    time_left_ns: *mut u64,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (mut armed, mut left) =
            unsafe { (Out::new(armed, "armed")?, Out::new(time_left_ns, "time_left_ns")?) };
        let mut publishing = PUBLISHERS.enter(publisher.value)?;
        armed.write(publishing.publisher.arm().into());
        left.write(nanos_of(publishing.publisher.time_left()));
        Ok(())
    })
}

/// Gives it up: it belongs to whichever thread uses it next.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_publisher_detach(publisher: punctual_publisher) -> punctual_error {
    entry(|| PUBLISHERS.detach(publisher.value))
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_publisher_close(publisher: punctual_publisher) -> punctual_error {
    entry(|| PUBLISHERS.remove(publisher.value).map(drop))
}
