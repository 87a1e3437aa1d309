//! Settings of the measurement.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use punctual::broadcast::Guarantee;
use serde::{Deserialize, Serialize};

use super::kv::option::KvSettings;
use crate::units::{OptionName, size_in};

/// The engine that carries frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BroadcastEngine {
    /// Shared memory
    #[default]
    Shared,
    /// UDP, each frame for all sent once
    Multicast,
    /// UDP, each frame for all sent to each
    Udp,
    /// Raw Ethernet
    Ethernet,
    /// The medium of another system.
    #[value(skip)]
    #[serde(untagged)]
    Other(OtherSystem),
}

/// A system of others that gives a group one order of messages. None of them waits until a majority holds a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OtherSystem {
    /// Closed process groups of Corosync, by unicast (knet)
    Corosync,
    /// The same by UDP multicast
    CorosyncUdp,
    /// JGroups with the stack that it ships for total order
    Jgroups,
    /// The same with datagrams of one packet, and retransmissions asked for sooner
    JgroupsMtu,
}

impl BroadcastEngine {
    /// As it is written in options and results.
    pub fn name(self) -> String {
        match self {
            Self::Other(system) => system.name(),
            ours => OptionName::name(ours),
        }
    }

    /// Returns true if it is a system of others.
    pub fn is_other(self) -> bool {
        matches!(self, Self::Other(_))
    }

    /// Returns true if members stand in network namespaces of their own.
    pub fn is_of_a_network(self) -> bool {
        self != Self::Shared
    }
}

/// The guarantee for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BroadcastKind {
    /// Atomic broadcast: one order, delivered when a majority holds it (uniform)
    #[default]
    Ab,
    /// One order, delivered when that is known
    Agreed,
    /// Uniform reliable broadcast: no order, delivered when a majority holds it
    Urb,
    /// Best-effort broadcast: no order, delivered when it is here
    Beb,
}

impl BroadcastKind {
    /// Returns true if all members deliver the messages of all senders in one order.
    pub fn is_ordered(self) -> bool {
        self.guarantee().is_ordered()
    }

    pub(super) fn guarantee(self) -> Guarantee {
        match self {
            Self::Ab => Guarantee::Uniform,
            Self::Agreed => Guarantee::Agreed,
            Self::Urb => Guarantee::Reliable,
            Self::Beb => Guarantee::BestEffort,
        }
    }
}

/// Members that broadcast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Senders {
    /// The member that orders the messages
    #[default]
    #[value(name = "1")]
    One,
    /// All members, the same share each
    All,
}

impl Senders {
    /// Number of senders among so many members.
    pub fn count(self, members: usize) -> usize {
        match self {
            Self::One => 1,
            Self::All => members,
        }
    }
}

/// Multicast without a group: the owner of its datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Datagrams {
    /// Nobody's: bare calls of the kernel.
    #[default]
    Bare,
    /// Messages of the library, queued in runs.
    Library,
}

impl Datagrams {
    /// Engine and wake of its cells, without the number of members.
    pub(super) fn cell(self) -> (&'static str, &'static str) {
        match self {
            Self::Bare => ("floor", "multicast"),
            Self::Library => ("multicast", "messages"),
        }
    }

    pub(super) fn name(self) -> String {
        let (engine, wake) = self.cell();
        format!("{engine}/{wake}")
    }
}

/// Faults at each receiver, on every datagram of every kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultProfile {
    /// Of a thousand, so many vanish.
    pub loss_permille: u32,
    /// Of a thousand others, so many are altered, which the check value tells.
    pub flips_permille: u32,
    /// By a program in the kernel, on every packet, below every check; otherwise by the library, on every frame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_kernel: bool,
}

/// The place that loses and alters what arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FaultPlace {
    /// The library, on every frame, as a medium would
    #[default]
    Receiver,
    /// A program in the kernel, on every packet, below every check
    Kernel,
}

/// Hundredths, with one digit behind the point where there is one.
fn percent(permille: u32) -> String {
    if permille.is_multiple_of(10) {
        (permille / 10).to_string()
    } else {
        format!("{}.{}", permille / 10, permille % 10)
    }
}

impl fmt::Display for FaultProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.in_kernel { " in the kernel" } else { "" };
        write!(f, "{}/{}{place}", percent(self.loss_permille), percent(self.flips_permille))
    }
}

impl FaultProfile {
    /// As part of a cell's name, where a slash separates.
    pub(super) fn in_names(self) -> String {
        let place = if self.in_kernel { "-kernel" } else { "" };
        format!("{}-{}{place}", percent(self.loss_permille), percent(self.flips_permille))
    }
}

impl FromStr for FaultProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let permille = |text: &str| {
            let percent: f64 = text.parse().ok()?;
            (0.0..=50.0).contains(&percent).then(|| (percent * 10.0).round() as u32)
        };
        let both = text.split_once('/').and_then(|(loss, flips)| permille(loss).zip(permille(flips)));
        let (loss_permille, flips_permille) =
            both.ok_or("LOSS/FLIPS is needed, each from 0 to 50 hundredths, such as 3/1")?;
        Ok(Self { loss_permille, flips_permille, in_kernel: false })
    }
}

/// Payload of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameSize {
    /// The payload that the library takes on this medium
    #[default]
    Usual,
    /// So many bytes
    Bytes(usize),
    /// A whole message, as far as the medium carries it
    Max,
}

/// Sizes that can be asked for, bytes.
const FRAME_SIZES: std::ops::RangeInclusive<usize> = 64..=60_000;

impl FrameSize {
    /// Suffix of a trial's cell name, behind a slash, where something was asked for.
    pub(super) fn in_names(self) -> String {
        match self {
            Self::Usual => String::new(),
            Self::Bytes(_) | Self::Max => format!("/frame-{self}"),
        }
    }

    /// In bytes; the usual ones where `None`.
    pub(super) fn resolve(self, message: usize, most: usize) -> Option<usize> {
        match self {
            Self::Usual => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Max => Some(message.min(most).min(*FRAME_SIZES.end())),
        }
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("usual"),
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let bytes = size_in(FRAME_SIZES)(text).ok();
        bytes.map(Self::Bytes).ok_or_else(|| {
            let (least, most) = (FRAME_SIZES.start(), FRAME_SIZES.end());
            format!("from {least} to {most} bytes are possible, or max")
        })
    }
}

/// A disruption of members under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disruption {
    /// SIGKILL; another process comes in its place
    Kill,
    /// SIGSTOP, until the others have gone on without it
    Stop,
}

impl Disruption {
    /// As it is written in results, more than once.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Kill => "kills",
            Self::Stop => "stops",
        }
    }
}

/// So many of them in one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disruptions {
    /// Their kind.
    pub of: Disruption,
    /// Number of disruptions, one after the other.
    pub count: u32,
}

/// An error planted at the last member, after delivery: to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Planted {
    /// A bit of a message differs
    Content,
    /// Two messages are exchanged
    Order,
    /// A message is missing
    Lost,
}

/// The settings that are asked for.
#[derive(Clone, Debug, Default)]
pub struct BroadcastSettings {
    /// Sizes of groups, in turn.
    pub members: Vec<usize>,
    /// Members that broadcast.
    pub senders: Senders,
    /// The guarantees, in turn.
    pub kinds: Vec<BroadcastKind>,
    /// Payload bytes of one trial, delivered at every member.
    pub bytes: u64,
    /// Size of a message.
    pub message: usize,
    /// Payloads of a frame, in turn.
    pub frames: Vec<FrameSize>,
    /// Frames of one sender that not all have taken, where it is not the library's.
    pub window: Option<usize>,
    /// Faults, in turn.
    pub faults: Vec<FaultProfile>,
    /// Media, in turn.
    pub engines: Vec<BroadcastEngine>,
    /// Rounds of all trials.
    pub runs: u32,
    /// Disruptions of members, a trial for each. Without any, members only broadcast.
    pub disruptions: Vec<Disruptions>,
    /// Silence after which a member is suspected, in trials where members suffer.
    pub suspect_after: Duration,
    /// Repeats all random choices.
    pub seed: u64,
    /// A store in place of messages that mean nothing.
    pub kv: Option<KvSettings>,
    /// The planted error.
    pub planted: Option<Planted>,
    /// When messages are due, where not as fast as the group takes them.
    pub paced: Option<Paced>,
    /// Systems of others, in turn with ours.
    pub against: Vec<OtherSystem>,
    /// The program that makes their members.
    pub peer_program: PathBuf,
    /// Each member has a processor.
    pub pin: bool,
    /// Record the kernel's trace, of messages that are due at instants.
    pub trace: bool,
}

/// Messages of a trial that are due at instants: each member keeps a row of every one.
pub const PACED_MAX: u64 = 50_000;

/// Each sender has a message due once a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paced {
    /// The period.
    pub period_ns: u64,
    /// Messages of each sender.
    pub each: u64,
}

impl Paced {
    /// Time for which messages are due.
    pub(super) fn lasts(self) -> Duration {
        Duration::from_nanos(self.each.saturating_mul(self.period_ns))
    }

    /// When a message is due, from the first one of the first sender on: senders share the period evenly.
    pub(super) fn due_ns(self, number: u64, sender: u64, senders: usize) -> u64 {
        // A number that was altered on the way may be any.
        number.saturating_mul(self.period_ns).saturating_add(sender * self.period_ns / senders as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(text: &str) -> FaultProfile {
        text.parse().expect("a profile")
    }

    #[test]
    fn profiles_read_back() {
        for text in ["0/0", "3/1", "0.5/12.5"] {
            assert_eq!(text.parse::<FaultProfile>().map(|profile| profile.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["", "3", "3/", "-1/0", "51/0", "a/b", "1/1/1"] {
            assert!(wrong.parse::<FaultProfile>().is_err(), "{wrong}");
        }
        let profile = FaultProfile { in_kernel: true, ..text_of("3/1") };
        assert_eq!(
            (profile.to_string(), profile.in_names()),
            ("3/1 in the kernel".into(), "3-1-kernel".into())
        );
    }

    #[test]
    fn frames_read_back() {
        let read = ["64", "1024", "max"].map(|text| text.parse::<FrameSize>().expect("a size"));
        assert_eq!(read, [FrameSize::Bytes(64), FrameSize::Bytes(1_024), FrameSize::Max]);
        assert_eq!(read.map(FrameSize::in_names), ["/frame-64", "/frame-1024", "/frame-max"]);
        for wrong in ["", "63", "60001", "-1", "most"] {
            assert!(wrong.parse::<FrameSize>().is_err(), "{wrong}");
        }
        assert_eq!(FrameSize::Max.resolve(30_000, 65_000), Some(30_000));
        assert_eq!(FrameSize::Max.resolve(200_000, 65_000), Some(60_000));
        assert_eq!(FrameSize::Max.resolve(64, 65_000), Some(64));
    }
}
