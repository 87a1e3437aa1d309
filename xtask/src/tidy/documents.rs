//! Rules for every Markdown file: links lead somewhere, to a heading where they name one, nothing names a place of one machine only.

use std::collections::BTreeMap;
use std::path::Path;

use super::Findings;
use super::source::is_word;
use crate::workspace;

/// The README is read in three minutes; longer texts belong into `docs/`.
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
        if leaves {
            continue;
        }
        if !file.is_empty() && !folder.join(file).exists() {
            findings.add(line, format!("the link leads nowhere: {target}"));
        } else if let Some((_, anchor)) = target.split_once('#')
            && (file.is_empty() || file.ends_with(".md"))
        {
            let other = || std::fs::read_to_string(folder.join(file)).unwrap_or_default();
            let headings = if file.is_empty() { slugs(text) } else { slugs(&other()) };
            if !headings.iter().any(|heading| heading == anchor) {
                findings.add(line, format!("the link leads to no heading: {target}"));
            }
        }
    }
}

/// Names that links use for the headings of a page, as the usual viewers make them; a name that comes again has a number.
fn slugs(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut times = BTreeMap::new();
    for (_, line) in prose(text) {
        let Some(heading) = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
        else {
            continue;
        };
        let kept = |character: &char| is_word(*character) || "- ".contains(*character);
        let slug: String = shown(heading.trim()).to_lowercase().chars().filter(kept).collect();
        let slug = slug.replace(' ', "-");
        let before = times.entry(slug.clone()).and_modify(|times| *times += 1).or_insert(0);
        found.push(if *before == 0 { slug } else { format!("{slug}-{before}") });
    }
    found
}

/// Text that is read of a heading: of a link in it its words.
fn shown(heading: &str) -> String {
    let mut pieces = heading.split("](");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |shown, rest| shown + rest.split_once(')').map_or("", |(_, behind)| behind))
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

/// True if a line names this place, and not a longer path that contains its letters.
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
    prose(text).flat_map(|(at, line)| links_of_line(line).into_iter().map(move |link| (at, link))).collect()
}

/// The lines, from 1, that are not within a block of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
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

    /// Goal: a user who looks for the message that he got finds it. Method: the text between the gaps of each is in the sources.
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
        assert_eq!(lines("A.md", "[a](Cargo.toml) [b](nowhere.md)\n[c](https://x.org/y#z)\n"), [1]);
        assert_eq!(lines("docs/a.md", "[a](../Cargo.toml#x \"title\")\n[b]: ../nowhere\n"), [2]);
        assert_eq!(lines("A.md", "`[a](nowhere)`\n```text\n[a](nowhere)\n```\n[`a`](nowhere)\n"), [5]);
    }

    /// Goal: a heading that has another name now takes the links to it along. Method: the page itself, and another one.
    #[test]
    fn links_lead_to_headings() {
        let page = "# A page\n[a](#a-page) [b](#b)\n```sh\n# b\n```\n";
        assert_eq!(lines("A.md", page), [2]);
        let other =
            "[a](CONTRIBUTING.md#adding-an-engine) [b](Cargo.toml#L1)\n[c](CONTRIBUTING.md#adding-nothing)\n";
        assert_eq!(lines("A.md", other), [2]);
    }

    #[test]
    fn a_heading_is_called_as_viewers_call_it() {
        let page = "# `punctual run x --y N`\n## What's lost, and *why*?\n## [A link](b.md) here\n## Ä_b – c\n## Ä_b – c\nnone\n#none\n";
        let expected = ["punctual-run-x---y-n", "whats-lost-and-why", "a-link-here", "ä_b--c", "ä_b--c-1"];
        assert_eq!(slugs(page), expected);
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
