//! Causes of losses that have not shown yet: each is charged with one loss, and is forgotten when it is old.

/// After so long what arrived last stands behind what arrives next, and after as long again it is forgotten. A gap shows by the sender's
/// next frame or hello, of which there is one a second: one hello may be lost. A loss that shows later has another cause.
const AGES_AFTER_NS: u64 = 2_000_000_000;

/// Drops of the kernel: of a frame each, or of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OpenDrops {
    drops: u64,
    /// Frames that the last drop that was charged may have had besides.
    frames: u64,
}

impl OpenDrops {
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
    pub(super) fn note_bad(&mut self, now_ns: u64) {
        self.grow_old(now_ns);
        self.newer.bad += 1;
    }

    /// A message arrived and was not believed.
    pub(super) fn note_refused(&mut self, now_ns: u64) {
        self.grow_old(now_ns);
        self.newer.refused += 1;
    }

    /// The kernel has dropped so much since it was last asked.
    pub(super) fn note_drops(&mut self, drops: u64, now_ns: u64) {
        self.grow_old(now_ns);
        self.newer.full.drops += drops;
    }

    /// Charges losses, each once, and older credit first. A drop stands for `frames_max` at the most.
    pub(super) fn charge(&mut self, lost: u64, frames_max: u64, now_ns: u64) -> Explained {
        self.grow_old(now_ns);
        let old = self.older.charge(lost, frames_max);
        let new = self.newer.charge(lost - old.sum(), frames_max);
        Explained { bad: old.bad + new.bad, refused: old.refused + new.refused, full: old.full + new.full }
    }

    fn grow_old(&mut self, now_ns: u64) {
        let age_ns = now_ns.saturating_sub(self.began_ns);
        if age_ns < AGES_AFTER_NS {
            return;
        }
        let newer = std::mem::take(&mut self.newer);
        self.older = if age_ns < 2 * AGES_AFTER_NS { newer } else { Open::default() };
        self.began_ns = now_ns;
    }

    /// It is as if the newer age had begun then: at 0 all that came is old, at `u64::MAX` nothing ever is.
    #[cfg(test)]
    pub(super) fn pretend_begun(&mut self, at_ns: u64) {
        self.began_ns = at_ns;
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

    /// Goal: whenever it came, credit explains losses for one age at least, and none after two; however much comes behind it.
    #[test]
    fn credit_is_forgotten() {
        const BEGIN: u64 = 1_000 * AGES_AFTER_NS;
        for came_after in [0, 1, AGES_AFTER_NS / 2, AGES_AFTER_NS - 1] {
            for waits in [AGES_AFTER_NS, 2 * AGES_AFTER_NS] {
                for in_between in [1, 10] {
                    let mut credit = Credit { began_ns: BEGIN, ..Credit::default() };
                    let came = BEGIN + came_after;
                    credit.note_bad(came);
                    credit.note_refused(came);
                    credit.note_drops(1, came);
                    let steps = (1..=in_between).map(|step| came + waits * step / in_between);
                    steps.for_each(|now| credit.note_drops(0, now));
                    let found = credit.charge(10, 1, came + waits);
                    let expected = u64::from(waits == AGES_AFTER_NS);
                    let expected = Explained { bad: expected, refused: expected, full: expected };
                    assert_eq!(
                        found, expected,
                        "came after {came_after}, {waits} ns later, {in_between} steps"
                    );
                }
            }
        }
    }

    /// Goal: credit of two ages explains as many losses as it stands for, and none twice.
    #[test]
    fn both_ages_are_charged_once() {
        let mut credit = Credit::default();
        credit.note_bad(0);
        credit.note_refused(AGES_AFTER_NS);
        credit.note_drops(2, AGES_AFTER_NS);
        let charges = [3, 9, 9].map(|lost| credit.charge(lost, 1, AGES_AFTER_NS));
        let explained = |bad, refused, full| Explained { bad, refused, full };
        assert_eq!(charges, [explained(1, 1, 1), explained(0, 0, 1), explained(0, 0, 0)]);
    }
}
