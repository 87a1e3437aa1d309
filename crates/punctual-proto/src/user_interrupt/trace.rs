//! A way to a lost wake-up, written for people.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::hardware::{Noticing, Vector};
use super::program::SendOp;
use super::variant::Variant;
use super::world::{Actor, Ending, Level, Step, World};
use crate::sim::{Counterexample, System};

/// One step, as a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The actor.
    pub actor: String,
    /// Does what, to what effect.
    pub text: String,
    /// State of descriptor and receiver afterwards.
    pub state: String,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receiver => f.write_str("receiver"),
            Self::Sender => f.write_str("sender"),
            Self::Processor(cpu) => write!(f, "cpu {cpu}"),
            Self::Timer => f.write_str("timer"),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "a message is there, and the receiver waits for ever",
            Self::Stuck => "receiver and sender wait for each other",
            Self::OnlyTheTimeout => "the message is noticed only because a time limit passed",
            Self::Faulted => "SENDUIPI faults: the sender knows that it did not send",
        })
    }
}

/// The steps of a counter-example, one line each.
#[must_use]
pub fn lines(variant: &Variant, found: &Counterexample<Variant>) -> Vec<Line> {
    let mut before = variant.initial();
    let mut lines = Vec::new();
    for (step, after) in &found.path {
        lines.push(Line {
            actor: step.actor(&before).to_string(),
            text: text(variant, *step, &before, after),
            state: state(after),
        });
        before = after.clone();
    }
    lines
}

fn text(variant: &Variant, step: Step, before: &World, after: &World) -> String {
    match step {
        Step::Receive => receive(variant, before, after),
        Step::Deliver => "enters the handler: UIF := 0".to_string(),
        Step::Return => "the handler notes the message; UIRET: UIF := 1".to_string(),
        Step::SwitchIn => format!("gets cpu {}", after.receiver.cpu),
        Step::Preempt => format!("is moved to cpu {}: SN := 1", after.receiver.cpu),
        Step::Drain => format!("its store becomes visible: NV = {}", after.upid.nv),
        Step::Timeout => "the time limit of the wait passes".to_string(),
        Step::Send => send(variant, before, after),
        Step::WriteBack => write_back(before, after),
        Step::MoveSender => {
            let table = if after.cpus[after.sender.cpu].has_table { "with" } else { "without" };
            format!("is moved to cpu {}, {table} its table", after.sender.cpu)
        }
        Step::Accept { cpu, vector } => accept(cpu, vector, before, after),
        Step::Notice { cpu } => format!("takes the posted bits: UIRR = {:#b}", after.cpus[cpu].uirr),
    }
}

fn receive(variant: &Variant, before: &World, after: &World) -> String {
    let op = variant.receiver[before.receiver.at];
    let outcome = match op {
        super::program::Op::LeaveIfPosted
        | super::program::Op::LeaveIfPending
        | super::program::Op::LeaveIfEvent => {
            if after.receiver.at == before.receiver.at + 1 {
                ": none"
            } else {
                ": there are; leaves"
            }
        }
        super::program::Op::EndIfNoted | super::program::Op::EndIfAllRead => {
            if after.receiver.at == variant.receiver.len() { ": yes, done" } else { ": no" }
        }
        super::program::Op::Schedule if after.receiver.runs => ": no, it was woken",
        super::program::Op::Schedule => ": sleeps",
        _ => "",
    };
    format!("{op}{outcome}")
}

fn send(variant: &Variant, before: &World, after: &World) -> String {
    let op = variant.sender[before.sender.at];
    if !matches!(op, SendOp::Send(_)) {
        return op.to_string();
    }
    let outcome = if after.sender.copied.is_some() {
        "copies the descriptor"
    } else if after.faulted {
        "faults"
    } else if after.upid.pir == before.upid.pir && after.upid.on == before.upid.on && !before.upid.on {
        "does nothing, and says nothing"
    } else if !before.upid.on && after.upid.on {
        return format!("{op}: posted, ON := 1, the {} vector to cpu {}", after.upid.nv, after.upid.ndst);
    } else if before.upid.on {
        "posted; ON is set already: nobody is notified"
    } else {
        "posted; SN is set: nobody is notified"
    };
    format!("{op}: {outcome}")
}

fn write_back(before: &World, after: &World) -> String {
    let undoes = before.sender.copied.is_some_and(|(copied, _)| copied != before.upid);
    let undone = if undoes { ", undoing what changed meanwhile" } else { "" };
    let is_sent = before.sender.copied.is_some_and(|(copied, _)| !copied.on && !copied.sn);
    let told = if is_sent { "the notification is sent" } else { "nobody is notified" };
    format!("writes its copy back with PIR {:#b}{undone}: {told}", after.upid.pir)
}

fn accept(cpu: usize, vector: Vector, before: &World, after: &World) -> String {
    let taken = format!("accepts the {vector} vector");
    match after.cpus[cpu].noticing {
        Some(Noticing::Cleared) => return format!("{taken}: ON := 0"),
        Some(Noticing::Copied(_)) => return format!("{taken}: copies the descriptor"),
        None => {}
    }
    let effect = match vector {
        Vector::Notification if before.cpus[cpu].uinv.is_some() => "UIF is clear: dropped",
        Vector::Notification => "no receiver runs here: ignored",
        Vector::Event => "the event is signalled",
        Vector::Kernel if before.receiver.listed && !after.receiver.listed => {
            if before.receiver.sleeping {
                "the receiver is woken"
            } else {
                "the receiver is not asleep yet: nothing to wake"
            }
        }
        Vector::Kernel => "nobody waits",
    };
    format!("{taken}: {effect}")
}

fn state(world: &World) -> String {
    let bit = |set: bool| u8::from(set);
    let upid = &world.upid;
    let receiver = match (world.receiver.runs, world.receiver.level) {
        (false, _) if world.receiver.sleeping => "asleep",
        (false, _) => "ready",
        (true, Level::Kernel) if world.receiver.sleeping => "going to sleep",
        (true, Level::Kernel) => "in the kernel",
        (true, Level::Handler(_)) => "in the handler",
        (true, Level::User) => "runs",
    };
    let pending =
        if world.receiver.runs { world.cpus[world.receiver.cpu].uirr } else { world.receiver.saved.1 };
    format!(
        "ON {} SN {} PIR {:#b} UIRR {pending:#b} NV {}, receiver {receiver}",
        bit(upid.on),
        bit(upid.sn),
        upid.pir,
        upid.nv
    )
}
