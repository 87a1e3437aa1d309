//! A receiver's notes: the values that reach it, when it began to listen, and when it had the first value of each sender.

use std::sync::Arc;

use punctual::interest::Response;
use punctual::{Clock, Stages, Ticks};
use punctual_machine::scheduling::SchedStat;

use super::components::Shared;
use super::first::{Beginning, Look};
use super::option::VehiclesSettings;
use super::value::{Record, Value};
use crate::endpoint::VALUE_SIZE;
use crate::run::lock;

/// Senders that have a number.
const SENDERS_MAX: usize = 1 << 16;
/// Looks that allocate nothing.
const LOOKS_MAX: usize = 256;

/// A bit for each sender.
struct SenderSet(Vec<u64>);

impl Default for SenderSet {
    fn default() -> Self {
        Self(vec![0; SENDERS_MAX / 64])
    }
}

impl SenderSet {
    /// Returns true if it was not in it.
    #[inline]
    fn insert(&mut self, vehicle: u16) -> bool {
        let (word, bit) = (&mut self.0[usize::from(vehicle) / 64], 1 << (vehicle % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Notebook of a receiver. Dropped, it hands over what it has.
pub(super) struct Notes {
    shared: Arc<Shared>,
    count: u32,
    records: Vec<Record>,
    schedstat: Option<SchedStat>,
    /// Senders of which a value came, and of which the last one came.
    seen: SenderSet,
    ended: SenderSet,
    beginning: Beginning,
}

impl Notes {
    /// Of a component; its values are counted, and kept if that is wanted.
    pub(super) fn new(shared: Arc<Shared>, component: u16, settings: &VehiclesSettings, keeps: bool) -> Self {
        let capacity = if keeps { settings.capacity() } else { 0 };
        let looks = Vec::with_capacity(LOOKS_MAX);
        Self {
            shared,
            count: settings.count as u32,
            records: Record::room_for(capacity, component),
            schedstat: None,
            seen: SenderSet::default(),
            ended: SenderSet::default(),
            beginning: Beginning { component, is_own_thread: true, looks },
        }
    }

    /// The calling thread listens from now on: one of its own, or the one that opened the process.
    pub(super) fn begin(&mut self, is_own_thread: bool) {
        self.beginning.is_own_thread = is_own_thread;
        self.look();
    }

    /// A thread that is about to be started, and has waited for nothing, listens from now on.
    pub(super) fn begin_elsewhere(&mut self) {
        self.beginning.looks.push(Look { at: Clock::get().now().0, queued_ns: 0 });
    }

    fn look(&mut self) {
        let schedstat = self.schedstat.get_or_insert_with(SchedStat::of_this_thread);
        self.beginning.looks.push(Look::now(schedstat));
    }

    /// A value whose probe was reached at `received`, unless it was for newcomers.
    #[inline]
    pub(super) fn note(&mut self, response: &Response<[u8; VALUE_SIZE]>, received: Ticks) {
        if !response.at_once {
            self.note_bytes(&response.value, response.stages.as_ref(), received);
        }
    }

    /// The same of a message.
    #[inline]
    pub(super) fn note_bytes(&mut self, bytes: &[u8], stages: Option<&Stages>, received: Ticks) {
        match Value::parse(bytes) {
            Some(value) if value.origin.number < self.count => {
                if self.records.len() < self.records.capacity() {
                    self.records.push(Record::new(value, self.beginning.component, received, stages));
                }
                self.shared.received.add(1);
                if self.seen.insert(value.origin.vehicle) {
                    self.look();
                }
                if value.origin.number + 1 == self.count && self.ended.insert(value.origin.vehicle) {
                    self.shared.ended.add(1);
                }
            }
            Some(_) => {}
            None => self.shared.mismatched.add(1),
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        if self.records.capacity() > 0 {
            let mut noted = lock(&self.shared.noted);
            noted.records.append(&mut self.records);
            noted.beginnings.push(std::mem::take(&mut self.beginning));
        }
    }
}
