//! Broadcast to a group, measured: members in processes of their own, faults at each receiver, content and order compared at all
//! of them, beside bare multicast and the published table.
//!
//! `option` says what is measured; `testbed` starts members, which do as `protocol` says: `member` broadcasts and delivers, `floor`
//! sends bare datagrams, `messages` those of the library without a group; `other` starts a member of another system; `judge` compares
//! what they delivered, by a `digest` of all; `director` kills and stops members, which write a `log`, until a `halt`; `lives` checks
//! all of their lives; `kv` puts a store onto a group; `experiment` makes each `trial` in its `turn`; `overview` shows them, `beside`
//! sets ours beside those of others.

mod beside;
mod digest;
mod director;
pub mod experiment;
mod floor;
mod halt;
mod judge;
mod kept;
mod kernel_faults;
pub mod kv;
pub mod lives;
mod log;
pub mod member;
mod messages;
pub mod option;
pub mod other;
pub mod overview;
mod protocol;
mod published;
mod testbed;
pub mod trial;
mod turn;
