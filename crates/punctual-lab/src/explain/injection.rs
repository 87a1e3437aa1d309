//! Causes made on purpose: the way to make each, beside the cause itself, and its requirements.
//!
//! A cause made inside of the late thread follows a plan of instants that the thread is given before. A cause from outside is made by
//! the holder of the plan. Every one ends by the clock, and none lasts longer than [`LASTS_MAX`]: but one that waits for another thread
//! ends when that has had a CPU again.

mod scene;
mod scratch;
mod tools;

use std::time::Duration;

use punctual_lab_machine::cold_pages::is_on_disk;
use punctual_machine::clock::monotonic_ns;
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use super::cause::{Definition, KNOWN};
use crate::scheduling::Urgency;
pub use scene::{Hog, Scene};
pub use scratch::Scratch;
pub use tools::Tools;

/// No injection lasts longer: a real-time thread that spins keeps its CPU from everybody.
pub const LASTS_MAX: Duration = Duration::from_millis(100);

/// One way to make a cause.
#[derive(Debug)]
pub struct Injection {
    /// Unlike any other's.
    pub name: &'static str,
    /// The means.
    pub how: How,
    /// Its requirement.
    pub needs: Needs,
}

/// Requirement of an injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It is possible everywhere.
    Nothing,
    /// A control group whose quota can be set.
    Quota,
    /// A control group that can be frozen, and that tells for how long.
    Freezer,
    /// To trace a child's child as a debugger does.
    Tracing,
    /// Files of the temporary directory are on a disk.
    Disk,
    /// The same, and a control group whose memory can be limited.
    MemoryLimit,
    /// A thread may be so urgent.
    Urgency(Urgency),
    /// Packets can be steered to a CPU, which then handles them in interrupts.
    Steering,
}

impl Needs {
    /// Why it is not possible here.
    ///
    /// # Errors
    /// In words.
    pub fn are_met(self, tools: &Tools) -> Result<(), String> {
        match self {
            Self::Nothing => Ok(()),
            Self::Quota => tools.group.has_quota(),
            Self::Freezer => tools.group.has_freezer(),
            Self::Steering => tools.loads(),
            Self::Tracing => may_trace(),
            Self::Urgency(urgency) => may_be(urgency),
            Self::Disk => is_temporary_on_disk(),
            Self::MemoryLimit => tools.group.has_memory().and_then(|()| is_temporary_on_disk()),
        }
    }
}

fn is_temporary_on_disk() -> Result<(), String> {
    let directory = std::env::temp_dir();
    let memory = || format!("{} is in memory: set TMPDIR to a disk's", directory.display());
    is_on_disk(&directory).then_some(()).ok_or_else(memory)
}

/// A thread tries it, and ends.
fn may_be(urgency: Urgency) -> Result<(), String> {
    let tried = std::thread::spawn(move || urgency.apply().map_err(|error| urgency.advise(&error)));
    tried.join().map_err(|_| "a thread failed".to_owned())?
}

/// Yama limits who may trace.
fn may_trace() -> Result<(), String> {
    let scope = std::fs::read_to_string(SCOPE).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let has_right = capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_PTRACE));
    may_trace_at(scope.unwrap_or(0), has_right)
}

const SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// At 2 only who has the right to trace may, from 3 on nobody until the next boot (`Documentation/admin-guide/LSM/Yama.rst`).
fn may_trace_at(scope: u32, has_right: bool) -> Result<(), String> {
    match scope {
        2 if !has_right => Err(format!("{SCOPE} is 2: write 1, or run with CAP_SYS_PTRACE")),
        3.. => Err(format!("{SCOPE} is {scope}: nobody may trace until the next boot")),
        _ => Ok(()),
    }
}

/// Makes it in the calling thread until an instant of `CLOCK_MONOTONIC`.
pub type MakeInside = fn(&mut Scratch, u64);

/// From when to when it was made, instants of `CLOCK_MONOTONIC`; or why it cannot be here.
pub type Made = Result<(u64, u64), String>;

/// The maker of an injection.
#[derive(Debug)]
pub enum How {
    /// The late thread itself.
    Inside(MakeInside),
    /// Another process, to one side, for so many nanoseconds.
    Outside(fn(&Scene, usize, u64) -> Made),
    /// The same, to both sides at once.
    OutsideBoth(fn(&Scene, u64) -> Made),
    /// The same, to a responder that spins in a real-time class. It lasts as long as the kernel says.
    OutsideUrgent(fn(&Scene, u64) -> Made),
    /// A fresh process makes it at its start: `run peel` does.
    AtStart,
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

/// An injection inside of a thread, at an instant of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mishap {
    /// Name of the injection.
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
            _ => None,
        };
        let mut ahead: Vec<_> = plan.iter().filter(|mishap| mishap.side == side).filter_map(inside).collect();
        // Of two at one instant the one that ends first is made first.
        ahead.sort_by_key(|(mishap, _)| std::cmp::Reverse((mishap.at_ns, mishap.until_ns)));
        let mut scratch = Scratch::default();
        let needs = |mishap: &Mishap| Injection::named(&mishap.injection).map(|injection| injection.needs);
        let any_needs = |what| ahead.iter().any(|(mishap, _)| needs(mishap) == Some(what));
        if any_needs(Needs::Disk) {
            scratch.prepare_cold();
        }
        if any_needs(Needs::MemoryLimit) {
            scratch.prepare_crowded();
        }
        Self { ahead, scratch }
    }

    /// Makes what is due. An injection that could not be made until it had to end is left out.
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

#[cfg(test)]
mod tests;
