//! Questions that can be asked, and the commands that answer them: `punctual run` without an experiment, and `punctual` alone before it
//! does the first.

use super::print;
use crate::error::Failure;
use crate::report::parts::WORDS;
use crate::report::section::{Cell, Column, Section, Table};
use crate::report::text::{Screen, page};

/// Questions that can be asked, and the commands that answer them: with its heading and its words, the list fits a terminal of 24
/// lines.
const TASKS: [(&str, &str); 16] = [
    ("how fast is this machine, what should I use", "punctual survey (--quick: 15 s)"),
    ("who was late, at which stage, and why", "punctual run response, explain"),
    ("late messages of programs; stalls on purpose", "punctual watch, run causes"),
    ("what it costs to wake a sleeping reader", "punctual run wakeup"),
    ("what each layer between two programs adds", "punctual run peel"),
    ("how long one way takes, to another host too", "punctual run oneway"),
    ("vehicles that publish; that change groups", "punctual run vehicles, run groups"),
    ("threads against tasks in classes", "punctual run server"),
    ("one order for a group, with any message lost", "punctual run broadcast"),
    ("did it become faster, does a fix help", "punctual compare, punctual verify"),
    ("a run as a page or as text; sockperf's too", "punctual report, import sockperf"),
    ("record all messages of a bus, send them again", "punctual record, punctual replay"),
    ("what is open or lost, what limits this host", "punctual stat, punctual host"),
    ("the other end, for another host", "punctual echo, punctual node"),
    ("where a wake-up can be lost, in a model", "punctual sim wakeup"),
    ("completion for a shell, manual, options", "punctual completions, man, --help"),
];

/// Prints the list.
pub fn tasks() -> Result<(), Failure> {
    print(&page(&[section()], Screen::stdout()))
}

fn section() -> Section {
    let mut table = Table::new(vec![Column::prose(""), Column::name("")]);
    TASKS.iter().for_each(|&(question, answer)| table.row([question, answer].map(Cell::from)));
    Section::new("What do you want to know?").table(table).note(WORDS)
}
