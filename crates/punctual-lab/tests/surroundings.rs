//! The command on machines that lack something: one clear line, the right exit code, nothing left behind, or it just works.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Ended, Place, alone, is_root, punctual_by, text, unprivileged};

/// A survey of one cell.
const SURVEY: &str = "survey --only shared/backoff --duration 500ms --gap 0 --load closed --quiet";

/// A processor on which this process may run.
fn own_cpu() -> String {
    punctual_machine::cpu::allowed()[0].to_string()
}

/// Runs the survey of one cell; see [`in_own_mounts_with`].
fn in_own_mounts(place: &Place, prepare: &str, more: &str) -> Option<Ended> {
    in_own_mounts_with(place, prepare, &format!("{SURVEY} {more}"), "true")
}

/// Runs a survey by way of a shell in a mount namespace of its own, after `prepare`; nothing if that is not allowed here.
fn in_own_mounts_with(place: &Place, prepare: &str, arguments: &str, afterwards: &str) -> Option<Ended> {
    let may = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        punctual_machine::skipped!("needs root and unshare: {prepare}");
        return None;
    }
    // The namespace ends with the shell: the remains of the run are read before that.
    let script = format!("{prepare} && {{ \"$0\" \"$@\"; code=$?; {afterwards}; exit $code; }}");
    Some(place.start(punctual_by(&["unshare", "-m", "sh", "-c", &script], arguments)).end())
}

/// Exit 3, and one line on standard error with these words.
#[track_caller]
fn cannot(ended: Ended, words: &[&str]) {
    let ended = ended.with(3);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert!(!ended.err.contains("panicked"), "{}", ended.err);
    for word in words {
        assert!(ended.err.contains(word), "without {word:?}: {}", ended.err);
    }
}

/// It works: no promise broken, no doubt that it lost something.
#[track_caller]
fn works(place: &Place, ended: Ended) {
    ended.with(0);
    let summary = place.summary("run/summary.json");
    assert!(summary["results"].as_array().is_some_and(|results| !results.is_empty()), "{summary}");
}

#[test]
fn few_descriptors_little_locked_memory_and_one_cpu_are_enough() {
    let _turn = alone();
    let cpu = own_cpu();
    let sleeps = "survey --quick --only shared/futex --quiet --duration 500ms --out run";
    let place = Place::new();
    works(&place, place.start(punctual_by(&["taskset", "-c", &cpu], sleeps)).end());
    for way in [
        &["sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\""][..],
        &["sh", "-c", "ulimit -l 64; exec \"$0\" \"$@\""],
        &["taskset", "-c", &cpu],
    ] {
        let place = Place::new();
        works(&place, place.start(punctual_by(way, &format!("{SURVEY} --out run"))).end());
    }
}

/// The command under limits of the shell.
fn limited(place: &Place, limits: &str, arguments: &str) -> Ended {
    let script = format!("{limits}; exec \"$0\" \"$@\"");
    place.start(punctual_by(&["sh", "-c", &script], arguments)).end()
}

/// Goal: with fewer descriptors than a route needs nothing is said to be lost: the machine cannot.
#[test]
fn too_few_descriptors_are_named() {
    let _turn = alone();
    for few in [12, 15, 20, 63] {
        let place = Place::new();
        let arguments = format!("{SURVEY} --out run");
        cannot(limited(&place, &format!("ulimit -n {few}"), &arguments), &["files", "ulimit -n"]);
    }
}

/// Method: memory is limited, so that a command that reads on ends here, and not the machine.
#[test]
fn an_endless_file_is_refused() {
    const MEMORY: &str = "ulimit -v 4000000";
    let place = Place::new();
    for (arguments, words) in [
        ("run groups --scenario /dev/zero", ["--scenario /dev/zero", "1048576 bytes"]),
        ("import sockperf /dev/zero", ["/dev/zero", "268435456 bytes"]),
    ] {
        let ended = limited(&place, MEMORY, arguments).with(2);
        assert!(words.iter().all(|word| ended.err.contains(word)), "{}", ended.err);
    }
    std::fs::create_dir(place.path("run")).expect("room");
    std::os::unix::fs::symlink("/dev/zero", place.path("run/run.json")).expect("room");
    for verb in ["report run", "compare run run"] {
        cannot(limited(&place, MEMORY, verb), &["run.json", "268435456 bytes"]);
    }
}

/// Goal: a limit of file sizes ends no process by a signal; file and options are named, and what was stored can be read.
/// Method: the run's own files fit, and no trial does.
#[test]
fn a_limit_of_file_sizes_is_told_and_costs_nothing_stored() {
    let place = Place::alone();
    let survey = "survey --quick --only floor/udp-block --duration 2s --count 20000 --quiet --out run";
    // Blocks of 512 or 1,024 bytes, as the shell has it.
    let ended = limited(&place, "ulimit -f 8", survey);
    cannot(ended, &[".parquet", "ulimit -f", "--out"]);
    // Of a run that measured nothing nothing is left.
    let left = std::fs::read_dir(place.path("run/samples")).into_iter().flatten().flatten().count();
    assert_eq!(left, 0, "half a trial was left");
    let ring = "survey --quick --only shared/futex --duration 500ms --quiet --out ring";
    cannot(limited(&place, "ulimit -f 800", ring), &["shared memory", "ulimit -f"]);
}

#[test]
fn a_full_disk_ends_the_run_and_keeps_what_is_stored() {
    let place = Place::alone();
    let prepare = "mkdir small && mount -t tmpfs -o size=200k none small && echo whole > small/page.html";
    let report = "\"$0\" report small/run --out report.html > reported; \
                  \"$0\" report small/run --out small/page.html 2> not-reported; cp small/page.html page.html";
    // As many trials as fill the disk, each small enough for some to fit.
    let survey = "survey --only shared/ --duration 2s --quiet --out small/run --quick --count 200";
    if let Some(ended) = in_own_mounts_with(&place, prepare, survey, report) {
        cannot(ended, &["no room for small/run", "--out"]);
        assert_eq!(text(&place.path("reported")), "report.html\n", "the stored run is readable");
        assert!(text(&place.path("report.html")).contains("shared/spin"));
        // A page for which there is no room leaves the one before as it was.
        assert!(text(&place.path("not-reported")).contains("cannot write small/page.html"));
        assert_eq!(text(&place.path("page.html")), "whole\n");
    }
}

#[test]
fn without_shared_memory_it_says_so() {
    let _turn = alone();
    for (prepare, words) in [
        ("mount -t tmpfs -o size=256k none /dev/shm", &["memory file system is full"][..]),
        ("mount -t tmpfs -o ro none /dev/shm", &["/dev/shm", "Read-only"]),
        ("mount -t tmpfs none /dev && mount -t proc proc /proc", &["/dev/shm", "mount tmpfs"]),
    ] {
        let place = Place::new();
        if let Some(ended) = in_own_mounts(&place, prepare, "--out run") {
            cannot(ended, words);
        }
    }
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    let place = Place::alone();
    let prepare = "mkdir closed && mount -t tmpfs -o ro none closed && cd closed";
    if let Some(ended) = in_own_mounts(&place, prepare, "") {
        cannot(ended, &["runs", "--out"]);
    }
    assert!(!Path::new(&place.path("closed/runs")).exists());
}

/// Goal: a port that another program has, an interface that is not there, and a want of privilege are named, each in one line.
#[test]
fn missing_needs_of_a_long_running_role_are_named() {
    let place = Place::alone();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    cannot(place.punctual(&format!("echo --listen {address}")), &["bind udp", &address, "in use"]);
    drop(taken);
    let segment = format!("echo --listen {address} --option packet --interface nosuch0");
    // The kernel asks for the privilege first.
    let reason = if is_root() { "interface" } else { "CAP_NET_RAW" };
    cannot(place.punctual(&segment), &["nosuch0", reason]);
    let urgent = format!("echo --listen {address} --sched fifo:50");
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
    let may = punctual_by(&nobody, "--version").output().is_ok_and(|output| output.status.success());
    if !may {
        punctual_machine::skipped!("needs root and setpriv: a role without privilege");
        return;
    }
    let place = Place::world_writable();
    cannot(place.start(punctual_by(&nobody, &urgent)).end(), &["fifo:50", "not permitted"]);
}

/// Goal: a want of privilege is told with what to do, and that once.
#[test]
fn a_place_or_port_of_others_is_refused_with_advice() {
    let place = Place::world_writable();
    for (line, words) in [
        ("record shared:x --out /x.mcap", ["--out /x.mcap", "name a place that you may write to"]),
        ("man --out /man", ["--out /man", "name a place that you may write to"]),
        ("record ethernet:lo --out x.mcap", ["CAP_NET_RAW: run as root, or `setcap", "the binary"]),
    ] {
        let Some(command) = unprivileged(line) else { return };
        let ended = place.start(command).end();
        assert_eq!(ended.err.matches("CAP_NET_RAW").count(), words[0].matches("CAP_NET_RAW").count());
        cannot(ended, &words);
    }
    // A system may give every port to everybody.
    let first = text("/proc/sys/net/ipv4/ip_unprivileged_port_start".as_ref());
    if first.trim().parse().is_ok_and(|first: u16| first > 80) {
        let Some(command) = unprivileged("echo --listen 127.0.0.1:80") else { return };
        cannot(place.start(command).end(), &["127.0.0.1:80", "CAP_NET_BIND_SERVICE", "take a higher one"]);
    }
}

/// Goal: an interface that is not there is told with where to look.
#[test]
fn an_interface_that_is_not_there_is_told_with_advice() {
    if !is_root() {
        punctual_machine::skipped!("needs root: an interface that is not there");
        return;
    }
    let place = Place::new();
    cannot(place.punctual("record ethernet:nosuch0 --out x.mcap"), &["nosuch0: No such device", "`ip link`"]);
    assert!(!place.path("x.mcap").exists());
}

/// Goal: a trace that was asked for and that this user may not record is listed as not measured, whichever experiment was to record it.
#[test]
fn a_trace_without_privilege_is_listed_as_not_measured() {
    let _turn = alone();
    for experiment in [
        "survey --only shared/futex --duration 300ms --gap 0 --load closed",
        "run response --duration 300ms --rounds 1",
        "run vehicles --engine shared --vehicles 2 --roadside 0 --duration 300ms --rounds 1",
        "run server --model threads-blocking --connections 1 --matrix 1 --duration 300ms --rounds 1",
        "run broadcast --engine shared --members 3 --period 20ms --duration 300ms --rounds 1",
    ] {
        let place = Place::world_writable();
        let line = format!("{experiment} --trace --out run --quiet");
        let Some(command) = unprivileged(&line) else { return };
        let ended = place.start(command).end();
        assert!(place.path("run/summary.json").exists(), "{line}: {}", ended.err);
        let summary = place.summary("run/summary.json");
        let skipped = summary["skipped"].as_array().into_iter().flatten();
        let reasons = skipped.filter(|skipped| skipped["what"] == "the kernel's trace (--trace)");
        assert_eq!(reasons.count(), 1, "{line}: {}", summary["skipped"]);
    }
}

/// Goal: on one processor, who asks for what polls learns why it is not measured and what can be.
#[test]
fn polling_on_one_cpu_is_refused_with_an_alternative() {
    let (place, cpu) = (Place::alone(), own_cpu());
    let arguments = "survey --quick --only shared/spin --quiet --out run";
    let ended = place.start(punctual_by(&["taskset", "-c", &cpu], arguments)).end();
    cannot(ended, &["two processors are needed to poll", "--only shared/futex"]);
}
