//! The tracer of a thread, as the kernel tells that thread: `TracerPid` of its status. The time that a tracer took is not in it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use punctual_machine::process::{name_of, tracer_in};
use serde::{Deserialize, Serialize};

/// A time in which a thread was traced when it looked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// From the look before the first that found the tracer until the last that did.
    pub span: (u64, u64),
    /// The tracer, with its number: `strace (812)`.
    pub tracer: String,
}

impl Attached {
    /// The tracer of a thread in an interval.
    pub fn over(all: &[Self], (from, to): (u64, u64)) -> Option<&str> {
        all.iter().find(|one| one.span.0 < to && one.span.1 > from).map(|one| one.tracer.as_str())
    }

    /// The same at other instants.
    pub fn at(all: &[Self], to: impl Fn(u64) -> u64) -> Vec<Self> {
        let moved = |one: &Self| Self { span: (to(one.span.0), to(one.span.1)), tracer: one.tracer.clone() };
        all.iter().map(moved).collect()
    }
}

/// Bytes of a status in which the tracer's number stands for certain.
const STATUS_SIZE: usize = 512;

/// Asks about the thread that made it.
#[derive(Debug)]
pub(super) struct TracerLook {
    /// Absent where /proc is.
    status: Option<File>,
    found: Vec<Attached>,
    /// The last look found the last of them.
    is_attached: bool,
}

impl TracerLook {
    pub(super) fn of_this_thread() -> Self {
        Self { status: File::open("/proc/thread-self/status").ok(), found: Vec::new(), is_attached: false }
    }

    /// Looks at the end of a span.
    pub(super) fn look(&mut self, span: (u64, u64)) {
        let mut text = [0; STATUS_SIZE];
        let size = self.status.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        self.note(span, tracer_in(&text[..size]));
    }

    /// A tracer that comes back was not there meanwhile.
    fn note(&mut self, span: (u64, u64), tracer: Option<u32>) {
        let was_attached = std::mem::replace(&mut self.is_attached, tracer.is_some());
        let Some(tracer) = tracer else { return };
        let ends_with = format!("({tracer})");
        let last = self.found.last_mut().filter(|last| was_attached && last.tracer.ends_with(&ends_with));
        match last {
            Some(last) => last.span.1 = span.1,
            None => self.found.push(Attached { span, tracer: name_of(tracer) }),
        }
    }

    pub(super) fn finish(self) -> Vec<Attached> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_stands_in_the_status() {
        let status =
            |tracer| format!("Name:\tcomponent\nState:\tR (running)\nPPid:\t7\nTracerPid:\t{tracer}\n");
        assert_eq!(tracer_in(status(812).as_bytes()), Some(812));
        assert_eq!(tracer_in(status(0).as_bytes()), None);
        assert_eq!(tracer_in(b"Name:\tTracerPid:\n\xff"), None);
    }

    /// Goal: a tracer that went and came back traced nobody in between.
    #[test]
    fn a_tracer_that_went_is_not_attached() {
        let mut look = TracerLook::of_this_thread();
        let looks = [Some(7), Some(7), None, Some(7)];
        for (number, tracer) in (0..).zip(looks) {
            look.note((10 * number, 10 * number + 10), tracer);
        }
        let spans: Vec<_> = look.finish().iter().map(|one| one.span).collect();
        assert_eq!(spans, [(0, 20), (30, 40)]);
    }

    /// Goal: a thread that nobody traces notes nobody, and an interval finds only spans that overlap it.
    #[test]
    fn nobody_traces_this_test() {
        let mut look = TracerLook::of_this_thread();
        look.look((0, 10));
        let own = std::fs::read("/proc/thread-self/status").expect("there is /proc");
        assert_eq!(look.finish().len(), usize::from(tracer_in(&own).is_some()));
        let all = [Attached { span: (10, 20), tracer: "strace (8)".to_owned() }];
        let found = [(0, 10), (0, 11), (19, 30), (20, 30)].map(|span| Attached::over(&all, span));
        assert_eq!(found, [None, Some("strace (8)"), Some("strace (8)"), None]);
        assert_eq!(Attached::at(&all, |at| at - 10)[0].span, (0, 10));
    }
}
