//! The trials of a run, taken in turns over all choices, each in the store before the next.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use indicatif::ProgressBar;
use punctual::{Clock, Ticks};
use punctual_lab_machine::host::steal_ticks;
use punctual_machine::cpu::lock_memory;
use punctual_machine::namespace::thread_id;
use punctual_machine::withheld::Quotas;
use serde_json::json;

use super::client::{self, ClientTrace, TrialPlan};
use super::kept::{by_our_clock, owners, thread};
use super::option::Variant;
use super::settings::{ResponseSettings, share_a_processor};
use super::testbed::{Assignment, Done, EchoRequest, PORT, PacketPath, ResponseTestbed};
use super::totals::Totals;
use super::trips::{Frame, RoundTrips};
use super::{published, recording_cost, shares, sockperf};
use crate::doubt::{Cause, Disturbances, Doubt};
use crate::endpoint::port::{self, Peer, PortPlan, SLEEP_MAX, SLEEP_MIN};
use crate::explain::evidence::EvidenceThread;
use crate::explain::kept::{ClockPair, Kept, ThreadWindows, WINDOWS_MAX};
use crate::explain::loss::Loss;
use crate::explain::of_run::explained_summary;
use crate::explain::recorder::LateRecorder;
use crate::load::echo::{AnswerRules, EchoFacts, open_port};
use crate::load::forwarder::Counts;
use crate::load::watch::{ClientWatch, SLOW};
use crate::run::{Experiment, RunError, RunPlan, Turns, cut_short, in_a_thread, network};
use crate::sample::{CellId, Load, Samples};
use crate::store::{Store, StoreError};
use crate::summary::{Skipped, Summary};

/// Results of a run besides the store.
#[derive(Debug)]
pub struct ResponseOutcome {
    /// Per choice.
    pub accounts: Vec<Totals>,
    /// Skipped measurements, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Trials made.
    pub made: usize,
    /// Where.
    pub place: String,
    /// When it began, nanoseconds of `CLOCK_MONOTONIC`: instants of the run count from there.
    pub began_ns: u64,
    /// Counts of the faults on the way, if any were intended.
    pub faults: Option<Counts>,
}

/// One trial made.
struct MadeTrips {
    trips: RoundTrips,
    trace: ClientTrace,
    facts: Option<EchoFacts>,
    /// Times that a CPU quota ran out.
    throttled: u64,
    kept: Kept,
    control: (u64, u64, u64),
    remarks: Vec<String>,
    steal_ms: u64,
    /// Why the responder said nothing of its end: it is gone, and what it did not answer is lost.
    gone: Option<String>,
}

struct ResponseSession<'a> {
    settings: &'a ResponseSettings,
    testbed: Option<ResponseTestbed>,
    store: &'a mut Store,
    start: Ticks,
    accounts: Vec<Totals>,
    trials: u32,
}

impl ResponseSession<'_> {
    fn not_a_segment(&self) -> Option<Skipped> {
        let Some(ResponseTestbed { place: PacketPath::Loopback { reason }, .. }) = &self.testbed else {
            return None;
        };
        let what = "the segment of two network namespaces (measured over loopback instead)".to_owned();
        Some(Skipped { what, reason: reason.clone() })
    }

    fn place(&self) -> String {
        match (&self.testbed, self.settings.asked.to) {
            (Some(ResponseTestbed { place: PacketPath::Segment, .. }), _) => {
                "two network namespaces of this host, joined by a veth pair".to_owned()
            }
            (Some(_), _) => "the loopback interface of this host".to_owned(),
            (None, Some(to)) => format!("this host and {to}"),
            (None, None) => String::new(),
        }
    }

    fn against_sockperf(&mut self, share: Duration, round: u32) -> Result<(), RunError> {
        let Some(testbed) = &mut self.testbed else {
            return Err("--against needs a responder of our own: leave out --to".to_owned().into());
        };
        let samples = sockperf::measure(testbed, self.settings, share)?;
        let cell = self.settings.cell_of(sockperf::NAME);
        Ok(self.store.append(&cell, round, &samples).map(drop)?)
    }

    fn one_trial(&mut self, place: usize, round: u32, share: Duration) -> Result<(), RunError> {
        let choice = self.settings.choices[place];
        let made = self.make(choice, share)?;
        let clock = Clock::get();
        let frame = Frame {
            start: self.start,
            load: self.settings.load,
            domain: if self.settings.asked.clocks_apart { 0 } else { clock.domain() },
        };
        let mut samples = made.trips.with_stages(clock, &frame);
        note_doubts(&mut samples, &self.settings.cell(choice), &made);
        if let Some(facts) = &made.facts {
            samples.facts.cpu_ns = facts.cpu_ns;
        }
        let account = &mut self.accounts[place];
        account.add(&made.trips, &samples, &made.trace, made.facts.as_ref(), self.settings.asked.limit);
        account.note_control(made.control, &made.remarks);
        let cell = self.settings.cell(choice);
        let path = self.store.append(&cell, round, &samples)?;
        let stages = owners(&samples);
        let evidence = made.kept.evidence(&samples, self.settings.load, stages, self.start);
        if let Some(loss) = Loss::of(&samples, Some(&evidence)) {
            self.accounts[place].note_loss(&loss);
        }
        Ok(self.store.append_evidence(&path, &evidence)?)
    }

    /// Both ends for one trial.
    fn make(&mut self, choice: Variant, share: Duration) -> Result<MadeTrips, String> {
        self.trials += 1;
        let settings = self.settings;
        if choice.way.spins() && self.testbed.is_some() && share_a_processor(settings.cpus) {
            return Err("two processors are needed to poll, and both ends share one: see taskset".to_owned());
        }
        let (target, local) = self.responder(choice)?;
        let run = (settings.asked.common.seed as u32).wrapping_mul(0x9e37_79b9)
            ^ punctual_machine::process::random() as u32;
        let count = settings.count.div_ceil(settings.asked.rounds as usize);
        let plan = TrialPlan { settings, choice, duration: share, count, run };
        let port = self.port_plan(choice, local, Some(target), 0);
        let steal = steal_ticks();
        let recorder = settings.asked.traces(choice).then(LateRecorder::start);
        if settings.asked.lock_memory {
            lock_memory().map_err(|error| error.to_string())?;
        }
        let made = trial(&port, target, &plan, recorder);
        // The client's observations are kept, regardless of the responder's end.
        let done = self.stop_responder();
        let mut made = made?;
        let windows = by_our_clock(&made.trace.responder, &made.trips);
        let mut there = EvidenceThread { windows, ..thread(settings, choice, 1, &ThreadWindows::default()) };
        there.thread = None;
        match done {
            Ok(Some(Done { facts, remark, thread })) => {
                (there.thread, there.dropped, there.incomplete) = (thread, facts.dropped, facts.incomplete);
                made.facts = Some(facts);
                made.remarks.extend(remark);
            }
            Ok(None) => (),
            Err(reason) => made.gone = Some(reason),
        }
        made.kept.threads.push(there);
        // Kernel ticks of user space are hundredths of a second.
        made.steal_ms =
            10 * steal_ticks().zip(steal).map_or(0, |(after, before)| after.saturating_sub(before));
        Ok(made)
    }

    /// Starts the responder's thread; where to send, and from where.
    fn responder(&mut self, choice: Variant) -> Result<(Peer, SocketAddr), String> {
        let settings = self.settings;
        if let Some(to) = settings.asked.to {
            let any: IpAddr =
                if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let mac = if choice.way.is_raw() { network::find(to.ip())? } else { [0; 6] };
            return Ok((Peer { address: to, mac }, SocketAddr::new(any, 0)));
        }
        let Some(testbed) = &self.testbed else { return Err("there is no responder".to_owned()) };
        let [here, there] = testbed.addresses();
        // A port of its own for each trial: packets that an earlier one left on their way find nobody. Both ends share an address on
        // loopback, and it is others' too: there the kernel knows which ports are free.
        let port_number = match testbed.place {
            PacketPath::Segment => PORT + (self.trials as u16 % 100) * port::FLOWS_MAX as u16,
            PacketPath::Loopback { .. } => 0,
        };
        let assignment = Assignment {
            port: self.port_plan(choice, SocketAddr::new(there, port_number), None, 1),
            choice: choice.at_responder(),
            cpu: settings.cpus[1],
            rules: AnswerRules {
                clock_apart: settings.asked.clocks_apart,
                ends_when_told: true,
                delay: settings.asked.delay,
                keeps_windows: choice.keeps_windows(),
                ..AnswerRules::of(settings.asked.protocol, choice.way)
            },
            mishaps: settings.mishaps.clone(),
            lock_memory: settings.asked.lock_memory,
        };
        let testbed = self.testbed.as_mut().ok_or("there is no responder")?;
        let peer: Peer = testbed.tell(&EchoRequest::Answer(Box::new(assignment)))?;
        let address = SocketAddr::new(there, peer.address.port());
        Ok((Peer { address, ..peer }, SocketAddr::new(here, port_number)))
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
            // A responder answers every client that asks; a client's flows have ports of their own, at both ends.
            remote,
            // The responder hears all flows at one port; the client sends each from one of its own.
            flows: if side == 0 { settings.asked.flows } else { 1 },
            size: settings.asked.size,
            stamps: if side == 0 {
                settings.asked.stamps
            } else {
                settings.asked.protocol.responder_stamps(settings.asked.stamps)
            },
            interface,
            dscp: settings.asked.dscp,
            priority: settings.asked.priority,
            busy_poll_us: settings.asked.busy_poll,
            receive_buffer: settings.asked.receive_buffer.unwrap_or(port::RECEIVE_BUFFER_SIZE),
            wakes_for_time: side == 0 && settings.load == Load::Open,
            sleep_max: if side == 0 { settings.asked.timeout.clamp(SLEEP_MIN, SLEEP_MAX) } else { SLEEP_MAX },
        }
    }

    fn stop_responder(&mut self) -> Result<Option<Done>, String> {
        self.testbed.as_mut().map(|testbed| testbed.tell(&EchoRequest::Stop)).transpose()
    }
}

/// The client's part, in a thread of its own: pinned, and as urgent as chosen.
fn trial(
    port_plan: &PortPlan,
    target: Peer,
    plan: &TrialPlan<'_>,
    recorder: Option<Result<LateRecorder, String>>,
) -> Result<MadeTrips, String> {
    let TrialPlan { settings, choice, .. } = *plan;
    let cpu = settings.cpus[0];
    in_a_thread("client", move || {
        let at_client = choice.at_client();
        let mut trips = RoundTrips::new(plan.capacity(), settings.asked.flows);
        // Made before this thread becomes urgent.
        let control = at_client.control(cpu);
        let mut port = open_port(cpu, at_client.urgency, port_plan)?;
        let trace = ClientTrace::with_room();
        let mut watch = choice.keeps_windows().then(|| {
            let watch = ClientWatch::with(WINDOWS_MAX, recorder).beside(control);
            watch.slow_after(SLOW.min(settings.asked.limit))
        });
        let (before, quotas) = (ClockPair::now(), Quotas::of_this_thread());
        let throttled = quotas.now().times;
        let trace = client::run(&mut *port, target, plan, (&mut trips, trace), watch.as_mut());
        let throttled = quotas.now().times.saturating_sub(throttled);
        let clocks = [before, ClockPair::now()];
        let control = watch.as_ref().map_or((0, 0, 0), ClientWatch::control_totals);
        let nothing = || (ThreadWindows { thread: thread_id(), ..ThreadWindows::default() }, None);
        let (windows, recorder) = watch.map_or_else(nothing, ClientWatch::end);
        let here = thread(settings, choice, 0, &windows);
        let here = EvidenceThread { dropped: trace.dropped, incomplete: trace.incomplete, ..here };
        let kept = Kept { threads: vec![here], recorder, clocks };
        let remarks = port.remark().into_iter().collect();
        Ok(MadeTrips {
            trips,
            trace,
            facts: None,
            throttled,
            kept,
            control,
            remarks,
            steal_ms: 0,
            gone: None,
        })
    })?
}

fn note_doubts(samples: &mut Samples, cell: &CellId, made: &MadeTrips) {
    let windows = &made.kept.threads[0].windows;
    let (responder, client) = (made.facts.unwrap_or_default(), made.trace.usage);
    let disturbances = Disturbances {
        migrations: windows.iter().map(|window| u64::from(window.evidence.migrations)).sum(),
        faults: client.faults_minor + client.faults_major + responder.faults,
        // Both may be of one group.
        throttled: made.throttled.max(responder.throttled),
        rescued: 0,
        steal_ms: made.steal_ms,
    };
    let subject = cell.to_string();
    let mut causes = disturbances.causes(&subject, samples.len() as u64);
    causes.extend(made.gone.clone().map(|reason| Cause::FarEndGone { subject, reason }));
    samples.facts.doubts.extend(causes.into_iter().map(Doubt::from));
}

/// Round trips of each trial that count as warm-up, at most: it opens both ports anew, in new threads.
const WARMUP: u64 = 20;

/// Of a short trial a part of its trips is warm-up, one in so many.
const WARMUP_PART: u64 = 5;

impl ResponseSettings {
    /// Time that a trial may take.
    fn share(&self) -> Duration {
        let kinds = self.choices.len() + usize::from(self.asked.against.is_some());
        self.duration / (self.asked.rounds * kinds.max(1) as u32)
    }

    /// Round trips of each trial that count as warm-up.
    fn warmup(&self) -> u64 {
        warmup(self.count.div_ceil(self.asked.rounds as usize) as u64, self.share(), self.gap)
    }
}

/// Of a trial of so many trips at most, which lasts so long, one each gap.
fn warmup(count: u64, lasts: Duration, gap: Duration) -> u64 {
    let in_time = u64::try_from(lasts.as_nanos() / gap.as_nanos().max(1)).unwrap_or(u64::MAX);
    WARMUP.min(count.min(in_time) / WARMUP_PART)
}

impl Experiment for ResponseSettings {
    type Made = ResponseOutcome;

    const BROKEN: &'static str =
        "a promise did not hold: messages were lost, doubled, out of order or wrong; see the doubts";

    fn plan(&self) -> RunPlan {
        let options: Vec<String> = self.choices.iter().map(ToString::to_string).collect();
        let described = json!({
            "options": options,
            "protocol": self.asked.protocol,
            "size": self.asked.size,
            "load": self.load,
            "gap_ns": u64::try_from(self.gap.as_nanos()).unwrap_or(u64::MAX),
            "rounds": self.asked.rounds,
            "count": self.count,
            "duration_s": self.duration.as_secs_f64(),
            "flows": self.asked.flows,
            "timeout_ms": self.asked.timeout.as_secs_f64() * 1000.0,
            "limit_us": self.asked.limit.as_secs_f64() * 1e6,
            "stamps": self.asked.stamps,
            "to": self.asked.to,
            "interface": self.asked.interface,
            "ipv6": self.asked.ipv6,
            "dscp": self.asked.dscp,
            "priority": self.asked.priority,
            "busy_poll_us": self.asked.busy_poll,
            "faults": self.faults,
            "mishaps": self.mishaps.len(),
            "delay": self.asked.delay.map(|delay| delay.to_string()),
            "clocks_apart": self.asked.clocks_apart,
            "against_sockperf": self.asked.against.is_some(),
            "order": "in turns",
            "client_cpu": self.cpus[0],
            "responder_cpu": self.cpus[1],
            "lock_memory": self.asked.lock_memory,
            "receive_buffer": self.asked.receive_buffer,
        });
        let cpus = self.cpus.into_iter().flatten().collect();
        RunPlan { name: "response", warmup: self.warmup(), cpus, described }
    }

    fn schedulers(&self) -> Vec<String> {
        let mut names: Vec<String> = self.asked.sched.iter().map(ToString::to_string).collect();
        names.dedup();
        names
    }

    fn is_traced(&self) -> bool {
        self.choices.iter().any(|&choice| self.asked.traces(choice))
    }

    fn run(&self, store: &mut Store, bar: &ProgressBar) -> Result<ResponseOutcome, RunError> {
        let testbed = match self.asked.to {
            Some(_) => None,
            None => Some(ResponseTestbed::start(self.asked.ipv6, self.faults)?),
        };
        let accounts = self.choices.iter().map(|&choice| Totals::new(choice)).collect();
        let began_ns = punctual_machine::clock::monotonic_ns();
        let start = Clock::get().now();
        let mut session = ResponseSession { settings: self, testbed, store, start, accounts, trials: 0 };
        let mut skipped: Vec<Skipped> = Vec::new();
        let mut kinds: Vec<Option<usize>> = (0..self.choices.len()).map(Some).collect();
        kinds.extend(self.asked.against.as_ref().map(|_| None));
        let share = self.share();
        let name = |&kind: &Option<usize>| {
            kind.map_or_else(|| sockperf::NAME.to_owned(), |place| self.choices[place].to_string())
        };
        let turns = Turns::new(self.asked.rounds, kinds.len(), bar);
        let made = turns.all(&kinds, name, &mut skipped, |&kind, round, _| {
            let made = match kind {
                Some(place) => session.one_trial(place, round, share),
                None => session.against_sockperf(share, round),
            };
            made.map(|()| true)
        })?;
        let place = session.place();
        let faults = session.testbed.as_mut().and_then(ResponseTestbed::end_faults);
        // Last: it keeps no trial from being made.
        skipped.extend(session.not_a_segment());
        Ok(ResponseOutcome { accounts: session.accounts, skipped, made, place, began_ns, faults })
    }

    fn summarise(&self, outcome: &ResponseOutcome, store: &Store) -> Result<Summary, StoreError> {
        let (mut summary, trials) = explained_summary(store, |_| ())?;
        summary.skipped.extend(outcome.skipped.clone());
        for account in &outcome.accounts {
            let name = account.choice.to_string();
            if let Some(result) = summary.results.iter_mut().find(|result| result.cell.engine == name) {
                account.complete(result);
                result.more.insert("inside_share".to_owned(), json!(published::inside_share(result)));
            }
        }
        summary.more.insert("published".to_owned(), json!(published::comparison(&summary.results)));
        for result in &mut summary.results {
            let of_cell = trials.iter().filter(|trial| trial.cell == result.cell);
            result.more.insert("late".to_owned(), json!(shares::shares(of_cell)));
        }
        let costs = recording_cost::costs(self, store.run()?)?;
        if !costs.is_empty() {
            summary.more.insert("recording_cost".to_owned(), json!(costs));
        }
        cut_short(&mut summary, outcome.made);
        let limit_us = u64::try_from(self.asked.limit.as_micros()).unwrap_or(u64::MAX);
        let response = json!({
            "place": outcome.place,
            "began_ns": outcome.began_ns,
            "protocol": self.asked.protocol,
            "flows": self.asked.flows,
            "limit_us": limit_us,
            "stamps": self.asked.stamps,
            "clocks": if self.asked.clocks_apart { "two" } else { "as the responder says" },
            "floor": floor(self),
            "faults": self.faults.map(|faults| json!({ "asked": faults, "done": outcome.faults })),
        });
        summary.more.insert("response".to_owned(), response);
        Ok(summary)
    }

    /// A responder of our own that answers nothing breaks a promise; at an address there may be none.
    fn in_vain(&self, _summary: &Summary, outcome: &ResponseOutcome) -> Option<String> {
        let to = self.asked.to?;
        let sum = |of: fn(&Totals) -> u64| outcome.accounts.iter().map(of).sum::<u64>();
        let heard = sum(|account| account.ends.answered + account.ends.mismatched);
        let is_silent = heard == 0 && sum(|account| account.ends.lost) > 0;
        is_silent.then(|| {
            format!(
                "nobody answers at {to}: run punctual echo there, with the same --protocol and --size; check firewalls"
            )
        })
    }

    /// Without faults nothing of ours is lost, with faults no more than they took.
    fn promise(&self, summary: &Summary, outcome: &ResponseOutcome) -> Result<(), String> {
        if !outcome.accounts.iter().all(Totals::sums) {
            return Err("a trip or a packet is in no class or in two: report it as a bug".to_owned());
        }
        let Some(done) = outcome.faults else {
            let has_kept = summary.kept_promises_of(|cell| cell.engine != sockperf::NAME);
            return if has_kept { Ok(()) } else { Err(Self::BROKEN.to_owned()) };
        };
        let sum = |of: fn(&Totals) -> u64| outcome.accounts.iter().map(of).sum::<u64>();
        let lost = sum(|account| account.ends.lost);
        let mismatched = sum(|account| account.ends.mismatched);
        let taken = done.lost + done.spoilt + done.changed + done.refused;
        if lost + mismatched > taken {
            return Err(format!(
                "{lost} trips lost and {mismatched} wrong, where the faults took {taken} packets"
            ));
        }
        Ok(())
    }
}

/// The least that the link allows, in words.
fn floor(settings: &ResponseSettings) -> Option<String> {
    let to = settings.asked.to?;
    let interface = settings.interface.clone().or_else(|| network::interface_to(to.ip()))?;
    let speed = network::link_speed(&interface)?;
    let floor = network::floor_ns(settings.asked.size, to.is_ipv6(), speed) as f64 / 1000.0;
    Some(format!("The wire alone takes {floor:.1} µs of each round trip: {interface} has {speed} Mb/s."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a short trial has trips that count.
    #[test]
    fn warm_up_is_a_part_of_a_trial() {
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis(1));
        assert_eq!(warmup(10_000, second, Duration::ZERO), 20);
        assert_eq!(warmup(20, second, Duration::ZERO), 4);
        assert_eq!(warmup(10_000, second, 50 * ms), 4);
        assert_eq!(warmup(10_000, second, 400 * ms), 0);
    }
}
