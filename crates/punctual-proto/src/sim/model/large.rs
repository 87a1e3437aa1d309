//! Messages larger than a frame, of several senders to one receiver, over a network that loses, doubles, reorders and is cut.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Model, Report, Violation, ensure};
use crate::address::{Address, NodeId, Port};
use crate::fragment::{
    Assembler, Courier, Cut, Ending, HEAD_SIZE, Part, Question, RECEIPT_SIZE_MAX, Receipt, Say, State,
};
use crate::limits::FRAGMENT_SIZE_MIN;
use crate::protocol::{Protocol, Transmit};
use crate::sim::{Clock, Link, Network, NodeFault, Participant, Plan, Record, Rng, Weather, World};
use crate::time::Nanos;

/// Courier and assembler.
pub(super) struct LargeMessages;

const SENDERS: u16 = 3;
const MESSAGES: u32 = 5;
const MESSAGE_SIZE_MAX: usize = 60_000;
const RECEIVER: u16 = SENDERS;
const FRAME_SIZE: usize = HEAD_SIZE + FRAGMENT_SIZE_MIN;

/// Time that a sender waits for news.
const PATIENCE: Nanos = Nanos::from_millis(1_000);
/// Duration of storms, and of the run: each message is given up some time after its storm.
const STORM: Nanos = Nanos::from_millis(4_000);
const RUN: Nanos = Nanos::from_millis(60_000);

/// Between two looks of the receiver at what is too old.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);

/// In rough weather ways are cut, nodes stand still, and there is too little memory: messages may be given up.
fn is_rough(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

fn place(number: u16) -> Address {
    Address { node: NodeId::named(&number.to_string()), port: Port::from(1) }
}

fn byte_at(number: u32, at: usize) -> u8 {
    (at as u32 * 31 + number * 7) as u8
}

#[derive(Debug)]
struct Sender {
    next: u32,
    end: u32,
    rng: Rng,
    courier: Option<(u32, Box<Courier>)>,
    event: Option<Event>,
}

impl Sender {
    /// Asks its courier what to say; begins the next message when one has ended.
    fn poll(&mut self, now: Nanos) -> Option<Say> {
        loop {
            if let Some((number, courier)) = &mut self.courier {
                let Some(ending) = courier.ending() else { return courier.poll_transmit(now) };
                if self.event.is_some() {
                    return None;
                }
                self.event = Some(Event::Ended(*number, ending));
                self.courier = None;
            }
            if self.next == self.end {
                return None;
            }
            let size = 1 + self.rng.below(MESSAGE_SIZE_MAX as u64) as usize;
            let cut = Cut::new(self.next, size, FRAME_SIZE)?;
            self.courier = Some((self.next, Box::new(Courier::new(cut, PATIENCE, now))));
            self.next += 1;
        }
    }
}

#[derive(Debug)]
struct Receiver {
    assembler: Assembler<Address>,
    memory: usize,
    room: u32,
    answer: Option<(Address, Receipt)>,
    event: Option<Event>,
    look_at: Nanos,
}

impl Receiver {
    fn take(&mut self, source: Address, message: &[u8], now: Nanos) {
        match Part::read(message) {
            Some(Part::Question(Question { message, number: question })) => {
                let progress = self.assembler.answer(source, &message, now);
                let room = if progress.state == State::Refused { 0 } else { self.room };
                self.answer = Some((source, Receipt { number: message.number, question, room, progress }));
            }
            Some(Part::Fragment(head, bytes)) => {
                let free = self.memory.saturating_sub(self.assembler.held());
                let Ok(at) = self.assembler.place(source, &head, now, free) else { return };
                self.assembler.room(at, &head).copy_from_slice(bytes);
                if self.assembler.fill(at, &head, now) {
                    let whole = self.assembler.take(at);
                    self.answer = Some((source, Receipt::of_whole(head.number)));
                    let is_sound = (0..).zip(&whole).all(|(at, byte)| *byte == byte_at(head.number, at));
                    self.event = Some(Event::Delivered(
                        head.number,
                        is_sound && whole.len() == head.message_size as usize,
                    ));
                }
            }
            Some(Part::Receipt(_)) | None => {}
        }
    }
}

#[derive(Debug)]
enum Node {
    Sender(Sender),
    Receiver(Receiver),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A sender's message has ended.
    Ended(u32, Ending),
    /// The receiver has one; true if it is as it was sent.
    Delivered(u32, bool),
}

impl Protocol for Node {
    type Event = Event;

    fn handle_message(&mut self, source: Address, message: &[u8], now: Nanos) {
        match self {
            Self::Receiver(receiver) => receiver.take(source, message, now),
            Self::Sender(sender) => {
                if let (Some((_, courier)), Some(Part::Receipt(receipt))) =
                    (&mut sender.courier, Part::read(message))
                {
                    courier.handle_receipt(&receipt, now);
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        match self {
            Self::Receiver(receiver) => {
                receiver.assembler.handle_timeout(now);
                receiver.look_at = now.plus(LOOK_EVERY);
            }
            Self::Sender(sender) => {
                if let Some((_, courier)) = &mut sender.courier {
                    courier.handle_timeout(now);
                }
            }
        }
    }

    fn poll_transmit(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<Transmit> {
        match self {
            Self::Receiver(receiver) => {
                let (target, receipt) = receiver.answer.take()?;
                let size = receipt.write(buffer.first_chunk_mut::<RECEIPT_SIZE_MAX>()?);
                Some(Transmit { target: target.into(), size })
            }
            Self::Sender(sender) => {
                let (head, range) = match sender.poll(now)? {
                    Say::Fragment(head) => (head.to_bytes(), head.range()),
                    Say::Question(question) => (question.to_bytes(), 0..0),
                };
                let number = sender.next - 1;
                let size = HEAD_SIZE + range.len();
                buffer[..HEAD_SIZE].copy_from_slice(&head);
                for (byte, at) in buffer[HEAD_SIZE..size].iter_mut().zip(range) {
                    *byte = byte_at(number, at);
                }
                Some(Transmit { target: place(RECEIVER).into(), size })
            }
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Sender(sender) => sender.event.take(),
            Self::Receiver(receiver) => receiver.event.take(),
        }
    }

    fn poll_timeout(&self) -> Nanos {
        match self {
            Self::Sender(sender) => {
                sender.courier.as_ref().map_or(Nanos::NEVER, |(_, courier)| courier.poll_timeout())
            }
            Self::Receiver(receiver) if receiver.assembler.is_empty() => Nanos::NEVER,
            Self::Receiver(receiver) => receiver.look_at,
        }
    }
}

impl Participant for Node {
    fn restart(&mut self, _: Nanos, _: &mut Rng) {}

    fn act(&mut self, _: u64, _: Nanos) {}

    fn describe(message: &[u8]) -> String {
        match Part::read(message) {
            Some(Part::Fragment(head, _)) => format!("{} from {}", head.number, head.at),
            Some(Part::Question(question)) => {
                format!("question {} about {}", question.number, question.message.number)
            }
            Some(Part::Receipt(receipt)) => {
                let (state, base) = (receipt.progress.state, receipt.progress.base);
                format!("answer {} about {}: {state:?}, {base}", receipt.question, receipt.number)
            }
            None => String::from("nonsense"),
        }
    }
}

/// State of the checker.
struct Scene {
    world: World<Node>,
    is_rough: bool,
    memory: usize,
    endings: BTreeMap<u32, Ending>,
    delivered: Vec<u32>,
}

impl Scene {
    fn new(plan: &Plan, record: Record) -> Self {
        let mut rng = Rng::at(&[plan.seed, 31]);
        let is_rough = is_rough(plan.seed);
        let mut world =
            World::new(plan, Network { ordered: rng.below(2) == 0, ..Network::LAN }, FRAME_SIZE, record);
        for number in 0..SENDERS {
            let next = u32::from(number) * MESSAGES;
            let rng = Rng::at(&[plan.seed, 32, number.into()]);
            let sender = Sender { next, end: next + MESSAGES, rng, courier: None, event: None };
            world.add(place(number), Clock::skewed(Nanos(0)), true, Node::Sender(sender));
        }
        let messages = if is_rough { 1 + rng.below(3) as usize } else { usize::from(SENDERS) };
        let memory = messages * MESSAGE_SIZE_MAX;
        let receiver = Receiver {
            assembler: Assembler::new(MESSAGE_SIZE_MAX),
            memory,
            room: 1 + rng.below(100_000) as u32,
            answer: None,
            event: None,
            look_at: Nanos(0),
        };
        world.add(place(RECEIVER), Clock::skewed(Nanos(0)), true, Node::Receiver(receiver));
        Self { world, is_rough, memory, endings: BTreeMap::new(), delivered: Vec::new() }
    }

    fn run(&mut self) -> Result<(), Violation> {
        while let Some((_, event)) = self.world.poll(RUN) {
            self.observe(event)?;
        }
        self.look_back()
    }

    fn observe(&mut self, event: Event) -> Result<(), Violation> {
        let record = &mut self.world.record;
        match event {
            Event::Delivered(number, is_sound) => {
                ensure(record, "as it was sent", is_sound, || format!("{number} was altered"))?;
                let is_first = !self.delivered.contains(&number);
                ensure(record, "delivered once", is_first, || format!("{number} was delivered twice"))?;
                self.delivered.push(number);
            }
            Event::Ended(number, ending) => {
                let is_true = ending != Ending::Whole || self.delivered.contains(&number);
                ensure(record, "whole is delivered", is_true, || format!("{number} was not delivered"))?;
                let is_whole = self.is_rough || ending == Ending::Whole;
                ensure(&mut self.world.record, "lost fragments are repaired", is_whole, || {
                    format!("{number}: {ending:?}")
                })?;
                self.endings.insert(number, ending);
            }
        }
        let (memory, held) = match self.world.node(RECEIVER) {
            Node::Receiver(receiver) => (self.memory, receiver.assembler.held()),
            Node::Sender(_) => (0, 0),
        };
        ensure(&mut self.world.record, "memory is bounded", held <= memory, || {
            format!("{held} bytes of {memory}")
        })
    }

    /// When all is over: each message has ended, and what ended badly was delivered to nobody.
    fn look_back(&mut self) -> Result<(), Violation> {
        let record = &mut self.world.record;
        for number in 0..u32::from(SENDERS) * MESSAGES {
            let ending = self.endings.get(&number);
            ensure(record, "each has an end", ending.is_some(), || {
                format!("{number} is under way for ever")
            })?;
            let is_failed = matches!(
                ending,
                Some(Ending::Lost | Ending::Refused(_) | Ending::Silent { all_sent: false })
            );
            let is_true = !is_failed || !self.delivered.contains(&number);
            ensure(record, "an error is delivered to nobody", is_true, || {
                format!("{number}: {ending:?}, and delivered")
            })?;
        }
        Ok(())
    }
}

impl Model for LargeMessages {
    fn name(&self) -> &'static str {
        "large"
    }

    fn about(&self) -> &'static str {
        "messages larger than a frame are delivered once and whole, or their sender is told, with any frame lost"
    }

    fn plan(&self, seed: u64) -> Plan {
        let mut rng = Rng::at(&[seed, 30]);
        let mut plan = Plan::calm(seed);
        let always = (Nanos(0), RUN);
        plan.weather(always, Link::ANY, Weather::Lose(rng.below(350) as u32));
        plan.weather(always, Link::ANY, Weather::Double(rng.below(300) as u32, Nanos::from_millis(20)));
        plan.weather(always, Link::ANY, Weather::Delay(rng.below(300) as u32, Nanos::from_millis(20)));
        if !is_rough(seed) {
            return plan;
        }
        for _ in 0..rng.below(4) {
            let since = Nanos(rng.below(STORM.0));
            let until = since.plus(Nanos(rng.below(STORM.0)));
            let sender = rng.below(SENDERS.into()) as u16;
            let link = [Link::between(sender, RECEIVER), Link::between(RECEIVER, sender), Link::ANY];
            plan.weather((since, until), link[rng.below(3) as usize], Weather::Cut);
        }
        for _ in 0..rng.below(3) {
            let node = rng.below(u64::from(SENDERS) + 1) as u16;
            plan.node(Nanos(rng.below(STORM.0)), node, NodeFault::Pause(Nanos(rng.below(STORM.0))));
        }
        plan
    }

    fn run(&self, plan: &Plan, record: Record) -> Report {
        let mut scene = Scene::new(plan, record);
        let outcome = scene.run();
        Report { record: scene.world.record, outcome }
    }
}
