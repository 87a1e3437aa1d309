//! One trial: a writer wakes a reader again and again, and both note when. They are threads, or the reader is a process.

use std::sync::mpsc;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_lab_machine::wake::page::{WakePage, WakeWords};
use punctual_machine::cpu::{SchedulingClass, ThreadUsage, pin_to, set_scheduling_class};
use punctual_machine::signal::interrupted;

use super::plan::{Conditions, WakeupTrial};
use super::reader::ReaderProcess;
use super::route::{END, LIMIT_SLACK, Sleeper, Waker, open};
use crate::load::neighbour::neighbours;

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

/// One message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Before the reader's wait.
    pub(super) began: Ticks,
    /// Before the writer's store and notification.
    pub(super) before: Ticks,
    /// After them.
    pub(super) after: Ticks,
    /// The reader knows.
    pub(super) awake: Ticks,
    /// The writer knows that the reader knows.
    pub(super) acknowledged: Ticks,
    /// What the reader was doing.
    pub(super) class: Class,
    /// System calls of the notification.
    pub(super) calls: u32,
    /// Sleeps of the reader.
    pub(super) parks: u32,
    /// The wake-up was lost, and a time limit rescued it.
    pub(super) lost: bool,
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

/// What the reader notes of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) began: Ticks,
    pub(super) awake: Ticks,
    pub(super) parks: u32,
    pub(super) switched: bool,
    pub(super) limit_at: Option<Ticks>,
}

/// What the writer notes of one message.
#[derive(Clone, Copy, Debug)]
struct Sent {
    before: Ticks,
    after: Ticks,
    acknowledged: Ticks,
    parking: bool,
    calls: u32,
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
    let (opened, opening) = mpsc::channel();
    let reader = {
        let (page, trial) = (page.clone(), trial.clone());
        std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read_all(&trial, &page, &opened))
            .map_err(|error| format!("cannot start a thread: {error}"))?
    };
    let waker = match opening.recv() {
        Ok(waker) => waker?,
        Err(mpsc::RecvError) => return Err("the reader ended before it began".to_owned()),
    };
    let written = write_in_a_thread(trial, page, waker)?;
    let notes = reader.join().map_err(|_| CRASHED.to_owned())??;
    Ok(record(&written, &notes))
}

fn run_processes(trial: &WakeupTrial, reader: &mut ReaderProcess) -> Result<Record, String> {
    let (page, waker) = reader.open(trial)?;
    let written = write_in_a_thread(trial, page, waker)?;
    let notes = reader.notes()?;
    Ok(record(&written, &notes))
}

const CRASHED: &str = "a measuring thread crashed";

fn write_in_a_thread(trial: &WakeupTrial, page: WakePage, waker: Waker) -> Result<WriterNotes, String> {
    let trial = trial.clone();
    let writer = std::thread::Builder::new()
        .name("writer".to_owned())
        .spawn(move || write_all(&trial, &page, &waker))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    writer.join().map_err(|_| CRASHED.to_owned())?
}

fn record((sent, stuck, lasted): &WriterNotes, notes: &ReaderNotes) -> Record {
    Record {
        rows: sent.iter().zip(&notes.seen).map(|(sent, seen)| row(sent, seen)).collect(),
        stuck: *stuck,
        reader_cpu_ns: notes.cpu_ns,
        calls_per_park: notes.calls_per_park,
        lasted: *lasted,
    }
}

fn row(sent: &Sent, seen: &Seen) -> Row {
    let class = match (sent.parking, seen.switched) {
        (true, true) => Class::Parked,
        (false, _) if seen.parks == 0 => Class::Awake,
        _ => Class::Between,
    };
    Row {
        began: seen.began,
        before: sent.before,
        after: sent.after,
        awake: seen.awake,
        acknowledged: sent.acknowledged,
        class,
        calls: sent.calls,
        parks: seen.parks,
        lost: is_lost(sent, seen),
    }
}

/// Only the sleep's limit ended it, and the writer had done its part before: it was not merely stopped in the middle of it.
fn is_lost(sent: &Sent, seen: &Seen) -> bool {
    let slack = Clock::get().ticks(LIMIT_SLACK);
    seen.limit_at.is_some_and(|limit_at| sent.after.plus(slack) < limit_at)
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
#[derive(Debug)]
pub(super) struct ReaderNotes {
    pub(super) seen: Vec<Seen>,
    /// CPU time of the reader, nanoseconds.
    pub(super) cpu_ns: u64,
    /// System calls of one sleep.
    pub(super) calls_per_park: u32,
}

/// The reader, in a thread that is its own.
pub(super) fn read_all(
    trial: &WakeupTrial,
    shared: &WakeWords,
    opened: &Opened,
) -> Result<ReaderNotes, String> {
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
    let mut notes = touched(
        trial.count,
        Seen { began: Ticks(0), awake: Ticks(0), parks: 0, switched: false, limit_at: None },
    );
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
                began,
                awake: wait.awake,
                parks: wait.parks,
                switched,
                limit_at: wait.limit_at,
            });
        }
    }
}

type WriterNotes = (Vec<Sent>, bool, Ticks);

fn write_all(trial: &WakeupTrial, shared: &WakeWords, waker: &Waker) -> Result<WriterNotes, String> {
    let clock = Clock::get();
    let empty = Sent { before: Ticks(0), after: Ticks(0), acknowledged: Ticks(0), parking: false, calls: 0 };
    let mut notes = touched(trial.count, empty);
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
