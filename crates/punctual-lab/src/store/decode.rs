//! A trial read back. Files come from disks and other people: nothing in them is believed unchecked.

use std::fs::File;
use std::path::Path;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArrayType, DataType, Int64Type};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use serde::de::DeserializeOwned;

use super::StoreError;
use super::check::check;
use crate::file::open;
use crate::sample::{ABSENT_NS, CellId, Outcome, Samples, StageColumn};

pub(super) const CELL_KEY: &str = "punctual.cell";
pub(super) const TRIAL_KEY: &str = "punctual.trial";
pub(super) const CHECK_KEY: &str = "punctual.check";
pub(super) const FACTS_KEY: &str = "punctual.facts";

pub(super) const STAGES_KEY: &str = "punctual.stages";

/// The column of senders, which older files do not have.
pub(super) const SENDER: &str = "sender";

/// A dot in the name of a column would have to be quoted in every query.
pub(super) fn stage_column(stage: &str) -> String {
    format!("stage_{}_ns", stage.replace('.', "_"))
}

/// Most messages of one trial that are read: more than any experiment takes.
const ROWS_MAX: usize = 1 << 25;

/// An opened file of samples, its footer read.
pub(super) struct TrialFile<'p> {
    path: &'p Path,
    file: SerializedFileReader<File>,
}

impl<'p> TrialFile<'p> {
    pub(super) fn open(path: &'p Path) -> Result<Self, StoreError> {
        let file = open(path).map_err(|error| StoreError::unread(path, error))?;
        let file = SerializedFileReader::new(file).map_err(|error| damaged(path, &error))?;
        Ok(Self { path, file })
    }

    pub(super) fn cell(&self) -> Result<CellId, StoreError> {
        self.json(CELL_KEY)
    }

    pub(super) fn trial(&self) -> Result<u32, StoreError> {
        self.json(TRIAL_KEY)
    }

    pub(super) fn count(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    fn json<T: DeserializeOwned>(&self, key: &str) -> Result<T, StoreError> {
        let text = self.text(key)?;
        serde_json::from_str(text).map_err(|error| damaged(self.path, &format!("{key}: {error}")))
    }

    fn text(&self, key: &str) -> Result<&str, StoreError> {
        let pairs = self.file.metadata().file_metadata().key_value_metadata();
        pairs
            .and_then(|pairs| pairs.iter().find(|pair| pair.key == key))
            .and_then(|pair| pair.value.as_deref())
            .ok_or_else(|| damaged(self.path, &format!("no {key} in its footer")))
    }

    pub(super) fn samples(&self) -> Result<Samples, StoreError> {
        let stages: Vec<String> = self.json(STAGES_KEY)?;
        let stages = stages.into_iter().map(|name| StageColumn { name, ns: Vec::new() }).collect();
        let mut samples = Samples { facts: self.json(FACTS_KEY)?, stages, ..Samples::default() };
        for group in 0..self.file.num_row_groups() {
            let rows = self.file.get_row_group(group).map_err(|error| damaged(self.path, &error))?;
            self.take_rows(rows.as_ref(), &mut samples)?;
        }
        if samples.sender.iter().all(|&sender| sender == ABSENT_NS) {
            samples.sender.clear();
        }
        let texts = [self.text(CELL_KEY)?, self.text(TRIAL_KEY)?, self.text(FACTS_KEY)?];
        if check(&texts, &samples) != self.text(CHECK_KEY)? {
            return Err(damaged(self.path, &"its check value is another"));
        }
        Ok(samples)
    }

    fn take_rows(&self, rows: &dyn RowGroupReader, samples: &mut Samples) -> Result<(), StoreError> {
        let count = usize::try_from(rows.metadata().num_rows()).map_err(|e| damaged(self.path, &e))?;
        if count > ROWS_MAX.saturating_sub(samples.len()) {
            return Err(damaged(self.path, &format!("more than {ROWS_MAX} messages in one trial")));
        }
        samples.index.extend(self.numbers(rows, "index", count)?);
        samples.due_ns.extend(self.numbers(rows, "due_ns", count)?);
        samples.sent_ns.extend(self.numbers(rows, "sent_ns", count)?);
        samples.total_ns.extend(self.numbers(rows, "total_ns", count)?);
        samples.outcome.extend(self.outcomes(rows, count)?);
        if has_column(rows, SENDER) {
            samples.sender.extend(self.numbers(rows, SENDER, count)?);
        }
        for stage in &mut samples.stages {
            stage.ns.extend(self.numbers(rows, &stage_column(&stage.name), count)?);
        }
        Ok(())
    }

    fn numbers(&self, rows: &dyn RowGroupReader, name: &str, count: usize) -> Result<Vec<u64>, StoreError> {
        let (values, levels) = self.column::<Int64Type>(rows, name, count)?;
        let mut values = values.into_iter().map(i64::cast_unsigned);
        if levels.is_empty() {
            return Ok(values.collect());
        }
        Ok(levels
            .iter()
            .map(|&level| if level == 0 { None } else { values.next() }.unwrap_or(ABSENT_NS))
            .collect())
    }

    fn outcomes(&self, rows: &dyn RowGroupReader, count: usize) -> Result<Vec<Outcome>, StoreError> {
        let (values, _) = self.column::<ByteArrayType>(rows, "outcome", count)?;
        let parse =
            |text: &str| Outcome::parse(text).ok_or_else(|| damaged(self.path, &format!("outcome `{text}`")));
        values
            .iter()
            .map(|v| v.as_utf8().map_err(|error| damaged(self.path, &error)).and_then(parse))
            .collect()
    }

    /// The values present, and per row whether there is one; no levels where all are required.
    fn column<T: DataType>(
        &self,
        rows: &dyn RowGroupReader,
        name: &str,
        count: usize,
    ) -> Result<(Vec<T::T>, Vec<i16>), StoreError> {
        let schema = rows.metadata().schema_descr();
        let place = schema.columns().iter().position(|c| c.name() == name);
        let place = place.ok_or_else(|| damaged(self.path, &format!("no column {name}")))?;
        if schema.column(place).physical_type() != T::get_physical_type() {
            return Err(damaged(self.path, &format!("column {name} has another type")));
        }
        let reader = rows.get_column_reader(place).map_err(|error| damaged(self.path, &error))?;
        let mut reader = get_typed_column_reader::<T>(reader);
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let wants_levels = schema.column(place).max_def_level() > 0;
        let mut done = 0;
        while done < count {
            let levels = wants_levels.then_some(&mut levels);
            let (read, _, _) = reader
                .read_records(count - done, levels, None, &mut values)
                .map_err(|error| damaged(self.path, &error))?;
            if read == 0 {
                return Err(damaged(self.path, &format!("column {name} ends after {done} of {count} rows")));
            }
            done += read;
        }
        Ok((values, levels))
    }
}

fn has_column(rows: &dyn RowGroupReader, name: &str) -> bool {
    rows.metadata().schema_descr().columns().iter().any(|column| column.name() == name)
}

fn damaged(path: &Path, reason: &dyn std::fmt::Display) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), reason: reason.to_string() }
}
