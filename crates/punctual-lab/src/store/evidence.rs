//! Evidence that explains the late messages of a trial, in a file beside its samples: two lines of JSON.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::checked::{checked_text, read_checked, write_text};
use super::{EVIDENCE_DIR, Store, StoreError, StoredTrial};
use crate::file::read_text;

/// Evidence as a trial has it. A file from outside was not necessarily recorded.
pub trait Recorded: DeserializeOwned {
    /// Checks that it can have been recorded.
    ///
    /// # Errors
    /// Says why not.
    fn check(&self) -> Result<(), &'static str>;
}

const SCHEMA: &str = "punctual.evidence.v1";

/// Largest file of evidence that is read, bytes.
const SIZE_MAX: u64 = 1 << 30;

impl Store {
    /// Stores what explains a trial; `samples` is the file that [`Store::append`] wrote.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn append_evidence(&self, samples: &Path, evidence: &impl Serialize) -> Result<(), StoreError> {
        let (path, text) = evidence_file(samples, evidence)?;
        write_text(&path, &text)
    }
}

/// Place and contents of the file beside a file of samples. Its directory is there then.
pub(super) fn evidence_file(
    samples: &Path,
    evidence: &impl Serialize,
) -> Result<(PathBuf, String), StoreError> {
    let path = beside(samples);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| StoreError::from_io(directory, error))?;
    }
    Ok((path, checked_text(SCHEMA, evidence)))
}

impl StoredTrial {
    /// Evidence that explains it; `None` if nothing was kept.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or of a version unknown here.
    pub fn evidence<T: Recorded>(&self) -> Result<Option<T>, StoreError> {
        let path = beside(&self.path);
        let text = match read_text(&path, SIZE_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(StoreError::Damaged { path, reason: error.to_string() });
            }
            Err(error) => return Err(StoreError::unread(&path, error)),
        };
        let read = read_checked(SCHEMA, &text)
            .and_then(|evidence: T| evidence.check().map(|()| evidence).map_err(str::to_owned));
        read.map(Some).map_err(|reason| StoreError::Damaged { path, reason })
    }
}

/// `evidence/NAME.json` of `samples/NAME.parquet`.
fn beside(samples: &Path) -> PathBuf {
    let name = Path::new(samples.file_stem().unwrap_or_default()).to_owned();
    let run = samples.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let mut file = name.into_os_string();
    file.push(".json");
    run.join(EVIDENCE_DIR).join(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CellId, Outcome, Samples};
    use crate::store::{Header, Run};

    impl Recorded for Vec<u32> {
        fn check(&self) -> Result<(), &'static str> {
            if self.contains(&0) { Err("it has a zero") } else { Ok(()) }
        }
    }

    /// Goal: evidence comes back as it was stored, and a changed byte of it is damage, not evidence.
    #[test]
    fn evidence_comes_back_or_is_damaged() {
        let place = tempfile::tempdir().expect("room");
        let out = place.path().join("run");
        let mut store = Store::import(Some(&out), &Header::new("response")).expect("a store");
        let mut samples = Samples::default();
        samples.push(0, 0, 0, 5, Outcome::Answered);
        let path = store.append(&CellId::new("a.b", "c"), 0, &samples).expect("stored");
        let none = Run::open(&out).expect("a run").trials[0].evidence::<Vec<u32>>();
        assert!(matches!(none, Ok(None)), "{none:?}");
        store.append_evidence(&path, &[1_u32, 22, 3]).expect("stored");
        let run = Run::open(&out).expect("a run");
        assert_eq!(run.trials[0].evidence().expect("read"), Some(vec![1_u32, 22, 3]));
        let file = beside(&path);
        let text = fs::read_to_string(&file).expect("a file");
        fs::write(&file, text.replace("22", "23")).expect("room");
        let damaged = run.trials[0].evidence::<Vec<u32>>();
        assert!(matches!(damaged, Err(StoreError::Damaged { .. })), "{damaged:?}");
        fs::write(&file, checked_text(SCHEMA, &[3_u32, 0])).expect("room");
        let impossible = run.trials[0].evidence::<Vec<u32>>();
        assert!(matches!(impossible, Err(StoreError::Damaged { .. })), "{impossible:?}");
    }
}
