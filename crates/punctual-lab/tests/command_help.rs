//! The texts that a user reads before anything is measured: they fit 80 columns, list every verb, and one option has one name.

mod common;

use std::fs;

use common::{Place, punctual};

/// The command itself, and every verb with its own.
const VERBS: [&str; 28] = [
    "",
    "survey",
    "run",
    "run broadcast",
    "run causes",
    "run groups",
    "run oneway",
    "run peel",
    "run server",
    "run response",
    "run survey",
    "run vehicles",
    "run wakeup",
    "sim wakeup",
    "echo",
    "node",
    "import sockperf",
    "import perf",
    "compare",
    "report",
    "explain",
    "watch",
    "record",
    "replay",
    "verify",
    "stat",
    "completions",
    "man",
];

#[track_caller]
fn fits(said: &str, what: &str) {
    for line in said.lines() {
        let columns = line.chars().count();
        assert!(columns <= 80, "{what:?}: {columns} columns: {line}");
    }
    assert!(!said.contains('\x1b'), "{what:?}: colours in a file");
}

/// Goal: nothing that is asked for before a run wraps in a terminal of 80 columns.
#[test]
fn help_fits_eighty_columns() {
    let place = Place::new();
    for verb in VERBS {
        for help in ["-h", "--help"] {
            let ended = place.punctual(&format!("{verb} {help}")).with(0);
            assert!(ended.out.contains("Usage:"), "{verb:?}: {}", ended.out);
            fits(&ended.out, verb);
        }
    }
}

/// Goal: pages that need no run fit as well.
#[test]
fn pages_without_a_run_fit_eighty_columns() {
    let place = Place::new();
    for call in
        ["host", "stat --once", "sim wakeup", "sim wakeup --list", "sim server", "sim wakeup --variant h1"]
    {
        fits(&place.punctual(call).with(0).out, call);
    }
}

/// Goal: no help offers what its command always refuses.
#[test]
fn an_option_that_is_always_refused_is_not_offered() {
    let place = Place::new();
    let calls = [
        ("vehicles", "--count --gap --load"),
        ("broadcast", "--count --gap --load"),
        ("server", "--count --gap"),
        ("peel", "--gap --load"),
        // A closed load is what these measure anyway.
        ("wakeup", "--load"),
        ("oneway", "--load"),
    ];
    for (verb, options) in calls {
        let help = place.punctual(&format!("run {verb} --help")).with(0).out;
        for option in options.split(' ') {
            assert!(!help.contains(&format!("{option} <")), "{verb} {option}: {help}");
            let value = match option {
                "--load" => "open",
                "--gap" => "1ms",
                _ => "1",
            };
            let refused = place.punctual(&format!("run {verb} {option} {value}")).with(2).err;
            assert!(refused.contains(option) && refused.contains(':'), "{verb} {option}: {refused}");
        }
    }
}

/// Goal: the list of what there is to ask fits a terminal of 24 lines and says what its words mean.
#[test]
fn the_list_of_tasks_fits_a_terminal() {
    let list = Place::new().punctual("run").with(0).out;
    fits(&list, "run");
    assert!(list.lines().count() <= 22, "it runs out of a terminal of 24 lines:\n{list}");
    for experiment in [
        "survey",
        "response",
        "wakeup",
        "peel",
        "oneway",
        "vehicles",
        "groups",
        "server",
        "broadcast",
        "causes",
    ] {
        assert!(list.contains(experiment), "{experiment}: {list}");
    }
    for verb in ["explain", "watch", "record", "replay", "stat", "host", "verify", "compare"] {
        assert!(list.contains(verb), "{verb}: {list}");
    }
    for word in ["Gap:", "Open load:", "Stall:", "Route:"] {
        assert!(list.contains(word), "{word} is not explained: {list}");
    }
}

/// Goal: a user who types nothing but the name learns what else there is to ask, and gets the survey.
#[test]
fn alone_it_lists_the_tasks_and_measures() {
    let place = Place::alone();
    let mut started = place.start(punctual(""));
    started.has("a run", || place.path("runs").exists());
    started.signal_group("-INT");
    let said = started.end().out;
    let list = place.punctual("run").with(0).out;
    assert!(said.starts_with(&list), "{said}");
}

/// Goal: one name for one thing, and the names of before still work.
#[test]
fn an_option_has_one_name() {
    let place = Place::new();
    for (verb, options) in [
        ("response", "--wake --rounds --all --quick"),
        ("wakeup", "--wake --rounds --all --quick"),
        ("vehicles", "--wake --rounds --all --quick"),
        ("peel", "--wake --rounds --all --quick"),
        ("oneway", "--wake --all --quick"),
    ] {
        let help = place.punctual(&format!("run {verb} --help")).with(0).out;
        for option in options.split(' ') {
            assert!(help.split_whitespace().any(|word| word == option), "{verb} {option}");
        }
        for old in ["--option", "--mechanism", "--runs"] {
            assert!(!help.contains(&format!("{old} ")), "{verb} still shows {old}");
        }
    }
    for (old, word) in [
        ("run response --option telepathy", "--wake"),
        ("echo --option telepathy", "--wake"),
        ("run vehicles --runs 0", "--rounds"),
        ("run wakeup --soak 9 --mechanism telepathy", "--wake"),
    ] {
        let said = place.punctual(old).with(2).err;
        assert!(said.contains(word), "{old:?}: {said}");
    }
}

/// Goal: shells and manuals know every verb of people, and none that the command starts itself.
#[test]
fn completions_and_manuals_are_made() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.punctual(&format!("completions {shell}")).with(0).out;
        assert!(script.contains("survey") && script.contains("vehicles"), "{shell}");
        // Of run server there are workers.
        let of_people = ["workers", "worker-sched", "other workers", "clockworker"];
        let rest = of_people.iter().fold(script.clone(), |rest, words| rest.replace(words, ""));
        assert!(
            !rest.contains("worker") && !script.contains("compare-calibrate"),
            "{shell} knows what is hidden"
        );
    }
    place.punctual("man --out man").with(0);
    let mut pages: Vec<String> = fs::read_dir(place.path("man"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    pages.sort();
    for page in ["punctual.1", "punctual-survey.1", "punctual-run-vehicles.1", "punctual-sim-wakeup.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    let survey = fs::read_to_string(place.path("man/punctual-survey.1")).expect("a page");
    assert!(survey.contains(".TH") && survey.contains("quick"), "{survey}");
}

/// Goal: scripts read the live counters, with and without a node.
#[test]
fn live_counters_are_json() {
    let place = Place::new();
    let look = place.json("stat --once --json");
    assert_eq!(look["schema"], "punctual.stat.v1");
    assert!(look["nodes"].is_array(), "{look}");
}

/// Goal: help, documentation and command agree on how a peel may sleep, how urgent threads may be, and what a duration is of.
#[test]
fn help_says_what_the_command_takes() {
    let place = Place::new();
    let help = |experiment: &str| {
        let help = place.punctual(&format!("run {experiment} --help")).with(0).out;
        help.split_whitespace().collect::<Vec<&str>>().join(" ")
    };
    let peel = help("peel");
    for way in ["backoff", "adaptive", "futex", "eventfd", "epoll", "signal", "else eventfd]"] {
        assert!(peel.contains(way), "{way}: {peel}");
    }
    for experiment in ["response", "vehicles"] {
        assert!(help(experiment).contains("slice:US"), "{experiment}");
    }
    assert!(help("server").contains("Time of one trial"));
    assert!(help("vehicles").contains("in each run"));
}
