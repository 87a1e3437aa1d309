//! A receiver's report on a message in the making, when the message's sender asks.

use alloc::boxed::Box;

use super::{HEAD_SIZE, Head};
use crate::limits::{FRAGMENT_SIZE_MIN, FRAGMENT_WINDOW};

/// Words of a window's bits.
pub(super) const WINDOW_WORDS: usize = FRAGMENT_WINDOW / 64;

/// Size of a receipt before its bits, bytes.
const RECEIPT_HEAD_SIZE: usize = 24;

/// Largest receipt, bytes.
pub const RECEIPT_SIZE_MAX: usize = RECEIPT_HEAD_SIZE + 8 * WINDOW_WORDS;
const _: () =
    assert!(RECEIPT_SIZE_MAX <= HEAD_SIZE + FRAGMENT_SIZE_MIN, "it goes in every frame that a fragment does");

/// State of a message, as far as its receiver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing of it has come, or it was forgotten.
    Unknown,
    /// Fragments are missing.
    Partial,
    /// It was delivered, or waits to be.
    Whole,
    /// It was given up, and is counted as lost.
    Lost,
    /// The receiver takes no messages of its size.
    Refused,
}

impl State {
    const fn code(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Partial => 1,
            Self::Whole => 2,
            Self::Lost => 3,
            Self::Refused => 4,
        }
    }

    const fn of(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Unknown),
            1 => Some(Self::Partial),
            2 => Some(Self::Whole),
            3 => Some(Self::Lost),
            4 => Some(Self::Refused),
            _ => None,
        }
    }
}

/// Progress of a message at its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its state.
    pub state: State,
    /// All fragments before this one have come.
    pub base: u32,
    /// A bit for each of those from there on that has come too.
    pub present: Box<[u64; WINDOW_WORDS]>,
}

impl Progress {
    /// Of a message of which nothing need be said but this.
    pub fn of(state: State) -> Self {
        Self { state, base: 0, present: Box::new([0; WINDOW_WORDS]) }
    }

    /// True if the fragment that is `behind` fragments after the base has come.
    pub(super) fn has(&self, behind: usize) -> bool {
        self.present.get(behind / 64).is_some_and(|word| word >> (behind % 64) & 1 == 1)
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Number of the message.
    pub number: u32,
    /// Number of the question that is answered: all fragments that were sent before it have come, or are lost or late. 0 = none was
    /// asked: the message is whole.
    pub question: u32,
    /// Bytes that the receiver has room for before it has read them. Of a refused message: the largest that it takes.
    pub room: u32,
    /// Progress of the message.
    pub progress: Progress,
}

impl Receipt {
    /// Of a message that is whole, before its sender asks.
    pub fn of_whole(number: u32) -> Self {
        Self { number, question: 0, room: 0, progress: Progress::of(State::Whole) }
    }

    /// Writes it; returns its size, bytes.
    pub fn write(&self, buffer: &mut [u8; RECEIPT_SIZE_MAX]) -> usize {
        let Progress { state, base, present } = &self.progress;
        let words = present.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let fields = [self.number, 0, self.question, state.code(), self.room, *base];
        for (part, field) in buffer.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
            *part = field.to_le_bytes();
        }
        for (part, word) in
            buffer[RECEIPT_HEAD_SIZE..].as_chunks_mut::<8>().0.iter_mut().zip(present.iter().take(words))
        {
            *part = word.to_le_bytes();
        }
        RECEIPT_HEAD_SIZE + 8 * words
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (head, bits) = bytes.split_first_chunk::<RECEIPT_HEAD_SIZE>()?;
        let mut fields = [0; RECEIPT_HEAD_SIZE / 4];
        for (field, part) in fields.iter_mut().zip(head.as_chunks::<4>().0) {
            *field = u32::from_le_bytes(*part);
        }
        let [number, _, question, state, room, base] = fields;
        let (words, rest) = bits.as_chunks::<8>();
        if !rest.is_empty() || words.len() > WINDOW_WORDS {
            return None;
        }
        let mut progress = Progress { base, ..Progress::of(State::of(state)?) };
        for (word, part) in progress.present.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*part);
        }
        Some(Self { number, question, room, progress })
    }
}

/// Asks what has come of a message: all of its fragments that were sent so far stand before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The message: the head of its first fragment.
    pub message: Head,
    /// Number of the question about it, from 1.
    pub number: u32,
}

impl Question {
    /// As it stands in a frame: a head without bytes behind it, whose third field is the question's number.
    pub fn to_bytes(&self) -> [u8; HEAD_SIZE] {
        Head { at: self.number, ..self.message }.to_bytes()
    }
}

/// Content of a frame of the fragment kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A part of a message.
    Fragment(Head, &'a [u8]),
    /// Its sender wants to know what has come.
    Question(Question),
    /// The receiver's answer.
    Receipt(Receipt),
}

impl<'a> Part<'a> {
    /// Reads a frame's payload. None if nobody writes such a one.
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let (head, bytes) = payload.split_first_chunk::<HEAD_SIZE>()?;
        let fields = Head::fields(head);
        if fields.message_size == 0 && !fields.is_repaired {
            return Receipt::read(payload).map(Self::Receipt);
        }
        if bytes.is_empty() {
            let message = Head { at: 0, ..fields };
            return message.can_be().then_some(Self::Question(Question { message, number: fields.at }));
        }
        Head::read(head, bytes.len()).map(|head| Self::Fragment(head, bytes))
    }
}
