//! Receiver, sender, processors and interrupts: the possible next steps, and their effects.

use alloc::vec::Vec;

use super::hardware::{CPUS, Cpu, Noticing, TableEntry, Upid, Vector, checked_entry};
use super::kernel::{leave_wait, notify_directly, preempt, schedule, wake_waiting};
use super::program::{Op, SendOp};
use super::variant::{Moves, Variant};
use crate::sim::System;

const RECEIVER_CPU: usize = 0;
const SENDER_CPU: usize = 1;
/// Nothing runs there until somebody is moved.
pub(super) const SPARE_CPU: usize = 2;

/// Where the receiver executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Its program, at CPL 3.
    User,
    /// Its handler, for that user vector.
    Handler(u8),
    /// A system call.
    Kernel,
}

/// The receiving thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receiver {
    /// The next step of its program; behind the end when it is done.
    pub at: usize,
    /// Where it executes.
    pub level: Level,
    /// Its processor, or the one where it will go on.
    pub cpu: usize,
    /// It has the processor.
    pub runs: bool,
    /// The kernel's word for it: nobody lets it run until somebody wakes it.
    pub sleeping: bool,
    /// It stands in the list of waiting tasks.
    pub listed: bool,
    /// UIF and UIRR while it does not have a processor.
    pub saved: (bool, u64),
    /// A store to NV that only its own processor sees.
    pub buffered_nv: Option<Vector>,
}

/// The sending thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// The next step of its program.
    pub at: usize,
    /// Its processor.
    pub cpu: usize,
    /// The flag when it last saw it raised.
    pub answered: u8,
    /// An emulator's SENDUIPI half done: the descriptor as it was copied, and the bit to post.
    pub copied: Option<(Upid, u8)>,
}

/// One moment of all of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct World {
    /// The receiver's descriptor.
    pub upid: Upid,
    /// The processors.
    pub cpus: [Cpu; CPUS],
    /// The receiver.
    pub receiver: Receiver,
    /// The sender.
    pub sender: Sender,
    /// Messages that were written, a bit each.
    pub written: u8,
    /// Messages that the receiver has noticed.
    pub noticed: u8,
    /// The receiver asks for a message: the number of times that it has asked; 0 when lowered.
    pub flag: u8,
    /// Number of times that the receiver has asked so far.
    pub asked: u8,
    /// The event is signalled.
    pub event: bool,
    /// The time limit was what ended a wait.
    pub rescued: bool,
    /// The sender got a fault.
    pub faulted: bool,
    /// Number of times that a thread may still be moved.
    pub moves_left: u8,
}

/// Something that happens at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next step of the receiver's program.
    Receive,
    /// The processor enters the receiver's handler.
    Deliver,
    /// The handler ends with UIRET.
    Return,
    /// The receiver gets a processor.
    SwitchIn,
    /// The receiver loses its processor, to go on elsewhere.
    Preempt,
    /// A store that the receiver's processor held back becomes visible.
    Drain,
    /// The receiver's time limit passes.
    Timeout,
    /// The next step of the sender's program.
    Send,
    /// The second half of an emulator's SENDUIPI: the changed copy of the descriptor is written back.
    WriteBack,
    /// The sender goes on elsewhere.
    MoveSender,
    /// A processor accepts a vector.
    Accept {
        /// The processor.
        cpu: usize,
        /// The vector.
        vector: Vector,
    },
    /// The second half of a notification's processing.
    Notice {
        /// The processor.
        cpu: usize,
    },
}

/// Actor of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The receiver, or the kernel on its behalf.
    Receiver,
    /// The sender.
    Sender,
    /// A processor or its interrupt controller.
    Processor(usize),
    /// A clock.
    Timer,
}

impl Step {
    /// The actor that does it.
    #[must_use]
    pub const fn actor(self, before: &World) -> Actor {
        match self {
            Self::Receive | Self::Return | Self::SwitchIn | Self::Preempt => Actor::Receiver,
            Self::Send | Self::WriteBack | Self::MoveSender => Actor::Sender,
            Self::Deliver | Self::Drain => Actor::Processor(before.receiver.cpu),
            Self::Accept { cpu, .. } | Self::Notice { cpu } => Actor::Processor(cpu),
            Self::Timeout => Actor::Timer,
        }
    }
}

/// A faulty ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A message was sent, and the receiver waits for ever.
    Lost,
    /// Each waits for the other.
    Stuck,
    /// Everything arrived, but only because a time limit passed.
    OnlyTheTimeout,
    /// The sender was told that it cannot send.
    Faulted,
}

impl System for Variant {
    type State = World;
    type Step = Step;
    type Fault = Ending;

    fn initial(&self) -> World {
        let mut cpus = [const { Cpu::idle() }; CPUS];
        (cpus[RECEIVER_CPU].uif, cpus[RECEIVER_CPU].uinv) = (true, Some(Vector::Notification));
        cpus[SENDER_CPU].has_table = true;
        World {
            upid: Upid::new(self.nv, RECEIVER_CPU),
            cpus,
            receiver: Receiver {
                at: 0,
                level: Level::User,
                cpu: RECEIVER_CPU,
                runs: true,
                sleeping: false,
                listed: false,
                saved: (false, 0),
                buffered_nv: None,
            },
            sender: Sender { at: 0, cpu: SENDER_CPU, answered: 0, copied: None },
            written: 0,
            noticed: 0,
            flag: 0,
            asked: 0,
            event: false,
            rescued: false,
            faulted: false,
            moves_left: 1,
        }
    }

    fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        self.receiver_steps(world, &mut steps);
        self.sender_steps(world, &mut steps);
        interrupt_steps(world, &mut steps);
        if steps.is_empty() && self.platform.timeout && world.receiver.sleeping {
            steps.push(Step::Timeout);
        }
        steps
    }

    fn apply(&self, before: &World, step: &Step) -> World {
        let mut world = before.clone();
        match *step {
            Step::Receive => self.receive(&mut world),
            Step::Deliver => deliver(&mut world),
            Step::Return => self.return_from_handler(&mut world),
            Step::SwitchIn => self.switch_in(&mut world),
            Step::Preempt => preempt(&mut world, self.platform.uif_moves),
            Step::Drain => world.drain(),
            Step::Timeout => (world.receiver.sleeping, world.rescued) = (false, true),
            Step::Send => self.send(&mut world),
            Step::WriteBack => write_back(&mut world),
            Step::MoveSender => {
                world.sender.cpu = SPARE_CPU;
                world.cpus[SPARE_CPU].has_table = self.platform.table_moves;
                world.moves_left -= 1;
            }
            Step::Accept { cpu, vector } => self.accept(&mut world, cpu, vector),
            Step::Notice { cpu } => self.notice(&mut world, cpu),
        }
        world
    }

    fn judge(&self, world: &World) -> Option<Ending> {
        if world.faulted {
            return Some(Ending::Faulted);
        }
        if world.receiver.at >= self.receiver.len() {
            return world.rescued.then_some(Ending::OnlyTheTimeout);
        }
        self.endless(world)
    }

    /// A receiver that looks again and again, and never sees what was sent, is as lost as one that sleeps.
    fn endless(&self, world: &World) -> Option<Ending> {
        // A handler that noted everything does not wake a receiver that went to sleep after it.
        let is_sent = world.written == self.all_messages() || world.written & !world.noticed != 0;
        Some(if is_sent { Ending::Lost } else { Ending::Stuck })
    }
}

impl Variant {
    fn receiver_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let receiver = &world.receiver;
        let cpu = &world.cpus[receiver.cpu];
        if receiver.buffered_nv.is_some() {
            steps.push(Step::Drain);
        }
        if !receiver.runs {
            if !receiver.sleeping {
                steps.push(Step::SwitchIn);
            }
            return;
        }
        let Some(&op) = self.receiver.get(receiver.at) else { return };
        if cpu.noticing.is_some() {
            return;
        }
        let delivers = receiver.level == Level::User && cpu.deliverable().is_some();
        match receiver.level {
            Level::Handler(_) => steps.push(Step::Return),
            _ if delivers => steps.push(Step::Deliver),
            _ if op == Op::SpinUntilAllNoted && world.noticed != self.all_messages() => {}
            _ => steps.push(Step::Receive),
        }
        if self.platform.moves == Moves::Receiver && world.moves_left > 0 && receiver.level == Level::User {
            steps.push(Step::Preempt);
        }
    }

    fn sender_steps(&self, world: &World, steps: &mut Vec<Step>) {
        if world.sender.copied.is_some() {
            steps.push(Step::WriteBack);
            return;
        }
        let Some(op) = self.sender.get(world.sender.at).filter(|_| !world.faulted) else { return };
        let may = match op {
            SendOp::AwaitFlag => world.flag != 0,
            SendOp::Delay => !world.receiver.runs && world.receiver.sleeping,
            _ => true,
        };
        if may {
            steps.push(Step::Send);
        }
        if self.platform.moves == Moves::Sender && world.moves_left > 0 {
            steps.push(Step::MoveSender);
        }
    }

    fn receive(&self, world: &mut World) {
        let op = self.receiver[world.receiver.at];
        world.receiver.at += 1;
        if op.is_user() { self.receive_in_user_mode(world, op) } else { self.receive_in_kernel(world, op) }
    }

    fn receive_in_user_mode(&self, world: &mut World, op: Op) {
        let all_noticed = world.noticed == self.all_messages();
        match op {
            Op::Clui => world.cpus[world.receiver.cpu].uif = false,
            Op::Stui => world.cpus[world.receiver.cpu].uif = true,
            Op::EndIfNoted | Op::EndIfAllRead | Op::SpinUntilAllNoted if all_noticed => {
                world.receiver.at = self.receiver.len();
            }
            Op::RaiseFlag => {
                world.asked = world.asked.saturating_add(1);
                world.flag = world.asked;
            }
            Op::Again => world.receiver.at = 0,
            Op::Enter => world.receiver.level = Level::Kernel,
            _ => {}
        }
    }

    fn receive_in_kernel(&self, world: &mut World, op: Op) {
        // Everything but a plain store and a load is a locked access or a fence, and empties the store buffer.
        if !matches!(op, Op::LeaveIfPosted | Op::LeaveIfPending | Op::LeaveIfEvent | Op::Mask) {
            world.drain();
        }
        match op {
            Op::StoreNv(vector) => world.receiver.buffered_nv = Some(vector),
            Op::ClearSn => world.upid.sn = false,
            Op::ClearOn => world.upid.on = false,
            Op::TakePosted => world.event |= world.upid.take_posted() != 0,
            Op::Enqueue => world.receiver.listed = true,
            Op::MarkSleeping => world.receiver.sleeping = true,
            Op::Mask => world.cpus[world.receiver.cpu].masked = true,
            Op::LeaveIfPosted if world.upid.pir != 0 => self.leave(world),
            Op::LeaveIfPending if world.cpus[world.receiver.cpu].uirr != 0 => self.leave(world),
            Op::LeaveIfEvent if world.event => self.leave(world),
            Op::Schedule => schedule(world, self.platform.uif_moves),
            Op::LeaveWait => leave_wait(world),
            Op::LeaveEpoll => {
                (world.event, world.receiver.sleeping) = (false, false);
                world.receiver.level = Level::User;
                world.noticed |= world.written;
            }
            _ => {}
        }
    }

    /// To the end of the system call.
    fn leave(&self, world: &mut World) {
        let is_end = |op: &Op| matches!(op, Op::LeaveWait | Op::LeaveEpoll);
        world.receiver.at = self.receiver.iter().position(is_end).unwrap_or(self.receiver.len());
        world.receiver.sleeping = false;
    }

    fn switch_in(&self, world: &mut World) {
        let (uif, uirr) = world.receiver.saved;
        let cpu = &mut world.cpus[world.receiver.cpu];
        cpu.uirr = uirr;
        cpu.uinv = Some(Vector::Notification);
        if self.platform.uif_moves {
            cpu.uif = uif;
        }
        world.receiver.runs = true;
        if world.receiver.level == Level::User {
            notify_directly(world);
        }
    }

    fn return_from_handler(&self, world: &mut World) {
        let Level::Handler(vector) = world.receiver.level else { return };
        for (message, of) in self.messages.iter().enumerate() {
            if *of == vector {
                world.noticed |= world.written & 1 << message;
            }
        }
        world.cpus[world.receiver.cpu].uif = true;
        world.receiver.level = Level::User;
    }

    fn send(&self, world: &mut World) {
        let op = self.sender[world.sender.at];
        world.sender.at += 1;
        match op {
            SendOp::Delay => {}
            SendOp::AwaitFlag => world.sender.answered = world.flag,
            SendOp::LowerFlag => world.flag = 0,
            SendOp::LowerFlagAnswered if world.flag == world.sender.answered => world.flag = 0,
            SendOp::LowerFlagAnswered => {}
            SendOp::Write(message) => world.written |= 1 << message,
            SendOp::Send(message) => self.send_user_interrupt(world, self.messages[usize::from(message)]),
        }
    }

    fn send_user_interrupt(&self, world: &mut World, user_vector: u8) {
        let entries = [TableEntry { valid: true, user_vector }];
        let table: &[TableEntry] = if world.cpus[world.sender.cpu].has_table { &entries } else { &[] };
        match checked_entry(table, 0) {
            Ok(entry) if self.platform.send_copies_descriptor => {
                world.sender.copied = Some((world.upid, entry.user_vector));
            }
            Ok(entry) => {
                if let Some((cpu, vector)) = world.upid.post(entry.user_vector) {
                    world.cpus[cpu].request(vector);
                }
            }
            Err(_) => world.faulted = !self.platform.silent_without_table,
        }
    }

    fn accept(&self, world: &mut World, cpu: usize, vector: Vector) {
        world.cpus[cpu].accept(vector);
        if world.cpus[cpu].uinv == Some(vector) {
            self.begin_notice(world, cpu);
            return;
        }
        match vector {
            // For a receiver that has gone: the request that was posted is found when the receiver gets a processor again.
            Vector::Notification => {}
            Vector::Kernel => wake_waiting(world),
            Vector::Event => (world.event, world.receiver.sleeping) = (true, false),
        }
    }

    fn begin_notice(&self, world: &mut World, cpu: usize) {
        if self.platform.drops_without_uif && !world.cpus[cpu].uif {
            return;
        }
        world.drain();
        world.cpus[cpu].noticing = Some(if self.platform.copies_descriptor {
            Noticing::Copied(world.upid.pir)
        } else {
            world.upid.on = false;
            Noticing::Cleared
        });
    }

    fn notice(&self, world: &mut World, cpu: usize) {
        let posted = match world.cpus[cpu].noticing.take() {
            Some(Noticing::Copied(posted)) => {
                (world.upid.pir, world.upid.on) = (0, false);
                posted
            }
            Some(Noticing::Cleared) => world.upid.take_posted(),
            None => 0,
        };
        let pending = &mut world.cpus[cpu].uirr;
        *pending = if self.platform.replaces_pending && posted != 0 { posted } else { *pending | posted };
    }
}

impl World {
    /// A store that the receiver's processor held back becomes visible.
    pub(super) fn drain(&mut self) {
        if let Some(vector) = self.receiver.buffered_nv.take() {
            self.upid.nv = vector;
        }
    }
}

/// Stores to the descriptor since the copy was made are undone.
fn write_back(world: &mut World) {
    let Some((mut upid, user_vector)) = world.sender.copied.take() else { return };
    let notification = upid.post(user_vector);
    world.upid = upid;
    if let Some((cpu, vector)) = notification {
        world.cpus[cpu].request(vector);
    }
}

fn interrupt_steps(world: &World, steps: &mut Vec<Step>) {
    for (cpu, held) in world.cpus.iter().enumerate() {
        if held.noticing.is_some() {
            steps.push(Step::Notice { cpu });
        } else if !held.masked {
            let requested = Vector::ALL.into_iter().filter(|vector| held.is_requested(*vector));
            steps.extend(requested.map(|vector| Step::Accept { cpu, vector }));
        }
    }
}

fn deliver(world: &mut World) {
    let cpu = &mut world.cpus[world.receiver.cpu];
    if let Some(vector) = cpu.deliverable() {
        cpu.deliver(vector);
        world.receiver.level = Level::Handler(vector);
    }
}
