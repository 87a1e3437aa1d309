//! The fixes that can be tried: each changes the command that measures, or the host while that runs. Changes to the host are undone
//! when the guard of the fix is dropped.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::str::FromStr;

use super::again::{Again, Remade};
use super::binding::{self, Binding};
use crate::peel::start_fix::StartFix;
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
    /// Everything open, ready and used once before messages count.
    Prime,
    /// Symbols bound when the program starts.
    BindNow,
    /// Nobody traces the program's system calls.
    Untrace,
}

/// As options name them.
pub const NAMES: &str =
    "pin, class, nice, slice, wake=WAY, sigio-off, prefault, prime, bind-now, untrace, buffers, awake, quota";

/// The priority of the real-time class that is tried.
const PRIORITY: u8 = 50;

/// The slice that is tried, microseconds: a thirtieth of the usual.
const SLICE_US: u32 = 100;

/// The way in which threads wait instead of by signals.
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
            ("prime", _) => Ok(Self::Prime),
            ("bind-now", _) => Ok(Self::BindNow),
            ("untrace", _) => Ok(Self::Untrace),
            (_, Some(("wake", way))) if !way.is_empty() => Ok(Self::Wake(way.to_owned())),
            _ => Err(format!("one of {NAMES} is needed")),
        }
    }
}

impl Fix {
    /// The change, in words.
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
            Self::Prime => {
                "all nodes open, keys ready, and everything used once before messages count".to_owned()
            }
            Self::BindNow => format!("symbols bound when the program starts ({BIND_NOW})"),
            Self::Untrace => {
                format!("nobody traces its system calls; each run without the fix is under {TRACER}")
            }
        }
    }

    /// The remedy for a mistake of a start, if the fix is one.
    pub fn of_start(&self) -> Option<StartFix> {
        match self {
            Self::Prime => Some(StartFix::Prime),
            Self::SigioOff => Some(StartFix::SigioOff),
            Self::Class => Some(StartFix::Class),
            Self::Nice => Some(StartFix::Nice),
            _ => None,
        }
    }

    /// The command without the fix: that of the run. The tracer is none of its options, and is started with it.
    ///
    /// # Errors
    /// It was not traced, or not by something that can be started again.
    pub fn missing(&self, again: Again) -> Result<Again, String> {
        if *self != Self::Untrace {
            return Ok(again);
        }
        let by_hand = "end it, run it again, and punctual compare RUN RUN";
        match &again.tracer {
            None => Err("its evidence names no tracer".to_owned()),
            Some(tracer) if !tracer.contains(TRACER_NAME) => {
                Err(format!("it was traced by {tracer}, which cannot be repeated here: {by_hand}"))
            }
            Some(tracer) if !has_program(TRACER_NAME) => {
                Err(format!("it was traced by {tracer}, and there is no {TRACER_NAME} here: {by_hand}"))
            }
            Some(_) => Ok(Again { launcher: Some(TRACER), ..again }),
        }
    }

    /// The command with the fix, of that without.
    ///
    /// # Errors
    /// It is in place already, or the experiment has no such option.
    pub fn applied(&self, without: &Again) -> Result<Again, String> {
        if without.experiment == Remade::Survey {
            self.check_survey(without)?;
        }
        self.check_urgency(without)?;
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
                return Err(format!("{} has no --lock-memory", with.experiment.name()));
            }
            Self::Prefault => with.locks_memory = true,
            Self::Prime => prime(&mut with)?,
            Self::BindNow => {
                bind_now(binding::of_this_program().map_err(|error| error.to_string())?)?;
                with.launcher = Some(BIND_NOW);
            }
            Self::Untrace => with.launcher = None,
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

    /// Checks that the fix takes no thread out of a real-time class, in which it is more urgent than in any other.
    fn check_urgency(&self, without: &Again) -> Result<(), String> {
        let real_time = without.urgencies.iter().find(|urgency| urgency.is_real_time());
        match real_time.filter(|_| matches!(self, Self::Class | Self::Nice | Self::Slice)) {
            Some(urgency) => Err(format!("the run was made so already, or more urgently: --sched {urgency}")),
            None => Ok(()),
        }
    }

    /// Checks that a survey can be made with the fix.
    fn check_survey(&self, without: &Again) -> Result<(), String> {
        match self {
            Self::Awake | Self::Quota | Self::BindNow | Self::Untrace => Ok(()),
            Self::Wake(_) if !without.ways.is_empty() => Ok(()),
            Self::Wake(_) => Err("a survey of several routes waits in several ways: verify one with --only ENGINE/WAY".to_owned()),
            _ => Err("punctual survey has no option for it: it binds its threads, and leaves their class; wake=WAY, awake, quota, bind-now and untrace can be tried".to_owned()),
        }
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

/// Command prefix with which a program's symbols are bound at its start.
const BIND_NOW: &str = "env LD_BIND_NOW=1";

/// The tracer of system calls, and its command line.
const TRACER_NAME: &str = "strace";
const TRACER: &str = "strace -f -qq -o /dev/null";

/// Checks that lazy binding is left to be changed.
fn bind_now(binding: Binding) -> Result<(), String> {
    let already = match binding {
        Binding::WhenCalled => return Ok(()),
        Binding::AtStart => "this program is linked with -z now: its symbols are bound at its start",
        Binding::Static => "this program is linked statically: it has no symbols to bind",
    };
    Err(format!(
        "the run was made so already: {already}. Start a program that binds later with LD_BIND_NOW=1"
    ))
}

/// Vehicles that do not wait for each other begin with messages to receivers that still open.
fn prime(with: &mut Again) -> Result<(), String> {
    match with.experiment {
        Remade::Vehicles => with.more.retain(|option| option != "--no-barrier"),
        Remade::Response | Remade::Survey => {
            let text = "run response sends its first messages before any counts; runs of peel and of vehicles with \
                        --no-barrier can be primed";
            return Err(text.to_owned());
        }
    }
    Ok(())
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// The kernel keeps to it while the file is open.
fn keep_awake() -> Result<File, String> {
    let opened = OpenOptions::new().write(true).open(DMA_LATENCY);
    let held = opened.and_then(|mut file| file.write_all(&0_i32.to_ne_bytes()).map(|()| file));
    held.map_err(|error| not_held(&error))
}

fn not_held(error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => ": run as root",
        ErrorKind::NotFound => ": this kernel has no such file; keep processors awake with --fix wake=spin",
        _ => "",
    };
    format!("cannot hold {DMA_LATENCY} at 0: {error}{advice}")
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
            "prime",
            "bind-now",
            "untrace",
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
        for urgency in [Urgency::Fifo(PRIORITY), Urgency::RoundRobin(90)] {
            let urgent = Again { urgencies: vec![urgency], ..without.clone() };
            for fix in [Fix::Class, Fix::Nice, Fix::Slice] {
                assert!(
                    fix.applied(&urgent).is_err_and(|error| error.contains("already")),
                    "{fix:?}: {urgency}"
                );
            }
        }
        let two = Again { ways: vec!["spin".to_owned(), "blocking".to_owned()], ..Again::default() };
        assert!(Fix::Wake("epoll".to_owned()).applied(&two).is_err());
        assert!(Fix::Nice.applied(&two).is_ok());
        assert!(Fix::SigioOff.applied(&two).is_err(), "nobody is told by a signal");
        let signalled =
            Again { experiment: Remade::Vehicles, ways: vec!["signal".to_owned()], ..Again::default() };
        let with = Fix::SigioOff.applied(&signalled).expect("it is not in place");
        assert!(with.command().contains("run vehicles") && with.command().contains("--wake epoll"));
        let unready = Again { more: vec!["--no-barrier".to_owned()], ..signalled.clone() };
        let primed = Fix::Prime.applied(&unready).expect("it is not in place");
        assert_eq!(primed, signalled);
        assert!(Fix::Prime.applied(&signalled).is_err_and(|error| error.contains("already")));
        assert!(Fix::Prime.applied(&without).is_err_and(|error| error.contains("--no-barrier")));
        let error = Fix::Prefault.applied(&signalled).expect_err("there is no such option");
        assert!(error.contains("--lock-memory"), "{error}");
    }

    /// Goal: of a survey what it has a switch for is changed, in its own command; the rest is refused.
    #[test]
    fn a_survey_is_made_again_by_its_own_switches() {
        let (experiment, engine) = (Remade::Survey, Some("shared".to_owned()));
        let one = Again { experiment, engine, ways: vec!["futex".to_owned()], ..Again::default() };
        let with = Fix::Wake("spin".to_owned()).applied(&one).expect("it is not in place");
        assert!(with.command().starts_with("punctual survey --duration 4000ms"), "{}", with.command());
        assert!(with.command().ends_with("--only shared/spin"), "{}", with.command());
        assert!(Fix::Quota.applied(&one).is_ok_and(|with| with == one));
        let several = Again { engine: None, ways: Vec::new(), ..one.clone() };
        assert!(Fix::Wake("spin".to_owned()).applied(&several).is_err_and(|error| error.contains("--only")));
        for fix in [Fix::Pin, Fix::Class, Fix::Nice, Fix::Slice, Fix::Prefault, Fix::Buffers, Fix::Prime] {
            assert!(fix.applied(&one).is_err_and(|error| error.contains("survey")), "{fix:?}");
        }
    }

    /// Goal: a user without the right is told whose it is.
    #[test]
    fn a_file_that_is_not_held_has_a_remedy() {
        assert!(not_held(&ErrorKind::PermissionDenied.into()).ends_with("run as root"));
        assert!(not_held(&ErrorKind::NotFound.into()).contains("wake=spin"));
    }

    /// Goal: lazy binding is changed only where it is there; where it is not, that is said with the reason.
    #[test]
    fn symbols_that_are_bound_are_not_bound_again() {
        assert_eq!(bind_now(Binding::WhenCalled), Ok(()));
        for (binding, reason) in [(Binding::AtStart, "-z now"), (Binding::Static, "statically")] {
            assert!(
                bind_now(binding).is_err_and(|error| error.contains(reason) && error.contains("LD_BIND_NOW"))
            );
        }
        let of_this = binding::of_this_program().expect("a program");
        let with = Fix::BindNow.applied(&Again::default());
        assert_eq!(with.is_ok(), of_this == Binding::WhenCalled, "{with:?}");
    }

    /// Goal: a run that strace followed is made again with and without it; one that nobody traced is not, nor is that of a debugger.
    #[test]
    fn a_tracer_is_repeated_only_if_it_was_there() {
        let traced = |tracer: &str| Again { tracer: Some(tracer.to_owned()), ..Again::default() };
        assert!(Fix::Untrace.missing(Again::default()).is_err());
        assert!(Fix::Untrace.missing(traced("gdb (7)")).is_err_and(|error| error.contains("gdb (7)")));
        let without = Fix::Untrace.missing(traced("strace (7)"));
        assert_eq!(without.is_ok(), has_program("strace"), "{without:?}");
        if let Ok(without) = without {
            let with = Fix::Untrace.applied(&without).expect("it is not in place");
            assert!(without.command().starts_with("strace -f"), "{}", without.command());
            assert_eq!(
                without.command().split_once("punctual").map(|(_, rest)| rest),
                with.command().strip_prefix("punctual")
            );
        }
        assert_eq!(Fix::Nice.missing(traced("strace (7)")).map(|one| one.launcher), Ok(None));
    }
}
