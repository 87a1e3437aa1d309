//! Two sites by two routers of processes of their own.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use punctual::Keys;
use punctual_zenoh::ZenohBus;
use punctual_zenoh::rig::{Router, free_port};
use punctual_zenoh::scene::{Ask, Own, Sum, all_reach_all, each, quiet, settled};

/// Longer than anything takes that does not hang: sessions come back within some seconds.
const PATIENCE: Duration = Duration::from_secs(40);

/// Ends the process if a test hangs: if what is returned lives for longer.
fn watchdog(seconds: u64) -> mpsc::Sender<()> {
    let (alive, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(seconds)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("nothing for {seconds} s: hangs");
            std::process::exit(101);
        }
    });
    alive
}

/// Goal: sealed messages go both ways; while a router is dead its site cannot be reached, and senders are told; when it is back all
/// goes on, in the accounts that were; and in the end every frame has arrived, is lost, or is missing still.
#[test]
fn a_router_is_killed_and_back() {
    let _alive = watchdog(170);
    let program = Path::new(env!("CARGO_BIN_EXE_punctual-zenoh-router"));
    let [one, two] = [(); 2].map(|()| format!("tcp/127.0.0.1:{}", free_port()));
    let _first = Router::start(program, &[&one], None).unwrap();
    let second = Router::start(program, &[&two], Some(&one)).unwrap();
    let keys = Keys::random(1);
    let names = ["a0", "a1", "b0", "b1"].map(str::to_owned);
    let open = |name: &String| {
        let router = if name.starts_with('a') { &one } else { &two };
        let bus = ZenohBus::new("test", std::slice::from_ref(router));
        Own::open(&bus, &keys, name, &names, PATIENCE).unwrap()
    };
    let mut members: Vec<Own> = names.iter().map(open).collect();
    assert!(all_reach_all(&mut members, PATIENCE).unwrap(), "{members:?}");
    let before = quiet(&mut members).unwrap();

    let said = each(&mut members, Ask::Talk(50, 1)).unwrap().said;
    let (since, late) = settled(&mut members, before, PATIENCE).unwrap();
    assert_eq!(since, Sum { arrived: said.meant, lost: 0, missing: 0, sent: said.meant });
    assert_eq!((said.delivered + late, said.refused), (said.meant, 0));

    drop(second);
    let mut refused = 0;
    while refused == 0 {
        refused += each(&mut members, Ask::Talk(10, 1)).unwrap().said.refused;
    }
    let _again = Router::start(program, &[&two], Some(&one)).unwrap();
    assert!(all_reach_all(&mut members, PATIENCE).unwrap(), "{members:?}");
    let (through, _) = settled(&mut members, before, PATIENCE).unwrap();
    assert!(through.is_whole() && through.lost + through.missing > 0, "{through:?}");

    let before = quiet(&mut members).unwrap();
    let said = each(&mut members, Ask::Talk(50, 1)).unwrap().said;
    let (since, _) = settled(&mut members, before, PATIENCE).unwrap();
    assert_eq!(since, Sum { arrived: said.meant, lost: 0, missing: 0, sent: said.meant });
    for member in &members {
        let ledger = member.node.ledger();
        assert_eq!((ledger.seal_missing, ledger.seal_bad_tag, ledger.bad_frames), (0, 0, 0), "{ledger}");
    }
    println!("through the death of a router: {through:?}");
}

/// Goal: the same by processes in two network namespaces, with 20 ms and 1 % loss between them. It holds over UDP, where losses reach
/// the bus, and over TCP. The program checks what it prints.
#[test]
fn sites_in_namespaces_of_their_own() {
    let _alive = watchdog(400);
    for link in ["udp", "tcp"] {
        let run = Command::new(env!("CARGO_BIN_EXE_punctual-zenoh-sites"))
            .args(["--link", link, "--rounds", "100"])
            .output();
        let run = run.unwrap();
        let (text, error) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        if run.status.code() == Some(3) {
            punctual_machine::skipped!("{error}");
            return;
        }
        assert!(run.status.success(), "{link}: {text}{error}");
        println!("{text}");
    }
}
