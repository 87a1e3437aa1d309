//! Reception of messages by a component: from its inbox, by driving the node's engine, or by waiting for the component that drives it.
//!
//! Leader and followers: the component of a node that waits first drives the engine and hands frames to the others
//! through their inboxes; when it leaves, a follower takes over.

use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::{LastLook, Ticks};
use punctual_machine::epoll::EpollSet;
use punctual_proto::{Frame, Header};

use crate::engine::Bell;
use crate::ledger::Count;
use crate::node::Core;
use crate::node::inbox::{Inbox, InboxReader};
use crate::node::reader::Reader;
use crate::node::receiving::{Found, Landing, Receiving};
use crate::node::waiting::Limit;
use crate::seal::{NodeOpener, Refusal};
use crate::wake::{Bed, Condition, Waiter, YieldThenSleep, epoll_set};

/// Polls between two looks at the clock while spinning: a look costs about as much as a poll.
const POLLS_PER_LOOK: u32 = 32;

/// Turns at the engine between two looks at the clock while every turn finds a message.
const TURNS_PER_LOOK: u32 = 256;

/// Turns at the engine in which one try gets past what is not for us: frames for others, announcements.
const TURNS_PER_TRY: u32 = 64;

/// The receiving side of a communicator.
#[derive(Debug)]
pub(super) struct Reception {
    pub(super) inbox: Arc<Inbox>,
    reader: InboxReader,
    landing: Landing,
    /// Where what communicators of one node send each other is sealed too.
    opener: Option<Box<NodeOpener>>,
    /// Waits for the engine.
    lead: Box<dyn Waiter>,
    lead_set: EpollSet,
    /// Waits for the inbox while another component drives the engine.
    follow: Box<dyn Waiter>,
    follow_set: EpollSet,
    polls: u32,
    turns: u32,
    /// Events of the last turn.
    seen: usize,
    /// The last try found the end of all that was there.
    found_end: bool,
    /// Its reader had enough before all was shown that the engine has.
    has_left: bool,
    /// The last try ended while another component drove the engine.
    follows: bool,
    /// It has waited since a message was last found.
    has_waited: bool,
    /// Steps aside for visitors.
    aside: YieldThenSleep,
    /// When the receive began, if the message before carried stamps: then this one may.
    listened: Ticks,
    /// Since when it waited in its user's event loop until then, 0 if it did not; and when that last ended.
    pub(super) armed: Ticks,
    pub(super) disarmed: Ticks,
    /// A wait ends without a message when a look at the clock finds that it is later than this.
    pub(super) pause_at: Ticks,
    last_look: LastLook,
}

/// Result of waiting for another component that drives the engine.
enum Turn<'c> {
    /// Ours to drive it.
    Lead(MutexGuard<'c, Receiving>),
    /// There is something in the inbox.
    Look,
    /// The deadline has passed.
    Late,
}

/// Result of a turn at the engine or at the inbox.
#[derive(Debug)]
enum Step {
    Found,
    Look,
    Late,
}

impl Reception {
    pub(super) fn new(
        core: &Core,
        inbox: Arc<Inbox>,
        lead: Box<dyn Waiter>,
        follow: Box<dyn Waiter>,
    ) -> Result<Self, SystemError> {
        let local_seals = core.about.seals.as_ref().filter(|seals| seals.keys().is_local());
        let [first, second] = &core.descriptors;
        let in_set = lead.sleeps_in_set();
        let descriptors =
            [first, second].map(|descriptor| descriptor.as_ref().filter(|_| in_set).map(AsFd::as_fd));
        Ok(Self {
            reader: inbox.reader(),
            landing: Landing::new(core.about.payload_size_max),
            opener: local_seals.map(|seals| Box::new(seals.opener())),
            lead,
            lead_set: epoll_set(core.bell.event(), descriptors)?,
            follow,
            follow_set: epoll_set(inbox.bell.event(), [None; 2])?,
            polls: 0,
            turns: 0,
            seen: 0,
            found_end: false,
            has_left: false,
            follows: false,
            has_waited: false,
            aside: YieldThenSleep::default(),
            listened: Ticks::default(),
            armed: Ticks::default(),
            disarmed: Ticks::default(),
            pause_at: Ticks::NEVER,
            last_look: LastLook::none(),
            inbox,
        })
    }

    /// True if something is in the inbox.
    pub(super) fn has_news(&self) -> bool {
        self.reader.has_news()
    }

    /// Where the last message found has landed.
    #[inline]
    pub(super) fn landing(&self) -> &Landing {
        &self.landing
    }

    #[inline]
    pub(super) fn landing_mut(&mut self) -> &mut Landing {
        &mut self.landing
    }

    /// When the receive began that found the last message; 0 = not known.
    #[inline]
    pub(super) fn listened(&self) -> Ticks {
        self.listened
    }

    #[inline]
    fn note_listening(&mut self, core: &Core) {
        if self.landing.last().is_some_and(|(found, _)| found.stamps.is_some()) {
            self.listened = core.about.clock.now();
        }
    }

    /// Lets the oldest message land, if there is one. A `reader` is shown those before it that can be read where they lie.
    #[inline]
    pub(super) fn try_receive(&mut self, core: &Core, reader: Option<&mut Reader<'_>>) -> bool {
        self.note_listening(core);
        (self.seen, self.found_end, self.has_left, self.follows) = (0, false, false, false);
        if self.take_from_inbox(core) {
            return true;
        }
        // Another component drives the engine just now: messages for us come to the inbox.
        let Some(mut receiving) = core.try_receiving() else {
            self.follows = true;
            return false;
        };
        let found = match reader {
            None => self.take_turns(core, &mut receiving, None),
            reader => core.reading.during(|| self.take_turns(core, &mut receiving, reader)),
        };
        drop(receiving);
        core.hand_over();
        found
    }

    /// Drives the engine until a message has landed, its reader has enough, or nothing more is there.
    #[inline]
    fn take_turns(
        &mut self,
        core: &Core,
        receiving: &mut Receiving,
        mut reader: Option<&mut Reader<'_>>,
    ) -> bool {
        receiving.look_everywhere();
        for _ in 0..TURNS_PER_TRY {
            if self.poll_engine(core, receiving, reader.as_deref_mut()) {
                return true;
            }
            let has_enough = reader.as_ref().is_some_and(|reader| !reader.wants_more());
            self.found_end = receiving.has_seen_all(self.seen);
            if has_enough || self.found_end {
                self.has_left = receiving.is_ready();
                break;
            }
        }
        false
    }

    /// True if the last try ended for its reader, with more at hand.
    pub(super) fn has_left(&self) -> bool {
        self.has_left
    }

    /// True if the last look found that nothing more is there.
    pub(super) fn has_seen_all(&self) -> bool {
        self.seen == 0 || self.found_end
    }

    /// True if the last look found nothing of its own, as another component drove the engine.
    pub(super) fn follows(&self) -> bool {
        self.follows
    }

    /// Lets the oldest message land; waits for one until the deadline.
    #[inline]
    pub(super) fn receive_until(&mut self, core: &Core, deadline: Option<Ticks>) -> bool {
        self.note_listening(core);
        (self.seen, self.found_end, self.has_left, self.follows) = (0, false, false, false);
        let found = self.wait_for_message(core, deadline);
        // After a pause the wait goes on.
        let has_ended = found || deadline.unwrap_or(Ticks::NEVER) <= self.pause_at;
        if self.has_waited && has_ended {
            self.has_waited = false;
            self.lead.handle_found();
            self.follow.handle_found();
        }
        found
    }

    #[inline]
    fn wait_for_message(&mut self, core: &Core, deadline: Option<Ticks>) -> bool {
        loop {
            let mut receiving = match core.try_receiving() {
                Some(receiving) => receiving,
                // Messages for us come to the inbox.
                None if self.take_from_inbox(core) => return true,
                None => match self.follow(core, deadline) {
                    Turn::Lead(receiving) => receiving,
                    Turn::Look => continue,
                    Turn::Late => {
                        self.follows = true;
                        return false;
                    }
                },
            };
            let step = self.lead(core, &mut receiving, deadline);
            drop(receiving);
            core.hand_over();
            match step {
                Step::Found => return true,
                Step::Look => {}
                Step::Late => return false,
            }
            self.make_way(core);
        }
    }

    /// Lets a visitor in, or lets it go on: in real time it may need the processor of this thread for either.
    #[inline]
    fn make_way(&mut self, core: &Core) {
        if !core.has_visitors() {
            self.aside.reset();
        } else if self.aside.step() {
            // The next look at the clock is due.
            self.polls = 0;
        }
    }

    /// Drives the engine until there is a message for this communicator.
    #[inline]
    fn lead(&mut self, core: &Core, receiving: &mut Receiving, deadline: Option<Ticks>) -> Step {
        core.handle_lead(receiving);
        // Where the kernel has nothing, the sleep finds that out in the same call.
        let mut waits = self.lead.sleeps_at_once();
        if waits {
            self.inbox.leads.set(true);
            self.wait_leading(core, receiving, deadline);
        }
        let step = loop {
            if self.poll_engine(core, receiving, None) {
                break Step::Found;
            }
            if core.has_visitors() {
                break Step::Look;
            }
            if self.is_late(core, Some(receiving), deadline) {
                break Step::Late;
            }
            if !waits {
                // Before the first sleep: from now on a thread that puts something into the inbox rings the engine's bell too.
                waits = true;
                self.inbox.leads.set(true);
            }
            self.wait_leading(core, receiving, deadline);
        };
        if waits {
            self.has_waited = true;
            self.inbox.leads.set(false);
        }
        if !matches!(step, Step::Found) {
            self.lead.handle_handover();
        }
        step
    }

    fn wait_leading(&mut self, core: &Core, receiving: &mut Receiving, deadline: Option<Ticks>) {
        let reader = &self.reader;
        let has_news = || reader.has_news() || core.has_visitors();
        let waited = receiving.wait(core, &mut *self.lead, &mut self.lead_set, deadline, &has_news);
        if waited.slept {
            // The next look at the clock is due: a sleep may have been long.
            self.polls = 0;
        }
    }

    /// Waits for the inbox, or for the leader to leave.
    fn follow<'c>(&mut self, core: &'c Core, deadline: Option<Ticks>) -> Turn<'c> {
        // Before it stands in a list of those who wait.
        core.reading.refuse_this();
        let turn = loop {
            if !self.inbox.is_listed() {
                core.registry.enlist(&self.inbox);
            }
            if self.reader.has_news() {
                break Turn::Look;
            }
            if let Some(receiving) = core.try_receiving() {
                break Turn::Lead(receiving);
            }
            if self.is_late(core, None, deadline) {
                break Turn::Late;
            }
            self.make_way(core);
            if let Some(receiving) = self.wait_following(core, deadline) {
                break Turn::Lead(receiving);
            }
        };
        if !core.registry.delist(&self.inbox) && !matches!(turn, Turn::Lead(_)) {
            // The leadership was ours, and we go away with a message or without: it is the next one's.
            core.hand_over();
        }
        turn
    }

    fn wait_following<'c>(
        &mut self,
        core: &'c Core,
        deadline: Option<Ticks>,
    ) -> Option<MutexGuard<'c, Receiving>> {
        self.has_waited = true;
        let mut bed = Bed {
            bell: self.inbox.bell.doorbell(),
            event: self.inbox.bell.event(),
            descriptors: [None; 2],
            set: &mut self.follow_set,
        };
        let limit = Limit::new(core, deadline);
        let (inbox, reader) = (&self.inbox, &self.reader);
        let mut turn = InboxCondition { core, inbox, reader, taken: None, limit };
        let waited = self.follow.wait(&mut bed, &mut turn);
        let taken = turn.taken;
        if waited.missed {
            core.about.page.count(Count::MissedWakeups).add(1);
        }
        if waited.on_event {
            self.inbox.bell.event().drain();
        }
        if waited.slept {
            self.polls = 0;
        }
        taken
    }

    /// Returns true if the deadline has passed; does the housekeeping by the way. Looks at the clock now and then.
    #[inline]
    fn is_late(&mut self, core: &Core, receiving: Option<&mut Receiving>, deadline: Option<Ticks>) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_LOOK) && self.polls != 1 {
            return false;
        }
        let now = core.about.clock.now();
        if core.is_behind() {
            core.catch_up();
        }
        if let Some(receiving) = receiving
            && receiving.is_housekeeping_due(now)
        {
            core.housekeep(receiving, now);
        }
        self.last_look.finds_past(now, deadline.unwrap_or(Ticks::NEVER).min(self.pause_at))
    }

    #[inline]
    fn poll_engine(
        &mut self,
        core: &Core,
        receiving: &mut Receiving,
        mut reader: Option<&mut Reader<'_>>,
    ) -> bool {
        // Messages in the inbox are older than those in the engine: its last driver put them there.
        if self.take_from_inbox(core) {
            return true;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_LOOK) {
            housekeep_if_due(core, receiving);
        }
        self.landing.has_landed = false;
        self.seen = receiving.turn(core, &self.inbox, &mut self.landing, reader.as_deref_mut());
        // A reader that has enough leaves the inbox as it is.
        let has_enough = || reader.is_some_and(|reader| !reader.wants_more());
        self.landing.has_landed || !has_enough() && self.take_from_inbox(core)
    }

    #[inline]
    fn take_from_inbox(&mut self, core: &Core) -> bool {
        self.reader.has_news() && self.take_news(core)
    }

    fn take_news(&mut self, core: &Core) -> bool {
        while let Some((mut circumstances, size)) = self.reader.take(&self.inbox, &mut self.landing.buffer) {
            let frame = Frame::parse(&self.landing.buffer[..size]).expect("this process wrote it");
            let (header, stamps, payload_at) = (frame.header, frame.stamps, frame.header.prefix_size());
            if header.sealed {
                match self.open(&header, size) {
                    Ok(group) => circumstances.sealed_in = Some(group),
                    Err(refusal) => {
                        self.inbox.refuse(refusal, &core.about.page);
                        continue;
                    }
                }
            }
            let (direct, waits, is_large) = (false, false, false);
            self.landing.land(Found { header, stamps, circumstances, payload_at, direct, waits, is_large });
            return true;
        }
        false
    }

    /// Looks behind the seal of a message from another component of this node.
    fn open(&mut self, header: &Header, size: usize) -> Result<u32, Refusal> {
        let opener = self.opener.as_mut().ok_or(Refusal::Unexpected)?;
        opener.open(header, &self.landing.buffer[..size])
    }
}

/// The condition that a component waits for while another drives the engine: its inbox, or its turn.
struct InboxCondition<'a, 'c> {
    core: &'c Core,
    inbox: &'a Inbox,
    reader: &'a InboxReader,
    taken: Option<MutexGuard<'c, Receiving>>,
    limit: Limit<'c>,
}

impl Condition for InboxCondition<'_, '_> {
    fn is_ready(&mut self) -> bool {
        if self.is_rung_for() {
            return true;
        }
        if self.taken.is_none() {
            self.taken = self.core.try_receiving();
        }
        self.taken.is_some()
    }

    fn timeout(&mut self) -> Option<Duration> {
        let (_, timeout) = self.limit.begin();
        Some(self.limit.duration(timeout))
    }

    fn is_overslept(&self) -> bool {
        self.limit.is_the_nodes() && self.is_rung_for()
    }
}

impl InboxCondition<'_, '_> {
    /// A component that was taken off the list must not sleep: nobody would ring again.
    fn is_rung_for(&self) -> bool {
        self.reader.has_news() || !self.inbox.is_listed()
    }
}

/// For who never waits here.
#[cold]
pub(super) fn housekeep_if_due(core: &Core, receiving: &mut Receiving) {
    let now = core.about.clock.now();
    if receiving.is_housekeeping_due(now) {
        core.housekeep(receiving, now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use punctual_machine::clock::{Clock, Ticks};

    use super::super::End;
    use crate::late::LateLog;
    use crate::{Bus, CommunicatorOptions, Node, ReceiveError, Target, Wake};

    /// Goal: messages that a run brought are at hand behind those that were shown, and messages that wait in the kernel are not. A medium
    /// says how often it sends what is for everybody.
    #[test]
    fn the_rest_of_a_run_is_at_hand() {
        let free = || std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let [a, b, nobody] = [(); 3].map(|()| free().expect("a port"));
        let group = ([239, 255, 80, 90], nobody.port()).into();
        let multicast = Bus::multicast(group, [127, 0, 0, 1].into());
        let peers = [Bus::peers(a, &[b, nobody]), Bus::peers(b, &[a, nobody])];
        for ([here, there], copies, is_run) in [([multicast.clone(), multicast], 1, true), (peers, 2, false)]
        {
            let nodes =
                [Node::open(&here, "here"), Node::open(&there, "there")].map(|node| node.expect("a node"));
            let [mut here, mut there] = nodes.each_ref().map(|node| node.bind(1).expect("a port"));
            assert_eq!(here.copies(), copies);
            for number in 0..8_u8 {
                here.queue(Target::everyone_at(1), &[number; 700]).expect("room");
                if !is_run {
                    here.flush();
                }
            }
            here.flush();
            let mut shown = 0;
            while shown == 0 {
                shown = there.poll(1, |_, _| ());
            }
            assert_eq!(there.has_at_hand(), is_run, "after one of {copies} copies");
            shown += there.poll(100, |_, _| ());
            assert_eq!((shown, there.has_at_hand()), (8, false));
        }
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Goal: a counter that begins anew while the machine sleeps ends a wait whose deadline was by what it had counted before. No wait
    /// ends so whose deadline is by what it counts now. Method: the last look at the clock was hours ahead.
    #[test]
    fn a_counter_that_begins_anew_ends_a_wait() {
        let file = tempfile::NamedTempFile::new().expect("room");
        let log = LateLog::create(file.path(), HOUR).expect("room");
        let local = "127.0.0.1:0".parse().expect("an address");
        let node = Node::open(&Bus::peers(local, &[]), "here").expect("a node alone");
        let clock = Clock::get();
        let ahead = clock.now().plus(clock.ticks(10 * HOUR));
        let former = ahead.plus(clock.ticks(HOUR));
        let soon = clock.now().plus(clock.ticks(Duration::from_millis(50)));
        let plain = CommunicatorOptions::default();
        let noting = plain.clone().noting_late(&log);
        for (port, options, deadline) in [(1, &plain, former), (2, &plain, soon), (3, &noting, former)] {
            let mut communicator = node.bind_with(port, options).expect("a port");
            // The thread that waits is known from here on.
            assert_eq!(communicator.try_receive().err(), Some(ReceiveError::Empty));
            let End::Wire(end) = &mut communicator.end else { panic!("a medium of the kernel's") };
            assert!(!end.reception.last_look.finds_past(ahead, Ticks::NEVER));
            if let Some(watch) = &mut communicator.watch {
                watch.pretend_due_at(former);
                end.pause_at(former);
            }
            let (ended, result) = mpsc::channel();
            std::thread::spawn(move || {
                let outcome = communicator.receive_until(Some(deadline)).map(|message| message.payload.len());
                ended.send((outcome, clock.now()))
            });
            let (outcome, now) = result.recv_timeout(Duration::from_secs(60)).expect("it ends");
            assert_eq!(outcome, Err(ReceiveError::Empty));
            assert!(deadline == former || now >= deadline, "{port}: it had begun after the sleep");
        }
    }

    /// Times that a thread of this process has slept.
    fn sleeps_of(thread: u32) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).expect("a thread");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("a number")
    }

    /// Goal: a thread that spins for messages sleeps while a visitor cannot come or go by itself, then goes on. Such a visitor is less
    /// urgent, on the same processor. Method: one visitor is pretended, another stays. A thread that only yields or spins never sleeps.
    #[test]
    fn a_driver_sleeps_until_its_visitor_has_gone() {
        let local = "127.0.0.1:0".parse().expect("an address");
        let node = Node::open(&Bus::peers(local, &[]), "here").expect("a node alone");
        let mut communicator = node.bind_with(1, &CommunicatorOptions::waiting(Wake::Spin)).expect("a port");
        let mut sender = communicator.sender();
        let End::Wire(end) = &communicator.end else { panic!("a medium of the kernel's") };
        let core = Arc::clone(&end.core);
        let visitor = core.pretend_visitor();
        let (told, tells) = mpsc::channel();
        let receiver = std::thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
                .expect("somebody listens");
            communicator.receive_timeout(Duration::from_secs(60)).map(|message| message.payload.len())
        });
        let thread = tells.recv_timeout(Duration::from_secs(60)).expect("it runs");
        let await_sleeps = || {
            let (began, before) = (std::time::Instant::now(), sleeps_of(thread));
            while sleeps_of(thread) < before + 10 {
                assert!(began.elapsed() < Duration::from_secs(20), "it never sleeps");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        await_sleeps();
        drop(visitor);
        core.visit(|_| await_sleeps());
        sender.nudge();
        assert_eq!(receiver.join().expect("it ends"), Ok(0));
    }
}
