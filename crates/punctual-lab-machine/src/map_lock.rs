//! The lock of a process's memory map, held for as long as the kernel fills memory.

use punctual_machine::SystemError;
use rustix::mm::{Advice, madvise};

/// The kernel gives memory by this much.
const PAGE_SIZE: usize = 4096;

/// Gives the pages of this memory back, and has the kernel fill it again, with zeroes: meanwhile it holds the lock of the memory map for
/// reading, and whoever maps or unmaps waits.
///
/// # Errors
/// The kernel is older than 5.14, or there is no memory.
pub fn hold_map_lock(memory: &mut [u8]) -> Result<(), SystemError> {
    let off = |error: rustix::io::Errno| SystemError::new("fill", "memory", error);
    let begin = memory.as_mut_ptr();
    let skipped = begin.align_offset(PAGE_SIZE);
    let size = memory.len().saturating_sub(skipped) / PAGE_SIZE * PAGE_SIZE;
    if size == 0 {
        return Ok(());
    }
    // SAFETY: whole pages that lie in the slice, which is ours alone: what was in them may be anything afterwards, and is zeroes. Both
    // calls leave the mapping itself as it is.
    unsafe {
        let pages = begin.add(skipped).cast();
        madvise(pages, size, Advice::LinuxDontNeed).map_err(off)?;
        madvise(pages, size, Advice::LinuxPopulateWrite).map_err(off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whole pages are zeroes afterwards, and what lies beside them is as it was.
    #[test]
    fn only_whole_pages_are_given_back() {
        let mut memory = vec![7_u8; 8 * PAGE_SIZE];
        match hold_map_lock(&mut memory) {
            Ok(()) => {
                let zeroes = memory.iter().filter(|&&byte| byte == 0).count();
                assert!((7 * PAGE_SIZE..=8 * PAGE_SIZE).contains(&zeroes), "{zeroes}");
                assert_eq!(zeroes + memory.iter().filter(|&&byte| byte == 7).count(), memory.len());
            }
            Err(error) => eprintln!("SKIPPED: {error}"),
        }
        assert!(hold_map_lock(&mut [0; 9]).is_ok());
    }
}
