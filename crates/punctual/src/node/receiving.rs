//! The receiving side of a node: a waiting thread drives the engine, keeps its own messages and hands on the rest.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use punctual_machine::clock::{Pace, Ticks};
use punctual_machine::epoll::EpollSet;
use punctual_machine::slept::Slept;
use punctual_proto::limits::{OVERHEAD_SIZE_MAX, PREFIX_SIZE_MAX};
use punctual_proto::seal::Refusal;
use punctual_proto::{Header, Kind, Stamps};

use super::Core;
use super::accounts::{Accounts, Change, PeerAccount};
use super::inbox::{Circumstances, Inbox};
use super::opening::{Guard, copy, write_prefix};
use super::reader::Reader;
use super::registry::Ports;
use super::waiting::Limit;
use crate::engine::{Arrival, Event, Flow, Receive, SLEEP_MAX, Trouble};
use crate::ledger::{Count, RowCount};
use crate::seal::Seals;
use crate::wake::{Bed, Condition, Waited, Waiter};

/// Events taken from the engine at a time, so that a flood cannot keep its driver from anything else.
const BATCH: usize = 32;

/// A message for the component that drives the engine, in that component's own buffer.
#[derive(Debug)]
pub(crate) struct Landing {
    pub(crate) buffer: Vec<u8>,
    /// The message that landed last: it stays, as the next message mostly differs in little.
    last: Option<Found>,
    /// Something has landed since the last look for a message.
    pub(crate) has_landed: bool,
    /// The buffer for frames, while a message that was put together is in its place.
    aside: Option<Vec<u8>>,
}

impl Landing {
    pub(crate) fn new(payload_size_max: usize) -> Self {
        let buffer = vec![0; OVERHEAD_SIZE_MAX + payload_size_max];
        Self { buffer, last: None, has_landed: false, aside: None }
    }

    /// A message is in the buffer.
    pub(crate) fn land(&mut self, found: Found) {
        self.last = Some(found);
        self.has_landed = true;
    }

    /// True if the landed message is a fragment of a message.
    #[inline]
    pub(crate) fn is_fragment(&self) -> bool {
        self.last.as_ref().is_some_and(|found| found.header.kind == Kind::Fragment)
    }

    /// The fragment that landed made its message whole: that is what has landed.
    pub(crate) fn land_whole(&mut self, whole: Vec<u8>) {
        if let Some(found) = &mut self.last {
            found.header.kind = Kind::Data;
            found.is_large = true;
            found.header.payload_size = whole.len() as u32;
            found.payload_at = 0;
            self.aside = Some(std::mem::replace(&mut self.buffer, whole));
        }
    }

    /// The message that landed is not received yet. Returns true if it stands in no account as one that waits.
    pub(crate) fn begin_wait(&mut self) -> bool {
        let begins = |found: &mut Found| found.direct && !std::mem::replace(&mut found.waits, true);
        self.last.as_mut().is_some_and(begins)
    }

    /// Takes out the message that landed, with a buffer of its own.
    pub(crate) fn take_out(&mut self) -> Option<(Found, Vec<u8>)> {
        let mut found = self.last?;
        let size = found.header.payload_size as usize;
        let bytes = match self.aside.take() {
            Some(frames) => std::mem::replace(&mut self.buffer, frames),
            None => self.buffer[found.payload_at..][..size].to_vec(),
        };
        found.payload_at = 0;
        Some((found, bytes))
    }

    /// A message that was taken out lands again.
    pub(crate) fn put_back(&mut self, (found, bytes): (Found, Vec<u8>)) {
        drop(self.forget());
        self.last = Some(found);
        self.aside = Some(std::mem::replace(&mut self.buffer, bytes));
    }

    /// The last message is not looked at any more. Its memory, if it was put together.
    #[inline]
    pub(crate) fn forget(&mut self) -> Option<Vec<u8>> {
        let buffer = self.aside.take()?;
        Some(std::mem::replace(&mut self.buffer, buffer))
    }

    /// The last message that landed, and the buffer that it is in.
    #[inline]
    pub(crate) fn last(&self) -> Option<(&Found, &[u8])> {
        Some((self.last.as_ref()?, &self.buffer))
    }
}

/// Facts about a message that landed; its payload is in the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) header: Header,
    pub(crate) stamps: Option<Stamps>,
    pub(crate) circumstances: Circumstances,
    /// Where the payload begins in the buffer.
    pub(crate) payload_at: usize,
    /// It came straight from the engine, not through the inbox.
    pub(crate) direct: bool,
    /// It did, and waits for its receiver: its account says so.
    pub(crate) waits: bool,
    /// It was put together of fragments, of which the last has landed.
    pub(crate) is_large: bool,
}

/// The receiving half, under the node's lock for receivers.
#[derive(Debug)]
pub(crate) struct Receiving {
    receive: Box<dyn Receive>,
    ports: Ports,
    accounts: Accounts,
    /// A frame for others than the driver, before it goes to their inboxes.
    staged: Vec<u8>,
    /// When the driver last woke, 0 if it has not slept yet.
    woken: Ticks,
    housekeeping: Pace,
    /// The last turn found something, so there may be more: nobody sleeps before a turn that finds nothing.
    restless: bool,
    guard: Guard,
}

impl Receiving {
    pub(crate) fn new(mut receive: Box<dyn Receive>, payload_size_max: usize, seals: Option<&Seals>) -> Self {
        let accounts = Accounts::new(receive.drops());
        let staged = vec![0; OVERHEAD_SIZE_MAX + payload_size_max];
        let guard = Guard::new(seals);
        Self {
            receive,
            ports: Ports::default(),
            accounts,
            staged,
            woken: Ticks::default(),
            housekeeping: Pace::new(super::HOUSEKEEPING_EVERY),
            restless: false,
            guard,
        }
    }

    /// One bounded batch. Stops at the first message for `own`, which lands in `landing`, unless a `reader` was shown it. Returns events
    /// seen.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        core: &Core,
        own: &Inbox,
        landing: &mut Landing,
        reader: Option<&mut Reader<'_>>,
    ) -> usize {
        self.ports.renew(&core.registry);
        let (was_behind, wanted) = (self.accounts.is_behind(), core.ends.wanted());
        if was_behind || wanted.is_some() {
            self.receive.look_everywhere();
        }
        let Self { receive, ports, accounts, staged, woken, guard, .. } = self;
        let mut desk =
            Desk { core, ports, accounts, staged, woken, guard, own, landing, reader, newcomers: false };
        let seen = receive.poll(BATCH, &mut |event| desk.handle(event));
        let newcomers = desk.newcomers;
        let found_end = seen == 0 || was_behind && self.receive.has_seen_all();
        let unsettled = self.accounts.handle_turn(found_end, &core.about.page);
        // Others read what lies beside it: a store at each look would take the line from them.
        if core.unsettled.get() != u64::from(unsettled) {
            core.unsettled.set(unsettled.into());
        }
        if let Some(number) = wanted
            && self.has_seen_all(seen)
        {
            core.ends.answer(number);
        }
        if let Some(changes) = self.accounts.take_changes() {
            self.tell(core, &changes);
        }
        self.restless = seen > 0;
        if newcomers && let Some(mut sending) = core.try_sending() {
            // A node that has just joined may want an answer.
            sending.housekeep(core, core.about.clock.now());
        }
        seen
    }

    /// Tells those who watch who came and who went.
    #[cold]
    fn tell(&mut self, core: &Core, changes: &[Change]) {
        if !core.watch.publish(core, changes) {
            self.accounts.unwatch();
        }
    }

    /// One more wants to know, from now on and of those who are there.
    pub(super) fn watch(&mut self, core: &Core, inbox: &Arc<Inbox>) {
        let present = self.accounts.watch();
        core.watch.enter(core, inbox, &present);
    }

    /// Lets time pass by `waiter`'s way: until the deadline at most, or the next housekeeping.
    pub(crate) fn wait(
        &mut self,
        core: &Core,
        waiter: &mut dyn Waiter,
        set: &mut EpollSet,
        deadline: Option<Ticks>,
        has_news: &dyn Fn() -> bool,
    ) -> Waited {
        let mut bed = Bed {
            bell: core.bell.doorbell(),
            event: core.bell.event(),
            descriptors: core.descriptors.each_ref().map(|descriptor| descriptor.as_ref().map(AsFd::as_fd)),
            set,
        };
        let due = self.next_due();
        let limit = Limit::new(core, deadline);
        // Descriptors that are polled say themselves whether there is more.
        let restless = self.restless && !waiter.sleeps_at_once();
        let mut condition =
            EngineCondition { core, receiving: self, restless, has_news, due, deadline, limit };
        let waited = waiter.wait(&mut bed, &mut condition);
        if waited.slept {
            self.woken = core.about.clock.now();
        }
        if waited.missed {
            core.about.page.count(Count::MissedWakeups).add(1);
        }
        if waited.on_event {
            self.receive.handle_awake();
        } else if waited.on_descriptor {
            self.receive.handle_woken();
        }
        waited
    }

    /// The next turns find a message if there is one, wherever.
    pub(crate) fn look_everywhere(&mut self) {
        self.receive.look_everywhere();
    }

    /// True if a turn that saw so many events is the last to find anything, as long as nothing more comes.
    pub(crate) fn has_seen_all(&self, seen: usize) -> bool {
        (seen == 0 || self.receive.has_seen_all()) && !self.receive.is_ready()
    }

    /// True if the engine has something, or its bell must not be slept on.
    pub(crate) fn is_ready(&self) -> bool {
        self.receive.is_ready()
    }

    /// When a layer has something that rings nothing.
    pub(crate) fn next_due(&self) -> Option<Ticks> {
        self.receive.next_due()
    }

    pub(crate) fn handle_awake(&mut self) {
        self.receive.handle_awake();
    }

    pub(crate) fn is_housekeeping_due(&mut self, now: Ticks) -> bool {
        self.housekeeping.is_due(now)
    }

    pub(crate) fn housekeep(&mut self, core: &Core, now: Ticks) {
        self.receive.housekeep(now);
        self.settle(core);
    }

    /// Puts all losses under their causes.
    pub(crate) fn settle(&mut self, core: &Core) {
        self.accounts.charge_all(&core.about.page);
        core.unsettled.set(0);
    }

    pub(crate) fn accounts(&self) -> Vec<PeerAccount> {
        self.accounts.snapshot()
    }
}

/// Condition that the thread that drives the engine waits for.
struct EngineCondition<'a> {
    core: &'a Core,
    receiving: &'a mut Receiving,
    restless: bool,
    has_news: &'a dyn Fn() -> bool,
    /// When a layer has something to do.
    due: Option<Ticks>,
    /// The caller's.
    deadline: Option<Ticks>,
    limit: Limit<'a>,
}

impl Condition for EngineCondition<'_> {
    #[inline]
    fn is_ready(&mut self) -> bool {
        (self.has_news)() || self.restless || self.receiving.is_ready()
    }

    fn timeout(&mut self) -> Option<Duration> {
        // A user who reads the account while this thread sleeps finds all losses under their causes.
        if self.core.unsettled.get() == 1 {
            self.receiving.settle(self.core);
        }
        let (now, timeout) = self.limit.begin();
        let timeout = self.due.map_or(timeout, |due| due.since(now).min(timeout));
        Some(self.limit.duration(timeout))
    }

    fn sleeps_in_receive(&mut self) -> bool {
        let longest = || self.core.about.clock.now().plus(self.core.about.clock.ticks(SLEEP_MAX));
        let is_late_at = |deadline| deadline > longest();
        let is_long = self.due.is_none() && !self.core.is_behind() && self.deadline.is_none_or(is_late_at);
        is_long && self.receiving.receive.prepare_sleep(!self.core.registry.is_shared())
    }

    fn sleep_in_receive(&mut self) -> Slept {
        // Asked once more behind the fence of the bell that was armed: a sender that falls behind later finds it so, and rings.
        if self.core.is_behind() {
            return Slept::Less;
        }
        self.receiving.receive.sleep()
    }

    fn is_overslept(&self) -> bool {
        let rung_for = (self.has_news)() || self.core.manners.rings_doorbell && self.receiving.is_ready();
        self.limit.is_the_nodes() && self.due.is_none() && rung_for
    }
}

/// One batch's work: the parts of [`Receiving`] that the engine does not own, and the component that drives it.
struct Desk<'a, 'r> {
    core: &'a Core,
    ports: &'a Ports,
    accounts: &'a mut Accounts,
    staged: &'a mut Vec<u8>,
    woken: &'a Ticks,
    guard: &'a mut Guard,
    own: &'a Inbox,
    landing: &'a mut Landing,
    reader: Option<&'a mut Reader<'r>>,
    newcomers: bool,
}

impl Desk<'_, '_> {
    #[inline]
    fn handle(&mut self, event: Event<'_>) -> Flow {
        let page = &self.core.about.page;
        match event {
            Event::Frame(arrival) => return self.handle_frame(arrival),
            Event::Joined { node, incarnation, progress, exact } => {
                self.newcomers = true;
                self.accounts.handle_joined(node, incarnation, progress, exact, page);
            }
            Event::Progressed { node, incarnation, progress } => {
                self.accounts.handle_progress(node, incarnation, progress, page);
            }
            Event::Left { node, incarnation, progress, died } => {
                self.accounts.handle_left(node, incarnation, progress, died, page);
            }
            Event::Noticed { node, incarnation, is_back } => {
                self.accounts.handle_noticed(node, incarnation, is_back, page);
            }
            Event::Trouble(trouble) => self.handle_trouble(trouble),
        }
        Flow::Continue
    }

    #[inline]
    fn handle_frame(&mut self, arrival: &Arrival<'_>) -> Flow {
        let read =
            if arrival.header.stamped { self.core.about.clock.now_after_loads() } else { Ticks::default() };
        let woken = *self.woken;
        let kernel_ns = arrival.kernel_ns.unwrap_or(0);
        let mut circumstances = Circumstances { woken, read, lost_before: 0, kernel_ns, sealed_in: None };
        if self.is_for_own_alone(arrival.header) {
            return self.land(arrival, &mut circumstances);
        }
        self.hand_on(arrival, &mut circumstances)
    }

    /// Counts why a frame was not believed.
    #[cold]
    fn refuse(&mut self, refusal: Refusal, header: &Header) -> Flow {
        self.handle_trouble(Trouble::Refused { refusal, header: *header });
        Flow::Continue
    }

    #[cold]
    fn handle_trouble(&mut self, trouble: Trouble) {
        self.accounts.handle_trouble(trouble, self.ports.has_monitors, &self.core.about.page);
    }

    fn is_for_own_alone(&self, header: &Header) -> bool {
        if self.ports.has_monitors {
            return self.own.monitors && self.ports.inboxes.len() == 1;
        }
        match header.target.port {
            Some(port) => port == self.own.port,
            // A watcher that waits for events of nodes stands in no list.
            None => self.ports.inboxes.len() == 1 && !self.own.port.is_reserved(),
        }
    }

    /// The frequent case: the message is for the component that drives the engine.
    #[inline]
    fn land(&mut self, arrival: &Arrival<'_>, circumstances: &mut Circumstances) -> Flow {
        if self.reader.is_some() && arrival.header.kind == Kind::Data && self.guard.lets_read(arrival.header)
        {
            return self.show(arrival);
        }
        match copy(self.guard, arrival, &mut self.landing.buffer) {
            Ok(sealed_in) => circumstances.sealed_in = sealed_in,
            Err(refusal) => return self.refuse(refusal, arrival.header),
        }
        let judged = self.accounts.accept(arrival.header, &self.core.about.page);
        if !judged.deliver {
            return Flow::Continue;
        }
        circumstances.lost_before = judged.lost_before;
        self.core.about.page.count(Count::Copies).add_alone(1);
        self.landing.land(Found {
            header: *arrival.header,
            stamps: arrival.stamps,
            circumstances: *circumstances,
            payload_at: PREFIX_SIZE_MAX,
            direct: true,
            waits: false,
            is_large: false,
        });
        Flow::Stop
    }

    /// The message is read where it lies.
    fn show(&mut self, arrival: &Arrival<'_>) -> Flow {
        let page = &self.core.about.page;
        let Some(reader) =
            self.reader.as_mut().filter(|_| self.accounts.accept(arrival.header, page).deliver)
        else {
            return Flow::Continue;
        };
        page.count(Count::Copies).add_alone(1);
        let row = page.row(self.own.row);
        row[RowCount::Delivered as usize].add_alone(1);
        row[RowCount::Direct as usize].add_alone(1);
        reader.show(arrival.header.source, &arrival.payload[..arrival.header.payload_size as usize]);
        if reader.wants_more() { Flow::Continue } else { Flow::Stop }
    }

    /// The message is for others, or for several: a copy goes into each inbox.
    fn hand_on(&mut self, arrival: &Arrival<'_>, circumstances: &mut Circumstances) -> Flow {
        match copy(self.guard, arrival, self.staged) {
            Ok(sealed_in) => circumstances.sealed_in = sealed_in,
            Err(refusal) => return self.refuse(refusal, arrival.header),
        }
        let payload = &self.staged[PREFIX_SIZE_MAX..][..arrival.header.payload_size as usize];
        let page = &self.core.about.page;
        let judged = self.accounts.accept(arrival.header, page);
        if !judged.deliver {
            return Flow::Continue;
        }
        circumstances.lost_before = judged.lost_before;
        let mut prefix = [0; PREFIX_SIZE_MAX];
        let prefix = write_prefix(&mut prefix, arrival);
        let (mut copies, mut own_served) = (0, false);
        for inbox in self.ports.inboxes.iter().filter(|inbox| inbox.takes(arrival.header.target)) {
            copies += 1;
            page.count(Count::Copies).add_alone(1);
            let taken = inbox.push(circumstances, prefix, payload, page);
            if std::ptr::eq(&raw const **inbox, self.own) {
                own_served = true;
            } else if taken {
                inbox.ring(&*self.core.bell);
            }
        }
        if copies == 0 {
            page.count(Count::Copies).add_alone(1);
            page.count(Count::NoSuchPort).add_alone(1);
        }
        if own_served { Flow::Stop } else { Flow::Continue }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::super::accounts::Accounts;
    use super::super::{Bus, CommunicatorOptions, Node, Presence};
    use super::{EngineCondition, Limit};
    use crate::engine::Drops;
    use crate::wake::Condition;
    use punctual_machine::event_fd::wait_readable;
    use punctual_machine::slept::Slept;
    use punctual_proto::Port;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Says that it was asked, and answers when it may.
    #[derive(Debug)]
    struct Held {
        asked: mpsc::Sender<()>,
        may: mpsc::Receiver<()>,
    }

    impl Drops for Held {
        fn take(&mut self) -> u64 {
            let _nobody_asks_any_more = self.asked.send(());
            let _nobody_holds_any_more = self.may.recv_timeout(MINUTE);
            0
        }
    }

    /// Goal: a component that found the engine taken by housekeeping is woken when that ends, also where it is the node's only one.
    /// Method: housekeeping asks the kernel what it dropped, and is held there until the component stands in the list.
    #[test]
    fn housekeeping_wakes_a_follower() {
        let local = "127.0.0.1:0".parse().expect("an address");
        let node = Node::open(&Bus::peers(local, &[]), "here").expect("a node alone");
        let Presence::Wire(core) = &node.0 else { panic!("a medium of the kernel's") };
        let inbox = core.new_inbox(Port::from(1), &CommunicatorOptions::default()).expect("a port");
        assert!(!core.registry.is_shared());
        let ((asked, was_asked), (lets, may)) = (mpsc::channel(), mpsc::channel());
        core.visit(|receiving| receiving.accounts = Accounts::new(Some(Box::new(Held { asked, may }))));
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| node.housekeep());
            was_asked.recv_timeout(MINUTE).expect("it keeps house");
            assert!(core.try_receiving().is_none(), "the engine is taken");
            core.registry.enlist(&inbox);
            drop(lets);
            keeper.join().expect("it ends");
        });
        assert!(core.registry.waiting().followers.is_empty() && !inbox.is_listed(), "it sleeps on");
        core.close(&inbox);
    }

    /// Goal: an event loop, armed while another component drove the engine, is woken when that leaves. The descriptor of the medium comes
    /// into no epoll set here. Method: a file stands for the descriptor, which no set takes.
    #[test]
    fn an_event_loop_is_woken_where_the_gate_cannot_open() {
        let local = "127.0.0.1:0".parse().expect("an address");
        let mut node = Node::open(&Bus::peers(local, &[]), "here").expect("a node alone");
        let Presence::Wire(core) = &mut node.0 else { panic!("a medium of the kernel's") };
        let file = File::open("/proc/self/exe").expect("this program");
        Arc::get_mut(core).expect("nobody else has it").descriptors = [Some(file.into()), None];
        let core = Arc::clone(core);
        let mut waits = node.bind(1).expect("a port");
        // Its first arming finds nobody, and that no set takes the medium.
        assert!(!waits.arm());
        assert!(waits.try_receive().is_err());
        let receiving = core.try_receiving().expect("nobody else drives the engine");
        assert!(waits.arm(), "another one drives the engine");
        drop(receiving);
        core.hand_over();
        assert!(wait_readable(waits.as_fd(), Some(MINUTE)).expect("a descriptor"), "it sleeps on");
    }

    /// Goal: a driver does not sleep over a frame that stays behind for want of room, at whichever instant that is. Method: it stays
    /// behind when the sleep in the call that receives has been chosen.
    #[test]
    fn a_driver_does_not_sleep_over_what_stays_behind() {
        let local = "127.0.0.1:0".parse().expect("an address");
        let node = Node::open(&Bus::peers(local, &[]), "here").expect("a node alone");
        let Presence::Wire(core) = &node.0 else { panic!("a medium of the kernel's") };
        let inbox = core.new_inbox(Port::from(1), &CommunicatorOptions::default()).expect("a port");
        let mut receiving = core.try_receiving().expect("nobody else drives the engine");
        let mut condition = EngineCondition {
            core,
            receiving: &mut receiving,
            restless: false,
            has_news: &|| false,
            due: None,
            deadline: None,
            limit: Limit::new(core, None),
        };
        assert!(condition.sleeps_in_receive(), "it is alone");
        core.behind.set(1);
        assert_eq!(condition.sleep_in_receive(), Slept::Less);
        drop(receiving);
        core.close(&inbox);
    }
}
