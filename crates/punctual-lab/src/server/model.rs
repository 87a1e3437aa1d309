//! Server models: the ways to run three stages for each connection.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Way in which a server runs its stages.
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
    /// The same on threads that poll one line behind one lock, as the original's did; important tasks come first
    Pollers,
    /// The same on an executor of another project, in a program of its own: `--against`
    #[value(skip)]
    Clockworker,
    /// The same
    #[value(skip)]
    Glommio,
}

/// Peer with which a server is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// As the model
    Tokio,
    /// As the model
    TwoTokios,
    /// clockworker on tokio: one thread, a queue for each class, each with twice the share of the next
    Clockworker,
    /// glommio: one thread, io_uring, a queue for each class, each with twice the share of the next
    Glommio,
}

impl Peer {
    /// Its model in a run.
    pub fn model(self) -> ServerModel {
        match self {
            Self::Tokio => ServerModel::Tokio,
            Self::TwoTokios => ServerModel::TwoTokios,
            Self::Clockworker => ServerModel::Clockworker,
            Self::Glommio => ServerModel::Glommio,
        }
    }
}

/// Lock that the threads of [`ServerModel::Pollers`] take before they touch their line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineLock {
    /// A mutex, on which waiters sleep
    #[default]
    Mutex,
    /// A ticket lock, before which waiters spin in the order in which they came, as the original's did
    Ticket,
    /// A mutex that is tried, and the processor given up while another has it
    Try,
}

impl ServerModel {
    /// All of this program.
    pub const ALL: [Self; 7] = [
        Self::ThreadsBlocking,
        Self::ThreadsYield,
        Self::Classes,
        Self::ClassesOnTokio,
        Self::Tokio,
        Self::TwoTokios,
        Self::Pollers,
    ];

    /// True if its stages are tasks, which wait in turn for a worker.
    pub fn has_tasks(self) -> bool {
        !matches!(self, Self::ThreadsBlocking | Self::ThreadsYield)
    }

    /// True if it may have any number of workers.
    pub fn has_workers(self) -> bool {
        self.has_tasks() && !self.is_apart()
    }

    /// True if it has classes of `punctual::runtime`, and counts what they do.
    pub fn has_classes(self) -> bool {
        matches!(self, Self::Classes | Self::ClassesOnTokio)
    }

    /// True if its server is a program of its own, which keeps no journal, on one thread.
    pub fn is_apart(self) -> bool {
        matches!(self, Self::Clockworker | Self::Glommio)
    }

    /// True if this is the name of one that is a program of others.
    pub fn is_of_others(name: &str) -> bool {
        let mut peers = Peer::value_variants().iter().map(|peer| peer.model());
        peers.any(|model| model.is_apart() && model.name() == name)
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
            Self::Pollers => "pollers",
            Self::Clockworker => "clockworker",
            Self::Glommio => "glommio",
        }
    }
}
