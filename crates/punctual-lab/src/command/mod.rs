//! The action of each verb.

mod broadcast;
mod causes;
mod compare;
mod echo;
mod explain;
mod groups;
mod host;
mod import;
mod interleave;
mod kv;
mod manual;
mod measure;
mod oneway;
mod outside;
mod peel;
mod progress;
mod record;
mod replay;
mod report;
mod response;
mod run;
mod serve;
mod server;
mod sim;
mod stat;
mod survey;
mod tasks;
mod vehicles;
mod verify;
mod wakeup;
mod watch;

pub use broadcast::{BroadcastArguments, broadcast};
pub use causes::{CausesArguments, causes};
pub use compare::{CompareArguments, calibrate, compare};
pub use echo::{EchoArguments, echo};
pub use explain::{ExplainArguments, explain};
pub use groups::{GroupsArguments, groups};
pub use host::{HostArguments, host};
pub use import::{ImportArguments, import};
pub use manual::{CompletionsArguments, ManArguments, completions, man};
pub use measure::{Role, worker};
pub use oneway::{NodeArguments, OnewayArguments, node, oneway};
pub use peel::{PeelArguments, peel};
pub use record::{RecordArguments, record};
pub use replay::{ReplayArguments, replay};
pub use report::{ReportArguments, report};
pub use response::response;
pub use run::{RunArguments, RunCommand, run};
pub use server::{ServerArguments, server};
pub use sim::{SimArguments, sim};
pub use stat::{StatArguments, stat};
pub use survey::survey;
pub use tasks::tasks;
pub use vehicles::vehicles;
pub use verify::{VerifyArguments, verify};
pub use wakeup::{WakeupArguments, wakeup};
pub use watch::{WatchArguments, watch};

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::Failure;
use crate::file::{advice_to_write, make_folder};
use crate::store::write_whole;

/// Prints to standard output; a reader that went away ends the command quietly, as it does for others.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_if_read(text).map(drop)
}

/// The same for a caller that prints again and again: true as long as somebody reads it.
pub(crate) fn print_if_read(text: &str) -> Result<bool, Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Machine(format!("standard output: {error}"))),
        Ok(()) => Ok(true),
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Machine(format!("cannot write {}: {error}{}", path.display(), advice_to_write(error)))
}

/// Makes the directory that `--out` names, in one that is there.
fn make_out(path: &Path) -> Result<(), Failure> {
    let made = make_folder(path).map_err(|error| {
        let text = format!("--out {}: {error}", path.display());
        match error.kind() {
            ErrorKind::InvalidInput => Failure::Usage(text),
            _ => Failure::Machine(text + advice_to_write(&error)),
        }
    });
    made.map(drop)
}

/// Writes a page or an object whole or not at all: a reader meanwhile, or after a full disk, finds the one before.
fn write_page(path: &Path, text: &str) -> Result<(), Failure> {
    // The target of a link is written, and the link stays.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match std::fs::metadata(&target) {
        // A device or a pipe is no page that could be put aside.
        Ok(there) if !there.is_file() => write_file(path, text),
        there => match write_whole(&target, text.as_bytes()) {
            // It may be written, in a directory that may not; or it is mounted, and no other file can take its place.
            Err(error)
                if there.is_ok()
                    && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ResourceBusy) =>
            {
                write_file(path, text)
            }
            written => written.map_err(|error| cannot_write(path, &error)),
        },
    }
}

/// Refuses a `--json` that names the recording, which is there: the result would take its place.
fn refuse_json_over(json: Option<&Path>, recording: &Path) -> Result<(), Failure> {
    let place = |path: &Path| std::fs::canonicalize(path).ok();
    match json
        .filter(|&json| json != Path::new("-") && place(json).is_some_and(|at| Some(at) == place(recording)))
    {
        Some(json) => Err(Failure::Usage(format!(
            "--json {}: this is the recording, and would be written over: name another file",
            json.display()
        ))),
        None => Ok(()),
    }
}

/// Finds out now whether what `--json` names can be written, not after minutes of measuring. A file that stands there stays meanwhile.
fn try_json(json: Option<&Path>) -> Result<(), Failure> {
    let tried = json.filter(|file| *file != Path::new("-")).map(|file| {
        // Of a link: its target.
        let is_new = std::fs::metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let opened = OpenOptions::new().append(true).create(true).open(file);
        let remove = || std::fs::remove_file(std::fs::canonicalize(file)?);
        let left_out = opened.and_then(|_| if is_new { remove() } else { Ok(()) });
        left_out.map_err(|error| cannot_write(file, &error))
    });
    tried.unwrap_or(Ok(()))
}

/// Paths as JSON has them: a path may be of any bytes, and JSON is text.
fn as_text(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

/// Writes the output that `--json` asks for. Returns true if it goes to standard output, where nothing else is said then.
fn write_json(json: Option<&Path>, text: &str) -> Result<bool, Failure> {
    match json {
        Some(file) if file == Path::new("-") => print(text).map(|()| true),
        Some(file) => write_page(file, text).map(|()| false),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the result of a command is not written over the recording that it is of, however the two are named.
    #[test]
    fn a_result_is_not_written_over_its_recording() {
        let folder = tempfile::tempdir().expect("room");
        let at = |name: &str| folder.path().join(name);
        let is_refused = |json: &Path, recording: &Path| {
            matches!(refuse_json_over(Some(json), recording), Err(Failure::Usage(_)))
        };
        let around = folder.path().join("..").join(folder.path().file_name().expect("a name"));
        std::fs::write(at("a.mcap"), "recorded").expect("room");
        std::os::unix::fs::symlink("a.mcap", at("link")).expect("room");
        assert!(is_refused(&at("link"), &at("a.mcap")) && is_refused(&around.join("a.mcap"), &at("a.mcap")));
        for (json, recording) in [("b.json", "a.mcap"), ("b.json", "c.mcap"), ("nowhere/b.json", "a.mcap")] {
            assert!(!is_refused(&at(json), &at(recording)), "{json}, {recording}");
        }
        assert!(refuse_json_over(Some(Path::new("-")), &at("a.mcap")).is_ok());
    }

    /// Goal: the file that `--json` names keeps its text while something is measured, and is not made before there is something to
    /// write.
    #[test]
    fn to_try_a_file_changes_nothing() {
        let folder = tempfile::tempdir().expect("room");
        let [old, new] = ["old.json", "new.json"].map(|name| folder.path().join(name));
        std::fs::write(&old, "of yesterday").expect("room");
        for file in [&old, &new] {
            try_json(Some(file)).expect("it can be written");
        }
        assert_eq!(std::fs::read_to_string(&old).expect("it is there"), "of yesterday");
        assert!(!new.exists(), "a file without an object");
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(&new, &link).expect("room");
        try_json(Some(&link)).expect("it can be written");
        assert!(!new.exists(), "a file without an object behind a link");
        let nowhere = folder.path().join("missing").join("new.json");
        assert!(matches!(try_json(Some(&nowhere)), Err(Failure::Machine(_))));
        assert!(matches!(try_json(Some(folder.path())), Err(Failure::Machine(_))));
        let device = Path::new("/dev/null");
        try_json(Some(device)).expect("a device is never new");
        assert!(device.exists());
    }

    /// Goal: an object is written whole or not at all. Method: another name of the file before it keeps its text.
    #[test]
    fn an_object_takes_the_place_of_the_one_before() {
        let folder = tempfile::tempdir().expect("room");
        let [file, other] = ["file.json", "other.json"].map(|name| folder.path().join(name));
        std::fs::write(&file, "of yesterday").expect("room");
        std::fs::hard_link(&file, &other).expect("one disk");
        assert!(!write_json(Some(&file), "{}\n").expect("room"));
        let text = |path: &Path| std::fs::read_to_string(path).expect("it is there");
        assert_eq!((text(&file), text(&other)), ("{}\n".to_owned(), "of yesterday".to_owned()));
    }
}
