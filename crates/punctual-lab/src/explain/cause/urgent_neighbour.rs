//! Urgent neighbour: ready to run, and a real-time thread ran. User space alone does not see which thread ran.

use super::{BLANK, Definition};
use crate::explain::injection::{Hog, How, Injection, Made, Needs, Scene};
use crate::scheduling::Urgency;

pub(super) static DEFINITION: Definition = Definition {
    name: "urgent_neighbour",
    words: "ready to run, but a real-time thread had the CPU",
    fix: "move that thread to another CPU (taskset), or lower its class (chrt)",
    fixes: &["pin"],
    in_trace: |clue| Some(clue.trace.name(clue.urgent_neighbour()?)),
    without_trace: Some("run_queue"),
    injections: &[Injection {
        name: "real-time-hog",
        how: How::Outside(hog),
        needs: Needs::Urgency(URGENCY),
    }],
    ..BLANK
};

const URGENCY: Urgency = Urgency::Fifo(50);

fn hog(scene: &Scene, side: usize, lasts_ns: u64) -> Made {
    scene.hogs(side, lasts_ns, &Hog { count: 1, urgency: URGENCY })
}
