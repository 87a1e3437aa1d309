//! Differences from processor to processor: the counter, copies, hints. One file for each, all with the same functions.
//!
//! Features that a processor lacks are replaced there, not at the caller's: `other.rs` and `within_caches.rs` are the whole list of
//! what Punctual asks for.

#[cfg(not(loom))]
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other;
#[cfg(not(target_arch = "x86_64"))]
mod within_caches;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use other::*;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use within_caches::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// True if this build may copy by the processor's own instructions: tools that follow every access see none of them.
pub(crate) const COPIES_BLOCKS: bool =
    cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(loom), not(miri)));

/// Smallest block for [`copy_block`].
pub(crate) const BLOCK_SIZE: usize = 64;

/// Returns true if large data that another core reads next is to be stored past the caches.
pub(crate) fn may_pass_caches() -> bool {
    #[cfg(loom)]
    let may = false;
    #[cfg(not(loom))]
    let may = {
        static MAY: OnceLock<bool> = OnceLock::new();
        asked_once(&MAY, prefers_stores_past_caches)
    };
    may
}

/// Returns true if [`demote`] does something.
pub(crate) fn may_demote() -> bool {
    #[cfg(loom)]
    let may = false;
    #[cfg(not(loom))]
    let may = {
        static MAY: OnceLock<bool> = OnceLock::new();
        asked_once(&MAY, can_demote)
    };
    may
}

/// CPUID takes microseconds in a guest.
#[cfg(not(loom))]
fn asked_once(answer: &OnceLock<bool>, ask: fn() -> bool) -> bool {
    COPIES_BLOCKS && *answer.get_or_init(ask)
}
