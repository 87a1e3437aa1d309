//! Async mode where there are no plain sockets to listen at: one node whose observer (`Communicator::on_message`) is called
//! back with every value, asleep until the doorbell, epoll or a signal wakes it.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual::{Clock, CommunicatorOptions, Node, NodeOptions, Observer, Wake};
use punctual_machine::async_io::signals_delivered;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::scheduling::{sleep_precisely, sleep_until};
use punctual_machine::signal::interrupted;

use super::first::Watch;
use super::process::{Needed, Workload, WorkloadEnd, account_of};
use super::protocol::{Account, Assignment, Facts};
use super::publication::Schedule;
use super::value::{Record, Value};

/// How long after the last message was due others are waited for.
const GRACE: Duration = Duration::from_secs(2);
/// The port that engines without nodes send to.
const PORT: u16 = 1;

/// What the callback made of a message.
type Noted = Option<Record>;

/// A node with an observer.
pub(super) struct Observed {
    node: Node,
    observer: Option<Observer>,
    watch: Arc<Mutex<Watch>>,
    noted: Receiver<Noted>,
    assignment: Assignment,
}

impl Observed {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let wake: Wake = assignment.wake.parse()?;
        let opened = NodeOptions::new(&assignment.part.name()).open(&assignment.bus.bus());
        let node = opened.map_err(|error| error.to_string())?;
        let options = CommunicatorOptions {
            inbox_size: Some(assignment.inbox_size),
            ..CommunicatorOptions::waiting(wake)
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
        Ok(Self { node, observer: Some(observer), watch, noted, assignment: assignment.clone() })
    }
}

impl Workload for Observed {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadEnd, String> {
        sleep_precisely();
        let (needed, signals) = (Needed::now(), signals_delivered());
        let expected = self.assignment.vehicles * self.assignment.count;
        let last = Schedule::new(&self.assignment, self.assignment.vehicles as u16, 0);
        let patience_ns = last.end_ns(start_ns) + GRACE.as_nanos() as u64;
        let (mut facts, mut records) = (Facts::default(), Vec::with_capacity(expected));
        while records.len() < expected && monotonic_ns() < patience_ns && !interrupted() {
            // Seldom, so that the one who is looked at is not disturbed.
            sleep_until(monotonic_ns() + 50_000_000);
            for noted in self.noted.try_iter() {
                match noted {
                    Some(record) => records.push(record),
                    None => facts.mismatched += 1,
                }
            }
        }
        facts.signals = signals_delivered() - signals;
        needed.note(&mut facts);
        let beginning = self.watch.lock().map(|mut watch| watch.finish());
        let (skipped, beginnings) = (Vec::new(), beginning.into_iter().collect());
        // Its messages carry no stamps, so no stage is known that windows could explain.
        Ok(WorkloadEnd { facts, records, skipped, beginnings, windows: Vec::new() })
    }

    fn account(&mut self) -> Account {
        drop(self.observer.take());
        account_of(&self.node)
    }
}
