//! The sending half: a stream to each node and one to everybody, and the word of how far they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Pace, Ticks};
use punctual_machine::process::Maker;
use punctual_proto::limits::{CHECK_SIZE, NODES_MAX, PREFIX_SIZE_MAX};
use punctual_proto::{Address, Header, Kind, NodeId, Port, Target};

use super::address_book::{AddressBook, Whereabouts, is_long_ago};
use super::announcement::{ANNOUNCEMENT_SIZE, ANSWER_WANTED, UNICAST_KNOWN};
use super::{MediumTransmit, Own, put_check};
use crate::engine::{FAREWELL_MAX, SendError, Transmit};
use crate::pause::{Pauses, TimeLimit};
use crate::seal::NodeSealer;

/// Interval at which a node says how far it is.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);

/// Streams without a place whose numbers are kept, 16 bytes each. A node that was silent may live, and what is sent to it under
/// numbers that it has had is delivered to nobody.
const RESTING_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct WireTransmit<T: MediumTransmit> {
    own: Own,
    medium: T,
    book: Arc<AddressBook<T::Address>>,
    /// The book's, when the addresses in `unicast` were looked up.
    version_seen: u64,
    /// Size of the frame in the making, without its check value.
    claimed: usize,
    target: Option<NodeId>,
    broadcast: u64,
    unicast: Vec<Unicast<T::Address>>,
    /// The next number of each stream that had to make room for another, and of which a frame was sent.
    resting: HashMap<NodeId, u64>,
    /// When the node was heard that had a place and was silent for longest, by the last look.
    silent_since: Option<Ticks>,
    /// Where the last target stands in `unicast`.
    last: usize,
    announcements: Pace,
    /// The opening hello was not said yet: there was no key, or no room.
    hello_due: bool,
    sealer: Option<NodeSealer>,
    maker: Maker,
}

/// The frames to one node.
#[derive(Debug)]
struct Unicast<A> {
    node: NodeId,
    /// Frames so far.
    next: u64,
    /// Where it is, once that is known.
    address: Option<A>,
    /// It said goodbye, and nothing since.
    has_left: bool,
    /// When the first frame to it was made.
    opened: Ticks,
}

impl<T: MediumTransmit> WireTransmit<T> {
    pub(super) fn new(
        own: Own,
        medium: T,
        book: Arc<AddressBook<T::Address>>,
        sealer: Option<NodeSealer>,
    ) -> Self {
        Self {
            own,
            medium,
            book,
            version_seen: 0,
            claimed: 0,
            target: None,
            broadcast: 0,
            unicast: Vec::with_capacity(NODES_MAX),
            resting: HashMap::new(),
            silent_since: None,
            last: 0,
            announcements: Pace::new(ANNOUNCE_EVERY),
            hello_due: true,
            sealer,
            maker: Maker::this_process(),
        }
    }

    /// The stream to a node.
    #[inline]
    fn unicast_to(&mut self, node: NodeId) -> Result<&Unicast<T::Address>, SendError> {
        if self.book.version.get_published() != self.version_seen {
            self.renew_addresses();
        }
        if self.unicast.get(self.last).is_none_or(|unicast| unicast.node != node) {
            let found = self.unicast.iter().position(|unicast| unicast.node == node);
            self.last = found.map_or_else(|| self.open(node, Clock::get().now()), Ok)?;
        }
        Ok(&self.unicast[self.last])
    }

    /// A place for the stream to a node that has none: if all are taken, that of a node that has left, or was silent for long.
    #[cold]
    fn open(&mut self, node: NodeId, now: Ticks) -> Result<usize, SendError> {
        let index = if self.unicast.len() < NODES_MAX {
            self.unicast.len()
        } else {
            let gone = self.unicast.iter().position(|unicast| unicast.has_left);
            gone.or_else(|| self.long_silent(now)).ok_or(SendError::TooManyNodes)?
        };
        let next = self.resting.remove(&node).unwrap_or(0);
        let new = Unicast { node, next, address: None, has_left: false, opened: now };
        match self.unicast.get_mut(index) {
            Some(place) => {
                let earlier = std::mem::replace(place, new);
                // A node that has left and comes back is another life, with another stream to it.
                if !earlier.has_left && earlier.next > 0 {
                    self.resting.insert(earlier.node, earlier.next);
                }
            }
            None => self.unicast.push(new),
        }
        self.renew_address(index);
        Ok(index)
    }

    /// Where the stream to the node stands that has been silent for longest, if that is long, and its number can be kept. A node that
    /// was never heard is silent since the first frame to it.
    fn long_silent(&mut self, now: Ticks) -> Option<usize> {
        let is_full = self.silent_since.is_some_and(|since| !is_long_ago(since, now));
        if is_full || self.resting.len() >= RESTING_MAX {
            return None;
        }
        let streams = self.unicast.iter().map(|unicast| (unicast.node, unicast.opened));
        let (heard, index) = self.book.silent_longest(streams, now)?;
        // A refused sender may try again at once, again and again: a node that is heard by then is silent even later.
        self.silent_since = Some(heard);
        is_long_ago(heard, now).then_some(index)
    }

    fn address_of(&self, node: NodeId) -> Option<T::Address> {
        self.medium.address_of(node).or_else(|| self.book.address_of(node))
    }

    #[cold]
    fn renew_addresses(&mut self) {
        self.version_seen = self.book.version.get_published();
        (0..self.unicast.len()).for_each(|index| self.renew_address(index));
    }

    fn renew_address(&mut self, index: usize) {
        let unicast = &mut self.unicast[index];
        let known = match self.book.whereabouts(unicast.node) {
            // A node for which the book has no room has not said goodbye by that.
            Whereabouts::Unknown => None,
            Whereabouts::Left => {
                unicast.has_left = true;
                None
            }
            Whereabouts::Here(address) => {
                unicast.has_left = false;
                Some(address)
            }
        };
        unicast.address = self.medium.address_of(unicast.node).or(known);
    }

    /// Says to each node that was sent to, and has not left, how far the stream to it is; waits for room up to the limit.
    fn announce_to_each(&mut self, kind: Kind, limit: &mut TimeLimit) {
        if self.book.version.get_published() != self.version_seen {
            self.renew_addresses();
        }
        for index in 0..self.unicast.len() {
            let Unicast { node, has_left, .. } = self.unicast[index];
            if !has_left {
                self.announce(kind, Some(node), 0);
                self.see_off(limit);
            }
        }
    }

    /// Waits until the medium has every frame that was taken, or for the limit.
    fn see_off(&mut self, limit: &mut TimeLimit) {
        let mut pauses = Pauses::from(Duration::from_micros(1));
        while !limit.is_over() && self.medium.flush() {
            pauses.sleep();
        }
    }

    /// Says the opening hello, as soon as there is a key and room: others begin to count with it.
    #[cold]
    pub(super) fn send_opening_hello(&mut self) {
        self.hello_due = !self.announce(Kind::Hello, None, ANSWER_WANTED);
    }

    /// Says that we are here, or leave, and how far our streams are. Returns false if it could not: without a key nobody would believe
    /// it, or there is no room.
    fn announce(&mut self, kind: Kind, target: Option<NodeId>, flags: u8) -> bool {
        if self.sealer.as_mut().is_some_and(|sealer| sealer.prepare(None).is_err()) {
            return false;
        }
        let unicast = target.map(|node| self.sent_to(Some(node)));
        let header = Header {
            kind,
            incarnation: self.own.incarnation,
            source: Address { node: self.own.node, port: Port::from(0) },
            target: Target { node: target, port: None },
            sequence: self.own.life,
            payload_size: ANNOUNCEMENT_SIZE as u32,
            stamped: false,
            sealed: self.sealer.is_some(),
        };
        let size = header.frame_size();
        if !self.medium.claim(size + CHECK_SIZE, target.and_then(|node| self.address_of(node))) {
            return false;
        }
        let frame = self.medium.claimed();
        header.write(frame.first_chunk_mut().expect("a frame is never shorter than its header"));
        let body = &mut frame[header.prefix_size()..header.unsealed_size()];
        body[0..8].copy_from_slice(&self.broadcast.to_le_bytes());
        body[8..16].copy_from_slice(&unicast.unwrap_or(0).to_le_bytes());
        body[16] = flags | if unicast.is_some() { UNICAST_KNOWN } else { 0 };
        if let Some(sealer) = &mut self.sealer {
            sealer.seal_announcement(&mut frame[..size]);
        }
        put_check(frame, size);
        self.medium.commit();
        self.medium.flush();
        true
    }
}

impl<T: MediumTransmit> Transmit for WireTransmit<T> {
    fn payload_size_max(&self) -> usize {
        self.medium.frame_size_max() - PREFIX_SIZE_MAX - CHECK_SIZE
    }

    fn claim(&mut self, target: Option<NodeId>, size: usize) -> Result<u32, SendError> {
        let size_max = self.payload_size_max();
        if size > size_max + PREFIX_SIZE_MAX {
            return Err(SendError::TooLong { size: size - PREFIX_SIZE_MAX, size_max });
        }
        if self.hello_due {
            self.send_opening_hello();
        }
        let (sequence, address) = match target {
            None => (self.broadcast, None),
            Some(node) if !self.medium.is_there(node) => return Err(SendError::Unreachable),
            Some(node) => self.unicast_to(node).map(|unicast| (unicast.next, unicast.address))?,
        };
        if !self.medium.claim(size + CHECK_SIZE, address) {
            return Err(SendError::Full);
        }
        (self.claimed, self.target) = (size, target);
        Ok(sequence as u32)
    }

    fn claimed(&mut self) -> &mut [u8] {
        &mut self.medium.claimed()[..self.claimed]
    }

    fn commit(&mut self) {
        match self.target {
            None => self.broadcast += 1,
            Some(_) => self.unicast[self.last].next += 1,
        }
        put_check(self.medium.claimed(), self.claimed);
        self.medium.commit();
    }

    fn flush(&mut self) -> bool {
        self.medium.flush()
    }

    fn housekeep(&mut self, now: Ticks) {
        if self.hello_due {
            self.send_opening_hello();
        }
        while let Some(node) = { self.book.unanswered().pop_front() } {
            if !self.announce(Kind::Hello, Some(node), 0) {
                self.book.unanswered().push_front(node);
                break;
            }
        }
        if self.announcements.is_due(now) {
            self.announce(Kind::Hello, None, 0);
            self.announce_to_each(Kind::Hello, &mut TimeLimit::new(Duration::ZERO));
        }
    }

    fn sent_to(&self, target: Option<NodeId>) -> u64 {
        match target {
            None => self.broadcast,
            Some(node) => {
                let unicast = self.unicast.iter().find(|unicast| unicast.node == node);
                let resting = || self.resting.get(&node).copied();
                unicast.map(|unicast| unicast.next).or_else(resting).unwrap_or(0)
            }
        }
    }

    fn refused(&self) -> u64 {
        self.medium.refused()
    }

    fn copies(&self) -> usize {
        self.medium.copies()
    }
}

impl<T: MediumTransmit> Drop for WireTransmit<T> {
    fn drop(&mut self) {
        // A forked child does not say goodbye in its parent's name.
        if !self.maker.is_this_process() {
            return;
        }
        let mut limit = TimeLimit::new(FAREWELL_MAX);
        // Frames for which there is no room would take that of the goodbyes, and be lost uncounted.
        self.see_off(&mut limit);
        self.announce_to_each(Kind::Goodbye, &mut limit);
        self.announce(Kind::Goodbye, None, 0);
        self.see_off(&mut limit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl MediumTransmit for Nowhere {
        type Address = u8;

        fn frame_size_max(&self) -> usize {
            0
        }

        fn claim(&mut self, _size: usize, _to: Option<u8>) -> bool {
            false
        }

        fn claimed(&mut self) -> &mut [u8] {
            &mut []
        }

        fn commit(&mut self) {}

        fn flush(&mut self) -> bool {
            false
        }

        fn refused(&self) -> u64 {
            0
        }
    }

    fn at(seconds: u64) -> Ticks {
        Clock::get().ticks(Duration::from_secs(seconds))
    }

    fn node(number: usize) -> NodeId {
        NodeId::named(&number.to_string())
    }

    /// With streams to so many nodes as there can be, the first frames to which are of the first second.
    fn full() -> WireTransmit<Nowhere> {
        let own = Own { node: NodeId::named("own"), incarnation: 1, life: 1 };
        let mut transmit = WireTransmit::new(own, Nowhere, Arc::new(AddressBook::new()), None);
        for number in 0..NODES_MAX {
            assert_eq!(transmit.open(node(number), at(1)), Ok(number));
        }
        transmit
    }

    /// Goal: peers that died without a goodbye do not keep a node from sending to others. Peers that talk keep their streams; so does a
    /// peer that alone talks, of which the book is told once.
    #[test]
    fn a_new_target_has_the_place_of_who_is_long_silent() {
        let mut transmit = full();
        // Of every other one nothing is ever heard.
        (0..NODES_MAX)
            .step_by(2)
            .for_each(|number| assert!(transmit.book.learn((node(number), 1), 1, at(2))));
        transmit.book.learn((node(0), 1), 1, at(3));
        let mut open = |number, seconds| transmit.open(node(NODES_MAX + number), at(seconds));
        assert_eq!([10, 11].map(|seconds| open(0, seconds)), [Err(SendError::TooManyNodes), Ok(1)]);
        assert_eq!(open(1, 11), Ok(3));
        let mut places: Vec<_> = (2..NODES_MAX - 1).map(|number| open(number, 14).unwrap()).collect();
        places.extend([1, 3]);
        places.sort_unstable();
        assert!(places.into_iter().eq(1..NODES_MAX), "each has a place, and a node that talks has its own");
        assert_eq!(open(NODES_MAX, 14), Err(SendError::TooManyNodes));
        // It talked until then.
        transmit.book.learn((node(2), 1), 1, at(20));
        assert_eq!(
            transmit.open(node(2 * NODES_MAX), at(21)),
            Ok(1),
            "the first newcomer is silent since 11 s"
        );
    }

    /// Goal: a stream that had to make room goes on where it was, as its node may live. One to a node that has left begins anew. None
    /// makes room whose number cannot be kept.
    #[test]
    fn a_stream_that_made_room_goes_on() {
        let mut transmit = full();
        transmit.unicast.iter_mut().for_each(|unicast| unicast.next = 7);
        let [one, two, three] = ["one", "two", "three"].map(NodeId::named);
        assert_eq!(transmit.open(one, at(11)), Ok(0));
        assert_eq!((transmit.unicast[0].next, transmit.sent_to(Some(node(0)))), (0, 7));
        assert_eq!(transmit.open(node(0), at(11)), Ok(1));
        assert_eq!((transmit.unicast[1].next, transmit.sent_to(Some(node(0)))), (7, 7));
        transmit.book.learn((node(2), 1), 1, at(11));
        transmit.book.handle_goodbye((node(2), 1));
        transmit.renew_addresses();
        assert_eq!(transmit.open(two, at(11)), Ok(2));
        transmit.book.learn((node(2), 1), 1, at(11));
        assert_eq!(transmit.open(node(2), at(11)), Ok(3));
        assert_eq!(transmit.unicast[3].next, 0);
        let nodes = (transmit.resting.len()..RESTING_MAX).map(|number| node(NODES_MAX + number));
        let nodes: Vec<_> = nodes.collect();
        transmit.resting.extend(nodes.into_iter().map(|node| (node, 1)));
        assert_eq!(transmit.open(three, at(11)), Err(SendError::TooManyNodes));
    }

    /// Goal: a node that lost its place in the book, because it was silent, is told of its stream all the same. A node that said
    /// goodbye is not.
    #[test]
    fn a_place_in_the_book_that_is_lost_is_no_goodbye() {
        let mut transmit = full();
        (0..NODES_MAX).for_each(|number| assert!(transmit.book.learn((node(number), 1), 1, at(1))));
        transmit.renew_addresses();
        transmit.book.handle_goodbye((node(5), 1));
        transmit.renew_addresses();
        ["one", "two", "three"]
            .into_iter()
            .for_each(|name| assert!(transmit.book.learn((NodeId::named(name), 1), 1, at(20))));
        let addresses = [0, 1, 5].map(|number| transmit.book.address_of(node(number)));
        assert_eq!(addresses, [None; 3], "places have been lost");
        transmit.renew_addresses();
        let left = transmit.unicast.iter().filter(|unicast| unicast.has_left);
        assert!(left.map(|unicast| unicast.node).eq([node(5)]));
    }
    /// Kind, target, and number or life of a frame.
    type Sent = (Kind, Option<NodeId>, u32);

    /// A medium that holds one frame, and has room for it at every other flush.
    #[derive(Debug)]
    struct Narrow {
        frame: [u8; 256],
        is_held: bool,
        flushes: u32,
        gone: Arc<Mutex<Vec<Sent>>>,
    }

    impl MediumTransmit for Narrow {
        type Address = u8;

        fn frame_size_max(&self) -> usize {
            self.frame.len()
        }

        fn claim(&mut self, _size: usize, _to: Option<u8>) -> bool {
            !self.is_held
        }

        fn claimed(&mut self) -> &mut [u8] {
            &mut self.frame
        }

        fn commit(&mut self) {
            self.is_held = true;
        }

        fn flush(&mut self) -> bool {
            self.flushes += u32::from(self.is_held);
            if self.is_held && self.flushes.is_multiple_of(2) {
                let header = Header::read(self.frame.first_chunk().unwrap()).unwrap();
                self.gone.lock().unwrap().push((header.kind, header.target.node, header.sequence));
                self.is_held = false;
            }
            self.is_held
        }

        fn refused(&self) -> u64 {
            0
        }
    }

    /// Goal: a node that closes loses no frame that it has taken. Its goodbyes go behind them and tell its life, though its medium has no room at first.
    #[test]
    fn a_node_that_closes_leaves_no_frame_behind() {
        let gone = Arc::<Mutex<Vec<_>>>::default();
        let own = Own { node: NodeId::named("own"), incarnation: 1, life: 77 };
        let medium = Narrow { frame: [0; 256], is_held: false, flushes: 0, gone: Arc::clone(&gone) };
        let mut transmit = WireTransmit::new(own, medium, Arc::new(AddressBook::new()), None);
        let send = |transmit: &mut WireTransmit<Narrow>, target| {
            let sequence = transmit.claim(Some(target), 64).unwrap();
            let header = Header {
                kind: Kind::Data,
                incarnation: 1,
                source: Address { node: own.node, port: Port::from(1) },
                target: Target { node: Some(target), port: None },
                sequence,
                payload_size: 0,
                stamped: false,
                sealed: false,
            };
            header.write(transmit.claimed().first_chunk_mut().unwrap());
            transmit.commit();
        };
        transmit.send_opening_hello();
        transmit.flush();
        send(&mut transmit, node(1));
        transmit.flush();
        transmit.flush();
        send(&mut transmit, node(2));
        drop(transmit);
        let farewell = [Some(node(1)), Some(node(2)), None].map(|target| (Kind::Goodbye, target, 77));
        let sent = [node(1), node(2)].map(|target| (Kind::Data, Some(target), 0));
        let hello = (Kind::Hello, None, 77);
        assert_eq!(*gone.lock().unwrap(), [&[hello][..], &sent, &farewell].concat());
    }

    /// Goal: a hello for which there is no room is said later: the opening one, which comes first, and answers.
    #[test]
    fn a_hello_without_room_is_said_later() {
        let gone = Arc::<Mutex<Vec<_>>>::default();
        let own = Own { node: NodeId::named("own"), incarnation: 1, life: 77 };
        // A frame of nobody is in its way.
        let medium = Narrow { frame: [0; 256], is_held: true, flushes: 0, gone: Arc::clone(&gone) };
        let book = Arc::new(AddressBook::new());
        let mut transmit = WireTransmit::new(own, medium, Arc::clone(&book), None);
        transmit.announcements = Pace::new(Duration::from_secs(3_600));
        transmit.send_opening_hello();
        transmit.medium.is_held = false;
        book.unanswered().extend([node(3), node(4)]);
        let now = Clock::get().now();
        for _ in 0..3 {
            transmit.housekeep(now);
            while transmit.flush() {}
        }
        let hellos = [None, Some(node(3)), Some(node(4))].map(|target| (Kind::Hello, target, 77));
        assert_eq!(*gone.lock().unwrap(), hellos);
        assert!(book.unanswered().is_empty());
    }
}
