//! The CPUs that the calling thread may have, changed and given back.

use punctual_machine::SystemError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPU set that the thread could have before it was bound. It can have that again when this is dropped.
#[derive(Debug)]
pub struct Bound {
    before: CpuSet,
}

impl Bound {
    /// The calling thread.
    ///
    /// # Errors
    /// The kernel does not tell which CPUs it may have.
    pub fn this_thread() -> Result<Self, SystemError> {
        let before = sched_getaffinity(None).map_err(|error| refused("find CPUs of", error))?;
        Ok(Self { before })
    }

    /// Lets it have one CPU alone. Where it runs on another, it is moved before this returns.
    ///
    /// # Errors
    /// There is no such CPU for it.
    pub fn to(&self, cpu: usize) -> Result<(), SystemError> {
        let mut set = CpuSet::new();
        if cpu >= CpuSet::MAX_CPU {
            return Err(refused("bind", rustix::io::Errno::INVAL));
        }
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|error| refused("bind", error))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _refused = sched_setaffinity(None, &self.before);
    }
}

fn refused(action: &'static str, error: rustix::io::Errno) -> SystemError {
    SystemError::new(action, "this thread", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::cpu::{allowed, current};

    /// Goal: the thread runs at once where it is bound to, and may go where it could go when that is over. A number that is no CPU is
    /// refused.
    #[test]
    fn a_thread_is_moved_and_let_go() {
        std::thread::spawn(|| {
            let before = allowed();
            let bound = Bound::this_thread().expect("this thread");
            for &cpu in before.iter().chain(before.iter().rev()) {
                bound.to(cpu).expect("one of its own");
                assert_eq!((current(), allowed()), (cpu, vec![cpu]));
            }
            assert!(bound.to(usize::MAX).is_err(), "no CPU");
            drop(bound);
            assert_eq!(allowed(), before);
        })
        .join()
        .expect("the thread's own checks");
    }
}
