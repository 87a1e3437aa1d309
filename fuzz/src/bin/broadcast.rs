//! Messages of any bytes, among the true ones of a group at work, do a member of it no harm: none panics, goes on for ever, says
//! more than fits, or delivers more than a message may have.
#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_proto::broadcast::{
    Command, Event, GroupOptions, Guarantee, HEADER_SIZE, Member, Replication, State, VERSION, crc32c,
};
use punctual_proto::{Address, Nanos, NodeId, Port, Protocol};

const MEMBERS: usize = 3;
const FRAME_SIZE: usize = 32;
const MESSAGE_SIZE_MAX: usize = 500;
/// Most that a member says in one step, in answer to any message.
const SAID_MAX: usize = 2_000;
const STEP: Nanos = Nanos::from_micros(200);

/// Size of a message's prefix: its hearer, its claimed sender, how it is made, the time that passes then, and its size.
const PREFIX_SIZE: usize = 4;

/// A state that is as large as what it was told.
#[derive(Default)]
struct Bytes(u64);

impl State for Bytes {
    type Output = ();
    type Snapshot = Option<u64>;

    fn apply(&mut self, command: Command<'_>) {
        self.0 += command.payload.len() as u64;
    }
    fn snapshot(&self) -> Option<u64> {
        Some(self.0)
    }
    fn read(snapshot: &mut Option<u64>, buffer: &mut [u8]) -> usize {
        snapshot.take().map_or(0, |size| {
            buffer[..8].copy_from_slice(&size.to_le_bytes());
            8
        })
    }
    fn reset(&mut self) {
        self.0 = 0;
    }
    fn restore(&mut self, part: &[u8]) {
        self.0 += part.len() as u64;
    }
}

/// Members that hear each other at once, each with its copy of a state.
struct Room {
    members: Vec<(Member, Replication<Bytes>)>,
    now: Nanos,
    buffer: Vec<u8>,
}

fn options(place: usize) -> GroupOptions {
    let node = |place: usize| NodeId::new(100 + place as u64).expect("a number of a node");
    let roster = (0..MEMBERS).map(node).collect();
    let group = GroupOptions::new(7, roster, node(place), Port::from(1));
    let (founds, message_size_max) = (place == 0, MESSAGE_SIZE_MAX);
    // Without a check value altered messages are read.
    GroupOptions { founds, window: 8, frame_size: FRAME_SIZE, message_size_max, check: None, ..group }
}

impl Room {
    fn new() -> Self {
        let member = |place: usize| {
            let member = Member::new(options(place), 11 + place as u64, Nanos(0)).expect("good options");
            (member, Replication::new(Bytes::default(), place, 64))
        };
        let buffer = vec![0; options(0).datagram_size()];
        let mut room = Self { members: (0..MEMBERS).map(member).collect(), now: Nanos(0), buffer };
        let is_whole = |room: &Self| room.members.iter().all(|(member, _)| member.view().size() == MEMBERS);
        while !is_whole(&room) {
            room.step();
            room.now = room.now.plus(Nanos::from_millis(1));
        }
        room
    }

    fn address(&self, place: usize) -> Address {
        Address { node: self.members[0].0.node(place).expect("in the roster"), port: Port::from(1) }
    }

    /// Everybody says what there is, hears it, and is told what there is.
    fn step(&mut self) {
        self.now = self.now.plus(STEP);
        for source in 0..MEMBERS {
            self.members[source].0.handle_timeout(self.now);
            let mut said_count = 0;
            while let Some(said) = self.members[source].0.poll_transmit(self.now, &mut self.buffer) {
                assert!(said.size <= self.buffer.len());
                said_count += 1;
                assert!(said_count <= SAID_MAX, "it goes on for ever");
                let address = self.address(source);
                for target in (0..MEMBERS).filter(|&target| target != source) {
                    let node = self.address(target).node;
                    if said.target.includes_node(node) {
                        let (member, _) = &mut self.members[target];
                        member.handle_message(address, &self.buffer[..said.size], self.now);
                    }
                }
            }
            self.deliver(source);
            self.look_at(source);
        }
    }

    /// Its accounts are asked for at any time, by those who watch it.
    fn look_at(&self, place: usize) {
        let (member, _) = &self.members[place];
        let account = member.account();
        assert!(account.slowest.is_none_or(|slowest| slowest < MEMBERS));
        for other in 0..MEMBERS {
            let is_member = member.view().life(other).is_some();
            assert_eq!(member.behind(other).is_some(), is_member);
        }
    }

    fn deliver(&mut self, place: usize) {
        let now = self.now;
        let (member, copy) = &mut self.members[place];
        while let Some(event) = member.poll_event() {
            if let Event::Delivered(delivery) = &event {
                assert_eq!(member.message().len(), delivery.size);
                assert!(delivery.size <= MESSAGE_SIZE_MAX);
            }
            let bytes = if let Event::Delivered(_) = event { member.message().to_vec() } else { Vec::new() };
            copy.handle(&event, &bytes);
            while let Some(message) = copy.poll_broadcast()
                && member.try_broadcast(message, Guarantee::Uniform, now).is_ok()
            {
                copy.note_taken();
            }
        }
    }
}

/// Kinds that name the terms of a group.
const JOIN: u8 = 4;
const REFUSAL: u8 = 10;

/// The terms of the group, as its members write them.
fn terms() -> Vec<u8> {
    let options = options(0);
    let nodes: Vec<u8> = options.roster.iter().flat_map(|node| node.get().to_le_bytes()).collect();
    let words = [
        options.frame_size as u32,
        options.window as u32,
        options.message_size_max as u32,
        crc32c(0, &nodes),
    ];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Kinds that answer a ballot: they name the epoch of their addressee.
const PROMISE: u8 = 6;
const ACCEPTED: u8 = 8;

/// The bytes that `target` hears. All of them are the input's, or they follow a header that is as `source` would write it.
fn message(room: &Room, (source, target): (usize, usize), how: u8, bytes: &[u8]) -> Vec<u8> {
    if how & 128 != 0 {
        return bytes.to_vec();
    }
    let (member, _) = &room.members[source];
    let mut message = vec![0x2B, VERSION << 4 | (how & 15), source as u8, 0, 0, 0, 0, 0];
    // A life and a view of now; an undisturbed view, or one that changes; positions as the input says.
    let positions = bytes.first_chunk::<3>().copied().unwrap_or_default().map(u64::from);
    let leader = if matches!(how & 15, PROMISE | ACCEPTED) { target } else { source };
    // Its lowest byte names who leads.
    let epoch = if how & 16 != 0 { u64::from(1 + (how >> 5 & 3)) << 8 | leader as u64 } else { 0 };
    for word in [7, member.life(), member.view().number, epoch].into_iter().chain(positions) {
        message.extend_from_slice(&word.to_le_bytes());
    }
    assert_eq!(message.len(), HEADER_SIZE);
    // Members ask on the terms of the group, unless the input says otherwise.
    if matches!(how & 15, JOIN | REFUSAL) && how & 32 == 0 {
        message.extend_from_slice(&terms());
        return message;
    }
    message.extend_from_slice(bytes.get(3..).unwrap_or_default());
    message
}

fuzz_target!(|bytes: &[u8]| {
    let mut room = Room::new();
    let mut rest = bytes;
    while let Some((&[who, how, pause, size], behind)) = rest.split_first_chunk::<PREFIX_SIZE>() {
        let (bytes, behind) = behind.split_at(behind.len().min(usize::from(size)));
        rest = behind;
        let (target, source) = (usize::from(who & 3) % MEMBERS, usize::from(who >> 2 & 3) % MEMBERS);
        let guarantees = [Guarantee::Uniform, Guarantee::Agreed, Guarantee::Reliable, Guarantee::BestEffort];
        if who & 128 != 0 {
            let (now, guarantee) = (room.now, guarantees[usize::from(who >> 4 & 3)]);
            // A message that is not taken was reported as such.
            let _ = room.members[source].0.try_broadcast(bytes, guarantee, now);
        }
        let message = message(&room, (source, target), how, bytes);
        let (address, now) = (room.address(source), room.now);
        room.members[target].0.handle_message(address, &message, now);
        room.deliver(target);
        room.now = room.now.plus(Nanos::from_micros(u32::from(pause).pow(2)));
        for _ in 0..=pause & 3 {
            room.step();
        }
    }
    for _ in 0..10 {
        room.step();
    }
});
