//! The header says what the library is: every function with its types, every struct with its layout, every number, in C and in C++.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

use common::{C, CXX, crate_file, ended, folder, library};
use punctual_c::*;

const HEADER: &str = include_str!("../include/punctual.h");

/// All of the package's sources.
fn sources() -> String {
    let files = std::fs::read_dir(crate_file("src")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// A function of the library as C has it.
struct Function {
    name: String,
    declaration: String,
}

/// A Rust type in C's words.
fn in_c(rust: &str) -> String {
    if let Some(inner) = rust.strip_prefix("*const ") {
        return format!("{} const *", in_c(inner));
    }
    if let Some(inner) = rust.strip_prefix("*mut ") {
        return format!("{} *", in_c(inner));
    }
    let known = [
        ("c_char", "char"),
        ("c_void", "void"),
        ("c_int", "int"),
        ("u32", "uint32_t"),
        ("u64", "uint64_t"),
        ("usize", "size_t"),
    ];
    let word = known.iter().find(|(of_rust, _)| *of_rust == rust).map(|(_, of_c)| *of_c);
    assert!(word.is_some() || rust.starts_with("punctual_"), "{rust}: in C?");
    word.unwrap_or(rust).to_owned()
}

/// Every function that the sources export.
fn functions() -> Vec<Function> {
    let sources = sources();
    let exported = sources.split("#[unsafe(no_mangle)]\npub ").skip(1);
    exported
        .map(|text| {
            let text = text.split_once("extern \"C\" fn ").unwrap().1;
            let (name, rest) = text.split_once('(').unwrap();
            let (parameters, rest) = rest.split_once(") -> ").unwrap();
            let result = rest.split_once(" {").unwrap().0;
            let types = parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty());
            let types: Vec<String> =
                types.map(|parameter| in_c(parameter.split_once(": ").unwrap().1)).collect();
            let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
            Function { name: name.to_owned(), declaration: format!("{} {name}({types});", in_c(result)) }
        })
        .collect()
}

/// Names that the header declares as functions.
fn declared() -> BTreeSet<String> {
    let text: String =
        HEADER.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let opened = text.match_indices('(').map(|(at, _)| &text[..at]);
    let names =
        opened.filter_map(|before| before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next());
    names.filter(|name| name.starts_with("punctual_")).map(str::to_owned).collect()
}

macro_rules! layout {
    ($text:ident, $type:ident, $($field:ident),*) => {
        writeln!($text, "_Static_assert(sizeof({0}) == {1} && _Alignof({0}) == {2}, \"{0}\");",
            stringify!($type), size_of::<$type>(), align_of::<$type>()).unwrap();
        let mut fields = 0;
        $(
            writeln!($text, "_Static_assert(offsetof({0}, {1}) == {2} && sizeof((({0} *)0)->{1}) == {3}, \"{1}\");",
                stringify!($type), stringify!($field), offset_of!($type, $field), size_of_field(|of: &$type| &raw const of.$field)).unwrap();
            fields += 1;
        )*
        assert_eq!(fields, fields_of(stringify!($type)), "{}: fields of the header", stringify!($type));
    };
}

fn size_of_field<S, F>(_: impl Fn(&S) -> *const F) -> usize {
    size_of::<F>()
}

/// Number of fields of a struct of the header.
fn fields_of(name: &str) -> usize {
    let body = HEADER
        .split(&format!("typedef struct {name} {{"))
        .nth(1)
        .unwrap()
        .split(&format!("}} {name};"))
        .next();
    body.unwrap().lines().filter(|line| line.split("/*").next().unwrap().trim_end().ends_with(';')).count()
}

/// Those of publishers and subscribers of values.
fn interest_layouts(text: &mut String) {
    layout!(text, punctual_publisher, value);
    layout!(text, punctual_subscriber, value);
    layout!(text, punctual_topic, struct_size, name, unit, number, format, count, reserved);
    layout!(text, punctual_interest_options, struct_size, wake, stamps, reach, reserved);
    layout!(text, punctual_due, offset_us, due_ns, at_once, reserved);
    layout!(text, punctual_response, source, offset_us, missed_before, late_ns, size, at_once, reserved);
    layout!(
        text,
        punctual_published,
        interests,
        accepted,
        renewed,
        withdrawn,
        expired,
        refused,
        unanswered,
        sent,
        full,
        unreachable,
        unsendable,
        foreign
    );
    layout!(
        text,
        punctual_subscribed,
        taken,
        for_others,
        stale,
        missed,
        too_many_publishers,
        displaced,
        refused,
        announced,
        sent,
        full,
        unreachable,
        unsendable,
        foreign
    );
}

/// Assertions about every number that is no code, for a C compiler.
fn numbers() -> String {
    let enums = HEADER.split("\nenum punctual_").skip(1).filter(|text| !text.starts_with("error_code"));
    let of_enums: usize = enums
        .map(|text| text.split('}').next().unwrap().lines().filter(|line| line.contains(" = ")).count())
        .sum();
    let macros = ["PUNCTUAL_FOREVER", "PUNCTUAL_EVERY_NODE", "PUNCTUAL_EVERY_PORT"];
    assert_eq!(NUMBERS.len(), of_enums + macros.len(), "numbers of the header");
    NUMBERS
        .iter()
        .map(|(name, value)| format!("_Static_assert({name} == {value}ULL, \"{name}\");\n"))
        .collect()
}

/// Assertions about every struct, for a C compiler.
fn layouts() -> String {
    let mut text = String::new();
    layout!(text, punctual_bus, value);
    layout!(text, punctual_node, value);
    layout!(text, punctual_communicator, value);
    layout!(text, punctual_publication, value);
    layout!(text, punctual_subscription, value);
    interest_layouts(&mut text);
    layout!(text, punctual_address, node, port, reserved);
    layout!(
        text,
        punctual_message,
        source,
        target,
        sequence,
        lost_before,
        latency_ns,
        kernel_ns,
        size,
        sealed_in,
        is_sealed
    );
    layout!(text, punctual_node_options, struct_size, id, capture, message_size_max);
    layout!(text, punctual_communicator_options, struct_size, wake, stamps, inbox_size);
    layout!(text, punctual_publication_options, struct_size, ring_size, when_full, source, stamps, reserved);
    layout!(text, punctual_peer, node, arrived, lost, missing, incarnation, present);
    layout!(
        text,
        punctual_ledger,
        sent,
        arrived,
        copies,
        delivered,
        waiting,
        no_such_port,
        inbox_full,
        unread,
        lost_overrun,
        lost_buffer_full,
        lost_bad_frame,
        lost_medium,
        lost_peer_died,
        duplicates,
        bad_frames,
        buffer_drops,
        overruns,
        corrupt_peers,
        send_full,
        refused,
        missed_wakeups,
        joined,
        left,
        died,
        seal_missing,
        seal_unexpected,
        seal_unknown_key,
        seal_bad_tag,
        seal_replayed,
        seal_stale,
        lost_refused,
        restarts,
        large_sent,
        large_delivered,
        large_lost,
        fragments_refused,
        copies_refused
    );
    let structs = HEADER.matches("typedef struct ").count();
    assert_eq!(text.matches("_Alignof").count(), structs, "structs of the header");
    text
}

/// Goal: header and library agree. Method: a C compiler is shown both, the library's functions as its sources declare them.
#[test]
fn the_header_is_the_librarys() {
    let functions = functions();
    let exported: BTreeSet<String> = functions.iter().map(|function| function.name.clone()).collect();
    assert!(exported.len() > 30, "{exported:?}");
    assert_eq!(exported, declared());
    if !C.is_here() {
        return;
    }
    let declarations: String = functions.iter().map(|function| function.declaration.clone() + "\n").collect();
    let text = format!(
        "#include <punctual.h>\n{declarations}{}{}\nint main(void) {{ return punctual_version()[0] == 0; }}\n",
        layouts(),
        numbers()
    );
    let place = folder();
    let source = place.path().join("declared.c");
    std::fs::write(&source, text).unwrap();
    ended(&mut Command::new(C.build(place.path(), &source)));
}

/// Goal: a test of this file can fail. Method: a function of another type, and a struct of another layout.
#[test]
fn a_differing_declaration_is_noticed() {
    if !C.is_here() {
        return;
    }
    for wrong in [
        "punctual_error punctual_bus_close(uint64_t);",
        "_Static_assert(sizeof(punctual_message) == 72, \"of another version\");",
    ] {
        let place = folder();
        let source = place.path().join("wrong.c");
        std::fs::write(&source, format!("#include <punctual.h>\n{wrong}\n")).unwrap();
        let compiled = Command::new(C.program)
            .arg("-I")
            .arg(crate_file("include"))
            .args(["-fsyntax-only"])
            .arg(&source)
            .output();
        assert!(!compiled.unwrap().status.success(), "{wrong}");
    }
}

/// Goal: the shared library exports what the header declares, and nothing else of ours.
#[test]
fn the_library_exports_what_is_declared() {
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library("libpunctual_c.so")).output();
    let Ok(listed) = listed else {
        punctual_machine::skipped!("no nm here (apt-get install binutils)");
        return;
    };
    let text = String::from_utf8(listed.stdout).unwrap();
    let names =
        text.lines().filter_map(|line| line.split(' ').nth(2)).map(|name| name.split('@').next().unwrap());
    let names: BTreeSet<String> =
        names.filter(|name| !name.starts_with("rust_eh_personality")).map(str::to_owned).collect();
    assert_eq!(names, declared());
}

/// Goal: the examples compile as C and as C++, and link with either library.
#[test]
fn examples_compile_in_both_languages() {
    for compiler in [C, CXX] {
        for compiler in [compiler, compiler.linked_statically()] {
            if compiler.is_here() {
                let place = folder();
                for example in ["ping", "pong"] {
                    compiler.build(place.path(), &crate_file(&format!("examples/{example}.c")));
                }
            }
        }
    }
}

/// Goal: the page's examples say what they should, in both languages.
#[test]
fn the_pages_examples_run() {
    const PAGE: &str = include_str!("../../../docs/c.md");
    let blocks = PAGE.split("```c\n").skip(1).filter_map(|block| block.split("```").next());
    let ours: Vec<&str> = blocks.filter(|block| block.contains("<punctual.h>")).collect();
    let [hello, values] = ours[..] else { panic!("{} examples", ours.len()) };
    for compiler in [C, CXX] {
        for (example, says) in [(hello, "hello from port 1\n"), (values, "13.9 from port 1\n")] {
            if compiler.is_here() {
                let place = folder();
                let source = place.path().join("example.c");
                std::fs::write(&source, example).unwrap();
                assert_eq!(ended(&mut Command::new(compiler.build(place.path(), &source))), says);
            }
        }
    }
}
