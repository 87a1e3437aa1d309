//! The trials of a run, taken in turns over all choices, each in the store before the next.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_machine::host::steal_ticks;
use punctual_machine::signal::interrupted;

use super::client::{self, ClientTrace, TrialPlan};
use super::delay::Delay;
use super::explain::{Circumstances, Finding, explain, rule_for};
use super::forward::Faults;
use super::option::{Variant, Way};
use super::port::{self, Peer, PortPlan, SLEEP_MAX, SLEEP_MIN, Stamps};
use super::protocol::Protocol;
use super::responder::ResponderFacts;
use super::sockperf;
use super::testbed::{Assignment, Family, PORT, Place, Request, Response, Testbed, open_port};
use super::totals::Totals;
use super::trips::{Frame, RoundTrips};
use crate::doubt::{Cause as DoubtCause, page_faults};
use crate::sample::{CellId, Load, Samples};
use crate::scheduling::Control;
use crate::store::{Store, StoreError};
use crate::summary::Skipped;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Side by side.
    pub choices: Vec<Variant>,
    /// Which packets.
    pub protocol: Protocol,
    /// Packet, bytes.
    pub size: usize,
    /// When the next leaves.
    pub load: Load,
    /// Idle gap, or period.
    pub gap: Duration,
    /// Round trips of each choice, over all rounds.
    pub count: usize,
    /// Longest that all trials together take.
    pub duration: Duration,
    /// Each choice is measured so often, in turn with the others.
    pub rounds: u32,
    /// Flows, in turn.
    pub flows: usize,
    /// Which IP, on a segment of our own.
    pub family: Family,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// Slower answers are counted.
    pub limit: Duration,
    /// The kernel's stamps.
    pub stamps: Stamps,
    /// A foreign responder.
    pub to: Option<SocketAddr>,
    /// The interface to it, for raw ways.
    pub interface: Option<String>,
    /// CPUs of client and responder.
    pub cpus: [Option<usize>; 2],
    /// Code point and priority.
    pub dscp: u8,
    /// Of what is sent.
    pub priority: u8,
    /// How long the kernel polls the device, µs.
    pub busy_poll_us: u32,
    /// Faults on the way.
    pub faults: Option<Faults>,
    /// A delay of every trip, made on purpose.
    pub delay: Option<Delay>,
    /// Both ends say that their clocks differ.
    pub clocks_apart: bool,
    /// Repeats whatever is random.
    pub seed: u64,
}

impl Settings {
    /// The cell of one choice.
    #[must_use]
    pub fn cell(&self, choice: Variant) -> CellId {
        let gap_us = u64::try_from(self.gap.as_micros()).unwrap_or(u64::MAX);
        let name = choice.to_string();
        CellId { load: self.load, gap_us, size: self.size, ..CellId::new(&name, "round_trip") }
    }
}

/// Why a run ended early.
#[derive(Debug)]
pub enum RunError {
    /// The store could not be written.
    Store(StoreError),
    /// The machine cannot: what is missing and what to do.
    Machine(String),
}

/// What a run brought beside the store.
#[derive(Debug)]
pub struct Outcome {
    /// Per choice.
    pub accounts: Vec<Totals>,
    /// What was not measured, and why.
    pub skipped: Vec<Skipped>,
    /// Trials made.
    pub made: u64,
    /// Where.
    pub place: String,
    /// When it began, nanoseconds of `CLOCK_MONOTONIC`: instants of the run count from there.
    pub began_ns: u64,
    /// What happened on the way, if anything was meant to.
    pub faults: Option<super::forward::Counts>,
}

/// One trial made.
struct Made {
    trips: RoundTrips,
    trace: ClientTrace,
    facts: Option<ResponderFacts>,
    control: (u64, u64, u64),
    remarks: Vec<String>,
    steal_ms: u64,
    start: Ticks,
}

struct Session<'a> {
    settings: &'a Settings,
    testbed: Option<Testbed>,
    store: &'a mut Store,
    start: Ticks,
    accounts: Vec<Totals>,
    skipped: Vec<Skipped>,
    failed: HashSet<usize>,
    trials: u32,
    /// sockperf's trips so far.
    sockperf: u64,
}

/// Makes all trials, from a thread that may leave for a network namespace of its own. Each trial is in the store,
/// also when it is cut short.
///
/// # Errors
/// When the store cannot be written, or there is no responder.
pub fn run(
    settings: &Settings,
    against: bool,
    store: &mut Store,
    bar: &ProgressBar,
) -> Result<Outcome, RunError> {
    let testbed = match settings.to {
        Some(_) => None,
        None => Some(Testbed::start(settings.family, settings.faults.as_ref()).map_err(RunError::Machine)?),
    };
    let accounts = settings.choices.iter().map(|&choice| Totals::new(choice)).collect();
    let began_ns = punctual_machine::clock::monotonic_ns();
    let mut session = Session {
        settings,
        testbed,
        store,
        start: Clock::get().now(),
        accounts,
        skipped: Vec::new(),
        failed: HashSet::new(),
        trials: 0,
        sockperf: 0,
    };
    session.note_place();
    let per_round = settings.choices.len() + usize::from(against);
    bar.set_length(per_round as u64 * u64::from(settings.rounds));
    let made = session.all_rounds(against, per_round, bar)?;
    let place = session.place();
    let faults = session.testbed.as_ref().and_then(Testbed::faults);
    let Session { accounts, skipped, .. } = session;
    Ok(Outcome { accounts, skipped, made, place, began_ns, faults })
}

impl Session<'_> {
    fn note_place(&mut self) {
        if let Some(Testbed { place: Place::Loopback { reason }, .. }) = &self.testbed {
            let what = "the segment of two network namespaces (measured over loopback instead)".to_owned();
            self.skipped.push(Skipped { what, reason: reason.clone() });
        }
    }

    fn place(&self) -> String {
        match (&self.testbed, self.settings.to) {
            (Some(Testbed { place: Place::Segment, .. }), _) => {
                "two network namespaces of this host, joined by a veth pair".to_owned()
            }
            (Some(_), _) => "the loopback interface of this host".to_owned(),
            (None, Some(to)) => format!("this host and {to}"),
            (None, None) => String::new(),
        }
    }

    fn all_rounds(&mut self, against: bool, per_round: usize, bar: &ProgressBar) -> Result<u64, RunError> {
        let mut made = 0;
        let share = self.settings.duration / (self.settings.rounds * per_round.max(1) as u32);
        for round in 0..self.settings.rounds {
            for place in 0..self.settings.choices.len() {
                if interrupted() {
                    return Ok(made);
                }
                bar.set_message(self.settings.choices[place].to_string());
                bar.inc(1);
                if self.failed.contains(&place) {
                    continue;
                }
                match self.one_trial(place, round, share) {
                    Ok(()) => made += 1,
                    Err(RunError::Machine(reason)) => {
                        let what = self.settings.choices[place].to_string();
                        self.skipped.push(Skipped { what, reason });
                        self.failed.insert(place);
                    }
                    Err(store) => return Err(store),
                }
            }
            if against && !interrupted() {
                bar.set_message("sockperf");
                bar.inc(1);
                self.against_sockperf(share, round)?;
                made += 1;
            }
        }
        Ok(made)
    }

    fn against_sockperf(&mut self, share: Duration, round: u32) -> Result<(), RunError> {
        let Some(testbed) = &mut self.testbed else {
            return Err(RunError::Machine(
                "--against needs a responder of our own: leave out --to".to_owned(),
            ));
        };
        let mut samples = sockperf::measure(testbed, self.settings, share).map_err(RunError::Machine)?;
        samples.index.iter_mut().for_each(|number| *number += self.sockperf);
        self.sockperf = samples.index.last().map_or(self.sockperf, |last| last + 1);
        let cell = sockperf::cell(self.settings);
        self.store.append(&cell, round, &samples).map(drop).map_err(RunError::Store)
    }

    fn one_trial(&mut self, place: usize, round: u32, share: Duration) -> Result<(), RunError> {
        let choice = self.settings.choices[place];
        let made = self.make(choice, share).map_err(RunError::Machine)?;
        let clock = Clock::get();
        let account = &mut self.accounts[place];
        let frame = Frame {
            start: self.start,
            first_index: account.ends.sent,
            open_load: self.settings.load == Load::Open,
            domain: if self.settings.clocks_apart { 0 } else { clock.domain() },
        };
        let mut samples = made.trips.samples(clock, &frame);
        let findings = find(&made, &samples, choice, self.settings.load);
        note_doubts(&mut samples, &self.settings.cell(choice), &made);
        if let Some(facts) = &made.facts {
            samples.facts.cpu_ns = facts.cpu_ns;
        }
        account.add(&made.trips, &samples, &made.trace, made.facts.as_ref(), self.settings.limit);
        account.note_control(made.control, &made.remarks);
        account.findings.extend(findings);
        let cell = self.settings.cell(choice);
        self.store.append(&cell, round, &samples).map(drop).map_err(RunError::Store)
    }

    /// Both ends for one trial.
    fn make(&mut self, choice: Variant, share: Duration) -> Result<Made, String> {
        self.trials += 1;
        let settings = self.settings;
        if choice.way.spins() && self.testbed.is_some() && settings.cpus[0] == settings.cpus[1] {
            return Err("two processors are needed to poll, and both ends share one: see taskset".to_owned());
        }
        let (target, local) = self.responder(choice)?;
        let run =
            (settings.seed as u32).wrapping_mul(0x9e37_79b9) ^ punctual_machine::process::random() as u32;
        let plan = TrialPlan {
            protocol: settings.protocol,
            load: settings.load,
            gap: settings.gap,
            size: settings.size,
            duration: share,
            count: settings.count.div_ceil(settings.rounds as usize),
            flows: settings.flows,
            timeout: settings.timeout,
            run,
            slow: SLOW.min(settings.limit),
            delay: settings.delay,
            spins: choice.way.spins(),
        };
        let port = self.port_plan(choice, local, Some(target), 0);
        let steal = steal_ticks();
        let made = trial(&port, target, &plan, choice.at_client(), settings.cpus[0]);
        let (facts, remark) = self.stop_responder()?;
        let mut made = made?;
        made.facts = facts;
        made.remarks.extend(remark);
        // Kernel ticks of user space are hundredths of a second.
        made.steal_ms =
            10 * steal_ticks().zip(steal).map_or(0, |(after, before)| after.saturating_sub(before));
        Ok(made)
    }

    /// Starts the responder's thread; where to send, and from where.
    fn responder(&mut self, choice: Variant) -> Result<(Peer, SocketAddr), String> {
        let settings = self.settings;
        if let Some(to) = settings.to {
            let any: IpAddr =
                if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let mac = if choice.way.is_raw() { super::neighbour::find(to.ip())? } else { [0; 6] };
            return Ok((Peer { address: to, mac }, SocketAddr::new(any, 0)));
        }
        let Some(testbed) = &self.testbed else { return Err("there is no responder".to_owned()) };
        let [here, there] = testbed.addresses();
        // A port of its own for each trial: what an earlier one left on its way finds nobody. Both ends share an address on
        // loopback, and it is others' too: there the kernel knows which ports are free.
        let port_number = match testbed.place {
            Place::Segment => PORT + (self.trials as u16 % 100) * port::FLOWS_MAX as u16,
            Place::Loopback { .. } => 0,
        };
        let assignment = Assignment {
            port: self.port_plan(choice, SocketAddr::new(there, port_number), None, 1),
            choice: choice.at_responder(),
            cpu: settings.cpus[1],
            protocol: settings.protocol,
            clock_apart: settings.clocks_apart,
            delay: settings.delay,
        };
        let testbed = self.testbed.as_mut().ok_or("there is no responder")?;
        match testbed.tell(&Request::Answer(Box::new(assignment)))? {
            Response::Ready { address, mac } => {
                let peer = Peer { address: SocketAddr::new(there, address.port()), mac };
                Ok((peer, SocketAddr::new(here, port_number)))
            }
            other => Err(format!("the responder said {other:?} where it was to be ready")),
        }
    }

    fn port_plan(&self, choice: Variant, local: SocketAddr, remote: Option<Peer>, side: usize) -> PortPlan {
        let settings = self.settings;
        let interface = match &self.testbed {
            Some(testbed) => Some(testbed.interface(side).to_owned()),
            None => settings.interface.clone(),
        };
        PortPlan {
            way: choice.way,
            local,
            // A responder answers whoever asks; a client's flows have ports of their own, at both ends.
            remote: remote.map(|peer| peer.address).filter(|_| !choice.way.is_raw()),
            raw_remote: remote.map(|peer| peer.address).filter(|_| choice.way.is_raw()),
            remote_mac: remote.map(|peer| peer.mac),
            // The responder hears all flows at one port; the client sends each from one of its own.
            flows: if side == 0 { settings.flows } else { 1 },
            size: settings.size,
            stamps: if side == 0 {
                settings.stamps
            } else {
                settings.protocol.responder_stamps(settings.stamps)
            },
            interface,
            dscp: settings.dscp,
            priority: settings.priority,
            busy_poll_us: settings.busy_poll_us,
            wakes_for_time: side == 0 && settings.load == Load::Open,
            sleep_max: if side == 0 { settings.timeout.clamp(SLEEP_MIN, SLEEP_MAX) } else { SLEEP_MAX },
        }
    }

    fn stop_responder(&mut self) -> Result<(Option<ResponderFacts>, Option<String>), String> {
        let Some(testbed) = &mut self.testbed else { return Ok((None, None)) };
        match testbed.tell(&Request::Stop)? {
            Response::Done { facts, remark } => Ok((Some(facts), remark)),
            other => Err(format!("the responder said {other:?} where the trial was over")),
        }
    }
}

/// Client windows are closed at once after a trip slower than this.
const SLOW: Duration = Duration::from_micros(400);

/// The client's part, in a thread of its own: pinned, and as urgent as chosen.
fn trial(
    port_plan: &PortPlan,
    target: Peer,
    plan: &TrialPlan,
    choice: Variant,
    cpu: Option<usize>,
) -> Result<Made, String> {
    std::thread::scope(|scope| {
        let client = std::thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, || {
            let clock = Clock::get();
            let mut trips = RoundTrips::new(plan.capacity(), plan.flows, clock.ticks(plan.timeout));
            // Made before this thread becomes urgent.
            let control = Control::start(cpu, choice.urgency);
            let mut port = open_port(cpu, choice, port_plan)?;
            let start = clock.now();
            let trace = client::run(&mut *port, target, plan, &control, &mut trips);
            let remarks = port.remark().into_iter().collect();
            let control = control.totals();
            Ok(Made { trips, trace, facts: None, control, remarks, steal_ms: 0, start })
        });
        let client = client.map_err(|error| format!("cannot start a thread: {error}"))?;
        client.join().map_err(|_| "the client's thread failed".to_owned())?
    })
}

fn find(made: &Made, samples: &Samples, choice: Variant, load: Load) -> Vec<Finding> {
    let urgency = [choice.at_client().urgency, choice.at_responder().urgency];
    let given = Circumstances { urgency, load };
    explain(&made.trips, samples, &made.trace, rule_for(samples), &given)
}

fn note_doubts(samples: &mut Samples, cell: &CellId, made: &Made) {
    let messages = samples.len() as u64;
    let mut doubt = |cause: DoubtCause| samples.facts.doubts.push(cause.into());
    let migrations: u64 = made.trace.client.iter().map(|w| u64::from(w.evidence.migrations)).sum();
    if migrations > 0 {
        doubt(DoubtCause::Migrated { subject: cell.to_string(), times: migrations });
    }
    let responder = made.facts.unwrap_or_default();
    let client = made.trace.usage;
    let faults = client.faults_minor + client.faults_major + responder.faults;
    page_faults(&cell.to_string(), faults, messages).into_iter().for_each(&mut doubt);
    // Both may be of one group.
    let throttled = made.trace.throttled.max(responder.throttled);
    if throttled > 0 {
        doubt(DoubtCause::Throttled { subject: cell.to_string(), times: throttled });
    }
    if made.steal_ms > 0 {
        doubt(DoubtCause::Steal { subject: cell.to_string(), ms: made.steal_ms });
    }
    debug_assert!(made.start.0 > 0, "a trial begins after the clock");
}

impl TrialPlan {
    /// Room for all trips of a trial, however fast the way: none takes less than a microsecond there and back.
    fn capacity(&self) -> usize {
        let fastest = self.gap.max(Duration::from_micros(1));
        let trips = self.duration.as_nanos() / fastest.as_nanos() + 16;
        self.count.min(usize::try_from(trips).unwrap_or(usize::MAX))
    }
}

/// Ways that need an interface of Ethernet.
#[must_use]
pub fn needs_interface(choices: &[Variant]) -> Option<Way> {
    choices.iter().map(|choice| choice.way).find(|way| way.is_raw())
}
