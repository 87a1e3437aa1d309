//! `punctual run response`, `punctual echo`, `punctual import sockperf`, as scripts and people call them.

mod common;
mod glossary;

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{
    Place, STOPPED_RUNS_MAX, Stop, alone, children, count, has_namespaces, has_thread, is_sent,
    is_stop_named, own_address, punctual, result, summary_of, text, unprivileged,
};
use punctual_lab::explain::evidence::{Recording, TrialEvidence};
use punctual_lab::sample::{ABSENT_NS, Outcome};
use punctual_lab::store::Run;
use serde_json::Value;

fn has_sockperf() -> bool {
    let found =
        Command::new("sockperf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        punctual_machine::skipped!("no sockperf here (apt-get install sockperf)");
    }
    found.is_ok()
}

fn response(more: &str) -> String {
    // An answer may be late on a busy machine, and is none the worse here.
    format!("run response --json - --out run --rounds 2 --timeout 10s {more}")
}

fn in_one_round(more: &str) -> String {
    format!("run response --json - --rounds 1 {more}")
}

/// Every trip and every packet that arrived stands in one class.
fn assert_sums(result: &Value) {
    let ledger = &result["ledger"];
    let counters = ledger["counters"].as_object().expect("counters");
    let ended: u64 = counters.values().filter_map(Value::as_u64).sum::<u64>() + count(ledger, "delivered");
    assert_eq!(count(ledger, "taken"), ended, "{ledger:#}");
    let arrivals = &result["arrivals"];
    let classes = ["answers", "duplicates", "mismatches", "damaged_strays", "strays"];
    let arrived: u64 = classes.iter().map(|class| count(arrivals, class)).sum();
    assert_eq!(count(arrivals, "all"), arrived, "{arrivals:#}");
    assert_eq!(count(arrivals, "answers"), count(ledger, "delivered"));
}

/// Goal: a responder that is a program of the kernel answers every trip, and is refused where it would have to write.
#[test]
fn a_program_in_the_kernel_answers() {
    let place = Place::alone();
    let refused = place.punctual(&response("--option xdp-tx --count 10")).with(3);
    assert!(refused.err.contains("--protocol udp") || !has_namespaces(), "{}", refused.err);
    if !has_namespaces() {
        return;
    }
    let place = Place::new();
    let more = "--option xdp-tx,spin --protocol udp --count 600";
    let summary = summary_of(&place.punctual(&response(more)).with(0).out);
    for name in ["xdp-tx/round_trip", "spin/round_trip"] {
        let result = result(&summary, name);
        assert_sums(result);
        assert_eq!(count(&result["ledger"], "delivered"), 600, "{result:#}");
        assert_eq!(count(&result["responder"], "answered"), 600, "{result:#}");
    }
}

/// Goal: levels of recording are measured side by side, each with what it records and no more, and compared with nothing.
#[test]
fn the_cost_of_recording_is_measured() {
    let place = Place::alone();
    let levels = ["nothing", "windows", "trace"];
    let more = "--record nothing,windows,trace --count 1000";
    let summary = summary_of(&place.punctual(&response(more)).with(0).out);
    for level in levels {
        assert_sums(result(&summary, &format!("blocking~{level}/round_trip")));
    }
    let costs = summary["recording_cost"].as_array().expect("costs");
    assert_eq!(costs.iter().map(|cost| &cost["recorded"]).collect::<Vec<_>>(), levels[1..], "{costs:#?}");
    for cost in costs {
        assert_eq!(cost["way"], "blocking");
        assert!(cost["p50"]["openings"] == 2 && cost["p50"]["interval"].is_array(), "{cost:#}");
    }
    let run = Run::open(&place.path("run")).expect("a run");
    for trial in &run.trials {
        let evidence: TrialEvidence = trial.evidence().expect("readable").expect("it is kept");
        let has_windows = evidence.threads.iter().any(|thread| !thread.windows.is_empty());
        let (is_bare, is_traced) = (trial.cell.name.contains("~nothing"), trial.cell.name.contains("~trace"));
        assert!(!(is_bare && has_windows), "{}", trial.cell);
        assert_eq!(evidence.recording != Recording::Off, is_traced, "{}", trial.cell);
    }
    glossary::explains(&place.path("run"));
}

/// Goal: a trial whose responder was killed is kept, with the trips that it lost, and a doubt that says why.
#[test]
fn a_responder_that_dies_takes_no_trial_along() {
    let place = Place::alone();
    let mut started =
        place.start(punctual("run response --out run --rounds 1 --duration 6s --timeout 100ms"));
    let run = started.id();
    started.has("a client", || has_thread(run, "client"));
    // Behind the first answers; if a slow machine has not come so far, all are lost.
    std::thread::sleep(Duration::from_millis(1_000));
    let responder = children(run).into_iter().next().expect("a responder");
    assert!(is_sent("-KILL", &responder));
    let ended = started.end().with(1);
    let trials = Run::open(&place.path("run")).expect("a run").trials;
    let [trial] = &trials[..] else { panic!("{trials:?}: {}", ended.err) };
    let outcomes = trial.load().expect("samples").outcome;
    assert!(outcomes.contains(&Outcome::Lost), "{}", ended.err);
    let doubts = place.summary("run/summary.json")["doubts"].to_string();
    assert!(doubts.contains("the responder"), "{doubts}");
}

/// Goal: the stages of each trip add up to its total, with nearly nothing unexplained, in every kind of load and IP.
#[test]
fn stages_add_up_to_each_trip() {
    let _turn = alone();
    for more in ["--count 600", "--rate 1000 --count 600 --ipv6"] {
        let place = Place::new();
        let summary = summary_of(&place.punctual(&response(more)).with(0).out);
        let result = result(&summary, "blocking/round_trip");
        assert_sums(result);
        let unexplained = result["stages"].as_array().expect("stages").last().expect("one");
        let p50 = result["p50"].as_f64().expect("a median");
        let part = unexplained["median_ns"].as_f64().expect("a median").abs() / p50;
        assert!(unexplained["name"] == "unexplained" && part <= 0.05, "{part} of the median: {result:#}");
        glossary::explains(&place.path("run"));
        let run = Run::open(&place.path("run")).expect("a run");
        // Both ends are opened anew for each of the two rounds.
        assert_eq!(result["first_ns"].as_array().map(Vec::len), Some(2), "{result:#}");
        for trial in &run.trials {
            let samples = trial.load().expect("samples");
            assert_eq!(samples.index.first(), Some(&0), "{}", trial.cell);
            for row in (0..samples.len()).filter(|&row| samples.outcome[row] == Outcome::Answered) {
                let stages = samples.stages.iter().map(|stage| stage.ns[row]).filter(|&ns| ns != ABSENT_NS);
                let (sum, total): (u64, u64) = (stages.sum(), samples.total_ns[row]);
                // Each of the eleven is rounded down.
                assert!(sum <= total && total - sum <= 11, "trip {row}: {sum} of {total} ns in {more:?}");
            }
        }
    }
}

/// Goal: every way that the machine allows is measured, with our own packets whole; the others are reported with a reason.
#[test]
fn every_way_answers_or_says_why_not() {
    let place = Place::alone();
    let arguments = response("--all --count 400 --duration 20s");
    let ended = place.start(punctual(&arguments)).end();
    let summary = summary_of(&ended.out);
    let skipped = summary["skipped"].as_array().cloned().unwrap_or_default();
    for way in ["blocking", "epoll", "spin", "busy-poll", "io_uring", "packet", "xdp-skb", "xdp-native"] {
        let name = format!("{way}/round_trip");
        let results = summary["results"].as_array().expect("results");
        match results.iter().find(|result| result["name"] == name.as_str()) {
            Some(result) => {
                assert_sums(result);
                assert!(
                    count(&result["ledger"], "delivered") > 0 && count(result, "mismatched") == 0,
                    "{result:#}"
                );
            }
            None => {
                let reason =
                    skipped.iter().find(|skip| skip["what"] == way).expect("a reason")["reason"].clone();
                punctual_machine::skipped!("{way}: {reason}");
            }
        }
    }
}

/// Goal: loss, doubling, reordering and changed bits hang nothing, and every trip is accounted for.
#[test]
fn faults_are_accounted_for() {
    let _turn = alone();
    if !has_namespaces() {
        return;
    }
    let place = Place::new();
    let faults = "--lose 2 --double 2 --reorder 2 --corrupt 2";
    // An answer that a busy machine delays for longer than the timeout counts as lost, and no fault took it.
    for load in ["--count 600 --timeout 50ms", "--rate 2000 --count 600 --flows 3 --timeout 1s"] {
        let arguments = in_one_round(&format!("--seed 7 {faults} {load}"));
        let summary = summary_of(&place.punctual(&arguments).with(0).out);
        let result = result(&summary, "blocking/round_trip");
        assert_sums(result);
        let done = &summary["response"]["faults"]["done"];
        for what in ["lost", "doubled", "reordered", "changed", "spoilt"] {
            assert!(count(done, what) > 0, "{done:#}");
        }
        assert!(count(result, "lost") > 0 && count(result, "mismatched") > 0, "{result:#}");
        assert!(count(result, "duplicated") > 0, "{result:#}");
        assert!(count(result, "mismatched") <= count(done, "changed"), "{result:#} {done:#}");
    }
}

/// Goal: the effect on the median is seen when a responder stands still for more than half of an open run.
#[test]
fn a_stopped_responder_shows_in_the_median() {
    let _turn = alone();
    let is_named = (0..STOPPED_RUNS_MAX).any(|_| {
        let responder = |run: u32| children(run).pop().unwrap_or_default();
        let stop = Duration::from_millis(2600);
        let Some(summary) = stopped(responder, stop) else { return false };
        let result = result(&summary, "blocking/round_trip");
        assert_sums(result);
        let (p50, count) = (result["p50"].as_u64(), count(result, "count"));
        assert!(p50.is_none_or(|p50| p50 > 20_000_000), "{p50:?} of {count}: {result:#}");
        is_stop_named(result, "responder", stop)
    });
    assert!(is_named, "none of {STOPPED_RUNS_MAX} stops was named");
}

/// The summary of an open run of four seconds, of which some process was stopped for so long. None where that ended so late that it
/// was more than the run had left.
fn stopped(whose: impl Fn(u32) -> String, lasts: Duration) -> Option<Value> {
    let place = Place::new();
    let arguments = in_one_round("--rate 500 --count 2000 --timeout 10s");
    let mut started = place.start(punctual(&arguments));
    let run = started.id();
    started.has("a client", || has_thread(run, "client"));
    std::thread::sleep(Duration::from_millis(400));
    let stop = Stop::make(&whose(run), lasts);
    let summary = summary_of(&started.end().out);
    let is_within = stop?.leaves(Duration::from_millis(200), &summary, Duration::from_secs(4));
    if !is_within {
        eprintln!("once more: the run was over before it was continued");
    }
    is_within.then_some(summary)
}

/// Goal: a client that stands still is told from a responder that does.
#[test]
fn a_stopped_client_is_told_as_the_client() {
    let _turn = alone();
    let is_named = (0..STOPPED_RUNS_MAX).any(|_| {
        let stop = Duration::from_millis(1500);
        let Some(summary) = stopped(|run| run.to_string(), stop) else { return false };
        let result = result(&summary, "blocking/round_trip");
        assert_sums(result);
        let is_named = is_stop_named(result, "client", stop);
        assert!(!is_named || count(&result["late"][0], "excess_ns") > 1_000_000_000, "{result:#}");
        is_named
    });
    assert!(is_named, "none of {STOPPED_RUNS_MAX} stops was named");
}

/// Goal: messages refused by a full receive buffer, and messages that came in part, are told from other losses, and each is counted.
#[test]
fn a_full_receive_buffer_is_told() {
    let _turn = alone();
    if !has_namespaces() {
        return;
    }
    let losses = |place: &Place, arguments: &str, stops: bool| {
        let mut started = place.start(punctual(&in_one_round(&format!("{arguments} --out run"))));
        let run = started.id();
        started.has("a client", || has_thread(run, "client"));
        let mut stop = None;
        if stops {
            let responder = children(run).pop().unwrap_or_default();
            std::thread::sleep(Duration::from_millis(300));
            stop = Stop::make(&responder, Duration::from_millis(400));
        }
        let summary = summary_of(&started.end().out);
        let told = place.punctual("explain run").with(0).out;
        let explained = place.json("explain run --json");
        let is_within = |stop: Stop| stop.leaves(Duration::ZERO, &summary, Duration::from_millis(1500));
        (explained["losses"][0].clone(), told, stop.is_some_and(is_within))
    };
    // Eight hundred requests in a room for some thirty.
    let open = "--rate 2000 --count 3000 --timeout 1s --receive-buffer 16384";
    let mut stopped = (0..STOPPED_RUNS_MAX).map(|_| losses(&Place::new(), open, true));
    // A stop before the run begins fills no buffer. On a busy machine the client may not read in time either.
    let responder = |full: &Value| {
        let refused = full["without_room"].as_array()?;
        refused.iter().find(|of| of[0] == "responder").cloned()
    };
    let (full, told, _) = stopped
        .find(|(full, _, is_within)| *is_within && responder(full).is_some())
        .expect("a stop within its run");
    let at_responder = responder(&full).expect("it was found");
    assert!(at_responder[1].as_u64() > Some(100), "{full:#}");
    assert!(told.contains("What was lost") && told.contains("verify RUN --fix buffers"), "{told}");
    let faulty = "--rate 2000 --count 3000 --timeout 1s --lose 5 --seed 3";
    let (elsewhere, told, _) = losses(&Place::new(), faulty, false);
    assert!(count(&elsewhere, "lost") > 20, "{elsewhere:#}");
    assert_eq!(elsewhere["without_room"], serde_json::json!([]), "{elsewhere:#}");
    assert_eq!(elsewhere["lost"], elsewhere["unexplained"]);
    assert!(told.contains("What was lost") && !told.contains("--fix buffers"), "{told}");
    // A message of six packets loses one of them more often than all.
    let large = "--size 8000 --rate 500 --count 600 --timeout 1s --lose 2";
    let (in_part, told, _) = losses(&Place::new(), large, false);
    let of = |place: usize| in_part["incomplete"][place][1].as_u64().unwrap_or(0);
    let (lost, incomplete) = (count(&in_part, "lost"), of(0) + of(1));
    assert!(lost > 20 && incomplete * 10 >= lost * 8, "{in_part:#}");
    assert_eq!(in_part["without_room"], serde_json::json!([]), "{in_part:#}");
    assert!(told.contains("In part: try messages that fit"), "{told}");
}

/// Goal: a responder of ours elsewhere, as another host would reach it, in each protocol.
#[test]
fn an_echo_elsewhere_is_measured() {
    let _turn = alone();
    for protocol in ["punctual", "udp", "sockperf"] {
        let place = Place::new();
        let address = free_address();
        let mut echo = place.start(punctual(&format!("echo --listen {address} --protocol {protocol}")));
        echo.has("it listens", || listens(&address));
        let arguments = response(&format!("--to {address} --protocol {protocol} --count 400"));
        let summary = summary_of(&place.punctual(&arguments).with(0).out);
        assert_sums(result(&summary, "blocking/round_trip"));
        echo.signal_group("-INT");
        let said = echo.end().with(0).out;
        assert!(said.contains("400 answered") || protocol == "udp", "{said}");
        // The packet that `listens` sent is whole: sockperf's own clients send such packets too.
        assert!(said.contains("0 not understood") || protocol != "sockperf", "{said}");
    }
}

/// Goal: a responder does not answer a packet whose end it cut off: the client is told what may differ, and nothing is called wrong.
#[test]
fn an_echo_of_smaller_packets_answers_none_that_are_larger() {
    let _turn = alone();
    let place = Place::new();
    let address = free_address();
    let mut echo = place.start(punctual(&format!("echo --listen {address} --size 200")));
    echo.has("it listens", || listens(&address));
    let arguments = in_one_round(&format!("--to {address} --size 201 --count 20 --timeout 5ms"));
    let ended = place.punctual(&arguments).with(3);
    assert!(ended.err.contains("--size"), "{}", ended.err);
    echo.signal_group("-INT");
    let said = echo.end().with(0).out;
    assert!(said.contains(" 0 answered"), "{said}");
}

/// Returns true if somebody listens: a refusal comes back as an error of a later call. The packet sent is a request of sockperf that
/// wants no reply: its server is deaf for ever after a packet that is no request.
fn listens(address: &str) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(address).expect("an address");
    let request = [0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 14];
    socket.send(&request).is_ok() && {
        std::thread::sleep(Duration::from_millis(20));
        socket.send(&request).is_ok()
    }
}

fn free_address() -> String {
    let socket = UdpSocket::bind((own_address(), 0)).expect("a port");
    socket.local_addr().expect("bound").to_string()
}

/// Goal: nobody there is neither a hang nor an answer, and no broken promise of what is not there.
#[test]
fn silence_is_loss() {
    let place = Place::alone();
    let address = free_address();
    let arguments = in_one_round(&format!("--to {address} --count 40 --timeout 5ms"));
    let ended = place.punctual(&arguments).with(3);
    assert!(
        ended.err.contains(&format!("nobody answers at {address}: run punctual echo there")),
        "{}",
        ended.err
    );
    let result = result(&summary_of(&ended.out), "blocking/round_trip").clone();
    assert_eq!((count(&result, "lost"), result["infinite_from"].clone()), (40, "p50".into()), "{result:#}");
}

/// Goal: sockperf's unmodified client and server speak with ours, both ways, and its log is read into a run.
#[test]
fn sockperf_speaks_with_us() {
    let _turn = alone();
    if !has_sockperf() {
        return;
    }
    let place = Place::new();
    let address = free_address();
    let (host, port) = address.rsplit_once(':').expect("a port");
    let mut echo = place.start(punctual(&format!("echo --listen {address} --protocol sockperf")));
    echo.has("it listens", || listens(&address));
    for (mode, log) in [("ping-pong", "pp.csv"), ("under-load", "ul.csv")] {
        let log = place.path(log).display().to_string();
        let mut client = Command::new("sockperf");
        client.args([mode, "-i", host, "-p", port, "-t", "1", "-m", "64", "--full-log", &log]);
        if mode == "under-load" {
            client.args(["--mps", "1000", "--reply-every", "5"]);
        }
        let ended = place.start(client).end().with(0);
        assert!(!ended.out.contains("No messages were received"), "{}", ended.out);
        let load = if mode == "ping-pong" { "closed" } else { "open" };
        let arguments = format!("import sockperf {log} --load {load} --json - --out {mode}");
        let summary = summary_of(&place.punctual(&arguments).with(0).out);
        let result = result(&summary, "sockperf/round_trip");
        assert!(count(result, "count") > 50 && result["size"] == 64, "{result:#}");
        assert!(text(&place.path(&format!("{mode}/report.html"))).contains("sockperf"));
    }
    echo.signal_group("-INT");
    echo.end().with(0);
    let mut server = Command::new("sockperf");
    server.args(["server", "-i", host, "-p", port]);
    let mut server = place.start(server);
    server.has("it listens", || listens(&address));
    let arguments = response(&format!("--to {address} --protocol sockperf --size 64 --count 400"));
    let summary = summary_of(&place.punctual(&arguments).with(0).out);
    assert_eq!(count(result(&summary, "blocking/round_trip"), "lost"), 0);
    server.signal_group("-KILL");
    server.end();
}

/// Goal: a user who may make no network namespace measures over loopback, where both ends share an address.
#[test]
fn without_privilege_loopback_is_measured() {
    let _turn = alone();
    for more in ["--option blocking,spin", "--flows 3 --rate 1000", "--ipv6"] {
        let place = Place::world_writable();
        let Some(command) = unprivileged(&response(&format!("--count 200 {more}"))) else { return };
        let summary = summary_of(&place.start(command).end().with(0).out);
        assert_eq!(summary["response"]["place"], "the loopback interface of this host", "{summary:#}");
        let result = result(&summary, "blocking/round_trip");
        assert_sums(result);
        assert_eq!(count(&result["ledger"], "delivered"), count(&result["ledger"], "taken"), "{result:#}");
    }
}

/// Goal: a log from elsewhere carries nothing of this host, and its first sample counts like the others.
#[test]
fn an_imported_log_is_of_no_host() {
    let place = Place::new();
    let log = "packet, txTime(sec), rxTime(sec), latency(usec)\n0, 2.000000000, 2.000900000, 450.0\n\
        1, 2.001000000, 2.001100000, 50.0\n2, 2.002000000, 2.002100000, 50.0\n";
    std::fs::write(place.path("log.csv"), log).expect("room");
    let summary = summary_of(&place.punctual("import sockperf log.csv --json - --out run").with(0).out);
    let result = result(&summary, "sockperf/round_trip");
    assert_eq!((count(result, "count"), count(result, "max")), (3, 900_000), "{result:#}");
    let host = &summary["host"];
    let said = (&host["kernel"], &host["cpu"], &host["load_before"]);
    assert_eq!(said, (&"unknown".into(), &"unknown".into(), &0.0.into()), "{host:#}");
    assert_eq!(summary["clock"]["step_ns"], 0, "{:#}", summary["clock"]);
}

/// Goal: other work on this host while a log is read raises no doubt about it, and its page shows no fact of a host. Method: another
/// process computes all the while, and the log is long enough for a look at who used the processors.
#[test]
fn an_imported_log_is_not_doubted_for_this_host() {
    use std::fmt::Write as _;
    const PACKETS: u64 = 400_000;
    let place = Place::alone();
    let mut log = "packet, txTime(sec), rxTime(sec), latency(usec)\n".to_owned();
    for packet in 0..PACKETS {
        let (sent, received) = (packet * 1_000, packet * 1_000 + 900);
        let seconds = |us: u64| format!("{}.{:09}", us / 1_000_000, us % 1_000_000 * 1_000);
        writeln!(log, "{packet}, {}, {}, 450.0", seconds(sent), seconds(received)).expect("room");
    }
    std::fs::write(place.path("log.csv"), log).expect("room");
    let mut hog = Command::new("sh");
    hog.args(["-c", "while :; do :; done"]);
    let hog = place.start(hog);
    let ended = place.punctual("import sockperf log.csv --json - --out run").with(0);
    hog.signal_group("-KILL");
    let summary = summary_of(&ended.out);
    assert_eq!(count(result(&summary, "sockperf/round_trip"), "count"), PACKETS);
    assert!(!summary["doubts"].to_string().contains("processors"), "{:#}", summary["doubts"]);
    let page = text(&place.path("run/report.html"));
    assert!(page.contains("host unknown") && !page.contains("load before"), "{page}");
}

/// Goal: one line that names the option, the value and the range.
#[test]
fn misuse_is_told_in_a_line() {
    let place = Place::new();
    for (arguments, word) in [
        ("--size 20", "--size 20"),
        ("--flows 0", "--flows 0"),
        ("--option telepathy", "telepathy"),
        ("--sched fifo:100", "fifo:1"),
        ("--lose 99", "from 0 to 25"),
        ("--rate 100 --load closed", "--rate 100"),
        ("--dscp 64", "64"),
        ("--to nowhere", "nowhere"),
        ("--against sockperf --rate 100", "sockperf: its ping-pong is a closed load"),
        ("--against sockperf --gap 1ms", "sockperf: its ping-pong is a closed load"),
        ("--against sockperf --count 1000", "sockperf: it ends by time alone"),
    ] {
        let ended = place.punctual(&format!("run response {arguments}")).with(2);
        assert!(ended.err.contains(word) && ended.err.trim().lines().count() == 1, "{}", ended.err);
    }
    std::fs::write(place.path("no.csv"), "nothing").expect("room");
    let ended = place.punctual("import sockperf no.csv").with(2);
    assert!(ended.err.contains("no.csv") && ended.err.contains("--full-log"), "{}", ended.err);
}

/// Goal: Ctrl-C keeps what was measured.
#[test]
fn an_interrupted_run_keeps_what_it_measured() {
    let place = Place::alone();
    let arguments = "run response --count 10000000 --duration 60s --rounds 30 --out run";
    let mut started = place.start(punctual(arguments));
    let samples = place.path("run/samples");
    started.has("a trial", || std::fs::read_dir(&samples).is_ok_and(|entries| entries.count() >= 1));
    started.signal_group("-INT");
    let ended = started.end();
    assert!(matches!(ended.code, Some(0 | 1)), "{}", ended.err);
    let summary = place.summary("run/summary.json");
    assert_sums(result(&summary, "blocking/round_trip"));
    assert!(summary.to_string().contains("cut short"));
}
