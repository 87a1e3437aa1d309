//! 64-bit ARM: cross-built with the distribution's compiler, tested under user-mode emulation.
//!
//! The emulator shows whether the code is right for the processor, not how fast it is, and it is no test of memory
//! ordering: the host's processor keeps the order that x86 keeps. `loom` tests that.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::command::{Run, how, tail};
use crate::step::Outcome;
use crate::workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where the distribution keeps the C library of programs for the target.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// One test program: proto's takes a minute under emulation.
const DEADLINE: Duration = Duration::from_secs(600);

/// The tests to run.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Packages with all of their test programs.
    whole: &'static [&'static str],
    /// Of `punctual`, besides its own tests, these programs alone.
    programs: &'static [&'static str],
    /// Tests that are left out.
    left_out: &'static [&'static str],
}

/// The tests that CI has time for.
pub(crate) const SHORT: &Wanted = &Wanted { whole: BELOW, programs: QUICK, left_out: SLOW };
/// The tests that a night has time for.
pub(crate) const LONG: &Wanted = &Wanted {
    whole: &["punctual-proto", "punctual-machine", "punctual-lab-machine", "punctual"],
    programs: &[],
    left_out: &[],
};

/// Of the library: programs of tests that need a feature are not built without it, and cargo says nothing.
const FEATURES: &str = "punctual/tokio,punctual/group-file";

/// Packages below the library.
const BELOW: &[&str] = &["punctual-proto", "punctual-machine", "punctual-lab-machine"];

/// Tests of seconds that take minutes under emulation, and in which nothing depends on the processor. They wait for the night.
const SLOW: &[&str] = &[
    "broadcast::explored::a_view_of_three_changes_in_every_order",
    "broadcast::explored::each_mistake_has_a_way_to_its_fault",
    "broadcast::tests::every_mistake_is_found",
    "broadcast::tests::groups_of_the_model_live",
    "sim::tests::broadcast_holds",
    "sim::tests::replica_holds",
];

/// Each takes five seconds to build and fewer to run: with the library's own tests, a minute of CI.
const QUICK: &[&str] = &["allocation", "engines", "hostile", "stages"];

/// Test programs of the library that wait for the night, and why.
const NIGHTLY: &[(&str, &[&str])] = &[
    (
        "as quick as those, but the minute is full",
        &[
            "memory_model",
            "following",
            "idle",
            "joining",
            "groups",
            "interest",
            "kills",
            "ledger",
            "mio",
            "monitor",
            "observe",
            "sealed_streams",
            "sealing",
            "surroundings",
            "time",
            "wakes",
        ],
    ),
    ("13 to 21 seconds each under emulation", &["gaps", "processes", "streams", "wiped"]),
    ("more than a minute under emulation", &["crowd"]),
    (
        "most of it is excepted below, or skips",
        &["containers", "echoes", "ethernet", "overtaking", "removed"],
    ),
    (
        "not timed under emulation yet",
        &[
            "awaiting",
            "broadcast",
            "broadcast_allocation",
            "calls",
            "damage",
            "large",
            "no_room",
            "nodes",
            "runtime",
            "runtime_awaited",
            "runtime_classes",
            "runtime_net",
            "runtime_tokio",
        ],
    ),
];

/// Media of the library's tests that the emulator lacks, for `PUNCTUAL_TEST_WITHOUT`: it knows neither `IP_MULTICAST_IF` nor
/// packet sockets' rings (`PACKET_VERSION`).
const WITHOUT: &str = "multicast,ethernet";

/// Tests that cannot pass here, and why.
struct Exception {
    reason: &'static str,
    /// Test program and test.
    tests: &'static [(&'static str, &'static str)],
}

/// Seen with QEMU 7.2. A test that passes again is reported, so that the list grows no older than it must.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        reason: "the kernel does not start what the emulator runs, so a test cannot start its own program again",
        tests: &[
            ("punctual_machine", "signal::tests::the_second_interrupt_ends_whichever_it_is"),
            ("punctual_machine", "signal::tests::a_hangup_that_is_ignored_stays_so"),
            ("punctual_machine", "signal::tests::a_continuation_that_another_takes_is_not_counted"),
        ],
    },
    Exception {
        reason: "the emulator does not pass on madvise(MADV_DONTFORK), so a child keeps its parent's lock and mappings",
        tests: &[
            ("punctual_machine", "life::tests::no_child_keeps_the_lock"),
            ("punctual_machine", "memory::tests::a_child_unmaps_nothing_of_its_parent"),
        ],
    },
    Exception {
        reason: "the emulator passes no filter of system calls on",
        tests: &[("punctual_machine", "epoll::tests::a_wait_that_a_filter_refuses_still_sleeps")],
    },
    Exception {
        reason: "the emulator does not know PACKET_VERSION, so packet sockets have no rings",
        tests: &[
            ("punctual_machine", "packet::tests::a_foreign_ethertype_never_arrives"),
            ("punctual_machine", "packet::tests::a_full_ring_counts_what_it_drops"),
            ("punctual_machine", "packet::tests::a_refused_frame_is_counted_and_the_rest_goes"),
            ("punctual_machine", "packet::tests::frames_of_an_interface_upon_ours_do_not_arrive"),
            ("punctual_machine", "packet::tests::queues_wrap_without_loss"),
        ],
    },
    Exception {
        reason: "the emulator does not know SO_TIMESTAMPING, for which these tests ask",
        tests: &[
            ("punctual_machine", "socket::single::tests::a_datagram_says_where_it_came_from"),
            ("punctual_machine", "socket::tests::stamps_lie_between_send_and_receive"),
            ("punctual_lab_machine", "uring_socket::tests::datagrams_go_there_and_back"),
            ("net_no_allocation", "datagrams_move_without_allocation"),
        ],
    },
    Exception {
        reason: "the emulator does not know IP_MULTICAST_IF",
        tests: &[
            ("punctual_machine", "socket::tests::both_members_of_a_group_hear_it"),
            ("punctual", "communicator::reception::tests::the_rest_of_a_run_is_at_hand"),
            ("broadcast", "file::members_of_a_file_meet"),
            ("calls", "a_look_ends_where_the_sockets_do"),
            ("calls", "a_run_costs_one_call_at_either_end"),
            ("calls", "the_busy_socket_of_two_is_read_first"),
            ("echoes", "a_node_that_talks_alone_neither_hears_nor_counts_itself"),
            ("echoes", "drops_of_a_full_buffer_are_told_from_own_messages"),
            ("overtaking", "nothing_overtakes_the_beginning_of_a_stream"),
            ("overtaking", "nothing_overtakes_what_is_said_to_everybody"),
        ],
    },
    Exception {
        reason: "other programs (unshare, setpriv, sh, valgrind) start the test's own, which the kernel alone cannot run",
        tests: &[
            ("containers", "a_file_system_that_shows_nobody_who_lives_is_refused"),
            ("containers", "a_pid_that_is_used_again_is_another_process"),
            ("containers", "containers_of_an_ordinary_user_share_a_bus"),
            ("containers", "containers_share_a_bus"),
            ("containers", "nodes_without_proc_hear_each_other"),
            ("crowd", "a_bus_is_private_or_its_groups"),
            ("processes", "a_limit_of_file_sizes_is_an_error"),
            ("processes", "under_valgrind_it_works"),
        ],
    },
    Exception {
        reason: "the emulator does not know SO_MEMINFO, by which the kernel says what its buffers dropped",
        tests: &[("ledger", "a_full_socket_buffer_sums")],
    },
    Exception {
        reason: "the emulator knows neither bpf(2) nor AF_XDP",
        tests: &[
            ("damage", "damage_by_the_kernel_is_counted_and_not_believed"),
            ("punctual_lab_machine", "xdp::damage::tests::the_fate_of_a_packet_follows_from_the_seed"),
            ("punctual_lab_machine", "xdp::tests::an_echo_answers_its_port_alone"),
            ("punctual_lab_machine", "xdp::tests::frames_cross_a_veth_pair"),
        ],
    },
];

pub(crate) fn run(wanted: &Wanted) -> Outcome {
    if let Err(missing) = tools() {
        return Outcome::Skipped(missing);
    }
    Outcome::of(
        programs(wanted)
            .and_then(|programs| programs.iter().try_for_each(|program| test(program, wanted.left_out))),
    )
}

fn programs(wanted: &Wanted) -> Result<Vec<Program>, String> {
    let whole = wanted.whole.iter().flat_map(|&package| ["--package", package]);
    let mut programs = build(&whole.chain(["--tests"]).collect::<Vec<_>>())?;
    if !wanted.left_out.is_empty() {
        say!("punctual-proto: only at night {}: minutes under emulation", wanted.left_out.join(", "));
    }
    if !wanted.programs.is_empty() {
        for (reason, programs) in NIGHTLY {
            say!("punctual: only at night {}: {reason}", programs.join(", "));
        }
        let some = wanted.programs.iter().flat_map(|&program| ["--test", program]);
        programs.extend(build(&["--package", "punctual"].into_iter().chain(some).collect::<Vec<_>>())?);
        all_built(wanted.programs.iter().copied(), &programs)?;
    } else {
        all_built(listed(), &programs)?;
    }
    Ok(programs)
}

/// Every test program of the library.
fn listed() -> impl Iterator<Item = &'static str> {
    NIGHTLY.iter().flat_map(|(_, programs)| *programs).chain(QUICK).copied()
}

/// Checks that every program in a list is built: otherwise the list says too much.
fn all_built(listed: impl Iterator<Item = &'static str>, built: &[Program]) -> Result<(), String> {
    let missing: Vec<&str> =
        listed.filter(|&listed| !built.iter().any(|program| program.name == listed)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("cargo builds no test program {}: which feature does it need?", missing.join(", ")))
}

/// Checks for the tools; the error says what is missing, and how it is had.
fn tools() -> Result<(), String> {
    let log = workspace::target("arm64").join("tools.txt");
    for (tool, package) in [(LINKER, "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"), (EMULATOR, "qemu-user")]
    {
        if !matches!(Run::new(tool).arg("--version").all_output_to(&log), Ok((Some(0), _))) {
            return Err(format!("no {tool} here: `apt-get install {package}`"));
        }
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Run::new(rustc).args(&["--print", "target-libdir", "--target", TARGET]).output_to(&log);
    match asked {
        Ok((Some(0), folder)) if PathBuf::from(folder.trim()).is_dir() => Ok(()),
        _ => Err(format!("no standard library for {TARGET} here: `rustup target add {TARGET}`")),
    }
}

/// A test program and where it runs, as cargo runs it.
struct Program {
    name: String,
    path: PathBuf,
    folder: PathBuf,
}

/// The library's own tests of the packages, and the programs that the arguments name.
fn build(arguments: &[&str]) -> Result<Vec<Program>, String> {
    let mut cargo = Run::cargo(&["test", "--target", TARGET, "--lib", "--no-run", "--quiet"])
        .args(&["--message-format", "json-render-diagnostics"])
        .args(arguments);
    if arguments.contains(&"punctual") {
        cargo = cargo.args(&["--features", FEATURES]);
    }
    // Without debug information: it is a third of the building, and what fails here fails again under a debugger.
    let (ended, output) = cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("RUSTFLAGS", "-D warnings")
        .output_to(&workspace::target("arm64").join("build.json"))?;
    if ended != Some(0) {
        return Err(format!("the tests do not compile for {TARGET}"));
    }
    let programs: Vec<Program> = output.lines().filter_map(program).collect();
    if programs.is_empty() { Err("cargo names no test program".into()) } else { Ok(programs) }
}

/// The test program of one of cargo's messages.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = PathBuf::from(message.get("executable")?.as_str()?);
    let folder = PathBuf::from(message.get("manifest_path")?.as_str()?).parent()?.to_owned();
    let name = message.get("target")?.get("name")?.as_str()?.to_owned();
    Some(Program { name, path, folder })
}

/// Every test but the exceptions must pass; of the exceptions it is said what passes.
fn test(program: &Program, left_out: &[&str]) -> Result<(), String> {
    let excepted = exceptions(&program.name);
    let mut rest = emulated(program).arg("--exact");
    for name in left_out {
        rest = rest.args(&["--skip", name]);
    }
    for (name, reason) in &excepted {
        say!("{}: not {name}: {reason}", program.name);
        rest = rest.args(&["--skip", name]);
    }
    let log = |kind: &str| workspace::target("arm64").join(format!("{}-{kind}.txt", program.name));
    let (ended, output) = rest.all_output_to(&log("tests"))?;
    let result = output.lines().rev().find(|line| line.starts_with("test result:"));
    say!("{}: {}", program.name, result.unwrap_or("no result"));
    skips(&output).for_each(|skip| eprintln!("{skip}"));
    if ended != Some(0) || result.is_none() {
        say!("{}", tail(&output, 60));
        return Err(format!("{} {}", program.name, how(ended, DEADLINE)));
    }
    if excepted.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = excepted.iter().map(|(name, _)| *name).collect();
    // By two threads: one writes a test's name before what the test says, and its outcome behind that.
    let some = emulated(program).args(&["--exact", "--test-threads", "2"]).args(&names);
    let (_, output) = some.all_output_to(&log("exceptions"))?;
    let (passed, failed) = outcomes(&output);
    for name in names.iter().filter(|name| passed.contains(*name)) {
        say!("{}: {name} PASSES AGAIN: take it off the list", program.name);
    }
    match names.iter().find(|name| !passed.contains(*name) && !failed.contains(*name)) {
        Some(name) => Err(format!("{}: the list names {name}, which did not run", program.name)),
        None => Ok(()),
    }
}

/// Skips that tests report, but for the media that the emulator lacks.
fn skips(output: &str) -> impl Iterator<Item = &str> {
    let said = output.lines().filter_map(|line| line.find("SKIPPED ").map(|at| &line[at..]));
    said.filter(|skip| !skip.contains("PUNCTUAL_TEST_WITHOUT"))
}

fn emulated(program: &Program) -> Run {
    Run::new(EMULATOR)
        .args(&["-L", LIBRARIES])
        .arg(&program.path)
        .within_folder(&program.folder)
        .env("PUNCTUAL_TEST_RUNNER", format!("{EMULATOR} -L {LIBRARIES}"))
        .env("PUNCTUAL_TEST_WITHOUT", WITHOUT)
        .env("RUST_BACKTRACE", "0")
        .within(DEADLINE)
}

fn exceptions(program: &str) -> Vec<(&'static str, &'static str)> {
    let of = |exception: &'static Exception| {
        let tests = exception.tests.iter().filter(move |(of, _)| *of == program);
        tests.map(move |(_, test)| (*test, exception.reason))
    };
    EXCEPTIONS.iter().flat_map(of).collect()
}

/// The tests that passed, and the tests that failed. Output of a test's children may stand between its name and its outcome.
fn outcomes(output: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let all = || output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    let of = |outcome| all().filter(|(_, end)| *end == outcome).map(|(name, _)| name).collect();
    (of("ok"), of("FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_a_message() {
        let message =
            r#"{"executable":"/t/x-1","manifest_path":"/r/crates/x/Cargo.toml","target":{"name":"x"}}"#;
        let found = program(message).unwrap();
        assert_eq!((found.name.as_str(), found.folder.to_str()), ("x", Some("/r/crates/x")));
        assert!(program(r#"{"executable":null}"#).is_none());
    }

    #[test]
    fn outcomes_are_read_by_name() {
        let (passed, failed) = outcomes("test a::b ... ok\ntest c ... FAILED\ntest result: FAILED. 1 passed");
        assert_eq!((passed, failed), (BTreeSet::from(["a::b"]), BTreeSet::from(["c"])));
    }

    #[test]
    fn skips_are_told() {
        let output = "test a ... SKIPPED a: no b\nok\nSKIPPED c: multicast: PUNCTUAL_TEST_WITHOUT names it\ntest c ... ok\n";
        assert_eq!(skips(output).collect::<Vec<_>>(), ["SKIPPED a: no b"]);
    }

    /// Goal: no test program of the library is forgotten, neither by CI nor by the night.
    #[test]
    fn every_program_of_the_library_is_in_a_list() {
        let folder = workspace::root().join("crates/punctual/tests");
        let names = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let is_program =
            |path: &PathBuf| path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").exists();
        let there: BTreeSet<String> = names
            .filter(is_program)
            .map(|path| path.file_stem().expect("a name").to_string_lossy().into())
            .collect();
        assert_eq!(there, listed().map(str::to_owned).collect());
    }

    /// Goal: no program in a list goes untested because cargo leaves it out.
    #[test]
    fn a_program_that_is_not_built_is_named() {
        let built = |name: &str| Program { name: name.to_owned(), path: "/t/x".into(), folder: "/r".into() };
        assert_eq!(all_built(["a", "b"].into_iter(), &[built("b"), built("a")]), Ok(()));
        let error = all_built(["a", "tokio"].into_iter(), &[built("a")]).unwrap_err();
        assert!(error.contains("no test program tokio"), "{error}");
    }

    #[test]
    fn a_test_is_excepted_once() {
        let all: Vec<_> = EXCEPTIONS.iter().flat_map(|exception| exception.tests).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
