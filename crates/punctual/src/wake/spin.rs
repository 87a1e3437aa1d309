//! Never sleeps.

use punctual_machine::sync::spin_hint;

use super::{Bed, Condition, Waited, Waiter};

/// Looks at shared memory in one wait, each with the processor's hint before it. A look is a few loads; a whole turn at the
/// engine is some hundred instructions, half of which every message would wait for on average.
const LOOKS: u32 = 32;

/// Looks again and again, for about a microsecond at a time.
#[derive(Debug)]
pub(super) struct Spin {
    looks: u32,
}

impl Spin {
    /// `looks_suffice`: true if a look says that there is a message. Where only a call of the kernel does, one is made after every
    /// look.
    pub(super) fn new(looks_suffice: bool) -> Self {
        Self { looks: if looks_suffice { LOOKS } else { 1 } }
    }
}

impl Waiter for Spin {
    #[inline]
    fn wait(&mut self, _bed: &mut Bed<'_>, condition: &mut dyn Condition) -> Waited {
        for _ in 0..self.looks {
            spin_hint();
            if condition.glance() {
                break;
            }
        }
        Waited::AWAKE
    }

    #[inline]
    fn spins_first(&self) -> bool {
        true
    }
}
