//! Media of messages, as experiments are asked for them.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A medium that carries messages between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Raw Ethernet, EtherType 0x88B5
    #[default]
    Packet,
    /// Shared memory
    Shared,
    /// UDP
    Datagram,
}

impl Medium {
    /// As it is written in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Shared => "shared",
            Self::Datagram => "datagram",
        }
    }
}

/// The original's value, bytes.
pub const VALUE_SIZE: usize = 92;
