//! Work that a request asks for: a matrix as text, multiplied by itself, as text. Repeated until it takes as long as the original's.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use punctual::Clock;

/// End of a message: numbers stand in lines, and an empty line follows the last.
pub(super) const END: &[u8] = b"\n\n";

/// The reply to a request that is not served.
pub(super) const REFUSAL: &[u8] = b"refused\n\n";

/// The original's server took this for a request of 20 × 20.
pub(super) const ORIGINAL: Duration = Duration::from_micros(720);
pub(super) const ORIGINAL_MATRIX: usize = 20;

/// Number of times that the work is timed; the fastest counts, in which nobody else ran.
const TRIALS: usize = 200;

/// The text of a matrix of numbers below 100.
pub(super) fn request(matrix: usize) -> Vec<u8> {
    let numbers: Vec<u64> = (0..(matrix * matrix) as u64).map(|number| number * 37 % 100).collect();
    format(&numbers, matrix)
}

/// The reply to a request.
pub(super) fn reply(request: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let lines = text.lines().filter(|line| !line.is_empty());
    let rows: Vec<Vec<u64>> =
        lines.map(|line| line.split(' ').map(|number| number.parse().unwrap_or(0)).collect()).collect();
    let side = rows.len();
    let at = |row: usize, column: usize| rows[row].get(column).copied().unwrap_or(0);
    let mut product = vec![0; side * side];
    for row in 0..side {
        for column in 0..side {
            product[row * side + column] = (0..side).map(|k| at(row, k) * at(k, column)).sum();
        }
    }
    format(&product, side)
}

fn format(numbers: &[u64], side: usize) -> Vec<u8> {
    let mut text = String::new();
    for row in numbers.chunks(side.max(1)) {
        for (column, number) in row.iter().enumerate() {
            let space = if column > 0 { " " } else { "" };
            write!(text, "{space}{number}").expect("a string takes all");
        }
        text.push('\n');
    }
    text.push('\n');
    text.into_bytes()
}

/// The work so often.
pub fn serve(request: &[u8], repeats: u32) -> Vec<u8> {
    for _ in 1..repeats {
        black_box(reply(black_box(request)));
    }
    reply(request)
}

/// The fastest of some servings, nanoseconds.
pub(super) fn time_of(matrix: usize, repeats: u32) -> u64 {
    let (clock, request) = (Clock::get(), request(matrix));
    let trials = TRIALS.div_ceil(repeats as usize).max(5);
    let time = || {
        let began = clock.now();
        black_box(serve(black_box(&request), repeats));
        clock.nanos(clock.now().since(began))
    };
    (0..trials).map(|_| time()).min().unwrap_or(0)
}

/// Number of times that the work is done so that it takes as long as the original's.
pub(super) fn dilation() -> u32 {
    let native = time_of(ORIGINAL_MATRIX, 1).max(1);
    let repeats = (ORIGINAL.as_nanos() as f64 / native as f64).round();
    (repeats as u32).max(1)
}

/// Messages in a stream of bytes.
#[derive(Debug, Default)]
pub struct Splitter {
    bytes: Vec<u8>,
}

impl Splitter {
    /// Takes bytes in; gives each message that is whole now.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        self.bytes.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(end) = self.bytes[begin..].windows(END.len()).position(|window| window == END) {
            let next = begin + end + END.len();
            each(&self.bytes[begin..next]);
            begin = next;
        }
        self.bytes.drain(..begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_multiplied_by_itself() {
        assert_eq!(reply(b"1 2\n3 4\n\n"), b"7 10\n15 22\n\n");
        assert_eq!(serve(b"3\n\n", 5), b"9\n\n");
        assert_eq!(request(2), b"0 37\n74 11\n\n");
        assert!(request(20).len() < 1_300, "some 1.2 kB, as the original's");
    }

    #[test]
    fn a_stream_is_split_wherever_it_was_cut() {
        let stream = [request(1), request(3), request(2)].concat();
        for cut in 0..stream.len() {
            let (mut splitter, mut found) = (Splitter::default(), Vec::new());
            for part in [&stream[..cut], &stream[cut..]] {
                splitter.push(part, |message| found.push(message.to_vec()));
            }
            assert_eq!(found, [request(1), request(3), request(2)], "{cut}");
        }
    }
}
