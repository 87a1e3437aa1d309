//! Options of a run of vehicles: the place of the probe, the medium of the messages, the number of everything.

use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use punctual::Wake;
use serde::{Deserialize, Serialize};

use super::value::Record;
use crate::endpoint::{Medium, VALUE_SIZE};
use crate::error::Failure;
use crate::run::rows::Row;
use crate::run::{Common, by_name, hidden};
use crate::sample::{CellId, Kind, Load};
use crate::scheduling::Urgency;
use crate::units::{OptionName, duration, gap};

/// Where the instant *received* is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// A: the application thread's clock right after its blocking receive
    #[default]
    Application,
    /// B: entry of the subscriber's callback, in the sender's thread for its own messages
    Callback,
    /// C: engines alone, one receiver that polls
    Engine,
    /// D: one receiver that a signal, epoll or the doorbell tells of frames; over Ethernet by plain sockets
    Async,
}

impl Mode {
    /// True if every vehicle receives, its own messages too; if not, one process receives from all.
    pub(super) fn is_mutual(self) -> bool {
        matches!(self, Self::Application | Self::Callback)
    }
}

/// Number of interfaces that the vehicles of an Ethernet have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Interfaces {
    /// All processes on one interface of one host, as the original's; a bridge sends back what it sends
    #[default]
    One,
    /// Each process has an interface, in a network namespace of its own, as if it were a host
    Each,
}

/// The row of messages from other vehicles: the published tables know sockets only.
pub(super) fn row_of_others(medium: Medium) -> &'static str {
    match medium {
        Medium::Packet | Medium::Datagram => "socket",
        Medium::Shared => "shared",
    }
}

/// The row of a vehicle's own messages, which never leave its process.
pub(super) const OWN_ROW: &str = "sharedmem";

/// A value in an inbox, with its header and stamps and what is known of it, bytes; rounded up.
const INBOX_MESSAGE_SIZE: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(super) enum Seal {
    On,
    Off,
}

/// Options of the vehicles.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[command(mut_args(hidden(&["count", "gap", "load"])))]
#[command(mut_arg("duration", |arg| arg.help("How long vehicles publish in each run, such as 30s, 2m, in place of --messages")))]
pub struct VehiclesArguments {
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: Common,
    /// Processes that publish and subscribe
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub(super) vehicles: usize,
    /// Time between two messages of a component
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    pub(super) period: Duration,
    /// Where the instant of reception is taken
    #[arg(long, value_enum, default_value_t)]
    pub(super) mode: Mode,
    /// Medium that carries messages between vehicles
    #[arg(long, value_enum, default_value_t)]
    pub(super) engine: Medium,
    /// Way in which a receiver waits: spin, backoff, adaptive, futex, eventfd, epoll, signal [default: eventfd; engine: spin; async:
    /// signal, over shared memory futex]
    #[arg(long, value_name = "WAY")]
    #[serde(skip)]
    pub(super) wake: Option<Wake>,
    /// Messages carry a tag
    #[arg(long, value_enum, default_value = "off")]
    pub(super) seal: Seal,
    /// Processes beside the road, which listen and say once a second that they are there [default: 9 in application mode, else 0]
    #[arg(long, value_name = "N")]
    pub(super) roadside: Option<usize>,
    /// Components of each vehicle, each with a value of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) components: usize,
    /// Number of times that all is measured, with fresh processes each time
    #[arg(long, alias = "runs", value_name = "N", default_value_t = 5, default_value_if("quick", ArgPredicate::IsPresent, "2"), value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Two rounds of 3 s
    #[arg(long)]
    pub(super) quick: bool,
    /// Messages of each component in a run [default: 30 s of them; callback: 1,000 to each vehicle; engine, async: 100]
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub(super) messages: Option<usize>,
    /// Let each process begin as soon as it is open, not at a barrier, as the original's did whose first messages took 31 ms
    #[arg(long, conflicts_with_all = ["awake", "spread"])]
    pub(super) no_barrier: bool,
    /// Let vehicles publish one after the other over the period, not all at once as the barrier leaves them
    #[arg(long)]
    pub(super) spread: bool,
    /// Record which thread each processor ran, for punctual explain (root)
    #[arg(long)]
    pub(super) trace: bool,
    /// Urgency of the vehicles' threads: other, nice:N, slice:US (µs), fifo:N, rr:N
    #[arg(long, value_name = "CLASS", default_value = "other")]
    pub(super) sched: Urgency,
    /// Let each process stay on one processor, one after the other
    #[arg(long)]
    pub(super) pin: bool,
    /// Keep all processors awake for so long before and after each value is due: a virtual one that sleeps comes back late
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = gap)]
    pub(super) awake: Duration,
    /// Ethernet interfaces: one that all processes share, as the original's did, or one for each process, in a namespace each
    #[arg(long, value_enum, default_value_t, conflicts_with = "interface")]
    pub(super) interfaces: Interfaces,
    /// A bridge of this host (packet), or an interface with an address (datagram) [default: a bridge of our own]
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Option<String>,
}

/// The original's roadside processes.
const ROADSIDE: usize = 9;
/// Processes on one medium, with room for the roadside in the table of nodes.
const PROCESSES_MAX: usize = 200;
const COMPONENTS_MAX: usize = 60;
/// Limit for the records of all receivers, bytes: the command's process holds them all, and their samples beside them. Ten minutes of
/// 22 vehicles with 220 components, twice a second, take less than half of it.
const RECORDS_MAX: usize = 1 << 30;

/// All options of a run, and the settings that follow from them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VehiclesSettings {
    pub(super) asked: VehiclesArguments,
    #[serde(with = "by_name")]
    pub(super) wake: Wake,
    pub(super) roadside: usize,
    /// Messages of each component.
    pub(super) count: usize,
}

impl VehiclesSettings {
    pub(crate) fn of(arguments: &VehiclesArguments) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let (mode, wake) = (arguments.mode, wake(arguments));
        for (name, value, from, to) in [
            ("vehicles", arguments.vehicles, if mode.is_mutual() { 2 } else { 1 }, PROCESSES_MAX),
            ("components", arguments.components, 1, COMPONENTS_MAX),
            ("roadside", arguments.roadside.unwrap_or(0), 0, 50),
            ("messages", arguments.messages.unwrap_or(1), 1, 10_000_000),
        ] {
            if !(from..=to).contains(&value) {
                return usage(format!("--{name} {value}: from {from} to {to}"));
            }
        }
        combination(arguments)?;
        let settings = Self {
            wake,
            roadside: arguments.roadside.unwrap_or(if mode == Mode::Application { ROADSIDE } else { 0 }),
            count: arguments.messages.unwrap_or_else(|| messages(arguments)),
            asked: arguments.clone(),
        };
        let (vehicles, components, count) = (arguments.vehicles, arguments.components, settings.count);
        let of_one = (vehicles * components).saturating_mul(count).saturating_mul(Record::SIZE);
        let bytes = of_one.saturating_mul(settings.receivers());
        if bytes > RECORDS_MAX {
            let (mib, most) = (bytes >> 20, RECORDS_MAX >> 20);
            return usage(format!(
                "--messages {count}: the records of all receivers would take {mib} MiB, where {most} are the most; take fewer, or a \
                 shorter --duration"
            ));
        }
        Ok(settings)
    }

    /// Processes that receive.
    pub(super) fn receivers(&self) -> usize {
        if self.asked.mode.is_mutual() { self.asked.vehicles } else { 1 }
    }

    /// Values that one component will receive, or the one receiver of all.
    pub(super) fn capacity(&self) -> usize {
        self.asked.vehicles * self.count
    }

    /// Duration for which messages are sent.
    pub(super) fn lasts(&self) -> Duration {
        self.asked.period.saturating_mul(u32::try_from(self.count).unwrap_or(u32::MAX))
    }

    /// Between two messages of a component, nanoseconds.
    pub(super) fn period_ns(&self) -> u64 {
        u64::try_from(self.asked.period.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Offset of a vehicle's first message from that of the vehicle before it, nanoseconds.
    pub(super) fn phase_ns(&self) -> u64 {
        if self.asked.spread { self.asked.period.as_nanos() as u64 / self.asked.vehicles as u64 } else { 0 }
    }

    /// From one instant at which values are due to the next, nanoseconds.
    pub(super) fn spacing_ns(&self) -> u64 {
        if self.asked.spread { self.phase_ns() } else { self.period_ns() }
    }

    /// Offset of the first message of a vehicle's component from the barrier. Vehicles come one after the other, and divide the time
    /// between them among their components.
    pub(super) fn behind_ns(&self, (vehicle, component): (u16, u16)) -> u64 {
        let phase_ns = self.phase_ns();
        u64::from(vehicle) * phase_ns + u64::from(component) * (phase_ns / self.asked.components as u64)
    }

    /// Room for the frames of half a second, because a vehicle may stand still that long and lose nothing. Also for all frames before
    /// the barrier opens: an interest and a first value of each for each. A power of two; not more than it takes, because a large ring
    /// is never in the cache when its next frame comes; at most 32 MiB of it.
    pub(super) fn ring_frames(&self) -> usize {
        let frames =
            (self.asked.vehicles * self.asked.components) as f64 * 0.5 / self.asked.period.as_secs_f64();
        let processes = self.asked.vehicles + self.roadside;
        let before = 2 * processes * processes * self.asked.components;
        (frames as usize).max(before).next_power_of_two().clamp(128, 16_384)
    }

    /// Room for a component's messages of half a second in its inbox, bytes.
    pub(super) fn inbox_size(&self) -> usize {
        let messages = self.asked.vehicles as f64 * 0.5 / self.asked.period.as_secs_f64();
        (messages as usize * INBOX_MESSAGE_SIZE).next_power_of_two().clamp(1 << 14, 1 << 23)
    }

    pub(super) fn cell(&self, row: &str) -> CellId {
        CellId {
            kind: Kind::OneWay,
            load: Load::Open,
            size: VALUE_SIZE,
            ..CellId::new(row, &self.asked.mode.name()).with_gap(self.asked.period)
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.asked.seal == Seal::On
    }
}

/// As it was asked for, or as the mode is meant.
fn wake(arguments: &VehiclesArguments) -> Wake {
    arguments.wake.unwrap_or(match (arguments.mode, arguments.engine) {
        (Mode::Async, Medium::Shared) => Wake::Futex,
        (Mode::Async, _) => Wake::Signal,
        (Mode::Engine, _) => Wake::Spin,
        _ => Wake::EventFd,
    })
}

/// Options that do not go together.
fn combination(arguments: &VehiclesArguments) -> Result<(), Failure> {
    let VehiclesArguments { common, mode, engine: medium, period, sched, .. } = arguments;
    let (is_mutual, wake, name, bus) = (mode.is_mutual(), wake(arguments), mode.name(), medium.name());
    let given = common.count.map(|_| "--count").or(common.gap.map(|_| "--gap"));
    let given = given.or(common.load.map(|_| "--load"));
    let spins = matches!(wake, Wake::Spin | Wake::Backoff | Wake::Adaptive);
    let refusal = if let Some(name) = given {
        format!("{name}: vehicles publish by --period, --messages or --duration")
    } else if !is_mutual && (arguments.components > 1 || arguments.roadside.unwrap_or(0) > 0) {
        format!("--mode {name}: it has no components and no roadside; leave them out")
    } else if arguments.interfaces == Interfaces::Each && *medium != Medium::Packet {
        format!("--interfaces each: there is no choice with --engine {bus}; leave it out")
    } else if *mode == Mode::Engine && wake != Wake::Spin {
        format!("--wake {wake}: --mode engine has one receiver that polls; leave it out")
    } else if *mode == Mode::Async
        && *medium == Medium::Packet
        && !matches!(wake, Wake::Signal | Wake::Epoll | Wake::Spin)
    {
        format!("--wake {wake}: plain sockets are waited for by signal, epoll or spin")
    } else if !wake.can_wait_for(*medium == Medium::Shared) {
        let others = if *medium == Medium::Shared { "futex, eventfd" } else { "epoll, signal" };
        format!("--wake {wake}: it cannot wait for --engine {bus}; take {others}, backoff or spin")
    } else if let Urgency::Deadline { .. } = sched {
        format!("--sched {sched}: its threads cannot start others; take fifo:1")
    } else if sched.is_real_time() && spins {
        format!(
            "--sched {sched}: processes that spin would take every processor from everybody; take other, or a --wake that sleeps"
        )
    } else if arguments.seal == Seal::On && !is_mutual {
        format!("--seal on: --mode {name} is about what is below the seal; leave one out")
    } else if *period < Duration::from_micros(10) || *period > Duration::from_secs(60) {
        format!("--period {period:?}: from 10us to 60s")
    } else if !period.as_nanos().is_multiple_of(1_000) {
        format!("--period {period:?}: whole microseconds")
    } else {
        return Ok(());
    };
    Err(Failure::Usage(refusal))
}

/// As many as in the original's test of this mode, if nothing else was asked for.
fn messages(arguments: &VehiclesArguments) -> usize {
    let during = |duration: Duration| {
        usize::try_from(duration.as_nanos() / arguments.period.as_nanos().max(1)).unwrap_or(usize::MAX).max(1)
    };
    match (arguments.common.duration, arguments.mode) {
        (Some(duration), _) => during(duration),
        (None, _) if arguments.quick => during(Duration::from_secs(3)),
        (None, Mode::Application) => during(Duration::from_secs(30)),
        (None, Mode::Callback) => 1_000_usize.div_ceil(arguments.vehicles),
        (None, Mode::Engine | Mode::Async) => 100,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;
    use crate::run::Experiment;
    use crate::verify::again::tests::again;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: VehiclesArguments,
    }

    /// Settings that result from these options.
    pub(in crate::vehicles) fn settings_of(options: &str) -> Result<VehiclesSettings, Failure> {
        VehiclesSettings::of(&Line::parse_from(std::iter::once("vehicles").chain(options.split(' '))).options)
    }

    /// Goal: the limit is that of the one process which holds the records of all receivers. Usual runs, and those of a night, are far
    /// below it.
    #[test]
    fn the_records_of_all_receivers_have_a_limit() {
        for fits in [
            "--quick",
            "--duration 60m",
            "--vehicles 22 --components 10 --period 500ms --duration 600s",
            "--mode callback --messages 60000",
            "--mode engine --messages 900000",
        ] {
            assert!(settings_of(fits).is_ok(), "{fits}");
        }
        for large in
            ["--messages 70000", "--mode callback --messages 400000", "--mode async --messages 1000000"]
        {
            let refused = settings_of(large).map(|settings| settings.count);
            assert!(
                matches!(&refused, Err(Failure::Usage(text)) if text.contains("MiB")),
                "{large}: {refused:?}"
            );
        }
    }

    /// The measured settings: all but how long, how often, and the options that are held by other fields once they are resolved.
    fn measured(settings: &VehiclesSettings) -> String {
        let common = Common { seed: settings.asked.common.seed, ..Common::default() };
        let asked = VehiclesArguments {
            common,
            wake: None,
            roadside: None,
            messages: None,
            rounds: 1,
            quick: false,
            ..settings.asked.clone()
        };
        format!("{:#?}", VehiclesSettings { asked, count: 0, ..settings.clone() })
    }

    /// Goal: verify measures the same as the run, regardless of the run's options.
    #[test]
    fn a_run_is_made_again_with_all_its_options() {
        for words in [
            "--vehicles 5",
            "--period 1230us",
            "--mode callback",
            "--mode engine --engine shared",
            "--mode async --engine packet --interfaces each",
            "--engine datagram --interface lo",
            "--wake futex --engine shared",
            "--seal on",
            "--roadside 3",
            "--components 2",
            "--no-barrier",
            "--spread",
            "--sched fifo:9",
            "--pin",
            "--awake 1234ns",
            "--seed 7",
        ] {
            let before = settings_of(words).expect("they go together");
            let remade = again("vehicles", before.plan().described, before.asked.common.seed);
            let command = remade.expect("it can be made again").command();
            let options = command.strip_prefix("punctual run vehicles ").expect("the experiment");
            let after = settings_of(options).expect("they go together");
            assert_eq!(measured(&after), measured(&before), "{words}: {command}");
        }
    }
}
