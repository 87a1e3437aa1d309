//! Notes that reached a node of a folder by its post box, and its progress in listing the folder.
//!
//! Both are worked off a few at a time: a thread that has messages to move never reads a whole folder, nor a whole box.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use punctual_machine::event_fd::EventFd;
use punctual_machine::fd_exchange::{NOTE_SIZE, PostBox};
use punctual_proto::NodeId;
use punctual_proto::limits::NODES_MAX;
use rustix::fs::{RawDir, SeekFrom, seek};

use super::paths::Paths;
use super::segment::{Owner, SUBSCRIPTION_BELLS};

/// Notes that are taken in at a time.
const NOTES_MAX: usize = 32;
/// Descriptors that are kept: of each node its own, and some of subscriptions.
const EVENTS_MAX: usize = 4 * NODES_MAX;
/// Of as many nodes others may tell before they are looked at.
const SUBJECTS_MAX: usize = 2 * NODES_MAX;
/// Files that are remembered to be no rings.
const REFUSED_MAX: usize = 1 << 14;
/// Bytes of names that are listed at a time, some 120 names. A name that is none of ours costs a comparison.
const NAMES_SIZE: usize = 8192;

/// Of whom a note or the folder tells.
#[derive(Clone, Copy, Debug)]
struct Subject {
    node: NodeId,
    life: u64,
    /// Somebody says that it has died.
    may_be_dead: bool,
}

/// A listing that is under way. The folder's descriptor keeps its place: a listing that opened one of its own would find none where a
/// process has as many as it may have.
#[derive(Debug)]
struct Listing {
    lives: Vec<u64>,
    posts: Vec<(NodeId, u64)>,
    /// Nodes whose descriptors were here when it began, but for those whose names were listed.
    senders: HashSet<(NodeId, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Descriptors that others sent, by node, life and which of its bells it is: in a note anybody may couple a life with another
    /// node. A bell is one subscription's after the other's, so each is with the [`began_bits`] of its own.
    events: HashMap<(NodeId, u64, usize), (u64, Arc<EventFd>)>,
    /// Those of our own subscriptions that sleep on them, by their bells.
    pub(super) own_events: HashMap<usize, Arc<EventFd>>,
    subjects: VecDeque<Subject>,
    listing: Option<Listing>,
    /// A listing is to begin, when the one that is under way has ended: that may have missed who came meanwhile.
    listing_wanted: bool,
    /// The lives that the last listing found, until they are asked for.
    listed: Option<Vec<u64>>,
    /// The post boxes that it found.
    posts: Vec<(NodeId, u64)>,
    /// The box was not empty.
    has_more_notes: bool,
    /// Files with a ring's name that are none: looked at once.
    refused: HashSet<(NodeId, u64)>,
}

/// In place of a bell: of a node that has come, and about a life that may have ended.
const HAS_COME: u64 = 0;
const MAY_BE_DEAD: u64 = u64::MAX;

/// A note of a node that has come.
pub(super) fn note_of_node(life: u64, node: NodeId) -> [u8; NOTE_SIZE] {
    write(life, Some(node), HAS_COME)
}

/// A note about a node that may be dead.
pub(super) fn note_of_death(life: u64, node: NodeId) -> [u8; NOTE_SIZE] {
    write(life, Some(node), MAY_BE_DEAD)
}

/// A note that only wakes.
pub(super) fn note_that_wakes(life: u64) -> [u8; NOTE_SIZE] {
    write(life, None, HAS_COME)
}

/// A note with the descriptor of one of a node's bells, whose subscription began then, in ticks.
pub(super) fn note_of_bell(life: u64, node: NodeId, (bell, began): (usize, u64)) -> [u8; NOTE_SIZE] {
    write(life, Some(node), bell as u64 | began << BELL_BITS)
}

/// Bits of a bell in a note. Those above are [`began_bits`].
const BELL_BITS: u32 = 16;

/// The lowest 48 bits of when a subscription began. No two of one bell have the same within a day.
fn began_bits(began: u64) -> u64 {
    began << BELL_BITS >> BELL_BITS
}

fn write(life: u64, node: Option<NodeId>, what: u64) -> [u8; NOTE_SIZE] {
    let mut text = [0; NOTE_SIZE];
    let words = [life, node.map_or(0, NodeId::get), what];
    for (bytes, word) in text.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    text
}

impl Mail {
    /// Takes in some of what others sent; returns how many notes that was.
    pub(super) fn take_in(&mut self, post: &PostBox) -> usize {
        self.has_more_notes = true;
        for taken in 0..NOTES_MAX {
            let Some(note) = post.take() else {
                self.has_more_notes = false;
                return taken;
            };
            let [life, node, what] = [0, 8, 16]
                .map(|at| note.text[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
            // One of nobody only wakes.
            let Some(node) = NodeId::new(node) else { continue };
            let bell = usize::from(what as u16);
            if SUBSCRIPTION_BELLS.contains(&bell) {
                let key = (node, life, bell);
                let has_room = self.events.len() < EVENTS_MAX || self.events.contains_key(&key);
                let is_kept = has_room && !self.refused.contains(&(node, life));
                if let (Some(event), true) = (note.descriptor.and_then(EventFd::from_descriptor), is_kept) {
                    self.events.insert(key, (what >> BELL_BITS, Arc::new(event)));
                }
            } else if self.subjects.len() >= SUBJECTS_MAX {
                // No honest bus tells of as many: the folder tells what is true of it.
                self.listing_wanted = true;
            } else {
                self.subjects.push_back(Subject { node, life, may_be_dead: what == MAY_BE_DEAD });
            }
        }
        NOTES_MAX
    }

    /// From now on everybody is listed, step by step.
    pub(super) fn list_all(&mut self) {
        self.listing_wanted = true;
    }

    /// Lists some more names, when all whom the last ones told of have been looked at.
    pub(super) fn list_some(&mut self, folder: BorrowedFd<'_>, own_life: u64) {
        if !self.subjects.is_empty() {
            return;
        }
        if self.listing.is_none() && std::mem::replace(&mut self.listing_wanted, false) {
            // A folder that cannot be read tells of nobody.
            self.listing = seek(folder, SeekFrom::Start(0)).ok().map(|_| Listing {
                lives: Vec::new(),
                posts: Vec::new(),
                senders: self.events.keys().map(|&(node, life, _)| (node, life)).collect(),
            });
        }
        let Some(mut listing) = self.listing.take() else { return };
        let mut buffer = [MaybeUninit::uninit(); NAMES_SIZE];
        let mut names = RawDir::new(folder, &mut buffer);
        loop {
            let Some(Ok(entry)) = names.next() else {
                self.end_listing(listing, own_life);
                return;
            };
            if let Ok(name) = entry.file_name().to_str() {
                self.note_name(name, &mut listing, own_life);
            }
            // Names that are left in the buffer would be lost.
            if names.is_buffer_empty() {
                break;
            }
        }
        self.listing = Some(listing);
    }

    /// A name in the folder.
    fn note_name(&mut self, name: &str, listing: &mut Listing, own_life: u64) {
        listing.posts.extend(Paths::parse_post(name));
        let Some((node, life)) = Paths::parse(name) else { return };
        listing.lives.push(life);
        listing.senders.remove(&(node, life));
        if life != own_life && !self.refused.contains(&(node, life)) {
            self.subjects.push_back(Subject { node, life, may_be_dead: false });
        }
    }

    /// All names are listed. A node that sent a descriptor before that began and has no ring has left: nothing else tells of one that
    /// left before it was looked at. Without our own ring a listing tells of nobody.
    fn end_listing(&mut self, listing: Listing, own_life: u64) {
        if listing.lives.contains(&own_life) {
            self.events.retain(|&(node, life, _), _| !listing.senders.contains(&(node, life)));
        }
        (self.listed, self.posts) = (Some(listing.lives), listing.posts);
    }

    /// Remembers a file that is no ring, or is gone. Rings appear whole: it will not become one.
    pub(super) fn refuse(&mut self, node: NodeId, life: u64) {
        self.forget(node, life);
        if self.refused.len() < REFUSED_MAX {
            self.refused.insert((node, life));
        }
    }

    /// True if names are still to be listed, or looked at.
    pub(super) fn has_more_names(&self) -> bool {
        self.listing_wanted || self.listing.is_some() || !self.subjects.is_empty()
    }

    /// The next to look at, with whether it is said to be dead.
    pub(super) fn next_subject(&mut self) -> Option<(NodeId, u64, bool)> {
        self.subjects.pop_front().map(|subject| (subject.node, subject.life, subject.may_be_dead))
    }

    /// The lives in the folder, once, when all have been listed.
    pub(super) fn all_listed(&mut self) -> Option<Vec<u64>> {
        if self.has_more_names() { None } else { self.listed.take() }
    }

    /// Of the last listing, once: post boxes without a ring, or beside what is none.
    pub(super) fn take_strays(&mut self) -> Vec<(NodeId, u64)> {
        let mut lives = self.listed.clone().unwrap_or_default();
        lives.sort_unstable();
        let mut posts = std::mem::take(&mut self.posts);
        posts.retain(|post| lives.binary_search(&post.1).is_err() || self.refused.contains(post));
        posts
    }

    pub(super) fn has_more(&self) -> bool {
        self.has_more_notes || self.has_more_names()
    }

    /// Event on which the subscription sleeps that began then at a bell, if the event was sent here.
    pub(super) fn event_of(&self, owner: &Owner, (bell, began): (usize, u64)) -> Option<Arc<EventFd>> {
        let (of, event) = self.events.get(&(owner.node, owner.life, bell))?;
        (*of == began_bits(began)).then(|| Arc::clone(event))
    }

    pub(super) fn forget(&mut self, node: NodeId, life: u64) {
        self.events.retain(|&(of, its, _), _| (of, its) != (node, life));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use punctual_machine::process::ProcessIdentity;

    fn owner(node: NodeId, life: u64) -> Owner {
        Owner { node, life, process: ProcessIdentity::of_self(), held_back: false }
    }

    /// Goal: however much lies in a folder and in a box, one step takes a bounded part of it, and all are seen in the end.
    #[test]
    fn steps_are_bounded_and_see_all() {
        const RINGS: u64 = 1_000;
        // The least that a name takes, of a ring and of junk.
        const NAMES_MAX: usize = NAMES_SIZE / 24;
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        for number in 1..=RINGS {
            fs::write(folder.path().join(format!("{:016x}.{number:016x}.ring", 1)), b"").unwrap();
            fs::write(folder.path().join(format!("junk-{number}")), b"").unwrap();
        }
        let opened = File::open(folder.path()).unwrap();
        let mut mail = Mail::default();
        mail.refuse(NodeId::new(1).unwrap(), 2);
        mail.list_all();
        let (mut seen, mut steps) = (Vec::new(), 0);
        while mail.has_more_names() {
            mail.list_some(opened.as_fd(), 1);
            assert!(mail.subjects.len() <= NAMES_MAX);
            while let Some((_, life, _)) = mail.next_subject() {
                seen.push(life);
            }
            steps += 1;
        }
        assert!(steps >= 2 * RINGS as usize / NAMES_MAX, "{steps} steps");
        let mut listed = mail.all_listed().unwrap();
        seen.sort_unstable();
        listed.sort_unstable();
        assert_eq!(seen, (3..=RINGS).collect::<Vec<_>>(), "without ourselves and the refused one");
        assert_eq!(listed, (1..=RINGS).collect::<Vec<_>>());
    }

    /// Goal: a bell's next subscription takes the place of the one before, also where nothing else finds room.
    #[test]
    fn a_descriptor_replaces_its_predecessor() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let (sender, receiver) = (PostBox::open(&here).unwrap(), PostBox::open(&there).unwrap());
        let (mut mail, event) = (Mail::default(), Arc::new(EventFd::new().unwrap()));
        let node = NodeId::named("a");
        let keys = (0..EVENTS_MAX as u64).map(|life| (node, life, *SUBSCRIPTION_BELLS.start()));
        mail.events.extend(keys.map(|key| (key, (1, Arc::clone(&event)))));
        for life in [7, EVENTS_MAX as u64] {
            let place = (*SUBSCRIPTION_BELLS.start(), 2);
            sender.post(&there, &note_of_bell(life, node, place), Some(event.as_fd())).unwrap();
            mail.take_in(&receiver);
            assert_eq!(mail.event_of(&owner(node, life), place).is_some(), life == 7);
        }
        let earlier = (*SUBSCRIPTION_BELLS.start(), 1);
        assert!(mail.event_of(&owner(node, 7), earlier).is_none(), "it has ended");
    }

    /// Goal: for a node that left before it was looked at, no descriptor is kept beyond the next listing. For a node that is there, all
    /// are kept, also where somebody has wiped the folder.
    #[test]
    fn a_listing_ends_descriptors_of_who_has_left() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let ring = |life: u64| folder.path().join(format!("{:016x}.{life:016x}.ring", 1));
        let (own, there, gone) = (1, 2, 3);
        let opened = File::open(folder.path()).unwrap();
        let event = Arc::new(EventFd::new().unwrap());
        let mut mail = Mail::default();
        let node = NodeId::new(1).unwrap();
        mail.events.extend([there, gone].map(|life| ((node, life, 3), (1, Arc::clone(&event)))));
        let kept = |mail: &mut Mail| {
            mail.list_all();
            while mail.has_more_names() {
                mail.list_some(opened.as_fd(), own);
                while mail.next_subject().is_some() {}
            }
            [there, gone].map(|life| mail.event_of(&owner(node, life), (3, 1)).is_some())
        };
        assert_eq!(kept(&mut mail), [true; 2], "the folder tells of nobody");
        [own, there].iter().for_each(|life| fs::write(ring(*life), b"").unwrap());
        assert_eq!(kept(&mut mail), [true, false]);
    }

    /// Goal: a sender that fills the box with notes keeps nobody at reading them, and no node that is there is missed for it.
    #[test]
    fn a_flood_of_notes_is_taken_in_part_and_answered_by_a_listing() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let (sender, receiver) = (PostBox::open(&here).unwrap(), PostBox::open(&there).unwrap());
        let mut mail = Mail::default();
        for number in 1..=3 * SUBJECTS_MAX as u64 {
            if sender.post(&there, &note_of_death(number, NodeId::new(1).unwrap()), None).is_err() {
                mail.take_in(&receiver);
                sender.post(&there, &note_of_death(number, NodeId::new(1).unwrap()), None).unwrap();
            }
        }
        mail.take_in(&receiver);
        assert_eq!(mail.subjects.len(), SUBJECTS_MAX);
        assert!(mail.listing_wanted && mail.has_more_names());
    }
}
