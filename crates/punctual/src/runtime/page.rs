//! Where a runtime counts: a page that other processes of this user find. Layout: `docs/runtime.md`.

use std::sync::Arc;

use punctual_machine::SystemError;
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::process::random;
use punctual_proto::Nanos;
use punctual_proto::classes::ClassOptions;
use punctual_proto::limits::CLASSES_MAX;

use super::counters::{BUCKETS, bucket};
use super::options::{RuntimeOptions, WORKERS_MAX};
use crate::pages::{Counters, PageKind, read_name, read_whole, time_since, write_name, write_whole};

/// Words of the whole runtime, by index, behind those that every page has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Workers = 6,
    Classes = 7,
    Started = 16,
    /// Which clock that is of.
    Domain,
    Tasks,
    /// Tasks that ended by a panic. Any thread.
    Panics,
    /// Descriptors that tasks wait for.
    Sources,
    /// The thread that has the lead writes these.
    Activations,
    Events,
    /// Any thread.
    ReactorNs,
}

/// What one worker counts. Its thread writes, unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfWorker {
    /// The kernel's number of its thread.
    Thread,
    /// Who has the worker's line writes these, and those of long polls.
    Polls,
    /// Polls whose task was woken while it ran: by itself, to yield, or by others.
    Yields,
    Stolen,
    LongPolls,
    Parks,
    /// Sleeps after which there was nothing to do.
    WakesInVain,
    SpinsFound,
    SpinsInVain,
    /// Wakes by the worker's own thread.
    WokenHere,
    /// Wakes by any thread.
    WokenFromElsewhere,
    /// Waits for a line that another thread had. Any thread.
    LockWaits,
    LockWaitNs,
    /// Odd while what follows is written.
    LongestVersion,
    LongestNs,
    LongestClass,
    /// Four words.
    LongestName,
}

/// What a class had on one worker. Who has the worker's line writes it.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfClass {
    Waiting,
    /// When the request came that has waited longest, and 1; 0 = none waits.
    Oldest,
    Polls,
    RanNs,
    /// Polls that began after their request's deadline.
    Late,
    Shed,
    ByFloor,
    /// When the first of the tasks came into line, and 1; 0 = none waits.
    InLineSince,
    /// Tasks in the worker's inbox: woken, and seen by no worker yet. Any thread writes it, so it has a cache line of its own.
    InInbox,
}

const FLOORS_AT: usize = 64;
const WORKERS_AT: usize = FLOORS_AT + CLASSES_MAX;
const WORKER_WORDS: usize = 32;
const DELAYS_AT: usize = 16;
const CLASS_WORDS: usize = DELAYS_AT + BUCKETS;
const NAME_WORDS: usize = 4;

/// A line of the cache belongs to one worker alone.
const _: () =
    assert!(WORKERS_AT.is_multiple_of(8) && WORKER_WORDS.is_multiple_of(8) && CLASS_WORDS.is_multiple_of(8));
const _: () = assert!((OfClass::InInbox as usize).is_multiple_of(8));
const _: () = assert!(OfWorker::LongestName as usize + NAME_WORDS <= WORKER_WORDS);
const _: () = assert!((OfClass::InInbox as usize) < DELAYS_AT && Word::ReactorNs as usize <= FLOORS_AT);

fn words(workers: usize, classes: usize) -> usize {
    WORKERS_AT + workers * (WORKER_WORDS + classes * CLASS_WORDS)
}

/// A poll that lasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPoll {
    /// What its task is called, cut to 32 bytes.
    pub name: String,
    /// The task's class.
    pub class: u8,
    /// How long it lasted.
    pub ran: Nanos,
}

/// A runtime's own page.
#[derive(Debug)]
pub(super) struct Page {
    words: Counters,
    workers: usize,
    classes: usize,
}

impl Page {
    pub(super) fn create(
        options: &RuntimeOptions,
        workers: usize,
        started: Ticks,
    ) -> Result<Arc<Self>, SystemError> {
        let classes = options.classes.len();
        let name = format!("{:016x}", random());
        let words = Counters::create(PageKind::Runtime, &name, 8 * words(workers, classes), |words| {
            let set = |word: Word, value: u64| words[word as usize].set(value);
            set(Word::Workers, workers as u64);
            set(Word::Classes, classes as u64);
            set(Word::Started, started.0);
            set(Word::Domain, Clock::get().domain().into());
            write_name(&words[8..8 + NAME_WORDS], &options.name);
            for (word, ClassOptions { floor_permille, .. }) in words[FLOORS_AT..].iter().zip(&options.classes)
            {
                word.set(u64::from(*floor_permille));
            }
        })?;
        Ok(Arc::new(Self { words, workers, classes }))
    }

    pub(super) fn view(&self) -> View<'_> {
        View { words: &self.words, workers: self.workers, classes: self.classes }
    }

    #[inline]
    pub(super) fn count(&self, word: Word) -> &Counter {
        &self.words[word as usize]
    }
}

/// What one worker writes of it.
#[derive(Clone, Debug)]
pub(super) struct WorkerPage {
    page: Arc<Page>,
    worker: usize,
}

impl WorkerPage {
    pub(super) fn new(page: &Arc<Page>, worker: usize) -> Self {
        Self { page: Arc::clone(page), worker }
    }

    #[inline]
    pub(super) fn count(&self, count: OfWorker) -> &Counter {
        self.page.view().worker(self.worker, count)
    }

    #[inline]
    pub(super) fn class(&self, class: u8) -> ClassPage<'_> {
        ClassPage(self.page.view().class(self.worker, usize::from(class)))
    }

    /// A poll that lasted, if it is the longest.
    pub(super) fn note_long(&self, name: &str, class: u8, ran: Nanos) {
        self.count(OfWorker::LongPolls).add_alone(1);
        if ran.0 <= self.count(OfWorker::LongestNs).get() {
            return;
        }
        write_whole(self.count(OfWorker::LongestVersion), || {
            let words = self.page.view().of_worker(self.worker);
            let name_words = &words[OfWorker::LongestName as usize..][..NAME_WORDS];
            name_words.iter().for_each(|word| word.publish(0));
            write_name(name_words, name);
            self.count(OfWorker::LongestClass).publish(class.into());
            self.count(OfWorker::LongestNs).publish(ran.0);
        });
    }
}

/// What is written of one class on one worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassPage<'a>(&'a [Counter]);

impl<'a> ClassPage<'a> {
    #[inline]
    pub(super) fn count(self, count: OfClass) -> &'a Counter {
        &self.0[count as usize]
    }

    /// From a wake to the poll.
    #[inline]
    pub(super) fn note_delay(self, delay: Nanos) {
        self.0[DELAYS_AT + bucket(delay.0)].add_alone(1);
    }

    pub(super) fn delays(self) -> &'a [Counter] {
        &self.0[DELAYS_AT..]
    }
}

/// A page as whoever may read it sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    words: &'a [Counter],
    pub(super) workers: usize,
    pub(super) classes: usize,
}

impl<'a> View<'a> {
    /// If it can be what it says that it is.
    pub(super) fn of(words: &'a [Counter]) -> Option<Self> {
        let number = |word: Word, most: usize| {
            let number = usize::try_from(words.get(word as usize)?.get()).ok()?;
            (1..=most).contains(&number).then_some(number)
        };
        let (workers, classes) = (number(Word::Workers, WORKERS_MAX)?, number(Word::Classes, CLASSES_MAX)?);
        (words.len() >= self::words(workers, classes)).then_some(Self { words, workers, classes })
    }

    pub(super) fn name(self) -> String {
        read_name(&self.words[8..8 + NAME_WORDS])
    }

    #[inline]
    pub(super) fn get(self, word: Word) -> u64 {
        self.words[word as usize].get()
    }

    pub(super) fn floor_permille(self, class: usize) -> u32 {
        u32::try_from(self.words[FLOORS_AT + class].get()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn of_worker(self, worker: usize) -> &'a [Counter] {
        &self.words[WORKERS_AT + worker * WORKER_WORDS..][..WORKER_WORDS]
    }

    #[inline]
    pub(super) fn worker(self, worker: usize, count: OfWorker) -> &'a Counter {
        &self.of_worker(worker)[count as usize]
    }

    #[inline]
    fn class(self, worker: usize, class: usize) -> &'a [Counter] {
        let classes_at = WORKERS_AT + self.workers * WORKER_WORDS;
        &self.words[classes_at + (worker * self.classes + class) * CLASS_WORDS..][..CLASS_WORDS]
    }

    pub(super) fn class_of(self, worker: usize, class: usize) -> ClassPage<'a> {
        ClassPage(self.class(worker, class))
    }

    /// The worker's longest poll, if there was one and it is not being written.
    pub(super) fn longest(self, worker: usize) -> Option<LongPoll> {
        read_whole(self.worker(worker, OfWorker::LongestVersion), || LongPoll {
            name: read_name(&self.of_worker(worker)[OfWorker::LongestName as usize..][..NAME_WORDS]),
            class: self.worker(worker, OfWorker::LongestClass).get_published() as u8,
            ran: Nanos(self.worker(worker, OfWorker::LongestNs).get_published()),
        })
    }

    /// The time since the runtime began; 0 where its clock is another than ours.
    pub(super) fn time(self) -> Nanos {
        time_since(Ticks(self.get(Word::Started)), self.get(Word::Domain))
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metrics;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: whatever stands in a page, it is refused or read: no panic, no character that moves a cursor.
        #[test]
        fn any_page_is_refused_or_read(
            seed in proptest::collection::vec(any::<u64>(), 64),
            size in 0..self::words(3, 3),
            workers in 0_u64..5,
            classes in 0_u64..5,
        ) {
            let words: Vec<Counter> = (0..size).map(|_| Counter::default()).collect();
            words.iter().zip(seed.iter().cycle()).for_each(|(counter, word)| counter.set(*word));
            let number = |word: Word, value| words.get(word as usize).into_iter().for_each(|own| own.set(value));
            number(Word::Workers, workers);
            number(Word::Classes, classes);
            let Some(view) = View::of(&words) else { return Ok(()) };
            prop_assert!(size >= self::words(view.workers, view.classes));
            prop_assert!(!view.name().chars().any(char::is_control));
            let metrics = Metrics::of(view, None);
            let named = metrics.workers.iter().filter_map(|worker| worker.longest.as_ref());
            prop_assert!(named.into_iter().all(|longest| !longest.name.chars().any(char::is_control)));
            prop_assert_eq!(metrics.since(&metrics).tasks, metrics.tasks);
            let _any = (metrics.verdicts(), metrics.share_permille(0), metrics.classes[0].delays.quantile(990));
        }
    }

    #[test]
    fn the_longest_poll_is_read_whole_or_not_at_all() {
        let page = Page::create(&RuntimeOptions::default(), 1, Ticks::default()).unwrap();
        let (own, view) = (WorkerPage::new(&page, 0), page.view());
        assert_eq!(view.longest(0), None);
        own.note_long("report", 7, Nanos(50));
        own.note_long("other", 3, Nanos(20));
        let longest = LongPoll { name: "report".to_owned(), class: 7, ran: Nanos(50) };
        assert_eq!(view.longest(0), Some(longest));
        assert_eq!(own.count(OfWorker::LongPolls).get(), 2);
        own.count(OfWorker::LongestVersion).add_alone(1);
        assert_eq!(view.longest(0), None, "it is being written");
    }

    /// The figures of `docs/runtime.md`.
    #[test]
    fn the_layout_is_the_documented_one() {
        let document = include_str!("../../../../docs/runtime.md");
        let worker_size = 8 * WORKER_WORDS;
        let class_size = 8 * CLASS_WORDS;
        for figure in [8 * FLOORS_AT, 8 * WORKERS_AT, worker_size, class_size] {
            let [thousands, rest] = [figure / 1_000, figure % 1_000];
            let text = if thousands == 0 { format!("{rest}") } else { format!("{thousands},{rest:03}") };
            assert!(
                document.contains(&format!("{text} bytes")) || document.contains(&format!("byte {text}")),
                "{text}"
            );
        }
    }
}
