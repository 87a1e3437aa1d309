//! Digests of what a member delivered: its content, and its order where that is promised.

use twox_hash::XxHash3_128;

use super::option::BroadcastKind;

/// Of a message and its sender.
pub(super) fn hash_of(sender: u64, payload: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(sender, payload)
}

/// Digest of the delivered messages, one after the other.
#[derive(Debug, Default)]
pub(super) struct Digest {
    pub(super) content: u128,
    /// Of all messages if they have one order; otherwise of those of each sender.
    orders: Vec<u128>,
    is_ordered: bool,
    /// Of each sender, the highest number that was delivered.
    last: Vec<Option<u64>>,
    /// Messages that came behind a later one of their sender.
    pub(super) out_of_turn: u64,
}

impl Digest {
    /// Odd, so that no message is forgotten however many follow (the golden ratio's fraction).
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

    pub(super) fn of(kind: BroadcastKind) -> Self {
        Self { is_ordered: kind.is_ordered(), ..Self::default() }
    }

    pub(super) fn add(&mut self, sender: u64, payload: &[u8]) -> u64 {
        let hash = hash_of(sender, payload);
        self.content = self.content.wrapping_add(hash);
        let stream = if self.is_ordered { 0 } else { sender as usize };
        if self.orders.len() <= stream {
            self.orders.resize(stream + 1, 0);
        }
        self.orders[stream] = self.orders[stream].wrapping_mul(Self::FACTOR).wrapping_add(hash);
        hash as u64
    }

    /// Notes the number that a message has among those of its sender.
    pub(super) fn note_number(&mut self, sender: u64, number: u64) {
        let stream = sender as usize;
        if self.last.len() <= stream {
            self.last.resize(stream + 1, None);
        }
        let last = &mut self.last[stream];
        self.out_of_turn += u64::from(*last >= Some(number));
        *last = (*last).max(Some(number));
    }

    /// The same at all members that delivered the same in the orders that are promised: a hash has its sender in it.
    pub(super) fn order(&self) -> u128 {
        self.orders.iter().fold(0, |all, order| all.wrapping_add(*order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a message behind a later one of its sender is out of turn, and those of two senders are not compared.
    #[test]
    fn a_senders_messages_keep_their_order() {
        let late = |told: &[(u64, u64)]| {
            let mut digest = Digest::of(BroadcastKind::Beb);
            told.iter().for_each(|&(sender, number)| digest.note_number(sender, number));
            digest.out_of_turn
        };
        assert_eq!(late(&[(0, 0), (1, 0), (0, 1), (1, 1), (0, 5)]), 0);
        assert_eq!(late(&[(0, 0), (0, 2), (0, 1), (0, 3)]), 1);
        assert_eq!(late(&[(1, 0), (1, 0)]), 1);
    }
}
