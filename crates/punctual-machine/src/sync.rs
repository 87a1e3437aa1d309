//! The only doorway to atomics: the real ones, or loom's where its model checker runs.
//!
//! loom treats `SeqCst` accesses as weaker than they are but models `fence(SeqCst)`: wake-ups are
//! written with fences, and every fence is one of a labelled pair.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Tells the CPU, or loom's scheduler, that this thread waits for another.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    crate::arch::spin_hint();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Half of a pair of barriers: the compiler keeps the order of what stands before and after; the other half,
/// [`heavy_barrier`], makes the processor keep it.
#[inline]
pub(crate) fn light_barrier() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The other half: a full fence in this thread and in every running thread of the process. Only where
/// [`has_heavy_barrier`].
pub(crate) fn heavy_barrier() {
    #[cfg(not(loom))]
    {
        let done = rustix::thread::membarrier(rustix::thread::MembarrierCommand::PrivateExpedited);
        assert!(done.is_ok(), "membarrier worked when it was registered for");
    }
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Whether the kernel gives [`heavy_barrier`]: Linux 4.14 does, unless a filter of system calls forbids it.
pub(crate) fn has_heavy_barrier() -> bool {
    #[cfg(all(not(loom), not(miri)))]
    {
        static REGISTERED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *REGISTERED.get_or_init(|| {
            let register = rustix::thread::MembarrierCommand::RegisterPrivateExpedited;
            rustix::thread::membarrier(register).is_ok()
                && rustix::thread::membarrier(rustix::thread::MembarrierCommand::PrivateExpedited).is_ok()
        })
    }
    #[cfg(any(loom, miri))]
    cfg!(loom)
}

/// A number that nothing else in this process has. No atomic of loom's: nobody's order depends on it.
pub(crate) fn unique_number() -> core::num::NonZeroU64 {
    static NEXT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);
    let number = NEXT.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    core::num::NonZeroU64::new(number).expect("counting 2^64 takes longer than a machine lives")
}

/// Lets a moment pass for another thread, and a longer one if that does not help: yielding alone would keep a thread of
/// lower priority from running.
pub(crate) fn pause(tries: &mut u32) {
    *tries += 1;
    #[cfg(not(loom))]
    if *tries > 100 {
        std::thread::sleep(std::time::Duration::from_micros(50));
        return;
    }
    spin_hint();
}
