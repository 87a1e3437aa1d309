//! Numbers and names as people read and write them.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;

/// A value that has one name in options, results and tables.
pub trait OptionName: ValueEnum {
    /// Its name as the value of an option.
    fn name(self) -> String {
        self.to_possible_value().expect("an option has this value").get_name().to_owned()
    }
}

impl<T: ValueEnum> OptionName for T {}

/// Microseconds of three significant digits: 0.043, 0.21, 6.04, 71.3, 3,248.
pub fn micros(ns: f64) -> String {
    let us = ns / 1000.0;
    match us.abs() {
        u if u < 0.0995 => format!("{us:.3}"),
        u if u < 9.995 => format!("{us:.2}"),
        u if u < 99.95 => format!("{us:.1}"),
        _ => grouped(us.round() as i64),
    }
}

/// Microseconds, or a dash where there is no figure.
pub fn micros_or_dash(ns: Option<u64>) -> String {
    ns.map_or_else(dash, |ns| micros(ns as f64))
}

/// A value, and the ends of what it is in, where they are known: "1.01 (0.99 to 1.03)".
pub fn in_range(value: f64, ends: Option<[f64; 2]>, text: impl Fn(f64) -> String) -> String {
    let ends = ends.map(|[low, high]| format!(" ({} to {})", text(low), text(high)));
    format!("{}{}", text(value), ends.unwrap_or_default())
}

/// Sign in place of a missing figure.
pub fn dash() -> String {
    "–".to_owned()
}

/// 1234567 as 1,234,567.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// With so many digits behind the point: 1,053.80.
pub fn fixed(number: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", number.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    if number < 0.0 { format!("-{whole}{rest}") } else { whole + rest }
}

/// So many of what has a plural in -s: `1 message`, `2 messages`.
pub fn plural(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// [`grouped`], of what is counted.
pub fn count(number: u64) -> String {
    grouped(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Events per minute: 0, 2.5, 1,204.
pub fn rate(per_minute: f64) -> String {
    if per_minute > 0.0 && per_minute < 9.95 {
        format!("{per_minute:.1}")
    } else {
        grouped(per_minute.round() as i64)
    }
}

/// A part of a whole: "12.5 %".
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Now: UTC to the second, such as `2026-11-21T07:55:01Z`. A host whose clock lies before 1970 is in 1970.
pub fn now_utc() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now().max(SystemTime::UNIX_EPOCH)).to_string()
}

/// Longest duration that an option takes.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// A time with its unit; zero needs none. By hand: humantime refuses what a script computes, such as 3.8000000000000003s.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || "a number with its unit (ns, us, ms, s, m, h) is needed, such as 500ms".to_owned();
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" if number == "0" => 0.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// A time that is more than nothing.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = time(text)?;
    if duration.is_zero() || duration > DURATION_MAX {
        return Err("from 1ns to 24h".to_owned());
    }
    Ok(duration)
}

/// A time as [`duration`] reads it back, none of it lost.
pub fn written(time: Duration) -> String {
    match time.as_nanos() {
        ns if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}

/// A word as a shell takes it, regardless of the characters in it.
pub fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:=+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A time between messages, which may be nothing.
pub fn gap(text: &str) -> Result<Duration, String> {
    let gap = time(text)?;
    if gap > Duration::from_secs(10) {
        return Err("from 0 to 10s".to_owned());
    }
    Ok(gap)
}

/// Where somebody listens.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "an address and a port are needed, such as 10.0.0.2:9930; names are not looked up";
    text.parse().map_err(|_| wrong.to_owned())
}

/// Bytes, such as 30000, 64k, 20M, 1G; thousands, and a B may follow.
pub fn bytes(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('B').unwrap_or(text);
    let (number, factor) = match number.char_indices().last() {
        Some((at, 'k')) => (&number[..at], 1_000),
        Some((at, 'M')) => (&number[..at], 1_000_000),
        Some((at, 'G')) => (&number[..at], 1_000_000_000),
        _ => (number, 1),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bytes.filter(|bytes| (1..=100_000_000_000).contains(bytes)).ok_or_else(|| "from 1 to 100G".to_owned())
}

/// The same within a range.
pub fn size_in(range: RangeInclusive<usize>) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let size = bytes(text).ok().and_then(|size| usize::try_from(size).ok());
        let (least, most) = (count(*range.start() as u64), count(*range.end() as u64));
        let wrong = || format!("from {least} to {most} bytes, such as 64k");
        size.filter(|size| range.contains(size)).ok_or_else(wrong)
    }
}

/// True if a count need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it may skip by reference")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|number| plural(number, "trial")), ["0 trials", "1 trial", "2 trials"]);
    }

    #[test]
    fn ends_stand_behind_their_value_where_they_are_known() {
        let text = |ends| in_range(1.0, ends, |one| format!("{one:.1}"));
        assert_eq!([text(Some([0.5, 2.0])), text(None)], ["1.0 (0.5 to 2.0)", "1.0"]);
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(
            [1_053.8, 0.25, -12_345.0, 7.0].map(|one| fixed(one, 2)),
            ["1,053.80", "0.25", "-12,345.00", "7.00"]
        );
        assert_eq!((fixed(999.96, 1), fixed(f64::INFINITY, 1)), ("1,000.0".to_owned(), "inf".to_owned()));
    }

    #[test]
    fn bytes_have_units() {
        let read = ["30000", "64k", "20M", "1G", "1GB"].map(|text| bytes(text).unwrap());
        assert_eq!(read, [30_000, 64_000, 20_000_000, 1_000_000_000, 1_000_000_000]);
        for wrong in ["", "0", "k", "1T", "-1", "101G", "18446744073709551615G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        let within = size_in(16..=64_000);
        assert_eq!((within("64k"), within("16")), (Ok(64_000), Ok(16)));
        for wrong in ["15", "65k", "-1", "lots"] {
            assert_eq!(within(wrong), Err("from 16 to 64,000 bytes, such as 64k".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(time("0"), Ok(Duration::ZERO));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("1.5µs"), Ok(Duration::from_nanos(1500)));
        assert_eq!(time("3.8000000000000003s"), Ok(Duration::from_millis(3800)));
        for wrong in ["", "5", "ms", "-1s", "1e9s", "..s", "99999999999999999999s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert!(duration("0s").is_err());
        for (text, again) in [("500us", "500000ns"), ("4s", "4000ms"), ("1.5ms", "1500000ns"), ("1ns", "1ns")]
        {
            assert_eq!(written(duration(text).unwrap()), again);
            assert_eq!(duration(again), duration(text));
        }
        assert!(gap("11s").is_err());
    }
}
