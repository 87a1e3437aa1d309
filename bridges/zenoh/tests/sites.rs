//! Two sites by two routers of processes of their own.

use std::path::Path;
use std::time::Duration;

use punctual::Keys;
use punctual_zenoh::ZenohBus;
use punctual_zenoh::rig::{Router, free_port};
use punctual_zenoh::scene::{Sum, all_reach_all, open_site, quiet, settled, sum, talk};

/// Longer than anything takes that does not hang: sessions come back within some seconds.
const PATIENCE: Duration = Duration::from_secs(40);

/// Goal: sealed messages go both ways; while a router is dead its site cannot be reached, and senders are told; when it is back all
/// goes on, in the accounts that were; and in the end every frame has arrived or is lost.
#[test]
fn a_router_is_killed_and_back() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(170));
        eprintln!("hangs");
        std::process::exit(101);
    });
    let program = Path::new(env!("CARGO_BIN_EXE_punctual-zenoh-router"));
    let [one, two] = [(); 2].map(|()| format!("tcp/127.0.0.1:{}", free_port()));
    let _first = Router::start(program, &[&one], None).unwrap();
    let second = Router::start(program, &[&two], Some(&one)).unwrap();
    let keys = Keys::random(1);
    let mut members = Vec::new();
    for (site, router) in [("a", &one), ("b", &two)] {
        let bus = ZenohBus::new("test", std::slice::from_ref(router));
        members.extend(open_site(&bus, &keys, (site, 2), PATIENCE).unwrap());
    }
    assert!(all_reach_all(&mut members, PATIENCE), "{:?}", sum(&members));
    quiet(&mut members);
    let before = sum(&members);

    let said = talk(&mut members, 50);
    let (since, late) = settled(&mut members, before, PATIENCE);
    assert_eq!(since, Sum { arrived: said.meant, lost: 0, missing: 0, sent: said.meant });
    assert_eq!((said.delivered + late, said.refused), (said.meant, 0));

    drop(second);
    let mut refused = 0;
    while refused == 0 {
        refused += talk(&mut members, 10).refused;
    }
    let _again = Router::start(program, &[&two], Some(&one)).unwrap();
    assert!(all_reach_all(&mut members, PATIENCE), "{:?}", sum(&members));
    let (through, _) = settled(&mut members, before, PATIENCE);
    assert!(through.is_whole() && through.lost > 0, "{through:?}");

    quiet(&mut members);
    let before = sum(&members);
    let said = talk(&mut members, 50);
    let (since, _) = settled(&mut members, before, PATIENCE);
    assert_eq!(since, Sum { arrived: said.meant, lost: 0, missing: 0, sent: said.meant });
    for member in &members {
        let ledger = member.node.ledger();
        assert_eq!((ledger.seal_missing, ledger.seal_bad_tag, ledger.bad_frames), (0, 0, 0), "{ledger}");
    }
    println!("through the death of a router: {through:?}");
}
