//! Faults on the way: a forwarder between two veth pairs that loses, doubles, reorders and changes packets by a seed.
//!
//! It stands in a network namespace of its own. Both ends take its stations for each other's, so it needs no bridge and no address: a
//! frame that comes in at one side goes out at the other with new stations in its header. The seed alone decides what it does to a
//! packet, so a run is repeated by repeating its seed. Some changed packets get a right checksum again, so that only the comparison
//! of the whole buffer finds the change. In the others the checksum stays, and the receiving kernel drops the packet.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use punctual_machine::counter::Flag;
use punctual_machine::epoll::EpollSet;
use punctual_machine::namespace::{bring_up, create_veth};
use punctual_machine::packet::{PacketOptions, PacketSocket};
use punctual_proto::sim::Rng;
use serde::{Deserialize, Serialize};

use crate::endpoint::port::frame;
use crate::run::HeldNamespace;
use crate::scheduling::Job;

/// The forwarder's interfaces: towards the client, towards the responder.
const INTERFACES: [&str; 2] = ["punctual-near", "punctual-far"];

/// Number of packets in ten thousand that suffer each fault. Each packet suffers one fault at the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Not passed on.
    pub lost: u32,
    /// Passed on twice.
    pub doubled: u32,
    /// Passed on after the next one, or after `HELD_MAX`.
    pub reordered: u32,
    /// One bit of the payload changed; of every second one that is no fragment the checksum is made right again.
    pub changed: u32,
    /// Repeats all of it.
    pub seed: u64,
}

/// Longest that a packet is held back for the next one.
const HELD_MAX: Duration = Duration::from_millis(1);

/// Counts of packets, both ways together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets that came in.
    pub taken: u64,
    /// Not passed on.
    pub lost: u64,
    /// Passed on twice.
    pub doubled: u64,
    /// Held back.
    pub reordered: u64,
    /// Changed, checksum right.
    pub changed: u64,
    /// Changed, checksum wrong.
    pub spoilt: u64,
    /// Without room at the other side.
    pub refused: u64,
}

/// A forwarder, until it is dropped. Its interfaces go with it.
#[derive(Debug)]
pub struct Forwarder {
    job: Job<Counts>,
    _namespace: HeldNamespace,
}

impl Forwarder {
    /// Begins to forward between new interfaces: `near` of this namespace, and another of the namespace that a thread holds.
    /// With its stations towards both.
    pub fn between(
        near: &str,
        (far, thread): (&'static str, u32),
        faults: Faults,
    ) -> Result<(Self, [[u8; 6]; 2]), String> {
        let namespace = HeldNamespace::new()?;
        create_veth(near, INTERFACES[0], namespace.thread()).map_err(|error| error.to_string())?;
        let (job, stations) = namespace.run(move || {
            create_veth(INTERFACES[1], far, thread)
                .and_then(|()| INTERFACES.iter().try_for_each(|name| bring_up(name)))
                .map_err(|error| error.to_string())?;
            let ways = Ways::open(faults)?;
            let stations = ways.stations();
            Job::start("forwarder", move |stop| ways.forward(stop)).map(|job| (job, stations))
        })??;
        Ok((Self { job, _namespace: namespace }, stations))
    }

    /// Ends it; returns what it did.
    pub fn end(self) -> Result<Counts, String> {
        self.job.stop()
    }
}

/// Longest sleep before the flag is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// One side: a packet socket per IP version, and what is held back on the way out there.
#[derive(Debug)]
struct Side {
    sockets: [PacketSocket; 2],
    /// Frames held back: the socket that sends each, and its bytes.
    held: VecDeque<(usize, Vec<u8>)>,
}

struct Ways {
    sides: [Side; 2],
    sleep: EpollSet,
    faults: Faults,
    random: Rng,
    counts: Counts,
    /// Stations of client and responder, learned from what they send.
    learned: [[u8; 6]; 2],
    buffer: Vec<u8>,
}

impl Ways {
    fn open(faults: Faults) -> Result<Self, String> {
        let open = |name: &str, ethertype| {
            PacketSocket::open(name, ethertype, &PacketOptions::default()).map_err(|e| e.to_string())
        };
        let side = |name| -> Result<Side, String> {
            let sockets = [open(name, frame::ETHERTYPE_IPV4)?, open(name, frame::ETHERTYPE_IPV6)?];
            Ok(Side { sockets, held: VecDeque::new() })
        };
        let sides = [side(INTERFACES[0])?, side(INTERFACES[1])?];
        let sleep = EpollSet::new().map_err(|error| error.to_string())?;
        for socket in sides.iter().flat_map(|side| &side.sockets) {
            sleep.add(socket.as_fd()).map_err(|error| error.to_string())?;
        }
        let random = Rng::new(faults.seed);
        let learned = [punctual_machine::packet::BROADCAST; 2];
        Ok(Self {
            sides,
            sleep,
            faults,
            random,
            counts: Counts::default(),
            learned,
            buffer: vec![0; 1 << 16],
        })
    }

    fn stations(&self) -> [[u8; 6]; 2] {
        [self.sides[0].sockets[0].mac(), self.sides[1].sockets[0].mac()]
    }

    fn forward(mut self, stop: &Flag) -> Counts {
        while !stop.is_raised() {
            let moved: usize = (0..4).map(|place| self.drain(place / 2, place % 2)).sum();
            if moved > 0 {
                continue;
            }
            let holding = self.sides.iter().any(|side| !side.held.is_empty());
            let patience = if holding { HELD_MAX } else { LOOK };
            if self.sleep.wait(Some(patience)) == 0 {
                self.release(0);
                self.release(1);
            }
        }
        self.counts
    }

    /// Passes on what came in at one side; says how much.
    fn drain(&mut self, from: usize, version: usize) -> usize {
        let mut count = 0;
        loop {
            let Some(got) = self.sides[from].sockets[version].receiver.recv() else { return count };
            let size = got.bytes.len().min(self.buffer.len());
            self.buffer[..size].copy_from_slice(&got.bytes[..size]);
            self.learned[from] = got.source_mac;
            self.sides[from].sockets[version].receiver.release();
            self.pass(from, version, size);
            count += 1;
        }
    }

    fn pass(&mut self, from: usize, version: usize, size: usize) {
        let to = 1 - from;
        self.counts.taken += 1;
        // A veth leaves the checksum to a device that it has not.
        let whole = frame::finish_checksum(&mut self.buffer[..size]);
        let is_whole = whole.is_some();
        let Some(payload) = whole.or_else(|| frame::fragment_part(&self.buffer[..size])) else {
            // No UDP: neighbour discovery and the like pass untouched.
            self.send(to, version, size);
            return;
        };
        let fate = self.random.below(10_000);
        let Faults { lost, doubled, reordered, changed, .. } = self.faults;
        let limit = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        if fate < limit(&[lost]) {
            self.counts.lost += 1;
        } else if fate < limit(&[lost, doubled]) {
            self.counts.doubled += 1;
            self.send(to, version, size);
            self.send(to, version, size);
        } else if fate < limit(&[lost, doubled, reordered]) {
            self.counts.reordered += 1;
            self.sides[to].held.push_back((version, self.buffer[..size].to_vec()));
            return;
        } else if fate < limit(&[lost, doubled, reordered, changed]) {
            self.change(size, payload, is_whole);
            self.send(to, version, size);
        } else {
            self.send(to, version, size);
        }
        self.release(to);
    }

    /// Of a fragment the checksum of the whole cannot be made right.
    fn change(&mut self, size: usize, payload: std::ops::Range<usize>, is_whole: bool) {
        if payload.is_empty() {
            return;
        }
        let (place, bit) = (self.random.below(payload.len() as u64) as usize, self.random.below(8));
        self.buffer[payload.start + place] ^= 1 << bit;
        if self.random.below(2) == 0 && is_whole {
            self.counts.changed += 1;
            frame::finish_checksum(&mut self.buffer[..size]);
        } else {
            self.counts.spoilt += 1;
        }
    }

    /// Sends the packets that were held back, after the packet that has just gone.
    fn release(&mut self, to: usize) {
        while let Some((version, bytes)) = self.sides[to].held.pop_front() {
            self.buffer[..bytes.len()].copy_from_slice(&bytes);
            self.send(to, version, bytes.len());
        }
    }

    fn send(&mut self, to: usize, version: usize, size: usize) {
        let socket = &mut self.sides[to].sockets[version];
        let sent = socket.sender.claim(size).is_some_and(|room| {
            room.copy_from_slice(&self.buffer[..size]);
            true
        });
        if sent {
            socket.sender.commit(self.learned[to]);
        }
        if !sent || socket.sender.flush().is_err() {
            self.counts.refused += 1;
        }
    }
}
