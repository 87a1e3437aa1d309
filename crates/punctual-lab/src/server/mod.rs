//! Threads against tasks in classes: a TCP server whose connections have three stages each, under a load from another process.
//!
//! The experiment that is reproduced served matrices: a text of n × n numbers comes, is multiplied by itself, and goes back.
//! Receiving, serving and sending are three threads, or three tasks, for each connection.

mod broken;
pub mod client;
mod drawn;
pub mod experiment;
pub mod host;
mod journal;
mod kept;
pub mod model;
pub mod overview;
pub mod peer;
mod pollers;
mod published;
pub mod setup;
mod shared_line;
mod tasks;
mod threads;
mod trial;
pub mod work;
