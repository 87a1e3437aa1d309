//! Urgency of threads, as options say it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::cpu::{SchedulingClass, set_scheduling_class};
use punctual_machine::scheduling::{NICE_RANGE, Reservation, SLICE_RANGE, set_deadline, set_nice, set_slice};
use serde::{Deserialize, Serialize};

/// Urgency of a measuring thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    /// The ordinary class.
    #[default]
    Other,
    /// The ordinary class with this nice value.
    Nice(i32),
    /// The ordinary class with slices of so many microseconds.
    Slice(u32),
    /// First in, first out, at this priority.
    Fifo(u8),
    /// Round robin, at this priority.
    RoundRobin(u8),
    /// So many microseconds in each period of so many.
    Deadline {
        /// CPU time in each period.
        runtime_us: u32,
        /// The period, which is also the deadline.
        period_us: u32,
    },
}

impl Urgency {
    /// True if the kernel's limit for real-time threads applies.
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo(_) | Self::RoundRobin(_) | Self::Deadline { .. })
    }

    /// True if a thread of it may be bound to one CPU: the kernel refuses that for deadlines.
    pub fn can_be_pinned(self) -> bool {
        !matches!(self, Self::Deadline { .. })
    }

    /// Gives it to the calling thread.
    ///
    /// # Errors
    /// It needs `CAP_SYS_NICE`, or the kernel has not so much time to promise.
    pub fn apply(self) -> Result<(), SystemError> {
        match self {
            Self::Other => Ok(()),
            Self::Nice(nice) => set_nice(nice),
            Self::Slice(us) => set_slice(Duration::from_micros(us.into())),
            Self::Fifo(priority) => set_scheduling_class(SchedulingClass::Fifo(priority)),
            Self::RoundRobin(priority) => set_scheduling_class(SchedulingClass::RoundRobin(priority)),
            Self::Deadline { runtime_us, period_us } => set_deadline(Reservation {
                runtime: Duration::from_micros(runtime_us.into()),
                period: Duration::from_micros(period_us.into()),
            }),
        }
    }

    /// Why a thread did not get it, and what to do.
    pub fn advise(self, error: &SystemError) -> String {
        let advice = match (error.kind(), self) {
            (std::io::ErrorKind::PermissionDenied, Self::Fifo(_) | Self::RoundRobin(_)) => {
                ": needs CAP_SYS_NICE: run as root, or have the limit raised (ulimit -r)"
            }
            (std::io::ErrorKind::PermissionDenied, Self::Nice(_)) => {
                ": needs CAP_SYS_NICE: run as root, or have the limit raised (ulimit -e)"
            }
            (std::io::ErrorKind::PermissionDenied, _) => ": needs CAP_SYS_NICE: run as root",
            (std::io::ErrorKind::ResourceBusy, Self::Deadline { .. }) => {
                ": the kernel has promised its time to others already: ask for less"
            }
            _ => "",
        };
        format!("{error}{advice}")
    }
}

impl fmt::Display for Urgency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Nice(nice) => write!(f, "nice:{nice}"),
            Self::Slice(us) => write!(f, "slice:{us}"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::RoundRobin(priority) => write!(f, "rr:{priority}"),
            Self::Deadline { runtime_us, period_us } => write!(f, "deadline:{runtime_us}/{period_us}"),
        }
    }
}

impl FromStr for Urgency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let forms = "other, nice:-20 to nice:19, slice:100 to slice:100000 in µs, fifo:1 to fifo:99, rr:1 to rr:99, deadline:RUNTIME/PERIOD in µs";
            format!("one of {forms} is needed")
        };
        let (class, value) = text.split_once(':').unwrap_or((text, ""));
        let priority = || value.parse().ok().filter(|priority| (1..=99).contains(priority)).ok_or_else(wrong);
        match class {
            "other" if value.is_empty() => Ok(Self::Other),
            "nice" => {
                let nice = value.parse().ok().filter(|nice| NICE_RANGE.contains(nice));
                nice.map(Self::Nice).ok_or_else(wrong)
            }
            "slice" => {
                let slice = value.parse::<u32>().ok();
                let is_possible = |us: &u32| SLICE_RANGE.contains(&Duration::from_micros((*us).into()));
                slice.filter(is_possible).map(Self::Slice).ok_or_else(wrong)
            }
            "fifo" => priority().map(Self::Fifo),
            "rr" => priority().map(Self::RoundRobin),
            "deadline" => {
                let (runtime, period) = value.split_once('/').ok_or_else(wrong)?;
                let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
                let (runtime_us, period_us) = (number(runtime)?, number(period)?);
                let possible = (2..=period_us).contains(&runtime_us) && period_us <= 4_000_000;
                possible.then_some(Self::Deadline { runtime_us, period_us }).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgencies_read_back() {
        for text in ["other", "nice:-20", "nice:19", "slice:100", "fifo:1", "rr:99", "deadline:500/1000"] {
            assert_eq!(text.parse::<Urgency>().map(|urgency| urgency.to_string()), Ok(text.to_owned()));
        }
        for wrong in [
            "",
            "fifo",
            "fifo:0",
            "fifo:100",
            "nice:20",
            "slice:99",
            "slice:",
            "rr:x",
            "deadline:5",
            "deadline:9/8",
            "other:1",
        ] {
            assert!(wrong.parse::<Urgency>().is_err(), "{wrong}");
        }
    }
}
