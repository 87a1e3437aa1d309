//! Somebody plays back what was said before, as it was or with a bit flipped.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Fault, Participant, Rng, World};

impl<P: Participant> World<P> {
    pub(super) fn replay_any(&mut self, number: u64) {
        let mut rng = Rng::at(&[self.seed, u64::MAX - 1, number]);
        let message = rng.below(self.sent().len() as u64);
        let flip = rng.happens(500).then(|| rng.below(1 << 16) as u32);
        self.record.hit(Fault::Replay { at: self.now, message, flip });
        self.replay(message, flip);
    }

    pub(super) fn replay(&mut self, message: u64, flip: Option<u32>) {
        let Some(sent) = self.sent().get(message as usize).cloned() else { return };
        let bytes = flip.map_or(sent.bytes.clone(), |bit| flipped(&sent.bytes, bit));
        self.record.note(self.now, None, || {
            let how = flip.map_or(String::new(), |bit| format!(", bit {bit} flipped"));
            format!("somebody plays back message {message}, {}{how}", P::describe(&sent.bytes))
        });
        self.show(sent.source, sent.target, &bytes);
    }
}

pub(super) fn flipped(bytes: &[u8], bit: u32) -> Rc<[u8]> {
    let mut bytes = Vec::from(bytes);
    if let Some(bits) = (bytes.len() as u64 * 8).checked_sub(1) {
        let at = u64::from(bit) % (bits + 1);
        bytes[(at / 8) as usize] ^= 1 << (at % 8);
    }
    Rc::from(bytes)
}
