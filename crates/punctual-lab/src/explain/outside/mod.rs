//! Any threads, seen from outside: the time that each waited or was kept from running, and why.
//!
//! Nobody says when a message was due. The trace tells when a thread was ready and did not run, and when it waited. A thread that waits
//! for events or for a time has nothing to do. It is not late. Of a wait in a futex the kernel does not tell a lock from an empty
//! queue.

pub mod live;
pub mod text;
mod wait;

use serde::{Deserialize, Serialize};

use super::account::account;
use super::cause::Cause;
use super::clue::Excess;
use super::finding::Explained;
use super::recorder::BEFORE_NS;
use super::seen::Seen;
use super::stage::Side;
use super::timeline::{State, Stretch, states};
use super::trace::Trace;
use crate::scheduling::Urgency;
use crate::stall::Stall;
use wait::{Calls, Wait};

/// The kinds of lateness.
const WAKE_UP: &str = "wake-up";
const OFF_CPU: &str = "off the CPU";
const WAITING: &str = "waiting";

/// Latenesses that are explained one by one, the longest; of more the rest is counted.
const EXPLAINED_MAX: usize = 2_000;

/// A question about threads.
pub struct Question<'a> {
    /// The threads asked about.
    pub threads: &'a [u32],
    /// Shortest time that counts as late.
    pub threshold_ns: u64,
    /// Counters of a thread's control groups in an interval.
    pub withheld: &'a dyn Fn(u32, (u64, u64)) -> Option<Seen>,
}

/// One time that a thread was kept from running, or waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// The thread.
    pub thread: u32,
    /// Its process, where that is known.
    pub process: Option<u32>,
    /// It waited for another thread, and may have had nothing else to do.
    pub may_be_idle: bool,
    /// The system call in which it was, where calls were recorded.
    pub call: Option<String>,
    /// When, how long and why.
    #[serde(flatten)]
    pub explained: Explained,
}

/// All that one thread did, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// The thread.
    pub thread: u32,
    /// Name of the thread.
    pub name: String,
    /// Its process, where that is known.
    pub process: Option<u32>,
    /// It ran, interrupts included.
    pub ran_ns: u64,
    /// It was ready, stopped, or had no CPU for another reason.
    pub kept_ns: u64,
    /// It waited for events or for a time.
    pub idle_ns: u64,
    /// It waited for another thread, idle or not.
    pub perhaps_idle_ns: u64,
    /// It waited for anything else.
    pub waited_ns: u64,
    /// The trace does not tell.
    pub unknown_ns: u64,
    /// Number of times that it was late, idle waits left out.
    pub late: u64,
    /// Time of these latenesses, by cause, the largest first.
    pub causes: Vec<CauseTime>,
    /// Its state all the time, by `/proc`, where the trace has no event of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_the_time: Option<String>,
}

/// Time that one cause took in a thread's latenesses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CauseTime {
    /// Which; unexplained for the rest.
    pub cause: Cause,
    /// In how many latenesses.
    pub times: u64,
    /// Total time.
    pub ns: u64,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Latenesses, the longest first.
    pub late: Vec<Lateness>,
    /// Latenesses that were too many to be explained one by one.
    pub left_out: u64,
    /// Every thread that the trace knows something of, the latest first.
    pub threads: Vec<ThreadTime>,
    /// Time of which everything is known.
    pub known_ns: u64,
    /// Events that were lost.
    pub lost: u64,
}

/// A stretch that is long enough to be explained.
struct Candidate {
    thread: u32,
    span: (u64, u64),
    stage: &'static str,
    wait: Option<Wait>,
    call: Option<u32>,
}

/// Explains where the time of these threads went.
pub fn explain(trace: &Trace, question: &Question<'_>) -> Answer {
    let known = trace.known();
    let mut answer = Answer {
        known_ns: known.iter().map(|(from, to)| to - from).sum(),
        lost: trace.lost(),
        ..Answer::default()
    };
    let calls = Calls::of(trace);
    let mut candidates = Vec::new();
    for &thread in question.threads {
        let mut is_silent = true;
        let mut time = ThreadTime {
            thread,
            name: trace.tasks.get(&thread).map_or_else(String::new, |task| task.name.clone()),
            process: trace.processes.get(&thread).copied(),
            ..ThreadTime::default()
        };
        for &stretch in &known {
            let states = states(trace, thread, stretch);
            // It did nothing at all: it slept, or was not there.
            if states.len() > 1 {
                is_silent = false;
                time.add(&states, &calls, stretch.0);
                candidates.extend(candidates_of(thread, &states, &calls, stretch.0, question.threshold_ns));
            }
        }
        if let Some(&letter) = trace.states.get(&thread).filter(|_| is_silent) {
            (time.unknown_ns, time.all_the_time) = (answer.known_ns, Some(state_words(letter)));
            answer.threads.push(time);
        } else if time.ran_ns + time.kept_ns + time.waited_ns + time.idle_ns + time.perhaps_idle_ns > 0 {
            answer.threads.push(time);
        }
    }
    candidates.sort_by_key(|one| (std::cmp::Reverse(one.span.1 - one.span.0), one.span.0));
    answer.left_out = candidates.len().saturating_sub(EXPLAINED_MAX) as u64;
    candidates.truncate(EXPLAINED_MAX);
    let began_ns = known.first().map_or(0, |first| first.0);
    answer.late = candidates.iter().map(|one| explain_one(trace, one, question, began_ns)).collect();
    answer.sum();
    answer
}

/// The state that a letter of `/proc` stands for.
fn state_words(letter: char) -> String {
    match letter {
        'R' => "running or ready".to_owned(),
        'S' => "asleep".to_owned(),
        'D' => "asleep where no signal wakes".to_owned(),
        'T' => "stopped".to_owned(),
        't' => "held by a tracer".to_owned(),
        'Z' | 'X' => "ended".to_owned(),
        other => format!("in state {other}"),
    }
}

impl ThreadTime {
    fn add(&mut self, states: &[Stretch<State>], calls: &Calls, since_ns: u64) {
        for state in states {
            let ns = state.to_ns.saturating_sub(state.from_ns);
            *match state.what {
                State::Running(_) => &mut self.ran_ns,
                State::Ready { .. } | State::Moving { .. } | State::Stopped { .. } => &mut self.kept_ns,
                State::Blocked { .. } => match calls.wait(self.thread, state, since_ns).0 {
                    Wait::Idle => &mut self.idle_ns,
                    Wait::PerhapsIdle => &mut self.perhaps_idle_ns,
                    Wait::Late => &mut self.waited_ns,
                },
                State::Unknown => &mut self.unknown_ns,
            } += ns;
        }
    }
}

/// Stretches of a thread no shorter than the threshold. A stretch under way at the beginning or the end of the trace is left out,
/// as its length is unknown.
fn candidates_of(
    thread: u32,
    states: &[Stretch<State>],
    calls: &Calls,
    since_ns: u64,
    threshold_ns: u64,
) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let ended = states.len().saturating_sub(1);
    let mut is_open = false;
    for state in &states[..ended] {
        let span = (state.from_ns, state.to_ns);
        let is_kept =
            matches!(state.what, State::Ready { .. } | State::Moving { .. } | State::Stopped { .. });
        if span.0 <= since_ns {
            is_open = false;
            continue;
        }
        match state.what {
            State::Ready { .. } | State::Moving { .. } | State::Stopped { .. } if is_open => {
                if let Some(last) = found.last_mut() {
                    last.span.1 = span.1;
                }
            }
            State::Ready { was_woken, .. } => {
                let stage = if was_woken { WAKE_UP } else { OFF_CPU };
                found.push(Candidate { thread, span, stage, wait: None, call: None });
            }
            State::Moving { .. } | State::Stopped { .. } => {
                found.push(Candidate { thread, span, stage: OFF_CPU, wait: None, call: None });
            }
            State::Blocked { .. } => {
                let (wait, call) = calls.wait(thread, state, since_ns);
                if wait != Wait::Idle {
                    found.push(Candidate { thread, span, stage: WAITING, wait: Some(wait), call });
                }
            }
            State::Running(_) | State::Unknown => {}
        }
        is_open = is_kept;
    }
    found.retain(|one| one.span.1 - one.span.0 >= threshold_ns.max(1));
    found
}

fn explain_one(trace: &Trace, one: &Candidate, question: &Question<'_>, began_ns: u64) -> Lateness {
    let &Candidate { thread, span, stage, wait, call } = one;
    let ns = span.1 - span.0;
    // The whole trace would be searched for each.
    let part = trace.within((span.0.saturating_sub(BEFORE_NS), span.1.saturating_add(BEFORE_NS)));
    let is_urgent = trace.tasks.get(&thread).is_some_and(|task| (0..100).contains(&task.priority));
    let excess = Excess {
        message_ns: ns,
        stage_ns: ns,
        usual_ns: 0,
        stage,
        side: Side::Thread,
        // The exact real-time class and its priority make no difference to any cause.
        urgency: if is_urgent { Urgency::Fifo(1) } else { Urgency::Other },
        runs_handlers: true,
        has_control: false,
        tracer: None,
    };
    let stall =
        Stall { release_ns: span.1.saturating_sub(began_ns), first_index: 0, messages: 1, longest_ns: ns };
    let mut explained = Explained::of_stall(stall, span.0.saturating_sub(began_ns), ns);
    explained.stage = Some(stage.to_owned());
    explained.stage_excess_ns = ns;
    explained.side = Some(Side::Thread);
    explained.role = Some(trace.name(thread));
    let account = account(&part, thread, span);
    explained.charge(Some((&part, &account)), &excess, (question.withheld)(thread, span).as_ref());
    // Where whom it waited for was kept from its work, so was it.
    let is_open = [Cause::named("waited"), Cause::UNEXPLAINED].contains(&explained.cause());
    Lateness {
        thread,
        process: trace.processes.get(&thread).copied(),
        may_be_idle: wait == Some(Wait::PerhapsIdle) && is_open,
        call: call.and_then(|number| trace.calls.get(&number).cloned()),
        explained,
    }
}

impl Answer {
    /// Sums of what was late, per thread and cause.
    fn sum(&mut self) {
        for (number, late) in self.late.iter_mut().enumerate() {
            late.explained.stall.first_index = number as u64;
            let Some(time) = self.threads.iter_mut().find(|time| time.thread == late.thread) else {
                continue;
            };
            if late.may_be_idle {
                continue;
            }
            time.late += 1;
            let one = &late.explained;
            let causes = one.causes.iter().map(|cause| (cause.name, cause.ns));
            for (cause, ns) in
                causes.chain([(Cause::UNEXPLAINED, one.unexplained_ns)]).filter(|(_, ns)| *ns > 0)
            {
                match time.causes.iter_mut().find(|other| other.cause == cause) {
                    Some(other) => (other.times, other.ns) = (other.times + 1, other.ns + ns),
                    None => time.causes.push(CauseTime { cause, times: 1, ns }),
                }
            }
        }
        let late_ns = |time: &ThreadTime| time.causes.iter().map(|cause| cause.ns).sum::<u64>();
        for time in &mut self.threads {
            time.causes.sort_by_key(|cause| (std::cmp::Reverse(cause.ns), cause.cause));
        }
        self.threads.sort_by_key(|time| (std::cmp::Reverse(late_ns(time)), time.thread));
    }
}

#[cfg(test)]
mod tests;
