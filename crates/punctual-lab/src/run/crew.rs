//! Workers that stand together, and are told and heard together.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use punctual_machine::signal::interrupted;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{HeldNamespace, Prepare, Worker, cpu_of};

/// A bridge of the calling thread's namespace by which workers reach each other, each in a namespace with one interface.
pub(crate) struct CrewBridge<'a> {
    pub(crate) bridge: &'a str,
    /// Its ports have this name and the place of their worker.
    pub(crate) port: String,
    pub(crate) interface: &'static str,
    /// By the place of its worker, and the bits that all share.
    pub(crate) address: (fn(usize) -> Ipv4Addr, u8),
}

/// Several workers. They leave together: one after the other, each would take its time.
#[derive(Debug)]
pub(crate) struct Crew {
    role: &'static str,
    pub(crate) workers: Vec<Worker>,
    /// Of each worker, where there is a bridge. They end after the workers.
    namespaces: Vec<HeldNamespace>,
    pins: bool,
}

impl Crew {
    /// Starts so many workers in a role. If they are pinned, each place has a processor.
    pub(crate) fn start(
        role: &'static str,
        count: usize,
        network: Option<&CrewBridge<'_>>,
        pins: bool,
    ) -> Result<Self, String> {
        let mut crew = Self { role, workers: Vec::new(), namespaces: Vec::new(), pins };
        for place in 0..count {
            if let Some(CrewBridge { bridge, port, interface, address: (address, prefix) }) = network {
                let port = (*bridge, &*format!("{port}{place}"));
                crew.namespaces.push(HeldNamespace::plugged(port, interface, (address(place), *prefix))?);
            }
            let worker = crew.start_worker(place)?;
            crew.workers.push(worker);
        }
        crew.ask_all::<u32, _>(count, |place| prepare(place, pins)).map(|_| crew)
    }

    /// A new process for a place, in the namespace of that place.
    fn start_worker(&self, place: usize) -> Result<Worker, String> {
        self.namespaces.get(place).map_or_else(|| Worker::start(self.role), |held| held.start(self.role))
    }

    /// Tells each of the first so many what is for it, also after one that does not listen.
    pub(crate) fn tell<T: Serialize>(
        &mut self,
        count: usize,
        what: impl Fn(usize) -> T,
    ) -> Result<(), String> {
        let workers = self.workers[..count].iter_mut().enumerate();
        let told: Vec<Result<(), String>> =
            workers.map(|(place, worker)| worker.send(&what(place))).collect();
        told.into_iter().collect()
    }

    /// Answers of the first so many workers, also after one that failed: an answer not heard would meet the next question. One that says
    /// nothing for long after an interrupt is ended.
    pub(crate) fn hear<T>(
        &mut self,
        count: usize,
        hear: impl Fn(&mut Worker) -> Result<T, String>,
    ) -> Vec<Result<T, String>> {
        self.hear_with(count, Patience::new(None), hear)
    }

    /// The same of workers that end together: one that says nothing for long after all others is ended, too.
    pub(crate) fn hear_together<T>(
        &mut self,
        count: usize,
        hear: impl Fn(&mut Worker) -> Result<T, String>,
    ) -> Vec<Result<T, String>> {
        self.hear_with(count, Patience::new(Some(BEHIND_MAX)), hear)
    }

    fn hear_with<T>(
        &mut self,
        count: usize,
        mut patience: Patience,
        hear: impl Fn(&mut Worker) -> Result<T, String>,
    ) -> Vec<Result<T, String>> {
        (0..count)
            .map(|place| self.wait(place, count, &mut patience).and_then(|()| hear(&mut self.workers[place])))
            .collect()
    }

    /// Waits for the answer of one of so many workers. An interrupt goes on to all at once: in turn, each would go on until those before
    /// it have ended.
    fn wait(&mut self, place: usize, count: usize, patience: &mut Patience) -> Result<(), String> {
        while !self.workers[place].wait_a_moment() {
            self.workers[..count].iter_mut().for_each(Worker::pass_on_interrupt);
            // Those before it were heard, and may have nothing more to say.
            let are_done = || self.workers[place + 1..count].iter().all(Worker::has_answer);
            if let Some(why) = patience.is_over(are_done, interrupted()) {
                self.workers[place].kill();
                return Err(format!("it said nothing {why}, and was ended"));
            }
        }
        Ok(())
    }

    /// Asks the first so many at once.
    pub(crate) fn ask_all<T: DeserializeOwned, Q: Serialize>(
        &mut self,
        count: usize,
        what: impl Fn(usize) -> Q,
    ) -> Result<Vec<T>, String> {
        let told = self.tell(count, what);
        let answers = self.hear_together(count, Worker::recv);
        told.and_then(|()| answers.into_iter().collect())
    }

    /// Ends the worker at a place, if it has not ended, and starts another one there.
    pub(crate) fn replace(&mut self, place: usize) -> Result<(), String> {
        self.workers[place].kill();
        let mut worker = self.start_worker(place)?;
        worker.ask::<u32>(&prepare(place, self.pins))?;
        self.workers[place] = worker;
        Ok(())
    }
}

/// Longest time for which a worker may be behind all others. Those of a trial end together: they wait for each other's messages, for a
/// third of it at most.
const BEHIND_MAX: Duration = Duration::from_secs(180);

/// Longest time for which workers may go on after an interrupt.
const INTERRUPTED_MAX: Duration = Duration::from_secs(60);

/// Time left for workers that have not answered.
#[derive(Debug)]
struct Patience {
    /// Behind all others; none if each has its own time.
    behind_max: Option<Duration>,
    /// Since when one alone is waited for.
    alone_at: Option<Instant>,
    /// When an interrupt was seen.
    interrupted_at: Option<Instant>,
}

impl Patience {
    fn new(behind_max: Option<Duration>) -> Self {
        Self { behind_max, alone_at: None, interrupted_at: None }
    }

    /// After which event so much time has passed that nobody is waited for, in words. `are_done`: all others have answered, or ended.
    fn is_over(&mut self, are_done: impl FnOnce() -> bool, is_interrupted: bool) -> Option<String> {
        if self.behind_max.is_some() && self.alone_at.is_none() && are_done() {
            self.alone_at = Some(Instant::now());
        }
        if self.interrupted_at.is_none() && is_interrupted {
            self.interrupted_at = Some(Instant::now());
        }
        let has_passed = |since: Option<Instant>, most: Duration| since.is_some_and(|at| at.elapsed() > most);
        let after = |most: Duration, what: &str| format!("for {} s after {what}", most.as_secs());
        if has_passed(self.interrupted_at, INTERRUPTED_MAX) {
            return Some(after(INTERRUPTED_MAX, "an interrupt"));
        }
        let behind_max = self.behind_max.filter(|&most| has_passed(self.alone_at, most));
        behind_max.map(|most| after(most, "all others"))
    }
}

/// First instruction to the worker at a place.
fn prepare(place: usize, pins: bool) -> Prepare {
    Prepare { apart: false, cpu: if pins { cpu_of(place) } else { None } }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(Worker::dismiss);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn crew(scripts: &[&str]) -> Crew {
        let start = |script: &&str| Worker::run(Command::new("sh").args(["-c", script])).expect("a shell");
        Crew {
            role: "nobody",
            workers: scripts.iter().map(start).collect(),
            namespaces: Vec::new(),
            pins: false,
        }
    }

    /// Goal: a worker that hangs is ended some time after all others have answered, and they are heard.
    #[test]
    fn a_worker_that_hangs_is_ended() {
        let mut crew = crew(&["exec sleep 600", "echo '{\"Ok\":7}'"]);
        let mut patience = Patience::new(Some(Duration::from_millis(200)));
        let said = crew.wait(0, 2, &mut patience).expect_err("it says nothing");
        assert!(said.contains("was ended"), "{said}");
        assert!(crew.workers[0].was_ended());
        crew.wait(1, 2, &mut patience).expect("an answer");
        assert_eq!(crew.workers[1].recv(), Ok(7));
    }

    /// Goal: nobody is ended while two are waited for, nor where each has its own time; one that died makes no haste.
    #[test]
    fn a_worker_may_take_its_time() {
        let scripts = ["sleep 0.5; echo '{\"Ok\":1}'", "exit 3", "sleep 0.9; echo '{\"Ok\":2}'"];
        let mut crew = crew(&scripts);
        let mut patience = Patience::new(Some(Duration::from_millis(200)));
        assert_eq!(crew.wait(0, 3, &mut patience), Ok(()));
        assert_eq!(Patience::new(None).is_over(|| true, false), None);
        assert_eq!(Patience::new(Some(Duration::ZERO)).is_over(|| false, false), None);
    }
}
