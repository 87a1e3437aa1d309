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
    /// nothing for long after another has, or after an interrupt, is ended.
    pub(crate) fn hear<T>(
        &mut self,
        count: usize,
        hear: impl Fn(&mut Worker) -> Result<T, String>,
    ) -> Vec<Result<T, String>> {
        let mut patience = Patience::new(BEHIND_MAX);
        (0..count)
            .map(|place| self.wait(place, count, &mut patience).and_then(|()| hear(&mut self.workers[place])))
            .collect()
    }

    /// Waits for the answer of one of so many workers. An interrupt goes on to all at once: in turn, each would go on until those before
    /// it have ended.
    fn wait(&mut self, place: usize, count: usize, patience: &mut Patience) -> Result<(), String> {
        while !self.workers[place].wait_a_moment() {
            self.workers[..count].iter_mut().for_each(Worker::pass_on_interrupt);
            let has_answer = || self.workers[..count].iter().any(Worker::has_answer);
            if let Some(why) = patience.is_over(has_answer, interrupted()) {
                self.workers[place].kill();
                return Err(format!("the responder said nothing {why}, and was ended"));
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
        let answers = self.hear(count, Worker::recv);
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

/// Longest time for which a worker may be behind the first one that answered. Those of a trial end together: they wait for each other's
/// messages, for a third of it at most.
const BEHIND_MAX: Duration = Duration::from_secs(180);

/// Longest time for which workers may go on after an interrupt.
const INTERRUPTED_MAX: Duration = Duration::from_secs(15);

/// Time left for workers that have not answered.
#[derive(Debug)]
struct Patience {
    behind_max: Duration,
    /// When the first answered.
    first_at: Option<Instant>,
    /// When an interrupt was seen.
    interrupted_at: Option<Instant>,
}

impl Patience {
    fn new(behind_max: Duration) -> Self {
        Self { behind_max, first_at: None, interrupted_at: None }
    }

    /// After which event so much time has passed that nobody is waited for, in words.
    fn is_over(&mut self, has_answer: impl FnOnce() -> bool, is_interrupted: bool) -> Option<String> {
        if self.first_at.is_none() && has_answer() {
            self.first_at = Some(Instant::now());
        }
        if self.interrupted_at.is_none() && is_interrupted {
            self.interrupted_at = Some(Instant::now());
        }
        let has_passed = |since: Option<Instant>, most: Duration| since.is_some_and(|at| at.elapsed() > most);
        let behind_max = self.behind_max;
        let after = |most: Duration, what: &str| format!("for {} s after {what}", most.as_secs());
        if has_passed(self.interrupted_at, INTERRUPTED_MAX) {
            Some(after(INTERRUPTED_MAX, "an interrupt"))
        } else {
            has_passed(self.first_at, behind_max).then(|| after(behind_max, "another one"))
        }
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

    /// Goal: a worker that hangs ends no later than some time after the others have answered, and they are heard.
    #[test]
    fn a_worker_that_hangs_is_ended() {
        let mut crew = crew(&["exec sleep 600", "echo '{\"Ok\":7}'"]);
        let mut patience = Patience::new(Duration::from_millis(200));
        let said = crew.wait(0, 2, &mut patience).expect_err("it says nothing");
        assert!(said.contains("was ended"), "{said}");
        assert!(crew.workers[0].was_ended());
        crew.wait(1, 2, &mut patience).expect("an answer");
        assert_eq!(crew.workers[1].recv(), Ok(7));
    }

    /// Goal: nobody is ended while nobody has answered.
    #[test]
    fn the_first_answer_may_take_its_time() {
        let mut crew = crew(&["sleep 0.5; echo '{\"Ok\":1}'", "sleep 0.4; echo '{\"Ok\":2}'"]);
        let mut patience = Patience::new(BEHIND_MAX);
        for place in [0, 1] {
            crew.wait(place, 2, &mut patience).expect("an answer");
        }
        assert_eq!(Patience::new(Duration::ZERO).is_over(|| false, false), None);
    }
}
