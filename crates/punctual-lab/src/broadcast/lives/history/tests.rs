//! Histories that keep every promise, and the same with one mistake each.

use super::*;

/// Lives of the three places in view 1; of the second place's next life.
const LIVES: [u64; 3] = [11, 12, 13];
const NEW_LIFE: u64 = 22;

/// Records of processes, by place and incarnation, and whether they were killed.
struct Logs(Vec<(usize, u64, bool, Vec<Entry>)>);

fn view(number: u64, lives: [u64; 3]) -> Entry {
    Entry::View { number, lives: lives.to_vec(), at_ns: 0 }
}

/// Message `count` of a process, as it is delivered at this place of a view's order.
fn told(sender: usize, life: u64, message: u64, (view, index): (u64, u64)) -> Entry {
    Entry::Delivered(Delivered {
        sender,
        life,
        view,
        index,
        number: message,
        hash: hash(sender, message),
        is_uniform: true,
        sent_ns: 5,
        at_ns: 100 * view + index,
    })
}

fn hash(sender: usize, message: u64) -> u64 {
    1_000 * (sender as u64 + 1) + (message & !END)
}

fn sent(place: usize, message: u64) -> Entry {
    Entry::Sent { number: message, hash: hash(place, message) }
}

/// Three members. The second one is killed in view 1, and its next process joins in view 3; the third one is expelled from
/// view 3, and joins in view 5.
fn logs() -> Logs {
    let [a, b, c] = LIVES;
    let again = number(1, 0);
    let first = vec![
        view(1, LIVES),
        told(0, a, 0, (1, 0)),
        told(1, b, 0, (1, 1)),
        told(2, c, 0, (1, 2)),
        told(1, b, 1, (1, 3)),
    ];
    let second = vec![view(2, [a, 0, c]), told(0, a, 1, (2, 0)), told(2, c, 1, (2, 1))];
    let third = vec![view(3, [a, NEW_LIFE, c]), told(1, NEW_LIFE, again, (3, 0)), told(2, c, 2, (3, 1))];
    let fourth = vec![view(4, [a, NEW_LIFE, 0]), told(0, a, 2, (4, 0))];
    let fifth = vec![
        view(5, [a, NEW_LIFE, 33]),
        // Its fourth message was lost with its life.
        told(2, 33, 4, (5, 0)),
        told(0, a, 3 | END, (5, 1)),
        told(1, NEW_LIFE, (again + 1) | END, (5, 2)),
        told(2, 33, 5 | END, (5, 3)),
    ];
    let sends = |place: usize, messages: &[u64]| messages.iter().map(|&m| sent(place, m)).collect::<Vec<_>>();
    Logs(vec![
        (
            0,
            0,
            false,
            [
                sends(0, &[0, 1, 2, 3 | END]),
                first.clone(),
                second.clone(),
                third.clone(),
                fourth.clone(),
                fifth.clone(),
            ]
            .concat(),
        ),
        // Killed before it wrote that the group had taken its second message, and before it was told of that.
        (1, 0, true, [sends(1, &[0]), first[..3].to_vec()].concat()),
        (1, 1, false, [sends(1, &[again, (again + 1) | END]), third.clone(), fourth, fifth.clone()].concat()),
        (
            2,
            0,
            false,
            [
                sends(2, &[0, 1, 2, 3]),
                [first, second, third[..2].to_vec()].concat(),
                vec![Entry::Expelled { at_ns: 0 }],
                sends(2, &[4, 5 | END]),
                fifth,
            ]
            .concat(),
        ),
    ])
}

impl Logs {
    fn of_processes(&self) -> Vec<ProcessLog<'_>> {
        let logs = self.0.iter().map(|&(place, incarnation, was_killed, ref entries)| ProcessLog {
            place,
            incarnation,
            was_killed,
            entries,
        });
        logs.collect()
    }

    fn check(&self) -> History {
        check(&self.of_processes(), BroadcastKind::Ab, true)
    }

    /// The kinds of promises that a change breaks.
    fn broken(change: impl FnOnce(&mut Logs)) -> Vec<Broken> {
        let mut logs = logs();
        change(&mut logs);
        let mut kinds = Vec::new();
        for violation in logs.check().violations {
            assert!(violation.sentence.split(' ').count() <= 25, "{}", violation.sentence);
            if !kinds.contains(&violation.of) {
                kinds.push(violation.of);
            }
        }
        kinds
    }

    /// Where a process was told this message.
    fn at(&self, log: usize, sender: usize, number: u64) -> usize {
        let is_it = |entry: &Entry| matches!(entry, Entry::Delivered(it) if (it.sender, it.number) == (sender, number));
        self.0[log].3.iter().position(is_it).expect("it was told")
    }

    fn message(&mut self, log: usize, sender: usize, number: u64) -> &mut Delivered {
        let at = self.at(log, sender, number);
        match &mut self.0[log].3[at] {
            Entry::Delivered(message) => message,
            _ => unreachable!("a message is there"),
        }
    }

    /// One message that everybody was told nobody was told.
    fn forget(&mut self, sender: usize, number: u64) {
        for (.., entries) in &mut self.0 {
            entries.retain(
                |entry| !matches!(entry, Entry::Delivered(it) if (it.sender, it.number) == (sender, number)),
            );
        }
    }

    /// The same change of every process that was told this message.
    fn everywhere(&mut self, sender: usize, number: u64, change: impl Fn(&mut Delivered)) {
        for (.., entries) in &mut self.0 {
            for entry in entries {
                if let Entry::Delivered(it) = entry
                    && (it.sender, it.number) == (sender, number)
                {
                    change(it);
                }
            }
        }
    }
}

/// Goal: permitted events are no violation: lives that end in the midst of a view, messages that are lost with their senders.
#[test]
fn permitted_events_are_no_violation() {
    let history = logs().check();
    assert_eq!(history.violations, []);
    assert_eq!((history.sequence.len(), history.lives), (13, 5));
    let numbers: Vec<(usize, u64)> =
        history.sequence.iter().map(|(message, _)| (message.sender, count_of(message.number))).collect();
    assert_eq!(numbers[..6], [(0, 0), (1, 0), (2, 0), (1, 1), (0, 1), (2, 1)]);
    assert_eq!(Logs::broken(|_| {}), []);
}

/// Goal: the last delivery is that of the last life that went on, not of one that was stopped and woke up late.
#[test]
fn the_last_life_that_went_on_counts() {
    let mut logs = logs();
    logs.message(2, 1, number(1, 0)).at_ns = 5_000;
    logs.message(3, 1, number(1, 0)).at_ns = 9_000;
    let history = logs.check();
    let last = history.sequence.iter().find(|(message, _)| message.number == number(1, 0));
    assert_eq!(last.map(|(_, last_ns)| *last_ns), Some(5_000));
}

/// Goal: deliveries to survivors that differ by a message, an order, a content, or an end are found.
#[test]
fn survivors_that_differ_are_found() {
    // It is another question which of two that differ has it as it was broadcast.
    let differs = |change: &dyn Fn(&mut Logs), what| {
        assert!(Logs::broken(change).contains(&Broken::Order), "{what}");
    };
    differs(&|logs| logs.message(2, 0, 2).hash ^= 1, "another content");
    let exchanged = |logs: &mut Logs| {
        let (one, other) = (logs.at(0, 0, 0), logs.at(0, 1, 0));
        logs.0[0].3.swap(one, other);
    };
    differs(&exchanged, "out of turn");
    // In turn, but another message than the others.
    differs(&|logs| logs.message(2, 0, 2).sender = 1, "another sender");
    differs(&|logs| logs.message(0, 2, 1).life = 7, "a life that is no member");
    differs(&|logs| logs.message(0, 1, 1).index += 1, "another place in the order");
    let lacks = |logs: &mut Logs| {
        let at = logs.at(0, 2, 1);
        logs.0[0].3.remove(at);
    };
    assert_eq!(Logs::broken(lacks), [Broken::Order], "the last one of a view from which it went on");
    let stops_early = |logs: &mut Logs| {
        logs.0[2].3.pop();
    };
    assert_eq!(Logs::broken(stops_early), [Broken::Lost], "one more for the others");
}

/// Goal: a life that ended may lack the end of its view's messages, but no message before, and none that only it has.
#[test]
fn lives_that_ended_are_checked() {
    let skips = |logs: &mut Logs| {
        let at = logs.at(1, 0, 0);
        logs.0[1].3.remove(at);
    };
    assert_eq!(Logs::broken(skips), [Broken::Order], "the killed one lacks its first message");
    let alone = |logs: &mut Logs| logs.0[3].3.insert(12, told(1, NEW_LIFE, number(1, 0) + 1, (3, 5)));
    assert!(Logs::broken(alone).contains(&Broken::Order), "the expelled one alone has it as uniform");
    let agreed = |logs: &mut Logs| {
        let mut message = told(2, 13, 3, (3, 5));
        if let Entry::Delivered(it) = &mut message {
            it.is_uniform = false;
        }
        let at = logs.at(3, 1, number(1, 0));
        logs.0[3].3.insert(at + 1, message);
    };
    let mut with_agreed = logs();
    agreed(&mut with_agreed);
    let found = check(&with_agreed.of_processes(), BroadcastKind::Agreed, true);
    assert_eq!(found.violations, [], "as agreed it may have what nobody else has");
    assert!(Logs::broken(agreed).contains(&Broken::Order), "a majority was asked for");
}

/// Goal: a new life begins where its first view does, and is told views in turn.
#[test]
fn lives_begin_with_a_view() {
    let late = |logs: &mut Logs| {
        let at = logs.at(2, 1, number(1, 0));
        logs.0[2].3.remove(at);
    };
    assert_eq!(Logs::broken(late), [Broken::Order], "it joined in view 3 and lacks its first message");
    let skips = |logs: &mut Logs| logs.0[0].3.retain(|entry| !matches!(entry, Entry::View { number: 2, .. }));
    assert!(Logs::broken(skips).contains(&Broken::Order), "a view is left out");
    let in_no_view = |logs: &mut Logs| {
        let at = logs.0[2].3.iter().position(|entry| matches!(entry, Entry::View { .. })).expect("a view");
        logs.0[2].3.insert(at, told(0, 11, 1, (2, 0)));
    };
    assert_eq!(Logs::broken(in_no_view), [Broken::Order], "a message before its first view");
    let others = |logs: &mut Logs| {
        for entry in &mut logs.0[2].3 {
            if let Entry::View { number: 4, lives, .. } = entry {
                lives[2] = 13;
            }
        }
    };
    assert_eq!(Logs::broken(others), [Broken::Order], "other members of a view");
    let not_its = |logs: &mut Logs| {
        for (.., entries) in &mut logs.0 {
            for entry in entries {
                if let Entry::View { number: 4, lives, .. } = entry {
                    lives[1] = 0;
                }
            }
        }
    };
    assert_eq!(Logs::broken(not_its), [Broken::Order], "a view without its own life");
}

/// Goal: a message that a survivor broadcast is in the sequence, once, as it was; a message that nobody broadcast is not.
#[test]
fn messages_are_neither_lost_nor_doubled_nor_made_up() {
    assert_eq!(Logs::broken(|logs| logs.forget(0, 1)), [Broken::Lost], "a survivor's, in the midst");
    assert_eq!(Logs::broken(|logs| logs.forget(0, 2)), [Broken::Lost], "a survivor's last one");
    assert_eq!(Logs::broken(|logs| logs.forget(2, 4)), [Broken::Lost], "the first one of a new life");
    assert_eq!(Logs::broken(|logs| logs.forget(2, 2)), [], "the last one of a life that was expelled");
    assert_eq!(Logs::broken(|logs| logs.forget(2, 1)), [Broken::Lost], "one that a later one followed");
    assert_eq!(Logs::broken(|logs| logs.forget(0, 3 | END)), [Broken::Lost], "the end of a survivor's");
    let twice = |logs: &mut Logs| logs.everywhere(0, 1, |message| message.number = 0);
    assert!(Logs::broken(twice).contains(&Broken::Doubled));
    let altered = |logs: &mut Logs| logs.everywhere(0, 1, |message| message.hash ^= 1);
    assert_eq!(Logs::broken(altered), [Broken::Content], "everywhere another than it was broadcast");
    let unsaid = |logs: &mut Logs| logs.0[0].3.retain(|entry| *entry != sent(0, 1));
    assert_eq!(Logs::broken(unsaid), [Broken::Content], "a survivor's that it did not broadcast");
    let unsaid = |logs: &mut Logs| logs.0[0].3.retain(|entry| *entry != sent(0, 3 | END));
    assert_eq!(Logs::broken(unsaid), [Broken::Content], "the last one of a survivor's");
    let more = |logs: &mut Logs| logs.0[0].3.push(sent(0, 4));
    assert_eq!(Logs::broken(more), [Broken::Lost], "a survivor's behind its end");
    let killed = |logs: &mut Logs| logs.0[1].3.extend([sent(1, 1), sent(1, 2)]);
    assert_eq!(Logs::broken(killed), [], "of one that was killed");
    // Of a process that was killed one more may be delivered than it wrote down, not two.
    let two_more = |logs: &mut Logs| logs.0[1].3.retain(|entry| *entry != sent(1, 0));
    assert_eq!(Logs::broken(two_more), [Broken::Content], "two that it did not broadcast");
}

/// Goal: where the group did not go on, what its members did not deliver is not lost; but the begin of a life is.
#[test]
fn an_early_end_is_no_loss() {
    let mut logs = logs();
    logs.0[0].3.truncate(8);
    logs.0[0].3.push(sent(0, 4));
    let early = |logs: &Logs| check(&logs.of_processes(), BroadcastKind::Ab, false).violations;
    assert_eq!(early(&logs), []);
    logs.forget(2, 4);
    let kinds: Vec<Broken> = early(&logs).iter().map(|it| it.of).collect();
    assert_eq!(kinds, [Broken::Lost]);
}

/// Goal: one process's own story holds together: views in turn with its life in them, messages in turn of their members.
#[test]
fn a_story_holds_together() {
    let broken = |entries: Vec<Entry>| -> Vec<Broken> {
        let logs = Logs(vec![(0, 0, false, entries)]);
        let found = check(&logs.of_processes(), BroadcastKind::Ab, false);
        found.violations.iter().map(|violation| violation.of).collect()
    };
    let [a, b, c] = LIVES;
    let begin = || vec![view(1, LIVES), sent(0, 0), sent(0, 1)];
    let with = |more: &[Entry]| broken([begin(), more.to_vec()].concat());
    assert_eq!(with(&[told(0, a, 0, (1, 0)), told(0, a, 1, (1, 1))]), []);
    assert_eq!(with(&[view(2, LIVES), view(3, LIVES)]), []);
    let order = [Broken::Order];
    assert_eq!(with(&[view(3, LIVES)]), order, "a view is missing");
    assert_eq!(broken(vec![view(1, [0, b, c])]), order, "its first view is not its");
    assert_eq!(with(&[view(2, [99, b, c])]), order, "its life is another one");
    assert_eq!(with(&[told(0, a, 0, (2, 0))]), order, "a message of another view");
    assert_eq!(with(&[told(0, a, 0, (1, 1)), told(0, a, 1, (1, 0))]), order, "out of turn");
    assert_eq!(with(&[told(0, a, 0, (1, 1)), told(0, a, 1, (1, 1))]), order, "two at one place");
    assert_eq!(with(&[told(0, 99, 0, (1, 0))]), order, "of a life that is no member");
}

/// Goal: the survivors deliver every message that a member delivered as uniform before it was killed; where the trial ended early,
/// they may be on the way there.
#[test]
fn nobody_alone_has_a_uniform_message() {
    let [a, b, _] = LIVES;
    let of_both = vec![view(1, LIVES), told(0, a, END, (1, 0))];
    let alone = vec![sent(1, 0), told(1, b, 0, (1, 1))];
    let logs = Logs(vec![
        (0, 0, false, [vec![sent(0, END)], of_both.clone()].concat()),
        (1, 0, true, [of_both, alone].concat()),
    ]);
    let kinds = |is_over| -> Vec<Broken> {
        let found = check(&logs.of_processes(), BroadcastKind::Ab, is_over);
        found.violations.iter().map(|violation| violation.of).collect()
    };
    assert_eq!((kinds(true), kinds(false)), (vec![Broken::Order], vec![]));
}

/// Goal: a survivor that the others went on without may have agreed messages that nobody else has. The early end kept it from finding
/// out. One that stays to the last view may not have such messages.
#[test]
fn an_early_end_hides_an_expulsion() {
    let [a, b, c] = LIVES;
    let begin = vec![view(1, LIVES), told(0, a, 0, (1, 0))];
    let mut agreed = told(1, b, 0, (1, 1));
    if let Entry::Delivered(it) = &mut agreed {
        it.is_uniform = false;
    }
    let second = view(2, [a, 0, c]);
    let logs = Logs(vec![
        (0, 0, false, [vec![sent(0, 0)], begin.clone(), vec![second.clone()]].concat()),
        (1, 0, false, [begin.clone(), vec![sent(1, 0), agreed]].concat()),
        (2, 0, false, [begin, vec![second]].concat()),
    ]);
    let kinds = |is_over| -> Vec<Broken> {
        let found = check(&logs.of_processes(), BroadcastKind::Agreed, is_over);
        found.violations.iter().map(|violation| violation.of).collect()
    };
    assert_eq!(kinds(false), []);
    assert!(kinds(true).contains(&Broken::Order));
}
