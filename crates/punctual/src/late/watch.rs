//! Watches the thread of one communicator, between its messages.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::namespace::thread_id;
use punctual_machine::process::{Maker, tracer_of_this_thread};
use punctual_machine::signal::counts_continuations;
use punctual_machine::window::{SchedSampler, WINDOW_MAX, Window};
use punctual_proto::Address;

use super::line::{self, LateMessage, took};
use super::{LateLog, LateSpan};
use crate::trace::{Record, Stages};

/// Windows kept: older windows belong to no message that comes now, for windows end while messages are waited for.
const WINDOWS: usize = 32;

/// Late messages between two looks that are kept; those that come later waited behind them.
const PENDING_MAX: usize = 16;

/// Messages in time whose stages tell what is usual.
const USUAL: usize = 32;

/// A port that is never empty is looked away from after so long.
const OVERDUE: Duration = Duration::from_millis(100);

/// Vain tries between two looks at the clock.
const TRIES_PER_LOOK: u32 = 64;

#[derive(Debug)]
pub(crate) struct Watch {
    log: LateLog,
    /// Name and port.
    receiver: String,
    threshold: Ticks,
    /// Once a message is delivered later than this, it is time to look. Waiters that look at the clock see it too.
    due_at: Ticks,
    /// It is time to look when nothing waits.
    wants_look: bool,
    tries: u32,
    sampler: Option<SchedSampler>,
    /// The newest, in the order of time; spans are ticks.
    windows: Vec<Window>,
    /// With the thread that each was delivered to.
    pending: Vec<(Record, u32)>,
    usual: Vec<Stages>,
    /// Place of the oldest of those.
    oldest: usize,
    skipped: u64,
    /// Messages whose time nobody knows, of which the log was not told yet, and the sender of the last.
    untimed: Option<(u64, Address)>,
    /// A process forked from it has a copy.
    maker: Maker,
}

impl Watch {
    pub(crate) fn new(log: &LateLog, receiver: String) -> Self {
        Self {
            log: log.clone(),
            receiver,
            threshold: log.0.threshold,
            due_at: Ticks(0),
            wants_look: true,
            tries: 0,
            sampler: None,
            windows: Vec::with_capacity(WINDOWS),
            pending: Vec::with_capacity(PENDING_MAX),
            usual: Vec::with_capacity(USUAL),
            oldest: 0,
            skipped: 0,
            untimed: None,
            maker: Maker::this_process(),
        }
    }

    pub(crate) fn due_at(&self) -> Ticks {
        self.due_at
    }

    /// It is as if that was to be then.
    #[cfg(test)]
    pub(crate) fn pretend_due_at(&mut self, instant: Ticks) {
        self.due_at = instant;
    }

    /// It is time to look when nothing waits.
    #[inline]
    pub(crate) fn wants_look(&self) -> bool {
        self.wants_look
    }

    /// It was time to look long ago.
    pub(crate) fn is_overdue(&self) -> bool {
        let clock = Clock::get();
        clock.now() >= self.due_at.plus(clock.ticks(OVERDUE))
    }

    /// Nothing was there. Returns true if it is time to look.
    #[inline]
    pub(crate) fn handle_empty(&mut self) -> bool {
        self.tries = self.tries.wrapping_add(1);
        self.wants_look || self.tries.is_multiple_of(TRIES_PER_LOOK) && Clock::get().now() >= self.due_at
    }

    /// A message is delivered.
    #[inline(never)]
    pub(crate) fn note(&mut self, record: &Record) {
        let is_late = match took(&record.stages) {
            Some(took) => took > self.threshold,
            None => {
                let before = self.untimed.map_or(0, |(count, _)| count);
                self.untimed = Some((before + 1, record.source));
                false
            }
        };
        if is_late || record.stages.receiver.delivered >= self.due_at {
            self.note_it(record);
        }
    }

    #[cold]
    fn note_it(&mut self, record: &Record) {
        self.wants_look = true;
        self.note_idle(&record.stages);
        match took(&record.stages) {
            Some(took) if took > self.threshold => {
                if self.pending.len() < PENDING_MAX {
                    self.pending.push((*record, thread_id()));
                } else {
                    self.skipped += 1;
                }
            }
            Some(_) => self.note_usual(&record.stages),
            // It may have been late: it tells nothing of what is usual.
            None => {}
        }
    }

    fn note_usual(&mut self, stages: &Stages) {
        if self.usual.len() < USUAL {
            self.usual.push(*stages);
        } else {
            self.usual[self.oldest] = *stages;
            self.oldest = (self.oldest + 1) % USUAL;
        }
    }

    /// A thread that slept for this message had nothing to do before it was there.
    fn note_idle(&mut self, stages: &Stages) {
        if let Some(sampler) = &mut self.sampler {
            sampler.note_idle(stages.slept_before(sampler.since()));
        }
    }

    /// Asks the kernel about this thread, and writes what was late. Between messages only.
    #[cold]
    pub(crate) fn look(&mut self) {
        match &mut self.sampler {
            Some(sampler) if sampler.thread() == thread_id() => {
                let from = sampler.since();
                let evidence = sampler.close(0, !self.pending.is_empty());
                if self.windows.len() == WINDOWS {
                    self.windows.remove(0);
                }
                self.windows.push(Window { evidence, span: (from.0, sampler.since().0) });
                self.write();
            }
            _ => {
                // It has moved to this thread: of what is late now, windows of another thread say nothing.
                self.windows.clear();
                self.sampler = Some(SchedSampler::of_this_thread());
                self.write();
            }
        }
        let since = self.sampler.as_ref().map_or(Ticks(0), SchedSampler::since);
        self.due_at = since.plus(Clock::get().ticks(WINDOW_MAX));
        self.wants_look = false;
    }

    fn write(&mut self) {
        if self.skipped > 0 {
            self.log.lock().account.skipped += std::mem::take(&mut self.skipped);
        }
        if let Some((count, source)) = self.untimed.take() {
            self.log.lock().note_untimed(count, || line::untimed(&self.receiver, source));
        }
        let looked_at = self.sampler.as_ref().map(SchedSampler::thread);
        let tracer = if self.pending.is_empty() { None } else { tracer_of_this_thread() };
        // The program may have taken the signal since the log was made.
        let counts_continuations = self.pending.is_empty() || counts_continuations();
        for &(ref record, thread) in &self.pending {
            // This thread's evidence about itself says nothing of another.
            let is_this = looked_at == Some(thread);
            let windows = if is_this { &self.windows[..] } else { &[] };
            let tracer = tracer.as_deref().filter(|_| is_this);
            let (from_ns, to_ns) = line::span_ns(&record.stages);
            self.log.lock().add(LateSpan { from_ns, to_ns, thread }, |text, account| {
                let (receiver, usual) = (&self.receiver[..], &self.usual[..]);
                let late =
                    LateMessage { receiver, record, thread, tracer, usual, windows, counts_continuations };
                line::write(text, &late, account);
            });
        }
        self.pending.clear();
    }
}

impl Drop for Watch {
    /// Writes the pending messages. A forked process has a copy of them: they are its parent's to write, and there the file's lock may
    /// be held by a thread that it does not have.
    fn drop(&mut self) {
        if (!self.pending.is_empty() || self.untimed.is_some()) && self.maker.is_this_process() {
            self.look();
        }
    }
}
