//! A page of counters as `punctual stat` reads it: refused or read, never a character that moves a cursor.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| punctual::fuzzing::any_page(bytes));
