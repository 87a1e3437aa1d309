//! The causes that are known, one file each: by what each is recognised, in words, what to try, how to see that it helped, and how to
//! make it on purpose.
//!
//! [`KNOWN`] registers them. Without its line there a cause's time is unexplained.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::clue::{Clue, Glance};
use super::injection::Injection;
use super::start::StartStep;

mod busy;
mod calibration;
mod construction;
mod cpu_asleep;
mod faults_major;
mod faults_minor;
mod first_use;
mod frozen;
mod handler_blocked;
mod holder_preempted;
mod interrupts;
mod kernel_lock;
mod lost_fragment;
mod migration;
mod real_time_limit;
mod receive_buffer;
mod reclaim;
mod run_queue;
mod signals;
mod slept;
mod steal;
mod stopped;
mod storage;
mod throttled;
mod traced;
mod urgent_neighbour;
mod waited;

/// All of them.
pub static KNOWN: [&Definition; 27] = [
    &busy::DEFINITION,
    &calibration::DEFINITION,
    &construction::DEFINITION,
    &cpu_asleep::DEFINITION,
    &faults_major::DEFINITION,
    &faults_minor::DEFINITION,
    &first_use::DEFINITION,
    &frozen::DEFINITION,
    &handler_blocked::DEFINITION,
    &holder_preempted::DEFINITION,
    &interrupts::DEFINITION,
    &kernel_lock::DEFINITION,
    &lost_fragment::DEFINITION,
    &migration::DEFINITION,
    &real_time_limit::DEFINITION,
    &receive_buffer::DEFINITION,
    &reclaim::DEFINITION,
    &run_queue::DEFINITION,
    &signals::DEFINITION,
    &slept::DEFINITION,
    &steal::DEFINITION,
    &stopped::DEFINITION,
    &storage::DEFINITION,
    &throttled::DEFINITION,
    &traced::DEFINITION,
    &urgent_neighbour::DEFINITION,
    &waited::DEFINITION,
];

/// Definition of a cause.
#[derive(Debug)]
pub struct Definition {
    /// As files and summaries have it.
    pub name: &'static str,
    /// As a person reads it.
    pub words: &'static str,
    /// A remedy to try.
    pub fix: &'static str,
    /// Fixes of `punctual verify` that may help, where a run's experiment takes them.
    pub fixes: &'static [&'static str],
    /// Another way to see whether that helped.
    pub verify: &'static str,
    /// Tier 1: if it took this time, who it was, as far as that is known.
    pub in_trace: fn(&Clue<'_>) -> Option<String>,
    /// Tier 0: the time that it took for certain, microseconds.
    pub in_windows: fn(&Glance<'_>) -> u32,
    /// Its name where only user space sees it, if that is another's name, or unexplained.
    pub without_trace: Option<&'static str>,
    /// Its relation to a backlog, and to a class of scheduling.
    pub traits: Traits,
    /// Steps of a start whose time is its.
    pub in_start: &'static [StartStep],
    /// Ways to make it on purpose.
    pub injections: &'static [Injection],
}

/// Defaults of a definition: the cause is seen nowhere, relates to no other, and is not made on purpose.
const BLANK: Definition = Definition {
    name: "",
    words: "",
    fix: "",
    fixes: &[],
    verify: "run it again, and punctual compare RUN RUN",
    in_trace: |_| None,
    in_windows: |_| 0,
    without_trace: None,
    traits: Traits { is_work: false, is_of_class: false },
    in_start: &[],
    injections: &[],
};

/// Relation of a cause to others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// A backlog is worked off like this: it is then no cause of its own.
    pub is_work: bool,
    /// The scheduling class of the late thread makes it.
    pub is_of_class: bool,
}

/// Why. Unexplained if nothing that is known accounts for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cause(Option<&'static Definition>);

/// The name of what nothing accounts for.
pub const UNEXPLAINED: &str = "unexplained";

impl Cause {
    /// Nothing that is known accounts for it.
    pub const UNEXPLAINED: Self = Self(None);

    /// The one of this name; unexplained if none is known by it.
    pub fn named(name: &str) -> Self {
        Self(KNOWN.iter().copied().find(|known| known.name == name))
    }

    /// Its definition; `None` if it is unexplained.
    pub fn definition(self) -> Option<&'static Definition> {
        self.0
    }

    /// As files and summaries have it.
    pub fn name(self) -> &'static str {
        self.0.map_or(UNEXPLAINED, |known| known.name)
    }

    /// A remedy to try.
    pub fn fix(self) -> &'static str {
        let trace = "see punctual explain RUN; where the run has no trace of the kernel, make one with --trace, as root";
        self.0.map_or(trace, |known| known.fix)
    }

    /// Fixes of `punctual verify` that may help.
    pub fn fixes(self) -> &'static [&'static str] {
        self.0.map_or(&[], |known| known.fixes)
    }

    /// A way to see whether that helped, where none of these is to be had.
    pub fn verify(self) -> &'static str {
        self.0.map_or("", |known| known.verify)
    }

    /// A backlog is worked off like this.
    pub fn is_work(self) -> bool {
        self.0.is_some_and(|known| known.traits.is_work)
    }

    /// The scheduling class of the late thread makes it.
    pub fn is_of_class(self) -> bool {
        self.0.is_some_and(|known| known.traits.is_of_class)
    }

    /// The cause that took this time, and the culprit, as far as that is known.
    pub(super) fn of(clue: &Clue<'_>) -> (Self, String) {
        let found = KNOWN.iter().find_map(|known| Some((Self(Some(known)), (known.in_trace)(clue)?)));
        found.unwrap_or((Self::UNEXPLAINED, String::new()))
    }

    /// The cause that the time of a step of a start belongs to.
    pub fn of_step(step: StartStep) -> Self {
        Self(KNOWN.iter().copied().find(|known| known.in_start.contains(&step)))
    }

    /// The cause that the injection of this name makes.
    pub fn made_by(injection: &str) -> Self {
        let is_made = |known: &&Definition| known.injections.iter().any(|one| one.name == injection);
        Self(KNOWN.iter().copied().find(is_made))
    }

    /// The time that each took for certain, microseconds.
    pub(super) fn at(glance: &Glance<'_>) -> impl Iterator<Item = (Self, u32)> {
        KNOWN.iter().map(|known| (Self(Some(known)), (known.in_windows)(glance)))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or("unexplained: nothing that was seen accounts for it", |known| known.words))
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Cause {}

impl PartialOrd for Cause {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cause {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl Hash for Cause {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Cause {
    /// A name that older files have, or newer ones, is of nothing that is known here.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::named(&name))
    }
}

#[cfg(test)]
mod tests;
