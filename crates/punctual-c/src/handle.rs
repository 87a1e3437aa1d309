//! The types of handles, what they name, and what a thread does with its own when it ends.

use punctual::interest::{Subscriber, Untyped};
use punctual::{Bus, Communicator, Node, Publication, Subscription};
use punctual_machine::thread_end::ThreadEnd;

use crate::entry::{Owned, Shared};
use crate::publisher::Publishing;

/// A medium that reaches everybody.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_bus {
    /// Its number; 0 is none.
    pub value: u64,
}

/// One process's presence on a bus.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_node {
    /// Its number; 0 is none.
    pub value: u64,
}

/// An endpoint at a port of a node.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_communicator {
    /// Its number; 0 is none.
    pub value: u64,
}

/// A connected sender, in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_publication {
    /// Its number; 0 is none.
    pub value: u64,
}

/// The reader of all publications for a port, in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_subscription {
    /// Its number; 0 is none.
    pub value: u64,
}

/// Has values of a topic, and sends them when they are due.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_publisher {
    /// Its number; 0 is none.
    pub value: u64,
}

/// Wants values of a topic every so often.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct punctual_subscriber {
    /// Its number; 0 is none.
    pub value: u64,
}

pub(crate) static BUSES: Shared<Bus> = Shared::new(1, "bus");
pub(crate) static NODES: Shared<Node> = Shared::new(2, "node");
pub(crate) static COMMUNICATORS: Owned<Communicator> = Owned::new(3, "communicator", note_end);
pub(crate) static PUBLICATIONS: Owned<Publication> = Owned::new(4, "publication", note_end);
pub(crate) static SUBSCRIPTIONS: Owned<Subscription> = Owned::new(5, "subscription", note_end);
pub(crate) static PUBLISHERS: Owned<Publishing> = Owned::new(6, "publisher", note_end);
pub(crate) static SUBSCRIBERS: Owned<Subscriber<Untyped>> = Owned::new(7, "subscriber", note_end);

/// When a thread ends, what was its own is nobody's.
struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        give_up_all();
    }
}

fn give_up_all() {
    COMMUNICATORS.give_up_all();
    PUBLICATIONS.give_up_all();
    SUBSCRIPTIONS.give_up_all();
    PUBLISHERS.give_up_all();
    SUBSCRIBERS.give_up_all();
}

thread_local! {
    static AT_END: AtEnd = const { AtEnd };
}

/// The same, behind all destructors of a thread's values.
static BEHIND_ALL: ThreadEnd = ThreadEnd::new(give_up_all);

/// Sees to it that this thread gives up what it owns when it ends.
fn note_end() {
    if AT_END.try_with(|_| ()).is_err() {
        // It is ending already: a destructor of the program's uses the library. Without a key it keeps what it takes now.
        let _noted = BEHIND_ALL.note();
    }
}
