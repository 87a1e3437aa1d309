//! Messages that were taken from the medium and are still to be received: one that did not fit into its receiver's buffer, and those
//! that came while a large one was sent.

use super::{Communicator, End};

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.kept || !self.is_of_this_process() {
            return;
        }
        match &self.end {
            End::Wire(end) => end.lose_landed(),
            // It is in no ring any more: its account says delivered.
            End::Memory(_) => _ = self.message(),
        }
    }
}

impl Communicator {
    /// It is watched, or a message is kept.
    #[inline]
    pub(super) fn takes_detour(&self) -> bool {
        self.watch.is_some() | self.has_kept()
    }

    /// A message is here that has been taken from the medium.
    #[inline]
    pub(super) fn has_kept(&self) -> bool {
        self.kept | self.waiting
    }

    /// The message that landed is received next. Until then it waits.
    #[cold]
    pub(super) fn keep(&mut self) {
        self.kept = true;
        if let End::Wire(end) = &mut self.end {
            end.note_waiting();
        }
    }

    /// Lets such a message land.
    pub(super) fn land_kept(&mut self) -> bool {
        if std::mem::take(&mut self.kept) {
            return true;
        }
        match &mut self.end {
            End::Wire(end) if self.waiting => {
                self.waiting = end.land_held();
                true
            }
            _ => false,
        }
    }
}
