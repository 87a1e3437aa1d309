//! Communicators: bound to a port, they send and receive.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use std::ffi::{c_int, c_void};

use punctual::publication::TakeError;
use punctual::{BindError, CommunicatorOptions, SendError, Wake};

use crate::entry::entry;
use crate::handle::{COMMUNICATORS, NODES, punctual_communicator, punctual_node};
use crate::message::{no_port, punctual_address, punctual_message, target_of};
use crate::number::{
    PUNCTUAL_FOREVER, PUNCTUAL_WAKE_ADAPTIVE, PUNCTUAL_WAKE_BACKOFF, PUNCTUAL_WAKE_EPOLL,
    PUNCTUAL_WAKE_EVENTFD, PUNCTUAL_WAKE_FUTEX, PUNCTUAL_WAKE_SIGNAL, PUNCTUAL_WAKE_SPIN,
};
use crate::outcome::{Code, fail, punctual_error};
use crate::pointer::{Buffer, Out, bytes, sized};

/// Options with which a communicator is bound.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_communicator_options {
    /// The size of this struct, so that a program and a library of different versions notice.
    pub struct_size: usize,
    /// Its way of waiting.
    pub wake: u32,
    /// 1: its messages carry stamps, so that receivers know how long they took.
    pub stamps: u32,
    /// On UDP and Ethernet, bytes of its inbox: a power of two; 0 = room for four of the largest frames, 128 KiB or more.
    pub inbox_size: usize,
}

pub(crate) fn wake_of(number: u32) -> Result<Wake, Code> {
    match number {
        PUNCTUAL_WAKE_ADAPTIVE => Ok(Wake::Adaptive),
        PUNCTUAL_WAKE_SPIN => Ok(Wake::Spin),
        PUNCTUAL_WAKE_BACKOFF => Ok(Wake::Backoff),
        PUNCTUAL_WAKE_FUTEX => Ok(Wake::Futex),
        PUNCTUAL_WAKE_EVENTFD => Ok(Wake::EventFd),
        PUNCTUAL_WAKE_EPOLL => Ok(Wake::Epoll),
        PUNCTUAL_WAKE_SIGNAL => Ok(Wake::Signal),
        _ => Err(fail(Code::Invalid, format_args!("wake {number}: one of PUNCTUAL_WAKE_… is needed"))),
    }
}

pub(crate) fn flag_of(number: u32, what: &str) -> Result<bool, Code> {
    match number {
        0 | 1 => Ok(number == 1),
        _ => Err(fail(Code::Invalid, format_args!("{what} {number}: 0 or 1 is needed"))),
    }
}

pub(crate) fn port_of(number: u32) -> Result<u16, Code> {
    u16::try_from(number).ok().filter(|&port| port != u16::MAX).ok_or_else(|| no_port(number))
}

pub(crate) fn not_bound(error: BindError) -> Code {
    let code = match error {
        BindError::Reserved | BindError::Invalid(_) => Code::Invalid,
        BindError::PortTaken(_) => Code::PortTaken,
        BindError::TooMany | BindError::TooManyRings { .. } => Code::TooMany,
        BindError::CannotWait(_) => Code::CannotWait,
        BindError::System(_) => Code::System,
    };
    fail(code, error)
}

#[cold]
fn not_sent(error: SendError) -> Code {
    let code = match error {
        // An answer rather than an error, and frequent: no text.
        SendError::Full => return Code::Full,
        SendError::Unreachable => Code::Unreachable,
        SendError::TooLong { .. } => Code::TooLong,
        SendError::TooManyNodes => Code::TooManyNodes,
        SendError::NoKey => Code::NoKey,
        SendError::NoMemory => Code::NoMemory,
    };
    fail(code, error)
}

/// Says how large a message is that does not fit.
#[cold]
pub(crate) fn not_taken(error: TakeError, out: &mut Out<punctual_message>, capacity: usize) -> Code {
    let TakeError::BufferTooSmall { size } = error else { return Code::Empty };
    out.write(punctual_message { size, ..punctual_message::default() });
    fail(
        Code::BufferTooSmall,
        format_args!(
            "a message of {size} bytes, and a buffer of {capacity}: it is kept for the next receive"
        ),
    )
}

/// A duration of the caller.
pub(crate) fn duration_of(timeout_ns: u64) -> Duration {
    if timeout_ns == PUNCTUAL_FOREVER { Duration::MAX } else { Duration::from_nanos(timeout_ns) }
}

/// Binds a communicator to a port of a node.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_bind(
    node: punctual_node,
    port: u32,
    options: *const punctual_communicator_options,
    communicator: *mut punctual_communicator,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (chosen, mut out) =
            unsafe { (sized(options, "options")?, Out::new(communicator, "communicator")?) };
        let mut options = CommunicatorOptions::default();
        if let Some(chosen) = chosen {
            options.wake = wake_of(chosen.wake)?;
            options.stamps = flag_of(chosen.stamps, "stamps")?;
            options.inbox_size = Some(chosen.inbox_size).filter(|&size| size > 0);
        }
        let node = NODES.get(node.value)?;
        let communicator = node.bind_with(port_of(port)?, &options).map_err(not_bound)?;
        let value = COMMUNICATORS.insert(communicator)?;
        out.write(punctual_communicator { value });
        Ok(())
    })
}

/// Its address.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_address(
    communicator: punctual_communicator,
    address: *mut punctual_address,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(address, "address") }?;
        out.write(COMMUNICATORS.enter(communicator.value)?.address().into());
        Ok(())
    })
}

/// Takes the message, or says why not; never waits for room.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_try_send(
    communicator: punctual_communicator,
    target: punctual_address,
    data: *const c_void,
    size: usize,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let payload = unsafe { bytes(data, size) }?;
        let mut communicator = COMMUNICATORS.enter(communicator.value)?;
        communicator.try_send(target_of(target)?, payload).map_err(not_sent)
    })
}

/// Sends; waits for room, and for a target that is not there yet.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_send(
    communicator: punctual_communicator,
    target: punctual_address,
    data: *const c_void,
    size: usize,
    timeout_ns: u64,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let payload = unsafe { bytes(data, size) }?;
        let mut communicator = COMMUNICATORS.enter(communicator.value)?;
        let timeout = duration_of(timeout_ns);
        communicator.send_timeout(target_of(target)?, payload, timeout).map_err(not_sent)
    })
}

/// Takes the message without handing it to the medium yet.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_queue(
    communicator: punctual_communicator,
    target: punctual_address,
    data: *const c_void,
    size: usize,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let payload = unsafe { bytes(data, size) }?;
        let mut communicator = COMMUNICATORS.enter(communicator.value)?;
        communicator.queue(target_of(target)?, payload).map_err(not_sent)
    })
}

/// Hands everything that was queued to the medium.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_communicator_flush(communicator: punctual_communicator) -> punctual_error {
    entry(|| {
        COMMUNICATORS.enter(communicator.value)?.flush();
        Ok(())
    })
}

/// The oldest message, copied into the caller's buffer.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_receive(
    communicator: punctual_communicator,
    buffer: *mut c_void,
    capacity: usize,
    timeout_ns: u64,
    message: *mut punctual_message,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (mut buffer, mut out) =
            unsafe { (Buffer::new(buffer, capacity)?, Out::new(message, "message")?) };
        let mut communicator = COMMUNICATORS.enter(communicator.value)?;
        let place = buffer.as_mut();
        // Each case by itself writes the message's metadata to its final place: moving it first costs more than the call.
        let mut tell = |delivery| out.write(punctual_message::from(delivery));
        let received = match timeout_ns {
            0 => communicator.try_receive_into(place).map(&mut tell),
            PUNCTUAL_FOREVER => communicator.receive_into_until(None, place).map(&mut tell),
            limited => communicator.receive_into_timeout(Duration::from_nanos(limited), place).map(&mut tell),
        };
        received.map_err(|error| not_taken(error, &mut out, capacity))
    })
}

/// Descriptor that an event loop of the caller waits for.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_descriptor(
    communicator: punctual_communicator,
    descriptor: *mut c_int,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(descriptor, "descriptor") }?;
        out.write(COMMUNICATORS.enter(communicator.value)?.as_fd().as_raw_fd());
        Ok(())
    })
}

/// From now on its descriptor becomes readable when a message comes.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_communicator_arm(
    communicator: punctual_communicator,
    armed: *mut c_int,
) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let mut out = unsafe { Out::new(armed, "armed") }?;
        let mut communicator = COMMUNICATORS.enter(communicator.value)?;
        out.write(communicator.arm().into());
        Ok(())
    })
}

/// Gives it up: it belongs to whichever thread uses it next.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_communicator_detach(communicator: punctual_communicator) -> punctual_error {
    entry(|| COMMUNICATORS.detach(communicator.value))
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_communicator_close(communicator: punctual_communicator) -> punctual_error {
    entry(|| COMMUNICATORS.remove(communicator.value).map(drop))
}
