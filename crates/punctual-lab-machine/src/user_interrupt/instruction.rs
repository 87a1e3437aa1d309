//! The instructions of user interrupts, and the handler. All the assembly there is.
//!
//! The instructions are written as bytes, because assemblers differ in what they know; a test compares them with what an
//! assembler makes of the names (Intel SDM, vol. 2):
//!
//! | instruction | bytes | does |
//! |---|---|---|
//! | SENDUIPI rdi | f3 0f c7 f7 | posts to the receiver of entry rdi of this thread's table, and notifies |
//! | UIRET | f3 0f 01 ec | pops RIP, RFLAGS, RSP; UIF := 1 |
//! | STUI | f3 0f 01 ef | UIF := 1 |
//! | CLUI | f3 0f 01 ee | UIF := 0 |
//!
//! On delivery the processor has aligned the stack, below the red zone, and pushed RSP, RFLAGS, RIP and the user vector.
//! Every register is the interrupted code's: the handler keeps the two that it uses, and UIRET restores the flags.

use core::arch::{asm, global_asm};

use punctual_machine::sync::{AtomicU64, Ordering};

/// Number of times that the handler ran in this process.
static DELIVERED: AtomicU64 = AtomicU64::new(0);
/// The vectors that it ran for, a bit each.
static VECTORS: AtomicU64 = AtomicU64::new(0);

/// Work of the handler between entry and return; the vector is on top of the stack.
macro_rules! handler_body {
    ($name:literal, $tail:literal) => {
        concat!(
            ".pushsection .text\n.globl ",
            $name,
            "\n",
            $name,
            ":\n",
            "push rax\npush rcx\n",
            "mov rcx, [rsp + 16]\n",
            "mov eax, 1\nshl rax, cl\n",
            "lock or qword ptr [rip + {vectors}], rax\n",
            "lock inc qword ptr [rip + {delivered}]\n",
            "pop rcx\npop rax\n",
            "add rsp, 8\n",
            $tail,
            "\n.popsection\n"
        )
    };
}

global_asm!(
    handler_body!("punctual_user_interrupt", ".byte 0xf3, 0x0f, 0x01, 0xec"),
    vectors = sym VECTORS,
    delivered = sym DELIVERED,
);

unsafe extern "C" {
    fn punctual_user_interrupt();
}

/// The address of the handler.
pub(super) fn handler() -> usize {
    punctual_user_interrupt as *const () as usize
}

/// Number of times that the handler ran.
pub(super) fn delivered() -> u64 {
    DELIVERED.load(Ordering::Acquire)
}

/// STUI, on a machine that has been identified.
pub(super) fn open_deliveries() {
    // SAFETY: only called where processor and kernel have user interrupts; elsewhere it is an invalid opcode, which ends
    // the process and is not undefined. It changes UIF only.
    unsafe { asm!(".byte 0xf3, 0x0f, 0x01, 0xef", options(nostack, preserves_flags)) };
}

/// SENDUIPI, on a machine that has been identified.
pub(super) fn send(entry: u64) {
    // SAFETY: as above; an entry that is not valid faults, which is not undefined. Earlier stores are visible before it: the descriptor
    // is accessed locked.
    unsafe { asm!(".byte 0xf3, 0x0f, 0xc7, 0xf7", in("rdi") entry, options(nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    // UIRET in software: pops RIP, RFLAGS and RSP from where the handler leaves the stack pointer.
    global_asm!(
        handler_body!(
            "punctual_user_interrupt_in_software",
            "pop qword ptr [rip + {target}]\npopfq\npop rsp\njmp qword ptr [rip + {target}]"
        ),
        vectors = sym VECTORS,
        delivered = sym DELIVERED,
        target = sym TARGET,
    );

    /// Where the interrupted code goes on.
    static TARGET: AtomicU64 = AtomicU64::new(0);

    global_asm!(
        ".globl punctual_named",
        "punctual_named:",
        "senduipi rdi",
        "uiret",
        "stui",
        "clui",
        ".globl punctual_bytes",
        "punctual_bytes:",
        ".byte 0xf3, 0x0f, 0xc7, 0xf7",
        ".byte 0xf3, 0x0f, 0x01, 0xec",
        ".byte 0xf3, 0x0f, 0x01, 0xef",
        ".byte 0xf3, 0x0f, 0x01, 0xee",
    );

    unsafe extern "C" {
        fn punctual_named();
        fn punctual_bytes();
        fn punctual_user_interrupt_in_software();
    }

    #[test]
    fn the_bytes_are_what_an_assembler_makes_of_the_names() {
        let code = |label: unsafe extern "C" fn()| {
            // SAFETY: both labels stand before sixteen bytes of code, which can be read.
            unsafe { core::slice::from_raw_parts(label as *const u8, 16) }
        };
        assert_eq!(code(punctual_named), code(punctual_bytes));
    }

    /// Goal: the handler notes its vector, keeps every register, and the interrupted code goes on behind the delivery.
    /// Method: the stack is made as the processor makes it; the return is UIRET in software.
    #[test]
    fn the_handler_keeps_the_interrupted_code() {
        let before = delivered();
        let (mut rax, mut rcx): (u64, u64) = (0x1111, 0x2222);
        let flags: u64;
        // SAFETY: the frame is the processor's: RSP, RFLAGS, RIP, vector. The code behind the jump runs with the stack
        // pointer that was pushed; the red zone is skipped.
        unsafe {
            asm!(
                "mov r8, rsp",
                "sub rsp, 128",
                "and rsp, -16",
                "push r8",
                "stc",
                "pushfq",
                "lea r9, [rip + 2f]",
                "push r9",
                "push 37",
                "clc",
                "jmp {handler}",
                "2:",
                "pushfq",
                "pop r9",
                handler = sym punctual_user_interrupt_in_software,
                inout("rax") rax,
                inout("rcx") rcx,
                out("r8") _,
                out("r9") flags,
            );
        }
        assert_eq!((rax, rcx), (0x1111, 0x2222));
        assert_eq!(flags & 1, 1, "the flags of the interrupted code are back");
        assert_eq!(delivered(), before + 1);
        assert_ne!(VECTORS.load(Ordering::Relaxed) & 1 << 37, 0);
    }
}
