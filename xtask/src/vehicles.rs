//! 22 vehicles with 220 components on this machine: no loss, no growth of memory, no drift of periods.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use serde_json::Value;

use crate::command::{how, tail};
use crate::release;
use crate::step::Outcome;
use crate::workspace;

/// Time for which values travel.
const LASTS: &str = "600s";
/// Start-up of 22 processes, and reading three million records back.
const DEADLINE: Duration = Duration::from_secs(1_800);
/// Most that a process may grow between the barrier and the end, KiB: its allocator may keep a page here and there, but
/// a leak of a byte per message would be 2.6 MiB.
const GROWTH_KIB_MAX: f64 = 1_024.0;
/// Most that a mean period may deviate, parts per million. The median lateness of the last quarter of ten minutes is then 22 ms more
/// than that of the first. Another program that takes a processor meanwhile has that effect. A relative timer that is late by 50 µs
/// each time would be 100.
const DRIFT_PPM_MAX: f64 = 50.0;

/// The command's exit code where the machine cannot do it, or it cannot be measured for another reason.
const MACHINE_CANNOT: i32 = 3;

pub(crate) fn run() -> Outcome {
    vehicles().unwrap_or_else(Outcome::Failed)
}

fn vehicles() -> Result<Outcome, String> {
    let folder = workspace::target("xtask").join("vehicles");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let vehicles = release::command()?
        .args(&["run", "vehicles", "--vehicles", "22", "--components", "10", "--runs", "1"])
        .args(&["--period", "500ms", "--duration", LASTS, "--json", "-", "--out"])
        .arg(folder.join("run"))
        .within(DEADLINE);
    let (ended, output) = vehicles.output_to(&folder.join("summary.json"))?;
    if is_excused(ended, is_root()) {
        return Ok(Outcome::Skipped("raw Ethernet needs root, as said above".into()));
    }
    if ended != Some(0) {
        return Err(format!(
            "run vehicles {}; its output ends:\n{}",
            how(ended, DEADLINE),
            tail(&output, 20)
        ));
    }
    let (growth, drift) = steadiness(&output)?;
    say!("memory of a process grew by at most {growth} KiB; periods drifted by at most {drift} ppm");
    Ok(Outcome::Passed)
}

/// Returns true if it could not run, and this user may not make what it needs. As root the same is a failure.
fn is_excused(ended: Option<i32>, is_root: bool) -> bool {
    ended == Some(MACHINE_CANNOT) && !is_root
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Growth in KiB and drift in parts per million; more than either limit is an error.
fn steadiness(output: &str) -> Result<(f64, f64), String> {
    let summary: Value =
        serde_json::from_str(output).map_err(|error| format!("standard output is not JSON: {error}"))?;
    let run = summary.get("vehicles").and_then(|all| all.get("runs")).and_then(Value::as_array);
    let run = run.and_then(|runs| runs.first()).ok_or("the summary has no run")?;
    let number = |name: &str| run.get(name).and_then(Value::as_f64).ok_or_else(|| format!("no {name}"));
    let (growth, drift) = (number("growth_kib_max")?, number("drift_ppm")?);
    if growth > GROWTH_KIB_MAX {
        return Err(format!("a process grew by {growth} KiB, where {GROWTH_KIB_MAX} are the most"));
    }
    if drift > DRIFT_PPM_MAX {
        return Err(format!("a period drifted by {drift} ppm, where {DRIFT_PPM_MAX} are the most"));
    }
    Ok((growth, drift))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(growth: i32, drift: f64) -> String {
        format!(r#"{{"vehicles": {{"runs": [{{"growth_kib_max": {growth}, "drift_ppm": {drift}}}]}}}}"#)
    }

    #[test]
    fn a_run_that_root_cannot_make_is_a_failure() {
        assert!(is_excused(Some(3), false));
        assert!(
            ![(Some(3), true), (Some(1), false), (Some(0), false), (None, false)]
                .into_iter()
                .any(|(ended, is_root)| is_excused(ended, is_root))
        );
    }

    #[test]
    fn growth_and_drift_are_failures() {
        assert_eq!(steadiness(&summary(12, 1.5)), Ok((12.0, 1.5)));
        assert!(steadiness(&summary(2_000, 1.5)).unwrap_err().contains("2000 KiB"));
        assert!(steadiness(&summary(12, 101.0)).unwrap_err().contains("101 ppm"));
        assert!(steadiness("{}").unwrap_err().contains("no run"));
    }
}
