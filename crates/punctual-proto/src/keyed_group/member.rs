//! The member's side: asks, proves that it is there, takes keys, says that it is still there, leaves.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{
    CHALLENGE_SIZE, CONFIRM_SIZE, Clear, Entropy, GroupTiming, Kind, SAID_SIZE, Said, Secret, Session, lock,
    read_grant, unlock,
};
use crate::NodeId;
use crate::seal::GroupKey;

/// Times that a leaving member says so: nobody answers.
const FAREWELLS: u32 = 3;

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It asks to be let in.
    Asking,
    /// The leader has answered; it proves that it is there.
    Confirming,
    /// It holds the group's key.
    Joined,
    /// It has said that it goes.
    Left,
}

/// One member of one group.
#[derive(Debug)]
pub struct Member {
    own: NodeId,
    leader: NodeId,
    group: u32,
    secret: Secret,
    timing: GroupTiming,
    state: State,
    session: Session,
    /// Number of the next message to the leader in this session, and of the last one from it.
    number: u64,
    heard: u64,
    /// The session before this one, and the number of its next message. The leader may still have it: until a grant says otherwise, a
    /// goodbye is said in both. An earlier one is over: it was given up a lease before, and the leader has heard nothing in it since.
    former: Option<(Session, u64)>,
    /// Newest key held: of which life of the leader, and its generation.
    life: u64,
    generation: u32,
    heard_ns: u64,
    next_ns: u64,
    /// When it last said that it is there.
    alive_ns: u64,
    farewells: u32,
    outbox: VecDeque<Vec<u8>>,
}

impl Member {
    /// Wants to join `group`, which `leader` leads; `secret` is what it shares with the leader ([`Secret::of_member`]).
    pub fn new(
        (own, leader): (NodeId, NodeId),
        group: u32,
        secret: Secret,
        timing: GroupTiming,
        now_ns: u64,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let mut member = Self {
            own,
            leader,
            group,
            secret,
            timing,
            state: State::Asking,
            session: Session::default(),
            number: 0,
            heard: 0,
            former: None,
            life: 0,
            generation: 0,
            heard_ns: now_ns,
            next_ns: now_ns,
            alive_ns: 0,
            farewells: FAREWELLS,
            outbox: VecDeque::new(),
        };
        member.begin(now_ns, entropy);
        member
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The group.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Its leader.
    pub fn leader(&self) -> NodeId {
        self.leader
    }

    /// True if its leader may have a session with it, and is to hear a goodbye.
    pub(super) fn has_session(&self) -> bool {
        self.is_offered() || self.former.is_some()
    }

    /// True if the leader has answered in this session.
    fn is_offered(&self) -> bool {
        self.session.leader != [0; CHALLENGE_SIZE]
    }

    /// There was no room for its key: it asks once more, after a retry.
    pub fn start_over(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        self.begin(now_ns, entropy);
        // Not at once.
        self.outbox.clear();
        (self.life, self.generation) = (0, 0);
    }

    /// A new session: nothing of an earlier one opens any more.
    fn begin(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        if self.is_offered() {
            self.former = Some((self.session, self.number));
        }
        self.session = Session::default();
        entropy.fill(&mut self.session.member);
        (self.state, self.number, self.heard, self.heard_ns) = (State::Asking, 0, 0, now_ns);
        self.send(Kind::Ask, now_ns, entropy);
    }

    fn send(&mut self, kind: Kind, now_ns: u64, entropy: &mut dyn Entropy) {
        let clear = Clear { kind, group: self.group, source: self.own, target: self.leader };
        let said = Said { number: self.number, generation: self.generation.into() };
        let mut confirmed = [0; CONFIRM_SIZE];
        confirmed[..SAID_SIZE].copy_from_slice(&said.write());
        confirmed[SAID_SIZE..].copy_from_slice(&self.session.member);
        let (contents, session) = match kind {
            Kind::Ask => (&self.session.member[..], Session::default()),
            // The leader does not keep what it was asked: it is told once more.
            Kind::Confirm => (&confirmed[..], Session { leader: self.session.leader, ..Session::default() }),
            _ => (&confirmed[..SAID_SIZE], self.session),
        };
        self.number += 1;
        self.outbox.push_back(lock(&self.secret, &clear, &session, contents, entropy));
        let again_ns = if kind == Kind::Alive { self.timing.lease_ns / 3 } else { self.timing.retry_ns };
        if kind == Kind::Alive {
            self.alive_ns = now_ns;
        }
        self.next_ns = now_ns.saturating_add(again_ns);
    }

    /// Takes a message from the network; the new key, if it brings one.
    pub fn handle_message(
        &mut self,
        message: &[u8],
        now_ns: u64,
        entropy: &mut dyn Entropy,
    ) -> Option<GroupKey> {
        let clear = Clear::read(message)?;
        let expected = Clear { kind: clear.kind, group: self.group, source: self.leader, target: self.own };
        if clear != expected {
            return None;
        }
        match (clear.kind, self.state) {
            // An offer that is confirmed is no news: a repeated one would only put off the end of a session that leads nowhere.
            (Kind::Offer, State::Asking) => {
                self.handle_offer(&clear, message, now_ns, entropy);
                None
            }
            (Kind::Grant, State::Confirming | State::Joined) => {
                self.handle_grant(&clear, message, now_ns, entropy)
            }
            _ => None,
        }
    }

    fn handle_offer(&mut self, clear: &Clear, message: &[u8], now_ns: u64, entropy: &mut dyn Entropy) {
        let asked = Session { member: self.session.member, ..Session::default() };
        let Some(contents) = unlock(&self.secret, clear, &asked, message) else { return };
        let Ok(challenge) = <[u8; CHALLENGE_SIZE]>::try_from(&contents[..]) else { return };
        self.session.leader = challenge;
        self.state = State::Confirming;
        self.heard_ns = now_ns;
        self.send(Kind::Confirm, now_ns, entropy);
    }

    fn handle_grant(
        &mut self,
        clear: &Clear,
        message: &[u8],
        now_ns: u64,
        entropy: &mut dyn Entropy,
    ) -> Option<GroupKey> {
        let contents = unlock(&self.secret, clear, &self.session, message)?;
        let (number, key) = read_grant(self.group, &contents, now_ns)?;
        if number <= self.heard {
            return None;
        }
        let was_in = self.state == State::Joined;
        self.former = None;
        (self.heard, self.heard_ns, self.state) = (number, now_ns, State::Joined);
        // The session is fresh at both ends: from a leader that has started again, this is the newest key, regardless of its number.
        let is_new = key.id.life != self.life || key.id.generation > self.generation;
        if is_new {
            (self.life, self.generation) = (key.id.life, key.id.generation);
        }
        // The leader's answer to our last Alive needs no Alive. A repetition by the leader needs one, as the last may be lost.
        if is_new || !was_in || now_ns.saturating_sub(self.alive_ns) >= self.timing.retry_ns {
            self.send(Kind::Alive, now_ns, entropy);
        }
        is_new.then_some(key)
    }

    /// Says that it leaves, to a leader that may have a session with it. The caller forgets the group's keys.
    pub fn leave(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        if self.state != State::Left {
            self.state = State::Left;
            if !self.has_session() {
                self.farewells = 0;
            }
            // Its next message could be a third of a lease away. The farewell is due now, and its repetitions soon after.
            self.next_ns = now_ns;
            self.handle_timeout(now_ns, entropy);
        }
    }

    /// Says so in each session that the leader may have: it knows one of them, and passes over what is said in the other.
    fn say_goodbye(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        if self.is_offered() {
            self.send(Kind::Leave, now_ns, entropy);
        }
        if let Some(former) = self.former {
            let current = (self.session, self.number);
            (self.session, self.number) = former;
            self.send(Kind::Leave, now_ns, entropy);
            self.former = Some((self.session, self.number));
            (self.session, self.number) = current;
        }
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<u64> {
        (self.state != State::Left || self.farewells > 0).then_some(self.next_ns)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        if now_ns < self.next_ns {
            return;
        }
        let is_silent = now_ns.saturating_sub(self.heard_ns) >= self.timing.lease_ns;
        match self.state {
            State::Left if self.farewells == 0 => {}
            State::Left => {
                self.farewells -= 1;
                self.say_goodbye(now_ns, entropy);
            }
            // The leader has forgotten us, or is another one now: from the start.
            State::Confirming | State::Joined if is_silent => self.begin(now_ns, entropy),
            State::Asking => self.send(Kind::Ask, now_ns, entropy),
            State::Confirming => self.send(Kind::Confirm, now_ns, entropy),
            State::Joined => self.send(Kind::Alive, now_ns, entropy),
        }
    }

    /// The next message for the leader.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }
}
