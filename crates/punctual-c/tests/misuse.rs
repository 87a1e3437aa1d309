//! Wrong use from C and C++ is an error and never undefined behaviour: `misuse.c`, plain and under the address sanitizer.

mod common;

use std::process::Command;

use common::{C, CXX, crate_file, ended, folder, free_ports, library, unique, watchdog};

/// Goal: a C program is told of every mistake that the library can see. Under the sanitizer no call touches a byte that is not its own.
#[test]
fn wrong_use_is_an_error() {
    let _alive = watchdog(120);
    for compiler in [C, CXX, C.linked_statically(), C.sanitizing()] {
        if !compiler.is_here() {
            continue;
        }
        let place = folder();
        let program = compiler.build(place.path(), &crate_file("tests/misuse.c"));
        // Leaks at the end are the process's, and not every container lets a sanitizer look for them.
        let said = ended(Command::new(program).env("ASAN_OPTIONS", "detect_leaks=0:handle_abort=1"));
        assert_eq!(said, "refused\n");
    }
}

/// Goal: a C program that asks for messages larger than a frame sends and receives them, over memory and UDP, within its buffers.
#[test]
fn large_messages_arrive_within_their_buffers() {
    let _alive = watchdog(120);
    for compiler in [C, C.sanitizing()] {
        if !compiler.is_here() {
            continue;
        }
        let place = folder();
        let program = compiler.build(place.path(), &crate_file("tests/large.c"));
        let ports = free_ports().map(|address| address.to_string());
        let said = ended(Command::new(program).args(ports).env("ASAN_OPTIONS", "detect_leaks=0"));
        assert_eq!(said, "whole\n");
    }
}

/// Goal: publishers and subscribers in C serve and are served, and tell what they are used wrongly for, within their buffers.
#[test]
fn interest_is_served_and_wrong_use_is_an_error() {
    let _alive = watchdog(120);
    for compiler in [C, CXX, C.linked_statically(), C.sanitizing()] {
        if !compiler.is_here() {
            continue;
        }
        let place = folder();
        let program = compiler.build(place.path(), &crate_file("tests/interest.c"));
        let said = ended(Command::new(program).env("ASAN_OPTIONS", "detect_leaks=0:handle_abort=1"));
        assert_eq!(said, "served\n");
    }
}

/// Goal: a program that unloads the library goes on, though a signal handler and the end of a thread still lead into it.
#[test]
fn a_program_unloads_the_library() {
    let _alive = watchdog(60);
    if !C.is_here() {
        return;
    }
    let place = folder();
    let program = place.path().join("unloaded");
    let compiled = Command::new(C.program)
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_file("include"))
        .arg(crate_file("tests/unloaded.c"))
        .arg("-o")
        .arg(&program)
        .args(["-pthread", "-ldl"])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = ended(Command::new(program).arg(library("libpunctual_c.so")).arg(unique("unloaded")));
    assert_eq!(said, "handed on\n");
}

/// Goal: the library reads and writes no byte of a program's that it should not, which copies by instruction hide from the
/// sanitizer. Method: the same program where every access is looked at, and one that lies about its buffer, which is found.
#[test]
fn every_access_is_allowed() {
    let _alive = watchdog(300);
    if !C.is_here() {
        return;
    }
    let place = folder();
    for (source, is_right) in [("misuse", true), ("interest", true), ("overflow", false)] {
        let program = C.build(place.path(), &crate_file(&format!("tests/{source}.c")));
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--error-exitcode=9", "--quiet", "--leak-check=no"]).arg(program);
        match valgrind.output() {
            Err(missing) => punctual_machine::skipped!("valgrind: {missing} (apt-get install valgrind)"),
            Ok(ended) => {
                let said = String::from_utf8_lossy(&ended.stderr);
                assert_eq!(ended.status.success(), is_right, "{source}: {said}");
                assert_eq!(said.contains("Invalid write"), !is_right, "{source}: {said}");
            }
        }
    }
}
