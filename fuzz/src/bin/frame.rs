//! Any bytes parse as a frame or are refused, and what parses writes back to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::seal::SEAL_SIZE;
use punctual_proto::stamps::STAMPS_SIZE;
use punctual_proto::{Frame, FrameError};

fuzz_target!(|bytes: &[u8]| {
    match Frame::parse(bytes) {
        Ok(frame) => check_parsed(bytes, &frame),
        Err(FrameError::Short { present, needed }) => {
            assert_eq!(present, bytes.len());
            assert!(needed > present, "{present} bytes are enough for {needed}");
        }
        Err(_) => {}
    }
});

fn check_parsed(bytes: &[u8], frame: &Frame<'_>) {
    let header = &frame.header;
    assert!(header.frame_size() <= bytes.len());
    assert_eq!(frame.payload, &bytes[header.prefix_size()..header.unsealed_size()]);
    let seal = header.sealed.then(|| &bytes[header.unsealed_size()..header.frame_size()]);
    assert_eq!(frame.seal.map(<[u8; SEAL_SIZE]>::as_slice), seal);

    let mut head = [0; HEADER_SIZE];
    header.write(&mut head);
    assert_eq!(head, bytes[..HEADER_SIZE]);

    assert_eq!(frame.stamps.is_some(), header.stamped);
    if let Some(stamps) = frame.stamps {
        let mut again = [0; STAMPS_SIZE];
        stamps.write(&mut again);
        assert_eq!(again, bytes[HEADER_SIZE..header.prefix_size()]);
    }

    let needed = header.frame_size();
    let short = FrameError::Short { present: needed - 1, needed };
    assert_eq!(Frame::parse(&bytes[..needed - 1]), Err(short));
    assert_eq!(Frame::parse(&bytes[..needed]).as_ref(), Ok(frame), "bytes behind a frame do not matter");
}
