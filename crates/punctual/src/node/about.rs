//! Facts about a node, regardless of its medium.

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::process::{Maker, ProcessIdentity, random};
use punctual_proto::NodeId;
use punctual_proto::seal::SEAL_SIZE;

use super::OpenError;
use crate::large::Large;
use crate::ledger::{Page, PageOwner};
use crate::seal::Seals;

/// The node that is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    pub(crate) node: NodeId,
    pub(crate) name: &'a str,
    pub(crate) bus: &'a str,
    /// Largest message that is cut for the medium, bytes; 0 = none is.
    pub(crate) message_size_max: usize,
}

/// A number on a line of the cache of its own: readers of the rest do not wait for the writer of this one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Apart(Counter);

/// Facts about a node, regardless of its medium.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) node: NodeId,
    /// The part of its life that travels in frames.
    pub(crate) incarnation: u16,
    pub(crate) clock: &'static Clock,
    pub(crate) page: Page,
    /// Owner of that page.
    pub(crate) owner: PageOwner,
    /// A child that is forked drops what the node has, and tells nobody of it: the node is its parent's.
    pub(crate) maker: Maker,
    /// Largest message that goes in one frame, bytes.
    pub(crate) payload_size_max: usize,
    /// For larger ones.
    pub(crate) large: Large,
    /// On a sealed bus.
    pub(crate) seals: Option<Seals>,
    /// When the last message with stages was sent in memory: no other one has that stamp.
    last_sent: Apart,
}

impl About {
    /// The instant, or where it was given before, the next one that was not.
    #[inline]
    pub(crate) fn sent_once(&self, now: Ticks) -> Ticks {
        Ticks(self.last_sent.0.raise_to(now.0))
    }

    /// On a sealed bus: the group in which a component's messages are sealed now, of those that chose their own and of others.
    pub(crate) fn group(&self, own: Option<u32>) -> Option<u32> {
        own.or_else(|| self.seals.as_ref()?.keys().sealing().map(|id| id.group))
    }

    /// Of this node, on whose medium a message with its seal has at most so many bytes.
    pub(super) fn new(
        Who { node, name, bus, message_size_max }: Who<'_>,
        incarnation: u16,
        size_max: usize,
        seals: Option<Seals>,
    ) -> Result<Self, OpenError> {
        let owner = PageOwner {
            node,
            name: name.to_owned(),
            bus: bus.to_owned(),
            process: ProcessIdentity::of_self(),
            life: random(),
        };
        let page = Page::create(&owner)
            .map_err(|error| OpenError::System { error, advice: "counters need a little memory" })?;
        let seal_size = if seals.is_some() { SEAL_SIZE } else { 0 };
        let payload_size_max = size_max.saturating_sub(seal_size);
        let large = Large::new(message_size_max);
        Ok(Self {
            node,
            incarnation,
            clock: Clock::get(),
            page,
            owner,
            maker: Maker::this_process(),
            payload_size_max,
            large,
            seals,
            last_sent: Apart::default(),
        })
    }
}
