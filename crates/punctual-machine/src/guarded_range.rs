//! One entry of the table of mappings: a range of addresses, which a signal handler reads while others give the entry away.
//!
//! Start and size are two words. A reader believes them if the start is still the same after the size: an entry that is used anew is
//! free in between.

use crate::mutant::ordering;
use crate::sync::{AtomicU64, Ordering};

/// A range of addresses, or none.
#[derive(Debug, Default)]
pub(crate) struct GuardedRange {
    /// 0: the entry is free.
    start: AtomicU64,
    size: AtomicU64,
}

impl GuardedRange {
    #[cfg(not(loom))]
    pub(crate) const fn free() -> Self {
        Self { start: AtomicU64::new(0), size: AtomicU64::new(0) }
    }

    /// Of one who changes the table alone. The entry is free.
    pub(crate) fn enter(&self, start: u64, size: u64) {
        // Release: a thread that sees the size sees that the entry was free before.
        self.size.store(size, ordering!("range_size", Release));
        self.start.store(start, ordering!("range_start", Release));
    }

    /// Of one who changes the table alone.
    pub(crate) fn leave(&self) {
        // Relaxed: the size behind it is stored with release, and before that both words belong together.
        self.start.store(0, Ordering::Relaxed);
    }

    /// Start and size of the range that is there, if it was all the time.
    pub(crate) fn read(&self) -> Option<(u64, u64)> {
        let start = self.start.load(ordering!("range_read_start", Acquire));
        let size = self.size.load(ordering!("range_read_size", Acquire));
        let is_same = self.start.load(Ordering::Relaxed) == start;
        (start != 0 && is_same).then_some((start, size))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_there_until_it_leaves() {
        let range = GuardedRange::free();
        assert_eq!(range.read(), None);
        range.enter(4096, 8192);
        assert_eq!(range.read(), Some((4096, 8192)));
        range.leave();
        assert_eq!(range.read(), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Goal: while an entry is used anew, nobody reads the start of one range with the size of another.
    #[test]
    fn a_start_goes_with_its_size() {
        loom::model(|| {
            let range = Arc::new(GuardedRange::default());
            let writer = Arc::clone(&range);
            let thread = loom::thread::spawn(move || {
                writer.enter(1, 10);
                writer.leave();
                writer.enter(2, 20);
            });
            let read = range.read();
            assert!(matches!(read, None | Some((1, 10) | (2, 20))), "{read:?}");
            thread.join().unwrap();
        });
    }
}
