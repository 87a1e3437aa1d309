//! The thread of a time keeper: carries messages between the protocol and the bus.

use std::time::Duration;

use punctual_proto::time_sync::{STATUS_SIZE, Synchroniser, TimeMessage, Transmit};
use punctual_proto::{NodeId, Port, Target};

use super::kernel_time::KernelTime;
use super::{Shared, TIME_PORT};
use crate::communicator::{Communicator, Message};

/// Messages that are read before it is asked who is silent: a flood of them keeps it from nothing.
const TAKEN_FIRST_MAX: usize = 64;

/// Where the keeper of one node is, or those of all are.
fn keepers(node: Option<NodeId>) -> Target {
    Target { node, port: Some(Port::from(TIME_PORT)) }
}

pub(super) fn keep_time(shared: &Shared, mut communicator: Communicator) {
    let mut kernel = KernelTime::new(shared.clock);
    while !shared.stop.is_raised() {
        // A keeper that was not run for a while has heard the others, and has not read it.
        for _ in 0..TAKEN_FIRST_MAX {
            let Ok(message) = communicator.try_receive() else { break };
            handle(shared, &kernel, &message);
        }
        shared.with(Synchroniser::handle_timeout);
        transmit(shared, &mut communicator);
        kernel.note();
        let wait = shared.with(|node, now| Duration::from_nanos(node.next_timeout().since(now).0));
        let deadline = shared.clock.now().plus(shared.clock.ticks(wait));
        // The message that ends a wait may have been among those above.
        if shared.stop.is_raised() {
            break;
        }
        if let Ok(message) = communicator.receive_until(Some(deadline)) {
            handle(shared, &kernel, &message);
        }
    }
}

fn handle(shared: &Shared, kernel: &KernelTime, message: &Message<'_>) {
    let Ok(parsed) = TimeMessage::parse(message.payload) else {
        // An empty one ends our wait.
        if !message.payload.is_empty() {
            shared.with(|node, _| node.handle_foreign());
        }
        return;
    };
    let read = message.stages.map_or_else(|| shared.now(), |stages| shared.nanos(stages.receiver.read));
    let arrived =
        message.kernel_ns.and_then(|at| kernel.arrival(at)).map_or(read, |arrived| arrived.min(read));
    // A reading from before the clock began anew is not of this one, and far ahead.
    shared.with(|node, now| node.handle_message(message.source.node, &parsed, arrived.min(now)));
}

fn transmit(shared: &Shared, communicator: &mut Communicator) {
    let mut bytes = [0; STATUS_SIZE];
    loop {
        let Some(Transmit { to, message }) = shared.with(Synchroniser::poll_transmit) else { return };
        let size = message.write(&mut bytes);
        // A message that cannot be sent is lost, as it might be on its way: the next exchange is due soon.
        let _sent = communicator.try_send(keepers(to), &bytes[..size]);
    }
}
