//! Beginning and end of every function: no panic leaves it, and the object of its handle is looked up first.

use std::any::Any;
use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_machine::handles::{Entered, Refusal, Table, Thread, forks};

use crate::outcome::{Code, fail, punctual_error};

/// Things of one kind that can be open at once: several times what one node can have.
pub(crate) const OPEN_MAX: usize = 4096;

/// Runs a function's body.
#[inline]
pub(crate) fn entry(body: impl FnOnce() -> Result<(), Code>) -> punctual_error {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Ok as punctual_error,
        Ok(Err(code)) => code as punctual_error,
        Err(panic) => bug(panic),
    }
}

#[cold]
fn bug(panic: Box<dyn Any + Send>) -> punctual_error {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
    let code = fail(Code::Bug, format_args!("a mistake in the library, please report it: {said}"));
    // The payload of the panic may itself panic when it is dropped.
    std::mem::forget(panic);
    code as punctual_error
}

#[cold]
fn refused(what: &str, refusal: Refusal) -> Code {
    match refusal {
        Refusal::Unknown => fail(Code::Closed, format_args!("no open {what} has this handle")),
        Refusal::Foreign => fail(
            Code::WrongThread,
            format_args!(
                "this {what} belongs to the thread that used it first, until that detaches it or ends"
            ),
        ),
        Refusal::Busy => fail(
            Code::Busy,
            format_args!(
                "this thread is using the {what}: no function may be called for it from a signal handler"
            ),
        ),
        Refusal::Broken => {
            fail(Code::Bug, format_args!("a mistake in the library broke this {what}: close it"))
        }
    }
}

#[inline]
fn current() -> Result<Thread, Code> {
    Thread::current().ok_or_else(no_number)
}

#[cold]
fn no_number() -> Code {
    fail(Code::TooMany, "more threads than have numbers")
}

/// Things of which each belongs to one thread at a time.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    table: Table<T, OPEN_MAX>,
    what: &'static str,
    /// Called by a thread that has one for the first time.
    at_end: fn(),
}

impl<T: Send> Owned<T> {
    pub(crate) const fn new(kind: u16, what: &'static str, at_end: fn()) -> Self {
        Self { table: Table::new(kind), what, at_end }
    }

    pub(crate) fn insert(&self, value: T) -> Result<u64, Code> {
        // The thread is given its number now, and not in its first call that is to be fast.
        current()?;
        self.table.insert(value).ok_or_else(|| too_many(self.what))
    }

    /// The object with this handle, for this thread.
    #[inline]
    pub(crate) fn enter(&self, handle: u64) -> Result<Entered<'_, T>, Code> {
        let me = current()?;
        self.table.enter(handle, me, self.at_end).map_err(|refusal| refused(self.what, refusal))
    }

    pub(crate) fn detach(&self, handle: u64) -> Result<(), Code> {
        self.table.give_up(handle, current()?).map_err(|refusal| refused(self.what, refusal))
    }

    pub(crate) fn remove(&self, handle: u64) -> Result<T, Code> {
        self.table.remove(handle, current()?).map_err(|refusal| refused(self.what, refusal))
    }

    /// Gives up what is this thread's.
    pub(crate) fn give_up_all(&self) {
        if let Some(me) = Thread::current() {
            self.table.give_up_all(me);
        }
    }
}

#[cold]
fn too_many(what: &str) -> Code {
    fail(Code::TooMany, format_args!("{OPEN_MAX} of them are open: close a {what} that is no longer needed"))
}

/// Things that every thread may use: buses and nodes, which are cheap to clone. None of it is on the way of a message.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    open: Mutex<Vec<Option<Opened<T>>>>,
    /// The highest bits of the numbers of its handles.
    kind: u16,
    what: &'static str,
}

#[derive(Debug)]
struct Opened<T> {
    handle: u64,
    /// After how many forks.
    forks: u32,
    value: T,
}

/// Lives of all shared things so far: a number is given once.
static LIVES: Mutex<u64> = Mutex::new(0);

impl<T: Clone> Shared<T> {
    pub(crate) const fn new(kind: u16, what: &'static str) -> Self {
        Self { open: Mutex::new(Vec::new()), kind, what }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Opened<T>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, value: T) -> Result<u64, Code> {
        let life = {
            let mut lives = LIVES.lock().unwrap_or_else(PoisonError::into_inner);
            *lives += 1;
            *lives
        };
        let handle = u64::from(self.kind) << 48 | life;
        // The first handle of a process makes forks seen.
        current()?;
        let new = Some(Opened { handle, forks: forks(), value });
        let mut open = self.lock();
        match open.iter().position(Option::is_none) {
            Some(free) => open[free] = new,
            None if open.len() < OPEN_MAX => open.push(new),
            None => return Err(too_many(self.what)),
        }
        Ok(handle)
    }

    fn closed(&self) -> Code {
        refused(self.what, Refusal::Unknown)
    }

    /// The object with this handle.
    pub(crate) fn get(&self, handle: u64) -> Result<T, Code> {
        let open = self.lock();
        let found = open.iter().flatten().find(|opened| opened.handle == handle);
        self.usable(found).map(|opened| opened.value.clone())
    }

    /// Changes what has this handle. Nobody else changes it meanwhile; where that fails, it stays as it was.
    pub(crate) fn change(
        &self,
        handle: u64,
        change: impl FnOnce(&mut T) -> Result<(), Code>,
    ) -> Result<(), Code> {
        let mut open = self.lock();
        let found = open.iter_mut().flatten().find(|opened| opened.handle == handle);
        let opened = self.usable(found)?;
        let mut changed = opened.value.clone();
        change(&mut changed)?;
        opened.value = changed;
        Ok(())
    }

    /// If it is there, and of this process.
    fn usable<O: Borrow<Opened<T>>>(&self, found: Option<O>) -> Result<O, Code> {
        match found {
            Some(opened) if opened.borrow().forks == forks() => Ok(opened),
            Some(_) => Err(fail(
                Code::WrongThread,
                format_args!("this {} is of the process that forked: open another", self.what),
            )),
            None => Err(self.closed()),
        }
    }

    pub(crate) fn remove(&self, handle: u64) -> Result<T, Code> {
        self.get(handle)?;
        let mut open = self.lock();
        let found =
            open.iter_mut().find(|place| place.as_ref().is_some_and(|opened| opened.handle == handle));
        match found.and_then(Option::take) {
            Some(opened) => Ok(opened.value),
            None => Err(self.closed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of two threads that change one thing at once neither undoes the other, and a change that fails leaves it as it was.
    #[test]
    fn no_change_is_lost() {
        static NUMBERS: Shared<u32> = Shared::new(9, "number");
        let handle = NUMBERS.insert(0).unwrap();
        let (begins, begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let slow = NUMBERS.change(handle, |number| {
                    begins.send(()).unwrap();
                    // Time for the other to come in between, if it can.
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    *number += 1;
                    Ok(())
                });
                assert!(slow.is_ok());
            });
            begun.recv().unwrap();
            let quick = NUMBERS.change(handle, |number| {
                *number += 1;
                Ok(())
            });
            assert!(quick.is_ok());
        });
        let refused = NUMBERS.change(handle, |number| {
            *number = 0;
            Err(Code::Invalid)
        });
        assert!(refused.is_err());
        assert_eq!(NUMBERS.get(handle).unwrap(), 2);
    }
}
