//! Datagrams from an attacker: the whole way from the medium to the application.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| punctual::fuzzing::datagrams(bytes));
