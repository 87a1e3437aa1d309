//! clockworker, over tokio's sockets.

use std::future::Future;
use std::io;
use std::rc::Rc;

use clockworker::ExecutorBuilder;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::stages::{Executor, Reads, Writes, connect, hog};
use crate::{CLASSES, Outcome, Serving, announce, share};

/// A queue for each class.
#[derive(Clone)]
struct Queues(Rc<clockworker::Executor<usize>>);

impl Executor for Queues {
    fn start(&self, class: usize, future: impl Future<Output = ()> + 'static) {
        let queue = self.0.queue(class.min(CLASSES - 1)).expect("each class has a queue");
        queue.spawn_detached(future);
    }
}

struct Half(Rc<TcpStream>);

impl Reads for Half {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.0.readable().await?,
                done => return done,
            }
        }
    }
}

impl Writes for Half {
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.0.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.0.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Serves until the process ends.
pub fn serve(serving: Serving) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut builder = ExecutorBuilder::new();
    for class in 0..CLASSES {
        builder = builder.with_queue(class, share(class) as u64);
    }
    let queues = Queues(builder.build()?);
    let executor = Rc::clone(&queues.0);
    LocalSet::new().block_on(&runtime, async move {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        announce(listener.local_addr()?)?;
        if serving.hog_ns > 0 {
            queues.start(CLASSES - 1, hog(serving.hog_ns));
        }
        let accepts = async {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let stream = Rc::new(stream);
                connect(&queues, Half(Rc::clone(&stream)), Half(stream), serving.repeats);
            }
        };
        let ended: io::Result<()> = executor.run_until(accepts).await;
        Ok(ended?)
    })
}
