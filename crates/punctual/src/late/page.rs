//! The page of a log: spans of late messages, for a recorder of the kernel's trace on the same host.
//!
//! The log writes it by plain stores, under its lock. A watcher only reads it, from a process of its own.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use punctual_machine::SystemError;
use punctual_machine::counter::Counter;
use punctual_machine::memory::MappedSlice;
use punctual_machine::process::{ProcessIdentity, random};

use crate::pages::{self, Counters, PageKind, read_whole, write_whole};

/// Spans that stay readable: a watcher that looks every few milliseconds finds all of a burst.
const SPANS: u64 = 64;

/// Words of each: their version, then [`LateSpan`].
const SPAN_WORDS: usize = 8;

/// When the log was made, which tells logs of one process from each other.
const MADE_AT: usize = 6;
/// Number of spans written.
const COUNT_AT: usize = 7;
/// The path of the log, bytes up to the first zero.
const PATH_AT: usize = 16;
const PATH_WORDS: usize = 128;
const SPANS_AT: usize = PATH_AT + PATH_WORDS;
const WORDS: usize = SPANS_AT + SPANS as usize * SPAN_WORDS;

/// When a late message was under way, nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateSpan {
    /// When it began.
    pub from_ns: u64,
    /// When it was delivered.
    pub to_ns: u64,
    /// The thread that received it.
    pub thread: u32,
}

/// The page of our own log.
#[derive(Debug)]
pub(super) struct LatePage(Counters);

impl LatePage {
    pub(super) fn create(path: &Path, made_ns: u64) -> Result<Self, SystemError> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let bytes = absolute.as_os_str().as_bytes();
        // Half of a path would be another file's.
        let bytes = if bytes.len() < PATH_WORDS * 8 { bytes } else { &[] };
        let page = Counters::create(PageKind::Late, &format!("{:016x}", random()), 8 * WORDS, |words| {
            words[MADE_AT].set(made_ns);
            for (word, part) in words[PATH_AT..].iter().zip(bytes.chunks(8)) {
                let mut eight = [0; 8];
                eight[..part.len()].copy_from_slice(part);
                word.set(u64::from_le_bytes(eight));
            }
        })?;
        Ok(Self(page))
    }

    /// Tells of one more; one thread at a time does.
    pub(super) fn note(&self, span: LateSpan) {
        let number = self.0[COUNT_AT].get();
        let words = span_words(&self.0, number);
        write_whole(&words[0], || {
            let values = [number, span.from_ns, span.to_ns, span.thread.into()];
            words[1..].iter().zip(values).for_each(|(word, value)| word.publish(value));
        });
        self.0[COUNT_AT].publish(number.wrapping_add(1));
    }
}

fn span_words(words: &[Counter], number: u64) -> &[Counter] {
    let at = SPANS_AT + (number % SPANS) as usize * SPAN_WORDS;
    &words[at..at + SPAN_WORDS]
}

/// A log of a living process, as another process watches it.
#[derive(Debug)]
pub struct WatchedLog {
    words: MappedSlice<Counter>,
    /// The file of its page, which no other log has.
    pub page: PathBuf,
    /// Its process.
    pub process: ProcessIdentity,
    /// Owner of the process: the kernel's number of the user.
    pub user: u32,
    /// The number of that user's group.
    pub group: u32,
    /// When the log was made, nanoseconds of `CLOCK_MONOTONIC`.
    pub made_ns: u64,
    /// Where the log is; `None` if its path is too long for the page.
    pub path: Option<PathBuf>,
    next: u64,
}

impl WatchedLog {
    fn of(page: PathBuf, [user, group]: [u32; 2], words: MappedSlice<Counter>) -> Option<Self> {
        if words.len() < WORDS {
            return None;
        }
        let process = pages::process_of(&words)?;
        let path = words[PATH_AT..SPANS_AT].iter().flat_map(|word| word.get().to_le_bytes());
        let path: Vec<u8> = path.take_while(|&byte| byte != 0).collect();
        let path = (!path.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(path)));
        let made_ns = words[MADE_AT].get();
        Some(Self {
            words,
            page,
            process,
            user,
            group,
            made_ns,
            path: path.filter(|path| path.is_absolute()),
            next: 0,
        })
    }

    /// Messages that were late before this are not told any more.
    pub fn skip(&mut self) {
        self.next = self.words[COUNT_AT].get_published();
    }

    /// Spans of messages that were late since the call before, and the number of those that came so fast that their spans are gone.
    pub fn poll(&mut self) -> (Vec<LateSpan>, u64) {
        let count = self.words[COUNT_AT].get_published();
        // Another process writes it: its value bounds nothing.
        if count.wrapping_sub(self.next) > count {
            self.next = count;
        }
        let first = self.next.max(count.saturating_sub(SPANS));
        let spans: Vec<LateSpan> = (first..count).filter_map(|number| self.span(number)).collect();
        let missed = count - self.next - spans.len() as u64;
        self.next = count;
        (spans, missed)
    }

    fn span(&self, number: u64) -> Option<LateSpan> {
        let words = span_words(&self.words, number);
        let read = || [1, 2, 3, 4].map(|place: usize| words[place].get_published());
        let [found, from_ns, to_ns, thread] = read_whole(&words[0], read)?;
        let thread = u32::try_from(thread).ok()?;
        (found == number && from_ns <= to_ns).then_some(LateSpan { from_ns, to_ns, thread })
    }
}

/// The logs of living processes on this host, of every user whose pages this process may read, without those whose page is `known`.
pub fn watched_logs(known: impl Fn(&Path) -> bool) -> Vec<WatchedLog> {
    let found = pages::find_all(PageKind::Late, known);
    found.into_iter().filter_map(|(page, user, words)| WatchedLog::of(page, user, words)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_machine::memory::Mapping;
    use std::sync::Arc;

    use super::*;

    fn span(at: u64) -> LateSpan {
        LateSpan { from_ns: at, to_ns: at + 5, thread: 7 }
    }

    fn watched(page: &LatePage, path: &Path) -> WatchedLog {
        let _written = page;
        let mut all = watched_logs(|_| false).into_iter();
        all.find(|log| log.path.as_deref() == Some(path)).expect("a page of ours")
    }

    /// Goal: another mapping of the page tells of each span once, and counts those that came too fast for it.
    #[test]
    fn spans_are_told_once_and_missed_ones_counted() {
        let path = std::env::temp_dir().join(format!("late-page-{:x}.jsonl", random()));
        let page = LatePage::create(&path, 11).expect("a page");
        page.note(span(1));
        let mut log = watched(&page, &path);
        assert_eq!((log.made_ns, log.process.pid), (11, std::process::id()));
        assert_eq!(log.poll(), (vec![span(1)], 0));
        assert_eq!(log.poll(), (vec![], 0));
        let count = SPANS + 10;
        (0..count).for_each(|at| page.note(span(at)));
        let (spans, missed) = log.poll();
        assert_eq!((spans.len() as u64, missed), (SPANS, 10));
        assert_eq!((spans[0], spans[63]), (span(10), span(count - 1)));
        page.note(span(9));
        log.skip();
        assert_eq!(log.poll(), (vec![], 0));
        drop(page);
        assert!(watched_logs(|_| false).iter().all(|log| log.path.as_deref() != Some(&path)));
    }

    proptest! {
        /// Goal: any content that another process writes into its page is read within bounds and makes nobody panic.
        #[test]
        fn any_page_is_read_within_bounds(
            values in proptest::collection::vec(any::<u64>(), WORDS), count in prop_oneof![0..200_u64, any::<u64>()],
            next in any::<u64>(),
        ) {
            let memory = Arc::new(Mapping::anonymous(8 * WORDS).expect("memory"));
            let words: MappedSlice<Counter> = MappedSlice::new(&memory, 0, WORDS).expect("it fits");
            words.iter().zip(&values).for_each(|(word, value)| word.set(*value));
            words[COUNT_AT].set(count);
            words[3].set(7);
            let mut log = WatchedLog::of(PathBuf::from("x"), [0; 2], words).expect("as long as a page");
            log.next = next;
            let (spans, _missed) = log.poll();
            prop_assert!(spans.len() as u64 <= SPANS);
            prop_assert_eq!(log.poll(), (vec![], 0));
        }
    }
}
