//! Targets and tools of injections from outside, and the way to make each.

use punctual_lab_machine::tracer::HeldProcess;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::{ThreadUsage, pin_to};
use punctual_machine::scheduling::sleep_until;
use punctual_machine::signal::{resume, stop};

use super::{LASTS_MAX, Made, Tools};
use crate::scheduling::{ControlGroup, Urgency};

/// Targets and tools of injections from outside.
#[derive(Debug)]
pub struct Scene {
    /// The processes of client and responder.
    pub processes: [u32; 2],
    /// Their CPUs.
    pub cpus: [usize; 2],
    /// Tools made before, among them the control group of both, where they are in one.
    pub tools: Tools,
}

/// Threads that compute.
#[derive(Clone, Copy, Debug)]
pub struct Hog {
    /// So many.
    pub count: usize,
    /// As urgent as this.
    pub urgency: Urgency,
}

/// A thread that the kernel lets in has had enough then: less than the 50 ms of a second that it gives to all ordinary ones together.
const LIMIT_TAKEN_NS: u64 = 47_000_000;

/// When it ends that begins now.
fn end_ns(from_ns: u64, lasts_ns: u64) -> u64 {
    from_ns + lasts_ns.min(LASTS_MAX.as_nanos() as u64)
}

impl Scene {
    /// Computes on the CPU of a side. Each thread ends by itself, by the clock.
    ///
    /// # Errors
    /// Threads may not be so urgent here, or nowhere on that CPU.
    pub fn hogs(&self, side: usize, lasts_ns: u64, hog: &Hog) -> Made {
        let (cpu, from_ns) = (self.cpus[side], monotonic_ns());
        let until_ns = end_ns(from_ns, lasts_ns);
        let compute = move |urgency: Urgency| {
            // Never unpinned: a real-time thread would take any CPU.
            pin_to(cpu).map_err(|error| error.to_string())?;
            urgency.apply().map_err(|error| urgency.advise(&error))?;
            while monotonic_ns() < until_ns {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let hog = *hog;
        let threads = (0..hog.count).map(|_| {
            let thread = std::thread::Builder::new().name("hog".to_owned());
            thread
                .spawn(move || compute(hog.urgency))
                .map_err(|error| format!("cannot start a thread: {error}"))
        });
        let threads: Vec<_> = threads.collect();
        let ended =
            threads.into_iter().map(|thread| thread?.join().map_err(|_| "a hog failed".to_owned())?);
        ended.collect::<Vec<Result<(), String>>>().into_iter().collect::<Result<(), String>>()?;
        Ok((from_ns, monotonic_ns()))
    }

    /// Keeps the CPU of a side in interrupts.
    ///
    /// # Errors
    /// Packets cannot be steered to that CPU.
    pub fn interrupt(&self, side: usize, lasts_ns: u64) -> Made {
        let until_ns = end_ns(monotonic_ns(), lasts_ns);
        self.tools.load(self.cpus[side])?.keep_until(until_ns).map_err(|error| error.to_string())
    }

    /// An ordinary thread wants the CPU of a responder that spins in a real-time class. That thread computes until it has
    /// had nearly all of the time that the limit leaves in a second, or until this is over.
    ///
    /// # Errors
    /// No thread can be started on that CPU.
    pub fn wait_for_limit(&self, lasts_ns: u64) -> Made {
        let (cpu, from_ns) = (self.cpus[1], monotonic_ns());
        let compute = move || {
            pin_to(cpu).map_err(|error| error.to_string())?;
            let begun_ns = ThreadUsage::now().cpu_ns;
            while ThreadUsage::now().cpu_ns - begun_ns < LIMIT_TAKEN_NS && monotonic_ns() < from_ns + lasts_ns
            {
                std::hint::spin_loop();
            }
            Ok::<(), String>(())
        };
        let thread = std::thread::Builder::new().name("hog".to_owned()).spawn(compute);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        thread.join().map_err(|_| "a hog failed".to_owned())??;
        Ok((from_ns, monotonic_ns()))
    }

    /// Stops a side, and continues it.
    ///
    /// # Errors
    /// It is gone.
    pub fn stop(&self, side: usize, lasts_ns: u64) -> Made {
        let text = |error: punctual_machine::SystemError| error.to_string();
        let from_ns = monotonic_ns();
        stop(self.processes[side]).map_err(text)?;
        sleep_until(end_ns(from_ns, lasts_ns));
        resume(self.processes[side]).map_err(text)?;
        Ok((from_ns, monotonic_ns()))
    }

    /// Lets the quota of both run out, and raises it again.
    ///
    /// # Errors
    /// There is no group.
    pub fn throttle(&self, lasts_ns: u64) -> Made {
        let from_ns = monotonic_ns();
        self.tools.group.allow_us(ControlGroup::LEAST_US)?;
        sleep_until(end_ns(from_ns, lasts_ns));
        self.tools.group.allow_us(ControlGroup::PLENTY_US)?;
        Ok((from_ns, monotonic_ns()))
    }

    /// Freezes both, and thaws them.
    ///
    /// # Errors
    /// There is no group, or it does not freeze.
    pub fn freeze(&self, lasts_ns: u64) -> Made {
        let from_ns = monotonic_ns();
        let frozen = self.tools.group.set_frozen(true);
        if frozen.is_ok() {
            sleep_until(end_ns(from_ns, lasts_ns));
        }
        self.tools.group.set_frozen(false)?;
        frozen.map(|()| (from_ns, monotonic_ns()))
    }

    /// Holds a side as a debugger does, and lets it go.
    ///
    /// # Errors
    /// It is gone, or may not be traced.
    pub fn hold(&self, side: usize, lasts_ns: u64) -> Made {
        let from_ns = monotonic_ns();
        let held = HeldProcess::hold(self.processes[side]).map_err(|error| error.to_string())?;
        sleep_until(end_ns(from_ns, lasts_ns));
        drop(held);
        Ok((from_ns, monotonic_ns()))
    }
}
