//! Names for the places where a process may die: before and after every store and every call that others can see.
//!
//! In normal builds [`label!`](crate::label!) is nothing. Built with `--cfg labelled_stores` a process ends or stops
//! itself exactly there, and tells which places it has passed; `cargo xtask kill` builds it so and checks what the
//! others see.
//!
//! | variable | meaning |
//! |---|---|
//! | `PUNCTUAL_STOP_AT` | `label` or `label:n`: at the first or n-th passing |
//! | `PUNCTUAL_STOP_BY` | `kill` (SIGKILL, the default) or `stop` (SIGSTOP) |
//! | `PUNCTUAL_LABELS` | a file to which every label is added whenever it is passed, one a line, 500 times at most |
//! | `PUNCTUAL_COUNTERS` | another folder for pages of counters |
//! | `PUNCTUAL_DELAYS` | a seed: at every passing a delay of random length, mostly none |
//! | `PUNCTUAL_FAULT` | a fault planted in the protocol, by its name: the checks must find it |

/// A place where the process may be killed. The name stands once in the source; it is that of the store that follows, or of
/// the one before with `.done`.
#[macro_export]
macro_rules! label {
    ($name:literal) => {
        #[cfg(labelled_stores)]
        $crate::label::pass($name);
    };
}

/// True if the fault of that name is planted. Never in normal builds.
#[macro_export]
macro_rules! is_planted {
    ($name:literal) => {{
        #[cfg(labelled_stores)]
        let planted = $crate::label::is_planted($name);
        #[cfg(not(labelled_stores))]
        let planted = false;
        planted
    }};
}

#[cfg(labelled_stores)]
pub use active::{has_delays, is_planted, pass};

/// Returns true if processes of this environment are delayed at every label. Never in normal builds.
#[cfg(not(labelled_stores))]
pub fn has_delays() -> bool {
    false
}

/// Returns true if faults can be planted in this build, and places have names.
pub const fn is_labelled() -> bool {
    cfg!(labelled_stores)
}

#[cfg(labelled_stores)]
mod active {
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::fs::File;
    use std::io::Write;
    use std::sync::{LazyLock, Mutex, PoisonError};

    use crate::sync::{AtomicU64, Ordering};
    use rustix::process::{Signal, getpid, kill_process};

    /// Requests of the environment.
    struct Wishes {
        stop_at: Option<(String, u64)>,
        signal: Signal,
        list: Option<File>,
        fault: Option<String>,
        delays: Option<u64>,
    }

    static WISHES: LazyLock<Wishes> = LazyLock::new(|| Wishes {
        stop_at: std::env::var("PUNCTUAL_STOP_AT").ok().map(|text| parse(&text)),
        signal: match std::env::var("PUNCTUAL_STOP_BY").as_deref() {
            Ok("stop") => Signal::STOP,
            _ => Signal::KILL,
        },
        list: std::env::var_os("PUNCTUAL_LABELS").map(|path| {
            let list = File::options().append(true).create(true).open(path);
            list.expect("the list of labels can be written")
        }),
        fault: std::env::var("PUNCTUAL_FAULT").ok(),
        delays: std::env::var("PUNCTUAL_DELAYS")
            .ok()
            .map(|seed| seed.parse().expect("PUNCTUAL_DELAYS is a number")),
    });

    thread_local! {
        /// The state of a thread's delays (xorshift64, Marsaglia 2003); 0 before the first.
        static DELAY: Cell<u64> = const { Cell::new(0) };
    }

    /// Delays by up to as much, spins: shorter than falling asleep takes, and now and then longer.
    const SHORT_SPINS: u64 = 200;
    const LONG_SPINS: u64 = 20_000;

    /// Returns true if processes of this environment are delayed at every label.
    pub fn has_delays() -> bool {
        WISHES.delays.is_some()
    }

    /// The fault `halt`: of so many senders that are about to ring one is stopped, for two limits of a sleep.
    const HALT_ONE_IN: u64 = 64;
    const HALT: std::time::Duration = std::time::Duration::from_millis(240);

    /// Passings of one label that are listed: the list stays short, also where files may not be large.
    const LISTED_MAX: u64 = 500;

    fn halt_now_and_then() {
        static RINGING: AtomicU64 = AtomicU64::new(0);
        if RINGING.fetch_add(1, Ordering::Relaxed) % HALT_ONE_IN == HALT_ONE_IN - 1 {
            std::thread::sleep(HALT);
        }
    }

    fn delay(seed: u64) {
        let mut state = DELAY.get();
        if state == 0 {
            state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread_number() | 1;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        DELAY.set(state);
        let (kind, length) = (state >> 56, state >> 8 & 0xFFFF_FFFF);
        let spins = match kind {
            0 => length % LONG_SPINS,
            1..=80 => length % SHORT_SPINS,
            _ => 0,
        };
        (0..spins).for_each(|_| core::hint::spin_loop());
    }

    fn thread_number() -> u64 {
        rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs().into()
    }

    static PASSED: LazyLock<Mutex<HashMap<&'static str, u64>>> = LazyLock::new(Mutex::default);

    fn parse(text: &str) -> (String, u64) {
        let (label, count) = text.split_once(':').unwrap_or((text, "1"));
        (label.to_owned(), count.parse().expect("PUNCTUAL_STOP_AT is label or label:n"))
    }

    /// Returns true if this is the fault that the environment asks for.
    pub fn is_planted(name: &str) -> bool {
        WISHES.fault.as_deref() == Some(name)
    }

    /// Passes the place of that name, or ends there.
    pub fn pass(label: &'static str) {
        let wishes = &*WISHES;
        if let Some(seed) = wishes.delays {
            delay(seed);
        }
        if label == "bell.outstanding" && is_planted("halt") {
            halt_now_and_then();
        }
        if wishes.stop_at.is_none() && wishes.list.is_none() {
            return;
        }
        let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
        let times = passed.entry(label).or_insert(0);
        *times += 1;
        if let Some(mut list) = wishes.list.as_ref().filter(|_| *times <= LISTED_MAX) {
            list.write_all(format!("{label}\n").as_bytes()).expect("the list of labels can be written");
        }
        if wishes.stop_at.as_ref().is_some_and(|(at, count)| at == label && count == times) {
            kill_process(getpid(), wishes.signal).expect("a process may signal itself");
        }
    }
}
