//! glommio: io_uring, and task queues with shares.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_lite::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use glommio::net::{TcpListener, TcpStream};
use glommio::{Latency, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};

use crate::stages::{Executor, Reads, Writes, connect, hog};
use crate::{CLASSES, Outcome, Serving, announce, share};

/// Latency that is asked for the most important class.
const URGENT: Duration = Duration::from_millis(1);

/// A queue for each class.
#[derive(Clone)]
struct Queues([TaskQueueHandle; CLASSES]);

impl Executor for Queues {
    fn start(&self, class: usize, future: impl Future<Output = ()> + 'static) {
        let queue = self.0[class.min(CLASSES - 1)];
        glommio::spawn_local_into(future, queue).expect("each class has a queue").detach();
    }
}

impl Reads for ReadHalf<TcpStream> {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, buffer).await
    }
}

impl Writes for WriteHalf<TcpStream> {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }
}

/// Serves until the process ends.
pub fn serve(serving: Serving) -> Outcome<()> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound).make().map_err(|error| error.to_string())?;
    executor.run(async move {
        let queues = Queues(std::array::from_fn(|class| {
            let latency = if class == 0 { Latency::Matters(URGENT) } else { Latency::NotImportant };
            glommio::executor().create_task_queue(Shares::Static(share(class)), latency, &class.to_string())
        }));
        let words = |error: glommio::GlommioError<()>| error.to_string();
        let listener = TcpListener::bind("127.0.0.1:0").map_err(words)?;
        announce(listener.local_addr().map_err(words)?)?;
        if serving.hog_ns > 0 {
            queues.start(CLASSES - 1, hog(serving.hog_ns));
        }
        loop {
            let stream = listener.accept().await.map_err(words)?;
            stream.set_nodelay(true).map_err(words)?;
            let (reads, writes) = split(stream);
            connect(&queues, reads, writes, serving.repeats);
        }
    })
}
