//! The reader as a process of its own: this program again, started once and told trial by trial.
//!
//! ```text
//! here      page, post box ─▶ order ─────────────────▶ waking end ─▶ … ─▶ rows
//! reader                      opens, posts descriptors ─▶ ready ─▶ reads ─▶ notes
//! ```
//! The writer wakes it by descriptors of the reader's. They have no names, so they come through a post box.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual::{Clock, Ticks};
use punctual_lab_machine::wake::page::WakePage;
use punctual_machine::event_fd::wait_readable;
use punctual_machine::fd_exchange::{NOTE_SIZE, PostBox};
use punctual_machine::process::random;
use serde::{Deserialize, Serialize};

use super::plan::{Conditions, WakeupTrial};
use super::route::{Route, Waker};
use super::trial::{ReaderNotes, Seen, read_all};
use crate::run::{Requests, Worker, memory_folder};

/// Longest time that the descriptors of one trial take.
const POST_TIMEOUT: Duration = Duration::from_secs(5);
/// What a note with a descriptor says.
const TEXT: [u8; NOTE_SIZE] = *b"wake me by this, please.";

/// What the reader is told.
#[derive(Debug, Serialize, Deserialize)]
struct ReaderOrder {
    folder: PathBuf,
    route: String,
    fifo: bool,
    same_core: bool,
    gap_ns: u64,
    count: usize,
    cpus: Vec<usize>,
}

/// A reader's notes as they travel: began, awake, parks, switched, limit, in the clock's unit, which both processes share.
#[derive(Debug, Serialize, Deserialize)]
struct Wire {
    seen: Vec<(u64, u64, u32, bool, Option<u64>)>,
    cpu_ns: u64,
    calls_per_park: u32,
}

impl From<ReaderNotes> for Wire {
    fn from(notes: ReaderNotes) -> Self {
        let row = |seen: &Seen| {
            (seen.began.0, seen.awake.0, seen.parks, seen.switched, seen.limit_at.map(|at| at.0))
        };
        let seen = notes.seen.iter().map(row).collect();
        Self { seen, cpu_ns: notes.cpu_ns, calls_per_park: notes.calls_per_park }
    }
}

impl From<Wire> for ReaderNotes {
    fn from(wire: Wire) -> Self {
        let row = |(began, awake, parks, switched, limit_at): (u64, u64, u32, bool, Option<u64>)| Seen {
            began: Ticks(began),
            awake: Ticks(awake),
            parks,
            switched,
            limit_at: limit_at.map(Ticks),
        };
        let seen = wire.seen.into_iter().map(row).collect();
        Self { seen, cpu_ns: wire.cpu_ns, calls_per_park: wire.calls_per_park }
    }
}

/// The other process, and the folder in which page and post boxes are.
#[derive(Debug)]
pub(super) struct ReaderProcess {
    worker: Worker,
    folder: PathBuf,
}

impl ReaderProcess {
    /// Starts it.
    pub(super) fn start() -> Result<Self, String> {
        let folder = memory_folder().join(format!("punctual-wakeup-{:x}", random()));
        let private =
            std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&folder);
        private.map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        // From here on the folder goes with this value.
        match Worker::start("reader") {
            Ok(worker) => Ok(Self { worker, folder }),
            Err(error) => {
                let _left = std::fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Lets it open its end of a trial. Returns the page that both share, and the other end.
    pub(super) fn open(&mut self, trial: &WakeupTrial) -> Result<(WakePage, Waker), String> {
        let (page, post) = (page_path(&self.folder), post_path(&self.folder));
        for stale in [&page, &post, &sender_path(&self.folder)] {
            let _absent = std::fs::remove_file(stale);
        }
        let page = WakePage::create(&page).map_err(|error| error.to_string())?;
        let post = PostBox::open(&post).map_err(|error| error.to_string())?;
        // It posts so many descriptors.
        let count: usize = self.worker.ask(&ReaderOrder {
            folder: self.folder.clone(),
            route: trial.route.name().to_owned(),
            fifo: trial.conditions.fifo,
            same_core: trial.conditions.same_core,
            gap_ns: u64::try_from(trial.gap.as_nanos()).unwrap_or(u64::MAX),
            count: trial.count,
            cpus: trial.cpus.clone(),
        })?;
        let descriptors = (0..count).map(|_| take(&post)).collect::<Result<Vec<OwnedFd>, String>>()?;
        let waker = Waker::elsewhere(trial.route, descriptors)
            .ok_or_else(|| format!("{}: the reader posted something else", trial.route))?;
        Ok((page, waker))
    }

    /// What the reader has noted, once the writer has ended the trial.
    pub(super) fn notes(&mut self) -> Result<ReaderNotes, String> {
        self.worker.recv::<Wire>().map(Into::into)
    }
}

impl Drop for ReaderProcess {
    fn drop(&mut self) {
        let _already_gone = std::fs::remove_dir_all(&self.folder);
    }
}

fn page_path(folder: &Path) -> PathBuf {
    folder.join("page")
}

fn post_path(folder: &Path) -> PathBuf {
    folder.join("post")
}

fn sender_path(folder: &Path) -> PathBuf {
    folder.join("sender")
}

fn take(post: &PostBox) -> Result<OwnedFd, String> {
    let start = Instant::now();
    while start.elapsed() < POST_TIMEOUT {
        if let Some(note) = post.take() {
            return note
                .descriptor
                .ok_or_else(|| "a note of the reader came without its descriptor".to_owned());
        }
        let _look_again = wait_readable(post.as_fd(), Some(POST_TIMEOUT));
    }
    Err("the reader's descriptors did not come".to_owned())
}

/// The reader's process: trial after trial until its input ends.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    // Known before the first trial: it takes some milliseconds.
    let _calibrated = Clock::get();
    while let Some(order) = requests.recv::<ReaderOrder>() {
        let notes = read(&order, |count| requests.answer(&Ok(count)));
        requests.answer(&notes.map(Wire::from))?;
    }
    Ok(())
}

fn read(
    order: &ReaderOrder,
    tell_ready: impl FnOnce(usize) -> Result<(), String>,
) -> Result<ReaderNotes, String> {
    let page = WakePage::open(&page_path(&order.folder)).map_err(|error| error.to_string())?;
    let route: Route = order.route.parse()?;
    let trial = WakeupTrial {
        route,
        conditions: Conditions {
            processes: true,
            fifo: order.fifo,
            same_core: order.same_core,
            ..Conditions::default()
        },
        gap: Duration::from_nanos(order.gap_ns),
        duration: Duration::ZERO,
        count: order.count,
        cpus: order.cpus.clone(),
    };
    // A thread of its own: what it is pinned to and how it is scheduled end with it, and ways are bound to who opened them.
    let (opened, opening) = std::sync::mpsc::channel();
    let reader = std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || read_all(&trial, &page, &opened))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let waker = opening.recv().map_err(|_| "the reader ended before it began".to_owned())??;
    let descriptors = waker.descriptors();
    tell_ready(descriptors.len())?;
    post_all(&order.folder, &descriptors)?;
    reader.join().map_err(|_| "a measuring thread crashed".to_owned())?
}

fn post_all(folder: &Path, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
    let sender = PostBox::open(&sender_path(folder)).map_err(|error| error.to_string())?;
    let start = Instant::now();
    for descriptor in descriptors {
        // A box has room for some ten notes; the other end is taking them out.
        while let Err(error) = sender.post(&post_path(folder), &TEXT, Some(*descriptor)) {
            if start.elapsed() > POST_TIMEOUT {
                return Err(error.to_string());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}
