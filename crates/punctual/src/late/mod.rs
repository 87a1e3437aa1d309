//! Late messages on file, for `punctual explain FILE` ([docs/explain.md](../../../../docs/explain.md)).
//!
//! A communicator that keeps such a log asks the kernel about its thread between messages: when it finds none, at most once a
//! millisecond, and at once after a late message. Where its port is never empty, it asks after 100 ms. A message later than the
//! threshold leaves one line: its stages, and what the thread went through around it.

mod line;
mod page;
mod watch;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_machine::SystemError;
use punctual_machine::clock::{Clock, Ticks, monotonic_ns};
use punctual_machine::process::Maker;
use punctual_machine::signal::count_continuations_unless_handled;

use page::LatePage;
pub use page::{LateSpan, WatchedLog, watched_logs};
pub(crate) use watch::Watch;

/// Largest file, bytes: some ten thousand late messages.
#[doc(hidden)]
pub const FILE_SIZE_MAX: u64 = 16 << 20;

/// Messages of one second that are written, at most.
#[doc(hidden)]
pub const RECORDS_PER_SECOND_MAX: u32 = 100;

/// Room for a line, bytes: one with as many windows as are kept.
const LINE_SIZE: usize = 16 << 10;

/// A file that late messages are written to, of any number of communicators of this process.
///
/// ```
/// use std::time::Duration;
/// use punctual::{Bus, CommunicatorOptions, LateLog, Node, Target};
///
/// let file = std::env::temp_dir().join(format!("late-{}.jsonl", std::process::id()));
/// let late = LateLog::create(&file, Duration::from_millis(5))?;
/// let options = CommunicatorOptions::default().stamped().noting_late(&late);
/// let node = Node::open(&Bus::loopback("late-log"), "here")?;
/// let mut port = node.bind_with(1, &options)?;
/// port.send(Target::port("here", 1), b"in time")?;
/// port.receive()?;
/// # drop(port);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LateLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    threshold: Ticks,
    file: Mutex<LateFile>,
}

/// Outcomes of late messages, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateAccount {
    /// They stand in the file.
    pub written: u64,
    /// There were too many at once, or the file is as large as it may be.
    pub skipped: u64,
    /// The file could not be written to: the disk is full, for instance.
    pub unwritten: u64,
    /// Messages with stamps that may have been late, and of which nobody knows: their stamps are of another clock, and no kernel said
    /// when they came, or its clock was set since. `DatagramOptions::timestamps` lets the kernel say it.
    pub untimed: u64,
}

impl LateLog {
    /// Makes the file, empty, in place of what was there. Messages that take longer than `threshold` are late. The call takes a
    /// millisecond: it measures the cost of a page fault here. From then on the process counts SIGCONT, unless it has a handler.
    ///
    /// # Errors
    /// The folder is not there, or may not be written to; or another log is writing the file.
    pub fn create(path: impl AsRef<Path>, threshold: Duration) -> Result<Self, SystemError> {
        let path = path.as_ref();
        let file = create_alone(path).map_err(|error| {
            SystemError::new("create log of late messages", path.display().to_string(), error)
        })?;
        let counts_continuations = count_continuations_unless_handled();
        let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        let made_ns = monotonic_ns();
        let file = LateFile {
            file,
            page: LatePage::create(path, made_ns)?,
            head: line::head(made_ns, threshold_ns, counts_continuations),
            text: String::with_capacity(LINE_SIZE),
            size: 0,
            account: LateAccount::default(),
            told_untimed: false,
            second: 0,
            in_second: 0,
            maker: Maker::this_process(),
        };
        Ok(Self(Arc::new(Shared { threshold: Clock::get().ticks(threshold), file: Mutex::new(file) })))
    }

    /// Outcomes of late messages until now, counted.
    pub fn account(&self) -> LateAccount {
        self.lock().account
    }

    fn lock(&self) -> MutexGuard<'_, LateFile> {
        self.0.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file, empty, which no other log writes while this one lives: their lines would lie across each other.
fn create_alone(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    // A pipe or a device may not know locks.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(std::io::Error::other("another log is writing it"));
    }
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

#[derive(Debug)]
struct LateFile {
    file: File,
    /// Tells a recorder of the kernel's trace, in another process.
    page: LatePage,
    /// The first line, until it is written.
    head: String,
    text: String,
    /// Bytes written.
    size: u64,
    account: LateAccount,
    /// The file says that there were messages whose time nobody knows.
    told_untimed: bool,
    /// Seconds of `CLOCK_MONOTONIC`, and messages written in this one.
    second: u64,
    in_second: u32,
    /// A process forked from it shares the file, and knows neither its size nor its numbers: it writes nothing.
    maker: Maker,
}

impl LateFile {
    /// One more message, if there is room for it. `write` says it, by its number and what was left out until then.
    fn add(&mut self, span: LateSpan, write: impl FnOnce(&mut String, LateAccount)) {
        if !self.maker.is_this_process() {
            self.account.unwritten += 1;
            return;
        }
        let second = monotonic_ns() / 1_000_000_000;
        if std::mem::replace(&mut self.second, second) != second {
            self.in_second = 0;
        }
        if self.in_second >= RECORDS_PER_SECOND_MAX || self.size >= FILE_SIZE_MAX {
            self.account.skipped += 1;
            return;
        }
        self.in_second += 1;
        // First of all: records elsewhere are soon overwritten.
        self.page.note(span);
        let account = self.account;
        if self.append(|text| write(text, account)) {
            self.account.written += 1;
        } else {
            self.account.unwritten += 1;
        }
    }

    /// So many more messages whose time nobody knows. The file says once that there were some: an empty one would say that all were in
    /// time.
    fn note_untimed(&mut self, count: u64, line: impl FnOnce() -> String) {
        self.account.untimed += count;
        if !self.told_untimed && self.size < FILE_SIZE_MAX && self.maker.is_this_process() {
            self.told_untimed = self.append(|text| text.push_str(&line()));
        }
    }

    /// Writes a line, behind the head if it is the first. Returns false if the disk did not take it.
    fn append(&mut self, write: impl FnOnce(&mut String)) -> bool {
        self.text.clear();
        if self.size == 0 {
            self.text.push_str(&self.head);
        }
        write(&mut self.text);
        let is_written = self.file.write_all(self.text.as_bytes()).is_ok();
        if is_written {
            self.size += self.text.len() as u64;
        } else {
            // No half of a line: earlier lines stay readable.
            let _still_full = self.file.set_len(self.size);
            let _still_there = std::io::Seek::seek(&mut self.file, std::io::SeekFrom::Start(self.size));
        }
        is_written
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use punctual_machine::cpu::{allowed, pin_to};
    use punctual_machine::namespace::thread_id;
    use punctual_machine::process::random;
    use punctual_machine::scheduling::set_nice;
    use punctual_proto::{Address, NodeId, Stamps, Target};

    use super::*;
    use crate::runtime::{Awaited, Join, Runtime, RuntimeOptions, TaskOptions};
    use crate::trace::{ReceiverStamps, Record, Stages};
    use crate::{Bus, Communicator, CommunicatorOptions, Node, Wake};

    const SPAN: LateSpan = LateSpan { from_ns: 1, to_ns: 2, thread: 3 };

    /// Goal: a folder that is not there is an error at once; a disk that is full is counted and leaves no half of a line.
    #[test]
    fn failed_writes_are_said_or_counted() {
        let second = Duration::from_secs(1);
        let error = LateLog::create("/nowhere/at/all.jsonl", second).expect_err("no folder");
        assert!(
            error.to_string().starts_with("create log of late messages /nowhere/at/all.jsonl"),
            "{error}"
        );
        let full = LateLog::create("/dev/full", second).expect("it opens");
        full.lock().add(SPAN, |text, _| text.push_str("a line\n"));
        assert_eq!(full.account(), LateAccount { unwritten: 1, ..LateAccount::default() });
    }

    /// Goal: a file has one log at a time. The lines of the first stay, and when it has gone another may have the file.
    #[test]
    fn a_file_has_one_log() {
        let file = tempfile::NamedTempFile::new().expect("room");
        let create = || LateLog::create(file.path(), Duration::from_secs(1));
        let size = || std::fs::metadata(file.path()).expect("a file").len();
        let first = create().expect("nobody else writes");
        first.lock().add(SPAN, |text, _| text.push_str("a line\n"));
        let written = size();
        let error = create().expect_err("the first still writes").to_string();
        assert!(error.contains(&*file.path().to_string_lossy()) && error.contains("another log"), "{error}");
        assert_eq!(size(), written);
        drop(first);
        create().expect("nobody writes any more");
        assert_eq!((written > 0, size()), (true, 0));
    }

    /// Goal: a flood of late messages is bounded in rate, what is beyond is counted, and the head comes first, once.
    #[test]
    fn a_flood_is_bounded_and_counted() {
        let file = tempfile::NamedTempFile::new().expect("room");
        let log = LateLog::create(file.path(), Duration::from_secs(1)).expect("room");
        assert_eq!(std::fs::metadata(file.path()).expect("a file").len(), 0);
        let count = u64::from(RECORDS_PER_SECOND_MAX) * 3;
        (0..count).for_each(|_| log.lock().add(SPAN, |text, _| text.push_str("a line\n")));
        let account = log.account();
        assert_eq!(account.written + account.skipped, count);
        // They may lie in two seconds.
        assert!(account.skipped >= u64::from(RECORDS_PER_SECOND_MAX), "{account:?}");
        let text = std::fs::read_to_string(file.path()).expect("text");
        assert!(text.starts_with("{\"schema\":\"punctual.late.v1\""), "{text}");
        assert_eq!(text.lines().count() as u64, account.written + 1);
    }

    /// A port whose messages are all late, and the log of it.
    fn port(bus: &str) -> (Communicator, LateLog, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().expect("room");
        let log = LateLog::create(file.path(), Duration::ZERO).expect("room");
        let options = CommunicatorOptions::waiting(Wake::Spin).stamped().noting_late(&log);
        let node = Node::open(&Bus::loopback(&format!("{bus}-{:x}", random())), "here").expect("a bus");
        (node.bind_with(1, &options).expect("a port"), log, file)
    }

    fn send(port: &mut Communicator) {
        port.send(Target::port("here", 1), b"late").expect("room");
    }

    /// Goal: messages of another clock that no kernel stamped are counted, and the file says once that there were some. They are no
    /// samples of what is usual, and those whose time is known are late as before.
    #[test]
    fn messages_whose_time_nobody_knows_are_said() {
        let file = tempfile::NamedTempFile::new().expect("room");
        let log = LateLog::create(file.path(), Duration::from_millis(1)).expect("room");
        let mut watch = Watch::new(&log, "here:1".to_owned());
        let clock = Clock::get();
        let source = Address { node: NodeId::named("far"), port: 7.into() };
        // A look is due whenever one is delivered.
        let delivered = clock.now().plus(clock.ticks(Duration::from_secs(3_600)));
        let mut note = |took: Option<Duration>| {
            let kernel = took.map_or(Ticks(0), |took| Ticks(delivered.0 - clock.ticks(took).0));
            let receiver = ReceiverStamps { kernel, delivered, ..ReceiverStamps::default() };
            let stages = Stages { sender: Stamps::default(), receiver, one_clock: false };
            watch.note(&Record { source, sequence: 0, stages });
            watch.look();
        };
        let text = || std::fs::read_to_string(file.path()).expect("text");
        (0..40).for_each(|_| note(None));
        assert_eq!(log.account(), LateAccount { untimed: 40, ..LateAccount::default() });
        let said = text();
        let lines: Vec<&str> = said.lines().collect();
        let line = format!("{{\"untimed\":{{\"receiver\":\"here:1\",\"source\":\"{source}\"}}}}");
        assert_eq!((lines.len(), lines[1]), (2, &line[..]), "{said}");
        assert!(lines[0].starts_with("{\"schema\""), "{said}");
        note(Some(Duration::from_micros(500)));
        note(Some(Duration::from_millis(2)));
        assert_eq!(log.account(), LateAccount { written: 1, untimed: 40, ..LateAccount::default() });
        let late = text()[said.len()..].to_owned();
        assert!(late.starts_with("{\"number\":0,") && late.contains("\"untimed\":40}"), "{late}");
        let usual = late.split("\"usual_ns\":").nth(1).and_then(|rest| rest.split(',').next());
        let usual_ns: u64 = usual.and_then(|word| word.parse().ok()).expect("a number");
        assert!((499_000..=501_000).contains(&usual_ns), "{late}");
    }

    /// Goal: a late message is that of the thread which received it, also if another looks next, whose windows are not its own.
    #[test]
    fn a_message_is_its_receivers() {
        let (mut port, log, file) = port("moves");
        // This thread receives one itself, and has windows then.
        for is_sent in [false, true] {
            if is_sent {
                send(&mut port);
                port.try_receive().expect("it was sent");
            }
            assert!(port.try_receive().is_err());
        }
        let of_this = std::fs::read_to_string(file.path()).expect("text");
        send(&mut port);
        let (receiver, cpu) = std::thread::scope(|scope| {
            let (gives, given) = std::sync::mpsc::channel();
            let (ends, may_end) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                let cpu = allowed()[0];
                pin_to(cpu).expect("its own");
                set_nice(7).expect("less urgent is always allowed");
                port.try_receive().expect("it was sent");
                gives.send((port, thread_id(), cpu)).expect("somebody waits");
                // The thread that writes of this one finds it alive.
                let _ended = may_end.recv();
            });
            let (mut port, receiver, cpu) = given.recv().expect("it was received");
            assert!(port.try_receive().is_err(), "nothing more was sent");
            drop(ends);
            (receiver, cpu)
        });
        assert_eq!(log.account().written, 2);
        let text = std::fs::read_to_string(file.path()).expect("text");
        let line = &text[of_this.len()..];
        let of_receiver = format!("\"thread\":{receiver},\"cpus\":[{cpu}],\"urgency\":\"nice:7\"");
        assert!(line.contains(&of_receiver) && receiver != thread_id(), "{line}");
        assert!(of_this.contains("\"windows\":[{") && line.contains("\"windows\":[]"), "{text}");
    }

    /// Goal: a thread that never finds its port empty still learns of late messages; those that it cannot remember until then are
    /// counted.
    #[test]
    fn a_port_that_is_never_empty_is_looked_away_from() {
        let (mut port, log, _file) = port("never-empty");
        (0..16).for_each(|_| send(&mut port));
        let (begin, mut received) = (Instant::now(), 0_u64);
        while log.account().written == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "{received} messages, and nothing is written");
            port.receive().expect("never empty");
            received += 1;
            send(&mut port);
        }
        let LateAccount { written, skipped, .. } = log.account();
        let all = written + skipped;
        assert!(
            skipped > 0 && all <= received && 2 * all > received,
            "{written} and {skipped} of {received}"
        );
    }

    /// Goal: a late message of a task is written when the task next finds nothing, and not only when its communicator is dropped.
    #[test]
    fn a_late_message_of_a_task_is_written() {
        let (mut port, log, _file) = port("awaited");
        send(&mut port);
        let runtime =
            Runtime::start(&RuntimeOptions { workers: 1, ..RuntimeOptions::default() }).expect("room");
        let mut inbox = Awaited::new(runtime.handle(), port).expect("room");
        let task = async move {
            loop {
                inbox.receive().await;
            }
        };
        let _waits: Join<()> = runtime.spawn(TaskOptions::of_class(0), task).expect("it runs");
        let begin = Instant::now();
        while log.account().written == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing is written: {:?}", log.account());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Goal: a communicator that moves to another thread says what that thread went through.
    #[test]
    fn the_thread_is_that_which_receives() {
        let (mut port, log, file) = port("moves");
        let one = |port: &mut Communicator| {
            send(port);
            port.receive().expect("a message");
            port.try_receive().expect_err("there is one only");
            thread_id()
        };
        let here = one(&mut port);
        let there =
            std::thread::spawn(move || [one(&mut port), one(&mut port)][1]).join().expect("it receives");
        let text = std::fs::read_to_string(file.path()).expect("text");
        let threads: Vec<&str> =
            text.lines().skip(1).filter_map(|line| line.split("\"thread\":").nth(1)).collect();
        assert_eq!(log.account().written, 3, "{text}");
        for (thread, number) in threads.iter().zip([here, there, there]) {
            assert!(thread.starts_with(&format!("{number},")), "{number}: {text}");
        }
    }
}
