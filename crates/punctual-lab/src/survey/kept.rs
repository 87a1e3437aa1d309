//! Evidence that a trial of the survey keeps for explanations: windows where messages carry stamps, and the owner of each stage.

use std::time::Duration;

use crate::endpoint::{EndpointPlan, Medium};
use crate::explain::evidence::{Recording, TrialEvidence};
use crate::explain::kept::WINDOWS_MAX;
use crate::explain::stage::{Side, StageOwner};
use crate::load::testbed::ROLES;
use crate::sample::{RESPONDER, Samples};

/// Windows that a trial may need beside one each millisecond: after slow messages, and until the last answers are there.
const WINDOWS_MORE: usize = 4096;

/// Windows of a trial that lasts so long. Without stamps there is no stage that they could explain.
pub(super) fn windows(plan: &EndpointPlan, lasts: Duration) -> usize {
    let each_ms = usize::try_from(lasts.as_millis()).unwrap_or(usize::MAX);
    if plan.stamped { each_ms.saturating_add(WINDOWS_MORE).min(WINDOWS_MAX) } else { 0 }
}

/// Owner of each stage of these samples, over a medium.
pub(super) fn owners(medium: Option<Medium>, samples: &Samples) -> Vec<StageOwner> {
    samples.stages.iter().map(|stage| owner(medium, &stage.name)).collect()
}

/// A one-way result is a part of the round trips that are stored before it: it shares their threads, and their stalls are told
/// there.
pub(super) fn part(whole: &TrialEvidence, medium: Option<Medium>, samples: &Samples) -> TrialEvidence {
    let TrialEvidence { fault_ns, began_ns, .. } = *whole;
    let (threads, place) = (whole.threads.clone(), whole.place.clone());
    let (stages, recording) = (owners(medium, samples), Recording::Off);
    TrialEvidence { threads, stages, recording, dumps: Vec::new(), fault_ns, began_ns, place, is_part: true }
}

fn owner(medium: Option<Medium>, stage: &str) -> StageOwner {
    let (sender, name) = match stage.split_once('.') {
        Some(("reply", name)) => (1, name),
        Some((_, name)) => (0, name),
        None => (0, stage),
    };
    let (sides, receiver) = ([Side::Client, Side::Responder], 1 - sender);
    let of = |side: usize| StageOwner::of(stage, sides[side], ROLES[side]);
    match name {
        RESPONDER => of(1),
        "sent" | "sealed" | "posted" => of(sender),
        // In memory a message lies there until its receiver looks. On sockets the sender's own call of the kernel is in it too.
        "medium" if !matches!(medium, None | Some(Medium::Shared)) => {
            StageOwner::between(stage, [ROLES[receiver], ROLES[sender]])
        }
        _ => of(receiver),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every stage of a round trip, and of one way, has its side; on sockets the medium is between two.
    #[test]
    fn every_stage_has_its_side() {
        let side = |medium, stage: &str| owner(medium, stage).side;
        let shared = Some(Medium::Shared);
        for (stage, expected) in [
            ("request.sent", Side::Client),
            ("request.posted", Side::Client),
            ("request.medium", Side::Responder),
            ("request.woken", Side::Responder),
            ("responder", Side::Responder),
            ("reply.posted", Side::Responder),
            ("reply.medium", Side::Client),
            ("reply.delivered", Side::Client),
            ("sealed", Side::Client),
            ("woken", Side::Responder),
        ] {
            assert_eq!(side(shared, stage), expected, "{stage}");
        }
        let between = owner(Some(Medium::Datagram), "reply.medium");
        assert_eq!(between.side, Side::Medium);
        assert_eq!(
            [between.role.as_deref(), between.or_role.as_deref()],
            [Some("client"), Some("responder")]
        );
    }
}
