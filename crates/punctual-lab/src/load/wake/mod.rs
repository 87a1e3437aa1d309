//! A writer wakes a reader again and again, by any mechanism of this kernel, and both note when. They are threads, or the reader is a
//! process.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use punctual::{Clock, Ticks};
use punctual_lab_machine::wake::page::{WakePage, WakeWords};
use punctual_machine::clock::thread_cpu_ns;
use punctual_machine::cpu::{SchedulingClass, ThreadUsage, pin_to, set_scheduling_class};
use punctual_machine::signal::interrupted;
use serde::{Deserialize, Serialize};

use super::neighbour::neighbours;
use super::pace::spin_until;
use crate::run::{by_name, in_a_thread, room_for};

mod reader;
mod route;

pub use reader::{ReaderProcess, serve};
pub use route::Route;
use route::{END, LIMIT_SLACK, ReadingEnd, Wait, WritingEnd, open};

/// Priorities under SCHED_FIFO: the reader goes first, and both stay below the kernel's own threads.
const READER_PRIORITY: u8 = 11;
const WRITER_PRIORITY: u8 = 10;

/// A reader that has not answered for so long never will: longer than a lost wake-up takes to be rescued.
const PATIENCE: Duration = Duration::from_secs(5);

/// Idle gaps from here on leave time to ask the kernel whether the reader slept.
const VERIFIED_GAP: Duration = Duration::from_micros(50);

/// Conditions of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conditions {
    /// The reader is a process of its own, as in the work log.
    pub processes: bool,
    /// Both ends on one processor.
    pub same_core: bool,
    /// Both ends under SCHED_FIFO.
    pub fifo: bool,
    /// A busy thread on every processor.
    pub loaded: bool,
}

impl Conditions {
    /// Two threads, a core each, idle otherwise.
    pub const THREADS: Self = Self { processes: false, same_core: false, fifo: false, loaded: false };
    /// The same with two processes.
    pub const PROCESSES: Self = Self { processes: true, ..Self::THREADS };

    /// All of them, the plain ones first.
    pub fn all() -> [Self; 16] {
        std::array::from_fn(|place| Self {
            processes: place & 8 != 0,
            same_core: place & 1 != 0,
            fifo: place & 2 != 0,
            loaded: place & 4 != 0,
        })
    }

    /// True without disturbances: a core for each end, idle otherwise, and no scheduling class of its own.
    pub fn is_plain(self) -> bool {
        Self { processes: false, ..self } == Self::THREADS
    }

    /// Behind a route's name: nothing for threads under plain ones.
    pub fn suffix(self) -> String {
        let parts = [
            (self.processes, "+processes"),
            (self.same_core, "+same-core"),
            (self.fifo, "+fifo"),
            (self.loaded, "+loaded"),
        ];
        parts.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect()
    }

    /// In words.
    pub fn words(self) -> String {
        let ends = if self.processes { "two processes, " } else { "" };
        let place = if self.same_core { "both on one core" } else { "a core each" };
        let class = if self.fifo { "SCHED_FIFO" } else { "SCHED_OTHER" };
        let load = if self.loaded { "every core busy" } else { "idle otherwise" };
        format!("{ends}{place}, {class}, {load}")
    }
}

/// One trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WakeTrial {
    /// The way.
    #[serde(with = "by_name")]
    pub route: Route,
    /// Its conditions.
    pub conditions: Conditions,
    /// Idle time before each message.
    pub gap: Duration,
    /// At most so long.
    pub duration: Duration,
    /// At most so many messages.
    pub count: usize,
    /// The processors that this process may use.
    pub cpus: Vec<usize>,
}

impl WakeTrial {
    /// Where the reader runs: the last.
    pub fn reader_cpu(&self) -> usize {
        self.cpus.last().copied().unwrap_or(0)
    }

    /// Where the writer runs: the first, or where the reader does.
    pub fn writer_cpu(&self) -> usize {
        if self.conditions.same_core { self.reader_cpu() } else { self.cpus.first().copied().unwrap_or(0) }
    }
}

/// One message: the notes of both ends on it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The writer.
    pub sent: Sent,
    /// The reader.
    pub seen: Seen,
}

impl Row {
    /// The reader slept when the writer was about to wake it: it had begun to park, and the kernel counted a switch away from it.
    pub fn is_parked(&self) -> bool {
        self.sent.parking && self.seen.switched
    }

    /// It was not waiting then, or spinning. A reader that was neither parked nor awake was on its way into a sleep or out of one, or
    /// nobody asked the kernel.
    pub fn is_awake(&self) -> bool {
        !self.sent.parking && self.seen.wait.parks == 0
    }

    /// True if the wake-up was lost and a time limit rescued it: only the sleep's limit ended it, and the writer had done its part
    /// before. It was not merely stopped in the middle of it.
    pub fn is_lost(&self) -> bool {
        let complete = self.sent.after.plus(Clock::get().ticks(LIMIT_SLACK));
        self.seen.wait.limit_at.is_some_and(|limit_at| complete < limit_at)
    }
}

/// Result of a trial.
#[derive(Debug)]
pub struct Record {
    /// Message by message.
    pub rows: Vec<Row>,
    /// The reader never answered one.
    pub stuck: bool,
    /// From the first message to the last acknowledgement.
    pub lasted: Ticks,
    /// CPU time of the reader, nanoseconds.
    pub reader_cpu_ns: u64,
    /// System calls of one sleep.
    pub calls_per_park: u32,
}

/// The reader's notes on one message. Both processes share the clock.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Before its wait.
    pub began: Ticks,
    /// Result of the wait.
    pub wait: Wait,
    /// The kernel counted a switch away from it.
    switched: bool,
}

/// The writer's notes on one message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Before its store and notification.
    pub before: Ticks,
    /// After them.
    pub after: Ticks,
    /// It knows that the reader knows.
    pub acknowledged: Ticks,
    /// The reader had begun to park.
    parking: bool,
    /// System calls of the notification.
    pub calls: u32,
}

/// Makes one trial. Both ends exist and are pinned before either is raised to a real-time class. `process` is the reader's, and
/// is there after the first trial that needs it.
pub fn run(trial: &WakeTrial, process: &mut Option<ReaderProcess>) -> Result<Record, String> {
    let _neighbours = trial.conditions.loaded.then(|| neighbours(&trial.cpus));
    if !trial.conditions.processes {
        let page = WakePage::private().map_err(|error| error.to_string())?;
        let (reader, waker) = start_reader(trial, &page)?;
        let written = in_a_thread("writer", || write_all(trial, &page, &waker))??;
        return Ok(written.read_by(reader.notes()?));
    }
    // After an error nobody knows what it is doing: the next trial begins with another one.
    let mut reader = process.take().map_or_else(ReaderProcess::start, Ok)?;
    let (page, waker) = reader.open(trial)?;
    let written = in_a_thread("writer", || write_all(trial, &page, &waker))??;
    let record = written.read_by(reader.notes()?);
    *process = Some(reader);
    Ok(record)
}

/// A reader in a thread of its own: its pinning and scheduling end with it, and ways are bound to the thread that opened them.
#[derive(Debug)]
pub(super) struct ReaderThread(JoinHandle<Result<ReaderNotes, String>>);

/// Starts it. Returns with the waking end, once both are open.
fn start_reader(trial: &WakeTrial, page: &WakePage) -> Result<(ReaderThread, WritingEnd), String> {
    let (opened, opening) = mpsc::channel();
    let (page, trial) = (page.clone(), trial.clone());
    let reader = std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || {
            let (reading, writing) = open(trial.route).map_err(|error| error.to_string())?;
            let _heard = opened.send(writing);
            read_all(&trial, &page, reading)
        })
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let reader = ReaderThread(reader);
    match opening.recv() {
        Ok(waker) => Ok((reader, waker)),
        Err(_) => Err(reader.notes().err().unwrap_or_default()),
    }
}

impl ReaderThread {
    /// The reader's notes, once the writer has ended the trial.
    pub(super) fn notes(self) -> Result<ReaderNotes, String> {
        self.0.join().map_err(|_| "a measuring thread crashed".to_owned())?
    }
}

/// Pins, waits for the other, and then takes the scheduling class: a real-time spinner never keeps its peer from existing.
fn prepare(conditions: &Conditions, cpu: usize, priority: u8, words: &WakeWords) -> Result<(), String> {
    let pinned = pin_to(cpu);
    meet(words)?;
    pinned.map_err(|error| error.to_string())?;
    if conditions.fifo {
        set_scheduling_class(SchedulingClass::Fifo(priority)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Waits until the other end is as far.
fn meet(words: &WakeWords) -> Result<(), String> {
    words.ready.0.add(1);
    let start = std::time::Instant::now();
    while words.ready.0.get() < 2 {
        if start.elapsed() > PATIENCE {
            return Err("the other end did not come".to_owned());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// The reader's notes on a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReaderNotes {
    /// Message by message.
    seen: Vec<Seen>,
    /// CPU time of the reader, nanoseconds.
    cpu_ns: u64,
    /// System calls of one sleep.
    calls_per_park: u32,
}

/// The reader, in a thread that is its own.
fn read_all(trial: &WakeTrial, words: &WakeWords, mut reading: ReadingEnd) -> Result<ReaderNotes, String> {
    let mut seen = room_for(trial.count, Seen { began: Ticks(1), ..Seen::default() });
    prepare(&trial.conditions, trial.reader_cpu(), READER_PRIORITY, words)?;
    let cpu_before = thread_cpu_ns();
    read_messages(trial, words, &mut reading, &mut seen);
    Ok(ReaderNotes { seen, cpu_ns: thread_cpu_ns() - cpu_before, calls_per_park: reading.calls() })
}

fn read_messages(trial: &WakeTrial, words: &WakeWords, reading: &mut ReadingEnd, seen: &mut Vec<Seen>) {
    let clock = Clock::get();
    let verifies = trial.gap >= VERIFIED_GAP;
    let mut switches = ThreadUsage::now().switches_voluntary;
    for message in 1.. {
        let began = clock.now();
        let wait = reading.wait(words, message, began.plus(clock.ticks(PATIENCE)));
        if wait.over || words.sent.0.get_published() == END {
            return;
        }
        words.seen.0.publish(message);
        let mut switched = false;
        if verifies && wait.parks > 0 {
            let before = std::mem::replace(&mut switches, ThreadUsage::now().switches_voluntary);
            switched = switches > before;
        }
        if seen.len() < seen.capacity() {
            seen.push(Seen { began, wait, switched });
        }
    }
}

/// The writer's notes on a trial.
struct WriterNotes {
    sent: Vec<Sent>,
    stuck: bool,
    lasted: Ticks,
}

impl WriterNotes {
    fn read_by(self, reader: ReaderNotes) -> Record {
        let rows = self.sent.into_iter().zip(reader.seen).map(|(sent, seen)| Row { sent, seen });
        Record {
            rows: rows.collect(),
            stuck: self.stuck,
            lasted: self.lasted,
            reader_cpu_ns: reader.cpu_ns,
            calls_per_park: reader.calls_per_park,
        }
    }
}

fn write_all(trial: &WakeTrial, words: &WakeWords, waker: &WritingEnd) -> Result<WriterNotes, String> {
    let clock = Clock::get();
    let mut sent = room_for(trial.count, Sent { before: Ticks(1), ..Sent::default() });
    let prepared = prepare(&trial.conditions, trial.writer_cpu(), WRITER_PRIORITY, words);
    let start = clock.now();
    let end = start.plus(clock.ticks(trial.duration));
    let mut stuck = false;
    while prepared.is_ok() && sent.len() < trial.count && clock.now() < end && !interrupted() {
        let message = sent.len() as u64 + 1;
        idle(trial);
        let Some(note) = send(trial, words, waker, message) else {
            stuck = true;
            break;
        };
        sent.push(note);
    }
    let lasted = clock.now().since(start);
    store_and_wake(words, waker, END);
    prepared.map(|()| WriterNotes { sent, stuck, lasted })
}

/// The idle gap: spun where the reader has a processor of its own, slept where it shares the writer's.
#[inline]
fn idle(trial: &WakeTrial) {
    let clock = Clock::get();
    if !trial.conditions.same_core {
        spin_until(clock.now().plus(clock.ticks(trial.gap)));
    } else if !trial.gap.is_zero() {
        std::thread::sleep(trial.gap);
    }
}

/// Stores the message's number, and wakes the reader if that must be; the system calls that it took.
#[inline]
fn store_and_wake(words: &WakeWords, waker: &WritingEnd, message: u64) -> u32 {
    words.sent.0.publish(message);
    waker.wake(words)
}

#[inline]
fn send(trial: &WakeTrial, words: &WakeWords, waker: &WritingEnd, message: u64) -> Option<Sent> {
    let clock = Clock::get();
    let parking = words.parking.0.get_published() == 1;
    let before = clock.now();
    let calls = store_and_wake(words, waker, message);
    let after = clock.now();
    let until = after.plus(clock.ticks(PATIENCE));
    let mut polls = 0_u32;
    while words.seen.0.get_published() < message {
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
    let acknowledged = clock.now_after_loads();
    Some(Sent { before, after, acknowledged, parking, calls })
}
