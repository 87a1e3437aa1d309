//! Ours beside bare Zenoh, in turn, over the same two routers: round trips one after the other, and messages as fast as they go.

use std::time::{Duration, Instant};

use punctual::{Communicator, CommunicatorOptions, Keys, Node, Target, Wake};
use punctual_zenoh::ZenohBus;
use punctual_zenoh::rig::{Router, free_port};
use zenoh::handlers::FifoChannelHandler;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Session, Wait};

const SIZE: usize = 64;
const ROUNDS: usize = 9;
const TRIPS: usize = 2_000;
const MESSAGES: usize = 40_000;
const PATIENCE: Duration = Duration::from_secs(10);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One end of bare Zenoh.
struct Bare {
    _session: Session,
    publisher: Publisher<'static>,
    subscriber: Subscriber<FifoChannelHandler<Sample>>,
}

impl Bare {
    fn open(router: &str, own: &str, other: &str) -> Outcome<Self> {
        let mut config = zenoh::Config::default();
        config.insert_json5("mode", "\"client\"")?;
        // As the adapter has it.
        config.insert_json5("transport/link/tx/queue/size/data", "16")?;
        config.insert_json5("scouting/multicast/enabled", "false")?;
        config.insert_json5("connect/endpoints", &format!("{:?}", [router]))?;
        let session = zenoh::open(config).wait()?;
        let subscriber = session.declare_subscriber(format!("bare/{own}")).wait()?;
        let publisher = session.declare_publisher(format!("bare/{other}"));
        let publisher = publisher.congestion_control(CongestionControl::Block).wait()?;
        Ok(Self { _session: session, publisher, subscriber })
    }
}

/// What a game is played with: either sends a payload, or waits for one.
trait End: Send {
    fn send(&mut self, payload: &[u8]) -> Outcome<()>;
    fn receive(&mut self) -> Outcome<()>;
}

impl End for Bare {
    fn send(&mut self, payload: &[u8]) -> Outcome<()> {
        self.publisher.put(payload.to_vec()).wait()
    }

    fn receive(&mut self) -> Outcome<()> {
        let sample = self.subscriber.recv_timeout(PATIENCE)?.ok_or("nothing came")?;
        assert_eq!(sample.payload().to_bytes().len(), SIZE);
        Ok(())
    }
}

struct Ours(Communicator, Target);

impl End for Ours {
    fn send(&mut self, payload: &[u8]) -> Outcome<()> {
        Ok(self.0.send_timeout(self.1, payload, PATIENCE)?)
    }

    fn receive(&mut self) -> Outcome<()> {
        let message = self.0.receive_timeout(PATIENCE).map_err(|error| format!("{error:?}"))?;
        assert_eq!(message.payload.len(), SIZE);
        Ok(())
    }
}

/// The median round trip, microseconds.
fn trips(here: &mut dyn End, there: &mut dyn End) -> Outcome<f64> {
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            for _ in 0..TRIPS {
                there.receive()?;
                there.send(&[2; SIZE])?;
            }
            Ok(())
        });
        let mut took = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let began = Instant::now();
            here.send(&[1; SIZE])?;
            here.receive()?;
            took.push(began.elapsed());
        }
        echo.join()
            .map_err(|_| "the echo panicked")?
            .map_err(|error: Box<dyn std::error::Error + Send + Sync>| error)?;
        took.sort();
        Ok(took[TRIPS / 2].as_secs_f64() * 1e6)
    })
}

/// Messages in a second, thousands.
fn flow(here: &mut dyn End, there: &mut dyn End) -> Outcome<f64> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let sink = scope.spawn(|| (0..MESSAGES).try_for_each(|_| there.receive()));
        for _ in 0..MESSAGES {
            here.send(&[3; SIZE])?;
        }
        sink.join().map_err(|_| "the sink panicked")?
    })?;
    Ok(MESSAGES as f64 / began.elapsed().as_secs_f64() / 1e3)
}

fn ours(routers: &[String; 2], sealed: bool, wake: Wake) -> Outcome<[Ours; 2]> {
    let keys = Keys::random(1);
    let open = |router: &String, name: &str| {
        let bus = ZenohBus::new(if sealed { "sealed" } else { "plain" }, std::slice::from_ref(router));
        let bus = bus.blocks(true).frames(2 * MESSAGES).bus();
        Node::open(&if sealed { bus.sealed(&keys) } else { bus }, name)
    };
    let nodes = [open(&routers[0], "here")?, open(&routers[1], "there")?];
    let options = CommunicatorOptions::waiting(wake);
    let [here, there] = [nodes[0].bind_with(1, &options)?, nodes[1].bind_with(1, &options)?];
    Ok([Ours(here, Target::port("there", 1)), Ours(there, Target::port("here", 1))])
}

fn main() -> Outcome<()> {
    let program = std::env::current_exe()?.with_file_name("punctual-zenoh-router");
    let routers = [(); 2].map(|()| format!("tcp/127.0.0.1:{}", free_port()));
    let _first = Router::start(&program, &[&routers[0]], None)?;
    std::thread::sleep(Duration::from_secs(1));
    let _second = Router::start(&program, &[&routers[1]], Some(&routers[0]))?;
    std::thread::sleep(Duration::from_secs(2));
    let mut bare = [Bare::open(&routers[0], "here", "there")?, Bare::open(&routers[1], "there", "here")?];
    // As bare Zenoh waits; another way may be named.
    let wake = std::env::args().nth(1).map_or(Ok(Wake::Futex), |name| name.parse())?;
    let mut plain = ours(&routers, false, wake)?;
    let mut sealed = ours(&routers, true, wake)?;
    std::thread::sleep(Duration::from_secs(1));
    let mut rows: [Vec<[f64; 2]>; 3] = Default::default();
    for round in 0..=ROUNDS {
        let [bare_here, bare_there] = &mut bare;
        let [plain_here, plain_there] = &mut plain;
        let [sealed_here, sealed_there] = &mut sealed;
        let mut ends: [(usize, &mut dyn End, &mut dyn End); 3] =
            [(0, bare_here, bare_there), (1, plain_here, plain_there), (2, sealed_here, sealed_there)];
        // Each comes behind each of the others.
        ends.rotate_left(round % 3);
        for (which, here, there) in ends {
            let row = &mut rows[which];
            let figures = [trips(here, there)?, flow(here, there)?];
            // The first is for warming up.
            if round > 0 {
                row.push(figures);
            }
        }
    }
    let median = |row: &[[f64; 2]], which: usize| {
        let mut all: Vec<f64> = row.iter().map(|figures| figures[which]).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (trip, rate) = (median(&rows[0], 0), median(&rows[0], 1));
    for (name, row) in ["bare Zenoh", "ours", "ours, sealed"].iter().zip(&rows) {
        let (own_trip, own_rate) = (median(row, 0), median(row, 1));
        println!(
            "{name:13} p50 round trip {own_trip:7.1} µs ({:.2} x), {own_rate:7.1} thousand messages/s ({:.2} x)",
            own_trip / trip,
            own_rate / rate
        );
    }
    Ok(())
}
