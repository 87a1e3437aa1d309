//! Outcome of a sleep.

/// Outcome of a sleep, by the kernel's word. A clock would not do: a thread that was woken in time and then was kept from running
/// looks, by the clock, like one that slept to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// A notification, a signal, or not at all.
    Less,
    /// Nothing came before its time limit.
    ToTheLimit,
}

impl Slept {
    /// By whether the limit ended it.
    pub fn to_the_limit(ended_it: bool) -> Self {
        if ended_it { Self::ToTheLimit } else { Self::Less }
    }
}
