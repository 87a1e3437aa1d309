//! Contents of an answer about its request: 40 bytes, little-endian. A request has the same size, and only its number.
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 8 | number of the request |
//! | 8 | 1 | 1: the time there is known |
//! | 9 | 1 | 1: the truth is known |
//! | 10 | 6 | 0 |
//! | 16 | 8 | time there, nanoseconds, signed |
//! | 24 | 8 | bound of its error, nanoseconds |
//! | 32 | 8 | the truth, nanoseconds, signed |

use punctual::time::OneWay;

use super::Direction;

pub(super) const ANSWER_SIZE: usize = 40;

pub(super) fn write(number: u64, way: Option<Direction>) -> [u8; ANSWER_SIZE] {
    let mut bytes = [0; ANSWER_SIZE];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    if let Some(Direction { found, truth }) = way {
        (bytes[8], bytes[9]) = (1, u8::from(truth.is_some()));
        bytes[16..24].copy_from_slice(&found.nanos.to_le_bytes());
        bytes[24..32].copy_from_slice(&found.bound.to_le_bytes());
        bytes[32..].copy_from_slice(&truth.unwrap_or(0).to_le_bytes());
    }
    bytes
}

/// The request's number, and what its receiver knows of its way. None if it is no answer.
pub(super) fn read(bytes: &[u8]) -> Option<(u64, Option<Direction>)> {
    let words: &[[u8; 8]; ANSWER_SIZE / 8] = bytes.as_chunks().0.try_into().ok()?;
    let [number, known, nanos, bound, truth] = words;
    let found = OneWay { nanos: i64::from_le_bytes(*nanos), bound: u64::from_le_bytes(*bound) };
    let truth = (known[1] == 1).then(|| i64::from_le_bytes(*truth));
    Some((u64::from_le_bytes(*number), (known[0] == 1).then_some(Direction { found, truth })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_read_back(number: u64, nanos: i64, bound: u64, truth: Option<i64>, known: bool) {
            let way = known.then_some(Direction { found: OneWay { nanos, bound }, truth });
            prop_assert_eq!(read(&write(number, way)), Some((number, way)));
        }

        #[test]
        fn other_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(read(&bytes).is_some(), bytes.len() / 8 == ANSWER_SIZE / 8);
        }
    }
}
