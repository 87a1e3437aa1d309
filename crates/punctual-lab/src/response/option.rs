//! Ways to be faster, as options that are measured side by side, and how urgent the threads are that use them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use punctual_machine::SystemError;
use punctual_machine::cpu::{SchedulingClass, set_scheduling_class};
use punctual_machine::scheduling::{NICE_RANGE, Reservation, set_deadline, set_nice};
use serde::{Deserialize, Serialize};

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
    #[must_use]
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
    #[must_use]
    pub fn spins(self) -> bool {
        matches!(self, Self::Spin | Self::Packet | Self::XdpSkb | Self::XdpNative | Self::XdpTx)
    }

    /// Whether the responder's kernel answers, and nobody else.
    #[must_use]
    pub fn answers_in_kernel(self) -> bool {
        self == Self::XdpTx
    }

    /// Whether it passes by the kernel's IP and UDP, and needs to know the interface.
    #[must_use]
    pub fn is_raw(self) -> bool {
        matches!(self, Self::Packet | Self::XdpSkb | Self::XdpNative)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How urgent a measuring thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// The ordinary class.
    #[default]
    Other,
    /// The ordinary class with this nice value.
    Nice(i32),
    /// First in, first out, at this priority.
    Fifo(u8),
    /// Round robin, at this priority.
    RoundRobin(u8),
    /// So many microseconds in each period of so many.
    Deadline {
        /// CPU time in each period.
        runtime_us: u32,
        /// The period, which is also the deadline.
        period_us: u32,
    },
}

impl Urgency {
    /// Whether the kernel's limit for real-time threads applies.
    #[must_use]
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo(_) | Self::RoundRobin(_) | Self::Deadline { .. })
    }

    /// Whether a thread of it may be bound to one CPU: the kernel refuses that for deadlines.
    #[must_use]
    pub fn can_be_pinned(self) -> bool {
        !matches!(self, Self::Deadline { .. })
    }

    /// Gives it to the calling thread.
    ///
    /// # Errors
    /// It needs `CAP_SYS_NICE`, or the kernel has not so much time to promise.
    pub fn apply(self) -> Result<(), SystemError> {
        match self {
            Self::Other => Ok(()),
            Self::Nice(nice) => set_nice(nice),
            Self::Fifo(priority) => set_scheduling_class(SchedulingClass::Fifo(priority)),
            Self::RoundRobin(priority) => set_scheduling_class(SchedulingClass::RoundRobin(priority)),
            Self::Deadline { runtime_us, period_us } => set_deadline(Reservation {
                runtime: Duration::from_micros(runtime_us.into()),
                period: Duration::from_micros(period_us.into()),
            }),
        }
    }
}

impl Urgency {
    /// Why a thread did not get it, and what to do.
    #[must_use]
    pub fn advise(self, error: &SystemError) -> String {
        let advice = match (error.kind(), self) {
            (std::io::ErrorKind::PermissionDenied, Self::Fifo(_) | Self::RoundRobin(_)) => {
                ": needs CAP_SYS_NICE: run as root, or have the limit raised (ulimit -r)"
            }
            (std::io::ErrorKind::PermissionDenied, Self::Nice(_)) => {
                ": needs CAP_SYS_NICE: run as root, or have the limit raised (ulimit -e)"
            }
            (std::io::ErrorKind::PermissionDenied, _) => ": needs CAP_SYS_NICE: run as root",
            (std::io::ErrorKind::ResourceBusy, Self::Deadline { .. }) => {
                ": the kernel has promised its time to others already: ask for less"
            }
            _ => "",
        };
        format!("{error}{advice}")
    }
}

impl fmt::Display for Urgency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Nice(nice) => write!(f, "nice:{nice}"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::RoundRobin(priority) => write!(f, "rr:{priority}"),
            Self::Deadline { runtime_us, period_us } => write!(f, "deadline:{runtime_us}/{period_us}"),
        }
    }
}

impl FromStr for Urgency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let forms =
                "other, nice:-20 to nice:19, fifo:1 to fifo:99, rr:1 to rr:99, deadline:RUNTIME/PERIOD in µs";
            format!("one of {forms} is needed")
        };
        let (class, value) = text.split_once(':').unwrap_or((text, ""));
        let priority = || value.parse().ok().filter(|priority| (1..=99).contains(priority)).ok_or_else(wrong);
        match class {
            "other" if value.is_empty() => Ok(Self::Other),
            "nice" => {
                let nice = value.parse().ok().filter(|nice| NICE_RANGE.contains(nice));
                nice.map(Self::Nice).ok_or_else(wrong)
            }
            "fifo" => priority().map(Self::Fifo),
            "rr" => priority().map(Self::RoundRobin),
            "deadline" => {
                let (runtime, period) = value.split_once('/').ok_or_else(wrong)?;
                let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
                let (runtime_us, period_us) = (number(runtime)?, number(period)?);
                let possible = (2..=period_us).contains(&runtime_us) && period_us <= 4_000_000;
                possible.then_some(Self::Deadline { runtime_us, period_us }).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
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

/// One thing that is measured: a way and an urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Choice {
    /// How packets are sent and waited for.
    pub way: Way,
    /// Of the measuring threads.
    pub urgency: Urgency,
    /// Of which of them.
    #[serde(default)]
    pub ends: Ends,
}

impl Choice {
    /// As the client's thread takes it.
    #[must_use]
    pub fn at_client(self) -> Self {
        self.at(self.ends != Ends::Responder)
    }

    /// As the responder's thread takes it.
    #[must_use]
    pub fn at_responder(self) -> Self {
        self.at(self.ends != Ends::Client)
    }

    fn at(self, is_urgent: bool) -> Self {
        let urgency = if is_urgent { self.urgency } else { Urgency::Other };
        Self { urgency, ends: Ends::Both, ..self }
    }
}

impl fmt::Display for Choice {
    /// `blocking`, `spin+fifo:50`, `spin+fifo:50@client`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.urgency, self.ends) {
            (Urgency::Other, _) => write!(f, "{}", self.way),
            (urgency, Ends::Both) => write!(f, "{}+{urgency}", self.way),
            (urgency, Ends::Client) => write!(f, "{}+{urgency}@client", self.way),
            (urgency, Ends::Responder) => write!(f, "{}+{urgency}@responder", self.way),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgencies_read_back() {
        for text in ["other", "nice:-20", "nice:19", "fifo:1", "rr:99", "deadline:500/1000"] {
            assert_eq!(text.parse::<Urgency>().map(|urgency| urgency.to_string()), Ok(text.to_owned()));
        }
        for wrong in
            ["", "fifo", "fifo:0", "fifo:100", "nice:20", "rr:x", "deadline:5", "deadline:9/8", "other:1"]
        {
            assert!(wrong.parse::<Urgency>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_those_of_the_options() {
        for way in Way::ALL {
            assert_eq!(Way::from_str(way.name(), false), Ok(way));
            assert_eq!(serde_json::to_string(&way).unwrap(), format!("\"{way}\""));
        }
        let choice = Choice { way: Way::Spin, urgency: Urgency::Fifo(50), ends: Ends::Both };
        assert_eq!(choice.to_string(), "spin+fifo:50");
        assert_eq!(Choice { ends: Ends::Client, ..choice }.to_string(), "spin+fifo:50@client");
    }

    #[test]
    fn one_end_may_be_urgent_alone() {
        let choice = |ends| Choice { way: Way::Spin, urgency: Urgency::Fifo(50), ends };
        let urgencies = |ends| [choice(ends).at_client().urgency, choice(ends).at_responder().urgency];
        assert_eq!(urgencies(Ends::Both), [Urgency::Fifo(50); 2]);
        assert_eq!(urgencies(Ends::Client), [Urgency::Fifo(50), Urgency::Other]);
        assert_eq!(urgencies(Ends::Responder), [Urgency::Other, Urgency::Fifo(50)]);
    }
}
