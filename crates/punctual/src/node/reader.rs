//! Reader of messages where they lie, while the engine's receiving half is held for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use punctual_machine::counter::Counter;
use punctual_proto::Address;

/// A reader to which messages are shown, in place of a landing.
pub(crate) struct Reader<'a> {
    show: &'a mut dyn FnMut(Address, &[u8]),
    /// Messages that it still wants before others have their turn.
    left: usize,
    /// Payload of the reader's panic, once it has panicked. It is shown no more, and the engine's turn ends as any other.
    panic: Option<Box<dyn Any + Send>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(show: &'a mut dyn FnMut(Address, &[u8]), limit: usize) -> Self {
        Self { show, left: limit, panic: None }
    }

    #[inline]
    pub(crate) fn wants_more(&self) -> bool {
        self.left > 0
    }

    /// Shows source and payload of a message, which is delivered.
    #[inline]
    pub(crate) fn show(&mut self, source: Address, payload: &[u8]) {
        self.left -= 1;
        // Its user learns of the panic in `finish`.
        let shown = catch_unwind(AssertUnwindSafe(|| (self.show)(source, payload)));
        if let Err(panic) = shown {
            (self.panic, self.left) = (Some(panic), 0);
        }
    }

    /// Returns the number of messages that it still wants. Panics on if it has panicked.
    pub(crate) fn finish(self) -> usize {
        match self.panic {
            Some(panic) => resume_unwind(panic),
            None => self.left,
        }
    }
}

/// The thread that has one half of the engine for longer than a call of it takes: it would wait for itself.
#[derive(Debug, Default)]
pub(crate) struct HoldingThread(Counter);

fn this_thread() -> u64 {
    std::thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr() as u64)
}

impl HoldingThread {
    /// Reads on this thread for as long as `read` takes.
    #[inline]
    pub(crate) fn during<T>(&self, read: impl FnOnce() -> T) -> T {
        self.begin();
        let done = read();
        self.end();
        done
    }

    /// This thread has the half from now on.
    #[inline]
    pub(crate) fn begin(&self) {
        self.0.set(this_thread());
    }

    /// It gives the half back.
    #[inline]
    pub(crate) fn end(&self) {
        self.0.set(0);
    }

    /// True if any thread has it.
    pub(crate) fn is_held(&self) -> bool {
        self.0.get() != 0
    }

    /// True if this thread has it.
    pub(crate) fn is_this(&self) -> bool {
        self.0.get() == this_thread()
    }

    /// # Panics
    /// If this thread shows messages just now: it would wait for itself.
    pub(crate) fn refuse_this(&self) {
        assert!(
            !self.is_this(),
            "a function that Communicator::poll shows messages to must neither wait for messages of its node, nor ask or change that"
        );
    }
}
