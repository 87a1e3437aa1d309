//! On threads of the runtime's own nobody is woken by a descriptor while a worker is awake. Everything that waits lies where every look
//! of a worker sees it. Before the one that leads sleeps, it arms all of it, and what comes then ends its sleep.

use std::future::Future as _;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use punctual_machine::epoll::Readiness;

use super::super::reactor::Reported;
use super::super::shared::Shared;
use super::super::timers::Sleep;
use super::super::watch::Watched;
use super::super::{Handle, context};
use super::Awaitable;
use crate::locks::lock;

/// An object that waits while its task does.
#[derive(Debug)]
struct Resting<T> {
    /// Itself, while its task waits.
    it: Option<Box<T>>,
    waker: Option<Waker>,
    is_armed: bool,
    /// Its descriptor was reported while its task did not wait. The kernel does not say so again of what is still there.
    is_reported: bool,
    /// It is among those that workers look at.
    is_watched: bool,
}

#[derive(Debug)]
struct Rest<T>(Mutex<Resting<T>>);

impl<T: Awaitable> Reported for Rest<T> {
    fn handle(&self, readiness: Readiness, wakers: &mut Vec<Waker>) {
        if readiness.is_readable || readiness.is_closed {
            let mut resting = lock(&self.0);
            let waker = resting.waker.take();
            resting.is_reported |= waker.is_none();
            wakers.extend(waker);
        }
    }

    fn forget(&self, wakers: &mut Vec<Waker>) {
        wakers.extend(lock(&self.0).waker.take());
    }
}

impl<T: Awaitable> Watched for Rest<T> {
    fn look(&self) -> Option<Option<Waker>> {
        let mut resting = lock(&self.0);
        if resting.it.as_mut().is_some_and(|it| !it.is_ready()) {
            return None;
        }
        resting.is_watched = false;
        Some(resting.waker.take())
    }

    fn arm(&self) -> Option<Waker> {
        let mut resting = lock(&self.0);
        resting.is_watched = false;
        resting.arm()
    }
}

impl<T: Awaitable> Resting<T> {
    /// Arms it if it waits. Returns the waker to be called because something is there already.
    fn arm(&mut self) -> Option<Waker> {
        let it = self.it.as_mut().filter(|_| !self.is_armed)?;
        self.is_armed = it.arm() && !std::mem::take(&mut self.is_reported);
        if self.is_armed { None } else { self.waker.take() }
    }
}

/// A place in the reactor of a runtime.
#[derive(Debug)]
pub(super) struct Own<T> {
    rest: Arc<Rest<T>>,
    number: u64,
    handle: Handle,
    /// Ends the wait of what has to be done at an instant.
    alarm: Option<Sleep>,
}

impl<T: Awaitable> Own<T> {
    pub(super) fn new(handle: &Handle, descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let resting =
            Resting { it: None, waker: None, is_armed: false, is_reported: false, is_watched: false };
        let rest = Arc::new(Rest(Mutex::new(resting)));
        let number = handle.shared.add_descriptor(descriptor, Arc::clone(&rest) as _)?;
        Ok(Self { rest, number, handle: handle.clone(), alarm: None })
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// True if something has come while nobody else had anything to do, or if the instant for which it would wait has come.
    pub(super) fn has_news_soon(&mut self, it: &mut T, context: &mut Context<'_>) -> bool {
        if it.shows_all() && context::is_ready_soon(|| it.is_ready()) {
            return true;
        }
        self.alarm = it.time_left().map(|left| self.handle.sleep_until(self.handle.now().plus(left)));
        self.alarm.as_mut().is_some_and(|alarm| Pin::new(alarm).poll(context).is_ready())
    }

    /// Puts it where the looks of workers see it, or arms it.
    pub(super) fn lay_down(&self, it: Box<T>, waker: &Waker) {
        let can_be_watched = it.shows_all();
        let mut resting = lock(&self.rest.0);
        resting.it = Some(it);
        // It may be the last of its task, which is dropped without the lock.
        let gone = resting.waker.replace(waker.clone());
        let was_watched = std::mem::replace(&mut resting.is_watched, can_be_watched);
        let is_ready = if can_be_watched { None } else { resting.arm() };
        drop(resting);
        drop(gone);
        let watched = || Arc::clone(&self.rest) as Arc<dyn Watched>;
        let is_ready =
            if can_be_watched && !was_watched { self.shared().reactor.watch(watched()) } else { is_ready };
        is_ready.into_iter().for_each(Waker::wake);
    }

    /// The resting object comes back.
    pub(super) fn take_back(&mut self) -> Option<Box<T>> {
        self.alarm = None;
        let mut resting = lock(&self.rest.0);
        // An armed object disarms itself when it is next asked for something.
        resting.is_armed = false;
        let (it, gone) = (resting.it.take(), resting.waker.take());
        drop(resting);
        drop(gone);
        it
    }

    /// Nobody waits for its descriptor any more.
    pub(super) fn leave(&self, descriptor: BorrowedFd<'_>) {
        self.shared().remove_descriptor(descriptor, self.number);
    }
}
