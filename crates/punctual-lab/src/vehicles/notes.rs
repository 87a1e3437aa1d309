//! A subscriber's notes on the values that it receives, and on how it began.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use punctual::interest::Response;
use punctual::{Stages, Ticks};

use super::components::Shared;
use super::first::{Beginning, Watch};
use super::value::{Record, Value};
use crate::endpoint::VALUE_SIZE;

/// Notes that a thread hands over.
pub(super) type Noted = (Vec<Record>, Beginning);

/// Notebook of a subscriber. Dropped, it hands over what it has.
pub(super) struct Notes {
    shared: Arc<Shared>,
    component: u16,
    count: u32,
    records: Vec<Record>,
    watch: Watch,
    to: Sender<Noted>,
}

impl Notes {
    /// Of a component of which this many values are sent, with room for `capacity` records; without any it keeps none.
    pub(super) fn new(
        (shared, to): (Arc<Shared>, Sender<Noted>),
        component: u16,
        count: u32,
        capacity: usize,
    ) -> Self {
        let (records, watch) = (Record::room_for(capacity, component), Watch::new(component, true));
        Self { shared, component, count, records, watch, to }
    }

    /// The calling thread listens from now on.
    pub(super) fn begin(&mut self) {
        self.watch.begin();
    }

    /// A thread that is about to be started, and has waited for nothing, listens from now on.
    pub(super) fn begin_elsewhere(&mut self) {
        self.watch.begin_elsewhere();
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
                    self.records.push(Record::new(value, self.component, received, stages));
                }
                self.shared.received.add(1);
                self.watch.note(value.origin.vehicle);
            }
            Some(_) => {}
            None => self.shared.mismatched.add(1),
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        if self.records.capacity() > 0 {
            let _gone = self.to.send((std::mem::take(&mut self.records), self.watch.finish()));
        }
    }
}
