//! Options of all commands that measure.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, ValueEnum};

use crate::sample::Load;
use crate::units::{duration, gap};

/// Options of everything that measures.
#[derive(Clone, Debug, Default, Args)]
pub struct Common {
    /// Directory of the run, new or empty [default: runs/TIME-EXPERIMENT/]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the summary as JSON to a file, or to standard output with "-"
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Time for all trials together, such as 30s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Most messages of one trial
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub count: Option<u64>,
    /// Only this idle gap (closed load) or period (open load), such as 0, 100us, 1ms
    #[arg(long, value_name = "TIME", value_parser = gap)]
    pub gap: Option<Duration>,
    /// Only this load
    #[arg(long, value_enum)]
    pub load: Option<LoadArgument>,
    /// Repeats all random choices
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Leave nothing out: print every figure of every cell too
    #[arg(long)]
    pub all: bool,
    /// No progress, no table
    #[arg(long)]
    pub quiet: bool,
}

impl Common {
    /// Most messages of one trial, if that was asked for.
    pub fn count_max(&self) -> Option<usize> {
        self.count.map(|count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Returns true if cells of this gap are wanted.
    pub fn wants_gap(&self, gap_us: u64) -> bool {
        self.gap.is_none_or(|gap| gap == Duration::from_micros(gap_us))
    }
}

/// Leaves these out of the help. An experiment that refuses them, or takes only what it does anyway, says why when they are given.
pub fn hidden(names: &'static [&'static str]) -> impl FnMut(Arg) -> Arg {
    move |arg| {
        let is_hidden = names.contains(&arg.get_id().as_str());
        if is_hidden { arg.hide(true) } else { arg }
    }
}

/// A processor that this process may use.
///
/// # Errors
/// There is none of that number here, and which there are.
pub fn processor(text: &str) -> Result<usize, String> {
    let allowed = punctual_machine::cpu::allowed();
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| {
        let numbers: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        format!("this process may use the processors {}", numbers.join(", "))
    })
}

/// [`Load`] as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LoadArgument {
    /// The next message waits for the reply
    Closed,
    /// Message k is due at its time, regardless of outstanding ones
    Open,
}

impl From<LoadArgument> for Load {
    fn from(load: LoadArgument) -> Self {
        match load {
            LoadArgument::Closed => Self::Closed,
            LoadArgument::Open => Self::Open,
        }
    }
}
