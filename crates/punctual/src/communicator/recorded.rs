//! The stages of received messages, as far as they are kept.

use super::{Communicator, End};
use crate::trace::Record;

impl Communicator {
    /// Records what memory delivered last, while the next message is waited for: copied at once, it would stand before an answer.
    #[inline]
    pub(super) fn record_last(&mut self) {
        if std::mem::take(&mut self.unrecorded) {
            self.record_now();
        }
    }

    #[inline(never)]
    fn record_now(&mut self) {
        if let End::Memory(end) = &self.end
            && let Some(record) = end.last_record()
        {
            self.recorder.record(record);
        }
    }

    /// The stages of the newest messages received, oldest first, as far as
    /// [`crate::CommunicatorOptions::recorded`] keeps them.
    pub fn recorded(&mut self) -> impl Iterator<Item = &Record> {
        self.record_last();
        self.recorder.iter()
    }
}
