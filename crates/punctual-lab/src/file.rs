//! Files and folders that a user names. Never more is read than expected, regardless of the size that a file claims, and no misspelled
//! path is made.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};

/// Where a path leads, by the one name that it has. A path that cannot be found keeps its own name.
pub fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// A folder that a user names, made if only its last part is missing. Says whether it was made.
///
/// # Errors
/// In words: the folder that it is to be in is not there, it is a file, or it cannot be made.
pub fn make_folder(path: &Path) -> Result<bool> {
    let off = |text: String| Err(Error::new(ErrorKind::InvalidInput, text));
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match (std::fs::create_dir(path), parent) {
        (Err(_), _) if path.is_dir() => Ok(false),
        (Err(_), _) if path.exists() => off("it is a file, where a directory is needed".to_owned()),
        (Err(_), Some(parent)) if !parent.is_dir() => {
            off(format!("there is no directory {} that it could be in", parent.display()))
        }
        (made, _) => made.map(|()| true),
    }
}

/// Advice to a user who named a file that cannot be written, behind the error.
pub fn advice_to_write(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::FileTooLarge => "; raise the limit (ulimit -f)",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some room",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "; name a place that you may write to",
        ErrorKind::NotFound => "; the directory that it is to be in must be there",
        _ => "",
    }
}

/// Opens a file that a user named; its error has advice.
///
/// # Errors
/// It is not there, or may not be read.
pub fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(advised)
}

/// The error of a file or folder that cannot be read, with advice in its text.
pub fn advised(error: Error) -> Error {
    let advice = match error.kind() {
        ErrorKind::NotFound => "; name a file that is there",
        ErrorKind::PermissionDenied => "; ask its owner for the right, or for a copy",
        _ => return error,
    };
    Error::new(error.kind(), format!("{error}{advice}"))
}

/// All of a file of at most `size_max` bytes.
///
/// # Errors
/// It cannot be read, or is larger.
pub fn read(path: &Path, size_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A device or a pipe has no size before it is read.
    open(path)?.take(size_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > size_max {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("larger than {size_max} bytes, which are the most"),
        ));
    }
    Ok(bytes)
}

/// The same, for text.
///
/// # Errors
/// As for [`read`], or it is no UTF-8.
pub fn read_text(path: &Path, size_max: u64) -> Result<String> {
    String::from_utf8(read(path, size_max)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let file = tempfile::NamedTempFile::new().expect("room");
        std::fs::write(file.path(), "four").expect("room");
        assert_eq!(read_text(file.path(), 4).expect("it fits"), "four");
        for endless in [file.path(), Path::new("/dev/zero")] {
            let error = read(endless, 3).expect_err("it does not fit");
            assert!(error.to_string().contains("larger than 3 bytes"), "{error}");
        }
    }
}
