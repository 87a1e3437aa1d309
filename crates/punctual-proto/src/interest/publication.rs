//! The publisher's side: the subscribers and their periods, the next due value, its instant and its receivers.

use alloc::collections::{BTreeMap, VecDeque};

use super::at_once::AtOnce;
use super::message::{Message, Refusal, Saying, TopicKey};
use super::schedule::{Instant, Schedule};
use crate::address::{Address, NodeId, Port, Target};
use crate::time::Nanos;

/// Limits of a publisher. Interests beyond them are refused in words and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicationLimits {
    /// Interests in all: each is an entry of a table.
    pub interests_max: usize,
    /// Interests of one node, so that no node takes all places.
    pub interests_of_node_max: usize,
    /// Different periods: each is looked at whenever something is due.
    pub periods_max: usize,
    /// Different periods of one node, so that no node takes all of these.
    pub periods_of_node_max: usize,
    /// Shortest period, µs. Below it, waking up costs more than the period lasts.
    pub period_min_us: u32,
    /// Responses per second, all periods together. Newcomers are sent as many again at once, at most.
    pub rate_max: u64,
    /// Responses per second for all periods of one node, as if it were alone. It is sent as many again at once, at most.
    pub rate_of_node_max: u64,
    /// Longest that an interest holds without being repeated, ms, even if it asks for more.
    pub lifetime_max_ms: u32,
}

impl Default for PublicationLimits {
    fn default() -> Self {
        Self {
            interests_max: 1_024,
            interests_of_node_max: 64,
            periods_max: 64,
            periods_of_node_max: 16,
            period_min_us: 100,
            rate_max: 20_000,
            rate_of_node_max: 10_000,
            lifetime_max_ms: 60_000,
        }
    }
}

/// Answers that wait to be sent: newcomers to be served at once, refusals. An answer that finds no place is not sent; the subscriber
/// will ask again.
const WAITING_MAX: usize = 256;

/// Counts of the messages that a publication was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicationCounts {
    /// Interests that were new.
    pub accepted: u64,
    /// Interests that were known.
    pub renewed: u64,
    /// Interests that their subscribers withdrew.
    pub withdrawn: u64,
    /// Interests that were not repeated in time.
    pub expired: u64,
    /// Interests that were refused, by [`Refusal::place`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Newcomers and refusals that found no place to wait, and newcomers beyond the values that are sent at once in a second.
    pub unanswered: u64,
}

/// A value that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// For which instant. For a newcomer, this very one.
    pub instant: Instant,
    /// It is for one newcomer, between the instants of the schedule.
    pub at_once: bool,
    /// Receiver of the value; `None` if nobody on the bus wants it, but the publisher itself does.
    pub target: Option<Target>,
    /// True if the publisher's own communicator wants it: no medium brings it back.
    pub own: bool,
}

/// Responses per second, rounded up.
fn rate_of(period_us: u32) -> u64 {
    1_000_000_u64.div_ceil(period_us.max(1).into())
}

#[derive(Clone, Copy, Debug)]
struct Interested {
    /// Of the subscriber.
    life: u32,
    expires: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Value(Address, u32),
    Refusal(Address, TopicKey, u32, Refusal),
}

/// One topic that is published.
#[derive(Clone, Debug)]
pub struct Publication {
    key: TopicKey,
    own: Address,
    life: u32,
    limits: PublicationLimits,
    schedule: Schedule,
    /// By whom and how often, µs.
    interests: BTreeMap<(Address, u32), Interested>,
    /// No interest expires before.
    next_expiry: Nanos,
    answers: VecDeque<Answer>,
    at_once: AtOnce,
    /// The last value was for a newcomer.
    served_newcomer: bool,
    to_advertise: bool,
    /// Between two groups: nobody is served.
    away: bool,
    counts: PublicationCounts,
}

impl Publication {
    /// A publication by the communicator at `own`. `life` tells this schedule from one that the same address had before:
    /// draw it at random. Periods count since the instant `begins`, which may be yet to come.
    pub fn new(key: TopicKey, own: Address, life: u32, limits: PublicationLimits, begins: Nanos) -> Self {
        Self {
            key,
            own,
            life,
            limits,
            schedule: Schedule::new(begins),
            interests: BTreeMap::new(),
            next_expiry: Nanos::NEVER,
            answers: VecDeque::new(),
            at_once: AtOnce::default(),
            served_newcomer: false,
            to_advertise: true,
            away: false,
            counts: PublicationCounts::default(),
        }
    }

    /// Topic and type of the published values.
    pub fn key(&self) -> TopicKey {
        self.key
    }

    /// Life of this schedule: another one after each change of group.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The periods, and how late each was.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Counts of the messages.
    pub fn counts(&self) -> PublicationCounts {
        self.counts
    }

    /// Interests that hold.
    pub fn interests(&self) -> impl Iterator<Item = (Address, u32)> + '_ {
        self.interests.keys().copied()
    }

    /// A message came from `source`. Those of other topics, and those that are for subscribers, are not for us.
    pub fn handle_message(&mut self, source: Address, message: &Message<'_>, now: Nanos) {
        if message.key.topic != self.key.topic || self.away {
            return;
        }
        match message.saying {
            Saying::Interest { period_us, lifetime_ms, life } => {
                let lifetime = Nanos::from_millis(lifetime_ms.min(self.limits.lifetime_max_ms));
                let interested = Interested { life, expires: now.plus(lifetime) };
                self.handle_interest(source, message.key, period_us, interested, now);
            }
            Saying::Withdrawal { period_us, life } if message.key == self.key => {
                self.handle_withdrawal(source, period_us, life);
            }
            _ => {}
        }
    }

    fn handle_withdrawal(&mut self, source: Address, period_us: u32, life: u32) {
        let interest = (source, period_us);
        // A late message of an earlier life says nothing about the interest of the next.
        let is_its_own = |known: &Interested| life == 0 || life == known.life;
        if self.interests.get(&interest).is_some_and(is_its_own) {
            self.interests.remove(&interest);
            self.counts.withdrawn += 1;
            self.schedule.remove(period_us);
        }
    }

    fn handle_interest(
        &mut self,
        source: Address,
        key: TopicKey,
        period_us: u32,
        interested: Interested,
        now: Nanos,
    ) {
        let interest = (source, period_us);
        if let (true, Some(known)) = (key == self.key, self.interests.get_mut(&interest)) {
            known.expires = interested.expires;
            let has_begun_anew = known.life != interested.life;
            self.next_expiry = self.next_expiry.min(interested.expires);
            self.counts.renewed += 1;
            // A subscriber that began anew has no value yet. If there can be none now, it gets one when it asks again.
            if has_begun_anew && self.serve_at_once(interest, now) {
                self.interests.insert(interest, interested);
            }
            return;
        }
        match self.judge(source, key, period_us) {
            // It is not taken on before it can have its first value: the subscriber asks again.
            Ok(()) if self.serve_at_once(interest, now) => {
                self.counts.accepted += 1;
                self.interests.insert(interest, interested);
                self.next_expiry = self.next_expiry.min(interested.expires);
                self.schedule.add(period_us, self.limits.periods_max, now);
            }
            Ok(()) => {}
            Err(cause) => {
                self.counts.refused[cause.place()] += 1;
                self.answer(Answer::Refusal(source, key, period_us, cause));
            }
        }
    }

    /// Lets a newcomer be sent a value between the instants of the schedule, unless it is to be already. Returns false, and counts it as
    /// unanswered, if there is no place to wait, or all such values of this second are given.
    fn serve_at_once(&mut self, (source, period_us): (Address, u32), now: Nanos) -> bool {
        let answer = Answer::Value(source, period_us);
        if self.answers.contains(&answer) {
            return true;
        }
        let is_served = self.answers.len() < WAITING_MAX && self.at_once.take(source.node, &self.limits, now);
        if is_served {
            self.answers.push_back(answer);
        } else {
            self.counts.unanswered += 1;
        }
        is_served
    }

    fn judge(&self, source: Address, key: TopicKey, period_us: u32) -> Result<(), Refusal> {
        if key != self.key {
            return Err(Refusal::OtherType);
        }
        if period_us < self.limits.period_min_us.max(1) {
            return Err(Refusal::TooShort);
        }
        if self.interests.len() >= self.limits.interests_max {
            return Err(Refusal::TooMany);
        }
        if !self.is_fair(source.node, period_us) {
            return Err(Refusal::TooManyOfNode);
        }
        let rate = self.schedule.rate() + rate_of(period_us);
        let is_new = !self.schedule.has(period_us);
        let full = self.schedule.in_use_count() >= self.limits.periods_max || rate > self.limits.rate_max;
        if is_new && full { Err(Refusal::TooMuch) } else { Ok(()) }
    }

    /// True if one more interest of a node leaves others their share. Its periods count even if others want them: those others may
    /// go.
    fn is_fair(&self, node: NodeId, period_us: u32) -> bool {
        let first = Address { node, port: Port::from(0) };
        let all = self.interests.range((first, 0)..).take_while(|((address, _), _)| address.node == node);
        let of_node = all.map(|(&(_, period_us), _)| period_us);
        let interests = of_node.clone().count();
        if interests >= self.limits.interests_of_node_max || of_node.clone().any(|own| own == period_us) {
            return interests < self.limits.interests_of_node_max;
        }
        let is_first =
            |place: usize, period_us: u32| !of_node.clone().take(place).any(|own| own == period_us);
        let different = of_node.clone().enumerate().filter(|&(place, own)| is_first(place, own));
        let (periods, rate) = different
            .fold((1, rate_of(period_us)), |(periods, rate), (_, own)| (periods + 1, rate + rate_of(own)));
        periods <= self.limits.periods_of_node_max && rate <= self.limits.rate_of_node_max
    }

    fn answer(&mut self, answer: Answer) {
        if self.answers.contains(&answer) {
            return;
        }
        if self.answers.len() < WAITING_MAX {
            self.answers.push_back(answer);
        } else {
            self.counts.unanswered += 1;
        }
    }

    /// This communicator is among others now. Subscribers of the group before are forgotten; those of this group are asked. It is
    /// another life: instants that passed meanwhile were missed by nobody.
    pub fn handle_group_changed(&mut self) {
        self.handle_group_left();
        self.life = self.life.wrapping_add(1);
        (self.away, self.to_advertise) = (false, true);
    }

    /// This communicator leaves the others, and is with nobody until [`Self::handle_group_changed`]. All subscribers are forgotten, and
    /// nobody is served.
    pub fn handle_group_left(&mut self) {
        for (_, period_us) in core::mem::take(&mut self.interests).into_keys() {
            self.schedule.remove(period_us);
        }
        self.answers.clear();
        (self.away, self.to_advertise) = (true, false);
    }

    /// Lets interests expire that were not repeated.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if now < self.next_expiry {
            return;
        }
        let Self { interests, schedule, counts, next_expiry, .. } = self;
        *next_expiry = Nanos::NEVER;
        interests.retain(|&(_, period_us), interested| {
            let holds = now < interested.expires;
            if holds {
                *next_expiry = (*next_expiry).min(interested.expires);
            } else {
                counts.expired += 1;
                schedule.remove(period_us);
            }
            holds
        });
    }

    /// The next message other than a value, and its receiver; `None` is everybody within reach.
    pub fn poll_transmit(&mut self) -> Option<(Option<Address>, Message<'static>)> {
        if core::mem::take(&mut self.to_advertise) {
            return Some((
                None,
                Message { key: self.key, saying: Saying::Advertisement { life: self.life } },
            ));
        }
        let place = self.answers.iter().position(|answer| matches!(answer, Answer::Refusal(..)))?;
        match self.answers.remove(place)? {
            Answer::Refusal(to, key, period_us, cause) => {
                Some((Some(to), Message { key, saying: Saying::Refused { period_us, cause } }))
            }
            Answer::Value(..) => None,
        }
    }

    /// The next value that is to be sent. Ask until there is none.
    pub fn poll_due(&mut self, now: Nanos) -> Option<Due> {
        // In turn: neither newcomers nor instants that come too fast keep the others waiting.
        let due = if self.served_newcomer {
            self.poll_instant(now).or_else(|| self.poll_newcomer(now))
        } else {
            self.poll_newcomer(now).or_else(|| self.poll_instant(now))
        };
        self.served_newcomer = due.is_some_and(|due| due.at_once);
        due
    }

    fn poll_newcomer(&mut self, now: Nanos) -> Option<Due> {
        while let Some(Answer::Value(newcomer, period_us)) = self.pop_newcomer() {
            // It may have withdrawn meanwhile.
            if self.interests.contains_key(&(newcomer, period_us)) {
                let instant = Instant { offset_us: self.schedule.offset_us(now), due: now };
                let own = newcomer == self.own;
                return Some(Due { instant, at_once: true, target: (!own).then(|| newcomer.into()), own });
            }
        }
        None
    }

    fn poll_instant(&mut self, now: Nanos) -> Option<Due> {
        while let Some(instant) = self.schedule.poll_due(now) {
            let due = self.due_at(instant);
            if due.own || due.target.is_some() {
                return Some(due);
            }
        }
        None
    }

    fn pop_newcomer(&mut self) -> Option<Answer> {
        let place = self.answers.iter().position(|answer| matches!(answer, Answer::Value(..)))?;
        self.answers.remove(place)
    }

    /// One node alone is sent to by its address; several by their port, if they have the same, or by all ports.
    fn due_at(&self, instant: Instant) -> Due {
        let mut due = Due { instant, at_once: false, target: None, own: false };
        for &(address, period_us) in self.interests.keys() {
            if !instant.is_multiple_of(period_us) {
                continue;
            }
            if address == self.own {
                due.own = true;
                continue;
            }
            due.target = Some(match due.target {
                None => address.into(),
                Some(target) => Target {
                    node: target.node.filter(|&node| node == address.node),
                    port: target.port.filter(|&port| port == address.port),
                },
            });
        }
        due
    }

    /// The message that carries a value.
    pub fn response<'v>(&self, due: &Due, value: &'v [u8]) -> Message<'v> {
        let saying = Saying::Response {
            life: self.life,
            offset_us: due.instant.offset_us,
            at_once: due.at_once,
            value,
        };
        Message { key: self.key, saying }
    }

    /// No interest expires before this, if none is renewed.
    pub fn expires_at(&self) -> Nanos {
        self.next_expiry
    }

    /// When there is something to do next, if nothing comes before.
    pub fn next_timeout(&self) -> Nanos {
        if self.to_advertise || !self.answers.is_empty() {
            return Nanos(0);
        }
        self.schedule.next_due().unwrap_or(Nanos::NEVER).min(self.next_expiry)
    }
}
