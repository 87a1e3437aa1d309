//! Streams: a ring for each publication, which every subscription that it is for follows by itself.
//!
//! A publication owns its ring; nobody else stores to it. Properties that do not change from message to message stand in the ring's
//! first page, the others in the commit word. Positions and numbers are the account: `begin + delivered + lost + refused` of a
//! subscription's view is the number of the message that is next. Layout: `docs/shared-memory.md`.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::Clock;
use punctual_machine::doorbell::sender_fence;
use punctual_machine::event_fd::EventFd;
use punctual_machine::process::random;
use punctual_machine::ring::frame_size_max;
use punctual_proto::{NodeId, Port, Target};

use super::Entered;
use super::roster::{Peer, Roster};
use super::segment::{STREAMS_MAX, SUBSCRIPTIONS_MAX, WATCHER};
use crate::engine::faulty::Faults;
use crate::engine::tap::Capture;
use crate::ledger::Count;
use crate::node::{About, PeerAccount};
use crate::pause::{Pauses, TimeLimit};
use crate::wake::Wake;
use books::Books;
use bound_again::TakenAtPorts;
use follower::{Follower, followers_of};
use places::Places;
use ring_file::{ENTERS, RingFile, RingIdentity, target_word};

mod books;
mod bound_again;
mod claim;
mod faulty;
mod followed;
mod follower;
mod frames;
mod gaps;
mod gathering;
mod image;
mod images;
mod looks;
mod message;
mod observing;
mod options;
mod payload;
mod places;
mod prefix;
mod publication;
mod reads;
pub(super) mod ring_file;
mod run;
mod sealing;
mod telling;

pub use claim::PublicationClaim;
pub use image::ImageAccount;
pub(crate) use images::{HOUSEKEEPING_EVERY, Images};
pub(crate) use message::MessageHandler;
pub use message::{Overrun, StreamHead, StreamMessage};
pub use options::{OfferError, PublicationOptions};
pub use prefix::StampChoice;
pub use publication::Publication;
use reads::Reads;
pub use run::Run;
use sealing::{Opening, Sealing};

/// When a subscription began that is just being listed: it may have begun before any publication.
const BEGINS: u64 = u64::MAX;

/// Word of a subscription in the table of subscriptions, beside the time when it began: its port + 1, and 2^32 if it takes sealed
/// messages. One that takes none is no reader of a publication that seals, and must not hold it back.
fn subscription_word(port: Port, sealed: bool) -> u64 {
    (u64::from(port.get()) + 1) | (u64::from(sealed) << 32)
}

/// A port that is one of a node's.
fn unreserved(port: Port) -> Result<Port, StreamError> {
    if port.is_reserved() {
        return Err(StreamError::Invalid("port 65535 stands for all ports: take another".into()));
    }
    Ok(port)
}

/// The port of a subscription that takes sealed messages, or of one that takes the others. A watcher for nodes takes none.
fn port_of_subscription(word: u64, sealed: bool) -> Option<Port> {
    let port = (word ^ u64::from(sealed) << 32).checked_sub(1)?;
    u16::try_from(port).ok().map(Port::from).filter(|port| !port.is_reserved())
}

/// Purpose of a row, as [`StreamError::TooMany`] says it.
pub(crate) const READ_RINGS: &str = "rings that its subscriptions read, counted for each";

/// Longest time that a leaving node waits for subscriptions to find publications that it has closed. It is more than the time after
/// which a waiting subscription looks up though nobody woke it.
const LINGER_MAX: Duration = Duration::from_millis(200);

/// Why a publication or a subscription could not be made.
#[derive(Debug)]
pub enum StreamError {
    /// Only buses of memory have streams: the text says what this bus has instead.
    NoStreams(&'static str),
    /// The node has as many as it can have.
    TooMany {
        /// Of what.
        what: &'static str,
        /// The maximum number.
        most: usize,
    },
    /// A size or a port that cannot be: the text says which and what can.
    Invalid(String),
    /// Memory raises no signal: take any other way of waiting.
    CannotWait(Wake),
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

/// Layers added on purpose around a node's messages.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) capture: Option<Capture>,
    pub(crate) faults: Option<Faults>,
}

/// A node on a bus of memory: its publications and subscriptions.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) about: About,
    roster: Roster,
    own: Arc<Peer>,
    layers: Layers,
    /// Of the rings of communicators.
    pub(crate) ring_size: usize,
    /// Held while one of our places in the tables is taken or given back, never while messages move.
    places: Mutex<Places>,
    /// Publications that have closed before all whom they were for had found them, oldest first.
    lingering: Mutex<Vec<RingIdentity>>,
    books: Mutex<Books>,
    taken_at_ports: TakenAtPorts,
}

impl Streams {
    /// The node that has entered.
    pub(crate) fn new(entered: Entered, about: About, layers: Layers) -> Arc<Self> {
        let Entered { roster, ring_size, .. } = entered;
        let own = Peer::own(roster.own.clone());
        about.page.set_in_memory();
        Arc::new(Self {
            about,
            roster,
            own,
            layers,
            ring_size,
            places: Mutex::default(),
            lingering: Mutex::default(),
            books: Mutex::default(),
            taken_at_ports: TakenAtPorts::default(),
        })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All nodes on the bus, our own included.
    fn members(&self) -> Vec<Arc<Peer>> {
        let mut members = self.roster.peers();
        members.push(Arc::clone(&self.own));
        members
    }

    /// True if a node is on the bus, as far as is known now.
    pub(crate) fn has_node(&self, node: NodeId) -> bool {
        self.look_for_nodes();
        self.is_on_bus(node)
    }

    /// The same, as of the last look.
    fn is_on_bus(&self, node: NodeId) -> bool {
        let is_it = |peer: &Arc<Peer>| peer.segment.owner.node == node && !peer.has_left();
        is_it(&self.own) || self.roster.any(is_it)
    }

    /// True if there is a subscription that a publication for this target would be for.
    pub(crate) fn has_reader(&self, target: Target) -> bool {
        self.look_for_nodes();
        let sealed = self.about.seals.is_some();
        let reads = |peer: &Arc<Peer>| {
            let segment = &peer.segment;
            let mut words = segment.bells_used().map(|bell| segment.subscription(bell)[0].get_published());
            target.includes_node(segment.owner.node)
                && !peer.has_left()
                && words.any(|word| {
                    port_of_subscription(word, sealed).is_some_and(|port| target.includes_port(port))
                })
        };
        reads(&self.own) || self.roster.any(reads)
    }

    /// Looks at those who have announced themselves.
    pub(crate) fn look_for_nodes(&self) {
        let roster = &self.roster;
        if roster.is_visited(roster.visits_seen()) {
            roster.handle_visits();
        }
    }

    /// The nodes that are on the bus besides us, with their lives and names.
    pub(crate) fn present(&self) -> Vec<Presence> {
        let of = |peer: &Arc<Peer>| Presence {
            node: peer.segment.owner.node,
            life: peer.segment.owner.life,
            name: peer.segment.name(),
        };
        self.roster.peers().iter().map(of).collect()
    }

    /// Changes when [`Self::present`] may have.
    pub(crate) fn nodes_version(&self) -> u64 {
        self.roster.version()
    }

    /// True if a life of a node that was here has gone without a word.
    pub(crate) fn has_died(&self, life: u64) -> bool {
        self.roster.is_among_the_dead(life)
    }

    /// The accounts of all peers.
    pub(crate) fn peers(&self) -> Vec<PeerAccount> {
        let present: Vec<_> = self
            .roster
            .peers()
            .iter()
            .map(|peer| (peer.segment.owner.node, peer.segment.owner.life))
            .collect();
        self.books().accounts(self.own.segment.owner.node, &present)
    }

    /// Messages sent so far to one node, or to everybody.
    pub(crate) fn sent_to(&self, target: Option<NodeId>) -> u64 {
        self.books().sent_to(target)
    }

    /// Looks who has left or died, and does what else is due from time to time.
    pub(crate) fn keep_house(&self) {
        self.roster.handle_housekeeping();
        self.housekeep();
        self.count_nodes();
        if let Some(seals) = &self.about.seals {
            seals.keys().housekeep();
        }
        if let Some(capture) = &self.layers.capture {
            capture.flush();
        }
    }

    /// Enters into the page of counters who came and went.
    pub(crate) fn count_nodes(&self) {
        let (page, roster) = (&self.about.page, &self.roster);
        for (count, nodes) in
            [(Count::Joined, &roster.came), (Count::Left, &roster.went), (Count::Died, &roster.died)]
        {
            page.count(count).set(nodes.get());
        }
    }

    /// A new publication. When this returns, every node of the bus has been told of it.
    pub(crate) fn publish(
        self: &Arc<Self>,
        target: Target,
        options: &PublicationOptions,
    ) -> Result<Publication, StreamError> {
        let seals = self.about.seals.as_ref();
        let (size, source) = (options.ring_size, unreserved(options.source.into())?);
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
            source,
            target,
            capacity: size,
            began: Clock::get().now().0,
            entered: ENTERS,
            sealed: seals.is_some(),
        };
        let memory =
            self.roster.venue.create_stream(id, RingFile::size(size)).map_err(StreamError::System)?;
        let mut file = RingFile::fill(&memory, identity);
        if let Err(error) = self.enter(id, target) {
            self.roster.venue.remove_stream(id);
            return Err(error);
        }
        // A node that joins now either finds the entry, or its visit is seen here, and it is told below. A subscription that was not
        // listed before this fence looks for rings after the time below, and finds the entry.
        sender_fence();
        file.enter(Clock::get().now_after_stores().0);
        self.roster.attend();
        self.tell_of_rings();
        let sealing = seals.map(|seals| Sealing::new(seals.sealer_of_stream(), frame_size_max(size)));
        self.books().open(id, target.node, file.ring.clone());
        Ok(Publication::new(Arc::clone(self), file, sealing, options))
    }

    /// Puts a ring into the table of those that others find.
    fn enter(&self, id: u64, target: Target) -> Result<(), StreamError> {
        let is_full =
            || self.own.segment.streams().filter(|entry| entry[0].get() != 0).count() == STREAMS_MAX;
        if is_full() {
            self.housekeep();
        }
        if is_full() {
            // An observer that stands still holds nobody up.
            self.end_lingering(|about| self.is_found_by_readers(about));
        }
        let _alone = self.places();
        let entry = self.own.segment.free_stream();
        let entry = entry.ok_or(StreamError::TooMany { what: "publications", most: STREAMS_MAX })?;
        punctual_machine::label!("stream.target");
        entry[1].set(target_word(target));
        punctual_machine::label!("stream.enter");
        entry[0].publish(id);
        punctual_machine::label!("stream.entered");
        Ok(())
    }

    /// Its publication has closed: takes a ring out of the table. A subscription that follows it reads it to its end. As long as it has
    /// something for somebody who has not found it yet, it stays.
    fn withdraw(&self, about: &RingIdentity, sent: u64) {
        let is_present = |node| self.is_on_bus(node);
        self.books().close(about.id, about.target.node, sent, is_present);
        if self.is_settled(about, sent) {
            self.remove(about.id);
        } else {
            self.lingering().push(*about);
        }
    }

    /// True if nobody misses anything when a ring is removed from which so many messages were sent.
    fn is_settled(&self, about: &RingIdentity, sent: u64) -> bool {
        sent == 0 || self.is_found(about)
    }

    /// True if all readers that the ring is for, and all observers of the bus, have found it.
    fn is_found(&self, about: &RingIdentity) -> bool {
        self.is_found_by_readers(about) && self.is_observed(about)
    }

    fn is_found_by_readers(&self, about: &RingIdentity) -> bool {
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
        for entry in self.own.segment.streams().filter(|entry| entry[0].get() == id) {
            punctual_machine::label!("stream.withdraw");
            entry[0].publish(0);
            punctual_machine::label!("stream.withdrawn");
        }
        drop(alone);
        self.tell_of_rings();
        self.roster.venue.remove_stream(id);
    }

    /// A new subscription. When this returns, it follows every publication that its node can see, and every writer sees it.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        port: Port,
        event: &Arc<EventFd>,
    ) -> Result<Images, StreamError> {
        let port = unreserved(port)?;
        let opening = self.about.seals.as_ref().map(|seals| Opening::new(seals.opener()));
        let (bell, began) = self.list(subscription_word(port, opening.is_some()))?;
        let mut images = Images::new(Arc::clone(self), Reads::Port(port), bell, (opening, Arc::clone(event)));
        images.begin(began)?;
        // Publications whose readers were looked for before know it by this.
        self.tell_of_readers();
        Ok(images)
    }

    /// A watcher that is woken when nodes come and go, and reads nothing.
    pub(crate) fn watch(self: &Arc<Self>, event: &Arc<EventFd>) -> Result<Images, StreamError> {
        let (bell, began) = self.list(WATCHER)?;
        let mut images = Images::new(Arc::clone(self), Reads::Nothing, bell, (None, Arc::clone(event)));
        images.begin(began)?;
        Ok(images)
    }

    /// Lists a subscription at a free place; returns that place, and when it began. A publication that looks for readers meanwhile
    /// takes it for one.
    fn list(&self, word: u64) -> Result<(usize, u64), StreamError> {
        let mut alone = self.places();
        if word != WATCHER {
            self.prepare_rows(&mut alone)?;
        }
        let free = self.own.segment.free_subscription();
        let bell = free.ok_or(StreamError::TooMany { what: "subscriptions", most: SUBSCRIPTIONS_MAX })?;
        let entry = self.own.segment.subscription(bell);
        entry[1].set(BEGINS);
        punctual_machine::label!("subscription.list");
        entry[0].publish(word);
        punctual_machine::label!("subscription.listed");
        drop(alone);
        // A publication that could not be found before this fence takes its time later, and sees the entry.
        sender_fence();
        let began = Clock::get().now_after_stores().0;
        entry[1].publish(began);
        punctual_machine::label!("subscription.began");
        self.roster.attend();
        Ok((bell, began))
    }

    fn delist(&self, bell: usize) {
        punctual_machine::label!("subscription.delist");
        self.own.segment.subscription(bell)[0].publish(0);
        punctual_machine::label!("subscription.delisted");
        self.tell_of_readers();
    }
}

/// A node that is on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) node: NodeId,
    pub(crate) life: u64,
    pub(crate) name: Option<String>,
}

impl Drop for Streams {
    /// A sender that leaves is heard by all readers that look within a time.
    fn drop(&mut self) {
        if !self.about.maker.is_this_process() {
            return;
        }
        let mut limit = TimeLimit::new(LINGER_MAX);
        let mut pauses = Pauses::from(Duration::from_micros(20));
        self.housekeep();
        while !self.lingering().is_empty() && !limit.is_over() {
            pauses.sleep();
            self.roster.handle_housekeeping();
            self.housekeep();
        }
        self.end_lingering(|_| true);
    }
}
