//! Meaning of the values of a group's file.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use punctual_proto::broadcast::Guarantee;
use punctual_proto::limits::BROADCAST_TIME_NS_MAX;
use toml::de::{DeInteger, DeValue};

use crate::engine::check_name;

/// A longest time, and how a message calls it.
type Longest = (Duration, &'static str);

/// Of a time for which the group has no bound of its own.
const A_DAY: Longest = (Duration::from_secs(24 * 3600), "a day");

/// Of heartbeat, suspicion and round trip: a member with a longer one is not made, and its error would name no line.
const AN_HOUR: Longest = (Duration::from_nanos(BROADCAST_TIME_NS_MAX), "an hour");
const _: () = assert!(AN_HOUR.0.as_secs() == 3600);

/// Guarantees of a message, as a file calls them.
const GUARANTEES: [(&str, Guarantee); 4] = [
    ("uniform", Guarantee::Uniform),
    ("agreed", Guarantee::Agreed),
    ("reliable", Guarantee::Reliable),
    ("best_effort", Guarantee::BestEffort),
];

/// A value in a message.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is_true) => is_true.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

pub(super) fn text<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{} is no text: write one in quotes", shown(value)))
}

/// A name of a node, a group or a bus.
pub(super) fn name<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    let name = text(value)?;
    check_name("name", name).map(|()| name).map_err(|error| error.to_string())
}

/// A whole number within a range.
pub(super) fn number(range: RangeInclusive<u64>) -> impl FnOnce(&DeValue<'_>) -> Result<u64, String> {
    move |value| {
        let (least, most) = (range.start(), range.end());
        let number = value.as_integer().ok_or_else(|| {
            let shown = shown(value);
            format!("{shown} is no whole number: write one from {least} to {most}, without quotes")
        })?;
        // A number that does not fit into 64 bits is out of every range.
        let read = |number: &DeInteger<'_>| i64::from_str_radix(number.as_str(), number.radix()).ok();
        let within = read(number).and_then(|number| u64::try_from(number).ok());
        within
            .filter(|number| range.contains(number))
            .ok_or_else(|| format!("{number} cannot be: write a number from {least} to {most}"))
    }
}

/// A time with its unit, such as "10ms".
pub(super) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    time(value, A_DAY)
}

fn time(value: &DeValue<'_>, (longest, called): Longest) -> Result<Duration, String> {
    let wrong = || {
        let shown = shown(value);
        format!("{shown} is no time: write one with its unit (ns, us, ms, s), such as \"10ms\"")
    };
    let text = value.as_str().ok_or_else(wrong)?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit.trim_start_matches(' ') {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let ns = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ns));
    let duration = ns.map(Duration::from_nanos).filter(|duration| *duration <= longest);
    duration.ok_or_else(|| format!("{}, of {called} at most", wrong()))
}

/// A time that passes, as the group's own times are.
pub(super) fn interval(value: &DeValue<'_>) -> Result<Duration, String> {
    passing_time(value, AN_HOUR)
}

fn passing_time(value: &DeValue<'_>, longest: Longest) -> Result<Duration, String> {
    time(value, longest).and_then(|duration| match duration {
        Duration::ZERO => Err("nothing happens that often: write a time longer than 0".to_owned()),
        duration => Ok(duration),
    })
}

/// A time, or "never".
pub(super) fn interval_or_never(value: &DeValue<'_>) -> Result<Option<Duration>, String> {
    if value.as_str() == Some("never") {
        return Ok(None);
    }
    passing_time(value, A_DAY).map(Some).map_err(|what| what + ", or \"never\"")
}

/// Where a member is reached.
pub(super) fn address(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let text = text(value)?;
    let wrong = || format!("{text:?} is no address: write host and port, such as \"10.0.0.1:7700\"");
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    if address.ip().is_unspecified() || address.ip().is_multicast() || address.port() == 0 {
        return Err(format!(
            "nobody reaches a member at {text}: write the address by which the others know its host"
        ));
    }
    Ok(address)
}

/// A group of hosts that the network multicasts to.
pub(super) fn multicast(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let text = text(value)?;
    let address: Option<SocketAddr> = text.parse().ok();
    address.filter(|address| address.is_ipv4() && address.ip().is_multicast() && address.port() != 0).ok_or_else(|| {
        format!("{text:?} is no multicast address: write one of 224.0.0.0/4 and a port, such as \"239.1.1.1:7700\"")
    })
}

/// The address of an interface.
pub(super) fn interface_address(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    let text = text(value)?;
    text.parse().map_err(|_| {
        format!("{text:?} is no address of an interface: write the IPv4 address of the member's host, such as \"10.0.0.1\"")
    })
}

/// The name of an interface.
pub(super) fn interface_name<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    text(value).and_then(|name| match name.len() {
        1..16 => Ok(name),
        _ => Err(format!("{name:?} is no name of an interface: `ip link` lists them")),
    })
}

pub(super) fn guarantee(value: &DeValue<'_>) -> Result<Guarantee, String> {
    let text = text(value)?;
    GUARANTEES.iter().find(|(name, _)| *name == text).map(|(_, guarantee)| *guarantee).ok_or_else(|| {
        let names = GUARANTEES.map(|(name, _)| format!("{name:?}")).join(", ");
        format!("{text:?} is none: write one of {names}")
    })
}
