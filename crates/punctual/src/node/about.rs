//! What is known of a node, whatever its medium.

use punctual_machine::clock::Clock;
use punctual_machine::process::{ProcessIdentity, random};
use punctual_proto::NodeId;
use punctual_proto::seal::SEAL_SIZE;

use super::OpenError;
use crate::ledger::{Page, PageOwner};
use crate::seal::Seals;

/// What is known of a node, whatever its medium.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) node: NodeId,
    /// The part of its life that travels in frames.
    pub(crate) incarnation: u16,
    pub(crate) clock: &'static Clock,
    pub(crate) page: Page,
    /// Whose page that is.
    pub(crate) owner: PageOwner,
    /// Largest message, bytes.
    pub(crate) payload_size_max: usize,
    /// On a sealed bus.
    pub(crate) seals: Option<Seals>,
}

impl About {
    /// Of a node with this id and name on this bus, on whose medium a message with its seal has at most so many bytes.
    pub(super) fn new(
        (node, name, bus): (NodeId, &str, &str),
        incarnation: u16,
        size_max: usize,
        seals: Option<Seals>,
    ) -> Result<Self, OpenError> {
        let owner = PageOwner {
            node,
            name: name.to_owned(),
            bus: bus.to_owned(),
            process: ProcessIdentity::of_self(),
        };
        let page = Page::create(&owner, random())
            .map_err(|error| OpenError::System { error, advice: "counters need a little memory" })?;
        let seal_size = if seals.is_some() { SEAL_SIZE } else { 0 };
        let payload_size_max = size_max.saturating_sub(seal_size);
        Ok(Self { node, incarnation, clock: Clock::get(), page, owner, payload_size_max, seals })
    }
}
