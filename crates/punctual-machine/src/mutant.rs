//! Mutants: the model checker takes away an ordering, a fence or code, one at a time, to show that its tests would notice.
//!
//! In normal builds `ordering!` is that ordering, `fence!` that fence, and `without!` false. Built with `--cfg loom`, the
//! variable `PUNCTUAL_WITHOUT` names one that is taken away: a mutant. `cargo xtask loom` finds all names in the source and
//! demands of each that some test fails. A name stands once.
//!
//! | written | without `a` |
//! |---|---|
//! | `load(ordering!("a", Acquire))` | `Relaxed` |
//! | `fence!("a", SeqCst);` | no fence |
//! | `if !without!("a") { … }` | what stands there is not done |

/// True if the model checker runs without the part of this name. Never in normal builds.
macro_rules! without {
    ($name:literal) => {{
        #[cfg(loom)]
        let without = $crate::mutant::is_without($name);
        #[cfg(not(loom))]
        let without = false;
        without
    }};
}

/// An ordering that some test needs.
#[cfg(not(loom))]
macro_rules! ordering {
    ($name:literal, $ordering:ident) => {
        $crate::sync::Ordering::$ordering
    };
}

#[cfg(loom)]
macro_rules! ordering {
    ($name:literal, $ordering:ident) => {
        if $crate::mutant::is_without($name) {
            $crate::sync::Ordering::Relaxed
        } else {
            $crate::sync::Ordering::$ordering
        }
    };
}

/// A fence that some test needs.
macro_rules! fence {
    ($name:literal, $ordering:ident) => {
        if !$crate::mutant::without!($name) {
            $crate::sync::fence($crate::sync::Ordering::$ordering);
        }
    };
}

pub(crate) use {fence, ordering, without};

/// Returns true if the model checker runs without the part of this name.
#[cfg(loom)]
pub(crate) fn is_without(name: &str) -> bool {
    static TAKEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let taken = TAKEN.get_or_init(|| {
        let taken = std::env::var("PUNCTUAL_WITHOUT").ok()?;
        // One test that fails is enough; the message of a panic begins with its name. A panic without a message is how
        // loom's threads are taken down.
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            if panic.payload_as_str().is_some() {
                std::process::exit(CAUGHT);
            }
        }));
        Some(taken)
    });
    taken.as_deref() == Some(name)
}

/// Exit code of the tests when one fails without the part that was taken: the same as the test program's own.
#[cfg(loom)]
const CAUGHT: i32 = 101;
