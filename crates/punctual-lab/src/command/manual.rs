//! `punctual completions` and `punctual man`: text for shells and manuals, made from the same description as the options.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{make_out, print, write_file};
use crate::error::Failure;

/// Choice of the shell.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Where to.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// Write a page for each verb into this directory; without, the first page goes to standard output
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Prints the script.
pub fn completions(arguments: &CompletionsArguments, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "punctual", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes the pages.
pub fn man(arguments: &ManArguments, mut command: Command) -> Result<(), Failure> {
    command.build();
    let Some(directory) = &arguments.out else { return print(&page(&command)) };
    make_out(directory)?;
    write_pages(&command, directory)
}

/// Of the command, and of each verb below it.
fn write_pages(command: &Command, directory: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    write_file(&directory.join(format!("{name}.1")), &page(command))?;
    let mut verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set());
    verbs.try_for_each(|verb| write_pages(verb, directory))
}

fn page(command: &Command) -> String {
    let mut roff = Vec::new();
    let rendered = Man::new(command.clone()).render(&mut roff);
    debug_assert!(rendered.is_ok(), "writing into memory");
    String::from_utf8_lossy(&roff).into_owned()
}
