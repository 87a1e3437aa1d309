//! What injections from outside need that takes time to make: it is made once, before the first run.

use std::cell::OnceCell;

use punctual_lab_machine::softirq_load::SoftirqLoad;

use crate::scheduling::ControlGroup;

/// A control group, and a load of interrupts for each side's CPU.
#[derive(Debug, Default)]
pub struct Tools {
    /// For what is made to a whole group.
    pub group: ControlGroup,
    /// The CPUs of both sides.
    cpus: [usize; 2],
    loads: [OnceCell<Result<SoftirqLoad, String>>; 2],
}

impl Tools {
    /// For sides on these CPUs. A group is made, as far as that is possible here.
    pub fn new(name: &str, cpus: [usize; 2]) -> Self {
        Self { group: ControlGroup::new(name), cpus, ..Self::default() }
    }

    /// The load of interrupts for the CPU of a side, made when it is first asked for.
    ///
    /// # Errors
    /// Why there is none.
    pub fn load(&self, side: usize) -> Result<&SoftirqLoad, String> {
        let make = || SoftirqLoad::of(self.cpus[side]).map_err(|error| error.to_string());
        self.loads[side].get_or_init(make).as_ref().map_err(String::clone)
    }
}
