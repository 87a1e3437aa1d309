//! The lock of a process's memory map, held for as long as the kernel fills memory.

use punctual_machine::SystemError;
use rustix::mm::{Advice, madvise};

/// Gives the pages of this memory back, and has the kernel fill it again, with zeroes. Meanwhile the kernel holds the lock of the
/// memory map for reading, and threads that map or unmap wait.
///
/// # Errors
/// The kernel is older than 5.14, or there is no memory.
pub fn hold_map_lock(memory: &mut [u8]) -> Result<(), SystemError> {
    let off = |error: rustix::io::Errno| SystemError::new("fill", "memory", error);
    let begin = memory.as_mut_ptr();
    let page_size = rustix::param::page_size();
    let skipped = begin.align_offset(page_size);
    let size = memory.len().saturating_sub(skipped) / page_size * page_size;
    if size == 0 {
        return Ok(());
    }
    // SAFETY: whole pages that lie in the slice, which is ours alone: their content may be anything afterwards, and is zeroes. Both
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
        let page_size = rustix::param::page_size();
        let mut memory = vec![7_u8; 8 * page_size];
        match hold_map_lock(&mut memory) {
            Ok(()) => {
                let zeroes = memory.iter().filter(|&&byte| byte == 0).count();
                assert!((7 * page_size..=8 * page_size).contains(&zeroes), "{zeroes}");
                assert_eq!(zeroes + memory.iter().filter(|&&byte| byte == 7).count(), memory.len());
            }
            Err(error) => punctual_machine::skipped!("{error}"),
        }
        assert!(hold_map_lock(&mut [0; 9]).is_ok());
    }
}
