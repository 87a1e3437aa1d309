//! Never sleeps.

use std::time::Duration;

use super::{Bed, Waited, Waiter};

/// Tells the processor that this is a loop, and returns.
#[derive(Debug)]
pub(super) struct Spin;

impl Waiter for Spin {
    #[inline]
    fn wait(
        &mut self,
        _bed: &mut Bed<'_>,
        _timeout: &dyn Fn() -> Option<Duration>,
        _is_ready: &mut dyn FnMut() -> bool,
    ) -> Waited {
        std::hint::spin_loop();
        Waited::AWAKE
    }
}
