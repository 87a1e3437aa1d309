//! The CPUs that a thread of any process may have, changed and given back.

use punctual_machine::SystemError;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// What a thread could have before it was bound. It can have that again when this is dropped.
#[derive(Debug)]
pub struct Bound {
    /// `None` is the calling thread.
    thread: Option<Pid>,
    before: CpuSet,
}

impl Bound {
    /// The calling thread.
    ///
    /// # Errors
    /// The kernel does not tell which CPUs it may have.
    pub fn this_thread() -> Result<Self, SystemError> {
        Self::of(None)
    }

    /// A thread, by its number.
    ///
    /// # Errors
    /// It is gone.
    pub fn thread(number: u32) -> Result<Self, SystemError> {
        let thread = i32::try_from(number).ok().and_then(Pid::from_raw);
        let gone = || SystemError::new("find", format!("thread {number}"), rustix::io::Errno::SRCH);
        Self::of(Some(thread.ok_or_else(gone)?))
    }

    fn of(thread: Option<Pid>) -> Result<Self, SystemError> {
        let before = sched_getaffinity(thread).map_err(|error| refused("find CPUs of", thread, error))?;
        Ok(Self { thread, before })
    }

    /// Lets it have one CPU alone. Where it runs on another, it is moved before this returns.
    ///
    /// # Errors
    /// There is no such CPU for it, it is another user's, or it is gone.
    pub fn to(&self, cpu: usize) -> Result<(), SystemError> {
        let mut set = CpuSet::new();
        if cpu >= CpuSet::MAX_CPU {
            return Err(refused("bind", self.thread, rustix::io::Errno::INVAL));
        }
        set.set(cpu);
        sched_setaffinity(self.thread, &set).map_err(|error| refused("bind", self.thread, error))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _gone = sched_setaffinity(self.thread, &self.before);
    }
}

fn refused(action: &'static str, thread: Option<Pid>, error: rustix::io::Errno) -> SystemError {
    let named = |thread: Pid| format!("thread {}", thread.as_raw_nonzero());
    SystemError::new(action, thread.map_or_else(|| "this thread".to_owned(), named), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::cpu::{allowed, current};

    /// Goal: it runs where it is bound to, at once, and may go where it could go when that is over.
    #[test]
    fn a_thread_is_moved_and_let_go() {
        std::thread::spawn(|| {
            let before = allowed();
            let bound = Bound::this_thread().expect("this thread");
            for &cpu in before.iter().chain(before.iter().rev()) {
                bound.to(cpu).expect("one of its own");
                assert_eq!((current(), allowed()), (cpu, vec![cpu]));
            }
            drop(bound);
            assert_eq!(allowed(), before);
        })
        .join()
        .expect("the thread's own checks");
    }

    /// Goal: the same from another thread; who is gone and what is no CPU is said.
    #[test]
    fn another_thread_is_bound() {
        let (tell, told) = std::sync::mpsc::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("a listener");
            let _over = goes_on.recv();
            allowed()
        });
        let number = told.recv().expect("a thread").unsigned_abs();
        let bound = Bound::thread(number).expect("it is there");
        let cpu = *allowed().last().expect("a CPU");
        bound.to(cpu).expect("one of its own");
        assert!(bound.to(usize::MAX).is_err());
        drop(go_on);
        assert_eq!(thread.join().expect("its end"), vec![cpu]);
        let error = Bound::thread(u32::MAX).expect_err("no such thread").to_string();
        assert!(error.contains("thread 4294967295"), "{error}");
    }
}
