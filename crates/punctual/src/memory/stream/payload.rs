//! A message where it lies: in a ring, or in memory of this process.

use punctual_machine::ring::{RingGuard, SharedBytes};
use punctual_proto::fragment::HEAD_SIZE;

/// A message where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// In memory of this process.
    Private(&'a [u8]),
    /// In shared memory that its writer may change at any instant.
    Shared {
        /// The bytes.
        bytes: SharedBytes<'a>,
        /// Knows whether they are still what they were.
        guard: RingGuard<'a>,
    },
}

impl Payload<'_> {
    /// Size, bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Private(bytes) => bytes.len(),
            Self::Shared { bytes, .. } => bytes.len(),
        }
    }

    /// A fragment's head, and its bytes.
    pub(super) fn split_head(&self) -> Option<([u8; HEAD_SIZE], Self)> {
        match *self {
            Self::Private(bytes) => {
                bytes.split_first_chunk().map(|(head, bytes)| (*head, Self::Private(bytes)))
            }
            Self::Shared { bytes, guard } => {
                let mut head = [0; HEAD_SIZE];
                bytes.copy_to(&mut head);
                Some((head, Self::Shared { bytes: bytes.skip(HEAD_SIZE)?, guard }))
            }
        }
    }

    /// True if the message is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as many bytes as fit into `target`; returns how many.
    #[inline]
    pub(super) fn copy_to(&self, target: &mut [u8]) -> usize {
        match self {
            Self::Private(bytes) => {
                let size = bytes.len().min(target.len());
                target[..size].copy_from_slice(&bytes[..size]);
                size
            }
            Self::Shared { bytes, .. } => bytes.copy_to(target),
        }
    }

    /// The eight bytes from `8 * index` on as a little-endian number, if they are inside.
    #[inline]
    pub(super) fn word(&self, index: usize) -> Option<u64> {
        match self {
            Self::Private(bytes) => bytes.as_chunks().0.get(index).map(|word| u64::from_le_bytes(*word)),
            Self::Shared { bytes, .. } => bytes.word(index),
        }
    }

    /// A copy.
    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }

    /// True if everything that was read of it until now was what its sender wrote. Ask after reading.
    #[inline]
    pub(super) fn is_intact(&self) -> bool {
        match self {
            Self::Private(_) => true,
            Self::Shared { guard, .. } => guard.is_intact(),
        }
    }
}
