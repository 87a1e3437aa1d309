//! `punctual run response`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use clap::builder::{ArgPredicate, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use punctual_machine::host::HostFacts;
use punctual_machine::signal::{catch_interrupts, count_continuations};
use punctual_machine::socket::DSCP_MAX;
use serde_json::json;

use super::options::Common;
use super::progress::progress;
use super::{show, store_failure, write_file};
use crate::error::Failure;
use crate::response::delay::Delay;
use crate::response::experiment::{self, Outcome, RunError, Settings, needs_interface};
use crate::response::forward::Faults;
use crate::response::option::{Ends, Variant, Way};
use crate::response::port::{FLOWS_MAX, Stamps};
use crate::response::protocol::Protocol;
use crate::response::testbed::Family;
use crate::response::totals::Totals;
use crate::response::{neighbour, published, sockperf, wire};
use crate::sample::Load;
use crate::scheduling::Urgency;
use crate::store::{Header, Store};
use crate::summary::Summary;
use crate::units::duration;
use crate::{doubt, facts, survey};

/// Options of the response.
#[derive(Debug, Args)]
pub struct ResponseArguments {
    #[command(flatten)]
    common: Common,
    /// How both ends wait and send, measured in turn [default: blocking, with --all all]
    #[arg(long = "wake", alias = "option", value_name = "WAY", value_delimiter = ',', value_parser = ways())]
    ways: Vec<Ways>,
    /// Urgency of the threads, in turn: other, nice:N, fifo:N, rr:N, deadline:RUNTIME/PERIOD (µs)
    #[arg(
        long,
        value_name = "CLASS",
        value_delimiter = ',',
        default_value = "other",
        allow_hyphen_values = true
    )]
    sched: Vec<Urgency>,
    /// Whose threads --sched makes urgent
    #[arg(long, value_enum, default_value_t)]
    urgent: Ends,
    /// A responder elsewhere (punctual echo) [default: one in a network namespace of its own]
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: Option<SocketAddr>,
    /// What the responder speaks
    #[arg(long, value_enum, default_value_t)]
    protocol: Protocol,
    /// Payload, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    size: usize,
    /// Open load with so many trips a second
    #[arg(long, value_name = "N", conflicts_with = "gap", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
    /// Flows, taken in turn, each from a port of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: usize,
    /// IPv6 between the two namespaces
    #[arg(long)]
    ipv6: bool,
    /// How long an answer is waited for; then the trip is lost
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = duration)]
    timeout: Duration,
    /// Count answers slower than this
    #[arg(long, value_name = "TIME", default_value = "900us", value_parser = duration)]
    limit: Duration,
    /// Which of the kernel's stamps to take
    #[arg(long, value_enum, default_value_t)]
    stamps: Stamps,
    /// How often each is measured, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 5, default_value_if("quick", ArgPredicate::IsPresent, "2"), value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Two rounds of 4 s
    #[arg(long)]
    quick: bool,
    /// Processor of the client [default: the first that this process may use]
    #[arg(long, value_name = "N")]
    client_cpu: Option<usize>,
    /// Processor of the responder [default: the last]
    #[arg(long, value_name = "N")]
    responder_cpu: Option<usize>,
    /// Bind no thread to a processor
    #[arg(long)]
    unpinned: bool,
    /// Interface to a responder elsewhere, for packet and xdp [default: that of the route]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Differentiated-services code point of what is sent
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=i64::from(DSCP_MAX)))]
    dscp: u8,
    /// Priority in this host's queues; a VLAN interface maps it to its tag
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    priority: u8,
    /// How long the kernel polls the device, µs
    #[arg(long, value_name = "US", default_value_t = 50)]
    busy_poll: u32,
    /// Percent of packets to lose on the way
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    lose: Option<u32>,
    /// Percent to double
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    double: Option<u32>,
    /// Percent to hold back behind the next
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    reorder: Option<u32>,
    /// Percent to change one bit of
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    corrupt: Option<u32>,
    /// Measure this too, in turn: sockperf's own client and server
    #[arg(long, value_name = "PEER", value_parser = ["sockperf"])]
    against: Option<String>,
    /// Make every trip slower by so long in one stage, to see it found: STAGE=TIME
    #[arg(long, hide = true)]
    delay: Option<Delay>,
    /// Treat both clocks as two, as of two hosts
    #[arg(long, hide = true)]
    clocks_apart: bool,
}

/// One way, or every one.
#[derive(Clone, Copy, Debug)]
enum Ways {
    One(Way),
    All,
}

/// The names of the ways, and "all".
fn ways() -> impl TypedValueParser<Value = Ways> {
    let names = Way::ALL.iter().filter_map(Way::to_possible_value);
    let all = PossibleValue::new("all").help("Every way");
    PossibleValuesParser::new(names.chain([all]))
        .map(|name| Way::from_str(&name, false).map_or(Ways::All, Ways::One))
}

impl ResponseArguments {
    /// What was asked for. To leave nothing out is to measure every way.
    fn ways(&self) -> Vec<Way> {
        let wants_all = self.ways.iter().any(|way| matches!(way, Ways::All));
        if wants_all || (self.ways.is_empty() && self.common.all) {
            return Way::ALL.to_vec();
        }
        let named: Vec<Way> = self
            .ways
            .iter()
            .filter_map(|way| if let Ways::One(way) = way { Some(*way) } else { None })
            .collect();
        if named.is_empty() { vec![Way::Blocking] } else { named }
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
/// Round trips of each round that count as warm-up: only the first round has any, as the cell goes on.
const WARMUP: u64 = 20;

/// Measures, stores, explains.
///
/// # Errors
/// See [`Failure`].
pub fn response(arguments: &ResponseArguments) -> Result<(), Failure> {
    let settings = settings(arguments)?;
    let common = &arguments.common;
    catch_interrupts()
        .and_then(|()| count_continuations())
        .map_err(|error| Failure::Machine(error.to_string()))?;
    if let Some(file) = common.json.as_deref().filter(|file| *file != Path::new("-")) {
        write_file(file, "")?;
    }
    let against = arguments.against.is_some();
    if against && !sockperf::is_installed() {
        return Err(Failure::Machine(
            "--against sockperf: it is not installed (apt-get install sockperf)".to_owned(),
        ));
    }
    let header = header(&settings, against);
    let mut store = Store::create(common.out.as_deref(), &header).map_err(|error| store_failure(&error))?;
    let bar = progress(common.quiet);
    let outcome = in_a_thread(|| experiment::run(&settings, against, &mut store, &bar))?;
    bar.finish_and_clear();
    if outcome.is_err() {
        store.discard_if_empty();
    }
    let outcome = outcome.map_err(|error| match error {
        RunError::Store(error) => store_failure(&error),
        RunError::Machine(text) => Failure::Machine(text),
    })?;
    let summary = summarise(&settings, &outcome, &store)?;
    let path = store.finish(&summary).map_err(|error| store_failure(&error))?;
    conclude(&path, &summary, &outcome, arguments, &settings)
}

/// In a thread of its own, which may leave for another network namespace.
pub(super) fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("experiment".to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| Failure::Machine(format!("cannot start a thread: {error}")))?;
        thread.join().map_err(|_| Failure::Machine("the experiment failed".to_owned()))
    })
}

fn settings(arguments: &ResponseArguments) -> Result<Settings, Failure> {
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
    let mut choices = Vec::new();
    for &urgency in &arguments.sched {
        for &way in &ways {
            let choice = Variant { way, urgency, ends: arguments.urgent };
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
    }
    let (load, gap) = load(arguments)?;
    let interface = interface(arguments, &choices)?;
    let common = &arguments.common;
    Ok(Settings {
        choices,
        protocol,
        size: arguments.size,
        load,
        gap,
        count: usize::try_from(common.count.unwrap_or(COUNT)).unwrap_or(usize::MAX),
        duration: common.duration.unwrap_or(usual_duration(arguments)),
        rounds: arguments.rounds,
        flows: arguments.flows,
        family: if arguments.ipv6 { Family::V6 } else { Family::V4 },
        timeout: arguments.timeout,
        limit: arguments.limit,
        stamps: arguments.stamps,
        to: arguments.to,
        interface,
        cpus: cpus(arguments),
        dscp: arguments.dscp,
        priority: arguments.priority,
        busy_poll_us: arguments.busy_poll,
        faults: faults(arguments)?,
        delay: arguments.delay,
        clocks_apart: arguments.clocks_apart,
        seed: common.seed,
    })
}

/// The interface to a responder elsewhere, where a way needs to know it.
fn interface(arguments: &ResponseArguments, choices: &[Variant]) -> Result<Option<String>, Failure> {
    let raw = needs_interface(choices);
    let Some(name) = &arguments.interface else {
        return Ok(arguments.to.filter(|_| raw.is_some()).and_then(|to| neighbour::interface_to(to.ip())));
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
    match (arguments.common.count, arguments.quick) {
        (Some(_count), _) => LONG,
        (None, true) => DURATION_QUICK,
        (None, false) => DURATION,
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

fn cpus(arguments: &ResponseArguments) -> [Option<usize>; 2] {
    if arguments.unpinned {
        return [None, None];
    }
    let [first, last] = survey::choose_cpus();
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

fn header(settings: &Settings, against: bool) -> Header {
    let pinned: Vec<usize> = settings.cpus.into_iter().flatten().collect();
    let host = HostFacts::read();
    let options: Vec<String> = settings.choices.iter().map(ToString::to_string).collect();
    Header {
        seed: settings.seed,
        warmup: WARMUP,
        host: facts::host(&host, &pinned),
        clock: facts::clock(),
        plan: json!({
            "options": options,
            "protocol": settings.protocol,
            "size": settings.size,
            "rounds": settings.rounds,
            "count": settings.count,
            "duration_s": settings.duration.as_secs_f64(),
            "flows": settings.flows,
            "timeout_ms": settings.timeout.as_secs_f64() * 1000.0,
            "stamps": settings.stamps,
            "to": settings.to,
            "faults": settings.faults,
            "against_sockperf": against,
            "order": "in turns",
            "client_cpu": settings.cpus[0],
            "responder_cpu": settings.cpus[1],
        }),
        ..Header::new("response")
    }
}

fn summarise(settings: &Settings, outcome: &Outcome, store: &Store) -> Result<Summary, Failure> {
    let mut summary = store.summary().map_err(|error| store_failure(&error))?;
    summary.skipped.extend(outcome.skipped.clone());
    for account in &outcome.accounts {
        let name = account.choice.to_string();
        if let Some(result) = summary.results.iter_mut().find(|result| result.cell.engine == name) {
            account.complete(result);
            result.more.insert("inside_share".to_owned(), json!(published::inside_share(result)));
        }
    }
    summary.more.insert("published".to_owned(), json!(published::comparison(&summary.results)));
    // Also in the midst of the last trial.
    if punctual_machine::signal::interrupted() {
        let trials = usize::try_from(outcome.made).unwrap_or(usize::MAX);
        summary.doubt(doubt::Cause::CutShort { trials });
    }
    let limit_us = u64::try_from(settings.limit.as_micros()).unwrap_or(u64::MAX);
    let response = json!({
        "place": outcome.place,
        "began_ns": outcome.began_ns,
        "protocol": settings.protocol,
        "flows": settings.flows,
        "limit_us": limit_us,
        "stamps": settings.stamps,
        "clocks": if settings.clocks_apart { "two" } else { "as the responder says" },
        "floor": floor(settings),
        "faults": settings.faults.map(|faults| json!({ "asked": faults, "done": outcome.faults })),
    });
    summary.more.insert("response".to_owned(), response);
    Ok(summary)
}

/// The least that the link allows, in words.
fn floor(settings: &Settings) -> Option<String> {
    let to = settings.to?;
    let interface = settings.interface.clone().or_else(|| neighbour::interface_to(to.ip()))?;
    let speed = neighbour::link_speed(&interface)?;
    let floor = neighbour::floor_ns(settings.size, to.is_ipv6(), speed) as f64 / 1000.0;
    Some(format!("The wire alone takes {floor:.1} µs of each round trip: {interface} has {speed} Mb/s."))
}

fn conclude(
    path: &Path,
    summary: &Summary,
    outcome: &Outcome,
    arguments: &ResponseArguments,
    settings: &Settings,
) -> Result<(), Failure> {
    show(path, summary, &arguments.common)?;
    if summary.results.is_empty() {
        let reasons: Vec<String> =
            outcome.skipped.iter().map(|skipped| format!("{}: {}", skipped.what, skipped.reason)).collect();
        return Err(Failure::Machine(format!("nothing could be measured: {}", reasons.join("; "))));
    }
    promises(summary, outcome, settings)
}

/// Whether what must not be lost was lost: without faults nothing, with faults no more than they took.
fn promises(summary: &Summary, outcome: &Outcome, settings: &Settings) -> Result<(), Failure> {
    let broken = |text: &str| Err(Failure::Promise(text.to_owned()));
    if !outcome.accounts.iter().all(Totals::sums) {
        return broken("a trip or a packet is in no class or in two: report it as a bug");
    }
    let Some((_, done)) = settings.faults.zip(outcome.faults) else {
        if summary.kept_promises() {
            return Ok(());
        }
        return broken(
            "a promise did not hold: messages were lost, doubled, out of order or wrong; see the doubts",
        );
    };
    let sum = |of: fn(&Totals) -> u64| outcome.accounts.iter().map(of).sum::<u64>();
    let lost = sum(|account| account.ends.lost + account.ends.unfinished);
    let mismatched = sum(|account| account.ends.mismatched);
    let taken = done.lost + done.spoilt + done.changed + done.refused;
    if lost + mismatched > taken {
        let text = format!("{lost} trips lost and {mismatched} wrong, where the faults took {taken} packets");
        return broken(&text);
    }
    Ok(())
}
