//! A program in a process of its own that is told what to do, line by line, and answers each.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Such a program, which ends with this.
#[derive(Debug)]
pub struct Told {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Told {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    ///
    /// # Panics
    /// Never: the pipes are asked for.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Ok(Self { child, input, output })
    }

    /// Says a line.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        let told = writeln!(self.input, "{line}").and_then(|()| self.input.flush());
        told.map_err(|error| format!("a program cannot be told {line:?}: {error}"))
    }

    /// Waits for a line.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("a program has ended where an answer was due".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("no answer of a program: {error}")),
        }
    }

    /// Says a line, and waits for the answer.
    ///
    /// # Errors
    /// If the program has ended.
    pub fn ask(&mut self, line: &str) -> Result<String, String> {
        self.tell(line)?;
        self.hear()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

/// Answers each line of this process's input, until that ends.
///
/// # Errors
/// If an answer is an error, or nobody reads the answers.
pub fn answer_lines(mut answer: impl FnMut(&str) -> Result<String, String>) -> Result<(), String> {
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let answer = answer(&line)?;
        writeln!(std::io::stdout(), "{answer}").map_err(|error| error.to_string())?;
    }
    Ok(())
}
