//! One place with both its ends: the client in the calling thread, the responder in another thread, process or namespace.

use std::time::Duration;

use punctual_lab_machine::host::steal_ticks;
use punctual_machine::async_io::signals_delivered;
use punctual_machine::cpu::pin_to;
use punctual_machine::namespace::bring_up;
use serde::{Deserialize, Serialize};

use super::client::{self, ClientFacts, Trial, Warmup};
use super::clocks::Clocks;
use super::ping::PingDetail;
use super::recording::Recording;
use super::responder::{ResponderFacts, respond};
use super::watch::ClientWatch;
use crate::doubt::{Cause, Disturbances, Doubt};
use crate::endpoint::{Addresses, EndpointPlan, Ends};
use crate::explain::kept::{ClockPair, Kept, ThreadWindows};
use crate::run::{INTERFACES, Prepare, Requests, ThreadOf, Worker, join_by_veth, leave};
use crate::sample::{Facts, Load};
use punctual_machine::withheld::Quotas;

/// Where both ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In one process.
    Process,
    /// In two processes of this host.
    Host,
    /// In two network namespaces joined by a veth pair.
    Segment,
}

impl Place {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Process => "in one process",
            Self::Host => "between processes of this host",
            Self::Segment => "on an Ethernet segment",
        }
    }
}

/// The responder's report on a trial.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ResponderEnd {
    /// Its statistics.
    pub facts: ResponderFacts,
    /// The same in windows of time, if the plan wanted them.
    pub windows: Option<ThreadWindows>,
    /// Wake-ups that its node lost, and the clock made up for.
    rescued: u64,
    /// Interruptions by SIGIO.
    signals: u64,
}

/// The responder: answers trial after trial until there are no more.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let Some(()) = requests.prepare() else { return Ok(()) };
    let Some(addresses) = requests.recv() else { return Ok(()) };
    let mut ends = Ends::new(addresses, 1);
    while let Some(plan) = requests.recv::<EndpointPlan>() {
        // On a segment the interface was put here by now. Up twice is up.
        let _seen_when_opened = bring_up(INTERFACES[1]);
        let mut endpoint = match ends.open(&plan) {
            Ok(endpoint) => endpoint,
            Err(text) => {
                requests.answer::<()>(&Err(text))?;
                continue;
            }
        };
        requests.answer(&Ok(()))?;
        let (rescued, signals) = (ends.rescued(&plan), signals_delivered());
        let (facts, windows) = respond(&mut *endpoint, &plan);
        drop(endpoint);
        let (rescued, signals) = (ends.rescued(&plan) - rescued, signals_delivered() - signals);
        ends.close(&plan);
        requests.answer(&Ok(ResponderEnd { facts, windows, rescued, signals }))?;
    }
    Ok(())
}

/// A trial that was made.
#[derive(Debug)]
pub struct MadeTrial {
    /// Its messages.
    pub recording: Recording<PingDetail>,
    /// The client's statistics.
    pub client: ClientFacts,
    /// The responder's statistics.
    pub responder: ResponderFacts,
    /// Interruptions of both ends by SIGIO.
    pub signals: u64,
    /// Evidence that explains late messages, if the plan wanted windows.
    pub kept: Option<Kept>,
    /// Why the responder said nothing of its end: it is gone, and what it did not answer is lost.
    gone: Option<String>,
    /// Wake-ups lost by either end's node, and made up for by the clock.
    rescued: u64,
    /// CPU time that a hypervisor took from this machine meanwhile, kernel ticks.
    steal_ticks: u64,
    /// Times that a CPU quota ran out.
    throttled: u64,
    /// All clocks before and after.
    clocks: [Clocks; 2],
}

impl MadeTrial {
    /// Notes what happened during the trial that may have changed it.
    pub fn note(&self, facts: &mut Facts, subject: &str) {
        (facts.cpu_ns, facts.cpu_messages) = (self.responder.cpu_ns, Some(self.responder.cpu_messages));
        facts.warmup = Some(self.client.warmup);
        let disturbances = Disturbances {
            migrations: self.client.migrations + self.responder.migrations,
            faults: self.client.usage.faults_minor + self.client.usage.faults_major + self.responder.faults,
            throttled: self.throttled,
            rescued: self.rescued,
            // Kernel ticks of user space are hundredths of a second.
            steal_ms: 10 * self.steal_ticks,
        };
        let messages = (self.recording.len() as u64).saturating_sub(self.client.warmup);
        let causes = disturbances.causes(subject, messages);
        let [before, after] = self.clocks;
        let causes = causes.into_iter().chain(after.doubts_since(&before, subject));
        let gone = self.gone.clone().map(|reason| Cause::FarEndGone { subject: subject.to_owned(), reason });
        let refused = (self.responder.refused > 0)
            .then(|| Cause::NoRoom { subject: subject.to_owned(), count: self.responder.refused });
        let causes = causes.chain(gone).chain(refused);
        facts.doubts.extend(causes.map(Doubt::from));
    }
}

/// Both ends, the client's in this thread.
#[derive(Debug)]
pub struct Testbed {
    ends: Ends,
    responder: Worker,
    cpus: [Option<usize>; 2],
    number: u32,
}

impl Testbed {
    /// Starts the responder, which is a worker in this role where it is a process. The calling thread is pinned, and leaves for a
    /// namespace of its own where the place needs one.
    pub fn start(addresses: Addresses, place: Place, cpus: [Option<usize>; 2]) -> Result<Self, String> {
        if let Some(cpu) = cpus[0] {
            pin_to(cpu).map_err(|error| error.to_string())?;
        }
        let apart = place == Place::Segment;
        if apart {
            leave()?;
        }
        let mut responder =
            if place == Place::Process { Worker::in_a_thread(serve) } else { Worker::start("respond") }?;
        let thread = responder.ask(&Prepare { apart, cpu: cpus[1] })?;
        if apart {
            join_by_veth(thread)?;
        }
        responder.send(&addresses)?;
        Ok(Self { ends: Ends::new(addresses, 0), responder, cpus, number: 0 })
    }

    /// The same with the client in a thread of its own, beside others in other places.
    pub fn start_in_a_thread(
        addresses: &Addresses,
        place: Place,
        cpus: [Option<usize>; 2],
    ) -> Result<ThreadOf<Self>, String> {
        let addresses = addresses.clone();
        ThreadOf::start(&format!("client-{place:?}"), move || Self::start(addresses, place, cpus))
    }

    /// Where both ends meet.
    pub fn addresses(&self) -> &Addresses {
        &self.ends.addresses
    }

    /// Lets the responder open its end, for a plan that is numbered here.
    pub fn begin(&mut self, plan: &EndpointPlan) -> Result<EndpointPlan, String> {
        self.number += 1;
        let plan = EndpointPlan { number: self.number, ..*plan };
        self.responder.ask(&plan).map(|()| plan)
    }

    /// Waits for the responder's end of a trial.
    pub fn ended(&mut self) -> Result<ResponderEnd, String> {
        self.responder.recv()
    }

    /// True if the responder is still there for one more trial.
    pub fn is_whole(&mut self) -> bool {
        !self.responder.has_ended()
    }

    /// Makes one trial.
    pub fn make(&mut self, plan: &EndpointPlan, trial: &Trial) -> Result<MadeTrial, String> {
        let mut recording = Recording::new(capacity(trial), 1);
        let plan = self.begin(&EndpointPlan { warmup: warmup(trial), ..*plan })?;
        let mut endpoint = match self.ends.open(&plan) {
            Ok(endpoint) => endpoint,
            Err(text) => {
                // The responder gives up by itself.
                self.ended()?;
                return Err(text);
            }
        };
        let (rescued, signals) = (self.ends.rescued(&plan), signals_delivered());
        let (steal, quotas) = (steal_ticks().unwrap_or(0), Quotas::of_this_thread());
        let throttled = quotas.now().times;
        let mut watch =
            (plan.windows > 0).then(|| ClientWatch::of_this_thread(plan.windows, trial.is_traced));
        let (clocks, before) = (Clocks::read(), ClockPair::now());
        let client = client::run(&mut *endpoint, trial, &mut recording, watch.as_mut());
        let clocks = [clocks, Clocks::read()];
        let steal_ticks = steal_ticks().unwrap_or(0).saturating_sub(steal);
        let throttled = quotas.now().times.saturating_sub(throttled);
        // The client's observations are kept, regardless of the responder's end.
        let (there, gone) = match self.ended() {
            Ok(there) => (there, None),
            Err(reason) => (ResponderEnd::default(), Some(reason)),
        };
        drop(endpoint);
        let kept = watch.map(|watch| self.kept(watch, &there.windows.unwrap_or_default(), before));
        let rescued = there.rescued + self.ends.rescued(&plan) - rescued;
        let signals = there.signals + signals_delivered() - signals;
        self.ends.close(&plan);
        let responder = there.facts;
        Ok(MadeTrial {
            recording,
            client,
            responder,
            signals,
            kept,
            gone,
            rescued,
            steal_ticks,
            throttled,
            clocks,
        })
    }

    fn kept(&self, watch: ClientWatch, responder: &ThreadWindows, before: ClockPair) -> Kept {
        let clocks = [before, ClockPair::now()];
        let (client, recorder) = watch.end();
        let thread = |side: usize, of: &ThreadWindows| of.evidence(ROLES[side], self.cpus[side]);
        Kept { threads: vec![thread(0, &client), thread(1, responder)], recorder, clocks }
    }
}

/// Roles of the threads at both ends.
pub const ROLES: [&str; 2] = ["client", "responder"];

/// Messages before those of which page faults count: under open load the burst, as at the client.
fn warmup(trial: &Trial) -> u64 {
    let Warmup { burst, .. } = trial.warmup;
    let count = if trial.load == Load::Open { burst } else { trial.warmup.count() };
    count as u64
}

/// Room for all messages of a trial, however fast the route: none takes less than 100 ns there and back.
fn capacity(trial: &Trial) -> usize {
    let fastest = trial.gap.max(Duration::from_nanos(100));
    let messages = trial.duration.as_nanos() / fastest.as_nanos() + 16;
    trial.count_max.min(usize::try_from(messages).unwrap_or(usize::MAX)) + trial.warmup.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: page faults of either end are a doubt of the trial.
    #[test]
    fn page_faults_of_both_ends_are_doubted() {
        let doubts = |client: u64, responder: u64| {
            let mut made = MadeTrial {
                recording: Recording::new(1, 1),
                client: ClientFacts::default(),
                responder: ResponderFacts { faults: responder, ..ResponderFacts::default() },
                signals: 0,
                kept: None,
                gone: None,
                rescued: 0,
                steal_ticks: 0,
                throttled: 0,
                clocks: [Clocks::read(); 2],
            };
            made.client.usage.faults_minor = client;
            let mut facts = Facts::default();
            made.note(&mut facts, "shared/spin");
            facts.doubts.into_iter().map(|doubt| doubt.what).collect::<Vec<_>>()
        };
        assert_eq!(doubts(0, 0), Vec::<String>::new());
        for (client, responder) in [(3, 0), (0, 3), (1, 2)] {
            assert_eq!(doubts(client, responder), ["shared/spin: 3 page faults while measuring"]);
        }
    }
}
