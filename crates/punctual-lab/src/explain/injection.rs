//! Causes made on purpose: how each is made, beside the cause itself, and what that needs.
//!
//! What is made inside of the late thread follows a plan of instants that it is given before; what is made from outside is made by
//! whoever has the plan. Every one ends by the clock, and none lasts longer than [`LASTS_MAX`].

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::pin_to;
use punctual_machine::scheduling::sleep_until;
use punctual_machine::signal::{resume, stop};
use serde::{Deserialize, Serialize};

use super::cause::{Definition, KNOWN};
use crate::scheduling::{QuotaGroup, Urgency};
use punctual_machine::fault_cost::{FRESH_SIZE, PAGE_SIZE};

/// No injection lasts longer: a real-time thread that spins keeps its CPU from everybody.
pub const LASTS_MAX: Duration = Duration::from_millis(100);

/// One way to make a cause.
#[derive(Debug)]
pub struct Injection {
    /// Unlike any other's.
    pub name: &'static str,
    /// How.
    pub how: How,
}

/// Makes it in the calling thread until an instant of `CLOCK_MONOTONIC`.
pub type MakeInside = fn(&mut Scratch, u64);

/// From when to when it was made, instants of `CLOCK_MONOTONIC`; or why it cannot be here.
pub type Made = Result<(u64, u64), String>;

/// Who makes it.
#[derive(Debug)]
pub enum How {
    /// The late thread itself.
    Inside(MakeInside),
    /// Another process, to one side, for so many nanoseconds.
    Outside(fn(&Scene, usize, u64) -> Made),
    /// The same, to both sides at once.
    OutsideBoth(fn(&Scene, u64) -> Made),
}

impl Injection {
    /// All, with the causes that they make.
    pub fn all() -> impl Iterator<Item = (&'static Definition, &'static Injection)> {
        KNOWN.iter().flat_map(|known| known.injections.iter().map(move |injection| (*known, injection)))
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().map(|(_, injection)| injection).find(|injection| injection.name == name)
    }
}

/// What a thread that makes injections inside of itself keeps from one to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    memory: Vec<Vec<u8>>,
    /// Bytes of the last that were touched.
    touched: usize,
    file: Option<File>,
}

impl Scratch {
    /// A byte of a page that nobody touched.
    pub fn fresh_page(&mut self) -> &mut u8 {
        if self.memory.is_empty() || self.touched + PAGE_SIZE > FRESH_SIZE {
            self.memory.push(vec![0; FRESH_SIZE]);
            self.touched = 0;
        }
        self.touched += PAGE_SIZE;
        let last = self.memory.last_mut().expect("pushed above");
        &mut last[self.touched - PAGE_SIZE]
    }

    /// A file that is gone when it is closed.
    pub fn file(&mut self) -> Option<&mut File> {
        if self.file.is_none() {
            let path =
                std::env::temp_dir().join(format!("punctual-{}-{}", std::process::id(), monotonic_ns()));
            self.file = File::create_new(&path).ok();
            let _gone = std::fs::remove_file(&path);
        }
        self.file.as_mut()
    }

    /// Waits for a lock that another thread holds until then.
    pub fn lock(&mut self, until_ns: u64) {
        let lock = Arc::new(Mutex::new(()));
        let (held, is_held) = std::sync::mpsc::channel();
        let holders = Arc::clone(&lock);
        let holder = std::thread::Builder::new().name("holder".to_owned()).spawn(move || {
            let guard = holders.lock().unwrap_or_else(PoisonError::into_inner);
            let _waiting = held.send(());
            sleep_until(until_ns);
            drop(guard);
        });
        if holder.is_ok() && is_held.recv().is_ok() {
            drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// An injection inside of a thread, at an instant of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mishap {
    /// Which.
    pub injection: String,
    /// 0 the client's side, 1 the responder's.
    pub side: usize,
    /// When it begins.
    pub at_ns: u64,
    /// When it ends.
    pub until_ns: u64,
}

/// The mishaps of one thread, each made once when its time has come.
#[derive(Debug, Default)]
pub struct Mishaps {
    /// The last first.
    ahead: Vec<(Mishap, MakeInside)>,
    scratch: Scratch,
}

impl Mishaps {
    /// Those of a plan that are of this side.
    pub fn of(plan: &[Mishap], side: usize) -> Self {
        let inside = |mishap: &Mishap| match Injection::named(&mishap.injection)?.how {
            How::Inside(make) => Some((mishap.clone(), make)),
            How::Outside(_) | How::OutsideBoth(_) => None,
        };
        let mut ahead: Vec<_> = plan.iter().filter(|mishap| mishap.side == side).filter_map(inside).collect();
        ahead.sort_by_key(|(mishap, _)| std::cmp::Reverse(mishap.at_ns));
        Self { ahead, scratch: Scratch::default() }
    }

    /// Makes what is due. What could not be made until it had to end is left out.
    #[inline]
    pub fn make(&mut self) {
        if !self.ahead.is_empty() {
            self.make_due(monotonic_ns());
        }
    }

    #[cold]
    fn make_due(&mut self, now_ns: u64) {
        while let Some((mishap, make)) = self.ahead.pop_if(|(mishap, _)| mishap.at_ns <= now_ns) {
            let lasts_max = LASTS_MAX.as_nanos() as u64;
            if now_ns < mishap.until_ns && mishap.until_ns - now_ns <= lasts_max {
                make(&mut self.scratch, mishap.until_ns);
            }
        }
    }
}

/// What injections from outside work on.
#[derive(Debug)]
pub struct Scene {
    /// The processes of client and responder.
    pub processes: [u32; 2],
    /// Their CPUs.
    pub cpus: [usize; 2],
    /// The control group of both, if one could be made.
    pub quota: Option<QuotaGroup>,
}

/// Threads that compute.
#[derive(Clone, Copy, Debug)]
pub struct Hog {
    /// So many.
    pub count: usize,
    /// As urgent as this.
    pub urgency: Urgency,
}

impl Scene {
    /// Computes on the CPU of a side. Each thread ends by itself, by the clock.
    ///
    /// # Errors
    /// Threads may not be so urgent here, or nowhere on that CPU.
    pub fn hogs(&self, side: usize, lasts_ns: u64, hog: &Hog) -> Made {
        let (cpu, from_ns) = (self.cpus[side], monotonic_ns());
        let until_ns = from_ns + lasts_ns.min(LASTS_MAX.as_nanos() as u64);
        let compute = move |urgency: Urgency| {
            // Never unpinned: a real-time thread would take any CPU.
            pin_to(cpu).map_err(|error| error.to_string())?;
            urgency.apply().map_err(|error| urgency.advise(&error))?;
            while monotonic_ns() < until_ns {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let hog = *hog;
        let threads = (0..hog.count).map(|_| {
            let thread = std::thread::Builder::new().name("hog".to_owned());
            thread
                .spawn(move || compute(hog.urgency))
                .map_err(|error| format!("cannot start a thread: {error}"))
        });
        let threads: Vec<_> = threads.collect();
        let ended =
            threads.into_iter().map(|thread| thread?.join().map_err(|_| "a hog failed".to_owned())?);
        ended.collect::<Vec<Result<(), String>>>().into_iter().collect::<Result<(), String>>()?;
        Ok((from_ns, monotonic_ns()))
    }

    /// Stops a side, and continues it.
    ///
    /// # Errors
    /// It is gone.
    pub fn stop(&self, side: usize, lasts_ns: u64) -> Made {
        let text = |error: punctual_machine::SystemError| error.to_string();
        let from_ns = monotonic_ns();
        stop(self.processes[side]).map_err(text)?;
        sleep_until(from_ns + lasts_ns.min(LASTS_MAX.as_nanos() as u64));
        resume(self.processes[side]).map_err(text)?;
        Ok((from_ns, monotonic_ns()))
    }

    /// Lets the quota of both run out, and raises it again.
    ///
    /// # Errors
    /// There is no group.
    pub fn throttle(&self, lasts_ns: u64) -> Made {
        let group = self.quota.as_ref().ok_or("no control group with a quota can be made here")?;
        let from_ns = monotonic_ns();
        group.allow_us(QuotaGroup::LEAST_US)?;
        sleep_until(from_ns + lasts_ns.min(LASTS_MAX.as_nanos() as u64));
        group.allow_us(QuotaGroup::PLENTY_US)?;
        Ok((from_ns, monotonic_ns()))
    }
}

#[cfg(test)]
mod tests;
