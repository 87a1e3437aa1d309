//! Everything that is said on a bus, for one who only listens: nobody is held back by it, and nobody's message is sent because of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::{Address, NodeId, Stamps, Target};

use crate::communicator::{Communicator, Message};
use crate::ledger::{Page, RowCount};
use crate::publication::{Overrun, StreamHead, StreamMessage, Subscription};

/// Polls between two looks at what else is due, while every poll finds something.
const POLLS_PER_LOOK: u32 = 64;

/// Reads what is said on a bus, regardless of the receiver. `punctual record` writes it down.
///
/// In memory that is every message of every publication, also between two other nodes. No writer waits for a monitor, rings it, or
/// takes it for a reader: senders spend nothing on it. So it looks by itself, now and then, and what was written over before it looked
/// is counted ([`Observed::lost_before`], and [`crate::Ledger::lost_overrun`] of its node). A publication that closes is kept for it
/// until it has found that, as for its readers. The exception is a node that has no place left for another: then such rings go, and what
/// they had is neither seen nor counted by a monitor that stood still.
///
/// On UDP and Ethernet it is what arrives at its node: messages for everybody, and for this node. Messages that other nodes send to
/// each other alone never come here, nor do those that its own node sends.
///
/// ```
/// use std::time::Duration;
/// use punctual::{Bus, Node, Target, Wake};
///
/// let bus = Bus::loopback("monitor");
/// let (here, there) = (Node::open(&bus, "here")?, Node::open(&bus, "there")?);
/// let listener = Node::open(&bus, "listener")?;
/// let mut monitor = listener.monitor(Wake::Futex)?;
/// let mut receiver = there.bind(7)?;
/// here.bind(1)?.send(Target::port("there", 7), b"between us")?;
///
/// let mut overheard = Vec::new();
/// monitor.poll(64, Duration::from_secs(1), |observed| {
///     let mut buffer = vec![0; observed.len()];
///     if observed.copy_to(&mut buffer).is_ok() {
///         overheard.push((observed.target, buffer));
///     }
/// });
/// assert_eq!(overheard, [(Target::port("there", 7), b"between us".to_vec())]);
/// assert_eq!(receiver.receive()?.payload, b"between us");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Monitor {
    end: End,
    polls: u32,
}

#[derive(Debug)]
enum End {
    Wire(Box<Communicator>),
    Memory(Box<MemoryEnd>),
}

#[derive(Debug)]
struct MemoryEnd {
    subscription: Subscription,
    /// Its row in the node's page of counters.
    row: usize,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its buffers are as large as the largest message.
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

/// A message as a monitor sees it, for as long as it is looked at.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The sender.
    pub source: Address,
    /// The target.
    pub target: Target,
    /// Its number, as [`Message::sequence`] and [`StreamHead::sequence`] count.
    pub sequence: u64,
    /// Messages that were lost just before it, of its publication or of its node.
    pub lost_before: u64,
    /// When it was sent, where it says so by a clock that is ours too.
    pub sent: Option<Ticks>,
    /// Stamps of its sender, where it stamps all stages.
    pub stamps: Option<Stamps>,
    /// When the kernel received it, `CLOCK_REALTIME` nanoseconds, where the medium says.
    pub kernel_ns: Option<u64>,
    /// Behind the message stands its seal (24 bytes), which nobody has looked at: the bus is sealed, and this node has no keys.
    pub is_unopened: bool,
    /// It is a part of a message that is larger than a frame, as one without keys has it: parts that nobody has looked at are not put
    /// together.
    pub is_fragment: bool,
    body: Body<'a>,
}

#[derive(Debug)]
enum Body<'a> {
    Private(&'a [u8]),
    Shared(&'a StreamMessage<'a>),
}

impl<'a> Observed<'a> {
    fn of_stream(message: &'a StreamMessage<'a>) -> Self {
        let StreamHead { source, target, sequence, lost_before, sent, is_unopened, fragment_of, .. } =
            **message;
        Self {
            source,
            target,
            sequence,
            lost_before,
            sent,
            stamps: message.stamps(),
            kernel_ns: None,
            is_unopened,
            is_fragment: fragment_of.is_some(),
            body: Body::Shared(message),
        }
    }

    fn of_message(message: &Message<'a>) -> Self {
        let &Message { source, target, sequence, lost_before, kernel_ns, payload, .. } = message;
        let on_one_clock = message.stages.filter(|stages| stages.one_clock);
        Self {
            source,
            target,
            sequence: sequence.into(),
            lost_before,
            sent: on_one_clock.map(|stages| Ticks(stages.sender.sent)),
            stamps: message.stages.map(|stages| stages.sender),
            kernel_ns,
            is_unopened: false,
            is_fragment: false,
            body: Body::Private(payload),
        }
    }

    /// Size, bytes.
    pub fn len(&self) -> usize {
        match self.body {
            Body::Private(payload) => payload.len(),
            Body::Shared(message) => message.len(),
        }
    }

    /// True if it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the message, or as much of it as fits; returns how many bytes.
    ///
    /// # Errors
    /// [`Overrun`]: its writer wrote over it meanwhile. It is counted as lost, and what stands in `buffer` is void.
    #[inline]
    pub fn copy_to(&self, buffer: &mut [u8]) -> Result<usize, Overrun> {
        match self.body {
            Body::Shared(message) => message.copy_to(buffer),
            Body::Private(payload) => {
                let size = payload.len().min(buffer.len());
                buffer[..size].copy_from_slice(&payload[..size]);
                Ok(size)
            }
        }
    }
}

impl Monitor {
    pub(crate) fn wire(communicator: Communicator) -> Self {
        Self { end: End::Wire(Box::new(communicator)), polls: 0 }
    }

    pub(crate) fn memory(mut subscription: Subscription, row: usize) -> Self {
        subscription.count_in(row);
        Self { end: End::Memory(Box::new(MemoryEnd { subscription, row })), polls: 0 }
    }

    /// Shows at most `limit` messages to `f`, each source's in order. If there is none it waits for at most `timeout`, and looks once
    /// more. Returns how many it showed.
    ///
    /// In memory nobody ends its wait, unless it spins: `timeout` is then how long a message may lie unseen.
    pub fn poll(&mut self, limit: usize, timeout: Duration, mut f: impl FnMut(&Observed<'_>)) -> usize {
        self.polls = self.polls.wrapping_add(1);
        match &mut self.end {
            End::Wire(communicator) => poll_wire(communicator, limit, timeout, &mut f),
            End::Memory(end) => {
                if self.polls.is_multiple_of(POLLS_PER_LOOK) {
                    end.subscription.keep_house();
                }
                end.poll(limit, timeout, &mut f)
            }
        }
    }

    /// The name of a node that was heard or is on the bus, where the medium tells: in memory.
    pub fn name_of(&self, node: NodeId) -> Option<String> {
        match &self.end {
            End::Wire(_) => None,
            End::Memory(end) => end.subscription.name_of(node),
        }
    }

    /// Publications that it does not read, because its process has no memory left to map them. It tries again at every look.
    pub fn left_out(&self) -> usize {
        match &self.end {
            End::Wire(_) => 0,
            End::Memory(end) => end.subscription.left_out(),
        }
    }
}

fn poll_wire(
    communicator: &mut Communicator,
    limit: usize,
    timeout: Duration,
    f: &mut impl FnMut(&Observed<'_>),
) -> usize {
    let mut shown = 0;
    while shown < limit {
        let received = match shown {
            0 if !timeout.is_zero() => communicator.receive_timeout(timeout),
            _ => communicator.try_receive(),
        };
        let Ok(message) = received else { break };
        f(&Observed::of_message(&message));
        shown += 1;
    }
    shown
}

impl MemoryEnd {
    fn poll(&mut self, limit: usize, timeout: Duration, f: &mut impl FnMut(&Observed<'_>)) -> usize {
        let shown = self.show(limit, f);
        if shown > 0 || timeout.is_zero() {
            return shown;
        }
        let clock = Clock::get();
        let deadline = clock.now().plus(clock.ticks(timeout));
        let _news_or_late = self
            .subscription
            .wait_for(|| Some(deadline), |subscription| subscription.is_ready().then_some(()));
        self.show(limit, f)
    }

    /// Shows what is there and counts it. Where `f` panics over a message, those before it are counted, and it comes again.
    fn show(&mut self, limit: usize, f: &mut impl FnMut(&Observed<'_>)) -> usize {
        let streams = Arc::clone(self.subscription.streams());
        let mut shown = Shown { page: &streams.about.page, row: self.row, count: 0 };
        let count = self.subscription.poll(limit, |message| {
            f(&Observed::of_stream(message));
            shown.count += usize::from(message.is_delivered());
        });
        shown.count = count;
        count
    }
}

/// Messages that were shown, which are counted when this is dropped.
struct Shown<'p> {
    page: &'p Page,
    row: usize,
    count: usize,
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.page.row(self.row)[RowCount::Delivered as usize].add_alone(self.count as u64);
    }
}

impl Drop for MemoryEnd {
    fn drop(&mut self) {
        if !self.subscription.streams().about.maker.is_this_process() {
            return;
        }
        self.subscription.streams().about.page.close_row(self.row, 0);
    }
}
