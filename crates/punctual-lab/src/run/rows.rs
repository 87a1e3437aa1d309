//! Rows that follow an answer as bytes, because there may be millions: each so many words.

/// A value that consists of so many words.
pub trait Row<const WORDS: usize> {
    /// Bytes of one.
    const SIZE: usize = 8 * WORDS;

    /// The words.
    fn words(&self) -> [u64; WORDS];

    /// The value that consists of these words.
    fn of_words(words: [u64; WORDS]) -> Self;
}

/// Rows as bytes, one behind the other.
pub fn bytes_of<'a, const WORDS: usize, R: Row<WORDS> + 'a>(
    rows: impl IntoIterator<Item = &'a R>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in rows.into_iter().flat_map(Row::words) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The rows of bytes; less than a whole one in the end is none.
pub fn rows_of<const WORDS: usize, R: Row<WORDS>>(bytes: &[u8]) -> Vec<R> {
    let (words, _) = bytes.as_chunks();
    let (rows, _) = words.as_chunks::<WORDS>();
    rows.iter().map(|row| R::of_words(row.map(u64::from_le_bytes))).collect()
}

/// A number is a row by itself.
impl Row<1> for u64 {
    fn words(&self) -> [u64; 1] {
        [*self]
    }

    fn of_words([word]: [u64; 1]) -> Self {
        word
    }
}
