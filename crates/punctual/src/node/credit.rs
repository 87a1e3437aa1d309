//! Causes of losses that have not shown yet: each is charged with one loss, and is forgotten when it is old and no number is missing.

/// After so long what arrived last stands behind what arrives next. After as long again it explains numbers that are missing by then, and
/// the rest of it is forgotten. A gap shows by the sender's next frame or hello, of which there is one a second: one hello may be lost.
/// A gap that shows later has another cause. A missing number is only lost 64 numbers later, which may take a slow sender a minute.
const AGES_AFTER_NS: u64 = 2_000_000_000;

/// Drops of the kernel: of a frame each, or of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OpenDrops {
    drops: u64,
    /// Frames that the last drop that was charged may have had besides.
    frames: u64,
}

impl OpenDrops {
    /// The part of these that so many frames can need.
    fn bounded(self, frames: u64) -> Self {
        let begun = self.frames.min(frames);
        Self { drops: self.drops.min(frames - begun), frames: begun }
    }

    /// Charges as many of these frames as can be: a drop stands for `frames_max` at the most.
    fn charge(&mut self, frames: u64, frames_max: u64) -> u64 {
        let begun = frames.min(self.frames);
        let drops = (frames - begun).div_ceil(frames_max).min(self.drops);
        let charged = (frames - begun).min(drops * frames_max);
        self.drops -= drops;
        self.frames = self.frames - begun + drops * frames_max - charged;
        begun + charged
    }
}

/// Losses by what explains them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Explained {
    /// Frames that arrived damaged.
    pub(super) bad: u64,
    /// Frames that were not believed.
    pub(super) refused: u64,
    /// Frames for which the kernel had no room.
    pub(super) full: u64,
}

impl Explained {
    pub(super) fn sum(&self) -> u64 {
        self.bad + self.refused + self.full
    }
}

/// Causes that came within one age.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    bad: u64,
    refused: u64,
    full: OpenDrops,
}

impl Open {
    /// The part of these that explains so many losses.
    fn bounded(self, losses: u64) -> Self {
        let bad = self.bad.min(losses);
        let refused = self.refused.min(losses - bad);
        Self { bad, refused, full: self.full.bounded(losses - bad - refused) }
    }

    fn plus(self, other: Self) -> Self {
        let drops = self.full.drops + other.full.drops;
        let full = OpenDrops { drops, frames: self.full.frames + other.full.frames };
        Self { bad: self.bad + other.bad, refused: self.refused + other.refused, full }
    }

    /// Takes what explains so many losses, or a part of them.
    fn charge(&mut self, lost: u64, frames_max: u64) -> Explained {
        let bad = lost.min(self.bad);
        self.bad -= bad;
        let refused = (lost - bad).min(self.refused);
        self.refused -= refused;
        let full = self.full.charge(lost - bad - refused, frames_max);
        Explained { bad, refused, full }
    }
}

/// Causes that no loss has been charged to yet.
#[derive(Debug, Default)]
pub(super) struct Credit {
    older: Open,
    newer: Open,
    /// When `newer` began.
    began_ns: u64,
}

impl Credit {
    /// A damaged frame arrived.
    pub(super) fn note_bad(&mut self) {
        self.newer.bad += 1;
    }

    /// A message arrived and was not believed.
    pub(super) fn note_refused(&mut self) {
        self.newer.refused += 1;
    }

    /// The kernel has dropped so much since it was last asked.
    pub(super) fn note_drops(&mut self, drops: u64) {
        self.newer.full.drops += drops;
    }

    /// Charges losses, each once, and older credit first. A drop stands for `frames_max` at the most.
    pub(super) fn charge(&mut self, lost: u64, frames_max: u64) -> Explained {
        let old = self.older.charge(lost, frames_max);
        let new = self.newer.charge(lost - old.sum(), frames_max);
        Explained { bad: old.bad + new.bad, refused: old.refused + new.refused, full: old.full + new.full }
    }

    /// True if [`Self::grow_old`] is to be called before anything else happens.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.age_ns(now_ns) >= AGES_AFTER_NS
    }

    /// An age has ended. Of credit that has had its time as much is kept as explains `open` losses: numbers that are missing, or lost and
    /// not charged yet.
    pub(super) fn grow_old(&mut self, open: u64, now_ns: u64) {
        let newer = std::mem::take(&mut self.newer);
        self.older = if self.age_ns(now_ns) < 2 * AGES_AFTER_NS {
            self.older.bounded(open).plus(newer)
        } else {
            self.older.plus(newer).bounded(open)
        };
        self.began_ns = now_ns;
    }

    /// Time since the newer age began. A counter that began anew, as after a sleep on some machines, does not tell: that is long.
    #[inline]
    fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.checked_sub(self.began_ns).unwrap_or(2 * AGES_AFTER_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a drop is charged once; one of a run with as many frames as a run has.
    #[test]
    fn drops_are_charged_once() {
        let mut open = OpenDrops { drops: 10, frames: 0 };
        assert_eq!([open.charge(4, 1), open.charge(7, 1), open.charge(1, 1)], [4, 6, 0]);
        open.drops = 3;
        assert_eq!([open.charge(17, 16), open.charge(14, 16), open.charge(1, 16)], [17, 14, 1]);
        assert_eq!(open, OpenDrops { drops: 1, frames: 0 });
        assert_eq!(open.charge(100, 16), 16);
    }

    impl Credit {
        fn pass(&mut self, open: u64, now_ns: u64) {
            if self.is_due(now_ns) {
                self.grow_old(open, now_ns);
            }
        }

        fn note_all(&mut self, now_ns: u64) {
            self.pass(0, now_ns);
            self.note_bad();
            self.note_refused();
            self.note_drops(1);
        }
    }

    fn explained(bad: u64, refused: u64, full: u64) -> Explained {
        Explained { bad, refused, full }
    }

    const BEGIN: u64 = 1_000 * AGES_AFTER_NS;

    /// Goal: whenever it came, credit explains losses for one age at least, and none after two; however much comes behind it.
    #[test]
    fn credit_is_forgotten() {
        for came_after in [0, 1, AGES_AFTER_NS / 2, AGES_AFTER_NS - 1] {
            for waits in [AGES_AFTER_NS, 2 * AGES_AFTER_NS] {
                for in_between in [1, 10] {
                    let mut credit = Credit { began_ns: BEGIN, ..Credit::default() };
                    let came = BEGIN + came_after;
                    credit.note_all(came);
                    (1..=in_between).for_each(|step| credit.pass(0, came + waits * step / in_between));
                    let expected = u64::from(waits == AGES_AFTER_NS);
                    assert_eq!(
                        credit.charge(10, 1),
                        explained(expected, expected, expected),
                        "came after {came_after}, {waits} ns later, {in_between} steps"
                    );
                }
            }
        }
    }

    /// Goal: as much credit as there are open losses is kept for them, however old it is, and none besides.
    #[test]
    fn credit_is_kept_for_open_losses() {
        for (open, kept) in [
            (0, explained(0, 0, 0)),
            (1, explained(1, 0, 0)),
            (2, explained(1, 1, 0)),
            (3, explained(1, 1, 1)),
            (9, explained(1, 1, 1)),
        ] {
            for steps in [vec![10], vec![1, 2], vec![1, 2, 3, 4, 14, 15]] {
                let mut credit = Credit { began_ns: BEGIN, ..Credit::default() };
                credit.note_all(BEGIN);
                steps.iter().for_each(|ages| credit.pass(open, BEGIN + ages * AGES_AFTER_NS));
                let found = credit.charge(10, 1);
                assert_eq!(found, kept, "{open} open losses, ages: {steps:?}");
                assert_eq!(credit.charge(10, 1), Explained::default());
            }
        }
        let begun = OpenDrops { drops: 3, frames: 2 };
        let bounded = [0, 1, 3, 9].map(|frames| begun.bounded(frames));
        let expected = [(0, 0), (0, 1), (1, 2), (3, 2)].map(|(drops, frames)| OpenDrops { drops, frames });
        assert_eq!(bounded, expected);
    }

    /// Goal: where the counter begins anew, credit of before it is forgotten, and that of afterwards after its time.
    #[test]
    fn a_counter_that_begins_anew_keeps_no_credit() {
        let mut credit = Credit { began_ns: BEGIN, ..Credit::default() };
        credit.note_all(BEGIN);
        credit.pass(0, 5);
        assert_eq!(credit.charge(10, 1), Explained::default());
        credit.note_all(6);
        (1..=2).for_each(|age| credit.pass(0, 6 + age * AGES_AFTER_NS));
        assert_eq!(credit.charge(10, 1), Explained::default());
    }

    /// Goal: credit of two ages explains as many losses as it stands for, and none twice.
    #[test]
    fn both_ages_are_charged_once() {
        let mut credit = Credit::default();
        credit.note_bad();
        credit.pass(0, AGES_AFTER_NS);
        credit.note_refused();
        credit.note_drops(2);
        let charges = [3, 9, 9].map(|lost| credit.charge(lost, 1));
        assert_eq!(charges, [explained(1, 1, 1), explained(0, 0, 1), explained(0, 0, 0)]);
    }
}
