//! The queries of docs/store.md give what the summary says: each is run as it stands there.

mod plausible;

use std::collections::BTreeMap;
use std::process::Command;

use punctual_lab::sample::Outcome;
use punctual_lab::store::{Header, Run, Store};
use punctual_lab::summary::CellResult;

/// Of the examples in the page, those that ask about samples.
fn examples() -> Vec<(&'static str, String)> {
    let page = include_str!("../../../docs/store.md");
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let asks = |(language, text): (&str, &str)| match language {
        "sql" if text.starts_with("-- spark") => Some(("pyspark", text.to_owned())),
        "sql" => Some(("duckdb", text.to_owned())),
        "python" if text.contains("pandas.") => Some(("pandas", text.to_owned())),
        "python" => Some(("polars", text.to_owned())),
        _ => None,
    };
    blocks.filter_map(asks).collect()
}

/// Program that prints each row of an example's answer: the five parts of the key, then the figure.
fn program(tool: &str, text: &str, run: &str) -> String {
    let text = text.replace("RUN/", &format!("{run}/"));
    let rows = match tool {
        "pandas" => format!("[(*key, ns) for key, ns in ({text}).items()]"),
        "polars" => format!("({text}).rows()"),
        "pyspark" => {
            let session =
                "pyspark.sql.SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')";
            format!(
                "{session}.getOrCreate().sql(\"\"\"{}\"\"\").collect()",
                text.trim_end().trim_end_matches(';')
            )
        }
        _ => format!("duckdb.sql(\"\"\"{text}\"\"\").fetchall()"),
    };
    let module = if tool == "pyspark" { "pyspark.sql" } else { tool };
    format!("import {module}\nfor row in {rows}: print(*row, sep='|')")
}

/// A run of several kinds, loads and gaps, some of whose messages were lost, and whose first ones are slow.
fn stored(path: &std::path::Path) -> Run {
    let plain = plausible::run(&path.with_extension("plain"), &[0, 1000], 3, 700);
    let header = Header { warmup: 32, ..plain.header.clone() };
    let mut store = Store::create(Some(path), &header).expect("a new directory");
    for trial in &plain.trials {
        let mut samples = trial.load().expect("readable");
        samples.index = (0..samples.len() as u64).collect();
        for row in 0..32 {
            samples.total_ns[row] *= 50;
        }
        for row in (40..samples.len()).step_by(211) {
            samples.outcome[row] = Outcome::Lost;
        }
        store.append(&trial.cell, trial.trial, &samples).expect("room");
    }
    Run::open(path).expect("a run")
}

fn key(result: &CellResult) -> String {
    let cell = &result.cell;
    format!("{}|{}|{}|{}|{}", cell.name, cell.kind.as_str(), cell.load.as_str(), cell.gap_us, cell.size)
}

#[test]
fn the_queries_of_the_page_give_the_summarys_figures() {
    let examples = examples();
    assert_eq!(
        examples.iter().map(|(tool, _)| *tool).collect::<Vec<_>>(),
        ["pandas", "polars", "duckdb", "pyspark"]
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = stored(&directory.path().join("run"));
    let summary = run.summarise().expect("readable");
    for (tool, text) in examples {
        let has = Command::new("python3").args(["-c", &format!("import {tool}")]).output();
        if !has.is_ok_and(|output| output.status.success()) {
            punctual_machine::skipped!("python3 has no {tool} here (pip install {tool})");
            continue;
        }
        let path = run.path.display().to_string();
        let output =
            Command::new("python3").args(["-c", &program(tool, &text, &path)]).output().expect("python3");
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).expect("text");
        let rows: BTreeMap<&str, f64> = said
            .lines()
            .filter_map(|line| line.rsplit_once('|'))
            .map(|(key, ns)| (key, ns.parse().expect("a number")))
            .collect();
        assert_eq!(rows.len(), summary.results.len(), "{tool}: one row for each cell");
        for result in &summary.results {
            let figure =
                if matches!(tool, "duckdb" | "pyspark") { result.figures.p99 } else { result.figures.p50 };
            let figure = figure.expect("2,000 messages support it") as f64;
            assert_eq!(rows.get(key(result).as_str()), Some(&figure), "{tool}: {}", key(result));
        }
    }
}
