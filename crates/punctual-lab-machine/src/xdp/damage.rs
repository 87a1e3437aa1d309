//! The program that loses and damages what arrives, by a seed: a packet's number and the seed decide, so that the same packets in
//! the same order suffer the same.
use std::io;
use std::os::fd::AsRawFd;

use super::program::{Attached, XDP_DROP, XDP_PASS};
use super::{Mode, find, named};
use crate::bpf::*;
use punctual_machine::SystemError;

/// Traffic that is lost and damaged. Everything else passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Frames of an EtherType.
    Ethernet(u16),
    /// IPv4 datagrams for a UDP port.
    Udp(u16),
    /// IPv4 datagrams for any UDP port.
    AnyUdp,
}

impl Traffic {
    /// Where its payload begins, which alone is damaged.
    fn payload_at(self) -> i32 {
        match self {
            Self::Ethernet(_) => 14,
            Self::Udp(_) | Self::AnyUdp => 42,
        }
    }

    /// Fields that must be equal, as (size in bytes, where, what).
    fn conditions(self) -> Vec<(u8, i16, i32)> {
        let big_endian = |value: u16| i32::from(value.to_be());
        match self {
            Self::Ethernet(ethertype) => vec![(2, 12, big_endian(ethertype))],
            // Version 4 and a header without options.
            Self::AnyUdp => vec![(2, 12, big_endian(0x0800)), (1, 14, 0x45), (1, 23, libc::IPPROTO_UDP)],
            Self::Udp(port) => [Self::AnyUdp.conditions(), vec![(2, 36, big_endian(port))]].concat(),
        }
    }
}

/// Extent of the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagePlan {
    /// Of what.
    pub traffic: Traffic,
    /// The same seed does the same to the same packets.
    pub seed: u64,
    /// Packets that vanish, of a million.
    pub loss_ppm: u32,
    /// Packets of which one bit is flipped, of a million.
    pub corruption_ppm: u32,
    /// Byte of the payload that tells two classes apart, and the bits of it that do: without any of them it is the first.
    pub class: (u16, u8),
}

/// Outcomes of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damaged {
    /// Packets that arrived at the program.
    pub seen: u64,
    /// Of these, those that went no further.
    pub lost: u64,
    /// And those of which a bit was flipped.
    pub flipped: u64,
}

/// Words of the map's only entry: the next number, then `seen`, `lost` and `flipped` of both classes in turn.
const WORDS: usize = 7;
const CLASS_SIZE: i32 = 8;
const SEEN_AT: i16 = 8;
const LOST_AT: i16 = 24;
const FLIPPED_AT: i16 = 40;

/// SplitMix64 (Steele, Lea, Flood 2014): the step of its state, and what mixes it.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX: [(i32, u64); 2] = [(30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)];
const LAST_SHIFT: i32 = 31;

/// Random number for packet `number`.
#[cfg(test)]
fn chance(seed: u64, number: u64) -> u64 {
    let start = number.wrapping_mul(STEP).wrapping_add(seed);
    let mixed =
        MIX.iter().fold(start, |value, (shift, factor)| (value ^ value >> shift).wrapping_mul(*factor));
    mixed ^ mixed >> LAST_SHIFT
}

/// Steps that several parts of the program take.
trait Steps {
    fn count(&mut self, at: i16);
    fn chance(&mut self, seed: u64);
}

impl Steps for Assembler {
    /// Adds one to a word of the entry, whose class `r9` points at.
    fn count(&mut self, at: i16) {
        self.put(&[op(MOVE_IMMEDIATE, 1, 0, 0, 1), op(ATOMIC_ADD64, 9, 1, at, 0)]);
    }

    /// `r8` becomes the packet's chance, of its number in `r8`. Uses `r1`, `r2`.
    fn chance(&mut self, seed: u64) {
        self.constant(2, STEP);
        self.put(&[op(MULTIPLY, 8, 2, 0, 0)]);
        self.constant(2, seed);
        self.put(&[op(ADD, 8, 2, 0, 0)]);
        for (shift, factor) in MIX {
            self.put(&[op(MOVE, 1, 8, 0, 0), op(SHIFT_RIGHT_IMMEDIATE, 1, 0, 0, shift), op(XOR, 8, 1, 0, 0)]);
            self.constant(2, factor);
            self.put(&[op(MULTIPLY, 8, 2, 0, 0)]);
        }
        self.put(&[
            op(MOVE, 1, 8, 0, 0),
            op(SHIFT_RIGHT_IMMEDIATE, 1, 0, 0, LAST_SHIFT),
            op(XOR, 8, 1, 0, 0),
        ]);
    }
}

/// Where packets pass.
const TO_PASS: i16 = label(0);

/// The program. Registers: 6 data; 7 end of data; 8 the packet's number, then its chance; 9 the map's entry, then its class there.
fn instructions(map: i32, plan: &DamagePlan) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let payload_at = plan.traffic.payload_at();
    let class_at = payload_at + i32::from(plan.class.0);
    program.put(&[
        op(LOAD32, 6, 1, 0, 0),
        op(LOAD32, 7, 1, 4, 0),
        op(MOVE, 4, 6, 0, 0),
        op(ADD_IMMEDIATE, 4, 0, 0, class_at + 1),
        op(JUMP_GREATER, 4, 7, TO_PASS, 0),
    ]);
    for (size, at, value) in plan.traffic.conditions() {
        let load = if size == 1 { LOAD8 } else { LOAD16 };
        program.put(&[op(load, 5, 6, at, 0), op(JUMP_NOT_EQUAL, 5, 0, TO_PASS, value)]);
    }
    program.look_up_first(map, TO_PASS);
    program.put(&[
        op(MOVE, 9, 0, 0, 0),
        // The packet's number, which nobody else gets.
        op(MOVE_IMMEDIATE, 8, 0, 0, 1),
        op(ATOMIC_ADD64, 9, 8, 0, ATOMIC_FETCH),
        op(LOAD8, 5, 6, class_at as i16, 0),
        op(AND_IMMEDIATE, 5, 0, 0, i32::from(plan.class.1)),
        op(JUMP_EQUAL, 5, 0, 1, 0),
        op(ADD_IMMEDIATE, 9, 0, 0, CLASS_SIZE),
    ]);
    program.count(SEEN_AT);
    program.chance(plan.seed);
    fates(&mut program, plan);
    program.place(TO_PASS);
    program.put(&[op(MOVE_IMMEDIATE, 0, 0, 0, XDP_PASS), op(EXIT, 0, 0, 0, 0)]);
    program.finish()
}

/// Loses the packet, or flips a bit of its payload, if chance says so.
fn fates(program: &mut Assembler, plan: &DamagePlan) {
    let damaged = plan.loss_ppm.saturating_add(plan.corruption_ppm).min(1_000_000);
    program.put(&[
        // The lower half of chance decides: a number below a million.
        op(MOVE32, 1, 8, 0, 0),
        op(MULTIPLY_IMMEDIATE, 1, 0, 0, 1_000_000),
        op(SHIFT_RIGHT_IMMEDIATE, 1, 0, 0, 32),
        op(JUMP_NOT_LESS_IMMEDIATE, 1, 0, TO_PASS, damaged as i32),
        op(JUMP_NOT_LESS_IMMEDIATE, 1, 0, 4, plan.loss_ppm.min(1_000_000) as i32),
    ]);
    program.count(LOST_AT);
    program.put(&[
        op(MOVE_IMMEDIATE, 0, 0, 0, XDP_DROP),
        op(EXIT, 0, 0, 0, 0),
        // The upper half says which bit.
        op(SHIFT_RIGHT_IMMEDIATE, 8, 0, 0, 32),
        op(MOVE, 3, 7, 0, 0),
        op(SUBTRACT, 3, 6, 0, 0),
        op(ADD_IMMEDIATE, 3, 0, 0, -plan.traffic.payload_at()),
        op(SHIFT_LEFT_IMMEDIATE, 3, 0, 0, 3),
        op(REMAINDER, 8, 3, 0, 0),
        op(MOVE, 2, 8, 0, 0),
        op(AND_IMMEDIATE, 2, 0, 0, 7),
        op(SHIFT_RIGHT_IMMEDIATE, 8, 0, 0, 3),
        // For the verifier: no packet is as long.
        op(AND_IMMEDIATE, 8, 0, 0, 0x3fff),
        op(ADD, 6, 8, 0, 0),
        op(ADD_IMMEDIATE, 6, 0, 0, plan.traffic.payload_at()),
        op(MOVE, 4, 6, 0, 0),
        op(ADD_IMMEDIATE, 4, 0, 0, 1),
        op(JUMP_GREATER, 4, 7, TO_PASS, 0),
        op(LOAD8, 5, 6, 0, 0),
        op(MOVE_IMMEDIATE, 1, 0, 0, 1),
        op(SHIFT_LEFT, 1, 2, 0, 0),
        op(XOR, 5, 1, 0, 0),
        op(STORE8, 6, 5, 0, 0),
    ]);
    program.count(FLIPPED_AT);
}

/// An older kernel's verifier says of the packet's number only that the program is none.
fn explain(error: io::Error, can_fetch: impl FnOnce() -> bool) -> io::Error {
    if error.raw_os_error() != Some(libc::EINVAL) || can_fetch() {
        return error;
    }
    let text = "this kernel's programs cannot number packets (Linux 5.12 is the first)";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Loses and damages packets where they arrive, until it is dropped: below every check but that of the wire itself.
///
/// A packet is one that the kernel has as one: also a run that a sender of this host left to be cut
/// ([`punctual_machine::namespace::set_offload`] ends that).
#[derive(Debug)]
pub struct Damage {
    map: std::os::fd::OwnedFd,
    _attached: Attached,
}

impl Damage {
    /// Puts the program at `interface`.
    ///
    /// # Errors
    /// Needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON, Linux 5.12, and an interface that has no other XDP program.
    pub fn attach(interface: &str, plan: &DamagePlan) -> Result<Self, SystemError> {
        let found = find(interface)?;
        let attach = || -> io::Result<Self> {
            let map = map(MAP_TYPE_ARRAY, size_of::<[u64; WORDS]>() as u32, 1)?;
            let program = instructions(map.as_raw_fd(), plan);
            let attached = Attached::load(&program, found.index.cast_unsigned(), Mode::Generic)?;
            Ok(Self { map, _attached: attached })
        };
        let explained = attach().map_err(|error| explain(error, can_fetch));
        explained.map_err(named("put an XDP program at", interface))
    }

    /// Outcomes of the packets of both classes so far.
    ///
    /// # Errors
    /// The kernel does not give its counters.
    pub fn counts(&self) -> Result<[Damaged; 2], SystemError> {
        let mut words = [0_u64; WORDS];
        access(MAP_LOOKUP, &self.map, 0, &mut words)
            .map_err(|error| SystemError::new("read", "the counters of an XDP program", error))?;
        let [_, seen, seen_2, lost, lost_2, flipped, flipped_2] = words;
        Ok([Damaged { seen, lost, flipped }, Damaged { seen: seen_2, lost: lost_2, flipped: flipped_2 }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_machine::namespace::{bring_up, create_veth, thread_id, unshare_network};
    use punctual_machine::packet::{BROADCAST, PacketOptions, PacketSocket};

    const ETHERTYPE: u16 = 0x88B6;

    /// Goal: a kernel that is too old is named, where it is that, and nothing else is taken for it.
    #[test]
    fn a_kernel_that_is_too_old_is_named() {
        let said = |code, can_fetch| explain(io::Error::from_raw_os_error(code), || can_fetch).to_string();
        assert!(said(libc::EINVAL, false).contains("Linux 5.12"));
        for (code, can_fetch) in [(libc::EINVAL, true), (libc::EBUSY, false)] {
            assert!(!said(code, can_fetch).contains("Linux"));
        }
    }

    /// Goal: the program does to each packet what its number and the seed say, to the bit, and counts it.
    #[test]
    fn the_fate_of_a_packet_follows_from_the_seed() {
        let done = std::thread::spawn(|| (1..=3).try_for_each(check)).join().expect("the thread ends");
        if let Err(error) = done {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            punctual_machine::skipped!("{error}");
        }
    }

    fn check(seed: u64) -> Result<(), SystemError> {
        const FRAMES: u64 = 2_000;
        unshare_network()?;
        create_veth("dmg-here", "dmg-there", thread_id())?;
        bring_up("dmg-here")?;
        bring_up("dmg-there")?;
        let traffic = Traffic::Ethernet(ETHERTYPE);
        let plan = DamagePlan { traffic, seed, loss_ppm: 100_000, corruption_ppm: 200_000, class: (0, 1) };
        let damage = Damage::attach("dmg-there", &plan)?;
        let mut here = PacketSocket::open("dmg-here", ETHERTYPE, &PacketOptions::default())?;
        let mut there = PacketSocket::open("dmg-there", ETHERTYPE, &PacketOptions::default())?;
        let mut expected = [Damaged::default(); 2];
        for number in 0..FRAMES {
            let size = 8 + number as usize % 100;
            let mut sent = vec![0x55; size];
            sent[..8].copy_from_slice(&number.to_le_bytes());
            here.sender.claim(size).expect("room").copy_from_slice(&sent);
            here.sender.commit(BROADCAST);
            here.sender.flush().expect("sent");
            let chance = chance(seed, number);
            let counts = &mut expected[number as usize % 2];
            counts.seen += 1;
            match ((chance & 0xFFFF_FFFF) * 1_000_000) >> 32 {
                0..100_000 => counts.lost += 1,
                fate => {
                    if fate < 300_000 {
                        counts.flipped += 1;
                        let bit = (chance >> 32) as usize % (8 * size);
                        sent[bit / 8] ^= 1 << (bit % 8);
                    }
                    let start = std::time::Instant::now();
                    let got = loop {
                        if let Some(frame) = there.receiver.recv() {
                            break frame.bytes.to_vec();
                        }
                        assert!(start.elapsed().as_secs() < 20, "seed {seed}: {number} did not come");
                    };
                    assert_eq!(got, sent, "seed {seed}: {number}");
                    there.receiver.release();
                }
            }
        }
        assert!(there.receiver.recv().is_none(), "seed {seed}: more than was sent");
        assert_eq!(damage.counts()?, expected, "seed {seed}");
        Ok(())
    }
}
