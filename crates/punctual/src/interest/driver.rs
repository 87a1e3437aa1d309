//! One communicator's publications and subscriptions: carries messages between them and the bus, and waits in between.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks, monotonic_ns};
use punctual_machine::counter::Counter;
use punctual_machine::process::random;
use punctual_proto::interest::{
    Due, MESSAGE_SIZE, Message, Publication, Saying, Subscription, Taken, TopicKey,
};
use punctual_proto::{Address, Nanos, Target};

use super::carrier::Carrier;
use super::followed::Followed;
use super::{InterestError, ParticipantOptions, Traffic};
use crate::communicator::{Communicator, Sender};
use crate::engine::SendError;
use crate::keyed_group::Membership;
use crate::trace::Stages;

/// Publications, and subscriptions, of one communicator: each is looked at for every message.
const TOPICS_MAX: usize = 64;

/// Messages that are here already and are taken before something that is due, or by a caller that does not wait. Each costs a fraction
/// of the cost of sending.
const TAKEN_FIRST_MAX: u32 = 64;

/// The next step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A value of this publication is wanted.
    Due(usize, Due),
    /// [`Driver::value`] is for this subscription.
    Value(usize, Taken),
    /// The deadline has passed, or somebody asks to stop.
    Late,
}

/// Known facts about the value that came last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) source: Address,
    pub(super) stages: Option<Stages>,
    /// When it was due and sent, where that is known in ticks of this clock.
    pub(super) due: Option<Ticks>,
    pub(super) sent: Option<Ticks>,
}

/// Dropped, it withdraws its subscriptions: publishers would serve nobody until their lifetime has passed.
#[derive(Debug)]
pub(super) struct Driver {
    communicator: Carrier,
    clock: &'static Clock,
    reach: Target,
    /// Of all its subscriptions, drawn at random: an earlier owner of the address has another.
    life: u32,
    pub(super) publications: Vec<Publication>,
    pub(super) subscriptions: Vec<Subscription>,
    /// The message to be sent.
    staged: Vec<u8>,
    /// The value that came last, and whose it is.
    value: Vec<u8>,
    origin: Option<Origin>,
    matches: VecDeque<(usize, Taken)>,
    traffic: Traffic,
    /// Number of times that it was told to stop.
    stops: Arc<Counter>,
    stops_seen: u64,
    membership: Option<Followed>,
    /// Messages taken since something was due.
    taken_first: u32,
    /// The publication that was due last.
    served: usize,
}

pub(super) fn now() -> Nanos {
    Nanos(monotonic_ns())
}

impl Driver {
    pub(super) fn new(communicator: Communicator, reach: Target) -> Self {
        Self {
            communicator: Carrier::new(communicator),
            clock: Clock::get(),
            reach,
            life: random() as u32,
            publications: Vec::new(),
            subscriptions: Vec::new(),
            staged: Vec::new(),
            value: Vec::new(),
            origin: None,
            matches: VecDeque::new(),
            traffic: Traffic::default(),
            stops: Arc::default(),
            stops_seen: 0,
            membership: None,
            taken_first: 0,
            served: 0,
        }
    }

    fn check_key(&self, key: TopicKey, others: usize) -> Result<(), InterestError> {
        if !key.data.is_sound() {
            return Err(InterestError::BadType(key.data));
        }
        let (size, size_max) = (MESSAGE_SIZE + key.data.size(), self.communicator.payload_size_max());
        if size > size_max {
            return Err(InterestError::TooLong { size, size_max });
        }
        if others >= TOPICS_MAX { Err(InterestError::TooMany(TOPICS_MAX)) } else { Ok(()) }
    }

    pub(super) fn publish(
        &mut self,
        key: TopicKey,
        options: &ParticipantOptions,
    ) -> Result<(), InterestError> {
        self.check_key(key, self.publications.len())?;
        if self.publications.iter().any(|other| other.key().topic == key.topic) {
            return Err(InterestError::Published(key));
        }
        let (life, begins) = (random() as u32, options.begins.unwrap_or_else(now));
        let own = self.communicator.address();
        let mut publication = Publication::new(key, own, life, options.limits, begins);
        if self.is_away() {
            publication.handle_group_left();
        }
        self.publications.push(publication);
        self.reserve(key);
        Ok(())
    }

    pub(super) fn subscribe(
        &mut self,
        key: TopicKey,
        period: Duration,
        repetition: punctual_proto::interest::Repetition,
    ) -> Result<(), InterestError> {
        self.check_key(key, self.subscriptions.len())?;
        let period_us = u32::try_from(period.as_micros()).ok().filter(|&us| us > 0);
        let period_us = period_us.ok_or(InterestError::BadPeriod(period))?;
        let mut subscription = Subscription::new(key, self.life, period_us, repetition, now());
        if self.is_away() {
            subscription.handle_group_left();
        }
        self.subscriptions.push(subscription);
        self.reserve(key);
        Ok(())
    }

    /// It follows a membership that is in no group.
    fn is_away(&self) -> bool {
        self.membership.as_ref().is_some_and(Followed::is_away)
    }

    /// Nothing is allocated when values come and go.
    fn reserve(&mut self, key: TopicKey) {
        let size = key.data.size();
        self.staged.resize(self.staged.len().max(MESSAGE_SIZE + size), 0);
        self.value.reserve(size.saturating_sub(self.value.len()));
        self.matches.reserve(TOPICS_MAX);
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.communicator.as_fd()
    }

    pub(super) fn address(&self) -> Address {
        self.communicator.address()
    }

    /// By which others stop it, also while it waits.
    pub(super) fn remote(&self) -> (Arc<Counter>, Sender) {
        (Arc::clone(&self.stops), self.communicator.sender())
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub(super) fn into_communicator(mut self) -> Communicator {
        self.withdraw();
        // Nobody tells it any more that the group has changed.
        self.membership = None;
        self.communicator.take()
    }

    /// Withdraws all subscriptions, and says so.
    pub(super) fn withdraw(&mut self) {
        self.subscriptions.iter_mut().for_each(Subscription::withdraw);
        self.transmit(now());
    }

    fn handle_group_changed(&mut self) {
        if self.is_away() {
            return;
        }
        let now = now();
        self.publications.iter_mut().for_each(Publication::handle_group_changed);
        self.subscriptions.iter_mut().for_each(|subscription| subscription.handle_group_changed(now));
        self.transmit(now);
    }

    /// From now on everything is for the group of this membership, whichever that is.
    pub(super) fn follow(&mut self, membership: &Membership) {
        self.membership = Some(Followed::new(membership, self.communicator.sender()));
        self.leave_group();
    }

    fn leave_group(&mut self) {
        self.publications.iter_mut().for_each(Publication::handle_group_left);
        self.subscriptions.iter_mut().for_each(Subscription::handle_group_left);
        self.transmit(now());
    }

    fn handle_membership(&mut self) {
        let Some(followed) = &mut self.membership else { return };
        if !followed.look() {
            return;
        }
        self.leave_group();
        self.handle_group_changed();
    }

    /// The next step; waits for it until the deadline.
    pub(super) fn step(&mut self, deadline: Nanos) -> Step {
        // A caller that does not want to wait gets the messages that are here, regardless of anything before them.
        let mut looks_left = TAKEN_FIRST_MAX;
        loop {
            if let Some((index, taken)) = self.next_match() {
                return Step::Value(index, taken);
            }
            if self.take_stop() {
                return Step::Late;
            }
            let now = now();
            self.handle_membership();
            self.transmit(now);
            if now >= self.next_timeout()
                && self.taken_first < self.taken_first_max(now)
                && self.receive(None)
            {
                self.taken_first += 1;
                continue;
            }
            self.taken_first = 0;
            // Behind the renewals that have come meanwhile, own ones too.
            self.publications.iter_mut().for_each(|publication| publication.handle_timeout(now));
            if let Some((index, due)) = self.poll_due(now) {
                return Step::Due(index, due);
            }
            if now < deadline {
                self.receive(Some(self.next_timeout().min(deadline)));
                looks_left = 0;
            } else if looks_left == 0 || !self.receive(None) {
                return Step::Late;
            } else {
                looks_left -= 1;
            }
        }
    }

    /// True if somebody has asked to stop since the last look. Each request ends one run: a driver that is given back can run again.
    fn take_stop(&mut self) -> bool {
        let stops = self.stops.get_published();
        let has_come = stops != self.stops_seen;
        self.stops_seen = stops;
        has_come
    }

    /// True if a look sees everything that comes.
    pub(super) fn shows_all(&self) -> bool {
        self.communicator.is_ready().is_some()
    }

    /// True if a look sees something to do.
    pub(super) fn is_ready(&self) -> bool {
        self.has_match()
            || self.time_left() == Some(Duration::ZERO)
            || self.communicator.is_ready() == Some(true)
    }

    /// For how long nothing has to be done unless a message comes; `None` = for ever.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let due = self.next_timeout();
        (due != Nanos::NEVER).then(|| Duration::from_nanos(due.since(now()).0))
    }

    /// From now on the communicator's descriptor becomes readable when a message comes: `false` if there may be something to do.
    pub(super) fn arm(&mut self) -> bool {
        !self.is_ready() && self.communicator.arm()
    }

    /// So many messages are taken before what is due is done. Before interests expire, as many as there may be renewals of them.
    fn taken_first_max(&self, now: Nanos) -> u32 {
        let expires = self.publications.iter().filter(|publication| publication.expires_at() <= now);
        expires.map(|publication| publication.interests().count() as u32).sum::<u32>().max(TAKEN_FIRST_MAX)
    }

    fn next_timeout(&self) -> Nanos {
        let publications = self.publications.iter().map(Publication::next_timeout);
        let subscriptions = self.subscriptions.iter().map(Subscription::next_timeout);
        publications.chain(subscriptions).min().unwrap_or(Nanos::NEVER)
    }

    fn poll_due(&mut self, now: Nanos) -> Option<(usize, Due)> {
        // From the one behind the last on: one that is always due keeps no other waiting.
        let (count, served) = (self.publications.len(), self.served);
        (1..=count).map(|step| (served + step) % count).find_map(|index| {
            let due = self.publications[index].poll_due(now)?;
            self.served = index;
            Some((index, due))
        })
    }

    /// Says what publications and subscriptions have to say besides values.
    fn transmit(&mut self, now: Nanos) {
        for index in 0..self.publications.len() {
            while let Some((to, message)) = self.publications[index].poll_transmit() {
                self.say(to, &message, now);
            }
        }
        for index in 0..self.subscriptions.len() {
            while let Some(message) = self.subscriptions[index].poll_transmit(now) {
                self.say(None, &message, now);
            }
        }
    }

    fn say(&mut self, to: Option<Address>, message: &Message<'_>, now: Nanos) {
        let own = self.communicator.address();
        if to.is_none_or(|to| to == own) {
            // If a medium brings it back, it is passed over.
            self.publications.iter_mut().for_each(|other| other.handle_message(own, message, now));
            for subscription in &mut self.subscriptions {
                let taken = subscription.handle_message(own, message, now);
                debug_assert!(taken.is_none(), "values do not come this way");
            }
        }
        if to == Some(own) {
            return;
        }
        let mut head = [0; MESSAGE_SIZE];
        message.write_head(&mut head);
        let sent = self.communicator.try_send(to.map_or(self.reach, Target::from), &head);
        self.traffic.note(sent);
    }

    /// The next of our subscriptions that [`Self::value`] is for.
    pub(super) fn next_match(&mut self) -> Option<(usize, Taken)> {
        self.matches.pop_front()
    }

    pub(super) fn has_match(&self) -> bool {
        !self.matches.is_empty()
    }

    /// Makes a value, and offers it to our own subscriptions.
    pub(super) fn stage_value(&mut self, index: usize, due: &Due, write: impl FnOnce(&mut [u8])) {
        let size = self.publications[index].key().data.size();
        let (head, rest) = self.staged.split_first_chunk_mut().expect("room was made for a topic");
        self.publications[index].response(due, &[]).write_head(head);
        write(&mut rest[..size]);
        if due.own {
            let (now_ns, now) = (now(), self.clock.now());
            self.keep_value(index, due, size, now_ns);
            let (source, due) = (self.communicator.address(), self.ticks_at(due.instant.due, now_ns, now));
            self.origin = Some(Origin { source, stages: None, due: Some(due), sent: Some(now) });
        }
    }

    /// Sends the value that was made to those on the bus who want it.
    pub(super) fn send_staged(&mut self, index: usize, due: &Due) {
        let Some(target) = due.target else { return };
        let size = self.publications[index].key().data.size();
        let due = self.ticks_at(due.instant.due, now(), self.clock.now());
        let sent = self.communicator.try_send_due(target, &self.staged[..MESSAGE_SIZE + size], Some(due));
        self.traffic.note(sent);
    }

    /// An instant that has passed, in ticks.
    fn ticks_at(&self, instant: Nanos, now_ns: Nanos, now: Ticks) -> Ticks {
        let passed = self.clock.ticks(Duration::from_nanos(now_ns.since(instant).0));
        Ticks(now.0.saturating_sub(passed.0))
    }

    fn keep_value(&mut self, index: usize, due: &Due, size: usize, now: Nanos) {
        let own = self.communicator.address();
        self.value.clear();
        self.value.extend_from_slice(&self.staged[MESSAGE_SIZE..MESSAGE_SIZE + size]);
        let message = self.publications[index].response(due, &self.value);
        offer(&mut self.subscriptions, &mut self.matches, own, &message, now);
    }

    /// The value that is for the subscription of the last step.
    pub(super) fn value(&self) -> (&[u8], Origin) {
        (&self.value, self.origin.expect("asked for only after a step that had one"))
    }

    /// One message: if one comes until then, or if one is here. Returns true if there was one.
    fn receive(&mut self, until: Option<Nanos>) -> bool {
        let own = self.communicator.address();
        let received = match until {
            Some(until) => {
                let wait = self.clock.ticks(Duration::from_nanos(until.since(now()).0));
                self.communicator.receive_until(Some(self.clock.now().plus(wait)))
            }
            None => self.communicator.try_receive(),
        };
        let Ok(received) = received else { return false };
        if received.source == own {
            // Empty, it wants us to look at `stops`, or at the membership. Anything else was shown to us before it was sent: a medium
            // brings back what is for everybody at our port.
            return true;
        }
        let message = match Message::parse(received.payload) {
            Ok(message) => message,
            Err(_) => {
                self.traffic.foreign += 1;
                return true;
            }
        };
        let (sealed_in, is_own) = (received.sealed_in, received.source.node == own.node);
        if !self.membership.as_ref().is_none_or(|followed| followed.takes(sealed_in, is_own, &message)) {
            self.traffic.other_groups += 1;
            return true;
        }
        let arrived = now();
        self.publications.iter_mut().for_each(|own| own.handle_message(received.source, &message, arrived));
        offer(&mut self.subscriptions, &mut self.matches, received.source, &message, arrived);
        if let (false, Saying::Response { value, .. }) = (self.matches.is_empty(), message.saying) {
            self.value.clear();
            self.value.extend_from_slice(value);
            let sender = received.stages.filter(|stages| stages.one_clock).map(|stages| stages.sender);
            self.origin = Some(Origin {
                source: received.source,
                stages: received.stages.copied(),
                due: sender.and_then(|stamps| stamps.due()).map(Ticks),
                sent: sender.map(|stamps| Ticks(stamps.sent)),
            });
        }
        true
    }

    pub(super) fn count_bad_value(&mut self) {
        self.traffic.foreign += 1;
    }
}

/// Shows a message to all subscriptions.
fn offer(
    subscriptions: &mut [Subscription],
    matches: &mut VecDeque<(usize, Taken)>,
    source: Address,
    message: &Message<'_>,
    now: Nanos,
) {
    for (index, subscription) in subscriptions.iter_mut().enumerate() {
        if let Some(taken) = subscription.handle_message(source, message, now) {
            matches.push_back((index, taken));
        }
    }
}

impl Traffic {
    fn note(&mut self, sent: Result<(), SendError>) {
        match sent {
            Ok(()) => self.sent += 1,
            Err(SendError::Full) => self.full += 1,
            Err(SendError::Unreachable) => self.unreachable += 1,
            Err(_) => self.unsendable += 1,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.communicator.is_there() && self.communicator.is_of_this_process() {
            self.withdraw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a message that could not be sent counts under its own reason: nobody is missing where a key is.
    #[test]
    fn reasons_are_told_apart() {
        let mut traffic = Traffic::default();
        let reasons = [SendError::Full, SendError::Unreachable, SendError::NoKey, SendError::NoMemory];
        [Ok(())].into_iter().chain(reasons.map(Err)).for_each(|sent| traffic.note(sent));
        let Traffic { sent, full, unreachable, unsendable, .. } = traffic;
        assert_eq!([sent, full, unreachable, unsendable], [1, 1, 1, 2]);
    }
}
