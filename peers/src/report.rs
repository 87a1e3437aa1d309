//! Figures of single turns: stored one by one, and printed as one table.

use std::fmt;

use crate::rounds::{Game, Kind, Outcomes};

/// Mechanisms with which everything is compared where they were measured, in this order.
const REFERENCES: [&str; 2] = ["floor/slot", "punctual shared/spin"];

/// One turn of one mechanism.
#[derive(Debug)]
pub(crate) struct Figures {
    opening: usize,
    number: usize,
    kind: &'static str,
    game: Game,
    size: usize,
    count: usize,
    of: Of,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    /// Round trips, ns.
    Latency { p50: u64, p99: u64, p999: u64, max: u64 },
    /// Messages per second.
    Rate(f64),
}

impl Figures {
    /// Of the turn of this opening and round.
    pub(crate) fn of(
        [opening, number]: [usize; 2],
        kind: Kind,
        game: Game,
        size: usize,
        outcomes: Outcomes,
    ) -> Self {
        let (count, of) = match outcomes {
            Outcomes::Latencies(mut latencies) => {
                latencies.sort_unstable();
                let at = |share| quantile(&latencies, share);
                let of = Of::Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) };
                (latencies.len(), of)
            }
            Outcomes::Duration(ns) => {
                let messages = kind.plan(game, size).messages;
                (messages, Of::Rate(messages as f64 * 1e9 / ns.max(1) as f64))
            }
        };
        Self { opening, number, kind: kind.name, game, size, count, of }
    }

    /// The figure that ratios are made of: larger is slower.
    fn slowness(&self) -> f64 {
        match self.of {
            Of::Latency { p50, .. } => p50 as f64,
            Of::Rate(rate) => 1e9 / rate,
        }
    }
}

fn quantile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}

/// A line of JSON.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opening, number, kind, game, size, count, of } = self;
        let game = game.name();
        write!(
            f,
            r#"{{"opening":{opening},"round":{number},"game":"{game}","kind":"{kind}","size":{size},"count":{count},"#
        )?;
        match of {
            Of::Latency { p50, p99, p999, max } => {
                write!(f, r#""p50":{p50},"p99":{p99},"p999":{p999},"max":{max}}}"#)
            }
            Of::Rate(rate) => write!(f, r#""per_second":{rate:.0}}}"#),
        }
    }
}

/// Medians over rounds, and the median of what each round's ratio to a reference was.
pub(crate) fn print(figures: &[Figures]) {
    let mut tables: Vec<(Game, usize)> = figures.iter().map(|one| (one.game, one.size)).collect();
    tables.sort_by_key(|(game, size)| (game.name(), *size));
    tables.dedup();
    for (game, size) in tables {
        let table: Vec<&Figures> =
            figures.iter().filter(|one| one.game == game && one.size == size).collect();
        print_table(game, size, &table);
    }
}

fn print_table(game: Game, size: usize, table: &[&Figures]) {
    let columns = match game {
        Game::PingPong => ["p50 µs", "p99", "p99.9", "max"],
        Game::Stream => ["M msg/s", "MB/s", "least", "most"],
    };
    let [one, two, three, four] = columns;
    println!("\n{} of {size} B: medians over rounds", game.name());
    println!(
        "{:<30}{one:>9}{two:>9}{three:>9}{four:>10}  {:<26}/ {}",
        "",
        format!("p50 / {}", REFERENCES[0]),
        REFERENCES[1]
    );
    let mut kinds: Vec<&str> = Vec::new();
    for figures in table {
        if !kinds.contains(&figures.kind) {
            kinds.push(figures.kind);
        }
    }
    for kind in kinds {
        let rounds: Vec<&Figures> = table.iter().filter(|one| one.kind == kind).copied().collect();
        let ratios = REFERENCES.map(|reference| ratio(table, &rounds, reference));
        println!("{kind:<30}{}  {:<26}{}", row(size, &rounds), ratios[0], ratios[1]);
    }
}

fn row(size: usize, rounds: &[&Figures]) -> String {
    let over = |value: &dyn Fn(&Of) -> f64| median(rounds.iter().map(|one| value(&one.of)).collect());
    if rounds.iter().any(|one| matches!(one.of, Of::Rate(_))) {
        let mut rates: Vec<f64> = rounds.iter().map(|one| 1e3 / one.slowness()).collect();
        rates.sort_by(f64::total_cmp);
        let middle = median(rates.clone());
        let bytes = middle * size as f64;
        let [least, most] = [rates[0], rates[rates.len() - 1]];
        return format!("{middle:>9.2}{bytes:>9.0}{least:>9.2}{most:>10.2}");
    }
    let latency = |pick: fn(&Of) -> u64| over(&|of| pick(of) as f64 / 1000.0);
    let p50 = latency(|of| if let Of::Latency { p50, .. } = of { *p50 } else { 0 });
    let p99 = latency(|of| if let Of::Latency { p99, .. } = of { *p99 } else { 0 });
    let p999 = latency(|of| if let Of::Latency { p999, .. } = of { *p999 } else { 0 });
    let max = latency(|of| if let Of::Latency { max, .. } = of { *max } else { 0 });
    format!("{p50:>9.3}{p99:>9.3}{p999:>9.2}{max:>10.1}")
}

/// Median, least and most of what each round's own ratio was.
fn ratio(table: &[&Figures], rounds: &[&Figures], reference: &str) -> String {
    let mut ratios: Vec<f64> = rounds
        .iter()
        .filter_map(|one| {
            let other = table.iter().find(|other| other.kind == reference && other.number == one.number)?;
            Some(one.slowness() / other.slowness())
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    match (ratios.first(), ratios.last()) {
        (Some(least), Some(most)) => format!("{:.2} ({least:.2}–{most:.2})", median(ratios.clone())),
        _ => "–".to_owned(),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
