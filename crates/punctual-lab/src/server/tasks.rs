//! Three tasks for each connection, in its class: a request's deadline travels through all three.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use punctual::Clock;
use punctual::runtime::tokio::{Classes, Spawner};
use punctual::runtime::{
    Handle, Metrics, Policy, Runtime, RuntimeOptions, TaskOptions, TcpListener, TcpStream, yield_now,
};

use super::journal::{Journal, Staged};
use super::work::{Splitter, serve};

/// Deadline of class 0; each class has twice that of the one before.
const DEADLINE: Duration = Duration::from_millis(5);

/// Messages from one task to the next.
#[derive(Debug)]
struct Pipe(Mutex<PipeState>);

#[derive(Debug, Default)]
struct PipeState {
    messages: VecDeque<Staged>,
    reader: Option<Waker>,
    is_closed: bool,
}

impl Pipe {
    fn new() -> [Arc<Self>; 2] {
        let pipe = Arc::new(Self(Mutex::default()));
        [Arc::clone(&pipe), pipe]
    }

    fn change(&self, change: impl FnOnce(&mut PipeState)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    fn push(&self, message: Staged) {
        self.change(|state| state.messages.push_back(message));
    }

    fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).messages.is_empty()
    }

    async fn next(&self) -> Option<Staged> {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match state.messages.pop_front() {
                Some(message) => Poll::Ready(Some(message)),
                None if state.is_closed => Poll::Ready(None),
                None => {
                    state.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// What runs tasks, and its connections.
trait Host: Clone + Send + 'static {
    type Stream: Stream;

    /// Starts a task. One that takes no more drops it: the connection ends, which the load counts.
    fn start(&self, options: TaskOptions, future: impl Future<Output = ()> + Send + 'static);
}

/// A connection.
trait Stream: Send + Sync + 'static {
    /// The other end's.
    fn peer_port(&self) -> io::Result<u16>;
    fn read(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
    fn write_all(&self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

impl Host for Handle {
    type Stream = TcpStream;

    fn start(&self, options: TaskOptions, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.spawn(options, future));
    }
}

impl Stream for TcpStream {
    fn peer_port(&self) -> io::Result<u16> {
        Ok(self.as_std().peer_addr()?.port())
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::read(self, buffer).await
    }

    async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        Self::write_all(self, bytes).await
    }
}

/// tokio, with classes or without.
#[derive(Clone)]
struct Tokio {
    runtime: tokio::runtime::Handle,
    classes: Option<Spawner>,
}

impl Host for Tokio {
    type Stream = tokio::net::TcpStream;

    fn start(&self, options: TaskOptions, future: impl Future<Output = ()> + Send + 'static) {
        match &self.classes {
            Some(classes) => drop(classes.spawn(options, future)),
            None => drop(self.runtime.spawn(future)),
        }
    }
}

impl Stream for tokio::net::TcpStream {
    fn peer_port(&self) -> io::Result<u16> {
        Ok(self.peer_addr()?.port())
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                done => return done,
            }
        }
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A server until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    kept: Kept,
    before: Metrics,
    pub(super) address: SocketAddr,
}

/// What runs a server's tasks.
#[derive(Debug)]
enum Kept {
    Own(Runtime),
    /// The classes end first.
    Tokio {
        classes: Option<Classes>,
        _runtime: tokio::runtime::Runtime,
    },
}

impl Kept {
    fn metrics(&self) -> Option<Metrics> {
        match self {
            Self::Own(runtime) => Some(runtime.handle().metrics()),
            Self::Tokio { classes, .. } => classes.as_ref().map(|classes| classes.spawner().metrics()),
        }
    }
}

const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Server {
    /// On the threads of a runtime of our own.
    pub(super) fn on_own_threads(workers: usize, repeats: u32, journal: &Journal) -> Result<Self, String> {
        let runtime = Runtime::start(&options(workers)).map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let listener = TcpListener::bind(&handle, ANYWHERE).map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let journal = journal.clone();
        let accepts = async move {
            while let Ok((stream, _)) = listener.accept().await {
                if stream.as_std().set_nodelay(true).is_ok() {
                    connect(&handle, stream, repeats, &journal);
                }
            }
        };
        runtime.handle().start(TaskOptions::of_class(0).named("accept"), accepts);
        Ok(Self::new(Kept::Own(runtime), address))
    }

    /// On as many threads of tokio's.
    pub(super) fn on_tokio(
        (workers, with_classes): (usize, bool),
        repeats: u32,
        journal: &Journal,
    ) -> Result<Self, String> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(workers).enable_io().build().map_err(|e| e.to_string())?;
        let inside = runtime.enter();
        let classes = with_classes.then(|| Classes::start(&options(workers))).transpose();
        let classes = classes.map_err(|error| error.to_string())?;
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind(ANYWHERE)).map_err(|e| e.to_string())?;
        drop(inside);
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let spawner = classes.as_ref().map(|classes| classes.spawner().clone());
        let host = Tokio { runtime: runtime.handle().clone(), classes: spawner };
        let accepting = host.clone();
        let journal = journal.clone();
        let accepts = async move {
            while let Ok((stream, _)) = listener.accept().await {
                if stream.set_nodelay(true).is_ok() {
                    connect(&accepting, stream, repeats, &journal);
                }
            }
        };
        host.start(TaskOptions::of_class(0).named("accept"), accepts);
        Ok(Self::new(Kept::Tokio { classes, _runtime: runtime }, address))
    }

    fn new(kept: Kept, address: SocketAddr) -> Self {
        let before = kept.metrics().unwrap_or_default();
        Self { kept, before, address }
    }

    /// What the classes did since it started, where there are any.
    pub(super) fn metrics(&self) -> Option<Metrics> {
        Some(self.kept.metrics()?.since(&self.before))
    }
}

fn options(workers: usize) -> RuntimeOptions {
    RuntimeOptions { workers, policy: Policy::Floors, ..RuntimeOptions::default() }
}

/// Three tasks for a connection, when it has said its class.
fn connect<H: Host>(host: &H, stream: H::Stream, repeats: u32, journal: &Journal) {
    let (its, journal) = (host.clone(), journal.clone());
    let connects = async move {
        let class = &mut [0];
        if matches!(stream.read(class).await, Ok(1)) {
            serve_in_stages(&its, class[0], stream, repeats, &journal);
        }
    };
    host.start(TaskOptions::of_class(0).named("connect"), connects);
}

fn serve_in_stages<H: Host>(host: &H, class: u8, stream: H::Stream, repeats: u32, journal: &Journal) {
    // One that has gone asks for nothing.
    let Ok(port) = stream.peer_port() else { return };
    let (stream, noted, looks) = (Arc::new(stream), journal.connection(port), journal.clone());
    let ([requests, requested], [replies, replied]) = (Pipe::new(), Pipe::new());
    let options = |name| TaskOptions::of_class(class).named(name);
    let reader = Arc::clone(&stream);
    let receives = async move {
        let (mut splitter, mut buffer) = (Splitter::default(), [0; 4_096]);
        while let Ok(count) = reader.read(&mut buffer).await
            && count > 0
        {
            splitter.push(&buffer[..count], |request| requests.push(Staged::received(request)));
        }
        requests.close();
    };
    let serves = async move {
        while let Some(request) = requested.next().await {
            replies.push(request.served(|request| serve(request, repeats)));
            // A poll that served all that is queued would keep the worker from every other class.
            if !requested.is_empty() {
                yield_now().await;
            }
        }
        replies.close();
    };
    let sends = async move {
        while let Some(Staged { message, mut passed }) = replied.next().await {
            passed.replying = Clock::get().now();
            if stream.write_all(&message).await.is_err() {
                return;
            }
            noted.note(passed);
            let [request, reply] = passed.waited();
            looks.look_at_worker(request.max(reply));
        }
    };
    let deadline = DEADLINE * (1 << class.min(16));
    host.start(options("receive").within(deadline), receives);
    host.start(options("serve"), serves);
    host.start(options("send"), sends);
}
