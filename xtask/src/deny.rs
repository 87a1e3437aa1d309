//! Licences and banned dependencies, where `cargo-deny` is installed.

use crate::command::Run;
use crate::step::Outcome;
use crate::workspace;

pub(crate) fn run() -> Outcome {
    let log = workspace::target("xtask").join("deny.txt");
    let found = Run::cargo(&["deny", "--version"]).all_output_to(&log);
    if !matches!(found, Ok((Some(0), _))) {
        return Outcome::Skipped("no cargo-deny here: `cargo install cargo-deny --locked`".into());
    }
    Outcome::of(Run::cargo(&["deny", "--workspace", "check", "licenses", "bans", "sources"]).status())
}
