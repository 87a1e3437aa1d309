//! The figures of the article that this experiment comes from, beside ours.
//!
//! Its harness: 512 bytes, closed load without a gap, 500,000 round trips at the client. Its responder is a board of
//! 925 MHz at the other end of a wire; so what compares is the shape, not the size.

use serde::{Deserialize, Serialize};

use crate::endpoint::port::Way;
use crate::sample::Load;
use crate::summary::CellResult;
use crate::units::OptionName;

/// Bytes of the article's packets.
const SIZE: usize = 512;

/// One row of the article.
#[derive(Clone, Copy, Debug)]
struct Published {
    board: &'static str,
    /// Mean, least and most, µs.
    us: [f64; 3],
    /// The way of ours that comes nearest.
    way: Way,
    differs: &'static str,
}

/// All of them.
const PUBLISHED: [Published; 3] = [
    Published {
        board: "Embox, debug build, caches off",
        us: [4520.0, 3120.0, 12_240.0],
        way: Way::Packet,
        differs: "no cache and no optimisation at the responder; 100 Mb/s, of which the wire takes 92.5 µs",
    },
    Published {
        board: "Embox, tuned, 1 Gb/s",
        us: [80.0, 70.0, 4310.0],
        way: Way::Packet,
        differs: "a stack without a boundary between kernel and application: nearest here are frames taken in user space",
    },
    Published {
        board: "Linux on the same board",
        us: [770.0, 740.0, 5310.0],
        way: Way::Blocking,
        differs: "its server printed every packet inside the loop, Embox's did not; both maxima are the client's, which \
                  took its own real-time class to mend them",
    },
];

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The article's responder.
    pub board: String,
    /// Mean, least and most, µs, as published.
    pub published_us: [f64; 3],
    /// Ours that comes nearest: `<way>/round_trip`.
    pub name: String,
    /// Mean of ours, nanoseconds.
    pub mean_ns: Option<f64>,
    /// The fastest trip of ours, nanoseconds.
    pub min_ns: Option<u64>,
    /// The slowest, nanoseconds; none if one was lost.
    pub max_ns: Option<u64>,
    /// The lowest of its p50 … max that is infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infinite_from: Option<String>,
    /// The difference, and the reason.
    pub differs: String,
}

/// The rows whose way was measured under the article's load, each beside ours.
pub fn comparison(results: &[CellResult]) -> Vec<Compared> {
    let compared = |published: &Published| {
        let is_alike = |result: &&CellResult| {
            let cell = &result.cell;
            cell.engine == published.way.name()
                && (cell.size, cell.gap_us, cell.gap_rest_ns, cell.load) == (SIZE, 0, 0, Load::Closed)
        };
        let result = results.iter().find(is_alike)?;
        Some(Compared {
            board: published.board.to_owned(),
            published_us: published.us,
            name: result.cell.name.clone(),
            mean_ns: result.figures.mean,
            min_ns: result.figures.min,
            max_ns: result.figures.max,
            infinite_from: result.figures.infinite_from.clone(),
            differs: published.differs.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    };
    PUBLISHED.iter().filter_map(compared).collect()
}

/// Stages of the responder's host: from its kernel's first sight of a request to its device's taking of the reply.
const INSIDE: [&str; 5] = ["request.woken", "request.read", "responder", "reply.tx", "request.elsewhere"];

/// The part of all trips' time that passes inside the responder's host, as the article's board stamped it: from the
/// entry of the frame to `net_tx`. None where its stamps do not say.
pub fn inside_share(result: &CellResult) -> Option<f64> {
    let share = |name: &str| result.stages.iter().find(|stage| stage.name == name).map(|stage| stage.share);
    // Without these two it is not known where the inside begins or ends.
    share(INSIDE[0]).and(share(INSIDE[3]))?;
    Some(INSIDE.iter().filter_map(|name| share(name)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::CellId;
    use crate::stats::StageShare;

    fn result(engine: &str, size: usize, stages: &[(&str, f64)]) -> CellResult {
        let stage = |&(name, share): &(&str, f64)| StageShare {
            name: name.to_owned(),
            count: 1,
            median_ns: 1,
            share,
        };
        let cell = CellId { size, ..CellId::new(engine, "round_trip") };
        CellResult { stages: stages.iter().map(stage).collect(), ..CellResult::of(&cell, &[], 0) }
    }

    #[test]
    fn only_what_was_measured_alike_is_compared() {
        let rows = comparison(&[result("blocking", 512, &[]), result("packet", 64, &[])]);
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].board.as_str(), rows[0].name.as_str()),
            ("Linux on the same board", "blocking/round_trip")
        );
        let rows = comparison(&[result("packet", 512, &[])]);
        assert_eq!(rows.iter().map(|row| row.published_us[0] as u64).collect::<Vec<_>>(), [4520, 80]);
    }

    #[test]
    fn the_inside_is_known_with_both_of_its_ends() {
        let all = [
            ("request.tx", 0.3),
            ("request.woken", 0.2),
            ("request.read", 0.05),
            ("responder", 0.05),
            ("reply.tx", 0.1),
        ];
        let share = inside_share(&result("spin", 512, &all)).expect("known");
        assert!((share - 0.4).abs() < 1e-9, "{share}");
        assert_eq!(inside_share(&result("spin", 512, &all[..4])), None);
        assert_eq!(inside_share(&result("spin", 512, &all[2..])), None);
    }
}
