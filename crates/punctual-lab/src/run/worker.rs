//! A worker: another process of this program. It is asked by JSON lines, which rest while a trial runs. Each answer is the result, or
//! the reason for its absence, in words for people.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual::Clock;
use punctual_machine::cpu::pin_to;
use punctual_machine::event_fd::wait_readable;
use punctual_machine::namespace::{bring_up, thread_id};
use punctual_machine::signal::{interrupt, interrupted};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::crash;
use super::place::leave;

/// Checks that there is such a program of another project.
///
/// # Errors
/// There is none, or it does not run: `advice` says what to do.
pub fn look_for(program: &Path, advice: &str) -> Result<(), String> {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    match said {
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => Err(format!("{}: {}; {advice}", program.display(), said.status)),
        Err(error) => Err(format!("{}: {error}; {advice}", program.display())),
    }
}

/// A program of another project's, until this is dropped.
#[derive(Debug)]
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Ended already, as a rule.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Contents of a line: the requested value, or the reason why there is none.
pub type Answer<T> = Result<T, String>;

/// First message to every worker that may leave for a network namespace of its own.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// A namespace of its own.
    pub apart: bool,
    /// The CPU to run on.
    pub cpu: Option<usize>,
}

/// A named value, as it travels to another process: `#[serde(with = "by_name")]`.
pub mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    /// As its name.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(named: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(named)
    }

    /// The value that has that name.
    ///
    /// # Errors
    /// No value has it.
    pub fn deserialize<'a, D: Deserializer<'a>, T: FromStr<Err: Display>>(from: D) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Longest line that is read, bytes: a reader's notes of a million messages, or the messages that vehicles never sent, one by one.
const LINE_SIZE_MAX: u64 = 128 << 20;

/// Text for a worker that ended in place of an answer.
const ENDED: &str = "the responder ended";

fn write_line(output: &mut dyn Write, what: &impl Serialize) -> std::io::Result<()> {
    let line = serde_json::to_string(what)?;
    writeln!(output, "{line}")?;
    output.flush()
}

fn read_line<T: DeserializeOwned>(input: &mut dyn BufRead) -> Answer<T> {
    let mut line = String::new();
    match input.take(LINE_SIZE_MAX).read_line(&mut line) {
        Ok(0) => Err(ENDED.to_owned()),
        Ok(_) if line.len() as u64 == LINE_SIZE_MAX => {
            Err(format!("the responder said more than {LINE_SIZE_MAX} bytes in a line"))
        }
        Ok(_) => serde_json::from_str(&line).map_err(|error| format!("the responder said {line:?}: {error}")),
        Err(error) => Err(format!("the responder cannot be heard: {error}")),
    }
}

/// The worker's end: the source of requests, and the destination of answers.
pub struct Requests {
    input: Box<dyn BufRead + Send>,
    output: Box<dyn Write + Send>,
}

impl Requests {
    /// Of who started this process.
    pub fn of_parent() -> Self {
        Self::of(std::io::stdin(), std::io::stdout())
    }

    /// Of who writes there and reads here.
    pub fn of(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        Self { input: Box::new(BufReader::new(input)), output: Box::new(output) }
    }

    /// The next; `None` when there will be no more.
    pub fn recv<T: DeserializeOwned>(&mut self) -> Option<T> {
        read_line(&mut *self.input).ok()
    }

    /// The first of a worker that stands where it is told: takes its place, and answers with its thread, to which interfaces may be
    /// moved. `None` if it cannot, or is asked for nothing.
    pub fn prepare(&mut self) -> Option<()> {
        let Prepare { apart, cpu } = self.recv()?;
        // Unpinned is slower, not wrong.
        let _unpinned = cpu.map(pin_to);
        // Calibrated now: the first trial's first message must not wait for it.
        Clock::get();
        let left = if apart { leave() } else { Ok(()) };
        let is_ready = left.is_ok();
        if apart && is_ready {
            let _up = bring_up("lo");
        }
        self.answer(&left.map(|()| thread_id())).ok().filter(|()| is_ready)
    }

    /// Answers.
    pub fn answer<T: Serialize>(&mut self, answer: &Answer<T>) -> Result<(), String> {
        write_line(&mut *self.output, answer).map_err(|error| format!("nobody listens: {error}"))
    }

    /// Sends bytes behind an answer.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.output.write_all(bytes).and_then(|()| self.output.flush());
        sent.map_err(|error| format!("nobody listens: {error}"))
    }
}

/// The other process, or thread. It ends with its input, and with this value.
#[derive(Debug)]
pub struct Worker {
    being: Being,
    input: Option<File>,
    output: BufReader<File>,
    /// True if it was told that this process was interrupted.
    is_told: bool,
    /// It is a process of this program: a fault of its own counts.
    is_judged: bool,
}

#[derive(Debug)]
enum Being {
    Process(Child),
    Thread(Option<JoinHandle<()>>),
}

/// Between two looks whether this process was interrupted while another is listened to.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

impl Worker {
    /// Starts this program as a worker in this role, in the calling thread's network namespace.
    pub fn start(role: &str) -> Result<Self, String> {
        Self::start_with(role, &[])
    }

    /// The same with more variables in its environment.
    pub fn start_with(role: &str, more: &[(&str, &str)]) -> Result<Self, String> {
        let program =
            std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let command = &mut Command::new(program);
        let mut worker = Self::run(command.args(["worker", role]).envs(more.iter().copied()))?;
        worker.is_judged = true;
        Ok(worker)
    }

    /// Starts a program that speaks as workers do, where the calling thread is.
    pub fn run(command: &mut Command) -> Result<Self, String> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("cannot start the responder: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or("the responder has no pipes")?;
        Ok(Self::of(Being::Process(child), input.into(), output.into()))
    }

    /// Starts a thread that serves as a worker.
    pub fn in_a_thread(serve: fn(Requests) -> Result<(), String>) -> Result<Self, String> {
        let pipe = || std::io::pipe().map_err(|error| format!("cannot talk to a thread: {error}"));
        let ((requests, input), (output, answers)) = (pipe()?, pipe()?);
        let thread = std::thread::Builder::new().name("responder".to_owned()).spawn(move || {
            // It ends when nobody listens; why is then nobody's concern.
            let _ended = serve(Requests::of(requests, answers));
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self::of(Being::Thread(Some(thread)), input.into(), output.into()))
    }

    fn of(being: Being, input: OwnedFd, output: OwnedFd) -> Self {
        let output = BufReader::new(File::from(output));
        Self { being, input: Some(File::from(input)), output, is_told: false, is_judged: false }
    }

    /// Asks it for something, and waits for that.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T, String> {
        self.send(request)?;
        self.recv()
    }

    /// Asks it for something.
    pub fn send(&mut self, request: &impl Serialize) -> Result<(), String> {
        match &mut self.input {
            Some(input) => write_line(input, request),
            None => Err(ErrorKind::BrokenPipe.into()),
        }
        .map_err(|error| format!("the responder does not listen: {error}"))
    }

    /// Waits for its answer. An interrupt of this process is passed on meanwhile: only a terminal's Ctrl-C reaches both.
    pub fn recv<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        while self.output.buffer().is_empty() && !self.is_told && !self.has_output() {
            self.pass_on_interrupt();
        }
        read_line::<Answer<T>>(&mut self.output).map_err(|reason| self.with_end(reason))?
    }

    /// True if it has ended.
    pub fn has_ended(&mut self) -> bool {
        match &mut self.being {
            Being::Process(child) => child.try_wait().map_or(true, |end| end.is_some()),
            Being::Thread(thread) => thread.as_ref().is_none_or(JoinHandle::is_finished),
        }
    }

    /// Why it cannot be heard, and how its process ended, if it did so with an error.
    fn with_end(&mut self, reason: String) -> String {
        let Being::Process(child) = &mut self.being else { return reason };
        if reason != ENDED || !ends_by_itself(child) {
            return reason;
        }
        match child.try_wait().ok().flatten().map(|end| (end.signal(), end.code())) {
            Some((Some(signal), _)) => format!("{reason} by signal {signal}"),
            Some((_, Some(code))) if code != 0 => format!("{reason} with exit code {code}"),
            _ => reason,
        }
    }

    /// True if its process was ended by a signal from outside.
    pub fn was_ended(&mut self) -> bool {
        let Being::Process(child) = &mut self.being else { return false };
        let end = child.try_wait().ok().flatten();
        end.is_some_and(|status| status.signal().is_some() && crash::fault(status).is_none())
    }

    /// Passes an interrupt of this process on, if there was one. A caller that waits for several workers does so for all of them first.
    pub fn pass_on_interrupt(&mut self) {
        if interrupted() && !self.is_told {
            self.is_told = true;
            if let Being::Process(child) = &self.being {
                interrupt(child);
            }
        }
    }

    /// True if it has said something or ended; waits a moment for that.
    pub fn wait_a_moment(&self) -> bool {
        !self.output.buffer().is_empty() || self.has_output()
    }

    /// Lets it end; dropping this value waits for that. A caller that has several workers dismisses all of them first.
    pub fn dismiss(&mut self) {
        drop(self.input.take());
    }

    /// True if it has said something or ended; does not wait.
    pub fn has_answer(&self) -> bool {
        let watched = || wait_readable(self.output.get_ref().as_fd(), Some(Duration::ZERO));
        !self.output.buffer().is_empty() || watched().is_ok_and(|readable| readable)
    }

    /// The same as [`Self::recv`], but for so long at most, also after an interrupt.
    pub fn recv_within<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T, String> {
        let start = Instant::now();
        while self.output.buffer().is_empty() && !self.has_output() {
            if start.elapsed() > patience {
                return Err(format!("the responder said nothing for {} s", patience.as_secs()));
            }
            self.pass_on_interrupt();
        }
        self.recv()
    }

    /// Its process; `None` if it is a thread.
    pub fn process(&self) -> Option<u32> {
        match &self.being {
            Being::Process(child) => Some(child.id()),
            Being::Thread(_) => None,
        }
    }

    /// Ends its process by SIGKILL. A thread ends with its input.
    pub fn kill(&mut self) {
        if let Being::Process(child) = &mut self.being {
            // One that has ended already is as good.
            let _ended = child.kill();
            let _reaped = child.wait();
        }
    }

    /// True if it has said something or ended; waits a moment for that. `true` if the pipe cannot be watched: then a read tells.
    fn has_output(&self) -> bool {
        match wait_readable(self.output.get_ref().as_fd(), Some(BETWEEN_LOOKS)) {
            Ok(readable) => readable,
            Err(error) => error.kind() != ErrorKind::Interrupted,
        }
    }

    /// Takes the bytes that follow an answer.
    pub fn recv_bytes(&mut self, size: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; size];
        let read = self.output.read_exact(&mut bytes);
        read.map(|()| bytes).map_err(|error| format!("the responder cannot be heard: {error}"))
    }
}

/// Time that a worker may take to leave: some hundred times of what it takes on a busy machine.
const LEAVING_MAX: Duration = Duration::from_secs(10);

fn ends_by_itself(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < LEAVING_MAX {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Ok(Some(_)) => return true,
            Err(_) => return false,
        }
    }
    false
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It ends with its input, and leaves its buses first: killed, it would leave its files behind.
        drop(self.input.take());
        match &mut self.being {
            Being::Process(child) => {
                let hangs = !ends_by_itself(child);
                if hangs {
                    let _ended = child.kill();
                }
                if let Ok(status) = child.wait()
                    && self.is_judged
                {
                    crash::note_end(status, hangs);
                }
            }
            Being::Thread(thread) => {
                let _ended = thread.take().map(JoinHandle::join);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a process of a run that hangs when it is to leave is ended, and breaks the promise. One that leaves does not. Method: a
    /// program that does not look at its input, and one that does.
    #[test]
    fn a_worker_that_hangs_is_told() {
        let hung = || crash::seen().iter().filter(|crash| crash.contains("did not end")).count();
        for (program, arguments, hangs) in [("cat", &[][..], 0), ("sleep", &["600"][..], 1)] {
            let before = hung();
            let mut worker = Worker::run(Command::new(program).args(arguments)).expect("a program");
            worker.is_judged = true;
            drop(worker);
            assert_eq!(hung() - before, hangs, "{program}");
        }
    }
}
