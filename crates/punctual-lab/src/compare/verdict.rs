//! The verdict on two sides, each of one run or several.
//!
//! A run is one sample: the differences between runs (place of memory, core given by a hypervisor, other load) are in no trial of it.
//! So the interval comes from how far runs lie apart, by Student's t over runs.

use serde::{Deserialize, Serialize};

use super::value::RunValue;
use super::{Aspect, Difference, Measure, Options, Order, PAIRS_MIN};
use crate::stall::LASTED_NS_MIN;
use crate::stats::student::{normal_two_sided, two_sided};
use crate::stats::{Squares, mean};

/// All aspects together err in one comparison of twenty: half of that is the median's, the rest is shared by the others.
const ALPHA: f64 = 0.05;

/// Runs say how far runs lie apart if so many distances are free: five of one side, or three of each.
const FREEDOM_MIN: usize = 4;

/// Fewer pairs do not say how far pairs lie apart.
const PAIRS_JUDGED_MIN: usize = 3;

/// Effect that pairs in turn are to find: so large a ratio of the median, in four of five cases.
pub(super) const FOUND_RATIO: f64 = 1.1;
const MISSED: f64 = 0.2;
/// If more pairs are needed, measuring needs another way.
const PAIRS_NEEDED_MAX: usize = 1_000;

/// Where the spread of runs is unknown, it is taken as so many times that of a run's trials (1.2 to 2.9 were measured). It is taken as
/// so much of the value at least.
const DRIFT_TRIALS: f64 = 3.0;
const DRIFT_LN_MIN: f64 = 0.1;

/// A single run must lie off by so many times the distance of the other runs that lie farthest apart. At once that distance,
/// 5.9 % of comparisons of 26 identical runs erred, since either side may be the run that lies off most; at twice, 1.3 %.
const RANGES_SINGLE: f64 = 2.0;

/// Basis of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// So many pairs of runs in turn.
    Pairs(usize),
    /// Distances between runs of the same thing, so many of them free.
    Runs(usize),
    /// The distance between runs is unknown; a bound is taken for it.
    Bound,
}

/// Both sides, and what else is known of how runs lie apart.
pub(super) struct Sides {
    pub(super) a: Vec<RunValue>,
    pub(super) b: Vec<RunValue>,
    pub(super) history: Vec<RunValue>,
}

impl Sides {
    /// Leaves out the runs without a message, and their partners where runs were taken in turn: those behind them stay pairs. There
    /// it leaves out runs that never had a partner, too. Says which had no message.
    pub(super) fn leave_out_silent(&mut self, order: Order) -> Vec<String> {
        let is_silent = |run: &RunValue| run.messages == 0;
        let silent = [&self.a, &self.b].map(|runs| runs.iter().map(is_silent).collect::<Vec<bool>>());
        let stays = |side: usize, place: usize| {
            let has_partner = order == Order::Interleaved;
            let is_partner_silent = has_partner && silent[1 - side].get(place).copied().unwrap_or(false);
            !silent[side][place] && !is_partner_silent
        };
        for (side, runs) in [&mut self.a, &mut self.b].into_iter().enumerate() {
            let mut places = 0..;
            runs.retain(|_| places.next().is_some_and(|place| stays(side, place)));
        }
        self.history.retain(|run| !is_silent(run));
        if order == Order::Interleaved {
            // The shown value of a side then comes from the same runs as its ratio.
            let pairs = self.a.len().min(self.b.len());
            self.a.truncate(pairs);
            self.b.truncate(pairs);
        }
        silent.iter().zip(["A", "B"]).flat_map(|(silent, side)| named(silent, side)).collect()
    }

    pub(super) fn basis(&self, order: Order) -> Basis {
        let [a, b, history] = [&self.a, &self.b, &self.history].map(|runs| runs.len().saturating_sub(1));
        match (order, a + b + history) {
            (Order::Interleaved, _) => Basis::Pairs(self.a.len().min(self.b.len())),
            (Order::Separate, freedom) if freedom >= FREEDOM_MIN => Basis::Runs(freedom),
            (Order::Separate, _) => Basis::Bound,
        }
    }

    /// Those aspects that every run supports.
    pub(super) fn measures(&self, options: &Options) -> Vec<Measure> {
        if self.a.is_empty() || self.b.is_empty() {
            return Vec::new();
        }
        let both = || self.a.iter().chain(&self.b);
        let supported = |aspect: &Aspect| {
            both().all(|run| run.get(*aspect).all.is_some())
                && (*aspect != Aspect::StallsPerMinute
                    || [&self.a, &self.b].into_iter().all(|side| has_rate(side)))
        };
        let aspects: Vec<Aspect> = Aspect::ALL.into_iter().filter(supported).collect();
        let others = aspects.iter().filter(|&&aspect| aspect != Aspect::P50).count().max(1) as f64;
        let all = if self.has_single_side() { ALPHA / 2.0 } else { ALPHA };
        let alpha = |aspect| all / 2.0 / if aspect == Aspect::P50 { 1.0 } else { others };
        aspects.iter().map(|&aspect| self.measure(aspect, alpha(aspect), options)).collect()
    }

    /// Returns true if the effect to be found in the median is less than the clock resolves: no number of pairs finds it.
    pub(super) fn is_unresolved(&self, resolution_ns: u64) -> bool {
        let medians = all(&self.a, Aspect::P50);
        !medians.is_empty() && mean(&medians).exp() * (FOUND_RATIO - 1.0) < resolution_ns as f64
    }

    /// Number of pairs in turn that would find [`FOUND_RATIO`] of the median, if pairs lie apart as these do.
    pub(super) fn pairs_needed(&self, options: &Options) -> Option<usize> {
        let squares = self.apart(Aspect::P50);
        let is_known = options.order == Order::Interleaved && squares.freedom + 1 >= PAIRS_JUDGED_MIN;
        let is_hidden = self.is_unresolved(options.resolution_ns);
        let finds = |pairs: usize| {
            if is_hidden {
                return false;
            }
            let (freedom, error) = (pairs - 1, squares.deviation() / (pairs as f64).sqrt());
            // The interval's half, and what the mean of the pairs falls short of the truth by in all but the cases missed.
            let t = two_sided(ALPHA / 2.0, freedom) + two_sided(2.0 * MISSED, freedom);
            t * error <= FOUND_RATIO.ln()
        };
        // More pairs never find less: halving finds the fewest.
        is_known.then(|| {
            let (mut low, mut high) = (PAIRS_MIN, PAIRS_NEEDED_MAX);
            while low < high {
                let middle = usize::midpoint(low, high);
                (low, high) = if finds(middle) { (low, middle) } else { (middle + 1, high) };
            }
            low
        })
    }

    /// The differences of pairs.
    fn differences(&self, aspect: Aspect) -> Vec<f64> {
        let each = self.a.iter().zip(&self.b);
        let apart = |(a, b): (&RunValue, &RunValue)| Some(b.get(aspect).all? - a.get(aspect).all?);
        each.filter_map(apart).collect()
    }

    fn apart(&self, aspect: Aspect) -> Squares {
        Squares::of(&self.differences(aspect))
    }

    /// Of one run nothing is averaged: if now and then a run lies far off, a few others do not tell.
    fn has_single_side(&self) -> bool {
        self.a.len() == 1 || self.b.len() == 1
    }

    fn measure(&self, aspect: Aspect, alpha: f64, options: &Options) -> Measure {
        let (a, b) = (mean(&all(&self.a, aspect)), mean(&all(&self.b, aspect)));
        // Where runs have partners, what is judged is how far each lies from its own.
        let change = match self.basis(options.order) {
            Basis::Pairs(_) => mean(&self.differences(aspect)),
            Basis::Runs(_) | Basis::Bound => b - a,
        };
        let half = self.half_width(aspect, alpha, options.order);
        // A rate of stalls is compared by its root, everything else by its logarithm.
        let ratio = |change: f64| match aspect {
            Aspect::StallsPerMinute => ((a + change) / a).max(0.0).powi(2),
            _ => change.exp(),
        };
        let (shown_a, shown_b) = (shown(&self.a, aspect), shown(&self.b, aspect));
        let (low, high) = (ratio(change - half), ratio(change + half));
        let matters = ratio(change).max(1.0 / ratio(change)) >= aspect.ratio_min()
            && (aspect == Aspect::StallsPerMinute
                || (b.exp() - a.exp()).abs() >= options.resolution_ns as f64);
        // Values that are infinite on both sides cannot be told apart, and nothing is slower than an infinite one.
        let difference = match (matters, high < 1.0, low > 1.0) {
            (true, true, _) if shown_b.is_some() => Difference::Faster,
            (true, _, true) if shown_a.is_some() => Difference::Slower,
            _ => Difference::None,
        };
        let finite = shown_a.is_some() && shown_b.is_some();
        Measure {
            aspect,
            a: shown_a,
            b: shown_b,
            ratio: finite.then(|| ratio(change)),
            low: if low.is_finite() && shown_a.is_some() { low } else { 0.0 },
            high: Some(high).filter(|high| high.is_finite() && shown_b.is_some()),
            difference,
        }
    }

    fn half_width(&self, aspect: Aspect, alpha: f64, order: Order) -> f64 {
        let half = match self.basis(order) {
            Basis::Pairs(_) => student_half(alpha, self.apart(aspect), |squares| {
                squares.deviation() / ((squares.freedom + 1) as f64).sqrt()
            }),
            Basis::Runs(_) => {
                let groups = [&self.a, &self.b, &self.history].map(|runs| all(runs, aspect));
                let student =
                    student_half(alpha, Squares::of_groups(groups.iter().map(Vec::as_slice)), |between| {
                        between.deviation().max(self.error_of_a_run(aspect)) * self.root_of_shares()
                    });
                // A single run that lies as far off as others did shows nothing: others of the history, or of the other side.
                if self.has_single_side() {
                    let farthest = groups.iter().map(|runs| range(runs)).fold(0.0, f64::max);
                    student.max(RANGES_SINGLE * farthest)
                } else {
                    student
                }
            }
            Basis::Bound => student_half(alpha, self.within(aspect), |within| {
                (DRIFT_TRIALS * within.deviation()).max(DRIFT_LN_MIN) * self.root_of_shares()
            }),
        };
        match aspect {
            // Few stalls scatter by chance alone.
            Aspect::StallsPerMinute => {
                half.max(normal_two_sided(alpha) * scatter(&self.a).hypot(scatter(&self.b)))
            }
            _ => half,
        }
    }

    /// Trials of each run about that run.
    fn within(&self, aspect: Aspect) -> Squares {
        let runs = self.a.iter().chain(&self.b).chain(&self.history);
        Squares::of_groups(runs.map(|run| run.get(aspect).trials.as_slice()))
    }

    /// A run cannot be better known than its trials say.
    fn error_of_a_run(&self, aspect: Aspect) -> f64 {
        let trials = self.a.iter().chain(&self.b).map(|run| run.get(aspect).trials.len());
        self.within(aspect).deviation() / (trials.min().unwrap_or(1).max(1) as f64).sqrt()
    }

    fn root_of_shares(&self) -> f64 {
        (1.0 / self.a.len() as f64 + 1.0 / self.b.len() as f64).sqrt()
    }
}

/// The silent runs of a side, in words.
fn named(silent: &[bool], side: &str) -> Vec<String> {
    if !silent.is_empty() && silent.iter().all(|&is_silent| is_silent) {
        return vec![format!("every run of {side}")];
    }
    let places = (1..).zip(silent).filter(|&(_, &is_silent)| is_silent);
    places.map(|(number, _)| format!("run {number} of {side}")).collect()
}

/// Infinite where no distance is free.
fn student_half(alpha: f64, squares: Squares, error: impl FnOnce(Squares) -> f64) -> f64 {
    if squares.freedom == 0 { f64::INFINITY } else { two_sided(alpha, squares.freedom) * error(squares) }
}

fn all(runs: &[RunValue], aspect: Aspect) -> Vec<f64> {
    runs.iter().filter_map(|run| run.get(aspect).all).collect()
}

/// Distance between the lowest and the highest.
fn range(values: &[f64]) -> f64 {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)));
    (high - low).max(0.0)
}

/// A side was watched long enough for a rate: one stall in 5 ms is not 12,000 a minute.
fn has_rate(runs: &[RunValue]) -> bool {
    runs.iter().map(|run| run.minutes).sum::<f64>() * 60e9 >= LASTED_NS_MIN as f64
}

/// The value that the table shows: the geometric mean over runs, or stalls by minutes.
fn shown(runs: &[RunValue], aspect: Aspect) -> Option<f64> {
    if aspect == Aspect::StallsPerMinute {
        let sum = |of: fn(&RunValue) -> f64| runs.iter().map(of).sum::<f64>();
        return Some(sum(|run| run.stalls) / sum(|run| run.minutes));
    }
    let is_finite = |run: &RunValue| run.get(aspect).all.is_some_and(|ln| ln <= run.finite_ln + 1e-6);
    runs.iter().all(is_finite).then(|| mean(&all(runs, aspect)).exp())
}

/// Deviation of the root of the stall rate if stalls came at random.
fn scatter(runs: &[RunValue]) -> f64 {
    0.5 / runs.iter().map(|run| run.minutes).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::enough_for;
    use super::super::value::Value;
    use super::*;
    use crate::sample::Load;
    use punctual_proto::sim::Rng;

    use crate::stats::Floats;

    /// Distance between runs of the same thing, and the way it arises.
    #[derive(Clone, Copy, Debug)]
    enum Weather {
        /// By a normal effect.
        Normal,
        /// By one that is sometimes far off (Student's t of 3).
        Heavy,
        /// One run of ten lies far off.
        Outliers,
        /// A hypervisor puts both processors on one core or on two: either is as likely, nothing lies between.
        TwoPlaces,
    }

    const WEATHERS: [Weather; 3] = [Weather::Normal, Weather::Heavy, Weather::TwoPlaces];
    const TRIALS: usize = 5;

    impl Weather {
        fn effect(self, spread: f64, random: &mut Rng) -> f64 {
            match self {
                Self::Normal => spread * random.normal(),
                Self::Heavy => {
                    let squares: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
                    spread * random.normal() / (squares / 3.0).sqrt()
                }
                Self::Outliers => {
                    let is_off = random.below(10) == 0;
                    spread * (if is_off { 8.0 } else { 0.0 } + random.normal())
                }
                Self::TwoPlaces => {
                    spread * (if random.number() & 1 == 0 { 3.0 } else { -3.0 } + 0.2 * random.normal())
                }
            }
        }
    }

    /// Runs whose trials lie `trial` apart, and which lie `between` apart themselves.
    struct World {
        random: Rng,
        weather: Weather,
        between: f64,
        trial: f64,
    }

    impl World {
        fn run(&mut self, day: f64, change: f64) -> RunValue {
            let common = day + change + self.weather.effect(self.between, &mut self.random);
            let mut run = RunValue { messages: 2_500, finite_ln: 30.0, minutes: 1.0, ..RunValue::default() };
            for aspect in Aspect::ALL.into_iter().take(5) {
                // The tail is less certain than the body.
                let scatter = self.trial * (1.0 + aspect as usize as f64);
                let trials: Vec<f64> =
                    (0..TRIALS).map(|_| 9.0 + common + scatter * self.random.normal()).collect();
                run.values[aspect as usize] = Value { all: Some(mean(&trials)), trials };
            }
            run
        }

        fn runs(&mut self, count: usize, change: f64) -> Vec<RunValue> {
            (0..count).map(|_| self.run(0.0, change)).collect()
        }

        fn differs(&mut self, form: Form, change: f64) -> bool {
            let (order, sides) = match form {
                Form::InTurn(pairs) => {
                    let (mut a, mut b) = (Vec::new(), Vec::new());
                    for _ in 0..pairs {
                        // A day is far from the next; the difference that is left within a pair is less than between runs.
                        let day = 0.3 * self.random.normal();
                        a.push(self.run(day, 0.0));
                        b.push(self.run(day, change));
                    }
                    (Order::Interleaved, Sides { a, b, history: Vec::new() })
                }
                Form::OneAgainst(runs) => {
                    let (a, b) = (self.runs(runs, 0.0), self.runs(1, change));
                    (Order::Separate, Sides { a, b, history: Vec::new() })
                }
                Form::Sides { runs, others } => {
                    let sides = Sides {
                        a: self.runs(runs, 0.0),
                        b: self.runs(runs, change),
                        history: self.runs(others, 0.0),
                    };
                    (Order::Separate, sides)
                }
            };
            let options = Options { order, ..Options::new(Load::Closed, 0) };
            sides.measures(&options).iter().any(|measure| measure.difference != Difference::None)
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Form {
        InTurn(usize),
        /// A single run beside so many of the other side, without a history.
        OneAgainst(usize),
        Sides {
            runs: usize,
            others: usize,
        },
    }

    const FORMS: [Form; 8] = [
        Form::InTurn(5),
        Form::InTurn(10),
        Form::Sides { runs: 3, others: 0 },
        Form::Sides { runs: 5, others: 0 },
        Form::Sides { runs: 1, others: 6 },
        Form::OneAgainst(6),
        Form::Sides { runs: 1, others: 0 },
        Form::Sides { runs: 2, others: 0 },
    ];

    fn differing(form: Form, weather: Weather, [between, trial]: [f64; 2], change: f64, worlds: u64) -> u64 {
        let differs =
            |seed: &u64| World { random: Rng::new(*seed), weather, between, trial }.differs(form, change);
        (0..worlds).filter(differs).count() as u64
    }

    /// Goal: equal things are called different in at most one comparison of twenty, regardless of the number of runs and their spread,
    /// in narrow cells too.
    #[test]
    fn the_same_thing_is_rarely_called_different() {
        const WORLDS: u64 = 1_000;
        // Runs lie 1, 2 and 2.9 times as far apart as trials; the narrow cells' trials 0.3 % and 1 %.
        const SPREADS: [[f64; 2]; 3] = [[0.02, 0.02], [0.02, 0.01], [0.0087, 0.003]];
        let rarely = |form| {
            for (weather, spread) in WEATHERS.into_iter().flat_map(|weather| SPREADS.map(|s| (weather, s))) {
                let alarms = differing(form, weather, spread, 0.0, WORLDS);
                println!("{form:?} {weather:?} {spread:?}: {alarms} of {WORLDS}");
                assert!(alarms * 20 <= WORLDS, "{form:?} {weather:?} {spread:?}: {alarms} of {WORLDS}");
            }
        };
        // Most of the laboratory's time for unit tests: on all processors.
        std::thread::scope(|scope| {
            for form in FORMS {
                scope.spawn(move || rarely(form));
            }
        });
    }

    /// Goal: where one run of ten lies far off, a single run that does shows nothing. Some of its history, or of the other side, did too.
    #[test]
    fn a_run_that_lies_off_as_others_did_shows_nothing() {
        const WORLDS: u64 = 1_000;
        for form in [Form::Sides { runs: 1, others: 18 }, Form::OneAgainst(18)] {
            for spread in [[0.02, 0.02], [0.02, 0.01], [0.0087, 0.003]] {
                let alarms = differing(form, Weather::Outliers, spread, 0.0, WORLDS);
                println!("{form:?} {spread:?}: {alarms} of {WORLDS}");
                assert!(alarms * 20 <= WORLDS, "{form:?} {spread:?}: {alarms} of {WORLDS}");
            }
        }
    }

    /// Goal: nor does one that lies a little farther off than all others lie apart: it may be the first of its kind.
    #[test]
    fn a_run_that_lies_farther_off_than_others_did_shows_nothing_yet() {
        const WORLDS: u64 = 200;
        let spread = 0.02;
        for form in [Form::Sides { runs: 1, others: 24 }, Form::OneAgainst(25)] {
            let alarms = differing(form, Weather::Normal, [spread; 2], 4.5 * spread, WORLDS);
            assert!(alarms * 10 <= WORLDS, "{form:?}: {alarms} of {WORLDS}");
        }
    }

    /// Goal: runs in turn find a tenth more in four of five cases, and a third more always, although the days differ by more.
    #[test]
    fn a_true_change_is_found_in_turn() {
        const WORLDS: u64 = 500;
        for (form, spread) in [(Form::InTurn(5), [0.015, 0.01]), (Form::InTurn(10), [0.035, 0.02])] {
            let tenth = differing(form, Weather::Normal, spread, f64::ln(1.1), WORLDS);
            let third = differing(form, Weather::Normal, spread, f64::ln(1.3), WORLDS);
            println!("{form:?}: +10 % in {tenth}, +30 % in {third} of {WORLDS}");
            assert!(tenth * 5 >= WORLDS * 4, "{form:?}: +10 % found in {tenth} of {WORLDS}");
            assert_eq!(third, WORLDS, "{form:?}: +30 %");
        }
    }

    /// Goal: as many pairs as it asks for find a tenth more in four of five cases, and clearly fewer do not.
    #[test]
    fn as_many_pairs_as_are_asked_for_find_it() {
        const WORLDS: u64 = 500;
        let spread = [0.05, 0.02];
        let mut asked: Vec<usize> = (0..WORLDS)
            .map(|seed| {
                let [between, trial] = spread;
                let mut world = World { random: Rng::new(seed), weather: Weather::Normal, between, trial };
                let sides = Sides { a: world.runs(10, 0.0), b: world.runs(10, 0.0), history: Vec::new() };
                let options = Options::new(Load::Closed, 0);
                let separate = Options { order: Order::Separate, ..options.clone() };
                assert_eq!(sides.pairs_needed(&separate), None);
                sides.pairs_needed(&options).expect("ten pairs")
            })
            .collect();
        asked.sort_unstable();
        let pairs = asked[asked.len() / 2];
        let found = |pairs| differing(Form::InTurn(pairs), Weather::Normal, spread, f64::ln(1.1), WORLDS);
        let [all, half] = [pairs, pairs / 2].map(found);
        println!("{pairs} pairs find it in {all} of {WORLDS}, half of them in {half}");
        assert!(all * 5 >= WORLDS * 4 && half * 5 < WORLDS * 4, "{pairs} pairs: {all}, half of them: {half}");
    }

    /// Goal: no number of pairs finds what the clock does not resolve, and one that does asks for no more.
    #[test]
    fn no_number_of_pairs_finds_what_the_clock_hides() {
        let mut world = World { random: Rng::new(5), weather: Weather::Normal, between: 0.001, trial: 0.001 };
        // The median of this world is e⁹, some 8,100 ns.
        let sides = Sides { a: world.runs(10, 0.0), b: world.runs(10, 0.0), history: Vec::new() };
        let needed = |resolution_ns| {
            let options = Options { resolution_ns, ..Options::new(Load::Closed, 0) };
            (sides.pairs_needed(&options), sides.is_unresolved(resolution_ns))
        };
        assert_eq!(needed(800), (Some(PAIRS_MIN), false));
        assert_eq!(needed(820), (Some(PAIRS_NEEDED_MAX), true));
    }

    /// Goal: to stop once enough pairs are there errs no more often than a number of pairs that was fixed before.
    #[test]
    fn to_stop_at_enough_pairs_errs_no_more_often() {
        const WORLDS: u64 = 1_000;
        let [mut alarms, mut found] = [0, 0];
        for seed in 0..WORLDS {
            for (change, count) in [(0.0, &mut alarms), (f64::ln(1.1), &mut found)] {
                let random = Rng::new(seed);
                let mut world = World { random, weather: Weather::Normal, between: 0.05, trial: 0.02 };
                let (a, b) = (world.runs(PAIRS_MIN, 0.0), world.runs(PAIRS_MIN, change));
                let mut sides = Sides { a, b, history: Vec::new() };
                let options = Options::new(Load::Closed, 0);
                let wanted = |sides: &Sides| enough_for(sides.pairs_needed(&options).into_iter().collect());
                while wanted(&sides) > sides.a.len() {
                    let more = wanted(&sides) - sides.a.len();
                    sides.a.extend(world.runs(more, 0.0));
                    sides.b.extend(world.runs(more, change));
                }
                let measures = sides.measures(&options);
                *count += u64::from(measures.iter().any(|m| m.difference != Difference::None));
            }
        }
        println!("the same called different {alarms}, +10 % found {found} of {WORLDS}");
        assert!(alarms * 20 <= WORLDS && found * 5 >= WORLDS * 4, "{alarms} {found}");
    }

    /// Goal: trials of one run tell nothing of how far runs lie apart. Method: the trials of each run agree to a
    /// thousandth, and the runs differ by a fifth; alone they show nothing, beside their history they are far out of it.
    #[test]
    fn trials_do_not_stand_for_runs() {
        let mut world = World { random: Rng::new(5), weather: Weather::Normal, between: 0.0, trial: 0.001 };
        let options = Options { order: Order::Separate, ..Options::new(Load::Closed, 0) };
        let mut sides = Sides { a: world.runs(1, 0.0), b: world.runs(1, 0.2), history: Vec::new() };
        let differs =
            |sides: &Sides| sides.measures(&options).iter().any(|m| m.difference != Difference::None);
        assert_eq!(sides.basis(Order::Separate), Basis::Bound);
        assert!(!differs(&sides));
        sides.history = world.runs(5, 0.0);
        assert_eq!(sides.basis(Order::Separate), Basis::Runs(4));
        assert!(differs(&sides));
        world.between = 0.2;
        sides.history = world.runs(5, 0.0);
        assert!(!differs(&sides));
    }

    /// Goal: the values shown of both sides are those of the pairs, too, and both have as many runs.
    #[test]
    fn a_run_without_a_partner_is_not_shown() {
        let mut world = World { random: Rng::new(3), weather: Weather::Normal, between: 0.02, trial: 0.01 };
        for is_a_longer in [true, false] {
            let mut a = world.runs(6, 0.0);
            let mut b: Vec<RunValue> = a.iter().map(|run| run.scaled(1.5)).collect();
            if is_a_longer { &mut a } else { &mut b }.push(world.run(3.0, 0.0));
            let mut sides = Sides { a, b, history: Vec::new() };
            let silent = sides.leave_out_silent(Order::Interleaved);
            assert!(silent.is_empty() && sides.a.len() == 6 && sides.b.len() == 6, "{silent:?}");
            for measure in sides.measures(&Options::new(Load::Closed, 0)) {
                let (a, b) = (measure.a.expect("finite"), measure.b.expect("finite"));
                let is_the_ratio = measure.ratio.is_some_and(|ratio| (b / a / ratio - 1.0).abs() < 1e-6);
                assert!(is_the_ratio || measure.aspect == Aspect::StallsPerMinute, "{measure:?}");
            }
        }
        let [a, b] = [world.runs(3, 0.0), world.runs(2, 0.0)];
        let mut apart = Sides { a, b, history: Vec::new() };
        apart.leave_out_silent(Order::Separate);
        assert_eq!((apart.a.len(), apart.b.len()), (3, 2), "nobody has a partner there");
    }

    /// Goal: a ratio is that of the pairs, wherever a run without a partner lies.
    #[test]
    fn a_run_without_a_partner_moves_no_ratio() {
        let mut world = World { random: Rng::new(3), weather: Weather::Normal, between: 0.02, trial: 0.01 };
        let mut a = world.runs(6, 0.0);
        let b = a.iter().map(|run| run.scaled(1.5)).collect();
        a.push(world.run(3.0, 0.0));
        let measures = Sides { a, b, history: Vec::new() }.measures(&Options::new(Load::Closed, 0));
        assert!(!measures.is_empty());
        for measure in measures {
            let is_of_pairs = measure.ratio.is_some_and(|ratio| (ratio - 1.5).abs() < 1e-6);
            assert!(is_of_pairs && measure.difference == Difference::Slower, "{measure:?}");
        }
    }
}
