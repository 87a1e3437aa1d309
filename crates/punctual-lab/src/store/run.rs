//! Reading a run back, also one that was cut short.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::decode::TrialFile;
use super::{HEADER_FILE, Header, PARTIAL, SAMPLES_DIR, SUMMARY_FILE, StoreError};
use crate::doubt::{Cause, Doubt};
use crate::file::{advised, read_text};
use crate::sample::{CellId, Samples};
use crate::summary::{self, Summary};

/// A run on disk. Samples stay there until they are asked for.
#[derive(Debug)]
pub struct Run {
    /// Its directory.
    pub path: PathBuf,
    /// The plan of the run.
    pub header: Header,
    /// The conclusion. There is none of a run whose process was killed, or where it is damaged; one that Ctrl-C ended doubts itself in
    /// it.
    pub summary: Option<Summary>,
    /// Every readable trial, in the order of measurement.
    pub trials: Vec<StoredTrial>,
    /// The trials that cannot be read, and the summary.
    pub doubts: Vec<Doubt>,
    /// No summary was written.
    pub is_cut_short: bool,
}

/// The trials of one cell, while their samples are in memory.
#[derive(Clone, Copy, Debug)]
pub struct CellRead<'a> {
    /// The run that is read. Until all cells are, a trial that is damaged may stand among its trials.
    pub run: &'a Run,
    /// The cell.
    pub cell: &'a CellId,
    /// Its readable trials, in the order of measurement …
    pub trials: &'a [StoredTrial],
    /// … and the samples of each.
    pub samples: &'a [Samples],
}

/// One readable file of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTrial {
    /// The file.
    pub path: PathBuf,
    /// The cell that was measured.
    pub cell: CellId,
    /// Number of the trial.
    pub trial: u32,
    /// Messages in it.
    pub count: u64,
}

impl Header {
    /// Of a run on disk, without its trials.
    ///
    /// # Errors
    /// It is not a run, of a version unknown here, or its `run.json` cannot be read.
    pub fn read(run: &Path) -> Result<Self, StoreError> {
        read_json(&run.join(HEADER_FILE), Self::SCHEMA)?.ok_or_else(|| {
            let path = run.to_owned();
            match run.try_exists() {
                Ok(false) => StoreError::Absent { path },
                _ => StoreError::NotARun { path, below: below(run, 2) },
            }
        })
    }
}

impl Run {
    /// Reads everything but the samples. Missing or damaged samples are doubts, not failures, as is a damaged summary: the samples say
    /// most of it once more.
    ///
    /// # Errors
    /// It is not a run, of a version unknown here, or its `run.json` cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut run = Self::without_trials(path)?;
        let files = sample_files(path)?;
        for file in &files {
            match list_trial(file).and_then(|trial| trial.load().map_err(reason_of).map(|_| trial)) {
                Ok(trial) => run.trials.push(trial),
                Err(reason) => run.doubts.push(unreadable(file, reason)),
            }
        }
        run.miss(&files);
        Ok(run)
    }

    fn without_trials(path: &Path) -> Result<Self, StoreError> {
        let header = Header::read(path)?;
        let (summary, damage) = match read_json(&path.join(SUMMARY_FILE), summary::SCHEMA) {
            Err(StoreError::Damaged { reason, .. }) => (None, Some(Cause::SummaryUnreadable { reason })),
            other => (other?, None),
        };
        let is_cut_short = summary.is_none() && damage.is_none();
        let doubts = damage.into_iter().map(Doubt::from).collect();
        Ok(Self { path: path.to_owned(), header, summary, trials: Vec::new(), doubts, is_cut_short })
    }

    /// Opens a run, and concludes what its samples say, as [`Run::conclude`]: each file is decoded once, and one cell at a time is in
    /// memory, which is shown to `each`.
    ///
    /// # Errors
    /// As [`Run::open`], and those of `each`.
    pub(super) fn read(
        path: &Path,
        each: &mut dyn FnMut(CellRead<'_>) -> Result<(), StoreError>,
    ) -> Result<(Self, Summary), StoreError> {
        let mut run = Self::without_trials(path)?;
        let files = sample_files(path)?;
        let mut damaged: Vec<(PathBuf, String)> = Vec::new();
        for file in &files {
            match list_trial(file) {
                Ok(trial) => run.trials.push(trial),
                Err(reason) => damaged.push((file.clone(), reason)),
            }
        }
        let mut of_cells: HashMap<CellId, Summary> = HashMap::new();
        for cell in run.cells() {
            let (mut trials, mut samples) = (Vec::new(), Vec::new());
            for trial in run.trials_of(&cell) {
                match trial.load() {
                    Ok(loaded) => {
                        trials.push(trial.clone());
                        samples.push(loaded);
                    }
                    Err(error) => damaged.push((trial.path.clone(), reason_of(error))),
                }
            }
            if !trials.is_empty() {
                let mut of_cell = Summary { clock: run.header.clock.clone(), ..Summary::default() };
                of_cell.add(&cell, &samples, run.header.warmup);
                each(CellRead { run: &run, cell: &cell, trials: &trials, samples: &samples })?;
                of_cells.insert(cell, of_cell);
            }
        }
        run.trials.retain(|trial| damaged.iter().all(|(path, _)| *path != trial.path));
        damaged.sort_by_key(|(path, _)| files.iter().position(|file| file == path));
        run.doubts.extend(damaged.into_iter().map(|(file, reason)| unreadable(&file, reason)));
        run.miss(&files);
        // A cell whose first trial is damaged is measured later, as far as the run knows.
        let in_order = run.cells().into_iter().filter_map(|cell| of_cells.remove(&cell));
        let summary = run.conclusion(in_order);
        Ok((run, summary))
    }

    /// The run with the summary that was written into it, as if it were opened now.
    pub(super) fn finished(mut self, text: &str) -> Result<Self, StoreError> {
        let path = self.path.join(SUMMARY_FILE);
        self.summary = Some(parse_json(&path, text, summary::SCHEMA)?);
        self.is_cut_short = false;
        Ok(self)
    }

    /// Each trial of which a latency was concluded has a file: a file that is not there was removed.
    fn miss(&mut self, files: &[PathBuf]) {
        let latencies =
            self.summary.iter().flat_map(|summary| &summary.results).filter(|one| one.unit == "ns");
        // A file that was edited may hold any numbers.
        let expected = latencies.fold(0_u64, |sum, one| sum.saturating_add(one.trials));
        let missing = expected.saturating_sub(files.len() as u64);
        if missing > 0 {
            let file = format!("{missing} of {expected} files of samples");
            let reason = "not there any more".to_owned();
            self.doubts.push(Cause::TrialUnreadable { file, reason }.into());
        }
    }

    /// The cells, in the order in which they were first measured.
    pub fn cells(&self) -> Vec<CellId> {
        let mut cells: Vec<CellId> = Vec::new();
        for trial in &self.trials {
            if !cells.contains(&trial.cell) {
                cells.push(trial.cell.clone());
            }
        }
        cells
    }

    /// The trials of one cell, in the order of measurement.
    pub fn trials_of<'a>(&'a self, cell: &'a CellId) -> impl Iterator<Item = &'a StoredTrial> {
        self.trials.iter().filter(move |trial| trial.cell == *cell)
    }

    /// The samples of all trials of one cell.
    pub fn load(&self, cell: &CellId) -> Result<Vec<Samples>, StoreError> {
        self.trials_of(cell).map(StoredTrial::load).collect()
    }

    /// The stored summary. Without one it is what the samples say, with the doubt that the run was cut short or the summary damaged.
    pub fn summarise(&self) -> Result<Summary, StoreError> {
        if let Some(summary) = &self.summary {
            let mut summary = summary.clone();
            self.doubts.iter().cloned().for_each(|doubt| summary.doubt(doubt));
            return Ok(summary);
        }
        let mut summary = self.conclude()?;
        if self.is_cut_short {
            summary.doubt(Cause::CutShort { trials: self.trials.len() });
        }
        Ok(summary)
    }

    /// All that the samples say, regardless of the summary that is stored. One cell at a time is in memory.
    ///
    /// # Errors
    /// A trial that was readable when the run was opened no longer is.
    pub fn conclude(&self) -> Result<Summary, StoreError> {
        let mut of_cells = Summary { clock: self.header.clock.clone(), ..Summary::default() };
        for cell in self.cells() {
            let trials = self.load(&cell)?;
            of_cells.add(&cell, &trials, self.header.warmup);
        }
        Ok(self.conclusion(std::iter::once(of_cells)))
    }

    /// The results of all cells, and the doubts: of the run, then of the cells.
    fn conclusion(&self, of_cells: impl Iterator<Item = Summary>) -> Summary {
        let mut summary = Summary::new(&self.header);
        self.doubts.iter().cloned().for_each(|doubt| summary.doubt(doubt));
        for Summary { results, doubts, .. } in of_cells {
            summary.results.extend(results);
            doubts.into_iter().for_each(|doubt| summary.doubt(doubt));
        }
        summary.doubt_small_samples();
        // Broken promises first.
        let lost = Cause::Lost { subject: String::new(), count: 0 }.advice();
        summary.doubts.sort_by_key(|doubt| doubt.do_ != lost);
        summary
    }
}

impl StoredTrial {
    /// Its samples.
    pub fn load(&self) -> Result<Samples, StoreError> {
        TrialFile::open(&self.path)?.samples()
    }
}

/// Largest summary that is read, bytes: it may hold every latency of one receiver.
const JSON_SIZE_MAX: u64 = 256 << 20;

/// The first run in a directory of runs, or in one of its directories.
fn below(directory: &Path, depth: u32) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let mut directories: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    directories.sort();
    let is_run = |path: &&PathBuf| path.join(HEADER_FILE).exists();
    let found = directories.iter().find(is_run).cloned();
    found
        .or_else(|| if depth > 1 { directories.iter().find_map(|path| below(path, depth - 1)) } else { None })
}

/// `None` if there is no such file.
fn read_json<T: DeserializeOwned>(path: &Path, schema: &str) -> Result<Option<T>, StoreError> {
    let text = match read_text(path, JSON_SIZE_MAX) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(StoreError::Damaged { path: path.to_owned(), reason: error.to_string() });
        }
        Err(error) => return Err(StoreError::unread(path, error)),
    };
    parse_json(path, &text, schema).map(Some)
}

fn parse_json<T: DeserializeOwned>(path: &Path, text: &str, schema: &str) -> Result<T, StoreError> {
    let damaged =
        |error: serde_json::Error| StoreError::Damaged { path: path.to_owned(), reason: error.to_string() };
    let value: serde_json::Value = serde_json::from_str(text).map_err(damaged)?;
    if !value.is_object() {
        let (path, reason) = (path.to_owned(), "it holds no object".to_owned());
        return Err(StoreError::Damaged { path, reason });
    }
    let found = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or("none");
    if found != schema {
        return Err(StoreError::UnknownVersion { path: path.to_owned(), found: found.to_owned() });
    }
    serde_json::from_value(value).map_err(damaged)
}

/// By number, which is the order of measurement.
fn sample_files(run: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let directory = run.join(SAMPLES_DIR);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::unread(&directory, advised(error))),
    };
    let mut files = entries
        .map(|entry| entry.map(|e| e.path()).map_err(|error| StoreError::unread(&directory, advised(error))))
        .collect::<Result<Vec<_>, _>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "parquet" || e == PARTIAL));
    files.sort_by_key(|file| (number(file), file.clone()));
    Ok(files)
}

fn number(file: &Path) -> u64 {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

/// A trial by the end of its file. Its samples may still be damaged.
fn list_trial(path: &Path) -> Result<StoredTrial, String> {
    if path.extension().is_some_and(|e| e == PARTIAL) {
        return Err("it was being written when the run ended".to_owned());
    }
    let list = || {
        let file = TrialFile::open(path)?;
        Ok(StoredTrial {
            path: path.to_owned(),
            cell: file.cell()?,
            trial: file.trial()?,
            count: file.count(),
        })
    };
    list().map_err(reason_of)
}

fn reason_of(error: StoreError) -> String {
    match error {
        StoreError::Damaged { reason, .. } => reason,
        other => other.to_string(),
    }
}

fn unreadable(file: &Path, reason: String) -> Doubt {
    let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Cause::TrialUnreadable { file, reason }.into()
}
