//! Raw Ethernet frames from an attacker: padded, cut short, from any station.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| punctual::fuzzing::ethernet_frames(bytes));
