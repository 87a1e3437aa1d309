//! Members in processes of their own, and what joins them: shared memory; or a bridge with a veth pair for each, all in network
//! namespaces that nobody else has.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use punctual_machine::clock::monotonic_ns;
use punctual_machine::signal::interrupted;

use super::halt::Halt;
use super::judge::{Delivered, all_ended};
use super::option::{
    BroadcastEngine, BroadcastKind, BroadcastSettings, Datagrams, FaultProfile, FrameSize, Paced,
};
use super::protocol::{
    FloorEnd, FloorPlan, Joined, Medium, MemberAnswer, MemberEnd, MemberPlan, MemberRequest, OtherPlan,
    read_rows, size_behind,
};
use crate::endpoint::BusPlan;
use crate::explain::kept::ClockPair;
use crate::explain::run_trace::RunRecorder;
use crate::run::{Crew, CrewBridge, Worker, leave_with_bridge};

/// The bridge, and the interface that each member has.
const BRIDGE: &str = "hall";
pub(super) const INTERFACE: &str = "seat";
/// Bits of an address that all members share.
const PREFIX: u8 = 24;
/// Largest packet of these interfaces, bytes.
pub(super) const MTU: usize = 1_500;
/// Multicast group, of the block for local use (RFC 2365), and its port. Bare datagrams have another port.
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 79, 5, 15)), 9_945);
const GROUP_BARE: SocketAddr = SocketAddr::new(GROUP.ip(), 9_946);
/// Port of members that know each other's addresses.
const PORT: u16 = 9_947;

/// After the last member was told, so long until the first message: all are awake by then.
const START_AFTER_NS: u64 = 20_000_000;

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TrialPlan {
    pub(super) engine: BroadcastEngine,
    pub(super) kind: BroadcastKind,
    pub(super) members: usize,
    pub(super) faults: FaultProfile,
    pub(super) frame: FrameSize,
    pub(super) seed: u64,
}

/// Result of a trial.
pub(super) struct Travelled {
    pub(super) started_ns: u64,
    pub(super) frame: usize,
    pub(super) members: Vec<(MemberEnd, Delivered)>,
    /// Records the kernel, if that was asked for, or why not.
    pub(super) recorder: Option<Result<RunRecorder, String>>,
    /// Before the first message, and after the last.
    pub(super) clocks: [ClockPair; 2],
}

/// All processes.
#[derive(Debug)]
pub(super) struct BroadcastTestbed {
    pub(super) crew: Crew,
    /// Why there is no network, if there is none.
    without_network: Option<String>,
    number: u32,
}

fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, 5, place as u8 + 1)
}

impl BroadcastTestbed {
    /// Starts so many members; with a network if one is asked for and can be had. The calling thread leaves for a namespace.
    pub(super) fn start(count: usize, wants_network: bool, pins: bool) -> Result<Self, String> {
        let made = if wants_network {
            leave_with_bridge(BRIDGE)
        } else {
            Err("no medium of a network was asked for".to_owned())
        };
        let without_network = made.err().map(|reason| {
            format!("members need network namespaces: {reason}. Without root: --engine shared")
        });
        let hall = CrewBridge {
            bridge: BRIDGE,
            port: BRIDGE.to_owned(),
            interface: INTERFACE,
            address: (address, PREFIX),
        };
        let crew = Crew::start("member", count, without_network.is_none().then_some(&hall), pins)?;
        Ok(Self { crew, without_network, number: 0 })
    }

    fn check_network(&self) -> Result<(), String> {
        self.without_network.clone().map_or(Ok(()), Err)
    }

    fn medium(
        &self,
        engine: BroadcastEngine,
        place: usize,
        members: usize,
        settings: &BroadcastSettings,
    ) -> Medium {
        let at = |place: usize| SocketAddr::new(address(place).into(), PORT);
        Medium::Bus(match engine {
            BroadcastEngine::Other(system) => {
                let addresses = (0..members).map(address).collect();
                return Medium::Other(OtherPlan {
                    system,
                    program: settings.peer_program.clone(),
                    addresses,
                });
            }
            BroadcastEngine::Shared => {
                BusPlan::Shared(format!("broadcast-{}-{}", std::process::id(), self.number))
            }
            BroadcastEngine::Multicast => BusPlan::Multicast { group: GROUP, interface: address(place) },
            BroadcastEngine::Udp => {
                let peers = (0..members).filter(|&other| other != place).map(at).collect();
                BusPlan::Peers { local: at(place), peers }
            }
            BroadcastEngine::Ethernet => BusPlan::Ethernet { interface: INTERFACE.to_owned(), frames: None },
        })
    }

    /// Makes one trial: a group that is founded, and ends with it.
    pub(super) fn make(
        &mut self,
        settings: &BroadcastSettings,
        trial: &TrialPlan,
    ) -> Result<Travelled, Halt> {
        let plans = self.begin(settings, trial)?;
        let travelled = self.travel(&plans, settings.trace.then_some(settings.paced).flatten());
        self.end(trial.members, travelled)
    }

    /// Lets members leave, and after a failure replaces those that ended: the next trial is one of its own.
    fn end<T, E: From<String>>(&mut self, members: usize, made: Result<T, E>) -> Result<T, E> {
        if made.is_ok() {
            self.close(members)?;
            return made;
        }
        for place in 0..members {
            // A failure here is the next trial's too, which tells it.
            if self.crew.workers[place].ask::<()>(&MemberRequest::Close).is_err() {
                let _told_later = self.crew.replace(place);
            }
        }
        made
    }

    /// The next trial, as each member sees it.
    pub(super) fn begin(
        &mut self,
        settings: &BroadcastSettings,
        trial: &TrialPlan,
    ) -> Result<Vec<MemberPlan>, String> {
        if trial.engine.is_of_a_network() {
            self.check_network()?;
        }
        self.number += 1;
        let members = trial.members;
        let senders = settings.senders.count(members);
        let messages = settings.bytes.div_ceil(settings.message as u64);
        let each = settings.paced.map_or(messages.div_ceil(senders as u64), |paced| paced.each);
        let plans = (0..members)
            .map(|place| MemberPlan {
                place,
                members,
                senders,
                each,
                paced: settings.paced,
                message: settings.message,
                frame: trial.frame,
                window: settings.window,
                kind: trial.kind,
                faults: trial.faults,
                seed: trial.seed.wrapping_mul(1_000).wrapping_add(place as u64 + 1),
                medium: self.medium(trial.engine, place, members, settings),
                has_checksums: !settings.against.is_empty(),
                planted: settings.planted.filter(|_| place + 1 == members),
            })
            .collect();
        Ok(plans)
    }

    /// Lets so many members leave.
    pub(super) fn close(&mut self, members: usize) -> Result<(), String> {
        self.crew.ask_all::<(), _>(members, |_| MemberRequest::Close).map(|_| ())
    }

    fn travel(&mut self, plans: &[MemberPlan], traced: Option<Paced>) -> Result<Travelled, Halt> {
        let members = plans.len();
        let open = |place: usize| MemberRequest::Open(Box::new(MemberPlan::clone(&plans[place])));
        let joined: Vec<Joined> = self.crew.ask_all(members, open)?;
        let before = ClockPair::now();
        let at_ns = monotonic_ns() + START_AFTER_NS;
        let recorder = traced.map(|paced| RunRecorder::start(at_ns, paced.period_ns));
        let told = self.crew.tell(members, |_| MemberRequest::Go { at_ns });
        let ends = self.crew.hear_together(members, |worker| Ok(end_of(worker)));
        let clocks = [before, ClockPair::now()];
        told?;
        let ends = ends
            .into_iter()
            .enumerate()
            .map(|(place, end)| end.unwrap_or_else(|silent| Err(halt_of_silence(silent).of_member(place))));
        let members = all_ended(ends.collect(), plans[0].kind)?;
        Ok(Travelled { started_ns: at_ns, frame: joined[0].frame, members, recorder, clocks })
    }

    /// Multicast without a group, from the first to the others: of each, what it sent or received, and since when.
    pub(super) fn floor(
        &mut self,
        members: usize,
        (count, size): (u64, usize),
        datagrams: Datagrams,
    ) -> Result<(u64, Vec<FloorEnd>), String> {
        self.check_network()?;
        let plan = |place: usize| {
            let (group, interface) = (GROUP_BARE, address(place));
            MemberRequest::Floor(FloorPlan { group, interface, sends: place == 0, count, size, datagrams })
        };
        let made = self.crew.ask_all::<(), _>(members, plan).and_then(|_| {
            let at_ns = monotonic_ns() + START_AFTER_NS;
            Ok((at_ns, self.crew.ask_all(members, |_| MemberRequest::Go { at_ns })?))
        });
        self.end(members, made)
    }
}

/// A member that was ended since it said nothing: a hang, unless an interrupt is why it was not waited for.
fn halt_of_silence(silent: String) -> Halt {
    if interrupted() { Halt::Machine(silent) } else { Halt::Stuck(silent) }
}

fn end_of(worker: &mut Worker) -> Result<(MemberEnd, Delivered), Halt> {
    let said = worker.recv::<Result<MemberAnswer, Halt>>();
    let (end, windows) = said.unwrap_or_else(|why| Err(Halt::of_end(worker, why)))?;
    let bytes = worker.recv_bytes(size_behind(&end))?;
    let (rows, hashes) = read_rows(&bytes, end.rows).ok_or("a member brought too few rows".to_owned())?;
    Ok((end, Delivered { rows, hashes, windows }))
}
