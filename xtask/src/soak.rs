//! Very many messages with random delays at every step of the sleep/wake handshake: no wake-up may be lost.

use std::time::Duration;

use crate::command::{Run, how, tail};
use crate::step::Outcome;
use crate::workspace;

/// What CI can spare, and what a night can.
pub(crate) const SHORT: u64 = 1_000_000;
pub(crate) const LONG: u64 = 100_000_000;

/// Every message of the long one may take as long as a wake-up does on a busy machine.
const DEADLINE: Duration = Duration::from_secs(4 * 3600);

/// The ways of sleeping that the library uses.
const MECHANISMS: [&str; 2] = ["futex", "epoll"];

/// Messages of a soak that is spoilt on purpose: each lost wake-up costs a time limit.
const SPOILT: u64 = 1_500;

pub(crate) fn run(messages: u64) -> Outcome {
    let each = |mechanism: &&str| {
        // The count must be able to rise, and must not rise for a writer that was stopped.
        soak(mechanism, SPOILT, Some("look"), 1)?;
        soak(mechanism, SPOILT, Some("halt"), 0)?;
        soak(mechanism, messages / MECHANISMS.len() as u64, None, 0)
    };
    Outcome::of(MECHANISMS.iter().try_for_each(each))
}

fn soak(mechanism: &str, messages: u64, spoil: Option<&str>, expected: i32) -> Result<(), String> {
    let mut soak = Run::cargo(&["run", "--release", "--package", "punctual-lab", "--quiet", "--"])
        .args(&["run", "wakeup", "--quiet", "--mechanism", mechanism, "--soak"])
        .arg(messages.to_string())
        .within(DEADLINE);
    if let Some(step) = spoil {
        soak = soak.args(&["--spoil", step]);
    }
    let name = format!("{mechanism}{}", spoil.map_or(String::new(), |step| format!(" spoilt by {step}")));
    let (ended, output) =
        soak.output_to(&workspace::target("xtask").join(format!("soak-{mechanism}.json")))?;
    println!("{name}: {output}");
    if ended == Some(expected) {
        return Ok(());
    }
    Err(format!(
        "{name}: {}, where {expected} was due; its output ends:\n{}",
        how(ended, DEADLINE),
        tail(&output, 20)
    ))
}
