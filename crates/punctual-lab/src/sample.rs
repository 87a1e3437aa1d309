//! Measurements of one trial of one cell: a row per message, a column per quantity.
//!
//! Nothing is dropped here. A lost message keeps its row, and what it costs is decided by `stats`.

use serde::{Deserialize, Serialize};

use crate::doubt::Doubt;

mod cell;
pub mod sockperf;

pub use cell::{CellId, Kind, Load};

/// A stage that a message does not carry. No stage lasts 584 years.
pub const ABSENT_NS: u64 = u64::MAX;

/// The stages of one way, in order; most are named after the stamp that ends them (`docs/measuring.md`).
/// A round trip prefixes them with `request.` and `reply.`, with [`RESPONDER`] between.
/// `sent` (from due to sent) belongs to open load only: closed load counts from `sent`.
pub const STAGES: [&str; 11] =
    ["sent", "sealed", "posted", "tx", "rx", "medium", "elsewhere", "woken", "read", "opened", "delivered"];

/// The stage of a round trip that the other side spends between delivery and reply.
pub const RESPONDER: &str = "responder";

/// The stage of both ways on the wire together, where the two ends' clocks differ and cannot split it.
pub const WIRE: &str = "wire";

/// The same with the responder, where the packets carry no stamps.
pub const WIRE_AND_RESPONDER: &str = "wire_and_responder";

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Outcome {
    /// The right answer came.
    Answered,
    /// It will not come: infinite latency.
    Lost,
    /// It had not come when the trial ended: at least as late as its age.
    Unfinished,
    /// A wrong answer came, which is no answer: infinite latency.
    Mismatched,
    /// The other side answered that it will not do it: infinite latency, and no promise broken.
    Refused,
}

impl Outcome {
    /// As in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Lost => "lost",
            Self::Unfinished => "unfinished",
            Self::Mismatched => "mismatched",
            Self::Refused => "refused",
        }
    }

    /// The inverse of [`Outcome::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Answered, Self::Lost, Self::Unfinished, Self::Mismatched, Self::Refused]
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

/// Part of a cell's life that a message belongs to. Reported apart; none is thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Index 0: it pays for everything that was not ready yet.
    First,
    /// Index 1 to N, N stated by the run.
    WarmUp,
    /// Everything after.
    Steady,
}

impl Phase {
    /// As in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::WarmUp => "warm_up",
            Self::Steady => "steady",
        }
    }

    /// The phase of a message by its index since the cell was opened, `warmup` messages being warm-up.
    pub fn of(index: u64, warmup: u64) -> Self {
        match index {
            0 => Self::First,
            i if i < warmup => Self::WarmUp,
            _ => Self::Steady,
        }
    }
}

/// Time in one stage, per message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageColumn {
    /// One of [`STAGES`], prefixed for a round trip, or [`RESPONDER`].
    pub name: String,
    /// As long as the sample; [`ABSENT_NS`] where the message carried no stamp.
    pub ns: Vec<u64>,
}

/// Facts about a trial besides its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Messages that arrived once more.
    pub duplicated: u64,
    /// Messages that arrived after a younger one.
    pub reordered: u64,
    /// Messages that were never sent, because their sender did not run at their instant or did not know yet that they were
    /// wanted: they stand among the unfinished.
    pub skipped: u64,
    /// CPU time that the responder's thread used during the trial, nanoseconds; 0 = not known. The client's says nothing:
    /// it spins through idle gaps so as to be in time.
    pub cpu_ns: u64,
    /// Messages for which it used that time, where these are not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_messages: Option<u64>,
    /// Events during the trial that may have changed it.
    pub doubts: Vec<Doubt>,
    /// Messages of this trial that were its warm-up, where that differs from what the run says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<u64>,
}

/// One trial. All columns have the same length; `Store::append` asserts it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Counts messages since the cell was opened. Starts at 0 again only when everything was opened anew.
    pub index: Vec<u64>,
    /// When it should have left, since the start of the run.
    pub due_ns: Vec<u64>,
    /// When it left.
    pub sent_ns: Vec<u64>,
    /// Open load: from due; closed load: from sent. Its age if it was not answered.
    pub total_ns: Vec<u64>,
    /// Its outcome.
    pub outcome: Vec<Outcome>,
    /// Its sender, by number; empty where there is but one sender.
    pub sender: Vec<u64>,
    /// Where the time went, as far as stamps say.
    pub stages: Vec<StageColumn>,
    /// Other facts about the trial.
    pub facts: Facts,
}

impl Samples {
    /// Room for `count` messages, so that recording allocates nothing.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            index: Vec::with_capacity(count),
            due_ns: Vec::with_capacity(count),
            sent_ns: Vec::with_capacity(count),
            total_ns: Vec::with_capacity(count),
            outcome: Vec::with_capacity(count),
            sender: Vec::new(),
            stages: Vec::new(),
            facts: Facts::default(),
        }
    }

    /// Adds a message without stages.
    pub fn push(&mut self, index: u64, due_ns: u64, sent_ns: u64, total_ns: u64, outcome: Outcome) {
        self.index.push(index);
        self.due_ns.push(due_ns);
        self.sent_ns.push(sent_ns);
        self.total_ns.push(total_ns);
        self.outcome.push(outcome);
    }

    /// Messages, however they ended.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Nothing was sent.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// A sample with ragged columns is a bug of its recorder.
    ///
    /// # Panics
    /// If the columns differ in length.
    pub fn assert_aligned(&self) {
        let len = self.len();
        let columns = [self.due_ns.len(), self.sent_ns.len(), self.total_ns.len(), self.outcome.len()];
        assert!(columns.iter().all(|&l| l == len), "columns of {columns:?} rows beside {len} indices");
        assert!([0, len].contains(&self.sender.len()), "{} senders of {len} messages", self.sender.len());
        for (place, stage) in self.stages.iter().enumerate() {
            assert_eq!(stage.ns.len(), len, "stage {} is not as long as the sample", stage.name);
            let earlier = &self.stages[..place];
            assert!(
                earlier.iter().all(|other| other.name != stage.name),
                "two columns of stage {}",
                stage.name
            );
        }
    }

    /// When the interval of message `row` began.
    pub fn start_ns(&self, row: usize, load: Load) -> u64 {
        match load {
            Load::Open => self.due_ns[row],
            Load::Closed => self.sent_ns[row],
        }
    }

    /// The phase of message `row`; `warmup` is the run's, for trials that do not state their own.
    pub fn phase(&self, row: usize, warmup: u64) -> Phase {
        Phase::of(self.index[row], self.facts.warmup.unwrap_or(warmup))
    }

    /// The rows of one phase.
    pub fn rows(&self, phase: Phase, warmup: u64) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(move |&row| self.phase(row, warmup) == phase)
    }

    /// Messages that ended this way, in every phase.
    pub fn count_of(&self, outcome: Outcome) -> u64 {
        self.outcome.iter().filter(|&&o| o == outcome).count() as u64
    }

    /// total − Σ stages: the time that no stamp accounts for. Negative if stamps overlap, which is a bug to see. `None` if the message
    /// carries no stamp.
    pub fn unexplained_ns(&self, row: usize) -> Option<i64> {
        let mut stamped = self.stages.iter().map(|s| s.ns[row]).filter(|&ns| ns != ABSENT_NS).peekable();
        stamped.peek()?;
        Some(stamped.fold(signed(self.total_ns[row]), |rest, ns| rest.saturating_sub(signed(ns))))
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
