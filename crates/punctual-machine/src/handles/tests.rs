//! Wrong numbers, wrong threads and wrong instants are refused.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const ME: fn() -> Thread = || Thread::numbered(1);
const OTHER: fn() -> Thread = || Thread::numbered(2);

fn refused<T: Send, const N: usize>(table: &Table<T, N>, number: u64, me: Thread) -> Option<Refusal> {
    table.enter(number, me, || ()).err()
}

#[test]
fn a_thing_is_its_first_users() {
    let table = Table::<_, 4>::new(1);
    let number = table.insert(5).unwrap();
    let mut owned = 0;
    *table.enter(number, ME(), || owned += 1).unwrap() += 1;
    assert_eq!(*table.enter(number, ME(), || owned += 1).unwrap(), 6);
    assert_eq!(owned, 1, "once");
    assert_eq!(refused(&table, number, OTHER()), Some(Refusal::Foreign));
    assert_eq!(table.give_up(number, OTHER()), Err(Refusal::Foreign));
    assert_eq!(table.remove(number, OTHER()), Err(Refusal::Foreign));
    table.give_up(number, ME()).unwrap();
    assert_eq!(table.give_up(number, OTHER()), Ok(()), "it is nobody's already");
    assert_eq!(refused(&table, number, OTHER()), None);
    assert_eq!(refused(&table, number, ME()), Some(Refusal::Foreign));
    table.give_up_all(OTHER());
    assert_eq!(table.remove(number, ME()), Ok(6));
}

/// Goal: no number names anything but the one thing that it was given for, however it is made.
#[test]
fn numbers_that_were_not_given_are_refused() {
    let (table, of_other_kind) = (Table::<_, 4>::new(1), Table::<_, 4>::new(2));
    let number = table.insert(5).unwrap();
    assert_ne!(number, of_other_kind.insert(5).unwrap());
    assert_eq!(refused(&of_other_kind, number, ME()), Some(Refusal::Unknown));
    let bits = (0..64).map(|bit| number ^ 1 << bit);
    for wrong in bits.chain([0, u64::MAX, u64::from(u32::MAX), number + 4]) {
        assert_eq!(refused(&table, wrong, ME()), Some(Refusal::Unknown), "{wrong:x}");
        assert_eq!(table.give_up(wrong, ME()), Err(Refusal::Unknown), "{wrong:x}");
        assert_eq!(table.remove(wrong, ME()), Err(Refusal::Unknown), "{wrong:x}");
    }
    assert_eq!(table.remove(number, ME()), Ok(5));
    let next = table.insert(6).unwrap();
    assert_eq!(next & 0xFFFF, number & 0xFFFF, "the same slot");
    assert_eq!(refused(&table, number, ME()), Some(Refusal::Unknown), "closed stays closed");
    assert_eq!(table.remove(number, ME()), Err(Refusal::Unknown));
    assert_eq!(table.remove(next, ME()), Ok(6));
}

#[test]
fn a_full_table_says_so() {
    let table = Table::<_, 4>::new(1);
    let numbers: Vec<u64> = (0..4).map(|value| table.insert(value).unwrap()).collect();
    assert_eq!(table.insert(9), None);
    assert_eq!(table.remove(numbers[2], ME()), Ok(2));
    assert!(table.insert(9).is_some());
    assert_eq!(table.insert(9), None);
}

/// Goal: a thing in use is neither entered again nor taken away, as a signal handler might try.
#[test]
fn a_thing_is_entered_once_at_a_time() {
    let table = Table::<_, 1>::new(1);
    let number = table.insert(5).unwrap();
    let entered = table.enter(number, ME(), || ()).unwrap();
    assert_eq!(refused(&table, number, ME()), Some(Refusal::Busy));
    assert_eq!(table.give_up(number, ME()), Err(Refusal::Busy));
    assert_eq!(table.remove(number, ME()), Err(Refusal::Busy));
    drop(entered);
    assert_eq!(refused(&table, number, ME()), None);
}

/// Goal: after a panic a thing can be closed and nothing else.
#[test]
fn a_thing_left_by_a_panic_is_broken() {
    let value = Arc::new(());
    let table = Table::<_, 1>::new(1);
    let number = table.insert(Arc::clone(&value)).unwrap();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _entered = table.enter(number, ME(), || ()).unwrap();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(ended.is_err());
    assert_eq!(refused(&table, number, ME()), Some(Refusal::Broken));
    drop(table.remove(number, ME()).unwrap());
    assert_eq!(Arc::strong_count(&value), 1);
    let next = table.insert(Arc::clone(&value)).unwrap();
    assert_eq!(refused(&table, next, ME()), None, "the next life is whole");
}

/// Goal: a life's number is never given again. Method: the slot's word is set to the last lives.
#[test]
fn a_slot_is_retired_before_its_numbers_come_again() {
    let table = Table::<_, 1>::new(1);
    table.slots[0].word.store(word(u32::MAX - 1, FREE), Ordering::Relaxed);
    let number = table.insert(5).unwrap();
    assert_eq!(table.remove(number, ME()), Ok(5));
    assert_eq!(table.insert(6), None);
}

/// Goal: threads have numbers of their own, which stay.
#[test]
fn threads_are_told_apart() {
    let numbers =
        || Thread::current().zip(Thread::current()).map(|(one, two)| (one.number, two.number)).unwrap();
    let (here, again) = numbers();
    let there = std::thread::spawn(numbers).join().unwrap();
    assert_eq!((here, there.0), (again, there.1));
    assert_ne!(here, there.0);
}

/// Goal: a thing that was opened before a fork is the parent's, used or not. Method: the slots say that they are of another process.
#[test]
fn a_thing_opened_before_a_fork_is_not_the_childs() {
    let table = Table::<_, 1>::new(1);
    let number = table.insert(5).unwrap();
    table.slots[0].forks.store(forks().wrapping_sub(1), Ordering::Relaxed);
    assert_eq!(refused(&table, number, ME()), Some(Refusal::Foreign));
    assert_eq!(table.remove(number, ME()), Err(Refusal::Foreign));
}
