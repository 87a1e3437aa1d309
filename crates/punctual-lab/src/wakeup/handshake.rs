//! Racy protocols in software, each beside its repair: the protocols that lose wake-ups, their losses, and the losses that a time limit
//! hides.
//!
//! Reader and writer do what the work log's test programs did. The model (`punctual sim wakeup`) goes through every order of
//! events of the protocols of the same names; here they run, and losses are counted. Two messages each: a round begins anew,
//! and its second message meets what the first has left behind.

use std::time::Duration;

use punctual_proto::user_interrupt::{Expected, Variant};
use serde::{Deserialize, Serialize};

use crate::load::race::{Lowers, MESSAGES_PER_ROUND, RaceProtocol, Sleeps, race};

/// Rounds of each protocol.
const ROUNDS: u64 = 150;
/// Rounds at each of the log's time limits.
const ROUNDS_PER_LIMIT: u64 = 50;
/// A wait that lasts so long was slept over a message, or nobody was asked to send one.
const LIMIT: Duration = Duration::from_millis(2);
/// The time limits that the log tried to hide the losses with, and one between.
const LIMITS_US: [u64; 5] = [100, 1_000, 2_500, 5_000, 10_000];

/// A protocol by which reader and writer agree on when to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Its name, also in the model (`punctual sim wakeup --variant`).
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    protocol: RaceProtocol,
}

impl Handshake {
    /// The same without its race, if the model says that it has one that shows.
    pub fn repaired(&self) -> Option<&'static str> {
        let variant = Variant::named(self.name)?;
        variant.repaired.filter(|_| variant.expected == Expected::Loses)
    }
}

const LOOKS: Sleeps = Sleeps::ForTheEvent { rechecks: true };
const LOOKS_NOT: Sleeps = Sleeps::ForTheEvent { rechecks: false };
const fn of(name: &'static str, about: &'static str, lowers: Lowers, sleeps: Sleeps) -> Handshake {
    Handshake { name, about, protocol: RaceProtocol { lowers, delays: false, sleeps } }
}

const WAIT_UNMASKED: Handshake = of(
    "wait-unmasked",
    "the notification may come between the look and the wait (A1)",
    Lowers::Never,
    Sleeps::ForANotification { from_before_the_look: false },
);
const WAIT: Handshake = of(
    "wait",
    "a notification since before the look ends the wait",
    Lowers::Never,
    Sleeps::ForANotification { from_before_the_look: true },
);

/// All of them, each racy one before its repair; h3 is h2 with a delay that hides its race.
const HANDSHAKES: [Handshake; 10] = [
    WAIT_UNMASKED,
    WAIT,
    of("epoll-event", "the wait clears ON and does not look (E1)", Lowers::Never, LOOKS_NOT),
    of("epoll-event-recheck", "the wait looks at what was posted once ON is clear", Lowers::Never, LOOKS),
    of("h1", "flag raised before the wait, lowered after the send", Lowers::Late, LOOKS_NOT),
    of("h1-recheck", "h1 that looks again", Lowers::Late, LOOKS),
    of("h1-repaired", "h1-recheck that lowers only the flag which it answered", Lowers::Answered, LOOKS),
    of("h2", "flag lowered at once", Lowers::First, LOOKS_NOT),
    of("h4", "h2 that looks again", Lowers::First, LOOKS),
    Handshake {
        name: "h3",
        about: "h2 with a delay in the writer: the race remains, unseen",
        protocol: RaceProtocol { lowers: Lowers::First, delays: true, sleeps: LOOKS_NOT },
    },
];

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
        self.lost > 0 && HANDSHAKES.iter().any(|racy| racy.repaired() == Some(self.name.as_str()))
    }

    /// Messages in a second, as the log counts them: over the waits.
    pub fn rate(&self) -> f64 {
        1e9 / self.mean_ns.max(1.0)
    }
}

/// Runs each.
pub(super) fn all(cpus: &[usize]) -> Vec<HandshakeResult> {
    HANDSHAKES.iter().filter_map(|handshake| run(handshake, ROUNDS, LIMIT, cpus)).collect()
}

/// One racy protocol and its repair under each of the log's time limits.
pub(super) fn under_limits(cpus: &[usize]) -> Vec<HandshakeResult> {
    let limits = LIMITS_US.map(Duration::from_micros);
    let runs = limits.into_iter().flat_map(|limit| [(WAIT_UNMASKED, limit), (WAIT, limit)]);
    runs.filter_map(|(handshake, limit)| run(&handshake, ROUNDS_PER_LIMIT, limit, cpus)).collect()
}

/// Nothing with one processor: there the writer never meets the reader in the window. Nothing of what Ctrl-C left no time for.
fn run(handshake: &Handshake, rounds: u64, limit: Duration, cpus: &[usize]) -> Option<HandshakeResult> {
    let [first, .., last] = *cpus else { return None };
    let tally = race(handshake.protocol, rounds, limit, [first, last]);
    let messages = tally.waits_ns.len() as u64;
    if messages == 0 {
        return None;
    }
    let sum_ns: u64 = tally.waits_ns.iter().sum();
    Some(HandshakeResult {
        name: handshake.name.to_owned(),
        about: handshake.about.to_owned(),
        repaired: handshake.repaired().map(str::to_owned),
        rounds: messages / MESSAGES_PER_ROUND,
        messages,
        lost: tally.lost,
        predicted_lost: handshake.repaired().is_some(),
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
        for handshake in HANDSHAKES {
            assert!(Variant::named(handshake.name).is_some(), "{} is not in the model", handshake.name);
            assert_eq!(handshake.repaired().is_some(), racy.contains(&handshake.name), "{}", handshake.name);
            if let Some(repaired) = handshake.repaired() {
                assert!(HANDSHAKES.iter().any(|other| other.name == repaired), "{repaired} does not run");
            }
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
        assert_eq!(run(&WAIT, 0, LIMIT, &cpus), None);
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
            let repaired = run(&WAIT, 100, limit, &cpus).unwrap();
            assert!(repaired.messages == 200 && repaired.lost == 0, "{repaired:?}");
            let racy = run(&WAIT_UNMASKED, 100, limit, &cpus).unwrap();
            assert!(racy.messages == 200 && (racy.lost == 0 || racy.max_ns >= 1_000_000), "{racy:?}");
            racy.lost > 0
        });
        assert!(is_lost, "a racy protocol lost nothing");
    }
}
