//! Messages that a recording has in fragments, put together again: an incomplete message is counted, and never played.

use punctual_proto::fragment::{Assembler, Part, Refused};
use punctual_proto::limits::{ASSEMBLY_MESSAGES_MAX, MESSAGE_SIZE_MAX};
use punctual_proto::{Address, Nanos, Target};

use super::Entry;
use super::reading::Told;

/// Memory for messages in the making, bytes.
const HELD_MAX: usize = ASSEMBLY_MESSAGES_MAX * MESSAGE_SIZE_MAX;

/// Puts the messages of a recording together.
#[derive(Debug)]
pub(super) struct Gatherer {
    assembler: Assembler<(Address, Target)>,
    /// Fragments that were taken: time, as instants of a file may go back.
    taken: u64,
    /// Messages that are missing before the fragments that were taken since a message was told of it.
    owed: u64,
}

impl Gatherer {
    pub(super) fn new() -> Self {
        Self { assembler: Assembler::new(MESSAGE_SIZE_MAX), taken: 0, owed: 0 }
    }

    /// Takes what a recording has next, and its bytes; they are the message's if there is one.
    pub(super) fn take(&mut self, entry: Entry, bytes: &mut Vec<u8>, told: &mut Told) -> Option<Entry> {
        self.owed = self.owed.saturating_add(entry.missed);
        if entry.is_fragment && !self.gather(&entry, bytes, told) {
            return None;
        }
        let missed = std::mem::take(&mut self.owed);
        if !entry.is_fragment {
            return Some(Entry { missed, ..entry });
        }
        // Each fragment had a seal of its own.
        Some(Entry { missed, is_fragment: false, is_unopened: false, size: bytes.len(), ..entry })
    }

    /// True if the message of this fragment is whole, and in `bytes`.
    fn gather(&mut self, entry: &Entry, bytes: &mut Vec<u8>, told: &mut Told) -> bool {
        self.taken += 1;
        let now = Nanos(self.taken);
        let (head, part) = match Part::read(&bytes[..entry.message_size()]) {
            Some(Part::Fragment(head, part)) => (head, part),
            // A question or a receipt between nodes is no message.
            Some(Part::Question(_) | Part::Receipt(_)) => return false,
            None => {
                told.incomplete += 1;
                return false;
            }
        };
        let free = HELD_MAX.saturating_sub(self.assembler.held());
        let place = self.assembler.place((entry.source, entry.target), &head, now, free);
        told.incomplete += self.assembler.take_lost();
        let place = match place {
            Ok(place) => place,
            // It was said again, or its message was counted.
            Err(Refused::Ended) => return false,
            Err(Refused::Contradiction | Refused::TooLong) => {
                told.incomplete += 1;
                return false;
            }
        };
        self.assembler.room(place, &head).copy_from_slice(part);
        let is_whole = self.assembler.fill(place, &head, now);
        if is_whole {
            let before = std::mem::replace(bytes, self.assembler.take(place));
            self.assembler.give_back(before, now);
        }
        is_whole
    }

    /// Nothing follows.
    pub(super) fn end(&mut self, told: &mut Told) {
        self.assembler.handle_end();
        told.incomplete += self.assembler.take_lost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_proto::NodeId;
    use punctual_proto::fragment::{Cut, Question};
    use punctual_proto::seal::SEAL_SIZE;

    const SEAL: [u8; SEAL_SIZE] = [0xEE; SEAL_SIZE];

    fn entry(sequence: u64, is_fragment: bool, is_unopened: bool, size: usize) -> Entry {
        let source = Address { node: NodeId::named("camera"), port: 1.into() };
        // Clocks may be set back.
        let seen_ns = 1_000 - sequence;
        let entry = Entry::new(source, Target::EVERYONE, size);
        Entry { sequence, missed: 1, seen_ns, is_unopened, is_fragment, ..entry }
    }

    fn message(number: u32, size: usize) -> Vec<u8> {
        (0..size).map(|at| (at as u32 * 7 + number) as u8).collect()
    }

    /// The payloads of a message's fragments.
    fn fragments(number: u32, size: usize) -> Vec<Vec<u8>> {
        let message = message(number, size);
        let cut = Cut::new(number, size, 316).expect("it can be cut");
        cut.map(|head| [&head.to_bytes()[..], &message[head.range()]].concat()).collect()
    }

    /// Result of gathering such payloads, with seals or without.
    fn gathered(payloads: &[Vec<u8>], is_unopened: bool) -> (Vec<(Entry, Vec<u8>)>, Told) {
        let (mut gatherer, mut told, mut found) = (Gatherer::new(), Told::default(), Vec::new());
        for (sequence, payload) in (0..).zip(payloads) {
            let mut bytes = payload.clone();
            if is_unopened {
                bytes.extend_from_slice(&SEAL);
            }
            let entry = entry(sequence, true, is_unopened, bytes.len());
            found.extend(gatherer.take(entry, &mut bytes, &mut told).map(|entry| (entry, bytes)));
        }
        gatherer.end(&mut told);
        (found, told)
    }

    /// Goal: a complete message is one message without seals, once, at the place of its last fragment, with the messages missing before
    /// it.
    #[test]
    fn fragments_become_one_message() {
        for is_unopened in [false, true] {
            let (first, second) = (fragments(7, 1_000), fragments(8, 700));
            // One after the other and in between, and some of them twice.
            let mixed = [&first[..2], &second[..1], &first[1..], &second[..], &first[3..]].concat();
            let (found, told) = gathered(&mixed, is_unopened);
            assert_eq!(told, Told::default());
            let expected = [(message(7, 1_000), 5), (message(8, 700), 8)];
            let mut missed = 0;
            for ((entry, bytes), (message, sequence)) in found.iter().zip(&expected) {
                assert_eq!((bytes, entry.size), (message, message.len()));
                assert_eq!((entry.sequence, entry.is_fragment, entry.is_unopened), (*sequence, false, false));
                missed += entry.missed;
                assert_eq!(missed, sequence + 1);
            }
            assert_eq!(found.len(), 2);
        }
    }

    /// Goal: of a message of which a fragment is missing nothing is shown, and it is counted once; so is what is no fragment. Questions
    /// and receipts between nodes count nowhere.
    #[test]
    fn an_incomplete_message_is_counted() {
        let whole = fragments(7, 1_000);
        for missing in 0..whole.len() {
            let mut rest = whole.clone();
            rest.remove(missing);
            let (found, told) = gathered(&rest, true);
            assert!(found.is_empty() && told.incomplete == 1, "without {missing}: {found:?}, {told:?}");
        }
        let (found, told) = gathered(&[vec![1; 40], Vec::new()], false);
        assert!(found.is_empty() && told.incomplete == 2, "{found:?}, {told:?}");
        let head = Cut::new(7, 1_000, 316).and_then(|mut cut| cut.next()).expect("it can be cut");
        let question = Question { message: head, number: 3 }.to_bytes().to_vec();
        let (found, told) = gathered(&[question], false);
        assert!(found.is_empty() && told.incomplete == 0, "{found:?}, {told:?}");
    }
}
