//! Steps of a process's start, and of its first message's way: causes say whose time each is.

/// Step of a start that took some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    /// The clock was made ready.
    Clock,
    /// Keys were made ready, before the process was.
    Keys,
    /// A node was opened, before the process was ready.
    Node,
    /// It waited for a processor.
    Queued,
    /// A node was opened while the first message waited.
    NodeOnPath,
    /// Keys were made ready while the first message waited.
    KeysOnPath,
    /// Signals interrupted it: a count, not a time.
    Signals,
}
