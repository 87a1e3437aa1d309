//! What a client keeps of its own thread and of the kernel, between its messages.

use std::time::Duration;

use punctual::{Clock, Ticks};

use crate::explain::kept::{ClockPair, ThreadWindows, WindowLog};
use crate::explain::recorder::LateRecorder;

/// A message that took longer is asked about at once.
const SLOW: Duration = Duration::from_micros(400);

/// Windows of the thread that made it, and a recorder of the kernel.
#[derive(Debug)]
pub struct ClientWatch {
    clock: &'static Clock,
    log: WindowLog,
    recorder: Option<Result<LateRecorder, String>>,
    slow: Ticks,
    wants_look: bool,
    was_slow: bool,
    other_looks: bool,
    /// What the longest look took.
    look_max: Ticks,
}

impl ClientWatch {
    /// Of the calling thread, with room for so many windows.
    pub fn of_this_thread(windows: usize, traces: bool) -> Self {
        let clock = Clock::get();
        Self {
            clock,
            recorder: traces.then(LateRecorder::start),
            log: WindowLog::of_this_thread(windows),
            slow: clock.ticks(SLOW),
            wants_look: false,
            was_slow: false,
            other_looks: false,
            look_max: Ticks(0),
        }
    }

    /// The other end looks at its own thread behind its answer: the next message had better wait.
    #[inline]
    pub fn note_other_looks(&mut self) {
        self.other_looks = true;
    }

    /// A message was answered, or waited for in vain, in this span. Under open load the next is due at `next`, and so many are
    /// under way.
    #[inline]
    pub fn look_back(&mut self, span: Option<(Ticks, Ticks)>, next: Option<Ticks>, open: usize) {
        let now = self.clock.now();
        let slow = span.filter(|(begin, end)| end.since(*begin) > self.slow);
        if slow.is_some() || self.other_looks || self.wants_look || self.log.is_due(now) {
            self.look_at(now, slow, next, open);
        }
    }

    #[cold]
    fn look_at(&mut self, now: Ticks, slow: Option<(Ticks, Ticks)>, next: Option<Ticks>, open: usize) {
        self.wants_look = true;
        self.was_slow |= slow.is_some();
        if let Some(((begin, end), recorder)) = slow.zip(self.recording()) {
            let pair = ClockPair::now();
            recorder.note(pair.monotonic_ns(begin), pair.monotonic_ns(end));
        }
        let Some(due) = next else { return self.look_closed(now) };
        // Messages come whatever is done here: there must be time for it before the next.
        self.other_looks = false;
        let free = due.since(now);
        if open == 0 && free > Ticks(self.look_max.0 * 2) {
            self.look();
            self.dump_within(Some(self.clock.duration(due.since(self.clock.now()))));
        }
    }

    /// Nothing is under way: the other end has as long again for its own look.
    fn look_closed(&mut self, from: Ticks) {
        self.look();
        if std::mem::take(&mut self.other_looks) {
            let now = self.clock.now();
            let until = now.plus(now.since(from));
            while self.clock.now() < until {
                std::hint::spin_loop();
            }
        }
        self.dump_within(None);
    }

    fn look(&mut self) {
        let from = self.clock.now();
        self.log.close(0, self.was_slow);
        (self.wants_look, self.was_slow) = (false, false);
        self.look_max = self.look_max.max(self.clock.now().since(from));
    }

    /// The last message is answered.
    pub fn finish(&mut self) {
        self.look();
        self.dump_within(None);
    }

    fn recording(&mut self) -> Option<&mut LateRecorder> {
        self.recorder.as_mut()?.as_mut().ok()
    }

    /// What this thread did meanwhile is in no window.
    fn dump_within(&mut self, free: Option<Duration>) {
        if self.recording().is_some_and(|recorder| recorder.dump_within(free)) {
            self.log.pass_over(0);
        }
    }

    /// What it noted.
    pub fn end(self) -> (ThreadWindows, Option<Result<LateRecorder, String>>) {
        (self.log.finish(), self.recorder)
    }
}
