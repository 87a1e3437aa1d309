//! The architecture: descriptor, sender's table, notification and delivery (Intel SDM, vol. 3, ch. 7).

use core::fmt;

/// User vectors of one receiver: one bit each in the posted requests.
pub const USER_VECTORS: u8 = 64;

/// Processors of the model: the receiver's, the sender's, and one to migrate to.
pub const CPUS: usize = 3;

/// An interrupt vector that a notification can have, by what the receiving side does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vector {
    /// The processor's UINV while a receiver runs: it moves posted bits to UIRR, and no software runs.
    Notification,
    /// The kernel's, which looks for waiting tasks and wakes them.
    Kernel,
    /// The kernel's, which signals an event that epoll waits for.
    Event,
}

impl Vector {
    /// All of them, in the order in which a processor accepts them.
    pub const ALL: [Self; 3] = [Self::Notification, Self::Kernel, Self::Event];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notification => "notification",
            Self::Kernel => "kernel",
            Self::Event => "event",
        })
    }
}

/// The user posted-interrupt descriptor of one receiver: 16 bytes of memory that senders and receiver share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upid {
    /// A notification is outstanding: further sends post a bit and notify nobody.
    pub on: bool,
    /// Do not notify.
    pub sn: bool,
    /// The vector of the notification.
    pub nv: Vector,
    /// The processor that is notified.
    pub ndst: usize,
    /// Posted requests, a bit per user vector.
    pub pir: u64,
}

impl Upid {
    /// Of a receiver that runs on `cpu`, has nothing posted and wants `nv`.
    #[must_use]
    pub const fn new(nv: Vector, cpu: usize) -> Self {
        Self { on: false, sn: false, nv, ndst: cpu, pir: 0 }
    }

    /// Effect of SENDUIPI on the descriptor, in one locked access: returns the notification that it must now send, if any.
    pub const fn post(&mut self, user_vector: u8) -> Option<(usize, Vector)> {
        self.pir |= 1 << user_vector;
        if self.sn || self.on {
            return None;
        }
        self.on = true;
        Some((self.ndst, self.nv))
    }

    /// Takes all posted bits, in one locked access.
    pub const fn take_posted(&mut self) -> u64 {
        let posted = self.pir;
        self.pir = 0;
        posted
    }
}

/// One entry of a sender's table (UITT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableEntry {
    /// True if it may be used.
    pub valid: bool,
    /// The bit to post.
    pub user_vector: u8,
}

/// Why SENDUIPI faults (#GP): never silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The processor has no table, or the index is behind its end.
    NoEntry,
    /// The entry is not valid.
    Invalid,
    /// The entry's user vector is not one of the 64.
    Vector,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEntry => "no such entry in the sender's table",
            Self::Invalid => "the entry of the sender's table is not valid",
            Self::Vector => "the entry's user vector is above 63",
        })
    }
}

/// Checks of SENDUIPI before it touches a descriptor.
///
/// # Errors
/// The fault that the processor raises.
pub fn checked_entry(table: &[TableEntry], index: usize) -> Result<TableEntry, Fault> {
    let entry = table.get(index).ok_or(Fault::NoEntry)?;
    if !entry.valid {
        return Err(Fault::Invalid);
    }
    if entry.user_vector >= USER_VECTORS {
        return Err(Fault::Vector);
    }
    Ok(*entry)
}

/// A notification that the processor is processing: two accesses to the descriptor, with room for a sender in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Noticing {
    /// ON is cleared; the posted bits are still to be taken.
    Cleared,
    /// An emulator's: it has copied the descriptor, and will write its copy back without bits and without ON.
    Copied(u64),
}

/// State of one processor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu {
    /// User interrupts may be delivered.
    pub uif: bool,
    /// Requests that wait for delivery.
    pub uirr: u64,
    /// The vector it takes for a user-interrupt notification; none while no receiver runs here.
    pub uinv: Option<Vector>,
    /// A sender's table is loaded (the valid bit of IA32_UINTR_TT).
    pub has_table: bool,
    /// Interrupts are masked (the kernel's RFLAGS.IF).
    pub masked: bool,
    /// Vectors that the interrupt controller holds.
    requests: u8,
    /// A notification half processed.
    pub noticing: Option<Noticing>,
}

impl Cpu {
    /// One that runs nothing of interest.
    #[must_use]
    pub const fn idle() -> Self {
        Self { uif: false, uirr: 0, uinv: None, has_table: false, masked: false, requests: 0, noticing: None }
    }

    /// The interrupt controller takes a vector; twice is once.
    pub const fn request(&mut self, vector: Vector) {
        self.requests |= vector.bit();
    }

    /// True if the interrupt controller holds the vector.
    #[must_use]
    pub const fn is_requested(&self, vector: Vector) -> bool {
        self.requests & vector.bit() != 0
    }

    /// The processor accepts a vector.
    pub const fn accept(&mut self, vector: Vector) {
        self.requests &= !vector.bit();
    }

    /// The user vector that is delivered before the next instruction at CPL 3: the highest, if any may.
    #[must_use]
    pub const fn deliverable(&self) -> Option<u8> {
        if !self.uif || self.uirr == 0 {
            return None;
        }
        Some((63 - self.uirr.leading_zeros()) as u8)
    }

    /// Delivery: the request is taken and further ones wait.
    pub const fn deliver(&mut self, user_vector: u8) {
        self.uirr &= !(1 << user_vector);
        self.uif = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_post_notifies_and_the_second_finds_it_outstanding() {
        let mut upid = Upid::new(Vector::Notification, 0);
        assert_eq!(upid.post(3), Some((0, Vector::Notification)));
        assert_eq!(upid.post(5), None);
        assert_eq!(upid.take_posted(), 0b10_1000);
        assert_eq!(upid.post(1), None, "ON is cleared by the notification's processing only");
    }

    #[test]
    fn a_suppressed_receiver_is_posted_to_and_not_notified() {
        let mut upid = Upid { sn: true, ..Upid::new(Vector::Kernel, 2) };
        assert_eq!(upid.post(0), None);
        assert!(!upid.on && upid.pir == 1);
    }

    #[test]
    fn the_highest_vector_goes_first_and_only_with_uif() {
        let mut cpu = Cpu { uirr: 1 << 7 | 1 << 63 | 1, ..Cpu::idle() };
        assert_eq!(cpu.deliverable(), None);
        for expected in [63, 7, 0] {
            cpu.uif = true;
            assert_eq!(cpu.deliverable(), Some(expected));
            cpu.deliver(expected);
            assert!(!cpu.uif, "UIRET sets it again");
        }
        cpu.uif = true;
        assert_eq!(cpu.deliverable(), None);
    }

    #[test]
    fn an_entry_that_cannot_be_used_faults() {
        let table = [
            TableEntry { valid: true, user_vector: 63 },
            TableEntry { valid: false, user_vector: 1 },
            TableEntry { valid: true, user_vector: 64 },
        ];
        assert_eq!(checked_entry(&table, 0), Ok(table[0]));
        assert_eq!(checked_entry(&table, 1), Err(Fault::Invalid));
        assert_eq!(checked_entry(&table, 2), Err(Fault::Vector));
        assert_eq!(checked_entry(&table, 3), Err(Fault::NoEntry));
        assert_eq!(checked_entry(&[], 0), Err(Fault::NoEntry));
    }
}
