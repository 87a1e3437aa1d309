//! A key in a file, as a fresh process finds one.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::endpoint::KeyLine;

/// A key in a file that nobody else may read; it goes with this value.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// A file with this key.
    pub(super) fn write(key: &KeyLine) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("punctual-peel-{}.keys", std::process::id()));
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        file.and_then(|mut file| file.write_all(key.text().as_bytes())).map_err(failed)?;
        Ok(Self { path })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _swept = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_reads_the_file_and_it_goes() {
        let file = KeyFile::write(&KeyLine::random()).expect("room");
        let mode = std::fs::metadata(file.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may read it");
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}
