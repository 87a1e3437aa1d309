//! One trial: a writer wakes a reader again and again, and both note when. They are threads, or the reader is a process.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_lab_machine::wake::page::{WakePage, WakeWords};
use punctual_machine::cpu::{SchedulingClass, ThreadUsage, pin_to, set_scheduling_class};
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::plan::{Conditions, WakeupTrial};
use super::reader::ReaderProcess;
use super::route::{END, LIMIT_SLACK, Sleeper, Waker, open};
use crate::load::neighbour::neighbours;
use crate::run::in_a_thread;

/// Priorities under SCHED_FIFO: the reader goes first, and both stay below the kernel's own threads.
const READER_PRIORITY: u8 = 11;
const WRITER_PRIORITY: u8 = 10;

/// A reader that has not answered for so long never will: longer than a lost wake-up takes to be rescued.
const PATIENCE: Duration = Duration::from_secs(5);

/// Idle gaps from here on leave time to ask the kernel whether the reader slept.
const VERIFIED_GAP: Duration = Duration::from_micros(50);

/// What the reader was doing when the writer was about to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Not waiting, or spinning.
    Awake,
    /// On its way into a sleep, or out of one; or nobody asked the kernel.
    Between,
    /// Asleep: it had begun to park, and the kernel counted a switch away from it.
    Parked,
}

/// One message: what both ends noted of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) sent: Sent,
    pub(super) seen: Seen,
}

impl Row {
    pub(super) fn class(&self) -> Class {
        match (self.sent.parking, self.seen.switched) {
            (true, true) => Class::Parked,
            (false, _) if self.seen.parks == 0 => Class::Awake,
            _ => Class::Between,
        }
    }

    /// Whether the wake-up was lost, and a time limit rescued it: only the sleep's limit ended it, and the writer had done its
    /// part before. It was not merely stopped in the middle of it.
    pub(super) fn is_lost(&self) -> bool {
        let complete = self.sent.after.plus(Clock::get().ticks(LIMIT_SLACK));
        self.seen.limit_at.is_some_and(|limit_at| complete.0 < limit_at)
    }

    /// When the reader knew.
    pub(super) fn awake(&self) -> Ticks {
        Ticks(self.seen.awake)
    }
}

/// What a trial came to.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Message by message.
    pub(super) rows: Vec<Row>,
    /// The reader never answered one.
    pub(super) stuck: bool,
    /// CPU time of the reader, nanoseconds.
    pub(super) reader_cpu_ns: u64,
    /// System calls of one sleep.
    pub(super) calls_per_park: u32,
    /// From the first message to the last acknowledgement.
    pub(super) lasted: Ticks,
}

/// What the reader notes of one message. Instants are ticks of the clock, which both processes share.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Before its wait.
    pub(super) began: u64,
    /// It knows.
    pub(super) awake: u64,
    /// Sleeps.
    pub(super) parks: u32,
    /// The kernel counted a switch away from it.
    pub(super) switched: bool,
    /// When the limit of a sleep ended the wait, if only that did.
    pub(super) limit_at: Option<u64>,
}

/// What the writer notes of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Before its store and notification.
    pub(super) before: Ticks,
    /// After them.
    pub(super) after: Ticks,
    /// It knows that the reader knows.
    pub(super) acknowledged: Ticks,
    /// The reader had begun to park.
    parking: bool,
    /// System calls of the notification.
    pub(super) calls: u32,
}

/// Makes one trial. Both ends exist and are pinned before either is raised to a real-time class. `process` is the reader's, and
/// is there after the first trial that needs it.
pub(super) fn run(trial: &WakeupTrial, process: &mut Option<ReaderProcess>) -> Result<Record, String> {
    let _neighbours = trial.conditions.loaded.then(|| neighbours(&trial.cpus));
    if !trial.conditions.processes {
        return run_threads(trial);
    }
    let outcome = match process.take().map_or_else(ReaderProcess::start, Ok) {
        Ok(mut reader) => run_processes(trial, &mut reader).map(|record| (record, reader)),
        Err(error) => Err(error),
    };
    // After an error nobody knows what it is doing: the next trial begins with another one.
    let (record, reader) = outcome?;
    *process = Some(reader);
    Ok(record)
}

fn run_threads(trial: &WakeupTrial) -> Result<Record, String> {
    let page = WakePage::private().map_err(|error| error.to_string())?;
    let (reader, waker) = start_reader(trial, &page)?;
    let written = in_a_thread("writer", || write_all(trial, &page, &waker))??;
    Ok(record(&written, reader.notes()?))
}

fn run_processes(trial: &WakeupTrial, reader: &mut ReaderProcess) -> Result<Record, String> {
    let (page, waker) = reader.open(trial)?;
    let written = in_a_thread("writer", || write_all(trial, &page, &waker))??;
    Ok(record(&written, reader.notes()?))
}

/// A reader in a thread of its own: what it is pinned to and how it is scheduled end with it, and ways are bound to who opened
/// them.
#[derive(Debug)]
pub(super) struct ReaderThread(JoinHandle<Result<ReaderNotes, String>>);

/// Starts it. Returns with the waking end, once both are open.
pub(super) fn start_reader(trial: &WakeupTrial, page: &WakePage) -> Result<(ReaderThread, Waker), String> {
    let (opened, opening) = mpsc::channel();
    let (page, trial) = (page.clone(), trial.clone());
    let reader = std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || read_all(&trial, &page, &opened))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let waker = opening.recv().map_err(|_| "the reader ended before it began".to_owned())??;
    Ok((ReaderThread(reader), waker))
}

impl ReaderThread {
    /// What it has noted, once the writer has ended the trial.
    pub(super) fn notes(self) -> Result<ReaderNotes, String> {
        self.0.join().map_err(|_| "a measuring thread crashed".to_owned())?
    }
}

fn record((sent, stuck, lasted): &WriterNotes, notes: ReaderNotes) -> Record {
    Record {
        rows: sent.iter().zip(notes.seen).map(|(&sent, seen)| Row { sent, seen }).collect(),
        stuck: *stuck,
        reader_cpu_ns: notes.cpu_ns,
        calls_per_park: notes.calls_per_park,
        lasted: *lasted,
    }
}

/// Pins, waits for the other, and then takes the scheduling class: a real-time spinner never keeps its peer from existing.
fn prepare(conditions: &Conditions, cpu: usize, priority: u8, shared: &WakeWords) -> Result<(), String> {
    let pinned = pin_to(cpu);
    meet(shared)?;
    pinned.map_err(|error| error.to_string())?;
    if conditions.fifo {
        set_scheduling_class(SchedulingClass::Fifo(priority)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Waits until the other end is as far.
fn meet(shared: &WakeWords) -> Result<(), String> {
    shared.ready.0.add(1);
    let start = std::time::Instant::now();
    while shared.ready.0.get() < 2 {
        if start.elapsed() > PATIENCE {
            return Err("the other end did not come".to_owned());
        }
        std::thread::yield_now();
    }
    Ok(())
}

type Opened = mpsc::Sender<Result<Waker, String>>;

/// What the reader brings home.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReaderNotes {
    /// Message by message.
    pub(super) seen: Vec<Seen>,
    /// CPU time of the reader, nanoseconds.
    pub(super) cpu_ns: u64,
    /// System calls of one sleep.
    pub(super) calls_per_park: u32,
}

/// The reader, in a thread that is its own.
fn read_all(trial: &WakeupTrial, shared: &WakeWords, opened: &Opened) -> Result<ReaderNotes, String> {
    let mut sleeper = match open(trial.route) {
        Ok((sleeper, waker)) => {
            let _heard = opened.send(Ok(waker));
            sleeper
        }
        Err(error) => {
            let _heard = opened.send(Err(error.to_string()));
            return Err(error.to_string());
        }
    };
    let mut notes = touched(trial.count, Seen::default());
    prepare(&trial.conditions, trial.reader_cpu(), READER_PRIORITY, shared)?;
    let cpu_before = punctual_machine::clock::thread_cpu_ns();
    read_messages(trial, shared, &mut sleeper, &mut notes);
    let cpu_ns = punctual_machine::clock::thread_cpu_ns() - cpu_before;
    Ok(ReaderNotes { seen: notes, cpu_ns, calls_per_park: sleeper.calls() })
}

/// Room in memory that is there already, so that noting faults no page.
fn touched<T: Clone>(count: usize, value: T) -> Vec<T> {
    let mut rows = vec![value; count];
    rows.clear();
    rows
}

fn read_messages(trial: &WakeupTrial, shared: &WakeWords, sleeper: &mut Sleeper, notes: &mut Vec<Seen>) {
    let clock = Clock::get();
    let verifies = trial.gap >= VERIFIED_GAP;
    let mut switches = ThreadUsage::now().switches_voluntary;
    for message in 1.. {
        let began = clock.now();
        let until = began.plus(clock.ticks(PATIENCE));
        let wait = sleeper.wait(shared, message, began, until);
        if wait.over || shared.sent.0.get_published() == END {
            return;
        }
        shared.seen.0.publish(message);
        let mut switched = false;
        if verifies && wait.parks > 0 {
            let now = ThreadUsage::now().switches_voluntary;
            switched = now > switches;
            switches = now;
        }
        if notes.len() < notes.capacity() {
            notes.push(Seen {
                began: began.0,
                awake: wait.awake.0,
                parks: wait.parks,
                switched,
                limit_at: wait.limit_at.map(|at| at.0),
            });
        }
    }
}

type WriterNotes = (Vec<Sent>, bool, Ticks);

fn write_all(trial: &WakeupTrial, shared: &WakeWords, waker: &Waker) -> Result<WriterNotes, String> {
    let clock = Clock::get();
    let mut notes = touched(trial.count, Sent::default());
    let prepared = prepare(&trial.conditions, trial.writer_cpu(), WRITER_PRIORITY, shared);
    let start = clock.now();
    let end = start.plus(clock.ticks(trial.duration));
    let mut stuck = false;
    if prepared.is_ok() {
        while notes.len() < trial.count && clock.now() < end && !interrupted() {
            let message = notes.len() as u64 + 1;
            idle(trial);
            let note = send(trial, shared, waker, message);
            stuck = note.is_none();
            let Some(note) = note else { break };
            notes.push(note);
        }
    }
    let lasted = clock.now().since(start);
    shared.sent.0.publish(END);
    waker.wake(shared);
    prepared.map(|()| (notes, stuck, lasted))
}

/// The idle gap: spun where the reader has a processor of its own, slept where it shares the writer's.
#[inline]
fn idle(trial: &WakeupTrial) {
    let clock = Clock::get();
    if trial.conditions.same_core {
        if !trial.gap.is_zero() {
            std::thread::sleep(trial.gap);
        }
        return;
    }
    let until = clock.now().plus(clock.ticks(trial.gap));
    while clock.now() < until {
        std::hint::spin_loop();
    }
}

#[inline]
fn send(trial: &WakeupTrial, shared: &WakeWords, waker: &Waker, message: u64) -> Option<Sent> {
    let clock = Clock::get();
    let parking = shared.parking.0.get_published() == 1;
    let before = clock.now();
    shared.sent.0.publish(message);
    let calls = waker.wake(shared);
    let after = clock.now();
    let until = after.plus(clock.ticks(PATIENCE));
    let mut polls = 0_u32;
    while shared.seen.0.get_published() < message {
        polls = polls.wrapping_add(1);
        if trial.conditions.same_core {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        if polls.is_multiple_of(256) && clock.now() >= until {
            return None;
        }
    }
    Some(Sent { before, after, acknowledged: clock.now(), parking, calls })
}
