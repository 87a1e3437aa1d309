//! A mistake in the arguments is reported in one line that names it, and nothing is measured.

mod common;

use std::fs;

use common::{Place, interleaved, punctual};

/// Exit 2, one line on standard error with these words, nothing on standard output.
#[track_caller]
fn refused(place: &Place, arguments: &str, words: &[&str]) {
    let ended = place.punctual(arguments).with(2);
    assert_eq!(ended.out, "", "{arguments:?}");
    assert_eq!(ended.err.lines().count(), 1, "{arguments:?}: {}", ended.err);
    for word in words {
        assert!(ended.err.contains(word), "{arguments:?} without {word:?}: {}", ended.err);
    }
}

#[test]
fn a_wrong_call_is_refused_in_one_line() {
    let place = Place::new();
    refused(&place, "frobnicate", &["punctual knows no 'frobnicate'. It knows survey, run, "]);
    refused(&place, "surve", &["punctual knows no 'surve'; did you mean 'survey'? It knows survey, run, "]);
    refused(&place, "survey --duration soon", &["--duration", "soon", "500ms"]);
    refused(&place, "survey --duration 0s", &["--duration", "0s", "24h"]);
    refused(&place, "survey --gap 11s", &["--gap", "11s", "10s"]);
    refused(&place, "survey --gap 7us", &["--gap", "100us"]);
    // A gap below a microsecond is no gap of 0.
    refused(&place, "survey --gap 500ns", &["--gap", "100us"]);
    refused(&place, "run wakeup --gap 500ns", &["--gap 500ns", "10us"]);
    refused(&place, "survey --count 0", &["--count", "'0'", "10000000"]);
    refused(&place, "survey --seed x", &["--seed", "'x'", "whole number"]);
    refused(&place, "run peel --engine shared --wake signal", &["--wake signal", "shared", "epoll"]);
    // A processor that is not there, and a floor that is more than all.
    refused(&place, "run response --client-cpu 9999", &["--client-cpu", "'9999'", "processors"]);
    refused(&place, "run server --floor 2000", &["--floor", "'2000'", "0 to 1000"]);
    for (verb, option) in [("run response", "--to"), ("echo", "--listen"), ("stat", "--serve")] {
        let words = ["'far'", option, "such as 10.0.0.2:9930", "not looked up"];
        refused(&place, &format!("{verb} {option} far"), &words);
    }
    // A negative value is a value, and no option.
    refused(&place, "survey --count -1", &["'-1'", "--count", "1..=10000000"]);
    refused(&place, "survey --count=-1", &["'-1'", "--count", "1..=10000000"]);
    refused(&place, "run peel --starts -2", &["'-2'", "--starts", "-2 is not in 2..="]);
    refused(&place, "survey --seed -1", &["'-1'", "--seed", "whole number"]);
    refused(&place, "stat --every -5s", &["'-5s'", "--every", "500ms"]);
    refused(&place, "run vehicles --runs -1", &["'-1'", "--rounds", "is not in"]);
    refused(&place, "survey --quiet -1", &["unexpected", "'-1'"]);
    refused(&place, "survey --load half", &["--load", "half"]);
    refused(&place, "survey --only nothing", &["--only nothing", "no route", "floor/slot, ", "shared/spin"]);
    refused(&place, "survey --only floor --load open", &["--only floor", "--load"]);
    refused(&place, "survey --frequently", &["--frequently"]);
    // An option without effect is refused, not passed over.
    refused(&place, "survey --only=", &["--only ''", "shared/"]);
    refused(
        &place,
        "run causes --in survey,server --cause compute",
        &["--cause compute", "--in survey,server", "there is response"],
    );
    refused(&place, "run server --lanes 1 --model tokio", &["--lanes", "classes"]);
    refused(&place, "run response --unpinned --client-cpu 0", &["--unpinned", "--client-cpu"]);
    refused(&place, "stat --every 0", &["--every", "'0'"]);
    // A user who is told to read help is told of the one that has the option.
    refused(&place, "survey --gap 7", &["see punctual survey --help"]);
    refused(&place, "run peel --starts 0", &["see punctual run peel --help"]);
    // A user who gave no name, or a wrong one, is told which names there are.
    refused(&place, "run everything", &["'everything'", "survey", "wakeup", "see punctual run --help"]);
    refused(&place, "sim", &["punctual sim needs", "wakeup", "broadcast"]);
    refused(&place, "import", &["sockperf", "see punctual import --help"]);
    assert!(!place.path("runs").exists(), "something was measured");
}

/// Goal: a command whose words nobody can read ends as it would otherwise.
#[test]
fn an_unwritable_error_output_changes_no_exit_code() {
    for line in ["frobnicate", "report nowhere", "compare nowhere nowhere"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let ended = punctual(line).stderr(full).status().expect("it starts");
        assert_eq!(ended.code(), Some(2), "{line}");
    }
}

#[test]
fn a_directory_with_something_in_it_is_not_written_to() {
    let place = Place::new();
    fs::create_dir(place.path("mine")).expect("room");
    fs::write(place.path("mine/letter"), "dear").expect("room");
    refused(&place, "survey --out mine", &["mine", "--out", "not empty"]);
    assert_eq!(fs::read_dir(place.path("mine")).expect("there").count(), 1);
}

/// Goal: a path that was misspelled is not made, and a file is no directory; the error says which it is.
#[test]
fn a_directory_that_cannot_be_is_refused() {
    let place = Place::new();
    fs::write(place.path("letter"), "dear").expect("room");
    for command in
        ["survey --quick", "run peel", "run causes", "compare --interleave true true", "watch", "man"]
    {
        let with = |out: &str| format!("{command} --out {out}");
        refused(&place, &with("no/where"), &["--out no/where", "there is no directory no"]);
        refused(&place, &with("letter"), &["--out letter", "it is a file"]);
        assert!(!place.path("no").exists(), "{command:?}");
    }
    assert_eq!(fs::read_to_string(place.path("letter")).expect("there"), "dear");
}

#[test]
fn a_path_that_is_no_run_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("mine")).expect("room");
    for call in ["report mine", "compare mine mine"] {
        refused(&place, call, &["mine is not a run"]);
    }
    let absent = "nowhere: no such file or directory: name ";
    for call in ["report nowhere", "compare nowhere nowhere", "verify nowhere --fix nice"] {
        refused(&place, call, &[absent, "the directory of a run"]);
    }
    refused(&place, "explain nowhere", &[absent, "a run's directory, or the log or trace"]);
    // A directory of runs is none, and has some.
    fs::create_dir_all(place.path("mine/a/0")).expect("room");
    fs::write(place.path("mine/a/0/run.json"), "{}").expect("room");
    refused(&place, "explain mine", &["mine", "holds some", "mine/a/0"]);
}

/// Goal: a file that is not there is named, with what to do, whatever it was to be read for.
#[test]
fn a_file_that_is_not_there_is_refused_with_advice() {
    let place = Place::new();
    for (call, named) in [
        ("replay nope", "nope: "),
        ("import perf nope", "nope: "),
        ("import sockperf nope", "nope: "),
        ("record shared:x --out x.mcap --keys nope", "--keys: nope: "),
        ("run groups --scenario nope", "--scenario nope: "),
        ("sim stream --replay nope", "--replay nope: "),
    ] {
        refused(&place, call, &[named, "; name a file that is there"]);
    }
}

/// Goal: a file that cannot be written is told before hours of work. Method: the work would outlast the watchdog.
#[test]
fn a_file_that_cannot_be_written_is_told_first() {
    let place = Place::new();
    let drive = "cell 100\nperiod 10ms\nat 0s ann 10 50\nat END ann 20 50\nend END\n";
    fs::write(place.path("long"), drive.replace("END", "600s")).expect("room");
    let mut lines = vec!["run groups --scenario long"];
    if punctual_machine::cpu::allowed().len() > 1 {
        lines.push("run wakeup --soak 10000000000");
    }
    for line in lines {
        let ended = place.punctual(&format!("{line} --json no/where")).with(3);
        assert!(ended.err.contains("cannot write no/where"), "{line}: {}", ended.err);
    }
    // A device may be opened, and takes nothing: the table is there all the same.
    fs::write(place.path("short"), drive.replace("END", "1s")).expect("room");
    let ended = place.punctual("run groups --scenario short --json /dev/full").with(3);
    assert!(ended.out.contains("ann") && ended.err.contains("cannot write /dev/full"), "{}", ended.err);
}

/// Goal: of what a way of waiting needs only the missing part is named.
#[test]
fn only_the_missing_part_is_named() {
    let place = Place::new();
    let (there, address) = ("--interface lo", "--listen 127.0.0.1:9930");
    for (given, missing) in [
        (String::new(), "needs --interface, and --listen "),
        (there.to_owned(), "needs --listen "),
        (address.to_owned(), "needs --interface"),
    ] {
        let ended = place.punctual(&format!("echo --wake xdp-skb {given}")).with(2);
        assert!(ended.err.contains(missing), "{}", ended.err);
        for part in ["--interface", "--listen"] {
            assert_eq!(ended.err.contains(part), missing.contains(part), "{}", ended.err);
        }
    }
}

/// Goal: a comparison whose first command measures nothing leaves no folder, and none of a user's is taken.
#[test]
fn a_mistyped_command_leaves_nothing_behind() {
    let place = Place::new();
    fs::create_dir(place.path("runs")).expect("room");
    for (command, out) in [("nosuch", ""), ("false", "--out mine")] {
        let ended = place.start(interleaved(command, command, out)).end().with(2);
        assert!(ended.err.contains(command), "{}", ended.err);
        assert!(!place.path("mine").exists());
        assert_eq!(fs::read_dir(place.path("runs")).expect("there").count(), 0, "{command}");
    }
}

#[test]
fn an_address_that_cannot_be_had_says_what_to_do() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    for (listen, advice) in [("192.0.2.1:7", "ip addr"), (&address, "ss -ulpn")] {
        let ended = Place::new().punctual(&format!("echo --listen {listen}")).with(3);
        assert!(ended.err.contains(advice) && ended.err.contains(listen), "{}", ended.err);
    }
}

/// Method: not even root makes a directory in `/proc`.
#[test]
fn a_place_that_cannot_be_written_is_the_machines() {
    let place = Place::new();
    let ended = place.punctual("survey --quick --out /proc/punctual").with(3);
    assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1), "{}", ended.err);
    assert!(ended.err.contains("/proc/punctual") && ended.err.contains("--out"), "{}", ended.err);
}
