//! Atomic broadcast: a group whose members deliver the same messages in the same order. This holds regardless of crashes, and of loss,
//! alteration, duplication or reordering in the network.
//!
//! The *origin* of a message multicasts its frames. The first member of the view is the *sequencer*: it multicasts order records, each
//! a run of ranges (origin, first frame, count), as soon as it has something to order (fixed sequencer, broadcast–broadcast; Défago,
//! Schiper, Urbán 2004). Every message carries how much of the order its sender holds. The part that a majority holds is *uniform*: no
//! view change can lose it. Messages that all users have taken give the origin new *credit*. Gaps are asked for by bitmaps of all that
//! is missing.
//!
//! A message may be *without order*: it is delivered ahead of its place there, as soon as it is whole, or once a majority holds it
//! (best-effort and uniform reliable broadcast; Hadzilacos, Toueg 1994). See `member/early.rs`.
//!
//! A member that falls silent is suspected; when a majority suspects it, or somebody asks to join or to leave, the view changes: see
//! `change.rs`. Members that go from one view to the next have delivered the same messages in the first (virtual synchrony with
//! sending-view delivery; Birman, Joseph 1987; Chockler, Keidar, Vitenberg 2001). A member that is not in the next view begins a new
//! life and joins again. A minority cannot change the view: it stops, and says so.
//!
//! `docs/broadcast.md` says what is promised, and what is not there yet. `message` says what every byte means.

mod change;
mod check;
mod frames;
mod guarantee;
mod member;
mod message;
mod mutant;
mod options;
mod order;
mod peer;
mod repair;
mod replication;
mod slots;
mod view;

#[cfg(test)]
mod explored;
#[cfg(test)]
mod tests;

pub use check::{Check, crc32c};
pub use guarantee::Guarantee;
pub use member::{Account, Behind, BroadcastError, Delivery, Event, Member};
pub use message::{DATA_PREFIX_SIZE, HEADER_SIZE, VERSION, control_size_max};
pub use options::{GroupOptions, Mismatch, OptionsError};
pub use replication::{Command, Outcome, Replication, State};
pub use view::{Places, View};

pub(crate) use mutant::{Mutant, Mutants};
