//! Ways to be faster, as options that are measured side by side.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::scheduling::{Control, Urgency};

/// How packets are sent and waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// recvmsg, asleep in the call
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
    /// All, in the order of the tables.
    pub const ALL: [Self; 10] = [
        Self::Blocking,
        Self::Epoll,
        Self::Spin,
        Self::BusyPoll,
        Self::Uring,
        Self::UringNapi,
        Self::Packet,
        Self::XdpSkb,
        Self::XdpNative,
        Self::XdpTx,
    ];

    /// As it is written in options, results and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Epoll => "epoll",
            Self::Spin => "spin",
            Self::BusyPoll => "busy-poll",
            Self::Uring => "io_uring",
            Self::UringNapi => "io_uring-napi",
            Self::Packet => "packet",
            Self::XdpSkb => "xdp-skb",
            Self::XdpNative => "xdp-native",
            Self::XdpTx => "xdp-tx",
        }
    }

    /// Whether it never sleeps, and so needs a CPU of its own at each end.
    pub fn spins(self) -> bool {
        matches!(self, Self::Spin | Self::Packet | Self::XdpSkb | Self::XdpNative | Self::XdpTx)
    }

    /// Whether the responder's kernel answers, and nobody else.
    pub fn answers_in_kernel(self) -> bool {
        self == Self::XdpTx
    }

    /// Whether it passes by the kernel's IP and UDP, and needs to know the interface.
    pub fn is_raw(self) -> bool {
        matches!(self, Self::Packet | Self::XdpSkb | Self::XdpNative)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whose threads are urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// The client's and the responder's
    #[default]
    Both,
    /// The client's alone: whether it was the measuring host that was late
    Client,
    /// The responder's alone
    Responder,
}

/// How much is recorded beside the trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Recorded {
    /// Nothing: what the others cost is measured against it
    Nothing,
    /// What each thread sees of itself
    Windows,
    /// The kernel's trace too (root)
    Trace,
}

impl Recorded {
    /// As options and results have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Windows => "windows",
            Self::Trace => "trace",
        }
    }
}

/// One thing that is measured: a way and an urgency, and what is recorded meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// How packets are sent and waited for.
    pub way: Way,
    /// Of the measuring threads.
    pub urgency: Urgency,
    /// Of which of them.
    #[serde(default)]
    pub ends: Ends,
    /// If several levels of recording are measured side by side: which. Else it is that of the run.
    #[serde(default)]
    pub recorded: Option<Recorded>,
}

impl Variant {
    /// As the client's thread takes it.
    pub fn at_client(self) -> Self {
        self.at(self.ends != Ends::Responder)
    }

    /// As the responder's thread takes it.
    pub fn at_responder(self) -> Self {
        self.at(self.ends != Ends::Client)
    }

    /// A control thread beside one of its threads, where windows are kept.
    pub fn control(self, cpu: Option<usize>) -> Control {
        if self.keeps_windows() { Control::start(cpu, self.urgency) } else { Control::absent() }
    }

    /// Whether its threads keep windows of what they went through.
    pub fn keeps_windows(self) -> bool {
        self.recorded != Some(Recorded::Nothing)
    }

    fn at(self, is_urgent: bool) -> Self {
        let urgency = if is_urgent { self.urgency } else { Urgency::Other };
        Self { urgency, ends: Ends::Both, ..self }
    }
}

impl fmt::Display for Variant {
    /// `blocking`, `spin+fifo:50`, `spin+fifo:50@client`, `blocking~trace`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.urgency, self.ends) {
            (Urgency::Other, _) => write!(f, "{}", self.way),
            (urgency, Ends::Both) => write!(f, "{}+{urgency}", self.way),
            (urgency, Ends::Client) => write!(f, "{}+{urgency}@client", self.way),
            (urgency, Ends::Responder) => write!(f, "{}+{urgency}@responder", self.way),
        }?;
        self.recorded.map_or(Ok(()), |recorded| write!(f, "~{}", recorded.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_options() {
        for way in Way::ALL {
            assert_eq!(Way::from_str(way.name(), false), Ok(way));
            assert_eq!(serde_json::to_string(&way).unwrap(), format!("\"{way}\""));
        }
        let choice = Variant { way: Way::Spin, urgency: Urgency::Fifo(50), ends: Ends::Both, recorded: None };
        assert_eq!(choice.to_string(), "spin+fifo:50");
        let traced = Variant { recorded: Some(Recorded::Trace), ..choice };
        assert_eq!(traced.to_string(), "spin+fifo:50~trace");
        assert_eq!(Variant { ends: Ends::Client, ..choice }.to_string(), "spin+fifo:50@client");
    }

    #[test]
    fn one_end_may_be_urgent_alone() {
        let choice = |ends| Variant { way: Way::Spin, urgency: Urgency::Fifo(50), ends, recorded: None };
        let urgencies = |ends| [choice(ends).at_client().urgency, choice(ends).at_responder().urgency];
        assert_eq!(urgencies(Ends::Both), [Urgency::Fifo(50); 2]);
        assert_eq!(urgencies(Ends::Client), [Urgency::Fifo(50), Urgency::Other]);
        assert_eq!(urgencies(Ends::Responder), [Urgency::Other, Urgency::Fifo(50)]);
    }
}
