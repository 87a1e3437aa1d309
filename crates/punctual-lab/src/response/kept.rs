//! What a trial of trips keeps to be explained: its two threads, and whose each stage is.

use super::explain::{Side, side_of};
use super::option::Variant;
use super::settings::ResponseSettings;
use super::trips::{BEYOND, NAMES, WIRE};
use crate::explain::evidence::EvidenceThread;
use crate::explain::stage::StageOwner;
use crate::sample::Samples;
use punctual_machine::window::Window;

const ROLES: [&str; 2] = ["client", "responder"];

/// What is kept of one side's thread: 0 the client's, 1 the responder's, if that is on this host.
pub(super) fn thread(
    settings: &ResponseSettings,
    choice: Variant,
    side: usize,
    thread: Option<u32>,
    [dropped, incomplete]: [Option<u64>; 2],
    windows: Vec<Window>,
) -> EvidenceThread {
    let urgencies = [choice.at_client().urgency, choice.at_responder().urgency];
    EvidenceThread {
        role: ROLES[side].to_owned(),
        owner: None,
        sender: None,
        thread,
        cpu: settings.cpus[side],
        urgency: urgencies[side],
        has_control: true,
        dropped,
        incomplete,
        windows,
        attached: Vec::new(),
    }
}

/// Whose each stage is. On a veth the wire runs in its sender's own call.
pub(super) fn owners(samples: &Samples) -> Vec<StageOwner> {
    let owner = |stage: &str| {
        let side = side_of(stage, samples);
        let role = match side {
            Side::Client => Some(ROLES[0]),
            Side::Responder => Some(ROLES[1]),
            _ if [WIRE, BEYOND].contains(&stage) => None,
            Side::WireOrResponder => Some(ROLES[1]),
            Side::Server | Side::Sender | Side::Medium | Side::Receiver | Side::Thread => None,
            Side::Wire => Some(ROLES[usize::from(stage.starts_with("reply"))]),
        };
        StageOwner { stage: stage.to_owned(), side, role: role.map(str::to_owned), or_role: None }
    };
    let has = |name: &&&str| samples.stages.iter().any(|stage| stage.name == **name);
    NAMES.iter().filter(has).map(|name| owner(name)).collect()
}
