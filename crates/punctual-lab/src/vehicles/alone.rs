//! An endpoint without a node around it, an engine or a plain socket: sends, or receives what all others send, and counts for itself.
//!
//! Async mode over Ethernet is plain sockets, and one receiver that sleeps until a signal, or epoll, tells it of frames: as the
//! original, but for its lost wake-ups. A signal that comes between the last look and the sleep ends the sleep.

use std::sync::Arc;
use std::time::Duration;

use punctual::{Clock, Wake};
use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::Counter;
use punctual_machine::packet::ETHERTYPE_EXPERIMENTAL;
use punctual_machine::scheduling::sleep_precisely;
use punctual_machine::signal::interrupted;
use punctual_proto::Target;

use super::components::{Shared, patience};
use super::notes::Notes;
use super::option::Mode;
use super::process::Workload;
use super::protocol::{Account, Assignment, Facts, Part, WorkloadResult};
use super::publication::Schedule;
use crate::endpoint::{BusPlan, Endpoint, PORT, PacketEndpoint, VALUE_SIZE, open_alone};
use crate::run::lock;

/// Time that others are waited for after the last message was due.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Interval at which a receiver without news checks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// An end that values are sent or received by, and what it is to do.
pub(super) struct Alone {
    endpoint: Box<dyn Endpoint>,
    assignment: Assignment,
    shared: Arc<Shared>,
    /// Of the one that receives.
    notes: Option<Notes>,
}

impl Alone {
    pub(super) fn open(assignment: &Assignment) -> Result<Self, String> {
        let (settings, receives) = (&assignment.settings, assignment.part == Part::Listener);
        let endpoint: Box<dyn Endpoint> = match (&assignment.bus, settings.asked.mode) {
            (BusPlan::Ethernet { interface, .. }, Mode::Async) => {
                let wake = if receives { settings.wake } else { Wake::Spin };
                let opened = PacketEndpoint::open(interface, ETHERTYPE_EXPERIMENTAL, VALUE_SIZE, wake);
                Box::new(opened.map_err(|error| error.to_string())?)
            }
            _ => {
                let (bus, name) = (assignment.bus.stamped_bus(), assignment.part.name());
                open_alone(&bus, &name, Target::everyone_at(PORT))?
            }
        };
        let shared = Arc::<Shared>::default();
        let notes = || Notes::new(Arc::clone(&shared), 0, settings, true);
        let notes = receives.then(notes);
        Ok(Self { endpoint, assignment: assignment.clone(), shared, notes })
    }

    /// Receives until everything came, or will not.
    fn receive_all(&mut self, start_ns: u64, mut notes: Notes) {
        let (settings, mut buffer) = (&self.assignment.settings, [0; VALUE_SIZE]);
        let last = Schedule::new(settings, settings.asked.vehicles as u16, 0);
        let patience_ns = last.end_ns(start_ns) + GRACE.as_nanos() as u64;
        let clock = Clock::get();
        let (look, mut heard) = (clock.ticks(LOOK), clock.now());
        notes.begin(false);
        while self.shared.received.get() < settings.capacity() as u64 && !interrupted() {
            match self.endpoint.receive(&mut buffer, clock.now().plus(look)) {
                // Its messages carry no stamps, so no stage is known.
                Some(got) => {
                    heard = clock.now_after_loads();
                    notes.note_bytes(&buffer[..got.size], None, heard);
                }
                None => {
                    let silence = clock.duration(clock.now().since(heard));
                    let is_late = monotonic_ns() >= patience_ns;
                    if will_no_more_come(patience(settings, self.shared.ended.get()), silence, is_late) {
                        break;
                    }
                }
            }
        }
    }
}

/// Of a process that was late a value may come after the longest silence, so that one alone ends nothing before all were due. Without a
/// barrier that instant is the receiver's own, and others may go on behind it until they are silent.
fn will_no_more_come(
    (most, silence_max): (Option<Duration>, Duration),
    silence: Duration,
    is_late: bool,
) -> bool {
    let is_silent = silence > silence_max;
    is_late && (most.is_some() || is_silent) || is_silent && silence_max < GRACE
}

impl Workload for Alone {
    fn travel(&mut self, start_ns: u64) -> Result<WorkloadResult, String> {
        sleep_precisely();
        let before = Facts::now();
        if let Some(notes) = self.notes.take() {
            self.receive_all(start_ns, notes);
        } else if let Part::Vehicle(vehicle) = self.assignment.part {
            let (clock, schedule) = (Clock::get(), Schedule::new(&self.assignment.settings, vehicle, 0));
            schedule.send_all(start_ns, &self.shared, |value| self.endpoint.send(value, clock.now()));
        }
        let facts = self.shared.facts(&before);
        Ok(WorkloadResult { facts, ..std::mem::take(&mut *lock(&self.shared.noted)) })
    }

    fn account(&mut self) -> Account {
        let Shared { sent, received, mismatched, .. } = &*self.shared;
        let [sent, delivered, mismatched] = [sent, received, mismatched].map(Counter::get);
        let counts = self.endpoint.counts();
        // A sender's socket takes frames too, and nobody reads them.
        let lost = (self.assignment.part == Part::Listener).then_some(counts.lost);
        let counters = [("sent", sent), ("copies", delivered), ("delivered", delivered)];
        let counters = counters.into_iter().chain([("bad_frames", mismatched)]).chain(lost);
        Account {
            broadcast: counts.broadcast.unwrap_or(sent),
            unicast: 0,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
            arrived: delivered,
            lost: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: behind the end of its own time a receiver without a barrier goes on until all are silent; with one it does not. A silence
    /// behind every sender's last value ends either. Method: the wait is limited or not, the silence is shorter or longer.
    #[test]
    fn a_receiver_without_a_barrier_waits_for_silence() {
        let (short, long) = (Duration::from_millis(300), GRACE + LOOK);
        for (most, silence_max, silence, is_late, is_over) in [
            (Some(GRACE), GRACE, LOOK, false, false),
            (Some(GRACE), GRACE, long, false, false),
            (Some(GRACE), GRACE, LOOK, true, true),
            (None, GRACE, LOOK, true, false),
            (None, GRACE, long, true, true),
            (None, GRACE, long, false, false),
            (None, short, long, false, true),
        ] {
            let ended = will_no_more_come((most, silence_max), silence, is_late);
            assert_eq!(ended, is_over, "{most:?} {silence_max:?} {silence:?} {is_late}");
        }
    }
}
