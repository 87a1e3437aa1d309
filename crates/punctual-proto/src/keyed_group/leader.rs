//! The leader's side: lets members in, hands out keys until each has them, and renews the key when somebody goes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use zeroize::Zeroize;

use super::{
    CHALLENGE_SIZE, Clear, Entropy, GroupTiming, Kind, SAID_SIZE, Said, Secret, Session, lock, unlock,
    write_grant,
};
use crate::NodeId;
use crate::limits::NODES_MAX;
use crate::seal::{GroupKey, KEY_SIZE, Key, KeyId};

/// Nodes that have asked and not yet confirmed: several times as many as a bus has. So a node that plays back old requests of many
/// pushes out nobody within the few trips of a message that this takes.
pub(super) const ASKING_MAX: usize = 4 * NODES_MAX;

/// Event in a group.
#[derive(Clone, Debug)]
pub enum LeaderEvent {
    /// A node has shown that it is there, and is a member.
    Joined(NodeId),
    /// A member left, or was not heard any more.
    Left(NodeId),
    /// The group has a new key.
    Renewed(GroupKey),
}

/// State of one member at its leader.
#[derive(Debug)]
pub(super) struct Peer {
    node: NodeId,
    secret: Secret,
    pub(super) session: Session,
    heard_ns: u64,
    /// Number of the next message to it in this session, and of the last one from it.
    number: u64,
    heard: u64,
    /// Newest generation that it has acknowledged.
    acknowledged: u32,
    next_ns: u64,
}

/// A node that has asked, or of which somebody plays back that it did. Its challenge stays until it is confirmed: so nothing that
/// is played back takes away what the node itself was offered.
#[derive(Debug)]
pub(super) struct Asking {
    node: NodeId,
    challenge: [u8; CHALLENGE_SIZE],
    asked_ns: u64,
}

/// The leader of one group.
#[derive(Debug)]
pub struct Leader {
    own: NodeId,
    master: Secret,
    timing: GroupTiming,
    /// The newest key.
    key: GroupKey,
    /// The one before it, which seals until its time comes.
    earlier: Option<GroupKey>,
    pub(super) members: Vec<Peer>,
    pub(super) asking: Vec<Asking>,
    barred: Vec<NodeId>,
    renew_ns: u64,
    outbox: VecDeque<(NodeId, Vec<u8>)>,
    events: VecDeque<LeaderEvent>,
}

fn new_key(id: KeyId, from_ns: u64, entropy: &mut dyn Entropy) -> GroupKey {
    loop {
        let mut bytes = [0; KEY_SIZE];
        entropy.fill(&mut bytes);
        let key = Key::new(bytes);
        bytes.zeroize();
        if let Some(key) = key {
            return GroupKey { id, key, from_ns };
        }
    }
}

/// Draws a new life of a leader: never 0, which is that of keys that have no leader.
fn new_life(entropy: &mut dyn Entropy) -> u64 {
    loop {
        let mut bytes = [0; 8];
        entropy.fill(&mut bytes);
        let life = u64::from_le_bytes(bytes);
        if life != 0 {
            return life;
        }
    }
}

impl Leader {
    /// Leads `group`; `master` is the secret from which those of the members follow. A leader that starts again needs to know
    /// nothing of its earlier lives but whom they barred: its members take what this life hands them for newer.
    pub fn new(
        own: NodeId,
        group: u32,
        master: Secret,
        timing: GroupTiming,
        now_ns: u64,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let id = KeyId { group, life: new_life(entropy), generation: 1 };
        let key = new_key(id, now_ns, entropy);
        let renew_ns = now_ns.saturating_add(timing.renewal_ns);
        let events = VecDeque::from([LeaderEvent::Renewed(key.clone())]);
        Self {
            own,
            master,
            timing,
            key,
            earlier: None,
            members: Vec::new(),
            asking: Vec::new(),
            barred: Vec::new(),
            renew_ns,
            outbox: VecDeque::new(),
            events,
        }
    }

    /// The newest key.
    pub fn key(&self) -> &GroupKey {
        &self.key
    }

    /// Name of the group's newest key: all of a leader's keys have its life.
    pub fn key_id(&self) -> KeyId {
        self.key.id
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        self.members.iter().map(|member| member.node)
    }

    /// The nodes that [`Self::bar`] put out, for storing: another life of this leader knows nothing of them.
    pub fn barred(&self) -> &[NodeId] {
        &self.barred
    }

    /// Puts a node out, and does not let it in again in this life. A leader that starts again bars those of its earlier lives before
    /// it takes any message.
    pub fn bar(&mut self, node: NodeId, now_ns: u64, entropy: &mut dyn Entropy) {
        if !self.barred.contains(&node) {
            self.barred.push(node);
        }
        self.asking.retain(|asking| asking.node != node);
        if let Some(index) = self.index_of(node) {
            self.forget(index, now_ns, entropy);
        }
    }

    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    /// Takes a message from the network.
    pub fn handle_message(&mut self, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        let Some(clear) = Clear::read(message) else { return };
        if clear.group != self.key.id.group || clear.target != self.own || self.barred.contains(&clear.source)
        {
            return;
        }
        match clear.kind {
            Kind::Ask => self.handle_ask(&clear, message, now_ns, entropy),
            Kind::Confirm => self.handle_confirm(&clear, message, now_ns, entropy),
            Kind::Alive | Kind::Leave => self.handle_member(&clear, message, now_ns, entropy),
            Kind::Offer | Kind::Grant => {}
        }
    }

    /// A node asks, or somebody plays back an old request of a node. An offer harms nobody, and changes nothing for a node that is a
    /// member, or about to become one.
    fn handle_ask(&mut self, clear: &Clear, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        let node = clear.source;
        let secret = self.master.of_member(node);
        let Some(contents) = unlock(&secret, clear, &Session::default(), message) else { return };
        let Ok(member) = <[u8; CHALLENGE_SIZE]>::try_from(&contents[..]) else { return };
        let asked_before =
            self.members.iter().find(|peer| peer.node == node && peer.session.member == member);
        let challenge = match asked_before {
            Some(peer) => peer.session.leader,
            None => self.challenge_for(node, now_ns, entropy),
        };
        let answer = Clear { kind: Kind::Offer, source: self.own, target: node, ..*clear };
        let asked = Session { member, ..Session::default() };
        self.outbox.push_back((node, lock(&secret, &answer, &asked, &challenge, entropy)));
    }

    /// Challenge that a node must confirm to become a member.
    fn challenge_for(
        &mut self,
        node: NodeId,
        now_ns: u64,
        entropy: &mut dyn Entropy,
    ) -> [u8; CHALLENGE_SIZE] {
        if let Some(known) = self.asking.iter_mut().find(|asking| asking.node == node) {
            known.asked_ns = now_ns;
            return known.challenge;
        }
        if self.asking.len() == ASKING_MAX {
            let ages = self.asking.iter().enumerate();
            let oldest = ages.min_by_key(|(_, asking)| asking.asked_ns).map_or(0, |(index, _)| index);
            self.asking.swap_remove(oldest);
        }
        let mut challenge = [0; CHALLENGE_SIZE];
        entropy.fill(&mut challenge);
        self.asking.push(Asking { node, challenge, asked_ns: now_ns });
        challenge
    }

    /// A node that was asked whether it is there now says so.
    fn handle_confirm(&mut self, clear: &Clear, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        let node = clear.source;
        let secret = self.master.of_member(node);
        let opens = |leader| {
            let contents = unlock(&secret, clear, &Session { leader, ..Session::default() }, message)?;
            let (said, member) = contents.split_at_checked(SAID_SIZE)?;
            Some((Said::read(said)?, Session { member: member.try_into().ok()?, leader }))
        };
        if let Some(index) = self.index_of(node)
            && let Some((said, session)) = opens(self.members[index].session.leader)
        {
            // Said again: it has not got its key. Messages of a session that came to nothing, under the same challenge of ours, have
            // numbers of their own. Played back, they would make those of this session old.
            let peer = &mut self.members[index];
            if session.member == peer.session.member && peer.hears(said, now_ns) {
                self.grant(index, now_ns, entropy);
            }
            return;
        }
        let Some(place) = self.asking.iter().position(|asking| asking.node == node) else { return };
        let Some((said, session)) = opens(self.asking[place].challenge) else { return };
        self.asking.swap_remove(place);
        let peer = Peer {
            node,
            secret,
            session,
            heard_ns: now_ns,
            number: 1,
            heard: said.number,
            acknowledged: 0,
            next_ns: u64::MAX,
        };
        self.admit(peer, now_ns, entropy);
    }

    fn admit(&mut self, peer: Peer, now_ns: u64, entropy: &mut dyn Entropy) {
        let index = match self.index_of(peer.node) {
            // It has lost sight of us, and is back before we noticed.
            Some(index) => {
                self.members[index] = peer;
                index
            }
            None if self.members.len() == NODES_MAX => return,
            None => {
                self.events.push_back(LeaderEvent::Joined(peer.node));
                self.members.push(peer);
                self.members.len() - 1
            }
        };
        self.grant(index, now_ns, entropy);
    }

    fn handle_member(&mut self, clear: &Clear, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        let Some(index) = self.index_of(clear.source) else { return };
        let peer = &mut self.members[index];
        let contents = unlock(&peer.secret, clear, &peer.session, message);
        let Some(said) = contents.and_then(|contents| Said::read(&contents)) else { return };
        if !peer.hears(said, now_ns) {
            return;
        }
        if clear.kind == Kind::Leave {
            self.forget(index, now_ns, entropy);
            return;
        }
        let generation = u32::try_from(said.generation).unwrap_or(u32::MAX);
        peer.acknowledged = peer.acknowledged.max(generation.min(self.key.id.generation));
        // An answer, by which the member knows that it is not forgotten.
        self.grant(index, now_ns, entropy);
    }

    /// Hands a member the first key that it has not acknowledged, of those that seal now or later; again later, until it has the
    /// newest. A node that comes while the newest waits for its time must speak and hear until then.
    fn grant(&mut self, index: usize, now_ns: u64, entropy: &mut dyn Entropy) {
        self.forget_earlier(now_ns);
        let peer = &mut self.members[index];
        let clear =
            Clear { kind: Kind::Grant, group: self.key.id.group, source: self.own, target: peer.node };
        let earlier = self.earlier.as_ref().filter(|key| key.id.generation > peer.acknowledged);
        let grant = write_grant(peer.number, earlier.unwrap_or(&self.key), now_ns);
        peer.number += 1;
        let is_known = peer.acknowledged >= self.key.id.generation;
        peer.next_ns = if is_known { u64::MAX } else { now_ns.saturating_add(self.timing.retry_ns) };
        let message = lock(&peer.secret, &clear, &peer.session, &grant[..], entropy);
        self.outbox.push_back((peer.node, message));
    }

    /// A member is out: the key that it has is not for long.
    fn forget(&mut self, index: usize, now_ns: u64, entropy: &mut dyn Entropy) {
        let gone = self.members.swap_remove(index);
        self.events.push_back(LeaderEvent::Left(gone.node));
        self.renew(now_ns, entropy);
    }

    /// A new key for those who are in now; when the newest one's time has come, if it still waits for it. So however many go,
    /// rings hold few keys, and none that never sealed.
    pub fn renew(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        if self.key.from_ns > now_ns {
            self.renew_ns = self.renew_ns.min(self.key.from_ns);
            return;
        }
        let id = KeyId { generation: self.key.id.generation + 1, ..self.key.id };
        let key = new_key(id, now_ns.saturating_add(self.timing.notice_ns), entropy);
        self.earlier = Some(core::mem::replace(&mut self.key, key));
        self.renew_ns = now_ns.saturating_add(self.timing.renewal_ns);
        self.events.push_back(LeaderEvent::Renewed(self.key.clone()));
        for index in 0..self.members.len() {
            self.grant(index, now_ns, entropy);
        }
    }

    /// Forgets the key that does not seal any more.
    fn forget_earlier(&mut self, now_ns: u64) {
        if self.key.from_ns <= now_ns {
            self.earlier = None;
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> u64 {
        let lease_ns = self.timing.lease_ns;
        let members =
            self.members.iter().map(|peer| peer.next_ns.min(peer.heard_ns.saturating_add(lease_ns)));
        let asking = self.asking.iter().map(|asking| asking.asked_ns.saturating_add(lease_ns));
        members.chain(asking).min().unwrap_or(u64::MAX).min(self.renew_ns)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        let holds = |since_ns: u64| now_ns.saturating_sub(since_ns) < self.timing.lease_ns;
        self.asking.retain(|asking| holds(asking.asked_ns));
        let (events, before) = (&mut self.events, self.members.len());
        self.members.retain(|peer| {
            if !holds(peer.heard_ns) {
                events.push_back(LeaderEvent::Left(peer.node));
            }
            holds(peer.heard_ns)
        });
        self.forget_earlier(now_ns);
        if self.members.len() < before || now_ns >= self.renew_ns {
            self.renew(now_ns, entropy);
        }
        for index in 0..self.members.len() {
            if now_ns >= self.members[index].next_ns {
                self.grant(index, now_ns, entropy);
            }
        }
    }

    /// The next message, and its receiver.
    pub fn poll_transmit(&mut self) -> Option<(NodeId, Vec<u8>)> {
        self.outbox.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<LeaderEvent> {
        self.events.pop_front()
    }
}

impl Peer {
    /// True if a message is newer than all before it in this session.
    fn hears(&mut self, said: Said, now_ns: u64) -> bool {
        let is_new = said.number > self.heard;
        if is_new {
            (self.heard, self.heard_ns) = (said.number, now_ns);
        }
        is_new
    }
}
