//! The turns: sizes of groups, then faults, then engines, kinds, frames, and disruptions of members.

use super::kv::option::{KvSettings, Reads};
use super::kv::trial::KvTurn;
use super::option::{BroadcastEngine, BroadcastKind, BroadcastSettings, Datagrams, Disruptions, FrameSize};
use super::testbed::TrialPlan;
use crate::distinct::distinct;
use crate::units::OptionName;

/// The work of one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    /// Multicast to so many members, without a group, in datagrams as large as those of frames with so much payload.
    Floor(usize, Datagrams, usize),
    /// A group.
    Group(TrialPlan),
    /// A group whose members are killed or stopped.
    Disrupted(TrialPlan, Disruptions),
    /// A group with a store.
    Store(TrialPlan, KvTurn),
}

/// Payload of a datagram where nothing else is said, and the largest: the payload that a group's frame carries on Ethernet.
pub(super) const FLOOR_SIZE: usize = 1_328;

/// Payloads of the datagrams beside which groups are set: those of their frames, up to the largest. Datagrams of other systems are
/// their own, and stand beside the usual ones.
fn floor_sizes(settings: &BroadcastSettings) -> Vec<usize> {
    let others = settings.against.iter().map(|_| FrameSize::Usual).take(1);
    let frames = settings.frames.iter().copied().chain(others);
    let size = |frame: FrameSize| frame.resolve(settings.message, FLOOR_SIZE).unwrap_or(FLOOR_SIZE);
    distinct(frames.map(|frame| size(frame).min(FLOOR_SIZE)))
}

/// All turns of a round.
pub(super) fn turns(settings: &BroadcastSettings) -> Vec<Turn> {
    let has_network = settings.engines.iter().any(|engine| engine.is_of_a_network());
    let mut turns = Vec::new();
    let calm = settings.disruptions.is_empty();
    let has_floor = has_network && calm && settings.paced.is_none() && settings.kv.is_none();
    let floor_sizes = if has_floor { floor_sizes(settings) } else { Vec::new() };
    for &members in &settings.members {
        let kinds = [Datagrams::Bare, Datagrams::Library];
        let floors =
            |&size: &usize| kinds.into_iter().map(move |datagrams| Turn::Floor(members, datagrams, size));
        turns.extend(floor_sizes.iter().flat_map(floors));
        for &faults in &settings.faults {
            let group = |engine: BroadcastEngine, kind: BroadcastKind, frame: FrameSize| TrialPlan {
                engine,
                kind,
                members,
                faults,
                frame,
                seed: settings.seed,
            };
            let frames =
                |(engine, kind)| settings.frames.iter().map(move |&frame| group(engine, kind, frame));
            let kinds = |&engine| settings.kinds.iter().map(move |&kind| (engine, kind));
            // None of them waits until a majority holds a message.
            let other =
                |&system| group(BroadcastEngine::Other(system), BroadcastKind::Agreed, FrameSize::Usual);
            let others = settings.against.iter().map(other);
            let groups = settings.engines.iter().flat_map(kinds).flat_map(frames).chain(others);
            if let Some(kv) = &settings.kv {
                turns.extend(groups.flat_map(|plan| stores(settings, kv, plan)));
                continue;
            }
            if calm {
                turns.extend(groups.map(Turn::Group));
                continue;
            }
            // Each by itself: a member that was suspected wrongly is given more time from then on.
            let disrupted = |plan| settings.disruptions.iter().map(move |&of| Turn::Disrupted(plan, of));
            turns.extend(groups.flat_map(disrupted));
        }
    }
    turns
}

/// Of a store: with each way to read, and each way to suffer.
fn stores(settings: &BroadcastSettings, kv: &KvSettings, plan: TrialPlan) -> Vec<Turn> {
    let disrupted: Vec<Option<Disruptions>> = settings.disruptions.iter().copied().map(Some).collect();
    let ways = if disrupted.is_empty() { vec![None] } else { disrupted };
    let one = |&reads: &Reads| {
        ways.iter()
            .map(move |&disruptions| Turn::Store(plan, KvTurn { reads, disruptions }))
            .collect::<Vec<_>>()
    };
    kv.reads.iter().flat_map(one).collect()
}

/// Name of a turn while it is made.
pub(super) fn name(turn: &Turn) -> String {
    match turn {
        Turn::Floor(members, datagrams, size) => {
            format!("{}/n{members}, as of frames of {size} B", datagrams.name())
        }
        Turn::Group(TrialPlan { engine, kind, members, faults, frame, .. }) => {
            format!("{}, {}, {members} members, {faults}, frames {frame}", engine.name(), kind.name())
        }
        Turn::Disrupted(TrialPlan { engine, members, faults, .. }, Disruptions { of, count }) => {
            format!("{}, {members} members, {faults}, {count} {}", engine.name(), of.plural())
        }
        Turn::Store(TrialPlan { engine, members, faults, .. }, KvTurn { reads, disruptions }) => {
            let what =
                disruptions.map_or_else(String::new, |of| format!(", {} {}", of.count, of.of.plural()));
            format!("{}, {members} members, {faults}, store with {} reads{what}", engine.name(), reads.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::broadcast::option::OtherSystem;

    /// Goal: each size of frames has datagrams with its payload beside it, once, and other systems have the usual ones.
    #[test]
    fn each_frame_has_its_floor() {
        let sizes = |frames: &[FrameSize], message, against: &[OtherSystem]| {
            let (frames, against) = (frames.to_vec(), against.to_vec());
            let settings = BroadcastSettings { frames, message, against, ..settings() };
            let turns = turns(&settings);
            let bare = turns.iter().filter_map(|turn| match turn {
                Turn::Floor(3, Datagrams::Bare, size) => Some(*size),
                _ => None,
            });
            bare.collect::<Vec<usize>>()
        };
        let (small, large) = (FrameSize::Bytes(512), FrameSize::Bytes(8_192));
        assert_eq!(sizes(&[FrameSize::Usual], 30_000, &[]), [FLOOR_SIZE]);
        assert_eq!(sizes(&[small, large, FrameSize::Max], 30_000, &[]), [512, FLOOR_SIZE]);
        assert_eq!(sizes(&[small, FrameSize::Max], 700, &[]), [512, 700]);
        assert_eq!(sizes(&[FrameSize::Max], 16, &[]), [16]);
        assert_eq!(sizes(&[small], 30_000, &[OtherSystem::Corosync]), [512, FLOOR_SIZE]);
    }

    /// Three members by multicast.
    fn settings() -> BroadcastSettings {
        BroadcastSettings {
            members: vec![3],
            kinds: vec![BroadcastKind::Ab],
            bytes: 1_000_000,
            message: 30_000,
            engines: vec![BroadcastEngine::Multicast],
            runs: 1,
            suspect_after: Duration::from_secs(1),
            seed: 1,
            ..BroadcastSettings::default()
        }
    }
}
