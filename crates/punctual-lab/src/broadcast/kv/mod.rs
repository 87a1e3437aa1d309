//! A key-value store of which every member has a copy, under load from clients: operations a second, and linearizability of their whole
//! history.
//!
//! `option` says what is asked for; `store` is the state, with its changes; `member` serves its clients, and writes all of it to its
//! `log`; `history` puts the logs together and checks them, `linear` those of one key; `local` checks gets that no order answers;
//! `trial` raises the clients; `overview` shows it.

mod history;
mod linear;
mod local;
pub(super) mod log;
pub(super) mod member;
pub mod option;
mod overview;
mod store;
pub mod trial;

pub(super) use overview::sections;
pub(super) use trial::make;
