//! A trial as the bytes of a Parquet file. Pure: no file is touched here.

use std::borrow::Cow;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::check::check;
use super::decode::{CELL_KEY, CHECK_KEY, FACTS_KEY, SENDER, STAGES_KEY, TRIAL_KEY, stage_column};
use crate::sample::{ABSENT_NS, CellId, Outcome, RESPONDER, STAGES, Samples};

/// Level of a value that is there, in a column where values may be missing.
const PRESENT: i16 = 1;

pub(super) fn encode(cell: &CellId, trial: u32, samples: &Samples, warmup: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, cell, trial, samples, warmup).expect("memory takes what our own schema describes");
    bytes
}

fn write(bytes: &mut Vec<u8>, cell: &CellId, trial: u32, samples: &Samples, warmup: u64) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("punctual ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(metadata(cell, trial, samples)))
        .build();
    let mut file = SerializedFileWriter::new(bytes, schema(samples)?, Arc::new(properties))?;
    let mut rows = file.next_row_group()?;
    let count = samples.len();
    texts(&mut rows, std::iter::repeat_n(cell.name.as_str(), count))?;
    texts(&mut rows, std::iter::repeat_n(cell.kind.as_str(), count))?;
    texts(&mut rows, std::iter::repeat_n(cell.load.as_str(), count))?;
    numbers(&mut rows, &vec![cell.gap_us; count])?;
    numbers(&mut rows, &vec![cell.size as u64; count])?;
    trials(&mut rows, trial, count)?;
    for column in [&samples.index, &samples.due_ns, &samples.sent_ns, &samples.total_ns] {
        numbers(&mut rows, column)?;
    }
    texts(&mut rows, samples.outcome.iter().copied().map(Outcome::as_str))?;
    texts(&mut rows, (0..count).map(|row| samples.phase(row, warmup).as_str()))?;
    optional_numbers(&mut rows, (!samples.sender.is_empty()).then_some(&samples.sender), count)?;
    for name in stage_names(samples) {
        optional_numbers(
            &mut rows,
            samples.stages.iter().find(|s| s.name == name).map(|s| s.ns.as_slice()),
            count,
        )?;
    }
    rows.close()?;
    file.close()?;
    Ok(())
}

fn metadata(cell: &CellId, trial: u32, samples: &Samples) -> Vec<KeyValue> {
    let json = |text: serde_json::Result<String>| text.expect("every key is a string");
    let (cell, trial) = (json(serde_json::to_string(cell)), trial.to_string());
    let facts = json(serde_json::to_string(&samples.facts));
    let stages: Vec<&str> = samples.stages.iter().map(|s| s.name.as_str()).collect();
    let stages = json(serde_json::to_string(&stages));
    let check = check(&[&cell, &trial, &facts], samples);
    let pairs =
        [(CELL_KEY, cell), (TRIAL_KEY, trial), (FACTS_KEY, facts), (STAGES_KEY, stages), (CHECK_KEY, check)];
    pairs.map(|(key, value)| KeyValue::new(key.to_owned(), value)).into()
}

fn schema(samples: &Samples) -> Result<TypePtr> {
    let mut fields =
        vec![text("name")?, text("kind")?, text("load")?, number("gap_us", Repetition::REQUIRED)?];
    fields.push(number("size", Repetition::REQUIRED)?);
    fields.push(Arc::new(
        Type::primitive_type_builder("trial", Physical::INT32)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::integer(32, false)))
            .build()?,
    ));
    for name in ["index", "due_ns", "sent_ns", "total_ns"] {
        fields.push(number(name, Repetition::REQUIRED)?);
    }
    fields.push(text("outcome")?);
    fields.push(text("phase")?);
    fields.push(number(SENDER, Repetition::OPTIONAL)?);
    for name in stage_names(samples) {
        fields.push(number(&stage_column(&name), Repetition::OPTIONAL)?);
    }
    Ok(Arc::new(Type::group_type_builder("sample").with_fields(fields).build()?))
}

fn text(name: &str) -> Result<TypePtr> {
    let column = Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::String));
    Ok(Arc::new(column.build()?))
}

fn number(name: &str, repetition: Repetition) -> Result<TypePtr> {
    let column = Type::primitive_type_builder(name, Physical::INT64)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::integer(64, false)));
    Ok(Arc::new(column.build()?))
}

type Rows<'a, 'b> = SerializedRowGroupWriter<'a, &'b mut Vec<u8>>;

fn texts<'t>(rows: &mut Rows<'_, '_>, values: impl Iterator<Item = &'t str>) -> Result<()> {
    let values: Vec<ByteArray> = values.map(|v| ByteArray::from(v.as_bytes().to_vec())).collect();
    let mut column = rows.next_column()?.expect("the schema has this column");
    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
    column.close()
}

fn trials(rows: &mut Rows<'_, '_>, trial: u32, count: usize) -> Result<()> {
    let mut column = rows.next_column()?.expect("the schema has this column");
    column.typed::<Int32Type>().write_batch(&vec![trial.cast_signed(); count], None, None)?;
    column.close()
}

/// Parquet keeps unsigned numbers in the bits of signed ones.
fn numbers(rows: &mut Rows<'_, '_>, values: &[u64]) -> Result<()> {
    let values: Vec<i64> = values.iter().map(|v| v.cast_signed()).collect();
    let mut column = rows.next_column()?.expect("the schema has this column");
    column.typed::<Int64Type>().write_batch(&values, None, None)?;
    column.close()
}

/// Without values, all of them are missing.
fn optional_numbers(rows: &mut Rows<'_, '_>, values: Option<&[u64]>, count: usize) -> Result<()> {
    let values = values.map_or_else(|| Cow::Owned(vec![ABSENT_NS; count]), Cow::Borrowed);
    let levels: Vec<i16> = values.iter().map(|&v| if v == ABSENT_NS { 0 } else { PRESENT }).collect();
    let present: Vec<i64> = values.iter().filter(|&&v| v != ABSENT_NS).map(|v| v.cast_signed()).collect();
    let mut column = rows.next_column()?.expect("the schema has this column");
    column.typed::<Int64Type>().write_batch(&present, Some(&levels), None)?;
    column.close()
}

/// Every known stage, whether or not the trial has it, then its own: readers that take many files at once want
/// the same columns in all of them.
fn stage_names(samples: &Samples) -> Vec<String> {
    let mut names: Vec<String> = STAGES.map(str::to_owned).into();
    names.extend(STAGES.map(|stage| format!("request.{stage}")));
    names.push(RESPONDER.to_owned());
    names.extend(STAGES.map(|stage| format!("reply.{stage}")));
    let own = samples.stages.iter().map(|s| &s.name).filter(|name| !names.contains(name)).cloned();
    let own: Vec<String> = own.collect();
    names.extend(own);
    names
}
