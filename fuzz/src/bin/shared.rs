//! A hostile peer in shared memory: its header, tables, control words, ring and doorbell, beside a whole node.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| punctual::fuzzing::peer_in_shared_memory(bytes));
