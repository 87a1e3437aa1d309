//! The end of all that a medium had, as its driver finds it, for components that wait for the driver.

use punctual_machine::counter::Counter;

/// Numbered questions whether all that the medium had was looked at. The driver answers all of them at once.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    asked: Counter,
    found: Counter,
}

impl Ends {
    /// Asks for a look that begins from now on. Returns its number.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.add_published(1);
        self.asked.get_published()
    }

    /// True if such a look has found the end: what came before the question is in the inboxes.
    pub(crate) fn has_found(&self, number: u64) -> bool {
        self.found.get_published() >= number
    }

    /// The newest question, if it has no answer yet. Asked for before a look.
    #[inline]
    pub(super) fn wanted(&self) -> Option<u64> {
        let asked = self.asked.get_published();
        (self.found.get() != asked).then_some(asked)
    }

    /// The look has found the end.
    pub(super) fn answer(&self, number: u64) {
        self.found.publish(number);
    }
}
