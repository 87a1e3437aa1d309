//! Losses of racy protocols and of their repairs, and the losses that a time limit hides.

use std::time::Duration;

use punctual_proto::user_interrupt::{Expected, Variant};
use serde::{Deserialize, Serialize};

use crate::load::race::{MESSAGES_PER_ROUND, RaceProtocol, race};

/// Rounds of each protocol.
const ROUNDS: u64 = 150;
/// Rounds at each of the log's time limits.
const ROUNDS_PER_LIMIT: u64 = 50;
/// A wait that lasts so long was slept over a message, or nobody was asked to send one.
const LIMIT: Duration = Duration::from_millis(2);
/// The time limits that the log tried to hide the losses with, and one between.
const LIMITS_US: [u64; 5] = [100, 1_000, 2_500, 5_000, 10_000];

/// The same protocol without its race, if the model says that it has one that shows.
fn repaired(protocol: &RaceProtocol) -> Option<&'static str> {
    let variant = Variant::named(protocol.name)?;
    variant.repaired.filter(|_| variant.expected == Expected::Loses)
}

/// Result of one of the handshakes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandshakeResult {
    /// Name of the variant.
    pub name: String,
    /// Its description.
    pub about: String,
    /// The same without its race.
    #[serde(default)]
    pub repaired: Option<String>,
    /// Rounds made, of two messages each.
    pub rounds: u64,
    /// Messages asked for.
    #[serde(default)]
    pub messages: u64,
    /// Waits that only the time limit ended.
    pub lost: u64,
    /// True if the model predicts losses.
    pub predicted_lost: bool,
    /// Time limit of a wait, microseconds.
    #[serde(default)]
    pub limit_us: u64,
    /// From the request to the reader awake, waits that the limit ended included: mean, nanoseconds, …
    #[serde(default)]
    pub mean_ns: f64,
    /// … and slowest.
    #[serde(default)]
    pub max_ns: u64,
}

impl HandshakeResult {
    /// Returns true if the prediction held.
    pub fn is_as_predicted(&self) -> bool {
        (self.lost > 0) == self.predicted_lost
    }

    /// Returns true if a repair lost wake-ups, which the model rules out. A delay that hides a race is none.
    pub fn breaks_its_promise(&self) -> bool {
        self.lost > 0 && RaceProtocol::ALL.iter().any(|racy| repaired(racy) == Some(self.name.as_str()))
    }

    /// Messages in a second, as the log counts them: over the waits.
    pub fn rate(&self) -> f64 {
        1e9 / self.mean_ns.max(1.0)
    }
}

/// Runs each.
pub(super) fn all(cpus: &[usize]) -> Vec<HandshakeResult> {
    RaceProtocol::ALL.into_iter().filter_map(|protocol| run(protocol, ROUNDS, LIMIT, cpus)).collect()
}

/// One racy protocol and its repair under each of the log's time limits.
pub(super) fn under_limits(cpus: &[usize]) -> Vec<HandshakeResult> {
    let limits = LIMITS_US.map(Duration::from_micros);
    let both = [RaceProtocol::WAIT_UNMASKED, RaceProtocol::WAIT];
    let runs = limits.into_iter().flat_map(|limit| both.map(|protocol| (protocol, limit)));
    runs.filter_map(|(protocol, limit)| run(protocol, ROUNDS_PER_LIMIT, limit, cpus)).collect()
}

/// Nothing with one processor: there the writer never meets the reader in the window. Nothing of what Ctrl-C left no time for.
fn run(protocol: RaceProtocol, rounds: u64, limit: Duration, cpus: &[usize]) -> Option<HandshakeResult> {
    let [first, .., last] = *cpus else { return None };
    let tally = race(protocol, rounds, limit, [first, last]);
    let messages = tally.waits_ns.len() as u64;
    if messages == 0 {
        return None;
    }
    let sum_ns: u64 = tally.waits_ns.iter().sum();
    Some(HandshakeResult {
        name: protocol.name.to_owned(),
        about: protocol.about.to_owned(),
        repaired: repaired(&protocol).map(str::to_owned),
        rounds: messages / MESSAGES_PER_ROUND,
        messages,
        lost: tally.lost,
        predicted_lost: repaired(&protocol).is_some(),
        limit_us: u64::try_from(limit.as_micros()).unwrap_or(u64::MAX),
        mean_ns: (sum_ns as f64 / messages as f64).round(),
        max_ns: tally.waits_ns.into_iter().max().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: predictions are the model's of the protocol of that name; the repair of each that loses runs too.
    #[test]
    fn predictions_are_the_models() {
        let racy = ["wait-unmasked", "epoll-event", "h1", "h1-recheck", "h2"];
        for protocol in RaceProtocol::ALL {
            let (name, repaired) = (protocol.name, repaired(&protocol));
            assert!(Variant::named(name).is_some(), "{name} is not in the model");
            assert_eq!(repaired.is_some(), racy.contains(&name), "{name}");
            let runs = |name: &str| RaceProtocol::ALL.iter().any(|other| other.name == name);
            assert!(repaired.is_none_or(runs), "{repaired:?} does not run");
        }
    }

    /// Goal: protocols that may lose nothing are told from those that are known to, and from those that only seem not to.
    #[test]
    fn a_repair_that_loses_breaks_its_promise() {
        let breaks = |name: &str, lost| {
            HandshakeResult { name: name.to_owned(), lost, ..HandshakeResult::default() }.breaks_its_promise()
        };
        for repair in ["wait", "epoll-event-recheck", "h1-repaired", "h4"] {
            assert!(breaks(repair, 1) && !breaks(repair, 0), "{repair}");
        }
        for racy in ["wait-unmasked", "epoll-event", "h1", "h1-recheck", "h2", "h3"] {
            assert!(!breaks(racy, 1), "{racy}");
        }
    }

    /// Goal: a protocol of which no message was sent has no row, and so no speed.
    #[test]
    fn a_protocol_that_sent_nothing_has_no_row() {
        let cpus = punctual_machine::cpu::allowed();
        assert_eq!(run(RaceProtocol::WAIT, 0, LIMIT, &cpus), None);
    }

    /// Goal: a racy protocol loses wake-ups under every limit, and its repair none; the limit is what a lost one takes.
    #[test]
    fn a_limit_hides_what_the_repair_prevents() {
        let cpus = punctual_machine::cpu::allowed();
        if cpus.len() < 2 {
            return punctual_machine::skipped!("two processors are needed to meet in the window");
        }
        let limit = Duration::from_millis(1);
        // Beside other work reader and writer seldom meet.
        let is_lost = (0..20).any(|_| {
            let repaired = run(RaceProtocol::WAIT, 100, limit, &cpus).unwrap();
            assert!(repaired.messages == 200 && repaired.lost == 0, "{repaired:?}");
            let racy = run(RaceProtocol::WAIT_UNMASKED, 100, limit, &cpus).unwrap();
            assert!(racy.messages == 200 && (racy.lost == 0 || racy.max_ns >= 1_000_000), "{racy:?}");
            racy.lost > 0
        });
        assert!(is_lost, "a racy protocol lost nothing");
    }
}
