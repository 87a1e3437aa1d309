//! The subscriber's side: an interest that is repeated until it is withdrawn, and the values from each publisher.

use alloc::collections::BTreeMap;

use super::lateness::Lateness;
use super::message::{Message, Refusal, Saying, TopicKey};
use crate::address::{Address, NodeId};
use crate::limits::NODES_MAX;
use crate::time::Nanos;

/// Durations of an interest: between its repetitions, and until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Time between repetitions: at least a millisecond.
    pub every: Nanos,
    /// Time that a publisher believes it: several times as long, so that a lost message ends nothing.
    pub lifetime: Nanos,
    /// Two are never nearer to each other than this, however many publishers ask.
    pub gap_min: Nanos,
}

impl Default for Repetition {
    fn default() -> Self {
        Self {
            every: Nanos::from_millis(1_000),
            lifetime: Nanos::from_millis(3_500),
            gap_min: Nanos::from_millis(10),
        }
    }
}

/// An interest is not repeated more often than this: with no time in between, what is said at one instant would have no end.
const EVERY_MIN: Nanos = Nanos::from_millis(1);

/// Publishers of one topic that a subscriber keeps an account of: as many as nodes on a bus.
pub const PUBLISHERS_MAX: usize = NODES_MAX;

/// Counts of the responses that a subscription was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionCounts {
    /// Values that were taken.
    pub taken: u64,
    /// Values for instants that are no multiples of the period: others wanted them.
    pub for_others: u64,
    /// Values for an instant that is not after the last one taken: doubled or overtaken.
    pub stale: u64,
    /// Instants between two values taken for which none came, by the publishers' own count of time.
    pub missed: u64,
    /// Instants between two values taken that passed while this communicator was not with that publisher, or with nobody: none
    /// was to come.
    pub away: u64,
    /// Values of publishers beyond [`PUBLISHERS_MAX`].
    pub too_many_publishers: u64,
    /// Accounts of a node with many publishers that made room for one of a node with fewer.
    pub displaced: u64,
    /// Refusals by publishers, by [`Refusal::place`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Number of times that the interest was announced.
    pub announced: u64,
}

/// A value that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// For which instant, µs since its publisher's schedule began.
    pub offset_us: u64,
    /// It was sent at once, between the instants.
    pub at_once: bool,
    /// Instants before it for which none came from this publisher. Time away from its group is none.
    pub missed_before: u64,
}

/// Lives of a publisher that are remembered when others have followed.
const FORMER_LIVES_MAX: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Source {
    life: u32,
    /// Lives before the present one, the latest first: their values that are still under way are late.
    former: [Option<u32>; FORMER_LIVES_MAX],
    /// A life of which values came since the last one of the present life: for which instant the first was, µs, and when it came.
    doubted: Option<(u32, u64, Nanos)>,
    /// Since its last value this communicator was among others.
    away: bool,
    /// The last instant of the schedule for which a value was taken, µs.
    last_us: u64,
    /// When it arrived; unknown where the last value was one at once.
    arrived: Option<Nanos>,
    heard: Nanos,
}

impl Source {
    /// True if a value of another life is late. A late value of a life that was never heard looks like the next life, and the present
    /// life then like a former one. The present life goes on: after a lifetime it is believed. Its own instants must say so, too, as a
    /// subscriber that stood still finds values that came meanwhile. Our time must say so as well, as the instants may be old.
    fn finds_late(&mut self, life: u32, offset_us: u64, now: Nanos, lifetime: Nanos) -> bool {
        let (since_us, since) = match self.doubted {
            Some((doubted, since_us, since)) if doubted == life => (since_us, since),
            _ => (offset_us, now),
        };
        self.doubted = Some((life, since_us, since));
        let goes_on =
            offset_us.saturating_sub(since_us) >= lifetime.0 / 1_000 && now.since(since) >= lifetime;
        self.former.contains(&Some(life)) && !goes_on
    }

    /// The former lives, seen from one that follows.
    fn followed_by(&self, life: u32) -> [Option<u32>; FORMER_LIVES_MAX] {
        let mut lives = [Some(self.life)].into_iter().chain(self.former).filter(|one| *one != Some(life));
        core::array::from_fn(|_| lives.next().flatten())
    }
}

/// An interest in one topic.
#[derive(Clone, Debug)]
pub struct Subscription {
    key: TopicKey,
    life: u32,
    period_us: u32,
    repetition: Repetition,
    announced: Option<Nanos>,
    next: Nanos,
    withdraws: bool,
    active: bool,
    /// Between two groups: nobody is told, and nothing is taken.
    away: bool,
    sources: BTreeMap<Address, Source>,
    jitter: Lateness,
    counts: SubscriptionCounts,
}

impl Subscription {
    /// An interest in a value every `period_us`, announced at once. `life` is the subscriber's, which another one at its address does
    /// not have: a publisher serves a new life at once.
    pub fn new(key: TopicKey, life: u32, period_us: u32, repetition: Repetition, now: Nanos) -> Self {
        let repetition = Repetition { every: repetition.every.max(EVERY_MIN), ..repetition };
        Self {
            key,
            life,
            period_us,
            repetition,
            announced: None,
            next: now,
            withdraws: false,
            active: true,
            away: false,
            sources: BTreeMap::new(),
            jitter: Lateness::default(),
            counts: SubscriptionCounts::default(),
        }
    }

    /// Topic and type that it is interested in.
    pub fn key(&self) -> TopicKey {
        self.key
    }

    /// Period, µs.
    pub fn period_us(&self) -> u32 {
        self.period_us
    }

    /// By how much the distance between the arrivals of two values of one publisher differed from that between their
    /// deadlines. Needs no common clock.
    pub fn jitter(&self) -> &Lateness {
        &self.jitter
    }

    /// Counts of the responses.
    pub fn counts(&self) -> SubscriptionCounts {
        self.counts
    }

    /// A message came from `source`; says whether it is a value to be delivered.
    pub fn handle_message(&mut self, source: Address, message: &Message<'_>, now: Nanos) -> Option<Taken> {
        if message.key != self.key || !self.active || self.away {
            return None;
        }
        match message.saying {
            Saying::Advertisement { .. } => {
                self.announce_soon(now);
                None
            }
            Saying::Refused { period_us, cause } if period_us == self.period_us => {
                self.counts.refused[cause.place()] += 1;
                None
            }
            Saying::Response { life, offset_us, at_once, .. } => {
                self.handle_response(source, life, offset_us, at_once, now)
            }
            _ => None,
        }
    }

    fn handle_response(
        &mut self,
        source: Address,
        life: u32,
        offset_us: u64,
        at_once: bool,
        now: Nanos,
    ) -> Option<Taken> {
        if !at_once && !offset_us.is_multiple_of(u64::from(self.period_us).max(1)) {
            self.counts.for_others += 1;
            return None;
        }
        let account = self.sources.get(&source).copied();
        if account.is_none() && !self.make_room(source.node, now) {
            self.counts.too_many_publishers += 1;
            return None;
        }
        let known = account.filter(|known| known.life == life);
        let last = known.map(|known| known.last_us);
        let lifetime = self.repetition.lifetime;
        let other = self.sources.get_mut(&source).filter(|account| account.life != life);
        let is_late = other.is_some_and(|account| account.finds_late(life, offset_us, now, lifetime));
        if is_late || last.is_some_and(|last| offset_us <= last) {
            self.counts.stale += 1;
            return None;
        }
        let arrived_before = known.and_then(|known| known.arrived);
        if let (false, Some(last), Some(before)) = (at_once, last, arrived_before) {
            let expected = Nanos((offset_us - last).saturating_mul(1_000));
            self.jitter.note(Nanos((now.since(before) - expected).unsigned_abs()));
        }
        let was_away = known.is_some_and(|known| known.away);
        let passed = last.map_or(0, |last| self.instants_between(last, offset_us, at_once));
        let missed_before = if was_away || at_once { 0 } else { passed };
        if was_away {
            self.counts.away = self.counts.away.saturating_add(passed);
        }
        // Between the instants no instant of the schedule is taken or missed, unless time away ends there.
        let last_us = if at_once && !was_away { last.unwrap_or(offset_us) } else { offset_us };
        let arrived = if at_once { arrived_before } else { Some(now) };
        let former = match (known, account) {
            (Some(known), _) => known.former,
            (None, Some(before)) => before.followed_by(life),
            (None, None) => [None; FORMER_LIVES_MAX],
        };
        let doubted = None;
        self.sources
            .insert(source, Source { life, former, doubted, away: false, last_us, arrived, heard: now });
        self.counts.taken += 1;
        self.counts.missed = self.counts.missed.saturating_add(missed_before);
        Some(Taken { offset_us, at_once, missed_before })
    }

    /// Multiples of the period after `last_us` and before `offset_us`; with one at that instant itself, if that was sent at once.
    fn instants_between(&self, last_us: u64, offset_us: u64, at_once: bool) -> u64 {
        let period = u64::from(self.period_us).max(1);
        let until = (offset_us / period).saturating_add(at_once.into());
        until.saturating_sub(last_us / period + 1)
    }

    /// Room for one more publisher, at the cost of one that has been silent for as long as an interest holds; otherwise at that
    /// of the node that has most accounts, if the newcomer's node has fewer even then. So no node fills them all.
    fn make_room(&mut self, newcomer: NodeId, now: Nanos) -> bool {
        if self.sources.len() < PUBLISHERS_MAX {
            return true;
        }
        let silent = self.sources.iter().min_by_key(|(_, source)| source.heard);
        let silent = silent.filter(|(_, source)| now.since(source.heard) >= self.repetition.lifetime);
        if let Some((&address, _)) = silent {
            self.sources.remove(&address);
            return true;
        }
        let (most, address) = self.most_of_a_node();
        let ours = self.sources.keys().filter(|address| address.node == newcomer).count();
        let Some(address) = address.filter(|address| address.node == newcomer || most > ours + 1) else {
            return false;
        };
        self.sources.remove(&address);
        self.counts.displaced += 1;
        true
    }

    /// Number of accounts of the node that has most, and of these the one that was silent for longest.
    fn most_of_a_node(&self) -> (usize, Option<Address>) {
        let (mut most, mut found) = (0, None);
        let mut run: Option<(NodeId, usize, Address, Nanos)> = None;
        // Accounts of one node stand together.
        for (&address, source) in &self.sources {
            let (count, oldest, heard) = match run {
                Some((node, count, oldest, heard)) if node == address.node && heard <= source.heard => {
                    (count + 1, oldest, heard)
                }
                Some((node, count, ..)) if node == address.node => (count + 1, address, source.heard),
                _ => (1, address, source.heard),
            };
            run = Some((address.node, count, oldest, heard));
            if count >= most {
                (most, found) = (count, Some(oldest));
            }
        }
        (most, found)
    }

    /// A publisher asks, or we are among others: as soon as may be.
    fn announce_soon(&mut self, now: Nanos) {
        let soonest = self.announced.map_or(now, |last| last.plus(self.repetition.gap_min).max(now));
        self.next = self.next.min(soonest);
    }

    /// This communicator is among others now, who do not know of the interest: repeated at once.
    pub fn handle_group_changed(&mut self, now: Nanos) {
        self.away = false;
        self.interrupt();
        if self.active {
            self.next = now;
        }
    }

    /// This communicator leaves the others, and is with nobody until [`Self::handle_group_changed`]: they are told that it wants
    /// no more.
    pub fn handle_group_left(&mut self) {
        self.withdraws |= self.active && !self.away;
        self.away = true;
        self.interrupt();
    }

    /// Until its next value, no publisher owes us one: we are elsewhere, or it does not know yet that we are here.
    fn interrupt(&mut self) {
        for source in self.sources.values_mut() {
            (source.away, source.arrived) = (true, None);
        }
    }

    /// No more values are taken, and publishers are told so.
    pub fn withdraw(&mut self) {
        self.withdraws |= self.active && !self.away;
        self.active = false;
    }

    /// The next message for everybody within reach.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Message<'static>> {
        if core::mem::take(&mut self.withdraws) {
            let saying = Saying::Withdrawal { period_us: self.period_us, life: self.life };
            return Some(Message { key: self.key, saying });
        }
        if !self.active || self.away || now < self.next {
            return None;
        }
        self.announced = Some(now);
        self.next = now.plus(self.repetition.every);
        self.counts.announced += 1;
        let lifetime_ms = u32::try_from(self.repetition.lifetime.0 / 1_000_000).unwrap_or(u32::MAX);
        let &mut Self { key, life, period_us, .. } = self;
        Some(Message { key, saying: Saying::Interest { period_us, lifetime_ms, life } })
    }

    /// When there is something to send next.
    pub fn next_timeout(&self) -> Nanos {
        match (self.withdraws, self.active && !self.away) {
            (true, _) => Nanos(0),
            (_, true) => self.next,
            _ => Nanos::NEVER,
        }
    }
}
