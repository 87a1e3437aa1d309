//! A file of two lines of JSON: its schema with a check value, and what it holds.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::aside::write_durably;
use super::check::check_text;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Heading {
    schema: String,
    /// Over the second line.
    check: String,
}

/// Contents of the file.
pub fn checked_text(schema: &str, content: &impl Serialize) -> String {
    let body = serde_json::to_string(content).expect("every key of it is a string");
    let heading = Heading { schema: schema.to_owned(), check: check_text(&body) };
    let heading = serde_json::to_string(&heading).expect("every key is a string");
    format!("{heading}\n{body}\n")
}

/// Writes such a text, whole or not at all; when this returns, a power cut cannot take it away.
///
/// # Errors
/// The disk is full or fails. The contents that stood there before stay.
pub fn write_text(path: &Path, text: &str) -> Result<(), StoreError> {
    write_durably(path, text.as_bytes())
}

/// Contents of a text.
///
/// # Errors
/// It is of another schema, or damaged.
pub fn read_checked<T: DeserializeOwned>(schema: &str, text: &str) -> Result<T, String> {
    let (heading, rest) = text.split_once('\n').ok_or("it has no second line")?;
    let heading: Heading = serde_json::from_str(heading).map_err(|error| error.to_string())?;
    if heading.schema != schema {
        return Err(format!("it is of version `{}`, unknown here", heading.schema));
    }
    let body = rest.trim_end_matches('\n');
    if check_text(body) != heading.check {
        return Err("its check value is another".to_owned());
    }
    serde_json::from_str(body).map_err(|error| error.to_string())
}
