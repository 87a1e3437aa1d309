//! The main job, as a user runs it first: it must end well and say what it measured.

use std::time::Duration;

use serde_json::Value;

use crate::command::{how, tail};
use crate::release;
use crate::step::Outcome;
use crate::workspace;

/// A quick survey takes some fifteen seconds; this is for a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

pub(crate) fn run() -> Outcome {
    Outcome::of(survey())
}

fn survey() -> Result<(), String> {
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
    let count = results(&output)?;
    println!("{count} results");
    Ok(())
}

/// Number of results that a summary has: none is an error.
fn results(output: &str) -> Result<usize, String> {
    let summary: Value =
        serde_json::from_str(output).map_err(|error| format!("standard output is not JSON: {error}"))?;
    let schema = summary.get("schema").and_then(Value::as_str);
    if schema != Some("punctual.summary.v1") {
        return Err(format!("the schema is {schema:?}, not punctual.summary.v1"));
    }
    match summary.get("results").and_then(Value::as_array) {
        Some(results) if !results.is_empty() => Ok(results.len()),
        _ => Err("the summary has no results".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_results() {
        let text = r#"{"schema": "punctual.summary.v1", "results": [{"name": "shared/spin"}]}"#;
        assert_eq!(results(text), Ok(1));
        assert!(results("").unwrap_err().contains("not JSON"));
        assert!(results(r#"{"schema": "v2"}"#).unwrap_err().contains("v2"));
        assert!(results(r#"{"schema": "punctual.summary.v1", "results": []}"#).is_err());
    }
}
