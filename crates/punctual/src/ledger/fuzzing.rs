//! What a fuzz target needs of the ledger.

use super::*;

/// Reads a page as `punctual stat` does. Input: a byte, not 0 for a page with the right first words, then pairs of place
/// (two bytes) and word (eight).
pub fn any_page(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let memory = Arc::new(Mapping::anonymous(PAGE_SIZE).expect("a page of memory"));
    let words: &[Counter] = memory.objects(0, PAGE_SIZE / 8).expect("the whole page");
    if first != 0 {
        words[0].set(MAGIC);
        words[1].set(LAYOUT_VERSION);
        words[2].set(1);
    }
    for pair in bytes.chunks_exact(10) {
        let mut word = [0; 8];
        word.copy_from_slice(&pair[2..]);
        let place = u16::from_le_bytes([pair[0], pair[1]]);
        words[usize::from(place) % words.len()].set(u64::from_le_bytes(word));
    }
    if let Some(owner) = read_owner(&memory) {
        let names = [&owner.name, &owner.bus];
        assert!(names.iter().all(|name| name.chars().count() <= NAME_SIZE_MAX));
        assert!(!names.iter().any(|name| name.chars().any(char::is_control)));
    }
    let ledger = Page::of(&memory).expect("as large as a page").ledger();
    let _any = (ledger.is_balanced(), ledger.lost(), ledger.to_string());
}
