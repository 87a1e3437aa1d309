//! Guarantee of a message, as its sender chooses.

/// Condition on which a message is delivered, and the other members that deliver it then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantee {
    /// In the order, when a majority holds it and all before it: if one member delivered it, even one that crashed, all others deliver
    /// it.
    #[default]
    Uniform,
    /// In the order, when that is known here: all members that go on to the next view deliver it, or none. One that crashes may
    /// have delivered what the others never do.
    Agreed,
    /// Without order, when a majority holds it: if one member delivered it, even one that crashed, all others deliver it. Those of one
    /// sender come in the order in which it sent them.
    Reliable,
    /// Without order, when it is here: all members that go on to the next view deliver it, or none. Those of one sender come in
    /// the order in which it sent them.
    BestEffort,
}

/// Ways past the order: one for each guarantee without it.
pub(super) const LANES: usize = 2;
/// The lane of messages that wait for a majority.
pub(super) const RELIABLE: usize = 0;
/// The lane of those that wait for nobody.
pub(super) const BEST_EFFORT: usize = 1;

impl Guarantee {
    /// Returns true if all members deliver it at one place among all that have an order.
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::Uniform | Self::Agreed)
    }

    /// Returns true if it waits for a majority that holds it.
    pub const fn is_uniform(self) -> bool {
        matches!(self, Self::Uniform | Self::Reliable)
    }

    /// The one with these properties.
    pub(super) const fn of(is_ordered: bool, is_uniform: bool) -> Self {
        match (is_ordered, is_uniform) {
            (true, true) => Self::Uniform,
            (true, false) => Self::Agreed,
            (false, true) => Self::Reliable,
            (false, false) => Self::BestEffort,
        }
    }

    /// On which way it passes the order; `None` if it keeps to it.
    pub(super) const fn lane(self) -> Option<usize> {
        match self {
            Self::Uniform | Self::Agreed => None,
            Self::Reliable => Some(RELIABLE),
            Self::BestEffort => Some(BEST_EFFORT),
        }
    }
}
