//! The stages of one message, from the instant it was due until the application had it.
//!
//! ```text
//! due → sent → sealed → posted ⇢ medium → elsewhere → woken → read → opened → delivered
//! ```
//! Between posted and read a message is under way, or waits for a receiver that does something else, or wakes one that
//! sleeps: each has its stage, and none is charged with another's time.

use std::time::Duration;

use punctual_machine::clock::{Clock, Ticks};
use punctual_proto::Stamps;

use crate::wake::SPIN_NS_MAX;

/// Longest time that a waiting thread may spin before sleeping: that time is not known to be idle.
const SPIN_MAX: Duration = Duration::from_nanos(SPIN_NS_MAX as u64);

/// A stage; most are named by the instant at which they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// From due until the application handed the message over.
    Sent,
    /// Until header and tag were complete.
    Sealed,
    /// Until the engine took the frame.
    Posted,
    /// In the medium: until the receiver's kernel had it, where that says when; else until a receiver had it that was awake and
    /// looked. On sockets this is the sender's own call of the kernel, and on a sealed bus the making of the tag.
    Medium,
    /// The receiver was elsewhere: until it began to listen, or from its waking on, if it took other messages first.
    Elsewhere,
    /// Until the receiving thread ran, if it slept, or received, if it waited in its user's event loop. Where no kernel says when the message came, the medium's time is in it.
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
    pub const ALL: [Self; 9] = [
        Self::Sent,
        Self::Sealed,
        Self::Posted,
        Self::Medium,
        Self::Elsewhere,
        Self::Woken,
        Self::Read,
        Self::Opened,
        Self::Delivered,
    ];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Sealed => "sealed",
            Self::Posted => "posted",
            Self::Medium => "medium",
            Self::Elsewhere => "elsewhere",
            Self::Woken => "woken",
            Self::Read => "read",
            Self::Opened => "opened",
            Self::Delivered => "delivered",
        }
    }
}

/// When the receiver's stages of one message ended, in ticks of the receiver's clock; 0 = not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStamps {
    /// The kernel received it.
    pub kernel: Ticks,
    /// The receive began that found it. Not known of the first message: then it is taken to have listened all the while.
    pub listened: Ticks,
    /// Since when the receiver waited in its user's event loop, until that receive began; 0 if it did not.
    pub armed: Ticks,
    /// The receiving thread last woke. Messages that were there by then came while it slept.
    pub woken: Ticks,
    /// The engine gave the frame.
    pub read: Ticks,
    /// Its tag was checked.
    pub opened: Ticks,
    /// The application has it.
    pub delivered: Ticks,
    /// Another thread read it and handed it on: the thread that it was handed to is the one that had to listen for it.
    pub handed_on: bool,
}

/// The time between posted and read, divided.
struct Way {
    medium: Ticks,
    elsewhere: Ticks,
    woken: Ticks,
    read: Ticks,
}

/// Both halves of one message's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// The sender's half, as it came in the frame.
    pub sender: Stamps,
    /// The receiver's half.
    pub receiver: ReceiverStamps,
    /// True if both halves are of one clock, so that the way between them is known.
    pub one_clock: bool,
}

impl Stages {
    /// Time spent in a stage, at least so long where that did not fit into the sender's stamps. `None` for the way between different
    /// clocks, and from an instant that did not fit, as far as the receiver's own clock does not say.
    pub fn time_in(&self, stage: Stage) -> Option<Ticks> {
        let ReceiverStamps { read, opened, delivered, .. } = self.receiver;
        let handed = self.handed_from();
        match stage {
            Stage::Sent => Some(Ticks(self.sender.due_to_sent.into())),
            Stage::Sealed => Some(Ticks(self.sender.sent_to_sealed.into())),
            Stage::Posted => Some(Ticks(self.sender.sealed_to_posted.into())),
            Stage::Medium => self.posted().map(|_| self.way().medium),
            Stage::Elsewhere => self.known_way().map(|way| Ticks(way.elsewhere.0 + handed.since(opened).0)),
            Stage::Woken => self.known_way().map(|way| way.woken),
            Stage::Read => Some(self.way().read),
            Stage::Opened => Some(opened.since(read)),
            Stage::Delivered => Some(delivered.since(handed)),
        }
    }

    /// When the engine took the frame, by the receiver's clock, if that is known.
    fn posted(&self) -> Option<Ticks> {
        self.sender.posted().filter(|_| self.one_clock).map(Ticks)
    }

    fn known_way(&self) -> Option<Way> {
        (self.posted().is_some() || self.receiver.kernel.0 != 0).then(|| self.way())
    }

    /// Instant from which the thread that it was handed to had only to take it.
    fn handed_from(&self) -> Ticks {
        let ReceiverStamps { opened, delivered, handed_on, .. } = self.receiver;
        if handed_on { self.listened_from().min(delivered).max(opened) } else { opened }
    }

    /// Instant from which its receiver listened, in an event loop or in a receive. In a loop the thread may have done something else
    /// meanwhile, which nobody tells: then it was elsewhere, and counts as woken.
    fn listened_from(&self) -> Ticks {
        let ReceiverStamps { listened, armed, .. } = self.receiver;
        if armed.0 == 0 { listened } else { armed }
    }

    /// The thread slept for this message only if it woke when that was there. If it listened again after that, it took others first,
    /// which the same waking was for.
    fn way(&self) -> Way {
        let ReceiverStamps { kernel, woken, read, handed_on, .. } = self.receiver;
        let listened = if handed_on { Ticks(0) } else { self.listened_from().min(read) };
        let posted = self.posted().map_or(Ticks(0), |posted| posted.min(read));
        let there = if kernel.0 == 0 { posted } else { kernel.max(posted).min(read) };
        // Where nobody says when it was there, a thread that woke since it listened was woken for it.
        let slept = woken > if there.0 == 0 { listened } else { there };
        let heard = there.max(listened);
        if kernel.0 == 0 && !slept {
            // No kernel says when it came; a thread that was awake and listened took it as it came.
            let (medium, elsewhere) = (read.since(heard), heard.since(posted));
            return Way { medium, elsewhere, woken: Ticks(0), read: Ticks(0) };
        }
        let medium = there.since(posted);
        if !slept {
            return Way { medium, elsewhere: heard.since(there), woken: Ticks(0), read: read.since(heard) };
        }
        let woken = woken.min(read);
        let (elsewhere, asleep, ready) = if listened > woken {
            (listened.since(woken), woken.since(there), listened)
        } else {
            (heard.since(there), woken.since(heard), woken)
        };
        Way { medium, elsewhere, woken: asleep, read: read.since(ready) }
    }

    /// For how long its receiver slept with nothing to do before the message was there, from no earlier than `since`; nothing if
    /// it was awake then, or waited in its user's event loop, which may have done something else.
    pub fn slept_before(&self, since: Ticks) -> Ticks {
        let ReceiverStamps { kernel, listened, armed, handed_on, .. } = self.receiver;
        let slept = self.time_in(Stage::Woken).is_some_and(|woken| woken.0 > 0);
        if !slept || listened.0 == 0 || armed.0 != 0 || handed_on {
            return Ticks(0);
        }
        let posted = self.posted().unwrap_or(kernel);
        let spun = Clock::get().ticks(SPIN_MAX);
        kernel.max(posted).since(listened.max(since)).since(spun)
    }

    /// From due to delivered; `None` between different clocks, and where the message was due before what its stamps can tell.
    pub fn total(&self) -> Option<Ticks> {
        let due = self.sender.due().filter(|_| self.one_clock)?;
        Some(self.receiver.delivered.since(Ticks(due)))
    }

    /// The same, at least: known of every message of one clock.
    pub fn total_at_least(&self) -> Option<Ticks> {
        let due = Ticks(self.sender.due_at_latest());
        self.one_clock.then(|| self.receiver.delivered.since(due))
    }

    /// Part of the total that the stages do not explain, ticks: 0 unless an interval did not fit into its field. Negative where
    /// instants contradict each other, as two processors' clocks that are not one.
    pub fn unexplained(&self) -> Option<i64> {
        let explained: u64 = Stage::ALL.iter().map(|&stage| self.time_in(stage).unwrap_or_default().0).sum();
        self.total().map(|total| total.0.wrapping_sub(explained).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Due at 900, sent at 1,000, posted at 1,015, and read at 1,520.
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
                read: Ticks(1_520),
                opened: Ticks(1_530),
                delivered: Ticks(1_534),
                ..ReceiverStamps::default()
            },
            one_clock: true,
        }
    }

    fn with(kernel: u64, listened: u64, woken: u64) -> Stages {
        let example = example();
        let receiver = ReceiverStamps {
            kernel: Ticks(kernel),
            listened: Ticks(listened),
            woken: Ticks(woken),
            ..example.receiver
        };
        Stages { receiver, ..example }
    }

    /// Medium, elsewhere, woken, read.
    fn way(stages: &Stages) -> [u64; 4] {
        [Stage::Medium, Stage::Elsewhere, Stage::Woken, Stage::Read]
            .map(|stage| stages.time_in(stage).expect("one clock").0)
    }

    #[test]
    fn stages_sum_to_the_total() {
        let stages = with(0, 0, 1_515);
        let times: Vec<u64> = Stage::ALL.iter().map(|&stage| stages.time_in(stage).unwrap().0).collect();
        assert_eq!(times, [100, 10, 5, 0, 0, 500, 5, 10, 4]);
        assert_eq!(stages.total(), Some(Ticks(634)));
        assert_eq!(stages.unexplained(), Some(0));
    }

    /// Goal: nobody is charged with time that was not his.
    #[test]
    fn only_who_slept_was_woken() {
        // Awake and listening: all of it was the medium's.
        assert_eq!(way(&with(0, 900, 0)), [505, 0, 0, 0]);
        // It woke long before, for something else, and was awake when this came.
        assert_eq!(way(&with(0, 900, 1_000)), [505, 0, 0, 0]);
        // The kernel had it at 1,100 and the thread polled.
        assert_eq!(way(&with(1_100, 900, 0)), [85, 0, 0, 420]);
        // The kernel had it at 1,100; the thread slept until 1,400.
        assert_eq!(way(&with(1_100, 900, 1_400)), [85, 0, 300, 120]);
        // The application listened again only at 1,500.
        assert_eq!(way(&with(0, 1_500, 0)), [20, 485, 0, 0]);
        assert_eq!(way(&with(1_100, 1_500, 0)), [85, 400, 0, 20]);
        assert_eq!(way(&with(0, 1_500, 1_000)), [20, 485, 0, 0], "it slept before this came");
    }

    /// Goal: all that came during one sleep waited for that waking. The thread's work with those before is no sleep.
    #[test]
    fn all_that_came_during_a_sleep_were_woken_for() {
        assert_eq!(way(&with(0, 1_500, 1_400)), [0, 100, 385, 20]);
        assert_eq!(way(&with(1_100, 1_500, 1_400)), [85, 100, 300, 20]);
        assert_eq!(with(0, 1_500, 1_400).unexplained(), Some(0));
        assert_eq!(with(0, 1_500, 1_400).slept_before(Ticks(0)), Ticks(0));
    }

    /// Goal: a receiver that waited in its user's event loop listened since it was armed. It is not known to have slept before the
    /// message was there.
    #[test]
    fn an_armed_receiver_listened() {
        let armed = |kernel: u64, armed: u64| {
            let found = with(kernel, 1_499, 1_500);
            Stages { receiver: ReceiverStamps { armed: Ticks(armed), ..found.receiver }, ..found }
        };
        assert_eq!(way(&armed(0, 900)), [0, 0, 485, 20]);
        assert_eq!(way(&armed(1_100, 900)), [85, 0, 400, 20]);
        // It did something else before it was armed.
        assert_eq!(way(&armed(0, 1_200)), [0, 185, 300, 20]);
        assert_eq!(way(&armed(1_100, 1_200)), [85, 100, 300, 20]);
        assert_eq!(armed(0, 900).unexplained(), Some(0));
        assert_eq!(armed(0, 900).slept_before(Ticks(0)), Ticks(0));
        let mut long_ago = armed(1_100, 900);
        long_ago.receiver.listened = Ticks(1);
        assert_eq!(long_ago.slept_before(Ticks(0)), Ticks(0), "its listening is of an earlier receive");
        let handed = armed(0, 900);
        let handed = Stages { receiver: ReceiverStamps { handed_on: true, ..handed.receiver }, ..handed };
        assert_eq!(handed.time_in(Stage::Delivered), Some(Ticks(4)), "all of it is the way to this thread");
    }

    /// Goal: a thread that hands a message on listened; the thread that it was handed to may have been elsewhere.
    #[test]
    fn a_message_that_was_handed_on_waits_for_its_owner() {
        let example = with(0, 1_532, 0);
        let stages = Stages { receiver: ReceiverStamps { handed_on: true, ..example.receiver }, ..example };
        assert_eq!(way(&stages), [505, 2, 0, 0]);
        assert_eq!(stages.time_in(Stage::Delivered), Some(Ticks(2)));
        assert_eq!(stages.unexplained(), Some(0));
    }

    #[test]
    fn between_two_clocks_the_way_is_not_known() {
        let stages = Stages { one_clock: false, ..with(0, 900, 1_515) };
        assert_eq!(
            [Stage::Medium, Stage::Elsewhere, Stage::Woken].map(|stage| stages.time_in(stage)),
            [None; 3]
        );
        assert_eq!(stages.total(), None);
        assert_eq!(stages.time_in(Stage::Read), Some(Ticks(5)), "each side's own intervals are still exact");
        let listening = Stages { one_clock: false, ..with(0, 900, 800) };
        assert_eq!(
            listening.time_in(Stage::Read),
            Some(Ticks(0)),
            "a thread that only listened read nothing"
        );
        let stamped = Stages { one_clock: false, ..with(1_100, 1_200, 1_515) };
        let [elsewhere, woken] = [Stage::Elsewhere, Stage::Woken].map(|stage| stamped.time_in(stage));
        assert_eq!((elsewhere, woken), (Some(Ticks(100)), Some(Ticks(315))), "the kernel's clock is ours");
    }

    /// Goal: an interval that did not fit into the sender's stamps is not taken for an instant. Neither the total nor the way is known,
    /// unless the receiver's kernel says when the message came.
    #[test]
    fn an_interval_that_did_not_fit_tells_no_way() {
        let full = |kernel, sender| Stages { sender, ..with(kernel, 900, 1_515) };
        let sender = example().sender;
        let late = full(0, Stamps { due_to_sent: u32::MAX, ..sender });
        assert_eq!((late.total(), late.total_at_least()), (None, Some(Ticks(1_534))));
        assert_eq!((late.time_in(Stage::Medium), late.unexplained()), (Some(Ticks(0)), None));
        for sender in
            [Stamps { sent_to_sealed: u32::MAX, ..sender }, Stamps { sealed_to_posted: u32::MAX, ..sender }]
        {
            let way = |stages: &Stages| {
                [Stage::Medium, Stage::Elsewhere, Stage::Woken].map(|stage| stages.time_in(stage))
            };
            let (slow, stamped) = (full(0, sender), full(1_100, sender));
            assert_eq!((slow.total(), way(&slow)), (Some(Ticks(634)), [None; 3]));
            assert_eq!(way(&stamped), [None, Some(Ticks(0)), Some(Ticks(415))]);
        }
    }

    proptest! {
        /// Goal: the stages of one clock add up to the total for any instants; a read before the post is a contradiction, and shows.
        #[test]
        fn stages_add_up(instants in proptest::collection::vec(0..3_000_u64, 4), read in 0..3_000_u64, handed_on: bool, is_armed: bool) {
            let receiver = ReceiverStamps {
                kernel: Ticks(instants[0]),
                listened: Ticks(instants[1]),
                woken: Ticks(instants[2]),
                armed: Ticks(instants[3] * u64::from(is_armed)),
                read: Ticks(read),
                opened: Ticks(read + 10),
                delivered: Ticks(read + 14),
                handed_on,
            };
            let stages = Stages { receiver, ..example() };
            let rest = stages.unexplained().expect("one clock");
            if read >= 1_015 {
                prop_assert_eq!(rest, 0, "{:?}", stages);
            } else {
                prop_assert!(rest < 0, "{:?}", stages);
            }
        }
    }
}
