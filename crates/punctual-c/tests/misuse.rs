//! Wrong use from C and C++ is an error and never undefined behaviour: `misuse.c`, plain and under the address sanitizer.

mod common;

use std::process::Command;

use common::{C, CXX, crate_file, ended, folder, watchdog};

/// Goal: whatever a C program gets wrong that the library can see, it is told. Under the sanitizer no call touches a byte that
/// is not its own.
#[test]
fn wrong_use_is_an_error() {
    let _alive = watchdog(120);
    for compiler in [C, CXX, C.linked_statically(), C.sanitizing()] {
        if !compiler.is_here() {
            continue;
        }
        let place = folder();
        let program = compiler.build(place.path(), &crate_file("tests/misuse.c"));
        // What leaks at the end is the process's, and not every container lets a sanitizer look for it.
        let said = ended(Command::new(program).env("ASAN_OPTIONS", "detect_leaks=0:handle_abort=1"));
        assert_eq!(said, "refused\n");
    }
}

/// Goal: the sanitizer sees what the library does to memory of a C program. Method: a program that says that its buffer is
/// larger than it is.
#[test]
fn the_sanitizer_sees_the_library() {
    let _alive = watchdog(60);
    let compiler = C.sanitizing();
    if !compiler.is_here() {
        return;
    }
    let place = folder();
    let program = compiler.build(place.path(), &crate_file("tests/overflow.c"));
    let ended = Command::new(program).output().expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("heap-buffer-overflow"), "{}: {said}", ended.status);
}
