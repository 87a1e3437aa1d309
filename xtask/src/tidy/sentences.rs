//! Rules for the sentences of comments and documents, and for names of functions: the subject is a noun and no clause. The words of a
//! sentence are not too many.

use super::Findings;
use super::source::{Source, find, is_word};

/// Words from one stop to the next. A reader holds no longer sentence at once.
const WORDS_MAX: usize = 25;

/// Words that begin a clause where a sentence needs its subject, such as "Who leaves" or "Whether it is open".
const CLAUSES: &[&str] =
    &["Who", "Whoever", "Whom", "Whose", "What", "Whatever", "How", "Whether", "Which", "Whichever"];

/// Words that begin a clause as the name of a function. A name such as `which_of` or `how_fast` is a question that its function answers.
const CLAUSE_NAMES: &[&str] = &["who_", "whoever_", "whom_", "whose_", "what_", "whatever_", "whether_"];

/// A word and its line, from 1.
type Word<'a> = (usize, &'a str);

/// Comments of a source, and names of its functions.
pub(super) fn check(source: &Source<'_>, findings: &mut Findings<'_>) {
    check_names(source, findings);
    let mut paragraphs = Paragraphs::default();
    for (number, (line, comment)) in source.text.lines().zip(source.comments.lines()).enumerate() {
        let comment = comment.trim();
        let said = comment.trim_start_matches(['/', '!']);
        // A comment behind code begins anew, as does one of another kind.
        let is_alone = line.trim_start().starts_with("//");
        paragraphs.begin(&comment[..comment.len() - said.len()], is_alone);
        paragraphs.add(number + 1, said.trim());
    }
    paragraphs.check(findings);
}

fn check_names(source: &Source<'_>, findings: &mut Findings<'_>) {
    for at in find(&source.code, "fn ") {
        let rest = &source.code[at + "fn ".len()..];
        let name = &rest[..rest.find(|character| !is_word(character)).unwrap_or(rest.len())];
        if CLAUSE_NAMES.iter().any(|word| name.starts_with(word)) {
            findings.add(source.line(at), format!("`{name}`: a clause is no subject; name the thing"));
        }
    }
}

/// Sentences of a Markdown file.
pub(super) fn check_document(text: &str, findings: &mut Findings<'_>) {
    let mut paragraphs = Paragraphs::default();
    for (number, line) in text.lines().enumerate() {
        paragraphs.add(number + 1, line.trim());
    }
    paragraphs.check(findings);
}

/// Words of each paragraph and each item of a list. Code, tables and headings are left out.
#[derive(Default)]
struct Paragraphs<'a> {
    all: Vec<Vec<Word<'a>>>,
    marker: &'a str,
    is_code: bool,
}

impl<'a> Paragraphs<'a> {
    /// A line with this in front of its words follows.
    fn begin(&mut self, marker: &'a str, is_alone: bool) {
        if marker != self.marker || !is_alone {
            (self.marker, self.is_code) = (marker, false);
            self.all.push(Vec::new());
        }
    }

    fn add(&mut self, line: usize, said: &'a str) {
        let is_fence = said.starts_with("```");
        self.is_code ^= is_fence;
        if self.is_code || is_fence || said.is_empty() || said.starts_with(['|', '#']) {
            self.all.push(Vec::new());
            return;
        }
        let item = said.split_once(' ').filter(|(mark, _)| is_bullet(mark));
        if item.is_some() || self.all.is_empty() {
            self.all.push(Vec::new());
        }
        let words = item.map_or(said, |(_, rest)| rest).split_whitespace().map(|word| (line, word));
        self.all.last_mut().expect("one was pushed").extend(words);
    }

    fn check(&self, findings: &mut Findings<'_>) {
        for paragraph in &self.all {
            for sentence in paragraph.split_inclusive(|(_, word)| ends(word, &['.', '!', '?', ':'])) {
                check_subject(sentence, findings);
            }
            for part in paragraph.split_inclusive(|(_, word)| ends(word, &['.', '!', '?', ':', ';'])) {
                let count = length(part);
                if count > WORDS_MAX {
                    let text = format!("{count} words to the next stop, where {WORDS_MAX} are the limit");
                    findings.add(part[0].0, text);
                }
            }
        }
    }
}

fn check_subject(sentence: &[Word<'_>], findings: &mut Findings<'_>) {
    let Some((&(line, first), &(_, last))) = sentence.first().zip(sentence.last()) else { return };
    let is_clause = CLAUSES.contains(&first.trim_start_matches(['(', '"']).trim_end_matches('.'));
    if is_clause && !ends(last, &['?']) {
        let words: Vec<&str> = sentence.iter().take(2).map(|(_, word)| *word).collect();
        findings.add(line, format!("`{}`: a clause is no subject; name the thing", words.join(" ")));
    }
}

/// Number of words; code between backticks is one.
fn length(part: &[Word<'_>]) -> usize {
    let mut is_code = false;
    let counts = part.iter().map(|(_, word)| {
        let begins = !is_code;
        is_code ^= word.matches('`').count() % 2 == 1;
        usize::from(begins)
    });
    counts.sum()
}

/// True if the word has one of these stops behind it, and brackets or quotes at most behind that.
fn ends(word: &str, stops: &[char]) -> bool {
    word.trim_end_matches([')', '*', '"', '_']).ends_with(stops)
}

fn is_bullet(mark: &str) -> bool {
    matches!(mark, "-" | "*") || mark.strip_suffix('.').is_some_and(|number| number.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn found(text: &str) -> Vec<String> {
        let path = Path::new("crates/punctual/src/node.rs");
        let mut findings = Findings::of(path);
        check(&Source::of(path, text), &mut findings);
        findings.found.into_iter().map(|one| format!("{}: {}", one.line, one.reason)).collect()
    }

    #[test]
    fn a_clause_is_no_subject() {
        let text = "//! Names. Who\n//! leaves is silent.\nfn f() {} // Whether it is open.\n/// Which.\nfn g() {}\n";
        let found = found(text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("1: `Who leaves`") && found[1].starts_with("3: `Whether it`"));
        assert!(found[2].starts_with("4: `Which.`"));
    }

    #[test]
    fn a_clause_is_no_name() {
        let text = "fn what_is_lost_is_counted() {}\nmod a {\n    pub fn whoever_leaves(b: u8) {}\n}\n";
        let clause = |line, name| format!("{line}: `{name}`: a clause is no subject; name the thing");
        assert_eq!(found(text), [clause(1, "what_is_lost_is_counted"), clause(3, "whoever_leaves")]);
        let text = "fn whole_frames() { what_of(1) }\nfn which_of() {}\nfn all_who_came() {}\nfn what() {}\n// fn who_is()\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn questions_code_and_strings_are_left_alone() {
        let text = "// What is it? A node.\n/// ```\n/// // What is it.\n/// ```\nconst A: &str = \"// Who goes.\";\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn words_are_counted_to_the_next_stop() {
        let short = format!("// {}; {}.\n", "word ".repeat(24).trim(), "word ".repeat(25).trim());
        assert_eq!(found(&short), [""; 0]);
        let long = format!("//\n// {}\n// {}.\n", "word ".repeat(13).trim(), "word ".repeat(13).trim());
        assert_eq!(found(&long), ["2: 26 words to the next stop, where 25 are the limit"]);
        let code = format!("// {} `{}`\n", "word ".repeat(24), "code ".repeat(9).trim());
        assert_eq!(found(&code), [""; 0]);
    }
}
