//! Messages larger than a frame: a node's state for them, and their reassembly by a receiver.

use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_machine::process::random;
use punctual_proto::fragment::{Assembler, Cut, HEAD_SIZE, Head, Place, Question, Receipt, Refused, State};
use punctual_proto::limits::{ASSEMBLY_AGE, ASSEMBLY_MESSAGES_MAX};
use punctual_proto::recency::elapsed_ns;
use punctual_proto::{Address, Nanos, Target};

use crate::engine::SendError;
use crate::ledger::Count;
use crate::node::About;

/// Fragments that one look takes before it ends without a message: a sender that never ends its message must not keep it.
pub(crate) const FRAGMENTS_PER_LOOK: usize = 1024;

/// State of a node for messages larger than a frame.
#[derive(Debug)]
pub(crate) struct Large {
    /// Largest message, bytes; 0 = none is cut, and no fragment is taken.
    message_size_max: usize,
    shared: Mutex<Shared>,
}

/// State that its communicators share.
#[derive(Debug)]
struct Shared {
    /// Number of the next message that is cut.
    next: u32,
    /// Bytes of all messages that are being put together.
    held: usize,
}

impl Large {
    /// A node that sends and takes messages of so many bytes; 0 = none beyond a frame.
    pub(crate) fn new(message_size_max: usize) -> Self {
        // Another life's numbers begin elsewhere.
        let shared = Mutex::new(Shared { next: random() as u32, held: 0 });
        Self { message_size_max, shared }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Largest message, bytes, where a frame carries so many.
    pub(crate) fn message_size_max(&self, payload_size_max: usize) -> usize {
        self.message_size_max.max(payload_size_max)
    }

    /// The fragments of a message, for frames that carry so much.
    ///
    /// # Errors
    /// [`SendError::TooLong`].
    pub(crate) fn cut(&self, size: usize, payload_size_max: usize) -> Result<Cut, SendError> {
        let size_max = self.message_size_max(payload_size_max);
        let number = || {
            let mut shared = self.shared();
            shared.next = shared.next.wrapping_add(1);
            shared.next
        };
        let cut = if size > size_max { None } else { Cut::new(number(), size, payload_size_max) };
        cut.ok_or(SendError::TooLong { size, size_max })
    }
}

/// Origin of messages that have numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: Address,
    pub(crate) target: Target,
    /// Life of its node, as far as the medium tells.
    pub(crate) life: u64,
    /// All fragments of a message are sealed in one group.
    pub(crate) sealed_in: Option<u32>,
}

/// Fate of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    /// It is where it belongs, or was refused; others of its message are missing.
    Part,
    /// Its message is whole.
    Whole(Place),
    /// It was written over while it was copied.
    Void,
}

/// Between two looks of a receiver that is not away.
const BETWEEN_LOOKS_MAX: Nanos = Nanos(ASSEMBLY_AGE.0 / 2);

/// Time that a receiver that was away looks before it gives something up: the driver of its engine may have been away as well.
pub(crate) const CATCHING_UP: Nanos = Nanos::from_millis(200);

/// Tells if a receiver has looked for long enough that what it has not seen is late.
#[derive(Debug, Default)]
struct Absence {
    last: Nanos,
    /// Since the newest fragment it was away once, and has caught up by then.
    caught_up_at: Option<Nanos>,
}

impl Absence {
    /// A fragment has come.
    fn note_fragment(&mut self, now: Nanos) {
        (self.last, self.caught_up_at) = (now, None);
    }

    /// It begins to look, or to wait.
    fn begin(&mut self, now: Nanos) {
        if self.caught_up_at.is_none() && elapsed_ns(now.0, self.last.0) >= BETWEEN_LOOKS_MAX.0 {
            self.caught_up_at = Some(now.plus(CATCHING_UP));
        }
        self.last = now;
    }

    /// Nothing more is there. Returns true if missing fragments are late.
    fn end(&mut self, now: Nanos) -> bool {
        self.last = now;
        // One that lies further ahead is of before a suspend with which the counter began anew.
        self.caught_up_at.is_none_or(|at| now >= at || at.since(now) > CATCHING_UP)
    }
}

/// One receiver's messages in the making.
#[derive(Debug)]
pub(crate) struct Gatherer {
    assembler: Assembler<Origin>,
    absence: Absence,
}

impl Gatherer {
    pub(crate) fn new(large: &Large) -> Self {
        Self { assembler: Assembler::new(large.message_size_max), absence: Absence::default() }
    }

    /// Takes a fragment whose bytes behind the head, `size` of them, `copy` puts where they belong; it says whether they are what was
    /// sent.
    pub(crate) fn gather(
        &mut self,
        about: &About,
        origin: Origin,
        (head, size): (&[u8; HEAD_SIZE], usize),
        copy: impl FnOnce(&mut [u8]) -> bool,
    ) -> Gathered {
        let now = now(about);
        self.absence.note_fragment(now);
        let head = Head::read(head, size);
        let place = self.counted(about, |assembler, free| match &head {
            Some(head) => assembler.place(origin, head, now, free),
            None => Err(Refused::Contradiction),
        });
        match (place, head) {
            (Ok(place), Some(head)) => {
                if !copy(self.assembler.room(place, &head)) {
                    return Gathered::Void;
                }
                if self.assembler.fill(place, &head, now) { Gathered::Whole(place) } else { Gathered::Part }
            }
            (Err(Refused::Ended), _) => Gathered::Part,
            _ => {
                about.page.count(Count::FragmentsRefused).add(1);
                Gathered::Part
            }
        }
    }

    /// The answer to a question, of a receiver that has room for so many bytes.
    pub(crate) fn answer(
        &mut self,
        about: &About,
        origin: &Origin,
        question: &Question,
        room: u32,
    ) -> Receipt {
        let Question { message, number } = question;
        let progress = self.assembler.answer(*origin, message, now(about));
        let room = match progress.state {
            State::Refused => self.assembler.message_size_max().max(about.payload_size_max) as u32,
            _ => room,
        };
        Receipt { number: message.number, question: *number, room, progress }
    }

    pub(crate) fn bytes(&self, place: Place) -> &[u8] {
        self.assembler.bytes(place)
    }

    /// The message leaves what is being put together. The caller that takes it counts it: as delivered, or as lost.
    pub(crate) fn take(&mut self, about: &About, place: Place) -> Vec<u8> {
        self.counted(about, |assembler, _| assembler.take(place))
    }

    /// The memory of a message that was taken, and is not looked at any more.
    pub(crate) fn give_back(&mut self, about: &About, bytes: Vec<u8>) {
        self.assembler.give_back(bytes, now(about));
    }

    /// True if a message is being put together, or the memory of one is kept.
    #[inline]
    pub(crate) fn is_gathering(&self) -> bool {
        !self.assembler.is_empty()
    }

    /// Its receiver begins to look, where somebody else may read what is for it.
    #[inline]
    pub(crate) fn begin_look(&mut self, about: &About) {
        if !self.assembler.is_empty() {
            self.absence.begin(now(about));
        }
    }

    /// All that had come by then is taken, and there is no message.
    #[inline]
    pub(crate) fn handle_nothing(&mut self, about: &About, by: Nanos) {
        if !self.assembler.is_empty() && self.absence.end(now(about)) {
            self.counted(about, |assembler, _| assembler.handle_timeout(by));
        }
    }

    /// Its receiver closes.
    pub(crate) fn close(&mut self, about: &About) {
        self.counted(about, |assembler, _| assembler.handle_end());
    }

    /// Does something within the memory that the node has left, and counts what that came to.
    fn counted<T>(&mut self, about: &About, work: impl FnOnce(&mut Assembler<Origin>, usize) -> T) -> T {
        let mut shared = about.large.shared();
        let held_max = ASSEMBLY_MESSAGES_MAX * about.large.message_size_max;
        let before = self.assembler.held();
        // Each has room for one message, regardless of what others hold: they may not look for long.
        let own = about.large.message_size_max.saturating_sub(before);
        let done = work(&mut self.assembler, held_max.saturating_sub(shared.held).max(own));
        shared.held = shared.held - before + self.assembler.held();
        drop(shared);
        match self.assembler.take_lost() {
            0 => {}
            lost => about.page.count(Count::LargeLost).add(lost),
        }
        done
    }
}

/// Time, for protocols.
pub(crate) fn now(about: &About) -> Nanos {
    Nanos(about.clock.nanos(about.clock.now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at an instant.
    fn look(absence: &mut Absence, now: Nanos) -> bool {
        absence.begin(now);
        absence.end(now)
    }

    /// Goal: a receiver that was away, perhaps with all of its process, gives nothing up too early. Others first have time to bring
    /// what had come.
    #[test]
    fn a_receiver_that_was_away_catches_up_first() {
        let (mut absence, mut now) = (Absence::default(), Nanos(3 * ASSEMBLY_AGE.0));
        absence.note_fragment(now);
        for _ in 0..100 {
            now = now.plus(Nanos::from_millis(10));
            assert!(look(&mut absence, now));
        }
        absence.begin(now);
        now = now.plus(ASSEMBLY_AGE);
        assert!(absence.end(now), "it waited");
        now = now.plus(ASSEMBLY_AGE);
        assert!(!look(&mut absence, now), "it was away");
        assert!(!look(&mut absence, now.plus(Nanos(CATCHING_UP.0 - 1))));
        assert!(look(&mut absence, now.plus(CATCHING_UP)));
    }

    /// Goal: a receiver that looks once in a long while gives up missing parts at the second look.
    #[test]
    fn a_receiver_that_looks_seldom_gives_up_as_well() {
        let mut absence = Absence::default();
        absence.note_fragment(ASSEMBLY_AGE);
        assert!(!look(&mut absence, Nanos(9 * ASSEMBLY_AGE.0)));
        assert!(look(&mut absence, Nanos(18 * ASSEMBLY_AGE.0)));
        absence.note_fragment(Nanos(19 * ASSEMBLY_AGE.0));
        assert!(!look(&mut absence, Nanos(28 * ASSEMBLY_AGE.0)));
    }
}
