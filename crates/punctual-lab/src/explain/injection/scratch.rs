//! State of a thread that makes injections inside of itself.

use std::fs::File;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use punctual_lab_machine::affinity::Bound;
use punctual_lab_machine::cold_pages::ColdPages;
use punctual_lab_machine::crowded_pages::CrowdedPages;
use punctual_lab_machine::host::cpus_online;
use punctual_lab_machine::map_lock::hold_map_lock;
use punctual_lab_machine::signal_storm::interrupt_until;
use punctual_machine::clock::monotonic_ns;
use punctual_machine::cpu::{SchedulingClass, current, pin_to, set_scheduling_class};
use punctual_machine::fault_cost::{FRESH_SIZE, PAGE_SIZE};
use punctual_machine::scheduling::sleep_until;

use crate::scheduling::MemoryLimit;

/// State that a thread that makes injections inside of itself keeps from one to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    memory: Vec<Vec<u8>>,
    /// Bytes of the last that were touched.
    touched: usize,
    file: Option<File>,
    cold: Option<ColdPages>,
    crowded: Option<(CrowdedPages, MemoryLimit)>,
}

/// Files whose pages are read cold, in turn.
const COLD_FILES: usize = 64;

/// Memory that a process may have beyond its present memory: less than its crowded pages, and enough for the requests of its other
/// threads meanwhile.
const MEMORY_LEFT: u64 = 4 << 20;

/// The kernel fills this in some milliseconds: the lock of the memory map is held no longer than that.
const FILLED_SIZE: usize = 8 << 20;

impl Scratch {
    /// A byte of a page that nobody touched.
    pub fn fresh_page(&mut self) -> &mut u8 {
        if self.memory.is_empty() || self.touched + PAGE_SIZE > FRESH_SIZE {
            self.memory.push(vec![0; FRESH_SIZE]);
            self.touched = 0;
        }
        self.touched += PAGE_SIZE;
        let last = self.memory.last_mut().expect("pushed above");
        &mut last[self.touched - PAGE_SIZE]
    }

    /// A file that is gone when it is closed.
    pub fn file(&mut self) -> Option<&mut File> {
        if self.file.is_none() {
            let path =
                std::env::temp_dir().join(format!("punctual-{}-{}", std::process::id(), monotonic_ns()));
            self.file = File::create_new(&path).ok();
            let _gone = std::fs::remove_file(&path);
        }
        self.file.as_mut()
    }

    /// Waits for a lock that another thread holds until then, asleep.
    pub fn lock(&mut self, until_ns: u64) {
        wait_for_holder(move || sleep_until(until_ns));
    }

    /// The same, but the holder is ready all the while: it runs when nobody else wants the CPU that all three threads share, and
    /// a third wants it.
    pub fn lock_of_preempted(&mut self, until_ns: u64) {
        wait_for_holder(move || {
            let third = beside("third", move || spin_until(until_ns));
            if set_scheduling_class(SchedulingClass::Idle).is_ok() {
                spin_until(until_ns);
            }
            third.map(JoinHandle::join);
        });
    }

    /// Maps and unmaps memory until then, while another thread has the lock of the process's memory map most of the time.
    pub fn change_map(&mut self, until_ns: u64) {
        let (begun, has_begun) = mpsc::channel();
        let elsewhere = another_cpu();
        let holder = beside("populator", move || {
            // On this CPU it would be a neighbour too.
            let _unpinned = elsewhere.map(pin_to);
            let mut memory = vec![0; FILLED_SIZE];
            let _waiting = begun.send(());
            while monotonic_ns() < until_ns && hold_map_lock(&mut memory).is_ok() {}
        });
        if holder.is_some() && has_begun.recv().is_ok() {
            while monotonic_ns() < until_ns {
                drop(std::hint::black_box(Vec::<u8>::with_capacity(FRESH_SIZE)));
            }
        }
        holder.map(JoinHandle::join);
    }

    /// Is interrupted by signals until then.
    pub fn be_signalled(&mut self, until_ns: u64) {
        let _sent = interrupt_until(until_ns);
    }

    /// Asks again and again to be moved to another CPU, and back, until then.
    pub fn move_about(&mut self, until_ns: u64) {
        let cpus = cpus_online().unwrap_or_default();
        let Ok(bound) = Bound::this_thread() else { return };
        for &cpu in cpus.iter().cycle() {
            if monotonic_ns() >= until_ns {
                return;
            }
            let _is_another_s = bound.to(cpu);
        }
    }

    /// Touches pages of a file that are on the disk alone, until then.
    pub fn touch_cold(&mut self, until_ns: u64) {
        if let Some(cold) = self.cold.as_mut() {
            while monotonic_ns() < until_ns && cold.touch().is_ok() {}
        }
    }

    /// Touches pages for which there is no memory, until then.
    pub fn reclaim(&mut self, until_ns: u64) {
        let Some((pages, limit)) = self.crowded.as_mut() else { return };
        if limit.leave(MEMORY_LEFT).is_ok() {
            while monotonic_ns() < until_ns {
                std::hint::black_box(pages.touch());
            }
        }
        let _lifted = limit.lift();
    }

    /// Makes the pages for which there will be no memory, where the process is in a control group for that.
    pub fn prepare_crowded(&mut self) {
        let pages = CrowdedPages::new(&std::env::temp_dir()).ok();
        self.crowded = pages.zip(MemoryLimit::of_this_process());
    }

    /// Makes the file of cold pages, which takes longer than an injection may.
    pub fn prepare_cold(&mut self) {
        self.cold = ColdPages::new(&std::env::temp_dir(), COLD_FILES).ok();
    }
}

/// Waits for a lock whose holder does something before it lets go.
fn wait_for_holder(does: impl FnOnce() + Send + 'static) {
    let lock = Arc::new(Mutex::new(()));
    let (held, is_held) = mpsc::channel();
    let holders = Arc::clone(&lock);
    let holder = beside("holder", move || {
        let guard = holders.lock().unwrap_or_else(PoisonError::into_inner);
        let _waiting = held.send(());
        does();
        drop(guard);
    });
    if holder.is_some() && is_held.recv().is_ok() {
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A thread beside this one, on the same CPU.
fn beside(name: &str, does: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(does).ok()
}

/// One that the calling thread is not on.
fn another_cpu() -> Option<usize> {
    cpus_online()?.into_iter().find(|&cpu| cpu != current())
}

fn spin_until(until_ns: u64) {
    while monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
}
