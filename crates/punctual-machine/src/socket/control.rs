//! Control messages: the kernel's information about a datagram beside its bytes.
//!
//! Read as bytes, so that a short or odd buffer ends the walk instead of the process.

/// Room for every control message that this module asks for: stamps (64 bytes), an extended error with its origin
/// (up to 64).
pub const CONTROL_SIZE: usize = 192;

const WORD: usize = size_of::<usize>();
const HEADER_SIZE: usize = size_of::<libc::cmsghdr>();
const _: () = assert!(HEADER_SIZE == WORD + 8, "length, level and type: no padding before the data");

/// The control messages in a buffer, as (level, type, data).
pub struct ControlMessages<'a> {
    rest: &'a [u8],
}

impl<'a> ControlMessages<'a> {
    /// Those in a buffer that the kernel wrote.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for ControlMessages<'a> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let size = usize::from_ne_bytes(*self.rest.first_chunk()?);
        let level = i32::from_ne_bytes(*self.rest.get(WORD..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*self.rest.get(WORD + 4..)?.first_chunk()?);
        let data = self.rest.get(HEADER_SIZE..size)?;
        self.rest = self.rest.get(size.next_multiple_of(WORD)..).unwrap_or(&[]);
        Some((level, kind, data))
    }
}

/// A control message with one `u16`, padded to whole words.
pub const SEGMENT_CONTROL_SIZE: usize = HEADER_SIZE + WORD;

/// The UDP_SEGMENT message: cut what is sent into datagrams of `size` bytes, which is at most 65,507.
pub fn segment_control(size: usize) -> [u8; SEGMENT_CONTROL_SIZE] {
    let mut bytes = [0; SEGMENT_CONTROL_SIZE];
    bytes[..WORD].copy_from_slice(&(HEADER_SIZE + size_of::<u16>()).to_ne_bytes());
    bytes[WORD..WORD + 4].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
    bytes[WORD + 4..HEADER_SIZE].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
    bytes[HEADER_SIZE..HEADER_SIZE + 2].copy_from_slice(&(size as u16).to_ne_bytes());
    bytes
}

/// The software stamp of an SCM_TIMESTAMPING message: the first of its three `timespec`, in ns of
/// CLOCK_REALTIME. All zero means the kernel took none.
pub fn software_stamp(data: &[u8]) -> Option<u64> {
    let seconds = u64::try_from(i64::from_ne_bytes(*data.first_chunk()?)).ok()?;
    let nanos = u64::try_from(i64::from_ne_bytes(*data.get(8..)?.first_chunk()?)).ok()?;
    let stamp = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (stamp != 0).then_some(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: usize, level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = size.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes
    }

    #[test]
    fn messages_are_walked_in_order() {
        let mut bytes = message(HEADER_SIZE + 4, 1, 40, &7_u32.to_ne_bytes());
        bytes.extend(message(HEADER_SIZE + 2, 2, 41, b"ab"));
        let all: Vec<_> = ControlMessages::new(&bytes).collect();
        assert_eq!(all, [(1, 40, &7_u32.to_ne_bytes()[..]), (2, 41, b"ab")]);
    }

    #[test]
    fn a_segment_message_reads_back() {
        let bytes = segment_control(1_448);
        let all: Vec<_> = ControlMessages::new(&bytes).collect();
        assert_eq!(all, [(libc::SOL_UDP, libc::UDP_SEGMENT, &1_448_u16.to_ne_bytes()[..])]);
    }

    #[test]
    fn impossible_sizes_end_the_walk() {
        for size in [0, 1, HEADER_SIZE - 1, HEADER_SIZE + 9, usize::MAX] {
            let bytes = message(size, 1, 40, &[0; 8]);
            assert_eq!(ControlMessages::new(&bytes).count(), 0, "size {size}");
        }
    }

    #[test]
    fn every_prefix_is_harmless() {
        let bytes = message(HEADER_SIZE + 48, 1, 37, &[1; 48]);
        for end in 0..bytes.len() {
            for (_, _, data) in ControlMessages::new(&bytes[..end]) {
                let _ = software_stamp(data);
            }
        }
    }

    #[test]
    fn a_zero_stamp_is_no_stamp() {
        assert_eq!(software_stamp(&[0; 48]), None);
        let mut data = [0; 48];
        data[0] = 2;
        data[8] = 5;
        assert_eq!(software_stamp(&data), Some(2_000_000_005));
        assert_eq!(software_stamp(&data[..15]), None);
    }
}
