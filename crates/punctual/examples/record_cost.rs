//! Cost of a recorder for a stream, or of live counters that are asked for each second. Messages of 64 bytes go over shared memory,
//! with `punctual record` or `punctual stat --serve` beside them, and without, in turn. Run: `cargo build --release && cargo run
//! --release -p punctual --example record_cost -- target/release/punctual`
//!
//! Two threads of one process, spinning, each on a CPU of its own; the recorder is where the kernel puts it. Loads: `full` sends
//! as fast as readers allow; a number of messages per second sends each at its instant. Prints for each turn the latency from
//! the sender's stamp to the reader's copy and the messages per second; at the end the median over turns of the ratio of the
//! p50 with a recorder to that without, with the least and the largest. A turn whose recorder did not run to its end fails.
//!
//! `--turns N` (9), `--seconds S` (2), `--loads full,100000`, `--beside record|scrape` (record), and behind `--` what is added to
//! `punctual record`.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual::memory::WhenFull;
use punctual::publication::StampChoice;
use punctual::{Bus, Clock, Node, PublicationOptions, SubscriptionOptions, Target, Wake};
use punctual_machine::counter::{Counter, Flag};
use punctual_machine::cpu::{allowed, pin_to};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Latencies that are kept of one turn.
const KEPT_MAX: usize = 1 << 20;

struct Options {
    punctual: PathBuf,
    turns: usize,
    seconds: f64,
    loads: Vec<Load>,
    scrapes: bool,
    more: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Load {
    Full,
    PerSecond(u64),
}

fn options() -> Outcome<Options> {
    let mut words = std::env::args().skip(1);
    let punctual = words.next().ok_or("the path of the command punctual is needed")?.into();
    let loads = vec![Load::Full, Load::PerSecond(100_000)];
    let mut options = Options { punctual, turns: 9, seconds: 2.0, loads, scrapes: false, more: Vec::new() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--turns" => options.turns = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--loads" => {
                let load = |text: &str| match text {
                    "full" => Ok(Load::Full),
                    text => text.parse().map(Load::PerSecond),
                };
                options.loads = value()?.split(',').map(load).collect::<Result<_, _>>()?;
            }
            "--beside" => {
                options.scrapes = match value()?.as_str() {
                    "record" => false,
                    "scrape" => true,
                    other => return Err(format!("--beside {other}: record or scrape").into()),
                };
            }
            "--" => options.more = words.by_ref().collect(),
            other => return Err(format!("{other} is no option").into()),
        }
    }
    Ok(options)
}

/// Results of one turn.
struct Turn {
    p50_ns: u64,
    p99_ns: u64,
    per_second: f64,
    sent: u64,
}

fn turn(bus: &Bus, load: Load, seconds: f64, (first, second): (usize, usize)) -> Outcome<Turn> {
    let (here, there) = (Node::open(bus, "sender")?, Node::open(bus, "reader")?);
    let mut subscription = there.subscription(7, &SubscriptionOptions { wake: Wake::Spin })?;
    let options = PublicationOptions {
        when_full: Some(WhenFull::HoldBack),
        stamps: StampChoice::Ends,
        ..PublicationOptions::default()
    };
    let mut publication = here.publication(Target::port("reader", 7), &options)?;
    let clock = Clock::get();
    let (over, received) = (Flag::default(), Counter::default());
    let mut latencies = Vec::with_capacity(KEPT_MAX);
    let begin = Instant::now();
    let sent = std::thread::scope(|scope| {
        let (over, received, latencies) = (&over, &received, &mut latencies);
        scope.spawn(move || {
            let _unpinned = pin_to(second);
            let mut buffer = [0; 64];
            let mut step = 0_u64;
            while !over.is_raised() {
                let Ok(message) = subscription.try_receive(&mut buffer) else { continue };
                received.publish(received.get() + 1);
                step += 1;
                // Of a fast stream one in sixteen: the memory for more would be part of what is measured.
                let is_kept = matches!(load, Load::PerSecond(_)) || step.is_multiple_of(16);
                if let (true, Some(sent), Some(delivered)) = (is_kept, message.sent, message.delivered)
                    && latencies.len() < KEPT_MAX
                {
                    latencies.push(clock.nanos(delivered.since(sent)));
                }
            }
        });
        let sender = scope.spawn(move || {
            let _unpinned = pin_to(first);
            let (mut sent, mut message) = (0_u64, [0; 64]);
            let start = clock.now();
            while begin.elapsed().as_secs_f64() < seconds {
                for _ in 0..64 {
                    if let Load::PerSecond(rate) = load {
                        let due = start.plus(clock.ticks(Duration::from_nanos(sent * 1_000_000_000 / rate)));
                        while clock.now() < due {
                            std::hint::spin_loop();
                        }
                    }
                    message[..8].copy_from_slice(&sent.to_le_bytes());
                    while publication.offer(&message).is_err() {
                        std::hint::spin_loop();
                    }
                    sent += 1;
                }
            }
            let end = Instant::now();
            while received.get_published() < sent && end.elapsed() < Duration::from_secs(5) {
                std::thread::yield_now();
            }
            sent
        });
        let sent = sender.join().expect("it sends");
        over.raise();
        sent
    });
    latencies.sort_unstable();
    let quantile = |permille: usize| latencies[latencies.len() * permille / 1000];
    let per_second = sent as f64 / begin.elapsed().as_secs_f64();
    Ok(Turn { p50_ns: quantile(500), p99_ns: quantile(990), per_second, sent })
}

/// Exit codes of a recorder that recorded: it may miss some of what a stream sends, and says so.
const RECORDED: &[i32] = &[0, 1];

/// A command that runs beside the stream, and ends with this.
struct Beside(Child);

impl Beside {
    /// Starts it, and gives it time to begin.
    fn begin(command: &mut Command) -> Outcome<Self> {
        let mut beside = Self(command.stderr(Stdio::null()).spawn()?);
        std::thread::sleep(Duration::from_millis(300));
        beside.check()?;
        Ok(beside)
    }

    /// A turn without it would be taken for one with it.
    fn check(&mut self) -> Outcome<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the command beside the stream ended by itself: {status}").into()),
        }
    }

    /// Ends it; its output, if it ends by one of these codes.
    fn end(mut self, codes: &[i32]) -> Outcome<String> {
        self.check()?;
        Command::new("sh").args(["-c", "kill \"$@\"", "kill", "-INT", &self.0.id().to_string()]).status()?;
        let mut said = String::new();
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut said)?;
        }
        let status = self.0.wait()?;
        if !status.code().is_some_and(|code| codes.contains(&code)) {
            return Err(format!("the command beside the stream: {status}").into());
        }
        Ok(said.trim().to_owned())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped_already = self.0.wait();
    }
}

fn recorder(options: &Options, bus: &str, file: &PathBuf) -> Outcome<Beside> {
    let mut command = Command::new(&options.punctual);
    command.arg("record").arg(format!("shared:{bus}")).arg("--out").arg(file).args(["--json", "-"]);
    Beside::begin(command.args(&options.more).stdout(Stdio::piped()))
}

/// Raised at the end, however that comes.
struct Ending(Arc<Flag>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// Live counters for a server that asks each second.
struct Scraped {
    beside: Beside,
    asks: std::thread::JoinHandle<u64>,
    ending: Ending,
}

/// Interval at which the counters are asked for.
const SCRAPE_EVERY: Duration = Duration::from_secs(1);

/// Time until they are asked for first: the stream's nodes are there then.
const SCRAPE_AFTER: Duration = Duration::from_millis(100);

impl Scraped {
    fn begin(options: &Options) -> Outcome<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(&options.punctual);
        command.args(["stat", "--serve", &address.to_string()]);
        let beside = Beside::begin(command.stdout(Stdio::null()))?;
        let over = Arc::new(Flag::default());
        let ending = Ending(Arc::clone(&over));
        let asks = std::thread::spawn(move || {
            let (mut answers, mut next) = (0, Instant::now() + SCRAPE_AFTER);
            loop {
                while !over.is_raised() && Instant::now() < next {
                    std::thread::sleep(Duration::from_millis(20));
                }
                if over.is_raised() {
                    return answers;
                }
                let mut page = String::new();
                let asked = TcpStream::connect(address).and_then(|mut stream| {
                    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
                    stream.read_to_string(&mut page)
                });
                answers += u64::from(asked.is_ok() && page.contains("punctual_node_sent_total"));
                next += SCRAPE_EVERY;
            }
        });
        Ok(Self { beside, asks, ending })
    }

    fn end(self) -> Outcome<String> {
        drop(self.ending);
        let answers = self.asks.join().map_err(|_| "the server that asks panicked")?;
        self.beside.end(&[0])?;
        if answers == 0 {
            return Err("the counters were asked for, and no answer had them".into());
        }
        Ok(format!("{answers} answers"))
    }
}

fn main() -> Outcome<()> {
    let options = options()?;
    let name = format!("record-cost-{}", std::process::id());
    // Before a thread is bound, and others are made by it.
    let cpus = allowed();
    let cpus = (cpus[0], cpus[cpus.len() - 1]);
    let file = std::env::temp_dir().join(format!("{name}.pcapng"));
    for &load in &options.loads {
        let mut ratios = Vec::new();
        for number in 0..options.turns {
            let bus = Bus::shared(&name);
            let bare = |label: &str| -> Outcome<Turn> {
                let turn = turn(&bus, load, options.seconds, cpus)?;
                let Turn { p50_ns, p99_ns, per_second, .. } = turn;
                println!(
                    "{load:?} {number} {label}: p50 {p50_ns} ns, p99 {p99_ns} ns, {per_second:.0} msg/s"
                );
                Ok(turn)
            };
            let beside = |label: &str| -> Outcome<Turn> {
                if options.scrapes {
                    let scraped = Scraped::begin(&options)?;
                    let turn = bare("scraped")?;
                    println!("  sent {}; {}", turn.sent, scraped.end()?);
                    return Ok(turn);
                }
                let recorder = recorder(&options, &name, &file)?;
                let turn = bare(label)?;
                println!("  sent {}; {}", turn.sent, recorder.end(RECORDED)?);
                let _swept = std::fs::remove_file(&file);
                Ok(turn)
            };
            // In turn, and the other way round the next time.
            let (without, with) = if number.is_multiple_of(2) {
                let without = bare("without")?;
                (without, beside("recorded")?)
            } else {
                let with = beside("recorded")?;
                (bare("without")?, with)
            };
            ratios.push(with.p50_ns as f64 / without.p50_ns as f64);
        }
        ratios.sort_by(f64::total_cmp);
        let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
        let beside = if options.scrapes { "scraped" } else { "recorded" };
        println!("{load:?}: p50 {beside} / without: {median:.3} ({least:.3} to {most:.3})");
    }
    Ok(())
}
