//! Fragments of any bytes are refused or put together, within the bounds that were set.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_proto::Nanos;
use punctual_proto::fragment::{Assembler, HEAD_SIZE, Head};

/// Largest message, and memory for all of them, bytes.
const MESSAGE_SIZE_MAX: usize = 1 << 14;
const MEMORY: usize = 4 * MESSAGE_SIZE_MAX;

// An operation: origin, milliseconds since the one before, size of the bytes in units of 16, and the head.
fuzz_target!(|bytes: &[u8]| {
    let mut assembler = Assembler::new(MESSAGE_SIZE_MAX);
    let mut now = Nanos(0);
    for operation in bytes.chunks_exact(4 + HEAD_SIZE) {
        let (first, head) = operation.split_first_chunk::<4>().expect("there are as many");
        let &[origin, pause, size, fill] = first;
        now = now.plus(Nanos::from_millis(u32::from(pause)));
        if pause == u8::MAX {
            assembler.handle_timeout(now);
        }
        let Some(head) = Head::read(head.try_into().expect("the rest"), usize::from(size) * 16) else {
            continue;
        };
        let free = MEMORY - assembler.held();
        if let Ok(place) = assembler.place(origin, &head, now, free) {
            assembler.room(place, &head).fill(fill);
            if assembler.fill(place, &head, now) {
                assert_eq!(assembler.take(place).len(), head.message_size as usize);
            }
        }
        assert!(assembler.held() <= MEMORY);
    }
    assembler.handle_end();
    assert_eq!(assembler.held(), 0);
});
