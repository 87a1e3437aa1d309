//! Real-time limit: a real-time thread for the time that the kernel keeps for others, 50 ms of each second. User space alone does not
//! see who ran: that it was ready for so long may be chance.

use super::{BLANK, Definition, Traits};
use crate::explain::injection::{How, Injection, Needs, Scene};
use crate::scheduling::Urgency;

pub(super) static DEFINITION: Definition = Definition {
    name: "real_time_limit",
    words: "ready to run, but at the kernel's limit for real-time threads",
    fix: "do not spin in a real-time class on a shared CPU; isolate the CPU, or --sched nice:-20",
    verify: "run it again with --sched nice:-20, and punctual compare RUN RUN",
    in_trace: |clue| clue.is_at_limit().then(|| clue.neighbour_name()),
    without_trace: Some("run_queue"),
    traits: Traits { is_work: false, is_of_class: true },
    injections: &[Injection {
        name: "real-time-limit",
        how: How::OutsideUrgent(Scene::wait_for_limit),
        needs: Needs::Urgency(Urgency::Fifo(50)),
    }],
    ..BLANK
};
