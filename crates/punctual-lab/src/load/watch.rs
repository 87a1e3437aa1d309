//! A client's observations of its own thread and of the kernel, between its messages.

use std::time::Duration;

use punctual::{Clock, Ticks};

use super::pace::spin_until;
use crate::explain::kept::{ClockPair, ThreadWindows, WindowLog};
use crate::explain::recorder::LateRecorder;
use crate::scheduling::Control;

/// A message that took longer is asked about at once.
pub const SLOW: Duration = Duration::from_micros(400);

/// A look takes no longer where nothing interrupts it.
const LOOK_MAX: Duration = Duration::from_micros(200);

/// Windows of the thread that made it, and a recorder of the kernel.
#[derive(Debug)]
pub struct ClientWatch {
    clock: &'static Clock,
    log: WindowLog,
    recorder: Option<Result<LateRecorder, String>>,
    /// Says how late another thread of its CPU was meanwhile.
    control: Option<Control>,
    slow: Ticks,
    wants_look: bool,
    was_slow: bool,
    other_looks: bool,
    look: LookTime,
}

/// Usual duration of a look at the thread. One that took longer was interrupted: as a maximum it would keep a busy thread from
/// ever looking again.
#[derive(Clone, Copy, Debug)]
struct LookTime {
    usual: Ticks,
    most: Ticks,
}

impl LookTime {
    fn new(clock: &Clock) -> Self {
        Self { usual: Ticks(0), most: clock.ticks(LOOK_MAX) }
    }

    /// True if there is time for one look, and as much again.
    fn fits(&self, free: Ticks) -> bool {
        free.0 > 2 * self.usual.0
    }

    /// One took so long.
    fn note(&mut self, took: Ticks) {
        let usual = self.usual.0;
        let limit = if usual == 0 { self.most.0 } else { self.most.0.min(2 * usual) };
        self.usual = Ticks(if took.0 > usual { took.0.min(limit) } else { usual - (usual - took.0) / 8 });
    }

    /// There was no time for one: a client that never looks learns nothing, and tries again after some.
    fn note_missed(&mut self) {
        self.usual = Ticks(self.usual.0 - self.usual.0 / 64);
    }
}

impl ClientWatch {
    /// Of the calling thread, with room for so many windows.
    pub fn of_this_thread(windows: usize, traces: bool) -> Self {
        Self::with(windows, traces.then(LateRecorder::start))
    }

    /// The same, with a recorder that was started before.
    pub fn with(windows: usize, recorder: Option<Result<LateRecorder, String>>) -> Self {
        let clock = Clock::get();
        Self {
            clock,
            recorder,
            control: None,
            log: WindowLog::of_this_thread(windows),
            slow: clock.ticks(SLOW),
            wants_look: false,
            was_slow: false,
            other_looks: false,
            look: LookTime::new(clock),
        }
    }

    /// A message that took longer is asked about at once, where that is not the usual time.
    pub fn slow_after(self, slow: Duration) -> Self {
        Self { slow: self.clock.ticks(slow), ..self }
    }

    /// With a control thread on the same CPU.
    pub fn beside(self, control: Control) -> Self {
        Self { control: Some(control), ..self }
    }

    /// The thread slept on purpose, without a message.
    #[inline]
    pub fn note_idle(&mut self, slept: Ticks) {
        self.log.note_idle(slept);
    }

    /// The other end looks at its own thread behind its answer: the next message had better wait.
    #[inline]
    pub fn note_other_looks(&mut self) {
        self.other_looks = true;
    }

    /// A message was answered, or waited for in vain, in this span. Under open load the next is due at `next`, and `under_way` says how
    /// many are under way at an instant.
    #[inline]
    pub fn look_back(
        &mut self,
        span: Option<(Ticks, Ticks)>,
        next: Option<Ticks>,
        under_way: impl FnOnce(Ticks) -> usize,
    ) {
        let now = self.clock.now();
        let slow = span.filter(|(begin, end)| end.since(*begin) > self.slow);
        if slow.is_some() || self.other_looks || self.wants_look || self.log.is_due(now) {
            let open = if next.is_some() { under_way(now) } else { 0 };
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
        // Messages come regardless of the work here: there must be time for it before the next.
        self.other_looks = false;
        let free = due.since(now);
        if open > 0 {
            return;
        }
        if self.look.fits(free) {
            self.look();
            self.dump_within(Some(self.clock.duration(due.since(self.clock.now()))));
        } else {
            self.look.note_missed();
        }
    }

    /// Nothing is under way: the other end has as long again for its own look.
    fn look_closed(&mut self, from: Ticks) {
        self.look();
        if std::mem::take(&mut self.other_looks) {
            let now = self.clock.now();
            spin_until(now.plus(now.since(from)));
        }
        self.dump_within(None);
    }

    fn look(&mut self) {
        let from = self.clock.now();
        self.log.close(self.control_late_us(), self.was_slow);
        (self.wants_look, self.was_slow) = (false, false);
        self.look.note(self.clock.now().since(from));
    }

    /// Lateness of the control thread in the window in progress, µs.
    fn control_late_us(&self) -> u32 {
        self.control.as_ref().map_or(0, |control| control.late_us_since(self.log.since()))
    }

    /// The last message is answered, or was waited for in vain.
    pub fn finish(&mut self) {
        self.was_slow = true;
        self.look();
        self.dump_within(None);
    }

    fn recording(&mut self) -> Option<&mut LateRecorder> {
        self.recorder.as_mut()?.as_mut().ok()
    }

    /// The activity of this thread during a dump is in no window.
    fn dump_within(&mut self, free: Option<Duration>) {
        if self.recording().is_some_and(|recorder| recorder.dump_within(free)) {
            self.log.pass_over(self.control_late_us());
        }
    }

    /// Looks of the control thread, those that were late, and the latest, µs.
    pub fn control_totals(&self) -> (u64, u64, u64) {
        self.control.as_ref().map_or((0, 0, 0), Control::totals)
    }

    /// Its windows, and its recorder.
    pub fn end(self) -> (ThreadWindows, Option<Result<LateRecorder, String>>) {
        (self.log.finish(), self.recorder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thread with a tenth of a millisecond between messages goes on looking although another program interrupted a look for
    /// long. The same holds after the very first look. A few messages later it looks again.
    #[test]
    fn one_long_look_is_not_the_last() {
        let clock = Clock::get();
        let us = |us: u64| clock.ticks(Duration::from_micros(us));
        for before in [0, 100] {
            let mut look = LookTime::new(clock);
            (0..before).for_each(|_| look.note(us(20)));
            (0..20).for_each(|_| look.note(us(5_000)));
            assert!(!look.fits(us(100)) && look.fits(us(1_000)), "{look:?}");
            let missed = (0..1_000).take_while(|_| {
                look.note_missed();
                !look.fits(us(100))
            });
            assert!(missed.count() < 200, "{look:?}");
            (0..50).for_each(|_| look.note(us(20)));
            assert!(look.fits(us(50)) && !look.fits(us(30)), "{look:?}");
        }
    }
}
