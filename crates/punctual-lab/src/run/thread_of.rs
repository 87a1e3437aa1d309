//! A thread that has something of its own, and works with it as it is told.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

type Work<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A thread that owns its value, because only this thread may use it: the network namespace that it left for, sockets there. Both end
/// with this value.
#[derive(Debug)]
pub struct ThreadOf<T> {
    works: Option<SyncSender<Work<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: 'static> ThreadOf<T> {
    /// Starts it, and waits until it has what is opened there.
    ///
    /// # Errors
    /// Why that could not be opened.
    pub fn start(
        name: &str,
        open: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<Self, String> {
        let (works, ordered) = sync_channel::<Work<T>>(1);
        let (opened, opening) = sync_channel(1);
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            let open = open().map(|own| (own, opened.send(Ok(())))).map_err(|text| opened.send(Err(text)));
            if let Ok((mut own, _waiting)) = open {
                ordered.into_iter().for_each(|work| work(&mut own));
            }
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        opening.recv().map_err(|_| FAILED.to_owned())??;
        Ok(Self { works: Some(works), thread: Some(thread) })
    }

    /// Does something in it, and waits for what that brings. Threads that are started there are in its namespace.
    ///
    /// # Errors
    /// The thread failed.
    pub fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, String> {
        let (done, result) = sync_channel(1);
        let work: Work<T> = Box::new(move |own| drop(done.send(work(own))));
        let ordered = self.works.as_ref().and_then(|works| works.send(work).ok());
        ordered.and_then(|()| result.recv().ok()).ok_or_else(|| FAILED.to_owned())
    }
}

const FAILED: &str = "a thread failed";

impl<T> Drop for ThreadOf<T> {
    fn drop(&mut self) {
        drop(self.works.take());
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}
