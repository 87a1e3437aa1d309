//! A part of the kernel's trace on file, by itself: beside a log of late messages, of any process, or of another tool.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::trace::{Trace, check_span};
use crate::file::read_text;
use crate::store::{StoreError, checked_text, read_checked, write_text};
use crate::units::count;

const SCHEMA: &str = "punctual.trace.v1";

/// Largest file that is written or read, bytes: a few seconds of a busy host.
pub const SIZE_MAX: u64 = 256 << 20;

/// Files of one folder that are read: more than a watcher leaves there.
const FILES_MAX: usize = 10_000;

/// Ending of the name of a trace's file.
pub const ENDING: &str = "trace.json";

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFile {
    /// The program that it is about, or the file that it was made from.
    pub program: String,
    /// The log of late messages that it belongs to.
    pub log: Option<LogIdentity>,
    /// The span that it was taken for; the trace itself knows the time that it covers. Nanoseconds of `CLOCK_MONOTONIC`, or of the
    /// clock of another tool in a trace of that tool.
    pub span: (u64, u64),
    /// Trace of the kernel.
    pub trace: Trace,
}

/// A log, as its first line and its page have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogIdentity {
    /// The process.
    pub pid: u32,
    /// When the log was made, nanoseconds of `CLOCK_MONOTONIC`.
    pub made_ns: u64,
}

impl TraceFile {
    /// As it stands on file.
    pub fn text(&self) -> String {
        checked_text(SCHEMA, self)
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// The disk is full or fails, or it is too large to be read again.
    pub fn write(&self, path: &Path) -> Result<(), StoreError> {
        let text = self.text();
        if text.len() as u64 > SIZE_MAX {
            return Err(StoreError::TooLarge { path: path.to_owned() });
        }
        write_text(path, &text)
    }

    /// Reads a text of a file.
    ///
    /// # Errors
    /// It is no such file, of another version, or damaged.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Self = read_checked(SCHEMA, text)?;
        file.check().map(|()| file).map_err(str::to_owned)
    }

    /// Checks that it can be a trace: a file from outside was not necessarily recorded.
    fn check(&self) -> Result<(), &'static str> {
        check_span(self.span)?;
        self.trace.check()
    }

    /// True if a file begins as one does.
    pub fn is_at(path: &Path) -> bool {
        let begins = format!(r#"{{"schema":"{SCHEMA}""#);
        let mut first = vec![0; begins.len()];
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
        read.is_ok() && first == begins.as_bytes()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no such file.
    pub fn read(path: &Path) -> Result<Self, String> {
        read_text(path, SIZE_MAX).map_err(|error| error.to_string()).and_then(|text| Self::parse(&text))
    }
}

/// Where a watcher leaves traces for a log, if nobody says where.
pub fn beside(log: &Path) -> PathBuf {
    let mut folder = log.as_os_str().to_owned();
    folder.push(".traces");
    folder.into()
}

/// The traces for a log in a file or folder, and what could not be read there.
pub fn of_log(place: &Path, log: LogIdentity) -> (Vec<TraceFile>, Vec<String>) {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    let paths = if place.is_dir() { in_folder(place, FILES_MAX) } else { Ok((vec![place.to_owned()], 0)) };
    match paths {
        Ok((paths, left_out)) => {
            notes.extend(left_out_note(place, left_out));
            for path in paths {
                match TraceFile::read(&path) {
                    Ok(file) if file.log == Some(log) => found.push(file),
                    Ok(_) if place.is_dir() => {}
                    Ok(_) => notes.push(format!("{}: it is of another log", path.display())),
                    Err(reason) => notes.push(format!("{}: {reason}", path.display())),
                }
            }
        }
        Err(error) => notes.push(format!("{}: {error}", place.display())),
    }
    (found, notes)
}

fn left_out_note(folder: &Path, left_out: usize) -> Option<String> {
    let more = count(left_out as u64);
    (left_out > 0).then(|| format!("{}: {more} traces more are not read: move some away", folder.display()))
}

/// The first traces in a folder, by their names, and how many there are more.
fn in_folder(folder: &Path, most: usize) -> std::io::Result<(Vec<PathBuf>, usize)> {
    let entries = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| path.to_string_lossy().ends_with(ENDING);
    let mut paths: Vec<PathBuf> = entries.filter(is_one).collect();
    paths.sort();
    let left_out = paths.len().saturating_sub(most);
    paths.truncate(most);
    Ok((paths, left_out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::explain::account::account;
    use crate::explain::account::tests::{switch, wake};
    use crate::explain::trace::{CpuEvents, Leaving, TaskInfo};

    fn file() -> TraceFile {
        let events = vec![
            switch(50, 7, Leaving::Asleep, 9),
            wake(200, 7, 4, false),
            switch(600, 9, Leaving::Ready, 7),
        ];
        let cpu = CpuEvents { cpu: 0, since_ns: 10, until_ns: 1000, events, ..CpuEvents::default() };
        let task = TaskInfo { name: "hog".to_owned(), priority: 120, is_kernel: Some(false) };
        let trace = Trace { tasks: [(9, task)].into(), cpus: vec![cpu], ..Trace::default() };
        let log = Some(LogIdentity { pid: 7, made_ns: 11 });
        TraceFile { program: "radar".to_owned(), log, span: (50, 700), trace }
    }

    /// Goal: a trace comes back as it was; one of another log, or a damaged one, does not stand for it.
    #[test]
    fn a_trace_comes_back_for_its_log() {
        let place = tempfile::tempdir().expect("room");
        let path = place.path().join(format!("1.{ENDING}"));
        file().write(&path).expect("room");
        let log = LogIdentity { pid: 7, made_ns: 11 };
        assert_eq!(of_log(place.path(), log), (vec![file()], vec![]));
        assert_eq!(of_log(place.path(), LogIdentity { pid: 8, ..log }), (vec![], vec![]));
        let (none, notes) = of_log(&path, LogIdentity { made_ns: 12, ..log });
        assert!(none.is_empty() && notes[0].contains("another log"), "{notes:?}");
        let text = fs::read_to_string(&path).expect("a file").replace("hog", "dog");
        fs::write(&path, text).expect("room");
        let (none, notes) = of_log(place.path(), log);
        assert!(none.is_empty() && notes[0].contains("check value"), "{notes:?}");
    }

    /// Goal: of a folder with too many traces the first are read, and that others are not is said.
    #[test]
    fn traces_beyond_the_most_are_said() {
        let place = tempfile::tempdir().expect("room");
        for number in [3, 1, 2] {
            fs::write(place.path().join(format!("{number}.{ENDING}")), "").expect("room");
        }
        fs::write(place.path().join("other"), "").expect("room");
        let paths = |most| in_folder(place.path(), most).expect("a folder");
        let (read, left_out) = paths(2);
        assert_eq!(read, [1, 2].map(|number| place.path().join(format!("{number}.{ENDING}"))));
        assert_eq!((left_out, paths(3).1), (1, 0));
        let note = left_out_note(place.path(), 1_234).expect("a note");
        assert!(note.contains("1,234 traces more"), "{note}");
        assert_eq!(left_out_note(place.path(), 0), None);
    }

    /// Goal: a file that no recorder writes is refused, even where its check value is right.
    #[test]
    fn a_file_that_cannot_be_a_trace_is_refused() {
        let refused = |change: fn(&mut TraceFile)| {
            let mut file = file();
            change(&mut file);
            TraceFile::parse(&file.text()).expect_err("it cannot be")
        };
        assert!(refused(|file| file.trace.cpus[0].events.reverse()).contains("order of time"));
        assert!(refused(|file| file.trace.cpus[0].gaps.push((5, 4))).contains("gap"));
        assert!(refused(|file| file.span = (2, 1)).contains("span"));
        assert!(refused(|file| file.trace.cpus.extend_from_within(..)).contains("twice"));
        assert!(TraceFile::parse("{}\n{}\n").is_err() && TraceFile::parse("").is_err());
    }

    /// Goal: a part cut out of a trace says of its interval the same as the whole.
    #[test]
    fn a_part_says_what_the_whole_says() {
        let whole = file().trace;
        let part = whole.within((40, 700));
        assert_eq!(account(&part, 7, (100, 700)), account(&whole, 7, (100, 700)));
        assert_eq!(part.tasks, whole.tasks);
        assert!(whole.within((610, 700)).tasks.is_empty());
    }

    proptest! {
        /// Goal: bytes from outside are refused, or read. A trace that is read can be accounted for.
        #[test]
        fn no_bytes_make_it_panic(place in 0..2000_usize, with in any::<u8>(), numbers in any::<[u64; 6]>()) {
            let [a, b, c, d, e, f] = numbers;
            let mut wild = file();
            let cpu = &mut wild.trace.cpus[0];
            (cpu.since_ns, cpu.until_ns, cpu.gaps) = (a, b, vec![(c, d)]);
            cpu.events[2].0 = e;
            if let Ok(file) = TraceFile::parse(&wild.text()) {
                let (from, to) = (f.min(a), f.max(a));
                let _accounted = account(&file.trace, 7, (from, to));
                let _cut = account(&file.trace.within((from, to)), 7, (from, to));
            }
            let mut bytes = file().text().into_bytes();
            let place = place % bytes.len();
            bytes[place] = with;
            if let Ok(file) = TraceFile::parse(&String::from_utf8_lossy(&bytes)) {
                let _accounted = account(&file.trace, 7, file.span);
            }
        }
    }
}
