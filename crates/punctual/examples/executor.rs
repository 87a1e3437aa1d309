//! An executor of one's own that awaits messages and values: it only has to know when a descriptor becomes readable.
//!
//! [`Loop`] polls one future on the calling thread and waits by mio meanwhile. It offers [`Descriptor`] to `Awaited::by`; other
//! executors offer what they have for sockets that they do not know, such as `Async` of the crate async-io.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};
use punctual::interest::{Publisher, Subscriber, Topic};
use punctual::runtime::{Awaited, PollReadable};
use punctual::unit::{MetrePerSecond, Quantity};
use punctual::{Bus, Node, Target};

const SPEED: Topic<Quantity<MetrePerSecond, f32>> = Topic::named("speed");

/// Token for waking the loop without any descriptor; the tokens of descriptors are their places in the list.
const WOKEN: Token = Token(usize::MAX);

/// Known state of a descriptor.
#[derive(Debug, Default)]
struct State {
    is_readable: bool,
    waker: Option<Waker>,
}

/// State that the loop and its descriptors share.
#[derive(Debug)]
struct Shared {
    registry: Registry,
    states: Mutex<Vec<State>>,
}

impl Shared {
    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A descriptor that the loop waits for.
#[derive(Debug)]
pub(crate) struct Descriptor {
    descriptor: OwnedFd,
    place: usize,
    shared: Arc<Shared>,
}

impl PollReadable for Descriptor {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut self.shared.states()[self.place];
        if std::mem::take(&mut state.is_readable) {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _gone = self.shared.registry.deregister(&mut SourceFd(&self.descriptor.as_raw_fd()));
    }
}

/// Wakes the loop from any thread.
struct LoopWaker(mio::Waker);

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake().expect("an eventfd takes it");
    }
}

/// Waits for descriptors while the future that it polls has nothing to do.
#[derive(Debug)]
pub(crate) struct Loop {
    poll: mio::Poll,
    shared: Arc<Shared>,
    waker: Waker,
}

impl Loop {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Arc::new(LoopWaker(mio::Waker::new(&registry, WOKEN)?));
        Ok(Self {
            poll,
            shared: Arc::new(Shared { registry, states: Mutex::default() }),
            waker: waker.into(),
        })
    }

    /// One more descriptor to wait for.
    pub(crate) fn watch(&self, descriptor: OwnedFd) -> io::Result<Descriptor> {
        let mut states = self.shared.states();
        let place = states.len();
        states.push(State::default());
        drop(states);
        let mut source = SourceFd(&descriptor.as_raw_fd());
        self.shared.registry.register(&mut source, Token(place), Interest::READABLE)?;
        Ok(Descriptor { descriptor, place, shared: Arc::clone(&self.shared) })
    }

    /// Polls the future until it is done.
    pub(crate) fn block_on<F: Future>(&mut self, future: F) -> io::Result<F::Output> {
        let mut future = pin!(future);
        let waker = self.waker.clone();
        let (mut context, mut events) = (Context::from_waker(&waker), Events::with_capacity(16));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
            self.wait_woken(&mut events)?;
        }
    }

    /// Waits until somebody wakes the future. mio reports edges: each is noted, even if nobody waits for it.
    fn wait_woken(&mut self, events: &mut Events) -> io::Result<()> {
        loop {
            match self.poll.poll(events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let mut is_woken = false;
            for event in events.iter() {
                if event.token() == WOKEN {
                    is_woken = true;
                    continue;
                }
                let state = &mut self.shared.states()[event.token().0];
                state.is_readable = true;
                is_woken |= state.waker.take().is_some();
            }
            if is_woken {
                return Ok(());
            }
        }
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Bus::loopback("executor");
    let (axle, display) = (Node::open(&bus, "axle")?, Node::open(&bus, "display")?);
    let mut executor = Loop::new()?;
    let mut inbox = Awaited::by(display.bind(1)?, |descriptor| executor.watch(descriptor))?;
    let subscriber = Subscriber::new(display.bind(2)?, SPEED, Duration::from_millis(10))?;
    let mut speeds = Awaited::by(subscriber, |descriptor| executor.watch(descriptor))?;
    let publisher = Publisher::new(axle.bind(2)?, SPEED)?.spawn(|_due| Quantity::new(13.9))?;
    axle.bind(1)?.send(Target::port("display", 1), b"the speed")?;
    executor.block_on(async {
        let text = String::from_utf8_lossy(inbox.receive().await.payload).into_owned();
        let speed = speeds.receive().await.value;
        println!("{text}: {speed}");
    })?;
    publisher.stop();
    Ok(())
}
