//! How a member fares: for those who watch it.

use super::Member;

/// What a member has repaired and asked, and how far its user is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Frames that it missed and got as repairs.
    pub repaired: u64,
    /// Messages by which it repaired what others missed.
    pub repairs_sent: u64,
    /// Times that it asked others for what it missed.
    pub questions: u64,
    /// So much of the order that is known here its user has not taken.
    pub lag: u64,
    /// The place whose user takes least, if that is half a window behind what a majority holds: soon all wait for it, or do.
    pub slowest: Option<usize>,
}

impl Member {
    /// How it fares, over all its lives.
    pub fn account(&self) -> Account {
        let lag = self.order.mark().saturating_sub(self.progress.taken);
        Account { lag, slowest: self.slowest(), ..self.account }
    }

    /// So much of the order the user of a member has taken, as far as is known here.
    pub(super) fn taken_by(&self, place: usize) -> u64 {
        if place == self.own { self.progress.taken } else { self.peers[place].taken }
    }

    fn slowest(&self) -> Option<usize> {
        let slowest = self.view.members().iter().min_by_key(|&place| self.taken_by(place))?;
        let behind = self.progress.uniform.saturating_sub(self.taken_by(slowest));
        (2 * behind >= self.options.window as u64).then_some(slowest)
    }
}
