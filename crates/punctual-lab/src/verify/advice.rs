//! Advice to verify a fix: only one that the run's experiment takes.

use std::time::Duration;

use serde_json::Value;

use super::again::Again;
use super::fix::Fix;
use crate::explain::cause::Cause;
use crate::store::Run;
use crate::summary::Summary;

/// The source of findings, as far as advice depends on it.
#[derive(Clone, Debug)]
pub struct Advice {
    /// There is a run, which may be made again.
    has_run: bool,
    /// The command that makes it again, where there is one.
    again: Option<Again>,
}

impl Advice {
    /// Of findings without a run: there is nothing to make again.
    pub const WITHOUT_RUN: Self = Self { has_run: false, again: None };

    /// Of a run.
    pub fn of(run: &Run) -> Self {
        // The length does not matter to it.
        Self { has_run: true, again: Again::planned(run, Duration::from_secs(1), false).ok() }
    }

    /// A way to see whether a remedy against this cause helps.
    pub fn verify(&self, cause: Cause) -> Option<String> {
        let taken: Vec<&str> = cause.fixes().iter().copied().filter(|fix| self.takes(fix)).collect();
        match (self.has_run, taken.is_empty()) {
            (true, true) => Some(cause.verify().to_owned()),
            (true, false) => Some(format!("punctual verify RUN --fix {}", taken.join(", or --fix "))),
            (false, _) => Some(cause.verify().to_owned()).filter(|words| !words.contains("RUN")),
        }
    }

    /// A finding whose causes have this advice.
    pub fn advised(&self, mut finding: Value) -> Value {
        for cause in finding.get_mut("causes").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(object) = cause.as_object_mut() else { continue };
            let name = object.get("name").and_then(Value::as_str).unwrap_or_default();
            match self.verify(Cause::named(name)) {
                Some(words) => object.insert("verify".to_owned(), Value::String(words)),
                None => object.remove("verify"),
            };
        }
        finding
    }

    /// The same of all findings of a summary.
    pub fn advise(&self, summary: &mut Summary) {
        let of_results = summary.results.iter_mut().filter_map(|result| result.more.get_mut("findings"));
        for finding in of_results.filter_map(Value::as_array_mut).flatten() {
            *finding = self.advised(finding.take());
        }
    }

    fn takes(&self, fix: &str) -> bool {
        let (Some(again), Ok(fix)) = (&self.again, fix.parse::<Fix>()) else { return false };
        // The tracer is none of the command's options: the evidence of the cause names it.
        fix == Fix::Untrace || fix.applied(again).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::verify::again::Remade;

    /// Goal: a fix that would be refused is not advised: not to a survey, nor where there is no run, nor where it is in place.
    #[test]
    fn refused_fixes_are_not_advised() {
        let of = |again| Advice { has_run: true, again };
        let survey = Again { experiment: Remade::Survey, ways: vec!["futex".to_owned()], ..Again::default() };
        let unpinned = Again { is_pinned: false, ..Again::default() };
        let said = |advice: &Advice, name: &str| advice.verify(Cause::named(name)).unwrap_or_default();
        assert_eq!(said(&of(Some(Again::default())), "run_queue"), "punctual verify RUN --fix class");
        assert_eq!(said(&of(Some(unpinned)), "migration"), "punctual verify RUN --fix pin");
        for (again, name) in
            [(Some(survey.clone()), "run_queue"), (Some(Again::default()), "migration"), (None, "throttled")]
        {
            let said = said(&of(again), name);
            assert!(said.contains("compare") && !said.contains("--fix"), "{name}: {said}");
        }
        assert!(said(&of(Some(survey)), "cpu_asleep").contains("--fix awake, or --fix wake=spin"));
        assert_eq!(said(&Advice::WITHOUT_RUN, "run_queue"), "");
        assert!(said(&Advice::WITHOUT_RUN, "handler_blocked").contains("log"));
        let finding = json!({ "causes": [{ "name": "run_queue", "verify": "?" }] });
        let advised = |advice: &Advice| advice.advised(finding.clone())["causes"][0]["verify"].clone();
        assert_eq!(advised(&of(Some(Again::default()))), "punctual verify RUN --fix class");
        assert_eq!(advised(&Advice::WITHOUT_RUN), Value::Null);
    }
}
