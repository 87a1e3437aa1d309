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
/// Two media, two ways to read, and what a busy machine adds.
const DEADLINE: Duration = Duration::from_secs(900);

pub(crate) fn run() -> Outcome {
    Outcome::of(rejoin())
}

fn rejoin() -> Result<(), String> {
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
    for line in trials(&output)? {
        println!("{line}");
    }
    Ok(())
}

/// A line for each trial; one that lacks a kill or a check is an error.
fn trials(output: &str) -> Result<Vec<String>, String> {
    let summary: Value =
        serde_json::from_str(output).map_err(|error| format!("standard output is not JSON: {error}"))?;
    let trials = summary.pointer("/broadcast/kv").and_then(Value::as_array);
    let trials = trials.filter(|trials| !trials.is_empty()).ok_or("the summary has no trial")?;
    let line = |trial: &Value| {
        let number = |name: &str| trial.get(name).and_then(Value::as_u64).ok_or_else(|| format!("no {name}"));
        let text = |name: &str| trial.get(name).and_then(Value::as_str).ok_or_else(|| format!("no {name}"));
        let (kills, checked) = (number("disruptions")?, number("checked_operations")?);
        let broken = number("violation_count")? + number("undecided")?;
        if kills != KILLS || broken != 0 || checked == 0 {
            return Err(format!("{kills} kills, {checked} operations checked, {broken} broken: {trial}"));
        }
        let (engine, reads) = (text("engine")?, text("reads")?);
        let maybe = number("maybe")?;
        Ok(format!(
            "{engine}, {reads}: {kills} kills, {checked} operations checked, {maybe} that may have happened"
        ))
    };
    trials.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(kills: u64, violations: u64) -> String {
        format!(
            r#"{{"broadcast": {{"kv": [{{"engine": "shared", "reads": "local", "disruptions": {kills}, "maybe": 7,
            "checked_operations": 9, "violation_count": {violations}, "undecided": 0}}]}}}}"#
        )
    }

    #[test]
    fn missing_kills_and_violations_are_failures() {
        let line = "shared, local: 24 kills, 9 operations checked, 7 that may have happened";
        assert_eq!(trials(&summary(KILLS, 0)), Ok(vec![line.to_owned()]));
        assert!(trials(&summary(KILLS - 1, 0)).unwrap_err().contains("23 kills"));
        assert!(trials(&summary(KILLS, 1)).unwrap_err().contains("1 broken"));
        assert!(trials(r#"{"broadcast": {"kv": []}}"#).unwrap_err().contains("no trial"));
    }
}
