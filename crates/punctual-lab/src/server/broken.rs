//! Promises that a trial broke, besides those that stand in its cells, in words.

use super::experiment::ServerTrial;
use crate::doubt::Doubt;
use crate::sample::{Outcome, Samples};
use crate::units::plural;

/// Of the server: an end before its time, refusals of a server that may refuse nothing.
pub(super) fn by_server(trial: &ServerTrial, sheds: bool) -> Vec<String> {
    let whose = trial.setup.words();
    let mut broken = Vec::new();
    if let Some(reason) = &trial.served.ended {
        broken.push(format!("{whose}: the server ended before its trial did: {reason}"));
    }
    let refused: u64 = trial.refused.iter().sum();
    if refused > 0 && !(sheds && trial.setup.model.has_classes()) {
        let requests = plural(refused, "request");
        broken.push(format!("{whose}: refused {requests}, though it was not to refuse any (--shed)"));
    }
    broken
}

/// Of requests that come in no cell, as those by which a capacity is measured.
pub(super) fn by_requests(trial: &ServerTrial, samples: &[&Samples]) -> Option<String> {
    let of = |outcome| samples.iter().map(|samples| samples.count_of(outcome)).sum::<u64>();
    let duplicated = samples.iter().map(|samples| samples.facts.duplicated).sum();
    let counts = [(of(Outcome::Lost), "lost"), (of(Outcome::Mismatched), "wrong"), (duplicated, "doubled")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let whose = trial.setup.words();
    (!told.is_empty()).then(|| format!("capacity of {whose}: of the replies, {}", told.join(", ")))
}

/// The same beside the results.
pub(super) fn doubt(broken: &str) -> Doubt {
    Doubt { what: broken.to_owned(), do_: "report it as a bug, with the options and the seed".to_owned() }
}

/// The same of a server that is a program of others.
pub(super) fn doubt_of_others(broken: &str) -> Doubt {
    Doubt { what: broken.to_owned(), do_: "believe no figure of that program's; run again".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::host::Served;
    use super::super::model::ServerModel;
    use super::super::setup::Setup;
    use super::super::trial::tests::unmeasured;
    use super::*;

    fn trial(model: ServerModel, refused: u64, served: Served) -> ServerTrial {
        ServerTrial {
            setup: Setup { model, connections: 4, matrix: 20, workers: 1, processors: 1, ..Setup::default() },
            requests: vec![5, 5],
            refused: vec![0, refused],
            served,
            ..unmeasured()
        }
    }

    /// Goal: a server that ended early, and a refusal that nobody allowed break a promise.
    #[test]
    fn a_server_that_fails_breaks_its_promise() {
        let of = |model, refused, served, sheds| by_server(&trial(model, refused, served), sheds).join("; ");
        let (tokio, classes) = (ServerModel::Tokio, ServerModel::Classes);
        assert_eq!(of(classes, 0, Served::default(), false), "");
        assert_eq!(of(classes, 3, Served::default(), true), "");
        assert!(of(classes, 3, Served::default(), false).contains("refused 3 requests"));
        assert!(of(tokio, 1, Served::default(), true).contains("refused 1 request,"));
        let ended = Served { ended: Some("it fell".to_owned()), ..Served::default() };
        assert!(of(tokio, 0, ended, false).contains("it fell"));
    }

    /// Goal: what is lost while a capacity is measured, which is in no cell, is told.
    #[test]
    fn replies_of_a_capacity_count() {
        let trial = trial(ServerModel::Tokio, 0, Served::default());
        let mut samples = Samples::default();
        samples.push(0, 0, 0, 1, Outcome::Answered);
        samples.push(1, 0, 0, 1, Outcome::Unfinished);
        assert_eq!(by_requests(&trial, &[&samples]), None);
        samples.push(2, 0, 0, 1, Outcome::Lost);
        samples.facts.duplicated = 2;
        let told = by_requests(&trial, &[&samples]).expect("it is told");
        assert!(told.ends_with("1 lost, 2 doubled"), "{told}");
    }
}
