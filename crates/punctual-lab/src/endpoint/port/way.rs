//! The ways of this kernel to send packets and to wait for them.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::units::OptionName;

/// Way in which packets are sent and waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// recvmsg, asleep in the call
    #[default]
    Blocking,
    /// epoll_wait, then recvmsg
    Epoll,
    /// recvmsg again and again, never asleep
    Spin,
    /// As blocking, the kernel polling the device (SO_BUSY_POLL, SO_PREFER_BUSY_POLL)
    BusyPoll,
    /// io_uring: receives and sends as ring entries
    #[value(name = "io_uring")]
    #[serde(rename = "io_uring")]
    Uring,
    /// io_uring, its waits polling the device (IORING_REGISTER_NAPI)
    #[value(name = "io_uring-napi")]
    #[serde(rename = "io_uring-napi")]
    UringNapi,
    /// Raw Ethernet: a mapped AF_PACKET ring, polled; UDP and IP in user space
    Packet,
    /// AF_XDP in generic mode, polled; UDP and IP in user space
    XdpSkb,
    /// AF_XDP in the driver, polled; UDP and IP in user space
    XdpNative,
    /// The responder's kernel answers by an XDP program, without any application; the client as spin
    XdpTx,
}

impl Way {
    /// Returns true if it never sleeps, and so needs a CPU of its own at each end.
    pub fn spins(self) -> bool {
        matches!(self, Self::Spin | Self::Packet | Self::XdpSkb | Self::XdpNative | Self::XdpTx)
    }

    /// Returns true if the responder's kernel answers, and nobody else.
    pub fn answers_in_kernel(self) -> bool {
        self == Self::XdpTx
    }

    /// Returns true if it passes by the kernel's IP and UDP, and needs to know the interface.
    pub fn is_raw(self) -> bool {
        matches!(self, Self::Packet | Self::XdpSkb | Self::XdpNative)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_options() {
        for &way in Way::value_variants() {
            assert_eq!(serde_json::to_string(&way).unwrap(), format!("\"{way}\""));
        }
    }
}
