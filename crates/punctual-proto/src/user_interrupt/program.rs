//! Programs of receiver and sender, one indivisible step after the other.
//!
//! A program is a list; the explorer lets anything happen between two entries.

use core::fmt;

use super::hardware::Vector;

/// One step of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// User: CLUI, no delivery from here on.
    Clui,
    /// User: STUI.
    Stui,
    /// User: ends if the handler has noted a message.
    EndIfNoted,
    /// User: spins until the handler has noted every message.
    SpinUntilAllNoted,
    /// User: raises the flag that asks the sender to send.
    RaiseFlag,
    /// User: ends if every message was read.
    EndIfAllRead,
    /// User: back to the beginning.
    Again,
    /// The system call begins.
    Enter,
    /// Kernel: a plain store to NV. It may stay in the processor's store buffer for a while.
    StoreNv(Vector),
    /// Kernel: a full fence; the store buffer is empty behind it.
    Fence,
    /// Kernel: clears SN by a locked access.
    ClearSn,
    /// Kernel: clears ON by a locked access.
    ClearOn,
    /// Kernel: takes the posted bits; if there were any, the event is signalled.
    TakePosted,
    /// Kernel: enters the list of waiting tasks, under its lock.
    Enqueue,
    /// Kernel: the task's state becomes "sleeping".
    MarkSleeping,
    /// Kernel: masks interrupts, as the scheduler does.
    Mask,
    /// Kernel: leaves if a bit is posted.
    LeaveIfPosted,
    /// Kernel: leaves if a request waits for delivery.
    LeaveIfPending,
    /// Kernel: leaves if the event was signalled.
    LeaveIfEvent,
    /// Kernel: gives the processor away if the state still is "sleeping".
    Schedule,
    /// Kernel: back to user mode, notified directly again; requests that were posted meanwhile are sent once more.
    LeaveWait,
    /// Kernel: back to user mode with the event taken, and the messages that are there are read.
    LeaveEpoll,
}

impl Op {
    /// True if user mode does it: a user interrupt is delivered only between such steps.
    #[must_use]
    pub const fn is_user(self) -> bool {
        matches!(
            self,
            Self::Clui
                | Self::Stui
                | Self::EndIfNoted
                | Self::SpinUntilAllNoted
                | Self::RaiseFlag
                | Self::EndIfAllRead
                | Self::Again
                | Self::Enter
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clui => "CLUI: no delivery from here on",
            Self::Stui => "STUI: deliveries allowed",
            Self::EndIfNoted => "looks whether the handler noted a message",
            Self::SpinUntilAllNoted => "sees that the handler noted every message",
            Self::RaiseFlag => "raises the flag: ready for the next message",
            Self::EndIfAllRead => "looks whether every message was read",
            Self::Again => "once more from the beginning",
            Self::Enter => "calls the kernel to wait",
            Self::StoreNv(vector) => return write!(f, "NV := {vector} (a plain store)"),
            Self::Fence => "fence: its stores are visible now",
            Self::ClearSn => "SN := 0",
            Self::ClearOn => "ON := 0",
            Self::TakePosted => "takes the posted bits",
            Self::Enqueue => "enters the list of waiting tasks",
            Self::MarkSleeping => "state := sleeping",
            Self::Mask => "masks interrupts",
            Self::LeaveIfPosted => "looks for posted bits",
            Self::LeaveIfPending => "looks for pending requests (UIRR)",
            Self::LeaveIfEvent => "looks for a signalled event",
            Self::Schedule => "gives the processor away if its state still is sleeping",
            Self::LeaveWait => "returns to user mode",
            Self::LeaveEpoll => "returns to user mode and reads the messages that are there",
        })
    }
}

/// One step of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Spins until the receiver raises the flag.
    AwaitFlag,
    /// Lowers the flag.
    LowerFlag,
    /// Lowers the flag unless it was raised anew since the sender saw it.
    LowerFlagAnswered,
    /// Waits for so long that the receiver sleeps by then.
    Delay,
    /// Writes a message into shared memory.
    Write(u8),
    /// SENDUIPI for that message.
    Send(u8),
}

impl fmt::Display for SendOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AwaitFlag => f.write_str("sees the flag raised"),
            Self::LowerFlag => f.write_str("lowers the flag"),
            Self::LowerFlagAnswered => f.write_str("lowers the flag, unless it was raised anew"),
            Self::Delay => f.write_str("has waited until the receiver sleeps"),
            Self::Write(message) => write!(f, "writes message {}", message + 1),
            Self::Send(message) => write!(f, "SENDUIPI for message {}", message + 1),
        }
    }
}

use Op::{
    Again, ClearOn, ClearSn, Clui, EndIfAllRead, EndIfNoted, Enqueue, Enter, Fence, LeaveEpoll, LeaveIfEvent,
    LeaveIfPending, LeaveIfPosted, LeaveWait, MarkSleeping, Mask, RaiseFlag, Schedule, SpinUntilAllNoted,
    StoreNv, Stui, TakePosted,
};
use SendOp::{AwaitFlag, Delay, LowerFlag, LowerFlagAnswered, Send, Write};

/// Waits in the order that loses nothing: delivery off, look, queue, sleep, NV, fence, posted before pending.
pub const WAIT: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    Enqueue,
    MarkSleeping,
    StoreNv(Vector::Kernel),
    Fence,
    LeaveIfPosted,
    LeaveIfPending,
    Schedule,
    LeaveWait,
    Stui,
    Again,
];

/// [`WAIT`] that never allows delivery again: the handler has no turn, and the user looks for ever.
pub const WAIT_CLOSED: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    Enqueue,
    MarkSleeping,
    StoreNv(Vector::Kernel),
    Fence,
    LeaveIfPosted,
    LeaveIfPending,
    Schedule,
    LeaveWait,
    Again,
];

/// [`WAIT`] with delivery allowed between the look and the call.
pub const WAIT_UNMASKED: &[Op] = &[
    EndIfNoted,
    Enter,
    Enqueue,
    MarkSleeping,
    StoreNv(Vector::Kernel),
    Fence,
    LeaveIfPosted,
    LeaveIfPending,
    Schedule,
    LeaveWait,
    Again,
];

/// [`WAIT`] with the state changed after the task can be woken, and not looked at again.
pub const WAIT_SLEEPING_LATE: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    Enqueue,
    StoreNv(Vector::Kernel),
    Fence,
    LeaveIfPosted,
    LeaveIfPending,
    MarkSleeping,
    Schedule,
    LeaveWait,
    Stui,
    Again,
];

/// [`WAIT`] without a look at requests that the processor took before NV was switched.
pub const WAIT_UIRR_IGNORED: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    Enqueue,
    MarkSleeping,
    StoreNv(Vector::Kernel),
    Fence,
    LeaveIfPosted,
    Schedule,
    LeaveWait,
    Stui,
    Again,
];

/// [`WAIT`] that looks at pending requests first, and misses what moves from posted to pending in between.
pub const WAIT_UIRR_FIRST: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    Enqueue,
    MarkSleeping,
    StoreNv(Vector::Kernel),
    Fence,
    LeaveIfPending,
    LeaveIfPosted,
    Schedule,
    LeaveWait,
    Stui,
    Again,
];

/// [`WAIT`] without the fence behind the store to NV.
pub const WAIT_UNFENCED: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    Enqueue,
    MarkSleeping,
    StoreNv(Vector::Kernel),
    LeaveIfPosted,
    LeaveIfPending,
    Schedule,
    LeaveWait,
    Stui,
    Again,
];

/// `uintr_wait` of the first patch series (RFC v1, September 2021).
pub const RFC_V1: &[Op] =
    &[EndIfNoted, Enter, StoreNv(Vector::Kernel), Enqueue, MarkSleeping, Schedule, LeaveWait, Again];

/// The second one: state first, NV and queue inside the scheduler with interrupts masked.
pub const POC_V2: &[Op] =
    &[EndIfNoted, Enter, MarkSleeping, Mask, StoreNv(Vector::Kernel), Enqueue, Schedule, LeaveWait, Again];

/// [`RFC_V1`] repaired: no delivery from look to call, and behind a fence a look at posted, then at pending requests.
pub const RFC_V1_REPAIRED: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    StoreNv(Vector::Kernel),
    Enqueue,
    MarkSleeping,
    Fence,
    LeaveIfPosted,
    LeaveIfPending,
    Schedule,
    LeaveWait,
    Stui,
    Again,
];

/// [`POC_V2`] repaired in the same way.
pub const POC_V2_REPAIRED: &[Op] = &[
    Clui,
    EndIfNoted,
    Enter,
    MarkSleeping,
    Mask,
    StoreNv(Vector::Kernel),
    Enqueue,
    Fence,
    LeaveIfPosted,
    LeaveIfPending,
    Schedule,
    LeaveWait,
    Stui,
    Again,
];

/// epoll on an event that the notification signals; the wait resets the descriptor without looking.
pub const EPOLL: &[Op] =
    &[EndIfAllRead, Enter, ClearSn, ClearOn, MarkSleeping, LeaveIfEvent, Schedule, LeaveEpoll, Again];

/// The same, looking at what was posted once ON is clear.
pub const EPOLL_RECHECK: &[Op] = &[
    EndIfAllRead,
    Enter,
    ClearSn,
    ClearOn,
    TakePosted,
    MarkSleeping,
    LeaveIfEvent,
    Schedule,
    LeaveEpoll,
    Again,
];

/// [`EPOLL`] that asks for each message by a flag.
pub const EPOLL_HANDSHAKE: &[Op] = &[
    EndIfAllRead,
    RaiseFlag,
    Enter,
    ClearSn,
    ClearOn,
    MarkSleeping,
    LeaveIfEvent,
    Schedule,
    LeaveEpoll,
    Again,
];

/// [`EPOLL_RECHECK`] that asks for each message by a flag.
pub const EPOLL_HANDSHAKE_RECHECK: &[Op] = &[
    EndIfAllRead,
    RaiseFlag,
    Enter,
    ClearSn,
    ClearOn,
    TakePosted,
    MarkSleeping,
    LeaveIfEvent,
    Schedule,
    LeaveEpoll,
    Again,
];

/// Never waits: the handler does everything.
pub const HANDLER: &[Op] = &[SpinUntilAllNoted];

/// Has deliveries off for a while.
pub const HANDLER_MASKED: &[Op] = &[Clui, Stui, SpinUntilAllNoted];

/// Sends two messages.
pub const SEND_TWO: &[SendOp] = &[Write(0), Send(0), Write(1), Send(1)];

/// Sends each when asked, and lowers the flag afterwards.
pub const SEND_LOWER_LATE: &[SendOp] =
    &[AwaitFlag, Write(0), Send(0), LowerFlag, AwaitFlag, Write(1), Send(1), LowerFlag];

/// Sends each when asked, and lowers the flag afterwards if it still is the one that was answered.
pub const SEND_LOWER_ANSWERED: &[SendOp] =
    &[AwaitFlag, Write(0), Send(0), LowerFlagAnswered, AwaitFlag, Write(1), Send(1), LowerFlagAnswered];

/// Sends each when asked, and lowers the flag first.
pub const SEND_LOWER_FIRST: &[SendOp] =
    &[AwaitFlag, LowerFlag, Write(0), Send(0), AwaitFlag, LowerFlag, Write(1), Send(1)];

/// The same after a delay.
pub const SEND_DELAYED: &[SendOp] =
    &[AwaitFlag, LowerFlag, Delay, Write(0), Send(0), AwaitFlag, LowerFlag, Delay, Write(1), Send(1)];
