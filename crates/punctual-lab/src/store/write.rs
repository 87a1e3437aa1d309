//! Writing a run: each trial is durable before `append` returns.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::encode::encode;
use super::{HEADER_FILE, Header, PARTIAL, Run, SAMPLES_DIR, SUMMARY_FILE, StoreError};
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
    /// `None` if the samples were taken elsewhere: what runs here meanwhile is no doubt about them.
    surroundings: Option<Surroundings>,
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
        // What is not of this process stays: another one may have found the same folder empty.
        let remove_path = || is_new.then(|| fs::remove_dir(&path));
        fs::create_dir(&samples).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => StoreError::Occupied { path: path.clone() },
            _ => {
                remove_path();
                StoreError::from_io(&samples, error)
            }
        })?;
        write_durably(&path.join(HEADER_FILE), json(header).as_bytes()).inspect_err(|_| {
            // A folder that is no run would be in the way of the next try.
            let _gone = (fs::remove_dir(&samples), remove_path());
        })?;
        Ok(Self { path, files: 0, warmup: header.warmup, surroundings: None })
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
        self.files += 1;
        Ok(path)
    }

    /// Stores several cells of one trial; as durable as one by one, in less time: the directory is flushed once.
    pub fn append_all(
        &mut self,
        trial: u32,
        cells: &[(CellId, Samples)],
    ) -> Result<Vec<PathBuf>, StoreError> {
        let mut files = Vec::with_capacity(cells.len());
        for (number, (cell, samples)) in (self.files..).zip(cells) {
            samples.assert_aligned();
            let path = self.path.join(SAMPLES_DIR).join(file_name(number, cell, trial));
            files.push((path, encode(cell, trial, samples, self.warmup)));
        }
        write_all_durably(&files)?;
        self.files += files.len();
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }

    /// What the samples stored so far say, and who else ran on our processors meanwhile; add skips, advice and doubts, then [`Store::finish`].
    pub fn summary(&self) -> Result<Summary, StoreError> {
        // Before the samples are read again: that is no part of the measurement.
        let others = self.surroundings.as_ref().and_then(Surroundings::doubt);
        let mut summary = Run::open(&self.path)?.conclude()?;
        others.into_iter().for_each(|cause| summary.doubt(cause));
        Ok(summary)
    }

    /// Takes the run back if nothing was measured: a folder without samples is in the way of whoever looks for a run.
    pub fn discard_if_empty(&self) {
        if self.files == 0 {
            // What holds something stays, and opens as a run that was cut short.
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
        write_durably(&self.path.join(SUMMARY_FILE), summary.to_json().as_bytes())?;
        Ok(self.path)
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

/// Whatever a name holds, the file stays in its directory.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "+-.".contains(c) { c } else { '_' }).collect()
}

/// Whole or not at all under its own name: written aside, flushed to the device, then renamed.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    write_whole(path, bytes).map_err(|error| StoreError::from_io(path, error))
}

/// The same for a file of no store. Who may read and write a file of that name may do so afterwards.
///
/// # Errors
/// What the system says.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let aside = aside(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let allow_as_before = || match fs::metadata(path) {
        Ok(there) => fs::set_permissions(&aside, there.permissions()),
        Err(_) => Ok(()),
    };
    let written = write_flushed(&aside, bytes)
        .and_then(|()| allow_as_before())
        .and_then(|()| fs::rename(&aside, path))
        .and_then(|()| File::open(parent)?.sync_all());
    written.inspect_err(|_| {
        // The room it takes is needed more than its content; the error matters, not a second one.
        let _ = fs::remove_file(&aside);
    })
}

/// Where a file is written before it has its name.
fn aside(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".");
    aside.push(PARTIAL);
    aside.into()
}

/// The same for several new files of one directory: all of them, or none.
fn write_all_durably(files: &[(PathBuf, Vec<u8>)]) -> Result<(), StoreError> {
    write_together(files).inspect_err(|_| {
        // Their numbers are for the next try, and the room they take is needed more than a part of a trial.
        for (path, _) in files {
            let _gone = (fs::remove_file(aside(path)), fs::remove_file(path));
        }
    })
}

fn write_together(files: &[(PathBuf, Vec<u8>)]) -> Result<(), StoreError> {
    let write = |(path, bytes): &(PathBuf, Vec<u8>)| -> std::io::Result<File> {
        let mut file = File::create(aside(path))?;
        file.write_all(bytes)?;
        Ok(file)
    };
    // All are written before the first is flushed: the device is asked once for most of them.
    let mut open = Vec::with_capacity(files.len());
    for file in files {
        open.push(write(file).map_err(|error| StoreError::from_io(&file.0, error))?);
    }
    for ((path, _), file) in files.iter().zip(open) {
        let flushed = file.sync_all().and_then(|()| fs::rename(aside(path), path));
        flushed.map_err(|error| StoreError::from_io(path, error))?;
    }
    let Some(parent) = files.first().and_then(|(path, _)| path.parent()) else { return Ok(()) };
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| StoreError::from_io(parent, error))
}

fn write_flushed(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Store, aside, file_name, write_flushed, write_whole};
    use crate::sample::{CellId, Outcome, Samples};
    use crate::store::{Header, Run, SAMPLES_DIR, StoreError};

    fn cells() -> Vec<(CellId, Samples)> {
        let cell = |name: &str| {
            let mut samples = Samples::default();
            samples.push(0, 0, 0, 500, Outcome::Answered);
            (CellId::new("datagram", name), samples)
        };
        ["epoll", "poll", "spin"].map(cell).to_vec()
    }

    /// Goal: who may read a file may read it as before when it was written anew.
    #[test]
    fn a_file_that_is_written_anew_keeps_its_rights() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("room");
        let page = folder.path().join("page.html");
        write_whole(&page, b"one").expect("room");
        for mode in [0o600, 0o640, 0o644] {
            fs::set_permissions(&page, fs::Permissions::from_mode(mode)).expect("it is ours");
            write_whole(&page, b"two").expect("room");
            assert_eq!(fs::metadata(&page).expect("it is there").permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
    }

    /// Goal: cells that cannot all be stored leave nothing, neither aside nor under their names; they can be stored again, and what
    /// was stored before is there.
    /// Method: a folder where the second file is to be written, or where it is to be named.
    #[test]
    fn cells_that_cannot_all_be_stored_leave_nothing() {
        for is_before in [false, true] {
            for is_in_the_way_of in [aside, std::path::Path::to_owned] {
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
                let before = names();
                let second = file_name(before.len() + 1, &cells()[1].0, 7);
                let in_the_way = is_in_the_way_of(&out.join(SAMPLES_DIR).join(second));
                fs::create_dir(&in_the_way).expect("room");
                store.append_all(7, &cells()).expect_err("it is in the way");
                fs::remove_dir(&in_the_way).expect("it stayed");
                assert_eq!(names(), before, "{}", in_the_way.display());
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
    fn what_cannot_be_discarded_stays_a_run() {
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
    fn a_full_disk_is_told_apart() {
        let full = Path::new("/dev/full");
        let error = write_flushed(full, b"anything").expect_err("nothing fits there");
        let error = StoreError::from_io(full, error);
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }

    #[test]
    fn no_name_leaves_the_directory() {
        let cell = CellId::new("../../etc", "pass wd");
        let name = file_name(7, &cell, 2);
        assert_eq!(name, "0007-.._.._etc_pass_wd-round_trip-closed-0us-64B-t2.parquet");
    }
}
