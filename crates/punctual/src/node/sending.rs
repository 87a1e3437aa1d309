//! The sending side of a node: one message to the bus, to ports of this node, or to both.

use std::sync::Arc;

use punctual_machine::block;
use punctual_machine::clock::Ticks;
use punctual_machine::counter::Counter;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::limits::{CHECK_SIZE, OVERHEAD_SIZE_MAX, PREFIX_SIZE_MAX};
use punctual_proto::seal::SEAL_SIZE;
use punctual_proto::stamps::{STAMPS_SIZE, interval};
use punctual_proto::{Address, Header, Kind, NodeId, Port, Stamps, Target, UniqueStamps};

use super::Core;
use super::inbox::{Circumstances, Inbox, local_stamps};
use super::registry::Ports;
use crate::engine::{Bell, SendError, Transmit, ring};
use crate::ledger::Count;
use crate::seal::{NodeSealer, Seals};

/// The sending half, under the node's lock for senders.
#[derive(Debug)]
pub(crate) struct Sending {
    transmit: Box<dyn Transmit>,
    ports: Ports,
    /// The message in the making, where it is not made in the engine.
    staged: Vec<u8>,
    /// Data that the claim in the making needs when it is committed.
    open: Option<Open>,
    unique: UniqueStamps,
    sealer: Option<NodeSealer>,
    /// Traffic between communicators of this node is sealed too, …
    seals_local: bool,
    /// … and then is a stream of its own: its next number.
    local_sequence: u32,
    /// 1 while the medium has no room yet for a frame that was taken: [`Core::is_behind`].
    behind: Arc<Counter>,
    /// Wakes who sleeps while there was nothing to catch up with.
    bell: Arc<dyn Bell>,
}

/// A claim in the making.
#[derive(Clone, Copy, Debug)]
struct Open {
    source: Address,
    target: Target,
    /// In the stream on the bus.
    sequence: u32,
    size: usize,
    stamps: Option<Stamps>,
    to_bus: bool,
    /// Ports of this node are meant, besides the sender's own.
    to_ports: bool,
    sealed: bool,
    kind: Kind,
}

impl Open {
    fn prefix_size(&self) -> usize {
        if self.stamps.is_some() { PREFIX_SIZE_MAX } else { HEADER_SIZE }
    }

    fn frame_size(&self) -> usize {
        self.prefix_size() + self.size + if self.sealed { SEAL_SIZE } else { 0 }
    }

    fn header(&self, core: &Core, sequence: u32) -> Header {
        Header {
            kind: self.kind,
            incarnation: core.about.incarnation,
            source: self.source,
            target: self.target,
            sequence,
            payload_size: self.size as u32,
            stamped: self.stamps.is_some(),
            sealed: self.sealed,
        }
    }
}

/// When a message was due and sent, if its stages are to be recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) due: Option<Ticks>,
    pub(crate) sent: Ticks,
}

impl Sending {
    pub(crate) fn new(
        transmit: Box<dyn Transmit>,
        seals: Option<&Seals>,
        behind: &Arc<Counter>,
        bell: &Arc<dyn Bell>,
    ) -> Self {
        let size_max = transmit.payload_size_max() + PREFIX_SIZE_MAX + CHECK_SIZE;
        Self {
            transmit,
            ports: Ports::default(),
            staged: vec![0; size_max],
            open: None,
            unique: UniqueStamps::default(),
            sealer: seals.map(Seals::sealer),
            seals_local: seals.is_some_and(|seals| seals.keys().is_local()),
            local_sequence: 0,
            behind: Arc::clone(behind),
            bell: Arc::clone(bell),
        }
    }

    /// Takes a message, or says why not.
    ///
    /// The claim stays where the compiler sees it: stored and read again it would cost more than the header.
    #[inline]
    pub(crate) fn take(
        &mut self,
        core: &Core,
        source: &Inbox,
        target: Target,
        payload: &[u8],
        timing: Option<Timing>,
    ) -> Result<(), SendError> {
        if target.node.is_some_and(|node| node != core.about.node) {
            return self.take_for_one(core, source, target, payload, timing);
        }
        let open = self.open(core, source, target, (Kind::Data, payload.len()), timing, source.seals_in())?;
        block::copy(payload, self.room(&open));
        self.close(core, source, &open);
        Ok(())
    }

    /// The frequent case, which has few choices: one other node is meant.
    #[inline]
    fn take_for_one(
        &mut self,
        core: &Core,
        source: &Inbox,
        target: Target,
        payload: &[u8],
        timing: Option<Timing>,
    ) -> Result<(), SendError> {
        check(core, target, payload.len())?;
        let stamps = timing.map(|timing| self.stamps(core, timing));
        let Self { transmit, staged, sealer, .. } = self;
        sealer.as_mut().map_or(Ok(()), |sealer| sealer.prepare(source.seals_in()))?;
        let source = Address { node: core.about.node, port: source.port };
        let (size, sealed) = (payload.len(), sealer.is_some());
        let mut open = Open {
            source,
            target,
            sequence: 0,
            size,
            stamps,
            to_bus: true,
            to_ports: false,
            sealed,
            kind: Kind::Data,
        };
        let (prefix_size, frame_size) = (open.prefix_size(), open.frame_size());
        let claimed = transmit.claim(target.node, frame_size);
        open.sequence = claimed.map_err(|error| refuse(core, error))?;
        let frame = if sealed { &mut staged[..frame_size] } else { transmit.claimed() };
        block::copy(payload, &mut frame[prefix_size..prefix_size + size]);
        // All in one go, after the payload: a reader looks at this cache line all the while, and every look takes it away.
        let posted = stamps.map(|stamps| (stamps, core.about.clock.now()));
        write_prefix(frame, &open.header(core, open.sequence), posted);
        if let Some(sealer) = sealer {
            let frame = &mut staged[..frame_size];
            sealer.seal(frame);
            place(frame, transmit.claimed(), prefix_size);
        }
        transmit.commit();
        core.about.page.count(Count::Sent).add_alone(1);
        Ok(())
    }

    #[inline]
    fn stamps(&mut self, core: &Core, timing: Timing) -> Stamps {
        let sent = Ticks(self.unique.next(timing.sent.0));
        local_stamps(sent, timing.due, core.about.clock.domain())
    }

    /// Room for a frame of this kind and size. It is taken by [`Self::commit`]; without that nothing happened.
    pub(crate) fn claim(
        &mut self,
        core: &Core,
        source: &Inbox,
        target: Target,
        frame: (Kind, usize),
        timing: Option<Timing>,
    ) -> Result<(), SendError> {
        self.claim_in(core, source, target, frame, timing, source.seals_in())
    }

    /// The same, sealed in this group, or in the node's.
    #[inline]
    pub(crate) fn claim_in(
        &mut self,
        core: &Core,
        source: &Inbox,
        target: Target,
        frame: (Kind, usize),
        timing: Option<Timing>,
        group: Option<u32>,
    ) -> Result<(), SendError> {
        self.open = None;
        self.open = Some(self.open(core, source, target, frame, timing, group)?);
        Ok(())
    }

    /// Where the claimed message is written.
    ///
    /// # Panics
    /// If nothing was claimed.
    pub(crate) fn payload(&mut self) -> &mut [u8] {
        let open = self.open.expect("a claim is open");
        self.room(&open)
    }

    /// Takes the claimed message: it is delivered from now on, or counted.
    pub(crate) fn commit(&mut self, core: &Core, source: &Inbox) {
        if let Some(open) = self.open.take() {
            self.close(core, source, &open);
        }
    }

    #[inline]
    fn open(
        &mut self,
        core: &Core,
        source: &Inbox,
        target: Target,
        (kind, size): (Kind, usize),
        timing: Option<Timing>,
        group: Option<u32>,
    ) -> Result<Open, SendError> {
        check(core, target, size)?;
        let stamps = timing.map(|timing| self.stamps(core, timing));
        let address = Address { node: core.about.node, port: source.port };
        let to_bus = target.node != Some(core.about.node);
        let to_ports = target.includes_node(core.about.node) && self.meets_ports(core, source, target);
        let sealed = match &mut self.sealer {
            Some(sealer) if to_bus || self.seals_local => sealer.prepare(group).map(|()| true)?,
            _ => false,
        };
        let mut open =
            Open { source: address, target, sequence: 0, size, stamps, to_bus, to_ports, sealed, kind };
        let claimed = if to_bus {
            self.transmit.claim(target.node, open.frame_size())
        } else {
            self.claim_here(source, &open)
        };
        match claimed {
            Ok(sequence) => open.sequence = sequence,
            Err(error) => return Err(refuse(core, error)),
        }
        Ok(open)
    }

    /// An empty message of a communicator to itself, which needs neither medium nor key.
    pub(crate) fn nudge(&mut self, core: &Core, source: &Inbox) -> Result<(), SendError> {
        let address = Address { node: core.about.node, port: source.port };
        let target = Target::from(address);
        let to_ports = self.meets_ports(core, source, target);
        let open = Open {
            source: address,
            target,
            sequence: 0,
            size: 0,
            stamps: None,
            to_bus: false,
            to_ports,
            sealed: false,
            kind: Kind::Data,
        };
        self.claim_here(source, &open)?;
        // Before it is there, so that its taker knows it for what it is.
        source.nudges.add(1);
        if !self.deliver_here(core, source, &open) {
            // Somebody else has taken the room that was there.
            source.nudges.add(1_u64.wrapping_neg());
        }
        core.about.page.count(Count::Sent).add_alone(1);
        Ok(())
    }

    /// A message for ports of this node alone: they must be there, and a single one must have room.
    fn claim_here(&mut self, source: &Inbox, open: &Open) -> Result<u32, SendError> {
        let mut meant = self.ports.inboxes.iter().filter(|inbox| is_meant(inbox, source, open.target));
        let Some(first) = meant.next() else { return Err(SendError::Unreachable) };
        if meant.next().is_none() {
            let (size, size_max) = (open.size, first.payload_size_max());
            if size > size_max {
                // However much its owner reads.
                return Err(SendError::TooLong { size, size_max });
            }
            if !first.has_room(OVERHEAD_SIZE_MAX + size) {
                return Err(SendError::Full);
            }
        }
        // It is in no stream on the bus.
        Ok(0)
    }

    fn meets_ports(&mut self, core: &Core, source: &Inbox, target: Target) -> bool {
        self.ports.renew(&core.registry);
        self.ports.inboxes.iter().any(|inbox| is_meant(inbox, source, target))
    }

    #[inline]
    fn room(&mut self, open: &Open) -> &mut [u8] {
        let prefix = open.prefix_size();
        // A sealed frame is made in memory of our own: otherwise a peer's changes meanwhile would be sealed as ours.
        if open.to_bus && !open.sealed {
            &mut self.transmit.claimed()[prefix..prefix + open.size]
        } else {
            &mut self.staged[prefix..prefix + open.size]
        }
    }

    #[inline]
    fn close(&mut self, core: &Core, source: &Inbox, open: &Open) {
        if open.sealed && open.to_bus {
            self.close_sealed(core, open);
        } else if open.to_ports && open.to_bus {
            // Copied before the bus takes the frame: from then on it is the receivers' to read.
            let size = open.prefix_size() + open.size;
            self.staged[..size].copy_from_slice(&self.transmit.claimed()[..size]);
        }
        if open.to_bus && !open.sealed {
            let posted = open.stamps.map(|_| core.about.clock.now());
            // All in one go, after the payload: a reader looks at this cache line all the while, and every look takes it away.
            write_prefix(self.transmit.claimed(), &open.header(core, open.sequence), open.stamps.zip(posted));
            self.transmit.commit();
        }
        if open.to_ports {
            self.deliver_here(core, source, open);
        }
        core.about.page.count(Count::Sent).add_alone(1);
    }

    /// Makes the frame in memory of our own, seals it, and only then puts it where others can reach it.
    #[inline]
    fn close_sealed(&mut self, core: &Core, open: &Open) {
        let frame = &mut self.staged[..open.frame_size()];
        // The stamps are covered by the tag, and so stand before it: the time for the tag falls into the next stage.
        let posted = open.stamps.map(|_| core.about.clock.now());
        write_prefix(frame, &open.header(core, open.sequence), open.stamps.zip(posted));
        if let Some(sealer) = &mut self.sealer {
            sealer.seal(frame);
        }
        place(frame, self.transmit.claimed(), open.prefix_size());
        self.transmit.commit();
    }

    /// Returns true if all inboxes of this node that the message is for had room.
    fn deliver_here(&mut self, core: &Core, source: &Inbox, open: &Open) -> bool {
        let sealed = open.sealed && self.seals_local;
        let open = &Open { sealed, ..*open };
        let now = open.stamps.map_or_else(Ticks::default, |_| core.about.clock.now());
        let frame = &mut self.staged[..open.frame_size()];
        let sequence = self.local_sequence;
        self.local_sequence = sequence.wrapping_add(u32::from(sealed));
        write_prefix(frame, &open.header(core, sequence), open.stamps.map(|stamps| (stamps, now)));
        if let Some(sealer) = self.sealer.as_mut().filter(|_| sealed) {
            sealer.seal(frame);
        }
        let (prefix, payload) = frame.split_at(open.prefix_size());
        let circumstances = Circumstances { read: now, ..Circumstances::default() };
        let (mut copies, mut pushed) = (0, 0);
        for inbox in self.ports.inboxes.iter().filter(|inbox| is_meant(inbox, source, open.target)) {
            copies += 1;
            core.about.page.count(Count::CopiesLocal).add_alone(1);
            if inbox.push(&circumstances, prefix, payload, &core.about.page) {
                pushed += 1;
                inbox.ring(&*core.bell);
            }
        }
        debug_assert!(copies > 0, "it was asked before");
        pushed == copies
    }

    /// Hands what was committed to the medium.
    #[inline]
    pub(crate) fn flush(&mut self) {
        let is_behind = self.transmit.flush().into();
        if self.behind.get() != is_behind {
            self.behind.set(is_behind);
            if is_behind != 0 {
                // A thread that sleeps until the next housekeeping tries again before that.
                ring(&*self.bell);
            }
        }
    }

    pub(crate) fn housekeep(&mut self, core: &Core, now: Ticks) {
        self.flush();
        self.transmit.housekeep(now);
        self.flush();
        self.count_refused(core);
    }

    /// Shows how many frames the medium has refused by now.
    pub(crate) fn count_refused(&self, core: &Core) {
        core.about.page.count(Count::Refused).set(self.transmit.refused());
    }

    pub(crate) fn sent_to(&self, target: Option<NodeId>) -> u64 {
        self.transmit.sent_to(target)
    }
}

#[inline]
fn check(core: &Core, target: Target, size: usize) -> Result<(), SendError> {
    let size_max = core.about.payload_size_max;
    if size > size_max {
        return Err(SendError::TooLong { size, size_max });
    }
    // In a frame its number would stand for all ports.
    if target.port.is_some_and(Port::is_reserved) { Err(SendError::Unreachable) } else { Ok(()) }
}

#[cold]
fn refuse(core: &Core, error: SendError) -> SendError {
    if error == SendError::Full {
        core.about.page.count(Count::SendFull).add_alone(1);
    }
    error
}

fn is_meant(inbox: &Inbox, source: &Inbox, target: Target) -> bool {
    // Everybody but the sender itself; a message to one's own port is sent on purpose.
    let is_all = target.port.is_none() || target.node.is_none() && source.ignores_own();
    let itself = std::ptr::eq(inbox, source) && is_all;
    // A monitor has what arrives. As a reader it would hold its own node's senders back.
    target.includes_port(inbox.port) && !itself && !inbox.monitors
}

/// Puts a frame that is made where others can reach it. Its first bytes go last: they share a cache line with the record's
/// commit word, at which a reader looks all the while.
#[inline]
fn place(frame: &[u8], claimed: &mut [u8], prefix_size: usize) {
    block::copy(&frame[prefix_size..], &mut claimed[prefix_size..]);
    let (head, rest) = frame.split_first_chunk::<HEADER_SIZE>().expect("a frame has a header");
    let (head_claimed, rest_claimed) =
        claimed.split_first_chunk_mut::<HEADER_SIZE>().expect("as much was claimed");
    if let (Some(stamps), Some(claimed)) = (rest.first_chunk::<STAMPS_SIZE>(), rest_claimed.first_chunk_mut())
        && prefix_size > HEADER_SIZE
    {
        *claimed = *stamps;
    }
    *head_claimed = *head;
}

/// Writes header and stamps. Without a tag, sealed is sent; the engine takes the frame at `posted`.
#[inline]
fn write_prefix(frame: &mut [u8], header: &Header, stamps: Option<(Stamps, Ticks)>) {
    let (head, rest) = frame.split_first_chunk_mut().expect("a frame is never shorter than its header");
    header.write(head);
    if let Some((stamps, posted)) = stamps {
        let stamps = Stamps { sealed_to_posted: interval(stamps.sent, posted.0), ..stamps };
        stamps.write(rest.first_chunk_mut::<STAMPS_SIZE>().expect("room was claimed for them"));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use punctual_machine::counter::Flag;
    use punctual_machine::doorbell::Notification;
    use punctual_machine::event_fd::wait_readable;

    use super::*;
    use crate::communicator::Communicator;
    use crate::engine::{Descriptors, Engine, Event, Flow, Joined, PrivateBell, Receive};
    use crate::node::{Node, Who};
    use crate::runtime::{Awaited, Runtime, RuntimeOptions, TaskOptions};

    /// A medium that has room for what was committed at every other call.
    #[derive(Debug, Default)]
    struct Narrow {
        flushes: u32,
    }

    impl Transmit for Narrow {
        fn payload_size_max(&self) -> usize {
            64
        }

        fn claim(&mut self, _target: Option<NodeId>, _size: usize) -> Result<u32, SendError> {
            Err(SendError::Full)
        }

        fn claimed(&mut self) -> &mut [u8] {
            &mut []
        }

        fn commit(&mut self) {}

        fn flush(&mut self) -> bool {
            self.flushes += 1;
            self.flushes % 2 == 1
        }

        fn housekeep(&mut self, _now: Ticks) {}

        fn sent_to(&self, _target: Option<NodeId>) -> u64 {
            0
        }
    }

    /// Goal: a thread that went to sleep before frames stayed behind hears of them, and tries soon. Their departure wakes nobody.
    #[test]
    fn a_frame_that_stays_behind_wakes_the_sleeper() {
        let bell: Arc<dyn Bell> = Arc::new(PrivateBell::new().unwrap());
        let behind = Arc::<Counter>::default();
        let mut sending = Sending::new(Box::<Narrow>::default(), None, &behind, &bell);
        let rung = || wait_readable(bell.event().as_fd(), Some(Duration::ZERO)).unwrap();
        for _ in 0..3 {
            assert!(bell.doorbell().arm(Notification::Descriptor, || false));
            sending.flush();
            assert_eq!((behind.get(), rung()), (1, true));
            bell.event().drain();
            assert!(bell.doorbell().arm(Notification::Descriptor, || false));
            sending.flush();
            assert_eq!((behind.get(), rung()), (0, false));
        }
    }

    /// A medium that has no room for a frame at first.
    #[derive(Debug)]
    struct Slow {
        frame: [u8; 256],
        is_waiting: bool,
        /// Times that it has no room still.
        refusals: u32,
        has_gone: Arc<Flag>,
    }

    impl Transmit for Slow {
        fn payload_size_max(&self) -> usize {
            64
        }

        fn claim(&mut self, _target: Option<NodeId>, _size: usize) -> Result<u32, SendError> {
            Ok(0)
        }

        fn claimed(&mut self) -> &mut [u8] {
            &mut self.frame
        }

        fn commit(&mut self) {
            self.is_waiting = true;
        }

        fn flush(&mut self) -> bool {
            if self.is_waiting && self.refusals == 0 {
                self.is_waiting = false;
                self.has_gone.raise();
            }
            self.refusals -= u32::from(self.is_waiting);
            self.is_waiting
        }

        fn housekeep(&mut self, _now: Ticks) {}

        fn sent_to(&self, _target: Option<NodeId>) -> u64 {
            0
        }
    }

    /// And from which nothing comes.
    #[derive(Debug)]
    struct Silent(Arc<PrivateBell>);

    impl Receive for Silent {
        fn poll(&mut self, _limit: usize, _visit: &mut dyn FnMut(Event<'_>) -> Flow) -> usize {
            0
        }

        fn is_ready(&self) -> bool {
            false
        }

        fn bell(&self) -> Arc<dyn Bell> {
            self.0.clone()
        }

        fn looks_suffice(&self) -> bool {
            true
        }

        fn descriptors(&self) -> Descriptors<'_> {
            [None, None]
        }

        fn handle_awake(&mut self) {
            self.0.event().drain();
        }

        fn housekeep(&mut self, _now: Ticks) {}
    }

    /// A communicator that has sent a frame, and a flag that is raised once the medium has it. At the first `refusals` flushes the medium
    /// has no room.
    fn behind(refusals: u32) -> (Communicator, Arc<Flag>) {
        let has_gone = Arc::<Flag>::default();
        let slow = Slow { frame: [0; 256], is_waiting: false, refusals, has_gone: Arc::clone(&has_gone) };
        let silent = Silent(Arc::new(PrivateBell::new().unwrap()));
        let engine = Engine { transmit: Box::new(slow), receive: Box::new(silent) };
        let who = Who { node: NodeId::named("slow"), name: "slow", bus: "slow", message_size_max: 0 };
        let node = Node::over(engine, Joined { incarnation: 1 }, who, None).unwrap();
        let mut communicator = node.bind(1).unwrap();
        communicator.try_send(Target::node("elsewhere"), b"in time").unwrap();
        (communicator, has_gone)
    }

    /// Goal: a frame that was taken goes once the medium has room, while event loops and tasks wait for something else.
    #[test]
    fn a_frame_left_behind_goes_while_event_loops_and_tasks_wait() {
        let patience = Duration::from_secs(20);
        let (mut communicator, has_gone) = behind(5);
        while !has_gone.is_raised() {
            assert!(communicator.try_receive().is_err());
            let sleeps = communicator.arm() && !has_gone.is_raised();
            let woken = !sleeps || wait_readable(communicator.as_fd(), Some(patience)).unwrap();
            assert!(woken, "the loop sleeps, and the frame stays");
        }
        let (communicator, has_gone) = behind(5);
        let options = RuntimeOptions { workers: 1, ..RuntimeOptions::default() };
        let runtime = Runtime::start(&options).unwrap();
        let mut inbox = Awaited::new(runtime.handle(), communicator).unwrap();
        let task = async move { inbox.receive().await.payload.len() };
        let _waits = runtime.spawn(TaskOptions::of_class(0), task).unwrap();
        let give_up = Instant::now() + patience;
        while !has_gone.is_raised() {
            assert!(Instant::now() < give_up, "the task sleeps, and the frame stays");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Goal: a frame that was taken goes before its communicator does. Method: the medium has room at the flush behind the first one of
    /// the close.
    #[test]
    fn a_communicator_that_closes_leaves_no_frame_behind() {
        let (communicator, has_gone) = behind(2);
        drop(communicator);
        assert!(has_gone.is_raised());
    }
}
