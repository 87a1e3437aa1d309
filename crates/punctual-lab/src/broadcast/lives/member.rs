//! A process that broadcasts and delivers until it is killed, or until all is over, and writes down each of its lives.

use std::time::Instant;

use punctual::broadcast::{BroadcastError, Delivery, Group, Guarantee};
use punctual::{Node, NodeId};
use punctual_machine::clock::monotonic_ns;

use super::history::{END, number};
use super::log::{Delivered, Entry};
use crate::broadcast::digest::hash_of;
use crate::broadcast::halt::Halt;
use crate::broadcast::kernel_faults::KernelFaults;
use crate::broadcast::log::{BETWEEN_ORDERS, LogWriter, OVER, STOP, is_ordered, log_path};
use crate::broadcast::member::{BETWEEN_TRIES, Joining, Pool, prefix};
use crate::broadcast::option::Planted;
use crate::broadcast::protocol::{Joined, ProcessPlan};

/// The planted error happens at this delivery.
const PLANTED_AT: u64 = 100;

/// A member as long as its process lasts.
pub(in crate::broadcast) struct Lasting {
    plan: ProcessPlan,
    group: Group,
    /// The group is over it.
    _node: Node,
    _faults: Option<KernelFaults>,
    roster: Vec<NodeId>,
    pool: Pool,
    log: LogWriter,
    sent: u64,
    delivered: u64,
    /// It has said since the last view that it broadcasts nothing more.
    has_ended: bool,
    /// The message that is written behind the next one, on purpose.
    exchanged: Option<Entry>,
}

impl Lasting {
    /// Joins, and lives until all is over.
    pub(in crate::broadcast) fn live(plan: ProcessPlan) -> Result<(Self, Joined), Halt> {
        let log = LogWriter::create(&log_path(&plan.folder, plan.member.place, plan.incarnation))?;
        // A member that comes back joins the others: a second founder would be alone in a view of its own.
        let founds = plan.member.place == 0 && plan.incarnation == 0;
        let Joining { node, group, roster, faults, .. } =
            Joining::open(&plan.member, founds, plan.suspect_after)?;
        let pool = Pool::new(&plan.member);
        let mut member = Self {
            plan,
            _faults: faults,
            group,
            _node: node,
            roster,
            pool,
            log,
            sent: 0,
            delivered: 0,
            has_ended: false,
            exchanged: None,
        };
        member.run()?;
        let frame = member.group.account().frame_size;
        Ok((member, Joined { frame }))
    }

    fn run(&mut self) -> Result<(), Halt> {
        let (mut look_at, mut stops) = (Instant::now(), false);
        loop {
            if Instant::now() >= look_at {
                stops = stops || is_ordered(&self.plan.folder, STOP);
                if stops && is_ordered(&self.plan.folder, OVER) {
                    return Ok(());
                }
                look_at = Instant::now() + BETWEEN_ORDERS;
            }
            if !stops {
                while self.broadcast(0)? {}
            } else if !self.has_ended {
                self.has_ended = self.broadcast(END)?;
            }
            self.deliver()?;
        }
    }

    /// Offers the next message. Says whether the group took it.
    fn broadcast(&mut self, flag: u64) -> Result<bool, Halt> {
        let number = number(self.plan.incarnation, self.sent) | flag;
        let message = self.pool.message(number);
        match self.group.try_broadcast(message) {
            Ok(()) => {}
            Err(error @ BroadcastError::Size { .. }) => return Err(Halt::Stuck(error.to_string())),
            Err(_) => return Ok(false),
        }
        self.sent += 1;
        let hash = hash_of(self.plan.member.place as u64, message) as u64;
        self.log.add(&Entry::Sent { number, hash })?;
        Ok(true)
    }

    /// Writes down what comes next, if something does.
    fn deliver(&mut self) -> Result<(), Halt> {
        let entry = match self.group.deliver(BETWEEN_TRIES) {
            Ok(Delivery::Message(message)) => {
                let sender = self.roster.iter().position(|&node| node == message.sender);
                let nobody = || Halt::Stuck("a message of nobody in the roster".to_owned());
                let sender = sender.ok_or_else(nobody)?;
                let [number, sent_ns] = prefix(message.payload);
                Entry::Delivered(Delivered {
                    sender,
                    life: message.life,
                    view: message.view,
                    index: message.number << 16 | u64::from(message.part),
                    number,
                    hash: hash_of(sender as u64, message.payload) as u64,
                    is_uniform: message.guarantee == Guarantee::Uniform,
                    sent_ns,
                    at_ns: monotonic_ns(),
                })
            }
            Ok(Delivery::View(view)) => {
                // A member that joins now has not heard that nothing more comes.
                self.has_ended = false;
                Entry::of_view(&view, &self.roster)
            }
            Ok(Delivery::Expelled) => {
                self.has_ended = false;
                Entry::Expelled { at_ns: monotonic_ns() }
            }
            Ok(Delivery::Stopped | Delivery::Resumed) | Err(_) => return Ok(()),
        };
        self.write(entry).map_err(Halt::Machine)
    }

    fn write(&mut self, mut entry: Entry) -> Result<(), String> {
        if let Entry::Delivered(message) = &mut entry {
            self.delivered += 1;
            let planted = self.plan.member.planted.filter(|_| self.plan.incarnation == 0);
            match planted.filter(|_| self.delivered == PLANTED_AT) {
                Some(Planted::Content) => message.hash ^= 1,
                Some(Planted::Order) => {
                    self.exchanged = Some(entry);
                    return Ok(());
                }
                Some(Planted::Lost) => return Ok(()),
                None => {}
            }
        }
        self.log.add(&entry)?;
        self.exchanged.take().map_or(Ok(()), |entry| self.log.add(&entry))
    }
}
