//! Starts a group whose members write down what they are told, lets them run under load, and ends them. Meanwhile it may kill or
//! stop one member after the other: it lets each come back, and waits until all deliver in one view again.
//!
//! It learns what members do from their logs: nothing is said while messages travel.

use std::time::{Duration, Instant};

use punctual_machine::clock::monotonic_ns;
use punctual_machine::signal::{interrupted, resume, stop};
use punctual_proto::sim::Rng;

use super::halt::Halt;
use super::kv::option::KvPlan;
use super::log::{LogReader, OVER, STOP, Seen, Told, log_path};
use super::option::{BroadcastEngine, BroadcastSettings, Disruption, Disruptions};
use super::protocol::{Joined, MemberPlan, MemberRequest, ProcessPlan};
use super::testbed::{BroadcastTestbed, TrialPlan};
use crate::run::{OwnFolder, memory_folder};

/// Longest time that the group may take for a step before it counts as broken: far longer than any suspicion.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time that a step may go on after an interrupt.
const INTERRUPTED_MAX: Duration = Duration::from_secs(5);
/// Why a trial that an interrupt ended has no result.
pub(super) const BEFORE_LOAD: &str = "interrupted before anything was measured";
/// Longest time that processes may take to end once they are told to.
const ENDING_MAX: Duration = Duration::from_secs(10);
/// Between two looks into the logs.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// Load between two disruptions, and before the end.
const UNDISTURBED_MS: (i64, i64) = (50, 300);
/// Memory for what all logs say, bytes.
const RECORDS_SIZE_MAX: usize = 1 << 30;

/// A process that takes part or took part.
pub(super) struct Process<R> {
    pub(super) place: usize,
    pub(super) incarnation: u64,
    pub(super) was_killed: bool,
    pub(super) entries: Vec<R>,
    log: Option<LogReader<R>>,
    seen: Seen,
}

/// Instants of one disruption.
pub(super) struct Event {
    pub(super) place: usize,
    pub(super) was_sequencer: bool,
    pub(super) at_ns: u64,
    pub(super) returned_ns: u64,
    pub(super) recovered_ns: u64,
}

/// Result of a trial.
pub(super) struct Lived<R> {
    pub(super) frame: usize,
    /// When all members were in one view, and when they were told to stop.
    pub(super) started_ns: u64,
    pub(super) stopped_ns: u64,
    pub(super) events: Vec<Event>,
    pub(super) processes: Vec<Process<R>>,
    /// The view in which all began.
    pub(super) first_view: u64,
    /// Why the group did not go on, if it did not.
    pub(super) stuck: Option<String>,
    /// Reason for ending the trial, if the machine or the settings ended it: the deliveries until then hold all the same.
    pub(super) cut_short: Option<String>,
}

#[cfg(test)]
impl<R> Lived<R> {
    /// Of processes that nobody killed, one for each place, with what they wrote.
    pub(super) fn of<const N: usize>(written: [Vec<R>; N]) -> Self {
        let process = |(place, entries)| {
            let (log, seen) = (None, Seen::default());
            Process { place, incarnation: 0, was_killed: false, entries, log, seen }
        };
        Self {
            frame: 0,
            started_ns: 0,
            stopped_ns: 0,
            events: Vec::new(),
            processes: written.into_iter().enumerate().map(process).collect(),
            first_view: 0,
            stuck: None,
            cut_short: None,
        }
    }
}

/// The work of a trial's processes, and the random numbers that it draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    /// They serve a store; they broadcast if this is none.
    pub(super) kv: Option<KvPlan>,
    /// Trials that differ in nothing else differ in this.
    pub(super) stream: u64,
    /// Silence after which a member is suspected.
    pub(super) suspect_after: Duration,
}

/// Makes one trial.
pub(super) fn make<R: Told>(
    testbed: &mut BroadcastTestbed,
    settings: &BroadcastSettings,
    trial: &TrialPlan,
    what: Direction,
    load: impl FnOnce(&mut Director<'_, R>) -> Result<(), Halt>,
) -> Result<Lived<R>, String> {
    let plans = testbed.begin(settings, trial)?;
    let mut director = Director {
        suspect_after: what.suspect_after,
        kv: what.kv,
        is_in_memory: trial.engine == BroadcastEngine::Shared,
        folder: OwnFolder::create(&memory_folder(), "broadcast")?,
        rng: Rng::at(&[trial.seed, trial.members as u64, what.stream]),
        current: Vec::new(),
        processes: Vec::new(),
        away: None,
        events: Vec::new(),
        first_view: 0,
        started_ns: 0,
        stopped_ns: 0,
        testbed,
        plans,
    };
    let directed = director.direct(load);
    // Also after a failure: the next trial founds a group of its own.
    let (frame, ended) = director.end();
    let (stuck, cut_short) = match directed.and(ended) {
        Ok(()) => (None, None),
        Err(Halt::Stuck(sentence)) => (Some(sentence), None),
        Err(Halt::Machine(text)) => (None, Some(text)),
    };
    Ok(Lived { stuck, cut_short, ..director.lived(frame) })
}

pub(super) struct Director<'a, R> {
    testbed: &'a mut BroadcastTestbed,
    plans: Vec<MemberPlan>,
    suspect_after: Duration,
    kv: Option<KvPlan>,
    is_in_memory: bool,
    folder: OwnFolder,
    rng: Rng,
    processes: Vec<Process<R>>,
    /// Of each place, which of the processes is there.
    current: Vec<usize>,
    /// The place whose process was killed or stopped, and which of both.
    away: Option<(usize, Disruption)>,
    events: Vec<Event>,
    first_view: u64,
    started_ns: u64,
    stopped_ns: u64,
}

impl<R: Told> Director<'_, R> {
    fn direct(&mut self, load: impl FnOnce(&mut Self) -> Result<(), Halt>) -> Result<(), Halt> {
        for place in 0..self.plans.len() {
            self.start(place)?;
        }
        let met = self.until("the members do not meet", |director| director.are_together(0));
        met.map_err(|halt| Halt::Machine(halt.text()))?;
        (self.started_ns, self.first_view) = (monotonic_ns(), self.at(0).seen.view);
        load(self)?;
        self.stopped_ns = monotonic_ns();
        self.order(STOP, "")?;
        self.until("the last messages do not come", Self::all_have_ended)
    }

    /// One disruption after the other, with load between them, before and behind.
    pub(super) fn disrupt(&mut self, disruptions: Disruptions) -> Result<(), Halt> {
        for _ in 0..disruptions.count {
            self.pass_time()?;
            if interrupted() {
                break;
            }
            self.disrupt_one(disruptions.of)?;
        }
        self.pass_time()
    }

    /// A new process at a place. The log of its predecessor was read to its end.
    fn start(&mut self, place: usize) -> Result<(), String> {
        if let Some(&former) = self.current.get(place) {
            self.processes[former].log = None;
        }
        let incarnation = self.processes.iter().filter(|process| process.place == place).count() as u64;
        let member = MemberPlan {
            seed: self.plans[place].seed.wrapping_add(incarnation.wrapping_mul(1_000_003)),
            ..self.plans[place].clone()
        };
        let folder = self.folder.path().to_owned();
        let suspect_after = self.suspect_after;
        let plan = ProcessPlan { member, incarnation, folder, suspect_after, kv: self.kv };
        self.testbed.crew.workers[place].send(&MemberRequest::Live(Box::new(plan)))?;
        let process = Process {
            place,
            incarnation,
            was_killed: false,
            entries: Vec::new(),
            log: None,
            seen: Seen::default(),
        };
        self.processes.push(process);
        let newest = self.processes.len() - 1;
        match self.current.get_mut(place) {
            Some(current) => *current = newest,
            None => self.current.push(newest),
        }
        Ok(())
    }

    /// Records that all processes wrote until now.
    pub(super) fn entries(&self) -> impl Iterator<Item = &R> {
        self.processes.iter().flat_map(|process| &process.entries)
    }

    /// Number of further records for which there is memory.
    pub(super) fn room(&self) -> usize {
        let records: usize = self.processes.iter().map(|process| process.entries.len()).sum();
        (RECORDS_SIZE_MAX / size_of::<R>()).saturating_sub(records)
    }

    /// Tells all processes something, by a file of this name. They see the old or the new text, never half of one.
    pub(super) fn order(&self, name: &str, text: &str) -> Result<(), String> {
        let (path, new) = (self.folder.path().join(name), self.folder.path().join(format!("{name}.new")));
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    fn at(&self, place: usize) -> &Process<R> {
        &self.processes[self.current[place]]
    }

    /// Returns true if all deliver in one view that has all of them, newer than this one.
    fn are_together(&self, newer_than: u64) -> bool {
        let view = self.at(0).seen.view;
        let is_there = |place: usize| {
            let seen = &self.at(place).seen;
            seen.view == view && seen.delivered > 0 && seen.lives.iter().all(|&life| life != 0)
        };
        view > newer_than && (0..self.current.len()).all(is_there)
    }

    /// Returns true if all others deliver in views that this life is not in.
    fn went_on_without(&self, place: usize, life: u64) -> bool {
        let mut others = (0..self.current.len()).filter(|&other| other != place);
        others.all(|other| {
            let seen = &self.at(other).seen;
            seen.view != 0 && seen.delivered > 0 && seen.lives.get(place) != Some(&life)
        })
    }

    fn all_have_ended(&self) -> bool {
        let current = || self.current.iter().map(|&at| &self.processes[at]);
        let ends: Vec<(usize, u64)> = current().map(|process| (process.place, process.incarnation)).collect();
        current().all(|process| ends.iter().all(|end| process.seen.ends.contains(end)))
    }

    /// One member goes, and comes back.
    fn disrupt_one(&mut self, of: Disruption) -> Result<(), Halt> {
        self.until("the members are not in one view", |director| director.are_together(0))?;
        let place = self.rng.below(self.current.len() as u64) as usize;
        let Seen { view, lives, .. } = &self.at(place).seen;
        let (view, life) = (*view, lives[place]);
        let was_sequencer = lives.iter().position(|&life| life != 0) == Some(place);
        let at_ns = monotonic_ns();
        self.away = Some((place, of));
        match of {
            Disruption::Kill => {
                self.testbed.crew.workers[place].kill();
                let process = self.current[place];
                self.processes[process].was_killed = true;
            }
            Disruption::Stop => self.signal(place, stop)?,
        }
        let what = format!("the others do not go on without member {place}");
        self.until(&what, |director| director.went_on_without(place, life))?;
        let most = self.suspect_after.as_nanos() as u64 / 2;
        let rest = Duration::from_nanos(self.rng.below(most));
        self.follow_for(rest)?;
        let returned_ns = match of {
            Disruption::Kill => {
                let now = monotonic_ns();
                self.testbed.crew.replace(place)?;
                self.start(place)?;
                now
            }
            Disruption::Stop => {
                let now = monotonic_ns();
                self.signal(place, resume)?;
                now
            }
        };
        self.away = None;
        let what = format!("member {place} does not come back");
        self.until(&what, |director| director.are_together(view))?;
        let recovered_ns = monotonic_ns();
        self.events.push(Event { place, was_sequencer, at_ns, returned_ns, recovered_ns });
        Ok(())
    }

    fn signal(
        &mut self,
        place: usize,
        how: fn(u32) -> Result<(), punctual_machine::SystemError>,
    ) -> Result<(), Halt> {
        let process = self.testbed.crew.workers[place].process();
        let process = process.ok_or_else(|| Halt::Machine("a member is no process".to_owned()))?;
        how(process).map_err(|error| Halt::Machine(error.to_string()))
    }

    /// Load without disruption.
    fn pass_time(&mut self) -> Result<(), Halt> {
        let (least, most) = UNDISTURBED_MS;
        let wait = Duration::from_millis(self.rng.between(least, most) as u64);
        self.follow_for(wait)
    }

    /// Follows for so long, or until an interrupt.
    pub(super) fn follow_for(&mut self, wait: Duration) -> Result<(), Halt> {
        let start = Instant::now();
        while start.elapsed() < wait && !interrupted() {
            self.follow()?;
            std::thread::sleep(BETWEEN_LOOKS.min(wait));
        }
        Ok(())
    }

    /// Waits until something is so that must come.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), Halt> {
        let start = Instant::now();
        loop {
            self.follow()?;
            if is_so(self) {
                return Ok(());
            }
            if interrupted() && start.elapsed() > INTERRUPTED_MAX {
                return Err(Halt::Machine(format!("interrupted: {what}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(self.stuck(format!("{what} within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Reads the logs, and hears of processes that ended though they should not.
    fn follow(&mut self) -> Result<(), Halt> {
        let away = self.away.map(|(place, _)| place);
        for place in 0..self.current.len() {
            self.read(place)?;
            if away != Some(place) && self.testbed.crew.workers[place].has_answer() {
                let early = || Halt::Stuck(format!("member {place}: it ended too early"));
                return Err(self.hear(place).err().unwrap_or_else(early));
            }
        }
        if self.room() == 0 {
            let records = RECORDS_SIZE_MAX / size_of::<R>();
            let text = format!(
                "{records} records of what members were told are kept at most: take a larger --message, or less time"
            );
            return Err(Halt::Machine(text));
        }
        Ok(())
    }

    /// The end of a member's life that has an answer. One that the machine ended is as one that was killed: it did not write down
    /// all that it did.
    fn hear(&mut self, place: usize) -> Result<Joined, Halt> {
        let worker = &mut self.testbed.crew.workers[place];
        let lived =
            worker.recv::<Result<Joined, Halt>>().unwrap_or_else(|why| Err(Halt::of_end(worker, why)));
        if let Err(Halt::Machine(_)) = lived {
            let process = self.current[place];
            self.processes[process].was_killed = true;
        }
        lived.map_err(|halt| halt.of_member(place))
    }

    fn read(&mut self, place: usize) -> Result<(), String> {
        let process = &mut self.processes[self.current[place]];
        if process.log.is_none() {
            process.log = LogReader::open(&log_path(self.folder.path(), place, process.incarnation));
        }
        let Some(log) = &mut process.log else { return Ok(()) };
        log.follow()?;
        for entry in log.records.drain(..) {
            entry.note(&mut process.seen);
            process.entries.push(entry);
        }
        Ok(())
    }

    /// Why the group does not go on: for want of a majority or of memory, which it may, or though it has both.
    fn stuck(&self, sentence: String) -> Halt {
        let stuck = if self.is_in_memory { Halt::of_group_in_memory } else { Halt::Stuck };
        let newest = self.processes.iter().max_by_key(|process| process.seen.view);
        let Some(Seen { view, lives, .. }) = newest.map(|process| &process.seen) else {
            return stuck(sentence);
        };
        let away = self.away.map(|(place, _)| place);
        let is_there = |place: usize| {
            let seen = &self.at(place).seen;
            away != Some(place) && seen.lives.get(place) == lives.get(place) && seen.view != 0
        };
        let members: Vec<usize> = (0..lives.len()).filter(|&place| lives[place] != 0).collect();
        let there = members.iter().filter(|&&place| is_there(place)).count();
        if members.is_empty() || 2 * there > members.len() {
            return stuck(sentence);
        }
        let size = members.len();
        Halt::Machine(format!(
            "{sentence}: of the {size} members of view {view} only {there} were left, which ends a group; \
             take more --members or a longer --suspect"
        ))
    }

    /// Ends all processes that are there, and lets them leave: the payload of a frame, and whether they could.
    fn end(&mut self) -> (usize, Result<(), Halt>) {
        let places = self.current.len();
        if self.stopped_ns == 0 {
            self.stopped_ns = monotonic_ns();
        }
        let mut ended = self.order(STOP, "").and_then(|()| self.order(OVER, "")).map_err(Halt::from);
        if let Some((place, Disruption::Stop)) = self.away {
            let _runs_already = self.signal(place, resume);
        }
        let (mut frame, start) = (0, Instant::now());
        for place in 0..places {
            let is_alive = self.away != Some((place, Disruption::Kill));
            while is_alive && !self.testbed.crew.workers[place].has_answer() && start.elapsed() < ENDING_MAX {
                std::thread::sleep(BETWEEN_LOOKS);
            }
            let has_answer = is_alive && self.testbed.crew.workers[place].has_answer();
            match has_answer.then(|| self.hear(place)) {
                Some(Ok(joined)) => frame = joined.frame,
                said => {
                    // It ends in the midst of what it does, and of what it writes.
                    let process = self.current[place];
                    self.processes[process].was_killed = true;
                    if is_alive && ended.is_ok() {
                        let silent = || Halt::Stuck(format!("member {place} does not end"));
                        ended = Err(said.and_then(Result::err).unwrap_or_else(silent));
                    }
                    ended = ended.and(self.testbed.crew.replace(place).map_err(Halt::from));
                }
            }
        }
        for place in 0..places {
            ended = ended.and(self.read(place).map_err(Halt::from));
        }
        (frame, ended.and(self.testbed.close(places).map_err(Halt::from)))
    }

    fn lived(self, frame: usize) -> Lived<R> {
        let Self { started_ns, stopped_ns, events, processes, first_view, .. } = self;
        let (stuck, cut_short) = (None, None);
        Lived { frame, started_ns, stopped_ns, events, processes, first_view, stuck, cut_short }
    }
}
