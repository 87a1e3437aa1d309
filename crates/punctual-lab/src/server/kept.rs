//! Data that a trial keeps: its requests with their stages, and the evidence that explains the late ones.

use std::collections::HashMap;

use punctual::{Clock, Ticks};

use super::client::{Loaded, RequestRow, ServerLoad};
use super::journal::{JournalEnd, Passed, STAGE_ROLES, ServerThread, WORKER_ROLE};
use super::model::ServerModel;
use super::setup::Setup;
use crate::explain::evidence::{EvidenceDump, EvidenceThread, Recording, TrialEvidence};
use crate::explain::kept::{ClockPair, Kept, ThreadWindows, late_spans, with_idle};
use crate::explain::recorder::LateRecorder;
use crate::explain::stage::{Side, StageOwner};
use crate::sample::{ABSENT_NS, Load, RESPONDER, Samples, StageColumn};

const CLIENT: &str = "client";

/// Owner of a stage: the thread with this role, if it is known which one that is.
#[derive(Clone, Copy, Debug)]
struct Stage {
    name: &'static str,
    side: Side,
    role: Option<&'static str>,
}

const fn of_client(name: &'static str) -> Stage {
    Stage { name, side: Side::Client, role: Some(CLIENT) }
}

const fn of_server(name: &'static str, role: Option<&'static str>) -> Stage {
    Stage { name, side: Side::Server, role }
}

/// The stages of a request, in their order. Three threads sleep until they are woken; tasks wait in turn for a worker, which has other
/// tasks. The worker that had a task is not known if there are several.
fn stages(model: ServerModel, pollers: usize) -> Vec<Stage> {
    let [receive, serve, send] = STAGE_ROLES.map(Some);
    let worker = (pollers == 1).then_some(WORKER_ROLE);
    let mut stages = vec![of_client("request.sent"), of_client("request.posted")];
    if model.has_tasks() {
        stages.extend(
            ["request.elsewhere", RESPONDER, "reply.sent", "reply.posted"]
                .map(|name| of_server(name, worker)),
        );
    } else {
        stages.extend([
            of_server("request.medium", receive),
            of_server("request.woken", serve),
            of_server(RESPONDER, serve),
            of_server("reply.sent", send),
            of_server("reply.posted", send),
        ]);
    }
    stages.push(of_client("reply.medium"));
    stages
}

/// When each stage of a request ended, from when it was due on; shorter where it is not known of the later ones.
fn ends(row: &RequestRow, passed: Option<&Passed>, model: ServerModel) -> Vec<u64> {
    let clock = Clock::get();
    let mut ends = vec![row.sent];
    let Some((posted, passed)) = row.posted.zip(passed) else { return ends };
    let [received, begun, done, replying, replied] =
        // A request that is worked off when the trial is over goes on behind the end of its row.
        [passed.received, passed.begun, passed.done, passed.replying, passed.replied]
            .map(|at| clock.nanos(at).min(row.until));
    // A thread that is woken by a call of the kernel may run before that returns.
    ends.push(posted.min(received));
    ends.extend((!model.has_tasks()).then_some(received));
    ends.extend([begun, done, replying, replied, row.until]);
    ends
}

/// A trial that was made.
pub(super) struct TrialMade<'a> {
    pub(super) cpus: [Option<usize>; 2],
    pub(super) setup: Setup,
    pub(super) load: &'a ServerLoad,
    /// When the run began.
    pub(super) start: Ticks,
    /// The server's notes on each connection.
    pub(super) passed: Vec<(u16, Vec<Passed>)>,
    pub(super) journal: JournalEnd,
}

/// Information about each request.
struct Known<'a> {
    row: &'a RequestRow,
    /// When each stage ended.
    ends: Vec<u64>,
}

impl TrialMade<'_> {
    /// Of each class its requests, and what explains the late ones.
    pub(super) fn keep(self, loaded: Loaded) -> Vec<(Samples, TrialEvidence)> {
        let Loaded { rows, ports, duplicated, windows, recorder, clocks, .. } = loaded;
        let passed: HashMap<u16, &[Passed]> =
            self.passed.iter().map(|(port, passed)| (*port, &passed[..])).collect();
        let known: Vec<Known<'_>> = rows
            .iter()
            .map(|row| {
                let passed = passed.get(&ports[row.connection]).and_then(|passed| passed.get(row.number));
                Known { row, ends: ends(row, passed, self.setup.model) }
            })
            .collect();
        let stages = stages(self.setup.model, self.setup.pollers());
        let threads = self.threads(&windows, &ports, &Busy::of(&known, &stages));
        let (recording, dumps) = self.trace(recorder, clocks);
        let load = self.load.arrivals.load();
        let owners: Vec<StageOwner> = stages.iter().map(Stage::owner).collect();
        let of_class = |class: usize| {
            let is_of = |known: &&Known<'_>| known.row.connection % self.load.classes == class;
            let known: Vec<&Known<'_>> = known.iter().filter(is_of).collect();
            let mut samples = self.samples(&known, &stages);
            samples.facts.duplicated = duplicated[class];
            let kept = Kept { threads: threads.clone(), recorder: None, clocks };
            let evidence = kept.evidence(&samples, load, owners.clone(), self.start);
            let late = late_spans(&samples, load, None);
            let is_near =
                |dump: &&EvidenceDump| late.iter().any(|&(from, to)| from < dump.span.1 && dump.span.0 < to);
            let dumps = dumps.iter().filter(is_near).cloned().collect();
            (samples, TrialEvidence { recording: recording.clone(), dumps, ..evidence })
        };
        (0..self.load.classes).map(of_class).collect()
    }

    fn samples(&self, known: &[&Known<'_>], stages: &[Stage]) -> Samples {
        let load = self.load.arrivals.load();
        let start_ns = Clock::get().nanos(self.start);
        let since = |ns: u64| ns.saturating_sub(start_ns);
        let mut samples = Samples::with_capacity(known.len());
        for Known { row, .. } in known {
            let total_ns = row.until.saturating_sub(row.from(load));
            // By its number on its connection: every connection is opened anew, and its first request pays for that.
            samples.push(row.number as u64, since(row.due), since(row.sent), total_ns, row.outcome);
            samples.sender.push(row.connection as u64);
        }
        // Under closed load a latency counts from when the request was sent.
        let first = usize::from(load == Load::Closed);
        let column = |(place, stage): (usize, &Stage)| {
            let ns = known.iter().map(|known| known.stage(place).map_or(ABSENT_NS, |(from, to)| to - from));
            StageColumn { name: stage.name.to_owned(), ns: ns.collect() }
        };
        samples.stages = stages.iter().enumerate().skip(first).map(column).collect();
        samples
    }

    fn threads(&self, client: &ThreadWindows, ports: &[u16], busy: &Busy) -> Vec<EvidenceThread> {
        let thread = |role: &str, sender: Option<u64>, side: usize, of: &ThreadWindows| {
            // A thread that yields while it waits never sleeps.
            let yields = matches!(self.setup.model, ServerModel::ThreadsYield | ServerModel::Pollers);
            let sleeps = side == 1 || !yields;
            let mut thread = of.evidence(role, self.cpus[side]);
            thread.sender = sender;
            if sleeps {
                thread.windows = with_idle(&thread.windows, busy.of_thread(role, sender));
            }
            thread
        };
        let of_server = |ServerThread { role, port, windows }: &ServerThread| {
            let connection = port.and_then(|port| ports.iter().position(|of| *of == port));
            let sender = connection.map(|connection| connection as u64);
            // One that was none of the load's shows the server that a trial is over.
            (port.is_none() || sender.is_some()).then(|| thread(role, sender, 0, windows))
        };
        let mut threads = vec![thread(CLIENT, None, 1, client)];
        threads.extend(self.journal.threads.iter().filter_map(of_server));
        threads
    }

    fn trace(
        &self,
        recorder: Option<Result<LateRecorder, String>>,
        clocks: [ClockPair; 2],
    ) -> (Recording, Vec<EvidenceDump>) {
        match recorder {
            None => (Recording::Off, Vec::new()),
            Some(Err(reason)) => (Recording::Missing { reason }, Vec::new()),
            Some(Ok(recorder)) => recorder.finish(clocks, self.start),
        }
    }
}

impl Stage {
    fn owner(&self) -> StageOwner {
        StageOwner {
            stage: self.name.to_owned(),
            side: self.side,
            role: self.role.map(str::to_owned),
            or_role: None,
        }
    }
}

impl Known<'_> {
    /// From when to when a stage lasted, by its place among all.
    fn stage(&self, place: usize) -> Option<(u64, u64)> {
        let from = if place == 0 { self.row.due } else { *self.ends.get(place - 1)? };
        Some((from, (*self.ends.get(place)?).max(from)))
    }
}

/// A role, and the connection for roles that have one.
type Whose = (&'static str, Option<u64>);

/// When threads had something to do, which sleep else: in the stages that are theirs.
struct Busy(HashMap<Whose, Vec<(u64, u64)>>);

impl Busy {
    fn of(known: &[Known<'_>], stages: &[Stage]) -> Self {
        let mut busy: HashMap<Whose, Vec<(u64, u64)>> = HashMap::new();
        for known in known {
            for (place, stage) in stages.iter().enumerate() {
                let Some((role, span)) = stage.role.zip(known.stage(place)) else { continue };
                let has_one = STAGE_ROLES.contains(&role);
                let sender = has_one.then_some(known.row.connection as u64);
                busy.entry((role, sender)).or_default().push(span);
            }
        }
        Self(busy)
    }

    fn of_thread(&self, role: &str, sender: Option<u64>) -> Vec<(u64, u64)> {
        let mut all = self.0.iter();
        all.find(|(whose, _)| **whose == (role, sender)).map(|(_, spans)| spans.clone()).unwrap_or_default()
    }
}
