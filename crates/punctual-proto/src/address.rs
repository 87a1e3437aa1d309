//! Sender and receivers of a message.

use core::fmt;
use core::num::NonZeroU64;

/// One process's presence on its buses. Neither zero nor all ones, which stand for *nobody* and *everybody*.
///
/// A name gives the same id everywhere, so two programs agree on it without a directory:
///
/// ```
/// use punctual_proto::NodeId;
/// assert_eq!(NodeId::named("brakes"), NodeId::named("brakes"));
/// assert_ne!(NodeId::named("brakes"), NodeId::named("radar"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(NonZeroU64);

impl NodeId {
    /// The id with this number, unless the number is reserved (0 and `u64::MAX`).
    #[inline]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() != u64::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// The id that belongs to a name: FNV-1a over its bytes (Fowler, Noll, Vo; 64-bit parameters),
    /// with its bits mixed once more by the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
    pub const fn named(name: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let bytes = name.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        match Self::new(hash) {
            Some(id) => id,
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl From<&str> for NodeId {
    #[inline]
    fn from(name: &str) -> Self {
        Self::named(name)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.get())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// A communicator's place at its node: 16 bits. 65535 stands for *all ports* on media, so nobody can bind it, and what is
/// sent there reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(u16);

impl Port {
    /// The number that stands for *all ports* on media.
    #[inline]
    pub const fn is_reserved(self) -> bool {
        self.0 == u16::MAX
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
}

// The only conversion from a number, so that a literal needs no suffix.
impl From<u16> for Port {
    #[inline]
    fn from(number: u16) -> Self {
        Self(number)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One communicator: a port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node.
    pub node: NodeId,
    /// The port at that node.
    pub port: Port,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.port)
    }
}

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// One node, or everybody on the bus.
    pub node: Option<NodeId>,
    /// One port, or all ports of those nodes.
    pub port: Option<Port>,
}

impl Target {
    /// All ports of all nodes on the bus, the sender's own node included, the sender itself excepted.
    pub const EVERYONE: Self = Self { node: None, port: None };

    /// One port of one node.
    ///
    /// ```
    /// use punctual_proto::{NodeId, Target};
    /// assert_eq!(Target::port("pong", 7400).to_string(), format!("{}:7400", NodeId::named("pong")));
    /// ```
    pub fn port(node: impl Into<NodeId>, port: impl Into<Port>) -> Self {
        Self { node: Some(node.into()), port: Some(port.into()) }
    }

    /// All ports of one node.
    pub fn node(node: impl Into<NodeId>) -> Self {
        Self { node: Some(node.into()), port: None }
    }

    /// The same port of every node on the bus.
    pub fn everyone_at(port: impl Into<Port>) -> Self {
        Self { node: None, port: Some(port.into()) }
    }

    /// Returns true if this node is meant.
    #[inline]
    pub fn includes_node(self, node: NodeId) -> bool {
        self.node.is_none_or(|target| target == node)
    }

    /// Returns true if this port is meant, at a node that is.
    #[inline]
    pub fn includes_port(self, port: Port) -> bool {
        self.port.is_none_or(|target| target == port)
    }
}

impl From<Address> for Target {
    #[inline]
    fn from(address: Address) -> Self {
        Self { node: Some(address.node), port: Some(address.port) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "{node}:")?,
            None => f.write_str("everyone:")?,
        }
        match self.port {
            Some(port) => write!(f, "{port}"),
            None => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_are_refused() {
        assert!(NodeId::new(0).is_none());
        assert!(NodeId::new(u64::MAX).is_none());
        assert!(Port::from(u16::MAX).is_reserved());
        assert!(!Port::from(u16::MAX - 1).is_reserved());
        assert_eq!(NodeId::new(7).map(NodeId::get), Some(7));
    }

    #[test]
    fn a_target_includes_whom_it_names() {
        let (a, b) = (NodeId::named("a"), NodeId::named("b"));
        let (one, two) = (Port::from(1), Port::from(2));
        assert!(Target::EVERYONE.includes_node(a) && Target::EVERYONE.includes_port(two));
        assert!(Target::node(a).includes_node(a) && !Target::node(a).includes_node(b));
        assert!(Target::port(a, one).includes_port(one) && !Target::port(a, one).includes_port(two));
        assert!(Target::everyone_at(one).includes_node(b) && !Target::everyone_at(one).includes_port(two));
    }
}
