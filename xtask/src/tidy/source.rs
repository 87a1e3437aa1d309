//! A Rust source as the rules see it: code without comments and without what stands in strings.

use std::path::Path;

/// One source file.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    /// The text with comments and the insides of literals blanked: same bytes, same lines.
    pub(super) code: String,
    /// The opposite: comments only.
    pub(super) comments: String,
    /// For every line whether it is test code.
    is_test: Vec<bool>,
}

impl<'a> Source<'a> {
    pub(crate) fn of(path: &'a Path, text: &'a str) -> Self {
        let (code, comments) = split(text);
        let is_test = test_lines(path, &code);
        Self { path, text, code, comments, is_test }
    }

    /// The line of a place in the text, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    /// True if a line (from 1) is test code.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.is_test.get(line - 1).copied().unwrap_or(false)
    }

    /// Number of lines that are not test code.
    pub(super) fn product_lines(&self) -> usize {
        self.is_test.iter().filter(|&&is_test| !is_test).count()
    }

    /// Lines on which the code has this, from 1. Where it begins or ends with a letter, so does a word there.
    pub(super) fn lines_with(&self, wanted: &str) -> Vec<usize> {
        find(&self.code, wanted).map(|at| self.line(at)).collect()
    }

    /// Texts in the brackets that every `opening` opens: its last character is one.
    pub(crate) fn literals(&self, opening: &str) -> Vec<&'a str> {
        let brackets = find(&self.code, opening).map(|at| at + opening.len() - 1);
        let inside = brackets.map(|open| &self.text[open..partner(&self.code, open)]);
        inside.flat_map(|inside| inside.split('"').skip(1).step_by(2)).collect()
    }

    /// Code between the bracket at `open` and its partner.
    pub(super) fn inside(&self, open: usize) -> &str {
        &self.code[open + 1..partner(&self.code, open)]
    }
}

/// Places of `wanted` in `text`, words being whole.
pub(super) fn find<'a>(text: &'a str, wanted: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_whole = move |&at: &usize| {
        let before = text[..at].chars().next_back();
        let after = text[at + wanted.len()..].chars().next();
        let begins = !(before.is_some_and(is_word) && wanted.starts_with(is_word));
        begins && !(after.is_some_and(is_word) && wanted.ends_with(is_word))
    };
    text.match_indices(wanted).map(|(at, _)| at).filter(is_whole)
}

pub(super) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Where the bracket at `open` is closed; the end of the text if it is not.
fn partner(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return offset;
        }
    }
    code.len()
}

/// Lines that are test code: whole files by their name, modules by their attribute.
fn test_lines(path: &Path, code: &str) -> Vec<bool> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_test_file = stem.ends_with("tests") || path.components().any(|part| part.as_os_str() == "tests");
    let mut lines = vec![is_test_file; code.lines().count()];
    for (at, _) in code.match_indices("#[cfg(") {
        let end = partner(code, at + 1);
        let is_module = code.get(end + 1..).is_some_and(|rest| begins_module(rest.trim_start()));
        if !is_module || find(&code[at..end], "test").next().is_none() {
            continue;
        }
        let Some(body) = code[end..].find(['{', ';']) else { continue };
        let last = if code.as_bytes()[end + body] == b'{' { partner(code, end + body) } else { end + body };
        let count = |upto: usize| code[..upto.min(code.len())].matches('\n').count();
        let upto = (count(last) + 1).min(lines.len());
        lines[count(at)..upto].fill(true);
    }
    lines
}

/// True if a module begins here, whoever may see it.
fn begins_module(code: &str) -> bool {
    let named = code.strip_prefix("pub").map_or(code, |seen_by| {
        let seen_by = seen_by.trim_start();
        let end = if seen_by.starts_with('(') { partner(seen_by, 0) + 1 } else { 0 };
        seen_by.get(end..).unwrap_or_default().trim_start()
    });
    named.starts_with("mod ")
}

/// Kind of text that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Code,
    LineComment,
    /// Depth of nesting.
    BlockComment(usize),
    Text,
    /// Number of `#` that close it.
    RawText(usize),
    Character,
}

/// Code and comments, each with everything else blanked.
fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let (mut code, mut comments) = (blank(bytes), blank(bytes));
    let mut within = Within::Code;
    let mut at = 0;
    while at < bytes.len() {
        let (next, length) = step(within, &bytes[at..], at > 0 && is_word(char::from(bytes[at - 1])));
        let end = (at + length).min(bytes.len());
        let is_comment = |within| matches!(within, Within::LineComment | Within::BlockComment(_));
        if is_comment(within) || is_comment(next) {
            comments[at..end].copy_from_slice(&bytes[at..end]);
        } else if within == Within::Code || next == Within::Code {
            code[at..end].copy_from_slice(&bytes[at..end]);
        }
        (within, at) = (next, end);
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(code), text(comments))
}

/// As many spaces, with the line ends kept.
fn blank(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }).collect()
}

/// The kind that follows `within` at the start of `rest`, and after how many bytes.
fn step(within: Within, rest: &[u8], after_word: bool) -> (Within, usize) {
    match within {
        Within::Code => step_code(rest, after_word),
        Within::LineComment if rest[0] == b'\n' => (Within::Code, 1),
        Within::BlockComment(depth) if rest.starts_with(b"/*") => (Within::BlockComment(depth + 1), 2),
        Within::BlockComment(1) if rest.starts_with(b"*/") => (Within::Code, 2),
        Within::BlockComment(depth) if rest.starts_with(b"*/") => (Within::BlockComment(depth - 1), 2),
        Within::Text | Within::Character if rest[0] == b'\\' => (within, 2),
        Within::Text if rest[0] == b'"' => (Within::Code, 1),
        Within::Character if rest[0] == b'\'' => (Within::Code, 1),
        Within::RawText(hashes) if is_raw_end(rest, hashes) => (Within::Code, 1 + hashes),
        _ => (within, 1),
    }
}

fn is_raw_end(rest: &[u8], hashes: usize) -> bool {
    rest[0] == b'"' && rest[1..].iter().take_while(|&&byte| byte == b'#').count() >= hashes
}

fn step_code(rest: &[u8], after_word: bool) -> (Within, usize) {
    match rest {
        [b'/', b'/', ..] => (Within::LineComment, 2),
        [b'/', b'*', ..] => (Within::BlockComment(1), 2),
        [b'"', ..] => (Within::Text, 1),
        [b'r', tail @ ..] if !after_word => raw(tail, 1),
        [b'b', b'r', tail @ ..] if !after_word => raw(tail, 2),
        // A quote opens a character, or else a lifetime, which has no second quote where a character has one.
        [b'\'', b'\\', ..] => (Within::Character, 1),
        [b'\'', tail @ ..] if is_character(tail) => (Within::Character, 1),
        _ => (Within::Code, 1),
    }
}

/// A raw string, if these bytes after its prefix open one.
fn raw(tail: &[u8], prefix: usize) -> (Within, usize) {
    let hashes = tail.iter().take_while(|&&byte| byte == b'#').count();
    match tail.get(hashes) {
        Some(b'"') => (Within::RawText(hashes), prefix + hashes + 1),
        _ => (Within::Code, 1),
    }
}

/// True if one character of UTF-8 and a quote come next.
fn is_character(tail: &[u8]) -> bool {
    let size = 1 + tail.iter().skip(1).take_while(|&&byte| byte & 0b1100_0000 == 0b1000_0000).count();
    tail.get(size) == Some(&b'\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::of(Path::new("a.rs"), text).code
    }

    #[test]
    fn comments_and_literals_are_blank() {
        assert_eq!(code("a // unsafe\nb"), "a          \nb");
        assert_eq!(code("a /* x /* y */ z */ b"), "a                   b");
        assert_eq!(code(r#"f("un\"safe") + 1"#), r#"f("        ") + 1"#);
        assert_eq!(code("r#\"a\"b\"# + br\"c\""), "r#\"   \"# + br\" \"");
        assert_eq!(code("'\"' 'ä' '\\'' &'a str"), "' ' '  ' '  ' &'a str");
        assert_eq!(code("for \"x"), "for \" ");
    }

    #[test]
    fn comments_are_kept_apart() {
        let source = Source::of(Path::new("a.rs"), "a(); // why\n\"// not\"\n");
        assert_eq!(source.comments.trim_end(), "     // why");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find("unsafe_code unsafe{", "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(find("my_println!() println!()", "println!").collect::<Vec<_>>(), [14]);
        assert_eq!(find("a::wake::b a::waker", "a::wake").count(), 1);
    }

    #[test]
    fn test_modules_are_not_product() {
        let text = "fn a() {}\n#[cfg(all(test, not(loom)))]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::of(Path::new("a.rs"), text);
        assert_eq!((1..=6).filter(|&line| source.is_test(line)).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(source.product_lines(), 2);
        let seen = text.replace("mod tests", "pub(in crate::a) mod tests");
        assert_eq!(Source::of(Path::new("a.rs"), &seen).product_lines(), 2);
        let file = Source::of(Path::new("ring/loom_tests.rs"), text);
        assert_eq!(file.product_lines(), 0);
    }

    #[test]
    fn brackets_have_partners() {
        let source = Source::of(Path::new("a.rs"), "use a::{b, c::{d}};");
        assert_eq!(source.inside(7), "b, c::{d}");
    }
}
