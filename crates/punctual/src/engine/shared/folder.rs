//! Nodes of one host find each other in a folder of shared-memory files.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::event_fd::EventFd;
use punctual_machine::fd_exchange::{NOTE_SIZE, PostBox};
use punctual_proto::NodeId;

use super::segment::{Modes, Owner, Paths, Segment};
use super::venue::{Found, Venue};
use super::{SharedOptions, Sharing};

/// How often a folder may vanish under who enters it. Each time somebody else has left.
const ENTRY_TRIES_MAX: u32 = 100;

/// The folder of one bus, and our own files in it.
#[derive(Debug)]
pub(super) struct Folder {
    folder: PathBuf,
    own: Paths,
    post: PostBox,
    event: Arc<EventFd>,
    own_life: u64,
    /// Bells that others sent, by their life.
    events: Mutex<HashMap<u64, Arc<EventFd>>>,
}

impl Folder {
    /// Makes the folder if need be and puts our segment into it.
    pub(super) fn enter(
        options: &SharedOptions,
        owner: Owner,
        name: &str,
        event: &Arc<EventFd>,
    ) -> Result<(Self, Segment), SystemError> {
        punctual_machine::label!("folder.sweep_all");
        sweep_all(options);
        let mut tries = 0;
        let (folder, own, post) = loop {
            let entered = make_folder(options).and_then(|folder| {
                let own = Paths::new(&folder, owner.node, owner.life);
                punctual_machine::label!("folder.post");
                PostBox::open(&own.post).map(|post| (folder, own, post))
            });
            match entered {
                Ok(entered) => break entered,
                // The last one out has just removed the folder that we found.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && tries < ENTRY_TRIES_MAX => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        };
        punctual_machine::label!("folder.sweep");
        sweep(&folder);
        let modes = match options.sharing {
            Sharing::Private => Modes { ring: 0o600, bell: 0o600 },
            Sharing::Group(_) => Modes { ring: 0o640, bell: 0o660 },
        };
        if matches!(options.sharing, Sharing::Group(_)) {
            punctual_machine::label!("folder.post.permissions");
            fs::set_permissions(&own.post, fs::Permissions::from_mode(0o660)).map_err(|error| {
                SystemError::new("set permissions of", own.post.display().to_string(), error)
            })?;
        }
        punctual_machine::label!("folder.segment");
        let segment = Segment::create(&own, owner, name, options.ring_size, modes).inspect_err(|_| {
            own.remove();
            let _others_there = fs::remove_dir(&folder);
        })?;
        let events = Mutex::default();
        let venue = Self { folder, own, post, event: Arc::clone(event), own_life: owner.life, events };
        Ok((venue, segment))
    }

    fn paths_of(&self, owner: &Owner) -> Paths {
        Paths::new(&self.folder, owner.node, owner.life)
    }
}

/// Removes what processes left that died: while they entered or left, or with a ring that nobody can read.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let posts = entries.filter_map(|entry| Paths::parse_post(entry.ok()?.file_name().to_str()?));
    for (node, life) in posts {
        let paths = Paths::new(folder, node, life);
        if PostBox::is_abandoned(&paths.post) {
            punctual_machine::label!("sweep.remove");
            paths.remove();
            punctual_machine::label!("sweep.removed");
        }
    }
}

/// The same in all buses of this user: who was killed as the last on a bus has nobody else to tidy up. Folders that are
/// empty go too: their maker died before it entered, or after it left, or will make another.
fn sweep_all(options: &SharedOptions) {
    let user = punctual_machine::process::user();
    let own = format!("punctual.{user}.");
    let shared = match options.sharing {
        Sharing::Private => None,
        Sharing::Group(group) => Some(format!("punctual.g{group}.")),
    };
    let is_bus =
        |name: &str| name.starts_with(&own) || shared.as_ref().is_some_and(|shared| name.starts_with(shared));
    let Ok(entries) = fs::read_dir(&options.directory) else { return };
    for bus in entries.filter_map(Result::ok) {
        let is_own = bus.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if is_own && bus.file_name().to_str().is_some_and(is_bus) {
            sweep(&bus.path());
            punctual_machine::label!("sweep.folder");
            let _others_there = fs::remove_dir(bus.path());
            punctual_machine::label!("sweep.folder.done");
        }
    }
}

/// The bus's folder, owned by us or shared with a group of ours. Others' folders are refused: they could replace files.
fn make_folder(options: &SharedOptions) -> Result<PathBuf, SystemError> {
    let user = punctual_machine::process::user();
    let name = match options.sharing {
        Sharing::Private => format!("punctual.{user}.{}", options.name),
        Sharing::Group(group) => format!("punctual.g{group}.{}", options.name),
    };
    let folder = options.directory.join(name);
    let failed = |error| SystemError::new("make bus folder", folder.display().to_string(), error);
    if fs::symlink_metadata(&folder).is_err() {
        publish_folder(&folder, options, user).map_err(failed)?;
    }
    refuse_strangers(&folder, options, user).map_err(failed)?;
    Ok(folder)
}

/// Makes the folder under another name and gives it its own when owner and permissions are right. That somebody else made it
/// meanwhile is as good.
fn publish_folder(folder: &Path, options: &SharedOptions, user: u32) -> std::io::Result<()> {
    let life = punctual_machine::process::random();
    // The sweep of the next opener finds it by its first part.
    let unfinished = options.directory.join(format!("punctual.{user}.{}.{life:016x}.new", options.name));
    punctual_machine::label!("folder.make");
    fs::DirBuilder::new().mode(0o700).create(&unfinished)?;
    punctual_machine::label!("folder.owner");
    let published = match options.sharing {
        Sharing::Private => fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o700)),
        Sharing::Group(group) => std::os::unix::fs::chown(&unfinished, None, Some(group)).and_then(|()| {
            punctual_machine::label!("folder.permissions");
            fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o2770))
        }),
    }
    .and_then(|()| {
        punctual_machine::label!("folder.publish");
        punctual_machine::memory::rename_to_free(&unfinished, folder)
    });
    punctual_machine::label!("folder.publish.done");
    match published {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => fs::remove_dir(&unfinished),
        Err(error) => {
            let _swept_meanwhile = fs::remove_dir(&unfinished);
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

fn refuse_strangers(folder: &Path, options: &SharedOptions, user: u32) -> std::io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let trusted = match options.sharing {
        Sharing::Private => found.uid() == user && found.mode() & 0o077 == 0,
        Sharing::Group(group) => found.gid() == group && found.mode() & 0o007 == 0,
    };
    if found.is_dir() && trusted {
        return Ok(());
    }
    Err(std::io::Error::new(
        std::io::ErrorKind::PermissionDenied,
        "it belongs to somebody else or is open to everybody: remove it, or take another bus name",
    ))
}

impl Venue for Folder {
    fn newcomers(&self, is_known: &dyn Fn(NodeId, u64) -> bool) -> Vec<Found> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        entries
            .filter_map(|entry| Paths::parse(entry.ok()?.file_name().to_str()?))
            .filter(|&(node, life)| life != self.own_life && !is_known(node, life))
            .filter_map(|(node, life)| {
                let segment = Segment::open(&Paths::new(&self.folder, node, life))?;
                // A file that says something else than its name is somebody's forgery.
                let honest = segment.owner.node == node && segment.owner.life == life;
                honest.then_some(Found { segment, event: None })
            })
            .collect()
    }

    fn introduce(&self, to: &Owner) {
        // A box that is full or gone: the peer wakes us by a note instead (`wake`).
        let _reached =
            self.post.post(&self.paths_of(to).post, &note(self.own_life), Some(self.event.as_fd()));
    }

    fn event_of(&self, owner: &Owner) -> Option<Arc<EventFd>> {
        self.drain();
        self.events.lock().unwrap_or_else(PoisonError::into_inner).get(&owner.life).cloned()
    }

    fn wake(&self, owner: &Owner) {
        // Full: there are notes enough to wake it. Gone: nobody is left to wake.
        let _reached = self.post.post(&self.paths_of(owner).post, &note(self.own_life), None);
    }

    fn drain(&self) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(note) = self.post.take() {
            let (life, _) = note.text.split_at(8);
            let life = life.iter().rev().fold(0, |life, &byte| life << 8 | u64::from(byte));
            let room = events.len() < punctual_proto::limits::NODES_MAX;
            if let (Some(event), true) = (note.descriptor.and_then(EventFd::from_descriptor), room) {
                events.insert(life, Arc::new(event));
            }
        }
    }

    fn forget(&self, owner: &Owner, died: bool) {
        if died {
            self.paths_of(owner).remove();
        }
        self.events.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner.life);
    }

    fn leave(&self) {
        punctual_machine::label!("folder.leave");
        self.own.remove();
        // The last one out; somebody else's files keep it.
        punctual_machine::label!("folder.remove");
        let _others_there = fs::remove_dir(&self.folder);
        punctual_machine::label!("folder.removed");
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.post.as_fd())
    }
}

fn note(life: u64) -> [u8; NOTE_SIZE] {
    let mut text = [0; NOTE_SIZE];
    text[..8].copy_from_slice(&life.to_le_bytes());
    text
}
