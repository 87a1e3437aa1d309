//! A plan of what goes wrong, as data: printed to be run again, and shrunk by leaving entries out.
//!
//! One entry a line. A node is its place in the world, a link is two of them, `*` is any. Rates are of a thousand messages.
//!
//! ```text
//! seed 17
//! 0ns..3s *->2 lose 300
//! 1s..2s 1->0 cut
//! 0ns..3s *->* flip 10
//! 0ns..3s *->* double 100 20ms
//! 0ns..3s *->* delay 50 15ms
//! 0ns..3s *->1 slow 300us
//! 0ns..3s replay 20ms
//! message 17 1->0 lose
//! message 18 1->0 flip 133
//! 5ms replay 12
//! 5ms replay 12 flip 133
//! 5s node 3 crash
//! 6s node 3 restart
//! 2s node 4 pause 500ms
//! 3s node 1 step -20us
//! 0ns node 2 drift 5000
//! 4s node 1 act 2
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::time::Nanos;

/// The way from one node to another; `None` is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The sender.
    pub source: Option<u16>,
    /// The receiver.
    pub target: Option<u16>,
}

impl Link {
    /// Any way.
    pub const ANY: Self = Self { source: None, target: None };

    /// The way between these two, in this direction.
    pub const fn between(source: u16, target: u16) -> Self {
        Self { source: Some(source), target: Some(target) }
    }

    /// True if this way is meant.
    pub fn includes(self, source: u16, target: u16) -> bool {
        self.source.is_none_or(|own| own == source) && self.target.is_none_or(|own| own == target)
    }
}

/// Possible disturbances of messages on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing arrives.
    Cut,
    /// So many of a thousand are lost.
    Lose(u32),
    /// One bit of so many of a thousand is flipped.
    Flip(u32),
    /// So many of a thousand arrive twice, the second time up to so much later.
    Double(u32, Nanos),
    /// So many of a thousand take up to so much longer, and are overtaken.
    Delay(u32, Nanos),
    /// All take so much longer.
    Slow(Nanos),
}

/// A disturbance of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not arrive.
    Lose,
    /// This bit of it is flipped; counted from the first, modulo its size.
    Flip(u32),
    /// It arrives once more, so much later.
    Double(Nanos),
    /// It takes so much longer.
    Delay(Nanos),
}

/// A fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// It is gone, and what comes for it is lost.
    Crash,
    /// It begins anew, whether it was gone or not.
    Restart,
    /// It stands still for so long; messages for it wait.
    Pause(Nanos),
    /// Its clock is set by so many nanoseconds.
    Step(i64),
    /// Its clock drifts by so many parts in 10⁹.
    Drift(i64),
    /// It does what its model means by this number.
    Act(u64),
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// On some ways, for some time.
    Weather {
        /// Since when.
        since: Nanos,
        /// Until when.
        until: Nanos,
        /// On which ways.
        link: Link,
        /// The possible disturbance.
        weather: Weather,
    },
    /// To one message.
    Message {
        /// Number of messages that went this way before it.
        number: u64,
        /// Its sender.
        source: u16,
        /// Its intended receiver.
        target: u16,
        /// Its fate.
        fate: Fate,
    },
    /// For some time, somebody plays back messages that chance chooses, each with a flipped bit or without, by chance.
    Replays {
        /// Since when.
        since: Nanos,
        /// Until when.
        until: Nanos,
        /// Interval between two replays.
        every: Nanos,
    },
    /// Somebody plays back one message.
    Replay {
        /// When.
        at: Nanos,
        /// Number of messages that were sent in the world before it.
        message: u64,
        /// With this bit flipped.
        flip: Option<u32>,
    },
    /// To one node.
    Node {
        /// When.
        at: Nanos,
        /// The node.
        node: u16,
        /// The fault.
        fault: NodeFault,
    },
}

/// A seed, and what goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The choices of chance follow from this.
    pub seed: u64,
    /// In any order.
    pub faults: Vec<Fault>,
}

/// A line that is no entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Text of the line.
    pub text: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: \"{}\" is no entry of a plan", self.line, self.text)
    }
}

impl core::error::Error for PlanError {}

impl Plan {
    /// A plan in which nothing goes wrong.
    pub const fn calm(seed: u64) -> Self {
        Self { seed, faults: Vec::new() }
    }

    /// Adds something that happens on some ways for some time.
    pub fn weather(&mut self, (since, until): (Nanos, Nanos), link: Link, weather: Weather) {
        self.faults.push(Fault::Weather { since, until, link, weather });
    }

    /// Adds something that happens to a node.
    pub fn node(&mut self, at: Nanos, node: u16, fault: NodeFault) {
        self.faults.push(Fault::Node { at, node, fault });
    }

    /// Faults of nodes: the time, the node and the fault.
    pub fn node_faults(&self) -> impl Iterator<Item = (Nanos, u16, NodeFault)> + '_ {
        self.faults.iter().filter_map(|fault| match *fault {
            Fault::Node { at, node, fault } => Some((at, node, fault)),
            _ => None,
        })
    }
}

const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A time that reads back as itself.
pub(super) fn time_text(time: u64) -> String {
    let unit = UNITS.iter().find(|(_, size)| time != 0 && time.is_multiple_of(*size));
    let (name, size) = unit.unwrap_or(&UNITS[3]);
    format!("{}{name}", time / size)
}

fn node_text(node: Option<u16>) -> String {
    node.map_or("*".to_string(), |node| node.to_string())
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", node_text(self.source), node_text(self.target))
    }
}

impl fmt::Display for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("cut"),
            Self::Lose(permille) => write!(f, "lose {permille}"),
            Self::Flip(permille) => write!(f, "flip {permille}"),
            Self::Double(permille, within) => write!(f, "double {permille} {}", time_text(within.0)),
            Self::Delay(permille, within) => write!(f, "delay {permille} {}", time_text(within.0)),
            Self::Slow(by) => write!(f, "slow {}", time_text(by.0)),
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lose => f.write_str("lose"),
            Self::Flip(bit) => write!(f, "flip {bit}"),
            Self::Double(later) => write!(f, "double {}", time_text(later.0)),
            Self::Delay(by) => write!(f, "delay {}", time_text(by.0)),
        }
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash => f.write_str("crash"),
            Self::Restart => f.write_str("restart"),
            Self::Pause(time) => write!(f, "pause {}", time_text(time.0)),
            Self::Step(step) => {
                let sign = if *step < 0 { "-" } else { "" };
                write!(f, "step {sign}{}", time_text(step.unsigned_abs()))
            }
            Self::Drift(ppb) => write!(f, "drift {ppb}"),
            Self::Act(number) => write!(f, "act {number}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |since: Nanos, until: Nanos| format!("{}..{}", time_text(since.0), time_text(until.0));
        match *self {
            Self::Weather { since, until, link, weather } => {
                write!(f, "{} {link} {weather}", span(since, until))
            }
            Self::Message { number, source, target, fate } => {
                write!(f, "message {number} {} {fate}", Link::between(source, target))
            }
            Self::Replays { since, until, every } => {
                write!(f, "{} replay {}", span(since, until), time_text(every.0))
            }
            Self::Replay { at, message, flip } => {
                write!(f, "{} replay {message}", time_text(at.0))?;
                flip.map_or(Ok(()), |bit| write!(f, " flip {bit}"))
            }
            Self::Node { at, node, fault } => write!(f, "{} node {node} {fault}", time_text(at.0)),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "{fault}"))
    }
}

fn time(text: &str) -> Option<Nanos> {
    let (name, size) = UNITS.iter().rev().find(|(name, _)| {
        let number = text.strip_suffix(name);
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    })?;
    let number: u64 = text.strip_suffix(name)?.parse().ok()?;
    number.checked_mul(*size).map(Nanos)
}

fn span(text: &str) -> Option<(Nanos, Nanos)> {
    let (since, until) = text.split_once("..")?;
    Some((time(since)?, time(until)?))
}

fn link(text: &str) -> Option<Link> {
    let node = |text: &str| if text == "*" { Some(None) } else { text.parse().ok().map(Some) };
    let (source, target) = text.split_once("->")?;
    Some(Link { source: node(source)?, target: node(target)? })
}

fn weather(words: &[&str]) -> Option<Weather> {
    Some(match *words {
        ["cut"] => Weather::Cut,
        ["lose", permille] => Weather::Lose(permille.parse().ok()?),
        ["flip", permille] => Weather::Flip(permille.parse().ok()?),
        ["double", permille, within] => Weather::Double(permille.parse().ok()?, time(within)?),
        ["delay", permille, within] => Weather::Delay(permille.parse().ok()?, time(within)?),
        ["slow", by] => Weather::Slow(time(by)?),
        _ => return None,
    })
}

fn fate(words: &[&str]) -> Option<Fate> {
    Some(match *words {
        ["lose"] => Fate::Lose,
        ["flip", bit] => Fate::Flip(bit.parse().ok()?),
        ["double", later] => Fate::Double(time(later)?),
        ["delay", by] => Fate::Delay(time(by)?),
        _ => return None,
    })
}

fn node_fault(words: &[&str]) -> Option<NodeFault> {
    Some(match *words {
        ["crash"] => NodeFault::Crash,
        ["restart"] => NodeFault::Restart,
        ["pause", length] => NodeFault::Pause(time(length)?),
        ["step", step] => {
            let (sign, step) = step.strip_prefix('-').map_or((1, step), |step| (-1, step));
            NodeFault::Step(sign * i64::try_from(time(step)?.0).ok()?)
        }
        ["drift", ppb] => NodeFault::Drift(ppb.parse().ok()?),
        ["act", number] => NodeFault::Act(number.parse().ok()?),
        _ => return None,
    })
}

fn fault(words: &[&str]) -> Option<Fault> {
    if let ["message", number, way, rest @ ..] = words {
        let Link { source, target } = link(way)?;
        let (source, target) = (source?, target?);
        return Some(Fault::Message { number: number.parse().ok()?, source, target, fate: fate(rest)? });
    }
    if let (Some((since, until)), [_, rest @ ..]) = (words.first().and_then(|text| span(text)), words) {
        return Some(match rest {
            ["replay", every] => Fault::Replays { since, until, every: time(every)? },
            [way, rest @ ..] => Fault::Weather { since, until, link: link(way)?, weather: weather(rest)? },
            [] => return None,
        });
    }
    let at = time(words.first()?)?;
    match words[1..] {
        ["replay", message] => Some(Fault::Replay { at, message: message.parse().ok()?, flip: None }),
        ["replay", message, "flip", bit] => {
            Some(Fault::Replay { at, message: message.parse().ok()?, flip: Some(bit.parse().ok()?) })
        }
        ["node", node, ref rest @ ..] => {
            Some(Fault::Node { at, node: node.parse().ok()?, fault: node_fault(rest)? })
        }
        _ => None,
    }
}

/// Reads what [`Plan`] prints. Empty lines and lines that begin with `//` say nothing.
impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        for (place, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let error = || PlanError { line: place + 1, text: line.to_string() };
            match words[..] {
                [] => {}
                [first, ..] if first.starts_with("//") => {}
                ["seed", seed] => plan.seed = seed.parse().map_err(|_| error())?,
                _ => plan.faults.push(fault(&words).ok_or_else(error)?),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "seed 17\n0ns..3s *->2 lose 300\n1s..2s 1->0 cut\n0ns..3s *->* flip 10\n\
        0ns..3s *->* double 100 20ms\n0ns..3s 1->* delay 50 15ms\n0ns..3s *->1 slow 300us\n0ns..3s replay 20ms\nmessage 17 1->0 lose\n\
        message 18 1->0 flip 133\nmessage 19 1->0 double 3ms\nmessage 20 1->0 delay 7001us\n5ms replay 12\n\
        5ms replay 12 flip 133\n5s node 3 crash\n6s node 3 restart\n2s node 4 pause 500ms\n\
        3s node 1 step -20us\n3s node 1 step 1ns\n0ns node 2 drift -5000\n4s node 1 act 2\n";

    #[test]
    fn a_printed_plan_reads_back_as_itself() {
        let plan: Plan = TEXT.parse().unwrap();
        assert_eq!((plan.seed, plan.faults.len()), (17, TEXT.lines().count() - 1));
        assert_eq!(plan.to_string(), TEXT);
        let with_comments = TEXT.replace("6s node", "\n// six seconds\n6s node");
        assert_eq!(with_comments.parse(), Ok(plan));
    }

    #[test]
    fn a_line_that_is_no_entry_is_said_with_its_number() {
        for wrong in [
            "0..3s *->* cut",
            "0ns..3s *->* lose",
            "message 3 *->1 lose",
            "5s node 3 explode",
            "1s",
            "0ns..1s",
        ] {
            let error = format!("seed 1\n{wrong}\n").parse::<Plan>().unwrap_err();
            assert_eq!(error, PlanError { line: 2, text: wrong.to_string() });
        }
        assert!("99999999999999s node 1 crash".parse::<Plan>().is_err(), "a time that does not fit");
    }
}
