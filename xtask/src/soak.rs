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

pub(crate) fn run(messages: u64) -> Outcome {
    let each = |mechanism: &&str| soak(mechanism, messages / MECHANISMS.len() as u64);
    Outcome::of(MECHANISMS.iter().try_for_each(|mechanism| each(&mechanism)))
}

fn soak(mechanism: &str, messages: u64) -> Result<(), String> {
    let soak = Run::cargo(&["run", "--release", "--package", "punctual-lab", "--quiet", "--"])
        .args(&["run", "wakeup", "--quiet", "--mechanism", mechanism, "--soak"])
        .arg(messages.to_string())
        .within(DEADLINE);
    let (ended, output) =
        soak.output_to(&workspace::target("xtask").join(format!("soak-{mechanism}.json")))?;
    println!("{output}");
    match ended {
        Some(0) => Ok(()),
        _ => Err(format!("{mechanism}: {}; its output ends:\n{}", how(ended, DEADLINE), tail(&output, 20))),
    }
}
