//! Names of the files of a node.

use std::ffi::CStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use punctual_proto::NodeId;

/// The files of one life of a node.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) ring: PathBuf,
    pub(super) bell: PathBuf,
    pub(super) post: PathBuf,
}

impl Paths {
    pub(super) fn new(folder: &Path, node: NodeId, life: u64) -> Self {
        let path = |ending| folder.join(format!("{node}.{life:016x}.{ending}"));
        Self { ring: path("ring"), bell: path("bell"), post: Self::post_of(folder, node, life) }
    }

    /// Size of a file's name, bytes.
    pub(super) const NAME_SIZE: usize = 39;

    /// The name of a file in its folder, with an ending of four letters. Asked for from time to time while messages move: nothing
    /// here allocates.
    pub(super) fn name<'n>(
        node: NodeId,
        life: u64,
        ending: &str,
        name: &'n mut [u8; Self::NAME_SIZE],
    ) -> &'n CStr {
        write!(&mut name[..], "{node}.{life:016x}.{ending}\0").expect("as long as a name");
        CStr::from_bytes_with_nul(name).expect("a zero at its end and nowhere else")
    }

    /// Where a node's post box is.
    pub(super) fn post_of(folder: &Path, node: NodeId, life: u64) -> PathBuf {
        folder.join(format!("{node}.{life:016x}.post"))
    }

    /// Node and life of a ring file's name.
    pub(super) fn parse(name: &str) -> Option<(NodeId, u64)> {
        Self::parse_ending(name, ".ring")
    }

    fn parse_ending(name: &str, ending: &str) -> Option<(NodeId, u64)> {
        let (node, life) = name.strip_suffix(ending)?.split_once('.')?;
        let hex = |digits: &str| (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten();
        Some((NodeId::new(hex(node)?)?, hex(life)?))
    }

    /// The ring before it is whole.
    pub(super) fn unfinished(&self) -> PathBuf {
        self.ring.with_extension("new")
    }

    /// The post box before it is whole.
    pub(super) fn unfinished_post(&self) -> PathBuf {
        self.post.with_extension("box")
    }

    /// Node and life of a post box's name, whole or not.
    pub(super) fn parse_post(name: &str) -> Option<(NodeId, u64)> {
        Self::parse_ending(name, ".post").or_else(|| Self::parse_ending(name, ".box"))
    }

    /// The ring of one of its publications.
    pub(super) fn stream(&self, id: u64) -> PathBuf {
        self.ring.with_extension(format!("{id:016x}.stream"))
    }

    /// The rings of all of its publications.
    fn streams(&self) -> Vec<PathBuf> {
        let (Some(folder), Some(ring)) = (self.ring.parent(), self.ring.file_stem()) else {
            return Vec::new();
        };
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let is_own = |name: &str| {
            ring.to_str().is_some_and(|ring| name.starts_with(ring) && name.ends_with(".stream"))
        };
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        paths.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_own)).collect()
    }

    pub(super) fn remove(&self) {
        // The ring goes first: without it nobody finds the others. The post box goes last: an opener that finds it without its ring and
        // its process removes what is left. A file that is already gone is as good as removed.
        let remove = |path: &PathBuf| {
            punctual_machine::label!("files.remove");
            let _gone = std::fs::remove_file(path);
            punctual_machine::label!("files.remove.done");
        };
        [self.unfinished(), self.ring.clone(), self.bell.clone()].iter().for_each(remove);
        self.streams().iter().for_each(remove);
        remove(&self.unfinished_post());
        remove(&self.post);
    }
}
