//! Result of opening a node, and its errors.

use std::fmt;

use punctual_machine::SystemError;
use punctual_proto::NodeId;
use punctual_proto::limits::NAME_SIZE_MAX;

/// Advice where the error says all that is known.
pub(crate) const NO_ADVICE: &str = "";

/// Why an engine could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A name, size or number that cannot be: the text says which and what can.
    Invalid(String),
    /// Another live node has this id: take another name.
    NodeTaken {
        /// The id.
        node: NodeId,
        /// Its process; 0 where it is not known, or of another pid namespace.
        pid: u32,
    },
    /// There are as many nodes on the bus as a bus can have: take another bus for some of them.
    BusFull {
        /// Number of nodes that a bus can have.
        nodes_max: usize,
    },
    /// The medium of an adapter would not open. The text says what it is and what it said; it may another time.
    Medium(String),
    /// The machine refused. The text names the object and what to do.
    System {
        /// The error.
        error: SystemError,
        /// Advice that may help; empty if the error says all that is known.
        advice: &'static str,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) | Self::Medium(text) => f.write_str(text),
            Self::NodeTaken { node, pid: 0 } => {
                write!(
                    f,
                    "node {node} is already on the bus (a process that cannot be seen from here): take another name"
                )
            }
            Self::NodeTaken { node, pid } => {
                write!(f, "node {node} is already on the bus (process {pid}): take another name")
            }
            Self::BusFull { nodes_max } => {
                write!(
                    f,
                    "the bus has {nodes_max} nodes already, which is the most: take another bus for some"
                )
            }
            Self::System { error, advice: NO_ADVICE } => error.fmt(f),
            Self::System { error, advice } => write!(f, "{error} ({advice})"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Facts about itself that a node learns when it joins.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// Life of the node, as it stands in its frames.
    pub incarnation: u16,
}

/// Checks that a name can be a part of a file name.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), OpenError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if plain && (1..=NAME_SIZE_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(OpenError::Invalid(format!(
        "{what} {name:?}: 1 to {NAME_SIZE_MAX} letters, digits, hyphens and underscores are needed"
    )))
}
