//! Writing a run: each trial is durable before `append` returns.

use std::cell::OnceCell;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::aside::{write_all_durably, write_durably};
use super::encode::encode;
use super::evidence::evidence_file;
use super::{CellRead, EVIDENCE_DIR, HEADER_FILE, Header, Run, SAMPLES_DIR, SUMMARY_FILE, StoreError};
use crate::file::make_folder;
use crate::sample::{CellId, Samples};
use crate::summary::Summary;
use crate::surroundings::Surroundings;

/// Runs that start within the same second get a number; this many are a loop, not a user.
const SAME_SECOND_MAX: u32 = 1000;

/// A run that is being written.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    files: usize,
    /// The run's, for trials that state none of their own.
    warmup: u64,
    /// `None` if the samples were taken elsewhere: programs that run here meanwhile cast no doubt on them.
    surroundings: Option<Surroundings>,
    /// The run as far as it is stored, read back: to decode all samples takes as long as many trials.
    read: OnceCell<Run>,
}

impl Store {
    /// Makes the directory and writes `run.json`. Without `out` it is `runs/<time>-<experiment>`.
    ///
    /// # Errors
    /// The directory holds something already, or cannot be written.
    pub fn create(out: Option<&Path>, header: &Header) -> Result<Self, StoreError> {
        Ok(Self { surroundings: Some(Surroundings::watch()), ..Self::import(out, header)? })
    }

    /// The same for samples that were taken elsewhere, or long ago.
    pub fn import(out: Option<&Path>, header: &Header) -> Result<Self, StoreError> {
        let (path, is_new) = match out {
            Some(path) => vacant(path)?,
            None => (fresh(Path::new("runs"), header)?, true),
        };
        let samples = path.join(SAMPLES_DIR);
        // A folder that this process did not make stays: another one may have found the same folder empty.
        let remove_path = || is_new.then(|| fs::remove_dir(&path));
        fs::create_dir(&samples).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => StoreError::Occupied { path: path.clone() },
            _ => {
                let _gone = remove_path();
                StoreError::from_io(&samples, error)
            }
        })?;
        write_durably(&path.join(HEADER_FILE), json(header).as_bytes()).inspect_err(|_| {
            // A folder that is no run would be in the way of the next try.
            let _gone = (fs::remove_dir(&samples), remove_path());
        })?;
        Ok(Self { path, files: 0, warmup: header.warmup, surroundings: None, read: OnceCell::new() })
    }

    /// The run directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores one trial; when this returns, a power cut cannot take it away.
    ///
    /// # Errors
    /// The disk is full or fails. Trials stored before stay readable, and the trial can be tried again.
    ///
    /// # Panics
    /// If the columns of `samples` differ in length.
    pub fn append(&mut self, cell: &CellId, trial: u32, samples: &Samples) -> Result<PathBuf, StoreError> {
        samples.assert_aligned();
        let path = self.path.join(SAMPLES_DIR).join(file_name(self.files, cell, trial));
        write_durably(&path, &encode(cell, trial, samples, self.warmup))?;
        self.add(1);
        Ok(path)
    }

    /// Stores several cells of one trial; as durable as one by one, in less time: the directory is flushed once.
    ///
    /// # Errors
    /// As [`Store::append`]; none of them is stored then.
    pub fn append_all(
        &mut self,
        trial: u32,
        cells: &[(CellId, Samples)],
    ) -> Result<Vec<PathBuf>, StoreError> {
        let cells: Vec<_> = cells.iter().map(|(cell, samples)| (cell, samples, None::<()>)).collect();
        self.append_explained(trial, &cells)
    }

    /// The same, each with what explains it.
    ///
    /// # Errors
    /// As [`Store::append`]; nothing of the trial is stored then.
    pub fn append_explained<E: Serialize>(
        &mut self,
        trial: u32,
        cells: &[(&CellId, &Samples, Option<E>)],
    ) -> Result<Vec<PathBuf>, StoreError> {
        let (mut files, mut beside) = (Vec::with_capacity(2 * cells.len()), Vec::new());
        for (number, (cell, samples, evidence)) in (self.files..).zip(cells) {
            samples.assert_aligned();
            let path = self.path.join(SAMPLES_DIR).join(file_name(number, cell, trial));
            if let Some(evidence) = evidence {
                let (path, text) = evidence_file(&path, evidence)?;
                beside.push((path, text.into_bytes()));
            }
            files.push((path, encode(cell, trial, samples, self.warmup)));
        }
        let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
        files.append(&mut beside);
        write_all_durably(&files)?;
        self.add(paths.len());
        Ok(paths)
    }

    fn add(&mut self, files: usize) {
        self.files += files;
        self.read.take();
    }

    /// Summary of the samples stored so far, and of others that ran on our processors meanwhile; add skips, advice and doubts, then
    /// [`Store::finish`].
    pub fn summary(&self) -> Result<Summary, StoreError> {
        self.summary_with(|_| Ok(()))
    }

    /// The same; each cell is shown while its samples are in memory, so that no file is decoded twice.
    ///
    /// # Errors
    /// The run cannot be read, or what `each` returns.
    pub fn summary_with(
        &self,
        mut each: impl FnMut(CellRead<'_>) -> Result<(), StoreError>,
    ) -> Result<Summary, StoreError> {
        // Before the samples are read again: that is no part of the measurement.
        let others = self.surroundings.as_ref().and_then(Surroundings::doubt);
        let (run, mut summary) = Run::read(&self.path, &mut each)?;
        // One that was read before stays: nothing was stored since.
        let _first = self.read.set(run);
        others.into_iter().for_each(|cause| summary.doubt(cause));
        Ok(summary)
    }

    /// The run as far as it is stored.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn run(&self) -> Result<&Run, StoreError> {
        if let Some(run) = self.read.get() {
            return Ok(run);
        }
        let run = Run::open(&self.path)?;
        Ok(self.read.get_or_init(|| run))
    }

    /// True if no trial was stored.
    pub fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// Takes the run back if nothing was measured: a folder without samples is in the way of a user who looks for a run.
    pub fn discard_if_empty(&self) {
        if self.files == 0 {
            // A directory that holds something stays, and opens as a run that was cut short.
            let _none = fs::remove_dir(self.path.join(EVIDENCE_DIR));
            let _gone = fs::remove_dir(self.path.join(SAMPLES_DIR))
                .and_then(|()| fs::remove_file(self.path.join(HEADER_FILE)))
                .and_then(|()| fs::remove_dir(&self.path));
        }
    }

    /// Writes the summary, last.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn finish(self, summary: &Summary) -> Result<PathBuf, StoreError> {
        self.write(&summary.to_json())?;
        Ok(self.path)
    }

    /// The same; returns the finished run. Samples that were read for the summary are not read once more.
    ///
    /// # Errors
    /// The disk is full or fails, or the run cannot be read.
    pub fn finish_run(mut self, summary: &Summary) -> Result<Run, StoreError> {
        let text = summary.to_json();
        self.write(&text)?;
        match self.read.take() {
            Some(run) => run.finished(&text),
            None => Run::open(&self.path),
        }
    }

    fn write(&self, summary: &str) -> Result<(), StoreError> {
        write_durably(&self.path.join(SUMMARY_FILE), summary.as_bytes())
    }
}

fn json(header: &Header) -> String {
    serde_json::to_string_pretty(header).expect("every key of a header is a string") + "\n"
}

/// A folder that holds nothing, and whether it was made.
fn vacant(path: &Path) -> Result<(PathBuf, bool), StoreError> {
    let is_new = make_folder(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => StoreError::NoPlace { path: path.to_owned(), error },
        _ => StoreError::from_io(path, error),
    })?;
    let mut entries = fs::read_dir(path).map_err(|error| StoreError::from_io(path, error))?;
    if entries.next().is_some() {
        return Err(StoreError::Occupied { path: path.to_owned() });
    }
    Ok((path.to_owned(), is_new))
}

/// A directory for several runs, new or empty; `runs/TIME-NAME` if none is named.
///
/// # Errors
/// It holds something already, or cannot be made.
pub fn vacant_folder(out: Option<&Path>, name: &str) -> Result<PathBuf, StoreError> {
    match out {
        Some(out) => vacant(out).map(|(path, _)| path),
        None => fresh(Path::new("runs"), &Header::new(name)),
    }
}

fn fresh(parent: &Path, header: &Header) -> Result<PathBuf, StoreError> {
    fs::create_dir_all(parent).map_err(|error| StoreError::from_io(parent, error))?;
    let stem = format!("{}-{}", header.started.replace(':', ""), plain(&header.experiment));
    for attempt in 1..=SAME_SECOND_MAX {
        let name = if attempt == 1 { stem.clone() } else { format!("{stem}-{attempt}") };
        let path = parent.join(name);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StoreError::from_io(&path, error)),
        }
    }
    Err(StoreError::Occupied { path: parent.join(stem) })
}

/// Sorts by the order of measurement.
fn file_name(number: usize, cell: &CellId, trial: u32) -> String {
    let (name, kind, load) = (plain(&cell.name), cell.kind.as_str(), cell.load.as_str());
    let CellId { gap_us, size, .. } = cell;
    format!("{number:04}-{name}-{kind}-{load}-{gap_us}us-{size}B-t{trial}.parquet")
}

/// The file stays in its directory, regardless of the characters in its name.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "+-.".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Store, file_name};
    use crate::sample::{CellId, Outcome, Samples};
    use crate::store::{EVIDENCE_DIR, Header, Run, SAMPLES_DIR, StoreError};

    fn cells() -> Vec<(CellId, Samples)> {
        let cell = |name: &str| {
            let mut samples = Samples::default();
            samples.push(0, 0, 0, 500, Outcome::Answered);
            (CellId::new("datagram", name), samples)
        };
        ["epoll", "poll", "spin"].map(cell).to_vec()
    }

    /// Goal: cells that cannot all be stored leave nothing, neither aside nor under their names; they can be stored again, and what
    /// was stored before is there.
    /// Method: the second file cannot be written, as its name is too long, or cannot be named, as a folder is in the way.
    #[test]
    fn cells_that_cannot_all_be_stored_leave_nothing() {
        for (is_before, is_too_long) in [(false, false), (false, true), (true, false), (true, true)] {
            let folder = tempfile::tempdir().expect("room");
            let out = folder.path().join("run");
            let mut store = Store::import(Some(&out), &Header::new("survey")).expect("room");
            if is_before {
                store.append(&CellId::new("datagram", "before"), 0, &cells()[0].1).expect("room");
            }
            let names = || {
                let entries = fs::read_dir(out.join(SAMPLES_DIR)).expect("it is there");
                let mut names: Vec<_> = entries.map(|entry| entry.expect("it is there").path()).collect();
                names.sort();
                names
            };
            let (before, mut of_trial) = (names(), cells());
            let second = file_name(before.len() + 1, &of_trial[1].0, 7);
            if is_too_long {
                of_trial[1].0 = CellId::new("datagram", &"poll".repeat(64));
                store.append_all(7, &of_trial).expect_err("it is too long");
            } else {
                let in_the_way = out.join(SAMPLES_DIR).join(second);
                fs::create_dir(&in_the_way).expect("room");
                store.append_all(7, &of_trial).expect_err("it is in the way");
                fs::remove_dir(&in_the_way).expect("it stayed");
            }
            assert_eq!(names(), before, "too long: {is_too_long}");
            if is_before {
                let files = store.append_all(7, &cells()).expect("nothing is in the way");
                assert_eq!(names(), [before, files].concat());
                assert_eq!(Run::open(&out).expect("a run").trials.len(), 4);
            } else {
                store.discard_if_empty();
                assert!(!out.exists(), "an empty folder is in the way of the next run");
            }
        }
    }

    /// Goal: a trial is stored with what explains it, or not at all. Method: a folder is in the way of the second cell's evidence.
    #[test]
    fn a_trial_that_cannot_be_explained_is_not_stored() {
        let folder = tempfile::tempdir().expect("room");
        let out = folder.path().join("run");
        let mut store = Store::import(Some(&out), &Header::new("survey")).expect("room");
        let cells = cells();
        let kept: Vec<_> = (1_u32..)
            .zip(&cells)
            .map(|(number, (cell, samples))| (cell, samples, Some(vec![number])))
            .collect();
        let name = file_name(1, &cells[1].0, 7).replace(".parquet", ".json");
        let in_the_way = out.join(EVIDENCE_DIR).join(name);
        fs::create_dir_all(&in_the_way).expect("room");
        store.append_explained(7, &kept).expect_err("it is in the way");
        let count = |name: &str| fs::read_dir(out.join(name)).expect("it is there").count();
        assert_eq!([SAMPLES_DIR, EVIDENCE_DIR].map(count), [0, 1]);
        fs::remove_dir(&in_the_way).expect("it stayed");
        store.append_explained(7, &kept).expect("nothing is in the way");
        let run = Run::open(&out).expect("a run");
        let found: Vec<_> = run.trials.iter().map(|trial| trial.evidence().expect("whole")).collect();
        assert_eq!(found, [1, 2, 3].map(|number| Some(vec![number])));
    }

    /// Goal: what the samples say is concluded as from the finished run, and no file is decoded again for what follows. Method: each is
    /// removed as soon as it was shown; one of them is damaged.
    #[test]
    fn samples_are_decoded_once() {
        for is_damaged in [false, true] {
            let folder = tempfile::tempdir().expect("room");
            let out = folder.path().join("run");
            let mut store = Store::import(Some(&out), &Header::new("survey")).expect("room");
            let mut files = store.append_all(0, &cells()).expect("room");
            files.extend(store.append_all(1, &cells()).expect("room"));
            if is_damaged {
                let whole = fs::read(&files[1]).expect("it is there");
                let damages = |&place: &usize| {
                    let mut bytes = whole.clone();
                    bytes[place] ^= 0xff;
                    fs::write(&files[1], bytes).expect("room");
                    Run::open(&out).expect("a run").trials.len() < files.len()
                };
                // Not every byte is under the check value.
                (40..whole.len()).find(damages).expect("some byte matters");
            }
            let expected = Run::open(&out).and_then(|run| run.conclude()).expect("a run");
            let mut shown = 0;
            let summary = store.summary_with(|read| {
                assert_eq!(read.trials.len(), read.samples.len());
                shown += read.trials.len();
                read.trials.iter().for_each(|trial| fs::remove_file(&trial.path).expect("it is there"));
                Ok(())
            });
            let summary = summary.expect("readable");
            assert_eq!(summary.to_json(), expected.to_json());
            let whole = files.len() - usize::from(is_damaged);
            assert_eq!((shown, store.run().expect("it was read").trials.len()), (whole, whole));
            let run = store.finish_run(&summary).expect("it was read");
            assert_eq!((run.trials.len(), run.doubts.len()), (whole, usize::from(is_damaged)));
            assert!(!run.is_cut_short && run.summary == Some(summary), "{run:?}");
        }
    }

    /// Goal: a trial that is stored after a summary is in the next one.
    #[test]
    fn a_later_trial_is_read_too() {
        let folder = tempfile::tempdir().expect("room");
        let mut store =
            Store::import(Some(&folder.path().join("run")), &Header::new("survey")).expect("room");
        for trial in 0..2 {
            store.append_all(trial, &cells()).expect("room");
            let summary = store.summary().expect("readable");
            assert_eq!(summary.results[0].trials, u64::from(trial) + 1);
            assert_eq!(store.run().expect("readable").trials.len(), 3 * (trial as usize + 1));
        }
    }

    /// Goal: of several that begin a run in one folder at once, one has it whole, and the others leave it alone.
    #[test]
    fn one_of_several_has_the_folder() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().expect("room");
            let out = folder.path().join("run");
            let begin = || Store::import(Some(&out), &Header::new("survey"));
            let begun: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let (made, refused): (Vec<_>, Vec<_>) = begun.into_iter().partition(Result::is_ok);
            assert!(made.len() == 1 && refused.len() == 3, "{made:?} {refused:?}");
            let is_occupied =
                |other: &Result<Store, StoreError>| matches!(other, Err(StoreError::Occupied { .. }));
            assert!(refused.iter().all(is_occupied), "{refused:?}");
            let mut store = made.into_iter().next().expect("one").expect("it was made");
            store.append(&cells()[0].0, 0, &cells()[0].1).expect("its folder is there");
            assert_eq!(Run::open(&out).expect("a run").trials.len(), 1);
        }
    }

    /// Goal: a folder that cannot be removed whole stays a run.
    #[test]
    fn a_folder_that_cannot_be_discarded_stays_a_run() {
        let folder = tempfile::tempdir().expect("room");
        let out = folder.path().join("run");
        let store = Store::import(Some(&out), &Header::new("survey")).expect("room");
        fs::write(out.join(SAMPLES_DIR).join("0000-other.parquet.partial"), "of a process that was killed")
            .expect("room");
        store.discard_if_empty();
        let summary = Run::open(&out).expect("a run").summarise().expect("of nothing");
        assert!(summary.doubts.iter().any(|doubt| doubt.what.contains("cut short")), "{:?}", summary.doubts);
    }

    #[test]
    fn no_name_leaves_the_directory() {
        let cell = CellId::new("../../etc", "pass wd");
        let name = file_name(7, &cell, 2);
        assert_eq!(name, "0007-.._.._etc_pass_wd-round_trip-closed-0us-64B-t2.parquet");
    }
}
