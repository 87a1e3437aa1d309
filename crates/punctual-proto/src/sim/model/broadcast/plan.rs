//! Faults in the run of a seed.

use crate::sim::{Fault, Link, NodeFault, Plan, Rng, Weather};
use crate::time::Nanos;

/// Faults end here.
pub(super) const CALM: Nanos = Nanos::from_millis(300);

/// Members of the group of a seed.
pub(super) fn size(seed: u64) -> u16 {
    [3, 3, 3, 4, 5][Rng::at(&[seed, 72]).below(5) as usize]
}

fn ms(time: u64) -> Nanos {
    Nanos(time * 1_000_000)
}

fn span(rng: &mut Rng, longest: u64) -> (Nanos, Nanos) {
    let since = rng.below(260);
    (ms(since), ms((since + 5 + rng.below(longest)).min(CALM.0 / 1_000_000)))
}

pub(super) fn plan(seed: u64) -> Plan {
    let mut rng = Rng::at(&[seed, 73]);
    let mut plan = Plan::calm(seed);
    weather(&mut plan, &mut rng);
    cuts(&mut plan, &mut rng);
    nodes(&mut plan, &mut rng);
    leavers(&mut plan, &mut Rng::at(&[seed, 77]));
    plan
}

fn weather(plan: &mut Plan, rng: &mut Rng) {
    let always = (Nanos(0), CALM);
    let mut rate = |most: u64| if rng.happens(600) { rng.below(most) as u32 } else { 0 };
    let (loss, flips, doubles, delays, storm) = (rate(200), rate(60), rate(200), rate(150), rate(700));
    plan.weather(always, Link::ANY, Weather::Lose(loss));
    plan.weather(always, Link::ANY, Weather::Flip(flips));
    plan.weather(always, Link::ANY, Weather::Double(doubles, ms(30)));
    plan.weather(always, Link::ANY, Weather::Delay(delays, ms(8)));
    plan.weather(span(rng, 60), Link::ANY, Weather::Lose(storm));
}

/// Cuts of one direction between two, and of one node from all.
fn cuts(plan: &mut Plan, rng: &mut Rng) {
    let size = u64::from(size(plan.seed));
    for _ in 0..rng.below(3) {
        let (source, other) = (rng.below(size) as u16, rng.below(size) as u16);
        plan.weather(span(rng, 120), Link::between(source, other), Weather::Cut);
    }
    if rng.happens(300) {
        let (node, span) = (Some(rng.below(size) as u16), span(rng, 120));
        plan.weather(span, Link { source: node, target: None }, Weather::Cut);
        if rng.happens(600) {
            plan.weather(span, Link { source: None, target: node }, Weather::Cut);
        }
    }
}

/// At most two nodes stand still, crash or leave, one after another, and come back.
fn nodes(plan: &mut Plan, rng: &mut Rng) {
    let size = u64::from(size(plan.seed));
    for from in [40, 150] {
        if rng.happens(400) {
            continue;
        }
        let (node, at) = (rng.below(size) as u16, from + rng.below(60));
        let back = ms(at + 1 + rng.below(90));
        match rng.below(5) {
            0 => plan.node(ms(at), node, NodeFault::Pause(ms(1 + rng.below(120)))),
            1 => {
                plan.node(ms(at), node, NodeFault::Act(0));
                plan.node(back, node, NodeFault::Restart);
            }
            2 => plan.node(ms(at), node, NodeFault::Restart),
            _ => {
                plan.node(ms(at), node, NodeFault::Crash);
                plan.node(back, node, NodeFault::Restart);
            }
        }
    }
}

/// Sometimes several leave within a few milliseconds, and most of them come back.
fn leavers(plan: &mut Plan, rng: &mut Rng) {
    let size = size(plan.seed);
    if rng.happens(750) {
        return;
    }
    let (at, spread) = (60 + rng.below(120), 1 + rng.below(8));
    let all = rng.happens(100);
    for node in 0..size {
        if all || rng.happens(600) {
            plan.node(ms(at + rng.below(spread)), node, NodeFault::Act(0));
            if rng.happens(950) {
                plan.node(ms(at + 50 + rng.below(60)), node, NodeFault::Restart);
            }
        }
    }
}

/// True if a plan neither cuts anybody off nor lets anybody stand still. It also ends no life, or lets members leave of which one stays
/// and the others come back. If they have the time to leave, the group must go on. The further losses that a group can stand depend on
/// the times at which members were heard. So where several leave, only little may be lost.
pub(super) fn takes_nobody(plan: &Plan) -> bool {
    let is_cut = |fault: &Fault| matches!(fault, Fault::Weather { weather: Weather::Cut, .. });
    let count =
        |is_meant: fn(NodeFault) -> bool| plan.node_faults().filter(|&(_, _, fault)| is_meant(fault)).count();
    let left = count(|fault| matches!(fault, NodeFault::Act(_)));
    let is_bad = |fault: &Fault| matches!(fault, Fault::Weather { weather: Weather::Lose(rate) | Weather::Flip(rate), .. } if *rate > 30);
    let stays = |node: u16| plan.node_faults().all(|(_, other, _)| other != node);
    let disturbed = count(|fault| matches!(fault, NodeFault::Crash | NodeFault::Pause(_)));
    let begun = count(|fault| matches!(fault, NodeFault::Restart));
    let is_mild = !plan.faults.iter().any(is_bad) && (0..size(plan.seed)).any(stays);
    let is_small = begun <= left && left <= 1 || begun == left && is_mild;
    disturbed == 0 && is_small && !plan.faults.iter().any(is_cut)
}
