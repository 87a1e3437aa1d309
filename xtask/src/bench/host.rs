//! The facts that make figures comparable, as `punctual host` says them. No name of the machine: results are published.

use std::path::PathBuf;

use serde_json::Value;

use crate::command::Run;
use crate::release;
use crate::workspace;

/// Where it ran.
#[derive(Debug)]
pub(super) struct Host {
    /// In one line, for people.
    pub(super) line: String,
    /// As it was said: JSON.
    pub(super) facts: String,
    pub(super) commit: String,
}

impl Host {
    /// Builds the laboratory, asks it, and stores what it said, with the commit: a mark says if that is not exactly it.
    pub(super) fn look() -> Result<(), String> {
        let [facts, commit] = files();
        if release::command()?.args(&["host", "--json"]).output_to(&facts)?.0 != Some(0) {
            return Err("`punctual host --json` failed".into());
        }
        let describe = Run::new("git").args(&["describe", "--always", "--dirty", "--exclude=*"]);
        match describe.output_to(&commit) {
            Ok((Some(0), _)) => Ok(()),
            // Sources without their history can be measured too.
            _ => std::fs::write(&commit, "unknown").map_err(|error| format!("{}: {error}", commit.display())),
        }
    }

    /// As it was when somebody looked last.
    pub(super) fn read() -> Result<Self, String> {
        let [facts, commit] = files();
        let read = |path: PathBuf| {
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Self::of(&read(facts)?, read(commit)?.trim().to_owned())
    }

    pub(super) fn of(facts: &str, commit: String) -> Result<Self, String> {
        let json: Value =
            serde_json::from_str(facts).map_err(|error| format!("`punctual host --json`: {error}"))?;
        let fact = |part: &str, name: &str| {
            let value = json.get(part).and_then(|part| part.get(name));
            let text = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            text.ok_or_else(|| format!("`punctual host --json` has no {part}.{name}"))
        };
        let [cpu, cpus, kernel] = [fact("host", "cpu")?, fact("host", "cpus")?, fact("host", "kernel")?];
        let [load, clock] = [fact("host", "load_before")?, fact("clock", "source")?];
        let [step, stamp] = [fact("clock", "step_ns")?, fact("clock", "stamp_ns")?];
        let record = fact("clock", "record_ns")?;
        let virtual_ = if fact("host", "virtual")? == "true" { " of a virtual machine" } else { "" };
        let line = format!(
            "{cpu}, {cpus} CPUs{virtual_}, Linux {kernel}, scheduling class {}, load {load} before; clock {clock}: step \
             {step} ns, a stamp {stamp} ns, a record {record} ns",
            fact("host", "scheduler")?
        );
        Ok(Self { line, facts: facts.trim().to_owned(), commit })
    }
}

/// Where facts and commit are kept.
fn files() -> [PathBuf; 2] {
    ["bench-host.json", "bench-commit"].map(|name| workspace::target("xtask").join(name))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const FACTS: &str = r#"{"clock":{"source":"tsc","step_ns":10,"stamp_ns":15.1,"record_ns":34.4},
        "host":{"cpu":"A \"fast\" one","cpus":2,"kernel":"6.1","load_before":0.5,"scheduler":"other","virtual":true}}"#;

    pub(in super::super) fn host() -> Host {
        Host::of(FACTS, "1234567-dirty".into()).unwrap()
    }

    #[test]
    fn facts_become_a_line() {
        let line = host().line;
        assert!(line.starts_with("A \"fast\" one, 2 CPUs of a virtual machine, Linux 6.1,"), "{line}");
        assert!(line.ends_with("step 10 ns, a stamp 15.1 ns, a record 34.4 ns"), "{line}");
    }

    #[test]
    fn a_missing_fact_is_named() {
        let error = Host::of(r#"{"host":{}}"#, String::new()).unwrap_err();
        assert!(error.contains("host.cpu"), "{error}");
        assert!(Host::of("no", String::new()).is_err());
    }
}
