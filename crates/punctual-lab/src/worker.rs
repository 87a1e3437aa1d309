//! A worker: another process of this program, with a stream of JSON lines each way that rests while a trial runs.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use punctual_machine::event_fd::wait_readable;
use punctual_machine::signal::{interrupt, interrupted};
use serde::{Deserialize, Serialize};

/// Writes one line.
///
/// # Errors
/// When nobody listens.
pub fn send(output: &mut impl Write, what: &impl Serialize) -> std::io::Result<()> {
    let line = serde_json::to_string(what)?;
    writeln!(output, "{line}")?;
    output.flush()
}

/// Longest line that is read, bytes: what vehicles never sent, one by one, is the longest.
const LINE_SIZE_MAX: u64 = 64 << 20;

/// Reads one line.
///
/// # Errors
/// In words for people: the other side ended, or said something else.
pub fn recv<T: for<'a> Deserialize<'a>>(input: &mut impl BufRead) -> Result<T, String> {
    let mut line = String::new();
    match input.take(LINE_SIZE_MAX).read_line(&mut line) {
        Ok(0) => Err("the responder ended".to_owned()),
        Ok(_) if line.len() as u64 == LINE_SIZE_MAX => {
            Err(format!("the responder said more than {LINE_SIZE_MAX} bytes in a line"))
        }
        Ok(_) => serde_json::from_str(&line).map_err(|error| format!("the responder said {line:?}: {error}")),
        Err(error) => Err(format!("the responder cannot be heard: {error}")),
    }
}

/// The other process. It ends with its input, and with this value.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// That this process was interrupted.
    is_told: bool,
}

/// Between two looks whether this process was interrupted while another is listened to.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

impl Worker {
    /// Starts this program with these arguments, in the calling thread's network namespace.
    ///
    /// # Errors
    /// In words for people.
    pub fn start(arguments: &[&str]) -> Result<Self, String> {
        Self::start_with(arguments, &[])
    }

    /// The same with more variables in its environment.
    ///
    /// # Errors
    /// In words for people.
    pub fn start_with(arguments: &[&str], more: &[(&str, &str)]) -> Result<Self, String> {
        let program =
            std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(more.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the responder: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or("the responder has no pipes")?;
        Ok(Self { child, input: Some(input), output: BufReader::new(output), is_told: false })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something.
    ///
    /// # Errors
    /// In words for people.
    pub fn send(&mut self, what: &impl Serialize) -> Result<(), String> {
        match &mut self.input {
            Some(input) => send(input, what),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
        .map_err(|error| format!("the responder does not listen: {error}"))
    }

    /// Waits for what it says. An interrupt of this process is passed on meanwhile: only a terminal's Ctrl-C reaches both.
    ///
    /// # Errors
    /// In words for people.
    pub fn recv<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, String> {
        while self.output.buffer().is_empty() && !self.is_told && !self.has_output() {
            if interrupted() {
                self.is_told = true;
                interrupt(&self.child);
            }
        }
        recv(&mut self.output)
    }

    /// Whether it has said something or ended; waits a moment for that. `true` if the pipe cannot be watched: then a read tells.
    fn has_output(&self) -> bool {
        match wait_readable(self.output.get_ref().as_fd(), Some(BETWEEN_LOOKS)) {
            Ok(readable) => readable,
            Err(error) => error.kind() != ErrorKind::Interrupted,
        }
    }

    /// Takes the bytes that follow a line.
    ///
    /// # Errors
    /// In words for people.
    pub fn recv_bytes(&mut self, size: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; size];
        let read = self.output.read_exact(&mut bytes);
        read.map(|()| bytes).map_err(|error| format!("the other process cannot be heard: {error}"))
    }
}

/// How long a worker may take to leave.
const LEAVING_MAX: Duration = Duration::from_secs(3);

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
        if !ends_by_itself(&mut self.child) {
            let _ended = self.child.kill();
        }
        let _reaped = self.child.wait();
    }
}
