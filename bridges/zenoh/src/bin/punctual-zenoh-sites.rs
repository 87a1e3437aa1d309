//! Two sites of three nodes, each by a router of its own, with 20 ms and 1 % loss between the routers; one of these is killed, and
//! comes back. Prints what was said, what arrived, and whether all accounts sum.
//!
//! `punctual-zenoh-sites [--link udp|tcp|loopback] [--rounds N]`. Each node is a process, and so is each router. Sites are network
//! namespaces (root); with `loopback` they are not, and a link of datagrams in user space is between them.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use punctual::Keys;
use punctual_machine::SystemError;
use punctual_machine::process::{fill_with_secrets, user};
use punctual_zenoh::ZenohBus;
use punctual_zenoh::place::{Place, is_refused, two_sites};
use punctual_zenoh::rig::{LinkCount, Router, free_port, slow_link};
use punctual_zenoh::scene::{Ask, Elsewhere, Own, Sum, all_reach_all, answer_line, each, quiet, settled};
use punctual_zenoh::told::{Told, answer_lines};

const USAGE: &str = "usage: punctual-zenoh-sites [--link udp|tcp|loopback] [--rounds N]";
const DELAY: Duration = Duration::from_millis(20);
const LOSS_PERMILLE: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 6] = ["a0", "a1", "a2", "b0", "b1", "b2"];
/// Keys are handed from parent to child, on this host alone.
const KEYS: &str = "PUNCTUAL_ZENOH_SITES_KEYS";
/// Where this user may not make two sites.
const NOT_HERE: u8 = 3;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["node", name, router] => node(name, router).map(|()| true),
        _ => Plan::of(&words).and_then(|plan| run(&plan)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            let refused = error.downcast_ref::<SystemError>().is_some_and(|error| is_refused(error, user()));
            if refused { ExitCode::from(NOT_HERE) } else { ExitCode::FAILURE }
        }
    }
}

/// This process is a node, and does what it is told.
fn node(name: &str, router: &str) -> Outcome<()> {
    let bus = ZenohBus::new("plant", &[router.to_owned()]);
    let mut own = Own::open(&bus, &Keys::from_env(KEYS)?, name, &NAMES.map(str::to_owned), PATIENCE)?;
    println!("open");
    Ok(answer_lines(|line| answer_line(&mut own, line))?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Udp,
    Tcp,
    Loopback,
}

struct Plan {
    link: Link,
    rounds: u32,
}

impl Plan {
    fn of(words: &[String]) -> Outcome<Self> {
        let mut plan = Self { link: Link::Udp, rounds: 500 };
        for pair in words.chunks(2) {
            match pair.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["--link", "udp"] => plan.link = Link::Udp,
                ["--link", "tcp"] => plan.link = Link::Tcp,
                ["--link", "loopback"] => plan.link = Link::Loopback,
                ["--rounds", rounds] => plan.rounds = rounds.parse()?,
                _ => return Err(USAGE.into()),
            }
        }
        Ok(plan)
    }

    /// Milliseconds between two rounds: TCP repeats what is lost, and over this link carries half a megabyte a second.
    fn pause_ms(&self) -> u64 {
        if self.link == Link::Tcp { 10 } else { 1 }
    }
}

/// Where the sites are, and what is between them.
enum Between {
    Wire([Place; 2]),
    Loopback(Arc<LinkCount>),
}

impl Between {
    fn within<T: Send + 'static>(&self, site: usize, act: impl FnOnce() -> T + Send + 'static) -> T {
        match self {
            Self::Wire(places) => places[site].within(act),
            Self::Loopback(_) => act(),
        }
    }
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(places) => {
                for (name, place) in ["a", "b"].iter().zip(places) {
                    let came = place.came().map_err(|_| fmt::Error)?;
                    write!(f, "of {} packets for site {name} the wire lost {}. ", came.seen, came.lost)?;
                }
                Ok(())
            }
            Self::Loopback(count) => {
                write!(f, "of {} datagrams the link lost {}", count.datagrams.get(), count.lost.get())
            }
        }
    }
}

/// Both sites' routers: the addresses for the nodes there, and all that is needed to start each router.
struct Routers {
    between: Between,
    program: PathBuf,
    /// Addresses that each listens on, and the address that the second connects to.
    nodes: [String; 2],
    far: String,
    link: String,
}

impl Routers {
    fn new(link: Link) -> Outcome<Self> {
        let program = std::env::current_exe()?.with_file_name("punctual-zenoh-router");
        if link == Link::Loopback {
            let [one, one_far, two, between] = [(); 4].map(|()| free_port());
            let count = slow_link(between, one_far, DELAY, LOSS_PERMILLE)?;
            let [near, other] = [one, two].map(|port| format!("tcp/127.0.0.1:{port}"));
            let [far, link] = [one_far, between].map(|port| format!("udp/127.0.0.1:{port}"));
            return Ok(Self { between: Between::Loopback(count), program, nodes: [near, other], far, link });
        }
        let places = two_sites(["10.77.19.1", "10.77.19.2"], DELAY, 1_000 * LOSS_PERMILLE)?;
        let kind = if link == Link::Udp { "udp" } else { "tcp" };
        let far = format!("{kind}/10.77.19.1:7448");
        let nodes = [(); 2].map(|()| "tcp/127.0.0.1:7447".to_owned());
        Ok(Self { between: Between::Wire(places), program, nodes, link: far.clone(), far })
    }

    fn start(&self, site: usize) -> Outcome<Router> {
        let (program, node, far) = (self.program.clone(), self.nodes[site].clone(), self.far.clone());
        let link = self.link.clone();
        Ok(self.between.within(site, move || match site {
            0 => Router::start(&program, &[&node, &far], None),
            _ => Router::start(&program, &[&node], Some(&link)),
        })?)
    }

    fn members(&self) -> Outcome<Vec<Elsewhere>> {
        let mut secret = [0; 16];
        fill_with_secrets(&mut secret);
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let program = std::env::current_exe()?;
        let start = |(at, name): (usize, &'static str)| -> Outcome<Elsewhere> {
            let site = at / (NAMES.len() / 2);
            let (program, router) = (program.clone(), self.nodes[site].clone());
            let keys = format!("1 1 {secret}");
            Ok(Elsewhere(self.between.within(site, move || {
                Told::start(Command::new(program).args(["node", name, &router]).env(KEYS, keys))
            })?))
        };
        let mut members = NAMES.into_iter().enumerate().map(start).collect::<Outcome<Vec<_>>>()?;
        members.iter_mut().try_for_each(|member| member.0.hear().map(drop))?;
        Ok(members)
    }
}

/// Returns true if every account adds up.
fn run(plan: &Plan) -> Outcome<bool> {
    let routers = Routers::new(plan.link)?;
    let _first = routers.start(0)?;
    let second = routers.start(1)?;
    let mut members = routers.members()?;
    let mut good = meet(&mut members, "at first")?;
    good &= say(&mut members, plan, "both routers live")?;
    let before = quiet(&mut members)?;
    drop(second);
    let mut refused = 0;
    while refused == 0 {
        refused += each(&mut members, Ask::Talk(10, plan.pause_ms()))?.said.refused;
    }
    println!("the router of site b is dead: {refused} messages were refused, nobody there");
    let _again = routers.start(1)?;
    good &= meet(&mut members, "after the router came back")?;
    let (through, _) = settled(&mut members, before, PATIENCE)?;
    good &= report("through its death", through);
    good &= say(&mut members, plan, "both routers live again")?;
    println!("{}", routers.between);
    for (name, member) in NAMES.iter().zip(&mut members) {
        let (far, ledger) = member.ledger()?;
        println!("{name}: {far} from the other site; {ledger}");
        good &= far > 0;
    }
    println!("every account sums: {good}");
    Ok(good)
}

fn meet(members: &mut [Elsewhere], when: &str) -> Outcome<bool> {
    let met = all_reach_all(members, PATIENCE)?;
    println!("{when} everybody reaches everybody: {met}");
    Ok(met)
}

fn say(members: &mut [Elsewhere], plan: &Plan, when: &str) -> Outcome<bool> {
    let before = quiet(members)?;
    let said = each(members, Ask::Talk(plan.rounds, plan.pause_ms()))?.said;
    let (since, late) = settled(members, before, PATIENCE)?;
    let delivered = said.delivered + late;
    println!("{when}: {} meant, {delivered} delivered, {} refused", said.meant, said.refused);
    // Nothing of it may be repeated or come from elsewhere: the messages that arrived are those that were delivered.
    let is_delivered = delivered == since.arrived && said.meant == since.sent;
    Ok(report(when, since) && is_delivered)
}

fn report(when: &str, sum: Sum) -> bool {
    let Sum { arrived, lost, missing, sent } = sum;
    let whole = sum.is_whole();
    println!("{when}: {arrived} arrived + {lost} lost + {missing} missing = {sent} sent: {whole}");
    whole
}
