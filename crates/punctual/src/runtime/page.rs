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
use crate::pages::{Counters, PageKind, name_words, read_name, time_since, write_name};

/// Words of the whole runtime, by index, behind those that every page has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Workers = 6,
    Classes = 7,
    Started = 16,
    /// Domain of the clock of that instant.
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

/// Counters of one worker. Its thread writes, unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfWorker {
    /// The kernel's number of its thread.
    Thread,
    /// The thread that has the worker's line writes these, and those of long polls.
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
}

/// Counters of the long polls of one kind of task on one worker. The four words of its name follow.
#[derive(Clone, Copy, Debug)]
enum OfLong {
    /// 1 as soon as name and class stand, which stay.
    IsNamed,
    Class,
    Polls,
    RanNs,
}

/// Counters of a class on one worker. The thread that has the worker's line writes them.
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
/// Where a worker's long polls begin, of how many kinds of tasks they are told apart, and the words of each kind.
const LONG_AT: usize = 16;
const LONG_KINDS: usize = 4;
const LONG_WORDS: usize = 4 + NAME_WORDS;
const WORKER_WORDS: usize = LONG_AT + LONG_KINDS * LONG_WORDS;
const DELAYS_AT: usize = 16;
const CLASS_WORDS: usize = DELAYS_AT + BUCKETS;
const NAME_WORDS: usize = 4;

/// A line of the cache belongs to one worker alone.
const _: () =
    assert!(WORKERS_AT.is_multiple_of(8) && WORKER_WORDS.is_multiple_of(8) && CLASS_WORDS.is_multiple_of(8));
const _: () = assert!((OfClass::InInbox as usize).is_multiple_of(8));
const _: () =
    assert!((OfWorker::LockWaitNs as usize) < LONG_AT && (OfLong::RanNs as usize) < LONG_WORDS - NAME_WORDS);
const _: () = assert!((OfClass::InInbox as usize) < DELAYS_AT && Word::ReactorNs as usize <= FLOORS_AT);

fn words(workers: usize, classes: usize) -> usize {
    WORKERS_AT + workers * (WORKER_WORDS + classes * CLASS_WORDS)
}

/// Polls that lasted, of the tasks with one name and class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPolls {
    /// Name of the tasks, cut to 32 bytes.
    pub name: String,
    /// Their class.
    pub class: u8,
    /// Number of polls.
    pub count: u64,
    /// Their total time.
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

/// The part of the page that one worker writes.
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

    /// A poll that lasted. Of more than [`LONG_KINDS`] kinds of tasks the later ones are counted without a name.
    pub(super) fn note_long(&self, name: &str, class: u8, ran: Nanos) {
        self.count(OfWorker::LongPolls).add_alone(1);
        let expected = name_words(name);
        let is_own = |kind: &LongPage<'_>| {
            kind.get(OfLong::Class) == u64::from(class) && kind.name().iter().map(Counter::get).eq(expected)
        };
        for kind in self.page.view().long_kinds(self.worker) {
            if kind.get(OfLong::IsNamed) == 0 {
                kind.name().iter().zip(expected).for_each(|(word, part)| word.set(part));
                kind.count(OfLong::Class).set(class.into());
                kind.count(OfLong::IsNamed).publish(1);
            } else if !is_own(&kind) {
                continue;
            }
            kind.count(OfLong::Polls).add_alone(1);
            kind.count(OfLong::RanNs).add_alone(ran.0);
            return;
        }
    }
}

/// The long polls of one kind of task on one worker.
#[derive(Clone, Copy, Debug)]
struct LongPage<'a>(&'a [Counter]);

impl<'a> LongPage<'a> {
    fn count(self, count: OfLong) -> &'a Counter {
        &self.0[count as usize]
    }

    fn get(self, count: OfLong) -> u64 {
        self.count(count).get()
    }

    fn name(self) -> &'a [Counter] {
        &self.0[LONG_WORDS - NAME_WORDS..]
    }
}

/// The words of one class on one worker.
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

/// A page as seen by any process that may read it.
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

    fn long_kinds(self, worker: usize) -> impl Iterator<Item = LongPage<'a>> {
        self.of_worker(worker)[LONG_AT..].chunks_exact(LONG_WORDS).map(LongPage)
    }

    /// The worker's long polls by kind of task, in the order in which the kinds first had one.
    pub(super) fn long_polls_by_task(self, worker: usize) -> Vec<LongPolls> {
        let is_named = |kind: &LongPage<'_>| kind.count(OfLong::IsNamed).get_published() != 0;
        let read = |kind: LongPage<'_>| LongPolls {
            name: read_name(kind.name()),
            class: kind.get(OfLong::Class) as u8,
            count: kind.get(OfLong::Polls),
            ran: Nanos(kind.get(OfLong::RanNs)),
        };
        self.long_kinds(worker).take_while(is_named).map(read).collect()
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
        /// Goal: a page with any content is refused or read: no panic, no character that moves a cursor.
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
            let named = metrics.workers.iter().flat_map(|worker| &worker.long_polls_by_task);
            prop_assert!(named.into_iter().all(|long| !long.name.chars().any(char::is_control)));
            prop_assert_eq!(metrics.since(&metrics).tasks, metrics.tasks);
            let _any = (metrics.verdicts(), metrics.share_permille(0), metrics.classes[0].delays.quantile(990));
        }
    }

    /// Goal: long polls are told apart by name and class, as far as there are places, and none is left out of their number.
    #[test]
    fn long_polls_are_counted_by_kind() {
        let page = Page::create(&RuntimeOptions::default(), 2, Ticks::default()).unwrap();
        let (own, view) = (WorkerPage::new(&page, 1), page.view());
        assert_eq!(view.long_polls_by_task(1), []);
        let long = "a name of more than thirty-two bytes";
        for (name, class) in
            [("report", 7), (long, 7), ("report", 7), ("report", 3), ("", 0), ("late", 0), (long, 7)]
        {
            own.note_long(name, class, Nanos(50));
        }
        let kind = |name: &str, class, count: u64| LongPolls {
            name: name.to_owned(),
            class,
            count,
            ran: Nanos(50 * count),
        };
        assert_eq!(
            view.long_polls_by_task(1),
            [kind("report", 7, 2), kind(&long[..32], 7, 2), kind("report", 3, 1), kind("", 0, 1)]
        );
        assert_eq!(own.count(OfWorker::LongPolls).get(), 7, "the fifth kind has no place");
        assert_eq!(view.long_polls_by_task(0), []);
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
