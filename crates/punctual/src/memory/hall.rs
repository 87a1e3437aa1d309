//! Nodes of one process find each other in a list.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use punctual_machine::SystemError;
use punctual_machine::event_fd::EventFd;
use punctual_machine::handles::forks;
use punctual_machine::memory::Mapping;
use punctual_proto::NodeId;

use super::segment::{Owner, Segment};
use super::venue::{Found, Scope, Sight, Venue};

/// Nodes by their lives, and the rings of their publications.
#[derive(Default)]
struct Members {
    nodes: HashMap<u64, Segment>,
    streams: HashMap<(u64, u64), Arc<Mapping>>,
    /// Descriptors of subscriptions that sleep on them, by life and bell.
    events: HashMap<(u64, usize), Arc<EventFd>>,
}

/// A bus of this process, by its name. A forked child has a copy of its parent's buses, and none of its nodes: it finds its own behind the
/// number of forks before it.
type Key = (u32, String);

/// All in-process buses.
static HALLS: LazyLock<Mutex<HashMap<Key, Members>>> = LazyLock::new(Mutex::default);

fn halls() -> MutexGuard<'static, HashMap<Key, Members>> {
    HALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Our place in one of them.
#[derive(Debug)]
pub(super) struct Hall {
    key: Key,
    own_life: u64,
}

impl Hall {
    pub(super) fn enter(name: &str, segment: &Segment) -> Self {
        let (own_life, key) = (segment.owner.life, (forks(), name.to_owned()));
        halls().entry(key.clone()).or_default().nodes.insert(own_life, segment.clone());
        Self { key, own_life }
    }
}

impl Venue for Hall {
    fn look(&self, _scope: Scope, is_known: &dyn Fn(NodeId, u64) -> bool) -> Sight {
        let halls = halls();
        let members = || halls.get(&self.key).into_iter().flat_map(|members| &members.nodes);
        let found = members()
            .filter(|(life, segment)| **life != self.own_life && !is_known(segment.owner.node, **life))
            .map(|(_, segment)| Found { segment: segment.clone(), has_died: false })
            .collect();
        Sight { found, present: Some(members().map(|(life, _)| *life).collect()), ..Sight::default() }
    }

    fn has_died(&self, _owner: &Owner) -> bool {
        false
    }

    fn introduce(&self, _to: &Owner) -> bool {
        true
    }

    fn report(&self, _to: &Owner, _dead: &Owner) -> bool {
        true
    }

    fn keep_bell(&self, bell: usize, event: Option<&Arc<EventFd>>) {
        let mut halls = halls();
        let events = &mut halls.entry(self.key.clone()).or_default().events;
        match event {
            Some(event) => events.insert((self.own_life, bell), Arc::clone(event)),
            None => events.remove(&(self.own_life, bell)),
        };
    }

    fn event_of(&self, owner: &Owner, (bell, _): (usize, u64)) -> Option<Arc<EventFd>> {
        halls().get(&self.key)?.events.get(&(owner.life, bell)).cloned()
    }

    fn wake(&self, _owner: &Owner) {}

    fn forget(&self, _owner: &Owner, _died: bool) {}

    fn create_stream(&self, id: u64, size: usize) -> Result<Arc<Mapping>, SystemError> {
        let memory = Arc::new(Mapping::anonymous(size)?);
        let mut halls = halls();
        let members = halls.entry(self.key.clone()).or_default();
        members.streams.insert((self.own_life, id), Arc::clone(&memory));
        Ok(memory)
    }

    fn open_stream(&self, owner: &Owner, id: u64) -> Result<Option<Arc<Mapping>>, SystemError> {
        let halls = halls();
        Ok(halls.get(&self.key).and_then(|members| members.streams.get(&(owner.life, id)).cloned()))
    }

    fn remove_stream(&self, id: u64) {
        if let Some(members) = halls().get_mut(&self.key) {
            members.streams.remove(&(self.own_life, id));
        }
    }

    fn leave(&self) {
        let mut halls = halls();
        if let Some(members) = halls.get_mut(&self.key) {
            members.nodes.remove(&self.own_life);
            members.streams.retain(|(life, _), _| *life != self.own_life);
            members.events.retain(|(life, _), _| *life != self.own_life);
            if members.nodes.is_empty() {
                halls.remove(&self.key);
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
