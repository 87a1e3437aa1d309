//! Late messages, where they were late, and why: an account of the time of the late thread.
//!
//! A recorder notes each CPU's threads. Of a late message the account divides the interval of its slowest stage into the states of
//! that stage's thread. The parts sum to the interval. Time that no evidence covers is unexplained.

pub mod account;
pub mod attached;
pub mod cause;
pub mod clue;
pub mod evidence;
pub mod finding;
pub mod injection;
pub mod kept;
pub mod late_log;
pub mod loss;
mod moves;
pub mod naming;
pub mod of_run;
pub mod outside;
pub mod perf;
pub mod perfetto;
pub mod quiet;
pub mod recorder;
pub mod run_trace;
pub mod seen;
pub mod stage;
pub mod start;
pub mod text;
mod timeline;
pub mod trace;
pub mod trace_file;
pub mod wait_end;
pub mod waker;
pub mod watcher;
