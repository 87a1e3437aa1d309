//! A process that serves a store to clients of its own, until it is killed or all is over. It writes down their requests and the
//! answers. Clients live on the thread that drives the group, so that no way lies between them and their member.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use punctual::broadcast::{BroadcastError, Change, Replica, ReplicaError};
use punctual::{Node, NodeId};
use punctual_machine::clock::monotonic_ns;
use punctual_proto::sim::Rng;

use super::log::{Entry, Invoked};
use super::option::{KvPlan, Reads, VALUE_SIZE_MAX};
use super::store::{Op, Request, Store, digest_of};
use crate::broadcast::halt::Halt;
use crate::broadcast::kernel_faults::KernelFaults;
use crate::broadcast::lives::log::Entry as GroupEntry;
use crate::broadcast::log::{BETWEEN_ORDERS, LogWriter, OVER, STOP, is_ordered, log_path};
use crate::broadcast::member::{BETWEEN_TRIES, Joining, Pool};
use crate::broadcast::option::Planted;
use crate::broadcast::protocol::{Joined, ProcessPlan};

/// The file that says how many clients the group has.
pub(super) const CLIENTS: &str = "clients";

/// Commands that are applied before clients go on.
const BATCH: usize = 64;

/// Largest message of the group: a command holds any value.
const MESSAGE_SIZE_MAX: usize = 2 * VALUE_SIZE_MAX;

/// The planted error happens at this answer of a get.
const PLANTED_AT: u64 = 100;

/// Number of clients at a place, of so many: one after the other, the sequencer's last.
fn share(clients: usize, place: usize, members: usize) -> usize {
    (0..clients).filter(|client| (client + 1) % members == place).count()
}

/// The operation that a client waits for.
#[derive(Clone, Copy, Debug)]
struct Pending {
    op: Op,
    key: u64,
    /// The value that it puts.
    value: u64,
    /// A value of the key that was overwritten for certain, of a get; or that this put overwrites.
    older: Option<u64>,
}

/// Values of this process's puts that were answered, to give a wrong answer on purpose.
#[derive(Debug, Default)]
struct Older {
    /// Of each key the newest, and one that was overwritten before.
    newest: HashMap<u64, u64>,
    overwritten: HashMap<u64, u64>,
}

/// A member as long as its process lasts.
pub(in crate::broadcast) struct Serving {
    plan: ProcessPlan,
    kv: KvPlan,
    replica: Replica<Store>,
    /// The replica is over it.
    _node: Node,
    roster: Vec<NodeId>,
    rng: Rng,
    pool: Pool,
    log: LogWriter,
    /// Clients here, and those of them that wait for nothing.
    clients: usize,
    idle: usize,
    pending: HashMap<u64, Pending>,
    /// Commands that the group has not taken yet.
    offered: VecDeque<Vec<u8>>,
    operations: u64,
    /// Gets that were answered here.
    gets: u64,
    /// A command was applied since the last view.
    is_working: bool,
    _faults: Option<KernelFaults>,
    /// It has said since the last view that it gives nothing more.
    has_ended: bool,
    stops: bool,
    older: Option<Older>,
}

impl Serving {
    /// Joins, and serves until all is over.
    pub(in crate::broadcast) fn live(plan: ProcessPlan, kv: KvPlan) -> Result<(Self, Joined), Halt> {
        let log = LogWriter::create(&log_path(&plan.folder, plan.member.place, plan.incarnation))?;
        let founds = plan.member.place == 0 && plan.incarnation == 0;
        let faults = KernelFaults::of(&plan.member)?;
        let (node, mut options) = Joining::options(&plan.member, founds, plan.suspect_after)?;
        options.message_size_max = MESSAGE_SIZE_MAX;
        let replica = Replica::join(&node, &options, Store::default())?;
        let plants = plan.member.planted == Some(Planted::Order) && plan.incarnation == 0;
        let mut member = Self {
            kv,
            _faults: faults,
            replica,
            _node: node,
            roster: options.roster,
            rng: Rng::new(plan.member.seed),
            pool: Pool::new(&plan.member),
            log,
            clients: 0,
            idle: 0,
            pending: HashMap::new(),
            offered: VecDeque::new(),
            operations: 0,
            gets: 0,
            is_working: false,
            has_ended: false,
            stops: false,
            older: plants.then(Older::default),
            plan,
        };
        member.grow(kv.clients);
        member.run()?;
        let frame = member.replica.account().frame_size;
        Ok((member, Joined { frame }))
    }

    fn run(&mut self) -> Result<(), Halt> {
        let mut look_at = Instant::now();
        loop {
            if Instant::now() >= look_at {
                self.stops = self.stops || is_ordered(&self.plan.folder, STOP);
                if self.stops && is_ordered(&self.plan.folder, OVER) {
                    return self.end().map_err(Halt::Machine);
                }
                if let Some(clients) = ordered_clients(&self.plan.folder) {
                    self.grow(clients);
                }
                look_at = Instant::now() + BETWEEN_ORDERS;
            }
            self.ask();
            // A client's request is written down before anybody can see it done.
            self.log.flush()?;
            self.offer()?;
            self.take()?;
        }
    }

    /// All copies are equal now, and each says what it is.
    fn end(&mut self) -> Result<(), String> {
        if let Some(store) = self.replica.state() {
            self.log.put(&Entry::State { at_ns: monotonic_ns(), values: store.all() });
        }
        self.log.flush()
    }

    /// So many clients in the whole group; they are never fewer than before.
    fn grow(&mut self, clients: usize) {
        let here = share(clients, self.plan.member.place, self.plan.member.members);
        self.idle += here.saturating_sub(self.clients);
        self.clients = self.clients.max(here);
    }

    /// Each client that waits for nothing asks for something.
    fn ask(&mut self) {
        if self.stops {
            return;
        }
        let Some(store) = self.replica.state() else { return };
        for _ in 0..self.idle {
            let is_put = self.rng.below(100) < u64::from(self.kv.puts_percent);
            let key = self.rng.below(self.kv.keys);
            let invoked_ns = monotonic_ns();
            if !is_put && self.kv.reads == Reads::Local {
                let value = store.get(key);
                self.log.put(&Entry::Read { key, value, invoked_ns, at_ns: monotonic_ns() });
                continue;
            }
            self.operations += 1;
            let operation = self.operations;
            let (op, bytes): (Op, &[u8]) =
                if is_put { (Op::Put, self.pool.message(operation)) } else { (Op::Get, &[]) };
            let value = if is_put { digest_of(bytes) } else { 0 };
            let incarnation = self.plan.incarnation;
            self.offered.push_back(Request { op, incarnation, operation, key, value: bytes }.to_bytes());
            let older =
                self.older.as_ref().map(|older| if is_put { &older.newest } else { &older.overwritten });
            let older = older.and_then(|values| values.get(&key).copied());
            self.pending.insert(operation, Pending { op, key, value, older });
            self.log.put(&Entry::Invoked(Invoked { operation, is_put, key, value, at_ns: invoked_ns }));
            self.idle -= 1;
        }
    }

    /// Gives the group as many commands as it takes; the last of all says that no more come.
    fn offer(&mut self) -> Result<(), Halt> {
        while let Some(command) = self.offered.front() {
            if !is_taken(self.replica.try_broadcast(command))? {
                return Ok(());
            }
            self.offered.pop_front();
        }
        if self.stops && self.pending.is_empty() && !self.has_ended {
            let incarnation = self.plan.incarnation;
            let end = Request { op: Op::End, incarnation, operation: 0, key: 0, value: &[] };
            self.has_ended = is_taken(self.replica.try_broadcast(&end.to_bytes()))?;
        }
        Ok(())
    }

    /// Applies what comes, for a while, and gives clients their answers.
    fn take(&mut self) -> Result<(), Halt> {
        let reads_on = self.idle > 0 && !self.stops && self.replica.state().is_some();
        let mut wait = match (reads_on, self.offered.is_empty()) {
            (true, _) => Duration::ZERO,
            (_, false) => BETWEEN_TRIES,
            (_, true) => BETWEEN_ORDERS,
        };
        for _ in 0..BATCH {
            match self.replica.deliver(wait) {
                Ok(Change::Applied { message, .. }) => {
                    let sender = self.roster.iter().position(|&node| node == message.sender);
                    let wrong = |what: &str| Halt::Stuck(what.to_owned());
                    let sender = sender.ok_or_else(|| wrong("a command of nobody in the roster"))?;
                    let request = Request::read(message.payload);
                    let request = request.ok_or_else(|| wrong("a command that is none"))?;
                    let Request { op, incarnation, operation, .. } = request;
                    self.work();
                    if op == Op::End {
                        self.log.put(&Entry::Ended { place: sender, incarnation });
                    } else if (sender, incarnation) == (self.plan.member.place, self.plan.incarnation) {
                        self.answer(operation);
                    }
                }
                Ok(Change::Restored) => self.work(),
                Ok(Change::View(view)) => {
                    // A member that joins now has not heard that nothing more comes.
                    (self.has_ended, self.is_working) = (false, false);
                    let view = GroupEntry::of_view(&view, &self.roster);
                    self.log.put(&Entry::Group(Box::new(view)));
                }
                Ok(Change::Expelled) => self.forget(),
                Ok(Change::Stopped | Change::Resumed) => {}
                Err(ReplicaError::Empty) => break,
                Err(error) => return Err(Halt::Stuck(error.to_string())),
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    /// The member has the state and takes part.
    fn work(&mut self) {
        if !std::mem::replace(&mut self.is_working, true) {
            self.log.put(&Entry::Working);
        }
    }

    /// It is not known whether the requests were done: clients ask for something else.
    fn forget(&mut self) {
        (self.has_ended, self.is_working) = (false, false);
        self.offered.clear();
        self.idle += self.pending.len();
        self.pending.clear();
        let expelled = GroupEntry::Expelled { at_ns: monotonic_ns() };
        self.log.put(&Entry::Group(Box::new(expelled)));
    }

    /// A client has its answer: its operation stands in the order here.
    fn answer(&mut self, operation: u64) {
        let Some(pending) = self.pending.remove(&operation) else { return };
        let Some(store) = self.replica.state() else { return };
        let value = match pending.op {
            Op::Put => pending.value,
            _ => store.get(pending.key),
        };
        let value = self.wrong(pending, value).unwrap_or(value);
        self.idle += 1;
        self.log.put(&Entry::Answered { operation, value, at_ns: monotonic_ns() });
    }

    /// A wrong answer, where one is to be given on purpose.
    fn wrong(&mut self, Pending { op, key, value: put, older }: Pending, value: u64) -> Option<u64> {
        if op == Op::Put {
            let known = self.older.as_mut()?;
            known.newest.insert(key, put);
            known.overwritten.extend(older.map(|older| (key, older)));
            return None;
        }
        self.gets += 1;
        match self.plan.member.planted? {
            Planted::Content => (self.gets == PLANTED_AT && self.plan.incarnation == 0).then_some(value ^ 1),
            Planted::Order => {
                let older = older?;
                self.older = None;
                Some(older)
            }
            // The command refuses it.
            Planted::Lost => None,
        }
    }
}

/// Returns true if the group took a command; if not, it may later.
fn is_taken(result: Result<(), BroadcastError>) -> Result<bool, Halt> {
    match result {
        Ok(()) => Ok(true),
        Err(error @ BroadcastError::Size { .. }) => Err(Halt::Stuck(error.to_string())),
        Err(_) => Ok(false),
    }
}

/// Number of clients that the group is to have, if the folder says so.
fn ordered_clients(folder: &Path) -> Option<usize> {
    std::fs::read_to_string(folder.join(CLIENTS)).ok()?.trim().parse().ok()
}
