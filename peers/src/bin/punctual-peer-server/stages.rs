//! Three tasks for each connection: one receives, one serves, one sends. All on one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use punctual_lab::server::work::{Splitter, serve};

/// The receiving half of a connection.
pub trait Reads: 'static {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Its sending half.
pub trait Writes: 'static {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// An executor on the calling thread.
pub trait Executor: Clone + 'static {
    fn start(&self, class: usize, future: impl Future<Output = ()> + 'static);
}

/// Messages from one task to the next.
#[derive(Clone, Default)]
struct Pipe(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    messages: VecDeque<Vec<u8>>,
    reader: Option<Waker>,
    is_closed: bool,
}

impl Pipe {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.borrow_mut();
        change(&mut state);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    fn push(&self, message: Vec<u8>) {
        self.change(|state| state.messages.push_back(message));
    }

    fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    fn is_empty(&self) -> bool {
        self.0.borrow().messages.is_empty()
    }

    async fn next(&self) -> Option<Vec<u8>> {
        poll_fn(|context| {
            let mut state = self.0.borrow_mut();
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

/// Lets other tasks go on once.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Serves a connection, whose first byte is its class.
pub fn connect(executor: &impl Executor, reads: impl Reads, writes: impl Writes, repeats: u32) {
    let its = executor.clone();
    executor.start(0, async move {
        let (class, mut reads) = (&mut [0], reads);
        if matches!(reads.read(class).await, Ok(1)) {
            start_stages(&its, class[0].into(), reads, writes, repeats);
        }
    });
}

fn start_stages(
    executor: &impl Executor,
    class: usize,
    mut reads: impl Reads,
    mut writes: impl Writes,
    repeats: u32,
) {
    let [requests, replies] = [Pipe::default(), Pipe::default()];
    let requested = requests.clone();
    executor.start(class, async move {
        let (mut splitter, mut buffer) = (Splitter::default(), [0; 4_096]);
        while let Ok(count) = reads.read(&mut buffer).await
            && count > 0
        {
            splitter.push(&buffer[..count], |request| requests.push(request.to_vec()));
        }
        requests.close();
    });
    let replied = replies.clone();
    executor.start(class, async move {
        while let Some(request) = requested.next().await {
            replies.push(serve(&request, repeats));
            if !requested.is_empty() {
                yield_now().await;
            }
        }
        replies.close();
    });
    executor.start(class, async move {
        while let Some(reply) = replied.next().await {
            if writes.write_all(&reply).await.is_err() {
                return;
            }
        }
    });
}

/// A task that keeps the thread for so long again and again.
pub async fn hog(ns: u64) {
    loop {
        let until = std::time::Instant::now() + std::time::Duration::from_nanos(ns);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        yield_now().await;
    }
}
