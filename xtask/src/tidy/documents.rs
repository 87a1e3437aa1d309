//! Rules for every Markdown file: links lead somewhere, nothing names a place of one machine only.

use std::path::Path;

use super::Findings;
use super::source::is_word;
use crate::workspace;

/// The README is read in three minutes; what is longer belongs into `docs/`.
const README_WORDS_MAX: usize = 500;

/// Folders that exist on some machine, not on the reader's.
const PRIVATE: &[&str] = &["/home/", "/root/", "/tmp/"];

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

    /// Goal: who looks for the message that he got finds it. Method: what stands between the gaps of each is in the sources.
    #[test]
    fn troubleshooting_quotes_what_is_printed() {
        let read = |path: &Path| std::fs::read_to_string(workspace::root().join(path)).unwrap_or_default();
        let is_source = |path: &&std::path::PathBuf| {
            path.starts_with("crates") && path.extension().is_some_and(|e| e == "rs")
        };
        let sources: String = workspace::files().iter().filter(is_source).map(|path| read(path)).collect();
        // A literal may go on in the next line.
        let sources: String = sources.split("\\\n").map(str::trim_start).collect();
        let page = read(Path::new("docs/troubleshooting.md"));
        let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let mut quoted = 0;
        for message in
            cells.filter_map(|cell| cell.split_once('`')?.1.rsplit_once('`')).map(|(message, _)| message)
        {
            if !message.contains(' ') || message.contains("`, `") {
                continue;
            }
            quoted += 1;
            for part in message.trim_matches('`').split('…').map(str::trim).filter(|part| part.len() > 5) {
                assert!(sources.contains(part), "no source says {part:?}");
            }
        }
        assert!(quoted >= 15, "{quoted} messages");
    }

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
        assert_eq!(lines("README.md", &"word ".repeat(500)), [0; 0]);
        assert_eq!(lines("README.md", &"word | ".repeat(501)), [1]);
    }

    #[test]
    fn no_place_of_one_machine_is_named() {
        assert_eq!(lines("docs/a.md", "see /home/somebody\n`/tmp/x`\nnetwork/home/, ./home/\n"), [1, 2]);
        assert_eq!(lines("CONTRIBUTING.md", "/tmp/x\n"), [0; 0]);
    }
}
