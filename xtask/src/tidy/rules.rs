//! Rules for every Rust source, of any crate.

use std::path::Path;

use super::Findings;
use super::source::{Source, find, is_word};

/// Lines of a file that are not tests. A longer one is about two things.
const PRODUCT_LINES_MAX: usize = 500;

/// Words that must not occur in code, and why.
const BANNED: &[(&str, &str)] = &[
    ("todo!", "unfinished: finish it, or leave it out"),
    ("unimplemented!", "unfinished: finish it, or leave it out"),
    ("dbg!", "left over from debugging"),
    ("#[ignore", "a test that does not run proves nothing: skip at run time and say why"),
    ("#[allow(", "use #[expect(…, reason = …)]: it tells when it is no longer needed"),
    ("#![allow(", "use #![expect(…, reason = …)]: it tells when it is no longer needed"),
];

/// Words that must not occur in comments.
const BANNED_IN_COMMENTS: &[&str] = &["TODO", "FIXME", "XXX"];

/// Words in type names that say nothing about what the type is.
const EMPTY_NAMES: &[&str] = &["Manager", "Helper", "Utils"];

/// Crates whose users own the terminal.
const LIBRARIES: &[&str] = &[
    "crates/punctual-proto/src",
    "crates/punctual-machine/src",
    "crates/punctual-lab-machine/src",
    "crates/punctual/src",
    "crates/punctual-c/src",
];

/// Places where unsafe code may stand: the needs of the library, the needs of measuring alone, and memory of foreign programs.
const UNSAFE: &[&str] = &[
    "crates/punctual-machine",
    "crates/punctual-lab-machine",
    "crates/punctual-c",
    "bindings/python/src/buffer.rs",
];

/// Files of the library that read the wall clock, which people set: for dates in captures, for the kernel's own stamps, whose
/// age is given up when it was set, and for seals, which two hosts compare.
const WALL_CLOCK: &[&str] = &[
    "crates/punctual/src/engine/tap.rs",
    "crates/punctual/src/late/line.rs",
    "crates/punctual/src/seal/mod.rs",
    "crates/punctual/src/seal/node.rs",
    "crates/punctual/src/time/kernel_time.rs",
];

/// Where atomics are.
const MACHINE: &str = "crates/punctual-machine/src";

/// Where the model checker sees no threads: it is what an ordering is made of, or the other side is the kernel, the processor
/// or a signal handler.
const UNCHECKED: &[&str] = &["sync.rs", "mutant.rs", "packet", "bare_futex.rs", "truncation.rs"];

/// Orderings of accesses that order others, however they are imported.
const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

/// Where they stand beside their name.
const NAMED: &[&str] = &["ordering!(", "fence!("];

pub(super) fn check(source: &Source<'_>, findings: &mut Findings<'_>) {
    check_first_line(source, findings);
    check_size(source, findings);
    check_words(source, findings);
    check_expectations(source, findings);
    check_names(source, findings);
    check_output(source, findings);
    check_skips(source, findings);
    check_doorways(source, findings);
    check_orderings(source, findings);
    check_wall_clock(source, findings);
}

fn check_first_line(source: &Source<'_>, findings: &mut Findings<'_>) {
    if !source.text.starts_with("//") {
        findings.add(1, "the first line says what the file is: `//! …`");
    }
}

fn check_size(source: &Source<'_>, findings: &mut Findings<'_>) {
    let lines = source.product_lines();
    if lines > PRODUCT_LINES_MAX {
        findings.add(
            1,
            format!("{lines} lines without tests, where {PRODUCT_LINES_MAX} are the limit: split it"),
        );
    }
}

fn check_words(source: &Source<'_>, findings: &mut Findings<'_>) {
    for (word, reason) in BANNED {
        for line in source.lines_with(word) {
            findings.add(line, format!("`{word}`: {reason}"));
        }
    }
    for word in BANNED_IN_COMMENTS {
        for at in find(&source.comments, word) {
            findings.add(source.line(at), format!("{word} in a comment: do it, or open an issue"));
        }
    }
}

fn check_expectations(source: &Source<'_>, findings: &mut Findings<'_>) {
    for opening in ["#[expect(", "#![expect("] {
        for at in find(&source.code, opening) {
            let inside = source.inside(at + opening.len() - 1);
            if find(inside, "reason").next().is_none() {
                findings.add(source.line(at), "#[expect] without a reason");
            }
        }
    }
}

fn check_names(source: &Source<'_>, findings: &mut Findings<'_>) {
    for keyword in ["struct ", "enum ", "trait ", "type ", "union "] {
        for at in find(&source.code, keyword) {
            let rest = &source.code[at + keyword.len()..];
            let name = &rest[..rest.find(|character| !is_word(character)).unwrap_or(rest.len())];
            if let Some(empty) = EMPTY_NAMES.iter().find(|empty| name.contains(*empty)) {
                findings.add(source.line(at), format!("{name}: `{empty}` names nothing: what is it?"));
            }
        }
    }
}

fn check_output(source: &Source<'_>, findings: &mut Findings<'_>) {
    if !LIBRARIES.iter().any(|library| source.path.starts_with(library)) {
        return;
    }
    for word in ["println!", "print!", "eprintln!", "eprint!"] {
        for line in source.lines_with(word).into_iter().filter(|&line| !source.is_test(line)) {
            findings.add(line, format!("`{word}` in a library: return it, its user owns the terminal"));
        }
    }
}

/// The harness keeps the output of a test to itself where the test passes, as a test does that skips.
fn check_skips(source: &Source<'_>, findings: &mut Findings<'_>) {
    for printing in ["println!(", "eprintln!("] {
        for at in find(&source.code, printing) {
            let (line, printed) = (source.line(at), source.text[at + printing.len()..].trim_start());
            if source.is_test(line) && printed.starts_with("\"SKIPPED") {
                findings.add(line, "nobody sees why it is skipped: `punctual_machine::skipped!`");
            }
        }
    }
}

fn check_wall_clock(source: &Source<'_>, findings: &mut Findings<'_>) {
    let is_library = source.path.starts_with("crates/punctual/src");
    if !is_library || WALL_CLOCK.iter().any(|known| source.path == Path::new(known)) {
        return;
    }
    for word in ["realtime_ns", "realtime_coarse_ns", "SystemTime"] {
        for line in source.lines_with(word).into_iter().filter(|&line| !source.is_test(line)) {
            findings.add(line, format!("`{word}`: people set that clock; decide by `Clock`"));
        }
    }
}

/// Unsafe code and atomics each have one place.
fn check_doorways(source: &Source<'_>, findings: &mut Findings<'_>) {
    if !UNSAFE.iter().any(|folder| source.path.starts_with(folder)) {
        for line in source.lines_with("unsafe") {
            findings
                .add(line, "unsafe code outside of punctual-machine, punctual-lab-machine, punctual-c and the bindings' buffer.rs");
        }
    }
    if source.path == Path::new("crates/punctual-machine/src/sync.rs") {
        return;
    }
    for word in ["sync::atomic", "atomic::"] {
        for line in source.lines_with(word) {
            let is_known =
                findings.found.iter().any(|known| known.line == line && known.reason.contains("atomics"));
            if !is_known {
                findings
                    .add(line, "atomics enter through punctual_machine::sync only, so that loom sees them");
            }
        }
    }
}

/// Orderings and fences have names, by which the model checker takes them away.
fn check_orderings(source: &Source<'_>, findings: &mut Findings<'_>) {
    let Ok(path) = source.path.strip_prefix(MACHINE) else { return };
    if UNCHECKED.iter().any(|unchecked| path.starts_with(unchecked)) {
        return;
    }
    let opened = NAMED.iter().flat_map(|call| find(&source.code, call).map(move |at| at + call.len()));
    let named: Vec<_> = opened.map(|from| from..from + source.inside(from - 1).len()).collect();
    for word in ORDERINGS {
        for at in find(&source.code, word).filter(|at| !named.iter().any(|named| named.contains(at))) {
            let line = source.line(at);
            if !source.is_test(line) {
                findings.add(line, format!("`{word}` without a name: does a test need it? See mutant.rs"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines and reasons found in a source at this path.
    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let path = Path::new(path);
        let mut findings = Findings::of(path);
        check(&Source::of(path, text), &mut findings);
        findings.found.into_iter().map(|violation| (violation.line, violation.reason)).collect()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        found(path, text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn a_clean_file_passes() {
        let text = "//! What it is.\n#![forbid(unsafe_code)]\n// unsafe, sync::atomic, todo!\nfn a() {}\n";
        assert_eq!(found("crates/punctual/src/a.rs", text), []);
    }

    #[test]
    fn the_wall_clock_is_read_where_that_is_known() {
        let text = "//! What it is.\nfn a() -> u64 { realtime_ns() }\n#[cfg(test)]\nmod tests { use std::time::SystemTime; }\n";
        assert_eq!(lines("crates/punctual/src/group.rs", text), [2]);
        assert_eq!(lines("crates/punctual/src/seal/node.rs", text), [0; 0]);
        assert_eq!(lines("crates/punctual-lab/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn the_first_line_is_a_comment() {
        assert_eq!(lines("a.rs", "use std::fmt;\n"), [1]);
        assert_eq!(lines("a.rs", "// What it is.\n"), [0; 0]);
    }

    #[test]
    fn long_files_are_split() {
        let long = format!("//! A.\n{}", "fn a() {}\n".repeat(PRODUCT_LINES_MAX));
        assert_eq!(lines("a.rs", &long), [1]);
        assert_eq!(lines("tests/a.rs", &long), [0; 0]);
    }

    #[test]
    fn left_overs_are_found() {
        let text =
            "//! A.\nfn a() { todo!() }\nfn b() { dbg!(1); }\n#[ignore = \"slow\"]\n// FIXME: c\n\"todo!\"\n";
        assert_eq!(lines("a.rs", text), [2, 3, 4, 5]);
        assert_eq!(lines("a.rs", "//! A.\n#[allow(dead_code)]\n#![allow(x)]\n"), [2, 3]);
    }

    #[test]
    fn an_expectation_has_a_reason() {
        let with = "//! A.\n#[expect(\n    dead_code,\n    reason = \"x)\"\n)]\n";
        assert_eq!(lines("a.rs", with), [0; 0]);
        assert_eq!(lines("a.rs", "//! A.\n#[expect(dead_code)]\n"), [2]);
    }

    #[test]
    fn names_say_something() {
        assert_eq!(lines("a.rs", "//! A.\npub struct RingManager<T>(T);\nenum Help {}\n"), [2]);
        assert_eq!(lines("a.rs", "//! A.\nlet manager = Manager;\n"), [0; 0]);
    }

    #[test]
    fn libraries_do_not_print() {
        let text =
            "//! A.\nfn a() { println!() }\n#[cfg(test)]\nmod tests {\n    fn b() { eprintln!() }\n}\n";
        assert_eq!(lines("crates/punctual/src/a.rs", text), [2]);
        assert_eq!(lines("crates/punctual-lab/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn reasons_of_skips_are_seen() {
        let text = "//! A.\nfn a() { eprintln!(\"SKIPPED: b\") }\nfn b() { eprintln!(\n    \"SKIPPED {c}\") }\nfn d() { skipped!(\"SKIPPED\") }\n";
        assert_eq!(lines("crates/a/tests/a.rs", text), [2, 3]);
        assert_eq!(lines("peers/src/a.rs", text), [0; 0], "a program's own words are seen");
    }

    #[test]
    fn orderings_have_names() {
        let text = "//! A.\nword.load(Ordering::Acquire);\nfence(Ordering::SeqCst);\nword.load(Ordering::Relaxed);\n\
                    word.load(ordering!(\"a\", Acquire));\nfence!(\"b\", SeqCst);\n\
                    #[cfg(test)]\nmod tests {\n    fn a() { word.load(Ordering::Acquire) }\n}\n";
        assert_eq!(lines("crates/punctual-machine/src/ring/reader.rs", text), [2, 3]);
        assert_eq!(lines("crates/punctual-machine/src/packet/rings.rs", text), [0; 0]);
        assert_eq!(lines("crates/punctual-machine/src/ring/tests.rs", text), [0; 0]);
        let bare = "//! A.\nuse crate::sync::Ordering::{self, Acquire};\nword.load(Acquire);\nword.store(ordering!(\n    \"a\",\n    Release\n));\nReleased;\n";
        assert_eq!(lines("crates/punctual-machine/src/ring/reader.rs", bare), [2, 3]);
    }

    #[test]
    fn unsafe_code_and_atomics_have_one_place() {
        let text = "//! A.\nunsafe { a() }\nuse std::sync::atomic::AtomicBool;\nuse std::sync::{Arc, atomic::fence};\n";
        assert_eq!(lines("crates/punctual/src/a.rs", text), [2, 3, 4]);
        assert_eq!(lines("crates/punctual-machine/src/a.rs", text), [3, 4]);
        assert_eq!(lines("crates/punctual-c/src/a.rs", text), [3, 4]);
        assert_eq!(lines("bindings/python/src/buffer.rs", text), [3, 4]);
        assert_eq!(lines("bindings/python/src/a.rs", text), [2, 3, 4]);
        assert_eq!(lines("crates/punctual-machine/src/sync.rs", text), [0; 0]);
    }
}
