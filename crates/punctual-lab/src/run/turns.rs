//! Trials of several kinds in turn, so that drift of the machine meets all alike.

use std::collections::HashSet;

use indicatif::ProgressBar;
use punctual_machine::signal::interrupted;

use super::RunError;
use crate::doubt::Cause;
use crate::store::StoreError;
use crate::summary::{Skipped, Summary};

/// Order of the kinds, round by round: backwards every other round, so that no kind always has the same one before it. Ends after the
/// last round, or when interrupted.
#[derive(Debug)]
pub struct Turns<'a> {
    rounds: u32,
    kinds: usize,
    taken: u64,
    bar: &'a ProgressBar,
}

impl<'a> Turns<'a> {
    /// So many rounds of so many kinds; the bar gets a step for each trial, beyond what it has.
    pub fn new(rounds: u32, kinds: usize, bar: &'a ProgressBar) -> Self {
        bar.inc_length(u64::from(rounds) * kinds as u64);
        Self { rounds, kinds, taken: 0, bar }
    }

    /// Makes all trials. A kind that the machine cannot is skipped from then on, and its name noted with the reason. A trial says
    /// whether it was made. Returns how many were.
    pub fn all<K>(
        self,
        kinds: &[K],
        name: impl Fn(&K) -> String,
        skipped: &mut Vec<Skipped>,
        mut trial: impl FnMut(&K, u32, &mut Vec<Skipped>) -> Result<bool, RunError>,
    ) -> Result<usize, StoreError> {
        let mut made = 0;
        let mut failed = HashSet::new();
        let bar = self.bar;
        for (round, place) in self {
            let what = name(&kinds[place]);
            bar.set_message(what.clone());
            if failed.contains(&place) {
                continue;
            }
            match trial(&kinds[place], round, skipped) {
                Ok(is_made) => made += usize::from(is_made),
                Err(RunError::Machine(reason)) => {
                    failed.insert(place);
                    // Earlier measurements of this kind stand in the results.
                    let what = if round == 0 { what } else { format!("{what}, from round {} on", round + 1) };
                    let skip = Skipped { what, reason };
                    if !skipped.contains(&skip) {
                        skipped.push(skip);
                    }
                }
                Err(RunError::Store(error)) => return Err(error),
            }
        }
        Ok(made)
    }
}

impl Iterator for Turns<'_> {
    type Item = (u32, usize);

    /// The round, and the place of the kind.
    fn next(&mut self) -> Option<(u32, usize)> {
        let kinds = self.kinds as u64;
        if interrupted() || self.taken >= u64::from(self.rounds) * kinds {
            return None;
        }
        self.bar.inc(u64::from(self.taken > 0));
        let (round, place) = (self.taken / kinds, self.taken % kinds);
        self.taken += 1;
        let place = if round % 2 == 1 { kinds - 1 - place } else { place };
        Some((round as u32, place as usize))
    }
}

/// Doubts a run that was interrupted, also in the midst of the last trial.
pub fn cut_short(summary: &mut Summary, trials: usize) {
    if interrupted() {
        summary.doubt(Cause::CutShort { trials });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn() -> ProgressBar = ProgressBar::hidden;

    #[test]
    fn every_other_round_goes_backwards() {
        let order: Vec<(u32, usize)> = Turns::new(3, 2, &NONE()).collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(Turns::new(5, 0, &NONE()).next(), None);
    }

    /// Goal: a kind that the machine cannot do is tried once and said once, and the others go on.
    #[test]
    fn a_kind_that_fails_is_skipped_with_its_reason() {
        let mut skipped = Vec::new();
        let mut tried = Vec::new();
        let made = Turns::new(3, 3, &NONE()).all(
            &["a", "b", "b"],
            ToString::to_string,
            &mut skipped,
            |kind, _, _| {
                tried.push(*kind);
                if *kind == "a" { Ok(true) } else { Err(RunError::Machine("no b here".to_owned())) }
            },
        );
        assert_eq!(made.expect("no store was asked"), 3);
        assert_eq!(tried, ["a", "b", "b", "a", "a"]);
        assert_eq!(skipped.len(), 1);
        assert_eq!((skipped[0].what.as_str(), skipped[0].reason.as_str()), ("b", "no b here"));
    }

    /// Goal: a kind that was measured in part is not told to be missing, and each reason of several kinds of one name is told.
    #[test]
    fn a_kind_that_fails_later_was_measured_until_then() {
        let mut skipped = Vec::new();
        let mut tried = 0;
        let bar = NONE();
        let turns = Turns::new(3, 2, &bar);
        let made = turns.all(&["b", "b"], ToString::to_string, &mut skipped, |_, round, _| {
            tried += 1;
            let reason = format!("no room at trial {tried}");
            if round == 0 { Ok(true) } else { Err(RunError::Machine(reason)) }
        });
        assert_eq!(made.expect("no store was asked"), 2);
        let told: Vec<String> = Skipped::by_reason(&skipped);
        assert_eq!(
            told,
            ["b, from round 2 on: no room at trial 3", "b, from round 2 on: no room at trial 4"]
        );
    }
}
