//! Time for which the others stand still while a member is given a large state: `cargo run --release -p punctual --example replica_snapshot [MIB]`.
//!
//! Three members have the state and get a command each millisecond. A fourth joins. Printed is the longest time that one of the three
//! applied nothing, before and while the snapshot was under way.

use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use punctual::broadcast::{Change, Command, GroupOptions, Replica, ReplicaError, State};
use punctual::{Bus, Node};
use punctual_machine::counter::{Counter, Flag};

const PAGE_SIZE: usize = 64 << 10;

/// Longest wait for the state. One gibibyte takes seconds.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Pages, of which a command changes one. A snapshot shares what does not change.
struct Pages(Vec<Arc<Vec<u8>>>);

struct Snapshot(Vec<Arc<Vec<u8>>>, usize);

impl State for Pages {
    type Output = ();
    type Snapshot = Snapshot;

    fn apply(&mut self, command: Command<'_>) {
        let number = usize::from(command.payload[0]) % self.0.len();
        Arc::make_mut(&mut self.0[number])[0] ^= command.payload[0];
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot(self.0.clone(), 0)
    }

    fn read(Snapshot(pages, at): &mut Snapshot, buffer: &mut [u8]) -> usize {
        let Some(page) = pages.get(*at / PAGE_SIZE) else { return 0 };
        let rest = &page[*at % PAGE_SIZE..];
        let size = rest.len().min(buffer.len());
        buffer[..size].copy_from_slice(&rest[..size]);
        *at += size;
        size
    }

    fn reset(&mut self) {
        self.0.clear();
    }

    fn restore(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            if self.0.last().is_none_or(|page| page.len() == PAGE_SIZE) {
                self.0.push(Arc::new(Vec::with_capacity(PAGE_SIZE)));
            }
            let page = Arc::make_mut(self.0.last_mut().expect("pushed above"));
            let (now, later) = part.split_at(part.len().min(PAGE_SIZE - page.len()));
            page.extend_from_slice(now);
            part = later;
        }
    }
}

/// Progress of the run: the three go on alone, the fourth is given the state, all is over.
#[derive(Default)]
struct Progress {
    is_given: Flag,
    is_over: Flag,
    /// Members that have the state.
    restored: Counter,
}

/// Ends the members' threads however their parent ends: else it would wait for them for ever.
struct Ending<'a>(&'a Progress);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.raise();
    }
}

/// One of the three: the longest time in which it applied nothing, before and while the state was given.
fn go_on(
    mut replica: Replica<Pages>,
    sends: bool,
    progress: &Progress,
) -> Result<[Duration; 2], ReplicaError> {
    let mut gaps = [Duration::ZERO; 2];
    let mut note = |last: Option<Instant>| {
        let gap = &mut gaps[usize::from(progress.is_given.is_raised())];
        *gap = last.map_or(Duration::ZERO, |last| last.elapsed()).max(*gap);
    };
    let (mut last, mut sent, mut had) = (None, Instant::now(), false);
    while !progress.is_over.is_raised() {
        if sends && sent.elapsed() >= Duration::from_millis(1) && replica.try_broadcast(&[7]).is_ok() {
            sent = Instant::now();
        }
        match replica.deliver(Duration::from_micros(500)) {
            Ok(Change::Applied { .. }) => note(last.replace(Instant::now())),
            Ok(_) | Err(ReplicaError::Empty) => {}
            Err(error) => {
                eprintln!("{}: {error}", replica.node());
                return Err(error);
            }
        }
        if !had && replica.state().is_some() {
            had = true;
            last = last.or_else(|| Some(Instant::now()));
            progress.restored.add(1);
        }
    }
    // A member that stands still until the end applies nothing that would show it.
    note(last);
    Ok(gaps)
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A member's thread.
type Member<'scope> = ScopedJoinHandle<'scope, Result<[Duration; 2], ReplicaError>>;

/// Waits until a member has the state, or one of the three has ended.
fn wait_for(mut is_there: impl FnMut() -> Outcome<bool>, members: &[Member<'_>]) -> Outcome<()> {
    let begin = Instant::now();
    while !is_there()? {
        if members.iter().any(ScopedJoinHandle::is_finished) {
            return Err("one of the three has ended".into());
        }
        if begin.elapsed() > WAIT_MAX {
            return Err(format!("no state after {WAIT_MAX:?}").into());
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let mib: usize = std::env::args().nth(1).map_or(Ok(256), |text| text.parse())?;
    let bus = Bus::shared(&format!("snapshot-{}", std::process::id()));
    let names = ["anne", "bob", "carl", "dave"];
    let nodes: Vec<Node> = names.iter().map(|name| Node::open(&bus, name)).collect::<Result<_, _>>()?;
    let options = GroupOptions::new("pages", &names);
    let progress = Progress::default();
    let whole = || Pages((0..mib << 20 >> 16).map(|_| Arc::new(vec![1; PAGE_SIZE])).collect());
    let mut old = Vec::new();
    for (place, node) in nodes[..3].iter().enumerate() {
        // The founder's state is the group's. The others are given it.
        let (options, state) = if place == 0 {
            (options.clone().founding(), whole())
        } else {
            (options.clone(), Pages(Vec::new()))
        };
        old.push(Replica::join(node, &options, state)?);
    }
    std::thread::scope(|scope| {
        let (progress, ending) = (&progress, Ending(&progress));
        let threads: Vec<Member<'_>> = old
            .into_iter()
            .enumerate()
            .map(|(place, replica)| scope.spawn(move || go_on(replica, place == 0, progress)))
            .collect();
        let have_it = || {
            std::thread::sleep(Duration::from_millis(10));
            Ok(progress.restored.get() == 3)
        };
        wait_for(have_it, &threads)?;
        std::thread::sleep(Duration::from_secs(3));
        progress.is_given.raise();
        let begin = Instant::now();
        let mut dave = Replica::join(&nodes[3], &options, Pages(Vec::new()))?;
        let has_it = || match dave.deliver(Duration::from_millis(1)).map(drop) {
            Ok(()) | Err(ReplicaError::Empty) => Ok(dave.state().is_some()),
            Err(error) => Err(error.into()),
        };
        wait_for(has_it, &threads)?;
        let took = begin.elapsed();
        drop(ending);
        println!("{mib} MiB were given in {:.2} s", took.as_secs_f64());
        for (name, thread) in names.iter().zip(threads) {
            let [before, while_given] = thread.join().map_err(|_| "a member failed")??;
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            println!(
                "{name}: nothing for {:.1} ms at most before, {:.1} ms meanwhile",
                ms(before),
                ms(while_given)
            );
        }
        Ok(())
    })
}
