//! 24 members of a group with a store are killed at random instants under load, one after the other, and come back: nothing that a
//! client was told is lost.

use std::time::Duration;

use serde_json::Value;

use crate::command::{how, tail};
use crate::release;
use crate::step::Outcome;
use crate::workspace;

/// Members that are killed in each trial, a second and a half for each.
const KILLS: u64 = 24;
/// Medium and way to read of each trial.
const TRIALS: [&str; 4] =
    ["shared, linearizable", "shared, local", "multicast, linearizable", "multicast, local"];
/// Words of the program for a trial that this user may not make.
const NEEDS_NAMESPACES: &str = "need network namespaces";
/// Four trials, and what a busy machine adds.
const DEADLINE: Duration = Duration::from_secs(900);

pub(crate) fn run() -> Outcome {
    rejoin().unwrap_or_else(Outcome::Failed)
}

fn rejoin() -> Result<Outcome, String> {
    let folder = workspace::target("xtask").join("rejoin");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let kills = KILLS.to_string();
    let rejoin = release::command()?
        .args(&["run", "broadcast", "--app", "kv", "--engine", "shared,multicast", "--faults", "1/0"])
        .args(&["--kills", &kills, "--quiet", "--json", "-", "--out"])
        .arg(folder.join("run"))
        .within(DEADLINE);
    let (ended, output) = rejoin.output_to(&folder.join("summary.json"))?;
    if ended != Some(0) {
        return Err(format!(
            "run broadcast {}; its output ends:\n{}",
            how(ended, DEADLINE),
            tail(&output, 20)
        ));
    }
    judge(&output)
}

/// Says a line for each trial. One that lacks a kill or a check is an error, and so is one that is not there without a reason.
fn judge(output: &str) -> Result<Outcome, String> {
    let summary: Value =
        serde_json::from_str(output).map_err(|error| format!("standard output is not JSON: {error}"))?;
    let trials = summary.pointer("/broadcast/kv").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let lines = trials.iter().map(line).collect::<Result<Vec<_>, _>>()?;
    // A trial that the machine cannot make is skipped by the program, which then ends well.
    let is_there = |name: &&&str| lines.iter().any(|line| line.starts_with(**name));
    let missing: Vec<_> = TRIALS.iter().filter(|name| !is_there(name)).collect();
    lines.iter().for_each(|line| say!("{line}"));
    let skipped = summary.get("skipped").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let outcome = format!("no trial of {missing:?}; skipped: {}", Value::from(skipped));
    match (missing.is_empty(), missing.iter().all(|name| is_excused(name, skipped))) {
        (true, _) => Ok(Outcome::Passed),
        (false, true) => Ok(Outcome::Partly(outcome)),
        (false, false) => Err(outcome),
    }
}

/// Returns true if this machine cannot make a trial: its members need namespaces that this user may not make. A group that does not meet
/// is skipped by the program, too.
fn is_excused(name: &str, skipped: &[Value]) -> bool {
    let text = |one: &Value, part: &str| one.get(part).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (engine, reads) = name.split_once(", ").unwrap_or((name, ""));
    skipped.iter().any(|one| {
        let what = text(one, "what");
        what.starts_with(engine) && what.contains(reads) && text(one, "reason").contains(NEEDS_NAMESPACES)
    })
}

fn line(trial: &Value) -> Result<String, String> {
    let number = |name: &str| trial.get(name).and_then(Value::as_u64).ok_or_else(|| format!("no {name}"));
    let text = |name: &str| trial.get(name).and_then(Value::as_str).ok_or_else(|| format!("no {name}"));
    let (kills, checked) = (number("disruptions")?, number("checked_operations")?);
    let broken = number("violation_count")? + number("undecided")?;
    if kills != KILLS || broken != 0 || checked == 0 {
        return Err(format!("{kills} kills, {checked} operations checked, {broken} broken: {trial}"));
    }
    let (engine, reads, maybe) = (text("engine")?, text("reads")?, number("maybe")?);
    Ok(format!(
        "{engine}, {reads}: {kills} kills, {checked} operations checked, {maybe} that may have happened"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(trials: &[&str], kills: u64, violations: u64, skipped: &str) -> String {
        let trial = |name: &&str| {
            let (engine, reads) = name.split_once(", ").unwrap();
            format!(
                r#"{{"engine": "{engine}", "reads": "{reads}", "disruptions": {kills}, "maybe": 7,
                "checked_operations": 9, "violation_count": {violations}, "undecided": 0}}"#
            )
        };
        let trials: Vec<String> = trials.iter().map(trial).collect();
        format!(r#"{{"broadcast": {{"kv": [{}]}}, "skipped": [{skipped}]}}"#, trials.join(", "))
    }

    /// Goal: kills that were not made, trials that were not made for no reason, and violations are failures. Trials that the machine
    /// cannot make are said to be unchecked.
    #[test]
    fn missing_kills_or_trials_and_violations_are_failures() {
        assert_eq!(judge(&summary(&TRIALS, KILLS, 0, "")), Ok(Outcome::Passed));
        assert!(judge(&summary(&TRIALS, KILLS - 1, 0, "")).unwrap_err().contains("23 kills"));
        assert!(judge(&summary(&TRIALS, KILLS, 1, "")).unwrap_err().contains("1 broken"));
        for left_out in 0..TRIALS.len() {
            let mut made = TRIALS.to_vec();
            let missing = made.remove(left_out);
            assert!(judge(&summary(&made, KILLS, 0, "")).unwrap_err().contains(missing));
            let (engine, reads) = missing.split_once(", ").unwrap();
            let skip = |reason: &str| {
                format!(
                    r#"{{"what": "{engine}, 4 members, store with {reads} reads", "reason": "{reason}"}}"#
                )
            };
            let said = judge(&summary(&made, KILLS, 0, &skip("the members do not meet"))).unwrap_err();
            assert!(said.contains("do not meet"), "{said}");
            let said = judge(&summary(&made, KILLS, 0, &skip("members need network namespaces: no root")));
            assert!(matches!(&said, Ok(Outcome::Partly(why)) if why.contains(missing)), "{said:?}");
        }
        assert!(judge(&summary(&[], KILLS, 0, "")).is_err());
    }
}
