//! The main job, as a user runs it first: it must end well and say what it measured.

use std::time::Duration;

use serde_json::Value;

use crate::command::{how, tail};
use crate::release;
use crate::step::Outcome;
use crate::workspace;

/// A quick survey takes some fifteen seconds; this is for a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// Ways of the survey that every machine has.
const EVERYWHERE: [&str; 2] = ["shared/", "datagram/"];

pub(crate) fn run() -> Outcome {
    match survey() {
        Ok(skipped) if skipped.is_empty() => Outcome::Passed,
        Ok(skipped) => Outcome::Partly(skipped.join("; ")),
        Err(reason) => Outcome::Failed(reason),
    }
}

/// Makes a survey; what it could not measure here.
fn survey() -> Result<Vec<String>, String> {
    let folder = workspace::target("xtask").join("smoke");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let survey = release::command()?
        .args(&["survey", "--quick", "--json", "-", "--out"])
        .arg(folder.join("run"))
        .within(DEADLINE);
    let (ended, output) = survey.output_to(&folder.join("summary.json"))?;
    if ended != Some(0) {
        return Err(format!("survey {}; its output ends:\n{}", how(ended, DEADLINE), tail(&output, 20)));
    }
    let (count, skipped) = results(&output)?;
    say!("{count} results");
    Ok(skipped)
}

/// Number of results that a summary has, and what was skipped: no result of a way that every machine has is an error.
fn results(output: &str) -> Result<(usize, Vec<String>), String> {
    let summary: Value =
        serde_json::from_str(output).map_err(|error| format!("standard output is not JSON: {error}"))?;
    let schema = summary.get("schema").and_then(Value::as_str);
    if schema != Some("punctual.summary.v1") {
        return Err(format!("the schema is {schema:?}, not punctual.summary.v1"));
    }
    let list = |name| summary.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |of: &Value, name| of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let names: Vec<String> = list("results").iter().map(|result| text(result, "name")).collect();
    let skipped = list("skipped").iter().map(|skip| (text(skip, "what"), text(skip, "reason")));
    let skipped: Vec<(String, String)> = skipped.collect();
    for way in EVERYWHERE {
        if let Some((what, reason)) = skipped.iter().find(|(what, _)| what.starts_with(way)) {
            return Err(format!("{what} was skipped, which every machine has: {reason}"));
        }
        if !names.iter().any(|name| name.starts_with(way)) {
            return Err(format!("the summary has no result of {way}"));
        }
    }
    let skipped = skipped.into_iter().map(|(what, reason)| format!("{what}: {reason}")).collect();
    Ok((names.len(), skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_results() {
        let summary = |made: &str, skipped: &str| {
            results(&format!(
                r#"{{"schema": "punctual.summary.v1", "results": [{made}], "skipped": [{skipped}]}}"#
            ))
        };
        let both = r#"{"name": "shared/spin"}, {"name": "datagram/epoll"}"#;
        let skip = |what: &str| format!(r#"{{"what": "{what}", "reason": "no room"}}"#);
        assert_eq!(summary(both, ""), Ok((2, Vec::new())));
        assert_eq!(summary(both, &skip("packet/spin")), Ok((2, vec!["packet/spin: no room".to_owned()])));
        assert!(summary(both, &skip("datagram/spin")).unwrap_err().contains("no room"));
        assert!(summary(r#"{"name": "shared/spin"}"#, "").unwrap_err().contains("datagram/"));
        assert!(results("").unwrap_err().contains("not JSON"));
        assert!(results(r#"{"schema": "v2"}"#).unwrap_err().contains("v2"));
        assert!(summary("", "").is_err());
    }
}
