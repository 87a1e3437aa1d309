//! The pages of counters of this host: whose makers live, and what they say.

use std::ffi::{CString, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_machine::life::{self, Life};
use punctual_machine::memory::{Access, Mapping};
use punctual_machine::process::random;

use super::{Ledger, Page, PageOwner, folder, read_owner};

/// Pages of which who opens a node asks whether their maker lives. Each costs opening a file; on a host with more, the others
/// are for those who open nodes later.
const SWEPT_MAX: usize = 32;

/// What is in a folder under the name of a page, with what is known of its maker. Of at most so many: anyone of them first.
fn lives(folder: &Path, count_max: usize) -> Vec<(PathBuf, Life)> {
    let (Ok(entries), Ok(opened)) = (std::fs::read_dir(folder), std::fs::File::open(folder)) else {
        return Vec::new();
    };
    let is_page = |name: &OsString| name.as_bytes().ends_with(b".counters");
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

fn read_page(path: &Path) -> Option<(PageOwner, Page)> {
    let memory = Arc::new(Mapping::open(path, Access::Read).ok()?);
    let owner = read_owner(&memory)?;
    Some((owner, Page::of(&memory)?))
}

/// Removes the pages of the dead.
pub(super) fn sweep(folder: &Path) {
    for (path, life) in lives(folder, SWEPT_MAX) {
        if life == Life::Ended && read_page(&path).is_some() {
            punctual_machine::label!("page.dead");
            let _somebody_else_did = std::fs::remove_file(path);
            punctual_machine::label!("page.dead.done");
        }
    }
}

/// The ledgers of all live nodes of this user on this host, read without disturbing them.
pub fn read_all() -> Vec<(PageOwner, Ledger)> {
    let mut ledgers: Vec<_> = lives(&folder(), usize::MAX)
        .into_iter()
        .filter(|&(_, life)| life != Life::Ended)
        .filter_map(|(path, _)| read_page(&path))
        .map(|(owner, page)| (owner, page.ledger()))
        .collect();
    ledgers.sort_by(|(a, _), (b, _)| (&a.bus, &a.name, a.node).cmp(&(&b.bus, &b.name, b.node)));
    ledgers
}
