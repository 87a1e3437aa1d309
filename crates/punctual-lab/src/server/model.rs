//! Who serves: the ways to run three stages for each connection.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How a server runs its stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerModel {
    /// Three threads for each connection that sleep while they wait
    #[default]
    ThreadsBlocking,
    /// Three threads for each connection that yield until there is something, as the original's did
    ThreadsYield,
    /// Three tasks for each connection, in its class, on punctual::runtime
    Classes,
    /// The same within tokio
    ClassesOnTokio,
    /// Three tasks of tokio for each connection, which has no classes
    Tokio,
    /// The same on two runtimes of tokio: one for class 0, and one whose threads have nice value 10 for the others
    TwoTokios,
}

impl ServerModel {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ThreadsBlocking,
        Self::ThreadsYield,
        Self::Classes,
        Self::ClassesOnTokio,
        Self::Tokio,
        Self::TwoTokios,
    ];

    /// Whether its stages are tasks, which wait in turn for a worker.
    pub fn has_tasks(self) -> bool {
        !matches!(self, Self::ThreadsBlocking | Self::ThreadsYield)
    }

    /// Whether it knows classes, and counts what they do.
    pub fn has_classes(self) -> bool {
        matches!(self, Self::Classes | Self::ClassesOnTokio)
    }

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThreadsBlocking => "threads-blocking",
            Self::ThreadsYield => "threads-yield",
            Self::Classes => "classes",
            Self::ClassesOnTokio => "classes-on-tokio",
            Self::Tokio => "tokio",
            Self::TwoTokios => "two-tokios",
        }
    }
}
