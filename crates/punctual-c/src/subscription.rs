//! Subscriptions: readers of all publications that are for one port.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use punctual::SubscriptionOptions;

use crate::communicator::{not_taken, port_of, wake_of};
use crate::entry::entry;
use crate::handle::{NODES, SUBSCRIPTIONS, punctual_node, punctual_subscription};
use crate::message::{of_received, punctual_message};
use crate::number::PUNCTUAL_FOREVER;
use crate::outcome::punctual_error;
use crate::pointer::{Buffer, Out};
use crate::publication::no_stream;

/// The reader of all publications that are for a port of a node.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscription_open(
    node: punctual_node,
    port: u32,
    wake: u32,
    subscription: *mut punctual_subscription,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(subscription, "subscription") }?;
        let options = SubscriptionOptions { wake: wake_of(wake)? };
        let node = NODES.get(node.value)?;
        let opened = node.subscription(port_of(port)?, &options).map_err(no_stream)?;
        out.write(punctual_subscription { value: SUBSCRIPTIONS.insert(opened)? });
        Ok(())
    })
}

/// The oldest message of one of its publications, copied into the caller's buffer.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscription_receive(
    subscription: punctual_subscription,
    buffer: *mut c_void,
    capacity: usize,
    timeout_ns: u64,
    message: *mut punctual_message,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (mut buffer, mut out) =
            unsafe { (Buffer::new(buffer, capacity)?, Out::new(message, "message")?) };
        let mut subscription = SUBSCRIPTIONS.enter(subscription.value)?;
        let (place, target) = (buffer.as_mut(), subscription.address().into());
        let received = match timeout_ns {
            0 => subscription.try_receive(place),
            PUNCTUAL_FOREVER => subscription.receive(place),
            limited => subscription.receive_timeout(Duration::from_nanos(limited), place),
        };
        match received {
            Ok(received) => {
                out.write(of_received(received, target));
                Ok(())
            }
            Err(error) => Err(not_taken(error, &mut out, capacity)),
        }
    })
}

/// Descriptor that an event loop of the caller waits for.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscription_descriptor(
    subscription: punctual_subscription,
    descriptor: *mut c_int,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(descriptor, "descriptor") }?;
        out.write(SUBSCRIPTIONS.enter(subscription.value)?.as_fd().as_raw_fd());
        Ok(())
    })
}

/// From now on its descriptor becomes readable when a message comes.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_subscription_arm(
    subscription: punctual_subscription,
    armed: *mut c_int,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(armed, "armed") }?;
        out.write(SUBSCRIPTIONS.enter(subscription.value)?.arm().into());
        Ok(())
    })
}

/// Gives it up: it belongs to whichever thread uses it next.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_subscription_detach(subscription: punctual_subscription) -> punctual_error {
    entry(|| SUBSCRIPTIONS.detach(subscription.value))
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_subscription_close(subscription: punctual_subscription) -> punctual_error {
    entry(|| SUBSCRIPTIONS.remove(subscription.value).map(drop))
}
