//! Tools of injections from outside that take time to make: they are made once, before the first run.

use std::cell::OnceCell;

use punctual_lab_machine::softirq_load::SoftirqLoad;

use crate::scheduling::ControlGroup;

/// A control group, and a load of interrupts for each side's CPU.
#[derive(Debug, Default)]
pub struct Tools {
    /// For what is made to a whole group.
    pub group: ControlGroup,
    /// Of each CPU, made when it is first asked for.
    loads: Vec<(usize, OnceCell<Result<SoftirqLoad, String>>)>,
}

impl Tools {
    /// For processes on these CPUs. A group is made, as far as that is possible here.
    pub fn new(name: &str, cpus: &[usize]) -> Self {
        let loads = cpus.iter().map(|&cpu| (cpu, OnceCell::new())).collect();
        Self { group: ControlGroup::new(name), loads }
    }

    /// The load of interrupts for one of its CPUs.
    ///
    /// # Errors
    /// Why there is none.
    pub fn load(&self, cpu: usize) -> Result<&SoftirqLoad, String> {
        let found = self.loads.iter().find(|(of, _)| *of == cpu);
        let (_, load) = found.ok_or_else(|| format!("nothing injects interrupts on CPU {cpu}"))?;
        let make = || SoftirqLoad::of(cpu).map_err(|error| error.to_string());
        load.get_or_init(make).as_ref().map_err(String::clone)
    }

    /// The same, for each of its CPUs.
    ///
    /// # Errors
    /// One cannot be made.
    pub(super) fn loads(&self) -> Result<(), String> {
        self.loads.iter().try_for_each(|(cpu, _)| self.load(*cpu).map(drop))
    }
}
