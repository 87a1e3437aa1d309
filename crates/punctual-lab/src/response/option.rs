//! Ways to be faster, as options that are measured side by side.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::endpoint::port::Way;
use crate::explain::stage::Side;
use crate::scheduling::{Control, Urgency};
use crate::units::OptionName;

/// Ends whose threads are urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// The client's and the responder's
    #[default]
    Both,
    /// The client's alone: shows if the measuring host was late
    Client,
    /// The responder's alone
    Responder,
}

/// Extent of the recording besides the trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Recorded {
    /// Nothing: the reference for the cost of the others
    Nothing,
    /// Each thread's observations of itself
    Windows,
    /// The kernel's trace too (root)
    Trace,
}

/// One thing that is measured: a way and an urgency, and what is recorded meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// Way in which packets are sent and waited for.
    pub way: Way,
    /// Of the measuring threads.
    pub urgency: Urgency,
    /// Of which of them.
    #[serde(default)]
    pub ends: Ends,
    /// If several levels of recording are measured side by side: which. Else it is that of the run.
    #[serde(default)]
    pub recorded: Option<Recorded>,
}

impl Variant {
    /// As the client's thread takes it.
    pub fn at_client(self) -> Self {
        self.at(self.ends != Ends::Responder)
    }

    /// As the responder's thread takes it.
    pub fn at_responder(self) -> Self {
        self.at(self.ends != Ends::Client)
    }

    /// A control thread beside one of its threads, where windows are kept.
    pub fn control(self, cpu: Option<usize>) -> Control {
        if self.keeps_windows() { Control::start(cpu, self.urgency) } else { Control::absent() }
    }

    /// True if its threads keep windows of what they went through.
    pub fn keeps_windows(self) -> bool {
        self.recorded != Some(Recorded::Nothing)
    }

    fn at(self, is_urgent: bool) -> Self {
        let urgency = if is_urgent { self.urgency } else { Urgency::Other };
        Self { urgency, ends: Ends::Both, ..self }
    }
}

impl fmt::Display for Variant {
    /// `blocking`, `spin+fifo:50`, `spin+fifo:50@client`, `blocking~trace`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.urgency, self.ends) {
            (Urgency::Other, _) => write!(f, "{}", self.way),
            (urgency, Ends::Both) => write!(f, "{}+{urgency}", self.way),
            (urgency, Ends::Client) => write!(f, "{}+{urgency}@client", self.way),
            (urgency, Ends::Responder) => write!(f, "{}+{urgency}@responder", self.way),
        }?;
        self.recorded.map_or(Ok(()), |recorded| write!(f, "~{}", recorded.name()))
    }
}

/// Urgency of a side's thread, by the name of what was measured.
pub fn urgency_at(name: &str, side: Side) -> Urgency {
    let of_all = |name: &str| name.split_once('+').and_then(|(_, urgency)| urgency.parse().ok());
    let name = name.split_once('~').map_or(name, |(name, _)| name);
    let (name, end) = name.split_once('@').map_or((name, None), |(name, end)| (name, Some(end)));
    let is_urgent = match side {
        Side::Client => end != Some("responder"),
        _ => end != Some("client"),
    };
    of_all(name).filter(|_| is_urgent).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the name tells the urgency of both ends.
    #[test]
    fn a_name_tells_the_urgency() {
        for ends in [Ends::Both, Ends::Client, Ends::Responder] {
            for urgency in [Urgency::Other, Urgency::Fifo(50), Urgency::Nice(-5)] {
                for recorded in [None, Some(Recorded::Trace)] {
                    let choice = Variant { way: Way::Spin, urgency, ends, recorded };
                    let told =
                        [Side::Client, Side::Responder].map(|side| urgency_at(&choice.to_string(), side));
                    assert_eq!(told, [choice.at_client().urgency, choice.at_responder().urgency], "{choice}");
                }
            }
        }
    }

    #[test]
    fn names_are_those_of_the_options() {
        let choice = Variant { way: Way::Spin, urgency: Urgency::Fifo(50), ends: Ends::Both, recorded: None };
        assert_eq!(choice.to_string(), "spin+fifo:50");
        let traced = Variant { recorded: Some(Recorded::Trace), ..choice };
        assert_eq!(traced.to_string(), "spin+fifo:50~trace");
        assert_eq!(Variant { ends: Ends::Client, ..choice }.to_string(), "spin+fifo:50@client");
    }

    #[test]
    fn one_end_may_be_urgent_alone() {
        let choice = |ends| Variant { way: Way::Spin, urgency: Urgency::Fifo(50), ends, recorded: None };
        let urgencies = |ends| [choice(ends).at_client().urgency, choice(ends).at_responder().urgency];
        assert_eq!(urgencies(Ends::Both), [Urgency::Fifo(50); 2]);
        assert_eq!(urgencies(Ends::Client), [Urgency::Fifo(50), Urgency::Other]);
        assert_eq!(urgencies(Ends::Responder), [Urgency::Other, Urgency::Fifo(50)]);
    }
}
