//! Pages of counters that other processes of this user find and read, without disturbing who counts: of nodes, runtimes, members of groups and logs.

use std::ffi::{CString, OsString};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_machine::SystemError;
use punctual_machine::clock::{Clock, Ticks};
use punctual_machine::counter::Counter;
use punctual_machine::life::{self, Life, LifeLock};
use punctual_machine::memory::{Access, MappedSlice, Mapping};
use punctual_machine::process::{Maker, ProcessIdentity, random, user};
use punctual_proto::Nanos;
use punctual_proto::limits::NAME_SIZE_MAX;

/// Pages of which who makes one asks whether their maker lives. Each costs opening a file. On a host with more, the others are for
/// those who make pages later: each maker leaves one behind at most.
const SWEPT_MAX: usize = 8;

/// Number of times that the folder may vanish under a process that enters it: the last one out removes it.
const FOLDER_TRIES_MAX: u32 = 10;

/// Words of eight bytes at the beginning of each page.
const IDENTITY_WORDS: usize = 16;

/// Of what a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    Node,
    Runtime,
    /// A member of a group.
    Group,
    /// A log of late messages.
    Late,
}

impl PageKind {
    /// Its first two words: its kind, and its version.
    pub(crate) const fn words(self) -> [u64; 2] {
        match self {
            Self::Node => [u64::from_le_bytes(*b"PUNCOUNT"), 2],
            Self::Runtime => [u64::from_le_bytes(*b"PUNRUNTM"), 3],
            Self::Group => [u64::from_le_bytes(*b"PUNGROUP"), 1],
            Self::Late => [u64::from_le_bytes(*b"PUNLATEM"), 1],
        }
    }

    /// Ending of its file's name.
    const fn ending(self) -> &'static str {
        match self {
            Self::Node => "counters",
            Self::Runtime => "runtime",
            Self::Group => "group",
            Self::Late => "late",
        }
    }

    /// True if these words are those of such a page.
    pub(crate) fn is_of(self, words: &[Counter]) -> bool {
        let [magic, version] = self.words();
        words.len() >= IDENTITY_WORDS && words[0].get_published() == magic && words[1].get() == version
    }
}

/// A page of our own.
#[derive(Debug)]
pub(crate) struct Counters {
    words: MappedSlice<Counter>,
    /// Its file, and what says that we live.
    file: Option<(PathBuf, LifeLock)>,
    maker: Maker,
}

impl Counters {
    /// A page that other processes find, or a private one where there is no memory file system. `name` is the first part of its
    /// file's; `fill` writes what readers need to know of it.
    pub(crate) fn create(
        kind: PageKind,
        name: &str,
        size: usize,
        fill: impl Fn(&[Counter]),
    ) -> Result<Self, SystemError> {
        let folder = folder();
        punctual_machine::label!("page.sweep");
        sweep(&folder, kind);
        let fill = |words: &[Counter]| {
            punctual_machine::label!("page.fill");
            let ([magic, version], process) = (kind.words(), ProcessIdentity::of_self());
            words[1].set(version);
            words[3].set(process.pid.into());
            words[5].set(process.namespace);
            fill(words);
            punctual_machine::label!("page.magic");
            words[0].publish(magic);
            punctual_machine::label!("page.magic.done");
        };
        for _ in 0..FOLDER_TRIES_MAX {
            if let Some(page) = Self::publish(&folder, &format!("{name}.{}", kind.ending()), size, &fill) {
                return Ok(page);
            }
        }
        let page = Self::of(Mapping::anonymous(size)?).expect("as large as it was made");
        fill(&page);
        Ok(page)
    }

    /// A page in the folder, which gets its name when it is whole: of one that its writer dies over nothing is left.
    fn publish(folder: &Path, file_name: &str, size: usize, fill: &impl Fn(&[Counter])) -> Option<Self> {
        make_folder(folder)?;
        let path = folder.join(file_name);
        punctual_machine::label!("page.create");
        let (memory, unnamed) = Mapping::create_unnamed(folder, size, 0o600).ok()?;
        fill(&Self::of(memory)?);
        let lock = unnamed.publish(&path).ok()?;
        // Without descriptors for it the page stays until the next sweep.
        let mut page = Self::of(Mapping::open(&path, Access::ReadWrite).ok()?)?;
        page.words.mapping().populate(0, size);
        page.file = Some((path, lock));
        Some(page)
    }

    fn of(memory: Mapping) -> Option<Self> {
        Some(Self { words: all_words(memory)?, file: None, maker: Maker::this_process() })
    }
}

impl Deref for Counters {
    type Target = [Counter];

    #[inline]
    fn deref(&self) -> &[Counter] {
        &self.words
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.file
            && self.maker.is_this_process()
        {
            punctual_machine::label!("page.remove");
            let _swept_meanwhile = std::fs::remove_file(path);
            punctual_machine::label!("page.folder");
            let _others_there = std::fs::remove_dir(folder());
            punctual_machine::label!("page.folder.done");
        }
    }
}

fn all_words(memory: Mapping) -> Option<MappedSlice<Counter>> {
    let count = memory.size() / 8;
    MappedSlice::new(&Arc::new(memory), 0, count)
}

/// The pages of this kind whose makers live, for reading only.
pub(crate) fn read_all(kind: PageKind) -> Vec<MappedSlice<Counter>> {
    lives(&folder(), kind, usize::MAX)
        .into_iter()
        .filter(|&(_, life)| life != Life::Ended)
        .filter_map(|(path, _)| read(&path, kind))
        .collect()
}

/// The same of every user of this host whose pages we may read, with their files, users and groups, but for those that are `known`.
pub(crate) fn find_all(
    kind: PageKind,
    known: impl Fn(&Path) -> bool,
) -> Vec<(PathBuf, [u32; 2], MappedSlice<Counter>)> {
    let mut found = Vec::new();
    for (folder, user) in folders() {
        for (path, life) in lives(&folder, kind, usize::MAX) {
            if life != Life::Ended
                && !known(&path)
                && let Some(words) = read(&path, kind)
            {
                found.push((path, user, words));
            }
        }
    }
    found
}

/// The folders of all users: each belongs to the one in its name.
fn folders() -> Vec<(PathBuf, [u32; 2])> {
    use std::os::unix::fs::MetadataExt;
    let own = folder();
    let (Some(parent), Some(stem)) = (own.parent(), own.file_stem()) else { return Vec::new() };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let of_user = |path: PathBuf| {
        let found = std::fs::symlink_metadata(&path).ok()?;
        let is_named =
            path.file_stem() == Some(stem) && path.extension()?.to_str()? == found.uid().to_string();
        (found.is_dir() && (is_named || path == own)).then(|| (path, [found.uid(), found.gid()]))
    };
    entries.filter_map(|entry| of_user(entry.path())).collect()
}

fn read(path: &Path, kind: PageKind) -> Option<MappedSlice<Counter>> {
    all_words(Mapping::open(path, Access::Read).ok()?).filter(|words| kind.is_of(words))
}

/// Files in a folder that have the name of a page, with what is known of their makers. Of at most so many: anyone of them first.
fn lives(folder: &Path, kind: PageKind, count_max: usize) -> Vec<(PathBuf, Life)> {
    let (Ok(entries), Ok(opened)) = (std::fs::read_dir(folder), std::fs::File::open(folder)) else {
        return Vec::new();
    };
    let ending = format!(".{}", kind.ending());
    let is_page = |name: &OsString| name.as_bytes().ends_with(ending.as_bytes());
    let mut names: Vec<OsString> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name())).filter(is_page).collect();
    if names.len() > count_max {
        let first = (random() % names.len() as u64) as usize;
        names.rotate_left(first);
        names.truncate(count_max);
    }
    let look = |name: OsString| {
        let life = life::look(opened.as_fd(), &CString::new(name.as_bytes()).ok()?);
        Some((folder.join(name), life))
    };
    names.into_iter().filter_map(look).collect()
}

/// Removes the pages of the dead.
fn sweep(folder: &Path, kind: PageKind) {
    for (path, life) in lives(folder, kind, SWEPT_MAX) {
        if life == Life::Ended && read(&path, kind).is_some() {
            punctual_machine::label!("page.dead");
            let _somebody_else_did = std::fs::remove_file(path);
            punctual_machine::label!("page.dead.done");
        }
    }
}

/// The process that made a page, if what stands there can be one.
pub(crate) fn process_of(words: &[Counter]) -> Option<ProcessIdentity> {
    Some(ProcessIdentity { pid: u32::try_from(words[3].get()).ok()?, namespace: words[5].get() })
}

/// A name as four words, cut to what they hold, with zeros behind it.
pub(crate) fn name_words(name: &str) -> [u64; NAME_SIZE_MAX / 8] {
    let mut words = [0; NAME_SIZE_MAX / 8];
    words.iter_mut().zip(name.as_bytes().chunks(8)).for_each(|(word, part)| *word = word_of(part));
    words
}

/// Up to eight bytes as a word, with zeros behind them.
fn word_of(part: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..part.len()].copy_from_slice(part);
    u64::from_le_bytes(bytes)
}

/// Writes a name into four words, cut to what they hold.
pub(crate) fn write_name(words: &[Counter], name: &str) {
    words.iter().zip(name_words(name)).for_each(|(word, part)| word.publish(part));
}

/// Writes a text into as many words as there are. A mark stands where it was cut: else the rest would seem to be all.
pub(crate) fn write_text<'a>(words: impl Iterator<Item = &'a Counter> + Clone, text: &str) {
    let text = cut_to(text, 8 * words.clone().count());
    let mut parts = text.as_bytes().chunks(8);
    words.for_each(|word| word.publish(word_of(parts.next().unwrap_or_default())));
}

/// The text in so many bytes, with a mark at its end if it is longer.
fn cut_to(text: &str, size: usize) -> String {
    const MARK: char = '…';
    if text.len() <= size {
        return text.to_owned();
    }
    let is_end = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=size.saturating_sub(MARK.len_utf8())).rev().find(is_end).unwrap_or(0);
    format!("{}{MARK}", &text[..end])
}

/// The name, or the text, in these words.
pub(crate) fn read_name<'a>(words: impl IntoIterator<Item = &'a Counter>) -> String {
    let bytes: Vec<u8> = words.into_iter().flat_map(|word| word.get_published().to_le_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    // Text from a page goes to a terminal: nothing in it may move the cursor.
    String::from_utf8_lossy(&bytes[..end])
        .chars()
        .map(|char| if char.is_control() { '?' } else { char })
        .collect()
}

/// Writes words that belong together. `version` is odd meanwhile; one thread at a time does this. Each word is published, as it
/// must not be seen before the odd version is.
#[inline]
pub(crate) fn write_whole(version: &Counter, write: impl FnOnce()) {
    version.publish(version.get() + 1);
    write();
    version.publish(version.get() + 1);
}

/// Result of `read` on these words, each read as published; `None` if they were never written, or were written meanwhile.
pub(crate) fn read_whole<T>(version: &Counter, read: impl FnOnce() -> T) -> Option<T> {
    let before = version.get_published();
    let words = read();
    let is_whole = before != 0 && before.is_multiple_of(2) && version.get_published() == before;
    is_whole.then_some(words)
}

/// The time since an instant of the clock of that domain; 0 where ours is another.
pub(crate) fn time_since(instant: Ticks, domain: u64) -> Nanos {
    let clock = Clock::get();
    if domain != u64::from(clock.domain()) {
        return Nanos(0);
    }
    Nanos(clock.nanos(clock.now().since(instant)))
}

fn folder() -> PathBuf {
    // The sweepers of everybody else on this host would leave nothing to die over.
    #[cfg(labelled_stores)]
    if let Some(folder) = std::env::var_os("PUNCTUAL_COUNTERS") {
        return folder.into();
    }
    PathBuf::from(format!("/dev/shm/punctual-counters.{}", user()))
}

fn make_folder(folder: &Path) -> Option<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    punctual_machine::label!("page.folder.make");
    let _exists = std::fs::DirBuilder::new().mode(0o700).create(folder);
    let found = std::fs::symlink_metadata(folder).ok()?;
    (found.is_dir() && found.uid() == user()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a text that does not fit says so, and is cut between two characters.
    #[test]
    fn a_text_that_is_cut_has_a_mark() {
        let words: [Counter; 2] = std::array::from_fn(|_| Counter::default());
        for (text, expected) in [
            ("shared:car", "shared:car"),
            ("sixteen bytes in", "sixteen bytes in"),
            ("sixteen bytes, or", "sixteen bytes…"),
            ("two at its end: éé", "two at its en…"),
            ("two at its eé: é", "two at its e…"),
            ("one", "one"),
        ] {
            write_text(words.iter(), text);
            assert_eq!(read_name(&words), expected);
        }
    }

    /// Goal: words that are being written, or were never, are not read as if they belonged together.
    #[test]
    fn words_are_read_whole_or_not_at_all() {
        let (version, word) = (Counter::default(), Counter::default());
        let read = || read_whole(&version, || word.get_published());
        assert_eq!(read(), None, "never written");
        write_whole(&version, || {
            word.publish(7);
            assert_eq!(read(), None, "being written");
        });
        assert_eq!(read(), Some(7));
        let overtaken = read_whole(&version, || write_whole(&version, || word.publish(8)));
        assert_eq!(overtaken, None, "written meanwhile");
    }
}
