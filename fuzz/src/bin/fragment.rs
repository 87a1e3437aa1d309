//! Fragments of any bytes are refused or put together, within the bounds that were set. The same holds for questions and for answers to
//! them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_proto::Nanos;
use punctual_proto::fragment::{Assembler, Courier, Cut, HEAD_SIZE, Part, RECEIPT_SIZE_MAX, Receipt, Say};

/// Largest message, and memory for all of them, bytes.
const MESSAGE_SIZE_MAX: usize = 1 << 14;
const MEMORY: usize = 4 * MESSAGE_SIZE_MAX;

/// Frames of the sender's, which asks for as much as it will.
const FRAME_SIZE: usize = 300;
const SAID_MAX: usize = 4 * MESSAGE_SIZE_MAX / FRAME_SIZE;

/// Takes a frame's payload as a receiver does.
fn take(assembler: &mut Assembler<u8>, origin: u8, payload: &[u8], now: Nanos) -> Option<Receipt> {
    match Part::read(payload)? {
        Part::Fragment(head, bytes) => {
            let free = MEMORY - assembler.held();
            if let Ok(place) = assembler.place(origin, &head, now, free) {
                assembler.room(place, &head).copy_from_slice(bytes);
                if assembler.fill(place, &head, now) {
                    assert_eq!(assembler.take(place).len(), head.message_size as usize);
                }
            }
            None
        }
        Part::Question(question) => {
            let progress = assembler.answer(origin, &question.message, now);
            Some(Receipt {
                number: question.message.number,
                question: question.number,
                room: 1 << 12,
                progress,
            })
        }
        Part::Receipt(receipt) => Some(receipt),
    }
}

// An operation: origin, milliseconds since the one before, how many words of eight bytes the payload has, and these. The same payloads
// are shown to a receiver of any message and, if they are or bring receipts, to the sender of one.
fuzz_target!(|bytes: &[u8]| {
    let mut assembler = Assembler::new(MESSAGE_SIZE_MAX);
    let mut now = Nanos(0);
    let cut = Cut::new(0, MESSAGE_SIZE_MAX, FRAME_SIZE).expect("it can be cut");
    let mut courier = Courier::new(cut, Nanos::from_millis(500), now);
    let mut rest = bytes;
    while let Some((&[origin, pause, words], behind)) = rest.split_first_chunk::<3>() {
        let (payload, behind) = behind.split_at(behind.len().min(8 * usize::from(words)));
        rest = behind;
        now = now.plus(Nanos::from_millis(u32::from(pause)));
        if pause == u8::MAX {
            assembler.handle_timeout(now);
        }
        if let Some(receipt) = take(&mut assembler, origin, payload, now) {
            let mut written = [0; RECEIPT_SIZE_MAX];
            let size = receipt.write(&mut written);
            assert_eq!(Part::read(&written[..size]), Some(Part::Receipt(receipt.clone())));
            courier.handle_receipt(&receipt, now);
        }
        courier.handle_timeout(now);
        let mut said = 0;
        while let Some(say) = courier.poll_transmit(now) {
            said += 1;
            assert!(said < SAID_MAX, "it never ends");
            if let Say::Fragment(head) = say {
                assert!(head.range().end <= MESSAGE_SIZE_MAX && head.range().len() <= FRAME_SIZE - HEAD_SIZE);
            }
        }
        assert!(assembler.held() <= MEMORY);
    }
    assembler.handle_end();
    assert_eq!(assembler.held(), 0);
});
