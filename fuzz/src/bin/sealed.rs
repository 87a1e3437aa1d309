//! A sealed bus against an attacker that alters, repeats and makes up frames: nothing is delivered that was not sealed, and nothing
//! twice.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| punctual::fuzzing::sealed(bytes));
