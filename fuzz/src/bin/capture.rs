//! Any bytes as a pcapng file: refused, or read block by block as `punctual replay` does, and what was read writes back to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_proto::Frame;
use punctual_proto::pcapng::{
    Block, Direction, Packet, block_size, read_block, write_packet, write_start, write_statistics,
};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Some(head) = rest.first_chunk() {
        let Ok(size) = block_size(head) else { return };
        let Some((block, behind)) = rest.split_at_checked(size) else { return };
        rest = behind;
        match read_block(block) {
            Ok(block) => check(&block),
            Err(_) => return,
        }
    }
});

/// Written again and read again it is the same.
fn check(block: &Block<'_>) {
    let mut out = Vec::new();
    match block {
        Block::Packet(packet) => {
            let _any = Frame::parse(packet.frame);
            check_packet(packet);
            return;
        }
        // Comments are written up to a size.
        Block::Section { comment } => write_start(&mut out, 0, *comment),
        Block::Statistics(statistics) => write_statistics(&mut out, statistics),
        Block::Interface | Block::Other => return,
    }
    let size = block_size(out.first_chunk().expect("a head")).expect("written here");
    assert_eq!(read_block(&out[..size]).as_ref(), Ok(block));
}

fn check_packet(packet: &Packet<'_>) {
    let mut out = Vec::new();
    write_packet(&mut out, packet, &[packet.frame], 0);
    let Ok(Block::Packet(again)) = read_block(&out) else { panic!("a packet was written") };
    assert_eq!(again, Packet { size: packet.frame.len(), ..*packet });
    assert!(matches!(packet.direction, None | Some(Direction::In | Direction::Out)));
}
