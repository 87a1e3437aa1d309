//! The fixes that can be tried: each changes the command that measures, or the host while that runs. What it changes of the host is
//! taken back when its guard is dropped.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::str::FromStr;

use super::again::Again;
use crate::scheduling::{Urgency, lift_quotas};

/// One fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Each thread bound to a processor.
    Pin,
    /// Threads in the real-time class.
    Class,
    /// Threads with the highest nice value.
    Nice,
    /// Threads with short slices.
    Slice,
    /// Sockets with room for many packets.
    Buffers,
    /// Nobody is told of packets by a signal.
    SigioOff,
    /// Another way to wait.
    Wake(String),
    /// Memory locked and present before.
    Prefault,
    /// Processors kept from sleeping deeply.
    Awake,
    /// The CPU quotas of this process's control groups lifted.
    Quota,
}

/// As options name them.
pub const NAMES: &str = "pin, class, nice, slice, wake=WAY, sigio-off, prefault, buffers, awake, quota";

/// The priority of the real-time class that is tried.
const PRIORITY: u8 = 50;

/// The slice that is tried, microseconds: a thirtieth of the usual.
const SLICE_US: u32 = 100;

/// How threads wait instead of by signals.
const WITHOUT_SIGNALS: &str = "epoll";

/// The nice value that is tried.
const NICE: i32 = -20;

impl FromStr for Fix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('=')) {
            ("pin", _) => Ok(Self::Pin),
            ("class", _) => Ok(Self::Class),
            ("nice", _) => Ok(Self::Nice),
            ("slice", _) => Ok(Self::Slice),
            ("buffers", _) => Ok(Self::Buffers),
            ("sigio-off", _) => Ok(Self::SigioOff),
            ("prefault", _) => Ok(Self::Prefault),
            ("awake", _) => Ok(Self::Awake),
            ("quota", _) => Ok(Self::Quota),
            (_, Some(("wake", way))) if !way.is_empty() => Ok(Self::Wake(way.to_owned())),
            _ => Err(format!("one of {NAMES} is needed")),
        }
    }
}

impl Fix {
    /// What is changed, in words.
    pub fn words(&self) -> String {
        match self {
            Self::Pin => "each thread bound to a processor of its own".to_owned(),
            Self::Class => format!("threads in the real-time class, --sched fifo:{PRIORITY}"),
            Self::Nice => format!("threads with --sched nice:{NICE}"),
            Self::Slice => {
                format!("threads with --sched slice:{SLICE_US}: they get the CPU sooner, and for less long")
            }
            Self::Buffers => "sockets with the usual room, without --receive-buffer".to_owned(),
            Self::SigioOff => format!("threads wait by --wake {WITHOUT_SIGNALS}, not by signals (O_ASYNC)"),
            Self::Wake(way) => format!("threads wait by --wake {way}"),
            Self::Prefault => "memory locked, and present before it is used (--lock-memory)".to_owned(),
            Self::Awake => "processors kept awake (/dev/cpu_dma_latency held at 0)".to_owned(),
            Self::Quota => "CPU quotas of the control groups of this process lifted".to_owned(),
        }
    }

    /// The command with the fix, of that without.
    ///
    /// # Errors
    /// It is in place already, or the experiment has no such option.
    pub fn applied(&self, without: &Again) -> Result<Again, String> {
        let mut with = without.clone();
        match self {
            Self::Pin => with.is_pinned = true,
            Self::Class => {
                with.urgencies = vec![Urgency::Fifo(PRIORITY)];
                // Two threads that spin in a real-time class would leave no processor to anybody.
                with.is_one_urgent |= without.spins();
            }
            Self::Nice => with.urgencies = vec![Urgency::Nice(NICE)],
            Self::Slice => with.urgencies = vec![Urgency::Slice(SLICE_US)],
            Self::Buffers => with.receive_buffer = None,
            Self::SigioOff => {
                let signals = with.ways.iter_mut().filter(|way| *way == "signal");
                signals.for_each(|way| WITHOUT_SIGNALS.clone_into(way));
            }
            Self::Wake(way) => with.ways = vec![way.clone()],
            Self::Prefault if !with.experiment.can_lock_memory() => {
                return Err(format!("run {} has no --lock-memory", with.experiment.name()));
            }
            Self::Prefault => with.locks_memory = true,
            Self::Awake | Self::Quota => return Ok(with),
        }
        if with == *without {
            return Err(format!("the run was made so already: {}", self.words()));
        }
        if with.choices() != without.choices() {
            return Err("it makes one cell of several: verify a run of one --wake and one --sched".to_owned());
        }
        Ok(with)
    }

    /// Changes the host until the guard is dropped.
    ///
    /// # Errors
    /// There is nothing to change, or it may not be changed.
    pub fn hold(&self) -> Result<Option<Box<dyn Any>>, String> {
        match self {
            Self::Awake => Ok(Some(Box::new(keep_awake()?))),
            Self::Quota => Ok(Some(Box::new(lift_quotas()?))),
            _ => Ok(None),
        }
    }
}

const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// The kernel keeps to it while the file is open.
fn keep_awake() -> Result<File, String> {
    let opened = OpenOptions::new().write(true).open(DMA_LATENCY);
    let held = opened.and_then(|mut file| file.write_all(&0_i32.to_ne_bytes()).map(|()| file));
    held.map_err(|error| format!("cannot hold {DMA_LATENCY} at 0: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::again::Remade;

    #[test]
    fn fixes_are_named() {
        let names = [
            "pin",
            "class",
            "nice",
            "slice",
            "wake=spin",
            "sigio-off",
            "prefault",
            "buffers",
            "awake",
            "quota",
        ];
        for name in names {
            assert!(name.parse::<Fix>().is_ok(), "{name}");
        }
        for wrong in ["", "wake", "wake=", "pins", "class=1"] {
            assert_eq!(wrong.parse::<Fix>(), Err(format!("one of {NAMES} is needed")), "{wrong}");
        }
    }

    /// Goal: a fix changes the command in its own place and nowhere else, and is refused where it is in place.
    #[test]
    fn a_fix_changes_its_own_place() {
        let ways = vec!["spin".to_owned()];
        let without = Again { ways, is_pinned: false, receive_buffer: Some(8192), ..Again::default() };
        let names = ["pin", "class", "nice", "slice", "wake=blocking", "prefault", "buffers"];
        for fix in names.map(|name| name.parse::<Fix>().unwrap()) {
            let with = fix.applied(&without).expect("it is not in place");
            assert_ne!(with.command(), without.command(), "{fix:?}");
            assert!(fix.applied(&with).is_err(), "{fix:?} twice");
            assert!(fix.hold().expect("nothing of the host").is_none());
        }
        let urgent = Fix::Class.applied(&without).expect("it is not in place");
        let command = urgent.command();
        let has = |words: &str| command.contains(words);
        assert!(has("--sched fifo:50 ") && has("--urgent responder"), "{command}");
        let two = Again { ways: vec!["spin".to_owned(), "blocking".to_owned()], ..Again::default() };
        assert!(Fix::Wake("epoll".to_owned()).applied(&two).is_err());
        assert!(Fix::Nice.applied(&two).is_ok());
        assert!(Fix::SigioOff.applied(&two).is_err(), "nobody is told by a signal");
        let signalled =
            Again { experiment: Remade::Vehicles, ways: vec!["signal".to_owned()], ..Again::default() };
        let with = Fix::SigioOff.applied(&signalled).expect("it is not in place");
        assert!(with.command().contains("run vehicles") && with.command().contains("--wake epoll"));
        let error = Fix::Prefault.applied(&signalled).expect_err("there is no such option");
        assert!(error.contains("--lock-memory"), "{error}");
    }
}
