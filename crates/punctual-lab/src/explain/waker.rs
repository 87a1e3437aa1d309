//! The thread that another one waited for, and its own states meanwhile: followed from waker to waker.

use super::account::{Account, Part, account};
use super::naming::part_words;
use super::trace::Trace;

/// Largest number of wakers that are followed.
const LINKS_MAX: usize = 4;

/// Of many short waits the longest are looked at.
const SPANS_MAX: usize = 32;

/// A thread that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The thread.
    pub thread: u32,
    /// Its state for most of the time that it was waited for.
    pub part: Part,
    /// Time in that state.
    pub ns: u64,
    /// Time that it was waited for.
    pub of_ns: u64,
}

/// The threads that were waited for: first the waker of the late thread, then the waker of that one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain(Vec<Link>);

impl Chain {
    /// Behind the waits of this kind in an account.
    pub fn behind(trace: &Trace, late: &Account, part: Part) -> Self {
        let mut links: Vec<Link> = Vec::new();
        let (mut part, mut spans) = (part, longest(late.spans(part).collect()));
        while let Part::Blocked { woken_by: Some(thread), is_interrupt: false, .. } = part {
            if links.len() == LINKS_MAX || links.iter().any(|link| link.thread == thread) {
                break;
            }
            let pieces = spans.iter().flat_map(|&span| account(trace, thread, span).pieces).collect();
            let waker = Account { pieces, ..Account::default() };
            let Some((most, ns)) = most_of(&waker) else { break };
            links.push(Link { thread, part: most, ns, of_ns: waker.total_ns() });
            (part, spans) = (most, longest(waker.spans(most).collect()));
        }
        Self(links)
    }

    /// The thread that had the CPU while the last link was ready. `None` unless each link was waited for because of the next for half
    /// of the time or more.
    pub fn is_preempted_by(&self) -> Option<u32> {
        let last = self.0.last().filter(|_| self.0.iter().all(|link| link.ns * 2 >= link.of_ns))?;
        if let Part::Ready { instead } = last.part { Some(instead) } else { None }
    }

    /// "woken by holder (12), mostly ready while hog (13) ran".
    pub fn words(&self, trace: &Trace) -> String {
        let mut words = String::new();
        for (place, link) in self.0.iter().enumerate() {
            let by = if place == 0 { "woken by " } else { ", itself woken by " };
            words += by;
            words += &trace.name(link.thread);
            if place + 1 == self.0.len() && link.part != Part::Unexplained {
                words += ", mostly ";
                words += &doing(link.part, trace);
            }
        }
        words
    }
}

/// Part that took most of the time. All ready time is one part, regardless of the threads that had the CPU; the one that had it longest
/// is named.
fn most_of(account: &Account) -> Option<(Part, u64)> {
    let sums = account.sums();
    let is_ready = |&&(part, _): &&(Part, u64)| matches!(part, Part::Ready { .. });
    let ready_ns: u64 = sums.iter().filter(is_ready).map(|(_, ns)| ns).sum();
    let longest = *sums.first()?;
    match sums.iter().find(is_ready) {
        Some(&(part, _)) if ready_ns >= longest.1 => Some((part, ready_ns)),
        _ => Some(longest),
    }
}

/// Activity of a thread.
fn doing(part: Part, trace: &Trace) -> String {
    if part == Part::Running { "running".to_owned() } else { part_words(part, trace) }
}

/// The longest of them.
pub(super) fn longest(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_by_key(|&(from, to)| std::cmp::Reverse(to - from));
    spans.truncate(SPANS_MAX);
    spans
}

#[cfg(test)]
mod tests;
