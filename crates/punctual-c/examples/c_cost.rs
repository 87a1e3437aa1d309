//! Cost of a round trip from C beside one from Rust: 64 bytes there and back over shared memory, both ends spinning, each process on a
//! CPU of its own. Run: `cargo run --release -p punctual-c --example c_cost`
//!
//! Both languages are built with one profile, and measured in turn: each opening is two new processes. Prints the median round trip
//! of each, and how many times as long C takes: the median of the openings, and the least and largest.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual::{Bus, CommunicatorOptions, Node, Target, Wake};
use punctual_machine::cpu::{allowed, pin_to};

/// So short that most see nothing of what else runs.
const TRIPS: usize = 200;
const BATCHES: usize = 2_000;
const OPENINGS: usize = 21;
const PATIENCE: Duration = Duration::from_secs(10);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [role, bus, ..] if role == "ask" || role == "answer" => take_part(role, bus),
        [] => compare(),
        _ => Err("c_cost takes no arguments".into()),
    }
}

/// As `round_trip.c`.
fn take_part(role: &str, bus: &str) -> Outcome<()> {
    let asks = role == "ask";
    let node = Node::open(&Bus::shared(bus), role)?;
    let mut own = node.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin))?;
    let other = Target::port(if asks { "answer" } else { "ask" }, 1);
    let mut bytes = [1; 64];
    if asks {
        own.send_timeout(other, &bytes, PATIENCE)?;
        bytes.copy_from_slice(own.receive_timeout(PATIENCE)?.payload);
        for _ in 0..BATCHES {
            let begun = Instant::now();
            for _ in 0..TRIPS {
                own.try_send(other, &bytes)?;
                bytes.copy_from_slice(own.receive()?.payload);
            }
            println!("{:.2}", begun.elapsed().as_nanos() as f64 / TRIPS as f64);
        }
    } else {
        for _ in 0..=BATCHES * TRIPS {
            let message = own.receive()?;
            let back = Target::from(message.source);
            bytes.copy_from_slice(message.payload);
            own.try_send(back, &bytes)?;
        }
    }
    Ok(())
}

/// Compiles the program in C against the library that cargo built for this example: it lies with what examples depend on. The one beside
/// that folder may be of an earlier build.
fn compiled(place: &Path) -> Outcome<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::current_exe()?;
    let folder = folder.ancestors().nth(2).ok_or("no folder of libraries")?.join("deps");
    let library = folder.join("libpunctual_c.so");
    if !library.is_file() {
        let library = library.display();
        return Err(format!("no {library}: cargo run --release -p punctual-c --example c_cost").into());
    }
    let program = place.join("round_trip");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-I"])
        .arg(package.join("include"))
        .arg(package.join("examples/round_trip.c"));
    cc.arg("-o").arg(&program).arg(&library).arg(format!("-Wl,-rpath,{}", folder.display()));
    if cc.status()?.success() { Ok(program) } else { Err("cc did not compile round_trip.c".into()) }
}

/// Starts one end on a CPU, which its process inherits.
fn start(program: &Path, role: &str, bus: &str, cpu: usize) -> Outcome<Child> {
    let _unpinned_is_slower = pin_to(cpu);
    let (batches, trips) = (BATCHES.to_string(), TRIPS.to_string());
    Ok(Command::new(program).args([role, bus, &batches, &trips]).stdout(Stdio::piped()).spawn()?)
}

/// The median trip of one opening, nanoseconds.
fn measured(program: &Path, bus: &str, cpus: (usize, usize)) -> Outcome<f64> {
    let mut answers = start(program, "answer", bus, cpus.1)?;
    let asks = start(program, "ask", bus, cpus.0)?.wait_with_output()?;
    if !(asks.status.success() && answers.wait()?.success()) {
        return Err(format!("{} failed", program.display()).into());
    }
    let batches: Result<Vec<f64>, _> = String::from_utf8(asks.stdout)?.lines().map(str::parse).collect();
    Ok(median(batches?))
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

fn compare() -> Outcome<()> {
    let cpus = allowed();
    let (&first, &second) = cpus.first().zip(cpus.get(1)).ok_or("two CPUs are needed")?;
    let place = std::env::temp_dir().join(format!("punctual-c-cost-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let (c, rust) = (compiled(&place)?, std::env::current_exe()?);
    let mut trips: [Vec<f64>; 2] = Default::default();
    for opening in 0..OPENINGS {
        // The order changes, so that neither always has the warmer machine.
        let order = if opening % 2 == 0 { [0, 1] } else { [1, 0] };
        for language in order {
            let bus = format!("c-cost-{}-{opening}-{language}", std::process::id());
            trips[language].push(measured([&c, &rust][language], &bus, (first, second))?);
        }
    }
    std::fs::remove_dir_all(&place)?;
    let mut ratios: Vec<f64> = trips[0].iter().zip(&trips[1]).map(|(c, rust)| c / rust).collect();
    ratios.sort_by(f64::total_cmp);
    let [c, rust] = trips.map(median);
    let (least, middle, largest) = (ratios[0], ratios[OPENINGS / 2], ratios[OPENINGS - 1]);
    println!("Rust {rust:.0} ns, C {c:.0} ns: {middle:.3} times as long ({least:.3} to {largest:.3})");
    Ok(())
}
