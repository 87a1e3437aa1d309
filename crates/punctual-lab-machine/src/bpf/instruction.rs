//! Instructions for the kernel's BPF machine, and programs made of them.
//!
//! Written by hand, because a compiler for them is not on every machine. Codes are those of the kernel's `bpf_common.h`, `bpf.h` and
//! its instruction-set document (RFC 9669).

use std::os::fd::RawFd;

/// One instruction.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Instruction {
    code: u8,
    /// Target in the low four bits, source in the high.
    registers: u8,
    pub(crate) offset: i16,
    immediate: i32,
}

pub(crate) const HELPER_LOOKUP: i32 = 1;
pub(crate) const PSEUDO_MAP_FD: u8 = 1;

/// Load through a register: half word, byte, word, double word.
pub(crate) const LOAD16: u8 = 0x69;
pub(crate) const LOAD8: u8 = 0x71;
pub(crate) const LOAD32: u8 = 0x61;
pub(crate) const LOAD64: u8 = 0x79;
/// Store through a register: half word, word, double word; a word or double word of the instruction's own; 64 bits, added at once.
pub(crate) const STORE16: u8 = 0x6b;
pub(crate) const STORE32: u8 = 0x63;
pub(crate) const STORE64: u8 = 0x7b;
pub(crate) const STORE_IMMEDIATE32: u8 = 0x62;
pub(crate) const STORE_IMMEDIATE64: u8 = 0x7a;
pub(crate) const ATOMIC_ADD64: u8 = 0xdb;
pub(crate) const LOAD_IMMEDIATE64: u8 = 0x18;
pub(crate) const MOVE: u8 = 0xbf;
pub(crate) const MOVE_IMMEDIATE: u8 = 0xb7;
pub(crate) const ADD_IMMEDIATE: u8 = 0x07;
pub(crate) const AND_IMMEDIATE: u8 = 0x57;
pub(crate) const TO_BIG_ENDIAN: u8 = 0xdc;
pub(crate) const JUMP: u8 = 0x05;
pub(crate) const JUMP_EQUAL: u8 = 0x15;
pub(crate) const JUMP_NOT_EQUAL: u8 = 0x55;
pub(crate) const JUMP_GREATER: u8 = 0x2d;
pub(crate) const JUMP_GREATER_IMMEDIATE: u8 = 0x25;
pub(crate) const JUMP_LESS_IMMEDIATE: u8 = 0xa5;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;

/// An atomic addition that gives what was there before.
pub(crate) const ATOMIC_FETCH: i32 = 1;
pub(crate) const STORE8: u8 = 0x73;
pub(crate) const MOVE32: u8 = 0xbc;
pub(crate) const ADD: u8 = 0x0f;
pub(crate) const SUBTRACT: u8 = 0x1f;
pub(crate) const MULTIPLY: u8 = 0x2f;
pub(crate) const MULTIPLY_IMMEDIATE: u8 = 0x27;
pub(crate) const REMAINDER: u8 = 0x9f;
pub(crate) const XOR: u8 = 0xaf;
pub(crate) const SHIFT_LEFT: u8 = 0x6f;
pub(crate) const SHIFT_LEFT_IMMEDIATE: u8 = 0x67;
pub(crate) const SHIFT_RIGHT_IMMEDIATE: u8 = 0x77;
pub(crate) const JUMP_NOT_LESS_IMMEDIATE: u8 = 0x35;

pub(crate) const fn op(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: source << 4 | target, offset, immediate }
}

/// A place in a program, to jump to: it stands as a jump's offset until [`Assembler::finish`].
pub(crate) const fn label(number: u8) -> i16 {
    i16::MAX - number as i16
}

/// No program has so many places.
const LABELS: usize = 8;

/// A program in the making.
#[derive(Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    places: [Option<usize>; LABELS],
}

impl Assembler {
    /// Goes on with these.
    pub(crate) fn put(&mut self, instructions: &[Instruction]) {
        self.instructions.extend_from_slice(instructions);
    }

    /// Sets a register.
    pub(crate) fn constant(&mut self, register: u8, value: u64) {
        self.put(&[
            op(LOAD_IMMEDIATE64, register, 0, 0, value as u32 as i32),
            op(0, 0, 0, 0, (value >> 32) as u32 as i32),
        ]);
    }

    /// Register 0 becomes the address of a map's first entry. Uses registers 1 to 5 and the stack's first word; a lookup that finds
    /// nothing jumps to `missing`.
    pub(crate) fn look_up_first(&mut self, map: RawFd, missing: i16) {
        self.put(&[
            op(MOVE, 2, 10, 0, 0),
            op(ADD_IMMEDIATE, 2, 0, 0, -4),
            op(STORE_IMMEDIATE32, 10, 0, -4, 0),
            op(LOAD_IMMEDIATE64, 1, PSEUDO_MAP_FD, 0, map),
            op(0, 0, 0, 0, 0),
            op(CALL, 0, 0, 0, HELPER_LOOKUP),
            op(JUMP_EQUAL, 0, 0, missing, 0),
        ]);
    }

    /// The label stands for what comes next.
    pub(crate) fn place(&mut self, label: i16) {
        let number = usize::from(i16::MAX.abs_diff(label));
        self.places[number] = Some(self.instructions.len());
    }

    /// The program, its jumps made good.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, instruction) in self.instructions.iter_mut().enumerate() {
            let number = usize::from(i16::MAX.abs_diff(instruction.offset));
            if let Some(place) = self.places.get(number).copied().flatten() {
                // A jump counts from the instruction behind it.
                instruction.offset = (place - at - 1) as i16;
            }
        }
        self.instructions
    }
}
