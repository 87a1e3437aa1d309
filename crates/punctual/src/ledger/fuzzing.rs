//! Parts of the ledger that a fuzz target needs.

use super::*;

/// Reads a page as `punctual stat` does. Input: a byte, not 0 for a page with the right first words, then pairs of place
/// (two bytes) and word (eight).
pub fn any_page(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let words: Vec<Counter> = (0..PAGE_SIZE / 8).map(|_| Counter::default()).collect();
    if first != 0 {
        words.iter().zip(PageKind::Node.words()).for_each(|(counter, word)| counter.set(word));
        words[2].set(1);
    }
    for pair in bytes.chunks_exact(10) {
        let mut word = [0; 8];
        word.copy_from_slice(&pair[2..]);
        let place = u16::from_le_bytes([pair[0], pair[1]]);
        words[usize::from(place) % words.len()].set(u64::from_le_bytes(word));
    }
    // Nobody closes anything, so there is nothing to wait for.
    words[CLOSINGS].set(0);
    let view = View::of(&words).expect("as large as a page");
    if let Some(owner) = view.owner().filter(|_| PageKind::Node.is_of(&words)) {
        let names = [&owner.name, &owner.bus];
        let sizes = [NAME_SIZE_MAX, BUS_SIZE_MAX];
        assert!(names.iter().zip(sizes).all(|(name, size_max)| name.chars().count() <= size_max));
        assert!(!names.iter().any(|name| name.chars().any(char::is_control)));
    }
    let ledger = view.ledger();
    let _any = (ledger.is_balanced(), ledger.lost(), ledger.to_string());
}
