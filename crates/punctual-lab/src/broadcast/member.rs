//! A member's process: joins, broadcasts its share, and delivers until it has everything. It hashes what it delivers.

use std::time::{Duration, Instant};

use punctual::broadcast::{BroadcastError, Delivery, Group, GroupAccount, GroupOptions};
use punctual::engine::faulty::Faults;
use punctual::{Clock, Ledger, Node, NodeId, NodeOptions};
use punctual_machine::clock::{monotonic_ns, process_cpu_ns};
use punctual_machine::scheduling::sleep_precisely;
use punctual_proto::broadcast::DATA_PREFIX_SIZE;
use punctual_proto::sim::Rng;

use super::digest::Digest;
use super::floor::Floor;
use super::halt::Halt;
use super::kernel_faults::KernelFaults;
use super::kv::member::Serving;
use super::lives::member::Lasting;
use super::option::{FaultProfile, Paced, Planted};
use super::other::OtherMember;
use super::protocol::{
    Joined, Medium, MemberAnswer, MemberEnd, MemberPlan, MemberRequest, ProcessPlan, ROWS_MAX, Row,
    check_interrupt,
};
use crate::explain::kept::{WINDOWS_MAX, WindowLog};
use crate::load::watch::SLOW;
use crate::run::Requests;
use crate::run::rows::bytes_of;

/// Longest time for all to meet, and longest silence while messages are missing that are due.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest silence while messages are missing: until the next is due, none can come.
fn silence_max(paced: Option<Paced>, planted: Option<Planted>) -> Duration {
    let patience = if planted == Some(Planted::Lost) { PATIENCE / 10 } else { PATIENCE };
    patience + paced.map_or(Duration::ZERO, |paced| Duration::from_nanos(paced.period_ns))
}

/// On a machine with few processors some members do not run for a while: a member that is silent for less is not suspected.
pub(super) const SUSPECT_AFTER: Duration = Duration::from_secs(3);

/// Time that a sender without credit waits for something to deliver before it tries again.
pub(super) const BETWEEN_TRIES: Duration = Duration::from_micros(200);

/// Heartbeats behind the last message in which no other may come: a message that was held twice or is repaired once more comes with
/// one.
const HEARTBEATS_AFTER: u32 = 2;

/// Longest wait for something to deliver.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Number and instant in front of each message.
pub(super) const PREFIX_SIZE: usize = 16;

/// Random bytes from which messages are cut.
const POOL_SIZE: usize = 1 << 20;

/// Does as told.
pub fn serve(mut requests: Requests) -> Result<(), String> {
    let Some(()) = requests.prepare() else { return Ok(()) };
    let (mut running, mut floor, mut lasting) = (None::<Member>, None::<Floor>, None::<Alive>);
    while let Some(request) = requests.recv() {
        match request {
            MemberRequest::Open(plan) => {
                let opened = Member::open(*plan);
                let joined = opened.map(|(opened, joined)| (running.insert(opened), joined).1);
                requests.answer(&joined)?;
            }
            MemberRequest::Floor(plan) => {
                // One that was opened and never travelled has the same node.
                floor = None;
                let opened = Floor::open(plan).map(|opened| floor = Some(opened));
                requests.answer(&opened)?;
            }
            MemberRequest::Go { at_ns } => match (&mut running, floor.take()) {
                (Some(running), _) => match running.travel(at_ns) {
                    Ok((answer, bytes)) => {
                        requests.answer(&Ok(Ok::<MemberAnswer, Halt>(answer)))?;
                        requests.send_bytes(&bytes)?;
                    }
                    Err(halt) => requests.answer(&Ok(Err::<MemberAnswer, Halt>(halt)))?,
                },
                (None, Some(mut floor)) => requests.answer(&floor.travel(at_ns))?,
                (None, None) => requests.answer::<MemberEnd>(&Err("nothing is open".to_owned()))?,
            },
            MemberRequest::Live(plan) => {
                let lived = Alive::live(*plan).map(|(member, joined)| (lasting.insert(member), joined).1);
                requests.answer(&Ok(lived))?;
            }
            MemberRequest::Close => {
                (running, floor, lasting) = (None, None, None);
                requests.answer(&Ok(()))?;
            }
        }
    }
    Ok(())
}

/// A member that has joined: of ours, or of others.
enum Member {
    Ours(Box<Running>),
    Other(OtherMember),
}

impl Member {
    fn open(plan: MemberPlan) -> Result<(Self, Joined), String> {
        Ok(if let Medium::Other(of) = &plan.medium {
            let (member, joined) = OtherMember::open(&plan, of)?;
            (Self::Other(member), joined)
        } else {
            let (member, joined) = Running::open(plan)?;
            (Self::Ours(Box::new(member)), joined)
        })
    }

    fn travel(&mut self, at_ns: u64) -> Result<(MemberAnswer, Vec<u8>), Halt> {
        match self {
            Self::Ours(member) => member.travel(at_ns),
            Self::Other(member) => Ok(member.travel(at_ns)?),
        }
    }
}

/// A member that lived until all was over, and stays until it is let go.
#[expect(dead_code, reason = "it is held, and asked for nothing")]
enum Alive {
    Broadcasting(Box<Lasting>),
    Serving(Box<Serving>),
}

impl Alive {
    fn live(plan: ProcessPlan) -> Result<(Self, Joined), Halt> {
        Ok(match plan.kv {
            None => {
                Lasting::live(plan).map(|(member, joined)| (Self::Broadcasting(Box::new(member)), joined))?
            }
            Some(kv) => {
                let (member, joined) = Serving::live(plan, kv)?;
                (Self::Serving(Box::new(member)), joined)
            }
        })
    }
}

/// The name of a member's node.
fn name(place: usize) -> String {
    format!("member-{place}")
}

/// As two words.
fn words(digest: u128) -> [u64; 2] {
    [digest as u64, (digest >> 64) as u64]
}

/// A member looks at its own thread between two messages, if it has not for long: closer after a slow one.
fn look(log: &mut Option<WindowLog>, progress: &Progress) {
    if let Some(log) = log.as_mut().filter(|log| log.is_due(Clock::get().now())) {
        let slow = |row: &Row| Duration::from_nanos(row.at_ns.saturating_sub(row.sent_ns)) > SLOW;
        log.close(0, progress.rows.last().is_some_and(slow));
    }
}

/// A member that has joined.
struct Running {
    plan: MemberPlan,
    faults: Option<KernelFaults>,
    group: Group,
    /// The view in which all met. Its delivery may still come.
    first_view: u64,
    heartbeat: Duration,
    node: Node,
    roster: Vec<NodeId>,
    pool: Pool,
}

/// A member that has asked to join, or founds the group.
pub(super) struct Joining {
    pub(super) node: Node,
    pub(super) group: Group,
    pub(super) heartbeat: Duration,
    pub(super) roster: Vec<NodeId>,
    pub(super) faults: Option<KernelFaults>,
}

impl Joining {
    pub(super) fn open(plan: &MemberPlan, founds: bool, suspect_after: Duration) -> Result<Self, Halt> {
        let faults = KernelFaults::of(plan)?;
        let (node, options) = Self::options(plan, founds, suspect_after)?;
        let group = Group::join(&node, &options)?;
        Ok(Self { node, group, heartbeat: options.heartbeat, roster: options.roster, faults })
    }

    /// The node of a member, and how it joins.
    pub(super) fn options(
        plan: &MemberPlan,
        founds: bool,
        suspect_after: Duration,
    ) -> Result<(Node, GroupOptions), Halt> {
        let FaultProfile { loss_permille, flips_permille, in_kernel } = plan.faults;
        let faults = Faults::seeded(plan.seed);
        let faults = if in_kernel { faults } else { faults.loss(loss_permille).corruption(flips_permille) };
        let Medium::Bus(bus) = &plan.medium else {
            return Err(Halt::Stuck("a member of others has no node".to_owned()));
        };
        let node = NodeOptions::new(&name(plan.place)).faults(faults).open(&bus.bus())?;
        let names: Vec<String> = (0..plan.members).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let usual = GroupOptions::new("broadcast", &names);
        let most = node.payload_size_max().saturating_sub(DATA_PREFIX_SIZE);
        let frame_size = plan.frame.resolve(plan.message, most);
        let options = GroupOptions {
            founds,
            guarantee: plan.kind.guarantee(),
            frame_size,
            window: plan.window.or(usual.window),
            message_size_max: plan.message,
            suspect_after,
            expel_slow_after: None,
            ..usual
        };
        Ok((node, options))
    }
}

/// Random bytes from which messages are cut, and the message that was cut last.
pub(super) struct Pool {
    bytes: Vec<u8>,
    message: Vec<u8>,
    size: usize,
}

impl Pool {
    pub(super) fn new(plan: &MemberPlan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let bytes = (0..POOL_SIZE + plan.message).map(|_| rng.number() as u8).collect();
        Self { bytes, message: Vec::new(), size: plan.message }
    }

    /// A message with this number, of this instant.
    pub(super) fn message(&mut self, number: u64) -> &[u8] {
        let offset = (number.wrapping_mul(7_919) % POOL_SIZE as u64) as usize;
        self.message.clear();
        self.message.extend_from_slice(&self.bytes[offset..offset + self.size]);
        self.message[..8].copy_from_slice(&number.to_le_bytes());
        self.message[8..PREFIX_SIZE].copy_from_slice(&monotonic_ns().to_le_bytes());
        &self.message
    }
}

/// Number and instant of a message; numbers that no message has where it is too short.
pub(super) fn prefix(payload: &[u8]) -> [u64; 2] {
    let word = |at: usize| {
        payload
            .get(at..at + 8)
            .map_or(u64::MAX, |word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
    };
    [word(0), word(8)]
}

/// Results of a trial until now.
#[derive(Default)]
struct Progress {
    sent: u64,
    delivered: u64,
    views: u64,
    bytes: u64,
    digest: Digest,
    own: Digest,
    rows: Vec<Row>,
    hashes: Vec<u64>,
    /// The message that is delivered after the one behind it, on purpose.
    exchanged: Option<(u64, Vec<u8>, u64)>,
    /// A message was dropped on purpose.
    has_dropped: bool,
}

impl Running {
    fn open(plan: MemberPlan) -> Result<(Self, Joined), String> {
        let mut joining = Joining::open(&plan, plan.place == 0, SUSPECT_AFTER).map_err(Halt::text)?;
        let (group, began) = (&mut joining.group, Instant::now());
        while group.view().members.len() < plan.members {
            check_interrupt(0, plan.senders as u64 * plan.each)?;
            if began.elapsed() > PATIENCE {
                return Err(format!("{} of {} members met", group.view().members.len(), plan.members));
            }
            let _told = group.deliver(Duration::from_millis(5));
        }
        Ok(Self::met(plan, joining))
    }

    /// All have met. That view may still have to be delivered.
    fn met(plan: MemberPlan, joining: Joining) -> (Self, Joined) {
        let Joining { node, mut group, heartbeat, roster, faults } = joining;
        let pool = Pool::new(&plan);
        let joined = Joined { frame: group.account().frame_size };
        let first_view = group.view().number;
        (Self { plan, faults, group, first_view, heartbeat, node, roster, pool }, joined)
    }

    fn travel(&mut self, at_ns: u64) -> Result<(MemberAnswer, Vec<u8>), Halt> {
        let all = self.plan.senders as u64 * self.plan.each;
        let (ledger, account) = (self.node.ledger(), self.group.account());
        let cpu_ns = process_cpu_ns();
        let damaged = KernelFaults::counts(self.faults.as_ref())?;
        let mut progress = Progress { digest: Digest::of(self.plan.kind), ..Progress::default() };
        let mut log = self.plan.paced.map(|_| {
            sleep_precisely();
            WindowLog::of_this_thread(WINDOWS_MAX)
        });
        // A member that is told later delivers meanwhile: it has the others' first messages then.
        while let Some(rest) = at_ns.checked_sub(monotonic_ns()).filter(|&rest| rest > 0) {
            check_interrupt(progress.delivered, all)?;
            self.deliver(&mut progress, Duration::from_nanos(rest))?;
        }
        let mut last = Instant::now();
        while progress.delivered < all {
            check_interrupt(progress.delivered, all)?;
            let before = (progress.delivered, progress.sent);
            let wait = self.broadcast(&mut progress, at_ns)?;
            self.deliver(&mut progress, wait)?;
            look(&mut log, &progress);
            if before != (progress.delivered, progress.sent) {
                last = Instant::now();
            } else if last.elapsed() > silence_max(self.plan.paced, self.plan.planted) {
                // Missing messages are judged with all else.
                break;
            }
        }
        let mut end = self.end(&progress, (&ledger, &account), process_cpu_ns() - cpu_ns);
        let damaged_now = KernelFaults::counts(self.faults.as_ref())?;
        end.packets_damaged = [0, 1, 2].map(|place| damaged_now[place] - damaged[place]);
        // A message that comes now is one too many, and is judged with all else. The time that is measured is over.
        let until = Instant::now() + HEARTBEATS_AFTER * self.heartbeat;
        while let Some(rest) = until.checked_duration_since(Instant::now()) {
            self.deliver(&mut progress, rest)?;
        }
        end.missing = all.saturating_sub(progress.delivered);
        let end = progress.describe(end);
        let bytes = [bytes_of(&progress.rows), bytes_of(&progress.hashes)].concat();
        Ok(((end, log.map(WindowLog::finish)), bytes))
    }

    /// Measurements until now.
    fn end(&mut self, progress: &Progress, before: (&Ledger, &GroupAccount), cpu_ns: u64) -> MemberEnd {
        let ended_ns = monotonic_ns();
        let (ledger, account) = (self.node.ledger(), self.group.account());
        MemberEnd {
            ended_ns,
            bytes: progress.bytes,
            cpu_ns,
            frames_sent: ledger.sent - before.0.sent,
            frames_arrived: ledger.arrived - before.0.arrived,
            frames_lost: ledger.lost().saturating_sub(before.0.lost()),
            repaired: account.repaired - before.1.repaired,
            questions: account.questions - before.1.questions,
            views: progress.views,
            ..MemberEnd::default()
        }
    }

    /// Broadcasts as many messages as are due and the group takes. Returns the time to deliver until there may be more.
    fn broadcast(&mut self, progress: &mut Progress, at_ns: u64) -> Result<Duration, Halt> {
        let sends = self.plan.place < self.plan.senders;
        while sends && progress.sent < self.plan.each {
            if let Some(rest) = self.until_due(progress.sent, at_ns) {
                return Ok(rest.min(WAIT_MAX));
            }
            let message = self.pool.message(progress.sent);
            match self.group.try_broadcast(message) {
                Ok(()) => {}
                Err(BroadcastError::Full | BroadcastError::Changing | BroadcastError::Stopped) => {
                    return Ok(BETWEEN_TRIES);
                }
                Err(error @ BroadcastError::Size { .. }) => {
                    return Err(Halt::Stuck(error.to_string()).of_member(self.plan.place));
                }
                Err(error) => return Err(Halt::Machine(error.to_string()).of_member(self.plan.place)),
            }
            let hash = progress.own.add(self.plan.place as u64, message);
            if progress.hashes.len() < ROWS_MAX {
                progress.hashes.push(hash);
            }
            progress.sent += 1;
        }
        Ok(WAIT_MAX)
    }

    /// Time until a message of this member is due, if it is not yet.
    fn until_due(&self, number: u64, at_ns: u64) -> Option<Duration> {
        let due_ns = at_ns + self.plan.paced?.due_ns(number, self.plan.place as u64, self.plan.senders);
        due_ns.checked_sub(monotonic_ns()).filter(|&rest| rest > 0).map(Duration::from_nanos)
    }

    /// Delivers what comes next, if something does.
    fn deliver(&mut self, progress: &mut Progress, timeout: Duration) -> Result<(), Halt> {
        match self.group.deliver(timeout) {
            Ok(Delivery::Message(message)) => {
                let sender = self.roster.iter().position(|&node| node == message.sender);
                let nobody = || Halt::Stuck("a message of nobody in the roster".to_owned());
                let sender = sender.ok_or_else(|| nobody().of_member(self.plan.place))?;
                progress.take(&self.plan, sender as u64, message.payload, monotonic_ns());
            }
            Ok(Delivery::View(view)) => progress.views += u64::from(view.number > self.first_view),
            Ok(Delivery::Expelled) => {
                return Err(Halt::Machine("it was expelled".to_owned()).of_member(self.plan.place));
            }
            Ok(Delivery::Stopped | Delivery::Resumed) | Err(_) => {}
        }
        Ok(())
    }
}

impl Progress {
    /// Adds what was delivered and sent to what was measured.
    fn describe(&self, end: MemberEnd) -> MemberEnd {
        MemberEnd {
            content: words(self.digest.content),
            order: words(self.digest.order()),
            out_of_turn: self.digest.out_of_turn,
            sent: words(self.own.content),
            rows: self.rows.len(),
            hashes: self.hashes.len(),
            ..end
        }
    }

    fn take(&mut self, plan: &MemberPlan, sender: u64, payload: &[u8], at_ns: u64) {
        let middle = plan.senders as u64 * plan.each / 2;
        match plan.planted.filter(|_| self.delivered == middle) {
            None => self.add(sender, payload, at_ns),
            Some(Planted::Content) => {
                let mut altered = payload.to_vec();
                *altered.last_mut().expect("no message is empty") ^= 1;
                self.add(sender, &altered, at_ns);
            }
            Some(Planted::Order) => self.exchanged = Some((sender, payload.to_vec(), at_ns)),
            Some(Planted::Lost) if !self.has_dropped => return self.has_dropped = true,
            Some(Planted::Lost) => self.add(sender, payload, at_ns),
        }
        if self.delivered > middle
            && let Some((sender, payload, at_ns)) = self.exchanged.take()
        {
            self.add(sender, &payload, at_ns);
        }
        self.delivered += 1;
        self.bytes += payload.len() as u64;
    }

    fn add(&mut self, sender: u64, payload: &[u8], at_ns: u64) {
        let hash = self.digest.add(sender, payload);
        let [number, sent_ns] = prefix(payload);
        self.digest.note_number(sender, number);
        if self.rows.len() < ROWS_MAX {
            self.rows.push(Row { sender, number, hash, sent_ns, at_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::sync::mpsc::{self, TryRecvError};

    use super::super::messages::datagram_size;
    use super::super::protocol::size_behind;
    use super::*;
    use crate::broadcast::option::{BroadcastKind, FrameSize};
    use crate::broadcast::turn::FLOOR_SIZE;
    use crate::endpoint::BusPlan;

    /// Of two members, of which the first one sends ten messages.
    fn plan(bus: BusPlan, place: usize) -> MemberPlan {
        MemberPlan {
            place,
            members: 2,
            senders: 1,
            each: 10,
            paced: None,
            message: 5_000,
            frame: FrameSize::Usual,
            window: None,
            kind: BroadcastKind::Agreed,
            faults: "0/0".parse().expect("a profile"),
            seed: 1,
            medium: Medium::Bus(bus),
            has_checksums: false,
            planted: None,
        }
    }

    fn opened(plan: MemberPlan) -> (Running, Joined) {
        Running::open(plan).expect("two members")
    }

    /// The first member's end, and its frames' payload, where the other one broadcasts a message that nobody waits for, or none.
    fn end_beside(
        other_speaks: bool,
        [own, others]: [BusPlan; 2],
        open: fn(MemberPlan) -> (Running, Joined),
    ) -> (MemberEnd, usize) {
        let others = plan(others, 1);
        let (said, heard) = mpsc::channel();
        let (ends, over) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let mut joining = Joining::open(&others, false, SUSPECT_AFTER).expect("a member");
            let (group, began) = (&mut joining.group, Instant::now());
            let mut speaks = other_speaks;
            while over.try_recv() == Err(TryRecvError::Empty) && began.elapsed() < 3 * PATIENCE {
                let _told = group.deliver(Duration::from_millis(1));
                if speaks && group.view().members.len() == 2 && group.try_broadcast(&[7; 5_000]).is_ok() {
                    speaks = false;
                    said.send(()).expect("somebody who waits");
                }
            }
        });
        let (mut member, joined) = open(plan(own, 0));
        if other_speaks {
            heard.recv_timeout(PATIENCE).expect("a message of the other");
        }
        let ((end, _), bytes) = member.travel(monotonic_ns()).expect("ten messages");
        assert_eq!(bytes.len(), size_behind(&end));
        drop(ends);
        other.join().expect("the other member");
        (end, joined.frame)
    }

    /// Goal: a message behind the last one is seen, though nobody waits for it, and is no part of what is measured. Method: of eleven
    /// messages ten are expected.
    #[test]
    fn a_message_behind_the_last_one_is_seen() {
        let end = |other_speaks| {
            let bus = BusPlan::Shared(format!("behind-the-last-{}-{other_speaks}", std::process::id()));
            end_beside(other_speaks, [bus.clone(), bus], opened).0
        };
        let calm = end(false);
        assert_eq!((calm.rows, calm.bytes), (10, 50_000));
        assert_eq!(calm.content, calm.sent);
        let doubled = end(true);
        assert_eq!((doubled.rows, doubled.bytes), (11, 50_000));
        assert_ne!(doubled.content, doubled.sent);
    }

    /// Goal: datagrams of the floor are as large as a group's. Method: a bare socket hears all that the first member sends.
    #[test]
    fn datagrams_of_the_floor_are_as_large_as_a_groups() {
        // An address of this process alone: a port of it that is given back stays free until the members bind it.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let host = Ipv4Addr::new(127, 64 + high % 64, middle, low);
        let socket = || UdpSocket::bind((host, 0)).expect("a port");
        let hearer = socket();
        let [one, other] = [socket(), socket()].map(|socket| socket.local_addr().expect("an address"));
        let heard = hearer.local_addr().expect("an address");
        let buses = [(one, vec![other, heard]), (other, vec![one])]
            .map(|(local, peers)| BusPlan::Peers { local, peers });
        let (_, frame) = end_beside(false, buses, opened);
        hearer.set_nonblocking(true).expect("a socket");
        let (mut largest, mut bytes) = (0, [0; 65_535]);
        while let Ok(size) = hearer.recv(&mut bytes) {
            largest = largest.max(size);
        }
        assert_eq!((largest, frame), (datagram_size(FLOOR_SIZE), FLOOR_SIZE));
    }

    /// Goal: the view in which all met is none of those that began later, though its delivery may come then. Method: the member delivers
    /// nothing until it is in that view.
    #[test]
    fn the_view_of_the_meeting_is_no_later_one() {
        let bus = BusPlan::Shared(format!("view-of-the-meeting-{}", std::process::id()));
        let meets_only = |plan: MemberPlan| {
            let (mut joining, began) =
                (Joining::open(&plan, true, SUSPECT_AFTER).expect("a member"), Instant::now());
            while joining.group.view().members.len() < plan.members {
                assert!(began.elapsed() < PATIENCE, "nobody came");
                std::thread::sleep(Duration::from_millis(1));
            }
            Running::met(plan, joining)
        };
        assert_eq!(end_beside(false, [bus.clone(), bus], meets_only).0.views, 0);
    }

    /// Goal: a message that is not due yet is not missed, however long the period.
    #[test]
    fn nobody_gives_up_before_a_message_is_due() {
        assert_eq!(silence_max(None, None), PATIENCE);
        let paced = Paced { period_ns: 60_000_000_000, each: 2 };
        assert!(silence_max(Some(paced), None) > Duration::from_nanos(paced.due_ns(1, 0, 1)));
    }
}
