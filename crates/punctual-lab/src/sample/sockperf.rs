//! sockperf's log as samples: round trips, with what it counts as lost.

use std::time::Duration;

use super::{CellId, Load, Outcome, Samples};

/// The line that comes before its samples.
const HEADING: &str = "packet, txTime(sec), rxTime(sec), latency(usec)";

/// Reads a full log (`--full-log`): a prologue, a heading, then a line per packet. A line has the packet's number, the times of sending
/// and receiving in seconds, and sockperf's latency. That latency is half of a round trip unless `--full-rtt` was given, and is not
/// used here. A packet without an answer has no line: the prologue counts them, and each counts as lost here.
///
/// # Errors
/// No heading, no sample, a line that is none, or more losses than are taken.
pub fn read_log(text: &str) -> Result<Samples, String> {
    let mut lines = text.lines().zip(1..).skip_while(|(line, _)| line.trim() != HEADING);
    if lines.next().is_none() {
        return Err(format!("no full log of sockperf: no line \"{HEADING}\" (sockperf … --full-log FILE)"));
    }
    let mut samples = Samples::default();
    let mut start_ns = None;
    for (line, number) in lines {
        if line.starts_with("---") || line.trim().is_empty() {
            continue;
        }
        let off = |reason: String| format!("line {number}: {reason}");
        let row = read_row(line)
            .ok_or_else(|| off(format!("\"{line}\" is not number, sent, received, latency")))?;
        let start = *start_ns.get_or_insert(row.sent_ns);
        if row.received_ns < row.sent_ns || row.sent_ns < start {
            return Err(off("time runs backwards".to_owned()));
        }
        let sent = row.sent_ns - start;
        // Its warm-up is not in its log: no packet of it is the first that a cell begins with, which has the number 0.
        let index = row.index + 1;
        add_lost(&mut samples, index, sent).map_err(off)?;
        samples.push(index, sent, sent, row.received_ns - row.sent_ns, Outcome::Answered);
    }
    let Some(&last) = samples.index.last() else {
        return Err("the log holds no packet".to_owned());
    };
    samples.facts.duplicated = counted(text, "duplicated");
    samples.facts.reordered = counted(text, "out-of-order");
    // The log counts what was lost, and where its numbers are its lines' it does not say when: that stands at the end.
    let end = samples.sent_ns[samples.len() - 1];
    let nowhere = counted(text, "dropped").saturating_sub(samples.count_of(Outcome::Lost));
    if nowhere > NOWHERE_MAX {
        return Err(format!(
            "the log counts {nowhere} dropped messages that it does not place: more than {NOWHERE_MAX}"
        ));
    }
    for missing in (last + 1..).take(nowhere as usize) {
        samples.push(missing, end, end, 0, Outcome::Lost);
    }
    Ok(samples)
}

/// "# dropped messages = 3;" of the prologue.
fn counted(text: &str, what: &str) -> u64 {
    let label = format!("# {what} messages = ");
    let after = text.find(&label).map(|at| &text[at + label.len()..]).unwrap_or_default();
    let digits = after.find(|char: char| !char.is_ascii_digit()).unwrap_or(after.len());
    // A number that is too long is larger than any.
    if digits == 0 { 0 } else { after[..digits].parse().unwrap_or(u64::MAX) }
}

/// Numbers that may be missing in a row: more are not losses but another numbering.
const MISSING_MAX: u64 = 1_000_000;

/// Losses without a place that are taken: a gigabyte of samples. Fewer than were lost would make every quantile too good.
const NOWHERE_MAX: u64 = 1 << 24;

/// Packets between the last line's and this one's: sent, and never answered.
fn add_lost(samples: &mut Samples, index: u64, sent_ns: u64) -> Result<(), String> {
    let Some(&last) = samples.index.last() else { return Ok(()) };
    if index <= last || index - last > MISSING_MAX {
        return Err(format!("packet {} after packet {}", index - 1, last - 1));
    }
    for missing in last + 1..index {
        samples.push(missing, sent_ns, sent_ns, 0, Outcome::Lost);
    }
    Ok(())
}

struct Row {
    index: u64,
    sent_ns: u64,
    received_ns: u64,
}

fn read_row(line: &str) -> Option<Row> {
    let mut fields = line.split(',').map(str::trim);
    let index = fields.next()?.parse().ok()?;
    let (sent_ns, received_ns) = (seconds_ns(fields.next()?)?, seconds_ns(fields.next()?)?);
    let _its_latency: f64 = fields.next()?.parse().ok()?;
    let is_one = fields.next().is_none() && index < u64::MAX / 2;
    is_one.then_some(Row { index, sent_ns, received_ns })
}

/// Decimal seconds as nanoseconds, without the rounding of a binary fraction.
fn seconds_ns(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let scale = 10_u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? * scale };
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Parameters of the run in the prologue: the size of its packets and its rate, as far as they are there.
pub fn log_parameters(text: &str) -> (Option<usize>, Option<u64>) {
    let parameters = text.lines().find(|line| line.contains("--msg-size=")).unwrap_or("");
    let value = |name: &str| {
        let word = parameters.split_ascii_whitespace().find_map(|word| word.strip_prefix(name))?;
        word.trim_end_matches(',').parse::<u64>().ok()
    };
    let size = value("--msg-size=").and_then(|size| usize::try_from(size).ok());
    (size, value("--mps="))
}

/// The cell of an imported log.
pub fn imported_cell(text: &str, load: Load) -> CellId {
    let (size, rate) = log_parameters(text);
    let gap_ns = match (load, rate) {
        (Load::Open, Some(rate)) if rate > 0 => 1_000_000_000 / rate,
        _ => 0,
    };
    let cell = CellId::new("sockperf", "round_trip").with_gap(Duration::from_nanos(gap_ns));
    CellId { load, size: size.unwrap_or(0), ..cell }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &str = "------------------------------\n\
        test was performed using the following parameters: --mps=600000 --burst=1 --reply-every=1 --msg-size=64 --time=1\n\
        ------------------------------\nsockperf: [Total Run] RunTime=1.001 sec\n\
        sockperf: # dropped messages = 2; # duplicated messages = 1; # out-of-order messages = 3\n\
        ------------------------------\npacket, txTime(sec), rxTime(sec), latency(usec)\n\
        0, 2.412097376, 2.412215576, 59.100\n1, 2.412215706, 2.412341280, 62.787\n\
        4, 2.412341470, 2.412461494, 60.012\n------------------------------\n";

    /// Goal: as many are lost as the log counts, whether its numbers leave them out or do not.
    #[test]
    fn a_log_is_read_in_round_trips() {
        let samples = read_log(LOG).unwrap();
        assert_eq!(samples.index, [1, 2, 3, 4, 5]);
        let steady = samples.rows(crate::sample::Phase::Steady, 0).count();
        assert_eq!(steady, 5, "the first sample is as good as the others");
        assert_eq!((samples.facts.duplicated, samples.facts.reordered), (1, 3));
        assert_eq!(samples.total_ns[..2], [118_200, 125_574]);
        assert_eq!(samples.sent_ns[..5], [0, 118_330, 244_094, 244_094, 244_094]);
        assert_eq!((samples.count_of(Outcome::Lost), samples.count_of(Outcome::Answered)), (2, 3));
        let counting_lines = read_log(&LOG.replace("4, 2.4", "2, 2.4")).unwrap();
        assert_eq!(counting_lines.index, [1, 2, 3, 4, 5]);
        assert_eq!(counting_lines.outcome[3..], [Outcome::Lost; 2]);
        assert_eq!(log_parameters(LOG), (Some(64), Some(600_000)));
    }

    /// Goal: no loss is left out in silence: all are taken, or the log is refused.
    #[test]
    fn losses_are_taken_or_refused() {
        let of = |count: &str| {
            read_log(&LOG.replace("dropped messages = 2", &format!("dropped messages = {count}")))
        };
        let many = MISSING_MAX + 3;
        assert_eq!(of(&many.to_string()).expect("they fit").count_of(Outcome::Lost), many);
        for count in ["99999999999", "99999999999999999999999"] {
            let refused = of(count).expect_err("more than any log has");
            assert!(refused.contains("dropped messages that it does not place"), "{refused}");
        }
    }

    #[test]
    fn a_text_that_is_no_log_is_refused() {
        assert!(read_log("").unwrap_err().contains("no full log"));
        let broken = LOG.replace("62.787", "x");
        assert!(read_log(&broken).unwrap_err().starts_with("line 9"));
        let backwards = LOG.replace("2.412341280", "2.400000000");
        assert!(read_log(&backwards).unwrap_err().contains("backwards"));
        assert!(read_log(&LOG.replace("4, 2", "0, 2")).is_err(), "a number comes twice");
    }

    proptest! {
        #[test]
        fn any_text_is_harmless(rows in "[0-9,. \n-]{0,200}", text in ".{0,80}") {
            let _read_or_not = read_log(&format!("{HEADING}\n{rows}"));
            let _read_or_not = read_log(&text);
            let _known_or_not = log_parameters(&text);
        }

        #[test]
        fn seconds_read_back(ns in 0..u64::MAX / 2) {
            let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            prop_assert_eq!(seconds_ns(&text), Some(ns));
        }
    }
}
