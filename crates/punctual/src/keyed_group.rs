//! Keyed groups over communicators: nodes join and leave while they run, and the group's key changes with its members.
//!
//! The exchange itself is in [`punctual_proto::keyed_group`]; here it gets a communicator to speak through, a clock that nobody
//! sets, random bytes, and the node's [`Keys`] to put the group's key into. Nobody's thread is taken: [`GroupMember::turn`] and
//! [`GroupLeader::turn`] do what there is to do, and are to be called every few milliseconds. See `docs/groups.md`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_machine::clock::monotonic_ns;
use punctual_machine::counter::Counter;
use punctual_machine::process::fill_with_secrets;
use punctual_proto::keyed_group::{Leader, Member, target_of};
use punctual_proto::{Address, NodeId, Target};

use crate::communicator::{Communicator, Message, Sender};
use crate::seal::{GroupKey, KeyError, KeyId, Keys};

pub use punctual_proto::keyed_group::{GroupTiming, LeaderEvent, Secret, State, group_of_cell};

/// Messages that are taken before what is due is done: a flood of them keeps nobody from it.
const TAKEN_FIRST_MAX: usize = 256;

/// Groups to which a member still says that it goes: more than it passes through while it repeats that. The oldest makes room.
const LEAVING_MAX: usize = 16;

fn entropy(bytes: &mut [u8]) {
    fill_with_secrets(bytes);
}

/// Newcomers have no key but the fleet's. A leader's key of the same group would seal in its place, and they would not open it. A key
/// that is no leader's would go with the group.
fn check_group(group: u32, home: Option<u32>, keys: &Keys) -> Result<(), KeyError> {
    let is_fleets = |id: &KeyId| id.group == group && id.life == 0;
    if home == Some(group) || keys.ids().iter().any(is_fleets) { Err(KeyError::Fleet(group)) } else { Ok(()) }
}

/// True if this is no message of an exchange of this version. An empty one of the own address only ends a wait.
fn is_foreign(message: &Message<'_>, own: Address) -> bool {
    let ends_wait = message.source == own && message.payload.is_empty();
    !ends_wait && target_of(message.payload).is_none()
}

/// A change for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// It is in, and its node seals in this group from now on. A component that repeats interests does so now.
    Joined(u32),
    /// The group has another key, which seals when its time has come.
    Renewed(KeyId),
}

/// The group that a member is in, for followers on any thread. Clones tell of the same member.
#[derive(Clone, Debug, Default)]
pub struct Membership(Arc<MembershipShared>);

#[derive(Debug, Default)]
struct MembershipShared {
    state: Mutex<MembershipState>,
    /// Changes with the group.
    version: Counter,
}

#[derive(Debug, Default)]
struct MembershipState {
    group: Option<u32>,
    watchers: Vec<(u64, Sender)>,
    /// The number of the next watcher.
    next: u64,
}

/// Somebody is told of changes until this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    membership: Membership,
    watcher: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.membership.state();
        let watched = state.watchers.iter().position(|(watcher, _)| *watcher == self.watcher);
        let waiter = watched.map(|index| state.watchers.swap_remove(index));
        drop(state);
        // It may be the last that holds its node: that closes without our lock.
        drop(waiter);
    }
}

impl Membership {
    /// The group, if there is one.
    pub fn group(&self) -> Option<u32> {
        self.state().group
    }

    fn state(&self) -> MutexGuard<'_, MembershipState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self) -> u64 {
        self.0.version.get_published()
    }

    /// A thread that waits at this sender's communicator is woken when the group changes.
    pub(crate) fn watch(&self, waiter: Sender) -> Watch {
        let mut state = self.state();
        let watcher = state.next;
        state.next += 1;
        state.watchers.push((watcher, waiter));
        Watch { membership: self.clone(), watcher }
    }

    fn set(&self, group: Option<u32>) {
        let mut state = self.state();
        if state.group == group {
            return;
        }
        state.group = group;
        self.0.version.publish(self.0.version.get() + 1);
        for (_, watcher) in &mut state.watchers {
            watcher.nudge();
        }
    }
}

/// A member: speaks with the leaders of groups through a communicator of its own, at the same port as theirs. Dropped, it leaves
/// its group.
#[derive(Debug)]
pub struct GroupMember {
    carrier: Communicator,
    keys: Keys,
    /// The group whose key all enrolled nodes have: it seals the exchange.
    home: u32,
    secret: Secret,
    timing: GroupTiming,
    member: Option<Member>,
    /// These still say that they go.
    leaving: VecDeque<Member>,
    membership: Membership,
    foreign: u64,
}

impl GroupMember {
    /// A member of no group yet. `keys` are those with which the node of `carrier` was opened; the group that seals with them
    /// now is where it comes back to. `secret` is what it shares with the leaders ([`Secret::of_member`]).
    ///
    /// # Errors
    /// [`KeyError::None`] if there is no key yet: the exchange is sealed too.
    pub fn new(
        carrier: Communicator,
        keys: &Keys,
        secret: Secret,
        timing: GroupTiming,
    ) -> Result<Self, KeyError> {
        let home = keys.sealing().ok_or(KeyError::None)?.group;
        // A leader that does not know the group's key, as it has started again or has forgotten us, must hear us too.
        carrier.seal_in(home);
        let (keys, membership) = (keys.clone(), Membership::default());
        let leaving = VecDeque::with_capacity(LEAVING_MAX);
        Ok(Self { carrier, keys, home, secret, timing, member: None, leaving, membership, foreign: 0 })
    }

    /// Asks to join a group, and leaves the one it is in. Until it is in, its node seals as it did before any group.
    ///
    /// # Errors
    /// [`KeyError::Fleet`] for the group whose key seals the exchange, and one that has a key of no leader. Nothing has changed then.
    pub fn join(&mut self, leader: NodeId, group: u32) -> Result<(), KeyError> {
        check_group(group, Some(self.home), &self.keys)?;
        self.leave();
        self.member = Some(self.ask(leader, group));
        Ok(())
    }

    fn ask(&self, leader: NodeId, group: u32) -> Member {
        let places = (self.carrier.address().node, leader);
        Member::new(places, group, self.secret.clone(), self.timing, monotonic_ns(), &mut entropy)
    }

    /// Leaves the group and forgets its keys.
    pub fn leave(&mut self) {
        let Some(mut member) = self.step_out() else { return };
        member.leave(monotonic_ns(), &mut entropy);
        // Its leader has never answered, and is told nothing.
        if member.poll_timeout().is_none() {
            return;
        }
        if self.leaving.len() == LEAVING_MAX {
            self.leaving.pop_front();
        }
        self.leaving.push_back(member);
    }

    /// Is in no group any more, without a word to the leader.
    fn step_out(&mut self) -> Option<Member> {
        let member = self.member.take()?;
        self.keys.seal_in(self.home);
        self.keys.remove_group(member.group());
        self.membership.set(None);
        Some(member)
    }

    /// The group's key did not fit: the leader is asked once more, after a retry. It gets no goodbye, for which it would give all
    /// others a new key each time.
    fn start_over(&mut self) {
        let Some(mut member) = self.step_out() else { return };
        member.start_over(monotonic_ns(), &mut entropy);
        self.member = Some(member);
    }

    /// Tells others which group it is in, now and later.
    pub fn membership(&self) -> Membership {
        self.membership.clone()
    }

    /// The group that it is in.
    pub fn group(&self) -> Option<u32> {
        let member = self.member.as_ref()?;
        (member.state() == State::Joined).then(|| member.group())
    }

    /// Messages of another version of the exchange that came here, and messages that belong to no exchange. They have no effect.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Does what there is to do; tells what has changed.
    ///
    /// # Errors
    /// [`KeyError::TooMany`]: the node's ring is full, and the group's key is not in it. The node seals as it did before any group,
    /// and asks again: it is in when there is room.
    pub fn turn(&mut self, mut on_change: impl FnMut(GroupChange)) -> Result<(), KeyError> {
        let now_ns = monotonic_ns();
        let own = self.carrier.address();
        self.keys.housekeep();
        let mut inserted = Ok(());
        for _ in 0..TAKEN_FIRST_MAX {
            let Ok(message) = self.carrier.try_receive() else { break };
            self.foreign += u64::from(is_foreign(&message, own));
            let Some(member) = &mut self.member else { continue };
            let was_in = member.state() == State::Joined;
            let Some(key) = member.handle_message(message.payload, now_ns, &mut entropy) else { continue };
            let id = key.id;
            if let Err(error) = self.keys.insert_of_group(key) {
                inserted = Err(error);
                self.start_over();
            } else if was_in {
                on_change(GroupChange::Renewed(id));
            } else {
                self.keys.seal_in(id.group);
                on_change(GroupChange::Joined(id.group));
            }
        }
        if let Some(group) = self.group() {
            // One that has lost sight of its leader is where it was.
            self.membership.set(Some(group));
        }
        self.transmit(now_ns);
        self.leaving.retain(|member| member.poll_timeout().is_some());
        inserted
    }

    /// Says what is due.
    fn transmit(&mut self, now_ns: u64) {
        let port = self.carrier.address().port;
        for member in self.leaving.iter_mut().chain(&mut self.member) {
            member.handle_timeout(now_ns, &mut entropy);
            while let Some(message) = member.poll_transmit() {
                // A message that does not get through now is said again.
                let _said_again =
                    self.carrier.try_send(Target { node: Some(member.leader()), port: Some(port) }, &message);
            }
        }
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        if !self.carrier.is_of_this_process() {
            return;
        }
        self.leave();
        // Once only: nobody repeats it. If it is lost, the leader's lease ends.
        self.transmit(monotonic_ns());
    }
}

/// The leader of one group. Dropped, it forgets the group's keys: its node hears the group no more.
#[derive(Debug)]
pub struct GroupLeader {
    carrier: Communicator,
    keys: Keys,
    leader: Leader,
    /// The group that sealed when it was made.
    home: Option<u32>,
    /// The group's newest key, while the node's ring has no room for it.
    pending: Option<GroupKey>,
    foreign: u64,
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        if !self.carrier.is_of_this_process() {
            return;
        }
        let newest = self.leader.key_id();
        let is_own = |id: &KeyId| (id.group, id.life) == (newest.group, newest.life);
        // A node that seals in the group seals as before it.
        if let Some(home) = self.home.filter(|_| self.keys.sealing().is_some_and(|id| is_own(&id))) {
            self.keys.seal_in(home);
        }
        // A leader that took its place has other keys.
        self.keys.ids().into_iter().filter(is_own).for_each(|id| self.keys.remove(id));
    }
}

impl GroupLeader {
    /// Leads a group from now on. `master` is the secret from which those of the members follow; `keys` are those with which
    /// the node of `carrier` was opened, and get the group's keys, so that it hears its members. The group that seals with them now
    /// seals what it tells newcomers, whichever the node is in later.
    ///
    /// # Errors
    /// [`KeyError::Fleet`] if that is the group to be led, or if that one has a key of no leader.
    pub fn new(
        carrier: Communicator,
        keys: &Keys,
        group: u32,
        master: Secret,
        timing: GroupTiming,
    ) -> Result<Self, KeyError> {
        let home = keys.sealing().map(|home| home.group);
        check_group(group, home, keys)?;
        if let Some(home) = home {
            carrier.seal_in(home);
        }
        let own = carrier.address().node;
        let leader = Leader::new(own, group, master, timing, monotonic_ns(), &mut entropy);
        Ok(Self { carrier, keys: keys.clone(), leader, home, pending: None, foreign: 0 })
    }

    /// Bars these nodes from the beginning: the list that an earlier life of this leader gave ([`Self::barred`]). To be called before
    /// the first turn, as that lets nodes in.
    #[must_use]
    pub fn barring(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        nodes.into_iter().for_each(|node| self.bar(node));
        self
    }

    /// The nodes that it bars, for storing: a leader that starts again must be given them ([`Self::barring`]).
    pub fn barred(&self) -> &[NodeId] {
        self.leader.barred()
    }

    /// The members of the group.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        self.leader.members()
    }

    /// As [`GroupMember::foreign`].
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Puts a node out, and does not let it in again. That holds for the life of this leader, and for later ones that are given the
    /// list ([`Self::barred`], [`Self::barring`]).
    pub fn bar(&mut self, node: NodeId) {
        self.leader.bar(node, monotonic_ns(), &mut entropy);
    }

    /// Gives the group another key before its time.
    pub fn renew(&mut self) {
        self.leader.renew(monotonic_ns(), &mut entropy);
    }

    /// Does what there is to do; tells what happened.
    ///
    /// # Errors
    /// [`KeyError::TooMany`]: the node's ring is full, and the group's key is not in it. Each turn tries again.
    pub fn turn(&mut self, mut on_event: impl FnMut(&LeaderEvent)) -> Result<(), KeyError> {
        let now_ns = monotonic_ns();
        let own = self.carrier.address();
        self.keys.housekeep();
        for _ in 0..TAKEN_FIRST_MAX {
            let Ok(message) = self.carrier.try_receive() else { break };
            self.foreign += u64::from(is_foreign(&message, own));
            self.leader.handle_message(message.payload, now_ns, &mut entropy);
        }
        self.leader.handle_timeout(now_ns, &mut entropy);
        let mut inserted = self.insert_pending();
        while let Some(event) = self.leader.poll_event() {
            // First: the event is not told again, and what it is told to may panic.
            if let LeaderEvent::Renewed(key) = &event {
                self.pending = Some(key.clone());
                inserted = self.insert_pending();
            }
            on_event(&event);
        }
        let port = self.carrier.address().port;
        while let Some((node, message)) = self.leader.poll_transmit() {
            let _said_again = self.carrier.try_send(Target { node: Some(node), port: Some(port) }, &message);
        }
        inserted
    }

    /// Puts the key that waits for it into the node's ring, or lets it wait for room there.
    fn insert_pending(&mut self) -> Result<(), KeyError> {
        let Some(key) = self.pending.take() else { return Ok(()) };
        let inserted = self.keys.insert_of_group(key.clone());
        self.pending = (inserted == Err(KeyError::TooMany)).then_some(key);
        inserted
    }
}
