//! Interest and response: topics, options, and what publishers and subscribers share.

use std::ffi::c_char;
use std::time::Duration;

use punctual::interest::{InterestError, ParticipantOptions, TopicKey, topic_number};
use punctual::unit::{DataType, Format, UnitCode};
use punctual::{Communicator, CommunicatorOptions};

use crate::communicator::{flag_of, not_bound, port_of, wake_of};
use crate::entry::entry;
use crate::handle::{NODES, punctual_node};
use crate::number::{PUNCTUAL_EVERY_PORT, PUNCTUAL_FOREVER};
use crate::outcome::{Code, fail, punctual_error};
use crate::pointer::{Out, sized, text, text_if_any};

/// A topic: the name or number, and the form, of published values.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_topic {
    /// The size of this struct, so that a program and a library of different versions notice.
    pub struct_size: usize,
    /// Its name; null = `number` says which topic it is.
    pub name: *const c_char,
    /// Unit of its numbers, such as "m/s"; null = no unit, or bytes.
    pub unit: *const c_char,
    /// Number of the topic, if it has no name.
    pub number: u32,
    /// Representation of its numbers.
    pub format: u32,
    /// Count of numbers in a value.
    pub count: u32,
    /// 0.
    pub reserved: u32,
}

/// Options with which a publisher or subscriber is opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_interest_options {
    /// The size of this struct, so that a program and a library of different versions notice.
    pub struct_size: usize,
    /// Its way of waiting.
    pub wake: u32,
    /// 1: its messages carry stamps.
    pub stamps: u32,
    /// The port of every node to which interests and advertisements go.
    pub reach: u32,
    /// 0.
    pub reserved: u32,
}

/// The topic that a caller means.
///
/// # Safety
/// The crate's rule 1.
pub(crate) unsafe fn topic_of(topic: *const punctual_topic) -> Result<TopicKey, Code> {
    // SAFETY: as this function's caller says.
    let topic = unsafe { sized(topic, "topic") }?;
    let topic = topic.ok_or_else(|| fail(Code::Null, "topic: a null pointer"))?;
    // SAFETY: as this function's caller says.
    let (name, unit) = unsafe { (text_if_any(topic.name, "name")?, text_if_any(topic.unit, "unit")?) };
    let format = u8::try_from(topic.format).ok().and_then(Format::of).ok_or_else(|| {
        fail(Code::Invalid, format_args!("format {}: one of PUNCTUAL_FORMAT_… is needed", topic.format))
    })?;
    let unit = match unit {
        Some(text) => {
            text.parse().map_err(|error| fail(Code::Invalid, format_args!("unit {text:?}: {error}")))?
        }
        None if format == Format::Bytes => UnitCode::DIGITAL,
        None => UnitCode::ONE,
    };
    let count = u16::try_from(topic.count).map_err(|_| {
        fail(Code::Invalid, format_args!("count {}: a value has from 1 to 65535 numbers", topic.count))
    })?;
    Ok(TopicKey { topic: name.map_or(topic.number, topic_number), data: DataType { unit, format, count } })
}

pub(crate) fn not_interested(error: InterestError) -> Code {
    let code = match error {
        InterestError::TooLong { .. } => Code::TooLong,
        InterestError::TooMany(_) => Code::TooMany,
        InterestError::Published(_) | InterestError::BadPeriod(_) | InterestError::BadType(_) => {
            Code::Invalid
        }
    };
    fail(code, error)
}

/// A communicator of its own for a publisher or subscriber, and the ports that it tells.
pub(crate) fn endpoint(
    node: punctual_node,
    port: u32,
    options: Option<punctual_interest_options>,
) -> Result<(Communicator, ParticipantOptions), Code> {
    let (mut of_endpoint, mut of_interest) = (CommunicatorOptions::default(), ParticipantOptions::default());
    if let Some(chosen) = options {
        of_endpoint.wake = wake_of(chosen.wake)?;
        of_endpoint.stamps = flag_of(chosen.stamps, "stamps")?;
        if chosen.reach != PUNCTUAL_EVERY_PORT {
            of_interest = of_interest.at_port(port_of(chosen.reach)?);
        }
    }
    let node = NODES.get(node.value)?;
    let communicator = node.bind_with(port_of(port)?, &of_endpoint).map_err(not_bound)?;
    Ok((communicator, of_interest))
}

pub(crate) fn nanos_of(left: Option<Duration>) -> u64 {
    left.map_or(PUNCTUAL_FOREVER, |left| u64::try_from(left.as_nanos()).unwrap_or(PUNCTUAL_FOREVER))
}

pub(crate) fn check_size<T>(size: usize) -> Result<(), Code> {
    let expected = size_of::<T>();
    if size == expected {
        return Ok(());
    }
    Err(fail(Code::Invalid, format_args!("struct_size {size}, where this library has {expected}")))
}

/// The number of the topic of a name.
///
/// # Safety
/// The crate's rule 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn punctual_topic_number(name: *const c_char, number: *mut u32) -> punctual_error {
    entry(|| {
        // SAFETY: as this function's caller says.
        let (name, mut out) = unsafe { (text(name, "name")?, Out::new(number, "number")?) };
        out.write(topic_number(name));
        Ok(())
    })
}
