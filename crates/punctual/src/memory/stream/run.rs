//! Messages of a publication that readers see together.

use std::marker::PhantomData;

use punctual_machine::ring::Spacing;

use super::options::OfferError;
use super::publication::Publication;

/// A run of messages. Readers see some kilobytes of it at a time, and the rest when it is dropped; sleeping readers are woken then.
#[derive(Debug)]
pub struct Run<'a> {
    publication: &'a mut Publication,
    /// Another thread could not end it: stores of this one are awaited at its end.
    _stays: PhantomData<*const ()>,
}

impl<'a> Run<'a> {
    #[inline]
    pub(super) fn of(publication: &'a mut Publication) -> Self {
        Self { publication, _stays: PhantomData }
    }

    /// Sends a copy of the message; never waits.
    ///
    /// # Errors
    /// See [`OfferError`]; the message was then not sent.
    #[inline]
    pub fn offer(&mut self, payload: &[u8]) -> Result<(), OfferError> {
        self.publication.append(payload, None, Spacing::Dense)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // In a forked child: the ring is its parent's, which may have written on.
        if self.publication.is_of_this_process() {
            self.publication.hand_over();
        }
    }
}
