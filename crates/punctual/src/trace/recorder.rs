//! The newest messages' stages, in memory of fixed size, formatted after the run.

use punctual_proto::Address;

use super::Stages;

/// One recorded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The sender.
    pub source: Address,
    /// Its place in the sender's stream.
    pub sequence: u32,
    /// Where its time went.
    pub stages: Stages,
}

/// Keeps the newest records, overwriting the oldest.
#[derive(Debug)]
pub struct Recorder {
    records: Vec<Record>,
    capacity: usize,
    /// Where the next one goes once the vector is full.
    next: usize,
}

impl Recorder {
    /// A recorder of this many messages. Its memory is reserved at once.
    pub fn new(capacity: usize) -> Self {
        Self { records: Vec::with_capacity(capacity), capacity, next: 0 }
    }

    /// Keeps a record.
    #[inline]
    pub fn record(&mut self, record: Record) {
        if self.records.len() < self.capacity {
            self.records.push(record);
        } else if let Some(oldest) = self.records.get_mut(self.next) {
            *oldest = record;
            self.next = if self.next + 1 == self.capacity { 0 } else { self.next + 1 };
        }
    }

    /// The records that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        let (newer, older) = self.records.split_at(self.next);
        older.iter().chain(newer)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.records.clear();
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ReceiverStamps;
    use punctual_proto::{NodeId, Port, Stamps};

    #[test]
    fn the_newest_are_kept_in_order() {
        let record = |sequence| Record {
            source: Address { node: NodeId::named("a"), port: Port::from(1) },
            sequence,
            stages: Stages {
                sender: Stamps::default(),
                receiver: ReceiverStamps::default(),
                one_clock: true,
            },
        };
        let mut recorder = Recorder::new(3);
        for sequence in 0..5 {
            recorder.record(record(sequence));
        }
        assert_eq!(recorder.iter().map(|record| record.sequence).collect::<Vec<_>>(), [2, 3, 4]);
        recorder.clear();
        assert_eq!(recorder.iter().count(), 0);
        Recorder::new(0).record(record(1));
    }
}
