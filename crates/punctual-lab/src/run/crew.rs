//! Workers that stand together, and are told and heard together.

use std::net::Ipv4Addr;

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

    /// Answers of the first so many workers, also after one that failed: an answer not heard would meet the next question. An interrupt
    /// goes on to all at once: in turn, each would go on until those before it have ended.
    pub(crate) fn hear<T>(
        &mut self,
        count: usize,
        hear: impl Fn(&mut Worker) -> Result<T, String>,
    ) -> Vec<Result<T, String>> {
        let one = |place: usize| {
            self.workers[place].wait_for_answer();
            self.workers[..count].iter_mut().for_each(Worker::pass_on_interrupt);
            hear(&mut self.workers[place])
        };
        (0..count).map(one).collect()
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

/// First instruction to the worker at a place.
fn prepare(place: usize, pins: bool) -> Prepare {
    Prepare { apart: false, cpu: if pins { cpu_of(place) } else { None } }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(Worker::dismiss);
    }
}
