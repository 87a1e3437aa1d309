//! Checks whether all lives were told pieces of one sequence, and whether that has each message that a survivor broadcast, once.
//!
//! Views number the pieces. Lives that go on from a view delivered all of it: they must agree, and their deliveries are the sequence
//! there. A life that ends in a view delivered a piece from the view's begin on, and so did a life that joined in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use punctual::broadcast::Guarantee;

use super::log::{Delivered, Entry};
use crate::broadcast::option::BroadcastKind;

/// A message that says: this process broadcasts nothing more.
pub(super) const END: u64 = 1 << 63;
/// Behind these bits of a message's number: its process, among those of its place.
const PROCESS_SHIFT: u32 = 40;
/// Violations of each kind that are kept in words.
const SHOWN_MAX: usize = 10;

/// The number of a process's message.
pub(super) fn number(incarnation: u64, count: u64) -> u64 {
    incarnation << PROCESS_SHIFT | count
}

/// The process, of those at its place, that broadcast a message.
pub(super) fn process_of(number: u64) -> u64 {
    (number & !END) >> PROCESS_SHIFT
}

/// Records of a process, and the way it ended.
pub(super) struct ProcessLog<'a> {
    pub(super) place: usize,
    /// Processes that were at that place before.
    pub(super) incarnation: u64,
    pub(super) was_killed: bool,
    pub(super) entries: &'a [Entry],
}

/// A promise that does not hold. Each kind is another promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Two lives were told another sequence.
    Order,
    /// A message was delivered that was not broadcast.
    Content,
    /// A message that the group took is missing.
    Lost,
    /// A message stands twice in the sequence.
    Doubled,
    /// The group did not go on.
    Progress,
}

impl Broken {
    const KINDS: usize = 5;
}

/// A broken promise, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) of: Broken,
    pub(super) sentence: String,
}

/// Findings from the logs.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// The one sequence, each message with its delivery at the last life that went on.
    pub(super) sequence: Vec<(Delivered, u64)>,
    /// The violations, of each kind the first ones.
    pub(super) violations: Vec<Violation>,
    /// Number of violations.
    pub(super) violation_count: u64,
    /// The same, of each kind.
    pub(super) counts: [u64; Broken::KINDS],
    /// Lives that were in a view.
    pub(super) lives: u64,
}

impl History {
    pub(super) fn add(&mut self, of: Broken, sentence: String) {
        self.violation_count += 1;
        self.counts[of as usize] += 1;
        if self.violations.iter().filter(|violation| violation.of == of).count() < SHOWN_MAX {
            self.violations.push(Violation { of, sentence });
        }
    }
}

/// Messages that a life was told in one view.
struct Part<'a> {
    view: u64,
    lives: &'a [u64],
    messages: Vec<&'a Delivered>,
}

/// One life of a process. Sentences name it by place, process there and life of that.
struct Life<'a> {
    place: usize,
    incarnation: u64,
    /// Lives of the process before.
    ordinal: usize,
    /// It was neither killed nor expelled.
    survives: bool,
    parts: Vec<Part<'a>>,
    /// The first message that the process broadcast after its expulsion: of this life for certain.
    first_sent: Option<u64>,
}

impl fmt::Display for Life<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}.{}.{}", self.place, self.incarnation, self.ordinal)
    }
}

/// A message as sentences name it: place, process there and number of its sender.
struct Named<'a>(Option<&'a Delivered>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(message) = self.0 else { return f.write_str("nothing") };
        let (process, count) = (process_of(message.number), count_of(message.number));
        write!(f, "message {}.{process}.{count}", message.sender)
    }
}

/// The parts of a message that must be equal wherever it is delivered.
fn key(message: &Delivered) -> (u64, u64, usize, u64, u64, u64) {
    (message.view, message.index, message.sender, message.life, message.number, message.hash)
}

fn count_of(number: u64) -> u64 {
    number & ((1 << PROCESS_SHIFT) - 1)
}

/// Checks all logs of messages of one kind. `is_over`: every survivor was to deliver until all survivors had said that they broadcast
/// nothing more.
pub(super) fn check(logs: &[ProcessLog<'_>], kind: BroadcastKind, is_over: bool) -> History {
    let mut history = History::default();
    let mut lives = Vec::new();
    for log in logs {
        lives.extend(lives_of(log, &mut history));
    }
    lives.retain(|life| !life.parts.is_empty());
    if kind.guarantee() == Guarantee::Uniform {
        check_uniform(&lives, &mut history);
    } else {
        drop_unshared(&mut lives, is_over);
    }
    history.lives = lives.len() as u64;
    check_members(&lives, &mut history);
    let ends = sequence(&lives, is_over, &mut history);
    let places = check_once(&mut history);
    check_sent(logs, &lives, &places, is_over, &mut history);
    if is_over {
        check_ends(logs, &lives, &ends, &mut history);
    }
    history
}

/// The lives of a process, each checked by itself.
fn lives_of<'a>(log: &ProcessLog<'a>, history: &mut History) -> Vec<Life<'a>> {
    let new_life = |ordinal| Life {
        place: log.place,
        incarnation: log.incarnation,
        ordinal,
        survives: false,
        parts: Vec::new(),
        first_sent: None,
    };
    let mut lives = vec![new_life(0)];
    for entry in log.entries {
        let ordinal = lives.len();
        let life = lives.last_mut().expect("a process has a life");
        match entry {
            Entry::Expelled { .. } => lives.push(new_life(ordinal)),
            Entry::Sent { number, .. } => life.first_sent = life.first_sent.or(Some(*number)),
            Entry::View { number, lives: members, .. } => {
                let before = life.parts.last();
                if before.is_some_and(|before| number.checked_sub(before.view) != Some(1)) {
                    history.add(Broken::Order, format!("{life} was told view {number} out of turn"));
                }
                let own = members.get(log.place).copied().unwrap_or(0);
                if own == 0 || before.is_some_and(|before| before.lives[log.place] != own) {
                    history.add(Broken::Order, format!("{life} was told of view {number}, which is not its"));
                }
                life.parts.push(Part { view: *number, lives: members, messages: Vec::new() });
            }
            Entry::Delivered(message) => {
                let Some(part) = life.parts.last_mut() else {
                    history
                        .add(Broken::Order, format!("{life} delivered {} in no view", Named(Some(message))));
                    continue;
                };
                let is_in_turn = part.messages.last().is_none_or(|before| before.index < message.index);
                let is_of_member = part.lives.get(message.sender) == Some(&message.life);
                if part.view != message.view || !is_in_turn || !is_of_member {
                    let (of, view) = (Named(Some(message)), part.view);
                    let sentence = format!("{of} has no place where it was delivered, in view {view}");
                    history.add(Broken::Order, sentence);
                }
                part.messages.push(message);
            }
        }
    }
    let last = lives.last_mut().expect("a process has a life");
    last.survives = !log.was_killed;
    lives
}

/// A majority holds each message before it is delivered, where that was asked for.
fn check_uniform(lives: &[Life<'_>], history: &mut History) {
    for life in lives {
        let told = life.parts.iter().flat_map(|part| &part.messages);
        for message in told.filter(|message| !message.is_uniform) {
            let sentence = format!("{life} delivered {} before a majority held it", Named(Some(message)));
            history.add(Broken::Order, sentence);
        }
    }
}

/// Drops what a life that ended had last as agreed only: the others need not have it. A survivor of a trial that ended early may not
/// know yet that the others went on without it.
fn drop_unshared(lives: &mut [Life<'_>], is_over: bool) {
    let newest = |life: &Life<'_>| life.parts.last().map_or(0, |part| part.view);
    let last_view = lives.iter().map(newest).max().unwrap_or(0);
    for life in lives {
        let stays = life.survives && (is_over || newest(life) == last_view);
        let part = life.parts.last_mut().filter(|_| !stays);
        if let Some(part) = part {
            while part.messages.pop_if(|message| !message.is_uniform).is_some() {}
        }
    }
}

/// A view has the same members at all of them.
fn check_members(lives: &[Life<'_>], history: &mut History) {
    let mut members: BTreeMap<u64, &[u64]> = BTreeMap::new();
    for life in lives {
        for part in &life.parts {
            if *members.entry(part.view).or_insert(part.lives) != part.lives {
                history.add(Broken::Order, format!("{life} was told of other members of view {}", part.view));
            }
        }
    }
}

/// Makes the one sequence, and says of each view where it ends there.
fn sequence(lives: &[Life<'_>], is_over: bool, history: &mut History) -> BTreeMap<u64, usize> {
    let mut views: BTreeMap<u64, Vec<(&Life<'_>, &Part<'_>, bool)>> = BTreeMap::new();
    for life in lives {
        for (at, part) in life.parts.iter().enumerate() {
            let goes_on = at + 1 < life.parts.len();
            views.entry(part.view).or_default().push((life, part, goes_on));
        }
    }
    let mut ends = BTreeMap::new();
    for (view, parts) in views {
        // A life that goes on has all of it; where none did, a survivor; where none survived, or the trial ended early, the life that
        // was told most.
        let rank = |(life, part, goes_on): &&(&Life<'_>, &Part<'_>, bool)| {
            (*goes_on, is_over && life.survives && !goes_on, part.messages.len())
        };
        let Some((_, whole, _)) = parts.iter().max_by_key(rank) else { continue };
        let mut last_ns = vec![0; whole.messages.len()];
        for (life, part, goes_on) in &parts {
            check_piece(life, part, &whole.messages, *goes_on, history);
            if *goes_on || life.survives {
                let times = last_ns.iter_mut().zip(&part.messages);
                times.for_each(|(last_ns, message)| *last_ns = message.at_ns.max(*last_ns));
            }
        }
        let messages = whole.messages.iter().map(|message| **message);
        history.sequence.extend(messages.zip(last_ns));
        ends.insert(view, history.sequence.len());
    }
    ends
}

/// Checks that a life was told the same in a view as the others: all of it if the life goes on, else its begin.
fn check_piece(life: &Life<'_>, part: &Part<'_>, whole: &[&Delivered], is_all: bool, history: &mut History) {
    let most = if is_all { whole.len().max(part.messages.len()) } else { part.messages.len() };
    let at = |messages: &[&Delivered], at: usize| messages.get(at).map(|message| key(message));
    let differs = (0..most).find(|&place| at(&part.messages, place) != at(whole, place));
    let Some(place) = differs else { return };
    let (own, theirs) = (part.messages.get(place).copied(), whole.get(place).copied());
    let view = part.view;
    let is_one = own
        .zip(theirs)
        .is_some_and(|(own, theirs)| (own.sender, own.number) == (theirs.sender, theirs.number));
    let (own, theirs) = (Named(own), Named(theirs));
    let sentence = if is_one {
        format!(
            "{life} delivered {own} in view {view} with other bytes, or at another place, than the others"
        )
    } else {
        format!("{life} delivered {own} at place {place} of view {view}, where the others delivered {theirs}")
    };
    history.add(Broken::Order, sentence);
}

/// Every message stands in the sequence once. Says at which place.
fn check_once(history: &mut History) -> HashMap<(usize, u64), usize> {
    let mut places = HashMap::new();
    let mut doubled = Vec::new();
    for (place, (message, _)) in history.sequence.iter().enumerate() {
        if places.insert((message.sender, message.number & !END), place).is_some() {
            doubled.push(format!("{} stands twice in the sequence", Named(Some(message))));
        }
    }
    doubled.into_iter().for_each(|sentence| history.add(Broken::Doubled, sentence));
    places
}

/// Checks that delivered messages were broadcast so: those of each life without a gap, and all of a survivor's.
fn check_sent(
    logs: &[ProcessLog<'_>],
    lives: &[Life<'_>],
    places: &HashMap<(usize, u64), usize>,
    is_over: bool,
    history: &mut History,
) {
    let mut sent: HashMap<(usize, u64), u64> = HashMap::new();
    for log in logs {
        let mut next = number(log.incarnation, 0);
        let mut since_expelled = Vec::new();
        for entry in log.entries {
            match entry {
                Entry::Sent { number, hash } => {
                    sent.insert((log.place, number & !END), *hash);
                    next = (number & !END) + 1;
                    // The ends are repeated for members that join late, as long as the processes run.
                    since_expelled.extend((number & END == 0).then_some(*number));
                }
                Entry::Expelled { .. } => since_expelled.clear(),
                _ => {}
            }
        }
        for number in since_expelled.iter().filter(|_| is_over && !log.was_killed) {
            if !places.contains_key(&(log.place, *number)) {
                let (place, process, count) = (log.place, log.incarnation, count_of(*number));
                let message = format!("message {place}.{process}.{count}");
                let sentence = format!("{message} was never delivered, and its sender survived");
                history.add(Broken::Lost, sentence);
            }
        }
        // Killed before it could write that the group had taken it.
        if let Some(&place) = places.get(&(log.place, next)).filter(|_| log.was_killed) {
            sent.insert((log.place, next), history.sequence[place].0.hash);
        }
    }
    check_senders(lives, &sent, history);
}

/// The sequence, sender by sender.
fn check_senders(lives: &[Life<'_>], sent: &HashMap<(usize, u64), u64>, history: &mut History) {
    let mut last: HashMap<(usize, u64), u64> = HashMap::new();
    let mut first: HashMap<(usize, u64), u64> = HashMap::new();
    let mut found = Vec::new();
    for (message, _) in &history.sequence {
        let (named, number) = (Named(Some(message)), message.number & !END);
        match sent.get(&(message.sender, number)) {
            None => found.push((Broken::Content, format!("{named} was delivered and never broadcast"))),
            Some(hash) if *hash != message.hash => {
                found.push((Broken::Content, format!("{named} was delivered and is not what was broadcast")));
            }
            Some(_) => {}
        }
        let life = (message.sender, message.life);
        first.entry(life).or_insert(number);
        if let Some(before) = last.insert(life, number)
            && number != before + 1
        {
            let count = count_of(before);
            let sentence = format!("{named} follows number {count} of its sender: one between is lost");
            found.push((Broken::Lost, sentence));
        }
    }
    for life in lives {
        let own = life.parts[0].lives.get(life.place).copied().unwrap_or(0);
        let delivered = first.get(&(life.place, own));
        if let Some((delivered, sent)) = delivered.zip(life.first_sent)
            && *delivered > sent & !END
        {
            let (sent, delivered) = (count_of(sent), count_of(*delivered));
            let sentence =
                format!("{life} broadcast number {sent} first, and {delivered} was delivered first");
            found.push((Broken::Lost, sentence));
        }
    }
    found.into_iter().for_each(|(of, sentence)| history.add(of, sentence));
}

/// Every survivor was told of the end of every survivor's messages.
fn check_ends(
    logs: &[ProcessLog<'_>],
    lives: &[Life<'_>],
    ends: &BTreeMap<u64, usize>,
    history: &mut History,
) {
    let alive = logs.iter().filter(|log| !log.was_killed);
    let mut awaited: BTreeSet<(usize, u64)> = alive.map(|log| (log.place, log.incarnation)).collect();
    let mut end = None;
    for (place, (message, _)) in history.sequence.iter().enumerate() {
        if message.number & END != 0 {
            awaited.remove(&(message.sender, process_of(message.number)));
        }
        if awaited.is_empty() {
            end = Some(place + 1);
            break;
        }
    }
    let Some(end) = end else {
        return history.add(Broken::Lost, "the end of a survivor's messages was never delivered".to_owned());
    };
    for life in lives.iter().filter(|life| life.survives) {
        let told = life.parts.last().map_or(0, |part| {
            let before = ends.range(..part.view).next_back().map_or(0, |(_, end)| *end);
            before + part.messages.len()
        });
        if told < end {
            history.add(Broken::Lost, format!("{life} survived, and delivered {told} of {end} messages"));
        }
    }
}

#[cfg(test)]
mod tests;
