//! The leader's side: lets members in, hands out keys until each has them, and renews the key when somebody goes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{CHALLENGE_SIZE, Clear, Entropy, GroupTiming, Kind, Secret, Session, lock, unlock, write_grant};
use crate::NodeId;
use crate::limits::NODES_MAX;
use crate::seal::{KEY_SIZE, Key, KeyId, RingKey};

/// What happened in a group.
#[derive(Clone, Debug)]
pub enum LeaderEvent {
    /// A node has shown that it is there, and is a member.
    Joined(NodeId),
    /// A member left, or was not heard any more.
    Left(NodeId),
    /// The group has a new key.
    Renewed(RingKey),
}

/// What a leader knows of one node.
#[derive(Debug)]
struct Peer {
    node: NodeId,
    secret: Secret,
    session: Session,
    is_member: bool,
    heard_ns: u64,
    /// Number of the next message to it in this session, and of the last one from it.
    number: u64,
    heard: Option<u64>,
    /// Newest generation that it has acknowledged.
    acknowledged: u32,
    next_ns: u64,
}

/// The leader of one group.
#[derive(Debug)]
pub struct Leader {
    own: NodeId,
    group: u32,
    master: Secret,
    timing: GroupTiming,
    /// The newest key.
    key: RingKey,
    /// Those before it that seal until its time comes, oldest first: the one that seals now, and what begins in between.
    earlier: Vec<RingKey>,
    peers: Vec<Peer>,
    barred: Vec<NodeId>,
    renew_ns: u64,
    outbox: VecDeque<(NodeId, Vec<u8>)>,
    events: VecDeque<LeaderEvent>,
}

fn new_key(id: KeyId, from_ns: u64, entropy: &mut dyn Entropy) -> RingKey {
    loop {
        let mut bytes = [0; KEY_SIZE];
        entropy.fill(&mut bytes);
        if let Some(key) = Key::new(bytes) {
            return RingKey { id, key, from_ns };
        }
    }
}

impl Leader {
    /// Leads `group`; `master` is the secret from which those of the members follow. A leader that starts again must begin
    /// with a higher generation than its last: the second of 1970 will do.
    pub fn new(
        own: NodeId,
        (group, generation): (u32, u32),
        master: Secret,
        timing: GroupTiming,
        now_ns: u64,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let key = new_key(KeyId { group, generation }, now_ns, entropy);
        let renew_ns = now_ns.saturating_add(timing.renewal_ns);
        let events = VecDeque::from([LeaderEvent::Renewed(key.clone())]);
        Self {
            own,
            group,
            master,
            timing,
            key,
            earlier: Vec::new(),
            peers: Vec::new(),
            barred: Vec::new(),
            renew_ns,
            outbox: VecDeque::new(),
            events,
        }
    }

    /// The newest key.
    pub fn key(&self) -> &RingKey {
        &self.key
    }

    /// Who is in.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        self.peers.iter().filter(|peer| peer.is_member).map(|peer| peer.node)
    }

    /// Puts a node out, and does not let it in again.
    pub fn bar(&mut self, node: NodeId, now_ns: u64, entropy: &mut dyn Entropy) {
        if !self.barred.contains(&node) {
            self.barred.push(node);
        }
        // A member that has asked again has two sessions.
        let was_member = self.members().any(|member| member == node);
        self.peers.retain(|peer| peer.node != node);
        if was_member {
            self.handle_gone(node, now_ns, entropy);
        }
    }

    /// Takes a message from the network.
    pub fn handle_message(&mut self, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        let Some(clear) = Clear::read(message) else { return };
        if clear.group != self.group || clear.target != self.own || self.barred.contains(&clear.source) {
            return;
        }
        match clear.kind {
            Kind::Ask => self.handle_ask(&clear, message, now_ns, entropy),
            Kind::Confirm | Kind::Alive | Kind::Leave => {
                self.handle_session(&clear, message, now_ns, entropy);
            }
            Kind::Offer | Kind::Grant => {}
        }
    }

    /// Somebody asks, or somebody plays back that he once did: an offer harms nobody, and a member stays one meanwhile.
    fn handle_ask(&mut self, clear: &Clear, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        let secret = self.master.of_member(clear.source);
        let Some(contents) = unlock(&secret, clear, &Session::default(), message) else { return };
        let Ok(member) = <[u8; CHALLENGE_SIZE]>::try_from(&contents[..]) else { return };
        let known = self.peers.iter().position(|peer| peer.node == clear.source && !peer.is_member);
        let asked_again = known.filter(|&index| self.peers[index].session.member == member);
        let index = match (asked_again, known) {
            (Some(index), _) => index,
            (None, old) => {
                if let Some(old) = old {
                    self.peers.swap_remove(old);
                }
                if self.peers.len() == 2 * NODES_MAX {
                    return;
                }
                let mut session = Session { member, ..Session::default() };
                entropy.fill(&mut session.leader);
                self.peers.push(Peer {
                    node: clear.source,
                    secret,
                    session,
                    is_member: false,
                    heard_ns: now_ns,
                    number: 1,
                    heard: None,
                    acknowledged: 0,
                    next_ns: u64::MAX,
                });
                self.peers.len() - 1
            }
        };
        let peer = &self.peers[index];
        let answer = Clear { kind: Kind::Offer, group: self.group, source: self.own, target: peer.node };
        let asked = Session { member, ..Session::default() };
        let offer = lock(&peer.secret, &answer, &asked, &peer.session.leader, entropy);
        self.outbox.push_back((peer.node, offer));
    }

    fn handle_session(&mut self, clear: &Clear, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        // A member that asks again has two sessions until it has confirmed the new one.
        let opens = |peer: &Peer| {
            let contents = unlock(&peer.secret, clear, &peer.session, message)?;
            let number = u64::from_le_bytes(*contents.first_chunk()?);
            let generation = u64::from_le_bytes(*contents.get(8..)?.first_chunk()?);
            Some((number, u32::try_from(generation).ok()?))
        };
        let of_source = self.peers.iter().enumerate().filter(|(_, peer)| peer.node == clear.source);
        let found = of_source.filter_map(|(index, peer)| Some((index, opens(peer)?))).next();
        let Some((index, (number, generation))) = found else { return };
        let peer = &mut self.peers[index];
        if peer.heard.is_some_and(|heard| number <= heard) {
            return;
        }
        (peer.heard, peer.heard_ns) = (Some(number), now_ns);
        match clear.kind {
            Kind::Confirm => self.admit(index, now_ns, entropy),
            Kind::Alive if peer.is_member => {
                peer.acknowledged = peer.acknowledged.max(generation);
                // An answer, by which the member knows that it is not forgotten.
                peer.next_ns = now_ns;
                self.grant(index, now_ns, entropy);
            }
            Kind::Leave if peer.is_member => self.forget(index, now_ns, entropy),
            _ => {}
        }
    }

    fn admit(&mut self, index: usize, now_ns: u64, entropy: &mut dyn Entropy) {
        let Peer { node, session, is_member, .. } = self.peers[index];
        if !is_member {
            let was_member = self.members().any(|member| member == node);
            self.peers[index].is_member = true;
            // Of two sessions only this one lasts, also if the same question was asked in both.
            self.peers.retain(|peer| peer.node != node || peer.session == session);
            if !was_member {
                self.events.push_back(LeaderEvent::Joined(node));
            }
        }
        if let Some(index) = self.peers.iter().position(|peer| peer.node == node) {
            self.grant(index, now_ns, entropy);
        }
    }

    /// Hands a member the first key that it has not acknowledged, of those that seal now or later; again later, until it has
    /// the newest. Who comes while the newest waits for its time must speak and hear until then.
    fn grant(&mut self, index: usize, now_ns: u64, entropy: &mut dyn Entropy) {
        self.forget_keys(now_ns);
        let peer = &mut self.peers[index];
        let clear = Clear { kind: Kind::Grant, group: self.group, source: self.own, target: peer.node };
        let key = self.earlier.iter().find(|key| key.id.generation > peer.acknowledged).unwrap_or(&self.key);
        // A newcomer's clock may be behind ours: to it, a key that seals already has always done so.
        let from_ns = if peer.acknowledged == 0 && key.from_ns <= now_ns { 0 } else { key.from_ns };
        let grant = write_grant(peer.number, &RingKey { from_ns, ..key.clone() });
        peer.number += 1;
        let is_known = peer.acknowledged >= self.key.id.generation;
        peer.next_ns = if is_known { u64::MAX } else { now_ns.saturating_add(self.timing.retry_ns) };
        let message = lock(&peer.secret, &clear, &peer.session, &grant[..], entropy);
        self.outbox.push_back((peer.node, message));
    }

    fn forget(&mut self, index: usize, now_ns: u64, entropy: &mut dyn Entropy) {
        let gone = self.peers.swap_remove(index);
        if gone.is_member {
            self.handle_gone(gone.node, now_ns, entropy);
        }
    }

    /// A member is out: the key that it has is not for long.
    fn handle_gone(&mut self, node: NodeId, now_ns: u64, entropy: &mut dyn Entropy) {
        self.events.push_back(LeaderEvent::Left(node));
        self.renew(now_ns, entropy);
    }

    /// A new key for those who are in now.
    pub fn renew(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        let id = KeyId { generation: self.key.id.generation + 1, ..self.key.id };
        let key = new_key(id, now_ns.saturating_add(self.timing.notice_ns), entropy);
        self.earlier.push(core::mem::replace(&mut self.key, key));
        self.forget_keys(now_ns);
        self.renew_ns = now_ns.saturating_add(self.timing.renewal_ns);
        self.events.push_back(LeaderEvent::Renewed(self.key.clone()));
        for index in 0..self.peers.len() {
            if self.peers[index].is_member {
                self.grant(index, now_ns, entropy);
            }
        }
    }

    /// Forgets the keys before the one that seals now.
    fn forget_keys(&mut self, now_ns: u64) {
        let begun = self.earlier.iter().take_while(|key| key.from_ns <= now_ns).count();
        let over = if self.key.from_ns <= now_ns { begun } else { begun.saturating_sub(1) };
        self.earlier.drain(..over);
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> u64 {
        let end = |peer: &Peer| peer.next_ns.min(peer.heard_ns.saturating_add(self.timing.lease_ns));
        self.peers.iter().map(end).min().unwrap_or(u64::MAX).min(self.renew_ns)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        let lease_ns = self.timing.lease_ns;
        let is_silent = |peer: &Peer| now_ns.saturating_sub(peer.heard_ns) >= lease_ns;
        let before = self.peers.iter().filter(|peer| peer.is_member).count();
        let silent = self.peers.iter().filter(|peer| peer.is_member && is_silent(peer));
        let gone: Vec<LeaderEvent> = silent.map(|peer| LeaderEvent::Left(peer.node)).collect();
        self.peers.retain(|peer| !is_silent(peer));
        self.events.extend(gone);
        let has_shrunk = self.peers.iter().filter(|peer| peer.is_member).count() < before;
        if has_shrunk || now_ns >= self.renew_ns {
            self.renew(now_ns, entropy);
        }
        for index in 0..self.peers.len() {
            if self.peers[index].is_member && now_ns >= self.peers[index].next_ns {
                self.grant(index, now_ns, entropy);
            }
        }
    }

    /// The next message, and for whom.
    pub fn poll_transmit(&mut self) -> Option<(NodeId, Vec<u8>)> {
        self.outbox.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<LeaderEvent> {
        self.events.pop_front()
    }
}
