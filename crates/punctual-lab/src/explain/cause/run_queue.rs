//! Run queue: ready to run, and others ran.

use super::{BLANK, Definition};
use crate::explain::injection::{Hog, How, Injection, Made, Needs, Scene};
use crate::explain::start::StartStep;
use crate::scheduling::Urgency;

pub(super) static DEFINITION: Definition = Definition {
    name: "run_queue",
    words: "ready to run, but the CPU was another's",
    fix: "give the thread a CPU of its own (taskset, isolcpus; --client-cpu and --responder-cpu of run response), or --sched fifo:50 where there is that option",
    fixes: &["class"],
    in_trace: |clue| Some(clue.trace.name(clue.ordinary_neighbour()?)),
    in_windows: |glance| glance.ready_us(),
    in_start: &[StartStep::Queued],
    injections: &[
        Injection { name: "hog", how: How::Outside(hog), needs: Needs::Nothing },
        Injection { name: "crowd-at-start", how: How::AtStart, needs: Needs::Nothing },
        Injection { name: "favoured-hog", how: How::Outside(favoured), needs: Needs::Urgency(FAVOURED) },
    ],
    ..BLANK
};

/// As many as take the CPU for longer than a slice.
fn hog(scene: &Scene, side: usize, lasts_ns: u64) -> Made {
    scene.hogs(side, lasts_ns, &Hog { count: 4, urgency: Urgency::Other })
}

const FAVOURED: Urgency = Urgency::Nice(-20);

fn favoured(scene: &Scene, side: usize, lasts_ns: u64) -> Made {
    scene.hogs(side, lasts_ns, &Hog { count: 1, urgency: FAVOURED })
}
