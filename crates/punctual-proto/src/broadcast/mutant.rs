//! Mistakes on purpose. In test builds a member can be made with one of them; some check of the model must find it. In other
//! builds there is none, and what asks for it costs nothing.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mutant {
    /// An order record that was lost is passed over: the log goes on behind the gap.
    OrderRecordSkipped,
    /// Uniform messages are delivered before a majority holds them.
    DeliveredBeforeMajority,
    /// A ballot older than the one that was promised is taken.
    OldEpochTaken,
    /// Messages of another view are taken for those of this one.
    OtherViewTaken,
    /// A member that begins anew speaks as the life before, whose numbers it uses again.
    LifeReused,
    /// The check value is not compared.
    CheckIgnored,
    /// A proposal that may have been decided is not proposed again.
    DecidedForgotten,
    /// A ballot goes on without a majority.
    MinorityProposes,
    /// A member that accepts a proposal does not hold all of it.
    AcceptedUnheld,
    /// A frame that comes twice has a second place in the order.
    DoubleOrdered,
    /// A frozen member goes on ordering and delivering.
    NotFrozen,
    /// Gaps are never asked for.
    GapsNotAsked,
    /// Frames that were held by a frozen member count as held in the undisturbed view.
    FrozenMarksCounted,
    /// Frames are numbered though the slowest has not taken those that they write over.
    CreditIgnored,
    /// The sequencer says of what it holds itself that a majority does.
    OwnSpread,
    /// Of a frame of several messages only the first is delivered.
    PackCut,
    /// A frame of the sequencer's that says its place is taken to stand where the known order ends.
    PlaceMistaken,
    /// Messages without order that ask for a majority are delivered before one holds them.
    ReliableUnheld,
    /// A message without order is delivered again at its place in the order.
    DeliveredAgain,
    /// The order passes frames of messages without order that were not delivered yet.
    PassedUndelivered,
    /// At the end of a view all that is here without order is delivered, even what is not part of that view.
    CutIgnored,
    /// Nobody waits for members that leave, and one that lacks a part of the end of its view is told only that it has left.
    LeaverForgotten,
    /// Commands that came during a transfer are not applied at its end.
    BacklogDropped,
    /// A snapshot is taken where the donor asks to begin, not where that is delivered.
    SnapshotEarly,
    /// A transfer whose donor is gone is waited for.
    DonorForgotten,
}

/// The mistake that a member makes, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutants {
    #[cfg(test)]
    one: Option<Mutant>,
}

impl Mutants {
    /// No mistake.
    pub(crate) const NONE: Self = Self {
        #[cfg(test)]
        one: None,
    };

    #[cfg(test)]
    pub(crate) fn only(mutant: Mutant) -> Self {
        Self { one: Some(mutant) }
    }

    /// Returns true if this mistake is made.
    #[inline]
    pub(crate) fn has(self, mutant: Mutant) -> bool {
        #[cfg(test)]
        let has = self.one == Some(mutant);
        #[cfg(not(test))]
        let has = {
            let _ = mutant;
            false
        };
        has
    }
}
