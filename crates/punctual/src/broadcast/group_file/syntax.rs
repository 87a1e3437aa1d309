//! The part of TOML that a group's file is written in: texts and whole numbers, in tables.

use std::fmt::Display;

/// What is wrong with a file, and in which line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn new(line: usize, what: impl Display) -> Self {
        Self { line, what: what.to_string() }
    }
}

/// What stands behind a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
}

/// A line with a key.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    line: usize,
    key: &'a str,
    value: Value<'a>,
}

/// Lines up to the next heading.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    /// Its heading as it is written, such as `[[member]]`; empty in front of the first.
    pub(super) heading: &'a str,
    pub(super) line: usize,
    entries: Vec<Entry<'a>>,
}

impl<'a> Table<'a> {
    /// Refuses keys that mean nothing here.
    pub(super) fn allow(&self, keys: &[&str]) -> Result<(), Fault> {
        match self.entries.iter().find(|entry| !keys.contains(&entry.key)) {
            None => Ok(()),
            Some(Entry { line, key, .. }) => {
                let known = keys.join(", ");
                Err(Fault::new(
                    *line,
                    format!("{key} is no key here: write one of {known}, or remove the line"),
                ))
            }
        }
    }

    /// In which line a key stands.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| entry.line)
    }

    /// What `read` makes of a key's value, if it stands here.
    pub(super) fn get<T>(
        &self,
        key: &str,
        read: impl FnOnce(Value<'a>) -> Result<T, String>,
    ) -> Result<Option<T>, Fault> {
        let Some(entry) = self.entries.iter().find(|entry| entry.key == key) else { return Ok(None) };
        read(entry.value).map(Some).map_err(|what| Fault::new(entry.line, format!("{key}: {what}")))
    }

    /// The same of a key that must be here.
    pub(super) fn need<T>(
        &self,
        key: &str,
        example: &str,
        read: impl FnOnce(Value<'a>) -> Result<T, String>,
    ) -> Result<T, Fault> {
        let missing = || {
            let place =
                if self.heading.is_empty() { "above the first heading" } else { "below this heading" };
            Fault::new(self.line, format!("{key} is missing: add a line {place}, such as {key} = {example}"))
        };
        self.get(key, read)?.ok_or_else(missing)
    }
}

/// The tables of a file, in its order. The first is what stands in front of all headings.
pub(super) fn tables(text: &str) -> Result<Vec<Table<'_>>, Fault> {
    let mut tables = vec![Table { heading: "", line: 1, entries: Vec::new() }];
    for (number, line) in (1..).zip(text.split('\n')) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if let Some(char) = line.chars().find(|char| char.is_control() && *char != '\t') {
            return Err(Fault::new(number, format!("{char:?} is no character of a text: remove it")));
        }
        let line = line.trim_matches(BLANK);
        let table = tables.last_mut().expect("the first is there");
        match line.as_bytes().first() {
            None | Some(b'#') => {}
            Some(b'[') => {
                let heading = heading(line).map_err(|what| Fault::new(number, what))?;
                tables.push(Table { heading, line: number, entries: Vec::new() });
            }
            Some(_) => {
                let (key, value) = entry(line).map_err(|what| Fault::new(number, what))?;
                if let Some(first) = table.line_of(key) {
                    return Err(Fault::new(number, format!("{key} stands in line {first} too: remove one")));
                }
                table.entries.push(Entry { line: number, key, value });
            }
        }
    }
    Ok(tables)
}

/// White space inside a line of TOML.
const BLANK: [char; 2] = [' ', '\t'];

/// `[faults]` or `[[member]]`.
fn heading(line: &str) -> Result<&str, String> {
    // None of them has a # inside.
    let heading = line.split('#').next().unwrap_or(line).trim_end_matches(BLANK);
    HEADINGS.into_iter().find(|known| *known == heading).map(|_| heading).ok_or_else(|| {
        format!("{line} is no heading of this file: write {}, or remove it", HEADINGS.join(" or "))
    })
}

pub(super) const MEMBER: &str = "[[member]]";
pub(super) const FAULTS: &str = "[faults]";
const HEADINGS: [&str; 2] = [MEMBER, FAULTS];

/// `key = value`, and a comment.
fn entry(line: &str) -> Result<(&str, Value<'_>), String> {
    let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let size = line.bytes().take_while(|&byte| is_of_key(byte)).count();
    let (key, rest) = line.split_at(size);
    let rest = rest.trim_start_matches(BLANK);
    let Some(rest) = rest.strip_prefix('=').filter(|_| size > 0) else {
        return Err(
            "this is neither a heading nor `key = value`: write one of them, or # in front".to_owned()
        );
    };
    let (value, rest) = value(rest.trim_start_matches(BLANK)).map_err(|what| format!("{key}: {what}"))?;
    if !is_over(rest) {
        let rest = rest.trim_matches(BLANK);
        return Err(format!("{key}: {rest} stands behind the value: remove it, or write # in front of it"));
    }
    Ok((key, value))
}

/// Whether there is nothing more in a line, or a comment.
fn is_over(rest: &str) -> bool {
    let rest = rest.trim_matches(BLANK);
    rest.is_empty() || rest.starts_with('#')
}

/// A value, and what stands behind it.
fn value(text: &str) -> Result<(Value<'_>, &str), String> {
    let Some(first) = text.chars().next().filter(|first| *first != '#') else {
        return Err("a value is missing: a text in quotes, or a whole number".to_owned());
    };
    if first == '"' || first == '\'' {
        let (inside, rest) =
            text[1..].split_once(first).ok_or(format!("{text} has no quote at its end: add one"))?;
        if first == '"' && inside.contains('\\') {
            return Err(format!("{text} has a backslash, which no value here needs: remove it"));
        }
        return Ok((Value::Text(inside), rest));
    }
    let size = text.find(|char: char| BLANK.contains(&char) || char == '#').unwrap_or(text.len());
    let (word, rest) = text.split_at(size);
    let number = number(word).ok_or_else(|| {
        format!("{word} is neither a text in quotes nor a whole number: write \"{word}\" if it is a text")
    })?;
    Ok((Value::Number(number), rest))
}

/// A whole number as TOML writes it: 1048576 or 1_048_576.
fn number(word: &str) -> Option<u64> {
    let is_plain =
        word.split('_').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let number = word.replace('_', "").parse().ok().filter(|_| is_plain)?;
    // TOML's numbers have a sign, and no zero in front.
    (number <= i64::MAX as u64 && (number == 0) == word.starts_with('0') && (number > 0 || word == "0"))
        .then_some(number)
}
