//! Checks whether a secret stands in a capture.

use std::collections::BTreeSet;
use std::path::Path;

/// Bytes of a secret that are looked for: a whole key, and the first half of a longer one.
const SIZE: usize = 16;

/// Secrets that must be nowhere.
#[derive(Default)]
pub(super) struct Secrets(BTreeSet<[u8; SIZE]>);

impl Secrets {
    pub(super) fn add(&mut self, secret: &[u8]) {
        let chunks = secret.as_chunks::<SIZE>().0.iter().copied();
        self.0.extend(chunks);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Number of secrets that stand in these bytes, wherever.
    fn found_in(&self, bytes: &[u8]) -> usize {
        let is_secret =
            |window: &&[u8]| window.first_chunk::<SIZE>().is_some_and(|window| self.0.contains(window));
        bytes.windows(SIZE).filter(is_secret).count()
    }

    /// Reads a capture: its size, and how many secrets stand in it.
    pub(super) fn look_into(&self, path: &Path) -> std::io::Result<(usize, usize)> {
        let bytes = std::fs::read(path)?;
        Ok((bytes.len(), self.found_in(&bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_wherever_it_stands() {
        let mut secrets = Secrets::default();
        secrets.add(&[7; 16]);
        secrets.add(&(0..32).collect::<Vec<u8>>());
        assert_eq!(secrets.count(), 3);
        for at in 0..40 {
            let mut bytes = vec![0xAA; 100];
            assert_eq!(secrets.found_in(&bytes), 0);
            bytes[at..at + 16].copy_from_slice(&(16..32).collect::<Vec<u8>>());
            assert_eq!(secrets.found_in(&bytes), 1, "at {at}");
        }
    }
}
