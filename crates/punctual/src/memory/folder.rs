//! Nodes of one host find each other in a folder of shared-memory files.

use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::event_fd::EventFd;
use punctual_machine::fd_exchange::PostBox;
use punctual_machine::life::{self, Life, LifeLock};
use punctual_machine::memory::{Access, Mapping};
use punctual_machine::own_file::{FileIdentity, reserve_in};
use punctual_proto::NodeId;

use super::mail::{Mail, note_of_bell, note_of_death, note_of_node, note_that_wakes};
use super::paths::Paths;
use super::rows::Rows;
use super::segment::{Modes, Owner, Segment};
use super::venue::{Found, Scope, Sight, Venue};
use super::{SharedOptions, Sharing};

/// Number of times that a folder may vanish under a node that enters it. Each time somebody else has left.
const ENTRY_TRIES_MAX: u32 = 100;

/// The part of a publication's ring that is mapped at once, bytes.
const STREAM_POPULATED: usize = 1 << 20;

/// Nodes whose files are opened in one look on the way of messages.
const LOOKS_MAX: usize = 4;

/// The folder of one bus, and our own files in it.
#[derive(Debug)]
pub(super) struct Folder {
    folder: PathBuf,
    /// The same, open: a name means what it meant when we entered, even if something is mounted over it later.
    directory: Arc<File>,
    own: Paths,
    /// Says that we live.
    _lock: LifeLock,
    /// Identity of our ring's file: others may take its name away.
    made: FileIdentity,
    post: PostBox,
    identity: (NodeId, u64),
    modes: Modes,
    mail: Mutex<Mail>,
}

impl Folder {
    /// Makes the folder if need be and puts our segment into it.
    pub(super) fn enter(
        options: &SharedOptions,
        owner: Owner,
        name: &str,
    ) -> Result<(Self, Segment), SystemError> {
        punctual_machine::label!("folder.sweep_all");
        sweep_others(options);
        let (modes, post_mode) = match options.sharing {
            Sharing::Private => (Modes { ring: 0o600, bell: 0o600 }, None),
            Sharing::Group(_) => (Modes { ring: 0o640, bell: 0o660 }, Some(0o660)),
        };
        let mut tries = 0;
        let (folder, own, post) = loop {
            let entered = make_folder(options).and_then(|folder| {
                let own = Paths::new(&folder, owner.node, owner.life);
                punctual_machine::label!("folder.post");
                let post = PostBox::open_whole(&own.post, &own.unfinished_post(), post_mode);
                post.map(|post| (folder, own, post))
            });
            match entered {
                Ok(entered) => break entered,
                // The last one out has just removed the folder that we found, or a sweep our box before it was whole.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && tries < ENTRY_TRIES_MAX => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        };
        punctual_machine::label!("folder.segment");
        let made = Segment::create(&own, owner, name, modes);
        let entered = made.and_then(|(segment, lock, made)| {
            let (identity, mail) = ((owner.node, owner.life), Mutex::default());
            let directory = Arc::new(open_folder(&folder, identity)?);
            let venue = Self {
                folder: folder.clone(),
                directory,
                own: own.clone(),
                _lock: lock,
                made,
                post,
                identity,
                modes,
                mail,
            };
            Ok((venue, segment))
        });
        entered.inspect_err(|_| {
            own.remove();
            let _others_there = fs::remove_dir(&folder);
        })
    }

    /// Checks that there is room for a ring of this size.
    pub(super) fn look_for_room(&self, size: usize) -> Result<(), SystemError> {
        punctual_machine::memory::look_for_room(&self.folder, size)
    }

    fn paths_of(&self, owner: &Owner) -> Paths {
        Paths::new(&self.folder, owner.node, owner.life)
    }

    fn post_of(&self, owner: &Owner) -> PathBuf {
        Paths::post_of(&self.folder, owner.node, owner.life)
    }

    fn life_of(&self, node: NodeId, life: u64) -> Life {
        life::look(self.directory.as_fd(), Paths::name(node, life, "ring", &mut [0; Paths::NAME_SIZE]))
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in some of what others sent. They may have been sent to wake a thread that sleeps here until the box can be read. The box
    /// is empty now, so all are woken except the one that is awake at this bell.
    fn take_in(&self, mail: &mut Mail, awake: Option<usize>) {
        if mail.take_in(&self.post) == 0 {
            return;
        }
        let own = mail.own_events.iter().filter(|(bell, _)| Some(**bell) != awake);
        own.for_each(|(_, event)| event.ring());
    }

    /// Looks at a few of the nodes of which notes or the folder told.
    fn look_at_some(&self, mail: &mut Mail, is_known: &dyn Fn(NodeId, u64) -> bool, sight: &mut Sight) {
        mail.list_some(self.directory.as_fd(), self.identity.1);
        let mut looks = 0;
        while looks < LOOKS_MAX {
            let Some((node, life, may_be_dead)) = mail.next_subject() else { return };
            // The folder and a note may both tell of one.
            let is_found = sight.found.iter().any(|found| found.segment.owner.life == life);
            if !is_known(node, life) && !is_found {
                if !self.look_at((node, life), sight) {
                    mail.refuse(node, life);
                }
                looks += 1;
            } else if may_be_dead {
                sight.doubtful.push(life);
                looks += 1;
            }
        }
    }

    /// Opens the files of one who is not known. `false` if they are none.
    fn look_at(&self, (node, life): (NodeId, u64), sight: &mut Sight) -> bool {
        match Segment::open(&self.directory, node, life) {
            Ok(Some((segment, held))) => {
                sight.found.push(Found { segment, has_died: held == Life::Ended });
                true
            }
            Ok(None) => false,
            Err(error) => {
                sight.failure = Some(error);
                true
            }
        }
    }
}

/// The folder with our ring in it, which others must be able to see that we hold.
fn open_folder(folder: &Path, (node, life): (NodeId, u64)) -> Result<File, SystemError> {
    let failed = |error| SystemError::new("open bus folder", folder.display().to_string(), error);
    let directory = File::open(folder).map_err(failed)?;
    let name = &mut [0; Paths::NAME_SIZE];
    match life::look(directory.as_fd(), Paths::name(node, life, "ring", name)) {
        Life::Held => Ok(directory),
        Life::Absent => Err(failed(std::io::ErrorKind::NotFound.into())),
        Life::Ended | Life::Unknown => {
            let text = "its file system shows no locks, by which nodes see that others live; take a tmpfs";
            let error = std::io::Error::new(std::io::ErrorKind::Unsupported, text);
            Err(SystemError::new("lock", folder.display().to_string(), error))
        }
    }
}

/// Removes what processes left in a folder that died: while they entered or left, or with a ring that nobody can read. The lock of a
/// ring says whether its process lives. Its post box says so where there is no ring, as a child that lives on keeps that open.
fn sweep(folder: &Path) {
    let (Ok(entries), Ok(directory)) = (fs::read_dir(folder), File::open(folder)) else { return };
    let posts = entries.filter_map(|entry| Paths::parse_post(entry.ok()?.file_name().to_str()?));
    for (node, life) in posts {
        let mut name = [0; Paths::NAME_SIZE];
        let paths = || Paths::new(folder, node, life);
        match life::look(directory.as_fd(), Paths::name(node, life, "ring", &mut name)) {
            Life::Held => {}
            // A ring has its name only while it is held.
            Life::Ended => paths().remove(),
            Life::Absent | Life::Unknown => remove_abandoned(&paths()),
        }
    }
}

/// Removes the files of a life whose post box has lost its owner. One that is not whole may only look so: its maker finds it gone and
/// makes another.
fn remove_abandoned(paths: &Paths) {
    let unfinished = paths.unfinished_post();
    if PostBox::is_abandoned(&unfinished) {
        punctual_machine::label!("sweep.unfinished");
        let _gone = fs::remove_file(&unfinished);
    }
    if PostBox::is_abandoned(&paths.post) {
        punctual_machine::label!("sweep.remove");
        paths.remove();
        punctual_machine::label!("sweep.removed");
    }
}

/// Does that in all other buses of this user, and of the group of a bus that is shared: a node that was killed as the last on its bus has nobody else to tidy up. Folders that
/// are empty go too: their maker died before it entered, or after it left, or will make another.
fn sweep_others(options: &SharedOptions) {
    let user = punctual_machine::process::user();
    let own = format!("punctual.{user}.");
    let shared = match options.sharing {
        Sharing::Private => None,
        Sharing::Group(group) => Some(format!("punctual.g{group}.")),
    };
    let entered = options.folder_name();
    let is_ours = |name: &str, found: &fs::Metadata| {
        let is_shared = shared.as_ref().is_some_and(|shared| name.starts_with(shared));
        let is_own = name.starts_with(&own) && found.uid() == user;
        name != entered && found.is_dir() && (is_own || is_shared && is_trusted(found, options, user))
    };
    let Ok(entries) = fs::read_dir(&options.directory) else { return };
    for bus in entries.filter_map(Result::ok) {
        let name = bus.file_name();
        if bus.metadata().is_ok_and(|found| name.to_str().is_some_and(|name| is_ours(name, &found))) {
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
    let folder = options.directory.join(options.folder_name());
    let failed = |error| SystemError::new("make bus folder", folder.display().to_string(), error);
    if fs::symlink_metadata(&folder).is_err() {
        publish_folder(&folder, options, user).map_err(failed)?;
    }
    refuse_strangers(&folder, options, user).map_err(failed)?;
    Ok(folder)
}

/// Makes the folder under another name and gives it its own when owner and permissions are right. A folder that somebody else made
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

/// Returns true if nobody but this user, or the group of the bus, may put files into a folder.
fn is_trusted(found: &fs::Metadata, options: &SharedOptions, user: u32) -> bool {
    match options.sharing {
        Sharing::Private => found.uid() == user && found.mode() & 0o077 == 0,
        Sharing::Group(group) => found.gid() == group && found.mode() & 0o007 == 0,
    }
}

fn refuse_strangers(folder: &Path, options: &SharedOptions, user: u32) -> std::io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if found.is_dir() && is_trusted(&found, options, user) {
        return Ok(());
    }
    Err(std::io::Error::new(
        std::io::ErrorKind::PermissionDenied,
        "it belongs to somebody else or is open to everybody: remove it, or take another bus name",
    ))
}

impl Venue for Folder {
    fn look(&self, scope: Scope, is_known: &dyn Fn(NodeId, u64) -> bool) -> Sight {
        let mut mail = self.mail();
        let mut sight = Sight::default();
        if scope != Scope::News {
            mail.list_all();
        }
        if scope == Scope::AtOnce {
            while mail.has_more_names() {
                self.look_at_some(&mut mail, is_known, &mut sight);
            }
            punctual_machine::label!("folder.sweep");
            for (node, life) in mail.take_strays() {
                remove_abandoned(&Paths::new(&self.folder, node, life));
            }
        } else {
            self.take_in(&mut mail, None);
            self.look_at_some(&mut mail, is_known, &mut sight);
            sight.incomplete = mail.has_more();
        }
        sight.present = mail.all_listed();
        sight
    }

    fn has_died(&self, owner: &Owner) -> bool {
        match self.life_of(owner.node, owner.life) {
            Life::Ended => true,
            // The node that found it dead removed its files; a node that removed ours too wiped the folder, which says nothing of
            // anybody.
            Life::Absent => self.life_of(self.identity.0, self.identity.1) == Life::Held,
            Life::Held | Life::Unknown => false,
        }
    }

    fn introduce(&self, to: &Owner) -> bool {
        let text = note_of_node(self.identity.1, self.identity.0);
        self.post.post(&self.post_of(to), &text, None).is_ok()
    }

    fn report(&self, to: &Owner, dead: &Owner) -> bool {
        self.post.post(&self.post_of(to), &note_of_death(dead.life, dead.node), None).is_ok()
    }

    fn introduce_bell(&self, to: &Owner, place: (usize, u64), event: &EventFd) -> bool {
        let text = note_of_bell(self.identity.1, self.identity.0, place);
        self.post.post(&self.paths_of(to).post, &text, Some(event.as_fd())).is_ok()
    }

    fn keep_bell(&self, bell: usize, event: Option<&Arc<EventFd>>) {
        let own = &mut self.mail().own_events;
        match event {
            Some(event) => own.insert(bell, Arc::clone(event)),
            None => own.remove(&bell),
        };
    }

    fn event_of(&self, owner: &Owner, place: (usize, u64)) -> Option<Arc<EventFd>> {
        let mut mail = self.mail();
        if owner.life == self.identity.1 {
            return mail.own_events.get(&place.0).cloned();
        }
        self.take_in(&mut mail, None);
        mail.event_of(owner, place)
    }

    fn wake(&self, owner: &Owner) {
        // Full: there are notes enough to wake it. Gone: nobody is left to wake.
        let _reached = self.post.post(&self.post_of(owner), &note_that_wakes(self.identity.1), None);
    }

    fn drain(&self, awake: usize) {
        self.take_in(&mut self.mail(), Some(awake));
    }

    fn forget(&self, owner: &Owner, died: bool) {
        if died {
            self.paths_of(owner).remove();
        }
        self.mail().forget(owner.node, owner.life);
    }

    fn reserve_rows(&self, step: usize) -> Result<(), SystemError> {
        let name = &mut [0; Paths::NAME_SIZE];
        let name = Paths::name(self.identity.0, self.identity.1, "ring", name);
        let part = Rows::part(step);
        match reserve_in(self.directory.as_fd(), name, (&self.own.ring, self.made), part) {
            // Somebody wiped the folder, or put something else there. A process that has mapped the file sees what is written there,
            // but for where it had to grow.
            Err(error) if step == 0 && error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            reserved => reserved,
        }
    }

    fn map_rows(&self, part: Range<usize>) -> Result<Mapping, SystemError> {
        let name = &mut [0; Paths::NAME_SIZE];
        let name = Paths::name(self.identity.0, self.identity.1, "ring", name);
        Mapping::own_part_in(self.directory.as_fd(), name, self.made, part)
    }

    fn create_stream(&self, id: u64, size: usize) -> Result<Arc<Mapping>, SystemError> {
        Mapping::create(&self.own.stream(id), size, self.modes.ring).map(Arc::new)
    }

    fn open_stream(&self, owner: &Owner, id: u64) -> Result<Option<Arc<Mapping>>, SystemError> {
        let memory = match Mapping::open(&self.paths_of(owner).stream(id), Access::Read) {
            Ok(memory) => memory,
            Err(error) if error.is_exhaustion() => return Err(error),
            Err(_) => return Ok(None),
        };
        memory.populate(0, memory.size().min(STREAM_POPULATED));
        Ok(Some(Arc::new(memory)))
    }

    fn remove_stream(&self, id: u64) {
        punctual_machine::label!("stream.remove");
        let _gone = fs::remove_file(self.own.stream(id));
        punctual_machine::label!("stream.removed");
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

#[cfg(test)]
mod tests {
    use super::super::segment::SUBSCRIPTION_BELLS;
    use super::*;
    use punctual_machine::counter::Flag;
    use punctual_machine::process::{ProcessIdentity, random};
    use std::time::{Duration, Instant};

    /// Goal: a sweep removes no box of a node that is just opening. It does remove the remains of a node that died while it opened.
    #[test]
    fn a_sweep_takes_no_box_of_who_enters() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let left = Paths::new(folder.path(), NodeId::named("left"), 1);
        drop(PostBox::open(&left.unfinished_post()).unwrap());
        sweep(folder.path());
        assert!(!left.unfinished_post().exists());
        let ended = Flag::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.is_raised() {
                    sweep(folder.path());
                }
            });
            let end = Instant::now() + Duration::from_secs(1);
            let (mut life, mut opened) = (1, 0);
            while Instant::now() < end {
                life += 1;
                let own = Paths::new(folder.path(), NodeId::named("own"), life);
                let post = PostBox::open_whole(&own.post, &own.unfinished_post(), None);
                let is_there = own.post.exists();
                opened += u32::from(post.is_ok());
                assert_eq!(post.is_ok(), is_there, "{life}: {post:?}");
                own.remove();
            }
            ended.raise();
            assert!(opened > 0);
        });
    }

    /// Goal: files of a node that died are removed though a child of it lives, which keeps its post box open. Those of a node that lives
    /// are not.
    #[test]
    fn a_sweep_goes_by_the_lock() {
        let options = SharedOptions::new(&format!("outlived-{:x}", random()));
        let owner = Owner {
            node: NodeId::named("living"),
            life: random(),
            process: ProcessIdentity::of_self(),
            held_back: false,
        };
        let (living, _segment) = Folder::enter(&options, owner, "living").unwrap();
        let folder = living.folder.clone();
        let dead = Paths::new(&folder, NodeId::named("dead"), 1);
        let _of_child = PostBox::open_whole(&dead.post, &dead.unfinished_post(), None).unwrap();
        fs::write(&dead.ring, [0; 64]).unwrap();
        sweep(&folder);
        assert!(!dead.ring.exists() && !dead.post.exists());
        assert!(living.own.ring.exists() && living.own.post.exists());
    }

    /// Goal: a node on a shared bus removes the files of killed processes from all buses of its group, whoever made the folder. Private
    /// folders of others stay as they are.
    #[test]
    fn a_group_tidies_up_in_all_of_its_buses() {
        let (outside, group) = (tempfile::tempdir().unwrap(), 65_534);
        let folder = |name: &str, mode| {
            let folder = outside.path().join(name);
            fs::create_dir(&folder).unwrap();
            let dead = Paths::new(&folder, NodeId::named("dead"), 1);
            drop(PostBox::open_whole(&dead.post, &dead.unfinished_post(), None).unwrap());
            fs::write(&dead.ring, [0; 64]).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&folder, Some(65_533), Some(group)).map(|()| folder)
        };
        let Ok(shared) = folder(&format!("punctual.g{group}.other"), 0o2770) else {
            return punctual_machine::skipped!("only root gives a folder away");
        };
        let strange = folder(&format!("punctual.g{group}.open"), 0o2777).unwrap();
        let private = folder("punctual.65533.other", 0o700).unwrap();
        let options = SharedOptions {
            directory: outside.path().to_owned(),
            sharing: Sharing::Group(group),
            ..SharedOptions::new("mine")
        };
        sweep_others(&options);
        assert!(!shared.exists(), "nobody else tidies up there");
        assert!([strange, private].iter().all(|folder| fs::read_dir(folder).unwrap().count() > 0));
    }

    /// Goal: a node that leaves before it is looked at leaves no descriptor behind, in whichever order its notes come. A node that
    /// stays keeps its own, even if a note gives its life another name.
    #[test]
    fn a_node_that_has_left_already_leaves_no_descriptor() {
        let options = SharedOptions::new(&format!("brief-{:x}", random()));
        let owner = |name: &str| Owner {
            node: NodeId::named(name),
            life: random(),
            process: ProcessIdentity::of_self(),
            held_back: false,
        };
        let (here, _segment) = Folder::enter(&options, owner("here"), "here").unwrap();
        let (brief, event) = (owner("brief"), EventFd::new().unwrap());
        let place = (*SUBSCRIPTION_BELLS.start(), 7);
        let outside = tempfile::tempdir().unwrap();
        let sender = PostBox::open(&outside.path().join("post")).unwrap();
        let post = |text, event: Option<&EventFd>| {
            sender.post(&here.own.post, &text, event.map(AsFd::as_fd)).unwrap();
            here.look(Scope::News, &|_, _| false);
            here.event_of(&brief, place).is_some()
        };
        let of_bell = note_of_bell(brief.life, brief.node, place);
        assert!(post(of_bell, Some(&event)), "it may come yet");
        assert!(post(note_of_node(brief.life, NodeId::named("nobody")), None), "that one is not there");
        assert!(!post(note_of_node(brief.life, brief.node), None));
        assert!(!post(of_bell, Some(&event)), "it will not");
        here.leave();
    }

    /// Goal: a note that is to wake a thread that sleeps until the box can be read does so. That holds also if another thread of the
    /// node, which wants to ring somebody, empties the box before the sleeper has run.
    #[test]
    fn a_note_that_another_thread_takes_still_wakes() {
        let options = SharedOptions::new(&format!("notes-{:x}", random()));
        let enter = |name: &str| {
            let owner = Owner {
                node: NodeId::named(name),
                life: random(),
                process: ProcessIdentity::of_self(),
                held_back: false,
            };
            (Folder::enter(&options, owner, name).unwrap(), owner)
        };
        let ((here, _segment), here_owner) = enter("here");
        let ((there, _other_segment), there_owner) = enter("there");
        let events = [1, 2, 3].map(|bell| {
            let event = Arc::new(EventFd::new().unwrap());
            here.keep_bell(bell, Some(&event));
            event
        });
        let woken = || events.each_ref().map(|event| event.drain());
        there.wake(&here_owner);
        assert!(here.event_of(&there_owner, (1, 0)).is_none(), "nobody has introduced himself");
        assert_eq!(woken(), [true; 3], "the sleepers were to be woken, and their box is empty");
        here.event_of(&there_owner, (1, 0));
        assert_eq!(woken(), [false; 3], "nothing has come");
        // But for the one that has emptied the box itself.
        there.wake(&here_owner);
        here.drain(2);
        assert_eq!(woken(), [true, false, true]);
        here.keep_bell(3, None);
        there.wake(&here_owner);
        here.drain(2);
        assert_eq!(woken(), [true, false, false]);
        here.leave();
        there.leave();
    }
}
