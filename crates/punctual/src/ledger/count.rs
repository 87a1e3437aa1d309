//! Counters of a node and of its communicators, by their places in a page.

use punctual_proto::Port;

/// A counter of a node. Each is written under one lock, so that counting costs a load and a store: `Sent`, `CopiesLocal`, `SendFull`
/// and `Refused` under the node's lock for senders; `MissedWakeups`, the `Seal…`, the `Closed…`, the `Large…`, `FragmentsRefused` and
/// `CopiesRefused` by atomic addition; all others under the lock for receivers; rows under their inbox's lock, but `Delivered` by the
/// communicator alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Sent,
    Copies,
    CopiesLocal,
    Arrived,
    NoSuchPort,
    LostOverrun,
    LostBufferFull,
    LostBadFrame,
    LostMedium,
    LostPeerDied,
    Duplicates,
    BadFrames,
    BufferDrops,
    Overruns,
    CorruptPeers,
    SendFull,
    Refused,
    MissedWakeups,
    Joined,
    Left,
    Died,
    ClosedEnqueued,
    ClosedDelivered,
    ClosedInboxFull,
    ClosedUnread,
    SealMissing,
    SealUnexpected,
    SealUnknownKey,
    SealBadTag,
    SealReplayed,
    SealStale,
    LostRefused,
    Restarts,
    LargeSent,
    LargeDelivered,
    LargeLost,
    FragmentsRefused,
    CopiesRefused,
}

/// Counters of one communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowCount {
    /// Port number plus one; 0 = the row is free.
    Port,
    /// Put into the inbox.
    Enqueued,
    /// Taken by the application.
    Delivered,
    InboxFull,
    /// Taken by the application straight from the engine, without passing through the inbox.
    Direct,
    /// Sent, where that is counted by communicator: in memory.
    Sent,
}

/// Why there is no row for a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowError {
    /// Another communicator of the node has the port.
    Taken(Port),
    /// The node has as many communicators as it can have.
    TooMany,
}
