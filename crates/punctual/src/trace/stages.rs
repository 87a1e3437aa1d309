//! The stages of one message, from the instant it was due until the application had it.
//!
//! ```text
//! due → sent → sealed → posted ⇢ woken → read → opened → delivered
//! ```

use punctual_machine::clock::Ticks;
use punctual_proto::Stamps;

/// A stage, named by the instant at which it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// From due until the application handed the message over.
    Sent,
    /// Until header and tag were complete.
    Sealed,
    /// Until the engine took the frame.
    Posted,
    /// Until the receiving thread ran: the medium, the kernel, the wake-up. The whole way to `Read` if it was awake.
    Woken,
    /// Until the engine gave the frame.
    Read,
    /// Until its tag was checked.
    Opened,
    /// Until the application has it: hand-over between threads, copying.
    Delivered,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 7] =
        [Self::Sent, Self::Sealed, Self::Posted, Self::Woken, Self::Read, Self::Opened, Self::Delivered];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Sealed => "sealed",
            Self::Posted => "posted",
            Self::Woken => "woken",
            Self::Read => "read",
            Self::Opened => "opened",
            Self::Delivered => "delivered",
        }
    }
}

/// When the receiver's stages of one message ended, in ticks of the receiver's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStamps {
    /// The receiving thread ran. Equal to `read` if it had not slept.
    pub woken: Ticks,
    /// The engine gave the frame.
    pub read: Ticks,
    /// Its tag was checked.
    pub opened: Ticks,
    /// The application has it.
    pub delivered: Ticks,
}

/// Both halves of one message's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// The sender's half, as it came in the frame.
    pub sender: Stamps,
    /// The receiver's half.
    pub receiver: ReceiverStamps,
    /// Whether both halves are of one clock, so that the way between them is known.
    pub one_clock: bool,
}

impl Stages {
    /// Time spent in a stage; `None` for [`Stage::Woken`] between different clocks.
    pub fn time_in(&self, stage: Stage) -> Option<Ticks> {
        let ReceiverStamps { woken, read, opened, delivered } = self.receiver;
        match stage {
            Stage::Sent => Some(Ticks(self.sender.due_to_sent.into())),
            Stage::Sealed => Some(Ticks(self.sender.sent_to_sealed.into())),
            Stage::Posted => Some(Ticks(self.sender.sealed_to_posted.into())),
            Stage::Woken => self.one_clock.then(|| woken.since(Ticks(self.sender.posted()))),
            Stage::Read => Some(read.since(woken)),
            Stage::Opened => Some(opened.since(read)),
            Stage::Delivered => Some(delivered.since(opened)),
        }
    }

    /// From due to delivered; `None` between different clocks.
    pub fn total(&self) -> Option<Ticks> {
        self.one_clock.then(|| self.receiver.delivered.since(Ticks(self.sender.due())))
    }

    /// What the stages do not add up to: 0 unless an interval did not fit into its field or a clock stepped.
    pub fn unexplained(&self) -> Option<Ticks> {
        let explained = Stage::ALL.iter().map(|&stage| self.time_in(stage).unwrap_or_default().0).sum();
        self.total().map(|total| total.since(Ticks(explained)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Stages {
        Stages {
            sender: Stamps {
                sent: 1_000,
                due_to_sent: 100,
                sent_to_sealed: 10,
                sealed_to_posted: 5,
                domain: 9,
            },
            receiver: ReceiverStamps {
                woken: Ticks(1_515),
                read: Ticks(1_520),
                opened: Ticks(1_530),
                delivered: Ticks(1_534),
            },
            one_clock: true,
        }
    }

    #[test]
    fn stages_sum_to_the_total() {
        let stages = example();
        let times: Vec<u64> = Stage::ALL.iter().map(|&stage| stages.time_in(stage).unwrap().0).collect();
        assert_eq!(times, [100, 10, 5, 500, 5, 10, 4]);
        assert_eq!(stages.total(), Some(Ticks(634)));
        assert_eq!(stages.unexplained(), Some(Ticks(0)));
    }

    #[test]
    fn between_two_clocks_the_way_is_not_known() {
        let stages = Stages { one_clock: false, ..example() };
        assert_eq!(stages.time_in(Stage::Woken), None);
        assert_eq!(stages.total(), None);
        assert_eq!(stages.time_in(Stage::Read), Some(Ticks(5)), "each side's own intervals are still exact");
    }
}
