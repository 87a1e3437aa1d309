//! A run of `run peel` again: its mistakes with a fix and without, in starts that alternate inside of one run.

use serde_json::Value;

use super::fix::Fix;
use crate::store::Run;
use crate::units::{OptionName, quoted};

/// Rounds of the layers, which are not what is asked for here, and messages of each.
const ROUNDS: u32 = 2;
const COUNT: u32 = 200;

/// The command that tries the fix against the mistakes of a run, in so many starts of each kind.
///
/// # Errors
/// It made no mistake, or the fix is none of a start.
pub fn command(run: &Run, fix: &Fix, starts: usize) -> Result<String, String> {
    let plan = &run.header.plan;
    let mistakes: Vec<&str> =
        plan["with"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if mistakes.is_empty() {
        return Err("it made no mistake that a fix could be tried against: run peel with --with".to_owned());
    }
    let fix = fix.of_start().ok_or("runs of peel take prime, sigio-off, class, nice")?;
    let text = |key: &str| plan[key].as_str().ok_or_else(|| format!("its plan has no {key}"));
    Ok(format!(
        "punctual run peel --engine {} --wake {} --with {} --fix {} --starts {starts} --rounds {ROUNDS} --count {COUNT} --duration 1m --seed {}",
        quoted(text("engine")?),
        quoted(text("wake")?),
        quoted(&mistakes.join(",")),
        fix.name(),
        run.header.seed,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::verify::again::tests::planned;

    /// Goal: starts are made again with all options that decide on them.
    #[test]
    fn starts_are_made_again_with_all_their_options() {
        let plan = json!({ "engine": "udp", "wake": "epoll", "with": ["cold-crypto", "sigio-at-start"] });
        let fix = "prime".parse().expect("a fix");
        let command = planned("peel", plan, 7, |run| command(run, &fix, 9)).expect("it made mistakes");
        for option in
            ["--engine udp", "--wake epoll", "--with cold-crypto,sigio-at-start", "--starts 9", "--seed 7"]
        {
            assert!(command.contains(option), "{option}: {command}");
        }
    }
}
