//! The messages that a follower of a membership takes.

use punctual_proto::interest::{Message, Saying};

use crate::communicator::Sender;
use crate::keyed_group::{Membership, Watch};

/// The membership that publications and subscriptions follow.
#[derive(Debug)]
pub(super) struct Followed {
    membership: Membership,
    _watch: Watch,
    version_seen: u64,
    group: Option<u32>,
}

impl Followed {
    /// From its next look on. `sender` is woken when the membership changes.
    pub(super) fn new(membership: &Membership, sender: Sender) -> Self {
        let (membership, watch) = (membership.clone(), membership.watch(sender));
        Self { membership, _watch: watch, version_seen: u64::MAX, group: None }
    }

    /// True if it is in no group.
    pub(super) fn is_away(&self) -> bool {
        self.group.is_none()
    }

    /// Returns true if the group may have changed since the last look.
    pub(super) fn look(&mut self) -> bool {
        let version = self.membership.version();
        let has_changed = version != self.version_seen;
        if has_changed {
            (self.version_seen, self.group) = (version, self.membership.group());
        }
        has_changed
    }

    /// True if a message is for us: sealed in our group, or of our own node without a seal. Such a message has not left this process: a
    /// node that seals refuses everything that comes from its medium without a seal. A member that leaves withdraws from outside the
    /// group.
    pub(super) fn takes(&self, sealed_in: Option<u32>, is_own: bool, message: &Message<'_>) -> bool {
        let withdraws = matches!(message.saying, Saying::Withdrawal { .. });
        let is_local = is_own && sealed_in.is_none();
        withdraws || self.group.is_some() && (is_local || sealed_in == self.group)
    }
}
