//! One end of ours, or of Zenoh, in a process.

use std::io::Read as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual::{Bus, Communicator, Node, NodeOptions, ReceiveError, Target};
use punctual_zenoh::told::answer_lines;
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::handlers::{FifoChannel, FifoChannelHandler};
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;

use super::Outcome;

const LARGEST: usize = 64 << 20;
const PAGE: usize = 4096;
/// Until the first message comes, and between two.
const PATIENCE: Duration = Duration::from_secs(2);
/// Messages that wait at Zenoh's receiver, as many as ours has in the making.
const QUEUE: usize = 4;
/// Memory that Zenoh may share at a time: by default 16 MiB, and a larger message goes as bytes.
const SHM_POOL: &str = "536870912";

enum End {
    Ours {
        _node: Node,
        communicator: Box<Communicator>,
    },
    Sender {
        _session: zenoh::Session,
        publisher: Publisher<'static>,
    },
    /// With memory for a message, which stays from game to game, as ours and Aeron's does.
    Receiver {
        _session: zenoh::Session,
        subscriber: Subscriber<FifoChannelHandler<Sample>>,
        message: Vec<u8>,
    },
}

impl End {
    fn ours(here: bool, link: &str, port: &str) -> Outcome<Self> {
        let [own, other] = if here { ["here", "there"] } else { ["there", "here"] };
        let bus = if link == "shared" {
            Bus::shared(&format!("large-{port}"))
        } else {
            let addresses = [format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}")];
            let [mine, theirs] = [usize::from(!here), usize::from(here)].map(|at| addresses[at].parse());
            Bus::peers(mine?, &[theirs?])
        };
        let node = NodeOptions::new(own).message_size_max(LARGEST).open(&bus)?;
        let communicator = Box::new(node.bind(1)?);
        if here {
            // In memory, the node that it sends to must be there.
            wait_for(&node, other);
        }
        Ok(Self::Ours { _node: node, communicator })
    }

    /// Peer to peer, as it is by default but for what is said here.
    fn zenoh(here: bool, link: &str, port: &str) -> Outcome<Self> {
        let mut config = zenoh::Config::default();
        config.insert_json5("mode", "\"peer\"")?;
        config.insert_json5("scouting/multicast/enabled", "false")?;
        config
            .insert_json5("transport/shared_memory/enabled", if link == "shm" { "true" } else { "false" })?;
        if link == "shm" {
            config.insert_json5("transport/shared_memory/transport_optimization/pool_size", SHM_POOL)?;
        }
        let endpoint = format!("{}/127.0.0.1:{port}", if link == "udp" { "udp" } else { "tcp" });
        config.insert_json5(
            if here { "connect/endpoints" } else { "listen/endpoints" },
            &format!("{:?}", [endpoint]),
        )?;
        if here {
            config.insert_json5("listen/endpoints", "[]")?;
        }
        let session = zenoh::open(config).wait()?;
        if here {
            let publisher = session.declare_publisher("large").congestion_control(CongestionControl::Block);
            let publisher = publisher.wait()?;
            while !publisher.matching_status().wait()?.matching() {
                std::thread::sleep(Duration::from_millis(10));
            }
            return Ok(Self::Sender { _session: session, publisher });
        }
        let subscriber = session.declare_subscriber("large").with(FifoChannel::new(QUEUE)).wait()?;
        Ok(Self::Receiver { _session: session, subscriber, message: Vec::new() })
    }

    /// Sends so many messages of a size; when it began.
    fn send(&mut self, size: usize, count: u64) -> Outcome<u128> {
        let mut message = vec![0; size];
        (0..size).step_by(PAGE).for_each(|at| message[at + 8] = pattern(at));
        match self {
            Self::Ours { communicator, .. } => {
                let began = wall_ns();
                for number in 0..count {
                    message[..8].copy_from_slice(&number.to_le_bytes());
                    communicator.send(Target::port("there", 1), &message)?;
                }
                Ok(began)
            }
            Self::Sender { publisher, .. } => {
                // It takes the messages that it sends. The part that all of them have in common has one owner here, and is made before
                // the clock runs.
                let rest = ZBytes::from(message.split_off(8));
                let began = wall_ns();
                for number in 0..count {
                    let mut writer = ZBytes::writer();
                    writer.append(ZBytes::from(number.to_le_bytes()));
                    writer.append(rest.clone());
                    publisher.put(writer.finish()).wait()?;
                }
                Ok(began)
            }
            Self::Receiver { .. } => Err("a receiver is to send".into()),
        }
    }

    /// Receives so many messages of a size; when the last came, and how many did.
    fn receive(&mut self, size: usize, count: u64) -> Outcome<(u128, u64)> {
        let (mut came, mut last, mut next) = (0, 0, 0);
        while came < count {
            match self {
                Self::Ours { communicator, .. } => match communicator.receive_timeout(PATIENCE) {
                    Ok(message) => check(message.payload, size, &mut next)?,
                    Err(ReceiveError::Empty) => break,
                },
                Self::Receiver { subscriber, message, .. } => match subscriber.recv_timeout(PATIENCE)? {
                    Some(sample) => {
                        message.resize(sample.payload().len(), 0);
                        sample.payload().reader().read_exact(message)?;
                        check(message, size, &mut next)?;
                    }
                    None => break,
                },
                Self::Sender { .. } => return Err("a sender is to receive".into()),
            }
            came += 1;
            last = wall_ns();
        }
        Ok((last, came))
    }
}

fn wait_for(node: &Node, other: &str) {
    let other = punctual::NodeId::named(other);
    for _ in 0..500 {
        node.housekeep();
        if node.peers().iter().any(|peer| peer.node == other && peer.present) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pattern(at: usize) -> u8 {
    (at / PAGE * 7 + 1) as u8
}

/// Looks at every page of a message, and that it is none that came before. `next` becomes the number behind its own.
fn check(message: &[u8], size: usize, next: &mut u64) -> Outcome<()> {
    let number = message.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let number = number.filter(|number| number >= next).ok_or("a message came before")?;
    *next = number + 1;
    let right = message.len() == size && (0..size).step_by(PAGE).all(|at| message[at + 8] == pattern(at));
    if right { Ok(()) } else { Err("a message is not what was sent".into()) }
}

fn wall_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// This process is an end: it plays a game for each line `SIZE COUNT`.
pub(super) fn play(here: bool, system: &str, link: &str, port: &str) -> Outcome<()> {
    let open = if system == "zenoh" { End::zenoh } else { End::ours };
    let mut end = open(here, link, port)?;
    println!("open");
    answer_lines(|line| {
        let numbers =
            line.split_once(' ').and_then(|(size, count)| size.parse().ok().zip(count.parse().ok()));
        let (size, count) = numbers.ok_or_else(|| format!("{line:?} is no game"))?;
        let played =
            if here { end.send(size, count).map(|began| (began, 0)) } else { end.receive(size, count) };
        played.map(|(when, came)| format!("{when} {came}")).map_err(|error| error.to_string())
    })?;
    Ok(())
}
