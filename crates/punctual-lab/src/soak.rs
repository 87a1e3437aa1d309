//! The long proof: very many messages between communicators of two processes, and not one wake-up lost.
//!
//! Either end sleeps by the way that is soaked, by the handshake that ships ([`punctual_machine::doorbell`]). Built with its labels
//! (`--cfg labelled_stores`, as `cargo xtask soak` does), both ends are delayed at every step of it. Then faults can be planted in it.
//!
//! A wake-up is *lost* if its sender had completed the send, and the receiver still slept to its limit, and for 20 ms more. The kernel
//! and the receiver's ledger must both say so. A sender that was stopped between its store and its notification has lost nothing yet:
//! that is *unfinished*. So every message says when the one before was complete:
//!
//! ```text
//! sender     store ─▶ ring ─▶ notify? ─▶ complete ─▶ told with the next message
//! receiver   sleeps ─▶ limit ─▶ missed ─┬▶ complete before: lost
//!                                       └▶ not yet: unfinished
//! ```

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual::{Bus, Clock, Communicator, CommunicatorOptions, Node, Target, Ticks, Wake};
use punctual_machine::cpu::{ThreadUsage, pin_to};
use punctual_machine::process::random;
use punctual_machine::signal::interrupted;
use punctual_proto::sim::Rng;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::run::{Requests, Worker, by_name};
use crate::units::OptionName;

/// A message noticed later than this is counted, regardless of the reason.
const LATE_AFTER: Duration = Duration::from_millis(10);
/// A send that was complete only so shortly before its receiver woke may have been on its way at the limit.
const SLACK: Duration = Duration::from_millis(10);
/// Longest wait for an answer: many limits of a sleep.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest gap between messages, spins: most are short, so that the receiver is met in every step.
const GAP_SPINS_MAX: u64 = 2_000;
const SHORT_SPINS_MAX: u64 = 60;
/// Of so many gaps one is longer than anybody spins.
const LONG_ONE_IN: u64 = 32;
const LONG_SPINS_MAX: u64 = 20_000;
/// Messages between two signs of life.
const TELL_EVERY: u64 = 1 << 14;

const PORT: u16 = 1;
/// Number, instants of the send and of the end of the send before.
const SIZE: usize = 24;
/// The number that ends it.
const END: u64 = u64::MAX;

/// Length of a soak, and its mechanism.
#[derive(Clone, Copy, Debug)]
pub struct SoakOptions {
    /// Wait strategy of both ends.
    pub wake: Wake,
    /// Messages of the one end; the other answers each.
    pub count: u64,
    /// Repeats the delays.
    pub seed: u64,
    /// The mistake that is made on purpose.
    pub spoilt: Option<Mutation>,
}

/// Possible mistakes, to see that the count of lost wake-ups can rise, and does not rise for nothing. Planted in the handshake itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mutation {
    /// The sleeper looks before it arms, not after: wake-ups are lost.
    Look,
    /// The sender never sends the notification that it is asked for: wake-ups are lost.
    Notify,
    /// The sender halts for two limits in the middle of some notifications, as a stopped process does: none is lost.
    Halt,
}

/// Result of a soak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SoakResult {
    /// Mechanism by which both ends waited.
    pub mechanism: String,
    /// True if both were delayed at every step of the handshake; false if between messages only.
    pub delayed_in_handshake: bool,
    /// Fate of the messages, answers included.
    #[serde(flatten)]
    pub tally: SoakTally,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Fate of the messages that came to one end, or to both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoakTally {
    /// Messages sent.
    pub messages: u64,
    /// Messages noticed: all of them, in order, once.
    pub noticed: u64,
    /// Times that an end gave up its processor to wait.
    pub parks: u64,
    /// Wake-ups that were missed although their send was complete.
    pub lost: u64,
    /// Wake-ups that were missed while the sender, stopped or kept from running, was between its store and the end of its notification.
    #[serde(default)]
    pub unfinished: u64,
    /// Messages noticed later than 10 ms after they were sent, regardless of the reason.
    pub late: u64,
    /// The latest, nanoseconds.
    pub latest_ns: u64,
}

impl SoakTally {
    /// Of both ends.
    fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            noticed: self.noticed + other.noticed,
            parks: self.parks + other.parks,
            lost: self.lost + other.lost,
            unfinished: self.unfinished + other.unfinished,
            late: self.late + other.late,
            latest_ns: self.latest_ns.max(other.latest_ns),
        }
    }
}

/// Order to one end.
#[derive(Debug, Serialize, Deserialize)]
struct SoakOrder {
    bus: String,
    #[serde(with = "by_name")]
    wake: Wake,
    begins: bool,
    count: u64,
    seed: u64,
    cpu: usize,
}

/// Report of one end.
#[derive(Debug, Serialize, Deserialize)]
enum SoakProgress {
    Sent(u64),
    Done(SoakTally),
}

/// Runs it. Ends early, with what there is, when interrupted.
///
/// # Errors
/// The machine cannot; or an end, once both had begun, found another message than was due, or none.
pub fn soak(options: SoakOptions, cpus: &[usize], bar: &ProgressBar) -> Result<SoakResult, Failure> {
    let bus = format!("soak-{:x}", random() & 0xFFFF_FFFF);
    let seed = options.seed.to_string();
    let mut environment = vec![("PUNCTUAL_DELAYS", seed.as_str())];
    let fault = options.spoilt.map(OptionName::name);
    environment.extend(fault.as_deref().map(|fault| ("PUNCTUAL_FAULT", fault)));
    let start = |begins: bool| {
        let mut worker = Worker::start_with("soak", &environment)?;
        worker.ask::<()>(&SoakOrder {
            bus: bus.clone(),
            wake: options.wake,
            begins,
            count: options.count,
            seed: options.seed ^ u64::from(begins),
            cpu: if begins { cpus.first() } else { cpus.last() }.copied().unwrap_or(0),
        })?;
        Ok::<_, String>(worker)
    };
    let mut answers = start(false)?;
    let mut begins = start(true)?;
    let began = std::time::Instant::now();
    let done = |worker: &mut Worker| loop {
        match worker.recv().map_err(Failure::Promise)? {
            SoakProgress::Done(tally) => return Ok::<_, Failure>(tally),
            SoakProgress::Sent(count) => bar.set_position(count),
        }
    };
    let tally = SoakTally::and(done(&mut begins)?, done(&mut answers)?);
    Ok(SoakResult {
        mechanism: options.wake.to_string(),
        delayed_in_handshake: punctual_machine::label::is_labelled(),
        tally,
        seconds: (began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
    })
}

/// One end, in a process of its own.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let Some(order) = requests.recv::<SoakOrder>() else { return Ok(()) };
    let words = |error: &dyn fmt::Display| error.to_string();
    let _unpinned = pin_to(order.cpu);
    let (own, other) = if order.begins { ("begins", "answers") } else { ("answers", "begins") };
    let node = Node::open(&Bus::shared(&order.bus), own).map_err(|error| words(&error))?;
    let options = CommunicatorOptions::waiting(order.wake);
    let communicator = node.bind_with(PORT, &options).map_err(|error| words(&error))?;
    requests.answer(&Ok(()))?;
    let mut end = End {
        communicator,
        node: &node,
        other,
        random: Rng::new(order.seed),
        tally: SoakTally::default(),
        complete: Ticks(0),
        missed: None,
    };
    let usage = ThreadUsage::now();
    let mut number = 1;
    while end.play(number, order.begins)? {
        if number == order.count || order.begins && interrupted() {
            break;
        }
        if order.begins && number.is_multiple_of(TELL_EVERY) {
            requests.answer(&Ok(SoakProgress::Sent(number)))?;
        }
        number += 1;
    }
    if order.begins && number < order.count {
        end.send(END)?;
    }
    // Of the last one nobody says any more when it was complete.
    end.tally.unfinished += u64::from(end.missed.is_some());
    end.tally.parks = ThreadUsage::now().since(usage).switches_voluntary;
    requests.answer(&Ok(SoakProgress::Done(end.tally)))?;
    // The other may not have read our last message yet: we leave when we are told to.
    while requests.recv::<()>().is_some() {}
    Ok(())
}

/// A gap of random length: one in eight is long enough to fall asleep in.
fn pass_gap(random: &mut Rng) {
    let spins_max = match random.below(LONG_ONE_IN) {
        0 => LONG_SPINS_MAX,
        number if number.is_multiple_of(8) => GAP_SPINS_MAX,
        _ => SHORT_SPINS_MAX,
    };
    for _ in 0..random.below(spins_max) {
        std::hint::spin_loop();
    }
}

struct End<'a> {
    communicator: Communicator,
    node: &'a Node,
    other: &'static str,
    random: Rng,
    tally: SoakTally,
    /// When the last send was complete.
    complete: Ticks,
    /// When a message was noticed whose wake-up was missed, until its sender has said when it was complete.
    missed: Option<Ticks>,
}

impl End<'_> {
    /// One message and its answer. `false` when the other ends it.
    fn play(&mut self, number: u64, begins: bool) -> Result<bool, String> {
        if begins {
            self.send(number)?;
            return self.receive(number);
        }
        if !self.receive(number)? {
            return Ok(false);
        }
        self.send(number)?;
        Ok(true)
    }

    fn send(&mut self, number: u64) -> Result<(), String> {
        pass_gap(&mut self.random);
        let clock = Clock::get();
        let mut payload = [0; SIZE];
        let words = [number, clock.now().0, self.complete.0];
        for (part, word) in payload.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        let target = Target::port(self.other, PORT);
        let sent = self.communicator.send_timeout(target, &payload, ANSWER_TIMEOUT);
        sent.map_err(|error| format!("message {number}: {error}"))?;
        self.complete = clock.now();
        self.tally.messages += u64::from(number != END);
        Ok(())
    }

    fn receive(&mut self, number: u64) -> Result<bool, String> {
        let clock = Clock::get();
        let message = self.communicator.receive_timeout(ANSWER_TIMEOUT);
        let noticed = clock.now();
        let message = message.map_err(|error| format!("message {number}: {error}"))?;
        let payload: [u8; SIZE] = message.payload.try_into().map_err(|_| "a message of another size")?;
        let word = |index: usize| {
            payload[8 * index..][..8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
        };
        if word(0) == END {
            return Ok(false);
        }
        if word(0) != number {
            return Err(format!("message {} where {number} was due", word(0)));
        }
        self.tally.noticed += 1;
        self.judge(Ticks(word(2)));
        let age_ns = clock.nanos(noticed.since(Ticks(word(1))));
        self.tally.latest_ns = self.tally.latest_ns.max(age_ns);
        if age_ns > LATE_AFTER.as_nanos() as u64 {
            self.tally.late += 1;
            let known = self.tally.lost + self.tally.unfinished;
            self.missed = (self.node.ledger().missed_wakeups > known).then_some(noticed);
        }
        Ok(true)
    }

    /// The message before was complete at that instant.
    fn judge(&mut self, complete: Ticks) {
        let Some(noticed) = self.missed.take() else { return };
        if complete.plus(Clock::get().ticks(SLACK)) < noticed {
            self.tally.lost += 1;
        } else {
            self.tally.unfinished += 1;
        }
    }
}
