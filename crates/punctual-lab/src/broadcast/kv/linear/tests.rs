//! The search against the definition, against a register, and with what must be found.

use punctual_proto::sim::Rng;

use super::*;

fn put(value: u64, invoked_ns: u64, answered_ns: u64) -> Operation {
    Operation { action: Action::Put(value), invoked_ns, answered_ns: Some(answered_ns) }
}

fn get(value: u64, invoked_ns: u64, answered_ns: u64) -> Operation {
    let value = (value != 0).then_some(value);
    Operation { action: Action::Get(value), invoked_ns, answered_ns: Some(answered_ns) }
}

fn maybe(value: u64, invoked_ns: u64) -> Operation {
    Operation { action: Action::Put(value), invoked_ns, answered_ns: None }
}

/// So many clients of one register that does one thing at a time. Some puts are never answered: half of those happened.
fn history(rng: &mut Rng, clients: usize, each: u64) -> Vec<Operation> {
    let mut register = None;
    let mut free_at = vec![0; clients];
    let mut done = vec![0; clients];
    let (mut operations, mut now) = (Vec::new(), 0);
    while let Some(client) = (0..clients).filter(|&one| done[one] < each).min_by_key(|&one| free_at[one]) {
        done[client] += 1;
        let invoked_ns = free_at[client] + rng.below(20);
        // It happens after all that happened before, and after its invocation.
        now = now.max(invoked_ns) + rng.below(3);
        let answered_ns = now + rng.below(40);
        free_at[client] = answered_ns + 1;
        let value = (client as u64 + 1) << 32 | done[client];
        let is_known = !rng.happens(20);
        let action = match (rng.happens(500), is_known) {
            (true, false) if rng.happens(500) => Action::Put(value),
            (true, _) => {
                register = Some(value);
                Action::Put(value)
            }
            (false, _) => Action::Get(register),
        };
        if is_known || matches!(action, Action::Put(_)) {
            let answered_ns = is_known.then_some(answered_ns);
            operations.push(Operation { action, invoked_ns, answered_ns });
        }
    }
    operations
}

/// Goal: the answers of a register are never called broken, regardless of concurrent clients and unanswered operations.
#[test]
fn histories_of_a_register_are_linearizable() {
    for seed in 0..1_000 {
        let mut rng = Rng::new(seed);
        let clients = 1 + rng.below(12) as usize;
        let operations = history(&mut rng, clients, 60);
        assert_eq!(check(&operations), Verdict::Linearizable, "seed {seed}");
    }
}

/// Every order of the operations, one after the other: the definition itself.
fn has_some_order(operations: &[Operation], left: &mut Vec<usize>, value: Option<u64>) -> bool {
    if left.iter().all(|&one| operations[one].answered_ns.is_none()) {
        return true;
    }
    (0..left.len()).any(|place| {
        let one = left[place];
        let is_first = left.iter().all(|&other| {
            operations[other]
                .answered_ns
                .is_none_or(|ns| ns.max(operations[other].invoked_ns) >= operations[one].invoked_ns)
        });
        let after = match operations[one].action {
            Action::Put(value) => Some(value),
            Action::Get(answer) if answer == value => value,
            Action::Get(_) => return false,
        };
        if !is_first {
            return false;
        }
        left.remove(place);
        let found = has_some_order(operations, left, after);
        left.insert(place, one);
        found
    })
}

/// Goal: the search decides as the definition does. Method: small histories at random, of which about half are broken.
#[test]
fn verdicts_are_those_of_the_definition() {
    let mut counts = [0; 2];
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let operations: Vec<Operation> = (0..2 + rng.below(6))
            .map(|number| {
                let invoked_ns = rng.below(30);
                let answered_ns = invoked_ns + rng.below(12);
                match rng.below(9) {
                    0 => maybe(number + 1, invoked_ns),
                    1..=4 => put(number + 1, invoked_ns, answered_ns),
                    _ => get(rng.below(4), invoked_ns, answered_ns),
                }
            })
            .collect();
        let expected = has_some_order(&operations, &mut (0..operations.len()).collect(), None);
        counts[usize::from(expected)] += 1;
        let verdict = check(&operations);
        assert_eq!(verdict == Verdict::Linearizable, expected, "seed {seed}: {operations:?}");
    }
    assert!(counts.iter().all(|&count| count > 2_000), "{counts:?}");
}

/// Goal: a get that answers what was overwritten for certain is found and blamed, in any history.
#[test]
fn a_stale_get_is_found() {
    let mut changed = 0;
    for seed in 0..300 {
        let mut operations = history(&mut Rng::new(seed), 4, 60);
        let Some((at, stale)) = stale_value(&operations) else { continue };
        operations[at].action = Action::Get(Some(stale));
        assert_eq!(check(&operations), Verdict::Broken(at), "seed {seed}");
        changed += 1;
    }
    assert!(changed > 200, "{changed}");
}

/// A get behind two answered puts of which one followed the other's answer, and the value of the first.
fn stale_value(operations: &[Operation]) -> Option<(usize, u64)> {
    let puts = || {
        operations.iter().filter_map(|one| match one.action {
            Action::Put(value) => Some((value, one.invoked_ns, one.answered_ns?)),
            Action::Get(_) => None,
        })
    };
    let is_get = |one: &Operation| matches!(one.action, Action::Get(_));
    (operations.len() / 2..operations.len()).filter(|&at| is_get(&operations[at])).find_map(|at| {
        let (_, newest_ns, _) =
            puts().filter(|put| put.2 < operations[at].invoked_ns).max_by_key(|put| put.1)?;
        puts().find(|put| put.2 < newest_ns).map(|put| (at, put.0))
    })
}

/// Goal: a put that was answered and never happened is found: a client that reads the key later, alone, does not see it.
#[test]
fn a_lost_put_is_found() {
    let mut operations = vec![put(1, 0, 10), put(2, 20, 30), get(2, 40, 50)];
    assert_eq!(check(&operations), Verdict::Linearizable);
    operations[2] = get(1, 40, 50);
    assert_eq!(check(&operations), Verdict::Broken(2));
    // Had nobody been told that it happened, it might not have.
    operations[1] = maybe(2, 20);
    assert_eq!(check(&operations), Verdict::Linearizable);
    // But once seen it cannot be undone.
    operations.extend([get(2, 60, 70), get(1, 80, 90)]);
    assert_eq!(check(&operations), Verdict::Broken(4));
    assert_eq!(check(&[put(1, 0, 10), get(0, 20, 30)]), Verdict::Broken(1));
}

/// Goal: a pair of puts that two readers saw in different orders is found, though each of them was concurrent with both.
#[test]
fn a_reordered_pair_is_found() {
    let puts = [put(1, 0, 100), put(2, 0, 100)];
    let with = |gets: [Operation; 4]| check(&[&puts[..], &gets].concat());
    assert_eq!(with([get(1, 10, 20), get(2, 30, 40), get(1, 10, 20), get(2, 30, 40)]), Verdict::Linearizable);
    let crossed = [get(1, 10, 20), get(2, 30, 41), get(2, 10, 20), get(1, 30, 40)];
    assert_eq!(with(crossed), Verdict::Broken(3), "not one of the puts, and the get that was answered first");
    // A value that nobody put, and one from the future.
    assert_eq!(check(&[put(1, 0, 10), get(7, 20, 30)]), Verdict::Broken(1));
    assert_eq!(check(&[get(1, 0, 10), put(1, 20, 30)]), Verdict::Broken(0));
}

/// Goal: a long history, many operations on one key at once, and many that nobody answered do not make the search give up.
#[test]
fn long_histories_are_decided() {
    let operations = history(&mut Rng::new(7), 64, 1_600);
    assert!(
        operations.len() > 100_000 && operations.iter().filter(|one| one.answered_ns.is_none()).count() > 500
    );
    assert_eq!(check(&operations), Verdict::Linearizable);
    let keys: Vec<Vec<Operation>> = (0..300).map(|seed| history(&mut Rng::new(seed), 8, 50)).collect();
    assert!(keys.iter().map(Vec::len).sum::<usize>() > 100_000);
    assert!(keys.iter().all(|operations| check(operations) == Verdict::Linearizable));
}

/// Goal: a value that was put twice is named, in every build: a search would take both puts for one.
#[test]
fn a_value_that_is_put_twice_is_named() {
    let operations = [put(1, 0, 5), put(2, 10, 15), get(2, 20, 25), put(1, 30, 35)];
    assert_eq!(check(&operations), Verdict::PutTwice(3));
    assert_eq!(check(&operations[..3]), Verdict::Linearizable);
}
