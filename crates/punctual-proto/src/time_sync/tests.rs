//! Nodes whose clocks are skewed, drift, wander and step, in a world that knows the true time.

use super::*;
use crate::address::NodeId;
use crate::interest::Lateness;
use crate::sim::model::TimeScene;
use crate::sim::{Link, Network, NodeFault, Plan, Record, Weather};
use crate::time::Nanos;
use alloc::format;
use proptest::prelude::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

const CLOCK: StampClock = StampClock { domain: 1, scale: 1, is_slewed: false };

const LAN: Network = Network { ordered: false, ..Network::LAN };

/// A scene whose network does this all the time, besides what a network of that kind does.
fn scene(seed: u64, network: Network, link: Link, weather: Weather) -> TimeScene {
    let mut plan = Plan::calm(seed);
    plan.weather((Nanos(0), Nanos(1_000 * S)), link, weather);
    TimeScene::new(&plan, network, SyncOptions::default(), Record::counts())
}

fn calm(seed: u64) -> TimeScene {
    scene(seed, LAN, Link::ANY, Weather::Lose(0))
}

impl TimeScene {
    fn joins(&mut self, id: u64) {
        self.add(id, 128);
    }

    fn run_for(&mut self, time: u64) {
        let seed = self.rng.clone();
        self.run(Nanos(time), Nanos(100 * US)).unwrap_or_else(|violation| panic!("{seed:?}: {violation}"));
    }
}

/// Goal: the true offset is always within the bound for any skew, drift and wander of clocks, and any network delays, asymmetry and
/// losses. The bound is worth something: not much more than half the shortest round trips.
#[test]
fn the_true_offset_is_always_within_the_bound() {
    for seed in 0..8 {
        let slow = Network { delay_min: Nanos(0), delay_spread: Nanos(2 * MS), ..LAN };
        let (network, to_second, extra, weather) = match seed % 4 {
            0 => (LAN, false, 0, Weather::Lose(0)),
            1 => (LAN, true, 300 * US, Weather::Slow(Nanos(300 * US))),
            2 => (LAN, false, 0, Weather::Lose(200)),
            _ => (slow, false, 0, Weather::Lose(50)),
        };
        let mut scene = scene(seed, network, Link { source: None, target: to_second.then_some(1) }, weather);
        (1..=4).for_each(|id| scene.joins(id));
        scene.run_for(2 * S);
        scene.bounds = Lateness::default();
        scene.run_for(8 * S);
        assert_eq!(scene.role(0), Role::Master, "seed {seed}");
        assert!(scene.world.record.checks > 200_000, "seed {seed}: {}", scene.world.record.checks);
        let worth = (2 * network.delay_min.0 + extra) / 2 + 2 * network.delay_spread.0;
        let usual = scene.bounds.quantile(500).unwrap().0;
        assert!(usual < worth, "seed {seed}: ±{usual} ns where {worth} is expected");
        for node in 1..4 {
            let steps = scene.world.node(node).node.counts().steps;
            assert_eq!(steps, 0, "seed {seed}: clocks that kept the model");
        }
    }
}

/// Goal: clocks that calibrations leave as far apart as they may are no contradiction, whichever of the two is the reference.
#[test]
fn calibration_may_err_by_all_it_may() {
    let farthest = 1_767_000;
    for seed in 0..4 {
        let mut scene = calm(seed);
        (1..=2).for_each(|id| scene.joins(id));
        let ahead = (seed % 2) as u16;
        scene.world.suffer(ahead, NodeFault::Drift(farthest));
        scene.world.suffer(1 - ahead, NodeFault::Drift(-farthest));
        scene.run_for(10 * S);
        let drifts = [0, 1].map(|node| scene.world.clock(node).drift_ppb.abs());
        assert!(drifts.iter().all(|&drift| drift > 1_700_000), "seed {seed}: {drifts:?}");
        assert_eq!(scene.world.node(1).node.counts().steps, 0, "seed {seed}");
        let track = scene.world.node(1).node.track().expect("it follows");
        assert!(track.drift_high - track.drift_low < 100_000, "seed {seed}: {track:?}");
    }
}

/// Goal: clocks whose rates change at any instant, by all that daemons slew, stay within a bound that says so. So do the ways of their
/// messages. The bound is as narrow as ever wherever neither of two is slewed. Only the node itself is told that it is slewed.
#[test]
fn slewed_clocks_stay_within_the_bound() {
    for seed in 0..14 {
        let mut scene = calm(seed);
        let is_slewed = [0, 1, 2].map(|node| (1 + seed % 7) >> node & 1 == 1);
        is_slewed.iter().zip(1..).for_each(|(&is_slewed, id)| _ = scene.add_with(id, 128, is_slewed));
        for _ in 0..100 {
            let (node, drift) = (scene.rng.below(3) as u16, scene.rng.between(-83_000_000, 83_000_000));
            if is_slewed[usize::from(node)] {
                scene.world.suffer(node, NodeFault::Drift(drift));
            }
            let time = scene.rng.below(200 * MS);
            scene.run_for(time);
        }
        assert!(scene.world.record.checks > 50_000, "seed {seed}: {}", scene.world.record.checks);
        for node in 1..3 {
            assert_eq!(scene.world.node(node).node.counts().steps, 0, "seed {seed}");
            let bound = scene.bound(node).expect("it follows");
            let is_wide = is_slewed[0] || is_slewed[usize::from(node)];
            assert!(is_wide || bound < MS, "seed {seed}: node {node}: ±{bound} ns");
        }
        let usual = scene.bounds.quantile(500).expect("compared").0;
        assert!(usual < 40 * MS, "seed {seed}: ±{usual} ns");
    }
}

/// Goal: where a round trip takes longer than syncs are apart, exchanges are completed all the same, and the bound holds.
#[test]
fn a_round_trip_may_take_longer_than_syncs_are_apart() {
    for seed in 0..4 {
        let far = Network { delay_min: Nanos((80 + 60 * seed) * MS), delay_spread: Nanos(MS), ..LAN };
        let weather = Weather::Lose(if seed % 2 == 0 { 0 } else { 50 });
        let mut scene = scene(seed, far, Link::ANY, weather);
        (1..=2).for_each(|id| scene.joins(id));
        scene.run_for(10 * S);
        let counts = scene.world.node(1).node.counts();
        // Half of the follow-ups overtake their syncs.
        assert!(counts.exchanges > 20 && counts.steps == 0, "seed {seed}: {counts:?}");
        let bound = scene.bound(1).expect("it follows");
        assert!(bound < far.delay_min.0 + 20 * MS, "seed {seed}: ±{bound} ns");
    }
}

/// A scene of two nodes with syncs every 10 ms, where messages keep their order and take so long.
fn scene_of_frequent_syncs(plan: &Plan, delay: u64) -> TimeScene {
    let network = Network { delay_min: Nanos(delay), delay_spread: Nanos(MS), ..Network::LAN };
    let options = SyncOptions { every: Nanos(10 * MS), ..SyncOptions::default() };
    let mut scene = TimeScene::new(plan, network, options, Record::counts());
    (1..=2).for_each(|id| scene.joins(id));
    scene
}

/// Goal: exchanges are completed where a round trip takes as long as tens of syncs are apart: as many as may be under way.
#[test]
fn a_round_trip_may_take_longer_than_many_syncs_are_apart() {
    for (seed, delay) in [50, 200].into_iter().enumerate() {
        let mut scene = scene_of_frequent_syncs(&Plan::calm(seed as u64), delay * MS);
        scene.run_for(10 * S);
        let counts = scene.world.node(1).node.counts();
        let round_trips = 9_000 / (2 * delay);
        assert!(counts.exchanges > 7 * round_trips, "{delay} ms: {counts:?}, {round_trips} round trips");
        assert_eq!(counts.steps, 0, "{delay} ms");
        let bound = scene.bound(1).expect("it follows");
        assert!(bound < (delay + 20) * MS, "{delay} ms: ±{bound} ns");
    }
}

/// Goal: requests that are never answered keep no later one from being sent for long.
#[test]
fn requests_that_are_lost_make_room() {
    let mut plan = Plan::calm(1);
    plan.weather((Nanos(3 * S), Nanos(4 * S)), Link::between(1, 0), Weather::Cut);
    let mut scene = scene_of_frequent_syncs(&plan, MS);
    scene.run_for(3 * S + 500 * MS);
    let exchanges = |scene: &TimeScene| scene.world.node(1).node.counts().exchanges;
    let before = exchanges(&scene);
    assert!(before > 100, "{before}");
    scene.run_for(400 * MS);
    assert_eq!(exchanges(&scene), before, "nothing comes through");
    scene.run_for(3 * S);
    assert!(exchanges(&scene) > before + 100, "{before}, {}", exchanges(&scene));
    assert_eq!(scene.role(1), Role::Follower(NodeId::new(1).unwrap()));
}

/// Goal: an answer counts for the request that it answers, even if any message is said twice. Method: the doubled message comes between
/// a request and its answer, or behind the answer.
#[test]
fn a_doubled_message_is_no_second_exchange() {
    let (own, master) = (NodeId::new(2).unwrap(), NodeId::new(1).unwrap());
    let mut node = Synchroniser::new(own, 5, CLOCK, SyncOptions::default(), Nanos(0));
    let mut say = |saying, at| {
        node.handle_message(master, &TimeMessage { life: 7, saying }, Nanos(at));
        let sent = core::iter::from_fn(|| node.poll_transmit(Nanos(at)));
        let requests = sent.filter(|sent| matches!(sent.message.saying, Saying::DelayRequest { .. })).count();
        (requests, node.counts(), node.track())
    };
    let status = Status { priority: 1, clock: CLOCK, now: Nanos(0), following: None };
    say(Saying::Status(status), 0);
    for number in [u32::MAX, 0, 1] {
        let begin = 1_000 * u64::from(number.wrapping_add(2));
        let sync = Saying::Sync { number };
        let follow_up = Saying::FollowUp { number, sent: Nanos(begin) };
        let answer = Saying::DelayResponse { number, asker: 5, received: Nanos(begin + 200) };
        say(sync, begin + 100);
        assert_eq!(say(follow_up, begin + 100).0, 1);
        let exchanges = say(sync, begin + 300).1.exchanges;
        assert_eq!(say(follow_up, begin + 300).0, 0, "it asks under number {number} again");
        let (_, counts, track) = say(answer, begin + 300);
        assert_eq!((counts.exchanges, counts.steps), (exchanges + 1, 0), "{number}");
        say(sync, begin + 400);
        assert_eq!(say(follow_up, begin + 400).0, 0, "{number}");
        let (_, counts, again) = say(answer, begin + 400);
        assert_eq!((counts.exchanges, again), (exchanges + 1, track), "{number}");
    }
}

/// Goal: clocks that grow in steps, the own one or the reference's, are within the bound of each other all the same. So are the ways of
/// messages. Method: both are one clock that is read in steps, and messages take no time.
#[test]
fn clocks_of_long_ticks_stay_within_the_bound() {
    let (own, master) = (NodeId::new(2).unwrap(), NodeId::new(1).unwrap());
    // 52.083 and 41.667 ns.
    let [slow, faster] = [223_696_213_333, 178_956_970_667];
    for (own_scale, reference_scale) in [
        (slow, 1 << 32),
        (1 << 32, slow),
        (faster, 1 << 32),
        (1 << 32, faster),
        (1_000 << 32, slow),
        (slow, 1_000 << 32),
    ] {
        let read = |at: u64, scale: u64| {
            let ticks = (u128::from(at) << 32) / u128::from(scale);
            Nanos(((ticks * u128::from(scale)) >> 32) as u64)
        };
        let clock = |scale| StampClock { scale, ..CLOCK };
        let mut node = Synchroniser::new(own, 5, clock(own_scale), SyncOptions::default(), Nanos(0));
        for number in 0..2_000_u32 {
            // Of all phases, and a hundred and twenty of each second.
            let at = |step: u64| 10 * MS * u64::from(number) + 7 * u64::from(number) + 13 * step;
            let now = |step| read(at(step), own_scale);
            let reference = |step| read(at(step), reference_scale);
            let track = Track::reference(reference(0));
            let following = Some((master, 7, track));
            let status = Status { priority: 1, clock: clock(reference_scale), now: reference(0), following };
            for (step, saying) in [
                (0, Saying::Status(status)),
                (1, Saying::Sync { number }),
                (2, Saying::FollowUp { number, sent: reference(1) }),
                (4, Saying::DelayResponse { number, asker: 5, received: reference(3) }),
            ] {
                node.handle_message(master, &TimeMessage { life: 7, saying }, now(step));
                while node.poll_transmit(now(3)).is_some() {}
            }
            let context = format!("{own_scale} and {reference_scale}, exchange {number}");
            let Estimate { nanos, bound } = node.offset(now(5)).expect("it follows");
            assert!(nanos.unsigned_abs() <= bound, "{context}: {nanos} ± {bound} ns");
            let way = node.one_way(master, reference(5), now(5)).expect("it follows");
            assert!(way.nanos.unsigned_abs() <= way.bound, "{context}: {way:?}");
        }
        assert_eq!(
            (node.counts().exchanges, node.counts().steps),
            (2_000, 0),
            "{own_scale} and {reference_scale}"
        );
    }
}

/// Goal: the drift is found, so that between exchanges the bound grows by that of the model's wander and no more.
#[test]
fn the_drift_is_found() {
    for seed in 0..20 {
        let mut scene = calm(seed);
        let (master, follower) = (scene.add(1, 1), scene.add(2, 2));
        scene.run_for(10 * S);
        let truth = scene.world.clock(master).drift_ppb - scene.world.clock(follower).drift_ppb;
        let track = scene.world.node(follower).node.track().unwrap();
        // Rates are per second of the own clock, which is itself off by as much as 1.8 × 10⁻³: that of 3,600 ppm is 6,480 ppb.
        assert!(
            track.drift_low - 6_500 <= truth && truth <= track.drift_high + 6_500,
            "seed {seed}: {truth} {track:?}"
        );
        assert!(track.drift_high - track.drift_low < 100_000, "seed {seed}: {track:?}");
    }
}

/// Goal: a clock that is set without anybody's knowing is found out by the next exchange if the step is larger than the
/// bound; a smaller one is forgotten with the window. From then on the bound holds again.
#[test]
fn a_clock_that_is_set_is_found_out() {
    for seed in 0..15 {
        let mut scene = calm(seed);
        let _three = (scene.add(1, 1), scene.add(2, 2), scene.add(3, 3));
        scene.run_for(5 * S);
        let step = [10 * S as i64, -(10 * MS as i64), 20_000, -20_000, 400_000][seed as usize % 5];
        let set = (seed % 3) as u16;
        let large = step.unsigned_abs() >= MS;
        // After a large step an exchange under way contradicts itself; the one after it is good. After a small one, the
        // window. The status that tells others comes with the exchange.
        let doubt = if large { 500 * MS } else { 35 * 125 * MS };
        scene.world.suffer(set, NodeFault::Step(step));
        scene.doubt_until[usize::from(set)] = scene.world.now().plus(Nanos(doubt));
        scene.world.record.checks = 0;
        let noticed = |scene: &TimeScene| -> u64 {
            let counts = (0..3).map(|node| scene.world.node(node).node.counts());
            counts.map(|counts| counts.steps + counts.elections).sum()
        };
        let noticed_before = noticed(&scene);
        scene.run_for(8 * S);
        assert!(scene.world.record.checks > 60_000, "seed {seed}: {}", scene.world.record.checks);
        // A node that is set ahead by more than a silence finds everybody silent, and begins anew by that.
        let times = noticed(&scene) - noticed_before;
        assert!(!large || times >= 1, "seed {seed}: nobody noticed a step of {step} ns");
    }
}

/// Goal: the master is the best by priority and then by id, the next best when it falls silent, and it again when it is back.
#[test]
fn the_best_that_is_heard_is_master() {
    for seed in 0..20 {
        let mut scene = calm(seed);
        let order = [scene.add(40, 10), scene.add(7, 20), scene.add(30, 20), scene.add(1, PRIORITY_NEVER)];
        let id = |index: usize| [40, 7, 30, 1].map(|id| NodeId::new(id).unwrap())[index];
        scene.run_for(2 * S);
        for master in 0..3 {
            assert_eq!(scene.role(order[master]), Role::Master, "seed {seed}");
            for &other in &order[master + 1..] {
                assert_eq!(scene.role(other), Role::Follower(id(master)), "seed {seed}");
                assert!(scene.bound(other).is_some(), "seed {seed}");
            }
            scene.world.suffer(order[master], NodeFault::Crash);
            scene.run_for(2 * S);
        }
        assert_eq!(scene.role(order[3]), Role::Listening, "seed {seed}: nobody is left who may");
        assert_eq!(scene.bound(order[3]), None);
        restart(&mut scene, order[0]);
        scene.run_for(2 * S);
        assert_eq!(scene.role(order[3]), Role::Follower(id(0)), "seed {seed}");
        assert!(scene.bound(order[3]).is_some());
    }
}

/// Its death and return are no secret for long: it says so with its first status. Until that has come, others follow a clock
/// that is no more.
fn restart(scene: &mut TimeScene, node: u16) {
    scene.world.suffer(node, NodeFault::Restart);
    scene.doubt_until[usize::from(node)] = scene.world.now().plus(Nanos(700 * MS));
}

/// Goal: a master that begins anew has another clock: nothing of the old one is used for it, for a single instant.
#[test]
fn a_master_that_restarts_has_another_clock() {
    for seed in 0..20 {
        let mut scene = scene(seed, LAN, Link::ANY, Weather::Lose(100));
        let (master, second, third) = (scene.add(1, 128), scene.add(2, 128), scene.add(3, 128));
        for round in 0..4 {
            scene.run_for(2 * S);
            assert_eq!(scene.role(second), Role::Follower(NodeId::new(1).unwrap()), "seed {seed}, {round}");
            assert!(scene.bound(third).is_some(), "seed {seed}, {round}");
            restart(&mut scene, master);
        }
    }
}

/// Goal: a clock that began anew stops nothing for as long as it had run before: the master listens as one that starts, and
/// goes on.
#[test]
fn a_clock_that_begins_anew_stops_nothing() {
    const HOUR: u64 = 3_600 * S;
    let options = SyncOptions::default();
    let mut node = Synchroniser::new(NodeId::new(1).unwrap(), 1, CLOCK, options, Nanos(0));
    let run = |node: &mut Synchroniser, from: Nanos, until: Nanos| {
        let (mut now, mut said) = (from, Vec::new());
        while now < until {
            node.handle_timeout(now);
            said.extend(core::iter::from_fn(|| node.poll_transmit(now)).map(|sent| (now, sent.message)));
            now = node.next_timeout().max(now.plus(Nanos(MS)));
        }
        said
    };
    let _hour_of_sleep =
        (run(&mut node, Nanos(0), Nanos(2 * S)), run(&mut node, Nanos(10 * HOUR), Nanos(10 * HOUR + S)));
    assert_eq!(node.role(), Role::Master);
    let again = Nanos(20 * S);
    node.handle_clock_changed(2, again);
    let said = run(&mut node, again, again.plus(options.silence).plus(options.every));
    let first = |is_it: fn(&Saying) -> bool| {
        said.iter().find(|(_, message)| is_it(&message.saying)).map(|said| said.0)
    };
    assert_eq!(first(|saying| matches!(saying, Saying::Status(_))), Some(again), "it says who it is");
    assert!(first(|saying| matches!(saying, Saying::Sync { .. })).is_some(), "it is master again: {said:?}");
    assert!(said.iter().all(|(_, message)| message.life == 2), "of the former life nothing is left");
}

/// Goal: a follower of a master that slept does not compare its clock with that of a node that does not know of this yet. Method: the
/// other follower's statuses do not come, so that the last one is of before.
#[test]
fn a_master_that_slept_is_another_clock() {
    for seed in 0..20 {
        let mut plan = Plan::calm(seed);
        let slept = 5 * S + seed * 7 * MS;
        plan.weather((Nanos(slept), Nanos(slept + 2 * S)), Link::between(2, 1), Weather::Cut);
        let mut scene = TimeScene::new(&plan, LAN, SyncOptions::default(), Record::counts());
        (1..=3).for_each(|id| scene.joins(id));
        scene.run_for(slept);
        let length = [-10 * S as i64, -20_000, -400_000, 7_000 * S as i64][seed as usize % 4];
        scene.world.suffer(0, NodeFault::Step(length));
        scene.world.suffer(0, NodeFault::Act(0));
        // Its first status says so.
        scene.doubt_until[0] = scene.world.now().plus(Nanos(2 * MS));
        scene.world.record.checks = 0;
        scene.run_for(2 * S);
        assert!(scene.world.record.checks > 10_000, "seed {seed}: {}", scene.world.record.checks);
        assert_eq!(scene.role(1), Role::Follower(NodeId::new(1).unwrap()), "seed {seed}");
        assert_eq!(scene.world.node(1).node.counts().steps, 0, "seed {seed}: it was told");
    }
}

/// Goal: readings from before a clock began are not judged by later knowledge of it, though its node and its domain are the same. Its
/// readings from then on are.
#[test]
fn a_former_life_of_a_clock_is_not_judged_by_the_next() {
    let options = SyncOptions::default();
    let mut node = Synchroniser::new(NodeId::new(1).unwrap(), 1, CLOCK, options, Nanos(S));
    node.handle_timeout(Nanos(2 * S));
    assert_eq!(node.role(), Role::Master);
    let other = NodeId::new(2).unwrap();
    let track = |at| Track { at, low: -5_000, high: 5_000, drift_low: 0, drift_high: 0 };
    let say = |node: &mut Synchroniser, life: u32, scale: u64, at: Nanos| {
        let following = Some((NodeId::new(1).unwrap(), 1, track(at)));
        let status = Status { priority: 200, clock: StampClock { scale, ..CLOCK }, now: at, following };
        node.handle_message(other, &TimeMessage { life, saying: Saying::Status(status) }, Nanos(2 * S));
    };
    let knows =
        |node: &Synchroniser, sent: u64| node.one_way(other, Nanos(sent * MS), Nanos(2 * S)).is_some();
    assert!(!knows(&node, 1_000));
    say(&mut node, 7, 1 << 32, Nanos(1_000 * MS));
    say(&mut node, 7, 1 << 32, Nanos(1_100 * MS));
    assert!(knows(&node, 1_000) && knows(&node, 1_050) && knows(&node, 1_200) && !knows(&node, 999));
    say(&mut node, 8, 1 << 31, Nanos(1_300 * MS));
    assert!(knows(&node, 1_300) && knows(&node, 1_400) && !knows(&node, 1_299));
    // Stamps rise, though the clock began anew: for days they are ahead of it, and are no readings.
    let ten_days = Nanos(864_000 * S);
    assert_eq!(node.one_way(other, ten_days, Nanos(2 * S)), None);
    assert!(node.any_one_way(other, ten_days, Nanos(2 * S)).is_some_and(|way| way.nanos < 0));
    // One that is ahead by no more than the bound is below zero.
    let ahead = node.one_way(other, Nanos(2 * S + 1_000), Nanos(2 * S)).expect("within the bound");
    assert!(ahead.nanos < 0 && ahead.bound > 1_000, "{ahead:?}");
    // The own clock's former life is none of its own either.
    assert!(node.one_way(other, Nanos(1_300 * MS), Nanos(S - 1)).is_none());
}

/// Goal: at one instant there is an end to what is sent, however often that is to be.
#[test]
fn transmissions_at_an_instant_end() {
    let options = SyncOptions { every: Nanos(0), ..SyncOptions::default() };
    let mut node = Synchroniser::new(NodeId::new(1).unwrap(), 1, CLOCK, options, Nanos(0));
    let now = Nanos(2 * S);
    node.handle_timeout(now);
    assert_eq!(node.role(), Role::Master);
    let sent = (0..1_000).take_while(|_| node.poll_transmit(now).is_some()).count();
    assert_eq!(sent, 3, "a sync, its follow-up, and a status");
    assert!(node.next_timeout() > now);
}

/// Goal: a message that is late, doubled or of a former master changes nothing.
#[test]
fn messages_of_no_exchange_are_counted() {
    let mut scene = calm(1);
    let (_, follower) = (scene.add(1, 1), scene.add(2, 2));
    scene.run_for(2 * S);
    let before = (scene.world.node(follower).node.track(), scene.world.node(follower).node.counts());
    for source in [1, 9] {
        for saying in [
            Saying::FollowUp { number: 1, sent: Nanos(5) },
            Saying::DelayResponse { number: 1, asker: 7, received: Nanos(5) },
            Saying::DelayRequest { number: 1 },
        ] {
            let message = TimeMessage { life: 3, saying };
            let source = NodeId::new(source).unwrap();
            scene.world.with(follower, |held, now| held.node.handle_message(source, &message, now));
        }
    }
    let node = &scene.world.node(follower).node;
    assert_eq!(node.track(), before.0);
    assert_eq!(node.counts().stale, before.1.stale + 6);
}

proptest! {
    /// Goal: nothing that can be said makes a node fail or grow.
    #[test]
    fn anything_may_be_said(
        sayings in proptest::collection::vec((1_u64..400, 0_u32..8, any::<u64>(), any::<u64>(), any::<i64>(), 0_u64..400), 1..300),
    ) {
        let mut node = Synchroniser::new(NodeId::new(200).unwrap(), 1, CLOCK, SyncOptions::default(), Nanos(0));
        let mut now = Nanos(0);
        for (source, kind, a, b, c, wait_ms) in sayings {
            now = now.plus(Nanos(wait_ms * MS));
            let source = NodeId::new(source).unwrap();
            let number = node.number.wrapping_add(a as u32 % 2);
            let track = Track { at: Nanos(b), low: c.min(a.cast_signed()), high: c.max(a.cast_signed()), drift_low: -(b as i64 >> 33).abs(), drift_high: (a as i64 >> 33).abs() };
            let saying = match kind {
                0 => Saying::Sync { number },
                1 => Saying::FollowUp { number, sent: Nanos(b) },
                2 => Saying::DelayRequest { number },
                3 | 4 => Saying::DelayResponse { number, asker: 1, received: Nanos(b) },
                _ => Saying::Status(Status {
                    priority: a as u8,
                    clock: StampClock { scale: b, is_slewed: b.is_multiple_of(2), ..CLOCK },
                    now: Nanos(b),
                    following: a.is_multiple_of(3).then_some((source, a as u32 % 2, track)),
                }),
            };
            node.handle_message(source, &TimeMessage { life: a as u32 % 2, saying }, now);
            node.handle_timeout(now);
            let mut sent = 0;
            while node.poll_transmit(now).is_some() {
                sent += 1;
                prop_assert!(sent < 600, "it never ends");
            }
            prop_assert!(node.peers.len() <= crate::limits::NODES_MAX);
            let _any_answer = (node.offset(Nanos(b)), node.one_way(source, Nanos(a), Nanos(b)));
        }
    }
}

/// A node that may be master itself, and has followed another for a second. Says the other's status, and how many elections there were.
fn follower(master: NodeId) -> (Synchroniser, TimeMessage, u64) {
    let mut node = Synchroniser::new(NodeId::new(2).unwrap(), 5, CLOCK, SyncOptions::default(), Nanos(0));
    let status = Status { priority: 1, clock: CLOCK, now: Nanos(0), following: None };
    let message = TimeMessage { life: 7, saying: Saying::Status(status) };
    for at in (0..=S).step_by(100 * MS as usize) {
        node.handle_message(master, &message, Nanos(at));
        node.handle_timeout(Nanos(at));
    }
    assert_eq!(node.role(), Role::Follower(master));
    let elections = node.counts().elections;
    (node, message, elections)
}

/// Goal: a master is not silent while anything comes of it, and is once nothing does.
#[test]
fn a_master_whose_statuses_are_lost_is_followed() {
    let master = NodeId::new(1).unwrap();
    let (mut node, _, elections) = follower(master);
    for number in 1..=20_u32 {
        let now = Nanos(S + u64::from(number) * 100 * MS);
        node.handle_message(master, &TimeMessage { life: 7, saying: Saying::Sync { number } }, now);
        node.handle_timeout(now);
        assert_eq!((node.role(), node.counts().elections), (Role::Follower(master), elections));
    }
    // Another life of it is another clock.
    node.handle_message(
        master,
        &TimeMessage { life: 8, saying: Saying::Sync { number: 30 } },
        Nanos(3_400 * MS),
    );
    node.handle_timeout(Nanos(3_500 * MS));
    assert_eq!(node.role(), Role::Master);
}

/// Goal: a node that was not run for long keeps its master, if that has said something meanwhile.
#[test]
fn a_node_that_did_not_run_keeps_its_master() {
    let [master, third] = [1, 3].map(|id| NodeId::new(id).unwrap());
    let (mut node, of_master, elections) = follower(master);
    let status = Status { priority: 200, clock: CLOCK, now: Nanos(0), following: None };
    let of_third = TimeMessage { life: 9, saying: Saying::Status(status) };
    let now = Nanos(3 * S);
    node.handle_message(third, &of_third, now);
    node.handle_message(master, &of_master, now);
    node.handle_timeout(now);
    assert_eq!((node.role(), node.counts().elections), (Role::Follower(master), elections));
}
