//! Async mode where there are no plain sockets to listen at: one node whose observer (`Communicator::on_message`) is called
//! back with every value, asleep until the doorbell, epoll or a signal wakes it.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use punctual::{Clock, CommunicatorOptions, Node, NodeOptions, Observer};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_machine::signal::interrupted;

use super::first::Watch;
use super::process::{Workload, account_of};
use super::protocol::{Account, Assignment, Facts, WorkloadResult};
use super::value::{Record, Value};
use crate::endpoint::PORT;

/// What the callback made of a message.
type Noted = Option<Record>;

/// A node with an observer.
pub(super) struct Observed {
    node: Node,
    observer: Option<Observer>,
    watch: Arc<Mutex<Watch>>,
    noted: Receiver<Noted>,
    records: Vec<Record>,
    assignment: Assignment,
}

impl Observed {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let opened = NodeOptions::new(&assignment.part.name()).open(&assignment.bus.bus());
        let node = opened.map_err(|error| error.to_string())?;
        let options = CommunicatorOptions {
            inbox_size: Some(assignment.inbox_size),
            ..CommunicatorOptions::waiting(assignment.wake)
        };
        let communicator = node.bind_with(PORT, &options).map_err(|error| error.to_string())?;
        let (to, noted) = channel();
        let clock = Clock::get();
        let mut watch = Watch::new(0, true);
        watch.begin_elsewhere();
        let watch = Arc::new(Mutex::new(watch));
        let of_observer = Arc::clone(&watch);
        let observer = communicator.on_message(move |message| {
            let received = clock.now();
            let value = Value::parse(message.payload);
            if let (Some(value), Ok(mut watch)) = (value, of_observer.lock()) {
                watch.note(value.origin.vehicle);
            }
            let _gone = to.send(value.map(|value| Record::new(value, 0, received, message.stages.as_ref())));
        });
        let observer = observer.map_err(|error| error.to_string())?;
        let records = Record::room_for(assignment.vehicles * assignment.count, 0);
        Ok(Self { node, observer: Some(observer), watch, noted, records, assignment: assignment.clone() })
    }
}

impl Workload for Observed {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadResult, String> {
        sleep_precisely();
        let (before, signals_before) = (Facts::now(), signals_delivered());
        let (expected, patience_ns) = self.assignment.awaited(start_ns);
        let (mut mismatched, mut records) = (0, std::mem::take(&mut self.records));
        while records.len() < expected && monotonic_ns() < patience_ns && !interrupted() {
            // Seldom, so that the one who is looked at is not disturbed.
            sleep_until(monotonic_ns() + 50_000_000);
            for noted in self.noted.try_iter() {
                match noted {
                    Some(record) => records.push(record),
                    None => mismatched += 1,
                }
            }
        }
        let signals = signals_delivered() - signals_before;
        let facts = Facts { mismatched, signals, ..Facts::since(&before) };
        let beginning = self.watch.lock().map(|mut watch| watch.finish());
        let beginnings = beginning.into_iter().collect();
        // Its messages carry no stamps, so no stage is known that windows could explain.
        Ok(WorkloadResult { facts, records, beginnings, ..WorkloadResult::default() })
    }

    fn account(&mut self) -> Account {
        drop(self.observer.take());
        account_of(&self.node)
    }
}
