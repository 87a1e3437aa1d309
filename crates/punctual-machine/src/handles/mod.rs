//! Tables of things that are named by numbers: a program in another language holds these numbers in place of pointers.
//!
//! A number that was made up, is closed, or names a thing of another thread is refused. Nothing is followed that it names.
//!
//! Each thing belongs to the thread that first uses it, until that thread gives it up. Entering one's own is a load and a compare.
//!
//! Rules:
//! 1. A slot's word says in which life the slot is, and whose it is. A word that names a thread is changed by that thread alone.
//! 2. The value of a slot is touched by the thread that its word names, or by the one that is filling it. The word says the latter,
//!    too.
//! 3. The thread that gives a slot up releases what it wrote (A); the thread that takes it acquires that (B).
//! 4. Within its thread a slot is entered once at a time: a signal handler that enters it again is refused.
//! 5. A thread's number is never given twice. After a fork the child's thread has another: things that its parent's threads held are
//!    not its.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::mutant::ordering;
use crate::sync::{AtomicU32, AtomicU64, CheckedCell, Ordering, signal_fence};

/// Why a thing cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing has this number: it was closed, or never was.
    Unknown,
    /// It belongs to another thread.
    Foreign,
    /// This thread is using it already: a signal handler interrupted that.
    Busy,
    /// A panic left it in the middle of something.
    Broken,
}

/// The calling thread, as tables know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    number: u32,
    /// It stays in its thread.
    here: PhantomData<*const ()>,
}

/// Owners in a slot's word that are no threads.
const FREE: u32 = 0;
const NOBODY: u32 = u32::MAX;
const FILLING: u32 = u32::MAX - 1;
/// The last number that a thread can have.
const THREADS_MAX: u32 = u32::MAX - 2;

#[cfg(not(loom))]
mod current {
    //! Numbers of threads, and of processes that one another's fork made.

    use core::cell::Cell;
    use core::marker::PhantomData;
    use std::sync::Once;

    use super::{THREADS_MAX, Thread};
    use crate::sync::{AtomicU32, Ordering};

    std::thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }

    static LAST: AtomicU32 = AtomicU32::new(0);
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static WATCH_FORKS: Once = Once::new();

    impl Thread {
        /// The calling thread. `None` once there have been four thousand million of them.
        #[inline]
        pub fn current() -> Option<Self> {
            let number = NUMBER.get();
            if number == 0 { Self::first_seen() } else { Some(Self { number, here: PhantomData }) }
        }

        #[cold]
        fn first_seen() -> Option<Self> {
            watch_forks();
            let next = |last: u32| (last < THREADS_MAX).then(|| last + 1);
            let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
            NUMBER.set(last + 1);
            Some(Self { number: last + 1, here: PhantomData })
        }
    }

    /// From now on [`forks`] counts.
    pub(crate) fn watch_forks() {
        // SAFETY: the handler stores two numbers: it allocates nothing, takes no lock, and may run in any child.
        WATCH_FORKS.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(handle_child));
        });
    }

    /// In a child of this process, whose only thread this is.
    extern "C" fn handle_child() {
        FORKS.store(forks().wrapping_add(1), Ordering::Relaxed);
        NUMBER.set(0);
    }

    /// Number of forks between this process and the one that loaded the library. Anything that was opened before the last fork is not
    /// ours.
    pub fn forks() -> u32 {
        FORKS.load(Ordering::Relaxed)
    }
}

#[cfg(not(loom))]
pub use current::forks;
#[cfg(not(loom))]
pub(crate) use current::watch_forks;

#[cfg(loom)]
fn forks() -> u32 {
    0
}

#[cfg(test)]
impl Thread {
    /// A thread of a test.
    fn numbered(number: u32) -> Self {
        assert!((1..=THREADS_MAX).contains(&number));
        Self { number, here: PhantomData }
    }
}

const IDLE: u32 = 0;
const ENTERED: u32 = 1;
const BROKEN: u32 = 2;

/// All bits zero at first: a table costs no page before it is used.
struct Slot<T> {
    /// The slot's life (32 bits) and its owner (32 bits).
    word: AtomicU64,
    /// State of its owner: inside, or not.
    state: AtomicU32,
    /// After how many forks it was filled.
    forks: AtomicU32,
    value: CheckedCell<Option<Box<T>>>,
}

const fn word(life: u32, owner: u32) -> u64 {
    (life as u64) << 32 | owner as u64
}

const fn life_of(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn owner_of(word: u64) -> u32 {
    word as u32
}

/// Bits that stand in the lower half of every number of a table, above the slot's place.
const fn kind_bits(kind: u16) -> u64 {
    (kind as u64) << 16
}

impl<T> Slot<T> {
    #[cfg(not(loom))]
    const fn empty() -> Self {
        Self {
            word: AtomicU64::new(word(0, FREE)),
            state: AtomicU32::new(IDLE),
            forks: AtomicU32::new(0),
            value: CheckedCell::new(None),
        }
    }

    #[cfg(loom)]
    fn empty() -> Self {
        Self {
            word: AtomicU64::new(word(0, FREE)),
            state: AtomicU32::new(IDLE),
            forks: AtomicU32::new(0),
            value: CheckedCell::new(None),
        }
    }
}

/// Room for `N` things of one kind.
pub struct Table<T, const N: usize> {
    /// Not 0, so that no number is.
    kind: u16,
    /// Slots from this one on were never filled.
    used: AtomicU32,
    slots: [Slot<T>; N],
}

// SAFETY: a value is touched by one thread at a time, which may be another than the one that brought it (rules 2 and 3).
unsafe impl<T: Send, const N: usize> Sync for Table<T, N> {}
// SAFETY: it owns its values, which may change threads.
unsafe impl<T: Send, const N: usize> Send for Table<T, N> {}

impl<T, const N: usize> fmt::Debug for Table<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<T: Send, const N: usize> Table<T, N> {
    /// An empty table. Numbers of tables of different kinds differ; no kind is 0.
    #[cfg(not(loom))]
    pub const fn new(kind: u16) -> Self {
        assert!(kind != 0 && N.is_power_of_two() && N <= 1 << 16);
        Self { kind, used: AtomicU32::new(0), slots: [const { Slot::empty() }; N] }
    }

    #[cfg(loom)]
    fn new(kind: u16) -> Self {
        Self { kind, used: AtomicU32::new(0), slots: core::array::from_fn(|_| Slot::empty()) }
    }

    /// Puts a value in, which belongs to nobody yet. Its number; `None` if the table is full.
    pub fn insert(&self, value: T) -> Option<u64> {
        let mut value = Some(Box::new(value));
        for (index, slot) in self.slots.iter().enumerate() {
            let free = slot.word.load(Ordering::Relaxed);
            // The last life is never lived: its number would come again.
            if owner_of(free) != FREE || life_of(free) == u32::MAX {
                continue;
            }
            let life = life_of(free);
            let acquire = ordering!("handles_fill", Acquire); // (B) pairs with (A) in `remove`.
            let filling = word(life, FILLING);
            if slot.word.compare_exchange(free, filling, acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: the word says that this thread fills the slot (rule 2).
            slot.value.with_mut(|place| unsafe { *place = value.take() });
            slot.state.store(IDLE, Ordering::Relaxed);
            slot.forks.store(forks(), Ordering::Relaxed);
            self.used.fetch_max(index as u32 + 1, Ordering::Relaxed);
            // (A) pairs with (B) in `take`.
            slot.word.store(word(life, NOBODY), ordering!("handles_filled", Release));
            return Some(u64::from(life) << 32 | kind_bits(self.kind) | index as u64);
        }
        None
    }

    /// The slot that a number names, whether or not it lives.
    #[inline]
    fn slot(&self, number: u64) -> Result<&Slot<T>, Refusal> {
        let index = (number & 0xFFFF) as usize;
        if number & 0xFFFF_0000 != kind_bits(self.kind) || index >= N {
            return Err(Refusal::Unknown);
        }
        Ok(&self.slots[index])
    }

    /// The value that has this number, for this thread alone. A value that was nobody's is this thread's from now on, and `own` is
    /// called.
    ///
    /// # Errors
    /// See [`Refusal`].
    #[inline]
    pub fn enter(&self, number: u64, me: Thread, own: impl FnOnce()) -> Result<Entered<'_, T>, Refusal> {
        let slot = self.slot(number)?;
        if slot.word.load(Ordering::Relaxed) != word(life_of(number), me.number) {
            take(slot, life_of(number), me, own)?;
        }
        match slot.state.load(Ordering::Relaxed) {
            IDLE => {}
            ENTERED => return Err(Refusal::Busy),
            _ => return Err(Refusal::Broken),
        }
        slot.state.store(ENTERED, Ordering::Relaxed);
        // A handler that interrupts what follows sees that (rule 4).
        signal_fence();
        // SAFETY: the word names this thread, which is not inside (rules 2 and 4); the value that is taken is in the slot until it is
        // removed.
        let value = slot.value.with_mut(|place| unsafe { (*place).as_deref_mut().map(core::ptr::from_mut) });
        match value {
            Some(value) => Ok(Entered { state: &slot.state, value, here: PhantomData }),
            None => Err(Refusal::Unknown),
        }
    }

    /// Takes it out, whether or not it is broken.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn remove(&self, number: u64, me: Thread) -> Result<T, Refusal> {
        let slot = self.slot(number)?;
        let life = life_of(number);
        if slot.word.load(Ordering::Relaxed) != word(life, me.number) {
            take(slot, life, me, || ())?;
        }
        if slot.state.load(Ordering::Relaxed) == ENTERED {
            return Err(Refusal::Busy);
        }
        // SAFETY: the word names this thread, which is not inside (rules 2 and 4).
        let value = slot.value.with_mut(|place| unsafe { (*place).take() });
        // (A) pairs with (B) in `insert`.
        slot.word.store(word(life + 1, FREE), ordering!("handles_free", Release));
        value.map(|value| *value).ok_or(Refusal::Unknown)
    }

    /// Gives up one thing: it is nobody's, and then belongs to the next thread that uses it.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn give_up(&self, number: u64, me: Thread) -> Result<(), Refusal> {
        let slot = self.slot(number)?;
        let own = slot.word.load(Ordering::Relaxed);
        if own != word(life_of(number), me.number) {
            // A slot that is nobody's has been given up.
            return refusal(own, life_of(number)).map_or(Ok(()), Err);
        }
        if slot.state.load(Ordering::Relaxed) == ENTERED {
            return Err(Refusal::Busy);
        }
        release(slot, life_of(number));
        Ok(())
    }

    /// Gives up all that is this thread's, which is about to end.
    pub fn give_up_all(&self, me: Thread) {
        // A thread that took a slot saw it filled, and so sees that it was used.
        for slot in self.slots.iter().take(self.used.load(Ordering::Relaxed) as usize) {
            let own = slot.word.load(Ordering::Relaxed);
            if owner_of(own) == me.number {
                release(slot, life_of(own));
            }
        }
    }
}

/// The slot is nobody's from now on.
fn release<T>(slot: &Slot<T>, life: u32) {
    // (A) pairs with (B) in `take`.
    slot.word.store(word(life, NOBODY), ordering!("handles_give_up", Release));
}

/// Makes a slot this thread's, if it is nobody's.
#[cold]
fn take<T>(slot: &Slot<T>, life: u32, me: Thread, own: impl FnOnce()) -> Result<(), Refusal> {
    let nobodys = word(life, NOBODY);
    let acquire = ordering!("handles_take", Acquire); // (B) pairs with (A) in `insert` and `release`.
    let taken = slot.word.compare_exchange(nobodys, word(life, me.number), acquire, Ordering::Relaxed);
    if let Err(other) = taken {
        return Err(refusal(other, life).unwrap_or(Refusal::Foreign));
    }
    if slot.forks.load(Ordering::Relaxed) != forks() {
        // A parent's: its rings have one writer, and that is not this process (rule 5).
        release(slot, life);
        return Err(Refusal::Foreign);
    }
    own();
    Ok(())
}

/// Why a slot is not this thread's; `None` if it is nobody's.
fn refusal(found: u64, life: u32) -> Option<Refusal> {
    match owner_of(found) {
        _ if life_of(found) != life => Some(Refusal::Unknown),
        FREE | FILLING => Some(Refusal::Unknown),
        NOBODY => None,
        _ => Some(Refusal::Foreign),
    }
}

/// A thing that its thread is using. If a panic ends that, the thing is broken.
#[derive(Debug)]
pub struct Entered<'a, T> {
    state: &'a AtomicU32,
    value: *mut T,
    /// It stays in its thread.
    here: PhantomData<*mut T>,
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot's state says that its thread is inside, so nobody else is, and nobody takes the value out (rule 4).
        unsafe { &*self.value }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.value }
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline]
    fn drop(&mut self) {
        signal_fence();
        self.state.store(if std::thread::panicking() { BROKEN } else { IDLE }, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const FIRST: u64 = 7 << 16;

    fn table<const N: usize>() -> Arc<Table<u32, N>> {
        Arc::new(Table::new(7))
    }

    /// Adds one, if it can be had.
    fn add<const N: usize>(table: &Table<u32, N>, number: u64, me: u32) -> Option<u32> {
        let mut entered = table.enter(number, Thread::numbered(me), || ()).ok()?;
        *entered += 1;
        Some(*entered)
    }

    /// Goal: a thread that guesses a number that is being given sees nothing, or all of it.
    #[test]
    fn a_guessed_number_is_refused_or_whole() {
        loom::model(|| {
            let table = table::<1>();
            let theirs = Arc::clone(&table);
            let guesser = thread::spawn(move || add(&theirs, FIRST, 2));
            assert_eq!(table.insert(10), Some(FIRST));
            assert!(matches!(guesser.join().unwrap(), None | Some(11)));
        });
    }

    /// Goal: a thing that one thread gives up is as it was left when the next one has it.
    #[test]
    fn a_thing_that_is_given_up_is_taken_whole() {
        loom::model(|| {
            let table = table::<1>();
            let number = table.insert(10).unwrap();
            assert_eq!(add(&table, number, 1), Some(11));
            let theirs = Arc::clone(&table);
            let next = thread::spawn(move || add(&theirs, number, 2));
            assert_eq!(add(&table, number, 1), Some(12));
            table.give_up(number, Thread::numbered(1)).unwrap();
            let taken = next.join().unwrap();
            assert!(matches!(taken, None | Some(13)));
            assert_eq!(add(&table, number, 1).is_some(), taken.is_none());
        });
    }

    /// Goal: of two that want what is nobody's one has it.
    #[test]
    fn one_of_two_takes_it() {
        loom::model(|| {
            let table = table::<1>();
            let number = table.insert(10).unwrap();
            let theirs = Arc::clone(&table);
            let other = thread::spawn(move || add(&theirs, number, 2));
            let ours = add(&table, number, 1);
            let both = [ours, other.join().unwrap()];
            assert!(both.contains(&Some(11)) && both.contains(&None), "{both:?}");
        });
    }

    /// Goal: a slot is filled anew only when what was in it is out, and the old number stays refused.
    #[test]
    fn a_slot_is_used_again_when_it_is_empty() {
        loom::model(|| {
            let table = table::<1>();
            let number = table.insert(10).unwrap();
            let theirs = Arc::clone(&table);
            let other = thread::spawn(move || theirs.insert(20));
            assert_eq!(table.remove(number, Thread::numbered(1)), Ok(10));
            assert_eq!(add(&table, number, 1), None);
            match other.join().unwrap() {
                None => assert!(table.insert(20).is_some()),
                Some(next) => assert_eq!(add(&table, next, 1), Some(21)),
            }
        });
    }
}
