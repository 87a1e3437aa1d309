//! Keys that a user holds, and how one node uses them.
//!
//! For what a seal promises, and what not, see `docs/sealing.md`. A bus becomes a sealed one by [`crate::Bus::sealed`].

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::clock::{monotonic_ns, realtime_coarse_ns, realtime_ns};
use punctual_machine::counter::Counter;
use punctual_machine::process::{fill_with_secrets, user};
use punctual_proto::limits::{SEAL_ALLOWANCE_NS, SEAL_OVERLAP_NS};
use punctual_proto::seal::{KEY_SIZE, KeyRing, Moment, parse_keys};
use zeroize::{Zeroize, Zeroizing};

mod node;

pub(crate) use node::{NodeOpener, NodeSealer, Seals};
pub use punctual_proto::seal::{GroupKey, Key, KeyError, KeyId, Refusal, RingKey};

/// Largest file of keys, bytes: several times what a full ring takes.
const FILE_SIZE_MAX: u64 = 1 << 16;

/// Why there are no keys. Each says in one line what to do; none repeats any of a key.
#[derive(Debug)]
pub enum KeysError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Others than its owner may read or change the file.
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is somebody else's, or none.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// There is no such variable, or it is no text.
    NotSet {
        /// Its name.
        variable: String,
    },
    /// The text that was read is no key.
    Invalid {
        /// The file or the variable.
        source: String,
        /// Why.
        error: KeyError,
    },
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => {
                let advice = match error.kind() {
                    ErrorKind::NotFound => "; name a file that is there",
                    ErrorKind::PermissionDenied => "; keys are read from one's own file only",
                    _ => "",
                };
                write!(f, "{}: {error}{advice}", path.display())
            }
            Self::Exposed { path, mode } => {
                let path = path.display();
                write!(f, "{path}: others may read or change these keys (mode {mode:03o}): chmod 600 {path}")
            }
            Self::Foreign { path } => {
                write!(
                    f,
                    "{}: not a file of this user: keys are read from one's own file only",
                    path.display()
                )
            }
            Self::NotSet { variable } => {
                write!(f, "{variable}: not set: put GROUP GENERATION KEY into this variable")
            }
            Self::Invalid { source, error } => write!(f, "{source}: {error}"),
        }
    }
}

impl std::error::Error for KeysError {}

/// The keys of one or several groups. Clones are the same keys: a key added through one is known to every node that was opened with
/// another, from its next frame on.
#[derive(Clone)]
pub struct Keys {
    shared: Arc<Shared>,
    allowance_ns: u64,
    local: bool,
}

struct Shared {
    ring: Mutex<KeyRing>,
    /// Changes whenever the ring does.
    version: Counter,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.ids().iter().map(ToString::to_string).collect();
        f.debug_tuple("Keys").field(&ids).finish()
    }
}

impl Default for Keys {
    fn default() -> Self {
        let ring = Mutex::new(KeyRing::new(SEAL_OVERLAP_NS));
        let shared = Arc::new(Shared { ring, version: Counter::default() });
        Self { shared, allowance_ns: SEAL_ALLOWANCE_NS, local: false }
    }
}

impl Keys {
    /// No keys yet. Nothing can be sent before one is inserted.
    pub fn new() -> Self {
        Self::default()
    }

    /// A random key for a group, generation 1, for processes that inherit it or threads that share it.
    pub fn random(group: u32) -> Self {
        let keys = Self::new();
        let key = loop {
            if let Some(key) = random_key() {
                break key;
            }
        };
        let id = KeyId { group, life: 0, generation: 1 };
        keys.insert(RingKey { id, key, from_ns: 0 }).expect("the first key of an empty ring");
        keys
    }

    /// Keys from text: a line for each, `GROUP GENERATION KEY [FROM]`, see [`punctual_proto::seal::parse_keys`].
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let keys = Self::new();
        for key in parse_keys(text)? {
            keys.insert(key)?;
        }
        Ok(keys)
    }

    /// Keys from a file of this user that nobody else may read or change. Format as [`Self::parse`].
    ///
    /// # Errors
    /// See [`KeysError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, KeysError> {
        let path = path.as_ref();
        let text = read_private(path)?;
        let invalid = |error| KeysError::Invalid { source: path.display().to_string(), error };
        let text = str::from_utf8(&text).map_err(|_| invalid(KeyError::None))?;
        Self::parse(text).map_err(invalid)
    }

    /// Keys from a variable of the environment. Format as [`Self::parse`]. Children inherit the environment, and
    /// processes of the same user can read it: a file is better.
    ///
    /// # Errors
    /// See [`KeysError`].
    pub fn from_env(variable: &str) -> Result<Self, KeysError> {
        let text = std::env::var(variable).map(Zeroizing::new);
        let text = text.map_err(|_| KeysError::NotSet { variable: variable.to_owned() })?;
        Self::parse(&text).map_err(|error| KeysError::Invalid { source: variable.to_owned(), error })
    }

    /// For how long a key is accepted after its successor began to seal; 10 s by default. Messages that are longer under way are lost
    /// at a renewal; a node that has only the old key can speak for that long. Holds for all clones, which have these keys, too.
    #[must_use]
    pub fn overlap(self, overlap: Duration) -> Self {
        let overlap_ns = u64::try_from(overlap.as_nanos()).unwrap_or(u64::MAX);
        self.change(|ring| ring.set_overlap(overlap_ns));
        self
    }

    /// Largest difference that the clocks of two hosts may have; 2 s by default. Frames that were sealed within that time before a node
    /// opened can be shown to it once more.
    #[must_use]
    pub fn allowance(mut self, allowance: Duration) -> Self {
        self.allowance_ns = u64::try_from(allowance.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// On UDP and Ethernet, also seals what communicators of one node send each other. Without this they pay no tag: it is memory of
    /// one process. On buses of memory every message is sealed.
    #[must_use]
    pub fn also_local(mut self) -> Self {
        self.local = true;
        self
    }

    /// A ring of its own with the same keys: a key added to one is not in the other.
    #[must_use]
    pub fn copied(&self) -> Self {
        let ring = Mutex::new(self.ring().clone());
        let shared = Arc::new(Shared { ring, version: Counter::default() });
        Self { shared, ..*self }
    }

    /// Adds a key: accepted at once, and used for sealing from its time on if its generation is the newest. To renew a key
    /// without losing anything, insert the new one everywhere with a time to come.
    ///
    /// # Errors
    /// [`KeyError::Taken`], [`KeyError::TooMany`].
    pub fn insert(&self, key: RingKey) -> Result<(), KeyError> {
        self.change(|ring| ring.insert(key, moment(realtime_ns())))
    }

    /// Adds a key that a group's leader made.
    pub(crate) fn insert_of_group(&self, key: GroupKey) -> Result<(), KeyError> {
        self.change(|ring| ring.insert_of_group(key, moment(realtime_ns())))
    }

    /// Keys of groups that were forgotten before their overlap had passed, because a full ring needed room.
    pub fn cut_short(&self) -> u64 {
        self.ring().cut_short()
    }

    /// From now on this group's keys seal. `false`, and nothing changes, if there is none of it.
    pub fn seal_in(&self, group: u32) -> bool {
        self.change(|ring| ring.set_home(group))
    }

    /// Forgets a key at once.
    pub fn remove(&self, id: KeyId) {
        self.change(|ring| ring.remove(id));
    }

    /// Forgets all keys of a group at once.
    pub fn remove_group(&self, group: u32) {
        self.change(|ring| ring.remove_group(group));
    }

    /// Names of the accepted keys.
    pub fn ids(&self) -> Vec<KeyId> {
        self.ring().accepted().map(|key| key.id).collect()
    }

    /// Name of the key that seals now.
    pub fn sealing(&self) -> Option<KeyId> {
        self.ring().sealing(moment(realtime_ns())).0.map(|key| key.id)
    }

    fn ring(&self) -> MutexGuard<'_, KeyRing> {
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, work: impl FnOnce(&mut KeyRing) -> T) -> T {
        let mut ring = self.ring();
        let done = work(&mut ring);
        self.shared.version.publish(self.shared.version.get() + 1);
        done
    }

    #[inline]
    fn version(&self) -> u64 {
        self.shared.version.get_published()
    }

    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// Notes which keys' time has come, and forgets those whose overlap has passed.
    pub(crate) fn housekeep(&self) {
        let mut ring = self.ring();
        if ring.handle_timeout(moment(realtime_coarse_ns())) {
            self.shared.version.publish(self.shared.version.get() + 1);
        }
    }
}

/// This instant, of which the wall clock says that.
fn moment(wall_ns: u64) -> Moment {
    Moment { wall_ns, monotonic_ns: monotonic_ns() }
}

fn random_key() -> Option<Key> {
    let mut bytes = [0; KEY_SIZE];
    fill_with_secrets(&mut bytes);
    let key = Key::new(bytes);
    bytes.zeroize();
    key
}

/// A file that only its owner, who is this user, may read and change.
fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeysError> {
    let unreadable = |error| KeysError::Unreadable { path: path.to_owned(), error };
    // A pipe or a device in its place would make us wait.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file: File = opened.map_err(unreadable)?;
    // Of the file that is open: its name may mean another by now.
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() || found.uid() != user() {
        return Err(KeysError::Foreign { path: path.to_owned() });
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeysError::Exposed { path: path.to_owned(), mode });
    }
    // Room for all of it at once: a vector that grows leaves copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_SIZE_MAX as usize));
    file.take(FILE_SIZE_MAX).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 == FILE_SIZE_MAX {
        // The part that is cut off may be a key.
        let text = format!("{FILE_SIZE_MAX} bytes or more, where a file of keys is smaller");
        return Err(unreadable(std::io::Error::new(std::io::ErrorKind::FileTooLarge, text)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const KEY: &str = "1 1 000102030405060708090a0b0c0d0e0f";

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_file_is_read_only_if_it_is_private() {
        let (_folder, path) = file(KEY, 0o600);
        assert_eq!(Keys::from_file(&path).unwrap().ids(), [KeyId { group: 1, life: 0, generation: 1 }]);
        for mode in [0o640, 0o604, 0o620, 0o602, 0o611] {
            let (_folder, path) = file(KEY, mode);
            let error = Keys::from_file(&path).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, KeysError::Exposed { .. }), "{text}");
            assert!(text.contains(&format!("chmod 600 {}", path.display())) && text.lines().count() == 1);
        }
    }

    #[test]
    fn an_error_in_keys_is_said_without_them() {
        let (folder, path) = file("1 1 zz0102030405060708090a0b0c0d0e0f", 0o600);
        let texts = [
            Keys::from_file(&path).unwrap_err().to_string(),
            Keys::from_file(folder.path()).unwrap_err().to_string(),
            Keys::from_file(folder.path().join("none")).unwrap_err().to_string(),
            Keys::from_env("PUNCTUAL_TEST_NO_SUCH_VARIABLE").unwrap_err().to_string(),
            format!("{:?}", Keys::parse(KEY).unwrap()),
        ];
        for text in texts {
            // The name of the folder is random: parts of the key may stand in it.
            let text = text.replace(&folder.path().display().to_string(), "FOLDER");
            assert!(!text.contains("0102") && !text.contains("zz") && text.lines().count() == 1, "{text}");
        }
    }

    /// Goal: no key is left out because it stands too far behind.
    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let (_folder, path) = file(&format!("{KEY}\n#{}\n2 1 {}", "-".repeat(70_000), &KEY[4..]), 0o600);
        let error = Keys::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("65536 bytes or more"), "{error}");
    }

    #[test]
    fn random_keys_differ() {
        let [a, b] = [Keys::random(3), Keys::random(3)];
        let key = |keys: &Keys| *keys.ring().accepted().next().unwrap().key.expose();
        assert_ne!(key(&a), key(&b));
        assert_eq!(a.sealing(), Some(KeyId { group: 3, life: 0, generation: 1 }));
        a.remove_group(3);
        assert_eq!((a.sealing(), a.ids().len()), (None, 0));
    }
}
