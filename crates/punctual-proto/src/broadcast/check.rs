//! The check value of messages on media that have none: CRC-32C (Castagnoli 1993), by a table.

/// A function that goes on from the CRC-32C of what came before with some more bytes; it begins with 0.
pub type Check = fn(u32, &[u8]) -> u32;

const POLYNOMIAL: u32 = 0x82F6_3B78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = (value >> 1) ^ (POLYNOMIAL & 0_u32.wrapping_sub(value & 1));
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// CRC-32C without an instruction for it. A user with such an instruction brings a [`Check`] of its own.
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |value, byte| (value >> 8) ^ TABLE[usize::from((value as u8) ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of RFC 3720, B.4.
    #[test]
    fn the_values_are_those_of_the_standard() {
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xE306_9283, "in two parts");
    }
}
