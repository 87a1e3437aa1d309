//! What is made in turn: sizes of groups, then faults, then engines, kinds, frames, and what members suffer.

use super::kv::option::{KvSettings, Reads};
use super::kv::trial::KvTurn;
use super::option::{BroadcastEngine, BroadcastKind, BroadcastSettings, Datagrams, Disruptions, FrameSize};
use super::testbed::TrialPlan;

/// What is made in a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turn {
    /// Multicast to so many members, without a group.
    Floor(usize, Datagrams),
    /// A group.
    Group(TrialPlan),
    /// A group whose members are killed or stopped.
    Disrupted(TrialPlan, Disruptions),
    /// A group with a store.
    Store(TrialPlan, KvTurn),
}

/// All turns of a round.
pub(super) fn turns(settings: &BroadcastSettings) -> Vec<Turn> {
    let has_network = settings.engines.iter().any(|engine| engine.is_of_a_network());
    let mut turns = Vec::new();
    let calm = settings.disruptions.is_empty();
    for &members in &settings.members {
        let has_floor = has_network && calm && settings.paced.is_none() && settings.kv.is_none();
        let floors = [Datagrams::Bare, Datagrams::Library].map(|datagrams| Turn::Floor(members, datagrams));
        turns.extend(floors.into_iter().filter(|_| has_floor));
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
            // Each by itself: whoever was suspected wrongly is given more time from then on.
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

/// What a turn is called while it is made.
pub(super) fn name(turn: &Turn) -> String {
    match turn {
        Turn::Floor(members, datagrams) => format!("{}/n{members}", datagrams.name()),
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
