//! The protocols by name, each with its nature, its omissions, and their expected cost.

use core::fmt;

use super::hardware::Vector;
use super::program::{self, Op, SendOp};

/// A window in which a wake-up can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Race {
    /// The handler runs between the user's look and the call.
    A1,
    /// The wake-up comes before the state says "sleeping".
    K2,
    /// The notification is accepted before NV is switched: posted bits become pending ones, which nobody looks at.
    K3,
    /// The store to NV is not visible yet when posted bits are looked at again.
    K4,
    /// ON is left set by the event before; the wait clears it without looking at what was posted.
    E1,
    /// The sender's table does not move with the sender.
    M1,
    /// UIF does not move with the receiver.
    M2,
    /// Emulator: newly posted requests replace pending ones.
    U1,
    /// Emulator: the descriptor is read and written back, not accessed at once.
    U2,
    /// Emulator: SENDUIPI reads the descriptor and writes it back, so it undoes what the receiver did in between.
    U3,
    /// The sender lowers the flag after it sent, and so may lower the next one.
    H1,
    /// The flag goes up before the wait begins.
    H2,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Expected result of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing, in any order.
    Safe,
    /// A wake-up that never comes.
    Loses,
    /// A wake-up that only the time limit brings.
    OnlyTheTimeout,
    /// A fault that the sender sees: not silent.
    Faults,
}

/// The thread that may be moved to another processor, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// Nobody.
    Nobody,
    /// The receiver, from user mode.
    Receiver,
    /// The sender.
    Sender,
}

/// Behaviour of kernel and processor, where it can differ from the architecture.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// The thread that is moved.
    pub moves: Moves,
    /// The sender's table is loaded wherever the sender runs.
    pub table_moves: bool,
    /// SENDUIPI without a table does nothing, instead of faulting.
    pub silent_without_table: bool,
    /// UIF is saved and restored with the thread.
    pub uif_moves: bool,
    /// A notification that comes while UIF is clear is dropped, instead of becoming pending.
    pub drops_without_uif: bool,
    /// Posted requests replace pending ones, instead of joining them.
    pub replaces_pending: bool,
    /// A notification's processing copies the descriptor, changes the copy and writes it back.
    pub copies_descriptor: bool,
    /// SENDUIPI does so.
    pub send_copies_descriptor: bool,
    /// A wait ends after a while by itself.
    pub timeout: bool,
}

/// As Intel specifies it, with a kernel that saves and restores everything.
pub const ARCHITECTURE: Platform = Platform {
    moves: Moves::Nobody,
    table_moves: true,
    silent_without_table: false,
    uif_moves: true,
    drops_without_uif: false,
    replaces_pending: false,
    copies_descriptor: false,
    send_copies_descriptor: false,
    timeout: false,
};

/// One protocol on one platform.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name on the command line.
    pub name: &'static str,
    /// Description, in a line.
    pub about: &'static str,
    /// The race that it isolates.
    pub race: Option<Race>,
    /// Steps of the receiver.
    pub receiver: &'static [Op],
    /// Steps of the sender.
    pub sender: &'static [SendOp],
    /// The user vector of each message.
    pub messages: &'static [u8],
    /// The notification's vector in the beginning.
    pub nv: Vector,
    /// Kernel and processor.
    pub platform: Platform,
    /// The expected result.
    pub expected: Expected,
    /// The same without its mistakes, where it has some.
    pub repaired: Option<&'static str>,
}

/// Two messages to a receiver that waits in the kernel for its handler to run. The second may be coalesced with the first.
const WAITING: Variant = Variant {
    name: "wait",
    about: "the blocked wait done right: no delivery from look to call, fence, posted before pending",
    race: None,
    receiver: program::WAIT,
    sender: program::SEND_TWO,
    messages: &[0, 5],
    nv: Vector::Notification,
    platform: ARCHITECTURE,
    expected: Expected::Safe,
    repaired: None,
};

/// Two messages to a receiver that waits in epoll.
const IN_EPOLL: Variant = Variant {
    name: "epoll-event-recheck",
    about: "epoll on the event, looking at what was posted once ON is clear",
    race: None,
    receiver: program::EPOLL_RECHECK,
    sender: program::SEND_TWO,
    messages: &[0, 0],
    nv: Vector::Event,
    platform: ARCHITECTURE,
    expected: Expected::Safe,
    repaired: None,
};

/// Two messages to a receiver whose handler does everything.
const HANDLING: Variant = Variant {
    name: "handler",
    about: "no wait: the handler does everything, and nobody is moved",
    race: None,
    receiver: program::HANDLER,
    sender: program::SEND_TWO,
    messages: &[0, 1],
    nv: Vector::Notification,
    platform: ARCHITECTURE,
    expected: Expected::Safe,
    repaired: None,
};

/// Every protocol that the explorer knows.
pub const VARIANTS: &[Variant] = &[
    WAITING,
    Variant {
        name: "wait-moved",
        about: "the same while the receiver is moved",
        platform: Platform { moves: Moves::Receiver, ..ARCHITECTURE },
        ..WAITING
    },
    Variant {
        name: "wait-closed",
        about: "the wait without STUI at its end: it wakes, looks and waits for ever",
        receiver: program::WAIT_CLOSED,
        expected: Expected::Loses,
        repaired: Some("wait"),
        ..WAITING
    },
    Variant {
        name: "wait-unmasked",
        about: "the wait without CLUI between the user's look and the call",
        race: Some(Race::A1),
        receiver: program::WAIT_UNMASKED,
        expected: Expected::Loses,
        repaired: Some("wait"),
        ..WAITING
    },
    Variant {
        name: "wait-sleeping-late",
        about: "the wait with the state changed last, and not looked at again",
        race: Some(Race::K2),
        receiver: program::WAIT_SLEEPING_LATE,
        expected: Expected::Loses,
        repaired: Some("wait"),
        ..WAITING
    },
    Variant {
        name: "wait-uirr-ignored",
        about: "the wait without a look at requests that are pending already",
        race: Some(Race::K3),
        receiver: program::WAIT_UIRR_IGNORED,
        expected: Expected::Loses,
        repaired: Some("wait"),
        ..WAITING
    },
    Variant {
        name: "wait-uirr-first",
        about: "the wait that looks at pending requests before posted ones",
        race: Some(Race::K3),
        receiver: program::WAIT_UIRR_FIRST,
        expected: Expected::Loses,
        repaired: Some("wait"),
        ..WAITING
    },
    Variant {
        name: "wait-unfenced",
        about: "the wait without the fence behind the store to NV",
        race: Some(Race::K4),
        receiver: program::WAIT_UNFENCED,
        expected: Expected::Loses,
        repaired: Some("wait"),
        ..WAITING
    },
    Variant {
        name: "rfc-v1",
        about: "uintr_wait of the first patch series: NV, queue, state, schedule",
        receiver: program::RFC_V1,
        expected: Expected::Loses,
        repaired: Some("rfc-v1-repaired"),
        ..WAITING
    },
    Variant {
        name: "rfc-v1-timeout",
        about: "the same with a time limit: a wake-up that it hides shows as late instead of lost",
        receiver: program::RFC_V1,
        platform: Platform { timeout: true, ..ARCHITECTURE },
        expected: Expected::OnlyTheTimeout,
        repaired: Some("rfc-v1-repaired"),
        ..WAITING
    },
    Variant {
        name: "poc-v2",
        about: "the second series: state first, NV and queue in the scheduler with interrupts masked",
        receiver: program::POC_V2,
        expected: Expected::Loses,
        repaired: Some("poc-v2-repaired"),
        ..WAITING
    },
    Variant {
        name: "rfc-v1-repaired",
        about: "the first series with delivery off from look to call, and a look at both kinds of requests",
        receiver: program::RFC_V1_REPAIRED,
        ..WAITING
    },
    Variant {
        name: "poc-v2-repaired",
        about: "the second series with the same repair",
        receiver: program::POC_V2_REPAIRED,
        ..WAITING
    },
    IN_EPOLL,
    Variant {
        name: "epoll-event",
        about: "epoll on the event; the wait clears ON without looking at what was posted",
        race: Some(Race::E1),
        receiver: program::EPOLL,
        expected: Expected::Loses,
        repaired: Some("epoll-event-recheck"),
        ..IN_EPOLL
    },
    Variant {
        name: "h1",
        about: "epoll-event asked by a flag: raised before the wait, lowered after the send",
        race: Some(Race::H1),
        receiver: program::EPOLL_HANDSHAKE,
        sender: program::SEND_LOWER_LATE,
        expected: Expected::Loses,
        repaired: Some("h1-repaired"),
        ..IN_EPOLL
    },
    Variant {
        name: "h1-recheck",
        about: "h1 with the look at what was posted: the flag itself still goes missing",
        race: Some(Race::H1),
        receiver: program::EPOLL_HANDSHAKE_RECHECK,
        sender: program::SEND_LOWER_LATE,
        expected: Expected::Loses,
        repaired: Some("h1-repaired"),
        ..IN_EPOLL
    },
    Variant {
        name: "h1-repaired",
        about: "h1-recheck that lowers only the flag which it answered",
        receiver: program::EPOLL_HANDSHAKE_RECHECK,
        sender: program::SEND_LOWER_ANSWERED,
        ..IN_EPOLL
    },
    Variant {
        name: "h2",
        about: "epoll-event asked by a flag: lowered at once, before the send",
        race: Some(Race::H2),
        receiver: program::EPOLL_HANDSHAKE,
        sender: program::SEND_LOWER_FIRST,
        expected: Expected::Loses,
        repaired: Some("h4"),
        ..IN_EPOLL
    },
    Variant {
        name: "h3",
        about: "h2 with a delay in the sender, long enough for the receiver to sleep: the race remains, unseen",
        receiver: program::EPOLL_HANDSHAKE,
        sender: program::SEND_DELAYED,
        ..IN_EPOLL
    },
    Variant {
        name: "h4",
        about: "h2 with the look at what was posted: no delay needed",
        receiver: program::EPOLL_HANDSHAKE_RECHECK,
        sender: program::SEND_LOWER_FIRST,
        ..IN_EPOLL
    },
    HANDLING,
    Variant {
        name: "sender-moves",
        about: "the sender is moved, and its table with it",
        platform: Platform { moves: Moves::Sender, ..ARCHITECTURE },
        ..HANDLING
    },
    Variant {
        name: "sender-moves-without-table",
        about: "the sender is moved and its table is not: the architecture faults",
        platform: Platform { moves: Moves::Sender, table_moves: false, ..ARCHITECTURE },
        expected: Expected::Faults,
        repaired: Some("sender-moves"),
        ..HANDLING
    },
    Variant {
        name: "emulator-table",
        about: "the same on the emulator, where SENDUIPI without a table does nothing",
        race: Some(Race::M1),
        platform: Platform {
            moves: Moves::Sender,
            table_moves: false,
            silent_without_table: true,
            ..ARCHITECTURE
        },
        expected: Expected::Loses,
        repaired: Some("sender-moves"),
        ..HANDLING
    },
    Variant {
        name: "receiver-moves",
        about: "the receiver is moved, and UIF and UIRR with it",
        platform: Platform { moves: Moves::Receiver, ..ARCHITECTURE },
        ..HANDLING
    },
    Variant {
        name: "receiver-moves-without-uif",
        about: "the receiver is moved and its UIF is not",
        race: Some(Race::M2),
        platform: Platform { moves: Moves::Receiver, uif_moves: false, ..ARCHITECTURE },
        expected: Expected::Loses,
        repaired: Some("receiver-moves"),
        ..HANDLING
    },
    Variant {
        name: "emulator-uif",
        about: "the same on the emulator, which also drops a notification while UIF is clear",
        race: Some(Race::M2),
        platform: Platform {
            moves: Moves::Receiver,
            uif_moves: false,
            drops_without_uif: true,
            ..ARCHITECTURE
        },
        expected: Expected::Loses,
        repaired: Some("receiver-moves"),
        ..HANDLING
    },
    Variant {
        name: "handler-masked",
        about: "the receiver has deliveries off for a while: requests wait",
        receiver: program::HANDLER_MASKED,
        ..HANDLING
    },
    Variant {
        name: "emulator-pending",
        about: "the emulator replaces pending requests by newly posted ones",
        race: Some(Race::U1),
        receiver: program::HANDLER_MASKED,
        platform: Platform { replaces_pending: true, ..ARCHITECTURE },
        expected: Expected::Loses,
        repaired: Some("handler-masked"),
        ..HANDLING
    },
    Variant {
        name: "emulator-descriptor",
        about: "the emulator copies the descriptor, changes it and writes it back",
        race: Some(Race::U2),
        platform: Platform { copies_descriptor: true, ..ARCHITECTURE },
        expected: Expected::Loses,
        repaired: Some("handler"),
        ..HANDLING
    },
    Variant {
        name: "emulator-senduipi",
        about: "the emulator's SENDUIPI reads the descriptor and writes it back, where the processor has one locked access",
        race: Some(Race::U3),
        platform: Platform { send_copies_descriptor: true, ..ARCHITECTURE },
        expected: Expected::Loses,
        repaired: Some("handler"),
        ..HANDLING
    },
];

impl Variant {
    /// The protocol of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        VARIANTS.iter().find(|variant| variant.name == name)
    }

    /// Every message, a bit each.
    #[must_use]
    pub fn all_messages(&self) -> u8 {
        (1_u16 << self.messages.len()).wrapping_sub(1) as u8
    }
}
