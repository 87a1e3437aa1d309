//! Tables of a group's file, each key and value with its line.

use std::fmt::Display;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Error};

use super::MEMBER;

/// Fault of a file, and its line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn new(line: usize, what: impl Display) -> Self {
        Self { line, what: what.to_string() }
    }

    /// Of a text that is no TOML.
    pub(super) fn of_syntax(text: &str, error: &Error) -> Self {
        let span = error.span().unwrap_or_default();
        // A part that is missing at the end is missing in the last line that has something.
        let line = line(text, span.start.min(text.trim_end().len()));
        let what = match (error.message(), text.get(span).unwrap_or_default()) {
            ("duplicate key", MEMBER) => {
                format!("{MEMBER} stands above already: write [[{MEMBER}]] each time")
            }
            ("duplicate key", key) => format!("{key} stands above already: remove one"),
            (message, _) => {
                let message = message.trim_end_matches(", expected nothing");
                format!(
                    "this is no TOML ({message}): write key = 7, key = \"text\" or a heading, or # in front"
                )
            }
        };
        Self::new(line, what)
    }
}

/// In which line a byte of a text is, from 1.
fn line(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
}

/// Keys and values of one heading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// Text of the whole file.
    text: &'a str,
    entries: &'a DeTable<'a>,
    /// The byte at which it begins; `None` for what stands in front of all headings.
    start: Option<usize>,
}

impl<'a> Table<'a> {
    /// The table of everything in front of all headings, and all other tables in it.
    pub(super) fn top(text: &'a str, entries: &'a DeTable<'a>) -> Self {
        Self { text, entries, start: None }
    }

    /// In which line it begins.
    pub(super) fn line(&self) -> usize {
        line(self.text, self.start.unwrap_or_default())
    }

    /// Refuses keys that mean nothing here.
    pub(super) fn allow(&self, keys: &[&str]) -> Result<(), Fault> {
        let strange = self.entries.keys().filter(|key| !keys.contains(&&**key.get_ref()));
        let Some(first) = strange.map(Spanned::span).min_by_key(|span| span.start) else { return Ok(()) };
        let (line, known) = (line(self.text, first.start), keys.join(", "));
        let key = self.text.get(first).unwrap_or_default();
        Err(Fault::new(line, format!("{key} means nothing here: write one of {known}, or remove it")))
    }

    /// In which line a key stands.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        self.entries.get_key_value(key).map(|(key, _)| line(self.text, key.span().start))
    }

    /// The result of `read` for a key's value, if the key stands here.
    pub(super) fn get<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Result<Option<T>, Fault> {
        let Some((at, value)) = self.entries.get_key_value(key) else { return Ok(None) };
        let wrong = |what| Fault::new(line(self.text, at.span().start), format!("{key}: {what}"));
        read(value.get_ref()).map(Some).map_err(wrong)
    }

    /// The same of a key that must be here.
    pub(super) fn need<T>(
        &self,
        key: &str,
        example: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Result<T, Fault> {
        let missing = || {
            let place = self.start.map_or("above the first heading", |_| "below this heading");
            Fault::new(
                self.line(),
                format!("{key} is missing: add a line {place}, such as {key} = {example}"),
            )
        };
        self.get(key, read)?.ok_or_else(missing)
    }

    /// A table in this one.
    pub(super) fn table(&self, key: &str) -> Result<Option<Self>, Fault> {
        let Some(value) = self.entries.get(key) else { return Ok(None) };
        let table = self.within(value);
        table
            .map(Some)
            .ok_or_else(|| self.wrong(value, format!("{key} is one table: write [{key}] above its lines")))
    }

    /// A list of tables in this one.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<Self>, Fault> {
        let Some(value) = self.entries.get(key) else { return Ok(Vec::new()) };
        let wrong = |value| {
            self.wrong(value, format!("there may be several: write [[{key}]] above the lines of each"))
        };
        let all: &DeArray<'a> = value.get_ref().as_array().ok_or_else(|| wrong(value))?;
        all.iter().map(|one| self.within(one).ok_or_else(|| wrong(one))).collect()
    }

    fn within(&self, value: &'a Spanned<DeValue<'a>>) -> Option<Self> {
        let entries = value.get_ref().as_table()?;
        Some(Self { entries, start: Some(value.span().start), ..*self })
    }

    fn wrong(&self, value: &Spanned<DeValue<'_>>, what: String) -> Fault {
        Fault::new(line(self.text, value.span().start), what)
    }
}
