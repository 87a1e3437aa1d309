//! Where things lie.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const FOREIGN: &[&str] = &["target", ".git", "runs"];

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}

/// Where a step builds what has flags of its own, so that it does not rebuild everybody else's.
pub(crate) fn target(step: &str) -> PathBuf {
    let all = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(all).join(step)
}

/// All files below the root, as paths relative to it, in order.
pub(crate) fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_foreign = FOREIGN.iter().any(|name| entry.file_name() == *name);
            if is_folder && !is_foreign {
                folders.push(entry.path());
            } else if !is_folder && let Ok(relative) = entry.path().strip_prefix(root()) {
                found.push(relative.to_owned());
            }
        }
    }
    found.sort();
    found
}
