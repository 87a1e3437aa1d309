//! The confusion matrix: injected causes against named ones, by each tier, and causes named where nothing was injected.

use std::collections::BTreeMap;

use serde::Serialize;

use super::judge::{JudgedPair, JudgedRun, Tier};
use super::plan::Row;
use crate::report::section::{Cell, Column, Section, Table};
use crate::summary::Skipped;
use crate::units::{count, dash, percent, plural};

/// Verdicts on the injections of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RowCounts {
    /// The injection, and its target.
    pub injected: String,
    /// The cause that must be named.
    pub cause: &'static str,
    /// Number of times that it was made.
    pub made: u64,
    /// Number of times that nothing was late by it.
    pub no_stall: u64,
    /// By tier 0 and tier 1: number of times that each name was given.
    pub named: [BTreeMap<&'static str, u64>; 2],
    /// By tier: the right name, at the right side.
    pub right: [u64; 2],
}

/// Stalls in which nothing was injected.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CleanCounts {
    /// All.
    pub stalls: u64,
    /// By tier 0 and tier 1: number of times that each name was given.
    pub named: [BTreeMap<&'static str, u64>; 2],
    /// Named by tier 0 what by the trace took less than a tenth.
    pub refuted: u64,
}

/// Two injections at once, by the kernel's trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PairCounts {
    /// Number of times that two were made at once.
    pub made: u64,
    /// Number of times that nothing was late by it.
    pub no_stall: u64,
    /// Number of times that both were named, at their side.
    pub both: u64,
    /// Number of times that the longer was named before the shorter.
    pub longer_first: u64,
    /// Those of which one was not named, or the shorter first: the two injections, and the names given.
    pub wrong: Vec<String>,
}

impl PairCounts {
    fn add(&mut self, pair: &JudgedPair) {
        self.made += 1;
        let Some(called) = &pair.called else {
            self.no_stall += 1;
            return;
        };
        self.both += u64::from(called.both);
        self.longer_first += u64::from(called.is_longer_first);
        if !called.is_longer_first {
            let [longer, shorter] = pair.rows;
            self.wrong.push(format!("{longer} and {shorter}: {}", called.names.join(", ")));
        }
    }
}

/// All that was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Matrix {
    /// Seed of the plan.
    pub seed: u64,
    /// Per injection and side.
    pub rows: Vec<RowCounts>,
    /// Two at once.
    pub pairs: PairCounts,
    /// Among the injections.
    pub clean: CleanCounts,
    /// Excess of the stalls that injections made, nanoseconds.
    pub excess_ns: u64,
    /// By tier: the part of it that was attributed to any cause.
    pub attributed_ns: [u64; 2],
    /// Why there is no trace.
    pub without_trace: Option<String>,
    /// Injections that were not made, and why.
    pub skipped: Vec<Skipped>,
    /// Runs that could not be made.
    pub failed: Vec<String>,
    /// Runs whose promise did not hold, and which: injections make messages late, and lose none.
    pub broken: Vec<String>,
    /// Ctrl-C ended it before all were made.
    pub is_cut_short: bool,
}

fn share(part: u64, whole: u64) -> String {
    percent(part as f64 / whole.max(1) as f64)
}

impl Matrix {
    pub(super) fn new(seed: u64, rows: &[Row]) -> Self {
        let row =
            |row: &Row| RowCounts { injected: row.name(), cause: row.cause.name, ..RowCounts::default() };
        Self { seed, rows: rows.iter().map(row).collect(), ..Self::default() }
    }

    pub(super) fn add(&mut self, run: &JudgedRun) {
        self.without_trace = self.without_trace.take().or_else(|| run.without_trace.clone());
        for judged in &run.injections {
            let name = judged.row.name();
            let Some(row) = self.rows.iter_mut().find(|row| row.injected == name) else { continue };
            row.made += 1;
            let Some(called) = &judged.called else {
                row.no_stall += 1;
                continue;
            };
            self.excess_ns += called[1].excess_ns;
            for (tier, called) in called.iter().enumerate() {
                *row.named[tier].entry(called.cause.name()).or_default() += 1;
                row.right[tier] += u64::from(called.is_right);
                self.attributed_ns[tier] += called.named_ns.min(called.excess_ns);
            }
        }
        run.pairs.iter().for_each(|pair| self.pairs.add(pair));
        for stall in &run.clean {
            self.clean.stalls += 1;
            self.clean.refuted += u64::from(stall.is_refuted);
            for (named, cause) in self.clean.named.iter_mut().zip(stall.causes) {
                *named.entry(cause.name()).or_default() += 1;
            }
        }
    }

    /// Number of times that each of these rows is still to be made.
    pub(super) fn missing(&self, rows: &[Row], each: usize) -> Vec<(Row, usize)> {
        let made =
            |row: &Row| self.rows.iter().find(|one| one.injected == row.name()).map_or(0, |one| one.made);
        let missing = rows.iter().map(|row| (*row, each.saturating_sub(made(row) as usize)));
        missing.filter(|(_, times)| *times > 0).collect()
    }

    /// All that was made.
    pub(super) fn made(&self) -> u64 {
        self.rows.iter().map(|row| row.made).sum::<u64>() + self.pairs.made
    }

    /// By a tier: stalls that injections made and that were called rightly, and all of them.
    pub fn right(&self, tier: Tier) -> (u64, u64) {
        let made = self.rows.iter().map(|row| row.made - row.no_stall).sum();
        (self.rows.iter().map(|row| row.right[tier as usize]).sum(), made)
    }

    /// As tables.
    pub fn sections(&self) -> Vec<Section> {
        let tiers: &[Tier] = if self.has_trace() { &[Tier::Trace, Tier::Windows] } else { &[Tier::Windows] };
        let mut sections: Vec<Section> = tiers.iter().map(|&tier| self.section(tier)).collect();
        if self.is_cut_short {
            let note = format!("It was cut short after {}.", plural(self.made(), "injection"));
            sections.insert(0, Section::new("Cut short").note(note));
        }
        if self.pairs.made > 0 {
            sections.push(self.pairs_section());
        }
        sections.push(self.clean_section());
        sections
    }

    fn pairs_section(&self) -> Section {
        let PairCounts { made, no_stall, both, longer_first, wrong } = &self.pairs;
        let late = made - no_stall;
        let section =
            Section::new("Two at once, the one three times as long as the other (tier 1)").words(format!(
                "Of {} that made a message late both are named of {} ({}), the longer first of {} ({}).",
                count(late),
                count(*both),
                share(*both, late),
                count(*longer_first),
                share(*longer_first, late),
            ));
        wrong.iter().fold(section, |section, pair| section.note(format!("Otherwise: {pair}")))
    }

    fn has_trace(&self) -> bool {
        self.without_trace.is_none()
    }

    fn section(&self, tier: Tier) -> Section {
        let (title, place) = match tier {
            Tier::Trace => ("Injected and named, by the kernel's trace (tier 1)", 1),
            Tier::Windows => ("Injected and named, by what user space sees (tier 0)", 0),
        };
        let mut names: Vec<&str> =
            self.rows.iter().flat_map(|row| row.named[place].keys().copied()).collect();
        names.sort_unstable();
        names.dedup();
        let mut columns = vec![Column::name("injected"), Column::number("late"), Column::number("right")];
        columns.extend(names.iter().map(|&name| Column::number(name)));
        let mut table = Table::new(columns).keyed(1);
        for row in &self.rows {
            if row.made == 0 {
                let mut cells = vec![Cell::from(row.injected.clone()), "not made".into(), dash().into()];
                cells.resize_with(names.len() + 3, || Cell::from(""));
                table.row(cells);
                continue;
            }
            let late = format!("{} of {}", count(row.made - row.no_stall), count(row.made));
            let mut cells: Vec<Cell> =
                vec![row.injected.clone().into(), late.into(), count(row.right[place]).into()];
            cells.extend(names.iter().map(|name| {
                Cell::from(row.named[place].get(name).map_or_else(String::new, |&times| count(times)))
            }));
            table.row(cells);
        }
        let (right, all) = self.right(tier);
        let mut section = Section::new(title).table(table).words(format!(
            "{} of {} stalls are called rightly, of the right side ({}); {} of their excess is attributed. Seed {}.",
            count(right),
            count(all),
            share(right, all),
            share(self.attributed_ns[place], self.excess_ns),
            self.seed,
        ));
        if let (Tier::Windows, Some(reason)) = (tier, &self.without_trace) {
            section = section.note(format!("Without the kernel's trace: {reason}"));
        }
        section
    }

    fn clean_section(&self) -> Section {
        let named = |place: usize| {
            let one = |(name, times): (&&str, &u64)| format!("{name} {}", count(*times));
            self.clean.named[place].iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let section = Section::new("Where nothing was injected");
        let mut section = match self.clean.stalls {
            0 => section.words("No message was late there."),
            stalls => section.words(format!("{}.", plural(stalls, "stall"))),
        };
        if self.clean.stalls > 0 {
            if self.has_trace() {
                section = section.note(format!("By the trace: {}.", named(1))).note(format!(
                    "By user space: {}; {} of them took less than a tenth by the trace.",
                    named(0),
                    count(self.clean.refuted)
                ));
            } else {
                section = section.note(format!("By user space: {}.", named(0)));
            }
        }
        for skipped in &self.skipped {
            section = section.note(format!("Not injected: {}: {}", skipped.what, skipped.reason));
        }
        for reason in &self.failed {
            section = section.note(format!("A run failed: {reason}"));
        }
        for promise in &self.broken {
            section = section.note(format!("A promise did not hold: {promise}"));
        }
        section
    }
}
