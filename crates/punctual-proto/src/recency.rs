//! Possible age of the frames that are read: so many messages may have passed meanwhile that their numbers mislead.
//!
//! A frame carries the lower half of its number. It tells new from old while fewer than half of those numbers lie between a frame and
//! the one before it; on no wire do so many pass within [`SILENCE_NS`]. A reader that has read nothing for longer may find frames from
//! before the gap directly followed by frames from after it. That ends once it has found nothing more.

use crate::limits::MESSAGE_INTERVAL_NS_MIN;

/// In this time, nanoseconds, half of the numbers that a frame can carry may be used up: 10.7 s.
pub const SILENCE_NS: u64 = MESSAGE_INTERVAL_NS_MIN << 31;

/// Two processors' counters differ by less, nanoseconds.
pub const BEHIND_NS_MAX: u64 = 1_000_000_000;

/// Time that has passed since an instant. A counter that is far behind began anew, as it may over a suspend. The age of an instant from
/// before is not known, and counts as any time.
pub fn elapsed_ns(now_ns: u64, since_ns: u64) -> u64 {
    if began_anew(now_ns, since_ns) { u64::MAX } else { now_ns.saturating_sub(since_ns) }
}

/// True if the counter began anew since that instant of the past.
pub fn began_anew(now_ns: u64, since_ns: u64) -> bool {
    since_ns.saturating_sub(now_ns) > BEHIND_NS_MAX
}

/// When something was read. Times are nanoseconds of any counter; it may begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Now.
    pub now_ns: u64,
    /// Frames that are read now were sent after this, as far as gaps are concerned.
    pub fresh_ns: u64,
}

/// Watches over the times at which a medium of the kernel was read.
#[derive(Clone, Copy, Debug)]
pub struct Recency {
    last_ns: u64,
    /// Nothing had been read for so long that what is queued may be from before and from after a gap: since when it was read.
    behind_since_ns: Option<u64>,
}

impl Recency {
    /// The medium was opened.
    pub fn new(now_ns: u64) -> Self {
        Self { last_ns: now_ns, behind_since_ns: None }
    }

    /// Something is there to be read.
    pub fn handle_reading(&mut self, now_ns: u64) -> Moment {
        if self.behind_since_ns.is_none() && elapsed_ns(now_ns, self.last_ns) >= SILENCE_NS {
            self.behind_since_ns = Some(self.last_ns);
        }
        self.last_ns = now_ns;
        Moment { now_ns, fresh_ns: self.behind_since_ns.unwrap_or(now_ns) }
    }

    /// There was nothing, wherever one looked.
    pub fn handle_nothing(&mut self) {
        self.behind_since_ns = None;
    }

    /// True if a look everywhere is worthwhile, for [`Self::handle_nothing`].
    pub fn is_behind(&self) -> bool {
        self.behind_since_ns.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stream, Verdict};

    /// Goal: a reader that was away for long finds messages that were queued before the gap and messages that came after it, and takes
    /// both.
    #[test]
    fn messages_queued_before_and_after_an_absence_are_new() {
        let mut recency = Recency::new(0);
        let mut stream = Stream::starting_at(0, recency.handle_reading(0));
        stream.accept(0, recency.handle_reading(1));
        let after = 2 + (1 << 31);
        let back_ns = 2 * SILENCE_NS;
        assert!(stream.accept(1, recency.handle_reading(back_ns)).is_deliverable());
        let accepted = stream.accept(after, recency.handle_reading(back_ns + 1));
        assert_eq!((accepted.verdict, accepted.restarted), (Verdict::New { skipped: 1 << 31 }, true));
        assert!(recency.is_behind());
        recency.handle_nothing();
        // From here on it knows again what is old.
        assert!(stream.accept(after + 1, recency.handle_reading(back_ns + 2)).is_deliverable());
        assert_eq!(stream.accept(after - 500, recency.handle_reading(back_ns + 3)).verdict, Verdict::Stale);
    }

    #[test]
    fn a_reader_that_reads_now_and_then_is_never_behind() {
        let mut recency = Recency::new(0);
        for now_ns in (0..100 * SILENCE_NS).step_by(SILENCE_NS as usize - 1) {
            assert_eq!(recency.handle_reading(now_ns), Moment { now_ns, fresh_ns: now_ns });
            assert!(!recency.is_behind());
        }
    }

    /// Goal: a reader whose counter begins anew takes what was queued before and after, as one that was away for long. A reader on
    /// another processor, whose counter is a little behind, knows what is old.
    #[test]
    fn a_counter_that_begins_anew_makes_nobody_deaf() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let after = 2 + (1 << 31);
        for (back_ns, is_anew) in [(HOUR_NS - BEHIND_NS_MAX, false), (7_000_000, true)] {
            let mut recency = Recency::new(HOUR_NS);
            let mut stream = Stream::starting_at(0, recency.handle_reading(HOUR_NS));
            stream.accept(0, recency.handle_reading(HOUR_NS));
            assert!(stream.accept(1, recency.handle_reading(back_ns)).is_deliverable());
            assert_eq!(recency.is_behind(), is_anew, "{back_ns}");
            let accepted = stream.accept(after, recency.handle_reading(back_ns + 1));
            assert_eq!(accepted.restarted, is_anew, "{back_ns}: {accepted:?}");
        }
    }

    /// Goal: a stream that was quiet since the former life of the counter takes a number that may be new.
    #[test]
    fn a_stream_of_a_former_life_is_old() {
        let at = |now_ns| Moment { now_ns, fresh_ns: now_ns };
        let mut stream = Stream::starting_at(0, at(100 * SILENCE_NS));
        assert!(stream.accept(1 + (1 << 31), at(5)).is_deliverable());
    }
}
