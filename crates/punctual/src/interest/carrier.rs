//! The communicator of a driver, which outlives it if its user takes it back.

use std::ops::{Deref, DerefMut};

use crate::communicator::Communicator;

/// The communicator, until it is given back.
#[derive(Debug)]
pub(super) struct Carrier(Option<Communicator>);

impl Carrier {
    pub(super) fn new(communicator: Communicator) -> Self {
        Self(Some(communicator))
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Gives it back, when nobody ends its waits any more.
    pub(super) fn take(&mut self) -> Communicator {
        let mut communicator = self.0.take().expect("it is given back once");
        communicator.forget_nudges();
        communicator
    }
}

impl Deref for Carrier {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        self.0.as_ref().expect("it is given back last")
    }
}

impl DerefMut for Carrier {
    fn deref_mut(&mut self) -> &mut Communicator {
        self.0.as_mut().expect("it is given back last")
    }
}
