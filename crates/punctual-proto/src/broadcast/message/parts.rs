//! Bytes read and written field by field, without ever going beyond their end.

/// The bytes that are left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'b>(pub(super) &'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn skip(&mut self, size: usize) -> Option<&'b [u8]> {
        let (first, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(first)
    }

    /// Bytes that mean nothing yet. With others it is not known what was meant.
    pub(super) fn zeros(&mut self, size: usize) -> Option<()> {
        self.skip(size)?.iter().all(|byte| *byte == 0).then_some(())
    }

    fn take<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        self.skip(SIZE)?.try_into().ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// A buffer that is being filled.
#[derive(Debug)]
pub(super) struct Writer<'b> {
    pub(super) buffer: &'b mut [u8],
    pub(super) at: usize,
    /// Something did not fit.
    pub(super) is_full: bool,
}

impl Writer<'_> {
    pub(super) fn room(&self) -> usize {
        self.buffer.len() - self.at
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        match self.buffer.get_mut(self.at..self.at + bytes.len()) {
            None => self.is_full = true,
            Some(room) => {
                room.copy_from_slice(bytes);
                self.at += bytes.len();
            }
        }
    }

    pub(super) fn word(&mut self, word: u32) {
        self.bytes(&word.to_le_bytes());
    }

    pub(super) fn long(&mut self, long: u64) {
        self.bytes(&long.to_le_bytes());
    }
}
