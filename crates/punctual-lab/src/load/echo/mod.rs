//! A responder of UDP packets, and the format of its clients' packets: for `punctual echo`, and for programs that measure against it.

mod delay;
mod kernel_echo;
mod protocol;
mod responder;
pub mod wire;

pub use delay::{Delay, DelayPoint};
pub use kernel_echo::{KernelEcho, answer_in_kernel};
pub use protocol::{Protocol, Verdict};
pub use responder::{AnswerRules, EchoFacts, open_port, respond};
