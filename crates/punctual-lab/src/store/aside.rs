//! Files that are whole or not at all: written beside their place, flushed to the device, then renamed.

use std::fs::{self, File, Metadata};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use punctual_machine::memory::rename_to_free;

use super::{PARTIAL, StoreError};

/// Writers of one file at once, with those that were killed meanwhile; more are a loop, not users.
const WRITERS_MAX: u32 = 1000;

/// A file beside its place, under a name that no other writer has. Until it has its place it is removed with this.
#[derive(Debug)]
struct Aside {
    path: PathBuf,
    file: File,
    has_place: bool,
}

impl Aside {
    fn create(place: &Path) -> Result<Self> {
        for number in 1..=WRITERS_MAX {
            let mut path = place.as_os_str().to_owned();
            // A process of another namespace may have the same number.
            path.push(format!(".{}-{number}.{PARTIAL}", std::process::id()));
            let path = PathBuf::from(path);
            match File::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|file| Self { path, file, has_place: false }),
            }
        }
        Err(Error::from(ErrorKind::AlreadyExists))
    }

    fn hold(place: &Path, bytes: &[u8]) -> Result<Self> {
        let mut aside = Self::create(place)?;
        aside.file.write_all(bytes)?;
        Ok(aside)
    }

    /// Under a name that is free; `AlreadyExists` if it is not. File systems that cannot rename so can link.
    fn take_free(&mut self, place: &Path) -> Result<()> {
        match rename_to_free(&self.path, place) {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                fs::hard_link(&self.path, place)
            }
            renamed => {
                self.has_place = renamed.is_ok();
                renamed
            }
        }
    }

    /// On the device, then under its name.
    fn take(mut self, place: &Path) -> Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, place)?;
        self.has_place = true;
        Ok(())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.has_place {
            // The room it takes is needed more than its content; the error matters, not a second one.
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Whole or not at all under its own name, however many write it at once.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> std::result::Result<(), StoreError> {
    write_whole(path, bytes).map_err(|error| StoreError::from_io(path, error))
}

/// The same for a file of no store. A user who may read and write a file of that name may do so afterwards.
///
/// # Errors
/// The error of the system.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut aside = Aside::create(path)?;
    if let Ok(there) = fs::metadata(path) {
        keep_owner(&aside.file, &there);
        // After the owner: the kernel takes rights away from a file that gets another.
        aside.file.set_permissions(there.permissions())?;
    }
    aside.file.write_all(bytes)?;
    aside.take(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Owner and group of the file before it, as far as this process may give them: few but root may.
fn keep_owner(file: &File, before: &Metadata) {
    let group = Some(before.gid());
    let _own = fchown(file, Some(before.uid()), group).or_else(|_| fchown(file, None, group));
}

/// The same for a new file under the first of these names that is free. Files that have the others stay as they are.
///
/// # Errors
/// The error of the system.
pub fn write_new(folder: &Path, mut name: impl FnMut() -> String, bytes: &[u8]) -> Result<PathBuf> {
    let mut path = folder.join(name());
    let mut aside = Aside::hold(&path, bytes)?;
    aside.file.sync_all()?;
    loop {
        match aside.take_free(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => path = folder.join(name()),
            Err(error) => return Err(error),
            Ok(()) => return File::open(folder)?.sync_all().map(|()| path),
        }
    }
}

/// The same for several new files, those of one directory together: all of them, or none. Each directory is flushed once.
pub(super) fn write_all_durably(files: &[(PathBuf, Vec<u8>)]) -> std::result::Result<(), StoreError> {
    // All are written before the first is flushed: the device is asked once for most of them.
    let mut asides = Vec::with_capacity(files.len());
    for (path, bytes) in files {
        asides.push(Aside::hold(path, bytes).map_err(|error| StoreError::from_io(path, error))?);
    }
    let mut placed: Vec<&Path> = Vec::with_capacity(files.len());
    place_all(files, asides, &mut placed).inspect_err(|_| {
        // Their numbers are for the next try, and the room they take is needed more than a part of a trial.
        for path in placed {
            let _gone = fs::remove_file(path);
        }
    })
}

fn place_all<'a>(
    files: &'a [(PathBuf, Vec<u8>)],
    asides: Vec<Aside>,
    placed: &mut Vec<&'a Path>,
) -> std::result::Result<(), StoreError> {
    for ((path, _), aside) in files.iter().zip(asides) {
        aside.take(path).map_err(|error| StoreError::from_io(path, error))?;
        placed.push(path);
    }
    let mut parents: Vec<&Path> = files.iter().filter_map(|(path, _)| path.parent()).collect();
    parents.dedup();
    for parent in parents {
        let flushed = File::open(parent).and_then(|directory| directory.sync_all());
        flushed.map_err(|error| StoreError::from_io(parent, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the users who may read a file may read it as before when it was written anew.
    #[test]
    fn a_file_that_is_written_anew_keeps_its_rights() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("room");
        let page = folder.path().join("page.html");
        write_whole(&page, b"one").expect("room");
        for mode in [0o600, 0o640, 0o644] {
            fs::set_permissions(&page, fs::Permissions::from_mode(mode)).expect("it is ours");
            write_whole(&page, b"two").expect("room");
            assert_eq!(fs::metadata(&page).expect("it is there").permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
    }

    /// Goal: a user's file that root writes anew stays that user's.
    #[test]
    fn a_file_that_is_written_anew_keeps_its_owner() {
        const NOBODY: u32 = 65_534;
        let folder = tempfile::tempdir().expect("room");
        let page = folder.path().join("page.html");
        write_whole(&page, b"one").expect("room");
        if let Err(error) = std::os::unix::fs::chown(&page, Some(NOBODY), Some(NOBODY)) {
            return punctual_machine::skipped!("a file is given to another user: {error}; run as root");
        }
        write_whole(&page, b"two").expect("room");
        let there = fs::metadata(&page).expect("it is there");
        assert_eq!((there.uid(), there.gid()), (NOBODY, NOBODY));
    }

    /// Goal: a file that several write at once is always whole one of theirs, each of them succeeds, and nothing is left beside it.
    #[test]
    fn a_file_of_several_writers_is_one_of_theirs() {
        let folder = tempfile::tempdir().expect("room");
        let page = folder.path().join("page.html");
        let texts: Vec<Vec<u8>> = (b'a'..b'e').map(|letter| vec![letter; 100_000]).collect();
        std::thread::scope(|scope| {
            let page = &page;
            let write = move |text: &[u8]| (0..20).try_for_each(|_| write_whole(page, text));
            let threads: Vec<_> = texts.iter().map(|text| scope.spawn(move || write(text))).collect();
            for thread in threads {
                while !thread.is_finished() {
                    // Before the first one is done there is none.
                    let Ok(found) = fs::read(page) else { continue };
                    assert!(texts.contains(&found), "{} bytes of several", found.len());
                }
                thread.join().expect("no panic").expect("room");
            }
        });
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
    }

    /// Goal: a file that another process of the same number left is in nobody's way, and stays.
    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let folder = tempfile::tempdir().expect("room");
        let page = folder.path().join("page.html");
        let first = Aside::hold(&page, b"of another").expect("room");
        write_whole(&page, b"whole").expect("room");
        assert_eq!(fs::read(&first.path).expect("it is there"), b"of another");
        assert_eq!(fs::read(&page).expect("it is there"), b"whole");
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        let full = Path::new("/dev/full");
        let error = File::create(full).and_then(|mut file| file.write_all(b"anything"));
        let error = StoreError::from_io(full, error.expect_err("nothing fits there"));
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }
}
