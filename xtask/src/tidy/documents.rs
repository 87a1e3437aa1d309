//! Rules for every Markdown file: links lead somewhere, nothing names a place of one machine only.

use std::path::Path;

use super::Findings;
use super::source::is_word;
use crate::workspace;

/// The README is read in three minutes; what is longer belongs into `docs/`.
const README_WORDS_MAX: usize = 500;

/// Folders that exist on some machine, not on the reader's.
const PRIVATE: &[&str] = &["/work", "/tmp/"];

pub(super) fn check(path: &Path, text: &str, findings: &mut Findings<'_>) {
    if path == Path::new("README.md") {
        check_length(text, findings);
    }
    if path == Path::new("README.md") || path.starts_with("docs") {
        check_places(text, findings);
    }
    let folder = workspace::root().join(path.parent().unwrap_or(Path::new("")));
    for (line, target) in links(text) {
        let file = target.split('#').next().unwrap_or_default();
        let leaves = target.contains("://") || target.starts_with("mailto:");
        if !leaves && !file.is_empty() && !folder.join(file).exists() {
            findings.add(line, format!("the link leads nowhere: {target}"));
        }
    }
}

fn check_length(text: &str, findings: &mut Findings<'_>) {
    let count = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    if count > README_WORDS_MAX {
        findings.add(1, format!("{count} words, where {README_WORDS_MAX} are the limit: move some to docs/"));
    }
}

fn check_places(text: &str, findings: &mut Findings<'_>) {
    for (index, line) in text.lines().enumerate() {
        for place in PRIVATE.iter().filter(|place| names_place(line, place)) {
            findings.add(index + 1, format!("{place}: no reader has that folder"));
        }
    }
}

/// Whether a line names this place, and not a longer path that contains its letters.
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + place.len()..].chars().next();
        let begins = !before.is_some_and(|character| is_word(character) || "./>~-".contains(character));
        begins
            && (place.ends_with('/')
                || !after.is_some_and(|character| is_word(character) || character == '-'))
    })
}

/// Targets of inline links and of link definitions outside of code, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if !is_code {
            found.extend(links_of_line(line).into_iter().map(|target| (index + 1, target)));
        }
    }
    found
}

fn links_of_line(line: &str) -> Vec<String> {
    // Every second piece between backticks is code.
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
    let target =
        |rest: &str| rest.split([')', ' ']).next().unwrap_or_default().trim_matches(['<', '>']).to_owned();
    let mut found: Vec<_> =
        prose.match_indices("](").map(|(at, opening)| target(&prose[at + opening.len()..])).collect();
    if let Some((label, rest)) = prose.split_once("]: ")
        && label.starts_with('[')
    {
        found.push(target(rest));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Findings::of(Path::new(path));
        check(Path::new(path), text, &mut findings);
        findings.found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        assert_eq!(lines("A.md", "[a](Cargo.toml) [b](nowhere.md)\n[c](https://x.org/y) [d](#e)\n"), [1]);
        assert_eq!(lines("docs/a.md", "[a](../Cargo.toml#x \"title\")\n[b]: ../nowhere\n"), [2]);
        assert_eq!(lines("A.md", "`[a](nowhere)`\n```text\n[a](nowhere)\n```\n[`a`](nowhere)\n"), [5]);
    }

    #[test]
    fn a_readme_is_short() {
        assert_eq!(lines("README.md", &"word ".repeat(500)), []);
        assert_eq!(lines("README.md", &"word | ".repeat(501)), [1]);
    }

    #[test]
    fn no_place_of_one_machine_is_named() {
        assert_eq!(
            lines("docs/a.md", "see /work/main\n`/tmp/x`\nnetwork/work, /workspace, ./work\n"),
            [1, 2]
        );
        assert_eq!(lines("CONTRIBUTING.md", "/tmp/x\n"), []);
    }
}
