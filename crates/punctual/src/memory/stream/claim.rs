//! A message that is written in place.

use punctual_machine::ring::Spacing;

use super::prefix::Prefix;
use super::publication::Publication;

/// Room for a message, written in place: the payload is written once.
#[derive(Debug)]
pub struct PublicationClaim<'a> {
    publication: &'a mut Publication,
    prefix: Prefix,
}

impl<'a> PublicationClaim<'a> {
    pub(super) fn of(publication: &'a mut Publication, prefix: Prefix) -> Self {
        Self { publication, prefix }
    }

    /// The payload to be written. Its bytes are those that were there before.
    pub fn payload(&mut self) -> &mut [u8] {
        &mut self.publication.claimed_frame()[self.prefix.size()..]
    }

    /// Sends it.
    pub fn commit(self) {
        self.publication.commit(self.prefix, Spacing::Lines);
        self.publication.hand_over();
    }
}
