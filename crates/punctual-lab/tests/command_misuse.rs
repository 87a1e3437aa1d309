//! A mistake in the arguments is reported in one line that names it, and nothing is measured.

mod common;

use std::fs;

use common::Place;

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
    refused(&place, "frobnicate", &["frobnicate"]);
    refused(&place, "survey --duration soon", &["--duration", "soon", "500ms"]);
    refused(&place, "survey --duration 0s", &["--duration", "0s", "24h"]);
    refused(&place, "survey --gap 11s", &["--gap", "11s", "10s"]);
    refused(&place, "survey --gap 7us", &["--gap", "100us"]);
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
    refused(&place, "survey --only nothing", &["--only"]);
    refused(&place, "survey --frequently", &["--frequently"]);
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
    for (call, run) in [("report mine", "mine"), ("report nowhere", "nowhere"), ("compare mine mine", "mine")]
    {
        refused(&place, call, &[run, "not a run"]);
    }
    // A directory of runs is none, and has some.
    fs::create_dir_all(place.path("mine/a/0")).expect("room");
    fs::write(place.path("mine/a/0/run.json"), "{}").expect("room");
    refused(&place, "explain mine", &["mine", "holds some", "mine/a/0"]);
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
