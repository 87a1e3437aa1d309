//! The handshakes of the work log, in software: which of them lose wake-ups, and how many.
//!
//! Reader and writer do what the log's test programs did, over the log's event with its ON flag
//! ([`EventWithFlag`]). The reader's way into its wait takes up to two microseconds here, as a system call's does.

use std::sync::Arc;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::pin_to;
use punctual_machine::wake::bare::EventWithFlag;
use serde::{Deserialize, Serialize};

/// Rounds of each.
const ROUNDS: u64 = 300;
/// A wait that lasts so long was slept over a message, or nobody was asked to send one.
const LIMIT: Duration = Duration::from_millis(2);
/// Longest way into the wait.
const ENTRY_NS_MAX: u64 = 2_000;
/// The writer's delay in H3: many times what the reader needs to fall asleep.
const DELAY: Duration = Duration::from_micros(200);

/// How reader and writer agree on when to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Its name, also in the model (`punctual sim wakeup --variant`).
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The writer lowers the flag before it sends, not after.
    pub lowers_first: bool,
    /// The writer waits before it sends.
    pub delays: bool,
    /// The wait looks at what was posted once it has cleared ON.
    pub rechecks: bool,
    /// What the model says.
    pub predicted_lost: bool,
}

/// All of them.
const HANDSHAKES: [Handshake; 5] = [
    Handshake {
        name: "h1",
        about: "flag raised before the wait, lowered after the send",
        lowers_first: false,
        delays: false,
        rechecks: false,
        predicted_lost: true,
    },
    Handshake {
        name: "h1-recheck",
        about: "h1 that looks again",
        lowers_first: false,
        delays: false,
        rechecks: true,
        predicted_lost: true,
    },
    Handshake {
        name: "h2",
        about: "flag lowered at once",
        lowers_first: true,
        delays: false,
        rechecks: false,
        predicted_lost: true,
    },
    Handshake {
        name: "h3",
        about: "h2 with a delay in the writer",
        lowers_first: true,
        delays: true,
        rechecks: false,
        predicted_lost: false,
    },
    Handshake {
        name: "h4",
        about: "h2 that looks again",
        lowers_first: true,
        delays: false,
        rechecks: true,
        predicted_lost: false,
    },
];

/// What one of them came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakeResult {
    /// Which.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Rounds made.
    pub rounds: u64,
    /// Waits that only the time limit ended.
    pub lost: u64,
    /// Whether the model predicts losses.
    pub predicted_lost: bool,
}

impl HandshakeResult {
    /// Whether the prediction held.
    pub fn is_as_predicted(&self) -> bool {
        (self.lost > 0) == self.predicted_lost
    }
}

#[derive(Debug, Default)]
struct Shared {
    event: EventWithFlag,
    /// The number of the round for which the reader asks; 0 when lowered.
    flag: Counter,
    /// The newest round that the writer has taken the flag for …
    taken: Counter,
    /// … and the newest for which it has completed its send.
    sent: Counter,
    /// There will be no more rounds.
    over: Flag,
}

/// Runs each.
pub(super) fn all(cpus: &[usize]) -> Vec<HandshakeResult> {
    // With one processor the writer never meets the reader in the window.
    if cpus.len() < 2 {
        return Vec::new();
    }
    HANDSHAKES.iter().map(|handshake| run(handshake, cpus)).collect()
}

fn run(handshake: &Handshake, cpus: &[usize]) -> HandshakeResult {
    let shared = Arc::new(Shared::default());
    let writer = {
        let (shared, handshake, cpu) = (Arc::clone(&shared), *handshake, cpus[0]);
        std::thread::spawn(move || {
            // Unpinned it works too, less often in the window.
            let _unpinned = pin_to(cpu);
            write(&shared, handshake);
        })
    };
    let cpu = cpus[cpus.len() - 1];
    let reader = {
        let (shared, handshake) = (Arc::clone(&shared), *handshake);
        std::thread::spawn(move || {
            let _unpinned = pin_to(cpu);
            read(&shared, handshake)
        })
    };
    let lost = reader.join().unwrap_or(0);
    let _ended = writer.join();
    HandshakeResult {
        name: handshake.name.to_owned(),
        about: handshake.about.to_owned(),
        rounds: ROUNDS,
        lost,
        predicted_lost: handshake.predicted_lost,
    }
}

fn spin_until(until: Ticks) {
    while Clock::get().now() < until {
        std::hint::spin_loop();
    }
}

fn read(shared: &Shared, handshake: Handshake) -> u64 {
    let clock = Clock::get();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut lost = 0;
    for round in 1..=ROUNDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let entry = Duration::from_nanos((random >> 33) % ENTRY_NS_MAX);
        shared.flag.publish(round);
        spin_until(clock.now().plus(clock.ticks(entry)));
        if !shared.event.wait(handshake.rechecks, LIMIT) && is_lost(shared, round) {
            lost += 1;
            shared.event.reset();
        }
    }
    shared.over.raise();
    lost
}

/// The limit ended a wait: whether the wake-up is lost, or the writer was only kept from running. It is lost if the writer has
/// nothing left to do, and there is no event.
fn is_lost(shared: &Shared, round: u64) -> bool {
    loop {
        // In this order: the writer takes the flag before it lowers it, and is done when it has sent for what it took.
        let is_asked = shared.flag.get_published() == round;
        let taken = shared.taken.get_published();
        let is_done = shared.sent.get_published() == taken && (taken == round || !is_asked);
        if is_done {
            return !shared.event.take_event();
        }
        std::thread::yield_now();
    }
}

fn write(shared: &Shared, handshake: Handshake) {
    let clock = Clock::get();
    let mut answered = 0;
    while !shared.over.is_raised() {
        let asked = shared.flag.get_published();
        if asked == 0 || asked == answered {
            std::hint::spin_loop();
            continue;
        }
        answered = asked;
        shared.taken.publish(asked);
        if handshake.lowers_first {
            shared.flag.publish(0);
        }
        if handshake.delays {
            spin_until(clock.now().plus(clock.ticks(DELAY)));
        }
        shared.event.send();
        shared.sent.publish(asked);
        if !handshake.lowers_first {
            shared.flag.publish(0);
        }
    }
}
