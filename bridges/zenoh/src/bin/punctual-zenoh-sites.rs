//! Two sites of three nodes, each by a router of its own, with 20 ms and 1 % loss between the routers; one of these is killed, and
//! comes back. Prints what was said, what arrived, and whether all accounts sum.

use std::process::ExitCode;
use std::time::Duration;

use punctual::Keys;
use punctual_zenoh::ZenohBus;
use punctual_zenoh::rig::{Router, free_port, slow_link};
use punctual_zenoh::scene::{Member, Sum, all_reach_all, open_site, quiet, settled, sum, talk};

const DELAY: Duration = Duration::from_millis(20);
const LOSS_PERMILLE: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u32 = 500;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every account sums.
fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let program = std::env::current_exe()?.with_file_name("punctual-zenoh-router");
    let [one, one_far, two, between] = [(); 4].map(|()| free_port());
    let (near, far) = (format!("tcp/127.0.0.1:{one}"), format!("udp/127.0.0.1:{one_far}"));
    let (other, link) = (format!("tcp/127.0.0.1:{two}"), format!("udp/127.0.0.1:{between}"));
    let _first = Router::start(&program, &[&near, &far], None)?;
    let count = slow_link(between, one_far, DELAY, LOSS_PERMILLE)?;
    let second = Router::start(&program, &[&other], Some(&link))?;
    let keys = Keys::random(1);
    let mut members = Vec::new();
    for (site, router) in [("a", near), ("b", other.clone())] {
        members.extend(open_site(&ZenohBus::new("plant", &[router]), &keys, (site, 3), PATIENCE)?);
    }
    let mut good = meet(&mut members, "at first");
    good &= say(&mut members, "both routers live");
    let before = sum(&members);
    drop(second);
    let mut refused = 0;
    while refused == 0 {
        refused += talk(&mut members, 10).refused;
    }
    println!("the router of site b is dead: {refused} messages to the other site were refused, nobody there");
    let _again = Router::start(&program, &[&other], Some(&link))?;
    good &= meet(&mut members, "after the router came back");
    let (through, _) = settled(&mut members, before, PATIENCE);
    good &= report("through its death", through);
    good &= say(&mut members, "both routers live again");
    println!("the link lost {} of {} datagrams", count.lost.get(), count.datagrams.get());
    for member in &members {
        println!("{}", member.node.ledger());
    }
    Ok(good)
}

fn meet(members: &mut [Member], when: &str) -> bool {
    let met = all_reach_all(members, PATIENCE);
    println!("{when} everybody reaches everybody: {met}");
    met
}

fn say(members: &mut [Member], when: &str) -> bool {
    quiet(members);
    let before = sum(members);
    let said = talk(members, ROUNDS);
    let (since, late) = settled(members, before, PATIENCE);
    println!("{when}: {} meant, {} delivered, {} refused", said.meant, said.delivered + late, said.refused);
    report(when, since)
}

fn report(when: &str, sum: Sum) -> bool {
    let Sum { arrived, lost, missing, sent } = sum;
    let whole = sum.is_whole();
    println!("{when}: {arrived} arrived + {lost} lost + {missing} missing = {sent} sent: {whole}");
    whole
}
