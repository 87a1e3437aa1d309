//! One end of each that is compared, in a process: bare Zenoh, a node, a node with seals; and what both ends play.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use punctual::{Communicator, CommunicatorOptions, Keys, Node, ReceiveError, Target, Wake};
use punctual_zenoh::ZenohBus;
use punctual_zenoh::told::answer_lines;
use zenoh::handlers::{FifoChannel, FifoChannelHandler};
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Session, Wait};

use super::{KEYS, Outcome};

/// Messages that wait at an end until it takes them.
const QUEUE: usize = 100_000;
/// Time without a message after which all have come, or are lost.
const SILENCE: Duration = Duration::from_secs(1);
/// Messages that say that a game is over: some of them may be lost.
const GOODBYES: u64 = 5;
/// Header of a message: the number of its game, and its own number there.
const HEAD: usize = 16;

/// An endpoint with which a game is played.
trait End {
    fn send(&mut self, payload: &[u8]) -> Outcome<()>;
    /// The next payload, into `into`; `false` if none comes for so long.
    fn receive(&mut self, into: &mut Vec<u8>, patience: Duration) -> Outcome<bool>;
}

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
        let subscriber =
            session.declare_subscriber(format!("bare/{own}")).with(FifoChannel::new(QUEUE)).wait()?;
        let publisher = session.declare_publisher(format!("bare/{other}"));
        let publisher = publisher.congestion_control(CongestionControl::Block).wait()?;
        Ok(Self { _session: session, publisher, subscriber })
    }
}

impl End for Bare {
    fn send(&mut self, payload: &[u8]) -> Outcome<()> {
        self.publisher.put(payload.to_vec()).wait()
    }

    fn receive(&mut self, into: &mut Vec<u8>, patience: Duration) -> Outcome<bool> {
        let Some(sample) = self.subscriber.recv_timeout(patience)? else { return Ok(false) };
        into.clear();
        into.extend_from_slice(&sample.payload().to_bytes());
        Ok(true)
    }
}

struct Ours {
    _node: Node,
    communicator: Communicator,
    target: Target,
}

impl Ours {
    fn open(router: &str, [own, other]: [&str; 2], keys: Option<&Keys>, wake: Wake) -> Outcome<Self> {
        let name = if keys.is_some() { "sealed" } else { "plain" };
        let bus = ZenohBus::new(name, &[router.to_owned()]).blocks(true).frames(QUEUE).bus();
        let node = Node::open(&keys.map_or(bus.clone(), |keys| bus.sealed(keys)), own)?;
        let communicator = node.bind_with(1, &CommunicatorOptions::waiting(wake))?;
        Ok(Self { _node: node, communicator, target: Target::port(other, 1) })
    }
}

impl End for Ours {
    fn send(&mut self, payload: &[u8]) -> Outcome<()> {
        Ok(self.communicator.send_timeout(self.target, payload, Duration::from_secs(10))?)
    }

    fn receive(&mut self, into: &mut Vec<u8>, patience: Duration) -> Outcome<bool> {
        into.clear();
        match self.communicator.receive_timeout(patience) {
            Ok(message) => into.extend_from_slice(message.payload),
            Err(ReceiveError::Empty) => return Ok(false),
        }
        Ok(true)
    }
}

/// A game, as the parent names it.
#[derive(Clone, Copy)]
struct Game {
    number: u64,
    messages: u64,
    size: usize,
    /// Longest time that a message may take before it is lost.
    patience: Duration,
}

impl Game {
    fn payload(&self, number: u64) -> Vec<u8> {
        let mut payload = vec![3; self.size.max(HEAD)];
        payload[..8].copy_from_slice(&self.number.to_le_bytes());
        payload[8..HEAD].copy_from_slice(&number.to_le_bytes());
        payload
    }

    /// The number of a message of this game; others are late.
    fn number_of(&self, payload: &[u8]) -> Option<u64> {
        let word = |at: usize| Some(u64::from_le_bytes(*payload.get(at..)?.first_chunk()?));
        let is_whole = payload.len() == self.size.max(HEAD);
        (word(0)? == self.number && is_whole).then(|| word(8))?
    }

    fn say_goodbye(&self, end: &mut dyn End) -> Outcome<()> {
        (0..GOODBYES).try_for_each(|_| end.send(&self.payload(u64::MAX)))
    }

    /// The median round trip, ns, and how many had no answer.
    fn ask(&self, end: &mut dyn End) -> Outcome<String> {
        let (mut took, mut lost, mut got) = (Vec::new(), 0, Vec::new());
        for number in 0..self.messages {
            let payload = self.payload(number);
            let began = Instant::now();
            end.send(&payload)?;
            loop {
                if !end.receive(&mut got, self.patience)? {
                    lost += 1;
                    break;
                }
                if self.number_of(&got) == Some(number) {
                    took.push(began.elapsed());
                    break;
                }
            }
        }
        self.say_goodbye(end)?;
        took.sort();
        let median = took.get(took.len() / 2).ok_or("no answer at all")?;
        Ok(format!("{} {lost}", median.as_nanos()))
    }

    fn echo(&self, end: &mut dyn End) -> Outcome<String> {
        let mut got = Vec::new();
        let mut answered: u64 = 0;
        // Silence is longer than the other end's patience.
        while end.receive(&mut got, 3 * self.patience)? {
            match self.number_of(&got) {
                Some(u64::MAX) => break,
                Some(_) => {
                    end.send(&got)?;
                    answered += 1;
                }
                None => {}
            }
        }
        Ok(format!("{answered} 0"))
    }

    /// When the first message was sent, ns.
    fn pour(&self, end: &mut dyn End) -> Outcome<String> {
        let began = wall_ns();
        for number in 0..self.messages {
            end.send(&self.payload(number))?;
        }
        Ok(format!("{began} 0"))
    }

    /// When the last message came, ns, and how many came.
    fn drink(&self, end: &mut dyn End) -> Outcome<String> {
        let (mut came, mut last, mut got) = (0, 0, Vec::new());
        let mut patience = 10 * SILENCE;
        while came < self.messages && end.receive(&mut got, patience)? {
            if self.number_of(&got).is_some() {
                came += 1;
                last = wall_ns();
                patience = SILENCE + self.patience;
            }
        }
        Ok(format!("{last} {came}"))
    }
}

/// Both ends are on one host.
fn wall_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// This process is an end, and plays as it is told: one of the three, the game, its number, messages, size, patience in ms.
pub(super) fn play(role: &str, router: &str, wake: &str) -> Outcome<()> {
    let names = if role == "here" { ["here", "there"] } else { ["there", "here"] };
    let keys = Keys::from_env(KEYS)?;
    let wake = wake.parse()?;
    let mut ends: [Box<dyn End>; 3] = [
        Box::new(Bare::open(router, names[0], names[1])?),
        Box::new(Ours::open(router, names, None, wake)?),
        Box::new(Ours::open(router, names, Some(&keys), wake)?),
    ];
    println!("open");
    answer_lines(|line| {
        let mut words = line.split(' ');
        let (which, what) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [number, messages, size, patience_ms] = numbers[..] else { return Err(format!("{line:?}")) };
        let end = which.parse().ok().and_then(|which: usize| ends.get_mut(which));
        let end = &mut **end.ok_or(format!("{line:?}"))?;
        let patience = Duration::from_millis(patience_ms);
        let game = Game { number, messages, size: size as usize, patience };
        let played = match (what, role) {
            ("trips", "here") => game.ask(end),
            ("trips", _) => game.echo(end),
            (_, "here") => game.pour(end),
            _ => game.drink(end),
        };
        played.map_err(|error| error.to_string())
    })?;
    Ok(())
}
