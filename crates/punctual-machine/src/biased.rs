//! A lock that costs its usual holder no locked instruction.
//!
//! Most of a node's traffic goes through one communicator, which would lock and unlock for every message: four locked
//! instructions there and back, a fifth of a polled round trip. Here the usual holder enters by two plain stores and a load;
//! whoever else comes pays for both with a barrier in every thread of the process. The scheme is that of biased locks
//! (Kawachiya, Koseki, Onodera, "Lock Reservation", OOPSLA 2002) with the asymmetric barrier of `membarrier(2)`.
//!
//! ```text
//!  holder, the short way                   others, the long way (one at a time, by the gate)
//!  place := ENTERING                       holder := nobody
//!  (G) compiler only                       (G) membarrier
//!  holder is still me?                     place is OUT? then in; INSIDE? then it is taken
//!    yes: place := INSIDE … place := OUT
//!    no:  place := OUT, then the long way
//! ```
//! Rules:
//! 1. A pass has one bearer, who shows it as `&mut`; handing it to another thread is a synchronisation.
//! 2. Only the bearer makes himself the holder, and only inside by the long way.
//! 3. A holder who is inside already is sent the long way, where he meets himself: a try fails.
//! 4. Barriers (G): either the holder sees that he is none any more, or the other sees him ENTERING. One who is ENTERING
//!    becomes INSIDE or OUT within a few instructions: a try waits for that, so it never fails for one who then turns back.

use core::cell::UnsafeCell;
use core::num::NonZeroU64;
use core::ops::{Deref, DerefMut};

use crate::mutant::{ordering, without};
use crate::sync::{
    AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, has_heavy_barrier, heavy_barrier, light_barrier,
    pause, unique_number,
};

const NOBODY: u64 = 0;

const OUT: u32 = 0;
const ENTERING: u32 = 1;
const INSIDE: u32 = 2;

/// Times in a row that the same bearer comes by the long way before it becomes the holder: a barrier in every thread is some
/// microseconds, which so many short ways pay back. loom needs to get there in few steps.
const STREAK: u32 = if cfg!(loom) { 1 } else { 256 };

/// What who comes often shows at the lock, so that it knows him again. Of one bearer.
#[derive(Debug)]
pub struct Pass(NonZeroU64);

impl Pass {
    /// A pass like no other of this process.
    pub fn new() -> Self {
        Self(unique_number())
    }
}

impl Default for Pass {
    fn default() -> Self {
        Self::new()
    }
}

/// Who came last by the long way, and how often in a row.
#[derive(Debug, Default)]
struct Streak {
    number: u64,
    count: u32,
}

/// A value under a biased lock.
#[derive(Debug)]
pub struct Biased<T> {
    /// Who may go the short way.
    holder: AtomicU64,
    /// Where the holder is. Stored by the holder alone.
    place: AtomicU32,
    gate: Mutex<Streak>,
    value: UnsafeCell<T>,
}

// SAFETY: a lock: the value is reached by one thread at a time (rules 1 to 4), so it need not be `Sync`.
unsafe impl<T: Send> Sync for Biased<T> {}

/// The value, until this is dropped.
#[derive(Debug)]
pub struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    /// The gate, if its bearer came by the long way.
    gate: Option<MutexGuard<'a, Streak>>,
}

impl<T> Biased<T> {
    /// A value that nobody holds.
    ///
    /// The first of a process asks the kernel for the barrier: with threads running that takes a grace period of RCU,
    /// some 15 ms, which would otherwise fall on whichever message makes somebody the holder.
    pub fn new(value: T) -> Self {
        let _asked_for_early = has_heavy_barrier();
        Self {
            holder: AtomicU64::new(NOBODY),
            place: AtomicU32::new(OUT),
            gate: Mutex::new(Streak::default()),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the value. Who comes often shows a pass; who comes rarely none.
    #[inline]
    pub fn lock(&self, pass: Option<&mut Pass>) -> BiasedGuard<'_, T> {
        let number = pass.map_or(NOBODY, |pass| pass.0.get());
        if self.enter(number) {
            return BiasedGuard { lock: self, gate: None };
        }
        self.lock_slowly(number)
    }

    /// The value, unless somebody has it.
    #[inline]
    pub fn try_lock(&self, pass: Option<&mut Pass>) -> Option<BiasedGuard<'_, T>> {
        let number = pass.map_or(NOBODY, |pass| pass.0.get());
        if self.enter(number) {
            return Some(BiasedGuard { lock: self, gate: None });
        }
        self.try_lock_slowly(number)
    }

    /// The short way, if it is open to the bearer of this pass.
    #[inline]
    fn enter(&self, number: u64) -> bool {
        if number == NOBODY
            || self.holder.load(Ordering::Relaxed) != number
            || self.place.load(Ordering::Relaxed) != OUT
        {
            return false;
        }
        self.place.store(ENTERING, Ordering::Relaxed);
        if !without!("bias_light_barrier") {
            light_barrier(); // (G)
        }
        if self.holder.load(Ordering::Relaxed) == number {
            self.place.store(INSIDE, Ordering::Relaxed);
            return true;
        }
        // Nothing to hand over: our last visit lies before the barrier (G) of who shut us out, or we had not come so far.
        self.place.store(OUT, Ordering::Relaxed);
        false
    }

    #[cold]
    fn lock_slowly(&self, number: u64) -> BiasedGuard<'_, T> {
        let gate = self.gate.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut tries = 0;
        while !self.expel_holder() {
            pause(&mut tries);
        }
        self.admit(gate, number)
    }

    #[cold]
    fn try_lock_slowly(&self, number: u64) -> Option<BiasedGuard<'_, T>> {
        let gate = match self.gate.try_lock() {
            Ok(gate) => gate,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        self.expel_holder().then(|| self.admit(gate, number))
    }

    /// With the gate held: closes the short way. `false` if its holder is inside.
    fn expel_holder(&self) -> bool {
        if self.holder.load(Ordering::Relaxed) != NOBODY {
            self.holder.store(NOBODY, Ordering::Relaxed);
            if !without!("bias_heavy_barrier") {
                heavy_barrier(); // (G)
            }
        }
        let mut tries = 0;
        loop {
            match self.place.load(ordering!("bias_look", Acquire)) {
                OUT => return true,
                INSIDE => return false,
                _ => pause(&mut tries),
            }
        }
    }

    fn admit<'a>(&'a self, mut gate: MutexGuard<'a, Streak>, number: u64) -> BiasedGuard<'a, T> {
        gate.count = if gate.number == number { gate.count.saturating_add(1) } else { 1 };
        gate.number = number;
        if number != NOBODY && gate.count >= STREAK && has_heavy_barrier() {
            gate.count = 0;
            self.holder.store(number, Ordering::Relaxed);
        }
        BiasedGuard { lock: self, gate: Some(gate) }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.gate.is_none() {
            self.lock.place.store(OUT, ordering!("bias_leave", Release));
        }
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: whoever bears a guard is the only one inside: by the gate with the holder out, or as the holder, whom
        // everybody with the gate finds INSIDE (rule 4).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A lock whose holder is the bearer of the pass, where the kernel allows one.
    fn held_often() -> (Arc<Biased<u64>>, Pass) {
        let (lock, mut pass) = (Arc::new(Biased::new(0)), Pass::new());
        for _ in 0..=STREAK {
            drop(lock.lock(Some(&mut pass)));
        }
        (lock, pass)
    }

    #[test]
    fn who_comes_often_becomes_the_holder_until_another_comes() {
        let (lock, mut alice) = held_often();
        let mut bob = Pass::new();
        let short = lock.lock(Some(&mut alice));
        assert_eq!(short.gate.is_none(), crate::sync::has_heavy_barrier());
        assert!(lock.try_lock(Some(&mut bob)).is_none() && lock.try_lock(None).is_none(), "it is taken");
        drop(short);
        assert!(lock.try_lock(None).is_some());
        assert!(lock.lock(Some(&mut alice)).gate.is_some(), "the short way is closed");
    }

    #[test]
    fn the_holder_does_not_enter_twice() {
        let (lock, mut alice) = held_often();
        let inside = lock.lock(Some(&mut alice));
        assert!(lock.try_lock(Some(&mut alice)).is_none());
        drop(inside);
        assert!(lock.try_lock(Some(&mut alice)).is_some());
    }

    #[test]
    fn a_panic_inside_leaves_it_open() {
        let (lock, mut alice) = held_often();
        let theirs = Arc::clone(&lock);
        let ended = std::thread::spawn(move || {
            let _inside = theirs.lock(Some(&mut alice));
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        assert_eq!(*lock.lock(Some(&mut Pass::new())), 0);
    }

    /// Goal: nobody is inside at the same time as another, whoever is the holder. Method: a count that two would spoil.
    #[test]
    fn a_million_visits_are_counted() {
        let rounds = if cfg!(miri) { 300 } else { 500_000 };
        let (lock, alice) = held_often();
        let threads: Vec<_> = [(Some(alice), 1), (Some(Pass::new()), 1_000), (None, 1_000)]
            .into_iter()
            .map(|(mut pass, every)| {
                let lock = Arc::clone(&lock);
                std::thread::spawn(move || {
                    let mut visits = 0;
                    // Others come rarely, so that there is a holder most of the time.
                    for round in (0..rounds).step_by(every) {
                        if round % 7 != 0 {
                            *lock.lock(pass.as_mut()) += 1;
                            visits += 1;
                        } else if let Some(mut inside) = lock.try_lock(pass.as_mut()) {
                            *inside += 1;
                            visits += 1;
                        }
                    }
                    visits
                })
            })
            .collect();
        let visits: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(*lock.lock(None), visits);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    type Watched = Biased<loom::cell::UnsafeCell<u32>>;

    /// Counts visits. loom's cell panics if two are inside at once.
    fn count_visit(inside: &BiasedGuard<'_, loom::cell::UnsafeCell<u32>>) {
        // SAFETY: whether another is inside is what loom's cell finds out.
        inside.with_mut(|count| unsafe { *count += 1 });
    }

    fn visits(lock: &Watched) -> u32 {
        // SAFETY: as above.
        lock.lock(None).with(|count| unsafe { *count })
    }

    /// Goal: holder and other are never inside together, and see what the other did.
    #[test]
    fn one_at_a_time() {
        loom::model(|| {
            let (lock, mut alice) = (Arc::new(Watched::new(loom::cell::UnsafeCell::new(0))), Pass::new());
            count_visit(&lock.lock(Some(&mut alice)));
            let theirs = Arc::clone(&lock);
            let other = thread::spawn(move || count_visit(&theirs.lock(None)));
            count_visit(&lock.lock(Some(&mut alice)));
            count_visit(&lock.lock(Some(&mut alice)));
            other.join().unwrap();
            assert_eq!(visits(&lock), 4);
        });
    }

    /// Goal: a try fails only if somebody was inside: of two who try at once, one succeeds.
    #[test]
    fn a_try_does_not_fail_for_nobody() {
        loom::model(|| {
            let (lock, mut alice) = (Arc::new(Watched::new(loom::cell::UnsafeCell::new(0))), Pass::new());
            drop(lock.lock(Some(&mut alice)));
            let theirs = Arc::clone(&lock);
            let other = thread::spawn(move || {
                theirs.try_lock(None).is_some_and(|inside| {
                    count_visit(&inside);
                    true
                })
            });
            let mine = lock.try_lock(Some(&mut alice)).is_some_and(|inside| {
                count_visit(&inside);
                true
            });
            let theirs = other.join().unwrap();
            assert!(mine || theirs);
            assert_eq!(visits(&lock), u32::from(mine) + u32::from(theirs));
        });
    }
}
