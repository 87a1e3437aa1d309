//! Sending in memory by a component: one publication for each of its targets, made when a target is first used.

use std::sync::Arc;

use punctual_machine::clock::Ticks;
use punctual_machine::counter::Counter;
use punctual_proto::fragment::HEAD_SIZE;
use punctual_proto::{Address, Port, Target};

use super::large::Fragment;
use crate::engine::SendError;
use crate::ledger::{Count, RowCount};
use crate::memory::stream::{
    OfferError, Publication, PublicationClaim, PublicationOptions, StampChoice, StreamError, Streams,
};
use crate::node::About;

/// In which group a component's messages are sealed, whichever the node's is; shared by all that send from its port.
#[derive(Debug, Default)]
pub(super) struct SealsIn(Counter);

impl SealsIn {
    pub(super) fn set(&self, group: u32) {
        self.0.publish(u64::from(group) + 1);
    }

    #[inline]
    pub(super) fn get(&self) -> Option<u32> {
        let group = self.0.get_published().checked_sub(1)?;
        u32::try_from(group).ok()
    }
}

/// One target's publication.
#[derive(Debug)]
struct Route {
    target: Target,
    publication: Publication,
    /// When it was used last, in uses of any.
    used: u64,
}

/// The publications of a port, by their targets.
#[derive(Debug)]
pub(super) struct Outlet {
    streams: Arc<Streams>,
    port: Port,
    /// Row in which the node counts messages sent from here. `None` for senders that share the port: one counter serves all of them.
    row: Option<usize>,
    seals_in: Arc<SealsIn>,
    stamps: bool,
    routes: Vec<Route>,
    /// The route that was used last.
    last: usize,
    uses: u64,
    /// Something was taken that readers were not told of.
    queued: bool,
}

impl Outlet {
    pub(super) fn new(
        streams: &Arc<Streams>,
        port: Port,
        row: Option<usize>,
        seals_in: &Arc<SealsIn>,
        stamps: bool,
    ) -> Self {
        Self {
            streams: Arc::clone(streams),
            port,
            row,
            seals_in: Arc::clone(seals_in),
            stamps,
            routes: Vec::new(),
            last: 0,
            uses: 0,
            queued: false,
        }
    }

    pub(super) fn address(&self) -> Address {
        Address { node: self.streams.about.node, port: self.port }
    }

    /// For another thread that sends from the same port.
    pub(super) fn another(&self) -> Self {
        Self::new(&self.streams, self.port, None, &self.seals_in, self.stamps)
    }

    pub(super) fn seals_in(&self) -> &Arc<SealsIn> {
        &self.seals_in
    }

    #[inline]
    pub(super) fn try_send(
        &mut self,
        target: Target,
        payload: &[u8],
        due: Option<Ticks>,
    ) -> Result<(), SendError> {
        self.take(target, |publication| publication.queue(payload, due), payload.len())?;
        if self.queued {
            self.flush();
        } else {
            self.routes[self.last].publication.flush();
        }
        Ok(())
    }

    /// Takes a message, of which readers are told by the next [`Self::flush`], or by the next send.
    pub(super) fn queue(&mut self, target: Target, payload: &[u8]) -> Result<(), SendError> {
        self.take(target, |publication| publication.queue_in_run(payload), payload.len())?;
        self.queued = true;
        Ok(())
    }

    #[inline]
    fn take(
        &mut self,
        target: Target,
        put: impl FnOnce(&mut Publication) -> Result<(), OfferError>,
        size: usize,
    ) -> Result<(), SendError> {
        self.check(size)?;
        let publication = self.publication(target)?;
        if let Err(error) = put(publication) {
            refusal(error, target, &self.streams)?;
        }
        count_sent(&self.streams, self.row);
        Ok(())
    }

    pub(super) fn about(&self) -> &About {
        &self.streams.about
    }

    /// Takes a fragment, and tells readers of it.
    pub(super) fn put_fragment(&mut self, fragment: &Fragment<'_>) -> Result<(), SendError> {
        let size = HEAD_SIZE + fragment.bytes.len();
        self.flush();
        let timing = self.stamps.then_some(fragment.timing);
        let publication = self.publication(fragment.target)?;
        publication.seal_in(fragment.group);
        match publication.claim_fragment(size, timing, fragment.waits) {
            Ok(mut claim) => {
                fragment.write(claim.payload());
                claim.commit();
            }
            Err(error) => refusal(error, fragment.target, &self.streams)?,
        }
        count_sent(&self.streams, self.row);
        Ok(())
    }

    /// Tells readers of all that was taken.
    pub(super) fn flush(&mut self) {
        if std::mem::take(&mut self.queued) {
            self.routes.iter_mut().for_each(|route| route.publication.flush());
        }
    }

    /// Room for a message, to be written in place.
    pub(super) fn claim(&mut self, target: Target, size: usize) -> Result<RouteClaim<'_>, SendError> {
        self.check(size)?;
        self.flush();
        self.publication(target)?;
        let (last, row, streams) = (self.last, self.row, Arc::clone(&self.streams));
        match self.routes[last].publication.try_claim(size) {
            Ok(claim) => Ok(RouteClaim { claim: Some(claim), nobody: Vec::new(), streams, row }),
            Err(error) => {
                refusal(error, target, &streams)?;
                Ok(RouteClaim { claim: None, nobody: vec![0; size], streams, row })
            }
        }
    }

    #[inline]
    fn check(&self, size: usize) -> Result<(), SendError> {
        let size_max = self.streams.about.payload_size_max;
        if size > size_max { Err(SendError::TooLong { size, size_max }) } else { Ok(()) }
    }

    /// The publication for a target, made if there is none.
    #[inline]
    fn publication(&mut self, target: Target) -> Result<&mut Publication, SendError> {
        if self.routes.get(self.last).is_none_or(|route| route.target != target) {
            self.last = self.find(target)?;
            self.uses += 1;
            self.routes[self.last].used = self.uses;
        }
        let group = self.seals_in.get();
        let publication = &mut self.routes[self.last].publication;
        publication.seal_in(group);
        Ok(publication)
    }

    #[cold]
    fn find(&mut self, target: Target) -> Result<usize, SendError> {
        match self.routes.iter().position(|route| route.target == target) {
            Some(index) => Ok(index),
            None => self.open(target),
        }
    }

    fn open(&mut self, target: Target) -> Result<usize, SendError> {
        let is_port = target.port.is_none_or(|port| !port.is_reserved());
        if !is_port || target.node.is_some() && !self.streams.has_reader(target) {
            return Err(SendError::Unreachable);
        }
        self.flush();
        // A target that nobody can reach any more needs no ring.
        let streams = &self.streams;
        self.routes.retain(|route| route.target.node.is_none_or(|node| streams.has_node(node)));
        let publication = loop {
            match self.streams.publish(target, &self.options()) {
                Ok(publication) => break publication,
                Err(StreamError::TooMany { .. }) if self.close_oldest() => {}
                // A ring of ours goes once its readers have read it, and another's when its owner needs it no more.
                Err(StreamError::TooMany { .. }) => {
                    self.streams.about.page.count(Count::SendFull).add(1);
                    return Err(SendError::Full);
                }
                Err(_) => return Err(SendError::NoMemory),
            }
        };
        self.routes.push(Route { target, publication, used: self.uses });
        Ok(self.routes.len() - 1)
    }

    fn options(&self) -> PublicationOptions {
        PublicationOptions {
            source: self.port.get(),
            ring_size: self.streams.ring_size,
            stamps: if self.stamps { StampChoice::All } else { StampChoice::Never },
            ..PublicationOptions::default()
        }
    }

    /// Closes what was not used for longest, of those whose ring gives its place back when that is needed. Returns true if there is one.
    /// All of it was read: the next message to its target, in another ring, might overtake what was not.
    fn close_oldest(&mut self) -> bool {
        let mut oldest: Vec<usize> = (0..self.routes.len()).collect();
        oldest.sort_unstable_by_key(|&index| self.routes[index].used);
        let read = oldest.into_iter().find(|&index| self.routes[index].publication.is_read());
        read.map(|index| self.routes.swap_remove(index)).is_some()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if !self.streams.about.maker.is_this_process() {
            return;
        }
        // Queued messages go before their sender does.
        self.flush();
    }
}

#[inline]
fn count_sent(streams: &Streams, row: Option<usize>) {
    let page = &streams.about.page;
    match row {
        Some(row) => page.row(row)[RowCount::Sent as usize].add_alone(1),
        None => page.count(Count::Sent).add(1),
    }
}

/// Why a message was not taken. A message for everybody is taken, though nobody is there.
#[cold]
fn refusal(error: OfferError, target: Target, streams: &Streams) -> Result<(), SendError> {
    Err(match error {
        OfferError::Full => {
            streams.about.page.count(Count::SendFull).add(1);
            SendError::Full
        }
        OfferError::NotConnected if target.node.is_none() => return Ok(()),
        OfferError::NotConnected => SendError::Unreachable,
        OfferError::TooLong { size, size_max } => SendError::TooLong { size, size_max },
        OfferError::NoKey => SendError::NoKey,
    })
}

/// Room for a message in a publication's ring, or for one that nobody is there to read.
#[derive(Debug)]
pub(super) struct RouteClaim<'a> {
    claim: Option<PublicationClaim<'a>>,
    nobody: Vec<u8>,
    streams: Arc<Streams>,
    row: Option<usize>,
}

impl RouteClaim<'_> {
    pub(super) fn payload(&mut self) -> &mut [u8] {
        self.claim.as_mut().map_or(&mut self.nobody[..], PublicationClaim::payload)
    }

    pub(super) fn commit(self) {
        if let Some(claim) = self.claim {
            claim.commit();
        }
        count_sent(&self.streams, self.row);
    }
}
