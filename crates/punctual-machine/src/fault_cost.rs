//! Cost of a page fault on this host: measured once, for counters only count them.

use std::sync::OnceLock;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::clock::monotonic_ns;
use crate::cpu::ThreadUsage;

/// A page fault takes no less on any processor.
pub const FAULT_NS_MIN: u64 = 250;

/// Memory of this size comes from the kernel, fresh: an allocator keeps none that is as large.
pub const FRESH_SIZE: usize = 64 << 20;

/// The kernel gives memory by this much.
pub const PAGE_SIZE: usize = 4096;

/// Pages of one round, and rounds, of which the cheapest counts: a stall of this machine makes a round dearer, nothing cheaper.
const PAGES: usize = 128;
const ROUNDS: usize = 8;

/// Time that a minor fault takes, nanoseconds: a page touched first, less one touched again.
pub fn fault_ns() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(|| measure().unwrap_or(FAULT_NS_MIN).max(FAULT_NS_MIN))
}

/// `None` where the kernel gives no memory for it, or none that faults.
fn measure() -> Option<u64> {
    // Of a limit on memory, locked memory or address space this takes little; a process at its limit is not measured.
    let size = ROUNDS * PAGES * PAGE_SIZE;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
    let start = unsafe { mmap_anonymous(core::ptr::null_mut(), size, protection, flags) }.ok()?;
    // SAFETY: the whole range was just mapped for reading and writing, is zeroed, and nobody else knows of it.
    let memory = unsafe { core::slice::from_raw_parts_mut(start.cast::<u8>(), size) };
    let cost = memory.chunks_exact_mut(PAGES * PAGE_SIZE).filter_map(round_ns).min();
    // SAFETY: the range is the one from above, and nothing points into it any more.
    let _ours = unsafe { munmap(start, size) };
    cost
}

/// `None` where the pages were there already, or came many at once.
fn round_ns(pages: &mut [u8]) -> Option<u64> {
    let before = ThreadUsage::now();
    let [first_ns, again_ns] = [1, 2].map(|value| {
        let from = monotonic_ns();
        pages.iter_mut().step_by(PAGE_SIZE).for_each(|byte| *std::hint::black_box(byte) = value);
        monotonic_ns() - from
    });
    let faults = ThreadUsage::now().since(before).faults_minor;
    (faults >= PAGES as u64 / 2).then(|| first_ns.saturating_sub(again_ns) / faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_costs_something_and_always_the_same() {
        let cost_ns = fault_ns();
        assert!(cost_ns >= FAULT_NS_MIN);
        assert_eq!(fault_ns(), cost_ns);
    }
}
