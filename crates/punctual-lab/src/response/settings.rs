//! Options of a run of responses, and the settings that result from them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{ArgPredicate, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use punctual_machine::cpu::allowed;
use punctual_machine::socket::DSCP_MAX;

use super::option::{Ends, Recorded, Variant};
use super::sockperf;
use crate::endpoint::port::{FLOWS_MAX, Stamps, Way};
use crate::error::Failure;
use crate::explain::injection::Mishap;
use crate::file::read_text;
use crate::load::echo::{Delay, Protocol, wire};
use crate::load::forwarder::Faults;
use crate::run::{Common, choose_cpus, network, processor};
use crate::sample::{CellId, Load};
use crate::scheduling::Urgency;
use crate::units::{OptionName, address, duration, size_in};

/// Options of the response.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("count", |arg| arg.help("Round trips of each choice, over all rounds [default: 50000]")))]
pub struct ResponseArguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Ways in which both ends wait and send, measured in turn [default: blocking, with --all all]
    #[arg(long = "wake", alias = "option", value_name = "WAY", value_delimiter = ',', value_parser = ways())]
    ways: Vec<Option<Way>>,
    /// Urgency of the threads, in turn: other, nice:N, slice:US, fifo:N, rr:N, deadline:RUNTIME/PERIOD (µs)
    #[arg(
        long,
        value_name = "CLASS",
        value_delimiter = ',',
        default_value = "other",
        allow_hyphen_values = true
    )]
    pub(super) sched: Vec<Urgency>,
    /// Ends whose threads --sched makes urgent
    #[arg(long, value_enum, default_value_t)]
    pub(super) urgent: Ends,
    /// A responder elsewhere (punctual echo) [default: one in a network namespace of its own]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub(super) to: Option<SocketAddr>,
    /// Protocol of the responder
    #[arg(long, value_enum, default_value_t)]
    pub(super) protocol: Protocol,
    /// Payload, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = size_in(1..=wire::SIZE_MAX))]
    pub(super) size: usize,
    /// Open load with so many trips a second
    #[arg(long, value_name = "N", conflicts_with = "gap", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) rate: Option<u64>,
    /// Flows, taken in turn, each from a port of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) flows: usize,
    /// IPv6 between the two namespaces
    #[arg(long)]
    pub(super) ipv6: bool,
    /// Longest wait for an answer before the next request leaves. A trip without one at the end, so long after, is lost
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = duration)]
    pub(super) timeout: Duration,
    /// Count answers slower than this
    #[arg(long, value_name = "TIME", default_value = "900us", value_parser = duration)]
    pub(super) limit: Duration,
    /// Kernel stamps to take
    #[arg(long, value_enum, default_value_t)]
    pub(super) stamps: Stamps,
    /// Number of times that each is measured, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 5, default_value_if("quick", ArgPredicate::IsPresent, "2"), value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Two rounds of 4 s
    #[arg(long)]
    pub(super) quick: bool,
    /// Processor of the client [default: the first that this process may use]
    #[arg(long, value_name = "N", value_parser = processor, conflicts_with = "unpinned")]
    pub(super) client_cpu: Option<usize>,
    /// Processor of the responder [default: the last]
    #[arg(long, value_name = "N", value_parser = processor, conflicts_with = "unpinned")]
    pub(super) responder_cpu: Option<usize>,
    /// Bind no thread to a processor
    #[arg(long)]
    pub(super) unpinned: bool,
    /// Interface to a responder elsewhere, for packet and xdp [default: that of the route]
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Option<String>,
    /// Differentiated-services code point of what is sent
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=i64::from(DSCP_MAX)))]
    pub(super) dscp: u8,
    /// Priority in this host's queues; a VLAN interface maps it to its tag
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    pub(super) priority: u8,
    /// Time that the kernel polls the device, µs
    #[arg(long, value_name = "US", default_value_t = 50)]
    pub(super) busy_poll: u32,
    /// Percent of packets to lose on the way
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) lose: Option<u32>,
    /// Percent to double
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) double: Option<u32>,
    /// Percent to hold back behind the next
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) reorder: Option<u32>,
    /// Percent to change one bit of
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) corrupt: Option<u32>,
    /// Measure this too, in turn: sockperf's own client and server
    #[arg(long, value_name = "PEER", value_parser = ["sockperf"])]
    pub(super) against: Option<String>,
    /// Lock memory, so that it is there before it is used
    #[arg(long)]
    pub(super) lock_memory: bool,
    /// Room at each socket for what nobody has read yet, bytes [default: 16 MiB]
    #[arg(long, value_name = "BYTES", value_parser = size_in(4096..=1 << 30))]
    pub(super) receive_buffer: Option<usize>,
    /// Record who ran on each processor, for punctual explain (root)
    #[arg(long)]
    pub(super) trace: bool,
    /// Measure these levels of recording side by side, and what each costs
    #[arg(long, value_enum, value_name = "LEVEL", value_delimiter = ',', conflicts_with = "trace")]
    pub(super) record: Vec<Recorded>,
    /// Make every trip slower by so long in one stage, to see it found: STAGE=TIME
    #[arg(long, hide = true)]
    pub(super) delay: Option<Delay>,
    /// Mishaps of single trips at instants, a plan of run causes
    #[arg(long, hide = true, value_name = "FILE")]
    pub(super) mishaps: Option<PathBuf>,
    /// Treat both clocks as two, as of two hosts
    #[arg(long, hide = true)]
    pub(super) clocks_apart: bool,
}

/// The names of the ways, and "all".
fn ways() -> impl TypedValueParser<Value = Option<Way>> {
    let names = Way::value_variants().iter().filter_map(Way::to_possible_value);
    let all = PossibleValue::new("all").help("Every way");
    PossibleValuesParser::new(names.chain([all])).map(|name| Way::from_str(&name, false).ok())
}

impl ResponseArguments {
    /// The ways that were asked for. To leave nothing out is to measure every way.
    fn ways(&self) -> Vec<Way> {
        let named: Option<Vec<Way>> = self.ways.iter().copied().collect();
        match named {
            Some(named) if !named.is_empty() => named,
            Some(_) if !self.common.all => vec![Way::Blocking],
            _ => Way::value_variants().to_vec(),
        }
    }

    /// Levels of recording that are measured side by side; that of the run alone if none is asked for.
    fn levels(&self) -> Vec<Option<Recorded>> {
        if self.record.is_empty() { vec![None] } else { self.record.iter().copied().map(Some).collect() }
    }

    /// True if the kernel's trace is recorded while this is measured.
    pub(super) fn traces(&self, choice: Variant) -> bool {
        choice.recorded.map_or(self.trace, |recorded| recorded == Recorded::Trace)
    }
}

/// Percent in hundredths.
fn percent(text: &str) -> Result<u32, String> {
    let percent: f64 = text.parse().map_err(|_| "a number from 0 to 25 is needed".to_owned())?;
    if (0.0..=25.0).contains(&percent) {
        Ok((percent * 100.0).round() as u32)
    } else {
        Err("from 0 to 25".to_owned())
    }
}

/// Time that all trials take, if nothing else was asked for.
const DURATION: Duration = Duration::from_secs(50);
const DURATION_QUICK: Duration = Duration::from_secs(8);
/// Round trips of each choice, if nothing else was asked for.
const COUNT: u64 = 50_000;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct ResponseSettings {
    /// As it was asked for.
    pub asked: ResponseArguments,
    /// Side by side.
    pub choices: Vec<Variant>,
    /// When the next packet leaves.
    pub load: Load,
    /// Idle gap, or period.
    pub gap: Duration,
    /// Round trips of each choice, over all rounds.
    pub count: usize,
    /// Longest that all trials together take.
    pub duration: Duration,
    /// The interface to a responder elsewhere, for raw ways.
    pub interface: Option<String>,
    /// CPUs of client and responder.
    pub cpus: [Option<usize>; 2],
    /// Faults on the way.
    pub faults: Option<Faults>,
    /// Mishaps of single trips, made on purpose.
    pub mishaps: Vec<Mishap>,
}

impl ResponseSettings {
    /// Settings that result from the options.
    ///
    /// # Errors
    /// Options that do not go together; sockperf, where it is wanted, is not there.
    pub fn of(arguments: &ResponseArguments) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let protocol = arguments.protocol;
        let sizes = protocol.size_min()..=wire::SIZE_MAX;
        if !sizes.contains(&arguments.size) {
            let (from, to) = (sizes.start(), sizes.end());
            return usage(format!(
                "--size {}: from {from} (the header of --protocol {}) to {to}",
                arguments.size,
                protocol.name()
            ));
        }
        if !(1..=FLOWS_MAX).contains(&arguments.flows) {
            return usage(format!("--flows {}: from 1 to {FLOWS_MAX}", arguments.flows));
        }
        let ways = arguments.ways();
        let levels = arguments.levels();
        let mut choices = Vec::new();
        for &urgency in &arguments.sched {
            for &way in &ways {
                for &recorded in &levels {
                    let choice = Variant { way, urgency, ends: arguments.urgent, recorded };
                    if !choices.contains(&choice) {
                        choices.push(choice);
                    }
                }
            }
        }
        let (load, gap) = load(arguments)?;
        let interface = interface(arguments, &choices)?;
        if arguments.against.is_some() {
            can_be_beside_sockperf(&arguments.common, load, gap)?;
        }
        let common = &arguments.common;
        Ok(Self {
            choices,
            load,
            gap,
            count: usize::try_from(common.count.unwrap_or(COUNT)).unwrap_or(usize::MAX),
            duration: common.duration.unwrap_or(usual_duration(arguments)),
            interface,
            cpus: cpus(arguments),
            faults: faults(arguments)?,
            mishaps: arguments.mishaps.as_deref().map_or_else(|| Ok(Vec::new()), mishaps)?,
            asked: arguments.clone(),
        })
    }

    /// The cell of one choice.
    pub fn cell(&self, choice: Variant) -> CellId {
        self.cell_of(&choice.to_string())
    }

    /// The cell of what has this name.
    pub fn cell_of(&self, name: &str) -> CellId {
        let cell = CellId::new(name, "round_trip").with_gap(self.gap);
        CellId { load: self.load, size: self.asked.size, ..cell }
    }
}

/// Checks that sockperf can be given the load of a run, and the time to end.
fn can_be_beside_sockperf(common: &Common, load: Load, gap: Duration) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(format!("--against sockperf: {text}")));
    if load != Load::Closed || !gap.is_zero() {
        return usage(
            "its ping-pong is a closed load without a gap; leave out --load open, --rate and --gap",
        );
    }
    if common.count.is_some() && common.duration.is_none() {
        return usage("it ends by time alone; give --duration beside --count");
    }
    if !sockperf::is_installed() {
        let text = "--against sockperf: it is not installed (apt-get install sockperf)";
        return Err(Failure::Machine(text.to_owned()));
    }
    Ok(())
}

/// The largest plan of mishaps that is read, bytes.
const MISHAPS_SIZE_MAX: u64 = 1 << 20;

fn mishaps(path: &Path) -> Result<Vec<Mishap>, Failure> {
    let wrong = |reason: String| Failure::Usage(format!("--mishaps {}: {reason}", path.display()));
    let text = read_text(path, MISHAPS_SIZE_MAX).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

/// The interface to a responder elsewhere, where a way needs to know it.
fn interface(arguments: &ResponseArguments, choices: &[Variant]) -> Result<Option<String>, Failure> {
    let raw = needs_interface(choices);
    let Some(name) = &arguments.interface else {
        return Ok(arguments.to.filter(|_| raw.is_some()).and_then(|to| network::interface_to(to.ip())));
    };
    let wrong = |why: &str| Err(Failure::Usage(format!("--interface {name}: {why}")));
    if arguments.to.is_none() {
        return wrong("without --to both ends are on a segment of this run's own");
    }
    if raw.is_none() {
        return wrong(
            "the ways asked for leave the choice to the kernel; packet and xdp take it (--wake packet)",
        );
    }
    if !std::fs::exists(format!("/sys/class/net/{name}")).unwrap_or(false) {
        return wrong("there is none here: ip link lists them");
    }
    Ok(Some(name.clone()))
}

/// Time limit where a count was asked for.
const LONG: Duration = Duration::from_secs(3600);

fn usual_duration(arguments: &ResponseArguments) -> Duration {
    match arguments.common.count {
        Some(_) => LONG,
        None if arguments.quick => DURATION_QUICK,
        None => DURATION,
    }
}

fn load(arguments: &ResponseArguments) -> Result<(Load, Duration), Failure> {
    let common = &arguments.common;
    let asked = common.load.map(Load::from);
    match (asked, arguments.rate, common.gap) {
        (Some(Load::Closed), Some(rate), _) => {
            let text =
                format!("--rate {rate}: closed load has no rate; leave out --load closed, or pass --gap");
            Err(Failure::Usage(text))
        }
        (_, Some(rate), _) => Ok((Load::Open, Duration::from_nanos(1_000_000_000 / rate))),
        (Some(Load::Open), None, Some(gap)) if gap < Duration::from_micros(1) => {
            Err(Failure::Usage("--gap 0: open load needs a period of 1us or more".to_owned()))
        }
        (Some(Load::Open), None, gap) => Ok((Load::Open, gap.unwrap_or(Duration::from_millis(1)))),
        (_, None, gap) => Ok((Load::Closed, gap.unwrap_or(Duration::ZERO))),
    }
}

/// True if both ends run on one processor: they are pinned to it, or there is no other.
pub(super) fn share_a_processor(cpus: [Option<usize>; 2]) -> bool {
    match cpus {
        [Some(one), Some(other)] => one == other,
        _ => allowed().len() < 2,
    }
}

fn cpus(arguments: &ResponseArguments) -> [Option<usize>; 2] {
    if arguments.unpinned {
        return [None, None];
    }
    let [first, last] = choose_cpus();
    [arguments.client_cpu.or(first), arguments.responder_cpu.or(last)]
}

fn faults(arguments: &ResponseArguments) -> Result<Option<Faults>, Failure> {
    let given = [arguments.lose, arguments.double, arguments.reorder, arguments.corrupt];
    if given.iter().all(Option::is_none) {
        return Ok(None);
    }
    if let Some(to) = arguments.to {
        let text = format!("--to {to}: faults are made between our own namespaces only; leave one out");
        return Err(Failure::Usage(text));
    }
    if arguments.ways().iter().any(|way| way.is_raw()) {
        return Err(Failure::Usage(
            "--lose, --double, --reorder, --corrupt: not with packet and xdp".to_owned(),
        ));
    }
    let [lost, doubled, reordered, changed] = given.map(|part| part.unwrap_or(0));
    Ok(Some(Faults { lost, doubled, reordered, changed, seed: arguments.common.seed }))
}

/// Ways that need an interface of Ethernet.
fn needs_interface(choices: &[Variant]) -> Option<Way> {
    choices.iter().map(|choice| choice.way).find(|way| way.is_raw())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Goal: ends that are pinned nowhere have every processor to poll on.
    #[test]
    fn ends_share_a_processor_that_both_are_pinned_to() {
        assert!(share_a_processor([Some(1), Some(1)]) && !share_a_processor([Some(0), Some(1)]));
        for open in [[None, None], [None, Some(0)]] {
            assert_eq!(share_a_processor(open), allowed().len() < 2);
        }
    }
    use crate::response::experiment::ResponseOutcome;
    use crate::run::Experiment;
    use crate::sample::{Outcome, Samples};
    use crate::summary::Summary;
    use crate::verify::again::tests::again;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ResponseArguments,
    }

    fn settings(words: &str) -> ResponseSettings {
        let line = Line::parse_from(std::iter::once("response").chain(words.split_whitespace()));
        ResponseSettings::of(&line.options).expect("they go together")
    }

    /// Goal: a processor is not named and passed over.
    #[test]
    fn a_processor_goes_with_no_unpinned_run() {
        for option in ["--client-cpu", "--responder-cpu"] {
            assert!(Line::try_parse_from(["response", "--unpinned", option, "0"]).is_err(), "{option}");
        }
    }

    /// Goal: a trip that sockperf loses beside ours is a doubt, and no promise of ours.
    #[test]
    fn losses_of_sockperf_are_a_doubt() {
        let settings = settings("");
        let outcome = ResponseOutcome {
            accounts: Vec::new(),
            skipped: Vec::new(),
            made: 0,
            place: String::new(),
            began_ns: 0,
            faults: None,
        };
        for (name, is_ours) in [(sockperf::NAME, false), ("blocking", true)] {
            let (mut summary, mut lost) = (Summary::default(), Samples::default());
            lost.push(0, 0, 0, 1, Outcome::Lost);
            summary.add(&settings.cell_of(name), &[lost], 0);
            assert_eq!(settings.promise(&summary, &outcome).is_err(), is_ours, "{name}");
            assert_eq!(summary.doubts.len(), 1, "{name}: {:?}", summary.doubts);
        }
    }

    /// Options that decide what is measured: all but the duration, the number of rounds, and those that stand in other places once they
    /// are understood.
    fn measured(settings: &ResponseSettings) -> String {
        let common = Common { seed: settings.asked.common.seed, ..Common::default() };
        let asked = ResponseArguments {
            common,
            ways: Vec::new(),
            sched: Vec::new(),
            rate: None,
            rounds: 1,
            quick: false,
            client_cpu: None,
            responder_cpu: None,
            ..settings.asked.clone()
        };
        let same = ResponseSettings { asked, count: 0, duration: Duration::ZERO, ..settings.clone() };
        format!("{same:#?}")
    }

    /// Goal: verify measures the same as the run, regardless of the run's options. Method: each option that is not at its default
    /// becomes a plan, that a command, and that settings again.
    #[test]
    fn a_run_is_made_again_with_all_its_options() {
        let allowed = punctual_machine::cpu::allowed();
        let swapped = format!("--client-cpu {} --responder-cpu {}", allowed[allowed.len() - 1], allowed[0]);
        for words in [
            "",
            "--quick",
            "--wake spin,blocking --sched fifo:50,nice:-5",
            "--sched fifo:50 --urgent responder",
            "--to 10.0.0.2:9930",
            "--to 10.0.0.2:9930 --wake packet --interface lo",
            "--protocol udp",
            "--size 1000",
            "--rate 600000",
            "--rate 300",
            "--gap 10us",
            "--load open --gap 1500ns",
            "--flows 4",
            "--ipv6",
            "--timeout 31500us",
            "--limit 2ms",
            "--limit 1234ns",
            "--stamps receive",
            &swapped,
            "--unpinned",
            "--dscp 46",
            "--priority 5",
            "--busy-poll 10",
            "--lock-memory",
            "--receive-buffer 8192",
            "--delay reply.elsewhere=1500ns",
            "--clocks-apart",
            "--seed 7",
        ] {
            let before = settings(words);
            let remade = again("response", before.plan().described, before.asked.common.seed);
            let command = remade.expect("it can be made again").command();
            let options = command.strip_prefix("punctual run response ").expect("the experiment");
            assert_eq!(measured(&settings(options)), measured(&before), "{words}: {command}");
        }
    }

    /// Goal: two rates are two cells, however close their periods are, and a gap below a microsecond is one.
    #[test]
    fn no_part_of_a_gap_is_cut() {
        let cell = |words: &str| settings(words).cell_of("way");
        assert_ne!(cell("--rate 600000"), cell("--rate 900000"));
        assert_eq!(cell("--rate 600000").gap(), "1.666 µs");
        assert_ne!(cell("--gap 500ns"), cell("--gap 0"));
        assert_eq!(cell("--rate 1000"), cell("--load open --gap 1ms"));
    }

    /// Goal: a plan that lacks what decides what is measured is refused, and says what.
    #[test]
    fn a_plan_that_lacks_something_is_refused() {
        for key in ["load", "gap_ns", "limit_us", "ipv6", "dscp", "priority", "busy_poll_us", "interface"] {
            let mut plan = settings("").plan().described;
            plan.as_object_mut().expect("an object").remove(key);
            let refused = again("response", plan, 1);
            assert!(refused.is_err_and(|reason| reason.contains(key)), "{key}");
        }
    }
}
