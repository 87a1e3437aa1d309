//! The tutorial, followed from its first line to its last: every file it shows is written, every command is run.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use crate::command::{Run, how, tail};
use crate::package;
use crate::release;
use crate::step::Outcome;
use crate::workspace;

const PAGE: &str = include_str!("../../docs/tutorial.md");

/// The page's own small programs are built, and talk for some twenty seconds. All else is built before ([`build`]).
const DEADLINE: Duration = Duration::from_secs(300);

/// Texts that a reader must have seen on the way, and how often at least: both brakes report. The log stands still while messages come,
/// regardless of the machine's other work.
const SEEN: &[(&str, usize)] = &[("1001 messages", 2), ("most of it elsewhere", 1)];

/// The page has one bus: two readers of it at the same time would hear each other. A lock of this folder, where buses are,
/// makes them take turns.
const BUSES: &str = "/dev/shm";

/// A workspace around the reader's project: cargo would add that to the repository's.
const AROUND: &str = "[workspace]\nresolver = \"3\"\n";

/// The reader's folder `punctual` is the repository: named as cargo has it already, lest all be built again.
const PROLOGUE: &str = "cargo() { command cargo \"${@/#..\\/punctual/$PUNCTUAL_SOURCES}\"; }\n";

/// A part of the page that does something.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// A file to be written: its name stands alone in the line before it.
    File(&'a str, &'a str),
    Commands(&'a str),
}

pub(crate) fn run() -> Outcome {
    Outcome::of(follow())
}

/// Builds what the page's commands find built: the command, and by the finished example the library.
fn build() -> Result<(), String> {
    release::build()?;
    let example = ["build", "--quiet", "--locked", "--manifest-path", "examples/late/Cargo.toml"];
    settled(Run::cargo(&example)).status()
}

/// With one place for the builds of all projects, and no network: everything needed is here already.
fn settled(run: Run) -> Run {
    let run = package::settled(run);
    run.env("CARGO_TARGET_DIR", workspace::target("")).env("CARGO_NET_OFFLINE", "true")
}

fn follow() -> Result<(), String> {
    build()?;
    let folder = workspace::target("tutorial");
    prepare(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let buses = File::open(BUSES).and_then(|buses| buses.lock().map(|()| buses));
    let _turn = buses.map_err(|error| format!("{BUSES}: {error}"))?;
    let bash = Run::new("bash").args(&["-euo", "pipefail", "-c", &script(&parts(PAGE))]);
    let bash = settled(bash).env("PUNCTUAL_SOURCES", workspace::root());
    let (ended, output) =
        bash.within_folder(&folder).within(DEADLINE).all_output_to(&folder.join("output.txt"))?;
    if ended != Some(0) {
        return Err(format!(
            "a command of docs/tutorial.md failed ({}):\n{}",
            how(ended, DEADLINE),
            tail(&output, 40)
        ));
    }
    say!("{}", tail(&output, 12));
    seen(&output)
}

/// Programs that a page starts in the background fail unheard by the shell: what they say tells.
fn seen(output: &str) -> Result<(), String> {
    match SEEN.iter().find(|(text, times)| output.matches(text).count() < *times) {
        Some((text, times)) => Err(format!("\"{text}\" was not said {times} times:\n{}", tail(output, 40))),
        None => Ok(()),
    }
}

/// A new folder for the reader's project, which uses what the finished one does.
fn prepare(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("Cargo.toml"), AROUND)?;
    fs::copy(workspace::root().join("examples/late/Cargo.lock"), folder.join("Cargo.lock")).map(drop)
}

/// Blocks of commands that another step runs name it behind their language.
fn parts(page: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = page;
    while let Some((before, block)) = rest.split_once("```") {
        let (block, after) = block.split_once("```").unwrap_or((block, ""));
        let (language, text) = block.split_once('\n').unwrap_or((block, ""));
        let title = before.trim_end().lines().last().unwrap_or_default();
        let name = title.strip_prefix('`').and_then(|title| title.strip_suffix("`:"));
        match (language, name) {
            ("sh", _) => parts.push(Part::Commands(text)),
            (_, Some(name)) => parts.push(Part::File(name, text)),
            _ => {}
        }
        rest = after;
    }
    parts
}

fn script(parts: &[Part<'_>]) -> String {
    let mut script = PROLOGUE.to_owned();
    for part in parts {
        let _infallible = match part {
            Part::Commands(text) => writeln!(script, "{text}"),
            Part::File(name, text) => {
                writeln!(
                    script,
                    "mkdir -p \"$(dirname {name})\"\ncat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE"
                )
            }
        };
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_commands_are_told_from_the_rest() {
        let page = "text\n```sh\nls\n```\n```text\nout\n```\n`a/b.rs`:\n```rust\nfn f() {}\n```\n```sh smoke\nno\n```\n";
        assert_eq!(parts(page), [Part::Commands("ls\n"), Part::File("a/b.rs", "fn f() {}\n")]);
    }

    /// Goal: a program that fails in the background of the page fails the step.
    #[test]
    fn both_brakes_must_report() {
        let first = "1001 messages\nlate: 36, most of it elsewhere\n";
        assert!(seen(first).unwrap_err().contains("1001 messages"));
        assert_eq!(seen(&format!("{first}1001 messages\n")), Ok(()));
    }

    /// Goal: the repository is as it was before, although the project is made below it. Method: a workspace that leaves out `target`, as
    /// ours does; cargo adds a new project to it all the same.
    #[test]
    fn the_project_is_not_added_to_the_repository() {
        let root = workspace::target("xtask").join("around");
        let (manifest, folder) = (root.join("Cargo.toml"), root.join("target/tutorial"));
        prepare(&folder).unwrap();
        let ours = "[workspace]\nmembers = []\nexclude = [\"target\"]\n";
        fs::write(&manifest, ours).unwrap();
        let new = Run::cargo(&["new", "--quiet", "--vcs", "none", "--lib", "late"]);
        new.within_folder(&folder).status().unwrap();
        assert!(folder.join("late/Cargo.toml").exists());
        assert_eq!(fs::read_to_string(&manifest).unwrap(), ours);
    }

    /// Goal: a reader who follows the tutorial ends with the example, byte by byte.
    #[test]
    fn the_tutorial_makes_the_example() {
        let example = workspace::root().join("examples/late");
        let parts = parts(PAGE);
        let files: Vec<_> = parts
            .iter()
            .filter_map(|part| if let Part::File(name, text) = part { Some((*name, *text)) } else { None })
            .collect();
        assert_eq!(files.len(), 4);
        for (name, text) in files {
            let there = std::fs::read_to_string(example.join(name)).unwrap_or_default();
            assert_eq!(there, text, "examples/late/{name} differs from docs/tutorial.md");
        }
    }
}
