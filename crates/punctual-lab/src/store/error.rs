//! Why the store could not do what it was asked. Every variant asks for a different reaction.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why the store could not be written or read.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are the path concerned and what was found there")]
pub enum StoreError {
    /// No room. Trials stored before stay readable.
    Full { path: PathBuf },
    /// More than this process may write into a file.
    TooLarge { path: PathBuf },
    /// Writing is not allowed there.
    Forbidden { path: PathBuf },
    /// Nobody may write there, and no right changes that.
    ReadOnly { path: PathBuf },
    /// It is there and cannot be read.
    Unread { path: PathBuf, error: io::Error },
    /// The directory already holds something; a run is never mixed with another.
    Occupied { path: PathBuf },
    /// It is to be a directory and is a file, or the directory that it is to be in is not there.
    NoPlace { path: PathBuf, error: io::Error },
    /// Nothing has that path.
    Absent { path: PathBuf },
    /// There is no `run.json`; in a directory of runs there is one below.
    NotARun { path: PathBuf, below: Option<PathBuf> },
    /// Written by a version whose files this one does not know.
    UnknownVersion { path: PathBuf, found: String },
    /// The file is not what it should be.
    Damaged { path: PathBuf, reason: String },
    /// The device or the file system failed.
    Device { path: PathBuf, error: io::Error },
}

impl StoreError {
    /// The file or directory concerned.
    fn path(&self) -> &Path {
        match self {
            Self::Full { path }
            | Self::TooLarge { path }
            | Self::Forbidden { path }
            | Self::ReadOnly { path }
            | Self::Unread { path, .. }
            | Self::Occupied { path }
            | Self::NoPlace { path, .. }
            | Self::Absent { path }
            | Self::NotARun { path, .. }
            | Self::UnknownVersion { path, .. }
            | Self::Damaged { path, .. }
            | Self::Device { path, .. } => path,
        }
    }

    /// The error has its advice, as those of `file` have.
    pub(crate) fn unread(path: &Path, error: io::Error) -> Self {
        Self::Unread { path: path.to_owned(), error }
    }

    pub(crate) fn from_io(path: &Path, error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let path = path.to_owned();
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => Self::Full { path },
            Kind::FileTooLarge => Self::TooLarge { path },
            Kind::PermissionDenied => Self::Forbidden { path },
            Kind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::Device { path, error },
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            Self::Full { .. } => {
                write!(f, "no room for {path}: free some, or choose another disk with --out")
            }
            Self::TooLarge { .. } => {
                write!(
                    f,
                    "{path} is larger than this process may write: raise the limit of file sizes (ulimit -f), take fewer messages with \
                     --count, or a file system without such a limit with --out"
                )
            }
            Self::Forbidden { .. } => {
                write!(f, "no permission for {path}: choose another directory with --out")
            }
            Self::ReadOnly { .. } => {
                write!(f, "the file system of {path} is read-only: choose a directory of another with --out")
            }
            Self::Occupied { .. } => write!(f, "{path} is not empty: choose a new directory with --out"),
            Self::NoPlace { error, .. } => write!(f, "--out {path}: {error}"),
            Self::Absent { .. } => {
                write!(
                    f,
                    "{path}: no such file or directory: name the directory of a run, such as runs/TIME-EXPERIMENT"
                )
            }
            Self::NotARun { below: Some(below), .. } => {
                write!(f, "{path} is not a run but holds some: name one, such as {}", below.display())
            }
            Self::NotARun { below: None, .. } => {
                write!(
                    f,
                    "{path} is not a run (no run.json): name the directory of one, such as runs/TIME-EXPERIMENT"
                )
            }
            Self::Unread { error, .. } => write!(f, "cannot read {path}: {error}"),
            Self::UnknownVersion { found, .. } => {
                write!(f, "{path} is of version `{found}`, unknown here: read it with a newer punctual")
            }
            Self::Damaged { reason, .. } => {
                write!(f, "{path} is damaged ({reason}): remove it and measure again")
            }
            Self::Device { error, .. } => {
                write!(f, "{path} failed: {error}; check the disk, or choose another with --out")
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device { error, .. } | Self::NoPlace { error, .. } | Self::Unread { error, .. } => {
                Some(error)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::advised;

    /// Goal: a file system that is read-only is no question of rights, and is called what it is.
    #[test]
    fn read_only_is_not_forbidden() {
        let said = |kind: io::ErrorKind| StoreError::from_io(Path::new("runs"), kind.into()).to_string();
        assert!(said(io::ErrorKind::ReadOnlyFilesystem).contains("of runs is read-only"));
        assert!(said(io::ErrorKind::PermissionDenied).contains("no permission for runs"));
    }

    /// Goal: a user who may not read a file is told once what to do.
    #[test]
    fn advice_is_given_once() {
        let error = advised(io::ErrorKind::PermissionDenied.into());
        let said = StoreError::unread(Path::new("run.json"), error).to_string();
        assert_eq!(said.matches("ask its owner").count(), 1, "{said}");
    }
}
