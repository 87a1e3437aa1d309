//! The halves of an engine as a node holds them.
//!
//! Shared memory stands by its own type: the compiler then sees from the ring to the application, and what was just parsed
//! is not stored and read again on its way through a table of functions. Every other medium, and every layer, costs more
//! than that.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use super::shared::{SharedReceive, SharedTransmit};
use super::{Event, Flow, Receive, SendError, Transmit};
use punctual_proto::NodeId;

/// The sending half.
#[derive(Debug)]
pub(crate) enum Sender {
    Shared(Box<SharedTransmit>),
    Other(Box<dyn Transmit>),
}

/// The receiving half.
#[derive(Debug)]
pub(crate) enum Receiver {
    Shared(Box<SharedReceive>),
    Other(Box<dyn Receive>),
}

impl From<Box<dyn Transmit>> for Sender {
    fn from(half: Box<dyn Transmit>) -> Self {
        if !(&*half as &dyn Any).is::<SharedTransmit>() {
            return Self::Other(half);
        }
        Self::Shared((half as Box<dyn Any>).downcast().expect("its type was looked at"))
    }
}

impl From<Box<dyn Receive>> for Receiver {
    fn from(half: Box<dyn Receive>) -> Self {
        if !(&*half as &dyn Any).is::<SharedReceive>() {
            return Self::Other(half);
        }
        Self::Shared((half as Box<dyn Any>).downcast().expect("its type was looked at"))
    }
}

impl Sender {
    #[inline]
    pub(crate) fn claim(&mut self, target: Option<NodeId>, size: usize) -> Result<u32, SendError> {
        match self {
            Self::Shared(half) => half.claim(target, size),
            Self::Other(half) => half.claim(target, size),
        }
    }

    #[inline]
    pub(crate) fn claimed(&mut self) -> &mut [u8] {
        match self {
            Self::Shared(half) => half.claimed(),
            Self::Other(half) => half.claimed(),
        }
    }

    #[inline]
    pub(crate) fn commit(&mut self) {
        match self {
            Self::Shared(half) => half.commit(),
            Self::Other(half) => half.commit(),
        }
    }

    #[inline]
    pub(crate) fn flush(&mut self) {
        match self {
            Self::Shared(half) => half.flush(),
            Self::Other(half) => half.flush(),
        }
    }
}

impl Receiver {
    #[inline]
    pub(crate) fn poll(&mut self, limit: usize, visit: &mut impl FnMut(Event<'_>) -> Flow) -> usize {
        match self {
            Self::Shared(half) => half.poll_with(limit, visit),
            Self::Other(half) => half.poll(limit, visit),
        }
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Shared(half) => half.is_ready(),
            Self::Other(half) => half.is_ready(),
        }
    }
}

impl Deref for Sender {
    type Target = dyn Transmit;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Shared(half) => &**half,
            Self::Other(half) => &**half,
        }
    }
}

impl DerefMut for Sender {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Shared(half) => &mut **half,
            Self::Other(half) => &mut **half,
        }
    }
}

impl Deref for Receiver {
    type Target = dyn Receive;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Shared(half) => &**half,
            Self::Other(half) => &**half,
        }
    }
}

impl DerefMut for Receiver {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Shared(half) => &mut **half,
            Self::Other(half) => &mut **half,
        }
    }
}
