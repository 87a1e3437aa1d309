//! The floor: one shared slot each way.

use punctual_machine::slot::SlotPair;

use super::{PATIENCE, Pair, Temporary, path};
use crate::Outcome;
use crate::meeting::Meeting;

pub(super) struct Slot {
    pair: SlotPair,
    asleep: bool,
    _file: Option<Temporary>,
}

impl Slot {
    pub(super) fn open(meeting: &Meeting, asleep: bool) -> Outcome<Self> {
        let path = path(meeting, "slots");
        let pair = if meeting.here { SlotPair::create(&path)? } else { SlotPair::open(&path)? };
        Ok(Self { pair, asleep, _file: meeting.here.then(|| Temporary(path)) })
    }
}

impl Pair for Slot {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        if self.asleep {
            self.pair.put_and_wake(message);
        } else {
            self.pair.put(message);
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        if self.asleep {
            return self.pair.get_asleep(message, PATIENCE).then_some(()).ok_or_else(|| "no answer".into());
        }
        while !self.pair.try_get(message) {
            self.pair.pause();
        }
        Ok(())
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        // A message in the slot waits there for the other end.
        Ok(())
    }
}
