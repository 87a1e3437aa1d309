//! A server with one processor whose requests have classes: the share that each class gets from each scheduling policy.
//!
//! The load is that of the experiment whose tables are reproduced: a closed one of eight classes of sixteen connections, each of
//! which thinks for 50 ms between reply and request; a request takes 0.72 ms in three stages, each a task of its own. The open load
//! comes at random instants, evenly from all classes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Rng;
use crate::classes::{ClassOptions, Next, Policy, Ready, Scheduler};
use crate::time::Nanos;

/// Arrival pattern of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Each connection waits for its reply, thinks, and asks again.
    Closed {
        /// Its thinking time.
        think: Nanos,
    },
    /// Requests come regardless of outstanding ones: so many thousandths of the processor's capacity.
    Open {
        /// Thousandths.
        permille: u32,
    },
}

/// A server under load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Guarantees for each class.
    pub classes: Vec<ClassOptions>,
    /// Connections of each class.
    pub connections: u32,
    /// Processor time of each stage of a request. The last one sends the reply, also where the request is shed.
    pub stages: Vec<Nanos>,
    /// Deadline of class 0's requests after they came; each class has twice that of the one before.
    pub deadline: Nanos,
    /// Arrival pattern of requests.
    pub load: Load,
    /// Time during which requests come. All requests that came are done.
    pub duration: Nanos,
    /// Chance.
    pub seed: u64,
}

/// Results of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// From coming to reply, in order of the replies.
    pub latencies: Vec<Nanos>,
    /// Requests that were shed.
    pub shed: u64,
}

/// Result of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// By class.
    pub classes: Vec<Served>,
    /// Each turn of the processor: when it began, how long it lasted, whose it was.
    pub turns: Vec<(Nanos, Nanos, u8)>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    class: u8,
    arrived: Nanos,
    stage: usize,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A connection asks.
    Asks(u32),
    /// The processor has done the stage.
    Done(Next),
}

#[derive(Debug)]
struct World<'s> {
    server: &'s Server,
    scheduler: Scheduler,
    /// By task, which is a connection, or a request of an open load.
    requests: Vec<Request>,
    events: BTreeMap<(Nanos, u64), Event>,
    order: u64,
    now: Nanos,
    is_busy: bool,
    rng: Rng,
    outcome: Outcome,
}

/// Tasks that may be outstanding: an open load above saturation leaves more behind the longer it lasts.
const TASKS_MAX: usize = 1 << 16;

impl Server {
    /// The experiment's: eight classes of sixteen connections, 5 s.
    #[must_use]
    pub fn of_the_experiment(load: Load) -> Self {
        Self {
            classes: alloc::vec![ClassOptions { floor_permille: 20, sheds: false }; 8],
            connections: 16,
            stages: [100, 520, 100].map(Nanos::from_micros).to_vec(),
            deadline: Nanos::from_millis(5),
            load,
            duration: Nanos::from_millis(5_000),
            seed: 1,
        }
    }

    /// Serves by a policy until all that came is done.
    ///
    /// # Panics
    /// If there are no classes, or their floors are more than the whole.
    #[must_use]
    pub fn serve(&self, policy: Policy) -> Outcome {
        let scheduler = Scheduler::new(&self.classes, policy, TASKS_MAX).expect("the classes are possible");
        let mut world = World {
            server: self,
            scheduler,
            requests: Vec::new(),
            events: BTreeMap::new(),
            order: 0,
            now: Nanos(0),
            is_busy: false,
            rng: Rng::new(self.seed),
            outcome: Outcome {
                classes: alloc::vec![Served::default(); self.classes.len()],
                turns: Vec::new(),
            },
        };
        world.begin();
        while let Some(((at, _), event)) = world.events.pop_first() {
            world.now = at;
            match event {
                Event::Asks(task) => world.ask(task),
                Event::Done(run) => world.finish(&run),
            }
            world.run_next();
        }
        world.outcome
    }

    /// Processor time of a whole request.
    fn service(&self) -> Nanos {
        Nanos(self.stages.iter().map(|stage| stage.0).sum())
    }
}

impl World<'_> {
    fn schedule(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn begin(&mut self) {
        let classes = self.server.classes.len() as u32;
        match self.server.load {
            Load::Closed { think } => {
                for task in 0..classes * self.server.connections {
                    self.requests.push(Request {
                        class: (task % classes) as u8,
                        arrived: Nanos(0),
                        stage: 0,
                    });
                    let at = Nanos(self.rng.below(think.0));
                    self.schedule(at, Event::Asks(task));
                }
            }
            Load::Open { permille } => {
                let mean = Nanos(self.server.service().0 * 1_000 / u64::from(permille.max(1)));
                let mut at = Nanos(0);
                while at < self.server.duration && self.requests.len() < TASKS_MAX {
                    let class = self.rng.below(classes.into()) as u8;
                    self.schedule(at, Event::Asks(self.requests.len() as u32));
                    self.requests.push(Request { class, arrived: at, stage: 0 });
                    at = at.plus(exponential(mean, &mut self.rng));
                }
            }
        }
    }

    fn ask(&mut self, task: u32) {
        let request = &mut self.requests[task as usize];
        (request.arrived, request.stage) = (self.now, 0);
        self.make_ready(task);
    }

    fn make_ready(&mut self, task: u32) {
        let Request { class, arrived, .. } = self.requests[task as usize];
        let deadline = arrived.plus(Nanos(self.server.deadline.0 << class));
        let pushed = self.scheduler.push(Ready { task, class, arrived, deadline }, self.now);
        pushed.expect("there is room for every task");
    }

    fn run_next(&mut self) {
        while !self.is_busy {
            let Some(next) = self.scheduler.next(self.now) else { return };
            let takes = self.time_of(&next);
            self.is_busy = true;
            self.outcome.turns.push((self.now, takes, next.ready.class));
            self.schedule(self.now.plus(takes), Event::Done(next));
        }
    }

    fn time_of(&self, next: &Next) -> Nanos {
        let stages = &self.server.stages;
        let stage = self.requests[next.ready.task as usize].stage;
        stages[if next.why.is_shed() { stages.len() - 1 } else { stage }]
    }

    fn finish(&mut self, done: &Next) {
        let task = done.ready.task;
        self.scheduler.charge(done, self.time_of(done));
        self.is_busy = false;
        if done.why.is_shed() {
            self.outcome.classes[usize::from(done.ready.class)].shed += 1;
            return self.reply(task);
        }
        let request = &mut self.requests[task as usize];
        request.stage += 1;
        if request.stage < self.server.stages.len() {
            return self.make_ready(task);
        }
        let (class, arrived) = (request.class, request.arrived);
        self.outcome.classes[usize::from(class)].latencies.push(self.now.since(arrived));
        self.reply(task);
    }

    /// The client has its answer, of any kind.
    fn reply(&mut self, task: u32) {
        if let Load::Closed { think } = self.server.load {
            let again = self.now.plus(think);
            if again < self.server.duration {
                self.schedule(again, Event::Asks(task));
            }
        }
    }
}

/// A time between two that come at random (von Neumann, 1951: by comparisons alone, so that no logarithm is needed).
fn exponential(mean: Nanos, rng: &mut Rng) -> Nanos {
    let mut whole = 0;
    loop {
        let first = rng.number();
        let (mut last, mut falls) = (first, 0_u32);
        loop {
            let next = rng.number();
            if next > last {
                break;
            }
            (last, falls) = (next, falls + 1);
        }
        if falls.is_multiple_of(2) {
            let part = (u128::from(first) * u128::from(mean.0)) >> 64;
            return Nanos(mean.0 * whole + part as u64);
        }
        whole += 1;
    }
}

impl Served {
    /// Mean of the latencies.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        let sum: u64 = self.latencies.iter().map(|latency| latency.0).sum();
        Nanos(sum / (self.latencies.len() as u64).max(1))
    }

    /// The latency that so many thousandths of the requests do not exceed (nearest rank).
    #[must_use]
    pub fn quantile(&self, permille: u32) -> Nanos {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * permille as usize).div_ceil(1_000).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

/// The policies of the table, by name.
pub const POLICIES: [(&str, Policy); 6] = [
    ("fifo", Policy::Fifo),
    ("strict", Policy::Strict),
    ("stride", Policy::Stride),
    ("deadline", Policy::Deadline),
    ("aging 20 ms", Policy::Aging(Nanos::from_millis(20))),
    ("floors 2 %", Policy::Floors),
];
