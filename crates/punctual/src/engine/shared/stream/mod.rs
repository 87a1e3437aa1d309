//! Streams: a ring for each publication, which every subscription that it is for follows by itself.
//!
//! A publication owns its ring; nobody else stores to it. What does not change from message to message stands in the ring's
//! first page, what changes in the commit word. Positions and numbers are the account: `begin + delivered + lost + refused` of
//! a subscription's view is the number of the message that is next. Layout: `docs/shared-memory.md`.

use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::Clock;
use punctual_machine::doorbell::{Notification, sender_fence};
use punctual_machine::event_fd::EventFd;
use punctual_machine::process::random;
use punctual_machine::ring::frame_size_max;
use punctual_proto::{Port, Target};

use super::roster::{Peer, Roster};
use super::segment::{
    Owner, READERS_BELL, RINGS_BELL, ROW_WORDS, ROWS_MAX, STREAMS_MAX, SUBSCRIPTIONS_MAX, row,
};
use crate::seal::Seals;
use follower::{Follower, followers_of};
use ring_file::{RingFile, RingIdentity, target_word};

mod follower;
mod image;
mod images;
mod prefix;
mod publication;
mod ring_file;
mod sealing;

pub use image::{ImageAccount, Overrun, StreamMessage};
pub(crate) use images::{HOUSEKEEPING_EVERY, Images};
pub use prefix::StampChoice;
pub use publication::{OfferError, Publication, PublicationClaim, PublicationOptions, Run};
use sealing::{Opening, Sealing};

/// When a subscription began that is just being listed: it may have begun before any publication.
const BEGINS: u64 = u64::MAX;

/// What the table of subscriptions says of one, beside when it began: its port + 1, and 2^32 if it takes sealed messages. One that
/// takes none is no reader of a publication that seals, and must not hold it back.
fn subscription_word(port: Port, sealed: bool) -> u64 {
    (u64::from(port.get()) + 1) | (u64::from(sealed) << 32)
}

/// The port of a subscription that takes sealed messages, or of one that takes the others.
fn port_of_subscription(word: u64, sealed: bool) -> Option<Port> {
    let port = (word ^ u64::from(sealed) << 32).checked_sub(1)?;
    u16::try_from(port).ok().map(Port::from)
}

/// How long a node that leaves waits at most for subscriptions to find publications that it has closed: more than the time after
/// which one that waits looks up though nobody woke it.
const LINGER_MAX: Duration = Duration::from_millis(200);

/// Looks around that a new publication takes for nodes that join just then.
const VISITS_MAX: usize = 64;

/// Why a publication or a subscription could not be made.
#[derive(Debug)]
pub enum StreamError {
    /// Only buses of memory have streams: the text says what this bus has instead.
    NoStreams(&'static str),
    /// The node has as many as it can have.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        most: usize,
    },
    /// A size or a port that cannot be: the text says which and what can.
    Invalid(String),
    /// Memory raises no signal: take any other way of waiting.
    CannotWait(&'static str),
    /// The machine refused, most likely for want of memory in /dev/shm.
    System(SystemError),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStreams(reason) => write!(f, "no publications here: {reason}"),
            Self::TooMany { what, most } => write!(f, "a node has at most {most} {what}"),
            Self::Invalid(text) => f.write_str(text),
            Self::CannotWait(wake) => {
                write!(f, "{wake} cannot wait for publications, which come from memory: take any other way")
            }
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for StreamError {}

/// The publications and subscriptions of one node.
#[derive(Debug)]
pub(crate) struct Streams {
    roster: Arc<Roster>,
    own: Arc<Peer>,
    /// Held while one of our places in the tables is taken or given back, never while messages move.
    places: Mutex<()>,
    /// Publications that have closed before all whom they were for had found them, oldest first.
    lingering: Mutex<Vec<RingIdentity>>,
}

impl Streams {
    pub(super) fn new(roster: Arc<Roster>) -> Arc<Self> {
        let own = Peer::own(roster.own.clone());
        Arc::new(Self { roster, own, places: Mutex::default(), lingering: Mutex::default() })
    }

    fn places(&self) -> MutexGuard<'_, ()> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All nodes on the bus, our own included.
    fn members(&self) -> Vec<Arc<Peer>> {
        let mut members = self.roster.peers();
        members.push(Arc::clone(&self.own));
        members
    }

    /// A new publication, on a sealed bus with the seals. It keeps `node`: whoever leaves the bus ends its publications. When
    /// this returns, every node of the bus has been told of it.
    pub(crate) fn publish(
        self: &Arc<Self>,
        target: Target,
        options: &PublicationOptions,
        seals: Option<&Seals>,
        node: Arc<dyn Any + Send + Sync>,
    ) -> Result<Publication, StreamError> {
        let size = options.ring_size;
        if !size.is_power_of_two() || !(1 << 12..=1 << 30).contains(&size) {
            let text = format!("ring of {size} bytes: a power of two from 4096 to 1073741824 is needed");
            return Err(StreamError::Invalid(text));
        }
        let owner = self.own.segment.owner;
        let id = random().max(1);
        let identity = RingIdentity {
            id,
            node: owner.node,
            life: owner.life,
            source: Port::from(options.source),
            target,
            capacity: size,
            // Before its readers are looked for: one that is not seen then began later.
            began: Clock::get().now().0,
            sealed: seals.is_some(),
        };
        let memory =
            self.roster.venue.create_stream(id, RingFile::size(size)).map_err(StreamError::System)?;
        let file = RingFile::fill(&memory, identity);
        if let Err(error) = self.enter(id, target) {
            self.roster.venue.remove_stream(id);
            return Err(error);
        }
        // A node that joins now either finds the entry, or its visit is seen here, and it is told below.
        sender_fence();
        let mut seen = self.roster.visits_seen();
        for _ in 0..VISITS_MAX {
            if !self.roster.is_visited(seen) {
                break;
            }
            seen = self.roster.handle_visits();
        }
        self.tell_of_rings();
        let sealing = seals.map(|seals| Sealing::new(seals.sealer_of_stream(), frame_size_max(size)));
        Ok(Publication::new(Arc::clone(self), node, file, sealing, options))
    }

    /// Puts a ring into the table of those that others find.
    fn enter(&self, id: u64, target: Target) -> Result<(), StreamError> {
        let table = self.own.segment.streams();
        let free = || table.chunks(2).position(|entry| entry[0].get() == 0);
        if free().is_none() {
            self.end_lingering(|_| true);
        }
        let _alone = self.places();
        let entry = free().ok_or(StreamError::TooMany { what: "publications", most: STREAMS_MAX })?;
        punctual_machine::label!("stream.target");
        table[2 * entry + 1].set(target_word(target));
        punctual_machine::label!("stream.enter");
        table[2 * entry].publish(id);
        punctual_machine::label!("stream.entered");
        Ok(())
    }

    /// Its publication has closed: takes a ring out of the table. Who follows it reads it to its end. As long as it has something
    /// for somebody who has not found it yet, it stays.
    fn withdraw(&self, about: &RingIdentity, is_empty: bool) {
        if is_empty || self.is_found(about) {
            self.remove(about.id);
        } else {
            self.lingering().push(*about);
        }
    }

    /// Whether all whom the ring is for have found it.
    fn is_found(&self, about: &RingIdentity) -> bool {
        followers_of(self, about).iter().all(Follower::has_begun)
    }

    fn lingering(&self) -> MutexGuard<'_, Vec<RingIdentity>> {
        self.lingering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the rings of publications that have closed for which `is_over` says so.
    fn end_lingering(&self, is_over: impl Fn(&RingIdentity) -> bool) {
        let mut lingering = self.lingering();
        let over: Vec<RingIdentity> = lingering.extract_if(.., |about| is_over(about)).collect();
        drop(lingering);
        over.iter().for_each(|about| self.remove(about.id));
    }

    /// Removes the rings of publications that have closed, once all have found them.
    pub(crate) fn housekeep(&self) {
        if !self.lingering().is_empty() {
            self.end_lingering(|about| self.is_found(about));
        }
    }

    fn remove(&self, id: u64) {
        let alone = self.places();
        for entry in self.own.segment.streams().chunks(2).filter(|entry| entry[0].get() == id) {
            punctual_machine::label!("stream.withdraw");
            entry[0].publish(0);
            punctual_machine::label!("stream.withdrawn");
        }
        drop(alone);
        self.tell_of_rings();
        self.roster.venue.remove_stream(id);
    }

    /// Makes every subscription on the bus look at the tables of rings again.
    fn tell_of_rings(&self) {
        for member in self.members() {
            punctual_machine::label!("stream.tell");
            member.segment.bell(RINGS_BELL).announce_visit(true);
            for bell in 1..=SUBSCRIPTIONS_MAX {
                let notification = member.segment.bell(bell).ring();
                self.notify(notification, &member, bell, &OnceCell::new());
            }
        }
    }

    /// A new subscription, on a sealed bus with the seals. When this returns, it follows every publication that its node can see.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        port: Port,
        seals: Option<&Seals>,
        event: &Arc<EventFd>,
    ) -> Result<Images, StreamError> {
        if port.is_reserved() {
            return Err(StreamError::Invalid("port 65535 stands for all ports: take another".into()));
        }
        let opening = seals.map(|seals| Opening::new(seals.opener()));
        let (bell, began) = self.list(port, opening.is_some())?;
        let mut images = Images::new(Arc::clone(self), port, bell, (opening, Arc::clone(event)));
        images.begin(began);
        // Publications whose readers were looked for before know it by this.
        self.tell_of_readers();
        Ok(images)
    }

    /// Lists a subscription at a free place; returns that place, and when it began. Who looks for readers meanwhile takes it for
    /// one.
    fn list(&self, port: Port, sealed: bool) -> Result<(usize, u64), StreamError> {
        let alone = self.places();
        let table = self.own.segment.subscriptions();
        let free = (1..=SUBSCRIPTIONS_MAX).find(|bell| table[2 * bell].get() == 0);
        let bell = free.ok_or(StreamError::TooMany { what: "subscriptions", most: SUBSCRIPTIONS_MAX })?;
        let entry = &table[2 * bell..2 * bell + 2];
        entry[1].set(BEGINS);
        punctual_machine::label!("subscription.list");
        entry[0].publish(subscription_word(port, sealed));
        punctual_machine::label!("subscription.listed");
        drop(alone);
        // A publication that looked before this fence was made before the time below.
        sender_fence();
        let began = Clock::get().now().0;
        entry[1].publish(began);
        punctual_machine::label!("subscription.began");
        Ok((bell, began))
    }

    fn delist(&self, bell: usize) {
        punctual_machine::label!("subscription.delist");
        self.own.segment.subscriptions()[2 * bell].publish(0);
        punctual_machine::label!("subscription.delisted");
        self.tell_of_readers();
    }

    /// Makes every publication on the bus look for its readers again.
    fn tell_of_readers(&self) {
        for member in self.members() {
            punctual_machine::label!("subscription.tell");
            member.segment.bell(READERS_BELL).announce_visit(true);
        }
    }

    /// Wakes who sleeps at one of a node's bells, if it is to be woken. `event` keeps the descriptor, once that is known.
    #[inline]
    fn notify(
        &self,
        notification: Option<Notification>,
        node: &Peer,
        bell: usize,
        event: &OnceCell<Arc<EventFd>>,
    ) {
        match notification {
            None => {}
            Some(Notification::Futex) => node.segment.bell(bell).wake_futex(),
            Some(Notification::Descriptor) => self.ring_descriptor(&node.segment.owner, bell, event),
        }
    }

    #[cold]
    fn ring_descriptor(&self, owner: &Owner, bell: usize, event: &OnceCell<Arc<EventFd>>) {
        if event.get().is_none()
            && let Some(found) = self.roster.venue.event_of(owner, bell)
        {
            let _nobody_else_sets_it = event.set(found);
        }
        match event.get() {
            Some(event) => event.ring(),
            None => self.roster.venue.wake(owner),
        }
    }

    /// A free row, with what never changes in it; it counts once its ring stands there.
    fn take_row(&self, ring: u64, bell: usize, position: u64) -> Option<usize> {
        let _alone = self.places();
        let rows = self.own.segment.rows();
        let index = rows.chunks(ROW_WORDS).take(ROWS_MAX).position(|words| words[row::RING].get() == 0)?;
        let words = self.own.segment.row(index);
        words.iter().for_each(|word| word.set(0));
        words[row::BELL].set(bell as u64);
        words[row::POSITION].set(position);
        punctual_machine::label!("row.ring");
        words[row::RING].publish(ring);
        punctual_machine::label!("row.ring.done");
        Some(index)
    }

    fn give_back_row(&self, index: usize) {
        let _alone = self.places();
        punctual_machine::label!("row.free");
        self.own.segment.row(index)[row::RING].publish(0);
        punctual_machine::label!("row.free.done");
    }
}

impl Drop for Streams {
    /// Whoever sends and leaves is heard by all who look within a time.
    fn drop(&mut self) {
        let clock = Clock::get();
        let give_up = clock.now().plus(clock.ticks(LINGER_MAX));
        let mut pause = Duration::from_micros(20);
        self.housekeep();
        while !self.lingering().is_empty() && clock.now() < give_up {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
            self.roster.handle_housekeeping();
            self.housekeep();
        }
        self.end_lingering(|_| true);
    }
}
