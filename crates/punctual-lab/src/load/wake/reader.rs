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

use punctual::Clock;
use punctual_lab_machine::wake::page::WakePage;
use punctual_machine::event_fd::wait_readable;
use punctual_machine::fd_exchange::{NOTE_SIZE, PostBox};

use super::route::WritingEnd;
use super::{ReaderNotes, WakeTrial, start_reader};
use crate::run::{OwnFolder, Requests, Worker, memory_folder};

/// Longest time that the descriptors of one trial take.
const POST_TIMEOUT: Duration = Duration::from_secs(5);
/// In the folder that both know: the page, and the post box of each.
const PAGE: &str = "page";
const POST: &str = "post";
const SENDER: &str = "sender";
/// Text of a note with a descriptor.
const TEXT: [u8; NOTE_SIZE] = *b"wake me by this, please.";

/// The other process, and the folder in which page and post boxes are.
#[derive(Debug)]
pub struct ReaderProcess {
    worker: Worker,
    folder: OwnFolder,
}

impl ReaderProcess {
    /// Starts it.
    pub(super) fn start() -> Result<Self, String> {
        let folder = OwnFolder::create(&memory_folder(), "wakeup")?;
        Ok(Self { worker: Worker::start("reader")?, folder })
    }

    /// Lets it open its end of a trial. Returns the page that both share, and the other end.
    pub(super) fn open(&mut self, trial: &WakeTrial) -> Result<(WakePage, WritingEnd), String> {
        let folder = self.folder.path();
        for stale in [PAGE, POST, SENDER] {
            let _absent = std::fs::remove_file(folder.join(stale));
        }
        let page = WakePage::create(&folder.join(PAGE)).map_err(|error| error.to_string())?;
        let post = PostBox::open(&folder.join(POST)).map_err(|error| error.to_string())?;
        // It posts so many descriptors.
        let count: usize = self.worker.ask(&(folder, trial))?;
        let descriptors = (0..count).map(|_| take(&post)).collect::<Result<Vec<OwnedFd>, String>>()?;
        Ok((page, WritingEnd::open_elsewhere(trial.route, descriptors)?))
    }

    /// The reader's notes, once the writer has ended the trial.
    pub(super) fn notes(&mut self) -> Result<ReaderNotes, String> {
        self.worker.recv()
    }
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
    while let Some((folder, trial)) = requests.recv::<(PathBuf, WakeTrial)>() {
        let notes = read(&folder, &trial, |count| requests.answer(&Ok(count)));
        requests.answer(&notes)?;
    }
    Ok(())
}

fn read(
    folder: &Path,
    trial: &WakeTrial,
    tell_ready: impl FnOnce(usize) -> Result<(), String>,
) -> Result<ReaderNotes, String> {
    let page = WakePage::open(&folder.join(PAGE)).map_err(|error| error.to_string())?;
    let (reader, waker) = start_reader(trial, &page)?;
    let descriptors = waker.descriptors();
    tell_ready(descriptors.len())?;
    post_all(folder, &descriptors)?;
    reader.notes()
}

fn post_all(folder: &Path, descriptors: &[BorrowedFd<'_>]) -> Result<(), String> {
    let sender = PostBox::open(&folder.join(SENDER)).map_err(|error| error.to_string())?;
    let start = Instant::now();
    for descriptor in descriptors {
        // A box has room for some ten notes; the other end is taking them out.
        while let Err(error) = sender.post(&folder.join(POST), &TEXT, Some(*descriptor)) {
            if start.elapsed() > POST_TIMEOUT {
                return Err(error.to_string());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}
