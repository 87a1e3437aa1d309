//! Three tasks for each connection, in its class: a request's deadline travels through all three.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use punctual::Clock;
use punctual::runtime::tokio::{Classes, Spawner};
use punctual::runtime::{
    self, Handle, Lane, Metrics, Policy, Request, Runtime, RuntimeOptions, TaskOptions, TcpListener,
    TcpStream, is_shed, take_over, yield_now,
};
use punctual_machine::scheduling::set_nice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::host::{Serving, TaskSettings, spin};
use super::journal::{Journal, Staged};
use super::model::ServerModel;
use super::setup::Setup;
use super::work::{REFUSAL, Splitter, serve};
use crate::run::lock;
use crate::scheduling::Urgency;

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
        let mut state = lock(&self.0);
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

    /// Information about the next message, if there is one.
    fn next_request(&self) -> Option<Option<Request>> {
        let state = lock(&self.0);
        state.messages.front().map(|message| message.request)
    }

    async fn next(&self) -> Option<Staged> {
        poll_fn(|context| {
            let mut state = lock(&self.0);
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

/// The host that runs tasks, and its connections.
pub(super) trait Host: Clone + Send + 'static {
    type Stream: Stream;

    /// Starts a task. One that takes no more drops it: the connection ends, whose requests the load counts as lost.
    fn start(&self, options: TaskOptions, future: impl Future<Output = ()> + Send + 'static);

    /// A connection whose class is known now, where tasks of that class may have it.
    fn place(&self, _class: u8, stream: Self::Stream) -> io::Result<Self::Stream> {
        Ok(stream)
    }
}

/// A connection.
pub(super) trait Stream: Send + 'static {
    type Reader: Read;
    type Writer: Write;

    /// The other end's.
    fn peer_port(&self) -> io::Result<u16>;
    fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
    /// For a task that reads and one that writes.
    fn split(self) -> (Self::Reader, Self::Writer);
}

/// Reading half of a connection.
pub(super) trait Read: Send + 'static {
    fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// Writing half of a connection.
pub(super) trait Write: Send + 'static {
    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

impl Host for Handle {
    type Stream = TcpStream;

    fn start(&self, options: TaskOptions, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.spawn(options, future));
    }
}

impl Stream for TcpStream {
    type Reader = Arc<Self>;
    type Writer = Arc<Self>;

    fn peer_port(&self) -> io::Result<u16> {
        Ok(self.as_std().peer_addr()?.port())
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::read(self, buffer).await
    }

    fn split(self) -> (Arc<Self>, Arc<Self>) {
        let stream = Arc::new(self);
        (Arc::clone(&stream), stream)
    }
}

impl Read for Arc<TcpStream> {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::read(self, buffer).await
    }
}

impl Write for Arc<TcpStream> {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        TcpStream::write_all(self, bytes).await
    }
}

/// tokio, with classes or without, or twice.
#[derive(Clone)]
struct Tokio {
    runtime: tokio::runtime::Handle,
    classes: Option<Spawner>,
    /// For all classes but the most important one.
    less_important: Option<tokio::runtime::Handle>,
}

impl Tokio {
    fn of_class(&self, class: u8) -> &tokio::runtime::Handle {
        self.less_important.as_ref().filter(|_| class > 0).unwrap_or(&self.runtime)
    }
}

impl Host for Tokio {
    type Stream = tokio::net::TcpStream;

    fn start(&self, options: TaskOptions, future: impl Future<Output = ()> + Send + 'static) {
        match &self.classes {
            Some(classes) => drop(classes.spawn(options, future)),
            None => drop(self.of_class(options.class).spawn(future)),
        }
    }

    fn place(&self, class: u8, stream: Self::Stream) -> io::Result<Self::Stream> {
        if class == 0 || self.less_important.is_none() {
            return Ok(stream);
        }
        // A runtime's own sockets are reported by that runtime alone.
        let stream = stream.into_std()?;
        let _inside = self.of_class(class).enter();
        tokio::net::TcpStream::from_std(stream)
    }
}

/// By tokio's own reads and writes, as its users have them: a read that was not full is not tried again at once.
impl Stream for tokio::net::TcpStream {
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    fn peer_port(&self) -> io::Result<u16> {
        Ok(self.peer_addr()?.port())
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, buffer).await
    }

    fn split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        self.into_split()
    }
}

impl Read for OwnedReadHalf {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, buffer).await
    }
}

impl Write for OwnedWriteHalf {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }
}

/// A server until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    kept: Kept,
    before: Metrics,
    pub(super) address: SocketAddr,
}

/// The runtime that runs a server's tasks.
#[derive(Debug)]
enum Kept {
    Own(Runtime),
    /// The classes end first.
    Tokio {
        classes: Option<Classes>,
        _runtime: tokio::runtime::Runtime,
        _less_important: Option<tokio::runtime::Runtime>,
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

pub(super) const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Server {
    /// On the threads of a runtime of our own.
    pub(super) fn on_own_threads(serving: &Serving, journal: &Journal) -> Result<Self, String> {
        let runtime = Runtime::start(&options(serving)?).map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let listener = TcpListener::bind(&handle, ANYWHERE).map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (journal, repeats) = (journal.clone(), serving.repeats);
        let accepts = async move {
            loop {
                let accepted = listener.accept().await;
                let ready =
                    accepted.and_then(|(stream, _)| stream.as_std().set_nodelay(true).map(|()| stream));
                match ready {
                    Ok(stream) => connect(&handle, stream, repeats, &journal),
                    Err(error) => return journal.failed(error),
                }
            }
        };
        runtime.handle().start(TaskOptions::of_class(0).named("accept"), accepts);
        start_hog(runtime.handle(), serving.setup.hog_ns);
        Ok(Self::new(Kept::Own(runtime), address))
    }

    /// On as many threads of tokio's.
    pub(super) fn on_tokio(serving: &Serving, journal: &Journal) -> Result<Self, String> {
        let Setup { model, workers, lanes, .. } = serving.setup;
        let runtime = tokio_runtime(workers + lanes, None)?;
        let second = model == ServerModel::TwoTokios;
        let less_important = second.then(|| tokio_runtime(workers, Some(LESS_IMPORTANT_NICE))).transpose()?;
        let inside = runtime.enter();
        let has_classes = model == ServerModel::ClassesOnTokio;
        let classes = has_classes.then(|| Classes::start(&options(serving)?).map_err(|e| e.to_string()));
        let classes = classes.transpose()?;
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind(ANYWHERE)).map_err(|e| e.to_string())?;
        drop(inside);
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let host = Tokio {
            runtime: runtime.handle().clone(),
            classes: classes.as_ref().map(|classes| classes.spawner().clone()),
            less_important: less_important.as_ref().map(|runtime| runtime.handle().clone()),
        };
        accept_from_tokio(&host, listener, serving.repeats, journal);
        start_hog(&host, serving.setup.hog_ns);
        Ok(Self::new(Kept::Tokio { classes, _runtime: runtime, _less_important: less_important }, address))
    }

    fn new(kept: Kept, address: SocketAddr) -> Self {
        let before = kept.metrics().unwrap_or_default();
        Self { kept, before, address }
    }

    /// Reader of the classes' counters for another thread, where there are any.
    pub(super) fn watch(&self) -> Option<impl Fn() -> Metrics + Send + Sync + use<>> {
        let read: Box<dyn Fn() -> Metrics + Send + Sync> = match &self.kept {
            Kept::Own(runtime) => {
                let handle = runtime.handle().clone();
                Box::new(move || handle.metrics())
            }
            Kept::Tokio { classes, .. } => {
                let spawner = classes.as_ref()?.spawner().clone();
                Box::new(move || spawner.metrics())
            }
        };
        Some(read)
    }

    /// Activity of the classes since it started, where there are any.
    pub(super) fn metrics(&self) -> Option<Metrics> {
        Some(self.kept.metrics()?.since(&self.before))
    }
}

/// Of the threads that serve all classes but the first, where there are two runtimes of tokio. It needs no privilege.
const LESS_IMPORTANT_NICE: i32 = 10;

pub(super) fn tokio_runtime(workers: usize, nice: Option<i32>) -> Result<tokio::runtime::Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).enable_io();
    if let Some(nice) = nice {
        builder.on_thread_start(move || {
            // A nicer thread is always allowed.
            let _allowed = set_nice(nice);
        });
    }
    builder.build().map_err(|error| error.to_string())
}

fn options(serving: &Serving) -> Result<RuntimeOptions, String> {
    let TaskSettings { worker_urgency, lane_urgency, sheds, ref floors_permille } = serving.tasks;
    let Setup { workers, lanes, .. } = serving.setup;
    let lane = Lane { workers: lanes, last_class: 0, urgency: urgency_of(lane_urgency)? };
    let mut options = RuntimeOptions {
        workers,
        urgency: urgency_of(worker_urgency)?,
        policy: Policy::Floors,
        ..RuntimeOptions::default()
    };
    options.lanes.extend((lanes > 0).then_some(lane));
    options.classes.iter_mut().for_each(|class| class.sheds = sheds);
    for (class, floor) in options.classes.iter_mut().zip(floors_permille) {
        class.floor_permille = *floor;
    }
    Ok(options)
}

fn urgency_of(urgency: Urgency) -> Result<runtime::Urgency, String> {
    match urgency {
        Urgency::Other => Ok(runtime::Urgency::Inherited),
        Urgency::Nice(nice) => Ok(runtime::Urgency::Nice(nice)),
        Urgency::RoundRobin(priority) => Ok(runtime::Urgency::RealTime(priority)),
        other => Err(format!("a worker cannot be {other}: other, nice:N or rr:N")),
    }
}

/// A task of the last class that keeps its worker for so long again and again, if it is to be there.
pub(super) fn start_hog<H: Host>(host: &H, hog_ns: u64) {
    let hogs = async move {
        loop {
            spin(hog_ns);
            yield_now().await;
        }
    };
    if hog_ns > 0 {
        host.start(TaskOptions::of_class(u8::MAX).named("hog"), hogs);
    }
}

/// Connects each client that comes, over sockets of tokio's.
pub(super) fn accept_from_tokio<H>(
    host: &H,
    listener: tokio::net::TcpListener,
    repeats: u32,
    journal: &Journal,
) where
    H: Host<Stream = tokio::net::TcpStream>,
{
    let (its, journal) = (host.clone(), journal.clone());
    let accepts = async move {
        loop {
            let accepted = listener.accept().await;
            match accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)) {
                Ok(stream) => connect(&its, stream, repeats, &journal),
                Err(error) => return journal.failed(error),
            }
        }
    };
    host.start(TaskOptions::of_class(0).named("accept"), accepts);
}

/// Three tasks for a connection, when it has said its class.
pub(super) fn connect<H: Host>(host: &H, mut stream: H::Stream, repeats: u32, journal: &Journal) {
    let (its, journal) = (host.clone(), journal.clone());
    let connects = async move {
        let class = &mut [0];
        if matches!(stream.read(class).await, Ok(1)) {
            match its.place(class[0], stream) {
                Ok(stream) => serve_in_stages(&its, class[0], stream, repeats, &journal),
                Err(error) => journal.failed(error),
            }
        }
    };
    host.start(TaskOptions::of_class(0).named("connect"), connects);
}

fn serve_in_stages<H: Host>(host: &H, class: u8, stream: H::Stream, repeats: u32, journal: &Journal) {
    // One that has gone asks for nothing.
    let Ok(port) = stream.peer_port() else { return };
    let (noted, looks) = (journal.connection(port), journal.clone());
    let (mut reader, mut writer) = stream.split();
    let ([requests, requested], [replies, replied]) = (Pipe::new(), Pipe::new());
    let options = |name| TaskOptions::of_class(class).named(name);
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
            let is_refused = is_shed();
            let reply = |request: &[u8]| if is_refused { REFUSAL.to_vec() } else { serve(request, repeats) };
            replies.push(request.served(reply));
            // A poll that served all that is queued would keep the worker from every other class.
            if let Some(next) = requested.next_request() {
                next.into_iter().for_each(take_over);
                yield_now().await;
            }
        }
        replies.close();
    };
    let sends = async move {
        while let Some(Staged { message, mut passed, .. }) = replied.next().await {
            passed.replying = Clock::get().now();
            if writer.write_all(&message).await.is_err() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every floor that is asked for reaches the runtime, class by class; the others stay as the runtime has them.
    #[test]
    fn each_class_has_the_floor_that_was_asked_for() {
        let of = |floors: &[u32]| {
            let tasks =
                TaskSettings { floors_permille: floors.to_vec(), sheds: true, ..TaskSettings::default() };
            let options = options(&Serving { tasks, ..Serving::default() }).unwrap();
            assert!(options.classes.iter().all(|class| class.sheds));
            options.classes.iter().map(|class| class.floor_permille).collect::<Vec<_>>()
        };
        assert_eq!(of(&[1, 2, 3, 4, 5, 6, 7, 8]), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(of(&[]), [20; 8]);
    }
}
