//! Runs of the same thing on this host, which say how far such runs lie apart.

use std::path::PathBuf;

use super::lacking::lacks;
use crate::file::resolved;
use crate::store::{Header, Run};

/// The newest are enough: more make the interval hardly narrower, and every one is read.
const RUNS_MAX: usize = 20;

/// Other runs of what `runs` measured, in the folders: of the same experiment, plan and host, the newest first. Only whole ones count:
/// parts that one lacks would be looked for in the distances of the others. A run that cannot be read is no part of the comparison.
pub fn history_of(runs: &[&Run], folders: &[PathBuf]) -> Vec<Run> {
    let Some(first) = runs.first() else { return Vec::new() };
    let known: Vec<PathBuf> = runs.iter().map(|run| resolved(&run.path)).collect();
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for entry in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        let path = resolved(&entry.path());
        let seen = known.contains(&path) || found.iter().any(|(_, other)| *other == path);
        let header = if seen { None } else { Header::read(&path).ok() };
        if let Some(header) = header.filter(|header| is_alike(header, &first.header)) {
            found.push((header.started, path));
        }
    }
    found.sort_unstable();
    let newest = found.into_iter().rev().filter_map(|(_, path)| Run::open(&path).ok());
    newest.filter(|run| lacks(run).is_empty()).take(RUNS_MAX).collect()
}

fn is_alike(one: &Header, other: &Header) -> bool {
    let host = |header: &Header| {
        let host = &header.host;
        // The class of its threads is in the plan.
        (host.cpu.clone(), host.cpus, host.kernel.clone())
    };
    one.experiment == other.experiment
        && one.warmup == other.warmup
        && one.plan == other.plan
        && host(one) == host(other)
}
