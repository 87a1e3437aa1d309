//! A check value over a trial: Parquet itself does not notice a flipped bit in a page.

use crate::sample::Samples;

/// FNV-1a, 64 bits. Detects accidents, not adversaries.
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Fnv {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(Self::PRIME);
        }
    }

    fn numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.bytes(&number.to_le_bytes());
        }
    }
}

/// Over one text.
pub(super) fn check_text(text: &str) -> String {
    let mut fnv = Fnv(Fnv::BASIS);
    fnv.bytes(text.as_bytes());
    format!("{:016x}", fnv.0)
}

/// Over the texts of the footer and the columns that are read again, as 16 hexadecimal digits. The others repeat the footer, or follow
/// from the index: they are written for other readers.
pub(super) fn check(texts: &[&str], samples: &Samples) -> String {
    let mut fnv = Fnv(Fnv::BASIS);
    for text in texts {
        fnv.bytes(text.as_bytes());
    }
    for column in [&samples.index, &samples.due_ns, &samples.sent_ns, &samples.total_ns] {
        fnv.numbers(column);
    }
    for outcome in &samples.outcome {
        fnv.bytes(outcome.as_str().as_bytes());
    }
    fnv.numbers(&samples.sender);
    for stage in &samples.stages {
        fnv.bytes(stage.name.as_bytes());
        fnv.numbers(&stage.ns);
    }
    format!("{:016x}", fnv.0)
}
