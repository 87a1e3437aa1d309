//! Common part of UDP and raw Ethernet: frames with a check value, nodes that announce themselves, addresses that are learned. Byte by
//! byte in `docs/wire.md`.
//!
//! A frame for a node whose address is not known yet goes to everybody; the first frame heard from a node teaches its
//! address. Announcements say how far a node's streams are, so that the loss of the last frames before a pause is noticed.

mod address_book;
mod announcement;
mod bell;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod transmit;

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::filter::Unwanted;
use punctual_machine::process::random;
use punctual_machine::slept::Slept;
use punctual_proto::frame::{HEADER_SIZE, SOURCE_NODE_AT, Template};
use punctual_proto::limits::{CHECK_SIZE, NODES_MAX};
use punctual_proto::{Frame, FrameError, Header, Kind, NodeId, Stamps};

use address_book::AddressBook;
use announcement::{Announcement, parse_announcement};
pub(super) use bell::Nudge;
pub(super) use bell::WireBell;
use transmit::WireTransmit;

use super::adapter::Presence;
use super::{
    Arrival, Bell, Descriptors, Drops, Event, Flow, PrivateBell, Progress, Receive, Transmit, Trouble,
};
use crate::seal::{NodeOpener, Refusal, Seals};

/// The sending half of a medium.
pub(super) trait MediumTransmit: 'static + Send + std::fmt::Debug {
    /// Address at which a node is reached.
    type Address: Copy + PartialEq + Send + std::fmt::Debug + 'static;

    /// Largest frame with its check value, bytes.
    fn frame_size_max(&self) -> usize;

    /// Address at which a node is reached, where the medium knows that of every node.
    fn address_of(&self, _node: NodeId) -> Option<Self::Address> {
        None
    }

    /// True if a node can be reached, as far as the medium knows.
    fn is_there(&self, _node: NodeId) -> bool {
        true
    }

    /// Room for a frame of so many bytes, check value included, for one address or for everybody: `false` if there is none even
    /// after a flush.
    fn claim(&mut self, size: usize, to: Option<Self::Address>) -> bool;

    /// Where the claimed frame is written.
    fn claimed(&mut self) -> &mut [u8];

    /// Takes the claimed frame.
    fn commit(&mut self);

    /// Hands what was posted to the kernel, as far as it goes now ([`Transmit::flush`]).
    fn flush(&mut self) -> bool;

    /// Frames that the kernel refused for good.
    fn refused(&self) -> u64;

    /// [`Transmit::copies`].
    fn copies(&self) -> usize {
        1
    }
}

/// A raw frame that arrived.
pub(super) struct RawFrame<'a, A> {
    pub(super) bytes: &'a [u8],
    pub(super) source: &'a A,
    pub(super) truncated: bool,
    pub(super) kernel_ns: Option<u64>,
}

/// The receiving half of a medium.
pub(super) trait MediumReceive: 'static + Send + std::fmt::Debug {
    /// Address at which a node is reached.
    type Address: Copy + PartialEq + Send + std::fmt::Debug + 'static;

    /// Shows at most `limit` frames, until told to stop. Returns how many.
    fn poll(&mut self, limit: usize, visit: &mut impl FnMut(RawFrame<'_, Self::Address>) -> Flow) -> usize;

    /// A node that cannot be reached any more, or can again, as the medium noticed behind the frames that it showed last.
    fn noticed(&mut self) -> Option<(Presence, bool)> {
        None
    }

    /// Frames that were taken from the kernel and not yet shown.
    fn is_ready(&self) -> bool;

    /// [`Receive::drops`].
    fn drops(&mut self) -> Option<Box<dyn Drops>>;

    /// [`Receive::room`].
    fn room(&self) -> usize {
        super::ROOM_UNKNOWN
    }

    /// True if [`Self::is_ready`] sees every frame without a call of the kernel.
    fn looks_suffice(&self) -> bool {
        false
    }

    /// [`Receive::rings_doorbell`].
    fn rings_doorbell(&self) -> bool {
        false
    }

    /// [`Receive::look_everywhere`].
    fn look_everywhere(&mut self) {}

    /// [`Receive::has_seen_all`].
    fn has_seen_all(&self) -> bool {
        false
    }

    /// A sleep on its descriptors has ended.
    fn handle_woken(&mut self);

    /// Descriptors that become readable.
    fn descriptors(&self) -> Descriptors<'_>;

    /// The nudge that wakes a sleep in the call that receives, where the medium has one. Asked for once.
    fn nudge(&mut self) -> Option<Box<dyn Nudge>> {
        None
    }

    /// From now on others may wake the receiver by a nudge.
    fn prepare_sleep(&mut self) {}

    /// [`Receive::sleep`].
    fn sleep(&mut self) -> Slept {
        Slept::Less
    }
}

/// Our own identity on the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) node: NodeId,
    pub(super) incarnation: u16,
    /// Announcements carry it in place of a sequence number.
    pub(super) life: u32,
}

impl Own {
    /// A new life of a node.
    pub(super) fn new(node: NodeId) -> Self {
        let drawn = random();
        // 0 would be of a node that does not tell.
        Self { node, incarnation: drawn as u16, life: ((drawn >> 16) as u32).max(1) }
    }
}

/// Both halves over a medium.
pub(super) fn open<T, R>(
    own: Own,
    transmit: T,
    mut receive: R,
    seals: Option<&Seals>,
) -> Result<super::Engine, punctual_machine::SystemError>
where
    T: MediumTransmit + 'static,
    R: MediumReceive<Address = T::Address> + 'static,
    T::Address: Sync,
{
    let bell = Arc::new(WireBell::new(PrivateBell::new()?, receive.nudge()));
    Ok(open_with(bell, own, transmit, receive, seals))
}

/// The same, with a bell that others ring already.
pub(super) fn open_with<T, R>(
    bell: Arc<WireBell>,
    own: Own,
    transmit: T,
    receive: R,
    seals: Option<&Seals>,
) -> super::Engine
where
    T: MediumTransmit + 'static,
    R: MediumReceive<Address = T::Address> + 'static,
    T::Address: Sync,
{
    let book = Arc::new(AddressBook::new());
    let mut transmit = WireTransmit::new(own, transmit, Arc::clone(&book), seals.map(Seals::sealer));
    transmit.send_opening_hello();
    transmit.flush();
    let opener = seals.map(Seals::opener);
    let receive = WireReceive {
        medium: receive,
        door: Door { own, book, last: None, turn: None, familiar: None, opener },
        bell,
    };
    super::Engine { transmit: Box::new(transmit), receive: Box::new(receive) }
}

/// The CRC-32C of what came before, whose value is `before` (0 of nothing), and of `bytes`.
pub(crate) fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// True if a frame's check value, behind it, is right.
pub(super) fn is_whole(frame: &[u8]) -> bool {
    let value = |(covered, check): (&[u8], &[u8; CHECK_SIZE])| crc32_iscsi(covered).to_le_bytes() == *check;
    frame.split_last_chunk().is_some_and(value)
}

/// Puts the check value behind the frame.
pub(super) fn put_check(bytes: &mut [u8], size: usize) {
    let check = crc32_iscsi(&bytes[..size]);
    bytes[size..size + CHECK_SIZE].copy_from_slice(&check.to_le_bytes());
}

#[derive(Debug)]
struct WireReceive<R: MediumReceive> {
    medium: R,
    door: Door<R::Address>,
    bell: Arc<WireBell>,
}

/// Decides what an arriving frame means.
#[derive(Debug)]
struct Door<A> {
    own: Own,
    book: Arc<AddressBook<A>>,
    /// The last life that was heard and its address, so that the book is opened only when something changed.
    last: Option<(NodeId, u16, A)>,
    /// When this turn's first row of frames began, once one did: where several nodes talk in turn each frame begins one.
    turn: Option<Ticks>,
    /// The last message that was for us, unless it was sealed.
    familiar: Option<Familiar<A>>,
    /// Looks behind the seals, on a sealed bus. Here, and not at the node, because a frame teaches its sender's address.
    opener: Option<NodeOpener>,
}

/// Known header and source of a message: for one like it, only the check value is looked at.
#[derive(Debug)]
struct Familiar<A> {
    template: Template,
    source: A,
}

/// Frames that come back to their sender: by a multicast group, or a segment that reflects.
pub(super) fn unwanted(own: NodeId) -> Unwanted {
    Unwanted { at: SOURCE_NODE_AT as u16, bytes: own.get().to_le_bytes() }
}

/// Compares a frame's check value.
fn verify<A>(raw: &RawFrame<'_, A>, header: &Header) -> Result<(), Trouble> {
    let size = header.frame_size();
    let needed = size + CHECK_SIZE;
    let short = Trouble::BadFrame(FrameError::Short { present: raw.bytes.len(), needed });
    if raw.truncated {
        return Err(short);
    }
    // Short Ethernet frames are padded: bytes behind the check value are nobody's.
    let check = raw.bytes.get(size..).and_then(|rest| rest.first_chunk()).ok_or(short)?;
    if u32::from_le_bytes(*check) == crc32_iscsi(&raw.bytes[..size]) {
        Ok(())
    } else {
        Err(Trouble::BadCheck)
    }
}

impl<A: Copy + PartialEq> Door<A> {
    /// Decides what one raw frame means to the node.
    #[inline]
    fn handle_raw(&mut self, raw: &RawFrame<'_, A>, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> Flow {
        if let Some(familiar) = &self.familiar
            && familiar.source == *raw.source
            && let Some(header) = raw.bytes.first_chunk().and_then(|head| familiar.template.read(head))
        {
            return match verify(raw, &header) {
                Ok(()) => show(raw, &header, None, visit),
                Err(trouble) => visit(Event::Trouble(trouble)),
            };
        }
        self.handle_any(raw, visit)
    }

    /// The same, of a frame that is not like the message before.
    fn handle_any(&mut self, raw: &RawFrame<'_, A>, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> Flow {
        let frame = match Frame::parse(raw.bytes) {
            Ok(frame) => frame,
            Err(error) => return visit(Event::Trouble(Trouble::BadFrame(error))),
        };
        let header = frame.header;
        let node = header.source.node;
        if node == self.own.node {
            // Our own, wherever the kernel could not tell: not worth a look at its bytes.
            return Flow::Continue;
        }
        if let Err(trouble) = verify(raw, &header) {
            return visit(Event::Trouble(trouble));
        }
        if !header.target.includes_node(self.own.node) {
            return Flow::Continue;
        }
        let sealed_in = match self.open(&header, raw.bytes) {
            Ok(sealed_in) => sealed_in,
            Err(refusal) => return visit(Event::Trouble(Trouble::Refused { refusal, header })),
        };
        let speaker = Some((node, header.incarnation, *raw.source));
        if self.last != speaker {
            // A node that is heard from elsewhere is there now, until a message shows otherwise, which is looked at in full.
            (self.last, self.familiar) = (speaker, None);
            let now = *self.turn.get_or_insert_with(|| Clock::get().now());
            if !self.book.learn((node, header.incarnation), *raw.source, now) {
                // The next frame of that life is looked at in full, too.
                self.last = None;
            }
        }
        if header.kind.is_numbered() {
            let familiar = || Familiar { template: Template::new(header), source: *raw.source };
            self.familiar = (sealed_in.is_none() && self.last.is_some()).then(familiar);
            return show(raw, &header, sealed_in, visit);
        }
        let Some(announcement) = parse_announcement(frame.payload, header.target.node.is_none()) else {
            return visit(Event::Trouble(Trouble::BadFrame(FrameError::Unknown)));
        };
        let now = *self.turn.get_or_insert_with(|| Clock::get().now());
        let flow = handle_announcement(&self.book, &header, &announcement, now, visit);
        if header.kind == Kind::Goodbye {
            (self.last, self.familiar) = (None, None);
        }
        flow
    }

    fn open(&mut self, header: &Header, bytes: &[u8]) -> Result<Option<u32>, Refusal> {
        match &mut self.opener {
            Some(opener) => opener.open(header, &bytes[..header.frame_size()]).map(Some),
            None if header.sealed => Err(Refusal::Unexpected),
            None => Ok(None),
        }
    }
}

/// Shows a message that is whole and for us.
#[inline]
fn show<A>(
    raw: &RawFrame<'_, A>,
    header: &Header,
    sealed_in: Option<u32>,
    visit: &mut dyn FnMut(Event<'_>) -> Flow,
) -> Flow {
    let stamps = header.stamped.then(|| raw.bytes[HEADER_SIZE..].first_chunk().map(Stamps::read)).flatten();
    let payload = &raw.bytes[header.prefix_size()..header.frame_size()];
    visit(Event::Frame(&Arrival { header, stamps, payload, kernel_ns: raw.kernel_ns, sealed_in }))
}

fn handle_announcement<A: Copy + PartialEq>(
    book: &AddressBook<A>,
    header: &Header,
    announcement: &Announcement,
    now: Ticks,
    visit: &mut dyn FnMut(Event<'_>) -> Flow,
) -> Flow {
    let (node, incarnation) = (header.source.node, header.incarnation);
    let progress = Progress { life: header.sequence, ..announcement.progress };
    if header.kind == Kind::Goodbye {
        // Either kind may be read last on a multicast group, and frames that are read before it teach the address again.
        book.handle_goodbye((node, incarnation));
        // The goodbye to everybody is the last; those to single nodes before it say where their streams end.
        if header.target.node.is_some() {
            return visit(Event::Progressed { node, incarnation, progress });
        }
        return visit(Event::Left { node, incarnation, progress: Some(progress), died: false });
    }
    if announcement.answer_wanted {
        book.handle_opening((node, incarnation), now);
        let mut unanswered = book.unanswered();
        if unanswered.len() < NODES_MAX {
            unanswered.push_back(node);
        }
        drop(unanswered);
        // It has just opened: its streams begin here, the one to us at zero.
        let (progress, exact) = (Progress { unicast: Some(0), ..progress }, progress.in_order);
        return visit(Event::Joined { node, incarnation, progress, exact });
    }
    visit(Event::Progressed { node, incarnation, progress })
}

impl<R: MediumReceive> Receive for WireReceive<R>
where
    R::Address: Sync,
{
    fn poll(&mut self, limit: usize, visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
        let Self { medium, door, .. } = self;
        door.turn = None;
        let mut shown = medium.poll(limit, &mut |raw| door.handle_raw(&raw, visit));
        while let Some((Presence { node, incarnation }, is_back)) = medium.noticed() {
            shown += 1;
            visit(Event::Noticed { node, incarnation, is_back });
        }
        shown
    }

    fn is_ready(&self) -> bool {
        self.medium.is_ready()
    }

    fn drops(&mut self) -> Option<Box<dyn Drops>> {
        self.medium.drops()
    }

    fn room(&self) -> usize {
        self.medium.room()
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }

    fn prepare_sleep(&mut self, alone: bool) -> bool {
        let in_receive = self.bell.prepare(alone);
        if in_receive {
            self.medium.prepare_sleep();
        }
        in_receive
    }

    fn sleep(&mut self) -> Slept {
        self.medium.sleep()
    }

    fn looks_suffice(&self) -> bool {
        self.medium.looks_suffice()
    }

    fn rings_doorbell(&self) -> bool {
        self.medium.rings_doorbell()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.medium.descriptors()
    }

    fn handle_awake(&mut self) {
        self.bell.event().drain();
        self.medium.handle_woken();
    }

    fn handle_woken(&mut self) {
        self.medium.handle_woken();
    }

    fn look_everywhere(&mut self) {
        self.medium.look_everywhere();
    }

    fn has_seen_all(&self) -> bool {
        self.medium.has_seen_all()
    }

    fn housekeep(&mut self, _now: Ticks) {}
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use punctual_proto::{Address, Port, Target};

    fn raw(bytes: &[u8]) -> RawFrame<'_, u8> {
        RawFrame { bytes, source: &1, truncated: false, kernel_ns: None }
    }

    fn door(own: Own) -> Door<u8> {
        Door { own, book: Arc::new(AddressBook::new()), last: None, turn: None, familiar: None, opener: None }
    }

    /// Goal: check values are those of RFC 3720, in one part and in two, by whichever method this processor has.
    #[test]
    fn check_values_are_those_of_the_standard() {
        let bytes: Vec<u8> = (0..2000_usize).map(|at| (at * 37 % 251) as u8).collect();
        for size in (0..300).chain((300..2000).step_by(67)) {
            let (first, rest) = bytes[..size].split_at(size / 3);
            let expected = punctual_proto::broadcast::crc32c(0, &bytes[..size]);
            assert_eq!(crc32_iscsi(&bytes[..size]), expected, "{size} bytes");
            assert_eq!(crc32c_append(crc32c_append(0, first), rest), expected, "{size} bytes in parts");
        }
    }

    fn parse_checked<'a>(raw: &RawFrame<'a, u8>) -> Result<Frame<'a>, Trouble> {
        let frame = Frame::parse(raw.bytes).map_err(Trouble::BadFrame)?;
        verify(raw, &frame.header).map(|()| frame)
    }

    /// Goal: of what comes back to its sender nothing is shown, counted or checked.
    #[test]
    fn a_node_does_not_listen_to_itself() {
        let own = Own { node: NodeId::named("a"), incarnation: 3, life: 1 };
        let mut door = door(own);
        let mut bytes = frame(b"mine");
        *bytes.last_mut().unwrap() ^= 1;
        door.handle_raw(&raw(&bytes), &mut |event| panic!("{event:?}"));
    }

    /// Goal: a node is where its last frame came from, also if that was like one before.
    #[test]
    fn a_node_is_where_it_was_heard_last() {
        let mut door = door(Own { node: NodeId::named("we"), incarnation: 1, life: 1 });
        let (message, mut hello) = (frame(b"hello"), frame(&[0; 17]));
        hello[1] += 1;
        let size = hello.len() - CHECK_SIZE;
        put_check(&mut hello, size);
        for (bytes, source) in [(&message, 1), (&message, 1), (&hello, 2), (&message, 1)] {
            door.handle_raw(&RawFrame { source: &source, ..raw(bytes) }, &mut |event| {
                assert!(!matches!(event, Event::Trouble(_)), "{event:?}");
                Flow::Continue
            });
            assert_eq!(door.book.address_of(NodeId::named("a")), Some(source));
        }
    }

    /// Goal: late messages of a life that is over do not move its node, and are looked at in full each time: the next life may have the
    /// same incarnation.
    #[test]
    fn a_life_that_is_over_moves_nobody() {
        let mut door = door(Own { node: NodeId::named("we"), incarnation: 1, life: 1 });
        let mut opening = [0; 17];
        opening[16] = announcement::ANSWER_WANTED;
        let [late, opens] = [frame_of(3, Kind::Data, b"late"), frame_of(4, Kind::Hello, &opening)];
        for (bytes, source, expected) in [(&late, 1, 1), (&opens, 2, 2), (&late, 1, 2), (&late, 1, 2)] {
            let mut shown = 0;
            door.handle_raw(&RawFrame { source: &source, ..raw(bytes) }, &mut |_| {
                shown += 1;
                Flow::Continue
            });
            assert_eq!((shown, door.book.address_of(NodeId::named("a"))), (1, Some(expected)));
        }
        assert!(door.last.is_none() && door.familiar.is_none());
    }

    /// Goal: an announcement tells the life of its node.
    #[test]
    fn an_announcement_tells_a_life() {
        let mut door = door(Own { node: NodeId::named("we"), incarnation: 1, life: 1 });
        let mut lives = vec![];
        for kind in [1, 2] {
            let mut bytes = frame(&[0; 17]);
            bytes[1] += kind;
            let size = bytes.len() - CHECK_SIZE;
            put_check(&mut bytes, size);
            door.handle_raw(&raw(&bytes), &mut |event| {
                let (Event::Progressed { progress, .. } | Event::Left { progress: Some(progress), .. }) =
                    event
                else {
                    panic!("{event:?}")
                };
                lives.push(progress.life);
                Flow::Continue
            });
        }
        assert_eq!(lives, [9, 9]);
    }

    pub(in crate::engine) fn frame(payload: &[u8]) -> Vec<u8> {
        frame_of(3, Kind::Data, payload)
    }

    /// Of a life of the node "a".
    fn frame_of(incarnation: u16, kind: Kind, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            kind,
            incarnation,
            source: Address { node: NodeId::named("a"), port: Port::from(1) },
            target: Target::EVERYONE,
            sequence: 9,
            payload_size: payload.len() as u32,
            stamped: false,
            sealed: false,
        };
        let mut bytes = vec![0; header.frame_size() + CHECK_SIZE];
        header.write(bytes.first_chunk_mut().unwrap());
        bytes[header.prefix_size()..header.frame_size()].copy_from_slice(payload);
        put_check(&mut bytes, header.frame_size());
        bytes
    }

    #[test]
    fn no_altered_byte_goes_unnoticed() {
        let good = frame(b"payload");
        assert_eq!(parse_checked(&raw(&good)).unwrap().payload, b"payload");
        for at in 0..good.len() {
            for flip in [1, 0x80, 0xFF] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(parse_checked(&raw(&bad)).is_err(), "byte {at} flipped by {flip:#x}");
            }
        }
    }

    #[test]
    fn padding_is_nobodys_and_a_cut_frame_is_refused() {
        let good = frame(b"x");
        let padded = [good.clone(), vec![0xAA; 20]].concat();
        assert_eq!(parse_checked(&raw(&padded)).unwrap().payload, b"x");
        for size in 0..good.len() {
            assert!(parse_checked(&raw(&good[..size])).is_err());
        }
        assert!(parse_checked(&RawFrame { truncated: true, ..raw(&good) }).is_err());
    }

    #[test]
    fn an_announcement_that_is_too_short_is_none() {
        assert!(parse_announcement(&[0; 16], false).is_none());
        let bytes = [1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 3];
        let announcement = parse_announcement(&bytes, false).unwrap();
        let progress =
            Progress { unicast: Some((4 << 32) + 2), broadcast: (3 << 32) + 1, in_order: false, life: 0 };
        assert_eq!(announcement.progress, progress);
        assert!(announcement.answer_wanted);
    }

    proptest::proptest! {
        /// Goal: bytes from outside are refused or understood; every event shown is for us and from somebody else. Method: random
        /// bytes, half of them behind a likely header and with a check value that is right.
        #[test]
        fn any_bytes_are_refused_or_understood(mut bytes: Vec<u8>, likely: bool, kind in 0_u8..3, truncated: bool) {
            if likely && bytes.len() >= punctual_proto::frame::HEADER_SIZE + CHECK_SIZE {
                (bytes[0], bytes[1], bytes[29], bytes[30], bytes[31]) = (0xB5, 0x10 | kind, 0, 0, 0);
                bytes[28] = (bytes.len() - punctual_proto::frame::HEADER_SIZE - CHECK_SIZE) as u8;
                bytes[16..24].copy_from_slice(&[0xFF; 8]);
                let size = usize::from(bytes[28]) + punctual_proto::frame::HEADER_SIZE;
                put_check(&mut bytes, size);
            }
            let own = Own { node: NodeId::named("we"), incarnation: 1, life: 1 };
            let mut door = door(own);
            let mut shown = 0;
            door.handle_raw(&RawFrame { truncated, ..raw(&bytes) }, &mut |event| {
                shown += 1;
                if let Event::Frame(arrival) = event {
                    assert!(arrival.header.source.node != own.node && !truncated);
                    assert!(arrival.payload.len() < bytes.len());
                }
                Flow::Continue
            });
            proptest::prop_assert!(shown <= 1);
        }
    }
}
