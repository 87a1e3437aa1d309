//! Actions of the kernel on behalf of a receiver: scheduling, moving, waking, returning.

use super::hardware::Vector;
use super::world::{Level, SPARE_CPU, World};

/// The scheduler: a thread that still is "sleeping" gives the processor away.
pub(super) fn schedule(world: &mut World, uif_moves: bool) {
    world.cpus[world.receiver.cpu].masked = false;
    if world.receiver.sleeping {
        switch_out(world, uif_moves);
    }
}

pub(super) fn switch_out(world: &mut World, uif_moves: bool) {
    let cpu = &mut world.cpus[world.receiver.cpu];
    world.receiver.saved = (cpu.uif, cpu.uirr);
    (cpu.uirr, cpu.uinv) = (0, None);
    if uif_moves {
        cpu.uif = false;
    }
    world.receiver.runs = false;
}

/// The receiver is moved while it would like to run: nobody notifies it until it does.
pub(super) fn preempt(world: &mut World, uif_moves: bool) {
    switch_out(world, uif_moves);
    world.upid.sn = true;
    world.receiver.cpu = SPARE_CPU;
    world.moves_left -= 1;
}

/// The kernel's handler: wakes who waits and has a notification outstanding.
pub(super) fn wake_waiting(world: &mut World) {
    world.drain();
    if world.receiver.listed && world.upid.on {
        (world.upid.sn, world.upid.nv) = (true, Vector::Notification);
        (world.receiver.listed, world.receiver.sleeping) = (false, false);
    }
}

pub(super) fn leave_wait(world: &mut World) {
    (world.receiver.listed, world.receiver.sleeping) = (false, false);
    world.upid.nv = Vector::Notification;
    // User mode runs with interrupts enabled, regardless of what the kernel left off.
    world.cpus[world.receiver.cpu].masked = false;
    world.receiver.level = Level::User;
    notify_directly(world);
}

/// The receiver is notified where it runs; requests that were posted meanwhile are sent once more, to its own processor.
pub(super) fn notify_directly(world: &mut World) {
    (world.upid.sn, world.upid.ndst) = (false, world.receiver.cpu);
    if world.upid.pir != 0 {
        world.cpus[world.receiver.cpu].request(Vector::Notification);
    }
}
