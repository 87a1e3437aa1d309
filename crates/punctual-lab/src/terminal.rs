//! Words for people: nothing in them commands a terminal, and a command goes on where nobody can read them.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error, which may be closed, or a file on a full disk.
pub fn say(text: impl Display) {
    let _unheard = writeln!(std::io::stderr(), "{text}");
}

/// A text as a page or a terminal may show it. Names and texts come from other programs too.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(printable_character).collect()
}

/// A character as they may show it. A line may end.
pub(crate) fn printable_character(c: char) -> char {
    if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c }
}
