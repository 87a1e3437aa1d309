//! Parts of demonstrations and tests: routers as processes, and a slow, lossy link between them.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use punctual_machine::counter::Counter;
use punctual_proto::sim::Rng;

/// A router in a process of its own, which ends with this.
#[derive(Debug)]
pub struct Router(Child);

impl Router {
    /// Starts one.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(program: &Path, listen: &[&str], connect: Option<&str>) -> std::io::Result<Self> {
        let mut command = Command::new(program);
        for endpoint in listen {
            command.args(["--listen", endpoint]);
        }
        command.args(connect.map(|endpoint| ["--connect", endpoint]).into_iter().flatten());
        // Also if this process is killed, and drops nothing: then the pipe ends.
        command.arg("--until-input-ends").stdin(Stdio::piped()).spawn().map(Self)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped_already = self.0.wait();
    }
}

/// A port of loopback that is free for TCP and UDP just now.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let random = || (20_000 + punctual_machine::process::random() % 12_000) as u16;
    let is_free = |&port: &u16| {
        TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok()
    };
    std::iter::repeat_with(random).take(1_000).find(is_free).expect("a free port")
}

/// Counts of the datagrams of a link, in both directions.
#[derive(Debug, Default)]
pub struct LinkCount {
    /// Those that came to it.
    pub datagrams: Counter,
    /// Of these, those that it lost.
    pub lost: Counter,
}

impl LinkCount {
    /// Counts a datagram, and returns true if it goes on.
    fn passes(&self, is_lost: bool) -> bool {
        self.datagrams.add(1);
        self.lost.add(u64::from(is_lost));
        !is_lost
    }
}

/// A link for UDP from `port` to `target`, both of loopback, that delays every datagram and loses some of a thousand, in both
/// directions. It lasts as long as the process.
///
/// # Errors
/// If the port is taken.
pub fn slow_link(
    port: u16,
    target: u16,
    delay: Duration,
    loss_permille: u32,
) -> std::io::Result<Arc<LinkCount>> {
    let front = Arc::new(UdpSocket::bind(("127.0.0.1", port))?);
    let count = Arc::new(LinkCount::default());
    let counts = Arc::clone(&count);
    std::thread::spawn(move || {
        let mut ways: BTreeMap<SocketAddr, mpsc::Sender<(Instant, Vec<u8>)>> = BTreeMap::new();
        let mut rng = Rng::new(0);
        let mut buffer = vec![0; 1 << 16];
        while let Ok((size, client)) = front.recv_from(&mut buffer) {
            let way = ways.entry(client).or_insert_with(|| {
                let back = UdpSocket::bind(("127.0.0.1", 0)).expect("a socket");
                back.connect(("127.0.0.1", target)).expect("of loopback");
                let back = Arc::new(back);
                answer(&back, &front, client, delay, loss_permille, &counts);
                later(move |bytes| drop(back.send(bytes)))
            });
            if counts.passes(rng.happens(loss_permille)) {
                let _ended = way.send((Instant::now() + delay, buffer[..size].to_vec()));
            }
        }
    });
    Ok(count)
}

/// The way back to one client.
fn answer(
    back: &Arc<UdpSocket>,
    front: &Arc<UdpSocket>,
    client: SocketAddr,
    delay: Duration,
    loss_permille: u32,
    counts: &Arc<LinkCount>,
) {
    let (back, front, counts) = (Arc::clone(back), Arc::clone(front), Arc::clone(counts));
    std::thread::spawn(move || {
        let way = later(move |bytes| drop(front.send_to(bytes, client)));
        let mut rng = Rng::at(&[1, client.port().into()]);
        let mut buffer = vec![0; 1 << 16];
        loop {
            // A refusal says that the target's port was closed when an earlier one came.
            let Ok(size) = back.recv(&mut buffer) else { continue };
            if counts.passes(rng.happens(loss_permille)) {
                let _ended = way.send((Instant::now() + delay, buffer[..size].to_vec()));
            }
        }
    });
}

/// Sends what it is given, each at its time.
pub(crate) fn later(send: impl Fn(&[u8]) + Send + 'static) -> mpsc::Sender<(Instant, Vec<u8>)> {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            send(&bytes);
        }
    });
    sender
}
