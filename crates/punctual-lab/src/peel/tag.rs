//! The first tag: keys read from a file, made ready, and a frame sealed; as a node does it, but each step to be timed.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use punctual_proto::frame::HEADER_SIZE;
use punctual_proto::seal::{SEAL_SIZE, Sealer, parse_keys};

use crate::vehicles::keys::KeyLine;
use crate::vehicles::option::VALUE_SIZE;

/// A key in a file that nobody else may read; it goes with this value.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// A file with a key of its own.
    ///
    /// # Errors
    /// In words for people.
    pub(super) fn write() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("punctual-peel-{}.keys", std::process::id()));
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        file.and_then(|mut file| file.write_all(KeyLine::random().text().as_bytes())).map_err(failed)?;
        Ok(Self { path })
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _swept = std::fs::remove_file(&self.path);
    }
}

/// A sealer that is ready, and a frame for it.
#[derive(Debug)]
pub(super) struct FirstTag {
    sealer: Sealer,
    frame: Vec<u8>,
    number: u64,
}

impl FirstTag {
    /// Reads the keys, and makes the first ready.
    ///
    /// # Errors
    /// In words for people: there was no key.
    pub(super) fn prepare(file: &KeyFile) -> Result<Self, String> {
        let text = std::fs::read_to_string(&file.path).map_err(|error| error.to_string())?;
        let keys = parse_keys(&text).map_err(|error| error.to_string())?;
        let key = keys.first().ok_or("a key file without keys")?;
        let frame = vec![0; HEADER_SIZE + VALUE_SIZE + SEAL_SIZE];
        Ok(Self { sealer: Sealer::new(key), frame, number: 0 })
    }

    /// Seals a frame with this payload.
    pub(super) fn compute(&mut self, payload: &[u8]) {
        self.frame[HEADER_SIZE..HEADER_SIZE + payload.len()].copy_from_slice(payload);
        self.number += 1;
        self.sealer.seal(&mut self.frame, self.number);
        std::hint::black_box(&self.frame);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tags_differ_from_message_to_message_and_the_file_goes() {
        let file = KeyFile::write().expect("room");
        let mode = std::fs::metadata(&file.path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may read it");
        let mut tag = FirstTag::prepare(&file).expect("a key");
        tag.compute(&[1; VALUE_SIZE]);
        let first = tag.frame.clone();
        tag.compute(&[1; VALUE_SIZE]);
        assert_ne!(first, tag.frame);
        let path = file.path.clone();
        drop(file);
        assert!(!path.exists());
    }
}
