//! One end of each mechanism.

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use iceoryx2::port::{publisher::Publisher, subscriber::Subscriber};
use iceoryx2::prelude::{NodeBuilder, ipc};
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use punctual::{Bus, Communicator, CommunicatorOptions, Node, Target, Wake};
use punctual_machine::slot::SlotPair;

use crate::Outcome;

/// What is compared; the first is the floor.
pub(crate) const KINDS: [&str; 8] = [
    "floor/slot",
    "punctual shared/spin",
    "punctual shared/spin stamped",
    "iceoryx2",
    "floor/futex",
    "punctual shared/futex",
    "unix datagram",
    "unix stream",
];

/// Payloads, bytes.
pub(crate) const SIZES: [usize; 3] = [64, 1024, 8192];

/// How long one end waits for the other to appear.
const PATIENCE: Duration = Duration::from_secs(10);

/// One end.
pub(crate) trait Pair {
    fn send(&mut self, message: &[u8]) -> Outcome<()>;
    fn receive(&mut self, message: &mut [u8]) -> Outcome<()>;
    /// Returns when what is sent will arrive.
    fn wait_for_peer(&mut self) -> Outcome<()>;
}

/// Opens the end that is opened first (`here`), or the other.
pub(crate) fn open(kind: &str, size: usize, meeting: &str, here: bool) -> Outcome<Box<dyn Pair>> {
    Ok(match (kind, size) {
        ("floor/slot", _) => Box::new(Slot::open(meeting, here, false)?),
        ("floor/futex", _) => Box::new(Slot::open(meeting, here, true)?),
        ("punctual shared/spin", _) => {
            Box::new(Ours::open(meeting, here, &CommunicatorOptions::waiting(Wake::Spin))?)
        }
        ("punctual shared/futex", _) => {
            Box::new(Ours::open(meeting, here, &CommunicatorOptions::waiting(Wake::Futex))?)
        }
        ("punctual shared/spin stamped", _) => {
            let options = CommunicatorOptions::waiting(Wake::Spin).stamped().recording(1024);
            Box::new(Ours::open(meeting, here, &options)?)
        }
        ("iceoryx2", 64) => Box::new(Iceoryx::<64>::open(meeting, here)?),
        ("iceoryx2", 1024) => Box::new(Iceoryx::<1024>::open(meeting, here)?),
        ("iceoryx2", 8192) => Box::new(Iceoryx::<8192>::open(meeting, here)?),
        ("unix datagram", _) => Box::new(Datagram::open(meeting, here)?),
        ("unix stream", _) => Box::new(Stream::open(meeting, here)?),
        _ => return Err(format!("unknown kind {kind:?} of {size} B").into()),
    })
}

fn path(meeting: &str, end: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/{meeting}.{end}"))
}

/// Tries again until it works or patience is over.
fn patiently<T, E: Into<Box<dyn std::error::Error>>>(
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Outcome<T> {
    let start = std::time::Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

struct Slot {
    pair: SlotPair,
    asleep: bool,
    path: Option<PathBuf>,
}

impl Slot {
    fn open(meeting: &str, here: bool, asleep: bool) -> Outcome<Self> {
        let path = path(meeting, "slots");
        let pair = if here { SlotPair::create(&path)? } else { SlotPair::open(&path)? };
        Ok(Self { pair, asleep, path: here.then_some(path) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _gone = std::fs::remove_file(path);
        }
    }
}

impl Pair for Slot {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        if self.asleep {
            self.pair.put_and_wake(message);
        } else {
            self.pair.put(message);
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        if self.asleep {
            return self.pair.get_asleep(message, PATIENCE).then_some(()).ok_or_else(|| "no answer".into());
        }
        while !self.pair.try_get(message) {
            self.pair.pause();
        }
        Ok(())
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        // What is in the slot waits there for the other end.
        Ok(())
    }
}

struct Ours {
    communicator: Communicator,
    target: Target,
}

impl Ours {
    fn open(meeting: &str, here: bool, options: &CommunicatorOptions) -> Outcome<Self> {
        let (own, other) = if here { ("here", "there") } else { ("there", "here") };
        let communicator = Node::open(&Bus::shared(meeting), own)?.bind_with(1, options)?;
        Ok(Self { communicator, target: Target { node: Some(other.into()), port: punctual::Port::new(1) } })
    }
}

impl Pair for Ours {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(self.communicator.try_send(self.target, message)?)
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        let received = self.communicator.receive()?;
        message.copy_from_slice(received.payload);
        Ok(())
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        let Self { communicator, target } = self;
        // A claim that is dropped sends nothing: it says whether the peer is there.
        patiently(|| communicator.claim(*target, 1).map(drop))
    }
}

struct Iceoryx<const N: usize> {
    publisher: Publisher<ipc::Service, [u8; N], ()>,
    subscriber: Subscriber<ipc::Service, [u8; N], ()>,
    out: PortFactory<ipc::Service, [u8; N], ()>,
    back: PortFactory<ipc::Service, [u8; N], ()>,
    _node: iceoryx2::node::Node<ipc::Service>,
}

impl<const N: usize> Iceoryx<N> {
    fn open(meeting: &str, here: bool) -> Outcome<Self> {
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let (out, back) = if here { ("ping", "pong") } else { ("pong", "ping") };
        let service = |way: &str| -> Outcome<_> {
            let name = format!("{meeting}/{way}");
            Ok(node
                .service_builder(&name.as_str().try_into()?)
                .publish_subscribe::<[u8; N]>()
                .open_or_create()?)
        };
        let (out, back) = (service(out)?, service(back)?);
        let publisher = out.publisher_builder().create()?;
        let subscriber = back.subscriber_builder().create()?;
        Ok(Self { publisher, subscriber, out, back, _node: node })
    }
}

impl<const N: usize> Pair for Iceoryx<N> {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        let bytes: &[u8; N] = message.try_into()?;
        self.publisher.loan_uninit()?.write_payload(*bytes).send()?;
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                message.copy_from_slice(&sample[..]);
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        // The answer's publisher and the question's subscriber must be there before the first question.
        patiently(|| {
            let there = self.out.dynamic_config().number_of_subscribers() > 0
                && self.back.dynamic_config().number_of_publishers() > 0;
            there.then_some(()).ok_or("no peer")
        })
    }
}

struct Datagram {
    socket: UnixDatagram,
    own: PathBuf,
    other: PathBuf,
}

impl Datagram {
    fn open(meeting: &str, here: bool) -> Outcome<Self> {
        let ends = [path(meeting, "a"), path(meeting, "b")];
        let [own, other] = if here {
            ends
        } else {
            let [a, b] = ends;
            [b, a]
        };
        Ok(Self { socket: UnixDatagram::bind(&own)?, own, other })
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.own);
    }
}

impl Pair for Datagram {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.socket.send_to(message, &self.other)?;
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        self.socket.recv(message)?;
        Ok(())
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        patiently(|| self.other.exists().then_some(()).ok_or("no peer"))
    }
}

enum Stream {
    Listening(UnixListener, PathBuf),
    Connected(UnixStream),
}

impl Stream {
    fn open(meeting: &str, here: bool) -> Outcome<Self> {
        let path = path(meeting, "stream");
        if here {
            return Ok(Self::Listening(UnixListener::bind(&path)?, path));
        }
        Ok(Self::Connected(patiently(|| UnixStream::connect(&path))?))
    }

    fn stream(&mut self) -> Outcome<&mut UnixStream> {
        match self {
            Self::Connected(stream) => Ok(stream),
            Self::Listening(..) => Err("not connected".into()),
        }
    }
}

impl Pair for Stream {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(self.stream()?.write_all(message)?)
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        Ok(self.stream()?.read_exact(message)?)
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        if let Self::Listening(listener, path) = self {
            let (stream, _) = listener.accept()?;
            let _gone = std::fs::remove_file(path);
            *self = Self::Connected(stream);
        }
        Ok(())
    }
}
